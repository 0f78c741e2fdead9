/* A topic's permission, clusters and queues, and how queues would be shared. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/allocate.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

enum { QUEUES_MAX = 65536, UNITS_DEFAULT = 10, UNITS_MAX = 1024 };

/* ---- permission ---- */

static const char *perm_text(char out[4], int32_t perm)
{
    out[0] = perm & 4 ? 'R' : '-';
    out[1] = perm & 2 ? 'W' : '-';
    out[2] = perm & 1 ? 'X' : '-';
    out[3] = 0;
    return out;
}

static const Tern__Wire__TopicConfig *find_topic(const struct rpc_call *list, const char *topic)
{
    for (size_t i = 0; i < list->response->list_topics->n_topics; i++)
        if (wire_is(&list->response->list_topics->topics[i]->name, topic))
            return list->response->list_topics->topics[i];
    return NULL;
}

/* As it is but for its permission. */
static enum tern_code send_topic(struct invocation *invocation, const char *address,
                                 const Tern__Wire__TopicConfig *found, int32_t perm,
                                 struct tern_error *err)
{
    Tern__Wire__TopicConfig config = *found;
    Tern__Wire__UpdateTopicRequest body = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    config.perm = perm;
    body.topic = &config;
    request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_TOPIC;
    request.update_topic = &body;
    return admin_call_broker(invocation->admin, address, &request, NULL, 0, NULL, err);
}

static enum tern_code change_perm(struct invocation *invocation, const char *address, int32_t perm,
                                  struct tern_error *err)
{
    const char *topic = option_value(invocation, "topic");
    char before[4], after[4];
    struct rpc_call *call;
    enum tern_code code = fetch_topics(invocation, address, &call, err);
    const Tern__Wire__TopicConfig *found = code == TERN_OK ? find_topic(call, topic) : NULL;
    if (code == TERN_OK && !found)
        code =
            error_set(err, TERN_TOPIC_NOT_EXIST, "topic %s does not exist at %s", topic, address);
    if (code == TERN_OK && found->perm == perm) {
        print_done(invocation->json, "new perm equals to the old one!");
    } else if (code == TERN_OK) {
        code = send_topic(invocation, address, found, perm, err);
        if (code == TERN_OK)
            print_done(invocation->json, "update topic perm from %s to %s in %s success.",
                       perm_text(before, found->perm), perm_text(after, perm), address);
    }
    rpc_call_unref(call);
    return code;
}

