/*
 * The pull consumer: single questions to the broker of a queue, each answered or failed as a whole.
 *
 *   pull ──► pull_op ──► address of the set (the suggested one) ──answer──► result
 *                             ▲ no answer: the next address              └─ slave "beyond my end":
 *                             └──────────────────────────────────────────── the master, same offset
 *
 * It is no member of its group: it takes no share of the queues, sends no heartbeats, and its pulls
 * carry their expression, so that a broker needs to know nothing of it. Progress is the
 * application's: committed only when it says so.
 *
 * A single question goes to the master; when that cannot be reached, to the other addresses of the
 * set. A slave may be behind: what it says of a queue's end is a lower bound. It never says "no
 * progress".
 *
 * Threads: any. Waiting calls may not be made on a link thread. Failure modes: every function ends
 * within its time-outs; an address that does not answer is tried last for a while.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <tern/consumer.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/names.h"
#include "base/props.h"
#include "base/sched.h"
#include "base/subscription.h"
#include "client/broker_pick.h"
#include "client/consumer_options.h"
#include "client/instance.h"
#include "client/message_internal.h"
#include "rpc/client.h"

#define PULL_MAGIC 0x50554C4C434F4E53ULL

enum {
    PULL_MESSAGES_MAX = 1024,
    PULL_WAIT_MAX_MS = 60000,
    PULL_GRACE_MS = 10000, /* beyond what the broker may hold it */
    PULL_TRIES_MAX = 4     /* addresses asked in one pull */
};

enum pull_state { PULL_CREATED, PULL_RUNNING, PULL_SHUT_DOWN };

static const char *const state_texts[] = {"created", "running", "shut down"};

struct tern_pull_consumer {
    uint64_t magic;
    _Atomic uint32_t refs; /* the handle's and one per pull under way */
    struct tern_consumer_options options;
    const struct env *env;
    struct instance *instance;
    _Atomic int state; /* enum pull_state */
    struct broker_suggestions suggestions;
    struct failed_addresses failed;
};

/* ---- life ---- */

static void consumer_unref(struct tern_pull_consumer *consumer)
{
    if (atomic_fetch_sub_explicit(&consumer->refs, 1, memory_order_acq_rel) > 1)
        return;
    broker_suggestions_fini(&consumer->suggestions);
    failed_addresses_fini(&consumer->failed);
    consumer->magic = 0;
    free(consumer);
}

enum tern_code tern_pull_consumer_create(const struct tern_consumer_options *options,
                                         struct tern_pull_consumer **out, struct tern_error *err)
{
    *out = NULL;
    if (!options || !options->group[0])
        return error_set(err, TERN_INVALID, "a consumer needs a group");
    struct tern_pull_consumer *consumer = calloc(1, sizeof *consumer);
    if (!consumer)
        return error_set(err, TERN_NO_MEMORY, "consumer of group %s", options->group);
    consumer->magic = PULL_MAGIC;
    consumer->refs = 1;
    consumer->options = *options;
    broker_suggestions_init(&consumer->suggestions);
    failed_addresses_init(&consumer->failed);
    struct instance_options instance;
    consumer_options_instance(&consumer->options, &instance);
    enum tern_code code = instance_get(&instance, &consumer->instance, err);
    if (code != TERN_OK) {
        consumer_unref(consumer);
        return code;
    }
    consumer->env = instance_env(consumer->instance);
    *out = consumer;
    return TERN_OK;
}

static enum tern_code check_running(const struct tern_pull_consumer *consumer,
                                    struct tern_error *err)
{
    ENSURE(consumer->magic == PULL_MAGIC);
    int state = atomic_load(&consumer->state);
    if (state == PULL_RUNNING)
        return TERN_OK;
    return error_set(err, TERN_STATE, "the consumer of group %s is in the state \"%s\"",
                     consumer->options.group, state_texts[state]);
}

enum tern_code tern_pull_consumer_start(struct tern_pull_consumer *consumer, struct tern_error *err)
{
    ENSURE(consumer->magic == PULL_MAGIC);
    int expected = PULL_CREATED;
    if (!atomic_compare_exchange_strong(&consumer->state, &expected, PULL_RUNNING))
        return error_set(err, TERN_STATE, "the consumer of group %s is in the state \"%s\"",
                         consumer->options.group, state_texts[expected]);
    enum tern_code code = instance_start(consumer->instance, err);
    if (code != TERN_OK) {
        atomic_store(&consumer->state, PULL_CREATED);
        return code;
    }
    log_info(consumer->env->log, "pull_consumer_start", "group=%s client=%s",
             consumer->options.group, instance_client_id(consumer->instance));
    return TERN_OK;
}

