/*
 * The clients of a set under faults: a producer that never waits, members of a
 * group, one who commits progress and remembers what was promised, and an
 * operator's requests.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "client/sim_hooks.h"
#include "rpc/client.h"
#include "tests/cluster/set_fault.h"

static unsigned set_of_name(const char *broker_name)
{
    return broker_name[strlen(broker_name) - 1] == 'b';
}

/* ---- numbers as messages ---- */

void fault_body(uint32_t value, uint8_t out[1024], size_t *size)
{
    *size = sizeof value + value * 37 % 900;
    memset(out, (int)(value % 251), *size);
    memcpy(out, &value, sizeof value);
}

static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err)
{
    struct number *number = arg;
    struct host host;
    (void)err;
    if (++number->answers > 1)
        fail_msg("seed %" PRIu64 ": number %" PRIu32 " was answered twice", number->world->seed,
                 number->value);
    number->status = code == TERN_OK ? result->status : code;
    number->acked = number->status == TERN_OK;
    if (!number->acked)
        return;
    number->set = set_of_name(result->queue.broker_name);
    number->queue_id = result->queue.queue_id;
    number->queue_offset = result->queue_offset;
    assert_int_equal(message_id_parse(result->offset_id, &host, &number->phys_off), TERN_OK);
}

void fault_send_some(struct fault_world *world, uint32_t count)
{
    for (uint32_t i = 0; i < count && world->sent < NUMBERS_MAX; i++) {
        struct number *number = &world->numbers[world->sent];
        struct tern_message *message;
        struct tern_error err;
        uint8_t body[1024];
        size_t size;
        *number = (struct number){.value = world->sent++, .world = world};
        fault_body(number->value, body, &size);
        assert_int_equal(tern_message_create(FAULT_TOPIC, body, size, &message, &err), TERN_OK);
        if (tern_producer_send_async(world->producer, &message, 1, NULL, on_sent, number, &err) !=
            TERN_OK)
            number->answers = 1; /* not accepted: nothing will come */
        tern_message_unref(message);
    }
}

/* Of a topic that is deleted and made again; nothing is promised of it. */
void fault_send_fleeting(struct fault_world *world)
{
    struct tern_error err;
    for (int i = 0; i < 5; i++) {
        struct tern_message *message;
        assert_int_equal(tern_message_create(FAULT_FLEETING, &world->fleeting_life,
                                             sizeof world->fleeting_life, &message, &err),
                         TERN_OK);
        (void)tern_producer_send_oneway(world->producer, message, &err);
        tern_message_unref(message);
    }
}

void fault_new_producer(struct fault_world *world)
{
    struct tern_error err = {.text = ""};
    struct tern_producer_options *o = tern_producer_options_create();
    assert_non_null(o);
    tern_producer_destroy(world->producer);
    tern_producer_options_world(o, &world->cluster.client_env, world->cluster.client_link);
    assert_int_equal(tern_producer_options_namesrv(o, world->namesrv_addr), TERN_OK);
    assert_int_equal(tern_producer_options_group(o, "producers"), TERN_OK);
    assert_int_equal(tern_producer_options_instance(o, "producer"), TERN_OK);
    int64_t timeout_ms = 200 + (int64_t)fault_dice(world, 3000);
    assert_int_equal(tern_producer_options_send_timeout_ms(o, timeout_ms), TERN_OK);
    assert_int_equal(tern_producer_options_retries(o, world->retries), TERN_OK);
    assert_int_equal(tern_producer_create(o, &world->producer, &err), TERN_OK);
    tern_producer_options_destroy(o);
    assert_int_equal(tern_producer_start(world->producer, &err), TERN_OK);
}

/* ---- the group ---- */

