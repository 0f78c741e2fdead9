/*
 * Calling servers: one peer per address, shared by everybody who talks to it. Calls have deadlines,
 * are never repeated here, and end at once when the connection goes. A peer that falls silent
 * without hanging up is noticed when silence_ms is set.
 */
#ifndef RPC_CLIENT_H
#define RPC_CLIENT_H

#include "rpc/frame.h"

struct rpc_client;
struct rpc_peer;
struct rpc_call;

struct rpc_client_options {
    size_t max_message_bytes;
    int64_t connect_wait_ms; /* a call to a peer that is down waits that long for it, then
                                UNREACHABLE */
    int64_t reconnect_min_ms, reconnect_max_ms;
    int64_t silence_ms;    /* a peer that owes answers and says nothing for so long is pinged, and
                              dropped after another 1500 ms of silence; 0: never */
    const char *client_id; /* put into every request; may be empty */
    void *arg;
    /* A peer came or went, as rpc_peer_up() says by then. @thread link's, or a task of the client
     * @locks none */
    void (*on_peer_state)(void *arg, struct rpc_peer *peer, bool up);
};

MUST_CHECK enum tern_code rpc_client_create(const struct env *env, struct link *link,
                                            const struct rpc_client_options *options,
                                            struct rpc_client **out);
/* Cancels calls, waits for their callbacks, closes connections. All peers must be unref'd. @thread
 * not-link */
void rpc_client_destroy(struct rpc_client *client);

/* The peer at "host:port", dialled when it is new. Unref'd peers close after a minute of disuse. */
MUST_CHECK enum tern_code rpc_peer_get(struct rpc_client *client, const char *address,
                                       struct rpc_peer **out, struct tern_error *err);
struct rpc_peer *rpc_peer_ref(struct rpc_peer *peer);
void rpc_peer_unref(struct rpc_peer *peer);
const char *rpc_peer_address(const struct rpc_peer *peer);
/*
 * Connected. A peer whose connection was dropped for its silence is up again with its first answer
 * only.
 */
bool rpc_peer_up(const struct rpc_peer *peer);
/* Known to be away: its connection was lost or could not be made. Neither up nor down: not known
 * yet. */
bool rpc_peer_down(const struct rpc_peer *peer);
/*
 * Most of what the connection carries is under way: calls that would be kept waiting there should
 * not be made now, so that others find room. @thread any
 */
bool rpc_peer_crowded(const struct rpc_peer *peer);
/* Since when it is up (monotonic); the time of the last change when it is not, 0: never was. */
int64_t rpc_peer_up_since_ns(const struct rpc_peer *peer);
/* Dials without waiting for the end of the back-off, at most once a second; nothing when it is up.
 * @thread any @locks none */
void rpc_peer_retry_now(struct rpc_peer *peer);

/*
 * A call: made, its payload filled, started, and freed by whoever holds the last reference. The
 * starter's reference goes to the callback, which unrefs or keeps it (messages of a pull borrow
 * from it).
 */
struct rpc_call {
    /* set when done */
    enum tern_code status;        /* OK: an answer came, see response->code */
    const TernResponse *response; /* borrowed from the call */
    const uint8_t *payload;
    size_t payload_size;
    struct tern_error error; /* text when status or response->code is not success */
    void *user;              /* the caller's */
};

/* TERN_NO_MEMORY, TERN_LIMIT (too many calls to this peer), TERN_TOO_LARGE (payload above the
 * peer's limit). */
MUST_CHECK enum tern_code rpc_call_create(struct rpc_peer *peer, size_t payload_cap,
                                          struct rpc_call **out);
uint8_t *rpc_call_payload(struct rpc_call *call);
struct rpc_call *rpc_call_ref(struct rpc_call *call);
void rpc_call_unref(struct rpc_call *call); /* also for one that was never started */

typedef void (*rpc_done_fn)(struct rpc_call *call, void *arg);

/*
 * Sends header (version, timeout and client id are filled in here) and the first payload_size
 * bytes; `done` is called exactly once, never from within, on a link thread. The header is packed
 * before this returns.
 */
void rpc_call_start(struct rpc_call *call, TernRequest *header, size_t payload_size,
                    int64_t timeout_ms, rpc_done_fn done, void *arg);

/*
 * The code of a finished call: transport status, else the response's code as tern_code; text in
 * call->error.
 */
enum tern_code rpc_call_result(const struct rpc_call *call);

/*
 * Start and wait. *out (may be NULL) is the caller's when the function returns TERN_OK, and also on
 * failure when an answer came (its body may matter); else NULL. @thread not-link @locks none
 */
MUST_CHECK enum tern_code rpc_call_wait(struct rpc_peer *peer, TernRequest *header,
                                        const void *payload, size_t payload_size,
                                        int64_t timeout_ms, struct rpc_call **out,
                                        struct tern_error *err);

#endif
