/*
 * Connections of the simulated network: attempts with back-off, calls with deadlines.
 *
 *   PAUSING ──► TRYING ──► UP ──► PAUSING …      one timer per connection, and one per call
 *
 * Completions and states come from timers, or from a function of the test that breaks something;
 * never from within link_call(). A completion may call everything, so lists are taken apart from
 * their beginning, one call at a time.
 *
 * Threads: the test's. Failure modes: aborts without memory.
 */
#include "tests/sim/link/sim_link_internal.h"

#include <stdlib.h>
#include <string.h>

enum { RECONNECT_MIN_MS = 100, RECONNECT_MAX_MS = 2000, ATTEMPT_TIMEOUT_MS = 5000 };
enum { RETRY_NOW_PERIOD_MS = 1000, LASTING_MS = 5000, SIM_CALLS_MAX = 4096 };

enum conn_state { PAUSING, TRYING, UP };

struct sim_call {
    struct sim_call *next;
    struct link_conn *conn;
    uint64_t id;
    struct sim_session *session; /* it was sent on; NULL: waits for a connection */
    struct link_msg *msg;        /* until sent */
    int64_t deadline_ns;
    enum tern_code status; /* OK: none yet; else it ends so at the next timer */
    uint64_t timer;
    link_done_fn done;
    void *arg;
};

struct link_conn {
    struct sim_link *link;
    struct link_conn *next;
    struct link_dial_options options;
    char host[SIM_HOST_BYTES];
    uint16_t port;
    enum conn_state state;
    struct sim_session *session;
    uint64_t timer;
    int64_t backoff_ms;
    int64_t up_since_ns;
    int64_t last_retry_ns;
    uint64_t drop_timer;
    bool closing;
    struct sim_call *calls, **last_call; /* in the order they were made */
    uint32_t call_count;
};

static int64_t now_of(const struct link_conn *conn)
{
    return clock_mono_ns(&conn->link->net->sim->clock.clock);
}

static uint64_t after(struct link_conn *conn, int64_t delay_ns, void (*fn)(void *), void *arg)
{
    return sim_after(conn->link->net->sim->sched, delay_ns > 0 ? delay_ns : 0, fn, arg);
}

static void cancel(struct link_conn *conn, uint64_t *timer)
{
    if (*timer)
        (void)sim_cancel(conn->link->net->sim->sched, *timer);
    *timer = 0;
}

/* ---- calls ---- */

/* Takes the call off its connection and completes it; takes reply. */
static void end_call(struct sim_call *call, enum tern_code status, struct link_msg *reply)
{
    struct link_conn *conn = call->conn;
    struct sim_call **at = &conn->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    if (conn->last_call == &call->next)
        conn->last_call = at;
    conn->call_count--;
    cancel(conn, &call->timer);
    sim_msg_free(call->msg);
    link_done_fn done = call->done;
    void *arg = call->arg;
    free(call);
    done(arg, status, reply);
}

static void on_call_timer(void *arg)
{
    struct sim_call *call = arg;
    call->timer = 0;
    if (call->status != TERN_OK)
        end_call(call, call->status, NULL);
    else if (!call->session && now_of(call->conn) < call->deadline_ns)
        end_call(call, TERN_UNREACHABLE, NULL);
    else
        end_call(call, TERN_TIMEOUT, NULL);
}

static void send_call(struct sim_call *call)
{
    struct link_conn *conn = call->conn;
    cancel(conn, &call->timer);
    call->timer = after(conn, call->deadline_ns - now_of(conn), on_call_timer, call);
    call->session = conn->session;
    struct link_msg *msg = call->msg;
    call->msg = NULL;
    sim_send(conn->session, FLIGHT_REQUEST, true, call->id, msg);
}

static void await_connection(struct sim_call *call)
{
    struct link_conn *conn = call->conn;
    int64_t wait_ns = call->deadline_ns - now_of(conn);
    int64_t connect_ns = ms_to_ns(conn->options.connect_wait_ms);
    if (connect_ns > 0 && connect_ns < wait_ns)
        wait_ns = connect_ns;
    call->timer = after(conn, wait_ns, on_call_timer, call);
}

