/* A producer's states, limits, arguments, callbacks, and its end. */
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

/* P-1 */
static void asynchronous_sends_are_limited(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_max_in_flight(options, 3), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    struct outcome outcomes[5] = {0};
    world->brokers[0].hold = true;
    for (int i = 0; i < 5; i++)
        assert_int_equal(send_async(producer, "x", NULL, &outcomes[i]),
                         i < 3 ? TERN_OK : TERN_LIMIT);
    client_world_run_ms(world, 10);
    assert_true(fake_broker_release(&world->brokers[0]));
    client_world_run_ms(world, 10);
    assert_int_equal(send_async(producer, "x", NULL, &outcomes[3]), TERN_OK);
    world->brokers[0].hold = false;
    while (fake_broker_release(&world->brokers[0]))
        ;
    client_world_run_ms(world, 10);
    for (int i = 0; i < 4; i++)
        assert_int_equal(outcomes[i].calls, 1);
    assert_int_equal(outcomes[4].calls, 0);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* More than a connection carries must not be accepted, to fail in its callback. */
static void default_limit_leaves_room_on_the_connection(void **state)
{
    enum { TRIED = 5000 };
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct outcome *outcomes = calloc(TRIED, sizeof *outcomes);
    assert_non_null(outcomes);
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    world->brokers[0].hold = true;
    int accepted = 0;
    while (accepted < TRIED && send_async(producer, "x", NULL, &outcomes[accepted]) == TERN_OK)
        accepted++;
    assert_int_equal(accepted, 2048);
    for (int i = 0; i < accepted; i++)
        assert_int_equal(outcomes[i].calls, 0);
    tern_producer_destroy(producer);
    for (int i = 0; i < accepted; i++)
        assert_int_equal(outcomes[i].calls, 1);
    free(outcomes);
    client_world_destroy(world);
}

/* Above what a connection carries: refused in the call, as above the limit. */
static void send_without_room_on_the_connection_is_not_accepted(void **state)
{
    enum { TRIED = 5000, CARRIED = 4088 };
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_max_in_flight(options, 65535), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    struct outcome *outcomes = calloc(TRIED, sizeof *outcomes);
    struct tern_message *m = message("T", "x");
    struct tern_error err;
    assert_non_null(outcomes);
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    world->brokers[0].hold = true;
    int accepted = 0;
    while (accepted < TRIED && send_async(producer, "x", NULL, &outcomes[accepted]) == TERN_OK)
        accepted++;
    assert_in_range(accepted, CARRIED - 8, CARRIED); /* a heartbeat or a poll may be under way */
    assert_int_equal(outcomes[accepted].calls, 0);
    assert_int_equal(tern_producer_send_oneway(producer, m, &err), TERN_LIMIT);
    assert_non_null(strstr(err.text, "no room"));
    world->brokers[0].hold = false;
    while (fake_broker_release(&world->brokers[0]))
        ;
    client_world_run_ms(world, 100);
    for (int i = 0; i < accepted; i++) {
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_equal(outcomes[i].code, TERN_OK);
    }
    assert_int_equal(send_async(producer, "x", NULL, &outcomes[accepted]), TERN_OK);
    client_world_run_ms(world, 100);
    assert_int_equal(outcomes[accepted].calls, 1);
    tern_message_unref(m);
    tern_producer_destroy(producer);
    free(outcomes);
    client_world_destroy(world);
}

static void oneway_is_sent_once_whatever_the_answer(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *m = message("T", "x");
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__SYSTEM_ERROR);
    assert_int_equal(tern_producer_send_oneway(producer, m, NULL), TERN_OK);
    client_world_run_ms(world, 100);
    assert_int_equal(world->brokers[0].send_count, 1);
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void shutdown_waits_for_sends_under_way(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_queue queue = queue_of("broker-a", 0);
    struct outcome outcomes[4] = {0};
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    world->brokers[0].hold = true;
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_async(producer, "x", i < 2 ? &queue : NULL, &outcomes[i]), TERN_OK);
    int64_t before_ns = world->sim.clock.now_ns;
    tern_producer_shutdown(producer);
    assert_true(world->sim.clock.now_ns - before_ns <= ms_to_ns(3200));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_equal(outcomes[i].code, TERN_TIMEOUT);
    }
    assert_int_equal(world->brokers[0].goodbyes, 1);
    assert_string_equal(world->brokers[0].goodbye_group, "DEFAULT_PRODUCER");
    struct tern_error err;
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "shut down"));
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void calls_in_the_wrong_state_name_it(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    struct tern_producer *first;
    struct tern_producer *second;
    struct tern_error err;
    assert_int_equal(tern_producer_options_instance(options, "shared"), TERN_OK);
    assert_int_equal(tern_producer_options_group(options, "G"), TERN_OK);
    assert_int_equal(tern_producer_create(options, &first, &err), TERN_OK);
    assert_int_equal(tern_producer_create(options, &second, &err), TERN_OK);
    assert_int_equal(send_one(first, "T", "x", NULL, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "created"));
    struct tern_send_result stored = {.message_id = "id"};
    snprintf(stored.offset_id, sizeof stored.offset_id, "0A00010100002A9F0000000000000000");
    assert_int_equal(tern_producer_cancel(first, &stored, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "created"));
    assert_int_equal(tern_producer_start(first, &err), TERN_OK);
    assert_int_equal(tern_producer_start(first, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "running"));
    assert_int_equal(tern_producer_start(second, &err), TERN_EXISTS);
    assert_non_null(strstr(err.text, "has been created before"));
    assert_int_equal(send_one(second, "T", "x", NULL, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "start failed"));
    tern_producer_destroy(second);
    assert_int_equal(send_one(first, "T", "x", NULL, &err), TERN_OK);
    tern_producer_shutdown(first);
    assert_int_equal(tern_producer_cancel(first, &stored, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "shut down"));
    tern_producer_destroy(first);
    tern_producer_options_destroy(options);
    client_world_destroy(world);
}

