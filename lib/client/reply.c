/*
 * The responder's side of requests: a message that finds its way back.
 *
 * Threads: any. Failure modes: a message that is no request is refused with the property's name.
 */
#include <tern/request.h>

#include <stdio.h>
#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "base/reply.h"
#include "client/message_internal.h"

/* The property of a request, or NULL with a text. */
static const char *need(const struct tern_message *request, const char *name,
                        struct tern_error *err)
{
    const char *value = tern_message_property(request, name);
    if (!value)
        error_set(err, TERN_INVALID,
                  "the message is no request: it has no property %s (a request is sent by "
                  "tern_producer_request())",
                  name);
    return value;
}

enum tern_code tern_reply_message_create(const struct tern_message *request, const void *body,
                                         size_t body_size, struct tern_message **out,
                                         struct tern_error *err)
{
    static const char *const copied[] = {PROP_CORRELATION_ID, PROP_REPLY_TO_CLIENT, PROP_TTL};
    char topic[TOPIC_NAME_MAX + 1];
    *out = NULL;
    if (!request)
        return error_set(err, TERN_INVALID, "request is NULL");
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++)
        if (!need(request, copied[i], err))
            return TERN_INVALID;
    const char *cluster = need(request, PROP_CLUSTER, err);
    if (!cluster)
        return TERN_INVALID;
    if (strlen(cluster) + sizeof REPLY_TOPIC_SUFFIX - 1 > TOPIC_NAME_MAX)
        return error_set(
            err, TERN_INVALID,
            "cluster %.127s: its reply topic's name has %zu bytes, at most %d are allowed", cluster,
            strlen(cluster) + sizeof REPLY_TOPIC_SUFFIX - 1, (int)TOPIC_NAME_MAX);
    snprintf(topic, sizeof topic, "%.115s" REPLY_TOPIC_SUFFIX, cluster);
    struct tern_message *reply;
    enum tern_code code = tern_message_create(topic, body, body_size, &reply, err);
    if (code != TERN_OK)
        return code;
    message_topic_set_absolute(reply);
    code = message_set_reserved(reply, PROP_MSG_TYPE, MSG_TYPE_REPLY);
    for (size_t i = 0; i < sizeof copied / sizeof copied[0] && code == TERN_OK; i++)
        code = message_set_reserved(reply, copied[i], tern_message_property(request, copied[i]));
    if (code != TERN_OK) {
        (void)message_reserved_failed(reply, "a reply", code, err);
        tern_message_unref(reply);
        return code;
    }
    *out = reply;
    return TERN_OK;
}
