/*
 * Who is there: clients by id, the members of each consumer group with each member's own
 * subscriptions (never overwritten by another's heartbeat, F-3), producers by group.
 *
 * A member lives by heartbeats (120 s) and by its connection: when the connection of its latest
 * heartbeat dies it is gone at once. Every change of a group's membership or topics is told to
 * on_changed().
 */
#ifndef BROKER_MEMBERS_H
#define BROKER_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/names.h"
#include "base/record.h"
#include "base/subscription.h"

enum {
    MEMBER_EXPIRE_MS = 120000,
    MEMBERS_MAX = 100000,
    MEMBER_SUBSCRIPTIONS_MAX = 1024,
    EXPRESSION_TYPE_BYTES = 16,
    CONFLICT_EXPRESSION_BYTES = 256 /* longer ones are cut */
};

struct members;

struct member_subscription {
    char topic[TOPIC_NAME_MAX + 1];
    const char *expression;
    char expression_type[EXPRESSION_TYPE_BYTES];
    int64_t version;
    const char *normal; /* subscription_normal(); NULL: the expression itself */
};

/* Two members that subscribe differently: the first topic where they do. */
struct member_conflict {
    bool found;
    char other[CLIENT_ID_MAX + 1]; /* the other member */
    char topic[TOPIC_NAME_MAX + 1];
    char own[CONFLICT_EXPRESSION_BYTES], others[CONFLICT_EXPRESSION_BYTES];
};

/* One consumer group of a heartbeat; borrowed for the call. Enums hold the wire's values. */
struct member_consumer {
    char group[GROUP_NAME_MAX + 1];
    int32_t type, model, from;
    struct member_subscription *subscriptions;
    size_t subscription_count;
    /*
     * Not NULL: the group refuses members that differ. A newcomer, or a member that changes, which
     * differs from another one is left as it was, and this says why.
     */
    struct member_conflict *conflict;
    bool isolated; /* a change of cohort is a change of members */
};

struct member_heartbeat {
    const char *client_id;
    uint64_t peer_id;
    struct host remote;
    const char *language, *client_version;
    const char *const *producer_groups;
    size_t producer_group_count;
    const char *const *checked_groups; /* of these: whose transactions it answers for */
    size_t checked_group_count;
    const struct member_consumer *consumers;
    size_t consumer_count;
};

struct members_options {
    void *arg;
    /* The group's members or subscribed topics changed. client_ids: members now. @locks none */
    void (*on_changed)(void *arg, const char *group, const char *const *client_ids, size_t count);
    /* A member's subscription changed its expression (F-5). @locks none */
    void (*on_expression_changed)(void *arg, const char *group, const char *topic,
                                  const char *client_id, const char *before, const char *after);
    /* A member joined or changed, and another one subscribes differently (F-3). @locks none */
    void (*on_differ)(void *arg, const char *group, const char *client_id,
                      const struct member_conflict *conflict);
};

MUST_CHECK enum tern_code
members_create(const struct env *env, const struct members_options *options, struct members **out);
void members_destroy(struct members *members);

/* Groups of this client that the heartbeat does not name any more are left. TERN_LIMIT,
 * TERN_NO_MEMORY. @thread any */
MUST_CHECK enum tern_code members_heartbeat(struct members *members,
                                            const struct member_heartbeat *heartbeat,
                                            struct tern_error *err);
/* Either may be NULL. */
void members_unregister(struct members *members, const char *client_id, const char *producer_group,
                        const char *consumer_group);
void members_peer_gone(struct members *members, uint64_t peer_id);
/* Removes the silent; returns when to come again. */
int64_t members_expire(struct members *members, int64_t now_ns);

/* Sorted ids; *ids is one malloc'ed block (free()), count 0 and NULL when the group has no member.
 */
MUST_CHECK enum tern_code members_of(struct members *members, const char *group, const char ***ids,
                                     size_t *count);

/*
 * How many clients answer for transactions of a producer group; out: the (turn modulo that)-th of
 * them, when there is one. @thread any
 */
uint32_t members_checker(struct members *members, const char *group, uint64_t turn,
                         char out[CLIENT_ID_MAX + 1]);

/* Those of one cohort of it: members that subscribe alike. */
MUST_CHECK enum tern_code members_of_cohort(struct members *members, const char *group,
                                            uint32_t cohort, const char ***ids, size_t *count);
/* The member's cohort, a number that depends on nothing but its subscriptions, never 0. false: the
 * client is no member of the group. */
bool members_cohort(struct members *members, const char *group, const char *client_id,
                    uint32_t *cohort);
/* Whether a pull's expression is neither what its client is a member with nor what all others want
 * of the topic. `wanted` needs topic, type, expression and normal form. */
bool members_pull_differs(struct members *members, const char *group, const char *client_id,
                          const struct member_subscription *wanted, struct member_conflict *out);
/* Groups whose members subscribe differently now. */
uint32_t members_differing_groups(struct members *members);

/* What a pull without its own expression needs. */
enum member_lookup { MEMBER_FOUND, MEMBER_NO_GROUP, MEMBER_NO_SUBSCRIPTION };
struct member_view {
    int32_t model;
    int64_t version;
    char expression_type[EXPRESSION_TYPE_BYTES];
};
/* The subscription of this client, or of any member when client_id is empty. *expression is
 * malloc'ed. */
enum member_lookup members_subscription(struct members *members, const char *group,
                                        const char *client_id, const char *topic,
                                        struct member_view *view, char **expression);

/* For consumerConnection and consumerProgress: a malloc'ed snapshot in one block (free()). */
struct member_info {
    const char *client_id, *language, *version;
    struct host remote;
    int64_t heartbeat_age_ms;
    int32_t type, model, from;
    struct member_subscription *subscriptions;
    size_t subscription_count;
};
MUST_CHECK enum tern_code members_snapshot(struct members *members, const char *group,
                                           struct member_info **out, size_t *count);
/* Names of all groups with members, sorted, one malloc'ed block. */
MUST_CHECK enum tern_code members_groups(struct members *members, const char ***groups,
                                         size_t *count);
/* A client of a producer group; as member_info, one block for all. */
struct producer_info {
    const char *group, *client_id, *language, *version;
    struct host remote;
    int64_t heartbeat_age_ms;
};
/* Clients of this producer group, NULL: of all; sorted by group and client id, free(). */
MUST_CHECK enum tern_code members_producers(struct members *members, const char *group,
                                            struct producer_info **out, size_t *count);
uint32_t members_count(struct members *members);

#endif
