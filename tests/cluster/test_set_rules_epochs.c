/*
 * The rules of replication about who a member is and which master wrote which
 * stretch of the log, one test each: a schedule that breaks a set without the
 * rule. SIM_LOG=1 prints the log.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "broker/ha/insync.h"
#include "tests/cluster/set_world.h"

static struct world world;

static bool slave_follows(void *arg)
{
    return world_state(((struct world *)arg)->slave) == TERN__WIRE__HA_STATE__HA_FOLLOWING;
}

static void fail_writes(struct sim_node *node, const char *path_part)
{
    struct sim_fs_fault fault = {.op = SIM_FS_PWRITEV,
                                 .path_part = path_part,
                                 .nth = 1,
                                 .errno_value = EIO,
                                 .forever = true};
    sim_fs_fail(node->disk, &fault);
}

/* ---- identity ---- */

/* A different live UUID under the same name and id is refused by nameservers…
 */
static void nameserver_refuses_a_second_live_store_under_one_id(void **state)
{
    (void)state;
    struct tern_error err;
    world_prepare(&world, 1);
    world_start(&world);
    struct sim_node *twin = cluster_add_node(&world.cluster, "broker-a", 1);
    assert_int_equal(node_try_start(twin, &err), TERN_NAME_CONFLICT);
    world_put_some(&world, 0, 5);
    assert_true(world_is_listed(&world, world.slave));
    assert_false(world_is_listed(&world, twin));
    world_end(&world);
}

/* …and by peers: the set goes on with the first one, the second copies nothing.
 */
static void master_refuses_a_second_live_store_under_one_id(void **state)
{
    (void)state;
    world_prepare(&world, 2);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    cluster_kill_namesrv(&world.cluster);
    struct sim_node *twin = cluster_add_node(&world.cluster, "broker-a", 1);
    snprintf(twin->config.ha_master_address, sizeof twin->config.ha_master_address,
             "10.0.0.2:10912");
    node_start(twin);
    world_run_ms(&world, 20000);
    assert_true(sim_log_count(&world.cluster.sim, "handshake_refused") > 0);
    assert_int_equal(world_at(twin).whole, 0);
    assert_int_equal(world_state(twin), TERN__WIRE__HA_STATE__HA_SEEKING);
    world_put_some(&world, 0, 5);
    assert_int_equal(world_at(world.slave).whole, world_at(world.master).whole);
    node_stop(twin);
    cluster_start_namesrv(&world.cluster);
    world_end(&world);
}

/* HA-19. The same UUID at a new address replaces the old entry: the slave comes
 * from elsewhere. */
static void slave_at_another_address_is_the_same_member(void **state)
{
    (void)state;
    struct insync_set set;
    struct tern_error err;
    bool known;
    world_prepare(&world, 3);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 20);
    node_kill(world.slave);
    world_move(world.slave, 77);
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_put_some(&world, 0, 5);
    assert_int_equal(insync_load(&world.master->env, "/store", &set, &known, &err), TERN_OK);
    assert_int_equal(set.count, 1);
    assert_non_null(strstr(set.members[0].ha_address, "10.0.0.77"));
    assert_true(world_is_listed(&world, world.slave));
    world_end(&world);
}

/* …also when nobody has noticed yet that it went: it neither leaves the set nor is taken for a
 * second one. */
static void slave_that_moves_unnoticed_is_the_same_member(void **state)
{
    (void)state;
    struct insync_set set;
    struct tern_error err;
    bool known;
    world_prepare(&world, 6);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 20);
    sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
    sim_net_cut(world.cluster.net, CLUSTER_NAMESRV_HOST, world.slave->host);
    node_kill(world.slave);
    world_move(world.slave, 77);
    node_start(world.slave);
    world_run_ms(&world, 1000);
    assert_true(world_in_sync(&world));
    assert_int_equal(sim_log_count(&world.cluster.sim, "insync_left"), 0);
    assert_int_equal(insync_load(&world.master->env, "/store", &set, &known, &err), TERN_OK);
    assert_int_equal(set.count, 1);
    assert_non_null(strstr(set.members[0].ha_address, "10.0.0.77"));
    assert_true(world_is_listed(&world, world.slave));
    world_end(&world);
}

/* HA-19. The master comes back at another address: its slave finds it within
 * two heartbeats. */
static void master_at_another_address_is_found_again(void **state)
{
    (void)state;
    for (int unnoticed = 0; unnoticed < 2; unnoticed++) {
        world_prepare(&world, 4);
        world.master->config.role = ROLE_SYNC_MASTER;
        world_start(&world);
        world_put_some(&world, 0, 20);
        if (unnoticed) {
            sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
            sim_net_cut(world.cluster.net, world.master->host, CLUSTER_NAMESRV_HOST);
        }
        node_kill(world.master);
        world_move(world.master, 78);
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 60000));
        world_put_some(&world, 0, 5);
        assert_true(world_await(&world, world_in_step, 5000));
        world_check_equal(world.master, world.slave);
        world_end(&world);
    }
}

