/*
 * A broker set on virtual time: a master, its slave, producers and consumers, and the one story
 * that must always go well: replicate, fail over, come back. SIM_LOG=1 prints the log.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "broker/broker_internal.h"
#include "broker/ha/ha.h"
#include "tests/cluster/sim_cluster.h"

enum { NUMBERS_MAX = 4096, QUEUES = 4 };

struct inbox {
    uint32_t times[NUMBERS_MAX];
    uint32_t count, distinct;
};

/* A set of two with a topic, and what was sent and received. */
struct world {
    struct sim_cluster cluster;
    struct sim_node *master, *slave;
    struct tern_producer *producer;
    struct tern_push_consumer *consumer;
    struct inbox inbox;
    bool acked[NUMBERS_MAX];
    uint32_t sent, acked_count;
};

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct inbox *inbox = &((struct world *)arg)->inbox;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        uint32_t number;
        const void *body = tern_message_body(messages[i], &size);
        assert_int_equal(size, sizeof number);
        memcpy(&number, body, sizeof number);
        assert_true(number < NUMBERS_MAX);
        inbox->distinct += inbox->times[number]++ == 0;
        inbox->count++;
    }
    return TERN_CONSUME_SUCCESS;
}

static enum tern_code send_one(struct world *world)
{
    struct tern_message *message;
    struct tern_send_result result;
    struct tern_error err;
    uint32_t number = world->sent++;
    assert_true(number < NUMBERS_MAX);
    assert_int_equal(tern_message_create("Numbers", &number, sizeof number, &message, &err),
                     TERN_OK);
    enum tern_code code = tern_producer_send(world->producer, message, &result, &err);
    tern_message_unref(message);
    code = code == TERN_OK ? result.status : code;
    world->acked[number] = code == TERN_OK;
    world->acked_count += world->acked[number];
    return code;
}

static void send_some(struct world *world, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(send_one(world), TERN_OK);
}

static bool all_received(void *arg)
{
    const struct world *world = arg;
    for (uint32_t i = 0; i < world->sent; i++)
        if (world->acked[i] && !world->inbox.times[i])
            return false;
    return true;
}

static bool in_step(void *arg)
{
    struct world *world = arg;
    struct store_positions master, slave;
    store_positions(world->master->broker->store, &master);
    store_positions(world->slave->broker->store, &slave);
    return ha_state(world->master->broker->ha) == TERN__WIRE__HA_STATE__HA_OPEN &&
           ha_state(world->slave->broker->ha) == TERN__WIRE__HA_STATE__HA_FOLLOWING &&
           master.whole == slave.whole && slave.dispatched == slave.whole;
}

static bool await(struct world *world, bool (*done)(void *arg), int64_t patience_ms)
{
    int64_t limit = clock_mono_ns(world->cluster.sim.env.clock) + ms_to_ns(patience_ms);
    return sim_run_until_true(world->cluster.sim.sched, done, world, limit);
}

static bool in_sync(void *arg)
{
    struct world *world = arg;
    struct store_positions at;
    store_positions(world->master->broker->store, &at);
    return in_step(world) && ha_pick_slave(world->master->broker->ha, 1, at.whole) == 1;
}

static void begin(struct world *world, uint64_t seed, int32_t role)
{
    memset(world, 0, sizeof *world);
    cluster_init(&world->cluster, seed);
    world->master = &world->cluster.nodes[0];
    world->slave = cluster_add_node(&world->cluster, "broker-a", 1);
    world->master->config.role = role;
    node_start(world->master);
    node_start(world->slave);
    assert_true(await(world, in_sync, 5000));
    cluster_create_topic(&world->cluster, "Numbers", QUEUES);
    world->producer = cluster_producer(&world->cluster, 3000, 2);
    world->consumer =
        cluster_push_consumer(&world->cluster, "readers", "Numbers", "*", on_messages, world);
}

static void end(struct world *world)
{
    tern_push_consumer_destroy(world->consumer);
    tern_producer_destroy(world->producer);
    cluster_fini(&world->cluster);
}

