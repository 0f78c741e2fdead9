/*
 * Gathering records into one put per queue.
 *
 * A queue's run in the batch is found without a search: the queue object remembers the serial of
 * the batch that it is part of, and its run there. Consecutive records mostly belong to one queue,
 * so the one before is compared first and the table is not asked.
 *
 * Which records get a unit, and its tagsCode (facts 1.9, 3.1): none for prepared and rolled back
 * ones. The tag's hash, but for delayed messages in SCHEDULE_TOPIC_XXXX the time at which they are
 * due.
 *
 * Threads: the dispatch token's holder. Failure modes: codes of table, queues and index; records of
 * the batch that was not applied are then offered again, which put and index notice.
 */
#include "broker/store/dispatch_batch.h"

#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "broker/store/consume_queue_internal.h"
#include "broker/store/deletions.h"

void batch_init(struct dispatch_batch *batch, struct queue_table *queues)
{
    batch->serial = ++queues->batch_serial;
    batch->unit_count = 0;
    batch->run_count = 0;
    batch->record_count = 0;
}

void batch_release(struct dispatch_batch *batch)
{
    for (uint32_t i = 0; i < batch->run_count; i++)
        consume_queue_unref(batch->runs[i].queue);
    batch->run_count = batch->unit_count = 0;
}

static bool slice_is(const struct slice *slice, const char *text, size_t len)
{
    return slice->len == len && memcmp(slice->ptr, text, len) == 0;
}

/* The tagsCode; *told: the record stands for an earlier one, or waits for its time. */
static int64_t code_of(const struct record *record, const struct delay_levels *delays, bool *told)
{
    const struct slice topic = {record->topic, record->topic_len};
    struct slice name;
    struct slice value;
    struct slice tags = {NULL, 0};
    struct slice delay = {NULL, 0};
    size_t cursor = 0;
    *told = (record->sys_flag & SYS_TX_MASK) == SYS_TX_COMMIT ||
            slice_is(&topic, TIMER_TOPIC, sizeof TIMER_TOPIC - 1);
    while (props_next(record->props, record->props_len, &cursor, &name, &value)) {
        if (slice_is(&name, PROP_TAGS, sizeof PROP_TAGS - 1))
            tags = value;
        else if (slice_is(&name, PROP_DELAY, sizeof PROP_DELAY - 1))
            delay = value;
        else if (slice_is(&name, PROP_SEQUEL_OF, sizeof PROP_SEQUEL_OF - 1))
            *told = true;
    }
    if (delay.len > 0 && slice_is(&topic, SCHEDULE_TOPIC, sizeof SCHEDULE_TOPIC - 1)) {
        int32_t level = delay_level_of(delays, delay.ptr, delay.len);
        if (level > 0)
            return delay_level_due_ms(delays, level, record->store_ms);
    }
    return tags.len > 0 ? tags_code(tags.ptr, tags.len) : 0;
}

/* A run for the record that it continues or begins; NULL when there is no room. */
static enum tern_code find_run(struct dispatch_batch *batch, struct queue_table *queues,
                               const struct record *record, struct dispatch_run **out)
{
    struct consume_queue *queue = NULL;
    struct dispatch_run *run = NULL;
    *out = NULL;
    if (batch->unit_count > 0)
        run = &batch->runs[batch->run_of[batch->unit_count - 1]];
    if (run && consume_queue_is_of(run->queue, record)) {
        queue = run->queue;
        atomic_fetch_add_explicit(&queue->refs, 1, memory_order_relaxed);
    } else {
        enum tern_code code = queue_table_ref(queues, (const char *)record->topic,
                                              record->topic_len, record->queue_id, &queue);
        if (code)
            return code;
    }
    run = queue->batch_serial == batch->serial ? &batch->runs[queue->batch_run] : NULL;
    if (run && run->first_off + run->count == record->queue_off) {
        consume_queue_unref(queue);
        *out = run;
    } else if (batch->run_count < BATCH_RUNS) {
        queue->batch_serial = batch->serial;
        queue->batch_run = batch->run_count;
        *out = &batch->runs[batch->run_count++];
        **out = (struct dispatch_run){.queue = queue, .first_off = record->queue_off};
    } else {
        consume_queue_unref(queue);
    }
    return TERN_OK;
}

