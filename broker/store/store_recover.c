/*
 * Bringing a store's parts in line after a stop: the log first, then what is derived from it.
 *
 * Place: the middle of store_open(), between the opening of the files and the start of the tasks.
 *
 * After a crash (an abort mark) records are dispatched again from where the log was checked, which
 * is before everything not known durable, and no later than where the index certainly ends. After a
 * clean stop of ours nothing is: all was dispatched, and the queues of deleted topics stay away.
 * After one of RocketMQ's, or when no queue is left (whoever wants them built anew removes
 * consumequeue/), it goes from the end of what the queues hold. A log without segments makes the
 * queues begin anew, as in RocketMQ, and is reported as an error.
 *
 * A clean stop has also synced every queue: the abort mark is removed only after the last thorough
 * flush went through, and that covers each queue written to since it was opened, since all writing
 * puts a queue on the flush's list (queue_table_touch). So a clean start cuts none of them again.
 *
 * Threads: the opening one. Failure modes: the first error ends the opening; what was cut or
 * dispatched until then is found in order by the next one.
 */
#include "broker/store/store_recover.h"

#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "broker/store/flush_mark.h"
#include "broker/store/preparer.h"
#include "broker/store/recovery.h"
#include "broker/store/store_files.h"
#include "broker/store/store_internal.h"

static void on_dispatch_error(void *arg, enum tern_code code, const char *text)
{
    struct store *store = arg;
    gate_latch(&store->gate, code, text);
}

/* Writes what the mark says now, durably. */
static enum tern_code write_mark(struct store *store, int64_t flushed, int64_t indexed,
                                 struct tern_error *err)
{
    flush_mark_set_indexed(store->mark, indexed);
    enum tern_code code = flush_mark_set(store->mark, flushed);
    if (!code)
        code = flush_mark_sync(store->mark);
    return code ? error_set_errno(err, code, errno, "%s/ternmq/flushed: cannot write", store->root)
                : TERN_OK;
}

/*
 * The mark says the recovered end before anything is appended, and its file is there to stay. What
 * the log has lost is not indexed either.
 */
static enum tern_code open_mark(struct store *store, const char *path, int64_t end,
                                struct tern_error *err)
{
    char dir[FS_PATH_BYTES];
    enum tern_code code = store_path(store, "ternmq", dir, err);
    if (!code)
        code = flush_mark_open(store->env, path, &store->mark, err);
    if (!code)
        code = write_mark(store, end, store->indexed, err);
    if (!code && (code = fs_sync_dir(store->env->fs, dir)) != TERN_OK)
        error_set_errno(err, code, errno, "%s: cannot sync", dir);
    return code;
}

/* The log: where it ends. */
enum tern_code store_recover_log(struct store *store, struct tern_error *err)
{
    struct recovery_input input = {
        .log = store->log,
        .clean = store->recovery.clean,
        .checkpoint = store->checkpoint,
        .read_only = store->options.read_only,
    };
    char path[FS_PATH_BYTES];
    enum tern_code code = store_path(store, "ternmq/flushed", path, err);
    struct flush_mark_value mark;
    if (!code)
        code = flush_mark_read(store->env, path, &mark, err);
    if (code)
        return code;
    input.mark_known = mark.known;
    input.mark = mark.flushed;
    struct recovery_result result;
    code = recovery_scan(&input, &result, err);
    if (!code)
        code = recovery_cut(&input, &result, err);
    if (code)
        return code;
    store->recovery.log_min = commit_log_min(store->log);
    store->recovery.log_end = result.end;
    store->recovery.cut_bytes = result.cut_bytes;
    store->checked_from = result.checked_from;
    store->as_closed = result.as_closed;
    store->indexed = mark.indexed < result.end ? mark.indexed : result.end;
    if (store->options.read_only)
        return TERN_OK;
    code = open_mark(store, path, result.end, err);
    if (!code && !store->recovery.clean) {
        code = store_path(store, "prepared", path, err);
        if (!code)
            code = preparer_discard_leftovers(store->env, path, err);
    }
    return code;
}

/*
 * The index: *from is lowered to where records have to be dispatched again for it. With nothing
 * lost that is where the flush mark says. Otherwise it is the end of the last file that remains,
 * and since that may be in the middle of a record, its segment's beginning: a replay may begin at
 * any segment's first byte, but else only where a record does.
 */
static enum tern_code recover_index(struct store *store, int64_t *from, struct tern_error *err)
{
    const struct store_recovery *recovery = &store->recovery;
    if (!store->index)
        return TERN_OK;
    const struct index_recovery input = {.clean = recovery->clean,
                                         .safe_ms = store->checkpoint.index_ms,
                                         .durable_phys = store->indexed,
                                         .log_end = recovery->log_end};
    enum index_state state = INDEX_WHOLE;
    int64_t indexed = 0;
    enum tern_code code = index_service_load(store->index, &input, &state, err);
    if (!code && state == INDEX_LOST && store->mark)
        code = write_mark(store, recovery->log_end, 0, err);
    if (!code)
        code = index_service_mend(store->index, &input, &indexed, err);
    if (code || state == INDEX_WHOLE)
        return code;
    indexed =
        state == INDEX_LOST ? indexed - indexed % store->options.segment_bytes : store->indexed;
    if (indexed < *from) {
        log_info(store->env->log, "store.index_replay", "from=%" PRId64 " lost=%d", indexed,
                 state == INDEX_LOST);
        *from = indexed;
    }
    return TERN_OK;
}

/* Queues and index: brought in line with the log, what is missing dispatched again. */
enum tern_code store_recover_derived(struct store *store, struct tern_error *err)
{
    struct store_recovery *recovery = &store->recovery;
    int64_t max_phys = 0;
    if (recovery->clean)
        queue_table_assume_synced(store->queues);
    enum tern_code code =
        queue_table_recover(store->queues, recovery->log_min, recovery->log_end, &max_phys, err);
    if (code)
        return code;
    if (store->log_was_missing && queue_table_count(store->queues) > 0)
        log_error(store->env->log, "store.log_missing",
                  "root=\"%s\" queues=%u effect=\"queues begin anew\"", store->root,
                  queue_table_count(store->queues));
    int64_t from = recovery->clean ? max_phys : store->checked_from;
    if (store->as_closed && max_phys > 0)
        from = recovery->log_end;
    code = recover_index(store, &from, err);
    if (code || store->options.read_only)
        return code;
    if (from < recovery->log_min)
        from = recovery->log_min;
    struct dispatcher_options options = {
        .log = store->log,
        .queues = store->queues,
        .index = store->index,
        .observer = store->options.observer,
        .on_error = on_dispatch_error,
        .arg = store,
    };
    code = dispatcher_create(store->env, &options, &store->dispatcher);
    if (code)
        return error_set(err, code, "%s: cannot start the dispatcher", store->root);
    code = dispatcher_replay(store->dispatcher, from, recovery->log_end,
                             &recovery->replayed_records, err);
    if (!code)
        queue_table_settle(store->queues);
    return code;
}
