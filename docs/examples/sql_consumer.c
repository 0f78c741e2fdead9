/*
 * A member of a group that gets only what fulfils a condition over the messages' properties:
 * NAMESRV_ADDR=127.0.0.1:9876 example_sql_consumer TOPIC GROUP "amount > 100", until Enter is
 * pressed.
 */
#include <stdio.h>

#include <tern/tern.h>

static enum tern_consume_result listen(void *arg, const struct tern_message *const *messages,
                                       size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        const char *amount = tern_message_property(messages[i], "amount");
        printf("%s amount=%s\n", tern_message_id(messages[i]), amount ? amount : "-");
    }
    return TERN_CONSUME_SUCCESS;
}

int main(int argc, char **argv)
{
    struct tern_error err = {.text = "usage: example_sql_consumer TOPIC GROUP CONDITION"};
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer = NULL;
    bool running = argc == 4 && options &&
                   tern_consumer_options_group(options, argv[2]) == TERN_OK &&
                   tern_consumer_options_from(options, TERN_FROM_FIRST, 0) == TERN_OK &&
                   tern_push_consumer_create(options, &consumer, &err) == TERN_OK &&
                   tern_push_consumer_subscribe_sql(consumer, argv[1], argv[3], &err) == TERN_OK &&
                   tern_push_consumer_listener(consumer, listen, NULL) == TERN_OK &&
                   tern_push_consumer_start(consumer, &err) == TERN_OK;
    if (running)
        getchar();
    else
        fprintf(stderr, "example_sql_consumer: %s\n", err.text);
    tern_push_consumer_destroy(consumer);
    tern_consumer_options_destroy(options);
    return running ? 0 : 1;
}
