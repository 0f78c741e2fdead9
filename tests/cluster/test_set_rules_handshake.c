/*
 * The rules of replication about two logs that meet: common points, cuts,
 * refusals, standing apart and beginning afresh, one test each. SIM_LOG=1
 * prints the log.
 */
#include <errno.h>
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

static bool was_cut(void *arg)
{
    return sim_log_count(&((struct world *)arg)->cluster.sim, " log_cut ") > 0;
}

static bool is_detached(void *arg)
{
    return world_state(((struct world *)arg)->slave) == TERN__WIRE__HA_STATE__HA_DETACHED;
}

static bool master_stopped(void *arg)
{
    return sim_log_count(&((struct world *)arg)->cluster.sim, "stopped_writing") > 0;
}

/*
 * Two logs that part: the slave holds `tail` messages that the master lost with
 * its power, and the master, which gave the slave up, has written others since.
 * Both run, the network is whole.
 */
static void part(struct world *w, uint64_t seed, uint32_t tail)
{
    world_prepare(w, seed);
    w->master->config.flush_type = FLUSH_ASYNC;
    w->master->config.flush_interval_ms = 600000;
    w->master->config.recover_timeout_ms = 2000;
    world_start(w);
    world_put_some(w, 0, 20);
    node_stop(w->master); /* on the disk */
    node_start(w->master);
    assert_true(world_await(w, world_in_sync, 10000));
    world_put_some(w, 0, tail);
    assert_true(world_await(w, world_in_step, 5000));
    node_power_off(w->master, SIM_TORN_NONE);
    sim_net_cut(w->cluster.net, w->master->host, w->slave->host);
}

/* The master opens alone and writes; then they meet. */
static void write_on_and_meet(struct world *w, uint32_t count)
{
    node_start(w->master);
    assert_true(world_await(w, world_is_open, 5000));
    for (uint32_t i = 0; i < count; i++)
        (void)world_put(w, 0);
    sim_net_heal_all(w->cluster.net);
}

/* ---- cuts ---- */

/* HA-18. The common point is the last epoch that both have, the lowest end of
 * it on both sides; beyond it the slave's bytes are saved, counted, logged and
 * cut. */
static void bytes_beyond_the_common_point_are_saved_and_cut(void **state)
{
    (void)state;
    part(&world, 1, 15);
    int64_t had = world_at(world.slave).whole;
    write_on_and_meet(&world, 7);
    assert_true(world_await(&world, world_in_sync, 20000));
    int64_t lost = had - world.places[20].phys_off;
    world_check_equal(world.master, world.slave);
    assert_int_equal(world_status(&world, world.slave).cut_bytes, lost);
    assert_int_equal(sim_log_count(&world.cluster.sim, " log_cut "), 1);
    assert_int_equal(sim_log_count(&world.cluster.sim, "slave_has_cut"), 1);
    assert_int_equal(world_files(world.slave, "/store/diverged"), 1);
    world_check_holds(&world, world.slave, 20);
    assert_int_equal(world_queue_end(world.slave, 0), 27);
    world_check_readable(world.slave, 0);
    world_end(&world);
}

/* The same where the master wrote exactly as much as it had lost: the ends
 * agree, the bytes do not.
 */
static void equal_ends_of_different_epochs_are_no_common_point(void **state)
{
    (void)state;
    part(&world, 2, 10);
    write_on_and_meet(&world, 10);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_check_equal(world.master, world.slave);
    for (uint32_t i = 30; i < 40; i++)
        assert_true(world_holds(&world, world.slave, i));
    world_end(&world);
}

