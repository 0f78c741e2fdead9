/*
 * The serving half of the NNG link: one REP socket per listener, and as many of its contexts as
 * there are requests under way.
 *
 * A context holds one request from its arrival until its reply has been taken; REP takes the next
 * request off a connection only when some context receives. So contexts are kept receiving ahead of
 * the parked ones:
 *
 *                 ┌────────────── drop ──────────────┐
 *                 ▼                                  │
 *   open ──► RECEIVING ──► OWNED (handler, parked) ──┴──► SENDING ──┐
 *                 ▲                                                 │
 *                 └─────────────────────────────────────────────────┘
 *
 * When fewer than CONTEXTS_AHEAD receive, the callback that noticed opens a batch more, up to
 * max_requests and a reserve that lets requests above the caps still be answered "busy". Contexts
 * are kept until the end; one takes about 1 KiB with its aio.
 *
 * Limits. Nearing a cap calls on_pressure; above it requests are marked over_cap; a peer with twice
 * its cap does not read its replies, or does not care, and is closed. A reply that is not taken
 * within reply_timeout_ms closes the peer too: the first reply that does not fit the socket's
 * buffer holds up all others of the connection.
 *
 * Peers. A record is made in the pipe's ADD_PRE event, which NNG gives before anything of the pipe
 * can be received, and ended in REM_POST. Pipe ids come back one day, ours do not. on_peer is
 * called by the link's task, once up and once down, in order. A record lives until both were told
 * and its requests are over.
 *
 * Closing (server_close) is in the order in which nothing can be stranded: stop accepting; leave
 * the task; shut the door for replies and new contexts; close the socket, which ends all of NNG's
 * operations; free the aios, which waits for callbacks. Requests that handlers still hold become
 * orphans: link_reply frees them, the last one frees the listener. NNG 1.5.2 waits for ever in
 * nng_close when a context is opened meanwhile, hence the gate around opening.
 *
 * Threads: callbacks on NNG's; replies from any; closing from the caller's. Locks: listener->lock.
 */
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>

#include "rpc/link_nng_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

enum {
    CONTEXTS_AHEAD = 64,
    CONTEXTS_RESERVE = 256,
    CONTEXTS_BATCH_MAX = 512,
    DEFAULT_MAX_PEERS = 10000,
    DEFAULT_MAX_REQUESTS = 65536,
    DEFAULT_MAX_REQUESTS_PER_PEER = 4096,
    DEFAULT_REPLY_TIMEOUT_MS = 10000,
    IDLE_CHECKS = 4 /* looks per idle time */
};

/* A connected client. All fields: listener->lock, but for pub, which does not change. */
struct peer {
    struct link_peer pub;
    uint32_t pipe_id;
    uint32_t pending;    /* requests not yet over */
    uint32_t idle_looks; /* since the last request */
    bool gone;
    bool told_up, told_down;
    bool queued; /* in listener->events */
    struct peer *next_event;
    UT_hash_handle by_pipe; /* while not gone */
    UT_hash_handle by_id;
};

enum request_state { RECEIVING, OWNED, SENDING, ENDED };

/* One context with its aio, and the request it holds. */
struct link_request {
    struct link_listener *listener;
    struct link_request *next; /* listener->lock: all of them */
    nng_ctx ctx;
    nng_aio *aio;
    enum request_state state; /* who holds the request; the listener's lock when closing */
    bool orphan;              /* listener->lock */
    bool over_cap;
    nng_msg *msg;      /* the holder's */
    struct peer *peer; /* while OWNED or SENDING; NULL when it came from a pipe already gone */
};

struct link_listener {
    struct link_member member; /* first */
    struct nng_link *link;
    struct link_listen_options options;
    char address[LINK_ADDRESS_BYTES];
    nng_socket socket;
    nng_listener endpoint;
    uint16_t port;
    struct rpc_gate gate; /* replies being submitted, contexts being opened */
    _Atomic bool closing;
    _Atomic int32_t receiving; /* contexts */
    _Atomic bool growing;

