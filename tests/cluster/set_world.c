/* The set's life, sends, conditions and checks. */
#include "tests/cluster/set_world.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

enum { BIG_BYTES = 60 << 10, START_MS = 5000, PUT_MS = 3000, RECORD_MAX = 80 << 10 };

/* ---- life ---- */

void world_prepare(struct world *world, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    for (uint32_t i = 0; i < NUMBERS_MAX; i++)
        world->places[i].phys_off = -1;
    cluster_init(&world->cluster, seed);
    world->master = &world->cluster.nodes[0];
    world->slave = cluster_add_node(&world->cluster, "broker-a", 1);
}

void world_add_second(struct world *world)
{
    world->second = cluster_add_node(&world->cluster, "broker-a", 2);
}

void world_start(struct world *world)
{
    for (size_t i = 0; i < world->cluster.node_count; i++)
        node_start(&world->cluster.nodes[i]);
    assert_true(world_await(world, world_in_sync, START_MS));
    cluster_create_topic(&world->cluster, WORLD_TOPIC, WORLD_QUEUES);
}

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct inbox *inbox = &((struct world *)arg)->inbox;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        uint32_t number;
        const void *body = tern_message_body(messages[i], &size);
        assert_true(size >= sizeof number);
        memcpy(&number, body, sizeof number);
        assert_true(number < NUMBERS_MAX);
        inbox->distinct += inbox->times[number]++ == 0;
        inbox->count++;
    }
    return TERN_CONSUME_SUCCESS;
}

void world_consume(struct world *world)
{
    world->consumer =
        cluster_push_consumer(&world->cluster, WORLD_GROUP, WORLD_TOPIC, "*", on_messages, world);
}

void world_begin(struct world *world, uint64_t seed, int32_t role)
{
    world_prepare(world, seed);
    world->master->config.role = role;
    world_start(world);
    world_consume(world);
}

void world_end(struct world *world)
{
    tern_push_consumer_destroy(world->consumer);
    tern_producer_destroy(world->producer);
    cluster_fini(&world->cluster);
}

void world_move(struct sim_node *node, unsigned last)
{
    snprintf(node->host, sizeof node->host, "10.0.0.%u", last);
    snprintf(node->address, sizeof node->address, "10.0.0.%u:10911", last);
    snprintf(node->config.listen_addr, sizeof node->config.listen_addr, "10.0.0.%u", last);
}

/* ---- time and conditions ---- */

bool world_await(struct world *world, bool (*done)(void *arg), int64_t patience_ms)
{
    int64_t limit = clock_mono_ns(world->cluster.sim.env.clock) + ms_to_ns(patience_ms);
    return sim_run_until_true(world->cluster.sim.sched, done, world, limit);
}

void world_run_ms(struct world *world, int64_t duration_ms)
{
    sim_run_for(world->cluster.sim.sched, ms_to_ns(duration_ms));
}

bool world_all_received(void *arg)
{
    const struct world *world = arg;
    for (uint32_t i = 0; i < world->sent; i++)
        if (world->acked[i] && !world->inbox.times[i])
            return false;
    return true;
}

int world_state(const struct sim_node *node)
{
    return ha_state(node->broker->ha);
}

bool world_is_open(void *arg)
{
    const struct world *world = arg;
    return world_state(world->master) == TERN__WIRE__HA_STATE__HA_OPEN;
}

struct store_positions world_at(const struct sim_node *node)
{
    struct store_positions at;
    store_positions(node->broker->store, &at);
    return at;
}

bool world_in_step(void *arg)
{
    struct world *world = arg;
    if (!world->master->broker || !world_is_open(world))
        return false;
    int64_t end = world_at(world->master).whole;
    for (size_t i = 0; i < world->cluster.node_count; i++) {
        const struct sim_node *node = &world->cluster.nodes[i];
        if (node == world->master || !node->broker)
            continue;
        struct store_positions at = world_at(node);
        if (world_state(node) != TERN__WIRE__HA_STATE__HA_FOLLOWING || at.whole != end ||
            at.dispatched != end)
            return false;
    }
    return true;
}

uint32_t world_insync(const struct world *world)
{
    struct ha *ha = world->master->broker->ha;
    return source_insync_size(ha->source);
}

