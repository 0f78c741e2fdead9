/* Routes: what an answer means, what the cache keeps, walking over nameservers. */
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
#include "fail_alloc.h"

static struct instance *instance(struct client_world *world)
{
    struct instance *made;
    struct instance_options options = {.namesrv = world->namesrv,
                                       .instance_name = "test",
                                       .env = &world->sim.env,
                                       .link = world->client_link};
    assert_int_equal(instance_get(&options, &made, NULL), TERN_OK);
    assert_int_equal(instance_start(made, NULL), TERN_OK);
    return made;
}

static enum tern_code get(struct client_world *world, struct instance *client, const char *topic,
                          int64_t wait_ms, struct route **out)
{
    struct tern_error err;
    return instance_route(client, topic, world->sim.clock.now_ns + ms_to_ns(wait_ms), out, &err);
}

static void queues_follow_permissions_and_masters(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 3);
    struct fake_queues a = client_world_part(world, 0, 2);
    struct fake_queues b = client_world_part(world, 1, 2);
    struct fake_queues c = client_world_part(world, 2, 2);
    memcpy(b.slave, b.address, sizeof b.slave); /* b has only a slave now */
    b.address[0] = 0;
    c.perm = 4; /* c is read only */
    a.read_queues = 3;
    client_world_put(world, "R", &c); /* not in order */
    client_world_put(world, "R", &b);
    client_world_put(world, "R", &a);
    struct instance *client = instance(world);
    struct route *route;
    assert_int_equal(get(world, client, "R", 3000, &route), TERN_OK);
    assert_int_equal(route->writable_count, 2);
    assert_string_equal(route->writable[1].broker_name, "broker-a");
    assert_int_equal(route->writable[1].queue_id, 1);
    assert_int_equal(route->readable_count, 3 + 2 + 2);
    assert_string_equal(route->readable[3].broker_name, "broker-b");
    assert_string_equal(route->readable[6].broker_name, "broker-c");
    assert_string_equal(route->readable[6].topic, "R");
    assert_null(route_find_broker(route, "broker-x"));
    route_unref(route);
    instance_unref(client);
    client_world_destroy(world);
}

static void address_is_the_wanted_one_or_a_stand_in(void **state)
{
    (void)state;
    struct route_broker broker = {.address_count = 2};
    broker.addresses[0].id = 0;
    snprintf(broker.addresses[0].address, ADDRESS_BYTES, "m:1");
    broker.addresses[1].id = 2;
    snprintf(broker.addresses[1].address, ADDRESS_BYTES, "s:1");
    int64_t id = -1;
    assert_string_equal(route_broker_address(&broker, 0, false, &id), "m:1");
    assert_string_equal(route_broker_address(&broker, 1, false, &id), "s:1");
    assert_int_equal(id, 2);
    assert_null(route_broker_address(&broker, 5, false, &id));
    assert_string_equal(route_broker_address(&broker, 5, true, &id), "m:1");
    assert_int_equal(id, 0);
}

static void answers_out_of_bounds_are_refused_whole(void **state)
{
    (void)state;
    Tern__Wire__QueueData queue = TERN__WIRE__QUEUE_DATA__INIT;
    Tern__Wire__BrokerData broker = TERN__WIRE__BROKER_DATA__INIT;
    Tern__Wire__QueueData *queues[] = {&queue};
    Tern__Wire__BrokerData *brokers[] = {&broker};
    Tern__Wire__RouteResponse answer = TERN__WIRE__ROUTE_RESPONSE__INIT;
    struct route *route;
    answer.queues = queues;
    answer.brokers = brokers;
    assert_int_equal(route_create("T", &answer, 0, &route, NULL), TERN_TOPIC_NOT_EXIST);
    answer.n_queues = 1;
    answer.n_brokers = 1;
    broker.cluster_name = frame_bytes("c", 1);
    broker.broker_name = frame_bytes("b", 1);
    queue.broker_name = frame_bytes("b", 1);
    queue.write_queues = 1;
    queue.perm = 6;
    assert_int_equal(route_create("T", &answer, 0, &route, NULL), TERN_OK);
    assert_int_equal(route->writable_count + route->readable_count, 0); /* no address */
    route_unref(route);
    queue.write_queues = 2 * ROUTE_QUEUES_MAX + 1;
    assert_int_equal(route_create("T", &answer, 0, &route, NULL), TERN_PROTOCOL);
    queue.write_queues = -1;
    assert_int_equal(route_create("T", &answer, 0, &route, NULL), TERN_PROTOCOL);
    queue.write_queues = 1;
    broker.broker_name = frame_bytes("b\0c", 3);
    assert_int_equal(route_create("T", &answer, 0, &route, NULL), TERN_PROTOCOL);
    char longest[129];
    memset(longest, 'b', sizeof longest);
    broker.broker_name = frame_bytes(longest, 128);
    assert_int_equal(route_create("T", &answer, 0, &route, NULL), TERN_PROTOCOL);
}