/* …the lowest end also of an epoch that goes on at the slave where the master has lost it. */
static void common_point_is_the_lowest_end_of_a_shared_epoch(void **state)
{
    (void)state;
    struct tern_error err;
    world_prepare(&world, 11);
    world.master->config.flush_type = FLUSH_ASYNC;
    world.master->config.flush_interval_ms = 600000;
    world.master->config.recover_timeout_ms = 2000;
    world_start(&world);
    world_put_some(&world, 0, 20);
    assert_int_equal(store_flush(world.master->broker->store, &err), TERN_OK);
    world_put_some(&world, 0, 15);
    assert_true(world_await(&world, world_in_step, 5000));
    node_power_off(world.master, SIM_TORN_NONE);
    sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
    write_on_and_meet(&world, 25);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_check_equal(world.master, world.slave);
    assert_int_equal(sim_log_count(&world.cluster.sim, " log_cut "), 1);
    assert_int_equal(world_queue_end(world.slave, 0), 45);
    for (uint32_t i = 35; i < 60; i++)
        assert_true(world_holds(&world, world.slave, i));
    world_end(&world);
}

/* HA-14. The cut is durable: a crash right behind it, before anything new is
 * written, brings no old record back, wherever it falls. */
static void what_was_cut_does_not_come_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        part(&world, seed, 40);
        assert_int_equal(world_commit(&world, world.slave, WORLD_GROUP, 0, 55, NO_VERSION),
                         TERN_OK);
        write_on_and_meet(&world, 1);
        assert_true(world_await(&world, was_cut, 20000));
        if (seed % 4)
            world_run_ms(&world, (int64_t)(seed % 4));
        node_power_off(world.slave, (enum sim_torn)(seed / 4 % 4));
        sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
        node_start(world.slave);
        assert_true(world_at(world.slave).whole <= world_at(world.master).whole);
        assert_true(world_queue_end(world.slave, 0) <= 21);
        for (uint32_t i = 20; i < 60; i++)
            assert_false(world_holds(&world, world.slave, i));
        int64_t offset;
        struct offset_version version;
        assert_int_equal(world_query(&world, world.slave, WORLD_GROUP, 0, &offset, &version),
                         TERN_OK);
        assert_true(offset <= 21);
        assert_true(offset_version_compare(version, NO_VERSION) > 0);
        sim_net_heal_all(world.cluster.net);
        assert_true(world_await(&world, world_in_sync, 20000));
        world_check_equal(world.master, world.slave);
        world_end(&world);
    }
}

/* A slave that loses its power at any write of a cut ends with the master's
 * log. */
struct power {
    int left; /* calls of the disk before the power goes */
};

static int count_down(void *arg, enum sim_fs_op op, const char *path)
{
    struct power *power = arg;
    (void)op;
    (void)path;
    if (power->left > 0)
        power->left--;
    return power->left == 0 ? EIO : 0;
}

static void power_loss_at_any_moment_of_a_cut_is_mended(void **state)
{
    (void)state;
    for (int calls = 1; calls <= 60; calls += 2) {
        struct power power = {.left = calls};
        part(&world, (uint64_t)calls, 10);
        write_on_and_meet(&world, 3);
        sim_fs_set_hook(world.slave->disk, count_down, &power);
        world_run_ms(&world, 3000);
        sim_fs_set_hook(world.slave->disk, NULL, NULL);
        node_power_off(world.slave, (enum sim_torn)(calls / 2 % 4));
        node_start(world.slave);
        if (!world_await(&world, world_in_sync, 20000))
            fail_msg("after %d calls: the slave is not in sync", calls);
        world_check_equal(world.master, world.slave);
        world_check_readable(world.slave, 0);
        world_end(&world);
    }
}

/* Before its cut the slave lowers its consumer offsets to each queue's end
 * there, with a higher version; the master, told of it, lowers what it holds
 * from before. */
