/*
 * Brokers and nameservers that come and go, on virtual time: how soon a nameserver that was
 * restarted knows who is there, what one that is never up for long costs, and what is said of one
 * that refuses or stays away. SIM_LOG=1 prints the log.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/cluster/set_world.h"

enum { AT_ONCE_MS = 3000, HOUR_MS = 3600000 };

static struct world world;

static bool both_registered(void *arg)
{
    return world_registered(arg) == 2;
}

/* However long it was away: the brokers do not wait for their next period, 30 s. */
static void restarted_nameserver_hears_of_the_brokers_at_once(void **state)
{
    (void)state;
    static const int64_t away_ms[] = {0, 300, 2000, 20000, 600000};
    for (size_t i = 0; i < sizeof away_ms / sizeof away_ms[0]; i++) {
        world_prepare(&world, i + 1);
        world_start(&world);
        world_run_ms(&world, 5000);
        cluster_kill_namesrv(&world.cluster);
        world_run_ms(&world, away_ms[i]);
        cluster_start_namesrv(&world.cluster);
        if (!world_await(&world, both_registered, AT_ONCE_MS))
            fail_msg("away for %" PRId64 " ms: not registered %d ms later", away_ms[i], AT_ONCE_MS);
        world_end(&world);
    }
}

/* One that dies again and again is told of each broker once a second, not at each of its lives. */
static void flapping_nameserver_is_told_once_a_second(void **state)
{
    (void)state;
    enum { LIVES = 100, LIFE_MS = 300 };
    world_prepare(&world, 10);
    world_start(&world);
    world_run_ms(&world, 5000);
    sim_log_clear(&world.cluster.sim);
    for (int i = 0; i < LIVES; i++) {
        cluster_kill_namesrv(&world.cluster);
        cluster_start_namesrv(&world.cluster);
        world_run_ms(&world, LIFE_MS);
    }
    unsigned told = sim_log_count(&world.cluster.sim, "broker_registered");
    assert_true(told > 0);
    assert_true(told <= 2 * (LIVES * LIFE_MS / 1000 + 1));
    world_end(&world);
}

/* A stranger has taken the place: said when it happens and rarely again, for as long as it lasts;
 * and said when it is over. */
static void refused_name_is_logged_when_it_changes_and_rarely_then(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    cluster_init(&cluster, 20);
    node_start(&cluster.nodes[0]);
    struct sim_node *twin = cluster_add_node(&cluster, "broker-a", 0);
    sim_net_cut(cluster.net, cluster.nodes[0].host, CLUSTER_NAMESRV_HOST);
    cluster_kill_namesrv(&cluster);
    cluster_start_namesrv(&cluster);
    node_start(twin);
    sim_log_clear(&cluster.sim);
    sim_net_heal_all(cluster.net);
    sim_run_for(cluster.sim.sched, ms_to_ns(20000));
    assert_int_equal(sim_log_count(&cluster.sim, "name_conflict"), 1);
    sim_run_for(cluster.sim.sched, ms_to_ns(HOUR_MS));
    unsigned lines = sim_log_count(&cluster.sim, "name_conflict");
    assert_true(lines > 1 && lines < 20);
    assert_true(sim_log_count(&cluster.sim, "register_failed") < 3);
    sim_log_clear(&cluster.sim);
    node_stop(twin);
    sim_run_for(cluster.sim.sched, ms_to_ns(AT_ONCE_MS));
    assert_int_equal(sim_log_count(&cluster.sim, "registered_again"), 1);
    assert_int_equal(sim_log_count(&cluster.sim, "name_conflict"), 0);
    cluster_fini(&cluster);
}

static void absent_nameserver_is_logged_when_it_goes_and_rarely_then(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    cluster_init(&cluster, 30);
    node_start(&cluster.nodes[0]);
    cluster_kill_namesrv(&cluster);
    sim_run_for(cluster.sim.sched, ms_to_ns(HOUR_MS));
    unsigned lines = sim_log_count(&cluster.sim, "register_failed");
    assert_true(lines > 1 && lines < 20);
    cluster_start_namesrv(&cluster);
    sim_run_for(cluster.sim.sched, ms_to_ns(AT_ONCE_MS));
    assert_int_equal(sim_log_count(&cluster.sim, "registered_again"), 1);
    assert_int_equal(sim_log_count(&cluster.sim, "register_failed"), lines);
    cluster_fini(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restarted_nameserver_hears_of_the_brokers_at_once),
        cmocka_unit_test(flapping_nameserver_is_told_once_a_second),
        cmocka_unit_test(refused_name_is_logged_when_it_changes_and_rarely_then),
        cmocka_unit_test(absent_nameserver_is_logged_when_it_goes_and_rarely_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
