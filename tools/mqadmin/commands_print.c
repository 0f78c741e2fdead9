/*
 * Printing what queues hold, between two times: all of a topic, or one queue. Read anonymously with
 * pulls that do not wait; what arrives meanwhile is not printed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/subscription.h"
#include "client/message_internal.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"
#include "tools/mqadmin/show_message.h"

enum { PULL_MESSAGES = 64, TAGS_MAX = 4096 };

#define FROM_THE_FIRST INT64_MIN

/* One printing command. */
struct printer {
    struct invocation *invocation;
    const char *topic;
    struct subscription *expression; /* NULL: everything */
    int64_t
        begin_ms;   /* store time, included; FROM_THE_FIRST, or -1: now, so nothing that is there */
    int64_t end_ms; /* included; -1: no bound */
    bool print, with_body, count_tags;
    json_t *tags; /* tag → number, with count_tags */
    int64_t printed;
};

static void print_without_body(const struct tern_message *message)
{
    const char *tag = tern_message_tag(message), *keys = tern_message_keys(message);
    printf("MSGID: %s queue=%s/%" PRId32 " offset=%" PRId64 " tags=%s keys=%s\n",
           tern_message_id(message), tern_message_broker_name(message),
           tern_message_queue_id(message), tern_message_queue_offset(message), tag ? tag : "-",
           keys ? keys : "-");
}

