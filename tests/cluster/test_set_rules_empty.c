/*
 * The rules of replication about a master whose store is empty, one test each. SIM_LOG=1 prints the
 * log.
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

static const struct offset_version NO_VERSION = {0, 0};

static bool copy_has_begun(void *arg)
{
    return world_at(((struct world *)arg)->master).appended > 0;
}

static void cut(struct sim_node *a, struct sim_node *b)
{
    sim_net_cut(world.cluster.net, a->host, b->host);
}

static void check_unwritable(struct sim_node *master)
{
    struct world_status status = world_status(&world, master);
    assert_int_equal(status.code, TERN_OK);
    assert_int_equal(status.state, TERN__WIRE__HA_STATE__HA_RECOVERING);
    assert_false(status.writable);
    int64_t end = world_at(master).appended;
    assert_int_not_equal(world_put_to(&world, master, 0, WORLD_MARK_BYTES, 500), TERN_OK);
    assert_int_equal(world_at(master).appended, end);
}

/* An empty store under id 0 beside a non-empty slave copies its whole log, epochs, topics and
 * offsets, then opens. */
static void empty_master_copies_its_slave_first(void **state)
{
    (void)state;
    int64_t offset;
    struct offset_version version;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        world_prepare(&world, seed);
        world.master->config.role = seed % 2 ? ROLE_SYNC_MASTER : ROLE_ASYNC_MASTER;
        world_start(&world);
        world_put_segments(&world, 3);
        world_put_some(&world, 1, 30);
        assert_int_equal(world_commit(&world, world.master, WORLD_GROUP, 1, 25, NO_VERSION),
                         TERN_OK);
        assert_true(world_await(&world, world_in_step, 5000));
        world_run_ms(&world, 2000);
        node_kill(world.master);
        node_new_disk(world.master);
        node_start(world.master);
        if (seed == 3) { /* and begins the copy anew when its power is lost on the way */
            world_run_ms(&world, 10);
            node_power_off(world.master, SIM_TORN_PAGES);
            node_start(world.master);
        }
        assert_true(world_await(&world, world_in_sync, 40000));
        world_check_holds(&world, world.master, world.sent);
        world_check_equal(world.master, world.slave);
        assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 1, &offset, &version),
                         TERN_OK);
        assert_int_equal(offset, 25);
        world_put_some(&world, 1, 1);
        assert_int_equal(world.places[world.sent - 1].queue_off, 30);
        world_end(&world);
    }
}

/* The same while the slave cannot be reached, though nameservers list it: it waits, in both roles.
 */
static void empty_master_waits_for_a_listed_slave(void **state)
{
    (void)state;
    for (int sync = 0; sync < 2; sync++) {
        world_prepare(&world, 17);
        world.master->config.role = sync ? ROLE_SYNC_MASTER : ROLE_ASYNC_MASTER;
        world_start(&world);
        world_put_some(&world, 0, 10);
        assert_true(world_await(&world, world_in_step, 5000));
        node_kill(world.master);
        node_new_disk(world.master);
        cut(world.master, world.slave);
        node_start(world.master);
        world_run_ms(&world, 60000);
        check_unwritable(world.master);
        sim_net_heal_all(world.cluster.net);
        assert_true(world_await(&world, world_in_sync, 20000));
        world_check_holds(&world, world.master, 10);
        world_end(&world);
    }
}

/* …but an ASYNC_MASTER only as long as one lists it: a machine that is gone is forgotten. */
static void empty_async_master_opens_when_nobody_lists_a_slave(void **state)
{
    (void)state;
    world_prepare(&world, 21);
    world_start(&world);
    world_put_some(&world, 0, 10);
    node_kill(world.master);
    node_new_disk(world.master);
    sim_net_cut(world.cluster.net, world.slave->host, CLUSTER_NAMESRV_HOST);
    cut(world.master, world.slave);
    node_kill(world.slave); /* silently */
    node_start(world.master);
    world_run_ms(&world, 60000);
    check_unwritable(world.master);
    assert_true(world_await(&world, world_is_open, 150000));
    world_end(&world);
}

/* Without a non-empty slave an empty store opens as a new set. */
static void empty_master_beside_empty_slaves_opens_as_a_new_set(void **state)
{
    (void)state;
    world_prepare(&world, 18);
    world.master->config.role = ROLE_SYNC_MASTER;
    node_start(world.slave);
    world_run_ms(&world, 2000);
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 10000));
    cluster_create_topic(&world.cluster, WORLD_TOPIC, WORLD_QUEUES);
    world_put_some(&world, 0, 5);
    world_end(&world);
}

/* Opening empty beside a non-empty slave wants forceOpen with its UUID: no other word will do. */
static void empty_master_opens_beside_a_slave_only_when_it_is_named(void **state)
{
    (void)state;
    world_prepare(&world, 19);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_segments(&world, 4);
    node_kill(world.master);
    node_new_disk(world.master);
    sim_net_set_delay(world.cluster.net, ms_to_ns(100), ms_to_ns(110));
    node_start(world.master);
    assert_true(world_await(&world, copy_has_begun, 20000));
    cut(world.master, world.slave);
    world_run_ms(&world, 40000);
    assert_true(world_at(world.master).appended > 0);
    check_unwritable(world.master);
    assert_int_not_equal(world_force_open(&world, NULL), TERN_OK);
    assert_int_not_equal(world_force_open(&world, world.master), TERN_OK);
    world_run_ms(&world, 5000);
    check_unwritable(world.master);
    assert_int_equal(world_force_open(&world, world.slave), TERN_OK);
    assert_true(world_await(&world, world_is_open, 5000));
    world_end(&world);
}

/* What a lost disk alone had is a loss, too: consumers that had read it get what is written in
 * its place. */
static void consumers_follow_a_master_that_lost_its_disk(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        world_prepare(&world, seed);
        world_start(&world);
        world_consume(&world);
        world_put_some(&world, 0, 10);
        assert_true(world_await(&world, world_in_step, 5000));
        cut(world.master, world.slave);
        world_put_some(&world, 0, 10); /* the master's alone, and read at once */
        assert_true(world_await(&world, world_all_received, 5000));
        if (seed % 2) /* nor does the slave hear of what they have read */
            sim_net_cut(world.cluster.net, CLUSTER_CLIENT_HOST, world.slave->host);
        node_kill(world.master);
        node_new_disk(world.master);
        sim_net_heal(world.cluster.net, world.master->host, world.slave->host);
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 40000));
        assert_int_equal(world_queue_end(world.master, 0), 10);
        uint32_t first = world.sent;
        world_put_some(&world, 0, 20);
        sim_net_heal_all(world.cluster.net);
        world_run_ms(&world, 30000);
        for (uint32_t i = first; i < world.sent; i++)
            if (!world.inbox.times[i])
                fail_msg("seed %" PRIu64 ": number %" PRIu32 " at offset %" PRId64 " was skipped",
                         seed, i, world.places[i].queue_off);
        world_end(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_master_copies_its_slave_first),
        cmocka_unit_test(empty_master_waits_for_a_listed_slave),
        cmocka_unit_test(empty_async_master_opens_when_nobody_lists_a_slave),
        cmocka_unit_test(empty_master_beside_empty_slaves_opens_as_a_new_set),
        cmocka_unit_test(empty_master_opens_beside_a_slave_only_when_it_is_named),
        cmocka_unit_test(consumers_follow_a_master_that_lost_its_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
