/*
 * The in-sync set and what is confirmed, as one passive state: told of events, asked for the next
 * step, which its owner takes (disk) and tells back. No clock, no lock, no I/O of its own but
 * insync_load() and insync_save().
 *
 *              counted end ≥ confirmed (of just now)     on disk
 *   outside ─────────────────────────────────► joining ─────────► member
 *      ▲                                                            │ link down, not heard for
 *      │         log flushed, smaller set on disk                   │ max_behind, or behind so long
 *      └──────────────────────────────────────────────── leaving ◄──┘
 *
 * A counted end is the flushed end when the master has SYNC_FLUSH, else the appended end; the
 * master's own likewise. Confirmed is what the master and k members have, k the smaller of
 * inSyncReplicas and the durable set's size (0: the master alone). It never falls. A joining slave
 * does not count yet, a leaving one still does. A new UUID takes its id's place only when it joins.
 *
 * From the beginning of a save until one has succeeded the disk may hold either set, and a master
 * that starts waits for the members of the one it finds. What is confirmed meanwhile satisfies
 * both.
 */
#ifndef HA_INSYNC_H
#define HA_INSYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"

enum { INSYNC_MAX = 16, HA_UUID_BYTES = 16, HA_ADDRESS_BYTES = 136 };

struct insync_member {
    int64_t id;
    uint8_t uuid[HA_UUID_BYTES];
    char ha_address[HA_ADDRESS_BYTES]; /* as last known */
};

/* The set as it stands on the disk: ROOT/ternmq/insync.json. */
struct insync_set {
    size_t count;
    struct insync_member members[INSYNC_MAX];
};

/* Absent: *known false. TERN_CORRUPT: both generations are damaged. @blocks on the disk */
MUST_CHECK enum tern_code insync_load(const struct env *env, const char *root_dir,
                                      struct insync_set *out, bool *known, struct tern_error *err);
/* @blocks on the disk */
MUST_CHECK enum tern_code insync_save(const struct env *env, const char *root_dir,
                                      const struct insync_set *set, struct tern_error *err);

struct insync_options {
    uint32_t replicas;     /* inSyncReplicas; UINT32_MAX: all */
    uint32_t min_replicas; /* minInSyncReplicas */
    int64_t max_behind_ns; /* haMaxTimeSlaveNotCatchup */
};

struct insync_peer {
    struct insync_member member; /* id −1: free */
    bool link_up;
    bool durable;           /* in `set` */
    int64_t counted_end;    /* −1: not heard since the opening */
    int64_t heard_ns;       /* monotonic */
    int64_t caught_up_ns;   /* when it last had everything of a moment; INT64_MIN: never */
    int64_t goal, goal_ns;  /* the master's end at goal_ns: reaching it is being caught up as of
                               then */
    uint64_t progress_seen; /* the master's changes of progress that it has */
    const char *why;        /* static text: why it leaves; set by insync_next() */
};

struct insync {
    struct insync_options options;
    struct insync_set set; /* on the disk; while `saving` or `unsettled` it may be `next` */
    struct insync_peer peers[INSYNC_MAX];
    int64_t own_end; /* the master's counted end */
    int64_t confirmed;
    bool saving;    /* a change is under way: insync_next() gives nothing more */
    bool unsettled; /* a save failed: `next` is asked for again as it is */
    bool leaves;    /* members of `set` are not in `next` */
    struct insync_set next;
};

/* From the opening on: members of `set` count as unheard since now. confirmed starts at the lowest
 * of what is known: `confirmed`. */
void insync_init(struct insync *insync, const struct insync_options *options,
                 const struct insync_set *set, int64_t confirmed, int64_t now_ns);

/* Events. A peer is known by (id, uuid). TERN_LIMIT: INSYNC_MAX peers are known. */
MUST_CHECK enum tern_code insync_heard(struct insync *insync, const struct insync_member *member,
                                       int64_t counted_end, int64_t now_ns);
void insync_link_down(struct insync *insync, int64_t id, const uint8_t uuid[HA_UUID_BYTES]);
/* Which of the master's changes of progress it has, as it says now. Unknown members are ignored. */
void insync_progress(struct insync *insync, int64_t id, const uint8_t uuid[HA_UUID_BYTES],
                     uint64_t seen);
void insync_own_end(struct insync *insync, int64_t counted_end, int64_t now_ns);

enum insync_step {
    INSYNC_NONE,
    INSYNC_JOIN, /* save `next`, then insync_saved() */
    INSYNC_LEAVE /* flush the log up to its end of now, save `next`, then insync_saved() */
};
/* What has to be done on the disk before the set may change; *wake_ns: when to ask again. */
enum insync_step insync_next(struct insync *insync, int64_t now_ns, int64_t *wake_ns);
/* Whether insync_next() would give a step now. */
bool insync_due(const struct insync *insync, int64_t now_ns);
/* The step was done (or failed: nothing changes, it will be asked for again). */
void insync_saved(struct insync *insync, bool ok);

/* Recomputes and returns confirmed (never falls). */
int64_t insync_confirmed(struct insync *insync);
/* The change of progress that all members have; UINT64_MAX: there is no member. */
uint64_t insync_progress_seen(const struct insync *insync);
/* The durable set's size. */
uint32_t insync_size(const struct insync *insync);
/* Whether sends may be taken: minInSyncReplicas. */
bool insync_enough(const struct insync *insync);
/* The peer with this id that is linked, else the member of the set; NULL: none. */
const struct insync_peer *insync_find(const struct insync *insync, int64_t id);
bool insync_same(const struct insync_member *a, const struct insync_member *b);

#endif
