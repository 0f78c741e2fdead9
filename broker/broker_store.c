/*
 * The broker and its store: with which options it is opened, and whom it tells of what it did.
 *
 *   flushed ─► acknowledgements, replication      arrival ─► parked pulls, delayed messages
 *   end ─────► replication                        latched ─► whoever waits is told
 *
 * Threads: the store's own, on which nothing here waits. Failure modes: the store's, at opening.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ack_wait.h"
#include "broker/broker_internal.h"
#include "broker/ha/ha.h"
#include "broker/handlers/pull.h"
#include "broker/live_config.h"
#include "broker/long_poll.h"
#include "broker/schedule/schedule.h"
#include "broker/store_identity.h"

/* ---- what the store tells ---- */

static void on_flushed(void *arg, int64_t flushed, bool more)
{
    struct broker *broker = arg;
    struct ha *ha = atomic_load_explicit(&broker->ha, memory_order_acquire);
    if (ha)
        ha_on_flushed(ha, flushed);
    stages_flushed(&broker->stages, flushed, clock_mono_ns(broker->env.clock));
    if (broker->config.role == ROLE_SYNC_MASTER)
        return; /* its sends wait for what is confirmed */
    if (more)
        ack_wait_advance_soon(broker->acks, flushed, TERN_OK);
    else
        ack_wait_advance(broker->acks, flushed, TERN_OK);
}

static void on_end(void *arg, int64_t end)
{
    struct broker *broker = arg;
    struct ha *ha = atomic_load_explicit(&broker->ha, memory_order_acquire);
    if (ha)
        ha_on_end(ha, end);
}

static void on_arrival(void *arg, const struct store_arrival *arrival)
{
    struct broker *broker = arg;
    long_poll_arrival(broker->polls, arrival);
    if (!strcmp(arrival->topic, SCHEDULE_TOPIC))
        schedule_on_arrival(broker->schedule, arrival->queue_id);
}

static void on_sequel(void *arg, const struct record *record)
{
    struct broker *broker = arg;
    schedule_on_record(broker->schedule, record);
}

static enum tern_code on_cut(void *arg, int64_t phys_off, struct tern_error *err)
{
    struct broker *broker = arg;
    return schedule_on_cut(broker->schedule, phys_off, err);
}

static void on_cut_end(void *arg)
{
    struct broker *broker = arg;
    schedule_on_cut_end(broker->schedule);
}

static void on_latched(void *arg, enum tern_code code, const char *text)
{
    struct broker *broker = arg;
    log_error(broker->env.log, "store_read_only", "code=%s cause=\"%s\"", tern_code_name(code),
              text);
    ack_wait_fail_all(broker->acks, TERN_SERVICE_NOT_AVAILABLE);
}

static int64_t queue_end(void *arg, const char *topic, int32_t queue_id)
{
    struct broker *broker = arg;
    int64_t min, max;
    store_queue_range(broker->store, topic, queue_id, &min, &max);
    return max;
}

/* ---- opening ---- */

static void fill_store_limits(const struct broker *broker, struct store_options *options)
{
    struct store_limits limits;
    live_config_limits(broker, &broker->config, &limits);
    options->retention_ms = limits.retention_ms;
    options->delete_hours = limits.delete_hours;
    options->disk_max_used_ratio = limits.disk_max_used_ratio;
    options->disk_clean_ratio = limits.disk_clean_ratio;
    options->disk_warning_ratio = limits.disk_warning_ratio;
    options->memory_window_bytes = limits.memory_window_bytes;
    options->memory_count = limits.memory_count;
    options->memory_bytes = limits.memory_bytes;
    options->disk_count = limits.disk_count;
    options->disk_bytes = limits.disk_bytes;
}

static void fill_store_options(const struct broker *broker, struct store_options *options)
{
    const struct broker_config *config = &broker->config;
    store_options_init(options);
    options->root_dir = config->store_root;
    options->segment_bytes = config->segment_bytes;
    options->queue_file_bytes = config->queue_file_bytes;
    options->index_enabled = config->index_enable;
    options->index_slots = (uint32_t)config->index_slots;
    options->index_entries = (uint32_t)config->index_entries;
    options->sync_flush = config->flush_type == FLUSH_SYNC;
    options->flush_interval_ms = config->flush_interval_ms;
    options->queue_flush_interval_ms = config->queue_flush_interval_ms;
    options->clean_interval_ms = config->clean_interval_ms;
    options->max_message_bytes = config->max_message_bytes;
    fill_store_limits(broker, options);
    options->open_files_max = (uint32_t)config->open_files;
    options->delay_levels = &config->delay_levels;
    options->offset_correction = config->role != ROLE_SLAVE || config->offset_check_in_slave;
    options->observer = (struct store_observer){.arg = (void *)(uintptr_t)broker,
                                                .on_flushed = on_flushed,
                                                .on_arrival = on_arrival,
                                                .on_latched = on_latched,
                                                .on_end = on_end,
                                                .on_sequel = on_sequel,
                                                .on_cut = on_cut,
                                                .on_cut_end = on_cut_end};
}

enum tern_code broker_open_store(struct broker *broker, struct tern_error *err)
{
    struct store_options options;
    struct store_recovery recovery;
    struct long_poll_options polls = {.max_parked = (uint32_t)broker->config.max_parked_pulls,
                                      .arg = broker,
                                      .queue_end = queue_end,
                                      .concerns = pull_concerns,
                                      .resume = pull_resume,
                                      .drop = pull_drop};

    /* Whom the store tells of what it did is there before the store. */
    enum tern_code code = ack_wait_create(&broker->env, "broker-ack", &broker->acks);
    if (code == TERN_OK)
        code = long_poll_create(&broker->env, &polls, &broker->polls);
    if (code == TERN_OK)
        code = schedule_create(broker, &broker->schedule);
    if (code != TERN_OK)
        return error_set(err, code, "starting the broker's tasks: %s", tern_code_text(code));
    fill_store_options(broker, &options);
    code = store_open(&broker->env, &options, &broker->store, &recovery, err);
    if (code != TERN_OK)
        return code;
    broker->recovered_unclean = !recovery.clean;
    log_info(broker->env.log, "store_recovered",
             "dir=%s clean=%d log_min=%" PRId64 " log_end=%" PRId64 " cut_bytes=%" PRId64
             " replayed=%" PRId64 " took_ms=%" PRId64,
             broker->config.store_root, recovery.clean, recovery.log_min, recovery.log_end,
             recovery.cut_bytes, recovery.replayed_records, recovery.took_ms);
    return store_identity_load(&broker->env, broker->config.store_root, broker->store_uuid, err);
}
