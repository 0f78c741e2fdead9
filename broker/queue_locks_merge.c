/*
 * Queue locks and their copies on the other members of the set: what has changed since a copy
 * looked last, and what a copy has that counts more than what is known here.
 *
 *   lock, release here ─► numbered ─► queue_locks_changes() ─► wire ─► queue_locks_merge() there
 *
 * A copy counts by its grant: an older one for nothing, the release of the very one for everything;
 * queue_locks_merge() has the rest.
 *
 * Threads: any. Failure modes: a full table refuses copies of what it does not know.
 */
#include "broker/queue_locks_internal.h"

#include <string.h>

enum {
    BATCH_CHANGES = 32,
    LONGER_MS = 1000 /* less is the way between two copies, and would go to and fro for ever */
};

/* ---- giving ---- */

struct held_change {
    struct queue_lock_change change;
    char topic[TOPIC_NAME_MAX + 1], group[GROUP_NAME_MAX + 1], client[CLIENT_ID_MAX + 1];
};

struct giving {
    struct queue_locks *locks;
    struct change_reader reader;
    bool skip_merged;
    uint32_t room; /* changes that may still be given */
    uint64_t upto;
    uint64_t to; /* everything up to there was given or skipped */
    bool ended;  /* nothing is left, or enough was given */
    bool beyond; /* a row above upto was passed: the place is none to go on from */
};

/* @locks holds:BROKER_LOCKS */
static void hold_change(struct held_change *held, const struct queue_lock *lock, int64_t now_ns)
{
    memcpy(held->topic, lock->names, lock->topic_len + (size_t)1);
    memcpy(held->group, lock->names + lock->topic_len + 1, lock->group_len + (size_t)1);
    memcpy(held->client, lock->client, strlen(lock->client) + 1);
    held->change =
        (struct queue_lock_change){.group = held->group,
                                   .topic = held->topic,
                                   .client = held->client,
                                   .queue_id = lock->queue_id,
                                   .remaining_ms = queue_lock_ms_until(lock->ends_ns, now_ns),
                                   .tries_offset = lock->tries_offset,
                                   .tries = lock->tries,
                                   .grant = lock->grant,
                                   .given_back = lock->given_back,
                                   .number = lock->node.number};
}

/* @locks takes:BROKER_LOCKS */
static uint32_t take_batch(struct giving *giving, struct held_change batch[BATCH_CHANGES],
                           uint64_t *to)
{
    struct queue_locks *locks = giving->locks;
    int64_t now_ns = clock_mono_ns(locks->env.clock);
    uint32_t count = 0;
    lock_acquire(&locks->lock);
    for (int steps = 0; steps < CHANGE_STEPS_MAX && count < BATCH_CHANGES && count < giving->room;
         steps++) {
        struct change_node *node = change_reader_next(&locks->changed, &giving->reader);
        if (!node || node->number > giving->upto) {
            uint64_t last = change_list_last(&locks->changed);
            *to = last < giving->upto ? last : giving->upto;
            giving->ended = true;
            giving->beyond = node != NULL;
            break;
        }
        *to = node->number;
        const struct queue_lock *lock = (const struct queue_lock *)node;
        if (!(giving->skip_merged && node->merged) && lock->ends_ns > now_ns)
            hold_change(&batch[count++], lock, now_ns);
    }
    giving->room -= count;
    if (giving->room == 0)
        giving->ended = true;
    lock_release(&locks->lock);
    return count;
}

