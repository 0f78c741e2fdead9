/*
 * Orderly consumers over a broker set, on virtual time: members that come, go and die, and a master
 * that dies, while messages are in hands. What must hold: one listener per queue at a time, no
 * message before its predecessor, none left out. (D-3, R-1, RO-10, docs/ordering.md)
 *
 * Each member is a process of its own, at a host of its own. Listeners take seconds; on the one
 * thread of the simulation they wait inside each other, so whatever is to happen while they run is
 * done by them: stir().
 */
#include "tests/cluster/set_world.h"

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
#include "client/sim_hooks.h"

enum { MEMBERS_MAX_TEST = 64, STEP_MS = 500, QUEUES = WORLD_QUEUES };

struct member {
    unsigned number;
    char host[16];
    struct link *link;
    struct tern_push_consumer *consumer; /* NULL: not there */
    bool dead;                           /* killed: what it does does not happen */
    unsigned running;
    bool runs[QUEUES]; /* in a listener of this queue */
};

static struct world world;
static struct member members[MEMBERS_MAX_TEST];
static unsigned member_count;
static int64_t handler_ms;
static bool slowly;              /* a second per message, without waiting in the listener */
static uint32_t came[QUEUES];    /* messages of the queue, without those that came again */
static int64_t next_off[QUEUES]; /* one above the highest that came */
static int64_t last_ms[QUEUES];  /* when the last one came */
static bool may_repeat[QUEUES];  /* its owner was killed: what it had not committed comes again */
static bool all_may_repeat;      /* there was nobody to commit to */
static int64_t last_off[QUEUES];
static uint32_t repeated;
static uint64_t seed_now;
static struct rng_seeded rng;
static bool stirring;
static int64_t stir_due_ms;
static void (*stir)(void); /* NULL: quiet */

static int64_t now_ms(void)
{
    return clock_mono_ns(world.cluster.sim.env.clock) / 1000000;
}

static void pause_ms(int64_t ms)
{
    struct latch never;
    latch_init(&never);
    int64_t until_ns = clock_mono_ns(world.cluster.sim.env.clock) + ms_to_ns(ms);
    assert_false(latch_wait(sim_sched_base(world.cluster.sim.sched), &never, until_ns));
}

static void stir_when_due(void)
{
    if (!stir || stirring || now_ms() < stir_due_ms)
        return;
    stirring = true;
    stir_due_ms = now_ms() + 2000;
    stir();
    stirring = false;
}

/* ---- members ---- */

static void note_message(int32_t queue, int64_t offset)
{
    bool again = offset < next_off[queue];
    if (again && (may_repeat[queue] || all_may_repeat)) {
        repeated++;
    } else if (offset != next_off[queue] && !(again && offset == last_off[queue] + 1)) {
        fail_msg("seed %" PRIu64 ": queue %" PRId32 ": offset %" PRId64 " came, %" PRId64
                 " was next",
                 seed_now, queue, offset, next_off[queue]);
    }
    may_repeat[queue] = false; /* from there on one by one again */
    last_off[queue] = offset;
    if (!again) {
        next_off[queue] = offset + 1;
        came[queue]++;
    }
    last_ms[queue] = now_ms();
}

static enum tern_orderly_result on_messages(void *arg, const struct tern_message *const *messages,
                                            size_t count)
{
    struct member *member = arg;
    int32_t queue = tern_message_queue_id(messages[0]);
    assert_int_equal(count, 1);
    if (member->dead)
        return TERN_ORDERLY_SUSPEND_CURRENT_QUEUE_A_MOMENT;
    for (unsigned i = 0; i < member_count; i++)
        if (members[i].runs[queue] && !members[i].dead)
            fail_msg("seed %" PRIu64 ": queue %" PRId32 " runs at members %u and %u", seed_now,
                     queue, i, member->number);
    if (slowly && tern_message_reconsume_times(messages[0]) == 0)
        return TERN_ORDERLY_SUSPEND_CURRENT_QUEUE_A_MOMENT; /* for a second */
    member->running++;
    member->runs[queue] = true;
    note_message(queue, tern_message_queue_offset(messages[0]));
    for (int64_t left = handler_ms; left > 0 && !member->dead; left -= STEP_MS) {
        pause_ms(left < STEP_MS ? left : STEP_MS);
        stir_when_due();
    }
    member->running--;
    member->runs[queue] = false;
    return member->dead ? TERN_ORDERLY_SUSPEND_CURRENT_QUEUE_A_MOMENT : TERN_ORDERLY_SUCCESS;
}

