/*
 * Consumer progress in memory.
 *
 * Its place: pulls and commits from many clients raise offsets here, a few times a second each;
 * resets, deletions and the clamping after a recovery change versions; offsets_file.c writes it
 * down every few seconds.
 *
 *   commit (v, o) on a slot (V, O):   v < V  refused, the client learns (V, O)
 *                                     v = V  O becomes max(O, o)
 *                                     v > V  becomes (v, o): this broker had missed a reset
 *   no slot:                          V is the floor: max of base, the topic's, the group's
 *
 * Invariants: an offset falls only together with a rise of its version. A removed slot's version
 * lies below the floor that stands for it, so no commit from before the removal can bring it back.
 *
 * Threads: any. One lock, held for one look-up; walks over everything let go of it every few
 * hundred buckets. Failure modes: a full table refuses new pairs and keeps serving the old ones.
 */
#include "broker/offsets_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { SLOTS_AT_FIRST = 4 };

/* ---- versions ---- */

static struct offset_version version_max(struct offset_version a, struct offset_version b)
{
    return offset_version_compare(a, b) < 0 ? b : a;
}

static struct offset_version version_next(struct offset_version version)
{
    if (version.counter < INT64_MAX)
        version.counter++;
    else
        version = (struct offset_version){version.epoch + 1, 0};
    return version;
}

/* ---- entries and slots; @locks holds:BROKER_OFFSETS ---- */

static uint32_t hash_bytes(uint32_t hash, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)text[i]) * UINT32_C(16777619);
    return hash;
}

static uint32_t hash_pair(const char *topic, size_t topic_len, const char *group, size_t group_len)
{
    uint32_t hash = hash_bytes(UINT32_C(2166136261), topic, topic_len);
    hash = hash_bytes((hash ^ '@') * UINT32_C(16777619), group, group_len);
    return hash ^ hash >> 16;
}

struct offset_entry *offsets_entry(struct offsets *offsets, const char *topic, const char *group)
{
    size_t topic_len = strlen(topic);
    size_t group_len = strlen(group);
    uint32_t hash = hash_pair(topic, topic_len, group, group_len);
    struct offset_entry *entry = offsets->buckets[hash % OFFSET_BUCKETS];
    while (entry && !(entry->hash == hash && entry->topic_len == topic_len &&
                      entry->group_len == group_len && !memcmp(entry->key, topic, topic_len) &&
                      !memcmp(entry->key + topic_len + 1, group, group_len)))
        entry = entry->next;
    return entry;
}

struct offset_entry *offsets_entry_make(struct offsets *offsets, const char *topic,
                                        const char *group)
{
    size_t topic_len = strlen(topic);
    size_t group_len = strlen(group);
    size_t text = topic_len + group_len + OFFSET_ENTRY_TEXT_BYTES;
    if (topic_len > TOPIC_NAME_MAX || group_len > GROUP_NAME_MAX ||
        offsets->entry_count >= OFFSET_ENTRIES_MAX ||
        offsets->text_bytes + text > OFFSET_TEXT_MAX_BYTES)
        return NULL;
    struct offset_entry *entry = malloc(sizeof *entry + topic_len + group_len + 2);
    if (!entry)
        return NULL;
    *entry = (struct offset_entry){.hash = hash_pair(topic, topic_len, group, group_len),
                                   .topic_len = (uint16_t)topic_len,
                                   .group_len = (uint16_t)group_len};
    memcpy(entry->key, topic, topic_len);
    entry->key[topic_len] = '@';
    memcpy(entry->key + topic_len + 1, group, group_len + 1);
    struct offset_entry **bucket = &offsets->buckets[entry->hash % OFFSET_BUCKETS];
    entry->next = *bucket;
    *bucket = entry;
    offsets->entry_count++;
    offsets->floor_count += offset_entry_is_floor(entry);
    offsets->text_bytes += text;
    return entry;
}

/* Takes the entry out of its bucket; *link points to it. */
static void entry_free(struct offsets *offsets, struct offset_entry **link)
{
    struct offset_entry *entry = *link;
    *link = entry->next;
    offsets->entry_count--;
    offsets->floor_count -= offset_entry_is_floor(entry);
    offsets->text_bytes -= (size_t)entry->topic_len + entry->group_len + OFFSET_ENTRY_TEXT_BYTES +
                           (size_t)entry->slot_count * OFFSET_SLOT_TEXT_BYTES;
    free(entry->slots);
    free(entry);
}

