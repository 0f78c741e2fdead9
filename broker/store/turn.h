/*
 * A turn: who may work on something that a task works on step by step. The task tries, and goes to
 * sleep when it is not its turn; who needs the task to stand still (a cut of the log, a deletion)
 * waits for the turn and goes before the task. Internal to the store.
 *
 *   task:   turn_try() ─► work ─► turn_release()
 *   other:  turn_wait() ─► … ─► turn_release(), then wakes the task
 *
 * No wake-up is lost as long as the other one wakes the task afterwards.
 */
#ifndef STORE_TURN_H
#define STORE_TURN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/env.h"

/* Zeroed: nobody's. */
struct turn {
    _Atomic bool taken;
    _Atomic unsigned wanted; /* how many wait; nobody else gets it meanwhile */
};

/* @thread any */
bool turn_try(struct turn *turn);
/* Looks each millisecond; for rare operations. @blocks as long as the other one works @locks none
 */
void turn_wait(struct turn *turn, const struct env *env);
void turn_release(struct turn *turn);

/* Lets others work for a millisecond. @locks none */
void turn_pause(const struct env *env);

#endif
