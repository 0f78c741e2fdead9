/*
 * A scheduler on virtual time: all tasks, timers and waits of a simulated world share the test's
 * thread.
 *
 * One thing runs at a time: a task's step or a timer's function. What is due at the same time runs
 * in an order that the seed decides. When nothing is due, the clock jumps to the next deadline.
 *
 *   test ──► sim_run_until(t) ──► step A ──► latch_wait() ──► step B … until the latch is set, then
 * back in A
 *
 * A wait inside a step therefore nests: A goes on only when the inner run has returned. A step that
 * waits is not run again meanwhile. A wait without deadline for which nothing is left to happen is
 * a deadlock: the process prints the tasks and aborts. So does a world in which a million things
 * run without time moving.
 *
 * Differences to threads that a test must know: a step is never interrupted, so data races do not
 * show here (the thread sanitizer is for them); task_stop() of a task that waits further up the
 * stack aborts.
 */
#ifndef TESTS_SIM_SIM_SCHED_H
#define TESTS_SIM_SIM_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/sched.h"
#include "tests/sim/sim_clock.h"

struct sim_sched;

/* clock and rng are borrowed. Aborts without memory, as everything in tests/sim. */
struct sim_sched *sim_sched_create(struct sim_clock *clock, struct rng *rng);
/* All tasks must have been stopped; timers are dropped. NULL allowed. */
void sim_sched_destroy(struct sim_sched *sched);
/* As modules see it. */
struct sched *sim_sched_base(struct sim_sched *sched);

/* Runs fn(arg) once, delay_ns from now (0: as soon as the scheduler runs). Returns an id, never 0.
 */
uint64_t sim_after(struct sim_sched *sched, int64_t delay_ns, void (*fn)(void *arg), void *arg);
/* false when it has run or was cancelled already. */
bool sim_cancel(struct sim_sched *sched, uint64_t timer_id);

/* Runs one thing that is due now; false when there is none. Time stands still. */
bool sim_run_one(struct sim_sched *sched);
/* Runs everything due up to time_ns (monotonic); the clock then shows time_ns. */
void sim_run_until(struct sim_sched *sched, int64_t time_ns);
/* The same with a time from now. */
void sim_run_for(struct sim_sched *sched, int64_t duration_ns);
/*
 * Runs until nothing is left to happen: no task woken, every deadline SCHED_NEVER, no timer. false
 * when that is not so at limit_ns. Tasks with a period never get idle: use sim_run_until or
 * sim_run_until_true.
 */
bool sim_run_until_idle(struct sim_sched *sched, int64_t limit_ns);
/* Runs until done(arg), asked after every thing that ran; false when it is not so at limit_ns. */
bool sim_run_until_true(struct sim_sched *sched, bool (*done)(void *arg), void *arg,
                        int64_t limit_ns);
/* Number of tasks that were started and not stopped. */
unsigned sim_task_count(const struct sim_sched *sched);

#endif
