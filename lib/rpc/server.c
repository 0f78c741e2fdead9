/*
 * Serving requests.
 *
 *   link: on_request ──► decode into a pooled struct ──► owner's on_request
 *                             │ cannot be decoded, over a cap            │ now or later, any thread
 *                             └──► error answer at once                  ▼
 *                                  link_reply ◄── pack ◄── rpc_reply and its kin
 *
 * A request's struct and its arena are taken from a free list and go back to it when it is
 * answered; in the steady state nothing is allocated here. The frame belongs to the link's request
 * until then, so header, payload and whatever was allocated from the arena may be borrowed by the
 * answer's header.
 *
 * Invariants: every request that reached on_request is answered exactly once; its struct is not
 * touched after link_reply(). The free list never holds more than FREE_MAX: a burst of parked
 * requests gives its memory back.
 *
 * Threads: on_request on the link's threads; answers on any. Locks: server->lock for the free list,
 * never while calling out.
 *
 * "Are you there?" is answered here and never reaches the owner, whatever state that is in.
 *
 * Failure modes: what cannot be decoded is answered INVALID_REQUEST, the connection stays. Without
 * memory for the request: SYSTEM_BUSY. An answer that is too large or finds no memory: SYSTEM_ERROR
 * instead.
 */
#include "rpc/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "rpc/gate.h"

enum {
    FREE_MAX = 1024,
    DEFAULT_TIMEOUT_MS = 3000,
    TIMEOUT_MAX_MS = 600000 /* longer ones count as this */
};

#define REQUEST_MAGIC 0x52505152u /* "RPQR" */

struct server_request {
    struct rpc_request pub; /* first */
    uint32_t magic;
    struct link_request *request;
    struct arena arena;
    struct link_msg *reply; /* reserved */
    struct server_request *next_free;
};

struct rpc_server {
    struct env env;
    struct link *link;
    struct link_listener *listener; /* until stopped; used inside the gate */
    struct rpc_gate gate;
    struct rpc_server_options options;
    _Atomic uint32_t pending;
    _Atomic uint32_t peers;
    struct rpc_server_stats stats;
    struct lock lock;
    struct server_request *free; /* lock */
    uint32_t free_count;         /* lock */
    bool stopped;                /* the owner's */
};

/* ---- the pool ---- */

static struct server_request *take_request(struct rpc_server *server)
{
    lock_acquire(&server->lock);
    struct server_request *request = server->free;
    if (request) {
        server->free = request->next_free;
        server->free_count--;
    }
    lock_release(&server->lock);
    if (request)
        return request;
    request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->magic = REQUEST_MAGIC;
    request->pub.server = server;
    arena_init(&request->arena, server->options.arena_budget_bytes);
    return request;
}

static void free_request(struct server_request *request)
{
    request->magic = 0;
    arena_fini(&request->arena);
    free(request);
}

static void give_back(struct server_request *request)
{
    struct rpc_server *server = request->pub.server;
    arena_reset(&request->arena);
    request->request = NULL;
    lock_acquire(&server->lock);
    bool keep = server->free_count < FREE_MAX;
    if (keep) {
        request->next_free = server->free;
        server->free = request;
        server->free_count++;
    }
    lock_release(&server->lock);
    if (!keep)
        free_request(request);
}

static struct server_request *from_public(struct rpc_request *pub)
{
    struct server_request *request = (struct server_request *)pub;
    ENSURE(request->magic == REQUEST_MAGIC && request->request);
    return request;
}

/* ---- receiving ---- */

/* An answer without body for what never became a request of the owner's. */
static void answer_shortly(struct rpc_server *server, struct link_request *request,
                           int32_t wire_code, const char *remark)
{
    TernResponse header = TERN__WIRE__RESPONSE__INIT;
    struct link_msg *reply = NULL;
    header.code = wire_code;
    header.remark = (char *)(uintptr_t)remark;
    enum tern_code code = frame_reserve(server->link, 0, &reply);
    if (code == TERN_OK)
        code = frame_finish_response(server->link, &reply, &header, 0);
    link_reply(server->link, request, code == TERN_OK ? reply : NULL);
}

/* NULL, or what is wrong with a header that did decode. */
static const char *check_header(const TernRequest *header, int32_t *wire_code)
{
    if (header->version != PROTOCOL_VERSION) {
        *wire_code = TERN__WIRE__CODE__VERSION_NOT_SUPPORTED;
        return "this server speaks protocol version 1 only; the request's `version` must be 1";
    }
    if (header->body_case == TERN__WIRE__REQUEST__BODY__NOT_SET) {
        *wire_code = TERN__WIRE__CODE__REQUEST_CODE_NOT_SUPPORTED;
        return "this server does not know the request's body, or there is none";
    }
    return NULL;
}

