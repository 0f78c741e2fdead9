/*
 * Calling servers.
 *
 *   rpc_call_create ──► fill payload ──► rpc_call_start ──► link_call ──► on_link_done ──► done
 *        a pooled struct, room in the frame     pack header                  decode
 *
 * A call is one struct from a free list: the request's frame while it is built, then the answer's
 * frame with the arena it was decoded into. Callers keep it by reference as long as they borrow
 * from the answer.
 *
 * Peers, and what happens when they fall silent, are in client_peers.c.
 *
 * Invariants: `done` comes exactly once for every started call, from the link or, when the call
 * could not be given to the link, from the client's task. A call is never repeated. Connections are
 * closed by the task or by rpc_client_destroy() only, because closing waits for the link's threads.
 * Destroying shuts the gate first: calls that start later, from callbacks of others that are being
 * ended, end CANCELED without touching connections, which may be gone.
 *
 * Threads: any; done on the link's or the task's. Locks: client->lock for the peers,
 * client->pool_lock for free and unstarted calls. Nothing is called out with one held.
 *
 * Failure modes: TERN_LIMIT above CALLS_PER_PEER_MAX; an answer that does not decode is
 * TERN_PROTOCOL.
 */
#include "rpc/client_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALLS_PER_PEER_MAX = 4096 - 8, /* the link's limit, less what pings need */
    CALLS_CROWDED = 3072,          /* from here on none should wait at the peer */
    FREE_CALLS_MAX = 1024,
    CALL_TIMEOUT_MAX_MS = 600000,
    ARENA_SLACK_BYTES = 1 << 20
};

void client_wake(struct rpc_client *client)
{
    if (!rpc_gate_enter(&client->gate))
        return;
    task_wake(client->task);
    rpc_gate_leave(&client->gate, client->env.sched);
}

/* ---- calls ---- */

static struct client_call *from_public(const struct rpc_call *pub)
{
    struct client_call *call = (struct client_call *)(uintptr_t)pub;
    ENSURE(call->magic == CALL_MAGIC && atomic_load(&call->refs) > 0);
    return call;
}

static struct client_call *take_free_call(struct rpc_client *client)
{
    lock_acquire(&client->pool_lock);
    struct client_call *call = client->free;
    if (call) {
        client->free = call->next;
        client->free_count--;
    }
    lock_release(&client->pool_lock);
    if (call)
        return call;
    call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->magic = CALL_MAGIC;
    arena_init(&call->arena, client->options.max_message_bytes + ARENA_SLACK_BYTES);
    return call;
}

static void free_call(struct client_call *call)
{
    call->magic = 0;
    arena_fini(&call->arena);
    free(call);
}

static void give_back_call(struct rpc_client *client, struct client_call *call)
{
    arena_reset(&call->arena);
    lock_acquire(&client->pool_lock);
    bool keep = client->free_count < FREE_CALLS_MAX;
    if (keep) {
        call->next = client->free;
        client->free = call;
        client->free_count++;
    }
    lock_release(&client->pool_lock);
    if (!keep)
        free_call(call);
}

/* The call does not count against the peer's limit any more. */
static void count_out(struct client_call *call)
{
    if (call->counted)
        atomic_fetch_sub(&call->peer->calls, 1);
    call->counted = false;
}

/* Not counted against the peer's limit. */
static enum tern_code create_call(struct rpc_peer *peer, size_t payload_cap,
                                  struct client_call **out)
{
    struct rpc_client *client = peer->client;
    struct client_call *call = take_free_call(client);
    struct link_msg *msg = NULL;
    *out = NULL;
    if (!call || frame_reserve(client->link, payload_cap, &msg) != TERN_OK) {
        if (call)
            give_back_call(client, call);
        return TERN_NO_MEMORY;
    }
    call->pub = (struct rpc_call){.status = TERN_OK};
    call->peer = peer;
    atomic_fetch_add(&peer->held, 1);
    call->counted = false;
    call->open = false;
    call->msg = msg;
    call->payload_cap = payload_cap;
    atomic_store(&call->refs, 1);
    *out = call;
    return TERN_OK;
}

