/*
 * The rules of replication about the in-sync set: who is in it, what counts,
 * what is answered, and what consumers may see, one test each. SIM_LOG=1 prints
 * the log.
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

static int64_t now_ms(void)
{
    return clock_mono_ns(world.cluster.sim.env.clock) / 1000000;
}

static bool nobody_in_sync(void *arg)
{
    return world_insync(arg) == 0;
}

static bool one_in_sync(void *arg)
{
    return world_insync(arg) == 1;
}

static void cut_slave(struct sim_node *slave)
{
    sim_net_cut(world.cluster.net, world.master->host, slave->host);
}

static void fail_insync(void)
{
    struct sim_fs_fault fault = {
        .op = SIM_FS_PWRITEV, .path_part = "insync", .nth = 1, .errno_value = EIO, .forever = true};
    sim_fs_fail(world.master->disk, &fault);
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

/* With this role, flushing everywhere, and k; `slaves` of them. */
static void prepare(uint64_t seed, int32_t flush_type, const char *replicas, int slaves)
{
    world_prepare(&world, seed);
    if (slaves > 1)
        world_add_second(&world);
    world.master->config.role = ROLE_SYNC_MASTER;
    snprintf(world.master->config.in_sync_replicas_text,
             sizeof world.master->config.in_sync_replicas_text, "%s", replicas);
    for (size_t i = 0; i < world.cluster.node_count; i++)
        world.cluster.nodes[i].config.flush_type = flush_type;
}

static int64_t end_of(uint32_t number)
{
    return world.places[number].phys_off + WORLD_MARK_BYTES; /* of its body, at least */
}

/* ---- counting ---- */

/* A counted end is the flushed end when the master has SYNC_FLUSH: what was
 * answered OK is on the slave's disk, whatever a power loss of both machines
 * leaves. */
static void sync_flush_counts_what_is_on_the_slaves_disk(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        prepare(seed, FLUSH_ASYNC, "1", 1);
        world.master->config.flush_type = FLUSH_SYNC;
        world_start(&world);
        uint32_t count = 5 + (uint32_t)(seed * 7 % 20);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(world_put(&world, 0), TERN_OK);
            assert_true(world_at(world.slave).flushed >= end_of(i));
            assert_true(world_at(world.master).flushed >= end_of(i));
        }
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        node_power_off(world.slave, (enum sim_torn)(seed % 4));
        node_start(world.slave);
        world_check_holds(&world, world.slave, count);
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 40000));
        world_check_holds(&world, world.master, count);
        world_end(&world);
    }
}

/* …and a slave whose disk does not take it does not count, though it has the bytes. */
static void sync_flush_does_not_count_what_is_only_appended(void **state)
{
    (void)state;
    struct sim_fs_fault fault = {.op = SIM_FS_SYNC, .nth = 1, .errno_value = EIO, .forever = true};
    prepare(3, FLUSH_SYNC, "1", 1);
    world_start(&world);
    world_put_some(&world, 0, 10);
    sim_fs_fail(world.slave->disk, &fault);
    assert_int_not_equal(world_put(&world, 0), TERN_OK);
    assert_true(world_at(world.slave).appended >= end_of(10));
    node_kill(world.slave);
    world_end(&world);
}

/* …else the appended end: an answer does not wait for any disk. */
static void async_flush_counts_what_is_appended(void **state)
{
    (void)state;
    prepare(2, FLUSH_ASYNC, "1", 1);
    for (size_t i = 0; i < 2; i++)
        world.cluster.nodes[i].config.flush_interval_ms = 600000;
    world_start(&world);
    for (uint32_t i = 0; i < 50; i++) {
        int64_t begin = now_ms();
        assert_int_equal(world_put(&world, 0), TERN_OK);
        assert_true(now_ms() - begin < 100);
        assert_true(world_at(world.slave).appended >= end_of(i));
    }
    node_power_off(world.master, SIM_TORN_NONE);
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 40000));
    world_check_holds(&world, world.master, 50);
    world_end(&world);
}

/* An answer waits for k members: with inSyncReplicas 2, and with all, both have
 * what is OK. */
