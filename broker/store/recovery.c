/*
 * Recovery of the log itself; queues and index follow it (store.c).
 *
 * Where the check begins (facts 3.2, 3.3): after a clean stop at the third-last segment; after a
 * crash at the newest segment whose first record was stored no later than the checkpoint's time
 * less its margin, else at the first; and never behind the flush mark's segment.
 *
 * Where the log ends: at the first place that is neither a whole record saying its own offset nor a
 * filler reaching the segment's end. What lies behind is one of:
 *
 *   - nothing, or a torn tail: bytes that were written but not flushed when the power went. They
 * were not acknowledged under SYNC_FLUSH, and under ASYNC_FLUSH they are the documented window.
 * Whole records may stand behind a hole there, because pages reach the disk in any order. All of it
 * is cut.
 *   - damage: a place that had been flushed is not whole any more, with whole records behind it.
 * Cutting would silently lose acknowledged messages, so the store refuses to open (TERN_CORRUPT)
 * and nothing is changed; what to give up is a person's decision (docs/store-format.md).
 *
 * The evidence that a bad place had been flushed, any one suffices when a whole record lies behind
 * it:
 *   1. it lies before the flush mark, which is written after each flush and says what was synced,
 *      and is no record that goes on behind the mark;
 *   2. a whole record behind it was stored before the checkpoint's physicMsgTimestamp less the
 * margin: that time is written only after everything stored before it was synced;
 *   3. there is no flush mark (a RocketMQ store, or the file is lost) and a later segment begins
 * with a whole record: segments are filled and flushed in order. A damaged last record, without
 * whole ones behind, is cut even before the mark: there is nothing to save by refusing. It is
 * logged as an error, since something that had been flushed is lost; but not when it is a record
 * that goes on behind the mark. That is how a copy's log ends, which takes bytes as they come.
 *
 * The cut (log_cut.c): later segments are deleted, last first; the segment of the end is truncated
 * there and reserved to its full length again, so that everything behind reads as zeros; all is
 * synced before the first append. Old records behind a cut therefore never come back. A cut that is
 * itself interrupted is found again.
 *
 * Threads: the opening one. Failure modes: TERN_CORRUPT above; any error of the disk ends the
 * opening, with the log as it was or partly cut.
 */
#include "broker/store/recovery.h"

#include <errno.h>
#include <inttypes.h>

#include "base/bytes.h"
#include "base/log.h"
#include "broker/store/log_cut.h"
#include "broker/store/log_scanner.h"
#include "broker/store/preparer.h"
#include "broker/store/record_head.h"

enum { CLEAN_SEGMENTS = 3 };

static uint32_t segment_index(struct segments *set, int64_t phys_off)
{
    struct segment *first = segments_first(set);
    int64_t index = first ? (phys_off - first->base) / set->bytes : 0;
    segment_unref(first);
    int64_t last = (int64_t)segments_count(set) - 1;
    index = index > last ? last : index;
    return index > 0 ? (uint32_t)index : 0;
}

/* Index of the segment where the check begins. */
static uint32_t first_to_check(const struct recovery_input *input)
{
    struct segments *set = &input->log->segments;
    uint32_t count = segments_count(set);
    uint32_t from = 0;
    if (input->clean) {
        from = count > CLEAN_SEGMENTS ? count - CLEAN_SEGMENTS : 0;
    } else {
        int64_t safe_ms = checkpoint_min_ms(&input->checkpoint);
        for (uint32_t i = count; i > 0 && from == 0; i--) {
            struct segment *segment = segments_at(set, i - 1);
            int64_t first_ms = segment_first_ms(segment);
            segment_unref(segment);
            if (first_ms > 0 && first_ms <= safe_ms)
                from = i - 1;
        }
    }
    uint32_t marked = input->mark_known ? segment_index(set, input->mark) : from;
    return marked < from ? marked : from;
}

/*
 * Walks over whole records from result->checked_from; *why is what it met at result->end. The last
 * record is looked at twice: nothing behind it says that it is whole. *behind is where others can
 * begin after it.
 */
