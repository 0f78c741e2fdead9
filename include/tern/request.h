/*
 * Request and reply over topics (RocketMQ's Request-Reply): a producer sends a message and waits
 * for the answer that a consumer of that topic sends back to it.
 *
 *   requester ──message──► topic ──► consumer's listener
 *       ▲                               │ tern_reply_message_create(), an ordinary send
 *       └── event, the reply is fetched ◄── <cluster>_REPLY_TOPIC
 *
 * The request goes like every other message: it is stored, and delivered to every group that
 * subscribes to its topic, whether anybody waits for a reply or not. Replies are stored, too; one
 * that comes when nobody waits any more is dropped and counted.
 */
#ifndef TERN_REQUEST_H
#define TERN_REQUEST_H

#include <tern/producer.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Sends the message and waits at most timeout_ms (1…600,000) for its reply; *reply is the caller's:
 * tern_message_unref(). The first reply counts. Sets the message's CORRELATION_ID, REPLY_TO_CLIENT
 * and TTL. Errors: those of tern_producer_send(); TERN_TIMEOUT ("REQUEST_TIMEOUT …": sent, not
 * answered in time; it may still be worked on); TERN_CANCELED: the producer was shut down;
 * TERN_LIMIT: 65,535 requests wait already in this client instance; TERN_STATE: in a callback.
 */
TERN_API enum tern_code tern_producer_request(struct tern_producer *producer,
                                              struct tern_message *message, int64_t timeout_ms,
                                              struct tern_message **reply, struct tern_error *err);

/* code TERN_OK: reply is the callee's. @thread the client's transport or its task: must not wait */
typedef void (*tern_reply_callback)(void *arg, enum tern_code code, struct tern_message *reply,
                                    const struct tern_error *err);
/* The same without waiting: `done` comes exactly once when this returns TERN_OK, else never. */
TERN_API enum tern_code tern_producer_request_async(struct tern_producer *producer,
                                                    struct tern_message *message,
                                                    int64_t timeout_ms, tern_reply_callback done,
                                                    void *arg, struct tern_error *err);

/*
 * The reply to a request that a consumer got, with a copy of the body; to be sent by any producer
 * of the same cluster. *out is the caller's. TERN_INVALID: the message is no request (the text
 * names the property that it lacks), or its cluster's name is none of a topic.
 */
TERN_API enum tern_code tern_reply_message_create(const struct tern_message *request,
                                                  const void *body, size_t body_size,
                                                  struct tern_message **out,
                                                  struct tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
