/*
 * A cluster under faults on virtual time: members come and go, links are cut, the broker is
 * stopped, killed or loses its power, progress is reset. Each schedule follows from one seed;
 * TERN_SIM_SEEDS=first:count runs others than the usual ones, SIM_LOG=1 prints the log.
 *
 * Checked in every schedule: a send is answered exactly once; what was acknowledged is delivered;
 * the group's progress never passes an acknowledged message that no listener has seen; within
 * one life of the broker and one version it never falls.
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
#include "broker/broker_internal.h"
#include "client/sim_hooks.h"
#include "tests/cluster/sim_cluster.h"

enum {
    NUMBERS_MAX = 8192,
    QUEUES = 4,
    READERS_MAX = 3,
    GROUP_STEPS = 50,
    DRAIN_MS = 40 * 60000 /* what failed several times waits for minutes */
};

/* One number on its way; what is known of it. */
struct number {
    uint32_t value;
    uint32_t answers;
    bool acked, lossy, finished; /* unwanted by its tag: finished at once */
    bool failed;                 /* sent back, perhaps: progress may pass it */
    int32_t queue_id;
    int64_t queue_offset;
    struct world *world;
};

struct world {
    struct sim_cluster cluster;
    struct rng_seeded rng;
    uint64_t seed;
    struct tern_producer *producer;
    struct tern_push_consumer *members[READERS_MAX];
    struct number numbers[NUMBERS_MAX];
    uint32_t sent;
    unsigned fail_percent; /* of the listener's calls */
    bool may_lose_power, sync_flush, may_reset, tagged;
    /* of the broker's present life */
    int64_t progress[QUEUES];
    struct offset_version versions[QUEUES];
};

static uint64_t dice(struct world *world, uint64_t sides)
{
    return rng_below(&world->rng.rng, sides);
}

static void run_ms(struct world *world, uint64_t most_ms)
{
    sim_run_for(world->cluster.sim.sched, ms_to_ns((int64_t)dice(world, most_ms + 1)));
}

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct world *world = arg;
    bool fails = dice(world, 100) < world->fail_percent;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        uint32_t value;
        const void *body = tern_message_body(messages[i], &size);
        assert_int_equal(size, sizeof value);
        memcpy(&value, body, sizeof value);
        assert_true(value < world->sent);
        world->numbers[value].finished |= !fails;
        world->numbers[value].failed |= fails;
    }
    return fails ? TERN_RECONSUME_LATER : TERN_CONSUME_SUCCESS;
}

static void on_sent(void *arg, enum tern_code code, const struct tern_send_result *result,
                    const struct tern_error *err)
{
    struct number *number = arg;
    (void)err;
    if (++number->answers > 1)
        fail_msg("seed %" PRIu64 ": number %" PRIu32 " was answered twice", number->world->seed,
                 number->value);
    number->acked = code == TERN_OK && result->status == TERN_OK;
    if (number->acked) {
        number->queue_id = result->queue.queue_id;
        number->queue_offset = result->queue_offset;
    }
}

static void send_some(struct world *world, uint32_t count)
{
    for (uint32_t i = 0; i < count && world->sent < NUMBERS_MAX; i++) {
        struct number *number = &world->numbers[world->sent];
        struct tern_message *message;
        struct tern_error err;
        *number = (struct number){.value = world->sent++, .world = world};
        number->finished = world->tagged && dice(world, 3) > 0;
        assert_int_equal(
            tern_message_create("Numbers", &number->value, sizeof number->value, &message, &err),
            TERN_OK);
        if (world->tagged)
            assert_int_equal(tern_message_set_tag(message, number->finished ? "B" : "A"), TERN_OK);
        if (tern_producer_send_async(world->producer, &message, 1, NULL, on_sent, number, &err) !=
            TERN_OK)
            number->answers = 1; /* not accepted: nothing will come */
        tern_message_unref(message);
    }
}

/* ---- what must always hold ---- */

static void forget_progress(struct world *world)
{
    for (int i = 0; i < QUEUES; i++) {
        world->progress[i] = -1;
        world->versions[i] = (struct offset_version){0, 0};
    }
}

static void check_progress(struct world *world)
{
    if (!world->cluster.nodes[0].broker)
        return;
    int64_t progress[QUEUES];
    for (int i = 0; i < QUEUES; i++) {
        struct offset_version version;
        progress[i] = -1;
        if (!offsets_query(world->cluster.nodes[0].broker->offsets, "readers", "Numbers", i,
                           &progress[i], &version))
            continue;
        if (offset_version_compare(version, world->versions[i]) == 0 &&
            progress[i] < world->progress[i])
            fail_msg("seed %" PRIu64 ": progress of queue %d fell from %" PRId64 " to %" PRId64,
                     world->seed, i, world->progress[i], progress[i]);
        world->progress[i] = progress[i];
        world->versions[i] = version;
    }
    for (uint32_t i = 0; i < world->sent; i++) {
        const struct number *number = &world->numbers[i];
        if (number->acked && !number->lossy && !number->finished && !number->failed &&
            number->queue_offset < progress[number->queue_id])
            fail_msg("seed %" PRIu64 ": progress of queue %d is %" PRId64 ", number %" PRIu32
                     " at %" PRId64 " is not finished",
                     world->seed, number->queue_id, progress[number->queue_id], number->value,
                     number->queue_offset);
    }
}

