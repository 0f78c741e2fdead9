/* Inside a message: how the client library makes, encodes and decodes them. */
#ifndef CLIENT_MESSAGE_INTERNAL_H
#define CLIENT_MESSAGE_INTERNAL_H

#include <tern/message.h>

#include "base/record.h"
#include "rpc/client.h"

/*
 * Decodes the records of a pull answer: one message per whole record, topics and queue as in the
 * record. The messages share one copy of the bytes: they may outlive the call (`owner`, not looked
 * at), its connection and the client. Fills up to cap; *count. A damaged record ends it with
 * TERN_CORRUPT and what came before stays.
 */
MUST_CHECK enum tern_code message_decode_all(struct rpc_call *owner, const uint8_t *records,
                                             size_t size, const char *broker_name,
                                             struct tern_message **messages, size_t cap,
                                             size_t *count, struct tern_error *err);

/* Gives the message its unique id when it has none (RocketMQ's UNIQ_KEY). */
void message_ensure_id(struct tern_message *message, const struct env *env);

/* How a message travels where that is not what the application made; all is borrowed. */
struct message_form {
    const char *topic; /* with its namespace */
    size_t topic_len;
    const uint8_t *body; /* compressed, perhaps */
    size_t body_len;
    uint32_t sys_flag; /* says so */
};
/* The form of a message that travels as it is. */
struct message_form message_plain_form(const struct tern_message *message);

/*
 * Size and bytes of the message as a prepared record for a cluster, with WAIT left out and CLUSTER
 * added. form NULL: as it is.
 */
size_t message_record_size(const struct tern_message *message, const struct message_form *form,
                           size_t cluster_len, bool born_v6, bool store_v6);
size_t message_encode_record(const struct tern_message *message, const struct message_form *form,
                             const char *cluster, size_t cluster_len, bool born_v6, bool store_v6,
                             int32_t queue_id, int64_t born_ms, uint8_t *dst, size_t cap);

/* The body as it was sent or received, never opened; borrowed. */
const uint8_t *message_stored_body(const struct tern_message *message, size_t *size);
/* A received message's body opens to at most so many bytes. Before anybody else has the message. */
void message_limit_body(struct tern_message *message, size_t most);

/* Whether the properties of such a record stay within RECORD_PROPS_MAX. */
bool message_props_fit_record(const struct tern_message *message, size_t cluster_len);

/* Raw properties of the message as it would travel; borrowed. */
const uint8_t *message_props(const struct tern_message *message, size_t *len);
bool message_wait_store_ok(const struct tern_message *message);
/* Came from a broker: it cannot be sent again. */
bool message_is_received(const struct tern_message *message);
bool message_is_delayed(const struct tern_message *message);
/* Its topic is a whole one: no namespace is put before it. */
bool message_topic_is_absolute(const struct tern_message *message);
void message_topic_set_absolute(struct tern_message *message);
/* The topic with its namespace, as the record has it; terminated, borrowed. */
const char *message_wire_topic(const struct tern_message *message);
/* A received message shows its topic without this namespace. Before anybody else has it. */
void message_hide_namespace(struct tern_message *message, const char *ns);

/* A property that applications may not set. As the setters; by the message's sender only. */
MUST_CHECK enum tern_code message_set_reserved(struct tern_message *message, const char *name,
                                               const char *value);
/* The text of a failure to set such properties: with the limit, when that is the cause. whose: "a
 * request", … Returns code. */
enum tern_code message_reserved_failed(const struct tern_message *message, const char *whose,
                                       enum tern_code code, struct tern_error *err);
void message_remove_reserved(struct tern_message *message, const char *name);

/* ---- message_half.c: messages of transactions ---- */
/* Makes it a half message of this producer group, and none again; by its sender only. */
MUST_CHECK enum tern_code message_mark_half(struct tern_message *message, const char *group,
                                            struct tern_error *err);
void message_unmark_half(struct tern_message *message);
bool message_is_half(const struct tern_message *message);
/* A received half message gets the topic and queue that it was sent to; before anybody has it. */
void message_restore_half(struct tern_message *message);

#endif
