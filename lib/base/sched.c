/*
 * Threads and waiting, the part that is the same for every implementation: dispatch through the
 * table of operations, and the rule that nobody waits with a lock held.
 *
 * Threads: any. Failure modes: those of the implementation.
 */
#include "base/sched.h"

#include <stddef.h>
#include <string.h>

#include "base/lock.h"

enum { TASK_NAME_MAX = 15 };

enum tern_code task_start(struct sched *sched, const char *name, task_step_fn step, void *arg,
                          struct task **out)
{
    ENSURE(strlen(name) <= TASK_NAME_MAX);
    *out = NULL;
    return sched->ops->task_start(sched, name, step, arg, out);
}

void task_wake(struct task *task)
{
    task->ops->task_wake(task);
}

void task_stop(struct task *task)
{
    if (!task)
        return;
    lock_assert_none_held();
    task->ops->task_stop(task);
}

bool latch_wait(struct sched *sched, struct latch *latch, int64_t deadline_ns)
{
    lock_assert_none_held();
    return sched->ops->latch_wait(sched, latch, deadline_ns);
}

void latch_set(struct sched *sched, struct latch *latch)
{
    sched->ops->latch_set(sched, latch);
}
