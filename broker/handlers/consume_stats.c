/*
 * Progress of groups against their queues (RocketMQ's consumerProgress), also of groups without
 * members.
 *
 *   progress ─┐
 *             ├─► pairs (group, topic), sorted, unique ─► all queues of each topic ─► rows
 *   members ──┘
 *
 * A row shows both ends in messages, two store times from the log, who pulled last with which
 * expression, and what was scanned, delivered and filtered, in all and by each member (F-6).
 *
 * Threads: the asking lane's. Failure modes: too many rows for a frame are refused with what to ask
 * instead; a log that cannot be read fails the answer rather than showing zeros.
 */
#include <stdlib.h>

#include "base/arena.h"
#include "broker/admin_lane.h"
#include "broker/guard.h"
#include "broker/handlers/checks.h"

enum { ROWS_MAX = 200000, ANSWER_BUDGET_BYTES = 256 << 20 };

/* A topic of a group. */
struct pair {
    char *group, *topic; /* in the arena */
};

struct stats {
    struct broker *broker;
    struct arena arena; /* everything of the answer */
    struct pair *pairs; /* heap, grows */
    size_t pair_count, pair_cap;
    const char *last_group, *last_topic; /* added last: progress comes queue by queue */
    size_t rows;
    const char *only_topic;
    enum tern_code code;
};

static char *keep(struct stats *stats, const char *text)
{
    size_t len = strlen(text) + 1;
    char *copy = arena_alloc(&stats->arena, len);
    if (copy)
        memcpy(copy, text, len);
    return copy;
}

static void add_pair(struct stats *stats, const char *group, const char *topic)
{
    if (stats->code || (stats->only_topic && strcmp(stats->only_topic, topic)))
        return;
    if (stats->last_group && !strcmp(stats->last_group, group) && !strcmp(stats->last_topic, topic))
        return;
    if (stats->pair_count == stats->pair_cap) {
        size_t cap = stats->pair_cap ? stats->pair_cap * 2 : 64;
        struct pair *pairs = realloc(stats->pairs, cap * sizeof *pairs);
        if (!pairs) {
            stats->code = TERN_NO_MEMORY;
            return;
        }
        stats->pairs = pairs;
        stats->pair_cap = cap;
    }
    struct pair *pair = &stats->pairs[stats->pair_count];
    pair->group = keep(stats, group);
    pair->topic = keep(stats, topic);
    if (!pair->group || !pair->topic) {
        stats->code = TERN_TOO_LARGE;
        return;
    }
    stats->last_group = pair->group;
    stats->last_topic = pair->topic;
    stats->pair_count++;
}

/* ---- which pairs ---- */

static bool on_offset(void *arg, const char *group, const char *topic, int32_t queue_id,
                      int64_t offset)
{
    struct stats *stats = arg;
    (void)queue_id;
    (void)offset;
    add_pair(stats, group, topic);
    return !stats->code;
}

static void add_members_topics(struct stats *stats, const char *group)
{
    struct member_info *infos;
    size_t count;
    enum tern_code code = members_snapshot(stats->broker->members, group, &infos, &count);
    if (code)
        stats->code = code;
    for (size_t i = 0; i < count; i++)
        for (size_t s = 0; s < infos[i].subscription_count; s++)
            add_pair(stats, group, infos[i].subscriptions[s].topic);
    free(infos);
}

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *left = a;
    const struct pair *right = b;
    int order = strcmp(left->group, right->group);
    return order ? order : strcmp(left->topic, right->topic);
}

/* An isolated group's progress is its cohorts'. */
static enum tern_code add_cohorts(struct stats *stats, const char *group)
{
    cohort_name *names = NULL;
    size_t count = 0;
    enum tern_code code = TERN_OK;
    if (guard_isolates(stats->broker, group))
        code = guard_cohorts(stats->broker, group, &names, &count);
    for (size_t i = 0; !code && i < count; i++)
        code = offsets_each(stats->broker->offsets, names[i], stats->only_topic, on_offset, stats);
    free(names);
    return code;
}

/* group NULL: all that have progress or members. */
static enum tern_code collect(struct stats *stats, const char *group)
{
    enum tern_code code =
        offsets_each(stats->broker->offsets, group, stats->only_topic, on_offset, stats);
    if (code)
        return code;
    if (group) {
        size_t own = stats->pair_count;
        code = add_cohorts(stats, group);
        if (code)
            return code;
        /* What its members read of an isolated group stands with their cohorts. */
        if (stats->pair_count == own)
            add_members_topics(stats, group);
    } else {
        const char **groups;
        size_t count;
        code = members_groups(stats->broker->members, &groups, &count);
        if (code)
            return code;
        for (size_t i = 0; i < count; i++)
            add_members_topics(stats, groups[i]);
        free(groups);
    }
    if (stats->pair_count)
        qsort(stats->pairs, stats->pair_count, sizeof stats->pairs[0], compare_pairs);
    size_t kept = 0;
    for (size_t i = 0; i < stats->pair_count; i++)
        if (kept == 0 || compare_pairs(&stats->pairs[kept - 1], &stats->pairs[i]))
            stats->pairs[kept++] = stats->pairs[i];
    stats->pair_count = kept;
    return stats->code;
}

