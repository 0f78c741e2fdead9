/* Messages in order: NAMESRV_ADDR=127.0.0.1:9876 example_orderly TOPIC GROUP KEY… sends three steps
 * of each key, and consumes in order until Enter is pressed. */
#include <stdio.h>

#include <tern/tern.h>

static enum tern_orderly_result listen(void *arg, const struct tern_message *const *messages,
                                       size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        const char *body = tern_message_body(messages[i], &size);
        printf("queue %d: %.*s\n", tern_message_queue_id(messages[i]), (int)size, body);
    }
    fflush(stdout);
    return TERN_ORDERLY_SUCCESS; /* TERN_ORDERLY_SUSPEND_CURRENT_QUEUE_A_MOMENT: the same again */
}

/* All messages of a key go to one queue, by a hash of the key. */
static enum tern_code send_step(struct tern_producer *producer, const char *topic, char *key,
                                int step, struct tern_error *err)
{
    char body[256];
    struct tern_message *message;
    int size = snprintf(body, sizeof body, "%s step %d", key, step);
    size_t length = (size_t)size < sizeof body ? (size_t)size : sizeof body - 1;
    enum tern_code code = tern_message_create(topic, body, length, &message, err);
    if (code == TERN_OK) {
        code = tern_producer_send_select(producer, message, tern_select_by_hash, key, NULL, err);
        tern_message_unref(message);
    }
    return code;
}

static enum tern_code send_all(const char *topic, char **keys, int count, struct tern_error *err)
{
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_producer *producer = NULL;
    enum tern_code code = options ? tern_producer_create(options, &producer, err) : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_producer_start(producer, err);
    for (int step = 1; step <= 3 && code == TERN_OK; step++)
        for (int i = 0; i < count && code == TERN_OK; i++)
            code = send_step(producer, topic, keys[i], step, err);
    tern_producer_destroy(producer);
    tern_producer_options_destroy(options);
    return code;
}

int main(int argc, char **argv)
{
    struct tern_error err = {.text = "usage: example_orderly TOPIC GROUP KEY..."};
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer = NULL;
    bool running = argc >= 4 && options &&
                   tern_consumer_options_group(options, argv[2]) == TERN_OK &&
                   tern_consumer_options_from(options, TERN_FROM_FIRST, 0) == TERN_OK &&
                   tern_push_consumer_create(options, &consumer, &err) == TERN_OK &&
                   tern_push_consumer_subscribe(consumer, argv[1], "*", &err) == TERN_OK &&
                   tern_push_consumer_listener_orderly(consumer, listen, NULL) == TERN_OK &&
                   tern_push_consumer_start(consumer, &err) == TERN_OK &&
                   send_all(argv[1], &argv[3], argc - 3, &err) == TERN_OK;
    if (running)
        getchar();
    else
        fprintf(stderr, "example_orderly: %s\n", err.text);
    tern_push_consumer_destroy(consumer); /* waits for listeners, commits, gives queues back */
    tern_consumer_options_destroy(options);
    return running ? 0 : 1;
}
