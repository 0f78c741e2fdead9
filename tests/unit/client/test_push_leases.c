/*
 * Orderly consumption against a scripted cluster: nothing without a lease, and queues that move
 * between members, or stay although a broker is away. (R-6, D-3)
 */
#include "tests/unit/client/order_member.h"

static void nothing_is_pulled_or_asked_without_a_lock(void **state)
{
    (void)state;
    order_begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    struct fake_lock *held = &played->fake->locks[0];
    snprintf(held->owner, sizeof held->owner, "somebody");
    held->until_ns = clock_mono_ns(played->fake->env.clock) + ms_to_ns(20000);
    order_join(0);
    order_run_ms(19000);
    assert_int_equal(played->count, 0);
    assert_int_equal(played->fake->queries, 0);
    assert_int_equal(played->fake->brokers[0].pulls, 0);
    assert_true(played->fake->locked < 60); /* at most twice a second */
    order_run_ms(2000);
    order_check(10);
    order_end();
}

static void clean_stop_hands_over_within_a_second(void **state)
{
    (void)state;
    order_begin(4);
    for (int i = 0; i < 4; i++)
        fake_publish(played->fake, i, NULL, 50);
    order_join(0);
    order_join(1);
    order_run_ms(3000);
    order_leave(0);
    for (int i = 0; i < 4; i++)
        assert_string_not_equal(played->fake->locks[i].owner, "m0");
    int64_t left_ms = order_now_ms();
    for (int i = 0; i < 4; i++)
        fake_publish(played->fake, i, NULL, 50);
    order_run_ms(1000);
    order_check(100);
    for (unsigned i = 0; i < played->count; i++)
        if (played->items[i].at_ms > left_ms)
            assert_int_equal(played->items[i].member, 1);
    order_end();
}

/* Nobody would give back what is granted after that. */
static void stop_before_the_first_lock_was_answered_leaves_none(void **state)
{
    (void)state;
    order_begin(2);
    fake_publish(played->fake, 0, NULL, 10);
    fake_publish(played->fake, 1, NULL, 10);
    played->fake->lock_delay_ms = 500;
    order_join(0);
    order_run_ms(100);
    assert_int_equal(played->fake->locked, 0);
    order_leave(0);
    order_run_ms(1000);
    played->fake->lock_delay_ms = 0;
    order_join(1);
    order_run_ms(2000);
    order_check(10);
    order_end();
}

/* What was granted all the same is given back, too. */
static void lock_whose_grant_was_not_heard_of_is_given_back(void **state)
{
    (void)state;
    order_begin(2);
    fake_publish(played->fake, 0, NULL, 10);
    fake_publish(played->fake, 1, NULL, 10);
    played->fake->locks_unanswered = true;
    order_join(0);
    order_run_ms(5000);
    assert_true(played->fake->locked >= 1);
    order_leave(0);
    played->fake->locks_unanswered = false;
    order_join(1);
    order_run_ms(2000);
    order_check(10);
    order_end();
}

/* RO-10: handler 5 s, members join and leave every 2 s. */
static void order_holds_while_members_come_and_go(void **state)
{
    (void)state;
    order_begin(4);
    for (int i = 0; i < 4; i++)
        fake_publish(played->fake, i, NULL, 12);
    played->handler_ms = 5000;
    order_join(0);
    for (int round = 0; round < 12; round++) {
        int number = 1 + round % 2;
        order_run_ms(2000);
        if (order_members[number].consumer)
            order_leave(number);
        else
            order_join(number);
    }
    order_run_ms(400000);
    order_check(12);
    order_end();
}

/* The queue is not given away before the running message is done. */
static void running_message_is_waited_for_and_its_progress_told_first(void **state)
{
    (void)state;
    order_begin(2);
    fake_publish(played->fake, 0, NULL, 8);
    fake_publish(played->fake, 1, NULL, 8);
    played->handler_ms = 5000;
    order_join(0);
    order_run_ms(1000);
    order_join(1);
    order_run_ms(100000);
    order_check(8);
    bool both[2] = {false, false};
    for (unsigned i = 0; i < played->count; i++)
        both[played->items[i].member] = true;
    assert_true(both[0] && both[1]);
    order_end();
}

