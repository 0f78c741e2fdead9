/*
 * A message: topic, body, tag, keys, properties (RocketMQ's Message and MessageExt).
 *
 * Messages are reference counted and hold their own bytes. A message that you create has one
 * reference; a message that a consumer hands you is borrowed for the call: tern_message_ref() keeps
 * it longer. Setters may be used only by the creator, before the message is sent; everything else
 * may be called from any thread.
 */
#ifndef TERN_MESSAGE_H
#define TERN_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include <tern/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tern_message;

/* A queue of a topic: the broker set it is on and its number there (RocketMQ's MessageQueue). */
struct tern_queue {
    char topic[128];       /* terminated */
    char broker_name[128]; /* terminated */
    int32_t queue_id;
};

/*
 * Creates a message for `topic` with a copy of body_size bytes (0 is legal, body may then be NULL).
 * *out is the caller's: tern_message_unref().
 * TERN_INVALID: topic's grammar (^[%|a-zA-Z0-9_-]+$, at most 127 bytes) with a text;
 * TERN_NO_MEMORY.
 */
TERN_API enum tern_code tern_message_create(const char *topic, const void *body, size_t body_size,
                                            struct tern_message **out, struct tern_error *err);
TERN_API struct tern_message *tern_message_ref(const struct tern_message *message);
TERN_API void tern_message_unref(struct tern_message *message); /* NULL allowed */

/*
 * Setters copy their text. TERN_INVALID when empty, holding \x01, \x02 or NUL, or (property) a name
 * that is reserved for the system; TERN_TOO_LARGE when all properties together exceed 32,767 bytes.
 */
TERN_API enum tern_code tern_message_set_tag(struct tern_message *message, const char *tag);
/* One or several keys separated by spaces. */
TERN_API enum tern_code tern_message_set_keys(struct tern_message *message, const char *keys);
TERN_API enum tern_code tern_message_set_property(struct tern_message *message, const char *name,
                                                  const char *value);
/* The application's own 32 bits. */
TERN_API void tern_message_set_flag(struct tern_message *message, int32_t flag);
/*
 * When the message is to be delivered; the last of these calls counts. It is sent at once and waits
 * at its broker, durably (docs/delay.md); tern_producer_cancel() takes it back. Delayed messages
 * travel alone: not in batches. TERN_INVALID on a received message.
 *
 * Level: RocketMQ's, 0 none, n the n-th of the broker's messageDelayLevel (1…18 for 1s … 2h unless
 * that was changed; it has 64 at most). One above the broker's last counts as its last, as in
 * RocketMQ. TERN_INVALID outside 0…64.
 */
TERN_API enum tern_code tern_message_set_delay_level(struct tern_message *message, int level);
/* At a time, ms since 1970 by the broker's clock (RocketMQ: setDeliverTimeMs); 0: no delay. A time
 * in the past is no delay; one beyond the broker's timerMaxDelay (40 days) is refused when it is
 * sent, MESSAGE_ILLEGAL. TERN_INVALID: negative. */
TERN_API enum tern_code tern_message_set_deliver_at_ms(struct tern_message *message,
                                                       int64_t wall_ms);
/* So long after the broker has it (RocketMQ: setDelayTimeMs); else as above. */
TERN_API enum tern_code tern_message_set_delay_ms(struct tern_message *message, int64_t delay_ms);
/* false: the broker answers as soon as the message is appended, whatever its flush mode. Default
 * true. */
TERN_API void tern_message_set_wait_store_ok(struct tern_message *message, bool wait);

/* Texts and bytes are borrowed from the message. */
TERN_API const char *tern_message_topic(const struct tern_message *message);
TERN_API const void *tern_message_body(const struct tern_message *message, size_t *size);
/*
 * Opens a received body that was compressed, as the first tern_message_body() does, and says
 * whether that went well: TERN_CORRUPT (damaged), TERN_TOO_LARGE (more than the consumer's
 * max_body_bytes), TERN_NOT_SUPPORTED (an unknown type), TERN_NO_MEMORY; then tern_message_body()
 * gives the bytes as they are stored. TERN_OK at once for every other message.
 */
TERN_API enum tern_code tern_message_open(const struct tern_message *message,
                                          struct tern_error *err);
TERN_API const char *tern_message_tag(const struct tern_message *message);  /* NULL: none */
TERN_API const char *tern_message_keys(const struct tern_message *message); /* NULL: none */
/* NULL when absent. Walking: the i-th pair, false at the end. */
TERN_API const char *tern_message_property(const struct tern_message *message, const char *name);
TERN_API bool tern_message_property_at(const struct tern_message *message, size_t index,
                                       const char **name, const char **value);
TERN_API int32_t tern_message_flag(const struct tern_message *message);
TERN_API int tern_message_delay_level(const struct tern_message *message);

/*
 * The client's unique id, 32 or 56 hex characters (RocketMQ's UNIQ_KEY); set when sent, "" before.
 * Consumers show it as the message id; tern_message_offset_id() names the place in the log instead.
 */
TERN_API const char *tern_message_id(const struct tern_message *message);

/* Of a received message; 0 or "" on one that was made here. */
TERN_API const char *tern_message_offset_id(const struct tern_message *message);
TERN_API const char *tern_message_broker_name(const struct tern_message *message);
TERN_API int32_t tern_message_queue_id(const struct tern_message *message);
TERN_API int64_t tern_message_queue_offset(const struct tern_message *message);
TERN_API int64_t tern_message_physical_offset(const struct tern_message *message);
TERN_API int64_t tern_message_born_ms(const struct tern_message *message); /* sender's wall clock */
TERN_API int64_t
tern_message_store_ms(const struct tern_message *message); /* broker's wall clock */
TERN_API const char *tern_message_born_host(const struct tern_message *message);
TERN_API const char *tern_message_store_host(const struct tern_message *message);
TERN_API int tern_message_reconsume_times(const struct tern_message *message);
TERN_API uint32_t tern_message_sys_flag(const struct tern_message *message);

#ifdef __cplusplus
}
#endif
#endif
