/*
 * Ending the consume queues where the log was cut, and removing all of them.
 *
 * A queue's units are sorted by physical offset, so its end at a place of the log is found by
 * bisection. A cut changes only the queues that hold something behind it.
 *
 * Threads: the maker of the cut, who holds the dispatch token; readers go on, flush and expiry are
 * kept out by flush_lock. Failure modes: codes of the disk; the caller latches the store, and the
 * next start cuts what is left.
 */
#include "broker/store/consume_queue_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What can be read of the unit: real, or something that stands before all real ones. */
static enum tern_code unit_at(struct consume_queue *queue, int64_t offset, struct queue_unit *unit,
                              bool *real)
{
    uint32_t got = 0;
    enum tern_code code = consume_queue_read(queue, offset, unit, 1, false, &got);
    *real = !code && got == 1 && unit->size > 0 && !queue_unit_is_filler(unit);
    return code;
}

enum tern_code queue_end_at(struct consume_queue *queue, int64_t phys_off, int64_t *offset)
{
    int64_t low = consume_queue_min(queue);
    int64_t high = consume_queue_max(queue);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        struct queue_unit unit;
        bool real = false;
        enum tern_code code = unit_at(queue, middle, &unit, &real);
        if (code)
            return code;
        if (!real || unit.phys_off < phys_off)
            low = middle + 1;
        else
            high = middle;
    }
    *offset = low;
    return TERN_OK;
}

/* @locks holds:flush_lock */
static enum tern_code cut_one(struct consume_queue *queue, int64_t at)
{
    int64_t offset = 0;
    struct queue_unit last = {0};
    bool real = false;
    lock_acquire(&queue->lock);
    bool behind = !queue->empty && queue->last_phys >= at;
    lock_release(&queue->lock);
    if (!behind)
        return TERN_OK;
    enum tern_code code = queue_end_at(queue, at, &offset);
    if (!code && offset > consume_queue_min(queue))
        code = unit_at(queue, offset - 1, &last, &real);
    if (!code)
        code = queue_cut(queue, offset);
    lock_acquire(&queue->lock);
    if (!code && real)
        queue->last_phys = last.phys_off;
    lock_release(&queue->lock);
    queue_table_touch(queue->table, queue);
    return code;
}

enum tern_code queue_table_cut(struct queue_table *table, int64_t at, struct tern_error *err)
{
    struct consume_queue **queues;
    uint32_t count;
    enum tern_code code = queue_table_snapshot(table, &queues, &count);
    if (code)
        return error_set(err, code, "cutting consume queues");
    lock_acquire(&table->flush_lock);
    for (uint32_t i = 0; i < count; i++) {
        if (!code && (code = cut_one(queues[i], at)) != TERN_OK)
            error_set_errno(err, code, errno, "cutting consume queue %s/%d", queues[i]->topic->name,
                            queues[i]->queue_id);
    }
    lock_release(&table->flush_lock);
    for (uint32_t i = 0; i < count; i++)
        consume_queue_unref(queues[i]);
    free(queues);
    return code ? code : queue_table_flush(table, true, err);
}

/* Some topic that has a queue; false: there is none. */
static bool any_topic(struct queue_table *table, char name[FS_PATH_BYTES])
{
    const struct queue_topic *topic = NULL;
    lock_acquire(&table->lock);
    for (uint32_t i = 0; i <= table->topic_mask && !topic; i++)
        topic = table->topics[i];
    if (topic)
        snprintf(name, FS_PATH_BYTES, "%s", topic->name);
    lock_release(&table->lock);
    return topic != NULL;
}

enum tern_code queue_table_clear(struct queue_table *table, struct tern_error *err)
{
    char name[FS_PATH_BYTES];
    enum tern_code code = TERN_OK;
    while (!code && any_topic(table, name))
        code = queue_table_delete_topic(table, name, err);
    return code;
}

bool queue_table_has_before(struct queue_table *table, const char *topic, int64_t phys_off)
{
    size_t len = strlen(topic);
    bool before = false;
    lock_acquire(&table->lock);
    for (uint32_t i = 0; i <= table->mask && !before; i++) {
        for (struct consume_queue *q = table->buckets[i]; q && !before; q = q->next) {
            if (q->topic->len != len || memcmp(q->topic->name, topic, len) != 0)
                continue;
            lock_acquire(&q->lock);
            before = !q->empty && q->last_phys < phys_off;
            lock_release(&q->lock);
        }
    }
    lock_release(&table->lock);
    return before;
}
