/* Client instances: sharing, heartbeats, events, goodbyes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/instance_internal.h"
#include "client_world.h"

/* A consumer that only counts. */
struct member {
    struct instance_consumer consumer;
    const char *topic;
    int rebalances;
};

static bool describe(void *arg, struct arena *arena, Tern__Wire__ConsumerData *out)
{
    struct member *member = arg;
    Tern__Wire__Subscription *subscription = arena_alloc(arena, sizeof *subscription);
    Tern__Wire__Subscription **list = arena_alloc(arena, sizeof(Tern__Wire__Subscription *));
    if (!subscription || !list)
        return false;
    *subscription = (Tern__Wire__Subscription)TERN__WIRE__SUBSCRIPTION__INIT;
    subscription->topic = frame_bytes(member->topic, strlen(member->topic));
    list[0] = subscription;
    out->group = frame_bytes(member->consumer.group, strlen(member->consumer.group));
    out->n_subscriptions = 1;
    out->subscriptions = list;
    return true;
}

static void on_rebalance(void *arg)
{
    struct member *member = arg;
    member->rebalances++;
}

static void member_init(struct member *member, const char *group)
{
    *member = (struct member){.topic = "T"};
    member->consumer = (struct instance_consumer){
        .group = group, .describe = describe, .on_rebalance = on_rebalance, .arg = member};
}

static struct instance *named(struct client_world *world, const char *name)
{
    struct instance *made;
    struct instance_options options = {.namesrv = world->namesrv,
                                       .instance_name = name,
                                       .env = &world->sim.env,
                                       .link = world->client_link};
    assert_int_equal(instance_get(&options, &made, NULL), TERN_OK);
    return made;
}

static void learn_route(struct client_world *world, struct instance *client, const char *topic)
{
    struct route *route;
    assert_int_equal(
        instance_route(client, topic, world->sim.clock.now_ns + ms_to_ns(3000), &route, NULL),
        TERN_OK);
    route_unref(route);
}

/* */
static void same_name_shares_an_instance_and_others_do_not(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct instance *a = named(world, "one");
    struct instance *b = named(world, "one");
    struct instance *c = named(world, "two");
    struct instance *d = named(world, NULL);
    struct instance *e = named(world, NULL);
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    assert_ptr_not_equal(d, e);
    assert_string_equal(instance_client_id(a), "127.0.0.1@one");
    assert_non_null(strchr(instance_client_id(d), '#'));
    assert_string_not_equal(instance_client_id(d), instance_client_id(e));
    instance_unref(a);
    assert_int_equal(instance_start(b, NULL), TERN_OK);
    assert_int_equal(instance_start(b, NULL), TERN_OK);
    instance_unref(b);
    instance_unref(c);
    instance_unref(d);
    instance_unref(e);
    client_world_destroy(world);
}

/* */
static void group_joins_an_instance_once(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct instance *client = named(world, "x");
    struct member first;
    struct member second;
    struct tern_error err;
    member_init(&first, "G");
    member_init(&second, "G");
    assert_int_equal(instance_add_consumer(client, &first.consumer, &err), TERN_OK);
    assert_int_equal(instance_add_consumer(client, &second.consumer, &err), TERN_EXISTS);
    assert_non_null(strstr(err.text, "has been created before"));
    assert_int_equal(instance_add_producer(client, "G", &err), TERN_OK);
    assert_int_equal(instance_add_producer(client, "G", &err), TERN_EXISTS);
    instance_remove_producer(client, "G");
    assert_int_equal(instance_add_producer(client, "G", &err), TERN_OK);
    instance_remove_producer(client, "G");
    instance_remove_consumer(client, &first.consumer);
    instance_unref(client);
    client_world_destroy(world);
}

static void producers_beat_masters_and_consumers_beat_everybody(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    /* broker-b's process is the slave of set broker-a */
    struct fake_queues part = client_world_part(world, 0, 1);
    memcpy(part.slave, world->brokers[1].address, sizeof part.slave);
    client_world_put(world, "S", &part);
    struct instance *client = named(world, "x");
    struct member member;
    member_init(&member, "CG");
    member.topic = "S";
    assert_int_equal(instance_add_producer(client, "PG", NULL), TERN_OK);
    assert_int_equal(instance_start(client, NULL), TERN_OK);
    learn_route(world, client, "S");
    client_world_run_ms(world, 100);
    assert_int_equal(world->brokers[0].beats, 1);
    assert_string_equal(world->brokers[0].last_group, "PG");
    assert_int_equal(world->brokers[1].beats, 0);
    client_world_run_ms(world, 30000);
    assert_int_equal(world->brokers[0].beats, 2);
    assert_int_equal(instance_add_consumer(client, &member.consumer, NULL), TERN_OK);
    instance_heartbeat_now(client, 1000);
    assert_int_equal(world->brokers[0].beats, 3);
    assert_int_equal(world->brokers[1].beats, 1);
    assert_int_equal(world->brokers[1].last_consumers, 1);
    instance_remove_consumer(client, &member.consumer);
    assert_int_equal(world->brokers[0].goodbyes, 1);
    assert_int_equal(world->brokers[1].goodbyes, 1);
    assert_string_equal(world->brokers[1].goodbye_group, "CG");
    instance_remove_producer(client, "PG");
    instance_unref(client);
    client_world_destroy(world);
}

