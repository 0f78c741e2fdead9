/*
 * The reader of logs.
 *
 * Invariants: the buffer holds [buffer_off, buffer_off + filled) of the open segment; what a file
 * lacks of its length reads as zeros. Looking behind damage stops at the first record found, which
 * is remembered, so that a run of records with bad bodies is not searched again for each.
 *
 * Threads: one. Failure modes: an error of the disk ends the reading with its code and the file's
 * name.
 */
#include "tools/mqstore/log_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tools/mqstore/memory.h"

enum { CHUNK_BYTES = 1 << 20, NO_SEGMENT = -1 };

int64_t log_reader_min(const struct store_dir *dir)
{
    return dir->segment_count ? dir->segments[0].base : 0;
}

void log_reader_init(struct log_reader *r, const struct store_dir *dir, int64_t from)
{
    int64_t min = log_reader_min(dir);
    memset(r, 0, sizeof *r);
    r->dir = dir;
    r->at = from > min ? from : min;
    r->limit = store_dir_is_live(dir) && dir->mark_known ? dir->mark : INT64_MAX;
    r->known_good = -1;
    r->capacity = CHUNK_BYTES;
    r->buffer = tool_alloc(1, r->capacity);
}

void log_reader_fini(struct log_reader *r)
{
    file_close(r->file);
    free(r->buffer);
    memset(r, 0, sizeof *r);
}

/* ---- bytes ---- */

