/*
 * Request and reply: a consumer that answers, and a producer that waits for its answer; here in one
 * process, usually in two.
 *
 *   NAMESRV_ADDR=127.0.0.1:9876 example_request_reply TOPIC [REQUESTS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

enum { TIMEOUT_MS = 10000 };

/* The responder: its listener sends the reply like any other message, by a producer of its own. */
static enum tern_consume_result answer(void *arg, const struct tern_message *const *messages,
                                       size_t count)
{
    struct tern_producer *replier = arg;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        const char *body = tern_message_body(messages[i], &size);
        char text[128];
        int length = snprintf(text, sizeof text, "re: %.*s", (int)(size < 100 ? size : 100), body);
        struct tern_message *reply;
        struct tern_error err;
        /* A message that is no request is consumed and not answered. */
        if (tern_reply_message_create(messages[i], text, (size_t)length, &reply, &err) != TERN_OK)
            continue;
        enum tern_code code = tern_producer_send(replier, reply, NULL, &err);
        tern_message_unref(reply);
        if (code != TERN_OK)
            return TERN_RECONSUME_LATER; /* it comes again, and is answered then */
    }
    return TERN_CONSUME_SUCCESS;
}

static enum tern_code start_responder(const char *topic, struct tern_producer *replier,
                                      struct tern_push_consumer **out, struct tern_error *err)
{
    struct tern_consumer_options *options = tern_consumer_options_create();
    enum tern_code code = options ? TERN_OK : TERN_NO_MEMORY;
    *out = NULL;
    if (code == TERN_OK)
        code = tern_consumer_options_group(options, "example-responders");
    if (code == TERN_OK) /* a new group that begins at the end may begin behind the first request */
        code = tern_consumer_options_from(options, TERN_FROM_FIRST, 0);
    if (code == TERN_OK)
        code = tern_push_consumer_create(options, out, err);
    tern_consumer_options_destroy(options);
    if (code == TERN_OK)
        code = tern_push_consumer_subscribe(*out, topic, "*", err);
    if (code == TERN_OK)
        code = tern_push_consumer_listener(*out, answer, replier);
    if (code == TERN_OK)
        code = tern_push_consumer_start(*out, err);
    return code;
}

static enum tern_code ask(struct tern_producer *producer, const char *topic, int number,
                          struct tern_error *err)
{
    char text[64];
    struct tern_message *request;
    struct tern_message *reply;
    int length = snprintf(text, sizeof text, "question %d", number);
    enum tern_code code = tern_message_create(topic, text, (size_t)length, &request, err);
    if (code != TERN_OK)
        return code;
    code = tern_producer_request(producer, request, TIMEOUT_MS, &reply, err);
    tern_message_unref(request);
    if (code != TERN_OK)
        return code;
    size_t size;
    const char *body = tern_message_body(reply, &size);
    printf("%s -> %.*s\n", text, (int)size, body);
    tern_message_unref(reply);
    return TERN_OK;
}

int main(int argc, char **argv)
{
    int requests = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 3;
    struct tern_error err = {.text = ""};
    struct tern_producer *producer = NULL;
    struct tern_push_consumer *responder = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: %s TOPIC [REQUESTS]\n", argv[0]);
        return 2;
    }
    struct tern_producer_options *options = tern_producer_options_create();
    enum tern_code code = options ? tern_producer_create(options, &producer, &err) : TERN_NO_MEMORY;
    tern_producer_options_destroy(options);
    if (code == TERN_OK)
        code = tern_producer_start(producer, &err);
    if (code == TERN_OK)
        code = start_responder(argv[1], producer, &responder, &err);
    for (int i = 0; i < requests && code == TERN_OK; i++)
        code = ask(producer, argv[1], i, &err);
    tern_push_consumer_destroy(responder);
    tern_producer_destroy(producer);
    if (code != TERN_OK)
        fprintf(stderr, "%s: %s\n", tern_code_text(code), err.text);
    return code == TERN_OK ? 0 : 1;
}
