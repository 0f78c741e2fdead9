/*
 * Resetting consumer progress, on the wire:
 *
 *   asking lane: target per queue ─► offsets ─► parked pulls answered ─► disk ─► events
 *   ─► the slaves in sync have it ─► answer
 *
 * Only an open master resets. Invariant: a target lies in [min, max] of its queue.
 *
 * Threads: the lane, since a search by time reads the log; an answer that waited on whoever learned
 * that the others have it. Failure modes: a reset whose disk fails is in effect and says that it is
 * not durable; one that the others do not confirm in time is in effect here and says so.
 */
#include <stdlib.h>

#include "base/log.h"
#include "broker/ack_wait.h"
#include "broker/admin_lane.h"
#include "broker/guard.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/progress.h"
#include "broker/long_poll.h"

/* In the request's memory. */
struct reset {
    struct ack_entry entry; /* first */
    struct broker *broker;
    struct rpc_request *request;
    const Tern__Wire__ResetOffsetRequest *wanted;
    const char *group, *topic;
    int32_t first_queue, queue_count;
    Tern__Wire__ResetQueue *queues;
    Tern__Wire__ResetQueue **pointers;
};

/* Known by its configuration, or only by progress that was left here. */
static bool group_known(struct reset *reset)
{
    struct group_config config;
    struct offset_version version;
    int64_t offset;
    if (groups_find(reset->broker->groups, reset->group, strlen(reset->group), &config))
        return true;
    for (int32_t i = 0; i < reset->queue_count; i++)
        if (offsets_query(reset->broker->offsets, reset->group, reset->topic,
                          reset->first_queue + i, &offset, &version))
            return true;
    return false;
}

static enum tern_code check_target(const Tern__Wire__ResetOffsetRequest *wanted,
                                   struct tern_error *err)
{
    switch (wanted->target_case) {
    case TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_OFFSET:
        if (wanted->offset >= 0)
            return TERN_OK;
        return error_set(err, TERN_INVALID, "offset %" PRId64 " is negative", wanted->offset);
    case TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_STORE_MS:
        if (wanted->store_ms >= -1)
            return TERN_OK;
        return error_set(err, TERN_INVALID,
                         "store_ms %" PRId64 " is no time: milliseconds since 1970, or -1: the end",
                         wanted->store_ms);
    default:
        return error_set(err, TERN_INVALID, "neither offset nor store_ms is given");
    }
}

static enum tern_code reset_begin(struct reset *reset, struct tern_error *err)
{
    struct broker *broker = reset->broker;
    const Tern__Wire__ResetOffsetRequest *wanted = reset->wanted;
    struct topic_config config;
    char text[256] = "";
    enum tern_code code = check_master(broker, err);
    enum tern_code refusal;
    if (!code && broker->ha && !ha_writable(broker->ha, &refusal, text, sizeof text))
        code = error_set(err, refusal, "no resets now: %s", text);
    if (!code)
        code = take_group(reset->request, &wanted->group, &reset->group, err);
    if (!code)
        code = take_topic(reset->request, &wanted->topic, &reset->topic, err);
    if (!code)
        code = check_target(wanted, err);
    if (!code)
        code = find_topic(broker, reset->topic, &config, err);
    if (!code && wanted->queue_id != -1)
        code = check_queue(broker, &config, wanted->queue_id, err);
    if (code)
        return code;
    bool all = wanted->queue_id == -1;
    reset->first_queue = all ? 0 : wanted->queue_id;
    reset->queue_count = all ? topic_queue_count(broker, &config) : 1;
    if (!group_known(reset))
        return error_set(err, TERN_GROUP_NOT_EXIST,
                         "group %s is not known on %s and has no progress in topic %s",
                         reset->group, broker->config.broker_name, reset->topic);
    size_t n = (size_t)reset->queue_count;
    reset->queues = rpc_request_alloc(reset->request, (n + 1) * sizeof reset->queues[0]);
    reset->pointers = rpc_request_alloc(reset->request, (n + 1) * sizeof reset->pointers[0]);
    if (!reset->queues || !reset->pointers)
        return error_set(err, TERN_NO_MEMORY, "no memory for %zu queues", n);
    return TERN_OK;
}

/* The first message stored at or after the time, as near as the store tells; the end for later. */
static enum tern_code offset_by_time(struct reset *reset, int32_t queue_id, int64_t min,
                                     int64_t max, int64_t *offset)
{
    int64_t wall_ms = reset->wanted->store_ms;
    int64_t last_ms;
    *offset = max;
    if (wall_ms == -1 || min == max)
        return TERN_OK;
    enum tern_code code =
        store_time_of(reset->broker->store, reset->topic, queue_id, max - 1, &last_ms);
    if (code == TERN_OK && wall_ms > last_ms)
        return TERN_OK;
    if (code != TERN_OK && code != TERN_NOT_FOUND)
        return code;
    return store_offset_by_time(reset->broker->store, reset->topic, queue_id, wall_ms, offset);
}