/* The last segment that begins at or before `at`; NO_SEGMENT: none does. */
static int64_t segment_before(const struct store_dir *dir, int64_t at)
{
    int64_t low = 0;
    int64_t high = (int64_t)dir->segment_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (dir->segments[middle].base <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static int64_t segment_end(const struct log_reader *r, int64_t segment)
{
    return r->dir->segments[segment].base + r->dir->segment_bytes;
}

static enum tern_code open_segment(struct log_reader *r, uint32_t segment, struct tern_error *err)
{
    char name[STORE_NAME_BYTES];
    if (r->file && r->segment == segment)
        return TERN_OK;
    file_close(r->file);
    r->file = NULL;
    r->filled = 0;
    r->segment = segment;
    store_dir_segment_name(name, r->dir->segments[segment].base);
    enum tern_code code = store_dir_open_file(r->dir, name, &r->file);
    return code ? store_dir_io_error(r->dir, name, code, err) : TERN_OK;
}

/* Makes `want` bytes at `at` readable, fewer at the segment's end; *avail of them at *bytes. */
static enum tern_code fill(struct log_reader *r, int64_t segment, int64_t at, size_t want,
                           const uint8_t **bytes, size_t *avail, struct tern_error *err)
{
    enum tern_code code = open_segment(r, (uint32_t)segment, err);
    if (code)
        return code;
    int64_t left = segment_end(r, segment) - at;
    if ((int64_t)want > left)
        want = (size_t)left;
    if (r->filled == 0 || at < r->buffer_off ||
        at + (int64_t)want > r->buffer_off + (int64_t)r->filled) {
        if (want > r->capacity) {
            r->buffer = tool_resize(r->buffer, want, 1);
            r->capacity = want;
        }
        size_t size = (int64_t)r->capacity > left ? (size_t)left : r->capacity;
        size_t got = 0;
        r->filled = 0;
        code = file_pread(r->file, r->buffer, size, at - r->dir->segments[segment].base, &got);
        if (code) {
            char name[STORE_NAME_BYTES];
            store_dir_segment_name(name, r->dir->segments[segment].base);
            return store_dir_io_error(r->dir, name, code, err);
        }
        memset(r->buffer + got, 0, size - got);
        r->buffer_off = at;
        r->filled = size;
    }
    size_t skip = (size_t)(at - r->buffer_off);
    *bytes = r->buffer + skip;
    *avail = r->filled - skip;
    return TERN_OK;
}

/* ---- judging one place ---- */

static const char *why_not(const uint8_t *bytes, size_t avail)
{
    static const uint8_t zeros[RECORD_BLANK_BYTES];
    if (avail < sizeof zeros)
        return "less than a filler's room";
    if (memcmp(bytes, zeros, sizeof zeros) == 0)
        return "zeros";
    uint32_t magic = get_be32(bytes + 4);
    if (magic == BLANK_MAGIC)
        return "a filler that does not end where the segment does";
    return magic == RECORD_MAGIC ? "a record whose lengths do not add up" : "no record's magic";
}

/* What stands at `at` in that segment, without a look behind it: any kind but LOG_END. */
static enum tern_code judge(struct log_reader *r, int64_t segment, int64_t at,
                            struct log_item *item, struct tern_error *err)
{
    int64_t left = segment_end(r, segment) - at;
    size_t want = RECORD_FIXED_BYTES;
    enum record_state state;
    const uint8_t *bytes;
    size_t avail;
    for (;;) {
        enum tern_code code = fill(r, segment, at, want, &bytes, &avail, err);
        if (code)
            return code;
        state = record_parse(bytes, avail, (size_t)left, false, &item->record);
        size_t size = avail >= 4 ? get_be32(bytes) : 0;
        if (state != RECORD_PARTIAL || size <= avail || (int64_t)size > left)
            break;
        want = size; /* the length may still turn out right */
    }
    const struct record *record = &item->record;
    item->phys_off = at;
    item->size_bytes = record->total_size;
    item->bytes = bytes;
    item->why = NULL;
    if (state == RECORD_BLANK && record->total_size == left) {
        item->kind = LOG_BLANK;
    } else if (state == RECORD_WHOLE && record->total_size + RECORD_BLANK_BYTES <= left) {
        item->kind = LOG_RECORD;
        if (record->phys_off != at)
            item->kind = LOG_BAD_POSITION;
        else if (record->body_len > 0 &&
                 record_body_crc(record->body, record->body_len) != record->body_crc)
            item->kind = LOG_BAD_CRC;
    } else {
        item->kind = LOG_DAMAGE;
        item->why = why_not(bytes, avail);
    }
    return TERN_OK;
}

/* ---- looking behind damage ---- */

/* The first whole record in [at, the segment's end); -1: none. */
static enum tern_code find_in_segment(struct log_reader *r, int64_t segment, int64_t at,
                                      int64_t *found, struct tern_error *err)
{
    uint8_t magic[4];
    int64_t end = segment_end(r, segment);
    put_be32(magic, RECORD_MAGIC);
    *found = -1;
    while (at + RECORD_FIXED_BYTES <= end) {
        const uint8_t *bytes;
        size_t avail;
        struct log_item item;
        enum tern_code code = fill(r, segment, at, RECORD_FIXED_BYTES, &bytes, &avail, err);
        if (code)
            return code;
        const uint8_t *hit = memmem(bytes + 4, avail - 4, magic, sizeof magic);
        if (!hit) {
            at += (int64_t)avail - 7; /* the magic may lie across the buffer's end */
            continue;
        }
        at += hit - 4 - bytes;
        code = judge(r, segment, at, &item, err);
        if (code)
            return code;
        if (item.kind == LOG_RECORD) {
            *found = at;
            return TERN_OK;
        }
        at++;
    }
    return TERN_OK;
}

/* The first whole record from `at` on in the whole log; -1: none. */
static enum tern_code find_good(struct log_reader *r, int64_t at, int64_t *found,
                                struct tern_error *err)
{
    *found = r->known_good;
    if (*found >= at)
        return TERN_OK;
    *found = -1;
    int64_t segment = segment_before(r->dir, at);
    bool live_end = store_dir_is_live(r->dir) && !r->dir->mark_known;
    for (; segment < (int64_t)r->dir->segment_count && *found < 0; segment++) {
        int64_t base = segment < 0 ? at : r->dir->segments[segment].base;
        if (segment < 0 || at >= segment_end(r, segment))
            continue;
        bool here = at > base; /* in this segment the broker may be writing */
        enum tern_code code = TERN_OK;
        if (!here || !live_end)
            code = find_in_segment(r, segment, here ? at : base, found, err);
        if (code)
            return code;
    }
    if (*found >= r->limit)
        *found = -1;
    r->known_good = *found;
    return TERN_OK;
}

/* Behind the last byte from `at` on that is not zero; `at` when all are. */
static enum tern_code find_tail_end(struct log_reader *r, int64_t at, int64_t *end,
                                    struct tern_error *err)
{
    *end = at;
    for (int64_t segment = segment_before(r->dir, at);
         segment >= 0 && segment < (int64_t)r->dir->segment_count; segment++) {
        int64_t from = r->dir->segments[segment].base;
        from = at > from ? at : from;
        while (from < segment_end(r, segment)) {
            const uint8_t *bytes;
            size_t avail;
            enum tern_code code = fill(r, segment, from, CHUNK_BYTES, &bytes, &avail, err);
            if (code)
                return code;
            size_t used = bytes[0] == 0 && memcmp(bytes, bytes + 1, avail - 1) == 0 ? 0 : avail;
            while (used > 0 && bytes[used - 1] == 0)
                used--;
            if (used > 0)
                *end = from + (int64_t)used;
            from += (int64_t)avail;
        }
    }
    return TERN_OK;
}

/* ---- the walk ---- */

static enum tern_code end_here(struct log_reader *r, const char *why, struct log_item *item,
                               struct tern_error *err)
{
    *item = (struct log_item){.kind = LOG_END, .phys_off = r->at, .tail_end = r->at, .why = why};
    r->limit = r->at;
    if (store_dir_is_live(r->dir) || !why)
        return TERN_OK;
    return find_tail_end(r, r->at, &item->tail_end, err);
}

/* No segment holds the place; `next` is the one behind it. */
static enum tern_code no_segment(struct log_reader *r, int64_t next, struct log_item *item,
                                 struct tern_error *err)
{
    int64_t found = -1;
    enum tern_code code = find_good(r, r->at, &found, err);
    if (code)
        return code;
    if (found < 0)
        return end_here(r, NULL, item, err);
    *item = (struct log_item){.kind = LOG_NO_SEGMENT, .phys_off = r->at};
    item->size_bytes = r->dir->segments[next].base - r->at;
    r->at += item->size_bytes;
    return TERN_OK;
}

/* What judge() did not like. */
static enum tern_code step_over(struct log_reader *r, int64_t segment, struct log_item *item,
                                struct tern_error *err)
{
    int64_t found = -1;
    bool framed = item->kind == LOG_BAD_CRC || item->kind == LOG_BAD_POSITION;
    int64_t behind = r->at + (framed ? item->size_bytes : 1);
    const char *why = item->kind == LOG_BAD_CRC        ? "a record whose body does not fit its CRC"
                      : item->kind == LOG_BAD_POSITION ? "a record of another physical offset"
                                                       : item->why;
    enum tern_code code = find_good(r, behind, &found, err);
    if (code)
        return code;
    if (found < 0)
        return end_here(r, why, item, err);
    if (framed) {
        r->at = behind;
        return judge(r, segment, item->phys_off, item, err); /* the search took the buffer */
    }
    int64_t end = segment_end(r, segment);
    int64_t to = found < end ? found : end;
    *item = (struct log_item){
        .kind = LOG_DAMAGE, .phys_off = r->at, .size_bytes = to - r->at, .why = why};
    r->at = to;
    return TERN_OK;
}

/*
 * A record that goes on behind the flush mark: an appender's never does, so this is a slave's log,
 * which takes bytes as they come. What has not come reads as zeros, and the CRC covers the body
 * only: without a record behind it, it is not known to be whole.
 */
static enum tern_code across_mark(struct log_reader *r, int64_t segment, struct log_item *item,
                                  struct tern_error *err)
{
    int64_t found = -1;
    enum tern_code code = TERN_OK;
    if (!store_dir_is_live(r->dir))
        code = find_good(r, r->at + item->size_bytes, &found, err);
    if (code)
        return code;
    if (found < 0)
        return end_here(r, "a record that goes on behind what was flushed", item, err);
    code = judge(r, segment, r->at, item, err); /* the search took the buffer */
    r->at += item->size_bytes;
    return code;
}

enum tern_code log_reader_next(struct log_reader *r, struct log_item *item, struct tern_error *err)
{
    if (r->at >= r->limit)
        return end_here(r, NULL, item, err);
    int64_t segment = segment_before(r->dir, r->at);
    if (segment == NO_SEGMENT || r->at >= segment_end(r, segment)) {
        if (segment + 1 >= (int64_t)r->dir->segment_count)
            return end_here(r, NULL, item, err);
        return no_segment(r, segment + 1, item, err);
    }
    enum tern_code code = judge(r, segment, r->at, item, err);
    if (!code && item->kind != LOG_RECORD && item->kind != LOG_BLANK && store_dir_is_live(r->dir)) {
        r->filled = 0; /* it may have been written since this was read */
        code = judge(r, segment, r->at, item, err);
    }
    if (code)
        return code;
    if (item->kind != LOG_RECORD && item->kind != LOG_BLANK)
        return step_over(r, segment, item, err);
    if (item->kind == LOG_RECORD && r->dir->mark_known && r->at < r->dir->mark &&
        r->at + item->size_bytes > r->dir->mark)
        return across_mark(r, segment, item, err);
    r->at += item->size_bytes;
    return TERN_OK;
}
