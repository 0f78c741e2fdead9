/*
 * The rules of replication about consumers' progress, one test each. SIM_LOG=1 prints the log.
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

static void begin(uint64_t seed, int32_t role)
{
    world_prepare(&world, seed);
    world.master->config.role = role;
    world_start(&world);
}

struct held {
    enum tern_code code;
    int64_t offset;
    struct offset_version version;
};

static struct held held_at(struct sim_node *node, int32_t queue_id)
{
    struct held held;
    held.code = world_query(&world, node, WORLD_GROUP, queue_id, &held.offset, &held.version);
    return held;
}

static void commit(struct sim_node *node, int64_t offset, struct offset_version version)
{
    assert_int_equal(world_commit(&world, node, WORLD_GROUP, 0, offset, version), TERN_OK);
}

static void restart_master(void)
{
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 40000));
}

/* ---- versions ---- */

/* Within a version, stored is the maximum: a late, lower commit changes nothing, at either. */
static void stored_is_the_maximum_of_a_version(void **state)
{
    (void)state;
    begin(1, ROLE_SYNC_MASTER);
    world_put_some(&world, 0, 50);
    commit(world.master, 40, NO_VERSION);
    commit(world.master, 12, NO_VERSION);
    assert_int_equal(held_at(world.master, 0).offset, 40);
    node_kill(world.master);
    commit(world.slave, 20, NO_VERSION);
    assert_int_equal(held_at(world.slave, 0).offset, 40);
    commit(world.slave, 45, NO_VERSION);
    restart_master();
    assert_int_equal(held_at(world.master, 0).offset, 45);
    world_end(&world);
}

/* H-5. A recovering master has taken its slave's progress, and the slave does not
 * follow yet: what is committed there is promised when the master has it, too. */
static void progress_made_while_the_master_recovers_is_promised_by_both(void **state)
{
    (void)state;
    for (uint64_t seed = 20; seed < 26; seed++) {
        begin(seed, ROLE_SYNC_MASTER);
        world_put_some(&world, 0, 50);
        commit(world.master, 10, NO_VERSION);
        node_kill(world.master);
        commit(world.slave, 20, NO_VERSION);
        struct offset_version version = held_at(world.slave, 0).version;
        node_start(world.master);
        assert_true(world_await(&world, world_is_open, 20000));
        enum tern_code code = world_commit(&world, world.slave, WORLD_GROUP, 0, 30, version);
        if (code == TERN_OK)
            assert_true(held_at(world.master, 0).offset >= 30);
        world_end(&world);
    }
}

/* …and when that master is gone again before it takes anything, by the slave alone, as before. */
static void slave_promises_alone_when_the_recovering_master_is_gone(void **state)
{
    (void)state;
    world_prepare(&world, 16);
    world_add_second(&world);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 50);
    commit(world.master, 10, NO_VERSION);
    node_kill(world.master);
    node_kill(world.second);
    commit(world.slave, 20, NO_VERSION);
    node_start(world.master); /* waits for the second, and has asked the slave */
    world_run_ms(&world, 3000);
    assert_int_equal(world_state(world.master), TERN__WIRE__HA_STATE__HA_RECOVERING);
    assert_int_not_equal(world_commit(&world, world.slave, WORLD_GROUP, 0, 30, NO_VERSION),
                         TERN_OK);
    node_kill(world.master);
    world_run_ms(&world, 2000);
    commit(world.slave, 40, NO_VERSION);
    world_end(&world);
}

/* After a reset a pull with the older version gets (version, offset) and no messages, a commit with
 * it is refused, at the master and at its slave. */
