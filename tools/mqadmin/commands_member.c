/*
 * Who is connected: producers by group, and what is known of a group's members without asking them
 * (their processes answer no questions here; a member's threads and queues are its own affair).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

/* ---- producers ---- */

static enum tern_code fetch_producers(struct invocation *invocation, const char *address,
                                      const char *group, struct rpc_call **call,
                                      struct tern_error *err)
{
    Tern__Wire__ProducerConnectionRequest body = TERN__WIRE__PRODUCER_CONNECTION_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    if (group)
        body.group = frame_bytes(group, strlen(group));
    request.body_case = TERN__WIRE__REQUEST__BODY_PRODUCER_CONNECTION;
    request.producer_connection = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_PRODUCER_CONNECTION,
                 call, err);
}

static void add_client(struct table *table, const Tern__Wire__MemberInfo *client)
{
    char address[HOST_TEXT_BYTES];
    wire_address(address, client->address);
    table_add(table,
              (json_t *[]){bytes_of(client->client_id.data, client->client_id.len),
                           text_of(address), text_of(client->language), text_of(client->version),
                           number_of(client->last_heartbeat_age_ms)});
}

/* Producers beat to every broker of their topics: the first that knows the group tells all. */
static int run_producer_connection(struct invocation *invocation)
{
    static const char *const columns[] = {"ClientId", "ClientAddr",   "Language",
                                          "Version",  "HeartbeatAge", NULL};
    static const char *const keys[] = {"clientId", "clientAddr",     "language",
                                       "version",  "heartbeatAgeMs", NULL};
    const char *group = option_value(invocation, "producerGroup");
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    struct table table;
    size_t count;
    enum tern_code code = admin_topic_brokers(invocation->admin, option_value(invocation, "topic"),
                                              false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    code = TERN_QUERY_NOT_FOUND;
    for (size_t i = 0; i < count && code != TERN_OK; i++) {
        struct rpc_call *call;
        code = fetch_producers(invocation, brokers[i].address, group, &call, &err);
        if (code == TERN_OK) {
            const Tern__Wire__ProducerConnectionResponse *found =
                call->response->producer_connection;
            table_init(&table, columns, keys);
            for (size_t j = 0; j < found->n_producers; j++)
                if (found->producers[j]->client)
                    add_client(&table, found->producers[j]->client);
            table_print(&table, invocation->json);
        }
        rpc_call_unref(call);
    }
    free(brokers);
    return code == TERN_OK ? EXIT_DONE : command_fail(invocation, code, &err);
}

static int run_producers(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    const char *address = option_value(invocation, "brokerAddr");
    struct rpc_call *call;
    if (!command_is_address(address))
        return command_usage(invocation, "-b: '%s' is not host:port", address);
    enum tern_code code = fetch_producers(invocation, address, NULL, &call, &err);
    json_t *groups = json_object();
    for (size_t i = 0; code == TERN_OK && i < call->response->producer_connection->n_producers;
         i++) {
        const Tern__Wire__ProducerInfo *p = call->response->producer_connection->producers[i];
        char group[GROUP_NAME_MAX + 1], id[512], at[HOST_TEXT_BYTES];
        if (!p->client)
            continue;
        wire_text(group, sizeof group, &p->group);
        wire_text(id, sizeof id, &p->client->client_id);
        wire_address(at, p->client->address);
        if (!invocation->json)
            printf("producer group (%s) instance : clientId=%s, remoteIP=%s, language=%s, "
                   "version=%s, lastUpdateTimestamp=%" PRId64 " ms ago\n",
                   group, id, at, p->client->language, p->client->version,
                   p->client->last_heartbeat_age_ms);
        json_t *list = json_object_get(groups, group);
        if (!list) {
            list = json_array();
            json_object_set_new(groups, group, list);
        }
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:o, s:o}", "clientId", text_of(id),
                                        "clientAddr", at, "language", text_of(p->client->language),
                                        "version", text_of(p->client->version)));
    }
    if (invocation->json)
        json_print(groups);
    else
        json_decref(groups);
    rpc_call_unref(call);
    return code == TERN_OK ? EXIT_DONE : command_fail(invocation, code, &err);
}

/* ---- a group's members ---- */

/* What one member owns at one broker, from who pulled each queue last. */
struct owned {
    int queues;
    int64_t lag;
    uint64_t delivered, filtered;
};

static void count_owned(const Tern__Wire__ConsumeStatsResponse *stats,
                        const ProtobufCBinaryData *client, struct owned *owned)
{
    for (size_t i = 0; i < stats->n_groups; i++)
        for (size_t j = 0; j < stats->groups[i]->n_queues; j++) {
            const Tern__Wire__GroupQueueStats *q = stats->groups[i]->queues[j];
            if (q->client_id.len != client->len ||
                (client->len && memcmp(q->client_id.data, client->data, client->len) != 0))
                continue;
            owned->queues++;
            owned->lag += q->broker_offset - (q->consumer_offset < 0 ? 0 : q->consumer_offset);
            owned->delivered += q->delivered;
            owned->filtered += q->filtered;
        }
}

