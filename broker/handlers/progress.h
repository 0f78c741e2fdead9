/* What handlers that change progress share (progress.c, admin_clone.c). */
#ifndef BROKER_HANDLERS_PROGRESS_H
#define BROKER_HANDLERS_PROGRESS_H

#include "broker/ack_wait.h"
#include "broker/handlers/handlers.h"

/* Calls entry->done when the others of the set have all changes up to now, or it is too late. */
void progress_wait_for_others(struct broker *broker, const struct rpc_request *request,
                              struct ack_entry *entry);
/* Answers a wait that did not end well: what was changed stays changed here. `what`: "commit". */
void progress_answer_unconfirmed(struct broker *broker, struct rpc_request *request,
                                 enum tern_code code, const char *what);
/* Posts the event of a reset to every member of the group. @locks none */
void progress_tell_members(struct broker *broker, const char *group, const char *topic);
/* Answers the group's pulls that wait at the queue's end: they go on where it was reset to. `group`
 * may be a cohort's name: its pulls go by that. @locks none */
void progress_tell_pulls(struct broker *broker, const char *group, const char *topic,
                         int32_t queue_id);
/* The same for what was deleted; group or topic "": all. @locks none */
void progress_tell_all_pulls(struct broker *broker, const char *group, const char *topic);

#endif
