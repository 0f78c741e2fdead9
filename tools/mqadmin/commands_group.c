/* Subscription groups: progress, members, settings. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"
#include "tools/mqadmin/subscription_check.h"

/* ---- progress ---- */

static int64_t lag_of(const Tern__Wire__GroupQueueStats *q)
{
    return q->broker_offset - (q->consumer_offset < 0 ? 0 : q->consumer_offset);
}

/* What each member got of a queue (F-6), rows of their own. */
static void add_member_rows(struct table *table, const char *broker,
                            const Tern__Wire__GroupQueueStats *q)
{
    for (size_t i = 0; i < q->n_members; i++) {
        const Tern__Wire__MemberPulls *m = q->members[i];
        table_add(table, (json_t *[]){
                             bytes_of(q->topic.data, q->topic.len), text_of(broker),
                             number_of(q->queue_id), bytes_of(m->client_id.data, m->client_id.len),
                             text_of(m->expression), number_of((int64_t)m->scanned),
                             number_of((int64_t)m->delivered), number_of((int64_t)m->filtered)});
    }
}

static void members_table_init(struct table *table)
{
    static const char *const columns[] = {"Topic",     "Broker Name", "QID",
                                          "Client",    "Expression",  "Scanned",
                                          "Delivered", "Filtered",    NULL};
    static const char *const keys[] = {"topic",     "brokerName", "queueId",
                                       "clientId",  "expression", "scanned",
                                       "delivered", "filtered",   NULL};
    table_init(table, columns, keys);
}

/* Scripts get a queue's members within its row; people a second table of the queues that several
 * have pulled. */
static void add_members(struct table *rows, struct table *shared, bool json, const char *broker,
                        const Tern__Wire__GroupQueueStats *q)
{
    struct table of_queue;
    if (!json && q->n_members > 1)
        add_member_rows(shared, broker, q);
    if (!json)
        return;
    members_table_init(&of_queue);
    add_member_rows(&of_queue, broker, q);
    json_object_set_new(json_array_get(rows->rows, json_array_size(rows->rows) - 1), "members",
                        of_queue.rows);
}

static void print_shared(struct table *shared)
{
    if (json_array_size(shared->rows) == 0) {
        json_decref(shared->rows);
        return;
    }
    printf("\nBelow is what each member got of queues that several have pulled:\n");
    table_print(shared, false);
}

/* Of an isolated group each cohort has its own progress: then the name is not the group's. */
static bool is_cohort_of(const Tern__Wire__GroupStats *stats, const char *group)
{
    return stats->group.len != strlen(group);
}

static bool has_cohorts(const Tern__Wire__ConsumeStatsResponse *stats, const char *group)
{
    for (size_t i = 0; i < stats->n_groups; i++)
        if (is_cohort_of(stats->groups[i], group))
            return true;
    return false;
}

/* total NULL: not counted, an isolated group's own rows are only where new cohorts begin. */
static void add_queue_rows(struct table *table, struct table *shared,
                           const struct invocation *invocation, const char *broker,
                           const char *asked, const Tern__Wire__GroupStats *group, int64_t *total)
{
    bool is_cohort = is_cohort_of(group, asked);
    for (size_t i = 0; i < group->n_queues; i++) {
        const Tern__Wire__GroupQueueStats *q = group->queues[i];
        char last[32], oldest[32];
        time_text(last, q->last_ms);
        time_text(oldest, q->oldest_waiting_ms);
        if (total)
            *total += lag_of(q);
        table_add(
            table,
            (json_t *[]){bytes_of(q->topic.data, q->topic.len), text_of(broker),
                         number_of(q->queue_id), number_of(q->broker_offset),
                         number_of(q->consumer_offset), number_of(lag_of(q)), text_of(last),
                         text_of(oldest), bytes_of(q->client_id.data, q->client_id.len),
                         text_of(q->expression), number_of((int64_t)q->scanned),
                         number_of((int64_t)q->delivered), number_of((int64_t)q->filtered),
                         is_cohort ? bytes_of(group->group.data, group->group.len) : text_of("-")});
        add_members(table, shared, invocation->json, broker, q);
    }
}

