/*
 * The flusher: brings the log to the disk and publishes how far it is. Internal to the store.
 */
#ifndef STORE_FLUSHER_H
#define STORE_FLUSHER_H

#include "broker/store/commit_log_internal.h"
#include "broker/store/flush_mark.h"
#include "broker/store/gate.h"

struct flusher;

struct flusher_options {
    struct commit_log *log;
    struct flush_mark *mark;
    struct gate *gate;
    bool sync;           /* flush as soon as something was appended */
    int64_t interval_ms; /* else: so long after the first append that was not flushed */
    /* After each flush, on the flusher's task: wakes the queue flusher. */
    void (*on_flush)(void *arg);
    void *arg;
};

struct flusher_stats {
    _Atomic uint64_t flushes;
    struct histogram flush_ns; /* one fdatasync */
};

/* Starts the task. */
MUST_CHECK enum tern_code
flusher_create(const struct env *env, const struct flusher_options *options, struct flusher **out);
/* Stops the task, then flushes what is left; TERN_IO and the like when that fails or failed before.
 */
MUST_CHECK enum tern_code flusher_finish(struct flusher *flusher, struct tern_error *err);
/* After flusher_finish(), or before anything was appended. */
void flusher_destroy(struct flusher *flusher);

/* The end was published. @thread the append token's holder */
void flusher_appended(struct flusher *flusher);

/* Everything appended until now is on the disk when it returns OK. @thread not the flusher's
 * @blocks on the disk @locks none */
MUST_CHECK enum tern_code flusher_flush(struct flusher *flusher, struct tern_error *err);
/* As options.sync, from now on. @thread any */
void flusher_set_sync(struct flusher *flusher, bool on);

/* Keeps the task from flushing, until let go. @thread any @locks none */
void flusher_hold(struct flusher *flusher);
void flusher_let_go(struct flusher *flusher);
/* Flushes what is appended. @thread who holds it @blocks on the disk */
MUST_CHECK enum tern_code flusher_flush_held(struct flusher *flusher, struct tern_error *err);
/* The log was cut; its last record was stored then. @thread who holds it */
void flusher_cut(struct flusher *flusher, int64_t last_store_ms);

/* Every record stored before this wall clock time is flushed. @thread any */
int64_t flusher_physic_ms(const struct flusher *flusher);
/* Since when something waits for a flush, wall clock; 0: nothing does. @thread any */
int64_t flusher_waiting_since_ms(const struct flusher *flusher);
const struct flusher_stats *flusher_stats(const struct flusher *flusher);

#endif
