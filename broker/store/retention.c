/*
 * Retention.
 *
 * Place: beside the log. Two tasks, so that slow deletes never delay the look at the disk:
 *
 *   store-disk   every clean_interval_ms (each second while full): used ratio of the disks of
 * commitlog/ and consumequeue/, the fuller counts > warning_ratio   appends are refused (gate),
 * until it is below again > clean_ratio     segments go whatever their age > max_used_ratio
 * segments older than retention_ms go at any hour store-clean  every clean_interval_ms: rounds of
 * at most EXPIRE_ROUND_MAX segments, oldest first, with a pause after each; at deleteWhen's hours
 * (local time) or when the disk says so
 *
 * Which segments: whole ones, never the last, only below what is flushed and dispatched (a message
 * that was acknowledged but not dispatched is late, never lost); by age: not modified for
 * retention_ms. The first that does not qualify ends the round. Consumers have no say (S-7).
 * Before a segment goes, the queues of what it holds are synced: the log can never again say which
 * offsets it had given out. On a full disk that has no room for them segments go all the same.
 *
 * A segment goes in this order: unlink, out of the set, min up, directory synced; then queues and
 * index follow and the owner is told. A crash between any two leaves a store whose minimum is
 * simply the first file.
 *
 * Threads: the two tasks; expire_now() in any. `busy` keeps rounds apart, and cuts of the log.
 * Failure modes: a segment that cannot be unlinked stays and is tried again next round; queues or
 * index that cannot follow latch the store, but for want of room: their files go in a later round.
 * A disk that cannot be asked counts as above max_used_ratio, as in RocketMQ.
 */
#include "broker/store/retention.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sched.h"
#include "broker/store/dispatcher.h"
#include "broker/store/index_service.h"
#include "broker/store/queue_table.h"
#include "broker/store/turn.h"

enum pressure { PRESSURE_NONE, PRESSURE_BY_AGE, PRESSURE_WHATEVER };

struct retention {
    const struct env *env;
    struct retention_options options; /* but for what stands in the fields that follow */
    _Atomic int64_t retention_ms;     /* these change while the tasks run */
    _Atomic uint32_t delete_hours;
    _Atomic double max_used_ratio, clean_ratio, warning_ratio;
    char log_dir[FS_PATH_BYTES];
    char queue_dir[FS_PATH_BYTES];
    struct task *disk_task;
    struct task *clean_task;
    _Atomic int pressure; /* enum pressure, set by the disk task */
    struct turn busy;     /* of whoever expires */
    int64_t synced_pos;   /* queues are synced up to here; of whoever has `busy`; 0: unknown */
    _Atomic uint64_t expired;

    /* the clean task's own */
    int round_left; /* of the round under way */
    bool round_moved;
};

/* ---- the disk ---- */

/* Used part of the disk under `dir`, -1 when it cannot be told. */
static double used_ratio(const struct retention *r, const char *dir)
{
    struct fs_space space;
    if (fs_space(r->env->fs, dir, &space) || space.total_bytes <= 0)
        return -1.0;
    return (double)(space.total_bytes - space.free_bytes) / (double)space.total_bytes;
}

static void look_at_disks(struct retention *r)
{
    double log_ratio = used_ratio(r, r->log_dir);
    double queue_ratio = used_ratio(r, r->queue_dir);
    double ratio = log_ratio > queue_ratio ? log_ratio : queue_ratio;
    enum pressure pressure = PRESSURE_NONE;
    if (ratio > r->clean_ratio)
        pressure = PRESSURE_WHATEVER;
    else if (ratio > r->max_used_ratio || log_ratio < 0 || queue_ratio < 0)
        pressure = PRESSURE_BY_AGE;
    atomic_store(&r->pressure, (int)pressure);
    gate_set_disk(r->options.gate, ratio > r->warning_ratio, ratio);
}

/* @thread the disk task's */
static int64_t disk_step(void *arg, int64_t now_ns)
{
    struct retention *r = arg;
    look_at_disks(r);
    int64_t wait_ms = r->options.clean_interval_ms;
    bool pressed = atomic_load(&r->pressure) == PRESSURE_WHATEVER;
    if (pressed && r->clean_task)
        task_wake(r->clean_task);
    if (atomic_load(&r->options.gate->disk_full) && wait_ms > DISK_FULL_CHECK_MS)
        wait_ms = DISK_FULL_CHECK_MS;
    return now_ns + ms_to_ns(wait_ms);
}

