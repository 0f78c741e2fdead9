/*
 * The public send calls: they check what was given, make a send, and wait for its end or not.
 *
 * A synchronous call is an asynchronous one with a latch, so both take the same way and both run in
 * simulation, where waiting means running the rest of the world.
 *
 * Threads: any. Within a callback the waiting calls refuse with TERN_STATE, since the thread that
 * they would wait for is their own. Failure modes: everything wrong with the arguments is found
 * here, before a send is made; a message then has its id or not, nothing else of it changed.
 */
#include "client/producer_internal.h"

#include <stdlib.h>
#include <string.h>

static _Thread_local unsigned callback_depth;

bool producer_in_callback(void)
{
    return callback_depth > 0;
}

void producer_call_back(const struct send *send)
{
    if (!send->done)
        return;
    bool good = send->code == TERN_OK;
    callback_depth++;
    send->done(send->arg, send->code, good ? &send->result : NULL, good ? NULL : &send->err);
    callback_depth--;
}

void producer_callback_begin(void)
{
    callback_depth++;
}

void producer_callback_end(void)
{
    callback_depth--;
}

enum tern_code producer_may_wait(const char *call, struct tern_error *err)
{
    if (!producer_in_callback())
        return TERN_OK;
    return error_set(err, TERN_STATE,
                     "%s waits and must not be called in a callback; use an asynchronous send",
                     call);
}

/* ---- checking ---- */

static enum tern_code check_queue(const char *topic, const struct tern_queue *queue,
                                  struct tern_error *err)
{
    if (strncmp(queue->topic, topic, sizeof queue->topic) != 0)
        return error_set(err, TERN_INVALID, "the queue is of topic %.127s, the message of %s",
                         queue->topic, topic);
    if (queue->queue_id < 0)
        return error_set(err, TERN_INVALID, "queue id %d is negative", (int)queue->queue_id);
    return broker_name_check(queue->broker_name,
                             strnlen(queue->broker_name, sizeof queue->broker_name), err);
}

static enum tern_code check_topic(const char *topic, size_t count, struct tern_error *err)
{
    if (topic_send_forbidden(topic, strlen(topic)))
        return error_set(err, TERN_INVALID, "sending to the system topic %s is forbidden", topic);
    if (count > 1 && strncmp(topic, RETRY_TOPIC_PREFIX, sizeof RETRY_TOPIC_PREFIX - 1) == 0)
        return error_set(err, TERN_INVALID, "a batch to the retry topic %s is not supported",
                         topic);
    return TERN_OK;
}

enum tern_code producer_check_message(const struct tern_producer *producer,
                                      const struct tern_message *message, struct tern_error *err)
{
    size_t body_len;
    (void)message_stored_body(message, &body_len);
    if (message_is_received(message))
        return error_set(err, TERN_INVALID,
                         "a received message cannot be sent; make a new one from its parts");
    if ((int64_t)body_len > producer->options.max_message_bytes)
        return error_set(err, TERN_TOO_LARGE,
                         "the body has %zu bytes, max_message_bytes of this producer is %lld",
                         body_len, (long long)producer->options.max_message_bytes);
    return TERN_OK;
}

/* One message, also against the first of its batch. */
static enum tern_code check_message(const struct tern_producer *producer,
                                    const struct tern_message *message,
                                    const struct tern_message *first, size_t count,
                                    struct tern_error *err)
{
    enum tern_code code = producer_check_message(producer, message, err);
    if (code != TERN_OK || count == 1)
        return code;
    if (strcmp(tern_message_topic(message), tern_message_topic(first)) != 0)
        return error_set(err, TERN_INVALID, "a batch of two topics: %s and %s",
                         tern_message_topic(first), tern_message_topic(message));
    if (message_is_delayed(message))
        return error_set(err, TERN_INVALID, "a batch holds a message with a delay level");
    if (message_wait_store_ok(message) != message_wait_store_ok(first))
        return error_set(err, TERN_INVALID, "a batch holds messages with and without WAIT");
    return TERN_OK;
}