/* Index of the first slot whose queue is not below. */
static uint32_t slot_index(const struct offset_entry *entry, int32_t queue_id)
{
    uint32_t low = 0;
    uint32_t high = entry->slot_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (entry->slots[mid].queue_id < queue_id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct offset_slot *offsets_slot(struct offset_entry *entry, int32_t queue_id)
{
    uint32_t i = slot_index(entry, queue_id);
    return i < entry->slot_count && entry->slots[i].queue_id == queue_id ? &entry->slots[i] : NULL;
}

struct offset_slot *offsets_slot_make(struct offsets *offsets, struct offset_entry *entry,
                                      int32_t queue_id)
{
    if (offsets->text_bytes + OFFSET_SLOT_TEXT_BYTES > OFFSET_TEXT_MAX_BYTES)
        return NULL;
    if (entry->slot_count == entry->slot_cap) {
        uint32_t cap = entry->slot_cap ? entry->slot_cap * 2 : SLOTS_AT_FIRST;
        struct offset_slot *slots = realloc(entry->slots, cap * sizeof *slots);
        if (!slots)
            return NULL;
        entry->slots = slots;
        entry->slot_cap = cap;
    }
    uint32_t i = slot_index(entry, queue_id);
    memmove(&entry->slots[i + 1], &entry->slots[i],
            (entry->slot_count - i) * sizeof entry->slots[0]);
    entry->slots[i] = (struct offset_slot){.queue_id = queue_id, .kept_end = -1};
    entry->slot_count++;
    offsets->text_bytes += OFFSET_SLOT_TEXT_BYTES;
    return &entry->slots[i];
}

void offsets_clear(struct offsets *offsets)
{
    for (size_t i = 0; i < OFFSET_BUCKETS; i++)
        while (offsets->buckets[i])
            entry_free(offsets, &offsets->buckets[i]);
    offsets->base = (struct offset_version){0, 0};
}

/* The version that counts where there is no slot. */
static struct offset_version floor_of(struct offsets *offsets, const char *topic, const char *group)
{
    struct offset_version floor = offsets->base;
    if (offsets->floor_count > 0) {
        const struct offset_entry *of_topic = offsets_entry(offsets, topic, "");
        const struct offset_entry *of_group = offsets_entry(offsets, "", group);
        if (of_topic)
            floor = version_max(floor, of_topic->floor);
        if (of_group)
            floor = version_max(floor, of_group->floor);
    }
    return floor;
}

static struct offset_slot *find_slot(struct offsets *offsets, const char *topic, const char *group,
                                     int32_t queue_id)
{
    struct offset_entry *entry = offsets_entry(offsets, topic, group);
    return entry ? offsets_slot(entry, queue_id) : NULL;
}

/* A new slot with the floor's version; entry NULL: made, too. NULL: full. */
static struct offset_slot *make_slot(struct offsets *offsets, struct offset_entry *entry,
                                     const char *topic, const char *group, int32_t queue_id)
{
    struct offset_slot *slot = NULL;
    if (!entry)
        entry = offsets_entry_make(offsets, topic, group);
    if (entry)
        slot = offsets_slot_make(offsets, entry, queue_id);
    if (slot)
        slot->version = floor_of(offsets, topic, group);
    offsets->slots_added = true;
    return slot;
}

/* ---- life ---- */

static enum offsets_commit_result commit(struct offsets *offsets, const char *group,
                                         const char *topic, int32_t queue_id, int64_t offset,
                                         struct offset_version version, int64_t *held,
                                         struct offset_version *held_version);

/* A commit that the table on disk may not have. */
static void replay(void *arg, const struct offset_journal_entry *entry)
{
    struct offsets *offsets = arg;
    int64_t held;
    struct offset_version held_version;
    lock_acquire(&offsets->lock);
    (void)commit(offsets, entry->group, entry->topic, entry->queue_id, entry->offset,
                 entry->version, &held, &held_version);
    lock_release(&offsets->lock);
}

static enum tern_code open_journal(struct offsets *offsets, struct tern_error *err)
{
    uint32_t replayed;
    enum tern_code code = offset_journal_open(&offsets->env, offsets->path, replay, offsets,
                                              &offsets->journal, &replayed, err);
    if (code == TERN_OK && replayed)
        log_info(offsets->env.log, "offset_journal_replayed", "commits=%" PRIu32, replayed);
    return code;
}

enum tern_code offsets_create(const struct env *env, const char *path, struct offsets **out,
                              struct tern_error *err)
{
    *out = NULL;
    if (strlen(path) >= FS_PATH_BYTES)
        return error_set(err, TERN_INVALID, "path of the offset table is too long");
    struct offsets *offsets = calloc(1, sizeof *offsets);
    struct offset_entry **buckets = calloc(OFFSET_BUCKETS, sizeof *buckets);
    if (!offsets || !buckets) {
        free(offsets);
        free(buckets);
        return error_set(err, TERN_NO_MEMORY, "no memory for the offset table");
    }
    offsets->env = *env;
    offsets->buckets = buckets;
    memcpy(offsets->path, path, strlen(path) + 1);
    lock_init(&offsets->file_lock, LOCK_BROKER_TABLES);
    lock_init(&offsets->lock, LOCK_BROKER_OFFSETS);
    enum tern_code code = offsets_load(offsets, err);
    if (code == TERN_OK || code == TERN_NOT_FOUND)
        code = open_journal(offsets, err);
    if (code) {
        offsets_destroy(offsets);
        return code;
    }
    *out = offsets;
    return TERN_OK;
}

void offsets_destroy(struct offsets *offsets)
{
    if (!offsets)
        return;
    offset_journal_close(offsets->journal);
    offsets_clear(offsets);
    lock_fini(&offsets->lock);
    lock_fini(&offsets->file_lock);
    free(offsets->buckets);
    free(offsets);
}

/* ---- single offsets ---- */

bool offsets_query(struct offsets *offsets, const char *group, const char *topic, int32_t queue_id,
                   int64_t *offset, struct offset_version *version)
{
    lock_acquire(&offsets->lock);
    const struct offset_slot *slot = find_slot(offsets, topic, group, queue_id);
    if (slot)
        *offset = slot->offset;
    *version = slot ? slot->version : floor_of(offsets, topic, group);
    lock_release(&offsets->lock);
    return slot != NULL;
}

/*
 * A commit of the version before a recovery: what lies below the recovered end is still what it was
 * made for. @locks holds:BROKER_OFFSETS
 */
static enum offsets_commit_result commit_old(struct offsets *offsets, struct offset_slot *slot,
                                             int64_t offset, struct offset_version version,
                                             int64_t *held)
{
    if (!slot || slot->kept_end < 0 || offset_version_compare(version, slot->before) != 0)
        return OFFSETS_VERSION_OLD;
    int64_t kept = offset < slot->kept_end ? offset : slot->kept_end;
    if (slot->offset < kept) {
        slot->offset = kept;
        offsets->changes++;
    }
    *held = slot->offset;
    return offset <= slot->kept_end ? OFFSETS_STORED : OFFSETS_VERSION_OLD;
}

/* @locks holds:BROKER_OFFSETS */
static enum offsets_commit_result commit(struct offsets *offsets, const char *group,
                                         const char *topic, int32_t queue_id, int64_t offset,
                                         struct offset_version version, int64_t *held,
                                         struct offset_version *held_version)
{
    struct offset_entry *entry = offsets_entry(offsets, topic, group);
    struct offset_slot *slot = entry ? offsets_slot(entry, queue_id) : NULL;
    *held = slot ? slot->offset : -1;
    *held_version = slot ? slot->version : floor_of(offsets, topic, group);
    int order = offset_version_compare(version, *held_version);
    if (order < 0)
        return commit_old(offsets, slot, offset, version, held);
    if (slot && order == 0 && offset <= slot->offset)
        return OFFSETS_LOWER;
    if (!slot)
        slot = make_slot(offsets, entry, topic, group, queue_id);
    if (!slot)
        return OFFSETS_FULL;
    if (order > 0)
        slot->kept_end = -1;
    slot->offset = *held = offset;
    slot->version = *held_version = version;
    offsets->changes++;
    return OFFSETS_STORED;
}

enum offsets_commit_result offsets_commit(struct offsets *offsets, const char *group,
                                          const char *topic, int32_t queue_id, int64_t offset,
                                          struct offset_version version, int64_t *held,
                                          struct offset_version *held_version)
{
    lock_acquire(&offsets->lock);
    enum offsets_commit_result result =
        commit(offsets, group, topic, queue_id, offset, version, held, held_version);
    lock_release(&offsets->lock);
    if (result == OFFSETS_STORED)
        offset_journal_add(offsets->journal, &(struct offset_journal_entry){group, topic, queue_id,
                                                                            *held, *held_version});
    if (result == OFFSETS_LOWER && offset < *held)
        log_warn(offsets->env.log, "commit_lower_ignored",
                 "group=%s topic=%s queue=%" PRId32 " committed=%" PRId64 " held=%" PRId64, group,
                 topic, queue_id, offset, *held);
    else if (result == OFFSETS_FULL)
        log_error(offsets->env.log, "offset_table_full", "group=%s topic=%s queue=%" PRId32, group,
                  topic, queue_id);
    return result;
}

enum tern_code offsets_reset(struct offsets *offsets, const char *group, const char *topic,
                             int32_t queue_id, int64_t offset)
{
    lock_acquire(&offsets->lock);
    struct offset_entry *entry = offsets_entry(offsets, topic, group);
    struct offset_slot *slot = entry ? offsets_slot(entry, queue_id) : NULL;
    if (!slot)
        slot = make_slot(offsets, entry, topic, group, queue_id);
    if (slot) {
        slot->offset = offset;
        slot->version = version_next(slot->version);
        slot->kept_end = -1;
        offsets->changes++;
    }
    lock_release(&offsets->lock);
    return slot ? TERN_OK : TERN_LIMIT;
}

/* ---- removing ---- */

/* Raises the floor of a topic or group (the other is "") to at least `floor`. @locks holds */
static void raise_floor(struct offsets *offsets, const char *topic, const char *group,
                        struct offset_version floor)
{
    struct offset_entry *entry = offsets_entry(offsets, topic, group);
    if (!entry)
        entry = offsets_entry_make(offsets, topic, group);
    if (entry)
        entry->floor = version_max(entry->floor, floor);
    else
        offsets->base = version_max(offsets->base, floor);
    offsets->changes++;
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
            highest = version_max(highest, entry->slots[i].version);
        entry_free(offsets, link);
        raise_floor(offsets, topic, group, version_next(highest));
        link = &offsets->buckets[bucket]; /* a new floor may stand in this bucket: begin anew */
    }
}

/* One of topic and group is "". */
static void remove_all(struct offsets *offsets, const char *topic, const char *group)
{
    lock_acquire(&offsets->lock);
    raise_floor(offsets, topic, group, version_next(floor_of(offsets, topic, group)));
    lock_release(&offsets->lock);
    for (size_t first = 0; first < OFFSET_BUCKETS; first += OFFSET_BUCKETS_AT_ONCE) {
        lock_acquire(&offsets->lock);
        for (size_t i = first; i < first + OFFSET_BUCKETS_AT_ONCE; i++)
            sweep_bucket(offsets, i, topic, group);
        lock_release(&offsets->lock);
    }
}

void offsets_remove_topic(struct offsets *offsets, const char *topic)
{
    remove_all(offsets, topic, "");
}

void offsets_remove_group(struct offsets *offsets, const char *group)
{
    remove_all(offsets, "", group);
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
        if (!copy_add(copy, entry, &entry->slots[i]))
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
    } else {
        for (size_t first = 0; good && first < OFFSET_BUCKETS; first += OFFSET_BUCKETS_AT_ONCE)
            good = copy_buckets(offsets, &copy, first, group, topic);
    }
    for (size_t at = 0; good && at < copy.len;) {
        struct copy_head head;
        memcpy(&head, copy.bytes + at, sizeof head);
        const char *its_topic = (const char *)copy.bytes + at + sizeof head;
        const char *its_group = its_topic + head.topic_len + 1;
        at += sizeof head + (size_t)head.topic_len + head.group_len + 2;
        if (!fn(arg, its_group, its_topic, head.queue_id, head.offset))
            break;
    }
    free(copy.bytes);
    return good ? TERN_OK : TERN_NO_MEMORY;
}

