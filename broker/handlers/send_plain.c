/*
 * Sending in plain fields, for simple clients and for whatever prepared records do not offer: the
 * broker encodes the record itself. Delayed messages come this way. The stored properties lose WAIT
 * (it is honoured) and gain CLUSTER, as RocketMQ's SendMessageProcessor does.
 */
#include <inttypes.h>
#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "broker/delayed.h"
#include "broker/handlers/send.h"

/* The properties to store, in the request's memory. On failure the request was answered. */
static uint8_t *stored_props(struct send *send, const ProtobufCBinaryData *sent, size_t *len)
{
    struct rpc_request *request = send->request;
    const char *cluster = send->broker->config.cluster_name;
    struct slice value;

    uint8_t *props = rpc_request_alloc(request, RECORD_PROPS_MAX);
    if (!props) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the properties");
        return NULL;
    }
    if (props_get(sent->data, sent->len, PROP_WAIT, &value))
        send->no_wait = value.len == 5 && !strncasecmp((const char *)value.ptr, "false", 5);
    *len = props_remove(props, sent->data, sent->len, PROP_WAIT);
    *len = props_remove(props, props, *len, PROP_CLUSTER);
    *len = props_remove(props, props, *len, PROP_SEQUEL_OF); /* ours alone */
    if (props_append(props, len, RECORD_PROPS_MAX, PROP_CLUSTER, strlen(PROP_CLUSTER), cluster,
                     strlen(cluster)) != TERN_OK) {
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL,
                        "properties of %zu bytes with CLUSTER added are above the limit of %d",
                        sent->len, RECORD_PROPS_MAX);
        return NULL;
    }
    return props;
}

/* What a plain send may ask for. On failure the request was answered. */
static bool check_fields(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__SendRequest *wanted = request->header->send;
    const uint32_t allowed = SYS_COMPRESSED | SYS_COMPRESSION_TYPE;

    if (request->payload_size > (uint64_t)broker->config.max_message_bytes) {
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL,
                        "a body of %zu bytes is above maxMessageSize %" PRId64,
                        request->payload_size, broker->config.max_message_bytes);
    } else if (wanted->properties.len > RECORD_PROPS_MAX) {
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL,
                        "properties of %zu bytes are above the limit of %d", wanted->properties.len,
                        RECORD_PROPS_MAX);
    } else if (wanted->properties.len &&
               memchr(wanted->properties.data, 0, wanted->properties.len)) {
        /* Recovery takes a NUL there for bytes that never reached the disk. */
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL, "properties hold a NUL byte");
    } else if (wanted->sys_flag & ~allowed) {
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL,
                        "sys_flag 0x%" PRIx32 " has bits other than compression (0x701)",
                        wanted->sys_flag);
    } else if (wanted->reconsume_times < 0 || wanted->max_reconsume_times < 0) {
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL, "negative reconsume count");
    } else {
        return true;
    }
    return false;
}

/*
 * A message that asks for a delay goes where it waits; its target was checked as that of any send,
 * and the answer still names its own queue. On failure the request was answered.
 */
static bool wrap_delayed(struct send *send, struct delayed_message *message)
{
    struct tern_error err;
    struct consume_queue *waiting = NULL;
    memcpy(message->topic, send->topic, send->topic_len + 1);
    message->topic_len = send->topic_len;
    message->queue_id = send->queue_id;
    enum tern_code code = delayed_wrap(send->broker, message, &err);
    if (code != TERN_OK) {
        rpc_reply_failure(send->request, code, &err);
        return false;
    }
    if (!strcmp(message->topic, send->topic))
        return true;
    code = store_queue_ref(send->broker->store, message->topic, message->topic_len,
                           message->queue_id, &waiting);
    if (code != TERN_OK) {
        rpc_reply_error(send->request, code, "queue %" PRId32 " of topic %s cannot be opened",
                        message->queue_id, message->topic);
        return false;
    }
    store_queue_unref(send->append.queue);
    send->append.queue = waiting;
    return true;
}

void handle_send(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__SendRequest *wanted = request->header->send;
    struct send_target target = {wanted->topic, wanted->default_topic, wanted->queue_id,
                                 wanted->default_topic_queues};
    ProtobufCBinaryData sent = wanted->properties;
    if (!check_fields(broker, request) || !send_retry(broker, request, &target, &sent))
        return;
    struct send *send = send_begin(broker, request, &target);
    if (!send)
        return;
    struct consume_queue *queue = send->append.queue;
    struct delayed_message message;
    message.props = stored_props(send, &sent, &message.props_len);
    bool half = message.props && tx_asked(message.props, message.props_len);
    bool good = message.props && (half ? transaction_begin(send, message.props, &message.props_len)
                                       : wrap_delayed(send, &message));
    if (!good) {
        store_queue_unref(queue);
        return;
    }
    if (half) { /* it waits where the transaction put it */
        memcpy(message.topic, send->topic, send->topic_len + 1);
        message.topic_len = send->topic_len;
        message.queue_id = send->queue_id;
    }
    struct record fields = {
        .queue_id = message.queue_id,
        .flag = wanted->flag,
        .sys_flag = wanted->sys_flag,
        .born_ms = wanted->born_ms,
        .born_host = request->peer.remote,
        .store_host = broker->store_host,
        .reconsume_times = wanted->reconsume_times,
        .body = request->payload,
        .body_len = (uint32_t)request->payload_size,
        .topic = (const uint8_t *)message.topic,
        .topic_len = (uint8_t)message.topic_len,
        .props = message.props,
        .props_len = (uint16_t)message.props_len,
    };
    size_t size = RECORD_FIXED_BYTES + 2 * RECORD_V6_EXTRA_BYTES + request->payload_size +
                  message.topic_len + message.props_len;
    uint8_t *bytes = rpc_request_alloc(request, size);
    size = bytes ? record_encode(bytes, size, &fields) : 0;
    if (size) {
        send_append(send, bytes, size, 1);
    } else {
        queue = send->append.queue;
        if (half)
            tx_half_end(broker->tx, send->half, NULL);
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory to encode the message");
        store_queue_unref(queue);
    }
}
