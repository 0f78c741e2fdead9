/*
 * Giving leases back. Whoever waits for a queue waits for this: a release that no broker takes
 * keeps it standing still until the lease ends, so it is told until some member of the set has
 * answered.
 *
 *   queue has left, nothing runs ──► consumer->releases ──ask──► taken: forgotten
 *                                        ▲        │  ├─ no answer: in 100 ms … 1 s, at another
 * member └────────┘  └─ the lease has surely ended: forgotten
 *
 * A release names the grant that it ends, so that it frees no later one, however late or often it
 * arrives. The first one also says that the queue was ours till now and that nobody else was told:
 * a slave whose master is gone may then hand the queue on at once. A repeated one does not say so,
 * since whoever took the first may have done that.
 *
 * A queue that comes back meanwhile has a new object, which asks for a grant of its own: its
 * release is forgotten, and what it knew of tries goes to the new object.
 *
 * A queue whose first lease was asked for and not heard of is given back as well: a shutdown waits
 * for the answer, within its time, so that nothing is granted to who is gone.
 *
 * Invariants: a release is told only after the last batch has ended; one entry for a queue, but for
 * calls under way.
 *
 * Threads: the control task, or shutdown when that has stopped, which waits until all is told or
 * its time is over; answers on the link's threads. Failure modes: no member of the set can be
 * reached: the lease ends by itself.
 */
#include <stdlib.h>
#include <string.h>

#include "client/push_lease_op.h"

enum {
    RELEASE_RETRY_MS = 100,
    BROKER_LEASE_MS = 60000 /* from the last question on, when it was heard at once */
};

/* ---- the list; @locks holds:CONSUMER ---- */

static void add_release(struct tern_push_consumer *consumer, struct push_queue *queue)
{
    struct push_lease *lease = &queue->lease;
    push_queue_ref(queue);
    lease->leaves = true;
    lease->known = false;
    lease->tell_ns = 0;
    lease->next_release = consumer->releases;
    consumer->releases = queue;
}

/* The caller has its reference now. */
static void take_out(struct tern_push_consumer *consumer, struct push_queue *queue)
{
    struct push_queue **link = &consumer->releases;
    while (*link && *link != queue)
        link = &(*link)->lease.next_release;
    ENSURE(*link == queue);
    *link = queue->lease.next_release;
    queue->lease.next_release = NULL;
}

/* Passes a lease to the object that took the queue's place; false: there is none. */
static bool pass_lease(struct tern_push_consumer *consumer, const struct push_queue *from)
{
    struct push_queue *to = lease_find_queue(consumer->queues, &from->id);
    if (!to)
        return false;
    if (atomic_load_explicit(&to->lease.until_ns, memory_order_relaxed) != 0)
        return true; /* it has one of its own already */
    to->lease.known = true;
    if (to->lease.told_ns < from->lease.told_ns)
        to->lease.told_ns = from->lease.told_ns;
    to->lease.passed_grant = from->lease.grant ? from->lease.grant : from->lease.passed_grant;
    to->lease.tries_offset = from->lease.tries_offset;
    to->lease.tries = from->lease.tries;
    to->lease.due_ns = 0; /* asked for at once: the grant is the new object's own */
    return true;
}

/* Not taken: once more in a while. */
static void tell_again(struct push_queue *queue, int64_t now_ns)
{
    struct push_lease *lease = &queue->lease;
    int64_t pause_ms = (int64_t)RELEASE_RETRY_MS << (lease->told < 4 ? lease->told : 4);
    lease->telling = false;
    lease->told++;
    lease->tell_ns = now_ns + ms_to_ns(pause_ms < LEASE_RETRY_MS ? pause_ms : LEASE_RETRY_MS);
}

/* Nobody holds the queue for us any more, or nobody has to be told. */
static bool is_over(struct tern_push_consumer *consumer, const struct push_queue *queue,
                    int64_t now_ns)
{
    int64_t ends_ns = queue->lease.told_ns + ms_to_ns(RPC_TIMEOUT_MS + BROKER_LEASE_MS);
    return now_ns >= ends_ns || pass_lease(consumer, queue);
}

/* ---- telling ---- */

