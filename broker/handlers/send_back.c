/*
 * Sending back: a consumer returns a message that it could not process (RocketMQ's
 * CONSUMER_SEND_MSG_BACK). The broker copies the stored record, counts the try, and lets it wait in
 * %RETRY%group, or puts it to the dead letters in %DLQ%group (docs/retry.md).
 *
 *   transport            cold lane                   admin lane        any
 *   check the request ─► read the record ─► decide ─► make the topic ─► put ─► answer
 *                                              └────── it is there ────┘
 *
 * The answer is as good as a send's: with success the copy has what the broker's mode promises, and
 * a topic that was made for it is durable; the consumer may pass the message.
 *
 * Invariants: the copy is of the record that the consumer had (its id and store time are compared:
 * a log that was cut may have another record there); the count never falls below the consumer's. A
 * count belongs to one group: a message that came from elsewhere than the group's own retry topic
 * begins at none, also a dead letter of another group.
 *
 * Threads: as drawn; the request's memory holds the state. Failure modes: each refusal names group,
 * topic and cause, and has stored nothing; QUERY_NOT_FOUND says that the record is not here any
 * more, so that the consumer can send its own copy.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/props.h"
#include "base/rng.h"
#include "broker/admin_lane.h"
#include "broker/cold_lane.h"
#include "broker/delayed.h"
#include "broker/guard.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/send.h"
#include "broker/put.h"
#include "broker/retry.h"

/* Lives in its request's memory, as everything that it points to. */
struct send_back {
    struct broker *broker;
    struct rpc_request *request;
    const char *topic; /* of the message, as the consumer sees it */
    struct group_config group;
    uint8_t *bytes;       /* the record's */
    struct record record; /* the message */
    char record_id[MESSAGE_ID_BYTES];
    int32_t times; /* counted before */
    enum retry_kind kind;
    struct put put;
};

static struct send_back *back_of_put(struct put *put)
{
    return (struct send_back *)(void *)((char *)put - offsetof(struct send_back, put));
}

/* ---- putting ---- */

static void on_put(struct put *put, enum tern_code code)
{
    struct send_back *back = back_of_put(put);
    struct rpc_request *request = back->request;
    if (code == TERN_OK) {
        counter_add(back->kind == RETRY_DEAD ? &back->broker->dead_letters
                                             : &back->broker->retries_stored,
                    1);
        rpc_reply_ok(request);
    } else if (put_stored(code)) {
        rpc_reply_error(request, code, "%s", tern_code_text(code));
    } else {
        char text[256];
        store_refusal_text(back->broker->store, code, text, sizeof text);
        rpc_reply_error(request, code, "%s", text);
    }
}

/* Topic, queue and properties of the copy. */
static enum tern_code address_copy(struct send_back *back, const struct topic_config *topic,
                                   struct delayed_message *copy, struct tern_error *err)
{
    int32_t asked = back->request->header->send_back->delay_level;
    struct retry_marks marks = {.topic = back->topic, .origin_id = back->record_id};
    if (back->kind == RETRY_AGAIN) {
        marks.cohort =
            guard_cohort_of(back->broker, back->group.name, &back->request->header->client_id);
        marks.delay_level = asked > 0 ? asked : RETRY_FIRST_LEVEL + back->times;
    }
    memcpy(copy->topic, topic->name, topic->name_len + 1u);
    copy->topic_len = topic->name_len;
    copy->queue_id = (int32_t)rng_below(back->broker->env.rng, (uint64_t)topic->write_queues);
    enum tern_code code = retry_props(copy->props, &copy->props_len, back->record.props,
                                      back->record.props_len, &marks, err);
    return code ? code : delayed_wrap(back->broker, copy, err);
}

static enum tern_code start_put(struct send_back *back, const struct delayed_message *copy,
                                struct tern_error *err)
{
    const struct record *old = &back->record;
    const struct record fields = {
        .queue_id = copy->queue_id,
        .flag = old->flag,
        .sys_flag = old->sys_flag & (SYS_COMPRESSED | SYS_COMPRESSION_TYPE | SYS_MULTI_TAGS),
        .born_ms = old->born_ms,
        .born_host = old->born_host,
        .store_host = back->broker->store_host,
        .reconsume_times = back->times + 1,
        .body = old->body,
        .body_len = old->body_len,
        .topic = (const uint8_t *)copy->topic,
        .topic_len = (uint8_t)copy->topic_len,
        .props = copy->props,
        .props_len = (uint16_t)copy->props_len,
    };
    back->put.done = on_put;
    back->put.deadline_ns = send_deadline_ns(back->broker, back->request);
    enum tern_code code = put_start(back->broker, &back->put, &fields);
    return code ? error_set(err, code, "the copy in %s could not be begun", copy->topic) : TERN_OK;
}

