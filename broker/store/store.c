/*
 * The store put together: opening, closing, and handing calls to the part that does them.
 *
 * Place: what the broker holds. Opening, in this order, each step needing those before:
 *
 *   folders ─► lock ─► abort mark? checkpoint, flush mark ─► segments ─► recovery: where the log
 * ends ─► queues, index brought in line ─► replay ─► abort mark ─► tasks
 *
 * What is where under the root: RocketMQ's commitlog/, consumequeue/, index/, checkpoint, lock,
 * abort; ours prepared/ (segments being made ready) and ternmq/flushed (the flush mark),
 * ternmq/deleted.json (deletions), ternmq/cut (a cut under way), diverged/ (what was cut). config/
 * is the broker's.
 *
 * The abort mark is durable before the first append, and goes only when all is dispatched and
 * flushed.
 *
 * Threads: open and close in one; the rest any. Failure modes: opening either succeeds or frees
 * everything; closing always frees, reports the first error and then leaves the abort mark.
 */
#include "broker/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sched.h"
#include "broker/store/appender.h"
#include "broker/store/deletions.h"
#include "broker/store/flusher.h"
#include "broker/store/queue_flusher.h"
#include "broker/store/retention.h"
#include "broker/store/store_files.h"
#include "broker/store/store_recover.h"
#include "broker/store/store_internal.h"

enum {
    CLOSE_POLL_MS = 1,       /* how often closing looks whether all is dispatched */
    CLOSE_PATIENCE_MS = 5000 /* without progress for so long: close with the abort mark left */
};

/* ---- what the parts call ---- */

static void on_segment_ready(void *arg)
{
    struct store *store = arg;
    appender_wake(store->appender);
}

static void on_flush(void *arg)
{
    struct store *store = arg;
    queue_flusher_wake(store->queue_flusher);
}

/* ---- opening ---- */

static enum tern_code create_parts(struct store *store, struct tern_error *err)
{
    const struct store_options *o = &store->options;
    char dir[FS_PATH_BYTES];
    enum tern_code code =
        commit_log_open(store->env, store->root, o->segment_bytes, o->read_only, &store->log, err);
    if (!code)
        code = store_path(store, "consumequeue", dir, err);
    if (code)
        return code;
    store->log_was_missing = segments_count(&store->log->segments) == 0;
    code = queue_table_create(store->env, dir, o->queue_file_bytes, o->open_files_max, o->read_only,
                              &store->queues);
    if (!code && o->index_enabled) {
        code = store_path(store, "index", dir, err);
        if (!code)
            code = index_service_create(store->env, dir, o->index_slots, o->index_entries,
                                        o->read_only, &store->index);
    }
    if (code)
        return error_set(err, code, "%s: cannot set up queues or index: %s", store->root,
                         tern_code_text(code));
    return deletions_open(store->env, store->root, &store->deletions, err);
}

static enum tern_code start_flushers(struct store *store)
{
    const struct store_options *o = &store->options;
    struct flusher_options flusher = {
        .log = store->log,
        .mark = store->mark,
        .gate = &store->gate,
        .sync = o->sync_flush,
        .interval_ms = o->flush_interval_ms,
        .on_flush = on_flush,
        .arg = store,
    };
    enum tern_code code = flusher_create(store->env, &flusher, &store->flusher);
    if (code)
        return code;
    struct queue_flusher_options queues = {
        .log = store->log,
        .queues = store->queues,
        .index = store->index,
        .dispatcher = store->dispatcher,
        .flusher = store->flusher,
        .mark = store->mark,
        .gate = &store->gate,
        .checkpoint = store->checkpoint,
        .durable = store->recovery.clean && !gate_full(&store->gate),
        .root = store->root,
        .interval_ms = o->queue_flush_interval_ms,
    };
    return queue_flusher_create(store->env, &queues, &store->queue_flusher);
}

