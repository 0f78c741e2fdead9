/*
 * For NNG 1.5: keeps three of its faults from being reached, by standing between it and the kernel.
 *
 * 1. A peer that hangs up during the handshake ends the listener. sendmsg(2) fails with EPIPE, NNG
 * maps that to "closed", and its accept code takes "closed" for "the listener itself was closed":
 * the port stays open and nobody is ever accepted again (nng issue 1518, mended in 1.6.0).
 *
 * 2. Closing a busy pipe can stop the thread that reaps pipes, for ever. A message is read in two
 * steps, length and body; between them a callback waits for its turn in a queue. When the pipe is
 * closed just then, the second step begins on a closed aio, which NNG ignores without a word;
 * nobody completes the read, and the reaper waits for it. From then on no disconnect is noticed in
 * the process. Killing a client that has requests in flight does it about once in thirty times.
 * Writes have the same gap after a partial one.
 *
 * 3. A dialer or listener that is closed during a handshake can lose the connection, with its
 * descriptor, and itself. A handshake sends eight bytes, reads eight, and hands the connection
 * over; a callback waits for its turn between any two of these. After the closing the read is not
 * begun, without a word, as in 2; or nobody is there who takes the connection, and it stays in a
 * list that nobody looks at again.
 *
 * What NNG must never do, then, is close a pipe while a read is between its steps or a write is
 * partial; nor close a dialer or listener while a handshake is between its steps. It closes a pipe
 * when a read fails, which is safe for the read; and on a failed write, on an error event, and when
 * told to, which are not. So, for TCP connections:
 *
 *   - sendmsg is never partial: what was sent is remembered, and the call says EAGAIN until all is
 *     out. It never fails: when the connection is broken it says that all was sent, which is all
 *     that a success ever says; the reading side hears of the end.
 *   - epoll_wait turns error events into "readable and writable": the read fails, and that is the
 *     way out.
 *   - readv says "end of stream" once nng_shim_hang_up() has chosen the connection: this is how
 *     link_nng closes pipes. After a failed write, and in a handshake, "end" becomes ECONNRESET,
 *     after which NNG goes on accepting at once instead of after 100 ms.
 *   - accept, socket and close begin and end a connection's record.
 *   - While nng_shim_hold_handshakes() holds, handshakes are not sent or read: EAGAIN. The holder
 *     waits for those between their steps; they need threads of this process, never a peer.
 *
 *       sendmsg --> STEP --> readv --EAGAIN--> waiting --> readv --> STEP --> readv of the pipe
 *                              |                             |         |
 *                              +-----------> end, error <----+         +----> close
 *
 *     Before the send and while waiting, closing the dialer or listener ends the handshake well.
 *
 * The dynamic linker finds these before libc's, in the whole process; that is why they are linked
 * into programs and never into a library. Other users of these calls see no difference but on TCP
 * sockets of their own: a write there is whole or EAGAIN, a broken connection shows when reading.
 *
 * Threads: any. NNG makes one reading and one writing call at a time on a connection, under its
 * lock, and a handshake's one after the other, so a record needs no lock of its own; the flags are
 * atomic for nng_shim_hang_up(). The one lock is for waiting until nobody is between steps; nothing
 * is called under it. Descriptors above TRACKED_MAX are left alone.
 */
#include "rpc/nng_shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifdef TERN_NNG_NEEDS_SHIM

#define EXPORTED __attribute__((visibility("default")))

enum { TRACKED_MAX = 65536 };
enum { HANDSHAKE_BYTES = 8 };
enum {
    IS_TRACKED = 1,
    WAS_ACCEPTED = 2,
    IS_BROKEN = 4,
    IS_HUNG_UP = 8,
    IN_HANDSHAKE = 16, /* our half was sent; no pipe reads yet */
    IN_STEP = 32       /* counted in `steps` */
};

