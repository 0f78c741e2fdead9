/* Half messages: what marks them on their way to the broker, and how they look coming back. */
#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "client/message_internal.h"
#include "client/message_struct.h"

enum tern_code message_mark_half(struct tern_message *message, const char *group,
                                 struct tern_error *err)
{
    enum tern_code code = message_set_reserved(message, PROP_TRAN_MSG, "true");
    if (code == TERN_OK)
        code = message_set_reserved(message, PROP_PGROUP, group);
    if (code == TERN_OK) {
        message->half = true;
        return TERN_OK;
    }
    message_unmark_half(message);
    return message_reserved_failed(message, "a transaction", code, err);
}

void message_unmark_half(struct tern_message *message)
{
    message_remove_reserved(message, PROP_TRAN_MSG);
    message_remove_reserved(message, PROP_PGROUP);
    message->half = false;
}

bool message_is_half(const struct tern_message *message)
{
    return message->half;
}

void message_restore_half(struct tern_message *message)
{
    const struct message_texts *texts = message_texts(message);
    const char *topic = texts ? message_texts_find(texts, PROP_REAL_TOPIC) : NULL;
    const char *queue = texts ? message_texts_find(texts, PROP_REAL_QID) : NULL;
    size_t len = topic ? strlen(topic) : 0;
    int32_t queue_id = 0;
    if (len == 0 || len > TOPIC_NAME_MAX)
        return;
    message->topic = topic;
    message->topic_len = (uint8_t)len;
    for (const char *at = queue; at && *at >= '0' && *at <= '9' && queue_id < INT32_MAX / 10 - 1;
         at++)
        queue_id = queue_id * 10 + (*at - '0');
    message->queue_id = queue_id;
}
