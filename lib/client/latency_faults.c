/*
 * The table of penalties and the choice among the least bad. No state of its own.
 *
 * Threads: any.
 */
#include "client/latency_faults.h"

#include "base/clock.h"
#include "base/error.h"

/* One row: from this latency on, that penalty. */
static const struct {
    int64_t latency_ms, penalty_ms;
} penalties[] = {{15000, 600000}, {3000, 180000}, {2000, 120000}, {1000, 60000},
                 {550, 30000},    {100, 0},       {50, 0}};

int64_t latency_penalty_ms(int64_t latency_ms)
{
    for (size_t i = 0; i < sizeof penalties / sizeof penalties[0]; i++)
        if (latency_ms >= penalties[i].latency_ms)
            return penalties[i].penalty_ms;
    return 0;
}

void latency_note(struct broker_latency *item, int64_t latency_ms, int64_t now_ns)
{
    atomic_store_explicit(&item->latency_ms, latency_ms, memory_order_relaxed);
    atomic_store_explicit(&item->available_ns, now_ns + ms_to_ns(latency_penalty_ms(latency_ms)),
                          memory_order_relaxed);
}

bool latency_available(const struct broker_latency *item, int64_t now_ns)
{
    return atomic_load_explicit(&item->available_ns, memory_order_relaxed) <= now_ns;
}

/* What is compared, read once. */
struct rank {
    bool available;
    int64_t latency_ms, available_ns;
};

static struct rank rank_of(const struct broker_latency *item, int64_t now_ns)
{
    return (struct rank){
        .available = latency_available(item, now_ns),
        .latency_ms = atomic_load_explicit(&item->latency_ms, memory_order_relaxed),
        .available_ns = atomic_load_explicit(&item->available_ns, memory_order_relaxed)};
}

static bool better(const struct rank *a, const struct rank *b)
{
    if (a->available != b->available)
        return a->available;
    if (a->latency_ms != b->latency_ms)
        return a->latency_ms < b->latency_ms;
    return a->available_ns < b->available_ns;
}

size_t latency_least_bad(const struct broker_latency *const *items, size_t count, uint32_t turn,
                         int64_t now_ns)
{
    ENSURE(count > 0 && count <= LATENCY_BROKERS_MAX);
    struct rank ranks[LATENCY_BROKERS_MAX];
    uint16_t order[LATENCY_BROKERS_MAX];
    for (size_t i = 0; i < count; i++) {
        ranks[i] = rank_of(items[i], now_ns);
        size_t at = i;
        for (; at > 0 && better(&ranks[i], &ranks[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = (uint16_t)i;
    }
    size_t half = count / 2;
    return order[half ? turn % half : 0];
}