    struct lock lock;
    struct link_request *requests;     /* lock */
    uint32_t contexts;                 /* lock */
    uint32_t pending;                  /* lock: requests not yet over */
    uint32_t orphans;                  /* lock */
    struct peer *by_pipe, *by_id;      /* lock */
    uint64_t last_peer_id;             /* lock */
    struct peer *events, **last_event; /* lock */
    int64_t next_idle_look_ns;         /* the task's */
};

static void on_request_event(void *arg);

/* ---- contexts ---- */

static void receive(struct link_request *request)
{
    request->state = RECEIVING;
    atomic_fetch_add(&request->listener->receiving, 1);
    nng_aio_set_timeout(request->aio, NNG_DURATION_INFINITE);
    nng_ctx_recv(request->ctx, request->aio);
}

/* The caller is inside the gate. */
static bool open_context(struct link_listener *listener)
{
    struct link_request *request = calloc(1, sizeof *request);
    if (!request)
        return false;
    request->listener = listener;
    if (nng_ctx_open(&request->ctx, listener->socket) != 0)
        goto fail;
    if (nng_aio_alloc(&request->aio, on_request_event, request) != 0) {
        nng_ctx_close(request->ctx);
        goto fail;
    }
    lock_acquire(&listener->lock);
    request->next = listener->requests;
    listener->requests = request;
    listener->contexts++;
    lock_release(&listener->lock);
    receive(request);
    return true;
fail:
    free(request);
    return false;
}

/* Opens a batch of contexts; the number opened. */
static uint32_t open_batch(struct link_listener *listener)
{
    uint32_t opened = 0;
    if (!rpc_gate_enter(&listener->gate))
        return 0;
    lock_acquire(&listener->lock);
    uint32_t have = listener->contexts;
    lock_release(&listener->lock);
    uint32_t most = listener->options.max_requests + CONTEXTS_RESERVE;
    uint32_t batch = CONTEXTS_AHEAD + have / 4;
    if (batch > CONTEXTS_BATCH_MAX)
        batch = CONTEXTS_BATCH_MAX;
    while (opened < batch && have + opened < most && open_context(listener))
        opened++;
    rpc_gate_leave(&listener->gate, listener->link->env.sched);
    return opened;
}

/*
 * Keeps enough contexts receiving. One thread at a time; it looks again after it has let others in,
 * because they went away from a batch that was used up while it was opened. @thread nng
 */
static void grow(struct link_listener *listener)
{
    while (atomic_load(&listener->receiving) < CONTEXTS_AHEAD / 2) {
        if (atomic_exchange(&listener->growing, true))
            return;
        uint32_t opened = open_batch(listener);
        atomic_store(&listener->growing, false);
        if (opened == 0)
            return;
    }
}

/* ---- peers ---- */

/* @locks holds:LINK. true: the task is to be woken. */
static bool queue_event(struct link_listener *listener, struct peer *peer)
{
    if (peer->queued)
        return false;
    peer->queued = true;
    peer->next_event = NULL;
    *listener->last_event = peer;
    listener->last_event = &peer->next_event;
    return true;
}

static struct peer *pop_event(struct link_listener *listener)
{
    struct peer *peer = listener->events;
    if (!peer)
        return NULL;
    listener->events = peer->next_event;
    if (!listener->events)
        listener->last_event = &listener->events;
    peer->queued = false;
    return peer;
}

/* Frees the record when nobody needs it any more. @locks holds:LINK */
static void release_peer(struct link_listener *listener, struct peer *peer)
{
    if (!peer->told_down || peer->pending > 0 || peer->queued)
        return;
    HASH_DELETE(by_id, listener->by_id, peer);
    free(peer);
}

static void remote_address(nng_pipe pipe, struct host *out)
{
    nng_sockaddr address;
    memset(out, 0, sizeof *out);
    if (nng_pipe_get_addr(pipe, NNG_OPT_REMADDR, &address) != 0)
        return;
    const uint8_t *port = NULL;
    if (address.s_family == NNG_AF_INET) {
        memcpy(out->ip, &address.s_in.sa_addr, 4);
        port = (const uint8_t *)&address.s_in.sa_port;
    } else if (address.s_family == NNG_AF_INET6) {
        static const uint8_t mapped_v4[12] = {[10] = 0xff, [11] = 0xff};
        out->v6 = memcmp(address.s_in6.sa_addr, mapped_v4, sizeof mapped_v4) != 0;
        memcpy(out->ip, address.s_in6.sa_addr + (out->v6 ? 0 : 12), out->v6 ? 16 : 4);
        port = (const uint8_t *)&address.s_in6.sa_port;
    }
    if (port)
        out->port = (uint32_t)port[0] << 8 | port[1];
}