uint64_t queue_locks_changes(struct queue_locks *locks, uint64_t after, uint64_t upto, uint32_t max,
                             bool skip_merged,
                             bool (*fn)(void *arg, const struct queue_lock_change *change),
                             void *arg)
{
    struct held_change batch[BATCH_CHANGES];
    struct giving giving = {.locks = locks, .skip_merged = skip_merged, .room = max, .upto = upto};
    bool refused = false;
    lock_acquire(&locks->lock);
    change_reader_begin(&locks->changed, &giving.reader, after);
    giving.to = giving.reader.after;
    while (!change_reader_seek(&locks->changed, &giving.reader)) {
        lock_release(&locks->lock); /* others want it, too */
        lock_acquire(&locks->lock);
    }
    lock_release(&locks->lock);
    while (!giving.ended && !refused) {
        uint64_t to = giving.to;
        uint32_t count = take_batch(&giving, batch, &to);
        for (uint32_t i = 0; i < count && !refused; i++) {
            refused = !fn(arg, &batch[i].change);
            if (!refused)
                giving.to = batch[i].change.number;
        }
        if (!refused)
            giving.to = to;
    }
    lock_acquire(&locks->lock);
    change_reader_end(&locks->changed, &giving.reader, refused || giving.beyond ? 0 : giving.to);
    lock_release(&locks->lock);
    return giving.to;
}

/* ---- taking ---- */

/* Whether what a copy says of the lock is to be taken. @locks holds:BROKER_LOCKS */
static bool counts(const struct queue_lock *lock, const struct queue_lock_change *change,
                   int64_t ends_ns, int64_t now_ns)
{
    if (!lock)
        return true; /* also that nobody holds it is worth knowing */
    bool known = lock->grant > 0 && change->grant > 0;
    bool release = change->client[0] == 0;
    if (known && change->grant < lock->grant)
        return false;
    if (!queue_lock_is_held(lock, now_ns)) {
        if (known && change->grant == lock->grant && lock->released)
            return false; /* given back, whatever an older copy says */
        return !release || known;
    }
    if (known && lock->grant == (release ? change->grant : change->given_back))
        return true; /* its owner gave it back there */
    if (!strcmp(lock->client, change->client))
        return (known && change->grant > lock->grant) ||
               ends_ns > lock->ends_ns + ms_to_ns(LONGER_MS);
    return lock->node.merged;
}

/* @locks holds:BROKER_LOCKS */
static void take_change(struct queue_locks *locks, struct queue_lock *lock,
                        const struct queue_lock_change *change, int64_t ends_ns, int64_t now_ns)
{
    bool same = queue_lock_is_held(lock, now_ns) && !strcmp(lock->client, change->client);
    if (same && ends_ns < lock->ends_ns)
        ends_ns = lock->ends_ns;
    if (change->grant != lock->grant)
        lock->here = false;
    lock->grant = change->grant;
    lock->given_back = change->given_back;
    lock->told_ends_ns = ends_ns;
    lock->freed_till_ns = 0;
    lock->tries_offset = change->tries_offset;
    lock->tries = change->tries;
    queue_locks_set_owner(locks, lock, change->client, ends_ns, true);
}

enum tern_code queue_locks_merge(struct queue_locks *locks, const struct queue_lock_change *change)
{
    struct lock_key key = queue_locks_key(change->group, change->topic, change->queue_id);
    int64_t now_ns = clock_mono_ns(locks->env.clock);
    int64_t remaining_ms =
        change->remaining_ms < QUEUE_LOCK_LEASE_MS ? change->remaining_ms : QUEUE_LOCK_LEASE_MS;
    int64_t ends_ns = now_ns + ms_to_ns(remaining_ms);
    enum tern_code code = TERN_OK;
    lock_acquire(&locks->lock);
    struct queue_lock *lock = queue_locks_find(locks, &key);
    bool take = counts(lock, change, ends_ns, now_ns);
    if (take && !lock && !(lock = queue_locks_make(locks, &key)))
        code = TERN_LIMIT;
    if (take && lock)
        take_change(locks, lock, change, ends_ns, now_ns);
    queue_locks_drop_ended(locks, now_ns);
    lock_release(&locks->lock);
    if (take && code == TERN_OK)
        change_counter_tell(locks->changed.counter);
    return code;
}
