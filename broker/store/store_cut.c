/*
 * Cutting the end of the log off, with all that was derived from it.
 *
 * Place: a replica that has bytes its source does not have ends its log at the last common point.
 * The order, each step durable before the next:
 *
 *   stand still ─► flush ─► what is cut is saved ─► intent ─┬► deletions, flush mark, checkpoint
 *                                                           ├► positions down, readers bounded
 *                                                           ├► log ─► queues ─► index
 *                                                           └► intent goes ─► go on
 *
 * A crash before the intent leaves the old log whole; after it the next start does the rest
 * (store_recover.c). The checkpoint's times go down because the records that come next may be older
 * than those that were cut. A deletion noted behind the cut is forgotten: then its topic's records
 * count again, and everything is dispatched anew.
 *
 * Readers: `cuts` is odd from before the first file is touched until all is done. A read of the log
 * sees bytes from before or is bounded by the new end (commit_log_internal.h); a get that spans the
 * change is refused (store_get.c).
 *
 * Threads: one, not a transport's. Failure modes: an error before the intent changes nothing; a
 * later one latches the store, `cuts` stays odd, and gets are refused until the next start.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "broker/store/appender.h"
#include "broker/store/commit_log_internal.h"
#include "broker/store/cut_intent.h"
#include "broker/store/deletions.h"
#include "broker/store/diverged.h"
#include "broker/store/flush_mark.h"
#include "broker/store/flusher.h"
#include "broker/store/log_cut.h"
#include "broker/store/log_scanner.h"
#include "broker/store/queue_flusher.h"
#include "broker/store/retention.h"
#include "broker/store/store_internal.h"
#include "broker/store/store_recover.h"
#include "broker/store/store_still.h"

/* ---- standing still ---- */

void store_hold(struct store *store)
{
    ENSURE(store->appender != NULL); /* not in a read-only store */
    /* The append token first: it keeps others who want all this out. */
    ENSURE(appender_hold(store->appender, false) == TERN_OK);
    retention_hold(store->retention);
    flusher_hold(store->flusher);
    queue_flusher_hold(store->queue_flusher);
    dispatcher_hold(store->dispatcher);
}

void store_let_go(struct store *store)
{
    dispatcher_let_go(store->dispatcher);
    queue_flusher_let_go(store->queue_flusher);
    flusher_let_go(store->flusher);
    retention_let_go(store->retention);
    appender_let_go(store->appender);
}

enum tern_code store_tell_cut(struct store *store, int64_t phys_off, struct tern_error *err)
{
    const struct store_observer *observer = &store->options.observer;
    return observer->on_cut ? observer->on_cut(observer->arg, phys_off, err) : TERN_OK;
}

void store_tell_cut_end(struct store *store)
{
    const struct store_observer *observer = &store->options.observer;
    if (observer->on_cut_end)
        observer->on_cut_end(observer->arg);
}

/* ---- where ---- */

struct place {
    int64_t at;      /* end of the last whole record or filler that may stay */
    int64_t last_ms; /* when it was stored, 0 when there is none */
    int64_t records; /* that are whole and go */
};

/* Walks from `from` to `limit`; *bad: there is something else. */
static enum tern_code walk(struct log_scanner *scanner, int64_t from, int64_t limit,
                           struct place *place, bool *bad)
{
    enum tern_code code = TERN_OK;
    place->at = from;
    place->records = 0;
    *bad = false;
    while (place->at < limit) {
        enum scan_state state;
        struct record record;
        code = log_scanner_at(scanner, place->at, &state, &record);
        int64_t next = place->at - place->at % scanner->set->bytes + scanner->set->bytes;
        if (!code && state == SCAN_RECORD)
            next = place->at + record.total_size;
        *bad = !code && state != SCAN_RECORD && state != SCAN_BLANK;
        if (code || *bad || next > limit)
            break;
        place->at = next;
        if (state == SCAN_RECORD) {
            place->last_ms = record.store_ms;
            place->records++;
        }
    }
    return code;
}

/* The last place where the log may end at or before phys_off. */
static enum tern_code find_place(struct store *store, int64_t phys_off, struct place *place,
                                 struct tern_error *err)
{
    struct log_scanner scanner;
    int64_t bytes = store->options.segment_bytes;
    int64_t min = commit_log_min(store->log);
    int64_t whole = commit_log_whole(store->log);
    int64_t limit = phys_off < whole ? phys_off : whole;
    if (limit < min)
        return error_set(err, TERN_INVALID,
                         "the log cannot end at %" PRId64 ": it begins at %" PRId64, phys_off, min);
    enum tern_code code = log_scanner_init(&scanner, &store->log->segments);
    int64_t from = limit - limit % bytes;
    bool bad = false;
    *place = (struct place){0};
    while (!code) {
        code = walk(&scanner, from, limit, place, &bad);
        if (place->last_ms > 0 || from <= min || bad)
            break;
        from -= bytes; /* no record in this segment stays: the time is that of one before */
    }
    struct place behind = {0};
    bool ignored = false;
    if (!code && !bad)
        code = walk(&scanner, place->at, whole, &behind, &ignored);
    place->records = behind.records;
    log_scanner_fini(&scanner);
    if (bad)
        return error_set(err, TERN_CORRUPT, "%s: no whole record at log offset %" PRId64,
                         store->log->segments.dir, place->at);
    return code ? error_set_errno(err, code, errno, "%s: cannot read", store->log->segments.dir)
                : TERN_OK;
}

