/*
 * One batch of a queue at a time, in the order of offsets.
 *
 * The first chunk of a queue carries its turn (push_order.h). The worker that takes it from the
 * pool runs batches for ORDER_TURN_MS, or one batch that takes longer, and hands the turn on: to
 * the pool again, to the pool in a while when the listener suspended the queue, to nobody when the
 * lease is over, or to the call that brings a message to the dead letters.
 *
 * Invariants: a batch begins only with a good lease and before the queue is closed; a message is
 * marked only after its listener succeeded or its dead letter is stored, so that the window's left
 * edge never passes the first unfinished one; nothing of a queue is with two hands.
 *
 * Counting: each failure raises the count that the listener sees and is told to the broker with the
 * lease, which tells the queue's next owner; after max_reconsume_times retries (-1: never) the
 * message goes to the dead letters and the next one follows. What another group's tries left in a
 * record is not counted (message_tries()).
 *
 * Threads: workers, link threads (adding, answers), the control task (closing). Locks: the pool's,
 * never held while a listener or a call runs. Failure modes: without memory for a dead letter, or
 * when the broker does not take it, the message is tried once more after the pause; a listener that
 * never returns holds its queue.
 */
#include "client/push_order.h"

#include <string.h>

#include "client/message_retry.h"
#include "client/message_struct.h"
#include "client/push_internal.h"
#include "client/push_trace.h"

/* What follows on a batch. */
enum order_next { NEXT_BATCH, NEXT_LATER, NEXT_NO_LEASE, NEXT_DEAD_LETTER };

static uint32_t position(const struct push_chunk *chunk)
{
    return atomic_load_explicit(&chunk->claimed, memory_order_relaxed);
}

/* Takes the finished chunks out in front; returns them, linked. @locks holds:CONSUMER */
static struct push_chunk *pop_finished(struct push_order *order)
{
    struct push_chunk *finished = NULL;
    while (order->first && position(order->first) >= order->first->count) {
        struct push_chunk *chunk = order->first;
        order->first = chunk->after;
        chunk->after = finished;
        finished = chunk;
    }
    if (!order->first)
        order->last = NULL;
    return finished;
}

static void free_chunks(struct push_chunk *chunk)
{
    while (chunk) {
        struct push_chunk *after = chunk->after;
        push_chunk_unref(chunk);
        chunk = after;
    }
}

/* Tries of this group that have failed. */
static int32_t tries_of(const struct push_queue *queue, const struct tern_message *message)
{
    return message_tries(message, strcmp(queue->id.topic, queue->consumer->retry_topic) == 0);
}

/* ---- the turn ---- */

/*
 * Puts the first chunk where the turn goes to, if there is one. due_ns: of NEXT_LATER. @locks
 * holds:CONSUMER
 */
static void pass_on(struct push_queue *queue, enum order_next next, int64_t due_ns)
{
    struct push_order *order = &queue->order;
    struct push_pool *pool = &queue->consumer->pool;
    if (!order->first) {
        order->state = ORDER_IDLE;
        return;
    }
    if (next == NEXT_DEAD_LETTER) {
        order->state = ORDER_AWAY;
    } else if (next == NEXT_NO_LEASE) {
        order->state = ORDER_PARKED;
    } else {
        order->state = ORDER_POOL;
        order->first->due_ns = due_ns;
        if (next == NEXT_LATER)
            push_pool_insert_later(pool, order->first);
        else
            push_pool_insert_fresh(pool, order->first);
    }
}

/* The queue has left, and nothing of it runs any more: its progress can be told. */
static void tell_closed(struct tern_push_consumer *consumer)
{
    atomic_store(&consumer->commit_wanted, true);
    push_wake(consumer);
}

