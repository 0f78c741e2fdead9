/*
 * Moving the whole log aside and beginning at another place.
 *
 * Place: a replica whose log has nothing in common with its source's, or was left behind by the
 * source's retention, starts afresh. As a cut (store_cut.c), with two intents, since a file of the
 * new log may have the name of one that is being moved:
 *
 *   stand still ─► flush ─► intent MOVE ─► segments to diverged/WALLMS/, last first ─► intent BEGIN
 *        ─► first segment at `start`; queues, index, deletions, marks go ─► intent goes ─► go on
 *
 * Threads and failure modes: as store_cut().
 */
#include "broker/store/store_reset.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "broker/store/appender.h"
#include "broker/store/commit_log_internal.h"
#include "broker/store/deletions.h"
#include "broker/store/diverged.h"
#include "broker/store/flusher.h"
#include "broker/store/log_cut.h"
#include "broker/store/preparer.h"
#include "broker/store/queue_flusher.h"
#include "broker/store/store_recover.h"
#include "broker/store/store_still.h"

enum tern_code store_reset_move(struct store *store, struct cut_intent *intent,
                                struct tern_error *err)
{
    char dir[FS_PATH_BYTES] = "";
    enum tern_code code = TERN_OK;
    if (intent->wall_ms > 0)
        code = diverged_folder_path(store->root, intent->wall_ms, dir, err);
    if (!code)
        code = log_move_files(&store->log->segments, dir, err);
    intent->kind = CUT_BEGIN;
    return code ? code : cut_intent_write(store->env, store->root, intent, err);
}

enum tern_code store_reset_first(struct store *store, int64_t start, struct tern_error *err)
{
    if (segments_count(&store->log->segments) > 0) /* made before a crash */
        return log_cut_files(&store->log->segments, start, err);
    return preparer_first_segment(store->log, start, err);
}

enum tern_code store_reset_derived(struct store *store, struct tern_error *err)
{
    enum tern_code code = queue_table_clear(store->queues, err);
    if (!code && store->index)
        code = index_service_clear(store->index, err);
    if (!code)
        code = deletions_clear(store->deletions, err);
    return code;
}

/* From the first intent on. */
static enum tern_code reset_all(struct store *store, struct cut_intent *intent,
                                struct tern_error *err)
{
    static const struct checkpoint none;
    int64_t start = intent->at;
    enum tern_code code = cut_intent_write(store->env, store->root, intent, err);
    if (code)
        return code;
    commit_log_cut_begin(store->log, commit_log_min(store->log), 0);
    code = store_reset_move(store, intent, err);
    if (!code)
        code = store_reset_first(store, start, err);
    if (!code)
        code = store_reset_derived(store, err);
    if (!code)
        code = store_write_mark(store, start, 0, err);
    if (!code)
        code = queue_flusher_lower(store->queue_flusher, &none, err);
    if (!code)
        code = cut_intent_clear(store->env, store->root, err);
    if (code)
        return code;
    commit_log_set_range(store->log, start, start, start, 0);
    dispatcher_rewind(store->dispatcher, start, start);
    appender_cut(store->appender, start);
    flusher_cut(store->flusher, 0);
    commit_log_cut_end(store->log);
    return TERN_OK;
}

/* @thread who holds the store */
static enum tern_code reset(struct store *store, int64_t start, struct store_cut *result,
                            struct tern_error *err)
{
    struct cut_intent intent = {.kind = CUT_MOVE, .at = start};
    if (gate_latched(&store->gate))
        return error_set(err, TERN_SERVICE_NOT_AVAILABLE, "the store is read-only: %s",
                         gate_latch_text(&store->gate));
    if (start < 0 || start % store->options.segment_bytes != 0 || start > INT64_MAX / 2)
        return error_set(err, TERN_INVALID, "no segment begins at log offset %" PRId64, start);
    result->at = start;
    result->cut_bytes = commit_log_end(store->log) - commit_log_min(store->log);
    enum tern_code code = flusher_flush_held(store->flusher, err);
    if (!code && result->cut_bytes > 0)
        code = diverged_folder(store->env, store->root, &intent.wall_ms, err);
    if (!code)
        code = store_tell_cut(store, 0, err);
    if (code)
        return code;
    if (intent.wall_ms > 0)
        snprintf(result->saved_as, sizeof result->saved_as, "%" PRId64, intent.wall_ms);
    code = reset_all(store, &intent, err);
    store_tell_cut_end(store);
    if (code)
        gate_latch(&store->gate, code, error_text(err, code));
    return code;
}

enum tern_code store_reset(struct store *store, int64_t start, struct store_cut *result,
                           struct tern_error *err)
{
    struct tern_error local = {TERN_OK, ""};
    *result = (struct store_cut){0};
    store_hold(store);
    enum tern_code code = reset(store, start, result, err ? err : &local);
    store_let_go(store);
    if (!code)
        log_warn(store->env->log, "store.reset", "at=%" PRId64 " bytes=%" PRId64 " saved_as=\"%s\"",
                 result->at, result->cut_bytes, result->saved_as);
    return code;
}
