/*
 * Topics and groups on the wire. Changes go over the admin lane, which answers when they are
 * durable and the nameservers know; lists go over the asking lane, since a large table takes a
 * while to copy.
 *
 *   delete topic: off the table ─► durable ─► queues, progress, figures go ─► nameservers ─► answer
 *
 * Only an open master changes tables; its slaves are told of what has become durable and copy it.
 *
 * Invariants: data of a deleted topic goes only after its removal is durable, and before a topic of
 * the same name can be made. A group's %RETRY% and %DLQ% topics stay: whoever deletes decides.
 *
 * Threads: transport's for the hand-over, the lanes' for the work. Failure modes: a topic whose
 * files cannot be removed is off the table all the same, the answer says what is left.
 */
#include <stdlib.h>

#include "base/log.h"
#include "broker/admin_lane.h"
#include "broker/guard.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/progress.h"

/* ---- topics ---- */

/* @thread lane */
static enum tern_code apply_update_topic(struct broker *broker, struct rpc_request *request,
                                         struct tern_error *err)
{
    const Tern__Wire__TopicConfig *wire = request->header->update_topic->topic;
    struct topic_config config = {.perm = 0};
    const char *name;
    enum tern_code code = check_master(broker, err);
    if (code)
        return code;
    if (!wire)
        return error_set(err, TERN_INVALID, "topic is missing");
    code = take_topic(request, &wire->name, &name, err);
    if (code)
        return code;
    memcpy(config.name, name, strlen(name) + 1);
    config.name_len = (uint8_t)strlen(name);
    config.read_queues = wire->read_queues;
    config.write_queues = wire->write_queues;
    config.perm = wire->perm;
    config.sys_flag = wire->sys_flag;
    config.order = wire->order;
    code = topics_put(broker->topics, &config, err);
    if (!code)
        log_info(broker->env.log, "topic_updated",
                 "topic=%s read_queues=%" PRId32 " write_queues=%" PRId32 " perm=%" PRId32, name,
                 config.read_queues, config.write_queues, config.perm);
    return code;
}

void handle_update_topic(struct broker *broker, struct rpc_request *request)
{
    admin_lane_submit(broker->admin, request, apply_update_topic, NULL);
}

/* @thread lane */
static enum tern_code apply_delete_topic(struct broker *broker, struct rpc_request *request,
                                         struct tern_error *err)
{
    const char *name;
    enum tern_code code = check_master(broker, err);
    if (!code)
        code = take_topic(request, &request->header->delete_topic->topic, &name, err);
    if (!code)
        code = topics_remove(broker->topics, name, strlen(name), err);
    if (!code)
        request->user = (void *)(uintptr_t)name;
    return code;
}

/* @thread lane */
static enum tern_code settle_delete_topic(struct broker *broker, struct rpc_request *request,
                                          struct tern_error *err)
{
    const char *name = request->user;
    struct tern_error offsets_err = {.text = ""};
    log_info(broker->env.log, "topic_deleted", "topic=%s", name);
    offsets_remove_topic(broker->offsets, name);
    progress_tell_all_pulls(broker, "", name);
    pull_stats_forget_topic(broker->pull_stats, name);
    enum tern_code code = store_delete_topic(broker->store, name, err);
    if (broker->ha) /* slaves learn where the topic's old life ends */
        ha_on_change(broker->ha);
    if (code)
        error_prefix(err, code, "topic %s is deleted, but not all of its files", name);
    enum tern_code persisted = offsets_persist(broker->offsets, &offsets_err);
    if (persisted && !code)
        code = error_set(err, persisted,
                         "topic %s is deleted, but its groups' progress is not yet removed from "
                         "the disk: %s",
                         name, error_text(&offsets_err, persisted));
    return code;
}

void handle_delete_topic(struct broker *broker, struct rpc_request *request)
{
    admin_lane_submit_settled(broker->admin, request, apply_delete_topic, settle_delete_topic);
}

static void fill_topic(Tern__Wire__TopicConfig *out, const struct topic_config *config)
{
    tern__wire__topic_config__init(out);
    out->name = frame_bytes(config->name, config->name_len);
    out->read_queues = config->read_queues;
    out->write_queues = config->write_queues;
    out->perm = config->perm;
    out->sys_flag = config->sys_flag;
    out->order = config->order;
}

/* @thread lane */
static void run_list_topics(struct broker *broker, struct rpc_request *request)
{
    Tern__Wire__ListTopicsResponse body = TERN__WIRE__LIST_TOPICS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    size_t count = 0;
    struct topic_config *rows = topics_snapshot(broker->topics, &count, &body.version);
    Tern__Wire__TopicConfig *all = calloc(count + 1, sizeof *all);
    body.topics = calloc(count + 1, sizeof *body.topics);
    if (rows && all && body.topics) {
        for (size_t i = 0; i < count; i++) {
            fill_topic(&all[i], &rows[i]);
            body.topics[i] = &all[i];
        }
        body.n_topics = count;
        response.body_case = TERN__WIRE__RESPONSE__BODY_LIST_TOPICS;
        response.list_topics = &body;
        reply_bounded(broker, request, &response, "ask the nameserver for its topics");
    } else {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the topic table");
    }
    free(body.topics);
    free(all);
    free(rows);
}

void handle_list_topics(struct broker *broker, struct rpc_request *request)
{
    admin_lane_run(broker->admin, request, run_list_topics);
}

/* ---- groups ---- */