/* Checks the messages of one send and gives them their ids. */
static enum tern_code check_all(struct tern_producer *producer,
                                struct tern_message *const *messages, size_t count,
                                const struct tern_queue *queue, struct tern_error *err)
{
    if (!messages || count == 0 || count > BATCH_MESSAGES_MAX)
        return error_set(err, TERN_INVALID, "%zu messages in one send, allowed 1..%d", count,
                         (int)BATCH_MESSAGES_MAX);
    for (size_t i = 0; i < count; i++)
        if (!messages[i])
            return error_set(err, TERN_INVALID, "message %zu is NULL", i);
    const char *topic = tern_message_topic(messages[0]);
    enum tern_code code = check_topic(topic, count, err);
    if (code == TERN_OK && queue)
        code = check_queue(topic, queue, err);
    int64_t wall_ms = clock_wall_ms(producer->env->clock);
    struct id_maker *ids = instance_ids(producer->instance);
    size_t total = 0;
    for (size_t i = 0; i < count && code == TERN_OK; i++) {
        code = check_message(producer, messages[i], messages[0], count, err);
        if (code != TERN_OK)
            break;
        message_assign_id(messages[i], ids, wall_ms);
        total += message_record_size(messages[i], NULL, 0, false, false);
    }
    if (code == TERN_OK && count > 1 && (int64_t)total > producer->options.max_message_bytes)
        return error_set(err, TERN_TOO_LARGE,
                         "a batch of %zu messages takes %zu bytes, more than the %lld of one "
                         "message; split it, or use tern_producer_send_all()",
                         count, total, (long long)producer->options.max_message_bytes);
    return code;
}

/* ---- sending ---- */

/* The topic as the cluster knows it. */
static enum tern_code wire_topic(const struct tern_producer *producer,
                                 const struct tern_message *message, char *out,
                                 struct tern_error *err)
{
    const char *ns = message_topic_is_absolute(message) ? "" : producer->options.ns;
    return namespace_wrap(ns, tern_message_topic(message), TOPIC_NAME_MAX, out, err);
}

struct send_request {
    struct tern_message *const *messages;
    size_t count;
    const struct tern_queue *queue; /* NULL: round robin */
    tern_send_callback done;        /* NULL: oneway */
    void *arg;
    bool counted, hold;
};

static enum tern_code start_send(struct tern_producer *producer, const struct send_request *request,
                                 struct tern_error *err)
{
    struct send *send;
    struct send_topic *topic;
    struct send_broker *broker = NULL;
    char name[TOPIC_NAME_MAX + 1];
    enum tern_code code =
        check_all(producer, request->messages, request->count, request->queue, err);
    if (code == TERN_OK)
        code = wire_topic(producer, request->messages[0], name, err);
    if (code == TERN_OK)
        code = send_topic_get(producer, name, &topic, err);
    if (code == TERN_OK && request->queue) {
        code = send_broker_get(producer, request->queue->broker_name, &broker);
        if (code != TERN_OK)
            error_set(err, code, "broker %s", request->queue->broker_name);
    }
    if (code == TERN_OK)
        code = send_create(producer, request->messages, request->count, request->counted,
                           request->hold, &send, err);
    if (code != TERN_OK)
        return code;
    send->topic = topic;
    send->done = request->done;
    send->arg = request->arg;
    send->oneway = !request->done;
    if (request->queue)
        send->named = *request->queue;
    send_pack(send);
    return send_submit(send, broker, err);
}

struct sync_send {
    struct sched *sched;
    struct latch latch;
    enum tern_code code;
    struct tern_send_result *result;
    struct tern_error *err;
};

static void sync_done(void *arg, enum tern_code code, const struct tern_send_result *result,
                      const struct tern_error *err)
{
    struct sync_send *sync = arg;
    sync->code = code;
    if (result && sync->result)
        *sync->result = *result;
    if (err && sync->err)
        *sync->err = *err;
    latch_set(sync->sched, &sync->latch);
}

