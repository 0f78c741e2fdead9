/*
 * For NNG before 1.6: a peer that hangs up during the handshake must not end the listener.
 *
 * NNG sends its handshake with sendmsg(2). When the peer has left by then, the call fails with
 * EPIPE, which NNG maps to NNG_ECLOSED. Its accept and connect code takes "closed" for "the
 * listener (or dialer) itself was closed" and stops for good: one port scan, and no new client is
 * ever accepted (nng issue 1518, mended in 1.6.0). Every other error makes it go on, so here EPIPE
 * becomes ECONNRESET, which is as true.
 *
 * The dynamic linker finds this sendmsg before libc's, for all of the process; that is why it is
 * linked into programs and never into a library. Whoever else calls sendmsg sees ECONNRESET in
 * place of EPIPE; nobody in our programs cares which. SIGPIPE is not concerned: NNG passes
 * MSG_NOSIGNAL.
 *
 * Threads: any. Failure modes: without libc's sendmsg every call fails with ENOSYS.
 */
#ifdef TERN_NNG_EPIPE_IS_CLOSED

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

typedef ssize_t (*sendmsg_fn)(int, const struct msghdr *, int);

/* link_nng.c looks whether this is there, and warns when it is not. */
__attribute__((visibility("default"))) const int tern_nng_epipe_shim = 1;

static sendmsg_fn find_sendmsg(void)
{
    static _Atomic uintptr_t found;
    uintptr_t address = atomic_load_explicit(&found, memory_order_relaxed);
    if (!address) {
        address = (uintptr_t)dlsym(RTLD_NEXT, "sendmsg");
        atomic_store_explicit(&found, address, memory_order_relaxed);
    }
    return (sendmsg_fn)address;
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *message,
                                                       int flags)
{
    sendmsg_fn next = find_sendmsg();
    if (!next) {
        errno = ENOSYS;
        return -1;
    }
    ssize_t sent = next(fd, message, flags);
    if (sent < 0 && errno == EPIPE)
        errno = ECONNRESET;
    return sent;
}

#else

/* Nothing to mend. */
extern const int tern_nng_epipe_shim;
__attribute__((visibility("default"))) const int tern_nng_epipe_shim = 0;

#endif