static enum tern_code walk(struct log_scanner *scanner, struct recovery_result *result,
                           enum scan_state *why, int64_t *behind)
{
    int64_t at = result->checked_from;
    int64_t last_off = at;
    int64_t prior_ms = 0; /* newest store time before the last record's */
    bool doubtful = false;
    for (;;) {
        struct record record;
        enum tern_code code = log_scanner_at(scanner, at, why, &record);
        if (code)
            return code;
        if (*why == SCAN_RECORD) {
            last_off = at;
            doubtful = log_scanner_has_nul(&record);
            prior_ms = result->last_store_ms;
            if (record.store_ms > result->last_store_ms)
                result->last_store_ms = record.store_ms;
            at += record.total_size;
        } else if (*why == SCAN_BLANK) {
            doubtful = false;
            at = scanner->segment->base + scanner->set->bytes;
        } else {
            break;
        }
    }
    if (doubtful) {
        *why = SCAN_BAD;
        result->last_store_ms = prior_ms;
    }
    result->end = doubtful ? last_off : at;
    *behind = at;
    return TERN_OK;
}

/*
 * Whether what stands at the end is the beginning of a record that goes on behind the mark: a
 * copy's bytes come cut anywhere, and its source has the rest.
 */
static enum tern_code is_partial(const struct recovery_input *input,
                                 const struct recovery_result *result, bool *partial)
{
    uint8_t head[RECORD_HEAD_BYTES] = {0};
    int64_t there = input->mark - result->end;
    struct segment *segment = segments_find(&input->log->segments, result->end);
    *partial = false;
    if (!segment || !input->mark_known || there <= 0) {
        segment_unref(segment);
        return TERN_OK;
    }
    size_t got = 0;
    int64_t at = result->end - segment->base;
    enum tern_code code = file_pread(segment->file, head, sizeof head, at, &got);
    segment_unref(segment);
    if (code)
        return code;
    enum { SIZE_AND_MAGIC = 8, PLACE_AT = 28, WITH_PLACE = 36 };
    *partial = there < SIZE_AND_MAGIC ||
               (get_be32(head + 4) == RECORD_MAGIC && get_be32(head) > there &&
                (there < WITH_PLACE || (int64_t)get_be64(head + PLACE_AT) == result->end));
    return TERN_OK;
}

/* Whether some segment behind the one of `end` begins with a whole record. */
static enum tern_code later_segment_begins(struct log_scanner *scanner, int64_t end, bool *begins)
{
    *begins = false;
    int64_t bytes = scanner->set->bytes;
    for (int64_t base = (end / bytes + 1) * bytes; !*begins; base += bytes) {
        enum scan_state state;
        struct record record;
        enum tern_code code = log_scanner_at(scanner, base, &state, &record);
        if (code || state == SCAN_END)
            return code;
        *begins = state == SCAN_RECORD;
    }
    return TERN_OK;
}

/* Whether what lies behind the end is damage; *behind: where to look, then a whole record there or
 * -1. */
static enum tern_code is_damage(const struct recovery_input *input, struct log_scanner *scanner,
                                const struct recovery_result *result, bool partial, bool *damage,
                                int64_t *behind)
{
    int64_t physic_ms = input->checkpoint.physic_ms - CHECKPOINT_MARGIN_MS;
    bool before_mark = input->mark_known && result->end < input->mark && !partial;
    int64_t from = *behind;
    *damage = false;
    *behind = -1;
    /* Store times only grow: nothing behind can be older than what was seen last. */
    if (input->mark_known && !before_mark && result->last_store_ms >= physic_ms)
        return TERN_OK;
    struct record record;
    enum tern_code code = log_scanner_find(scanner, from, behind, &record);
    if (code || *behind < 0)
        return code;
    *damage = before_mark || record.store_ms < physic_ms;
    if (!*damage && !input->mark_known)
        code = later_segment_begins(scanner, result->end, damage);
    return code;
}

/* Refuses, or reports what a read-only opening only looks at. */
static enum tern_code on_damage(const struct recovery_input *input, int64_t end, int64_t behind,
                                struct tern_error *err)
{
    const struct segments *set = &input->log->segments;
    int64_t base = end / set->bytes * set->bytes;
    if (input->read_only) {
        log_warn(set->env->log, "store.damaged",
                 "segment=%020" PRId64 " byte=%" PRId64 " next_whole_record=%" PRId64, base,
                 end - base, behind);
        return TERN_OK;
    }
    return error_set(err, TERN_CORRUPT,
                     "%s/%020" PRId64 ": no whole record at byte %" PRId64 " (log offset %" PRId64
                     "), which had been flushed, and whole records follow from log offset %" PRId64
                     "; nothing was changed; put the segment back from a copy, or move it and the "
                     "later ones out of this folder to go on without their messages",
                     set->dir, base, end - base, end, behind);
}

