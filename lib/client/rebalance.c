/*
 * Which queues are ours: rebalancing, the queues' objects, and the control task's round over them.
 *
 *   every 20 s, at once on a change ──► per topic: MembersRequest ──► share ──► take and leave
 *                                                       │ failed
 *                                                       └──► the next broker, a second later
 *
 * Whom to ask is in push_members.c. Views of the members differ for a moment when somebody comes or
 * goes; the next round mends it.
 *
 * Invariants: only a non-empty list of members and a non-empty route change what we own: no answer,
 * an empty one or a failed one keep everything. A queue is in consumer->queues from the moment that
 * it is ours until push_queue_drop(), then in consumer->leaving as long as it has progress to tell,
 * which is committed at once. A dropped object is never used again, only finished.
 *
 * Threads: the control task; answers on the link's threads are copied and left with the topic;
 * positions and yields of a queue also by the callback of its call under way. Failure modes:
 * without memory the next round tries again.
 */
#include "client/push_internal.h"

#include <stdlib.h>
#include <string.h>

enum { DUE_BATCH = 64 };

/* ---- a queue's object ---- */

enum tern_code push_queue_create(struct tern_push_consumer *consumer, const struct tern_queue *id,
                                 struct push_filter *filter, struct push_queue **out)
{
    *out = NULL;
    struct push_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return TERN_NO_MEMORY;
    /* Twice the span, so that gaps of filtered messages seldom stop the pull. */
    size_t capacity = 2 * (size_t)(consumer->options.max_span + consumer->options.pull_batch);
    if (window_init(&queue->window, capacity) != TERN_OK) {
        free(queue);
        return TERN_NO_MEMORY;
    }
    queue->refs = 1;
    queue->id = *id;
    queue->state = QUEUE_NEW;
    queue->committed = -1;
    queue->newest = -1;
    queue->active_ns = clock_mono_ns(consumer->env->clock);
    queue->due_ns = queue->active_ns;
    queue->filter = filter;
    atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    queue->consumer = consumer;
    push_ref(consumer);
    push_queue_init_limits(queue);
    push_lease_init(queue);
    *out = queue;
    return TERN_OK;
}

void push_queue_ref(struct push_queue *queue)
{
    atomic_fetch_add_explicit(&queue->refs, 1, memory_order_relaxed);
}

void push_queue_unref(struct push_queue *queue)
{
    if (atomic_fetch_sub_explicit(&queue->refs, 1, memory_order_acq_rel) > 1)
        return;
    ENSURE(!queue->peer);
    struct tern_push_consumer *consumer = queue->consumer;
    window_fini(&queue->window);
    push_filter_unref(queue->filter);
    free(queue);
    push_unref(consumer);
}

struct rpc_peer *push_queue_take_peer(struct push_queue *queue)
{
    lock_acquire(&queue->consumer->lock);
    struct rpc_peer *peer = queue->peer;
    queue->peer = NULL;
    lock_release(&queue->consumer->lock);
    return peer;
}

void push_queue_drop(struct push_queue *queue)
{
    struct tern_push_consumer *consumer = queue->consumer;
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    lock_acquire(&consumer->lock);
    struct push_queue **link = &consumer->queues;
    while (*link != queue)
        link = &(*link)->next;
    *link = queue->next;
    consumer->queue_count--;
    atomic_store(&queue->dropped, true);
    queue->lease.left_ns = now_ns;
    bool leased = queue->lease.known || queue->lease.asking ||
                  (consumer->orderly && atomic_load(&queue->cached) > 0);
    bool leaves = leased || (queue->positioned && !queue->no_commit);
    if (leaves) {
        queue->next = consumer->leaving;
        consumer->leaving = queue;
    }
    lock_release(&consumer->lock);
    struct rpc_peer *peer = push_queue_take_peer(queue);
    if (peer)
        rpc_peer_unref(peer);
    if (consumer->orderly)
        push_order_close(queue);
    if (!leaves)
        push_queue_unref(queue);
}

void push_queue_position(struct push_queue *queue, int64_t offset, int64_t committed,
                         const Tern__Wire__OffsetVersion *version)
{
    window_reset(&queue->window, offset);
    queue->next_offset = offset;
    queue->newest = -1;
    queue->failures = 0;
    if (version)
        queue->version = offset_version_of(version);
    lock_acquire(&queue->consumer->lock);
    queue->committed = committed;
    queue->positioned = true;
    lock_release(&queue->consumer->lock);
}

