/*
 * Leases in a hash table, and in the order of their last change, which is nearly the order in which
 * they end: whoever changes the table takes a few out that have ended, from the oldest on.
 *
 *   free ──lock──► held ──lock by the same──► held for a lease more
 *                   │ unlock ─► released: kept for a lease, so that copies hear of it ─┐
 *                   └ lease over ──────────────────────────────────────────────────────┴─► free,
 *                     forgotten a lease later: till then the next owner learns of failed tries
 *
 * Grants are numbered by the wall clock, so that they rise over restarts, and always above the last
 * one known of the queue. Two brokers that cannot hear each other do not give the same number: its
 * last bits are a table's own.
 *
 * A slave that decides nothing may yet hand on what it was given back (GRANTS_FREED), when the
 * owner said that it held it till now and told nobody else, as long as the lease runs that the
 * master itself told of: until then the master can have given the queue to nobody.
 *
 * Invariants: at most one client holds a queue of a group; an entry whose lease is over holds
 * nothing, whether it was taken out yet or not.
 *
 * Threads: any; one lock, held for one queue. Failure modes: a full table refuses new locks and
 * renews the known ones.
 */
#include "broker/queue_locks_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum {
    ENDED_AT_ONCE = 2,
    FREED_MARGIN_MS = 5000, /* a copy's lease ends later than the master's by the way it took */
    GRANT_SALT_BITS = 16,
    CLOCKS_APART_MS = 86400000 /* of a set's members, at most */
};

/* ---- entries; @locks holds:BROKER_LOCKS ---- */

static uint32_t hash_bytes(uint32_t hash, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (uint8_t)text[i]) * UINT32_C(16777619);
    return (hash ^ '@') * UINT32_C(16777619);
}

struct lock_key queue_locks_key(const char *group, const char *topic, int32_t queue_id)
{
    struct lock_key key = {.topic = topic,
                           .group = group,
                           .topic_len = strlen(topic),
                           .group_len = strlen(group),
                           .queue_id = queue_id};
    uint32_t hash = hash_bytes(UINT32_C(2166136261), topic, key.topic_len);
    hash = hash_bytes(hash, group, key.group_len);
    hash = (hash ^ (uint32_t)queue_id) * UINT32_C(0x9E3779B1);
    key.hash = hash ^ hash >> 15;
    return key;
}

struct queue_lock *queue_locks_find(struct queue_locks *locks, const struct lock_key *key)
{
    struct queue_lock *lock = locks->buckets[key->hash % QUEUE_LOCK_BUCKETS];
    while (lock && !(lock->hash == key->hash && lock->queue_id == key->queue_id &&
                     lock->topic_len == key->topic_len && lock->group_len == key->group_len &&
                     !memcmp(lock->names, key->topic, key->topic_len) &&
                     !memcmp(lock->names + key->topic_len + 1, key->group, key->group_len)))
        lock = lock->next;
    return lock;
}

struct queue_lock *queue_locks_make(struct queue_locks *locks, const struct lock_key *key)
{
    if (locks->count >= QUEUE_LOCKS_MAX)
        return NULL;
    struct queue_lock *lock =
        malloc(sizeof *lock + key->topic_len + key->group_len + 2 + CLIENT_ID_MAX + 1);
    if (!lock)
        return NULL;
    *lock = (struct queue_lock){.hash = key->hash,
                                .queue_id = key->queue_id,
                                .released = true,
                                .topic_len = (uint16_t)key->topic_len,
                                .group_len = (uint16_t)key->group_len};
    memcpy(lock->names, key->topic, key->topic_len + 1);
    memcpy(lock->names + key->topic_len + 1, key->group, key->group_len + 1);
    lock->client = lock->names + key->topic_len + key->group_len + 2;
    lock->client[0] = 0;
    struct queue_lock **bucket = &locks->buckets[key->hash % QUEUE_LOCK_BUCKETS];
    lock->next = *bucket;
    *bucket = lock;
    locks->count++;
    return lock;
}

static void drop(struct queue_locks *locks, struct queue_lock *lock)
{
    struct queue_lock **link = &locks->buckets[lock->hash % QUEUE_LOCK_BUCKETS];
    while (*link != lock)
        link = &(*link)->next;
    *link = lock->next;
    change_list_remove(&lock->node);
    locks->count--;
    free(lock);
}

void queue_locks_drop_ended(struct queue_locks *locks, int64_t now_ns)
{
    struct change_node *node = locks->changed.ends.next;
    for (int i = 0; i < ENDED_AT_ONCE; i++) {
        while (node != &locks->changed.ends && node->is_mark)
            node = node->next;
        struct queue_lock *oldest = (struct queue_lock *)node;
        if (node == &locks->changed.ends ||
            oldest->ends_ns + ms_to_ns(QUEUE_LOCK_LEASE_MS) > now_ns)
            return;
        node = node->next;
        drop(locks, oldest);
    }
}

