/* Single messages: by id, key, and queue offset. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/record.h"
#include "client/message_internal.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"
#include "tools/mqadmin/resend.h"
#include "tools/mqadmin/show_message.h"

enum { SHOWN_MAX = 64 };

/* Shows them, or collects them in `all`, for --json. */
static int show_records(struct invocation *invocation, const uint8_t *records, size_t size,
                        const char *broker, json_t *all)
{
    struct tern_message *messages[SHOWN_MAX];
    struct tern_error err = {.text = ""};
    size_t count = 0;
    enum tern_code code =
        message_decode_all(NULL, records, size, broker, messages, SHOWN_MAX, &count, &err);
    for (size_t i = 0; i < count; i++) {
        if (invocation->json)
            json_array_append_new(all, message_json(messages[i]));
        else
            message_print_fields(messages[i]);
        tern_message_unref(messages[i]);
    }
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    return count ? EXIT_DONE : EXIT_NO;
}

/* One array whatever was asked; none when nothing was found. */
static void show_end(json_t *all)
{
    if (json_array_size(all) > 0)
        json_print(all);
    else
        json_decref(all);
}

static int refuse_direct(const struct invocation *invocation)
{
    return command_usage(invocation, "-g and -d, consuming it at a client directly, are not "
                                     "offered: resetOffsetByTime --offset delivers it again");
}

/* What is done with messages by their ids. */
struct by_id {
    struct invocation *invocation;
    bool resend;         /* else shown */
    struct table resent; /* with resend */
    json_t *all;         /* shown, with --json */
};

static int resend_one(struct by_id *by_id, const struct rpc_call *call, const char *broker)
{
    struct tern_error err = {.text = ""};
    struct tern_message *message;
    size_t count = 0;
    enum tern_code code = message_decode_all(NULL, call->payload, call->payload_size, broker,
                                             &message, 1, &count, &err);
    if (code != TERN_OK || !count)
        return command_fail(by_id->invocation, code ? code : TERN_PROTOCOL, &err);
    int status = resend(by_id->invocation, message, &by_id->resent);
    tern_message_unref(message);
    return status;
}

static int by_one_id(struct by_id *by_id, const char *id)
{
    struct invocation *invocation = by_id->invocation;
    struct tern_error err = {.text = ""};
    struct admin_broker from;
    struct rpc_call *call;
    struct host host;
    int64_t phys_off;
    int status;
    if (message_id_parse(id, &host, &phys_off) != TERN_OK)
        return command_usage(invocation,
                             "-i: '%s' is no offset message id (32 or 56 hex digits, as "
                             "sendMessage prints under OffsetMsgId)",
                             id);
    if (host.port == 0 || host.port > 65535)
        return command_usage(
            invocation, "-i: '%s' holds no port: a message id? queryMsgByKey -k finds those", id);
    enum tern_code code = fetch_by_id(invocation, id, &from, &call, &err);
    if (code != TERN_OK)
        status = command_fail(invocation, code, &err);
    else if (by_id->resend)
        status = resend_one(by_id, call, from.name);
    else
        status = show_records(invocation, call->payload, call->payload_size, from.name, by_id->all);
    rpc_call_unref(call);
    return status;
}

static int run_by_id(struct invocation *invocation)
{
    static const char *const columns[] = {"Broker Name", "QID",         "Send Result",
                                          "MsgId",       "OffsetMsgId", NULL};
    static const char *const keys[] = {"brokerName", "queueId",     "sendResult",
                                       "msgId",      "offsetMsgId", NULL};
    struct by_id by_id = {.invocation = invocation};
    char *rest;
    int status = EXIT_DONE;
    if (option_given(invocation, "consumerGroup") || option_given(invocation, "clientId"))
        return refuse_direct(invocation);
    if (!option_bool(invocation, "sendMessage", false, &by_id.resend))
        return EXIT_USAGE;
    char *list = strdup(option_value(invocation, "msgId"));
    ENSURE(list != NULL);
    by_id.all = json_array();
    if (by_id.resend)
        table_init(&by_id.resent, columns, keys);
    for (char *id = strtok_r(list, ",", &rest); id; id = strtok_r(NULL, ",", &rest)) {
        int one = by_one_id(&by_id, id);
        status = one != EXIT_DONE ? one : status;
    }
    if (by_id.resend)
        table_print(&by_id.resent, invocation->json);
    show_end(by_id.all);
    free(list);
    return status;
}

