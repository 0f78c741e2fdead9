/*
 * Who consumes a queue in order (RocketMQ: RebalanceLockManager): a lease of 60 s for one client of
 * a group on one queue, renewed by locking again. In memory only; copies on the other members of
 * the set keep it over a failover (docs/replication.md).
 */
#ifndef BROKER_QUEUE_LOCKS_H
#define BROKER_QUEUE_LOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/names.h"
#include "broker/change_list.h"

enum { QUEUE_LOCKS_MAX = 1000000, QUEUE_LOCK_LEASE_MS = 60000 };

struct queue_locks;

MUST_CHECK enum tern_code queue_locks_create(const struct env *env, struct queue_locks **out);
void queue_locks_destroy(struct queue_locks *locks);
/* As offsets_share_counter(). */
void queue_locks_share_counter(struct queue_locks *locks, struct change_counter *counter);

enum queue_lock_result {
    QUEUE_LOCKED,       /* granted or renewed, for QUEUE_LOCK_LEASE_MS from now */
    QUEUE_LOCK_OTHERS,  /* another client holds it */
    QUEUE_LOCK_NOT_NEW, /* nobody is known to hold it, and new locks are not granted here now */
    QUEUE_LOCK_FULL     /* QUEUE_LOCKS_MAX, or no memory */
};
/*
 * grant_new: false: only what this client is known to hold is renewed. Names are checked and
 * terminated. The counter's owner is not told: tell it once for a request, by queue_locks_tell().
 * @thread any
 */
enum queue_lock_result queue_locks_lock(struct queue_locks *locks, const char *group,
                                        const char *topic, int32_t queue_id, const char *client,
                                        bool grant_new);
/* Nothing when another client holds it. @thread any */
void queue_locks_unlock(struct queue_locks *locks, const char *group, const char *topic,
                        int32_t queue_id, const char *client);
void queue_locks_tell(struct queue_locks *locks);

/* false: nobody holds it. client has CLIENT_ID_MAX + 1 bytes. @thread any */
bool queue_locks_owner(struct queue_locks *locks, const char *group, const char *topic,
                       int32_t queue_id, char *client, int64_t *remaining_ms);
/* Entries, with those that ended or were released not long ago. */
uint32_t queue_locks_count(struct queue_locks *locks);

/* Drops all. @thread any */
void queue_locks_forget(struct queue_locks *locks);

/* ---- copies in a set ---- */

struct queue_lock_change {
    const char *group, *topic, *client; /* client "": released */
    int32_t queue_id;
    int64_t remaining_ms; /* above 0 */
    uint64_t number;      /* set by queue_locks_changes() */
};
/*
 * As offsets_changes(), up to number `upto` at most: what ended meanwhile is left out.
 */
uint64_t queue_locks_changes(struct queue_locks *locks, uint64_t after, uint64_t upto, uint32_t max,
                             bool skip_merged,
                             bool (*fn)(void *arg, const struct queue_lock_change *change),
                             void *arg);
/*
 * What another copy holds. Of the same client the longer lease counts. An owner who locked here
 * wins over another one, or a release, until the lease ends; an owner known from copies gives way
 * to what a copy says now. TERN_LIMIT: the table is full.
 */
MUST_CHECK enum tern_code queue_locks_merge(struct queue_locks *locks,
                                            const struct queue_lock_change *change);

#endif
