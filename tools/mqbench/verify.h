/*
 * The checker: numbered, checksummed messages in streams, one per producer and queue.
 *
 *   senders: stream n ─ frame k ─► broker ─ acknowledged? ─► k + 1, else the same frame again
 *   reader:  push consumer ─► checksum, stream, number ─► first occurrence in order? seen before?
 * altered? end:     every acknowledged number of every stream was seen
 *
 * A stream has one frame in flight, so what is acknowledged is a prefix of its numbers. A frame
 * whose fate is unknown is sent again: its messages may be stored twice, in order, which counts as
 * duplicated, not lost.
 */
#ifndef MQBENCH_VERIFY_H
#define MQBENCH_VERIFY_H

#include <pthread.h>

#include "tools/mqbench/bench.h"

enum { VERIFY_HEADER_BYTES = 32, VERIFY_STREAMS_MAX = 65536 };

struct verify_stream {
    struct tern_queue queue;
    uint32_t id;
    /* sending; under verify.lock */
    uint64_t acked; /* numbers below are acknowledged */
    bool flying;
    int64_t not_before_ns; /* after a failure */
    /* reading; under verify.lock */
    uint64_t *seen;    /* a bit per number */
    uint64_t seen_cap; /* numbers that `seen` has room for */
    uint64_t seen_count;
    uint64_t next_expected; /* highest number seen + 1 */
};

/* What lies at each offset of a queue, to notice an offset that changes its meaning. */
struct verify_offsets {
    struct tern_queue queue;
    uint64_t *ids; /* 0: not seen yet */
    uint64_t cap;
    int64_t committed; /* highest committed offset noticed, -1 none */
};

struct verify {
    const struct bench_options *options;
    uint64_t run_id;
    struct verify_stream *streams;
    size_t stream_count;
    struct verify_offsets *queues;
    size_t queue_count;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool sending;      /* under lock: the sending phase */
    int64_t end_ns;    /* of the sending phase */
    uint64_t launched; /* under lock: messages, for --count */
    int64_t last_ack_ns, last_receive_ns;
    int64_t send_gap_ns, receive_gap_ns;
    uint64_t send_errors;

    /* findings; under lock */
    uint64_t received, duplicated, redelivered, reordered, altered, foreign;
    uint64_t offset_regressions;
};

/* Sends until the phase ends and nothing flies any more (verify_send.c). Returns an exit status. */
int verify_send(struct verify *verify);
/* Starts and stops the reader and the watch over committed offsets (verify_read.c). */
struct verify_reader;
struct verify_reader *verify_reader_start(struct verify *verify, int *status);
void verify_reader_stop(struct verify_reader *reader);
/* Numbers acknowledged and not seen, and seen but not acknowledged. @locks holds:lock */
void verify_count(const struct verify *verify, uint64_t *acked, uint64_t *lost,
                  uint64_t *unacked_present);

/* Body of a message: header and contents made from (run, stream, number). */
void verify_fill(const struct verify *verify, uint32_t stream, uint64_t number, uint8_t *body,
                 size_t size);
size_t verify_body_size(const struct verify *verify, uint32_t stream, uint64_t number);
/* 0: ours and whole; 1: not of this run; 2: altered. */
int verify_parse(const struct verify *verify, const uint8_t *body, size_t size, uint32_t *stream,
                 uint64_t *number);

/* --state F: what was acknowledged, as JSON. */
int verify_state_save(const struct verify *verify, const char *path);
int verify_state_load(struct verify *verify, const char *path);

#endif
