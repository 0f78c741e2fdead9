/*
 * Broker sets under random faults on virtual time: brokers are stopped, killed,
 * lose their power or their disk, also in the middle of recovering, cutting,
 * opening; links are cut and reset between any two machines; nameservers come
 * and go; topics are deleted, progress is reset, segments expire; operators
 * force. Every schedule, its configuration too, follows from one seed.
 * TERN_SIM_SEEDS=first:count runs others than the usual ones, SIM_LOG=1 prints
 * what happens.
 *
 * Checked (set_fault_model.c, set_fault_clients.c, set_fault_end.c): what was
 * acknowledged is delivered unless the documentation lets it be lost;
 * unaltered, in order, from one place; progress neither falls within a version
 * nor passes what nobody has finished; promised progress stays; when all is
 * healed every broker opens or follows by itself, and the members of a set are
 * the same.
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
#include "tests/cluster/set_fault.h"

enum { STEPS = 40 };

static struct fault_broker *some_broker(struct fault_world *world)
{
    return &world->brokers[fault_dice(world, world->broker_count)];
}

/* ---- brokers and nameservers ---- */

static void both_down_and_up(struct fault_world *world)
{
    struct fault_set *set = &world->sets[fault_dice(world, world->set_count)];
    for (unsigned i = 0; i < world->broker_count; i++)
        if (set->members & 1u << i)
            fault_down(&world->brokers[i]);
    fault_bury_all(world);
    fault_run_ms(world, 2000);
    unsigned first = (unsigned)fault_dice(world, world->broker_count);
    for (unsigned i = 0; i < world->broker_count; i++) {
        unsigned which = (first + i) % world->broker_count;
        if ((set->members & 1u << which) && fault_chance(world, 80)) {
            fault_up(&world->brokers[which]);
            fault_run_ms(world, fault_chance(world, 50) ? 0 : 3000);
        }
    }
}

static void turn_namesrv(struct fault_world *world)
{
    if (world->two_nameservers && fault_chance(world, 50)) {
        fault_trace(world, "namesrv2 up=%d", !world->namesrv2);
        if (world->namesrv2)
            fault_kill_namesrv2(world);
        else
            fault_start_namesrv2(world);
    } else {
        fault_trace(world, "namesrv up=%d", !world->cluster.namesrv);
        if (world->cluster.namesrv)
            cluster_kill_namesrv(&world->cluster);
        else
            cluster_start_namesrv(&world->cluster);
    }
}

/* ---- links ---- */

static const char *some_host(struct fault_world *world)
{
    uint64_t which = fault_dice(world, world->broker_count + 3);
    if (which < world->broker_count)
        return world->brokers[which].node->host;
    if (which == world->broker_count)
        return CLUSTER_NAMESRV_HOST;
    if (which == world->broker_count + 1 && world->two_nameservers)
        return FAULT_NAMESRV2_HOST;
    return CLUSTER_CLIENT_HOST;
}

static void disturb_link(struct fault_world *world)
{
    const char *a = some_broker(world)->node->host;
    const char *b = some_host(world);
    bool cuts = fault_chance(world, 65);
    if (strcmp(a, b) == 0)
        return;
    fault_trace(world, "%s between=%s,%s", cuts ? "cut" : "reset", a, b);
    if (cuts)
        sim_net_cut(world->cluster.net, a, b);
    else
        sim_net_reset(world->cluster.net, a, b);
}

static void heal(struct fault_world *world)
{
    fault_trace(world, "heal");
    sim_net_heal_all(world->cluster.net);
}

/* ---- what operators do ---- */

static void reset_progress(struct fault_world *world)
{
    struct fault_broker *broker = some_broker(world);
    int32_t queue = (int32_t)fault_dice(world, QUEUES);
    int64_t offset;
    struct offset_version version;
    if (!world->may_reset || fault_state(broker) != TERN__WIRE__HA_STATE__HA_OPEN ||
        !offsets_query(broker->node->broker->offsets, "readers", FAULT_TOPIC, queue, &offset,
                       &version))
        return;
    fault_trace(world, "reset broker=%u queue=%d", broker->index, queue);
    assert_int_equal(offsets_reset(broker->node->broker->offsets, "readers", FAULT_TOPIC, queue,
                                   (int64_t)fault_dice(world, (uint64_t)offset + 1)),
                     TERN_OK);
}

static void change_topic(struct fault_world *world)
{
    struct fault_broker *broker = some_broker(world);
    if (!fault_is_master(broker) || !fault_runs(broker))
        return;
    if (fault_chance(world, 50)) {
        fault_trace(world, "delete_topic broker=%u", broker->index);
        fault_delete_topic(world, broker, FAULT_FLEETING);
        world->fleeting_life++;
    }
    fault_put_topic(world, broker, FAULT_FLEETING);
    fault_send_fleeting(world);
}

