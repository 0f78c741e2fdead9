/*
 * Making and losing a connection of the NNG link.
 *
 * A connection is made by attempts, each a dialer of its own that lives for a while and is closed
 * when no pipe came. NNG's own redialling is of no use: its random back-off is negative, that is
 * none, half of the time. It is set to an hour, which leaves two connects per attempt on average.
 * NNG does not report that a non-blocking dial failed, so an attempt lives its time out; the time
 * doubles with jitter and is the back-off. (A blocking dial would report, but hangs for ever when
 * its dialer is closed just before it begins.)
 *
 *   PAUSING --(time)--> DIALING --(pipe came)--> UP --(pipe went)--> PAUSING
 *                        |    ^
 *                        +----+ time is up, or retry_now: the next attempt
 *
 * When a pipe goes, NNG's dialer begins to redial before we can close it; a pipe that comes then is
 * refused in ADD_PRE, before any call could be sent on it. The back-off is forgotten only by
 * connections that answered a call or lasted: a server that accepts and hangs up is as good as
 * down. Names may have IPv4 and IPv6 addresses, of which NNG tries the first only; so attempts
 * alternate between the families.
 *
 * Without nng_shim.c in the program (an application that uses the client library) NNG can stop
 * telling that pipes went. A call that was lost, or could not be sent although the connection seems
 * up, is a hint: when the pipe is still said to be there SUSPECT_MS later, it is ended from here,
 * and given up when it is there even then.
 *
 * Threads: NNG's for pipe events, which only note and wake; the link's task for everything that
 * has an order. Locks: conn->lock. Failure modes: without memory an attempt fails as if nobody had
 * listened.
 */
#include <nng/nng.h>

#include "rpc/link_nng_conn.h"

#include <stdio.h>

enum {
    LASTING_MS = 5000,      /* a connection that lived that long starts the back-off anew */
    ATTEMPT_LEAST_MS = 250, /* time for a handshake; also before retry_now ends an attempt */
    NO_REDIAL_MS = 3600 * 1000,
    SUSPECT_MS = 1000
};

/* ---- pipes ---- */

void dialing_on_arriving(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)event;
    struct link_conn *conn = arg;
    struct host ours;
    struct host theirs;
    link_pipe_address(pipe, NNG_OPT_LOCADDR, &ours);
    link_pipe_address(pipe, NNG_OPT_REMADDR, &theirs);
    lock_acquire(&conn->lock);
    bool welcome = conn->expecting;
    if (welcome) {
        conn->expecting = false;
        conn->pipe_id = (uint32_t)nng_pipe_id(pipe);
        conn->ours = ours;
        conn->theirs = theirs;
    }
    lock_release(&conn->lock);
    if (!welcome)
        nng_pipe_close(pipe); /* not started yet: safe */
}

/* NNG may give this after dialing_on_gone() of the same pipe. */
void dialing_on_added(nng_pipe pipe, nng_pipe_ev event, void *arg)
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

/* The pipe in use has gone, or is given up. @locks holds:LINK */
static void forget_pipe(struct link_conn *conn)
{
    conn->pipe_id = 0;
    if (conn->ups > conn->downs)
        conn->downs++;
    atomic_store(&conn->up, false);
    if (conn->pipe_gone)
        latch_set(conn->link->env.sched, conn->pipe_gone);
}

void dialing_on_gone(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)event;
    struct link_conn *conn = arg;
    lock_acquire(&conn->lock);
    bool ours = conn->pipe_id == (uint32_t)nng_pipe_id(pipe);
    if (ours)
        forget_pipe(conn);
    lock_release(&conn->lock);
    if (ours)
        task_wake(conn->link->task);
}