static void an_answer_waits_for_k_members(void **state)
{
    (void)state;
    static const char *const replicas[] = {"2", "all"};
    for (size_t i = 0; i < 2; i++) {
        prepare(3 + i, FLUSH_SYNC, replicas[i], 2);
        world_start(&world);
        for (uint32_t n = 0; n < 30; n++) {
            assert_int_equal(world_put(&world, 0), TERN_OK);
            assert_true(world_at(world.slave).flushed >= end_of(n));
            assert_true(world_at(world.second).flushed >= end_of(n));
        }
        cut_slave(world.second); /* in the set until it is noticed: nothing is OK
                                    without it */
        enum tern_code code = world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 1000);
        assert_int_not_equal(code, TERN_OK);
        assert_true(world_await(&world, one_in_sync, 20000));
        world_put_some(&world, 0, 5); /* k is the smaller of inSyncReplicas and the set's size */
        sim_net_heal_all(world.cluster.net);
        assert_true(world_await(&world, world_in_sync, 20000));
        world_check_equal(world.master, world.second);
        world_end(&world);
    }
}

/* With k = 1 of two, the slower one keeps nobody waiting, and the loss of
 * master and one loses nothing when the one with everything answers. */
static void one_of_two_is_enough_by_default(void **state)
{
    (void)state;
    prepare(5, FLUSH_SYNC, "1", 2);
    world_start(&world);
    cut_slave(world.second);
    world_put_some(&world, 0, 50);
    sim_net_heal_all(world.cluster.net);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_end(&world);
}

/* Acknowledgements of a slave that is not in the set on the disk do not count:
 * it joins when that is written, and until then the master is alone. */
static void acknowledgements_count_once_membership_is_durable(void **state)
{
    (void)state;
    prepare(6, FLUSH_SYNC, "1", 1);
    world_start(&world);
    node_kill(world.slave);
    assert_true(world_await(&world, nobody_in_sync, 20000));
    fail_insync();
    node_start(world.slave);
    world_run_ms(&world, 5000);
    for (int i = 0; i < 10; i++)
        assert_int_not_equal(world_put(&world, 0), TERN_OK);
    assert_int_equal(world_at(world.slave).whole, world_at(world.master).whole);
    sim_fs_fail_clear(world.master->disk);
    assert_true(world_await(&world, world_in_sync, 10000));
    world_put_some(&world, 0, 5);
    world_end(&world);
}

/* Before a member leaves, the smaller set is on the disk, and only then
 * anything is answered or confirmed without it. */
static void nothing_is_confirmed_without_a_member_before_it_has_left(void **state)
{
    (void)state;
    prepare(7, FLUSH_SYNC, "1", 1);
    world_start(&world);
    world_put_some(&world, 0, 10);
    int64_t confirmed = world_status(&world, world.master).confirmed;
    fail_insync();
    node_kill(world.slave);
    for (int i = 0; i < 3; i++) {
        enum tern_code code = world_put(&world, 0);
        assert_int_not_equal(code, TERN_OK);
        assert_int_not_equal(code, TERN_SLAVE_NOT_AVAILABLE);
        world_run_ms(&world, 6000);
        assert_int_equal(world_status(&world, world.master).confirmed, confirmed);
        assert_int_equal(world_insync(&world), 1);
    }
    sim_fs_fail_clear(world.master->disk);
    assert_true(world_await(&world, nobody_in_sync, 10000));
    assert_int_equal(world_put(&world, 0), TERN_SLAVE_NOT_AVAILABLE);
    assert_int_equal(set_on_disk().count, 0);
    world_end(&world);
}

/* Before a member leaves, the master flushes its log: then what it alone has of
 * the member's acknowledgements survives its own power loss, and it opens
 * without the member. */
static void log_is_flushed_before_a_member_leaves(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        prepare(seed, FLUSH_ASYNC, "1", 1);
        world.master->config.flush_interval_ms = 600000;
        world_start(&world);
        world_put_some(&world, 0, 40);
        node_kill(world.slave);
        assert_true(world_await(&world, nobody_in_sync, 20000));
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        node_start(world.master);
        assert_true(world_await(&world, world_is_open, 1000)); /* nobody is on record */
        world_check_holds(&world, world.master, 40);
        world_end(&world);
    }
}

