/*
 * why: what the product itself keeps of a message. A message that waits for its time, a prepared
 * one, one that was sent back and one that was given up lie in topics of the product's, under the
 * same unique id; their properties say what they stand for.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/names.h"
#include "base/props.h"
#include "client/message_internal.h"
#include "tools/mqadmin/why.h"

#define HALF_TOPIC "RMQ_SYS_TRANS_HALF_TOPIC"
#define OP_TOPIC "RMQ_SYS_TRANS_OP_HALF_TOPIC"

enum { OPS_LOOKED_AT = 2048, OPS_PER_PULL = 256 };

static const char *property(const struct why_message *m, const char *name)
{
    const char *value = tern_message_property(m->message, name);
    return value ? value : "-";
}

static int64_t wall_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- waiting for its time ---- */

/* When a message of the level topic is due stands in its unit. 0: not known. */
static int64_t due_by_unit(struct why *why, const struct why_message *m)
{
    Tern__Wire__ReadQueueRequest body = TERN__WIRE__READ_QUEUE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    int64_t due_ms = 0;
    body.topic = frame_bytes(m->topic, strlen(m->topic));
    body.queue_id = m->queue_id;
    body.offset = m->queue_off;
    body.max_count = 1;
    request.body_case = TERN__WIRE__REQUEST__BODY_READ_QUEUE;
    request.read_queue = &body;
    enum tern_code code = fetch(why->invocation, m->address, &request,
                                TERN__WIRE__RESPONSE__BODY_READ_QUEUE, &call, NULL);
    if (code == TERN_OK && call->response->read_queue->n_units == 1 &&
        call->response->read_queue->offset == m->queue_off)
        due_ms = call->response->read_queue->units[0]->tags_code;
    rpc_call_unref(call);
    return due_ms;
}

static int64_t due_ms(struct why *why, const struct why_message *m)
{
    const char *text = tern_message_property(m->message, PROP_TIMER_OUT_MS);
    return text ? strtoll(text, NULL, 10) : due_by_unit(why, m);
}

static void say_waiting(struct why *why, const struct why_message *m)
{
    const char *real = property(m, PROP_REAL_TOPIC);
    int64_t due = due_ms(why, m), now = wall_now_ms();
    char text[32];
    time_text(text, due);
    if (due > now)
        why_say(why, true, "waiting",
                "on %s it waits until %s (%" PRId64 " s from now), to go to topic %s", m->broker,
                text, (due - now) / 1000, real);
    else
        why_say(why, true, "waited", "on %s it waited until %s to go to topic %s", m->broker, text,
                real);
}

/* ---- transactions ---- */

/* Whether an outcome among these records names the half message; *seen counts them. */
static bool op_names(const struct rpc_call *call, const char *half_offset, size_t *seen)
{
    struct tern_message *messages[OPS_PER_PULL];
    bool found = false;
    enum tern_code code = message_decode_all(NULL, call->payload, call->payload_size, "", messages,
                                             OPS_PER_PULL, seen, NULL);
    for (size_t i = 0; i < *seen; i++) {
        size_t size;
        const void *body = tern_message_body(messages[i], &size);
        found |= size == strlen(half_offset) && !memcmp(body, half_offset, size);
        tern_message_unref(messages[i]);
    }
    return found && code == TERN_OK;
}

/* Whether an outcome of the half message lies in the last part of the outcomes' queue. */
static bool has_outcome(struct why *why, const struct why_message *half)
{
    struct rpc_call *call = NULL;
    char wanted[24];
    bool found = false;
    snprintf(wanted, sizeof wanted, "%" PRId64, half->queue_off);
    enum tern_code code = fetch_topic_stats(why->invocation, half->address, OP_TOPIC, &call, NULL);
    int64_t end = 0, at = 0;
    for (size_t i = 0; code == TERN_OK && i < call->response->topic_stats->n_queues; i++)
        if (call->response->topic_stats->queues[i]->queue_id == half->queue_id) {
            end = call->response->topic_stats->queues[i]->max_offset;
            at = call->response->topic_stats->queues[i]->min_offset;
        }
    rpc_call_unref(call);
    if (end - at > OPS_LOOKED_AT)
        at = end - OPS_LOOKED_AT;
    while (!found && at < end) {
        size_t seen = 0;
        code = fetch_pull(why->invocation, half->address, OP_TOPIC, half->queue_id, at,
                          OPS_PER_PULL, "*", &call, NULL);
        found = code == TERN_OK && op_names(call, wanted, &seen);
        rpc_call_unref(call);
        if (seen == 0)
            break;
        at += (int64_t)seen;
    }
    return found;
}

