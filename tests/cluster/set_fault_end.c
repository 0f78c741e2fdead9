/*
 * When everything has been healed: the members of a set have the same log,
 * queues, tables and progress, and what was promised is there.
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

static struct store *store_of(const struct fault_broker *broker)
{
    return broker->node->broker->store;
}

bool fault_all_settled(void *arg)
{
    struct fault_world *world = arg;
    for (unsigned i = 0; i < world->broker_count; i++) {
        const struct fault_broker *broker = &world->brokers[i];
        const struct fault_broker *master = &world->brokers[world->sets[broker->set].master];
        struct store_positions at, wanted;
        bool is_master = broker == master;
        if (!fault_runs(broker) || !fault_runs(master) ||
            fault_state(broker) !=
                (is_master ? TERN__WIRE__HA_STATE__HA_OPEN : TERN__WIRE__HA_STATE__HA_FOLLOWING))
            return false;
        store_positions(store_of(broker), &at);
        store_positions(store_of(master), &wanted);
        if (at.whole != wanted.whole || at.dispatched != at.whole)
            return false;
    }
    return true;
}

/* ---- logs and queues ---- */

static size_t read_log(struct store *store, int64_t at, uint8_t *buf, size_t size)
{
    size_t got = 0;
    return store_read_bytes(store, at, buf, size, false, &got) == TERN_OK ? got : 0;
}

static void compare_logs(const struct fault_broker *broker, const struct fault_broker *master)
{
    static uint8_t ours[1 << 16], theirs[1 << 16];
    struct store_positions own, other;
    store_positions(store_of(broker), &own);
    store_positions(store_of(master), &other);
    int64_t at = own.min > other.min ? own.min : other.min;
    while (at < own.whole) {
        size_t got = read_log(store_of(broker), at, ours, sizeof ours);
        size_t same = read_log(store_of(master), at, theirs, got ? got : 1);
        if (got == 0 || same == 0 || memcmp(ours, theirs, same < got ? same : got) != 0)
            fail_msg("seed %" PRIu64 ": the log of %s differs from its master's in the %zu bytes "
                     "at %" PRId64,
                     broker->world->seed, broker->node->address, got, at);
        at += (int64_t)(same < got ? same : got);
    }
}

struct unit {
    uint8_t bytes[4096];
    size_t size;
};

static uint8_t *reserve_unit(void *arg, size_t size_bytes)
{
    struct unit *unit = arg;
    assert_true(size_bytes <= sizeof unit->bytes);
    return unit->bytes;
}

/* Where the record of a queue's offset lies; -1: there is none. */
static int64_t place_of(struct store *store, const char *topic, int32_t queue, int64_t offset)
{
    static struct unit unit;
    struct store_get get = {.topic = topic,
                            .queue_id = queue,
                            .offset = offset,
                            .max_count = 1,
                            .reserve = reserve_unit,
                            .arg = &unit};
    struct store_get_result result;
    struct record record;
    if (store_get(store, &get, &result) != TERN_OK || result.status != GET_FOUND ||
        record_parse(unit.bytes, result.size_bytes, sizeof unit.bytes, true, &record) !=
            RECORD_WHOLE ||
        record.queue_off != offset || record.queue_id != queue)
        return -1;
    return record.phys_off;
}

static void compare_queue(const struct fault_broker *broker, const struct fault_broker *master,
                          const char *topic, int32_t queue)
{
    int64_t min, max, master_min, master_max;
    store_queue_range(store_of(broker), topic, queue, &min, &max);
    store_queue_range(store_of(master), topic, queue, &master_min, &master_max);
    if (max == 0 && master_min == master_max)
        return; /* expired before this member began its log anew */
    if (max != master_max)
        fail_msg("seed %" PRIu64 ": queue %d of %s ends at %" PRId64 " at %s, at %" PRId64
                 " at its master",
                 broker->world->seed, queue, topic, max, broker->node->address, master_max);
    for (int64_t i = min > master_min ? min : master_min; i < max; i++) {
        int64_t place = place_of(store_of(broker), topic, queue, i);
        int64_t wanted = place_of(store_of(master), topic, queue, i);
        if (place < 0 || place != wanted)
            fail_msg("seed %" PRIu64 ": %" PRId64 " of queue %d of %s lies at %" PRId64
                     " at %s, at %" PRId64 " at its master",
                     broker->world->seed, i, queue, topic, place, broker->node->address, wanted);
    }
}

