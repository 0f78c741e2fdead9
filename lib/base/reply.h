/*
 * Names of request and reply (RocketMQ's Request-Reply), for both ends of it: clients and the
 * broker that tells a requester of a stored reply.
 */
#ifndef BASE_REPLY_H
#define BASE_REPLY_H

#define REPLY_TOPIC_SUFFIX "_REPLY_TOPIC" /* behind the cluster's name: where replies go */

#define PROP_MSG_TYPE "MSG_TYPE"
#define MSG_TYPE_REPLY "reply"
#define PROP_CORRELATION_ID "CORRELATION_ID"
#define PROP_REPLY_TO_CLIENT "REPLY_TO_CLIENT"
#define PROP_TTL "TTL"

#endif