void queue_locks_set_owner(struct queue_locks *locks, struct queue_lock *lock, const char *client,
                           int64_t ends_ns, bool merged)
{
    size_t len = strnlen(client, CLIENT_ID_MAX);
    memcpy(lock->client, client, len);
    lock->client[len] = 0;
    lock->released = len == 0;
    lock->ends_ns = ends_ns;
    change_list_touch(&locks->changed, &lock->node, merged);
}

/* ---- life ---- */

enum tern_code queue_locks_create(const struct env *env, struct queue_locks **out)
{
    struct queue_locks *locks = calloc(1, sizeof *locks);
    struct queue_lock **buckets = calloc(QUEUE_LOCK_BUCKETS, sizeof(buckets[0]));
    *out = NULL;
    if (!locks || !buckets) {
        free(locks);
        free(buckets);
        return TERN_NO_MEMORY;
    }
    locks->env = *env;
    locks->grant_salt = (int64_t)rng_below(env->rng, 1U << GRANT_SALT_BITS);
    locks->buckets = buckets;
    lock_init(&locks->lock, LOCK_BROKER_LOCKS);
    change_list_init(&locks->changed, &locks->own_counter);
    *out = locks;
    return TERN_OK;
}

void queue_locks_destroy(struct queue_locks *locks)
{
    if (!locks)
        return;
    queue_locks_forget(locks);
    lock_fini(&locks->lock);
    free(locks->buckets);
    free(locks);
}

void queue_locks_forget(struct queue_locks *locks)
{
    lock_acquire(&locks->lock);
    for (size_t i = 0; i < QUEUE_LOCK_BUCKETS; i++)
        while (locks->buckets[i])
            drop(locks, locks->buckets[i]);
    lock_release(&locks->lock);
}

void queue_locks_share_counter(struct queue_locks *locks, struct change_counter *counter)
{
    lock_acquire(&locks->lock);
    change_list_share(&locks->changed, counter);
    lock_release(&locks->lock);
}

void queue_locks_tell(struct queue_locks *locks)
{
    change_counter_tell(locks->changed.counter);
}

/* ---- locking ---- */

void queue_locks_await_claims(struct queue_locks *locks)
{
    lock_acquire(&locks->lock);
    locks->claims_until_ns = clock_mono_ns(locks->env.clock) + ms_to_ns(QUEUE_LOCK_CLAIMS_MS);
    lock_release(&locks->lock);
}

/* Above every one that was given of this queue. @locks holds:BROKER_LOCKS */
static int64_t next_grant(const struct queue_locks *locks, const struct queue_lock *lock)
{
    int64_t grant = clock_wall_ms(locks->env.clock) << GRANT_SALT_BITS | locks->grant_salt;
    if (grant <= lock->grant)
        grant = lock->grant < INT64_MAX ? lock->grant + 1 : lock->grant;
    return grant;
}

/* The grant that a client names; 0: none. It can say anything: one that no member of the set can
 * have given would leave no room for those to come. */
static int64_t named_grant(const struct queue_locks *locks, const struct queue_lock_claim *claim)
{
    int64_t last_ms = clock_wall_ms(locks->env.clock) + CLOCKS_APART_MS;
    return claim && claim->grant >> GRANT_SALT_BITS <= last_ms ? claim->grant : 0;
}

/* Whether a queue that nobody holds may go to this client. @locks holds:BROKER_LOCKS */
static bool may_grant(const struct queue_locks *locks, const struct queue_lock *lock,
                      enum queue_lock_grants grants, const struct queue_lock_claim *claim,
                      int64_t now_ns)
{
    bool gave_back = claim && claim->grant && lock && lock->released && claim->grant == lock->grant;
    if (gave_back) /* a renewal that was overtaken by its release */
        return false;
    if (grants == QUEUE_LOCK_GRANTS_FREED)
        return lock && lock->released && now_ns < lock->freed_till_ns;
    bool claimed = claim && claim->held;
    return grants == QUEUE_LOCK_GRANTS_ALL &&
           (claimed || (lock && lock->here) || now_ns >= locks->claims_until_ns);
}

/*
 * A queue that goes to somebody, or whose owner does not say that it renews. One that this table
 * does not know, or knew for over, keeps the number by which its owner will give it back: the
 * answer may not be heard before that. renews: 0: none. @locks holds:BROKER_LOCKS
 */
static void begin_grant(struct queue_locks *locks, struct queue_lock *lock, int64_t renews,
                        bool here)
{
    lock->grant = renews ? renews : next_grant(locks, lock);
    lock->here = here;
    lock->freed_till_ns = 0;
}

/* What an owner says of tries, or who has come back to a broker without its memory. */
static void take_tries(struct queue_lock *lock, const struct queue_lock_claim *claim)
{
    if (!claim || !claim->has_tries)
        return;
    lock->tries_offset = claim->tries_offset;
    lock->tries = claim->tries;
}

