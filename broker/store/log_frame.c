/*
 * Following the framing of a log that arrives as bytes.
 *
 *   segment │ record │ record │ filler ……… │ record │ rec
 *                                                   ▲   ▲
 *                                               start   end of what has come
 *
 * A record's head is looked at as soon as enough of it is there, first its size and magic, then
 * the offset at which it says it stands: bytes of another log, or of another place of this one, are
 * found out there. Whole records inside a chunk cost one look each and no copy; only a head that a
 * chunk cuts is put together in `head`.
 *
 * Invariants: a record leaves room for a filler's head in its segment; a filler reaches the
 * segment's end; start + size is never beyond it. Threads: the owner's. Failure modes: none.
 */
#include "broker/store/log_frame.h"

#include <string.h>

#include "base/bytes.h"
#include "base/record.h"

enum { SIZE_KNOWN_BYTES = 8, PLACE_AT = 28, PLACE_KNOWN_BYTES = 36 };

void log_frame_init(struct log_frame *frame, int64_t segment_bytes, int64_t at)
{
    *frame = (struct log_frame){.segment_bytes = segment_bytes, .start = at};
}

static int64_t left_in_segment(const struct log_frame *frame)
{
    return frame->segment_bytes - frame->start % frame->segment_bytes;
}

/* Judges the head's first eight bytes. */
static bool take_size(struct log_frame *frame, const uint8_t *head)
{
    int64_t left = left_in_segment(frame);
    uint32_t magic = get_be32(head + 4);
    frame->size = get_be32(head);
    frame->filler = magic == BLANK_MAGIC;
    if (frame->filler)
        return frame->size == left;
    return magic == RECORD_MAGIC && frame->size >= RECORD_FIXED_BYTES &&
           frame->size + RECORD_BLANK_BYTES <= left;
}

/* Everything that `count` bytes of a head can tell; store_ms is taken from a whole one. */
static bool take_head(struct log_frame *frame, const uint8_t *head, size_t count, int64_t *store_ms)
{
    struct record_head parsed;
    if (count < SIZE_KNOWN_BYTES)
        return true;
    if (!take_size(frame, head))
        return false;
    if (frame->filler || count < PLACE_KNOWN_BYTES)
        return true;
    if ((int64_t)get_be64(head + PLACE_AT) != frame->start)
        return false;
    if (count < RECORD_HEAD_BYTES)
        return true;
    if (!record_head_parse(head, frame->start, &parsed) || parsed.queue_off < 0)
        return false;
    *store_ms = parsed.store_ms;
    return true;
}

/* The record or filler is all there. */
static void next(struct log_frame *frame, int64_t store_ms)
{
    if (!frame->filler)
        frame->store_ms = store_ms;
    frame->start += frame->size;
    frame->size = 0;
    frame->head_bytes = 0;
    frame->filler = false;
}

/* The beginning of `bytes`, which goes on with a head that an earlier chunk began. */
static bool take_rest_of_head(struct log_frame *frame, const uint8_t *bytes, size_t size)
{
    size_t more = RECORD_HEAD_BYTES - frame->head_bytes;
    int64_t unused = 0;
    memcpy(frame->head + frame->head_bytes, bytes, more < size ? more : size);
    frame->head_bytes += more < size ? more : size;
    return take_head(frame, frame->head, frame->head_bytes, &unused);
}

bool log_frame_take(struct log_frame *frame, int64_t end, const uint8_t *bytes, size_t size,
                    int64_t *bad)
{
    const int64_t limit = end + (int64_t)size;
    while (end < limit) {
        const uint8_t *at = bytes + size - (size_t)(limit - end);
        size_t avail = (size_t)(limit - end);
        int64_t store_ms = 0;
        *bad = frame->start;
        if (end == frame->start) { /* a head begins with these bytes */
            if (!take_head(frame, at, avail, &store_ms))
                return false;
            if (frame->size == 0 || frame->size > (int64_t)avail) {
                frame->head_bytes = avail < RECORD_HEAD_BYTES ? avail : RECORD_HEAD_BYTES;
                memcpy(frame->head, at, frame->head_bytes);
                return true;
            }
        } else {
            if (frame->head_bytes < RECORD_HEAD_BYTES && !frame->filler &&
                !take_rest_of_head(frame, at, avail))
                return false;
            if (frame->size == 0 || frame->start + frame->size > limit)
                return true;
            struct record_head parsed;
            if (!frame->filler && record_head_parse(frame->head, frame->start, &parsed))
                store_ms = parsed.store_ms;
        }
        end = frame->start + frame->size;
        next(frame, store_ms);
    }
    return true;
}