/* ---- tables ---- */

static void compare_topics(const struct fault_broker *broker, const struct fault_broker *master)
{
    size_t count, master_count;
    uint64_t version, master_version;
    struct topic_config *ours = topics_snapshot(broker->node->broker->topics, &count, &version);
    struct topic_config *theirs =
        topics_snapshot(master->node->broker->topics, &master_count, &master_version);
    assert_non_null(ours);
    assert_non_null(theirs);
    bool same = count == master_count;
    for (size_t i = 0; i < count && same; i++)
        same = strcmp(ours[i].name, theirs[i].name) == 0 &&
               ours[i].write_queues == theirs[i].write_queues;
    if (!same)
        fail_msg("seed %" PRIu64 ": %s has other topics than its master", broker->world->seed,
                 broker->node->address);
    free(ours);
    free(theirs);
}

static void compare_progress(const struct fault_broker *broker, const struct fault_broker *master,
                             const char *group, int32_t queue)
{
    int64_t offset = -1, wanted = -1;
    struct offset_version version, wanted_version;
    (void)offsets_query(broker->node->broker->offsets, group, FAULT_TOPIC, queue, &offset,
                        &version);
    (void)offsets_query(master->node->broker->offsets, group, FAULT_TOPIC, queue, &wanted,
                        &wanted_version);
    int order = offset_version_compare(version, wanted_version);
    if (wanted < 0 && order < 0)
        return; /* of two recoveries ago: it counts nowhere, and stays where it was
                   made */
    if (offset != wanted || order != 0)
        fail_msg("seed %" PRIu64 ": progress of %s in queue %d is %" PRId64 " (%" PRIu64 ".%" PRIu64
                 ") at %s, %" PRId64 " (%" PRIu64 ".%" PRIu64 ") at its master",
                 broker->world->seed, group, queue, offset, version.epoch, version.counter,
                 broker->node->address, wanted, wanted_version.epoch, wanted_version.counter);
}

static void check_promises(const struct fault_world *world, const struct fault_set *set)
{
    const struct fault_broker *master = &world->brokers[set->master];
    for (int32_t i = 0; i < QUEUES; i++) {
        const struct promise *promise = &set->promises[i];
        struct offset_version version;
        int64_t offset = -1;
        (void)offsets_query(master->node->broker->offsets, "committers", FAULT_TOPIC, i, &offset,
                            &version);
        if (!promise->weak && offset < promise->offset)
            fail_msg("seed %" PRIu64 ": %" PRId64
                     " was promised for queue %d of %s, and is %" PRId64,
                     world->seed, promise->offset, i, set->name, offset);
    }
}

/* What was acknowledged lies where it was said to. */
static void check_places(const struct fault_world *world)
{
    for (uint32_t i = 0; i < world->sent; i++) {
        const struct number *number = &world->numbers[i];
        if (number->acked && !number->lossy &&
            number->held != (number->held | world->sets[number->set].members))
            fail_msg("seed %" PRIu64 ": number %" PRIu32 ", acknowledged at %" PRId64
                     ", is held by %x only",
                     world->seed, i, number->phys_off, number->held);
    }
}

void fault_check_stores(struct fault_world *world)
{
    static const char *const topics[] = {FAULT_TOPIC, FAULT_FLEETING, "%RETRY%readers"};
    for (unsigned i = 0; i < world->broker_count; i++) {
        const struct fault_broker *broker = &world->brokers[i];
        const struct fault_broker *master = &world->brokers[world->sets[broker->set].master];
        if (broker == master)
            continue;
        compare_logs(broker, master);
        compare_topics(broker, master);
        for (int32_t queue = 0; queue < QUEUES; queue++) {
            for (size_t k = 0; k < sizeof topics / sizeof topics[0]; k++)
                compare_queue(broker, master, topics[k], queue);
            compare_progress(broker, master, "readers", queue);
            compare_progress(broker, master, "committers", queue);
        }
    }
    check_places(world);
    for (unsigned i = 0; i < world->set_count; i++)
        check_promises(world, &world->sets[i]);
}

