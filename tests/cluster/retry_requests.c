/* Requests and looks for the tests of retries. */
#include "tests/cluster/retry_requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/props.h"
#include "rpc/client.h"

enum { PATIENCE_MS = 5000 };

static ProtobufCBinaryData text_bytes(const char *text)
{
    return frame_bytes(text, strlen(text));
}

static void keep_remark(char remark[512], const struct rpc_call *call)
{
    snprintf(remark, 512, "%s", call && call->response ? call->response->remark : "");
}

struct retry_sent retry_send(struct world *world, const struct retry_send *what)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct retry_sent sent = {.phys_off = -1};
    struct rpc_call *call;
    send.producer_group = text_bytes("putters");
    send.topic = text_bytes(what->topic);
    send.queue_id = -1;
    send.born_ms = 1234;
    send.properties = text_bytes(what->props);
    send.reconsume_times = what->reconsume_times;
    send.max_reconsume_times = what->max_reconsume_times;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    request.send = &send;
    sent.code = world_ask(world, world->master, "putter", &request, what->body, strlen(what->body),
                          PATIENCE_MS, &call);
    if (call && call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_SEND) {
        sent.queue_id = call->response->send->queue_id;
        sent.queue_off = call->response->send->queue_offset;
        sent.phys_off = call->response->send->physical_offset;
    }
    keep_remark(sent.remark, call);
    world_answer_free(call);
    return sent;
}

enum tern_code retry_send_back(struct world *world, struct sim_node *node,
                               const struct retry_back *what, char remark[512])
{
    Tern__Wire__SendBackRequest back = TERN__WIRE__SEND_BACK_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    back.group = text_bytes(what->group ? what->group : WORLD_GROUP);
    back.origin_topic = text_bytes(what->topic ? what->topic : WORLD_TOPIC);
    back.origin_message_id = text_bytes(what->id ? what->id : "");
    back.physical_offset = what->phys_off;
    back.store_ms = what->store_ms;
    back.delay_level = what->level;
    back.reconsume_times = what->times;
    back.max_reconsume_times = what->max_times;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND_BACK;
    request.send_back = &back;
    enum tern_code code = world_ask(world, node, "reader", &request, NULL, 0, PATIENCE_MS, &call);
    if (remark)
        keep_remark(remark, call);
    world_answer_free(call);
    return code;
}

static uint8_t *reserve(void *arg, size_t size)
{
    struct retry_record *out = arg;
    return size <= sizeof out->bytes ? out->bytes : NULL;
}

bool retry_record_at(const struct sim_node *node, const char *topic, int32_t queue_id,
                     int64_t offset, struct retry_record *out)
{
    struct store_get get = {.topic = topic,
                            .queue_id = queue_id,
                            .offset = offset,
                            .max_count = 1,
                            .reserve = reserve,
                            .arg = out};
    struct store_get_result got;
    if (store_get(node->broker->store, &get, &got) != TERN_OK || got.status != GET_FOUND)
        return false;
    return record_parse(out->bytes, got.size_bytes, sizeof out->bytes, true, &out->record) ==
           RECORD_WHOLE;
}

int64_t retry_queue_end(const struct sim_node *node, const char *topic, int32_t queue_id)
{
    int64_t min, max;
    store_queue_range(node->broker->store, topic, queue_id, &min, &max);
    return max;
}

const char *retry_property(const struct retry_record *record, const char *name)
{
    static char value[512];
    struct slice found;
    value[0] = 0;
    if (props_get(record->record.props, record->record.props_len, name, &found)) {
        assert_true(found.len < sizeof value);
        memcpy(value, found.ptr, found.len);
        value[found.len] = 0;
    }
    return value;
}

enum tern_code retry_update_group(struct world *world, const char *group, int32_t retry_queues,
                                  int32_t retry_max_times)
{
    Tern__Wire__GroupConfig config = TERN__WIRE__GROUP_CONFIG__INIT;
    Tern__Wire__UpdateGroupRequest body = TERN__WIRE__UPDATE_GROUP_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    config.name = text_bytes(group);
    config.consume_enable = config.consume_from_min_enable = true;
    config.consume_broadcast_enable = config.notify_members_changed = true;
    config.retry_queues = retry_queues;
    config.retry_max_times = retry_max_times;
    body.group = &config;
    request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_GROUP;
    request.update_group = &body;
    return world_ask(world, world->master, "tool", &request, NULL, 0, PATIENCE_MS, NULL);
}
