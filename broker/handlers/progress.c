/*
 * Consumer progress on the wire: ask and commit; resets are in progress_reset.c.
 *
 *   query   ─► offsets: QUERY_NOT_FOUND with the version is "none", every other failure is an error
 *              that the client repeats, never a reason to start somewhere (OF-04)
 *   commit  ─► each (topic, queue) by itself: what is refused does not keep the others
 *              ─► the slaves in sync, or the master, have it ─► answer
 *
 * Who decides: an open master. A slave answers what it knows but never "none", and a master that
 * recovers answers nothing before it has what its slaves know: PROGRESS_UNKNOWN, ask again.
 *
 * Invariants: no commit beyond the queue's end is stored by who decides, for it would pass messages
 * that nobody got. A commit that was answered with success is where it survives a failover.
 *
 * Threads: the transport's, answers of commits that waited on whoever learned that the others have
 * them. Failure modes: a commit that the others do not confirm in time is stored here and says so.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ack_wait.h"
#include "broker/admin_lane.h"
#include "broker/guard.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/progress.h"
#include "broker/set_tables.h"

enum { COMMITS_MAX = 10000, ANSWER_PERCENT = 90 /* of the sender's patience */ };

/* ---- who decides ---- */

static bool decides(struct broker *broker)
{
    return !broker->ha || ha_decides_progress(broker->ha);
}

/* ---- query ---- */

/* What is held is an answer, "none" only where it is decided. */
static enum tern_code check_known(struct broker *broker, bool decided, bool found,
                                  struct tern_error *err)
{
    enum tern_code code = check_serves(broker, TERN_PROGRESS_UNKNOWN, err);
    if (code || decided)
        return code;
    if (broker->config.role != ROLE_SLAVE)
        return error_set(err, TERN_PROGRESS_UNKNOWN,
                         "master %s does not know yet what its slaves know: ask again",
                         broker->config.broker_name);
    if (found)
        return TERN_OK;
    return error_set(err, TERN_PROGRESS_UNKNOWN,
                     "slave %s id %" PRId64 " does not decide that there is no progress: ask again "
                     "at the master",
                     broker->config.broker_name, broker->config.broker_id);
}

static enum tern_code take_view(struct broker *broker, struct rpc_request *request,
                                const char *group, struct group_view *view, struct tern_error *err)
{
    const char *client = frame_text(rpc_request_arena(request), &request->header->client_id);
    if (!client)
        return error_set(err, TERN_NO_MEMORY, "no memory for the request");
    return guard_view(broker, group, client, view, err);
}

/* A cohort without progress begins where its group stood. */
static bool query(struct broker *broker, const char *group, const struct group_view *view,
                  const char *topic, int32_t queue_id, int64_t *offset, struct offset_version *held)
{
    struct offset_version of_group;
    if (offsets_query(broker->offsets, view->name, topic, queue_id, offset, held))
        return true;
    return view->cohort &&
           offsets_query(broker->offsets, group, topic, queue_id, offset, &of_group);
}