/* @thread nng */
static void on_pipe_arriving(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)event;
    struct link_listener *listener = arg;
    struct peer *peer = calloc(1, sizeof *peer);
    bool accepted = false;
    bool wake = false;
    if (peer) {
        remote_address(pipe, &peer->pub.remote);
        peer->pipe_id = (uint32_t)nng_pipe_id(pipe);
    }
    lock_acquire(&listener->lock);
    if (peer && HASH_CNT(by_pipe, listener->by_pipe) < listener->options.max_peers &&
        !atomic_load(&listener->closing)) {
        accepted = true;
        peer->pub.id = ++listener->last_peer_id;
        HASH_ADD(by_pipe, listener->by_pipe, pipe_id, sizeof peer->pipe_id, peer);
        HASH_ADD(by_id, listener->by_id, pub.id, sizeof peer->pub.id, peer);
        wake = queue_event(listener, peer);
    }
    lock_release(&listener->lock);
    if (accepted) {
        if (wake)
            task_wake(listener->link->task);
        return;
    }
    free(peer);
    nng_pipe_close(pipe);
    log_warn(listener->link->env.log, "rpc.peer_refused", "listener=%s max_peers=%u",
             listener->address, listener->options.max_peers);
}

/* @locks holds:LINK */
static struct peer *find_by_pipe(struct link_listener *listener, uint32_t pipe_id)
{
    struct peer *peer;
    HASH_FIND(by_pipe, listener->by_pipe, &pipe_id, sizeof pipe_id, peer);
    return peer;
}

/* Also for pipes that were refused. @thread nng */
static void on_pipe_gone(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)event;
    struct link_listener *listener = arg;
    bool wake = false;
    lock_acquire(&listener->lock);
    struct peer *peer = find_by_pipe(listener, (uint32_t)nng_pipe_id(pipe));
    if (peer) {
        HASH_DELETE(by_pipe, listener->by_pipe, peer);
        peer->gone = true;
        wake = queue_event(listener, peer);
    }
    lock_release(&listener->lock);
    if (wake)
        task_wake(listener->link->task);
}

static void close_pipe(uint32_t pipe_id)
{
    nng_pipe pipe = {.id = pipe_id};
    nng_pipe_close(pipe);
}

void server_peer_close(struct link_listener *listener, uint64_t peer_id)
{
    struct peer *peer;
    uint32_t pipe_id = 0;
    lock_acquire(&listener->lock);
    HASH_FIND(by_id, listener->by_id, &peer_id, sizeof peer_id, peer);
    if (peer && !peer->gone)
        pipe_id = peer->pipe_id;
    lock_release(&listener->lock);
    if (pipe_id)
        close_pipe(pipe_id);
}

/* ---- the task's part ---- */

static void tell_peers(struct link_listener *listener)
{
    for (;;) {
        lock_acquire(&listener->lock);
        struct peer *peer = pop_event(listener);
        struct link_peer pub = {0};
        bool up = false;
        bool down = false;
        if (peer) {
            pub = peer->pub;
            up = !peer->told_up;
            down = peer->gone;
            peer->told_up = true;
        }
        lock_release(&listener->lock);
        if (!peer)
            return;
        if (listener->options.on_peer) {
            if (up)
                listener->options.on_peer(listener->options.arg, &pub, true);
            if (down)
                listener->options.on_peer(listener->options.arg, &pub, false);
        }
        if (down) {
            lock_acquire(&listener->lock);
            peer->told_down = true;
            release_peer(listener, peer);
            lock_release(&listener->lock);
        }
    }
}

