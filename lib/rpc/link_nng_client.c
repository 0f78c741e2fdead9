/*
 * The calling half of the NNG link: one REQ socket per connection, so that a request can only go to
 * the address it was meant for, and one of the socket's contexts per call under way. How the
 * connection is made is in link_nng_dialing.c.
 *
 * A call sends, then receives, on one aio; its context goes back to a pool. Because nothing is
 * received before the send has ended, a deadline may cancel either without touching the other (NNG
 * 1.5.2 does not survive cancelling a receive whose send is pending).
 *
 *   link_call --> SENDING: waits in NNG for a connection and its turn --> RECEIVING --> done
 *                    | deadline, or connect_wait_ms               | deadline, connection lost
 *                    +--> message taken back, never sent          +--> done
 *
 * Resend time is infinite: NNG never repeats a request, and the loss of the pipe ends the calls on
 * it at once.
 *
 * Closing: leave the task (no on_state afterwards); shut the door for beginning operations; cancel
 * the calls and wait until they have been told; free the aios, which waits for deadlines that are
 * just being enforced; hang up and wait until the pipe has gone (NNG leaks the message that it
 * takes from its queue for a pipe that is closing, so the queue is empty by then); only then close
 * the socket, with the contexts that the aios referred to (see docs/decisions/nng-shim.md). When
 * the pipe does not go, contexts are closed one by one, and socket and connection are left behind.
 *
 * Threads: calls from any; completions on NNG's, or the link's task when nothing was submitted.
 * Locks: conn->lock. Failure modes: TERN_LIMIT above CALLS_MAX; without memory for a context the
 * call ends TERN_NO_MEMORY.
 */
#include <nng/nng.h>
#include <nng/protocol/reqrep0/req.h>

#include "rpc/link_nng_conn.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    CALLS_MAX = 4096, /* under way on one connection */
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

/* ---- calls ---- */

static void on_call_event(void *arg);

