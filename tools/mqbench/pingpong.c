/*
 * One message at a time from producer to consumer: the time from the send call until the consumer
 * has the message. The consumer waits in a parked pull of its own; the next message is sent after
 * it came.
 */
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/mqbench/bench.h"

enum { WAIT_MS = 15000, RECEIVE_DEADLINE_S = 10 };

struct run {
    const struct bench_options *options;
    struct tern_pull_consumer *consumer;
    struct tern_queue queue;
    int64_t next_offset;
    int64_t received_ns;
    sem_t received;
    enum tern_code failed;
    struct tern_error err;
};

static void on_pull(void *arg, enum tern_code code, struct tern_pull_result *result,
                    const struct tern_error *err)
{
    struct run *run = arg;
    run->received_ns = bench_now_ns();
    if (code != TERN_OK) {
        run->failed = code;
        if (err)
            run->err = *err;
    } else {
        run->next_offset = result->next_offset;
        tern_pull_result_clear(result);
    }
    sem_post(&run->received);
}

static enum tern_code pull_next(struct run *run)
{
    return tern_pull_consumer_pull_async(run->consumer, &run->queue, "*", run->next_offset, 32,
                                         WAIT_MS, on_pull, run, &run->err);
}

static enum tern_code one_round(struct run *run, struct tern_producer *producer,
                                struct tern_message *message, struct histogram *latency_ns)
{
    struct tern_send_result sent;
    struct timespec deadline;
    enum tern_code code = pull_next(run);
    if (code != TERN_OK)
        return code;
    /* Let the pull arrive and park, as a consumer's would have long before. */
    struct timespec pause = {.tv_nsec = 200000};
    nanosleep(&pause, NULL);
    int64_t begin_ns = bench_now_ns();
    code = tern_producer_send_to(producer, message, &run->queue, &sent, &run->err);
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += RECEIVE_DEADLINE_S;
    if (sem_timedwait(&run->received, &deadline) != 0)
        return TERN_TIMEOUT;
    if (code == TERN_OK)
        code = run->failed;
    if (code == TERN_OK)
        histogram_add(latency_ns, run->received_ns - begin_ns);
    return code;
}

static enum tern_code start_consumer(struct run *run)
{
    struct tern_consumer_options *o = tern_consumer_options_create();
    int64_t min_offset;
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_consumer_options_namesrv(o, run->options->namesrv);
    if (code == TERN_OK)
        code = tern_consumer_options_group(o, "MQBENCH_PINGPONG");
    if (code == TERN_OK)
        code = tern_pull_consumer_create(o, &run->consumer, &run->err);
    tern_consumer_options_destroy(o);
    if (code == TERN_OK)
        code = tern_pull_consumer_start(run->consumer, &run->err);
    if (code == TERN_OK)
        code = tern_pull_consumer_range(run->consumer, &run->queue, &min_offset, &run->next_offset,
                                        &run->err);
    return code;
}

static enum tern_code play(struct run *run, struct tern_producer *producer,
                           struct bench_figures *figures)
{
    const struct bench_options *options = run->options;
    struct tern_message *message;
    uint8_t *body = calloc(1, (size_t)options->size_bytes + 1);
    enum tern_code code = body ? start_consumer(run) : TERN_NO_MEMORY;
    int64_t start_ns = bench_now_ns();
    while (code == TERN_OK && bench_goes_on(options, start_ns, figures->messages)) {
        code = tern_message_create(options->topic, body, (size_t)options->size_bytes, &message,
                                   &run->err);
        if (code != TERN_OK)
            break;
        code = one_round(run, producer, message, figures->latency_ns);
        tern_message_unref(message);
        figures->messages += code == TERN_OK;
        bench_progress("%llu messages", (unsigned long long)figures->messages);
    }
    figures->seconds = (double)(bench_now_ns() - start_ns) / 1e9;
    figures->bytes = figures->messages * (uint64_t)options->size_bytes;
    free(body);
    return code;
}

int bench_pingpong(const struct bench_options *options)
{
    struct run run = {.options = options};
    struct bench_figures figures = {.latency_ns = NULL};
    size_t count;
    int status = bench_ensure_topic(options);
    if (status != EXIT_OK)
        return status;
    figures.latency_ns = calloc(1, sizeof *figures.latency_ns);
    if (!figures.latency_ns || sem_init(&run.received, 0, 0) != 0) {
        free(figures.latency_ns);
        return bench_fail("pingpong", TERN_NO_MEMORY, NULL);
    }
    struct tern_producer *producer = bench_producer(options, "MQBENCH_PRODUCER", 10000, &status);
    struct tern_queue *queues =
        producer ? bench_queues(producer, options->topic, &count, &status) : NULL;
    if (queues) {
        run.queue = queues[0];
        enum tern_code code = play(&run, producer, &figures);
        if (code != TERN_OK)
            status = bench_fail("pingpong", code, &run.err);
        if (run.consumer)
            tern_pull_consumer_destroy(run.consumer);
    }
    tern_producer_destroy(producer);
    if (status == EXIT_OK)
        status = bench_report(options, &figures);
    free(queues);
    free(figures.latency_ns);
    return status;
}
