/*
 * Threads and waiting. A module's background work is a step function; a task runs it whenever it
 * was woken or its deadline came. In daemons a task is a thread of its own; in simulation all tasks
 * share one thread and virtual time.
 *
 *            task_wake()                    deadline came
 *   idle ───────────────────► step(now) ◄───────────────── idle
 *     ▲                          │
 *     └──────────────────────────┘ returns the next deadline
 *
 * Wake-ups are never lost: a wake during a step makes it run once more. Several wakes may become
 * one step.
 */
#ifndef BASE_SCHED_H
#define BASE_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define SCHED_NEVER INT64_MAX

/*
 * Does what is to be done at `now_ns` (monotonic) and returns the monotonic time of its next run,
 * or SCHED_NEVER to sleep until woken. Returning now_ns or less means: again at once.
 * @thread the task's own @locks none held on entry
 */
typedef int64_t (*task_step_fn)(void *arg, int64_t now_ns);

struct sched;
struct task;
struct latch;

struct sched_ops {
    enum tern_code (*task_start)(struct sched *, const char *name, task_step_fn step, void *arg,
                                 struct task **out);
    void (*task_wake)(struct task *);
    void (*task_stop)(struct task *);
    /* Runs other work (simulation) or sleeps (threads) until the latch is set or it is too late. */
    bool (*latch_wait)(struct sched *, struct latch *, int64_t deadline_ns);
    void (*latch_set)(struct sched *, struct latch *);
};

struct sched {
    const struct sched_ops *ops;
};

/* First member of every implementation's task. */
struct task {
    const struct sched_ops *ops;
};

/*
 * Starts a task; its first step runs at once. name (at most 15 characters) is copied; it is the
 * thread's name. TERN_LIMIT when no thread can be made, see task_start_cause(). @thread any
 */
MUST_CHECK enum tern_code task_start(struct sched *sched, const char *name, task_step_fn step,
                                     void *arg, struct task **out);

/*
 * Why this thread's last task_start() made no thread: errno's text, how many run, and the limit
 * that is in the way with its value. Empty unless it was TERN_LIMIT. Valid until its next
 * task_start().
 */
const char *task_start_cause(void);

/* Makes the task run its step soon. Cheap when it is awake. @thread any, also an NNG callback */
void task_wake(struct task *task);

/* Waits for a running step, then frees the task. NULL allowed. @thread any but the task's own */
void task_stop(struct task *task);

/*
 * A latch: set once, waited for by one thread. It lives in the waiter's memory and must outlast
 * both the wait and the set: a waiter that gave up must make sure nobody will set it any more.
 */
struct latch {
    _Atomic uint32_t state; /* 0 clear, 1 set, 2 clear and a thread sleeps on it (futex word) */
};

static inline void latch_init(struct latch *latch)
{
    latch->state = 0;
}

/* true when set, false when the deadline (monotonic, SCHED_NEVER allowed) passed. @locks none */
MUST_CHECK bool latch_wait(struct sched *sched, struct latch *latch, int64_t deadline_ns);
void latch_set(struct sched *sched, struct latch *latch);

/* Real threads; static storage. */
struct sched *sched_threads(void);

#endif