static void route_that_does_not_fit_into_memory_is_no_route(void **state)
{
    (void)state;
    Tern__Wire__QueueData queue = TERN__WIRE__QUEUE_DATA__INIT;
    Tern__Wire__BrokerData broker = TERN__WIRE__BROKER_DATA__INIT;
    Tern__Wire__QueueData *queues[] = {&queue};
    Tern__Wire__BrokerData *brokers[] = {&broker};
    Tern__Wire__RouteResponse answer = TERN__WIRE__ROUTE_RESPONSE__INIT;
    struct route *route;
    answer.queues = queues;
    answer.brokers = brokers;
    answer.n_queues = 1;
    answer.n_brokers = 1;
    broker.cluster_name = frame_bytes("c", 1);
    broker.broker_name = frame_bytes("b", 1);
    queue.broker_name = frame_bytes("b", 1);
    unsigned nth = 0;
    enum tern_code code;
    do {
        fail_alloc_at(nth++);
        code = route_create("T", &answer, 0, &route, NULL);
        assert_true(code == TERN_OK || (code == TERN_NO_MEMORY && !route));
    } while (code != TERN_OK && nth < 100);
    fail_alloc_never();
    assert_int_equal(nth, 6); /* route, brokers, data, two lists of queues; then none fails */
    route_unref(route);
}

static void many_who_need_a_route_ask_once(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *m;
    assert_int_equal(tern_message_create("T", "x", 1, &m, NULL), TERN_OK);
    world->ns[0].asked = 0;
    for (int i = 0; i < 50; i++)
        assert_int_equal(tern_producer_send(producer, m, NULL, NULL), TERN_OK);
    assert_int_equal(world->ns[0].asked, 1);
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void bad_answers_never_erase_a_good_route(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(2, 1);
    struct instance *client = instance(world);
    struct route *route;
    struct route *later;
    assert_int_equal(get(world, client, "T", 3000, &route), TERN_OK);
    uint64_t generation = instance_route_generation(client);
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < 2; i++) {
            world->ns[i].forgetful = kind == 0;
            world->ns[i].empty = kind == 1;
            world->ns[i].mute = kind == 2;
        }
        instance_route_refresh(client, "T");
        client_world_run_ms(world, 40000);
        assert_int_equal(get(world, client, "T", 3000, &later), TERN_OK);
        assert_ptr_equal(later, route);
        route_unref(later);
    }
    assert_int_equal(instance_route_generation(client), generation);
    route_unref(route);
    instance_unref(client);
    client_world_destroy(world);
}

static void changes_are_seen_within_30_s_or_at_once_when_asked_for(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct instance *client = instance(world);
    struct fake_queues part = client_world_part(world, 0, 5);
    struct route *route;
    assert_int_equal(get(world, client, "T", 3000, &route), TERN_OK);
    route_unref(route);
    client_world_put(world, "T", &part);
    client_world_run_ms(world, 31000);
    route = instance_route_cached(client, "T");
    assert_int_equal(route->writable_count, 5);
    route_unref(route);
    part.write_queues = 6;
    client_world_put(world, "T", &part);
    world->ns[0].asked = 0;
    for (int i = 0; i < 50; i++) { /* 50 ms: coalesced into two */
        instance_route_refresh(client, "T");
        client_world_run_ms(world, 1);
    }
    client_world_run_ms(world, 150);
    assert_true(world->ns[0].asked <= 2);
    route = instance_route_cached(client, "T");
    assert_int_equal(route->writable_count, 6);
    route_unref(route);
    instance_unref(client);
    client_world_destroy(world);
}

static void walk_goes_on_when_a_nameserver_dies_and_stays_where_it_works(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(2, 1);
    struct instance *client = instance(world);
    struct route *route;
    for (int dead = 0; dead < 2; dead++) {
        char topic[32];
        struct fake_queues part = client_world_part(world, 0, 1);
        client_world_crash_namesrv(world, (size_t)dead);
        client_world_run_ms(world, 1000);
        for (int i = 0; i < 3; i++) {
            snprintf(topic, sizeof topic, "W%d%d", dead, i);
            client_world_put(world, topic, &part);
            int64_t before_ns = world->sim.clock.now_ns;
            assert_int_equal(get(world, client, topic, 3000, &route), TERN_OK);
            route_unref(route);
            if (i > 0) /* found out once */
                assert_true(world->sim.clock.now_ns - before_ns < ms_to_ns(10));
        }
        client_world_restart_namesrv(world, (size_t)dead);
        client_world_run_ms(world, 5000);
    }
    instance_unref(client);
    client_world_destroy(world);
}

static void expect_sets(struct instance *client, size_t count)
{
    struct route *route = instance_route_cached(client, "T");
    assert_int_equal(route->data_count, count);
    route_unref(route);
}

