/*
 * A start asks a broker whether it takes the consumer's expressions, before it becomes a
 * member: a condition that no broker will evaluate is an error of start, not a consumer that hears
 * nothing. Tags are not asked about: what parses here parses there.
 *
 * Until then the instance keeps the consumer to itself: its heartbeats do not name it.
 *
 *   topic's first broker set ─► master, else slaves ─┬─ OK, or nobody there: go on
 *                                                    └─ refused: start fails with the broker's
 * words
 *
 * Threads: the application's, in start. Failure modes: brokers that are away decide nothing; they
 * check again with each pull.
 */
#include "client/push_internal.h"

#include <string.h>

/* A reference to the topic's condition; NULL: tags, or not subscribed. @locks takes:CONSUMER */
static struct push_filter *take_condition(struct tern_push_consumer *consumer,
                                          const struct push_topic *topic)
{
    lock_acquire(&consumer->lock);
    struct push_filter *filter = topic->filter;
    if (filter && subscription_type(filter->tags) != SUBSCRIPTION_SQL92)
        filter = NULL;
    if (filter)
        atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    lock_release(&consumer->lock);
    return filter;
}

static enum tern_code ask(struct tern_push_consumer *consumer, const struct push_topic *topic,
                          const struct push_filter *filter, const struct route *route,
                          struct tern_error *err)
{
    const char *group = consumer->options.group;
    Tern__Wire__Subscription subscription = TERN__WIRE__SUBSCRIPTION__INIT;
    Tern__Wire__CheckSubscriptionRequest check = TERN__WIRE__CHECK_SUBSCRIPTION_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    subscription.topic = frame_bytes(topic->name, strlen(topic->name));
    subscription.expression = (char *)(uintptr_t)subscription_text(filter->tags);
    subscription.expression_type =
        (char *)(uintptr_t)subscription_type_name(subscription_type(filter->tags));
    check.group = frame_bytes(group, strlen(group));
    check.subscription = &subscription;
    request.body_case = TERN__WIRE__REQUEST__BODY_CHECK_SUBSCRIPTION;
    request.check_subscription = &check;
    enum tern_code code = broker_ask(consumer->instance, &consumer->failed, route,
                                     route->brokers[0].name, &request, &call, NULL, err);
    if (call)
        rpc_call_unref(call);
    return code;
}

/* Whether the answer is about the expression, not about the broker's state. */
static bool is_refusal(enum tern_code code)
{
    return code == TERN_SUBSCRIPTION_PARSE_FAILED || code == TERN_NOT_SUPPORTED ||
           code == TERN_INVALID || code == TERN_LIMIT;
}

static enum tern_code check_topic(struct tern_push_consumer *consumer,
                                  const struct push_topic *topic, int64_t deadline_ns,
                                  struct tern_error *err)
{
    struct tern_error why = {.text = ""};
    struct route *route;
    struct push_filter *filter = take_condition(consumer, topic);
    if (!filter)
        return TERN_OK;
    enum tern_code code =
        instance_route(consumer->instance, topic->name, deadline_ns, &route, &why);
    if (code == TERN_OK) {
        if (route->broker_count > 0)
            code = ask(consumer, topic, filter, route, &why);
        route_unref(route);
    }
    push_filter_unref(filter);
    if (is_refusal(code))
        return error_set(err, code, "%s", error_text(&why, code));
    if (code != TERN_OK)
        log_warn(consumer->env->log, "consumer_expression_unchecked",
                 "group=%s topic=%s reason=\"%s\"", consumer->options.group, topic->name,
                 error_text(&why, code));
    return TERN_OK;
}

enum tern_code push_check_expressions(struct tern_push_consumer *consumer, int64_t deadline_ns,
                                      struct tern_error *err)
{
    lock_acquire(&consumer->lock);
    const struct push_topic *topics = consumer->topics;
    lock_release(&consumer->lock);
    enum tern_code code = TERN_OK;
    for (const struct push_topic *topic = topics; topic && code == TERN_OK; topic = topic->next)
        code = check_topic(consumer, topic, deadline_ns, err);
    return code;
}
