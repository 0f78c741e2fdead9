/*
 * The world as a module sees it. Every module gets an env when it is created and reaches clocks,
 * files, random numbers, its log and its threads only through it, so that a whole cluster can also
 * run in one process, on one thread, on virtual time and on a simulated disk (tests/sim).
 */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stdint.h>

struct clock;
struct fs;
struct log;
struct rng;
struct sched;

/* Borrowed by whoever it is given to; the members outlive every module that was created with it. */
struct env {
    struct clock *clock;
    struct fs *fs;
    struct rng *rng;
    struct log *log;
    struct sched *sched;
};

/* The real world: system clocks, POSIX files, getrandom, threads. `log` may be NULL: no logging. */
void env_init_system(struct env *env, struct log *log);

#endif