/* ---- clamping ---- */

struct clamp {
    struct offsets *offsets;
    int64_t (*max)(void *arg, const char *topic, int32_t queue_id);
    void *arg;
    bool new_epoch;
    uint32_t changed;
};

static bool clamp_one(void *arg, const char *group, const char *topic, int32_t queue_id,
                      int64_t offset)
{
    struct clamp *clamp = arg;
    struct offsets *offsets = clamp->offsets;
    int64_t max = clamp->max(clamp->arg, topic, queue_id);
    if (offset <= max && !clamp->new_epoch)
        return true;
    lock_acquire(&offsets->lock);
    struct offset_slot *slot = find_slot(offsets, topic, group, queue_id);
    bool lower = slot && slot->offset > max;
    if (slot && clamp->new_epoch)
        slot->kept_end = max;
    if (lower) {
        slot->offset = max;
        if (!clamp->new_epoch)
            slot->version = version_next(slot->version);
        offsets->changes++;
    }
    lock_release(&offsets->lock);
    if (lower) {
        clamp->changed++;
        log_warn(offsets->env.log, "offset_beyond_data",
                 "group=%s topic=%s queue=%" PRId32 " stored=%" PRId64 " lowered_to=%" PRId64,
                 group, topic, queue_id, offset, max);
    }
    return true;
}

