/*
 * The broker's configuration: RocketMQ's keys where it has them. One row per key in
 * broker_config.c, from which parsing, -p and the reference page come.
 */
#ifndef BROKER_CONFIG_H
#define BROKER_CONFIG_H

#include "base/config.h"
#include "broker/store/delay_level.h"

enum { BROKER_CONFIG_ROWS_MAX = 256 };

enum broker_role { ROLE_ASYNC_MASTER, ROLE_SYNC_MASTER, ROLE_SLAVE };
enum flush_type { FLUSH_SYNC, FLUSH_ASYNC };
enum visibility { VISIBLE_AUTO, VISIBLE_WRITTEN, VISIBLE_CONFIRMED };

struct broker_config {
    char cluster_name[CONFIG_STRING_BYTES];
    char broker_name[CONFIG_STRING_BYTES];
    int64_t broker_id;
    int32_t role;
    int32_t flush_type;
    char namesrv_addr[CONFIG_STRING_BYTES];
    char listen_addr[CONFIG_STRING_BYTES];
    int64_t listen_port;
    char advertise_addr[CONFIG_STRING_BYTES];
    int64_t ha_listen_port;
    char ha_master_address[CONFIG_STRING_BYTES];
    char in_sync_replicas_text[CONFIG_STRING_BYTES];
    int64_t in_sync_replicas; /* from the text; INT64_MAX: all */
    int64_t min_in_sync_replicas;
    int64_t ha_max_behind_ms;
    int32_t consume_visibility; /* enum visibility; VISIBLE_AUTO is resolved by the check */
    bool recover_from_slave;
    int64_t recover_timeout_ms;
    int64_t ha_transfer_rate;
    int64_t broker_permission;
    int32_t log_level; /* enum log_level */

    char store_root[CONFIG_STRING_BYTES];
    int64_t segment_bytes, queue_file_bytes;
    bool index_enable;
    int64_t index_slots, index_entries;
    int64_t flush_interval_ms, queue_flush_interval_ms;
    int64_t sync_flush_timeout_ms;
    int64_t retention_ms;
    char delete_when[CONFIG_STRING_BYTES];
    int64_t disk_max_used_percent, disk_clean_percent, disk_warning_percent;
    int64_t clean_interval_ms;
    int64_t max_message_bytes;
    int64_t access_memory_percent;
    int64_t physical_memory_bytes; /* 0: the cgroup's limit or the machine's */
    int64_t memory_bytes, memory_count, disk_bytes, disk_count;
    int64_t open_files;

    bool slave_read_enable, offset_check_in_slave;
    bool enable_property_filter;
    bool auto_create_topic, auto_create_group;
    bool trace_topic_enable;
    char trace_topic[CONFIG_STRING_BYTES];
    int64_t default_topic_queues;
    bool long_polling_enable;
    int64_t short_polling_ms;
    int64_t max_parked_pulls, max_requests, max_requests_per_client, max_connections;
    int64_t register_period_ms, register_timeout_ms;
    int64_t flush_offset_interval_ms;
    char delay_level_text[CONFIG_STRING_BYTES];
    struct delay_levels
        delay_levels; /* from the text; of RocketMQ's only those that retention allows */
    int64_t timer_max_delay_ms;
    bool reject_transactions;
    int64_t transaction_timeout_ms, transaction_check_interval_ms, transaction_check_max;
    int64_t transaction_pending_max;
};

extern const struct config_table broker_config_table;

/* Defaults, then host-dependent ones (brokerName, storePathRootDir, physicalMemorySize). */
void broker_config_init(struct broker_config *config);
/* What single rows cannot check: role against id, grammar of names and addresses, deleteWhen,
 * sizes. */
MUST_CHECK enum tern_code broker_config_check(struct broker_config *config, struct tern_error *err);
/* deleteWhen "04;16" as a bit per hour; 0 when malformed. */
uint32_t broker_config_hours(const char *text);

#endif
