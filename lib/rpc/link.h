/*
 * A link: how frames travel between processes. A table of operations with two implementations: NNG
 * (link_nng.c, the only file that includes NNG) and a simulated network in tests/sim.
 *
 * Messages are opaque buffers with a body that grows at its end and shrinks at its front without
 * copying. Every message has exactly one owner. Callbacks come on the link's own threads and must
 * not wait; they may call every function of this header but the ones marked @thread not-link.
 *
 *   server                                      client
 *   link_listen ──► on_request(rq)              link_dial ──► on_up / on_down
 *        link_reply(rq, msg)   ◄────────────►   link_call(conn, msg, deadline, done)
 */
#ifndef RPC_LINK_H
#define RPC_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/record.h"

struct link;
struct link_msg;      /* a message */
struct link_listener; /* a served address */
struct link_request;  /* a request that waits for its one reply */
struct link_conn;     /* a client's connection to one address, re-made by itself */

/* A connected client as the server sees it. id is never reused within a listener's life. */
struct link_peer {
    uint64_t id;
    struct host remote;
};

struct link_listen_options {
    const char *address; /* "127.0.0.1:10911", "[::1]:10911"; port 0: any free one */
    size_t max_message_bytes;
    uint32_t max_peers;    /* further connections are closed */
    uint32_t max_requests; /* unanswered ones in all */
    uint32_t max_requests_per_peer;
    int64_t reply_timeout_ms; /* a reply not taken by then closes the peer's connection */
    int64_t idle_close_ms;    /* a peer without any request for so long is closed; 0: never */
    void *arg;
    /* A request came; it is answered by exactly one link_reply(), at any time, on any thread.
     * @thread nng */
    void (*on_request)(void *arg, struct link_request *request);
    /* A peer came or went; its unanswered requests may be answered to nobody or dropped. @thread
     * link's, in order */
    void (*on_peer)(void *arg, const struct link_peer *peer, bool up);
    /*
     * The caps are nearly reached: the owner should answer its oldest parked requests, of this peer
     * when peer is not NULL, else of any. @thread nng
     */
    void (*on_pressure)(void *arg, const struct link_peer *peer);
};

struct link_dial_options {
    const char *address;
    size_t max_message_bytes;
    int64_t reconnect_min_ms, reconnect_max_ms; /* back-off with jitter, grows by doubling */
    int64_t attempt_timeout_ms;                 /* one connection attempt */
    int64_t
        connect_wait_ms; /* a call without a connection ends UNREACHABLE then; 0: at its deadline */
    void *arg;
    /* The connection came up or went down, or an attempt failed (down without up). @thread link's,
     * in order */
    void (*on_state)(void *arg, bool up);
};

/*
 * status TERN_OK: reply is the callee's. Else NULL: TIMEOUT, CONNECTION_LOST, UNREACHABLE (never
 * sent), CANCELED, LIMIT, TOO_LARGE, NO_MEMORY. @thread link's @locks none
 */
typedef void (*link_done_fn)(void *arg, enum tern_code status, struct link_msg *reply);

struct link_ops {
    enum tern_code (*msg_alloc)(struct link *, size_t size, struct link_msg **out);
    void (*msg_free)(struct link_msg *);
    uint8_t *(*msg_body)(struct link_msg *);
    size_t (*msg_size)(const struct link_msg *);
    void (*msg_trim)(struct link_msg *, size_t front_bytes);
    void (*msg_chop)(struct link_msg *, size_t end_bytes);

    enum tern_code (*listen)(struct link *, const struct link_listen_options *,
                             struct link_listener **out, struct tern_error *err);
    uint16_t (*listener_port)(const struct link_listener *);
    void (*listener_close)(struct link_listener *);
    struct link_msg *(*request_msg)(struct link_request *);
    void (*request_peer)(const struct link_request *, struct link_peer *out);
    bool (*request_over_cap)(const struct link_request *); /* NULL: never */
    void (*request_release)(struct link_request *);
    void (*reply)(struct link_request *, struct link_msg *);
    void (*peer_close)(struct link_listener *, uint64_t peer_id);

