/*
 * A message that fails: NAMESRV_ADDR=127.0.0.1:9876 example_retry TOPIC GROUP sends one, fails it
 * twice, the second time for good, and then finds it among the group's dead letters.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include <tern/tern.h>

enum { QUEUES_MAX = 16, PATIENCE_S = 60 };

static void wait_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* Decides for each batch, here of one message, when it comes again. */
static enum tern_consume_result listen(void *arg, const struct tern_message *const *messages,
                                       size_t count, struct tern_consume_context *context)
{
    atomic_bool *given_up = arg;
    int failures = tern_message_reconsume_times(messages[0]);
    (void)count;
    printf("try %d\n", failures + 1);
    if (failures == 0) {
        context->delay_level_when_next_consume = 1; /* in a second; 0: in 10 s, 30 s, 1 min … */
        return TERN_RECONSUME_LATER;
    }
    context->delay_level_when_next_consume = -1; /* never again: to the dead letters */
    atomic_store(given_up, true);
    return TERN_RECONSUME_LATER;
}

static enum tern_code send_one(const char *topic, struct tern_error *err)
{
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_producer *producer = NULL;
    struct tern_message *message = NULL;
    enum tern_code code = options ? tern_producer_create(options, &producer, err) : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_producer_start(producer, err);
    if (code == TERN_OK)
        code = tern_message_create(topic, "poison", 6, &message, err);
    if (code == TERN_OK)
        code = tern_message_set_tag(message, "ToFail");
    if (code == TERN_OK)
        code = tern_producer_send(producer, message, NULL, err);
    tern_message_unref(message);
    tern_producer_destroy(producer);
    tern_producer_options_destroy(options);
    return code;
}

/* Dead letters are a topic like any other; it is made with the first of them. */
static enum tern_code print_dead_letters(struct tern_pull_consumer *reader, const char *group,
                                         struct tern_error *err)
{
    char topic[160];
    struct tern_queue queues[QUEUES_MAX];
    struct tern_pull_result result;
    size_t count = 0;
    snprintf(topic, sizeof topic, "%%DLQ%%%s", group);
    enum tern_code code = TERN_TOPIC_NOT_EXIST;
    for (int i = 0; i < PATIENCE_S * 10 && code == TERN_TOPIC_NOT_EXIST; i++) {
        wait_a_moment();
        code = tern_pull_consumer_queues(reader, topic, queues, QUEUES_MAX, &count, err);
    }
    for (size_t i = 0; code == TERN_OK && i < count && i < QUEUES_MAX; i++) {
        code = tern_pull_consumer_pull(reader, &queues[i], "*", 0, 32, 10000, &result, err);
        for (size_t j = 0; code == TERN_OK && j < result.count; j++)
            printf("dead letter: %s of topic %s, after %d tries\n",
                   tern_message_id(result.messages[j]),
                   tern_message_property(result.messages[j], "RETRY_TOPIC"),
                   tern_message_reconsume_times(result.messages[j]));
        if (code == TERN_OK)
            tern_pull_result_clear(&result);
    }
    return code;
}

int main(int argc, char **argv)
{
    atomic_bool given_up = false;
    struct tern_error err = {.text = "usage: example_retry TOPIC GROUP"};
    struct tern_consumer_options *options = tern_consumer_options_create();
    struct tern_push_consumer *consumer = NULL;
    struct tern_pull_consumer *reader = NULL;
    bool good = argc == 3 && options && tern_consumer_options_group(options, argv[2]) == TERN_OK &&
                tern_consumer_options_from(options, TERN_FROM_FIRST, 0) == TERN_OK &&
                tern_push_consumer_create(options, &consumer, &err) == TERN_OK &&
                tern_push_consumer_subscribe(consumer, argv[1], "ToFail", &err) == TERN_OK &&
                tern_push_consumer_context_listener(consumer, listen, &given_up) == TERN_OK &&
                tern_push_consumer_start(consumer, &err) == TERN_OK &&
                send_one(argv[1], &err) == TERN_OK;
    for (int i = 0; good && i < PATIENCE_S * 10 && !atomic_load(&given_up); i++)
        wait_a_moment();
    tern_push_consumer_destroy(consumer); /* waits for the listener and for what it sent back */
    good = good && tern_consumer_options_group(options, "dead_letter_reader") == TERN_OK &&
           tern_pull_consumer_create(options, &reader, &err) == TERN_OK &&
           tern_pull_consumer_start(reader, &err) == TERN_OK &&
           print_dead_letters(reader, argv[2], &err) == TERN_OK;
    if (!good)
        fprintf(stderr, "example_retry: %s\n", err.text);
    tern_pull_consumer_destroy(reader);
    tern_consumer_options_destroy(options);
    return good ? 0 : 1;
}
