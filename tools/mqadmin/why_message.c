/*
 * why: finding the message, and how far it came on its broker.
 *
 * The positions that brokerStatus shows are compared with the message's physical offset; a position
 * always stands at a record's end, so a message before it is wholly covered.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "client/message_id.h"
#include "client/message_internal.h"
#include "tools/mqadmin/why.h"

void why_found_clear(struct why_found *found)
{
    for (size_t i = 0; i < found->count; i++)
        tern_message_unref(found->list[i].message);
    found->count = 0;
}

static void add_message(struct why_found *found, const struct admin_broker *broker,
                        struct tern_message *message)
{
    if (found->count == WHY_MESSAGES_MAX) {
        found->more = true;
        tern_message_unref(message);
        return;
    }
    struct why_message *m = &found->list[found->count++];
    *m = (struct why_message){.message = message,
                              .queue_id = tern_message_queue_id(message),
                              .queue_off = tern_message_queue_offset(message),
                              .phys_off = tern_message_physical_offset(message)};
    snprintf(m->broker, sizeof m->broker, "%s", broker->name);
    snprintf(m->address, sizeof m->address, "%s", broker->address);
    snprintf(m->topic, sizeof m->topic, "%s", tern_message_topic(message));
}

static enum tern_code add_records(struct why_found *found, const struct admin_broker *broker,
                                  const struct rpc_call *call, struct tern_error *err)
{
    struct tern_message *messages[WHY_MESSAGES_MAX];
    size_t count = 0;
    enum tern_code code = message_decode_all(NULL, call->payload, call->payload_size, broker->name,
                                             messages, WHY_MESSAGES_MAX, &count, err);
    for (size_t i = 0; i < count; i++)
        add_message(found, broker, messages[i]);
    return code;
}

enum tern_code why_query(struct why *why, const struct admin_broker *broker, const char *topic,
                         const char *key, struct why_found *found, struct rpc_call **searched,
                         struct tern_error *err)
{
    struct rpc_call *call;
    enum tern_code code = fetch_by_key(why->invocation, broker->address, topic, key, &call, err);
    if (code == TERN_OK)
        code = add_records(found, broker, call, err);
    if (searched && code == TERN_QUERY_NOT_FOUND)
        *searched = call;
    else
        rpc_call_unref(call);
    return code;
}

/* ---- how far it came ---- */

static void say_position(struct why *why, const struct why_message *m, int64_t position,
                         const char *fact, const char *done, const char *not_done)
{
    if (m->phys_off < position)
        why_say(why, true, fact, "it is %s", done);
    else
        why_say(why, false, fact, "it is %s: that position is at %" PRId64, not_done, position);
}

static void say_slaves(struct why *why, const struct why_message *m)
{
    Tern__Wire__HaStatusRequest body = TERN__WIRE__HA_STATUS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    request.body_case = TERN__WIRE__REQUEST__BODY_HA_STATUS;
    request.ha_status = &body;
    enum tern_code code = fetch(why->invocation, m->address, &request,
                                TERN__WIRE__RESPONSE__BODY_HA_STATUS, &call, NULL);
    size_t have = 0, slaves = code == TERN_OK ? call->response->ha_status->n_slaves : 0;
    for (size_t i = 0; i < slaves; i++) {
        const Tern__Wire__HaSlaveStatus *slave = call->response->ha_status->slaves[i];
        bool has = slave->member && m->phys_off < slave->member->log_end;
        have += has;
        if (!has && slave->member)
            why_say(why, false, "slave",
                    "slave id %" PRId64 " does not have it yet: it is %" PRId64 " bytes behind%s",
                    slave->member->broker_id, slave->lag_bytes,
                    slave->link_up ? "" : " and its link is down");
    }
    if (slaves > 0 && have == slaves)
        why_say(why, true, "slave", "%s it (%zu)", slaves > 1 ? "all slaves have" : "the slave has",
                slaves);
    if (have < slaves)
        why_next(why, "mqadmin haStatus -b %s", m->broker);
    rpc_call_unref(call);
}

static void say_positions(struct why *why, const struct why_message *m)
{
    struct tern_error err = {.text = ""};
    struct rpc_call *call;
    enum tern_code code = fetch_status(why->invocation, m->address, &call, &err);
    if (code != TERN_OK) {
        why_say(why, false, "broker", "broker %s at %s does not tell how far it is: %s", m->broker,
                m->address, error_text(&err, code));
        rpc_call_unref(call);
        return;
    }
    say_position(why, m, status_number(call, "positionFlushedBytes", -1), "flushed", "on the disk",
                 "not flushed yet; a power loss would take it");
    say_position(why, m, status_number(call, "positionConfirmedBytes", -1), "confirmed",
                 "confirmed by the replicas that have to",
                 "not confirmed by the replicas that have to");
    say_position(why, m, status_number(call, "positionDispatchedBytes", -1), "dispatched",
                 "dispatched to its queue and the index",
                 "not dispatched yet, so nobody can read it");
    if (m->phys_off < status_number(call, "commitLogMinOffset", 0))
        why_say(why, false, "expired", "it has expired: the log of %s begins at %" PRId64 " now",
                m->broker, status_number(call, "commitLogMinOffset", 0));
    rpc_call_unref(call);
}

