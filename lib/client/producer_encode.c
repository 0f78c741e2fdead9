/*
 * The frame of a send.
 *
 * Messages are written as CommitLog records straight into the payload of the call, one copy from
 * the application's bytes to the transport's buffer. What records cannot say (delay, retry topics,
 * properties that would not fit beside the cluster's name) goes as plain fields, one message a
 * frame; so does one message that a broker refused as a record before it told which address family
 * it sees us with.
 *
 * Invariant: nothing is allocated here but the call.
 *
 * Threads: any, for a send that the caller owns. Failure modes: TERN_TOO_LARGE, TERN_LIMIT,
 * TERN_NO_MEMORY before anything was started.
 */
#include "client/producer_internal.h"

#include <string.h>

static bool is_retry_topic(const char *topic)
{
    return strncmp(topic, RETRY_TOPIC_PREFIX, sizeof RETRY_TOPIC_PREFIX - 1) == 0;
}

/* Whether the messages can travel as records at all. */
static bool fits_records(const struct send *send)
{
    if (is_retry_topic(send->topic->name))
        return false;
    for (size_t i = 0; i < send->count; i++)
        if (message_is_delayed(send->messages[i]) || message_is_half(send->messages[i]) ||
            !message_props_fit_record(send->messages[i], send->target->cluster_len))
            return false;
    return true;
}

/*
 * The broker's view of our address: as it told, else as its own address suggests, else the other
 * one.
 */
static void choose_family(struct send *send)
{
    enum born_family family = instance_born_family(send->producer->instance, send->target->address);
    send->family_known = family != BORN_UNKNOWN;
    send->born_v6 = send->family_known ? family == BORN_V6
                                       : send->target->literal_v6 != send->tried_other_family;
}

/* Rounded up: a deadline less than a millisecond away is still one. */
static int64_t left_ms(const struct send *send, int64_t now_ns)
{
    return (send->deadline_ns - now_ns + 999999) / 1000000;
}

static enum tern_code start_records(struct send *send, int64_t now_ns, rpc_done_fn done)
{
    const struct publish_broker *target = send->target;
    size_t size = 0;
    for (size_t i = 0; i < send->count; i++) {
        struct message_form form = send_form(send, i);
        size += message_record_size(send->messages[i], &form, target->cluster_len, send->born_v6,
                                    target->store_v6);
    }
    struct rpc_call *call;
    enum tern_code code = rpc_call_create(target->peer, size, &call);
    if (code != TERN_OK)
        return code;
    int64_t born_ms = clock_wall_ms(send->producer->env->clock);
    uint8_t *at = rpc_call_payload(call);
    uint8_t *end = at + size;
    for (size_t i = 0; i < send->count; i++) {
        struct message_form form = send_form(send, i);
        at += message_encode_record(send->messages[i], &form, target->cluster, target->cluster_len,
                                    send->born_v6, target->store_v6, send->queue_id, born_ms, at,
                                    (size_t)(end - at));
    }
    ENSURE(at == end);
    Tern__Wire__SendRecordsRequest records = TERN__WIRE__SEND_RECORDS_REQUEST__INIT;
    const char *group = send->producer->options.group;
    records.producer_group = frame_bytes(group, strlen(group));
    records.topic = frame_bytes(send->topic->name, strlen(send->topic->name));
    records.queue_id = send->queue_id;
    records.count = (uint32_t)send->count;
    records.no_wait = !message_wait_store_ok(send->messages[0]);
    if (send->publish->from_default_topic) {
        records.default_topic = frame_bytes(DEFAULT_TOPIC, sizeof DEFAULT_TOPIC - 1);
        records.default_topic_queues = DEFAULT_TOPIC_QUEUES;
    }
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND_RECORDS;
    request.send_records = &records;
    rpc_call_start(call, &request, size, left_ms(send, now_ns), done, send);
    return TERN_OK;
}