void tern_pull_consumer_shutdown(struct tern_pull_consumer *consumer)
{
    ENSURE(consumer->magic == PULL_MAGIC);
    atomic_store(&consumer->state, PULL_SHUT_DOWN);
}

void tern_pull_consumer_destroy(struct tern_pull_consumer *consumer)
{
    if (!consumer)
        return;
    tern_pull_consumer_shutdown(consumer);
    instance_unref(consumer->instance);
    consumer_unref(consumer);
}

/* ---- pulling ---- */

/* One pull under way, over all addresses that it tries. */
struct pull_op {
    struct tern_pull_consumer *consumer; /* holds a reference */
    struct tern_queue queue;
    struct subscription *tags;
    int64_t offset, wait_ms;
    int max_messages;
    tern_pull_callback done;
    void *arg;
    struct rpc_peer *peer; /* of the call under way */
    int64_t peer_id;
    unsigned tries;
};

static void op_free(struct pull_op *op)
{
    if (op->peer)
        rpc_peer_unref(op->peer);
    subscription_free(op->tags);
    consumer_unref(op->consumer);
    free(op);
}

/* Ends the pull: the one call of the application's function. */
static void op_end(struct pull_op *op, enum tern_code code, struct tern_pull_result *result,
                   const struct tern_error *err)
{
    lock_assert_none_held();
    op->done(op->arg, code, code == TERN_OK ? result : NULL, code == TERN_OK ? NULL : err);
    op_free(op);
}

static void on_pulled(struct rpc_call *call, void *arg);

/* Asks the address wanted, or another of the set but not_id. Not TERN_OK: nothing was started. */
static enum tern_code op_start(struct pull_op *op, int64_t wanted_id, int64_t not_id,
                               struct tern_error *err)
{
    struct tern_pull_consumer *consumer = op->consumer;
    struct broker_choice choice;
    enum tern_code code = broker_pick_cached(consumer->instance, &consumer->failed, &op->queue,
                                             wanted_id, false, &choice, err);
    if (code != TERN_OK)
        return code;
    if (choice.broker_id == not_id) {
        rpc_peer_unref(choice.peer);
        return TERN_UNREACHABLE;
    }
    if (op->peer)
        rpc_peer_unref(op->peer);
    op->peer = choice.peer;
    op->peer_id = choice.broker_id;
    op->tries++;
    struct rpc_call *call;
    code = rpc_call_create(op->peer, 0, &call);
    if (code != TERN_OK)
        return error_set(err, code, "pull from %s", rpc_peer_address(op->peer));
    Tern__Wire__PullRequest pull = TERN__WIRE__PULL_REQUEST__INIT;
    pull.group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    pull.topic = frame_bytes(op->queue.topic, strlen(op->queue.topic));
    pull.queue_id = op->queue.queue_id;
    pull.offset = op->offset;
    pull.max_count = op->max_messages;
    pull.suspend_timeout_ms = (uint32_t)op->wait_ms;
    pull.has_subscription = true;
    pull.expression = (char *)(uintptr_t)subscription_text(op->tags);
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    request.pull = &pull;
    rpc_call_start(call, &request, 0, op->wait_ms + PULL_GRACE_MS, on_pulled, op);
    return TERN_OK;
}

/* Keeps what matches by the tag's text. */
static void sift(const struct subscription *tags, struct tern_pull_result *result)
{
    size_t kept = 0;
    for (size_t i = 0; i < result->count && !subscription_matches_all(tags); i++) {
        size_t len;
        const uint8_t *props = message_props(result->messages[i], &len);
        struct slice tag = {.ptr = NULL};
        if (props_get(props, len, PROP_TAGS, &tag) &&
            subscription_match_tag(tags, tag.ptr, tag.len))
            result->messages[kept++] = result->messages[i];
        else
            tern_message_unref(result->messages[i]);
    }
    if (!subscription_matches_all(tags))
        result->count = kept;
}

