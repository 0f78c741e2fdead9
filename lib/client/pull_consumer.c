/*
 * The pull consumer: its life, and single questions to the broker of a queue, each answered or
 * failed as a whole. Pulling itself is in pull_op.c.
 *
 * It is no member of its group: it takes no share of the queues, sends no heartbeats, and its pulls
 * carry their expression, so that a broker needs to know nothing of it. Progress is the
 * application's: committed only when it says so.
 *
 * A single question goes to the master; when that cannot be reached or cannot tell, to the other
 * addresses of the set. A slave may be behind: what it says of a queue's end is a lower bound, and
 * "no progress" from a slave is no answer.
 *
 * Threads: any. Waiting calls may not be made on a link thread. Failure modes: every function ends
 * within its time-outs; an address that does not answer is tried last for a while.
 */
#include "client/pull_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/names.h"

static const char *const state_texts[] = {"created", "running", "shut down"};

/* ---- life ---- */

void pull_consumer_unref(struct tern_pull_consumer *consumer)
{
    if (atomic_fetch_sub_explicit(&consumer->refs, 1, memory_order_acq_rel) > 1)
        return;
    broker_suggestions_fini(&consumer->suggestions);
    failed_addresses_fini(&consumer->failed);
    consumer_options_fini(&consumer->options);
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
        return error_set(err, TERN_NO_MEMORY, "consumer");
    consumer->magic = PULL_MAGIC;
    consumer->refs = 1;
    consumer_options_copy(&consumer->options, options);
    enum tern_code code = consumer_options_use_namespace(&consumer->options, err);
    if (code != TERN_OK) {
        consumer_options_fini(&consumer->options);
        free(consumer);
        return code;
    }
    broker_suggestions_init(&consumer->suggestions);
    failed_addresses_init(&consumer->failed);
    struct instance_options instance;
    consumer_options_instance(&consumer->options, &instance);
    code = instance_get(&instance, &consumer->instance, err);
    if (code != TERN_OK) {
        pull_consumer_unref(consumer);
        return code;
    }
    consumer->env = instance_env(consumer->instance);
    *out = consumer;
    return TERN_OK;
}

enum tern_code pull_check_running(const struct tern_pull_consumer *consumer, struct tern_error *err)
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
    pull_consumer_unref(consumer);
}

enum tern_code pull_need_route(struct tern_pull_consumer *consumer, const char *topic,
                               struct route **out, struct tern_error *err)
{
    int64_t deadline_ns = clock_mono_ns(consumer->env->clock) + ms_to_ns(RPC_TIMEOUT_MS);
    return instance_route(consumer->instance, topic, deadline_ns, out, err);
}

/* ---- single questions ---- */

enum tern_code tern_pull_consumer_queues(struct tern_pull_consumer *consumer, const char *topic,
                                         struct tern_queue *queues, size_t cap, size_t *count,
                                         struct tern_error *err)
{
    *count = 0;
    char name[TOPIC_NAME_MAX + 1];
    struct route *route;
    enum tern_code code = pull_check_running(consumer, err);
    if (code == TERN_OK && !topic)
        code = error_set(err, TERN_INVALID, "topic is NULL");
    if (code == TERN_OK)
        code = topic_name_check(topic, strlen(topic), err);
    if (code == TERN_OK)
        code = namespace_wrap(consumer->options.ns, topic, TOPIC_NAME_MAX, name, err);
    if (code == TERN_OK)
        code = pull_need_route(consumer, name, &route, err);
    if (code != TERN_OK)
        return code;
    *count = route->readable_count;
    for (size_t i = 0; i < route->readable_count && i < cap; i++) {
        queues[i] = route->readable[i];
        namespace_strip(consumer->options.ns, queues[i].topic);
    }
    route_unref(route);
    return TERN_OK;
}

/*
 * Asks a broker of the queue's set; *out is the caller's: on TERN_OK its response is of the case
 * expected, on a refusal there may be one. *answered_id: whose answer it is.
 */
