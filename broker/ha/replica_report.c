/*
 * Reports: what moved here while a fetch is parked at the source. One is under way at a time; what
 * moves meanwhile goes with the next.
 *
 *   flushed moved, the source counts it ──► at once, from the flusher
 *   progress made here ───────────────────► at once, from the ha task
 *   dispatched, flushed otherwise ────────► every REPLICA_TELL_MS, from the ha task
 *
 * While no fetch is under way nothing is reported: the next one carries the positions.
 *
 * Threads: whoever claims report_out builds the report, in the memory that goes with it. Failure
 * modes: a report that fails ends the session; changes that the source could not take are sent
 * again a little later.
 */
#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ha/replica_internal.h"

/* A report in the making. */
struct report {
    uint64_t generation;
    struct replica_session session;
    struct ha_held held, given;
    int64_t told_flushed, told_dispatched;
    bool stuck;
    Tern__Wire__HaPosition position;
    Tern__Wire__HaTables *tables;
};

/* The one report of this session is ours to make; we are inside then. */
static bool claim(struct replica *replica, struct report *report)
{
    lock_acquire(&replica->lock);
    bool ok = replica->phase == REPLICA_COPYING && !replica->session.recover;
    if (ok && replica->report_out) {
        replica->report_missed = true;
        ok = false;
    }
    if (ok) {
        replica->report_missed = false;
        replica->report_out = true;
        replica->inside++;
        *report = (struct report){.generation = replica->generation,
                                  .session = replica->session,
                                  .held = replica->held,
                                  .given = replica->given,
                                  .told_flushed = replica->told_flushed,
                                  .told_dispatched = replica->told_dispatched,
                                  .stuck = replica->stuck_ns != SCHED_NEVER};
    }
    lock_release(&replica->lock);
    return ok;
}

/* Looks again in REPLICA_TELL_MS. @locks holds */
static void look_again(struct replica *replica)
{
    if (replica->tell_ns == SCHED_NEVER)
        replica->tell_ns = clock_mono_ns(replica->env->clock) + ms_to_ns(REPLICA_TELL_MS);
}

/* Returns whether another report was wanted meanwhile. */
static bool unclaim(struct replica *replica, const struct report *report, bool again)
{
    lock_acquire(&replica->lock);
    bool mine = replica->generation == report->generation;
    bool missed = mine && replica->report_missed;
    if (mine) {
        replica->report_out = false;
        if (again)
            look_again(replica);
    }
    lock_release(&replica->lock);
    if (mine && again)
        replica->options.part.wake(replica->options.part.arg);
    return missed;
}

/* Progress could not be given, though all else is well: the ha task tries again later. */
static void note_stuck(struct replica *replica, uint64_t generation)
{
    lock_acquire(&replica->lock);
    if (replica->generation == generation)
        replica->stuck_ns = clock_mono_ns(replica->env->clock) + ms_to_ns(REPLICA_STUCK_MS);
    lock_release(&replica->lock);
    replica->options.part.wake(replica->options.part.arg);
}

static void read_positions(struct replica *replica, struct report *report)
{
    struct store_positions at;
    char text[REPLICA_TEXT_BYTES];
    store_positions(replica->store, &at);
    tern__wire__ha_position__init(&report->position);
    report->position.appended = at.appended;
    report->position.flushed = at.flushed < at.appended ? at.flushed : at.appended;
    report->position.dispatched = at.dispatched < at.appended ? at.dispatched : at.appended;
    report->position.readable =
        replica->options.part.ha->readable && replica_readable(replica, text, sizeof text);
}

/* Whether there is news that cannot wait for the next fetch. */
static bool is_due(const struct report *report, bool fetch_out, bool tell)
{
    bool flushed = report->position.flushed > report->told_flushed;
    bool dispatched = report->position.dispatched > report->told_dispatched;
    if (report->tables)
        return true;
    return fetch_out &&
           ((flushed && report->session.sync_flush) || (tell && (flushed || dispatched)));
}

/* @thread link's */
static void on_reported(struct rpc_call *call, void *arg);

static void send(struct replica *replica, const struct report *report)
{
    Tern__Wire__HaReportRequest body = TERN__WIRE__HA_REPORT_REQUEST__INIT;
    Tern__Wire__HaPosition position = report->position;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;

    body.session = report->session.id;
    body.position = &position;
    body.progress_seen = report->held.progress;
    body.tables = report->tables;
    request.body_case = TERN__WIRE__REQUEST__BODY_HA_REPORT;
    request.ha_report = &body;
    enum tern_code code = rpc_call_create(replica->peer, 0, &call);
    if (code != TERN_OK) {
        if (report->tables)
            note_stuck(replica, report->generation);
        lock_acquire(&replica->lock);
        if (replica->generation == report->generation) { /* it was not told after all */
            replica->told_flushed = report->told_flushed;
            replica->told_dispatched = report->told_dispatched;
        }
        lock_release(&replica->lock);
        (void)unclaim(replica, report, true);
        return;
    }
    call->user = (void *)(uintptr_t)report->generation;
    rpc_call_start(call, &request, 0, REPLICA_SILENCE_MS, on_reported, replica_hold(replica));
}

