/*
 * Orderly consumption against a scripted cluster: one batch of a queue at a time, in order; what
 * happens when it fails. Leases, members that come and go: test_push_leases.c. (R-1, R-6, D-3)
 */
#include "tests/unit/client/order_member.h"

/* RO-06 */
static void first_message_comes_within_two_seconds_of_the_start(void **state)
{
    (void)state;
    order_begin(4);
    for (int i = 0; i < 4; i++)
        fake_publish(played->fake, i, NULL, 100);
    int64_t begin_ms = order_now_ms();
    order_join(0);
    order_run_ms(2000);
    assert_true(played->count > 0);
    assert_true(played->items[0].at_ms - begin_ms < 2000);
    order_run_ms(6000);
    order_check(100);
    for (int i = 0; i < 4; i++)
        assert_int_equal(played->fake->queues[i].committed, 100);
    order_end();
}

static void a_batch_is_consecutive_and_alone(void **state)
{
    (void)state;
    order_begin(2);
    struct tern_consumer_options *options = order_options(0);
    assert_ok(tern_consumer_options_consume_batch(options, 10));
    played->handler_ms = 5;
    fake_publish(played->fake, 0, NULL, 95);
    fake_publish(played->fake, 1, NULL, 95);
    order_join_with(0, options);
    order_run_ms(5000);
    order_check(95);
    assert_int_equal(played->largest_batch, 10);
    order_end();
}

/* The span between oldest and newest is no limit: one by one there are no holes. */
static void span_limit_does_not_hold(void **state)
{
    (void)state;
    order_begin(1);
    struct tern_consumer_options *options = order_options(0);
    assert_ok(tern_consumer_options_max_span(options, 10));
    played->handler_ms = 1000;
    fake_publish(played->fake, 0, NULL, 200);
    order_join_with(0, options);
    order_run_ms(3000);
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(order_members[0].consumer, &stats);
    assert_true(stats.cached > 60);
    played->handler_ms = 0;
    order_run_ms(5000);
    order_end();
}

/* */
static void failing_message_holds_its_queue_and_no_other(void **state)
{
    (void)state;
    order_begin(1);
    played->fail_offset = 5;
    played->fail_times = 4;
    fake_publish(played->fake, 0, NULL, 10);
    order_join(0);
    order_run_ms(3500);
    assert_int_equal(played->count, 6 + 3);
    order_run_ms(8000);
    order_check(10);
    assert_int_equal(played->failed, 4);
    assert_int_equal(played->items[9].reconsume, 4);
    assert_int_equal(played->items[8].at_ms - played->items[7].at_ms, 1000);
    assert_int_equal(played->fake->sent_back, 0);
    assert_int_equal(played->fake->queues[0].committed, 10);
    order_end();
}

/* By default a message is tried for ever. */
static void without_a_limit_nothing_is_given_up(void **state)
{
    (void)state;
    order_begin(1);
    struct tern_consumer_options *options = order_options(0);
    assert_int_equal(tern_consumer_options_suspend_ms(options, 9), TERN_INVALID);
    assert_int_equal(tern_consumer_options_suspend_ms(options, 30001), TERN_INVALID);
    assert_ok(tern_consumer_options_suspend_ms(options, 10));
    played->fail_offset = 0;
    played->fail_times = -1;
    fake_publish(played->fake, 0, NULL, 2);
    order_join_with(0, options);
    order_run_ms(10000);
    assert_true(played->failed > 900);
    assert_int_equal(played->count, played->failed);
    assert_int_equal(played->fake->sent_back, 0);
    order_end();
}

static void join_limited(int number, int limit)
{
    struct tern_consumer_options *options = order_options(number);
    assert_ok(tern_consumer_options_max_reconsume_times(options, limit));
    order_join_with(number, options);
}

/* RO-01 */
static void message_that_always_fails_goes_to_the_dead_letters_and_the_next_follows(void **state)
{
    (void)state;
    order_begin(1);
    played->fail_offset = 5;
    played->fail_times = -1;
    fake_publish(played->fake, 0, NULL, 10);
    join_limited(0, 3);
    order_run_ms(10000);
    assert_int_equal(played->failed, 4);
    order_check(10);
    assert_int_equal(played->fake->sent_back, 1);
    assert_int_equal(played->fake->last_send_back.delay_level, -1);
    assert_int_equal(played->fake->last_send_back.physical_offset, 5000);
    assert_int_equal(played->fake->queues[0].committed, 10);
    order_end();
}

/* what a record of another topic says was counted for another group (its dead letters). */
static void tries_of_another_group_use_up_none(void **state)
{
    (void)state;
    order_begin(1);
    played->fail_offset = 5;
    played->fail_times = -1;
    played->fake->queues[0].reconsume[5] = 16;
    fake_publish(played->fake, 0, NULL, 10);
    join_limited(0, 3);
    order_run_ms(2500);
    assert_int_equal(played->failed, 3);
    order_leave(0);
    join_limited(1, 3);
    order_run_ms(10000);
    assert_int_equal(played->failed, 4);
    order_check(10);
    assert_int_equal(played->fake->sent_back, 1);
    order_end();
}