/* Adds one broker's hits; what was searched goes to stderr when it found nothing. */
static enum tern_code query_broker(struct invocation *invocation, const struct admin_broker *broker,
                                   struct table *table, int64_t begin_ms, int64_t end_ms,
                                   int64_t most, struct tern_error *err)
{
    const char *topic = option_value(invocation, "topic");
    const char *key = option_value(invocation, "msgKey");
    Tern__Wire__QueryMessageRequest body = TERN__WIRE__QUERY_MESSAGE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_message *messages[SHOWN_MAX];
    struct rpc_call *call = NULL;
    size_t count = 0;

    body.topic = frame_bytes(topic, strlen(topic));
    body.key = frame_bytes(key, strlen(key));
    body.max_count = (int32_t)most;
    body.begin_ms = begin_ms;
    body.end_ms = end_ms;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUERY_MESSAGE;
    request.query_message = &body;
    enum tern_code code =
        admin_call_broker(invocation->admin, broker->address, &request, NULL, 0, &call, err);
    if (code == TERN_OK)
        code = message_decode_all(NULL, call->payload, call->payload_size, broker->name, messages,
                                  SHOWN_MAX, &count, err);
    for (size_t i = 0; i < count; i++) {
        table_add(table,
                  (json_t *[]){text_of(tern_message_id(messages[i])),
                               text_of(tern_message_offset_id(messages[i])), text_of(broker->name),
                               number_of(tern_message_queue_id(messages[i])),
                               number_of(tern_message_queue_offset(messages[i]))});
        tern_message_unref(messages[i]);
    }
    if (code == TERN_QUERY_NOT_FOUND && call &&
        call->response->body_case == TERN__WIRE__RESPONSE__BODY_QUERY_MESSAGE) {
        char from[32], to[32];
        const Tern__Wire__QueryMessageResponse *r = call->response->query_message;
        time_text(from, r->indexed_begin_ms);
        time_text(to, r->indexed_end_ms);
        fprintf(stderr,
                "%s: nothing; indexed %s .. %s, index lag %" PRId64 " bytes, log from %" PRId64
                "\n",
                broker->name, from, to, r->index_lag_bytes, r->log_min);
    }
    rpc_call_unref(call);
    return code;
}

