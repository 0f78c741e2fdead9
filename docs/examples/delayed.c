/*
 * Delayed messages: one after a delay level, one at a time of its own, one taken back.
 *
 *   NAMESRV_ADDR=127.0.0.1:9876 example_delayed TOPIC
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <tern/tern.h>

static int failed(const char *what, const struct tern_error *err)
{
    fprintf(stderr, "%s: %s: %s\n", what, tern_code_text(err->code), err->text);
    return 1;
}

enum kind { AFTER_FIVE_SECONDS, AT_A_TIME, TAKEN_BACK };

static enum tern_code set_delay(struct tern_message *message, enum kind kind)
{
    if (kind == AFTER_FIVE_SECONDS)
        return tern_message_set_delay_level(message, 2);
    if (kind == AT_A_TIME)
        return tern_message_set_deliver_at_ms(message, ((int64_t)time(NULL) + 3) * 1000);
    return tern_message_set_delay_ms(message, 60000);
}

static int send_delayed(struct tern_producer *producer, const char *topic, enum kind kind)
{
    static const char *const bodies[] = {"after level 2", "at a time of its own", "never seen"};
    struct tern_error err;
    struct tern_message *message;
    struct tern_send_result result;
    if (tern_message_create(topic, bodies[kind], strlen(bodies[kind]), &message, &err) != TERN_OK)
        return failed("message", &err);
    enum tern_code code = set_delay(message, kind);
    if (code != TERN_OK)
        err = (struct tern_error){.code = code, .text = "no such delay"};
    else
        code = tern_producer_send(producer, message, &result, &err);
    tern_message_unref(message);
    if (code != TERN_OK)
        return failed("send", &err);
    printf("%s waits: %s\n", result.message_id, bodies[kind]);
    if (kind != TAKEN_BACK)
        return 0;
    if (tern_producer_cancel(producer, &result, &err) != TERN_OK)
        return failed("cancel", &err);
    printf("%s is taken back\n", result.message_id);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s TOPIC\n", argv[0]);
        return 2;
    }
    struct tern_error err;
    struct tern_producer *producer = NULL;
    struct tern_producer_options *options = tern_producer_options_create();
    if (!options || tern_producer_options_group(options, "example_delayed") != TERN_OK)
        return 1;
    enum tern_code code = tern_producer_create(options, &producer, &err);
    tern_producer_options_destroy(options);
    if (code == TERN_OK)
        code = tern_producer_start(producer, &err);
    int status = code == TERN_OK ? 0 : failed("producer", &err);
    for (int kind = AFTER_FIVE_SECONDS; kind <= TAKEN_BACK && status == 0; kind++)
        status = send_delayed(producer, argv[1], (enum kind)kind);
    tern_producer_destroy(producer);
    return status;
}
