/*
 * One send, from submission to its callback.
 *
 *   submit ──► [lane] ──► advance: route known? ──no──► route_ask ─► route_came ─┐
 *                             │ yes                                              │
 *                             ▼                                                  │
 *                          attempt ──► answered ──stored──► end: callback        │
 *                             ▲            │                                     │
 *                             └── retry ◄──┴── failed, may be tried again ◄──────┘
 *
 * A send is always owned by exactly one of: its submitter, the callback of its call, its route
 * waiter, or the lane it waits in. Once a call or a wait was started, the starter must not look at
 * it any more: it may have ended already.
 *
 * Failure: what failed is remembered in send->code and send->err and reported when no try or no
 * time is left. A send with a named queue has one try. A topic that nobody knows goes by the
 * default topic's route when there is one (auto-creation), else it ends with TERN_TOPIC_NOT_EXIST.
 *
 * Invariant: the callback comes exactly once, before the next send of the lane starts.
 *
 * Threads: any; callbacks on the link's threads.
 */
#include "client/producer_internal.h"

#include <stddef.h>

static void answered(struct rpc_call *call, void *arg);
static void route_came(struct route_waiter *waiter, enum tern_code code, struct route *route,
                       const struct tern_error *err);
static void default_route_came(struct route_waiter *waiter, enum tern_code code,
                               struct route *route, const struct tern_error *err);

/* ---- failing ---- */

static enum tern_code fail(struct send *send, enum tern_code code)
{
    send->code = code;
    send->err.code = code;
    return code;
}

static bool may_be_stored(enum tern_code code)
{
    return code == TERN_TIMEOUT || code == TERN_CONNECTION_LOST || code == TERN_SYSTEM_ERROR;
}

/* Whether another try may help: the header's rule for sends without a named queue. */
static bool may_retry(const struct send *send, enum tern_code code, int64_t now_ns)
{
    if (send->lane || send->oneway || send->tries_left <= 0 || now_ns >= send->deadline_ns)
        return false;
    if (message_is_half(send->messages[0]) && may_be_stored(code))
        return false; /* the broker would ask about two, and both might be committed */
    return tern_code_retriable(code) || code == TERN_TOPIC_NOT_EXIST || code == TERN_NO_PERMISSION;
}

/* The broker says what the route does not: ask for a new one before the next try. */
static bool hints_at_stale_route(enum tern_code code)
{
    return code == TERN_TOPIC_NOT_EXIST || code == TERN_NO_PERMISSION;
}

/* ---- one attempt ---- */

/* Queue and broker of the next attempt; TERN_AGAIN: a fresh route is worth asking for. */
static enum tern_code choose_target(struct send *send)
{
    struct publish *publish = send->publish;
    enum tern_code hopeless = TERN_OK;
    if (send->lane) {
        const struct send_broker *wanted = send->lane->key.broker;
        send->target = NULL;
        send->queue_id = send->named.queue_id;
        for (size_t i = 0; i < publish->broker_count && !send->target; i++)
            if (publish->brokers[i].broker == wanted)
                send->target = &publish->brokers[i];
        if (!send->target)
            hopeless = error_set(&send->err, TERN_UNREACHABLE,
                                 "topic %s: broker %s has no master now, or is none of its brokers",
                                 send->topic->name, wanted->name);
    } else if (publish->queue_count == 0) {
        hopeless = publish_no_queue(publish, send->topic->name, &send->err);
    } else {
        size_t index = publish_choose(send->producer, send->topic, publish, send->last_broker);
        send->queue_id = publish->queues[index].queue_id;
        send->target = &publish->brokers[publish->queue_broker[index]];
    }
    /* An order topic's queues stay where they are, their brokers up or not. */
    if (hopeless == TERN_OK && !send->target->address[0] && !send->lane)
        hopeless = publish_no_queue(publish, send->topic->name, &send->err);
    else if (hopeless == TERN_OK && !send->target->address[0])
        hopeless = error_set(
            &send->err, TERN_UNREACHABLE,
            "order topic %s: queue %d is at broker %s, which has no master now: bring it back; its "
            "keys go nowhere else unless mqadmin updateOrderConf says so",
            send->topic->name, (int)send->queue_id, send->target->broker->name);
    if (hopeless == TERN_OK)
        return TERN_OK;
    fail(send, hopeless);
    return send->had_fresh_route ? hopeless : TERN_AGAIN;
}