static int progress_of_group(struct invocation *invocation, const char *group,
                             const struct admin_broker *brokers, size_t count)
{
    static const char *const columns[] = {
        "Topic",   "Broker Name", "QID",           "Broker Offset", "Consumer Offset",
        "Diff",    "LastTime",    "OldestWaiting", "Client",        "Expression",
        "Scanned", "Delivered",   "Filtered",      "Cohort",        NULL};
    static const char *const keys[] = {"topic",          "brokerName", "queueId",  "brokerOffset",
                                       "consumerOffset", "diff",       "lastTime", "oldestWaiting",
                                       "clientId",       "expression", "scanned",  "delivered",
                                       "filtered",       "cohort",     NULL};
    struct table table, shared;
    int64_t total = 0;
    double tps = 0;
    int status = EXIT_DONE;
    bool found = false, broadcasts = false;
    table_init(&table, columns, keys);
    members_table_init(&shared);
    for (size_t i = 0; i < count; i++) {
        struct tern_error err = {.text = ""};
        struct rpc_call *call = NULL;
        enum tern_code code = fetch_progress(invocation, brokers[i].address, group,
                                             option_value(invocation, "topic"), &call, &err);
        if (code != TERN_OK && code != TERN_GROUP_NOT_EXIST && code != TERN_QUERY_NOT_FOUND)
            status = command_fail(invocation, code, &err);
        for (size_t j = 0; code == TERN_OK && j < call->response->consume_stats->n_groups; j++) {
            const Tern__Wire__GroupStats *stats = call->response->consume_stats->groups[j];
            bool counts =
                is_cohort_of(stats, group) || !has_cohorts(call->response->consume_stats, group);
            add_queue_rows(&table, &shared, invocation, brokers[i].name, group, stats,
                           counts ? &total : NULL);
            tps += stats->consume_tps;
            found = true;
            broadcasts |=
                stats->members > 0 && stats->model == TERN__WIRE__MESSAGE_MODEL__BROADCASTING;
        }
        rpc_call_unref(call);
    }
    table_print(&table, invocation->json);
    print_shared(&shared);
    if (!invocation->json)
        printf("\nConsume TPS: %.2f\nDiff Total: %" PRId64 "\n", tps, total);
    if (broadcasts)
        fprintf(
            stderr,
            "mqadmin consumerProgress: group %s broadcasts: each member keeps its progress in a "
            "file of its own, brokers know none of it\n",
            group);
    if (!found && status == EXIT_DONE) {
        fprintf(stderr, "mqadmin consumerProgress: group %s has no member and no progress\n",
                group);
        status = EXIT_NO;
    }
    return status;
}

static int progress_of_all(struct invocation *invocation, const struct admin_broker *brokers,
                           size_t count)
{
    static const char *const columns[] = {"Group", "Broker Name", "Count",      "Type",
                                          "Model", "TPS",         "Diff Total", NULL};
    static const char *const keys[] = {"group", "brokerName", "count",     "type",
                                       "model", "tps",        "diffTotal", NULL};
    struct table table;
    int status = EXIT_DONE;
    table_init(&table, columns, keys);
    for (size_t i = 0; i < count; i++) {
        struct tern_error err = {.text = ""};
        struct rpc_call *call = NULL;
        enum tern_code code =
            fetch_progress(invocation, brokers[i].address, NULL, NULL, &call, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        for (size_t j = 0; code == TERN_OK && j < call->response->consume_stats->n_groups; j++) {
            const Tern__Wire__GroupStats *stats = call->response->consume_stats->groups[j];
            int64_t total = 0;
            for (size_t k = 0; k < stats->n_queues; k++)
                total += lag_of(stats->queues[k]);
            table_add(&table,
                      (json_t *[]){bytes_of(stats->group.data, stats->group.len),
                                   text_of(brokers[i].name), number_of(stats->members),
                                   text_of(stats->type == TERN__WIRE__CONSUME_TYPE__CONSUME_ACTIVELY
                                               ? "PULL"
                                               : "PUSH"),
                                   text_of(stats->model == TERN__WIRE__MESSAGE_MODEL__BROADCASTING
                                               ? "BROADCASTING"
                                               : "CLUSTERING"),
                                   json_real(stats->consume_tps), number_of(total)});
        }
        rpc_call_unref(call);
    }
    table_print(&table, invocation->json);
    return status;
}

static int run_progress(struct invocation *invocation)
{
    const char *group = option_value(invocation, "groupName");
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    enum tern_code code = admin_brokers(invocation->admin, NULL, false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    count = command_keep_first(invocation, brokers, count);
    int status = group ? progress_of_group(invocation, group, brokers, count)
                       : progress_of_all(invocation, brokers, count);
    free(brokers);
    return status;
}

/* ---- members ---- */

static json_t *subscriptions_json(const Tern__Wire__MemberInfo *member)
{
    json_t *list = json_array();
    for (size_t i = 0; i < member->n_subscriptions; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:s}", "topic",
                                        bytes_of(member->subscriptions[i]->topic.data,
                                                 member->subscriptions[i]->topic.len),
                                        "expression", member->subscriptions[i]->expression, "type",
                                        member->subscriptions[i]->expression_type[0]
                                            ? member->subscriptions[i]->expression_type
                                            : "TAG"));
    return list;
}