static bool decode(struct server_request *request, struct tern_error *err)
{
    struct rpc_request *pub = &request->pub;
    struct link *link = pub->server->link;
    struct link_msg *msg = link_request_msg(link, request->request);
    const uint8_t *payload;
    pub->header = frame_unpack_request(&request->arena, link_msg_body(link, msg),
                                       link_msg_size(link, msg), &payload, &pub->payload_size, err);
    pub->payload = (uint8_t *)(uintptr_t)payload;
    return pub->header != NULL;
}

static void fill(struct server_request *request)
{
    struct rpc_request *pub = &request->pub;
    struct rpc_server *server = pub->server;
    uint32_t timeout_ms = pub->header->timeout_ms;
    if (timeout_ms == 0)
        timeout_ms = DEFAULT_TIMEOUT_MS;
    if (timeout_ms > TIMEOUT_MAX_MS)
        timeout_ms = TIMEOUT_MAX_MS;
    pub->received_ns = clock_mono_ns(server->env.clock);
    pub->deadline_ns = pub->received_ns + ms_to_ns(timeout_ms);
    pub->prev = NULL;
    pub->next = NULL;
    pub->user = NULL;
    link_request_peer(server->link, request->request, &pub->peer);
}

static void refuse_malformed(struct server_request *request, int32_t wire_code, const char *text)
{
    struct rpc_server *server = request->pub.server;
    struct link_request *link_request = request->request;
    struct link_peer peer;
    char remote[HOST_TEXT_BYTES];
    link_request_peer(server->link, link_request, &peer);
    host_format(remote, &peer.remote);
    counter_add(&server->stats.malformed, 1);
    log_warn(server->env.log, "rpc.request_malformed", "peer=%s reason=\"%s\"", remote, text);
    give_back(request);
    answer_shortly(server, link_request, wire_code, text);
}

static void on_link_request(void *arg, struct link_request *link_request)
{
    struct rpc_server *server = arg;
    struct server_request *request = NULL;
    if (!link_request_over_cap(server->link, link_request))
        request = take_request(server);
    if (!request) {
        counter_add(&server->stats.busy, 1);
        answer_shortly(
            server, link_request, TERN__WIRE__CODE__SYSTEM_BUSY,
            "too many requests of this client or in all wait for their answer; ask again later");
        return;
    }
    struct tern_error err = {.code = TERN_OK};
    int32_t wire_code = TERN__WIRE__CODE__INVALID_REQUEST;
    request->request = link_request;
    if (!decode(request, &err)) {
        refuse_malformed(request, wire_code, err.text);
        return;
    }
    const char *wrong = check_header(request->pub.header, &wire_code);
    if (wrong) {
        refuse_malformed(request, wire_code, wrong);
        return;
    }
    if (request->pub.header->body_case == TERN__WIRE__REQUEST__BODY_PING) {
        give_back(request);
        counter_add(&server->stats.pings, 1);
        answer_shortly(server, link_request, TERN__WIRE__CODE__SUCCESS, "");
        return;
    }
    fill(request);
    atomic_fetch_add(&server->pending, 1);
    counter_add(&server->stats.requests, 1);
    server->options.on_request(server->options.arg, &request->pub);
}

static void on_link_peer(void *arg, const struct link_peer *peer, bool up)
{
    struct rpc_server *server = arg;
    if (up) {
        atomic_fetch_add(&server->peers, 1);
        return;
    }
    atomic_fetch_sub(&server->peers, 1);
    if (server->options.on_peer_gone)
        server->options.on_peer_gone(server->options.arg, peer->id);
}

static void on_link_pressure(void *arg, const struct link_peer *peer)
{
    struct rpc_server *server = arg;
    if (server->options.on_pressure)
        server->options.on_pressure(server->options.arg, peer ? peer->id : 0);
}

/* ---- answering ---- */

void *rpc_request_alloc(struct rpc_request *pub, size_t size)
{
    return arena_alloc(&from_public(pub)->arena, size);
}

struct arena *rpc_request_arena(struct rpc_request *pub)
{
    return &from_public(pub)->arena;
}

static void drop_reserved(struct server_request *request)
{
    link_msg_free(request->pub.server->link, request->reply);
    request->reply = NULL;
}

uint8_t *rpc_reply_reserve(struct rpc_request *pub, size_t payload_cap)
{
    struct server_request *request = from_public(pub);
    struct link *link = pub->server->link;
    drop_reserved(request);
    if (frame_reserve(link, payload_cap, &request->reply) != TERN_OK) {
        request->reply = NULL;
        return NULL;
    }
    return frame_payload(link, request->reply);
}