/* With a publish: tries until a call is under way (true) or the send has ended (false). */
static bool attempt(struct send *send)
{
    for (;;) {
        int64_t now_ns = clock_mono_ns(send->producer->env->clock);
        if (now_ns >= send->deadline_ns) {
            if (send->code == TERN_OK)
                fail(send, error_set(&send->err, TERN_TIMEOUT,
                                     "topic %s: %lld ms passed before the message could be sent",
                                     send->topic->name,
                                     (long long)send->producer->options.send_timeout_ms));
            return false;
        }
        send->tries_left--;
        enum tern_code code = send_start_call(send, now_ns, answered);
        if (code == TERN_OK)
            return true;
        fail(send, code);
        if (!may_retry(send, code, now_ns))
            return false;
        send->last_broker = send->target->broker;
        if (choose_target(send) != TERN_OK)
            return false;
    }
}

/* ---- getting the route ---- */

static struct send *send_of(struct route_waiter *waiter)
{
    return (struct send *)(void *)((char *)waiter - offsetof(struct send, waiter));
}

/* Takes route; true: under way, false: ended. */
static bool go_on_with_route(struct send *send, struct route *route, bool default_topic);

/* Asks for a route; true: under way, false: ended. */
static bool ask_route(struct send *send, const char *topic, bool fresh, bool default_topic)
{
    struct route *route;
    struct tern_error err = {.code = TERN_OK};
    send->waiter.deadline_ns = send->deadline_ns;
    send->waiter.done = default_topic ? default_route_came : route_came;
    enum tern_code code =
        route_ask(send->producer->instance, topic, fresh, &send->waiter, &route, &err);
    if (code == TERN_AGAIN)
        return true;
    if (code == TERN_OK)
        return go_on_with_route(send, route, default_topic);
    send->err = err;
    fail(send, code);
    return false;
}

static bool go_on_with_publish(struct send *send)
{
    enum tern_code code = choose_target(send);
    if (code == TERN_OK)
        return attempt(send);
    if (code != TERN_AGAIN)
        return false;
    send->had_fresh_route = true;
    publish_unref(send->publish);
    send->publish = NULL;
    return ask_route(send, send->topic->name, true, false);
}

static bool go_on_with_route(struct send *send, struct route *route, bool default_topic)
{
    enum tern_code code = publish_from_route(send->producer, send->topic, route, default_topic,
                                             &send->publish, &send->err);
    if (code != TERN_OK) {
        fail(send, code);
        return false;
    }
    if (default_topic)
        send->had_fresh_route = true; /* the topic's own was asked for just now */
    return go_on_with_publish(send);
}

/* One step of the machine: true: under way elsewhere, false: the send has ended. */
static bool advance(struct send *send)
{
    if (send->wants_fresh_route && !send->had_fresh_route) {
        send->had_fresh_route = true;
        return ask_route(send, send->topic->name, true, false);
    }
    send->publish = publish_current(send->producer, send->topic);
    if (send->publish)
        return go_on_with_publish(send);
    send->had_fresh_route = true;
    return ask_route(send, send->topic->name, false, false);
}

/* ---- ending ---- */

/* Calls back, gives the send back; returns the next of its lane, which may go now. */
static struct send *end_one(struct send *send)
{
    struct tern_producer *producer = send->producer;
    producer_count_end(send);
    producer_trace_send(send);
    producer_call_back(send);
    struct send *next = NULL;
    if (send->lane) {
        lock_acquire(&producer->lock);
        next = lane_leave(send->lane, send);
        lock_release(&producer->lock);
    }
    send_release(send);
    return next;
}

/*
 * Runs a send, and those that its end lets go, until something is under way. No recursion: lanes
 * are long.
 */
static void go(struct send *send)
{
    while (send && !advance(send))
        send = end_one(send);
}

static void end(struct send *send)
{
    go(end_one(send));
}