void sim_client_call(struct link_conn *conn, struct link_msg *msg, int64_t deadline_ns,
                     link_done_fn done, void *arg)
{
    struct sim_call *call = sim_net_alloc(sizeof *call);
    call->conn = conn;
    call->id = ++conn->link->net->last_id;
    call->msg = msg;
    call->deadline_ns = deadline_ns;
    call->done = done;
    call->arg = arg;
    *conn->last_call = call;
    conn->last_call = &call->next;
    conn->call_count++;
    if (conn->closing)
        call->status = TERN_CANCELED;
    else if (conn->call_count > SIM_CALLS_MAX)
        call->status = TERN_LIMIT;
    else if (msg->size > conn->options.max_message_bytes)
        call->status = TERN_TOO_LARGE;
    else if (deadline_ns <= now_of(conn))
        call->status = TERN_TIMEOUT;
    if (call->status != TERN_OK)
        call->timer = after(conn, 0, on_call_timer, call);
    else if (conn->state == UP && !conn->link->dead)
        send_call(call);
    else
        await_connection(call);
}

void sim_client_arrival(struct sim_session *session, uint64_t call_id, struct link_msg *msg)
{
    struct link_conn *conn = session->conn;
    conn->link->arrived++;
    struct sim_call *call = conn->calls;
    while (call && call->id != call_id)
        call = call->next;
    if (call && call->status == TERN_OK)
        end_call(call, TERN_OK, msg);
    else
        sim_msg_free(msg); /* too late */
}

/* ---- connecting ---- */

static void try_connect(void *arg);

static void pause_before_next(struct link_conn *conn)
{
    conn->state = PAUSING;
    conn->backoff_ms = conn->backoff_ms ? conn->backoff_ms * 2 : conn->options.reconnect_min_ms;
    if (conn->backoff_ms > conn->options.reconnect_max_ms)
        conn->backoff_ms = conn->options.reconnect_max_ms;
    uint64_t half_ns = (uint64_t)ms_to_ns(conn->backoff_ms) / 2 + 1;
    int64_t pause_ns = (int64_t)(half_ns + rng_below(&conn->link->net->sim->rng.rng, half_ns));
    cancel(conn, &conn->timer);
    conn->timer = after(conn, pause_ns, try_connect, conn);
}

static void tell(struct link_conn *conn, bool up)
{
    if (!conn->link->dead && conn->options.on_state)
        conn->options.on_state(conn->options.arg, up);
}

/* The handshake's end. */
static void connected(void *arg)
{
    struct link_conn *conn = arg;
    struct sim_net *net = conn->link->net;
    conn->timer = 0;
    if (conn->link->dead)
        return;
    struct sim_link *server = sim_net_find(net, conn->host);
    bool cut = sim_net_is_cut(net, conn->link->host, conn->host);
    struct sim_session *session =
        server && !cut ? sim_server_accept(server, conn->port, conn->link) : NULL;
    if (!session) {
        pause_before_next(conn);
        tell(conn, false);
        return;
    }
    session->conn = conn;
    conn->session = session;
    conn->state = UP;
    conn->up_since_ns = now_of(conn);
    for (struct sim_call *call = conn->calls; call; call = call->next)
        if (!call->session && call->status == TERN_OK)
            send_call(call);
    tell(conn, true);
}

static void try_connect(void *arg)
{
    struct link_conn *conn = arg;
    struct sim_net *net = conn->link->net;
    conn->timer = 0;
    if (conn->link->dead)
        return;
    conn->state = TRYING;
    int64_t time_ns = sim_net_delay(net) + sim_net_delay(net);
    if (sim_net_is_cut(net, conn->link->host, conn->host))
        time_ns = ms_to_ns(conn->options.attempt_timeout_ms);
    conn->timer = after(conn, time_ns, connected, conn);
}