bool rpc_peer_crowded(const struct rpc_peer *peer)
{
    return atomic_load_explicit(&peer->calls, memory_order_relaxed) >= CALLS_CROWDED;
}

enum tern_code rpc_call_create(struct rpc_peer *peer, size_t payload_cap, struct rpc_call **out)
{
    struct client_call *call;
    *out = NULL;
    if (payload_cap > peer->client->options.max_message_bytes)
        return TERN_TOO_LARGE;
    if (atomic_fetch_add(&peer->calls, 1) >= CALLS_PER_PEER_MAX) {
        atomic_fetch_sub(&peer->calls, 1);
        return TERN_LIMIT;
    }
    enum tern_code code = create_call(peer, payload_cap, &call);
    if (code != TERN_OK) {
        atomic_fetch_sub(&peer->calls, 1);
        return code;
    }
    call->counted = true;
    *out = &call->pub;
    return TERN_OK;
}

uint8_t *rpc_call_payload(struct rpc_call *pub)
{
    struct client_call *call = from_public(pub);
    return frame_payload(call->peer->client->link, call->msg);
}

struct rpc_call *rpc_call_ref(struct rpc_call *pub)
{
    atomic_fetch_add(&from_public(pub)->refs, 1);
    return pub;
}

void rpc_call_unref(struct rpc_call *pub)
{
    if (!pub)
        return;
    struct client_call *call = from_public(pub);
    if (atomic_fetch_sub(&call->refs, 1) != 1)
        return;
    struct rpc_peer *peer = call->peer;
    struct rpc_client *client = peer->client;
    count_out(call);
    link_msg_free(client->link, call->msg);
    call->msg = NULL;
    give_back_call(client, call);
    atomic_fetch_sub(&peer->held, 1); /* last: peer and client may go now */
}

/* ---- answers ---- */

static void decode(struct client_call *call, struct link_msg *reply)
{
    struct rpc_call *pub = &call->pub;
    struct link *link = call->peer->client->link;
    call->msg = reply;
    pub->response =
        frame_unpack_response(&call->arena, link_msg_body(link, reply), link_msg_size(link, reply),
                              &pub->payload, &pub->payload_size, &pub->error);
    if (!pub->response) {
        pub->status = TERN_PROTOCOL;
        error_prefix(&pub->error, TERN_PROTOCOL, "answer of %s", call->peer->address);
        pub->error.code = TERN_PROTOCOL;
    } else if (pub->response->code != TERN__WIRE__CODE__SUCCESS) {
        error_set(&pub->error, wire_code_to(pub->response->code), "%s: %s", call->peer->address,
                  pub->response->remark);
    }
}

static void end_call(struct client_call *call)
{
    count_out(call);
    if (call->open)
        atomic_fetch_sub(&call->peer->open, 1);
    call->open = false;
    call->done(&call->pub, call->arg);
}

/* What the status means here. */
static const char *why(enum tern_code status)
{
    switch (status) {
    case TERN_UNREACHABLE:
        return "cannot be reached: nobody listens there, who listens does not answer, or the name "
               "does not resolve";
    case TERN_TIMEOUT:
        return "no answer within the deadline; whether the request was carried out is unknown";
    case TERN_CONNECTION_LOST:
        return "the connection was lost before the answer came; whether it was carried out is "
               "unknown";
    default:
        return tern_code_text(status);
    }
}

/* @thread link's */
static void on_link_done(void *arg, enum tern_code status, struct link_msg *reply)
{
    struct client_call *call = arg;
    call->pub.status = status;
    if (status == TERN_OK) {
        peer_heard(call->peer);
        decode(call, reply);
    } else {
        error_set(&call->pub.error, status, "%s: %s", call->peer->address, why(status));
    }
    end_call(call);
}

