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
#include <unistd.h>

#include "base/error.h"
#include "tools/mqbench/bench.h"

enum { IDLE_NS = 1000000000, SHOW_NS = 100000000 }; /* nothing more comes; progress is shown */
static const int64_t first_within_ns = 10000000000; /* until the first message */

struct run {
    _Atomic uint64_t messages, bytes;
    _Atomic int64_t first_ns, last_ns;
    struct bench_pulse pulse;
    bool hold;
    _Atomic bool held;
    pthread_mutex_t lock;
    pthread_cond_t over; /* with lock */
    bool ended;          /* lock */
    uint64_t wanted;     /* messages; 0: as many as come */
    pthread_cond_t news; /* with lock: the first message came, or all that are wanted */
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
    bool first = atomic_compare_exchange_strong(&run->first_ns, &unset, now);
    atomic_store(&run->last_ns, now);
    bench_pulse(&run->pulse, now);
    atomic_fetch_add_explicit(&run->bytes, bytes, memory_order_relaxed);
    uint64_t before = atomic_fetch_add(&run->messages, count);
    if (first || (before < run->wanted && before + count >= run->wanted)) {
        pthread_mutex_lock(&run->lock);
        pthread_cond_signal(&run->news);
        pthread_mutex_unlock(&run->lock);
    }
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
    if (code != TERN_OK && o && !err.text[0])
        error_set(&err, code, "%s", tern_consumer_options_error(o));
    tern_consumer_options_destroy(o);
    if (code != TERN_OK) {
        tern_push_consumer_destroy(consumer);
        consumer = NULL;
    }
    *status = code == TERN_OK ? EXIT_OK : bench_fail("starting the consumer", code, &err);
    return consumer;
}

/* Until when there is nothing to do but to wait for messages; 0: it is over. */
static int64_t wait_until(const struct bench_options *options, const struct run *run,
                          int64_t start_ns, int64_t now)
{
    int64_t last = atomic_load(&run->last_ns);
    int64_t end_ns = INT64_MAX - 1;
    if (!bench_goes_on(options, start_ns, atomic_load(&run->messages)))
        return 0;
    if (!last)
        end_ns = start_ns + first_within_ns;
    else if (!options->count)
        end_ns = last + IDLE_NS;
    if (options->seconds > 0 && start_ns + (int64_t)(options->seconds * 1e9) < end_ns)
        end_ns = start_ns + (int64_t)(options->seconds * 1e9);
    if (now > end_ns)
        return 0;
    bool shown = isatty(STDERR_FILENO); /* the progress */
    return shown && now + SHOW_NS < end_ns ? now + SHOW_NS : end_ns + 1;
}

static void wait_for_all(const struct bench_options *options, struct run *run, int64_t start_ns)
{
    int64_t until_ns;
    pthread_mutex_lock(&run->lock);
    while ((until_ns = wait_until(options, run, start_ns, bench_now_ns())) > 0) {
        struct timespec t = {until_ns / 1000000000, until_ns % 1000000000};
        pthread_cond_timedwait(&run->news, &run->lock, &t);
        bench_progress("%llu messages", (unsigned long long)run->messages);
    }
    pthread_mutex_unlock(&run->lock);
}

static void init_run(struct run *run, const struct bench_options *options)
{
    pthread_condattr_t attr;
    *run = (struct run){.hold = options->hold, .wanted = (uint64_t)options->count};
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->over, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&run->news, &attr);
    pthread_condattr_destroy(&attr);
}

int bench_consume(const struct bench_options *options)
{
    struct run run;
    int status =
        bench_ensure_topic(options); /* a consumer would start with nobody there, and wait */
    if (status != EXIT_OK)
        return status;
    init_run(&run, options);
    struct tern_push_consumer *consumer = start_consumer(options, &run, &status);
    if (consumer) {
        wait_for_all(options, &run, bench_now_ns());
        /* From the first message to the last: starting and waiting for more is not receiving. */
        struct bench_figures figures = {.messages = run.messages,
                                        .bytes = run.bytes,
                                        .gap_ns = run.pulse.longest_ns,
                                        .seconds = (double)(run.last_ns - run.first_ns) / 1e9};
        let_go(&run);
        enum tern_code code = tern_push_consumer_shutdown(consumer, 5000);
        if (code != TERN_OK)
            (void)bench_fail("the reader did not stop cleanly", code, NULL);
        tern_push_consumer_destroy(consumer);
        status = bench_report(options, &figures);
        status = figures.messages ? status : EXIT_NO;
    }
    pthread_cond_destroy(&run.news);
    pthread_cond_destroy(&run.over);
    pthread_mutex_destroy(&run.lock);
    return status;
}