static void print_one(struct printer *printer, const struct tern_message *message)
{
    printer->printed++;
    if (printer->invocation->json) {
        json_t *json = message_json(message);
        if (!printer->with_body) {
            json_object_del(json, "body");
            json_object_del(json, "bodyBase64");
        }
        json_dumpf(json, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(json);
    } else if (printer->with_body) {
        message_print_line(message);
    } else {
        print_without_body(message);
    }
}

static void count_tag(struct printer *printer, const char *tag)
{
    json_t *number = json_object_get(printer->tags, tag);
    if (number)
        json_integer_set(number, json_integer_value(number) + 1);
    else if (json_object_size(printer->tags) < TAGS_MAX)
        json_object_set_new(printer->tags, tag, json_integer(1));
}

/* false: the message is younger than the end of the range, so are those behind it. */
static bool take(struct printer *printer, const struct tern_message *message)
{
    const char *tag = tern_message_tag(message);
    int64_t store_ms = tern_message_store_ms(message);
    if (printer->end_ms >= 0 && store_ms > printer->end_ms)
        return false;
    if (printer->begin_ms >= 0 && store_ms < printer->begin_ms)
        return true;
    if (printer->expression &&
        !subscription_match_tag(printer->expression, tag ? tag : "", tag ? strlen(tag) : 0))
        return true; /* the broker compared hashes only */
    if (printer->count_tags)
        count_tag(printer, tag ? tag : "");
    if (printer->print)
        print_one(printer, message);
    return true;
}

/* One pull's messages; *offset moves, to `end` when the range is passed. */
static enum tern_code take_pull(struct printer *printer, const struct rpc_call *call,
                                const char *broker, int64_t end, int64_t *offset,
                                struct tern_error *err)
{
    struct tern_message *messages[PULL_MESSAGES];
    size_t count = 0;
    enum tern_code code = message_decode_all(NULL, call->payload, call->payload_size, broker,
                                             messages, PULL_MESSAGES, &count, err);
    bool go_on = true;
    for (size_t i = 0; i < count; i++) {
        if (go_on && tern_message_queue_offset(messages[i]) < end)
            go_on = take(printer, messages[i]);
        tern_message_unref(messages[i]);
    }
    *offset = go_on ? call->response->pull->next_offset : end;
    return code;
}

static bool goes_on(enum tern_code code, const struct rpc_call *call)
{
    return (code == TERN_OK || code == TERN_PULL_RETRY_IMMEDIATELY ||
            code == TERN_PULL_OFFSET_MOVED) &&
           call && call->response->body_case == TERN__WIRE__RESPONSE__BODY_PULL;
}

/* [offset, end) of one queue. */
static enum tern_code print_range(struct printer *printer, const struct admin_broker *broker,
                                  int32_t queue_id, int64_t offset, int64_t end,
                                  struct tern_error *err)
{
    const char *expression = printer->expression ? subscription_text(printer->expression) : "*";
    enum tern_code code = TERN_OK;
    while (code == TERN_OK && offset < end) {
        struct rpc_call *call;
        int64_t before = offset;
        code = fetch_pull(printer->invocation, broker->address, printer->topic, queue_id, offset,
                          PULL_MESSAGES, expression, &call, err);
        if (code == TERN_OK)
            code = take_pull(printer, call, broker->name, end, &offset, err);
        else if (goes_on(code, call)) {
            offset = call->response->pull->next_offset;
            code = TERN_OK;
        } else if (code == TERN_PULL_NOT_FOUND) {
            offset = end;
            code = TERN_OK;
        }
        rpc_call_unref(call);
        if (code == TERN_OK && offset <= before)
            code = error_set(err, TERN_STATE, "%s/%" PRId32 " does not go on from offset %" PRId64,
                             broker->name, queue_id, before);
    }
    return code;
}

static enum tern_code print_queue(struct printer *printer, const struct admin_broker *broker,
                                  const Tern__Wire__QueueStats *queue, struct tern_error *err)
{
    int64_t offset = queue->min_offset;
    if (!printer->invocation->json)
        printf("minOffset=%" PRId64 ", maxOffset=%" PRId64 ", MessageQueue [topic=%s, "
               "brokerName=%s, queueId=%" PRId32 "]\n",
               queue->min_offset, queue->max_offset, printer->topic, broker->name, queue->queue_id);
    if (queue->min_offset == queue->max_offset)
        return TERN_OK;
    enum tern_code code = TERN_OK;
    if (printer->begin_ms != FROM_THE_FIRST)
        code = fetch_offset_by_time(printer->invocation, broker->address, printer->topic,
                                    queue->queue_id, printer->begin_ms, &offset, err);
    return code == TERN_OK
               ? print_range(printer, broker, queue->queue_id, offset, queue->max_offset, err)
               : code;
}

/* queue_id -1: all queues of the broker. */
static enum tern_code print_broker(struct printer *printer, const struct admin_broker *broker,
                                   int64_t queue_id, size_t *queues, struct tern_error *err)
{
    struct rpc_call *call;
    enum tern_code code =
        fetch_topic_stats(printer->invocation, broker->address, printer->topic, &call, err);
    for (size_t i = 0; code == TERN_OK && i < call->response->topic_stats->n_queues; i++) {
        const Tern__Wire__QueueStats *queue = call->response->topic_stats->queues[i];
        if (queue_id >= 0 && queue->queue_id != queue_id)
            continue;
        (*queues)++;
        code = print_queue(printer, broker, queue, err);
    }
    rpc_call_unref(call);
    return code;
}

static void print_tags(const struct printer *printer)
{
    const char *tag;
    json_t *number;
    if (printer->invocation->json) {
        json_dumpf(printer->tags, stdout, JSON_COMPACT);
        putchar('\n');
        return;
    }
    json_object_foreach(printer->tags, tag, number)
        printf("Tag: %-30s Count: %" JSON_INTEGER_FORMAT "\n", tag, json_integer_value(number));
}

static int print_all(struct printer *printer, const char *only_broker, int64_t queue_id)
{
    struct invocation *invocation = printer->invocation;
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count, queues = 0;
    int status = EXIT_DONE;
    enum tern_code code =
        admin_topic_brokers(invocation->admin, printer->topic, false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    count = command_keep_first(invocation, brokers, count);
    for (size_t i = 0; i < count; i++) {
        if (only_broker && strcmp(only_broker, brokers[i].name) != 0)
            continue;
        code = print_broker(printer, &brokers[i], queue_id, &queues, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
    }
    free(brokers);
    if (queues == 0 && status == EXIT_DONE) {
        error_set(&err, TERN_NOT_FOUND, "topic %s has no such queue", printer->topic);
        status = command_fail(invocation, TERN_NOT_FOUND, &err);
    }
    if (printer->count_tags)
        print_tags(printer);
    return status;
}

/* What both commands take. false: *status is set. */
static bool begin(struct printer *printer, struct invocation *invocation, int *status)
{
    const char *expression = option_value(invocation, "subExpression");
    struct tern_error err = {.text = ""};
    *printer = (struct printer){
        .invocation = invocation, .topic = option_value(invocation, "topic"), .print = true};
    *status = EXIT_USAGE;
    if (!option_time(invocation, "beginTimestamp", FROM_THE_FIRST, &printer->begin_ms) ||
        !option_time(invocation, "endTimestamp", -1, &printer->end_ms) ||
        !option_bool(invocation, "printBody", true, &printer->with_body))
        return false;
    if (!expression)
        return true;
    enum tern_code code =
        subscription_parse(expression, strlen(expression), &printer->expression, &err);
    if (code != TERN_OK)
        *status = command_fail(invocation, code, &err);
    return code == TERN_OK;
}

static int run_print(struct invocation *invocation)
{
    struct printer printer;
    int status;
    if (!begin(&printer, invocation, &status))
        return status;
    status = print_all(&printer, NULL, -1);
    subscription_free(printer.expression);
    return status;
}

static int run_print_by_queue(struct invocation *invocation)
{
    struct printer printer;
    int64_t queue_id;
    int status;
    if (!option_number(invocation, "queueId", 0, 65535, 0, &queue_id))
        return EXIT_USAGE;
    if (!begin(&printer, invocation, &status))
        return status;
    status = EXIT_USAGE;
    if (option_bool(invocation, "printMsg", false, &printer.print) &&
        option_bool(invocation, "calculate", false, &printer.count_tags)) {
        printer.print |= !printer.count_tags && !option_given(invocation, "printMsg");
        printer.tags = json_object();
        status = print_all(&printer, option_value(invocation, "brokerName"), queue_id);
        json_decref(printer.tags);
    }
    subscription_free(printer.expression);
    return status;
}

#define RANGE                                                                                      \
    {'s', "subExpression", "'A || B'", false, "only these tags"},                                  \
        {'b', "beginTimestamp", "TIME", false,                                                     \
         "stored at or after: now, ms, or yyyy-MM-dd#HH:mm:ss:SSS"},                               \
        {'e', "endTimestamp", "TIME", false, "stored at or before (now)"},                         \
        {'c', "charsetName", "NAME", false, "accepted; bodies are shown as they are"},             \
    {                                                                                              \
        'd', "printBody", "BOOL", false, "with the body (true)"                                    \
    }

const struct command print_commands[] = {
    {.name = "printMsg",
     .help = "print what a topic holds now, queue by queue",
     .example = "mqadmin printMsg -t Orders -s TagA -b 2026-11-30#08:00:00:000",
     .options = {{'t', "topic", "TOPIC", true, "the topic"}, RANGE},
     .run = run_print},
    {.name = "printMsgByQueue",
     .help = "print, or count by tag, what one queue holds now",
     .example = "mqadmin printMsgByQueue -t Orders -a broker-a -i 0 -f true",
     .options = {{'t', "topic", "TOPIC", true, "the topic"},
                 {'a', "brokerName", "NAME", true, "the broker set"},
                 {'i', "queueId", "N", true, "the queue"},
                 {'p', "printMsg", "BOOL", false, "print the messages (true, with -f false)"},
                 {'f', "calculate", "BOOL", false, "count messages by tag (false)"},
                 RANGE},
     .run = run_print_by_queue},
};
const size_t print_command_count = sizeof print_commands / sizeof print_commands[0];
