/*
 * What a push consumer subscribes to, and how it tells the brokers.
 *
 *   subscribe ──► filter (compiled, shared) ──► topic ──► its queues, and with them their pulls
 *                                                 └─► heartbeat: what each member asks for
 *
 * Invariants: the list of topics only grows, a topic without a filter is not subscribed; a filter
 * is never changed, a new one takes its place, with a higher version.
 *
 * Threads: any. Failure modes: a condition that does not parse changes nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "client/push_internal.h"

/* ---- subscriptions ---- */

void push_filter_unref(struct push_filter *filter)
{
    if (!filter || atomic_fetch_sub_explicit(&filter->refs, 1, memory_order_acq_rel) > 1)
        return;
    subscription_free(filter->tags);
    free(filter);
}

static enum tern_code filter_create(struct tern_push_consumer *consumer,
                                    enum subscription_type type, const char *expression,
                                    struct push_filter **out, struct tern_error *err)
{
    struct push_filter *filter = calloc(1, sizeof *filter);
    if (!filter)
        return error_set(err, TERN_NO_MEMORY, "subscription");
    filter->refs = 1;
    filter->version = clock_wall_ms(consumer->env->clock);
    enum tern_code code =
        subscription_compile(type, expression, strlen(expression), &filter->tags, err);
    if (code != TERN_OK) {
        free(filter);
        return code;
    }
    *out = filter;
    return TERN_OK;
}

/* @locks holds:CONSUMER */
static struct push_topic *find_topic(struct tern_push_consumer *consumer, const char *name)
{
    struct push_topic *topic = consumer->topics;
    while (topic && strcmp(topic->name, name) != 0)
        topic = topic->next;
    return topic;
}

/* Puts `fresh` into the table when the name is not there; returns the table's, NULL when it is
 * full. */
static struct push_topic *insert_topic(struct tern_push_consumer *consumer,
                                       struct push_topic **fresh)
{
    size_t count = 0;
    for (struct push_topic *topic = consumer->topics; topic; topic = topic->next)
        count++;
    struct push_topic *topic = find_topic(consumer, (*fresh)->name);
    if (topic || count >= PUSH_TOPICS_MAX)
        return topic;
    topic = *fresh;
    *fresh = NULL;
    topic->next = consumer->topics;
    consumer->topics = topic;
    return topic;
}

/* Exchanges the filters of the topic and of its queues; returns the topic's old one. @locks
 * holds:CONSUMER */
static struct push_filter *set_filter(struct tern_push_consumer *consumer, struct push_topic *topic,
                                      struct push_filter *filter)
{
    struct push_filter *old = topic->filter;
    if (old && filter && filter->version <= old->version)
        filter->version = old->version + 1;
    topic->filter = filter;
    for (struct push_queue *queue = filter ? consumer->queues : NULL; queue; queue = queue->next) {
        if (strcmp(queue->id.topic, topic->name) != 0)
            continue;
        push_filter_unref(queue->filter);
        queue->filter = filter;
        atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    }
    return old;
}

/* Tells brokers and rebalancer when the consumer runs. */
static void subscriptions_changed(struct tern_push_consumer *consumer)
{
    if (push_state(consumer) != PUSH_RUNNING)
        return;
    instance_heartbeat_now(consumer->instance, 0);
    atomic_store(&consumer->rebalance_wanted, true);
    push_wake(consumer);
}

/* Before the start and while running. The start itself reads them without the lock. @locks
 * holds:CONSUMER */
static bool open_for_changes(const struct tern_push_consumer *consumer)
{
    enum push_state state = push_state(consumer);
    return state == PUSH_CREATED || state == PUSH_RUNNING;
}

static enum tern_code not_open(const struct tern_push_consumer *consumer, struct tern_error *err)
{
    return error_set(err, TERN_STATE, "the consumer of group %s is in the state \"%s\"",
                     consumer->options.group, push_state_text(push_state(consumer)));
}

/* by_start: what the start itself adds. */
static enum tern_code subscribe(struct tern_push_consumer *consumer, const char *name,
                                enum subscription_type type, const char *expression, bool by_start,
                                struct tern_error *err)
{
    struct push_filter *filter = NULL;
    enum tern_code code = filter_create(consumer, type, expression, &filter, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "topic %s", name);
    struct push_topic *fresh = calloc(1, sizeof *fresh);
    if (!fresh) {
        push_filter_unref(filter);
        return error_set(err, TERN_NO_MEMORY, "topic %s", name);
    }
    fresh->consumer = consumer;
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    fresh->retry = strcmp(name, consumer->retry_topic) == 0;
    lock_acquire(&consumer->lock);
    bool open = by_start || open_for_changes(consumer);
    struct push_topic *topic = open ? insert_topic(consumer, &fresh) : NULL;
    struct push_filter *old = topic ? set_filter(consumer, topic, filter) : filter;
    lock_release(&consumer->lock);
    free(fresh);
    push_filter_unref(old);
    if (!open)
        return not_open(consumer, err);
    if (!topic)
        return error_set(err, TERN_LIMIT, "a consumer subscribes to at most %d topics",
                         PUSH_TOPICS_MAX);
    return TERN_OK;
}