/* The topic is there and durable. @thread cold lane, or admin lane behind its persist */
static void put_copy(struct broker *broker, struct rpc_request *request)
{
    struct send_back *back = request->user;
    struct tern_error err = {.text = ""};
    char name[TOPIC_NAME_MAX + 1];
    char text[256];
    struct topic_config topic;
    struct delayed_message *copy = rpc_request_alloc(request, sizeof *copy);
    uint8_t *props = rpc_request_alloc(request, RECORD_PROPS_MAX);
    if (!copy || !props) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory to copy the message");
        return;
    }
    *copy = (struct delayed_message){.props = props};
    enum tern_code code = TERN_OK;
    if (!broker_writable(broker, &code, text, sizeof text)) {
        rpc_reply_error(request, code, "%s", text); /* it changed meanwhile */
        return;
    }
    code = retry_topic_name(back->kind, back->group.name, name, &err);
    if (!code)
        code = find_topic(broker, name, &topic, &err);
    if (!code && (!(topic.perm & PERM_WRITE) || topic.write_queues < 1))
        code = error_set(&err, TERN_NO_PERMISSION,
                         "topic %s is not writable (perm %" PRId32 ", %" PRId32
                         " write queues): mqadmin updateTopic makes it so",
                         name, topic.perm, topic.write_queues);
    if (!code)
        code = address_copy(back, &topic, copy, &err);
    if (!code)
        code = start_put(back, copy, &err);
    if (code)
        rpc_reply_failure(request, code, &err);
}

/* @thread admin lane */
static enum tern_code make_topic(struct broker *broker, struct rpc_request *request,
                                 struct tern_error *err)
{
    const struct send_back *back = request->user;
    bool made = false;
    return retry_topic_want(broker, &back->group, back->kind, &made, err);
}

/* ---- the record ---- */

static uint8_t *reserve_record(void *arg, size_t size_bytes)
{
    struct send_back *back = arg;
    back->bytes = rpc_request_alloc(back->request, size_bytes);
    return back->bytes;
}

static bool is_text(const uint8_t *bytes, size_t len, const char *text)
{
    return len == strlen(text) && !memcmp(bytes, text, len);
}

/* The message at that place is not the one that the consumer had. */
static enum tern_code other_record(const struct send_back *back, const char *what,
                                   struct tern_error *err)
{
    return error_set(err, TERN_QUERY_NOT_FOUND,
                     "group %s: the record at physical offset %" PRId64
                     " is not the one sent back: another %s",
                     back->group.name, back->record.phys_off, what);
}

/*
 * Is it the consumer's message? In its own retry topic a message shows the topic that it was sent
 * to; anywhere else its own, and nothing was counted for this group yet.
 */
static enum tern_code check_record(struct send_back *back, struct tern_error *err)
{
    const Tern__Wire__SendBackRequest *wanted = back->request->header->send_back;
    const struct record *record = &back->record;
    char retry[TOPIC_NAME_MAX + 1];
    struct slice shown = {record->topic, record->topic_len};
    enum tern_code code = retry_topic_name(RETRY_AGAIN, back->group.name, retry, err);
    if (code)
        return code;
    bool own = is_text(record->topic, record->topic_len, retry);
    if (own)
        (void)props_get(record->props, record->props_len, PROP_RETRY_TOPIC, &shown);
    if (!is_text(shown.ptr, shown.len, back->topic) &&
        !is_text(record->topic, record->topic_len, back->topic))
        return other_record(back, "topic", err);
    message_id_format(back->record_id, &record->store_host, record->phys_off);
    if (wanted->origin_message_id.len &&
        !is_text(wanted->origin_message_id.data, wanted->origin_message_id.len, back->record_id))
        return other_record(back, "message id", err);
    if (wanted->store_ms && wanted->store_ms != record->store_ms)
        return other_record(back, "store time", err);
    back->times = own && record->reconsume_times > 0 ? record->reconsume_times : 0;
    if (back->times < wanted->reconsume_times)
        back->times = wanted->reconsume_times;
    if (back->times > RETRY_TIMES_MAX)
        back->times = RETRY_TIMES_MAX;
    return TERN_OK;
}

