/*
 * Two clocks. Waiting and ageing use the monotonic one, in nanoseconds from an arbitrary start; the
 * wall clock, in milliseconds since 1970 UTC, only stamps.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*mono_ns)(struct clock *self);
    int64_t (*wall_ms)(struct clock *self);
};

static inline int64_t clock_mono_ns(struct clock *clock)
{
    return clock->mono_ns(clock);
}

static inline int64_t clock_wall_ms(struct clock *clock)
{
    return clock->wall_ms(clock);
}

static inline int64_t ms_to_ns(int64_t ms)
{
    return ms * 1000000;
}

/* The system's clocks; static storage. @thread any */
struct clock *clock_system(void);

#endif
