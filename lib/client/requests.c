/*
 * Requests: sending them, waiting for their replies, fetching these.
 *
 * A request holds its producer (a shutdown waits for it) and is held by the table, its send, and
 * the call that fetches its reply; the last one frees it.
 *
 * The route of the reply topic must be known for the client to wait for events at its brokers: it
 * is asked for after the send has shown the topic's clusters, and used with every request, so that
 * the cache keeps it.
 *
 * Invariants: in the table exactly while nobody ends it; `oldest` is sorted by end. The timer runs
 * while the table is not empty, at most REQUEST_CHECK_MS late.
 *
 * Threads: any; CLIENT protects the table, done is called without it. Failure modes: a lost event
 * ends as a time-out; a reply that cannot be fetched, or is another's, ends the request with that
 * failure.
 */
#include "client/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/props.h"
#include "base/reply.h"
#include "client/producer_internal.h"

struct request {
    UT_hash_handle hh;
    struct request *prev, *next; /* by end */
    struct request *taken_next;
    _Atomic uint32_t refs;
    char id[33];
    struct tern_producer *producer;
    struct instance *instance;
    bool in_table; /* CLIENT */
    int64_t end_ns, timeout_ms;
    int64_t reply_phys_off;
    tern_reply_callback done;
    void *arg;
    char topic[TOPIC_NAME_MAX + 1]; /* for texts */
};

static void request_unref(struct request *request)
{
    if (atomic_fetch_sub_explicit(&request->refs, 1, memory_order_acq_rel) > 1)
        return;
    struct tern_producer *producer = request->producer;
    free(request);
    producer_let_go(producer);
}

/* ---- the table; @locks holds:CLIENT ---- */

static void table_remove(struct requests *requests, struct request *request)
{
    HASH_DELETE(hh, requests->table, request);
    DL_DELETE(requests->oldest, request);
    requests->count--;
    request->in_table = false;
}

static bool table_add(struct requests *requests, struct request *request)
{
    HASH_ADD_STR(requests->table, id, request);
    if (!request->hh.tbl)
        return false;
    /* Most have the same patience: the place is near the end. */
    struct request *after = requests->oldest ? requests->oldest->prev : NULL;
    while (after && after->end_ns > request->end_ns)
        after = after == requests->oldest ? NULL : after->prev;
    if (after)
        DL_APPEND_ELEM(requests->oldest, after, request);
    else
        DL_PREPEND(requests->oldest, request);
    requests->count++;
    requests->listening = true;
    request->in_table = true;
    return true;
}

/* ---- ending ---- */

/* The one call of done; the table's reference goes. @locks none */
static void end_request(struct request *request, enum tern_code code, struct tern_message *reply,
                        const struct tern_error *err)
{
    lock_assert_none_held();
    producer_callback_begin();
    request->done(request->arg, code, reply, code == TERN_OK ? NULL : err);
    producer_callback_end();
    request_unref(request);
}

static bool take(struct request *request)
{
    struct instance *instance = request->instance;
    lock_acquire(&instance->lock);
    bool mine = request->in_table;
    if (mine)
        table_remove(&instance->requests, request);
    lock_release(&instance->lock);
    return mine;
}

static void end_late(struct request *request)
{
    struct tern_error err;
    error_set(&err, TERN_TIMEOUT,
              "REQUEST_TIMEOUT: the message %s to topic %s was not replied to within %lld ms",
              request->id, request->topic, (long long)request->timeout_ms);
    end_request(request, TERN_TIMEOUT, NULL, &err);
}

/* The oldest one when its time is up, taken out. */
static struct request *take_due(struct instance *instance, int64_t now_ns)
{
    lock_acquire(&instance->lock);
    struct request *request = instance->requests.oldest;
    if (request && request->end_ns <= now_ns)
        table_remove(&instance->requests, request);
    else
        request = NULL;
    lock_release(&instance->lock);
    return request;
}

static void arm(struct instance *instance);

