/*
 * Changing where groups stand: to a time, to an offset, to the end, to where another group stands.
 *
 * The brokers decide and answer with old and new offset per queue; groups without members are reset
 * like others, members learn of it and go on from there. --dry-run asks for the same answer without
 * changing anything.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

/* What one command wants of every broker of the topic. */
struct reset {
    struct invocation *invocation;
    const char *group, *topic;
    int64_t wall_ms;  /* -1: the end; counts when offset < 0 */
    int64_t offset;   /* exact, or -1 */
    int32_t queue_id; /* -1: all */
    bool force;       /* also forward */
    bool dry_run;
    struct table table;
    size_t queues;
};

static enum tern_code call_reset(const struct reset *reset, const char *address, int32_t queue_id,
                                 int64_t offset, bool dry_run, struct rpc_call **call,
                                 struct tern_error *err)
{
    Tern__Wire__ResetOffsetRequest body = TERN__WIRE__RESET_OFFSET_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.group = frame_bytes(reset->group, strlen(reset->group));
    body.topic = frame_bytes(reset->topic, strlen(reset->topic));
    body.queue_id = queue_id;
    body.dry_run = dry_run;
    if (offset >= 0) {
        body.target_case = TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_OFFSET;
        body.offset = offset;
    } else {
        body.target_case = TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_STORE_MS;
        body.store_ms = reset->wall_ms;
    }
    request.body_case = TERN__WIRE__REQUEST__BODY_RESET_OFFSET;
    request.reset_offset = &body;
    return fetch(reset->invocation, address, &request, TERN__WIRE__RESPONSE__BODY_RESET_OFFSET,
                 call, err);
}

static void add_row(struct reset *reset, const char *broker, int32_t queue_id, int64_t old_offset,
                    int64_t new_offset)
{
    table_add(&reset->table, (json_t *[]){text_of(broker), number_of(queue_id),
                                          number_of(old_offset), number_of(new_offset)});
    reset->queues++;
}

static void add_rows(struct reset *reset, const char *broker,
                     const Tern__Wire__ResetOffsetResponse *answer)
{
    for (size_t i = 0; i < answer->n_queues; i++)
        add_row(reset, broker, answer->queues[i]->queue_id, answer->queues[i]->old_offset,
                answer->queues[i]->new_offset);
}

/* Without force only queues that would go back, or have no progress, are set. */
static enum tern_code reset_backwards(struct reset *reset, const struct admin_broker *broker,
                                      const Tern__Wire__ResetOffsetResponse *plan,
                                      struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    for (size_t i = 0; code == TERN_OK && i < plan->n_queues; i++) {
        const Tern__Wire__ResetQueue *queue = plan->queues[i];
        struct rpc_call *call = NULL;
        if (queue->old_offset >= 0 && queue->new_offset >= queue->old_offset) {
            add_row(reset, broker->name, queue->queue_id, queue->old_offset, queue->old_offset);
            continue;
        }
        code = call_reset(reset, broker->address, queue->queue_id, queue->new_offset,
                          reset->dry_run, &call, err);
        if (code == TERN_OK)
            add_rows(reset, broker->name, call->response->reset_offset);
        rpc_call_unref(call);
    }
    return code;
}

static enum tern_code reset_broker(struct reset *reset, const struct admin_broker *broker,
                                   struct tern_error *err)
{
    struct rpc_call *call = NULL;
    enum tern_code code = call_reset(reset, broker->address, reset->queue_id, reset->offset,
                                     reset->dry_run || !reset->force, &call, err);
    if (code == TERN_OK && reset->force)
        add_rows(reset, broker->name, call->response->reset_offset);
    else if (code == TERN_OK)
        code = reset_backwards(reset, broker, call->response->reset_offset, err);
    rpc_call_unref(call);
    return code;
}

