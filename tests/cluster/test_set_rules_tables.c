/*
 * The rules of replication about the tables beside the log: topics, groups and what they leave
 * behind, one test each. SIM_LOG=1 prints the log.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cluster/set_world.h"

static struct world world;

static const struct offset_version NO_VERSION = {0, 0};

static void begin(uint64_t seed, int32_t role)
{
    world_prepare(&world, seed);
    world.master->config.role = role;
    world_start(&world);
}

struct held {
    enum tern_code code;
    int64_t offset;
};

static struct held held_at(struct sim_node *node, int32_t queue_id)
{
    struct held held;
    struct offset_version version;
    held.code = world_query(&world, node, WORLD_GROUP, queue_id, &held.offset, &version);
    return held;
}

static void restart_master(void)
{
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 40000));
}

/* MD-05. Deleting a topic raises versions (a tombstone): after re-creation the slave has the new
 * life only, and no old offset or commit comes back. */
static void deleted_topic_leaves_nothing_behind(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        begin(seed, ROLE_SYNC_MASTER);
        world_put_some(&world, 0, 100);
        assert_int_equal(world_commit(&world, world.master, WORLD_GROUP, 0, 100, NO_VERSION),
                         TERN_OK);
        assert_true(world_await(&world, world_in_step, 5000));
        if (seed % 2) /* it hears of both at once, later */
            sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
        assert_int_equal(world_delete_topic(&world, WORLD_TOPIC), TERN_OK);
        assert_int_equal(world_create_topic(&world, WORLD_TOPIC), TERN_OK);
        for (int i = 0; i < 10; i++)
            (void)world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 100);
        sim_net_heal_all(world.cluster.net);
        assert_true(world_await(&world, world_in_sync, 20000));
        assert_int_equal(world_commit(&world, world.master, WORLD_GROUP, 0, 10, NO_VERSION),
                         TERN_OFFSET_VERSION_OLD);
        node_kill(world.master);
        int64_t min, max;
        store_queue_range(world.slave->broker->store, WORLD_TOPIC, 0, &min, &max);
        assert_int_equal(min, 0);
        assert_int_equal(max, 10);
        world_check_readable(world.slave, 0);
        assert_int_equal(held_at(world.slave, 0).code, TERN_PROGRESS_UNKNOWN);
        assert_int_not_equal(world_commit(&world, world.slave, WORLD_GROUP, 0, 100, NO_VERSION),
                             TERN_OK);
        node_power_off(world.slave, (enum sim_torn)(seed % 4));
        node_start(world.slave);
        store_queue_range(world.slave->broker->store, WORLD_TOPIC, 0, &min, &max);
        assert_int_equal(max, 10);
        restart_master();
        assert_int_equal(world_queue_end(world.master, 0), 10);
        assert_int_equal(held_at(world.master, 0).code, TERN_QUERY_NOT_FOUND);
        world_end(&world);
    }
}

/* MD-01. The slave's tables change as a whole: a topic is never missing for a moment. */
static void slaves_tables_are_replaced_as_a_whole(void **state)
{
    (void)state;
    char name[32];
    begin(10, ROLE_SYNC_MASTER);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "Topic%d", i);
        assert_int_equal(world_create_topic(&world, name), TERN_OK);
        for (int step = 0; step < 40; step++) {
            assert_true(world_has_topic(world.slave, WORLD_TOPIC));
            (void)sim_run_one(world.cluster.sim.sched);
        }
    }
    world_run_ms(&world, 1000);
    node_kill(world.master);
    node_power_off(world.slave, SIM_TORN_UNORDERED);
    node_start(world.slave);
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "Topic%d", i);
        assert_true(world_has_topic(world.slave, name));
    }
    world_end(&world);
}

/* MD-04. What the slave took is durable: alone after the loss of both it has topics, groups,
 * progress and messages. */
static void slave_started_alone_has_the_tables(void **state)
{
    (void)state;
    begin(11, ROLE_SYNC_MASTER);
    world_consume(&world);
    world_put_some(&world, 0, 20);
    assert_true(world_await(&world, world_all_received, 5000));
    world_run_ms(&world, 12000);
    node_power_off(world.slave, SIM_TORN_NONE);
    node_kill(world.master);
    node_start(world.slave);
    struct group_config group;
    assert_true(world_has_topic(world.slave, WORLD_TOPIC));
    assert_true(groups_find(world.slave->broker->groups, WORLD_GROUP, strlen(WORLD_GROUP), &group));
    assert_int_equal(held_at(world.slave, 0).offset, 20);
    assert_int_equal(world_pull(&world, world.slave, 0, 0, NO_VERSION).count, 20);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deleted_topic_leaves_nothing_behind),
        cmocka_unit_test(slaves_tables_are_replaced_as_a_whole),
        cmocka_unit_test(slave_started_alone_has_the_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
