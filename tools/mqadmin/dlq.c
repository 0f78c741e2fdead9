/*
 * Reading dead letters by pulls, and sending their copies.
 *
 * What was sent again is known by the copy itself: it keeps the message's unique id, by which the
 * broker's index finds it, and names the dead letter in REDRIVE_OF.
 *
 * Threads: the tool's one. Failure modes: an index that is behind, or not kept, cannot tell whether
 * a copy is there: that is an error, never a no.
 */
#include "tools/mqadmin/dlq.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/props.h"
#include "base/record.h"

enum {
    PULL_MESSAGES = 32,
    PULLED_MAX = 1024,
    COPIES_MAX = 64,
    INDEX_TRIES = 30,
    INDEX_PAUSE_MS = 100,
    INDEX_LAG_BYTES = 1 << 20, /* of a broker under load: milliseconds */
    COMPRESSION_FLAGS = SYS_COMPRESSED | SYS_COMPRESSION_TYPE
};

/* ---- reading ---- */

struct walk {
    struct invocation *invocation;
    const struct admin_broker *broker;
    const char *topic;
    dlq_visit_fn visit;
    void *arg;
    bool enough;
};

/* Shows what an answer holds. */
static enum tern_code visit_pulled(struct walk *walk, const struct rpc_call *call,
                                   struct tern_error *err)
{
    struct tern_message *messages[PULLED_MAX];
    size_t count = 0;
    enum tern_code code = message_decode_all(NULL, call->payload, call->payload_size,
                                             walk->broker->name, messages, PULLED_MAX, &count, err);
    for (size_t i = 0; i < count; i++) {
        walk->enough = walk->enough || !walk->visit(walk->arg, walk->broker, messages[i]);
        tern_message_unref(messages[i]);
    }
    return code;
}

/* One pull; *offset moves on. TERN_NOT_FOUND: the queue's end. */
static enum tern_code pull_some(struct walk *walk, int32_t queue_id, int64_t *offset,
                                struct tern_error *err)
{
    Tern__Wire__PullRequest body = TERN__WIRE__PULL_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call = NULL;
    body.group = frame_bytes("TOOLS_CONSUMER", strlen("TOOLS_CONSUMER"));
    body.topic = frame_bytes(walk->topic, strlen(walk->topic));
    body.queue_id = queue_id;
    body.offset = *offset;
    body.max_count = PULL_MESSAGES;
    body.has_subscription = true;
    request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    request.pull = &body;
    enum tern_code code = admin_call_broker(walk->invocation->admin, walk->broker->address,
                                            &request, NULL, 0, &call, err);
    bool pulled =
        call && call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_PULL;
    int64_t next = pulled ? call->response->pull->next_offset : -1;
    if (code == TERN_OK)
        code = pulled ? visit_pulled(walk, call, err)
                      : error_set(err, TERN_PROTOCOL, "%s: the answer is no pull's",
                                  walk->broker->address);
    else if (pulled && next > *offset &&
             (code == TERN_PULL_OFFSET_MOVED || code == TERN_PULL_RETRY_IMMEDIATELY))
        code = TERN_OK; /* below the minimum, or nothing there any more */
    else if (pulled && (code == TERN_PULL_NOT_FOUND || code == TERN_PULL_OFFSET_MOVED))
        code = TERN_NOT_FOUND;
    if (code == TERN_OK && next <= *offset)
        code = error_set(err, TERN_PROTOCOL, "%s: queue %" PRId32 " does not go on at %" PRId64,
                         walk->broker->address, queue_id, *offset);
    *offset = next;
    rpc_call_unref(call);
    return code;
}

static enum tern_code walk_queue(struct walk *walk, int32_t queue_id, struct tern_error *err)
{
    enum tern_code code = TERN_OK;
    int64_t offset = 0;
    while (code == TERN_OK && !walk->enough)
        code = pull_some(walk, queue_id, &offset, err);
    return code == TERN_NOT_FOUND ? TERN_OK : code;
}

