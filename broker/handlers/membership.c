/*
 * Members on the wire: heartbeats, leaving, asking who is there, events.
 *
 *   heartbeat ─► names, expressions checked ─► groups (and their retry topics) made ─► members
 *   members: a group changed ─► an event to each of its members
 *
 * Invariants: the member table gets only checked names and expressions that parse; a heartbeat that
 * is refused has changed no membership. Groups and retry topics that it made become durable with
 * the admin lane's next batch; lost in a crash they are made again by the next heartbeat.
 *
 * Threads: transport's. Failure modes: each refusal names group, topic and cause.
 */
#include <stdlib.h>

#include "base/log.h"
#include "base/subscription.h"
#include "broker/admin_lane.h"
#include "broker/guard.h"
#include "broker/handlers/checks.h"
#include "broker/retry.h"
#include "broker/subscription_cache.h"
#include "broker/tx/tx.h"

void broker_on_members_changed(void *arg, const char *group, const char *const *client_ids,
                               size_t count)
{
    struct broker *broker = arg;
    struct group_config config;
    if (groups_find(broker->groups, group, strlen(group), &config) &&
        !config.notify_members_changed)
        return;
    for (size_t i = 0; i < count; i++)
        events_post_members_changed(broker->events, client_ids[i], group);
}

/* ---- expressions ---- */

enum tern_code broker_compile(struct broker *broker, const char *type, const char *expression,
                              struct subscription **out, struct tern_error *err)
{
    enum subscription_type kind;
    *out = NULL;
    enum tern_code code = subscription_type_parse(type, &kind, err);
    if (code)
        return code;
    if (kind == SUBSCRIPTION_SQL92 && !broker->config.enable_property_filter)
        return error_set(err, TERN_NOT_SUPPORTED,
                         "The broker does not support consumer to filter message by SQL92 "
                         "(enablePropertyFilter is false on %s)",
                         broker->config.broker_name);
    if (kind == SUBSCRIPTION_TAG && (!expression[0] || !strcmp(expression, "*")))
        return TERN_OK;
    return subscription_cache_get(broker->subscriptions, kind, expression, out, err);
}

/* *normal (may be NULL): its normal form, in the request's memory. */
static enum tern_code check_expression(struct broker *broker, struct rpc_request *request,
                                       const char *group, const char *topic, const char *type,
                                       const char *expression, const char **normal,
                                       struct tern_error *err)
{
    struct subscription *subscription = NULL;
    enum tern_code code = broker_compile(broker, type, expression, &subscription, err);
    if (!code && normal) {
        const char *text = subscription ? subscription_normal(subscription) : "*";
        size_t size = strlen(text) + 1;
        char *copy = rpc_request_alloc(request, size);
        *normal = copy ? memcpy(copy, text, size) : NULL;
        if (!copy)
            code = error_set(err, TERN_NO_MEMORY, "no memory for the subscription");
    }
    subscription_free(subscription);
    return code ? error_prefix(err, code, "group %s, topic %s", group, topic) : TERN_OK;
}

void handle_check_subscription(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__CheckSubscriptionRequest *wanted = request->header->check_subscription;
    struct tern_error err = {.text = ""};
    const char *group;
    const char *topic;
    enum tern_code code = take_group(request, &wanted->group, &group, &err);
    if (!code && !wanted->subscription)
        code = error_set(&err, TERN_INVALID, "subscription is missing");
    if (!code)
        code = take_topic(request, &wanted->subscription->topic, &topic, &err);
    if (!code)
        code =
            check_expression(broker, request, group, topic, wanted->subscription->expression_type,
                             wanted->subscription->expression, NULL, &err);
    if (code)
        rpc_reply_failure(request, code, &err);
    else
        rpc_reply_ok(request);
}

/* ---- heartbeat ---- */