bool world_in_sync(void *arg)
{
    struct world *world = arg;
    uint32_t slaves = 0;
    if (!world_in_step(world))
        return false;
    int64_t end = world_at(world->master).whole;
    for (size_t i = 0; i < world->cluster.node_count; i++) {
        const struct sim_node *node = &world->cluster.nodes[i];
        if (node == world->master || !node->broker)
            continue;
        slaves++;
        if (node->config.slave_read_enable &&
            ha_pick_slave(world->master->broker->ha, node->config.broker_id, end) !=
                node->config.broker_id)
            return false;
    }
    return world_insync(world) == slaves;
}

int64_t world_queue_end(const struct sim_node *node, int32_t queue_id)
{
    int64_t min, max;
    store_queue_range(node->broker->store, WORLD_TOPIC, queue_id, &min, &max);
    return max;
}

uint64_t world_last_epoch(const struct sim_node *node)
{
    struct ha *ha = node->broker->ha;
    struct ha_epoch epoch;
    return epochs_last(ha->epochs, &epoch) ? epoch.number : 0;
}

static bool count_name(void *arg, const char *name, bool is_dir)
{
    (void)name;
    (void)is_dir;
    ++*(unsigned *)arg;
    return true;
}

unsigned world_files(const struct sim_node *node, const char *dir)
{
    unsigned count = 0;
    enum tern_code code = fs_list(node->env.fs, dir, count_name, &count);
    return code == TERN_OK ? count : 0;
}

/* ---- sending ---- */

/* A number's body: itself and a text by which it is found in a record. */
static void fill_body(uint8_t body[WORLD_MARK_BYTES], uint32_t number)
{
    memcpy(body, &number, sizeof number);
    snprintf((char *)body + sizeof number, WORLD_MARK_BYTES - sizeof number, "n%010" PRIu32,
             number);
}

static uint32_t next_number(struct world *world)
{
    assert_true(world->sent < NUMBERS_MAX);
    return world->sent++;
}

static void note(struct world *world, uint32_t number, enum tern_code code)
{
    world->acked[number] = code == TERN_OK;
    world->acked_count += world->acked[number];
}

enum tern_code world_send(struct world *world)
{
    struct tern_message *message;
    struct tern_send_result result;
    struct tern_error err;
    uint8_t body[WORLD_MARK_BYTES];
    uint32_t number = next_number(world);
    if (!world->producer)
        world->producer = cluster_producer(&world->cluster, PUT_MS, 2);
    fill_body(body, number);
    assert_int_equal(tern_message_create(WORLD_TOPIC, body, sizeof body, &message, &err), TERN_OK);
    enum tern_code code = tern_producer_send(world->producer, message, &result, &err);
    tern_message_unref(message);
    code = code == TERN_OK ? result.status : code;
    note(world, number, code);
    return code;
}

void world_send_some(struct world *world, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(world_send(world), TERN_OK);
}

static TernRequest *fill_put(TernRequest *request, Tern__Wire__SendRequest *send, int32_t queue_id)
{
    tern__wire__send_request__init(send);
    tern__wire__request__init(request);
    send->producer_group = frame_bytes("putters", 7);
    send->topic = frame_bytes(WORLD_TOPIC, strlen(WORLD_TOPIC));
    send->queue_id = queue_id;
    request->body_case = TERN__WIRE__REQUEST__BODY_SEND;
    request->send = send;
    return request;
}

enum tern_code world_put_to(struct world *world, struct sim_node *node, int32_t queue_id,
                            size_t size_bytes, int64_t timeout_ms)
{
    static uint8_t body[BIG_BYTES];
    Tern__Wire__SendRequest send;
    TernRequest request;
    struct rpc_call *call;
    uint32_t number = next_number(world);

    assert_true(size_bytes >= WORLD_MARK_BYTES && size_bytes <= sizeof body);
    fill_body(body, number);
    enum tern_code code = world_ask(world, node, "putter", fill_put(&request, &send, queue_id),
                                    body, size_bytes, timeout_ms, &call);
    if (call && call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_SEND) {
        const Tern__Wire__SendResponse *answer = call->response->send;
        world->places[number] =
            (struct place){answer->queue_id, answer->queue_offset, answer->physical_offset};
    }
    world_answer_free(call);
    note(world, number, code);
    return code;
}

void world_put_start(struct world *world, struct sim_node *node, int32_t queue_id,
                     int64_t timeout_ms, struct world_call *out)
{
    uint8_t body[WORLD_MARK_BYTES];
    Tern__Wire__SendRequest send;
    TernRequest request;
    fill_body(body, next_number(world));
    world_ask_start(world, node, fill_put(&request, &send, queue_id), body, sizeof body, timeout_ms,
                    out);
}

