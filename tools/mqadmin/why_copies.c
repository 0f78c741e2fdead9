/*
 * why: what the product itself keeps of a message. A message that waits for its time, a prepared
 * one, one that was sent back and one that was given up lie in topics of the product's, under the
 * same unique id; their properties say what they stand for.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "client/message_internal.h"
#include "tools/mqadmin/why.h"

static const char *property(const struct why_message *m, const char *name)
{
    const char *value = tern_message_property(m->message, name);
    return value ? value : "-";
}

/* ---- transactions ---- */

/* What became of a half message, as far as its topic and the open master of its set tell. */
enum half_state { HALF_COMMITTED, HALF_PENDING, HALF_DISCARDED, HALF_ROLLED_BACK, HALF_UNTOLD };

/* Whether it is on that list; *told false when the broker cannot say. */
static bool listed(struct why *why, const struct why_message *half, bool discarded,
                   uint32_t *checks, bool *told)
{
    Tern__Wire__ListTransactionsRequest body = TERN__WIRE__LIST_TRANSACTIONS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    body.discarded = discarded;
    body.after = half->queue_off - 1;
    body.max_count = 1;
    request.body_case = TERN__WIRE__REQUEST__BODY_LIST_TRANSACTIONS;
    request.list_transactions = &body;
    enum tern_code code = fetch(why->invocation, half->address, &request,
                                TERN__WIRE__RESPONSE__BODY_LIST_TRANSACTIONS, &call, NULL);
    bool found =
        code == TERN_OK && call->response->list_transactions->n_transactions == 1 &&
        call->response->list_transactions->transactions[0]->half_queue_offset == half->queue_off;
    if (found)
        *checks = call->response->list_transactions->transactions[0]->checks;
    *told = *told && code == TERN_OK;
    rpc_call_unref(call);
    return found;
}

/* Whether the topic it was prepared for has the message. */
static bool arrived(struct why *why, const struct why_message *half, const char *real)
{
    struct why_found *found = calloc(1, sizeof *found);
    struct admin_broker broker = {.id = -1};
    const char *unique_id = tern_message_id(half->message);
    ENSURE(found != NULL);
    snprintf(broker.name, sizeof broker.name, "%s", half->broker);
    snprintf(broker.address, sizeof broker.address, "%s", half->address);
    bool there = unique_id[0] &&
                 why_query(why, &broker, real, unique_id, found, NULL, NULL) == TERN_OK &&
                 found->count > 0;
    why_found_clear(found);
    free(found);
    return there;
}

static enum half_state state_of(struct why *why, const struct why_message *half, const char *real,
                                uint32_t *checks)
{
    bool told = true;
    if (arrived(why, half, real))
        return HALF_COMMITTED;
    if (listed(why, half, false, checks, &told))
        return HALF_PENDING;
    if (listed(why, half, true, checks, &told))
        return HALF_DISCARDED;
    return told ? HALF_ROLLED_BACK : HALF_UNTOLD;
}

static bool say_half(struct why *why, const struct why_message *m)
{
    const char *real = property(m, PROP_REAL_TOPIC), *group = property(m, PROP_PGROUP);
    uint32_t checks = 0;
    switch (state_of(why, m, real, &checks)) {
    case HALF_PENDING:
        why_say(why, false, "prepared",
                "on %s it is prepared for topic %s and not decided: producer group %s was asked "
                "%" PRIu32 " times",
                m->broker, real, group, checks);
        why_next(why, "mqadmin producerConnection -g %s -t %s", group, real);
        break;
    case HALF_DISCARDED:
        why_say(why, false, "discarded",
                "on %s it was prepared for topic %s and given up: producer group %s was asked "
                "%" PRIu32 " times",
                m->broker, real, group, checks);
        why_next(why, "mqadmin resumeCheckHalfMessage -i %s", tern_message_offset_id(m->message));
        break;
    case HALF_UNTOLD:
        why_say(why, false, "undecided",
                "it was prepared on %s by producer group %s for topic %s; what became of it only "
                "the open master of %s can tell",
                m->broker, group, real, m->broker);
        break;
    case HALF_COMMITTED:
        why_say(why, true, "committed", "it was prepared on %s by producer group %s and committed",
                m->broker, group);
        break;
    case HALF_ROLLED_BACK:
        why_say(why, false, "rolledBack",
                "it was prepared on %s by producer group %s for topic %s and rolled back",
                m->broker, group, real);
        break;
    }
    return true;
}

