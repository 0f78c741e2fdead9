/*
 * The schedule: life, the step of its task, and when it delivers.
 *
 *   FOLLOWING ──the broker takes writes──► OPENING ──no put of before is under way, and the log
 *      ▲                                            was followed up to its end──► DELIVERING
 *      └──────────────── it does not take writes any more, the log is cut ───────────┘
 *
 * OPENING is what makes delivering exactly-once over restarts and failovers: whatever was delivered
 * before by anybody lies in the log, and is known before the first put.
 *
 * Threads: the task "broker-delay"; others only put things down under `lock`, or hold `turn`
 * (cuts).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/names.h"
#include "broker/ha/ha.h"
#include "broker/schedule/schedule_internal.h"

/* ---- life ---- */

enum tern_code schedule_create(struct broker *broker, struct schedule **out)
{
    struct schedule *s = calloc(1, sizeof *s);
    if (!s)
        return TERN_NO_MEMORY;
    lock_init(&s->lock, LOCK_BROKER_DELAY);
    s->broker = broker;
    s->lagging = true; /* nothing is noted before schedule_start() */
    s->intake = calloc(INTAKE_MAX, sizeof *s->intake);
    s->taken = calloc(INTAKE_MAX, sizeof *s->taken);
    s->scanned = calloc(SCAN_EVENTS_MAX, sizeof *s->scanned);
    s->props = malloc(RECORD_PROPS_MAX);
    enum tern_code code = due_heap_init(&s->window, WINDOW_MAX);
    if (!code)
        code = bucket_loader_init(&s->loader, LOAD_MAX);
    if (!s->intake || !s->taken || !s->scanned || !s->props)
        code = TERN_NO_MEMORY;
    if (code)
        schedule_destroy(s);
    else
        *out = s;
    return code;
}

void schedule_destroy(struct schedule *s)
{
    if (!s)
        return;
    flight_take_finished(s, 0); /* answers cancellations that ended since the tasks did */
    buckets_fini(&s->buckets);
    level_progress_fini(&s->levels);
    due_heap_fini(&s->window);
    bucket_loader_fini(&s->loader);
    free(s->intake);
    free(s->taken);
    free(s->scanned);
    free(s->props);
    free(s->scratch);
    lock_fini(&s->lock);
    free(s);
}

void schedule_reset_delivery(struct schedule *s, enum schedule_state state)
{
    static const struct due_key none = {INT64_MIN, INT64_MIN};
    s->state = state;
    s->generation++;
    s->open_end = -1;
    s->window.count = 0;
    s->horizon = s->popped = none;
    s->loader.active = false;
    memset(s->runs, 0, sizeof s->runs);
    for (uint32_t i = 0; i < FLIGHTS_MAX; i++)
        if (s->flights[i].state == FLIGHT_WAITING && s->flights[i].action != ACTION_CANCEL)
            flight_release(s, &s->flights[i]);
}

/* ---- the step ---- */

static bool broker_open(struct schedule *s)
{
    enum tern_code code;
    char text[256];
    return !atomic_load(&s->broker->stopping) && atomic_load(&s->broker->ha) &&
           broker_writable(s->broker, &code, text, sizeof text);
}

/* Nothing of before is under way, and all that the log says is known. */
static bool caught_up(struct schedule *s)
{
    if (s->flights_used > 0)
        return false;
    if (s->open_end < 0) {
        struct store_positions at;
        store_positions(s->broker->store, &at);
        s->open_end = at.whole;
    }
    lock_acquire(&s->lock);
    bool lagging = s->lagging;
    lock_release(&s->lock);
    return !lagging && s->fed >= s->closing_to && s->fed >= s->open_end;
}

static void settle_state(struct schedule *s)
{
    bool open = broker_open(s);
    if (!open && s->state != SCHEDULE_FOLLOWING)
        schedule_reset_delivery(s, SCHEDULE_FOLLOWING);
    if (open && s->state == SCHEDULE_FOLLOWING)
        schedule_reset_delivery(s, SCHEDULE_OPENING);
    if (s->state != SCHEDULE_OPENING || !caught_up(s))
        return;
    schedule_reset_delivery(s, SCHEDULE_DELIVERING);
    for (int32_t level = 0; level < DELAY_LEVELS_MAX; level++)
        s->runs[level].base = s->levels.base[level];
    log_info(s->broker->env.log, "delay_delivering", "position=%" PRId64, s->fed);
}

static int64_t behind_ms(const struct schedule *s, int64_t now_ms)
{
    const struct due_entry *first = due_heap_first(&s->window);
    return first && first->key.key_ms < now_ms ? now_ms - first->key.key_ms : 0;
}

