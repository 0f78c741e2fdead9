/*
 * Reading back through a consumer group, and watching that the group's committed offsets never
 * fall. One listener thread keeps the order of each queue.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/mqbench/verify.h"

enum { WATCH_PERIOD_NS = 200000000, COMMIT_INTERVAL_MS = 500 };

struct verify_reader {
    struct verify *verify;
    struct tern_push_consumer *consumer;
    struct tern_pull_consumer *watcher;
    pthread_t watch_thread;
    bool watching; /* the thread runs */
    bool stop;     /* under verify.lock */
    char group[128];
};

/* ---- findings ---- */

static bool grow(uint64_t **array, uint64_t *cap, uint64_t needed, uint64_t per_word)
{
    if (needed < *cap)
        return true;
    uint64_t wanted = *cap ? *cap * 2 : 4096;
    while (wanted <= needed)
        wanted *= 2;
    uint64_t *bigger = realloc(*array, wanted / per_word * sizeof *bigger);
    if (!bigger)
        return false;
    memset(bigger + *cap / per_word, 0, (wanted - *cap) / per_word * sizeof *bigger);
    *array = bigger;
    *cap = wanted;
    return true;
}

static struct verify_offsets *offsets_of(struct verify *verify, const char *broker, int32_t queue)
{
    for (size_t i = 0; i < verify->queue_count; i++)
        if (verify->queues[i].queue.queue_id == queue &&
            !strcmp(verify->queues[i].queue.broker_name, broker))
            return &verify->queues[i];
    return NULL;
}

/* Is this the first time at this offset; a different message at a known offset is an alteration. */
static bool note_offset(struct verify *verify, const struct tern_message *message, uint64_t id)
{
    struct verify_offsets *queue =
        offsets_of(verify, tern_message_broker_name(message), tern_message_queue_id(message));
    uint64_t offset = (uint64_t)tern_message_queue_offset(message);
    if (!queue || !grow(&queue->ids, &queue->cap, offset, 1)) {
        verify->altered++;
        return false;
    }
    if (queue->ids[offset] == 0) {
        queue->ids[offset] = id;
        return true;
    }
    if (queue->ids[offset] != id)
        verify->altered++;
    verify->redelivered++;
    return false;
}

static void note_number(struct verify *verify, struct verify_stream *stream, uint64_t number)
{
    if (!grow(&stream->seen, &stream->seen_cap, number, 64)) {
        verify->altered++;
        return;
    }
    uint64_t *word = &stream->seen[number / 64], bit = UINT64_C(1) << (number % 64);
    if (*word & bit) {
        verify->duplicated++;
        return;
    }
    *word |= bit;
    stream->seen_count++;
    if (number < stream->next_expected)
        verify->reordered++;
    else
        stream->next_expected = number + 1;
}

/* @locks holds:lock */
static void check(struct verify *verify, const struct tern_message *message)
{
    size_t size;
    const uint8_t *body = tern_message_body(message, &size);
    uint32_t stream;
    uint64_t number;
    switch (verify_parse(verify, body, size, &stream, &number)) {
    case 1:
        verify->foreign++;
        return;
    case 2:
        verify->altered++;
        return;
    default:
        break;
    }
    if (stream >= verify->stream_count || number >= (UINT64_C(1) << 40)) {
        verify->altered++;
        return;
    }
    const struct tern_queue *queue = &verify->streams[stream].queue;
    if (queue->queue_id != tern_message_queue_id(message) ||
        strcmp(queue->broker_name, tern_message_broker_name(message)))
        verify->altered++; /* in a queue it was not sent to */
    if (note_offset(verify, message, ((uint64_t)(stream + 1) << 40) | number))
        note_number(verify, &verify->streams[stream], number);
}

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct verify_reader *reader = arg;
    struct verify *verify = reader->verify;
    int64_t now = bench_now_ns();

    pthread_mutex_lock(&verify->lock);
    if (verify->sending && verify->last_receive_ns &&
        now - verify->last_receive_ns > verify->receive_gap_ns)
        verify->receive_gap_ns = now - verify->last_receive_ns;
    verify->last_receive_ns = now;
    for (size_t i = 0; i < count; i++)
        check(verify, messages[i]);
    verify->received += count;
    pthread_cond_broadcast(&verify->changed);
    pthread_mutex_unlock(&verify->lock);
    return TERN_CONSUME_SUCCESS;
}

