/*
 * why: a message that waits for its time, or did. Its waiting record says where it goes and when;
 * what became of it stands elsewhere: a mark in DELAY_MARKS_TOPIC that names it (cancelled, given
 * up), or a copy in DELAY_DEAD_TOPIC when its topic did not take it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/names.h"
#include "base/props.h"
#include "client/message_internal.h"
#include "tools/mqadmin/why.h"

/* Of one that is put again before it expires: the key it waits under; the broker's schedule. */
#define TIMER_ROLL_MS "TIMER_ROLL_MS"

enum { MARKS_LOOKED_AT = 2048, MARKS_PER_PULL = 256 };

/* The unit of a message in the level topic holds when it is due. 0: not known. */
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

static int64_t number_property(const struct why_message *m, const char *name)
{
    const char *text = tern_message_property(m->message, name);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* What SEQUEL_OF calls it (docs/store-format.md). */
static void waiting_name(const struct why_message *m, char *out, size_t size)
{
    int64_t key_ms = number_property(m, PROP_TIMER_OUT_MS);
    int64_t roll_ms = number_property(m, TIMER_ROLL_MS);
    if (strcmp(m->topic, TIMER_TOPIC) != 0)
        snprintf(out, size, "S.%" PRId32 ".%" PRId64, m->queue_id, m->queue_off);
    else
        snprintf(out, size, "T.%" PRId64 ".%" PRId64,
                 roll_ms > 0 && roll_ms < key_ms ? roll_ms : key_ms, m->queue_off);
}

/* The body of the mark among these records that names it, into out; *seen counts the records. */
static bool mark_among(const struct rpc_call *call, const char *name, char *out, size_t size,
                       size_t *seen)
{
    struct tern_message *messages[MARKS_PER_PULL];
    bool found = false;
    enum tern_code code = message_decode_all(NULL, call->payload, call->payload_size, "", messages,
                                             MARKS_PER_PULL, seen, NULL);
    for (size_t i = 0; i < *seen; i++) {
        const char *of = tern_message_property(messages[i], PROP_SEQUEL_OF);
        size_t body_size;
        const char *body = tern_message_body(messages[i], &body_size);
        if (of && !strcmp(of, name)) {
            snprintf(out, size, "%.*s", (int)(body_size < size ? body_size : size - 1), body);
            found = true;
        }
        tern_message_unref(messages[i]);
    }
    return found && code == TERN_OK;
}

/* Whether a mark in the last part of their queue ended its waiting; out: "cancelled", "given up".
 */
static bool mark_of(struct why *why, const struct why_message *m, char *out, size_t size)
{
    struct rpc_call *call = NULL;
    int64_t at = 0, end = 0;
    char name[64];
    bool found = false;
    waiting_name(m, name, sizeof name);
    if (fetch_topic_stats(why->invocation, m->address, DELAY_MARKS_TOPIC, &call, NULL) == TERN_OK &&
        call->response->topic_stats->n_queues == 1) {
        at = call->response->topic_stats->queues[0]->min_offset;
        end = call->response->topic_stats->queues[0]->max_offset;
    }
    rpc_call_unref(call);
    if (end - at > MARKS_LOOKED_AT)
        at = end - MARKS_LOOKED_AT;
    while (!found && at < end) {
        size_t seen = 0;
        enum tern_code code = fetch_pull(why->invocation, m->address, DELAY_MARKS_TOPIC, 0, at,
                                         MARKS_PER_PULL, "*", &call, NULL);
        found = code == TERN_OK && mark_among(call, name, out, size, &seen);
        rpc_call_unref(call);
        if (seen == 0)
            break;
        at += (int64_t)seen;
    }
    return found;
}

bool why_waiting(struct why *why, const struct why_message *m)
{
    const char *real = tern_message_property(m->message, PROP_REAL_TOPIC);
    const char *out = tern_message_property(m->message, PROP_TIMER_OUT_MS);
    int64_t due = out ? number_property(m, PROP_TIMER_OUT_MS) : due_by_unit(why, m);
    int64_t now = clock_wall_ms(clock_system());
    char text[32], mark[32];
    time_text(text, due);
    real = real ? real : "-";
    if (mark_of(why, m, mark, sizeof mark)) {
        why_say(why, true, "ended", "on %s it was to wait until %s, for topic %s, and was %s",
                m->broker, text, real, mark);
        return true;
    }
    if (due > now)
        why_say(why, true, "waiting",
                "on %s it waits until %s (%" PRId64 " s from now), to go to topic %s", m->broker,
                text, (due - now) / 1000, real);
    else
        why_say(why, true, "waited", "on %s it waited until %s to go to topic %s", m->broker, text,
                real);
    return due > now;
}

bool why_undeliverable(struct why *why, const struct why_message *m)
{
    const char *real = tern_message_property(m->message, PROP_REAL_TOPIC);
    why_say(why, false, "undeliverable",
            "topic %s did not take it when it was due: it lies in %s on %s, queue %" PRId32
            " offset %" PRId64,
            real ? real : "-", m->topic, m->broker, m->queue_id, m->queue_off);
    if (real)
        why_next(why, "mqadmin topicRoute -t %s", real);
    return true;
}