/* @thread link's or the instance's task @locks none */
static void route_came(struct route_waiter *waiter, enum tern_code code, struct route *route,
                       const struct tern_error *err)
{
    struct send *send = send_of(waiter);
    bool under_way = false;
    if (code == TERN_OK) {
        under_way = go_on_with_route(send, route, false);
    } else if ((send->publish = publish_current(send->producer, send->topic))) {
        under_way = go_on_with_publish(send); /* no fresh one to be had, what is known must do */
    } else {
        send->err = *err;
        fail(send, code);
        under_way = code == TERN_TOPIC_NOT_EXIST && ask_route(send, DEFAULT_TOPIC, false, true);
    }
    if (!under_way)
        end(send);
}

static void default_route_came(struct route_waiter *waiter, enum tern_code code,
                               struct route *route, const struct tern_error *err)
{
    struct send *send = send_of(waiter);
    bool under_way = false;
    (void)err; /* what failed stays that the topic does not exist */
    if (code == TERN_OK)
        under_way = go_on_with_route(send, route, true);
    if (!under_way)
        end(send);
}

/* A record refused before the broker told how it sees us: the family was guessed wrong, perhaps. */
static bool try_otherwise(struct send *send, enum tern_code code)
{
    if (code != TERN_MESSAGE_ILLEGAL || send->plain || send->family_known ||
        send->tried_other_family)
        return false;
    send->tried_other_family = true;
    send->plain = send->count == 1;
    send->tries_left++;
    heartbeat_soon(send->producer->instance);
    return true;
}

static void note_failure(struct send *send, const struct rpc_call *call, enum tern_code code)
{
    struct publish_broker *target = send->target;
    /* The call's text begins with the address. */
    error_set(&send->err, code, "broker %s: %s", target->broker->name,
              error_text(&call->error, code));
    fail(send, code);
    send->last_broker = target->broker;
    if (call->status != TERN_OK || code == TERN_SERVICE_NOT_AVAILABLE) {
        send_broker_failed(send->producer, target->broker, code);
        send_broker_latency(send->producer, target->broker, LATENCY_OF_FAILURE_MS);
    }
    instance_route_refresh(send->producer->instance, send->topic->name);
}

/* @thread link's */
static void answered(struct rpc_call *call, void *arg)
{
    struct send *send = arg;
    enum tern_code code = rpc_call_result(call);
    bool stored = code == TERN_OK || code == TERN_FLUSH_DISK_TIMEOUT ||
                  code == TERN_FLUSH_SLAVE_TIMEOUT || code == TERN_SLAVE_NOT_AVAILABLE;
    bool again = false;
    int64_t now_ns = clock_mono_ns(send->producer->env->clock);
    if (call->status == TERN_OK)
        send_broker_latency(send->producer, send->target->broker,
                            (now_ns - send->attempt_ns) / 1000000);
    if (stored && call->status == TERN_OK) {
        fail(send, send_read_answer(send, call));
    } else {
        again = try_otherwise(send, code);
        if (!again) {
            note_failure(send, call, code);
            again = may_retry(send, code, now_ns);
            send->wants_fresh_route = hints_at_stale_route(code);
        }
    }
    rpc_call_unref(call);
    publish_unref(send->publish);
    send->publish = NULL;
    send->target = NULL;
    if (again)
        producer_count_retry(send->producer);
    if (again)
        go(send);
    else
        end(send);
}

enum tern_code send_submit(struct send *send, struct send_broker *named_broker,
                           struct tern_error *err)
{
    bool first = true;
    if (named_broker) {
        enum tern_code code = lane_enter(send, named_broker, &first);
        if (code != TERN_OK) {
            send_release(send);
            return error_set(err, code, "queue order: %s", tern_code_text(code));
        }
    }
    if (!first || advance(send))
        return TERN_OK;
    /* Nothing went out, and the caller is still there: it hears what a callback would tell. */
    if (send->code == TERN_LIMIT && !send->lane) {
        error_set(err, TERN_LIMIT, "%s", send->err.text);
        send_release(send);
        return TERN_LIMIT;
    }
    go(end_one(send));
    return TERN_OK;
}