static void lease_is_renewed_while_a_message_runs_for_minutes(void **state)
{
    (void)state;
    order_begin(1);
    fake_publish(played->fake, 0, NULL, 2);
    played->handler_ms = 300000;
    order_join(0);
    order_run_ms(200000);
    assert_int_equal(played->count, 1);
    assert_true(played->fake->locks[0].until_ns >
                clock_mono_ns(played->fake->env.clock) + ms_to_ns(40000));
    played->handler_ms = 0;
    order_run_ms(200000);
    order_check(2);
    order_end();
}

/* Nothing begins when the view of the lease has ended, whatever the broker thinks. */
static void nothing_begins_half_a_lease_after_the_broker_fell_silent(void **state)
{
    (void)state;
    order_begin(1);
    fake_publish(played->fake, 0, NULL, 1000);
    played->handler_ms = 1000;
    order_join(0);
    order_run_ms(15000);
    played->fake->lock_code = TERN_SYSTEM_BUSY;
    order_run_ms(30000);
    unsigned count = played->count;
    int64_t last_ms = played->items[count - 1].at_ms;
    order_run_ms(60000);
    assert_in_range(played->count, count, count + 1);
    assert_in_range(last_ms, 30000, 46000);
    played->fake->lock_code = TERN_OK;
    order_run_ms(10000);
    assert_true(played->count > count + 5);
    assert_false(played->overlapped);
    for (unsigned i = 1; i < played->count; i++)
        assert_in_range(played->items[i].offset, played->items[i - 1].offset,
                        played->items[i - 1].offset + 1);
    order_end();
}

/* A broker that gave the queue away is believed. */
static void lease_that_somebody_else_has_ends_at_once_and_the_queue_begins_anew(void **state)
{
    (void)state;
    order_begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    order_join(0);
    order_run_ms(6000);
    assert_int_equal(played->count, 10);
    struct fake_lock *held = &played->fake->locks[0];
    snprintf(held->owner, sizeof held->owner, "somebody");
    held->until_ns = clock_mono_ns(played->fake->env.clock) + ms_to_ns(30000);
    order_run_ms(11000); /* the next renewal */
    fake_publish(played->fake, 0, NULL, 10);
    played->fake->queues[0].committed = 15; /* the other one did these */
    order_run_ms(10000);
    assert_int_equal(played->count, 10);
    order_run_ms(20000);
    assert_int_equal(played->count, 15);
    assert_int_equal(played->items[10].offset, 15);
    order_end();
}

/* Who cannot say leaves things as they are. */
static void undecided_broker_ends_no_lease(void **state)
{
    (void)state;
    order_begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    order_join(0);
    order_run_ms(6000);
    played->fake->locks[0].owner[0] = '\0';
    played->fake->locks_undecided = true;
    fake_publish(played->fake, 0, NULL, 10);
    order_run_ms(12000);
    fake_publish(played->fake, 0, NULL, 10);
    order_run_ms(3000);
    order_check(30);
    order_run_ms(30000); /* the view ends all the same */
    fake_publish(played->fake, 0, NULL, 10);
    order_run_ms(3000);
    assert_int_equal(played->count, 30);
    played->fake->locks_undecided = false;
    order_run_ms(2000);
    order_check(40);
    order_end();
}

/* The master is away: a slave that knows the owner renews. */
static void slave_renews_while_the_master_is_away(void **state)
{
    (void)state;
    order_begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    order_join(0);
    order_run_ms(6000);
    fake_node_down(&played->fake->brokers[0]);
    order_run_ms(60000);
    fake_publish(played->fake, 0, NULL, 10);
    order_run_ms(3000);
    order_check(20);
    fake_node_up(&played->fake->brokers[0]);
    order_run_ms(10000);
    fake_publish(played->fake, 0, NULL, 10);
    order_run_ms(3000);
    order_check(30);
    order_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_pulled_or_asked_without_a_lock),
        cmocka_unit_test(clean_stop_hands_over_within_a_second),
        cmocka_unit_test(stop_before_the_first_lock_was_answered_leaves_none),
        cmocka_unit_test(lock_whose_grant_was_not_heard_of_is_given_back),
        cmocka_unit_test(order_holds_while_members_come_and_go),
        cmocka_unit_test(running_message_is_waited_for_and_its_progress_told_first),
        cmocka_unit_test(lease_is_renewed_while_a_message_runs_for_minutes),
        cmocka_unit_test(nothing_begins_half_a_lease_after_the_broker_fell_silent),
        cmocka_unit_test(lease_that_somebody_else_has_ends_at_once_and_the_queue_begins_anew),
        cmocka_unit_test(undecided_broker_ends_no_lease),
        cmocka_unit_test(slave_renews_while_the_master_is_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
