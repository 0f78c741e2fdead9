/*
 * mqbench: load and checks for a running cluster. Each mode is one file; options, figures and their
 * output are shared here.
 */
#ifndef MQBENCH_BENCH_H
#define MQBENCH_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <tern/tern.h>

#include "base/metrics.h"

enum exit_status { EXIT_OK = 0, EXIT_NO = 1, EXIT_USAGE = 2, EXIT_UNREACHABLE = 3 };

enum send_mode { MODE_SYNC, MODE_ASYNC, MODE_ONEWAY, MODE_BATCH };

/* What verify checks; what its messages are (verify_traffic.c). */
enum bench_check {
    CHECK_PLAIN,
    CHECK_ORDERLY, /* the messages of CHECK_PLAIN, read by orderly members */
    CHECK_DELAYED,
    CHECK_TRANSACTIONAL,
    CHECK_FILTERED,
    CHECK_FAILING /* the messages of CHECK_PLAIN, to listeners that fail */
};

struct bench_options {
    const char *namesrv; /* NULL: NAMESRV_ADDR, then 127.0.0.1:9876 */
    const char *topic;
    int64_t size_bytes; /* of a body */
    int64_t count;      /* messages; 0: until `seconds` are over */
    double seconds;
    enum send_mode mode;
    bool mode_given;
    int64_t batch;     /* messages a frame in batch mode, messages a pull in consume */
    int64_t in_flight; /* frames; 0: the mode's default */
    int64_t producers;
    int64_t queues; /* per broker, when the topic is made */
    const char *group;
    bool hold; /* consume: the first batch is not finished before the end */
    const char *state_path;
    enum bench_check check;            /* verify */
    int64_t delayed_ms;                /* CHECK_DELAYED: at most so far ahead */
    int64_t fail_percent;              /* CHECK_FAILING: of the deliveries */
    bool from_slave;                   /* verify */
    enum tern_compression compression; /* of produce */
    double drain_seconds;
    uint64_t seed;
    bool json;
};

/* The longest pause between successes, told by any thread. Zeroed: nothing has happened yet. */
struct bench_pulse {
    _Atomic int64_t last_ns, longest_ns;
};

/* What a mode measured. */
struct bench_figures {
    uint64_t messages, bytes, errors;
    double seconds;
    int64_t gap_ns;               /* longest pause between successes; 0: not measured */
    struct histogram *latency_ns; /* per call; NULL: none was measured */
};

typedef int (*bench_mode_fn)(const struct bench_options *options);

int bench_echo(const struct bench_options *options);
int bench_produce(const struct bench_options *options);
int bench_consume(const struct bench_options *options);
int bench_pingpong(const struct bench_options *options);
int bench_verify(const struct bench_options *options);

/* ---- shared by the modes (common.c) ---- */

int64_t bench_now_ns(void);
/* Milliseconds since 1970. */
int64_t bench_wall_ms(void);
/* A success now. @thread any */
void bench_pulse(struct bench_pulse *pulse, int64_t now_ns);
/* Whether a run that began at start_ns and did `done` messages goes on. */
bool bench_goes_on(const struct bench_options *options, int64_t start_ns, uint64_t done);
/* Prints a figure set as text or JSON to stdout; returns EXIT_OK, or EXIT_NO when there were
 * errors. */
int bench_report(const struct bench_options *options, const struct bench_figures *figures);
/* One line "mqbench: what: text" on stderr, not again within ten seconds of the same line; returns
 * the exit status that fits the code. @thread any */
int bench_fail(const char *what, enum tern_code code, const struct tern_error *err);
/* Progress on a terminal's stderr, at most ten times a second. */
void bench_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void bench_progress_end(void);

/* Makes the topic at every master when it is absent; waits until its route shows. */
int bench_ensure_topic(const struct bench_options *options);
/* A started producer; NULL: failed, said on stderr, *status is the exit status. */
struct tern_producer *bench_producer(const struct bench_options *options, const char *group,
                                     int64_t timeout_ms, int *status);
/* The topic's writable queues; malloc'ed. NULL as above. */
struct tern_queue *bench_queues(struct tern_producer *producer, const char *topic, size_t *count,
                                int *status);
/* A group name of this run. */
void bench_unique_name(char *out, size_t size, const char *prefix);

#endif