/* @thread the instance's task */
static void on_time(struct instance_timer *timer, enum tern_code code)
{
    struct instance *instance =
        (struct instance *)(void *)((char *)timer - offsetof(struct instance, requests.timer));
    struct request *request;
    while (code == TERN_OK && (request = take_due(instance, instance_now(instance))))
        end_late(request);
    lock_acquire(&instance->lock);
    instance->requests.armed = false;
    lock_release(&instance->lock);
    if (code == TERN_OK)
        arm(instance);
}

/* Lets the timer run while somebody waits. */
static void arm(struct instance *instance)
{
    struct requests *requests = &instance->requests;
    int64_t due_ns = instance_now(instance) + ms_to_ns(REQUEST_CHECK_MS);
    lock_acquire(&instance->lock);
    bool start = !requests->armed && requests->oldest;
    if (start) {
        requests->armed = true;
        requests->timer.done = on_time;
        if (requests->oldest->end_ns < due_ns)
            due_ns = requests->oldest->end_ns;
    }
    lock_release(&instance->lock);
    if (start && !instance_timer_start(instance, &requests->timer, due_ns))
        on_time(&requests->timer, TERN_CANCELED);
}

void requests_cancel(struct instance *instance, struct tern_producer *producer)
{
    for (;;) {
        struct request *request;
        struct tern_error err;
        lock_acquire(&instance->lock);
        DL_FOREACH (instance->requests.oldest, request)
            if (request->producer == producer)
                break;
        if (request)
            table_remove(&instance->requests, request);
        lock_release(&instance->lock);
        if (!request)
            return;
        error_set(&err, TERN_CANCELED, "the producer is shut down; message %s had no reply yet",
                  request->id);
        end_request(request, TERN_CANCELED, NULL, &err);
    }
}

/* ---- replies ---- */

void requests_note_reply(struct instance *instance, const Tern__Wire__ReplyEvent *event,
                         struct request **taken)
{
    struct request *request = NULL;
    if (event->correlation_id.len > 0 && event->correlation_id.len < sizeof request->id)
        HASH_FIND(hh, instance->requests.table, event->correlation_id.data,
                  event->correlation_id.len, request);
    if (!request) {
        atomic_fetch_add_explicit(&instance->requests.late, 1, memory_order_relaxed);
        return;
    }
    table_remove(&instance->requests, request);
    request->reply_phys_off = event->physical_offset;
    LL_PREPEND2(*taken, request, taken_next);
}

/* The one message of the answer, if it is the reply; TERN_PROTOCOL: it is another. */
static enum tern_code read_reply(const struct request *request, struct rpc_call *call,
                                 struct tern_message **reply, struct tern_error *err)
{
    size_t count = 0;
    *reply = NULL;
    enum tern_code code =
        message_decode_all(call, call->payload, call->payload_size, "", reply, 1, &count, err);
    if (code != TERN_OK)
        return code;
    const char *id = count ? tern_message_property(*reply, PROP_CORRELATION_ID) : NULL;
    if (id && strcmp(id, request->id) == 0)
        return TERN_OK;
    tern_message_unref(*reply);
    *reply = NULL;
    return error_set(err, TERN_PROTOCOL, "the message at physical offset %lld is no reply to %s",
                     (long long)request->reply_phys_off, request->id);
}

/* @thread link's */
static void on_fetched(struct rpc_call *call, void *arg)
{
    struct request *request = arg;
    struct tern_message *reply = NULL;
    struct tern_error err = {.code = TERN_OK};
    enum tern_code code = rpc_call_result(call);
    if (code == TERN_OK)
        code = read_reply(request, call, &reply, &err);
    else
        error_set(&err, code, "the reply to %s cannot be fetched: %s", request->id,
                  error_text(&call->error, code));
    rpc_call_unref(call);
    end_request(request, code, reply, &err);
}

