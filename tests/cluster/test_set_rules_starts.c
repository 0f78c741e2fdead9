/*
 * The rules of replication about how a master starts, one test each. SIM_LOG=1 prints the log.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/cluster/set_world.h"

static struct world world;

static const struct offset_version NO_VERSION = {0, 0};

static bool both_in_sync(void *arg)
{
    return world_insync(arg) == 2;
}

static void cut(struct sim_node *a, struct sim_node *b)
{
    sim_net_cut(world.cluster.net, a->host, b->host);
}

static struct insync_set set_on_disk(void)
{
    struct insync_set set;
    struct tern_error err;
    bool known;
    assert_int_equal(insync_load(&world.master->env, "/store", &set, &known, &err), TERN_OK);
    assert_true(known);
    return set;
}

/* A master that forgets with its power what it did not flush: page cache only. */
static void prepare_forgetful(uint64_t seed, int32_t role)
{
    world_prepare(&world, seed);
    world.master->config.role = role;
    world.master->config.flush_type = FLUSH_ASYNC;
    world.master->config.flush_interval_ms = 600000;
}

/* What is there until now is on the master's disk. */
static void flush_master(void)
{
    struct tern_error err;
    assert_int_equal(store_flush(world.master->broker->store, &err), TERN_OK);
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

/* ---- waiting ---- */

/* A master waits, unwritable, for all members of the last durable set: one of two is not enough,
 * for the other may have what that one lacks. */
static void master_waits_for_all_members(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        prepare_forgetful(seed, ROLE_SYNC_MASTER);
        world_add_second(&world);
        world_start(&world);
        world_put_some(&world, 0, 10);
        flush_master();
        cut(world.master, world.second); /* the other one alone has the rest */
        world_put_some(&world, 0, 20);
        assert_int_equal(world_insync(&world), 2);
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        node_kill(world.slave);
        sim_net_heal_all(world.cluster.net);
        node_start(world.master);
        world_run_ms(&world, 20000);
        check_unwritable(world.master);
        assert_int_equal(world_status(&world, world.master).awaited, 1);
        struct world_pull pull = world_pull(&world, world.master, 0, 30, NO_VERSION);
        assert_int_equal(pull.code, TERN_PULL_NOT_FOUND); /* its end is nobody's yet */
        assert_int_equal(pull.next, 30);
        node_start(world.slave);
        assert_true(world_await(&world, world_in_sync, 10000));
        world_check_holds(&world, world.master, 30);
        world_check_equal(world.master, world.second);
        world_end(&world);
    }
}

/* It takes the tail from the one with the highest (epoch, end), and the others follow. */
static void master_takes_the_tail_of_the_highest(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        prepare_forgetful(seed, ROLE_SYNC_MASTER);
        world_add_second(&world);
        world_start(&world);
        world_put_some(&world, 0, 10);
        flush_master();
        struct sim_node *behind = seed % 2 ? world.slave : world.second;
        cut(world.master, behind);
        world_put_some(&world, 0, 30);
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        sim_net_heal_all(world.cluster.net);
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 20000));
        world_check_holds(&world, world.master, 40);
        world_check_equal(world.master, world.slave);
        world_check_equal(world.master, world.second);
        world_put_some(&world, 0, 5);
        world_end(&world);
    }
}

/* The higher epoch goes before the longer log: what a master that was given up wrote alone does not
 * win over what the next one had confirmed. */
static void higher_epoch_goes_before_the_longer_log(void **state)
{
    (void)state;
    prepare_forgetful(11, ROLE_SYNC_MASTER);
    world_add_second(&world);
    world.master->config.recover_timeout_ms = 2000;
    world_start(&world);
    world_put_some(&world, 0, 10);
    flush_master();
    cut(world.master, world.slave); /* the second alone gets a long tail, which is then given up */
    for (int i = 0; i < 60; i++)
        (void)world_put(&world, 0);
    node_power_off(world.master, SIM_TORN_NONE);
    node_kill(world.second);
    sim_net_heal_all(world.cluster.net);
    node_start(world.master);
    world_run_ms(&world, 4000);
    assert_int_equal(world_force_open(&world, NULL), TERN_OK);
    assert_true(world_await(&world, world_in_sync, 10000));
    uint32_t first = world.sent;
    world_put_some(&world, 0, 5); /* shorter, of a newer epoch */
    node_power_off(world.master, SIM_TORN_NONE);
    node_kill(world.slave);
    node_start(world.second);
    node_start(world.master);
    world_run_ms(&world, 1500); /* it hears of the longer log first */
    node_start(world.slave);
    assert_true(world_await(&world, both_in_sync, 30000));
    for (uint32_t i = first; i < first + 5; i++)
        assert_true(world_holds(&world, world.master, i));
    assert_true(world_await(&world, world_in_step, 10000));
    world_check_equal(world.master, world.second);
    /* The given up tail was never the master's, to be cut off again. */
    assert_int_equal(world_files(world.master, "/store/diverged"), 0);
    world_end(&world);
}