/* RO-01: the count survives a clean restart, and one without a word. */
static void count_of_tries_survives_a_restart(void **state)
{
    (void)state;
    order_begin(1);
    played->fail_offset = 5;
    played->fail_times = -1;
    fake_publish(played->fake, 0, NULL, 10);
    join_limited(0, 3);
    order_run_ms(2500);
    assert_int_equal(played->failed, 3);
    order_leave(0);
    join_limited(1, 3);
    order_run_ms(5000);
    assert_int_equal(played->failed, 4);
    order_check(10);
    assert_int_equal(played->fake->sent_back, 1);
    order_end();
}

static void broker_that_takes_no_dead_letter_is_asked_again_and_the_queue_waits(void **state)
{
    (void)state;
    order_begin(1);
    played->fail_offset = 2;
    played->fail_times = -1;
    played->fake->send_back_code = TERN_SYSTEM_BUSY;
    fake_publish(played->fake, 0, NULL, 5);
    join_limited(0, 1);
    order_run_ms(10000);
    assert_true(played->fake->sent_back >= 3);
    assert_int_equal(played->items[played->count - 1].offset, 2);
    assert_true(played->fake->queues[0].committed <= 2);
    played->fake->send_back_code = TERN_OK;
    order_run_ms(8000);
    order_check(5);
    order_end();
}

/* RO-08: three minutes are no reason to leave a queue. */
static void suspended_consumer_keeps_its_queues_and_goes_on_where_it_was(void **state)
{
    (void)state;
    order_begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    order_join(0);
    order_run_ms(1000);
    assert_ok(tern_push_consumer_suspend(order_members[0].consumer));
    fake_publish(played->fake, 0, NULL, 5000);
    unsigned queries = played->fake->queries;
    order_run_ms(180000);
    assert_int_equal(played->count, 10);
    assert_ok(tern_push_consumer_resume(order_members[0].consumer));
    order_run_ms(10000);
    order_check(5010);
    assert_int_equal(played->fake->queries, queries); /* the same objects all the time */
    order_end();
}

static void queue_suspended_by_its_listener_for_long_is_kept(void **state)
{
    (void)state;
    order_begin(1);
    struct tern_consumer_options *options = order_options(0);
    assert_ok(tern_consumer_options_suspend_ms(options, 30000));
    played->fail_offset = 3;
    played->fail_times = 7;
    fake_publish(played->fake, 0, NULL, 2000);
    order_join_with(0, options);
    order_run_ms(1000);
    unsigned queries = played->fake->queries;
    order_run_ms(240000);
    order_check(2000);
    assert_int_equal(played->fake->queries, queries);
    order_end();
}

/* A reset moves the queue only when its running message is done. */
static void reset_waits_for_the_running_message(void **state)
{
    (void)state;
    order_begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    played->handler_ms = 5000;
    order_join(0);
    order_run_ms(1000);
    played->fake->queues[0].version++;
    played->fake->queues[0].committed = 7;
    fake_publish(played->fake, 0, NULL, 1); /* ends the parked pull */
    order_run_ms(60000);
    assert_false(played->overlapped);
    unsigned before = 0;
    while (played->items[before].offset == before)
        before++;
    assert_in_range(before, 1, 3);
    assert_int_equal(played->count, before + 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(played->items[before + i].offset, 7 + i);
    order_end();
}

static void listener_must_be_one_of_the_two_before_the_start(void **state)
{
    (void)state;
    order_begin(1);
    order_join(0);
    assert_int_equal(
        tern_push_consumer_listener_orderly(order_members[0].consumer, order_play, NULL),
        TERN_STATE);
    assert_int_equal(
        tern_push_consumer_shutdown(order_members[0].consumer, 100) == TERN_OK
            ? tern_push_consumer_listener_orderly(order_members[0].consumer, order_play, NULL)
            : TERN_OK,
        TERN_STATE);
    order_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_message_comes_within_two_seconds_of_the_start),
        cmocka_unit_test(a_batch_is_consecutive_and_alone),
        cmocka_unit_test(span_limit_does_not_hold),
        cmocka_unit_test(failing_message_holds_its_queue_and_no_other),
        cmocka_unit_test(without_a_limit_nothing_is_given_up),
        cmocka_unit_test(message_that_always_fails_goes_to_the_dead_letters_and_the_next_follows),
        cmocka_unit_test(tries_of_another_group_use_up_none),
        cmocka_unit_test(count_of_tries_survives_a_restart),
        cmocka_unit_test(broker_that_takes_no_dead_letter_is_asked_again_and_the_queue_waits),
        cmocka_unit_test(suspended_consumer_keeps_its_queues_and_goes_on_where_it_was),
        cmocka_unit_test(queue_suspended_by_its_listener_for_long_is_kept),
        cmocka_unit_test(reset_waits_for_the_running_message),
        cmocka_unit_test(listener_must_be_one_of_the_two_before_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