/* @thread link's */
static void on_unlocked(struct rpc_call *call, void *arg)
{
    struct lease_op *op = arg;
    struct tern_push_consumer *consumer = op->consumer;
    enum tern_code code = rpc_call_result(call);
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    if (code != TERN_OK)
        log_warn(consumer->env->log, "consumer_unlock_failed",
                 "group=%s broker=%s address=%s queues=%zu code=%s reason=\"%s\"",
                 consumer->options.group, op->queues[0]->id.broker_name, rpc_peer_address(op->peer),
                 op->count, tern_code_name(code), error_text(&call->error, code));
    push_note_declined(consumer, op->peer, code);
    lock_acquire(&consumer->lock);
    bool done = code == TERN_OK || consumer->releases_ended;
    for (size_t i = 0; i < op->count; i++) {
        tell_again(op->queues[i], now_ns);
        if (done)
            take_out(consumer, op->queues[i]);
    }
    struct latch *told = consumer->release_told;
    consumer->release_told = NULL;
    lock_release(&consumer->lock);
    for (size_t i = 0; done && i < op->count; i++)
        push_queue_unref(op->queues[i]); /* the list's */
    rpc_call_unref(call);
    if (told)
        latch_set(consumer->env->sched, told);
    else
        push_wake(consumer);
    lease_op_free(op);
}

/* Nobody to tell just now. @locks takes:CONSUMER */
static void tell_later(struct lease_op *op, int64_t now_ns)
{
    lock_acquire(&op->consumer->lock);
    for (size_t i = 0; i < op->count; i++)
        tell_again(op->queues[i], now_ns);
    lock_release(&op->consumer->lock);
}

/* Takes the op. */
static void give_back(struct lease_op *op, int64_t now_ns)
{
    struct tern_push_consumer *consumer = op->consumer;
    struct rpc_call *call = NULL;
    op->sent_ns = now_ns;
    op->release = true;
    struct lease_wire *wire = lease_wire_create(op);
    bool away = !wire || lease_op_call(op, &call) != TERN_OK || rpc_peer_down(op->peer);
    if (away) { /* known beforehand: nobody was told */
        if (call)
            rpc_call_unref(call);
        tell_later(op, now_ns);
        free(wire);
        lease_op_free(op);
        return;
    }
    lock_acquire(&consumer->lock);
    for (size_t i = 0; i < op->count; i++)
        op->queues[i]->lease.told_free = true;
    lock_release(&consumer->lock);
    Tern__Wire__UnlockQueuesRequest unlock = TERN__WIRE__UNLOCK_QUEUES_REQUEST__INIT;
    unlock.group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    unlock.n_queues = unlock.n_claims = op->count;
    unlock.queues = wire->queue_pointers;
    unlock.claims = wire->claim_pointers;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_UNLOCK_QUEUES;
    request.unlock_queues = &unlock;
    rpc_call_start(call, &request, 0, LEASE_GIVE_BACK_MS, on_unlocked, op);
    free(wire);
}

/* Puts what is due of one broker into the op, and takes out what need not be told: a list of those,
 * the caller's. @locks takes:CONSUMER */
static struct push_queue *collect(struct tern_push_consumer *consumer, struct lease_op *op,
                                  int64_t now_ns, int64_t *next_ns)
{
    struct push_queue *over = NULL;
    *next_ns = SCHED_NEVER;
    lock_acquire(&consumer->lock);
    for (struct push_queue **link = &consumer->releases; *link;) {
        struct push_queue *queue = *link;
        struct push_lease *lease = &queue->lease;
        if (!lease->telling && is_over(consumer, queue, now_ns)) {
            *link = lease->next_release;
            lease->next_release = over;
            over = queue;
            continue;
        }
        link = &lease->next_release;
        bool other =
            op->count > 0 && strcmp(queue->id.broker_name, op->queues[0]->id.broker_name) != 0;
        if (!lease->telling && lease->tell_ns <= now_ns && !other && op->count < LEASE_QUEUES_MAX) {
            lease->telling = true;
            push_queue_ref(queue);
            op->queues[op->count++] = queue;
        } else if (!lease->telling && lease->tell_ns < *next_ns) {
            *next_ns = lease->tell_ns;
        }
    }
    lock_release(&consumer->lock);
    return over;
}

int64_t push_releases_step(struct tern_push_consumer *consumer, int64_t now_ns)
{
    int64_t next_ns = SCHED_NEVER;
    bool more = true;
    while (more) {
        struct lease_op *op = lease_op_create(consumer);
        if (!op)
            return now_ns + ms_to_ns(LEASE_RETRY_MS);
        struct push_queue *over = collect(consumer, op, now_ns, &next_ns);
        while (over) {
            struct push_queue *next = over->lease.next_release;
            over->lease.next_release = NULL;
            push_queue_unref(over);
            over = next;
        }
        more = op->count > 0;
        if (more)
            give_back(op, now_ns);
        else
            lease_op_free(op);
    }
    return next_ns;
}

/* ---- leaving ---- */