static bool all_finished(void *arg)
{
    const struct world *world = arg;
    for (uint32_t i = 0; i < world->sent; i++)
        if (!world->numbers[i].answers ||
            (world->numbers[i].acked && !world->numbers[i].lossy && !world->numbers[i].finished))
            return false;
    return true;
}

/* ---- what happens ---- */

static void join(struct world *world)
{
    size_t i = dice(world, READERS_MAX);
    if (!world->members[i])
        world->members[i] = cluster_push_consumer(&world->cluster, "readers", "Numbers",
                                                  world->tagged ? "A" : "*", on_messages, world);
}

static void leave(struct world *world)
{
    size_t i = dice(world, READERS_MAX);
    tern_push_consumer_destroy(world->members[i]);
    world->members[i] = NULL;
}

static void broker_up(struct world *world)
{
    if (world->cluster.nodes[0].broker)
        return;
    forget_progress(world);
    node_start(&world->cluster.nodes[0]);
}

static void broker_down(struct world *world)
{
    if (!world->cluster.nodes[0].broker)
        return;
    switch (dice(world, 3)) {
    case 0:
        sim_net_heal_all(world->cluster.net);
        node_stop(&world->cluster.nodes[0]);
        break;
    case 1:
        node_kill(&world->cluster.nodes[0]);
        break;
    default:
        if (!world->may_lose_power)
            return;
        node_power_off(&world->cluster.nodes[0], (enum sim_torn)dice(world, 4));
        for (uint32_t i = 0; i < world->sent && !world->sync_flush; i++)
            world->numbers[i].lossy = true;
    }
}

static void restart_producer(struct world *world)
{
    tern_producer_destroy(world->producer);
    world->producer =
        cluster_producer(&world->cluster, 200 + (int64_t)dice(world, 3000), (int)dice(world, 3));
}

static void reset_progress(struct world *world)
{
    struct broker *broker = world->cluster.nodes[0].broker;
    if (!broker || !world->may_reset)
        return;
    int32_t queue = (int32_t)dice(world, QUEUES);
    int64_t offset;
    struct offset_version version;
    if (offsets_query(broker->offsets, "readers", "Numbers", queue, &offset, &version))
        assert_int_equal(offsets_reset(broker->offsets, "readers", "Numbers", queue,
                                       (int64_t)dice(world, (uint64_t)offset + 1)),
                         TERN_OK);
}

static void something_happens(struct world *world)
{
    struct sim_net *net = world->cluster.net;
    switch (dice(world, 14)) {
    case 0:
    case 1:
        join(world);
        break;
    case 2:
        leave(world);
        break;
    case 3:
        broker_down(world);
        break;
    case 4:
    case 5:
        broker_up(world);
        break;
    case 6:
        sim_net_cut(net, CLUSTER_CLIENT_HOST, CLUSTER_BROKER_HOST);
        break;
    case 7:
    case 8:
        sim_net_heal_all(net);
        break;
    case 9:
        sim_net_reset(net, CLUSTER_CLIENT_HOST, CLUSTER_BROKER_HOST);
        break;
    case 10:
        restart_producer(world);
        break;
    case 11:
        reset_progress(world);
        break;
    case 12:
        sim_net_set_delay(net, 50000, 100000 + (int64_t)dice(world, 20000000));
        break;
    default:
        if (world->cluster.namesrv)
            cluster_kill_namesrv(&world->cluster);
        else
            cluster_start_namesrv(&world->cluster);
    }
}

static void begin(struct world *world, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->seed = seed;
    rng_seeded_init(&world->rng, seed);
    cluster_init(&world->cluster, seed);
    forget_progress(world);
    world->cluster.nodes[0].config.flush_type = world->sync_flush ? FLUSH_SYNC : FLUSH_ASYNC;
}