static enum tern_code start_appender(struct store *store)
{
    struct preparer_options preparer = {
        .log = store->log,
        .gate = &store->gate,
        .root = store->root,
        .on_ready = on_segment_ready,
        .arg = store,
    };
    enum tern_code code = preparer_create(store->env, &preparer, &store->preparer);
    if (code)
        return code;
    struct appender_options appender = {
        .log = store->log,
        .gate = &store->gate,
        .preparer = store->preparer,
        .dispatcher = store->dispatcher,
        .flusher = store->flusher,
        .queues = store->queues,
        .deletions = store->deletions,
    };
    return appender_create(store->env, &appender, &store->appender);
}

static enum tern_code start_retention(struct store *store)
{
    const struct store_options *o = &store->options;
    struct retention_options retention = {
        .log = store->log,
        .queues = store->queues,
        .index = store->index,
        .dispatcher = store->dispatcher,
        .gate = &store->gate,
        .root = store->root,
        .retention_ms = o->retention_ms,
        .delete_hours = o->delete_hours,
        .clean_interval_ms = o->clean_interval_ms,
        .max_used_ratio = o->disk_max_used_ratio,
        .clean_ratio = o->disk_clean_ratio,
        .warning_ratio = o->disk_warning_ratio,
    };
    return retention_create(store->env, &retention, &store->retention);
}

static enum tern_code start_tasks(struct store *store, struct tern_error *err)
{
    enum tern_code code = start_flushers(store);
    if (!code)
        code = dispatcher_start(store->dispatcher);
    if (!code)
        code = start_appender(store);
    if (!code)
        code = start_retention(store);
    return code ? error_set(err, code, "%s: cannot start the store's tasks: %s", store->root,
                            tern_code_text(code))
                : TERN_OK;
}

static enum tern_code open_store(struct store *store, struct tern_error *err)
{
    bool read_only = store->options.read_only;
    enum tern_code code = store_files_enter(store, err);
    if (!code)
        code = create_parts(store, err);
    if (!code)
        code = store_recover_log(store, err);
    if (!code)
        code = store_recover_derived(store, err);
    if (!code && !read_only)
        code = store_files_mark_running(store, err);
    if (!code && !read_only)
        code = start_tasks(store, err);
    return code;
}

static void free_store(struct store *store)
{
    retention_destroy(store->retention);
    preparer_destroy(store->preparer); /* wakes the appender's task, so before it */
    appender_destroy(store->appender);
    dispatcher_destroy(store->dispatcher);
    flusher_destroy(store->flusher); /* wakes the queue flusher's task, so before it */
    queue_flusher_destroy(store->queue_flusher);
    flush_mark_close(store->mark);
    index_service_destroy(store->index);
    queue_table_destroy(store->queues);
    deletions_close(store->deletions);
    commit_log_close(store->log);
    file_close(store->lock_file);
    free(store);
}

enum tern_code store_open(const struct env *env, const struct store_options *options,
                          struct store **out, struct store_recovery *recovery,
                          struct tern_error *err)
{
    *out = NULL;
    int64_t began_ns = clock_mono_ns(env->clock);
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return error_set(err, TERN_NO_MEMORY, "%s: no memory", options->root_dir);
    store->env_copy = *env;
    store->env = &store->env_copy;
    store->options = *options;
    struct store_limits limits = store_limits_of(options);
    store_set_read_limits(store, &limits);
    enum tern_code code = store_options_check(store, err);
    gate_init(&store->gate, store->env, &options->observer);
    if (!code)
        code = open_store(store, err);
    if (code) {
        free_store(store);
        return code;
    }
    store->recovery.took_ms = (clock_mono_ns(env->clock) - began_ns) / 1000000;
    const struct store_recovery *r = &store->recovery;
    log_info(env->log, "store.opened",
             "root=\"%s\" clean=%d min=%" PRId64 " end=%" PRId64 " cut_bytes=%" PRId64
             " replayed=%" PRId64 " took_ms=%" PRId64,
             store->root, r->clean, r->log_min, r->log_end, r->cut_bytes, r->replayed_records,
             r->took_ms);
    if (recovery)
        *recovery = *r;
    *out = store;
    return TERN_OK;
}

