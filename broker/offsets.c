/*
 * Consumer progress in memory.
 *
 * Its place: pulls and commits from many clients raise offsets here, a few times a second each;
 * resets and deletions change versions; offsets_walk.c lowers what is beyond the log,
 * offsets_merge.c exchanges it with the other members of the set, offsets_file.c writes it down
 * every few seconds.
 *
 *   commit (v, o) on a slot (V, O):   v < V  refused, the client learns (V, O)
 *                                     v = V  O becomes max(O, o)
 *                                     v > V  becomes (v, o): this broker had missed a reset
 *   no slot:                          V is the floor: max of base, the topic's, the group's
 *
 * Invariants: an offset falls only together with a rise of its version. A removed slot's version
 * lies below the floor that stands for it, so no commit from before the removal can bring it back.
 * Every change gives its slot a new number, in the same hold of the lock.
 *
 * Threads: any. One lock, held for one look-up; walks over everything let go of it every few
 * hundred buckets. Failure modes: a full table refuses new pairs and keeps serving the old ones.
 */
#include "broker/offsets_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { SLOTS_AT_FIRST = 4, LOWER_LOGGED_MS = 60000 };

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
        offsets->entry_count + offsets->held.entries >= OFFSET_ENTRIES_MAX ||
        offsets->text_bytes + offsets->held.text_bytes + text > OFFSET_TEXT_MAX_BYTES)
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
    if (offset_entry_is_floor(entry) && !offsets_slot_make(offsets, entry, -1)) {
        free(entry);
        return NULL;
    }
    struct offset_entry **bucket = &offsets->buckets[entry->hash % OFFSET_BUCKETS];
    entry->next = *bucket;
    *bucket = entry;
    offsets->entry_count++;
    offsets->floor_count += offset_entry_is_floor(entry);
    offsets->text_bytes += text;
    return entry;
}

