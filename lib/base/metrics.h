/*
 * Counters and latency histograms that hot paths may touch: one relaxed atomic operation, no lock.
 */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

/* Log-linear buckets: 16 per power of two, up to 2^40 ns; relative error below 6.25 %. */
enum { HISTOGRAM_BUCKETS = 16 * 38 };

struct histogram {
    _Atomic uint64_t buckets[HISTOGRAM_BUCKETS];
    _Atomic uint64_t count;
    _Atomic uint64_t sum;
    _Atomic uint64_t max;
};

void histogram_add(struct histogram *h, int64_t value); /* negative counts as 0 */
/* Upper bound of the bucket that holds the quantile q (0..1); 0 when empty. */
int64_t histogram_quantile(const struct histogram *h, double q);
void histogram_reset(struct histogram *h);

static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline uint64_t counter_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif
