/*
 * The inside of the member table, for members.c (changes) and members_query.c (questions).
 *
 *   client ──► memberships ◄── group          peer ──► clients of its latest heartbeats
 *     └ age list, oldest heartbeat first       group: last expression per topic
 */
#ifndef BROKER_MEMBERS_INTERNAL_H
#define BROKER_MEMBERS_INTERNAL_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "base/lock.h"
#include "broker/members.h"

enum {
    MEMBER_TEXT_BYTES = 64, /* language, client version: cut */
    MEMBER_GROUPS_PER_CLIENT = 1024,
    MEMBER_GROUPS_MAX = 100000,    /* those without members go first */
    MEMBER_EXPRESSIONS_MAX = 1024, /* remembered per group */
    PEERS_GONE_KEPT = 256
};

/* One client in one group. */
struct membership {
    struct member_client *client;
    struct member_group *group;
    int32_t type, model, from;
    struct member_subscription *subscriptions; /* one block with their texts, sorted by topic */
    size_t subscription_count;
    uint32_t cohort;                /* of the subscriptions */
    uint64_t beat;                  /* number of the heartbeat that named it last */
    struct membership *client_next; /* the client's others */
    struct membership *prev, *next; /* the group's others */
};

struct member_peer {
    uint64_t id;
    struct member_client *clients;
    UT_hash_handle hh;
};

struct member_client {
    uint64_t beats; /* heartbeats so far */
    struct member_peer *peer;
    struct host remote;
    int64_t heartbeat_ns;
    char language[MEMBER_TEXT_BYTES], version[MEMBER_TEXT_BYTES];
    struct membership *memberships;
    char *producers; /* terminated names back to back, owned; NULL: none */
    size_t producers_bytes;
    char *checked; /* the same for the groups whose transactions it answers for */
    size_t checked_bytes;
    struct member_client *prev, *next;           /* by age */
    struct member_client *peer_prev, *peer_next; /* of the same peer */
    UT_hash_handle hh;
    char id[];
};

/* What a group last asked for, also when all its members have left (F-5). */
struct last_expression {
    char *expression; /* owned */
    UT_hash_handle hh;
    char topic[];
};

struct member_group {
    struct membership *members;
    uint32_t member_count;
    struct last_expression *expressions;
    bool changed; /* waits in `changed` to be told */
    struct member_group *changed_next;
    UT_hash_handle hh;
    char name[];
};

struct members {
    struct env env;
    struct members_options options;

    struct lock lock; /* protects the rest */
    struct member_client *clients;
    struct member_client *oldest; /* age list */
    struct member_group *groups;
    struct member_peer *peers;
    struct member_group *changed;   /* to be told to on_changed */
    uint64_t gone[PEERS_GONE_KEPT]; /* ring of peers that died; ids are never reused */
    uint32_t gone_next;
};

/* Both @locks holds:BROKER_MEMBERS */
struct member_group *members_group(struct members *members, const char *name);
const struct member_subscription *membership_find(const struct membership *membership,
                                                  const char *topic);
/*
 * A sorted copy with the texts in the same block; of a topic that is named twice the newest. NULL:
 * no memory.
 */
struct member_subscription *members_copy_subscriptions(const struct member_consumer *consumer,
                                                       size_t *count);
/* Whether a sorted list names the member's topics. */
bool members_same_topics(const struct membership *membership,
                         const struct member_subscription *other, size_t count);
bool members_same_subscription(const struct member_subscription *a,
                               const struct member_subscription *b);
/* Ids of a group, or of a cohort of it (0: all), as one sorted block, NULL: no memory or no member
 * in the group. @locks holds:BROKER_MEMBERS */
const char **members_ids(const struct member_group *group, uint32_t cohort, size_t *count);

/* ---- members_guard.c; @locks holds:BROKER_MEMBERS where they take a group ---- */

const char *member_normal(const struct member_subscription *subscription);
bool members_ask_alike(const struct member_subscription *a, const struct member_subscription *b);
/* Of a sorted list. */
uint32_t members_cohort_of(const struct member_subscription *subscriptions, size_t count);
/* Whether a member of the group but `self` (may be NULL) subscribes differently. */
bool members_find_conflict(const struct member_group *group, const struct membership *self,
                           const struct member_subscription *own, size_t count,
                           struct member_conflict *out);

/* ---- members_report.c: what is told after the lock was released ---- */

struct member_report;
/* NULL: without memory the report is lost, nothing else. */
enum report_kind { REPORT_LEFT, REPORT_EXPRESSION, REPORT_JOINED, REPORT_DIFFER };
struct member_report *member_report_add(struct member_report **list, enum report_kind kind,
                                        const char *group, const char *client, const char *topic,
                                        const char *before, const char *after);
void member_report_joined(struct member_report **list, const struct member_consumer *consumer,
                          const char *client);
void member_report_differ(struct member_report **list, const char *group, const char *client,
                          const struct member_conflict *conflict);
/* Tells and frees. @locks none */
void member_reports_tell(struct members *members, struct member_report *list);
void member_reports_free(struct member_report *list);

#endif
