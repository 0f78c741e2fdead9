/*
 * A broker set under clients that lie, disks that fail at the wrong moment and stores that meet
 * again after two masters wrote, on virtual time. SIM_LOG=1 prints the log.
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
#include "broker/offsets.h"
#include "tests/cluster/set_world.h"

static struct world world;

static void heal(void *arg)
{
    sim_net_heal_all(((struct world *)arg)->cluster.net);
}

static void heal_rival(void *arg)
{
    const struct world *w = arg;
    sim_net_heal(w->cluster.net, w->master->host, w->slave->host);
}

static void cut(const struct sim_node *a, const struct sim_node *b)
{
    sim_net_cut(world.cluster.net, a->host, b->host);
}

static void act_as(struct sim_node *node, int64_t id, int32_t role)
{
    node->config.broker_id = id;
    node->config.role = role;
}

static bool master_stopped(void *arg)
{
    (void)arg;
    return sim_log_count(&world.cluster.sim, "stopped_writing") > 0;
}

static bool slave_alone_is_in_sync(void *arg)
{
    return world_insync(arg) == 1;
}

/* ---- two masters have written ---- */

/*
 * The first slave was master for two lives and wrote `by_rival` messages; the master, a
 * SYNC_MASTER, was opened by force without it, with the second slave. They do not see the first one
 * yet, which runs.
 */
static void two_lines(uint64_t seed, uint32_t by_rival)
{
    world_prepare(&world, seed);
    world_add_second(&world);
    world.master->config.role = ROLE_SYNC_MASTER;
    world.master->config.sync_flush_timeout_ms = 11000;
    world_start(&world);
    world_put_some(&world, 0, 20);
    assert_true(world_await(&world, world_in_step, 5000));
    for (size_t i = 0; i < world.cluster.node_count; i++)
        node_stop(&world.cluster.nodes[i]);

    act_as(world.slave, 0, ROLE_ASYNC_MASTER);
    for (int life = 0; life < 2; life++) {
        node_start(world.slave);
        world_run_ms(&world, 1000);
        for (uint32_t i = 0; i < by_rival; i++)
            (void)world_put_to(&world, world.slave, 0, WORLD_MARK_BYTES, 3000);
        node_stop(world.slave);
    }
    act_as(world.slave, 1, ROLE_SLAVE);

    cut(world.master, world.slave);
    cut(world.second, world.slave);
    node_start(world.master);
    node_start(world.second);
    world_run_ms(&world, 1000);
    assert_int_equal(world_force_open(&world, NULL), TERN_OK);
    assert_true(world_await(&world, slave_alone_is_in_sync, 20000));
    node_start(world.slave);
    world_run_ms(&world, 2000);
}

/*
 * A send waits for the second slave when the master has to stop writing: its bytes are cut, and
 * those of the rival that come to the same place do not make it good.
 */
static void waiting_send_is_not_acknowledged_by_other_bytes(void **state)
{
    (void)state;
    two_lines(3, 40);
    uint32_t number = world.sent;
    cut(world.master, world.second);
    sim_after(world.cluster.sim.sched, ms_to_ns(100), heal_rival, &world);
    sim_after(world.cluster.sim.sched, ms_to_ns(5000), heal, &world);
    enum tern_code code = world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 15000);
    assert_int_equal(code, TERN_FLUSH_SLAVE_TIMEOUT);
    assert_true(master_stopped(NULL));
    assert_true(world_await(&world, world_in_sync, 60000));
    assert_false(world_holds(&world, world.master, number));
    world_put_some(&world, 0, 5);
    assert_true(world_await(&world, world_in_step, 5000));
    world_check_equal(world.master, world.slave);
    world_check_equal(world.master, world.second);
    world_end(&world);
}

/* What was confirmed at a position before the log was cut says nothing about it afterwards. */
static void confirmed_of_a_cut_log_does_not_count_for_new_bytes(void **state)
{
    (void)state;
    two_lines(4, 1);
    world_put_some(&world, 0, 200); /* with the second slave, far beyond the rival's end */
    heal(&world);
    assert_true(world_await(&world, master_stopped, 10000));
    assert_true(world_await(&world, world_in_sync, 60000));
    assert_true(world_queue_end(world.master, 0) < 30);
    cut(world.master, world.slave);
    cut(world.master, world.second);
    assert_int_not_equal(world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 3000), TERN_OK);
    heal(&world);
    assert_true(world_await(&world, world_in_sync, 60000));
    world_end(&world);
}

/* A set that cannot be read at that moment is read a second later. */
static void stopped_master_recovers_when_its_disk_does(void **state)
{
    (void)state;
    two_lines(5, 10);
    struct sim_fs_fault fault = {
        .op = SIM_FS_OPEN, .path_part = "insync", .nth = 1, .errno_value = EIO, .forever = true};
    sim_fs_fail(world.master->disk, &fault);
    heal(&world);
    assert_true(world_await(&world, master_stopped, 10000));
    world_run_ms(&world, 5000);
    assert_int_equal(world_state(world.master), TERN__WIRE__HA_STATE__HA_RECOVERING);
    sim_fs_fail_clear(world.master->disk);
    assert_true(world_await(&world, world_in_sync, 60000));
    world_put_some(&world, 0, 2);
    world_end(&world);
}