static enum tern_code decode(struct pull_op *op, struct rpc_call *call,
                             struct tern_pull_result *result, struct tern_error *err)
{
    int32_t count = call->response->pull->count;
    size_t cap = count < 1 ? 1 : count > PULL_MESSAGES_MAX ? PULL_MESSAGES_MAX : (size_t)count;
    /* One more, to see that there are not more than announced: next_offset would pass them. */
    result->messages = calloc(cap + 1, sizeof result->messages[0]);
    if (!result->messages)
        return error_set(err, TERN_NO_MEMORY, "%zu messages", cap);
    enum tern_code code =
        message_decode_all(call, call->payload, call->payload_size, op->queue.broker_name,
                           result->messages, cap + 1, &result->count, err);
    if (code == TERN_OK && result->count != cap)
        code = error_set(err, TERN_PROTOCOL, "%zu messages came, %d were announced", result->count,
                         (int)count);
    if (code != TERN_OK && result->count > 0) {
        /* The whole ones are good; the next pull meets the damage at its first message. */
        result->next_offset = tern_message_queue_offset(result->messages[result->count - 1]) + 1;
        code = TERN_OK;
    }
    if (code != TERN_OK)
        return code;
    sift(op->tags, result);
    if (result->count == 0)
        result->status = TERN_PULL_NO_MATCHED_MSG;
    return TERN_OK;
}

/* Whether a slave's answer says that it lacks what the master has. */
static bool slave_lags(const struct pull_op *op, enum tern_code code,
                       const Tern__Wire__PullResponse *body)
{
    if (op->peer_id == 0 || !body)
        return false;
    return code == TERN_PULL_OFFSET_MOVED || body->max_offset < op->offset ||
           (code == TERN_PULL_RETRY_IMMEDIATELY && body->next_offset <= op->offset);
}

/* An answer of the broker becomes the application's result. */
static enum tern_code read_answer(struct pull_op *op, struct rpc_call *call, enum tern_code code,
                                  const Tern__Wire__PullResponse *body,
                                  struct tern_pull_result *result, struct tern_error *err)
{
    bool known = code == TERN_OK || code == TERN_PULL_NOT_FOUND ||
                 code == TERN_PULL_RETRY_IMMEDIATELY || code == TERN_PULL_OFFSET_MOVED;
    if (!known || !body)
        return error_set(err, known ? TERN_PROTOCOL : code, "pull from %s: %s",
                         rpc_peer_address(op->peer), error_text(&call->error, code));
    *result = (struct tern_pull_result){.next_offset = body->next_offset,
                                        .min_offset = body->min_offset,
                                        .max_offset = body->max_offset};
    if (slave_lags(op, code, body)) {
        /* The master cannot be asked: the offset stands, whatever the slave would make of it. */
        result->status = TERN_PULL_NO_NEW_MSG;
        result->next_offset = op->offset;
        return TERN_OK;
    }
    broker_suggest(&op->consumer->suggestions, &op->queue,
                   body->suggest_broker_id > 0 ? body->suggest_broker_id : 0);
    if (body->next_offset < 0)
        return error_set(err, TERN_PROTOCOL, "%s answers next offset %lld",
                         rpc_peer_address(op->peer), (long long)body->next_offset);
    result->status = code == TERN_OK                       ? TERN_PULL_FOUND
                     : code == TERN_PULL_NOT_FOUND         ? TERN_PULL_NO_NEW_MSG
                     : code == TERN_PULL_RETRY_IMMEDIATELY ? TERN_PULL_NO_MATCHED_MSG
                                                           : TERN_PULL_OFFSET_ILLEGAL;
    return code == TERN_OK ? decode(op, call, result, err) : TERN_OK;
}

/*
 * Goes on at another address after a lost connection, or at the master when a slave lags; true:
 * started. A time-out has used up the caller's patience and ends the pull.
 */
static bool try_elsewhere(struct pull_op *op, enum tern_code code,
                          const Tern__Wire__PullResponse *body)
{
    struct tern_pull_consumer *consumer = op->consumer;
    if (atomic_load(&consumer->state) != PULL_RUNNING || op->tries >= PULL_TRIES_MAX)
        return false;
    if (slave_lags(op, code, body))
        return op_start(op, 0, op->peer_id, NULL) == TERN_OK;
    if (!code_means_unreachable(code) || code == TERN_TIMEOUT)
        return false;
    instance_route_refresh(consumer->instance, op->queue.topic);
    int64_t wanted_id = broker_suggested(&consumer->suggestions, &op->queue);
    return op_start(op, wanted_id, -1, NULL) == TERN_OK;
}

