/*
 * Consumer progress: config/consumerOffset.json in RocketMQ's shape ("topic@group" → {queue:
 * offset}), the versions in the file's companion. Persisted every 5 s and at stop, two checksummed
 * generations.
 *
 * An offset is (version, offset). Within a version only larger offsets are kept; versions are
 * raised by explicit resets, by lowering after a loss, and by deleting a topic. A recovery that may
 * have lost messages begins a new epoch of all versions: the lost offsets are given out anew, and a
 * consumer that had read them would pass the new messages there without a look.
 */
#ifndef BROKER_OFFSETS_H
#define BROKER_OFFSETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/names.h"
#include "broker/change_list.h"

enum { OFFSET_ENTRIES_MAX = 1000000 }; /* (topic, group) pairs */

struct offset_version {
    uint64_t epoch, counter;
};

/* What a client may name: rising from there reaches no number that a file or a peer cannot take. */
#define OFFSET_VERSION_MAX (INT64_C(1) << 62)
static inline bool offset_version_fits(struct offset_version version)
{
    return version.epoch <= OFFSET_VERSION_MAX && version.counter <= OFFSET_VERSION_MAX;
}

static inline int offset_version_compare(struct offset_version a, struct offset_version b)
{
    if (a.epoch != b.epoch)
        return a.epoch < b.epoch ? -1 : 1;
    return a.counter < b.counter ? -1 : a.counter > b.counter;
}

struct offsets;

/* Absent: empty. TERN_CORRUPT: both generations are damaged: refuse to start. */
MUST_CHECK enum tern_code offsets_create(const struct env *env, const char *path,
                                         struct offsets **out, struct tern_error *err);
void offsets_destroy(struct offsets *offsets);
/* Changes are numbered by this counter from now on, and its owner is told of them. Before the table
 * is shared between threads. Borrowed. */
void offsets_share_counter(struct offsets *offsets, struct change_counter *counter);
/* The table is a copy of another one: versions that the file cannot tell apart are read back too
 * low rather than too high, for the other one has them. @thread any */
void offsets_set_copy(struct offsets *offsets, bool copy);

/* false: the group has no progress there. *version is set in both cases. @thread any */
bool offsets_query(struct offsets *offsets, const char *group, const char *topic, int32_t queue_id,
                   int64_t *offset, struct offset_version *version);

enum offsets_commit_result {
    OFFSETS_STORED,
    OFFSETS_LOWER,       /* within the version, at or below what is stored: kept, not an error */
    OFFSETS_VERSION_OLD, /* *held and *held_version tell what counts */
    OFFSETS_FULL         /* OFFSET_ENTRIES_MAX */
};
/* @thread any, also an NNG callback */
enum offsets_commit_result offsets_commit(struct offsets *offsets, const char *group,
                                          const char *topic, int32_t queue_id, int64_t offset,
                                          struct offset_version version, int64_t *held,
                                          struct offset_version *held_version);

/* Explicit: sets the offset whatever was there and raises the version. */
MUST_CHECK enum tern_code offsets_reset(struct offsets *offsets, const char *group,
                                        const char *topic, int32_t queue_id, int64_t offset);
struct offset_row {
    const char *topic;
    int32_t queue_id;
    int64_t offset;
};
/* The same for many queues of a group, sorted by topic: all, or none with TERN_LIMIT, when the
 * table has no room for them. TERN_NO_MEMORY: the first ones; the text says how many. */
MUST_CHECK enum tern_code offsets_reset_all(struct offsets *offsets, const char *group,
                                            const struct offset_row *rows, size_t count,
                                            struct tern_error *err);
/* Deleting a topic or group: entries go, versions stay raised (tombstone) so that late commits are
 * old. */
void offsets_remove_topic(struct offsets *offsets, const char *topic);
void offsets_remove_group(struct offsets *offsets, const char *group);

/*
 * After recovery (ST-06): every offset above max(topic, queue) is lowered to it, its version
 * raised, and the count of changes returned; -1: no memory, the table may be half lowered.
 * topics/queues without data give max 0.
 */
MUST_CHECK int64_t offsets_clamp(struct offsets *offsets,
                                 int64_t (*max)(void *arg, const char *topic, int32_t queue_id),
                                 void *arg);
/*
 * The same when messages may have been lost: also raises the epoch of every version, to `number` at
 * least and above all that are held, so that each consumer adopts what is held here. Commits and
 * copies' progress of the version just before still count, up to the recovered end: what lies below
 * it is what they were made for. To be persisted before anybody is served.
 */