/* …and writes consumers' progress: what was answered with the member's word is not the master's
 * memory alone from then on. */
static void progress_is_written_before_a_member_leaves(void **state)
{
    (void)state;
    static const struct offset_version none = {0, 0};
    struct offset_version version;
    int64_t offset;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        prepare(seed, FLUSH_ASYNC, "1", 1);
        world_start(&world);
        world_put_some(&world, 0, 40);
        assert_int_equal(world_commit(&world, world.master, WORLD_GROUP, 0, 10, none), TERN_OK);
        world_run_ms(&world, 1000); /* a new queue of a group is written by itself */
        assert_int_equal(world_commit(&world, world.master, WORLD_GROUP, 0, 30, none), TERN_OK);
        node_kill(world.slave);
        assert_true(world_await(&world, nobody_in_sync, 20000));
        node_power_off(world.master, (enum sim_torn)(seed % 4));
        node_start(world.master);
        assert_true(world_await(&world, world_is_open, 1000));
        assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version),
                         TERN_OK);
        assert_int_equal(offset, 30);
        world_end(&world);
    }
}

/* The current set is kept by id and UUID; a new UUID takes the place under its
 * id only in sync. */
static void new_uuid_replaces_the_old_one_once_in_sync(void **state)
{
    (void)state;
    prepare(8, FLUSH_SYNC, "1", 1);
    world_start(&world);
    world_put_segments(&world, 3);
    struct insync_set before = set_on_disk();
    assert_int_equal(before.count, 1);
    assert_int_equal(before.members[0].id, 1);
    assert_memory_equal(before.members[0].uuid, world.slave->broker->store_uuid, 16);
    fail_insync(); /* the old one cannot leave */
    node_kill(world.slave);
    node_new_disk(world.slave);
    node_start(world.slave);
    world_run_ms(&world, 20);
    struct insync_set still = set_on_disk();
    assert_int_equal(still.count, 1);
    assert_memory_equal(before.members[0].uuid, still.members[0].uuid, 16);
    assert_int_not_equal(world_put(&world, 0), TERN_OK);
    sim_fs_fail_clear(world.master->disk);
    for (int i = 0; i < 3000 && !world_in_sync(&world); i++) {
        struct insync_set set = set_on_disk();
        if (set.count == 1 && memcmp(set.members[0].uuid, world.slave->broker->store_uuid, 16) == 0)
            assert_true(world_at(world.slave).whole >= world.places[world.sent - 2].phys_off);
        world_run_ms(&world, 5);
    }
    assert_true(world_in_sync(&world));
    assert_memory_equal(set_on_disk().members[0].uuid, world.slave->broker->store_uuid, 16);
    world_put_some(&world, 0, 3);
    world_end(&world);
}

/* A slave joins when its counted end reaches the confirmed end, not before. */
static void slave_that_lacks_confirmed_bytes_is_not_in_the_set(void **state)
{
    (void)state;
    prepare(9, FLUSH_SYNC, "1", 1);
    world_start(&world);
    node_kill(world.slave);
    assert_true(world_await(&world, nobody_in_sync, 20000));
    world_put_segments(&world, 4);
    int64_t goal = world_at(world.master).whole;
    node_start(world.slave);
    for (int i = 0; i < 10000 && world_insync(&world) == 0; i++)
        sim_run_for(world.cluster.sim.sched, 200000);
    assert_int_equal(world_insync(&world), 1);
    assert_true(world_at(world.slave).flushed >= goal);
    world_end(&world);
}

/* ---- leaving ---- */

/* A slave whose link is down leaves at once. */
static void slave_without_link_leaves_at_once(void **state)
{
    (void)state;
    prepare(16, FLUSH_SYNC, "1", 1);
    world_start(&world);
    world_put_some(&world, 0, 3);
    node_kill(world.slave);
    assert_true(world_await(&world, nobody_in_sync, 1000));
    assert_int_equal(world_put(&world, 0), TERN_SLAVE_NOT_AVAILABLE);
    world_end(&world);
}