/* ---- a disk that fails ---- */

/* forceOpen that came to nothing before the broker was stopped has given up nobody. */
static void forced_opening_that_fails_gives_up_nobody(void **state)
{
    (void)state;
    world_prepare(&world, 6);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 20);
    node_stop(world.master);
    node_stop(world.slave);
    node_start(world.master);
    world_run_ms(&world, 1000);
    struct sim_fs_fault fault = {
        .op = SIM_FS_PWRITEV, .path_part = "epochs", .nth = 1, .errno_value = EIO, .forever = true};
    sim_fs_fail(world.master->disk, &fault);
    assert_int_equal(world_force_open(&world, NULL), TERN_OK);
    world_run_ms(&world, 3000);
    sim_fs_fail_clear(world.master->disk);
    node_stop(world.master);
    node_start(world.master);
    world_run_ms(&world, 3000);
    assert_int_equal(world_state(world.master), TERN__WIRE__HA_STATE__HA_RECOVERING);
    assert_int_equal(world_status(&world, world.master).awaited, 1);
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_end(&world);
}

/* ---- progress and locks ---- */

static void commit_on(void *arg)
{
    struct sim_node *node = arg;
    static int64_t offset;
    int64_t held;
    struct offset_version version;
    if (!node->broker)
        return;
    offset++;
    (void)offsets_query(node->broker->offsets, "busy", WORLD_TOPIC, 0, &held, &version);
    (void)offsets_commit(node->broker->offsets, "busy", WORLD_TOPIC, 0, offset, version, &held,
                         &version);
    sim_after(world.cluster.sim.sched, INT64_C(50000), commit_on, node);
}

/* Consumers that commit at the slave without a pause do not keep the master from opening. */
static void master_opens_while_consumers_commit_at_the_slave(void **state)
{
    (void)state;
    world_prepare(&world, 7);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 20);
    assert_true(world_await(&world, world_in_step, 5000));
    node_stop(world.master);
    world_run_ms(&world, 3000);
    commit_on(world.slave);
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, 5000));
    world_end(&world);
}

/* A version that no table can hold is refused wherever it comes from, and harms nobody. */
static void impossible_version_is_refused(void **state)
{
    (void)state;
    const struct offset_version highest = {UINT64_MAX, UINT64_MAX};
    world_prepare(&world, 8);
    world_start(&world);
    world_put_some(&world, 0, 20);
    assert_int_equal(world_pull(&world, world.master, 0, 0, highest).code, TERN_INVALID);
    assert_int_equal(world_commit(&world, world.master, WORLD_GROUP, 0, 5, highest), TERN_INVALID);
    const struct offset_version high = {OFFSET_VERSION_MAX, OFFSET_VERSION_MAX};
    assert_int_equal(world_commit(&world, world.master, WORLD_GROUP, 0, 5, high), TERN_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_reset(&world, world.master, WORLD_GROUP, 0, 1), TERN_OK);
    world_run_ms(&world, 3000);
    assert_int_equal(world_state(world.slave), TERN__WIRE__HA_STATE__HA_FOLLOWING);
    int64_t offset;
    struct offset_version version;
    assert_int_equal(world_query(&world, world.slave, WORLD_GROUP, 0, &offset, &version), TERN_OK);
    assert_int_equal(offset, 1);
    assert_true(offset_version_compare(version, high) > 0);
    world_end(&world);
}

/*
 * A master that is back, and looks at its slaves before it opens, will grant locks itself: a slave
 * that has heard it grants no new ones, though no nameserver lists the master yet.
 */
static void slave_grants_no_new_lock_once_the_master_looks_at_it(void **state)
{
    (void)state;
    world_prepare(&world, 9);
    world_add_second(&world);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 5);
    node_stop(world.master);
    node_stop(world.second);
    world_run_ms(&world, 70000);
    assert_true(world_lock(&world, world.slave, "first", 0));
    sim_net_cut(world.cluster.net, world.master->host, CLUSTER_NAMESRV_HOST);
    node_start(world.master); /* it waits for the second slave */
    world_run_ms(&world, 3000);
    assert_false(world_is_listed(&world, world.master));
    assert_false(world_lock(&world, world.slave, "second", 1));
    assert_true(world_lock(&world, world.slave, "first", 0)); /* renewed */
    heal(&world);
    node_start(world.second);
    assert_true(world_await(&world, world_in_sync, 60000));
    assert_false(world_lock(&world, world.master, "second", 0));
    assert_true(world_lock(&world, world.master, "first", 0));
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_send_is_not_acknowledged_by_other_bytes),
        cmocka_unit_test(confirmed_of_a_cut_log_does_not_count_for_new_bytes),
        cmocka_unit_test(stopped_master_recovers_when_its_disk_does),
        cmocka_unit_test(forced_opening_that_fails_gives_up_nobody),
        cmocka_unit_test(master_opens_while_consumers_commit_at_the_slave),
        cmocka_unit_test(impossible_version_is_refused),
        cmocka_unit_test(slave_grants_no_new_lock_once_the_master_looks_at_it),
    };
    return cmocka_run_group_tests_name("set hostile", tests, NULL, NULL);
}
