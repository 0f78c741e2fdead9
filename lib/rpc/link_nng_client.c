/*
 * The calling half of the NNG link: one REQ socket per connection, so that a request can only go to
 * the address it was meant for, and one of the socket's contexts per call under way.
 *
 * A call sends, then receives, on one aio; its context goes back to a pool. Because nothing is
 * received before the send has ended, a deadline may cancel either without touching the other
 * (NNG 1.5.2 does not survive cancelling a receive whose send is pending).
 *
 *   link_call ──► SENDING: waits in NNG for a connection and for its turn ──► RECEIVING ──► done
 *                    │ deadline, or connect_wait_ms without connection            │ deadline,
 * connection lost └──► message taken back, never sent                          └──► done
 *
 * Resend time is infinite: NNG never repeats a request, and the loss of the pipe ends the calls on
 * it at once.
 *
 * A connection is made by attempts, each a dialer of its own that lives for a while and is closed
 * when no pipe came. NNG's own redialling is of no use: its random back-off is negative, that is
 * none, half of the time. It is set to an hour, which leaves two connects per attempt on average.
 * NNG does not report that a non-blocking dial failed, so an attempt lives its time out; the time
 * doubles with jitter and is the back-off. (A blocking dial would report, but hangs for ever when
 * its dialer is closed just before it begins.)
 *
 *   PAUSING ──(time)──► DIALING ──(pipe came)──► UP ──(pipe went)──► PAUSING
 *                        │    ▲
 *                        └────┘ time is up, or retry_now: the next attempt, which lives twice as
 * long
 *
 * When a pipe goes, NNG's dialer begins to redial before we can close it; a pipe that comes then is
 * refused in ADD_PRE, before any call could be sent on it. The back-off is forgotten only by
 * connections that lasted: a server that accepts and hangs up is as good as down. Names may have
 * IPv4 and IPv6 addresses, of which NNG tries the first only; so attempts alternate between the
 * families.
 *
 * Closing: leave the task (ends an attempt; no on_state afterwards); shut the door for opening
 * contexts; close the socket, which ends all calls; wait until they have been told; free the
 * contexts.
 *
 * Threads: calls from any; completions on NNG's, or the link's task when nothing was submitted;
 * states on the task. Locks: conn->lock.
 */
#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>

#include "rpc/link_nng_internal.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    CALLS_MAX = 4096,       /* under way on one connection */
    LASTING_MS = 5000,      /* a connection that lived that long starts the back-off anew */
    ATTEMPT_LEAST_MS = 250, /* time for a handshake; also before retry_now ends an attempt */
    NO_REDIAL_MS = 3600 * 1000,
    RETRY_NOW_PERIOD_MS = 1000,
    DEFAULT_RECONNECT_MIN_MS = 100,
    DEFAULT_RECONNECT_MAX_MS = 2000,
    DEFAULT_ATTEMPT_TIMEOUT_MS = 5000
};

enum call_phase { SENDING, RECEIVING };

/* A context and the call it carries. */
struct call {
    struct link_conn *conn;
    struct call *next_all;  /* conn->lock */
    struct call *next_free; /* conn->lock */
    nng_ctx ctx;
    nng_aio *aio;
    enum call_phase phase;
    int64_t deadline_ns;
    link_done_fn done;
    void *arg;
};

enum conn_state { PAUSING, DIALING, UP };

struct link_conn {
    struct link_member member; /* first */
    struct nng_link *link;
    struct link_dial_options options;
    char address[LINK_ADDRESS_BYTES];
    bool literal; /* an IP address, not a name */
    nng_socket socket;
    struct rpc_gate calls;   /* calls under way */
    struct rpc_gate opening; /* contexts being opened */
    _Atomic uint32_t call_count;
    _Atomic bool up;
    _Atomic bool closing;

    struct lock lock;
    struct call *all;      /* lock */
    struct call *free;     /* lock */
    uint32_t pipe_id;      /* lock: the pipe in use or being added, 0: none */
    bool expecting;        /* lock: a pipe that comes is welcome */
    uint64_t ups, downs;   /* lock: of pipes, as NNG told */
    bool retry_now;        /* lock */
    int64_t last_retry_ns; /* lock */

    /* the task's */
    enum conn_state state;
    nng_dialer dialer; /* while dialing, or open */
    bool dialer_open;
    uint64_t told_ups, told_downs;
    int64_t until_ns;   /* end of the pause or of the attempt */
    int64_t begun_ns;   /* of the attempt, or of the connection */
    int64_t backoff_ms; /* life of the last attempt */
    bool second_family; /* the next attempt is for IPv6 */
};