static struct call *open_call(struct link_conn *conn)
{
    struct call *call = NULL;
    if (!rpc_gate_enter(&conn->submitting))
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
    rpc_gate_leave(&conn->submitting, conn->link->env.sched);
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

static void give_back(struct call *call)
{
    struct link_conn *conn = call->conn;
    lock_acquire(&conn->lock);
    call->next_free = conn->free;
    conn->free = call;
    lock_release(&conn->lock);
}

/* The context may carry another call before `done` has returned. */
static void finish_call(struct call *call, enum tern_code status, nng_msg *reply)
{
    struct link_conn *conn = call->conn;
    link_done_fn done = call->done;
    void *arg = call->arg;
    if (status != TERN_OK && atomic_load(&conn->closing))
        status = TERN_CANCELED;
    give_back(call);
    done(arg, status, reply ? msg_from_nng(reply) : NULL);
    client_call_left(conn);
}

void client_call_left(struct link_conn *conn)
{
    atomic_fetch_sub(&conn->call_count, 1);
    rpc_gate_leave(&conn->calls, conn->link->env.sched);
}

/*
 * Sends the message in the aio. false: the connection is closing, the message stays there. Inside
 * the gate, as every beginning of an operation: the call may be over, and the socket closed, while
 * NNG still leaves the function that began it.
 */
static bool submit(struct call *call, int64_t now_ns)
{
    struct link_conn *conn = call->conn;
    struct sched *sched = conn->link->env.sched;
    int64_t until_ns = call->deadline_ns;
    if (conn->options.connect_wait_ms > 0 &&
        until_ns - now_ns > ms_to_ns(conn->options.connect_wait_ms))
        until_ns = now_ns + ms_to_ns(conn->options.connect_wait_ms);
    if (!rpc_gate_enter(&conn->submitting))
        return false;
    call->phase = SENDING;
    nng_aio_set_timeout(call->aio, link_timeout_ms(until_ns, now_ns));
    nng_ctx_send(call->ctx, call->aio);
    rpc_gate_leave(&conn->submitting, sched);
    return true;
}

static void await_reply(struct call *call, int64_t now_ns)
{
    struct link_conn *conn = call->conn;
    struct sched *sched = conn->link->env.sched;
    if (!rpc_gate_enter(&conn->submitting)) {
        finish_call(call, TERN_CANCELED, NULL);
        return;
    }
    call->phase = RECEIVING;
    nng_aio_set_timeout(call->aio, link_timeout_ms(call->deadline_ns, now_ns));
    nng_ctx_recv(call->ctx, call->aio);
    rpc_gate_leave(&conn->submitting, sched);
}

static void drop_message(struct call *call)
{
    nng_msg_free(nng_aio_get_msg(call->aio));
    nng_aio_set_msg(call->aio, NULL);
}

static void on_send_done(struct call *call, int rv)
{
    struct link_conn *conn = call->conn;
    int64_t now_ns = link_now_ns(conn->link);
    if (rv == 0) {
        await_reply(call, now_ns);
        return;
    }
    bool up = atomic_load(&conn->up);
    if (rv == NNG_ETIMEDOUT && up && now_ns < call->deadline_ns && !atomic_load(&conn->closing)) {
        dialing_suspect(conn);
        if (submit(call, now_ns)) /* waits for its turn, not for a connection */
            return;
    }
    drop_message(call);
    if (rv == NNG_ETIMEDOUT && up)
        dialing_suspect(conn);
    finish_call(call, rv == NNG_ETIMEDOUT && !up ? TERN_UNREACHABLE : link_code_of(rv), NULL);
}

static void on_receive_done(struct call *call, int rv)
{
    nng_msg *reply = NULL;
    if (rv == 0) {
        reply = nng_aio_get_msg(call->aio);
        nng_aio_set_msg(call->aio, NULL);
        if (!atomic_load_explicit(&call->conn->answered, memory_order_relaxed))
            atomic_store(&call->conn->answered, true);
    } else if (rv != NNG_ETIMEDOUT) {
        dialing_suspect(call->conn);
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
    if (submit(call, now_ns))
        return;
    drop_message(call);
    give_back(call);
    link_defer(conn->link, conn, done, arg, TERN_CANCELED);
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
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_ADD_PRE, dialing_on_arriving, conn);
    if (rv == 0)
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_ADD_POST, dialing_on_added, conn);
    if (rv == 0)
        rv = nng_pipe_notify(socket, NNG_PIPE_EV_REM_POST, dialing_on_gone, conn);
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
    conn->member.step = dialing_step;
    conn->link = link;
    conn->literal = literal;
    conn->options = *options;
    set_defaults(&conn->options);
    snprintf(conn->address, sizeof conn->address, "%s", options->address);
    conn->options.address = conn->address;
    conn->suspect_until_ns = SCHED_NEVER;
    conn->last_retry_ns = link_now_ns(link) - ms_to_ns(LINK_RETRY_NOW_PERIOD_MS);
    rpc_gate_init(&conn->calls);
    rpc_gate_init(&conn->submitting);
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

/* Nothing begins any more: ends what is under way. Returns when NNG does not know the aios. */
static void end_calls(struct link_conn *conn)
{
    for (struct call *call = conn->all; call; call = call->next_all)
        nng_aio_cancel(call->aio);
    rpc_gate_shut(&conn->calls, conn->link->env.sched);
    for (struct call *call = conn->all; call; call = call->next_all)
        nng_aio_free(call->aio);
}

/* Ends the contexts and, when it can be, the socket with all that is in it. After end_calls(). */
static void close_socket(struct link_conn *conn, bool whole)
{
    if (whole) {
        nng_close(conn->socket);
        return;
    }
    log_error(conn->link->env.log, "rpc.connection_left_behind",
              "address=%s reason=\"its pipe does not go\"", conn->address);
    for (struct call *call = conn->all; call; call = call->next_all)
        nng_ctx_close(call->ctx);
}

void client_close(struct link_conn *conn)
{
    struct nng_link *link = conn->link;
    atomic_store(&conn->closing, true);
    link_member_remove(link, &conn->member);
    rpc_gate_shut(&conn->submitting, link->env.sched);
    end_calls(conn);
    bool gone = dialing_stop(conn);
    close_socket(conn, gone);
    struct call *call = conn->all;
    while (call) {
        struct call *next = call->next_all;
        free(call);
        call = next;
    }
    if (!gone)
        return; /* NNG may still call back with it */
    lock_fini(&conn->lock);
    free(conn);
}
