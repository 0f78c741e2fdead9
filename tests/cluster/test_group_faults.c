/*
 * RO-09: a group of four shares sixteen queues of a broker set while links between everybody fail
 * at random. Two rebalances after the last change each queue has exactly one owner, and all are
 * read.
 *
 * Each member is a machine of its own, so that its links to nameserver, master and slave fail one
 * by one. Every round from a seed; SIM_LOG=1 prints it and the log.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "client/push_internal.h"
#include "client/sim_hooks.h"
#include "tests/cluster/sim_cluster.h"

enum { MEMBERS = 4, QUEUES = 16, CUTS = 100, TWO_PERIODS_MS = 2 * REBALANCE_MS + 1000 };

struct member {
    char host[24];
    struct link *link;
    struct tern_push_consumer *consumer;
    struct group *group;
};

struct group {
    struct sim_cluster cluster;
    struct sim_node *slave;
    struct member members[MEMBERS];
    uint32_t heard[QUEUES]; /* by queue, whoever heard it */
};

static enum tern_consume_result listen(void *arg, const struct tern_message *const *messages,
                                       size_t count)
{
    struct group *group = arg;
    for (size_t i = 0; i < count; i++)
        group->heard[tern_message_queue_id(messages[i])]++;
    return TERN_CONSUME_SUCCESS;
}

static void member_start(struct group *group, int i)
{
    struct member *member = &group->members[i];
    struct tern_error err = {.text = ""};
    struct tern_consumer_options *options = tern_consumer_options_create();
    member->group = group;
    snprintf(member->host, sizeof member->host, "10.0.1.%d", i + 1);
    if (!member->link)
        member->link = sim_net_link(group->cluster.net, member->host);
    tern_consumer_options_world(options, &group->cluster.client_env, member->link);
    assert_int_equal(tern_consumer_options_namesrv(options, CLUSTER_NAMESRV_ADDR), TERN_OK);
    assert_int_equal(tern_consumer_options_group(options, "Group"), TERN_OK);
    assert_int_equal(tern_consumer_options_instance(options, member->host), TERN_OK);
    assert_int_equal(tern_consumer_options_from(options, TERN_FROM_FIRST, 0), TERN_OK);
    assert_int_equal(tern_push_consumer_create(options, &member->consumer, &err), TERN_OK);
    tern_consumer_options_destroy(options);
    assert_int_equal(tern_push_consumer_subscribe(member->consumer, "Shared", "*", &err), TERN_OK);
    assert_int_equal(tern_push_consumer_listener(member->consumer, listen, group), TERN_OK);
    assert_int_equal(tern_push_consumer_start(member->consumer, &err), TERN_OK);
}

static void member_stop(struct member *member)
{
    tern_push_consumer_destroy(member->consumer);
    member->consumer = NULL;
}

static void run_ms(struct group *group, int64_t ms)
{
    sim_run_for(group->cluster.sim.sched, ms_to_ns(ms));
}

static struct group *group_start(uint64_t seed)
{
    struct group *group = calloc(1, sizeof *group);
    assert_non_null(group);
    cluster_init(&group->cluster, seed);
    node_start(&group->cluster.nodes[0]);
    group->slave = cluster_add_node(&group->cluster, "broker-a", 1);
    node_start(group->slave);
    run_ms(group, 2000);
    cluster_create_topic(&group->cluster, "Shared", QUEUES);
    run_ms(group, 1000);
    for (int i = 0; i < MEMBERS; i++)
        member_start(group, i);
    run_ms(group, 2000);
    return group;
}

static void group_end(struct group *group)
{
    for (int i = 0; i < MEMBERS; i++) {
        if (group->members[i].consumer)
            member_stop(&group->members[i]);
        link_destroy(group->members[i].link);
    }
    cluster_fini(&group->cluster);
    free(group);
}

/* Whose object a queue has, counted; the retry topic aside. */
static void count_owners(const struct group *group, unsigned owners[QUEUES])
{
    memset(owners, 0, QUEUES * sizeof owners[0]);
    for (int i = 0; i < MEMBERS; i++) {
        struct tern_push_consumer *consumer = group->members[i].consumer;
        if (!consumer)
            continue;
        lock_acquire(&consumer->lock);
        for (const struct push_queue *queue = consumer->queues; queue; queue = queue->next)
            if (strcmp(queue->id.topic, "Shared") == 0)
                owners[queue->id.queue_id]++;
        lock_release(&consumer->lock);
    }
}

