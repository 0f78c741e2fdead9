/*
 * One consume queue: putting units into the ring, and reading them back from ring or files.
 *
 * Its place: the dispatcher puts (one thread at a time, the dispatch token's holder), pulls read. A
 * put is a copy of 20 bytes a unit under the queue's lock and touches the disk only when the ring
 * is full of unwritten units, once per 256. A read that begins in the ring is a copy too; another
 * is one pread.
 *
 * Publishing: units are in the ring before max is stored (release), so a reader that saw max
 * (acquire) finds them in the ring, or, when they have left it since, in the file.
 *
 * Threads: put, replay and begin: the dispatch token's holder; everything else any.
 * Failure modes: a write that fails leaves the units unwritten and readable; the caller tries again
 * or the store latches. A put that does not continue the queue is TERN_CORRUPT and changes nothing.
 */
#include "broker/store/consume_queue_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

_Static_assert(sizeof(struct queue_unit) >= QUEUE_UNIT_BYTES, "raw units are decoded in place");

/* ---- units ---- */

void queue_unit_encode(uint8_t *raw, const struct queue_unit *unit)
{
    put_be64(raw, (uint64_t)unit->phys_off);
    put_be32(raw + 8, (uint32_t)unit->size);
    put_be64(raw + 12, (uint64_t)unit->tags_code);
}

void queue_unit_decode(struct queue_unit *unit, const uint8_t *raw)
{
    unit->phys_off = (int64_t)get_be64(raw);
    unit->size = (int32_t)get_be32(raw + 8);
    unit->tags_code = (int64_t)get_be64(raw + 12);
}

bool queue_unit_is_filler(const struct queue_unit *unit)
{
    return unit->phys_off == 0 && unit->size == QUEUE_FILLER_SIZE;
}

/* ---- small things ---- */

int64_t consume_queue_next(const struct consume_queue *queue)
{
    return queue->next_off;
}

void consume_queue_set_next(struct consume_queue *queue, int64_t offset)
{
    queue->next_off = offset;
}

bool consume_queue_dead(const struct consume_queue *queue)
{
    return atomic_load_explicit(&queue->dead, memory_order_acquire);
}

bool consume_queue_is_of(const struct consume_queue *queue, const struct record *record)
{
    return queue->queue_id == record->queue_id && queue->topic->len == record->topic_len &&
           memcmp(queue->topic->name, record->topic, record->topic_len) == 0;
}

int64_t consume_queue_min(const struct consume_queue *queue)
{
    return atomic_load_explicit(&queue->min, memory_order_acquire);
}

int64_t consume_queue_max(const struct consume_queue *queue)
{
    return atomic_load_explicit(&queue->max, memory_order_acquire);
}

const char *consume_queue_topic(const struct consume_queue *queue)
{
    return queue->topic->name;
}

int32_t consume_queue_id(const struct consume_queue *queue)
{
    return queue->queue_id;
}