enum tern_code push_subscribe_retries(struct tern_push_consumer *consumer, struct tern_error *err)
{
    return subscribe(consumer, consumer->retry_topic, SUBSCRIPTION_TAG, "*", true, err);
}

static enum tern_code subscribe_checked(struct tern_push_consumer *consumer, const char *topic,
                                        enum subscription_type type, const char *expression,
                                        struct tern_error *err)
{
    ENSURE(consumer->magic == PUSH_MAGIC);
    if (!topic)
        return error_set(err, TERN_INVALID, "topic is NULL");
    char name[TOPIC_NAME_MAX + 1];
    enum tern_code code = topic_name_check(topic, strlen(topic), err);
    if (code == TERN_OK)
        code = namespace_wrap(consumer->options.ns, topic, TOPIC_NAME_MAX, name, err);
    if (code == TERN_OK)
        code = subscribe(consumer, name, type, expression, false, err);
    if (code == TERN_OK)
        subscriptions_changed(consumer);
    return code;
}

enum tern_code tern_push_consumer_subscribe(struct tern_push_consumer *consumer, const char *topic,
                                            const char *expression, struct tern_error *err)
{
    return subscribe_checked(consumer, topic, SUBSCRIPTION_TAG, expression ? expression : "*", err);
}

enum tern_code tern_push_consumer_subscribe_sql(struct tern_push_consumer *consumer,
                                                const char *topic, const char *condition,
                                                struct tern_error *err)
{
    return subscribe_checked(consumer, topic, SUBSCRIPTION_SQL92, condition ? condition : "", err);
}

enum tern_code tern_push_consumer_unsubscribe(struct tern_push_consumer *consumer,
                                              const char *topic, struct tern_error *err)
{
    ENSURE(consumer->magic == PUSH_MAGIC);
    char name[TOPIC_NAME_MAX + 1] = "";
    enum tern_code code =
        topic ? namespace_wrap(consumer->options.ns, topic, TOPIC_NAME_MAX, name, err) : TERN_OK;
    if (code != TERN_OK)
        return code;
    struct push_filter *old = NULL;
    lock_acquire(&consumer->lock);
    bool open = open_for_changes(consumer);
    struct push_topic *entry = open && name[0] ? find_topic(consumer, name) : NULL;
    if (entry && !entry->retry)
        old = set_filter(consumer, entry, NULL);
    lock_release(&consumer->lock);
    if (!open)
        return not_open(consumer, err);
    if (!old)
        return error_set(err, TERN_NOT_FOUND, "topic %s is not subscribed", topic ? topic : "NULL");
    push_filter_unref(old);
    subscriptions_changed(consumer);
    return TERN_OK;
}

/* ---- as a member ---- */

static char *arena_text(struct arena *arena, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = arena_alloc(arena, size);
    return copy ? memcpy(copy, text, size) : NULL;
}

/* @locks holds:CONSUMER */
static bool describe_topic(const struct push_topic *topic, struct arena *arena,
                           Tern__Wire__Subscription **out)
{
    Tern__Wire__Subscription *sub = arena_alloc(arena, sizeof *sub);
    char *expression = arena_text(arena, subscription_text(topic->filter->tags));
    if (!sub || !expression)
        return false;
    tern__wire__subscription__init(sub);
    sub->topic = frame_bytes(topic->name, strlen(topic->name));
    sub->expression = expression;
    sub->expression_type =
        (char *)(uintptr_t)subscription_type_name(subscription_type(topic->filter->tags));
    sub->version = topic->filter->version;
    *out = sub;
    return true;
}

bool push_describe(void *arg, struct arena *arena, Tern__Wire__ConsumerData *out)
{
    struct tern_push_consumer *consumer = arg;
    const char *group = consumer->options.group;
    bool good = true;
    tern__wire__consumer_data__init(out);
    out->group = frame_bytes(group, strlen(group));
    out->type = TERN__WIRE__CONSUME_TYPE__CONSUME_PASSIVELY;
    out->model = consumer->options.model == TERN_BROADCASTING
                     ? TERN__WIRE__MESSAGE_MODEL__BROADCASTING
                     : TERN__WIRE__MESSAGE_MODEL__CLUSTERING;
    out->from = consumer->options.from == TERN_FROM_FIRST
                    ? TERN__WIRE__CONSUME_FROM_WHERE__CONSUME_FROM_FIRST_OFFSET
                : consumer->options.from == TERN_FROM_TIMESTAMP
                    ? TERN__WIRE__CONSUME_FROM_WHERE__CONSUME_FROM_TIMESTAMP
                    : TERN__WIRE__CONSUME_FROM_WHERE__CONSUME_FROM_LAST_OFFSET;
    lock_acquire(&consumer->lock);
    size_t count = 0;
    for (const struct push_topic *topic = consumer->topics; topic; topic = topic->next)
        count += topic->filter != NULL;
    out->subscriptions = arena_alloc(arena, (count + 1) * sizeof out->subscriptions[0]);
    good = out->subscriptions != NULL;
    for (const struct push_topic *topic = consumer->topics; topic && good; topic = topic->next)
        if (topic->filter)
            good = describe_topic(topic, arena, &out->subscriptions[out->n_subscriptions++]);
    lock_release(&consumer->lock);
    return good;
}