static void expect_one_owner_each(const struct group *group, uint64_t seed)
{
    unsigned owners[QUEUES];
    count_owners(group, owners);
    for (int q = 0; q < QUEUES; q++)
        if (owners[q] != 1)
            fail_msg("seed %llu: queue %d has %u owners", (unsigned long long)seed, q, owners[q]);
}

/* One message to each queue reaches somebody. */
static void expect_all_are_read(struct group *group, uint64_t seed)
{
    uint32_t before[QUEUES];
    struct tern_error err;
    struct tern_producer *producer = cluster_producer(&group->cluster, 3000, 2);
    memcpy(before, group->heard, sizeof before);
    for (int q = 0; q < QUEUES; q++) {
        struct tern_queue queue = {.topic = "Shared", .broker_name = "broker-a", .queue_id = q};
        struct tern_message *message;
        struct tern_send_result result;
        assert_int_equal(tern_message_create("Shared", "x", 1, &message, &err), TERN_OK);
        assert_int_equal(tern_producer_send_to(producer, message, &queue, &result, &err), TERN_OK);
        tern_message_unref(message);
    }
    run_ms(group, 1000);
    tern_producer_destroy(producer);
    for (int q = 0; q < QUEUES; q++)
        if (group->heard[q] != before[q] + 1)
            fail_msg("seed %llu: queue %d was heard %u times", (unsigned long long)seed, q,
                     group->heard[q] - before[q]);
}

static const char *random_node(struct group *group, struct rng *rng)
{
    const char *const hosts[] = {CLUSTER_NAMESRV_HOST, CLUSTER_BROKER_HOST, group->slave->host};
    return hosts[rng_below(rng, 3)];
}

/* Cuts a link for a while, silently, or breaks its connection. */
static void disturb(struct group *group, struct rng *rng)
{
    const char *member = group->members[rng_below(rng, MEMBERS)].host;
    const char *node = random_node(group, rng);
    if (rng_below(rng, 3) == 0) {
        sim_net_reset(group->cluster.net, member, node);
        run_ms(group, (int64_t)rng_below(rng, 3000));
        return;
    }
    sim_net_cut(group->cluster.net, member, node);
    run_ms(group, (int64_t)rng_below(rng, rng_below(rng, 8) == 0 ? 200000 : 5000));
    if (rng_below(rng, 4) != 0) /* others stay cut until the end or another's healing */
        sim_net_heal(group->cluster.net, member, node);
}

static void after_random_cuts_every_queue_has_exactly_one_owner(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct rng_seeded rng;
        rng_seeded_init(&rng, seed);
        struct group *group = group_start(seed);
        expect_one_owner_each(group, seed);
        for (int i = 0; i < CUTS; i++)
            disturb(group, &rng.rng);
        sim_net_heal_all(group->cluster.net);
        run_ms(group, TWO_PERIODS_MS);
        expect_one_owner_each(group, seed);
        expect_all_are_read(group, seed);
        group_end(group);
    }
}

/* Members that stop and start while links fail. */
static void members_that_come_and_go_leave_no_queue_without_owner(void **state)
{
    (void)state;
    for (uint64_t seed = 11; seed <= 14; seed++) {
        struct rng_seeded rng;
        rng_seeded_init(&rng, seed);
        struct group *group = group_start(seed);
        for (int i = 0; i < 30; i++) {
            int who = 1 + (int)rng_below(&rng.rng, MEMBERS - 1);
            if (group->members[who].consumer)
                member_stop(&group->members[who]);
            else
                member_start(group, who);
            disturb(group, &rng.rng);
        }
        sim_net_heal_all(group->cluster.net);
        run_ms(group, TWO_PERIODS_MS);
        expect_one_owner_each(group, seed);
        expect_all_are_read(group, seed);
        group_end(group);
    }
}

/* Without faults a change is over long before the next round. */
static void a_member_that_joins_or_leaves_is_followed_within_half_a_second(void **state)
{
    (void)state;
    struct group *group = group_start(21);
    unsigned owners[QUEUES];
    for (int i = 0; i < 10; i++) {
        int who = i % MEMBERS;
        member_stop(&group->members[who]);
        run_ms(group, 500);
        expect_one_owner_each(group, 21);
        member_start(group, who);
        run_ms(group, 500);
        expect_one_owner_each(group, 21);
    }
    count_owners(group, owners);
    expect_all_are_read(group, 21);
    group_end(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_random_cuts_every_queue_has_exactly_one_owner),
        cmocka_unit_test(members_that_come_and_go_leave_no_queue_without_owner),
        cmocka_unit_test(a_member_that_joins_or_leaves_is_followed_within_half_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
