/*
 * The nameserver's configuration keys, RocketMQ's names where it has them. What RocketMQ has and we
 * do not is refused with the reason, so that a configuration carried over is not misread silently.
 *
 * Threads: none, read once at start. Failure modes: TERN_CONFIG with the key.
 */
#include "namesrv/namesrv_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(name) .offset = offsetof(struct namesrv_config, name)

static const struct config_row rows[] = {
    {.key = "listenAddr",
     .type = CONFIG_STRING,
     FIELD(listen_addr),
     .fallback = "127.0.0.1",
     .min = 1,
     .max = 253,
     .help =
         "Address to listen on. There is no authentication: beyond loopback only in a network you "
         "trust."},
    {.key = "listenPort",
     .type = CONFIG_INT,
     FIELD(listen_port),
     .fallback = "9876",
     .min = 0,
     .max = 65535,
     .help = "Port to listen on; 0 takes any free one, which the ready line names."},
    {.key = "kvConfigPath",
     .type = CONFIG_STRING,
     FIELD(kv_config_path),
     .fallback = "",
     .min = 0,
     .max = CONFIG_STRING_BYTES - 1,
     .help = "File of the KV configuration, one for each nameserver; empty means "
             "$HOME/namesrv/kvConfig.json."},
    {.key = "brokerExpireTime",
     .type = CONFIG_DURATION,
     FIELD(broker_expire_ms),
     .fallback = "120s",
     .min = 1000,
     .max = 3600 * 1000,
     .help = "A broker that has not registered for so long is dropped."},
    {.key = "scanInterval",
     .type = CONFIG_DURATION,
     FIELD(scan_interval_ms),
     .fallback = "10s",
     .min = 100,
     .max = 600 * 1000,
     .help = "How often to look for brokers that have expired."},
    {.key = "maxConnections",
     .type = CONFIG_INT,
     FIELD(max_connections),
     .fallback = "10000",
     .min = 16,
     .max = 1000000,
     .help = "Clients and brokers connected at once; further ones are turned away. At most a half "
             "of the files that may be open."},
    {.key = "logLevel",
     .type = CONFIG_ENUM,
     FIELD(log_level),
     .fallback = "INFO",
     .choices = "DEBUG|INFO|WARN|ERROR",
     .help = "Least level that is logged."},
    {.key = "rocketmqHome", .type = CONFIG_STRING, .refused = "nothing is read from there"},
    {.key = "configStorePath",
     .type = CONFIG_STRING,
     .refused = "the configuration is not changed at run time; use -c FILE"},
    {.key = "orderMessageEnable",
     .type = CONFIG_BOOL,
     FIELD(order_message_enable),
     .fallback = "true",
     .help =
         "Routes carry the topic's entry of the KV namespace ORDER_TOPIC_CONFIG, when it has one: "
         "producers then choose among the queues named there, whether their brokers are up or "
         "not (docs/ordering.md)."},
    {.key = "serverWorkerThreads",
     .type = CONFIG_INT,
     .refused = "requests are answered on the transport's own threads"},
};

const struct config_table namesrv_config_table = {
    .rows = rows, .count = sizeof rows / sizeof rows[0], .program = "mqnamesrv"};

enum tern_code namesrv_config_finish(void *config, struct tern_error *err)
{
    struct namesrv_config *c = config;
    if (c->kv_config_path[0])
        return TERN_OK;
    const char *home = getenv("HOME");
    if (!home || !home[0])
        return error_set(err, TERN_CONFIG, "kvConfigPath: not given, and HOME is not set");
    int len =
        snprintf(c->kv_config_path, sizeof c->kv_config_path, "%s/namesrv/kvConfig.json", home);
    if ((size_t)len >= sizeof c->kv_config_path)
        return error_set(err, TERN_CONFIG, "kvConfigPath: not given, and HOME is too long");
    return TERN_OK;
}
