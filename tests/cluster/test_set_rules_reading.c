/*
 * The rules of replication about queue locks, and about who is read where, one test each. SIM_LOG=1
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

#include "base/clock.h"
#include "tests/cluster/set_world.h"

static struct world world;

static const struct offset_version NO_VERSION = {0, 0};

#define FIRST "10.0.0.9@first"
#define OTHER "10.0.0.9@other"

static void begin(uint64_t seed)
{
    world_prepare(&world, seed);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
}

static void cut(const char *a, const char *b)
{
    sim_net_cut(world.cluster.net, a, b);
}

/* ---- locks ---- */

/* Queue locks replicate; while the master is away the slave renews known owners and grants nobody
 * else's queue and no new one. */
static void slave_renews_known_owners_only(void **state)
{
    (void)state;
    begin(1);
    assert_true(world_lock(&world, world.master, FIRST, 0));
    assert_false(world_lock(&world, world.master, OTHER, 0));
    world_run_ms(&world, 1000);
    node_kill(world.master);
    for (int i = 0; i < 5; i++) {
        assert_true(world_lock(&world, world.slave, FIRST, 0));
        assert_false(world_lock(&world, world.slave, OTHER, 0));
        assert_false(world_lock(&world, world.slave, OTHER, 1));
        world_run_ms(&world, 10000);
    }
    world_end(&world);
}

/* It grants new ones when the master's leases have run out, not before; then to one. */
static void slave_grants_when_the_masters_leases_have_run_out(void **state)
{
    (void)state;
    begin(2);
    assert_true(world_lock(&world, world.master, FIRST, 0));
    world_run_ms(&world, 1000);
    node_kill(world.master);
    world_run_ms(&world, 55000);
    assert_false(world_lock(&world, world.slave, OTHER, 0));
    assert_false(world_lock(&world, world.slave, OTHER, 1));
    world_run_ms(&world, 65000); /* and a round of the nameserver */
    assert_true(world_lock(&world, world.slave, OTHER, 0));
    assert_true(world_lock(&world, world.slave, OTHER, 1));
    assert_false(world_lock(&world, world.slave, FIRST, 0));
    world_end(&world);
}

/* …not while a nameserver that it reaches lists the master: only the link between them is cut. */
static void slave_grants_nothing_while_the_master_is_listed(void **state)
{
    (void)state;
    begin(3);
    assert_true(world_lock(&world, world.master, FIRST, 0));
    world_run_ms(&world, 1000);
    cut(world.master->host, world.slave->host);
    for (int i = 0; i < 20; i++) {
        world_run_ms(&world, 15000);
        assert_true(world_lock(&world, world.master, FIRST, 0));
        assert_true(world_lock(&world, world.master, FIRST, 1));
        assert_false(world_lock(&world, world.slave, OTHER, 0));
        assert_false(world_lock(&world, world.slave, OTHER, 1));
    }
    world_end(&world);
}

/* …nor while it copies from it, though no nameserver lists it any more. */
static void slave_grants_nothing_while_it_follows(void **state)
{
    (void)state;
    begin(7);
    assert_true(world_lock(&world, world.master, FIRST, 0));
    world_run_ms(&world, 1000);
    cut(CLUSTER_NAMESRV_HOST, world.master->host);
    for (int i = 0; i < 20; i++) {
        world_run_ms(&world, 15000);
        assert_true(world_lock(&world, world.master, FIRST, 0));
        assert_true(world_lock(&world, world.master, FIRST, 1));
        assert_false(world_lock(&world, world.slave, OTHER, 0));
        assert_false(world_lock(&world, world.slave, OTHER, 1));
        assert_false(world_lock(&world, world.slave, OTHER, 2)); /* that nobody holds */
    }
    assert_false(world_is_listed(&world, world.master));
    world_end(&world);
}

/* …and not when it reaches no nameserver at all: it may be the one that is cut off. */
static void slave_grants_nothing_without_a_nameserver(void **state)
{
    (void)state;
    begin(4);
    assert_true(world_lock(&world, world.master, FIRST, 0));
    world_run_ms(&world, 1000);
    cut(world.master->host, world.slave->host);
    cut(CLUSTER_NAMESRV_HOST, world.slave->host);
    for (int i = 0; i < 20; i++) {
        world_run_ms(&world, 15000);
        assert_true(world_lock(&world, world.master, FIRST, 0));
        assert_false(world_lock(&world, world.slave, OTHER, 0));
        assert_false(world_lock(&world, world.slave, OTHER, 1));
    }
    world_end(&world);
}