/* ---- the cut ---- */

/* What else says something about the bytes that go. *again: all has to be dispatched anew. */
static enum tern_code lower_marks(struct store *store, const struct place *place, bool *again,
                                  struct tern_error *err)
{
    enum tern_code code =
        deletions_cut(store->deletions, place->at, commit_log_min(store->log), again, err);
    int64_t indexed = flush_mark_indexed(store->mark);
    if (!code)
        code = store_write_mark(store, place->at, indexed < place->at ? indexed : place->at, err);
    struct checkpoint most = {.physic_ms = place->last_ms,
                              .logics_ms = *again ? 0 : place->last_ms,
                              .index_ms = place->last_ms};
    if (!code)
        code = queue_flusher_lower(store->queue_flusher, &most, err);
    return code;
}

static enum tern_code cut_all(struct store *store, const struct place *place,
                              struct tern_error *err)
{
    const struct cut_intent intent = {.kind = CUT_END, .at = place->at};
    bool again = false;
    enum tern_code code = cut_intent_write(store->env, store->root, &intent, err);
    if (!code)
        code = lower_marks(store, place, &again, err);
    if (code)
        return code;
    commit_log_cut_begin(store->log, place->at, place->last_ms);
    code = log_cut_files(&store->log->segments, place->at, err);
    if (!code)
        code = queue_table_cut(store->queues, place->at, err);
    if (!code && store->index)
        code = index_service_cut(store->index, place->at, err);
    if (!code)
        code = cut_intent_clear(store->env, store->root, err);
    if (code)
        return code;
    int64_t position = dispatcher_position(store->dispatcher);
    if (again)
        position = commit_log_min(store->log);
    dispatcher_rewind(store->dispatcher, position < place->at ? position : place->at, place->at);
    appender_cut(store->appender, place->at);
    flusher_cut(store->flusher, place->last_ms);
    commit_log_cut_end(store->log);
    return TERN_OK;
}

/* @thread who holds the store */
static enum tern_code cut(struct store *store, int64_t phys_off, bool save,
                          struct store_cut *result, struct tern_error *err)
{
    struct place place;
    int64_t end = commit_log_end(store->log);
    if (gate_latched(&store->gate))
        return error_set(err, TERN_SERVICE_NOT_AVAILABLE, "the store is read-only: %s",
                         gate_latch_text(&store->gate));
    result->at = end;
    if (phys_off >= end && commit_log_whole(store->log) == end)
        return TERN_OK;
    enum tern_code code = find_place(store, phys_off, &place, err);
    if (code)
        return code;
    result->at = place.at;
    result->cut_bytes = end - place.at;
    result->records = place.records;
    if (result->cut_bytes == 0)
        return TERN_OK;
    if (!save && place.at < commit_log_whole(store->log))
        return error_set(err, TERN_INVALID,
                         "%" PRId64 " whole records behind log offset %" PRId64
                         " are not cut without being saved",
                         place.records, place.at);
    code = flusher_flush_held(store->flusher, err);
    if (!code && save)
        code = diverged_save(store->env, store->root, store->log, place.at, end, result->saved_as,
                             err);
    if (!code)
        code = store_tell_cut(store, place.at, err);
    if (code)
        return code;
    code = cut_all(store, &place, err);
    store_tell_cut_end(store);
    if (code)
        gate_latch(&store->gate, code, error_text(err, code));
    return code;
}

enum tern_code store_cut(struct store *store, int64_t phys_off, bool save, struct store_cut *result,
                         struct tern_error *err)
{
    struct tern_error local = {TERN_OK, ""};
    _Static_assert(sizeof result->saved_as >= DIVERGED_NAME_BYTES, "the name fits");
    *result = (struct store_cut){0};
    store_hold(store);
    enum tern_code code = cut(store, phys_off, save, result, err ? err : &local);
    store_let_go(store);
    if (!code && result->cut_bytes > 0)
        log_warn(store->env->log, "store.cut",
                 "at=%" PRId64 " bytes=%" PRId64 " records=%" PRId64 " saved_as=\"%s\"", result->at,
                 result->cut_bytes, result->records, result->saved_as);
    return code;
}
