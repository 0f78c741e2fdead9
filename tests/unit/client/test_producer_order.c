/* Sending to named queues: one frame in flight, in the order of the calls. */
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

static void named_queue_has_one_frame_in_flight(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_queue queue = queue_of("broker-a", 1);
    struct outcome outcomes[20] = {0};
    world->brokers[0].hold = true;
    for (int i = 0; i < 20; i++) {
        char body[16];
        snprintf(body, sizeof body, "%d", i);
        assert_int_equal(send_async(producer, body, &queue, &outcomes[i]), TERN_OK);
    }
    for (int i = 0; i < 20; i++) {
        client_world_run_ms(world, 5);
        assert_int_equal(world->brokers[0].held_count, 1);
        assert_true(fake_broker_release(&world->brokers[0]));
    }
    client_world_run_ms(world, 5);
    for (int i = 0; i < 20; i++) {
        char body[16];
        snprintf(body, sizeof body, "%d", i);
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_equal(outcomes[i].code, TERN_OK);
        assert_string_equal(world->brokers[0].sends[i].body, body);
    }
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void named_queue_goes_on_after_a_failure_and_tries_once(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_queue queue = queue_of("broker-a", 0);
    struct outcome outcomes[3] = {0};
    client_world_run_ms(world, 10);
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__SYSTEM_BUSY);
    for (int i = 0; i < 3; i++)
        assert_int_equal(send_async(producer, "x", &queue, &outcomes[i]), TERN_OK);
    client_world_run_ms(world, 50);
    assert_int_equal(outcomes[0].code, TERN_SYSTEM_BUSY);
    assert_int_equal(outcomes[1].code, TERN_OK);
    assert_int_equal(outcomes[2].code, TERN_OK);
    assert_int_equal(outcomes[2].result.queue_offset, 1);
    assert_int_equal(world->brokers[0].send_count, 3);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void waiting_in_a_lane_counts_against_the_timeout(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_queue queue = queue_of("broker-a", 0);
    static struct outcome outcomes[2000];
    world->brokers[0].hold = true;
    for (int i = 0; i < 2000; i++)
        assert_int_equal(send_async(producer, "x", &queue, &outcomes[i]), TERN_OK);
    client_world_run_ms(world, 3100);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_equal(outcomes[i].code, TERN_TIMEOUT);
    }
    assert_true(world->brokers[0].held_most <= 2);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void nameserver_that_cannot_be_dialled_ends_every_send_once(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    memset(world->namesrv, 'h', 70); /* a host too long to dial: every fetch fails at once */
    snprintf(world->namesrv + 70, sizeof world->namesrv - 70, ":1");
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_queue queue = queue_of("broker-a", 0);
    struct outcome outcomes[100] = {0};
    for (int i = 0; i < 100; i++)
        assert_int_equal(send_async(producer, "x", &queue, &outcomes[i]), TERN_OK);
    client_world_run_ms(world, 100);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_not_equal(outcomes[i].code, TERN_OK);
    }
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void long_lane_of_impossible_sends_ends_without_growing_the_stack(void **state)
{
    (void)state;
    static struct outcome outcomes[4000];
    static char value[32768];
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_max_in_flight(options, 4000), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    struct tern_queue queue = queue_of("broker-a", 0);
    /* Properties that leave no room for the id: found out when the frame is made. */
    struct tern_message *m = message("T", "x");
    memset(value, 'v', 32767 - 2);
    assert_int_equal(tern_message_set_property(m, "k", value), TERN_OK);
    world->brokers[0].hold = true;
    assert_int_equal(send_async(producer, "first", &queue, &outcomes[0]), TERN_OK);
    for (int i = 1; i < 4000; i++)
        assert_int_equal(
            tern_producer_send_async(producer, &m, 1, &queue, note, &outcomes[i], NULL), TERN_OK);
    client_world_run_ms(world, 10);
    assert_int_equal(outcomes[1].calls, 0);
    assert_true(fake_broker_release(&world->brokers[0]));
    client_world_run_ms(world, 10);
    assert_int_equal(outcomes[0].code, TERN_OK);
    for (int i = 1; i < 4000; i++) {
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_equal(outcomes[i].code, TERN_TOO_LARGE);
    }
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static size_t pick_last(void *arg, const struct tern_message *m, const struct tern_queue *queues,
                        size_t count)
{
    (void)m;
    (void)queues;
    *(size_t *)arg = count;
    return count - 1;
}

static size_t pick_beyond(void *arg, const struct tern_message *m, const struct tern_queue *queues,
                          size_t count)
{
    (void)arg;
    (void)m;
    (void)queues;
    return count;
}

/* P-1 */
static void selector_chooses_among_sorted_queues(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *m = message("T", "x");
    struct tern_send_result result;
    size_t count = 0;
    assert_int_equal(tern_producer_send_select(producer, m, pick_last, &count, &result, NULL),
                     TERN_OK);
    assert_int_equal(count, 4);
    assert_string_equal(result.queue.broker_name, "broker-b");
    assert_int_equal(result.queue.queue_id, 1);
    assert_int_equal(tern_producer_send_select(producer, m, pick_beyond, NULL, &result, NULL),
                     TERN_INVALID);
    /* "TagA".hashCode() is 2598919 */
    assert_int_equal(tern_select_by_hash((char *)(uintptr_t) "TagA", m, NULL, 4), 2598919 % 4);
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_queue_has_one_frame_in_flight),
        cmocka_unit_test(named_queue_goes_on_after_a_failure_and_tries_once),
        cmocka_unit_test(waiting_in_a_lane_counts_against_the_timeout),
        cmocka_unit_test(nameserver_that_cannot_be_dialled_ends_every_send_once),
        cmocka_unit_test(long_lane_of_impossible_sends_ends_without_growing_the_stack),
        cmocka_unit_test(selector_chooses_among_sorted_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