static void older_versions_are_told_and_refused(void **state)
{
    (void)state;
    begin(2, ROLE_SYNC_MASTER);
    world_put_some(&world, 0, 50);
    commit(world.master, 40, NO_VERSION);
    assert_int_equal(world_reset(&world, world.master, WORLD_GROUP, 0, 7), TERN_OK);
    struct sim_node *nodes[2] = {world.master, world.slave};
    for (int i = 0; i < 2; i++) {
        struct held held = held_at(nodes[i], 0);
        assert_int_equal(held.offset, 7);
        assert_true(offset_version_compare(held.version, NO_VERSION) > 0);
        struct world_pull pull = world_pull(&world, nodes[i], 0, 40, NO_VERSION);
        assert_int_equal(pull.code, TERN_OFFSET_VERSION_OLD);
        assert_int_equal(pull.count, 0);
        assert_true(pull.has_version && pull.committed == 7);
        assert_int_equal(offset_version_compare(pull.version, held.version), 0);
        assert_int_equal(world_commit(&world, nodes[i], WORLD_GROUP, 0, 45, NO_VERSION),
                         TERN_OFFSET_VERSION_OLD);
        assert_int_equal(held_at(nodes[i], 0).offset, 7);
        assert_int_equal(world_pull(&world, nodes[i], 0, 7, held.version).code, TERN_OK);
    }
    world_end(&world);
}

/* …and so is a pull that was parked before, where the reset was made and at a slave: at once, no
 * message has to come. */
static void parked_pull_is_told_of_a_reset(void **state)
{
    (void)state;
    struct world_call calls[2];
    begin(15, ROLE_SYNC_MASTER);
    world_put_some(&world, 0, 50);
    assert_true(world_await(&world, world_in_step, 5000));
    world_pull_start(&world, world.master, 0, 50, NO_VERSION, &calls[0]);
    world_pull_start(&world, world.slave, 0, 50, NO_VERSION, &calls[1]);
    world_run_ms(&world, 1000);
    assert_false(calls[0].done || calls[1].done);
    assert_int_equal(world_reset(&world, world.master, WORLD_GROUP, 0, 7), TERN_OK);
    world_run_ms(&world, 1000);
    for (int i = 0; i < 2; i++) {
        struct world_pull pull = world_pull_end(&calls[i]);
        assert_int_equal(pull.code, TERN_OFFSET_VERSION_OLD);
        assert_int_equal(pull.count, 0);
        assert_true(pull.has_version && pull.committed == 7);
    }
    world_end(&world);
}

/* A client adopts a higher version only together with the broker's offset: a running consumer reads
 * again from there, each message, and no late commit of the old window undoes the reset. */
static void consumer_adopts_a_reset_with_its_offset(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        begin(seed, ROLE_SYNC_MASTER);
        world_consume(&world);
        world_put_some(&world, 0, 100);
        assert_true(world_await(&world, world_all_received, 5000));
        assert_int_equal(world_reset(&world, world.master, WORLD_GROUP, 0, 30), TERN_OK);
        if (seed % 2) /* the news comes by the pull, from the slave */
            node_kill(world.master);
        world_run_ms(&world, 30000);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(world.inbox.times[i], i < 30 ? 1 : 2);
        if (seed % 2)
            restart_master();
        world_run_ms(&world, 10000);
        assert_int_equal(held_at(world.master, 0).offset, 100);
        world_end(&world);
    }
}

/* Resets only on a writable master: no slave, and no recovering master, takes one. */
static void resets_only_on_a_writable_master(void **state)
{
    (void)state;
    begin(3, ROLE_SYNC_MASTER);
    world_put_some(&world, 0, 50);
    commit(world.master, 40, NO_VERSION);
    assert_int_not_equal(world_reset(&world, world.slave, WORLD_GROUP, 0, 7), TERN_OK);
    node_kill(world.master);
    assert_int_not_equal(world_reset(&world, world.slave, WORLD_GROUP, 0, 7), TERN_OK);
    node_kill(world.slave);
    node_start(world.master);
    assert_int_not_equal(world_reset(&world, world.master, WORLD_GROUP, 0, 7), TERN_OK);
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 20000));
    assert_int_equal(held_at(world.master, 0).offset, 40);
    world_end(&world);
}