static int run_by_key(struct invocation *invocation)
{
    static const char *const columns[] = {"Message ID", "Offset ID", "Broker Name",
                                          "QID",        "Offset",    NULL};
    static const char *const keys[] = {"msgId",   "offsetMsgId", "brokerName",
                                       "queueId", "offset",      NULL};
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    struct table table;
    int64_t begin_ms, end_ms, most;
    size_t count;
    int status = EXIT_NO;

    if (!option_number(invocation, "beginTimestamp", 0, INT64_MAX, 0, &begin_ms) ||
        !option_number(invocation, "endTimestamp", 0, INT64_MAX, 0, &end_ms) ||
        !option_number(invocation, "maxNum", 1, SHOWN_MAX, SHOWN_MAX, &most))
        return EXIT_USAGE;
    enum tern_code code = admin_topic_brokers(invocation->admin, option_value(invocation, "topic"),
                                              false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    count = command_keep_first(invocation, brokers, count);
    table_init(&table, columns, keys);
    for (size_t i = 0; i < count; i++) {
        code = query_broker(invocation, &brokers[i], &table, begin_ms, end_ms, most, &err);
        if (code == TERN_OK && status == EXIT_NO)
            status = EXIT_DONE;
        else if (code != TERN_OK && code != TERN_QUERY_NOT_FOUND)
            status = command_fail(invocation, code, &err);
    }
    free(brokers);
    table_print(&table, invocation->json);
    return status;
}

/* A message stored twice after a time-out has one unique id: the newest is shown, -a shows all. */
static int show_newest(struct invocation *invocation, const struct rpc_call *call,
                       const char *broker, json_t *all)
{
    size_t size = call->payload_size;
    struct record newest;
    if (!option_given(invocation, "showAll") &&
        record_parse(call->payload, size, size, false, &newest) == RECORD_WHOLE)
        size = newest.total_size; /* they come newest first */
    return show_records(invocation, call->payload, size, broker, all);
}

static int run_by_unique_key(struct invocation *invocation)
{
    const char *topic = option_value(invocation, "topic");
    const char *id = option_value(invocation, "msgId");
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count, found = 0;
    int status = EXIT_DONE;
    if (option_given(invocation, "consumerGroup") || option_given(invocation, "clientId"))
        return refuse_direct(invocation);
    enum tern_code code =
        admin_topic_brokers(invocation->admin, topic, false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    count = command_keep_first(invocation, brokers, count);
    json_t *all = json_array();
    for (size_t i = 0; i < count; i++) {
        struct rpc_call *call;
        code = fetch_by_key(invocation, brokers[i].address, topic, id, &call, &err);
        if (code == TERN_OK) {
            int shown = show_newest(invocation, call, brokers[i].name, all);
            status = shown != EXIT_DONE ? shown : status;
            found++;
        } else if (code != TERN_QUERY_NOT_FOUND) {
            status = command_fail(invocation, code, &err);
        }
        rpc_call_unref(call);
    }
    free(brokers);
    show_end(all);
    if (found == 0 && status == EXIT_DONE) {
        error_set(&err, TERN_QUERY_NOT_FOUND,
                  "no broker of topic %s has message %s: mqadmin why %s tells what was searched",
                  topic, id, id);
        status = command_fail(invocation, TERN_QUERY_NOT_FOUND, &err);
    }
    return status;
}

static int run_by_offset(struct invocation *invocation)
{
    const char *topic = option_value(invocation, "topic");
    const char *broker = option_value(invocation, "brokerName");
    char address[ADDRESS_BYTES];
    Tern__Wire__PullRequest body = TERN__WIRE__PULL_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_error err = {.text = ""};
    struct rpc_call *call = NULL;
    int64_t queue_id, offset;
    int status;

    if (!option_number(invocation, "queueId", 0, 65535, 0, &queue_id) ||
        !option_number(invocation, "offset", 0, INT64_MAX, 0, &offset))
        return EXIT_USAGE;
    if (!command_broker_address(invocation, topic, broker, address, &status))
        return status;
    body.group = frame_bytes("TOOLS_CONSUMER", strlen("TOOLS_CONSUMER"));
    body.topic = frame_bytes(topic, strlen(topic));
    body.queue_id = (int32_t)queue_id;
    body.offset = offset;
    body.max_count = 1;
    body.has_subscription = true;
    request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    request.pull = &body;
    enum tern_code code =
        admin_call_broker(invocation->admin, address, &request, NULL, 0, &call, &err);
    if (code == TERN_OK) {
        json_t *all = json_array();
        status = show_records(invocation, call->payload, call->payload_size, broker, all);
        show_end(all);
    } else {
        if (call && call->response->body_case == TERN__WIRE__RESPONSE__BODY_PULL)
            error_set(&err, code,
                      "no message at offset %" PRId64 "; the queue holds %" PRId64 "..%" PRId64,
                      offset, call->response->pull->min_offset,
                      call->response->pull->max_offset - 1);
        status = command_fail(invocation, code, &err);
    }
    rpc_call_unref(call);
    return status;
}

/* At the broker that the id names. */
static int run_cancel(struct invocation *invocation)
{
    const char *offset_id = option_value(invocation, "msgId");
    const char *key = option_value(invocation, "msgKey");
    char address[HOST_TEXT_BYTES];
    struct tern_error err = {.text = ""};
    struct host host;
    Tern__Wire__CancelDelayedRequest body = TERN__WIRE__CANCEL_DELAYED_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    if (message_id_parse(offset_id, &host, &body.physical_offset) != TERN_OK)
        return command_usage(invocation, "-i: '%s' is no offset message id", offset_id);
    host_format(address, &host);
    body.message_id = frame_bytes(key, strlen(key));
    request.body_case = TERN__WIRE__REQUEST__BODY_CANCEL_DELAYED;
    request.cancel_delayed = &body;
    enum tern_code code =
        admin_call_broker(invocation->admin, address, &request, NULL, 0, NULL, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    print_done(invocation->json, "cancelled %s", key);
    return EXIT_DONE;
}

const struct command message_commands[] = {
    {.name = "cancelMessage",
     .help = "take a delayed message back, which is then never delivered",
     .example = "mqadmin cancelMessage -i OFFSETMSGID -k MSGID",
     .options = {{'i', "msgId", "ID", true, "the offset message id that its sending answered"},
                 {'k', "msgKey", "ID", true, "its message id (UNIQ_KEY)"}},
     .run = run_cancel},
    {.name = "queryMsgById",
     .help = "a message by its offset message id",
     .example = "mqadmin queryMsgById -i 7F00000100002A9F0000000000001000",
     .options = {{'i', "msgId", "ID", true, "the offset message id; several with ',' between"},
                 {'s', "sendMessage", "BOOL", false,
                  "true: send it once more to its topic, with the same message id (false)"},
                 {'g', "consumerGroup", "GROUP", false, "not offered: see resetOffsetByTime"},
                 {'d', "clientId", "ID", false, "not offered"}},
     .run = run_by_id},
    {.name = "queryMsgByKey",
     .help = "messages by key or unique id",
     .example = "mqadmin queryMsgByKey -t Orders -k order-42",
     .options = {{'t', "topic", "TOPIC", true, "the topic"},
                 {'k', "msgKey", "KEY", true, "a key, or a message id"},
                 {'b', "beginTimestamp", "MS", false, "stored at or after (0)"},
                 {'e', "endTimestamp", "MS", false, "stored before (now)"},
                 {'m', "maxNum", "N", false, "at most so many per broker (64)"}},
     .run = run_by_key},
    {.name = "queryMsgByUniqueKey",
     .help = "a message by its unique id",
     .example = "mqadmin queryMsgByUniqueKey -t Orders -i C0000202014E97C38F18F4C3B1670000",
     .options = {{'i', "msgId", "ID", true, "the message's id, as sendMessage prints it"},
                 {'t', "topic", "TOPIC", true, "the topic"},
                 {'a', "showAll", NULL, false, "all copies, not only a broker's newest"},
                 {'g', "consumerGroup", "GROUP", false, "not offered: see resetOffsetByTime"},
                 {'d', "clientId", "ID", false, "not offered"}},
     .run = run_by_unique_key},
    {.name = "queryMsgByOffset",
     .help = "a message by its queue offset",
     .example = "mqadmin queryMsgByOffset -t Orders -b broker-a -i 0 -o 17",
     .options = {{'t', "topic", "TOPIC", true, "the topic"},
                 {'b', "brokerName", "NAME", true, "the broker set"},
                 {'i', "queueId", "N", true, "the queue"},
                 {'o', "offset", "N", true, "the offset, counted in messages"}},
     .run = run_by_offset},
};
const size_t message_command_count = sizeof message_commands / sizeof message_commands[0];