/* The first call that is under way on the session. */
static struct sim_call *call_on(struct link_conn *conn, const struct sim_session *session)
{
    struct sim_call *call = conn->calls;
    while (call && call->session != session)
        call = call->next;
    return call;
}

/* Takes the connection's end off the session. */
static void leave_session(struct sim_session *session)
{
    session->conn->session = NULL;
    session->conn = NULL;
}

void sim_client_drop(struct sim_session *session)
{
    struct link_conn *conn = session->conn;
    struct sim_call *call;
    session->refs++;
    leave_session(session);
    if (now_of(conn) - conn->up_since_ns > ms_to_ns(LASTING_MS))
        conn->backoff_ms = 0;
    pause_before_next(conn);
    while ((call = call_on(conn, session)) != NULL)
        end_call(call, TERN_CONNECTION_LOST, NULL);
    tell(conn, false);
    sim_session_unref(session);
}

/* Leaves without a word to the owner; the server hears of it. */
static void hang_up(struct link_conn *conn)
{
    struct sim_session *session = conn->session;
    cancel(conn, &conn->timer);
    cancel(conn, &conn->drop_timer);
    conn->state = PAUSING;
    if (!session)
        return;
    sim_send(session, FLIGHT_RESET, true, 0, NULL);
    leave_session(session);
}

void sim_client_crash(struct sim_link *link)
{
    for (struct link_conn *conn = link->conns; conn; conn = conn->next)
        hang_up(conn);
}

void sim_client_retry_now(struct link_conn *conn)
{
    int64_t now_ns = now_of(conn);
    if (now_ns - conn->last_retry_ns < ms_to_ns(RETRY_NOW_PERIOD_MS) || conn->state != PAUSING ||
        conn->closing || conn->link->dead)
        return;
    conn->last_retry_ns = now_ns;
    cancel(conn, &conn->timer);
    conn->timer = after(conn, 0, try_connect, conn);
}

static void drop(void *arg)
{
    struct link_conn *conn = arg;
    struct sim_session *session = conn->session;
    conn->drop_timer = 0;
    if (!session)
        return;
    sim_send(session, FLIGHT_RESET, true, 0, NULL);
    sim_client_drop(session);
}

void sim_client_drop_soon(struct link_conn *conn)
{
    if (conn->drop_timer == 0 && !conn->closing && !conn->link->dead)
        conn->drop_timer = after(conn, 0, drop, conn);
}

/* ---- life ---- */

enum tern_code sim_client_dial(struct link *base, const struct link_dial_options *options,
                               struct link_conn **out, struct tern_error *err)
{
    struct sim_link *link = (struct sim_link *)base;
    *out = NULL;
    struct link_conn *conn = sim_net_alloc(sizeof *conn);
    if (sim_split_address(options->address, conn->host, &conn->port) != TERN_OK) {
        free(conn);
        return error_set(err, TERN_INVALID, "address \"%s\": not host:port", options->address);
    }
    conn->link = link;
    conn->options = *options;
    conn->options.address = NULL;
    if (conn->options.reconnect_min_ms <= 0)
        conn->options.reconnect_min_ms = RECONNECT_MIN_MS;
    if (conn->options.reconnect_max_ms < conn->options.reconnect_min_ms)
        conn->options.reconnect_max_ms = RECONNECT_MAX_MS;
    if (conn->options.attempt_timeout_ms <= 0)
        conn->options.attempt_timeout_ms = ATTEMPT_TIMEOUT_MS;
    conn->last_call = &conn->calls;
    conn->last_retry_ns = now_of(conn) - ms_to_ns(RETRY_NOW_PERIOD_MS);
    conn->next = link->conns;
    link->conns = conn;
    *out = conn;
    conn->timer = after(conn, 0, try_connect, conn);
    return TERN_OK;
}

void sim_client_close(struct link_conn *conn)
{
    struct sim_link *link = conn->link;
    conn->closing = true;
    hang_up(conn);
    while (conn->calls)
        end_call(conn->calls, TERN_CANCELED, NULL);
    struct link_conn **at = &link->conns;
    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    free(conn);
}
