/*
 * One pull of the pull consumer, from the call to its end, over all addresses that it tries.
 *
 *   pull ──► TRYING: the suggested address ──answer──► result
 *              ▲  ▲      │ no connection, refused by a slave, "not now" by a master: the next one
 *              │  └──────┤
 *              │         │ a slave is at its end, or behind: the master, same offset
 *              └─ PAUSED ┘ …or, without a master, the slave again in a moment, until wait_ms is
 * over
 *
 * A slave's end is no end: the pull waits there in steps of a second, and looks for the master
 * between them. Nothing that a slave says corrects the offset asked for.
 *
 * Invariants: the application's function is called exactly once; no address that refused, or lags,
 * is asked again within its pause. A time-out has used up the caller's patience and ends the pull.
 *
 * Threads: any; the end comes on a link thread or the instance's task. Failure modes: with nobody
 * to be reached the last failure is the result, after PULL_TRIES_MAX attempts.
 */
#include "client/pull_internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/props.h"
#include "base/subscription.h"
#include "client/message_internal.h"

enum {
    PULL_MESSAGES_MAX = 1024,
    PULL_WAIT_MAX_MS = 60000,
    PULL_GRACE_MS = 10000, /* beyond what the broker may hold it */
    PULL_TRIES_MAX = 4,    /* attempts that failed, in one pull */
    SLAVE_WAIT_MS = 1000,  /* how long a slave may hold it before the master is looked for */
    QUICK_ANSWER_MS = 50,  /* "nothing" sooner than that was not held */
    LAG_PAUSE_MS = 50,     /* the first pause for a slave that is behind */
    LAG_PAUSE_MAX_MS = 1000
};

struct pull_op {
    struct tern_pull_consumer *consumer; /* holds a reference */
    struct tern_queue queue;
    struct subscription *tags;
    int64_t offset, wait_ms, started_ns;
    int max_messages;
    tern_pull_callback done;
    void *arg;
    struct rpc_peer *peer; /* of the call under way */
    int64_t peer_id;
    int64_t asked_ns;  /* when it began */
    unsigned failures; /* attempts without an answer that is one */
    unsigned lags;     /* answers of slaves that held nothing, in a row */
    bool at_end;       /* the last answer was a slave's end: a result when there is no time left */
    int64_t min_offset, max_offset; /* at_end: as it said */
    struct broker_shuns shuns;
    struct instance_timer timer; /* while paused */
};

