/*
 * why: the groups of a message's topic against the message: who has passed it, who has not come to
 * it, whose expression leaves it out.
 *
 * What a member asks for is compared with the message's own tag and properties, as the broker and
 * the client would; that a group's progress has passed it is told as no more than that, since
 * nobody keeps a record of single deliveries.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sql.h"
#include "base/subscription.h"
#include "client/message_internal.h"
#include "tools/mqadmin/why.h"

enum verdict { MATCHES, LEAVES_OUT, CANNOT_TELL };

static enum verdict match_tag(const char *expression, const struct tern_message *message)
{
    const char *tag = tern_message_tag(message);
    struct subscription *parsed;
    if (subscription_parse(expression, strlen(expression), &parsed, NULL) != TERN_OK)
        return CANNOT_TELL;
    bool matches = subscription_match_tag(parsed, tag ? tag : "", tag ? strlen(tag) : 0);
    subscription_free(parsed);
    return matches ? MATCHES : LEAVES_OUT;
}

static enum verdict match_sql(const char *expression, const struct tern_message *message)
{
    struct sql *sql;
    size_t len;
    if (sql_compile(expression, strlen(expression), &sql, NULL) != TERN_OK)
        return CANNOT_TELL;
    const uint8_t *props = message_props(message, &len);
    bool matches = sql_match(sql, props, len);
    sql_free(sql);
    return matches ? MATCHES : LEAVES_OUT;
}

/* An expression of which nobody has kept the type: left out is what neither reading matches. */
static enum verdict match_either(const char *expression, const struct tern_message *message)
{
    enum verdict by_tag = match_tag(expression, message);
    if (by_tag == MATCHES)
        return MATCHES;
    return match_sql(expression, message) == MATCHES ? MATCHES : by_tag;
}

static enum verdict match(const char *type, const char *expression,
                          const struct tern_message *message)
{
    if (!strcmp(type, "SQL92"))
        return match_sql(expression, message);
    return !type[0] || !strcmp(type, "TAG") ? match_tag(expression, message) : CANNOT_TELL;
}

/* ---- subscriptions ---- */

const Tern__Wire__Subscription *why_subscription(const Tern__Wire__MemberInfo *member,
                                                 const char *topic)
{
    for (size_t i = 0; i < member->n_subscriptions; i++)
        if (wire_is(&member->subscriptions[i]->topic, topic))
            return member->subscriptions[i];
    return NULL;
}

static const char *expression_of(const Tern__Wire__Subscription *subscription)
{
    if (!subscription)
        return "(not subscribed)";
    return subscription->expression[0] ? subscription->expression : "*";
}

bool why_members_agree(struct why *why, const char *group, const char *topic,
                       const Tern__Wire__ConsumerConnectionResponse *members)
{
    for (size_t i = 1; i < members->n_members; i++) {
        const char *first = expression_of(why_subscription(members->members[0], topic));
        const char *other = expression_of(why_subscription(members->members[i], topic));
        char first_id[256], other_id[256];
        if (!strcmp(first, other))
            continue;
        wire_text(first_id, sizeof first_id, &members->members[0]->client_id);
        wire_text(other_id, sizeof other_id, &members->members[i]->client_id);
        why_say(why, false, "disagreement",
                "members of group %s subscribe differently to topic %s: %s wants '%s', %s wants "
                "'%s'; what one leaves out is lost to the group",
                group, topic, first_id, first, other_id, other);
        why_next(why, "mqadmin consumerConnection -g %s", group);
        return false;
    }
    return true;
}

bool why_group_may_consume(struct why *why, const char *group, const char *address)
{
    struct rpc_call *call;
    bool may = true;
    enum tern_code code = fetch_groups(why->invocation, address, &call, NULL);
    for (size_t i = 0; code == TERN_OK && i < call->response->list_groups->n_groups; i++)
        if (wire_is(&call->response->list_groups->groups[i]->name, group))
            may = call->response->list_groups->groups[i]->consume_enable;
    rpc_call_unref(call);
    if (!may) {
        why_say(why, false, "mayNotConsume", "group %s may not consume (consumeEnable false)",
                group);
        why_next(why, "mqadmin updateSubGroup -c CLUSTER -g %s -s true", group);
    }
    return may;
}

/* ---- one group ---- */

struct reader {
    struct why *why;
    const struct why_message *message;
    char group[GROUP_NAME_MAX + 1];
    const Tern__Wire__GroupQueueStats *row;                /* of the message's queue */
    const Tern__Wire__ConsumerConnectionResponse *members; /* NULL: none */
    char owner[256]; /* who pulled the queue last, "" nobody */
};

static const Tern__Wire__MemberInfo *owner_member(const struct reader *reader)
{
    for (size_t i = 0; reader->members && i < reader->members->n_members; i++)
        if (wire_is(&reader->members->members[i]->client_id, reader->owner))
            return reader->members->members[i];
    return NULL;
}

/* What the owner asked for, by its subscription if it is there, else by its last pull. */
static enum verdict owner_verdict(const struct reader *reader, const char **expression)
{
    const Tern__Wire__MemberInfo *member = owner_member(reader);
    const Tern__Wire__Subscription *s =
        member ? why_subscription(member, reader->message->topic) : NULL;
    const char *pulled = reader->row->expression;
    *expression = s ? expression_of(s) : pulled[0] ? pulled : "*";
    return s ? match(s->expression_type, *expression, reader->message->message)
             : match_either(*expression, reader->message->message);
}