void push_queue_yield(struct push_queue *queue, enum queue_state state, int64_t delay_ms)
{
    struct tern_push_consumer *consumer = queue->consumer;
    int64_t due_ns = clock_mono_ns(consumer->env->clock) + ms_to_ns(delay_ms);
    lock_acquire(&consumer->lock);
    queue->state = state;
    queue->due_ns = due_ns;
    lock_release(&consumer->lock);
    push_wake(consumer);
}

int64_t push_queue_backoff_ms(struct push_queue *queue, int64_t first_ms, int64_t most_ms)
{
    unsigned shift = queue->failures < 16 ? queue->failures : 16;
    queue->failures++;
    int64_t pause_ms = first_ms << shift;
    return pause_ms < most_ms ? pause_ms : most_ms;
}

void push_queue_leave_address(struct push_queue *queue, int64_t shun_ms)
{
    int64_t now_ns = clock_mono_ns(queue->consumer->env->clock);
    broker_shun(&queue->shuns, queue->asked_id, now_ns + ms_to_ns(shun_ms));
    queue->suggested_id = 0;
    struct rpc_peer *peer = push_queue_take_peer(queue);
    if (peer)
        rpc_peer_unref(peer);
}

/* The next round no later than in delay_ms. */
static void again_in(struct tern_push_consumer *consumer, int64_t now_ns, int64_t delay_ms)
{
    if (consumer->rebalance_due_ns > now_ns + ms_to_ns(delay_ms))
        consumer->rebalance_due_ns = now_ns + ms_to_ns(delay_ms);
}

/* ---- taking and leaving queues ---- */

