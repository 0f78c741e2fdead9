/*
 * Sending: each producer has its own thread. Synchronous sends wait in it; asynchronous ones (and
 * batches) keep in_flight frames under way: each callback launches the next, so no thread is woken
 * in between. A frame that finds no room on its broker's connection rests, and is launched again by
 * the thread, since callbacks must not wait.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/mqbench/bench.h"

struct run {
    const struct bench_options *options;
    int64_t start_ns;
    _Atomic uint64_t launched; /* messages given to the library */
    _Atomic uint64_t messages, errors;
    struct histogram *latency_ns;
    struct bench_pulse pulse;
    _Atomic bool stop; /* after an error that repeats for ever */
    struct tern_error first_error;
    _Atomic bool have_error;
};

struct sender {
    struct run *run;
    struct tern_producer *producer;
    pthread_t thread;
    sem_t landed; /* a flight has ended, or rests */
    uint8_t *body;
};

/* One asynchronous frame after the other. */
struct flight {
    struct sender *sender;
    int64_t sent_ns;
    size_t count;
    bool has_share;       /* of the messages to send, from before a rest */
    _Atomic bool resting; /* the thread's to launch */
};

static void note_error(struct run *run, enum tern_code code, const struct tern_error *err,
                       size_t count)
{
    atomic_fetch_add(&run->errors, count);
    bool expected = false;
    if (err && atomic_compare_exchange_strong(&run->have_error, &expected, true))
        run->first_error = *err;
    if (!tern_code_retriable(code))
        atomic_store(&run->stop, true);
}

static bool take_share(struct run *run, size_t count)
{
    uint64_t before = atomic_fetch_add(&run->launched, count);
    return !atomic_load(&run->stop) && bench_goes_on(run->options, run->start_ns, before);
}

static struct tern_message *make_message(const struct sender *sender)
{
    const struct bench_options *o = sender->run->options;
    struct tern_message *message = NULL;
    enum tern_code code =
        tern_message_create(o->topic, sender->body, (size_t)o->size_bytes, &message, NULL);
    return code == TERN_OK ? message : NULL;
}

static void send_sync(struct sender *sender)
{
    struct run *run = sender->run;
    bool oneway = run->options->mode == MODE_ONEWAY;
    while (take_share(run, 1)) {
        struct tern_send_result result;
        struct tern_error err = {.text = ""};
        int64_t begin_ns = bench_now_ns();
        struct tern_message *message = make_message(sender);
        enum tern_code code = !message ? TERN_NO_MEMORY
                              : oneway
                                  ? tern_producer_send_oneway(sender->producer, message, &err)
                                  : tern_producer_send(sender->producer, message, &result, &err);
        tern_message_unref(message);
        if (oneway && code == TERN_LIMIT) { /* the library's queue is full: that is the pace */
            struct timespec pause = {.tv_nsec = 200000};
            nanosleep(&pause, NULL);
            atomic_fetch_sub(&run->launched, 1);
            continue;
        }
        int64_t now = bench_now_ns();
        histogram_add(run->latency_ns, now - begin_ns);
        if (code == TERN_OK) {
            bench_pulse(&run->pulse, now);
            atomic_fetch_add(&run->messages, 1);
        } else {
            note_error(run, code, &err, 1);
        }
        bench_progress("%llu messages", (unsigned long long)run->messages);
    }
}

static void launch(struct flight *flight);

static void rest(struct flight *flight)
{
    flight->has_share = true;
    atomic_store(&flight->resting, true);
    sem_post(&flight->sender->landed);
}

static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err)
{
    struct flight *flight = arg;
    struct run *run = flight->sender->run;
    (void)result;
    int64_t now = bench_now_ns();
    if (code == TERN_LIMIT) { /* it waited for the route, and then there was no room */
        rest(flight);
        return;
    }
    histogram_add(run->latency_ns, now - flight->sent_ns);
    if (code == TERN_OK) {
        bench_pulse(&run->pulse, now);
        atomic_fetch_add(&run->messages, flight->count);
    } else {
        note_error(run, code, err, flight->count);
    }
    launch(flight);
}

static bool goes_on(const struct flight *flight)
{
    struct run *run = flight->sender->run;
    return (flight->has_share && !atomic_load(&run->stop)) || take_share(run, flight->count);
}

/* Sends the flight's next frame, or lands it. @thread sender, or the client's transport */
static void launch(struct flight *flight)
{
    struct sender *sender = flight->sender;
    struct run *run = sender->run;
    struct tern_message *messages[1024];
    struct tern_error err = {.text = ""};
    enum tern_code code = TERN_STATE;

    while (code != TERN_OK && goes_on(flight)) {
        size_t made = 0;
        flight->has_share = false;
        while (made < flight->count && (messages[made] = make_message(sender)))
            made++;
        flight->sent_ns = bench_now_ns();
        code = made < flight->count ? TERN_NO_MEMORY
                                    : tern_producer_send_async(sender->producer, messages, made,
                                                               NULL, on_sent, flight, &err);
        for (size_t i = 0; i < made; i++)
            tern_message_unref(messages[i]);
        if (code == TERN_LIMIT) {
            rest(flight);
            return;
        }
        if (code != TERN_OK)
            note_error(run, code, &err, flight->count);
    }
    if (code != TERN_OK)
        sem_post(&sender->landed);
}

