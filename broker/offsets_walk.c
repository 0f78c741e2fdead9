/*
 * What concerns the whole offset table: deleting a topic's or group's progress, walking, lowering
 * what lies beyond the log.
 *
 *   deleting: floor raised ─► entries go, bucket by bucket ─► floor above all that they held
 *   lowering: slots are copied out, their queues' ends asked for without the lock, each slot that
 * is beyond is lowered and its version raised
 *
 * Invariants: see offsets.c. Whatever comes in between two holds of the lock is either seen by the
 * walk or made under the floor that was raised before it.
 *
 * Threads: any, one walk of a kind at a time is meant. Failure modes: no memory for the copy of
 * some hundred buckets ends a walk half done and says so.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/offsets_internal.h"

/* ---- removing ---- */

/* Raises the floor of a topic or group (the other is "") to at least `floor`. @locks holds */
static void raise_floor(struct offsets *offsets, const char *topic, const char *group,
                        struct offset_version floor)
{
    struct offset_entry *entry = offsets_entry(offsets, topic, group);
    if (!entry)
        entry = offsets_entry_make(offsets, topic, group);
    struct offset_slot *slot = entry ? entry->slots[0] : &offsets->base;
    slot->version = offset_version_max(slot->version, floor);
    offsets_changed(offsets, slot, false);
}

/* Removes the matching entries of one bucket. @locks holds:BROKER_OFFSETS */
static void sweep_bucket(struct offsets *offsets, size_t bucket, const char *topic,
                         const char *group)
{
    struct offset_entry **link = &offsets->buckets[bucket];
    while (*link) {
        struct offset_entry *entry = *link;
        size_t topic_len = entry->topic_len;
        bool match = topic[0] ? topic_len == strlen(topic) && !memcmp(entry->key, topic, topic_len)
                              : !strcmp(entry->key + topic_len + 1, group);
        if (!match || offset_entry_is_floor(entry)) {
            link = &entry->next;
            continue;
        }
        struct offset_version highest = {0, 0};
        for (uint32_t i = 0; i < entry->slot_count; i++)
            highest = offset_version_max(highest, entry->slots[i]->version);
        offsets_entry_free(offsets, link);
        raise_floor(offsets, topic, group, offset_version_next(highest));
        link = &offsets->buckets[bucket]; /* a new floor may stand in this bucket: begin anew */
    }
}

void offsets_remove_all(struct offsets *offsets, const char *topic, const char *group)
{
    lock_acquire(&offsets->lock);
    raise_floor(offsets, topic, group, offset_version_next(offsets_floor(offsets, topic, group)));
    lock_release(&offsets->lock);
    for (size_t first = 0; first < OFFSET_BUCKETS; first += OFFSET_BUCKETS_AT_ONCE) {
        lock_acquire(&offsets->lock);
        for (size_t i = first; i < first + OFFSET_BUCKETS_AT_ONCE; i++)
            sweep_bucket(offsets, i, topic, group);
        lock_release(&offsets->lock);
    }
    change_counter_tell(offsets->changed.counter);
}

void offsets_remove_topic(struct offsets *offsets, const char *topic)
{
    offsets_remove_all(offsets, topic, "");
}

void offsets_remove_group(struct offsets *offsets, const char *group)
{
    offsets_remove_all(offsets, "", group);
}

/* ---- walking ---- */

/* A growing copy of offsets: records of a head and the two names, terminated. */
struct copy {
    unsigned char *bytes;
    size_t len, cap;
};
struct copy_head {
    int64_t offset;
    int32_t queue_id;
    uint16_t topic_len, group_len;
};

static bool copy_add(struct copy *copy, const struct offset_entry *entry,
                     const struct offset_slot *slot)
{
    struct copy_head head = {slot->offset, slot->queue_id, entry->topic_len, entry->group_len};
    size_t names = (size_t)head.topic_len + head.group_len + 2;
    size_t need = copy->len + sizeof head + names;
    if (need > copy->cap) {
        size_t cap = need * 2;
        unsigned char *bytes = realloc(copy->bytes, cap);
        if (!bytes)
            return false;
        copy->bytes = bytes;
        copy->cap = cap;
    }
    memcpy(copy->bytes + copy->len, &head, sizeof head);
    memcpy(copy->bytes + copy->len + sizeof head, entry->key, names);
    copy->bytes[copy->len + sizeof head + head.topic_len] = 0; /* was '@' */
    copy->len = need;
    return true;
}

static bool copy_entry(struct copy *copy, const struct offset_entry *entry)
{
    for (uint32_t i = 0; i < entry->slot_count; i++)
        if (!copy_add(copy, entry, entry->slots[i]))
            return false;
    return true;
}

static bool entry_matches(const struct offset_entry *entry, const char *group, const char *topic)
{
    return !offset_entry_is_floor(entry) &&
           (!group || !strcmp(entry->key + entry->topic_len + 1, group)) &&
           (!topic ||
            (entry->topic_len == strlen(topic) && !memcmp(entry->key, topic, entry->topic_len)));
}

