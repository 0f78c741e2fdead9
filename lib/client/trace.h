/*
 * The trace of messages: what producers and consumers did with them, sent to a topic of its own
 * (RocketMQ's AsyncTraceDispatcher).
 *
 *   sends, listeners ──trace_add──► batch ──full──► list of batches ──every 100 ms──► trace topic
 *                                     └── no room: dropped, counted
 *
 * Adding copies a few hundred bytes under a lock of its own and never waits: neither for memory's
 * growth, nor for the network. Each traced producer or consumer has a dispatcher with a producer of
 * its own, which is not traced.
 */
#ifndef CLIENT_TRACE_H
#define CLIENT_TRACE_H

#include <tern/producer.h>

#include "base/error.h"

#include "client/instance.h"
#include "client/trace_codec.h"

struct trace;

enum {
    TRACE_BATCH_BYTES = 32 << 10,
    TRACE_BATCH_KEYS = 8 << 10,
    TRACE_BATCH_RECORDS = 128,
    TRACE_BATCHES_MAX = 64, /* waiting, beyond that records are dropped */
    TRACE_FLUSH_MS = 100
};

/* Borrowed for the call. */
struct trace_options {
    const struct tern_producer_options
        *producer;             /* nameservers, instance, world; the rest is ours */
    struct instance *instance; /* the traced one's: its timers; it outlives us */
    const char *topic;
};

MUST_CHECK enum tern_code trace_create(const struct trace_options *options, struct trace **out,
                                       struct tern_error *err);
/* After the instance was started. */
MUST_CHECK enum tern_code trace_start(struct trace *trace, struct tern_error *err);
/* Sends what there is, waits for that at most the send timeout (3 s). Records that come later are
 * dropped. NULL allowed. @thread application */
void trace_stop(struct trace *trace);
/* Stops; no trace_add() may run any more. NULL allowed. @thread application */
void trace_destroy(struct trace *trace);

/* @thread any @locks takes:PRODUCER */
void trace_add(struct trace *trace, const struct trace_record *record);
/* Records that found no room, or whose message could not be sent. */
uint64_t trace_dropped(const struct trace *trace);

#endif
