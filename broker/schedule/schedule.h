/*
 * Delivers delayed messages when their time has come (RocketMQ: ScheduleMessageService, and the
 * timer of RocketMQ 5). docs/delay.md tells the whole.
 *
 * All it knows is derived from the log, on masters and slaves alike:
 *
 *   dispatcher ─ on_sequel ─► schedule_on_record ─► follow ─┬► progress of levels
 *                                                           └► buckets (the timer's files)
 *   master, open:  level queues ─┐
 *                  buckets ─ window ─┴► put: real topic, with SEQUEL_OF ─► log ─► dispatcher …
 *
 * A put's record is what says that the waiting message was delivered; so a restart, a slave, and a
 * cut of the log all know the same.
 *
 * Threads: "broker-delay" does everything but syncing and writing checkpoints, which
 * "broker-delay-cp" does, so that a slow disk does not delay messages.
 */
#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "broker/store/delay_level.h"

struct broker;
struct record;
struct rpc_request;
struct schedule;

/* Before the store is opened, since it tells of records from then on. */
MUST_CHECK enum tern_code schedule_create(struct broker *broker, struct schedule **out);
/* Reads what is known, makes it agree with the log, starts the tasks. The store and the tables are
 * open, replication does not run yet. @blocks on the disk */
MUST_CHECK enum tern_code schedule_start(struct schedule *schedule, struct tern_error *err);
/* Ends the tasks and writes a checkpoint; puts under way may end later. NULL allowed. @blocks */
void schedule_stop(struct schedule *schedule);
/* No put is under way any more. NULL allowed. */
void schedule_destroy(struct schedule *schedule);

/* ---- what the store and replication tell; NULL allowed ---- */

/* store_observer's on_sequel. @thread as that @locks none; only notes it */
void schedule_on_record(struct schedule *schedule, const struct record *record);
/* A level's queue has new messages. */
void schedule_on_arrival(struct schedule *schedule, int32_t queue_id);
/*
 * The log is about to end at phys_off (0: to be replaced by another); takes back what it said
 * beyond, durably, and stands still until schedule_on_cut_end(). @thread who holds the store
 * @blocks
 */
MUST_CHECK enum tern_code schedule_on_cut(struct schedule *schedule, int64_t phys_off,
                                          struct tern_error *err);
void schedule_on_cut_end(struct schedule *schedule);
/* The broker became, or may have become, a master that is open. */
void schedule_wake(struct schedule *schedule);

/* ---- what clients and operators ask ---- */

/* Answers a CancelDelayedRequest, now or when the cancelling is stored. @thread any */
void schedule_cancel(struct schedule *schedule, struct rpc_request *request);

enum schedule_state {
    SCHEDULE_FOLLOWING, /* a slave, or a master that is not open */
    SCHEDULE_OPENING,   /* reads what the log says before it delivers */
    SCHEDULE_DELIVERING
};

struct schedule_status {
    enum schedule_state state;
    int64_t level_done[DELAY_LEVELS_MAX]; /* next queue offset to deliver */
    int64_t timer_pending;                /* messages waiting with the timer */
    uint32_t timer_files, window;         /* files; messages in memory */
    int64_t behind_ms;                    /* how late the earliest due message is, 0: none is */
    int64_t position;                     /* of the log, followed up to here */
    bool lagging;                         /* reads the log to catch up */
    uint32_t putting;
    uint64_t delivered, rolled, retried, dead, discarded, expired, cancelled, rebuilt;
};
/* @thread any */
void schedule_status(struct schedule *schedule, struct schedule_status *out);

#endif
