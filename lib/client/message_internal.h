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

/*
 * Size and bytes of the message as a prepared record for a cluster, with WAIT left out and CLUSTER
 * added.
 */
size_t message_record_size(const struct tern_message *message, size_t cluster_len, bool born_v6,
                           bool store_v6);
size_t message_encode_record(const struct tern_message *message, const char *cluster,
                             size_t cluster_len, bool born_v6, bool store_v6, int32_t queue_id,
                             int64_t born_ms, uint8_t *dst, size_t cap);

/* Whether the properties of such a record stay within RECORD_PROPS_MAX. */
bool message_props_fit_record(const struct tern_message *message, size_t cluster_len);

/* Raw properties of the message as it would travel; borrowed. */
const uint8_t *message_props(const struct tern_message *message, size_t *len);
bool message_wait_store_ok(const struct tern_message *message);
/* Came from a broker: it cannot be sent again. */
bool message_is_received(const struct tern_message *message);
bool message_is_delayed(const struct tern_message *message);

#endif
