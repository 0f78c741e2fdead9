/* Sending a stored message once more, as queryMsgById -s does. */
#ifndef MQADMIN_RESEND_H
#define MQADMIN_RESEND_H

#include "client/message_internal.h"
#include "tools/mqadmin/command.h"

/*
 * Sends a copy of the message, body, properties and unique id as they are, to its topic: at the
 * master of the set that has it, else at any that has the topic. One row of the table sendMessage
 * shows. Returns the exit status; failures are said.
 */
int resend(struct invocation *invocation, const struct tern_message *message, struct table *table);

#endif
