/*
 * Random numbers: the kernel's, and splitmix64 for runs that one seed must repeat.
 *
 * Threads: the kernel's any; a seeded generator one at a time. Failure modes: none.
 */
#include "base/rng.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/types.h>

#include "base/error.h"

static uint64_t system_next(struct rng *self)
{
    (void)self;
    uint64_t value;
    ssize_t n;
    do
        n = getrandom(&value, sizeof value, 0);
    while (n < 0 && errno == EINTR);
    ENSURE(n == (ssize_t)sizeof value);
    return value;
}

struct rng *rng_system(void)
{
    static struct rng rng = {.next = system_next};
    return &rng;
}

static uint64_t seeded_next(struct rng *self)
{
    struct rng_seeded *rng = (struct rng_seeded *)self;
    rng->state += 0x9E3779B97F4A7C15u;
    uint64_t z = rng->state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void rng_seeded_init(struct rng_seeded *rng, uint64_t seed)
{
    rng->rng.next = seeded_next;
    rng->state = seed;
}