/* ---- expiring ---- */

static bool is_delete_hour(const struct retention *r)
{
    time_t now = (time_t)(clock_wall_ms(r->env->clock) / 1000);
    struct tm local;
    return localtime_r(&now, &local) && (r->delete_hours >> local.tm_hour & 1);
}

/* Whether a segment has not been written for retention_ms. */
static bool is_old(const struct retention *r, const struct segment *segment)
{
    char name[SEGMENT_NAME_BYTES];
    char path[FS_PATH_BYTES];
    struct fs_stat stat;
    segment_name(name, segment->base);
    if (fs_join(path, r->log_dir, name) || fs_stat(r->env->fs, path, &stat))
        return false;
    return stat.mtime_ms + r->retention_ms <= clock_wall_ms(r->env->clock);
}

/* Whether the queues of everything before `end` are on the disk. @thread whoever has `busy` */
static bool queues_synced(struct retention *r, int64_t end)
{
    struct tern_error err = {TERN_OK, ""};
    int64_t position = dispatcher_position(r->options.dispatcher);
    if (end <= r->synced_pos)
        return true;
    enum tern_code code = queue_table_flush(r->options.queues, true, &err);
    if (code == TERN_NO_SPACE)
        return true;
    if (code)
        gate_latch(r->options.gate, code, error_text(&err, code));
    else
        r->synced_pos = position;
    return !code;
}

/* Removes the first segment if it qualifies. @thread whoever has `busy` */
static bool expire_one(struct retention *r, bool whatever_age)
{
    struct commit_log *log = r->options.log;
    struct segment *first = segments_first(&log->segments);
    ENSURE(first != NULL);
    int64_t base = first->base;
    int64_t end = base + log->segments.bytes;
    bool go = segments_count(&log->segments) > 1 && end <= commit_log_flushed(log) &&
              end <= dispatcher_position(r->options.dispatcher) &&
              (whatever_age || is_old(r, first)) && queues_synced(r, end);
    segment_unref(first);
    if (!go)
        return false;
    enum tern_code code = segments_remove_first(&log->segments);
    if (code) {
        log_error(r->env->log, "store.segment_not_removed",
                  "segment=%020" PRId64 " code=%s errno=%d", base, tern_code_name(code), errno);
        return false;
    }
    commit_log_update_min(log);
    atomic_fetch_add(&r->expired, 1);
    if (fs_sync_dir(r->env->fs, r->log_dir)) /* also gives the room back */
        gate_latch(r->options.gate, TERN_IO, "the directory commitlog/ cannot be synced");
    log_info(r->env->log, "store.segment_expired", "segment=%020" PRId64 " pressure=%d", base,
             whatever_age);
    return true;
}

/* The minimum has moved: queues, index, owner. @thread whoever has `busy` */
static void follow(struct retention *r)
{
    int64_t min = commit_log_min(r->options.log);
    struct tern_error err = {TERN_OK, ""};
    enum tern_code code = queue_table_expire(r->options.queues, min, &err);
    if ((!code || code == TERN_NO_SPACE) && r->options.index)
        code = index_service_expire(r->options.index, min, &err);
    if (code && code != TERN_NO_SPACE)
        gate_latch(r->options.gate, code, error_text(&err, code));
    const struct store_observer *observer = &r->options.gate->observer;
    if (observer->on_expired)
        observer->on_expired(observer->arg, min);
}

/* What the clean task may do now; NONE: nothing. */
static enum pressure clean_reason(const struct retention *r)
{
    enum pressure pressure = (enum pressure)atomic_load(&r->pressure);
    if (pressure == PRESSURE_NONE && is_delete_hour(r))
        pressure = PRESSURE_BY_AGE;
    return pressure;
}

/* Ends the round, with what has to follow it. */
static int64_t end_round(struct retention *r, int64_t now_ns)
{
    if (r->round_moved)
        follow(r);
    r->round_left = 0;
    r->round_moved = false;
    turn_release(&r->busy);
    return now_ns + ms_to_ns(r->options.clean_interval_ms);
}

