/*
 * A push consumer's life, and the control task that drives the other parts.
 *
 *   create ──► CREATED ──start──► STARTING ──► RUNNING ──shutdown──► STOPPING ──► SHUT_DOWN
 *                                     └─ failed ──► START_FAILED          └── destroy frees ──┘
 *
 * Start: check, add %RETRY%group, join the instance, load progress that is not the broker's, start
 * the instance, first routes, heartbeat, and then the control task, which rebalances at once.
 * Shutdown: no more pulls, work off what is here, commit, leave the group (the brokers tell the
 * other members).
 *
 * Invariants: the control task runs exactly while the state is RUNNING (or just before STOPPING
 * stops it); callbacks that come later find another state and only free what they hold. The object
 * is freed with its last reference, which may be a late callback's.
 *
 * Threads: start, shutdown and destroy by application threads and never in a listener; the rest by
 * any. Failure modes: no nameserver or no broker to be reached is no failure of start: the consumer
 * goes on trying, and says so in the log.
 */
#include "client/push_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "client/push_trace.h"
#include "client/trace.h"

enum { START_ROUTES_MS = 3000, START_HEARTBEAT_MS = 1000, DESTROY_WAIT_MS = 10000 };

static const char *const state_texts[] = {
#define TEXT_(name, text) text,
    PUSH_STATE_TABLE(TEXT_)
#undef TEXT_
};

const char *push_state_text(enum push_state state)
{
    return state_texts[state];
}

static const char *const from_texts[] = {"last", "first", "timestamp"};

void push_ref(struct tern_push_consumer *consumer)
{
    atomic_fetch_add_explicit(&consumer->refs, 1, memory_order_relaxed);
}

void push_unref(struct tern_push_consumer *consumer)
{
    if (atomic_fetch_sub_explicit(&consumer->refs, 1, memory_order_acq_rel) > 1)
        return;
    while (consumer->topics) {
        struct push_topic *topic = consumer->topics;
        consumer->topics = topic->next;
        push_filter_unref(topic->filter);
        free(topic->answer);
        free(topic);
    }
    push_pool_fini(consumer);
    failed_addresses_fini(&consumer->failed);
    failed_addresses_fini(&consumer->declined);
    lock_fini(&consumer->lock);
    consumer_options_fini(&consumer->options);
    consumer->magic = 0;
    free(consumer);
}

void push_wake(struct tern_push_consumer *consumer)
{
    lock_acquire(&consumer->lock);
    if (consumer->control)
        task_wake(consumer->control); /* takes no lock; the lock keeps the task from being freed */
    lock_release(&consumer->lock);
}

/* ---- as a member ---- */

/* @thread any; does not wait */
static void on_rebalance(void *arg)
{
    struct tern_push_consumer *consumer = arg;
    atomic_store(&consumer->rebalance_wanted, true);
    atomic_store(&consumer->claim_wanted, true); /* a broker may have come back without locks */
    push_wake(consumer);
}

/* ---- the control task ---- */

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

/* @thread control */
static int64_t control_step(void *arg, int64_t now_ns)
{
    struct tern_push_consumer *consumer = arg;
    if (push_state(consumer) != PUSH_RUNNING)
        return SCHED_NEVER;
    int64_t next_ns = rebalance_step(consumer, now_ns);
    next_ns = earlier(next_ns, push_leases_step(consumer, now_ns));
    next_ns = earlier(next_ns, push_queues_step(consumer, now_ns));
    push_broadcast_look(consumer);
    next_ns = earlier(next_ns, push_offsets_step(consumer, now_ns));
    return earlier(next_ns, push_pool_step(consumer, now_ns));
}

/* ---- life ---- */

enum tern_code tern_push_consumer_create(const struct tern_consumer_options *options,
                                         struct tern_push_consumer **out, struct tern_error *err)
{
    *out = NULL;
    enum tern_code code = consumer_options_check(options, err);
    if (code != TERN_OK)
        return code;
    struct tern_push_consumer *consumer = calloc(1, sizeof *consumer);
    if (!consumer)
        return error_set(err, TERN_NO_MEMORY, "consumer");
    consumer->magic = PUSH_MAGIC;
    consumer->refs = 1;
    consumer_options_copy(&consumer->options, options);
    code = consumer_options_use_namespace(&consumer->options, err);
    if (code == TERN_OK)
        code = allocation_init(&consumer->allocation, &consumer->options, err);
    if (code == TERN_OK && (code = push_pool_init(consumer)) != TERN_OK)
        error_set(err, code, "consumer of group %s", options->group);
    if (code != TERN_OK) {
        consumer_options_fini(&consumer->options);
        free(consumer);
        return code;
    }
    lock_init(&consumer->lock, LOCK_CONSUMER);
    failed_addresses_init(&consumer->failed);
    failed_addresses_init(&consumer->declined);
    snprintf(consumer->retry_topic, sizeof consumer->retry_topic, "%s%s", RETRY_TOPIC_PREFIX,
             consumer->options.group);
    struct instance_options instance;
    consumer_options_instance(&consumer->options, &instance);
    code = instance_get(&instance, &consumer->instance, err);
    if (code != TERN_OK) {
        push_unref(consumer);
        return code;
    }
    consumer->env = instance_env(consumer->instance);
    code = push_trace_create(consumer, err);
    if (code != TERN_OK) {
        instance_unref(consumer->instance);
        push_unref(consumer);
        return code;
    }
    consumer->member = (struct instance_consumer){.group = consumer->options.group,
                                                  .describe = push_describe,
                                                  .on_rebalance = on_rebalance,
                                                  .arg = consumer,
                                                  .unannounced = true};
    *out = consumer;
    return TERN_OK;
}

