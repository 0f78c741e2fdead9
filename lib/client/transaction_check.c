/*
 * Checks: a broker asks what became of a transaction.
 *
 *   event ─► queue ─► thread: running here? ─► nothing is said; asked again later
 *                       ├─ decided here ─► told
 *                       └─ not remembered ─► the half message is fetched ─► check() ─► told
 *
 * A check of a transaction that waits in the queue already, or does not fit into it, is refused,
 * and the broker does not count it: a check() that hangs costs only its own transaction its checks.
 *
 * Threads: link threads queue; the producer's own tasks work. Failure modes: whatever fails while
 * answering is left to the next check.
 */
#include <stdlib.h>
#include <string.h>

#include "client/transaction_internal.h"

#include "base/props.h"

enum {
    VIEW_TIMEOUT_MS = 3000,
    ROUTES_EVERY_MS = 60000, /* those listened to are kept known */
    ROUTES_RETRY_MS = 5000,
    ROUTE_PATIENCE_MS = 3000
};

/* ---- queue ---- */

static bool is_among(const struct check *list, const struct rpc_peer *peer, int64_t half_off)
{
    for (; list; list = list->next)
        if (list->half_off == half_off && list->peer == peer)
            return true;
    return false;
}

/* false: there is no place, or it waits there already. @locks holds:TRANSACTION */
static bool enqueue(struct tern_transaction_producer *producer, struct check *check)
{
    if (!producer->tasks[0] || producer->check_count >= CHECKS_QUEUED_MAX ||
        is_among(producer->checks, check->peer, check->half_off))
        return false;
    *producer->checks_end = check;
    producer->checks_end = &check->next;
    producer->check_count++;
    for (int i = 0; i < producer->check_threads; i++)
        if (producer->tasks[i])
            task_wake(producer->tasks[i]);
    return true;
}

bool transaction_on_check(void *arg, struct rpc_peer *peer,
                          const Tern__Wire__CheckTransactionEvent *event)
{
    struct tern_transaction_producer *producer = arg;
    bool runs = false;
    struct check *check = event->message_id.len < HALF_ID_BYTES ? calloc(1, sizeof *check) : NULL;
    bool queued = false;
    if (check) {
        check->peer = rpc_peer_ref(peer);
        check->half_off = event->half_queue_offset;
        check->phys_off = event->half_physical_offset;
        if (event->message_id.len)
            memcpy(check->id, event->message_id.data, event->message_id.len);
        lock_acquire(&producer->lock);
        runs = is_among(producer->running, peer, check->half_off); /* it is being asked */
        queued = !runs && enqueue(producer, check);
        lock_release(&producer->lock);
    }
    if (queued)
        return true;
    counter_add(&producer->dropped, 1);
    if (check)
        rpc_peer_unref(check->peer);
    free(check);
    return runs;
}

static struct check *take(struct tern_transaction_producer *producer, bool *more)
{
    lock_acquire(&producer->lock);
    struct check *check = producer->checks;
    if (check) {
        producer->checks = check->next;
        if (!producer->checks)
            producer->checks_end = &producer->checks;
        producer->check_count--;
        check->next = producer->running;
        producer->running = check;
    }
    *more = producer->checks != NULL;
    lock_release(&producer->lock);
    return check;
}

/* It runs no more. */
static void check_end(struct tern_transaction_producer *producer, struct check *check)
{
    lock_acquire(&producer->lock);
    struct check **at = &producer->running;
    while (*at != check)
        at = &(*at)->next;
    *at = check->next;
    lock_release(&producer->lock);
    rpc_peer_unref(check->peer);
    free(check);
}

/* ---- answering ---- */

/* The half message; NULL: it could not be had. */
static struct tern_message *fetch(struct tern_transaction_producer *producer, struct check *check,
                                  struct tern_error *err)
{
    Tern__Wire__ViewMessageRequest view = TERN__WIRE__VIEW_MESSAGE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call = NULL;
    struct tern_message *message = NULL;
    size_t count = 0;
    view.physical_offset = check->phys_off;
    request.body_case = TERN__WIRE__REQUEST__BODY_VIEW_MESSAGE;
    request.view_message = &view;
    enum tern_code code =
        rpc_call_wait(check->peer, &request, NULL, 0, VIEW_TIMEOUT_MS, &call, err);
    if (code == TERN_OK)
        code = message_decode_all(call, call->payload, call->payload_size, "", &message, 1, &count,
                                  err);
    rpc_call_unref(call);
    if (count != 1)
        return NULL;
    message_restore_half(message);
    message_hide_namespace(message, producer->producer->options.ns);
    message_limit_body(message, (size_t)producer->producer->options.max_message_bytes);
    return message;
}