/* @thread the clean task's */
static int64_t clean_step(void *arg, int64_t now_ns)
{
    struct retention *r = arg;
    enum pressure reason = clean_reason(r);
    if (r->round_left == 0) {
        if (reason == PRESSURE_NONE || !turn_try(&r->busy))
            return now_ns + ms_to_ns(r->options.clean_interval_ms);
        r->round_left = EXPIRE_ROUND_MAX;
    }
    if (reason == PRESSURE_NONE || !expire_one(r, reason == PRESSURE_WHATEVER))
        return end_round(r, now_ns);
    r->round_moved = true;
    if (reason == PRESSURE_WHATEVER)
        look_at_disks(r); /* enough may be free now */
    if (--r->round_left == 0)
        return end_round(r, now_ns);
    return now_ns + ms_to_ns(EXPIRE_PAUSE_MS);
}

int retention_expire_now(struct retention *r)
{
    if (!turn_try(&r->busy))
        return 0;
    int gone = 0;
    while (gone < EXPIRE_ROUND_MAX * EXPIRE_MANUAL_ROUNDS && expire_one(r, false))
        gone++;
    if (gone > 0)
        follow(r);
    turn_release(&r->busy);
    return gone;
}

enum tern_code retention_clean_queues(struct retention *r, struct tern_error *err)
{
    retention_hold(r);
    int64_t min = commit_log_min(r->options.log);
    enum tern_code code = queue_table_expire(r->options.queues, min, err);
    if (!code && r->options.index)
        code = index_service_expire(r->options.index, min, err);
    turn_release(&r->busy);
    return code;
}

void retention_set_limits(struct retention *r, const struct store_limits *limits)
{
    r->retention_ms = limits->retention_ms;
    r->delete_hours = limits->delete_hours;
    r->max_used_ratio = limits->disk_max_used_ratio;
    r->clean_ratio = limits->disk_clean_ratio;
    r->warning_ratio = limits->disk_warning_ratio;
    if (r->disk_task)
        task_wake(r->disk_task);
    if (r->clean_task)
        task_wake(r->clean_task);
}

void retention_ratios(const struct retention *r, struct store_limits *out)
{
    out->disk_max_used_ratio = r->max_used_ratio;
    out->disk_clean_ratio = r->clean_ratio;
    out->disk_warning_ratio = r->warning_ratio;
}

void retention_hold(struct retention *r)
{
    turn_wait(&r->busy, r->env);
}

void retention_let_go(struct retention *r)
{
    r->synced_pos = 0; /* of a log that may have been cut */
    turn_release(&r->busy);
}

uint64_t retention_expired(const struct retention *r)
{
    return atomic_load(&r->expired);
}

enum tern_code retention_create(const struct env *env, const struct retention_options *options,
                                struct retention **out)
{
    *out = NULL;
    struct retention *r = calloc(1, sizeof *r);
    if (!r)
        return TERN_NO_MEMORY;
    r->env = env;
    r->options = *options;
    retention_set_limits(r, &(struct store_limits){.retention_ms = options->retention_ms,
                                                   .delete_hours = options->delete_hours,
                                                   .disk_max_used_ratio = options->max_used_ratio,
                                                   .disk_clean_ratio = options->clean_ratio,
                                                   .disk_warning_ratio = options->warning_ratio});
    enum tern_code code = fs_join(r->log_dir, options->root, "commitlog");
    if (!code)
        code = fs_join(r->queue_dir, options->root, "consumequeue");
    if (!code) {
        look_at_disks(r);
        *out = r; /* the first step may come before task_start() returns */
        code = task_start(env->sched, "store-clean", clean_step, r, &r->clean_task);
    }
    if (!code)
        code = task_start(env->sched, "store-disk", disk_step, r, &r->disk_task);
    if (code) {
        retention_destroy(r);
        *out = NULL;
    }
    return code;
}

void retention_destroy(struct retention *r)
{
    if (!r)
        return;
    task_stop(r->disk_task);
    task_stop(r->clean_task);
    free(r);
}
