/*
 * Messages by physical offset and by key. Both may wait for the disk, so they run on the cold lane.
 */
#include <inttypes.h>
#include <string.h>

#include "base/names.h"
#include "broker/cold_lane.h"
#include "broker/handlers/handlers.h"

enum { QUERY_RESULTS_MAX = 64, QUERY_BYTES_MAX = 8 << 20, QUERY_KEY_MAX = 1024 };

static uint8_t *reserve_reply(void *arg, size_t size_bytes)
{
    return rpc_reply_reserve(arg, size_bytes);
}

static void view_cold(struct broker *broker, struct rpc_request *request)
{
    int64_t phys_off = request->header->view_message->physical_offset;
    Tern__Wire__ViewMessageResponse body = TERN__WIRE__VIEW_MESSAGE_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    size_t size = 0;

    enum tern_code code = store_get_by_phys(broker->store, phys_off, reserve_reply, request, &size);
    if (code == TERN_NOT_FOUND) {
        struct store_status status;
        store_status(broker->store, &status);
        rpc_reply_error(request, TERN_QUERY_NOT_FOUND,
                        "no message begins at physical offset %" PRId64 "; the log holds %" PRId64
                        "..%" PRId64,
                        phys_off, status.min_phys, status.appended);
    } else if (code != TERN_OK) {
        rpc_reply_error(request, code, "reading physical offset %" PRId64 " failed: %s", phys_off,
                        tern_code_text(code));
    } else {
        response.body_case = TERN__WIRE__RESPONSE__BODY_VIEW_MESSAGE;
        response.view_message = &body;
        rpc_reply(request, &response, size);
    }
}

void handle_view_message(struct broker *broker, struct rpc_request *request)
{
    cold_lane_submit(broker->cold, request, view_cold);
}

/* Records collected for one answer, in blocks of the request's memory. */
struct found {
    struct rpc_request *request;
    struct found_record {
        const uint8_t *bytes;
        size_t size;
    } records[QUERY_RESULTS_MAX];
    uint32_t count;
    size_t size;
};

static bool collect(void *arg, const uint8_t *bytes, size_t size)
{
    struct found *found = arg;
    if (found->count == QUERY_RESULTS_MAX || found->size + size > QUERY_BYTES_MAX)
        return false;
    uint8_t *copy = rpc_request_alloc(found->request, size);
    if (!copy)
        return false;
    memcpy(copy, bytes, size);
    found->records[found->count++] = (struct found_record){copy, size};
    found->size += size;
    return true;
}

static void answer_found(struct broker *broker, const struct found *found,
                         const struct store_query_info *info)
{
    struct rpc_request *request = found->request;
    Tern__Wire__QueryMessageResponse body = TERN__WIRE__QUERY_MESSAGE_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    uint8_t *payload = rpc_reply_reserve(request, found->size);
    if (!payload) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for %zu bytes of messages",
                        found->size);
        return;
    }
    for (uint32_t i = 0; i < found->count; i++) {
        memcpy(payload, found->records[i].bytes, found->records[i].size);
        payload += found->records[i].size;
    }
    body.count = (int32_t)found->count;
    body.indexed_begin_ms = info->indexed_begin_ms;
    body.indexed_end_ms = info->indexed_end_ms;
    body.index_lag_bytes = info->log_end - info->index_phys;
    body.log_min = info->log_min;
    response.body_case = TERN__WIRE__RESPONSE__BODY_QUERY_MESSAGE;
    response.query_message = &body;
    if (!found->count) {
        response.code = wire_code_of(TERN_QUERY_NOT_FOUND);
        response.remark =
            broker->config.index_enable
                ? (char *)(uintptr_t) "no retained message of this topic has this key"
                : (char *)(uintptr_t) "this broker keeps no index (messageIndexEnable)";
    }
    rpc_reply(request, &response, found->size);
}

static void query_cold(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__QueryMessageRequest *wanted = request->header->query_message;
    struct arena *arena = rpc_request_arena(request);
    struct found *found = rpc_request_alloc(request, sizeof *found);
    const char *topic = frame_text(arena, &wanted->topic);
    const char *key = frame_text(arena, &wanted->key);
    struct store_query_info info;

    if (!found || !topic || !key) {
        rpc_reply_error(request, TERN_INVALID, "the key holds NUL, or no memory");
        return;
    }
    *found = (struct found){.request = request};
    struct store_query query = {
        .topic = topic,
        .key = key,
        .max_count = wanted->max_count > 0 && wanted->max_count < QUERY_RESULTS_MAX
                         ? (uint32_t)wanted->max_count
                         : QUERY_RESULTS_MAX,
        .begin_ms = wanted->begin_ms,
        .end_ms = wanted->end_ms > 0 ? wanted->end_ms : INT64_MAX,
        .on_record = collect,
        .arg = found,
    };
    enum tern_code code = store_query(broker->store, &query, &info);
    if (code != TERN_OK)
        rpc_reply_error(request, code, "querying topic %s for key %s failed: %s", topic, key,
                        tern_code_text(code));
    else
        answer_found(broker, found, &info);
}

void handle_query_message(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__QueryMessageRequest *wanted = request->header->query_message;
    struct tern_error err;
    enum tern_code code = topic_name_check(wanted->topic.data, wanted->topic.len, &err);
    if (code != TERN_OK)
        rpc_reply_failure(request, code, &err);
    else if (wanted->key.len == 0 || wanted->key.len > QUERY_KEY_MAX)
        rpc_reply_error(request, TERN_INVALID, "a key of %zu bytes is not in 1..%d",
                        wanted->key.len, QUERY_KEY_MAX);
    else
        cold_lane_submit(broker->cold, request, query_cold);
}
