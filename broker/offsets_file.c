/*
 * The offset table's file, config/consumerOffset.json, RocketMQ's shape with one pair a line:
 *
 *   {
 *   	"offsetTable":{
 *   		"TopicA@G":{"0":10,"1":7},
 *   		"TopicB@G":{"0":3}
 *   	}
 *   }
 *
 * Versions travel in the file's companion (durable_file's extra), as lines:
 *
 *   V1
 *   * EPOCH COUNTER               base: of every slot that is not listed
 *   R EPOCH COUNTER POSITION      a recovery raised the base from this one; the log ended there
 *   TopicA@G QUEUE EPOCH COUNTER  a slot with another version
 *   TopicC@ - EPOCH COUNTER       a floor, likewise @G
 *
 * A slot of the base's version is listed when it was reset before that recovery: what an older
 * version says of it is not to count. Only resets and deletions raise versions, so there are few
 * lines. When they do not fit into the
 * companion all the same, it gets one line: base = the highest. After the next restart every client
 * then adopts the stored offset once more and may get again what it had in flight; none is lost. In
 * a copy base = the lowest: the table it is a copy of has the higher ones, and offsets to them.
 *
 * Invariants: names and numbers that were read are checked; the walk while writing lets go of the
 * table's lock between buckets, yet each entry is written with the versions it has at that moment.
 *
 * Threads: one writer at a time (file_lock). Failure modes: a failed write leaves the previous
 * generation and the table dirty, the next persist tries again; both generations damaged:
 * TERN_CORRUPT, the caller refuses to start.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/durable_file.h"
#include "base/json.h"
#include "base/log.h"
#include "broker/offsets_internal.h"
#include "broker/topics.h"

enum { EXTRA_MAX_BYTES = 15 << 10 /* durable_file takes 16 KiB */ };

/* ---- reading ---- */

/* Splits "topic@group" and checks both; either may be empty when `floors`. */
static bool split_key(const char *key, size_t len, bool floors, char topic[TOPIC_NAME_MAX + 1],
                      char group[GROUP_NAME_MAX + 1])
{
    const char *at = memchr(key, '@', len);
    if (!at)
        return false;
    size_t topic_len = (size_t)(at - key);
    size_t group_len = len - topic_len - 1;
    bool topic_good = topic_name_check(key, topic_len, NULL) == TERN_OK;
    bool group_good = group_name_check(at + 1, group_len, NULL) == TERN_OK;
    if (floors ? !((topic_good && !group_len) || (group_good && !topic_len))
               : !(topic_good && group_good))
        return false;
    memcpy(topic, key, topic_len);
    topic[topic_len] = 0;
    memcpy(group, at + 1, group_len);
    group[group_len] = 0;
    return true;
}

/* A queue's number as a key; -1 when it is none. */
static int32_t parse_queue(const char *key)
{
    char *end;
    if (key[0] < '0' || key[0] > '9')
        return -1;
    long value = strtol(key, &end, 10);
    return *end || value >= TOPIC_QUEUES_MAX ? -1 : (int32_t)value;
}

static enum tern_code take_pair(struct offsets *offsets, const char *key, json_t *queues,
                                struct tern_error *err)
{
    char topic[TOPIC_NAME_MAX + 1];
    char group[GROUP_NAME_MAX + 1];
    if (!split_key(key, strlen(key), false, topic, group) || !json_is_object(queues))
        return error_set(err, TERN_CORRUPT, "offsetTable holds what is no topic@group: %.64s", key);
    struct offset_entry *entry = offsets_entry_make(offsets, topic, group);
    if (!entry)
        return error_set(err, TERN_LIMIT, "more than %d pairs of topic and group, or no memory",
                         (int)OFFSET_ENTRIES_MAX);
    const char *queue;
    json_t *value;
    json_object_foreach(queues, queue, value)
    {
        int32_t queue_id = parse_queue(queue);
        if (queue_id < 0 || !json_is_integer(value))
            return error_set(err, TERN_CORRUPT, "%.128s: queue %.32s or its offset is no number",
                             key, queue);
        int64_t offset = json_integer_value(value);
        if (offset < 0) { /* RocketMQ's clients commit -1 for "none" */
            log_warn(offsets->env.log, "negative_offset_dropped", "pair=%s queue=%s", key, queue);
            continue;
        }
        if (offsets_slot(entry, queue_id))
            return error_set(err, TERN_CORRUPT, "%.128s: queue %.32s twice", key, queue);
        struct offset_slot *slot = offsets_slot_make(offsets, entry, queue_id);
        if (!slot)
            return error_set(err, TERN_LIMIT, "too many offsets, or no memory");
        slot->offset = offset;
    }
    return TERN_OK;
}

