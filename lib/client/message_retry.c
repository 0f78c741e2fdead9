/*
 * Messages that come again: sent back to their broker, or tried again in this process; and how they
 * look to the listener then, with the topic that they were sent to and their count of tries.
 *
 *   failed ──► send back to the queue's master ──► OK: finished here, the broker delivers it later
 *                          └── refused, or nobody there ──► the pool, in 5 s, one try more
 *
 * The restored topic borrows from the message's own texts, which live as long as the message.
 *
 * Threads: workers, link threads (answers), the control task. Messages are changed only while
 * nobody but us handles them. Failure modes: a broker that takes nothing back: local retries for
 * ever; no memory for a retry: the message stays unfinished, and comes again with the queue's next
 * owner.
 */
#include "client/message_retry.h"

#include <string.h>

#include "base/props.h"
#include "client/message_internal.h"
#include "client/message_struct.h"
#include "client/push_internal.h"

enum { DEAD_LETTER_LEVEL = -1, EXPIRE_CHECK_MS = 30000, EXPIRED_DELAY_LEVEL = 3 };

void message_restore_topic(struct tern_message *message)
{
    const struct message_texts *texts = message_texts(message);
    const char *topic = texts ? message_texts_find(texts, PROP_RETRY_TOPIC) : NULL;
    size_t len = topic ? strlen(topic) : 0;
    if (len == 0 || len > TOPIC_NAME_MAX)
        return;
    message->topic = topic;
    message->topic_len = (uint8_t)len;
}

void message_count_retry(struct tern_message *message)
{
    message->reconsume_times++;
}

/* ---- sending back ---- */

/* The only message of the chunk is tried again here, later. Takes the chunk. */
static void retry_here(struct push_chunk *chunk)
{
    struct tern_push_consumer *consumer = chunk->queue->consumer;
    if (atomic_load(&chunk->queue->dropped)) {
        push_chunk_unref(chunk); /* the next owner gets it */
        return;
    }
    message_count_retry(chunk->messages[0]);
    chunk->due_ns = clock_mono_ns(consumer->env->clock) + ms_to_ns(LOCAL_RETRY_MS);
    push_pool_add_later(consumer, chunk);
}

/* @thread link's */
static void on_sent_back(struct rpc_call *call, void *arg)
{
    struct push_chunk *chunk = arg;
    struct push_queue *queue = chunk->queue;
    struct tern_push_consumer *consumer = queue->consumer;
    struct rpc_peer *peer = call->user;
    enum tern_code code = rpc_call_result(call);
    int64_t offset = tern_message_queue_offset(chunk->messages[0]);
    /* Without a slave the master alone counts; once more each time would be copies without end. */
    if (code == TERN_OK || code == TERN_SLAVE_NOT_AVAILABLE) {
        counter_add(&consumer->sent_back, 1);
        window_mark(&queue->window, offset);
        push_chunk_unref(chunk);
    } else {
        log_warn(consumer->env->log, "consumer_send_back_failed",
                 "group=%s topic=%s broker=%s queue=%d offset=%lld code=%s reason=\"%s\" "
                 "retry_here_ms=%d",
                 consumer->options.group, queue->id.topic, queue->id.broker_name,
                 queue->id.queue_id, (long long)offset, tern_code_name(code),
                 error_text(&call->error, code), LOCAL_RETRY_MS);
        failed_addresses_note(&consumer->failed, rpc_peer_address(peer), code,
                              clock_mono_ns(consumer->env->clock));
        retry_here(chunk);
    }
    rpc_peer_unref(peer);
    rpc_call_unref(call);
}

/* TERN_OK: the chunk went to the callback. */
static enum tern_code send_back_start(struct push_chunk *chunk, int32_t delay_level)
{
    struct push_queue *queue = chunk->queue;
    struct tern_push_consumer *consumer = queue->consumer;
    const struct tern_message *message = chunk->messages[0];
    const struct broker_wish wish = {.master_only = true};
    struct broker_choice choice;
    struct rpc_call *call;
    enum tern_code code =
        broker_pick_cached(consumer->instance, &consumer->failed, &queue->id, &wish, &choice, NULL);
    if (code != TERN_OK)
        return code;
    code = rpc_call_create(choice.peer, 0, &call);
    if (code != TERN_OK) {
        rpc_peer_unref(choice.peer);
        return code;
    }
    const char *topic = message_wire_topic(message);
    const char *id = tern_message_offset_id(message);
    int32_t max_times = consumer->options.max_reconsume_times;
    Tern__Wire__SendBackRequest back = TERN__WIRE__SEND_BACK_REQUEST__INIT;
    back.group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    back.physical_offset = tern_message_physical_offset(message);
    /* "None at all" has no number on the wire, where 0 is the group's: straight to the dead
     * letters. */
    back.delay_level = max_times == 0 ? DEAD_LETTER_LEVEL : delay_level;
    back.max_reconsume_times = max_times > 0 ? max_times : 0;
    back.origin_topic = frame_bytes(topic, strlen(topic));
    back.origin_message_id = frame_bytes(id, strlen(id));
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND_BACK;
    request.send_back = &back;
    call->user = choice.peer; /* its reference */
    rpc_call_start(call, &request, 0, SEND_BACK_TIMEOUT_MS, on_sent_back, chunk);
    return TERN_OK;
}

