/*
 * The replica's life and phases.
 *
 *            follow, recover                      answer             carried out
 *   IDLE ──────────────────► WAITING ──► GREETING ──────► SETTLING ──────────────► COPYING
 *    ▲                          ▲ retry_ns   │                │  │                     │
 *    │ a take ended             └────────────┴── lost, refused, cut: again ────────────┘
 *    └── idle                                                    └──► APART ── rejoin ──► WAITING
 *
 * Place: step 7 of a message's way, the receiver's end. In: a source's log as chunks. Out: the same
 * bytes at the same positions in our store, whose dispatcher builds the rest.
 *
 * Invariants:
 *   - One thread at a time writes the store: the one that has the answer to the session's only
 * fetch, or the ha task; the ha task greets anew only when nobody is inside the ended session.
 *   - Each session has a generation; what comes back from an older one is dropped.
 *   - Events reach the owner from the ha task alone, in order.
 *   - After replica_stop() nothing here calls anybody: the gate is shut, and answers that still
 * come find only the memory, which goes with the last of them.
 *
 * Threads: link's (answers, chunks that need no waiting), flusher (reports), ha task (everything
 * that waits for the disk). Failure modes: whatever goes wrong ends the session and is tried again,
 * slowly when only an operator can help; the store's own failures latch it and are met again then.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ha/replica_internal.h"

/* ---- memory ---- */

struct replica *replica_hold(struct replica *replica)
{
    atomic_fetch_add(&replica->refs, 1);
    return replica;
}

void replica_drop(struct replica *replica)
{
    if (atomic_fetch_sub(&replica->refs, 1) != 1)
        return;
    arena_fini(&replica->arena);
    arena_fini(&replica->report_arena);
    lock_fini(&replica->lock);
    free(replica);
}

enum tern_code replica_create(const struct replica_options *options, struct replica **out)
{
    struct replica *replica = calloc(1, sizeof *replica);
    *out = replica;
    if (!replica)
        return TERN_NO_MEMORY;
    replica->options = *options;
    replica->env = options->part.env;
    replica->store = options->part.ha->store;
    replica->tables = &options->part.ha->tables;
    atomic_init(&replica->refs, 1);
    rpc_gate_init(&replica->gate);
    lock_init(&replica->lock, LOCK_HA_REPLICA);
    arena_init(&replica->arena, REPLICA_ARENA_BYTES);
    arena_init(&replica->report_arena, REPLICA_ARENA_BYTES);
    replica->tell_ns = replica->stuck_ns = SCHED_NEVER;
    snprintf(replica->text, sizeof replica->text, "copies from nobody");
    return TERN_OK;
}

void replica_stop(struct replica *replica)
{
    rpc_gate_shut(&replica->gate, replica->env->sched);
    lock_acquire(&replica->lock);
    struct rpc_call *answer = replica->answer;
    struct rpc_peer *peer = replica->peer;
    replica->answer = NULL;
    replica->peer = NULL;
    replica->phase = REPLICA_IDLE;
    replica->generation++;
    lock_release(&replica->lock);
    atomic_store(&replica->attached, false);
    rpc_call_unref(answer);
    rpc_peer_unref(peer);
}

void replica_destroy(struct replica *replica)
{
    if (!replica)
        return;
    ENSURE(!replica->peer && !replica->answer);
    replica_drop(replica);
}

static void wake(struct replica *replica)
{
    replica->options.part.wake(replica->options.part.arg);
}

/* ---- texts ---- */

void replica_set_text(struct replica *replica, const char *fmt, ...)
{
    va_list args;
    lock_acquire(&replica->lock);
    va_start(args, fmt);
    vsnprintf(replica->text, sizeof replica->text, fmt, args);
    va_end(args);
    lock_release(&replica->lock);
}

void replica_complain(struct replica *replica, enum log_level level, const char *event,
                      const char *text)
{
    static struct log_site site;
    int64_t now_ns = clock_mono_ns(replica->env->clock);
    lock_acquire(&replica->lock);
    bool say = strncmp(replica->complaint, text, sizeof replica->complaint - 1) != 0 ||
               now_ns - replica->complained_ns >= ms_to_ns(REPLICA_COMPLAIN_MS);
    if (say) {
        snprintf(replica->complaint, sizeof replica->complaint, "%s", text);
        replica->complained_ns = now_ns;
    }
    lock_release(&replica->lock);
    if (say)
        log_write(replica->env->log, &site, level, event, "cause=\"%s\"", text);
}

