/*
 * Topics, groups and configurations of a cluster as JSON files, to be kept or compared. Files are
 * written whole: beside first, then renamed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/names.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

#define EXPORT_DIR "ternmq-export"

static enum tern_code write_json(const char *dir, const char *name, json_t *json,
                                 struct tern_error *err)
{
    char path[4096], beside[4104];
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return error_set(err, TERN_IO, "-f: cannot make %s: %s", dir, strerror(errno));
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return error_set(err, TERN_INVALID, "-f: the path is too long");
    snprintf(beside, sizeof beside, "%s.new", path);
    if (json_dump_file(json, beside, JSON_INDENT(2) | JSON_SORT_KEYS) != 0 ||
        rename(beside, path) != 0)
        return error_set(err, TERN_IO, "cannot write %s: %s", path, strerror(errno));
    return TERN_OK;
}

static const char *export_dir(const struct invocation *invocation)
{
    const char *dir = option_value(invocation, "filePath");
    return dir ? dir : EXPORT_DIR;
}

/* ---- metadata ---- */

static json_t *topic_json(const Tern__Wire__TopicConfig *topic)
{
    return json_pack("{s:o, s:i, s:i, s:i, s:i, s:b}", "topicName",
                     bytes_of(topic->name.data, topic->name.len), "readQueueNums",
                     (int)topic->read_queues, "writeQueueNums", (int)topic->write_queues, "perm",
                     (int)topic->perm, "topicSysFlag", (int)topic->sys_flag, "order", topic->order);
}

static json_t *group_json(const Tern__Wire__GroupConfig *group)
{
    return json_pack("{s:o, s:b, s:b, s:b, s:i, s:i, s:I, s:I, s:b, s:i}", "groupName",
                     bytes_of(group->name.data, group->name.len), "consumeEnable",
                     group->consume_enable, "consumeFromMinEnable", group->consume_from_min_enable,
                     "consumeBroadcastEnable", group->consume_broadcast_enable, "retryQueueNums",
                     (int)group->retry_queues, "retryMaxTimes", (int)group->retry_max_times,
                     "brokerId", (json_int_t)group->broker_id, "whichBrokerWhenConsumeSlowly",
                     (json_int_t)group->which_broker_when_consume_slowly,
                     "notifyConsumerIdsChangedEnable", group->notify_members_changed,
                     "subscriptionConsistency", (int)group->subscription_consistency);
}

/* Of brokers that differ, the larger table counts: RocketMQ's choice, too. */
static void merge_topics(json_t *all, const Tern__Wire__ListTopicsResponse *list, bool special)
{
    for (size_t i = 0; i < list->n_topics; i++) {
        const Tern__Wire__TopicConfig *topic = list->topics[i];
        char name[TOPIC_NAME_MAX + 1];
        wire_text(name, sizeof name, &topic->name);
        bool own = topic_is_system(topic->name.data, topic->name.len) || name[0] == '%';
        json_t *held = json_object_get(all, name);
        if (own && !special)
            continue;
        if (!held ||
            json_integer_value(json_object_get(held, "writeQueueNums")) < topic->write_queues)
            json_object_set_new(all, name, topic_json(topic));
    }
}

static void merge_groups(json_t *all, const Tern__Wire__ListGroupsResponse *list)
{
    for (size_t i = 0; i < list->n_groups; i++) {
        char name[GROUP_NAME_MAX + 1];
        wire_text(name, sizeof name, &list->groups[i]->name);
        json_object_set_new(all, name, group_json(list->groups[i]));
    }
}

static enum tern_code collect(struct invocation *invocation, const char *address, json_t *topics,
                              json_t *groups, struct tern_error *err)
{
    struct rpc_call *call;
    enum tern_code code = fetch_topics(invocation, address, &call, err);
    if (code == TERN_OK)
        merge_topics(topics, call->response->list_topics, option_given(invocation, "specialTopic"));
    rpc_call_unref(call);
    if (code != TERN_OK)
        return code;
    code = fetch_groups(invocation, address, &call, err);
    if (code == TERN_OK)
        merge_groups(groups, call->response->list_groups);
    rpc_call_unref(call);
    return code;
}