/* Ends a turn; the caller must have it. */
static void hand_on(struct push_queue *queue, enum order_next next, int64_t pause_ms)
{
    struct tern_push_consumer *consumer = queue->consumer;
    struct push_order *order = &queue->order;
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    lock_acquire(&consumer->pool.lock);
    struct push_chunk *finished;
    bool closed = order->closed;
    if (closed) {
        finished = order->first;
        order->first = order->last = NULL;
        order->state = ORDER_IDLE;
    } else {
        finished = pop_finished(order);
        /* A grant that came since the look has found nothing parked. */
        if (next == NEXT_NO_LEASE && push_lease_good(&queue->lease, now_ns))
            next = NEXT_BATCH;
        pass_on(queue, next, now_ns + ms_to_ns(pause_ms));
    }
    lock_release(&consumer->pool.lock);
    free_chunks(finished);
    if (closed)
        tell_closed(consumer);
    else if (next == NEXT_LATER)
        push_wake(consumer);
    else if (next == NEXT_BATCH)
        push_pool_call_help(consumer);
}

void push_order_add(struct push_chunk *chunk)
{
    struct push_queue *queue = chunk->queue;
    struct tern_push_consumer *consumer = queue->consumer;
    struct push_order *order = &queue->order;
    for (uint32_t i = 0; i < chunk->count; i++) {
        struct tern_message *message = chunk->messages[i];
        int32_t told = push_lease_tries(queue, tern_message_queue_offset(message));
        int32_t known = tries_of(queue, message);
        if (known < told && told <= TRIES_KNOWN_MAX)
            message_count_retries(message, told - known);
    }
    chunk->after = NULL;
    lock_acquire(&consumer->pool.lock);
    bool late = order->closed || consumer->pool.stopping;
    bool begins = !late && order->state == ORDER_IDLE;
    if (!late) {
        if (order->last)
            order->last->after = chunk;
        else
            order->first = chunk;
        order->last = chunk;
    }
    if (begins)
        pass_on(queue, NEXT_BATCH, 0);
    lock_release(&consumer->pool.lock);
    if (late)
        push_chunk_unref(chunk);
    else if (begins)
        push_pool_call_help(consumer);
}

void push_order_taken(struct push_chunk *chunk)
{
    chunk->queue->order.state = ORDER_RUNS;
}

void push_order_unpark(struct push_queue *queue)
{
    struct tern_push_consumer *consumer = queue->consumer;
    lock_acquire(&consumer->pool.lock);
    bool parked = queue->order.state == ORDER_PARKED;
    if (parked)
        pass_on(queue, NEXT_BATCH, 0);
    lock_release(&consumer->pool.lock);
    if (parked)
        push_pool_call_help(consumer);
}

void push_order_close(struct push_queue *queue)
{
    struct tern_push_consumer *consumer = queue->consumer;
    struct push_order *order = &queue->order;
    struct push_chunk *waiting = NULL;
    lock_acquire(&consumer->pool.lock);
    order->closed = true;
    if (order->state == ORDER_POOL)
        push_pool_take_out(&consumer->pool, order->first);
    if (order->state == ORDER_RUNS) { /* the first is its worker's */
        waiting = order->first->after;
        order->first->after = NULL;
        order->last = order->first;
    } else {
        waiting = order->first;
        order->first = order->last = NULL;
        order->state = ORDER_IDLE;
    }
    lock_release(&consumer->pool.lock);
    free_chunks(waiting);
}

/* ---- dead letters ---- */

/*
 * The first message goes to the dead letters, its turn with the call. Nothing is done, and false,
 * without memory; the caller has the turn.
 */
static bool bury_first(struct push_queue *queue)
{
    struct tern_push_consumer *consumer = queue->consumer;
    struct push_order *order = &queue->order;
    struct push_chunk *single = push_chunk_create(queue, 1);
    if (!single)
        return false;
    lock_acquire(&consumer->pool.lock);
    bool closed = order->closed;
    struct push_chunk *chunk = order->first;
    if (!closed) {
        single->messages[0] = chunk->messages[position(chunk)];
        atomic_fetch_add_explicit(&chunk->claimed, 1, memory_order_relaxed);
        order->to_bury--;
        order->state = ORDER_AWAY;
    }
    lock_release(&consumer->pool.lock);
    if (closed) {
        single->count = 0;
        push_chunk_unref(single);
        hand_on(queue, NEXT_BATCH, 0);
        return true;
    }
    log_warn(consumer->env->log, "consumer_message_given_up",
             "group=%s topic=%s broker=%s queue=%d offset=%lld retries=%d limit=%d",
             consumer->options.group, queue->id.topic, queue->id.broker_name, queue->id.queue_id,
             (long long)tern_message_queue_offset(single->messages[0]),
             tries_of(queue, single->messages[0]), consumer->options.max_reconsume_times);
    if (consumer->options.model == TERN_BROADCASTING) { /* which has no dead letters */
        struct tern_message *message = single->messages[0];
        single->count = 0;
        push_chunk_unref(single);
        push_broadcast_drop(queue, message);
        push_order_buried(queue);
        return true;
    }
    push_send_back_chunk(single, PUSH_DEAD_LETTER_LEVEL);
    return true;
}

