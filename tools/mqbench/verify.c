/* verify: the phases, the verdict, and its output. */
#include "tools/mqbench/verify.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static int make_streams(struct verify *verify)
{
    int status;
    size_t queue_count;
    struct tern_producer *producer =
        bench_producer(verify->options, "MQBENCH_VERIFY_PRODUCER", 10000, &status);
    struct tern_queue *queues =
        producer ? bench_queues(producer, verify->options->topic, &queue_count, &status) : NULL;
    tern_producer_destroy(producer);
    if (!queues)
        return status;
    verify->stream_count = queue_count * (size_t)verify->options->producers;
    verify->streams = calloc(verify->stream_count, sizeof *verify->streams);
    if (!verify->streams)
        status = bench_fail("verify", TERN_NO_MEMORY, NULL);
    for (size_t i = 0; status == EXIT_OK && i < verify->stream_count; i++) {
        verify->streams[i].queue = queues[i % queue_count];
        verify->streams[i].id = (uint32_t)i;
    }
    free(queues);
    return status;
}

/* The distinct queues of the streams. */
static int make_queues(struct verify *verify)
{
    verify->queues = calloc(verify->stream_count, sizeof *verify->queues);
    if (!verify->queues)
        return bench_fail("verify", TERN_NO_MEMORY, NULL);
    for (size_t i = 0; i < verify->stream_count; i++) {
        const struct tern_queue *queue = &verify->streams[i].queue;
        size_t at = 0;
        while (at < verify->queue_count &&
               memcmp(&verify->queues[at].queue, queue, sizeof *queue) != 0)
            at++;
        if (at == verify->queue_count) {
            verify->queues[at].queue = *queue;
            verify->queues[at].committed = -1;
            verify->queue_count++;
        }
    }
    return EXIT_OK;
}

/* Waits until everything acknowledged was seen, or nothing came for the drain time. */
static void drain(struct verify *verify)
{
    int64_t patience_ns = (int64_t)(verify->options->drain_seconds * 1e9);
    uint64_t acked, lost, unacked, before = UINT64_MAX;
    int64_t last_news_ns = bench_now_ns();

    pthread_mutex_lock(&verify->lock);
    for (;;) {
        int64_t now = bench_now_ns();
        verify_count(verify, &acked, &lost, &unacked);
        if (verify->received != before) {
            before = verify->received;
            last_news_ns = now;
        }
        if (lost == 0 || now - last_news_ns > patience_ns)
            break;
        struct timespec t = {(now + 200000000) / 1000000000, (now + 200000000) % 1000000000};
        pthread_cond_timedwait(&verify->changed, &verify->lock, &t);
    }
    pthread_mutex_unlock(&verify->lock);
}

static int verdict(struct verify *verify)
{
    uint64_t acked, lost, unacked;
    verify_count(verify, &acked, &lost, &unacked);
    int64_t send_gap_ms = verify->send_gap_ns / 1000000;
    int64_t receive_gap_ms = verify->receive_gap_ns / 1000000;
    bool good =
        acked > 0 && !lost && !verify->reordered && !verify->altered && !verify->offset_regressions;
    bench_progress_end();
    if (verify->options->json) {
        json_t *json = json_pack(
            "{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I}, s:I, s:I}", "ok", good,
            "acked", (json_int_t)acked, "lost", (json_int_t)lost, "duplicated",
            (json_int_t)verify->duplicated, "redelivered", (json_int_t)verify->redelivered,
            "reordered", (json_int_t)verify->reordered, "altered", (json_int_t)verify->altered,
            "unacked_but_present", (json_int_t)unacked, "offset_regressions",
            (json_int_t)verify->offset_regressions, "max_gap_ms", "send", (json_int_t)send_gap_ms,
            "receive", (json_int_t)receive_gap_ms, "send_errors", (json_int_t)verify->send_errors,
            "received", (json_int_t)verify->received);
        if (json)
            json_dumpf(json, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(json);
    } else {
        printf("acked %" PRIu64 "  lost %" PRIu64 "  reordered %" PRIu64 "  altered %" PRIu64
               "  duplicated %" PRIu64 "  redelivered %" PRIu64 "\n"
               "unacked_but_present %" PRIu64 "  offset_regressions %" PRIu64
               "  send errors %" PRIu64 "\nmax_gap_ms: send %" PRId64 "  receive %" PRId64 "\n%s\n",
               acked, lost, verify->reordered, verify->altered, verify->duplicated,
               verify->redelivered, unacked, verify->offset_regressions, verify->send_errors,
               send_gap_ms, receive_gap_ms, good ? "ok" : "FAILED");
    }
    fflush(stdout);
    return good ? EXIT_OK : EXIT_NO;
}

static void verify_fini(struct verify *verify)
{
    for (size_t i = 0; i < verify->stream_count && verify->streams; i++)
        free(verify->streams[i].seen);
    for (size_t i = 0; i < verify->queue_count; i++)
        free(verify->queues[i].ids);
    free(verify->streams);
    free(verify->queues);
    pthread_cond_destroy(&verify->changed);
    pthread_mutex_destroy(&verify->lock);
}

static void verify_init(struct verify *verify, const struct bench_options *options)
{
    pthread_condattr_t attr;
    *verify = (struct verify){.options = options, .run_id = options->seed};
    if (!verify->run_id &&
        getrandom(&verify->run_id, sizeof verify->run_id, 0) != sizeof verify->run_id)
        verify->run_id = (uint64_t)bench_now_ns();
    verify->run_id &= INT64_MAX; /* so that --seed can name it */
    pthread_mutex_init(&verify->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&verify->changed, &attr);
    pthread_condattr_destroy(&attr);
}

int bench_verify(const struct bench_options *options)
{
    struct verify verify;
    verify_init(&verify, options);
    bool finish_only = options->state_path && access(options->state_path, F_OK) == 0;
    int status =
        finish_only ? verify_state_load(&verify, options->state_path) : bench_ensure_topic(options);
    if (status == EXIT_OK && !finish_only)
        status = make_streams(&verify);
    if (status == EXIT_OK)
        status = make_queues(&verify);
    if (status == EXIT_OK && !options->json)
        fprintf(stderr, "mqbench: seed %" PRIu64 "\n", verify.run_id);
    struct verify_reader *reader = status == EXIT_OK ? verify_reader_start(&verify, &status) : NULL;
    if (reader) {
        verify.sending = !finish_only;
        if (!finish_only)
            status = verify_send(&verify);
        if (status == EXIT_OK && options->state_path && !finish_only)
            status = verify_state_save(&verify, options->state_path);
        if (status == EXIT_OK)
            drain(&verify);
        verify_reader_stop(reader);
        if (status == EXIT_OK)
            status = verdict(&verify);
    }
    verify_fini(&verify);
    return status;
}
