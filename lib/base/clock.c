/*
 * The system's clocks. Threads: any. Failure modes: none; a kernel without these clocks is a bug.
 */
#include "base/clock.h"

#include <time.h>

#include "base/error.h"

static int64_t system_mono_ns(struct clock *self)
{
    (void)self;
    struct timespec ts;
    ENSURE(clock_gettime(CLOCK_MONOTONIC, &ts) == 0);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static int64_t system_wall_ms(struct clock *self)
{
    (void)self;
    struct timespec ts;
    ENSURE(clock_gettime(CLOCK_REALTIME, &ts) == 0);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct clock *clock_system(void)
{
    static struct clock clock = {.mono_ns = system_mono_ns, .wall_ms = system_wall_ms};
    return &clock;
}
