/*
 * Taking a delayed message back.
 *
 * The offset message id names the broker and the place where the message waits; a message that was
 * put again since (docs/delay.md) is found by the broker from its unique id.
 *
 * Threads: any but a callback's. Failure modes: those of a request; asking again is safe.
 */
#include "client/producer_internal.h"

#include <string.h>

/* The producer is held. */
static enum tern_code cancel_at(struct tern_producer *producer, const char *address,
                                int64_t phys_off, const char *message_id, struct tern_error *err)
{
    Tern__Wire__CancelDelayedRequest body = TERN__WIRE__CANCEL_DELAYED_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_peer *peer;
    body.physical_offset = phys_off;
    body.message_id = frame_bytes(message_id, strlen(message_id));
    request.body_case = TERN__WIRE__REQUEST__BODY_CANCEL_DELAYED;
    request.cancel_delayed = &body;
    enum tern_code code = instance_peer(producer->instance, address, &peer, err);
    if (code != TERN_OK)
        return code;
    code = rpc_call_wait(peer, &request, NULL, 0, producer->options.send_timeout_ms, NULL, err);
    rpc_peer_unref(peer);
    return code;
}

enum tern_code tern_producer_cancel(struct tern_producer *producer,
                                    const struct tern_send_result *result, struct tern_error *err)
{
    char address[HOST_TEXT_BYTES];
    struct host host;
    int64_t phys_off;
    enum tern_code code = producer_may_wait("a cancellation", err);
    if (code != TERN_OK)
        return code;
    if (!result || !memchr(result->offset_id, 0, sizeof result->offset_id) ||
        !memchr(result->message_id, 0, sizeof result->message_id) || !result->message_id[0] ||
        message_id_parse(result->offset_id, &host, &phys_off) != TERN_OK)
        return error_set(err, TERN_INVALID,
                         "the result has no offset_id and message_id: it is not of a message that "
                         "was stored");
    host_format(address, &host);
    code = producer_hold(producer, "a cancellation", err);
    if (code != TERN_OK)
        return code;
    code = cancel_at(producer, address, phys_off, result->message_id, err);
    producer_let_go(producer);
    return code;
}
