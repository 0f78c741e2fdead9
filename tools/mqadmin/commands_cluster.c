/* Clusters and brokers: list, status, configuration, write permission. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqadmin/command.h"

/* The status entries of one broker; the caller unrefs the call. */
static enum tern_code fetch_status(struct invocation *invocation, const char *address,
                                   struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__BrokerStatusRequest body = TERN__WIRE__BROKER_STATUS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_BROKER_STATUS;
    request.broker_status = &body;
    enum tern_code code =
        admin_call_broker(invocation->admin, address, &request, NULL, 0, call, err);
    if (code == TERN_OK && (*call)->response->body_case != TERN__WIRE__RESPONSE__BODY_BROKER_STATUS)
        code = error_set(err, TERN_PROTOCOL, "%s: the answer is no broker status", address);
    return code;
}

static const char *status_value(const struct rpc_call *call, const char *key)
{
    const Tern__Wire__BrokerStatusResponse *status = call->response->broker_status;
    for (size_t i = 0; i < status->n_entries; i++)
        if (!strcmp(status->entries[i]->key, key))
            return status->entries[i]->value;
    return "-";
}

static int run_cluster_list(struct invocation *invocation)
{
    static const char *const columns[] = {"Cluster Name", "Broker Name", "BID",  "Addr", "Version",
                                          "State",        "Messages In", "Disk", NULL};
    static const char *const keys[] = {"clusterName", "brokerName", "brokerId",
                                       "address",     "version",    "state",
                                       "messagesIn",  "diskRatio",  NULL};
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    struct table table;
    size_t count;
    int status = EXIT_DONE;
    enum tern_code code = admin_brokers(invocation->admin, option_value(invocation, "clusterName"),
                                        false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    table_init(&table, columns, keys);
    for (size_t i = 0; i < count; i++) {
        struct rpc_call *call = NULL;
        code = fetch_status(invocation, brokers[i].address, &call, &err);
        bool up = code == TERN_OK;
        if (!up)
            status = command_fail(invocation, code, &err);
        table_add(&table,
                  (json_t *[]){text_of(brokers[i].cluster), text_of(brokers[i].name),
                               number_of(brokers[i].id), text_of(brokers[i].address),
                               text_of(up ? status_value(call, "brokerVersionDesc") : "-"),
                               text_of(!up ? "no answer"
                                       : !strcmp(status_value(call, "storeReadOnly"), "true")
                                           ? "read-only"
                                           : "running"),
                               text_of(up ? status_value(call, "putMessageTimesTotal") : "-"),
                               text_of(up ? status_value(call, "commitLogDiskRatio") : "-")});
        rpc_call_unref(call);
    }
    free(brokers);
    table_print(&table, invocation->json);
    return status;
}

static int run_broker_status(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;
    int64_t id;
    const char *name = option_value(invocation, "brokerAddr");
    if (!option_number(invocation, "brokerId", 0, INT64_MAX, -1, &id))
        return EXIT_USAGE;
    if (id >= 0 && (!name || command_is_address(name)))
        return command_usage(invocation, "-i goes with -b NAME");
    if (!command_members(invocation, option_value(invocation, "clusterName"), name, id, &brokers,
                         &count, &status))
        return status;
    json_t *all = json_object();
    for (size_t i = 0; i < count; i++) {
        struct rpc_call *call = NULL;
        enum tern_code code = fetch_status(invocation, brokers[i].address, &call, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        const Tern__Wire__BrokerStatusResponse *s =
            code == TERN_OK ? call->response->broker_status : NULL;
        json_t *entries = json_object();
        for (size_t j = 0; s && j < s->n_entries; j++) {
            json_object_set_new(entries, s->entries[j]->key, text_of(s->entries[j]->value));
            if (!invocation->json)
                printf(count > 1 ? "%-24s %-32s: %s\n" : "%.0s%-32s: %s\n", brokers[i].address,
                       s->entries[j]->key, s->entries[j]->value);
        }
        json_object_set_new(all, brokers[i].address, entries);
        rpc_call_unref(call);
    }
    free(brokers);
    if (invocation->json)
        json_print(all);
    else
        json_decref(all);
    return status;
}

static int run_broker_config(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;
    if (!command_targets(invocation, false, &brokers, &count, &status))
        return status;
    json_t *all = json_object();
    for (size_t i = 0; i < count; i++) {
        Tern__Wire__BrokerConfigRequest body = TERN__WIRE__BROKER_CONFIG_REQUEST__INIT;
        TernRequest request = TERN__WIRE__REQUEST__INIT;
        struct rpc_call *call;
        request.body_case = TERN__WIRE__REQUEST__BODY_BROKER_CONFIG;
        request.broker_config = &body;
        enum tern_code code = admin_call_broker(invocation->admin, brokers[i].address, &request,
                                                NULL, 0, &call, &err);
        json_t *entries = json_object();
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        else if (!invocation->json)
            printf("============%s============\n", brokers[i].address);
        if (code == TERN_OK &&
            call->response->body_case == TERN__WIRE__RESPONSE__BODY_BROKER_CONFIG) {
            const Tern__Wire__BrokerConfigResponse *c = call->response->broker_config;
            for (size_t j = 0; j < c->n_entries; j++) {
                json_object_set_new(entries, c->entries[j]->key, text_of(c->entries[j]->value));
                if (!invocation->json)
                    printf("%-50s=  %s\n", c->entries[j]->key, c->entries[j]->value);
            }
        }
        json_object_set_new(all, brokers[i].address, entries);
        rpc_call_unref(call);
    }
    free(brokers);
    if (invocation->json)
        json_print(all);
    else
        json_decref(all);
    return status;
}

/* Each nameserver holds its own table. */
static int change_write_perm(struct invocation *invocation, bool restore)
{
    const char *broker = option_value(invocation, "brokerName");
    const char *const *namesrvs;
    size_t count = instance_namesrvs(admin_instance(invocation->admin), &namesrvs);
    char address[ADDRESS_BYTES];
    int status = EXIT_DONE;
    /* A nameserver that does not know the name would say that all went well with 0 topics. */
    if (!command_broker_address(invocation, NULL, broker, address, &status))
        return status;
    for (size_t i = 0; i < count; i++) {
        Tern__Wire__WipeWritePermRequest body = TERN__WIRE__WIPE_WRITE_PERM_REQUEST__INIT;
        TernRequest request = TERN__WIRE__REQUEST__INIT;
        struct tern_error err = {.text = ""};
        struct rpc_call *call;
        body.broker_name = frame_bytes(broker, strlen(broker));
        body.restore = restore;
        request.body_case = TERN__WIRE__REQUEST__BODY_WIPE_WRITE_PERM;
        request.wipe_write_perm = &body;
        enum tern_code code =
            admin_call_broker(invocation->admin, namesrvs[i], &request, NULL, 0, &call, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        else
            print_done(invocation->json, "%s write perm of broker[%s] in name server[%s] OK, %d",
                       restore ? "add" : "wipe", broker, namesrvs[i],
                       call->response->body_case == TERN__WIRE__RESPONSE__BODY_WIPE_WRITE_PERM
                           ? (int)call->response->wipe_write_perm->topics
                           : 0);
        rpc_call_unref(call);
    }
    return status;
}

static int run_wipe(struct invocation *invocation)
{
    return change_write_perm(invocation, false);
}

static int run_add(struct invocation *invocation)
{
    return change_write_perm(invocation, true);
}

#define BROKER                                                                                     \
    {                                                                                              \
        'b', "brokerAddr", "HOST:PORT", false, "one broker"                                        \
    }
#define CLUSTER                                                                                    \
    {                                                                                              \
        'c', "clusterName", "CLUSTER", false, "all brokers of the cluster"                         \
    }

const struct command cluster_commands[] = {
    {.name = "clusterList",
     .help = "clusters and their brokers",
     .example = "mqadmin clusterList -n 127.0.0.1:9876",
     .options = {{'c', "clusterName", "CLUSTER", false, "only this cluster's"}},
     .run = run_cluster_list},
    {.name = "brokerStatus",
     .help = "runtime figures of brokers",
     .example = "mqadmin brokerStatus -b broker-a -i 1",
     .options = {{'b', "brokerAddr", "NAME|HOST:PORT", false,
                  "one broker, or all of a name, slaves too"},
                 {'i', "brokerId", "ID", false, "with -b NAME: only this id"},
                 CLUSTER},
     .run = run_broker_status,
     .one_of = "bc"},
    {.name = "getBrokerConfig",
     .help = "effective configuration of brokers",
     .example = "mqadmin getBrokerConfig -b 127.0.0.1:10911",
     .options = {BROKER, CLUSTER},
     .run = run_broker_config,
     .one_of = "bc"},
    {.name = "wipeWritePerm",
     .help = "take a broker's queues out of the routes for sending",
     .example = "mqadmin wipeWritePerm -b broker-a",
     .options = {{'b', "brokerName", "NAME", true, "the broker's name"}},
     .run = run_wipe},
    {.name = "addWritePerm",
     .help = "put a broker's queues back into the routes for sending",
     .example = "mqadmin addWritePerm -b broker-a",
     .options = {{'b', "brokerName", "NAME", true, "the broker's name"}},
     .run = run_add},
};
const size_t cluster_command_count = sizeof cluster_commands / sizeof cluster_commands[0];
