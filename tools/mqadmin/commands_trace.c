/* The trace of a message: who sent it and who consumed it, from the trace topic's records. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/message_internal.h"
#include "client/trace_codec.h"
#include "tools/mqadmin/command.h"

enum { FOUND_MAX = 64 };

/* SubBefore records wait here for their SubAfter. */
struct begun {
    struct begun *next;
    struct trace_decoded trace;
    char host[HOST_TEXT_BYTES];
    bool ended;
};

struct report {
    const char *id;
    struct table producers, consumers;
    struct begun *begun;
    size_t records;
};

static json_t *time_of(int64_t ms)
{
    char text[32];
    time_text(text, ms);
    return text_of(text);
}

static void add_sent(struct report *report, const struct trace_record *r, const char *host)
{
    bool sent = r->kind == TRACE_PUB;
    const char *status = sent ? (r->success ? "success" : "failed") : r->transaction_state;
    table_add(&report->producers,
              (json_t *[]){text_of(sent ? "Pub" : "EndTransaction"), text_of(r->group),
                           text_of(host), time_of(r->time_ms), number_of(r->cost_ms),
                           text_of(status), text_of(r->topic), text_of(r->store_host)});
}

static void add_begun(struct report *report, const struct trace_decoded *trace, const char *host)
{
    struct begun *begun = calloc(1, sizeof *begun);
    if (!begun) {
        fprintf(stderr, "mqadmin: out of memory\n");
        exit(EXIT_NO);
    }
    begun->trace = *trace;
    snprintf(begun->host, sizeof begun->host, "%s", host);
    begun->next = report->begun;
    report->begun = begun;
}

static void add_consumed(struct report *report, const struct trace_record *r, const char *host,
                         const char *status)
{
    table_add(&report->consumers,
              (json_t *[]){text_of(r->kind == TRACE_SUB_AFTER ? "SubAfter" : "SubBefore"),
                           text_of(r->group), text_of(host), time_of(r->time_ms),
                           number_of(r->cost_ms), text_of(status), text_of(r->request_id)});
}

static const char *status_of(const struct trace_record *r)
{
    if (r->success)
        return "success";
    return r->context == TRACE_TIME_OUT ? "time-out" : "failed";
}

/* One record of the message that is asked for. */
static void take_record(struct report *report, const struct trace_decoded *trace, const char *host)
{
    report->records++;
    if (trace->record.kind == TRACE_SUB_BEFORE)
        add_begun(report, trace, host);
    else if (trace->record.kind == TRACE_SUB_AFTER)
        add_consumed(report, &trace->record, host, status_of(&trace->record));
    else
        add_sent(report, &trace->record, host);
}

static void take_message(struct report *report, const struct tern_message *message)
{
    static struct trace_decoded trace;
    size_t len, cursor = 0, skipped = 0;
    const char *text = tern_message_body(message, &len);
    while (trace_decode(text, len, &cursor, &trace, &skipped))
        if (strcmp(trace.message_id, report->id) == 0)
            take_record(report, &trace, tern_message_born_host(message));
    if (skipped > 0)
        fprintf(stderr, "mqadmin: %zu damaged records in %s\n", skipped,
                tern_message_offset_id(message));
}

static enum tern_code ask_broker(struct invocation *invocation, const struct admin_broker *broker,
                                 const char *topic, struct report *report, struct tern_error *err)
{
    Tern__Wire__QueryMessageRequest body = TERN__WIRE__QUERY_MESSAGE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_message *messages[FOUND_MAX];
    struct rpc_call *call = NULL;
    size_t count = 0;

    body.topic = frame_bytes(topic, strlen(topic));
    body.key = frame_bytes(report->id, strlen(report->id));
    body.max_count = FOUND_MAX;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUERY_MESSAGE;
    request.query_message = &body;
    enum tern_code code =
        admin_call_broker(invocation->admin, broker->address, &request, NULL, 0, &call, err);
    if (code == TERN_OK)
        code = message_decode_all(NULL, call->payload, call->payload_size, broker->name, messages,
                                  FOUND_MAX, &count, err);
    for (size_t i = 0; i < count; i++) {
        take_message(report, messages[i]);
        tern_message_unref(messages[i]);
    }
    if (count == FOUND_MAX)
        fprintf(stderr, "mqadmin: %s: only the first %d trace messages are shown\n", broker->name,
                (int)FOUND_MAX);
    rpc_call_unref(call);
    return code == TERN_QUERY_NOT_FOUND ? TERN_OK : code;
}