/* Progress is a number: it does not tell what was handed out from what it was set beyond. */
static void say_beyond(const struct reader *reader, const char *expression)
{
    char puller[400];
    if (reader->owner[0])
        snprintf(puller, sizeof puller, "the queue's last puller is %s, '%s'", reader->owner,
                 expression);
    else
        snprintf(puller, sizeof puller,
                 "no member of it has pulled the queue since the broker's start");
    why_say(reader->why, true, "passed",
            "progress of group %s has passed it (committed %" PRId64 "): delivered and "
            "acknowledged, or skipped by a reset, skipAccumulatedMessage or cloneGroupOffset; %s",
            reader->group, reader->row->consumer_offset, puller);
}

static void say_passed(const struct reader *reader)
{
    const struct why_message *m = reader->message;
    const char *expression;
    enum verdict verdict = owner_verdict(reader, &expression);
    if (verdict == LEAVES_OUT) {
        why_say(reader->why, false, "filtered",
                "group %s has passed it, to offset %" PRId64 ", without delivering it: '%s' of %s "
                "does not match it",
                reader->group, reader->row->consumer_offset, expression,
                reader->owner[0] ? reader->owner : "nobody since the broker's start");
        why_next(reader->why,
                 "mqadmin resetOffsetByTime -g %s -t %s --offset %" PRId64 " -b %s -i %" PRId32
                 " --dry-run (once the expression is right)",
                 reader->group, m->topic, m->queue_off, m->broker, m->queue_id);
    } else {
        say_beyond(reader, expression);
    }
}

/* Whether any member would get it. */
static bool wanted_by_some(const struct reader *reader)
{
    for (size_t i = 0; reader->members && i < reader->members->n_members; i++) {
        const Tern__Wire__Subscription *s =
            why_subscription(reader->members->members[i], reader->message->topic);
        if (s &&
            match(s->expression_type, expression_of(s), reader->message->message) != LEAVES_OUT)
            return true;
    }
    return false;
}

static void say_ahead(const struct reader *reader)
{
    struct why *why = reader->why;
    const struct why_message *m = reader->message;
    int64_t at = reader->row->consumer_offset;
    if (at < 0)
        why_say(why, reader->members != NULL, "ahead",
                "group %s has no progress in its queue yet; messages below consumeFromWhere are "
                "left out",
                reader->group);
    else
        why_say(why, reader->members != NULL, "ahead",
                "group %s has not come to it: it stands at offset %" PRId64 ", %" PRId64
                " messages before it",
                reader->group, at, m->queue_off - at);
    if (!reader->members)
        why_say(why, false, "noMember", "group %s has no member that is online", reader->group);
    else if (!reader->owner[0])
        why_say(why, false, "noOwner",
                "no member of group %s has pulled queue %" PRId32 " since the broker's start",
                reader->group, m->queue_id);
    else if (!owner_member(reader))
        why_say(why, false, "ownerLeft", "%s, which pulled its queue last, has left group %s",
                reader->owner, reader->group);
    if (reader->members && !wanted_by_some(reader))
        why_say(why, false, "filtered",
                "no member of group %s has an expression that matches it: it will be passed over",
                reader->group);
    why_next(why, "mqadmin why -g %s -t %s", reader->group, m->topic);
}

static void about_group(struct why *why, const struct why_message *m,
                        const Tern__Wire__GroupStats *group)
{
    struct reader reader = {.why = why, .message = m};
    struct rpc_call *call;
    for (size_t i = 0; i < group->n_queues; i++)
        if (group->queues[i]->queue_id == m->queue_id &&
            wire_is(&group->queues[i]->topic, m->topic))
            reader.row = group->queues[i];
    if (!reader.row)
        return;
    wire_text(reader.group, sizeof reader.group, &group->group);
    wire_text(reader.owner, sizeof reader.owner, &reader.row->client_id);
    enum tern_code code = fetch_members(why->invocation, m->address, reader.group, &call, NULL);
    if (code == TERN_OK && call->response->consumer_connection->n_members > 0)
        reader.members = call->response->consumer_connection;
    if (reader.members && reader.members->model == TERN__WIRE__MESSAGE_MODEL__BROADCASTING)
        why_say(why, true, "broadcasting",
                "group %s broadcasts: each member keeps its own progress, which is not known here",
                reader.group);
    else if (reader.row->consumer_offset > m->queue_off)
        say_passed(&reader);
    else
        say_ahead(&reader);
    if (reader.members)
        why_members_agree(why, reader.group, m->topic, reader.members);
    why_group_may_consume(why, reader.group, m->address);
    rpc_call_unref(call);
}

void why_readers(struct why *why, const struct why_message *m)
{
    struct tern_error err = {.text = ""};
    struct rpc_call *call;
    enum tern_code code = fetch_progress(why->invocation, m->address, NULL, m->topic, &call, &err);
    if (code != TERN_OK)
        why_say(why, false, "groups", "%s does not tell which groups read topic %s: %s", m->broker,
                m->topic, error_text(&err, code));
    else if (call->response->consume_stats->n_groups == 0)
        why_say(why, true, "noGroup",
                "no group has a member or progress for topic %s on %s: nobody reads it", m->topic,
                m->broker);
    for (size_t i = 0; code == TERN_OK && i < call->response->consume_stats->n_groups; i++)
        about_group(why, m, call->response->consume_stats->groups[i]);
    rpc_call_unref(call);
}