/* What is cut is said once, louder when it had been flushed. */
static void report_tail(const struct recovery_input *input, const struct recovery_result *result,
                        bool partial)
{
    struct log *log = input->log->env->log;
    if (partial)
        log_info(log, "store.partial_record", "end=%" PRId64 " cut_bytes=%" PRId64, result->end,
                 result->cut_bytes);
    else if (input->mark_known && result->end < input->mark)
        log_error(log, "store.flushed_bytes_lost",
                  "end=%" PRId64 " flushed_before=%" PRId64 " cut_bytes=%" PRId64, result->end,
                  input->mark, result->cut_bytes);
    else if (result->cut_bytes > 0)
        log_warn(log, "store.torn_tail", "end=%" PRId64 " cut_bytes=%" PRId64, result->end,
                 result->cut_bytes);
}

enum tern_code recovery_scan(const struct recovery_input *input, struct recovery_result *result,
                             struct tern_error *err)
{
    struct segments *set = &input->log->segments;
    *result = (struct recovery_result){0};
    struct segment *from = segments_at(set, first_to_check(input));
    if (!from)
        return TERN_OK; /* an empty log begins at 0 */
    result->checked_from = from->base;
    segment_unref(from);
    struct log_scanner scanner;
    enum tern_code code = log_scanner_init(&scanner, set);
    enum scan_state why = SCAN_END;
    int64_t behind = -1;
    if (!code) {
        if (input->mark_known)
            scanner.unsure_from = input->mark;
        code = walk(&scanner, result, &why, &behind);
    }
    result->as_closed =
        input->clean && input->mark_known && input->mark == result->end && why != SCAN_BAD;
    if (!code && !result->as_closed) {
        bool damage = false;
        int64_t last = result->end;
        bool partial = false;
        code = is_partial(input, result, &partial);
        if (!code)
            code = is_damage(input, &scanner, result, partial, &damage, &behind);
        if (!code)
            code = log_scanner_last_byte(&scanner, result->end, &last);
        result->cut_bytes = last - result->end;
        if (!code && damage)
            code = on_damage(input, result->end, behind, err);
        else if (!code)
            report_tail(input, result, partial);
    }
    log_scanner_fini(&scanner);
    if (code && code != TERN_CORRUPT)
        error_set_errno(err, code, errno, "%s: cannot read", set->dir);
    return code;
}

/* ---- the cut ---- */

/* Syncs the segments that may hold what was not flushed, and the directory. */
static enum tern_code sync_checked(struct segments *set, int64_t from, struct tern_error *err)
{
    uint32_t count = segments_count(set);
    for (uint32_t i = segment_index(set, from); i < count; i++) {
        struct segment *segment = segments_at(set, i);
        enum tern_code code = file_sync(segment->file);
        if (code)
            error_set_errno(err, code, errno, "%s/%020" PRId64 ": cannot sync", set->dir,
                            segment->base);
        segment_unref(segment);
        if (code)
            return code;
    }
    enum tern_code code = fs_sync_dir(set->env->fs, set->dir);
    return code ? error_set_errno(err, code, errno, "%s: cannot sync", set->dir) : TERN_OK;
}

/* The segment that the next record goes into, when the log ends where none begins. */
static enum tern_code open_end(struct commit_log *log, int64_t end, struct tern_error *err)
{
    struct segment *last = segments_last(&log->segments);
    bool there = last && end < last->base + log->segments.bytes;
    segment_unref(last);
    return there ? TERN_OK : preparer_first_segment(log, end, err);
}

enum tern_code recovery_cut(const struct recovery_input *input,
                            const struct recovery_result *result, struct tern_error *err)
{
    struct commit_log *log = input->log;
    struct segments *set = &log->segments;
    enum tern_code code = TERN_OK;
    if (!input->read_only && !result->as_closed) {
        code = log_cut_files(set, result->end, err);
        if (!code)
            code = sync_checked(set, result->checked_from, err);
    }
    if (!code && !input->read_only)
        code = open_end(log, result->end, err);
    if (code)
        return code;
    struct segment *first = segments_first(set);
    int64_t min = first ? first->base : 0;
    segment_unref(first);
    commit_log_set_range(log, min, result->end, result->end, result->last_store_ms);
    return TERN_OK;
}