static enum tern_code take_subscription(struct broker *broker, struct rpc_request *request,
                                        const char *group, const Tern__Wire__Subscription *wire,
                                        struct member_subscription *out, struct tern_error *err)
{
    const char *topic;
    enum tern_code code = take_topic(request, &wire->topic, &topic, err);
    if (code)
        return error_prefix(err, code, "group %s", group);
    code = check_expression(broker, request, group, topic, wire->expression_type, wire->expression,
                            &out->normal, err);
    if (code)
        return code;
    memcpy(out->topic, topic, strlen(topic) + 1);
    if (wire->expression_type[0])
        snprintf(out->expression_type, sizeof out->expression_type, "%s", wire->expression_type);
    else
        memcpy(out->expression_type, "TAG", sizeof "TAG");
    out->expression = wire->expression[0] ? wire->expression : "*";
    out->version = wire->version;
    return TERN_OK;
}

static enum tern_code take_consumer(struct broker *broker, struct rpc_request *request,
                                    const Tern__Wire__ConsumerData *wire,
                                    struct member_consumer *out, struct tern_error *err)
{
    const char *group;
    size_t n = wire->n_subscriptions;
    enum tern_code code = take_group(request, &wire->group, &group, err);
    if (code)
        return code;
    if ((unsigned)wire->type > TERN__WIRE__CONSUME_TYPE__CONSUME_ACTIVELY ||
        (unsigned)wire->model > TERN__WIRE__MESSAGE_MODEL__BROADCASTING ||
        (unsigned)wire->from > TERN__WIRE__CONSUME_FROM_WHERE__CONSUME_FROM_TIMESTAMP)
        return error_set(err, TERN_INVALID, "group %s: type %d, model %d or from %d is not known",
                         group, (int)wire->type, (int)wire->model, (int)wire->from);
    if (n > MEMBER_SUBSCRIPTIONS_MAX)
        return error_set(err, TERN_LIMIT, "group %s subscribes to %zu topics, allowed %d", group, n,
                         (int)MEMBER_SUBSCRIPTIONS_MAX);
    memcpy(out->group, group, strlen(group) + 1);
    out->type = (int32_t)wire->type;
    out->model = (int32_t)wire->model;
    out->from = (int32_t)wire->from;
    out->subscription_count = n;
    out->subscriptions = rpc_request_alloc(request, (n + 1) * sizeof out->subscriptions[0]);
    if (!out->subscriptions)
        return error_set(err, TERN_NO_MEMORY, "no memory for group %s's subscriptions", group);
    for (size_t i = 0; !code && i < n; i++) {
        memset(&out->subscriptions[i], 0, sizeof out->subscriptions[i]);
        code = take_subscription(broker, request, group, wire->subscriptions[i],
                                 &out->subscriptions[i], err);
    }
    return code;
}

/* The heartbeat as the member table takes it, in the request's memory. */
static enum tern_code take_heartbeat(struct broker *broker, struct rpc_request *request,
                                     struct member_heartbeat *out, struct member_consumer **made,
                                     struct tern_error *err)
{
    const Tern__Wire__HeartbeatRequest *wire = request->header->heartbeat;
    enum tern_code code = take_client(request, &out->client_id, err);
    if (!code && !(utf8_printable(wire->language, strlen(wire->language)) &&
                   utf8_printable(wire->client_version, strlen(wire->client_version))))
        code = error_set(err, TERN_INVALID, "language or client_version is not printable UTF-8");
    if (code)
        return code;
    const char **producers =
        rpc_request_alloc(request, (wire->n_producer_groups + 1) * sizeof *producers);
    const char **checked =
        rpc_request_alloc(request, (wire->n_checked_groups + 1) * sizeof *checked);
    struct member_consumer *consumers =
        rpc_request_alloc(request, (wire->n_consumers + 1) * sizeof *consumers);
    if (!producers || !checked || !consumers)
        return error_set(err, TERN_NO_MEMORY, "no memory for the heartbeat");
    for (size_t i = 0; !code && i < wire->n_producer_groups; i++)
        code = take_group(request, &wire->producer_groups[i], &producers[i], err);
    for (size_t i = 0; !code && i < wire->n_checked_groups; i++)
        code = take_group(request, &wire->checked_groups[i], &checked[i], err);
    for (size_t i = 0; !code && i < wire->n_consumers; i++)
        code = take_consumer(broker, request, wire->consumers[i], &consumers[i], err);
    out->peer_id = request->peer.id;
    out->remote = request->peer.remote;
    out->language = wire->language;
    out->client_version = wire->client_version;
    out->producer_groups = producers;
    out->producer_group_count = wire->n_producer_groups;
    out->checked_groups = checked;
    out->checked_group_count = wire->n_checked_groups;
    out->consumers = *made = consumers;
    out->consumer_count = wire->n_consumers;
    return code;
}