static enum tern_code read_record(struct send_back *back, struct tern_error *err)
{
    struct broker *broker = back->broker;
    int64_t phys_off = back->request->header->send_back->physical_offset;
    size_t size = 0;
    enum tern_code code = store_get_by_phys(broker->store, phys_off, reserve_record, back, &size);
    if (code && code != TERN_NOT_FOUND)
        return error_set(err, code, "group %s: reading physical offset %" PRId64 " failed: %s",
                         back->group.name, phys_off, tern_code_text(code));
    if (!code && record_parse(back->bytes, size, size, true, &back->record) == RECORD_WHOLE)
        return check_record(back, err);
    struct store_status status;
    store_status(broker->store, &status);
    return error_set(err, TERN_QUERY_NOT_FOUND,
                     "group %s: no message begins at physical offset %" PRId64
                     "; the log holds %" PRId64 "..%" PRId64,
                     back->group.name, phys_off, status.min_phys, status.appended);
}

/* @thread cold lane */
static void send_back_cold(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__SendBackRequest *wanted = request->header->send_back;
    struct send_back *back = request->user;
    struct tern_error err = {.text = ""};
    char name[TOPIC_NAME_MAX + 1];
    struct topic_config there;
    enum tern_code code = read_record(back, &err);
    if (!code) {
        back->kind = retry_decide(&back->group, back->times, wanted->max_reconsume_times,
                                  wanted->delay_level);
        code = retry_topic_name(back->kind, back->group.name, name, &err);
    }
    if (code)
        rpc_reply_failure(request, code, &err);
    else if (topics_find(broker->topics, name, strlen(name), &there))
        put_copy(broker, request);
    else
        admin_lane_submit(broker->admin, request, make_topic, put_copy);
}

/* ---- the request ---- */

static enum tern_code check_numbers(const Tern__Wire__SendBackRequest *wanted, const char *group,
                                    struct tern_error *err)
{
    if (wanted->delay_level < -1)
        return error_set(err, TERN_INVALID,
                         "group %s: delay_level %" PRId32
                         " is none of -1 (dead letter), 0 (as counted), 1 and above (that level)",
                         group, wanted->delay_level);
    if (wanted->max_reconsume_times < 0 || wanted->max_reconsume_times > RETRY_TIMES_MAX)
        return error_set(err, TERN_INVALID,
                         "group %s: max_reconsume_times %" PRId32 " is not in 0 (the group's)..%d",
                         group, wanted->max_reconsume_times, (int)RETRY_TIMES_MAX);
    if (wanted->reconsume_times < 0 || wanted->reconsume_times > RETRY_TIMES_MAX)
        return error_set(err, TERN_INVALID, "group %s: reconsume_times %" PRId32 " is not in 0..%d",
                         group, wanted->reconsume_times, (int)RETRY_TIMES_MAX);
    return TERN_OK;
}

/* The request's names and numbers, the group, and whether it may be served here. */
static enum tern_code begin(struct send_back *back, struct tern_error *err)
{
    struct broker *broker = back->broker;
    struct rpc_request *request = back->request;
    const Tern__Wire__SendBackRequest *wanted = request->header->send_back;
    enum tern_code refused;
    char text[256];
    const char *group;
    enum tern_code code = take_group(request, &wanted->group, &group, err);
    if (!code)
        code = take_topic(request, &wanted->origin_topic, &back->topic, err);
    if (!code)
        code = check_numbers(wanted, group, err);
    if (!code && topic_send_forbidden(back->topic, strlen(back->topic)))
        code = error_set(err, TERN_NO_PERMISSION,
                         "group %s: messages of the system topic %s are not sent back", group,
                         back->topic);
    if (!code && !broker_writable(broker, &refused, text, sizeof text))
        code = error_set(err, refused, "%s", text);
    if (!code)
        code = groups_find_or_create(broker->groups, group, strlen(group), &back->group, err);
    if (!code && groups_dirty(broker->groups))
        admin_lane_poke(broker->admin);
    return code;
}

void handle_send_back(struct broker *broker, struct rpc_request *request)
{
    struct tern_error err = {.text = ""};
    struct send_back *back = rpc_request_alloc(request, sizeof *back);
    if (!back) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the message sent back");
        return;
    }
    memset(back, 0, sizeof *back);
    back->broker = broker;
    back->request = request;
    request->user = back;
    enum tern_code code = begin(back, &err);
    if (code)
        rpc_reply_failure(request, code, &err);
    else
        cold_lane_submit(broker->cold, request, send_back_cold);
}
