/*
 * The schedule as its own parts see it:
 *
 *   schedule.c        life, the task's step, status
 *   follow.c          from records to levels and buckets; cuts; checkpoints as read
 *   schedule_save.c   checkpoints
 *   deliver_levels.c  levels that are due
 *   deliver_timer.c   the window: messages of the timer that are due soon
 *   flight.c          one message on its way: what becomes of it, the put, what came of that
 *   cancel.c          cancelling
 *
 * Whose fields: `lock` guards the intake and what ends on other threads; everything else is the
 * task's, or belongs to who holds `turn`.
 */
#ifndef SCHEDULE_SCHEDULE_INTERNAL_H
#define SCHEDULE_SCHEDULE_INTERNAL_H

#include "base/clock.h"
#include "base/lock.h"
#include "base/sched.h"
#include "broker/broker_internal.h"
#include "broker/put.h"
#include "broker/schedule/bucket_loader.h"
#include "broker/schedule/delay_checkpoint.h"
#include "broker/schedule/schedule.h"
#include "broker/store/turn.h"

enum {
    INTAKE_MAX = BUCKET_EVENTS_MAX,
    SCAN_EVENTS_MAX = 2048,
    SCAN_RECORDS_MAX = 4096,
    SCAN_BYTES_MAX = 4 << 20,
    WINDOW_MAX = 65536,
    LOAD_MAX = 32768,
    WINDOW_LOW = WINDOW_MAX / 4,
    LOOK_AHEAD_MS = 10000,
    FLIGHTS_MAX = 512,
    LEVEL_FLIGHTS_MAX = 32, /* of one level; fewer than the bits of its masks */
    CANCEL_FLIGHTS_MAX = 64,
    CANCEL_QUEUE_MAX = 1024,
    IDLE_MS = 1000,
    RETRY_MS = 100,
    DELIVERY_TRIES_MAX = 12,
    RETRY_BACKOFF_MAX_MS = 600000
};

enum flight_state { FLIGHT_FREE, FLIGHT_PUTTING, FLIGHT_WAITING };
enum flight_action {
    ACTION_DELIVER,
    ACTION_ROLL,    /* waits on, as a new record */
    ACTION_RETRY,   /* its topic does not take it: waits for another try */
    ACTION_DEAD,    /* never took it: to DELAY_DEAD_TOPIC */
    ACTION_DISCARD, /* there is nothing to deliver: a mark */
    ACTION_CANCEL   /* a mark */
};

/* One message on its way. A waiting one that could not be stored is tried again at retry_ns. */
struct flight {
    struct put put;
    struct schedule *schedule;
    enum flight_state state;
    enum flight_action action;
    struct waiting waiting;
    int64_t phys_off;    /* of the waiting record */
    uint32_t generation; /* of the delivering that it belongs to */
    uint32_t failures;
    bool refused;  /* the store will never take it as it is */
    bool no_queue; /* its queue could not be made: it waits on elsewhere */
    bool stored;   /* a cancelling, until the log has told of it */
    int64_t retry_ns;
    enum tern_code code;          /* of the put */
    const char *given_up;         /* why, of an ACTION_DISCARD */
    struct rpc_request *request;  /* of a cancelling */
    struct flight *next_finished; /* lock */
};

/* Delivering of one level; masks are of offsets from `base` on. */
struct level_run {
    int64_t base;
    uint64_t putting, stored;
    int64_t due_ms, due_ns; /* by the wall clock, by the monotonic one: the next ones are due */
    int64_t due_end;        /* at the first of these times, all offsets below it */
    int64_t retry_ns;       /* not before */
    bool at_end;            /* nothing until an arrival */
};

/* What the checkpoint task writes; malloc'ed. */
struct save {
    uint8_t *bytes;
    size_t size;
    struct delay_snapshots snapshots; /* which become true with it */
    int64_t base[DELAY_LEVELS_MAX];
    int64_t *dirty; /* ids of buckets to sync before */
    uint32_t dirty_count;
    bool finished;
    enum tern_code code;
    struct tern_error err;
};

struct schedule {
    struct broker *broker;
    char dir[FS_PATH_BYTES], offsets_path[FS_PATH_BYTES];

    struct lock lock;                           /* BROKER_DELAY */
    struct delay_event *intake, *taken;         /* INTAKE_MAX each; lock, the task's */
    uint32_t intake_count;                      /* lock */
    bool lagging;                               /* lock, set by anybody: the log is read instead */
    uint64_t arrived;                           /* lock: levels with new messages */
    struct flight *finished;                    /* lock */
    struct rpc_request *cancels, *cancels_last; /* lock: by `next`, oldest first */
    uint32_t cancel_count;                      /* lock */
    struct save *save;                          /* lock: being written, or finished */
    struct task *task, *save_task;              /* lock; NULL: does not run */
    struct schedule_status status;              /* lock: as published */

