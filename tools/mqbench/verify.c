/* verify: the phases. */
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
static const int64_t linger_undecided_ns = 3000000000; /* a round of questions */
static const int64_t linger_failed_ns = 8000000000; /* a try of the consumer's own, and another */
enum { START_PAUSE_NS = 500000000 };

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

int verify_make_queues(struct verify *verify)
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
 * drain time: brokers may be on their way back, messages not due yet, transactions undecided.
 */
static void drain(struct verify *verify)
{
    const struct bench_options *o = verify->options;
    int64_t patience_ns = (int64_t)(o->drain_seconds * 1e9);
    int64_t linger_ns = o->check == CHECK_TRANSACTIONAL ? linger_undecided_ns
                        : o->check == CHECK_FAILING     ? linger_failed_ns
                                                        : LINGER_NS;
    uint64_t before = UINT64_MAX;
    int64_t now = bench_now_ns(), due_ns = now + o->delayed_ms * 1000000, news_ns = now;

    pthread_mutex_lock(&verify->lock);
    for (;; now = bench_now_ns()) {
        /* What fails for ever comes for ever, and is no news. */
        uint64_t come = o->check == CHECK_FAILING ? verify->seen : verify->received;
        if (come != before || now < due_ns) {
            before = come;
            news_ns = now;
        }
        if (now - news_ns > (verify->waiting == 0 ? linger_ns : patience_ns))
            break;
        bench_progress("draining: %" PRIu64 " of %" PRIu64 " acknowledged still to come",
                       verify->waiting, verify->acked);
        verify_wait_until(verify, now + LINGER_NS / 5);
    }
    pthread_mutex_unlock(&verify->lock);
}

/* ---- life ---- */

void verify_fini(struct verify *verify)
{
    verify_lives_fini(verify);
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

void verify_init(struct verify *verify, const struct bench_options *options)
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

/* ---- the run ---- */

/* Who reads. */
struct readers {
    struct verify_reader *group;
    struct verify_slaves *slaves;
    struct verify_orderly *orderly;
    struct verify_views *views;
    struct verify_failing *failing;
};

static int start_readers(struct verify *verify, struct readers *readers)
{
    const struct bench_options *o = verify->options;
    int status = EXIT_OK;
    if (o->from_slave)
        readers->slaves = verify_slaves_start(verify, &status);
    else if (o->check == CHECK_ORDERLY)
        readers->orderly = verify_orderly_start(verify, &status);
    else if (o->check == CHECK_FAILING)
        readers->failing = verify_failing_start(verify, &status);
    else
        readers->group = verify_reader_start(verify, &status);
    if (status == EXIT_OK && o->check == CHECK_FILTERED && !o->from_slave)
        readers->views = verify_views_start(verify, &status);
    return status;
}

static void stop_readers(struct readers *readers)
{
    verify_reader_stop(readers->group);
    verify_slaves_stop(readers->slaves);
    verify_orderly_stop(readers->orderly);
    verify_failing_stop(readers->failing);
    verify_views_stop(readers->views); /* last: it adds up */
    *readers = (struct readers){.group = NULL};
}

/* Sends, unless an earlier run did, and reads until nothing more comes. */
static int send_and_drain(struct verify *verify, bool finish_only)
{
    const struct bench_options *o = verify->options;
    bool transactional = o->check == CHECK_TRANSACTIONAL;
    struct verify_answerer *answerer = NULL;
    int status = EXIT_OK;
    if (transactional && !o->from_slave)
        answerer = verify_answerer_start(verify, &status);
    if (status == EXIT_OK && !finish_only)
        status = transactional ? verify_transact(verify) : verify_send(verify);
    if (status == EXIT_OK && o->state_path && !finish_only)
        status = verify_state_save(verify, o->state_path);
    for (struct verify *view = verify; view && status == EXIT_OK; view = view->next)
        drain(view);
    verify_answerer_stop(answerer);
    return status;
}

/* ---- the start ---- */

static int ensure_topic(struct verify *verify, struct readers *readers)
{
    (void)readers;
    return bench_ensure_topic(verify->options);
}

static int find_streams(struct verify *verify, struct readers *readers)
{
    (void)readers;
    return make_streams(verify);
}

/*
 * A step of the start, tried again for the drain time: brokers may be starting, too, or busy. Each
 * new failure is said on stderr, the same one every ten seconds. What is wrong with the call stays
 * wrong.
 */
static int try_to_start(struct verify *verify, struct readers *readers,
                        int (*step)(struct verify *, struct readers *))
{
    int64_t now = bench_now_ns();
    int64_t deadline_ns = now + (int64_t)(verify->options->drain_seconds * 1e9);
    int status;
    while ((status = step(verify, readers)) == EXIT_NO || status == EXIT_UNREACHABLE) {
        stop_readers(readers);
        now = bench_now_ns();
        if (now >= deadline_ns)
            break;
        int64_t again_ns = now + START_PAUSE_NS;
        pthread_mutex_lock(&verify->lock);
        while (bench_now_ns() < again_ns)
            verify_wait_until(verify, again_ns);
        pthread_mutex_unlock(&verify->lock);
    }
    return status;
}

static int start(struct verify *verify, struct readers *readers, bool finish_only)
{
    const struct bench_options *o = verify->options;
    int status = finish_only ? verify_state_load(verify, o->state_path)
                             : try_to_start(verify, readers, ensure_topic);
    if (status == EXIT_OK && !finish_only)
        status = try_to_start(verify, readers, find_streams);
    if (status == EXIT_OK)
        status = verify_make_queues(verify);
    if (status == EXIT_OK && !o->json)
        fprintf(stderr, "mqbench: seed %" PRIu64 "\n", verify->run_id);
    return status == EXIT_OK ? try_to_start(verify, readers, start_readers) : status;
}

int bench_verify(const struct bench_options *options)
{
    struct verify verify;
    struct readers readers = {.group = NULL};
    verify_init(&verify, options);
    bool finish_only = options->state_path && access(options->state_path, F_OK) == 0;
    int status = start(&verify, &readers, finish_only);
    if (status == EXIT_OK)
        status = send_and_drain(&verify, finish_only);
    stop_readers(&readers);
    if (status == EXIT_OK)
        status = verify_report(&verify);
    verify_fini(&verify);
    return status;
}
