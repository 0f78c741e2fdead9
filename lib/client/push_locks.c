/*
 * Leases on queues: a queue is worked on only while the broker has locked it for this client.
 *
 *   taken ──► ask the broker ──► granted: 30 s from the moment of asking ──► offset, pulls, work
 *                 ▲   │ others have it: in 50 ms … 500 ms                         │ every 10 s
 *                 └───┘                                                           ▼
 *             a new object ◄── lost: 30 s over, or the broker gave it away ◄── renewed
 *                                                                                 │ left
 *             given back, or passed to the new object ◄── batch done, committed ◄─┘
 *
 * One request per broker for all its queues, to the master, or to a slave while that is away. Our
 * own view of a lease ends 30 s after the question that was granted was asked, the broker's 60 s
 * after it heard that: the difference is for the message that runs when the view ends.
 *
 * Each question says of each queue whether our view of the lease still holds, so that a broker that
 * came back without its memory knows whose queues they are, and how often the first message has
 * failed; the grant brings what the last owner said of that.
 *
 * A refusal because nobody can say now (a slave that does not know the owner, a master that has
 * just begun) leaves the view as it is. A lease that was lost makes the queue begin anew: a new
 * object asks for a lease, then where the group is.
 *
 * A consumer that shares no queues needs no broker for it: there the lease is good for ever, from
 * the moment that no older object of the queue is left.
 *
 * Each object has a grant of its own: it names none in its first question, so that the broker makes
 * a new one even when the release of an older object is still on its way (push_release.c).
 *
 * Invariants: nothing is asked for a queue while an older object of the same queue is in
 * consumer->leaving; a lease is given back only when no batch runs and the progress is committed,
 * or cannot be.
 *
 * Threads: the control task (or shutdown when that has stopped); answers on the link's threads.
 * Failure modes: a broker that does not answer is asked again every second, at another address of
 * its set when there is one.
 */
#include "client/push_order.h"

#include <stdlib.h>
#include <string.h>

#include "client/push_internal.h"
#include "client/push_lease_op.h"

static ProtobufCBinaryData text_bytes(const char *text)
{
    return frame_bytes(text, strlen(text));
}

void push_lease_init(struct push_queue *queue)
{
    struct push_lease *lease = &queue->lease;
    lease->until_ns = queue->consumer->orderly ? 0 : INT64_MAX;
    lease->tries_offset = -1;
}

struct push_queue *lease_find_queue(struct push_queue *list, const struct tern_queue *id)
{
    while (list && !push_same_queue(&list->id, id))
        list = list->next;
    return list;
}

/* ---- tries ---- */

void push_lease_tell(struct push_queue *queue, int64_t offset, int32_t times)
{
    struct push_lease *lease = &queue->lease;
    lock_acquire(&queue->consumer->lock);
    lease->tries_offset = offset;
    lease->tries = times;
    int64_t due_ns = lease->told_ns + ms_to_ns(LEASE_TELL_MS);
    if (queue->consumer->needs_leases && lease->due_ns > due_ns)
        lease->due_ns = due_ns;
    lock_release(&queue->consumer->lock);
}

int32_t push_lease_tries(struct push_queue *queue, int64_t offset)
{
    lock_acquire(&queue->consumer->lock);
    int32_t tries = queue->lease.tries_offset == offset ? queue->lease.tries : 0;
    lock_release(&queue->consumer->lock);
    return tries;
}

/* ---- answers ---- */

void lease_op_free(struct lease_op *op)
{
    for (size_t i = 0; i < op->count; i++)
        push_queue_unref(op->queues[i]);
    if (op->peer)
        rpc_peer_unref(op->peer);
    push_unref(op->consumer);
    free(op);
}

static bool names_queue(const Tern__Wire__MessageQueue *wire, const struct tern_queue *id)
{
    size_t len = strlen(id->topic);
    return wire->queue_id == id->queue_id && wire->topic.len == len &&
           memcmp(wire->topic.data, id->topic, len) == 0;
}

/* Ours from the moment of asking on; a view that had ended by now is lost all the same. @locks
 * holds:CONSUMER */
static void granted(struct push_queue *queue, const Tern__Wire__QueueTries *tries, int64_t sent_ns,
                    int64_t now_ns)
{
    struct push_lease *lease = &queue->lease;
    int64_t until_ns = atomic_load_explicit(&lease->until_ns, memory_order_relaxed);
    lease->known = true;
    lease->grant = tries ? tries->grant : 0;
    lease->waits = 0;
    lease->due_ns = sent_ns + ms_to_ns(LEASE_RENEW_MS);
    if (until_ns == 0 && tries && tries->times > 0) {
        lease->tries_offset = tries->offset;
        lease->tries = tries->times;
    }
    if (until_ns != 0 && until_ns <= now_ns && !atomic_load(&queue->dropped)) {
        lease->lost = true;
        return;
    }
    atomic_store_explicit(&lease->until_ns, sent_ns + ms_to_ns(LEASE_MS), memory_order_release);
    if (until_ns == 0)
        atomic_store(&queue->hurry, true);
}

