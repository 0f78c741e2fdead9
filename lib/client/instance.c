/*
 * A client instance: its life, its task, its members.
 *
 *   created ──start──► running: one task                   ──last unref──► gone
 *                      │  routes due → fetch
 *                      │  addresses new or due → heartbeat
 *                      │  parks due → WaitEvents
 *                      └─ consumers marked → on_rebalance
 *
 * The task sleeps until the earliest of these deadlines; callbacks that bring one forward wake it.
 *
 * Invariants: on_rebalance and describe are called without locks and only while the consumer is
 * counted as busy (`calls`), so that instance_remove_consumer() can wait for them; on_rebalance
 * only by the task. Nothing wakes the task once `stopping` is set.
 *
 * Threads: any, but instance_unref() not in callbacks. Failure modes: without memory a round of
 * heartbeats or notices is left out and comes again.
 */
#include "client/instance_internal.h"

#include <stdlib.h>
#include <string.h>

enum { TASK_SLEEP_MAX_MS = 30000, CONNECT_WAIT_MS = 1000 };
enum { RECONNECT_MIN_MS = 50, RECONNECT_MAX_MS = 3000, SILENCE_MS = 1000 };

int64_t instance_now(const struct instance *instance)
{
    return clock_mono_ns(instance->env->clock);
}

bool instance_stopping(struct instance *instance)
{
    lock_acquire(&instance->lock);
    bool stopping = instance->stopping;
    lock_release(&instance->lock);
    return stopping;
}

const struct env *instance_env(const struct instance *instance)
{
    return instance->env;
}

const char *instance_client_id(const struct instance *instance)
{
    return instance->client_id;
}

struct id_maker *instance_ids(struct instance *instance)
{
    return instance->ids;
}

enum tern_code instance_peer(struct instance *instance, const char *address, struct rpc_peer **out,
                             struct tern_error *err)
{
    return rpc_peer_get(instance->rpc, address, out, err);
}

void instance_step_by(struct instance *instance, int64_t time_ns)
{
    if (instance->stopping || !instance->task || time_ns >= instance->next_step_ns)
        return;
    instance->next_step_ns = time_ns;
    task_wake(instance->task);
}

/* ---- consumers ---- */

void instance_rebalance_due(struct instance *instance, const void *group, size_t group_len)
{
    for (struct instance_consumer *c = instance->consumers; c; c = c->next)
        if (!group || (strlen(c->group) == group_len && memcmp(c->group, group, group_len) == 0))
            c->rebalance_due = true;
    instance_step_by(instance, 0);
}

void instance_consumer_release(struct instance *instance, struct instance_consumer *consumer)
{
    lock_acquire(&instance->lock);
    struct latch *idle = --consumer->calls == 0 ? consumer->idle : NULL;
    lock_release(&instance->lock);
    if (idle)
        latch_set(instance->env->sched, idle);
}

/* A consumer that is marked, counted as busy; NULL: none. */
static struct instance_consumer *take_marked(struct instance *instance)
{
    lock_acquire(&instance->lock);
    struct instance_consumer *c = instance->consumers;
    while (c && !c->rebalance_due)
        c = c->next;
    if (c) {
        c->rebalance_due = false;
        c->calls++;
    }
    lock_release(&instance->lock);
    return c;
}

/* @thread the task's */
static void call_marked_consumers(struct instance *instance)
{
    struct instance_consumer *c;
    while ((c = take_marked(instance))) {
        c->on_rebalance(c->arg);
        instance_consumer_release(instance, c);
    }
}

enum tern_code members_describe(struct instance *instance, struct members *members)
{
    *members = (struct members){0};
    struct arena *arena = &members->arena;
    arena_init(arena, HEARTBEAT_ARENA_BYTES);
    lock_acquire(&instance->lock);
    size_t count = instance->consumer_count;
    members->consumers = arena_alloc(arena, count * sizeof(struct instance_consumer *));
    struct instance_consumer *c = members->consumers ? instance->consumers : NULL;
    for (; c; c = c->next) {
        if (c->unannounced)
            continue;
        c->calls++;
        members->consumers[members->count++] = c;
    }
    lock_release(&instance->lock);
    members->data = arena_alloc(arena, count * sizeof(Tern__Wire__ConsumerData *));
    bool good = members->consumers && members->data;
    for (size_t i = 0; good && i < members->count; i++) {
        Tern__Wire__ConsumerData *data = arena_alloc(arena, sizeof *data);
        if (data)
            *data = (Tern__Wire__ConsumerData)TERN__WIRE__CONSUMER_DATA__INIT;
        members->data[i] = data;
        good = data && members->consumers[i]->describe(members->consumers[i]->arg, arena, data);
    }
    if (!good) {
        members_release(instance, members);
        return TERN_NO_MEMORY;
    }
    return TERN_OK;
}

void members_release(struct instance *instance, struct members *members)
{
    for (size_t i = 0; i < members->count; i++)
        instance_consumer_release(instance, members->consumers[i]);
    arena_fini(&members->arena);
}