/* Launches one that rests, after a moment; false: none does. */
static bool launch_rested(struct flight *flights, int64_t count)
{
    const struct timespec pause = {.tv_nsec = 200000};
    for (int64_t i = 0; i < count; i++) {
        if (!atomic_exchange(&flights[i].resting, false))
            continue;
        nanosleep(&pause, NULL);
        launch(&flights[i]);
        return true;
    }
    return false;
}

static void send_async(struct sender *sender)
{
    const struct bench_options *o = sender->run->options;
    struct flight *flights = calloc((size_t)o->in_flight, sizeof *flights);
    if (!flights) {
        note_error(sender->run, TERN_NO_MEMORY, NULL, 1);
        return;
    }
    for (int64_t i = 0; i < o->in_flight; i++) {
        flights[i].sender = sender;
        flights[i].count = o->mode == MODE_BATCH ? (size_t)o->batch : 1;
        launch(&flights[i]);
    }
    for (int64_t landed = 0; landed < o->in_flight;) {
        while (sem_wait(&sender->landed) != 0)
            continue;
        landed += !launch_rested(flights, o->in_flight); /* each rest was posted, too */
    }
    free(flights);
}

static void *sender_main(void *arg)
{
    struct sender *sender = arg;
    enum send_mode mode = sender->run->options->mode;
    if (mode == MODE_SYNC || mode == MODE_ONEWAY)
        send_sync(sender);
    else
        send_async(sender);
    return NULL;
}

/* One letter; or, to be compressed, lines like those of a log in JSON. */
static void fill_body(uint8_t *body, size_t size, enum tern_compression compression)
{
    memset(body, 'x', size);
    uint32_t noise = 1;
    for (size_t at = 0; compression != TERN_COMPRESS_NONE && at < size;) {
        char line[128];
        noise = noise * 1664525 + 1013904223;
        int len =
            snprintf(line, sizeof line, "{\"id\":%u,\"user\":\"customer-%u\",\"amount\":%u.%02u}\n",
                     noise, noise >> 20, noise >> 18 & 1023, noise >> 8 & 63);
        size_t take = (size_t)len < size - at ? (size_t)len : size - at;
        memcpy(body + at, line, take);
        at += take;
    }
}

static int start_sender(struct sender *sender, struct run *run)
{
    int status;
    sender->run = run;
    sender->body = calloc(1, (size_t)run->options->size_bytes + 1);
    if (!sender->body || sem_init(&sender->landed, 0, 0) != 0)
        return bench_fail("starting a sender", TERN_NO_MEMORY, NULL);
    fill_body(sender->body, (size_t)run->options->size_bytes, run->options->compression);
    sender->producer = bench_producer(run->options, "MQBENCH_PRODUCER", 10000, &status);
    return status;
}

int bench_produce(const struct bench_options *options)
{
    struct run run = {.options = options, .latency_ns = calloc(1, sizeof *run.latency_ns)};
    struct sender *senders = calloc((size_t)options->producers, sizeof *senders);
    int status = EXIT_OK, running = 0;
    struct tern_producer *first = NULL;
    size_t queue_count;

    if (!run.latency_ns || !senders)
        return bench_fail("produce", TERN_NO_MEMORY, NULL);
    status = bench_ensure_topic(options);
    for (int64_t i = 0; status == EXIT_OK && i < options->producers; i++)
        status = start_sender(&senders[i], &run);
    if (status == EXIT_OK) {
        first = senders[0].producer;
        free(bench_queues(first, options->topic, &queue_count, &status));
    }
    run.start_ns = bench_now_ns();
    for (; status == EXIT_OK && running < options->producers; running++)
        if (pthread_create(&senders[running].thread, NULL, sender_main, &senders[running]) != 0)
            status = bench_fail("starting a thread", TERN_LIMIT, NULL);
    for (int i = 0; i < running; i++)
        pthread_join(senders[i].thread, NULL);
    struct bench_figures figures = {.messages = run.messages,
                                    .bytes = run.messages * (uint64_t)options->size_bytes,
                                    .errors = run.errors,
                                    .gap_ns = run.pulse.longest_ns,
                                    .seconds = (double)(bench_now_ns() - run.start_ns) / 1e9,
                                    .latency_ns = run.latency_ns};
    for (int64_t i = 0; i < options->producers; i++) {
        tern_producer_destroy(senders[i].producer);
        free(senders[i].body);
    }
    if (status == EXIT_OK) {
        status = bench_report(options, &figures);
        if (run.have_error)
            fprintf(stderr, "mqbench: first error: %s\n", run.first_error.text);
    }
    free(senders);
    free(run.latency_ns);
    return status;
}
