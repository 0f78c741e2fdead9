/* Prints a topic from its beginning to its end: NAMESRV_ADDR=127.0.0.1:9876 example_pull_consumer
 * TOPIC. */
#include <stdio.h>

#include <tern/tern.h>

/* One queue from its first message on; keeps its own offset. */
static bool print_queue(struct tern_pull_consumer *consumer, const struct tern_queue *queue,
                        struct tern_error *err)
{
    int64_t offset;
    int64_t end;
    if (tern_pull_consumer_range(consumer, queue, &offset, &end, err) != TERN_OK)
        return false;
    while (offset < end) {
        struct tern_pull_result result;
        if (tern_pull_consumer_pull(consumer, queue, "*", offset, 32, 0, &result, err) != TERN_OK)
            return false;
        for (size_t i = 0; i < result.count; i++) {
            size_t size;
            const char *body = tern_message_body(result.messages[i], &size);
            printf("%d %lld %.*s\n", queue->queue_id,
                   (long long)tern_message_queue_offset(result.messages[i]), (int)size, body);
        }
        if (result.status == TERN_PULL_NO_NEW_MSG)
            end = offset;
        offset = result.next_offset;
        tern_pull_result_clear(&result);
    }
    return true;
}

int main(int argc, char **argv)
{
    struct tern_error err = {.text = "usage: example_pull_consumer TOPIC"};
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_pull_consumer *consumer = NULL;
    struct tern_queue queues[64];
    size_t count = 0;
    bool good = argc == 2 && options &&
                tern_consumer_options_group(options, "example") == TERN_OK &&
                tern_pull_consumer_create(options, &consumer, &err) == TERN_OK &&
                tern_pull_consumer_start(consumer, &err) == TERN_OK &&
                tern_pull_consumer_queues(consumer, argv[1], queues, 64, &count, &err) == TERN_OK;
    for (size_t i = 0; good && i < count && i < 64; i++)
        good = print_queue(consumer, &queues[i], &err);
    if (!good)
        fprintf(stderr, "example_pull_consumer: %s\n", err.text);
    tern_pull_consumer_destroy(consumer);
    tern_consumer_options_destroy(options);
    return good ? 0 : 1;
}
