/*
 * The queue flusher.
 *
 * Place: behind the dispatcher. Consume queues are derived: what is lost of them the log brings
 * back, so they are written lazily (every interval_ms) and synced rarely (every minute), and never
 * on the flusher's task, whose latency producers feel. The checkpoint records how far that has
 * come; it is written after the sync that makes it true, with times that were taken before it. The
 * index is treated alike, so that a crash costs at most what came since the last round.
 *
 *   flushed ──wake──► write tails ── interval ──► write tails … ── 60 s ──► sync queues and index,
 *                          └── every 5 s: sync the flush mark               write the checkpoint
 *
 *   nothing new and all durable: sleep without deadline
 *
 * Threads: the task, or who holds its turn; finish() in the closing thread afterwards.
 * Failure modes: a full disk closes the gate for appends until a later round gets through (the
 * tails stay in memory); any other failed write, and every failed sync, latches the store, since a
 * queue that cannot be written would fall behind the log for good.
 */
#include "broker/store/queue_flusher.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/sched.h"
#include "broker/store/dispatcher.h"
#include "broker/store/index_service.h"
#include "broker/store/queue_table.h"
#include "broker/store/turn.h"

struct queue_flusher {
    const struct env *env;
    struct queue_flusher_options options;
    char checkpoint_path[FS_PATH_BYTES];
    struct task *task;
    struct turn turn;
    _Atomic bool idle; /* asleep for longer than interval_ms: new work must wake it */

    /* the task's own */
    int64_t next_ns;     /* of the next writing of tails; 0: at once */
    int64_t thorough_ns; /* of the next thorough round */
    int64_t mark_ns;     /* of the next sync of the mark */
    int64_t written_pos; /* dispatched position whose tails are written */
    int64_t durable_pos; /* whose queues are synced */
    int64_t mark_pos;    /* flushed position when the mark was synced */
    bool failed;
};

/* A store time such that the units of all records before it are in the queues now. */
static int64_t dispatched_ms(struct queue_flusher *q)
{
    int64_t last_ms = atomic_load_explicit(&q->options.log->last_store_ms, memory_order_acquire);
    int64_t end = commit_log_whole(q->options.log);
    int64_t pending_ms = dispatcher_oldest_pending_ms(q->options.dispatcher);
    if (dispatcher_position(q->options.dispatcher) >= end)
        return last_ms;
    return pending_ms > 0 ? pending_ms - 1 : q->options.checkpoint.logics_ms;
}

static enum tern_code sync_mark(struct queue_flusher *q, struct tern_error *err)
{
    int64_t flushed = commit_log_flushed(q->options.log);
    enum tern_code code = flush_mark_sync(q->options.mark);
    if (code)
        return error_set_errno(err, code, errno, "%s/ternmq/flushed: cannot sync", q->options.root);
    q->mark_pos = flushed;
    return TERN_OK;
}

/* The index, to the end or while it goes on; raises what the checkpoint may say. */
static enum tern_code sync_index(struct queue_flusher *q, bool last, struct tern_error *err)
{
    struct index_service *index = q->options.index;
    int64_t *noted_ms = &q->options.checkpoint.index_ms;
    int64_t safe_ms = 0;
    if (!index)
        return TERN_OK;
    enum tern_code code = last ? index_service_finish(index, &safe_ms, err)
                               : index_service_sync(index, *noted_ms, &safe_ms, err);
    if (!code && safe_ms > *noted_ms)
        *noted_ms = safe_ms;
    return code;
}

/*
 * Queues, index and checkpoint to the disk; then everything dispatched until this began is durably
 * indexed, too, and the flush mark's next writing says so.
 */
static enum tern_code flush_durable(struct queue_flusher *q, bool last, struct tern_error *err)
{
    struct checkpoint *checkpoint = &q->options.checkpoint;
    int64_t physic_ms = flusher_physic_ms(q->options.flusher);
    int64_t logics_ms = dispatched_ms(q);
    int64_t position = dispatcher_position(q->options.dispatcher);
    enum tern_code code = queue_table_flush(q->options.queues, true, err);
    if (!code)
        code = sync_index(q, last, err);
    if (code)
        return code;
    if (physic_ms > checkpoint->physic_ms)
        checkpoint->physic_ms = physic_ms;
    if (logics_ms > checkpoint->logics_ms)
        checkpoint->logics_ms = logics_ms;
    code = checkpoint_write(q->env, q->checkpoint_path, checkpoint, err);
    if (code)
        return code;
    if (q->options.index)
        flush_mark_set_indexed(q->options.mark, position);
    q->written_pos = position;
    q->durable_pos = position;
    return TERN_OK;
}