/* Closes one peer that has been idle for too long; false when there is none. */
static bool close_idle_peer(struct link_listener *listener)
{
    uint32_t pipe_id = 0;
    lock_acquire(&listener->lock);
    for (struct peer *peer = listener->by_pipe; peer && !pipe_id; peer = peer->by_pipe.next)
        if (peer->idle_looks > IDLE_CHECKS) {
            peer->idle_looks = 0;
            pipe_id = peer->pipe_id;
        }
    lock_release(&listener->lock);
    if (pipe_id)
        close_pipe(pipe_id);
    return pipe_id != 0;
}

static int64_t look_for_idle(struct link_listener *listener, int64_t now_ns)
{
    if (listener->options.idle_close_ms <= 0)
        return SCHED_NEVER;
    if (now_ns < listener->next_idle_look_ns)
        return listener->next_idle_look_ns;
    lock_acquire(&listener->lock);
    for (struct peer *peer = listener->by_pipe; peer; peer = peer->by_pipe.next)
        if (peer->pending == 0)
            peer->idle_looks++;
    lock_release(&listener->lock);
    while (close_idle_peer(listener))
        ;
    int64_t period_ns = ms_to_ns(listener->options.idle_close_ms) / IDLE_CHECKS;
    listener->next_idle_look_ns = now_ns + period_ns;
    return listener->next_idle_look_ns;
}

static int64_t listener_step(struct link_member *member, int64_t now_ns)
{
    struct link_listener *listener = (struct link_listener *)member;
    tell_peers(listener);
    return look_for_idle(listener, now_ns);
}

/* ---- requests ---- */

enum pressure { EASE, NEAR_CAP, OVER_CAP, HOPELESS };

static enum pressure pressure_of(uint32_t pending, uint32_t cap, bool ends_peer)
{
    if (pending > cap)
        return ends_peer && pending / 2 > cap ? HOPELESS : OVER_CAP;
    return pending > cap - cap / 8 ? NEAR_CAP : EASE;
}

/* Counts the request in, and finds its peer. */
static void admit(struct link_request *request, uint32_t pipe_id, enum pressure *by_peer,
                  enum pressure *in_all)
{
    struct link_listener *listener = request->listener;
    lock_acquire(&listener->lock);
    struct peer *peer = find_by_pipe(listener, pipe_id);
    uint32_t of_peer = 0;
    if (peer) {
        of_peer = ++peer->pending;
        peer->idle_looks = 0;
    }
    request->peer = peer;
    uint32_t all = ++listener->pending;
    lock_release(&listener->lock);
    *by_peer = pressure_of(of_peer, listener->options.max_requests_per_peer, true);
    *in_all = pressure_of(all, listener->options.max_requests, false);
}

static void count_out(struct link_request *request)
{
    struct link_listener *listener = request->listener;
    lock_acquire(&listener->lock);
    listener->pending--;
    struct peer *peer = request->peer;
    request->peer = NULL;
    if (peer) {
        peer->pending--;
        release_peer(listener, peer);
    }
    lock_release(&listener->lock);
}

static void received(struct link_request *request, nng_msg *msg)
{
    struct link_listener *listener = request->listener;
    const struct link_listen_options *options = &listener->options;
    uint32_t pipe_id = (uint32_t)nng_pipe_id(nng_msg_get_pipe(msg));
    enum pressure by_peer;
    enum pressure in_all;
    request->state = OWNED;
    request->msg = msg;
    admit(request, pipe_id, &by_peer, &in_all);
    if (by_peer == HOPELESS)
        close_pipe(pipe_id);
    request->over_cap = by_peer >= OVER_CAP || in_all >= OVER_CAP;
    if (options->on_pressure && by_peer >= NEAR_CAP)
        options->on_pressure(options->arg, &request->peer->pub);
    if (options->on_pressure && in_all >= NEAR_CAP)
        options->on_pressure(options->arg, NULL);
    options->on_request(options->arg, request);
}

static void on_receive_done(struct link_request *request)
{
    struct link_listener *listener = request->listener;
    int rv = nng_aio_result(request->aio);
    atomic_fetch_sub(&listener->receiving, 1);
    if (rv != 0) { /* only closing ends a receive */
        request->state = ENDED;
        return;
    }
    nng_msg *msg = nng_aio_get_msg(request->aio);
    nng_aio_set_msg(request->aio, NULL);
    if (atomic_load(&listener->closing)) {
        nng_msg_free(msg);
        request->state = ENDED;
        return;
    }
    grow(listener);
    received(request, msg);
}