static struct member *member_join(void)
{
    struct tern_error err = {.text = ""};
    char name[16];
    assert_true(member_count < MEMBERS_MAX_TEST);
    struct member *member = &members[member_count];
    *member = (struct member){.number = member_count};
    snprintf(member->host, sizeof member->host, "10.0.1.%u", member_count++);
    snprintf(name, sizeof name, "member%u", member->number);
    member->link = sim_net_link(world.cluster.net, member->host);
    struct tern_consumer_options *o = tern_consumer_options_create();
    tern_consumer_options_world(o, &world.cluster.client_env, member->link);
    assert_int_equal(tern_consumer_options_namesrv(o, CLUSTER_NAMESRV_ADDR), TERN_OK);
    assert_int_equal(tern_consumer_options_group(o, WORLD_GROUP), TERN_OK);
    assert_int_equal(tern_consumer_options_instance(o, name), TERN_OK);
    assert_int_equal(tern_consumer_options_from(o, TERN_FROM_FIRST, 0), TERN_OK);
    struct tern_push_consumer *consumer;
    assert_int_equal(tern_push_consumer_create(o, &consumer, &err), TERN_OK);
    tern_consumer_options_destroy(o);
    assert_int_equal(tern_push_consumer_subscribe(consumer, WORLD_TOPIC, "*", &err), TERN_OK);
    assert_int_equal(tern_push_consumer_listener_orderly(consumer, on_messages, member), TERN_OK);
    if (tern_push_consumer_start(consumer, &err) != TERN_OK)
        fail_msg("%s", err.text);
    member->consumer = consumer;
    return member;
}

/* A clean stop; only while none of its listeners runs further up the stack. */
static void member_leave(struct member *member)
{
    struct tern_push_consumer *consumer = member->consumer;
    member->consumer = NULL;
    assert_int_equal(member->running, 0);
    tern_push_consumer_destroy(consumer);
    link_destroy(member->link);
    member->link = NULL;
}

/* SIGKILL: at once, in the middle of whatever it does. */
static void member_kill(struct member *member)
{
    member->dead = true;
    for (int i = 0; i < QUEUES; i++)
        if (member->runs[i])
            last_ms[i] = now_ms();
    for (int i = 0; i < QUEUES; i++)
        may_repeat[i] = true;
    sim_net_crash(world.cluster.net, member->host);
}

static unsigned alive(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < member_count; i++)
        count += members[i].consumer && !members[i].dead;
    return count;
}

/* ---- the world ---- */

static void begin_as(uint64_t seed, int32_t role)
{
    seed_now = seed;
    rng_seeded_init(&rng, seed);
    member_count = 0;
    memset(members, 0, sizeof members);
    memset(came, 0, sizeof came);
    memset(next_off, 0, sizeof next_off);
    memset(may_repeat, 0, sizeof may_repeat);
    all_may_repeat = false;
    for (int i = 0; i < QUEUES; i++)
        last_off[i] = -1;
    repeated = 0;
    stir = NULL;
    handler_ms = 0;
    slowly = false;
    world_prepare(&world, seed);
    world.master->config.role = role;
    world_start(&world);
}

static void begin(uint64_t seed)
{
    begin_as(seed, ROLE_SYNC_MASTER);
}

static void end(void)
{
    stir = NULL;
    handler_ms = 0;
    for (unsigned i = 0; i < member_count; i++) {
        tern_push_consumer_destroy(members[i].consumer);
        if (members[i].link)
            link_destroy(members[i].link);
    }
    world_end(&world);
}

static uint32_t wanted;

