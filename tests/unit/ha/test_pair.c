/*
 * Two nodes with real stores, epochs, sources and replicas on simulated disks and a simulated
 * network. Whatever happens to them, in the end both logs and their queues are the same.
 */
#include "tests/unit/ha/ha_node.h"

#include <errno.h>

#include "tests/sim/link/sim_link.h"
#include "tests/sim/sim_env.h"

enum { SEEDS = 150, ROUNDS = 10, PORT = 10912 };

static struct {
    struct sim_env sim;
    struct sim_net *net;
    struct sim_fs *disks[2];
    struct node nodes[2];
    uint64_t number; /* of the last epoch anybody began */
    uint64_t sent;   /* messages, for their bodies */
} pair;

static uint64_t below(uint64_t bound)
{
    return rng_below(&pair.sim.rng.rng, bound);
}

static void start(size_t i, int64_t id)
{
    struct node *node = &pair.nodes[i];
    node_start(node, sim_net_link(pair.net, node->host), PORT, id, below(2) == 0, &pair.number);
    if (id != 0)
        replica_follow(node->replica, i ? "10.0.0.1:10912" : "10.0.0.2:10912");
}

/* The machine loses its power, or only the process dies. */
static void kill_node(size_t i, bool power)
{
    struct sim_fs_fault all = {.op = SIM_FS_ANY, .nth = 1, .errno_value = EIO, .forever = true};
    sim_net_crash(pair.net, pair.nodes[i].host);
    if (power)
        sim_fs_power_loss(pair.disks[i], SIM_TORN_PAGES);
    else
        sim_fs_process_crash(pair.disks[i]);
    sim_fs_fail(pair.disks[i], &all);
    node_abandon(&pair.nodes[i]);
    sim_fs_fail_clear(pair.disks[i]);
}

static void send(struct node *node)
{
    node_send(node, (int32_t)below(NODE_QUEUES), (size_t)below(3000), (uint8_t)++pair.sent);
}

static void send_some(struct node *node, unsigned most)
{
    unsigned count = (unsigned)below(most + 1);
    for (unsigned i = 0; i < count; i++)
        send(node);
}

static void run(int64_t ms)
{
    sim_run_for(pair.sim.sched, ms_to_ns(ms));
}

static bool is_caught_up(void *arg)
{
    (void)arg;
    return nodes_are_same(&pair.nodes[0], &pair.nodes[1]);
}

static void settle(void)
{
    int64_t limit_ns = clock_mono_ns(pair.sim.env.clock) + ms_to_ns(60000);
    run(2000);
    if (!sim_run_until_true(pair.sim.sched, is_caught_up, NULL, limit_ns)) {
        struct replica_status *status = calloc(1, sizeof *status);
        assert_non_null(status);
        replica_status(pair.nodes[pair.nodes[0].ha.id == 0].replica, status);
        fail_msg("not the same after a minute: %s", status->text);
    }
    nodes_check_same(&pair.nodes[0], &pair.nodes[1]);
}

/* ---- the world ---- */

static void begin(uint64_t seed)
{
    memset(&pair, 0, sizeof pair);
    sim_env_init(&pair.sim, seed);
    pair.net = sim_net_create(&pair.sim);
    for (size_t i = 0; i < 2; i++) {
        struct env env;
        pair.disks[i] = sim_env_machine(&pair.sim, &env);
        node_init(&pair.nodes[i], &env, i ? "10.0.0.2" : "10.0.0.1", "/store", (uint8_t)(i + 1));
        start(i, (int64_t)i);
    }
}

static void end(void)
{
    for (size_t i = 0; i < 2; i++)
        node_stop(&pair.nodes[i]);
    sim_net_destroy(pair.net);
    sim_env_fini(&pair.sim);
}

/* ---- tests ---- */

static void a_slave_has_every_byte_and_every_queue(void **state)
{
    (void)state;
    begin(3);
    for (int i = 0; i < 60; i++) {
        send_some(&pair.nodes[0], 3);
        run(7);
    }
    settle();
    assert_int_equal(pair.nodes[1].settled, 1);
    struct store_positions at;
    store_positions(pair.nodes[1].store, &at);
    assert_true(at.whole > 3 * NODE_SEGMENT_BYTES);
    end();
}

static void a_slave_that_joins_late_has_the_whole_log(void **state)
{
    (void)state;
    begin(4);
    node_stop(&pair.nodes[1]);
    for (int i = 0; i < 60; i++) {
        send(&pair.nodes[0]);
        run(3);
    }
    start(1, 1);
    settle();
    end();
}