void dialing_suspect(struct link_conn *conn)
{
    if (!atomic_exchange(&conn->suspect, true))
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
        link_end_dialer(conn->link, conn->dialer);
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
        if (atomic_exchange(&conn->answered, false) ||
            now_ns - conn->begun_ns > ms_to_ns(LASTING_MS))
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

static bool is_ours(void *arg, bool accepted, const struct sockaddr *local,
                    const struct sockaddr *remote)
{
    const struct host *ends = arg;
    struct host ours;
    struct host theirs;
    if (accepted)
        return false;
    link_socket_address(local, &ours);
    link_socket_address(remote, &theirs);
    return link_same_host(&ours, &ends[0]) && link_same_host(&theirs, &ends[1]);
}

/* Hangs up, or closes the dialer with its pipe. The pipe goes later, as if the network had cut it.
 */
static void end_pipe(struct link_conn *conn, const struct host ends[2])
{
    struct host own[2] = {ends[0], ends[1]};
    if (link_can_hang_up())
        (void)nng_shim_hang_up(is_ours, own);
    else
        drop_dialer(conn);
}

/* When the pipe does not go, it is given up as any other suspect. */
static void end_unwanted(struct link_conn *conn)
{
    if (!atomic_exchange(&conn->unwanted, false))
        return;
    lock_acquire(&conn->lock);
    bool none = conn->pipe_id == 0;
    struct host ends[2] = {conn->ours, conn->theirs};
    lock_release(&conn->lock);
    if (none)
        return;
    end_pipe(conn, ends);
    atomic_store(&conn->suspect, true);
}

/*
 * A suspect pipe that stays is ended, as at a peer that takes nothing more; one that stays even
 * then is given up: NNG has stopped telling. Returns when to look again.
 */
static int64_t watch_suspect(struct link_conn *conn, int64_t now_ns)
{
    bool given_up = false;
    bool end = false;
    lock_acquire(&conn->lock);
    if (atomic_exchange(&conn->suspect, false) && conn->suspect_until_ns == SCHED_NEVER) {
        conn->suspect_pipe_id = conn->pipe_id;
        conn->suspect_until_ns = now_ns + ms_to_ns(SUSPECT_MS);
        conn->suspect_ended = false;
    }
    if (conn->suspect_pipe_id == 0 || conn->suspect_pipe_id != conn->pipe_id)
        conn->suspect_until_ns = SCHED_NEVER;
    if (now_ns >= conn->suspect_until_ns && !conn->suspect_ended) {
        conn->suspect_ended = true;
        conn->suspect_until_ns = now_ns + ms_to_ns(SUSPECT_MS);
        end = true;
    } else if (now_ns >= conn->suspect_until_ns) {
        conn->suspect_until_ns = SCHED_NEVER;
        given_up = true;
        conn->left_pipe = true;
        forget_pipe(conn);
    }
    struct host ends[2] = {conn->ours, conn->theirs};
    lock_release(&conn->lock);
    if (end)
        end_pipe(conn, ends);
    if (given_up)
        log_error(conn->link->env.log, "rpc.pipe_given_up", "address=%s", conn->address);
    return conn->suspect_until_ns;
}

static int64_t step_state(struct link_conn *conn, int64_t now_ns)
{
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

int64_t dialing_step(struct link_member *member, int64_t now_ns)
{
    struct link_conn *conn = (struct link_conn *)member;
    if (atomic_load(&conn->closing))
        return SCHED_NEVER;
    end_unwanted(conn);
    int64_t suspect_ns = watch_suspect(conn, now_ns);
    while (follow_pipes(conn, now_ns))
        ;
    int64_t state_ns = step_state(conn, now_ns);
    return state_ns < suspect_ns ? state_ns : suspect_ns;
}

void client_retry_now(struct link_conn *conn)
{
    int64_t now_ns = link_now_ns(conn->link);
    lock_acquire(&conn->lock);
    bool due = now_ns - conn->last_retry_ns >= ms_to_ns(LINK_RETRY_NOW_PERIOD_MS);
    if (due) {
        conn->last_retry_ns = now_ns;
        conn->retry_now = true;
    }
    lock_release(&conn->lock);
    if (due)
        task_wake(conn->link->task);
}

void client_drop(struct link_conn *conn)
{
    atomic_store(&conn->unwanted, true);
    task_wake(conn->link->task);
}

/* ---- the end ---- */

bool dialing_stop(struct link_conn *conn)
{
    struct nng_link *link = conn->link;
    struct latch pipe_gone;
    latch_init(&pipe_gone);
    lock_acquire(&conn->lock);
    conn->expecting = false;
    conn->pipe_gone = &pipe_gone;
    bool none = conn->pipe_id == 0;
    struct host ends[2] = {conn->ours, conn->theirs};
    lock_release(&conn->lock);
    if (!none)
        end_pipe(conn, ends);
    int64_t deadline_ns = link_now_ns(link) + ms_to_ns(LINK_GONE_WAIT_MS);
    bool gone = none || latch_wait(link->env.sched, &pipe_gone, deadline_ns);
    lock_acquire(&conn->lock);
    conn->pipe_gone = NULL;
    gone = gone || conn->pipe_id == 0;
    lock_release(&conn->lock);
    drop_dialer(conn);
    return gone && !conn->left_pipe;
}