static bool all_came(void *arg)
{
    (void)arg;
    for (int i = 0; i < QUEUES; i++)
        if (came[i] < wanted)
            return false;
    return true;
}

static void put_everywhere(uint32_t per_queue)
{
    for (int32_t i = 0; i < QUEUES; i++)
        world_put_some(&world, i, per_queue);
}

/* ---- tests ---- */

static void come_and_go(void)
{
    uint64_t what = rng_next(&rng.rng) % 3;
    if (what > 0 && alive() < 5 && member_count < MEMBERS_MAX_TEST) {
        member_join();
        return;
    }
    for (unsigned i = 0; i < member_count && alive() > 1; i++)
        if (members[i].consumer && members[i].running == 0) {
            member_leave(&members[i]);
            return;
        }
}

/* RO-10: handler 5 s, members joining and leaving every 2 s. */
static void order_holds_while_members_come_and_go(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(seed);
        wanted = 15;
        put_everywhere(wanted);
        handler_ms = 5000;
        stir = come_and_go;
        member_join();
        assert_true(world_await(&world, all_came, 900000));
        assert_int_equal(repeated, 0);
        end();
    }
}

static void die_too(void)
{
    if (rng_next(&rng.rng) % 4 == 0 && alive() > 1) {
        for (unsigned i = 0; i < member_count; i++)
            if (members[i].consumer && !members[i].dead) {
                member_kill(&members[i]);
                return;
            }
    }
    come_and_go();
}

/* Killed ones, too: what they had not committed comes again, in order, and only then. */
static void order_holds_while_members_are_killed(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(seed);
        wanted = 10;
        put_everywhere(wanted);
        handler_ms = 3000;
        stir = die_too;
        member_join();
        assert_true(world_await(&world, all_came, 4000000));
        end();
    }
}

/* The lease of a dead owner decides, and nobody waits longer. */
static void queues_of_a_killed_member_go_on_when_its_lease_ends(void **state)
{
    (void)state;
    begin(3);
    struct member *first = member_join();
    world_run_ms(&world, 3000);
    wanted = 5;
    put_everywhere(5);
    assert_true(world_await(&world, all_came, 2000));
    world_run_ms(&world, 6000); /* committed */
    member_kill(first);
    int64_t killed_ms = now_ms();
    member_join();
    wanted = 10;
    put_everywhere(5);
    assert_true(world_await(&world, all_came, 70000));
    assert_in_range(now_ms() - killed_ms, 49000, 61000);
    assert_int_equal(repeated, 0);
    end();
}

static void clean_stop_hands_over_within_a_second(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        begin(seed);
        struct member *first = member_join();
        member_join();
        world_run_ms(&world, 3000);
        wanted = 5;
        put_everywhere(5);
        assert_true(world_await(&world, all_came, 2000));
        member_leave(first);
        int64_t left_ms = now_ms();
        wanted = 10;
        put_everywhere(5);
        assert_true(world_await(&world, all_came, 1000));
        assert_true(now_ms() - left_ms < 1000);
        assert_int_equal(repeated, 0);
        end();
    }
}

/* The set's master dies: the owners go on at the slave, and at the master when it is back. */
static void order_holds_over_the_masters_death_and_return(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        begin(seed);
        handler_ms = 200;
        member_join();
        member_join();
        world_run_ms(&world, 3000);
        wanted = 100;
        put_everywhere(100);
        world_run_ms(&world, 5000);
        node_kill(world.master);
        world_run_ms(&world, 100000); /* beyond two leases */
        assert_true(world_await(&world, all_came, 30000));
        node_start(world.master);
        assert_true(world_await(&world, world_in_sync, 35000));
        wanted = 150;
        put_everywhere(50);
        assert_true(world_await(&world, all_came, 30000));
        assert_int_equal(repeated, 0);
        end();
    }
}

