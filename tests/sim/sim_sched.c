/*
 * Scheduler on virtual time.
 *
 * Invariants: the clock never moves backwards; a timer runs not before its time, and of two timers
 * the earlier first; timers of one time are ordered by a random key drawn at their creation, tasks
 * by a draw at each turn. Timers are a binary heap, tasks a list: a world has some dozens.
 *
 * Threads: one. Failure modes: a deadlock, a livelock or a wrong call prints and aborts.
 */
#include "tests/sim/sim_sched.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIVELOCK_LIMIT = 1000000 };

struct sim_task {
    struct task task; /* first */
    struct sim_sched *owner;
    struct sim_task *next;
    task_step_fn step;
    void *arg;
    int64_t deadline_ns;
    bool woken;
    bool running; /* its step is on the stack */
    char name[16];
};

struct sim_timer {
    int64_t due_ns;
    uint64_t key; /* random order among equals */
    uint64_t id;
    void (*fn)(void *arg);
    void *arg;
};

struct sim_sched {
    struct sched sched; /* first */
    struct sim_clock *clock;
    struct rng *rng;
    struct sim_task *tasks;
    struct sim_timer *timers; /* heap: the earliest at 0 */
    size_t timer_count;
    size_t timer_cap;
    uint64_t next_timer_id;
    int64_t busy_at_ns; /* livelock guard: things run since the clock showed this */
    unsigned busy_count;
    unsigned depth; /* steps and timers on the stack */
};

static const struct sched_ops sim_ops;

struct sim_sched *sim_sched_create(struct sim_clock *clock, struct rng *rng)
{
    struct sim_sched *sched = calloc(1, sizeof *sched);
    ENSURE(sched);
    sched->sched.ops = &sim_ops;
    sched->clock = clock;
    sched->rng = rng;
    sched->next_timer_id = 1;
    return sched;
}

void sim_sched_destroy(struct sim_sched *sched)
{
    if (!sched)
        return;
    ENSURE(!sched->tasks);
    free(sched->timers);
    free(sched);
}

struct sched *sim_sched_base(struct sim_sched *sched)
{
    return &sched->sched;
}

/* ---- timers ---- */

static bool timer_before(const struct sim_timer *a, const struct sim_timer *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->key < b->key;
}

static void timer_swap(struct sim_timer *a, struct sim_timer *b)
{
    struct sim_timer kept = *a;
    *a = *b;
    *b = kept;
}

static void timer_up(struct sim_sched *sched, size_t i)
{
    struct sim_timer *heap = sched->timers;
    for (; i > 0 && timer_before(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2)
        timer_swap(&heap[i], &heap[(i - 1) / 2]);
}

static void timer_down(struct sim_sched *sched, size_t i)
{
    struct sim_timer *heap = sched->timers;
    for (;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < sched->timer_count; child++)
            if (timer_before(&heap[child], &heap[least]))
                least = child;
        if (least == i)
            return;
        timer_swap(&heap[i], &heap[least]);
        i = least;
    }
}

static void timer_remove(struct sim_sched *sched, size_t i)
{
    sched->timers[i] = sched->timers[--sched->timer_count];
    if (i < sched->timer_count) {
        timer_down(sched, i);
        timer_up(sched, i);
    }
}

uint64_t sim_after(struct sim_sched *sched, int64_t delay_ns, void (*fn)(void *arg), void *arg)
{
    ENSURE(delay_ns >= 0);
    if (sched->timer_count == sched->timer_cap) {
        sched->timer_cap = sched->timer_cap ? 2 * sched->timer_cap : 64;
        sched->timers = realloc(sched->timers, sched->timer_cap * sizeof sched->timers[0]);
        ENSURE(sched->timers);
    }
    sched->timers[sched->timer_count] = (struct sim_timer){
        .due_ns = sched->clock->now_ns + delay_ns,
        .key = rng_next(sched->rng),
        .id = sched->next_timer_id++,
        .fn = fn,
        .arg = arg,
    };
    timer_up(sched, sched->timer_count++);
    return sched->next_timer_id - 1;
}

bool sim_cancel(struct sim_sched *sched, uint64_t timer_id)
{
    for (size_t i = 0; i < sched->timer_count; i++) {
        if (sched->timers[i].id == timer_id) {
            timer_remove(sched, i);
            return true;
        }
    }
    return false;
}

/* ---- running ---- */

static bool task_due(const struct sim_task *task)
{
    return !task->running && (task->woken || task->deadline_ns <= task->owner->clock->now_ns);
}

static void run_task(struct sim_task *task)
{
    task->woken = false;
    task->running = true;
    task->owner->depth++;
    int64_t next_ns = task->step(task->arg, task->owner->clock->now_ns);
    task->owner->depth--;
    task->running = false;
    task->deadline_ns = next_ns;
}

static void run_first_timer(struct sim_sched *sched)
{
    struct sim_timer timer = sched->timers[0];
    timer_remove(sched, 0);
    sched->depth++;
    timer.fn(timer.arg);
    sched->depth--;
}

static _Noreturn void give_up(const struct sim_sched *sched, const char *why)
{
    fprintf(stderr, "fatal: simulation: %s at %lld ns, %zu timers; tasks:\n", why,
            (long long)sched->clock->now_ns, sched->timer_count);
    for (const struct sim_task *task = sched->tasks; task; task = task->next)
        fprintf(stderr, "  %-15s %s%s deadline %lld ns\n", task->name,
                task->running ? "waiting in its step," : "idle,", task->woken ? " woken," : "",
                (long long)task->deadline_ns);
    abort();
}