static void expire(struct fault_world *world)
{
    struct fault_broker *broker = some_broker(world);
    if (!world->may_expire || !fault_runs(broker))
        return;
    int gone = store_expire_now(broker->node->broker->store);
    fault_trace(world, "expire broker=%u segments=%d", broker->index, gone);
}

/* An operator loses patience. */
static void force(struct fault_broker *broker)
{
    struct fault_world *world = broker->world;
    if (fault_state(broker) != TERN__WIRE__HA_STATE__HA_RECOVERING)
        return;
    fault_look(world);
    enum tern_code code = fault_force_open(world, broker);
    fault_trace(world, "force broker=%u code=%s", broker->index, tern_code_name(code));
    if (code != TERN_STATE)
        fault_forced(broker);
}

/* ---- longer stories ---- */

/* A master loses what it had not flushed, and comes back where its slaves
 * cannot be asked. */
static void diverge(struct fault_world *world)
{
    struct fault_set *set = &world->sets[fault_dice(world, world->set_count)];
    struct fault_broker *master = &world->brokers[set->master];
    if (!world->may_lose_power || !fault_runs(master))
        return;
    fault_send_some(world, 40);
    fault_run_ms(world, 400);
    fault_bury_all(world);
    if (!fault_runs(master))
        return;
    fault_trace(world, "diverge broker=%u", master->index);
    fault_power_off(master, SIM_TORN_NONE);
    for (unsigned i = 0; i < world->broker_count; i++) {
        if (i == set->master || !(set->members & 1u << i))
            continue;
        if (fault_chance(world, 70))
            sim_net_cut(world->cluster.net, master->node->host, world->brokers[i].node->host);
        else
            fault_down(&world->brokers[i]);
    }
    fault_up(master);
    fault_run_ms(world, 8000);
    if (world->may_force)
        force(master);
    fault_send_some(world, 40);
    fault_run_ms(world, 3000);
    if (fault_chance(world, 50))
        heal(world);
}

/* A slave stays away while its master's segments expire. */
static void stay_away(struct fault_world *world)
{
    struct fault_broker *slave = some_broker(world);
    struct fault_broker *master = &world->brokers[world->sets[slave->set].master];
    if (!world->may_expire || slave == master)
        return;
    fault_down(slave);
    fault_bury_all(world);
    for (int i = 0; i < 6; i++) {
        fault_send_some(world, 120);
        fault_run_ms(world, 8000);
    }
    fault_run_ms(world, (uint64_t)master->node->config.retention_ms);
    fault_bury_all(world);
    fault_look(world);
    if (fault_runs(master))
        fault_trace(world, "stayed_away broker=%u segments=%d", slave->index,
                    store_expire_now(master->node->broker->store));
    fault_up(slave);
}

static void something_happens(struct fault_world *world)
{
    switch (fault_dice(world, 25)) {
    case 22:
        diverge(world);
        break;
    case 23:
        stay_away(world);
        break;
    case 24:
        if (world->may_force)
            force(&world->brokers[world->sets[fault_dice(world, world->set_count)].master]);
        break;
    case 0:
        fault_join(world);
        break;
    case 1:
        fault_leave(world);
        break;
    case 2:
    case 3:
    case 4:
        fault_down(some_broker(world));
        break;
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
        fault_up(some_broker(world));
        break;
    case 10:
        both_down_and_up(world);
        break;
    case 11:
    case 12:
        disturb_link(world);
        break;
    case 13:
    case 14:
        heal(world);
        break;
    case 15:
        fault_new_producer(world);
        break;
    case 16:
        reset_progress(world);
        break;
    case 17:
        sim_net_set_delay(world->cluster.net, 50000, 100000 + (int64_t)fault_dice(world, 20000000));
        break;
    case 18:
        turn_namesrv(world);
        break;
    case 19:
        change_topic(world);
        break;
    case 20:
        expire(world);
        break;
    default:
        fault_lose_disk(some_broker(world));
    }
}

/* ---- a schedule ---- */

static void begin(struct fault_world *world, uint64_t seed)
{
    fault_begin_world(world, seed);
    world->may_lose_power = fault_chance(world, 60);
    world->may_lose_disk = fault_chance(world, 25);
    world->may_reset = fault_chance(world, 30);
    world->may_expire = fault_chance(world, 25);
    world->may_break = fault_chance(world, 50);
    world->may_force = fault_chance(world, 40);
    world->retries = fault_chance(world, 50) ? 0 : 2;
    world->fail_percent = (unsigned)(fault_dice(world, 2) * fault_dice(world, 30));
    fault_add_set(world, "broker-a", fault_chance(world, 70) ? 1 : 2);
    if (fault_chance(world, 30))
        fault_add_set(world, "broker-b", 4 - world->broker_count > 1 ? 1 : 0);
    fault_start_all(world);
}

