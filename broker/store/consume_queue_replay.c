/*
 * Replaying the log into a consume queue that may hold the units already.
 *
 * Unsynced pages of a queue's file may be lost, kept, or lost in the middle only, so nothing that
 * the log can say again is believed: each unit is compared with what stands there and rewritten
 * when it differs. After replaying once, replaying again changes nothing. What stands there already
 * is synced with the next sync, too: who wrote it may have been killed before doing so, and then
 * nobody else knows.
 *
 * Offsets of one queue name can begin again: a topic is deleted and created anew while the log
 * keeps the records of its first life. The physical offset tells the lives apart:
 *
 *   record newer than the queue's last unit:
 *     at max       appended
 *     below max    a new life: the queue is cut there, then appended
 *     beyond max   all it has is expired: begun there; else units are missing: TERN_CORRUPT
 *   record not newer:
 *     below min    expired, left
 *     below max    compared, mended
 *     else         of an earlier life, left
 *
 * A unit that differs may stand where the file has no block, and a full disk none for it (half of a
 * unit may have found room at a page's end). A table that keeps units then cuts the queue there,
 * and it goes on in memory: all behind it comes again with the replay.
 *
 * Threads: the dispatch token's holder. Failure modes: as consume_queue_put().
 */
#include "broker/store/consume_queue_internal.h"

#include <string.h>

#include "base/log.h"

enum { REPLAY_CHUNK_UNITS = 128 };

static void encode_all(uint8_t *raw, const struct queue_unit *units, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        queue_unit_encode(raw + (size_t)i * QUEUE_UNIT_BYTES, &units[i]);
}

/* Writes units over those that are there, in files and ring. */
static enum tern_code overwrite(struct consume_queue *queue, int64_t offset,
                                const struct queue_unit *units, uint32_t count)
{
    uint8_t raw[REPLAY_CHUNK_UNITS * QUEUE_UNIT_BYTES];
    encode_all(raw, units, count);
    lock_acquire(&queue->io_lock);
    lock_acquire(&queue->lock);
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    int64_t in_files = queue->written - offset;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)offset + i;
        if ((int64_t)at >= queue->ring_first)
            memcpy(queue->ring + (at & (queue->ring_units - 1)) * QUEUE_UNIT_BYTES,
                   raw + (size_t)i * QUEUE_UNIT_BYTES, QUEUE_UNIT_BYTES);
    }
    if (offset + count == max)
        queue->last_phys = units[count - 1].phys_off;
    lock_release(&queue->lock);
    enum tern_code code = TERN_OK;
    if (in_files > 0)
        code = queue_write_raw(queue, offset, raw, in_files < count ? (uint32_t)in_files : count);
    lock_release(&queue->io_lock);
    queue_table_touch(queue->table, queue);
    return code;
}

/* Units that lie wholly in [min, max): mends those that differ. */
static enum tern_code compare(struct consume_queue *queue, int64_t offset,
                              const struct queue_unit *units, uint32_t count)
{
    struct queue_unit there[REPLAY_CHUNK_UNITS];
    while (count > 0) {
        uint32_t n = count < REPLAY_CHUNK_UNITS ? count : REPLAY_CHUNK_UNITS;
        uint32_t got = 0;
        enum tern_code code = consume_queue_read(queue, offset, there, n, false, &got);
        if (code)
            return code;
        bool same = got > 0;
        for (uint32_t i = 0; i < got && same; i++)
            same = there[i].phys_off == units[i].phys_off && there[i].size == units[i].size &&
                   there[i].tags_code == units[i].tags_code;
        n = got > 0 ? got : n; /* nothing to be read: a file is missing or short, write all */
        if (!same && (code = overwrite(queue, offset, units, n)) != TERN_OK)
            return code;
        offset += n;
        units += n;
        count -= n;
    }
    return TERN_OK;
}