/* Members are known by id and UUID: an empty store in the place of the one that has the tail is not
 * taken for it. */
static void another_store_is_not_taken_for_a_member(void **state)
{
    (void)state;
    prepare_forgetful(19, ROLE_SYNC_MASTER);
    world_start(&world);
    world_put_some(&world, 0, 10);
    flush_master();
    world_put_some(&world, 0, 20);
    node_power_off(world.master, SIM_TORN_NONE);
    node_stop(world.slave);
    struct sim_node *twin = cluster_add_node(&world.cluster, "broker-a", 1);
    node_start(twin);
    node_start(world.master);
    world_run_ms(&world, 20000);
    check_unwritable(world.master);
    node_stop(twin);
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 40000));
    world_check_holds(&world, world.master, 30);
    world_end(&world);
}

/* No set on record: it opens at once, though slaves may exist. */
static void master_without_a_set_on_record_opens_at_once(void **state)
{
    (void)state;
    world_prepare(&world, 12);
    world.master->config.role = ROLE_SYNC_MASTER;
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, 2000));
    cluster_create_topic(&world.cluster, WORLD_TOPIC, WORLD_QUEUES);
    assert_int_equal(world_put(&world, 0), TERN_SLAVE_NOT_AVAILABLE);
    node_kill(world.master);
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, 200));
    world_end(&world);
}

/* HA-16. Whoever left the set is not waited for: only a durable set names who may have more. */
static void master_waits_for_nobody_who_has_left(void **state)
{
    (void)state;
    world_prepare(&world, 13);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 5);
    node_kill(world.slave);
    world_run_ms(&world, 5000);
    assert_int_equal(world_put(&world, 0), TERN_SLAVE_NOT_AVAILABLE);
    node_power_off(world.master, SIM_TORN_NONE);
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, 200));
    world_check_holds(&world, world.master, 6);
    world_end(&world);
}

/* ---- time-outs ---- */

/* Not all answered in recoverFromSlaveTimeout: a SYNC_MASTER stays read-only until forceOpen, which
 * removes the members that did not answer. It serves reads all the time. */
static void sync_master_stays_read_only_until_force_open(void **state)
{
    (void)state;
    world_prepare(&world, 14);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 10);
    node_kill(world.master);
    node_kill(world.slave);
    node_start(world.master); /* ready */
    world_run_ms(&world, 200);
    check_unwritable(world.master);
    assert_int_equal(world_pull(&world, world.master, 0, 0, NO_VERSION).count, 10);
    world_run_ms(&world, 120000);
    check_unwritable(world.master);
    assert_int_equal(set_on_disk().count, 1);
    assert_true(sim_log_count(&world.cluster.sim, "not_open") > 0);
    assert_int_equal(world_force_open(&world, NULL), TERN_OK);
    assert_true(world_await(&world, world_is_open, 2000));
    assert_int_equal(set_on_disk().count, 0);
    assert_int_equal(world_put(&world, 0), TERN_SLAVE_NOT_AVAILABLE);
    assert_int_not_equal(world_force_open(&world, NULL), TERN_OK); /* it is open */
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 10000));
    world_check_equal(world.master, world.slave);
    world_end(&world);
}

/* forceOpen removes only those that did not answer: the tail of one that did is taken. */
static void force_open_keeps_members_that_answered(void **state)
{
    (void)state;
    prepare_forgetful(15, ROLE_SYNC_MASTER);
    world_add_second(&world);
    world_start(&world);
    world_put_some(&world, 0, 10);
    flush_master();
    world_put_some(&world, 0, 20);
    assert_true(world_await(&world, world_in_step, 5000));
    node_power_off(world.master, SIM_TORN_NONE);
    node_kill(world.second);
    node_start(world.master);
    world_run_ms(&world, 31000);
    check_unwritable(world.master);
    assert_int_equal(world_force_open(&world, NULL), TERN_OK);
    assert_true(world_await(&world, world_in_sync, 5000));
    world_check_holds(&world, world.master, 30);
    assert_int_equal(set_on_disk().count, 1);
    assert_int_equal(set_on_disk().members[0].id, 1);
    world_end(&world);
}

/* An ASYNC_MASTER opens after the time-out and warns with what may be missing. */
static void async_master_opens_after_the_time_out_and_warns(void **state)
{
    (void)state;
    world_prepare(&world, 16);
    world_start(&world);
    world_put_some(&world, 0, 10);
    node_kill(world.master);
    node_kill(world.slave);
    node_start(world.master);
    world_run_ms(&world, 29000);
    check_unwritable(world.master);
    world_run_ms(&world, 2000);
    assert_true(world_is_open(&world));
    assert_true(sim_log_count(&world.cluster.sim, "opens_without_members") > 0);
    assert_int_equal(set_on_disk().count, 0);
    world_end(&world);
}

