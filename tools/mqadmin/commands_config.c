/* Configuration of brokers, nameservers and groups: what is in effect, and changing live keys. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

static bool is_changed(const Tern__Wire__BrokerConfigResponse *config, const char *key)
{
    for (size_t i = 0; i < config->n_changed; i++)
        if (!strcmp(config->changed[i], key))
            return true;
    return false;
}

/* Brokers answer the same request. */
static enum tern_code expect_namesrv(const Tern__Wire__BrokerConfigResponse *config,
                                     const char *address, struct tern_error *err)
{
    for (size_t i = 0; i < config->n_entries; i++)
        if (!strcmp(config->entries[i]->key, "brokerName"))
            return error_set(err, TERN_NOT_SUPPORTED,
                             "%s: this is broker %s, no nameserver: -n wants the addresses of "
                             "nameservers, a broker's goes with -b",
                             address, config->entries[i]->value);
    return TERN_OK;
}

/* One server's configuration, printed under its heading and added to `all`. */
static int show_config(struct invocation *invocation, const char *address, bool namesrv,
                       json_t *all)
{
    struct tern_error err = {.text = ""};
    struct rpc_call *call;
    int status = EXIT_DONE;
    json_t *entries = json_object();
    enum tern_code code = fetch_config(invocation, address, &call, &err);
    if (code == TERN_OK && namesrv)
        code = expect_namesrv(call->response->broker_config, address, &err);
    if (code != TERN_OK)
        status = command_fail(invocation, code, &err);
    else if (!invocation->json)
        printf("============%s============\n", address);
    for (size_t i = 0; code == TERN_OK && i < call->response->broker_config->n_entries; i++) {
        const Tern__Wire__BrokerConfigResponse *config = call->response->broker_config;
        const Tern__Wire__KeyValue *entry = config->entries[i];
        json_object_set_new(entries, entry->key, text_of(entry->value));
        if (!invocation->json)
            printf("%-50s=  %s%s\n", entry->key, entry->value,
                   is_changed(config, entry->key) ? "  (changed since the start)" : "");
    }
    json_object_set_new(all, address, entries);
    rpc_call_unref(call);
    return status;
}

static void print_all(const struct invocation *invocation, json_t *all)
{
    if (invocation->json)
        json_print(all);
    else
        json_decref(all);
}

static int run_broker_config(struct invocation *invocation)
{
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;
    if (!command_targets(invocation, false, &brokers, &count, &status))
        return status;
    json_t *all = json_object();
    for (size_t i = 0; i < count; i++) {
        int one = show_config(invocation, brokers[i].address, false, all);
        status = one != EXIT_DONE ? one : status;
    }
    free(brokers);
    print_all(invocation, all);
    return status;
}

static int run_namesrv_config(struct invocation *invocation)
{
    const char *const *namesrvs;
    size_t count = instance_namesrvs(admin_instance(invocation->admin), &namesrvs);
    int status = EXIT_DONE;
    json_t *all = json_object();
    for (size_t i = 0; i < count; i++) {
        int one = show_config(invocation, namesrvs[i], true, all);
        status = one != EXIT_DONE ? one : status;
    }
    print_all(invocation, all);
    return status;
}

/* ---- changing ---- */

static enum tern_code update_at(struct invocation *invocation, const char *address, json_t *results,
                                struct tern_error *err)
{
    Tern__Wire__KeyValue entry = TERN__WIRE__KEY_VALUE__INIT, *entries[1] = {&entry};
    Tern__Wire__UpdateBrokerConfigRequest body = TERN__WIRE__UPDATE_BROKER_CONFIG_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    entry.key = (char *)(uintptr_t)option_value(invocation, "key");
    entry.value = (char *)(uintptr_t)option_value(invocation, "value");
    body.entries = entries;
    body.n_entries = 1;
    request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_BROKER_CONFIG;
    request.update_broker_config = &body;
    enum tern_code code = fetch(invocation, address, &request,
                                TERN__WIRE__RESPONSE__BODY_UPDATE_BROKER_CONFIG, &call, err);
    for (size_t i = 0; code == TERN_OK && i < call->response->update_broker_config->n_changes;
         i++) {
        const Tern__Wire__ConfigChange *change = call->response->update_broker_config->changes[i];
        json_array_append_new(results,
                              json_pack("{s:s, s:o, s:o, s:o}", "address", address, "key",
                                        text_of(change->key), "old", text_of(change->old_value),
                                        "new", text_of(change->new_value)));
        if (!invocation->json)
            printf("update broker config success, %s\n%s: %s -> %s, until this broker restarts; to "
                   "keep it, put '%s: %s' into its file\n",
                   address, change->key, change->old_value, change->new_value, change->key,
                   change->new_value);
    }
    rpc_call_unref(call);
    return code;
}

