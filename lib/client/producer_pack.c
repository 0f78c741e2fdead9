/*
 * Bodies compressed for a send, on the thread of who sends, before the first attempt; retries take
 * the same bytes. The message itself is not touched: it may be sent by several producers.
 *
 * Invariant: packed[i].bytes is NULL where message i goes as it is.
 *
 * Threads: the send's owner. Failure modes: none; without memory a body goes as it is.
 */
#include "client/producer_internal.h"

#include <stdlib.h>

void send_pack(struct send *send)
{
    const struct tern_producer_options *options = &send->producer->options;
    if (options->compress == COMPRESS_NONE)
        return;
    for (size_t i = 0; i < send->count; i++) {
        size_t len;
        const uint8_t *body = message_stored_body(send->messages[i], &len);
        struct compressed made;
        if ((int64_t)len < options->compress_threshold ||
            compress_body(options->compress, options->compress_level, body, len, &made) != TERN_OK)
            continue;
        if (!send->packed)
            send->packed = calloc(send->count, sizeof *send->packed);
        if (!send->packed) {
            free(made.bytes);
            return;
        }
        send->packed[i] = made;
        producer_count_packed(send->producer, len, made.len);
    }
}

void send_unpack(struct send *send)
{
    for (size_t i = 0; send->packed && i < send->count; i++)
        free(send->packed[i].bytes);
    free(send->packed);
    send->packed = NULL;
}

struct message_form send_form(const struct send *send, size_t i)
{
    struct message_form form = message_plain_form(send->messages[i]);
    form.topic = send->topic->name;
    form.topic_len = strlen(form.topic);
    const struct compressed *packed = send->packed ? &send->packed[i] : NULL;
    if (packed && packed->bytes) {
        form.body = packed->bytes;
        form.body_len = packed->len;
        form.sys_flag = packed->sys_flag;
    }
    return form;
}
