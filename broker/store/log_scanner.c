/*
 * The scanner.
 *
 * Place: recovery reads the log's last segments with it; it trusts nothing in them. A record counts
 * only when its lengths add up, its body's CRC fits, it says the offset at which it stands, its
 * topic has no control characters and it leaves room for a filler behind it, as the appender always
 * does. A filler counts only when it reaches the segment's end.
 *
 * The CRC covers the body only, so a record whose properties did not reach the disk looks whole,
 * with zeros in their place. Where bytes may be missing (behind unsure_from, and in the last
 * record) a NUL in the properties therefore makes a record bad; brokers do not take properties with
 * NUL.
 *
 * Invariants: the buffer holds [buffer_off, buffer_off + filled) of `segment`; it grows to the
 * largest record met, which is never longer than a segment, whatever maxMessageSize is now.
 * Threads: one. Failure modes: an error of the disk ends the scan with its code; what lies behind a
 * segment file's end (a short last segment) reads as zeros.
 */
#include "broker/store/log_scanner.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { CHUNK_BYTES = 1 << 20 };

enum tern_code log_scanner_init(struct log_scanner *s, struct segments *set)
{
    memset(s, 0, sizeof *s);
    s->set = set;
    s->unsure_from = INT64_MAX;
    s->capacity = CHUNK_BYTES;
    s->buffer = malloc(s->capacity);
    return s->buffer ? TERN_OK : TERN_NO_MEMORY;
}

void log_scanner_fini(struct log_scanner *s)
{
    segment_unref(s->segment);
    free(s->buffer);
    memset(s, 0, sizeof *s);
}

static int64_t segment_end(const struct log_scanner *s)
{
    return s->segment->base + s->set->bytes;
}

/* Makes `want` bytes at phys_off readable in the buffer, fewer at the segment's end; false: no
 * segment. */
static enum tern_code fill(struct log_scanner *s, int64_t phys_off, size_t want, bool *there)
{
    *there = true;
    bool same = s->segment && phys_off >= s->segment->base && phys_off < segment_end(s);
    if (!same) {
        segment_unref(s->segment);
        s->segment = segments_find(s->set, phys_off);
        s->filled = 0;
        *there = s->segment != NULL;
        if (!*there)
            return TERN_OK;
    }
    if ((int64_t)want > segment_end(s) - phys_off)
        want = (size_t)(segment_end(s) - phys_off);
    if (s->filled > 0 && phys_off >= s->buffer_off &&
        phys_off + (int64_t)want <= s->buffer_off + (int64_t)s->filled)
        return TERN_OK;
    if (want > s->capacity) {
        uint8_t *buffer = realloc(s->buffer, want);
        if (!buffer)
            return TERN_NO_MEMORY;
        s->buffer = buffer;
        s->capacity = want;
    }
    size_t size = s->capacity;
    if ((int64_t)size > segment_end(s) - phys_off)
        size = (size_t)(segment_end(s) - phys_off);
    size_t got = 0;
    enum tern_code code =
        file_pread(s->segment->file, s->buffer, size, phys_off - s->segment->base, &got);
    s->filled = 0;
    if (code)
        return code;
    memset(s->buffer + got, 0, size - got);
    s->buffer_off = phys_off;
    s->filled = size;
    return TERN_OK;
}

static const uint8_t *bytes_at(const struct log_scanner *s, int64_t phys_off, size_t *avail)
{
    size_t skip = (size_t)(phys_off - s->buffer_off);
    *avail = s->filled - skip;
    return s->buffer + skip;
}

static bool topic_is_text(const struct record *record)
{
    for (uint8_t i = 0; i < record->topic_len; i++)
        if (record->topic[i] <= ' ' || record->topic[i] == 0x7F)
            return false;
    return record->topic_len > 0;
}

