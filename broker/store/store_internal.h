/*
 * The store as its own parts see it. Not for anybody outside broker/store (and its tests).
 *
 * store.c assembles the parts and owns this struct; store_get.c and store_query.c read log, queues
 * and index and count what they did; the other parts get only the pieces they need at creation.
 *
 * Lifetime: every pointer below is set before store_open() returns and is not changed until
 * store_close(). With options.read_only there are no tasks: dispatcher, everything from lock_file
 * to retention, are NULL.
 */
#ifndef STORE_STORE_INTERNAL_H
#define STORE_STORE_INTERNAL_H

#include <stdatomic.h>

#include "base/fs.h"
#include "broker/store/checkpoint.h"
#include "broker/store/commit_log.h"
#include "broker/store/cut_intent.h"
#include "broker/store/dispatcher.h"
#include "broker/store/gate.h"
#include "broker/store/index_service.h"
#include "broker/store/queue_table.h"
#include "broker/store/store.h"

struct appender;
struct deletions;
struct flush_mark;
struct flusher;
struct preparer;
struct queue_flusher;
struct retention;

/* Limits of a get that store_set_limits() changes; read without a lock, each by itself. */
struct read_limits {
    _Atomic int64_t memory_window_bytes;
    _Atomic uint32_t memory_count, disk_count, memory_bytes, disk_bytes;
};

struct store {
    const struct env *env; /* points to env_copy, so that the caller's struct may go */
    struct env env_copy;
    struct store_options options; /* root_dir points to root */
    struct read_limits limits;    /* what of them may change */
    char root[FS_PATH_BYTES];

    struct commit_log *log;
    struct queue_table *queues;
    struct index_service *index; /* NULL: not kept */
    struct dispatcher *dispatcher;
    struct deletions *deletions;

    struct gate gate; /* whether appends are let in, and why not */
    struct file *lock_file;
    struct checkpoint checkpoint; /* as read at the start; the queue flusher keeps its own */
    struct flush_mark *mark;
    struct preparer *preparer;
    struct flusher *flusher;
    struct queue_flusher *queue_flusher;
    struct appender *appender;
    struct retention *retention;
    struct store_recovery recovery;
    int64_t indexed;       /* durably, by the flush mark as it was before this start */
    int64_t checked_from;  /* recovery checked the log's records from here on */
    bool as_closed;        /* the log ends where a clean stop of ours left it */
    bool log_was_missing;  /* there was no segment at all */
    struct cut_intent cut; /* as found at the start, and finished by it */

    _Atomic uint64_t get_found, get_missed, get_again, get_messages; /* by store_get() */
};

/* store_live.c: takes them from the options. */
void store_set_read_limits(struct store *store, const struct store_limits *limits);

#endif
