/*
 * The append token as the appender's own files see it: appender.c (requests), append_bytes.c (a
 * copy's bytes, and holding the token for something else). Not for anybody else.
 */
#ifndef STORE_APPENDER_INTERNAL_H
#define STORE_APPENDER_INTERNAL_H

#include "base/env.h"
#include "base/record.h"
#include "base/sched.h"
#include "broker/store/appender.h"
#include "broker/store/log_frame.h"

enum token {
    TOKEN_FREE,
    TOKEN_CALLER,
    TOKEN_TASK,
    TOKEN_PROMISED, /* free, for one of those who wait in appender_hold() */
    TOKEN_HELD      /* by somebody who is no appender: a copy, a cut, a deletion */
};

/* One pwritev and the requests that it answers. */
struct run {
    struct iovec iov[APPEND_RUN_REQUESTS + 1];
    struct store_append *requests[APPEND_RUN_REQUESTS]; /* requests[i] is written from iov[i] */
    int64_t prior_next[APPEND_RUN_REQUESTS];            /* its queue's next offset before */
    int count;
    int64_t bytes;                /* of the requests, without a filler */
    int64_t store_ms;             /* of all records */
    struct segment *next;         /* switch to it after the write; NULL: stay */
    struct store_append *refused; /* answered with the run */
    uint32_t refused_count;
    int64_t refused_bytes;
    bool starved; /* the next request needs a segment that is not ready */
};

struct appender {
    const struct env *env;
    struct appender_options options;
    struct task *task;

    struct lock lock; /* STORE_APPEND: the six below */
    struct store_append *head;
    struct store_append **tail;
    uint32_t queued;
    int64_t queued_bytes;
    enum token token;
    unsigned hold_wanted; /* how many wait in appender_hold() */

    /* the token holder's */
    struct store_append *todo; /* taken from the queue, not yet in a run */
    struct segment *active;    /* a reference */
    int64_t end;               /* the log's end, as published */
    bool want_told;            /* the preparer knows that a next segment is needed */
    bool offsets_unknown;      /* the queues' next offsets do not follow from what was appended */
    struct log_frame frame;    /* of bytes that were appended; starts at end otherwise */
    int64_t write_took_ns;     /* the last write */
    uint8_t filler[RECORD_BLANK_BYTES];
    struct run run;

    struct appender_stats stats;
};

static inline int64_t appender_active_end(const struct appender *a)
{
    return a->active->base + a->options.log->segments.bytes;
}

/*
 * The segment that begins at `base`, with a reference: made by an earlier attempt that came to
 * nothing, or the preparer's; codes as preparer_take(). @thread the append token's holder
 */
MUST_CHECK enum tern_code appender_segment_at(struct appender *a, int64_t base, bool may_wait,
                                              struct segment **out);

/* Tells the preparer when half of the active segment is used. @thread the append token's holder */
void appender_want_next(struct appender *a);

#endif