uint32_t offsets_clamp(struct offsets *offsets,
                       int64_t (*max)(void *arg, const char *topic, int32_t queue_id), void *arg)
{
    struct clamp clamp = {.offsets = offsets, .max = max, .arg = arg};
    enum tern_code code = offsets_each(offsets, NULL, NULL, clamp_one, &clamp);
    if (code)
        log_error(offsets->env.log, "offset_clamp_failed", "cause=\"%s\"", tern_code_text(code));
    return clamp.changed;
}

/* Begins an epoch above all there are. @locks holds:BROKER_OFFSETS */
static void raise_epoch(struct offsets *offsets)
{
    struct offset_version highest = offsets->base;
    for (size_t i = 0; i < OFFSET_BUCKETS; i++)
        for (const struct offset_entry *e = offsets->buckets[i]; e; e = e->next) {
            highest = version_max(highest, e->floor);
            for (uint32_t s = 0; s < e->slot_count; s++)
                highest = version_max(highest, e->slots[s].version);
        }
    struct offset_version first = {highest.epoch + (highest.epoch < INT64_MAX), 0};
    for (size_t i = 0; i < OFFSET_BUCKETS; i++)
        for (struct offset_entry *e = offsets->buckets[i]; e; e = e->next) {
            if (offset_entry_is_floor(e))
                e->floor = version_max(e->floor, first);
            for (uint32_t s = 0; s < e->slot_count; s++) {
                e->slots[s].before = e->slots[s].version;
                e->slots[s].version = version_max(first, e->slots[s].version);
            }
        }
    offsets->base = version_max(offsets->base, first);
    offsets->changes++;
}

uint32_t offsets_begin_epoch(struct offsets *offsets,
                             int64_t (*max)(void *arg, const char *topic, int32_t queue_id),
                             void *arg)
{
    struct clamp clamp = {.offsets = offsets, .max = max, .arg = arg, .new_epoch = true};
    lock_acquire(&offsets->lock);
    raise_epoch(offsets);
    lock_release(&offsets->lock);
    enum tern_code code = offsets_each(offsets, NULL, NULL, clamp_one, &clamp);
    if (code)
        log_error(offsets->env.log, "offset_clamp_failed", "cause=\"%s\"", tern_code_text(code));
    return clamp.changed;
}

bool offsets_has_new(struct offsets *offsets)
{
    lock_acquire(&offsets->lock);
    bool added = offsets->slots_added;
    lock_release(&offsets->lock);
    return added;
}
