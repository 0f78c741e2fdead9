/*
 * See rates.h. Place: the housekeeper steps it, handlers/status.c reads it. Threads: any, one short
 * lock. Failure modes: none; before a window is full the rate is over what there is.
 */
#include "broker/rates.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"

void rates_init(struct rates *rates)
{
    memset(rates, 0, sizeof *rates);
    lock_init(&rates->lock, LOCK_METRICS);
}

void rates_fini(struct rates *rates)
{
    lock_fini(&rates->lock);
}

static int64_t day_of(int64_t wall_ms)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm local;
    if (!localtime_r(&seconds, &local))
        return 0;
    return (int64_t)(local.tm_year + 1900) * 10000 + (local.tm_mon + 1) * 100 + local.tm_mday;
}

void rates_step(struct rates *rates, int64_t now_ns, int64_t wall_ms,
                const struct rates_counts *counts)
{
    int64_t day = day_of(wall_ms);
    lock_acquire(&rates->lock);
    if (rates->day == 0)
        rates->day = day; /* what came before this process is not known: counts begin at 0 */
    if (day != rates->day) {
        rates->day = day;
        rates->yesterday = rates->morning;
        rates->morning = *counts;
    }
    uint32_t last = (rates->first + rates->count + RATES_SAMPLES - 1) % RATES_SAMPLES;
    if (rates->count == 0 || now_ns - rates->samples[last].at_ns >= ms_to_ns(RATES_STEP_MS)) {
        uint32_t at = (rates->first + rates->count) % RATES_SAMPLES;
        if (rates->count == RATES_SAMPLES)
            rates->first = (rates->first + 1) % RATES_SAMPLES;
        else
            rates->count++;
        rates->samples[at].at_ns = now_ns;
        rates->samples[at].counts = *counts;
    }
    lock_release(&rates->lock);
}

static double rate(int64_t from, int64_t to, int64_t ns)
{
    return ns > 0 && to > from ? (double)(to - from) * 1e9 / (double)ns : 0;
}

void rates_view(struct rates *rates, int64_t now_ns, const struct rates_counts *counts,
                struct rates_view *out)
{
    static const int64_t windows_ms[RATE_WINDOWS] = {10000, 60000, 600000};
    memset(out, 0, sizeof *out);
    lock_acquire(&rates->lock);
    out->morning = rates->morning;
    out->yesterday = rates->yesterday;
    for (int w = 0; w < RATE_WINDOWS && rates->count > 0; w++) {
        uint32_t at = rates->first; /* the youngest sample that is old enough, else the oldest */
        for (uint32_t i = 0; i < rates->count; i++) {
            uint32_t candidate = (rates->first + i) % RATES_SAMPLES;
            if (now_ns - rates->samples[candidate].at_ns >= ms_to_ns(windows_ms[w]))
                at = candidate;
        }
        int64_t ns = now_ns - rates->samples[at].at_ns;
        const struct rates_counts *from = &rates->samples[at].counts;
        out->put[w] = rate(from->put, counts->put, ns);
        out->found[w] = rate(from->found, counts->found, ns);
        out->missed[w] = rate(from->missed, counts->missed, ns);
        out->delivered[w] = rate(from->delivered, counts->delivered, ns);
    }
    lock_release(&rates->lock);
}