static enum tern_code ask_any(struct tern_pull_consumer *consumer, const struct tern_queue *queue,
                              TernRequest *request, Tern__Wire__Response__BodyCase expected,
                              struct rpc_call **out, int64_t *answered_id, struct tern_error *err)
{
    *out = NULL;
    *answered_id = -1;
    enum tern_code code = pull_check_running(consumer, err);
    struct route *route = NULL;
    if (code == TERN_OK)
        code = pull_need_route(consumer, queue->topic, &route, err);
    if (code != TERN_OK)
        return code;
    code = broker_ask(consumer->instance, &consumer->failed, route, queue->broker_name, request,
                      out, answered_id, err);
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
    int64_t answered_id;
    enum tern_code code = ask_any(consumer, queue, request, expected, out, &answered_id, err);
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
    struct tern_queue wire;
    enum tern_code code = consumer_wire_queue(&consumer->options, queue, &wire, err);
    if (code != TERN_OK)
        return code;
    Tern__Wire__QueueRangeRequest range = TERN__WIRE__QUEUE_RANGE_REQUEST__INIT;
    range.topic = frame_bytes(wire.topic, strlen(wire.topic));
    range.queue_id = queue->queue_id;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUEUE_RANGE;
    request.queue_range = &range;
    struct rpc_call *call;
    code = ask(consumer, &wire, &request, TERN__WIRE__RESPONSE__BODY_QUEUE_RANGE, &call, err);
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
    struct tern_queue wire;
    enum tern_code code = consumer_wire_queue(&consumer->options, queue, &wire, err);
    if (code != TERN_OK)
        return code;
    Tern__Wire__SearchOffsetRequest search = TERN__WIRE__SEARCH_OFFSET_REQUEST__INIT;
    search.topic = frame_bytes(wire.topic, strlen(wire.topic));
    search.queue_id = queue->queue_id;
    search.store_ms = store_ms;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEARCH_OFFSET;
    request.search_offset = &search;
    struct rpc_call *call;
    code = ask(consumer, &wire, &request, TERN__WIRE__RESPONSE__BODY_SEARCH_OFFSET, &call, err);
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
    int64_t answered_id;
    enum tern_code code =
        ask_any(consumer, queue, &request, TERN__WIRE__RESPONSE__BODY_QUERY_OFFSET, &call,
                &answered_id, err);
    const Tern__Wire__QueryOffsetResponse *body = NULL;
    if (call && call->response &&
        call->response->body_case == TERN__WIRE__RESPONSE__BODY_QUERY_OFFSET)
        body = call->response->query_offset;
    if (body && code == TERN_OK)
        *offset = body->offset;
    if (body && body->version) {
        version->epoch = body->version->epoch;
        version->counter = body->version->counter;
        version->cohort = body->version->cohort;
    }
    if (call)
        rpc_call_unref(call);
    if (code == TERN_QUERY_NOT_FOUND && answered_id != 0)
        return error_set(err, TERN_PROGRESS_UNKNOWN,
                         "broker %s: its slave %lld has no progress of group %s, its master cannot "
                         "be asked; ask again when it is back",
                         queue->broker_name, (long long)answered_id, consumer->options.group);
    if (code == TERN_OK && *offset < 0)
        return error_set(err, TERN_PROTOCOL, "broker %s answers progress %lld", queue->broker_name,
                         (long long)*offset);
    return code;
}

enum tern_code tern_pull_consumer_committed(struct tern_pull_consumer *consumer,
                                            const struct tern_queue *queue, int64_t *offset,
                                            struct tern_error *err)
{
    struct tern_queue wire;
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    enum tern_code code = consumer_wire_queue(&consumer->options, queue, &wire, err);
    return code == TERN_OK ? query_progress(consumer, &wire, offset, &version, err) : code;
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
    struct tern_queue wire;
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    enum tern_code code = consumer_wire_queue(&consumer->options, queue, &wire, err);
    if (code == TERN_OK)
        code = commit_with(consumer, &wire, offset, &version, err);
    if (code != TERN_OFFSET_VERSION_OLD)
        return code;
    /* The application keeps its own offsets: a reset tells it nothing, its word counts from now on.
     */
    int64_t stored;
    code = query_progress(consumer, &wire, &stored, &version, err);
    return code == TERN_OK || code == TERN_QUERY_NOT_FOUND
               ? commit_with(consumer, &wire, offset, &version, err)
               : code;
}
