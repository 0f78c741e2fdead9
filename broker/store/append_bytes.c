/*
 * The append token held for something else than requests: appending the bytes of another log, and
 * standing still for a cut or a deletion.
 *
 * Place: what a replica does instead of store_append(). The bytes are a log's already, with
 * offsets, times and fillers; they are written as they are, at the same offsets, so the copy's
 * files become the same.
 *
 *   bytes ─► framing right? ─► segments for all of them ─► pwritev ─► publish end, whole ─►
 * flusher, (log_frame.c)                                            dispatcher's task, on_end
 *
 * Invariants: before anything is written, everything that can refuse the chunk was asked; segments
 * that were moved in for a chunk that came to nothing stay behind the end, empty, and serve the
 * next one. The dispatcher sees whole records only. The active segment always has room behind the
 * end, so store_append() may follow at once; what the queues give out then is found from the log
 * (next_offsets.c), since nothing here looks into records.
 *
 * Threads: one copier at a time; the token keeps requests, cuts and deletions out. Nothing here
 * allocates. Failure modes: a failed write latches the store, as in appender.c; the end stays where
 * it was.
 */
#include "broker/store/appender_internal.h"

#include <inttypes.h>

#include "base/clock.h"
#include "broker/store/dispatcher.h"
#include "broker/store/flusher.h"
#include "broker/store/turn.h"

/* ---- the token ---- */

enum tern_code appender_hold(struct appender *a, bool nowait)
{
    bool waits = false;
    for (;;) {
        lock_acquire(&a->lock);
        bool got = a->token == TOKEN_FREE || (a->token == TOKEN_PROMISED && waits);
        if (got)
            a->token = TOKEN_HELD;
        if (got && waits)
            a->hold_wanted--;
        if (!got && !nowait && !waits)
            a->hold_wanted++;
        lock_release(&a->lock);
        if (got)
            return TERN_OK;
        if (nowait)
            return TERN_AGAIN;
        waits = true;
        turn_pause(a->env);
    }
}

void appender_let_go(struct appender *a)
{
    lock_acquire(&a->lock);
    ENSURE(a->token == TOKEN_HELD);
    bool rest = a->head && a->hold_wanted == 0;
    a->token = a->hold_wanted > 0 ? TOKEN_PROMISED : rest ? TOKEN_TASK : TOKEN_FREE;
    lock_release(&a->lock);
    if (rest)
        task_wake(a->task);
}

void appender_cut(struct appender *a, int64_t at)
{
    segment_unref(a->active);
    a->active = segments_find(&a->options.log->segments, at);
    ENSURE(a->active && at < appender_active_end(a));
    a->end = at;
    a->want_told = false;
    a->offsets_unknown = true;
    log_frame_init(&a->frame, a->frame.segment_bytes, at);
    appender_want_next(a);
}

void appender_forget_offsets(struct appender *a)
{
    a->offsets_unknown = true;
}

/* ---- bytes ---- */

/* One segment, made here or waited for when that is allowed. */
static enum tern_code need_segment(struct appender *a, int64_t base, bool nowait)
{
    for (;;) {
        struct segment *segment = NULL;
        enum tern_code code = appender_segment_at(a, base, !nowait, &segment);
        segment_unref(segment);
        if (code == TERN_AGAIN && nowait)
            preparer_want(a->options.preparer);
        if (code != TERN_AGAIN || nowait)
            return code;
        turn_pause(a->env); /* the preparer is at it */
    }
}

/* All segments that the log will have with its new end, which must lie inside one. */
static enum tern_code need_segments(struct appender *a, int64_t end, bool nowait,
                                    struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    int64_t bytes = a->options.log->segments.bytes;
    int64_t began_ns = clock_mono_ns(a->env->clock);
    int64_t base = appender_active_end(a);
    for (; base <= end && !code; base += bytes)
        code = need_segment(a, base, nowait);
    if (base > appender_active_end(a) && !code)
        histogram_add(&a->stats.switch_ns, clock_mono_ns(a->env->clock) - began_ns);
    if (code && code != TERN_AGAIN)
        error_set(err, code, "no segment for log offset %" PRId64, end);
    return code;
}