static void address_text(char out[HOST_TEXT_BYTES], const Tern__Wire__Address *address)
{
    struct host host = {.v6 = false};
    snprintf(out, HOST_TEXT_BYTES, "-");
    if (!address || (address->ip.len != 4 && address->ip.len != 16))
        return;
    host.v6 = address->ip.len == 16;
    memcpy(host.ip, address->ip.data, address->ip.len);
    host.port = address->port;
    host_format(out, &host);
}

static void print_members(const struct invocation *invocation,
                          const Tern__Wire__ConsumerConnectionResponse *connection)
{
    static const char *const columns[] = {"ClientId", "ClientAddr", "Language", "Version", NULL};
    static const char *const keys[] = {"clientId", "clientAddr", "language", "version", NULL};
    struct table table;
    table_init(&table, columns, keys);
    for (size_t i = 0; i < connection->n_members; i++) {
        const Tern__Wire__MemberInfo *m = connection->members[i];
        char address[HOST_TEXT_BYTES];
        address_text(address, m->address);
        table_add(&table,
                  (json_t *[]){bytes_of(m->client_id.data, m->client_id.len), text_of(address),
                               text_of(m->language), text_of(m->version)});
        if (invocation->json)
            json_object_set_new(json_array_get(table.rows, i), "subscriptions",
                                subscriptions_json(m));
    }
    table_print(&table, invocation->json);
    if (invocation->json)
        return;
    printf("\nBelow is subscription:\n");
    for (size_t i = 0; i < connection->n_members; i++)
        for (size_t j = 0; j < connection->members[i]->n_subscriptions; j++) {
            const Tern__Wire__Subscription *s = connection->members[i]->subscriptions[j];
            printf("%-36.*s %-30.*s %s\n", (int)connection->members[i]->client_id.len,
                   (const char *)connection->members[i]->client_id.data, (int)s->topic.len,
                   (const char *)s->topic.data, s->expression);
        }
    if (subscriptions_differ(connection))
        printf("\nThe members subscribe differently: see mqadmin subscriptionCheck\n");
    printf("\nConsumeType: %s\nMessageModel: %s\nConsumeFromWhere: %s\n",
           connection->type ? "CONSUME_ACTIVELY" : "CONSUME_PASSIVELY",
           connection->model ? "BROADCASTING" : "CLUSTERING",
           connection->from == TERN__WIRE__CONSUME_FROM_WHERE__CONSUME_FROM_LAST_OFFSET
               ? "CONSUME_FROM_LAST_OFFSET"
           : connection->from == TERN__WIRE__CONSUME_FROM_WHERE__CONSUME_FROM_FIRST_OFFSET
               ? "CONSUME_FROM_FIRST_OFFSET"
               : "CONSUME_FROM_TIMESTAMP");
}

