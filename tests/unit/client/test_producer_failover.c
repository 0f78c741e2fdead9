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

/* Each queue of the others gets its share of what would have gone to the one that is away. */
static void what_a_dead_master_would_get_is_shared_evenly(void **state)
{
    (void)state;
    struct client_world *world = world_of_sets();
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_send_result result;
    struct tern_error err = {.text = ""};
    unsigned sent[2] = {0};
    send_ok(producer, 8);
    client_world_crash_broker(world, 0);
    client_world_run_ms(world, 10);
    for (int i = 0; i < 120; i++) {
        if (send_one(producer, "T", "x", &result, &err) != TERN_OK)
            fail_msg("%s", err.text);
        assert_string_equal(result.queue.broker_name, "broker-b");
        sent[result.queue.queue_id]++;
    }
    assert_int_equal(sent[0], 60);
    assert_int_equal(sent[1], 60);
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

/* ---- order topics ---- */

static size_t seen_queues;

/* By the key's number, over all queues there are. */
static size_t select_by_key(void *arg, const struct tern_message *message,
                            const struct tern_queue *queues, size_t count)
{
    (void)message;
    (void)queues;
    seen_queues = count;
    return (size_t)(uintptr_t)arg % count;
}

static enum tern_code send_key(struct tern_producer *producer, unsigned key,
                               struct tern_send_result *result, struct tern_error *err)
{
    struct tern_message *m = message("T", "x");
    enum tern_code code =
        tern_producer_send_select(producer, m, select_by_key, (void *)(uintptr_t)key, result, err);
    tern_message_unref(m);
    return code;
}

/* D-3: with the list of queues in the order configuration no key moves when a broker is away. */
static void keys_of_an_order_topic_keep_their_queues_while_a_broker_is_away(void **state)
{
    (void)state;
    for (int unlisted = 0; unlisted < 3; unlisted++) {
        struct client_world *world = world_of_sets();
        struct tern_send_result before[8], after;
        struct tern_error err = {.text = ""};
        fake_namesrv_order(&world->ns[0], "T", "broker-b:2;broker-a:2");
        struct tern_producer *producer = client_world_producer(world, NULL);
        for (unsigned key = 0; key < 8; key++)
            if (send_key(producer, key, &before[key], &err) != TERN_OK)
                fail_msg("%s", err.text);
        assert_int_equal(seen_queues, 4);
        assert_string_equal(before[0].queue.broker_name, "broker-b");
        assert_string_equal(before[2].queue.broker_name, "broker-a");
        client_world_crash_broker(world, 0);
        if (unlisted == 1)
            unlist_master(world);
        client_world_run_ms(world, 40000); /* the route was asked for again */
        for (unsigned key = 0; key < 8; key++) {
            enum tern_code code = send_key(producer, key, &after, &err);
            assert_int_equal(seen_queues, 4);
            if (strcmp(before[key].queue.broker_name, "broker-a") == 0) {
                assert_true(code == TERN_UNREACHABLE || code == TERN_CONNECTION_LOST);
                assert_true(unlisted != 1 || strstr(err.text, "order topic T") != NULL);
                assert_non_null(strstr(err.text, "broker-a"));
            } else {
                assert_int_equal(code, TERN_OK);
                assert_int_equal(after.queue.queue_id, before[key].queue.queue_id);
            }
        }
        send_ok(producer, 8); /* without a key it goes where it can */
        client_world_restart_broker(world, 0);
        list_master(world);
        client_world_run_ms(world, 40000);
        for (unsigned key = 0; key < 8; key++) {
            if (send_key(producer, key, &after, &err) != TERN_OK)
                fail_msg("%s", err.text);
            assert_string_equal(after.queue.broker_name, before[key].queue.broker_name);
            assert_int_equal(after.queue.queue_id, before[key].queue.queue_id);
        }
        tern_producer_destroy(producer);
        client_world_destroy(world);
    }
}

/* A broker that nobody has ever seen belongs to the list all the same. */
static void order_configuration_may_name_brokers_that_are_not_there(void **state)
{
    (void)state;
    struct client_world *world = world_of_sets();
    struct tern_error err = {.text = ""};
    struct tern_send_result result;
    fake_namesrv_order(&world->ns[0], "T", "broker-z:1;broker-a:1");
    struct tern_producer *producer = client_world_producer(world, NULL);
    assert_int_equal(send_key(producer, 0, &result, &err), TERN_UNREACHABLE);
    assert_non_null(strstr(err.text, "broker broker-z, which has no master now"));
    assert_int_equal(send_key(producer, 1, &result, &err), TERN_OK);
    send_ok(producer, 8);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* A send without a key may go anywhere: what is wrong is that nobody takes it, not the list. */
static void read_only_order_topic_says_so_to_sends_without_a_key(void **state)
{
    (void)state;
    struct client_world *world = world_of_sets();
    struct tern_error err = {.text = ""};
    for (size_t i = 0; i < 2; i++) {
        struct fake_queues part = client_world_part(world, i, 2);
        part.perm = 4;
        client_world_put(world, "T", &part);
    }
    fake_namesrv_order(&world->ns[0], "T", "broker-z:1");
    struct tern_producer *producer = client_world_producer(world, NULL);
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_NO_PERMISSION);
    assert_non_null(strstr(err.text, "no broker allows writing to it"));
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void order_configuration_that_is_none_is_refused(void **state)
{
    (void)state;
    struct client_world *world = world_of_sets();
    struct tern_error err = {.text = ""};
    fake_namesrv_order(&world->ns[0], "T", "broker-a=4");
    struct tern_producer *producer = client_world_producer(world, NULL);
    assert_int_equal(send_key(producer, 0, NULL, &err), TERN_PROTOCOL);
    assert_non_null(strstr(err.text, "updateOrderConf"));
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_without_its_master_is_avoided_as_long_as_it_is_away),
        cmocka_unit_test(what_a_dead_master_would_get_is_shared_evenly),
        cmocka_unit_test(its_master_is_used_again_soon_after_its_return),
        cmocka_unit_test(a_silent_master_costs_its_set_not_the_others),
        cmocka_unit_test(a_master_that_takes_no_writes_is_tried_once_a_second),
        cmocka_unit_test(without_any_master_the_error_names_the_sets_and_may_pass),
        cmocka_unit_test(a_route_without_a_master_is_asked_for_every_second_then_seldomer),
        cmocka_unit_test(keys_of_an_order_topic_keep_their_queues_while_a_broker_is_away),
        cmocka_unit_test(order_configuration_may_name_brokers_that_are_not_there),
        cmocka_unit_test(read_only_order_topic_says_so_to_sends_without_a_key),
        cmocka_unit_test(order_configuration_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
