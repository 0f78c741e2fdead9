/*
 * Sending: checks the target, appends, waits for what was promised, answers (RocketMQ's
 * SendMessageProcessor). Records of a SendRecords request are checked and completed in the received
 * buffer and written from there: the body is never copied.
 *
 *   check target ─► check records ─► store_append ─► on_appended
 *       ├─ nothing to wait for, or no_wait ─► answer
 *       └─ SYNC_FLUSH, SYNC_MASTER ─► ack_wait ─► answer
 *
 * Failure: a refused send has changed nothing and taken no offset. FLUSH_DISK_TIMEOUT,
 * FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE are answered with the position: the message is
 * stored, only not known to be on disk, or on a slave.
 */
#include "broker/handlers/send.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/names.h"
#include "base/props.h"
#include "base/rng.h"
#include "broker/admin_lane.h"

enum { BATCH_RECORDS_MAX = 4096, ENVELOPE_BYTES = 64 << 10, AUTO_CREATE_QUEUES = 4 };

/* ---- target ---- */

static enum tern_code create_topic(struct broker *broker, struct rpc_request *request,
                                   const struct send_target *target, struct tern_error *err)
{
    const char *name = frame_text(rpc_request_arena(request), &target->topic);
    struct topic_config template, config = {.perm = 0};
    const void *wanted =
        target->default_topic.len ? target->default_topic.data : (const void *)DEFAULT_TOPIC;
    size_t wanted_len =
        target->default_topic.len ? target->default_topic.len : strlen(DEFAULT_TOPIC);
    if (topics_find(broker->topics, name, target->topic.len, &config))
        return TERN_OK; /* another send was first */
    if (!topics_find(broker->topics, wanted, wanted_len, &template) ||
        !(template.perm & PERM_INHERIT))
        return error_set(err, TERN_TOPIC_NOT_EXIST,
                         "topic %s does not exist on %s and cannot be made from the template: "
                         "create it with mqadmin updateTopic",
                         name, broker->config.broker_name);
    int32_t queues =
        target->default_topic_queues > 0 ? target->default_topic_queues : AUTO_CREATE_QUEUES;
    if (queues > template.write_queues)
        queues = template.write_queues;
    memcpy(config.name, name, target->topic.len + 1);
    config.name_len = (uint8_t)target->topic.len;
    config.read_queues = config.write_queues = queues;
    config.perm = template.perm & ~PERM_INHERIT;
    return topics_put(broker->topics, &config, err);
}

static void target_of(const struct rpc_request *request, struct send_target *target)
{
    const TernRequest *header = request->header;
    if (header->body_case == TERN__WIRE__REQUEST__BODY_SEND)
        *target = (struct send_target){header->send->topic, header->send->default_topic,
                                       header->send->queue_id, header->send->default_topic_queues};
    else
        *target = (struct send_target){
            header->send_records->topic, header->send_records->default_topic,
            header->send_records->queue_id, header->send_records->default_topic_queues};
}

static enum tern_code apply_create(struct broker *broker, struct rpc_request *request,
                                   struct tern_error *err)
{
    struct send_target target;
    target_of(request, &target);
    return create_topic(broker, request, &target, err);
}

/* The topic is durable now: run the send again. */
static void send_again(struct broker *broker, struct rpc_request *request)
{
    if (request->header->body_case == TERN__WIRE__REQUEST__BODY_SEND)
        handle_send(broker, request);
    else
        handle_send_records(broker, request);
}

/* A group's topics are made for a group that exists, never by a send from the template (NS-03). */
static bool topic_is_of_group(const char *topic)
{
    return !strncmp(topic, RETRY_TOPIC_PREFIX, sizeof RETRY_TOPIC_PREFIX - 1) ||
           !strncmp(topic, DLQ_TOPIC_PREFIX, sizeof DLQ_TOPIC_PREFIX - 1);
}

static bool choose_queue(struct send *send, const struct send_target *target,
                         const struct topic_config *topic)
{
    int32_t most =
        topic->write_queues > topic->read_queues ? topic->write_queues : topic->read_queues;
    if (target->queue_id >= most || target->queue_id < -1) {
        rpc_reply_error(send->request, TERN_INVALID,
                        "queue_id %" PRId32 " of topic %s is out of range: -1 or 0..%" PRId32,
                        target->queue_id, send->topic, most - 1);
        return false;
    }
    send->queue_id = target->queue_id;
    if (send->queue_id < 0)
        send->queue_id = topic->write_queues > 0 ? (int32_t)rng_below(send->broker->env.rng,
                                                                      (uint64_t)topic->write_queues)
                                                 : 0;
    return true;
}