/* Somebody else has it, or nobody could say. @locks holds:CONSUMER */
static void refused(struct push_queue *queue, const Tern__Wire__RefusedLock *refusal,
                    int64_t now_ns)
{
    struct push_lease *lease = &queue->lease;
    int64_t until_ns = atomic_load_explicit(&lease->until_ns, memory_order_relaxed);
    bool undecided = refusal && refusal->reason == TERN__WIRE__LOCK_REFUSAL__LOCK_UNDECIDED;
    int64_t pause_ms = (int64_t)LEASE_WAIT_MS << (lease->waits < 8 ? lease->waits : 8);
    lease->waits++;
    if (pause_ms > LEASE_WAIT_MAX_MS)
        pause_ms = LEASE_WAIT_MAX_MS;
    if (refusal && refusal->remaining_ms > 0 && refusal->remaining_ms < pause_ms)
        pause_ms = refusal->remaining_ms;
    lease->due_ns = now_ns + ms_to_ns(pause_ms);
    if (until_ns == 0)
        lease->known = lease->known && undecided;
    if (until_ns == 0 || (undecided && until_ns > now_ns))
        return;
    lease->lost = true;
    lease->known = lease->known && undecided;
    atomic_store_explicit(&lease->until_ns, 1, memory_order_release); /* ended */
}

/* @locks holds:CONSUMER */
static void take_answer(struct lease_op *op, const Tern__Wire__LockQueuesResponse *body,
                        int64_t now_ns)
{
    size_t next = 0; /* the answer has them in the order of the question */
    size_t refusal = 0;
    for (size_t i = 0; i < op->count; i++) {
        struct push_queue *queue = op->queues[i];
        queue->lease.asking = false;
        if (next < body->n_locked && names_queue(body->locked[next], &queue->id)) {
            granted(queue, next < body->n_tries ? body->tries[next] : NULL, op->sent_ns, now_ns);
            next++;
            continue;
        }
        while (refusal < body->n_refused && body->refused[refusal]->index < i)
            refusal++;
        bool told = refusal < body->n_refused && body->refused[refusal]->index == i;
        refused(queue, told ? body->refused[refusal] : NULL, now_ns);
    }
}

/* No answer: later, sooner for those that wait for their first lease. may_hold: it may have been
 * granted all the same. @locks holds:CONSUMER */
static void ask_again(struct lease_op *op, bool may_hold, int64_t now_ns)
{
    for (size_t i = 0; i < op->count; i++) {
        struct push_lease *lease = &op->queues[i]->lease;
        bool first = atomic_load_explicit(&lease->until_ns, memory_order_relaxed) == 0;
        lease->asking = false;
        lease->known = lease->known || may_hold;
        lease->due_ns = now_ns + ms_to_ns(first ? LEASE_WAIT_MAX_MS / 2 : LEASE_RETRY_MS);
    }
}

/* Nobody told whether it was carried out. */
static bool may_be_granted(enum tern_code code)
{
    return code == TERN_TIMEOUT || code == TERN_CONNECTION_LOST || code == TERN_PROTOCOL;
}

/* @thread link's */
static void on_locked(struct rpc_call *call, void *arg)
{
    struct lease_op *op = arg;
    struct tern_push_consumer *consumer = op->consumer;
    enum tern_code code = rpc_call_result(call);
    bool good =
        code == TERN_OK && call->response->body_case == TERN__WIRE__RESPONSE__BODY_LOCK_QUEUES;
    int64_t now_ns = clock_mono_ns(consumer->env->clock);
    if (!good)
        log_warn(consumer->env->log, "consumer_lock_failed",
                 "group=%s broker=%s address=%s queues=%zu code=%s reason=\"%s\"",
                 consumer->options.group, op->queues[0]->id.broker_name, rpc_peer_address(op->peer),
                 op->count, tern_code_name(code), error_text(&call->error, code));
    push_note_declined(consumer, op->peer, code);
    lock_acquire(&consumer->lock);
    if (good)
        take_answer(op, call->response->lock_queues, now_ns);
    else
        ask_again(op, code == TERN_OK || may_be_granted(code), now_ns);
    struct latch *told = consumer->release_told; /* a shutdown, which gives back what was granted */
    consumer->release_told = NULL;
    lock_release(&consumer->lock);
    for (size_t i = 0; i < op->count; i++)
        if (push_lease_good(&op->queues[i]->lease, now_ns))
            push_order_unpark(op->queues[i]);
    rpc_call_unref(call);
    if (told)
        latch_set(consumer->env->sched, told);
    else
        push_wake(consumer);
    lease_op_free(op);
}

