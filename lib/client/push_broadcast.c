/*
 * Broadcasting: each member gets all messages of all queues.
 *
 * Nobody shares anything, so nobody asks who is in the group. There are no retries, since a copy
 * would come to all: what fails is logged, counted and passed. Progress is in push_store.c.
 *
 * A member sees everything that is sent after its start returned. So start waits until it is known
 * where each queue begins; and what is found later (a queue that is new, a broker that was away)
 * begins, for TERN_FROM_LAST, at the time of the start instead of its end.
 *
 * Threads: control task; start's caller waits; workers drop messages. Failure modes: brokers that
 * do not answer: start returns after BEGIN_WAIT_MS, with a warning, and the time counts as above.
 */
#include "client/push_internal.h"

enum { BEGIN_WAIT_MS = 3000, DROPS_LOGGED = 100, DROPS_LOGGED_EACH = 1000 };

/* ---- start ---- */

/* @locks holds:CONSUMER */
static bool all_begun(const struct tern_push_consumer *consumer)
{
    for (const struct push_topic *topic = consumer->topics; topic; topic = topic->next)
        if (topic->filter && !topic->shared && !topic->complained)
            return false;
    for (const struct push_queue *queue = consumer->queues; queue; queue = queue->next)
        if (!queue->positioned)
            return false;
    return true;
}

void push_broadcast_look(struct tern_push_consumer *consumer)
{
    lock_acquire(&consumer->lock);
    struct latch *begun = consumer->begun;
    if (begun && all_begun(consumer))
        consumer->begun = NULL;
    else
        begun = NULL;
    lock_release(&consumer->lock);
    if (begun)
        latch_set(consumer->env->sched, begun);
}

void push_broadcast_wait(struct tern_push_consumer *consumer, struct latch *begun)
{
    struct sched *sched = consumer->env->sched;
    int64_t deadline_ns = clock_mono_ns(consumer->env->clock) + ms_to_ns(BEGIN_WAIT_MS);
    bool known = latch_wait(sched, begun, deadline_ns);
    if (!known) {
        lock_acquire(&consumer->lock);
        bool taken = consumer->begun == NULL; /* somebody is about to set it */
        consumer->begun = NULL;
        lock_release(&consumer->lock);
        known = taken && latch_wait(sched, begun, SCHED_NEVER);
    }
    consumer->started_ms = clock_wall_ms(consumer->env->clock);
    atomic_store(&consumer->started, true);
    if (!known)
        log_warn(consumer->env->log, "consumer_begins_late",
                 "group=%s waited_ms=%d: queues that are not known yet begin at the time of the "
                 "start",
                 consumer->options.group, BEGIN_WAIT_MS);
}

/* ---- failing ---- */

void push_broadcast_drop(struct push_queue *queue, struct tern_message *message)
{
    struct tern_push_consumer *consumer = queue->consumer;
    int64_t offset = tern_message_queue_offset(message);
    uint64_t times =
        atomic_fetch_add_explicit(&consumer->dropped_messages, 1, memory_order_relaxed) + 1;
    if (times <= DROPS_LOGGED || times % DROPS_LOGGED_EACH == 0)
        log_warn(consumer->env->log, "consumer_message_dropped",
                 "group=%s topic=%s broker=%s queue=%d offset=%lld message=%s times=%llu",
                 consumer->options.group, queue->id.topic, queue->id.broker_name,
                 queue->id.queue_id, (long long)offset, tern_message_id(message),
                 (unsigned long long)times);
    window_mark(&queue->window, offset);
    push_let_go(queue, &message, 1);
}
