/*
 * The offset table and its copies on the other members of the set: what has changed since a copy
 * looked last, and what a copy has that is newer.
 *
 *   commit here ─► numbered ─► offsets_changes() ─► wire ─► offsets_merge() there
 *
 *   merging (v, o) into a slot (V, O):   v > V  becomes (v, o); when a recovery raised V to v, O
 *                                               counts up to the recovered end
 *                                        v = V  O becomes max(O, o)
 *                                        v < V  when a recovery raised v to V, o counts up to the
 *                                               recovered end; else nothing
 *   no slot: becomes (v, o) when v is not below the floor; else, when only a recovery of this life
 *            raised the floor above v, o counts up to the recovered end
 *   a floor that rises removes what is below it
 *
 * Copies that go on exchanging what they have end up with the same table, in whatever order and how
 * often it comes. What came by merging as it is needs no way back to where it came from; what
 * became different on the way does, and counts as a change made here.
 *
 * Threads: any. Failure modes: a full table refuses new pairs and keeps merging the old ones.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/offsets_internal.h"

/* ---- giving ---- */

enum { BATCH_CHANGES = 32 };

/* A change whose names are copies. */
struct held_change {
    struct offset_change change;
    char topic[TOPIC_NAME_MAX + 1], group[GROUP_NAME_MAX + 1];
};

/* @locks holds:BROKER_OFFSETS */
static void hold_change(struct held_change *held, const struct offset_slot *slot)
{
    const struct offset_entry *entry = slot->entry;
    size_t topic_len = entry ? entry->topic_len : 0, group_len = entry ? entry->group_len : 0;
    if (entry) {
        memcpy(held->topic, entry->key, topic_len);
        memcpy(held->group, entry->key + topic_len + 1, group_len);
    }
    held->topic[topic_len] = held->group[group_len] = 0;
    held->change = (struct offset_change){.group = held->group,
                                          .topic = held->topic,
                                          .queue_id = slot->queue_id,
                                          .offset = slot->offset,
                                          .version = slot->version,
                                          .kept_end = slot->kept_end,
                                          .before = slot->before,
                                          .number = slot->node.number};
}

struct giving {
    struct offsets *offsets;
    struct change_reader reader;
    bool skip_merged;
    uint32_t room; /* changes that may still be given */
    uint64_t to;   /* everything up to there was given or skipped */
    bool ended;    /* nothing is left, or enough was given */
};

/* Takes the next rows; `to`, when they all are given. @locks takes:BROKER_OFFSETS */
static uint32_t take_batch(struct giving *giving, struct held_change batch[BATCH_CHANGES],
                           uint64_t *to)
{
    struct offsets *offsets = giving->offsets;
    uint32_t count = 0;
    lock_acquire(&offsets->lock);
    for (int steps = 0; steps < CHANGE_STEPS_MAX && count < BATCH_CHANGES && count < giving->room;
         steps++) {
        struct change_node *node = change_reader_next(&offsets->changed, &giving->reader);
        if (!node) {
            *to = change_list_last(&offsets->changed);
            giving->ended = true;
            break;
        }
        *to = node->number;
        if (!(giving->skip_merged && node->merged))
            hold_change(&batch[count++], (const struct offset_slot *)node);
    }
    giving->room -= count;
    if (giving->room == 0)
        giving->ended = true;
    lock_release(&offsets->lock);
    return count;
}

uint64_t offsets_changes(struct offsets *offsets, uint64_t after, uint32_t max, bool skip_merged,
                         bool (*fn)(void *arg, const struct offset_change *change), void *arg)
{
    struct held_change batch[BATCH_CHANGES];
    struct giving giving = {.offsets = offsets, .skip_merged = skip_merged, .room = max};
    bool refused = false;
    lock_acquire(&offsets->lock);
    change_reader_begin(&offsets->changed, &giving.reader, after);
    giving.to = giving.reader.after;
    while (!change_reader_seek(&offsets->changed, &giving.reader)) {
        lock_release(&offsets->lock); /* others want it, too */
        lock_acquire(&offsets->lock);
    }
    lock_release(&offsets->lock);
    while (!giving.ended && !refused) {
        uint64_t to = giving.to;
        uint32_t count = take_batch(&giving, batch, &to);
        for (uint32_t i = 0; i < count && !refused; i++) {
            refused = !fn(arg, &batch[i].change);
            if (!refused)
                giving.to = batch[i].change.number;
        }
        if (!refused)
            giving.to = to;
    }
    lock_acquire(&offsets->lock);
    change_reader_end(&offsets->changed, &giving.reader, refused ? 0 : giving.to);
    lock_release(&offsets->lock);
    return giving.to;
}

/* ---- taking ---- */

/* true: the slot has changed. @locks holds:BROKER_OFFSETS */
static bool merge_same(struct offsets *offsets, struct offset_slot *slot,
                       const struct offset_change *change)
{
    if (slot->kept_end < 0 && change->kept_end >= 0) {
        slot->kept_end = change->kept_end;
        slot->before = change->before;
    }
    if (change->offset <= slot->offset)
        return false;
    slot->offset = change->offset;
    offsets_changed(offsets, slot, true);
    return true;
}

