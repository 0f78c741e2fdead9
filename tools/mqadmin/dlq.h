/*
 * Dead letters for people: reading a group's %DLQ% topic, and sending one once more
 * (docs/retry.md). A dead letter that is sent again stays where it is; its copy says which one it
 * is of, so that nobody does it twice by accident.
 */
#ifndef MQADMIN_DLQ_H
#define MQADMIN_DLQ_H

#include "base/names.h"
#include "client/message_internal.h"
#include "tools/mqadmin/command.h"

/* Offset message id of the dead letter that a message is a copy of. */
#define PROP_REDRIVE_OF "REDRIVE_OF"

/* One dead letter; borrowed for the call. false: enough. */
typedef bool (*dlq_visit_fn)(void *arg, const struct admin_broker *broker,
                             const struct tern_message *message);

/*
 * Every dead letter of the group, broker by broker, the oldest first. Brokers that do not answer
 * are said on stderr, and leave EXIT_NO or EXIT_UNREACHABLE in *status. false: there is no such
 * topic, said, *status set.
 */
bool dlq_each(struct invocation *invocation, const char *group, dlq_visit_fn visit, void *arg,
              int *status);

/* Topic that the message was sent to before it failed, into `out`; false: it does not say. */
bool dlq_origin_topic(const struct tern_message *message, char out[TOPIC_NAME_MAX + 1]);

struct dlq_target {
    const char *topic;   /* where to: the group's retry topic, or the origin */
    const char *address; /* of a master that has it */
    bool origin;         /* the topic is the origin: RETRY_TOPIC would say it once more */
};

/*
 * Whether the topic has a copy of this dead letter already, by the broker's index. TERN_AGAIN, with
 * a text: the index is behind, so that nobody can tell.
 */
MUST_CHECK enum tern_code dlq_was_sent(struct invocation *invocation,
                                       const struct dlq_target *target,
                                       const struct tern_message *message, bool *sent,
                                       struct tern_error *err);
/* Sends the copy; its count of tries begins anew. A stored copy whose safety is not known is
 * TERN_OK. */
MUST_CHECK enum tern_code dlq_send(struct invocation *invocation, const struct dlq_target *target,
                                   const char *group, const struct tern_message *message,
                                   struct tern_error *err);

#endif