MUST_CHECK int64_t offsets_begin_epoch(struct offsets *offsets, uint64_t number,
                                       int64_t (*max)(void *arg, const char *topic,
                                                      int32_t queue_id),
                                       void *arg);
/*
 * Where a queue ended when the epoch began, for progress that others made before it in queues where
 * nothing was known here: it counts up to there. fn does not wait; called without locks, from
 * before offsets_begin_epoch() on. NULL: such progress is old.
 */
void offsets_set_recovered(struct offsets *offsets,
                           int64_t (*fn)(void *arg, const char *topic, int32_t queue_id),
                           void *arg);
/*
 * The recovery of an earlier life, from the file, so that progress which a member made before it
 * and gives only now still counts: where the log ended then, -1: there is none. While it is taken
 * up again, the function set by offsets_set_recovered() tells where queues ended there. Noted
 * before offsets_begin_epoch(). @locks none
 */
int64_t offsets_recovered_at(struct offsets *offsets);
void offsets_note_recovered_at(struct offsets *offsets, int64_t phys_off);
MUST_CHECK enum tern_code offsets_take_up_recovery(struct offsets *offsets);

/*
 * Before a cut: every offset beyond the end that its queue will have is lowered to it and its
 * version raised. An error of `end` ends the walk and is
 * returned; what was lowered before stays so. *lowered (may be NULL) counts. @blocks if `end` does
 */
MUST_CHECK enum tern_code offsets_lower(struct offsets *offsets,
                                        enum tern_code (*end)(void *arg, const char *topic,
                                                              int32_t queue_id, int64_t *out,
                                                              struct tern_error *err),
                                        void *arg, uint32_t *lowered, struct tern_error *err);

/* ---- copies in a set: changes are numbered, entries merge ---- */

/* Number of the last change that came from clients, resets or recoveries here. @thread any */
uint64_t offsets_change_number(struct offsets *offsets);
/* Number of the last change of any kind. @thread any */
uint64_t offsets_last_change(struct offsets *offsets);

struct offset_change {
    const char *group, *topic; /* one is "" in a floor, both in the floor of everything */
    int32_t queue_id;          /* -1: a floor: the least version that counts */
    int64_t offset;
    struct offset_version version;
    /* A recovery raised the version from `before`: progress of that one counts up to kept_end. */
    int64_t kept_end; /* -1: there is no such version */
    struct offset_version before;
    uint64_t number; /* set by offsets_changes() */
};
/*
 * Entries changed after number `after`, oldest change first, at most `max`; an entry changed twice
 * comes once. Returns the number up to which everything was given. skip_merged: not those whose
 * last change came by offsets_merge(). Texts are valid during the call. A number that was never
 * given counts as 0. @thread any; the lock is let go of between calls of fn
 */
uint64_t offsets_changes(struct offsets *offsets, uint64_t after, uint32_t max, bool skip_merged,
                         bool (*fn)(void *arg, const struct offset_change *change), void *arg);
/*
 * What another copy holds: the higher version, then the higher offset counts; what belongs to the
 * version before a recovery, here or there, counts up to the recovered end, as for commits. A floor
 * removes what lies below it. Names and numbers were checked. *raised (may be NULL): a higher
 * version counts from now on, so that who read by an older one is to be told. TERN_LIMIT: the table
 * is full.
 */
MUST_CHECK enum tern_code offsets_merge(struct offsets *offsets, const struct offset_change *change,
                                        bool *raised);

/* Drops everything, versions and floors too, durably. @blocks on the disk */
MUST_CHECK enum tern_code offsets_forget(struct offsets *offsets, struct tern_error *err);

/* Whether a first commit of a group and queue is not persisted yet: the next persist should not
 * wait. */
bool offsets_has_new(struct offsets *offsets);

/*
 * One call per (group, topic, queue); group or topic NULL: all. Texts are copies, the lock is let
 * go of: the table may change meanwhile, what is there all the time comes once. Return false to
 * stop.
 */
MUST_CHECK enum tern_code offsets_each(struct offsets *offsets, const char *group,
                                       const char *topic,
                                       bool (*fn)(void *arg, const char *group, const char *topic,
                                                  int32_t queue_id, int64_t offset),
                                       void *arg);

/* Writes the file when something changed. @blocks on the disk */
MUST_CHECK enum tern_code offsets_persist(struct offsets *offsets, struct tern_error *err);

#endif