    struct turn turn, save_turn;

    /* what the log says */
    struct buckets buckets;
    struct level_progress levels;
    struct delay_snapshots snapshots; /* the last is durable */
    int64_t fed;                      /* of the log, followed up to here */
    int64_t closing_to;               /* read up to here before the intake counts again */
    int64_t damaged_at; /* of the log: everything was made anew for what is there; 0: nowhere */
    int64_t follow_retry_ns;
    int64_t next_save_ns;
    bool rebuild_wanted; /* could not be done yet */
    bool save_broken;    /* a sync failed: no more checkpoints from this process */
    struct delay_event *scanned;
    uint32_t scanned_count, scanned_records;
    int64_t scanned_bytes;

    /* delivering */
    enum schedule_state state;
    uint32_t generation;
    int64_t open_end;   /* followed up to here, delivering may begin; -1: not known yet */
    int64_t putted_end; /* end of the last record that was put */
    struct level_run runs[DELAY_LEVELS_MAX];
    struct due_heap window;
    struct due_key horizon; /* all that wait up to here are in the window, or on their way */
    struct due_key popped;  /* the latest that left the window to be delivered */
    struct bucket_loader loader;
    struct flight flights[FLIGHTS_MAX];
    uint32_t flights_used, cancels_used;
    uint8_t *scratch; /* a record, or some, as read */
    size_t scratch_cap;
    uint8_t *props;           /* being made */
    struct rpc_request *held; /* cancels taken from the intake, by `next` */
    uint64_t delivered, rolled, retried, dead, discarded, expired, cancelled, rebuilt;
};

/* ---- follow.c ---- */

/* Reads the checkpoint and makes it agree with the log. @blocks on the disk */
MUST_CHECK enum tern_code follow_start(struct schedule *s, struct tern_error *err);
/* Takes what the log says since; returns whether there is more to do at once. */
bool follow_step(struct schedule *s, int64_t now_ns);
/* What the log said at and beyond phys_off is not true any more. @blocks on the disk */
MUST_CHECK enum tern_code follow_cut(struct schedule *s, int64_t phys_off, struct tern_error *err);
/* Files are damaged: everything is made anew from the log. */
void follow_rebuild(struct schedule *s, const char *cause);

/* ---- schedule_save.c ---- */

/* Begins a checkpoint when it is time, ends the one that was written. */
void save_step(struct schedule *s, int64_t now_ns);
/* Writes one here and now; the task does not run, or stands still. @blocks on the disk */
MUST_CHECK enum tern_code save_now(struct schedule *s, const struct delay_snapshots *snapshots,
                                   struct tern_error *err);
void save_discard(struct schedule *s);
int64_t save_task_step(void *arg, int64_t now_ns);

/* ---- deliver_levels.c, deliver_timer.c: return when they want to run next (monotonic) ---- */

int64_t deliver_levels(struct schedule *s, int64_t now_ns);
int64_t deliver_timer(struct schedule *s, int64_t now_ns);
/* A message begins to wait, or one that waited was cancelled or given up, as the log says. */
void window_add(struct schedule *s, const struct due_entry *entry);
void window_strike(struct schedule *s, const struct due_key *key);
/* A level's message is on its way no more. */
void level_flight_ended(struct schedule *s, const struct flight *flight, bool stored);

/* ---- flight.c ---- */

struct flight *flight_take(struct schedule *s, enum flight_action action,
                           const struct waiting *waiting, int64_t phys_off);
void flight_release(struct schedule *s, struct flight *flight);
/* What is to become of a record now, and the put that does it. *record is borrowed. A put that
 * could not be started leaves the flight waiting for another try. */
void flight_start(struct schedule *s, struct flight *flight, const struct record *record,
                  int64_t now_ns);
/* The same for one that is no longer there, or is another: record NULL. */
void flight_take_finished(struct schedule *s, int64_t now_ns);
/* The flights that wait for another try and are the timer's. */
int64_t flight_retries(struct schedule *s, int64_t now_ns);
/* Reads one record into the scratch. TERN_NOT_FOUND: no such. */
enum tern_code schedule_read(struct schedule *s, int64_t phys_off, struct record *out);
uint8_t *schedule_reserve(void *arg, size_t size_bytes);

/* ---- cancel.c ---- */

int64_t cancel_step(struct schedule *s, int64_t now_ns);
/* Whether it is being cancelled. */
bool cancel_covers(const struct schedule *s, const struct waiting *waiting);
void cancel_ended(struct schedule *s, struct flight *flight);
/* Answers all; nobody cancels here any more. */
void cancel_refuse_all(struct schedule *s);

/* ---- schedule.c ---- */

/* Delivering ends, or begins anew: what is in memory only is forgotten. */
void schedule_reset_delivery(struct schedule *s, enum schedule_state state);

#endif