bool dlq_each(struct invocation *invocation, const char *group, dlq_visit_fn visit, void *arg,
              int *status)
{
    char topic[sizeof DLQ_TOPIC_PREFIX + GROUP_NAME_MAX];
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    struct route *route;
    size_t count;
    snprintf(topic, sizeof topic, "%s%s", DLQ_TOPIC_PREFIX, group);
    enum tern_code code =
        admin_topic_brokers(invocation->admin, topic, false, &brokers, &count, &err);
    if (code == TERN_TOPIC_NOT_EXIST)
        code =
            error_set(&err, code, "group %s has no dead letters: no broker has %s", group, topic);
    if (code != TERN_OK) {
        *status = command_fail(invocation, code, &err);
        return false;
    }
    int64_t deadline_ns = clock_mono_ns(clock_system()) + ms_to_ns(ADMIN_TIMEOUT_MS);
    code = instance_route(admin_instance(invocation->admin), topic, deadline_ns, &route, &err);
    if (code != TERN_OK) {
        free(brokers);
        *status = command_fail(invocation, code, &err);
        return false;
    }
    count = command_keep_first(invocation, brokers, count);
    struct walk walk = {.invocation = invocation, .topic = topic, .visit = visit, .arg = arg};
    for (size_t i = 0; i < count; i++) {
        walk.broker = &brokers[i];
        for (size_t j = 0; j < route->readable_count && !walk.enough; j++) {
            if (strcmp(route->readable[j].broker_name, brokers[i].name) != 0)
                continue;
            code = walk_queue(&walk, route->readable[j].queue_id, &err);
            if (code != TERN_OK)
                *status = command_fail(invocation, code, &err);
        }
    }
    route_unref(route);
    free(brokers);
    return true;
}

bool dlq_origin_topic(const struct tern_message *message, char out[TOPIC_NAME_MAX + 1])
{
    size_t len;
    struct slice topic;
    const uint8_t *props = message_props(message, &len);
    if (!props_get(props, len, PROP_RETRY_TOPIC, &topic) ||
        topic_name_check(topic.ptr, topic.len, NULL) != TERN_OK)
        return false;
    memcpy(out, topic.ptr, topic.len);
    out[topic.len] = 0;
    return true;
}

/* ---- once more ---- */

/* The id by which the index knows the copies: the message's own, or the dead letter's. */
static const char *key_of(const struct tern_message *message)
{
    const char *id = tern_message_id(message);
    return id && id[0] ? id : tern_message_offset_id(message);
}

static bool is_copy(const struct tern_message *found, const char *dead_id)
{
    const char *of = tern_message_property(found, PROP_REDRIVE_OF);
    return of && !strcmp(of, dead_id);
}

/* One question to the index; *lag: bytes that it has not seen. */
static enum tern_code ask_index(struct invocation *invocation, const struct dlq_target *target,
                                const struct tern_message *message, bool *sent, int64_t *lag,
                                struct tern_error *err)
{
    const char *key = key_of(message);
    Tern__Wire__QueryMessageRequest body = TERN__WIRE__QUERY_MESSAGE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_message *found[COPIES_MAX];
    struct rpc_call *call = NULL;
    size_t count = 0;
    body.topic = frame_bytes(target->topic, strlen(target->topic));
    body.key = frame_bytes(key, strlen(key));
    body.max_count = COPIES_MAX;
    body.begin_ms = tern_message_store_ms(message);
    request.body_case = TERN__WIRE__REQUEST__BODY_QUERY_MESSAGE;
    request.query_message = &body;
    enum tern_code code =
        admin_call_broker(invocation->admin, target->address, &request, NULL, 0, &call, err);
    bool answered = call && call->response &&
                    call->response->body_case == TERN__WIRE__RESPONSE__BODY_QUERY_MESSAGE;
    *lag = answered ? call->response->query_message->index_lag_bytes : 0;
    if (code == TERN_QUERY_NOT_FOUND && answered) {
        code = call->response->query_message->indexed_end_ms ? TERN_OK : TERN_NOT_SUPPORTED;
    } else if (code == TERN_OK) {
        code = message_decode_all(NULL, call->payload, call->payload_size, "", found, COPIES_MAX,
                                  &count, err);
    }
    for (size_t i = 0; i < count; i++) {
        *sent = *sent || is_copy(found[i], tern_message_offset_id(message));
        tern_message_unref(found[i]);
    }
    rpc_call_unref(call);
    return code == TERN_NOT_SUPPORTED
               ? error_set(err, code,
                           "%s keeps no index (messageIndexEnable): nobody can tell whether the "
                           "message was sent again before",
                           target->address)
               : code;
}