static void offsets_beyond_a_cut_are_lowered_at_both(void **state)
{
    (void)state;
    int64_t offset;
    struct offset_version version, other;
    part(&world, 3, 30);
    assert_int_equal(world_commit(&world, world.slave, WORLD_GROUP, 0, 45, NO_VERSION), TERN_OK);
    assert_int_equal(world_commit(&world, world.slave, "behind", 0, 12, NO_VERSION), TERN_OK);
    write_on_and_meet(&world, 2);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_run_ms(&world, 2000);
    assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version), TERN_OK);
    assert_int_equal(offset, 20);
    assert_true(offset_version_compare(version, NO_VERSION) > 0);
    assert_int_equal(world_query(&world, world.slave, WORLD_GROUP, 0, &offset, &other), TERN_OK);
    assert_int_equal(offset, 20);
    assert_int_equal(offset_version_compare(version, other), 0);
    assert_int_equal(world_query(&world, world.master, "behind", 0, &offset, &version), TERN_OK);
    assert_int_equal(offset, 12);
    world_end(&world);
}

/* ---- refusing ---- */

/* The slave is master for a while (an operator's change of roles): it writes under an epoch of its
 * own, and a group reads all of it. */
static void write_alone(struct world *w, uint32_t count)
{
    int64_t end;
    struct offset_version version;
    w->slave->config.broker_id = 0;
    w->slave->config.role = ROLE_ASYNC_MASTER;
    node_start(w->slave);
    world_run_ms(w, 3000);
    for (uint32_t i = 0; i < count; i++)
        (void)world_put_to(w, w->slave, 0, WORLD_MARK_BYTES, 3000);
    (void)world_query(w, w->slave, WORLD_GROUP, 0, &end, &version);
    end = world_queue_end(w->slave, 0);
    assert_int_equal(world_commit(w, w->slave, WORLD_GROUP, 0, end, version), TERN_OK);
    node_stop(w->slave);
    w->slave->config.broker_id = 1;
    w->slave->config.role = ROLE_SLAVE;
}

/*
 * The slave was master for a while; the master, which does not know, opens
 * without it and takes the same number.
 */
static void two_lines(struct world *w, uint64_t seed, uint32_t by_slave, uint32_t by_master)
{
    world_prepare(w, seed);
    w->master->config.consume_visibility = VISIBLE_CONFIRMED;
    w->master->config.recover_timeout_ms = 2000;
    world_start(w);
    world_put_some(w, 0, 20);
    assert_true(world_await(w, world_in_step, 5000));
    node_stop(w->master);
    node_stop(w->slave);
    write_alone(w, by_slave);
    node_start(w->master);
    assert_true(world_await(w, world_is_open, 5000));
    for (uint32_t i = 0; i < by_master; i++)
        (void)world_put(w, 0);
    node_start(w->slave);
}

/* A slave whose last epoch is not below the master's, under another id, refuses
 * to be cut; the master stops writing on hearing it, and neither loses a byte
 * by itself. */
static void slave_with_a_rival_epoch_refuses_to_be_cut(void **state)
{
    (void)state;
    two_lines(&world, 4, 10, 5);
    int64_t end = world_at(world.slave).whole;
    assert_true(world_await(&world, master_stopped, 10000));
    assert_int_not_equal(world_put(&world, 0), TERN_OK);
    world_run_ms(&world, 40000);
    assert_int_equal(world_state(world.master), TERN__WIRE__HA_STATE__HA_RECOVERING);
    assert_int_equal(world_at(world.slave).whole, end);
    assert_int_equal(sim_log_count(&world.cluster.sim, " log_cut "), 0);
    world_end(&world);
}

/* …and sends that wait then are answered that nothing is sure: what they wrote may be cut, and
 * other bytes come to its place. */
static void sends_that_wait_end_when_the_master_stops(void **state)
{
    (void)state;
    struct world_call put;
    world_prepare(&world, 12);
    world_add_second(&world);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 20);
    assert_true(world_await(&world, world_in_step, 5000));
    for (size_t i = 0; i < world.cluster.node_count; i++)
        node_stop(&world.cluster.nodes[i]);
    write_alone(&world, 10);
    node_start(world.second);
    node_start(world.master);
    world_run_ms(&world, 3000);
    assert_int_equal(world_force_open(&world, NULL), TERN_OK);
    assert_true(world_await(&world, world_in_sync, 20000));
    sim_net_cut(world.cluster.net, world.master->host, world.second->host);
    world_put_start(&world, world.master, 0, 10000, &put); /* nobody has it */
    node_start(world.slave);
    assert_true(world_await(&world, master_stopped, 8000));
    world_run_ms(&world, 500);
    assert_int_equal(world_call_end(&put), TERN_FLUSH_SLAVE_TIMEOUT);
    world_end(&world);
}

