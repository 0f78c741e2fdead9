/*
 * Reading back through a consumer group; one listener thread keeps the order of each queue. The
 * group's commits are watched meanwhile (verify_watch.c).
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/mqbench/verify.h"

enum { COMMIT_INTERVAL_MS = 500 };

struct verify_reader {
    struct verify *verify;
    struct tern_push_consumer *consumer;
    struct verify_watch *watch;
    char group[128];
};

void verify_take(struct verify *verify, const struct tern_message *const *messages, size_t count)
{
    pthread_mutex_lock(&verify->lock);
    verify_note_arrival(verify, count, bench_now_ns());
    for (size_t i = 0; i < count; i++) {
        struct verify_arrival arrival = {
            .broker = tern_message_broker_name(messages[i]),
            .queue_id = tern_message_queue_id(messages[i]),
            .queue_offset = tern_message_queue_offset(messages[i]),
            .store_ms = tern_message_store_ms(messages[i]),
            .mark = tern_message_property(messages[i], verify_mark_name),
        };
        arrival.body = tern_message_body(messages[i], &arrival.size);
        verify_note_message(verify, &arrival);
    }
    pthread_cond_broadcast(&verify->changed);
    pthread_mutex_unlock(&verify->lock);
}

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct verify_reader *reader = arg;
    verify_take(reader->verify, messages, count);
    return TERN_CONSUME_SUCCESS;
}

/* ---- life ---- */

static struct tern_consumer_options *make_options(const struct verify_reader *reader)
{
    struct tern_consumer_options *o = tern_consumer_options_create();
    if (o && (tern_consumer_options_namesrv(o, reader->verify->options->namesrv) != TERN_OK ||
              tern_consumer_options_group(o, reader->group) != TERN_OK ||
              tern_consumer_options_from(o, TERN_FROM_FIRST, 0) != TERN_OK ||
              tern_consumer_options_threads(o, 1) != TERN_OK ||
              tern_consumer_options_pull_batch(o, 64) != TERN_OK ||
              tern_consumer_options_consume_batch(o, 64) != TERN_OK ||
              tern_consumer_options_commit_interval_ms(o, COMMIT_INTERVAL_MS) != TERN_OK)) {
        tern_consumer_options_destroy(o);
        o = NULL;
    }
    return o;
}

static enum tern_code start_consumer(struct verify_reader *reader, struct tern_error *err)
{
    struct tern_consumer_options *o = make_options(reader);
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_push_consumer_create(o, &reader->consumer, err);
    if (code == TERN_OK)
        code = verify_subscribe(reader->verify, reader->consumer, err);
    if (code == TERN_OK)
        code = tern_push_consumer_listener(reader->consumer, on_messages, reader);
    if (code == TERN_OK)
        code = tern_push_consumer_start(reader->consumer, err);
    tern_consumer_options_destroy(o);
    return code;
}

struct verify_reader *verify_reader_start(struct verify *verify, int *status)
{
    struct tern_error err = {.text = ""};
    struct verify_reader *reader = calloc(1, sizeof *reader);
    if (!reader) {
        *status = bench_fail("verify", TERN_NO_MEMORY, NULL);
        return NULL;
    }
    reader->verify = verify;
    verify_group_name(verify, reader->group, sizeof reader->group);
    enum tern_code code = start_consumer(reader, &err);
    if (code == TERN_OK)
        reader->watch = verify_watch_start(verify, reader->group, &code, &err);
    *status = EXIT_OK;
    if (code != TERN_OK) {
        *status = bench_fail("starting the reader", code, &err);
        verify_reader_stop(reader);
        reader = NULL;
    }
    return reader;
}

void verify_reader_stop(struct verify_reader *reader)
{
    if (!reader)
        return;
    verify_watch_stop(reader->watch);
    if (reader->consumer) {
        enum tern_code code = tern_push_consumer_shutdown(reader->consumer, 5000);
        if (code != TERN_OK)
            (void)bench_fail("the reader did not stop cleanly", code, NULL);
        tern_push_consumer_destroy(reader->consumer);
    }
    free(reader);
}
