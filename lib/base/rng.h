/* Random numbers: seeded and repeatable in simulation, from the kernel in daemons. Not for secrets.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t (*next)(struct rng *self);
};

static inline uint64_t rng_next(struct rng *rng)
{
    return rng->next(rng);
}

/* Uniform in [0, bound); bound > 0. */
static inline uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)rng_next(rng) * bound) >> 64);
}

/* The kernel's generator; static storage. @thread any */
struct rng *rng_system(void);

/* A repeatable generator (splitmix64) in the caller's memory. @thread one at a time */
struct rng_seeded {
    struct rng rng;
    uint64_t state;
};
void rng_seeded_init(struct rng_seeded *rng, uint64_t seed);

#endif