/* Why a request did not leave; of one that is too large, the limit. */
static enum tern_code not_sent(const struct rpc_peer *peer, enum tern_code code, size_t size,
                               struct tern_error *err)
{
    if (code != TERN_TOO_LARGE)
        return error_set(err, code, "request to %s was not sent", peer->address);
    return error_set(err, code,
                     "request to %s was not sent: it has %zu bytes, a frame to it holds %zu, of "
                     "these %d of header",
                     peer->address, size, peer->client->options.max_message_bytes,
                     FRAME_HEADER_MAX);
}

/* The call ends with `code` from the client's task. */
static void end_later(struct client_call *call, enum tern_code code, size_t size)
{
    struct rpc_client *client = call->peer->client;
    call->pub.status = code;
    not_sent(call->peer, code, size, &call->pub.error);
    call->next = NULL;
    lock_acquire(&client->pool_lock);
    *client->last_unstarted = call;
    client->last_unstarted = &call->next;
    lock_release(&client->pool_lock);
    client_wake(client);
}

static void end_unstarted(struct rpc_client *client)
{
    lock_acquire(&client->pool_lock);
    struct client_call *call = client->unstarted;
    client->unstarted = NULL;
    client->last_unstarted = &client->unstarted;
    lock_release(&client->pool_lock);
    while (call) {
        struct client_call *next = call->next;
        end_call(call);
        call = next;
    }
}

static void start_call(struct client_call *call, TernRequest *header, size_t payload_size,
                       int64_t timeout_ms, rpc_done_fn done, void *arg, bool ping)
{
    struct rpc_peer *peer = call->peer;
    struct rpc_client *client = peer->client;
    ENSURE(call->msg && payload_size <= call->payload_cap);
    call->done = done;
    call->arg = arg;
    if (timeout_ms < 1)
        timeout_ms = 1;
    if (timeout_ms > CALL_TIMEOUT_MAX_MS)
        timeout_ms = CALL_TIMEOUT_MAX_MS;
    header->version = PROTOCOL_VERSION;
    header->timeout_ms = (uint32_t)timeout_ms;
    header->client_id = frame_bytes(client->client_id, client->client_id_len);
    struct link_msg *msg = call->msg;
    call->msg = NULL;
    enum tern_code code = frame_finish_request(client->link, &msg, header, payload_size);
    size_t size = code == TERN_OK ? link_msg_size(client->link, msg)
                                  : tern__wire__request__get_packed_size(header) + payload_size;
    if (code == TERN_OK && size > client->options.max_message_bytes) {
        link_msg_free(client->link, msg);
        code = TERN_TOO_LARGE;
    }
    if (code != TERN_OK) {
        end_later(call, code, size);
        return;
    }
    if (!rpc_gate_enter(&client->gate)) {
        link_msg_free(client->link, msg);
        end_later(call, TERN_CANCELED, size);
        return;
    }
    if (!atomic_load(&peer->up))
        link_conn_retry_now(client->link, peer->conn);
    int64_t now_ns = clock_mono_ns(client->env.clock);
    call->open = !ping;
    if (!ping)
        peer_asked(peer, now_ns);
    link_call(client->link, peer->conn, msg, now_ns + ms_to_ns(timeout_ms), on_link_done, call);
    rpc_gate_leave(&client->gate, client->env.sched);
}

void rpc_call_start(struct rpc_call *pub, TernRequest *header, size_t payload_size,
                    int64_t timeout_ms, rpc_done_fn done, void *arg)
{
    start_call(from_public(pub), header, payload_size, timeout_ms, done, arg, false);
}

enum tern_code rpc_call_result(const struct rpc_call *pub)
{
    if (pub->status != TERN_OK)
        return pub->status;
    return wire_code_to(pub->response->code);
}

/* That an answer came is noted already, and all there is to know. @thread link's */
static void on_pinged(struct rpc_call *call, void *arg)
{
    (void)arg;
    rpc_call_unref(call);
}

enum tern_code client_ping(struct rpc_peer *peer, int64_t timeout_ms)
{
    struct client_call *call;
    enum tern_code code = create_call(peer, 0, &call);
    if (code != TERN_OK)
        return code;
    Tern__Wire__PingRequest ping = TERN__WIRE__PING_REQUEST__INIT;
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    header.body_case = TERN__WIRE__REQUEST__BODY_PING;
    header.ping = &ping;
    start_call(call, &header, 0, timeout_ms, on_pinged, NULL, true);
    return TERN_OK;
}

