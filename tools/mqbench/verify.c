/* verify: the phases, the verdict, and its output. */
#include "tools/mqbench/verify.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* After the last message that was missing: what else comes belongs to the figures, too. */
enum { LINGER_NS = 500000000 };

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
            verify->queues[at].delivered = verify->queues[at].promised = -1;
            verify->queue_count++;
        }
    }
    return EXIT_OK;
}

/*
 * Waits until everything acknowledged was seen and nothing more comes, or nothing came for the
 * drain time: brokers may be on their way back.
 */
static void drain(struct verify *verify)
{
    int64_t patience_ns = (int64_t)(verify->options->drain_seconds * 1e9);
    uint64_t before = UINT64_MAX;
    int64_t now = bench_now_ns(), news_ns = now;

    pthread_mutex_lock(&verify->lock);
    for (;; now = bench_now_ns()) {
        if (verify->received != before) {
            before = verify->received;
            news_ns = now;
        }
        if (now - news_ns > (verify->waiting == 0 ? LINGER_NS : patience_ns))
            break;
        bench_progress("draining: %" PRIu64 " of %" PRIu64 " acknowledged still to come",
                       verify->waiting, verify->acked);
        int64_t until = now + LINGER_NS / 5;
        struct timespec t = {until / 1000000000, until % 1000000000};
        pthread_cond_timedwait(&verify->changed, &verify->lock, &t);
    }
    pthread_mutex_unlock(&verify->lock);
}

/* ---- the verdict ---- */

static int64_t longest_ms(const struct verify_gap *gap)
{
    return gap->longest_ns / 1000000;
}

static void print_json(const struct verify *v, bool good, uint64_t unacked)
{
    json_t *json = json_pack(
        "{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ok", good, "acked",
        (json_int_t)v->acked, "lost", (json_int_t)v->waiting, "duplicated",
        (json_int_t)v->duplicated, "duplicated_unexplained", (json_int_t)v->duplicated_unexplained,
        "redelivered", (json_int_t)v->redelivered, "reordered", (json_int_t)v->reordered, "altered",
        (json_int_t)v->altered, "unacked_but_present", (json_int_t)unacked, "offset_regressions",
        (json_int_t)v->offset_regressions);
    if (json) {
        json_object_set_new(json, "max_gap_ms",
                            json_pack("{s:I, s:I}", "send", (json_int_t)longest_ms(&v->send_gap),
                                      "receive", (json_int_t)longest_ms(&v->receive_gap)));
        json_object_set_new(json, "max_wait_ms", json_integer(longest_ms(&v->wait_gap)));
        json_object_set_new(json, "send_errors", json_integer((json_int_t)v->send_errors));
        json_object_set_new(json, "received", json_integer((json_int_t)v->received));
        if (v->options->orderly) {
            json_object_set_new(json, "overlapped", json_integer((json_int_t)v->overlapped));
            json_object_set_new(json, "moves", json_integer((json_int_t)v->moves));
        }
        json_dumpf(json, stdout, JSON_COMPACT);
    }
    putchar('\n');
    json_decref(json);
}

static void print_text(const struct verify *v, bool good, uint64_t unacked)
{
    printf("acked %" PRIu64 "  lost %" PRIu64 "  reordered %" PRIu64 "  altered %" PRIu64
           "  duplicated %" PRIu64 " (unexplained %" PRIu64 ")  redelivered %" PRIu64
           "\nunacked_but_present %" PRIu64 "  offset_regressions %" PRIu64 "  send errors %" PRIu64
           "\nmax_gap_ms: send %" PRId64 "  receive %" PRId64 "  max_wait_ms: %" PRId64 "\n%s\n",
           v->acked, v->waiting, v->reordered, v->altered, v->duplicated, v->duplicated_unexplained,
           v->redelivered, unacked, v->offset_regressions, v->send_errors, longest_ms(&v->send_gap),
           longest_ms(&v->receive_gap), longest_ms(&v->wait_gap), good ? "ok" : "FAILED");
    if (v->options->orderly)
        printf("orderly: overlapped %" PRIu64 "  members that joined or left %" PRIu32 "\n",
               v->overlapped, v->moves);
}

static int verdict(const struct verify *verify)
{
    uint64_t unacked = verify->seen - (verify->acked - verify->waiting);
    bool good = verify->acked > 0 && !verify->waiting && !verify->reordered && !verify->altered &&
                !verify->duplicated_unexplained && !verify->offset_regressions &&
                !verify->overlapped;
    bench_progress_end();
    if (verify->options->json)
        print_json(verify, good, unacked);
    else
        print_text(verify, good, unacked);
    fflush(stdout);
    return good ? EXIT_OK : EXIT_NO;
}

static void verify_fini(struct verify *verify)
{
    for (size_t i = 0; i < verify->stream_count && verify->streams; i++) {
        free(verify->streams[i].seen);
        free(verify->streams[i].retries);
    }
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

static int check(struct verify *verify, bool finish_only)
{
    int status = EXIT_OK;
    if (!finish_only)
        status = verify_send(verify);
    if (status == EXIT_OK && verify->options->state_path && !finish_only)
        status = verify_state_save(verify, verify->options->state_path);
    if (status == EXIT_OK)
        drain(verify);
    return status;
}

int bench_verify(const struct bench_options *options)
{
    struct verify verify;
    struct verify_reader *reader = NULL;
    struct verify_slaves *slaves = NULL;
    struct verify_orderly *orderly = NULL;
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
    if (status == EXIT_OK && options->from_slave)
        slaves = verify_slaves_start(&verify, &status);
    else if (status == EXIT_OK && options->orderly)
        orderly = verify_orderly_start(&verify, &status);
    else if (status == EXIT_OK)
        reader = verify_reader_start(&verify, &status);
    if (reader || slaves || orderly) {
        status = check(&verify, finish_only);
        verify_reader_stop(reader);
        verify_slaves_stop(slaves);
        verify_orderly_stop(orderly);
        if (status == EXIT_OK)
            status = verdict(&verify);
    }
    verify_fini(&verify);
    return status;
}
