/*
 * The append token: requests join a bounded queue and whoever finds the log free appends for
 * everybody queued. Internal to the commit log; described in commit_log.h.
 */
#ifndef STORE_APPENDER_H
#define STORE_APPENDER_H

#include "broker/store/commit_log_internal.h"
#include "broker/store/gate.h"
#include "broker/store/preparer.h"

struct appender;
struct deletions;
struct dispatcher;
struct flusher;
struct queue_table;

enum {
    APPEND_REQUESTS_MAX = 65536,   /* joined and not answered; beyond: TERN_LIMIT */
    APPEND_BYTES_MAX = 256 << 20,  /* likewise */
    APPEND_RUN_REQUESTS = 1023,    /* of one pwritev: 1024 buffers less one for a filler */
    APPEND_RUN_BYTES = 4 << 20,    /* of one pwritev, but for a single larger request */
    APPEND_CALLER_BYTES = 4 << 20, /* after so much, so long or so slow a write a calling */
    APPEND_CALLER_NS = 2000000     /* thread hands the token to the task */
};

struct appender_options {
    struct commit_log *log;
    struct gate *gate;
    struct preparer *preparer;
    struct dispatcher *dispatcher;
    struct flusher *flusher;
    struct queue_table *queues;
    struct deletions *deletions;
};

struct appender_stats {
    _Atomic uint64_t requests, records, bytes, failed;
    struct histogram wait_ns;   /* joining the queue to written */
    struct histogram write_ns;  /* one pwritev */
    struct histogram switch_ns; /* getting the next segment */
};

/* After recovery: the log's last segment is there and holds the log's end. Starts the task. */
MUST_CHECK enum tern_code appender_create(const struct env *env,
                                          const struct appender_options *options,
                                          struct appender **out);
/* No append may be under way. Stops the task. */
void appender_destroy(struct appender *appender);

/* As store_append(). @thread any @locks none */
void appender_submit(struct appender *appender, struct store_append *append);

/* For the preparer: a segment that was waited for is ready. @thread any */
void appender_wake(struct appender *appender);

/*
 * Holds the token for something that is no append of requests; they queue up meanwhile. With
 * nowait TERN_AGAIN when somebody has it; otherwise it is got when what was queued is written.
 * @thread any, not within a callback of the store @locks none
 */
MUST_CHECK enum tern_code appender_hold(struct appender *appender, bool nowait);
void appender_let_go(struct appender *appender);

/* As store_append_bytes(). Takes the token itself. */
MUST_CHECK enum tern_code appender_append_bytes(struct appender *appender, int64_t phys_off,
                                                const uint8_t *bytes, size_t size, bool nowait,
                                                struct tern_error *err);

/*
 * The log was cut: it ends at `at`, whole, and a segment for it is there. What the queues give out
 * next is found out before the next append. @thread who holds the token
 */
void appender_cut(struct appender *appender, int64_t at);
/* The queues were rebuilt, so what they give out next has to be found out. @thread likewise */
void appender_forget_offsets(struct appender *appender);

const struct appender_stats *appender_stats(const struct appender *appender);

#endif
