/*
 * A producer's trace records: one per message of a send, one per decided transaction.
 *
 * Threads: any. Failure modes: none that the send would notice.
 */
#include "client/producer_trace.h"

#include "client/producer_internal.h"
#include "client/trace.h"

static enum trace_message_type type_of(const struct tern_message *message)
{
    if (message_is_half(message))
        return TRACE_HALF;
    return message_is_delayed(message) ? TRACE_DELAY : TRACE_NORMAL;
}

static struct trace_record record_of(const struct tern_producer *producer,
                                     const struct tern_message *message)
{
    size_t body_len;
    (void)message_stored_body(message, &body_len);
    return (struct trace_record){.time_ms = clock_wall_ms(producer->env->clock),
                                 .region = TRACE_REGION,
                                 .group = producer->options.group,
                                 .topic = tern_message_topic(message),
                                 .message_id = tern_message_id(message),
                                 .tags = tern_message_tag(message),
                                 .keys = tern_message_keys(message),
                                 .body_bytes = (int64_t)body_len,
                                 .message_type = (int32_t)type_of(message)};
}

void producer_trace_send(const struct send *send)
{
    const struct tern_producer *producer = send->producer;
    if (!producer->trace)
        return;
    int64_t took_ns = clock_mono_ns(producer->env->clock) - send->begun_ns;
    for (size_t i = 0; i < send->count; i++) {
        struct trace_record record = record_of(producer, send->messages[i]);
        record.kind = TRACE_PUB;
        record.time_ms -= took_ns / 1000000;
        record.topic = send->topic->name;
        record.cost_ms = took_ns / 1000000;
        record.success = send->code == TERN_OK;
        record.store_host = send->last_address;
        record.offset_id = record.success && i == 0 ? send->result.offset_id : "";
        trace_add(producer->trace, &record);
    }
}

void producer_trace_end_transaction(struct tern_producer *producer, const char *topic,
                                    const char *message_id, const char *store_host,
                                    const char *state, bool from_check)
{
    if (!producer->trace)
        return;
    bool commit = strcmp(state, "COMMIT_MESSAGE") == 0;
    const struct trace_record record = {.kind = TRACE_END_TRANSACTION,
                                        .time_ms = clock_wall_ms(producer->env->clock),
                                        .region = TRACE_REGION,
                                        .group = producer->options.group,
                                        .topic = topic,
                                        .message_id = message_id,
                                        .store_host = store_host,
                                        .message_type =
                                            (int32_t)(commit ? TRACE_COMMIT : TRACE_HALF),
                                        .transaction_id = message_id,
                                        .transaction_state = state,
                                        .from_check = from_check};
    trace_add(producer->trace, &record);
}