/* So that the topic and its route are there before the first message needs them (RO-05). */
static enum tern_code want_retry_topic(struct broker *broker, const struct group_config *group,
                                       bool *made, struct tern_error *err)
{
    if (strlen(group->name) > RETRY_GROUP_MAX || group->retry_queues < 1)
        return TERN_OK; /* has none; the group's subscription to it would have been refused */
    return retry_topic_want(broker, group, RETRY_AGAIN, made, err);
}

/* What the group's setting makes of members that differ. */
static enum tern_code set_consistency(struct rpc_request *request, struct member_consumer *consumer,
                                      const struct group_config *config, struct tern_error *err)
{
    consumer->isolated = config->consistency == CONSISTENCY_ISOLATE;
    consumer->conflict = NULL;
    if (config->consistency != CONSISTENCY_REFUSE)
        return TERN_OK;
    consumer->conflict = rpc_request_alloc(request, sizeof *consumer->conflict);
    if (!consumer->conflict)
        return error_set(err, TERN_NO_MEMORY, "no memory for the heartbeat");
    consumer->conflict->found = false;
    return TERN_OK;
}

static enum tern_code want_groups(struct broker *broker, struct rpc_request *request,
                                  struct member_consumer *consumers, size_t count,
                                  struct tern_error *err)
{
    bool made = false;
    enum tern_code code = TERN_OK;
    for (size_t i = 0; !code && i < count; i++) {
        struct group_config config;
        const char *group = consumers[i].group;
        code = groups_find_or_create(broker->groups, group, strlen(group), &config, err);
        if (!code && broker->config.role != ROLE_SLAVE)
            code = want_retry_topic(broker, &config, &made, err);
        if (!code)
            code = set_consistency(request, &consumers[i], &config, err);
    }
    if (made || groups_dirty(broker->groups))
        admin_lane_poke(broker->admin);
    return code;
}

/* Groups that left the client out, with why; the answer's code and remark are the first one's. */
static enum tern_code add_refused(struct broker *broker, struct rpc_request *request,
                                  const struct member_heartbeat *heartbeat,
                                  Tern__Wire__HeartbeatResponse *body, struct tern_error *first)
{
    enum tern_code code = TERN_OK;
    size_t n = heartbeat->consumer_count;
    body->refused = rpc_request_alloc(request, (n + 1) * sizeof body->refused[0]);
    for (size_t i = 0; body->refused && i < n; i++) {
        const struct member_consumer *consumer = &heartbeat->consumers[i];
        Tern__Wire__RefusedGroup *refused;
        struct tern_error *err;
        if (!consumer->conflict || !consumer->conflict->found)
            continue;
        refused = rpc_request_alloc(request, sizeof *refused);
        err = rpc_request_alloc(request, sizeof *err);
        if (!refused || !err)
            continue;
        code = guard_refusal(consumer->group, heartbeat->client_id, consumer->conflict, err);
        counter_add(&broker->subscription_differences, 1);
        log_warn(broker->env.log, "member_refused", "cause=\"%s\"", err->text);
        tern__wire__refused_group__init(refused);
        refused->group = frame_bytes(consumer->group, strlen(consumer->group));
        refused->reason = err->text;
        if (!body->n_refused)
            *first = *err;
        body->refused[body->n_refused++] = refused;
    }
    return code;
}