static void drain(struct world *world)
{
    sim_net_heal_all(world->cluster.net);
    sim_net_set_delay(world->cluster.net, 50000, 200000);
    world->fail_percent = 0;
    if (!world->cluster.namesrv)
        cluster_start_namesrv(&world->cluster);
    broker_up(world);
    while (!world->members[0] && !world->members[1] && !world->members[2])
        join(world);
    int64_t limit = clock_mono_ns(world->cluster.sim.env.clock) + ms_to_ns(DRAIN_MS);
    if (!sim_run_until_true(world->cluster.sim.sched, all_finished, world, limit)) {
        for (uint32_t i = 0; i < world->sent; i++) {
            const struct number *number = &world->numbers[i];
            if (!number->answers)
                fail_msg("seed %" PRIu64 ": number %" PRIu32 " was never answered", world->seed, i);
            if (number->acked && !number->lossy && !number->finished)
                fail_msg("seed %" PRIu64 ": number %" PRIu32 ", acknowledged as %d:%" PRId64
                         ", was never delivered",
                         world->seed, i, number->queue_id, number->queue_offset);
        }
    }
    check_progress(world);
}

static void run_schedule(uint64_t seed)
{
    struct world *world = malloc(sizeof *world);
    assert_non_null(world);
    begin(world, seed);
    world->sync_flush = dice(world, 2);
    world->cluster.nodes[0].config.flush_type = world->sync_flush ? FLUSH_SYNC : FLUSH_ASYNC;
    world->may_lose_power = dice(world, 3) > 0;
    world->may_reset = dice(world, 3) == 0;
    world->tagged = dice(world, 3) == 0;
    world->fail_percent = (unsigned)(dice(world, 2) * dice(world, 30));
    node_start(&world->cluster.nodes[0]);
    cluster_create_topic(&world->cluster, "Numbers", QUEUES);
    world->producer = cluster_producer(&world->cluster, 1000, 2);
    join(world);
    for (int step = 0; step < GROUP_STEPS; step++) {
        send_some(world, (uint32_t)dice(world, 40));
        run_ms(world, dice(world, 4) ? 300 : 8000);
        check_progress(world);
        something_happens(world);
        check_progress(world);
    }
    drain(world);
    for (size_t i = 0; i < READERS_MAX; i++)
        tern_push_consumer_destroy(world->members[i]);
    check_progress(world);
    tern_producer_destroy(world->producer);
    cluster_fini(&world->cluster);
    free(world);
}

static void nothing_acknowledged_is_lost_or_skipped(void **state)
{
    (void)state;
    uint64_t first = 1, count = 200;
    const char *seeds = getenv("TERN_SIM_SEEDS");
    if (seeds)
        assert_int_equal(sscanf(seeds, "%" SCNu64 ":%" SCNu64, &first, &count), 2);
    for (uint64_t seed = first; seed < first + count; seed++)
        run_schedule(seed);
}

/* ---- single faults ---- */

struct heard {
    uint32_t count;
    int64_t first_offset;
};

static enum tern_consume_result hear(void *arg, const struct tern_message *const *messages,
                                     size_t count)
{
    struct heard *heard = arg;
    if (heard->count == 0)
        heard->first_offset = tern_message_queue_offset(messages[0]);
    heard->count += (uint32_t)count;
    return TERN_CONSUME_SUCCESS;
}

static void send_words(struct tern_producer *producer, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct tern_message *message;
        struct tern_send_result result;
        struct tern_error err;
        assert_int_equal(tern_message_create("Words", "word", 4, &message, &err), TERN_OK);
        assert_int_equal(tern_producer_send(producer, message, &result, &err), TERN_OK);
        tern_message_unref(message);
    }
}

static void begin_words(struct sim_cluster *cluster, uint64_t seed, struct tern_producer **producer)
{
    cluster_init(cluster, seed);
    node_start(&cluster->nodes[0]);
    cluster_create_topic(cluster, "Words", 1);
    *producer = cluster_producer(cluster, 3000, 2);
}

/* A kill loses nothing of the log: what was finished is not read again, though not persisted yet.
 */
static void killed_broker_makes_nobody_read_twice(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    struct tern_producer *producer;
    struct heard heard = {.count = 0};
    begin_words(&cluster, 3, &producer);
    struct tern_push_consumer *consumer =
        cluster_push_consumer(&cluster, "readers", "Words", "*", hear, &heard);
    send_words(producer, 10);
    sim_run_for(cluster.sim.sched, ms_to_ns(5000));
    send_words(producer, 200);
    sim_run_for(cluster.sim.sched, ms_to_ns(100));
    assert_int_equal(heard.count, 210);
    node_kill(&cluster.nodes[0]);
    node_start(&cluster.nodes[0]);
    sim_run_for(cluster.sim.sched, ms_to_ns(5000));
    send_words(producer, 50);
    sim_run_for(cluster.sim.sched, ms_to_ns(10000));
    assert_int_equal(heard.count, 260);
    tern_push_consumer_destroy(consumer);
    tern_producer_destroy(producer);
    cluster_fini(&cluster);
}

