/*
 * Reading one record's head, or all of it, from the commit log.
 *
 * Threads: any; no state. Failure modes: as in the header; a log that cannot be read gives its own
 * code.
 */
#include "broker/store/record_head.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/record.h"

enum {
    MAGIC_AT = 4,
    QUEUE_OFF_AT = 20,
    PHYS_OFF_AT = 28,
    SYS_FLAG_AT = 36,
    STORE_MS_AT = 56 /* 12 later with an IPv6 born host */
};
_Static_assert(RECORD_HEAD_BYTES == STORE_MS_AT + RECORD_V6_EXTRA_BYTES + 8, "ends with the time");

bool record_head_parse(const uint8_t bytes[RECORD_HEAD_BYTES], int64_t phys_off,
                       struct record_head *out)
{
    if (get_be32(bytes + MAGIC_AT) != RECORD_MAGIC ||
        (int64_t)get_be64(bytes + PHYS_OFF_AT) != phys_off ||
        get_be32(bytes) < RECORD_FIXED_BYTES || get_be32(bytes) > INT32_MAX)
        return false;
    bool v6 = get_be32(bytes + SYS_FLAG_AT) & SYS_BORN_V6;
    out->total_size = get_be32(bytes);
    out->queue_off = (int64_t)get_be64(bytes + QUEUE_OFF_AT);
    out->store_ms = (int64_t)get_be64(bytes + STORE_MS_AT + (v6 ? RECORD_V6_EXTRA_BYTES : 0));
    return true;
}

enum tern_code record_read_bytes(struct commit_log *log, int64_t phys_off, uint8_t *buf,
                                 size_t size, bool nowait)
{
    size_t done = 0;
    while (done < size) {
        size_t got = 0;
        enum tern_code code =
            commit_log_read(log, phys_off + (int64_t)done, buf + done, size - done, nowait, &got);
        if (code)
            return code;
        if (got == 0)
            return TERN_NOT_FOUND;
        done += got;
    }
    return TERN_OK;
}

enum tern_code record_head_read(struct commit_log *log, int64_t phys_off, bool nowait,
                                struct record_head *out)
{
    uint8_t bytes[RECORD_HEAD_BYTES];
    enum tern_code code = record_read_bytes(log, phys_off, bytes, sizeof bytes, nowait);
    if (code)
        return code;
    return record_head_parse(bytes, phys_off, out) ? TERN_OK : TERN_NOT_FOUND;
}

enum tern_code record_read(struct commit_log *log, int64_t phys_off, size_t max_size, bool nowait,
                           uint8_t **bytes, struct record *record)
{
    struct record_head head;
    *bytes = NULL;
    enum tern_code code = record_head_read(log, phys_off, nowait, &head);
    if (code)
        return code;
    if (head.total_size > max_size)
        return TERN_NOT_FOUND;
    uint8_t *buf = malloc(head.total_size);
    if (!buf)
        return TERN_NO_MEMORY;
    code = record_read_bytes(log, phys_off, buf, head.total_size, nowait);
    if (code == TERN_OK &&
        record_parse(buf, head.total_size, max_size, false, record) != RECORD_WHOLE)
        code = TERN_NOT_FOUND;
    if (code) {
        free(buf);
        return code;
    }
    *bytes = buf;
    return TERN_OK;
}
