/*
 * Who consumes a queue in order (RocketMQ: RebalanceLockManager): a lease of 60 s for one client of
 * a group on one queue, renewed by locking again. In memory only; copies on the other members of
 * the set keep it over a failover (docs/replication.md).
 *
 * Each time that a queue goes to somebody (also to the same client, unless it says that it renews)
 * it gets a higher number, the grant; renewing keeps it, also where it is not known any more. A
 * release names the grant that it ends: so it may be repeated, come late, and be told to any member
 * of the set, and frees that grant and no later one; and no older copy, nor a renewal that comes
 * late, brings back what was released.
 *
 * With the lock goes how often the queue's first message has failed, so that the next owner goes on
 * counting. That outlives the lease by another one.
 */
#ifndef BROKER_QUEUE_LOCKS_H
#define BROKER_QUEUE_LOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/names.h"
#include "broker/change_list.h"

enum {
    QUEUE_LOCKS_MAX = 1000000,
    QUEUE_LOCK_LEASE_MS = 60000,
    QUEUE_LOCK_CLAIMS_MS = 5000 /* owners of before a restart have come back by then */
};

struct queue_locks;

MUST_CHECK enum tern_code queue_locks_create(const struct env *env, struct queue_locks **out);
void queue_locks_destroy(struct queue_locks *locks);
/* As offsets_share_counter(). */
void queue_locks_share_counter(struct queue_locks *locks, struct change_counter *counter);
/*
 * The table is empty because the broker was restarted: for QUEUE_LOCK_CLAIMS_MS from now a queue
 * that was not granted since goes only to a client that says it holds it. That it was released, as
 * copies may say, is not enough: its next owner may have been granted it just before the end.
 */
void queue_locks_await_claims(struct queue_locks *locks);

/* What may be granted to who is not known to hold it. */
enum queue_lock_grants {
    QUEUE_LOCK_GRANTS_NONE,
    QUEUE_LOCK_GRANTS_ALL,  /* by who decides about locks */
    QUEUE_LOCK_GRANTS_FREED /* what its owner gave back here, and nobody else can have got since */
};

enum queue_lock_result {
    QUEUE_LOCKED,       /* granted or renewed, for QUEUE_LOCK_LEASE_MS from now */
    QUEUE_LOCK_OTHERS,  /* another client holds it, or has held it since the grant that is named */
    QUEUE_LOCK_NOT_NEW, /* nobody is known to hold it, and new locks are not granted here now */
    QUEUE_LOCK_FULL     /* QUEUE_LOCKS_MAX, or no memory */
};

/* What a client says of a queue. */
struct queue_lock_claim {
    bool held;      /* its own view of the lock, shorter than ours, has not ended; in a release
                       also: nobody else was told of that */
    bool has_tries; /* the message at tries_offset failed so often; 0: it has passed */
    int64_t tries_offset;
    int32_t tries;
    int64_t grant; /* which one it means; 0: a release: any, else: none yet */
};
struct queue_lock_answer {
    int64_t remaining_ms; /* refused: until it may be free, at least 1; 0: not known */
    int64_t tries_offset; /* granted: as the owner before said it */
    int32_t tries;        /* 0: not known */
    int64_t grant;        /* granted: its number */
};
/*
 * What this client is known to hold is renewed in any case. Names are checked and
 * terminated. claim and answer may be NULL. The counter's owner is not told: tell it once for a
 * request, by queue_locks_tell(). @thread any
 */
enum queue_lock_result queue_locks_claim(struct queue_locks *locks, const char *group,
                                         const char *topic, int32_t queue_id, const char *client,
                                         enum queue_lock_grants grants,
                                         const struct queue_lock_claim *claim,
                                         struct queue_lock_answer *answer);
static inline enum queue_lock_result queue_locks_lock(struct queue_locks *locks, const char *group,
                                                      const char *topic, int32_t queue_id,
                                                      const char *client, bool grant_new)
{
    return queue_locks_claim(locks, group, topic, queue_id, client,
                             grant_new ? QUEUE_LOCK_GRANTS_ALL : QUEUE_LOCK_GRANTS_NONE, NULL,
                             NULL);
}
/*
 * Nothing when another client holds it, or this one by a later grant. Where nothing is known of the
 * grant that it was released is kept, so that no copy brings it back. claim may be NULL. @thread
 * any
 */
void queue_locks_release(struct queue_locks *locks, const char *group, const char *topic,
                         int32_t queue_id, const char *client,
                         const struct queue_lock_claim *claim);
static inline void queue_locks_unlock(struct queue_locks *locks, const char *group,
                                      const char *topic, int32_t queue_id, const char *client)
{
    queue_locks_release(locks, group, topic, queue_id, client, NULL);
}
void queue_locks_tell(struct queue_locks *locks);

/* false: nobody holds it. client has CLIENT_ID_MAX + 1 bytes. @thread any */
bool queue_locks_owner(struct queue_locks *locks, const char *group, const char *topic,
                       int32_t queue_id, char *client, int64_t *remaining_ms);
/* Entries, with those that ended or were released less than a lease ago. */
uint32_t queue_locks_count(struct queue_locks *locks);

/* Drops all. @thread any */
void queue_locks_forget(struct queue_locks *locks);

/* ---- copies in a set ---- */

struct queue_lock_change {
    const char *group, *topic, *client; /* client "": released */
    int32_t queue_id;
    int64_t remaining_ms; /* above 0 */
    int64_t tries_offset;
    int32_t tries;
    int64_t grant;      /* held or released; 0: not known */
    int64_t given_back; /* the last one that was released; 0: not known */
    uint64_t number;    /* set by queue_locks_changes() */
};
/*
 * As offsets_changes(), up to number `upto` at most: what ended meanwhile is left out.
 */
uint64_t queue_locks_changes(struct queue_locks *locks, uint64_t after, uint64_t upto, uint32_t max,
                             bool skip_merged,
                             bool (*fn)(void *arg, const struct queue_lock_change *change),
                             void *arg);
/*
 * What another copy holds. An older grant than the one known here counts for nothing, and neither
 * does one that was released. Of the same client the longer lease counts. A release of the very
 * grant that is held here counts always, and so does who was granted the queue after it. Else an
 * owner who locked here wins until the lease ends; an owner known from copies gives way to what a
 * copy says now. TERN_LIMIT: the table is full.
 */
MUST_CHECK enum tern_code queue_locks_merge(struct queue_locks *locks,
                                            const struct queue_lock_change *change);

#endif