static void on_send_done(struct link_request *request)
{
    struct link_listener *listener = request->listener;
    int rv = nng_aio_result(request->aio);
    if (rv != 0) {
        nng_msg_free(nng_aio_get_msg(request->aio));
        nng_aio_set_msg(request->aio, NULL);
    }
    if (rv == NNG_ETIMEDOUT && request->peer) {
        char remote[HOST_TEXT_BYTES];
        host_format(remote, &request->peer->pub.remote);
        log_warn(listener->link->env.log, "rpc.reply_not_taken",
                 "listener=%s peer=%s waited_ms=%lld", listener->address, remote,
                 (long long)listener->options.reply_timeout_ms);
        close_pipe(request->peer->pipe_id);
    }
    count_out(request);
    if (atomic_load(&listener->closing))
        request->state = ENDED;
    else
        receive(request);
}

static void on_request_event(void *arg)
{
    struct link_request *request = arg;
    if (request->state == RECEIVING)
        on_receive_done(request);
    else
        on_send_done(request);
}

struct link_msg *server_request_msg(struct link_request *request)
{
    return msg_from_nng(request->msg);
}

void server_request_peer(const struct link_request *request, struct link_peer *out)
{
    if (request->peer)
        *out = request->peer->pub;
    else
        *out = (struct link_peer){0};
}

bool server_request_over_cap(const struct link_request *request)
{
    return request->over_cap;
}

void server_request_release(struct link_request *request)
{
    if (request->msg)
        nng_msg_free(request->msg);
    request->msg = NULL;
}

static void free_listener(struct link_listener *listener)
{
    lock_fini(&listener->lock);
    free(listener);
}

/* An answer after closing has begun: it goes nowhere. */
static void end_unsent(struct link_request *request, nng_msg *reply)
{
    struct link_listener *listener = request->listener;
    if (reply)
        nng_msg_free(reply);
    count_out(request);
    lock_acquire(&listener->lock);
    bool orphan = request->orphan;
    request->state = ENDED;
    bool last = orphan && --listener->orphans == 0;
    lock_release(&listener->lock);
    if (orphan)
        free(request);
    if (last)
        free_listener(listener);
}

void server_reply(struct link_request *request, struct link_msg *msg)
{
    struct link_listener *listener = request->listener;
    ENSURE(request->state == OWNED);
    server_request_release(request);
    if (!rpc_gate_enter(&listener->gate)) {
        end_unsent(request, msg_to_nng(msg));
        return;
    }
    if (msg) {
        request->state = SENDING;
        nng_aio_set_timeout(request->aio, (nng_duration)listener->options.reply_timeout_ms);
        nng_aio_set_msg(request->aio, msg_to_nng(msg));
        nng_ctx_send(request->ctx, request->aio);
    } else {
        count_out(request);
        receive(request);
    }
    rpc_gate_leave(&listener->gate, listener->link->env.sched);
}

/* ---- life ---- */

static void set_defaults(struct link_listen_options *options)
{
    if (options->max_peers == 0)
        options->max_peers = DEFAULT_MAX_PEERS;
    if (options->max_requests == 0)
        options->max_requests = DEFAULT_MAX_REQUESTS;
    if (options->max_requests_per_peer == 0)
        options->max_requests_per_peer = DEFAULT_MAX_REQUESTS_PER_PEER;
    if (options->reply_timeout_ms <= 0 || options->reply_timeout_ms > INT32_MAX)
        options->reply_timeout_ms = DEFAULT_REPLY_TIMEOUT_MS;
}

