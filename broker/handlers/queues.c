/*
 * Questions about queues: their range, an offset by time, a topic's figures.
 *
 * Its place: consumers ask for the range when they start without progress, the admin tool for the
 * rest. What the queues' objects know is answered at once; store times stand in the log, so those
 * go over the asking lane.
 *
 * A slave answers by its own queues; where a group begins is asked at its master.
 *
 * Threads: transport's and the lane's. Failure modes: each failure of the store is answered with
 * its code and the queue's name.
 */
#include "broker/admin_lane.h"
#include "broker/handlers/checks.h"

/* Topic and queue of a request, checked. */
struct queue_name {
    const char *topic;
    struct topic_config config;
};

static enum tern_code take_queue(struct broker *broker, struct rpc_request *request,
                                 const ProtobufCBinaryData *topic, int32_t queue_id,
                                 struct queue_name *out, struct tern_error *err)
{
    enum tern_code code = take_topic(request, topic, &out->topic, err);
    if (!code)
        code = check_serves(broker, TERN_SERVICE_NOT_AVAILABLE, err);
    if (!code)
        code = find_topic(broker, out->topic, &out->config, err);
    if (!code)
        code = check_queue(broker, &out->config, queue_id, err);
    return code;
}

/* Store time at an offset; 0 when there is none. */
static enum tern_code time_of(struct broker *broker, const char *topic, int32_t queue_id,
                              int64_t offset, int64_t *wall_ms, struct tern_error *err)
{
    enum tern_code code = store_time_of(broker->store, topic, queue_id, offset, wall_ms);
    if (code == TERN_OK)
        return TERN_OK;
    *wall_ms = 0;
    if (code == TERN_NOT_FOUND) /* expired meanwhile */
        return TERN_OK;
    return error_set(err, code, "reading topic %s queue %" PRId32 " at %" PRId64 " failed: %s",
                     topic, queue_id, offset, tern_code_text(code));
}

/* ---- range ---- */

static void answer_range(struct rpc_request *request, int64_t min, int64_t max, int64_t earliest_ms)
{
    Tern__Wire__QueueRangeResponse body = TERN__WIRE__QUEUE_RANGE_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    body.min_offset = min;
    body.max_offset = max;
    body.earliest_ms = earliest_ms;
    response.body_case = TERN__WIRE__RESPONSE__BODY_QUEUE_RANGE;
    response.queue_range = &body;
    rpc_reply(request, &response, 0);
}

/* @thread lane */
static void run_queue_range(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__QueueRangeRequest *wanted = request->header->queue_range;
    struct tern_error err = {.text = ""};
    struct queue_name queue;
    int64_t min;
    int64_t max;
    int64_t earliest_ms = 0;
    enum tern_code code =
        take_queue(broker, request, &wanted->topic, wanted->queue_id, &queue, &err);
    if (!code) {
        store_queue_range(broker->store, queue.topic, wanted->queue_id, &min, &max);
        if (min < max)
            code = time_of(broker, queue.topic, wanted->queue_id, min, &earliest_ms, &err);
    }
    if (code)
        rpc_reply_failure(request, code, &err);
    else
        answer_range(request, min, max, earliest_ms);
}

void handle_queue_range(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__QueueRangeRequest *wanted = request->header->queue_range;
    struct tern_error err = {.text = ""};
    struct queue_name queue;
    int64_t min;
    int64_t max;
    enum tern_code code =
        take_queue(broker, request, &wanted->topic, wanted->queue_id, &queue, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    store_queue_range(broker->store, queue.topic, wanted->queue_id, &min, &max);
    if (min == max)
        answer_range(request, min, max, 0);
    else
        admin_lane_run(broker->admin, request, run_queue_range);
}

/* ---- by time ---- */

/* @thread lane */
static void run_search_offset(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__SearchOffsetRequest *wanted = request->header->search_offset;
    Tern__Wire__SearchOffsetResponse body = TERN__WIRE__SEARCH_OFFSET_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {.text = ""};
    struct queue_name queue;
    int64_t min;
    enum tern_code code =
        take_queue(broker, request, &wanted->topic, wanted->queue_id, &queue, &err);
    if (!code && wanted->store_ms < -1)
        code = error_set(&err, TERN_INVALID,
                         "store_ms %" PRId64 " is no time: milliseconds since 1970, or -1: the end",
                         wanted->store_ms);
    if (!code && wanted->store_ms == -1) {
        store_queue_range(broker->store, queue.topic, wanted->queue_id, &min, &body.offset);
    } else if (!code) {
        code = store_offset_by_time(broker->store, queue.topic, wanted->queue_id, wanted->store_ms,
                                    &body.offset);
        if (code)
            error_set(&err, code, "searching topic %s queue %" PRId32 " by time failed: %s",
                      queue.topic, wanted->queue_id, tern_code_text(code));
    }
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_SEARCH_OFFSET;
    response.search_offset = &body;
    rpc_reply(request, &response, 0);
}

void handle_search_offset(struct broker *broker, struct rpc_request *request)
{
    admin_lane_run(broker->admin, request, run_search_offset);
}

/* ---- a topic's queues ---- */

static enum tern_code fill_stats(struct broker *broker, const char *topic, int32_t queue_id,
                                 Tern__Wire__QueueStats *out, struct tern_error *err)
{
    tern__wire__queue_stats__init(out);
    out->queue_id = queue_id;
    store_queue_range(broker->store, topic, queue_id, &out->min_offset, &out->max_offset);
    if (out->min_offset == out->max_offset)
        return TERN_OK;
    return time_of(broker, topic, queue_id, out->max_offset - 1, &out->last_update_ms, err);
}

/* @thread lane */
static void run_topic_stats(struct broker *broker, struct rpc_request *request)
{
    Tern__Wire__TopicStatsResponse body = TERN__WIRE__TOPIC_STATS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {.text = ""};
    struct topic_config config;
    Tern__Wire__QueueStats *queues = NULL;
    const char *topic;
    enum tern_code code = take_topic(request, &request->header->topic_stats->topic, &topic, &err);
    if (!code)
        code = find_topic(broker, topic, &config, &err);
    size_t count = code ? 0 : (size_t)topic_queue_count(broker, &config);
    if (!code) {
        queues = rpc_request_alloc(request, (count + 1) * sizeof *queues);
        body.queues = rpc_request_alloc(request, (count + 1) * sizeof *body.queues);
        if (!queues || !body.queues)
            code = error_set(&err, TERN_NO_MEMORY, "no memory for %zu queues", count);
    }
    for (size_t i = 0; !code && i < count; i++) {
        code = fill_stats(broker, topic, (int32_t)i, &queues[i], &err);
        body.queues[body.n_queues++] = &queues[i];
    }
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_TOPIC_STATS;
    response.topic_stats = &body;
    reply_bounded(broker, request, &response, "ask for the range of single queues");
}

void handle_topic_stats(struct broker *broker, struct rpc_request *request)
{
    admin_lane_run(broker->admin, request, run_topic_stats);
}
