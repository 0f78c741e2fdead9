/*
 * Many messages as parts that each fit into one frame.
 *
 *   messages ──cut──► part, part, … ──one after the other──► results
 *                                     └── the first that fails ends it
 *
 * Invariants: a part is what tern_producer_send_batch() would take; the order of the messages is
 * the order of the parts. The cut is a pure function of the messages and the limit.
 *
 * Threads: any that may wait. Failure modes: see the header; nothing is sent when a message could
 * not be sent at all.
 */
#include "client/producer_internal.h"

#include <string.h>

static bool travels_alone(const struct tern_message *message)
{
    return message_is_delayed(message) || strncmp(tern_message_topic(message), RETRY_TOPIC_PREFIX,
                                                  sizeof RETRY_TOPIC_PREFIX - 1) == 0;
}

/* Whether `next` may join a part that begins with `first`. */
static bool may_join(const struct tern_message *first, const struct tern_message *next)
{
    return !travels_alone(first) && !travels_alone(next) &&
           message_wait_store_ok(first) == message_wait_store_ok(next) &&
           strcmp(tern_message_topic(first), tern_message_topic(next)) == 0;
}

/* What a message takes of a frame: its record, and the id that it has not got yet perhaps. */
static size_t size_in_frame(const struct tern_message *message)
{
    enum { ID_PAIR_BYTES = 42 };
    return message_record_size(message, NULL, 0, false, false) +
           (tern_message_id(message)[0] ? 0 : ID_PAIR_BYTES);
}

size_t producer_cut_part(struct tern_message *const *messages, size_t count, int64_t most_bytes)
{
    size_t taken = 1;
    size_t size = size_in_frame(messages[0]);
    while (taken < count && taken < BATCH_MESSAGES_MAX && may_join(messages[0], messages[taken])) {
        size += size_in_frame(messages[taken]);
        if ((int64_t)size > most_bytes)
            break;
        taken++;
    }
    return taken;
}

static enum tern_code check_each(const struct tern_producer *producer,
                                 struct tern_message *const *messages, size_t count,
                                 struct tern_error *err)
{
    if (!messages || count == 0)
        return error_set(err, TERN_INVALID, "no messages");
    for (size_t i = 0; i < count; i++) {
        struct tern_error why = {.code = TERN_OK};
        enum tern_code code = messages[i] ? producer_check_message(producer, messages[i], &why)
                                          : error_set(&why, TERN_INVALID, "is NULL");
        if (code != TERN_OK)
            return error_set(err, code, "message %zu of %zu: %s", i, count, why.text);
    }
    return TERN_OK;
}

/* Spreads a part's result over its messages. */
static void spread(struct tern_send_result *results, struct tern_message *const *messages,
                   size_t count, const struct tern_send_result *part)
{
    for (size_t i = 0; i < count; i++) {
        results[i] = *part;
        results[i].queue_offset = part->queue_offset + (int64_t)i;
        const char *id = tern_message_id(messages[i]);
        memcpy(results[i].message_id, id, strlen(id) + 1);
        if (i > 0)
            results[i].offset_id[0] = 0;
    }
}

enum tern_code tern_producer_send_all(struct tern_producer *producer,
                                      struct tern_message *const *messages, size_t count,
                                      const struct tern_queue *queue,
                                      struct tern_send_result *results, size_t *stored,
                                      struct tern_error *err)
{
    size_t done = 0;
    if (stored)
        *stored = 0;
    enum tern_code code = check_each(producer, messages, count, err);
    for (size_t i = 0; results && i < count; i++)
        results[i] = (struct tern_send_result){.status = TERN_CANCELED};
    while (code == TERN_OK && done < count) {
        struct tern_send_result part = {.status = TERN_OK};
        size_t taken =
            producer_cut_part(messages + done, count - done, producer->options.max_message_bytes);
        code = tern_producer_send_batch(producer, messages + done, taken, queue, &part, err);
        if (code == TERN_OK && results)
            spread(results + done, messages + done, taken, &part);
        for (size_t i = 0; code != TERN_OK && results && i < taken; i++)
            results[done + i].status = code;
        if (code == TERN_OK)
            done += taken;
    }
    if (stored)
        *stored = done;
    return code;
}