/* A master that came back grants locks only after merging its slaves'. */
static void returned_master_knows_the_slaves_locks(void **state)
{
    (void)state;
    begin(5);
    assert_true(world_lock(&world, world.master, FIRST, 0));
    world_run_ms(&world, 1000);
    node_kill(world.master);
    assert_true(world_lock(&world, world.slave, FIRST, 0));
    world_run_ms(&world, 130000);
    assert_true(world_lock(&world, world.slave, OTHER, 1));
    cut(world.master->host, world.slave->host);
    node_start(world.master);
    world_run_ms(&world, 2000);
    assert_false(world_lock(&world, world.master, FIRST, 1));
    sim_net_heal_all(world.cluster.net);
    assert_true(world_await(&world, world_in_sync, 20000));
    assert_false(world_lock(&world, world.master, FIRST, 1));
    assert_true(world_lock(&world, world.master, OTHER, 1));
    assert_true(world_lock(&world, world.master, FIRST, 0)); /* its own has run out: free */
    world_end(&world);
}

/* …if none answers, one lease after the time-out. */
static void returned_master_alone_grants_a_lease_later(void **state)
{
    (void)state;
    world_prepare(&world, 6);
    world_start(&world);
    assert_true(world_lock(&world, world.master, FIRST, 0));
    node_kill(world.master);
    node_kill(world.slave);
    node_start(world.master);
    world_run_ms(&world, 32000);
    assert_true(world_is_open(&world));
    assert_false(world_lock(&world, world.master, OTHER, 0));
    world_run_ms(&world, 50000);
    assert_false(world_lock(&world, world.master, OTHER, 0));
    world_run_ms(&world, 12000);
    assert_true(world_lock(&world, world.master, OTHER, 0));
    world_end(&world);
}

/* An owner keeps its queue over the death and the return of the master, without a gap in which
 * another one could take it. */
static void owner_keeps_its_queue_over_a_fail_over(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        begin(seed);
        assert_true(world_lock(&world, world.master, FIRST, 0));
        world_run_ms(&world, 20);
        node_kill(world.master);
        for (int i = 0; i < 8; i++) {
            assert_true(world_lock(&world, world.slave, FIRST, 0));
            assert_false(world_lock(&world, world.slave, OTHER, 0));
            world_run_ms(&world, 20000);
        }
        assert_true(world_lock(&world, world.slave, FIRST, 0));
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 40000));
        assert_false(world_lock(&world, world.master, OTHER, 0));
        assert_true(world_lock(&world, world.master, FIRST, 0));
        world_end(&world);
    }
}

/* ---- suggestions ---- */

/* Reading deep asks for a slave: the master's memory is small. */
static void begin_with_backlog(uint64_t seed, void (*configure)(void))
{
    world_prepare(&world, seed);
    world.master->config.physical_memory_bytes = 1 << 20;
    world.slave->config.physical_memory_bytes = 1 << 20;
    if (configure)
        configure();
    world_start(&world);
    world_put_segments(&world, 3);
    assert_true(world_await(&world, world_in_sync, 10000));
}

/* HA-21. suggestWhichBrokerId names a slave that is alive, readable and has dispatched the wanted
 * offset; the slave sends the consumer back when it has caught up. */
static void fit_slave_is_suggested(void **state)
{
    (void)state;
    begin_with_backlog(11, NULL);
    assert_int_equal(world_pull(&world, world.master, 0, 0, NO_VERSION).suggested, 1);
    assert_int_equal(world_pull(&world, world.slave, 0, 0, NO_VERSION).suggested, 1);
    int64_t end = world_queue_end(world.master, 0);
    assert_int_equal(world_pull(&world, world.master, 0, end - 1, NO_VERSION).suggested, 0);
    assert_int_equal(world_pull(&world, world.slave, 0, end - 1, NO_VERSION).suggested, 0);
    world_end(&world);
}

/* HA-21. A dead slave is not suggested… */
static void dead_slave_is_not_suggested(void **state)
{
    (void)state;
    begin_with_backlog(12, NULL);
    node_kill(world.slave);
    assert_int_equal(world_pull(&world, world.master, 0, 0, NO_VERSION).suggested, 0);
    node_start(world.slave);
    assert_true(world_await(&world, world_in_sync, 10000));
    assert_int_equal(world_pull(&world, world.master, 0, 0, NO_VERSION).suggested, 1);
    cut(world.master->host, world.slave->host); /* nor a silent one */
    world_run_ms(&world, 5000);
    assert_int_equal(world_pull(&world, world.master, 0, 0, NO_VERSION).suggested, 0);
    world_end(&world);
}

