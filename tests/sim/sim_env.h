/*
 * A simulated world from one seed: clock, scheduler, random numbers, log, and a disk for each
 * machine.
 *
 *   struct sim_env sim;
 *   sim_env_init(&sim, seed);
 *   struct store *store = open_store(&sim.env);        // the first machine
 *   struct env slave;
 *   struct sim_fs *slave_disk = sim_env_machine(&sim, &slave);
 *   sim_run_for(sim.sched, ms_to_ns(500));
 *   sim_env_fini(&sim);
 *
 * The same seed and the same program give the same run. A failing test prints its seed by
 * sim_env_init when the variable SIM_LOG is set in the environment, which also sends the log to
 * stderr.
 */
#ifndef TESTS_SIM_SIM_ENV_H
#define TESTS_SIM_SIM_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/rng.h"
#include "tests/sim/sim_clock.h"
#include "tests/sim/sim_fs.h"
#include "tests/sim/sim_sched.h"

enum { SIM_MACHINES_MAX = 16 };

struct sim_log; /* lines kept for sim_log_count */

struct sim_env {
    struct env env; /* the first machine's */
    struct sim_clock clock;
    struct rng_seeded rng;
    struct sim_sched *sched;
    struct sim_fs *fs; /* the first machine's disk */
    struct sim_fs *disks[SIM_MACHINES_MAX];
    unsigned disk_count;
    struct sim_log *log;
};

void sim_env_init(struct sim_env *sim, uint64_t seed);
/* Tasks must have been stopped and files closed. */
void sim_env_fini(struct sim_env *sim);
/* One more machine: same clock, scheduler, random numbers and log, a disk of its own. Owned by sim.
 */
struct sim_fs *sim_env_machine(struct sim_env *sim, struct env *out);

/* How many of the log's lines contain the text, e.g. an event's name. */
unsigned sim_log_count(const struct sim_env *sim, const char *text);
void sim_log_clear(struct sim_env *sim);

#endif
