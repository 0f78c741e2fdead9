/*
 * The subscription guard (F-3): what a group's setting subscriptionConsistency makes of members
 * that subscribe differently. docs/subscriptions.md tells it to users.
 *
 *   warn      it is said, nothing else: the queues are shared among all members, and what a member
 *             did not subscribe to is skipped in its queues
 *   refuse    the newcomer is left out of the group, its differing pulls are refused
 *   isolate   members that subscribe alike are a cohort with members, progress and locks of its own
 *
 * Every handler that touches a group's members, progress or locks asks guard_view() first and goes
 * on with the name that it gives.
 */
#ifndef BROKER_GUARD_H
#define BROKER_GUARD_H

#include "broker/broker_internal.h"

enum { COHORT_SUFFIX_BYTES = 9, COHORTS_MAX = 1024 };

/* Whose progress and locks a client's request means. */
struct group_view {
    char name[GROUP_NAME_MAX + 1]; /* the group's, or group%xxxxxxxx: its cohort's */
    uint32_t cohort;               /* 0: the group itself */
};

/*
 * client_id may be "". TERN_PROGRESS_UNKNOWN: the group is isolated and this client has not sent a
 * heartbeat here, so that its cohort is not known: ask again. @thread any
 */
MUST_CHECK enum tern_code guard_view(struct broker *broker, const char *group,
                                     const char *client_id, struct group_view *out,
                                     struct tern_error *err);
/* The cohort of a member whose message failed; 0: none, or not known here. @thread any */
uint32_t guard_cohort_of(struct broker *broker, const char *group,
                         const ProtobufCBinaryData *client);
bool guard_isolates(struct broker *broker, const char *group);
/* Whether `name` is that of a cohort of the group. */
bool guard_is_cohort(const char *name, const char *group);
/*
 * Cohorts of an isolated group that have progress here: *names is one malloc'ed block of *count
 * names, at most COHORTS_MAX. Walks all progress. @thread lane
 */
typedef char cohort_name[GROUP_NAME_MAX + 1];
MUST_CHECK enum tern_code guard_cohorts(struct broker *broker, const char *group,
                                        cohort_name **names, size_t *count);
/* Refuses with both expressions, the other member and what to do; returns
 * TERN_SUBSCRIPTION_DIFFERS. */
enum tern_code guard_refusal(const char *group, const char *client_id,
                             const struct member_conflict *conflict, struct tern_error *err);
/* members_options.on_differ: says it, once per change. */
void guard_on_differ(void *broker, const char *group, const char *client_id,
                     const struct member_conflict *conflict);

#endif