void consume_queue_unref(struct consume_queue *queue)
{
    if (!queue || atomic_fetch_sub_explicit(&queue->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (atomic_fetch_sub_explicit(&queue->topic->refs, 1, memory_order_acq_rel) == 1)
        free(queue->topic);
    lock_fini(&queue->io_lock);
    lock_fini(&queue->lock);
    free(queue->ring);
    free(queue);
}

/* ---- the ring ---- */

static uint8_t *ring_at(uint8_t *ring, uint32_t units, int64_t offset)
{
    return ring + (size_t)((uint64_t)offset & (units - 1)) * QUEUE_UNIT_BYTES;
}

/* Copies units [offset, offset + count) between a ring and flat memory. @locks holds:STORE_CQ */
static void ring_copy_out(const struct consume_queue *queue, int64_t offset, uint32_t count,
                          uint8_t *raw)
{
    uint32_t first = queue->ring_units - (uint32_t)((uint64_t)offset & (queue->ring_units - 1));
    if (first > count)
        first = count;
    memcpy(raw, ring_at(queue->ring, queue->ring_units, offset), (size_t)first * QUEUE_UNIT_BYTES);
    memcpy(raw + (size_t)first * QUEUE_UNIT_BYTES, queue->ring,
           (size_t)(count - first) * QUEUE_UNIT_BYTES);
}

/* Makes the ring hold `units` units. @thread the dispatch token's holder */
static enum tern_code ring_grow(struct consume_queue *queue, uint32_t units)
{
    uint8_t *ring = malloc((size_t)units * QUEUE_UNIT_BYTES);
    if (!ring)
        return TERN_NO_MEMORY;
    lock_acquire(&queue->lock);
    uint8_t *old = queue->ring;
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    for (int64_t at = queue->ring_first; at < max; at++)
        memcpy(ring_at(ring, units, at), ring_at(old, queue->ring_units, at), QUEUE_UNIT_BYTES);
    queue->ring = ring;
    queue->ring_units = units;
    lock_release(&queue->lock);
    free(old);
    return TERN_OK;
}

void queue_free_ring(struct consume_queue *queue)
{
    uint8_t *gone = NULL;
    lock_acquire(&queue->lock);
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    if (queue->written == max) {
        gone = queue->ring;
        queue->ring = NULL;
        queue->ring_units = 0;
        queue->ring_first = max;
    }
    lock_release(&queue->lock);
    free(gone);
}

/* As many as a ring has at most as a rule; *rest: there are more. */
static enum tern_code write_some(struct consume_queue *queue, bool *rest)
{
    uint8_t raw[QUEUE_RING_UNITS_MAX * QUEUE_UNIT_BYTES];
    enum tern_code code = TERN_OK;
    lock_acquire(&queue->io_lock);
    lock_acquire(&queue->lock);
    int64_t from = queue->written;
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    int64_t left = queue->dead ? 0 : max - from;
    uint32_t count = left < QUEUE_RING_UNITS_MAX ? (uint32_t)left : QUEUE_RING_UNITS_MAX;
    *rest = left > count;
    if (count > 0)
        ring_copy_out(queue, from, count, raw);
    lock_release(&queue->lock);
    if (count > 0)
        code = queue_write_raw(queue, from, raw, count);
    if (code == TERN_OK) {
        lock_acquire(&queue->lock);
        queue->written = from + count;
        lock_release(&queue->lock);
    }
    lock_release(&queue->io_lock);
    return code;
}

enum tern_code queue_write_out(struct consume_queue *queue)
{
    bool rest = true;
    enum tern_code code = TERN_OK;
    while (rest && !code)
        code = write_some(queue, &rest);
    return code;
}

/* ---- putting ---- */

/* Takes as many units as the ring has room for; 0 when none. @thread the dispatch token's holder */
static uint32_t ring_put(struct consume_queue *queue, const struct queue_unit *units,
                         uint32_t count)
{
    lock_acquire(&queue->lock);
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    uint32_t room = queue->ring_units - (uint32_t)(max - queue->written);
    if (count > room)
        count = room;
    if (count > 0) {
        /* Units leave the ring before others are laid over them: a reader sees one or the other. */
        if (max + count - queue->ring_units > queue->ring_first)
            queue->ring_first = max + count - queue->ring_units;
        for (uint32_t i = 0; i < count; i++)
            queue_unit_encode(ring_at(queue->ring, queue->ring_units, max + i), &units[i]);
        queue->last_phys = units[count - 1].phys_off;
        queue->empty = false;
        atomic_store_explicit(&queue->max, max + count, memory_order_release);
    }
    lock_release(&queue->lock);
    return count;
}

/* Whether `offset` continues the queue. TERN_NOT_FOUND: the queue is gone, nothing is to be done.
 */
static enum tern_code check_order(struct consume_queue *queue, int64_t offset, bool *begins)
{
    lock_acquire(&queue->lock);
    *begins = queue->empty;
    int64_t max = atomic_load_explicit(&queue->max, memory_order_relaxed);
    lock_release(&queue->lock);
    if (consume_queue_dead(queue))
        return TERN_NOT_FOUND;
    if (*begins || offset == max)
        return TERN_OK;
    return TERN_CORRUPT;
}

/* No room on the disk: a ring of twice the size, as long as the table may keep so much.
 * @thread the dispatch token's holder */
static enum tern_code keep_more(struct consume_queue *queue, uint32_t have)
{
    struct queue_table *table = queue->table;
    if (table->keep_units < have)
        return TERN_NO_SPACE;
    enum tern_code code = ring_grow(queue, have * 2);
    if (code == TERN_OK) {
        table->keep_units -= have;
        table->kept_units += have;
    }
    return code;
}

/* A ring that takes more: a larger one, or the same when its units went to the file. */
static enum tern_code make_room(struct consume_queue *queue, uint32_t wanted)
{
    lock_acquire(&queue->lock); /* a flush may free an idle ring */
    uint32_t have = queue->ring_units;
    lock_release(&queue->lock);
    if (have >= QUEUE_RING_UNITS_MAX) {
        enum tern_code code = queue_write_out(queue);
        return code == TERN_NO_SPACE ? keep_more(queue, have) : code;
    }
    uint32_t units = have ? have : QUEUE_RING_UNITS_MIN / 2;
    do
        units *= 2;
    while (units < QUEUE_RING_UNITS_MAX && units < wanted);
    enum tern_code code = ring_grow(queue, units);
    if (code && have > 0)
        return queue_write_out(queue); /* no memory: the small one does too */
    return code;
}

enum tern_code consume_queue_put(struct consume_queue *queue, int64_t offset,
                                 const struct queue_unit *units, uint32_t count)
{
    if (count == 0)
        return TERN_OK;
    bool begins;
    enum tern_code code = check_order(queue, offset, &begins);
    if (code)
        return code == TERN_NOT_FOUND ? TERN_OK : code;
    if (begins && (code = queue_begin(queue, offset)) != TERN_OK)
        return code;
    while (count > 0 && !code && !consume_queue_dead(queue)) {
        uint32_t taken = ring_put(queue, units, count);
        units += taken;
        count -= taken;
        if (count > 0)
            code = make_room(queue, count);
    }
    queue_table_touch(queue->table, queue);
    return code;
}

/* ---- reading ---- */

/* Where the units from `offset` on are just now. */
enum place { IN_RING, IN_FILES, NOWHERE };

/*
 * Bounds *count by what is in one place, and copies the raw units to the end of `units` when that
 * is the ring; *raw is where they are or belong.
 */
static enum place read_ring(struct consume_queue *queue, int64_t offset, struct queue_unit *units,
                            uint32_t *count, uint8_t **raw)
{
    enum place place = NOWHERE;
    lock_acquire(&queue->lock);
    int64_t end = atomic_load_explicit(&queue->max, memory_order_relaxed);
    if (!queue->dead && offset < end) {
        place = offset >= queue->ring_first ? IN_RING : IN_FILES;
        if (place == IN_FILES)
            end = queue->ring_first;
        if (*count > end - offset)
            *count = (uint32_t)(end - offset);
        *raw = (uint8_t *)(units + *count) - (size_t)*count * QUEUE_UNIT_BYTES;
        if (place == IN_RING)
            ring_copy_out(queue, offset, *count, *raw);
    }
    lock_release(&queue->lock);
    return place;
}

/*
 * The raw bytes come to the end of the caller's array and are decoded from the front: unit i is
 * read from 4n + 20i and written to 24i, so that no raw unit is overwritten before its turn.
 */
enum tern_code consume_queue_read(struct consume_queue *queue, int64_t offset,
                                  struct queue_unit *units, uint32_t count, bool nowait,
                                  uint32_t *got)
{
    *got = 0;
    if (count == 0 || offset < consume_queue_min(queue) || offset >= consume_queue_max(queue))
        return TERN_OK;
    uint8_t *raw = NULL;
    enum place place = read_ring(queue, offset, units, &count, &raw);
    if (place == NOWHERE)
        return TERN_OK;
    if (place == IN_FILES) {
        enum tern_code code = queue_read_raw(queue, offset, raw, count, nowait, &count);
        if (code)
            return code == TERN_NOT_FOUND ? TERN_OK : code; /* expired meanwhile */
    }
    for (uint32_t i = 0; i < count; i++) {
        uint8_t one[QUEUE_UNIT_BYTES];
        memcpy(one, raw + (size_t)i * QUEUE_UNIT_BYTES, sizeof one);
        queue_unit_decode(&units[i], one);
    }
    *got = count;
    return TERN_OK;
}