/* @thread link's */
static void on_pulled(struct rpc_call *call, void *arg)
{
    struct pull_op *op = arg;
    struct tern_pull_consumer *consumer = op->consumer;
    struct tern_pull_result result = {.count = 0};
    struct tern_error err = {.code = TERN_OK};
    enum tern_code code = rpc_call_result(call);
    failed_addresses_note(&consumer->failed, rpc_peer_address(op->peer), code,
                          clock_mono_ns(consumer->env->clock));
    const Tern__Wire__PullResponse *body = NULL;
    if (call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_PULL)
        body = call->response->pull;
    if (try_elsewhere(op, code, body)) {
        rpc_call_unref(call);
        return;
    }
    code = read_answer(op, call, code, body, &result, &err);
    if (code != TERN_OK)
        tern_pull_result_clear(&result);
    rpc_call_unref(call);
    op_end(op, code, &result, &err);
}

void tern_pull_result_clear(struct tern_pull_result *result)
{
    for (size_t i = 0; i < result->count; i++)
        tern_message_unref(result->messages[i]);
    free(result->messages);
    result->messages = NULL;
    result->count = 0;
}

static enum tern_code op_create(struct tern_pull_consumer *consumer, const struct tern_queue *queue,
                                const char *expression, int64_t offset, int max_messages,
                                int64_t wait_ms, struct pull_op **out, struct tern_error *err)
{
    *out = NULL;
    enum tern_code code = check_running(consumer, err);
    if (code != TERN_OK)
        return code;
    if (max_messages < 1 || max_messages > PULL_MESSAGES_MAX)
        return error_set(err, TERN_INVALID, "max_messages %d, allowed 1..%d", max_messages,
                         (int)PULL_MESSAGES_MAX);
    if (wait_ms < 0 || wait_ms > PULL_WAIT_MAX_MS)
        return error_set(err, TERN_INVALID, "wait_ms %lld, allowed 0..%d", (long long)wait_ms,
                         (int)PULL_WAIT_MAX_MS);
    if (offset < 0)
        return error_set(err, TERN_INVALID, "offset %lld is negative", (long long)offset);
    struct pull_op *op = calloc(1, sizeof *op);
    if (!op)
        return error_set(err, TERN_NO_MEMORY, "pull");
    op->offset = offset;
    op->wait_ms = wait_ms;
    op->max_messages = max_messages;
    const char *text = expression ? expression : "*";
    if (!broker_queue_key(queue, &op->queue))
        code = error_set(err, TERN_INVALID, "the queue's names are not terminated");
    else
        code = subscription_parse(text, strlen(text), &op->tags, err);
    if (code != TERN_OK) {
        free(op);
        return code;
    }
    op->consumer = consumer;
    atomic_fetch_add_explicit(&consumer->refs, 1, memory_order_relaxed);
    *out = op;
    return TERN_OK;
}

enum tern_code tern_pull_consumer_pull_async(struct tern_pull_consumer *consumer,
                                             const struct tern_queue *queue, const char *expression,
                                             int64_t offset, int max_messages, int64_t wait_ms,
                                             tern_pull_callback done, void *arg,
                                             struct tern_error *err)
{
    struct pull_op *op;
    enum tern_code code =
        op_create(consumer, queue, expression, offset, max_messages, wait_ms, &op, err);
    if (!op)
        return code;
    op->done = done;
    op->arg = arg;
    code = op_start(op, broker_suggested(&consumer->suggestions, &op->queue), -1, err);
    if (code != TERN_OK)
        op_free(op);
    return code;
}

/* Waits for an asynchronous pull. */
struct pull_wait {
    struct latch latch;
    struct sched *sched;
    enum tern_code code;
    struct tern_pull_result *result;
    struct tern_error *err;
};

static void on_waited(void *arg, enum tern_code code, struct tern_pull_result *result,
                      const struct tern_error *err)
{
    struct pull_wait *wait = arg;
    wait->code = code;
    if (code == TERN_OK)
        *wait->result = *result;
    else if (wait->err)
        *wait->err = *err;
    latch_set(wait->sched, &wait->latch);
}

/* Makes sure that the topic's route is in the cache. @thread not a callback */
static enum tern_code need_route(struct tern_pull_consumer *consumer, const char *topic,
                                 struct route **out, struct tern_error *err)
{
    int64_t deadline_ns = clock_mono_ns(consumer->env->clock) + ms_to_ns(RPC_TIMEOUT_MS);
    return instance_route(consumer->instance, topic, deadline_ns, out, err);
}

