/*
 * Turns.
 *
 * Place: under the store's tasks. Waiting is by looking again, since it happens a few times in a
 * process's life (a topic is deleted, a log is cut) and the hot side then costs two atomic accesses
 * and no lock.
 *
 * Threads: any. Failure modes: none; who takes a turn and never lets it go stops the task.
 */
#include "broker/store/turn.h"

#include "base/clock.h"
#include "base/sched.h"

enum { LOOK_AGAIN_MS = 1 };

bool turn_try(struct turn *turn)
{
    return atomic_load(&turn->wanted) == 0 && !atomic_exchange(&turn->taken, true);
}

void turn_pause(const struct env *env)
{
    struct latch never;
    latch_init(&never);
    int64_t until_ns = clock_mono_ns(env->clock) + ms_to_ns(LOOK_AGAIN_MS);
    ENSURE(!latch_wait(env->sched, &never, until_ns));
}

void turn_wait(struct turn *turn, const struct env *env)
{
    atomic_fetch_add(&turn->wanted, 1);
    while (atomic_exchange(&turn->taken, true))
        turn_pause(env);
    atomic_fetch_sub(&turn->wanted, 1);
}

void turn_release(struct turn *turn)
{
    atomic_store(&turn->taken, false);
}
