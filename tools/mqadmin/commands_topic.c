/* Topics: create, delete, list, route, status. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqadmin/fetch.h"
#include "tools/mqadmin/order_conf_edit.h"

static void perm_text(char out[4], int32_t perm)
{
    out[0] = perm & 4 ? 'R' : '-';
    out[1] = perm & 2 ? 'W' : '-';
    out[2] = perm & 1 ? 'X' : '-';
    out[3] = 0;
}

/* Brokers given by address have no name yet. */
static enum tern_code name_brokers(struct invocation *invocation, struct admin_broker *brokers,
                                   size_t count, struct tern_error *err)
{
    struct admin_broker *all;
    size_t all_count;
    enum tern_code code = admin_brokers(invocation->admin, NULL, false, &all, &all_count, err);
    if (code != TERN_OK)
        return code;
    for (size_t i = 0; i < count && code == TERN_OK; i++) {
        size_t k = 0;
        while (k < all_count && strcmp(all[k].address, brokers[i].address) != 0)
            k++;
        if (k == all_count)
            code = error_set(err, TERN_NOT_FOUND, "no nameserver lists a broker at %s",
                             brokers[i].address);
        else
            memcpy(brokers[i].name, all[k].name, sizeof all[k].name);
    }
    free(all);
    return code;
}

/*
 * The topic's order configuration names these brokers; a whole cluster's takes the place of what
 * was there. Said on stdout.
 */
static int make_ordered(struct invocation *invocation, const char *topic,
                        struct admin_broker *brokers, size_t count, int64_t queues)
{
    bool cluster = option_given(invocation, "clusterName");
    struct tern_error err = {.text = ""};
    char *before = NULL;
    char *conf = NULL;
    const char **names = calloc(count + 1, sizeof *names);
    enum tern_code code = names ? TERN_OK : error_set(&err, TERN_NO_MEMORY, "topic %s", topic);
    if (code == TERN_OK && !cluster)
        code = name_brokers(invocation, brokers, count, &err);
    if (code == TERN_OK && !cluster) {
        code = order_conf_get(invocation->admin, topic, &before, &err);
        code = code == TERN_QUERY_NOT_FOUND ? TERN_OK : code;
    }
    for (size_t i = 0; names && i < count; i++)
        names[i] = brokers[i].name;
    if (code == TERN_OK && !(conf = order_conf_merge(before, names, count, queues)))
        code = error_set(&err, TERN_LIMIT, "topic %s: the order configuration would be too long",
                         topic);
    if (code == TERN_OK)
        code = order_conf_put(invocation->admin, topic, conf, &err);
    int status = code == TERN_OK ? EXIT_DONE : command_fail(invocation, code, &err);
    if (code == TERN_OK && !invocation->json)
        printf("set %s orderConf. isOrder=true, orderConf=[%s]\n", cluster ? "cluster" : "broker",
               conf);
    free(names);
    free(before);
    free(conf);
    return status;
}

