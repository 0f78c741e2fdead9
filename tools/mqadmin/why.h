/*
 * mqadmin why: where a message is, and why a group does or does not get it, in sentences.
 *
 *   message ─► why_message: stored, flushed, replicated, in its queue, expired
 *           ─► why_copies: transaction, retries, dead letters; why_waiting: its time
 *           ─► why_readers: each group's progress, members and expressions against it
 *   group   ─► why_group: backlog, members, owners, permissions, standstill
 *
 * Everything is asked of the brokers as they are; nothing is changed. A fact that is fine and one
 * that explains a failure are told apart, and the next command to run is named.
 */
#ifndef MQADMIN_WHY_H
#define MQADMIN_WHY_H

#include <tern/message.h>

#include "base/names.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

enum { WHY_MESSAGES_MAX = 64, WHY_TOPICS_MAX = 2000 };

struct why {
    struct invocation *invocation;
    json_t *facts; /* [{"fact", "ok", "text"}] */
    json_t *next;  /* command lines, each once */
    bool problem;  /* some fact is not ok */
};

/* One sentence. fact: a stable word for scripts. */
void why_say(struct why *why, bool ok, const char *fact, const char *fmt, ...) PRINTF_LIKE(4, 5);
void why_next(struct why *why, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* One message as a broker holds it. */
struct why_message {
    struct tern_message *message; /* a reference */
    char broker[128], address[ADDRESS_BYTES];
    char topic[TOPIC_NAME_MAX + 1];
    int32_t queue_id;
    int64_t queue_off, phys_off;
};

struct why_found {
    struct why_message list[WHY_MESSAGES_MAX];
    size_t count;
    bool more; /* there are others, not looked at */
};
void why_found_clear(struct why_found *found);

/*
 * Adds what the broker has under this key in the topic; says nothing. TERN_QUERY_NOT_FOUND when
 * nothing; then *searched (may be NULL) has its answer, to be unref'd.
 */
MUST_CHECK enum tern_code why_query(struct why *why, const struct admin_broker *broker,
                                    const char *topic, const char *key, struct why_found *found,
                                    struct rpc_call **searched, struct tern_error *err);

/* By an offset message id, a unique id (topic may be NULL: all are searched), or a key. Exit. */
int why_about_message(struct why *why, const char *id, const char *key, const char *topic);
int why_about_group(struct why *why, const char *group, const char *topic);

/*
 * Copies of a message in the product's own topics, at the topic's brokers. true: one of them says
 * where the message is, or what became of it.
 */
bool why_copies(struct why *why, const char *unique_id, const char *topic,
                const struct admin_broker *brokers, size_t count);
/* A record that stands for a message: waiting for its time, or prepared; says so. false: it is
 * none. */
bool why_stand_in(struct why *why, const struct why_message *record);
/* A message that waits, or waited. true: it waits still, or was ended by a mark. */
bool why_waiting(struct why *why, const struct why_message *record);
/* One in DELAY_DEAD_TOPIC. true. */
bool why_undeliverable(struct why *why, const struct why_message *record);
/* Every group of the topic against this message. */
void why_readers(struct why *why, const struct why_message *message);

/* Whether all members subscribe alike to the topic; if not it is said. */
bool why_members_agree(struct why *why, const char *group, const char *topic,
                       const Tern__Wire__ConsumerConnectionResponse *members);
/* A member's subscription to the topic, or NULL. */
const Tern__Wire__Subscription *why_subscription(const Tern__Wire__MemberInfo *member,
                                                 const char *topic);
/* The group's settings at the broker forbid consuming: said. */
bool why_group_may_consume(struct why *why, const char *group, const char *address);

#endif