void push_leases_forgotten(struct tern_push_consumer *consumer, struct push_queue *queues)
{
    unsigned late = 0;
    lock_acquire(&consumer->lock);
    for (struct push_queue *queue = queues; queue; queue = queue->next) {
        if (!queue->lease.known || queue->lease.leaves)
            continue;
        queue->lease.known = false;
        late += atomic_load_explicit(&queue->cached, memory_order_relaxed) > 0;
        if (!pass_lease(consumer, queue))
            add_release(consumer, queue);
    }
    lock_release(&consumer->lock);
    if (late > 0)
        log_warn(consumer->env->log, "consumer_queue_given_up",
                 "group=%s queues=%u limit_ms=%lld reason=\"a listener still runs\"",
                 consumer->options.group, late, (long long)consumer->options.consume_timeout_ms);
    (void)push_releases_step(consumer, clock_mono_ns(consumer->env->clock));
}

/* It has left, runs nothing, and was not put among the releases. @locks holds:CONSUMER */
static bool is_idle(const struct push_queue *queue)
{
    return !queue->lease.leaves && atomic_load_explicit(&queue->cached, memory_order_acquire) == 0;
}

/* A grant of its own may be on its way to it. @locks holds:CONSUMER */
static bool asks_first(const struct push_queue *queue)
{
    return queue->lease.asking && queue->lease.grant == 0;
}

/* Queues that are idle and have a lease; also those that may yet get one, or after the answer.
 * @locks takes:CONSUMER */
static void add_idle(struct tern_push_consumer *consumer, bool also_asking)
{
    lock_acquire(&consumer->lock);
    for (struct push_queue *queue = consumer->leaving; queue; queue = queue->next)
        if (is_idle(queue) && (asks_first(queue) ? also_asking : queue->lease.known))
            add_release(consumer, queue);
    lock_release(&consumer->lock);
}

/* Whether an answer is to be waited for: to a release, or to who may get a lease. @locks
 * takes:CONSUMER */
static bool awaits_answers(struct tern_push_consumer *consumer)
{
    lock_acquire(&consumer->lock);
    bool some = consumer->releases != NULL;
    for (struct push_queue *queue = consumer->leaving; queue && !some; queue = queue->next)
        some = is_idle(queue) && asks_first(queue);
    lock_release(&consumer->lock);
    return some;
}

/* Until a call has ended, or until_ns. */
static void await_told(struct tern_push_consumer *consumer, struct latch *told, int64_t until_ns)
{
    if (latch_wait(consumer->env->sched, told, until_ns))
        return;
    lock_acquire(&consumer->lock);
    bool taken = consumer->release_told == NULL; /* somebody is about to set it */
    consumer->release_told = NULL;
    lock_release(&consumer->lock);
    if (taken)
        ENSURE(latch_wait(consumer->env->sched, told, SCHED_NEVER));
}

void push_leases_flush(struct tern_push_consumer *consumer, int64_t deadline_ns)
{
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    if (deadline_ns < now_ns + ms_to_ns(LEASE_GIVE_BACK_MS))
        deadline_ns = now_ns + ms_to_ns(LEASE_GIVE_BACK_MS);
    add_idle(consumer, false);
    bool some = awaits_answers(consumer);
    while (some && now_ns < deadline_ns) {
        struct latch told;
        latch_init(&told);
        lock_acquire(&consumer->lock);
        consumer->release_told = &told;
        lock_release(&consumer->lock);
        add_idle(consumer, false);
        int64_t next_ns = push_releases_step(consumer, now_ns);
        some = awaits_answers(consumer);
        await_told(consumer, &told,
                   !some ? now_ns : (next_ns < deadline_ns ? next_ns : deadline_ns));
        now_ns = clock_mono_ns(consumer->env->clock);
    }
    add_idle(consumer, true); /* who hears the question late hears this after it */
    (void)push_releases_step(consumer, now_ns);
}

void push_releases_end(struct tern_push_consumer *consumer)
{
    for (unsigned count = 0;; count++) {
        lock_acquire(&consumer->lock);
        consumer->releases_ended = true;
        struct push_queue *queue = consumer->releases;
        while (queue && queue->lease.telling)
            queue = queue->lease.next_release;
        if (queue)
            take_out(consumer, queue);
        lock_release(&consumer->lock);
        if (!queue && count > 0)
            log_warn(
                consumer->env->log, "consumer_unlock_failed",
                "group=%s queues=%u reason=\"no broker took it: the leases end by themselves\"",
                consumer->options.group, count);
        if (!queue)
            return;
        push_queue_unref(queue);
    }
}
