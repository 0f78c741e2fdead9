/* Clusters and brokers: list, status, write permission. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

/* One figure of three that a status value holds (10 s, 60 s, 600 s). */
static double first_of(const struct rpc_call *call, const char *key)
{
    const char *text = status_value(call, key);
    return text ? strtod(text, NULL) : 0;
}

static const char *state_of(const struct rpc_call *call)
{
    const char *read_only = status_value(call, "storeReadOnly");
    return read_only && !strcmp(read_only, "true") ? "read-only" : "running";
}

static json_t *value_or_dash(const struct rpc_call *call, const char *key)
{
    const char *value = status_value(call, key);
    return text_of(value ? value : "-");
}

/* RocketMQ's cell: rate, and in brackets what waits for the one who serves it. */
static json_t *rate_cell(const struct rpc_call *call, const char *rate, const char *waiting)
{
    char text[64];
    snprintf(text, sizeof text, "%.2f(%" PRId64 ")", first_of(call, rate),
             status_number(call, waiting, 0));
    return text_of(text);
}

/* Hours that the oldest retained message is old. */
static json_t *hours_cell(const struct rpc_call *call)
{
    char text[32] = "-";
    int64_t earliest_ms = status_number(call, "earliestMessageTimeStamp", -1);
    int64_t now_ms = status_number(call, "currentTimestamp", 0); /* its clock stamped the message */
    if (earliest_ms > 0 && now_ms > earliest_ms)
        snprintf(text, sizeof text, "%.2f", (double)(now_ms - earliest_ms) / 3600000);
    return text_of(text);
}

static void add_base_row(struct table *table, const struct admin_broker *broker,
                         const struct rpc_call *call)
{
    if (!call) {
        table_add(table, (json_t *[]){text_of(broker->cluster), text_of(broker->name),
                                      number_of(broker->id), text_of(broker->address), text_of("-"),
                                      text_of("no answer"), text_of("-"), text_of("-"),
                                      text_of("-"), text_of("-"), text_of("-"), text_of("-")});
        return;
    }
    table_add(table,
              (json_t *[]){text_of(broker->cluster), text_of(broker->name), number_of(broker->id),
                           text_of(broker->address), value_or_dash(call, "brokerVersionDesc"),
                           text_of(state_of(call)), value_or_dash(call, "putMessageTimesTotal"),
                           value_or_dash(call, "commitLogDiskRatio"),
                           rate_cell(call, "putTps", "sendsWaiting"),
                           rate_cell(call, "getTransferedTps", "coldLaneQueueSize"),
                           value_or_dash(call, "stageAppendWaitP99Us"), hours_cell(call)});
}

static void add_more_row(struct table *table, const struct admin_broker *broker,
                         const struct rpc_call *call)
{
    int64_t put_yesterday = 0, put_today = 0, get_yesterday = 0, get_today = 0;
    if (call) {
        int64_t put = status_number(call, "msgPutTotalTodayMorning", 0);
        int64_t get = status_number(call, "msgGetTotalTodayMorning", 0);
        put_yesterday = put - status_number(call, "msgPutTotalYesterdayMorning", 0);
        get_yesterday = get - status_number(call, "msgGetTotalYesterdayMorning", 0);
        put_today = status_number(call, "msgPutTotalTodayNow", 0) - put;
        get_today = status_number(call, "msgGetTotalTodayNow", 0) - get;
    }
    table_add(table,
              (json_t *[]){text_of(broker->cluster), text_of(broker->name), number_of(broker->id),
                           number_of(put_yesterday), number_of(get_yesterday), number_of(put_today),
                           number_of(get_today)});
}

static int list_cluster_once(struct invocation *invocation, bool more)
{
    static const char *const columns[] = {
        "Cluster Name",  "Broker Name", "BID",  "Addr",        "Version",
        "State",         "Messages In", "Disk", "InTPS(LOAD)", "OutTPS(LOAD)",
        "AppendP99(us)", "Hour",        NULL};
    static const char *const keys[] = {"clusterName", "brokerName", "brokerId",        "address",
                                       "version",     "state",      "messagesIn",      "diskRatio",
                                       "inTps",       "outTps",     "appendWaitP99Us", "hours",
                                       NULL};
    static const char *const more_columns[] = {
        "Cluster Name", "Broker Name",  "BID",           "InTotalYest",
        "OutTotalYest", "InTotalToday", "OutTotalToday", NULL};
    static const char *const more_keys[] = {
        "clusterName",  "brokerName",   "brokerId",      "inTotalYest",
        "outTotalYest", "inTotalToday", "outTotalToday", NULL};
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    struct table table;
    size_t count;
    int status = EXIT_DONE;
    enum tern_code code = admin_brokers(invocation->admin, option_value(invocation, "clusterName"),
                                        false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    table_init(&table, more ? more_columns : columns, more ? more_keys : keys);
    for (size_t i = 0; i < count; i++) {
        struct rpc_call *call = NULL;
        code = fetch_status(invocation, brokers[i].address, &call, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        if (more)
            add_more_row(&table, &brokers[i], code == TERN_OK ? call : NULL);
        else
            add_base_row(&table, &brokers[i], code == TERN_OK ? call : NULL);
        rpc_call_unref(call);
    }
    free(brokers);
    table_print(&table, invocation->json);
    return status;
}

static int run_cluster_list(struct invocation *invocation)
{
    bool more = option_given(invocation, "moreStats");
    int64_t interval_s;
    if (!option_number(invocation, "interval", 1, 86400, 0, &interval_s))
        return EXIT_USAGE;
    int status = list_cluster_once(invocation, more);
    while (interval_s > 0 && fflush(stdout) == 0) { /* until it is interrupted */
        sleep((unsigned)interval_s);
        status = list_cluster_once(invocation, more);
    }
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

#define CLUSTER                                                                                    \
    {                                                                                              \
        'c', "clusterName", "CLUSTER", false, "all brokers of the cluster"                         \
    }

const struct command cluster_commands[] = {
    {.name = "clusterList",
     .help = "clusters and their brokers",
     .example = "mqadmin clusterList -n 127.0.0.1:9876",
     .options = {{'c', "clusterName", "CLUSTER", false, "only this cluster's"},
                 {'m', "moreStats", NULL, false, "messages in and out, yesterday and today"},
                 {'i', "interval", "SECONDS", false, "again and again, so often"}},
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