void verify_count(const struct verify *verify, uint64_t *acked, uint64_t *lost,
                  uint64_t *unacked_present)
{
    *acked = *lost = *unacked_present = 0;
    for (size_t i = 0; i < verify->stream_count; i++) {
        const struct verify_stream *stream = &verify->streams[i];
        uint64_t seen_acked = 0;
        for (uint64_t n = 0; n < stream->acked && n < stream->seen_cap; n++)
            seen_acked += stream->seen[n / 64] >> (n % 64) & 1;
        *acked += stream->acked;
        *lost += stream->acked - seen_acked;
        *unacked_present += stream->seen_count - seen_acked;
    }
}

/* ---- committed offsets ---- */

static void look_at_offsets(struct verify_reader *reader)
{
    struct verify *verify = reader->verify;
    for (size_t i = 0; i < verify->queue_count; i++) {
        struct verify_offsets *queue = &verify->queues[i];
        int64_t offset;
        if (tern_pull_consumer_committed(reader->watcher, &queue->queue, &offset, NULL) != TERN_OK)
            continue; /* none yet, or the broker is away: says nothing */
        pthread_mutex_lock(&verify->lock);
        if (offset < queue->committed)
            verify->offset_regressions++;
        if (offset > queue->committed)
            queue->committed = offset;
        pthread_mutex_unlock(&verify->lock);
    }
}

static void *watch_main(void *arg)
{
    struct verify_reader *reader = arg;
    struct verify *verify = reader->verify;
    for (;;) {
        int64_t until = bench_now_ns() + WATCH_PERIOD_NS;
        pthread_mutex_lock(&verify->lock);
        while (!reader->stop && bench_now_ns() < until) {
            struct timespec t = {until / 1000000000, until % 1000000000};
            pthread_cond_timedwait(&verify->changed, &verify->lock, &t);
        }
        bool stop = reader->stop;
        pthread_mutex_unlock(&verify->lock);
        if (stop)
            return NULL;
        look_at_offsets(reader);
    }
}

/* ---- life ---- */

static struct tern_consumer_options *make_options(const struct verify_reader *reader,
                                                  const char *instance)
{
    struct tern_consumer_options *o = tern_consumer_options_create();
    if (o && (tern_consumer_options_namesrv(o, reader->verify->options->namesrv) != TERN_OK ||
              tern_consumer_options_group(o, reader->group) != TERN_OK ||
              (instance && tern_consumer_options_instance(o, instance) != TERN_OK) ||
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

static enum tern_code start_parts(struct verify_reader *reader, struct tern_error *err)
{
    char watcher_name[64];
    bench_unique_name(watcher_name, sizeof watcher_name, "watch");
    struct tern_consumer_options *o = make_options(reader, NULL);
    struct tern_consumer_options *w = make_options(reader, watcher_name);
    enum tern_code code = o && w ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_push_consumer_create(o, &reader->consumer, err);
    if (code == TERN_OK)
        code = tern_push_consumer_subscribe(reader->consumer, reader->verify->options->topic, "*",
                                            err);
    if (code == TERN_OK)
        code = tern_push_consumer_listener(reader->consumer, on_messages, reader);
    if (code == TERN_OK)
        code = tern_push_consumer_start(reader->consumer, err);
    if (code == TERN_OK)
        code = tern_pull_consumer_create(w, &reader->watcher, err);
    if (code == TERN_OK)
        code = tern_pull_consumer_start(reader->watcher, err);
    tern_consumer_options_destroy(o);
    tern_consumer_options_destroy(w);
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
    if (verify->options->group)
        snprintf(reader->group, sizeof reader->group, "%s", verify->options->group);
    else
        bench_unique_name(reader->group, sizeof reader->group, "MQBENCH_VERIFY");
    enum tern_code code = start_parts(reader, &err);
    if (code == TERN_OK && pthread_create(&reader->watch_thread, NULL, watch_main, reader) != 0)
        code = TERN_LIMIT;
    reader->watching = code == TERN_OK;
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
    pthread_mutex_lock(&reader->verify->lock);
    reader->stop = true;
    pthread_cond_broadcast(&reader->verify->changed);
    pthread_mutex_unlock(&reader->verify->lock);
    if (reader->watching)
        pthread_join(reader->watch_thread, NULL);
    if (reader->consumer) {
        if (tern_push_consumer_shutdown(reader->consumer, 5000) != TERN_OK)
            fprintf(stderr, "mqbench: the reader did not stop cleanly within 5 s\n");
        tern_push_consumer_destroy(reader->consumer);
    }
    if (reader->watcher)
        tern_pull_consumer_destroy(reader->watcher);
    free(reader);
}
