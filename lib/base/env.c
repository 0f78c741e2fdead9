/* The real world as an env. Threads: any. Failure modes: none. */
#include "base/env.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/sched.h"

void env_init_system(struct env *env, struct log *log)
{
    *env = (struct env){
        .clock = clock_system(),
        .fs = fs_posix(),
        .rng = rng_system(),
        .log = log,
        .sched = sched_threads(),
    };
}
