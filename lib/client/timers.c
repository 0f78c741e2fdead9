/*
 * One-shot timers of those who pause before they try again, run by the instance's task.
 *
 * Invariants: every started timer's done is called exactly once, by the task or by the instance's
 * end; the list is sorted by due time. A timer may be started anew, and freed, from its own done.
 *
 * Threads: any; the list is protected by CLIENT, done is called without it. Failure modes: none but
 * an instance that stops, which starts no timer any more.
 */
#include "client/instance_internal.h"

bool instance_timer_start(struct instance *instance, struct instance_timer *timer, int64_t due_ns)
{
    lock_acquire(&instance->lock);
    bool good = !instance->stopping && instance->task;
    if (good) {
        struct instance_timer **at = &instance->timers;
        while (*at && (*at)->due_ns <= due_ns)
            at = &(*at)->next;
        timer->due_ns = due_ns;
        timer->next = *at;
        *at = timer;
        instance_step_by(instance, due_ns);
    }
    lock_release(&instance->lock);
    return good;
}

/* The first one when it is due by until_ns, else NULL; *next_ns is the first one's time. */
static struct instance_timer *take_due(struct instance *instance, int64_t until_ns,
                                       int64_t *next_ns)
{
    lock_acquire(&instance->lock);
    struct instance_timer *timer = instance->timers;
    *next_ns = timer ? timer->due_ns : SCHED_NEVER;
    if (timer && timer->due_ns <= until_ns)
        instance->timers = timer->next;
    else
        timer = NULL;
    lock_release(&instance->lock);
    return timer;
}

int64_t timers_step(struct instance *instance, int64_t now_ns)
{
    int64_t next_ns;
    struct instance_timer *timer;
    while ((timer = take_due(instance, now_ns, &next_ns)) != NULL)
        timer->done(timer, TERN_OK);
    return next_ns;
}

void timers_fini(struct instance *instance)
{
    int64_t next_ns;
    struct instance_timer *timer;
    while ((timer = take_due(instance, SCHED_NEVER, &next_ns)) != NULL)
        timer->done(timer, TERN_CANCELED);
}