static int run_export_metadata(struct invocation *invocation)
{
    bool topics_only = option_given(invocation, "topic");
    bool groups_only = option_given(invocation, "subscriptionGroup");
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;
    if (!command_targets(invocation, false, &brokers, &count, &status))
        return status;
    count = command_keep_first(invocation, brokers, count);
    json_t *topics = json_object(), *groups = json_object(), *both;
    for (size_t i = 0; i < count; i++) {
        enum tern_code code = collect(invocation, brokers[i].address, topics, groups, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
    }
    free(brokers);
    const char *name = topics_only   ? "topic.json"
                       : groups_only ? "subscriptionGroup.json"
                                     : "metadata.json";
    if (topics_only)
        both = json_pack("{s:O}", "topicConfigTable", topics);
    else if (groups_only)
        both = json_pack("{s:O}", "subscriptionGroupTable", groups);
    else
        both =
            json_pack("{s:O, s:O}", "topicConfigTable", topics, "subscriptionGroupTable", groups);
    if (status == EXIT_DONE) {
        enum tern_code code = write_json(export_dir(invocation), name, both, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        else
            print_done(invocation->json, "export %s/%s success", export_dir(invocation), name);
    }
    json_decref(both);
    json_decref(topics);
    json_decref(groups);
    return status;
}

/* ---- configurations and figures ---- */

static json_t *entries_json(Tern__Wire__KeyValue *const *entries, size_t count)
{
    json_t *json = json_object();
    for (size_t i = 0; i < count; i++)
        json_object_set_new(json, entries[i]->key, text_of(entries[i]->value));
    return json;
}

/* Every broker's configuration, or its figures. */
static int export_brokers(struct invocation *invocation, bool figures, const char *name)
{
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count, held = 0;
    int status = EXIT_DONE;
    enum tern_code code = admin_brokers(invocation->admin, option_value(invocation, "clusterName"),
                                        false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    json_t *all = json_object();
    for (size_t i = 0; i < count; i++) {
        struct rpc_call *call;
        char key[160];
        snprintf(key, sizeof key, "%s:%lld", brokers[i].name, (long long)brokers[i].id);
        code = figures ? fetch_status(invocation, brokers[i].address, &call, &err)
                       : fetch_config(invocation, brokers[i].address, &call, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        else if (figures)
            json_object_set_new(all, key,
                                entries_json(call->response->broker_status->entries,
                                             call->response->broker_status->n_entries));
        else
            json_object_set_new(all, key,
                                entries_json(call->response->broker_config->entries,
                                             call->response->broker_config->n_entries));
        held += code == TERN_OK;
        rpc_call_unref(call);
    }
    free(brokers);
    code = write_json(export_dir(invocation), name, all, &err);
    json_decref(all);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    if (held == count)
        print_done(invocation->json, "export %s/%s success", export_dir(invocation), name);
    else
        print_done(invocation->json, "%s/%s holds %zu of %zu brokers", export_dir(invocation), name,
                   held, count);
    return status;
}

static int run_export_configs(struct invocation *invocation)
{
    return export_brokers(invocation, false, "configs.json");
}

static int run_export_metrics(struct invocation *invocation)
{
    return export_brokers(invocation, true, "metrics.json");
}

#define FILE_PATH                                                                                  \
    {                                                                                              \
        'f', "filePath", "DIR", false, "the folder (" EXPORT_DIR ", here)"                         \
    }
#define CLUSTER                                                                                    \
    {                                                                                              \
        'c', "clusterName", "CLUSTER", true, "the cluster"                                         \
    }

const struct command export_commands[] = {
    {.name = "exportMetadata",
     .help = "write topics and groups to metadata.json",
     .example = "mqadmin exportMetadata -c DefaultCluster -f backup",
     .options = {{'b', "brokerAddr", "HOST:PORT", false, "of one broker"},
                 {'c', "clusterName", "CLUSTER", false, "of every set of the cluster"},
                 FILE_PATH,
                 {'t', "topic", NULL, false, "only topics, to topic.json"},
                 {'g', "subscriptionGroup", NULL, false, "only groups, to subscriptionGroup.json"},
                 {'s', "specialTopic", NULL, false, "also %RETRY%, %DLQ% and system topics"}},
     .run = run_export_metadata,
     .one_of = "bc"},
    {.name = "exportConfigs",
     .help = "write every broker's configuration to configs.json",
     .example = "mqadmin exportConfigs -c DefaultCluster -f backup",
     .options = {CLUSTER, FILE_PATH},
     .run = run_export_configs},
    {.name = "exportMetrics",
     .help = "write every broker's figures to metrics.json",
     .example = "mqadmin exportMetrics -c DefaultCluster -f backup",
     .options = {CLUSTER, FILE_PATH},
     .run = run_export_metrics},
};
const size_t export_command_count = sizeof export_commands / sizeof export_commands[0];