/* A silent one leaves after haMaxTimeSlaveNotCatchup. */
static void silent_slave_leaves_in_time(void **state)
{
    (void)state;
    prepare(10, FLUSH_SYNC, "1", 1);
    world_start(&world);
    int64_t begin = now_ms();
    cut_slave(world.slave);
    assert_true(world_await(&world, nobody_in_sync, 16000));
    assert_true(now_ms() - begin <= 15100);
    assert_int_equal(world_put(&world, 0), TERN_SLAVE_NOT_AVAILABLE);
    sim_net_heal_all(world.cluster.net);
    assert_true(world_await(&world, world_in_sync, 10000));
    world_put_some(&world, 0, 3);
    world_end(&world);
}

/* HA-11. A slave whose disk is full keeps its link and falls behind: sends end
 * at their own deadlines, then it leaves the set, then they are answered at
 * once; with room again it joins. */
static void refusing_slave_leaves_and_sends_go_on(void **state)
{
    (void)state;
    prepare(11, FLUSH_SYNC, "1", 1);
    sim_fs_set_capacity(world.slave->disk, 8 << 20);
    world.slave->config.clean_interval_ms = 600000; /* nor does it make room */
    world_start(&world);
    while (world_at(world.slave).whole == world_at(world.master).whole) /* what is prepared */
        (void)world_put_to(&world, world.master, 0, 60 << 10, 500);
    int64_t begin = now_ms();
    enum tern_code code = world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 1000);
    assert_true(code == TERN_FLUSH_SLAVE_TIMEOUT || code == TERN_SLAVE_NOT_AVAILABLE ||
                code == TERN_TIMEOUT);
    assert_true(now_ms() - begin <= 1200);
    assert_true(world_await(&world, nobody_in_sync, 20000));
    begin = now_ms();
    assert_int_equal(world_put(&world, 0), TERN_SLAVE_NOT_AVAILABLE);
    assert_true(now_ms() - begin <= 200);
    world_run_ms(&world, 20000);
    sim_fs_set_capacity(world.slave->disk, INT64_MAX);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_put_some(&world, 0, 3);
    world_end(&world);
}

/* With an empty set the master alone counts: sends that wait get
 * SLAVE_NOT_AVAILABLE at once, with an event and a metric. */
static void sends_that_wait_are_answered_when_the_set_is_empty(void **state)
{
    (void)state;
    prepare(12, FLUSH_SYNC, "1", 1);
    world.master->config.ha_max_behind_ms = 2000;
    world_start(&world);
    world_put_some(&world, 0, 3);
    uint64_t before = atomic_load(&world.master->broker->no_replica);
    cut_slave(world.slave);
    int64_t begin = now_ms();
    enum tern_code code = world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 30000);
    assert_int_equal(code, TERN_SLAVE_NOT_AVAILABLE);
    assert_true(now_ms() - begin < 2600);
    assert_true(sim_log_count(&world.cluster.sim, "insync_left") > 0);
    assert_true(atomic_load(&world.master->broker->no_replica) > before);
    world_end(&world);
}

/* Below minInSyncReplicas sends are refused, waiting ones never get OK,
 * confirmed stands still. */
static void below_the_minimum_nothing_is_taken_or_confirmed(void **state)
{
    (void)state;
    prepare(13, FLUSH_SYNC, "1", 1);
    world.master->config.min_in_sync_replicas = 1;
    world.master->config.ha_max_behind_ms = 2000;
    world_start(&world);
    world_put_some(&world, 0, 10);
    int64_t confirmed = world_status(&world, world.master).confirmed;
    cut_slave(world.slave);
    enum tern_code code = world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 30000);
    assert_int_not_equal(code, TERN_OK);
    assert_int_equal(world_insync(&world), 0);
    int64_t end = world_at(world.master).whole;
    assert_int_not_equal(world_put(&world, 0), TERN_OK);
    assert_int_equal(world_at(world.master).whole, end); /* refused, not stored */
    world_run_ms(&world, 10000);
    assert_int_equal(world_status(&world, world.master).confirmed, confirmed);
    assert_false(world_status(&world, world.master).writable);
    sim_net_heal_all(world.cluster.net);
    assert_true(world_await(&world, world_in_sync, 20000));
    assert_true(world_status(&world, world.master).confirmed >= end);
    world_put_some(&world, 0, 3);
    world_end(&world);
}