/* A TCP connection of NNG. */
struct record {
    _Atomic uint32_t flags;
    /* the write under way: how much of it is out, and which it is */
    size_t sent, total;
    const void *first;
    size_t shaken; /* how much has come of the peer's half of the handshake */
};

static struct record records[TRACKED_MAX];
static _Atomic int highest_fd;

typedef ssize_t (*sendmsg_fn)(int, const struct msghdr *, int);
typedef ssize_t (*readv_fn)(int, const struct iovec *, int);
typedef int (*epoll_wait_fn)(int, struct epoll_event *, int, int);
typedef int (*accept_fn)(int, struct sockaddr *, socklen_t *);
typedef int (*socket_fn)(int, int, int);
typedef int (*close_fn)(int);

/* libc's function, looked up once. NULL, and ENOSYS, when there is none. */
static void *next_function(_Atomic uintptr_t *cache, const char *name)
{
    uintptr_t address = atomic_load_explicit(cache, memory_order_relaxed);
    if (!address) {
        address = (uintptr_t)dlsym(RTLD_NEXT, name);
        atomic_store_explicit(cache, address, memory_order_relaxed);
        if (!address)
            errno = ENOSYS;
    }
    return (void *)address;
}

static struct record *record_of(int fd, uint32_t *flags)
{
    if (fd < 0 || fd >= TRACKED_MAX)
        return NULL;
    *flags = atomic_load_explicit(&records[fd].flags, memory_order_acquire);
    return *flags & IS_TRACKED ? &records[fd] : NULL;
}

static void begin_record(int fd, uint32_t flags)
{
    if (fd < 0 || fd >= TRACKED_MAX)
        return;
    /* after all that was done with the number before, which close() released */
    (void)atomic_load_explicit(&records[fd].flags, memory_order_acquire);
    records[fd].sent = 0;
    records[fd].total = 0;
    records[fd].first = NULL;
    records[fd].shaken = 0;
    atomic_store_explicit(&records[fd].flags, flags, memory_order_release);
    int highest = atomic_load(&highest_fd);
    while (fd > highest && !atomic_compare_exchange_weak(&highest_fd, &highest, fd))
        ;
}

/* ---- handshakes ---- */

/* Handshakes between their steps, plus HOLDER for each who holds them. */
static _Atomic uint64_t steps;
static const uint64_t HOLDER = (uint64_t)1 << 32;
static pthread_mutex_t steps_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t no_steps = PTHREAD_COND_INITIALIZER;

static bool are_held(uint64_t state)
{
    return state >= HOLDER;
}

/* Between its steps from now on, if it is not already; false when handshakes are held. */
static bool begin_step(struct record *record)
{
    uint64_t state = atomic_load(&steps);
    if (atomic_load(&record->flags) & IN_STEP)
        return !are_held(state);
    do {
        if (are_held(state))
            return false;
    } while (!atomic_compare_exchange_weak(&steps, &state, state + 1));
    atomic_fetch_or(&record->flags, IN_HANDSHAKE | IN_STEP);
    return true;
}

static void count_step_out(void)
{
    uint64_t before = atomic_fetch_sub(&steps, 1);
    if (!are_held(before) || before % HOLDER != 1)
        return;
    int kept = errno;
    pthread_mutex_lock(&steps_mutex);
    pthread_cond_broadcast(&no_steps);
    pthread_mutex_unlock(&steps_mutex);
    errno = kept;
}

/* What is in `also` ends with the step. */
static void end_step(struct record *record, uint32_t also)
{
    if (atomic_fetch_and(&record->flags, ~(IN_STEP | also)) & IN_STEP)
        count_step_out();
}

/* NNG's half of a handshake. No message looks like it: that would have a length of 2^46. */
static bool is_handshake(const struct msghdr *message, size_t total)
{
    static const uint8_t start[4] = {0, 'S', 'P', 0};
    return total == HANDSHAKE_BYTES && message->msg_iov[0].iov_len >= sizeof start &&
           memcmp(message->msg_iov[0].iov_base, start, sizeof start) == 0;
}