static int compare_ids(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_members(struct push_members *members)
{
    qsort(members->ids, members->count, sizeof members->ids[0], compare_ids);
    size_t kept = 1;
    for (size_t i = 1; i < members->count; i++)
        if (strcmp(members->ids[i], members->ids[kept - 1]) != 0)
            members->ids[kept++] = members->ids[i];
    members->count = kept;
}

bool push_same_queue(const struct tern_queue *a, const struct tern_queue *b)
{
    return a->queue_id == b->queue_id && strcmp(a->broker_name, b->broker_name) == 0 &&
           strcmp(a->topic, b->topic) == 0;
}

static void leave_queue(struct push_queue *queue, const char *why)
{
    struct tern_push_consumer *consumer = queue->consumer;
    log_info(consumer->env->log, "consumer_queue_left",
             "group=%s topic=%s broker=%s queue=%d reason=\"%s\"", consumer->options.group,
             queue->id.topic, queue->id.broker_name, queue->id.queue_id, why);
    push_queue_drop(queue);
    atomic_store(&consumer->commit_wanted, true);
}

/* Leaves all queues of the topic that are not among the share; marks in `have` those that are. */
static void leave_others(struct push_topic *topic, const struct route *route, const size_t *mine,
                         size_t count, bool *have)
{
    struct tern_push_consumer *consumer = topic->consumer;
    for (struct push_queue *queue = consumer->queues, *next; queue; queue = next) {
        next = queue->next;
        if (strcmp(queue->id.topic, topic->name) != 0)
            continue;
        size_t i = 0;
        while (i < count && !push_same_queue(&queue->id, &route->readable[mine[i]]))
            i++;
        if (i < count)
            have[i] = true;
        else
            leave_queue(queue, "not ours");
    }
}

/*
 * Puts a new queue into the list, with the filter that its topic has by now: a change looks only at
 * the queues in the list. @locks holds:CONSUMER
 */
static void enlist(struct push_queue *queue, const struct push_topic *topic)
{
    struct tern_push_consumer *consumer = queue->consumer;
    if (topic && topic->filter && topic->filter != queue->filter) {
        push_filter_unref(queue->filter);
        queue->filter = topic->filter;
        atomic_fetch_add_explicit(&topic->filter->refs, 1, memory_order_relaxed);
    }
    queue->next = consumer->queues;
    consumer->queues = queue;
    consumer->queue_count++;
}

static void take_queue(struct push_topic *topic, const struct tern_queue *id,
                       struct push_filter *filter)
{
    struct tern_push_consumer *consumer = topic->consumer;
    struct push_queue *queue;
    if (push_queue_create(consumer, id, filter, &queue) != TERN_OK) {
        log_error(consumer->env->log, "consumer_no_memory", "group=%s topic=%s queue=%d",
                  consumer->options.group, id->topic, id->queue_id);
        return; /* the next round tries again */
    }
    log_info(consumer->env->log, "consumer_queue_taken", "group=%s topic=%s broker=%s queue=%d",
             consumer->options.group, id->topic, id->broker_name, id->queue_id);
    lock_acquire(&consumer->lock);
    enlist(queue, topic);
    lock_release(&consumer->lock);
}

static struct push_filter *topic_filter(struct push_topic *topic)
{
    lock_acquire(&topic->consumer->lock);
    struct push_filter *filter = topic->filter;
    if (filter)
        atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    lock_release(&topic->consumer->lock);
    return filter;
}

/* Makes what we own equal to our share. */
static void apply_share(struct push_topic *topic, const struct route *route, const size_t *mine,
                        size_t count)
{
    struct push_filter *filter = topic_filter(topic);
    bool *have = calloc(count + 1, sizeof *have);
    if (filter && have) {
        leave_others(topic, route, mine, count, have);
        for (size_t i = 0; i < count; i++)
            if (!have[i])
                take_queue(topic, &route->readable[mine[i]], filter);
        push_topic_set_limits(topic, count);
        topic->shared = true;
    }
    free(have);
    push_filter_unref(filter);
}

/* Broadcasting: all of them. */
static enum tern_code take_all(struct push_topic *topic, const struct route *route,
                               struct tern_error *err)
{
    size_t *all = malloc(route->readable_count * sizeof *all);
    if (!all)
        return error_set(err, TERN_NO_MEMORY, "queues of topic %s", topic->name);
    for (size_t i = 0; i < route->readable_count; i++)
        all[i] = i;
    apply_share(topic, route, all, route->readable_count);
    free(all);
    return TERN_OK;
}

/* The members are known: compute our share. */
static void share_topic(struct push_topic *topic, struct push_members *members,
                        const struct route *route, int64_t now_ns)
{
    struct tern_push_consumer *consumer = topic->consumer;
    sort_members(members);
    struct allocate_input input = {.client_id = instance_client_id(consumer->instance),
                                   .queues = route->readable,
                                   .queue_count = route->readable_count,
                                   .members = (const char *const *)members->ids,
                                   .member_count = members->count};
    size_t *mine = malloc((route->readable_count + 1) * sizeof *mine);
    if (!mine)
        return;
    size_t count;
    struct tern_error err;
    const struct allocate_strategy *strategy =
        allocation_of_topic(&consumer->allocation, topic->name);
    enum tern_code code = allocate_queues(strategy, &input, mine, &count, &err);
    if (code == TERN_OK || code == TERN_NOT_FOUND)
        apply_share(topic, route, mine, count);
    if (code != TERN_OK && code != TERN_NOT_FOUND) {
        log_error(consumer->env->log, "consumer_share_unknown",
                  "group=%s topic=%s strategy=%s reason=\"%s\"", consumer->options.group,
                  topic->name, strategy->name, err.text);
    } else if (code == TERN_NOT_FOUND) {
        log_warn(consumer->env->log, "consumer_not_a_member", "group=%s topic=%s reason=\"%s\"",
                 consumer->options.group, topic->name, err.text);
        instance_heartbeat_now(consumer->instance, 0);
        again_in(consumer, now_ns, ROUTE_WAIT_MS);
    }
    free(mine);
}

/* Begins the round of one topic. A retry topic may not exist: that is no news. */
static void ask_topic(struct push_topic *topic, int64_t now_ns)
{
    struct tern_push_consumer *consumer = topic->consumer;
    struct tern_error err = {.text = "the route is not known"};
    enum tern_code code = TERN_TOPIC_NOT_EXIST;
    struct route *route = instance_route_cached(consumer->instance, topic->name);
    if (route && route->broker_count > 0 && route->readable_count > 0)
        code = consumer->options.model == TERN_BROADCASTING ? take_all(topic, route, &err)
                                                            : push_members_ask(topic, route, &err);
    else
        instance_route_refresh(consumer->instance, topic->name);
    if (route)
        route_unref(route);
    if (code == TERN_OK) {
        topic->complained = false;
        return;
    }
    if (topic->retry)
        return;
    if (!topic->complained)
        log_warn(consumer->env->log, "consumer_topic_unreachable",
                 "group=%s topic=%s reason=\"%s\"", consumer->options.group, topic->name, err.text);
    topic->complained = true;
    again_in(consumer, now_ns, ROUTE_WAIT_MS);
}

/* Uses an answer that has come. */
static void take_answer(struct push_topic *topic, int64_t now_ns)
{
    struct tern_push_consumer *consumer = topic->consumer;
    lock_acquire(&consumer->lock);
    bool answered = topic->answered;
    bool elsewhere = topic->elsewhere;
    struct push_members *members = topic->answer;
    topic->answered = false;
    topic->answer = NULL;
    lock_release(&consumer->lock);
    if (!answered)
        return;
    struct route *route = instance_route_cached(consumer->instance, topic->name);
    if (members && route && route->readable_count > 0) {
        share_topic(topic, members, route, now_ns);
        topic->next_broker = 0;
    } else {
        topic->next_broker += !elsewhere; /* else that address is avoided from now on */
        again_in(consumer, now_ns, ROUTE_WAIT_MS);
    }
    if (route)
        route_unref(route);
    free(members);
}

/* NULL: never subscribed to. Topics live as long as the consumer. @locks takes:CONSUMER */
static struct push_topic *consumer_topic(struct tern_push_consumer *consumer, const char *name)
{
    lock_acquire(&consumer->lock);
    struct push_topic *topic = consumer->topics;
    lock_release(&consumer->lock);
    while (topic && strcmp(topic->name, name) != 0)
        topic = topic->next;
    return topic;
}

/* Queues of topics that are not subscribed any more, and such as show no life. */
static void leave_stray(struct tern_push_consumer *consumer, int64_t now_ns)
{
    for (struct push_queue *queue = consumer->queues, *next; queue; queue = next) {
        next = queue->next;
        struct push_topic *topic = consumer_topic(consumer, queue->id.topic);
        lock_acquire(&consumer->lock);
        bool subscribed = topic && topic->filter;
        lock_release(&consumer->lock);
        int64_t idle_ns = now_ns - atomic_load(&queue->active_ns);
        if (!subscribed)
            leave_queue(queue, "topic is not subscribed");
        else if (idle_ns > ms_to_ns(QUEUE_IDLE_MS) && !atomic_load(&consumer->pool.halted))
            leave_queue(queue, "no pull for too long");
    }
}

/* At once; or when the answer under way, which may be older than the change, has been taken. Each
 * topic for itself: if one's second question were all topics', their answers would go on calling
 * for one another. */
static void ask_when_free(struct push_topic *topic, int64_t now_ns)
{
    struct tern_push_consumer *consumer = topic->consumer;
    lock_acquire(&consumer->lock);
    bool busy = topic->asking || topic->answered;
    bool subscribed = topic->filter != NULL;
    lock_release(&consumer->lock);
    topic->again = busy;
    if (!busy && subscribed)
        ask_topic(topic, now_ns);
}

int64_t rebalance_step(struct tern_push_consumer *consumer, int64_t now_ns)
{
    lock_acquire(&consumer->lock);
    struct push_topic *topics = consumer->topics;
    lock_release(&consumer->lock);
    for (struct push_topic *topic = topics; topic; topic = topic->next)
        take_answer(topic, now_ns);
    bool all = atomic_exchange(&consumer->rebalance_wanted, false);
    all = all || now_ns >= consumer->rebalance_due_ns;
    if (all) {
        consumer->rebalance_due_ns = now_ns + ms_to_ns(REBALANCE_MS);
        leave_stray(consumer, now_ns);
    }
    for (struct push_topic *topic = topics; topic; topic = topic->next)
        if (all || topic->again)
            ask_when_free(topic, now_ns);
    return consumer->rebalance_due_ns;
}

/* ---- the round over all queues ---- */

/* Puts a new object in the place of a queue that begins elsewhere, once nothing is in flight. */
static void replace_queue(struct push_queue *queue)
{
    struct tern_push_consumer *consumer = queue->consumer;
    bool in_flight = window_left(&queue->window) != window_right(&queue->window);
    if (in_flight && !queue->moved_reset) {
        push_queue_yield(queue, QUEUE_MOVING, FLOW_PAUSE_MS);
        return;
    }
    struct push_queue *fresh;
    struct push_topic *topic = consumer_topic(consumer, queue->id.topic);
    lock_acquire(&consumer->lock);
    struct push_filter *filter = queue->filter; /* a new subscription may exchange it */
    atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    lock_release(&consumer->lock);
    enum tern_code code = push_queue_create(consumer, &queue->id, filter, &fresh);
    push_filter_unref(filter);
    if (code != TERN_OK) {
        push_queue_yield(queue, QUEUE_MOVING, ERROR_PAUSE_MS);
        return;
    }
    log_warn(consumer->env->log, "consumer_queue_moved",
             "group=%s topic=%s broker=%s queue=%d from=%lld to=%lld reset=%d",
             consumer->options.group, queue->id.topic, queue->id.broker_name, queue->id.queue_id,
             (long long)queue->next_offset, (long long)queue->moved_offset, queue->moved_reset);
    fresh->suggested_id = queue->suggested_id;
    fresh->limit = queue->limit;
    fresh->limit_bytes = queue->limit_bytes;
    fresh->version = queue->moved_version;
    if (queue->moved_offset >= 0) {
        push_queue_position(fresh, queue->moved_offset,
                            queue->moved_reset ? queue->moved_offset : -1, NULL);
        fresh->state = QUEUE_READY;
        atomic_store(&consumer->commit_wanted, true);
    }
    lock_acquire(&consumer->lock);
    queue->no_commit = true;
    enlist(fresh, topic);
    lock_release(&consumer->lock);
    push_queue_drop(queue);
    push_wake(consumer);
}

bool push_queue_begin_anew(struct push_queue *queue, const char *why)
{
    struct tern_push_consumer *consumer = queue->consumer;
    struct push_queue *fresh;
    struct push_topic *topic = consumer_topic(consumer, queue->id.topic);
    lock_acquire(&consumer->lock);
    struct push_filter *filter = queue->filter; /* a new subscription may exchange it */
    atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    lock_release(&consumer->lock);
    enum tern_code code = push_queue_create(consumer, &queue->id, filter, &fresh);
    push_filter_unref(filter);
    if (code != TERN_OK)
        return false;
    leave_queue(queue, why);
    lock_acquire(&consumer->lock);
    enlist(fresh, topic);
    lock_release(&consumer->lock);
    push_wake(consumer);
    return true;
}

/* References to queues whose time has come; *next_ns falls to the earliest of the others. */
static size_t collect_due(struct tern_push_consumer *consumer, int64_t now_ns,
                          struct push_queue *due[DUE_BATCH], int64_t *next_ns)
{
    size_t count = 0;
    lock_acquire(&consumer->lock);
    for (struct push_queue *queue = consumer->queues; queue && count < DUE_BATCH;
         queue = queue->next) {
        if (queue->state == QUEUE_ASKING || queue->state == QUEUE_PULLING)
            continue;
        bool hurry = queue->state != QUEUE_MOVING && atomic_exchange(&queue->hurry, false);
        if (hurry || queue->due_ns <= now_ns) {
            queue->active_ns = now_ns;
            push_queue_ref(queue);
            due[count++] = queue;
        } else if (queue->due_ns < *next_ns) {
            *next_ns = queue->due_ns;
        }
    }
    lock_release(&consumer->lock);
    return count;
}

int64_t push_queues_step(struct tern_push_consumer *consumer, int64_t now_ns)
{
    for (;;) {
        int64_t next_ns = SCHED_NEVER;
        struct push_queue *due[DUE_BATCH];
        size_t count = collect_due(consumer, now_ns, due, &next_ns);
        for (size_t i = 0; i < count; i++) {
            /* The state is ours until we hand the queue on: no call is under way. */
            if (due[i]->state == QUEUE_NEW && !push_lease_good(&due[i]->lease, now_ns))
                push_queue_yield(due[i], QUEUE_NEW, LEASE_LOOK_MS);
            else if (due[i]->state == QUEUE_NEW)
                push_offsets_ask(due[i], now_ns);
            else if (due[i]->state == QUEUE_MOVING)
                replace_queue(due[i]);
            else
                push_queue_pull(due[i], true);
            push_queue_unref(due[i]);
        }
        if (count < DUE_BATCH)
            return next_ns;
    }
}
