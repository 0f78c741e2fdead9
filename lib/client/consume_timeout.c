/*
 * Listeners that take too long: after the consumer's timeout (15 minutes) their messages are sent
 * back, so that one that hangs does not hold the queue's commit point for ever. What the listener
 * says later about them is ignored.
 *
 * Invariant: a batch is finished by its worker or taken here, never both: worker->state decides.
 *
 * Threads: the control task; workers publish what they run. Failure modes: as sending back.
 */
#include "client/push_internal.h"

enum {
    EXPIRED_DELAY_LEVEL = 3,
    CHECKS_PER_TIMEOUT = 30, /* so that 15 minutes are looked at every 30 s */
    CHECK_MIN_MS = 100,
    BATCH_MAX = 1024 /* consume_batch's limit */
};

/* References to the messages of the batch, when it ran too long and is ours now. @locks
 * takes:CONSUMER */
static uint32_t take_batch(struct push_worker *worker, int64_t before_ns, struct push_queue **queue,
                           struct tern_message *messages[BATCH_MAX])
{
    struct push_pool *pool = &worker->consumer->pool;
    int expected = BATCH_RUNNING;
    uint32_t count = 0;
    lock_acquire(&pool->lock);
    if (atomic_compare_exchange_strong(&worker->state, &expected, BATCH_EXPIRED)) {
        /* Between the look at the time and this, another batch may have begun. */
        int64_t since_ns = atomic_load_explicit(&worker->since_ns, memory_order_relaxed);
        if (since_ns > before_ns || since_ns == 0) {
            atomic_store(&worker->state, BATCH_RUNNING);
        } else {
            *queue = worker->queue;
            push_queue_ref(*queue);
            count = worker->count;
            for (uint32_t i = 0; i < count; i++)
                messages[i] = tern_message_ref(worker->messages[i]);
        }
    }
    lock_release(&pool->lock);
    return count;
}

/* Takes the batch of a listener that has run too long, and sends its messages back. */
static void expire_batch(struct push_worker *worker, int64_t before_ns)
{
    struct tern_push_consumer *consumer = worker->consumer;
    struct push_queue *queue = NULL;
    struct tern_message *messages[BATCH_MAX] = {NULL};
    uint32_t count = take_batch(worker, before_ns, &queue, messages);
    if (!queue)
        return;
    log_warn(consumer->env->log, "consumer_listener_too_long",
             "group=%s topic=%s broker=%s queue=%d offset=%lld messages=%u limit_ms=%lld",
             consumer->options.group, queue->id.topic, queue->id.broker_name, queue->id.queue_id,
             (long long)tern_message_queue_offset(messages[0]), count,
             (long long)consumer->options.consume_timeout_ms);
    counter_add(&consumer->failed_messages, count);
    for (uint32_t i = 0; i < count; i++)
        push_send_back(queue, messages[i], EXPIRED_DELAY_LEVEL);
    push_queue_unref(queue);
}

int64_t push_expire_step(struct tern_push_consumer *consumer, int64_t now_ns)
{
    if (now_ns < consumer->expire_due_ns)
        return consumer->expire_due_ns;
    int64_t timeout_ms = consumer->options.consume_timeout_ms;
    int64_t check_ms = timeout_ms / CHECKS_PER_TIMEOUT;
    int64_t before_ns = now_ns - ms_to_ns(timeout_ms);
    uint32_t count = atomic_load_explicit(&consumer->pool.worker_count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        struct push_worker *worker = consumer->pool.workers[i]; /* only this task adds some */
        int64_t since_ns = atomic_load_explicit(&worker->since_ns, memory_order_relaxed);
        if (since_ns != 0 && since_ns <= before_ns)
            expire_batch(worker, before_ns);
    }
    consumer->expire_due_ns = now_ns + ms_to_ns(check_ms < CHECK_MIN_MS ? CHECK_MIN_MS : check_ms);
    return consumer->expire_due_ns;
}
