/*
 * Pulling (RocketMQ's PullMessageProcessor): the checks of R-9, each with its own code and words,
 * then getMessage straight into the answer.
 *
 *   check ─► commit ─► get without waiting for the disk ─┬─ found, moved, nothing matched ─► answer
 *                                                        ├─ nothing there ─► park (long_poll) ─►
 * get again └─ not in memory ─► cold lane ─► get again
 *
 * A pull that was parked runs once more and is answered, whatever it finds. When the group's
 * progress was reset meanwhile, it is answered with the new one.
 */
#include <inttypes.h>
#include <string.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/names.h"
#include "broker/ha/ha.h"
#include "broker/cold_lane.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/pull_internal.h"
#include "broker/long_poll.h"

enum { PULL_COUNT_MAX = 1024, SUSPEND_MAX_MS = 120000 };

/* ---- answering ---- */

static void pull_end(struct pull *pull)
{
    subscription_free(pull->subscription);
    pull->subscription = NULL;
    pull_retries_end(pull);
}

void pull_refuse(struct pull *pull, enum tern_code code, const char *fmt, ...)
{
    char text[TERN_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pull_end(pull);
    rpc_reply_error(pull->request, code, "%s", text);
}

static enum tern_code code_of(enum get_status status, int64_t asked)
{
    switch (status) {
    case GET_FOUND:
        return TERN_OK;
    case GET_NO_MATCHED_LOGIC_QUEUE:
    case GET_NO_MESSAGE_IN_QUEUE:
        return asked == 0 ? TERN_PULL_NOT_FOUND : TERN_PULL_OFFSET_MOVED;
    case GET_OFFSET_FOUND_NULL:
    case GET_OFFSET_OVERFLOW_ONE:
        return TERN_PULL_NOT_FOUND;
    case GET_NO_MATCHED_MESSAGE:
    case GET_MESSAGE_WAS_REMOVING:
        return TERN_PULL_RETRY_IMMEDIATELY;
    case GET_OFFSET_TOO_SMALL:
    case GET_OFFSET_OVERFLOW_BADLY:
        return TERN_PULL_OFFSET_MOVED;
    }
    return TERN_SYSTEM_ERROR;
}

/*
 * Whom to ask next: here while that lies in memory (a slave then names the master), else a slave
 * that has it: the group's choice when it is fit, any other only for groups that did not choose.
 */
static int64_t suggestion(const struct pull *pull, const struct store_get_result *result)
{
    struct broker *broker = pull->broker;
    int64_t preferred = pull->group_config.which_broker_when_slow;
    if (broker->config.role == ROLE_SLAVE)
        return result->beyond_memory ? broker->config.broker_id : 0;
    if (!result->beyond_memory || !result->want_end || !broker->config.slave_read_enable)
        return 0;
    int64_t id = ha_pick_slave(broker->ha, preferred, result->want_end);
    bool fits = id == preferred || preferred == GROUP_SLOW_BROKER_DEFAULT;
    return id < 0 || !fits ? 0 : id;
}

/*
 * Where the queue really ends is the open master's to say: what a slave lacks may still come, and
 * so may a recovering master's tail. Nothing that they say moves a consumer.
 */
static bool decides_end(const struct broker *broker)
{
    if (broker->config.role == ROLE_SLAVE)
        return broker->config.offset_check_in_slave;
    return ha_state(broker->ha) == TERN__WIRE__HA_STATE__HA_OPEN;
}

static bool is_beyond_end(enum get_status status)
{
    return status == GET_OFFSET_OVERFLOW_BADLY || status == GET_OFFSET_OVERFLOW_ONE ||
           status == GET_NO_MATCHED_LOGIC_QUEUE || status == GET_NO_MESSAGE_IN_QUEUE;
}

static void answer(struct pull *pull, enum tern_code code, const struct store_get_result *result)
{
    Tern__Wire__PullResponse body = TERN__WIRE__PULL_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;

    body.next_offset = result->next_off;
    body.min_offset = result->min_off;
    body.max_offset = result->max_off;
    body.count = (int32_t)result->count;
    body.suggest_broker_id = suggestion(pull, result);
    response.code = wire_code_of(code);
    response.remark = (char *)(uintptr_t)get_status_text(result->status);
    response.body_case = TERN__WIRE__RESPONSE__BODY_PULL;
    response.pull = &body;
    stages_pulled(&pull->broker->stages, result->scanned, result->count, pull->cold);
    if (result->scanned)
        pull_stats_add(pull->broker->pull_stats, pull->view.name, pull->topic,
                       pull->request->header->pull->queue_id, pull->client_id,
                       pull->subscription ? subscription_text(pull->subscription) : "*",
                       result->scanned, result->count, result->scanned - result->count);
    pull_end(pull);
    rpc_reply(pull->request, &response, result->size_bytes);
}

/* The group's progress was reset since the client looked: it gets the new one and no messages. */
static void answer_version(struct pull *pull, struct offset_version version, int64_t offset)
{
    Tern__Wire__OffsetVersion held = TERN__WIRE__OFFSET_VERSION__INIT;
    Tern__Wire__PullResponse body = TERN__WIRE__PULL_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;

    held.epoch = version.epoch;
    held.counter = version.counter;
    held.cohort = pull->view.cohort;
    body.offset_version = &held;
    body.committed_offset = offset;
    body.next_offset = offset;
    response.code = wire_code_of(TERN_OFFSET_VERSION_OLD);
    response.remark = (char *)(uintptr_t)tern_code_text(TERN_OFFSET_VERSION_OLD);
    response.body_case = TERN__WIRE__RESPONSE__BODY_PULL;
    response.pull = &body;
    pull_end(pull);
    rpc_reply(pull->request, &response, 0);
}

/*
 * The version held here is newer than the client's. Without progress the topic was deleted since,
 * and what is there now begins at its minimum; but only a broker that decides may say so.
 */
static void answer_newer(struct pull *pull, struct offset_version version, bool known,
                         int64_t offset)
{
    if (known || ha_decides_progress(pull->broker->ha))
        answer_version(pull, version, offset);
    else
        pull_refuse(pull, TERN_PROGRESS_UNKNOWN,
                    "group %s: where it stands in topic %s is not known here: ask the master",
                    pull->group, pull->topic);
}

/* ---- progress that comes along ---- */

/*
 * The client has adopted a recovery of the master's that this slave has not heard of: at its
 * offsets there may be other messages here, that were lost there. false: answered.
 */
static bool check_same_log(struct pull *pull, struct offset_version version,
                           struct offset_version held)
{
    struct ha *ha = pull->broker->ha;
    if (!ha || version.epoch <= held.epoch || ha_agrees_with(ha, version.epoch))
        return true;
    pull_refuse(pull, TERN_SERVICE_NOT_AVAILABLE,
                "slave %s id %" PRId64
                " has not met its master since that recovered: ask the master",
                pull->broker->config.broker_name, pull->broker->config.broker_id);
    return false;
}

/* Progress that comes with the pull, and the version the client knows. false: answered. */
static bool take_progress(struct pull *pull)
{
    const Tern__Wire__PullRequest *wanted = pull->request->header->pull;
    struct offset_version version = version_from_wire(wanted->offset_version), held_version;
    int64_t held = 0, min, max;

    if (!wanted->has_commit && !wanted->offset_version)
        return true;
    bool known = offsets_query(pull->broker->offsets, pull->view.name, pull->topic,
                               wanted->queue_id, &held, &held_version);
    store_queue_range(pull->broker->store, pull->topic, wanted->queue_id, &min, &max);
    if (offset_version_compare(version, held_version) < 0) {
        /* What was finished just before a recovery still counts as far as it was recovered. */
        if (known && wanted->has_commit && wanted->commit_offset >= 0)
            (void)offsets_commit(pull->broker->offsets, pull->view.name, pull->topic,
                                 wanted->queue_id, wanted->commit_offset, version, &held,
                                 &held_version);
        answer_newer(pull, held_version, known, known ? held : min);
        return false;
    }
    if (!check_same_log(pull, version, held_version))
        return false;
    if (!wanted->has_commit)
        return true;
    if (wanted->commit_offset < 0 || (wanted->commit_offset > max && decides_end(pull->broker))) {
        log_warn(pull->broker->env.log, "commit_out_of_range",
                 "group=%s topic=%s queue=%" PRId32 " offset=%" PRId64 " max=%" PRId64, pull->group,
                 pull->topic, wanted->queue_id, wanted->commit_offset, max);
        return true;
    }
    if (offsets_commit(pull->broker->offsets, pull->view.name, pull->topic, wanted->queue_id,
                       wanted->commit_offset, version, &held, &held_version) != OFFSETS_VERSION_OLD)
        return true;
    answer_version(pull, held_version, held);
    return false;
}

/* ---- getting ---- */

static bool match_code(void *arg, int64_t code)
{
    return subscription_match_code(((const struct pull *)arg)->subscription, code);
}

static bool match_record(void *arg, const struct record *record)
{
    struct pull *pull = arg;
    if (pull->subscription &&
        !subscription_match_props(pull->subscription, record->props, record->props_len))
        return false;
    return !pull->retries.used || pull_retries_match(pull, record);
}

/* SQL92 looks into records, and so do cohorts for their retries; a tag's hash stands in the queue.
 */
static bool is_by_record(const struct pull *pull)
{
    return pull->retries.used ||
           (pull->subscription && subscription_type(pull->subscription) == SUBSCRIPTION_SQL92);
}

static uint8_t *reserve_reply(void *arg, size_t size_bytes)
{
    return rpc_reply_reserve(arg, size_bytes);
}

static enum tern_code get(struct pull *pull, bool nowait, struct store_get_result *result)
{
    const Tern__Wire__PullRequest *wanted = pull->request->header->pull;
    bool by_record = is_by_record(pull);
    pull->filter = (struct store_filter){.arg = pull,
                                         .match_code = by_record ? NULL : match_code,
                                         .match_record = by_record ? match_record : NULL};
    struct store_get get = {
        .topic = pull->topic,
        .queue_id = wanted->queue_id,
        .offset = pull->offset,
        .max_count = (uint32_t)wanted->max_count,
        .nowait = nowait,
        .filter = pull->subscription || by_record ? &pull->filter : NULL,
        .reserve = reserve_reply,
        .arg = pull->request,
    };
    return store_get(pull->broker->store, &get, result);
}

static int64_t suspend_ms(const struct pull *pull)
{
    const struct live_config *live = &pull->broker->live;
    int64_t asked = pull->request->header->pull->suspend_timeout_ms;
    int64_t patience_ms =
        (pull->request->deadline_ns - pull->request->received_ns) / 1000000 * 9 / 10;
    if (asked > 0 && !live->long_polling_enable)
        asked = live->short_polling_ms;
    return asked < patience_ms ? asked
                               : patience_ms; /* never beyond what the client waits (OF-18) */
}

/* true: parked, not to be touched any more. */
static bool park(struct pull *pull)
{
    int64_t wait_ms = suspend_ms(pull);
    if (!pull->may_park || wait_ms <= 0)
        return false;
    pull->may_park = false;
    pull->parked = (struct parked_pull){
        .topic = pull->topic,
        .group = pull->view.name,
        .queue_id = pull->request->header->pull->queue_id,
        .offset = pull->offset,
        .resets = pull->resets,
        .deadline_ns = clock_mono_ns(pull->broker->env.clock) + ms_to_ns(wait_ms),
        .peer_id = pull->request->peer.id,
        .subscription = pull->subscription,
        .by_record = is_by_record(pull),
        .user = pull,
    };
    return long_poll_park(pull->broker->polls, &pull->parked);
}

/* Progress may have been reset while the pull waited: its offset means nothing any more (OF-07). */
static bool version_stands(struct pull *pull)
{
    const Tern__Wire__PullRequest *wanted = pull->request->header->pull;
    struct offset_version held_version;
    int64_t held, min, max;

    if (!wanted->offset_version)
        return true;
    bool known = offsets_query(pull->broker->offsets, pull->view.name, pull->topic,
                               wanted->queue_id, &held, &held_version);
    struct offset_version version = version_from_wire(wanted->offset_version);
    if (offset_version_compare(version, held_version) >= 0)
        return true;
    store_queue_range(pull->broker->store, pull->topic, wanted->queue_id, &min, &max);
    answer_newer(pull, held_version, known, known ? held : min);
    return false;
}

static void run_cold(struct broker *broker, struct rpc_request *request);

/* Gets and answers, parks, or goes to the cold lane. */
static void run(struct pull *pull, bool nowait)
{
    struct store_get_result result;
    enum tern_code code = get(pull, nowait, &result);
    if (code == TERN_AGAIN) {
        pull->request->user = pull;
        cold_lane_submit(pull->broker->cold, pull->request, run_cold);
        return;
    }
    if (code != TERN_OK) {
        pull_refuse(pull, code, "reading topic %s queue %" PRId32 " at %" PRId64 " failed: %s",
                    pull->topic, pull->request->header->pull->queue_id,
                    pull->request->header->pull->offset, tern_code_text(code));
        return;
    }
    code = code_of(result.status, pull->request->header->pull->offset);
    if (is_beyond_end(result.status) && !decides_end(pull->broker)) {
        result.next_off = pull->offset;
        code = TERN_PULL_NOT_FOUND;
    }
    result.scanned += pull->looked_at;
    if (code == TERN_PULL_NOT_FOUND) {
        bool could_park = pull->may_park;
        if (park(pull))
            return;
        if (could_park && !pull->may_park) { /* something came, or was reset, while parking */
            if (version_stands(pull))
                run(pull, nowait);
            return;
        }
    }
    if (code == TERN_PULL_NOT_FOUND &&
        pull->looked_at) { /* what was looked at does not come again */
        code = TERN_PULL_RETRY_IMMEDIATELY;
        result.status = GET_NO_MATCHED_MESSAGE;
    }
    answer(pull, code, &result);
}

static void run_cold(struct broker *broker, struct rpc_request *request)
{
    struct pull *pull = request->user;
    (void)broker;
    pull->cold = true;
    run(pull, false);
}

/* A look at records without delivering any. */
struct look {
    struct pull *pull;
    bool found;
};

static bool look_at_record(void *arg, const struct record *record)
{
    struct look *look = arg;
    look->found = look->found || match_record(look->pull, record);
    return look->found;
}

static uint8_t *reserve_nothing(void *arg, size_t size_bytes)
{
    (void)arg;
    (void)size_bytes;
    return NULL;
}

bool pull_concerns(void *broker, struct parked_pull *parked)
{
    struct pull *pull = parked->user;
    struct look look = {.pull = pull};
    const struct store_filter filter = {.arg = &look, .match_record = look_at_record};
    const struct store_get get = {.topic = parked->topic,
                                  .queue_id = parked->queue_id,
                                  .offset = parked->offset,
                                  .max_count = 1,
                                  .nowait = true,
                                  .filter = &filter,
                                  .reserve = reserve_nothing};
    struct store_get_result result;
    enum tern_code code = store_get(((struct broker *)broker)->store, &get, &result);
    if (code || look.found || result.status != GET_NO_MATCHED_MESSAGE)
        return true; /* it will be seen when the pull runs */
    pull->looked_at += result.scanned;
    pull->offset = parked->offset = result.next_off;
    return false;
}

void pull_resume(void *broker, struct parked_pull *parked)
{
    (void)broker;
    struct pull *pull = parked->user;
    pull->cold = false;
    if (version_stands(pull))
        run(pull, true);
}

void pull_drop(void *broker, struct parked_pull *parked)
{
    (void)broker;
    struct pull *pull = parked->user;
    pull_refuse(pull, TERN_CONNECTION_LOST, "peer is gone");
}

static bool check_numbers(struct rpc_request *request)
{
    const Tern__Wire__PullRequest *wanted = request->header->pull;
    if (wanted->max_count < 1 || wanted->max_count > PULL_COUNT_MAX)
        rpc_reply_error(request, TERN_INVALID, "max_count %" PRId32 " is not in 1..%d",
                        wanted->max_count, PULL_COUNT_MAX);
    else if (wanted->suspend_timeout_ms > SUSPEND_MAX_MS)
        rpc_reply_error(request, TERN_INVALID, "suspend_timeout_ms %" PRIu32 " is above %d",
                        wanted->suspend_timeout_ms, SUSPEND_MAX_MS);
    else if (!offset_version_fits(version_from_wire(wanted->offset_version)))
        rpc_reply_error(request, TERN_INVALID, "offset_version has a number above %" PRId64,
                        OFFSET_VERSION_MAX);
    else
        return true;
    return false;
}

void handle_pull(struct broker *broker, struct rpc_request *request)
{
    const TernRequest *header = request->header;
    struct arena *arena = rpc_request_arena(request);

    if (!check_numbers(request))
        return;
    struct pull *pull = rpc_request_alloc(request, sizeof *pull);
    if (!pull) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the pull");
        return;
    }
    *pull = (struct pull){
        .broker = broker, .request = request, .may_park = true, .offset = header->pull->offset};
    pull->resets = long_poll_resets(broker->polls);
    if (!pull_check_names(pull))
        return;
    pull->group = frame_text(arena, &header->pull->group);
    pull->topic = frame_text(arena, &header->pull->topic);
    pull->client_id = frame_text(arena, &header->client_id);
    if (!pull->group || !pull->topic || !pull->client_id) {
        pull_refuse(pull, TERN_NO_MEMORY, "no memory for the pull");
        return;
    }
    if (pull_check_view(pull) && pull_check_subscription(pull) && take_progress(pull)) {
        pull_retries_begin(pull);
        run(pull, true);
    }
}