    enum tern_code (*dial)(struct link *, const struct link_dial_options *, struct link_conn **out,
                           struct tern_error *err);
    void (*call)(struct link_conn *, struct link_msg *, int64_t deadline_ns, link_done_fn done,
                 void *arg);
    void (*conn_retry_now)(struct link_conn *);
    void (*conn_drop)(struct link_conn *);
    void (*conn_close)(struct link_conn *);
    void (*destroy)(struct link *);
};

struct link {
    const struct link_ops *ops;
};

/* NNG over TCP. env is borrowed. One link serves any number of listeners and connections. */
MUST_CHECK enum tern_code link_nng_create(const struct env *env, struct link **out,
                                          struct tern_error *err);
/* After all its listeners and connections are closed. @thread not-link */
void link_destroy(struct link *link);

/* A message with a body of size_bytes, not initialised. */
MUST_CHECK enum tern_code link_msg_alloc(struct link *link, size_t size_bytes,
                                         struct link_msg **out);
void link_msg_free(struct link *link, struct link_msg *msg); /* NULL allowed */
uint8_t *link_msg_body(struct link *link, struct link_msg *msg);
size_t link_msg_size(struct link *link, const struct link_msg *msg);
/* Removes bytes at the front (headroom that was not needed) or at the end. */
void link_msg_trim(struct link *link, struct link_msg *msg, size_t front_bytes);
void link_msg_chop(struct link *link, struct link_msg *msg, size_t end_bytes);

/*
 * TERN_IN_USE: the address is taken; TERN_INVALID: it does not parse or is not this machine's.
 * Options are copied; on_* may come before this returns, *out is set by then.
 */
MUST_CHECK enum tern_code link_listen(struct link *link, const struct link_listen_options *options,
                                      struct link_listener **out, struct tern_error *err);
uint16_t link_listener_port(struct link *link, const struct link_listener *listener);
/*
 * Stops accepting, drops peers and unanswered requests: their link_reply() must still be called (or
 * have been) and frees them. Returns when no callback runs any more. @thread not-link
 */
void link_listener_close(struct link *link, struct link_listener *listener);

/* The request's frame, owned by the request until released or replied. */
struct link_msg *link_request_msg(struct link *link, struct link_request *request);
void link_request_peer(struct link *link, const struct link_request *request,
                       struct link_peer *out);
/* The request came above a cap: it should be answered "busy" at once. */
bool link_request_over_cap(struct link *link, const struct link_request *request);
/* Frees the frame early; link_request_msg() is NULL afterwards. */
void link_request_release(struct link *link, struct link_request *request);
/* Answers: takes msg, ends the request. msg NULL drops it without an answer. @thread any @locks
 * none */
void link_reply(struct link *link, struct link_request *request, struct link_msg *msg);
/* Closes one peer's connection. @thread any */
void link_peer_close(struct link *link, struct link_listener *listener, uint64_t peer_id);

/* Starts connecting and goes on for ever; the address is resolved at each attempt. */
MUST_CHECK enum tern_code link_dial(struct link *link, const struct link_dial_options *options,
                                    struct link_conn **out, struct tern_error *err);
/*
 * One request: takes msg in every case; done is called exactly once, never from within link_call.
 * Without a connection the call waits for one until its deadline; when the connection goes, calls
 * under way end with TERN_CONNECTION_LOST at once and are never sent again. @thread any @locks none
 */
void link_call(struct link *link, struct link_conn *conn, struct link_msg *msg, int64_t deadline_ns,
               link_done_fn done, void *arg);
/* Skips the rest of the back-off, at most once a second. */
void link_conn_retry_now(struct link *link, struct link_conn *conn);
/*
 * Breaks the connection at hand, if there is one, as if the network had: calls under way on it end
 * with TERN_CONNECTION_LOST soon, never from within, and dialling goes on. @thread any @locks none
 */
void link_conn_drop(struct link *link, struct link_conn *conn);
/* Ends calls with TERN_CANCELED; returns when no callback runs any more. @thread not-link */
void link_conn_close(struct link *link, struct link_conn *conn);

#endif