/* Whether its queue offers it, and whether anybody may read there. */
static void say_queue(struct why *why, const struct why_message *m)
{
    struct tern_error err = {.text = ""};
    struct rpc_call *call;
    enum tern_code code = fetch_topic_stats(why->invocation, m->address, m->topic, &call, &err);
    for (size_t i = 0; code == TERN_OK && i < call->response->topic_stats->n_queues; i++) {
        const Tern__Wire__QueueStats *q = call->response->topic_stats->queues[i];
        if (q->queue_id != m->queue_id)
            continue;
        if (m->queue_off < q->min_offset)
            why_say(why, false, "queue",
                    "queue %" PRId32 " begins at offset %" PRId64 ": it has left the queue",
                    q->queue_id, q->min_offset);
        else if (m->queue_off >= q->max_offset)
            why_say(why, false, "queue",
                    "queue %" PRId32 " ends at offset %" PRId64 ": it is not in the queue yet",
                    q->queue_id, q->max_offset);
        else
            why_say(why, true, "queue", "queue %" PRId32 " offers offsets %" PRId64 "..%" PRId64,
                    q->queue_id, q->min_offset, q->max_offset - 1);
    }
    if (code == TERN_TOPIC_NOT_EXIST) {
        why_say(why, false, "topic", "topic %s does not exist at %s any more", m->topic, m->broker);
        why_next(why, "mqadmin topicRoute -t %s", m->topic);
    }
    rpc_call_unref(call);
}

static void say_stored(struct why *why, const struct why_message *m)
{
    const char *tag = tern_message_tag(m->message), *keys = tern_message_keys(m->message);
    char stored[32];
    time_text(stored, tern_message_store_ms(m->message));
    why_say(why, true, "stored",
            "message %s is stored on %s (%s), topic %s queue %" PRId32 " offset %" PRId64
            ", commit log offset %" PRId64 ", since %s, tag %s, keys %s",
            tern_message_id(m->message), m->broker, m->address, m->topic, m->queue_id, m->queue_off,
            m->phys_off, stored, tag ? tag : "none", keys && keys[0] ? keys : "none");
}

/* ---- finding it ---- */

static void say_searched(struct why *why, const struct admin_broker *broker, const char *topic,
                         const struct rpc_call *call)
{
    if (!call || call->response->body_case != TERN__WIRE__RESPONSE__BODY_QUERY_MESSAGE)
        return;
    const Tern__Wire__QueryMessageResponse *r = call->response->query_message;
    char from[32], to[32];
    time_text(from, r->indexed_begin_ms);
    time_text(to, r->indexed_end_ms);
    why_say(why, false, "searched",
            "%s has none in topic %s: its index covers %s .. %s and is %" PRId64
            " bytes behind its log, which begins at %" PRId64,
            broker->name, topic, from, to, r->index_lag_bytes, r->log_min);
}

/* Searches one topic everywhere; what was searched is said only when asked for. */
static enum tern_code search_topic(struct why *why, const char *topic, const char *key,
                                   struct why_found *found, bool say, struct tern_error *err)
{
    struct admin_broker *brokers;
    size_t count;
    enum tern_code code =
        admin_topic_brokers(why->invocation->admin, topic, false, &brokers, &count, err);
    if (code != TERN_OK)
        return code;
    count = command_keep_first(why->invocation, brokers, count);
    for (size_t i = 0; i < count; i++) {
        struct rpc_call *searched = NULL;
        enum tern_code one = why_query(why, &brokers[i], topic, key, found, &searched, err);
        if (one == TERN_QUERY_NOT_FOUND && say)
            say_searched(why, &brokers[i], topic, searched);
        else if (one != TERN_OK && one != TERN_QUERY_NOT_FOUND)
            why_say(why, false, "broker", "%s does not answer: %s", brokers[i].name,
                    error_text(err, one));
        rpc_call_unref(searched);
    }
    free(brokers);
    return TERN_OK;
}

