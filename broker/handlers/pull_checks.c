/*
 * The checks on a pull, in R-9's order, each with its own code and words: client id, broker, group,
 * topic and queue; then the expression, the pull's own or what the member's heartbeat said.
 *
 * Threads: the transport's. Failure modes: each refusal is answered here.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "broker/admin_lane.h"
#include "broker/ha/ha.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/pull_internal.h"

static bool check_group(struct pull *pull)
{
    struct broker *broker = pull->broker;
    const Tern__Wire__PullRequest *wanted = pull->request->header->pull;
    struct tern_error err = {.text = ""};

    int64_t permission =
        atomic_load_explicit(&broker->live.broker_permission, memory_order_relaxed);
    if (!(permission & PERM_READ)) {
        pull_refuse(pull, TERN_NO_PERMISSION,
                    "broker %s does not serve pulls (brokerPermission %" PRId64 ")",
                    broker->config.broker_name, permission);
        return false;
    }
    char text[256];
    if (!ha_readable(broker->ha, text, sizeof text)) {
        pull_refuse(pull, TERN_SERVICE_NOT_AVAILABLE, "%s", text);
        return false;
    }
    const char *name = (const char *)wanted->group.data;
    if (!groups_find(broker->groups, name, wanted->group.len, &pull->group_config)) {
        enum tern_code code = groups_find_or_create(broker->groups, name, wanted->group.len,
                                                    &pull->group_config, &err);
        if (code != TERN_OK) {
            pull_refuse(pull, code, "%s", error_text(&err, code));
            return false;
        }
        admin_lane_poke(broker->admin);
    }
    if (!pull->group_config.consume_enable) {
        pull_refuse(pull, TERN_NO_PERMISSION, "group %s may not consume (consumeEnable false)",
                    pull->group_config.name);
        return false;
    }
    return true;
}

static bool check_topic(struct pull *pull)
{
    const Tern__Wire__PullRequest *wanted = pull->request->header->pull;
    struct topic_config topic;
    struct tern_error err;

    enum tern_code code = topic_name_check(wanted->topic.data, wanted->topic.len, &err);
    if (code != TERN_OK) {
        pull_refuse(pull, code, "%s", err.text);
    } else if (!topics_find(pull->broker->topics, (const char *)wanted->topic.data,
                            wanted->topic.len, &topic)) {
        pull_refuse(pull, TERN_TOPIC_NOT_EXIST, "topic %.*s does not exist on %s",
                    (int)wanted->topic.len, (const char *)wanted->topic.data,
                    pull->broker->config.broker_name);
    } else if (!(topic.perm & PERM_READ)) {
        pull_refuse(pull, TERN_NO_PERMISSION, "topic %s is not readable (perm %" PRId32 ")",
                    topic.name, topic.perm);
    } else if (wanted->queue_id < 0 || wanted->queue_id >= topic.read_queues) {
        pull_refuse(pull, TERN_INVALID,
                    "queue_id %" PRId32 " of topic %s is out of range 0..%" PRId32,
                    wanted->queue_id, topic.name, topic.read_queues - 1);
    } else {
        return true;
    }
    return false;
}

static bool parse_expression(struct pull *pull, const char *type, const char *expression)
{
    struct tern_error err = {.text = ""};
    enum tern_code code = broker_compile(pull->broker, type, expression, &pull->subscription, &err);
    if (code != TERN_OK)
        pull_refuse(pull, code, "%s", error_text(&err, code));
    return code == TERN_OK;
}

/* May be left out by who never heartbeats; else it stands in logs and figures, so it must be sound.
 */
static bool check_client(struct pull *pull)
{
    const ProtobufCBinaryData *id = &pull->request->header->client_id;
    struct tern_error err;
    enum tern_code code = id->len ? client_id_check(id->data, id->len, &err) : TERN_OK;
    if (code != TERN_OK)
        pull_refuse(pull, code, "%s", err.text);
    return code == TERN_OK;
}

/* What is known here of the member's subscription against what the pull names. */
static bool check_known(struct pull *pull, const struct member_view *view)
{
    const Tern__Wire__PullRequest *wanted = pull->request->header->pull;
    bool by_sql = !strcmp(view->expression_type, subscription_type_name(SUBSCRIPTION_SQL92));
    if (!by_sql && !strcmp(wanted->expression_type, subscription_type_name(SUBSCRIPTION_SQL92)))
        pull_refuse(pull, TERN_FILTER_DATA_NOT_EXIST,
                    "no SQL92 expression of group %s for topic %s is known here: send a heartbeat "
                    "with it first",
                    pull->group, pull->topic);
    else if (view->version < wanted->subscription_version)
        pull_refuse(pull, by_sql ? TERN_FILTER_DATA_NOT_LATEST : TERN_SUBSCRIPTION_NOT_LATEST,
                    "%s version %" PRId64 " is known, %" PRId64
                    " was named: send a heartbeat first",
                    by_sql ? "SQL92 expression" : "subscription", view->version,
                    wanted->subscription_version);
    else
        return true;
    return false;
}