static bool check_writable(struct broker *broker, struct rpc_request *request)
{
    enum tern_code code;
    char text[256];
    if (broker_writable(broker, &code, text, sizeof text))
        return true;
    rpc_reply_error(request, code, "%s", text);
    return false;
}

struct send *send_begin(struct broker *broker, struct rpc_request *request,
                        const struct send_target *target)
{
    struct tern_error err;
    struct topic_config topic;
    if (!check_writable(broker, request))
        return NULL;
    enum tern_code code = topic_name_check(target->topic.data, target->topic.len, &err);
    if (code != TERN_OK) {
        rpc_reply_failure(request, code, &err);
        return NULL;
    }
    struct send *send = rpc_request_alloc(request, sizeof *send);
    const char *name = frame_text(rpc_request_arena(request), &target->topic);
    if (!send || !name) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the send");
        return NULL;
    }
    *send = (struct send){.broker = broker,
                          .request = request,
                          .topic = name,
                          .topic_len = target->topic.len,
                          .stage_ns = clock_mono_ns(broker->env.clock)};
    if (topic_send_forbidden(name, send->topic_len)) {
        rpc_reply_error(request, TERN_NO_PERMISSION, "clients may not send to system topic %s",
                        name);
        return NULL;
    }
    if (!topics_find(broker->topics, name, send->topic_len, &topic)) {
        if (broker->config.auto_create_topic && !topic_is_of_group(name))
            admin_lane_submit(broker->admin, request, apply_create, send_again);
        else
            rpc_reply_error(request, TERN_TOPIC_NOT_EXIST,
                            "topic %s does not exist on %s: create it with mqadmin updateTopic",
                            name, broker->config.broker_name);
        return NULL;
    }
    if (!(topic.perm & PERM_WRITE)) {
        rpc_reply_error(request, TERN_NO_PERMISSION, "topic %s is not writable (perm %" PRId32 ")",
                        name, topic.perm);
        return NULL;
    }
    if (!choose_queue(send, target, &topic))
        return NULL;
    code =
        store_queue_ref(broker->store, name, send->topic_len, send->queue_id, &send->append.queue);
    if (code != TERN_OK) {
        rpc_reply_error(request, code, "queue %" PRId32 " of topic %s cannot be opened",
                        send->queue_id, name);
        return NULL;
    }
    return send;
}

/* ---- append and answer ---- */

static void answer_stored(struct send *send, enum tern_code code)
{
    const struct host *host = &send->broker->store_host;
    Tern__Wire__Address address = TERN__WIRE__ADDRESS__INIT;
    Tern__Wire__SendResponse body = TERN__WIRE__SEND_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;

    address.ip = (ProtobufCBinaryData){host->v6 ? 16 : 4, (uint8_t *)(uintptr_t)host->ip};
    address.port = host->port;
    body.queue_id = send->half ? send->half->real_queue_id : send->queue_id;
    body.queue_offset = send->append.first_queue_off;
    body.physical_offset = send->append.first_phys_off;
    body.store_ms = send->append.store_ms;
    body.store_host = &address;
    response.code = wire_code_of(code);
    if (code != TERN_OK)
        response.remark = (char *)(uintptr_t)tern_code_text(code);
    response.body_case = TERN__WIRE__RESPONSE__BODY_SEND;
    response.send = &body;
    rpc_reply(send->request, &response, 0);
}

/* Which boundary the message has not passed in time: its own disk, or the slaves. */
static enum tern_code late_code(struct broker *broker, const struct store_append *append)
{
    struct store_positions at;
    store_positions(broker->store, &at);
    if (broker->config.flush_type == FLUSH_SYNC && at.flushed < append->end_phys_off) {
        counter_add(&broker->flush_timeouts, 1);
        return TERN_FLUSH_DISK_TIMEOUT;
    }
    counter_add(&broker->replica_timeouts, 1);
    return TERN_FLUSH_SLAVE_TIMEOUT;
}

/* Only waits that ended well tell how long the disk and the slaves take. */
static void count_wait(struct send *send)
{
    struct broker *broker = send->broker;
    const struct stages_wait wait = {.flush = broker->config.flush_type == FLUSH_SYNC,
                                     .replicas = broker->config.role == ROLE_SYNC_MASTER,
                                     .end_phys_off = send->append.end_phys_off,
                                     .appended_ns = send->stage_ns,
                                     .answered_ns = clock_mono_ns(broker->env.clock)};
    stages_waited(&broker->stages, &wait);
}