void offsets_entry_free(struct offsets *offsets, struct offset_entry **link)
{
    struct offset_entry *entry = *link;
    *link = entry->next;
    offsets->entry_count--;
    offsets->floor_count -= offset_entry_is_floor(entry);
    offsets->text_bytes -= (size_t)entry->topic_len + entry->group_len + OFFSET_ENTRY_TEXT_BYTES +
                           (size_t)entry->slot_count * OFFSET_SLOT_TEXT_BYTES;
    for (uint32_t i = 0; i < entry->slot_count; i++) {
        change_list_remove(&entry->slots[i]->node);
        free(entry->slots[i]);
    }
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
        if (entry->slots[mid]->queue_id < queue_id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct offset_slot *offsets_slot(struct offset_entry *entry, int32_t queue_id)
{
    uint32_t i = slot_index(entry, queue_id);
    return i < entry->slot_count && entry->slots[i]->queue_id == queue_id ? entry->slots[i] : NULL;
}

struct offset_slot *offsets_slot_make(struct offsets *offsets, struct offset_entry *entry,
                                      int32_t queue_id)
{
    if (offsets->text_bytes + offsets->held.text_bytes + OFFSET_SLOT_TEXT_BYTES >
        OFFSET_TEXT_MAX_BYTES)
        return NULL;
    if (entry->slot_count == entry->slot_cap) {
        uint32_t cap = entry->slot_cap ? entry->slot_cap * 2 : queue_id < 0 ? 1 : SLOTS_AT_FIRST;
        struct offset_slot **slots = realloc(entry->slots, cap * sizeof(slots[0]));
        if (!slots)
            return NULL;
        entry->slots = slots;
        entry->slot_cap = cap;
    }
    struct offset_slot *slot = malloc(sizeof *slot);
    if (!slot)
        return NULL;
    *slot = (struct offset_slot){
        .entry = entry, .queue_id = queue_id, .kept_end = -1, .before = offsets->base.before};
    uint32_t i = slot_index(entry, queue_id);
    memmove(&entry->slots[i + 1], &entry->slots[i],
            (entry->slot_count - i) * sizeof entry->slots[0]);
    entry->slots[i] = slot;
    entry->slot_count++;
    offsets->text_bytes += OFFSET_SLOT_TEXT_BYTES;
    return slot;
}

void offsets_clear(struct offsets *offsets)
{
    for (size_t i = 0; i < OFFSET_BUCKETS; i++)
        while (offsets->buckets[i])
            offsets_entry_free(offsets, &offsets->buckets[i]);
    offsets->base.version = (struct offset_version){0, 0};
    offsets->recovered_at = -1;
}

void offsets_changed(struct offsets *offsets, struct offset_slot *slot, bool merged)
{
    offsets->changes++;
    change_list_touch(&offsets->changed, &slot->node, merged);
}

struct offset_version offsets_floor(struct offsets *offsets, const char *topic, const char *group)
{
    struct offset_version floor = offsets->base.version;
    if (offsets->floor_count > 0) {
        const struct offset_entry *of_topic = offsets_entry(offsets, topic, "");
        const struct offset_entry *of_group = offsets_entry(offsets, "", group);
        if (of_topic)
            floor = offset_version_max(floor, of_topic->slots[0]->version);
        if (of_group)
            floor = offset_version_max(floor, of_group->slots[0]->version);
    }
    return floor;
}

struct offset_slot *offsets_find(struct offsets *offsets, const char *topic, const char *group,
                                 int32_t queue_id)
{
    struct offset_entry *entry = offsets_entry(offsets, topic, group);
    return entry ? offsets_slot(entry, queue_id) : NULL;
}

struct offset_slot *offsets_make(struct offsets *offsets, const char *topic, const char *group,
                                 int32_t queue_id)
{
    struct offset_slot *slot = NULL;
    struct offset_entry *entry = offsets_entry(offsets, topic, group);
    if (!entry)
        entry = offsets_entry_make(offsets, topic, group);
    if (entry)
        slot = offsets_slot_make(offsets, entry, queue_id);
    if (slot)
        slot->version = offsets_floor(offsets, topic, group);
    offsets->slots_added = true;
    return slot;
}

/* ---- life ---- */

static enum offsets_commit_result commit(struct offsets *offsets, const char *group,
                                         const char *topic, int32_t queue_id, int64_t offset,
                                         struct offset_version version, int64_t *held,
                                         struct offset_version *held_version);

/* A commit or floor that the table on disk may not have. */
static void replay(void *arg, const struct offset_journal_entry *entry)
{
    struct offsets *offsets = arg;
    int64_t held;
    struct offset_version held_version;
    if (entry->queue_id < 0) {
        struct offset_change floor = {.group = entry->group,
                                      .topic = entry->topic,
                                      .queue_id = -1,
                                      .version = entry->version,
                                      .kept_end = -1};
        if (offsets_merge(offsets, &floor, NULL) != TERN_OK)
            log_error(offsets->env.log, "offset_table_full", "group=%s topic=%s", entry->group,
                      entry->topic);
        return;
    }
    lock_acquire(&offsets->lock);
    (void)commit(offsets, entry->group, entry->topic, entry->queue_id, entry->offset,
                 entry->version, &held, &held_version);
    lock_release(&offsets->lock);
}

/* What was read is news to every copy. */
static void number_all(struct offsets *offsets)
{
    lock_acquire(&offsets->lock);
    if (offset_version_compare(offsets->base.version, (struct offset_version){0, 0}) > 0)
        change_list_touch(&offsets->changed, &offsets->base.node, false);
    for (size_t i = 0; i < OFFSET_BUCKETS; i++)
        for (struct offset_entry *e = offsets->buckets[i]; e; e = e->next)
            for (uint32_t s = 0; s < e->slot_count; s++)
                change_list_touch(&offsets->changed, &e->slots[s]->node, false);
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
    change_list_init(&offsets->changed, &offsets->own_counter);
    offsets->base = (struct offset_slot){.queue_id = -1, .kept_end = -1};
    enum tern_code code = offsets_load(offsets, err);
    if (code == TERN_OK || code == TERN_NOT_FOUND) {
        number_all(offsets);
        code = open_journal(offsets, err);
    }
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

void offsets_share_counter(struct offsets *offsets, struct change_counter *counter)
{
    lock_acquire(&offsets->lock);
    change_list_share(&offsets->changed, counter);
    lock_release(&offsets->lock);
}

void offsets_set_copy(struct offsets *offsets, bool copy)
{
    lock_acquire(&offsets->lock);
    offsets->copy = copy;
    lock_release(&offsets->lock);
}

uint64_t offsets_change_number(struct offsets *offsets)
{
    return atomic_load(&offsets->changed.counter->last_own);
}

uint64_t offsets_last_change(struct offsets *offsets)
{
    return atomic_load(&offsets->changed.counter->last);
}

/* ---- single offsets ---- */

bool offsets_query(struct offsets *offsets, const char *group, const char *topic, int32_t queue_id,
                   int64_t *offset, struct offset_version *version)
{
    lock_acquire(&offsets->lock);
    const struct offset_slot *slot = offsets_find(offsets, topic, group, queue_id);
    if (slot)
        *offset = slot->offset;
    *version = slot ? slot->version : offsets_floor(offsets, topic, group);
    lock_release(&offsets->lock);
    return slot != NULL;
}

bool offsets_count_before(struct offsets *offsets, struct offset_slot *slot, int64_t offset,
                          struct offset_version version)
{
    if (slot->kept_end < 0 || offset_version_compare(version, slot->before) != 0)
        return false;
    int64_t kept = offset < slot->kept_end ? offset : slot->kept_end;
    if (slot->offset >= kept)
        return false;
    slot->offset = kept;
    offsets_changed(offsets, slot, false);
    return true;
}

/* What a change of this version needs to count where no slot is. @locks holds:BROKER_OFFSETS */
static bool is_before(struct offsets *offsets, const char *topic, const char *group,
                      struct offset_version version)
{
    const struct offset_slot *base = &offsets->base;
    if (base->kept_end < 0 || !offsets->recovered ||
        offset_version_compare(version, base->version) >= 0 ||
        offset_version_compare(version, base->before) < 0)
        return false;
    const struct offset_entry *floors[] = {offsets_entry(offsets, topic, ""),
                                           offsets_entry(offsets, "", group)};
    for (size_t i = 0; i < sizeof floors / sizeof floors[0]; i++)
        if (floors[i] && offset_version_compare(version, floors[i]->slots[0]->version) < 0)
            return false;
    return true;
}

bool offsets_take_before(struct offsets *offsets, const char *topic, const char *group,
                         int32_t queue_id, int64_t offset, struct offset_version version)
{
    lock_acquire(&offsets->lock);
    bool wanted =
        is_before(offsets, topic, group, version) && !offsets_find(offsets, topic, group, queue_id);
    lock_release(&offsets->lock);
    if (!wanted)
        return false;
    int64_t end = offsets->recovered(offsets->recovered_arg, topic, queue_id);
    lock_acquire(&offsets->lock);
    struct offset_slot *slot = NULL;
    if (is_before(offsets, topic, group, version) && !offsets_find(offsets, topic, group, queue_id))
        slot = offsets_make(offsets, topic, group, queue_id);
    if (slot) {
        slot->offset = offset < end ? offset : end;
        slot->kept_end = end;
        slot->before = version;
        offsets_changed(offsets, slot, false);
    }
    lock_release(&offsets->lock);
    return slot != NULL;
}

void offsets_set_recovered(struct offsets *offsets,
                           int64_t (*fn)(void *arg, const char *topic, int32_t queue_id), void *arg)
{
    lock_acquire(&offsets->lock);
    offsets->recovered = fn;
    offsets->recovered_arg = arg;
    lock_release(&offsets->lock);
}

/* @locks holds:BROKER_OFFSETS */
static enum offsets_commit_result commit_old(struct offsets *offsets, struct offset_slot *slot,
                                             int64_t offset, struct offset_version version,
                                             int64_t *held)
{
    if (!slot || slot->kept_end < 0 || offset_version_compare(version, slot->before) != 0)
        return OFFSETS_VERSION_OLD;
    offsets_count_before(offsets, slot, offset, version);
    *held = slot->offset;
    return offset <= slot->kept_end ? OFFSETS_STORED : OFFSETS_VERSION_OLD;
}

/* @locks holds:BROKER_OFFSETS */
static enum offsets_commit_result commit(struct offsets *offsets, const char *group,
                                         const char *topic, int32_t queue_id, int64_t offset,
                                         struct offset_version version, int64_t *held,
                                         struct offset_version *held_version)
{
    struct offset_slot *slot = offsets_find(offsets, topic, group, queue_id);
    *held = slot ? slot->offset : -1;
    *held_version = slot ? slot->version : offsets_floor(offsets, topic, group);
    int order = offset_version_compare(version, *held_version);
    if (order < 0)
        return commit_old(offsets, slot, offset, version, held);
    if (slot && order == 0 && offset <= slot->offset)
        return OFFSETS_LOWER;
    if (!slot)
        slot = offsets_make(offsets, topic, group, queue_id);
    if (!slot)
        return OFFSETS_FULL;
    if (order > 0)
        slot->kept_end = -1;
    slot->offset = *held = offset;
    slot->version = *held_version = version;
    offsets_changed(offsets, slot, false);
    return OFFSETS_STORED;
}

/*
 * Requests of one client run side by side, so that of two commits the later one may come first, and
 * whoever commits for a group by other means than its consumers comes late at times. Nothing is
 * wrong or to be done then; what goes on for long may be a member that no longer owns the queue.
 */
static void log_lower(struct offsets *offsets, const char *group, const char *topic,
                      int32_t queue_id, int64_t offset, int64_t held)
{
    int64_t now_ns = clock_mono_ns(offsets->env.clock);
    int64_t due_ns = atomic_load(&offsets->lower_log_due_ns);
    atomic_fetch_add(&offsets->lower_count, 1);
    if (now_ns < due_ns || !atomic_compare_exchange_strong(&offsets->lower_log_due_ns, &due_ns,
                                                           now_ns + ms_to_ns(LOWER_LOGGED_MS)))
        return;
    log_info(offsets->env.log, "commit_lower_ignored",
             "group=%s topic=%s queue=%" PRId32 " committed=%" PRId64 " held=%" PRId64
             " times=%" PRIu64,
             group, topic, queue_id, offset, held, atomic_exchange(&offsets->lower_count, 0));
}

enum offsets_commit_result offsets_commit(struct offsets *offsets, const char *group,
                                          const char *topic, int32_t queue_id, int64_t offset,
                                          struct offset_version version, int64_t *held,
                                          struct offset_version *held_version)
{
    bool made = offsets_take_before(offsets, topic, group, queue_id, offset, version);
    lock_acquire(&offsets->lock);
    uint64_t before = offsets->changes;
    enum offsets_commit_result result =
        commit(offsets, group, topic, queue_id, offset, version, held, held_version);
    bool changed = made || offsets->changes != before;
    lock_release(&offsets->lock);
    if (changed) {
        offset_journal_add(offsets->journal, &(struct offset_journal_entry){group, topic, queue_id,
                                                                            *held, *held_version});
        change_counter_tell(offsets->changed.counter);
    }
    if (result == OFFSETS_LOWER && offset < *held)
        log_lower(offsets, group, topic, queue_id, offset, *held);
    else if (result == OFFSETS_FULL)
        log_error(offsets->env.log, "offset_table_full", "group=%s topic=%s queue=%" PRId32, group,
                  topic, queue_id);
    return result;
}

bool offsets_has_new(struct offsets *offsets)
{
    lock_acquire(&offsets->lock);
    bool added = offsets->slots_added;
    lock_release(&offsets->lock);
    return added;
}
