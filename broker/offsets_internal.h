/*
 * The offset table's inside, for offsets.c (the table), offsets_walk.c (what concerns all of it),
 * offsets_merge.c (copies in a set) and offsets_file.c (its file).
 *
 *   buckets ─► entry "topic@group" ─► slots sorted by queue: (version, offset)
 *           ─► floor "topic@" or "@group": one slot of queue -1, whose version is the least that
 *              counts where there is no other slot
 *   changes ─► all slots in the order of their last change
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
    struct change_node node;    /* first; in offsets->changed */
    struct offset_entry *entry; /* NULL: the base */
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
    struct offset_slot **slots; /* owned, each by itself: lists point to them */
    uint16_t topic_len, group_len;
    char key[]; /* topic@group, terminated; one side is empty in a floor */
};

/* What entries and slots take of the table's limits. */
struct offset_room {
    uint32_t entries;
    size_t text_bytes;
};

struct offsets {
    struct env env;
    struct offset_journal *journal;
    char path[FS_PATH_BYTES];
    struct lock file_lock; /* one writer of the file; held over its I/O, taken before `lock` */
    struct change_counter own_counter; /* until another is shared */
    _Atomic bool recovers;             /* base.kept_end is not -1, read without the lock */
    _Atomic int64_t lower_log_due_ns;  /* when a lower commit may be logged again */
    _Atomic uint64_t lower_count;      /* since the last that was */

    struct lock lock; /* protects the rest */
    struct offset_entry **buckets;
    struct change_list changed;
    uint32_t entry_count; /* floors too */
    uint32_t floor_count;
    size_t text_bytes;       /* upper bound of the file's text */
    struct offset_room held; /* for those that offsets_reset_all() is about to set */
    /* Its version is the floor of everything; kept_end 0: `before` was it before a recovery of this
     * life. */
    struct offset_slot base;
    int64_t recovered_at; /* where the log ended at that recovery, for the file; -1: not known */
    int64_t (*recovered)(void *arg, const char *topic, int32_t queue_id);
    void *recovered_arg;
    uint64_t changes, persisted_changes;
    bool slots_added; /* since the last persist */
    bool copy;        /* see offsets_set_copy() */
};

static inline bool offset_entry_is_floor(const struct offset_entry *entry)
{
    return entry->topic_len == 0 || entry->group_len == 0;
}

static inline struct offset_version offset_version_max(struct offset_version a,
                                                       struct offset_version b)
{
    return offset_version_compare(a, b) < 0 ? b : a;
}

static inline struct offset_version offset_version_next(struct offset_version version)
{
    if (version.counter < INT64_MAX)
        version.counter++;
    else if (version.epoch < INT64_MAX)
        version = (struct offset_version){version.epoch + 1, 0};
    return version;
}

/* All @locks holds:BROKER_OFFSETS */
struct offset_entry *offsets_entry(struct offsets *offsets, const char *topic, const char *group);
/* A floor comes with its slot. NULL: the table is full or no memory. */
struct offset_entry *offsets_entry_make(struct offsets *offsets, const char *topic,
                                        const char *group);
struct offset_slot *offsets_slot(struct offset_entry *entry, int32_t queue_id);
/* A new slot with offset 0; NULL: full or no memory. The queue must have none. */
struct offset_slot *offsets_slot_make(struct offsets *offsets, struct offset_entry *entry,
                                      int32_t queue_id);
/* As offsets_slot() and offsets_slot_make() by names; the new slot has the floor's version. */
struct offset_slot *offsets_find(struct offsets *offsets, const char *topic, const char *group,
                                 int32_t queue_id);
struct offset_slot *offsets_make(struct offsets *offsets, const char *topic, const char *group,
                                 int32_t queue_id);
/* The version that counts where there is no slot. */
struct offset_version offsets_floor(struct offsets *offsets, const char *topic, const char *group);
/* A slot was changed: to be persisted and given to copies. */
void offsets_changed(struct offsets *offsets, struct offset_slot *slot, bool merged);
void offsets_clear(struct offsets *offsets);
/* Takes an entry out of its bucket and frees it; *link points to it. */
void offsets_entry_free(struct offsets *offsets, struct offset_entry **link);
/*
 * A commit of the version before a recovery: what lies below the recovered end is still what it was
 * made for. true: the slot has changed.
 */
bool offsets_count_before(struct offsets *offsets, struct offset_slot *slot, int64_t offset,
                          struct offset_version version);

/*
 * Before a change of `version` in a queue: when nothing is known there and the version is one from
 * before the recovery, makes a slot of the recovered version, with what the change may count for,
 * and returns true. @locks takes:BROKER_OFFSETS
 */
bool offsets_take_before(struct offsets *offsets, const char *topic, const char *group,
                         int32_t queue_id, int64_t offset, struct offset_version version);

/* Removes entries of a topic or group (the other is "") and raises its floor above what they held.
 * @locks none */
void offsets_remove_all(struct offsets *offsets, const char *topic, const char *group);

/* Reads the file. TERN_NOT_FOUND: there is none. */
MUST_CHECK enum tern_code offsets_load(struct offsets *offsets, struct tern_error *err);

#endif