static void op_free(struct pull_op *op)
{
    if (op->peer)
        rpc_peer_unref(op->peer);
    subscription_free(op->tags);
    pull_consumer_unref(op->consumer);
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

/* Ends it with what a slave said, which is as far as anybody can tell now. */
static void op_end_at_end(struct pull_op *op)
{
    struct tern_pull_result result = {.status = TERN_PULL_NO_NEW_MSG,
                                      .next_offset = op->offset,
                                      .min_offset = op->min_offset,
                                      .max_offset = op->max_offset};
    op_end(op, TERN_OK, &result, NULL);
}

static int64_t op_now(const struct pull_op *op)
{
    return clock_mono_ns(op->consumer->env->clock);
}

/* What is left of the wait. */
static int64_t op_left_ms(const struct pull_op *op)
{
    int64_t left_ms = op->wait_ms - (op_now(op) - op->started_ns) / 1000000;
    return left_ms > 0 ? left_ms : 0;
}

/* ---- trying ---- */

static void on_pulled(struct rpc_call *call, void *arg);

/* Sends it to op->peer. Not TERN_OK: nothing was started. */
static enum tern_code op_start(struct pull_op *op, struct tern_error *err)
{
    struct tern_pull_consumer *consumer = op->consumer;
    struct rpc_call *call;
    enum tern_code code = rpc_call_create(op->peer, 0, &call);
    if (code != TERN_OK)
        return error_set(err, code, "pull from %s", rpc_peer_address(op->peer));
    int64_t suspend_ms = op_left_ms(op);
    if (op->peer_id != 0 && suspend_ms > SLAVE_WAIT_MS)
        suspend_ms = SLAVE_WAIT_MS;
    Tern__Wire__PullRequest pull = TERN__WIRE__PULL_REQUEST__INIT;
    pull.group = frame_bytes(consumer->options.group, strlen(consumer->options.group));
    pull.topic = frame_bytes(op->queue.topic, strlen(op->queue.topic));
    pull.queue_id = op->queue.queue_id;
    pull.offset = op->offset;
    pull.max_count = op->max_messages;
    pull.suspend_timeout_ms = (uint32_t)suspend_ms;
    pull.has_subscription = true;
    pull.expression = (char *)(uintptr_t)subscription_text(op->tags);
    pull.expression_type = (char *)(uintptr_t)subscription_type_name(subscription_type(op->tags));
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    request.pull = &pull;
    op->asked_ns = op_now(op);
    rpc_call_start(call, &request, 0, suspend_ms + PULL_GRACE_MS, on_pulled, op);
    return TERN_OK;
}

/*
 * Asks the best address. again_ns NULL: any address that there is; else only one that is neither
 * away nor shunned, or TERN_AGAIN and the time when one may be (0: nobody knows).
 */
static enum tern_code op_try(struct pull_op *op, int64_t *again_ns, struct tern_error *err)
{
    struct tern_pull_consumer *consumer = op->consumer;
    const struct broker_wish wish = {.id = broker_suggested(&consumer->suggestions, &op->queue),
                                     .shuns = &op->shuns};
    struct broker_choice choice;
    enum tern_code code =
        broker_pick_cached(consumer->instance, &consumer->failed, &op->queue, &wish, &choice, err);
    if (code != TERN_OK)
        return code;
    if (again_ns && !choice.good) {
        rpc_peer_unref(choice.peer);
        *again_ns = choice.again_ns;
        return error_set(err, TERN_AGAIN, "no other address of broker %s can be asked now",
                         op->queue.broker_name);
    }
    if (op->peer)
        rpc_peer_unref(op->peer);
    op->peer = choice.peer;
    op->peer_id = choice.broker_id;
    return op_start(op, err);
}

/* ---- answers ---- */

/* Keeps what matches by the tag's text; a condition was the broker's to evaluate. */
static void sift(const struct subscription *tags, struct tern_pull_result *result)
{
    size_t kept = 0;
    if (subscription_matches_all(tags) || subscription_type(tags) == SUBSCRIPTION_SQL92)
        return;
    for (size_t i = 0; i < result->count; i++) {
        size_t len;
        const uint8_t *props = message_props(result->messages[i], &len);
        if (subscription_match_props(tags, props, len))
            result->messages[kept++] = result->messages[i];
        else
            tern_message_unref(result->messages[i]);
    }
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
    for (size_t i = 0; i < result->count; i++)
        consumer_prepare_message(&op->consumer->options, result->messages[i]);
    if (result->count == 0)
        result->status = TERN_PULL_NO_MATCHED_MSG;
    return TERN_OK;
}

/* Whether it is a slave's answer that its end is reached, or passed. */
static bool at_slaves_end(const struct pull_op *op, enum tern_code code,
                          const struct rpc_call *call, const Tern__Wire__PullResponse *body)
{
    if (op->peer_id == 0 || !body)
        return false;
    return code == TERN_PULL_OFFSET_MOVED || code == TERN_PULL_NOT_FOUND ||
           body->max_offset < op->offset ||
           (code == TERN_PULL_RETRY_IMMEDIATELY &&
            (body->next_offset <= op->offset ||
             strcmp(call->response->remark, "MESSAGE_WAS_REMOVING") == 0));
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

/* ---- going on elsewhere ---- */

static void op_go_on(struct pull_op *op);

static void on_time(struct instance_timer *timer, enum tern_code code)
{
    struct pull_op *op =
        (struct pull_op *)(void *)((char *)timer - offsetof(struct pull_op, timer));
    struct tern_error err;
    if (code == TERN_OK && atomic_load(&op->consumer->state) == PULL_RUNNING) {
        op_go_on(op);
        return;
    }
    error_set(&err, TERN_CANCELED, "the consumer of group %s was shut down",
              op->consumer->options.group);
    op_end(op, TERN_CANCELED, NULL, &err);
}

/* At a slave's end: the master when it can be asked, else the slave again, while there is time. */
static void op_go_on(struct pull_op *op)
{
    struct tern_error err;
    int64_t again_ns = 0;
    enum tern_code code = op_try(op, &again_ns, &err);
    if (code == TERN_OK)
        return;
    int64_t left_ms = op_left_ms(op);
    int64_t end_ns = op_now(op) + ms_to_ns(left_ms);
    if (again_ns == 0)
        again_ns = op_now(op) + ms_to_ns(LAG_PAUSE_MAX_MS);
    op->timer.done = on_time;
    if (code != TERN_AGAIN || left_ms == 0 ||
        !instance_timer_start(op->consumer->instance, &op->timer,
                              again_ns < end_ns ? again_ns : end_ns))
        op_end_at_end(op);
}

/* Takes what a slave at its end said. One that held the pull has done what it should. */
static void slave_ends(struct pull_op *op, const Tern__Wire__PullResponse *body)
{
    struct tern_pull_consumer *consumer = op->consumer;
    bool suggested = broker_suggested(&consumer->suggestions, &op->queue) == op->peer_id;
    bool held = op_now(op) - op->asked_ns >= ms_to_ns(QUICK_ANSWER_MS);
    int64_t pause_ms = (int64_t)LAG_PAUSE_MS << (op->lags < 8 ? op->lags : 8);
    op->lags = held ? 0 : op->lags + 1;
    if (suggested || pause_ms > LAG_PAUSE_MAX_MS)
        pause_ms = LAG_PAUSE_MAX_MS;
    if (!held || op_left_ms(op) == 0) /* without time left, only the master is worth another try */
        broker_shun(&op->shuns, op->peer_id, op_now(op) + ms_to_ns(pause_ms));
    broker_suggest(&consumer->suggestions, &op->queue, 0);
    op->at_end = true;
    op->min_offset = body->min_offset;
    op->max_offset = body->max_offset;
}

/* Whether another address of the set may serve what this one did not. */
static bool may_go_elsewhere(const struct pull_op *op, enum tern_code code)
{
    if (code == TERN_TIMEOUT || op->failures >= PULL_TRIES_MAX)
        return false;
    return code_means_elsewhere(code) || op->peer_id != 0;
}

/* A failure, not an answer: true when the pull goes on at another address. */
static bool try_elsewhere(struct pull_op *op, enum tern_code code)
{
    struct tern_pull_consumer *consumer = op->consumer;
    int64_t again_ns;
    op->failures++;
    if (!may_go_elsewhere(op, code))
        return false;
    instance_route_refresh(consumer->instance, op->queue.topic);
    if (code_means_unreachable(code))
        return op_try(op, NULL, NULL) == TERN_OK;
    broker_shun(&op->shuns, op->peer_id, op_now(op) + ms_to_ns(LAG_PAUSE_MAX_MS));
    broker_suggest(&consumer->suggestions, &op->queue, 0);
    return op_try(op, &again_ns, NULL) == TERN_OK;
}

/* Goes on, or ends the pull, as the answer says. Takes the call. */
static void op_answered(struct pull_op *op, struct rpc_call *call)
{
    struct tern_pull_result result = {.count = 0};
    struct tern_error err = {.code = TERN_OK};
    enum tern_code code = rpc_call_result(call);
    const Tern__Wire__PullResponse *body = NULL;
    if (call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_PULL)
        body = call->response->pull;
    bool running = atomic_load(&op->consumer->state) == PULL_RUNNING;
    if (at_slaves_end(op, code, call, body)) {
        slave_ends(op, body);
        rpc_call_unref(call);
        if (running)
            op_go_on(op);
        else
            op_end_at_end(op);
        return;
    }
    if (running && !body && code != TERN_OK && try_elsewhere(op, code)) {
        rpc_call_unref(call);
        return;
    }
    code = read_answer(op, call, code, body, &result, &err);
    if (code != TERN_OK)
        tern_pull_result_clear(&result);
    rpc_call_unref(call);
    if (op->at_end && code_means_elsewhere(code))
        op_end_at_end(op); /* a slave has said something, then nobody */
    else
        op_end(op, code, &result, &err);
}

/* @thread link's */
static void on_pulled(struct rpc_call *call, void *arg)
{
    struct pull_op *op = arg;
    failed_addresses_note(&op->consumer->failed, rpc_peer_address(op->peer), rpc_call_result(call),
                          op_now(op));
    op_answered(op, call);
}

/* ---- the application's side ---- */

void tern_pull_result_clear(struct tern_pull_result *result)
{
    for (size_t i = 0; i < result->count; i++)
        tern_message_unref(result->messages[i]);
    free(result->messages);
    result->messages = NULL;
    result->count = 0;
}

/* What to match; not NULL. */
struct pull_want {
    enum subscription_type type;
    const char *expression;
};

static struct pull_want want_tags(const char *expression)
{
    return (struct pull_want){SUBSCRIPTION_TAG, expression ? expression : "*"};
}

static struct pull_want want_sql(const char *condition)
{
    return (struct pull_want){SUBSCRIPTION_SQL92, condition ? condition : ""};
}

static enum tern_code op_create(struct tern_pull_consumer *consumer, const struct tern_queue *queue,
                                const struct pull_want *want, int64_t offset, int max_messages,
                                int64_t wait_ms, struct pull_op **out, struct tern_error *err)
{
    *out = NULL;
    enum tern_code code = pull_check_running(consumer, err);
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
    code = consumer_wire_queue(&consumer->options, queue, &op->queue, err);
    if (code == TERN_OK)
        code = subscription_compile(want->type, want->expression, strlen(want->expression),
                                    &op->tags, err);
    if (code != TERN_OK) {
        free(op);
        return code;
    }
    op->consumer = consumer;
    op->started_ns = clock_mono_ns(consumer->env->clock);
    atomic_fetch_add_explicit(&consumer->refs, 1, memory_order_relaxed);
    *out = op;
    return TERN_OK;
}

static enum tern_code pull_start(struct tern_pull_consumer *consumer,
                                 const struct tern_queue *queue, const struct pull_want *want,
                                 int64_t offset, int max_messages, int64_t wait_ms,
                                 tern_pull_callback done, void *arg, struct tern_error *err)
{
    struct pull_op *op;
    enum tern_code code = op_create(consumer, queue, want, offset, max_messages, wait_ms, &op, err);
    if (!op)
        return code;
    op->done = done;
    op->arg = arg;
    code = op_try(op, NULL, err);
    if (code != TERN_OK)
        op_free(op);
    return code;
}

enum tern_code tern_pull_consumer_pull_async(struct tern_pull_consumer *consumer,
                                             const struct tern_queue *queue, const char *expression,
                                             int64_t offset, int max_messages, int64_t wait_ms,
                                             tern_pull_callback done, void *arg,
                                             struct tern_error *err)
{
    const struct pull_want want = want_tags(expression);
    return pull_start(consumer, queue, &want, offset, max_messages, wait_ms, done, arg, err);
}

enum tern_code tern_pull_consumer_pull_sql_async(struct tern_pull_consumer *consumer,
                                                 const struct tern_queue *queue,
                                                 const char *condition, int64_t offset,
                                                 int max_messages, int64_t wait_ms,
                                                 tern_pull_callback done, void *arg,
                                                 struct tern_error *err)
{
    const struct pull_want want = want_sql(condition);
    return pull_start(consumer, queue, &want, offset, max_messages, wait_ms, done, arg, err);
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

static enum tern_code pull_and_wait(struct tern_pull_consumer *consumer,
                                    const struct tern_queue *queue, const struct pull_want *want,
                                    int64_t offset, int max_messages, int64_t wait_ms,
                                    struct tern_pull_result *result, struct tern_error *err)
{
    *result = (struct tern_pull_result){.count = 0};
    enum tern_code code = pull_check_running(consumer, err);
    struct route *route;
    struct tern_queue wire;
    if (code == TERN_OK)
        code = consumer_wire_queue(&consumer->options, queue, &wire, err);
    if (code == TERN_OK)
        code = pull_need_route(consumer, wire.topic, &route, err);
    if (code != TERN_OK)
        return code;
    route_unref(route);
    struct pull_wait wait = {.sched = consumer->env->sched, .result = result, .err = err};
    latch_init(&wait.latch);
    code = pull_start(consumer, queue, want, offset, max_messages, wait_ms, on_waited, &wait, err);
    if (code != TERN_OK)
        return code;
    bool done = latch_wait(wait.sched, &wait.latch, SCHED_NEVER); /* every call ends by itself */
    ENSURE(done);
    return wait.code;
}

enum tern_code tern_pull_consumer_pull(struct tern_pull_consumer *consumer,
                                       const struct tern_queue *queue, const char *expression,
                                       int64_t offset, int max_messages, int64_t wait_ms,
                                       struct tern_pull_result *result, struct tern_error *err)
{
    const struct pull_want want = want_tags(expression);
    return pull_and_wait(consumer, queue, &want, offset, max_messages, wait_ms, result, err);
}

enum tern_code tern_pull_consumer_pull_sql(struct tern_pull_consumer *consumer,
                                           const struct tern_queue *queue, const char *condition,
                                           int64_t offset, int max_messages, int64_t wait_ms,
                                           struct tern_pull_result *result, struct tern_error *err)
{
    const struct pull_want want = want_sql(condition);
    return pull_and_wait(consumer, queue, &want, offset, max_messages, wait_ms, result, err);
}