/* Whether the member said that it broadcasts, in a group that may not. */
static bool check_model(struct pull *pull)
{
    struct member_view view;
    char *expression = NULL;
    if (pull->group_config.consume_broadcast_enable)
        return true;
    enum member_lookup found = members_subscription(
        pull->broker->members, pull->group, pull->client_id, pull->topic, &view, &expression);
    free(expression);
    if (found == MEMBER_NO_GROUP || view.model != TERN__WIRE__MESSAGE_MODEL__BROADCASTING)
        return true;
    pull_refuse(pull, TERN_NO_PERMISSION, "group %s may not broadcast", pull->group);
    return false;
}

/* A pull without its expression relies on what the member's heartbeat said. */
static bool check_membership(struct pull *pull)
{
    struct member_view view;
    char *expression = NULL;
    bool ok = false;

    enum member_lookup found = members_subscription(
        pull->broker->members, pull->group, pull->client_id, pull->topic, &view, &expression);
    if (found == MEMBER_NO_GROUP)
        pull_refuse(pull, TERN_SUBSCRIPTION_NOT_EXIST,
                    "group %s has no member here: send a heartbeat "
                    "first",
                    pull->group);
    else if (view.model == TERN__WIRE__MESSAGE_MODEL__BROADCASTING &&
             !pull->group_config.consume_broadcast_enable)
        pull_refuse(pull, TERN_NO_PERMISSION, "group %s may not broadcast", pull->group);
    else if (found == MEMBER_NO_SUBSCRIPTION)
        pull_refuse(pull, TERN_SUBSCRIPTION_NOT_EXIST, "group %s does not subscribe to topic %s",
                    pull->group, pull->topic);
    else
        ok = check_known(pull, &view) &&
             parse_expression(pull, view.expression_type, expression ? expression : "*");
    free(expression);
    return ok;
}

/* A group that refuses differing members refuses their pulls, too. */
static bool check_alike(struct pull *pull)
{
    const Tern__Wire__PullRequest *wanted = pull->request->header->pull;
    struct member_subscription own = {.expression = "*", .normal = "*"};
    struct member_conflict conflict;
    struct tern_error err = {.text = ""};
    if (pull->group_config.consistency != CONSISTENCY_REFUSE)
        return true;
    enum subscription_type type = SUBSCRIPTION_TAG;
    if (pull->subscription) {
        type = subscription_type(pull->subscription);
        own.expression = wanted->expression;
        own.normal = subscription_normal(pull->subscription);
    }
    snprintf(own.topic, sizeof own.topic, "%s", pull->topic);
    snprintf(own.expression_type, sizeof own.expression_type, "%s", subscription_type_name(type));
    if (!members_pull_differs(pull->broker->members, pull->group, pull->client_id, &own, &conflict))
        return true;
    enum tern_code code = guard_refusal(pull->group, pull->client_id, &conflict, &err);
    pull_refuse(pull, code, "%s", err.text);
    return false;
}

bool pull_check_view(struct pull *pull)
{
    const Tern__Wire__PullRequest *wanted = pull->request->header->pull;
    struct tern_error err = {.text = ""};
    enum tern_code code = guard_view(pull->broker, pull->group, pull->client_id, &pull->view, &err);
    if (code && (wanted->has_commit || wanted->offset_version))
        pull_refuse(pull, code, "%s", err.text);
    else if ((wanted->offset_version ? wanted->offset_version->cohort : pull->view.cohort) !=
             pull->view.cohort)
        pull_refuse(pull, TERN_OFFSET_VERSION_OLD,
                    "group %s: what this client read last was another cohort's: ask where to begin",
                    pull->group);
    else
        return true; /* who names no progress may read without being known */
    return false;
}

bool pull_check_subscription(struct pull *pull)
{
    const Tern__Wire__PullRequest *wanted = pull->request->header->pull;
    if (wanted->class_filter) {
        pull_refuse(
            pull, TERN_NOT_SUPPORTED,
            "class filters are gone (RocketMQ dropped FilterServer): use an SQL92 expression");
        return false;
    }
    if (wanted->has_subscription)
        return check_model(pull) &&
               parse_expression(pull, wanted->expression_type, wanted->expression) &&
               check_alike(pull);
    return check_membership(pull);
}

bool pull_check_names(struct pull *pull)
{
    return check_client(pull) && check_group(pull) && check_topic(pull);
}
