/*
 * A fixed hash table of parked pulls in SHARDS parts with a lock each. Within a shard all pulls
 * also hang in parking order, so that relieving takes the oldest. Pulls are unlinked under the lock
 * and resumed without it.
 */
#include "broker/long_poll.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/names.h"
#include "base/sched.h"

enum { SHARDS = 64, SHARD_BUCKETS = 128, RELIEVE_AT_ONCE = 64, LOOKS_MAX = 16 };

/* Deadlines are looked at no more often than this: a pull may be answered that much late. */
static const int64_t deadline_grain_ns = 100000000;

struct shard {
    struct lock lock; /* LONG_POLL */
    struct parked_pull *buckets[SHARD_BUCKETS];
    struct parked_pull *oldest, *newest;
    int64_t next_deadline_ns;
};

struct long_poll {
    struct long_poll_options options;
    struct task *task;
    _Atomic uint32_t parked;
    _Atomic bool closed;
    _Atomic uint64_t resets;
    _Atomic int64_t next_look_ns; /* when the task will look at deadlines */
    struct shard shards[SHARDS];
};

static int64_t deadline_step(void *arg, int64_t now_ns)
{
    return long_poll_step(arg, now_ns);
}

enum tern_code long_poll_create(const struct env *env, const struct long_poll_options *options,
                                struct long_poll **out)
{
    struct long_poll *polls = calloc(1, sizeof *polls);
    if (!polls)
        return TERN_NO_MEMORY;
    polls->options = *options;
    polls->next_look_ns = SCHED_NEVER;
    for (int i = 0; i < SHARDS; i++) {
        lock_init(&polls->shards[i].lock, LOCK_LONG_POLL);
        polls->shards[i].next_deadline_ns = SCHED_NEVER;
    }
    enum tern_code code = task_start(env->sched, "broker-poll", deadline_step, polls, &polls->task);
    if (code != TERN_OK) {
        long_poll_destroy(polls);
        return code;
    }
    *out = polls;
    return TERN_OK;
}

void long_poll_destroy(struct long_poll *polls)
{
    if (!polls)
        return;
    task_stop(polls->task);
    ENSURE(polls->parked == 0);
    for (int i = 0; i < SHARDS; i++)
        lock_fini(&polls->shards[i].lock);
    free(polls);
}

static uint32_t queue_hash(const char *topic, int32_t queue_id)
{
    return (uint32_t)java_hash(topic, strlen(topic)) * 31u + (uint32_t)queue_id;
}

static struct shard *shard_of(struct long_poll *polls, uint32_t hash)
{
    return &polls->shards[hash % SHARDS];
}

static struct parked_pull **bucket_of(struct shard *shard, uint32_t hash)
{
    return &shard->buckets[hash / SHARDS % SHARD_BUCKETS];
}

/* @locks holds:LONG_POLL */
static void link_pull(struct shard *shard, struct parked_pull *parked)
{
    struct parked_pull **bucket = bucket_of(shard, parked->hash);
    parked->bucket_next = *bucket;
    *bucket = parked;
    parked->older = shard->newest;
    parked->newer = NULL;
    *(shard->newest ? &shard->newest->newer : &shard->oldest) = parked;
    shard->newest = parked;
}

/* Moves a pull from the shard to *list (linked by bucket_next). @locks holds:LONG_POLL */
static void unlink_pull(struct long_poll *polls, struct shard *shard, struct parked_pull *parked,
                        struct parked_pull **list)
{
    struct parked_pull **at = bucket_of(shard, parked->hash);
    while (*at != parked)
        at = &(*at)->bucket_next;
    *at = parked->bucket_next;
    *(parked->older ? &parked->older->newer : &shard->oldest) = parked->newer;
    *(parked->newer ? &parked->newer->older : &shard->newest) = parked->older;
    atomic_fetch_sub(&polls->parked, 1);
    parked->bucket_next = *list;
    *list = parked;
}

static void call_each(struct long_poll *polls, struct parked_pull *list,
                      void (*fn)(void *arg, struct parked_pull *parked))
{
    while (list) {
        struct parked_pull *parked = list;
        list = parked->bucket_next;
        fn(polls->options.arg, parked);
    }
}