static enum tern_code send_and_wait(struct tern_producer *producer,
                                    struct tern_message *const *messages, size_t count,
                                    const struct tern_queue *queue, struct tern_send_result *result,
                                    struct tern_error *err)
{
    struct sync_send sync = {.sched = producer->env->sched, .result = result, .err = err};
    struct send_request request = {
        .messages = messages, .count = count, .queue = queue, .done = sync_done, .arg = &sync};
    enum tern_code code = producer_may_wait("a synchronous send", err);
    latch_init(&sync.latch);
    if (code == TERN_OK)
        code = start_send(producer, &request, err);
    if (code != TERN_OK)
        return code;
    /* The send ends by its own deadline; the latch must not be left before. */
    bool set = latch_wait(producer->env->sched, &sync.latch, SCHED_NEVER);
    ENSURE(set);
    return sync.code;
}

enum tern_code tern_producer_send(struct tern_producer *producer, struct tern_message *message,
                                  struct tern_send_result *result, struct tern_error *err)
{
    return send_and_wait(producer, &message, 1, NULL, result, err);
}

enum tern_code tern_producer_send_to(struct tern_producer *producer, struct tern_message *message,
                                     const struct tern_queue *queue,
                                     struct tern_send_result *result, struct tern_error *err)
{
    if (!queue)
        return error_set(err, TERN_INVALID, "queue is NULL");
    return send_and_wait(producer, &message, 1, queue, result, err);
}

enum tern_code tern_producer_send_batch(struct tern_producer *producer,
                                        struct tern_message *const *messages, size_t count,
                                        const struct tern_queue *queue,
                                        struct tern_send_result *result, struct tern_error *err)
{
    return send_and_wait(producer, messages, count, queue, result, err);
}

enum tern_code tern_producer_send_async(struct tern_producer *producer,
                                        struct tern_message *const *messages, size_t count,
                                        const struct tern_queue *queue, tern_send_callback done,
                                        void *arg, struct tern_error *err)
{
    struct send_request request = {.messages = messages,
                                   .count = count,
                                   .queue = queue,
                                   .done = done,
                                   .arg = arg,
                                   .counted = true,
                                   .hold = true};
    if (!done)
        return error_set(err, TERN_INVALID, "done is NULL; use tern_producer_send_oneway()");
    return start_send(producer, &request, err);
}

/* ---- calls that need the route first ---- */

/* All that follows has the producer held: a shutdown waits for it. */

/* name: as the cluster knows the topic. */
static enum tern_code wait_for_publish(struct tern_producer *producer, const char *name,
                                       bool default_topic, struct publish **out,
                                       struct tern_error *err)
{
    int64_t deadline_ns =
        clock_mono_ns(producer->env->clock) + ms_to_ns(producer->options.send_timeout_ms);
    struct send_topic *row;
    enum tern_code code = send_topic_get(producer, name, &row, err);
    if (code != TERN_OK)
        return code;
    return publish_wait(producer, row, default_topic, deadline_ns, out, err);
}

/* Where the message may go; TERN_OK: there is a queue. */
static enum tern_code wait_for_queues(struct tern_producer *producer,
                                      const struct tern_message *message, struct publish **out,
                                      struct tern_error *err)
{
    char name[TOPIC_NAME_MAX + 1];
    enum tern_code code = wire_topic(producer, message, name, err);
    if (code == TERN_OK)
        code = wait_for_publish(producer, name, true, out, err);
    if (code != TERN_OK || (*out)->queue_count > 0)
        return code;
    code = publish_no_queue(*out, tern_message_topic(message), err);
    publish_unref(*out);
    return code;
}

enum tern_code tern_producer_send_oneway(struct tern_producer *producer,
                                         struct tern_message *message, struct tern_error *err)
{
    struct send_request request = {.messages = &message, .count = 1, .counted = true, .hold = true};
    enum tern_code code = check_all(producer, &message, 1, NULL, err);
    if (code == TERN_OK)
        code = producer_hold(producer, "send", err);
    if (code != TERN_OK)
        return code;
    /* Nobody would learn of an unknown topic later. */
    if (!producer_in_callback()) {
        struct publish *publish;
        code = wait_for_queues(producer, message, &publish, err);
        if (code == TERN_OK)
            publish_unref(publish);
    }
    if (code == TERN_OK)
        code = start_send(producer, &request, err);
    producer_let_go(producer);
    return code;
}

