/*
 * A push consumer's trace records: SubBefore and SubAfter of each message, bound together by a
 * request id per batch.
 *
 * Threads: workers. Failure modes: none that the listener would notice.
 */
#include "client/push_trace.h"

#include <stdlib.h>

#include "client/producer_internal.h"
#include "client/push_internal.h"

enum tern_code push_trace_create(struct tern_push_consumer *consumer, struct tern_error *err)
{
    const struct tern_consumer_options *options = &consumer->options;
    if (!options->trace)
        return TERN_OK;
    struct tern_producer_options *producer = tern_producer_options_create();
    if (!producer)
        return error_set(err, TERN_NO_MEMORY, "trace of group %s", options->group);
    memcpy(producer->namesrv, options->namesrv, sizeof producer->namesrv);
    memcpy(producer->group, options->group, sizeof producer->group);
    memcpy(producer->instance_name, options->instance_name, sizeof producer->instance_name);
    producer->env = options->env;
    producer->link = options->link;
    const struct trace_options trace = {
        .producer = producer, .instance = consumer->instance, .topic = options->trace_topic};
    enum tern_code code = trace_create(&trace, &consumer->trace, err);
    tern_producer_options_destroy(producer);
    return code;
}

static void add(struct tern_push_consumer *consumer, struct tern_message *const *messages,
                uint32_t count, struct trace_record *record)
{
    record->region = TRACE_REGION;
    record->group = consumer->options.group;
    record->time_ms = clock_wall_ms(consumer->env->clock);
    for (uint32_t i = 0; i < count; i++) {
        record->message_id = tern_message_id(messages[i]);
        record->keys = tern_message_keys(messages[i]);
        record->times = tern_message_reconsume_times(messages[i]);
        trace_add(consumer->trace, record);
    }
}

void push_trace_before(struct tern_push_consumer *consumer, struct tern_message *const *messages,
                       uint32_t count, struct push_traced *traced)
{
    if (!consumer->trace)
        return;
    traced->begun_ns = clock_mono_ns(consumer->env->clock);
    id_maker_next(instance_ids(consumer->instance), clock_wall_ms(consumer->env->clock),
                  traced->request_id);
    struct trace_record record = {.kind = TRACE_SUB_BEFORE, .request_id = traced->request_id};
    add(consumer, messages, count, &record);
}

void push_trace_after(struct tern_push_consumer *consumer, struct tern_message *const *messages,
                      uint32_t count, uint32_t done, const struct push_traced *traced, bool expired)
{
    if (!consumer->trace)
        return;
    int64_t took_ns = clock_mono_ns(consumer->env->clock) - traced->begun_ns;
    struct trace_record record = {.kind = TRACE_SUB_AFTER,
                                  .request_id = traced->request_id,
                                  .cost_ms = took_ns / 1000000 / (count ? count : 1)};
    uint32_t consumed = expired ? 0 : done;
    record.success = true;
    record.context = TRACE_CONSUMED;
    add(consumer, messages, consumed, &record);
    record.success = false;
    record.context = expired ? TRACE_TIME_OUT : TRACE_FAILED;
    add(consumer, messages + consumed, count - consumed, &record);
}