/* A member that comes while the master is away waits for a lease more, then shares the queues. */
static void members_join_while_the_master_is_away(void **state)
{
    (void)state;
    begin(5);
    slowly = true;
    member_join();
    world_run_ms(&world, 3000);
    wanted = 200;
    put_everywhere(200);
    world_run_ms(&world, 5000);
    node_kill(world.master);
    world_run_ms(&world, 1000);
    struct member *second = member_join();
    assert_true(world_await(&world, all_came, 400000));
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(second->consumer, &stats);
    assert_true(stats.consumed > 0);
    end();
}

static struct member *leaving;

/* Two members in the middle of their messages; one of them, which is to leave, has ended its last
 * one. */
static void one_of_two_is_to_leave(uint64_t seed)
{
    begin(seed);
    leaving = member_join();
    member_join();
    world_run_ms(&world, 3000);
    wanted = 10;
    put_everywhere(10);
    assert_true(world_await(&world, all_came, 4000));
    wanted = 30;
    slowly = true;
    put_everywhere(20);
    world_run_ms(&world, 1700);
    assert_int_equal(tern_push_consumer_suspend(leaving->consumer), TERN_OK);
    assert_int_equal(leaving->running, 0);
    world_run_ms(&world, 6000); /* committed */
}

/* The owner said so itself: the slave hands its queues on without waiting for leases. */
static void queues_of_a_member_that_leaves_go_on_while_the_master_is_dead(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        one_of_two_is_to_leave(seed);
        node_kill(world.master);
        world_run_ms(&world, 1000);
        member_leave(leaving);
        slowly = false;
        int64_t left_ms = now_ms();
        assert_true(world_await(&world, all_came, 70000));
        assert_in_range(now_ms() - left_ms, 0, 12000);
        assert_int_equal(repeated, 0);
        end();
    }
}

static void kill_master(void *arg)
{
    (void)arg;
    node_kill(world.master);
}

static void start_nodes(void *arg)
{
    (void)arg;
    node_start(world.master);
    if (!world.slave->broker)
        node_start(world.slave);
}

/* The master dies while it is told, or just before. Whatever it did with the release, it is back
 * before a lease has ended, and so are the queues. */
static void queues_of_a_member_that_left_go_on_when_the_master_is_back(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        one_of_two_is_to_leave(seed);
        all_may_repeat = true; /* the master that is back raises versions of progress */
        if (seed % 2 == 0)
            node_kill(world.slave); /* nobody else can be told */
        sim_after(world.cluster.sim.sched, (int64_t)seed * 100000, kill_master, NULL);
        sim_after(world.cluster.sim.sched, ms_to_ns(2000), start_nodes, NULL);
        member_leave(leaving);
        slowly = false;
        int64_t left_ms = now_ms();
        assert_true(world_await(&world, all_came, 70000));
        assert_in_range(now_ms() - left_ms, 0, 20000);
        end();
    }
}

/* A broker that was restarted has lost its locks: the owners come before the others. */
static void owners_keep_their_queues_over_a_brokers_restart(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        begin_as(seed, ROLE_ASYNC_MASTER);
        node_stop(world.slave);
        world_run_ms(&world, 20000); /* out of the set: nobody keeps copies */
        handler_ms = 4000;
        member_join();
        member_join();
        world_run_ms(&world, 3000);
        wanted = 8;
        put_everywhere(8);
        world_run_ms(&world, 5000);
        node_kill(world.master);
        node_start(world.master);
        member_join();
        assert_true(world_await(&world, all_came, 300000));
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_holds_while_members_come_and_go),
        cmocka_unit_test(order_holds_while_members_are_killed),
        cmocka_unit_test(queues_of_a_killed_member_go_on_when_its_lease_ends),
        cmocka_unit_test(clean_stop_hands_over_within_a_second),
        cmocka_unit_test(order_holds_over_the_masters_death_and_return),
        cmocka_unit_test(members_join_while_the_master_is_away),
        cmocka_unit_test(queues_of_a_member_that_leaves_go_on_while_the_master_is_dead),
        cmocka_unit_test(queues_of_a_member_that_left_go_on_when_the_master_is_back),
        cmocka_unit_test(owners_keep_their_queues_over_a_brokers_restart),
    };
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