/* Members beat to every broker of their topics: the first broker that knows the group tells all. */
static int run_connection(struct invocation *invocation)
{
    const char *group = option_value(invocation, "consumerGroup");
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;
    if (!command_targets(invocation, false, &brokers, &count, &status))
        return status;
    enum tern_code code = TERN_CONSUMER_NOT_ONLINE;
    for (size_t i = 0; i < count && code != TERN_OK; i++) {
        Tern__Wire__ConsumerConnectionRequest body = TERN__WIRE__CONSUMER_CONNECTION_REQUEST__INIT;
        TernRequest request = TERN__WIRE__REQUEST__INIT;
        struct rpc_call *call;
        body.group = frame_bytes(group, strlen(group));
        request.body_case = TERN__WIRE__REQUEST__BODY_CONSUMER_CONNECTION;
        request.consumer_connection = &body;
        code = admin_call_broker(invocation->admin, brokers[i].address, &request, NULL, 0, &call,
                                 &err);
        if (code == TERN_OK &&
            call->response->body_case == TERN__WIRE__RESPONSE__BODY_CONSUMER_CONNECTION)
            print_members(invocation, call->response->consumer_connection);
        rpc_call_unref(call);
    }
    free(brokers);
    return code == TERN_OK ? EXIT_DONE : command_fail(invocation, code, &err);
}

/* ---- settings ---- */

static const char *const consistencies[] = {"warn", "refuse", "isolate"};
enum { CONSISTENCIES = sizeof consistencies / sizeof consistencies[0] };

static const char *consistency_text(int32_t consistency)
{
    return consistency >= 0 && consistency < CONSISTENCIES ? consistencies[consistency] : "unknown";
}

/* warn, refuse or isolate as the wire's number; false: said on stderr. */
static bool option_consistency(const struct invocation *invocation, int32_t *out)
{
    const char *text = option_value(invocation, "subscriptionConsistency");
    for (*out = 0; *out < CONSISTENCIES; ++*out)
        if (!strcmp(text ? text : consistencies[0], consistencies[*out]))
            return true;
    command_usage(invocation, "--subscriptionConsistency: '%s' is none of warn, refuse, isolate",
                  text);
    return false;
}

static bool fill_group(const struct invocation *invocation, Tern__Wire__GroupConfig *config)
{
    bool consume, from_min, broadcast, notify;
    int64_t queues, retries, broker, slow;
    const char *name = option_value(invocation, "groupName");
    if (!option_bool(invocation, "consumeEnable", true, &consume) ||
        !option_bool(invocation, "consumeFromMinEnable", true, &from_min) ||
        !option_bool(invocation, "consumeBroadcastEnable", true, &broadcast) ||
        !option_bool(invocation, "notifyConsumerIdsChanged", true, &notify) ||
        !option_number(invocation, "retryQueueNums", 0, 1024, 1, &queues) ||
        !option_number(invocation, "retryMaxTimes", 0, 10000, 16, &retries) ||
        !option_number(invocation, "brokerId", 0, 255, 0, &broker) ||
        !option_number(invocation, "whichBrokerWhenConsumeSlowly", 0, 255, 1, &slow))
        return false;
    int32_t consistency;
    if (!option_consistency(invocation, &consistency))
        return false;
    tern__wire__group_config__init(config);
    config->subscription_consistency = consistency;
    config->name = frame_bytes(name, strlen(name));
    config->consume_enable = consume;
    config->consume_from_min_enable = from_min;
    config->consume_broadcast_enable = broadcast;
    config->notify_members_changed = notify;
    config->retry_queues = (int32_t)queues;
    config->retry_max_times = (int32_t)retries;
    config->broker_id = broker;
    config->which_broker_when_consume_slowly = slow;
    return true;
}

/*
 * A change of something else must not make an isolated group lose messages: without the option a
 * group keeps its subscriptionConsistency. A group that is not there yet begins with the default.
 */
static enum tern_code keep_consistency(struct invocation *invocation, const char *address,
                                       Tern__Wire__GroupConfig *config, struct tern_error *err)
{
    struct rpc_call *call;
    if (option_value(invocation, "subscriptionConsistency"))
        return TERN_OK;
    enum tern_code code = fetch_groups(invocation, address, &call, err);
    config->subscription_consistency = 0;
    for (size_t i = 0; code == TERN_OK && i < call->response->list_groups->n_groups; i++) {
        const Tern__Wire__GroupConfig *held = call->response->list_groups->groups[i];
        if (wire_is(&held->name, option_value(invocation, "groupName")))
            config->subscription_consistency = held->subscription_consistency;
    }
    rpc_call_unref(call);
    return code;
}

static const char *bool_text(protobuf_c_boolean value)
{
    return value ? "true" : "false";
}

