/*
 * See live_config.h. A change goes
 *
 *   copy of what is in effect ─► each key by its row ─► the whole is checked as at the start
 *     ─► the copy becomes what is in effect ─► atomics, store, groups, log ─► nameservers
 *
 * Threads: changes come from the lane for changes, one at a time; readers are on any. Failure
 * modes: a refused request changes nothing.
 */
#include "broker/live_config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "broker/admin_lane.h"
#include "broker/broker_internal.h"

/* A pull's answer must fit into a frame, whatever the limits say; its first message always does. */
static uint32_t transfer_bytes(const struct broker *broker, const char *key, int64_t wanted)
{
    int64_t most = (int64_t)frame_max_bytes(broker->config.max_message_bytes) - FRAME_PREFIX_BYTES -
                   FRAME_HEADROOM_BYTES;
    if (wanted <= most)
        return (uint32_t)wanted;
    log_warn(broker->env.log, "transfer_limit_lowered",
             "key=%s wanted=%" PRId64 " used=%" PRId64 " cause=\"a frame holds no more\"", key,
             wanted, most);
    return (uint32_t)most;
}

void live_config_limits(const struct broker *broker, const struct broker_config *config,
                        struct store_limits *out)
{
    *out = (struct store_limits){
        .retention_ms = config->retention_ms,
        .delete_hours = broker_config_hours(config->delete_when),
        .disk_max_used_ratio = (double)config->disk_max_used_percent / 100,
        .disk_clean_ratio = (double)config->disk_clean_percent / 100,
        .disk_warning_ratio = (double)config->disk_warning_percent / 100,
        .memory_window_bytes = config->physical_memory_bytes / 100 * config->access_memory_percent,
        .memory_count = (uint32_t)config->memory_count,
        .memory_bytes =
            transfer_bytes(broker, "maxTransferBytesOnMessageInMemory", config->memory_bytes),
        .disk_count = (uint32_t)config->disk_count,
        .disk_bytes = transfer_bytes(broker, "maxTransferBytesOnMessageInDisk", config->disk_bytes),
    };
}

/* What is read from broker.live. */
static void publish(struct live_config *live, const struct broker_config *config)
{
    atomic_store(&live->broker_permission, config->broker_permission);
    atomic_store(&live->sync_flush_timeout_ms, config->sync_flush_timeout_ms);
    atomic_store(&live->short_polling_ms, config->short_polling_ms);
    atomic_store(&live->flush_offset_interval_ms, config->flush_offset_interval_ms);
    atomic_store(&live->retention_ms, config->retention_ms);
    atomic_store(&live->long_polling_enable, config->long_polling_enable);
}

void live_config_init(struct broker *broker)
{
    lock_init(&broker->live.lock, LOCK_BROKER_CONFIG);
    broker->live.config = broker->config;
    publish(&broker->live, &broker->config);
    ENSURE(broker_config_table.count <= BROKER_CONFIG_ROWS_MAX);
}

void live_config_fini(struct broker *broker)
{
    lock_fini(&broker->live.lock);
}

void live_config_copy(struct broker *broker, struct broker_config *out)
{
    lock_acquire(&broker->live.lock);
    *out = broker->live.config;
    lock_release(&broker->live.lock);
}

/* Tells those who keep copies of their own. */
static void tell(struct broker *broker, const struct broker_config *old,
                 const struct broker_config *config)
{
    struct store_limits limits;
    live_config_limits(broker, config, &limits);
    store_set_limits(broker->store, &limits);
    groups_set_auto_create(broker->groups, config->auto_create_group);
    if (broker->env.log)
        log_set_level(broker->env.log, (enum log_level)config->log_level);
    /* Routes show it: the nameservers take a table only under a new version. A slave's is not
     * theirs. */
    if (old->broker_permission != config->broker_permission && config->role != ROLE_SLAVE) {
        topics_touch(broker->topics);
        admin_lane_poke(broker->admin);
    }
}

static void note_change(struct broker *broker, const struct config_row *row,
                        const struct broker_config *old, const struct broker_config *config)
{
    char before[CONFIG_VALUE_TEXT_BYTES], after[CONFIG_VALUE_TEXT_BYTES];
    config_show_value(row, old, before, sizeof before);
    config_show_value(row, config, after, sizeof after);
    atomic_store(&broker->live.changed[row - broker_config_table.rows], true);
    log_warn(broker->env.log, "config_changed", "key=%s old=\"%s\" new=\"%s\"", row->key, before,
             after);
}

enum tern_code live_config_change(struct broker *broker, const struct config_assignment *list,
                                  size_t count, struct broker_config *before,
                                  struct broker_config *after, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    live_config_copy(broker, before);
    *after = *before;
    if (count == 0 || count > CONFIG_ASSIGNMENTS_MAX)
        return error_set(err, TERN_INVALID, "%zu keys in one request, allowed 1..%d", count,
                         (int)CONFIG_ASSIGNMENTS_MAX);
    for (size_t i = 0; !code && i < count; i++)
        code = config_change(&broker_config_table, after, list[i].key, list[i].value, err);
    if (!code)
        code = broker_config_check(after, err);
    if (code)
        return code == TERN_CONFIG ? TERN_INVALID : code;
    lock_acquire(&broker->live.lock);
    broker->live.config = *after;
    lock_release(&broker->live.lock);
    publish(&broker->live, after);
    tell(broker, before, after);
    for (size_t i = 0; i < count; i++)
        note_change(broker, config_find(&broker_config_table, list[i].key, strlen(list[i].key)),
                    before, after);
    return TERN_OK;
}