void push_send_back(struct push_queue *queue, struct tern_message *message, int32_t delay_level)
{
    struct tern_push_consumer *consumer = queue->consumer;
    if (consumer->options.model == TERN_BROADCASTING) {
        push_broadcast_drop(queue, message);
        return;
    }
    if (atomic_load(&queue->dropped) || push_state(consumer) != PUSH_RUNNING) {
        push_let_go(queue, &message,
                    1); /* not marked: it comes again, to whoever owns the queue then */
        return;
    }
    struct push_chunk *chunk = push_chunk_create(queue, 1);
    if (!chunk) {
        log_error(consumer->env->log, "consumer_message_stuck",
                  "group=%s topic=%s broker=%s queue=%d offset=%lld reason=\"no memory\"",
                  consumer->options.group, queue->id.topic, queue->id.broker_name,
                  queue->id.queue_id, (long long)tern_message_queue_offset(message));
        push_let_go(queue, &message, 1);
        return;
    }
    chunk->messages[0] = message;
    if (send_back_start(chunk, delay_level) != TERN_OK)
        retry_here(chunk);
}

/* ---- listeners that take too long ---- */

/* Takes the batch of a listener that has run too long, and sends its messages back. */
static void expire_batch(struct push_worker *worker, int64_t before_ns)
{
    struct tern_push_consumer *consumer = worker->consumer;
    struct push_pool *pool = &consumer->pool;
    int expected = BATCH_RUNNING;
    struct push_queue *queue = NULL;
    uint32_t count = 0;
    struct tern_message *messages[1024];
    lock_acquire(&pool->lock);
    if (atomic_compare_exchange_strong(&worker->state, &expected, BATCH_EXPIRED)) {
        /* Between the look at the time and this, another batch may have begun. */
        int64_t since_ns = atomic_load_explicit(&worker->since_ns, memory_order_relaxed);
        if (since_ns > before_ns || since_ns == 0) {
            atomic_store(&worker->state, BATCH_RUNNING);
        } else {
            queue = worker->queue;
            push_queue_ref(queue);
            count = worker->count;
            for (uint32_t i = 0; i < count; i++)
                messages[i] = tern_message_ref(worker->messages[i]);
        }
    }
    lock_release(&pool->lock);
    if (!queue || count == 0)
        return;
    log_warn(consumer->env->log, "consumer_listener_too_long",
             "group=%s topic=%s broker=%s queue=%d offset=%lld messages=%u limit_ms=%d",
             consumer->options.group, queue->id.topic, queue->id.broker_name, queue->id.queue_id,
             (long long)tern_message_queue_offset(messages[0]), count, CONSUME_TIMEOUT_MS);
    counter_add(&consumer->failed_messages, count);
    for (uint32_t i = 0; i < count; i++)
        push_send_back(queue, messages[i], EXPIRED_DELAY_LEVEL);
    push_queue_unref(queue);
}

int64_t push_expire_step(struct tern_push_consumer *consumer, int64_t now_ns)
{
    if (now_ns < consumer->expire_due_ns)
        return consumer->expire_due_ns;
    int64_t before_ns = now_ns - ms_to_ns(CONSUME_TIMEOUT_MS);
    uint32_t count = atomic_load_explicit(&consumer->pool.worker_count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct push_worker *worker = consumer->pool.workers[i]; /* only this task adds some */
        int64_t since_ns = atomic_load_explicit(&worker->since_ns, memory_order_relaxed);
        if (since_ns != 0 && since_ns <= before_ns)
            expire_batch(worker, before_ns);
    }
    consumer->expire_due_ns = now_ns + ms_to_ns(EXPIRE_CHECK_MS);
    return consumer->expire_due_ns;
}
