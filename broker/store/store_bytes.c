/*
 * The log as bytes: what replication asks of the store, handed on to the part that does it.
 *
 * Threads: any, as store.h says. Failure modes: the parts'.
 */
#include <errno.h>
#include <string.h>

#include "broker/store/appender.h"
#include "broker/store/flusher.h"
#include "broker/store/log_scanner.h"
#include "broker/store/store_internal.h"

void store_positions(struct store *store, struct store_positions *out)
{
    const struct commit_log *log = store->log;
    /* In this order, so that what grows meanwhile does not turn the order of two around. */
    out->min = commit_log_min(log);
    out->dispatched = store->dispatcher ? dispatcher_position(store->dispatcher) : 0;
    out->flushed = commit_log_flushed(log);
    out->whole = commit_log_whole(log);
    out->appended = commit_log_end(log);
    if (!store->dispatcher)
        out->dispatched = out->whole;
}

enum tern_code store_read_bytes(struct store *store, int64_t phys_off, uint8_t *buf, size_t size,
                                bool nowait, size_t *got)
{
    return commit_log_read(store->log, phys_off, buf, size, nowait, got);
}

enum tern_code store_each_record(struct store *store, int64_t from, int64_t upto,
                                 bool (*fn)(void *arg, const struct record *record), void *arg,
                                 int64_t *next)
{
    struct log_scanner scanner;
    struct segments *set = &store->log->segments;
    enum tern_code code = log_scanner_init(&scanner, set);
    bool more = code == TERN_OK;
    *next = from;
    while (more && *next < upto) {
        struct record record;
        enum scan_state state;
        int64_t min = commit_log_min(store->log);
        if (*next < min)
            *next = min;
        code = log_scanner_at(&scanner, *next, &state, &record);
        if (code == TERN_OK && state == SCAN_RECORD) {
            if (*next + record.total_size > upto)
                break;
            more = fn(arg, &record);
            *next += record.total_size;
        } else if (code == TERN_OK && state == SCAN_BLANK) {
            *next = scanner.segment->base + set->bytes;
        } else if (*next >= commit_log_min(store->log)) { /* else it expired just now */
            code = code ? code : TERN_CORRUPT;
            break;
        }
    }
    log_scanner_fini(&scanner);
    return code;
}

enum tern_code store_append_bytes(struct store *store, int64_t phys_off, const uint8_t *bytes,
                                  size_t size, bool nowait, struct tern_error *err)
{
    ENSURE(store->appender != NULL); /* not in a read-only store */
    return appender_append_bytes(store->appender, phys_off, bytes, size, nowait, err);
}

enum tern_code store_flush(struct store *store, struct tern_error *err)
{
    return store->flusher ? flusher_flush(store->flusher, err) : TERN_OK;
}

void store_set_sync_flush(struct store *store, bool on)
{
    if (store->flusher)
        flusher_set_sync(store->flusher, on);
}

enum tern_code store_queue_end_at(struct store *store, const char *topic, int32_t queue_id,
                                  int64_t phys_off, int64_t *offset)
{
    struct consume_queue *queue = queue_table_find(store->queues, topic, strlen(topic), queue_id);
    *offset = 0;
    enum tern_code code = queue ? queue_end_at(queue, phys_off, offset) : TERN_OK;
    consume_queue_unref(queue);
    return code;
}
