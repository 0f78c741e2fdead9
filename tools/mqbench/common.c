/* Figures, progress, and the topic: what all modes share. */
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/admin.h"
#include "tools/mqbench/bench.h"

enum { IN_FLIGHT_EASY = 1024 }; /* half of what a producer allows by default */
#define SAY_AGAIN_NS (INT64_C(10) * 1000000000)

int64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t bench_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool bench_goes_on(const struct bench_options *options, int64_t start_ns, uint64_t done)
{
    if (options->count && done >= (uint64_t)options->count)
        return false;
    return options->seconds <= 0 || (double)(bench_now_ns() - start_ns) < options->seconds * 1e9;
}

void bench_pulse(struct bench_pulse *pulse, int64_t now_ns)
{
    int64_t last = atomic_load_explicit(&pulse->last_ns, memory_order_relaxed);
    while (now_ns > last &&
           !atomic_compare_exchange_weak_explicit(&pulse->last_ns, &last, now_ns,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
    if (last == 0 || now_ns <= last)
        return;
    int64_t longest = atomic_load_explicit(&pulse->longest_ns, memory_order_relaxed);
    while (now_ns - last > longest &&
           !atomic_compare_exchange_weak_explicit(&pulse->longest_ns, &longest, now_ns - last,
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
}

static double quantile_us(const struct histogram *h, double q)
{
    int64_t bound_ns = (int64_t)histogram_quantile(h, q); /* its bucket's upper end */
    return (double)(bound_ns < (int64_t)h->max ? bound_ns : (int64_t)h->max) / 1000;
}

static void report_json(const struct bench_figures *f, double rate, double mib)
{
    json_t *json = json_pack("{s:I, s:f, s:f, s:f, s:I}", "messages", (json_int_t)f->messages,
                             "seconds", f->seconds, "messages_per_second", rate, "mib_per_second",
                             mib, "errors", (json_int_t)f->errors);
    if (json && f->latency_ns)
        json_object_set_new(
            json, "latency_us",
            json_pack("{s:f, s:f, s:f, s:f, s:f}", "p50", quantile_us(f->latency_ns, 0.5), "p90",
                      quantile_us(f->latency_ns, 0.9), "p99", quantile_us(f->latency_ns, 0.99),
                      "p999", quantile_us(f->latency_ns, 0.999), "max",
                      (double)f->latency_ns->max / 1000));
    if (json && f->gap_ns > 0)
        json_object_set_new(json, "max_gap_ms", json_real((double)f->gap_ns / 1e6));
    if (json)
        json_dumpf(json, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(json);
}

int bench_report(const struct bench_options *options, const struct bench_figures *f)
{
    double rate = f->seconds > 0 ? (double)f->messages / f->seconds : 0;
    double mib = f->seconds > 0 ? (double)f->bytes / f->seconds / (1 << 20) : 0;
    bench_progress_end();
    if (options->json) {
        report_json(f, rate, mib);
    } else {
        printf("%" PRIu64 " messages in %.2f s: %.0f messages/s, %.1f MiB/s, %" PRIu64 " errors\n",
               f->messages, f->seconds, rate, mib, f->errors);
        if (f->latency_ns)
            printf("latency us: p50 %.0f  p90 %.0f  p99 %.0f  p99.9 %.0f  max %.0f\n",
                   quantile_us(f->latency_ns, 0.5), quantile_us(f->latency_ns, 0.9),
                   quantile_us(f->latency_ns, 0.99), quantile_us(f->latency_ns, 0.999),
                   (double)f->latency_ns->max / 1000);
        if (f->gap_ns > 0)
            printf("longest pause: %.1f ms\n", (double)f->gap_ns / 1e6);
    }
    fflush(stdout);
    return f->errors ? EXIT_NO : EXIT_OK;
}

/* One line; who tries again each second says the same until it changes. */
static void say(const char *what, const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char last[TERN_ERROR_TEXT_BYTES + 128];
    static int64_t last_ns;
    char line[sizeof last];
    snprintf(line, sizeof line, "%s: %s", what, text);
    pthread_mutex_lock(&lock);
    int64_t now_ns = bench_now_ns();
    if (strcmp(line, last) != 0 || now_ns - last_ns >= SAY_AGAIN_NS) {
        bench_progress_end();
        fprintf(stderr, "mqbench: %s\n", line);
        memcpy(last, line, strlen(line) + 1);
        last_ns = now_ns;
    }
    pthread_mutex_unlock(&lock);
}

int bench_fail(const char *what, enum tern_code code, const struct tern_error *err)
{
    say(what, err && err->text[0] ? err->text : tern_code_text(code));
    if (code == TERN_UNREACHABLE || code == TERN_TIMEOUT || code == TERN_CONNECTION_LOST)
        return EXIT_UNREACHABLE;
    return code == TERN_INVALID || code == TERN_CONFIG ? EXIT_USAGE : EXIT_NO;
}

static int64_t last_progress_ns;

void bench_progress(const char *fmt, ...)
{
    int64_t now = bench_now_ns();
    if (!isatty(STDERR_FILENO) || now - last_progress_ns < 100000000)
        return;
    last_progress_ns = now;
    va_list args;
    va_start(args, fmt);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fflush(stderr);
}

void bench_progress_end(void)
{
    if (last_progress_ns && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
    last_progress_ns = 0;
}

void bench_unique_name(char *out, size_t size, const char *prefix)
{
    snprintf(out, size, "%s_%ld_%" PRId64, prefix, (long)getpid(), bench_now_ns() / 1000);
}

int bench_ensure_topic(const struct bench_options *options)
{
    struct tern_error err = {.text = ""};
    enum tern_code code =
        admin_ensure_topic(options->namesrv, options->topic, (int32_t)options->queues, &err);
    return code == TERN_OK ? EXIT_OK : bench_fail(options->topic, code, &err);
}

struct tern_producer *bench_producer(const struct bench_options *options, const char *group,
                                     int64_t timeout_ms, int *status)
{
    struct tern_error err = {.text = ""};
    struct tern_producer *producer = NULL;
    struct tern_producer_options *o = tern_producer_options_create();
    enum tern_code code = o ? TERN_OK : TERN_NO_MEMORY;
    if (code == TERN_OK)
        code = tern_producer_options_namesrv(o, options->namesrv);
    if (code == TERN_OK)
        code = tern_producer_options_group(o, group);
    if (code == TERN_OK)
        code = tern_producer_options_send_timeout_ms(o, timeout_ms);
    if (code == TERN_OK)
        code = tern_producer_options_max_message_bytes(o, 64 << 20);
    if (code == TERN_OK)
        code = tern_producer_options_compression(o, options->compression, 5);
    if (code == TERN_OK && options->in_flight > IN_FLIGHT_EASY) /* a callback launches the next */
        code = tern_producer_options_max_in_flight(o, (int)(2 * options->in_flight));
    if (code == TERN_OK)
        code = tern_producer_create(o, &producer, &err);
    if (code == TERN_OK && (code = tern_producer_start(producer, &err)) != TERN_OK) {
        tern_producer_destroy(producer);
        producer = NULL;
    }
    tern_producer_options_destroy(o);
    *status = code == TERN_OK ? EXIT_OK : bench_fail("starting a producer", code, &err);
    return producer;
}

struct tern_queue *bench_queues(struct tern_producer *producer, const char *topic, size_t *count,
                                int *status)
{
    struct tern_error err = {.text = ""};
    enum { QUEUES_AT_MOST = 4096 };
    struct tern_queue *queues = calloc(QUEUES_AT_MOST, sizeof *queues);
    enum tern_code code = TERN_NO_MEMORY;
    if (queues)
        code = tern_producer_queues(producer, topic, queues, QUEUES_AT_MOST, count, &err);
    if (code == TERN_OK && *count > 0) {
        if (*count > QUEUES_AT_MOST)
            *count = QUEUES_AT_MOST;
        *status = EXIT_OK;
        return queues;
    }
    free(queues);
    *status = bench_fail(topic, code == TERN_OK ? TERN_TOPIC_NOT_EXIST : code, &err);
    return NULL;
}