/* One of the three is the new listener, unless the caller gave none. */
static enum tern_code set_listener(struct tern_push_consumer *consumer,
                                   tern_message_listener listener,
                                   tern_context_listener context_listener,
                                   tern_orderly_listener orderly_listener, void *arg)
{
    ENSURE(consumer->magic == PUSH_MAGIC);
    if (push_state(consumer) != PUSH_CREATED)
        return TERN_STATE;
    if (!listener && !context_listener && !orderly_listener)
        return TERN_INVALID;
    consumer->listener = listener;
    consumer->context_listener = context_listener;
    consumer->orderly_listener = orderly_listener;
    consumer->listener_arg = arg;
    return TERN_OK;
}

enum tern_code tern_push_consumer_listener(struct tern_push_consumer *consumer,
                                           tern_message_listener listener, void *arg)
{
    return set_listener(consumer, listener, NULL, NULL, arg);
}

enum tern_code tern_push_consumer_context_listener(struct tern_push_consumer *consumer,
                                                   tern_context_listener listener, void *arg)
{
    return set_listener(consumer, NULL, listener, NULL, arg);
}

enum tern_code tern_push_consumer_listener_orderly(struct tern_push_consumer *consumer,
                                                   tern_orderly_listener listener, void *arg)
{
    return set_listener(consumer, NULL, NULL, listener, arg);
}

/* CREATED → STARTING when all that is needed is there. */
static enum tern_code begin_start(struct tern_push_consumer *consumer, struct tern_error *err)
{
    lock_acquire(&consumer->lock);
    enum push_state state = push_state(consumer);
    bool subscribed = false;
    for (const struct push_topic *topic = consumer->topics; topic; topic = topic->next)
        subscribed = subscribed || topic->filter;
    bool listener = consumer->listener || consumer->context_listener || consumer->orderly_listener;
    bool good = state == PUSH_CREATED && subscribed && listener;
    consumer->orderly = consumer->orderly_listener != NULL;
    consumer->needs_leases = consumer->orderly && consumer->options.model == TERN_CLUSTERING;
    if (good)
        atomic_store(&consumer->state, PUSH_STARTING);
    lock_release(&consumer->lock);
    if (good)
        return TERN_OK;
    if (state != PUSH_CREATED)
        return error_set(err, TERN_STATE, "the consumer of group %s is in the state \"%s\"",
                         consumer->options.group, state_texts[state]);
    return error_set(err, TERN_STATE, "the consumer of group %s has no %s", consumer->options.group,
                     subscribed ? "listener" : "subscription");
}

/* Group, model, topics and expressions, once per start. */
static void log_start(struct tern_push_consumer *consumer)
{
    struct log *log = consumer->env->log;
    log_info(log, "consumer_start", "group=%s client=%s model=%s from=%s strategy=%s",
             consumer->options.group, instance_client_id(consumer->instance),
             consumer->options.model == TERN_BROADCASTING ? "BROADCASTING" : "CLUSTERING",
             from_texts[consumer->options.from], consumer->options.allocate);
    for (const struct push_topic *topic = consumer->topics; topic; topic = topic->next)
        if (topic->filter)
            log_info(log, "consumer_subscription", "group=%s topic=%s type=%s expression=\"%s\"",
                     consumer->options.group, topic->name,
                     subscription_type_name(subscription_type(topic->filter->tags)),
                     subscription_text(topic->filter->tags));
}