static void answer_heartbeat(struct broker *broker, struct rpc_request *request,
                             const struct member_heartbeat *heartbeat)
{
    struct tern_error first = {.text = ""};
    const struct host *remote = &request->peer.remote;
    Tern__Wire__Address address = TERN__WIRE__ADDRESS__INIT;
    Tern__Wire__HeartbeatResponse body = TERN__WIRE__HEARTBEAT_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    address.ip = frame_bytes((const char *)remote->ip, remote->v6 ? 16 : 4);
    address.port = remote->port;
    body.seen_as = &address;
    enum tern_code code = add_refused(broker, request, heartbeat, &body, &first);
    if (code) {
        response.code = wire_code_of(code);
        response.remark = first.text;
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_HEARTBEAT;
    response.heartbeat = &body;
    rpc_reply(request, &response, 0);
}

void handle_heartbeat(struct broker *broker, struct rpc_request *request)
{
    struct tern_error err = {.text = ""};
    struct member_heartbeat heartbeat = {.client_id = NULL};
    struct member_consumer *consumers = NULL;
    enum tern_code code = take_heartbeat(broker, request, &heartbeat, &consumers, &err);
    if (!code)
        code = want_groups(broker, request, consumers, heartbeat.consumer_count, &err);
    if (!code)
        code = members_heartbeat(broker->members, &heartbeat, &err);
    if (code)
        rpc_reply_failure(request, code, &err);
    else
        answer_heartbeat(broker, request, &heartbeat);
}

void handle_unregister_client(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__UnregisterClientRequest *wanted = request->header->unregister_client;
    struct tern_error err = {.text = ""};
    const char *client_id;
    const char *producer = NULL;
    const char *consumer = NULL;
    enum tern_code code = take_client(request, &client_id, &err);
    if (!code && wanted->producer_group.len)
        code = take_group(request, &wanted->producer_group, &producer, &err);
    if (!code && wanted->consumer_group.len)
        code = take_group(request, &wanted->consumer_group, &consumer, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    members_unregister(broker->members, client_id, producer, consumer);
    rpc_reply_ok(request);
}

/* ---- asking ---- */

/* Who shares the group's queues with the asker: of an isolated group its cohort, nobody when it is
 * no member (yet). */
static enum tern_code sharing_members(struct broker *broker, struct rpc_request *request,
                                      const char *group, const char ***ids, size_t *count)
{
    struct group_view view;
    const char *client = frame_text(rpc_request_arena(request), &request->header->client_id);
    *ids = NULL;
    *count = 0;
    if (!client)
        return TERN_NO_MEMORY;
    if (guard_view(broker, group, client, &view, NULL) != TERN_OK)
        return TERN_OK;
    return members_of_cohort(broker->members, group, view.cohort, ids, count);
}

void handle_members(struct broker *broker, struct rpc_request *request)
{
    Tern__Wire__MembersResponse body = TERN__WIRE__MEMBERS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {.text = ""};
    const char **ids = NULL;
    size_t count = 0;
    const char *group;
    enum tern_code code = take_group(request, &request->header->members->group, &group, &err);
    if (!code)
        code = sharing_members(broker, request, group, &ids, &count);
    if (!code) {
        body.client_ids = rpc_request_alloc(request, (count + 1) * sizeof body.client_ids[0]);
        if (!body.client_ids)
            code = TERN_NO_MEMORY;
    }
    if (code) {
        rpc_reply_failure(request, code, &err);
    } else {
        for (size_t i = 0; i < count; i++)
            body.client_ids[i] = frame_bytes(ids[i], strlen(ids[i]));
        body.n_client_ids = count;
        response.body_case = TERN__WIRE__RESPONSE__BODY_MEMBERS;
        response.members = &body;
        reply_bounded(broker, request, &response, "the group has too many members");
    }
    free(ids);
}

void handle_wait_events(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__WaitEventsRequest *wait = request->header->wait_events;
    for (size_t i = 0; i < wait->n_checks_not_asked && i < TX_NOT_ASKED_MAX; i++)
        tx_not_asked(broker->tx, wait->checks_not_asked[i]);
    events_wait(broker->events, request);
}

/* One member for the wire; everything in the request's memory or borrowed from `info`. */
static Tern__Wire__MemberInfo *member_info(struct rpc_request *request,
                                           const struct member_info *info)
{
    size_t n = info->subscription_count;
    Tern__Wire__MemberInfo *out = rpc_request_alloc(request, sizeof *out);
    Tern__Wire__Address *address = rpc_request_alloc(request, sizeof *address);
    Tern__Wire__Subscription *all = rpc_request_alloc(request, (n + 1) * sizeof *all);
    Tern__Wire__Subscription **pointers = rpc_request_alloc(request, (n + 1) * sizeof *pointers);
    if (!out || !address || !all || !pointers)
        return NULL;
    tern__wire__member_info__init(out);
    tern__wire__address__init(address);
    address->ip = frame_bytes((const char *)info->remote.ip, info->remote.v6 ? 16 : 4);
    address->port = info->remote.port;
    out->client_id = frame_bytes(info->client_id, strlen(info->client_id));
    out->address = address;
    out->language = (char *)(uintptr_t)info->language;
    out->version = (char *)(uintptr_t)info->version;
    out->last_heartbeat_age_ms = info->heartbeat_age_ms;
    for (size_t i = 0; i < n; i++) {
        const struct member_subscription *s = &info->subscriptions[i];
        tern__wire__subscription__init(&all[i]);
        all[i].topic = frame_bytes(s->topic, strlen(s->topic));
        all[i].expression = (char *)(uintptr_t)s->expression;
        all[i].expression_type = (char *)(uintptr_t)s->expression_type;
        all[i].version = s->version;
        pointers[i] = &all[i];
    }
    out->subscriptions = pointers;
    out->n_subscriptions = n;
    return out;
}

static void answer_connection(struct broker *broker, struct rpc_request *request,
                              const struct member_info *infos, size_t count)
{
    Tern__Wire__ConsumerConnectionResponse body = TERN__WIRE__CONSUMER_CONNECTION_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    body.members = rpc_request_alloc(request, count * sizeof body.members[0]);
    for (size_t i = 0; body.members && i < count; i++) {
        body.members[i] = member_info(request, &infos[i]);
        if (!body.members[i])
            body.members = NULL;
    }
    if (!body.members) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for %zu members", count);
        return;
    }
    body.n_members = count;
    body.type = (Tern__Wire__ConsumeType)infos[0].type;
    body.model = (Tern__Wire__MessageModel)infos[0].model;
    body.from = (Tern__Wire__ConsumeFromWhere)infos[0].from;
    response.body_case = TERN__WIRE__RESPONSE__BODY_CONSUMER_CONNECTION;
    response.consumer_connection = &body;
    reply_bounded(broker, request, &response, "the group has too many members to list");
}

void handle_consumer_connection(struct broker *broker, struct rpc_request *request)
{
    struct tern_error err = {.text = ""};
    struct member_info *infos = NULL;
    size_t count = 0;
    const char *group;
    enum tern_code code =
        take_group(request, &request->header->consumer_connection->group, &group, &err);
    if (!code)
        code = members_snapshot(broker->members, group, &infos, &count);
    if (!code && count == 0)
        code = error_set(&err, TERN_CONSUMER_NOT_ONLINE, "group %s has no member on %s", group,
                         broker->config.broker_name);
    if (code)
        rpc_reply_failure(request, code, &err);
    else
        answer_connection(broker, request, infos, count);
    free(infos);
}