static void fetch(struct request *request, struct rpc_peer *peer)
{
    struct rpc_call *call;
    struct tern_error err;
    int64_t left_ms = (request->end_ns - instance_now(request->instance)) / 1000000;
    enum tern_code code = rpc_call_create(peer, 0, &call);
    if (code != TERN_OK) {
        error_set(&err, code, "the reply to %s cannot be fetched", request->id);
        end_request(request, code, NULL, &err);
        return;
    }
    Tern__Wire__ViewMessageRequest view = TERN__WIRE__VIEW_MESSAGE_REQUEST__INIT;
    view.physical_offset = request->reply_phys_off;
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    header.body_case = TERN__WIRE__REQUEST__BODY_VIEW_MESSAGE;
    header.view_message = &view;
    rpc_call_start(call, &header, 0, left_ms > 1 ? left_ms : 1, on_fetched, request);
}

void requests_fetch(struct instance *instance, struct broker_link *link, struct request *taken)
{
    (void)instance;
    while (taken) {
        struct request *request = taken;
        taken = taken->taken_next;
        fetch(request, link->peer);
    }
}

/* ---- where replies come from ---- */

/* Somebody who asks for a route only so that it is known. */
struct watch {
    struct route_waiter waiter;
};

static void watch_ended(struct route_waiter *waiter, enum tern_code code, struct route *route,
                        const struct tern_error *err)
{
    (void)err;
    if (code == TERN_OK)
        route_unref(route);
    free(waiter);
}

/* Makes the instance know the brokers of a cluster's reply topic. */
static void watch_cluster(struct instance *instance, const char *cluster, int64_t deadline_ns)
{
    char topic[BROKER_NAME_MAX + sizeof REPLY_TOPIC_SUFFIX];
    snprintf(topic, sizeof topic, "%s" REPLY_TOPIC_SUFFIX, cluster);
    struct route *route =
        strlen(topic) <= TOPIC_NAME_MAX ? instance_route_cached(instance, topic) : NULL;
    if (route) {
        route_unref(route);
        return;
    }
    struct watch *watch = strlen(topic) <= TOPIC_NAME_MAX ? calloc(1, sizeof *watch) : NULL;
    if (!watch)
        return; /* the next request tries again */
    watch->waiter.deadline_ns = deadline_ns;
    watch->waiter.done = watch_ended;
    enum tern_code code = route_ask(instance, topic, false, &watch->waiter, &route, NULL);
    if (code == TERN_AGAIN)
        return;
    if (code == TERN_OK)
        route_unref(route);
    free(watch);
}

static void watch_replies(struct request *request)
{
    struct send_topic *topic;
    if (send_topic_get(request->producer, request->topic, &topic, NULL) != TERN_OK)
        return;
    struct publish *publish = publish_current(request->producer, topic);
    for (size_t i = 0; publish && i < publish->broker_count; i++)
        if (i == 0 || strcmp(publish->brokers[i].cluster, publish->brokers[i - 1].cluster) != 0)
            watch_cluster(request->instance, publish->brokers[i].cluster, request->end_ns);
    publish_unref(publish);
}

/* ---- requests ---- */

/* The send has ended; it holds a reference. @thread link's */
static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err)
{
    struct request *request = arg;
    (void)result;
    if (code == TERN_OK)
        watch_replies(request);
    else if (take(request))
        end_request(request, code, NULL, err);
    request_unref(request);
}

static enum tern_code request_create(struct tern_producer *producer, struct tern_message *message,
                                     int64_t timeout_ms, struct request **out,
                                     struct tern_error *err)
{
    *out = NULL;
    if (!message || timeout_ms < 1 || timeout_ms > REQUEST_TIMEOUT_MAX_MS)
        return error_set(err, TERN_INVALID,
                         message ? "timeout of %lld ms, allowed 1..%d" : "message is NULL",
                         (long long)timeout_ms, (int)REQUEST_TIMEOUT_MAX_MS);
    enum tern_code code = producer_hold(producer, "request", err);
    if (code != TERN_OK)
        return code;
    struct request *request = calloc(1, sizeof *request);
    if (!request) {
        producer_let_go(producer);
        return error_set(err, TERN_NO_MEMORY, "a request");
    }
    request->refs = 2; /* the table's, the send's */
    request->producer = producer;
    request->instance = producer->instance;
    request->timeout_ms = timeout_ms;
    request->end_ns = clock_mono_ns(producer->env->clock) + ms_to_ns(timeout_ms);
    id_maker_next(instance_ids(producer->instance), clock_wall_ms(producer->env->clock),
                  request->id);
    *out = request;
    return TERN_OK;
}