static void on_acknowledged(struct ack_entry *ack, enum tern_code code)
{
    struct send *send = (struct send *)(void *)((char *)ack - offsetof(struct send, ack));
    if (code == TERN_OK)
        count_wait(send);
    if (code == TERN_TIMEOUT)
        code = late_code(send->broker, &send->append);
    if (code == TERN_SLAVE_NOT_AVAILABLE)
        counter_add(&send->broker->no_replica, 1);
    if (code == TERN_OK || code == TERN_FLUSH_DISK_TIMEOUT || code == TERN_FLUSH_SLAVE_TIMEOUT ||
        code == TERN_SLAVE_NOT_AVAILABLE)
        answer_stored(send, code);
    else
        rpc_reply_error(send->request, code,
                        "the broker stopped, or its disk failed, before the message was known to "
                        "be safe; see its log");
}

int64_t send_deadline_ns(const struct broker *broker, const struct rpc_request *request)
{
    int64_t own = clock_mono_ns(broker->env.clock) + ms_to_ns(broker->live.sync_flush_timeout_ms);
    int64_t patience = request->deadline_ns - (request->deadline_ns - request->received_ns) / 10;
    return own < patience ? own : patience;
}

static void on_appended(struct store_append *append)
{
    struct send *send = (struct send *)(void *)((char *)append - offsetof(struct send, append));
    struct broker *broker = send->broker;

    store_queue_unref(append->queue);
    if (send->half)
        tx_half_end(broker->tx, send->half, append);
    if (append->result == TERN_OK)
        send_post_replies(send);
    if (append->result != TERN_OK) {
        char text[256];
        store_refusal_text(broker->store, append->result, text, sizeof text);
        rpc_reply_error(send->request, append->result, "%s", text);
    } else if (send->no_wait || (broker->config.flush_type == FLUSH_ASYNC &&
                                 broker->config.role != ROLE_SYNC_MASTER)) {
        answer_stored(send, TERN_OK);
    } else {
        send->stage_ns = clock_mono_ns(broker->env.clock);
        send->ack = (struct ack_entry){.position = append->end_phys_off,
                                       .deadline_ns = send_deadline_ns(broker, send->request),
                                       .done = on_acknowledged};
        ack_wait_add(broker->acks, &send->ack);
    }
}

void send_append(struct send *send, uint8_t *records, size_t size_bytes, uint32_t count)
{
    send->append.records = records;
    send->append.size_bytes = (uint32_t)size_bytes;
    send->append.count = count;
    send->append.on_appended = on_appended;
    histogram_add(&send->broker->stages.encode_ns,
                  clock_mono_ns(send->broker->env.clock) - send->stage_ns);
    store_append(send->broker->store, &send->append);
}

/* ---- prepared records ---- */

/* Properties a prepared record may not carry: they ask for what SendRecords does not do. */
static bool forbidden_property(const struct slice *name)
{
    static const char *const names[] = {
        PROP_WAIT,           PROP_DELAY,           PROP_TRAN_MSG,    PROP_REAL_TOPIC,
        PROP_REAL_QID,       PROP_RETRY_TOPIC,     PROP_SEQUEL_OF,   PROP_TIMER_DELIVER_MS,
        PROP_TIMER_DELAY_MS, PROP_TIMER_DELAY_SEC, PROP_RETRY_COHORT};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (name->len == strlen(names[i]) && !memcmp(name->ptr, names[i], name->len))
            return true;
    return false;
}

/* CLUSTER is there and right, nothing forbidden is. Returns what is wrong, NULL when nothing is. */
static const char *check_props(const struct broker *broker, const struct record *record)
{
    struct slice name, value;
    bool cluster = false;
    if (memchr(record->props, 0, record->props_len))
        return "a NUL byte in the properties";
    for (size_t cursor = 0; props_next(record->props, record->props_len, &cursor, &name, &value);) {
        if (name.len == sizeof PROP_CLUSTER - 1 && !memcmp(name.ptr, PROP_CLUSTER, name.len))
            cluster = value.len == strlen(broker->config.cluster_name) &&
                      !memcmp(value.ptr, broker->config.cluster_name, value.len);
        else if (forbidden_property(&name))
            return "a property that prepared records may not carry (WAIT, DELAY, TRAN_MSG, "
                   "REAL_TOPIC, REAL_QID, RETRY_TOPIC, SEQUEL_OF, TIMER_…)";
    }
    return cluster ? NULL : "no property CLUSTER with this cluster's name";
}