/* ---- tests ---- */

/* H-1, H-2: the slave has the bytes, the queues, the topics and the progress. */
static void slave_follows_its_master(void **state)
{
    (void)state;
    static struct world world;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        begin(&world, seed, seed % 2 ? ROLE_SYNC_MASTER : ROLE_ASYNC_MASTER);
        send_some(&world, 300);
        assert_true(await(&world, all_received, 5000));
        assert_true(await(&world, in_step, 5000));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(8000)); /* a commit round */
        struct topic_config topic;
        assert_true(topics_find(world.slave->broker->topics, "Numbers", 7, &topic));
        assert_int_equal(topic.read_queues, QUEUES);
        for (int32_t queue = 0; queue < QUEUES; queue++) {
            int64_t min, max, slave_min, slave_max, offset = -1, slave_offset = -1;
            struct offset_version version;
            store_queue_range(world.master->broker->store, "Numbers", queue, &min, &max);
            store_queue_range(world.slave->broker->store, "Numbers", queue, &slave_min, &slave_max);
            assert_int_equal(max, slave_max);
            assert_true(offsets_query(world.master->broker->offsets, "readers", "Numbers", queue,
                                      &offset, &version));
            assert_int_equal(offset, max);
            assert_true(offsets_query(world.slave->broker->offsets, "readers", "Numbers", queue,
                                      &slave_offset, &version));
            assert_int_equal(slave_offset, max);
        }
        assert_int_equal(world.inbox.count, 300);
        end(&world);
    }
}

/* H-4, H-5: killed master, consumers go on at the slave, progress is kept, the master comes back.
 */
static void killed_master_costs_nothing(void **state)
{
    (void)state;
    static struct world world;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(&world, seed, ROLE_SYNC_MASTER);
        send_some(&world, 200);
        node_kill(world.master);
        assert_true(await(&world, all_received, 3000));
        uint32_t before = world.inbox.count;
        sim_run_for(world.cluster.sim.sched, ms_to_ns(12000)); /* commits at the slave */
        node_start(world.master);
        assert_true(await(&world, in_sync, 35000));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(3000));
        send_some(&world, 200);
        assert_true(await(&world, all_received, 5000));
        if (world.inbox.count != before + 200)
            fail_msg("seed %" PRIu64 ": %" PRIu32 " messages came, %" PRIu32 " were expected", seed,
                     world.inbox.count, before + 200);
        assert_true(await(&world, in_step, 5000));
        end(&world);
    }
}

/* A SYNC_MASTER that loses its power takes back from its slave what it had acknowledged. */
static void master_takes_its_tail_back(void **state)
{
    (void)state;
    static struct world world;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(&world, seed, ROLE_SYNC_MASTER);
        world.cluster.nodes[0].config.flush_type = FLUSH_ASYNC;
        node_stop(world.master);
        node_start(world.master);
        assert_true(await(&world, in_sync, 35000));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(3000));
        send_some(&world, 200);
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(1000));
        node_start(world.master);
        assert_true(await(&world, in_sync, 35000));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(3000));
        send_some(&world, 50);
        assert_true(await(&world, all_received, 20000));
        end(&world);
    }
}

/* Without a slave in sync sends say so, and go on. */
static void dead_slave_leaves_the_master_alone(void **state)
{
    (void)state;
    static struct world world;
    begin(&world, 3, ROLE_SYNC_MASTER);
    send_some(&world, 20);
    node_kill(world.slave);
    sim_run_for(world.cluster.sim.sched, ms_to_ns(1000));
    assert_int_equal(send_one(&world), TERN_SLAVE_NOT_AVAILABLE);
    assert_true(await(&world, all_received, 5000));
    node_start(world.slave);
    assert_true(await(&world, in_sync, 20000));
    send_some(&world, 20);
    assert_true(await(&world, all_received, 5000));
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slave_follows_its_master),
        cmocka_unit_test(killed_master_costs_nothing),
        cmocka_unit_test(master_takes_its_tail_back),
        cmocka_unit_test(dead_slave_leaves_the_master_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