/* The properties that make a message a request. */
static enum tern_code mark_message(const struct request *request, struct tern_message *message,
                                   struct tern_error *err)
{
    char ttl[24];
    snprintf(ttl, sizeof ttl, "%lld", (long long)request->timeout_ms);
    enum tern_code code = message_set_reserved(message, PROP_CORRELATION_ID, request->id);
    if (code == TERN_OK)
        code = message_set_reserved(message, PROP_REPLY_TO_CLIENT,
                                    instance_client_id(request->instance));
    if (code == TERN_OK)
        code = message_set_reserved(message, PROP_TTL, ttl);
    return code == TERN_OK ? code : message_reserved_failed(message, "a request", code, err);
}

/* Puts it into the table. TERN_LIMIT, TERN_NO_MEMORY. */
static enum tern_code begin_waiting(struct request *request, struct tern_error *err)
{
    struct instance *instance = request->instance;
    lock_acquire(&instance->lock);
    bool full = instance->requests.count >= REQUESTS_MAX;
    bool good = !full && table_add(&instance->requests, request);
    if (good)
        instance_step_by(instance, 0);
    lock_release(&instance->lock);
    if (full)
        return error_set(err, TERN_LIMIT,
                         "%d requests wait for replies, the most a client may have",
                         (int)REQUESTS_MAX);
    return good ? TERN_OK : error_set(err, TERN_NO_MEMORY, "a request");
}

enum tern_code tern_producer_request_async(struct tern_producer *producer,
                                           struct tern_message *message, int64_t timeout_ms,
                                           tern_reply_callback done, void *arg,
                                           struct tern_error *err)
{
    struct request *request;
    if (!done)
        return error_set(err, TERN_INVALID, "done is NULL");
    enum tern_code code = request_create(producer, message, timeout_ms, &request, err);
    if (code != TERN_OK)
        return code;
    request->done = done;
    request->arg = arg;
    code = mark_message(request, message, err);
    if (code == TERN_OK)
        code = namespace_wrap(producer->options.ns, tern_message_topic(message), TOPIC_NAME_MAX,
                              request->topic, err);
    bool waiting = code == TERN_OK && (code = begin_waiting(request, err)) == TERN_OK;
    if (waiting) {
        arm(producer->instance);
        code = tern_producer_send_async(producer, &message, 1, NULL, on_sent, request, err);
        if (code == TERN_OK)
            return TERN_OK; /* done may have been called, the producer may be gone */
        /* Ended otherwise since (a shutdown): then done was called, and this is no failure. */
        if (!take(request)) {
            request_unref(request);
            return TERN_OK;
        }
    }
    request_unref(request);
    request_unref(request);
    return code;
}

struct sync_request {
    struct sched *sched;
    struct latch latch;
    enum tern_code code;
    struct tern_message *reply;
    struct tern_error *err;
};

static void sync_done(void *arg, enum tern_code code, struct tern_message *reply,
                      const struct tern_error *err)
{
    struct sync_request *sync = arg;
    sync->code = code;
    sync->reply = reply;
    if (err && sync->err)
        *sync->err = *err;
    latch_set(sync->sched, &sync->latch);
}

enum tern_code tern_producer_request(struct tern_producer *producer, struct tern_message *message,
                                     int64_t timeout_ms, struct tern_message **reply,
                                     struct tern_error *err)
{
    struct sync_request sync = {.sched = producer->env->sched, .err = err};
    *reply = NULL;
    latch_init(&sync.latch);
    enum tern_code code = producer_may_wait("request", err);
    if (code == TERN_OK)
        code = tern_producer_request_async(producer, message, timeout_ms, sync_done, &sync, err);
    if (code != TERN_OK)
        return code;
    bool set = latch_wait(producer->env->sched, &sync.latch, SCHED_NEVER); /* it has an end */
    ENSURE(set);
    *reply = sync.reply;
    return sync.code;
}