/* Until offsets_take_up_recovery() it is only noted. */
static void set_before(struct offsets *offsets, struct offset_version before, int64_t phys_off)
{
    offsets->base.before = before;
    offsets->recovered_at = phys_off;
    for (size_t i = 0; i < OFFSET_BUCKETS; i++)
        for (struct offset_entry *e = offsets->buckets[i]; e; e = e->next)
            for (uint32_t s = 0; s < e->slot_count; s++)
                e->slots[s]->before = before;
}

static void set_base(struct offsets *offsets, struct offset_version base)
{
    offsets->base.version = base;
    for (size_t i = 0; i < OFFSET_BUCKETS; i++)
        for (struct offset_entry *e = offsets->buckets[i]; e; e = e->next)
            for (uint32_t s = 0; s < e->slot_count; s++)
                e->slots[s]->version = base;
}

/* One line of the companion, terminated. false: malformed. */
static bool take_version(struct offsets *offsets, const char *line)
{
    char queue[16];
    char topic[TOPIC_NAME_MAX + 1];
    char group[GROUP_NAME_MAX + 1];
    struct offset_version version;
    int64_t phys_off = -1;
    if (sscanf(line, "* %" SCNu64 " %" SCNu64, &version.epoch, &version.counter) == 2) {
        set_base(offsets, version);
        return true;
    }
    if (sscanf(line, "R %" SCNu64 " %" SCNu64 " %" SCNd64, &version.epoch, &version.counter,
               &phys_off) == 3 &&
        phys_off >= 0) {
        set_before(offsets, version, phys_off);
        return true;
    }
    size_t key_len = strcspn(line, " ");
    if (sscanf(line + key_len, " %15s %" SCNu64 " %" SCNu64, queue, &version.epoch,
               &version.counter) != 3)
        return false;
    if (!strcmp(queue, "-")) {
        if (!split_key(line, key_len, true, topic, group))
            return false;
        struct offset_entry *floor = offsets_entry_make(offsets, topic, group);
        if (floor)
            floor->slots[0]->version = version;
        return floor != NULL;
    }
    int32_t queue_id = parse_queue(queue);
    if (queue_id < 0 || !split_key(line, key_len, false, topic, group))
        return false;
    struct offset_entry *entry = offsets_entry(offsets, topic, group);
    struct offset_slot *slot = entry ? offsets_slot(entry, queue_id) : NULL;
    if (slot)
        slot->version = slot->before = version;
    return slot != NULL;
}

static enum tern_code take_versions(struct offsets *offsets, const char *extra,
                                    struct tern_error *err)
{
    char line[TOPIC_NAME_MAX + GROUP_NAME_MAX + 128];
    bool good = !strncmp(extra, "V1\n", 3);
    for (const char *at = extra + 3; good && *at;) {
        size_t len = strcspn(at, "\n");
        good = len < sizeof line && at[len] == '\n';
        if (good) {
            memcpy(line, at, len);
            line[len] = 0;
            good = take_version(offsets, line);
            at += len + 1;
        }
    }
    return good ? TERN_OK : error_set(err, TERN_CORRUPT, "the versions in its companion");
}

/* durable_parse_fn: begins anew for each generation. */
static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct offsets *offsets = arg;
    json_t *root = NULL;
    offsets_clear(offsets);
    enum tern_code code = json_parse_fastjson(text, len, &root, err);
    if (code)
        return code;
    json_t *table = json_object_get(root, "offsetTable");
    if (!json_is_object(table))
        code = error_set(err, TERN_CORRUPT, "no offsetTable in it");
    const char *key;
    json_t *queues;
    json_object_foreach(table, key, queues)
    {
        if (code)
            break;
        code = take_pair(offsets, key, queues, err);
    }
    json_decref(root);
    if (!code && extra && extra[0])
        code = take_versions(offsets, extra, err);
    return code;
}

enum tern_code offsets_load(struct offsets *offsets, struct tern_error *err)
{
    enum tern_code code = durable_read(&offsets->env, offsets->path, parse, offsets, err);
    if (code == TERN_NOT_FOUND)
        offsets_clear(offsets);
    return code;
}

/* ---- writing ---- */

struct writer {
    FILE *text, *extra;
    struct offset_version base;    /* of the walk's begin */
    struct offset_version before;  /* a recovery raised the base from it… */
    int64_t recovered_at;          /* …here; -1: none did */
    struct offset_version highest; /* seen */
    struct offset_version lowest;  /* of slots and base */
    bool copy;                     /* of another table */
    bool first;
};

static void saw_version(struct writer *w, struct offset_version version)
{
    if (offset_version_compare(w->highest, version) < 0)
        w->highest = version;
}