/* HA-19. Both move while both are down: the set is found by what it is, not by
 * where it was. */
static void whole_set_at_other_addresses_opens(void **state)
{
    (void)state;
    world_prepare(&world, 5);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 20);
    node_kill(world.master);
    node_kill(world.slave);
    world_move(world.master, 78);
    world_move(world.slave, 77);
    node_start(world.master);
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 60000));
    world_put_some(&world, 0, 5);
    world_end(&world);
}

/* ---- epochs ---- */

/* Before its first write a master makes its epoch durable: without it there is
 * no write. */
static void master_without_a_durable_epoch_takes_no_write(void **state)
{
    (void)state;
    world_prepare(&world, 11);
    world_start(&world);
    world_put_some(&world, 0, 10);
    node_kill(world.master);
    fail_writes(world.master, "epochs");
    node_start(world.master);
    world_run_ms(&world, 10000);
    assert_int_equal(world_status(&world, world.master).state, TERN__WIRE__HA_STATE__HA_RECOVERING);
    assert_int_not_equal(world_put(&world, 0), TERN_OK);
    int64_t end = world_at(world.slave).whole;
    assert_int_equal(world_at(world.master).whole, end);
    sim_fs_fail_clear(world.master->disk);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_put_some(&world, 0, 10);
    world_end(&world);
}

/* Before its first write a master flushes its log up to the epoch's start: a tail that it took from
 * its slave cannot vanish from before the epoch's bytes. */
static void log_is_flushed_up_to_the_start_of_an_epoch(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        world_prepare(&world, seed);
        world.master->config.flush_type = FLUSH_ASYNC;
        world.master->config.flush_interval_ms = 600000;
        world_start(&world);
        world_put_some(&world, 0, 30);
        assert_true(world_await(&world, world_in_step, 5000));
        node_power_off(world.master, SIM_TORN_NONE);
        node_start(world.master);
        assert_true(world_await(&world, world_is_open, 10000));
        int64_t start = world_at(world.master).whole;
        assert_true(start > 0);
        assert_int_equal(world_put(&world, 0), TERN_OK);
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        node_kill(world.slave);
        node_start(world.master);
        assert_true(world_at(world.master).whole >= start);
        world_end(&world);
    }
}

/* A master's number is above any it gave or saw before, though the epoch that had it is gone:
 * recovery drops epochs beyond the end and never gives their numbers again, also when the life that
 * dropped it ends before it opens. */
static void number_of_a_dropped_epoch_is_not_given_again(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        world_prepare(&world, seed);
        world.master->config.flush_type = FLUSH_ASYNC;
        world.master->config.flush_interval_ms = 600000;
        world.master->config.recover_timeout_ms = 2000;
        world_start(&world);
        world_put_some(&world, 0, 20);
        assert_true(world_await(&world, world_in_step, 5000));
        uint64_t last = world_last_epoch(world.master);
        for (int life = 0; life < 3; life++) {
            node_power_off(world.master, SIM_TORN_NONE);
            if (world.slave->broker)
                node_kill(world.slave); /* it stays on record */
            for (uint64_t i = 0; i < seed % 3; i++) {
                node_start(world.master);
                world_run_ms(&world, 500);
                node_power_off(world.master, (enum sim_torn)(seed % 4));
            }
            node_start(world.master);
            assert_true(world_await(&world, world_is_open, 5000));
            assert_true(world_last_epoch(world.master) > last);
            last = world_last_epoch(world.master);
            (void)world_put(&world, 0);
        }
        world_end(&world);
    }
}

/* Recovery drops the epochs that start beyond the end: a slave whose machine forgot their bytes can
 * open for writes where its log ends now, and both sides of the next handshake mean the same. */
static void epochs_beyond_the_recovered_end_are_dropped(void **state)
{
    (void)state;
    struct ha_epoch epoch;
    world_prepare(&world, 12);
    for (size_t i = 0; i < 2; i++) {
        world.cluster.nodes[i].config.flush_type = FLUSH_ASYNC;
        world.cluster.nodes[i].config.flush_interval_ms = 600000;
    }
    world_start(&world);
    for (int life = 0; life < 3; life++) {
        world_put_some(&world, 0, 10);
        node_kill(world.master);
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 40000));
    }
    world_put_some(&world, 0, 10);
    assert_true(world_await(&world, world_in_step, 5000));
    uint64_t last = world_last_epoch(world.slave);
    node_kill(world.master);
    node_power_off(world.slave, SIM_TORN_NONE);
    world.slave->config.broker_id = 0;
    world.slave->config.role = ROLE_ASYNC_MASTER;
    node_start(world.slave);
    world_run_ms(&world, 3000);
    assert_int_equal(world_state(world.slave), TERN__WIRE__HA_STATE__HA_OPEN);
    struct ha *ha = world.slave->broker->ha;
    assert_true(epochs_last(ha->epochs, &epoch));
    assert_true(epoch.number > last);
    assert_int_equal(epoch.start, world_at(world.slave).whole);
    world_end(&world);
}