/* Adds one record; *full when it has to wait for the next batch. */
static enum tern_code add(struct dispatch_batch *batch, const struct batch_source *source,
                          const struct record *record, bool *full)
{
    uint32_t type = record->sys_flag & SYS_TX_MASK;
    const struct store_observer *observer = source->observer;
    bool told = false;
    int64_t tags_code = code_of(record, source->delays, &told);
    told = told && observer && observer->on_sequel;
    *full = false;
    if (deletions_cover(source->deletions, record->topic, record->topic_len, record->phys_off)) {
        if (told) /* the earlier record's topic is another one, and lives */
            observer->on_sequel(observer->arg, record);
        return TERN_OK;
    }
    if (type != SYS_TX_PREPARED && type != SYS_TX_ROLLBACK) {
        struct dispatch_run *run = NULL;
        *full = batch->unit_count == BATCH_UNITS;
        enum tern_code code = *full ? TERN_OK : find_run(batch, source->queues, record, &run);
        if (code || !run) {
            *full = code == TERN_OK;
            return code;
        }
        uint32_t i = batch->unit_count++;
        batch->run_of[i] = (uint16_t)(run - batch->runs);
        batch->units[i] = (struct queue_unit){.phys_off = record->phys_off,
                                              .size = (int32_t)record->total_size,
                                              .tags_code = tags_code};
        run->count++;
    }
    if (told)
        observer->on_sequel(observer->arg, record);
    return source->index ? index_service_put(source->index, record) : TERN_OK;
}

enum batch_stop batch_fill(struct dispatch_batch *batch, const struct batch_source *source,
                           int64_t phys_off, const uint8_t *bytes, size_t size, size_t *taken,
                           size_t *need, enum tern_code *code)
{
    *taken = *need = 0;
    *code = TERN_OK;
    while (*taken < size) {
        struct record record = {0};
        bool full = false;
        switch (record_parse(bytes + *taken, size - *taken, INT32_MAX, false, &record)) {
        case RECORD_WHOLE:
            break;
        case RECORD_BLANK:
            return BATCH_BLANK;
        case RECORD_PARTIAL:
            *need = record.total_size;
            return BATCH_PARTIAL;
        case RECORD_BAD:
            return BATCH_BAD;
        }
        if (record.phys_off != phys_off + (int64_t)*taken || record.queue_off < 0 ||
            record.queue_off > QUEUE_OFFSET_MAX || record.queue_id < 0 || record.topic_len == 0)
            return BATCH_BAD;
        *code = add(batch, source, &record, &full);
        if (*code)
            return BATCH_FAILED;
        if (full)
            return BATCH_FULL;
        batch->record_count++;
        *taken += record.total_size;
    }
    return BATCH_END;
}

/* Lays the units out by run; one run needs no copy. */
static const struct queue_unit *sort_units(struct dispatch_batch *batch)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < batch->run_count; i++) {
        batch->runs[i].start = at;
        at += batch->runs[i].count;
    }
    if (batch->run_count <= 1) {
        for (uint32_t i = 0; i < batch->unit_count; i++)
            batch->codes[i] = batch->units[i].tags_code;
        return batch->units;
    }
    for (uint32_t i = 0; i < batch->unit_count; i++) {
        uint32_t to = batch->runs[batch->run_of[i]].start++;
        batch->sorted[to] = batch->units[i];
        batch->codes[to] = batch->units[i].tags_code;
    }
    for (uint32_t i = 0; i < batch->run_count; i++)
        batch->runs[i].start -= batch->runs[i].count;
    return batch->sorted;
}

/* A topic that was deleted and made anew begins at 0 again; elsewhere the deletion may not have
 * happened. */
static enum tern_code put_run(const struct dispatch_run *run, const struct queue_unit *units,
                              bool replay)
{
    if (!replay) {
        enum tern_code code = consume_queue_put(run->queue, run->first_off, units, run->count);
        if (code != TERN_CORRUPT || run->first_off != 0)
            return code;
    }
    return consume_queue_replay(run->queue, run->first_off, units, run->count);
}

enum tern_code batch_apply(struct dispatch_batch *batch, bool replay,
                           const struct dispatch_run **failed)
{
    const struct queue_unit *units = sort_units(batch);
    for (uint32_t i = 0; i < batch->run_count; i++) {
        enum tern_code code = put_run(&batch->runs[i], units + batch->runs[i].start, replay);
        if (code) {
            *failed = &batch->runs[i];
            return code;
        }
    }
    return TERN_OK;
}