enum queue_lock_result queue_locks_claim(struct queue_locks *locks, const char *group,
                                         const char *topic, int32_t queue_id, const char *client,
                                         enum queue_lock_grants grants,
                                         const struct queue_lock_claim *claim,
                                         struct queue_lock_answer *answer)
{
    struct lock_key key = queue_locks_key(group, topic, queue_id);
    struct queue_lock_answer said = {.remaining_ms = 0};
    int64_t now_ns = clock_mono_ns(locks->env.clock);
    int64_t renews = named_grant(locks, claim);
    bool claimed = claim && claim->held;
    enum queue_lock_result result = QUEUE_LOCKED;
    lock_acquire(&locks->lock);
    struct queue_lock *lock = queue_locks_find(locks, &key);
    bool held = queue_lock_is_held(lock, now_ns);
    bool own = held && !strcmp(lock->client, client);
    bool late = lock && renews && renews < lock->grant; /* that grant is over */
    if (held ? !own : late) {
        result = QUEUE_LOCK_OTHERS;
        said.remaining_ms = held ? queue_lock_ms_until(lock->ends_ns, now_ns) : 0;
    } else if (!held && !may_grant(locks, lock, grants, claim, now_ns)) {
        result = QUEUE_LOCK_NOT_NEW;
        if (grants == QUEUE_LOCK_GRANTS_ALL)
            said.remaining_ms = queue_lock_ms_until(locks->claims_until_ns, now_ns);
    } else if (!lock && !(lock = queue_locks_make(locks, &key))) {
        result = QUEUE_LOCK_FULL;
    }
    if (result == QUEUE_LOCKED) {
        if ((own || claimed) && !late)
            take_tries(lock, claim);
        if (!late && !(own && renews == lock->grant))
            begin_grant(locks, lock, renews, own ? lock->here : grants == QUEUE_LOCK_GRANTS_ALL);
        if (!own)
            lock->told_ends_ns = 0;
        said.tries_offset = lock->tries_offset;
        said.tries = lock->tries;
        said.grant = lock->grant;
        queue_locks_set_owner(locks, lock, client, now_ns + ms_to_ns(QUEUE_LOCK_LEASE_MS), false);
    }
    queue_locks_drop_ended(locks, now_ns);
    lock_release(&locks->lock);
    if (answer)
        *answer = said;
    return result;
}

/* @locks holds:BROKER_LOCKS */
static void end_grant(struct queue_locks *locks, struct queue_lock *lock, int64_t grant,
                      int64_t now_ns)
{
    if (grant > lock->grant) {
        lock->grant = grant;
        lock->here = false;
        lock->freed_till_ns = 0;
    }
    lock->given_back = lock->grant;
    queue_locks_set_owner(locks, lock, "", now_ns + ms_to_ns(QUEUE_LOCK_LEASE_MS), false);
}

/* Whether the release of a grant says something of a queue that nobody holds. */
static bool is_news(const struct queue_lock *lock, int64_t grant)
{
    if (grant == 0)
        return false;
    return !lock || grant > lock->grant || (grant == lock->grant && !lock->released);
}

void queue_locks_release(struct queue_locks *locks, const char *group, const char *topic,
                         int32_t queue_id, const char *client, const struct queue_lock_claim *claim)
{
    struct lock_key key = queue_locks_key(group, topic, queue_id);
    int64_t now_ns = clock_mono_ns(locks->env.clock);
    int64_t grant = named_grant(locks, claim);
    lock_acquire(&locks->lock);
    struct queue_lock *lock = queue_locks_find(locks, &key);
    bool own = queue_lock_is_held(lock, now_ns) && !strcmp(lock->client, client);
    if (own && (grant == 0 || grant >= lock->grant)) {
        if (claim && claim->held && grant > 0 && grant == lock->grant)
            lock->freed_till_ns = lock->told_ends_ns - ms_to_ns(FREED_MARGIN_MS);
        take_tries(lock, claim);
        end_grant(locks, lock, grant, now_ns);
    } else if (!queue_lock_is_held(lock, now_ns) && is_news(lock, grant) &&
               (lock || (lock = queue_locks_make(locks, &key)))) {
        end_grant(locks, lock, grant, now_ns);
    }
    queue_locks_drop_ended(locks, now_ns);
    lock_release(&locks->lock);
}

bool queue_locks_owner(struct queue_locks *locks, const char *group, const char *topic,
                       int32_t queue_id, char *client, int64_t *remaining_ms)
{
    struct lock_key key = queue_locks_key(group, topic, queue_id);
    int64_t now_ns = clock_mono_ns(locks->env.clock);
    lock_acquire(&locks->lock);
    const struct queue_lock *lock = queue_locks_find(locks, &key);
    bool held = queue_lock_is_held(lock, now_ns);
    if (held) {
        memcpy(client, lock->client, strlen(lock->client) + 1);
        *remaining_ms = (lock->ends_ns - now_ns) / ms_to_ns(1);
    }
    lock_release(&locks->lock);
    return held;
}

uint32_t queue_locks_count(struct queue_locks *locks)
{
    lock_acquire(&locks->lock);
    uint32_t count = locks->count;
    lock_release(&locks->lock);
    return count;
}