/* Where each queue is and would go; changes nothing. */
static enum tern_code reset_plan(struct reset *reset, struct tern_error *err)
{
    for (int32_t i = 0; i < reset->queue_count; i++) {
        int32_t queue_id = reset->first_queue + i;
        Tern__Wire__ResetQueue *out = &reset->queues[i];
        struct offset_version version;
        int64_t min;
        int64_t max;
        int64_t target = reset->wanted->offset;
        tern__wire__reset_queue__init(out);
        reset->pointers[i] = out;
        out->queue_id = queue_id;
        if (!offsets_query(reset->broker->offsets, reset->group, reset->topic, queue_id,
                           &out->old_offset, &version))
            out->old_offset = -1;
        store_queue_range(reset->broker->store, reset->topic, queue_id, &min, &max);
        if (reset->wanted->target_case == TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_STORE_MS) {
            enum tern_code code = offset_by_time(reset, queue_id, min, max, &target);
            if (code)
                return error_set(err, code,
                                 "searching topic %s queue %" PRId32 " by time failed: %s",
                                 reset->topic, queue_id, tern_code_text(code));
        }
        out->new_offset = target < min ? min : target > max ? max : target;
    }
    return TERN_OK;
}

/* An isolated group's cohorts go where the group goes. */
static enum tern_code reset_cohorts(struct reset *reset, const Tern__Wire__ResetQueue *queue)
{
    cohort_name *names = NULL;
    size_t count = 0;
    enum tern_code code = TERN_OK;
    if (guard_isolates(reset->broker, reset->group))
        code = guard_cohorts(reset->broker, reset->group, &names, &count);
    for (size_t i = 0; !code && i < count; i++) {
        code = offsets_reset(reset->broker->offsets, names[i], reset->topic, queue->queue_id,
                             queue->new_offset);
        progress_tell_pulls(reset->broker, names[i], reset->topic, queue->queue_id);
    }
    free(names);
    return code;
}

void progress_tell_members(struct broker *broker, const char *group, const char *topic)
{
    const char **ids;
    size_t count;
    enum tern_code code = members_of(broker->members, group, &ids, &count);
    if (code)
        log_warn(broker->env.log, "reset_not_told", "group=%s cause=\"%s\"", group,
                 tern_code_text(code));
    for (size_t i = 0; i < count; i++)
        events_post_offset_reset(broker->events, ids[i], group, topic);
    free(ids);
}

void progress_tell_pulls(struct broker *broker, const char *group, const char *topic,
                         int32_t queue_id)
{
    if (broker->polls)
        long_poll_reset(broker->polls, group, topic, queue_id);
}

void progress_tell_all_pulls(struct broker *broker, const char *group, const char *topic)
{
    if (broker->polls)
        long_poll_reset_all(broker->polls, group, topic);
}

static enum tern_code reset_apply(struct reset *reset, struct tern_error *err)
{
    struct broker *broker = reset->broker;
    enum tern_code code = TERN_OK;
    for (int32_t i = 0; !code && i < reset->queue_count; i++) {
        const Tern__Wire__ResetQueue *queue = &reset->queues[i];
        code = offsets_reset(broker->offsets, reset->group, reset->topic, queue->queue_id,
                             queue->new_offset);
        if (!code)
            code = reset_cohorts(reset, queue);
        progress_tell_pulls(broker, reset->group, reset->topic, queue->queue_id);
        if (code)
            error_set(err, code, "queue %" PRId32 " of topic %s: the table of offsets is full",
                      queue->queue_id, reset->topic);
        else
            log_info(broker->env.log, "offset_reset",
                     "group=%s topic=%s queue=%" PRId32 " old=%" PRId64 " new=%" PRId64,
                     reset->group, reset->topic, queue->queue_id, queue->old_offset,
                     queue->new_offset);
    }
    if (!code) {
        code = offsets_persist(broker->offsets, err);
        if (code)
            error_prefix(err, code, "the reset is in effect, but not durable");
    }
    progress_tell_members(broker, reset->group, reset->topic);
    return code;
}

static void answer_reset(struct ack_entry *entry, enum tern_code code)
{
    struct reset *reset = (struct reset *)entry;
    Tern__Wire__ResetOffsetResponse body = TERN__WIRE__RESET_OFFSET_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    if (code) {
        progress_answer_unconfirmed(reset->broker, reset->request, code, "reset");
        return;
    }
    body.queues = reset->pointers;
    body.n_queues = (size_t)reset->queue_count;
    response.body_case = TERN__WIRE__RESPONSE__BODY_RESET_OFFSET;
    response.reset_offset = &body;
    reply_bounded(reset->broker, reset->request, &response, "reset single queues");
}

/* @thread lane */
static void run_reset(struct broker *broker, struct rpc_request *request)
{
    struct tern_error err = {.text = ""};
    struct reset *reset = rpc_request_alloc(request, sizeof *reset);
    if (!reset) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the reset");
        return;
    }
    *reset = (struct reset){.entry = {.done = answer_reset},
                            .broker = broker,
                            .request = request,
                            .wanted = request->header->reset_offset};
    enum tern_code code = reset_begin(reset, &err);
    if (!code)
        code = reset_plan(reset, &err);
    if (!code && !reset->wanted->dry_run)
        code = reset_apply(reset, &err);
    if (code)
        rpc_reply_failure(request, code, &err);
    else if (reset->wanted->dry_run)
        answer_reset(&reset->entry, TERN_OK);
    else
        progress_wait_for_others(broker, request, &reset->entry);
}

void handle_reset_offset(struct broker *broker, struct rpc_request *request)
{
    admin_lane_run(broker->admin, request, run_reset);
}