enum tern_code tern_pull_consumer_pull(struct tern_pull_consumer *consumer,
                                       const struct tern_queue *queue, const char *expression,
                                       int64_t offset, int max_messages, int64_t wait_ms,
                                       struct tern_pull_result *result, struct tern_error *err)
{
    *result = (struct tern_pull_result){.count = 0};
    enum tern_code code = check_running(consumer, err);
    struct route *route;
    if (code == TERN_OK)
        code = need_route(consumer, queue->topic, &route, err);
    if (code != TERN_OK)
        return code;
    route_unref(route);
    struct pull_wait wait = {.sched = consumer->env->sched, .result = result, .err = err};
    latch_init(&wait.latch);
    code = tern_pull_consumer_pull_async(consumer, queue, expression, offset, max_messages, wait_ms,
                                         on_waited, &wait, err);
    if (code != TERN_OK)
        return code;
    bool done = latch_wait(wait.sched, &wait.latch, SCHED_NEVER); /* every call ends by itself */
    ENSURE(done);
    return wait.code;
}

/* ---- single questions ---- */

enum tern_code tern_pull_consumer_queues(struct tern_pull_consumer *consumer, const char *topic,
                                         struct tern_queue *queues, size_t cap, size_t *count,
                                         struct tern_error *err)
{
    *count = 0;
    struct route *route;
    enum tern_code code = check_running(consumer, err);
    if (code == TERN_OK && !topic)
        code = error_set(err, TERN_INVALID, "topic is NULL");
    if (code == TERN_OK)
        code = topic_name_check(topic, strlen(topic), err);
    if (code == TERN_OK)
        code = need_route(consumer, topic, &route, err);
    if (code != TERN_OK)
        return code;
    *count = route->readable_count;
    for (size_t i = 0; i < route->readable_count && i < cap; i++)
        queues[i] = route->readable[i];
    route_unref(route);
    return TERN_OK;
}

/*
 * Asks a broker of the queue's set; *out is the caller's: on TERN_OK its response is of the case
 * expected, on a refusal there may be one.
 */
static enum tern_code ask_any(struct tern_pull_consumer *consumer, const struct tern_queue *queue,
                              TernRequest *request, Tern__Wire__Response__BodyCase expected,
                              struct rpc_call **out, struct tern_error *err)
{
    *out = NULL;
    enum tern_code code = check_running(consumer, err);
    struct route *route = NULL;
    if (code == TERN_OK)
        code = need_route(consumer, queue->topic, &route, err);
    if (code != TERN_OK)
        return code;
    code = broker_ask(consumer->instance, &consumer->failed, route, queue->broker_name, request,
                      out, err);
    route_unref(route);
    if (code == TERN_OK && expected != 0 && (*out)->response->body_case != expected) {
        rpc_call_unref(*out);
        *out = NULL;
        code = error_set(err, TERN_PROTOCOL, "the answer of broker %s has the wrong body",
                         queue->broker_name);
    }
    return code;
}

/* The same for who wants nothing of a refusal: only on TERN_OK there is an answer. */
static enum tern_code ask(struct tern_pull_consumer *consumer, const struct tern_queue *queue,
                          TernRequest *request, Tern__Wire__Response__BodyCase expected,
                          struct rpc_call **out, struct tern_error *err)
{
    enum tern_code code = ask_any(consumer, queue, request, expected, out, err);
    if (code != TERN_OK && *out) {
        rpc_call_unref(*out);
        *out = NULL;
    }
    return code;
}

enum tern_code tern_pull_consumer_range(struct tern_pull_consumer *consumer,
                                        const struct tern_queue *queue, int64_t *min_offset,
                                        int64_t *max_offset, struct tern_error *err)
{
    Tern__Wire__QueueRangeRequest range = TERN__WIRE__QUEUE_RANGE_REQUEST__INIT;
    range.topic = frame_bytes(queue->topic, strlen(queue->topic));
    range.queue_id = queue->queue_id;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUEUE_RANGE;
    request.queue_range = &range;
    struct rpc_call *call;
    enum tern_code code =
        ask(consumer, queue, &request, TERN__WIRE__RESPONSE__BODY_QUEUE_RANGE, &call, err);
    if (code != TERN_OK)
        return code;
    *min_offset = call->response->queue_range->min_offset;
    *max_offset = call->response->queue_range->max_offset;
    rpc_call_unref(call);
    return TERN_OK;
}