/* Ten are written, some come across, then the roles change and others are written. */
static void a_returning_masters_tail_is_cut(void **state)
{
    (void)state;
    begin(5);
    for (int i = 0; i < 7; i++)
        send(&pair.nodes[0]);
    settle();
    sim_net_cut(pair.net, "10.0.0.1", "10.0.0.2");
    for (int i = 0; i < 3; i++)
        send(&pair.nodes[0]);
    run(1500); /* flushed there */
    kill_node(0, false);
    node_stop(&pair.nodes[1]);
    sim_net_heal_all(pair.net);
    start(1, 0);
    for (int i = 0; i < 5; i++)
        send(&pair.nodes[1]);
    run(100);
    start(0, 1);
    settle();
    struct replica_status *status = calloc(1, sizeof *status);
    assert_non_null(status);
    replica_status(pair.nodes[0].replica, status);
    assert_true(status->cut_bytes > 0);
    free(status);
    assert_int_equal(sim_log_count(&pair.sim, "log_cut"), 1);
    end();
}

/* The disk is gone from the Nth call on. */
static unsigned calls_left;

static int die_in_the_end(void *arg, enum sim_fs_op op, const char *path)
{
    (void)arg;
    (void)op;
    (void)path;
    if (calls_left > 0)
        calls_left--;
    return calls_left > 0 ? 0 : EIO;
}

/* A power loss at any call to the disk while a diverged log is cut and copied over. */
static void settling_survives_a_power_loss_at_any_call(void **state)
{
    (void)state;
    bool died = true;
    unsigned nth = 1;
    for (; died; nth += 1 + nth / 40) {
        begin(6);
        for (int i = 0; i < 12; i++)
            send(&pair.nodes[0]);
        settle();
        sim_net_cut(pair.net, "10.0.0.1", "10.0.0.2");
        for (int i = 0; i < 6; i++)
            send(&pair.nodes[0]);
        run(1500);
        kill_node(0, false);
        node_stop(&pair.nodes[1]);
        sim_net_heal_all(pair.net);
        start(1, 0);
        for (int i = 0; i < 5; i++)
            send(&pair.nodes[1]);
        run(100);
        start(0, 1);
        calls_left = nth;
        sim_fs_set_hook(pair.disks[0], die_in_the_end, NULL);
        run(4000);
        died = calls_left == 0;
        sim_fs_set_hook(pair.disks[0], NULL, NULL);
        kill_node(0, true);
        start(0, 1);
        settle();
        end();
    }
    assert_true(nth > 50); /* it takes many calls */
}

/* One thing that happens to a pair. */
static void mishap(void)
{
    size_t i = (size_t)below(2);
    struct node *node = &pair.nodes[i];
    int64_t id = node->ha.id;
    bool power = below(2) == 0;
    switch (below(6)) {
    case 0:
        sim_net_reset(pair.net, "10.0.0.1", "10.0.0.2");
        break;
    case 1:
        sim_net_cut(pair.net, "10.0.0.1", "10.0.0.2");
        run((int64_t)below(6000));
        sim_net_heal_all(pair.net);
        break;
    case 2:
        node_stop(node);
        start(i, id);
        break;
    case 3:
    case 4:
        kill_node(i, power);
        run((int64_t)below(3000));
        start(i, id);
        break;
    default: /* the roles change */
        kill_node(0, power);
        kill_node(1, below(2) == 0);
        start(0, pair.nodes[0].ha.id == 0);
        start(1, pair.nodes[1].ha.id == 0);
        break;
    }
}

static void any_schedule_of_mishaps_ends_with_equal_logs(void **state)
{
    (void)state;
    int64_t cut_bytes = 0;
    for (uint64_t seed = 100; seed < 100 + SEEDS; seed++) {
        begin(seed);
        for (int round = 0; round < ROUNDS; round++) {
            struct node *master = &pair.nodes[pair.nodes[0].ha.id != 0];
            for (int burst = 0; burst < 4; burst++) {
                send_some(master, 5);
                run((int64_t)below(400));
            }
            mishap();
            if (round % 4 == 3)
                settle();
        }
        settle();
        end();
        cut_bytes += pair.nodes[0].cut_bytes + pair.nodes[1].cut_bytes;
    }
    assert_true(cut_bytes > 0); /* else no schedule was bad enough */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slave_has_every_byte_and_every_queue),
        cmocka_unit_test(a_slave_that_joins_late_has_the_whole_log),
        cmocka_unit_test(a_returning_masters_tail_is_cut),
        cmocka_unit_test(settling_survives_a_power_loss_at_any_call),
        cmocka_unit_test(any_schedule_of_mishaps_ends_with_equal_logs),
    };
    return cmocka_run_group_tests_name("ha pair", tests, NULL, NULL);
}