/* A number comes as it was sent, and from the place that it was given. */
static void check_delivery(struct fault_world *world, struct number *number,
                           const struct tern_message *message)
{
    unsigned set = set_of_name(tern_message_broker_name(message));
    int32_t queue = tern_message_queue_id(message);
    int64_t offset = tern_message_queue_offset(message);
    if (tern_message_reconsume_times(message) > 0)
        return; /* through the group's retry topic */
    if (!number->delivered) {
        number->delivered = true;
        number->seen_set = set;
        number->seen_queue = queue;
        number->seen_offset = offset;
        if (!world->sets[set].lost && offset < world->order[set][queue])
            fail_msg("seed %" PRIu64 ": number %" PRIu32 " at %u:%d:%" PRId64
                     " comes the first time after %" PRId64,
                     world->seed, number->value, set, queue, offset, world->order[set][queue]);
        world->order[set][queue] = offset;
    }
    bool moved =
        number->seen_set != set || number->seen_queue != queue || number->seen_offset != offset;
    if (world->retries == 0 && moved)
        fail_msg("seed %" PRIu64 ": number %" PRIu32 " came from %u:%d:%" PRId64
                 " and %u:%d:%" PRId64,
                 world->seed, number->value, number->seen_set, number->seen_queue,
                 number->seen_offset, set, queue, offset);
    if (world->retries == 0 && number->acked &&
        (number->set != set || number->queue_id != queue || number->queue_offset != offset))
        fail_msg("seed %" PRIu64 ": number %" PRIu32 " was acknowledged at %u:%d:%" PRId64
                 " and came from %u:%d:%" PRId64,
                 world->seed, number->value, number->set, number->queue_id, number->queue_offset,
                 set, queue, offset);
}

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct fault_world *world = arg;
    bool fails = fault_dice(world, 100) < world->fail_percent;
    for (size_t i = 0; i < count; i++) {
        size_t size, sent_size;
        uint32_t value;
        uint8_t sent_body[1024];
        const void *body = tern_message_body(messages[i], &size);
        assert_true(size >= sizeof value);
        memcpy(&value, body, sizeof value);
        if (strcmp(tern_message_topic(messages[i]), FAULT_FLEETING) == 0)
            continue;
        assert_true(value < world->sent);
        fault_body(value, sent_body, &sent_size);
        if (size != sent_size || memcmp(body, sent_body, size) != 0)
            fail_msg("seed %" PRIu64 ": number %" PRIu32 " came altered", world->seed, value);
        check_delivery(world, &world->numbers[value], messages[i]);
        world->numbers[value].finished |= !fails;
        world->numbers[value].failed |= fails;
    }
    return fails ? TERN_RECONSUME_LATER : TERN_CONSUME_SUCCESS;
}

static struct tern_consumer_options *consumer_options(struct fault_world *world, const char *group,
                                                      const char *instance)
{
    struct tern_consumer_options *o = tern_consumer_options_create();
    assert_non_null(o);
    tern_consumer_options_world(o, &world->cluster.client_env, world->cluster.client_link);
    assert_int_equal(tern_consumer_options_namesrv(o, world->namesrv_addr), TERN_OK);
    assert_int_equal(tern_consumer_options_group(o, group), TERN_OK);
    assert_int_equal(tern_consumer_options_instance(o, instance), TERN_OK);
    assert_int_equal(tern_consumer_options_from(o, TERN_FROM_FIRST, 0), TERN_OK);
    assert_int_equal(tern_consumer_options_threads(o, 1), TERN_OK);
    return o;
}

void fault_join(struct fault_world *world)
{
    static unsigned members;
    char instance[32];
    struct tern_error err = {.text = ""};
    struct tern_push_consumer *reader;
    size_t i = fault_dice(world, READERS_MAX);
    if (world->readers[i])
        return;
    snprintf(instance, sizeof instance, "reader%u", members++);
    struct tern_consumer_options *o = consumer_options(world, "readers", instance);
    assert_int_equal(tern_push_consumer_create(o, &reader, &err), TERN_OK);
    tern_consumer_options_destroy(o);
    assert_int_equal(tern_push_consumer_subscribe(reader, FAULT_TOPIC, "*", &err), TERN_OK);
    assert_int_equal(tern_push_consumer_subscribe(reader, FAULT_FLEETING, "*", &err), TERN_OK);
    assert_int_equal(tern_push_consumer_listener(reader, on_messages, world), TERN_OK);
    assert_int_equal(tern_push_consumer_start(reader, &err), TERN_OK);
    world->readers[i] = reader;
}

void fault_leave(struct fault_world *world)
{
    size_t i = fault_dice(world, READERS_MAX);
    tern_push_consumer_destroy(world->readers[i]);
    world->readers[i] = NULL;
}

/* ---- promised progress ---- */

void fault_new_committer(struct fault_world *world)
{
    struct tern_error err = {.text = ""};
    struct tern_consumer_options *o = consumer_options(world, "committers", "committer");
    assert_int_equal(tern_pull_consumer_create(o, &world->committer, &err), TERN_OK);
    tern_consumer_options_destroy(o);
    assert_int_equal(tern_pull_consumer_start(world->committer, &err), TERN_OK);
}

