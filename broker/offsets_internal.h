/*
 * The offset table's inside, for offsets.c (the table) and offsets_file.c (its file).
 *
 *   buckets ─► entry "topic@group" ─► slots sorted by queue: (version, offset)
 *           ─► floor "topic@" or "@group": no slots, the least version that counts where no slot is
 *
 * A deleted topic or group leaves one floor behind instead of its entries; `base` is the floor of
 * everything, raised only when single floors cannot be kept.
 */
#ifndef BROKER_OFFSETS_INTERNAL_H
#define BROKER_OFFSETS_INTERNAL_H

#include "base/fs.h"
#include "base/lock.h"
#include "broker/offset_journal.h"
#include "broker/offsets.h"

enum {
    OFFSET_BUCKETS = 1 << 18,        /* fixed: no rehashing pause; 4 a chain at the entry limit */
    OFFSET_BUCKETS_AT_ONCE = 1024,   /* looked at in one hold of the lock */
    OFFSET_ENTRY_TEXT_BYTES = 10,    /* of an entry's text in the file, beside its key */
    OFFSET_SLOT_TEXT_BYTES = 28,     /* "65535":9223372036854775807, */
    OFFSET_TEXT_MAX_BYTES = 64 << 20 /* what durable_file takes */
};

struct offset_slot {
    int32_t queue_id;
    int64_t offset;
    struct offset_version version;
    /* of this life: progress of the version before counts up to here; -1: not at all */
    int64_t kept_end;
    struct offset_version before;
};

struct offset_entry {
    struct offset_entry *next; /* in the bucket */
    uint32_t hash;
    uint32_t slot_count, slot_cap;
    struct offset_slot *slots;   /* owned */
    struct offset_version floor; /* of a floor entry */
    uint16_t topic_len, group_len;
    char key[]; /* topic@group, terminated; one side is empty in a floor */
};

struct offsets {
    struct env env;
    struct offset_journal *journal;
    char path[FS_PATH_BYTES];
    struct lock file_lock; /* one writer of the file; held over its I/O, taken before `lock` */

    struct lock lock; /* protects the rest */
    struct offset_entry **buckets;
    uint32_t entry_count; /* floors too */
    uint32_t floor_count;
    size_t text_bytes; /* upper bound of the file's text */
    struct offset_version base;
    uint64_t changes, persisted_changes;
    bool slots_added; /* since the last persist */
};

static inline bool offset_entry_is_floor(const struct offset_entry *entry)
{
    return entry->topic_len == 0 || entry->group_len == 0;
}

/* All @locks holds:BROKER_OFFSETS */
struct offset_entry *offsets_entry(struct offsets *offsets, const char *topic, const char *group);
/* NULL: the table is full or no memory. */
struct offset_entry *offsets_entry_make(struct offsets *offsets, const char *topic,
                                        const char *group);
struct offset_slot *offsets_slot(struct offset_entry *entry, int32_t queue_id);
/* A new slot with offset 0; NULL: full or no memory. The queue must have none. */
struct offset_slot *offsets_slot_make(struct offsets *offsets, struct offset_entry *entry,
                                      int32_t queue_id);
void offsets_clear(struct offsets *offsets);

/* Reads the file. TERN_NOT_FOUND: there is none. */
MUST_CHECK enum tern_code offsets_load(struct offsets *offsets, struct tern_error *err);

#endif
