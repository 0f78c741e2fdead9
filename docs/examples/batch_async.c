/*
 * Throughput: batches of small messages, several batches under way at a time, results by callback.
 *
 *   NAMESRV_ADDR=127.0.0.1:9876 example_batch_async TOPIC [BATCHES]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <tern/tern.h>

enum { BATCH = 64, UNDER_WAY_MAX = 8 };

/* What the callbacks and the sender share. */
struct progress {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int under_way;
    long stored, failed;
};

/* Comes on a thread of the library, once per accepted send: note the result and leave. */
static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err)
{
    struct progress *progress = arg;
    (void)result;
    pthread_mutex_lock(&progress->mutex);
    if (code == TERN_OK) {
        progress->stored += BATCH;
    } else {
        progress->failed += BATCH;
        if (progress->failed == BATCH)
            fprintf(stderr, "first failure: %s: %s\n", tern_code_text(code), err->text);
    }
    progress->under_way--;
    pthread_cond_signal(&progress->changed);
    pthread_mutex_unlock(&progress->mutex);
}

static void wait_below(struct progress *progress, int limit)
{
    pthread_mutex_lock(&progress->mutex);
    while (progress->under_way >= limit)
        pthread_cond_wait(&progress->changed, &progress->mutex);
    progress->under_way++;
    pthread_mutex_unlock(&progress->mutex);
}

static enum tern_code send_batch(struct tern_producer *producer, const char *topic, long number,
                                 struct progress *progress, struct tern_error *err)
{
    struct tern_message *messages[BATCH] = {0};
    enum tern_code code = TERN_OK;
    for (int i = 0; i < BATCH && code == TERN_OK; i++) {
        char body[64];
        int length = snprintf(body, sizeof body, "batch %ld message %d", number, i);
        code = tern_message_create(topic, body, (size_t)length, &messages[i], err);
    }
    if (code == TERN_OK)
        code = tern_producer_send_async(producer, messages, BATCH, NULL, on_sent, progress, err);
    /* The library holds its own references until the callback. */
    for (int i = 0; i < BATCH; i++)
        tern_message_unref(messages[i]);
    return code;
}

static enum tern_code send_all(struct tern_producer *producer, const char *topic, long batches,
                               struct progress *progress, struct tern_error *err)
{
    for (long i = 0; i < batches; i++) {
        wait_below(progress, UNDER_WAY_MAX);
        enum tern_code code = send_batch(producer, topic, i, progress, err);
        if (code != TERN_OK)
            return code; /* not accepted: no callback will come for this one */
    }
    return TERN_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s TOPIC [BATCHES]\n", argv[0]);
        return 2;
    }
    long batches = argc > 2 ? strtol(argv[2], NULL, 10) : 100;
    struct progress progress = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER};
    struct tern_error err;
    struct tern_producer *producer = NULL;
    struct tern_producer_options *options = tern_producer_options_create();
    if (!options)
        return 1;
    enum tern_code code = tern_producer_create(options, &producer, &err);
    tern_producer_options_destroy(options);
    if (code == TERN_OK)
        code = tern_producer_start(producer, &err);
    if (code == TERN_OK)
        code = send_all(producer, argv[1], batches, &progress, &err);
    if (code != TERN_OK)
        fprintf(stderr, "%s: %s\n", tern_code_text(code), err.text);
    tern_producer_destroy(producer); /* waits until every callback has come */
    printf("%ld stored, %ld failed\n", progress.stored, progress.failed);
    return code == TERN_OK && progress.failed == 0 ? 0 : 1;
}
