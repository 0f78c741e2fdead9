/*
 * A whole cluster on virtual time: what holds between nameserver, broker and clients when processes
 * die, power fails and links are cut. Every test runs from several seeds; SIM_LOG=1 prints the seed
 * and the log.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tests/cluster/sim_cluster.h"

enum { NUMBERS_MAX = 4096 };

/* What a consumer got: how often each number, and whether a queue's first occurrences came in
 * order. */
struct inbox {
    uint32_t times[NUMBERS_MAX];
    int64_t next_offset[8];
    uint32_t count, distinct, out_of_order;
};

static enum tern_consume_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct inbox *inbox = arg;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        uint32_t number;
        const void *body = tern_message_body(messages[i], &size);
        assert_int_equal(size, sizeof number);
        memcpy(&number, body, sizeof number);
        assert_true(number < NUMBERS_MAX);
        int64_t *next = &inbox->next_offset[tern_message_queue_id(messages[i])];
        if (inbox->times[number]++ == 0) {
            inbox->distinct++;
            inbox->out_of_order += tern_message_queue_offset(messages[i]) < *next;
            *next = tern_message_queue_offset(messages[i]) + 1;
        }
        inbox->count++;
    }
    return TERN_CONSUME_SUCCESS;
}

static enum tern_code send_number(struct tern_producer *producer, const char *topic,
                                  uint32_t number, const char *tag)
{
    struct tern_message *message;
    struct tern_send_result result;
    struct tern_error err;
    assert_int_equal(tern_message_create(topic, &number, sizeof number, &message, &err), TERN_OK);
    if (tag)
        assert_int_equal(tern_message_set_tag(message, tag), TERN_OK);
    enum tern_code code = tern_producer_send(producer, message, &result, &err);
    tern_message_unref(message);
    return code == TERN_OK ? result.status : code;
}

struct awaited {
    const struct inbox *inbox;
    uint32_t distinct;
};

static bool got_enough(void *arg)
{
    const struct awaited *awaited = arg;
    return awaited->inbox->distinct >= awaited->distinct;
}

static bool await(struct sim_cluster *cluster, const struct inbox *inbox, uint32_t distinct,
                  int64_t patience_ms)
{
    struct awaited awaited = {inbox, distinct};
    int64_t limit = clock_mono_ns(cluster->sim.env.clock) + ms_to_ns(patience_ms);
    return sim_run_until_true(cluster->sim.sched, got_enough, &awaited, limit);
}

/* ---- tests ---- */

static void sent_messages_reach_a_push_consumer_once_and_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct sim_cluster cluster;
        struct inbox inbox = {.count = 0};
        cluster_init(&cluster, seed);
        node_start(&cluster.nodes[0]);
        cluster_create_topic(&cluster, "Numbers", 4);
        struct tern_push_consumer *consumer =
            cluster_push_consumer(&cluster, "readers", "Numbers", "*", on_messages, &inbox);
        struct tern_producer *producer = cluster_producer(&cluster, 3000, 2);
        for (uint32_t i = 0; i < 500; i++)
            assert_int_equal(send_number(producer, "Numbers", i, NULL), TERN_OK);
        assert_true(await(&cluster, &inbox, 500, 5000));
        assert_int_equal(inbox.count, 500);
        assert_int_equal(inbox.out_of_order, 0);
        tern_push_consumer_destroy(consumer);
        tern_producer_destroy(producer);
        cluster_fini(&cluster);
    }
}

/* R-8, OF-17: a parked pull is answered by the arrival, not by its time-out. */
static void parked_pull_is_woken_by_arrival(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    struct inbox inbox = {.count = 0};
    cluster_init(&cluster, 7);
    node_start(&cluster.nodes[0]);
    cluster_create_topic(&cluster, "Numbers", 1);
    struct tern_push_consumer *consumer =
        cluster_push_consumer(&cluster, "readers", "Numbers", "*", on_messages, &inbox);
    struct tern_producer *producer = cluster_producer(&cluster, 3000, 2);
    for (uint32_t i = 0; i < 50; i++) {
        sim_run_for(cluster.sim.sched, ms_to_ns(20) + (int64_t)i * 7000);
        assert_int_equal(send_number(producer, "Numbers", i, NULL), TERN_OK);
        assert_true(await(&cluster, &inbox, i + 1, 100));
    }
    tern_push_consumer_destroy(consumer);
    tern_producer_destroy(producer);
    cluster_fini(&cluster);
}

