/* The inside of the table of queue locks, for queue_locks.c (locking) and queue_locks_merge.c
 * (copies). */
#ifndef BROKER_QUEUE_LOCKS_INTERNAL_H
#define BROKER_QUEUE_LOCKS_INTERNAL_H

#include "base/clock.h"
#include "base/lock.h"
#include "broker/queue_locks.h"

enum { QUEUE_LOCK_BUCKETS = 1 << 17 };

struct queue_lock {
    struct change_node node; /* first */
    struct queue_lock *next; /* in the bucket */
    uint32_t hash;
    int32_t queue_id;
    int64_t ends_ns; /* monotonic */
    int64_t tries_offset;
    int64_t grant;         /* of who holds it, or held it last; 0: not known */
    int64_t given_back;    /* the last one that was; 0: not known */
    int64_t told_ends_ns;  /* as another copy said last; 0: none did */
    int64_t freed_till_ns; /* until then nobody but this table can have given it away */
    int32_t tries;
    bool released; /* nobody holds it */
    bool here;     /* the last grant was made here, with all grants allowed */
    uint16_t topic_len, group_len;
    char *client; /* in `names`, terminated */
    char names[]; /* topic, group, client, each terminated; room for CLIENT_ID_MAX */
};

struct queue_locks {
    struct env env;
    struct change_counter own_counter; /* until another is shared */
    struct lock lock;                  /* BROKER_LOCKS; protects the rest */
    struct queue_lock **buckets;
    struct change_list changed;
    uint32_t count;
    int64_t claims_until_ns; /* 0: none are waited for */
    int64_t grant_salt;
};

/* What names a lock. */
struct lock_key {
    const char *topic, *group;
    size_t topic_len, group_len;
    int32_t queue_id;
    uint32_t hash;
};

static inline bool queue_lock_is_held(const struct queue_lock *lock, int64_t now_ns)
{
    return lock && !lock->released && lock->ends_ns > now_ns;
}

static inline int64_t queue_lock_ms_until(int64_t time_ns, int64_t now_ns)
{
    return time_ns > now_ns ? (time_ns - now_ns + ms_to_ns(1) - 1) / ms_to_ns(1) : 0;
}

struct lock_key queue_locks_key(const char *group, const char *topic, int32_t queue_id);

/* All @locks holds:BROKER_LOCKS */
struct queue_lock *queue_locks_find(struct queue_locks *locks, const struct lock_key *key);
/* Released, without an end. NULL: full or no memory. */
struct queue_lock *queue_locks_make(struct queue_locks *locks, const struct lock_key *key);
/* Takes out some that ended a lease ago, among the oldest. */
void queue_locks_drop_ended(struct queue_locks *locks, int64_t now_ns);
/* client "": it is released. */
void queue_locks_set_owner(struct queue_locks *locks, struct queue_lock *lock, const char *client,
                           int64_t ends_ns, bool merged);

#endif