static void unreadable_slave(void)
{
    world.slave->config.slave_read_enable = false;
}

static void small_disk(void)
{
    sim_fs_set_capacity(world.slave->disk, 8 << 20);
    world.slave->config.clean_interval_ms = 600000;
}

/* HA-23. …nor one that is not readable… */
static void unreadable_slave_is_not_suggested(void **state)
{
    (void)state;
    begin_with_backlog(13, unreadable_slave);
    assert_int_equal(world_pull(&world, world.master, 0, 0, NO_VERSION).suggested, 0);
    assert_int_not_equal(world_pull(&world, world.slave, 0, 0, NO_VERSION).code, TERN_OK);
    world_end(&world);
}

/* HA-21. …nor one that lags behind the wanted offset, until it has it. */
static void lagging_slave_is_not_suggested(void **state)
{
    (void)state;
    begin_with_backlog(14, small_disk);
    world_put_segments(&world, 8);
    world_run_ms(&world, 500);
    int64_t end = world_queue_end(world.slave, 0);
    assert_true(end < world_queue_end(world.master, 0) - 20);
    assert_int_equal(world_pull(&world, world.master, 0, end + 1, NO_VERSION).suggested, 0);
    sim_fs_set_capacity(world.slave->disk, INT64_MAX);
    assert_true(world_await(&world, world_in_sync, 20000));
    assert_int_equal(world_pull(&world, world.master, 0, end + 1, NO_VERSION).suggested, 1);
    world_end(&world);
}

static void choose_absent_slave(void)
{
    Tern__Wire__GroupConfig config = TERN__WIRE__GROUP_CONFIG__INIT;
    Tern__Wire__UpdateGroupRequest body = TERN__WIRE__UPDATE_GROUP_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    config.name = frame_bytes(WORLD_GROUP, strlen(WORLD_GROUP));
    config.consume_enable = config.consume_from_min_enable = true;
    config.retry_queues = 1;
    config.retry_max_times = 16;
    config.which_broker_when_consume_slowly = 9;
    body.group = &config;
    request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_GROUP;
    request.update_group = &body;
    assert_int_equal(world_ask(&world, world.master, "operator", &request, NULL, 0, 3000, NULL),
                     TERN_OK);
}

/* HA-23. …nor one that does not exist, though the group's configuration names it. */
static void absent_slave_is_not_suggested(void **state)
{
    (void)state;
    begin_with_backlog(15, NULL);
    choose_absent_slave();
    assert_int_equal(world_pull(&world, world.master, 0, 0, NO_VERSION).suggested, 0);
    world_consume(&world);
    assert_true(world_await(&world, world_all_received, 20000));
    assert_int_equal(world.inbox.count, world.sent);
    world_end(&world);
}

/* A consumer that reads its backlog at the slave gets everything once, though the slave dies in the
 * middle and comes back. */
static void backlog_is_read_once_though_the_slave_dies(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        begin_with_backlog(seed, NULL);
        sim_net_set_delay(world.cluster.net, ms_to_ns(2), ms_to_ns(5));
        world_consume(&world);
        world_run_ms(&world, (int64_t)seed * 15);
        node_kill(world.slave);
        world_run_ms(&world, (int64_t)seed * 300);
        node_start(world.slave);
        assert_true(world_await(&world, world_all_received, 30000));
        assert_int_equal(world.inbox.count, world.sent);
        world_end(&world);
    }
}

/* ---- beyond a slave's end ---- */

/* HA-21, OF-02. A slave that is behind answers an offset beyond its end with the same offset, and a
 * consumer that was ahead goes on there when the master is back: nothing is reset or clamped. */
static void offset_beyond_a_lagging_slaves_end_stays(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        world_prepare(&world, seed);
        world_start(&world);
        world_consume(&world);
        world_put_some(&world, 0, 100);
        assert_true(world_await(&world, world_in_step, 5000));
        cut(world.master->host, world.slave->host);
        world_put_some(&world, 0, 80); /* the master's alone; the consumer is ahead of the slave */
        assert_true(world_await(&world, world_all_received, 5000));
        world_run_ms(&world, seed % 2 ? 8000 : 10);
        node_kill(world.master);
        struct world_pull pull = world_pull(&world, world.slave, 0, 180, NO_VERSION);
        assert_int_equal(pull.next, 180);
        assert_int_not_equal(pull.code, TERN_PULL_OFFSET_MOVED);
        world_run_ms(&world, 40000);
        assert_int_equal(world.inbox.count, 180);
        sim_net_heal_all(world.cluster.net);
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 40000));
        world_run_ms(&world, 3000);
        world_put_some(&world, 0, 20);
        assert_true(world_await(&world, world_all_received, 10000));
        assert_int_equal(world.inbox.count, 200);
        world_run_ms(&world, 10000);
        int64_t offset;
        struct offset_version version;
        assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version),
                         TERN_OK);
        assert_int_equal(offset, 200);
        world_end(&world);
    }
}