/* S-5, S-6, ST-08: SYNC_FLUSH loses nothing that was acknowledged, whatever the disk forgets. */
static void power_loss_keeps_what_was_acknowledged(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct sim_cluster cluster;
        struct inbox inbox = {.count = 0};
        bool acked[NUMBERS_MAX] = {false};
        uint32_t next = 0, acked_count = 0;
        cluster_init(&cluster, seed);
        node_start(&cluster.nodes[0]);
        cluster_create_topic(&cluster, "Numbers", 2);
        struct tern_producer *producer = cluster_producer(&cluster, 500, 0);
        for (int life = 0; life < 3; life++) {
            uint32_t sends = 20 + (uint32_t)(seed * 13 + (uint64_t)life * 7) % 60;
            for (uint32_t i = 0; i < sends; i++, next++) {
                acked[next] = send_number(producer, "Numbers", next, NULL) == TERN_OK;
                acked_count += acked[next];
            }
            node_power_off(&cluster.nodes[0], (enum sim_torn)(seed % 4));
            node_start(&cluster.nodes[0]);
            sim_run_for(cluster.sim.sched, ms_to_ns(3000)); /* the client reconnects */
        }
        struct tern_push_consumer *consumer =
            cluster_push_consumer(&cluster, "readers", "Numbers", "*", on_messages, &inbox);
        assert_true(await(&cluster, &inbox, acked_count, 10000));
        for (uint32_t i = 0; i < next; i++)
            if (acked[i] && inbox.times[i] != 1)
                fail_msg("seed %" PRIu64 ": number %" PRIu32 " was acknowledged and came %" PRIu32
                         " times",
                         seed, i, inbox.times[i]);
        assert_int_equal(inbox.out_of_order, 0);
        tern_push_consumer_destroy(consumer);
        tern_producer_destroy(producer);
        cluster_fini(&cluster);
    }
}

/* OF-05, H-5: a group goes on where it was; nothing is skipped, little comes again. */
static void consumer_goes_on_after_the_broker_was_killed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct sim_cluster cluster;
        struct inbox inbox = {.count = 0};
        cluster_init(&cluster, seed);
        node_start(&cluster.nodes[0]);
        cluster_create_topic(&cluster, "Numbers", 2);
        struct tern_producer *producer = cluster_producer(&cluster, 3000, 5);
        struct tern_push_consumer *consumer =
            cluster_push_consumer(&cluster, "readers", "Numbers", "*", on_messages, &inbox);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_equal(send_number(producer, "Numbers", i, NULL), TERN_OK);
        assert_true(await(&cluster, &inbox, 100, 5000));
        node_kill(&cluster.nodes[0]);
        node_start(&cluster.nodes[0]);
        sim_run_for(cluster.sim.sched, ms_to_ns(3000));
        for (uint32_t i = 100; i < 200; i++)
            assert_int_equal(send_number(producer, "Numbers", i, NULL), TERN_OK);
        assert_true(await(&cluster, &inbox, 200, 40000));
        assert_int_equal(inbox.out_of_order, 0);
        tern_push_consumer_destroy(consumer);
        tern_producer_destroy(producer);
        cluster_fini(&cluster);
    }
}

/* F-1, OF-14: filtered messages do not come, and move the offset. */
static void filtered_messages_move_progress(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    struct inbox wanted = {.count = 0}, again = {.count = 0};
    cluster_init(&cluster, 3);
    node_start(&cluster.nodes[0]);
    cluster_create_topic(&cluster, "Numbers", 1);
    struct tern_producer *producer = cluster_producer(&cluster, 3000, 2);
    for (uint32_t i = 0; i < 300; i++)
        assert_int_equal(send_number(producer, "Numbers", i, i == 17 ? "A" : "B"), TERN_OK);
    struct tern_push_consumer *consumer =
        cluster_push_consumer(&cluster, "pickers", "Numbers", "A", on_messages, &wanted);
    assert_true(await(&cluster, &wanted, 1, 5000));
    sim_run_for(cluster.sim.sched, ms_to_ns(20000));
    assert_int_equal(wanted.count, 1);
    assert_int_equal(wanted.times[17], 1);
    tern_push_consumer_destroy(consumer);
    /* A new member of the group begins at the end: everything before counts as done. */
    consumer = cluster_push_consumer(&cluster, "pickers", "Numbers", "*", on_messages, &again);
    sim_run_for(cluster.sim.sched, ms_to_ns(5000));
    assert_int_equal(again.count, 0);
    assert_int_equal(send_number(producer, "Numbers", 300, "B"), TERN_OK);
    assert_true(await(&cluster, &again, 1, 5000));
    tern_push_consumer_destroy(consumer);
    tern_producer_destroy(producer);
    cluster_fini(&cluster);
}

