/*
 * Replies: whoever waits for one is told where it was stored. The requester fetches it; the reply
 * topic is an ordinary one otherwise.
 *
 * Failure: a message of the reply topic that names nobody is stored and told to nobody.
 */
#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "base/reply.h"
#include "broker/handlers/send.h"

enum { CORRELATION_ID_MAX = 255 };

/* A property as a terminated text; false: absent, too long, or not printable. */
static bool take_text(const struct record *record, const char *name, char *out, size_t size)
{
    struct slice value;
    if (!props_get(record->props, record->props_len, name, &value) || value.len >= size ||
        client_id_check(value.ptr, value.len, NULL) != TERN_OK)
        return false;
    memcpy(out, value.ptr, value.len);
    out[value.len] = 0;
    return true;
}

static void post_reply(struct broker *broker, const struct record *record, int64_t phys_off)
{
    char client[CLIENT_ID_MAX + 1];
    char correlation[CORRELATION_ID_MAX + 1];
    struct slice type;
    if (props_get(record->props, record->props_len, PROP_MSG_TYPE, &type) &&
        type.len == sizeof MSG_TYPE_REPLY - 1 && !memcmp(type.ptr, MSG_TYPE_REPLY, type.len) &&
        take_text(record, PROP_REPLY_TO_CLIENT, client, sizeof client) &&
        take_text(record, PROP_CORRELATION_ID, correlation, sizeof correlation))
        events_post_reply(broker->events, client, correlation, phys_off);
}

void send_post_replies(const struct send *send)
{
    const struct store_append *append = &send->append;
    size_t cluster_len = strlen(send->broker->config.cluster_name);
    if (send->topic_len != cluster_len + sizeof REPLY_TOPIC_SUFFIX - 1 ||
        memcmp(send->topic, send->broker->config.cluster_name, cluster_len) != 0 ||
        memcmp(send->topic + cluster_len, REPLY_TOPIC_SUFFIX, sizeof REPLY_TOPIC_SUFFIX - 1) != 0)
        return;
    for (size_t at = 0; at < append->size_bytes;) {
        struct record record;
        size_t left = append->size_bytes - at;
        if (record_parse(append->records + at, left, left, false, &record) != RECORD_WHOLE)
            return; /* they were checked; nobody is told then */
        post_reply(send->broker, &record, append->first_phys_off + (int64_t)at);
        at += record.total_size;
    }
}
