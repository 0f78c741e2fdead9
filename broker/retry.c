/*
 * Names, topics, limits and properties of messages that failed.
 *
 * Invariant: a copy asks for nothing that its message asked for when it was sent: no delay (a dead
 * letter would come hours late), no transaction (it would go back into the half topic), no mark of
 * a delivery that is not its own.
 *
 * Threads: any; no state. Failure modes: a group's name that leaves no room for the prefix, and
 * properties that leave none for the marks, are refused with the limit.
 */
#include "broker/retry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/props.h"
#include "base/record.h"
#include "broker/broker_internal.h"

enum { DEAD_LETTER_QUEUES = 1 };

static const char *const prefixes[] = {
    [RETRY_AGAIN] = RETRY_TOPIC_PREFIX, [RETRY_DEAD] = DLQ_TOPIC_PREFIX};

/* What a copy leaves behind; WAIT was honoured when the message was sent. */
static const char *const left_behind[] = {PROP_WAIT,
                                          PROP_DELAY,
                                          PROP_TIMER_DELIVER_MS,
                                          PROP_TIMER_DELAY_MS,
                                          PROP_TIMER_DELAY_SEC,
                                          PROP_TIMER_OUT_MS,
                                          PROP_REAL_TOPIC,
                                          PROP_REAL_QID,
                                          PROP_SEQUEL_OF,
                                          PROP_RETRY_TOPIC,
                                          PROP_RETRY_COHORT,
                                          PROP_TRAN_MSG,
                                          PROP_PGROUP,
                                          "TRAN_PREPARED_QUEUE_OFFSET",
                                          PROP_CHECK_TIMES,
                                          PROP_CHECK_IMMUNITY,
                                          "RECONSUME_TIME",
                                          "MAX_RECONSUME_TIMES"};

enum tern_code retry_topic_name(enum retry_kind kind, const char *group,
                                char out[TOPIC_NAME_MAX + 1], struct tern_error *err)
{
    size_t len = strlen(group);
    if (len > RETRY_GROUP_MAX)
        return error_set(err, TERN_INVALID,
                         "group %.60s… has a name of %zu bytes: above %d it has no retry and dead "
                         "letter topics",
                         group, len, (int)RETRY_GROUP_MAX);
    snprintf(out, TOPIC_NAME_MAX + 1, "%s%s", prefixes[kind], group);
    return TERN_OK;
}

enum tern_code retry_topic_want(struct broker *broker, const struct group_config *group,
                                enum retry_kind kind, bool *made, struct tern_error *err)
{
    struct topic_config topic;
    memset(&topic, 0, sizeof topic);
    enum tern_code code = retry_topic_name(kind, group->name, topic.name, err);
    if (code)
        return code;
    struct topic_config there;
    topic.name_len = (uint8_t)strlen(topic.name);
    if (topics_find(broker->topics, topic.name, topic.name_len, &there))
        return TERN_OK;
    topic.read_queues = topic.write_queues =
        kind == RETRY_DEAD ? DEAD_LETTER_QUEUES : group->retry_queues;
    topic.perm = PERM_READ | PERM_WRITE;
    *made = true;
    return topics_put_internal(broker->topics, &topic, err);
}

const char *retry_group_of(const char *topic)
{
    const size_t len = sizeof RETRY_TOPIC_PREFIX - 1;
    return strncmp(topic, RETRY_TOPIC_PREFIX, len) == 0 && topic[len] ? topic + len : NULL;
}

enum retry_kind retry_decide(const struct group_config *group, int32_t times, int32_t max_times,
                             int32_t level)
{
    int32_t most = max_times > 0 ? max_times : group->retry_max_times;
    return level < 0 || times >= most || group->retry_queues < 1 ? RETRY_DEAD : RETRY_AGAIN;
}

/* ---- properties ---- */

static enum tern_code append_text(uint8_t *dst, size_t *len, const char *name, const char *value)
{
    return props_append(dst, len, RECORD_PROPS_MAX, name, strlen(name), value, strlen(value));
}

enum tern_code retry_props(uint8_t *dst, size_t *dst_len, const uint8_t *src, size_t src_len,
                           const struct retry_marks *marks, struct tern_error *err)
{
    char level[16];
    char cohort[16];
    struct slice origin;
    size_t len = src_len;
    memmove(dst, src, src_len);
    for (size_t i = 0; i < sizeof left_behind / sizeof left_behind[0]; i++)
        len = props_remove(dst, dst, len, left_behind[i]);
    enum tern_code code =
        marks->topic ? append_text(dst, &len, PROP_RETRY_TOPIC, marks->topic) : TERN_OK;
    if (!code && marks->delay_level > 0) {
        snprintf(level, sizeof level, "%" PRId32, marks->delay_level);
        code = append_text(dst, &len, PROP_DELAY, level);
    }
    if (!code && marks->cohort) {
        snprintf(cohort, sizeof cohort, "%08" PRIx32, marks->cohort);
        code = append_text(dst, &len, PROP_RETRY_COHORT, cohort);
    }
    if (code)
        return error_set(err, TERN_MESSAGE_ILLEGAL,
                         "properties of %zu bytes leave no room for RETRY_TOPIC and DELAY within "
                         "%d: the message cannot be sent back",
                         src_len, RECORD_PROPS_MAX);
    if (marks->origin_id && !props_get(dst, len, PROP_ORIGIN_MESSAGE_ID, &origin))
        (void)append_text(dst, &len, PROP_ORIGIN_MESSAGE_ID, marks->origin_id);
    *dst_len = len;
    return TERN_OK;
}
