/*
 * What the store tells about itself: positions, counters, and the text of a refusal.
 *
 * Place: read by the broker's metrics and by send handlers that have to say why. Nothing here
 * waits, except that the first retained record's time is read from the disk once per segment.
 * Threads: any. Failure modes: none; what is not known is 0.
 */
#include "broker/store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "broker/store/appender.h"
#include "broker/store/flusher.h"
#include "broker/store/retention.h"
#include "broker/store/store_internal.h"

static int64_t earliest_ms(struct store *store)
{
    if (commit_log_min(store->log) >= commit_log_end(store->log))
        return 0;
    struct segment *first = segments_first(&store->log->segments);
    int64_t ms = first ? segment_first_ms(first) : 0;
    segment_unref(first);
    return ms;
}

static void append_status(const struct store *store, struct store_status *out)
{
    const struct appender_stats *stats = appender_stats(store->appender);
    out->append_requests = counter_get(&stats->requests);
    out->append_records = counter_get(&stats->records);
    out->append_bytes = counter_get(&stats->bytes);
    out->append_failed = counter_get(&stats->failed);
    out->append_wait_ns = &stats->wait_ns;
    out->write_ns = &stats->write_ns;
    out->segment_switch_ns = &stats->switch_ns;
    const struct flusher_stats *flush = flusher_stats(store->flusher);
    out->flushes = counter_get(&flush->flushes);
    out->flush_ns = &flush->flush_ns;
    out->unflushed_since_ms = flusher_waiting_since_ms(store->flusher);
    out->segments_expired = retention_expired(store->retention);
}

void store_status(struct store *store, struct store_status *out)
{
    static const struct histogram nothing;
    memset(out, 0, sizeof *out);
    out->min_phys = commit_log_min(store->log);
    out->flushed = commit_log_flushed(store->log);
    out->appended = commit_log_end(store->log);
    out->dispatched = commit_log_whole(store->log);
    out->dispatch_limit = INT64_MAX;
    if (store->dispatcher) {
        out->dispatched = dispatcher_position(store->dispatcher);
        out->dispatch_limit = dispatcher_limit(store->dispatcher);
        int64_t oldest_ms = dispatcher_oldest_pending_ms(store->dispatcher);
        int64_t age_ms = clock_wall_ms(store->env->clock) - oldest_ms;
        out->dispatch_lag_ms = oldest_ms > 0 && age_ms > 0 ? age_ms : 0;
    }
    out->append_wait_ns = out->write_ns = out->flush_ns = out->segment_switch_ns = &nothing;
    if (!store->options.read_only)
        append_status(store, out);
    out->disk_used_ratio = atomic_load(&store->gate.disk_ratio);
    out->disk_full = gate_full(&store->gate);
    out->latched = gate_latched(&store->gate);
    out->get_found = counter_get(&store->get_found);
    out->get_messages = counter_get(&store->get_messages);
    out->get_missed = counter_get(&store->get_missed);
    out->get_again = counter_get(&store->get_again);
    out->queues = queue_table_count(store->queues);
    out->recovered_clean = store->recovery.clean;
    out->earliest_ms = earliest_ms(store);
}

/* Which of the reasons for NO_SPACE holds now. */
static void no_space_text(const struct store *store, char *out, size_t size)
{
    const struct gate *gate = &store->gate;
    double ratio = atomic_load(&gate->disk_ratio);
    struct store_limits limits = store_limits_of(&store->options);
    if (store->retention)
        retention_ratios(store->retention, &limits);
    if (atomic_load(&gate->disk_full))
        snprintf(out, size,
                 "%s: disk used ratio %.4f is above diskSpaceWarningLevelRatio=%.2f (expired "
                 "segments are removed above diskMaxUsedSpaceRatio=%.2f, the oldest whatever "
                 "their age above diskSpaceCleanForciblyRatio=%.2f); sends resume by themselves "
                 "when it is below",
                 store->root, ratio, limits.disk_warning_ratio, limits.disk_max_used_ratio,
                 limits.disk_clean_ratio);
    else if (atomic_load(&gate->queues_full))
        snprintf(out, size,
                 "%s/consumequeue: no space left for consume queues (disk used ratio %.4f, "
                 "diskMaxUsedSpaceRatio=%.2f); sends resume by themselves",
                 store->root, ratio, limits.disk_max_used_ratio);
    else
        snprintf(out, size,
                 "%s: no space for the next segment of mappedFileSizeCommitLog=%" PRId64
                 " bytes (disk used ratio %.4f, diskMaxUsedSpaceRatio=%.2f); sends resume by "
                 "themselves when there is",
                 store->root, store->options.segment_bytes, ratio, limits.disk_max_used_ratio);
}

void store_refusal_text(struct store *store, enum tern_code code, char *out, size_t size)
{
    int segment_code = atomic_load(&store->gate.segment_code);
    if (code == TERN_NO_SPACE)
        no_space_text(store, out, size);
    else if (code == TERN_SERVICE_NOT_AVAILABLE && gate_latched(&store->gate))
        snprintf(out, size, "%s: the store is read-only until it is restarted: %s", store->root,
                 gate_latch_text(&store->gate));
    else if (code == TERN_SERVICE_NOT_AVAILABLE && atomic_load(&store->gate.closed))
        snprintf(out, size, "%s: the broker takes no messages now: it recovers, or is a slave",
                 store->root);
    else if (code == TERN_TOO_LARGE)
        snprintf(out, size,
                 "records of one send do not fit into a segment of "
                 "mappedFileSizeCommitLog=%" PRId64 " bytes",
                 store->options.segment_bytes);
    else if (code == TERN_MESSAGE_ILLEGAL)
        snprintf(out, size, "what was sent is no row of whole records of one queue");
    else if (code == TERN_TOPIC_NOT_EXIST)
        snprintf(out, size, "the topic was deleted while its message waited for the log");
    else if (code == TERN_LIMIT)
        snprintf(out, size, "%d requests or %d bytes wait for the log already", APPEND_REQUESTS_MAX,
                 APPEND_BYTES_MAX);
    else if (commit_log_whole(store->log) < commit_log_end(store->log))
        snprintf(out, size, "%s: the log is a copy that ends inside a record", store->root);
    else if (segment_code != TERN_OK)
        snprintf(out, size, "%s: the next segment cannot be made: %s", store->root,
                 tern_code_text((enum tern_code)segment_code));
    else
        snprintf(out, size, "%s", tern_code_text(code));
}