/* @locks holds:BROKER_OFFSETS */
static void write_entry(struct writer *w, const struct offset_entry *entry)
{
    if (offset_entry_is_floor(entry)) {
        struct offset_version floor = entry->slots[0]->version;
        saw_version(w, floor);
        fprintf(w->extra, "%s - %" PRIu64 " %" PRIu64 "\n", entry->key, floor.epoch, floor.counter);
        return;
    }
    if (entry->slot_count == 0)
        return;
    fprintf(w->text, "%s\t\t\"%s\":{", w->first ? "" : ",\n", entry->key);
    w->first = false;
    for (uint32_t i = 0; i < entry->slot_count; i++) {
        const struct offset_slot *slot = entry->slots[i];
        fprintf(w->text, "%s\"%" PRId32 "\":%" PRId64, i ? "," : "", slot->queue_id, slot->offset);
        saw_version(w, slot->version);
        if (offset_version_compare(slot->version, w->lowest) < 0)
            w->lowest = slot->version;
        bool reset_before = w->recovered_at >= 0 && offset_version_compare(slot->before, w->before);
        if (offset_version_compare(slot->version, w->base) || reset_before)
            fprintf(w->extra, "%s %" PRId32 " %" PRIu64 " %" PRIu64 "\n", entry->key,
                    slot->queue_id, slot->version.epoch, slot->version.counter);
    }
    fputc('}', w->text);
}

/* The table as text and the companion's lines, in memory. *changes: what they include at least. */
static void write_table(struct offsets *offsets, struct writer *w, uint64_t *changes)
{
    lock_acquire(&offsets->lock);
    *changes = offsets->changes;
    offsets->slots_added = false; /* what comes during the walk may miss it */
    w->base = w->highest = w->lowest = offsets->base.version;
    w->copy = offsets->copy;
    w->before = offsets->base.before;
    w->recovered_at = offsets->base.kept_end < 0 ? -1 : offsets->recovered_at;
    lock_release(&offsets->lock);
    fputs("{\n\t\"offsetTable\":{\n", w->text);
    fprintf(w->extra, "V1\n* %" PRIu64 " %" PRIu64 "\n", w->base.epoch, w->base.counter);
    if (w->recovered_at >= 0)
        fprintf(w->extra, "R %" PRIu64 " %" PRIu64 " %" PRId64 "\n", w->before.epoch,
                w->before.counter, w->recovered_at);
    for (size_t first = 0; first < OFFSET_BUCKETS; first += OFFSET_BUCKETS_AT_ONCE) {
        lock_acquire(&offsets->lock);
        for (size_t i = first; i < first + OFFSET_BUCKETS_AT_ONCE; i++)
            for (const struct offset_entry *e = offsets->buckets[i]; e; e = e->next)
                write_entry(w, e);
        lock_release(&offsets->lock);
    }
    fputs("\n\t}\n}\n", w->text);
}

/* Closes a stream into memory (NULL allowed): whether all that was written is there. */
static bool close_memory(FILE *stream)
{
    if (!stream)
        return false;
    bool good = !ferror(stream);
    return fclose(stream) == 0 && good;
}

/* @locks holds:BROKER_TABLES (file_lock) */
static enum tern_code persist(struct offsets *offsets, struct tern_error *err)
{
    char *text = NULL;
    char *extra = NULL;
    char coarse[64];
    size_t text_len = 0;
    size_t extra_len = 0;
    uint64_t changes = 0;
    struct writer w = {.first = true};
    enum tern_code code = TERN_OK;
    offset_journal_switch(offsets->journal);
    w.text = open_memstream(&text, &text_len);
    w.extra = open_memstream(&extra, &extra_len);
    if (w.text && w.extra)
        write_table(offsets, &w, &changes);
    bool text_good = close_memory(w.text);
    bool extra_good = close_memory(w.extra);
    if (!text_good || !extra_good)
        code = TERN_NO_MEMORY;
    if (code) {
        error_set(err, code, "no memory to write %s", offsets->path);
        goto out;
    }
    struct offset_version one = w.copy ? w.lowest : w.highest;
    snprintf(coarse, sizeof coarse, "V1\n* %" PRIu64 " %" PRIu64 "\n", one.epoch, one.counter);
    code = durable_write(&offsets->env, offsets->path, text, text_len,
                         extra_len > EXTRA_MAX_BYTES ? coarse : extra, err);
    if (!code) {
        lock_acquire(&offsets->lock);
        offsets->persisted_changes = changes;
        lock_release(&offsets->lock);
        offset_journal_settled(offsets->journal);
    }
out:
    free(text);
    free(extra);
    return code;
}

enum tern_code offsets_persist(struct offsets *offsets, struct tern_error *err)
{
    lock_acquire(&offsets->file_lock);
    lock_acquire(&offsets->lock);
    bool dirty = offsets->changes != offsets->persisted_changes;
    lock_release(&offsets->lock);
    enum tern_code code = dirty ? persist(offsets, err) : TERN_OK;
    lock_release(&offsets->file_lock);
    return code;
}
