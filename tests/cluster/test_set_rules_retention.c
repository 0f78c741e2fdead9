/*
 * The rules of replication about members that were away longer than the retention, and fresh ones,
 * one test each. SIM_LOG=1 prints the log.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/cluster/set_world.h"

static struct world world;

static bool was_reset(void *arg)
{
    return sim_log_count(&((struct world *)arg)->cluster.sim, "store_reset") > 0;
}

static void check_begins_as(struct sim_node *receiver, struct sim_node *source)
{
    int64_t min, max, source_min, source_max;
    store_queue_range(receiver->broker->store, WORLD_TOPIC, 0, &min, &max);
    store_queue_range(source->broker->store, WORLD_TOPIC, 0, &source_min, &source_max);
    assert_true(source_min > 0);
    assert_int_equal(min, source_min);
    assert_int_equal(max, source_max);
}

/* A slave away longer than the retention saves its store aside and starts from
 * the master's first segment, with queue minimums from there, and says so. */
static void slave_away_longer_than_the_retention_begins_afresh(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        world_prepare(&world, seed);
        world.master->config.role = ROLE_SYNC_MASTER;
        world.master->config.retention_ms = 3600000;
        world_start(&world);
        world_put_segments(&world, 1);
        node_kill(world.slave);
        world_put_segments(&world, 4);
        world_run_ms(&world, 7200000);
        world_put_segments(&world, 2);
        assert_true(store_expire_now(world.master->broker->store) > 1);
        node_start(world.slave);
        assert_true(world_await(&world, was_reset, 20000));
        char why[256];
        assert_false(ha_readable(world.slave->broker->ha, why, sizeof why));
        if (seed > 1) { /* and a crash on the way is mended */
            world_run_ms(&world, (int64_t)seed * 2);
            node_power_off(world.slave, (enum sim_torn)seed);
            node_start(world.slave);
        }
        assert_true(world_await(&world, world_in_sync, 20000));
        world_check_equal(world.master, world.slave);
        check_begins_as(world.slave, world.master);
        world_check_readable(world.slave, 0);
        assert_int_equal(world_files(world.slave, "/store/diverged"), 1);
        world_put_some(&world, 0, 2);
        world_end(&world);
    }
}

/* A master takes this way only by forceOpen. */
static void master_behind_the_retention_waits_for_an_operator(void **state)
{
    (void)state;
    world_prepare(&world, 10);
    world.master->config.role = ROLE_SYNC_MASTER;
    world.master->config.flush_type = FLUSH_ASYNC;
    world.master->config.flush_interval_ms = 600000;
    world.slave->config.retention_ms = 3600000;
    world_start(&world);
    world_put_some(&world, 0, 20);
    node_stop(world.master);
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 10000));
    world_put_segments(&world, 5);
    assert_true(world_await(&world, world_in_sync, 5000));
    node_power_off(world.master, SIM_TORN_NONE);
    world_run_ms(&world, 7200000);
    assert_true(store_expire_now(world.slave->broker->store) > 1);
    node_start(world.master);
    if (world_at(world.master).whole < world_at(world.slave).min) {
        world_run_ms(&world, 60000);
        assert_int_equal(world_state(world.master), TERN__WIRE__HA_STATE__HA_RECOVERING);
        assert_int_equal(world_at(world.master).min, 0);
        assert_int_equal(world_force_open(&world, NULL), TERN_OK);
        assert_true(world_await(&world, world_in_sync, 20000));
        world_check_equal(world.master, world.slave);
        check_begins_as(world.master, world.slave);
        assert_int_equal(world_files(world.master, "/store/diverged"), 1);
        world_put_some(&world, 0, 2);
    } else {
        fail_msg("the master kept %" PRId64 ", the slave begins at %" PRId64,
                 world_at(world.master).whole, world_at(world.slave).min);
    }
    world_end(&world);
}

/* HA-03, HA-04. A fresh slave copies everything retained from the first
 * segment. */
static void fresh_slave_copies_everything_retained(void **state)
{
    (void)state;
    for (int expire = 0; expire < 2; expire++) {
        world_prepare(&world, 11 + (uint64_t)expire);
        world.master->config.retention_ms = 3600000;
        world_start(&world);
        world_put_segments(&world, 3);
        world_run_ms(&world, expire ? 7200000 : 0);
        world_put_segments(&world, 3);
        if (expire)
            assert_true(store_expire_now(world.master->broker->store) > 1);
        node_kill(world.slave);
        node_new_disk(world.slave);
        node_start(world.slave);
        assert_true(world_await(&world, world_in_sync, 60000));
        world_check_equal(world.master, world.slave);
        node_kill(world.master);
        int64_t min, max;
        store_queue_range(world.slave->broker->store, WORLD_TOPIC, 0, &min, &max);
        assert_true(expire ? min > 0 : min == 0);
        assert_int_equal(max, world.sent);
        world_check_readable(world.slave, 0);
        world_end(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slave_away_longer_than_the_retention_begins_afresh),
        cmocka_unit_test(master_behind_the_retention_waits_for_an_operator),
        cmocka_unit_test(fresh_slave_copies_everything_retained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