static void heartbeat_waits_no_longer_than_told(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct instance *client = named(world, "x");
    assert_int_equal(instance_add_producer(client, "PG", NULL), TERN_OK);
    assert_int_equal(instance_start(client, NULL), TERN_OK);
    learn_route(world, client, "T");
    client_world_run_ms(world, 100);
    sim_net_cut(world->net, "10.0.9.9", "10.0.1.1");
    int64_t before_ns = world->sim.clock.now_ns;
    instance_heartbeat_now(client, 300);
    assert_int_equal(world->sim.clock.now_ns - before_ns, ms_to_ns(300));
    sim_net_heal_all(world->net);
    instance_remove_producer(client, "PG");
    instance_unref(client);
    client_world_destroy(world);
}

static void restarted_broker_gets_a_heartbeat_at_once(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct instance *client = named(world, "x");
    assert_int_equal(instance_add_producer(client, "PG", NULL), TERN_OK);
    assert_int_equal(instance_start(client, NULL), TERN_OK);
    learn_route(world, client, "T");
    client_world_run_ms(world, 100);
    instance_heartbeat_now(client, 1000); /* none is owed when it goes */
    client_world_crash_broker(world, 0);
    client_world_run_ms(world, 100);
    client_world_restart_broker(world, 0);
    world->brokers[0].beats = 0;
    client_world_run_ms(world, 6000);
    assert_int_equal(world->brokers[0].beats, 1);
    instance_remove_producer(client, "PG");
    instance_unref(client);
    client_world_destroy(world);
}

static void heartbeat_tells_the_born_family(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct instance *client = named(world, "x");
    world->brokers[0].seen_as_v6 = true;
    assert_false(instance_born_v6(client, world->brokers[0].address));
    assert_int_equal(instance_add_producer(client, "PG", NULL), TERN_OK);
    assert_int_equal(instance_start(client, NULL), TERN_OK);
    learn_route(world, client, "T");
    client_world_run_ms(world, 100);
    assert_true(instance_born_v6(client, world->brokers[0].address));
    instance_remove_producer(client, "PG");
    instance_unref(client);
    client_world_destroy(world);
}

static struct instance *with_member(struct client_world *world, struct member *member)
{
    struct instance *client = named(world, "x");
    member_init(member, "CG");
    assert_int_equal(instance_start(client, NULL), TERN_OK);
    assert_int_equal(instance_add_consumer(client, &member->consumer, NULL), TERN_OK);
    learn_route(world, client, "T");
    client_world_run_ms(world, 100);
    return client;
}

static void events_are_acknowledged_by_number(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_broker *broker = &world->brokers[0];
    struct member member;
    struct instance *client = with_member(world, &member);
    assert_int_equal(broker->parks, 1);
    assert_int_equal(broker->last_session, 0);
    member.rebalances = 0;
    fake_broker_event(broker, 77, 1, "CG", false);
    client_world_run_ms(world, 10);
    assert_int_equal(member.rebalances, 1);
    assert_int_equal(broker->parks, 2);
    assert_int_equal(broker->last_session, 77);
    assert_int_equal(broker->last_acknowledged, 1);
    fake_broker_event(broker, 77, 1, "CG", false); /* sent again: known already */
    client_world_run_ms(world, 10);
    assert_int_equal(member.rebalances, 1);
    fake_broker_event(broker, 77, 2, "Other", false);
    client_world_run_ms(world, 10);
    assert_int_equal(member.rebalances, 1);
    assert_int_equal(broker->last_acknowledged, 2);
    fake_broker_event(broker, 77, 0, NULL, false); /* time is up */
    client_world_run_ms(world, 10);
    assert_int_equal(broker->parks, 5);
    assert_int_equal(member.rebalances, 1);
    instance_remove_consumer(client, &member.consumer);
    instance_unref(client);
    client_world_destroy(world);
}

static void lost_events_and_restarts_rebalance_everybody(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_broker *broker = &world->brokers[0];
    struct member member;
    struct instance *client = with_member(world, &member);
    fake_broker_event(broker, 77, 9, "CG", false);
    client_world_run_ms(world, 10);
    member.rebalances = 0;
    fake_broker_event(broker, 77, 0, NULL, true); /* resync */
    client_world_run_ms(world, 10);
    assert_int_equal(member.rebalances, 1);
    fake_broker_event(broker, 78, 1, "Other", false); /* another session: numbers begin anew */
    client_world_run_ms(world, 10);
    assert_int_equal(member.rebalances, 2);
    assert_int_equal(broker->last_session, 78);
    assert_int_equal(broker->last_acknowledged, 1);
    instance_remove_consumer(client, &member.consumer);
    instance_unref(client);
    client_world_destroy(world);
}