enum tern_code tern_pull_consumer_search(struct tern_pull_consumer *consumer,
                                         const struct tern_queue *queue, int64_t store_ms,
                                         int64_t *offset, struct tern_error *err)
{
    Tern__Wire__SearchOffsetRequest search = TERN__WIRE__SEARCH_OFFSET_REQUEST__INIT;
    search.topic = frame_bytes(queue->topic, strlen(queue->topic));
    search.queue_id = queue->queue_id;
    search.store_ms = store_ms;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEARCH_OFFSET;
    request.search_offset = &search;
    struct rpc_call *call;
    enum tern_code code =
        ask(consumer, queue, &request, TERN__WIRE__RESPONSE__BODY_SEARCH_OFFSET, &call, err);
    if (code != TERN_OK)
        return code;
    *offset = call->response->search_offset->offset;
    rpc_call_unref(call);
    return TERN_OK;
}

/*
 * A negative offset is no progress that anybody can use, and no "none" either. "None" has a
 * version, too: of what was deleted or lost.
 */
static enum tern_code query_progress(struct tern_pull_consumer *consumer,
                                     const struct tern_queue *queue, int64_t *offset,
                                     Tern__Wire__OffsetVersion *version, struct tern_error *err)
{
    Tern__Wire__QueryOffsetRequest query = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    query.group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    query.topic = frame_bytes(queue->topic, strlen(queue->topic));
    query.queue_id = queue->queue_id;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUERY_OFFSET;
    request.query_offset = &query;
    struct rpc_call *call;
    enum tern_code code =
        ask_any(consumer, queue, &request, TERN__WIRE__RESPONSE__BODY_QUERY_OFFSET, &call, err);
    const Tern__Wire__QueryOffsetResponse *body = NULL;
    if (call && call->response &&
        call->response->body_case == TERN__WIRE__RESPONSE__BODY_QUERY_OFFSET)
        body = call->response->query_offset;
    if (body && code == TERN_OK)
        *offset = body->offset;
    if (body && body->version) {
        version->epoch = body->version->epoch;
        version->counter = body->version->counter;
    }
    if (call)
        rpc_call_unref(call);
    if (code == TERN_OK && *offset < 0)
        return error_set(err, TERN_PROTOCOL, "broker %s answers progress %lld", queue->broker_name,
                         (long long)*offset);
    return code;
}

enum tern_code tern_pull_consumer_committed(struct tern_pull_consumer *consumer,
                                            const struct tern_queue *queue, int64_t *offset,
                                            struct tern_error *err)
{
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    return query_progress(consumer, queue, offset, &version, err);
}

static enum tern_code commit_with(struct tern_pull_consumer *consumer,
                                  const struct tern_queue *queue, int64_t offset,
                                  Tern__Wire__OffsetVersion *version, struct tern_error *err)
{
    Tern__Wire__CommitOffset one = TERN__WIRE__COMMIT_OFFSET__INIT;
    one.topic = frame_bytes(queue->topic, strlen(queue->topic));
    one.queue_id = queue->queue_id;
    one.offset = offset;
    one.version = version;
    Tern__Wire__CommitOffset *list[] = {&one};
    Tern__Wire__CommitOffsetRequest commit = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    commit.group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    commit.n_commits = 1;
    commit.commits = list;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_COMMIT_OFFSET;
    request.commit_offset = &commit;
    struct rpc_call *call;
    enum tern_code code = ask(consumer, queue, &request, 0, &call, err);
    if (code == TERN_OK)
        rpc_call_unref(call);
    return code;
}

enum tern_code tern_pull_consumer_commit(struct tern_pull_consumer *consumer,
                                         const struct tern_queue *queue, int64_t offset,
                                         struct tern_error *err)
{
    if (offset < 0)
        return error_set(err, TERN_INVALID, "offset %lld is negative", (long long)offset);
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    enum tern_code code = commit_with(consumer, queue, offset, &version, err);
    if (code != TERN_OFFSET_VERSION_OLD)
        return code;
    /* The application keeps its own offsets: a reset tells it nothing, its word counts from now on.
     */
    int64_t stored;
    code = query_progress(consumer, queue, &stored, &version, err);
    return code == TERN_OK || code == TERN_QUERY_NOT_FOUND
               ? commit_with(consumer, queue, offset, &version, err)
               : code;
}