static enum tern_code begin_new_life(struct consume_queue *queue, int64_t offset, int64_t max)
{
    log_warn(queue->table->env->log, "queue_begins_anew", "topic=%s queue=%d offset=%lld max=%lld",
             queue->topic->name, queue->queue_id, (long long)offset, (long long)max);
    return queue_cut(queue, offset);
}

/* All that the queue has is expired: so is what it lacks, which a full disk had no room for. */
static void begin_behind_gap(struct consume_queue *queue, int64_t offset)
{
    log_warn(queue->table->env->log, "queue_begins_behind_gap",
             "topic=%s queue=%d offset=%lld max=%lld", queue->topic->name, queue->queue_id,
             (long long)offset, (long long)consume_queue_max(queue));
    lock_acquire(&queue->lock);
    queue->empty = true;
    queue->last_phys = -1;
    lock_release(&queue->lock);
}

/* What is to be done with the first `*count` units. */
enum step { STEP_APPEND, STEP_BEGIN, STEP_CUT, STEP_COMPARE, STEP_SKIP, STEP_GAP };

static enum step next_step(struct consume_queue *queue, int64_t offset,
                           const struct queue_unit *units, uint32_t *count)
{
    lock_acquire(&queue->lock);
    int64_t last_phys = queue->last_phys;
    bool empty = queue->empty;
    int64_t min = atomic_load_explicit(&queue->min, memory_order_relaxed);
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    lock_release(&queue->lock);
    if (consume_queue_dead(queue))
        return STEP_SKIP;
    if (empty)
        return STEP_APPEND;
    if (units[0].phys_off > last_phys && offset > max)
        return min == max ? STEP_BEGIN : STEP_GAP;
    if (units[0].phys_off > last_phys)
        return offset == max ? STEP_APPEND : STEP_CUT;
    uint32_t older = 1;
    while (older < *count && units[older].phys_off <= last_phys)
        older++;
    enum step step = STEP_SKIP;
    int64_t end = offset + older;
    if (offset < min) {
        end = min;
    } else if (offset < max) {
        step = STEP_COMPARE;
        end = max;
    }
    *count = end - offset < older ? (uint32_t)(end - offset) : older;
    return step;
}

/* Nothing from `offset` on is in files any more; its unit, at phys_off, is to be appended. */
static enum tern_code give_up_files(struct consume_queue *queue, int64_t offset, int64_t phys_off)
{
    log_warn(queue->table->env->log, "queue_cut_for_want_of_room",
             "topic=%s queue=%d offset=%lld max=%lld", queue->topic->name, queue->queue_id,
             (long long)offset, (long long)consume_queue_max(queue));
    enum tern_code code = queue_cut(queue, offset);
    lock_acquire(&queue->lock);
    if (!queue->empty)
        queue->last_phys = phys_off - 1;
    lock_release(&queue->lock);
    queue_table_touch(queue->table, queue);
    return code;
}

enum tern_code consume_queue_replay(struct consume_queue *queue, int64_t offset,
                                    const struct queue_unit *units, uint32_t count)
{
    enum tern_code code = TERN_OK;
    queue_distrust(queue, offset);
    while (count > 0 && code == TERN_OK) {
        uint32_t n = count;
        switch (next_step(queue, offset, units, &n)) {
        case STEP_APPEND:
            return consume_queue_put(queue, offset, units, count);
        case STEP_BEGIN:
            begin_behind_gap(queue, offset);
            continue;
        case STEP_CUT:
            code = begin_new_life(queue, offset, consume_queue_max(queue));
            continue;
        case STEP_GAP:
            return TERN_CORRUPT;
        case STEP_COMPARE:
            code = compare(queue, offset, units, n);
            if (code != TERN_NO_SPACE || queue->table->keep_units == 0)
                break;
            code = give_up_files(queue, offset, units[0].phys_off);
            continue;
        case STEP_SKIP:
            break;
        }
        offset += n;
        units += n;
        count -= n;
    }
    return code;
}
