/*
 * Plain sends to a group's retry topic: a consumer's own copy of a message whose record the broker
 * does not have any more, or a dead letter that is driven once more. What handlers/send_back.c does
 * to a stored record is done here to the sender's bytes: the limit, the dead letter topic, the
 * properties.
 *
 * Invariants: a send never makes a group, and only a group that exists has such topics; what the
 * sender calls reconsume_times is the copy's count, this try included, so that it is beyond the
 * limit only above it.
 *
 * Threads: transport's, and the admin lane's for a topic that is missing. Failure modes: answered
 * with group, topic and cause; nothing is stored then.
 */
#include <inttypes.h>
#include <string.h>

#include "base/props.h"
#include "broker/admin_lane.h"
#include "broker/guard.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/send.h"
#include "broker/retry.h"

enum { DELAY_DIGITS_MAX = 6 };

/* The group whose retry topic is sent to, and what that makes of the message. */
struct decided {
    struct group_config group;
    enum retry_kind kind;
    char topic[TOPIC_NAME_MAX + 1]; /* where it goes */
};

static enum tern_code decide(struct broker *broker, const struct rpc_request *request,
                             const char *topic, struct decided *out, struct tern_error *err)
{
    const Tern__Wire__SendRequest *wanted = request->header->send;
    const char *group = retry_group_of(topic);
    struct topic_config there;
    if (!groups_find(broker->groups, group, strlen(group), &out->group)) {
        bool known = topics_find(broker->topics, topic, strlen(topic), &there);
        return error_set(err, known ? TERN_GROUP_NOT_EXIST : TERN_TOPIC_NOT_EXIST,
                         "topic %s: %s has no group %s (mqadmin updateSubGroup makes one)", topic,
                         broker->config.broker_name, group);
    }
    out->kind =
        retry_decide(&out->group, wanted->reconsume_times - 1, wanted->max_reconsume_times, 0);
    return retry_topic_name(out->kind, group, out->topic, err);
}

/* @thread admin lane */
static enum tern_code make_topic(struct broker *broker, struct rpc_request *request,
                                 struct tern_error *err)
{
    const char *topic = frame_text(rpc_request_arena(request), &request->header->send->topic);
    struct decided decided;
    bool made = false;
    if (!topic)
        return error_set(err, TERN_NO_MEMORY, "no memory for the send");
    enum tern_code code = decide(broker, request, topic, &decided, err);
    return code ? code : retry_topic_want(broker, &decided.group, decided.kind, &made, err);
}

/* ---- properties ---- */

/* The level that a DELAY asks for, 0 for none; too large is the last one, as anywhere. */
static int32_t asked_level(const struct slice *delay)
{
    int32_t level = 0;
    for (size_t i = 0; i < delay->len && i < DELAY_DIGITS_MAX; i++) {
        if (delay->ptr[i] < '0' || delay->ptr[i] > '9')
            return 0;
        level = level * 10 + (delay->ptr[i] - '0');
    }
    return level;
}

static enum tern_code rewrite_props(struct broker *broker, struct rpc_request *request,
                                    const struct decided *decided, ProtobufCBinaryData *props,
                                    struct tern_error *err)
{
    struct slice shown, delay;
    char topic[TOPIC_NAME_MAX + 1];
    struct retry_marks marks = {.topic = NULL};
    uint8_t *copy = rpc_request_alloc(request, RECORD_PROPS_MAX);
    if (!copy)
        return error_set(err, TERN_NO_MEMORY, "no memory for the properties");
    if (props_get(props->data, props->len, PROP_RETRY_TOPIC, &shown)) {
        if (topic_name_check(shown.ptr, shown.len, err) != TERN_OK) {
            (void)error_prefix(err, TERN_MESSAGE_ILLEGAL, "property RETRY_TOPIC");
            return TERN_MESSAGE_ILLEGAL;
        }
        memcpy(topic, shown.ptr, shown.len);
        topic[shown.len] = 0;
        marks.topic = topic;
    }
    if (decided->kind == RETRY_AGAIN)
        marks.cohort = guard_cohort_of(broker, decided->group.name, &request->header->client_id);
    if (decided->kind == RETRY_AGAIN && props_get(props->data, props->len, PROP_DELAY, &delay))
        marks.delay_level = asked_level(&delay);
    enum tern_code code = retry_props(copy, &props->len, props->data, props->len, &marks, err);
    props->data = copy;
    return code;
}

bool send_retry(struct broker *broker, struct rpc_request *request, struct send_target *target,
                ProtobufCBinaryData *props)
{
    struct tern_error err = {.text = ""};
    struct topic_config there;
    const ProtobufCBinaryData *name = &request->header->send->topic;
    if (name->len < sizeof RETRY_TOPIC_PREFIX ||
        memcmp(name->data, RETRY_TOPIC_PREFIX, sizeof RETRY_TOPIC_PREFIX - 1) != 0 ||
        topic_name_check(name->data, name->len, NULL) != TERN_OK)
        return true; /* not ours; a bad name is refused by whoever goes on */
    struct decided *decided = rpc_request_alloc(request, sizeof *decided);
    const char *topic = frame_text(rpc_request_arena(request), name);
    enum tern_code code =
        decided && topic ? TERN_OK : error_set(&err, TERN_NO_MEMORY, "no memory for the send");
    if (!code)
        code = decide(broker, request, topic, decided, &err);
    if (!code && !topics_find(broker->topics, decided->topic, strlen(decided->topic), &there)) {
        char text[256];
        if (broker_writable(broker, &code, text, sizeof text)) {
            admin_lane_submit(broker->admin, request, make_topic, handle_send);
            return false;
        }
        error_set(&err, code, "%s", text);
    }
    if (!code)
        code = rewrite_props(broker, request, decided, props, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return false;
    }
    if (decided->kind == RETRY_DEAD) {
        target->topic = frame_bytes(decided->topic, strlen(decided->topic));
        target->queue_id = -1;
    }
    return true;
}
