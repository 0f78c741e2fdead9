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
 * A cut of the log that a crash has interrupted (ternmq/cut) is finished: the log's files before
 * they are looked at, queues, index and deletions with the rest; the intent goes when all is done.
 *
 * A process that was killed on a full disk leaves queues that lack units, and no room for them.
 * They are kept in memory then and served from there; the queue flusher writes them when there is
 * room, and lets no appends in until then. Should it be killed again, the next start does the same.
 * What is beyond the limit of memory for that ends the opening with NO_SPACE.
 *
 * Threads: the opening one. Failure modes: the first error ends the opening; what was cut or
 * dispatched until then is found in order by the next one.
 */
#include "broker/store/store_recover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "broker/store/cut_intent.h"
#include "broker/store/deletions.h"
#include "broker/store/dispatcher.h"
#include "broker/store/flush_mark.h"
#include "broker/store/log_cut.h"
#include "broker/store/preparer.h"
#include "broker/store/recovery.h"
#include "broker/store/store_files.h"
#include "broker/store/store_internal.h"
#include "broker/store/store_reset.h"

/* What a replay may keep in memory when the disk is full, besides the usual: 40 MiB. */
enum { REPLAY_KEEP_UNITS = 2 << 20 };

static void on_dispatch_error(void *arg, enum tern_code code, const char *text)
{
    struct store *store = arg;
    gate_latch(&store->gate, code, text);
}

enum tern_code store_write_mark(struct store *store, int64_t flushed, int64_t indexed,
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
        code = store_write_mark(store, end, store->indexed, err);
    if (!code && (code = fs_sync_dir(store->env->fs, dir)) != TERN_OK)
        error_set_errno(err, code, errno, "%s: cannot sync", dir);
    return code;
}

/* A cut that a crash has interrupted: what it does to the log's files. */
static enum tern_code finish_log_cut(struct store *store, struct tern_error *err)
{
    struct cut_intent *cut = &store->cut;
    enum tern_code code = cut_intent_read(store->env, store->root, cut, err);
    if (code || cut->kind == CUT_NONE)
        return code;
    log_warn(store->env->log, "store.cut_unfinished", "kind=%d at=%" PRId64, (int)cut->kind,
             cut->at);
    if (store->options.read_only) {
        cut->kind = CUT_NONE; /* what is there is shown as it is */
        return TERN_OK;
    }
    store->recovery.clean = false;
    store->log_was_missing = false;
    if (cut->kind == CUT_END)
        return log_cut_files(&store->log->segments, cut->at, err);
    if (cut->kind == CUT_MOVE)
        code = store_reset_move(store, cut, err);
    return code ? code : store_reset_first(store, cut->at, err);
}

/*
 * And to the rest, once queues and index follow the log. *from: where dispatching begins. A
 * deletion that was forgotten makes its topic's records count again, wherever they are.
 */
static enum tern_code finish_derived_cut(struct store *store, int64_t *from, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    bool again = false;
    if (store->cut.kind == CUT_BEGIN)
        code = store_reset_derived(store, err);
    else if (store->cut.kind == CUT_END)
        code = deletions_cut(store->deletions, store->cut.at, store->recovery.log_min, &again, err);
    if (!code && again)
        *from = store->recovery.log_min;
    return code;
}

/* All is as the cut wanted it. The records that come next may be older than what was cut. */
static enum tern_code end_cut(struct store *store, struct tern_error *err)
{
    struct checkpoint *checkpoint = &store->checkpoint;
    char path[FS_PATH_BYTES];
    if (store->cut.kind == CUT_NONE)
        return TERN_OK;
    int64_t last_ms = atomic_load(&store->log->last_store_ms);
    *checkpoint = (struct checkpoint){
        .physic_ms = checkpoint->physic_ms < last_ms ? checkpoint->physic_ms : last_ms};
    enum tern_code code = store_path(store, "checkpoint", path, err);
    if (!code)
        code = checkpoint_write(store->env, path, checkpoint, err);
    return code ? code : cut_intent_clear(store->env, store->root, err);
}

/*
 * Queues of a deleted topic that are still there: the crash came between the note and their
 * removal.
 */
static enum tern_code drop_deleted(struct store *store, int64_t *from, struct tern_error *err)
{
    size_t count = 0;
    uint64_t version = 0;
    struct store_deletion *list = deletions_copy(store->deletions, -1, &count, &version);
    enum tern_code code = list ? TERN_OK : error_set(err, TERN_NO_MEMORY, "no memory");
    for (size_t i = 0; i < count && !code; i++) {
        if (!queue_table_has_before(store->queues, list[i].topic, list[i].position))
            continue;
        code = queue_table_delete_topic(store->queues, list[i].topic, err);
        if (list[i].position < *from)
            *from = list[i].position;
    }
    free(list);
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
    if (!code)
        code = finish_log_cut(store, err);
    if (code)
        return code;
    if (store->cut.kind != CUT_NONE) { /* what was behind is gone on purpose */
        mark.flushed = mark.flushed < store->cut.at ? mark.flushed : store->cut.at;
        mark.indexed = store->cut.kind == CUT_END ? mark.indexed : 0;
        input.clean = false;
    }
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
        code = store_write_mark(store, recovery->log_end, 0, err);
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

/*
 * Dispatches what queues and index lack. What finds no room on the disk is kept in memory, so that
 * all that follows finds the whole log dispatched; appends are refused until it is written.
 */
static enum tern_code replay(struct store *store, int64_t from, struct tern_error *err)
{
    struct store_recovery *recovery = &store->recovery;
    (void)queue_table_keep(store->queues, REPLAY_KEEP_UNITS);
    if (store->index)
        index_service_keep(store->index, true);
    enum tern_code code = dispatcher_replay(store->dispatcher, from, recovery->log_end,
                                            &recovery->replayed_records, err);
    int64_t kept = queue_table_keep(store->queues, 0);
    if (store->index)
        index_service_keep(store->index, false);
    if (code || kept == 0)
        return code;
    log_error(store->env->log, "store.queues_full", "root=\"%s\" kept_units=%" PRId64, store->root,
              kept);
    atomic_store(&store->gate.queues_full, true); /* the queue flusher looks at once */
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
    code = finish_derived_cut(store, &from, err);
    if (!code)
        code = drop_deleted(store, &from, err);
    if (code)
        return code;
    if (from < recovery->log_min)
        from = recovery->log_min;
    struct dispatcher_options options = {
        .log = store->log,
        .queues = store->queues,
        .index = store->index,
        .deletions = store->deletions,
        .observer = store->options.observer,
        .on_error = on_dispatch_error,
        .arg = store,
    };
    code = dispatcher_create(store->env, &options, &store->dispatcher);
    if (code)
        return error_set(err, code, "%s: cannot start the dispatcher", store->root);
    if (store->options.delay_levels)
        dispatcher_set_delay_levels(store->dispatcher, store->options.delay_levels);
    code = replay(store, from, err);
    if (!code)
        code = end_cut(store, err);
    if (!code)
        queue_table_settle(store->queues);
    return code;
}