static void publish(struct schedule *s)
{
    struct schedule_status now = {.state = s->state,
                                  .timer_pending = s->buckets.pending,
                                  .timer_files = s->buckets.count,
                                  .window = s->window.count,
                                  .behind_ms = behind_ms(s, clock_wall_ms(s->broker->env.clock)),
                                  .position = s->fed,
                                  .putting = s->flights_used,
                                  .delivered = s->delivered,
                                  .rolled = s->rolled,
                                  .retried = s->retried,
                                  .dead = s->dead,
                                  .discarded = s->discarded,
                                  .expired = s->expired,
                                  .cancelled = s->cancelled,
                                  .rebuilt = s->rebuilt};
    memcpy(now.level_done, s->levels.base, sizeof now.level_done);
    lock_acquire(&s->lock);
    now.lagging = s->lagging;
    s->status = now;
    lock_release(&s->lock);
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t step(void *arg, int64_t now_ns)
{
    struct schedule *s = arg;
    int64_t next_ns = now_ns + ms_to_ns(IDLE_MS);
    if (!turn_try(&s->turn))
        return SCHED_NEVER; /* who has it wakes us */
    flight_take_finished(s, now_ns);
    bool more = follow_step(s, now_ns);
    settle_state(s);
    next_ns = sooner(next_ns, cancel_step(s, now_ns));
    if (s->state == SCHEDULE_DELIVERING) {
        next_ns = sooner(next_ns, flight_retries(s, now_ns));
        next_ns = sooner(next_ns, deliver_levels(s, now_ns));
        next_ns = sooner(next_ns, deliver_timer(s, now_ns));
    }
    save_step(s, now_ns);
    publish(s);
    turn_release(&s->turn);
    return more ? now_ns : next_ns;
}

enum tern_code schedule_start(struct schedule *s, struct tern_error *err)
{
    const struct broker *broker = s->broker;
    const struct env *env = &broker->env;
    char dir[FS_PATH_BYTES];
    enum tern_code code = fs_join(dir, broker->config.store_root, "ternmq");
    if (!code)
        code = fs_join(s->dir, dir, "delay");
    if (!code)
        code = fs_join(dir, broker->config.store_root, "config");
    if (!code)
        code = fs_join(s->offsets_path, dir, "delayOffset.json");
    if (code)
        return error_set(err, code, "storePathRootDir: '%s' is too long",
                         broker->config.store_root);
    schedule_reset_delivery(s, SCHEDULE_FOLLOWING);
    code = follow_start(s, err);
    if (code)
        return code;
    struct task *task = NULL;
    struct task *save_task = NULL;
    code = task_start(env->sched, "broker-delay-cp", save_task_step, s, &save_task);
    if (!code)
        code = task_start(env->sched, "broker-delay", step, s, &task);
    lock_acquire(&s->lock);
    s->save_task = save_task;
    s->task = task;
    lock_release(&s->lock);
    if (task)
        task_wake(task); /* what was told before it could be woken */
    return code ? error_set(err, code, "starting the task of delayed messages") : TERN_OK;
}

void schedule_stop(struct schedule *s)
{
    struct tern_error err;
    if (!s)
        return;
    lock_acquire(&s->lock);
    struct task *task = s->task;
    struct task *save_task = s->save_task;
    s->task = s->save_task = NULL;
    lock_release(&s->lock);
    task_stop(task);
    task_stop(save_task);
    cancel_refuse_all(s);
    if (!task)
        return;
    save_discard(s);
    (void)follow_step(s, clock_mono_ns(s->broker->env.clock));
    enum tern_code code = s->rebuild_wanted ? TERN_OK : save_now(s, NULL, &err);
    if (code)
        log_error(s->broker->env.log, "delay_checkpoint_failed", "cause=\"%s\"",
                  error_text(&err, code));
}

/* ---- what others tell ---- */

void schedule_on_record(struct schedule *s, const struct record *record)
{
    struct delay_event event;
    if (!s || !delay_event_of(record, &event))
        return;
    lock_acquire(&s->lock);
    if (!s->lagging && s->intake_count == INTAKE_MAX)
        s->lagging = true; /* too fast: it will be read from the log */
    if (!s->lagging) {
        s->intake[s->intake_count++] = event;
        if (s->intake_count == 1 && s->task)
            task_wake(s->task);
    }
    lock_release(&s->lock);
}

void schedule_on_arrival(struct schedule *s, int32_t queue_id)
{
    if (!s || queue_id < 0 || queue_id >= DELAY_LEVELS_MAX)
        return;
    uint64_t bit = UINT64_C(1) << queue_id;
    lock_acquire(&s->lock);
    bool news = !(s->arrived & bit);
    s->arrived |= bit;
    if (news && s->task)
        task_wake(s->task);
    lock_release(&s->lock);
}

void schedule_wake(struct schedule *s)
{
    if (!s)
        return;
    lock_acquire(&s->lock);
    if (s->task)
        task_wake(s->task);
    lock_release(&s->lock);
}

enum tern_code schedule_on_cut(struct schedule *s, int64_t phys_off, struct tern_error *err)
{
    if (!s || !s->buckets.places) /* not started: it will look at the log as it is then */
        return TERN_OK;
    turn_wait(&s->turn, &s->broker->env);
    turn_wait(&s->save_turn, &s->broker->env);
    enum tern_code code = follow_cut(s, phys_off, err);
    if (code)
        schedule_on_cut_end(s); /* there will be no cut */
    return code;
}

void schedule_on_cut_end(struct schedule *s)
{
    if (!s || !s->buckets.places)
        return;
    turn_release(&s->save_turn);
    turn_release(&s->turn);
    lock_acquire(&s->lock);
    if (s->save_task)
        task_wake(s->save_task);
    if (s->task)
        task_wake(s->task);
    lock_release(&s->lock);
}

void schedule_status(struct schedule *s, struct schedule_status *out)
{
    lock_acquire(&s->lock);
    *out = s->status;
    lock_release(&s->lock);
}