static void add_members(struct invocation *invocation, struct table *table, const char *broker,
                        const Tern__Wire__ConsumerConnectionResponse *connection,
                        const Tern__Wire__ConsumeStatsResponse *stats)
{
    const char *only = option_value(invocation, "clientId");
    for (size_t i = 0; i < connection->n_members; i++) {
        const Tern__Wire__MemberInfo *m = connection->members[i];
        struct owned owned = {.queues = 0};
        if (only && !wire_is(&m->client_id, only))
            continue;
        if (stats)
            count_owned(stats, &m->client_id, &owned);
        table_add(table,
                  (json_t *[]){text_of(broker), bytes_of(m->client_id.data, m->client_id.len),
                               text_of(m->version), number_of(m->last_heartbeat_age_ms),
                               number_of((int64_t)m->n_subscriptions), number_of(owned.queues),
                               number_of(owned.lag), number_of((int64_t)owned.delivered),
                               number_of((int64_t)owned.filtered)});
    }
}

/* Whether two members' subscriptions are the same. */
static bool same_subscriptions(const Tern__Wire__MemberInfo *a, const Tern__Wire__MemberInfo *b)
{
    if (a->n_subscriptions != b->n_subscriptions)
        return false;
    for (size_t i = 0; i < a->n_subscriptions; i++) { /* both are sorted by topic */
        const Tern__Wire__Subscription *x = a->subscriptions[i], *y = b->subscriptions[i];
        if (x->topic.len != y->topic.len || memcmp(x->topic.data, y->topic.data, x->topic.len) ||
            strcmp(x->expression, y->expression) != 0 ||
            strcmp(x->expression_type, y->expression_type) != 0)
            return false;
    }
    return true;
}

/* RocketMQ's verdict; false: they disagree. */
static bool members_agree(const Tern__Wire__ConsumerConnectionResponse *connection)
{
    for (size_t i = 1; i < connection->n_members; i++)
        if (!same_subscriptions(connection->members[0], connection->members[i]))
            return false;
    return true;
}

static int run_consumer_status(struct invocation *invocation)
{
    static const char *const columns[] = {"Broker Name", "ClientId", "Version", "HeartbeatAge",
                                          "Topics",      "Queues",   "Lag",     "Delivered",
                                          "Filtered",    NULL};
    static const char *const keys[] = {"brokerName", "clientId", "version", "heartbeatAgeMs",
                                       "topics",     "queues",   "lag",     "delivered",
                                       "filtered",   NULL};
    const char *group = option_value(invocation, "consumerGroup");
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    struct table table;
    size_t count, online = 0;
    bool agree = true;
    int status = EXIT_DONE;
    if (!command_targets(invocation, false, &brokers, &count, &status))
        return status;
    count = command_keep_first(invocation, brokers, count);
    table_init(&table, columns, keys);
    for (size_t i = 0; i < count; i++) {
        struct rpc_call *connection, *stats = NULL;
        enum tern_code code =
            fetch_members(invocation, brokers[i].address, group, &connection, &err);
        if (code == TERN_OK) {
            enum tern_code known =
                fetch_progress(invocation, brokers[i].address, group, NULL, &stats, &err);
            add_members(invocation, &table, brokers[i].name,
                        connection->response->consumer_connection,
                        known == TERN_OK ? stats->response->consume_stats : NULL);
            agree &= members_agree(connection->response->consumer_connection);
            online++;
        } else if (code != TERN_CONSUMER_NOT_ONLINE) {
            status = command_fail(invocation, code, &err);
        }
        rpc_call_unref(connection);
        rpc_call_unref(stats);
    }
    free(brokers);
    table_print(&table, invocation->json);
    if (!online && status == EXIT_DONE) {
        error_set(&err, TERN_CONSUMER_NOT_ONLINE, "group %s has no member", group);
        return command_fail(invocation, TERN_CONSUMER_NOT_ONLINE, &err);
    }
    if (online && !agree) {
        fprintf(stderr,
                "mqadmin consumerStatus: members of group %s subscribe differently: mqadmin "
                "consumerConnection -g %s shows how\n",
                group, group);
        status = EXIT_NO;
    } else if (online && !invocation->json) {
        printf("\nSame subscription in the same group of consumer\n");
    }
    return status;
}

const struct command member_commands[] = {
    {.name = "producerConnection",
     .help = "clients of a producer group",
     .example = "mqadmin producerConnection -g orders-writer -t Orders",
     .options = {{'g', "producerGroup", "GROUP", true, "the producer group"},
                 {'t', "topic", "TOPIC", true, "a topic that it sends to"}},
     .run = run_producer_connection},
    {.name = "producer",
     .help = "all producers that a broker knows",
     .example = "mqadmin producer -b 127.0.0.1:10911",
     .options = {{'b', "brokerAddr", "HOST:PORT", true, "the broker"}},
     .run = run_producers},
    {.name = "consumerStatus",
     .help = "what brokers know of each member: heartbeat, queues it pulled last, lag",
     .example = "mqadmin consumerStatus -g billing",
     .options = {{'g', "consumerGroup", "GROUP", true, "the group"},
                 {'i', "clientId", "ID", false, "only this member"},
                 {'b', "brokerAddr", "HOST:PORT", false, "ask only this broker"},
                 {'c', "clusterName", "CLUSTER", false, "ask this cluster's brokers"}},
     .run = run_consumer_status},
};
const size_t member_command_count = sizeof member_commands / sizeof member_commands[0];
