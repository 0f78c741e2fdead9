/*
 * Bringing a store's parts in line after a stop: the log first, then what is derived from it.
 *
 * Place: the middle of store_open(), between the opening of the files and the start of the tasks.
 *
 * After a crash (an abort mark) records are dispatched again from where the log was checked, which
 * is before everything not known durable; after a clean stop from the end of what the queues hold.
 * After a crash they also begin no later than where the index certainly ends. A log without
 * segments makes the queues begin anew, as in RocketMQ, and is reported as an error.
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

static bool count_entry(void *arg, const char *name, bool is_dir)
{
    (void)name;
    (void)is_dir;
    (*(int *)arg)++;
    return true;
}

static enum tern_code count_index_files(struct store *store, int *count, struct tern_error *err)
{
    char dir[FS_PATH_BYTES];
    *count = 0;
    enum tern_code code = store_path(store, "index", dir, err);
    if (!code && fs_exists(store->env->fs, dir)) {
        code = fs_list(store->env->fs, dir, count_entry, count);
        if (code)
            error_set_errno(err, code, errno, "%s: cannot list", dir);
    }
    return code;
}

/*
 * The mark says the recovered end before anything is appended, and its file is there to stay. After
 * a crash index files may be dropped next: nothing is certain to be indexed then, whatever happens
 * in between.
 */
static enum tern_code open_mark(struct store *store, const char *path, int64_t end,
                                struct tern_error *err)
{
    char dir[FS_PATH_BYTES];
    enum tern_code code = store_path(store, "ternmq", dir, err);
    if (!code)
        code = flush_mark_open(store->env, path, &store->mark, err);
    int files = 0;
    if (!code)
        code = count_index_files(store, &files, err);
    if (code)
        return code;
    if (!store->recovery.clean && files > 0)
        flush_mark_set_indexed(store->mark, 0);
    code = flush_mark_set(store->mark, end);
    if (!code)
        code = flush_mark_sync(store->mark);
    if (!code)
        code = fs_sync_dir(store->env->fs, dir);
    return code ? error_set_errno(err, code, errno, "%s: cannot write", path) : TERN_OK;
}

/* The log: where it ends. */
enum tern_code store_recover_log(struct store *store, struct tern_error *err)
{
    struct recovery_input input = {
        .log = store->log,
        .root = store->root,
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
    store->indexed = mark.indexed;
    struct recovery_result result;
    if (!code)
        code = recovery_scan(&input, &result, err);
    if (!code)
        code = recovery_cut(&input, &result, err);
    if (code)
        return code;
    store->recovery.log_min = commit_log_min(store->log);
    store->recovery.log_end = result.end;
    store->recovery.cut_bytes = result.cut_bytes;
    store->checked_from = result.checked_from;
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
 * The index: after a crash, or when files had to go, *from is lowered to where records have to be
 * dispatched again for it. The files that remain are whole; with none dropped, what the mark says
 * is indexed is so as well. A replay may begin at any segment's first byte, but else only where a
 * record does: the index ends in the middle of one, so its segment's beginning is taken.
 */
static enum tern_code recover_index(struct store *store, int64_t *from, struct tern_error *err)
{
    if (!store->index)
        return TERN_OK;
    int before = 0;
    int after = 0;
    int64_t indexed = 0;
    enum tern_code code = count_index_files(store, &before, err);
    if (!code)
        code = index_service_recover(store->index, store->recovery.clean,
                                     store->checkpoint.index_ms, &indexed, err);
    if (!code && !store->options.read_only)
        code = index_service_cut(store->index, store->recovery.log_end, err);
    if (!code)
        code = count_index_files(store, &after, err);
    if (code || store->options.read_only)
        return code;
    int64_t begin_ms;
    int64_t end_ms;
    index_service_range(store->index, &begin_ms, &end_ms, &indexed);
    store->index_synced_end = indexed;
    if (after == before && store->indexed > indexed)
        indexed = store->indexed;
    if ((!store->recovery.clean || after < before) && indexed < *from) {
        indexed -= indexed % store->options.segment_bytes;
        log_info(store->env->log, "store.index_rebuild", "from=%" PRId64 " files_dropped=%d",
                 indexed, before - after);
        *from = indexed;
    }
    return TERN_OK;
}

/* Queues and index: brought in line with the log, what is missing dispatched again. */
enum tern_code store_recover_derived(struct store *store, struct tern_error *err)
{
    struct store_recovery *recovery = &store->recovery;
    int64_t max_phys = 0;
    enum tern_code code =
        queue_table_recover(store->queues, recovery->log_min, recovery->log_end, &max_phys, err);
    if (code)
        return code;
    if (store->log_was_missing && queue_table_count(store->queues) > 0)
        log_error(store->env->log, "store.log_missing",
                  "root=\"%s\" queues=%u effect=\"queues begin anew\"", store->root,
                  queue_table_count(store->queues));
    int64_t from = recovery->clean ? max_phys : store->checked_from;
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