enum tern_code world_put(struct world *world, int32_t queue_id)
{
    return world_put_to(world, world->master, queue_id, WORLD_MARK_BYTES, PUT_MS);
}

void world_put_some(struct world *world, int32_t queue_id, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(world_put(world, queue_id), TERN_OK);
}

void world_put_segments(struct world *world, uint32_t segments)
{
    int64_t goal = world_at(world->master).whole + (int64_t)segments * (1 << 20);
    while (world_at(world->master).whole < goal) {
        enum tern_code code = world_put_to(world, world->master, 0, BIG_BYTES, PUT_MS);
        assert_true(code == TERN_OK || code == TERN_SLAVE_NOT_AVAILABLE);
    }
}

/* ---- what must hold ---- */

static uint8_t *reserve_record(void *arg, size_t size)
{
    assert_true(size <= RECORD_MAX);
    return arg;
}

bool world_holds(const struct world *world, const struct sim_node *node, uint32_t number)
{
    static uint8_t record[RECORD_MAX];
    uint8_t body[WORLD_MARK_BYTES];
    size_t size;
    int64_t phys_off = world->places[number].phys_off;
    if (phys_off < 0 ||
        store_get_by_phys(node->broker->store, phys_off, reserve_record, record, &size) != TERN_OK)
        return false;
    fill_body(body, number);
    for (size_t i = 0; i + sizeof body <= size; i++)
        if (memcmp(record + i, body, sizeof body) == 0)
            return true;
    return false;
}

void world_check_holds(const struct world *world, const struct sim_node *node, uint32_t upto)
{
    for (uint32_t i = 0; i < upto; i++)
        if (world->acked[i] && world->places[i].phys_off >= 0 && !world_holds(world, node, i))
            fail_msg("number %" PRIu32 " was acknowledged and is not at %s (%" PRId64 ")", i,
                     node->address, world->places[i].phys_off);
}

/* Both say the same of this byte; returns how far at least that goes. */
static int64_t check_epochs(const struct sim_node *a, const struct sim_node *b, int64_t phys_off)
{
    struct ha_epoch of_a, of_b;
    int64_t end_a, end_b;
    assert_true(epochs_find(((struct ha *)a->broker->ha)->epochs, phys_off, &of_a, &end_a));
    assert_true(epochs_find(((struct ha *)b->broker->ha)->epochs, phys_off, &of_b, &end_b));
    assert_int_equal(of_a.number, of_b.number);
    assert_true(of_a.id == of_b.id && of_a.start == of_b.start);
    return end_a < end_b ? end_a : end_b;
}

void world_check_equal(const struct sim_node *a, const struct sim_node *b)
{
    static uint8_t bytes_a[4096], bytes_b[4096];
    struct store_positions of_a = world_at(a), of_b = world_at(b);
    int64_t at = of_a.min > of_b.min ? of_a.min : of_b.min;
    assert_int_equal(of_a.whole, of_b.whole);
    while (at < of_a.whole) {
        size_t got_a, got_b;
        assert_int_equal(
            store_read_bytes(a->broker->store, at, bytes_a, sizeof bytes_a, false, &got_a),
            TERN_OK);
        assert_int_equal(store_read_bytes(b->broker->store, at, bytes_b, got_a, false, &got_b),
                         TERN_OK);
        assert_int_equal(got_a, got_b);
        assert_memory_equal(bytes_a, bytes_b, got_a);
        int64_t end = check_epochs(a, b, at), next = at + (int64_t)got_a;
        at = next < end ? next : end;
    }
}

void world_check_readable(const struct sim_node *node, int32_t queue_id)
{
    static uint8_t records[RECORD_MAX];
    int64_t min, max;
    store_queue_range(node->broker->store, WORLD_TOPIC, queue_id, &min, &max);
    for (int64_t at = min; at < max;) {
        struct store_get get = {.topic = WORLD_TOPIC,
                                .queue_id = queue_id,
                                .offset = at,
                                .max_count = 1,
                                .reserve = reserve_record,
                                .arg = records};
        struct store_get_result got;
        assert_int_equal(store_get(node->broker->store, &get, &got), TERN_OK);
        assert_int_equal(got.status, GET_FOUND);
        assert_int_equal(got.next_off, ++at);
    }
}