/* ---- waiting ---- */

struct waiter {
    struct sched *sched;
    struct latch done;
};

static void on_waited_done(struct rpc_call *call, void *arg)
{
    struct waiter *waiter = arg;
    (void)call; /* its reference goes to the waiter */
    latch_set(waiter->sched, &waiter->done);
}

enum tern_code rpc_call_wait(struct rpc_peer *peer, TernRequest *header, const void *payload,
                             size_t payload_size, int64_t timeout_ms, struct rpc_call **out,
                             struct tern_error *err)
{
    struct waiter waiter = {.sched = peer->client->env.sched};
    struct rpc_call *call;
    latch_init(&waiter.done);
    if (out)
        *out = NULL;
    enum tern_code code = rpc_call_create(peer, payload_size, &call);
    if (code != TERN_OK)
        return not_sent(peer, code, payload_size, err);
    if (payload_size > 0)
        memcpy(rpc_call_payload(call), payload, payload_size);
    rpc_call_start(call, header, payload_size, timeout_ms, on_waited_done, &waiter);
    ENSURE(latch_wait(waiter.sched, &waiter.done, SCHED_NEVER));
    code = rpc_call_result(call);
    if (code != TERN_OK && err)
        *err = call->error;
    if (out && call->status == TERN_OK)
        *out = call;
    else
        rpc_call_unref(call);
    return code;
}

/* ---- life ---- */

static int64_t client_step(void *arg, int64_t now_ns)
{
    struct rpc_client *client = arg;
    end_unstarted(client);
    return client_peers_step(client, now_ns);
}

static void free_client(struct rpc_client *client)
{
    struct client_call *call = client->free;
    while (call) {
        struct client_call *next = call->next;
        free_call(call);
        call = next;
    }
    lock_fini(&client->pool_lock);
    lock_fini(&client->lock);
    free(client->client_id);
    free(client);
}

enum tern_code rpc_client_create(const struct env *env, struct link *link,
                                 const struct rpc_client_options *options, struct rpc_client **out)
{
    *out = NULL;
    struct rpc_client *client = calloc(1, sizeof *client);
    if (!client)
        return TERN_NO_MEMORY;
    client->env = *env;
    client->link = link;
    client->options = *options;
    client->last_unstarted = &client->unstarted;
    rpc_gate_init(&client->gate);
    lock_init(&client->lock, LOCK_RPC_CLIENT);
    lock_init(&client->pool_lock, LOCK_RPC_PEER);
    client->client_id = strdup(options->client_id ? options->client_id : "");
    enum tern_code code = TERN_NO_MEMORY;
    if (client->client_id) {
        client->client_id_len = strlen(client->client_id);
        client->options.client_id = client->client_id;
        code = task_start(env->sched, "rpc-client", client_step, client, &client->task);
    }
    if (code != TERN_OK) {
        free_client(client);
        return code;
    }
    *out = client;
    return TERN_OK;
}

void rpc_client_destroy(struct rpc_client *client)
{
    if (!client)
        return;
    rpc_gate_shut(&client->gate, client->env.sched);
    task_stop(client->task);
    struct rpc_peer *lists[2] = {client->peers, client->doomed};
    for (int i = 0; i < 2; i++)
        for (struct rpc_peer *peer = lists[i]; peer; peer = peer->next)
            link_conn_close(client->link, peer->conn);
    while (client->unstarted)
        end_unstarted(client);
    for (int i = 0; i < 2; i++) {
        struct rpc_peer *peer = lists[i];
        while (peer) {
            struct rpc_peer *next = peer->next;
            ENSURE(atomic_load(&peer->held) == 0);    /* callers give their calls back first */
            ENSURE(peer->refs == (uint32_t)(i == 1)); /* and their peers */
            free(peer);
            peer = next;
        }
    }
    free_client(client);
}