enum tern_code dlq_was_sent(struct invocation *invocation, const struct dlq_target *target,
                            const struct tern_message *message, bool *sent, struct tern_error *err)
{
    int64_t lag = 0, before = -1;
    *sent = false;
    for (int i = 0; i < INDEX_TRIES; i++) {
        enum tern_code code = ask_index(invocation, target, message, sent, &lag, err);
        /* The lag counts from the last record that had a key: what stands still has been seen. */
        if (code != TERN_OK || *sent || lag <= INDEX_LAG_BYTES || lag == before)
            return code;
        before = lag;
        const struct timespec pause = {0, INDEX_PAUSE_MS * 1000000L};
        nanosleep(&pause, NULL);
    }
    return error_set(err, TERN_AGAIN,
                     "the index of %s is %" PRId64
                     " bytes behind: nobody can tell whether the message was sent again before",
                     target->address, lag);
}

/* The copy's properties, malloc'ed; NULL: no memory or no room. */
static uint8_t *copy_props(const struct dlq_target *target, const struct tern_message *message,
                           size_t *len)
{
    size_t sent_len;
    const uint8_t *sent = message_props(message, &sent_len);
    const char *dead_id = tern_message_offset_id(message);
    const char *id = tern_message_id(message);
    uint8_t *props = sent_len <= RECORD_PROPS_MAX ? malloc(RECORD_PROPS_MAX) : NULL;
    if (!props)
        return NULL;
    *len = props_remove(props, sent, sent_len, PROP_REDRIVE_OF);
    if (target->origin)
        *len = props_remove(props, props, *len, PROP_RETRY_TOPIC);
    enum tern_code code = props_append(props, len, RECORD_PROPS_MAX, PROP_REDRIVE_OF,
                                       strlen(PROP_REDRIVE_OF), dead_id, strlen(dead_id));
    if (code == TERN_OK && !(id && id[0]))
        code = props_append(props, len, RECORD_PROPS_MAX, PROP_UNIQ_KEY, strlen(PROP_UNIQ_KEY),
                            dead_id, strlen(dead_id));
    if (code == TERN_OK)
        return props;
    free(props);
    return NULL;
}

enum tern_code dlq_send(struct invocation *invocation, const struct dlq_target *target,
                        const char *group, const struct tern_message *message,
                        struct tern_error *err)
{
    size_t body_len, props_len;
    const void *body = message_stored_body(message, &body_len);
    uint8_t *props = copy_props(target, message, &props_len);
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    if (!props)
        return error_set(err, TERN_TOO_LARGE, "no memory, or no room for %s among the properties",
                         PROP_REDRIVE_OF);
    send.producer_group = frame_bytes(group, strlen(group));
    send.topic = frame_bytes(target->topic, strlen(target->topic));
    send.queue_id = -1;
    send.flag = tern_message_flag(message);
    send.sys_flag = tern_message_sys_flag(message) & COMPRESSION_FLAGS;
    send.born_ms = tern_message_born_ms(message);
    send.properties.data = props;
    send.properties.len = props_len;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    request.send = &send;
    enum tern_code code =
        admin_call_broker(invocation->admin, target->address, &request, body, body_len, NULL, err);
    free(props);
    bool stored = code == TERN_FLUSH_DISK_TIMEOUT || code == TERN_FLUSH_SLAVE_TIMEOUT ||
                  code == TERN_SLAVE_NOT_AVAILABLE;
    return stored ? TERN_OK : code;
}