/* RocketMQ's text of what was set. */
static void print_group_config(const Tern__Wire__GroupConfig *g)
{
    printf("SubscriptionGroupConfig [groupName=%.*s, consumeEnable=%s, consumeFromMinEnable=%s, "
           "consumeBroadcastEnable=%s, retryQueueNums=%" PRId32 ", retryMaxTimes=%" PRId32
           ", brokerId=%" PRId64 ", whichBrokerWhenConsumeSlowly=%" PRId64
           ", notifyConsumerIdsChangedEnable=%s, subscriptionConsistency=%s]\n",
           (int)g->name.len, (const char *)g->name.data, bool_text(g->consume_enable),
           bool_text(g->consume_from_min_enable), bool_text(g->consume_broadcast_enable),
           g->retry_queues, g->retry_max_times, g->broker_id, g->which_broker_when_consume_slowly,
           bool_text(g->notify_members_changed), consistency_text(g->subscription_consistency));
}

static int run_update_group(struct invocation *invocation)
{
    Tern__Wire__GroupConfig config;
    struct admin_broker *brokers;
    size_t count, made = 0;
    int status = EXIT_DONE;
    if (!fill_group(invocation, &config))
        return EXIT_USAGE;
    if (!command_targets(invocation, true, &brokers, &count, &status))
        return status;
    for (size_t i = 0; i < count; i++) {
        Tern__Wire__UpdateGroupRequest body = TERN__WIRE__UPDATE_GROUP_REQUEST__INIT;
        TernRequest request = TERN__WIRE__REQUEST__INIT;
        struct tern_error err = {.text = ""};
        body.group = &config;
        request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_GROUP;
        request.update_group = &body;
        enum tern_code code = keep_consistency(invocation, brokers[i].address, &config, &err);
        if (code == TERN_OK)
            code = admin_call_broker(invocation->admin, brokers[i].address, &request, NULL, 0, NULL,
                                     &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        else
            print_done(invocation->json, "create subscription group to %s success.",
                       brokers[i].address);
        made += code == TERN_OK;
    }
    if (made > 0 && !invocation->json)
        print_group_config(&config);
    free(brokers);
    return status;
}

/* With -c, as in RocketMQ: %RETRY%group and %DLQ%group go, too, from the brokers and the routes. */
static int delete_group_topics(struct invocation *invocation, const char *group,
                               const struct admin_broker *masters, size_t count)
{
    static const char *const prefixes[] = {"%RETRY%", "%DLQ%"};
    const char *cluster = option_value(invocation, "clusterName");
    int status = EXIT_DONE;
    for (size_t p = 0; p < sizeof prefixes / sizeof prefixes[0]; p++) {
        char topic[512];
        bool deleted = false;
        snprintf(topic, sizeof topic, "%s%s", prefixes[p], group);
        for (size_t i = 0; i < count; i++) {
            struct tern_error err = {.text = ""};
            enum tern_code code =
                admin_delete_topic(invocation->admin, masters[i].address, topic, &err);
            deleted |= code == TERN_OK;
            if (code != TERN_OK && code != TERN_TOPIC_NOT_EXIST)
                status = command_fail(invocation, code, &err);
        }
        struct tern_error err = {.text = ""};
        enum tern_code code = admin_delete_topic_route(invocation->admin, topic, cluster, &err);
        if (code != TERN_OK && code != TERN_TOPIC_NOT_EXIST)
            status = command_fail(invocation, code, &err);
        if (deleted && !invocation->json)
            printf("delete topic [%s] from cluster [%s] success.\n", topic, cluster);
    }
    return status;
}

static enum tern_code delete_group_at(struct invocation *invocation, const char *address,
                                      const char *group, bool remove_offsets,
                                      struct tern_error *err)
{
    Tern__Wire__DeleteGroupRequest body = TERN__WIRE__DELETE_GROUP_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.group = frame_bytes(group, strlen(group));
    body.remove_offsets = remove_offsets;
    request.body_case = TERN__WIRE__REQUEST__BODY_DELETE_GROUP;
    request.delete_group = &body;
    return admin_call_broker(invocation->admin, address, &request, NULL, 0, NULL, err);
}

/* A group is where its members were: masters that never heard of it have nothing to delete. */
static int run_delete_group(struct invocation *invocation)
{
    const char *group = option_value(invocation, "groupName");
    struct admin_broker *brokers;
    bool remove_offsets;
    size_t count;
    int status = EXIT_DONE;
    if (!option_bool(invocation, "removeOffset", false, &remove_offsets))
        return EXIT_USAGE;
    if (!command_targets(invocation, true, &brokers, &count, &status))
        return status;
    struct tern_error unknown = {.text = ""};
    size_t deleted = 0;
    for (size_t i = 0; i < count; i++) {
        struct tern_error err = {.text = ""};
        enum tern_code code =
            delete_group_at(invocation, brokers[i].address, group, remove_offsets, &err);
        deleted += code == TERN_OK;
        if (code == TERN_OK)
            print_done(invocation->json, "delete subscription group [%s] from broker [%s] success.",
                       group, brokers[i].address);
        else if (code == TERN_GROUP_NOT_EXIST)
            unknown = err;
        else
            status = command_fail(invocation, code, &err);
    }
    if (deleted == 0 && status == EXIT_DONE && unknown.text[0])
        status = command_fail(invocation, TERN_GROUP_NOT_EXIST, &unknown);
    if (option_given(invocation, "clusterName")) {
        int topics = delete_group_topics(invocation, group, brokers, count);
        status = topics != EXIT_DONE ? topics : status;
    }
    free(brokers);
    return status;
}

#define BROKER                                                                                     \
    {                                                                                              \
        'b', "brokerAddr", "HOST:PORT", false, "one broker"                                        \
    }
#define CLUSTER                                                                                    \
    {                                                                                              \
        'c', "clusterName", "CLUSTER", false, "all masters of the cluster"                         \
    }
#define GROUP                                                                                      \
    {                                                                                              \
        'g', "groupName", "GROUP", true, "the group"                                               \
    }

const struct command group_commands[] = {
    {.name = "consumerProgress",
     .help = "progress of groups against their queues, in messages",
     .example = "mqadmin consumerProgress -g billing",
     .options = {{'g', "groupName", "GROUP", false, "one group, queue by queue"},
                 {'t', "topic", "TOPIC", false, "only this topic"},
                 {'s', "showClientIP", "BOOL", false, "accepted; clients are shown always"}},
     .run = run_progress},
    {.name = "consumerConnection",
     .help = "members of a group and what each subscribes to",
     .example = "mqadmin consumerConnection -g billing",
     .options = {{'g', "consumerGroup", "GROUP", true, "the group"},
                 BROKER,
                 {'c', "clusterName", "CLUSTER", false, "ask this cluster's brokers"}},
     .run = run_connection},
    {.name = "updateSubGroup",
     .help = "create or change a subscription group",
     .example = "mqadmin updateSubGroup -c DefaultCluster -g billing -r 5",
     .options = {GROUP,
                 BROKER,
                 CLUSTER,
                 {'s', "consumeEnable", "BOOL", false, "may it consume (true)"},
                 {'m', "consumeFromMinEnable", "BOOL", false, "may it begin at the minimum (true)"},
                 {'d', "consumeBroadcastEnable", "BOOL", false, "may it broadcast (true)"},
                 {'q', "retryQueueNums", "N", false, "queues of its retry topic (1)"},
                 {'r', "retryMaxTimes", "N", false, "retries before the dead letter topic (16)"},
                 {'i', "brokerId", "ID", false, "where to pull normally (0)"},
                 {'w', "whichBrokerWhenConsumeSlowly", "ID", false,
                  "where to pull when behind (1)"},
                 {'a', "notifyConsumerIdsChanged", "BOOL", false, "tell members of changes (true)"},
                 {0, "subscriptionConsistency", "HOW", false,
                  "members that subscribe differently: warn, refuse, isolate (kept; warn for a new "
                  "group)"}},
     .run = run_update_group,
     .one_of = "bc"},
    {.name = "deleteSubGroup",
     .help = "delete a subscription group; with -c its %RETRY% and %DLQ% topics, too",
     .example = "mqadmin deleteSubGroup -c DefaultCluster -g billing -r true",
     .options = {GROUP,
                 BROKER,
                 CLUSTER,
                 {'r', "removeOffset", "BOOL", false, "forget its progress too (false)"}},
     .run = run_delete_group,
     .one_of = "bc"},
};
const size_t group_command_count = sizeof group_commands / sizeof group_commands[0];