/* …and recovers as at a start: what costs none of its own bytes it takes. Progress is held against
 * queues that have all of that: it stands. */
static void master_that_stopped_takes_the_rival_tail(void **state)
{
    (void)state;
    int64_t offset;
    struct offset_version version;
    two_lines(&world, 5, 10, 0);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_check_equal(world.master, world.slave);
    for (uint32_t i = 20; i < 30; i++)
        assert_true(world_holds(&world, world.master, i));
    assert_int_equal(world_queue_end(world.master, 0), 30);
    assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version), TERN_OK);
    assert_int_equal(offset, 30);
    world_put_some(&world, 0, 5);
    world_end(&world);
}

/* Only forceOpen, taking a number above both, lets the cut proceed. */
static void force_open_takes_a_number_above_both(void **state)
{
    (void)state;
    two_lines(&world, 6, 3, 10);
    assert_true(world_await(&world, master_stopped, 10000));
    uint64_t ours = world_last_epoch(world.master), theirs = world_last_epoch(world.slave);
    world_run_ms(&world, 3000);
    assert_int_equal(world_force_open(&world, NULL), TERN_OK);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_put_some(&world, 0, 2);
    assert_true(world_last_epoch(world.master) > ours);
    assert_true(world_last_epoch(world.master) > theirs);
    assert_true(world_await(&world, world_in_step, 5000));
    world_check_equal(world.master, world.slave);
    assert_true(world_files(world.slave, "/store/diverged") +
                    world_files(world.master, "/store/diverged") >
                0);
    world_end(&world);
}

/* ---- no common epoch ---- */

/* The master's disk is new, and an operator has opened it beside its slave's
 * store. */
static void found_anew(struct world *w, uint64_t seed, bool with_topic)
{
    world_prepare(w, seed);
    w->master->config.role = ROLE_SYNC_MASTER;
    world_start(w);
    world_put_some(w, 0, 100);
    assert_int_equal(world_commit(w, w->master, WORLD_GROUP, 0, 90, NO_VERSION), TERN_OK);
    assert_true(world_await(w, world_in_step, 5000));
    node_stop(w->master);
    node_new_disk(w->master);
    sim_net_cut(w->cluster.net, w->master->host, w->slave->host);
    node_start(w->master);
    world_run_ms(w, 3000);
    assert_int_equal(world_force_open(w, w->slave), TERN_OK);
    assert_true(world_await(w, world_is_open, 10000));
    if (with_topic)
        assert_int_equal(world_create_topic(w, WORLD_TOPIC), TERN_OK);
    sim_net_heal_all(w->cluster.net);
}

/* HA-02. A non-empty slave without a common epoch unregisters, serves nothing
 * and exchanges no offsets; sends do not count it. */
static void slave_without_a_common_epoch_stands_apart(void **state)
{
    (void)state;
    int64_t offset;
    struct offset_version version;
    found_anew(&world, 7, true);
    assert_true(world_await(&world, is_detached, 20000));
    world_run_ms(&world, 3000);
    assert_true(sim_log_count(&world.cluster.sim, "replica_detached") > 0);
    assert_false(world_is_listed(&world, world.slave));
    assert_int_equal(world_registered(&world), 1);
    assert_int_not_equal(world_pull(&world, world.slave, 0, 0, NO_VERSION).code, TERN_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(world_put(&world, 0), TERN_SLAVE_NOT_AVAILABLE);
    world_run_ms(&world, 40000);
    assert_false(world_is_listed(&world, world.slave));
    assert_int_equal(world_at(world.slave).whole, world.places[99].phys_off * 100 / 99);
    assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version),
                     TERN_QUERY_NOT_FOUND);
    assert_int_not_equal(world_query(&world, world.slave, WORLD_GROUP, 0, &offset, &version),
                         TERN_OK);
    world_end(&world);
}