/* What the application says; UNKNOWN also when it could not be asked. */
static enum tern_transaction_outcome ask(struct tern_transaction_producer *producer,
                                         struct check *check)
{
    struct tern_error err = {.text = ""};
    struct tern_message *message = fetch(producer, check, &err);
    if (!message) {
        log_warn(producer->env->log, "transaction_check_not_asked",
                 "group=%s half=%lld broker=%s cause=\"%s\"", producer->producer->options.group,
                 (long long)check->half_off, rpc_peer_address(check->peer), err.text);
        return TERN_TRANSACTION_UNKNOWN;
    }
    enum tern_transaction_outcome outcome =
        producer->listener.check(producer->listener.arg, message);
    tern_message_unref(message);
    counter_add(&producer->answered, 1);
    return outcome;
}

static void answer(struct tern_transaction_producer *producer, struct check *check)
{
    struct tern_error err = {.text = ""};
    enum tern_transaction_outcome outcome = TERN_TRANSACTION_UNKNOWN;
    enum known_state state = known_look(producer, check->id, &outcome);
    if (state == KNOWN_RUNNING)
        return;
    if (state == KNOWN_DECIDED)
        counter_add(&producer->remembered, 1);
    else
        outcome = ask(producer, check);
    if (outcome != TERN_TRANSACTION_COMMIT && outcome != TERN_TRANSACTION_ROLLBACK)
        return;
    struct end_told told = {.half_off = check->half_off,
                            .phys_off = check->phys_off,
                            .id = check->id,
                            .outcome = outcome,
                            .from_check = true};
    int64_t deadline_ns =
        clock_mono_ns(producer->env->clock) + ms_to_ns(producer->producer->options.send_timeout_ms);
    enum tern_code code = transaction_tell(producer, check->peer, NULL, &told, deadline_ns, &err);
    if (!tern_code_retriable(code) || code == TERN_FLUSH_DISK_TIMEOUT ||
        code == TERN_FLUSH_SLAVE_TIMEOUT || code == TERN_SLAVE_NOT_AVAILABLE)
        known_forget(producer, check->id);
    if (code != TERN_OK)
        log_warn(producer->env->log, "transaction_outcome_answered",
                 "group=%s half=%lld broker=%s code=%s cause=\"%s\"",
                 producer->producer->options.group, (long long)check->half_off,
                 rpc_peer_address(check->peer), tern_code_name(code), err.text);
}

/* ---- tasks ---- */

/* The routes of the topics that are listened to, so that their brokers know us. */
static void keep_routes(struct tern_transaction_producer *producer, int64_t now_ns)
{
    bool all = true;
    for (size_t i = 0; i < producer->topic_count; i++) {
        struct route *route = NULL;
        enum tern_code code = instance_route(producer->instance, producer->topics[i],
                                             now_ns + ms_to_ns(ROUTE_PATIENCE_MS), &route, NULL);
        all = all && code == TERN_OK;
        route_unref(route);
    }
    producer->routes_ns = now_ns + ms_to_ns(all ? ROUTES_EVERY_MS : ROUTES_RETRY_MS);
}

static int64_t step(struct tern_transaction_producer *producer, bool first, int64_t now_ns)
{
    bool more;
    bool routes = first && producer->topic_count > 0;
    if (routes && now_ns >= producer->routes_ns)
        keep_routes(producer, now_ns);
    struct check *check = take(producer, &more);
    if (check) {
        answer(producer, check);
        check_end(producer, check);
    }
    return more ? now_ns : routes ? producer->routes_ns : SCHED_NEVER;
}

static int64_t first_step(void *arg, int64_t now_ns)
{
    return step(arg, true, now_ns);
}

static int64_t other_step(void *arg, int64_t now_ns)
{
    return step(arg, false, now_ns);
}

enum tern_code checks_start(struct tern_transaction_producer *producer, struct tern_error *err)
{
    for (int i = 0; i < producer->check_threads; i++) {
        struct task *task;
        enum tern_code code = task_start(producer->env->sched, "tern-tx-check",
                                         i == 0 ? first_step : other_step, producer, &task);
        if (code != TERN_OK) {
            checks_stop(producer);
            return error_set(err, code, "no thread for checks of transactions");
        }
        lock_acquire(&producer->lock);
        producer->tasks[i] = task;
        lock_release(&producer->lock);
    }
    return TERN_OK;
}

void checks_stop(struct tern_transaction_producer *producer)
{
    struct task *tasks[CHECK_THREADS_MAX];
    bool more = true;
    lock_acquire(&producer->lock);
    memcpy(tasks, producer->tasks, sizeof tasks);
    memset(producer->tasks, 0, sizeof producer->tasks);
    lock_release(&producer->lock);
    for (int i = 0; i < CHECK_THREADS_MAX; i++)
        task_stop(tasks[i]);
    while (more) {
        struct check *check = take(producer, &more);
        if (check)
            check_end(producer, check);
    }
}