/* @thread lane */
static enum tern_code apply_update_group(struct broker *broker, struct rpc_request *request,
                                         struct tern_error *err)
{
    const Tern__Wire__GroupConfig *wire = request->header->update_group->group;
    struct group_config config;
    const char *name;
    enum tern_code code = check_master(broker, err);
    if (code)
        return code;
    if (!wire)
        return error_set(err, TERN_INVALID, "group is missing");
    code = take_group(request, &wire->name, &name, err);
    if (code)
        return code;
    group_config_init(&config, name, strlen(name));
    config.consume_enable = wire->consume_enable;
    config.consume_from_min_enable = wire->consume_from_min_enable;
    config.consume_broadcast_enable = wire->consume_broadcast_enable;
    config.retry_queues = wire->retry_queues;
    config.retry_max_times = wire->retry_max_times;
    config.broker_id = wire->broker_id;
    config.which_broker_when_slow = wire->which_broker_when_consume_slowly;
    config.notify_members_changed = wire->notify_members_changed;
    config.consistency = wire->subscription_consistency;
    code = groups_put(broker->groups, &config, err);
    if (!code)
        log_info(broker->env.log, "group_updated", "group=%s consume=%d retry_max=%" PRId32, name,
                 config.consume_enable, config.retry_max_times);
    return code;
}

void handle_update_group(struct broker *broker, struct rpc_request *request)
{
    admin_lane_submit(broker->admin, request, apply_update_group, NULL);
}

/* In the request's memory, from apply to settle. */
struct doomed_group {
    const char *name;
    bool isolated; /* it may have cohorts */
};

/* Forgets the progress of a deleted group and of its cohorts. */
static enum tern_code remove_progress(struct broker *broker, const struct doomed_group *doomed,
                                      struct tern_error *err)
{
    cohort_name *names = NULL;
    size_t count = 0;
    enum tern_code code = TERN_OK;
    if (doomed->isolated)
        code = guard_cohorts(broker, doomed->name, &names, &count);
    if (code)
        return error_set(err, code, "looking for the cohorts of group %s", doomed->name);
    offsets_remove_group(broker->offsets, doomed->name);
    progress_tell_all_pulls(broker, doomed->name, "");
    for (size_t i = 0; i < count; i++) {
        offsets_remove_group(broker->offsets, names[i]);
        progress_tell_all_pulls(broker, names[i], "");
    }
    free(names);
    return offsets_persist(broker->offsets, err);
}

/* @thread lane */
static enum tern_code apply_delete_group(struct broker *broker, struct rpc_request *request,
                                         struct tern_error *err)
{
    const char *name;
    struct doomed_group *doomed = rpc_request_alloc(request, sizeof *doomed);
    enum tern_code code = check_master(broker, err);
    if (!code)
        code = take_name(request, &request->header->delete_group->group, group_name_check, &name,
                         err); /* what an old store brought must go, too */
    if (!code && !doomed)
        code = error_set(err, TERN_NO_MEMORY, "no memory for the request");
    if (code)
        return code;
    *doomed = (struct doomed_group){.name = name, .isolated = guard_isolates(broker, name)};
    request->user = doomed;
    return groups_remove(broker->groups, name, strlen(name), err);
}

/* @thread lane */
static enum tern_code settle_delete_group(struct broker *broker, struct rpc_request *request,
                                          struct tern_error *err)
{
    const struct doomed_group *doomed = request->user;
    const char *name = doomed->name;
    bool remove_offsets = request->header->delete_group->remove_offsets;
    log_info(broker->env.log, "group_deleted", "group=%s remove_offsets=%d", name, remove_offsets);
    pull_stats_forget_group(broker->pull_stats, name);
    if (!remove_offsets)
        return TERN_OK;
    enum tern_code code = remove_progress(broker, doomed, err);
    if (code)
        error_prefix(err, code,
                     "group %s is deleted, but its progress is not yet removed from the disk",
                     name);
    return code;
}

void handle_delete_group(struct broker *broker, struct rpc_request *request)
{
    admin_lane_submit_settled(broker->admin, request, apply_delete_group, settle_delete_group);
}

static void fill_group(Tern__Wire__GroupConfig *out, const struct group_config *config)
{
    tern__wire__group_config__init(out);
    out->name = frame_bytes(config->name, strlen(config->name));
    out->consume_enable = config->consume_enable;
    out->consume_from_min_enable = config->consume_from_min_enable;
    out->consume_broadcast_enable = config->consume_broadcast_enable;
    out->retry_queues = config->retry_queues;
    out->retry_max_times = config->retry_max_times;
    out->broker_id = config->broker_id;
    out->which_broker_when_consume_slowly = config->which_broker_when_slow;
    out->notify_members_changed = config->notify_members_changed;
    out->subscription_consistency = config->consistency;
}

/* @thread lane */
static void run_list_groups(struct broker *broker, struct rpc_request *request)
{
    Tern__Wire__ListGroupsResponse body = TERN__WIRE__LIST_GROUPS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    size_t count = 0;
    struct group_config *rows = groups_snapshot(broker->groups, &count, &body.version);
    Tern__Wire__GroupConfig *all = calloc(count + 1, sizeof *all);
    body.groups = calloc(count + 1, sizeof *body.groups);
    if (rows && all && body.groups) {
        for (size_t i = 0; i < count; i++) {
            fill_group(&all[i], &rows[i]);
            body.groups[i] = &all[i];
        }
        body.n_groups = count;
        response.body_case = TERN__WIRE__RESPONSE__BODY_LIST_GROUPS;
        response.list_groups = &body;
        reply_bounded(broker, request, &response, "the table is too large to list");
    } else {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the group table");
    }
    free(body.groups);
    free(all);
    free(rows);
}

void handle_list_groups(struct broker *broker, struct rpc_request *request)
{
    admin_lane_run(broker->admin, request, run_list_groups);
}
