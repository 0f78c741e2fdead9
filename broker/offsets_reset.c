/*
 * Progress that is set explicitly, whatever was there: one queue's, or many queues' of a group at
 * once (cloneGroupOffset).
 *
 *   many: count what is missing ─► hold room for it ─► set each, giving back its room ─► done
 *                                     └ there is not so much: LIMIT, nothing was touched
 *
 * Invariant: what is held counts as used, so nobody else takes it, and a group stands in all of the
 * queues or in none. The lock is held for SLICE queues at a time.
 *
 * Threads: any. Failure modes: no memory in the middle leaves the first ones set; the text says how
 * many.
 */
#include "broker/offsets_internal.h"

#include <string.h>

enum { SLICE = 256 };

/* @locks holds:BROKER_OFFSETS */
static bool set(struct offsets *offsets, const char *group, const char *topic, int32_t queue_id,
                int64_t offset)
{
    struct offset_slot *slot = offsets_find(offsets, topic, group, queue_id);
    if (!slot)
        slot = offsets_make(offsets, topic, group, queue_id);
    if (!slot)
        return false;
    slot->offset = offset;
    slot->version = offset_version_next(slot->version);
    slot->kept_end = -1;
    offsets_changed(offsets, slot, false);
    return true;
}

enum tern_code offsets_reset(struct offsets *offsets, const char *group, const char *topic,
                             int32_t queue_id, int64_t offset)
{
    lock_acquire(&offsets->lock);
    bool done = set(offsets, group, topic, queue_id, offset);
    lock_release(&offsets->lock);
    if (done)
        change_counter_tell(offsets->changed.counter);
    return done ? TERN_OK : TERN_LIMIT;
}

/* ---- many ---- */

/* What a row needs beyond what is there; the entry is that of the first row of its topic. */
static struct offset_room room_of(struct offsets *offsets, const char *group,
                                  const struct offset_row *row, const char *last_topic)
{
    struct offset_room room = {0, 0};
    if (offsets_find(offsets, row->topic, group, row->queue_id))
        return room;
    room.text_bytes = OFFSET_SLOT_TEXT_BYTES;
    bool first = !last_topic || strcmp(last_topic, row->topic) != 0;
    if (first && !offsets_entry(offsets, row->topic, group)) {
        room.text_bytes += strlen(row->topic) + strlen(group) + OFFSET_ENTRY_TEXT_BYTES;
        room.entries = 1;
    }
    return room;
}

static const char *topic_before(const struct offset_row *rows, size_t at)
{
    return at > 0 ? rows[at - 1].topic : NULL;
}

static struct offset_room count_room(struct offsets *offsets, const char *group,
                                     const struct offset_row *rows, size_t count)
{
    struct offset_room all = {0, 0};
    for (size_t at = 0; at < count;) {
        lock_acquire(&offsets->lock);
        for (size_t end = count - at < SLICE ? count : at + SLICE; at < end; at++) {
            struct offset_room room = room_of(offsets, group, &rows[at], topic_before(rows, at));
            all.entries += room.entries;
            all.text_bytes += room.text_bytes;
        }
        lock_release(&offsets->lock);
    }
    return all;
}

/* Gives room back that was held for a row. @locks holds:BROKER_OFFSETS */
static void give_back(struct offsets *offsets, struct offset_room *mine, struct offset_room room)
{
    if (room.entries > mine->entries)
        room.entries = mine->entries;
    if (room.text_bytes > mine->text_bytes)
        room.text_bytes = mine->text_bytes;
    mine->entries -= room.entries;
    mine->text_bytes -= room.text_bytes;
    offsets->held.entries -= room.entries;
    offsets->held.text_bytes -= room.text_bytes;
}

static bool hold(struct offsets *offsets, const struct offset_room *room)
{
    lock_acquire(&offsets->lock);
    bool fits =
        offsets->entry_count + offsets->held.entries + room->entries <= OFFSET_ENTRIES_MAX &&
        offsets->text_bytes + offsets->held.text_bytes + room->text_bytes <= OFFSET_TEXT_MAX_BYTES;
    if (fits) {
        offsets->held.entries += room->entries;
        offsets->held.text_bytes += room->text_bytes;
    }
    lock_release(&offsets->lock);
    return fits;
}

enum tern_code offsets_reset_all(struct offsets *offsets, const char *group,
                                 const struct offset_row *rows, size_t count,
                                 struct tern_error *err)
{
    struct offset_room mine = count_room(offsets, group, rows, count);
    size_t at = 0;
    bool ok = true;
    if (!hold(offsets, &mine))
        return error_set(err, TERN_LIMIT,
                         "group %s: the table of offsets has no room for %zu more pairs of topic "
                         "and group (at most %d) or %zu more bytes (at most %d): no progress "
                         "was changed; delete groups that are not used any more",
                         group, (size_t)mine.entries, (int)OFFSET_ENTRIES_MAX, mine.text_bytes,
                         (int)OFFSET_TEXT_MAX_BYTES);
    while (ok && at < count) {
        lock_acquire(&offsets->lock);
        for (size_t end = count - at < SLICE ? count : at + SLICE; ok && at < end; at += ok) {
            const struct offset_row *row = &rows[at];
            give_back(offsets, &mine, room_of(offsets, group, row, topic_before(rows, at)));
            ok = set(offsets, group, row->topic, row->queue_id, row->offset);
        }
        lock_release(&offsets->lock);
    }
    lock_acquire(&offsets->lock);
    give_back(offsets, &mine, mine);
    lock_release(&offsets->lock);
    change_counter_tell(offsets->changed.counter);
    return ok ? TERN_OK
              : error_set(err, TERN_NO_MEMORY, "group %s: no memory after %zu of %zu queues", group,
                          at, count);
}