static struct tern_consumer_options *options_of(struct sim_cluster *cluster, const char *group,
                                                const char *instance)
{
    struct tern_consumer_options *o = tern_consumer_options_create();
    assert_non_null(o);
    tern_consumer_options_world(o, &cluster->client_env, cluster->client_link);
    assert_int_equal(tern_consumer_options_namesrv(o, CLUSTER_NAMESRV_ADDR), TERN_OK);
    assert_int_equal(tern_consumer_options_group(o, group), TERN_OK);
    assert_int_equal(tern_consumer_options_instance(o, instance), TERN_OK);
    return o;
}

/* deleting raised the version of "no progress"; the policy decides all the same, and lasts. */
static void group_without_progress_begins_by_its_policy_after_a_deletion(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    struct tern_producer *producer;
    struct tern_push_consumer *consumer;
    struct tern_error err;
    struct heard heard = {.count = 0};
    struct offset_version version;
    int64_t offset = -1;
    begin_words(&cluster, 5, &producer);
    send_words(producer, 20);
    offsets_remove_group(cluster.nodes[0].broker->offsets, "latecomers");
    struct tern_consumer_options *o = options_of(&cluster, "latecomers", "late");
    assert_int_equal(tern_consumer_options_from(o, TERN_FROM_LAST, 0), TERN_OK);
    assert_int_equal(tern_push_consumer_create(o, &consumer, &err), TERN_OK);
    assert_int_equal(tern_push_consumer_subscribe(consumer, "Words", "*", &err), TERN_OK);
    assert_int_equal(tern_push_consumer_listener(consumer, hear, &heard), TERN_OK);
    assert_int_equal(tern_push_consumer_start(consumer, &err), TERN_OK);
    sim_run_for(cluster.sim.sched, ms_to_ns(5000));
    assert_int_equal(heard.count, 0);
    send_words(producer, 3);
    sim_run_for(cluster.sim.sched, ms_to_ns(20000));
    assert_int_equal(heard.count, 3);
    assert_true(offsets_query(cluster.nodes[0].broker->offsets, "latecomers", "Words", 0, &offset,
                              &version));
    assert_int_equal(offset, 23);
    tern_push_consumer_destroy(consumer);
    tern_consumer_options_destroy(o);
    tern_producer_destroy(producer);
    cluster_fini(&cluster);
}

static void pull_consumer_commits_after_a_deletion(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    struct tern_producer *producer;
    struct tern_pull_consumer *consumer;
    struct tern_error err = {.text = ""};
    struct tern_queue queue = {.topic = "Words", .broker_name = "broker-a"};
    int64_t offset = -1;
    begin_words(&cluster, 7, &producer);
    send_words(producer, 5);
    offsets_remove_group(cluster.nodes[0].broker->offsets, "pullers");
    struct tern_consumer_options *o = options_of(&cluster, "pullers", "pull");
    assert_int_equal(tern_pull_consumer_create(o, &consumer, &err), TERN_OK);
    assert_int_equal(tern_pull_consumer_start(consumer, &err), TERN_OK);
    assert_int_equal(tern_pull_consumer_commit(consumer, &queue, 4, &err), TERN_OK);
    assert_int_equal(tern_pull_consumer_committed(consumer, &queue, &offset, &err), TERN_OK);
    assert_int_equal(offset, 4);
    tern_pull_consumer_destroy(consumer);
    tern_consumer_options_destroy(o);
    tern_producer_destroy(producer);
    cluster_fini(&cluster);
}

/* OF-07 */
static void pull_that_waited_through_a_reset_brings_no_messages(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    struct tern_producer *producer;
    struct heard heard = {.count = 0};
    begin_words(&cluster, 9, &producer);
    struct tern_push_consumer *consumer =
        cluster_push_consumer(&cluster, "readers", "Words", "*", hear, &heard);
    send_words(producer, 50);
    sim_run_for(cluster.sim.sched, ms_to_ns(2000));
    assert_int_equal(heard.count, 50);
    heard.count = 0;
    assert_int_equal(offsets_reset(cluster.nodes[0].broker->offsets, "readers", "Words", 0, 10),
                     TERN_OK);
    send_words(producer, 1);
    sim_run_for(cluster.sim.sched, ms_to_ns(2000));
    assert_int_equal(heard.first_offset, 10);
    assert_int_equal(heard.count, 41);
    tern_push_consumer_destroy(consumer);
    tern_producer_destroy(producer);
    cluster_fini(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_acknowledged_is_lost_or_skipped),
        cmocka_unit_test(killed_broker_makes_nobody_read_twice),
        cmocka_unit_test(group_without_progress_begins_by_its_policy_after_a_deletion),
        cmocka_unit_test(pull_consumer_commits_after_a_deletion),
        cmocka_unit_test(pull_that_waited_through_a_reset_brings_no_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