/* As many as there are to go; the caller has the turn, and has none afterwards. */
static void bury_or_suspend(struct push_queue *queue)
{
    if (bury_first(queue))
        return;
    queue->order.to_bury = 0;
    hand_on(queue, NEXT_LATER, queue->consumer->options.suspend_ms);
}

/* Whether the turn is still with the call: a queue that was closed has taken it away. */
static bool take_turn_back(struct push_queue *queue)
{
    struct tern_push_consumer *consumer = queue->consumer;
    lock_acquire(&consumer->pool.lock);
    bool away = queue->order.state == ORDER_AWAY;
    if (away)
        queue->order.state = ORDER_RUNS;
    lock_release(&consumer->pool.lock);
    return away;
}

void push_order_buried(struct push_queue *queue)
{
    if (!take_turn_back(queue))
        tell_closed(queue->consumer);
    else if (queue->order.to_bury > 0)
        bury_or_suspend(queue);
    else
        hand_on(queue, NEXT_BATCH, 0);
}

void push_order_not_buried(struct push_chunk *chunk)
{
    struct push_queue *queue = chunk->queue;
    struct tern_push_consumer *consumer = queue->consumer;
    struct push_order *order = &queue->order;
    struct push_pool *pool = &consumer->pool;
    if (!take_turn_back(queue)) {
        push_chunk_unref(chunk);
        tell_closed(consumer);
        return;
    }
    lock_acquire(&pool->lock);
    bool closed = order->closed;
    if (!closed) {
        chunk->after = order->first;
        order->first = chunk;
        if (!order->last)
            order->last = chunk;
        order->to_bury = 0;
    }
    lock_release(&pool->lock);
    push_queue_ref(queue);
    if (closed)
        push_chunk_unref(chunk);
    hand_on(queue, NEXT_LATER, consumer->options.suspend_ms);
    push_queue_unref(queue);
}

/* ---- batches ---- */

static void batch_succeeded(struct push_queue *queue, struct push_chunk *chunk,
                            struct tern_message **messages, uint32_t count)
{
    struct tern_push_consumer *consumer = queue->consumer;
    int64_t last = tern_message_queue_offset(messages[count - 1]);
    for (uint32_t i = 0; i < count; i++)
        window_mark(&queue->window, tern_message_queue_offset(messages[i]));
    counter_add(&consumer->consumed, count);
    atomic_fetch_add_explicit(&chunk->claimed, count, memory_order_relaxed);
    push_let_go(queue, messages, count);
    if (atomic_exchange_explicit(&queue->order.told, false, memory_order_relaxed))
        push_lease_tell(queue, last + 1, 0);
}

/*
 * Counts the failure; what has used up its retries is to go to the dead letters. Only leading
 * messages can have: those behind never failed more often.
 */
static enum order_next batch_failed(struct push_queue *queue, struct tern_message **messages,
                                    uint32_t count)
{
    struct tern_push_consumer *consumer = queue->consumer;
    int32_t most = consumer->options.max_reconsume_times;
    uint32_t used_up = 0;
    counter_add(&consumer->failed_messages, count);
    while (most >= 0 && used_up < count && tries_of(queue, messages[used_up]) >= most)
        used_up++;
    for (uint32_t i = used_up; i < count; i++)
        message_count_retries(messages[i], 1);
    if (most >= 0 && used_up < count) {
        atomic_store_explicit(&queue->order.told, true, memory_order_relaxed);
        push_lease_tell(queue, tern_message_queue_offset(messages[used_up]),
                        tries_of(queue, messages[used_up]));
    }
    queue->order.to_bury = used_up;
    return used_up > 0 ? NEXT_DEAD_LETTER : NEXT_LATER;
}

