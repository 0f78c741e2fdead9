/*
 * The flusher.
 *
 * Place: step 4 of a message's way. The append token's holder wakes it; it syncs the segments
 * between the flushed position and the end, then moves the flushed position and tells the owner,
 * who answers the sends that waited for it. One sync serves all records appended before it began:
 * group commit without a queue.
 *
 *   sync:   appended ──► step: flush, again while behind ──► sleep
 *   async:  first append after a flush ──► step: sleep the interval ──► flush ──► sleep without
 * deadline
 *
 * Invariants:
 *   - flushed moves to an end that was read before the syncs began, and only after all of them
 * succeeded.
 *   - A segment's directory entry is synced before anything in it counts.
 *   - After a failed sync nothing is ever synced or counted again: the kernel may have dropped the
 * pages, and a second sync would succeed without them. The store latches.
 *   - The flush mark never says more than what was synced.
 *
 * Threads: the task, or who holds its turn; positions are read by any. Who waits in flusher_flush()
 * makes the task flush at once.
 * Failure modes: above; a flush mark that cannot be written is reported once and costs only
 * evidence at the next recovery.
 */
#include "broker/store/flusher.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/sched.h"
#include "broker/store/turn.h"

/* Somebody who waits for what is appended now; lives on the waiter's stack. */
struct flush_wait {
    int64_t target;
    enum tern_code code;
    struct latch done;
    struct flush_wait *next;
};

struct flusher {
    const struct env *env;
    struct flusher_options options;
    struct task *task;
    struct turn turn;
    _Atomic bool sync;
    _Atomic bool demanded; /* somebody waits in flusher_flush() */
    struct lock lock;      /* STORE_APPEND, never taken with the appender's: the list of those */
    struct flush_wait *waits;
    _Atomic bool armed; /* something was appended since the last flush began */
    _Atomic int64_t waiting_since_ms;
    _Atomic int64_t physic_ms;

    /* the task's own (the caller's of flusher_finish() later) */
    int64_t due_ns;       /* async: when to flush what is armed; 0: not armed yet */
    uint32_t dirs_synced; /* log->dir_changes that the last directory sync covered */
    bool failed;
    bool mark_failed;
    struct flusher_stats stats;
};

/* Syncs one segment. */
static enum tern_code sync_segment(struct flusher *f, struct segment *segment)
{
    int64_t began_ns = clock_mono_ns(f->env->clock);
    enum tern_code code = file_sync(segment->file);
    histogram_add(&f->stats.flush_ns, clock_mono_ns(f->env->clock) - began_ns);
    return code;
}

/* Syncs everything in [from, end), directory entries included. */
static enum tern_code sync_range(struct flusher *f, int64_t from, int64_t end,
                                 struct tern_error *err)
{
    struct segments *set = &f->options.log->segments;
    int64_t first = from / set->bytes * set->bytes;
    for (int64_t base = first; base < end; base += set->bytes) {
        struct segment *segment = segments_find(set, base);
        ENSURE(segment != NULL); /* only flushed segments expire */
        enum tern_code code = sync_segment(f, segment);
        segment_unref(segment);
        if (code)
            return error_set_errno(err, code, errno, "%s/%020" PRId64 ": cannot sync", set->dir,
                                   base);
    }
    uint32_t dirs = atomic_load_explicit(&f->options.log->dir_changes, memory_order_acquire);
    if (dirs == f->dirs_synced)
        return TERN_OK;
    enum tern_code code = fs_sync_dir(f->env->fs, set->dir);
    if (code)
        return error_set_errno(err, code, errno, "%s: cannot sync", set->dir);
    f->dirs_synced = dirs;
    return TERN_OK;
}

static void note_mark(struct flusher *f, int64_t flushed)
{
    enum tern_code code = flush_mark_set(f->options.mark, flushed);
    if (code && !f->mark_failed) {
        f->mark_failed = true;
        log_warn(f->env->log, "store.flush_mark_unwritten", "code=%s", tern_code_name(code));
    }
}

/* One group commit. The time is read before the end: see commit_log_internal.h. */
static enum tern_code flush_once(struct flusher *f, struct tern_error *err)
{
    struct commit_log *log = f->options.log;
    (void)atomic_exchange(&f->armed, false);
    int64_t store_ms = atomic_load_explicit(&log->last_store_ms, memory_order_acquire);
    int64_t end = commit_log_end(log);
    int64_t flushed = commit_log_flushed(log);
    f->due_ns = 0;
    if (end == flushed)
        return TERN_OK;
    enum tern_code code = sync_range(f, flushed, end, err);
    if (code) {
        f->failed = true;
        gate_latch(f->options.gate, code, err->text);
        return code;
    }
    atomic_store_explicit(&log->flushed, end, memory_order_release);
    atomic_store(&f->physic_ms, store_ms);
    counter_add(&f->stats.flushes, 1);
    if (!atomic_load(&f->armed))
        atomic_store(&f->waiting_since_ms, 0);
    note_mark(f, end);
    const struct store_observer *observer = &f->options.gate->observer;
    if (observer->on_flushed)
        observer->on_flushed(observer->arg, end, commit_log_end(log) > end);
    f->options.on_flush(f->options.arg);
    return TERN_OK;
}