static int run_update_perm(struct invocation *invocation)
{
    struct admin_broker *brokers;
    int64_t perm;
    size_t count;
    int status = EXIT_DONE;
    if (!option_number(invocation, "perm", 0, 7, 0, &perm))
        return EXIT_USAGE;
    if (!command_targets(invocation, true, &brokers, &count, &status))
        return status;
    for (size_t i = 0; i < count; i++) {
        struct tern_error err = {.text = ""};
        enum tern_code code = change_perm(invocation, brokers[i].address, (int32_t)perm, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
    }
    free(brokers);
    return status;
}

/* ---- clusters ---- */

static int run_topic_clusters(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    enum tern_code code = admin_topic_brokers(invocation->admin, option_value(invocation, "topic"),
                                              false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    json_t *names = json_array();
    for (size_t i = 0; i < count; i++) { /* sorted by cluster */
        if (i > 0 && !strcmp(brokers[i].cluster, brokers[i - 1].cluster))
            continue;
        json_array_append_new(names, text_of(brokers[i].cluster));
        if (!invocation->json)
            puts(brokers[i].cluster);
    }
    free(brokers);
    if (invocation->json)
        json_print(names);
    else
        json_decref(names);
    return EXIT_DONE;
}

/* ---- sharing ---- */

static int compare_queues(const void *a, const void *b)
{
    const struct tern_queue *x = a, *y = b;
    int order = strcmp(x->broker_name, y->broker_name);
    return order ? order : (x->queue_id > y->queue_id) - (x->queue_id < y->queue_id);
}

/* The queues that consumers of the topic share; malloc'ed. */
static enum tern_code route_queues(struct invocation *invocation, const char *topic,
                                   struct tern_queue **out, size_t *count, struct tern_error *err)
{
    struct rpc_call *call;
    enum tern_code code = fetch_route(invocation, topic, &call, err);
    size_t room = 0;
    *out = NULL;
    *count = 0;
    for (size_t i = 0; code == TERN_OK && i < call->response->route->n_queues; i++)
        if (call->response->route->queues[i]->read_queues > 0)
            room += (size_t)call->response->route->queues[i]->read_queues;
    if (code == TERN_OK && room > QUEUES_MAX)
        code = error_set(err, TERN_TOO_LARGE, "topic %s has %zu queues, shown are at most %d",
                         topic, room, QUEUES_MAX);
    if (code == TERN_OK)
        *out = calloc(room + 1, sizeof **out);
    ENSURE(code != TERN_OK || *out != NULL);
    for (size_t i = 0; code == TERN_OK && i < call->response->route->n_queues; i++) {
        const Tern__Wire__QueueData *q = call->response->route->queues[i];
        for (int32_t id = 0; (q->perm & 4) && id < q->read_queues; id++) {
            struct tern_queue *queue = &(*out)[(*count)++];
            snprintf(queue->topic, sizeof queue->topic, "%s", topic);
            wire_text(queue->broker_name, sizeof queue->broker_name, &q->broker_name);
            queue->queue_id = id;
        }
    }
    rpc_call_unref(call);
    if (*count)
        qsort(*out, *count, sizeof **out, compare_queues);
    return code;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Cuts the list at its commas, in place; sorted, none twice. malloc'ed. */
static const char **split(char *list, size_t *count)
{
    size_t most = 1, kept = 0;
    char *rest;
    for (const char *at = list; *at; at++)
        most += *at == ',';
    const char **members = calloc(most, sizeof *members);
    ENSURE(members != NULL);
    *count = 0;
    for (char *at = strtok_r(list, ",", &rest); at; at = strtok_r(NULL, ",", &rest))
        members[(*count)++] = at;
    if (*count)
        qsort(members, *count, sizeof *members, compare_texts);
    for (size_t i = 0; i < *count; i++)
        if (i == 0 || strcmp(members[i], members[kept - 1]) != 0)
            members[kept++] = members[i];
    *count = kept;
    return members;
}

static json_t *share_of(const struct allocate_input *input, enum tern_code *code,
                        struct tern_error *err)
{
    json_t *list = json_array();
    size_t *mine = calloc(input->queue_count + 1, sizeof *mine), count = 0;
    ENSURE(mine != NULL);
    *code = allocate_queues(&allocate_averagely, input, mine, &count, err);
    for (size_t i = 0; i < count; i++) {
        const struct tern_queue *q = &input->queues[mine[i]];
        json_array_append_new(list,
                              json_pack("{s:o, s:i, s:o}", "brokerName", text_of(q->broker_name),
                                        "queueId", (int)q->queue_id, "topic", text_of(q->topic)));
    }
    free(mine);
    return list;
}

static int run_allocate(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    struct tern_queue *queues;
    size_t queue_count, member_count;
    char *list = strdup(option_value(invocation, "ipList"));
    ENSURE(list != NULL);
    const char **members = split(list, &member_count);
    enum tern_code code =
        route_queues(invocation, option_value(invocation, "topic"), &queues, &queue_count, &err);
    json_t *shares = json_object();
    for (size_t i = 0; code == TERN_OK && i < member_count; i++) {
        struct allocate_input input = {members[i], queues, queue_count, members, member_count};
        json_object_set_new(shares, members[i], share_of(&input, &code, &err));
    }
    free(queues);
    int status = EXIT_DONE;
    if (member_count == 0)
        status = command_usage(invocation, "-i: no member is named");
    else if (code != TERN_OK)
        status = command_fail(invocation, code, &err);
    else
        json_print(json_pack("{s:O}", "result", shares));
    json_decref(shares);
    free(members);
    free(list);
    return status;
}

/* ---- units ---- */

static enum tern_code read_units(struct invocation *invocation, const char *address,
                                 int64_t queue_id, int64_t index, int64_t most,
                                 struct rpc_call **call, struct tern_error *err)
{
    const char *topic = option_value(invocation, "topic");
    Tern__Wire__ReadQueueRequest body = TERN__WIRE__READ_QUEUE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.topic = frame_bytes(topic, strlen(topic));
    body.queue_id = (int32_t)queue_id;
    body.offset = index;
    body.max_count = (uint32_t)most;
    request.body_case = TERN__WIRE__REQUEST__BODY_READ_QUEUE;
    request.read_queue = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_READ_QUEUE, call, err);
}

static void print_units(const struct invocation *invocation,
                        const Tern__Wire__ReadQueueResponse *queue)
{
    static const char *const columns[] = {"Offset", "CommitLog Offset", "Size", "TagsCode", NULL};
    static const char *const keys[] = {"offset", "commitLogOffset", "size", "tagsCode", NULL};
    struct table table;
    table_init(&table, columns, keys);
    for (size_t i = 0; i < queue->n_units; i++)
        table_add(&table, (json_t *[]){number_of(queue->offset + (int64_t)i),
                                       number_of(queue->units[i]->physical_offset),
                                       number_of(queue->units[i]->size),
                                       number_of(queue->units[i]->tags_code)});
    if (invocation->json) {
        json_print(json_pack("{s:I, s:I, s:o}", "min", (json_int_t)queue->min_offset, "max",
                             (json_int_t)queue->max_offset, "units", table.rows));
        return;
    }
    printf("max: %" PRId64 ", min: %" PRId64 "\n", queue->max_offset, queue->min_offset);
    table_print(&table, false);
}

static int run_query_queue(struct invocation *invocation)
{
    const char *address = option_value(invocation, "broker");
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers = NULL;
    struct rpc_call *call = NULL;
    int64_t queue_id, index, most;
    size_t count = 0;
    enum tern_code code = TERN_OK;
    if (!option_number(invocation, "queue", 0, 65535, 0, &queue_id) ||
        !option_number(invocation, "index", 0, INT64_MAX, 0, &index) ||
        !option_number(invocation, "count", 1, UNITS_MAX, UNITS_DEFAULT, &most))
        return EXIT_USAGE;
    if (address && !command_is_address(address))
        return command_usage(invocation, "-b: '%s' is not host:port", address);
    if (!address) { /* as in RocketMQ, some broker of the topic; which one is said */
        code = admin_topic_brokers(invocation->admin, option_value(invocation, "topic"), false,
                                   &brokers, &count, &err);
        if (code == TERN_OK) {
            address = brokers[0].address;
            fprintf(stderr, "mqadmin queryCq: at %s, %s\n", brokers[0].name, address);
        }
    }
    if (code == TERN_OK)
        code = read_units(invocation, address, queue_id, index, most, &call, &err);
    int status = EXIT_DONE;
    if (code != TERN_OK)
        status = command_fail(invocation, code, &err);
    else
        print_units(invocation, call->response->read_queue);
    rpc_call_unref(call);
    free(brokers);
    return status;
}

#define TOPIC                                                                                      \
    {                                                                                              \
        't', "topic", "TOPIC", true, "the topic"                                                   \
    }

const struct command queue_commands[] = {
    {.name = "updateTopicPerm",
     .help = "change a topic's permission, nothing else of it",
     .example = "mqadmin updateTopicPerm -c DefaultCluster -t Orders -p 4",
     .options = {TOPIC,
                 {'b', "brokerAddr", "HOST:PORT", false, "one broker"},
                 {'c', "clusterName", "CLUSTER", false, "all masters of the cluster"},
                 {'p', "perm", "P", true, "2 write, 4 read, 6 both"}},
     .run = run_update_perm,
     .one_of = "bc"},
    {.name = "topicClusterList",
     .help = "clusters that have the topic",
     .example = "mqadmin topicClusterList -t Orders",
     .options = {TOPIC},
     .run = run_topic_clusters},
    {.name = "allocateMQ",
     .help = "how a topic's queues would be shared averagely among members",
     .example = "mqadmin allocateMQ -t Orders -i 10.0.0.1,10.0.0.2",
     .options = {TOPIC, {'i', "ipList", "ID,ID", true, "the members, separated by commas"}},
     .run = run_allocate},
    {.name = "queryCq",
     .help = "units of a consume queue as they stand there",
     .example = "mqadmin queryCq -t Orders -q 0 -i 100 -c 20",
     .options = {TOPIC,
                 {'q', "queue", "N", true, "the queue"},
                 {'i', "index", "N", true, "from this offset, counted in messages"},
                 {'c', "count", "N", false, "so many units (10)"},
                 {'b', "broker", "HOST:PORT", false, "at this broker (the topic's first)"},
                 {'g', "consumer", "GROUP", false, "accepted; mqadmin why tells what matches"}},
     .run = run_query_queue},
};
const size_t queue_command_count = sizeof queue_commands / sizeof queue_commands[0];
