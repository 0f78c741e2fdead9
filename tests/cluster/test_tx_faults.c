/*
 * Random schedules: brokers that are killed, lose power or their disk, links that are cut,
 * producers that come and go, at any moment of transactions. In the end the log has each number
 * exactly as often as its local transaction says: once or never.
 *
 * TX_SEED=n runs one seed, TX_SEEDS=n so many.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/cluster/tx_world.h"

enum { SENDS = 60, SEEDS = 25 };

static struct tx_world tx;
static struct rng_seeded dice;

static uint64_t roll(uint64_t sides)
{
    return rng_below(&dice.rng, sides);
}

/* ---- faults, at a moment of their own ---- */

enum fault { FAULT_KILL, FAULT_POWER, FAULT_CUT, FAULT_SLAVE_KILL, FAULT_SLAVE_CUT, FAULTS };

static struct sim_node *victim(enum fault fault)
{
    return fault == FAULT_SLAVE_KILL || fault == FAULT_SLAVE_CUT ? tx.world.slave : tx.world.master;
}

/* What is under way when it comes is known to nobody; the process is taken away afterwards. */
struct planned {
    enum fault fault;
    bool came;
};

static void on_time(void *arg)
{
    struct planned *planned = arg;
    struct sim_node *node = victim(planned->fault);
    planned->came = true;
    if (planned->fault == FAULT_CUT)
        sim_net_cut(tx.world.cluster.net, CLUSTER_CLIENT_HOST, node->host);
    else if (planned->fault == FAULT_SLAVE_CUT)
        sim_net_cut(tx.world.cluster.net, tx.world.master->host, node->host);
    else
        sim_net_crash(tx.world.cluster.net, node->host);
}

static void repair(const struct planned *planned)
{
    struct sim_node *node = victim(planned->fault);
    sim_net_heal_all(tx.world.cluster.net);
    if (planned->fault == FAULT_CUT || planned->fault == FAULT_SLAVE_CUT)
        return;
    if (planned->fault == FAULT_POWER)
        node_power_off(node, (enum sim_torn)roll(4));
    else
        node_kill(node);
    tx_run_ms(&tx, (int64_t)roll(3000));
    if (roll(2))
        tx_lose_snapshot(node);
    node_start(node);
}

/* ---- transactions ---- */

static enum tern_transaction_outcome truth(uint32_t number)
{
    return (enum tern_transaction_outcome)tx.check[number];
}

static void send_one(uint32_t number)
{
    struct tern_transaction_result result;
    uint8_t outcome = roll(3) ? TERN_TRANSACTION_COMMIT : TERN_TRANSACTION_ROLLBACK;
    tx.execute[number] = roll(3) ? outcome : (uint8_t)TERN_TRANSACTION_UNKNOWN;
    tx.check[number] = TERN_TRANSACTION_ROLLBACK; /* until it has run */
    tx.database[number] = outcome;
    enum tern_code code = tx_send(&tx, number, &result);
    assert_int_equal(tx.executed[number], code == TERN_OK && result.executed);
}

/* Sends while something happens. */
static void round_of(uint32_t first, uint32_t count)
{
    struct planned planned = {.fault = (enum fault)roll(FAULTS)};
    uint64_t timer =
        sim_after(tx.world.cluster.sim.sched, (int64_t)roll(UINT64_C(30000000)), on_time, &planned);
    for (uint32_t n = first; n < first + count; n++)
        send_one(n);
    if (planned.came)
        repair(&planned);
    else
        sim_cancel(tx.world.cluster.sim.sched, timer);
    if (roll(4) == 0) {
        tx_producer_down(&tx);
        tx_run_ms(&tx, (int64_t)roll(20000));
        tx_producer_up(&tx);
    }
    tx_run_ms(&tx, (int64_t)roll(15000));
}

static bool all_decided(void *arg)
{
    (void)arg;
    struct tx_status status;
    if (!tx.world.master->broker || !world_in_step(&tx.world))
        return false;
    status = tx_status_of(tx.world.master);
    return status.ready && status.pending == 0;
}

static void check_all(uint64_t seed)
{
    static uint8_t times[SENDS];
    const struct sim_node *const nodes[] = {tx.world.master, tx.world.slave};
    for (size_t i = 0; i < 2; i++) {
        tx_count_all(&tx, nodes[i], times, SENDS);
        for (uint32_t n = 0; n < SENDS; n++) {
            uint8_t expected = truth(n) == TERN_TRANSACTION_COMMIT;
            if (times[n] != expected)
                fail_msg("seed %" PRIu64 ": number %u is %u times at %s, not %u", seed, n, times[n],
                         nodes[i]->host, expected);
        }
    }
}

static void run_seed(uint64_t seed)
{
    rng_seeded_init(&dice, seed * 77 + 5);
    tx_prepare(&tx, seed, ROLE_SYNC_MASTER);
    tx.listens = true;
    tx.timeout_ms = 1000 + (int64_t)roll(2000);
    tx.world.master->config.transaction_timeout_ms = 500;
    tx.world.master->config.transaction_check_interval_ms = 2000;
    tx.world.master->config.transaction_check_max = 10000;
    tx_start_all(&tx);
    for (uint32_t n = 0; n < SENDS; n += 6)
        round_of(n, 6);
    if (!world_await(&tx.world, all_decided, 300000))
        fail_msg("seed %" PRIu64 ": %" PRIu64 " are still pending", seed,
                 tx_status_of(tx.world.master).pending);
    check_all(seed);
    /* The same by the log alone. */
    node_kill(tx.world.master);
    tx_lose_snapshot(tx.world.master);
    node_start(tx.world.master);
    assert_true(world_await(&tx.world, all_decided, 120000));
    check_all(seed);
    tx_end(&tx);
}

static void each_number_is_delivered_once_or_never(void **state)
{
    const char *one = getenv("TX_SEED");
    const char *many = getenv("TX_SEEDS");
    (void)state;
    uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    uint64_t count = one ? 1 : many ? strtoull(many, NULL, 10) : SEEDS;
    for (uint64_t seed = first; seed < first + count; seed++)
        run_seed(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_is_delivered_once_or_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