/* ---- asking ---- */

/* Whether something is to be asked for the queue now. @locks holds:CONSUMER */
static bool is_due(struct tern_push_consumer *consumer, const struct push_queue *queue,
                   int64_t now_ns)
{
    const struct push_lease *lease = &queue->lease;
    if (lease->asking || lease->lost || lease->due_ns > now_ns)
        return false;
    if (atomic_load_explicit(&queue->dropped, memory_order_relaxed))
        return lease->known;
    return lease->known || !lease_find_queue(consumer->leaving, &queue->id);
}

/* Puts the due queues of the first broker that has some into the op. @locks holds:CONSUMER */
static void collect_due(struct tern_push_consumer *consumer, struct lease_op *op, int64_t now_ns)
{
    for (int list = 0; list < 2; list++)
        for (struct push_queue *queue = list ? consumer->leaving : consumer->queues; queue;
             queue = queue->next) {
            if (op->count == LEASE_QUEUES_MAX || !is_due(consumer, queue, now_ns) ||
                (op->count > 0 &&
                 strcmp(queue->id.broker_name, op->queues[0]->id.broker_name) != 0))
                continue;
            queue->lease.asking = true;
            queue->lease.told_ns = now_ns;
            push_queue_ref(queue);
            op->queues[op->count++] = queue;
        }
}

/* Queues that nobody shares: ours as soon as no older object is left. */
static void grant_unshared(struct tern_push_consumer *consumer)
{
    lock_acquire(&consumer->lock);
    for (struct push_queue *queue = consumer->queues; queue; queue = queue->next) {
        if (atomic_load_explicit(&queue->lease.until_ns, memory_order_relaxed) != 0 ||
            lease_find_queue(consumer->leaving, &queue->id))
            continue;
        atomic_store_explicit(&queue->lease.until_ns, INT64_MAX, memory_order_release);
        atomic_store(&queue->hurry, true);
    }
    lock_release(&consumer->lock);
}

/* When the next one is due. @locks holds:CONSUMER */
static int64_t next_due(struct tern_push_consumer *consumer)
{
    int64_t next_ns = SCHED_NEVER;
    for (int list = 0; list < 2; list++)
        for (const struct push_queue *queue = list ? consumer->leaving : consumer->queues; queue;
             queue = queue->next)
            if (is_due(consumer, queue, SCHED_NEVER) && queue->lease.due_ns < next_ns)
                next_ns = queue->lease.due_ns;
    return next_ns;
}

struct lease_op *lease_op_create(struct tern_push_consumer *consumer)
{
    struct lease_op *op = calloc(1, sizeof *op);
    if (!op)
        return NULL;
    op->consumer = consumer;
    push_ref(consumer);
    return op;
}

struct lease_wire *lease_wire_create(const struct lease_op *op)
{
    struct lease_wire *wire = malloc(sizeof *wire);
    if (!wire)
        return NULL;
    lock_acquire(&op->consumer->lock);
    for (size_t i = 0; i < op->count; i++) {
        const struct push_queue *queue = op->queues[i];
        const struct push_lease *lease = &queue->lease;
        tern__wire__message_queue__init(&wire->queues[i]);
        wire->queues[i].topic = text_bytes(queue->id.topic);
        wire->queues[i].broker_name = text_bytes(queue->id.broker_name);
        wire->queues[i].queue_id = queue->id.queue_id;
        wire->queue_pointers[i] = &wire->queues[i];
        tern__wire__queue_claim__init(&wire->claims[i]);
        wire->claims[i].held = push_lease_good(lease, op->sent_ns) && !lease->told_free;
        wire->claims[i].has_tries = lease->tries_offset >= 0;
        wire->claims[i].offset = lease->tries_offset >= 0 ? lease->tries_offset : 0;
        wire->claims[i].times = lease->tries;
        wire->claims[i].grant = lease->grant || !op->release ? lease->grant : lease->passed_grant;
        wire->claim_pointers[i] = &wire->claims[i];
    }
    lock_release(&op->consumer->lock);
    return wire;
}