void instance_announce_consumer(struct instance *instance, struct instance_consumer *consumer)
{
    lock_acquire(&instance->lock);
    consumer->unannounced = false;
    lock_release(&instance->lock);
}

bool instance_has_members(const struct instance *instance)
{
    const struct instance_consumer *c = instance->consumers;
    while (c && c->unannounced)
        c = c->next;
    return c != NULL;
}

enum tern_code instance_add_consumer(struct instance *instance, struct instance_consumer *consumer,
                                     struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    lock_acquire(&instance->lock);
    for (struct instance_consumer *c = instance->consumers; c && code == TERN_OK; c = c->next)
        if (strcmp(c->group, consumer->group) == 0)
            code = TERN_EXISTS;
    if (code == TERN_OK && instance->consumer_count == CONSUMER_GROUPS_MAX)
        code = TERN_LIMIT;
    if (code == TERN_OK) {
        consumer->calls = 0;
        consumer->rebalance_due = false;
        consumer->idle = NULL;
        consumer->next = instance->consumers;
        instance->consumers = consumer;
        instance->consumer_count++;
        /* Parks and slaves' heartbeats begin with the first consumer. */
        instance_step_by(instance, 0);
    }
    lock_release(&instance->lock);
    if (code == TERN_EXISTS)
        return error_set(err, code,
                         "the consumer group %s has been created before in this client instance "
                         "(%s); give each its own instance name",
                         consumer->group, instance->client_id);
    if (code == TERN_LIMIT)
        return error_set(err, code, "more than %d consumer groups in a client instance",
                         (int)CONSUMER_GROUPS_MAX);
    return code;
}

void instance_remove_consumer(struct instance *instance, struct instance_consumer *consumer)
{
    struct latch idle;
    bool wait = false;
    bool found = false;
    latch_init(&idle);
    lock_acquire(&instance->lock);
    for (struct instance_consumer **at = &instance->consumers; *at; at = &(*at)->next) {
        if (*at != consumer)
            continue;
        *at = consumer->next;
        instance->consumer_count--;
        found = true;
        wait = consumer->calls > 0;
        consumer->idle = &idle;
        break;
    }
    lock_release(&instance->lock);
    if (wait) {
        bool set = latch_wait(instance->env->sched, &idle, SCHED_NEVER);
        ENSURE(set);
    }
    if (found)
        heartbeat_goodbye(instance, "", consumer->group);
}

/* ---- producers ---- */

enum tern_code instance_add_producer(struct instance *instance, const char *group,
                                     struct tern_error *err)
{
    size_t len = strlen(group);
    enum tern_code code = group_name_check(group, len, err);
    if (code != TERN_OK)
        return code;
    struct producer_group *own = calloc(1, sizeof *own);
    if (!own)
        return error_set(err, TERN_NO_MEMORY, "producer group %s", group);
    memcpy(own->name, group, len + 1);
    lock_acquire(&instance->lock);
    for (struct producer_group *g = instance->producers; g && code == TERN_OK; g = g->next)
        if (strcmp(g->name, group) == 0)
            code = TERN_EXISTS;
    if (code == TERN_OK && instance->producer_count == PRODUCER_GROUPS_MAX)
        code = TERN_LIMIT;
    if (code == TERN_OK) {
        own->next = instance->producers;
        instance->producers = own;
        instance->producer_count++;
    }
    lock_release(&instance->lock);
    if (code == TERN_OK) {
        heartbeat_soon(instance);
        return TERN_OK;
    }
    free(own);
    if (code == TERN_EXISTS)
        return error_set(err, code,
                         "the producer group %s has been created before in this client instance "
                         "(%s); give each its own instance name or group",
                         group, instance->client_id);
    return error_set(err, code, "more than %d producer groups in a client instance",
                     (int)PRODUCER_GROUPS_MAX);
}

void instance_remove_producer(struct instance *instance, const char *group)
{
    struct producer_group *removed = NULL;
    lock_acquire(&instance->lock);
    for (struct producer_group **at = &instance->producers; *at; at = &(*at)->next) {
        if (strcmp((*at)->name, group) != 0)
            continue;
        removed = *at;
        *at = removed->next;
        instance->producer_count--;
        break;
    }
    lock_release(&instance->lock);
    if (removed)
        heartbeat_goodbye(instance, group, "");
    free(removed);
}

/* ---- checks of transactions ---- */

void instance_add_checker(struct instance *instance, struct instance_checker *checker)
{
    lock_acquire(&instance->lock);
    checker->next = instance->checkers;
    instance->checkers = checker;
    instance_step_by(instance, 0);
    lock_release(&instance->lock);
    heartbeat_soon(instance);
}

