/*
 * Rates and daily totals of the store's counters, for mqadmin's clusterList: RocketMQ's putTps,
 * getTransferedTps and kin, each over about 10 s, 60 s and 600 s; and what stood on the counters
 * when the day and the one before began (local time), as far as this process has lived.
 */
#ifndef BROKER_RATES_H
#define BROKER_RATES_H

#include <stdint.h>

#include "base/lock.h"

enum { RATES_STEP_MS = 10000, RATES_SAMPLES = 61, RATE_WINDOWS = 3 };

struct rates_counts {
    int64_t put;       /* messages stored */
    int64_t found;     /* reads that found something */
    int64_t missed;    /* reads that found nothing */
    int64_t delivered; /* messages given out */
};

struct rates {
    struct lock lock; /* protects the rest */
    struct {
        int64_t at_ns;
        struct rates_counts counts;
    } samples[RATES_SAMPLES]; /* a ring */
    uint32_t first, count;
    int64_t day;                            /* that the morning belongs to, as yyyymmdd */
    struct rates_counts morning, yesterday; /* at the beginning of the day, of the one before */
};

void rates_init(struct rates *rates);
void rates_fini(struct rates *rates);
/* About every second; takes a sample when RATES_STEP_MS have passed. */
void rates_step(struct rates *rates, int64_t now_ns, int64_t wall_ms,
                const struct rates_counts *counts);

struct rates_view {
    double put[RATE_WINDOWS], found[RATE_WINDOWS], missed[RATE_WINDOWS], delivered[RATE_WINDOWS];
    struct rates_counts morning, yesterday;
};
/* Rates up to these counts, now. @thread any */
void rates_view(struct rates *rates, int64_t now_ns, const struct rates_counts *counts,
                struct rates_view *out);

#endif