static void say_half(struct why *why, const struct why_message *m, bool committed)
{
    const char *real = property(m, PROP_REAL_TOPIC), *group = property(m, "PGROUP");
    if (committed) {
        why_say(why, true, "committed", "it was prepared on %s by producer group %s and committed",
                m->broker, group);
    } else if (has_outcome(why, m)) {
        why_say(why, false, "rolledBack",
                "it was prepared on %s by producer group %s for topic %s and rolled back",
                m->broker, group, real);
    } else {
        why_say(why, false, "prepared",
                "on %s it is prepared for topic %s and not decided: producer group %s was asked %s "
                "times",
                m->broker, real, group,
                tern_message_property(m->message, "TRANSACTION_CHECK_TIMES")
                    ? property(m, "TRANSACTION_CHECK_TIMES")
                    : "0");
        why_next(why, "mqadmin producerConnection -g %s -t %s", group, real);
    }
}

/* ---- sent back ---- */

static void say_retry(struct why *why, const struct why_message *m)
{
    const char *group = m->topic + strlen(RETRY_TOPIC_PREFIX);
    why_say(why, false, "retry",
            "group %s sent it back: copy %d lies in %s on %s, queue %" PRId32 " offset %" PRId64,
            group, tern_message_reconsume_times(m->message), m->topic, m->broker, m->queue_id,
            m->queue_off);
    why_next(why, "mqadmin why -g %s", group);
}

static void say_dead(struct why *why, const struct why_message *m)
{
    const char *group = m->topic + strlen(DLQ_TOPIC_PREFIX);
    why_say(why, false, "dead",
            "group %s gave it up after %d times: it lies in %s on %s, queue %" PRId32
            " offset %" PRId64,
            group, tern_message_reconsume_times(m->message), m->topic, m->broker, m->queue_id,
            m->queue_off);
    why_next(why, "mqadmin queryMsgByOffset -t %s -b %s -i %" PRId32 " -o %" PRId64, m->topic,
             m->broker, m->queue_id, m->queue_off);
}

/* ---- all of them ---- */

static void look_in(struct why *why, const struct admin_broker *broker, const char *topic,
                    const char *unique_id,
                    void (*say)(struct why *why, const struct why_message *m))
{
    struct why_found *found = calloc(1, sizeof *found);
    ENSURE(found != NULL);
    enum tern_code code = why_query(why, broker, topic, unique_id, found, NULL, NULL);
    for (size_t i = 0; code == TERN_OK && i < found->count; i++)
        say(why, &found->list[i]);
    why_found_clear(found);
    free(found);
}

static void say_committed(struct why *why, const struct why_message *m)
{
    say_half(why, m, true);
}

static void say_undecided(struct why *why, const struct why_message *m)
{
    say_half(why, m, false);
}

/* The retry and dead letter topics that the broker has. */
static void look_in_groups(struct why *why, const struct admin_broker *broker,
                           const char *unique_id)
{
    struct rpc_call *call;
    enum tern_code code = fetch_topics(why->invocation, broker->address, &call, NULL);
    for (size_t i = 0; code == TERN_OK && i < call->response->list_topics->n_topics; i++) {
        char topic[TOPIC_NAME_MAX + 1];
        wire_text(topic, sizeof topic, &call->response->list_topics->topics[i]->name);
        if (!strncmp(topic, RETRY_TOPIC_PREFIX, strlen(RETRY_TOPIC_PREFIX)))
            look_in(why, broker, topic, unique_id, say_retry);
        else if (!strncmp(topic, DLQ_TOPIC_PREFIX, strlen(DLQ_TOPIC_PREFIX)))
            look_in(why, broker, topic, unique_id, say_dead);
    }
    rpc_call_unref(call);
}

void why_copies(struct why *why, const char *unique_id, const char *topic,
                const struct admin_broker *brokers, size_t count, bool found)
{
    bool own = topic && (topic[0] == '%' || topic_is_system(topic, strlen(topic)));
    if (!unique_id || !unique_id[0] || own)
        return; /* the copy itself is what was asked for */
    for (size_t i = 0; i < count; i++) {
        look_in(why, &brokers[i], SCHEDULE_TOPIC, unique_id, say_waiting);
        look_in(why, &brokers[i], TIMER_TOPIC, unique_id, say_waiting);
        look_in(why, &brokers[i], HALF_TOPIC, unique_id, found ? say_committed : say_undecided);
        look_in_groups(why, &brokers[i], unique_id);
    }
}
