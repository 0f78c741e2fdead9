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
#include "tests/cluster/set_world.h"

/* ---- tests ---- */

/* H-1, H-2: the slave has the bytes, the queues, the topics and the progress. */
static void slave_follows_its_master(void **state)
{
    (void)state;
    static struct world world;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        world_begin(&world, seed, seed % 2 ? ROLE_SYNC_MASTER : ROLE_ASYNC_MASTER);
        world_send_some(&world, 300);
        assert_true(world_await(&world, world_all_received, 5000));
        assert_true(world_await(&world, world_in_step, 5000));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(8000)); /* a commit round */
        struct topic_config topic;
        assert_true(
            topics_find(world.slave->broker->topics, WORLD_TOPIC, strlen(WORLD_TOPIC), &topic));
        assert_int_equal(topic.read_queues, WORLD_QUEUES);
        for (int32_t queue = 0; queue < WORLD_QUEUES; queue++) {
            int64_t min, max, slave_min, slave_max, offset = -1, slave_offset = -1;
            struct offset_version version;
            store_queue_range(world.master->broker->store, WORLD_TOPIC, queue, &min, &max);
            store_queue_range(world.slave->broker->store, WORLD_TOPIC, queue, &slave_min,
                              &slave_max);
            assert_int_equal(max, slave_max);
            assert_true(offsets_query(world.master->broker->offsets, WORLD_GROUP, WORLD_TOPIC,
                                      queue, &offset, &version));
            assert_int_equal(offset, max);
            assert_true(offsets_query(world.slave->broker->offsets, WORLD_GROUP, WORLD_TOPIC, queue,
                                      &slave_offset, &version));
            assert_int_equal(slave_offset, max);
        }
        assert_int_equal(world.inbox.count, 300);
        world_end(&world);
    }
}

/* H-4, H-5: killed master, consumers go on at the slave, progress is kept, the master comes back.
 */
static void killed_master_costs_nothing(void **state)
{
    (void)state;
    static struct world world;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world_begin(&world, seed, ROLE_SYNC_MASTER);
        world_send_some(&world, 200);
        node_kill(world.master);
        assert_true(world_await(&world, world_all_received, 3000));
        uint32_t before = world.inbox.count;
        sim_run_for(world.cluster.sim.sched, ms_to_ns(12000)); /* commits at the slave */
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 35000));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(3000));
        world_send_some(&world, 200);
        assert_true(world_await(&world, world_all_received, 5000));
        if (world.inbox.count != before + 200)
            fail_msg("seed %" PRIu64 ": %" PRIu32 " messages came, %" PRIu32 " were expected", seed,
                     world.inbox.count, before + 200);
        assert_true(world_await(&world, world_in_step, 5000));
        world_end(&world);
    }
}

/* A SYNC_MASTER that loses its power takes back from its slave what it had acknowledged. */
static void master_takes_its_tail_back(void **state)
{
    (void)state;
    static struct world world;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        world_begin(&world, seed, ROLE_SYNC_MASTER);
        world.cluster.nodes[0].config.flush_type = FLUSH_ASYNC;
        node_stop(world.master);
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 35000));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(3000));
        world_send_some(&world, 200);
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(1000));
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 35000));
        sim_run_for(world.cluster.sim.sched, ms_to_ns(3000));
        world_send_some(&world, 50);
        assert_true(world_await(&world, world_all_received, 20000));
        world_end(&world);
    }
}

/* Without a slave in sync sends say so, and go on. */
static void dead_slave_leaves_the_master_alone(void **state)
{
    (void)state;
    static struct world world;
    world_begin(&world, 3, ROLE_SYNC_MASTER);
    world_send_some(&world, 20);
    node_kill(world.slave);
    sim_run_for(world.cluster.sim.sched, ms_to_ns(1000));
    assert_int_equal(world_send(&world), TERN_SLAVE_NOT_AVAILABLE);
    assert_true(world_await(&world, world_all_received, 5000));
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_send_some(&world, 20);
    assert_true(world_await(&world, world_all_received, 5000));
    world_end(&world);
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