/* The same of two: with minInSyncReplicas 2 the loss of one stops the sends. */
static void minimum_of_two_wants_both(void **state)
{
    (void)state;
    prepare(14, FLUSH_SYNC, "all", 2);
    world.master->config.min_in_sync_replicas = 2;
    world_start(&world);
    world_put_some(&world, 0, 5);
    node_kill(world.second);
    assert_true(world_await(&world, one_in_sync, 20000));
    assert_int_not_equal(world_put(&world, 0), TERN_OK);
    node_start(world.second);
    assert_true(world_await(&world, world_in_sync, 20000));
    world_put_some(&world, 0, 5);
    world_end(&world);
}

/* Confirmed never falls, whoever comes and goes in one life of the master. */
static void confirmed_never_falls(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        prepare(seed, FLUSH_SYNC, seed % 2 ? "2" : "1", 2);
        world_start(&world);
        int64_t highest = 0;
        for (uint32_t round = 0; round < 12; round++) {
            struct sim_node *node = (seed + round) % 3 ? world.slave : world.second;
            for (int i = 0; i < 5; i++)
                (void)world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 300);
            switch ((seed * 5 + round) % 4) {
            case 0:
                node_power_off(node, (enum sim_torn)(round % 4));
                node_start(node);
                break;
            case 1:
                cut_slave(node);
                break;
            default:
                sim_net_heal_all(world.cluster.net);
            }
            for (int i = 0; i < 20; i++) {
                world_run_ms(&world, 250);
                int64_t confirmed = ha_confirmed(world.master->broker->ha);
                assert_true(confirmed >= highest);
                highest = confirmed;
            }
        }
        sim_net_heal_all(world.cluster.net);
        assert_true(world_await(&world, world_in_sync, 40000));
        world_end(&world);
    }
}

/* What a slave shows of it, to operators and to mqadmin why. */
static void slave_tells_what_is_confirmed_also_when_its_master_is_gone(void **state)
{
    (void)state;
    prepare(15, FLUSH_SYNC, "1", 1);
    world_start(&world);
    world_put_some(&world, 0, 5);
    world_run_ms(&world, 1500); /* an idle fetch is answered within a second */
    int64_t confirmed = ha_confirmed(world.master->broker->ha);
    assert_true(confirmed > 0);
    assert_int_equal(ha_confirmed(world.slave->broker->ha), confirmed);
    node_kill(world.master);
    world_run_ms(&world, 1500);
    assert_int_equal(ha_confirmed(world.slave->broker->ha), confirmed);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_flush_counts_what_is_on_the_slaves_disk),
        cmocka_unit_test(sync_flush_does_not_count_what_is_only_appended),
        cmocka_unit_test(async_flush_counts_what_is_appended),
        cmocka_unit_test(an_answer_waits_for_k_members),
        cmocka_unit_test(one_of_two_is_enough_by_default),
        cmocka_unit_test(acknowledgements_count_once_membership_is_durable),
        cmocka_unit_test(nothing_is_confirmed_without_a_member_before_it_has_left),
        cmocka_unit_test(log_is_flushed_before_a_member_leaves),
        cmocka_unit_test(progress_is_written_before_a_member_leaves),
        cmocka_unit_test(new_uuid_replaces_the_old_one_once_in_sync),
        cmocka_unit_test(slave_that_lacks_confirmed_bytes_is_not_in_the_set),
        cmocka_unit_test(slave_without_link_leaves_at_once),
        cmocka_unit_test(silent_slave_leaves_in_time),
        cmocka_unit_test(refusing_slave_leaves_and_sends_go_on),
        cmocka_unit_test(sends_that_wait_are_answered_when_the_set_is_empty),
        cmocka_unit_test(below_the_minimum_nothing_is_taken_or_confirmed),
        cmocka_unit_test(minimum_of_two_wants_both),
        cmocka_unit_test(confirmed_never_falls),
        cmocka_unit_test(slave_tells_what_is_confirmed_also_when_its_master_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
