/*
 * sendMessage: one message from -p or --file, or one a line from stdin with --lines (pipe_lines.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "tools/mqadmin/pipe.h"
#include "tools/mqadmin/pipe_send.h"

enum { SEND_TIMEOUT_MS = 5000 };

/* ---- one message ---- */

/* Its trace and delay, once for all its messages. EXIT_DONE, or EXIT_USAGE and said. */
static int read_extras(struct sender *sender)
{
    struct invocation *invocation = sender->invocation;
    if (!option_bool(invocation, "msgTraceEnable", false, &sender->trace) ||
        !option_number(invocation, "delay-level", 0, 64, 0, &sender->delay_level) ||
        !option_number(invocation, "deliver-at", 0, INT64_MAX / 2, 0, &sender->deliver_at_ms))
        return EXIT_USAGE;
    if (sender->delay_level && sender->deliver_at_ms)
        return command_usage(invocation, "--delay-level and --deliver-at: a message has one delay");
    return EXIT_DONE;
}

static enum tern_code apply_delay(const struct sender *sender, struct tern_message *message,
                                  struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    if (sender->delay_level)
        code = tern_message_set_delay_level(message, (int)sender->delay_level);
    if (code == TERN_OK && sender->deliver_at_ms)
        code = tern_message_set_deliver_at_ms(message, sender->deliver_at_ms);
    return code ? error_set(err, code, "the delay does not fit into the properties") : TERN_OK;
}

static enum tern_code apply_property(const char *text, struct tern_message *message,
                                     struct tern_error *err)
{
    char name[256];
    const char *equals = strchr(text, '=');
    size_t len = equals ? (size_t)(equals - text) : 0;
    if (!len || len >= sizeof name)
        return error_set(err, TERN_INVALID, "--property: '%.64s' is not name=value", text);
    memcpy(name, text, len);
    name[len] = 0;
    enum tern_code code = tern_message_set_property(message, name, equals + 1);
    if (code == TERN_TOO_LARGE)
        return error_set(err, code, "--property: with %s all properties exceed 32767 bytes", name);
    return code ? error_set(err, code,
                            "--property: %s cannot be set: its value is empty or holds \\x01 or "
                            "\\x02, or the name is one of the system's",
                            name)
                : TERN_OK;
}

static enum tern_code apply_options(const struct sender *sender, struct tern_message *message,
                                    struct tern_error *err)
{
    const struct invocation *invocation = sender->invocation;
    const char *tag = option_value(invocation, "tags"), *keys = option_value(invocation, "keys");
    enum tern_code code = TERN_OK;
    if (tag && (code = tern_message_set_tag(message, tag)) != TERN_OK)
        return error_set(err, code, "-c: '%s' is no tag", tag);
    if (keys && (code = tern_message_set_keys(message, keys)) != TERN_OK)
        return error_set(err, code, "-k: '%s' are no keys", keys);
    if ((code = apply_delay(sender, message, err)) != TERN_OK)
        return code;
    for (size_t i = 0; code == TERN_OK && i < invocation->repeated_count; i++)
        code = apply_property(invocation->repeated[i], message, err);
    return code;
}

enum tern_code sender_message(const struct sender *sender, const void *body, size_t size,
                              struct tern_message **out, struct tern_error *err)
{
    enum tern_code code = tern_message_create(sender->topic, body, size, out, err);
    if (code == TERN_OK && (code = apply_options(sender, *out, err)) != TERN_OK)
        tern_message_unref(*out);
    return code;
}

static int print_result(const struct invocation *invocation, const struct tern_send_result *result)
{
    static const char *const columns[] = {"Broker Name", "QID",         "Send Result",
                                          "MsgId",       "OffsetMsgId", NULL};
    static const char *const keys[] = {"brokerName", "queueId",     "sendResult",
                                       "msgId",      "offsetMsgId", NULL};
    struct table table;
    const char *status = result->status == TERN_OK ? "SEND_OK" : tern_code_name(result->status);
    table_init(&table, columns, keys);
    table_add(&table, (json_t *[]){text_of(result->queue.broker_name),
                                   number_of(result->queue.queue_id), text_of(status),
                                   text_of(result->message_id), text_of(result->offset_id)});
    table_print(&table, invocation->json);
    return result->status == TERN_OK ? EXIT_DONE : EXIT_NO;
}

static int send_one(struct sender *sender, const void *body, size_t size)
{
    struct tern_send_result result;
    struct tern_error err = {.text = ""};
    struct tern_message *message;
    enum tern_code code = sender_message(sender, body, size, &message, &err);
    if (code != TERN_OK)
        return command_fail(sender->invocation, code, &err);
    code = option_given(sender->invocation, "brokerName")
               ? tern_producer_send_to(sender->producer, message, &sender->queues[0], &result, &err)
               : tern_producer_send(sender->producer, message, &result, &err);
    tern_message_unref(message);
    return code == TERN_OK ? print_result(sender->invocation, &result)
                           : command_fail(sender->invocation, code, &err);
}

