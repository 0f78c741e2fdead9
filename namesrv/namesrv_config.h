/* The nameserver's configuration: one row per key in namesrv_config.c, docs printed from the rows.
 */
#ifndef NAMESRV_CONFIG_H
#define NAMESRV_CONFIG_H

#include "base/config.h"

struct namesrv_config {
    char listen_addr[CONFIG_STRING_BYTES];
    int64_t listen_port; /* 0: any free one */
    char kv_config_path[CONFIG_STRING_BYTES];
    int64_t broker_expire_ms;
    int64_t scan_interval_ms;
    int64_t max_connections;
    bool order_message_enable;
    int32_t log_level; /* enum log_level */
};

extern const struct config_table namesrv_config_table;

/* program_finish_fn: an empty kvConfigPath becomes $HOME/namesrv/kvConfig.json. */
MUST_CHECK enum tern_code namesrv_config_finish(void *config, struct tern_error *err);

#endif