/* @locks holds:BROKER_OFFSETS */
static void merge_newer(struct offsets *offsets, struct offset_slot *slot, bool is_new,
                        const struct offset_change *change)
{
    int64_t offset = change->offset;
    if (!is_new && change->kept_end >= 0 &&
        offset_version_compare(slot->version, change->before) == 0) {
        int64_t kept = slot->offset < change->kept_end ? slot->offset : change->kept_end;
        offset = kept > offset ? kept : offset;
    }
    slot->offset = offset;
    slot->version = change->version;
    slot->kept_end = change->kept_end;
    slot->before = change->before;
    offsets_changed(offsets, slot, offset == change->offset);
}

/* true: a slot has changed, *out. *raised as of offsets_merge(). @locks holds:BROKER_OFFSETS */
static bool merge_slot(struct offsets *offsets, const struct offset_change *change,
                       struct offset_slot **out, bool *raised, enum tern_code *code)
{
    struct offset_slot *slot =
        offsets_find(offsets, change->topic, change->group, change->queue_id);
    bool is_new = !slot;
    int order = offset_version_compare(change->version,
                                       slot ? slot->version
                                            : offsets_floor(offsets, change->topic, change->group));
    *out = slot;
    if (order < 0)
        return slot && offsets_count_before(offsets, slot, change->offset, change->version);
    if (slot && order == 0)
        return merge_same(offsets, slot, change);
    if (!slot)
        *out = slot = offsets_make(offsets, change->topic, change->group, change->queue_id);
    if (!slot) {
        *code = TERN_LIMIT;
        return false;
    }
    merge_newer(offsets, slot, is_new, change);
    *raised = order > 0;
    return true;
}

/* Removes slots of one entry below the floor; the whole entry when none is left. true: it went.
 * @locks holds:BROKER_OFFSETS */
static bool sweep_entry(struct offsets *offsets, struct offset_entry **link,
                        struct offset_version floor)
{
    struct offset_entry *entry = *link;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < entry->slot_count; i++) {
        struct offset_slot *slot = entry->slots[i];
        if (offset_version_compare(slot->version, floor) >= 0) {
            entry->slots[kept++] = slot;
            continue;
        }
        change_list_remove(&slot->node);
        free(slot);
        offsets->text_bytes -= OFFSET_SLOT_TEXT_BYTES;
    }
    entry->slot_count = kept;
    if (kept)
        return false;
    offsets_entry_free(offsets, link);
    return true;
}

/* @locks takes:BROKER_OFFSETS */
static void sweep(struct offsets *offsets, const struct offset_change *floor)
{
    size_t topic_len = strlen(floor->topic);
    for (size_t first = 0; first < OFFSET_BUCKETS; first += OFFSET_BUCKETS_AT_ONCE) {
        lock_acquire(&offsets->lock);
        for (size_t i = first; i < first + OFFSET_BUCKETS_AT_ONCE; i++) {
            struct offset_entry **link = &offsets->buckets[i];
            while (*link) {
                struct offset_entry *entry = *link;
                bool match = topic_len ? entry->topic_len == topic_len &&
                                             !memcmp(entry->key, floor->topic, topic_len)
                                       : !strcmp(entry->key + entry->topic_len + 1, floor->group);
                if (!match || offset_entry_is_floor(entry) ||
                    !sweep_entry(offsets, link, floor->version))
                    link = &entry->next;
            }
        }
        lock_release(&offsets->lock);
    }
}

/* true: the floor rose. The base stands for no deletion, nothing goes with it. */
static bool merge_floor(struct offsets *offsets, const struct offset_change *change,
                        enum tern_code *code)
{
    bool is_base = !change->topic[0] && !change->group[0];
    struct offset_slot *slot = &offsets->base;
    lock_acquire(&offsets->lock);
    if (!is_base) {
        struct offset_entry *entry = offsets_entry(offsets, change->topic, change->group);
        if (!entry)
            entry = offsets_entry_make(offsets, change->topic, change->group);
        slot = entry ? entry->slots[0] : NULL;
    }
    bool raised = slot && offset_version_compare(slot->version, change->version) < 0;
    if (raised) {
        slot->version = change->version;
        slot->kept_end = -1;
        offsets_changed(offsets, slot, true);
    }
    bool others = offsets->entry_count > offsets->floor_count;
    lock_release(&offsets->lock);
    if (!slot)
        *code = TERN_LIMIT;
    if (raised && !is_base && others)
        sweep(offsets, change);
    return raised;
}

enum tern_code offsets_merge(struct offsets *offsets, const struct offset_change *change,
                             bool *raised)
{
    enum tern_code code = TERN_OK;
    struct offset_journal_entry entry = {change->group, change->topic, change->queue_id, 0,
                                         change->version};
    bool changed, rose = false;
    if (change->queue_id < 0) {
        changed = rose = merge_floor(offsets, change, &code);
    } else {
        struct offset_slot *slot = NULL;
        bool made = offsets_take_before(offsets, change->topic, change->group, change->queue_id,
                                        change->offset, change->version);
        lock_acquire(&offsets->lock);
        changed = merge_slot(offsets, change, &slot, &rose, &code) || (made && slot);
        if (changed) {
            entry.offset = slot->offset;
            entry.version = slot->version;
        }
        lock_release(&offsets->lock);
    }
    if (changed) {
        if (offsets->journal) /* not while it is replayed */
            offset_journal_add(offsets->journal, &entry);
        change_counter_tell(offsets->changed.counter);
    }
    if (raised)
        *raised = rose;
    return code;
}
