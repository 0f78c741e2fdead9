/*
 * What handlers do first and last: names of the wire become checked C strings, numbers are held
 * against their range, and large answers against the frame's limit. On failure *err says which
 * field, what it is and what is allowed.
 */
#ifndef BROKER_HANDLERS_CHECKS_H
#define BROKER_HANDLERS_CHECKS_H

#include <inttypes.h>
#include <string.h>

#include "base/names.h"
#include "broker/ha/ha.h"
#include "broker/handlers/handlers.h"

typedef enum tern_code (*name_check_fn)(const void *name, size_t len, struct tern_error *err);

/* The field as a terminated string in the request's memory. */
static inline enum tern_code take_name(struct rpc_request *request,
                                       const ProtobufCBinaryData *field, name_check_fn check,
                                       const char **out, struct tern_error *err)
{
    enum tern_code code = check(field->data, field->len, err);
    if (code)
        return code;
    *out = frame_text(rpc_request_arena(request), field);
    return *out ? TERN_OK : error_set(err, TERN_NO_MEMORY, "no memory for the request");
}

static inline enum tern_code take_topic(struct rpc_request *request,
                                        const ProtobufCBinaryData *field, const char **out,
                                        struct tern_error *err)
{
    return take_name(request, field, topic_name_check, out, err);
}

static inline enum tern_code take_group(struct rpc_request *request,
                                        const ProtobufCBinaryData *field, const char **out,
                                        struct tern_error *err)
{
    return take_name(request, field, group_use_check, out, err);
}

/* The sender's client id, which this request must have. */
static inline enum tern_code take_client(struct rpc_request *request, const char **out,
                                         struct tern_error *err)
{
    return take_name(request, &request->header->client_id, client_id_check, out, err);
}

static inline enum tern_code find_topic(struct broker *broker, const char *topic,
                                        struct topic_config *config, struct tern_error *err)
{
    if (topics_find(broker->topics, topic, strlen(topic), config))
        return TERN_OK;
    return error_set(err, TERN_TOPIC_NOT_EXIST,
                     "topic %s does not exist on %s: create it with mqadmin updateTopic", topic,
                     broker->config.broker_name);
}

static inline int32_t configured_queues(const struct topic_config *config)
{
    return config->read_queues > config->write_queues ? config->read_queues : config->write_queues;
}

/* Queues that a topic has or had: what is configured, and what lies in the store. */
static inline int32_t topic_queue_count(struct broker *broker, const struct topic_config *config)
{
    int32_t count = configured_queues(config);
    int32_t stored = store_topic_last_queue(broker->store, config->name) + 1;
    return stored > count ? stored : count;
}

static inline enum tern_code check_queue(struct broker *broker, const struct topic_config *config,
                                         int32_t queue_id, struct tern_error *err)
{
    if (queue_id >= 0 && queue_id < configured_queues(config))
        return TERN_OK;
    int32_t count = topic_queue_count(broker, config);
    if (queue_id >= 0 && queue_id < count)
        return TERN_OK;
    return error_set(err, TERN_INVALID,
                     "queue_id %" PRId32 " of topic %s is out of range 0..%" PRId32, queue_id,
                     config->name, count - 1);
}

/* Absent: the first one. */
static inline struct offset_version version_from_wire(const Tern__Wire__OffsetVersion *version)
{
    return version ? (struct offset_version){version->epoch, version->counter}
                   : (struct offset_version){0, 0};
}

/* Changes of tables and progress are the master's, while it is open: before, it may have to take
 * another copy's. */
static inline enum tern_code check_master(struct broker *broker, struct tern_error *err)
{
    if (broker->config.role == ROLE_SLAVE)
        return error_set(
            err, TERN_NO_PERMISSION, "broker %s id %" PRId64 " is a slave: ask its master, %s id 0",
            broker->config.broker_name, broker->config.broker_id, broker->config.broker_name);
    if (!broker->ha || ha_state(broker->ha) == TERN__WIRE__HA_STATE__HA_OPEN)
        return TERN_OK;
    return error_set(err, TERN_SERVICE_NOT_AVAILABLE,
                     "master %s recovers from its slaves: ask again when it is open (mqadmin "
                     "haStatus)",
                     broker->config.broker_name);
}

/* Whether clients may ask for queues and progress here; else `code`. */
static inline enum tern_code check_serves(struct broker *broker, enum tern_code code,
                                          struct tern_error *err)
{
    char text[256] = "";
    if (!broker->ha || ha_readable(broker->ha, text, sizeof text))
        return TERN_OK;
    return error_set(err, code, "broker %s id %" PRId64 " does not serve this now: %s",
                     broker->config.broker_name, broker->config.broker_id, text);
}

/* Answers, or says that the answer does not fit into a frame. `narrower`: what to ask instead. */
static inline void reply_bounded(struct broker *broker, struct rpc_request *request,
                                 const TernResponse *response, const char *narrower)
{
    size_t most = frame_max_bytes(broker->config.max_message_bytes) - FRAME_HEADROOM_BYTES;
    size_t size = tern__wire__response__get_packed_size(response);
    if (size <= most && size <= FRAME_HEADER_MAX)
        rpc_reply(request, response, 0);
    else
        rpc_reply_error(request, TERN_TOO_LARGE,
                        "the answer has %zu bytes, a frame holds %zu (maxMessageSize): %s", size,
                        most, narrower);
}

#endif