static void broken_park_is_made_again(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct member member;
    struct instance *client = with_member(world, &member);
    client_world_crash_broker(world, 0);
    client_world_run_ms(world, 10000);
    client_world_restart_broker(world, 0);
    world->brokers[0].parks = 0;
    client_world_run_ms(world, 6000);
    assert_int_equal(world->brokers[0].parks, 1);
    instance_remove_consumer(client, &member.consumer);
    instance_unref(client);
    client_world_destroy(world);
}

static void changed_route_rebalances_its_subscribers_only(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct member member;
    struct instance *client = with_member(world, &member);
    struct fake_queues part = client_world_part(world, 0, 3);
    client_world_put(world, "Other", &part);
    member.rebalances = 0;
    learn_route(world, client, "Other");
    client_world_run_ms(world, 100);
    assert_int_equal(member.rebalances, 0);
    client_world_put(world, "T", &part);
    instance_route_refresh(client, "T");
    client_world_run_ms(world, 200);
    assert_int_equal(member.rebalances, 1);
    instance_remove_consumer(client, &member.consumer);
    instance_unref(client);
    client_world_destroy(world);
}

/* T has queues at both brokers; the second is gone, and nobody has asked it for anything. */
static struct instance *with_a_broker_lost(struct client_world *world, struct member *member)
{
    struct instance *client = with_member(world, member);
    client_world_run_ms(world, 5000);
    client_world_crash_broker(world, 1);
    member->rebalances = 0;
    return client;
}

/* The nameserver has noticed. */
static void forget_it(struct client_world *world)
{
    struct fake_queues part = client_world_part(world, 0, 2);
    fake_namesrv_drop(&world->ns[0], "T");
    client_world_put(world, "T", &part);
}

static void lost_connection_has_its_routes_asked_for(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct member member;
    struct instance *client = with_a_broker_lost(world, &member);
    forget_it(world);
    client_world_run_ms(world, 200);
    assert_int_equal(member.rebalances, 1);
    instance_remove_consumer(client, &member.consumer);
    instance_unref(client);
    client_world_destroy(world);
}

static void route_that_names_a_lost_broker_is_asked_for_until_it_does_not(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct member member;
    struct instance *client = with_a_broker_lost(world, &member);
    uint32_t asked = world->ns[0].asked;
    client_world_run_ms(world, 5000);
    assert_in_range(world->ns[0].asked - asked, 4, 6);
    assert_int_equal(member.rebalances, 0);
    forget_it(world);
    client_world_run_ms(world, 1200);
    assert_int_equal(member.rebalances, 1);
    instance_remove_consumer(client, &member.consumer);
    instance_unref(client);
    client_world_destroy(world);
}

/* A producer that is quiet holds the route that its last send used. */
static void topic_is_known_as_long_as_somebody_holds_any_route_of_it(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct member member;
    struct instance *client = with_member(world, &member);
    struct route *held = instance_route_cached(client, "T");
    assert_non_null(held);
    forget_it(world);
    client_world_run_ms(world, INT64_C(3) * ROUTE_IDLE_MS);
    assert_int_equal(HASH_COUNT(client->topics), 1);
    assert_ptr_not_equal(client->topics->route, held);
    route_unref(held);
    client_world_run_ms(world, 2 * ROUTE_REFRESH_MS);
    assert_int_equal(HASH_COUNT(client->topics), 0);
    instance_remove_consumer(client, &member.consumer);
    instance_unref(client);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_name_shares_an_instance_and_others_do_not),
        cmocka_unit_test(group_joins_an_instance_once),
        cmocka_unit_test(producers_beat_masters_and_consumers_beat_everybody),
        cmocka_unit_test(heartbeat_waits_no_longer_than_told),
        cmocka_unit_test(restarted_broker_gets_a_heartbeat_at_once),
        cmocka_unit_test(heartbeat_tells_the_born_family),
        cmocka_unit_test(events_are_acknowledged_by_number),
        cmocka_unit_test(lost_events_and_restarts_rebalance_everybody),
        cmocka_unit_test(broken_park_is_made_again),
        cmocka_unit_test(changed_route_rebalances_its_subscribers_only),
        cmocka_unit_test(topic_is_known_as_long_as_somebody_holds_any_route_of_it),
        cmocka_unit_test(lost_connection_has_its_routes_asked_for),
        cmocka_unit_test(route_that_names_a_lost_broker_is_asked_for_until_it_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
