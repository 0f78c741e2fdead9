/*
 * Latency fault tolerance (RocketMQ's MQFaultStrategy, option latency_faults): a broker that
 * answers slowly, or fails, is passed over for a while that grows with how slow it was.
 *
 *   latency ≥ ms           50  100  550     1000    2000     3000     15000
 *   not available for ms    0    0  30,000  60,000  120,000  180,000  600,000
 *
 * A failed send counts as a latency of 30,000 ms. When no broker is available, one of the better
 * half is taken in turn: of those, the ones that will be available first, then the faster ones.
 *
 * Pure functions on numbers; the producer keeps one struct broker_latency per broker.
 */
#ifndef CLIENT_LATENCY_FAULTS_H
#define CLIENT_LATENCY_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LATENCY_OF_FAILURE_MS = 30000, LATENCY_BROKERS_MAX = 1024 };

/* What a producer remembers of a broker. Written by callbacks, read by senders, both without lock:
 * the two numbers may be of different sends, which does no harm. */
struct broker_latency {
    _Atomic int64_t latency_ms;
    _Atomic int64_t available_ns; /* monotonic; 0: never slow */
};

/* How long a broker of that latency is not used, in ms. */
int64_t latency_penalty_ms(int64_t latency_ms);

/* Notes the latency of a send that has just ended. @thread any */
void latency_note(struct broker_latency *item, int64_t latency_ms, int64_t now_ns);

bool latency_available(const struct broker_latency *item, int64_t now_ns);

/*
 * Which of count (1…LATENCY_BROKERS_MAX) brokers serves when none is available: in turn one of the
 * better half; an index.
 */
size_t latency_least_bad(const struct broker_latency *const *items, size_t count, uint32_t turn,
                         int64_t now_ns);

#endif
