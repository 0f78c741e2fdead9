/*
 * Receiving with a push consumer, as an application would: a group of its own from the first
 * offset, or
 * --group to go on where that group is. --hold keeps the first batch in its listener to the end: a
 * hole that progress cannot pass, while everything behind it is worked off. Ends after --count
 * messages, --seconds, or when the topic is read to its end and nothing comes for a second.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "tools/mqbench/bench.h"

struct run {
    _Atomic uint64_t messages, bytes;
    _Atomic int64_t first_ns, last_ns;
    struct bench_pulse pulse;
    bool hold;
    _Atomic bool held;
    pthread_mutex_t lock;
    pthread_cond_t over; /* with lock */
    bool ended;          /* lock */
};

/* The first batch waits here until the run is over. */
static void stay(struct run *run)
{
    pthread_mutex_lock(&run->lock);
    while (!run->ended)
        pthread_cond_wait(&run->over, &run->lock);
    pthread_mutex_unlock(&run->lock);
}

static void let_go(struct run *run)
{
    pthread_mutex_lock(&run->lock);
    run->ended = true;
    pthread_cond_broadcast(&run->over);
    pthread_mutex_unlock(&run->lock);
}

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct run *run = arg;
    uint64_t bytes = 0;
    if (run->hold && !atomic_load_explicit(&run->held, memory_order_relaxed) &&
        !atomic_exchange(&run->held, true)) {
        stay(run);
        return TERN_CONSUME_SUCCESS;
    }
    for (size_t i = 0; i < count; i++) {
        size_t size;
        (void)tern_message_body(messages[i], &size);
        bytes += size;
    }
    int64_t now = bench_now_ns(), unset = 0;
    atomic_compare_exchange_strong(&run->first_ns, &unset, now);
    atomic_store_explicit(&run->last_ns, now, memory_order_relaxed);
    bench_pulse(&run->pulse, now);
    atomic_fetch_add_explicit(&run->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&run->messages, count, memory_order_relaxed);
    return TERN_CONSUME_SUCCESS;
}

static struct tern_push_consumer *start_consumer(const struct bench_options *options,
                                                 struct run *run, int *status)
{
    char own_group[64];
    struct tern_error err = {.text = ""};
    struct tern_push_consumer *consumer = NULL;
    struct tern_consumer_options *o = tern_consumer_options_create();
    bench_unique_name(own_group, sizeof own_group, "MQBENCH");
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_consumer_options_namesrv(o, options->namesrv);
    if (code == TERN_OK)
        code = tern_consumer_options_group(o, options->group ? options->group : own_group);
    if (code == TERN_OK)
        code = tern_consumer_options_from(o, TERN_FROM_FIRST, 0);
    if (code == TERN_OK)
        code = tern_consumer_options_pull_batch(o, (int)options->batch);
    if (code == TERN_OK)
        code = tern_consumer_options_consume_batch(o, (int)options->batch);
    if (code == TERN_OK && options->hold) /* as far as a hole allows */
        code = tern_consumer_options_max_span(o, 65535);
    if (code == TERN_OK)
        code = tern_push_consumer_create(o, &consumer, &err);
    if (code == TERN_OK)
        code = tern_push_consumer_subscribe(consumer, options->topic, "*", &err);
    if (code == TERN_OK)
        code = tern_push_consumer_listener(consumer, on_messages, run);
    if (code == TERN_OK)
        code = tern_push_consumer_start(consumer, &err);
    tern_consumer_options_destroy(o);
    if (code != TERN_OK) {
        tern_push_consumer_destroy(consumer);
        consumer = NULL;
    }
    *status = code == TERN_OK ? EXIT_OK : bench_fail("starting the consumer", code, &err);
    return consumer;
}

int bench_consume(const struct bench_options *options)
{
    struct run run = {
        .hold = options->hold, .lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};
    int status =
        bench_ensure_topic(options); /* a consumer would start with nobody there, and wait */
    if (status != EXIT_OK)
        return status;
    struct tern_push_consumer *consumer = start_consumer(options, &run, &status);
    if (!consumer)
        return status;
    int64_t start_ns = bench_now_ns();
    while (bench_goes_on(options, start_ns, run.messages)) {
        struct timespec pause = {.tv_nsec = 2000000};
        nanosleep(&pause, NULL);
        int64_t last = atomic_load(&run.last_ns), now = bench_now_ns();
        if (!options->count && last && now - last > 1000000000)
            break;
        if (!last && now - start_ns > 10000000000)
            break;
        bench_progress("%llu messages", (unsigned long long)run.messages);
    }
    /* From the first message to the last: starting and waiting for more is not receiving. */
    struct bench_figures figures = {.messages = run.messages,
                                    .bytes = run.bytes,
                                    .gap_ns = run.pulse.longest_ns,
                                    .seconds = (double)(run.last_ns - run.first_ns) / 1e9};
    let_go(&run);
    tern_push_consumer_shutdown(consumer, 5000);
    tern_push_consumer_destroy(consumer);
    status = bench_report(options, &figures);
    return figures.messages ? status : EXIT_NO;
}