/* ---- sent back ---- */

static bool say_retry(struct why *why, const struct why_message *m)
{
    const char *group = m->topic + strlen(RETRY_TOPIC_PREFIX);
    why_say(why, false, "retry",
            "group %s sent it back: copy %d lies in %s on %s, queue %" PRId32 " offset %" PRId64,
            group, tern_message_reconsume_times(m->message), m->topic, m->broker, m->queue_id,
            m->queue_off);
    why_next(why, "mqadmin why -g %s", group);
    return true;
}

static bool say_dead(struct why *why, const struct why_message *m)
{
    const char *group = m->topic + strlen(DLQ_TOPIC_PREFIX);
    why_say(why, false, "dead",
            "group %s gave it up after %d times: it lies in %s on %s, queue %" PRId32
            " offset %" PRId64,
            group, tern_message_reconsume_times(m->message), m->topic, m->broker, m->queue_id,
            m->queue_off);
    why_next(why, "mqadmin queryMsgByOffset -t %s -b %s -i %" PRId32 " -o %" PRId64, m->topic,
             m->broker, m->queue_id, m->queue_off);
    return true;
}

/* ---- all of them ---- */

/* Whether one of them says where the message is. */
static bool look_in(struct why *why, const struct admin_broker *broker, const char *topic,
                    const char *unique_id,
                    bool (*say)(struct why *why, const struct why_message *m))
{
    struct why_found *found = calloc(1, sizeof *found);
    bool told = false;
    ENSURE(found != NULL);
    enum tern_code code = why_query(why, broker, topic, unique_id, found, NULL, NULL);
    for (size_t i = 0; code == TERN_OK && i < found->count; i++)
        told |= say(why, &found->list[i]);
    why_found_clear(found);
    free(found);
    return told;
}

/* The retry and dead letter topics that the broker has. */
static bool look_in_groups(struct why *why, const struct admin_broker *broker,
                           const char *unique_id)
{
    struct rpc_call *call;
    bool told = false;
    enum tern_code code = fetch_topics(why->invocation, broker->address, &call, NULL);
    for (size_t i = 0; code == TERN_OK && i < call->response->list_topics->n_topics; i++) {
        char topic[TOPIC_NAME_MAX + 1];
        wire_text(topic, sizeof topic, &call->response->list_topics->topics[i]->name);
        if (!strncmp(topic, RETRY_TOPIC_PREFIX, strlen(RETRY_TOPIC_PREFIX)))
            told |= look_in(why, broker, topic, unique_id, say_retry);
        else if (!strncmp(topic, DLQ_TOPIC_PREFIX, strlen(DLQ_TOPIC_PREFIX)))
            told |= look_in(why, broker, topic, unique_id, say_dead);
    }
    rpc_call_unref(call);
    return told;
}

bool why_copies(struct why *why, const char *unique_id, const char *topic,
                const struct admin_broker *brokers, size_t count)
{
    bool own = topic && (topic[0] == '%' || topic_is_system(topic, strlen(topic)));
    bool told = false;
    if (!unique_id || !unique_id[0] || own)
        return false; /* the copy itself is what was asked for */
    for (size_t i = 0; i < count; i++) {
        told |= look_in(why, &brokers[i], SCHEDULE_TOPIC, unique_id, why_waiting);
        told |= look_in(why, &brokers[i], TIMER_TOPIC, unique_id, why_waiting);
        told |= look_in(why, &brokers[i], DELAY_DEAD_TOPIC, unique_id, why_undeliverable);
        told |= look_in(why, &brokers[i], TX_HALF_TOPIC, unique_id, say_half);
        told |= look_in_groups(why, &brokers[i], unique_id);
    }
    return told;
}

bool why_stand_in(struct why *why, const struct why_message *m)
{
    bool waits = !strcmp(m->topic, SCHEDULE_TOPIC) || !strcmp(m->topic, TIMER_TOPIC);
    const char *unique_id = tern_message_id(m->message);
    const char *real = tern_message_property(m->message, PROP_REAL_TOPIC);
    if (!waits && strcmp(m->topic, TX_HALF_TOPIC) != 0)
        return false;
    if (waits)
        (void)!why_waiting(why, m);
    else
        (void)!say_half(why, m);
    if (real && unique_id[0])
        why_next(why, "mqadmin why %s -t %s", unique_id, real);
    return true;
}