/* ---- pipes ---- */

/* @thread nng */
static void on_pipe_arriving(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)event;
    struct link_conn *conn = arg;
    lock_acquire(&conn->lock);
    bool welcome = conn->expecting;
    if (welcome) {
        conn->expecting = false;
        conn->pipe_id = (uint32_t)nng_pipe_id(pipe);
    }
    lock_release(&conn->lock);
    if (!welcome)
        nng_pipe_close(pipe);
}

/* NNG may give this after on_pipe_gone of the same pipe. @thread nng */
static void on_pipe_added(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)event;
    struct link_conn *conn = arg;
    lock_acquire(&conn->lock);
    bool ours = conn->pipe_id == (uint32_t)nng_pipe_id(pipe);
    if (ours) {
        conn->ups++;
        atomic_store(&conn->up, true);
    }
    lock_release(&conn->lock);
    if (ours)
        task_wake(conn->link->task);
}

/* @thread nng */
static void on_pipe_gone(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)event;
    struct link_conn *conn = arg;
    lock_acquire(&conn->lock);
    bool ours = conn->pipe_id == (uint32_t)nng_pipe_id(pipe);
    if (ours) {
        conn->pipe_id = 0;
        if (conn->ups > conn->downs)
            conn->downs++;
        atomic_store(&conn->up, false);
    }
    lock_release(&conn->lock);
    if (ours)
        task_wake(conn->link->task);
}

/* ---- attempts: the task's part ---- */

static int64_t with_jitter(struct link_conn *conn, int64_t ms)
{
    uint64_t quarter_ns = (uint64_t)ms_to_ns(ms) / 4 + 1;
    return (int64_t)(3 * quarter_ns + rng_below(conn->link->env.rng, 2 * quarter_ns));
}

static int create_dialer(struct link_conn *conn)
{
    char url[LINK_URL_BYTES];
    const char *family = "";
    if (!conn->literal)
        family = conn->second_family ? "6" : "4";
    conn->second_family = !conn->second_family;
    snprintf(url, sizeof url, "tcp%s://%s", family, conn->address);
    int rv = nng_dialer_create(&conn->dialer, conn->socket, url);
    if (rv != 0)
        return rv;
    rv = nng_dialer_set_bool(conn->dialer, NNG_OPT_TCP_NODELAY, true);
    if (rv == 0)
        rv = nng_dialer_set_bool(conn->dialer, NNG_OPT_TCP_KEEPALIVE, true);
    if (rv == 0)
        rv = nng_dialer_set_ms(conn->dialer, NNG_OPT_RECONNMINT, NO_REDIAL_MS);
    if (rv == 0)
        rv = nng_dialer_set_ms(conn->dialer, NNG_OPT_RECONNMAXT, NO_REDIAL_MS);
    if (rv != 0)
        nng_dialer_close(conn->dialer);
    conn->dialer_open = rv == 0;
    return rv;
}

/* Closes the dialer with its pipe. */
static void drop_dialer(struct link_conn *conn)
{
    lock_acquire(&conn->lock);
    conn->expecting = false;
    lock_release(&conn->lock);
    if (conn->dialer_open)
        nng_dialer_close(conn->dialer);
    conn->dialer_open = false;
}

static void start_attempt(struct link_conn *conn, int64_t now_ns)
{
    const struct link_dial_options *options = &conn->options;
    drop_dialer(conn);
    conn->backoff_ms = conn->backoff_ms * 2;
    if (conn->backoff_ms < options->reconnect_min_ms)
        conn->backoff_ms = options->reconnect_min_ms;
    if (conn->backoff_ms > options->reconnect_max_ms)
        conn->backoff_ms = options->reconnect_max_ms;
    if (conn->backoff_ms > options->attempt_timeout_ms)
        conn->backoff_ms = options->attempt_timeout_ms;
    int64_t life_ns = with_jitter(conn, conn->backoff_ms);
    if (life_ns < ms_to_ns(ATTEMPT_LEAST_MS))
        life_ns = ms_to_ns(ATTEMPT_LEAST_MS);
    conn->state = DIALING;
    conn->begun_ns = now_ns;
    conn->until_ns = now_ns + life_ns;
    lock_acquire(&conn->lock);
    conn->expecting = true;
    lock_release(&conn->lock);
    int rv = create_dialer(conn);
    if (rv == 0)
        rv = nng_dialer_start(conn->dialer, NNG_FLAG_NONBLOCK);
    if (rv != 0) /* no memory, most likely: as if it had failed later */
        log_warn(conn->link->env.log, "rpc.dial_failed", "address=%s reason=\"%s\"", conn->address,
                 nng_strerror(rv));
}

