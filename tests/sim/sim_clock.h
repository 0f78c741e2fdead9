/*
 * Virtual time. The monotonic clock moves only when the simulated scheduler (or a test) moves it;
 * the wall clock is the monotonic one plus a base that a test may change, to let the wall clock
 * jump.
 */
#ifndef TESTS_SIM_SIM_CLOCK_H
#define TESTS_SIM_SIM_CLOCK_H

#include <stdint.h>

#include "base/clock.h"

#define SIM_START_NS INT64_C(1000000000)         /* monotonic time of the beginning */
#define SIM_START_WALL_MS INT64_C(1700000000000) /* wall clock at the beginning */

struct sim_clock {
    struct clock clock; /* first: a struct clock * of it may be cast back */
    int64_t now_ns;
    int64_t wall_base_ms; /* wall = wall_base_ms + now_ns / 1000000 */
};

void sim_clock_init(struct sim_clock *clock);
/* Forward only. Tests without a scheduler, or a disk that takes time, use it. */
void sim_clock_advance(struct sim_clock *clock, int64_t delta_ns);
/* Sets the wall clock, also backwards; the monotonic one does not notice. */
void sim_clock_set_wall(struct sim_clock *clock, int64_t wall_ms);

#endif