/* A version is (epoch number, counter): a reset made after a fail-over is above one made before. */
static void resets_of_later_epochs_are_higher(void **state)
{
    (void)state;
    begin(4, ROLE_SYNC_MASTER);
    world_put_some(&world, 0, 50);
    commit(world.master, 5, NO_VERSION);
    struct offset_version last = NO_VERSION;
    for (int64_t life = 0; life < 4; life++) {
        assert_int_equal(world_reset(&world, world.master, WORLD_GROUP, 0, 10 + life), TERN_OK);
        struct held held = held_at(world.master, 0);
        assert_int_equal(held.offset, 10 + life);
        assert_true(offset_version_compare(held.version, last) > 0);
        last = held.version;
        node_power_off(world.master, (enum sim_torn)life);
        restart_master();
        assert_int_equal(held_at(world.master, 0).offset, 10 + life);
        assert_true(offset_version_compare(held_at(world.master, 0).version, last) >= 0);
    }
    world_end(&world);
}

/* ---- merging ---- */

/* MD-07. Copies merge in both directions: what was consumed at the slave while the master was away
 * is not taken back by it, and nothing comes twice. */
static void returning_master_does_not_take_progress_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        begin(seed, seed % 2 ? ROLE_SYNC_MASTER : ROLE_ASYNC_MASTER);
        world_consume(&world);
        world_put_some(&world, 0, 100);
        assert_true(world_await(&world, world_in_step, 5000));
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        assert_true(world_await(&world, world_all_received, 5000));
        world_run_ms(&world, 12000);
        assert_int_equal(held_at(world.slave, 0).offset, 100);
        tern_push_consumer_destroy(world.consumer);
        restart_master();
        assert_int_equal(held_at(world.master, 0).offset, 100);
        uint32_t before = world.inbox.count;
        world_consume(&world);
        world_run_ms(&world, 10000);
        assert_int_equal(world.inbox.count, before);
        world_end(&world);
    }
}

/* …and while both run: what was committed at either while nothing passed between them is at both
 * afterwards, the higher offset. */
static void progress_of_both_sides_is_merged(void **state)
{
    (void)state;
    begin(12, ROLE_ASYNC_MASTER);
    world_put_some(&world, 0, 50);
    world_put_some(&world, 1, 50);
    assert_true(world_await(&world, world_in_step, 5000));
    sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
    world_run_ms(&world, 5000); /* the slave is alone */
    struct sim_node *nodes[2] = {world.master, world.slave};
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(world_commit(&world, nodes[i], WORLD_GROUP, i, 48, NO_VERSION), TERN_OK);
        assert_int_equal(world_commit(&world, nodes[1 - i], WORLD_GROUP, i, 10, NO_VERSION),
                         TERN_OK);
    }
    sim_net_heal_all(world.cluster.net);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_run_ms(&world, 2000);
    for (int i = 0; i < 4; i++)
        assert_int_equal(held_at(nodes[i % 2], i / 2).offset, 48);
    world_end(&world);
}

/* The higher version goes before the higher offset: a reset that the slave has is not undone by a
 * commit of the version before, wherever that was made. */
static void higher_version_goes_before_the_higher_offset(void **state)
{
    (void)state;
    begin(5, ROLE_ASYNC_MASTER);
    world_put_some(&world, 0, 50);
    commit(world.master, 20, NO_VERSION);
    world_run_ms(&world, 1000);
    sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
    assert_int_equal(world_reset(&world, world.master, WORLD_GROUP, 0, 5), TERN_OK);
    (void)world_commit(&world, world.slave, WORLD_GROUP, 0, 48, NO_VERSION);
    assert_int_equal(held_at(world.slave, 0).offset, 48);
    sim_net_heal_all(world.cluster.net);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_run_ms(&world, 2000);
    assert_int_equal(held_at(world.master, 0).offset, 5);
    assert_int_equal(held_at(world.slave, 0).offset, 5);
    world_end(&world);
}

/* A SYNC_MASTER answers a commit after the in-sync set has it: what was answered survives. */
static void answered_commits_survive_the_master(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        begin(seed, ROLE_SYNC_MASTER);
        world_put_some(&world, 0, 50);
        int64_t last = (int64_t)(5 + seed * 3 % 40);
        for (int64_t offset = 1; offset <= last; offset++)
            commit(world.master, offset, NO_VERSION);
        sim_net_crash(world.cluster.net, world.master->host);
        assert_int_equal(held_at(world.slave, 0).offset, last);
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        restart_master();
        assert_int_equal(held_at(world.master, 0).offset, last);
        world_end(&world);
    }
}