static enum tern_code start_plain(struct send *send, int64_t now_ns, rpc_done_fn done)
{
    const struct tern_message *message = send->messages[0];
    const struct message_form form = send_form(send, 0);
    size_t body_len = form.body_len;
    Tern__Wire__SendRequest plain = TERN__WIRE__SEND_REQUEST__INIT;
    plain.properties.data = (uint8_t *)(uintptr_t)message_props(message, &plain.properties.len);
    if (plain.properties.len > RECORD_PROPS_MAX)
        return error_set(&send->err, TERN_TOO_LARGE,
                         "properties have %zu bytes with the message's id, at most %d are stored",
                         plain.properties.len, (int)RECORD_PROPS_MAX);
    struct rpc_call *call;
    enum tern_code code = rpc_call_create(send->target->peer, body_len, &call);
    if (code != TERN_OK)
        return code;
    if (body_len > 0)
        memcpy(rpc_call_payload(call), form.body, body_len);
    const char *group = send->producer->options.group;
    plain.producer_group = frame_bytes(group, strlen(group));
    plain.topic = frame_bytes(send->topic->name, strlen(send->topic->name));
    plain.queue_id = send->queue_id;
    plain.flag = tern_message_flag(message);
    plain.sys_flag = form.sys_flag;
    plain.born_ms = clock_wall_ms(send->producer->env->clock);
    if (send->publish->from_default_topic) {
        plain.default_topic = frame_bytes(DEFAULT_TOPIC, sizeof DEFAULT_TOPIC - 1);
        plain.default_topic_queues = DEFAULT_TOPIC_QUEUES;
    }
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    request.send = &plain;
    rpc_call_start(call, &request, body_len, left_ms(send, now_ns), done, send);
    return TERN_OK;
}

/* A message of the batch has properties that no record takes. */
static enum tern_code refuse_batch(struct send *send)
{
    size_t i = 0;
    while (i + 1 < send->count &&
           message_props_fit_record(send->messages[i], send->target->cluster_len))
        i++;
    size_t len;
    (void)message_props(send->messages[i], &len);
    return error_set(&send->err, TERN_TOO_LARGE,
                     "message %zu of a batch has %zu bytes of properties with its id, at most %d "
                     "are stored, with CLUSTER=%s",
                     i, len, (int)RECORD_PROPS_MAX, send->target->cluster);
}

enum tern_code send_start_call(struct send *send, int64_t now_ns, rpc_done_fn done)
{
    send->err.text[0] = 0;
    send->attempt_ns = now_ns;
    if (send->producer->trace)
        memcpy(send->last_address, send->target->address, sizeof send->last_address);
    if (!send->target->peer)
        return error_set(&send->err, TERN_UNREACHABLE, "broker %s: its address %s is of no use",
                         send->target->broker->name, send->target->address);
    bool records = !send->plain && fits_records(send);
    if (!records && send->count > 1)
        return refuse_batch(send);
    if (!records)
        send->plain = true;
    else
        choose_family(send);
    enum tern_code code =
        records ? start_records(send, now_ns, done) : start_plain(send, now_ns, done);
    if (code == TERN_LIMIT)
        error_set(&send->err, code,
                  "broker %s (%s): its connection has no room for another request, the most are "
                  "4088: wait for callbacks, or lower max_in_flight",
                  send->target->broker->name, send->target->address);
    else if (code != TERN_OK && !send->err.text[0])
        error_set(&send->err, code, "broker %s (%s): %s", send->target->broker->name,
                  send->target->address, tern_code_text(code));
    return code;
}

enum tern_code send_read_answer(struct send *send, const struct rpc_call *call)
{
    if (call->response->body_case != TERN__WIRE__RESPONSE__BODY_SEND || !call->response->send)
        return error_set(&send->err, TERN_PROTOCOL,
                         "broker %s (%s) answered a send without saying where it stored it",
                         send->target->broker->name, send->target->address);
    const Tern__Wire__SendResponse *answer = call->response->send;
    struct tern_send_result *result = &send->result;
    result->status = rpc_call_result(call);
    memcpy(result->queue.topic, send->topic->name, sizeof send->topic->name);
    namespace_strip(send->producer->options.ns, result->queue.topic);
    memcpy(result->queue.broker_name, send->target->broker->name,
           sizeof send->target->broker->name);
    result->queue.queue_id = answer->queue_id;
    result->queue_offset = answer->queue_offset;
    const char *id = tern_message_id(send->messages[0]);
    memcpy(result->message_id, id, strlen(id) + 1);
    struct host store = {0};
    size_t ip_len = answer->store_host ? answer->store_host->ip.len : 0;
    result->offset_id[0] = 0;
    if (ip_len == 4 || ip_len == 16) {
        memcpy(store.ip, answer->store_host->ip.data, ip_len);
        store.v6 = ip_len == 16;
        store.port = answer->store_host->port;
        message_id_format(result->offset_id, &store, answer->physical_offset);
    }
    return TERN_OK;
}
