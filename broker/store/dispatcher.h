/*
 * The dispatcher (RocketMQ's reput): follows the log and builds consume queues and index from it.
 * Internal to the store.
 *
 * A token, not only a thread: when everything before `phys_off` is dispatched, the appender offers
 * its own records and they are dispatched from its buffers at once, hot in cache; else the task
 * reads the log. Only one of them at a time; positions advance in log order.
 */
#ifndef STORE_DISPATCHER_H
#define STORE_DISPATCHER_H

#include "broker/store/store.h"

struct commit_log;
struct deletions;
struct dispatcher;
struct queue_table;
struct index_service;

struct dispatcher_options {
    struct commit_log *log;
    struct queue_table *queues;
    struct index_service *index; /* NULL: not kept */
    struct deletions *deletions; /* NULL: none */
    struct store_observer observer;
    /* Called when a consume queue or index cannot be written: the store latches. */
    void (*on_error)(void *arg, enum tern_code code, const char *text);
    void *arg;
};

/* Not started yet: the recovery drives it first with dispatcher_replay(). */
MUST_CHECK enum tern_code dispatcher_create(const struct env *env,
                                            const struct dispatcher_options *options,
                                            struct dispatcher **out);
/* Stops the task if it was started. */
void dispatcher_destroy(struct dispatcher *dispatcher);

/*
 * Recovery: dispatches [from, end) in the calling thread without notifying. Existing units are
 * compared and rewritten when they differ, so replaying twice changes nothing. *records counts.
 */
MUST_CHECK enum tern_code dispatcher_replay(struct dispatcher *dispatcher, int64_t from,
                                            int64_t end, int64_t *records, struct tern_error *err);

struct delay_levels;
/* Other delay levels than RocketMQ's (DELAY_LEVELS_DEFAULT); copied. Before the first record. */
void dispatcher_set_delay_levels(struct dispatcher *dispatcher, const struct delay_levels *levels);

/* Starts the task that takes what offers leave. */
MUST_CHECK enum tern_code dispatcher_start(struct dispatcher *dispatcher);

/*
 * The appender's own records, in log order, after the log's end was published. Dispatches them when
 * nothing before them is pending and the limit allows it, else leaves them to the task and wakes
 * it. Arrivals are kept until dispatcher_notify(). @thread the append token's holder
 */
void dispatcher_offer(struct dispatcher *dispatcher, int64_t phys_off, const uint8_t *records,
                      size_t size_bytes);
/* Delivers the arrivals of the offers since the last call. @thread as dispatcher_offer @locks none
 */
void dispatcher_notify(struct dispatcher *dispatcher);

/* The whole end has moved, without an offer. Cheap. @thread the append token's holder */
void dispatcher_follow(struct dispatcher *dispatcher);

/*
 * Keeps everybody from dispatching, until let go; what is left then is taken up. @thread any @locks
 * none
 */
void dispatcher_hold(struct dispatcher *dispatcher);
void dispatcher_let_go(struct dispatcher *dispatcher);
/*
 * Goes back to `position`, a record's beginning. Units of records before verify_until may be there:
 * they are compared. @thread who holds it
 */
void dispatcher_rewind(struct dispatcher *dispatcher, int64_t position, int64_t verify_until);

int64_t dispatcher_position(const struct dispatcher *dispatcher);
/* Wakes the task only when there is something to dispatch now. @thread any */
/* May dispatch a little in the calling thread. @thread any @locks none */
void dispatcher_set_limit(struct dispatcher *dispatcher, int64_t phys_off);
int64_t dispatcher_limit(const struct dispatcher *dispatcher);
/* Store time of the oldest undispatched record as far as known, 0 when all is dispatched. */
int64_t dispatcher_oldest_pending_ms(const struct dispatcher *dispatcher);

#endif