/* …and without the others it says that it is not promised. */
static void commit_that_the_set_lacks_is_not_promised(void **state)
{
    (void)state;
    begin(6, ROLE_SYNC_MASTER);
    world_put_some(&world, 0, 50);
    sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
    assert_int_not_equal(world_commit(&world, world.master, WORLD_GROUP, 0, 30, NO_VERSION),
                         TERN_OK);
    sim_net_heal_all(world.cluster.net);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_end(&world);
}

/* ---- who decides ---- */

/* OF-04. A slave never answers "no progress" but PROGRESS_UNKNOWN: nobody starts from there. */
static void slave_never_says_that_there_is_no_progress(void **state)
{
    (void)state;
    begin(7, ROLE_SYNC_MASTER);
    world_put_some(&world, 0, 50);
    assert_int_equal(held_at(world.master, 0).code, TERN_QUERY_NOT_FOUND);
    assert_int_equal(held_at(world.slave, 0).code, TERN_PROGRESS_UNKNOWN);
    node_kill(world.master);
    world_run_ms(&world, 120000);
    assert_int_equal(held_at(world.slave, 0).code, TERN_PROGRESS_UNKNOWN);
    world_consume(&world); /* a new group: where it begins is the master's to say */
    world_run_ms(&world, 20000);
    assert_int_equal(world.inbox.count, 0);
    assert_int_equal(held_at(world.slave, 0).code, TERN_PROGRESS_UNKNOWN);
    restart_master();
    assert_true(world_await(&world, world_all_received, 20000));
    assert_int_equal(world.inbox.count, 50);
    world_end(&world);
}

/* A master that came back answers offset queries only after merging its slaves' offsets. */
static void returned_master_answers_queries_after_merging(void **state)
{
    (void)state;
    for (int sync = 0; sync < 2; sync++) {
        begin(8, sync ? ROLE_SYNC_MASTER : ROLE_ASYNC_MASTER);
        world_put_some(&world, 0, 50);
        commit(world.master, 10, NO_VERSION);
        world_run_ms(&world, 1000);
        node_kill(world.master);
        commit(world.slave, 45, NO_VERSION);
        assert_int_equal(held_at(world.slave, 0).offset, 45);
        sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
        node_start(world.master);
        world_run_ms(&world, 20000);
        assert_int_equal(held_at(world.master, 0).code, TERN_PROGRESS_UNKNOWN);
        assert_int_equal(held_at(world.master, 1).code, TERN_PROGRESS_UNKNOWN);
        sim_net_heal_all(world.cluster.net);
        assert_true(world_await(&world, world_in_sync, 20000));
        assert_int_equal(held_at(world.master, 0).offset, 45);
        assert_int_equal(held_at(world.master, 1).code, TERN_QUERY_NOT_FOUND);
        world_end(&world);
    }
}

/* …if none answers, after recoverFromSlaveTimeout, though it stays read-only. */
static void returned_master_answers_queries_after_the_time_out(void **state)
{
    (void)state;
    begin(9, ROLE_SYNC_MASTER);
    world_put_some(&world, 0, 50);
    commit(world.master, 10, NO_VERSION);
    node_kill(world.master);
    node_kill(world.slave);
    node_start(world.master);
    world_run_ms(&world, 28000);
    assert_int_equal(held_at(world.master, 0).code, TERN_PROGRESS_UNKNOWN);
    world_run_ms(&world, 3000);
    assert_int_equal(world_state(world.master), TERN__WIRE__HA_STATE__HA_RECOVERING);
    assert_int_equal(held_at(world.master, 0).offset, 10);
    world_end(&world);
}

/* ---- a master that stood still ---- */

/* As if the master's process had not run since then: its task is that late. */
static void stand_still(int64_t since_ns)
{
    struct ha *ha = world.master->broker->ha;
    atomic_store(&ha->ticked_ns, since_ns);
}

static bool is_sure(void *arg)
{
    return ha_decides_progress(((struct world *)arg)->master->broker->ha);
}

static int64_t now_ns(void)
{
    return clock_mono_ns(world.cluster.sim.env.clock);
}

