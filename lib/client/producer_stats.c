/*
 * What a producer counts: relaxed counters that its sends add to, and the picture of them.
 *
 * Threads: any. The picture is not of one moment: each number is right, their sums may be off by
 * what was under way.
 */
#include "client/producer_internal.h"

#include "base/metrics.h"

static const int64_t bounds_ms[TERN_LATENCY_BUCKETS - 1] = TERN_LATENCY_BOUNDS_MS;

static size_t bucket_of(int64_t latency_ms)
{
    size_t bucket = 0;
    while (bucket < TERN_LATENCY_BUCKETS - 1 && latency_ms > bounds_ms[bucket])
        bucket++;
    return bucket;
}

void producer_count_end(const struct send *send)
{
    struct producer_counters *counters = &send->producer->counters;
    if (send->code != TERN_OK) {
        counter_add(&counters->failed_frames, 1);
        return;
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < send->count; i++)
        bytes += send_form(send, i).body_len;
    counter_add(&counters->sent_messages, send->count);
    counter_add(&counters->sent_frames, 1);
    counter_add(&counters->sent_bytes, bytes);
    int64_t took_ns = clock_mono_ns(send->producer->env->clock) - send->begun_ns;
    counter_add(&counters->latency[bucket_of((took_ns + 999999) / 1000000)], 1);
}

void producer_count_retry(struct tern_producer *producer)
{
    counter_add(&producer->counters.retried, 1);
}

void producer_count_packed(struct tern_producer *producer, size_t from, size_t to)
{
    counter_add(&producer->counters.compressed, 1);
    counter_add(&producer->counters.compressed_from_bytes, from);
    counter_add(&producer->counters.compressed_to_bytes, to);
}

static uint64_t read_counter(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void tern_producer_stats(struct tern_producer *producer, struct tern_producer_stats *stats)
{
    const struct producer_counters *counters = &producer->counters;
    *stats = (struct tern_producer_stats){
        .sent = read_counter(&counters->sent_messages),
        .frames = read_counter(&counters->sent_frames),
        .failed = read_counter(&counters->failed_frames),
        .retried = read_counter(&counters->retried),
        .bytes = read_counter(&counters->sent_bytes),
        .compressed = read_counter(&counters->compressed),
        .compressed_from = read_counter(&counters->compressed_from_bytes),
        .compressed_to = read_counter(&counters->compressed_to_bytes),
    };
    for (size_t i = 0; i < TERN_LATENCY_BUCKETS; i++)
        stats->latency[i] = read_counter(&counters->latency[i]);
    stats->replies_late = read_counter(&producer->instance->requests.late);
    if (producer->trace)
        stats->trace_dropped = trace_dropped(producer->trace);
    lock_acquire(&producer->lock);
    stats->in_flight = producer->sends;
    lock_release(&producer->lock);
}