static void guard_livelock(struct sim_sched *sched)
{
    if (sched->busy_at_ns != sched->clock->now_ns) {
        sched->busy_at_ns = sched->clock->now_ns;
        sched->busy_count = 0;
    }
    if (++sched->busy_count > LIVELOCK_LIMIT)
        give_up(sched, "too many steps without time moving (livelock)");
}

bool sim_run_one(struct sim_sched *sched)
{
    uint64_t due = 0;
    for (const struct sim_task *task = sched->tasks; task; task = task->next)
        due += task_due(task);
    bool timer_due = sched->timer_count > 0 && sched->timers[0].due_ns <= sched->clock->now_ns;
    if (due + timer_due == 0)
        return false;
    guard_livelock(sched);
    uint64_t pick = rng_below(sched->rng, due + timer_due);
    if (pick == due) {
        run_first_timer(sched);
        return true;
    }
    struct sim_task *task = sched->tasks;
    for (;; task = task->next)
        if (task_due(task) && pick-- == 0)
            break;
    run_task(task);
    return true;
}

/* When something will be due, given that nothing is now; SCHED_NEVER when nothing will. */
static int64_t next_event_ns(const struct sim_sched *sched)
{
    int64_t next_ns = sched->timer_count > 0 ? sched->timers[0].due_ns : SCHED_NEVER;
    for (const struct sim_task *task = sched->tasks; task; task = task->next)
        if (!task->running && task->deadline_ns < next_ns)
            next_ns = task->deadline_ns;
    return next_ns;
}

/* Runs one thing, moving the clock when needed, but not beyond limit_ns; false when there is none.
 */
static bool advance_and_run_one(struct sim_sched *sched, int64_t limit_ns)
{
    if (sched->clock->now_ns > limit_ns)
        return false;
    if (sim_run_one(sched))
        return true;
    int64_t next_ns = next_event_ns(sched);
    if (next_ns > limit_ns || next_ns == SCHED_NEVER)
        return false;
    sched->clock->now_ns = next_ns;
    return sim_run_one(sched);
}

static void move_clock_to(struct sim_sched *sched, int64_t time_ns)
{
    if (sched->clock->now_ns < time_ns)
        sched->clock->now_ns = time_ns;
}

void sim_run_until(struct sim_sched *sched, int64_t time_ns)
{
    ENSURE(sched->depth == 0 && time_ns != SCHED_NEVER);
    while (advance_and_run_one(sched, time_ns))
        ;
    move_clock_to(sched, time_ns);
}

void sim_run_for(struct sim_sched *sched, int64_t duration_ns)
{
    ENSURE(duration_ns >= 0);
    sim_run_until(sched, sched->clock->now_ns + duration_ns);
}

bool sim_run_until_idle(struct sim_sched *sched, int64_t limit_ns)
{
    ENSURE(sched->depth == 0);
    while (advance_and_run_one(sched, limit_ns))
        ;
    bool due = false;
    for (const struct sim_task *task = sched->tasks; task; task = task->next)
        due = due || task_due(task);
    return !due && next_event_ns(sched) == SCHED_NEVER;
}

bool sim_run_until_true(struct sim_sched *sched, bool (*done)(void *arg), void *arg,
                        int64_t limit_ns)
{
    ENSURE(sched->depth == 0);
    while (!done(arg)) {
        if (!advance_and_run_one(sched, limit_ns)) {
            if (limit_ns != SCHED_NEVER)
                move_clock_to(sched, limit_ns);
            return false;
        }
    }
    return true;
}

unsigned sim_task_count(const struct sim_sched *sched)
{
    unsigned count = 0;
    for (const struct sim_task *task = sched->tasks; task; task = task->next)
        count++;
    return count;
}

/* ---- as modules see it ---- */

static enum tern_code sim_task_start(struct sched *base, const char *name, task_step_fn step,
                                     void *arg, struct task **out)
{
    struct sim_sched *sched = (struct sim_sched *)base;
    struct sim_task *task = calloc(1, sizeof *task);
    ENSURE(task);
    task->task.ops = &sim_ops;
    task->owner = sched;
    task->step = step;
    task->arg = arg;
    task->deadline_ns = SCHED_NEVER;
    task->woken = true;
    snprintf(task->name, sizeof task->name, "%s", name);
    task->next = sched->tasks;
    sched->tasks = task;
    *out = &task->task;
    return TERN_OK;
}

static void sim_task_wake(struct task *base)
{
    ((struct sim_task *)base)->woken = true;
}

static void sim_task_stop(struct task *base)
{
    struct sim_task *task = (struct sim_task *)base;
    struct sim_sched *sched = task->owner;
    if (task->running)
        give_up(sched, "a task is stopped that waits further up the stack");
    struct sim_task **link = &sched->tasks;
    while (*link != task)
        link = &(*link)->next;
    *link = task->next;
    free(task);
}

static bool sim_latch_wait(struct sched *base, struct latch *latch, int64_t deadline_ns)
{
    struct sim_sched *sched = (struct sim_sched *)base;
    while (atomic_load(&latch->state) != 1) {
        if (advance_and_run_one(sched, deadline_ns))
            continue;
        if (deadline_ns == SCHED_NEVER)
            give_up(sched, "a wait without deadline that nothing can end (deadlock)");
        move_clock_to(sched, deadline_ns);
        return false;
    }
    return true;
}

static void sim_latch_set(struct sched *base, struct latch *latch)
{
    (void)base;
    atomic_store(&latch->state, 1);
}

static const struct sched_ops sim_ops = {
    .task_start = sim_task_start,
    .task_wake = sim_task_wake,
    .task_stop = sim_task_stop,
    .latch_wait = sim_latch_wait,
    .latch_set = sim_latch_set,
};