/* A master's number is above any that a peer has shown, whatever its own disk
 * says. */
static void number_is_above_any_seen_from_a_peer(void **state)
{
    (void)state;
    world_prepare(&world, 13);
    world_start(&world);
    for (int life = 0; life < 4; life++) {
        world_put_some(&world, 0, 5);
        node_kill(world.master);
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 40000));
    }
    uint64_t seen = world_last_epoch(world.slave);
    node_stop(world.master);
    node_new_disk(world.master);
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 40000));
    world_put_some(&world, 0, 5);
    assert_true(world_last_epoch(world.master) > seen);
    assert_true(world_await(&world, world_in_step, 5000));
    world_check_equal(world.master, world.slave);
    world_end(&world);
}

/* A chunk belongs to one epoch, and a slave makes it durable before it appends
 * its first byte. */
static void slave_has_an_epoch_before_its_first_byte(void **state)
{
    (void)state;
    world_prepare(&world, 14);
    world_start(&world);
    world_put_some(&world, 0, 10);
    assert_true(world_await(&world, world_in_step, 5000));
    node_kill(world.master);
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 40000));
    int64_t start = world_at(world.master).whole;
    fail_writes(world.slave, "epochs");
    for (int i = 0; i < 10; i++)
        (void)world_put(&world, 0);
    world_run_ms(&world, 10000);
    assert_int_equal(world_at(world.slave).appended, start);
    node_power_off(world.slave, SIM_TORN_PAGES);
    sim_fs_fail_clear(world.slave->disk);
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_check_equal(world.master, world.slave);
    world_end(&world);
}

/* …also when it was away over the change: the rest of one epoch and the beginning of the next do
 * not come together, and nothing of it makes a slave begin its session anew. */
static void chunk_ends_where_its_epoch_ends(void **state)
{
    (void)state;
    world_prepare(&world, 15);
    world_start(&world);
    node_kill(world.slave);
    world_run_ms(&world, 3000); /* it is not waited for */
    for (int life = 0; life < 3; life++) {
        for (int i = 0; i < 5; i++)
            (void)world_put(&world, 0);
        node_kill(world.master);
        node_start(world.master);
        assert_true(world_await(&world, world_is_open, 1000));
    }
    node_start(world.slave);
    assert_true(world_await(&world, slave_follows, 5000));
    unsigned before = sim_log_count(&world.cluster.sim, "replica_has_no_source");
    assert_true(world_await(&world, world_in_sync, 20000));
    assert_int_equal(sim_log_count(&world.cluster.sim, "replica_has_no_source"), before);
    world_check_equal(world.master, world.slave);
    world_end(&world);
}

/* The same by chance: a slave that loses its power while epochs change knows
 * each byte's. */
static void slaves_bytes_have_their_epochs_after_a_power_loss(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        world_prepare(&world, seed);
        world.slave->config.flush_type = FLUSH_ASYNC;
        world_start(&world);
        for (int life = 0; life < 4; life++) {
            world_put_some(&world, 0, 10);
            node_kill(world.master);
            node_start(world.master);
            assert_true(world_await(&world, world_is_open, 40000));
            for (uint64_t i = 0; i < seed % 5; i++)
                (void)world_put(&world, 0);
            world_run_ms(&world, (int64_t)(seed * 7 % 40));
            node_power_off(world.slave, (enum sim_torn)(seed % 4));
            node_start(world.slave);
            assert_true(world_await(&world, slave_follows, 10000));
            assert_true(world_await(&world, world_in_sync, 20000));
            world_check_equal(world.master, world.slave);
        }
        world_end(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nameserver_refuses_a_second_live_store_under_one_id),
        cmocka_unit_test(master_refuses_a_second_live_store_under_one_id),
        cmocka_unit_test(slave_at_another_address_is_the_same_member),
        cmocka_unit_test(slave_that_moves_unnoticed_is_the_same_member),
        cmocka_unit_test(master_at_another_address_is_found_again),
        cmocka_unit_test(whole_set_at_other_addresses_opens),
        cmocka_unit_test(master_without_a_durable_epoch_takes_no_write),
        cmocka_unit_test(log_is_flushed_up_to_the_start_of_an_epoch),
        cmocka_unit_test(number_of_a_dropped_epoch_is_not_given_again),
        cmocka_unit_test(epochs_beyond_the_recovered_end_are_dropped),
        cmocka_unit_test(number_is_above_any_seen_from_a_peer),
        cmocka_unit_test(slave_has_an_epoch_before_its_first_byte),
        cmocka_unit_test(chunk_ends_where_its_epoch_ends),
        cmocka_unit_test(slaves_bytes_have_their_epochs_after_a_power_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
