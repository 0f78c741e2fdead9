/*
 * What both ways of sending share: checked target, append, wait for durability, answer.
 */
#ifndef BROKER_HANDLERS_SEND_H
#define BROKER_HANDLERS_SEND_H

#include "broker/ack_wait.h"
#include "broker/handlers/handlers.h"
#include "broker/tx/tx.h"

/* A send on its way; lives in its request's memory until the answer. */
struct send {
    struct broker *broker;
    struct rpc_request *request;
    const char *topic; /* terminated, checked */
    size_t topic_len;
    int32_t queue_id;        /* decided */
    bool no_wait;            /* WAIT=false: answer when appended */
    int64_t stage_ns;        /* when its present stage began, see stages.h */
    struct tx_sending *half; /* it is a half message; NULL: it is none */
    struct store_append append;
    struct ack_entry ack;
};

/* Target of a send as it came. */
struct send_target {
    ProtobufCBinaryData topic, default_topic;
    int32_t queue_id;
    int32_t default_topic_queues;
};

/*
 * Checks broker, topic, permission and queue. On success *out is filled but for the append's
 * records. On failure the request was answered, or handed to the admin lane to create the topic and
 * be handled again: NULL comes back and the caller returns.
 */
struct send *send_begin(struct broker *broker, struct rpc_request *request,
                        const struct send_target *target);

/*
 * A plain send to a %RETRY% topic: target and properties become those of the copy, beyond the limit
 * a dead letter's. Other topics: nothing changes. false: the request was answered, or handed to the
 * admin lane to make the topic and be handled again (send_retry.c).
 */
bool send_retry(struct broker *broker, struct rpc_request *request, struct send_target *target,
                ProtobufCBinaryData *props);

/* When whoever waits for durability is to be answered: before the sender gives up, or a stored
 * message looks like a failure (HA-12). */
int64_t send_deadline_ns(const struct broker *broker, const struct rpc_request *request);

/* Appends whole, checked records of the send's queue; answers the request in time. Takes
 * everything. */
void send_append(struct send *send, uint8_t *records, size_t size_bytes, uint32_t count);

/*
 * transaction.c: makes the send one of a half message: its queue, and its properties (in
 * RECORD_PROPS_MAX bytes of room). After true send_append() must follow; on failure the request was
 * answered, the queue is still the caller's.
 */
bool transaction_begin(struct send *send, uint8_t *props, size_t *props_len);

/* reply.c: after messages were appended to the reply topic, tells whoever waits for them. */
void send_post_replies(const struct send *send);

#endif