/* ---- opening ---- */

/* Opening for writes lowers offsets that are beyond their queue's end and raises their versions: a
 * consumer that was ahead gets what is written there now. */
static void opening_lowers_offsets_beyond_the_end(void **state)
{
    (void)state;
    int64_t offset;
    struct offset_version version;
    prepare_forgetful(20, ROLE_ASYNC_MASTER);
    world.master->config.recover_timeout_ms = 1000;
    world_start(&world);
    world_consume(&world);
    world_put_some(&world, 0, 10);
    flush_master();
    node_kill(world.slave);
    assert_true(world_await(&world, world_in_sync, 20000));
    flush_master();
    for (int i = 0; i < 20; i++)
        (void)world_put(&world, 0);
    assert_true(world_await(&world, world_all_received, 5000));
    world_run_ms(&world, 12000); /* commits, kept in their own file */
    node_power_off(world.master, SIM_TORN_NONE);
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, 5000));
    int64_t end = world_queue_end(world.master, 0);
    assert_true(end < 30);
    assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version), TERN_OK);
    assert_true(offset <= end);
    assert_true(offset_version_compare(version, NO_VERSION) > 0);
    uint32_t first = world.sent;
    for (int i = 0; i < 30; i++)
        (void)world_put(&world, 0);
    world_run_ms(&world, 20000);
    for (uint32_t i = first; i < world.sent; i++)
        assert_true(world.inbox.times[i] > 0);
    world_end(&world);
}

/* A slave that becomes the master by its configuration does not know what the old one had beyond
 * it: consumers that had read that get what it writes there. */
static void consumers_follow_a_slave_that_became_the_master(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        world_prepare(&world, seed);
        world_start(&world);
        world_consume(&world);
        world_put_some(&world, 0, 10);
        assert_true(world_await(&world, world_in_step, 5000));
        cut(world.master, world.slave);
        sim_net_cut(world.cluster.net, CLUSTER_CLIENT_HOST, world.slave->host);
        world_put_some(&world, 0, 10); /* the old master's alone, and read at once */
        assert_true(world_await(&world, world_all_received, 5000));
        node_kill(world.master);
        node_stop(world.slave);
        world.slave->config.broker_id = 0;
        world.slave->config.role = ROLE_ASYNC_MASTER;
        node_start(world.slave);
        world_run_ms(&world, 1000);
        uint32_t first = world.sent;
        sim_net_heal_all(world.cluster.net);
        for (int i = 0; i < 20; i++)
            (void)world_put_to(&world, world.slave, 0, WORLD_MARK_BYTES, 3000);
        assert_int_equal(world.places[first].queue_off, 10);
        world_run_ms(&world, 60000);
        for (uint32_t i = first; i < world.sent; i++)
            if (!world.inbox.times[i])
                fail_msg("seed %" PRIu64 ": number %" PRIu32 " at offset %" PRId64 " was skipped",
                         seed, i, world.places[i].queue_off);
        world_end(&world);
    }
}

/* HA-17. After any recovery queue offsets go on where the log ends: none twice, no holes. */
static void queue_offsets_go_on_where_the_recovered_log_ends(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        prepare_forgetful(seed, ROLE_SYNC_MASTER);
        world_start(&world);
        world_put_some(&world, 0, 100);
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 20000));
        for (int64_t i = 0; i < 10; i++) {
            assert_int_equal(world_put(&world, 0), TERN_OK);
            assert_int_equal(world.places[world.sent - 1].queue_off, 100 + i);
        }
        assert_true(world_await(&world, world_in_step, 5000));
        assert_int_equal(world_queue_end(world.master, 0), 110);
        world_check_readable(world.slave, 0);
        world_end(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(master_waits_for_all_members),
        cmocka_unit_test(master_takes_the_tail_of_the_highest),
        cmocka_unit_test(higher_epoch_goes_before_the_longer_log),
        cmocka_unit_test(another_store_is_not_taken_for_a_member),
        cmocka_unit_test(master_without_a_set_on_record_opens_at_once),
        cmocka_unit_test(master_waits_for_nobody_who_has_left),
        cmocka_unit_test(sync_master_stays_read_only_until_force_open),
        cmocka_unit_test(force_open_keeps_members_that_answered),
        cmocka_unit_test(async_master_opens_after_the_time_out_and_warns),
        cmocka_unit_test(opening_lowers_offsets_beyond_the_end),
        cmocka_unit_test(consumers_follow_a_slave_that_became_the_master),
        cmocka_unit_test(queue_offsets_go_on_where_the_recovered_log_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
