/*
 * Messages that come again: their topic as the sender named it, and their count of tries.
 *
 * The restored topic borrows from the message's own texts, which live as long as the message.
 * Threads: the one that holds the message's only reference, or hands it on under a lock. Failure modes: none;
 * without memory the message keeps the retry topic's name.
 */
#include "client/message_retry.h"

#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "client/message_struct.h"

void message_restore_topic(struct tern_message *message)
{
    const struct message_texts *texts = message_texts(message);
    const char *topic = texts ? message_texts_find(texts, PROP_RETRY_TOPIC) : NULL;
    size_t len = topic ? strlen(topic) : 0;
    if (len == 0 || len > TOPIC_NAME_MAX)
        return;
    message->topic = topic;
    message->topic_len = (uint8_t)len;
}

void message_count_retry(struct tern_message *message)
{
    message->reconsume_times++;
}
