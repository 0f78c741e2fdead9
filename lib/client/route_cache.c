/*
 * The table of routes.
 *
 *   unknown ──route_ask──► fetching ──answer──► known ──30 s, failure──► fetching, still known
 *      │                      │                   │     (a second while a set is not whole, or a
 *      │                      │                   │     broker that it names was lost lately)
 *      ▲                      │                   │
 *      └──── failure ◄────────┘                   └── not used for 10 min, held by nobody:
 * forgotten
 *
 * One fetch per topic at a time; whoever needs an unknown route joins its waiters. A failed or
 * empty answer ends the waits and changes nothing: what was known stays known (a nameserver that
 * was just restarted knows no routes until the brokers register again). An answer that says the
 * same as the last leaves the old route in place, so that pointers compare; a different one moves
 * route_generation on.
 *
 * Invariants: every waiter's done is called once, by the answer, by its deadline, or by the
 * instance's end. An entry with waiters is fetching or due.
 *
 * Threads: any; the lock is CLIENT, released before every call out. Failure modes: the table full
 * of topics in use gives TERN_LIMIT.
 */
#include "client/instance_internal.h"

#include <stdlib.h>
#include <string.h>

/* What a fetch remembers; the entry is found again by name. */
struct fetch {
    struct instance *instance;
    int64_t started_ns;
    char topic[TOPIC_NAME_MAX + 1];
};

static void fetch_done(void *arg, enum tern_code code, const Tern__Wire__RouteResponse *answer,
                       const struct tern_error *err);

uint64_t instance_route_generation(struct instance *instance)
{
    return atomic_load_explicit(&instance->route_generation, memory_order_acquire);
}

static struct topic_entry *entry_find(struct instance *instance, const char *topic)
{
    struct topic_entry *entry;
    HASH_FIND_STR(instance->topics, topic, entry);
    return entry;
}

/* Whether somebody holds a route of before; what nobody holds any more is freed.
 * @locks holds:CLIENT */
static bool older_held(struct topic_entry *entry)
{
    for (struct route **at = &entry->older; *at;) {
        struct route *route = *at;
        if (atomic_load(&route->refs) > 1) {
            at = &route->older;
            continue;
        }
        *at = route->older;
        route_unref(route);
    }
    return entry->older != NULL;
}

static void entry_free(struct instance *instance, struct topic_entry *entry)
{
    HASH_DEL(instance->topics, entry);
    while (entry->older) {
        struct route *route = entry->older;
        entry->older = route->older;
        route_unref(route);
    }
    route_unref(entry->route);
    free(entry);
}

/* Nobody holds its route, waits for it or is asking. Who holds one of before is a producer that
 * looks for the new one with its next send, and meanwhile may be asked about transactions. */
static bool entry_unused(struct topic_entry *entry)
{
    return !entry->waiters && !entry->fetching &&
           (!entry->route || atomic_load(&entry->route->refs) == 1) && !older_held(entry);
}

static void forget(struct instance *instance, int64_t used_before_ns)
{
    struct topic_entry *entry;
    struct topic_entry *next;
    HASH_ITER (hh, instance->topics, entry, next) {
        if (!entry_unused(entry) || entry->used_ns >= used_before_ns)
            continue;
        if (entry->route)
            instance->brokers_stale = true;
        entry_free(instance, entry);
    }
}

/* NULL: no room or memory. @locks holds:CLIENT */
static struct topic_entry *entry_get(struct instance *instance, const char *topic, int64_t now_ns)
{
    struct topic_entry *entry = entry_find(instance, topic);
    if (!entry) {
        if (HASH_COUNT(instance->topics) >= ROUTE_TOPICS_MAX)
            forget(instance, now_ns - ms_to_ns(ROUTE_RETRY_MS));
        if (HASH_COUNT(instance->topics) >= ROUTE_TOPICS_MAX)
            return NULL;
        entry = calloc(1, sizeof *entry);
        if (!entry)
            return NULL;
        memcpy(entry->topic, topic, strlen(topic) + 1);
        entry->asked_ns = now_ns - ms_to_ns(ROUTE_REFRESH_LEAST_MS);
        entry->due_ns = now_ns;
        HASH_ADD_STR(instance->topics, topic, entry);
        if (!entry->hh.tbl) {
            free(entry);
            return NULL;
        }
    }
    entry->used_ns = now_ns;
    return entry;
}

/* Marks the entry as being fetched; the caller then calls fetch_start() without the lock. */
static struct fetch *fetch_prepare(struct instance *instance, struct topic_entry *entry,
                                   int64_t now_ns)
{
    struct fetch *fetch = malloc(sizeof *fetch);
    if (!fetch)
        return NULL;
    fetch->instance = instance;
    fetch->started_ns = now_ns;
    memcpy(fetch->topic, entry->topic, sizeof fetch->topic);
    entry->fetching = true;
    entry->asked_ns = now_ns;
    entry->due_ns = now_ns + ms_to_ns(ROUTE_REFRESH_MS);
    instance->fetches++;
    return fetch;
}