enum tern_code lease_op_call(struct lease_op *op, struct rpc_call **call)
{
    struct tern_push_consumer *consumer = op->consumer;
    const struct broker_wish wish = {.id = 0};
    struct broker_choice choice;
    struct tern_error err = {.text = ""};
    enum tern_code code = broker_pick_cached(consumer->instance, &consumer->declined,
                                             &op->queues[0]->id, &wish, &choice, &err);
    if (code == TERN_OK) {
        op->peer = choice.peer;
        code = rpc_call_create(op->peer, 0, call);
    }
    if (code != TERN_OK)
        log_warn(consumer->env->log, "consumer_lock_nowhere",
                 "group=%s broker=%s queues=%zu reason=\"%s\"", consumer->options.group,
                 op->queues[0]->id.broker_name, op->count, error_text(&err, code));
    return code;
}

/* Takes the op. */
static void ask(struct lease_op *op, int64_t now_ns)
{
    struct tern_push_consumer *consumer = op->consumer;
    struct rpc_call *call = NULL;
    op->sent_ns = now_ns;
    struct lease_wire *wire = lease_wire_create(op);
    if (!wire || lease_op_call(op, &call) != TERN_OK) {
        lock_acquire(&consumer->lock);
        ask_again(op, false, now_ns);
        lock_release(&consumer->lock);
        free(wire);
        lease_op_free(op);
        return;
    }
    Tern__Wire__LockQueuesRequest lock = TERN__WIRE__LOCK_QUEUES_REQUEST__INIT;
    lock.group = text_bytes(consumer->options.group);
    lock.n_queues = lock.n_claims = op->count;
    lock.queues = wire->queue_pointers;
    lock.claims = wire->claim_pointers;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_LOCK_QUEUES;
    request.lock_queues = &lock;
    rpc_call_start(call, &request, 0, RPC_TIMEOUT_MS, on_locked, op);
    free(wire);
}

/* One that was lost, with a reference; NULL: none. @locks takes:CONSUMER */
static struct push_queue *next_lost(struct tern_push_consumer *consumer, int64_t now_ns)
{
    lock_acquire(&consumer->lock);
    struct push_queue *queue = consumer->queues;
    for (; queue; queue = queue->next) {
        int64_t until_ns = atomic_load_explicit(&queue->lease.until_ns, memory_order_relaxed);
        if (queue->lease.lost || (until_ns != 0 && until_ns <= now_ns))
            break;
    }
    if (queue) {
        queue->lease.lost = true;
        push_queue_ref(queue);
    }
    lock_release(&consumer->lock);
    return queue;
}

/* All are due, but those asked for just now. */
static void claim_all(struct tern_push_consumer *consumer, int64_t now_ns)
{
    lock_acquire(&consumer->lock);
    for (int list = 0; list < 2; list++)
        for (struct push_queue *queue = list ? consumer->leaving : consumer->queues; queue;
             queue = queue->next) {
            int64_t due_ns = queue->lease.told_ns + ms_to_ns(LEASE_TELL_MS);
            if (due_ns < now_ns)
                due_ns = now_ns;
            if (queue->lease.due_ns > due_ns)
                queue->lease.due_ns = due_ns;
        }
    lock_release(&consumer->lock);
}

int64_t push_leases_step(struct tern_push_consumer *consumer, int64_t now_ns)
{
    if (consumer->orderly && !consumer->needs_leases)
        grant_unshared(consumer);
    if (!consumer->needs_leases)
        return SCHED_NEVER;
    if (atomic_exchange(&consumer->claim_wanted, false))
        claim_all(consumer, now_ns);
    struct push_queue *lost;
    while (push_state(consumer) == PUSH_RUNNING && (lost = next_lost(consumer, now_ns))) {
        bool again = push_queue_begin_anew(lost, "its lease was lost");
        push_queue_unref(lost);
        if (!again)
            break; /* no memory: with the next step */
    }
    int64_t release_ns = push_releases_step(consumer, now_ns);
    for (;;) {
        lock_acquire(&consumer->lock);
        int64_t next_ns = next_due(consumer);
        lock_release(&consumer->lock);
        if (next_ns > now_ns)
            return next_ns < release_ns ? next_ns : release_ns;
        struct lease_op *op = lease_op_create(consumer);
        if (!op)
            return now_ns + ms_to_ns(LEASE_RETRY_MS);
        lock_acquire(&consumer->lock);
        collect_due(consumer, op, now_ns);
        lock_release(&consumer->lock);
        if (op->count > 0)
            ask(op, now_ns);
        else
            lease_op_free(op);
    }
}

bool push_lease_keeps(const struct push_queue *queue, int64_t now_ns)
{
    bool busy = atomic_load_explicit(&queue->cached, memory_order_acquire) > 0;
    return queue->lease.asking ||
           (busy &&
            now_ns - queue->lease.left_ns < ms_to_ns(queue->consumer->options.consume_timeout_ms));
}