void handle_query_offset(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__QueryOffsetRequest *wanted = request->header->query_offset;
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    Tern__Wire__QueryOffsetResponse body = TERN__WIRE__QUERY_OFFSET_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {.text = ""};
    struct topic_config config;
    struct offset_version held = {0, 0};
    const char *group = NULL;
    const char *topic = NULL;
    struct group_view view = {.cohort = 0};
    enum tern_code code = take_group(request, &wanted->group, &group, &err);
    if (!code)
        code = take_view(broker, request, group, &view, &err);
    if (!code)
        code = take_topic(request, &wanted->topic, &topic, &err);
    if (!code)
        code = find_topic(broker, topic, &config, &err);
    if (!code)
        code = check_queue(broker, &config, wanted->queue_id, &err);
    /* Asked first: what others know is merged before it is decided here. */
    bool decided = decides(broker);
    bool found = false;
    if (!code)
        found = query(broker, group, &view, topic, wanted->queue_id, &body.offset, &held);
    if (!code)
        code = check_known(broker, decided, found, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    if (!found) {
        error_set(&err, TERN_QUERY_NOT_FOUND, "group %s has no progress in topic %s queue %" PRId32,
                  group, topic, wanted->queue_id);
        response.code = wire_code_of(TERN_QUERY_NOT_FOUND);
        response.remark = err.text;
    }
    version.epoch = held.epoch;
    version.counter = held.counter;
    version.cohort = view.cohort;
    body.version = &version;
    response.body_case = TERN__WIRE__RESPONSE__BODY_QUERY_OFFSET;
    response.query_offset = &body;
    rpc_reply(request, &response, 0);
}

/* ---- commit ---- */

/* What became of a request's commits; in the request's memory. */
struct commits {
    struct ack_entry entry; /* first */
    struct broker *broker;
    struct rpc_request *request;
    struct group_view view;
    Tern__Wire__CommitOffset **refused; /* room for all */
    size_t refused_count;
    enum tern_code code; /* of the first that was left out */
    struct tern_error err;
};

/* What can be wrong with a commit in itself; refuses the whole request. */
static enum tern_code check_commit(const Tern__Wire__CommitOffset *commit, struct tern_error *err)
{
    struct offset_version version = version_from_wire(commit->version);
    enum tern_code code = topic_name_check(commit->topic.data, commit->topic.len, err);
    if (code)
        return code;
    if (commit->queue_id < 0 || commit->queue_id >= TOPIC_QUEUES_MAX)
        return error_set(err, TERN_INVALID, "queue_id %" PRId32 " is not in 0..%d",
                         commit->queue_id, TOPIC_QUEUES_MAX - 1);
    if (commit->offset < 0)
        return error_set(err, TERN_INVALID, "offset %" PRId64 " is negative", commit->offset);
    if (!offset_version_fits(version))
        return error_set(err, TERN_INVALID, "version has a number above %" PRId64,
                         OFFSET_VERSION_MAX);
    return TERN_OK;
}

static enum tern_code refuse(struct commits *commits, struct rpc_request *request,
                             const Tern__Wire__CommitOffset *commit, int64_t held,
                             struct offset_version version)
{
    struct {
        Tern__Wire__CommitOffset commit;
        Tern__Wire__OffsetVersion version;
    } *out = rpc_request_alloc(request, sizeof *out);
    if (!out)
        return TERN_NO_MEMORY;
    tern__wire__commit_offset__init(&out->commit);
    tern__wire__offset_version__init(&out->version);
    out->commit.topic = commit->topic;
    out->commit.queue_id = commit->queue_id;
    out->commit.offset = held;
    out->version.epoch = version.epoch;
    out->version.counter = version.counter;
    out->version.cohort = commits->view.cohort;
    out->commit.version = &out->version;
    commits->refused[commits->refused_count++] = &out->commit;
    return TERN_OK;
}

/* Whether the queue ends before the offset; only an open master can tell, others' queues lag. */
static bool beyond_end(struct broker *broker, const char *topic, int32_t queue_id, int64_t offset,
                       int64_t *max)
{
    int64_t min;
    store_queue_range(broker->store, topic, queue_id, &min, max);
    return offset > *max && check_master(broker, NULL) == TERN_OK;
}

static enum tern_code commit_one(struct broker *broker, struct rpc_request *request,
                                 const Tern__Wire__CommitOffset *commit, struct commits *commits,
                                 struct tern_error *err)
{
    const char *topic;
    struct topic_config config;
    struct offset_version version = version_from_wire(commit->version);
    struct offset_version held_version = {0, 0};
    const char *group = commits->view.name;
    int64_t held = -1;
    int64_t max;
    enum tern_code code = take_topic(request, &commit->topic, &topic, err);
    if (!code)
        code = find_topic(broker, topic, &config, err);
    if (!code)
        code = check_queue(broker, &config, commit->queue_id, err);
    if (code)
        return code;
    offsets_query(broker->offsets, group, topic, commit->queue_id, &held, &held_version);
    if ((commit->version ? commit->version->cohort : 0) != commits->view.cohort)
        return refuse(commits, request, commit, held, held_version); /* what another one got */
    if (offset_version_compare(version, held_version) >= 0 &&
        beyond_end(broker, topic, commit->queue_id, commit->offset, &max))
        return error_set(err, TERN_INVALID,
                         "commit of offset %" PRId64 " in topic %s queue %" PRId32
                         ", which ends at %" PRId64,
                         commit->offset, topic, commit->queue_id, max);
    switch (offsets_commit(broker->offsets, group, topic, commit->queue_id, commit->offset, version,
                           &held, &held_version)) {
    case OFFSETS_VERSION_OLD:
        return refuse(commits, request, commit, held, held_version);
    case OFFSETS_FULL:
        return error_set(err, TERN_LIMIT,
                         "the table of offsets is full (%d pairs of topic and "
                         "group)",
                         (int)OFFSET_ENTRIES_MAX);
    case OFFSETS_STORED:
    case OFFSETS_LOWER:
        break;
    }
    return TERN_OK;
}

static void answer_commits(struct commits *commits)
{
    Tern__Wire__CommitOffsetResponse body = TERN__WIRE__COMMIT_OFFSET_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    if (commits->code && !commits->refused_count) {
        log_warn(commits->broker->env.log, "commit_refused", "code=%s cause=\"%s\"",
                 tern_code_name(commits->code), commits->err.text);
        rpc_reply_failure(commits->request, commits->code, &commits->err);
        return;
    }
    body.refused = commits->refused;
    body.n_refused = commits->refused_count;
    if (commits->refused_count) {
        response.code = wire_code_of(TERN_OFFSET_VERSION_OLD);
        response.remark = (char *)(uintptr_t)tern_code_text(TERN_OFFSET_VERSION_OLD);
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_COMMIT_OFFSET;
    response.commit_offset = &body;
    rpc_reply(commits->request, &response, 0);
}

void progress_answer_unconfirmed(struct broker *broker, struct rpc_request *request,
                                 enum tern_code code, const char *what)
{
    if (code == TERN_TIMEOUT)
        rpc_reply_error(request, TERN_FLUSH_SLAVE_TIMEOUT,
                        "the %s is stored on %s id %" PRId64
                        ", but the other members of its set did not confirm it in time",
                        what, broker->config.broker_name, broker->config.broker_id);
    else
        rpc_reply_error(
            request, code,
            "the %s is stored on %s id %" PRId64 ", but nobody else confirms it now: %s", what,
            broker->config.broker_name, broker->config.broker_id, tern_code_text(code));
}

static void on_commits_seen(struct ack_entry *entry, enum tern_code code)
{
    struct commits *commits = (struct commits *)entry;
    if (code)
        progress_answer_unconfirmed(commits->broker, commits->request, code, "commit");
    else
        answer_commits(commits);
}

void progress_wait_for_others(struct broker *broker, const struct rpc_request *request,
                              struct ack_entry *entry)
{
    if (!broker->ha || !broker->commits) {
        entry->done(entry, TERN_OK);
        return;
    }
    uint64_t number = set_tables_awaited(broker->set_tables);
    entry->position = number < INT64_MAX ? (int64_t)number : INT64_MAX;
    entry->deadline_ns =
        request->received_ns + (request->deadline_ns - request->received_ns) / 100 * ANSWER_PERCENT;
    ack_wait_add(broker->commits, entry);
}

static enum tern_code check_commits(struct broker *broker, struct rpc_request *request,
                                    const char **group, struct tern_error *err)
{
    const Tern__Wire__CommitOffsetRequest *wanted = request->header->commit_offset;
    struct group_config config;
    enum tern_code code = take_group(request, &wanted->group, group, err);
    if (!code)
        code = check_serves(broker, TERN_SERVICE_NOT_AVAILABLE, err);
    if (!code)
        code = groups_find_or_create(broker->groups, *group, strlen(*group), &config, err);
    if (!code && wanted->n_commits > COMMITS_MAX)
        code = error_set(err, TERN_INVALID, "%zu commits in one request, allowed %d",
                         wanted->n_commits, (int)COMMITS_MAX);
    for (size_t i = 0; !code && i < wanted->n_commits; i++)
        code = check_commit(wanted->commits[i], err);
    return code;
}

void handle_commit_offset(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__CommitOffsetRequest *wanted = request->header->commit_offset;
    struct commits *commits = rpc_request_alloc(request, sizeof *commits);
    struct tern_error err = {.text = ""};
    const char *group;
    struct group_view view;
    enum tern_code code = check_commits(broker, request, &group, &err);
    if (!code)
        code = take_view(broker, request, group, &view, &err);
    if (!code && commits) {
        *commits =
            (struct commits){.entry = {.done = on_commits_seen},
                             .broker = broker,
                             .request = request,
                             .view = view,
                             .refused = rpc_request_alloc(
                                 request, (wanted->n_commits + 1) * sizeof(commits->refused[0]))};
    }
    if (!code && (!commits || !commits->refused))
        code = error_set(&err, TERN_NO_MEMORY, "no memory for the commits");
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    if (groups_dirty(broker->groups))
        admin_lane_poke(broker->admin);
    for (size_t i = 0; i < wanted->n_commits; i++) {
        code = commit_one(broker, request, wanted->commits[i], commits, &err);
        if (code && !commits->code) {
            commits->code = code;
            commits->err = err;
        }
    }
    progress_wait_for_others(broker, request, &commits->entry);
}
