/*
 * The queue flusher: writes consume queue tails, and now and then makes queues, index, checkpoint
 * and flush mark durable. Internal to the store.
 */
#ifndef STORE_QUEUE_FLUSHER_H
#define STORE_QUEUE_FLUSHER_H

#include "broker/store/checkpoint.h"
#include "broker/store/flusher.h"

struct dispatcher;
struct index_service;
struct queue_flusher;
struct queue_table;

enum {
    QUEUE_FLUSH_THOROUGH_MS = 60000, /* all that is derived to the disk, RocketMQ's interval */
    FLUSH_MARK_SYNC_MS = 5000
};

struct queue_flusher_options {
    struct commit_log *log;
    struct queue_table *queues;
    struct index_service *index; /* NULL: not kept */
    struct dispatcher *dispatcher;
    struct flusher *flusher;
    struct flush_mark *mark;
    struct gate *gate;
    struct checkpoint checkpoint; /* as on disk */
    bool durable;                 /* so is all that is dispatched: the last stop was clean */
    const char *root;
    int64_t interval_ms;
};

/* Starts the task. */
MUST_CHECK enum tern_code queue_flusher_create(const struct env *env,
                                               const struct queue_flusher_options *options,
                                               struct queue_flusher **out);
/* Something was appended and flushed. Cheap. @thread the flusher's */
void queue_flusher_wake(struct queue_flusher *flusher);
/*
 * Stops the task and makes everything durable: queues, index, checkpoint, mark. After
 * flusher_finish().
 */
MUST_CHECK enum tern_code queue_flusher_finish(struct queue_flusher *flusher,
                                               struct tern_error *err);
void queue_flusher_destroy(struct queue_flusher *flusher);

#endif
