/*
 * The body that an application sees: what was stored, or what that opens to when it is compressed.
 *
 *   stored ──tern_message_open() or the first tern_message_body()──► opened, kept with the message
 *              └── damaged, too large: remembered; the stored bytes are what there is
 *
 * A push consumer opens in the worker that will run the listener, never on the transport's thread;
 * messages that nobody looks at (filtered out, dropped) are never opened.
 *
 * Invariants: `opened` changes once, from NULL; two first readers may both open it, one result
 * stays. Without memory nothing is remembered: the next reader tries again.
 *
 * Threads: any.
 */
#include "client/message_struct.h"

#include <stdlib.h>

#include "client/compress.h"
#include "client/message_internal.h"

void opened_body_free(struct opened_body *opened)
{
    if (!opened)
        return;
    free(opened->bytes);
    free(opened);
}

/* Opens and publishes; NULL without memory. */
static const struct opened_body *open_body(struct tern_message *m)
{
    struct opened_body *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    size_t most = m->open_max ? m->open_max : COMPRESS_BODY_MAX;
    made->code = decompress_body(m->sys_flag, m->body, m->body_len, most, &made->bytes, &made->len,
                                 &made->err);
    if (made->code == TERN_NO_MEMORY) {
        opened_body_free(made);
        return NULL;
    }
    struct opened_body *expected = NULL;
    if (!atomic_compare_exchange_strong(&m->opened, &expected, made)) {
        opened_body_free(made);
        made = expected;
    }
    return made;
}

static bool is_compressed(const struct tern_message *message)
{
    return message->received && message->sys_flag & SYS_COMPRESSED;
}

static const struct opened_body *opened_of(const struct tern_message *message)
{
    struct tern_message *m = (struct tern_message *)(uintptr_t)message;
    const struct opened_body *opened = atomic_load_explicit(&m->opened, memory_order_acquire);
    return opened ? opened : open_body(m);
}

enum tern_code tern_message_open(const struct tern_message *message, struct tern_error *err)
{
    if (!is_compressed(message))
        return TERN_OK;
    const struct opened_body *opened = opened_of(message);
    if (!opened)
        return error_set(err, TERN_NO_MEMORY, "opening a compressed body of %u bytes",
                         (unsigned)message->body_len);
    if (opened->code != TERN_OK)
        return error_set(err, opened->code, "%s", opened->err.text);
    return TERN_OK;
}

const void *tern_message_body(const struct tern_message *message, size_t *size)
{
    if (is_compressed(message)) {
        const struct opened_body *opened = opened_of(message);
        if (opened && opened->code == TERN_OK) {
            *size = opened->len;
            return opened->bytes;
        }
    }
    *size = message->body_len;
    return message->body;
}

const uint8_t *message_stored_body(const struct tern_message *message, size_t *size)
{
    *size = message->body_len;
    return message->body;
}

void message_limit_body(struct tern_message *message, size_t most)
{
    message->open_max = (uint32_t)most;
}