/* ---- sessions ---- */

bool replica_enter(struct replica *replica, uint64_t generation)
{
    lock_acquire(&replica->lock);
    bool ok = replica->phase == REPLICA_COPYING && replica->generation == generation;
    if (ok)
        replica->inside++;
    lock_release(&replica->lock);
    return ok;
}

void replica_leave(struct replica *replica)
{
    lock_acquire(&replica->lock);
    ENSURE(replica->inside > 0);
    bool last = --replica->inside == 0;
    bool due = replica->phase != REPLICA_COPYING || replica->answer || replica->has_event;
    lock_release(&replica->lock);
    if (last && due)
        wake(replica);
}

/* Nothing of this generation counts any more. Returns what the caller has to unref. @locks holds */
static struct rpc_call *abandon(struct replica *replica)
{
    struct rpc_call *answer = replica->answer;
    replica->answer = NULL;
    replica->generation++;
    replica->fetch_out = false;
    replica->report_out = false;
    replica->tell_ns = replica->stuck_ns = SCHED_NEVER;
    replica->report_missed = false;
    replica->confirmed_told = false;
    atomic_store(&replica->attached, false);
    return answer;
}

/* @locks holds */
static void set_event(struct replica *replica, enum replica_event event)
{
    replica->has_event = true;
    replica->event = event;
}

/* When to try again. @locks holds */
static void wait_to_retry(struct replica *replica, int64_t delay_ms)
{
    if (delay_ms == 0) {
        delay_ms = replica->backoff_ms ? replica->backoff_ms * 2 : REPLICA_RETRY_MIN_MS;
        if (delay_ms > REPLICA_RETRY_MAX_MS)
            delay_ms = REPLICA_RETRY_MAX_MS;
        replica->backoff_ms = delay_ms;
    }
    replica->phase = REPLICA_WAITING;
    replica->retry_ns = clock_mono_ns(replica->env->clock) + ms_to_ns(delay_ms);
}

/* What happens to a source that goes and comes. */
static bool is_passing(enum tern_code code)
{
    return code == TERN_UNREACHABLE || code == TERN_CONNECTION_LOST || code == TERN_TIMEOUT ||
           code == TERN_SYSTEM_BUSY || code == TERN_CANCELED;
}