/* The summary goes before the table, as RocketMQ prints it. */
static void print_summary(const struct reset *reset)
{
    char when[32] = "the end";
    if (reset->invocation->json)
        return;
    if (reset->wall_ms >= 0)
        time_text(when, reset->wall_ms);
    if (reset->offset >= 0)
        printf("%sset consumer offset by specified group[%s], topic[%s], isForce[%s], "
               "offset[%" PRId64 "]\n",
               reset->dry_run ? "would " : "", reset->group, reset->topic,
               reset->force ? "true" : "false", reset->offset);
    else
        printf("%srollback consumer offset by specified group[%s], topic[%s], isForce[%s], "
               "timestamp(string)[%s], timestamp(long)[%" PRId64 "]\n",
               reset->dry_run ? "would " : "", reset->group, reset->topic,
               reset->force ? "true" : "false", when, reset->wall_ms);
}

static int run_reset(struct reset *reset, const char *only_broker)
{
    static const char *const columns[] = {"brokerName", "queueId", "oldOffset", "offset", NULL};
    struct invocation *invocation = reset->invocation;
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;
    enum tern_code code =
        admin_topic_brokers(invocation->admin, reset->topic, false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    count = command_keep_masters(invocation, brokers, count, &status);
    table_init(&reset->table, columns, columns);
    size_t asked = 0;
    for (size_t i = 0; i < count; i++) {
        if (only_broker && strcmp(only_broker, brokers[i].name) != 0)
            continue;
        asked++;
        code = reset_broker(reset, &brokers[i], &err);
        if (code != TERN_OK) {
            fprintf(stderr, "%s: ", brokers[i].name);
            status = command_fail(invocation, code, &err);
        }
    }
    free(brokers);
    if (asked == 0 && status == EXIT_DONE) {
        error_set(&err, TERN_NOT_FOUND, "no broker %s of topic %s is registered",
                  only_broker ? only_broker : "", reset->topic);
        status = command_fail(invocation, TERN_NOT_FOUND, &err);
    }
    if (reset->queues > 0)
        print_summary(reset);
    table_print(&reset->table, invocation->json);
    return status;
}

static int run_reset_by_time(struct invocation *invocation)
{
    struct reset reset = {.invocation = invocation,
                          .group = option_value(invocation, "group"),
                          .topic = option_value(invocation, "topic"),
                          .dry_run = option_given(invocation, "dry-run")};
    const char *broker = option_value(invocation, "brokerName");
    int64_t queue_id;
    if (option_given(invocation, "timestamp") == option_given(invocation, "offset"))
        return command_usage(invocation, "exactly one of -s and --offset is required");
    if (!option_time(invocation, "timestamp", -1, &reset.wall_ms) ||
        !option_number(invocation, "offset", 0, INT64_MAX, -1, &reset.offset) ||
        !option_number(invocation, "queueId", 0, 65535, -1, &queue_id) ||
        !option_bool(invocation, "force", true, &reset.force))
        return EXIT_USAGE;
    if (queue_id >= 0 && !broker)
        return command_usage(invocation, "-i goes with -b BROKER");
    reset.queue_id = (int32_t)queue_id;
    return run_reset(&reset, broker);
}

static int run_skip(struct invocation *invocation)
{
    struct reset reset = {.invocation = invocation,
                          .group = option_value(invocation, "group"),
                          .topic = option_value(invocation, "topic"),
                          .wall_ms = -1,
                          .offset = -1,
                          .queue_id = -1,
                          .dry_run = option_given(invocation, "dry-run")};
    if (!option_bool(invocation, "force", true, &reset.force))
        return EXIT_USAGE;
    reset.force = true; /* the end is never behind */
    return run_reset(&reset, NULL);
}

/* ---- clone ---- */

static enum tern_code clone_at(struct invocation *invocation, const struct admin_broker *broker,
                               struct table *table, struct tern_error *err)
{
    const char *source = option_value(invocation, "srcGroup");
    const char *group = option_value(invocation, "destGroup");
    const char *topic = option_value(invocation, "topic");
    Tern__Wire__CloneOffsetsRequest body = TERN__WIRE__CLONE_OFFSETS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    body.source_group = frame_bytes(source, strlen(source));
    body.group = frame_bytes(group, strlen(group));
    body.topic = frame_bytes(topic, strlen(topic));
    body.dry_run = option_given(invocation, "dry-run");
    request.body_case = TERN__WIRE__REQUEST__BODY_CLONE_OFFSETS;
    request.clone_offsets = &body;
    enum tern_code code = fetch(invocation, broker->address, &request,
                                TERN__WIRE__RESPONSE__BODY_CLONE_OFFSETS, &call, err);
    for (size_t i = 0; code == TERN_OK && i < call->response->clone_offsets->n_queues; i++) {
        const Tern__Wire__CloneQueue *queue = call->response->clone_offsets->queues[i];
        table_add(table, (json_t *[]){text_of(broker->name), number_of(queue->queue_id),
                                      number_of(queue->old_offset), number_of(queue->new_offset)});
    }
    rpc_call_unref(call);
    return code;
}

static int run_clone(struct invocation *invocation)
{
    static const char *const columns[] = {"brokerName", "queueId", "oldOffset", "offset", NULL};
    const char *topic = option_value(invocation, "topic");
    struct tern_error err = {.text = ""}, none = {.text = ""};
    struct admin_broker *brokers;
    struct table table;
    size_t count, cloned = 0;
    int status = EXIT_DONE;
    enum tern_code code =
        admin_topic_brokers(invocation->admin, topic, false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    count = command_keep_masters(invocation, brokers, count, &status);
    table_init(&table, columns, columns);
    for (size_t i = 0; i < count; i++) {
        code = clone_at(invocation, &brokers[i], &table, &err);
        cloned += code == TERN_OK;
        if (code == TERN_QUERY_NOT_FOUND) /* the source may not have reached this broker */
            none = err;
        else if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
    }
    free(brokers);
    if (cloned == 0 && status == EXIT_DONE)
        status = command_fail(invocation, TERN_QUERY_NOT_FOUND, &none);
    if (cloned > 0 && !invocation->json)
        printf("%s. srcGroup[%s], destGroup=[%s], topic[%s]\n",
               option_given(invocation, "dry-run") ? "would clone group offset"
                                                   : "clone group offset success",
               option_value(invocation, "srcGroup"), option_value(invocation, "destGroup"), topic);
    table_print(&table, invocation->json);
    return status;
}

#define DRY_RUN                                                                                    \
    {                                                                                              \
        0, "dry-run", NULL, false, "only say what would be set"                                    \
    }

const struct command reset_commands[] = {
    {.name = "resetOffsetByTime",
     .help = "set a group's progress to a time or an offset, with members or without",
     .example = "mqadmin resetOffsetByTime -g billing -t Orders -s 2026-11-30#08:00:00:000",
     .options = {{'g', "group", "GROUP", true, "the group"},
                 {'t', "topic", "TOPIC", true, "the topic"},
                 {'s', "timestamp", "TIME", false,
                  "now, ms since 1970, or yyyy-MM-dd#HH:mm:ss:SSS"},
                 {0, "offset", "N", false, "instead of -s: this offset, counted in messages"},
                 {'b', "brokerName", "NAME", false, "only this broker set's queues"},
                 {'i', "queueId", "N", false, "with -b: only this queue"},
                 {'f', "force", "BOOL", false, "false: only backwards, never past messages (true)"},
                 {'c', "cplus", NULL, false, "accepted; clients of all languages are alike here"},
                 DRY_RUN},
     .run = run_reset_by_time},
    {.name = "skipAccumulatedMessage",
     .help = "set a group's progress to the end: what waits is skipped",
     .example = "mqadmin skipAccumulatedMessage -g billing -t Orders --dry-run",
     .options = {{'g', "group", "GROUP", true, "the group"},
                 {'t', "topic", "TOPIC", true, "the topic"},
                 {'f', "force", "BOOL", false, "accepted; the end is never behind"},
                 DRY_RUN},
     .run = run_skip},
    {.name = "cloneGroupOffset",
     .help = "give one group the progress of another",
     .example = "mqadmin cloneGroupOffset -s billing -d billing-test -t Orders",
     .options = {{'s', "srcGroup", "GROUP", true, "from this group"},
                 {'d', "destGroup", "GROUP", true, "to this group"},
                 {'t', "topic", "TOPIC", true, "in this topic"},
                 {'o', "offline", NULL, false, "accepted; it makes no difference here"},
                 DRY_RUN},
     .run = run_clone},
};
const size_t reset_command_count = sizeof reset_commands / sizeof reset_commands[0];