/* Answers those whose target is flushed, or all when it failed. @locks none */
static void answer_waits(struct flusher *f, enum tern_code code)
{
    struct flush_wait *done = NULL;
    int64_t flushed = commit_log_flushed(f->options.log);
    lock_acquire(&f->lock);
    struct flush_wait **at = &f->waits;
    while (*at) {
        struct flush_wait *wait = *at;
        if (!code && wait->target > flushed) {
            at = &wait->next;
            continue;
        }
        *at = wait->next;
        wait->next = done;
        done = wait;
    }
    lock_release(&f->lock);
    while (done) {
        struct flush_wait *next = done->next; /* the waiter's memory goes with the latch */
        done->code = code;
        latch_set(f->env->sched, &done->done);
        done = next;
    }
}

/* What is to be done now. @thread who has the turn */
static int64_t work(struct flusher *f, int64_t now_ns)
{
    bool demanded = atomic_exchange(&f->demanded, false);
    if (f->failed) {
        answer_waits(f, TERN_IO);
        return SCHED_NEVER;
    }
    if (!demanded && !atomic_load(&f->armed))
        return SCHED_NEVER;
    if (!demanded && !atomic_load(&f->sync)) {
        if (f->due_ns == 0)
            f->due_ns = now_ns + ms_to_ns(f->options.interval_ms);
        if (now_ns < f->due_ns)
            return f->due_ns;
    }
    struct tern_error err;
    enum tern_code code = flush_once(f, &err);
    answer_waits(f, code);
    return !code && atomic_load(&f->armed) ? now_ns : SCHED_NEVER;
}

/* @thread the task's */
static int64_t flusher_step(void *arg, int64_t now_ns)
{
    struct flusher *f = arg;
    if (!turn_try(&f->turn))
        return SCHED_NEVER; /* its holder wakes us */
    int64_t next_ns = work(f, now_ns);
    turn_release(&f->turn);
    return next_ns;
}

enum tern_code flusher_flush(struct flusher *f, struct tern_error *err)
{
    struct flush_wait wait = {.target = commit_log_end(f->options.log)};
    if (commit_log_flushed(f->options.log) >= wait.target)
        return TERN_OK;
    latch_init(&wait.done);
    lock_acquire(&f->lock);
    wait.next = f->waits;
    f->waits = &wait;
    lock_release(&f->lock);
    atomic_store(&f->demanded, true);
    task_wake(f->task);
    ENSURE(latch_wait(f->env->sched, &wait.done, SCHED_NEVER));
    return wait.code ? error_set(err, wait.code, "%s: a sync failed", f->options.log->segments.dir)
                     : TERN_OK;
}

void flusher_set_sync(struct flusher *f, bool on)
{
    if (!atomic_exchange(&f->sync, on) && on)
        task_wake(f->task);
}

void flusher_hold(struct flusher *f)
{
    turn_wait(&f->turn, f->env);
}

void flusher_let_go(struct flusher *f)
{
    turn_release(&f->turn);
    task_wake(f->task);
}

enum tern_code flusher_flush_held(struct flusher *f, struct tern_error *err)
{
    struct tern_error local;
    if (f->failed)
        return error_set(err, TERN_IO, "an earlier sync of the log failed");
    enum tern_code code = flush_once(f, err ? err : &local);
    answer_waits(f, code);
    return code;
}

void flusher_cut(struct flusher *f, int64_t last_store_ms)
{
    if (atomic_load(&f->physic_ms) > last_store_ms)
        atomic_store(&f->physic_ms, last_store_ms);
}

void flusher_appended(struct flusher *f)
{
    /* Exchanged on both sides: whoever clears `armed` has then seen every end published before. */
    if (atomic_exchange(&f->armed, true))
        return;
    int64_t none = 0;
    atomic_compare_exchange_strong(&f->waiting_since_ms, &none, clock_wall_ms(f->env->clock));
    task_wake(f->task);
}

int64_t flusher_physic_ms(const struct flusher *f)
{
    return atomic_load(&f->physic_ms);
}

int64_t flusher_waiting_since_ms(const struct flusher *f)
{
    return commit_log_flushed(f->options.log) == commit_log_end(f->options.log)
               ? 0
               : atomic_load(&f->waiting_since_ms);
}

const struct flusher_stats *flusher_stats(const struct flusher *f)
{
    return &f->stats;
}

enum tern_code flusher_create(const struct env *env, const struct flusher_options *options,
                              struct flusher **out)
{
    *out = NULL;
    struct flusher *f = calloc(1, sizeof *f);
    if (!f)
        return TERN_NO_MEMORY;
    f->env = env;
    f->options = *options;
    lock_init(&f->lock, LOCK_STORE_APPEND);
    atomic_init(&f->sync, options->sync);
    f->dirs_synced = atomic_load(&options->log->dir_changes);
    atomic_init(&f->physic_ms, atomic_load(&options->log->last_store_ms));
    *out = f; /* the first step may come before task_start() returns */
    enum tern_code code = task_start(env->sched, "store-flush", flusher_step, f, &f->task);
    if (code) {
        flusher_destroy(f);
        *out = NULL;
    }
    return code;
}

enum tern_code flusher_finish(struct flusher *f, struct tern_error *err)
{
    task_stop(f->task);
    f->task = NULL;
    if (f->failed)
        return error_set(err, TERN_IO, "an earlier sync of the log failed");
    struct tern_error local;
    return flush_once(f, err ? err : &local);
}

void flusher_destroy(struct flusher *f)
{
    if (!f)
        return;
    task_stop(f->task);
    lock_fini(&f->lock);
    free(f);
}