void replica_end(struct replica *replica, uint64_t generation, int64_t delay_ms,
                 enum tern_code code, const char *fmt, ...)
{
    char cause[REPLICA_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(cause, sizeof cause, fmt, args);
    va_end(args);
    ENSURE(len >= 0);

    lock_acquire(&replica->lock);
    bool mine = replica->generation == generation;
    bool take = replica->target.purpose == REPLICA_RECOVER;
    struct rpc_call *answer = NULL;
    if (mine) {
        answer = abandon(replica);
        memcpy(replica->text, cause, sizeof replica->text);
        if (code != TERN_SYSTEM_BUSY && replica->taken_ns &&
            replica->greet_ns > replica->taken_ns) {
            replica->taken_ns = 0;
            replica->promises_anew = true;
        }
        set_event(replica, take && code == TERN_STATE ? REPLICA_DETACHED : REPLICA_LOST);
        if (take) {
            replica->phase = REPLICA_IDLE;
            replica->target.purpose = REPLICA_NOTHING;
        } else {
            wait_to_retry(replica, delay_ms);
        }
    }
    lock_release(&replica->lock);
    if (!mine)
        return;
    rpc_call_unref(answer);
    replica_complain(replica, is_passing(code) ? LOG_WARN : LOG_ERROR,
                     take ? "take_failed" : "replica_has_no_source", cause);
    wake(replica);
}

void replica_again(struct replica *replica, uint64_t generation)
{
    lock_acquire(&replica->lock);
    if (replica->generation == generation) {
        replica->phase = REPLICA_WAITING;
        replica->retry_ns = 0;
    }
    lock_release(&replica->lock);
}

/* ---- whom to copy ---- */

static void retarget(struct replica *replica, enum replica_purpose purpose, const char *address,
                     bool force)
{
    struct replica_target next = {.purpose = purpose, .force = force};
    snprintf(next.address, sizeof next.address, "%s", address);
    lock_acquire(&replica->lock);
    struct replica_target *target = &replica->target;
    bool same = target->purpose == purpose && target->force == force &&
                strcmp(target->address, next.address) == 0;
    struct rpc_call *answer = NULL;
    if (!same) {
        if (target->purpose == REPLICA_FOLLOW && replica->phase == REPLICA_COPYING)
            set_event(replica, REPLICA_LOST);
        answer = abandon(replica);
        *target = next;
        replica->backoff_ms = 0;
        replica->retry_ns = 0;
        replica->phase = next.address[0] ? REPLICA_WAITING : REPLICA_IDLE;
        replica->unfit &= purpose != REPLICA_NOTHING;
        snprintf(replica->text, sizeof replica->text, "%s%.135s",
                 next.address[0]             ? "seeks "
                 : purpose == REPLICA_FOLLOW ? "no nameserver lists its master yet"
                                             : "copies from nobody",
                 next.address);
    }
    lock_release(&replica->lock);
    rpc_call_unref(answer);
    if (!same)
        wake(replica);
}

void replica_follow(struct replica *replica, const char *ha_address)
{
    retarget(replica, REPLICA_FOLLOW, ha_address, false);
}

void replica_recover(struct replica *replica, const char *ha_address, bool force)
{
    retarget(replica, REPLICA_RECOVER, ha_address, force);
}

void replica_idle(struct replica *replica)
{
    retarget(replica, REPLICA_NOTHING, "", false);
}

void replica_rejoin(struct replica *replica)
{
    lock_acquire(&replica->lock);
    replica->rejoin = true;
    if (replica->phase == REPLICA_APART) {
        replica->phase = REPLICA_WAITING;
        replica->retry_ns = 0;
    }
    lock_release(&replica->lock);
    wake(replica);
}

/* ---- the ha task ---- */

/* There is no source: what is here counts. */
static void tell_alone(struct replica *replica)
{
    struct store_positions at;
    lock_acquire(&replica->lock);
    bool told = replica->alone && !replica->promises_anew;
    replica->alone = true;
    replica->promises_anew = false;
    lock_release(&replica->lock);
    if (told)
        return;
    store_positions(replica->store, &at);
    replica->options.on_confirmed(replica->options.part.arg, at.whole, false);
    replica->options.on_progress_seen(replica->options.part.arg, UINT64_MAX);
}

static void tell_event(struct replica *replica)
{
    lock_acquire(&replica->lock);
    enum replica_event event = replica->event;
    replica->has_event = false;
    lock_release(&replica->lock);
    if (event != REPLICA_SETTLED && event != REPLICA_CAUGHT_UP)
        tell_alone(replica);
    replica->options.on_event(replica->options.part.arg, event,
                              replica->source_known ? &replica->source : NULL);
}

enum work { WORK_NONE, WORK_EVENT, WORK_ALONE, WORK_GREET, WORK_SETTLE, WORK_COPY, WORK_TELL };

/* @locks holds:HA_REPLICA */
static int64_t tell_ns(const struct replica *replica)
{
    return replica->stuck_ns < replica->tell_ns ? replica->stuck_ns : replica->tell_ns;
}

/* What is to be done now; *next_ns: when to come again if there is nothing. */
static enum work choose(struct replica *replica, int64_t now_ns, struct rpc_call **answer,
                        uint64_t *generation, int64_t *next_ns)
{
    enum work work = WORK_NONE;
    *next_ns = SCHED_NEVER;
    lock_acquire(&replica->lock);
    *generation = replica->generation;
    if (replica->phase == REPLICA_COPYING)
        *next_ns = tell_ns(replica);
    if (replica->inside > 0) {
        /* The session's threads are at work; the last one to leave wakes us. */
    } else if (replica->has_event) {
        work = WORK_EVENT;
    } else if (replica->phase == REPLICA_WAITING) {
        *next_ns = replica->retry_ns;
        work = replica->retry_ns <= now_ns ? WORK_GREET : WORK_NONE;
    } else if (replica->answer) {
        *answer = replica->answer;
        replica->answer = NULL;
        work = replica->phase == REPLICA_SETTLING ? WORK_SETTLE : WORK_COPY;
    } else if (replica->phase == REPLICA_IDLE && replica->target.purpose == REPLICA_FOLLOW &&
               !replica->alone) {
        work = WORK_ALONE;
    }
    if (work == WORK_NONE && replica->phase == REPLICA_COPYING && *next_ns <= now_ns) {
        work = WORK_TELL;
        if (replica->tell_ns <= now_ns)
            replica->tell_ns = SCHED_NEVER;
        if (replica->stuck_ns <= now_ns)
            replica->stuck_ns = SCHED_NEVER;
        *next_ns = tell_ns(replica);
    }
    lock_release(&replica->lock);
    return work;
}

static void do_work(struct replica *replica, enum work work, struct rpc_call *answer,
                    uint64_t generation)
{
    switch (work) {
    case WORK_EVENT:
        tell_event(replica);
        break;
    case WORK_ALONE:
        tell_alone(replica);
        break;
    case WORK_GREET:
        replica_greet(replica);
        break;
    case WORK_SETTLE:
        replica_settle(replica, answer, generation);
        break;
    case WORK_COPY:
        replica_copy_on(replica, answer, generation);
        break;
    case WORK_TELL:
        replica_report(replica, true);
        break;
    case WORK_NONE:
        break;
    }
}

int64_t replica_step(struct replica *replica, int64_t now_ns)
{
    int64_t next_ns = SCHED_NEVER;
    if (!rpc_gate_enter(&replica->gate))
        return SCHED_NEVER;
    for (;;) {
        struct rpc_call *answer = NULL;
        uint64_t generation;
        enum work work = choose(replica, now_ns, &answer, &generation, &next_ns);
        if (work == WORK_NONE)
            break;
        do_work(replica, work, answer, generation);
    }
    if (atomic_load(&replica->change_due))
        replica_report(replica, false);
    rpc_gate_leave(&replica->gate, replica->env->sched);
    return next_ns;
}

/* ---- asked ---- */

bool replica_agrees_with(struct replica *replica, uint64_t number)
{
    struct ha_epoch last;
    lock_acquire(&replica->lock);
    bool agrees = replica->agrees_with >= number;
    lock_release(&replica->lock);
    return agrees || (epochs_last(replica->options.part.epochs, &last) && last.number >= number);
}

bool replica_readable(struct replica *replica, char *text, size_t size)
{
    lock_acquire(&replica->lock);
    bool apart = replica->phase == REPLICA_APART;
    bool readable = !replica->unfit && !apart;
    if (apart)
        snprintf(text, size,
                 "its log has no epoch in common with the master at %.135s: mqadmin rejoin saves "
                 "it aside and copies afresh",
                 replica->target.address);
    else if (!readable)
        snprintf(text, size, "its log is being brought in line with %.135s",
                 replica->target.address);
    lock_release(&replica->lock);
    return readable;
}

void replica_master_takes(struct replica *replica)
{
    lock_acquire(&replica->lock);
    replica->taken_ns = clock_mono_ns(replica->env->clock);
    lock_release(&replica->lock);
}

void replica_acknowledged(struct replica *replica, int64_t *confirmed, bool *settled,
                          uint64_t *progress_seen)
{
    struct store_positions at;
    store_positions(replica->store, &at);
    lock_acquire(&replica->lock);
    *settled = !replica->alone;
    *confirmed = replica->alone ? at.whole : replica->confirmed;
    bool decides = replica->alone && !replica->taken_ns;
    *progress_seen = decides ? UINT64_MAX : replica->given.progress;
    lock_release(&replica->lock);
}

void replica_status(struct replica *replica, struct replica_status *out)
{
    int64_t now_ns = clock_mono_ns(replica->env->clock);
    lock_acquire(&replica->lock);
    memcpy(out->text, replica->text, sizeof out->text);
    out->source_known = replica->source_known;
    out->source = replica->source;
    out->cut_bytes = replica->cut_bytes;
    out->attached = replica->phase == REPLICA_COPYING;
    int64_t took_ns = now_ns - replica->window_ns;
    if (took_ns > ms_to_ns(2000)) /* a window that nothing has closed */
        out->bytes_per_second = (double)replica->window_bytes * 1e9 / (double)took_ns;
    else
        out->bytes_per_second = replica->rate;
    lock_release(&replica->lock);
}
