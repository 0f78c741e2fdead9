/*
 * A simulated world. Invariant: everything random comes from the one generator, in the order in
 * which the one thread asks. Threads: one. Failure modes: aborts without memory.
 */
#include "tests/sim/sim_env.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

enum { LINES_MAX = 4096 };

struct sim_log {
    bool print;
    size_t count;
    char *lines[LINES_MAX]; /* the first ones; later ones are only printed */
};

static void keep_line(void *arg, enum log_level level, const char *line)
{
    struct sim_log *log = arg;
    (void)level;
    if (log->print)
        fprintf(stderr, "%s\n", line);
    if (log->count < LINES_MAX) {
        log->lines[log->count] = strdup(line);
        ENSURE(log->lines[log->count++]);
    }
}

struct sim_fs *sim_env_machine(struct sim_env *sim, struct env *out)
{
    ENSURE(sim->disk_count < SIM_MACHINES_MAX);
    struct sim_fs *disk = sim_fs_create(&sim->clock.clock, &sim->rng.rng);
    sim->disks[sim->disk_count++] = disk;
    *out = sim->env;
    out->fs = sim_fs_base(disk);
    return disk;
}

void sim_env_init(struct sim_env *sim, uint64_t seed)
{
    memset(sim, 0, sizeof *sim);
    sim_clock_init(&sim->clock);
    rng_seeded_init(&sim->rng, seed);
    sim->sched = sim_sched_create(&sim->clock, &sim->rng.rng);
    sim->log = calloc(1, sizeof *sim->log);
    ENSURE(sim->log);
    sim->log->print = getenv("SIM_LOG") != NULL;
    if (sim->log->print)
        fprintf(stderr, "simulation seed=%" PRIu64 "\n", seed);
    sim->env.clock = &sim->clock.clock;
    sim->env.rng = &sim->rng.rng;
    sim->env.sched = sim_sched_base(sim->sched);
    ENSURE(log_create(&sim->clock.clock, LOG_DEBUG, keep_line, sim->log, &sim->env.log) == TERN_OK);
    sim->fs = sim_env_machine(sim, &sim->env);
}

void sim_env_fini(struct sim_env *sim)
{
    for (unsigned i = 0; i < sim->disk_count; i++)
        sim_fs_destroy(sim->disks[i]);
    sim_sched_destroy(sim->sched);
    log_destroy(sim->env.log);
    sim_log_clear(sim);
    free(sim->log);
}

unsigned sim_log_count(const struct sim_env *sim, const char *text)
{
    unsigned count = 0;
    for (size_t i = 0; i < sim->log->count; i++)
        count += strstr(sim->log->lines[i], text) != NULL;
    return count;
}

void sim_log_clear(struct sim_env *sim)
{
    for (size_t i = 0; i < sim->log->count; i++)
        free(sim->log->lines[i]);
    sim->log->count = 0;
}