/* Routes of all topics, as far as they can be had soon. */
static void first_routes(struct tern_push_consumer *consumer, int64_t deadline_ns)
{
    lock_acquire(&consumer->lock);
    struct push_topic *topics = consumer->topics;
    lock_release(&consumer->lock);
    for (const struct push_topic *topic = topics; topic; topic = topic->next) {
        struct route *route;
        struct tern_error err;
        enum tern_code code =
            instance_route(consumer->instance, topic->name, deadline_ns, &route, &err);
        if (code == TERN_OK)
            route_unref(route);
        else if (!topic->retry)
            log_warn(consumer->env->log, "consumer_no_route", "group=%s topic=%s reason=\"%s\"",
                     consumer->options.group, topic->name, error_text(&err, code));
    }
}

static enum tern_code subscribe_retries(struct tern_push_consumer *consumer, struct tern_error *err)
{
    if (consumer->options.model == TERN_BROADCASTING)
        return TERN_OK;
    if (strlen(consumer->retry_topic) <= TOPIC_NAME_MAX)
        return push_subscribe_retries(consumer, err);
    log_warn(consumer->env->log, "consumer_without_retry_topic", "group=%s limit_bytes=%d",
             consumer->options.group, (int)TOPIC_NAME_MAX);
    return TERN_OK;
}

/* Into the instance, with all that a running consumer needs but the control task. */
static enum tern_code join(struct tern_push_consumer *consumer, struct tern_error *err)
{
    enum tern_code code = subscribe_retries(consumer, err);
    if (code != TERN_OK)
        return code;
    log_start(consumer);
    code = instance_add_consumer(consumer->instance, &consumer->member, err);
    if (code != TERN_OK)
        return code;
    consumer->joined = true;
    code = push_store_open(consumer, err);
    if (code == TERN_OK)
        code = push_store_start(consumer, err);
    if (code == TERN_OK)
        code = instance_start(consumer->instance, err);
    if (code == TERN_OK && consumer->trace)
        code = trace_start(consumer->trace, err);
    return code;
}

static enum tern_code start_control(struct tern_push_consumer *consumer, struct tern_error *err)
{
    atomic_store(&consumer->state, PUSH_RUNNING);
    consumer->rebalance_due_ns = clock_mono_ns(consumer->env->clock);
    consumer->commit_due_ns =
        consumer->rebalance_due_ns + ms_to_ns(consumer->options.commit_interval_ms);
    struct task *control;
    enum tern_code code =
        task_start(consumer->env->sched, "tern-push", control_step, consumer, &control);
    if (code != TERN_OK)
        return error_set(err, code, "control task of group %s", consumer->options.group);
    lock_acquire(&consumer->lock);
    consumer->control = control;
    lock_release(&consumer->lock);
    task_wake(control); /* for what was noted before the pointer was there */
    return TERN_OK;
}

static enum tern_code start_steps(struct tern_push_consumer *consumer, struct tern_error *err)
{
    struct latch begun;
    bool broadcasting = consumer->options.model == TERN_BROADCASTING;
    enum tern_code code = join(consumer, err);
    if (code != TERN_OK)
        return code;
    int64_t deadline_ns = clock_mono_ns(consumer->env->clock) + ms_to_ns(START_ROUTES_MS);
    first_routes(consumer, deadline_ns);
    code = push_check_expressions(consumer, deadline_ns, err);
    if (code != TERN_OK)
        return code;
    instance_announce_consumer(consumer->instance, &consumer->member);
    instance_heartbeat_now(consumer->instance, START_HEARTBEAT_MS);
    if (instance_consumer_refused(consumer->instance, &consumer->member, err))
        return TERN_SUBSCRIPTION_DIFFERS;
    latch_init(&begun);
    if (broadcasting)
        consumer->begun = &begun;
    code = start_control(consumer, err);
    if (code == TERN_OK && broadcasting)
        push_broadcast_wait(consumer, &begun);
    return code;
}

enum tern_code tern_push_consumer_start(struct tern_push_consumer *consumer, struct tern_error *err)
{
    ENSURE(consumer->magic == PUSH_MAGIC);
    enum tern_code code = begin_start(consumer, err);
    if (code != TERN_OK)
        return code;
    code = start_steps(consumer, err);
    if (code == TERN_OK)
        return TERN_OK;
    atomic_store(&consumer->state, PUSH_START_FAILED);
    (void)push_store_close(consumer); /* nothing was consumed */
    if (consumer->joined)
        instance_remove_consumer(consumer->instance, &consumer->member);
    consumer->joined = false;
    return code;
}

static enum tern_code set_suspended(struct tern_push_consumer *consumer, bool suspended)
{
    ENSURE(consumer->magic == PUSH_MAGIC);
    if (push_state(consumer) != PUSH_RUNNING)
        return TERN_STATE;
    push_pool_suspend(consumer, suspended);
    if (!suspended)
        push_queues_hurry(consumer);
    return TERN_OK;
}

enum tern_code tern_push_consumer_suspend(struct tern_push_consumer *consumer)
{
    return set_suspended(consumer, true);
}

