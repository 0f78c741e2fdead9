/* What a consumer does to a message that comes again. Only before anybody else has the message. */
#ifndef CLIENT_MESSAGE_RETRY_H
#define CLIENT_MESSAGE_RETRY_H

#include <tern/message.h>

/* A message of a retry topic shows the topic that it was sent to (its RETRY_TOPIC property). */
void message_restore_topic(struct tern_message *message);

/* One more try in this process: the count that listeners see grows. */
void message_count_retry(struct tern_message *message);

#endif