static int run_update_topic(struct invocation *invocation)
{
    const char *topic = option_value(invocation, "topic");
    bool order;
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    int64_t read_queues, write_queues, perm;
    size_t count, made = 0;
    int status = EXIT_DONE;

    if (!option_number(invocation, "readQueueNums", 1, 65536, 8, &read_queues) ||
        !option_number(invocation, "writeQueueNums", 1, 65536, 8, &write_queues) ||
        !option_number(invocation, "perm", 0, 7, 6, &perm) ||
        !option_bool(invocation, "order", false, &order))
        return EXIT_USAGE;
    if (!command_targets(invocation, true, &brokers, &count, &status))
        return status;
    json_t *results = json_array();
    for (size_t i = 0; i < count; i++) {
        enum tern_code code =
            admin_update_topic(invocation->admin, brokers[i].address, topic, (int32_t)read_queues,
                               (int32_t)write_queues, (int32_t)perm, order, &err);
        json_array_append_new(results, json_pack("{s:s, s:s, s:s}", "address", brokers[i].address,
                                                 "result", tern_code_name(code), "text",
                                                 code == TERN_OK ? "" : err.text));
        made += code == TERN_OK;
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        else if (!invocation->json)
            printf("create topic to %s success.\n", brokers[i].address);
    }
    /* A part of the brokers would be a list without the others: all or nothing. */
    if (order && made > 0 && status == EXIT_DONE)
        status = make_ordered(invocation, topic, brokers, count, write_queues);
    if (made) {
        enum tern_code code = admin_wait_route(invocation->admin, topic, made, 5000, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
    }
    if (invocation->json) {
        json_print(results);
    } else {
        char text[4];
        perm_text(text, (int32_t)perm);
        if (made)
            printf("TopicConfig [topicName=%s, readQueueNums=%" PRId64 ", writeQueueNums=%" PRId64
                   ", perm=%s, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=%s]\n",
                   topic, read_queues, write_queues, text, order ? "true" : "false");
        json_decref(results);
    }
    free(brokers);
    return status;
}

enum { PLACES_BYTES = 400 };

struct deletion {
    struct invocation *invocation;
    const char *topic, *cluster;
    struct admin_broker *masters;
    enum tern_code *codes; /* of the masters */
    size_t count, deleted;
    char undone[PLACES_BYTES]; /* names of sets where it was not deleted, as many as fit */
    struct tern_error absent;  /* what a master that does not have it said */
};

static void add_undone(struct deletion *deletion, const char *set)
{
    size_t used = strlen(deletion->undone);
    snprintf(deletion->undone + used, PLACES_BYTES - used, "%s%s", used ? ", " : "", set);
}

/* The sets that have no master are told, the masters stay. */
static void keep_masters(struct deletion *deletion, int *status)
{
    const struct admin_broker *all = deletion->masters;
    for (size_t i = 0; i < deletion->count; i++)
        if (all[i].id != 0 && (i == 0 || strcmp(all[i].name, all[i - 1].name) != 0))
            add_undone(deletion, all[i].name);
    deletion->count =
        command_keep_masters(deletion->invocation, deletion->masters, deletion->count, status);
}

static void delete_at_masters(struct deletion *deletion, int *status)
{
    for (size_t i = 0; i < deletion->count; i++) {
        struct tern_error err = {.text = ""};
        enum tern_code code = admin_delete_topic(
            deletion->invocation->admin, deletion->masters[i].address, deletion->topic, &err);
        deletion->codes[i] = code;
        deletion->deleted += code == TERN_OK;
        if (code == TERN_TOPIC_NOT_EXIST) {
            deletion->absent = err;
        } else if (code != TERN_OK) {
            *status = command_fail(deletion->invocation, code, &err);
            add_undone(deletion, deletion->masters[i].name);
        }
    }
}

static bool is_routed(const struct deletion *deletion)
{
    struct admin_broker *brokers = NULL;
    size_t count;
    enum tern_code code = admin_topic_brokers(deletion->invocation->admin, deletion->topic, false,
                                              &brokers, &count, NULL);
    if (code == TERN_OK)
        free(brokers);
    return code == TERN_OK;
}

/* When no broker has it any more. An earlier try may have come as far as that; it is absent when
 * there is no route either. */
static int delete_routes(struct deletion *deletion)
{
    struct tern_error err = {.text = ""};
    bool absent = deletion->deleted == 0 && !is_routed(deletion);
    enum tern_code code = admin_delete_topic_route(deletion->invocation->admin, deletion->topic,
                                                   deletion->cluster, &err);
    if (code != TERN_OK && code != TERN_TOPIC_NOT_EXIST)
        return command_fail(deletion->invocation, code, &err);
    return absent ? command_fail(deletion->invocation, TERN_TOPIC_NOT_EXIST, &deletion->absent)
                  : EXIT_DONE;
}

/* What an unfinished deletion has done, what it has not, and what ends it. */
static void say_unfinished(const struct deletion *deletion)
{
    bool sets = deletion->undone[0] != 0;
    bool json = deletion->invocation->json;
    for (size_t i = 0; i < deletion->count; i++)
        if (deletion->codes[i] == TERN_OK)
            print_done(json, "delete topic [%s] from broker [%s] success.", deletion->topic,
                       deletion->masters[i].name);
        else if (deletion->codes[i] == TERN_TOPIC_NOT_EXIST)
            print_done(json, "broker [%s] has no topic [%s].", deletion->masters[i].name,
                       deletion->topic);
    fprintf(stderr,
            "mqadmin %s: topic %s is not deleted%s%s%s from the nameservers' routes: when %s back, "
            "run mqadmin deleteTopic -c %s -t %s again\n",
            deletion->invocation->command->name, deletion->topic, sets ? " at " : "",
            deletion->undone, sets ? ", nor" : "", sets ? "that is" : "they are", deletion->cluster,
            deletion->topic);
}

static int run_delete_topic(struct invocation *invocation)
{
    struct deletion deletion = {.invocation = invocation,
                                .topic = option_value(invocation, "topic"),
                                .cluster = option_value(invocation, "clusterName")};
    struct tern_error err = {.text = ""};
    int status = EXIT_DONE;
    enum tern_code code = admin_brokers(invocation->admin, deletion.cluster, false,
                                        &deletion.masters, &deletion.count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    deletion.codes = calloc(deletion.count, sizeof *deletion.codes);
    ENSURE(deletion.codes != NULL);
    keep_masters(&deletion, &status);
    delete_at_masters(&deletion, &status);
    bool everywhere = status == EXIT_DONE;
    if (everywhere)
        status = delete_routes(&deletion);
    if (status == EXIT_DONE)
        print_done(invocation->json, "delete topic [%s] from cluster [%s] success.", deletion.topic,
                   deletion.cluster);
    else if (!everywhere || deletion.deleted > 0)
        say_unfinished(&deletion);
    free(deletion.codes);
    free(deletion.masters);
    return status;
}

static int run_topic_list(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    struct rpc_call *call;
    enum tern_code code =
        fetch_topic_list(invocation, option_value(invocation, "clusterName"), &call, &err);
    if (code == TERN_OK) {
        const Tern__Wire__TopicListResponse *list = call->response->topic_list;
        json_t *names = json_array();
        for (size_t i = 0; i < list->n_topics; i++) {
            if (invocation->json)
                json_array_append_new(names, bytes_of(list->topics[i].data, list->topics[i].len));
            else
                printf("%.*s\n", (int)list->topics[i].len, (const char *)list->topics[i].data);
        }
        if (invocation->json)
            json_print(names);
        else
            json_decref(names);
    }
    rpc_call_unref(call);
    return code == TERN_OK ? EXIT_DONE : command_fail(invocation, code, &err);
}

static json_t *route_json(const Tern__Wire__RouteResponse *route)
{
    json_t *brokers = json_array(), *queues = json_array();
    for (size_t i = 0; i < route->n_brokers; i++) {
        const Tern__Wire__BrokerData *b = route->brokers[i];
        json_t *addresses = json_object();
        for (size_t j = 0; j < b->n_addresses; j++) {
            char id[24];
            snprintf(id, sizeof id, "%" PRId64, b->addresses[j]->broker_id);
            json_object_set_new(
                addresses, id,
                bytes_of(b->addresses[j]->address.data, b->addresses[j]->address.len));
        }
        json_array_append_new(
            brokers, json_pack("{s:o, s:o, s:o}", "brokerAddrs", addresses, "brokerName",
                               bytes_of(b->broker_name.data, b->broker_name.len), "cluster",
                               bytes_of(b->cluster_name.data, b->cluster_name.len)));
    }
    for (size_t i = 0; i < route->n_queues; i++) {
        const Tern__Wire__QueueData *q = route->queues[i];
        json_array_append_new(queues,
                              json_pack("{s:o, s:i, s:i, s:i, s:i}", "brokerName",
                                        bytes_of(q->broker_name.data, q->broker_name.len), "perm",
                                        q->perm, "readQueueNums", q->read_queues, "topicSysFlag",
                                        q->sys_flag, "writeQueueNums", q->write_queues));
    }
    return json_pack("{s:o, s:o}", "brokerDatas", brokers, "queueDatas", queues);
}

static void route_rows(const Tern__Wire__RouteResponse *route, bool json)
{
    static const char *const columns[] = {"ClusterName", "BrokerName", "BrokerAddrs", "ReadQueue",
                                          "WriteQueue",  "Perm",       NULL};
    static const char *const keys[] = {"clusterName", "brokerName", "brokerAddrs", "readQueue",
                                       "writeQueue",  "perm",       NULL};
    struct table table;
    table_init(&table, columns, keys);
    for (size_t i = 0; i < route->n_queues; i++) {
        const Tern__Wire__QueueData *q = route->queues[i];
        char addresses[512] = "", cluster[128] = "";
        for (size_t j = 0; j < route->n_brokers; j++) {
            const Tern__Wire__BrokerData *b = route->brokers[j];
            if (b->broker_name.len != q->broker_name.len ||
                memcmp(b->broker_name.data, q->broker_name.data, q->broker_name.len) != 0)
                continue;
            snprintf(cluster, sizeof cluster, "%.*s", (int)b->cluster_name.len,
                     (const char *)b->cluster_name.data);
            for (size_t k = 0; k < b->n_addresses; k++) {
                size_t at = strlen(addresses);
                snprintf(addresses + at, sizeof addresses - at, "%s%" PRId64 "=%.*s",
                         at ? "; " : "", b->addresses[k]->broker_id,
                         (int)b->addresses[k]->address.len,
                         (const char *)b->addresses[k]->address.data);
            }
        }
        table_add(&table,
                  (json_t *[]){text_of(cluster), bytes_of(q->broker_name.data, q->broker_name.len),
                               text_of(addresses), number_of(q->read_queues),
                               number_of(q->write_queues), number_of(q->perm)});
    }
    table_print(&table, json);
}

static int run_topic_route(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    struct rpc_call *call;
    enum tern_code code = fetch_route(invocation, option_value(invocation, "topic"), &call, &err);
    if (code == TERN_OK && option_given(invocation, "list"))
        route_rows(call->response->route, invocation->json);
    else if (code == TERN_OK)
        json_print(route_json(call->response->route));
    rpc_call_unref(call);
    return code == TERN_OK ? EXIT_DONE : command_fail(invocation, code, &err);
}

static enum tern_code add_queue_rows(struct invocation *invocation, struct table *table,
                                     const struct admin_broker *broker, const char *topic,
                                     struct tern_error *err)
{
    Tern__Wire__TopicStatsRequest body = TERN__WIRE__TOPIC_STATS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    body.topic = frame_bytes(topic, strlen(topic));
    request.body_case = TERN__WIRE__REQUEST__BODY_TOPIC_STATS;
    request.topic_stats = &body;
    enum tern_code code =
        admin_call_broker(invocation->admin, broker->address, &request, NULL, 0, &call, err);
    if (code == TERN_OK && call->response->body_case == TERN__WIRE__RESPONSE__BODY_TOPIC_STATS) {
        const Tern__Wire__TopicStatsResponse *stats = call->response->topic_stats;
        for (size_t i = 0; i < stats->n_queues; i++) {
            char updated[32];
            time_text(updated, stats->queues[i]->last_update_ms);
            table_add(table,
                      (json_t *[]){text_of(broker->name), number_of(stats->queues[i]->queue_id),
                                   number_of(stats->queues[i]->min_offset),
                                   number_of(stats->queues[i]->max_offset), text_of(updated)});
        }
    }
    rpc_call_unref(call);
    return code;
}

static int run_topic_status(struct invocation *invocation)
{
    static const char *const columns[] = {"Broker Name", "QID",          "Min Offset",
                                          "Max Offset",  "Last Updated", NULL};
    static const char *const keys[] = {"brokerName", "queueId",     "minOffset",
                                       "maxOffset",  "lastUpdated", NULL};
    const char *topic = option_value(invocation, "topic");
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    struct table table;
    size_t count;
    enum tern_code code =
        admin_topic_brokers(invocation->admin, topic, false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    count = command_keep_first(invocation, brokers, count);
    table_init(&table, columns, keys);
    for (size_t i = 0; code == TERN_OK && i < count; i++)
        code = add_queue_rows(invocation, &table, &brokers[i], topic, &err);
    free(brokers);
    table_print(&table, invocation->json);
    return code == TERN_OK ? EXIT_DONE : command_fail(invocation, code, &err);
}

#define TOPIC                                                                                      \
    {                                                                                              \
        't', "topic", "TOPIC", true, "the topic"                                                   \
    }
#define BROKER                                                                                     \
    {                                                                                              \
        'b', "brokerAddr", "HOST:PORT", false, "one broker"                                        \
    }
#define CLUSTER                                                                                    \
    {                                                                                              \
        'c', "clusterName", "CLUSTER", false, "all masters of the cluster"                         \
    }

const struct command topic_commands[] = {
    {.name = "updateTopic",
     .help = "create or change a topic",
     .example = "mqadmin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t Orders -r 4 -w 4",
     .options = {TOPIC,
                 BROKER,
                 CLUSTER,
                 {'r', "readQueueNums", "N", false, "queues to read (8)"},
                 {'w', "writeQueueNums", "N", false, "queues to write (8)"},
                 {'p', "perm", "P", false, "2 write, 4 read, 6 both (6)"},
                 {'o', "order", "BOOL", false,
                  "true: keyed sends choose among these brokers' queues, up or not (false)"}},
     .run = run_update_topic,
     .one_of = "bc"},
    {.name = "deleteTopic",
     .help = "delete a topic from a cluster and the nameservers",
     .example = "mqadmin deleteTopic -c DefaultCluster -t Orders",
     .options = {TOPIC, {'c', "clusterName", "CLUSTER", true, "the cluster"}},
     .run = run_delete_topic},
    {.name = "topicList",
     .help = "names of all topics",
     .example = "mqadmin topicList -n 127.0.0.1:9876",
     .options = {{'c', "clusterName", "CLUSTER", false, "only this cluster's"}},
     .run = run_topic_list},
    {.name = "topicRoute",
     .help = "where a topic's queues are",
     .example = "mqadmin topicRoute -t Orders",
     .options = {TOPIC, {'l', "list", NULL, false, "as a table"}},
     .run = run_topic_route},
    {.name = "topicStatus",
     .help = "offsets of a topic's queues, in messages",
     .example = "mqadmin topicStatus -t Orders",
     .options = {TOPIC},
     .run = run_topic_status},
};
const size_t topic_command_count = sizeof topic_commands / sizeof topic_commands[0];