/* ---- rows ---- */

/* Store time, 0 when there is no message any more. */
static enum tern_code time_of(struct stats *stats, const char *topic, int32_t queue_id,
                              int64_t offset, int64_t *wall_ms)
{
    enum tern_code code = store_time_of(stats->broker->store, topic, queue_id, offset, wall_ms);
    if (code)
        *wall_ms = 0;
    return code == TERN_NOT_FOUND ? TERN_OK : code;
}

/* What each member got of the queue. */
static enum tern_code fill_members(struct stats *stats, const struct pair *pair, int32_t queue_id,
                                   Tern__Wire__GroupQueueStats *row)
{
    struct pull_stats_view views[PULL_STATS_MEMBERS];
    size_t count =
        pull_stats_members(stats->broker->pull_stats, pair->group, pair->topic, queue_id, views);
    if (!count)
        return TERN_OK;
    Tern__Wire__MemberPulls *members = arena_alloc(&stats->arena, count * sizeof *members);
    row->members = arena_alloc(&stats->arena, count * sizeof row->members[0]);
    for (size_t i = 0; members && row->members && i < count; i++) {
        const char *client_id = keep(stats, views[i].client_id);
        tern__wire__member_pulls__init(&members[i]);
        members[i].expression = keep(stats, views[i].expression);
        if (!client_id || !members[i].expression)
            return TERN_TOO_LARGE;
        members[i].client_id = frame_bytes(client_id, strlen(client_id));
        members[i].scanned = views[i].scanned;
        members[i].delivered = views[i].delivered;
        members[i].filtered = views[i].filtered;
        row->members[row->n_members++] = &members[i];
    }
    return row->n_members == count ? TERN_OK : TERN_TOO_LARGE;
}

static enum tern_code fill_row(struct stats *stats, const struct pair *pair, int32_t queue_id,
                               Tern__Wire__GroupQueueStats *row)
{
    struct broker *broker = stats->broker;
    struct pull_stats_view view;
    struct offset_version version;
    int64_t min;
    enum tern_code code = TERN_OK;
    tern__wire__group_queue_stats__init(row);
    row->topic = frame_bytes(pair->topic, strlen(pair->topic));
    row->queue_id = queue_id;
    if (!offsets_query(broker->offsets, pair->group, pair->topic, queue_id, &row->consumer_offset,
                       &version))
        row->consumer_offset = -1;
    store_queue_range(broker->store, pair->topic, queue_id, &min, &row->broker_offset);
    if (row->consumer_offset > min)
        code = time_of(stats, pair->topic, queue_id, row->consumer_offset - 1, &row->last_ms);
    int64_t waiting = row->consumer_offset > min ? row->consumer_offset : min;
    if (!code && waiting < row->broker_offset)
        code = time_of(stats, pair->topic, queue_id, waiting, &row->oldest_waiting_ms);
    if (!code && pull_stats_get(broker->pull_stats, pair->group, pair->topic, queue_id, &view)) {
        const char *client_id = keep(stats, view.client_id);
        row->expression = keep(stats, view.expression);
        if (!client_id || !row->expression)
            return TERN_TOO_LARGE;
        row->client_id = frame_bytes(client_id, strlen(client_id));
        row->scanned = view.scanned;
        row->delivered = view.delivered;
        row->filtered = view.filtered;
        code = fill_members(stats, pair, queue_id, row);
    }
    return code;
}

/* Adds a topic's queues to the group, whose array has room for them. */
static enum tern_code add_queues(struct stats *stats, const struct pair *pair, int32_t queues,
                                 Tern__Wire__GroupStats *group)
{
    Tern__Wire__GroupQueueStats *rows = arena_alloc(&stats->arena, (size_t)queues * sizeof *rows);
    enum tern_code code = rows ? TERN_OK : TERN_TOO_LARGE;
    for (int32_t q = 0; !code && q < queues; q++) {
        code = fill_row(stats, pair, q, &rows[q]);
        group->queues[group->n_queues++] = &rows[q];
    }
    return code;
}

/* Queues of a pair's topic; 0 when it is not here any more. */
static int32_t queues_of(struct stats *stats, const struct pair *pair)
{
    struct topic_config config;
    if (!topics_find(stats->broker->topics, pair->topic, strlen(pair->topic), &config))
        return 0;
    return topic_queue_count(stats->broker, &config);
}

