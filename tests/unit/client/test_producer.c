/* Sending: what a frame holds, which queue and broker it goes to, retries, routes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "sending.h"

/* ---- frames ---- */

static void send_goes_as_one_prepared_record(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *m = message("T", "hello");
    struct tern_send_result result;
    assert_int_equal(tern_message_set_tag(m, "TagA"), TERN_OK);
    assert_int_equal(tern_producer_send(producer, m, &result, NULL), TERN_OK);
    const struct fake_send *seen = &world->brokers[0].sends[0];
    assert_false(seen->plain);
    assert_int_equal(seen->count, 1);
    assert_string_equal(seen->body, "hello");
    char props[200];
    snprintf(props, sizeof props,
             "TAGS\x01TagA\x02UNIQ_KEY\x01%s\x02"
             "CLUSTER\x01"
             "DefaultCluster",
             result.message_id);
    assert_string_equal(seen->props, props);
    assert_string_equal(tern_message_id(m), result.message_id);
    assert_string_equal(result.queue.broker_name, "broker-a");
    assert_string_equal(result.offset_id, "7F00000100002A9F0000000000001000");
    assert_int_equal(result.status, TERN_OK);
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void delayed_and_unacknowledged_messages_say_so(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *delayed = message("T", "later");
    struct tern_message *loose = message("T", "loose");
    assert_int_equal(tern_message_set_delay_level(delayed, 3), TERN_OK);
    tern_message_set_wait_store_ok(loose, false);
    assert_int_equal(tern_producer_send(producer, delayed, NULL, NULL), TERN_OK);
    assert_int_equal(tern_producer_send(producer, loose, NULL, NULL), TERN_OK);
    const struct fake_send *seen = world->brokers[0].sends;
    assert_true(seen[0].plain);
    assert_non_null(strstr(seen[0].props, "DELAY\x01"
                                          "3"));
    assert_false(seen[1].plain);
    assert_true(seen[1].no_wait);
    assert_null(strstr(seen[1].props, "WAIT"));
    tern_message_unref(delayed);
    tern_message_unref(loose);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void wrong_guess_of_the_address_family_is_mended(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    world->brokers[0].want_born_v6 = true;
    world->brokers[0].seen_as_v6 = true;
    struct tern_producer *producer = client_world_producer(world, NULL);
    assert_int_equal(send_one(producer, "T", "first", NULL, NULL), TERN_OK);
    client_world_run_ms(world, 100);
    assert_int_equal(send_one(producer, "T", "second", NULL, NULL), TERN_OK);
    const struct fake_send *seen = world->brokers[0].sends;
    size_t last = world->brokers[0].send_count - 1;
    assert_int_equal(world->brokers[0].messages, 2);
    assert_false(seen[last].plain); /* told by then */
    assert_true(seen[last].sys_flag & SYS_BORN_V6);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* P-1 */
static void batch_goes_as_one_frame_to_one_queue(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *batch[100];
    struct tern_send_result result;
    for (int i = 0; i < 100; i++)
        batch[i] = message("T", i ? "x" : "first");
    assert_int_equal(tern_producer_send_batch(producer, batch, 100, NULL, &result, NULL), TERN_OK);
    assert_int_equal(world->brokers[0].send_count, 1);
    assert_int_equal(world->brokers[0].sends[0].count, 100);
    assert_string_equal(result.message_id, tern_message_id(batch[0]));
    assert_string_not_equal(tern_message_id(batch[1]), tern_message_id(batch[0]));
    for (int i = 0; i < 100; i++)
        tern_message_unref(batch[i]);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void batches_that_cannot_be_one_are_refused(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_max_message_bytes(options, 1000), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    struct tern_message *two_topics[] = {message("T", "a"), message("U", "b")};
    struct tern_message *delayed[] = {message("T", "a"), message("T", "b")};
    struct tern_message *mixed[] = {message("T", "a"), message("T", "b")};
    char body[500];
    memset(body, 'x', sizeof body);
    body[sizeof body - 1] = 0;
    struct tern_message *large[] = {message("T", body), message("T", body)};
    struct tern_error err;
    (void)tern_message_set_delay_level(delayed[1], 1);
    tern_message_set_wait_store_ok(mixed[1], false);
    assert_int_equal(tern_producer_send_batch(producer, two_topics, 2, NULL, NULL, &err),
                     TERN_INVALID);
    assert_int_equal(tern_producer_send_batch(producer, delayed, 2, NULL, NULL, &err),
                     TERN_INVALID);
    assert_int_equal(tern_producer_send_batch(producer, mixed, 2, NULL, NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send_batch(producer, large, 2, NULL, NULL, &err),
                     TERN_TOO_LARGE);
    assert_int_equal(tern_producer_send_batch(producer, large, 0, NULL, NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send(producer, large[0], NULL, &err), TERN_OK);
    assert_int_equal(world->brokers[0].send_count, 1);
    struct tern_message **all[] = {two_topics, delayed, mixed, large};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            tern_message_unref(all[i][j]);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* ---- queues and brokers ---- */

static void batch_of_full_properties_names_the_limit(void **state)
{
    (void)state;
    static char value[32768];
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *both[] = {message("T", "a"), message("T", "b")};
    struct tern_error err = {.text = ""};
    memset(value, 'v', 32767 - 2);
    assert_int_equal(tern_message_set_property(both[1], "k", value), TERN_OK);
    assert_int_equal(tern_producer_send_batch(producer, both, 2, NULL, NULL, &err), TERN_TOO_LARGE);
    assert_non_null(strstr(err.text, "message 1 of a batch has 32"));
    assert_non_null(strstr(err.text, "at most 32767"));
    for (int i = 0; i < 2; i++)
        tern_message_unref(both[i]);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* P-2 */
static void round_robin_visits_every_queue_alike(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 3);
    struct tern_producer *producer = client_world_producer(world, NULL);
    for (int i = 0; i < 60; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    for (int broker = 0; broker < 3; broker++)
        for (int queue = 0; queue < 2; queue++)
            assert_int_equal(world->brokers[broker].next_offset[queue], 10);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* P-2 */
static void failed_send_is_retried_at_another_broker_with_the_same_id(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_send_result result;
    for (int i = 0; i < 2; i++)
        fake_broker_script(&world->brokers[i], TERN__WIRE__CODE__SYSTEM_ERROR);
    assert_int_equal(send_one(producer, "T", "x", &result, NULL), TERN_OK);
    /* first try here, second there, third here */
    assert_int_equal(world->brokers[0].send_count + world->brokers[1].send_count, 3);
    assert_int_equal(world->brokers[0].messages + world->brokers[1].messages, 1);
    const struct fake_broker *twice = &world->brokers[world->brokers[1].send_count == 2];
    assert_int_equal(twice->send_count, 2);
    assert_string_equal(twice->sends[0].props, twice->sends[1].props);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void refusals_that_repetition_cannot_help_are_not_retried(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer *producer = client_world_producer(world, NULL);
    client_world_run_ms(world, 100);
    (void)send_one(producer, "T", "warm up", NULL, NULL);
    client_world_run_ms(world, 100);
    uint64_t before = world->brokers[0].send_count + world->brokers[1].send_count;
    for (int i = 0; i < 2; i++)
        fake_broker_script(&world->brokers[i], TERN__WIRE__CODE__MESSAGE_ILLEGAL);
    struct tern_error err;
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_MESSAGE_ILLEGAL);
    assert_non_null(strstr(err.text, "scripted"));
    assert_int_equal(world->brokers[0].send_count + world->brokers[1].send_count, before + 1);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* P-2 */
static void dead_broker_is_avoided_until_it_is_up_again(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer *producer = client_world_producer(world, NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    client_world_crash_broker(world, 0);
    client_world_run_ms(world, 10);
    /* One send may pay for finding out; the next ones do not. */
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    int64_t before_ns = world->sim.clock.now_ns;
    for (int i = 0; i < 20; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    assert_true(world->sim.clock.now_ns - before_ns < ms_to_ns(50));
    client_world_restart_broker(world, 0);
    uint64_t there = world->brokers[0].messages;
    client_world_run_ms(world, 5000); /* reconnected, well within the 30 s */
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    assert_true(world->brokers[0].messages >= there + 2);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void all_tries_share_one_timeout(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_send_timeout_ms(options, 500), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    world->brokers[0].hold = true;
    world->brokers[1].hold = true;
    int64_t before_ns = world->sim.clock.now_ns;
    struct tern_error err;
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_TIMEOUT);
    int64_t took_ns = world->sim.clock.now_ns - before_ns;
    assert_true(took_ns >= ms_to_ns(500) && took_ns < ms_to_ns(520));
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void lost_connection_is_reported_and_not_sent_again(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_retries(options, 0), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    world->brokers[0].hold = true;
    struct outcome outcome = {.world = world};
    int64_t before_ns = world->sim.clock.now_ns;
    assert_int_equal(send_async(producer, "y", NULL, &outcome), TERN_OK);
    client_world_run_ms(world, 10);
    assert_int_equal(world->brokers[0].held_count, 1);
    sim_net_reset(world->net, "10.0.9.9", "10.0.1.1");
    client_world_run_ms(world, 70000);
    assert_int_equal(outcome.calls, 1);
    assert_int_equal(outcome.code, TERN_CONNECTION_LOST);
    assert_true(outcome.at_ns - before_ns < ms_to_ns(100));
    assert_int_equal(world->brokers[0].held_most, 1);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void stored_but_unconfirmed_is_success_with_a_status(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_send_result result;
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__FLUSH_SLAVE_TIMEOUT);
    assert_int_equal(send_one(producer, "T", "x", &result, NULL), TERN_OK);
    assert_int_equal(result.status, TERN_FLUSH_SLAVE_TIMEOUT);
    assert_int_equal(world->brokers[0].send_count, 1);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* ---- routes ---- */

static void unknown_topic_is_an_error_without_auto_creation(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(2, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_error err;
    struct tern_queue queues[4];
    size_t count;
    assert_int_equal(send_one(producer, "Nobody", "x", NULL, &err), TERN_TOPIC_NOT_EXIST);
    assert_non_null(strstr(err.text, "Nobody"));
    assert_int_equal(tern_producer_queues(producer, "Nobody", queues, 4, &count, &err),
                     TERN_TOPIC_NOT_EXIST);
    struct tern_message *m = message("Nobody", "x");
    assert_int_equal(tern_producer_send_oneway(producer, m, &err), TERN_TOPIC_NOT_EXIST);
    tern_message_unref(m);
    assert_int_equal(world->brokers[0].send_count, 0);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void unknown_topic_goes_by_the_default_topic_where_it_exists(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_queues template = client_world_part(world, 0, 8);
    template.perm = 7;
    client_world_put(world, "TBW102", &template);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_send_result result;
    assert_int_equal(send_one(producer, "Fresh", "x", &result, NULL), TERN_OK);
    const struct fake_send *seen = &world->brokers[0].sends[0];
    assert_string_equal(seen->default_topic, "TBW102");
    assert_int_equal(seen->default_queues, 4);
    assert_true(seen->queue_id >= 0 && seen->queue_id < 4);
    assert_string_equal(result.queue.topic, "Fresh");
    /* Once the topic is there, its own route counts. */
    struct fake_queues own = client_world_part(world, 0, 1);
    client_world_put(world, "Fresh", &own);
    assert_int_equal(send_one(producer, "Fresh", "y", &result, NULL), TERN_OK);
    assert_string_equal(world->brokers[0].sends[1].default_topic, "");
    assert_int_equal(world->brokers[0].sends[1].queue_id, 0);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void send_finds_the_master_that_came_back(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_queues part = client_world_part(world, 0, 2);
    struct fake_queues slave_only = part;
    memcpy(slave_only.slave, part.address, sizeof part.address);
    slave_only.address[0] = 0;
    client_world_put(world, "T", &slave_only);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_error err;
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_UNREACHABLE);
    assert_non_null(strstr(err.text, "master"));
    client_world_put(world, "T", &part);
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_OK);
    part.perm = 4;
    client_world_put(world, "T", &part);
    client_world_run_ms(world, 31000);
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_NO_PERMISSION);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void stale_route_is_renewed_before_the_retry(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct fake_namesrv *ns = &world->ns[0];
    fake_namesrv_drop(ns, "T");
    struct fake_queues a = client_world_part(world, 0, 1);
    struct fake_queues b = client_world_part(world, 1, 1);
    client_world_put(world, "Moved", &a);
    struct tern_producer *producer = client_world_producer(world, NULL);
    assert_int_equal(send_one(producer, "Moved", "x", NULL, NULL), TERN_OK);
    fake_namesrv_drop(ns, "Moved");
    client_world_put(world, "Moved", &b);
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__TOPIC_NOT_EXIST);
    assert_int_equal(send_one(producer, "Moved", "y", NULL, NULL), TERN_OK);
    assert_int_equal(world->brokers[0].send_count, 2);
    assert_int_equal(world->brokers[1].messages, 1);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void sends_go_on_while_no_nameserver_is_there(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    client_world_crash_namesrv(world, 0);
    for (int i = 0; i < 5; i++) {
        client_world_run_ms(world, 40000);
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    }
    struct tern_error err;
    int64_t before_ns = world->sim.clock.now_ns;
    assert_int_equal(send_one(producer, "Other", "x", NULL, &err), TERN_UNREACHABLE);
    assert_true(world->sim.clock.now_ns - before_ns <= ms_to_ns(3000));
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(send_goes_as_one_prepared_record),
        cmocka_unit_test(delayed_and_unacknowledged_messages_say_so),
        cmocka_unit_test(wrong_guess_of_the_address_family_is_mended),
        cmocka_unit_test(batch_goes_as_one_frame_to_one_queue),
        cmocka_unit_test(batches_that_cannot_be_one_are_refused),
        cmocka_unit_test(batch_of_full_properties_names_the_limit),
        cmocka_unit_test(round_robin_visits_every_queue_alike),
        cmocka_unit_test(failed_send_is_retried_at_another_broker_with_the_same_id),
        cmocka_unit_test(refusals_that_repetition_cannot_help_are_not_retried),
        cmocka_unit_test(dead_broker_is_avoided_until_it_is_up_again),
        cmocka_unit_test(all_tries_share_one_timeout),
        cmocka_unit_test(lost_connection_is_reported_and_not_sent_again),
        cmocka_unit_test(stored_but_unconfirmed_is_success_with_a_status),
        cmocka_unit_test(unknown_topic_is_an_error_without_auto_creation),
        cmocka_unit_test(unknown_topic_goes_by_the_default_topic_where_it_exists),
        cmocka_unit_test(send_finds_the_master_that_came_back),
        cmocka_unit_test(stale_route_is_renewed_before_the_retry),
        cmocka_unit_test(sends_go_on_while_no_nameserver_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