EXPORTED bool nng_shim_hold_handshakes(int most_ms)
{
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += most_ms / 1000;
    until.tv_nsec += most_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    atomic_fetch_add(&steps, HOLDER);
    pthread_mutex_lock(&steps_mutex);
    while (atomic_load(&steps) % HOLDER != 0 && rc == 0)
        rc = pthread_cond_clockwait(&no_steps, &steps_mutex, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&steps_mutex);
    return rc == 0;
}

EXPORTED void nng_shim_release_handshakes(void)
{
    atomic_fetch_sub(&steps, HOLDER);
}

/* ---- writing ---- */

/* The message without its first `skip` bytes; iov has room for its vector. */
static void rest_of(const struct msghdr *message, size_t skip, struct msghdr *rest,
                    struct iovec *iov)
{
    *rest = *message;
    rest->msg_iov = iov;
    rest->msg_iovlen = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        struct iovec part = message->msg_iov[i];
        size_t gone = skip < part.iov_len ? skip : part.iov_len;
        skip -= gone;
        part.iov_base = (char *)part.iov_base + gone;
        part.iov_len -= gone;
        if (part.iov_len > 0)
            iov[rest->msg_iovlen++] = part;
    }
}

static ssize_t send_whole(struct record *record, sendmsg_fn next, int fd,
                          const struct msghdr *message, int flags, size_t total)
{
    struct iovec iov[16];
    struct msghdr rest;
    const void *first = message->msg_iov[0].iov_base;
    if (record->first != first || record->total != total)
        record->sent = 0; /* another message: the one before was given up */
    record->first = first;
    record->total = total;
    rest_of(message, record->sent, &rest, iov);
    ssize_t sent = next(fd, &rest, flags);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return -1;
    if (sent < 0) {
        atomic_fetch_or(&record->flags, IS_BROKEN);
    } else {
        record->sent += (size_t)sent;
        if (record->sent < total) {
            errno = EAGAIN;
            return -1;
        }
    }
    record->first = NULL;
    return (ssize_t)total;
}

EXPORTED ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    static _Atomic uintptr_t cache;
    sendmsg_fn next = (sendmsg_fn)next_function(&cache, "sendmsg");
    uint32_t state = 0;
    struct record *record = record_of(fd, &state);
    if (!next)
        return -1;
    if (!record || message->msg_iovlen == 0 || message->msg_iovlen > 16)
        return next(fd, message, flags);
    size_t total = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        total += message->msg_iov[i].iov_len;
    if (state & IS_BROKEN)
        return (ssize_t)total;
    bool handshake = is_handshake(message, total);
    if (handshake && !begin_step(record)) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t sent = send_whole(record, next, fd, message, flags, total);
    if (handshake && sent < 0)
        end_step(record, 0);
    return sent;
}

/* ---- reading ---- */

static ssize_t read_on(uint32_t state, readv_fn next, int fd, const struct iovec *iov, int count)
{
    if (state & IS_HUNG_UP)
        return 0;
    ssize_t got = next(fd, iov, count);
    if (got == 0 && state & IS_BROKEN) {
        errno = ECONNRESET;
        return -1;
    }
    return got;
}

/* A read of the peer's half, or, when that is there, the pipe's first. */
static ssize_t read_handshake(struct record *record, uint32_t state, readv_fn next, int fd,
                              const struct iovec *iov, int count)
{
    if (record->shaken >= HANDSHAKE_BYTES) {
        end_step(record, IN_HANDSHAKE);
        return read_on(state, next, fd, iov, count);
    }
    ssize_t got = -1;
    if (begin_step(record))
        got = read_on(state, next, fd, iov, count);
    else
        errno = EAGAIN;
    if (got > 0) {
        record->shaken += (size_t)got;
        return got;
    }
    end_step(record, 0);
    if (got == 0)
        errno = ECONNRESET;
    return -1;
}

