/*
 * Finding the queues' next offsets from the log.
 *
 * Place: a master that took the tail of its log from a slave, or was cut, goes on with its own
 * appends. Most of the log is dispatched by then, so the queues' ends say it; only what is not yet
 * dispatched (held back by the dispatch limit, perhaps) is read here, once, before the first
 * append.
 *
 * Threads: the append token's holder, on its task. Failure modes: the caller refuses its requests
 * and tries again with the next ones.
 */
#include "broker/store/next_offsets.h"

#include <stdlib.h>

#include "base/record.h"
#include "broker/store/deletions.h"

enum { CHUNK_BYTES = 256 * 1024 };

struct follow {
    struct commit_log *log;
    struct queue_table *queues;
    struct deletions *deletions;
    int64_t at, end;
    uint8_t *buffer;
    size_t capacity;
};

static enum tern_code take_record(struct follow *f, const struct record *record)
{
    uint32_t type = record->sys_flag & SYS_TX_MASK;
    if (type == SYS_TX_PREPARED || type == SYS_TX_ROLLBACK ||
        deletions_cover(f->deletions, record->topic, record->topic_len, record->phys_off))
        return TERN_OK;
    if (record->topic_len == 0 || record->queue_id < 0 || record->queue_off < 0 ||
        record->queue_off >= QUEUE_OFFSET_MAX)
        return TERN_CORRUPT;
    struct consume_queue *queue = NULL;
    enum tern_code code = queue_table_ref(f->queues, (const char *)record->topic, record->topic_len,
                                          record->queue_id, &queue);
    if (!code)
        consume_queue_set_next(queue, record->queue_off + 1);
    consume_queue_unref(queue);
    return code;
}

/* The records in `size` bytes at f->at; *need: more than a buffer holds, for the next one. */
static enum tern_code take_chunk(struct follow *f, size_t size, size_t *need)
{
    size_t taken = 0;
    enum tern_code code = TERN_OK;
    *need = 0;
    while (taken < size && !code) {
        struct record record = {0};
        enum record_state state =
            record_parse(f->buffer + taken, size - taken, INT32_MAX, false, &record);
        if (state == RECORD_BLANK || state == RECORD_WHOLE) {
            if (state == RECORD_WHOLE)
                code = take_record(f, &record);
            f->at += record.total_size;
            taken = state == RECORD_WHOLE ? taken + record.total_size : size;
        } else if (state == RECORD_PARTIAL) {
            *need = record.total_size > f->capacity ? record.total_size : 0;
            return taken > 0 || *need > 0 ? TERN_OK : TERN_CORRUPT;
        } else {
            return TERN_CORRUPT;
        }
    }
    return code;
}

static enum tern_code make_room(struct follow *f, size_t need)
{
    if (need <= f->capacity)
        return TERN_OK;
    uint8_t *buffer = realloc(f->buffer, need);
    if (!buffer)
        return TERN_NO_MEMORY;
    f->buffer = buffer;
    f->capacity = need;
    return TERN_OK;
}

enum tern_code next_offsets_follow(struct commit_log *log, struct queue_table *queues,
                                   struct deletions *deletions, int64_t from, int64_t end)
{
    struct follow f = {.log = log, .queues = queues, .deletions = deletions, .end = end};
    int64_t min = commit_log_min(log);
    f.at = from > min ? from : min;
    size_t need = CHUNK_BYTES;
    enum tern_code code = TERN_OK;
    while (f.at < f.end && !code) {
        size_t got = 0;
        code = make_room(&f, need);
        if (!code)
            code = commit_log_read(log, f.at, f.buffer, f.capacity, false, &got);
        if (!code)
            code = got > 0 ? take_chunk(&f, got, &need) : TERN_CORRUPT;
        else if (code == TERN_NOT_FOUND && f.at < commit_log_min(log)) { /* expired meanwhile */
            f.at = commit_log_min(log);
            code = TERN_OK;
        }
    }
    free(f.buffer);
    return code;
}
