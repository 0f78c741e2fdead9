/*
 * Retention: watches how full the disks are and removes old segments. Internal to the store.
 */
#ifndef STORE_RETENTION_H
#define STORE_RETENTION_H

#include "broker/store/commit_log_internal.h"
#include "broker/store/gate.h"

struct dispatcher;
struct index_service;
struct queue_table;
struct retention;

enum {
    EXPIRE_ROUND_MAX = 10,     /* segments in one round (facts 3.4) */
    EXPIRE_PAUSE_MS = 100,     /* between two of them */
    EXPIRE_MANUAL_ROUNDS = 20, /* of store_expire_now() */
    DISK_FULL_CHECK_MS = 1000  /* how often to look while the disk is full */
};

struct retention_options {
    struct commit_log *log;
    struct queue_table *queues;
    struct index_service *index; /* NULL: not kept */
    struct dispatcher *dispatcher;
    struct gate *gate;
    const char *root;
    int64_t retention_ms;
    uint32_t delete_hours;
    int64_t clean_interval_ms;
    double max_used_ratio, clean_ratio, warning_ratio;
};

/* Looks at the disks once, then starts the tasks. */
MUST_CHECK enum tern_code retention_create(const struct env *env,
                                           const struct retention_options *options,
                                           struct retention **out);
/* Stops the tasks. */
void retention_destroy(struct retention *retention);

/* Expires by age now, whatever the hour; 0 also when a round is under way. @thread any @blocks on
 * the disk */
int retention_expire_now(struct retention *retention);

/* Keeps segments from expiring, until let go; waits for a round under way. @thread any @locks none
 */
void retention_hold(struct retention *retention);
void retention_let_go(struct retention *retention);

/* Queues and index follow the log's minimum; waits for a round under way. @blocks on the disk */
MUST_CHECK enum tern_code retention_clean_queues(struct retention *retention,
                                                 struct tern_error *err);
/* For the next look at the disks and the next round, which come at once. @thread any */
void retention_set_limits(struct retention *retention, const struct store_limits *limits);

/* The ratios of `out` as they are now. @thread any */
void retention_ratios(const struct retention *retention, struct store_limits *out);

/* Segments removed since the start. */
uint64_t retention_expired(const struct retention *retention);

#endif
