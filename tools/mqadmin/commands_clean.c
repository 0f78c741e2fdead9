/* Cleaning up now what the brokers would clean at their hour. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

static enum tern_code clean_at(struct invocation *invocation, const char *address,
                               Tern__Wire__CleanWhat what, int64_t *removed, struct tern_error *err)
{
    Tern__Wire__CleanRequest body = TERN__WIRE__CLEAN_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    body.what = what;
    request.body_case = TERN__WIRE__REQUEST__BODY_CLEAN;
    request.clean = &body;
    enum tern_code code =
        fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_CLEAN, &call, err);
    if (code == TERN_OK)
        *removed = call->response->clean->removed;
    rpc_call_unref(call);
    return code;
}

/* Neither -b nor -c: all brokers that are registered, as in RocketMQ. */
static bool find_targets(struct invocation *invocation, bool masters_only,
                         struct admin_broker **brokers, size_t *count, int *status)
{
    struct tern_error err = {.text = ""};
    if (option_given(invocation, "brokerAddr") || option_given(invocation, "clusterName"))
        return command_targets(invocation, masters_only, brokers, count, status);
    enum tern_code code = admin_brokers(invocation->admin, NULL, false, brokers, count, &err);
    if (code != TERN_OK)
        *status = command_fail(invocation, code, &err);
    else if (masters_only)
        *count = command_keep_masters(invocation, *brokers, *count, status);
    return code == TERN_OK;
}

static int run_clean(struct invocation *invocation, Tern__Wire__CleanWhat what, const char *unit)
{
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;
    bool masters_only = what == TERN__WIRE__CLEAN_WHAT__CLEAN_UNUSED_TOPICS;
    if (!find_targets(invocation, masters_only, &brokers, &count, &status))
        return status;
    json_t *results = json_array();
    for (size_t i = 0; i < count; i++) {
        struct tern_error err = {.text = ""};
        int64_t removed = 0;
        enum tern_code code = clean_at(invocation, brokers[i].address, what, &removed, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
        json_array_append_new(results,
                              json_pack("{s:s, s:b, s:I}", "address", brokers[i].address, "ok",
                                        code == TERN_OK, "removed", (json_int_t)removed));
        if (invocation->json)
            continue;
        if (code != TERN_OK)
            printf("false  %s\n", brokers[i].address);
        else if (unit)
            printf("success  %s: %" PRId64 " %s\n", brokers[i].address, removed, unit);
        else
            printf("success  %s\n", brokers[i].address);
    }
    free(brokers);
    if (invocation->json)
        json_print(results);
    else
        json_decref(results);
    return status;
}

static int run_clean_queues(struct invocation *invocation)
{
    return run_clean(invocation, TERN__WIRE__CLEAN_WHAT__CLEAN_EXPIRED_QUEUES, NULL);
}

static int run_clean_topics(struct invocation *invocation)
{
    return run_clean(invocation, TERN__WIRE__CLEAN_WHAT__CLEAN_UNUSED_TOPICS, "topics removed");
}

static int run_clean_log(struct invocation *invocation)
{
    return run_clean(invocation, TERN__WIRE__CLEAN_WHAT__CLEAN_EXPIRED_LOG, "segments removed");
}

#define TARGETS                                                                                    \
    {'b', "brokerAddr", "HOST:PORT", false, "one broker; without -b and -c all"},                  \
    {                                                                                              \
        'c', "clusterName", "CLUSTER", false, "all brokers of the cluster"                         \
    }

const struct command clean_commands[] = {
    {.name = "cleanExpiredCQ",
     .help = "remove consume queue files whose messages have expired",
     .example = "mqadmin cleanExpiredCQ -c DefaultCluster",
     .options = {TARGETS},
     .run = run_clean_queues},
    {.name = "cleanUnusedTopic",
     .help = "remove consume queues of topics that are not in the topic table",
     .example = "mqadmin cleanUnusedTopic -c DefaultCluster",
     .options = {TARGETS},
     .run = run_clean_topics},
    {.name = "deleteExpiredCommitLog",
     .help = "remove log segments older than fileReservedTime, whatever the hour",
     .example = "mqadmin deleteExpiredCommitLog -b 127.0.0.1:10911",
     .options = {TARGETS},
     .run = run_clean_log},
};
const size_t clean_command_count = sizeof clean_commands / sizeof clean_commands[0];
