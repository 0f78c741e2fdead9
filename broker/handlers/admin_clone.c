/*
 * One group's progress for another (RocketMQ's cloneGroupOffset).
 *
 *   asking lane: queues where the source has progress ─► offsets ─► disk ─► events to the members
 *     ─► the slaves in sync have it ─► answer
 *
 * The source's %RETRY% topic is its own and left out: the destination has one of its own name.
 * Invariants: what is given lies in [min, max] of its queue, as with a reset; the destination
 * stands in all of the queues, or, when the table has no room for them, in none.
 *
 * Threads: the lane's. Failure modes: as a reset's; a disk that fails leaves the change in effect,
 * and the answer says so.
 */
#include <stdlib.h>

#include "base/log.h"
#include "broker/admin_lane.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/progress.h"

enum { CLONE_QUEUES_MAX = 100000 };

/* In the request's memory. */
struct clone_queue {
    Tern__Wire__CloneQueue wire;
    char topic[TOPIC_NAME_MAX + 1];
};

struct clone {
    struct ack_entry entry; /* first */
    struct broker *broker;
    struct rpc_request *request;
    const char *source, *group, *topic; /* topic NULL: all */
    struct clone_queue *queues;
    size_t count, room;
    enum tern_code code;
};

static bool count_queue(void *arg, const char *group, const char *topic, int32_t queue_id,
                        int64_t offset)
{
    struct clone *clone = arg;
    (void)group;
    (void)topic;
    (void)queue_id;
    (void)offset;
    clone->room++;
    return clone->room <= CLONE_QUEUES_MAX;
}

/* The table may have grown since it was counted: what came later is left out. */
static bool take_queue(void *arg, const char *group, const char *topic, int32_t queue_id,
                       int64_t offset)
{
    struct clone *clone = arg;
    struct broker *broker = clone->broker;
    struct topic_config config;
    struct offset_version version;
    int64_t min, max;
    (void)group;
    if (clone->count == clone->room)
        return false;
    if (!clone->topic && !strncmp(topic, RETRY_TOPIC_PREFIX, strlen(RETRY_TOPIC_PREFIX)))
        return true;
    if (!topics_find(broker->topics, topic, strlen(topic), &config))
        return true; /* deleted meanwhile */
    struct clone_queue *out = &clone->queues[clone->count++];
    tern__wire__clone_queue__init(&out->wire);
    snprintf(out->topic, sizeof out->topic, "%s", topic);
    out->wire.topic = frame_bytes(out->topic, strlen(out->topic));
    out->wire.queue_id = queue_id;
    if (!offsets_query(broker->offsets, clone->group, topic, queue_id, &out->wire.old_offset,
                       &version))
        out->wire.old_offset = -1;
    store_queue_range(broker->store, topic, queue_id, &min, &max);
    out->wire.new_offset = offset < min ? min : offset > max ? max : offset;
    return true;
}

static int compare_queues(const void *a, const void *b)
{
    const struct clone_queue *x = a, *y = b;
    int order = strcmp(x->topic, y->topic);
    return order ? order
                 : (x->wire.queue_id > y->wire.queue_id) - (x->wire.queue_id < y->wire.queue_id);
}

static enum tern_code check_clone(struct clone *clone, struct tern_error *err)
{
    const Tern__Wire__CloneOffsetsRequest *wanted = clone->request->header->clone_offsets;
    struct broker *broker = clone->broker;
    struct topic_config topic;
    struct group_config group;
    enum tern_code refusal;
    char text[256] = "";
    enum tern_code code = check_master(broker, err);
    if (!code && broker->ha && !ha_writable(broker->ha, &refusal, text, sizeof text))
        code = error_set(err, refusal, "no progress is changed now: %s", text);
    if (!code)
        code = take_group(clone->request, &wanted->source_group, &clone->source, err);
    if (!code)
        code = take_group(clone->request, &wanted->group, &clone->group, err);
    if (!code && wanted->topic.len)
        code = take_topic(clone->request, &wanted->topic, &clone->topic, err);
    if (!code && clone->topic)
        code = find_topic(broker, clone->topic, &topic, err);
    if (!code && !strcmp(clone->source, clone->group))
        code = error_set(err, TERN_INVALID, "source and destination are the same group %s",
                         clone->group);
    if (!code && !wanted->dry_run)
        code =
            groups_find_or_create(broker->groups, clone->group, strlen(clone->group), &group, err);
    return code;
}