/* Makes the task look at deadlines by then. */
static void look_by(struct long_poll *polls, int64_t deadline_ns)
{
    int64_t planned = atomic_load(&polls->next_look_ns);
    while (deadline_ns < planned)
        if (atomic_compare_exchange_weak(&polls->next_look_ns, &planned, deadline_ns)) {
            task_wake(polls->task);
            return;
        }
}

bool long_poll_park(struct long_poll *polls, struct parked_pull *parked)
{
    parked->hash = queue_hash(parked->topic, parked->queue_id);
    struct shard *shard = shard_of(polls, parked->hash);
    int64_t deadline_ns = parked->deadline_ns;
    bool park;

    lock_acquire(&shard->lock);
    park = !atomic_load(&polls->closed) && atomic_load(&polls->resets) == parked->resets &&
           polls->options.queue_end(polls->options.arg, parked->topic, parked->queue_id) <=
               parked->offset;
    if (park) {
        link_pull(shard, parked);
        atomic_fetch_add(&polls->parked, 1);
        if (deadline_ns < shard->next_deadline_ns)
            shard->next_deadline_ns = deadline_ns;
    }
    lock_release(&shard->lock);
    if (park)
        look_by(polls, deadline_ns);
    /* Looked at afterwards: of several that come at once, each that is too many sends one home. */
    if (park && atomic_load(&polls->parked) > polls->options.max_parked)
        long_poll_relieve(polls, 0);
    return park;
}

/*
 * true: what came is not for it, it is parked, not to be touched. When more comes all the time the
 * pull is run after a few looks: it then answers how far it got. @locks none
 */
static bool park_again(struct long_poll *polls, struct parked_pull *parked)
{
    for (int i = 0; i < LOOKS_MAX && parked->resets == long_poll_resets(polls); i++) {
        if (polls->options.concerns(polls->options.arg, parked))
            return false;
        if (long_poll_park(polls, parked))
            return true;
    }
    return false;
}

static bool wanted(const struct parked_pull *parked, const struct store_arrival *arrival)
{
    if (!parked->subscription)
        return arrival->first_off + arrival->count > parked->offset;
    for (uint32_t i = 0; i < arrival->count; i++)
        if (arrival->first_off + i >= parked->offset &&
            subscription_match_code(parked->subscription, arrival->tags_codes[i]))
            return true;
    return false;
}

void long_poll_arrival(struct long_poll *polls, const struct store_arrival *arrival)
{
    uint32_t hash = queue_hash(arrival->topic, arrival->queue_id);
    struct shard *shard = shard_of(polls, hash);
    struct parked_pull *woken = NULL;

    lock_acquire(&shard->lock);
    for (struct parked_pull *parked = *bucket_of(shard, hash), *following; parked;
         parked = following) {
        following = parked->bucket_next;
        if (parked->hash == hash && parked->queue_id == arrival->queue_id &&
            !strcmp(parked->topic, arrival->topic) && wanted(parked, arrival))
            unlink_pull(polls, shard, parked, &woken);
    }
    lock_release(&shard->lock);
    while (woken) {
        struct parked_pull *parked = woken;
        woken = parked->bucket_next;
        if (!parked->by_record || !park_again(polls, parked))
            polls->options.resume(polls->options.arg, parked);
    }
}

uint64_t long_poll_resets(const struct long_poll *polls)
{
    return atomic_load(&polls->resets);
}

void long_poll_reset(struct long_poll *polls, const char *group, const char *topic,
                     int32_t queue_id)
{
    uint32_t hash = queue_hash(topic, queue_id);
    struct shard *shard = shard_of(polls, hash);
    struct parked_pull *told = NULL;

    /* Before the look: who parks after it has seen the new number, or is not let in. */
    atomic_fetch_add(&polls->resets, 1);
    lock_acquire(&shard->lock);
    for (struct parked_pull *parked = *bucket_of(shard, hash), *following; parked;
         parked = following) {
        following = parked->bucket_next;
        if (parked->hash == hash && parked->queue_id == queue_id && !strcmp(parked->topic, topic) &&
            parked->group && !strcmp(parked->group, group))
            unlink_pull(polls, shard, parked, &told);
    }
    lock_release(&shard->lock);
    call_each(polls, told, polls->options.resume);
}