/* ---- closing ---- */

/* Waits until the dispatcher's task has taken what is left, as far as its limit lets it. */
static bool all_dispatched(struct store *store)
{
    int64_t end = commit_log_whole(store->log);
    int64_t limit = dispatcher_limit(store->dispatcher);
    int64_t goal = limit < end ? limit : end;
    int64_t seen = -1;
    int64_t seen_ns = 0;
    for (;;) {
        int64_t position = dispatcher_position(store->dispatcher);
        int64_t now_ns = clock_mono_ns(store->env->clock);
        if (position >= goal)
            return position >= end;
        if (position != seen) {
            seen = position;
            seen_ns = now_ns;
        }
        if (gate_latched(&store->gate) || now_ns - seen_ns > ms_to_ns(CLOSE_PATIENCE_MS))
            return false;
        struct latch never;
        latch_init(&never);
        if (latch_wait(store->env->sched, &never, now_ns + ms_to_ns(CLOSE_POLL_MS)))
            return false;
    }
}

/* Everything to the disk; the abort mark goes when nothing is left. */
static enum tern_code settle(struct store *store, struct tern_error *err)
{
    retention_destroy(store->retention);
    store->retention = NULL;
    bool dispatched = all_dispatched(store);
    preparer_destroy(store->preparer);
    store->preparer = NULL;
    appender_destroy(store->appender);
    store->appender = NULL;
    enum tern_code code = flusher_finish(store->flusher, err);
    if (!code)
        code = queue_flusher_finish(store->queue_flusher, err);
    if (!code && gate_latched(&store->gate))
        code = error_set(err, TERN_STATE, "the store had become read-only: %s",
                         gate_latch_text(&store->gate));
    if (!code && dispatched)
        code = store_files_mark_stopped(store, err);
    if (!code && !dispatched)
        log_warn(store->env->log, "store.closed_undispatched",
                 "dispatched=%" PRId64 " end=%" PRId64, dispatcher_position(store->dispatcher),
                 commit_log_end(store->log));
    return code;
}

enum tern_code store_close(struct store *store, struct tern_error *err)
{
    if (!store)
        return TERN_OK;
    enum tern_code code = store->options.read_only ? TERN_OK : settle(store, err);
    if (code)
        log_error(store->env->log, "store.closed_with_abort_mark", "root=\"%s\" code=%s",
                  store->root, tern_code_name(code));
    free_store(store);
    return code;
}

/* ---- calls handed on ---- */

void store_append(struct store *store, struct store_append *append)
{
    ENSURE(store->appender != NULL); /* not in a read-only store */
    appender_submit(store->appender, append);
}

enum tern_code store_queue_ref(struct store *store, const char *topic, size_t topic_len,
                               int32_t queue_id, struct consume_queue **out)
{
    return queue_table_ref(store->queues, topic, topic_len, queue_id, out);
}

void store_queue_unref(struct consume_queue *queue)
{
    consume_queue_unref(queue);
}

void store_set_appends(struct store *store, bool open)
{
    atomic_store(&store->gate.closed, !open);
    if (open || !store->appender)
        return;
    /* Whoever holds the token may have looked before: its run and its answers end with it. */
    ENSURE(appender_hold(store->appender, false) == TERN_OK);
    appender_let_go(store->appender);
}

void store_set_dispatch_limit(struct store *store, int64_t phys_off)
{
    if (store->dispatcher)
        dispatcher_set_limit(store->dispatcher, phys_off);
}

int store_expire_now(struct store *store)
{
    return store->retention ? retention_expire_now(store->retention) : 0;
}

void store_latch(struct store *store, enum tern_code code, const char *text)
{
    gate_latch(&store->gate, code, text);
}
