/* The producer when masters of broker sets come and go. */
#include "tests/unit/base/unit.h"

#include "base/clock.h"
#include "sending.h"

/* broker-c is no set of its own here: it is the slave of broker-a. */
static struct client_world *world_of_sets(void)
{
    struct client_world *world = client_world_create(1, 3);
    fake_namesrv_drop(&world->ns[0], "T");
    for (size_t i = 0; i < 2; i++) {
        struct fake_queues part = client_world_part(world, i, 2);
        if (i == 0)
            snprintf(part.slave, sizeof part.slave, "%s", world->brokers[2].address);
        client_world_put(world, "T", &part);
    }
    return world;
}

/* broker-a with its slave only, as a nameserver says that has seen the master go. */
static void unlist_master(struct client_world *world)
{
    struct fake_queues part = client_world_part(world, 0, 2);
    part.address[0] = '\0';
    snprintf(part.slave, sizeof part.slave, "%s", world->brokers[2].address);
    client_world_put(world, "T", &part);
}

static void list_master(struct client_world *world)
{
    struct fake_queues part = client_world_part(world, 0, 2);
    snprintf(part.slave, sizeof part.slave, "%s", world->brokers[2].address);
    client_world_put(world, "T", &part);
}

static void send_ok(struct tern_producer *producer, int count)
{
    for (int i = 0; i < count; i++) {
        struct tern_error err = {.text = ""};
        if (send_one(producer, "T", "x", NULL, &err) != TERN_OK)
            fail_msg("%s", err.text);
    }
}

/* The connection's loss is known before anybody sends: no attempt is wasted, however long it lasts.
 */
static void a_set_without_its_master_is_avoided_as_long_as_it_is_away(void **state)
{
    (void)state;
    struct client_world *world = world_of_sets();
    struct tern_producer *producer = client_world_producer(world, NULL);
    send_ok(producer, 8);
    client_world_crash_broker(world, 0);
    client_world_run_ms(world, 10);
    for (int second = 0; second < 60; second++) {
        int64_t before_ns = world->sim.clock.now_ns;
        send_ok(producer, 4);
        assert_true(world->sim.clock.now_ns - before_ns < ms_to_ns(20));
        client_world_run_ms(world, 1000);
    }
    assert_int_equal(world->brokers[2].messages, 0); /* never a slave */
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void its_master_is_used_again_soon_after_its_return(void **state)
{
    (void)state;
    for (int unlisted = 0; unlisted < 2; unlisted++) {
        struct client_world *world = world_of_sets();
        struct tern_producer *producer = client_world_producer(world, NULL);
        send_ok(producer, 8);
        client_world_crash_broker(world, 0);
        if (unlisted)
            unlist_master(world);
        client_world_run_ms(world, 10);
        send_ok(producer, 4);
        client_world_run_ms(world, 45000);
        send_ok(producer, 4);
        client_world_restart_broker(world, 0);
        list_master(world);
        uint64_t before = world->brokers[0].messages;
        for (int i = 0; i < 15; i++) { /* a second and a half of sending */
            send_ok(producer, 4);
            client_world_run_ms(world, 100);
        }
        assert_true(world->brokers[0].messages > before);
        assert_int_equal(world->brokers[2].messages, 0);
        tern_producer_destroy(producer);
        client_world_destroy(world);
    }
}

static void a_silent_master_costs_its_set_not_the_others(void **state)
{
    (void)state;
    struct client_world *world = world_of_sets();
    struct tern_producer *producer = client_world_producer(world, NULL);
    send_ok(producer, 8);
    sim_net_cut(world->net, "10.0.1.1", "10.0.9.9");
    world->brokers[0].hold = true; /* whoever hears of it: no answers */
    for (int i = 0; i < 4; i++)
        send_ok(producer, 1); /* found out in 2.5 s, then tried elsewhere within the 3 s */
    int64_t before_ns = world->sim.clock.now_ns;
    send_ok(producer, 20);
    assert_true(world->sim.clock.now_ns - before_ns < ms_to_ns(50));
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* It recovers: writes go elsewhere, and it is asked about once a second. */
static void a_master_that_takes_no_writes_is_tried_once_a_second(void **state)
{
    (void)state;
    struct client_world *world = world_of_sets();
    struct tern_producer *producer = client_world_producer(world, NULL);
    send_ok(producer, 8);
    size_t before = world->brokers[0].send_count;
    for (int i = 0; i < FAKE_SCRIPT_MAX; i++)
        fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__SERVICE_NOT_AVAILABLE);
    for (int i = 0; i < 100; i++) {
        send_ok(producer, 2);
        client_world_run_ms(world, 100);
    }
    assert_in_range(world->brokers[0].send_count - before, 8, 12);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void without_any_master_the_error_names_the_sets_and_may_pass(void **state)
{
    (void)state;
    struct client_world *world = world_of_sets();
    fake_namesrv_drop(&world->ns[0], "T");
    unlist_master(world);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_error err = {.text = ""};
    enum tern_code code = send_one(producer, "T", "x", NULL, &err);
    assert_int_equal(code, TERN_UNREACHABLE);
    assert_true(tern_code_retriable(code));
    assert_contains(err.text, "broker-a: id 1");
    assert_contains(err.text, "only slaves");
    client_world_run_ms(world, 20000);
    list_master(world);
    client_world_run_ms(world, 1500); /* the route is asked for every second meanwhile */
    int64_t before_ns = world->sim.clock.now_ns;
    send_ok(producer, 2);
    assert_true(world->sim.clock.now_ns - before_ns < ms_to_ns(20));
    assert_int_equal(world->brokers[2].messages, 0);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* A set that never gets its master back does not keep the nameserver busy for ever. */
static void a_route_without_a_master_is_asked_for_every_second_then_seldomer(void **state)
{
    (void)state;
    struct client_world *world = world_of_sets();
    unlist_master(world);
    struct tern_producer *producer = client_world_producer(world, NULL);
    send_ok(producer, 1);
    uint32_t asked = world->ns[0].asked;
    client_world_run_ms(world, 60000);
    assert_in_range(world->ns[0].asked - asked, 55, 65);
    client_world_run_ms(world, 70000);
    asked = world->ns[0].asked;
    client_world_run_ms(world, 60000);
    assert_in_range(world->ns[0].asked - asked, 10, 14);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_without_its_master_is_avoided_as_long_as_it_is_away),
        cmocka_unit_test(its_master_is_used_again_soon_after_its_return),
        cmocka_unit_test(a_silent_master_costs_its_set_not_the_others),
        cmocka_unit_test(a_master_that_takes_no_writes_is_tried_once_a_second),
        cmocka_unit_test(without_any_master_the_error_names_the_sets_and_may_pass),
        cmocka_unit_test(a_route_without_a_master_is_asked_for_every_second_then_seldomer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