/* OF-02. Progress that a pull carries to a slave beyond that one's end counts: only an open master
 * knows that there is nothing. */
static void commit_beyond_a_lagging_slaves_end_counts(void **state)
{
    (void)state;
    int64_t offset;
    struct offset_version version;
    begin(22);
    world_put_some(&world, 0, 100);
    assert_true(world_await(&world, world_in_step, 5000));
    (void)world_pull_commit(&world, world.master, 0, 100, NO_VERSION);
    (void)world_pull_commit(&world, world.master, 0, 500, NO_VERSION);
    assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version), TERN_OK);
    assert_int_equal(offset, 100);
    cut(world.master->host, world.slave->host);
    for (int i = 0; i < 80; i++) /* the master's alone */
        (void)world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 20);
    node_kill(world.master);
    assert_int_equal(world_queue_end(world.slave, 0), 100);
    (void)world_pull_commit(&world, world.slave, 0, 180, NO_VERSION);
    assert_int_equal(world_query(&world, world.slave, WORLD_GROUP, 0, &offset, &version), TERN_OK);
    assert_int_equal(offset, 180);
    sim_net_heal_all(world.cluster.net);
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 40000));
    assert_int_equal(world_query(&world, world.master, WORLD_GROUP, 0, &offset, &version), TERN_OK);
    assert_int_equal(offset, 180);
    world_end(&world);
}

/* The same for a slave whose store is new and empty when the master dies. */
static void offset_beyond_an_empty_slaves_end_stays(void **state)
{
    (void)state;
    world_prepare(&world, 21);
    world_start(&world);
    world_consume(&world);
    world_put_some(&world, 0, 100);
    assert_true(world_await(&world, world_all_received, 5000));
    node_kill(world.slave);
    node_new_disk(world.slave);
    cut(world.master->host, world.slave->host);
    node_start(world.slave);
    node_kill(world.master);
    world_run_ms(&world, 30000);
    sim_net_heal_all(world.cluster.net);
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 60000));
    world_run_ms(&world, 3000);
    world_put_some(&world, 0, 20);
    assert_true(world_await(&world, world_all_received, 10000));
    assert_int_equal(world.inbox.count, 120);
    world_end(&world);
}

/* ---- visibility ---- */

static bool nobody_in_sync(void *arg)
{
    return world_insync(arg) == 0;
}

/* HA-16. With consumeVisibility confirmed the master serves up to confirmed:
 * what a fail-over could take away is not read. It may pause for as long as a
 * hung slave stays in the set. */
static void consumers_see_what_is_confirmed(void **state)
{
    (void)state;
    world_prepare(&world, 15);
    world.master->config.role = ROLE_SYNC_MASTER;
    world_start(&world);
    world_put_some(&world, 0, 10);
    cut(world.master->host, world.slave->host);
    (void)world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 500);
    struct world_pull pull = world_pull(&world, world.master, 0, 0, NO_VERSION);
    assert_int_equal(pull.count, 10);
    assert_int_equal(pull.max, 10);
    pull = world_pull(&world, world.master, 0, 10, NO_VERSION);
    assert_int_equal(pull.count, 0);
    assert_true(world_await(&world, nobody_in_sync, 20000));
    world_run_ms(&world, 100);
    pull = world_pull(&world, world.master, 0, 10, NO_VERSION);
    assert_int_equal(pull.count, 1);
    world_end(&world);
}

/* …and with written, at once. */
static void consumers_see_what_is_written_when_asked_for(void **state)
{
    (void)state;
    world_prepare(&world, 16);
    world.master->config.role = ROLE_SYNC_MASTER;
    world.master->config.consume_visibility = VISIBLE_WRITTEN;
    world_start(&world);
    cut(world.master->host, world.slave->host);
    (void)world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 500);
    assert_int_equal(world_pull(&world, world.master, 0, 0, NO_VERSION).count, 1);
    world_end(&world);
}

/* A slave dispatches up to the confirmed end it was told, and to its own end
 * once its link is down: the loss of the master shows what only it has. */