void long_poll_reset_all(struct long_poll *polls, const char *group, const char *topic)
{
    atomic_fetch_add(&polls->resets, 1);
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &polls->shards[i];
        struct parked_pull *told = NULL;
        lock_acquire(&shard->lock);
        for (struct parked_pull *parked = shard->oldest, *following; parked; parked = following) {
            following = parked->newer;
            if (parked->group && (!group[0] || !strcmp(parked->group, group)) &&
                (!topic[0] || !strcmp(parked->topic, topic)))
                unlink_pull(polls, shard, parked, &told);
        }
        lock_release(&shard->lock);
        call_each(polls, told, polls->options.resume);
    }
}

void long_poll_peer_gone(struct long_poll *polls, uint64_t peer_id)
{
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &polls->shards[i];
        struct parked_pull *gone = NULL;
        lock_acquire(&shard->lock);
        for (struct parked_pull *parked = shard->oldest, *following; parked; parked = following) {
            following = parked->newer;
            if (parked->peer_id == peer_id)
                unlink_pull(polls, shard, parked, &gone);
        }
        lock_release(&shard->lock);
        call_each(polls, gone, polls->options.drop);
    }
}

void long_poll_relieve(struct long_poll *polls, uint64_t peer_id)
{
    int budget = RELIEVE_AT_ONCE;
    for (int i = 0; i < SHARDS && budget > 0; i++) {
        struct shard *shard = &polls->shards[i];
        struct parked_pull *relieved = NULL;
        lock_acquire(&shard->lock);
        struct parked_pull *parked = shard->oldest;
        while (parked && peer_id && parked->peer_id != peer_id)
            parked = parked->newer;
        if (parked) {
            unlink_pull(polls, shard, parked, &relieved);
            budget--;
        }
        lock_release(&shard->lock);
        call_each(polls, relieved, polls->options.resume);
    }
}

void long_poll_resume_all(struct long_poll *polls)
{
    atomic_store(&polls->closed, true);
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &polls->shards[i];
        struct parked_pull *all = NULL;
        lock_acquire(&shard->lock);
        while (shard->oldest)
            unlink_pull(polls, shard, shard->oldest, &all);
        lock_release(&shard->lock);
        call_each(polls, all, polls->options.resume);
    }
}

/* Unlinks what is due and returns the shard's next deadline. @locks holds:LONG_POLL */
static int64_t take_due(struct long_poll *polls, struct shard *shard, int64_t now_ns,
                        struct parked_pull **due)
{
    if (shard->next_deadline_ns <= now_ns) {
        int64_t next = SCHED_NEVER;
        for (struct parked_pull *parked = shard->oldest, *following; parked; parked = following) {
            following = parked->newer;
            if (parked->deadline_ns <= now_ns)
                unlink_pull(polls, shard, parked, due);
            else if (parked->deadline_ns < next)
                next = parked->deadline_ns;
        }
        shard->next_deadline_ns = next;
    }
    return shard->next_deadline_ns;
}

int64_t long_poll_step(struct long_poll *polls, int64_t now_ns)
{
    int64_t next = SCHED_NEVER;
    atomic_store(&polls->next_look_ns, SCHED_NEVER);
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &polls->shards[i];
        struct parked_pull *due = NULL;
        lock_acquire(&shard->lock);
        int64_t shard_next = take_due(polls, shard, now_ns, &due);
        lock_release(&shard->lock);
        if (shard_next < next)
            next = shard_next;
        call_each(polls, due, polls->options.resume);
    }
    if (next == SCHED_NEVER)
        return SCHED_NEVER;
    if (next < now_ns + deadline_grain_ns)
        next = now_ns + deadline_grain_ns;
    /* A pull that parked meanwhile may have asked for an earlier look: then its wake runs us again.
     */
    int64_t planned = atomic_load(&polls->next_look_ns);
    while (next < planned && !atomic_compare_exchange_weak(&polls->next_look_ns, &planned, next)) {
    }
    return next;
}

uint32_t long_poll_parked(const struct long_poll *polls)
{
    return atomic_load(&polls->parked);
}