/*
 * Opens compressed bodies, up to the first that cannot be; returns how many can be given to the
 * listener together. 0: the first cannot, and goes to the dead letters, where it holds nobody up.
 */
static uint32_t open_bodies(struct push_queue *queue, struct tern_message **messages,
                            uint32_t count)
{
    struct tern_push_consumer *consumer = queue->consumer;
    struct tern_error err = {.text = ""};
    uint32_t opened = 0;
    while (opened < count && tern_message_open(messages[opened], &err) == TERN_OK)
        opened++;
    if (opened == 0) {
        log_warn(consumer->env->log, "consumer_body_unreadable",
                 "group=%s topic=%s broker=%s queue=%d offset=%lld reason=\"%s\"",
                 consumer->options.group, queue->id.topic, queue->id.broker_name,
                 queue->id.queue_id, (long long)tern_message_queue_offset(messages[0]), err.text);
        counter_add(&consumer->failed_messages, 1);
        queue->order.to_bury = 1;
    }
    return opened;
}

/* Gives the next messages of the chunk to the listener. */
static enum order_next run_batch(struct push_worker *worker, struct push_chunk *chunk)
{
    struct push_queue *queue = chunk->queue;
    struct tern_push_consumer *consumer = worker->consumer;
    uint32_t first = position(chunk);
    uint32_t count = chunk->count - first;
    if (count > (uint32_t)consumer->options.consume_batch)
        count = (uint32_t)consumer->options.consume_batch;
    struct tern_message **messages = &chunk->messages[first];
    count = open_bodies(queue, messages, count);
    if (count == 0)
        return NEXT_DEAD_LETTER;
    struct push_traced traced;
    push_trace_before(consumer, messages, count, &traced);
    push_pool_enter_listener(consumer);
    enum tern_orderly_result result = consumer->orderly_listener(
        consumer->listener_arg, (const struct tern_message *const *)messages, count);
    push_pool_leave_listener();
    push_trace_after(consumer, messages, count, result == TERN_ORDERLY_SUCCESS ? count : 0, &traced,
                     false);
    if (result != TERN_ORDERLY_SUCCESS)
        return batch_failed(queue, messages, count);
    batch_succeeded(queue, chunk, messages, count);
    return NEXT_BATCH;
}

void push_order_work(struct push_worker *worker, struct push_chunk *chunk)
{
    struct push_queue *queue = chunk->queue;
    struct tern_push_consumer *consumer = worker->consumer;
    int64_t begin_ns = clock_mono_ns(consumer->env->clock);
    int64_t now_ns = begin_ns;
    uint32_t first = position(chunk);
    enum order_next next = NEXT_BATCH;
    push_queue_ref(queue); /* the chunk may go with its last message */
    while (next == NEXT_BATCH && position(chunk) < chunk->count &&
           !atomic_load_explicit(&consumer->pool.halted, memory_order_relaxed) &&
           !atomic_load_explicit(&queue->dropped, memory_order_acquire) &&
           now_ns - begin_ns < ms_to_ns(ORDER_TURN_MS)) {
        if (!push_lease_good(&queue->lease, now_ns)) {
            next = NEXT_NO_LEASE;
            break;
        }
        atomic_store_explicit(&worker->since_ns, now_ns, memory_order_relaxed);
        next = run_batch(worker, chunk);
        now_ns = clock_mono_ns(consumer->env->clock);
    }
    atomic_store_explicit(&worker->since_ns, 0, memory_order_relaxed);
    uint32_t done = position(chunk) - first;
    if (done > 0)
        push_pool_note_speed(&consumer->pool, (now_ns - begin_ns) / done);
    if (next == NEXT_DEAD_LETTER)
        bury_or_suspend(queue);
    else
        hand_on(queue, next, consumer->options.suspend_ms);
    push_queue_unref(queue);
}
