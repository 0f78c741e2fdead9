#include "tests/cluster/delay_world.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/props.h"
#include "broker/schedule/delay_event.h"

struct world world;
struct delayed sent[DELAYED_MAX];
uint32_t sent_count;

int64_t now_ms(void)
{
    return clock_wall_ms(world.cluster.sim.env.clock);
}

void prepare(uint64_t seed)
{
    memset(sent, 0, sizeof sent);
    sent_count = 0;
    world_prepare(&world, seed);
}

enum tern_code send_to(const char *topic, const char *name, int64_t value, int64_t delay_ms)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    uint8_t props[256];
    size_t len = 0;
    char text[24];
    uint32_t number = sent_count++;
    struct delayed *d = &sent[number];
    assert_true(number < DELAYED_MAX);
    snprintf(text, sizeof text, "%" PRId64, value);
    snprintf(d->key, sizeof d->key, "K%" PRIu32, number);
    assert_int_equal(
        props_append(props, &len, sizeof props, name, strlen(name), text, strlen(text)), TERN_OK);
    assert_int_equal(props_append(props, &len, sizeof props, "UNIQ_KEY", 8, d->key, strlen(d->key)),
                     TERN_OK);
    assert_int_equal(props_append(props, &len, sizeof props, "TAGS", 4, "TagA", 4), TERN_OK);
    d->due_ms = now_ms() + delay_ms;
    send.producer_group = frame_bytes("putters", 7);
    send.topic = frame_bytes(topic, strlen(topic));
    send.queue_id = (int32_t)(number % WORLD_QUEUES);
    send.born_ms = 77;
    send.flag = 5;
    send.properties = frame_bytes((const char *)props, len);
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    request.send = &send;
    enum tern_code code = world_ask(&world, world.master, "putter", &request, &number,
                                    sizeof number, PATIENCE_MS, &call);
    d->phys_off = -1;
    if (call && call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_SEND) {
        d->phys_off = call->response->send->physical_offset;
        /* The waiting begins when it was stored. */
        if (!strcmp(name, PROP_DELAY))
            d->due_ms = call->response->send->store_ms + delay_ms;
    }
    world_answer_free(call);
    d->acked = code == TERN_OK || code == TERN_SLAVE_NOT_AVAILABLE ||
               code == TERN_FLUSH_SLAVE_TIMEOUT || code == TERN_FLUSH_DISK_TIMEOUT;
    return code;
}

void send_in(int64_t delay_ms)
{
    enum tern_code code = send_to(WORLD_TOPIC, PROP_TIMER_DELAY_MS, delay_ms, delay_ms);
    assert_true(code == TERN_OK || code == TERN_SLAVE_NOT_AVAILABLE);
}

void send_level(int level)
{
    const struct delay_levels *levels = &world.master->config.delay_levels;
    enum tern_code code = send_to(WORLD_TOPIC, PROP_DELAY, level, levels->delay_ms[level - 1]);
    assert_true(code == TERN_OK || code == TERN_SLAVE_NOT_AVAILABLE);
}

char remark[512]; /* what the last cancelling was answered with */

enum tern_code cancel(uint32_t number)
{
    struct rpc_call *call;
    Tern__Wire__CancelDelayedRequest body = TERN__WIRE__CANCEL_DELAYED_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.physical_offset = sent[number].phys_off;
    body.message_id = frame_bytes(sent[number].key, strlen(sent[number].key));
    request.body_case = TERN__WIRE__REQUEST__BODY_CANCEL_DELAYED;
    request.cancel_delayed = &body;
    enum tern_code code =
        world_ask(&world, world.master, "putter", &request, NULL, 0, PATIENCE_MS, &call);
    snprintf(remark, sizeof remark, "%s", call && call->response ? call->response->remark : "");
    world_answer_free(call);
    sent[number].cancelled = sent[number].cancelled || code == TERN_OK;
    return code;
}

static bool on_record(void *arg, const struct record *record)
{
    const char *topic = arg;
    uint32_t number;
    struct slice value;
    if (!delay_topic_is(record, topic) || record->body_len != sizeof number)
        return true;
    memcpy(&number, record->body, sizeof number);
    assert_true(number < sent_count);
    struct delayed *d = &sent[number];
    d->times++;
    d->late_ms = record->store_ms - d->due_ms;
    assert_int_equal(record->queue_id, number % WORLD_QUEUES);
    assert_int_equal(record->born_ms, 77);
    assert_int_equal(record->flag, 5);
    static const char *const gone[] = {PROP_DELAY,        PROP_REAL_TOPIC,    PROP_REAL_QID,
                                       PROP_TIMER_OUT_MS, PROP_TIMER_ROLL_MS, PROP_DELAY_TRIES};
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        assert_false(props_get(record->props, record->props_len, gone[i], &value));
    assert_true(props_get(record->props, record->props_len, PROP_UNIQ_KEY, &value));
    return true;
}

uint32_t read_topic(const struct sim_node *node, const char *topic)
{
    int64_t next;
    uint32_t all = 0;
    for (uint32_t i = 0; i < sent_count; i++)
        sent[i].times = 0;
    assert_int_equal(store_each_record(node->broker->store, 0, world_at(node).whole, on_record,
                                       (void *)(uintptr_t)topic, &next),
                     TERN_OK);
    for (uint32_t i = 0; i < sent_count; i++)
        all += sent[i].times;
    return all;
}

void check_once(const struct sim_node *node)
{
    read_topic(node, WORLD_TOPIC);
    for (uint32_t i = 0; i < sent_count; i++) {
        uint32_t wanted = sent[i].cancelled ? 0 : 1;
        if (sent[i].times != wanted && (sent[i].acked || sent[i].times > 1))
            fail_msg("message %" PRIu32 " came %" PRIu32 " times at %s", i, sent[i].times,
                     node->address);
    }
}

struct schedule_status status_of(const struct sim_node *node)
{
    struct schedule_status status;
    schedule_status(node->broker->schedule, &status);
    return status;
}
