/*
 * An administrator's hand on the store: cleaning up now, and a consume queue's units as they are.
 *
 * Place: mqadmin's cleanExpiredCQ, deleteExpiredCommitLog, cleanUnusedTopic and queryCq. The log
 * and the queues may be cleaned on slaves, too; topics only where the table is decided.
 *
 * Invariant: queues of a topic that is in the table, or is the product's own, are never unused.
 *
 * Threads: the asking lane's; unused topics are looked for on the lane for changes, so that no
 * topic is made meanwhile. Failure modes: each is answered with its code; what is gone is gone.
 */
#include <stdlib.h>

#include "base/log.h"
#include "broker/admin_lane.h"
#include "broker/handlers/checks.h"

enum { UNITS_MAX = 1024 };

static void answer_removed(struct rpc_request *request, int64_t removed)
{
    Tern__Wire__CleanResponse body = TERN__WIRE__CLEAN_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    body.removed = removed;
    response.body_case = TERN__WIRE__RESPONSE__BODY_CLEAN;
    response.clean = &body;
    rpc_reply(request, &response, 0);
}

/* ---- cleaning ---- */

/* @thread lane */
static void run_clean_expired(struct broker *broker, struct rpc_request *request)
{
    struct tern_error err = {.text = ""};
    enum tern_code code = TERN_OK;
    int64_t removed = 0;
    if (request->header->clean->what == TERN__WIRE__CLEAN_WHAT__CLEAN_EXPIRED_LOG)
        removed = store_expire_now(broker->store);
    else
        code = store_clean_queues(broker->store, &err);
    log_info(broker->env.log, "cleaned_by_hand", "what=%d removed=%" PRId64 " code=%s",
             (int)request->header->clean->what, removed, tern_code_name(code));
    if (code)
        rpc_reply_failure(request, code, &err);
    else
        answer_removed(request, removed);
}

static enum tern_code apply_nothing(struct broker *broker, struct rpc_request *request,
                                    struct tern_error *err)
{
    (void)request;
    return check_master(broker, err);
}

static bool is_unused(struct broker *broker, const char *topic)
{
    struct topic_config config;
    return !topic_is_system(topic, strlen(topic)) &&
           !topics_find(broker->topics, topic, strlen(topic), &config);
}

/* @thread lane */
static enum tern_code remove_unused(struct broker *broker, struct rpc_request *request,
                                    struct tern_error *err)
{
    const char **names;
    size_t count;
    int64_t *removed = rpc_request_alloc(request, sizeof *removed);
    enum tern_code code = removed ? store_topics(broker->store, &names, &count) : TERN_NO_MEMORY;
    if (code)
        return error_set(err, code, "listing the topics of the store: %s", tern_code_text(code));
    *removed = 0;
    for (size_t i = 0; !code && i < count; i++) {
        if (!is_unused(broker, names[i]))
            continue;
        code = store_delete_topic(broker->store, names[i], err);
        log_warn(broker->env.log, "unused_topic_removed", "topic=%s code=%s", names[i],
                 tern_code_name(code));
        *removed += code == TERN_OK;
    }
    if (*removed && broker->ha) /* slaves learn where these lives end */
        ha_on_change(broker->ha);
    free(names);
    request->user = removed;
    return code;
}

static void answer_unused(struct broker *broker, struct rpc_request *request)
{
    (void)broker;
    answer_removed(request, *(const int64_t *)request->user);
}

void handle_clean(struct broker *broker, struct rpc_request *request)
{
    switch (request->header->clean->what) {
    case TERN__WIRE__CLEAN_WHAT__CLEAN_EXPIRED_LOG:
    case TERN__WIRE__CLEAN_WHAT__CLEAN_EXPIRED_QUEUES:
        admin_lane_run(broker->admin, request, run_clean_expired);
        break;
    case TERN__WIRE__CLEAN_WHAT__CLEAN_UNUSED_TOPICS:
        admin_lane_submit_answered(broker->admin, request, apply_nothing, remove_unused,
                                   answer_unused);
        break;
    default:
        rpc_reply_error(request, TERN_INVALID, "what is %d, allowed 0..2",
                        (int)request->header->clean->what);
    }
}

/* ---- units ---- */

static enum tern_code check_read(struct broker *broker, struct rpc_request *request,
                                 const char **topic, struct tern_error *err)
{
    const Tern__Wire__ReadQueueRequest *wanted = request->header->read_queue;
    struct topic_config config;
    enum tern_code code = take_topic(request, &wanted->topic, topic, err);
    if (!code)
        code = find_topic(broker, *topic, &config, err);
    if (!code)
        code = check_queue(broker, &config, wanted->queue_id, err);
    if (!code && wanted->offset < 0)
        code = error_set(err, TERN_INVALID, "offset %" PRId64 " is negative", wanted->offset);
    if (!code && (wanted->max_count < 1 || wanted->max_count > UNITS_MAX))
        code = error_set(err, TERN_INVALID, "max_count %" PRIu32 " is not in 1..%d",
                         wanted->max_count, (int)UNITS_MAX);
    return code;
}

static void fill_units(Tern__Wire__ReadQueueResponse *body, Tern__Wire__QueueUnit *wire,
                       const struct store_unit *units, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        tern__wire__queue_unit__init(&wire[i]);
        wire[i].physical_offset = units[i].phys_off;
        wire[i].size = units[i].size;
        wire[i].tags_code = units[i].tags_code;
        body->units[i] = &wire[i];
    }
    body->n_units = count;
}

/* @thread lane */
static void run_read_queue(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__ReadQueueRequest *wanted = request->header->read_queue;
    Tern__Wire__ReadQueueResponse body = TERN__WIRE__READ_QUEUE_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {.text = ""};
    const char *topic = NULL;
    uint32_t got = 0;
    enum tern_code code = check_read(broker, request, &topic, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    struct store_unit *units = rpc_request_alloc(request, wanted->max_count * sizeof *units);
    Tern__Wire__QueueUnit *wire = rpc_request_alloc(request, wanted->max_count * sizeof *wire);
    body.units = rpc_request_alloc(request, wanted->max_count * sizeof body.units[0]);
    if (!units || !wire || !body.units) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for %" PRIu32 " units",
                        wanted->max_count);
        return;
    }
    store_queue_range(broker->store, topic, wanted->queue_id, &body.min_offset, &body.max_offset);
    body.offset = wanted->offset;
    code = store_read_units(broker->store, topic, wanted->queue_id, wanted->offset, units,
                            wanted->max_count, &body.offset, &got);
    if (code && code != TERN_NOT_FOUND) { /* without an object: no message ever came */
        rpc_reply_error(request, code, "reading queue %" PRId32 " of topic %s failed: %s",
                        wanted->queue_id, topic, tern_code_text(code));
        return;
    }
    fill_units(&body, wire, units, got);
    response.body_case = TERN__WIRE__RESPONSE__BODY_READ_QUEUE;
    response.read_queue = &body;
    rpc_reply(request, &response, 0);
}

void handle_read_queue(struct broker *broker, struct rpc_request *request)
{
    admin_lane_run(broker->admin, request, run_read_queue);
}