/* Checks one prepared record and completes it. Returns what is wrong, NULL when nothing is. */
static const char *complete_record(struct send *send, uint8_t *bytes, const struct record *record)
{
    const struct broker *broker = send->broker;
    const uint32_t allowed = SYS_COMPRESSED | SYS_COMPRESSION_TYPE | SYS_BORN_V6 | SYS_STORE_V6;

    if (record->topic_len != send->topic_len || memcmp(record->topic, send->topic, send->topic_len))
        return "a record of another topic";
    if (record->sys_flag & ~allowed)
        return "a sysFlag that prepared records may not have";
    if (record->prepared_tx_off != 0 || record->reconsume_times != 0)
        return "a prepared-transaction offset or reconsume count";
    const char *fault = check_props(broker, record);
    if (fault)
        return fault;
    if (!record_stamp_born_host(bytes, &send->request->peer.remote))
        return "a bornHost of the other address family";
    if (!record_stamp_store_host(bytes, &broker->store_host))
        return "a storeHost of the other address family";
    record_stamp_queue(bytes, send->queue_id);
    record_stamp_crc(bytes, record_body_crc(record->body, record->body_len));
    return NULL;
}

/* On failure the request was answered. */
static bool check_body(struct send *send, uint32_t number, const struct record *record)
{
    int64_t most = send->broker->config.max_message_bytes;
    if (record->body_len <= (uint64_t)most)
        return true;
    rpc_reply_error(send->request, TERN_MESSAGE_ILLEGAL,
                    "record %" PRIu32 " of topic %s: a body of %" PRIu32
                    " bytes is above maxMessageSize %" PRId64,
                    number, send->topic, record->body_len, most);
    return false;
}

/* Walks the payload; on failure the request was answered. */
static bool complete_all(struct send *send, uint32_t count)
{
    struct rpc_request *request = send->request;
    size_t most = (size_t)send->broker->config.max_message_bytes + ENVELOPE_BYTES;
    size_t at = 0;
    uint32_t seen = 0;
    for (; at < request->payload_size && seen < count; seen++) {
        struct record record;
        uint8_t *bytes = request->payload + at;
        const char *fault = "bytes that are no record";
        if (record_parse(bytes, request->payload_size - at, most, false, &record) == RECORD_WHOLE) {
            if (!check_body(send, seen, &record))
                return false;
            fault = complete_record(send, bytes, &record);
        }
        if (fault) {
            rpc_reply_error(request, TERN_MESSAGE_ILLEGAL,
                            "record %" PRIu32 " of topic %s, byte %zu of the payload: %s", seen,
                            send->topic, at, fault);
            return false;
        }
        at += record.total_size;
    }
    if (seen != count || at != request->payload_size) {
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL,
                        "count %" PRIu32 " does not match a payload of %zu bytes", count,
                        request->payload_size);
        return false;
    }
    return true;
}

void handle_send_records(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__SendRecordsRequest *wanted = request->header->send_records;
    size_t most = (size_t)broker->config.max_message_bytes + ENVELOPE_BYTES;
    struct send_target target;

    if (wanted->count < 1 || wanted->count > BATCH_RECORDS_MAX) {
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL, "count %" PRIu32 " is not in 1..%d",
                        wanted->count, BATCH_RECORDS_MAX);
        return;
    }
    if (request->payload_size > most) {
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL,
                        "a batch of %zu bytes is above the limit of %zu (maxMessageSize %" PRId64
                        " and %d of envelope): split it",
                        request->payload_size, most, broker->config.max_message_bytes,
                        ENVELOPE_BYTES);
        return;
    }
    target_of(request, &target);
    if (target.topic.len >= sizeof RETRY_TOPIC_PREFIX - 1 &&
        !memcmp(target.topic.data, RETRY_TOPIC_PREFIX, sizeof RETRY_TOPIC_PREFIX - 1)) {
        rpc_reply_error(request, TERN_MESSAGE_ILLEGAL,
                        "prepared records for a retry topic: send the message in plain fields");
        return;
    }
    struct send *send = send_begin(broker, request, &target);
    if (!send)
        return;
    send->no_wait = wanted->no_wait;
    struct consume_queue *queue = send->append.queue;
    if (complete_all(send, wanted->count))
        send_append(send, request->payload, request->payload_size, wanted->count);
    else
        store_queue_unref(queue); /* the request, and with it the send, is gone */
}