/* What is known of the group as a whole. */
static enum tern_code fill_group(struct stats *stats, const char *name, Tern__Wire__GroupStats *out)
{
    struct member_info *infos;
    size_t count;
    tern__wire__group_stats__init(out);
    enum tern_code code = members_snapshot(stats->broker->members, name, &infos, &count);
    if (code)
        return code;
    out->group = frame_bytes(name, strlen(name));
    out->members = (int32_t)count;
    if (count) {
        out->type = (Tern__Wire__ConsumeType)infos[0].type;
        out->model = (Tern__Wire__MessageModel)infos[0].model;
    }
    out->consume_tps = pull_stats_group_rate(stats->broker->pull_stats, name);
    free(infos);
    return TERN_OK;
}

/* The group whose pairs are first…end - 1. */
static enum tern_code make_group(struct stats *stats, size_t first, size_t end,
                                 Tern__Wire__GroupStats **out)
{
    size_t rows = 0;
    for (size_t i = first; i < end; i++)
        rows += (size_t)queues_of(stats, &stats->pairs[i]);
    stats->rows += rows;
    if (stats->rows > ROWS_MAX)
        return TERN_TOO_LARGE;
    *out = arena_alloc(&stats->arena, sizeof **out);
    if (!*out)
        return TERN_TOO_LARGE;
    enum tern_code code = fill_group(stats, stats->pairs[first].group, *out);
    (*out)->queues = arena_alloc(&stats->arena, (rows + 1) * sizeof(*out)->queues[0]);
    if (!code && !(*out)->queues)
        code = TERN_TOO_LARGE;
    for (size_t i = first; !code && i < end; i++) {
        int32_t queues = queues_of(stats, &stats->pairs[i]);
        if ((*out)->n_queues + (size_t)queues > rows) /* the topic grew meanwhile */
            queues = (int32_t)(rows - (*out)->n_queues);
        code = add_queues(stats, &stats->pairs[i], queues, *out);
    }
    return code;
}

static enum tern_code make_groups(struct stats *stats, Tern__Wire__ConsumeStatsResponse *body)
{
    enum tern_code code = TERN_OK;
    body->groups = arena_alloc(&stats->arena, (stats->pair_count + 1) * sizeof body->groups[0]);
    if (!body->groups)
        return TERN_TOO_LARGE;
    for (size_t first = 0, end; !code && first < stats->pair_count; first = end) {
        end = first + 1;
        while (end < stats->pair_count &&
               !strcmp(stats->pairs[end].group, stats->pairs[first].group))
            end++;
        code = make_group(stats, first, end, &body->groups[body->n_groups]);
        body->n_groups += !code;
    }
    return code;
}

/* ---- the request ---- */

static void answer(struct stats *stats, struct rpc_request *request, const char *group)
{
    Tern__Wire__ConsumeStatsResponse body = TERN__WIRE__CONSUME_STATS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct group_config config;
    enum tern_code code = collect(stats, group);
    if (!code)
        code = make_groups(stats, &body);
    if (code == TERN_TOO_LARGE) {
        rpc_reply_error(request, code, "more than %d queues or %d MiB: name a group or a topic",
                        (int)ROWS_MAX, (int)(ANSWER_BUDGET_BYTES >> 20));
    } else if (code) {
        rpc_reply_error(request, code, "reading the progress of %s failed: %s",
                        group ? group : "all groups", tern_code_text(code));
    } else if (group && !body.n_groups &&
               !groups_find(stats->broker->groups, group, strlen(group), &config)) {
        rpc_reply_error(request, TERN_GROUP_NOT_EXIST,
                        "group %s is not known on %s: no configuration, member or progress", group,
                        stats->broker->config.broker_name);
    } else {
        response.body_case = TERN__WIRE__RESPONSE__BODY_CONSUME_STATS;
        response.consume_stats = &body;
        reply_bounded(stats->broker, request, &response, "name a group or a topic");
    }
}

/* @thread lane */
static void run_consume_stats(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__ConsumeStatsRequest *wanted = request->header->consume_stats;
    struct tern_error err = {.text = ""};
    struct stats stats = {.broker = broker};
    const char *group = NULL;
    enum tern_code code = TERN_OK;
    if (wanted->group.len)
        code = take_group(request, &wanted->group, &group, &err);
    if (!code && wanted->topic.len)
        code = take_topic(request, &wanted->topic, &stats.only_topic, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    arena_init(&stats.arena, ANSWER_BUDGET_BYTES);
    answer(&stats, request, group);
    free(stats.pairs);
    arena_fini(&stats.arena);
}

void handle_consume_stats(struct broker *broker, struct rpc_request *request)
{
    admin_lane_run(broker->admin, request, run_consume_stats);
}