static void tell(struct link_conn *conn, bool up)
{
    log_debug(conn->link->env.log, up ? "rpc.connected" : "rpc.not_connected", "address=%s",
              conn->address);
    if (conn->options.on_state)
        conn->options.on_state(conn->options.arg, up);
}

/* Tells what the pipes did since; true when something was told. */
static bool follow_pipes(struct link_conn *conn, int64_t now_ns)
{
    lock_acquire(&conn->lock);
    uint64_t ups = conn->ups;
    uint64_t downs = conn->downs;
    lock_release(&conn->lock);
    if (conn->told_ups == conn->told_downs && ups > conn->told_ups) {
        conn->told_ups++;
        conn->state = UP;
        conn->begun_ns = now_ns;
        tell(conn, true);
        return true;
    }
    if (conn->told_ups > conn->told_downs && downs > conn->told_downs) {
        conn->told_downs++;
        drop_dialer(conn);
        if (now_ns - conn->begun_ns > ms_to_ns(LASTING_MS))
            conn->backoff_ms = 0;
        conn->second_family = false;
        conn->state = PAUSING;
        conn->until_ns =
            now_ns + with_jitter(conn, conn->backoff_ms > conn->options.reconnect_min_ms
                                           ? conn->backoff_ms
                                           : conn->options.reconnect_min_ms);
        tell(conn, false);
        return true;
    }
    return false;
}

/* Whether retry_now was called, and the attempt, if any, had its chance. */
static bool take_retry_now(struct link_conn *conn, int64_t now_ns)
{
    bool fresh = conn->state == DIALING && now_ns - conn->begun_ns < ms_to_ns(ATTEMPT_LEAST_MS);
    lock_acquire(&conn->lock);
    bool retry = conn->retry_now;
    conn->retry_now = false;
    lock_release(&conn->lock);
    return retry && !fresh;
}

/* Takes back the welcome; false when a pipe has come. A refused or broken pipe ends the attempt
 * early. */
static bool attempt_over(struct link_conn *conn, int64_t now_ns, bool cut_short)
{
    lock_acquire(&conn->lock);
    bool over = conn->pipe_id == 0 && (!conn->expecting || now_ns >= conn->until_ns || cut_short);
    if (over)
        conn->expecting = false;
    lock_release(&conn->lock);
    return over;
}

static int64_t step_dialing(struct link_conn *conn, int64_t now_ns)
{
    if (attempt_over(conn, now_ns, take_retry_now(conn, now_ns))) {
        bool early =
            now_ns < conn->until_ns && now_ns - conn->begun_ns < ms_to_ns(ATTEMPT_LEAST_MS);
        drop_dialer(conn);
        tell(conn, false);
        if (early) { /* it was hung up on: do not hammer */
            conn->state = PAUSING;
            return conn->until_ns;
        }
        start_attempt(conn, now_ns);
    }
    return now_ns < conn->until_ns ? conn->until_ns : SCHED_NEVER; /* a pipe wakes us */
}

static int64_t conn_step(struct link_member *member, int64_t now_ns)
{
    struct link_conn *conn = (struct link_conn *)member;
    if (atomic_load(&conn->closing))
        return SCHED_NEVER;
    while (follow_pipes(conn, now_ns))
        ;
    switch (conn->state) {
    case PAUSING:
        if (now_ns < conn->until_ns && !take_retry_now(conn, now_ns))
            return conn->until_ns;
        start_attempt(conn, now_ns);
        return conn->until_ns;
    case DIALING:
        return step_dialing(conn, now_ns);
    default:
        (void)take_retry_now(conn, now_ns);
        return SCHED_NEVER;
    }
}

static void conn_detach(struct link_member *member)
{
    drop_dialer((struct link_conn *)member);
}

void client_retry_now(struct link_conn *conn)
{
    int64_t now_ns = link_now_ns(conn->link);
    lock_acquire(&conn->lock);
    bool due = now_ns - conn->last_retry_ns >= ms_to_ns(RETRY_NOW_PERIOD_MS);
    if (due) {
        conn->last_retry_ns = now_ns;
        conn->retry_now = true;
    }
    lock_release(&conn->lock);
    if (due)
        task_wake(conn->link->task);
}