/* ---- healing ---- */

enum { SETTLE_MS = 150000, DELIVER_MS = 40 * 60000 };

static int64_t in_ms(const struct fault_world *world, int64_t ms)
{
    return clock_mono_ns(world->cluster.sim.env.clock) + ms_to_ns(ms);
}

static void fail_unsettled(const struct fault_world *world)
{
    for (unsigned i = 0; i < world->broker_count; i++) {
        const struct fault_broker *broker = &world->brokers[i];
        struct store_positions at;
        store_positions(broker->node->broker->store, &at);
        fprintf(stderr, "%s: %s, ends at %" PRId64 ", dispatched to %" PRId64 "\n",
                broker->node->address, ha_state_text(fault_state(broker)), at.whole, at.dispatched);
    }
    fail_msg("seed %" PRIu64 ": not every broker has come back", world->seed);
}

/* Without a disk or a whole log lost for good nobody needs an operator. */
static void settle(struct fault_world *world)
{
    struct sim_sched *sched = world->cluster.sim.sched;
    if (sim_run_until_true(sched, fault_all_settled, world, in_ms(world, SETTLE_MS)))
        return;
    for (unsigned i = 0; i < world->set_count; i++) {
        struct fault_broker *master = &world->brokers[world->sets[i].master];
        if (!world->sets[i].operator_may ||
            fault_state(master) != TERN__WIRE__HA_STATE__HA_RECOVERING)
            continue;
        fault_look(world);
        fault_trace(world, "operator_forces broker=%u", master->index);
        fault_forced(master);
        assert_int_equal(fault_force_open(world, master), TERN_OK);
    }
    for (unsigned i = 0; i < world->broker_count; i++) {
        const struct fault_set *set = &world->sets[world->brokers[i].set];
        if (!(set->rejoin_may || set->opened_alone) ||
            fault_state(&world->brokers[i]) != TERN__WIRE__HA_STATE__HA_DETACHED)
            continue;
        if (set->opened_alone)
            fault_forced(&world->brokers[set->master]); /* what only the other had is given up */
        fault_rejoin(world, &world->brokers[i]);
    }
    if (!sim_run_until_true(sched, fault_all_settled, world, in_ms(world, SETTLE_MS)))
        fail_unsettled(world);
}

void fault_drain(struct fault_world *world)
{
    fault_trace(world, "drain");
    fault_bury_all(world);
    world->may_break = false;
    world->fail_percent = 0;
    sim_net_heal_all(world->cluster.net);
    sim_net_set_delay(world->cluster.net, 50000, 200000);
    if (!world->cluster.namesrv)
        cluster_start_namesrv(&world->cluster);
    if (world->two_nameservers && !world->namesrv2)
        fault_start_namesrv2(world);
    for (unsigned i = 0; i < world->broker_count; i++) {
        world->brokers[i].calls_left = 0;
        fault_up(&world->brokers[i]);
    }
    while (!world->readers[0] && !world->readers[1] && !world->readers[2])
        fault_join(world);
    settle(world);
    fault_check(world);
    if (!sim_run_until_true(world->cluster.sim.sched, fault_all_finished, world,
                            in_ms(world, DELIVER_MS)))
        fault_check_finished(world);
    fault_check(world);
    sim_run_for(world->cluster.sim.sched, ms_to_ns(8000)); /* commits, and their copies */
    settle(world);
    fault_check(world);
    fault_check_stores(world);
}

void fault_end(struct fault_world *world)
{
    for (size_t i = 0; i < READERS_MAX; i++)
        tern_push_consumer_destroy(world->readers[i]);
    tern_pull_consumer_destroy(world->committer);
    fault_check(world);
    tern_producer_destroy(world->producer);
    if (world->namesrv2)
        fault_kill_namesrv2(world);
    for (unsigned i = 0; i < world->broker_count; i++) {
        node_stop(world->brokers[i].node);
        assert_int_equal(sim_fs_open_handles(world->brokers[i].node->disk), 0);
    }
    cluster_fini(&world->cluster);
}
