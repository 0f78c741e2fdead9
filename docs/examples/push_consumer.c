/* A member of a group: NAMESRV_ADDR=127.0.0.1:9876 example_push_consumer TOPIC GROUP, until Enter
 * is pressed. */
#include <stdio.h>

#include <tern/tern.h>

static enum tern_consume_result listen(void *arg, const struct tern_message *const *messages,
                                       size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        const char *body = tern_message_body(messages[i], &size);
        printf("%s %.*s\n", tern_message_id(messages[i]), (int)size, body);
    }
    return TERN_CONSUME_SUCCESS; /* TERN_RECONSUME_LATER: try again later */
}

int main(int argc, char **argv)
{
    struct tern_error err = {.text = "usage: example_push_consumer TOPIC GROUP"};
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer = NULL;
    bool running = argc == 3 && options &&
                   tern_consumer_options_group(options, argv[2]) == TERN_OK &&
                   tern_consumer_options_from(options, TERN_FROM_FIRST, 0) == TERN_OK &&
                   tern_push_consumer_create(options, &consumer, &err) == TERN_OK &&
                   tern_push_consumer_subscribe(consumer, argv[1], "*", &err) == TERN_OK &&
                   tern_push_consumer_listener(consumer, listen, NULL) == TERN_OK &&
                   tern_push_consumer_start(consumer, &err) == TERN_OK;
    if (running)
        getchar();
    else
        fprintf(stderr, "example_push_consumer: %s\n", err.text);
    tern_push_consumer_destroy(consumer); /* waits for listeners, commits, leaves the group */
    tern_consumer_options_destroy(options);
    return running ? 0 : 1;
}