/* ---- calls ---- */

static void on_call_event(void *arg);

static struct call *open_call(struct link_conn *conn)
{
    struct call *call = NULL;
    if (!rpc_gate_enter(&conn->opening))
        return NULL;
    call = calloc(1, sizeof *call);
    if (!call)
        goto out;
    call->conn = conn;
    if (nng_ctx_open(&call->ctx, conn->socket) != 0) {
        free(call);
        call = NULL;
        goto out;
    }
    if (nng_aio_alloc(&call->aio, on_call_event, call) != 0) {
        nng_ctx_close(call->ctx);
        free(call);
        call = NULL;
        goto out;
    }
    lock_acquire(&conn->lock);
    call->next_all = conn->all;
    conn->all = call;
    lock_release(&conn->lock);
out:
    rpc_gate_leave(&conn->opening, conn->link->env.sched);
    return call;
}

static struct call *take_call(struct link_conn *conn)
{
    lock_acquire(&conn->lock);
    struct call *call = conn->free;
    if (call)
        conn->free = call->next_free;
    lock_release(&conn->lock);
    return call ? call : open_call(conn);
}

/* The context may carry another call before `done` has returned. */
static void finish_call(struct call *call, enum tern_code status, nng_msg *reply)
{
    struct link_conn *conn = call->conn;
    link_done_fn done = call->done;
    void *arg = call->arg;
    if (status != TERN_OK && atomic_load(&conn->closing))
        status = TERN_CANCELED;
    lock_acquire(&conn->lock);
    call->next_free = conn->free;
    conn->free = call;
    lock_release(&conn->lock);
    done(arg, status, reply ? msg_from_nng(reply) : NULL);
    client_call_left(conn);
}

void client_call_left(struct link_conn *conn)
{
    atomic_fetch_sub(&conn->call_count, 1);
    rpc_gate_leave(&conn->calls, conn->link->env.sched);
}

/* The message is in the aio. */
static void submit(struct call *call, int64_t now_ns)
{
    struct link_conn *conn = call->conn;
    int64_t until_ns = call->deadline_ns;
    if (conn->options.connect_wait_ms > 0 &&
        until_ns - now_ns > ms_to_ns(conn->options.connect_wait_ms))
        until_ns = now_ns + ms_to_ns(conn->options.connect_wait_ms);
    call->phase = SENDING;
    nng_aio_set_timeout(call->aio, link_timeout_ms(until_ns, now_ns));
    nng_ctx_send(call->ctx, call->aio);
}

static void on_send_done(struct call *call, int rv)
{
    struct link_conn *conn = call->conn;
    int64_t now_ns = link_now_ns(conn->link);
    if (rv == 0) {
        call->phase = RECEIVING;
        nng_aio_set_timeout(call->aio, link_timeout_ms(call->deadline_ns, now_ns));
        nng_ctx_recv(call->ctx, call->aio);
        return;
    }
    bool up = atomic_load(&conn->up);
    if (rv == NNG_ETIMEDOUT && up && now_ns < call->deadline_ns && !atomic_load(&conn->closing)) {
        submit(call, now_ns); /* waits for its turn, not for a connection */
        return;
    }
    nng_msg_free(nng_aio_get_msg(call->aio));
    nng_aio_set_msg(call->aio, NULL);
    finish_call(call, rv == NNG_ETIMEDOUT && !up ? TERN_UNREACHABLE : link_code_of(rv), NULL);
}

static void on_receive_done(struct call *call, int rv)
{
    nng_msg *reply = NULL;
    if (rv == 0) {
        reply = nng_aio_get_msg(call->aio);
        nng_aio_set_msg(call->aio, NULL);
    }
    finish_call(call, link_code_of(rv), reply);
}

/* @thread nng */
static void on_call_event(void *arg)
{
    struct call *call = arg;
    int rv = nng_aio_result(call->aio);
    if (call->phase == SENDING)
        on_send_done(call, rv);
    else
        on_receive_done(call, rv);
}