/* Everything up to, but not with, accepting. */
static int open_socket(struct link_listener *listener)
{
    char url[LINK_URL_BYTES];
    int rv = nng_rep0_open(&listener->socket);
    if (rv != 0)
        return rv;
    nng_socket socket = listener->socket;
    snprintf(url, sizeof url, "tcp://%s", listener->address);
    rv = nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ,
                             link_receive_limit(listener->options.max_message_bytes));
    if (rv == 0)
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_ADD_PRE, on_pipe_arriving, listener);
    if (rv == 0)
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_REM_POST, on_pipe_gone, listener);
    if (rv == 0)
        rv = nng_listener_create(&listener->endpoint, socket, url);
    if (rv == 0)
        rv = nng_listener_set_bool(listener->endpoint, NNG_OPT_TCP_NODELAY, true);
    if (rv == 0)
        rv = nng_listener_set_bool(listener->endpoint, NNG_OPT_TCP_KEEPALIVE, true);
    if (rv != 0)
        nng_close(socket);
    return rv;
}

static int start_accepting(struct link_listener *listener)
{
    int port = 0;
    int rv = nng_listener_start(listener->endpoint, 0);
    if (rv == 0)
        rv = nng_listener_get_int(listener->endpoint, NNG_OPT_TCP_BOUND_PORT, &port);
    listener->port = (uint16_t)port;
    return rv;
}

enum tern_code server_listen(struct link *base, const struct link_listen_options *options,
                             struct link_listener **out, struct tern_error *err)
{
    struct nng_link *link = (struct nng_link *)base;
    bool literal;
    *out = NULL;
    enum tern_code code = link_check_address(options->address, &literal, err);
    if (code != TERN_OK)
        return code;
    struct link_listener *listener = calloc(1, sizeof *listener);
    if (!listener)
        return error_set(err, TERN_NO_MEMORY, "listener %s", options->address);
    listener->member.step = listener_step;
    listener->link = link;
    listener->options = *options;
    set_defaults(&listener->options);
    snprintf(listener->address, sizeof listener->address, "%s", options->address);
    listener->options.address = listener->address;
    listener->last_event = &listener->events;
    rpc_gate_init(&listener->gate);
    lock_init(&listener->lock, LOCK_LINK);
    int rv = open_socket(listener);
    if (rv != 0) {
        code = link_error(err, rv, "listening at", options->address);
        free_listener(listener);
        return code;
    }
    *out = listener;
    link_member_add(link, &listener->member);
    grow(listener);
    rv = listener->contexts > 0 ? start_accepting(listener) : NNG_ENOMEM;
    if (rv == 0)
        return TERN_OK;
    *out = NULL;
    code = link_error(err, rv, "listening at", options->address);
    server_close(listener);
    return code;
}

uint16_t server_port(const struct link_listener *listener)
{
    return listener->port;
}

/* Frees contexts; what handlers still hold is left to them. */
static void free_requests(struct link_listener *listener)
{
    lock_acquire(&listener->lock);
    struct link_request *request = listener->requests;
    listener->requests = NULL;
    lock_release(&listener->lock);
    while (request) {
        struct link_request *next = request->next;
        nng_aio_free(request->aio); /* waits for its callback */
        lock_acquire(&listener->lock);
        request->orphan = request->state == OWNED;
        bool orphan = request->orphan;
        listener->orphans += orphan;
        lock_release(&listener->lock);
        if (!orphan)
            free(request);
        request = next;
    }
}

static void forget_peers(struct link_listener *listener)
{
    struct peer *peer;
    struct peer *next;
    lock_acquire(&listener->lock);
    listener->events = NULL;
    HASH_CLEAR(by_pipe, listener->by_pipe);
    HASH_ITER (by_id, listener->by_id, peer, next) {
        peer->queued = false;
        peer->gone = true;
        peer->told_down = true;
        release_peer(listener, peer);
    }
    lock_release(&listener->lock);
}

void server_close(struct link_listener *listener)
{
    struct nng_link *link = listener->link;
    atomic_store(&listener->closing, true);
    nng_listener_close(listener->endpoint);
    link_member_remove(link, &listener->member);
    rpc_gate_shut(&listener->gate, link->env.sched);
    nng_close(listener->socket);
    lock_acquire(&listener->lock);
    listener->orphans = 1; /* ours, so that no answer frees the listener under us */
    lock_release(&listener->lock);
    free_requests(listener);
    forget_peers(listener);
    lock_acquire(&listener->lock);
    bool last = --listener->orphans == 0;
    lock_release(&listener->lock);
    if (last)
        free_listener(listener);
}