/* @locks takes:BROKER_OFFSETS */
static bool copy_buckets(struct offsets *offsets, struct copy *copy, size_t first,
                         const char *group, const char *topic)
{
    bool good = true;
    lock_acquire(&offsets->lock);
    for (size_t i = first; good && i < first + OFFSET_BUCKETS_AT_ONCE; i++)
        for (const struct offset_entry *e = offsets->buckets[i]; good && e; e = e->next)
            if (entry_matches(e, group, topic))
                good = copy_entry(copy, e);
    lock_release(&offsets->lock);
    return good;
}

typedef bool (*each_fn)(void *arg, const char *group, const char *topic, int32_t queue_id,
                        int64_t offset);

/* false: fn wants no more. */
static bool give_copy(const struct copy *copy, each_fn fn, void *arg)
{
    for (size_t at = 0; at < copy->len;) {
        struct copy_head head;
        memcpy(&head, copy->bytes + at, sizeof head);
        const char *topic = (const char *)copy->bytes + at + sizeof head;
        const char *group = topic + head.topic_len + 1;
        at += sizeof head + (size_t)head.topic_len + head.group_len + 2;
        if (!fn(arg, group, topic, head.queue_id, head.offset))
            return false;
    }
    return true;
}

enum tern_code offsets_each(struct offsets *offsets, const char *group, const char *topic,
                            bool (*fn)(void *arg, const char *group, const char *topic,
                                       int32_t queue_id, int64_t offset),
                            void *arg)
{
    struct copy copy = {0};
    bool good = true;
    if (group && topic) {
        lock_acquire(&offsets->lock);
        const struct offset_entry *entry = offsets_entry(offsets, topic, group);
        if (entry)
            good = copy_entry(&copy, entry);
        lock_release(&offsets->lock);
        if (good)
            (void)give_copy(&copy, fn, arg);
    } else {
        bool more = true;
        for (size_t at = 0; good && more && at < OFFSET_BUCKETS; at += OFFSET_BUCKETS_AT_ONCE) {
            copy.len = 0;
            good = copy_buckets(offsets, &copy, at, group, topic);
            more = good && give_copy(&copy, fn, arg);
        }
    }
    free(copy.bytes);
    return good ? TERN_OK : TERN_NO_MEMORY;
}

/* ---- lowering ---- */

typedef enum tern_code (*end_fn)(void *arg, const char *topic, int32_t queue_id, int64_t *out,
                                 struct tern_error *err);

struct lowering {
    struct offsets *offsets;
    end_fn end;
    void *arg;
    struct offset_version below; /* only slots with such versions */
    bool raise;                  /* all versions to `first`, too */
    struct offset_version first;
    uint32_t lowered;
    enum tern_code code;
    struct tern_error err;
};

/* true: it was beyond the end. @locks holds:BROKER_OFFSETS */
static bool lower_slot(struct lowering *lowering, struct offset_slot *slot, int64_t end)
{
    bool beyond = slot->offset > end;
    if (offset_version_compare(slot->version, lowering->below) >= 0)
        return false;
    if (lowering->raise) {
        slot->before = slot->version;
        slot->kept_end = end;
        slot->version = lowering->first;
    } else if (beyond) {
        slot->version = offset_version_next(slot->version);
        slot->kept_end = -1;
    }
    if (beyond)
        slot->offset = end;
    if (beyond || lowering->raise)
        offsets_changed(lowering->offsets, slot, false);
    return beyond;
}

static bool lower_one(void *arg, const char *group, const char *topic, int32_t queue_id,
                      int64_t offset)
{
    struct lowering *lowering = arg;
    struct offsets *offsets = lowering->offsets;
    int64_t end = 0;
    lowering->code = lowering->end(lowering->arg, topic, queue_id, &end, &lowering->err);
    if (lowering->code)
        return false;
    if (offset <= end && !lowering->raise)
        return true;
    lock_acquire(&offsets->lock);
    struct offset_slot *slot = offsets_find(offsets, topic, group, queue_id);
    bool lowered = slot && lower_slot(lowering, slot, end);
    lock_release(&offsets->lock);
    if (lowered) {
        lowering->lowered++;
        log_warn(offsets->env.log, "offset_beyond_data",
                 "group=%s topic=%s queue=%" PRId32 " stored=%" PRId64 " lowered_to=%" PRId64,
                 group, topic, queue_id, offset, end);
    }
    return true;
}

static enum tern_code lower_all(struct lowering *lowering)
{
    enum tern_code code = offsets_each(lowering->offsets, NULL, NULL, lower_one, lowering);
    if (code)
        error_set(&lowering->err, code, "no memory to walk over the consumer offsets");
    if (lowering->lowered || lowering->raise)
        change_counter_tell(lowering->offsets->changed.counter);
    return code ? code : lowering->code;
}

/* An end that is known at once. */
struct known_end {
    int64_t (*max)(void *arg, const char *topic, int32_t queue_id);
    void *arg;
};

static enum tern_code ask_known(void *arg, const char *topic, int32_t queue_id, int64_t *out,
                                struct tern_error *err)
{
    struct known_end *known = arg;
    (void)err;
    *out = known->max(known->arg, topic, queue_id);
    return TERN_OK;
}