/* Why the call cannot be made, else OK. The caller is counted already. */
static enum tern_code call_refusal(struct link_conn *conn, uint32_t calls_before, nng_msg *msg,
                                   int64_t deadline_ns, int64_t now_ns)
{
    if (atomic_load(&conn->closing))
        return TERN_CANCELED;
    if (calls_before >= CALLS_MAX)
        return TERN_LIMIT;
    if (nng_msg_len(msg) > conn->options.max_message_bytes)
        return TERN_TOO_LARGE;
    return deadline_ns <= now_ns ? TERN_TIMEOUT : TERN_OK;
}

void client_call(struct link_conn *conn, struct link_msg *msg, int64_t deadline_ns,
                 link_done_fn done, void *arg)
{
    int64_t now_ns = link_now_ns(conn->link);
    uint32_t before = atomic_fetch_add(&conn->call_count, 1);
    rpc_gate_hold(&conn->calls);
    enum tern_code code = call_refusal(conn, before, msg_to_nng(msg), deadline_ns, now_ns);
    struct call *call = code == TERN_OK ? take_call(conn) : NULL;
    if (!call) {
        nng_msg_free(msg_to_nng(msg));
        link_defer(conn->link, conn, done, arg, code == TERN_OK ? TERN_NO_MEMORY : code);
        return;
    }
    call->deadline_ns = deadline_ns;
    call->done = done;
    call->arg = arg;
    nng_aio_set_msg(call->aio, msg_to_nng(msg));
    submit(call, now_ns);
}

/* ---- life ---- */

static int open_socket(struct link_conn *conn)
{
    int rv = nng_req0_open(&conn->socket);
    if (rv != 0)
        return rv;
    nng_socket socket = conn->socket;
    rv = nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ,
                             link_receive_limit(conn->options.max_message_bytes));
    if (rv == 0)
        rv = nng_socket_set_ms(socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    if (rv == 0)
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_ADD_PRE, on_pipe_arriving, conn);
    if (rv == 0)
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_ADD_POST, on_pipe_added, conn);
    if (rv == 0)
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_REM_POST, on_pipe_gone, conn);
    if (rv != 0)
        nng_close(socket);
    return rv;
}

static void set_defaults(struct link_dial_options *options)
{
    if (options->reconnect_min_ms <= 0)
        options->reconnect_min_ms = DEFAULT_RECONNECT_MIN_MS;
    if (options->reconnect_max_ms < options->reconnect_min_ms)
        options->reconnect_max_ms = options->reconnect_min_ms > DEFAULT_RECONNECT_MAX_MS
                                        ? options->reconnect_min_ms
                                        : DEFAULT_RECONNECT_MAX_MS;
    if (options->attempt_timeout_ms <= 0)
        options->attempt_timeout_ms = DEFAULT_ATTEMPT_TIMEOUT_MS;
}

enum tern_code client_dial(struct link *base, const struct link_dial_options *options,
                           struct link_conn **out, struct tern_error *err)
{
    struct nng_link *link = (struct nng_link *)base;
    *out = NULL;
    bool literal;
    enum tern_code code = link_check_address(options->address, &literal, err);
    if (code != TERN_OK)
        return code;
    struct link_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return error_set(err, TERN_NO_MEMORY, "connection to %s", options->address);
    conn->member.step = conn_step;
    conn->member.detach = conn_detach;
    conn->link = link;
    conn->literal = literal;
    conn->options = *options;
    set_defaults(&conn->options);
    snprintf(conn->address, sizeof conn->address, "%s", options->address);
    conn->options.address = conn->address;
    conn->last_retry_ns = link_now_ns(link) - ms_to_ns(RETRY_NOW_PERIOD_MS);
    rpc_gate_init(&conn->calls);
    rpc_gate_init(&conn->opening);
    lock_init(&conn->lock, LOCK_LINK);
    int rv = open_socket(conn);
    if (rv != 0) {
        code = link_error(err, rv, "connecting to", options->address);
        lock_fini(&conn->lock);
        free(conn);
        return code;
    }
    *out = conn;
    link_member_add(link, &conn->member);
    return TERN_OK;
}

void client_close(struct link_conn *conn)
{
    struct nng_link *link = conn->link;
    atomic_store(&conn->closing, true);
    link_member_remove(link, &conn->member);
    rpc_gate_shut(&conn->opening, link->env.sched);
    nng_close(conn->socket);
    rpc_gate_shut(&conn->calls, link->env.sched);
    struct call *call = conn->all;
    while (call) {
        struct call *next = call->next_all;
        nng_aio_free(call->aio);
        free(call);
        call = next;
    }
    lock_fini(&conn->lock);
    free(conn);
}
