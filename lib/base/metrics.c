/*
 * Latency histograms. Values 0..15 have a bucket each; above, every power of two is cut into 16, so
 * that a bucket's width is at most 1/16 of its lower bound. What is beyond the last bucket counts
 * in it.
 *
 * Threads: any, without locks; a quantile read during additions is approximate. Failure modes:
 * none.
 */
#include "base/metrics.h"

enum { SUB_BITS = 4, SUB_COUNT = 1 << SUB_BITS };

static unsigned bucket_of(uint64_t value)
{
    if (value < SUB_COUNT)
        return (unsigned)value;
    unsigned exponent = 63u - (unsigned)__builtin_clzll(value);
    unsigned sub = (unsigned)(value >> (exponent - SUB_BITS)) & (SUB_COUNT - 1);
    unsigned index = (exponent - SUB_BITS + 1) * SUB_COUNT + sub;
    return index < HISTOGRAM_BUCKETS ? index : HISTOGRAM_BUCKETS - 1;
}

static uint64_t bucket_upper(unsigned index)
{
    if (index < SUB_COUNT)
        return index;
    unsigned shift = index / SUB_COUNT - 1;
    uint64_t lower = (uint64_t)(SUB_COUNT + index % SUB_COUNT) << shift;
    return lower + ((uint64_t)1 << shift) - 1;
}

void histogram_add(struct histogram *h, int64_t value)
{
    uint64_t v = value < 0 ? 0 : (uint64_t)value;
    counter_add(&h->buckets[bucket_of(v)], 1);
    counter_add(&h->count, 1);
    counter_add(&h->sum, v);
    uint64_t max = counter_get(&h->max);
    while (v > max && !atomic_compare_exchange_weak_explicit(&h->max, &max, v, memory_order_relaxed,
                                                             memory_order_relaxed))
        ;
}

int64_t histogram_quantile(const struct histogram *h, double q)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        total += counter_get(&h->buckets[i]);
    if (total == 0)
        return 0;
    double clamped = q < 0 ? 0 : q > 1 ? 1 : q;
    double exact = clamped * (double)total;
    uint64_t rank = (uint64_t)exact;
    if ((double)rank < exact || rank == 0)
        rank++;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
        seen += counter_get(&h->buckets[i]);
        if (seen >= rank)
            return (int64_t)bucket_upper(i);
    }
    uint64_t max = counter_get(&h->max);
    return max > INT64_MAX ? INT64_MAX : (int64_t)max;
}

void histogram_reset(struct histogram *h)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        atomic_store_explicit(&h->buckets[i], 0, memory_order_relaxed);
    atomic_store_explicit(&h->count, 0, memory_order_relaxed);
    atomic_store_explicit(&h->sum, 0, memory_order_relaxed);
    atomic_store_explicit(&h->max, 0, memory_order_relaxed);
}