/* Judges what record_parse() saw by where it stands. */
static enum scan_state judge(const struct log_scanner *s, int64_t phys_off,
                             enum record_state parsed, const struct record *record,
                             const uint8_t *bytes, size_t avail)
{
    int64_t left = segment_end(s) - phys_off;
    if (parsed == RECORD_BLANK && record->total_size == left)
        return SCAN_BLANK;
    if (parsed == RECORD_WHOLE && record->phys_off == phys_off && topic_is_text(record) &&
        (int64_t)record->total_size + RECORD_BLANK_BYTES <= left) {
        bool unsure = phys_off + (int64_t)record->total_size > s->unsure_from;
        return unsure && log_scanner_has_nul(record) ? SCAN_BAD : SCAN_RECORD;
    }
    static const uint8_t zeros[RECORD_BLANK_BYTES];
    if (avail >= sizeof zeros && memcmp(bytes, zeros, sizeof zeros) == 0)
        return SCAN_ZEROS;
    return SCAN_BAD;
}

bool log_scanner_has_nul(const struct record *record)
{
    return memchr(record->props, 0, record->props_len) != NULL;
}

enum tern_code log_scanner_at(struct log_scanner *s, int64_t phys_off, enum scan_state *state,
                              struct record *record)
{
    bool there = false;
    size_t want = RECORD_FIXED_BYTES;
    for (;;) {
        enum tern_code code = fill(s, phys_off, want, &there);
        if (code)
            return code;
        if (!there) {
            *state = SCAN_END;
            return TERN_OK;
        }
        size_t avail;
        const uint8_t *bytes = bytes_at(s, phys_off, &avail);
        enum record_state parsed = record_parse(bytes, avail, (size_t)s->set->bytes, true, record);
        size_t size = avail >= 4 ? get_be32(bytes) : 0;
        /* Read on only for a length that can still turn out right. */
        if (parsed == RECORD_PARTIAL && size > avail && size <= (size_t)s->set->bytes &&
            (int64_t)size <= segment_end(s) - phys_off) {
            want = size;
            continue;
        }
        *state = judge(s, phys_off, parsed, record, bytes, avail);
        return TERN_OK;
    }
}

/* The next offset from phys_off on, in this segment, where a record's magic stands 4 bytes further;
 * -1. */
static enum tern_code next_magic(struct log_scanner *s, int64_t phys_off, int64_t *found)
{
    uint8_t magic[4];
    put_be32(magic, RECORD_MAGIC);
    *found = -1;
    while (*found < 0) {
        bool there = false;
        enum tern_code code = fill(s, phys_off, RECORD_FIXED_BYTES, &there);
        if (code || !there)
            return code;
        size_t avail;
        const uint8_t *bytes = bytes_at(s, phys_off, &avail);
        if (avail < 4 + sizeof magic)
            return TERN_OK;
        const uint8_t *hit = memmem(bytes + 4, avail - 4, magic, sizeof magic);
        if (hit)
            *found = phys_off + (hit - 4 - bytes);
        else if (phys_off + (int64_t)avail >= segment_end(s))
            return TERN_OK;
        phys_off += (int64_t)avail - 7; /* the magic may lie across the buffer's end */
    }
    return TERN_OK;
}

enum tern_code log_scanner_find(struct log_scanner *s, int64_t from, int64_t *found,
                                struct record *record)
{
    int64_t at = from;
    *found = -1;
    for (;;) {
        int64_t candidate = -1;
        enum tern_code code = next_magic(s, at, &candidate);
        if (code)
            return code;
        if (!s->segment)
            return TERN_OK;
        if (candidate < 0) {
            at = segment_end(s);
            continue;
        }
        enum scan_state state;
        code = log_scanner_at(s, candidate, &state, record);
        if (code)
            return code;
        if (state == SCAN_RECORD) {
            *found = candidate;
            return TERN_OK;
        }
        at = candidate + 1;
    }
}

enum tern_code log_scanner_last_byte(struct log_scanner *s, int64_t from, int64_t *end)
{
    *end = from;
    int64_t at = from;
    for (;;) {
        bool there = false;
        enum tern_code code = fill(s, at, CHUNK_BYTES, &there);
        if (code || !there)
            return code;
        size_t avail;
        const uint8_t *bytes = bytes_at(s, at, &avail);
        size_t used = avail;
        if (bytes[0] == 0 && memcmp(bytes, bytes + 1, avail - 1) == 0)
            used = 0;
        while (used > 0 && bytes[used - 1] == 0)
            used--;
        if (used > 0)
            *end = at + (int64_t)used;
        at = used > 0 ? at + (int64_t)avail : segment_end(s);
    }
}
