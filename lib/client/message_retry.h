/* What a consumer does to a message that comes again. Only before anybody else has the message, but
 * for message_count_retries(), whose count may be read meanwhile. */
#ifndef CLIENT_MESSAGE_RETRY_H
#define CLIENT_MESSAGE_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include <tern/message.h>

/* A message of the group's retry topic shows the topic that it was sent to (its RETRY_TOPIC
 * property). */
void message_restore_topic(struct tern_message *message);

enum { TRIES_KNOWN_MAX = 1 << 24 }; /* a wire's word beyond that is none */

/* So many more tries of the consumer's group: the count that listeners see grows. */
void message_count_retries(struct tern_message *message, int32_t more);

/*
 * Tries counted for the consumer's group before this one. What a record says counts only in the
 * group's own retry topic: elsewhere (another group's dead letters) it is not about this group.
 */
int32_t message_tries(const struct tern_message *message, bool of_retry_topic);

#endif