/* Whether every member of the set is there and hears its master. */
static bool all_there(struct fault_world *world, const struct fault_set *set)
{
    for (unsigned i = 0; i < world->broker_count; i++) {
        int wanted =
            i == set->master ? TERN__WIRE__HA_STATE__HA_OPEN : TERN__WIRE__HA_STATE__HA_FOLLOWING;
        if ((set->members & 1u << i) && fault_state(&world->brokers[i]) != wanted)
            return false;
    }
    return true;
}

void fault_commit(struct fault_world *world)
{
    struct fault_set *set = &world->sets[fault_dice(world, world->set_count)];
    struct fault_broker *known = &world->brokers[fault_dice(world, world->broker_count)];
    struct tern_queue queue = {.queue_id = (int32_t)fault_dice(world, QUEUES)};
    struct promise *promise = &set->promises[queue.queue_id];
    struct tern_error err = {.text = ""};
    int64_t min, max, offset = promise->offset < 0 ? 0 : promise->offset;
    if (!fault_runs(known) || !(set->members & 1u << known->index))
        return;
    store_queue_range(known->node->broker->store, FAULT_TOPIC, queue.queue_id, &min, &max);
    snprintf(queue.topic, sizeof queue.topic, "%s", FAULT_TOPIC);
    snprintf(queue.broker_name, sizeof queue.broker_name, "%s", set->name);
    if (max <= offset)
        return;
    offset += 1 + (int64_t)fault_dice(world, (uint64_t)(max - offset));
    bool before = all_there(world, set);
    if (tern_pull_consumer_commit(world->committer, &queue, offset, &err) != TERN_OK)
        return;
    bool strong = before && all_there(world, set);
    fault_trace(world, "promised set=%s queue=%d offset=%" PRId64, set->name, queue.queue_id,
                offset);
    *promise = (struct promise){.offset = offset, .weak = !strong};
}

/* ---- an operator's requests ---- */

static enum tern_code call(struct fault_world *world, const struct fault_broker *broker,
                           TernRequest *request)
{
    struct rpc_client_options options = {.max_message_bytes = 1 << 20,
                                         .connect_wait_ms = 1000,
                                         .reconnect_min_ms = 100,
                                         .reconnect_max_ms = 1000,
                                         .client_id = ""};
    struct tern_error err = {.text = ""};
    struct rpc_client *client;
    struct rpc_peer *peer;
    assert_int_equal(rpc_client_create(&world->cluster.client_env, world->cluster.client_link,
                                       &options, &client),
                     TERN_OK);
    assert_int_equal(rpc_peer_get(client, broker->node->address, &peer, &err), TERN_OK);
    enum tern_code code = rpc_call_wait(peer, request, NULL, 0, 5000, NULL, &err);
    rpc_peer_unref(peer);
    rpc_client_destroy(client);
    return code;
}

void fault_put_topic(struct fault_world *world, const struct fault_broker *broker,
                     const char *topic)
{
    Tern__Wire__TopicConfig config = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__UpdateTopicRequest body = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    config.name = frame_bytes(topic, strlen(topic));
    config.read_queues = config.write_queues = QUEUES;
    config.perm = 6;
    body.topic = &config;
    request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_TOPIC;
    request.update_topic = &body;
    (void)call(world, broker, &request);
}

void fault_delete_topic(struct fault_world *world, const struct fault_broker *broker,
                        const char *topic)
{
    Tern__Wire__DeleteTopicRequest body = TERN__WIRE__DELETE_TOPIC_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.topic = frame_bytes(topic, strlen(topic));
    request.body_case = TERN__WIRE__REQUEST__BODY_DELETE_TOPIC;
    request.delete_topic = &body;
    (void)call(world, broker, &request);
}

enum tern_code fault_force_open(struct fault_world *world, const struct fault_broker *broker)
{
    Tern__Wire__ForceOpenRequest body = TERN__WIRE__FORCE_OPEN_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_FORCE_OPEN;
    request.force_open = &body;
    return call(world, broker, &request);
}

void fault_rejoin(struct fault_world *world, const struct fault_broker *broker)
{
    Tern__Wire__RejoinRequest body = TERN__WIRE__REJOIN_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_REJOIN;
    request.rejoin = &body;
    (void)call(world, broker, &request);
}
