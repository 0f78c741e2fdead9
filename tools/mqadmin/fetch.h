/*
 * The requests that several commands make, one function each: a broker's address in, its answer
 * out. *call is set whatever happens, to be unref'd (NULL allowed); its body is of the right kind
 * when the code is TERN_OK. @blocks until the answer, at most ADMIN_TIMEOUT_MS
 */
#ifndef MQADMIN_FETCH_H
#define MQADMIN_FETCH_H

#include "tools/mqadmin/command.h"

/* Any request whose answer must have this body. */
MUST_CHECK enum tern_code fetch(struct invocation *invocation, const char *address,
                                TernRequest *request, Tern__Wire__Response__BodyCase body,
                                struct rpc_call **call, struct tern_error *err);
/* group, topic: NULL for all. */
MUST_CHECK enum tern_code fetch_progress(struct invocation *invocation, const char *address,
                                         const char *group, const char *topic,
                                         struct rpc_call **call, struct tern_error *err);
MUST_CHECK enum tern_code fetch_members(struct invocation *invocation, const char *address,
                                        const char *group, struct rpc_call **call,
                                        struct tern_error *err);
MUST_CHECK enum tern_code fetch_topic_stats(struct invocation *invocation, const char *address,
                                            const char *topic, struct rpc_call **call,
                                            struct tern_error *err);
MUST_CHECK enum tern_code fetch_topics(struct invocation *invocation, const char *address,
                                       struct rpc_call **call, struct tern_error *err);
MUST_CHECK enum tern_code fetch_groups(struct invocation *invocation, const char *address,
                                       struct rpc_call **call, struct tern_error *err);
MUST_CHECK enum tern_code fetch_status(struct invocation *invocation, const char *address,
                                       struct rpc_call **call, struct tern_error *err);
MUST_CHECK enum tern_code fetch_config(struct invocation *invocation, const char *address,
                                       struct rpc_call **call, struct tern_error *err);
/* The nameserver's. */
MUST_CHECK enum tern_code fetch_route(struct invocation *invocation, const char *topic,
                                      struct rpc_call **call, struct tern_error *err);
/* The topics that the nameserver knows, of a cluster or (NULL) of all. */
MUST_CHECK enum tern_code fetch_topic_list(struct invocation *invocation, const char *cluster,
                                           struct rpc_call **call, struct tern_error *err);
/* Progress where a group stands is sought by time; -1: the queue's end. */
MUST_CHECK enum tern_code fetch_offset_by_time(struct invocation *invocation, const char *address,
                                               const char *topic, int32_t queue_id, int64_t wall_ms,
                                               int64_t *offset, struct tern_error *err);
/* Messages by key or unique id, at most 64; QUERY_NOT_FOUND has the body, too. */
MUST_CHECK enum tern_code fetch_by_key(struct invocation *invocation, const char *address,
                                       const char *topic, const char *key, struct rpc_call **call,
                                       struct tern_error *err);
/*
 * The record that an offset message id names. From the broker at the id's address; when that one is
 * silent, from any other that has a copy of the very record: a set's members hold the same bytes.
 * *from: who answered (id -1 and no name: the address itself). TERN_INVALID: no such id. A failure
 * other than QUERY_NOT_FOUND says whether others were asked. @blocks once for each broker asked
 */
MUST_CHECK enum tern_code fetch_by_id(struct invocation *invocation, const char *id,
                                      struct admin_broker *from, struct rpc_call **call,
                                      struct tern_error *err);
/* Messages of a queue from an offset, not waiting; PULL_… codes have the body, too. */
MUST_CHECK enum tern_code fetch_pull(struct invocation *invocation, const char *address,
                                     const char *topic, int32_t queue_id, int64_t offset,
                                     int32_t max_count, const char *expression,
                                     struct rpc_call **call, struct tern_error *err);

/* The value of a status key, or NULL. */
const char *status_value(const struct rpc_call *status, const char *key);
int64_t status_number(const struct rpc_call *status, const char *key, int64_t fallback);

/* A name of the wire against a text. */
bool wire_is(const ProtobufCBinaryData *name, const char *text);
/* A name of the wire as a terminated text, cut to `size`. */
void wire_text(char *out, size_t size, const ProtobufCBinaryData *name);
/* host:port as text; "-" when it is none. */
void wire_address(char out[HOST_TEXT_BYTES], const Tern__Wire__Address *address);

#endif