/* The frame of the answer, NULL when it cannot be built. */
static struct link_msg *build_reply(struct server_request *request, const TernResponse *header,
                                    size_t payload_size)
{
    struct link *link = request->pub.server->link;
    struct link_msg *reply = request->reply;
    request->reply = NULL;
    if (!reply && frame_reserve(link, 0, &reply) != TERN_OK)
        return NULL;
    enum tern_code code = frame_finish_response(link, &reply, header, payload_size);
    size_t most = request->pub.server->options.listen.max_message_bytes;
    if (code == TERN_OK && link_msg_size(link, reply) <= most)
        return reply;
    log_error(request->pub.server->env.log, "rpc.reply_too_large", "size=%zu max=%zu body=%d",
              code == TERN_OK ? link_msg_size(link, reply) : 0, most, (int)header->body_case);
    link_msg_free(link, reply);
    return NULL;
}

void rpc_reply(struct rpc_request *pub, const TernResponse *header, size_t payload_size)
{
    struct server_request *request = from_public(pub);
    struct rpc_server *server = pub->server;
    struct link_request *link_request = request->request;
    ENSURE(request->reply || payload_size == 0);
    struct link_msg *reply = build_reply(request, header, payload_size);
    give_back(request);
    if (reply) {
        link_reply(server->link, link_request, reply);
    } else {
        counter_add(&server->stats.unbuilt, 1);
        answer_shortly(server, link_request, TERN__WIRE__CODE__SYSTEM_ERROR,
                       "the answer is too large for a frame, or the server is out of memory");
    }
    atomic_fetch_sub(&server->pending, 1); /* last: destroy may follow */
}

void rpc_reply_ok(struct rpc_request *pub)
{
    TernResponse header = TERN__WIRE__RESPONSE__INIT;
    drop_reserved(from_public(pub));
    rpc_reply(pub, &header, 0);
}

static void reply_text(struct rpc_request *pub, enum tern_code code, const char *text)
{
    TernResponse header = TERN__WIRE__RESPONSE__INIT;
    header.code = wire_code_of(code);
    header.remark = (char *)(uintptr_t)text;
    drop_reserved(from_public(pub));
    rpc_reply(pub, &header, 0);
}

void rpc_reply_error(struct rpc_request *pub, enum tern_code code, const char *fmt, ...)
{
    char text[TERN_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    reply_text(pub, code, text);
}

void rpc_reply_failure(struct rpc_request *pub, enum tern_code code, const struct tern_error *err)
{
    reply_text(pub, code, error_text(err, code));
}

/* ---- life ---- */

enum tern_code rpc_server_create(const struct env *env, struct link *link,
                                 const struct rpc_server_options *options, struct rpc_server **out,
                                 struct tern_error *err)
{
    *out = NULL;
    struct rpc_server *server = calloc(1, sizeof *server);
    if (!server)
        return error_set(err, TERN_NO_MEMORY, "server at %s", options->listen.address);
    server->env = *env;
    server->link = link;
    server->options = *options;
    server->options.listen.arg = server;
    server->options.listen.on_request = on_link_request;
    server->options.listen.on_peer = on_link_peer;
    server->options.listen.on_pressure = options->on_pressure ? on_link_pressure : NULL;
    rpc_gate_init(&server->gate);
    lock_init(&server->lock, LOCK_RPC_SERVER);
    /* Stored before requests come: their handlers may use it. */
    *out = server;
    enum tern_code code = link_listen(link, &server->options.listen, &server->listener, err);
    if (code != TERN_OK) {
        *out = NULL;
        lock_fini(&server->lock);
        free(server);
        return code;
    }
    server->options.listen.address = NULL; /* was borrowed */
    return TERN_OK;
}

uint16_t rpc_server_port(const struct rpc_server *server)
{
    return link_listener_port(server->link, server->listener);
}

void rpc_server_stop(struct rpc_server *server)
{
    if (server->stopped)
        return;
    server->stopped = true;
    rpc_gate_shut(&server->gate, server->env.sched);
    link_listener_close(server->link, server->listener);
}

void rpc_server_destroy(struct rpc_server *server)
{
    if (!server)
        return;
    ENSURE(server->stopped);
    ENSURE(atomic_load(&server->pending) == 0);
    struct server_request *request = server->free;
    while (request) {
        struct server_request *next = request->next_free;
        free_request(request);
        request = next;
    }
    lock_fini(&server->lock);
    free(server);
}

void rpc_server_close_peer(struct rpc_server *server, uint64_t peer_id)
{
    if (!rpc_gate_enter(&server->gate))
        return;
    link_peer_close(server->link, server->listener, peer_id);
    rpc_gate_leave(&server->gate, server->env.sched);
}

const struct rpc_server_stats *rpc_server_stats(const struct rpc_server *server)
{
    return &server->stats;
}

uint32_t rpc_server_pending(const struct rpc_server *server)
{
    return atomic_load(&server->pending);
}

uint32_t rpc_server_peers(const struct rpc_server *server)
{
    return atomic_load(&server->peers);
}