void instance_remove_checker(struct instance *instance, struct instance_checker *checker)
{
    lock_acquire(&instance->lock);
    for (struct instance_checker **at = &instance->checkers; *at; at = &(*at)->next)
        if (*at == checker) {
            *at = checker->next;
            break;
        }
    lock_release(&instance->lock);
}

/* ---- life ---- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* @thread the task's */
static int64_t instance_step(void *arg, int64_t now_ns)
{
    struct instance *instance = arg;
    lock_acquire(&instance->lock);
    /* What comes up from here on and is due within the sleep wakes the task for another step. */
    instance->next_step_ns = now_ns + ms_to_ns(TASK_SLEEP_MAX_MS);
    int64_t next_ns = instance->next_step_ns;
    lock_release(&instance->lock);
    namesrv_end_walks(instance);
    next_ns = earlier(next_ns, route_cache_step(instance, now_ns));
    brokers_update(instance);
    next_ns = earlier(next_ns, heartbeat_step(instance, now_ns));
    next_ns = earlier(next_ns, client_events_step(instance, now_ns));
    next_ns = earlier(next_ns, timers_step(instance, now_ns));
    route_cache_tell_consumers(instance);
    call_marked_consumers(instance);
    lock_acquire(&instance->lock);
    if (next_ns < instance->next_step_ns)
        instance->next_step_ns = next_ns;
    next_ns = instance->next_step_ns;
    lock_release(&instance->lock);
    return next_ns;
}

/* @thread link's */
static void on_peer_state(void *arg, struct rpc_peer *peer, bool up)
{
    if (up)
        brokers_peer_up(arg, rpc_peer_address(peer));
    else
        brokers_peer_lost(arg, rpc_peer_address(peer));
}

enum tern_code instance_create(const struct env *env, struct link *link, const char *client_id,
                               const char *namesrv, struct id_maker *ids, struct instance **out,
                               struct tern_error *err)
{
    struct instance *instance = calloc(1, sizeof *instance);
    *out = NULL;
    if (!instance)
        return error_set(err, TERN_NO_MEMORY, "client instance");
    lock_init(&instance->lock, LOCK_CLIENT);
    instance->env = env;
    instance->link = link;
    instance->ids = ids;
    instance->next_step_ns = SCHED_NEVER;
    instance->route_generation = 1; /* 0: not compared yet */
    memcpy(instance->client_id, client_id, strlen(client_id) + 1);
    if (!ids) {
        id_maker_init(&instance->own_ids, env, (const uint8_t[4]){127, 0, 0, 1});
        instance->ids = &instance->own_ids;
    }
    enum tern_code code = namesrv_parse(instance, namesrv, err);
    struct rpc_client_options options = {
        .max_message_bytes = frame_max_bytes(INSTANCE_MESSAGE_BYTES),
        .connect_wait_ms = CONNECT_WAIT_MS,
        .reconnect_min_ms = RECONNECT_MIN_MS,
        .reconnect_max_ms = RECONNECT_MAX_MS,
        .silence_ms = SILENCE_MS,
        .client_id = instance->client_id,
        .arg = instance,
        .on_peer_state = on_peer_state,
    };
    if (code == TERN_OK) {
        code = rpc_client_create(env, link, &options, &instance->rpc);
        if (code != TERN_OK)
            error_set(err, code, "rpc client of %s", client_id);
    }
    if (code != TERN_OK) {
        instance_destroy(instance);
        return code;
    }
    *out = instance;
    return TERN_OK;
}

void instance_destroy(struct instance *instance)
{
    if (!instance)
        return;
    lock_acquire(&instance->lock);
    instance->stopping = true;
    struct task *task = instance->task;
    instance->task = NULL;
    ENSURE(!instance->consumers && !instance->producers && !instance->checkers);
    lock_release(&instance->lock);
    task_stop(task);
    timers_fini(instance);
    brokers_fini(instance);
    if (instance->rpc)
        rpc_client_destroy(instance->rpc);
    namesrv_end_walks(instance);
    route_cache_fini(instance);
    lock_fini(&instance->lock);
    free(instance->namesrv_text);
    free(instance->namesrv_copy);
    free(instance);
}

enum tern_code instance_start(struct instance *instance, struct tern_error *err)
{
    lock_acquire(&instance->lock);
    bool first = !instance->started;
    instance->started = true;
    lock_release(&instance->lock);
    if (!first)
        return TERN_OK;
    struct task *task;
    enum tern_code code =
        task_start(instance->env->sched, "tern-client", instance_step, instance, &task);
    lock_acquire(&instance->lock);
    if (code == TERN_OK) {
        instance->task = task;
        instance->next_step_ns = 0;
        task_wake(task); /* for what was asked between its first step and now */
    } else {
        instance->started = false;
    }
    lock_release(&instance->lock);
    if (code != TERN_OK)
        return error_set(err, code, "no thread for the client instance %s", instance->client_id);
    log_info(instance->env->log, "client_started", "client_id=%s namesrv=\"%s\"",
             instance->client_id, instance->namesrv_text);
    return TERN_OK;
}