static enum tern_code write_tails(struct queue_flusher *q, struct tern_error *err)
{
    int64_t position = dispatcher_position(q->options.dispatcher);
    if (position == q->written_pos)
        return TERN_OK;
    enum tern_code code = queue_table_flush(q->options.queues, false, err);
    if (!code)
        q->written_pos = position;
    return code;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When there is something to do again. */
static int64_t next_deadline(const struct queue_flusher *q)
{
    int64_t at = SCHED_NEVER;
    int64_t position = dispatcher_position(q->options.dispatcher);
    if (position != q->written_pos || position < commit_log_whole(q->options.log))
        at = earlier(at, q->next_ns);
    if (position != q->durable_pos)
        at = earlier(at, q->thorough_ns);
    if (commit_log_flushed(q->options.log) != q->mark_pos)
        at = earlier(at, q->mark_ns);
    return at;
}

/* What is due at this time, in the order of importance. */
static enum tern_code do_round(struct queue_flusher *q, int64_t now_ns, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    bool thorough =
        now_ns >= q->thorough_ns && dispatcher_position(q->options.dispatcher) != q->durable_pos;
    if (thorough)
        code = flush_durable(q, false, err);
    else if (now_ns >= q->next_ns)
        code = write_tails(q, err);
    if (thorough || now_ns >= q->next_ns)
        atomic_store(&q->options.gate->queues_full, code == TERN_NO_SPACE);
    if (!code && now_ns >= q->mark_ns && commit_log_flushed(q->options.log) != q->mark_pos)
        code = sync_mark(q, err);
    if (now_ns >= q->thorough_ns && code != TERN_NO_SPACE)
        q->thorough_ns = now_ns + ms_to_ns(QUEUE_FLUSH_THOROUGH_MS);
    if (now_ns >= q->mark_ns)
        q->mark_ns = now_ns + ms_to_ns(FLUSH_MARK_SYNC_MS);
    if (now_ns >= q->next_ns)
        q->next_ns = now_ns + ms_to_ns(q->options.interval_ms);
    return code;
}

/* Sleeps until something is due; work that comes while it sleeps long has to wake it. */
static int64_t settle(struct queue_flusher *q, int64_t now_ns)
{
    int64_t soon_ns = now_ns + ms_to_ns(q->options.interval_ms);
    int64_t at = next_deadline(q);
    if (at <= soon_ns)
        return at;
    atomic_store(&q->idle, true);
    at = next_deadline(q); /* again: what came before the flag was set did not wake us */
    if (at <= soon_ns)
        atomic_store(&q->idle, false);
    return at;
}

/* What is to be done now. @thread who has the turn */
static int64_t work(struct queue_flusher *q, int64_t now_ns)
{
    atomic_store(&q->idle, false);
    if (q->failed)
        return SCHED_NEVER;
    struct tern_error err = {TERN_OK, ""};
    enum tern_code code = do_round(q, now_ns, &err);
    if (code && code != TERN_NO_SPACE) {
        q->failed = true;
        gate_latch(q->options.gate, code, error_text(&err, code));
        return SCHED_NEVER;
    }
    return code ? q->next_ns : settle(q, now_ns);
}

/* @thread the task's */
static int64_t queue_flusher_step(void *arg, int64_t now_ns)
{
    struct queue_flusher *q = arg;
    if (!turn_try(&q->turn))
        return SCHED_NEVER; /* its holder wakes us */
    int64_t next_ns = work(q, now_ns);
    turn_release(&q->turn);
    return next_ns;
}

void queue_flusher_hold(struct queue_flusher *q)
{
    turn_wait(&q->turn, q->env);
}

void queue_flusher_let_go(struct queue_flusher *q)
{
    turn_release(&q->turn);
    task_wake(q->task);
}

enum tern_code queue_flusher_lower(struct queue_flusher *q, const struct checkpoint *most,
                                   struct tern_error *err)
{
    struct checkpoint *checkpoint = &q->options.checkpoint;
    checkpoint->physic_ms = earlier(checkpoint->physic_ms, most->physic_ms);
    checkpoint->logics_ms = earlier(checkpoint->logics_ms, most->logics_ms);
    checkpoint->index_ms = earlier(checkpoint->index_ms, most->index_ms);
    q->written_pos = q->durable_pos = q->mark_pos = -1;
    return checkpoint_write(q->env, q->checkpoint_path, checkpoint, err);
}

void queue_flusher_wake(struct queue_flusher *q)
{
    if (atomic_exchange(&q->idle, false))
        task_wake(q->task);
}

enum tern_code queue_flusher_create(const struct env *env,
                                    const struct queue_flusher_options *options,
                                    struct queue_flusher **out)
{
    *out = NULL;
    struct queue_flusher *q = calloc(1, sizeof *q);
    if (!q)
        return TERN_NO_MEMORY;
    q->env = env;
    q->options = *options;
    int64_t now_ns = clock_mono_ns(env->clock);
    q->thorough_ns = now_ns + ms_to_ns(QUEUE_FLUSH_THOROUGH_MS);
    q->mark_ns = now_ns + ms_to_ns(FLUSH_MARK_SYNC_MS);
    q->written_pos = options->durable ? dispatcher_position(options->dispatcher) : -1;
    q->durable_pos = q->written_pos;
    q->mark_pos = commit_log_flushed(options->log);
    enum tern_code code = fs_join(q->checkpoint_path, options->root, "checkpoint");
    *out = q; /* the first step may come before task_start() returns */
    if (!code)
        code = task_start(env->sched, "store-qflush", queue_flusher_step, q, &q->task);
    if (code) {
        queue_flusher_destroy(q);
        *out = NULL;
    }
    return code;
}

enum tern_code queue_flusher_finish(struct queue_flusher *q, struct tern_error *err)
{
    task_stop(q->task);
    q->task = NULL;
    if (q->failed)
        return error_set(err, TERN_IO, "an earlier write of queues or checkpoint failed");
    enum tern_code code = flush_durable(q, true, err);
    if (!code && flush_mark_set(q->options.mark, commit_log_flushed(q->options.log)))
        code = error_set_errno(err, TERN_IO, errno, "%s/ternmq/flushed: cannot write",
                               q->options.root);
    if (!code)
        code = sync_mark(q, err);
    return code;
}

void queue_flusher_destroy(struct queue_flusher *q)
{
    if (!q)
        return;
    task_stop(q->task);
    free(q);
}