static int run_update_broker_config(struct invocation *invocation)
{
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;
    if (!command_targets(invocation, true, &brokers, &count, &status))
        return status;
    json_t *results = json_array();
    for (size_t i = 0; i < count; i++) {
        struct tern_error err = {.text = ""};
        enum tern_code code = update_at(invocation, brokers[i].address, results, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
    }
    free(brokers);
    print_all(invocation, results);
    return status;
}

/* ---- groups ---- */

/* As updateSubGroup takes it; a number that this program does not know stays one. */
static json_t *consistency_json(int32_t consistency)
{
    static const char *const texts[] = {"warn", "refuse", "isolate"};
    if (consistency < 0 || (size_t)consistency >= sizeof texts / sizeof texts[0])
        return number_of(consistency);
    return text_of(texts[consistency]);
}

static json_t *group_json(const Tern__Wire__GroupConfig *g)
{
    return json_pack("{s:o, s:b, s:b, s:b, s:i, s:i, s:I, s:I, s:b, s:o}", "groupName",
                     bytes_of(g->name.data, g->name.len), "consumeEnable", g->consume_enable,
                     "consumeFromMinEnable", g->consume_from_min_enable, "consumeBroadcastEnable",
                     g->consume_broadcast_enable, "retryQueueNums", (int)g->retry_queues,
                     "retryMaxTimes", (int)g->retry_max_times, "brokerId", (json_int_t)g->broker_id,
                     "whichBrokerWhenConsumeSlowly",
                     (json_int_t)g->which_broker_when_consume_slowly, "notifyConsumerIdsChanged",
                     g->notify_members_changed, "subscriptionConsistency",
                     consistency_json(g->subscription_consistency));
}

static void print_group(const struct admin_broker *broker, const json_t *group)
{
    const char *key;
    json_t *value;
    printf("=============================%s:%s=============================\n", broker->cluster,
           broker->name);
    json_object_foreach((json_t *)(uintptr_t)group, key, value)
    {
        if (json_is_string(value))
            printf("%-40s=  %s\n", key, json_string_value(value));
        else if (json_is_integer(value))
            printf("%-40s=  %" JSON_INTEGER_FORMAT "\n", key, json_integer_value(value));
        else
            printf("%-40s=  %s\n", key, json_is_true(value) ? "true" : "false");
    }
}

static int run_consumer_config(struct invocation *invocation)
{
    const char *name = option_value(invocation, "groupName");
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count, found = 0;
    int status = EXIT_DONE;
    enum tern_code code = admin_brokers(invocation->admin, NULL, false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    count = command_keep_first(invocation, brokers, count);
    json_t *all = json_object();
    for (size_t i = 0; i < count; i++) {
        struct rpc_call *call;
        code = fetch_groups(invocation, brokers[i].address, &call, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        for (size_t j = 0; code == TERN_OK && j < call->response->list_groups->n_groups; j++) {
            const Tern__Wire__GroupConfig *group = call->response->list_groups->groups[j];
            if (!wire_is(&group->name, name))
                continue;
            json_t *json = group_json(group);
            if (!invocation->json)
                print_group(&brokers[i], json);
            json_object_set_new(all, brokers[i].name, json);
            found++;
        }
        rpc_call_unref(call);
    }
    free(brokers);
    print_all(invocation, all);
    if (!found && status == EXIT_DONE) {
        error_set(&err, TERN_GROUP_NOT_EXIST,
                  "no broker has a configuration of group %s: mqadmin updateSubGroup makes one",
                  name);
        status = command_fail(invocation, TERN_GROUP_NOT_EXIST, &err);
    }
    return status;
}

#define BROKER                                                                                     \
    {                                                                                              \
        'b', "brokerAddr", "HOST:PORT", false, "one broker"                                        \
    }

const struct command config_commands[] = {
    {.name = "getBrokerConfig",
     .help = "effective configuration of brokers",
     .example = "mqadmin getBrokerConfig -b 127.0.0.1:10911",
     .options = {BROKER, {'c', "clusterName", "CLUSTER", false, "all brokers of the cluster"}},
     .run = run_broker_config,
     .one_of = "bc"},
    {.name = "updateBrokerConfig",
     .help = "change a live key of brokers, until they restart",
     .example = "mqadmin updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 48h",
     .options = {BROKER,
                 {'c', "clusterName", "CLUSTER", false, "all masters of the cluster"},
                 {'k', "key", "KEY", true, "a key marked live in docs/reference/mqbroker.md"},
                 {'v', "value", "VALUE", true, "as in the broker's file"}},
     .run = run_update_broker_config,
     .one_of = "bc"},
    {.name = "getNamesrvConfig",
     .help = "effective configuration of the nameservers",
     .example = "mqadmin getNamesrvConfig -n 127.0.0.1:9876",
     .run = run_namesrv_config},
    {.name = "getConsumerConfig",
     .help = "a group's settings on each broker",
     .example = "mqadmin getConsumerConfig -g billing",
     .options = {{'g', "groupName", "GROUP", true, "the group"}},
     .run = run_consumer_config},
};
const size_t config_command_count = sizeof config_commands / sizeof config_commands[0];