/* What is behind the end still moves: look again. */
static bool moves_on(const struct report *report)
{
    return report->position.flushed < report->position.appended ||
           report->position.dispatched < report->position.appended;
}

/* Returns whether to look once more. */
static bool report_once(struct replica *replica, bool tell)
{
    struct report report;
    bool missed = false;
    if (!claim(replica, &report))
        return false;
    const struct ha_tables *ops = replica->tables;
    atomic_store(&replica->change_due, false);
    read_positions(replica, &report);
    if (!report.stuck && ops->differs(ops->arg, &report.given, true)) {
        arena_reset(&replica->report_arena);
        report.tables = ops->fill(ops->arg, &report.given, true, &replica->report_arena);
        if (!report.tables) /* no memory now */
            note_stuck(replica, report.generation);
    }
    lock_acquire(&replica->lock);
    bool mine = replica->generation == report.generation;
    bool due = mine && is_due(&report, replica->fetch_out, tell);
    if (due) {
        replica->report_gives = report.tables;
        replica->told_flushed = report.position.flushed;
        replica->told_dispatched = report.position.dispatched;
        if (tell && moves_on(&report))
            look_again(replica);
    }
    lock_release(&replica->lock);
    if (due)
        send(replica, &report);
    else
        missed = unclaim(replica, &report, tell && moves_on(&report));
    replica_leave(replica);
    return missed;
}

void replica_report(struct replica *replica, bool tell)
{
    while (report_once(replica, tell))
        ;
}

/* ---- answers ---- */

/* The source has our changes up to `seen`; false: that cannot be. *stuck: it was given some, and
 * could not take them. */
static bool take_seen(struct replica *replica, uint64_t generation, uint64_t seen, bool gave,
                      bool *stuck)
{
    const struct ha_tables *ops = replica->tables;
    struct ha_held own;
    ops->own(ops->arg, &own);
    if (seen > own.progress)
        return false;
    lock_acquire(&replica->lock);
    bool rose = replica->generation == generation && seen > replica->given.progress;
    if (rose)
        replica->given.progress = seen;
    struct ha_held given = replica->given;
    lock_release(&replica->lock);
    if (rose)
        replica->options.on_progress_seen(replica->options.part.arg, seen);
    *stuck = gave && !rose && ops->differs(ops->arg, &given, true);
    return true;
}

/* A failure that the source answers with, its tables', not the session's. */
static bool is_about_tables(const struct rpc_call *call, enum tern_code code)
{
    return call->status == TERN_OK && code != TERN_INVALID;
}

static void work_inside(struct replica *replica, struct rpc_call *call, uint64_t generation)
{
    enum tern_code code = rpc_call_result(call);
    bool stuck = false;
    lock_acquire(&replica->lock);
    bool gave = replica->report_gives;
    if (replica->generation == generation)
        replica->report_out = false;
    lock_release(&replica->lock);
    if (code != TERN_OK && is_about_tables(call, code)) {
        replica_complain(replica, LOG_WARN, "progress_not_taken", error_text(&call->error, code));
        note_stuck(replica, generation);
        return;
    }
    if (code != TERN_OK) {
        if (code == TERN_INVALID) /* the session is over there */
            code = TERN_CONNECTION_LOST;
        replica_end(replica, generation, 0, code, "%s", error_text(&call->error, code));
        return;
    }
    if (call->response->body_case != TERN__WIRE__RESPONSE__BODY_HA_REPORT ||
        !take_seen(replica, generation, call->response->ha_report->progress_seen, gave, &stuck)) {
        replica_end(replica, generation, REPLICA_RETRY_SLOW_MS, TERN_PROTOCOL,
                    "the answer of %s to a report does not fit", rpc_peer_address(replica->peer));
        return;
    }
    if (stuck)
        note_stuck(replica, generation);
    else
        replica_report(replica, false);
}

static void on_reported(struct rpc_call *call, void *arg)
{
    struct replica *replica = arg;
    uint64_t generation = (uint64_t)(uintptr_t)call->user;
    if (rpc_gate_enter(&replica->gate)) {
        if (replica_enter(replica, generation)) {
            work_inside(replica, call, generation);
            replica_leave(replica);
        }
        rpc_gate_leave(&replica->gate, replica->env->sched);
    }
    rpc_call_unref(call);
    replica_drop(replica);
}

/* ---- told ---- */

void replica_on_flushed(struct replica *replica, int64_t flushed)
{
    if (!atomic_load_explicit(&replica->attached, memory_order_relaxed))
        return;
    if (!rpc_gate_enter(&replica->gate))
        return;
    lock_acquire(&replica->lock);
    bool due = replica->session.sync_flush && flushed > replica->told_flushed && replica->fetch_out;
    lock_release(&replica->lock);
    if (due)
        replica_report(replica, false);
    rpc_gate_leave(&replica->gate, replica->env->sched);
}

void replica_on_change(struct replica *replica)
{
    if (!atomic_load_explicit(&replica->attached, memory_order_relaxed) ||
        atomic_exchange(&replica->change_due, true))
        return;
    if (!rpc_gate_enter(&replica->gate))
        return;
    replica->options.part.wake(replica->options.part.arg);
    rpc_gate_leave(&replica->gate, replica->env->sched);
}