/* The queues as the application knows them. NULL: as they are. */
static struct tern_queue *shown_queues(const struct tern_producer *producer,
                                       const struct publish *publish)
{
    struct tern_queue *shown = malloc((publish->queue_count + 1) * sizeof *shown);
    if (!shown)
        return NULL;
    memcpy(shown, publish->queues, publish->queue_count * sizeof *shown);
    for (size_t i = 0; i < publish->queue_count; i++)
        namespace_strip(producer->options.ns, shown[i].topic);
    return shown;
}

static enum tern_code select_queue(const struct tern_producer *producer,
                                   const struct publish *publish,
                                   const struct tern_message *message, tern_queue_selector selector,
                                   void *arg, struct tern_queue *chosen, struct tern_error *err)
{
    bool ns = producer->options.ns[0] != 0;
    struct tern_queue *shown = ns ? shown_queues(producer, publish) : NULL;
    const struct tern_queue *queues = ns ? shown : publish->queues;
    if (!queues)
        return error_set(err, TERN_NO_MEMORY, "%zu queues", publish->queue_count);
    size_t index = selector(arg, message, queues, publish->queue_count);
    enum tern_code code = TERN_OK;
    if (index >= publish->queue_count)
        code = error_set(err, TERN_INVALID, "the selector chose queue %zu of %zu", index,
                         publish->queue_count);
    else
        *chosen = queues[index];
    free(shown);
    return code;
}

enum tern_code tern_producer_send_select(struct tern_producer *producer,
                                         struct tern_message *message, tern_queue_selector selector,
                                         void *arg, struct tern_send_result *result,
                                         struct tern_error *err)
{
    struct publish *publish;
    struct tern_queue chosen;
    if (!selector)
        return error_set(err, TERN_INVALID, "selector is NULL");
    enum tern_code code = producer_may_wait("send_select", err);
    if (code == TERN_OK)
        code = check_all(producer, &message, 1, NULL, err);
    if (code == TERN_OK)
        code = producer_hold(producer, "send", err);
    if (code != TERN_OK)
        return code;
    code = wait_for_queues(producer, message, &publish, err);
    if (code == TERN_OK) {
        code = select_queue(producer, publish, message, selector, arg, &chosen, err);
        publish_unref(publish);
    }
    if (code == TERN_OK)
        code = send_and_wait(producer, &message, 1, &chosen, result, err);
    producer_let_go(producer);
    return code;
}

size_t tern_select_by_hash(void *key, const struct tern_message *message,
                           const struct tern_queue *queues, size_t count)
{
    (void)message;
    (void)queues;
    int64_t hash = java_hash(key, strlen(key));
    return (size_t)llabs(hash % (int64_t)count);
}

/* The producer is held. */
static enum tern_code list_queues(struct tern_producer *producer, const char *topic,
                                  struct tern_queue *queues, size_t cap, size_t *count,
                                  struct tern_error *err)
{
    struct publish *publish;
    char name[TOPIC_NAME_MAX + 1];
    enum tern_code code = namespace_wrap(producer->options.ns, topic, TOPIC_NAME_MAX, name, err);
    if (code == TERN_OK)
        code = wait_for_publish(producer, name, false, &publish, err);
    if (code != TERN_OK)
        return code;
    *count = publish->queue_count;
    size_t copied = *count < cap ? *count : cap;
    if (copied > 0)
        memcpy(queues, publish->queues, copied * sizeof *queues);
    for (size_t i = 0; i < copied; i++)
        namespace_strip(producer->options.ns, queues[i].topic);
    publish_unref(publish);
    return TERN_OK;
}

enum tern_code tern_producer_queues(struct tern_producer *producer, const char *topic,
                                    struct tern_queue *queues, size_t cap, size_t *count,
                                    struct tern_error *err)
{
    *count = 0;
    enum tern_code code = producer_may_wait("queues", err);
    if (code == TERN_OK && (!topic || (!queues && cap > 0)))
        code = error_set(err, TERN_INVALID, "%s is NULL", topic ? "queues" : "topic");
    if (code == TERN_OK)
        code = topic_name_check(topic, strnlen(topic, TOPIC_NAME_MAX + 1), err);
    if (code == TERN_OK)
        code = producer_hold(producer, "queues", err);
    if (code != TERN_OK)
        return code;
    code = list_queues(producer, topic, queues, cap, count, err);
    producer_let_go(producer);
    return code;
}
