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
/* Keeps the task from working, until let go. @thread any @locks none */
void queue_flusher_hold(struct queue_flusher *flusher);
void queue_flusher_let_go(struct queue_flusher *flusher);
/*
 * The log was cut, or queues go back: the checkpoint's times become at most these, durably, and
 * what was written or synced counts as unwritten. @thread who holds it @blocks on the disk
 */
MUST_CHECK enum tern_code queue_flusher_lower(struct queue_flusher *flusher,
                                              const struct checkpoint *most,
                                              struct tern_error *err);
void queue_flusher_destroy(struct queue_flusher *flusher);

#endif
