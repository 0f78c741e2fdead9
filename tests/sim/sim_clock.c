/* Virtual time. Threads: one. Failure modes: none; moving backwards is a bug of the test. */
#include "tests/sim/sim_clock.h"

#include "base/error.h"

static int64_t sim_mono_ns(struct clock *self)
{
    return ((struct sim_clock *)self)->now_ns;
}

static int64_t sim_wall_ms(struct clock *self)
{
    const struct sim_clock *clock = (struct sim_clock *)self;
    return clock->wall_base_ms + clock->now_ns / 1000000;
}

void sim_clock_init(struct sim_clock *clock)
{
    clock->clock.mono_ns = sim_mono_ns;
    clock->clock.wall_ms = sim_wall_ms;
    clock->now_ns = SIM_START_NS;
    clock->wall_base_ms = SIM_START_WALL_MS - SIM_START_NS / 1000000;
}

void sim_clock_advance(struct sim_clock *clock, int64_t delta_ns)
{
    ENSURE(delta_ns >= 0);
    clock->now_ns += delta_ns;
}

void sim_clock_set_wall(struct sim_clock *clock, int64_t wall_ms)
{
    clock->wall_base_ms = wall_ms - clock->now_ns / 1000000;
}