static void run_schedule(uint64_t seed)
{
    struct fault_world *world = malloc(sizeof *world);
    assert_non_null(world);
    begin(world, seed);
    for (int step = 0; step < STEPS; step++) {
        fault_send_some(world, (uint32_t)fault_dice(world, 40));
        fault_run_ms(world, fault_chance(world, 75) ? 300 : fault_chance(world, 80) ? 8000 : 40000);
        fault_bury_all(world);
        fault_check(world);
        something_happens(world);
        fault_bury_all(world);
        fault_check(world);
        if (fault_chance(world, 20))
            fault_commit(world);
    }
    fault_drain(world);
    fault_end(world);
    free(world);
}

static void sets_lose_only_what_they_may(void **state)
{
    (void)state;
    uint64_t first = 1, count = 60;
    const char *seeds = getenv("TERN_SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%" SCNu64 ":%" SCNu64, &first, &count), 2);
    for (uint64_t seed = first; seed < first + count; seed++)
        run_schedule(seed);
}

/* ---- single stories ---- */

/* A master and a slave; configured, not started. */
static struct fault_world *begin_story(uint64_t seed, int32_t role, int32_t flush_type)
{
    struct fault_world *world = malloc(sizeof *world);
    assert_non_null(world);
    fault_begin_world(world, seed);
    fault_add_set(world, "broker-a", 1);
    struct broker_config *config = &world->brokers[0].node->config;
    world->sets[0].role = config->role = role;
    world->sets[0].sync_flush = flush_type == FLUSH_SYNC;
    config->flush_type = flush_type;
    config->consume_visibility = VISIBLE_WRITTEN;
    config->min_in_sync_replicas = 0;
    return world;
}

static void pass_ms(struct fault_world *world, int64_t ms)
{
    sim_run_for(world->cluster.sim.sched, ms_to_ns(ms));
}

/* Its log holds at the adopted offsets what the master had lost, not what was acknowledged since.
 */
static void slave_that_missed_a_recovery_is_not_read(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fault_world *world = begin_story(seed, ROLE_ASYNC_MASTER, FLUSH_ASYNC);
        struct fault_broker *master = &world->brokers[0];
        master->node->config.recover_timeout_ms = 200;
        fault_start_all(world);
        fault_send_some(world, 60);
        pass_ms(world, 3000);
        fault_send_some(world, 60);
        pass_ms(world, 100); /* copied, not flushed */
        fault_power_off(master, SIM_TORN_NONE);
        sim_net_cut(world->cluster.net, master->node->host, world->brokers[1].node->host);
        fault_up(master);
        pass_ms(world, 6000); /* everybody adopts */
        sim_net_cut(world->cluster.net, master->node->host, CLUSTER_CLIENT_HOST);
        pass_ms(world, 20000);
        sim_net_heal(world->cluster.net, master->node->host, CLUSTER_CLIENT_HOST);
        fault_send_some(world, 120);
        pass_ms(world, 10000);
        fault_check(world);
        fault_drain(world);
        fault_end(world);
        free(world);
    }
}

/* What was answered by both is on one disk at least when only one is left. */
static void promised_progress_survives_a_slave_and_then_the_masters_power(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct fault_world *world = begin_story(seed, ROLE_SYNC_MASTER, FLUSH_SYNC);
        struct fault_broker *master = &world->brokers[0];
        fault_start_all(world);
        fault_send_some(world, 90);
        pass_ms(world, 4000);
        for (int i = 0; i < 10; i++)
            fault_commit(world);
        pass_ms(world, 6000); /* the first ones are on the disk */
        for (int i = 0; i < 10; i++)
            fault_commit(world);
        node_kill(world->brokers[1].node);
        pass_ms(world, 100);
        fault_power_off(master, SIM_TORN_NONE);
        fault_up(master);
        pass_ms(world, 1000);
        for (int32_t i = 0; i < QUEUES; i++) {
            struct offset_version version;
            int64_t offset = -1;
            (void)offsets_query(master->node->broker->offsets, "committers", FAULT_TOPIC, i,
                                &offset, &version);
            assert_true(offset >= world->sets[0].promises[i].offset);
        }
        fault_drain(world);
        fault_end(world);
        free(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promised_progress_survives_a_slave_and_then_the_masters_power),
        cmocka_unit_test(slave_that_missed_a_recovery_is_not_read),
        cmocka_unit_test(sets_lose_only_what_they_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