enum tern_code tern_push_consumer_resume(struct tern_push_consumer *consumer)
{
    return set_suspended(consumer, false);
}

/* The control task has stopped: nobody else changes the lists. */
static void release_queues(struct tern_push_consumer *consumer)
{
    for (;;) {
        lock_acquire(&consumer->lock);
        struct push_queue *queue = consumer->leaving;
        if (queue)
            consumer->leaving = queue->next;
        lock_release(&consumer->lock);
        if (!queue)
            return;
        push_queue_unref(queue);
    }
}

/* Waits for the listeners; meanwhile the queues of an orderly consumer stay ours. */
static bool stop_pool(struct tern_push_consumer *consumer, int64_t deadline_ns)
{
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    for (;;) {
        int64_t until_ns = deadline_ns;
        if (consumer->needs_leases && until_ns > now_ns + ms_to_ns(LEASE_RETRY_MS))
            until_ns = now_ns + ms_to_ns(LEASE_RETRY_MS);
        if (push_pool_stop(consumer, until_ns))
            return true;
        now_ns = clock_mono_ns(consumer->env->clock);
        if (now_ns >= deadline_ns)
            return false;
        (void)push_leases_step(consumer, now_ns);
    }
}

enum tern_code tern_push_consumer_shutdown(struct tern_push_consumer *consumer, int64_t timeout_ms)
{
    ENSURE(consumer->magic == PUSH_MAGIC);
    if (push_pool_in_listener(consumer))
        return TERN_STATE;
    lock_acquire(&consumer->lock);
    bool running = push_state(consumer) == PUSH_RUNNING;
    if (running)
        atomic_store(&consumer->state, PUSH_STOPPING);
    struct task *control = consumer->control;
    consumer->control = NULL;
    lock_release(&consumer->lock);
    if (!running)
        return TERN_STATE;
    task_stop(control);
    int64_t deadline_ns =
        clock_mono_ns(consumer->env->clock) + ms_to_ns(timeout_ms > 0 ? timeout_ms : 0);
    bool idle = stop_pool(consumer, deadline_ns);
    while (consumer->queues)
        push_queue_drop(consumer->queues);
    enum tern_code told = TERN_OK;
    if (push_store_used(consumer))
        told = push_store_close(consumer);
    else
        told = push_offsets_flush(consumer,
                                  clock_mono_ns(consumer->env->clock) + ms_to_ns(RPC_TIMEOUT_MS));
    push_leases_flush(consumer, deadline_ns);
    release_queues(consumer);
    push_releases_end(consumer);
    instance_remove_consumer(consumer->instance, &consumer->member);
    consumer->joined = false;
    atomic_store(&consumer->state, PUSH_SHUT_DOWN);
    log_info(consumer->env->log, "consumer_stop", "group=%s consumed=%llu listeners_left=%d",
             consumer->options.group, (unsigned long long)counter_get(&consumer->consumed), !idle);
    return idle ? told : TERN_TIMEOUT;
}

void tern_push_consumer_destroy(struct tern_push_consumer *consumer)
{
    if (!consumer)
        return;
    ENSURE(consumer->magic == PUSH_MAGIC && !push_pool_in_listener(consumer));
    enum tern_code code = tern_push_consumer_shutdown(consumer, DESTROY_WAIT_MS);
    if (code == TERN_TIMEOUT)
        log_warn(consumer->env->log, "consumer_listener_still_runs", "group=%s",
                 consumer->options.group);
    push_pool_join(consumer);
    push_pool_discard(consumer);
    trace_destroy(consumer->trace);
    instance_unref(consumer->instance);
    push_unref(consumer);
}

void tern_push_consumer_stats(struct tern_push_consumer *consumer,
                              struct tern_consumer_stats *stats)
{
    ENSURE(consumer->magic == PUSH_MAGIC);
    *stats = (struct tern_consumer_stats){
        .pulled = counter_get(&consumer->pulled),
        .consumed = counter_get(&consumer->consumed),
        .failed = counter_get(&consumer->failed_messages),
        .sent_back = counter_get(&consumer->sent_back),
        .duplicates_dropped = counter_get(&consumer->duplicates),
        .flow_controlled = counter_get(&consumer->flow_controlled),
        .dropped = counter_get(&consumer->dropped_messages),
        .sent_back_unknown = counter_get(&consumer->sent_back_unknown),
    };
    lock_acquire(&consumer->lock);
    stats->queues = consumer->queue_count;
    for (const struct push_queue *queue = consumer->queues; queue; queue = queue->next)
        stats->cached += atomic_load_explicit(&queue->cached, memory_order_relaxed);
    lock_release(&consumer->lock);
}
