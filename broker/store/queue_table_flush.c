/*
 * Tending the consume queues: writing and syncing what was put, and moving minimums up with the
 * log.
 *
 * The flush looks only at queues that were put to since the last one and at those it still has
 * something to do for; see queue_table.c for how they get on the list.
 *
 * Threads: any, one at a time by flush_lock, which is held while the disk works: the lock exists
 * for that. Puts and reads go on. Failure modes: codes of the disk; the flush goes on with the
 * other queues and returns the first code; what failed stays on the list, but after a failed sync
 * the store latches.
 */
#include "broker/store/consume_queue_internal.h"

#include <errno.h>
#include <stdlib.h>

enum { WRITE_BACK_FROM = 64 };

void queue_table_touch(struct queue_table *table, struct consume_queue *queue)
{
    if (atomic_load_explicit(&queue->touched, memory_order_acquire) ||
        atomic_exchange_explicit(&queue->touched, true, memory_order_acq_rel))
        return;
    atomic_fetch_add_explicit(&queue->refs, 1, memory_order_relaxed);
    struct consume_queue *head = atomic_load_explicit(&table->touched, memory_order_relaxed);
    do
        queue->touch_next = head;
    while (!atomic_compare_exchange_weak_explicit(&table->touched, &head, queue,
                                                  memory_order_release, memory_order_relaxed));
}

/* Moves the stack to the list. @locks holds:flush_lock */
static void collect_touched(struct queue_table *table)
{
    struct consume_queue *next;
    struct consume_queue *q = atomic_exchange_explicit(&table->touched, NULL, memory_order_acquire);
    for (; q; q = next) {
        next = q->touch_next;
        /* Cleared before the ring is looked at: a put that comes later pushes it again. */
        atomic_store_explicit(&q->touched, false, memory_order_release);
        if (q->tended) {
            consume_queue_unref(q);
            continue;
        }
        q->tended = true;
        q->seen_max = -1;
        q->tend_next = table->tended;
        table->tended = q;
    }
}

/* Whether the queue can leave the list: nothing of it is unwritten or unsynced. @locks
 * holds:flush_lock */
static bool settled(struct consume_queue *queue)
{
    int64_t max = consume_queue_max(queue);
    bool idle = max == queue->seen_max;
    queue->seen_max = max;
    if (idle)
        queue_free_ring(queue);
    lock_acquire(&queue->lock);
    bool clean = queue->dead || (!queue->ring && queue->dirty_from < 0 && !queue->dirs_dirty);
    lock_release(&queue->lock);
    return clean;
}

/* Writes the tails of all on the list; *dirty of them have something to sync then. @locks
 * holds:flush_lock */
static enum tern_code write_all(struct queue_table *table, uint32_t *dirty, struct tern_error *err)
{
    enum tern_code result = TERN_OK;
    *dirty = 0;
    for (struct consume_queue *q = table->tended; q; q = q->tend_next) {
        enum tern_code code = queue_write_out(q);
        if (code && !result)
            result = error_set_errno(err, code, errno, "writing consume queue %s/%d",
                                     q->topic->name, q->queue_id);
        lock_acquire(&q->lock);
        *dirty += q->dirty_from >= 0 || q->dirs_dirty;
        lock_release(&q->lock);
    }
    return result;
}

/*
 * Syncs all on the list. Each sync that has something to write waits for the file system's journal;
 * when there are many, one writing of everything first leaves them little to do.
 * @locks holds:flush_lock
 */
static enum tern_code sync_all(struct queue_table *table, uint32_t dirty, struct tern_error *err)
{
    enum tern_code result = TERN_OK;
    bool made_dirs = false;
    if (dirty >= WRITE_BACK_FROM)
        fs_write_back(table->env->fs, table->dir);
    for (struct consume_queue *q = table->tended; q; q = q->tend_next) {
        lock_acquire(&q->lock);
        made_dirs |= q->dirs_dirty;
        lock_release(&q->lock);
        enum tern_code code = queue_sync(q);
        if (code && !result)
            result = error_set_errno(err, code, errno, "syncing consume queue %s/%d",
                                     q->topic->name, q->queue_id);
    }
    if (made_dirs && !result) {
        result = fs_sync_dir(table->env->fs, table->dir);
        if (result)
            error_set_errno(err, result, errno, "syncing folder %s", table->dir);
    }
    return result;
}

enum tern_code queue_table_flush(struct queue_table *table, bool durable, struct tern_error *err)
{
    uint32_t dirty;
    if (table->read_only)
        return TERN_OK;
    lock_acquire(&table->flush_lock);
    collect_touched(table);
    enum tern_code code = write_all(table, &dirty, err);
    if (durable && !code)
        code = sync_all(table, dirty, err);
    struct consume_queue **at = &table->tended;
    while (*at) {
        struct consume_queue *q = *at;
        if (!settled(q)) {
            at = &q->tend_next;
            continue;
        }
        *at = q->tend_next;
        q->tended = false;
        consume_queue_unref(q);
    }
    lock_release(&table->flush_lock);
    return code;
}

/* @locks holds:flush_lock */
static enum tern_code expire_one(struct consume_queue *queue, int64_t log_min,
                                 struct tern_error *err)
{
    int64_t min = 0;
    enum tern_code code = queue_find_min(queue, log_min, &min);
    if (code == TERN_OK) {
        lock_acquire(&queue->lock);
        if (min > atomic_load_explicit(&queue->min, memory_order_relaxed) &&
            min <= atomic_load_explicit(&queue->max, memory_order_relaxed))
            atomic_store_explicit(&queue->min, min, memory_order_release);
        lock_release(&queue->lock);
        if (!queue->table->read_only)
            code = queue_remove_expired(queue);
    }
    if (code)
        return error_set_errno(err, code, errno, "expiring consume queue %s/%d", queue->topic->name,
                               queue->queue_id);
    return TERN_OK;
}

enum tern_code queue_table_expire(struct queue_table *table, int64_t log_min,
                                  struct tern_error *err)
{
    struct consume_queue **queues;
    uint32_t count;
    enum tern_code result = queue_table_snapshot(table, &queues, &count);
    if (result)
        return error_set(err, result, "expiring consume queues");
    lock_acquire(&table->flush_lock);
    for (uint32_t i = 0; i < count; i++) {
        bool minor = !result || result == TERN_NO_SPACE; /* than what may come */
        enum tern_code code = expire_one(queues[i], log_min, minor ? err : NULL);
        if (code && minor)
            result = code;
    }
    lock_release(&table->flush_lock);
    for (uint32_t i = 0; i < count; i++)
        consume_queue_unref(queues[i]);
    free(queues);
    return result;
}
