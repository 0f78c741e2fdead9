/* Sends of tests. Threads: one. Failure modes: aborts. */
#include "sending.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

struct tern_message *message(const char *topic, const char *body)
{
    struct tern_message *m;
    ENSURE(tern_message_create(topic, body, strlen(body), &m, NULL) == TERN_OK);
    return m;
}

enum tern_code send_one(struct tern_producer *producer, const char *topic, const char *body,
                        struct tern_send_result *result, struct tern_error *err)
{
    struct tern_message *m = message(topic, body);
    enum tern_code code = tern_producer_send(producer, m, result, err);
    tern_message_unref(m);
    return code;
}

void note(void *arg, enum tern_code code, const struct tern_send_result *result,
          const struct tern_error *err)
{
    struct outcome *outcome = arg;
    outcome->calls++;
    outcome->code = code;
    if (outcome->world)
        outcome->at_ns = clock_mono_ns(outcome->world->sim.env.clock);
    if (result)
        outcome->result = *result;
    if (err)
        snprintf(outcome->text, sizeof outcome->text, "%.199s", err->text);
}

enum tern_code send_async(struct tern_producer *producer, const char *body,
                          const struct tern_queue *queue, struct outcome *outcome)
{
    struct tern_message *m = message("T", body);
    enum tern_code code = tern_producer_send_async(producer, &m, 1, queue, note, outcome, NULL);
    tern_message_unref(m);
    return code;
}

struct tern_queue queue_of(const char *broker, int32_t id)
{
    struct tern_queue queue = {.topic = "T", .queue_id = id};
    snprintf(queue.broker_name, sizeof queue.broker_name, "%s", broker);
    return queue;
}