static bool has_ended(const struct report *report, const struct begun *begun)
{
    size_t i;
    json_t *row;
    json_array_foreach(report->consumers.rows, i, row)
    {
        const char *id = json_string_value(json_object_get(row, "requestId"));
        const char *type = json_string_value(json_object_get(row, "type"));
        if (id && type && strcmp(type, "SubAfter") == 0 && strcmp(id, begun->trace.request_id) == 0)
            return true;
    }
    return false;
}

/* Listeners that have not returned, or whose end is not known. */
static void add_unended(struct report *report)
{
    while (report->begun) {
        struct begun *begun = report->begun;
        report->begun = begun->next;
        if (!has_ended(report, begun))
            add_consumed(report, &begun->trace.record, begun->host, "begun");
        free(begun);
    }
}

static void print_report(struct report *report, bool json)
{
    if (json) {
        json_t *all = json_object();
        json_object_set_new(all, "producer", report->producers.rows);
        json_object_set_new(all, "consumer", report->consumers.rows);
        json_print(all);
        return;
    }
    bool both = json_array_size(report->consumers.rows) > 0;
    table_print(&report->producers, false);
    if (both)
        printf("\n");
    if (both)
        table_print(&report->consumers, false);
    else
        json_decref(report->consumers.rows);
}

static int run_trace(struct invocation *invocation)
{
    static const char *const sent[] = {"Type",     "ProducerGroup", "ClientHost",
                                       "SendTime", "CostTimes",     "Status",
                                       "Topic",    "StoreHost",     NULL};
    static const char *const sent_keys[] = {"type",   "group", "clientHost", "sendTime", "costMs",
                                            "status", "topic", "storeHost",  NULL};
    static const char *const got[] = {"Type",      "ConsumerGroup", "ClientHost", "ConsumerTime",
                                      "CostTimes", "Status",        "RequestId",  NULL};
    static const char *const got_keys[] = {"type",   "group",  "clientHost", "consumerTime",
                                           "costMs", "status", "requestId",  NULL};
    const char *topic = option_value(invocation, "traceTopic");
    struct report report = {.id = option_value(invocation, "msgId")};
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    int status = EXIT_DONE;

    topic = topic ? topic : TRACE_TOPIC;
    enum tern_code code =
        admin_topic_brokers(invocation->admin, topic, false, &brokers, &count, &err);
    if (code == TERN_TOPIC_NOT_EXIST)
        code =
            error_set(&err, code,
                      "no broker has the trace topic %s: start them with traceTopicEnable: true, "
                      "or name the clients' own with -t",
                      topic);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    count = command_keep_first(invocation, brokers, count);
    table_init(&report.producers, sent, sent_keys);
    table_init(&report.consumers, got, got_keys);
    for (size_t i = 0; i < count; i++)
        if ((code = ask_broker(invocation, &brokers[i], topic, &report, &err)) != TERN_OK)
            status = command_fail(invocation, code, &err);
    free(brokers);
    add_unended(&report);
    print_report(&report, invocation->json);
    if (status == EXIT_DONE && report.records == 0) {
        fprintf(stderr, "mqadmin: topic %s has no trace of %s\n", topic, report.id);
        status = EXIT_NO;
    }
    return status;
}

const struct command trace_commands[] = {
    {.name = "queryMsgTraceById",
     .other = "queryMsgTrace",
     .help = "who sent a message and who consumed it, from its trace",
     .example = "mqadmin queryMsgTraceById -i 7F0000010A7B18B4AAC248E51E500000",
     .options = {{'i', "msgId", "ID", true, "the message id (of the client, not the offset id)"},
                 {'t', "traceTopic", "TOPIC", false, "where the trace is (RMQ_SYS_TRACE_TOPIC)"}},
     .run = run_trace},
};
const size_t trace_command_count = sizeof trace_commands / sizeof trace_commands[0];