/* NS-04: a restarted nameserver does not stop clients that have a route. */
static void nameserver_restart_fails_no_send(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    cluster_init(&cluster, 11);
    node_start(&cluster.nodes[0]);
    cluster_create_topic(&cluster, "Numbers", 2);
    struct tern_producer *producer = cluster_producer(&cluster, 3000, 2);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(send_number(producer, "Numbers", i, NULL), TERN_OK);
    cluster_kill_namesrv(&cluster);
    for (uint32_t i = 0; i < 20; i++) {
        sim_run_for(cluster.sim.sched, ms_to_ns(2000));
        assert_int_equal(send_number(producer, "Numbers", i, NULL), TERN_OK);
    }
    cluster_start_namesrv(&cluster);
    for (uint32_t i = 0; i < 20; i++) {
        sim_run_for(cluster.sim.sched, ms_to_ns(2000));
        assert_int_equal(send_number(producer, "Numbers", i, NULL), TERN_OK);
    }
    tern_producer_destroy(producer);
    cluster_fini(&cluster);
}

/* A silent cut: sends end at their own deadline, and go on when the link is back. */
static void cut_link_ends_sends_at_their_deadline(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    cluster_init(&cluster, 13);
    node_start(&cluster.nodes[0]);
    cluster_create_topic(&cluster, "Numbers", 1);
    struct tern_producer *producer = cluster_producer(&cluster, 1000, 0);
    assert_int_equal(send_number(producer, "Numbers", 0, NULL), TERN_OK);
    sim_net_cut(cluster.net, CLUSTER_CLIENT_HOST, CLUSTER_BROKER_HOST);
    int64_t begin_ns = clock_mono_ns(cluster.sim.env.clock);
    enum tern_code code = send_number(producer, "Numbers", 1, NULL);
    int64_t took_ms = (clock_mono_ns(cluster.sim.env.clock) - begin_ns) / 1000000;
    assert_int_equal(code, TERN_TIMEOUT);
    assert_in_range(took_ms, 990, 1100);
    sim_net_heal_all(cluster.net);
    sim_run_for(cluster.sim.sched, ms_to_ns(1000));
    assert_int_equal(send_number(producer, "Numbers", 2, NULL), TERN_OK);
    tern_producer_destroy(producer);
    cluster_fini(&cluster);
}

/* a second member takes its share at once, and gives it back when it leaves. */
static void members_share_the_queues(void **state)
{
    (void)state;
    struct sim_cluster cluster;
    struct inbox first = {.count = 0}, second = {.count = 0};
    struct tern_consumer_stats stats;
    cluster_init(&cluster, 17);
    node_start(&cluster.nodes[0]);
    cluster_create_topic(&cluster, "Numbers", 8);
    struct tern_push_consumer *a =
        cluster_push_consumer(&cluster, "sharers", "Numbers", "*", on_messages, &first);
    struct tern_push_consumer *b =
        cluster_push_consumer(&cluster, "sharers", "Numbers", "*", on_messages, &second);
    sim_run_for(cluster.sim.sched, ms_to_ns(1000));
    struct tern_producer *producer = cluster_producer(&cluster, 3000, 2);
    for (uint32_t i = 0; i < 80; i++)
        assert_int_equal(send_number(producer, "Numbers", i, NULL), TERN_OK);
    sim_run_for(cluster.sim.sched, ms_to_ns(1000));
    assert_int_equal(first.count + second.count, 80);
    assert_int_equal(first.count, 40);
    tern_push_consumer_destroy(b);
    sim_run_for(cluster.sim.sched, ms_to_ns(1000));
    tern_push_consumer_stats(a, &stats);
    assert_int_equal(stats.queues, 9); /* eight and the retry topic's */
    tern_push_consumer_destroy(a);
    tern_producer_destroy(producer);
    cluster_fini(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sent_messages_reach_a_push_consumer_once_and_in_order),
        cmocka_unit_test(parked_pull_is_woken_by_arrival),
        cmocka_unit_test(power_loss_keeps_what_was_acknowledged),
        cmocka_unit_test(consumer_goes_on_after_the_broker_was_killed),
        cmocka_unit_test(filtered_messages_move_progress),
        cmocka_unit_test(nameserver_restart_fails_no_send),
        cmocka_unit_test(cut_link_ends_sends_at_their_deadline),
        cmocka_unit_test(members_share_the_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
