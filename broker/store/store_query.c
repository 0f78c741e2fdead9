/*
 * Questions about a store that are not a pull: by key, by time, and where a queue begins and ends.
 *
 * A query by key takes the index's candidates and looks at each record: the hash of another key, a
 * candidate outside the time range and a second entry for the same record (a key given twice, or an
 * entry made again after a crash) are left out.
 *
 * By time: bisection over a queue's units by the store time in the record. RocketMQ first picks a
 * file by its modification time, which a copy of the store changes; here the units decide alone.
 *
 * Threads: any. Failure modes: codes of the disk; a record that has expired meanwhile counts as
 * absent.
 */
#include <stdlib.h>
#include <string.h>

#include "base/props.h"
#include "broker/store/record_head.h"
#include "broker/store/store_internal.h"

enum { QUERY_MAX = 64, QUERY_RECORD_EXTRA_BYTES = 65536, KEY_SEPARATOR = ' ' };

/* ---- ranges ---- */

void store_queue_range(struct store *store, const char *topic, int32_t queue_id, int64_t *min_off,
                       int64_t *max_off)
{
    struct consume_queue *queue = queue_table_find(store->queues, topic, strlen(topic), queue_id);
    *min_off = queue ? consume_queue_min(queue) : 0;
    *max_off = queue ? consume_queue_max(queue) : 0;
    consume_queue_unref(queue);
}

int32_t store_topic_last_queue(struct store *store, const char *topic)
{
    return queue_table_last_queue(store->queues, topic);
}

/* ---- by time ---- */

/* Store time of the message at an offset; NOT_FOUND when unit or record is gone. */
static enum tern_code time_at(struct store *store, struct consume_queue *queue, int64_t offset,
                              int64_t *store_ms)
{
    struct queue_unit unit;
    struct record_head head;
    uint32_t got = 0;
    enum tern_code code = consume_queue_read(queue, offset, &unit, 1, false, &got);
    if (code)
        return code;
    if (got == 0 || unit.size <= 0)
        return TERN_NOT_FOUND;
    code = record_head_read(store->log, unit.phys_off, false, &head);
    *store_ms = head.store_ms;
    return code;
}

/*
 * First offset in [low, high) that was stored at or after wall_ms, high when none; messages that
 * are gone count as before.
 */
static enum tern_code first_at_or_after(struct store *store, struct consume_queue *queue,
                                        int64_t low, int64_t high, int64_t wall_ms, int64_t *out)
{
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int64_t store_ms = 0;
        enum tern_code code = time_at(store, queue, middle, &store_ms);
        if (code && code != TERN_NOT_FOUND)
            return code;
        if (code || store_ms < wall_ms)
            low = middle + 1;
        else
            high = middle;
    }
    *out = low;
    return TERN_OK;
}

/* Of the two around the time, the nearer; a tie gives the earlier one. */
static enum tern_code nearer_of(struct store *store, struct consume_queue *queue, int64_t right,
                                int64_t wall_ms, int64_t *offset)
{
    int64_t left_ms = 0;
    int64_t right_ms = 0;
    enum tern_code code = time_at(store, queue, right, &right_ms);
    *offset = right;
    if (code == TERN_OK && right_ms > wall_ms) {
        code = time_at(store, queue, right - 1, &left_ms);
        if (code == TERN_OK && wall_ms - left_ms <= right_ms - wall_ms)
            *offset = right - 1;
    }
    return code == TERN_NOT_FOUND ? TERN_OK : code;
}

enum tern_code store_offset_by_time(struct store *store, const char *topic, int32_t queue_id,
                                    int64_t wall_ms, int64_t *offset)
{
    struct consume_queue *queue = queue_table_find(store->queues, topic, strlen(topic), queue_id);
    *offset = 0;
    if (!queue)
        return TERN_OK;
    int64_t min = consume_queue_min(queue);
    int64_t max = consume_queue_max(queue);
    int64_t right = min;
    enum tern_code code = first_at_or_after(store, queue, min, max, wall_ms, &right);
    *offset = right;
    if (code == TERN_OK && right == max && max > min)
        *offset = max - 1; /* all are earlier: the last message, not the end */
    else if (code == TERN_OK && right > min && right < max)
        code = nearer_of(store, queue, right, wall_ms, offset);
    consume_queue_unref(queue);
    return code;
}