/* @locks none */
static void fetch_start(struct fetch *fetch)
{
    if (fetch)
        namesrv_ask_route(fetch->instance, fetch->topic, fetch_done, fetch);
}

/* Takes the route over when it differs. @locks holds:CLIENT */
static void entry_set_route(struct instance *instance, struct topic_entry *entry,
                            struct route *route)
{
    if (entry->route && route_equal(entry->route, route)) {
        route_unref(route);
        return;
    }
    if (entry->route) {
        entry->route->older = entry->older;
        entry->older = entry->route;
    }
    (void)older_held(entry); /* frees it when nobody does */
    entry->route = route;
    entry->changed = true;
    instance->topics_changed = true;
    instance->brokers_stale = true;
    atomic_fetch_add_explicit(&instance->route_generation, 1, memory_order_release);
}

/*
 * While a set has no master, or has left the route altogether, its return is not to be missed for
 * long; one that stays away was taken out of service. unknown: the nameserver knows no route now.
 * @locks holds:CLIENT
 */
static void expect_return(struct topic_entry *entry, bool unknown, int64_t now_ns)
{
    size_t sets = unknown ? 0 : entry->route->data_count;
    bool fewer = sets < entry->sets_known;
    if (!fewer)
        entry->sets_known = sets;
    if (!fewer && !route_lacks_master(entry->route)) {
        entry->masterless_ns = 0;
        return;
    }
    if (entry->masterless_ns == 0)
        entry->masterless_ns = now_ns;
    bool for_long = now_ns - entry->masterless_ns > ms_to_ns(ROUTE_MASTERLESS_LONG_MS);
    if (for_long)
        entry->sets_known = sets;
    int64_t due_ns = now_ns + ms_to_ns(for_long ? ROUTE_MASTERLESS_LATER_MS : ROUTE_MASTERLESS_MS);
    if (due_ns < entry->due_ns)
        entry->due_ns = due_ns;
}

/*
 * A broker that is away may stand in the route until the nameserver has noticed, too. All members
 * of a group must hear of it soon: those that have would share its set's queues out anew, and read
 * what the others still read. @locks holds:CLIENT
 */
static void expect_loss(struct instance *instance, struct topic_entry *entry, int64_t now_ns)
{
    int64_t due_ns = now_ns + ms_to_ns(ROUTE_LOST_MS);
    if (due_ns < entry->due_ns && brokers_lost_lately(instance, entry->route, now_ns))
        entry->due_ns = due_ns;
}

/* All of them, for end_waits(). @locks holds:CLIENT */
static struct route_waiter *take_waiters(struct topic_entry *entry)
{
    struct route_waiter *taken = entry->waiters;
    entry->waiters = NULL;
    return taken;
}

/* @locks none */
static void end_waits(struct route_waiter *waiters, enum tern_code code, struct route *route,
                      const struct tern_error *err)
{
    while (waiters) {
        struct route_waiter *next = waiters->next;
        waiters->done(waiters, code, code == TERN_OK ? route_ref(route) : NULL, err);
        waiters = next;
    }
}

/* @thread link's, or the fetch's starter @locks none */
static void fetch_done(void *arg, enum tern_code code, const Tern__Wire__RouteResponse *answer,
                       const struct tern_error *err)
{
    struct fetch *fetch = arg;
    struct instance *instance = fetch->instance;
    struct tern_error own_err = {.code = code};
    struct route *route = NULL;
    if (code == TERN_OK) {
        code = route_create(fetch->topic, answer, fetch->started_ns, &route, &own_err);
        err = &own_err;
    }
    lock_acquire(&instance->lock);
    struct topic_entry *entry = entry_find(instance, fetch->topic);
    ENSURE(entry && entry->fetching);
    entry->fetching = false;
    instance->fetches--;
    int64_t now_ns = instance_now(instance);
    if (code == TERN_OK) {
        entry_set_route(instance, entry, route);
        expect_return(entry, false, now_ns);
        expect_loss(instance, entry, now_ns);
    } else if (code == TERN_TOPIC_NOT_EXIST && entry->route) {
        expect_return(entry, true, now_ns);
    } else if (code != TERN_TOPIC_NOT_EXIST && entry->due_ns > now_ns + ms_to_ns(ROUTE_RETRY_MS)) {
        entry->due_ns = now_ns + ms_to_ns(ROUTE_RETRY_MS);
    }
    struct route_waiter *waiters = take_waiters(entry);
    struct route *held = waiters && code == TERN_OK ? route_ref(entry->route) : NULL;
    instance_step_by(instance, code == TERN_OK ? now_ns : entry->due_ns);
    lock_release(&instance->lock);
    if (code != TERN_OK && code != TERN_TOPIC_NOT_EXIST && code != TERN_CANCELED)
        log_warn(instance->env->log, "client_route_unavailable", "topic=%s reason=\"%s\"",
                 fetch->topic, error_text(err, code));
    free(fetch);
    end_waits(waiters, code, held, err);
    route_unref(held);
}