/* All topics, until the message is found. */
static enum tern_code search_all(struct why *why, const char *key, struct why_found *found,
                                 struct tern_error *err)
{
    struct rpc_call *call;
    enum tern_code code = fetch_topic_list(why->invocation, NULL, &call, err);
    size_t count = code == TERN_OK ? call->response->topic_list->n_topics : 0;
    if (count > WHY_TOPICS_MAX)
        code = error_set(err, TERN_TOO_LARGE, "%zu topics to search, at most %d: give -t TOPIC",
                         count, WHY_TOPICS_MAX);
    for (size_t i = 0; code == TERN_OK && i < count && found->count == 0; i++) {
        char topic[TOPIC_NAME_MAX + 1];
        wire_text(topic, sizeof topic, &call->response->topic_list->topics[i]);
        if (topic[0] == '%' || topic_is_system(topic, strlen(topic)))
            continue; /* copies; looked for when the original is known */
        enum tern_code one = search_topic(why, topic, key, found, false, err);
        if (one != TERN_OK && one != TERN_TOPIC_NOT_EXIST)
            code = one;
    }
    if (code == TERN_OK && found->count == 0)
        why_say(why, false, "searched", "none of %zu topics has message %s", count, key);
    rpc_call_unref(call);
    return code;
}

/* By the address and position that an offset message id holds. */
static enum tern_code look_up(struct why *why, const char *id, struct why_found *found,
                              struct tern_error *err)
{
    struct admin_broker broker;
    struct rpc_call *call, *status;
    enum tern_code code = fetch_by_id(why->invocation, id, &broker, &call, err);
    if (!broker.name[0])
        snprintf(broker.name, sizeof broker.name, "%s", broker.address);
    if (broker.id < 0 && (code == TERN_OK || code == TERN_QUERY_NOT_FOUND)) {
        if (fetch_status(why->invocation, broker.address, &status, NULL) == TERN_OK &&
            status_value(status, "brokerName"))
            snprintf(broker.name, sizeof broker.name, "%s", status_value(status, "brokerName"));
        rpc_call_unref(status);
    }
    if (code == TERN_OK)
        code = add_records(found, &broker, call, err);
    else if (code == TERN_QUERY_NOT_FOUND)
        why_say(why, false, "searched", "%s: %s", broker.name, error_text(err, code));
    rpc_call_unref(call);
    return code == TERN_QUERY_NOT_FOUND ? TERN_OK : code;
}

static void say_not_found(struct why *why, const char *topic)
{
    why_say(why, false, "notFound",
            "it is not there: it was never acknowledged, has expired, or went to another cluster");
    if (topic)
        why_next(why, "mqadmin topicStatus -t %s", topic);
    why_next(why, "mqadmin clusterList");
}

/* The product's own copies: asked at the brokers of the topic, or at all when it is not known. */
static bool about_copies(struct why *why, const char *unique_id, const char *topic)
{
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count;
    enum tern_code code =
        admin_brokers(why->invocation->admin, NULL, false, &brokers, &count, &err);
    if (code != TERN_OK)
        return false;
    count = command_keep_first(why->invocation, brokers, count);
    bool told = why_copies(why, unique_id, topic, brokers, count);
    free(brokers);
    return told;
}

static void about_one(struct why *why, const struct why_message *m)
{
    say_stored(why, m);
    say_positions(why, m);
    say_slaves(why, m);
    if (why_stand_in(why, m))
        return;
    say_queue(why, m);
    (void)!about_copies(why, tern_message_id(m->message), m->topic);
    why_readers(why, m);
}

int why_about_message(struct why *why, const char *id, const char *key, const char *topic)
{
    struct why_found *found = calloc(1, sizeof *found);
    struct tern_error err = {.text = ""};
    struct host host;
    int64_t phys_off;
    ENSURE(found != NULL);
    bool by_offset = id && message_id_parse(id, &host, &phys_off) == TERN_OK && host.port > 0 &&
                     host.port <= 65535;
    const char *wanted = key ? key : id;
    enum tern_code code = by_offset ? look_up(why, id, found, &err)
                          : topic   ? search_topic(why, topic, wanted, found, true, &err)
                                    : search_all(why, wanted, found, &err);
    if (code != TERN_OK) {
        why_found_clear(found);
        free(found);
        return command_fail(why->invocation, code, &err);
    }
    if (found->count > 1)
        why_say(why, true, "several", "%zu messages%s have it", found->count,
                found->more ? " and more" : "");
    for (size_t i = 0; i < found->count; i++)
        about_one(why, &found->list[i]);
    bool any = found->count > 0;
    if (!any && !by_offset)
        any = about_copies(why, wanted, topic);
    if (!any)
        say_not_found(why, topic);
    why_found_clear(found);
    free(found);
    return any ? EXIT_DONE : EXIT_NO;
}