/* It may be back any moment; one that is not within two minutes was taken out of service. */
static void a_set_that_left_the_route_is_back_within_two_seconds(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 3);
    struct instance *client = instance(world);
    struct fake_namesrv *ns = &world->ns[0];
    struct route *route;
    assert_int_equal(get(world, client, "T", 3000, &route), TERN_OK);
    route_unref(route);
    for (int forgetful = 0; forgetful < 2; forgetful++) { /* all of them, or one */
        ns->forgetful = forgetful;
        ns->topics[0].count = 2;
        client_world_run_ms(world, 35000);
        expect_sets(client, forgetful ? 3 : 2);
        ns->topics[0].count = 3;
        client_world_run_ms(world, 1000);
        ns->forgetful = false;
        client_world_run_ms(world, 2000);
        expect_sets(client, 3);
    }
    ns->topics[0].count = 2;
    client_world_run_ms(world, 200000);
    uint32_t asked = ns->asked;
    client_world_run_ms(world, 60000);
    assert_in_range(ns->asked - asked, 1, 3);
    instance_unref(client);
    client_world_destroy(world);
}

static void restarted_nameserver_that_knows_nothing_yet_is_not_believed(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(2, 1);
    struct instance *client = instance(world);
    struct route *route;
    for (int forgetful = 0; forgetful < 2; forgetful++) {
        struct fake_queues part = client_world_part(world, 0, 1);
        const char *topic = forgetful ? "F1" : "F0";
        client_world_put(world, topic, &part);
        world->ns[forgetful].forgetful = true;
        world->ns[!forgetful].forgetful = false;
        assert_int_equal(get(world, client, topic, 3000, &route), TERN_OK);
        route_unref(route);
    }
    instance_unref(client);
    client_world_destroy(world);
}

static void waiting_ends_at_the_deadline(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct instance *client = instance(world);
    struct route *route;
    world->ns[0].mute = true;
    int64_t before_ns = world->sim.clock.now_ns;
    assert_int_equal(get(world, client, "T", 200, &route), TERN_TIMEOUT);
    assert_int_equal(world->sim.clock.now_ns - before_ns, ms_to_ns(200));
    instance_unref(client);
    client_world_destroy(world);
}

static void namesrv_call_walks_and_keeps_the_answer(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(2, 1);
    struct instance *client = instance(world);
    const char *const *addresses;
    assert_int_equal(instance_namesrvs(client, &addresses), 2);
    assert_string_equal(addresses[0], "10.0.0.1:9876");
    size_t current = atomic_load(&client->namesrv_current);
    client_world_crash_namesrv(world, current);
    Tern__Wire__RouteRequest ask = TERN__WIRE__ROUTE_REQUEST__INIT;
    ask.topic = frame_bytes("T", 1);
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_ROUTE;
    request.route = &ask;
    struct rpc_call *call;
    struct tern_error err;
    assert_int_equal(instance_namesrv_call(client, &request, 3000, &call, &err), TERN_OK);
    assert_int_equal(call->response->route->n_queues, 1);
    rpc_call_unref(call);
    assert_int_equal(atomic_load(&client->namesrv_current), 1 - current);
    client_world_crash_namesrv(world, 1 - current);
    assert_int_not_equal(instance_namesrv_call(client, &request, 3000, &call, &err), TERN_OK);
    assert_null(call);
    assert_non_null(strstr(err.text, "nameserver"));
    instance_unref(client);
    client_world_destroy(world);
}

static void idle_topics_are_forgotten_unless_held(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct instance *client = instance(world);
    struct fake_queues part = client_world_part(world, 0, 1);
    struct route *held;
    struct route *route;
    client_world_put(world, "Held", &part);
    assert_int_equal(get(world, client, "Held", 3000, &held), TERN_OK);
    assert_int_equal(get(world, client, "T", 3000, &route), TERN_OK);
    route_unref(route);
    client_world_run_ms(world, ROUTE_IDLE_MS + 60000);
    assert_null(instance_route_cached(client, "T"));
    route = instance_route_cached(client, "Held");
    assert_ptr_equal(route, held);
    route_unref(route);
    route_unref(held);
    instance_unref(client);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_follow_permissions_and_masters),
        cmocka_unit_test(address_is_the_wanted_one_or_a_stand_in),
        cmocka_unit_test(answers_out_of_bounds_are_refused_whole),
        cmocka_unit_test(route_that_does_not_fit_into_memory_is_no_route),
        cmocka_unit_test(many_who_need_a_route_ask_once),
        cmocka_unit_test(bad_answers_never_erase_a_good_route),
        cmocka_unit_test(changes_are_seen_within_30_s_or_at_once_when_asked_for),
        cmocka_unit_test(walk_goes_on_when_a_nameserver_dies_and_stays_where_it_works),
        cmocka_unit_test(a_set_that_left_the_route_is_back_within_two_seconds),
        cmocka_unit_test(restarted_nameserver_that_knows_nothing_yet_is_not_believed),
        cmocka_unit_test(waiting_ends_at_the_deadline),
        cmocka_unit_test(namesrv_call_walks_and_keeps_the_answer),
        cmocka_unit_test(idle_topics_are_forgotten_unless_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