enum tern_code route_ask(struct instance *instance, const char *topic, bool fresh,
                         struct route_waiter *waiter, struct route **out, struct tern_error *err)
{
    int64_t now_ns = instance_now(instance);
    struct fetch *fetch = NULL;
    enum tern_code code = TERN_AGAIN;
    *out = NULL;
    lock_acquire(&instance->lock);
    struct topic_entry *entry = instance->stopping ? NULL : entry_get(instance, topic, now_ns);
    if (!entry) {
        code = instance->stopping ? TERN_CANCELED : TERN_LIMIT;
    } else if (entry->route && !fresh) {
        *out = route_ref(entry->route);
        code = TERN_OK;
    } else if (!entry->fetching && !(fetch = fetch_prepare(instance, entry, now_ns))) {
        code = TERN_NO_MEMORY;
    } else {
        waiter->next = entry->waiters;
        entry->waiters = waiter;
        instance_step_by(instance, waiter->deadline_ns);
    }
    lock_release(&instance->lock);
    fetch_start(fetch);
    if (code != TERN_OK && code != TERN_AGAIN)
        error_set(err, code, "route of topic %s cannot be asked for: %s", topic,
                  tern_code_text(code));
    return code;
}

/* ---- waiting callers ---- */

struct sync_waiter {
    struct route_waiter waiter; /* first */
    struct sched *sched;
    struct latch latch;
    enum tern_code code;
    struct route *route;
    struct tern_error *err;
};

static void sync_done(struct route_waiter *waiter, enum tern_code code, struct route *route,
                      const struct tern_error *err)
{
    struct sync_waiter *sync = (struct sync_waiter *)waiter;
    sync->code = code;
    sync->route = route;
    if (code != TERN_OK && sync->err)
        *sync->err = *err;
    latch_set(sync->sched, &sync->latch);
}

enum tern_code instance_route(struct instance *instance, const char *topic, int64_t deadline_ns,
                              struct route **out, struct tern_error *err)
{
    struct sync_waiter sync = {.waiter = {.deadline_ns = deadline_ns, .done = sync_done},
                               .sched = instance->env->sched,
                               .err = err};
    *out = NULL;
    size_t len = strnlen(topic, TOPIC_NAME_MAX + 1);
    enum tern_code code = topic_name_check(topic, len, err);
    if (code != TERN_OK)
        return code;
    latch_init(&sync.latch);
    code = route_ask(instance, topic, false, &sync.waiter, out, err);
    if (code != TERN_AGAIN)
        return code;
    /* The task ends the wait at its deadline; the latch must not be left before. */
    bool set = latch_wait(instance->env->sched, &sync.latch, SCHED_NEVER);
    ENSURE(set);
    *out = sync.route;
    return sync.code;
}

struct route *instance_route_cached(struct instance *instance, const char *topic)
{
    int64_t now_ns = instance_now(instance);
    struct route *route = NULL;
    lock_acquire(&instance->lock);
    struct topic_entry *entry = entry_find(instance, topic);
    if (entry) {
        entry->used_ns = now_ns;
        route = entry->route ? route_ref(entry->route) : NULL;
    }
    lock_release(&instance->lock);
    return route;
}

void instance_route_refresh(struct instance *instance, const char *topic)
{
    if (strnlen(topic, TOPIC_NAME_MAX + 1) > TOPIC_NAME_MAX)
        return;
    int64_t now_ns = instance_now(instance);
    struct fetch *fetch = NULL;
    lock_acquire(&instance->lock);
    struct topic_entry *entry = instance->stopping ? NULL : entry_get(instance, topic, now_ns);
    if (entry) {
        int64_t soonest_ns = entry->asked_ns + ms_to_ns(ROUTE_REFRESH_LEAST_MS);
        if (!entry->fetching && soonest_ns <= now_ns)
            fetch = fetch_prepare(instance, entry, now_ns);
        else if (entry->due_ns > soonest_ns)
            entry->due_ns = soonest_ns;
        instance_step_by(instance, entry->due_ns);
    }
    lock_release(&instance->lock);
    fetch_start(fetch);
}

void route_cache_lost(struct instance *instance, const char *address, int64_t now_ns)
{
    struct topic_entry *entry;
    struct topic_entry *next;
    HASH_ITER (hh, instance->topics, entry, next) {
        if (!entry->route || !route_names(entry->route, address))
            continue;
        int64_t soonest_ns = entry->asked_ns + ms_to_ns(ROUTE_REFRESH_LEAST_MS);
        int64_t due_ns = soonest_ns > now_ns ? soonest_ns : now_ns;
        if (due_ns < entry->due_ns)
            entry->due_ns = due_ns;
        instance_step_by(instance, entry->due_ns);
    }
}

