/*
 * The settings of producers: one setter each, checked when set; texts are copied into the struct.
 *
 * Threads: one at a time. Failure modes: TERN_INVALID leaves the old value.
 */
#include "client/producer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "client/sim_hooks.h"

enum {
    SEND_TIMEOUT_MAX_MS = 600000,
    RETRIES_MAX = 15,
    MESSAGE_BYTES_MAX = 64 << 20,
    MESSAGE_BYTES_DEFAULT = 4 << 20,
    IN_FLIGHT_MAX = 65535
};

struct tern_producer_options *tern_producer_options_create(void)
{
    struct tern_producer_options *options = calloc(1, sizeof *options);
    if (!options)
        return NULL;
    memcpy(options->group, "DEFAULT_PRODUCER", sizeof "DEFAULT_PRODUCER");
    options->send_timeout_ms = DEFAULT_SEND_TIMEOUT_MS;
    options->retries = DEFAULT_RETRIES;
    options->max_message_bytes = MESSAGE_BYTES_DEFAULT;
    options->max_in_flight = DEFAULT_IN_FLIGHT;
    options->compress = COMPRESS_ZLIB;
    options->compress_level = COMPRESS_LEVEL_DEFAULT;
    options->compress_threshold = COMPRESS_THRESHOLD_DEFAULT;
    return options;
}

void tern_producer_options_destroy(struct tern_producer_options *options)
{
    free(options);
}

static enum tern_code set_text(char *dst, size_t max, const char *text)
{
    size_t len = text ? strnlen(text, max + 1) : 0;
    if (len == 0 || len > max)
        return TERN_INVALID;
    memcpy(dst, text, len + 1);
    return TERN_OK;
}

enum tern_code tern_producer_options_namesrv(struct tern_producer_options *options,
                                             const char *addresses)
{
    return set_text(options->namesrv, NAMESRV_TEXT_MAX, addresses);
}

enum tern_code tern_producer_options_group(struct tern_producer_options *options, const char *group)
{
    if (!group || group_use_check(group, strnlen(group, GROUP_NAME_MAX + 1), NULL) != TERN_OK)
        return TERN_INVALID;
    return set_text(options->group, GROUP_NAME_MAX, group);
}

enum tern_code tern_producer_options_instance(struct tern_producer_options *options,
                                              const char *name)
{
    if (!name || client_id_check(name, strnlen(name, CLIENT_ID_MAX + 1), NULL) != TERN_OK)
        return TERN_INVALID;
    return set_text(options->instance_name, INSTANCE_NAME_MAX, name);
}

enum tern_code tern_producer_options_send_timeout_ms(struct tern_producer_options *options,
                                                     int64_t timeout_ms)
{
    if (timeout_ms < 1 || timeout_ms > SEND_TIMEOUT_MAX_MS)
        return TERN_INVALID;
    options->send_timeout_ms = timeout_ms;
    return TERN_OK;
}

enum tern_code tern_producer_options_retries(struct tern_producer_options *options, int retries)
{
    if (retries < 0 || retries > RETRIES_MAX)
        return TERN_INVALID;
    options->retries = retries;
    return TERN_OK;
}

enum tern_code tern_producer_options_max_message_bytes(struct tern_producer_options *options,
                                                       int64_t size_bytes)
{
    if (size_bytes < 1 || size_bytes > MESSAGE_BYTES_MAX)
        return TERN_INVALID;
    options->max_message_bytes = size_bytes;
    return TERN_OK;
}

enum tern_code tern_producer_options_max_in_flight(struct tern_producer_options *options,
                                                   int frames)
{
    if (frames < 1 || frames > IN_FLIGHT_MAX)
        return TERN_INVALID;
    options->max_in_flight = (uint32_t)frames;
    return TERN_OK;
}

enum tern_code tern_producer_options_compression(struct tern_producer_options *options,
                                                 enum tern_compression type, int level)
{
    static const enum compress_type types[] = {[TERN_COMPRESS_NONE] = COMPRESS_NONE,
                                               [TERN_COMPRESS_ZLIB] = COMPRESS_ZLIB,
                                               [TERN_COMPRESS_LZ4] = COMPRESS_LZ4,
                                               [TERN_COMPRESS_ZSTD] = COMPRESS_ZSTD};
    if ((unsigned)type >= sizeof types / sizeof types[0] || level < 0 || level > COMPRESS_LEVEL_MAX)
        return TERN_INVALID;
    options->compress = types[type];
    options->compress_level = level;
    return TERN_OK;
}

enum tern_code tern_producer_options_compress_threshold(struct tern_producer_options *options,
                                                        int64_t size_bytes)
{
    if (size_bytes < 1 || size_bytes > MESSAGE_BYTES_MAX)
        return TERN_INVALID;
    options->compress_threshold = size_bytes;
    return TERN_OK;
}

enum tern_code tern_producer_options_latency_faults(struct tern_producer_options *options,
                                                    bool enabled)
{
    options->latency_faults = enabled;
    return TERN_OK;
}

enum tern_code tern_producer_options_namespace(struct tern_producer_options *options,
                                               const char *name)
{
    if (!name || namespace_check(name, NULL) != TERN_OK)
        return TERN_INVALID;
    memcpy(options->ns, name, strlen(name) + 1);
    return TERN_OK;
}

enum tern_code tern_producer_options_trace(struct tern_producer_options *options, bool enabled,
                                           const char *topic)
{
    const char *name = topic ? topic : TRACE_TOPIC;
    size_t len = strnlen(name, TOPIC_NAME_MAX + 1);
    if (topic_name_check(name, len, NULL) != TERN_OK || topic_send_forbidden(name, len))
        return TERN_INVALID;
    options->trace = enabled;
    memcpy(options->trace_topic, name, len + 1);
    return TERN_OK;
}

void tern_producer_options_world(struct tern_producer_options *options, const struct env *env,
                                 struct link *link)
{
    ENSURE(!env == !link);
    options->env = env;
    options->link = link;
}
