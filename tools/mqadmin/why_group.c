/*
 * why -g: what keeps a group from its messages. While there is a backlog its queues are looked at
 * again for longer than members take to tell their progress: a queue that has a backlog and an
 * owner, and where nothing moved meanwhile, stands still; unless what waits has just come: progress
 * is told every few seconds, and what the owner does not want is passed when its pull has waited.
 *
 * An isolated group's progress is its cohorts'; what stands under its own name is only where new
 * cohorts begin. A broadcasting group's is in files of its members.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/names.h"
#include "tools/mqadmin/why.h"

/* Members commit every 5 s unless they were told otherwise, and pulls wait for 15 s. */
enum { LOOK_AGAIN_MS = 1000, LOOKS_MAX = 7, FRESH_S = 30, QUEUES_SAID_MAX = 32 };

struct group_look {
    struct why *why;
    const char *group;
    const char *broker, *address;
    const Tern__Wire__ConsumeStatsResponse *first, *second;
    const Tern__Wire__ConsumerConnectionResponse *members; /* NULL: none */
    bool isolated;                                         /* each cohort for itself */
    size_t said, queues, behind;
    int64_t backlog;
};

static void pause_a_moment(void)
{
    struct timespec t = {LOOK_AGAIN_MS / 1000, LOOK_AGAIN_MS % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static int64_t backlog_of(const Tern__Wire__GroupQueueStats *q)
{
    return q->broker_offset - (q->consumer_offset < 0 ? 0 : q->consumer_offset);
}

static bool same_name(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b)
{
    return a->len == b->len && !memcmp(a->data, b->data, a->len);
}

/* The group's own rows mean nothing beside its cohorts'. */
static bool counts(const struct group_look *look, const Tern__Wire__GroupStats *group)
{
    return !look->isolated || !wire_is(&group->group, look->group);
}

/* The group's (or cohort's) same queue in a later answer, or NULL. */
static const Tern__Wire__GroupQueueStats *again(const Tern__Wire__ConsumeStatsResponse *later,
                                                const Tern__Wire__GroupStats *group,
                                                const Tern__Wire__GroupQueueStats *q)
{
    for (size_t i = 0; later && i < later->n_groups; i++)
        for (size_t j = 0;
             same_name(&later->groups[i]->group, &group->group) && j < later->groups[i]->n_queues;
             j++) {
            const Tern__Wire__GroupQueueStats *other = later->groups[i]->queues[j];
            if (other->queue_id == q->queue_id && same_name(&other->topic, &q->topic))
                return other;
        }
    return NULL;
}

static bool stood(const Tern__Wire__GroupQueueStats *q, const Tern__Wire__GroupQueueStats *later)
{
    return later && later->consumer_offset == q->consumer_offset && later->scanned == q->scanned;
}

static bool is_fresh(const Tern__Wire__GroupQueueStats *q)
{
    return q->oldest_waiting_ms > ((int64_t)time(NULL) - FRESH_S) * 1000;
}

static bool is_member(const struct group_look *look, const char *client_id)
{
    for (size_t i = 0; look->members && i < look->members->n_members; i++)
        if (wire_is(&look->members->members[i]->client_id, client_id))
            return true;
    return false;
}

/* What a queue with a backlog suffers from. */
static void say_cause(struct group_look *look, const Tern__Wire__GroupStats *group,
                      const Tern__Wire__GroupQueueStats *q, const char *where)
{
    const Tern__Wire__GroupQueueStats *later = again(look->second, group, q);
    char owner[256];
    wire_text(owner, sizeof owner, &q->client_id);
    if (!look->members)
        return; /* said once, for the group */
    if (!owner[0])
        why_say(look->why, false, "noOwner", "%s: no member has pulled it since the broker's start",
                where);
    else if (!is_member(look, owner))
        why_say(look->why, false, "ownerLeft",
                "%s: %s, which pulled it last, has left; another member takes it over within 20 s",
                where, owner);
    else if (is_fresh(q))
        why_say(look->why, true, "fresh",
                "%s: they came in the last %d s; its owner %s tells its progress every few seconds",
                where, FRESH_S, owner);
    else if (stood(q, later))
        why_say(look->why, false, "standstill",
                "%s: its owner %s pulled nothing and made no progress in %d s: paused, held back "
                "by flow control, a listener that does not return, or, with an orderly listener, a "
                "queue that the locks of a member that died still hold (60 s at most)",
                where, owner, (LOOKS_MAX * LOOK_AGAIN_MS) / 1000);
    else
        why_say(look->why, true, "moving", "%s: its owner %s is working it off", where, owner);
}

static void about_queue(struct group_look *look, const Tern__Wire__GroupStats *group,
                        const Tern__Wire__GroupQueueStats *q)
{
    char topic[TOPIC_NAME_MAX + 1], cohort[GROUP_NAME_MAX + 1] = "", where[700], since[32];
    int64_t backlog = backlog_of(q);
    look->queues++;
    look->backlog += backlog;
    look->behind += backlog > 0;
    if (backlog <= 0 || look->said++ >= QUEUES_SAID_MAX)
        return;
    wire_text(topic, sizeof topic, &q->topic);
    time_text(since, q->oldest_waiting_ms);
    if (look->isolated)
        wire_text(cohort, sizeof cohort, &group->group);
    snprintf(where, sizeof where, "%s/%" PRId32 " of topic %s%s%s", look->broker, q->queue_id,
             topic, cohort[0] ? " for cohort " : "", cohort);
    why_say(look->why, look->members != NULL, "backlog",
            "%s: %" PRId64 " messages wait, at offset %" PRId64 " of %" PRId64 ", the oldest since "
            "%s",
            where, backlog, q->consumer_offset, q->broker_offset, since);
    say_cause(look, group, q, where);
}

/* Whether the topic may be read at the broker. */
static void about_topic(struct group_look *look, const Tern__Wire__TopicConfig *topic)
{
    char name[TOPIC_NAME_MAX + 1];
    wire_text(name, sizeof name, &topic->name);
    if (!(topic->perm & 4)) {
        why_say(look->why, false, "notReadable",
                "topic %s is not readable on %s (perm %" PRId32 ")", name, look->broker,
                topic->perm);
        why_next(look->why, "mqadmin updateTopicPerm -b %s -t %s -p 6", look->address, name);
    }
    if (topic->read_queues < topic->write_queues) {
        why_say(look->why, false, "unreadQueues",
                "topic %s on %s takes messages into %" PRId32 " queues and offers %" PRId32
                " to consumers",
                name, look->broker, topic->write_queues, topic->read_queues);
        why_next(look->why, "mqadmin updateTopic -b %s -t %s -r %" PRId32 " -w %" PRId32,
                 look->address, name, topic->write_queues, topic->write_queues);
    }
}

static bool concerns(const struct group_look *look, const ProtobufCBinaryData *topic)
{
    for (size_t i = 0; i < look->first->n_groups; i++)
        for (size_t j = 0; j < look->first->groups[i]->n_queues; j++) {
            const ProtobufCBinaryData *other = &look->first->groups[i]->queues[j]->topic;
            if (other->len == topic->len && !memcmp(other->data, topic->data, topic->len))
                return true;
        }
    return false;
}

/* Permissions of its topics, and what lies in its dead letter topic. */
static void about_topics(struct group_look *look)
{
    char dead[TOPIC_NAME_MAX + 8];
    struct rpc_call *call;
    int64_t letters = 0;
    enum tern_code code = fetch_topics(look->why->invocation, look->address, &call, NULL);
    for (size_t i = 0; code == TERN_OK && i < call->response->list_topics->n_topics; i++)
        if (concerns(look, &call->response->list_topics->topics[i]->name))
            about_topic(look, call->response->list_topics->topics[i]);
    rpc_call_unref(call);
    snprintf(dead, sizeof dead, "%s%s", DLQ_TOPIC_PREFIX, look->group);
    code = fetch_topic_stats(look->why->invocation, look->address, dead, &call, NULL);
    for (size_t i = 0; code == TERN_OK && i < call->response->topic_stats->n_queues; i++)
        letters += call->response->topic_stats->queues[i]->max_offset -
                   call->response->topic_stats->queues[i]->min_offset;
    rpc_call_unref(call);
    if (letters > 0) {
        why_say(look->why, false, "dead", "%" PRId64 " messages were given up and lie in %s on %s",
                letters, dead, look->broker);
        why_next(look->why, "mqadmin dlqList -g %s", look->group);
    }
}

static void about_members(struct group_look *look)
{
    if (!look->members) {
        why_say(look->why, false, "noMember", "no member of group %s is online at %s", look->group,
                look->broker);
        why_next(look->why, "mqadmin consumerConnection -g %s", look->group);
        return;
    }
    size_t queues = 0;
    for (size_t g = 0; g < look->first->n_groups; g++)
        queues += counts(look, look->first->groups[g]) ? look->first->groups[g]->n_queues : 0;
    for (size_t i = 0; i < look->members->n_members; i++) {
        const Tern__Wire__MemberInfo *m = look->members->members[i];
        size_t owned = 0;
        char id[256];
        wire_text(id, sizeof id, &m->client_id);
        for (size_t g = 0; g < look->first->n_groups; g++)
            for (size_t q = 0; q < look->first->groups[g]->n_queues; q++)
                owned += wire_is(&look->first->groups[g]->queues[q]->client_id, id);
        why_say(look->why, true, "member",
                "%s is a member at %s, last heard %" PRId64
                " ms ago, the last that was given something from %zu queues%s",
                id, look->broker, m->last_heartbeat_age_ms, owned,
                !owned && look->members->n_members > queues
                    ? ": there are more members than queues here"
                    : "");
    }
    if (look->isolated)
        return; /* they are meant to differ */
    for (size_t i = 0; i < look->members->members[0]->n_subscriptions; i++) {
        char topic[TOPIC_NAME_MAX + 1];
        wire_text(topic, sizeof topic, &look->members->members[0]->subscriptions[i]->topic);
        if (!why_members_agree(look->why, look->group, topic, look->members))
            break;
    }
}

static void about_broker(struct group_look *look)
{
    about_members(look);
    why_group_may_consume(look->why, look->group, look->address);
    if (look->members && look->members->model == TERN__WIRE__MESSAGE_MODEL__BROADCASTING) {
        why_say(look->why, true, "broadcasting",
                "group %s broadcasts: each member keeps its progress in a file of its own, so %s "
                "cannot tell what it has not seen",
                look->group, look->broker);
        return;
    }
    for (size_t i = 0; i < look->first->n_groups; i++)
        for (size_t j = 0;
             counts(look, look->first->groups[i]) && j < look->first->groups[i]->n_queues; j++)
            about_queue(look, look->first->groups[i], look->first->groups[i]->queues[j]);
    about_topics(look);
    if (look->behind == 0)
        why_say(look->why, true, "noBacklog", "on %s nothing waits for group %s in %zu queues",
                look->broker, look->group, look->queues);
    else
        why_say(look->why, true, "backlogTotal",
                "on %s %" PRId64 " messages wait for group %s in %zu of %zu queues%s", look->broker,
                look->backlog, look->group, look->behind, look->queues,
                look->behind > QUEUES_SAID_MAX ? "; not all are shown" : "");
}

/* Whether a queue with a backlog and an owner has not moved; later NULL: not known yet. */
static bool some_stand(const struct group_look *look, const Tern__Wire__ConsumeStatsResponse *later)
{
    for (size_t i = 0; i < look->first->n_groups; i++) {
        const Tern__Wire__GroupStats *group = look->first->groups[i];
        for (size_t j = 0; counts(look, group) && j < group->n_queues; j++)
            if (backlog_of(group->queues[j]) > 0 && group->queues[j]->client_id.len > 0 &&
                !is_fresh(group->queues[j]) &&
                (!later || stood(group->queues[j], again(later, group, group->queues[j]))))
                return true;
    }
    return false;
}

/* Looks at the progress again until every queue with a backlog has moved, or long enough. *last is
 * the caller's to unref. */
static void look_again(struct group_look *look, const char *topic, struct rpc_call **last)
{
    for (int i = 0; i < LOOKS_MAX && some_stand(look, look->second); i++) {
        struct rpc_call *call;
        pause_a_moment();
        if (fetch_progress(look->why->invocation, look->address, look->group, topic, &call, NULL) !=
            TERN_OK) {
            rpc_call_unref(call);
            return;
        }
        rpc_call_unref(*last);
        *last = call;
        look->second = call->response->consume_stats;
    }
}

/* false: the group is not known there. */
static bool look_at(struct why *why, const char *group, const char *topic,
                    const struct admin_broker *broker)
{
    struct tern_error err = {.text = ""};
    struct rpc_call *first, *second = NULL, *members = NULL;
    enum tern_code code =
        fetch_progress(why->invocation, broker->address, group, topic, &first, &err);
    bool known = code == TERN_OK && first->response->consume_stats->n_groups > 0;
    if (code != TERN_OK && code != TERN_GROUP_NOT_EXIST && code != TERN_QUERY_NOT_FOUND)
        why_say(why, false, "broker", "%s does not tell how far group %s is: %s", broker->name,
                group, error_text(&err, code));
    if (known) {
        struct group_look look = {.why = why,
                                  .group = group,
                                  .broker = broker->name,
                                  .address = broker->address,
                                  .first = first->response->consume_stats};
        code = fetch_members(why->invocation, broker->address, group, &members, NULL);
        if (code == TERN_OK && members->response->consumer_connection->n_members > 0)
            look.members = members->response->consumer_connection;
        for (size_t i = 0; i < look.first->n_groups; i++)
            look.isolated |= !wire_is(&look.first->groups[i]->group, group);
        if (look.members && look.members->model != TERN__WIRE__MESSAGE_MODEL__BROADCASTING)
            look_again(&look, topic, &second);
        about_broker(&look);
    }
    rpc_call_unref(first);
    rpc_call_unref(second);
    rpc_call_unref(members);
    return known;
}

int why_about_group(struct why *why, const char *group, const char *topic)
{
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    size_t count, known = 0;
    enum tern_code code =
        topic ? admin_topic_brokers(why->invocation->admin, topic, false, &brokers, &count, &err)
              : admin_brokers(why->invocation->admin, NULL, false, &brokers, &count, &err);
    if (code != TERN_OK)
        return command_fail(why->invocation, code, &err);
    count = command_keep_first(why->invocation, brokers, count);
    for (size_t i = 0; i < count; i++)
        known += look_at(why, group, topic, &brokers[i]);
    free(brokers);
    if (known == 0) {
        why_say(why, false, "unknownGroup",
                "group %s has neither member nor progress%s%s on any broker that answers", group,
                topic ? " for topic " : "", topic ? topic : "");
        why_next(why, "mqadmin consumerProgress");
    }
    return why->problem ? EXIT_NO : EXIT_DONE;
}