/* ---- the task's part ---- */

/* Moves waiters whose deadline passed to *expired; returns the next deadline. */
static int64_t expire_waiters(struct topic_entry *entry, int64_t now_ns,
                              struct route_waiter **expired)
{
    int64_t next_ns = SCHED_NEVER;
    for (struct route_waiter **at = &entry->waiters; *at;) {
        struct route_waiter *waiter = *at;
        if (waiter->deadline_ns <= now_ns) {
            *at = waiter->next;
            waiter->next = *expired;
            *expired = waiter;
            continue;
        }
        if (waiter->deadline_ns < next_ns)
            next_ns = waiter->deadline_ns;
        at = &waiter->next;
    }
    return next_ns;
}

int64_t route_cache_step(struct instance *instance, int64_t now_ns)
{
    struct route_waiter *expired = NULL;
    int64_t next_ns = SCHED_NEVER;
    struct fetch *fetches[ROUTE_FETCHES_MAX];
    size_t count = 0;
    lock_acquire(&instance->lock);
    forget(instance, now_ns - ms_to_ns(ROUTE_IDLE_MS));
    struct topic_entry *entry;
    struct topic_entry *after;
    HASH_ITER (hh, instance->topics, entry, after) {
        int64_t wait_ns = expire_waiters(entry, now_ns, &expired);
        if (wait_ns < next_ns)
            next_ns = wait_ns;
        if (entry->fetching)
            continue; /* its end wakes the task */
        if (entry->due_ns <= now_ns && instance->fetches < ROUTE_FETCHES_MAX) {
            fetches[count] = fetch_prepare(instance, entry, now_ns);
            count += fetches[count] != NULL;
        } else if (entry->due_ns > now_ns && entry->due_ns < next_ns) {
            next_ns = entry->due_ns;
        }
    }
    lock_release(&instance->lock);
    for (size_t i = 0; i < count; i++)
        fetch_start(fetches[i]);
    struct tern_error err;
    error_set(&err, TERN_TIMEOUT, "no nameserver answered in time");
    end_waits(expired, TERN_TIMEOUT, NULL, &err);
    return next_ns;
}

/* Names of topics that changed since the last time, in the arena. @locks takes:CLIENT */
static size_t take_changed(struct instance *instance, struct arena *arena, const char ***out)
{
    size_t count = 0;
    lock_acquire(&instance->lock);
    const char **names = arena_alloc(arena, HASH_COUNT(instance->topics) * sizeof *names);
    struct topic_entry *entry;
    struct topic_entry *next;
    HASH_ITER (hh, instance->topics, entry, next) {
        char *name = entry->changed && names ? arena_alloc(arena, sizeof entry->topic) : NULL;
        if (!name)
            continue;
        memcpy(name, entry->topic, sizeof entry->topic);
        names[count++] = name;
        entry->changed = false;
    }
    instance->topics_changed = false;
    lock_release(&instance->lock);
    *out = names;
    return count;
}

static bool subscribes(const Tern__Wire__ConsumerData *data, const char **topics, size_t count)
{
    for (size_t i = 0; i < data->n_subscriptions; i++)
        for (size_t j = 0; j < count; j++)
            if (data->subscriptions[i]->topic.len == strlen(topics[j]) &&
                memcmp(data->subscriptions[i]->topic.data, topics[j], strlen(topics[j])) == 0)
                return true;
    return false;
}

void route_cache_tell_consumers(struct instance *instance)
{
    lock_acquire(&instance->lock);
    bool needed = instance->topics_changed && instance->consumers;
    lock_release(&instance->lock);
    struct members members;
    if (!needed || members_describe(instance, &members) != TERN_OK)
        return;
    const char **topics;
    size_t count = take_changed(instance, &members.arena, &topics);
    lock_acquire(&instance->lock);
    for (size_t i = 0; i < members.count; i++)
        if (subscribes(members.data[i], topics, count))
            members.consumers[i]->rebalance_due = true;
    lock_release(&instance->lock);
    members_release(instance, &members);
}

/* After the rpc client is gone: no fetch is under way any more. */
void route_cache_fini(struct instance *instance)
{
    struct tern_error err;
    error_set(&err, TERN_CANCELED, "the client instance stops");
    struct topic_entry *entry;
    struct topic_entry *next;
    HASH_ITER (hh, instance->topics, entry, next) {
        ENSURE(!entry->fetching);
        end_waits(take_waiters(entry), TERN_CANCELED, NULL, &err);
        entry_free(instance, entry);
    }
}