/* Two slaves, 10 committed everywhere; cut off from their master both take it for dead, and promise
 * 45 by one of them. Returns since when. */
static int64_t promise_meanwhile(uint64_t seed)
{
    world_prepare(&world, seed);
    world_add_second(&world);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 50);
    commit(world.master, 10, NO_VERSION);
    assert_true(world_await(&world, world_in_step, 5000));
    int64_t since_ns = now_ns();
    sim_net_cut(world.cluster.net, world.master->host, world.slave->host);
    sim_net_cut(world.cluster.net, world.master->host, world.second->host);
    world_run_ms(&world, 5000);
    commit(world.slave, 45, NO_VERSION);
    return since_ns;
}

/* A master that stood still while its slaves took it for dead does not say how far a group is, and
 * grants no locks, until as many as were in the set have given what they promised: not because they
 * have left the set since, and not by the word of one of two. */
static void master_that_stood_still_asks_its_slaves_first(void **state)
{
    (void)state;
    int64_t since_ns = promise_meanwhile(13);
    stand_still(since_ns);
    int64_t noticed_ns = now_ns();
    assert_int_equal(held_at(world.master, 0).code, TERN_PROGRESS_UNKNOWN);
    assert_false(world_lock(&world, world.master, "10.0.0.9@first", 0));
    node_kill(world.slave);
    node_kill(world.second);
    sim_net_heal_all(world.cluster.net);
    world_run_ms(&world, 1000);
    assert_int_equal(world_insync(&world), 0);
    assert_int_equal(held_at(world.master, 0).code, TERN_PROGRESS_UNKNOWN);
    node_start(world.second);
    world_run_ms(&world, 1500);
    assert_int_equal(world_insync(&world), 1);
    assert_int_equal(held_at(world.master, 0).code, TERN_PROGRESS_UNKNOWN);
    assert_false(world_lock(&world, world.master, "10.0.0.9@first", 0));
    node_start(world.slave);
    assert_true(world_await(&world, is_sure, 5000));
    assert_true(now_ns() - noticed_ns < ms_to_ns(4900)); /* it has not just given up */
    assert_int_equal(held_at(world.master, 0).offset, 45);
    assert_true(world_lock(&world, world.master, "10.0.0.9@first", 0));
    world_end(&world);
}

/* …nor for ever: who has not come back by then is gone. */
static void master_that_stood_still_does_not_wait_for_ever(void **state)
{
    (void)state;
    int64_t since_ns = promise_meanwhile(14);
    stand_still(since_ns);
    assert_int_equal(held_at(world.master, 1).code, TERN_PROGRESS_UNKNOWN);
    world_run_ms(&world, 4000);
    assert_int_equal(held_at(world.master, 1).code, TERN_PROGRESS_UNKNOWN);
    world_run_ms(&world, 2000);
    assert_int_equal(held_at(world.master, 1).code, TERN_QUERY_NOT_FOUND);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_is_the_maximum_of_a_version),
        cmocka_unit_test(progress_made_while_the_master_recovers_is_promised_by_both),
        cmocka_unit_test(slave_promises_alone_when_the_recovering_master_is_gone),
        cmocka_unit_test(older_versions_are_told_and_refused),
        cmocka_unit_test(parked_pull_is_told_of_a_reset),
        cmocka_unit_test(consumer_adopts_a_reset_with_its_offset),
        cmocka_unit_test(resets_only_on_a_writable_master),
        cmocka_unit_test(resets_of_later_epochs_are_higher),
        cmocka_unit_test(returning_master_does_not_take_progress_back),
        cmocka_unit_test(progress_of_both_sides_is_merged),
        cmocka_unit_test(higher_version_goes_before_the_higher_offset),
        cmocka_unit_test(answered_commits_survive_the_master),
        cmocka_unit_test(commit_that_the_set_lacks_is_not_promised),
        cmocka_unit_test(slave_never_says_that_there_is_no_progress),
        cmocka_unit_test(returned_master_answers_queries_after_merging),
        cmocka_unit_test(returned_master_answers_queries_after_the_time_out),
        cmocka_unit_test(master_that_stood_still_asks_its_slaves_first),
        cmocka_unit_test(master_that_stood_still_does_not_wait_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