static void create_needs_a_nameserver(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_producer *producer;
    struct tern_error err;
    tern_producer_options_world(options, &world->sim.env, world->client_link);
    unsetenv("NAMESRV_ADDR");
    assert_int_equal(tern_producer_create(options, &producer, &err), TERN_INVALID);
    assert_non_null(strstr(err.text, "NAMESRV_ADDR"));
    setenv("NAMESRV_ADDR", "http://jmenv.example/nsaddr", 1);
    assert_int_equal(tern_producer_create(options, &producer, &err), TERN_INVALID);
    assert_non_null(strstr(err.text, "HTTP"));
    setenv("NAMESRV_ADDR", world->namesrv, 1);
    assert_int_equal(tern_producer_create(options, &producer, &err), TERN_OK);
    tern_producer_destroy(producer);
    unsetenv("NAMESRV_ADDR");
    tern_producer_options_destroy(options);
    client_world_destroy(world);
}

struct in_callback {
    struct tern_producer *producer;
    enum tern_code sync_code, async_code;
    struct outcome inner;
};

static void send_from_callback(void *arg, enum tern_code code,
                               const struct tern_send_result *result, const struct tern_error *err)
{
    struct in_callback *in = arg;
    struct tern_message *m = message("T", "inner");
    (void)code;
    (void)result;
    (void)err;
    in->sync_code = tern_producer_send(in->producer, m, NULL, NULL);
    in->async_code = tern_producer_send_async(in->producer, &m, 1, NULL, note, &in->inner, NULL);
    tern_message_unref(m);
}

static void callbacks_may_send_but_not_wait(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct in_callback in = {.producer = client_world_producer(world, NULL)};
    struct tern_message *m = message("T", "outer");
    assert_int_equal(
        tern_producer_send_async(in.producer, &m, 1, NULL, send_from_callback, &in, NULL), TERN_OK);
    tern_message_unref(m);
    client_world_run_ms(world, 100);
    assert_int_equal(in.sync_code, TERN_STATE);
    assert_int_equal(in.async_code, TERN_OK);
    assert_int_equal(in.inner.calls, 1);
    assert_int_equal(in.inner.code, TERN_OK);
    tern_producer_destroy(in.producer);
    client_world_destroy(world);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_max_message_bytes(options, 10), TERN_OK);
    assert_int_equal(tern_producer_options_retries(options, 16), TERN_INVALID);
    assert_int_equal(tern_producer_options_send_timeout_ms(options, 0), TERN_INVALID);
    assert_int_equal(tern_producer_options_max_in_flight(options, 65536), TERN_INVALID);
    assert_int_equal(tern_producer_options_group(options, "no spaces"), TERN_INVALID);
    struct tern_producer *producer = client_world_producer(world, options);
    struct tern_error err;
    struct tern_queue other = queue_of("broker-a", 0);
    struct tern_queue negative = queue_of("broker-a", -1);
    snprintf(other.topic, sizeof other.topic, "Other");
    struct tern_message *m = message("T", "x");
    assert_int_equal(send_one(producer, "T", "elevenbytes", NULL, &err), TERN_TOO_LARGE);
    assert_int_equal(send_one(producer, "SCHEDULE_TOPIC_XXXX", "x", NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send_to(producer, m, &other, NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send_to(producer, m, &negative, NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send_async(producer, &m, 1, NULL, NULL, NULL, &err),
                     TERN_INVALID);
    assert_int_equal(send_one(producer, "T", "", NULL, &err), TERN_OK); /* 0 bytes are legal */
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asynchronous_sends_are_limited),
        cmocka_unit_test(default_limit_leaves_room_on_the_connection),
        cmocka_unit_test(send_without_room_on_the_connection_is_not_accepted),
        cmocka_unit_test(oneway_is_sent_once_whatever_the_answer),
        cmocka_unit_test(shutdown_waits_for_sends_under_way),
        cmocka_unit_test(calls_in_the_wrong_state_name_it),
        cmocka_unit_test(create_needs_a_nameserver),
        cmocka_unit_test(callbacks_may_send_but_not_wait),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