enum tern_code store_time_of(struct store *store, const char *topic, int32_t queue_id,
                             int64_t offset, int64_t *wall_ms)
{
    struct consume_queue *queue = queue_table_find(store->queues, topic, strlen(topic), queue_id);
    *wall_ms = 0;
    if (!queue)
        return TERN_NOT_FOUND;
    enum tern_code code = time_at(store, queue, offset, wall_ms);
    consume_queue_unref(queue);
    return code;
}

/* ---- by key ---- */

struct lookup {
    struct store *store;
    const struct store_query *query;
    struct store_query_info *info;
    size_t topic_len, key_len;
    uint32_t max_count;
    int64_t seen[QUERY_MAX]; /* positions of those found */
    enum tern_code code;
};

static bool equals(const struct lookup *lookup, const uint8_t *text, size_t len)
{
    return len == lookup->key_len && memcmp(text, lookup->query->key, len) == 0;
}

/* Whether the key is the record's UNIQ_KEY or one of its KEYS. */
static bool has_key(const struct lookup *lookup, const struct record *record)
{
    struct slice value;
    if (props_get(record->props, record->props_len, PROP_UNIQ_KEY, &value) &&
        equals(lookup, value.ptr, value.len))
        return true;
    if (!props_get(record->props, record->props_len, PROP_KEYS, &value))
        return false;
    const uint8_t *at = value.ptr;
    const uint8_t *end = at + value.len;
    while (at < end) {
        const uint8_t *stop = memchr(at, KEY_SEPARATOR, (size_t)(end - at));
        if (!stop)
            stop = end;
        if (stop > at && equals(lookup, at, (size_t)(stop - at)))
            return true;
        at = stop + 1;
    }
    return false;
}

static bool matches(const struct lookup *lookup, const struct record *record)
{
    const struct store_query *query = lookup->query;
    return record->topic_len == lookup->topic_len &&
           memcmp(record->topic, query->topic, lookup->topic_len) == 0 &&
           record->store_ms >= query->begin_ms && record->store_ms <= query->end_ms &&
           has_key(lookup, record);
}

/* One candidate of the index. @locks none */
static bool on_hit(void *arg, int64_t phys_off)
{
    struct lookup *lookup = arg;
    struct store *store = lookup->store;
    struct record record;
    uint8_t *bytes = NULL;
    for (uint32_t i = 0; i < lookup->info->found; i++)
        if (lookup->seen[i] == phys_off)
            return true;
    size_t max_size = (size_t)store->options.max_message_bytes + QUERY_RECORD_EXTRA_BYTES;
    enum tern_code code = record_read(store->log, phys_off, max_size, false, &bytes, &record);
    if (code == TERN_NOT_FOUND)
        return true; /* expired */
    if (code) {
        lookup->code = code;
        return false;
    }
    bool more = true;
    if (matches(lookup, &record)) {
        lookup->seen[lookup->info->found++] = phys_off;
        more = lookup->query->on_record(lookup->query->arg, bytes, record.total_size) &&
               lookup->info->found < lookup->max_count;
    }
    free(bytes);
    return more;
}

enum tern_code store_query(struct store *store, const struct store_query *query,
                           struct store_query_info *info)
{
    struct lookup lookup = {.store = store, .query = query, .info = info};
    *info = (struct store_query_info){.log_min = commit_log_min(store->log),
                                      .log_end = commit_log_end(store->log)};
    if (!store->index)
        return TERN_NOT_SUPPORTED;
    lookup.topic_len = strlen(query->topic);
    lookup.key_len = strlen(query->key);
    lookup.max_count = query->max_count < QUERY_MAX ? query->max_count : QUERY_MAX;
    index_service_range(store->index, &info->indexed_begin_ms, &info->indexed_end_ms,
                        &info->index_phys);
    /* Records without keys are in no index, but what was dispatched has been looked at. */
    int64_t seen = store->dispatcher ? dispatcher_position(store->dispatcher) : 0;
    if (info->index_phys < seen)
        info->index_phys = seen < info->log_end ? seen : info->log_end;
    if (lookup.max_count == 0 || lookup.key_len == 0)
        return TERN_OK;
    enum tern_code code = index_service_query(store->index, query->topic, query->key,
                                              query->begin_ms, query->end_ms, on_hit, &lookup);
    return code ? code : lookup.code;
}