/* Writes at the end, from segment to segment; the active one is that of the new end. */
static enum tern_code write_bytes(struct appender *a, const uint8_t *bytes, size_t size)
{
    int64_t end = a->end;
    for (;;) {
        int64_t room = appender_active_end(a) - end;
        size_t part = (int64_t)size < room ? size : (size_t)room;
        enum tern_code code =
            part > 0 ? file_pwrite(a->active->file, bytes, part, end - a->active->base) : TERN_OK;
        if (code)
            return code;
        bytes += part;
        size -= part;
        end += (int64_t)part;
        if (end < appender_active_end(a))
            return TERN_OK;
        struct segment *next = segments_find(&a->options.log->segments, end);
        ENSURE(next != NULL);
        segment_unref(a->active);
        a->active = next;
        a->want_told = false;
    }
}

/* What can be said against the bytes before anything is done. */
static enum tern_code check_bytes(struct appender *a, int64_t phys_off, const uint8_t *bytes,
                                  size_t size, struct log_frame *frame, struct tern_error *err)
{
    int64_t bad = 0;
    if (phys_off != a->end || (int64_t)size > INT64_MAX / 2 - a->end)
        return error_set(err, TERN_INVALID,
                         "bytes for log offset %" PRId64 ", but the log ends at %" PRId64, phys_off,
                         a->end);
    enum tern_code code = gate_check(a->options.gate);
    if (code == TERN_NO_SPACE)
        return error_set(err, code, "the disk is too full for more of the log");
    if (code)
        return error_set(err, code, "the store is read-only: %s", gate_latch_text(a->options.gate));
    *frame = a->frame;
    if (!log_frame_take(frame, a->end, bytes, size, &bad))
        return error_set(
            err, TERN_CORRUPT,
            "no record of this log begins at log offset %" PRId64 " in the bytes that came", bad);
    return TERN_OK;
}

/* @thread the token's holder */
static enum tern_code append_bytes(struct appender *a, int64_t phys_off, const uint8_t *bytes,
                                   size_t size, bool nowait, struct tern_error *err)
{
    struct log_frame frame;
    int64_t whole = a->frame.start;
    enum tern_code code = check_bytes(a, phys_off, bytes, size, &frame, err);
    if (!code)
        code = need_segments(a, phys_off + (int64_t)size, nowait, err);
    if (code || size == 0)
        return code;
    int64_t began_ns = clock_mono_ns(a->env->clock);
    code = write_bytes(a, bytes, size);
    histogram_add(&a->stats.write_ns, clock_mono_ns(a->env->clock) - began_ns);
    if (code) {
        gate_latch(a->options.gate, code, "a write to the commit log failed");
        return error_set(err, TERN_SERVICE_NOT_AVAILABLE,
                         "writing the commit log at %" PRId64 " failed", phys_off);
    }
    a->end += (int64_t)size;
    a->frame = frame;
    a->offsets_unknown = true;
    commit_log_publish(a->options.log, a->end, frame.start, frame.store_ms);
    flusher_appended(a->options.flusher);
    counter_add(&a->stats.bytes, size);
    appender_want_next(a);
    if (frame.start == whole)
        return TERN_OK;
    dispatcher_follow(a->options.dispatcher);
    const struct store_observer *observer = &a->options.gate->observer;
    if (observer->on_end)
        observer->on_end(observer->arg, frame.start);
    return TERN_OK;
}

enum tern_code appender_append_bytes(struct appender *a, int64_t phys_off, const uint8_t *bytes,
                                     size_t size, bool nowait, struct tern_error *err)
{
    enum tern_code code = appender_hold(a, nowait);
    if (code)
        return code;
    code = append_bytes(a, phys_off, bytes, size, nowait, err);
    appender_let_go(a);
    return code;
}
