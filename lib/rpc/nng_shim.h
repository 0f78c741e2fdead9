/*
 * What nng_shim.c offers to link_nng*.c. The shim is linked into programs, not into libraries;
 * where it is absent its functions are NULL (weak symbols).
 */
#ifndef RPC_NNG_SHIM_H
#define RPC_NNG_SHIM_H

#include <stdbool.h>
#include <sys/socket.h>

/* Whether this connection is meant. `accepted`: by accept(), else it was dialled. */
typedef bool (*nng_shim_match_fn)(void *arg, bool accepted, const struct sockaddr *local,
                                  const struct sockaddr *remote);

/*
 * Makes every matching TCP connection of the process look as if its peer had closed it: NNG then
 * closes the pipe itself, in the one way that is safe. Returns how many there were. Looks at every
 * connection: a microsecond or so for each. @thread any but NNG's
 */
__attribute__((weak)) unsigned nng_shim_hang_up(nng_shim_match_fn match, void *arg);

/*
 * Lets no handshake of the process go on, and waits until none is where its dialer or listener must
 * not be closed; that needs NNG's threads, but no peer. false when it took longer than most_ms:
 * they are held all the same. Several may hold at a time, each releases once. Short: meanwhile
 * NNG's poller asks again and again. @thread any but NNG's @locks none
 */
__attribute__((weak)) bool nng_shim_hold_handshakes(int most_ms);
__attribute__((weak)) void nng_shim_release_handshakes(void);

#endif