static void slave_shows_its_own_end_once_its_link_is_down(void **state)
{
    (void)state;
    world_prepare(&world, 17);
    world_add_second(&world);
    world.master->config.role = ROLE_SYNC_MASTER;
    snprintf(world.master->config.in_sync_replicas_text,
             sizeof world.master->config.in_sync_replicas_text, "2");
    world_start(&world);
    world_put_some(&world, 0, 10);
    assert_true(world_await(&world, world_in_step, 5000));
    cut(world.master->host, world.second->host); /* nothing more is confirmed */
    (void)world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 500);
    assert_int_equal(world_at(world.slave).whole, world_at(world.master).whole);
    assert_int_equal(world_queue_end(world.slave, 0), 10);
    assert_int_equal(world_pull(&world, world.slave, 0, 0, NO_VERSION).count, 10);
    node_kill(world.master);
    world_run_ms(&world, 1000);
    assert_int_equal(world_pull(&world, world.slave, 0, 0, NO_VERSION).count, 11);
    world_end(&world);
}

static bool slave_shows_the_first(void *arg)
{
    const struct world *w = arg;
    return world_insync(w) == 2 && world_queue_end(w->slave, 0) == 21;
}

/* …and not to what was confirmed of bytes that it had to cut: others lie there now. */
static void what_was_confirmed_goes_with_a_cut(void **state)
{
    (void)state;
    world_prepare(&world, 18);
    world_add_second(&world);
    world.master->config.role = ROLE_SYNC_MASTER;
    world.master->config.flush_type = FLUSH_ASYNC;
    world.master->config.flush_interval_ms = 600000;
    snprintf(world.master->config.in_sync_replicas_text,
             sizeof world.master->config.in_sync_replicas_text, "2");
    world_start(&world);
    world_put_some(&world, 0, 20);
    node_stop(world.master); /* on the disk */
    node_start(world.master);
    assert_true(world_await(&world, world_in_sync, 10000));
    world_put_some(&world, 0, 40); /* confirmed to the slaves, lost here */
    assert_true(world_await(&world, world_in_step, 5000));
    node_power_off(world.master, SIM_TORN_NONE);
    cut(world.master->host, world.slave->host);
    cut(world.master->host, world.second->host);
    node_start(world.master);
    world_run_ms(&world, 3000);
    assert_int_equal(world_force_open(&world, NULL), TERN_OK);
    assert_true(world_await(&world, world_is_open, 10000));
    (void)world_put(&world, 0);
    sim_net_heal_all(world.cluster.net);
    assert_true(world_await(&world, slave_shows_the_first, 30000));
    cut(world.master->host, world.second->host); /* nothing more is confirmed */
    (void)world_put_to(&world, world.master, 0, WORLD_MARK_BYTES, 500);
    assert_int_equal(world_at(world.slave).whole, world_at(world.master).whole);
    assert_int_equal(world_queue_end(world.slave, 0), 21);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slave_renews_known_owners_only),
        cmocka_unit_test(slave_grants_when_the_masters_leases_have_run_out),
        cmocka_unit_test(slave_grants_nothing_while_the_master_is_listed),
        cmocka_unit_test(slave_grants_nothing_while_it_follows),
        cmocka_unit_test(slave_grants_nothing_without_a_nameserver),
        cmocka_unit_test(returned_master_knows_the_slaves_locks),
        cmocka_unit_test(returned_master_alone_grants_a_lease_later),
        cmocka_unit_test(owner_keeps_its_queue_over_a_fail_over),
        cmocka_unit_test(fit_slave_is_suggested),
        cmocka_unit_test(dead_slave_is_not_suggested),
        cmocka_unit_test(unreadable_slave_is_not_suggested),
        cmocka_unit_test(lagging_slave_is_not_suggested),
        cmocka_unit_test(absent_slave_is_not_suggested),
        cmocka_unit_test(backlog_is_read_once_though_the_slave_dies),
        cmocka_unit_test(offset_beyond_a_lagging_slaves_end_stays),
        cmocka_unit_test(commit_beyond_a_lagging_slaves_end_counts),
        cmocka_unit_test(offset_beyond_an_empty_slaves_end_stays),
        cmocka_unit_test(consumers_see_what_is_confirmed),
        cmocka_unit_test(consumers_see_what_is_written_when_asked_for),
        cmocka_unit_test(slave_shows_its_own_end_once_its_link_is_down),
        cmocka_unit_test(what_was_confirmed_goes_with_a_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