static int send_file(struct sender *sender, const char *path)
{
    struct tern_error err;
    FILE *file = !strcmp(path, "-") ? stdin : fopen(path, "rb");
    if (!file) {
        error_set(&err, TERN_NOT_FOUND, "--file: %s: %s", path, strerror(errno));
        return command_fail(sender->invocation, TERN_NOT_FOUND, &err);
    }
    char *body = malloc(SENDER_BODY_MAX + 1);
    size_t size = body ? fread(body, 1, SENDER_BODY_MAX + 1, file) : 0;
    int status;
    if (!body || ferror(file) || size > SENDER_BODY_MAX) {
        error_set(&err, TERN_TOO_LARGE, "--file: %s: cannot be read, or is above %d bytes", path,
                  SENDER_BODY_MAX);
        status = command_fail(sender->invocation, TERN_TOO_LARGE, &err);
    } else {
        status = send_one(sender, body, size);
    }
    if (file != stdin)
        fclose(file);
    free(body);
    return status;
}

/* ---- the command ---- */

static enum tern_code start_producer(struct sender *sender, struct tern_error *err)
{
    struct tern_producer_options *o = tern_producer_options_create();
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_producer_options_namesrv(o, sender->invocation->namesrv);
    if (code == TERN_OK)
        code = tern_producer_options_group(o, "TOOLS_PRODUCER");
    if (code == TERN_OK)
        code = tern_producer_options_send_timeout_ms(o, SEND_TIMEOUT_MS);
    if (code == TERN_OK)
        code = tern_producer_options_max_message_bytes(o, SENDER_BODY_MAX);
    if (code == TERN_OK && sender->trace)
        code = tern_producer_options_trace(o, true, NULL);
    if (code == TERN_OK)
        code = tern_producer_create(o, &sender->producer, err);
    tern_producer_options_destroy(o);
    return code == TERN_OK ? tern_producer_start(sender->producer, err) : code;
}

/* The topic is known, yet nobody takes sends: no master is there, or none may be written to. */
static enum tern_code explain_no_queue(const struct sender *sender, struct tern_error *err)
{
    struct admin_broker *masters = NULL;
    size_t count = 0;
    enum tern_code code =
        admin_topic_brokers(sender->invocation->admin, sender->topic, true, &masters, &count, err);
    free(masters);
    if (code != TERN_OK)
        return code;
    if (count > 0)
        return error_set(err, TERN_NO_PERMISSION,
                         "topic %s has no writable queue: its permission, or that of its brokers "
                         "(wipeWritePerm), does not allow sends",
                         sender->topic);
    return error_set(err, TERN_UNREACHABLE,
                     "topic %s has no writable queue now: no master of it is registered",
                     sender->topic);
}

static enum tern_code choose_queues(struct sender *sender, int64_t queue_id, struct tern_error *err)
{
    const char *broker = option_value(sender->invocation, "brokerName");
    if (broker) {
        snprintf(sender->queues[0].topic, sizeof sender->queues[0].topic, "%s", sender->topic);
        snprintf(sender->queues[0].broker_name, sizeof sender->queues[0].broker_name, "%s", broker);
        sender->queues[0].queue_id = (int32_t)queue_id;
        sender->queue_count = 1;
        return TERN_OK;
    }
    enum tern_code code = tern_producer_queues(sender->producer, sender->topic, sender->queues,
                                               SENDER_QUEUES_MAX, &sender->queue_count, err);
    /* A single send may yet make the topic (autoCreateTopicEnable), or says that it cannot. */
    if (code == TERN_TOPIC_NOT_EXIST && !option_given(sender->invocation, "lines"))
        return TERN_OK;
    if (code == TERN_OK && sender->queue_count > SENDER_QUEUES_MAX)
        sender->queue_count = SENDER_QUEUES_MAX;
    if (code == TERN_OK && sender->queue_count == 0)
        code = explain_no_queue(sender, err);
    return code;
}

static int check_sources(const struct invocation *invocation)
{
    int sources = option_given(invocation, "body") + option_given(invocation, "file") +
                  option_given(invocation, "lines");
    if (sources != 1)
        return command_usage(invocation, "exactly one of -p, --file and --lines is required");
    if (option_given(invocation, "brokerName") != option_given(invocation, "qid"))
        return command_usage(invocation, "-b and -i belong together");
    return EXIT_DONE;
}

int pipe_send(struct invocation *invocation)
{
    struct tern_error err = {.text = ""};
    int64_t queue_id;
    int status = check_sources(invocation);
    if (status != EXIT_DONE)
        return status;
    if (!option_number(invocation, "qid", 0, 65535, 0, &queue_id))
        return EXIT_USAGE;
    struct sender *sender = calloc(1, sizeof *sender);
    if (!sender)
        return command_fail(invocation, TERN_NO_MEMORY, NULL);
    sender->invocation = invocation;
    sender->topic = option_value(invocation, "topic");
    if ((status = read_extras(sender)) != EXIT_DONE) {
        free(sender);
        return status;
    }
    enum tern_code code = start_producer(sender, &err);
    if (code == TERN_OK)
        code = choose_queues(sender, queue_id, &err);
    const char *body = option_value(invocation, "body");
    if (code != TERN_OK)
        status = command_fail(invocation, code, &err);
    else if (body)
        status = send_one(sender, body, strlen(body));
    else if (option_given(invocation, "file"))
        status = send_file(sender, option_value(invocation, "file"));
    else
        status = send_lines(sender);
    tern_producer_destroy(sender->producer);
    free(sender);
    return status;
}