static const struct offset_version any_version = {UINT64_MAX, UINT64_MAX};

int64_t offsets_clamp(struct offsets *offsets,
                      int64_t (*max)(void *arg, const char *topic, int32_t queue_id), void *arg)
{
    struct known_end known = {max, arg};
    struct lowering lowering = {
        .offsets = offsets, .end = ask_known, .arg = &known, .below = any_version};
    return lower_all(&lowering) == TERN_OK ? (int64_t)lowering.lowered : -1;
}

enum tern_code offsets_lower(struct offsets *offsets,
                             enum tern_code (*end)(void *arg, const char *topic, int32_t queue_id,
                                                   int64_t *out, struct tern_error *err),
                             void *arg, uint32_t *lowered, struct tern_error *err)
{
    struct lowering lowering = {.offsets = offsets, .end = end, .arg = arg, .below = any_version};
    enum tern_code code = lower_all(&lowering);
    if (lowered)
        *lowered = lowering.lowered;
    return code ? error_set(err, code, "%s", error_text(&lowering.err, code)) : TERN_OK;
}

static struct offset_version highest_version(struct offsets *offsets)
{
    lock_acquire(&offsets->lock);
    struct offset_version highest = offsets->base.version;
    lock_release(&offsets->lock);
    for (size_t first = 0; first < OFFSET_BUCKETS; first += OFFSET_BUCKETS_AT_ONCE) {
        lock_acquire(&offsets->lock);
        for (size_t i = first; i < first + OFFSET_BUCKETS_AT_ONCE; i++)
            for (const struct offset_entry *e = offsets->buckets[i]; e; e = e->next)
                for (uint32_t s = 0; s < e->slot_count; s++)
                    highest = offset_version_max(highest, e->slots[s]->version);
        lock_release(&offsets->lock);
    }
    return highest;
}

int64_t offsets_begin_epoch(struct offsets *offsets, uint64_t number,
                            int64_t (*max)(void *arg, const char *topic, int32_t queue_id),
                            void *arg)
{
    struct known_end known = {max, arg};
    struct offset_version highest = highest_version(offsets);
    uint64_t epoch = highest.epoch + (highest.epoch < INT64_MAX);
    if (epoch < number && number <= INT64_MAX)
        epoch = number;
    struct offset_version first = {epoch, 0};
    struct lowering lowering = {.offsets = offsets,
                                .end = ask_known,
                                .arg = &known,
                                .below = first,
                                .raise = true,
                                .first = first};
    /* From here on new slots are of the new epoch; the walk finds those from before. */
    lock_acquire(&offsets->lock);
    if (offset_version_compare(offsets->base.version, first) < 0) {
        offsets->base.before = offsets->base.version;
        offsets->base.kept_end = 0;
        atomic_store(&offsets->recovers, true);
        offsets->base.version = first;
    }
    offsets_changed(offsets, &offsets->base, false);
    lock_release(&offsets->lock);
    return lower_all(&lowering) == TERN_OK ? (int64_t)lowering.lowered : -1;
}

int64_t offsets_recovered_at(struct offsets *offsets)
{
    lock_acquire(&offsets->lock);
    int64_t at = offsets->recovered_at;
    lock_release(&offsets->lock);
    return at;
}

void offsets_note_recovered_at(struct offsets *offsets, int64_t phys_off)
{
    lock_acquire(&offsets->lock);
    offsets->recovered_at = phys_off;
    lock_release(&offsets->lock);
}

/* Slots of the recovered version, made by it or since; those that were reset before it were noted
 * otherwise. */
static bool take_up_one(void *arg, const char *group, const char *topic, int32_t queue_id,
                        int64_t offset)
{
    struct offsets *offsets = arg;
    (void)offset;
    int64_t end = offsets->recovered(offsets->recovered_arg, topic, queue_id);
    lock_acquire(&offsets->lock);
    struct offset_slot *slot = offsets_find(offsets, topic, group, queue_id);
    if (slot && slot->kept_end < 0 &&
        offset_version_compare(slot->version, offsets->base.version) == 0 &&
        offset_version_compare(slot->before, offsets->base.before) == 0)
        slot->kept_end = end;
    lock_release(&offsets->lock);
    return true;
}

enum tern_code offsets_take_up_recovery(struct offsets *offsets)
{
    if (offsets_recovered_at(offsets) < 0 || !offsets->recovered)
        return TERN_OK;
    enum tern_code code = offsets_each(offsets, NULL, NULL, take_up_one, offsets);
    lock_acquire(&offsets->lock);
    if (code == TERN_OK) {
        offsets->base.kept_end = 0;
        atomic_store(&offsets->recovers, true);
    }
    lock_release(&offsets->lock);
    return code;
}

enum tern_code offsets_forget(struct offsets *offsets, struct tern_error *err)
{
    lock_acquire(&offsets->lock);
    offsets_clear(offsets);
    change_list_remove(&offsets->base.node);
    offsets->base.kept_end = -1;
    offsets->changes++;
    lock_release(&offsets->lock);
    return offsets_persist(offsets, err);
}