EXPORTED ssize_t readv(int fd, const struct iovec *iov, int count)
{
    static _Atomic uintptr_t cache;
    readv_fn next = (readv_fn)next_function(&cache, "readv");
    uint32_t state = 0;
    struct record *record = record_of(fd, &state);
    if (!next)
        return -1;
    if (record && state & IN_HANDSHAKE)
        return read_handshake(record, state, next, fd, iov, count);
    return read_on(record ? state : 0, next, fd, iov, count);
}

EXPORTED int epoll_wait(int epoll_fd, struct epoll_event *events, int most, int timeout_ms)
{
    static _Atomic uintptr_t cache;
    epoll_wait_fn next = (epoll_wait_fn)next_function(&cache, "epoll_wait");
    if (!next)
        return -1;
    int count = next(epoll_fd, events, most, timeout_ms);
    for (int i = 0; i < count; i++)
        if (events[i].events & (uint32_t)EPOLLERR)
            events[i].events =
                (events[i].events & ~(uint32_t)EPOLLERR) | (uint32_t)EPOLLIN | (uint32_t)EPOLLOUT;
    return count;
}

/* ---- beginnings ---- */

EXPORTED int accept(int fd, struct sockaddr *address, socklen_t *len)
{
    static _Atomic uintptr_t cache;
    accept_fn next = (accept_fn)next_function(&cache, "accept");
    struct sockaddr_storage own;
    socklen_t own_len = sizeof own;
    if (!next)
        return -1;
    int accepted = next(fd, address, len);
    if (accepted < 0)
        return -1;
    own.ss_family = AF_UNSPEC;
    if (getsockname(accepted, (struct sockaddr *)&own, &own_len) == 0 &&
        (own.ss_family == AF_INET || own.ss_family == AF_INET6))
        begin_record(accepted, IS_TRACKED | WAS_ACCEPTED);
    else
        begin_record(accepted, 0);
    return accepted;
}

EXPORTED int socket(int domain, int type, int protocol)
{
    static _Atomic uintptr_t cache;
    socket_fn next = (socket_fn)next_function(&cache, "socket");
    if (!next)
        return -1;
    int fd = next(domain, type, protocol);
    bool tcp = (domain == AF_INET || domain == AF_INET6) &&
               (type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) == SOCK_STREAM;
    if (fd >= 0)
        begin_record(fd, tcp ? IS_TRACKED : 0);
    return fd;
}

EXPORTED int close(int fd)
{
    static _Atomic uintptr_t cache;
    close_fn next = (close_fn)next_function(&cache, "close");
    uint32_t state = 0;
    struct record *record = record_of(fd, &state);
    if (!next)
        return -1;
    if (record) /* the number may become a file's */
        end_step(record, UINT32_MAX);
    return next(fd);
}

/* ---- hanging up ---- */

EXPORTED unsigned nng_shim_hang_up(nng_shim_match_fn match, void *arg)
{
    unsigned count = 0;
    int highest = atomic_load(&highest_fd);
    for (int fd = 0; fd <= highest; fd++) {
        uint32_t state = 0;
        struct sockaddr_storage local;
        struct sockaddr_storage remote;
        socklen_t local_len = sizeof local;
        socklen_t remote_len = sizeof remote;
        struct record *record = record_of(fd, &state);
        if (!record || getpeername(fd, (struct sockaddr *)&remote, &remote_len) != 0 ||
            getsockname(fd, (struct sockaddr *)&local, &local_len) != 0 ||
            !match(arg, (state & WAS_ACCEPTED) != 0, (struct sockaddr *)&local,
                   (struct sockaddr *)&remote))
            continue;
        atomic_fetch_or(&record->flags, IS_HUNG_UP);
        shutdown(fd, SHUT_RD); /* wakes the poller */
        count++;
    }
    return count;
}

#else

/* Nothing to mend; but an empty file is no translation unit. */
extern const int nng_shim_is_empty;
const int nng_shim_is_empty = 1;

#endif
