/*
 * Serving requests: decodes frames, hands each to one function, sends its answer. A request is
 * transport- free: handlers see protobuf structs and bytes. Its memory (header, payload, arena)
 * lives until it is answered; every request is answered exactly once. Pings are answered by the
 * server itself.
 */
#ifndef RPC_SERVER_H
#define RPC_SERVER_H

#include "base/metrics.h"
#include "rpc/frame.h"

struct rpc_server;

struct rpc_request {
    const TernRequest *header;
    uint8_t *payload; /* may be stamped in place; borrowed from the frame */
    size_t payload_size;
    struct link_peer peer;
    int64_t received_ns; /* monotonic */
    int64_t deadline_ns; /* when the sender stops waiting */
    struct rpc_server *server;
    struct rpc_request *prev, *next; /* for the handler's own lists while it holds the request */
    void *user;                      /* the handler's */
};

struct rpc_server_options {
    struct link_listen_options listen; /* arg and callbacks are set by the server */
    size_t arena_budget_bytes;         /* per request, e.g. frame_max_bytes + 1 MiB */
    void *arg;
    /* @thread nng: must not wait. Answers now or later. */
    void (*on_request)(void *arg, struct rpc_request *request);
    void (*on_peer_gone)(void *arg, uint64_t peer_id); /* may be NULL */
    void (*on_pressure)(void *arg, uint64_t peer_id);  /* 0: any peer; may be NULL */
};

MUST_CHECK enum tern_code rpc_server_create(const struct env *env, struct link *link,
                                            const struct rpc_server_options *options,
                                            struct rpc_server **out, struct tern_error *err);
uint16_t rpc_server_port(const struct rpc_server *server);
/* Stops taking requests and peers; unanswered requests stay valid until answered. @thread not-link
 */
void rpc_server_stop(struct rpc_server *server);
/* After stop, when every request was answered (ENSUREd). */
void rpc_server_destroy(struct rpc_server *server);
void rpc_server_close_peer(struct rpc_server *server, uint64_t peer_id);
/* Counted since creation; read with counter_get(). */
struct rpc_server_stats {
    _Atomic uint64_t requests; /* that reached on_request */
    _Atomic uint64_t pings;    /* answered here */
    _Atomic uint64_t busy;     /* refused because of a cap or memory */
    _Atomic uint64_t
        malformed; /* refused because they do not decode, or in a version or body unknown */
    _Atomic uint64_t
        unbuilt; /* answers that were too large or had no memory: an error went instead */
};
const struct rpc_server_stats *rpc_server_stats(const struct rpc_server *server);
/* Unanswered requests now. */
uint32_t rpc_server_pending(const struct rpc_server *server);
uint32_t rpc_server_peers(const struct rpc_server *server);

/* Memory that lives until the answer; NULL beyond the budget. @thread who holds the request */
void *rpc_request_alloc(struct rpc_request *request, size_t size);
/* The arena itself, for frame_text() and the like. */
struct arena *rpc_request_arena(struct rpc_request *request);

/*
 * Room for the answer's payload, to be filled before rpc_reply(); at most one per answer, a second
 * call replaces the first. NULL without memory.
 */
uint8_t *rpc_reply_reserve(struct rpc_request *request, size_t payload_cap);
/* Answers with header and the first payload_size reserved bytes; the request is gone. @thread any
 * @locks none */
void rpc_reply(struct rpc_request *request, const TernResponse *header, size_t payload_size);
/* Answers success with nothing in it. */
void rpc_reply_ok(struct rpc_request *request);
/* Answers a failure: wire code of `code`, remark from the format. */
void rpc_reply_error(struct rpc_request *request, enum tern_code code, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
void rpc_reply_failure(struct rpc_request *request, enum tern_code code,
                       const struct tern_error *err);

#endif