/* It stands apart again after a restart: nothing of it is served in between,
 * and it is not listed.
 */
static void restarted_slave_without_a_common_epoch_stands_apart_again(void **state)
{
    (void)state;
    int64_t offset;
    struct offset_version version;
    found_anew(&world, 8, true);
    assert_true(world_await(&world, is_detached, 20000));
    node_kill(world.slave);
    node_start(world.slave);
    assert_true(world_await(&world, is_detached, 20000));
    world_run_ms(&world, 3000);
    assert_false(world_is_listed(&world, world.slave));
    assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version),
                     TERN_QUERY_NOT_FOUND);
    world_end(&world);
}

/* rejoin saves its store aside and starts it afresh: the master's log, none of
 * the old progress. */
static void rejoin_starts_a_detached_slave_afresh(void **state)
{
    (void)state;
    int64_t offset;
    struct offset_version version;
    found_anew(&world, 9, true);
    for (int i = 0; i < 10; i++)
        (void)world_put(&world, 1);
    assert_int_not_equal(world_rejoin(&world, world.master), TERN_OK);
    assert_true(world_await(&world, is_detached, 20000));
    assert_int_equal(world_rejoin(&world, world.slave), TERN_OK);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_run_ms(&world, 2000);
    world_check_equal(world.master, world.slave);
    assert_int_equal(world_files(world.slave, "/store/diverged"), 1);
    assert_int_equal(world_queue_end(world.slave, 0), 0);
    assert_int_equal(world_queue_end(world.slave, 1), 10);
    assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version),
                     TERN_QUERY_NOT_FOUND);
    assert_int_equal(world_query(&world, world.slave, WORLD_GROUP, 0, &offset, &version),
                     TERN_PROGRESS_UNKNOWN);
    world_put_some(&world, 1, 5);
    world_run_ms(&world, 31000);
    assert_true(world_is_listed(&world, world.slave));
    world_end(&world);
}

/* A master without any topic is followed in that, too. */
static void rejoin_takes_an_empty_table_of_topics(void **state)
{
    (void)state;
    found_anew(&world, 10, false);
    assert_true(world_await(&world, is_detached, 20000));
    assert_int_equal(world_rejoin(&world, world.slave), TERN_OK);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_run_ms(&world, 2000);
    assert_false(world_has_topic(world.master, WORLD_TOPIC));
    assert_false(world_has_topic(world.slave, WORLD_TOPIC));
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_beyond_the_common_point_are_saved_and_cut),
        cmocka_unit_test(equal_ends_of_different_epochs_are_no_common_point),
        cmocka_unit_test(common_point_is_the_lowest_end_of_a_shared_epoch),
        cmocka_unit_test(what_was_cut_does_not_come_back),
        cmocka_unit_test(power_loss_at_any_moment_of_a_cut_is_mended),
        cmocka_unit_test(offsets_beyond_a_cut_are_lowered_at_both),
        cmocka_unit_test(slave_with_a_rival_epoch_refuses_to_be_cut),
        cmocka_unit_test(sends_that_wait_end_when_the_master_stops),
        cmocka_unit_test(master_that_stopped_takes_the_rival_tail),
        cmocka_unit_test(force_open_takes_a_number_above_both),
        cmocka_unit_test(slave_without_a_common_epoch_stands_apart),
        cmocka_unit_test(restarted_slave_without_a_common_epoch_stands_apart_again),
        cmocka_unit_test(rejoin_starts_a_detached_slave_afresh),
        cmocka_unit_test(rejoin_takes_an_empty_table_of_topics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