static enum tern_code plan_clone(struct clone *clone, struct tern_error *err)
{
    struct offsets *offsets = clone->broker->offsets;
    enum tern_code code = offsets_each(offsets, clone->source, clone->topic, count_queue, clone);
    if (!code && clone->room > CLONE_QUEUES_MAX)
        return error_set(err, TERN_TOO_LARGE,
                         "group %s has progress in more than %d queues: name "
                         "a topic",
                         clone->source, (int)CLONE_QUEUES_MAX);
    if (!code)
        clone->queues =
            rpc_request_alloc(clone->request, (clone->room + 1) * sizeof clone->queues[0]);
    if (!code && !clone->queues)
        code = TERN_NO_MEMORY;
    if (!code)
        code = offsets_each(offsets, clone->source, clone->topic, take_queue, clone);
    if (code)
        return error_set(err, code, "no memory for the progress of group %s", clone->source);
    if (clone->count == 0)
        return error_set(err, TERN_QUERY_NOT_FOUND, "group %s has no progress%s%s on %s",
                         clone->source, clone->topic ? " in topic " : "",
                         clone->topic ? clone->topic : "", clone->broker->config.broker_name);
    qsort(clone->queues, clone->count, sizeof clone->queues[0], compare_queues);
    return TERN_OK;
}

/* All of them, or none. */
static enum tern_code set_progress(struct clone *clone, struct tern_error *err)
{
    struct broker *broker = clone->broker;
    struct offset_row *rows =
        rpc_request_alloc(clone->request, (clone->count + 1) * sizeof rows[0]);
    if (!rows)
        return error_set(err, TERN_NO_MEMORY, "no memory for the progress of group %s",
                         clone->group);
    for (size_t i = 0; i < clone->count; i++)
        rows[i] = (struct offset_row){clone->queues[i].topic, clone->queues[i].wire.queue_id,
                                      clone->queues[i].wire.new_offset};
    return offsets_reset_all(broker->offsets, clone->group, rows, clone->count, err);
}

static enum tern_code apply_clone(struct clone *clone, struct tern_error *err)
{
    struct broker *broker = clone->broker;
    enum tern_code code = set_progress(clone, err);
    if (code == TERN_LIMIT)
        return code;
    for (size_t i = 0; i < clone->count; i++) {
        const struct clone_queue *queue = &clone->queues[i];
        progress_tell_pulls(broker, clone->group, queue->topic, queue->wire.queue_id);
        bool last = i + 1 == clone->count || strcmp(clone->queues[i + 1].topic, queue->topic) != 0;
        if (last)
            progress_tell_members(broker, clone->group, queue->topic);
    }
    log_info(broker->env.log, "offsets_cloned", "source=%s group=%s topic=%s queues=%zu",
             clone->source, clone->group, clone->topic ? clone->topic : "*", clone->count);
    if (!code) {
        code = offsets_persist(broker->offsets, err);
        if (code)
            error_prefix(err, code, "the progress is cloned, but not durable");
    }
    if (groups_dirty(broker->groups))
        admin_lane_poke(broker->admin);
    return code;
}

static void answer_clone(struct ack_entry *entry, enum tern_code code)
{
    struct clone *clone = (struct clone *)entry;
    Tern__Wire__CloneOffsetsResponse body = TERN__WIRE__CLONE_OFFSETS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    if (code) {
        progress_answer_unconfirmed(clone->broker, clone->request, code, "cloned progress");
        return;
    }
    body.queues = rpc_request_alloc(clone->request, (clone->count + 1) * sizeof body.queues[0]);
    if (!body.queues) {
        rpc_reply_error(clone->request, TERN_NO_MEMORY, "cloned, but no memory for the answer");
        return;
    }
    for (size_t i = 0; i < clone->count; i++)
        body.queues[body.n_queues++] = &clone->queues[i].wire;
    response.body_case = TERN__WIRE__RESPONSE__BODY_CLONE_OFFSETS;
    response.clone_offsets = &body;
    reply_bounded(clone->broker, clone->request, &response, "name a topic");
}

/* @thread lane */
static void run_clone(struct broker *broker, struct rpc_request *request)
{
    struct tern_error err = {.text = ""};
    struct clone *clone = rpc_request_alloc(request, sizeof *clone);
    if (!clone) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the request");
        return;
    }
    *clone = (struct clone){.entry = {.done = answer_clone}, .broker = broker, .request = request};
    bool dry_run = request->header->clone_offsets->dry_run;
    enum tern_code code = check_clone(clone, &err);
    if (!code)
        code = plan_clone(clone, &err);
    if (!code && !dry_run)
        code = apply_clone(clone, &err);
    if (code)
        rpc_reply_failure(request, code, &err);
    else if (dry_run)
        answer_clone(&clone->entry, TERN_OK);
    else
        progress_wait_for_others(broker, request, &clone->entry);
}

void handle_clone_offsets(struct broker *broker, struct rpc_request *request)
{
    admin_lane_run(broker->admin, request, run_clone);
}
