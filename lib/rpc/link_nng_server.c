/*
 * The serving half of the NNG link: one REP socket per listener, and as many of its contexts as
 * there are requests under way. Who is connected is in link_nng_peers.c.
 *
 * A context holds one request from its arrival until its reply has been taken; REP takes the next
 * request off a connection only when some context receives. So contexts are kept receiving ahead of
 * the parked ones:
 *
 *                 +------------- drop --------------+
 *                 v                                 |
 *   open --> RECEIVING --> OWNED (handler, parked) -+--> SENDING --+
 *                 ^                                                |
 *                 +------------------------------------------------+
 *
 * When fewer than half of CONTEXTS_AHEAD receive, the callback that noticed opens a batch more, up
 * to max_requests and a reserve that lets requests above the caps still be answered "busy".
 * Contexts are kept until the end; one takes about 1 KiB with its aio.
 *
 * Limits. Nearing a cap calls on_pressure; above it requests are marked over_cap; a peer with twice
 * its cap does not read its replies, or does not care, and is closed. A reply that is not taken
 * within reply_timeout_ms closes the peer too: the first reply that does not fit the socket's
 * buffer holds up all others of the connection.
 *
 * Closing (server_close) is in the order in which nothing can be stranded: hang up on the peers,
 * dropping what they still send, and wait until their pipes have gone; leave the task; shut the
 * door for replies and new contexts; free the aios, which ends all of NNG's operations and waits
 * for callbacks and for timeouts that are just being enforced; only then close the socket, with the
 * contexts that these refer to. Requests that handlers still hold become orphans: link_reply frees
 * them, the last one frees the listener. NNG 1.5.2 waits for ever in nng_close when a context
 * is opened meanwhile, hence the gate around opening; and when a pipe never goes (nng_shim.c says
 * why), hence the other way out: contexts are closed one by one and the socket is left behind.
 *
 * Threads: callbacks on NNG's; replies from any; closing from the caller's. Locks: listener->lock.
 */
#include <nng/nng.h>
#include <nng/protocol/reqrep0/rep.h>

#include "rpc/link_nng_listener.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    CONTEXTS_AHEAD = 64,
    CONTEXTS_RESERVE = 256,
    CONTEXTS_BATCH_MAX = 512,
    DEFAULT_MAX_PEERS = 10000,
    DEFAULT_MAX_REQUESTS = 65536,
    DEFAULT_MAX_REQUESTS_PER_PEER = 4096,
    DEFAULT_REPLY_TIMEOUT_MS = 10000
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

static void on_request_event(void *arg);

/* ---- contexts ---- */

static void receive(struct link_request *request)
{
    request->state = RECEIVING;
    atomic_fetch_add(&request->listener->receiving, 1);
    nng_aio_set_timeout(request->aio, NNG_DURATION_INFINITE);
    nng_ctx_recv(request->ctx, request->aio);
}

static void receive_again(struct link_request *request)
{
    struct link_listener *listener = request->listener;
    struct sched *sched = listener->link->env.sched;
    /* Inside the gate, or the socket may go while NNG still leaves nng_ctx_recv(). */
    if (!rpc_gate_enter(&listener->gate)) {
        request->state = ENDED;
        return;
    }
    receive(request);
    rpc_gate_leave(&listener->gate, sched);
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
    struct peer *peer = peers_find(listener, pipe_id);
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
        peers_release(listener, peer);
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
        peers_close(listener, request->peer->pub.id);
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
    if (rv != 0) { /* only the context's end ends a receive */
        request->state = ENDED;
        return;
    }
    nng_msg *msg = nng_aio_get_msg(request->aio);
    nng_aio_set_msg(request->aio, NULL);
    if (atomic_load(&listener->phase) != LISTENING) {
        nng_msg_free(msg);
        receive_again(request);
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
        peers_close(listener, request->peer->pub.id);
    }
    count_out(request);
    receive_again(request);
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
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_ADD_PRE, peers_on_arriving, listener);
    if (rv == 0)
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_REM_POST, peers_on_gone, listener);
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
    lock_acquire(&listener->lock);
    listener->port = (uint16_t)port;
    lock_release(&listener->lock);
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
    listener->member.step = peers_step;
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

/* Ends contexts and, when it can be, the socket with all that is in it. */
static void close_socket(struct link_listener *listener, bool whole)
{
    /* While the contexts are there: an operation, even one that is over but was just found to be
     * late, refers to its context. Freeing waits for both; nng_aio_stop() for the first only. */
    for (struct link_request *request = listener->requests; request; request = request->next)
        nng_aio_free(request->aio);
    if (whole) {
        nng_close(listener->socket);
        return;
    }
    log_error(listener->link->env.log, "rpc.listener_left_behind",
              "listener=%s reason=\"pipes do not go\"", listener->address);
    for (struct link_request *request = listener->requests; request; request = request->next)
        nng_ctx_close(request->ctx);
}

void server_peer_close(struct link_listener *listener, uint64_t peer_id)
{
    peers_close(listener, peer_id);
}

void server_close(struct link_listener *listener)
{
    struct nng_link *link = listener->link;
    atomic_store(&listener->phase, DRAINING);
    bool gone = peers_close_all(listener);
    link_end_listener(link, listener->endpoint);
    link_member_remove(link, &listener->member);
    rpc_gate_shut(&listener->gate, link->env.sched);
    atomic_store(&listener->phase, CLOSED);
    close_socket(listener, gone);
    lock_acquire(&listener->lock);
    listener->orphans = 1; /* ours, so that no answer frees the listener under us */
    lock_release(&listener->lock);
    free_requests(listener);
    if (!gone)
        return; /* NNG may still call back with it */
    peers_forget(listener);
    lock_acquire(&listener->lock);
    bool last = --listener->orphans == 0;
    lock_release(&listener->lock);
    if (last)
        free_listener(listener);
}
