/*
 * Orderly consumption against a scripted cluster: one batch of a queue at a time, in order, under a
 * lease; what happens when it fails, moves, stops, or loses its lease. (R-1, R-6, D-3)
 */
#include "tests/unit/client/fake_cluster.h"

#include "base/sched.h"

enum { MEMBERS = 3, PLAYED_MAX = 20000 };

/* What all members of a world did, in the order of virtual time. */
struct played {
    struct fake *fake;
    unsigned count;
    struct {
        int member;
        int32_t queue_id;
        int64_t offset;
        int reconsume;
        int64_t at_ms;
    } items[PLAYED_MAX];
    int running[FAKE_QUEUES + 1]; /* listeners of the queue now */
    bool overlapped;
    int64_t handler_ms;
    int64_t fail_offset; /* fails this one, -1: none */
    int fail_times;      /* -1: always */
    unsigned failed;
    size_t largest_batch;
};

struct member {
    struct played *played;
    int number;
    struct tern_push_consumer *consumer;
};

static struct played *played;
static struct member members[MEMBERS];

static int64_t now_ms(void)
{
    return clock_mono_ns(played->fake->env.clock) / 1000000;
}

static enum tern_orderly_result play(void *arg, const struct tern_message *const *messages,
                                     size_t count)
{
    const struct member *member = arg;
    enum tern_orderly_result result = TERN_ORDERLY_SUCCESS;
    int32_t queue_id = tern_message_queue_id(messages[0]);
    played->overlapped = played->overlapped || played->running[queue_id] > 0;
    played->running[queue_id]++;
    if (count > played->largest_batch)
        played->largest_batch = count;
    for (size_t i = 0; i < count; i++) {
        assert_true(played->count < PLAYED_MAX);
        int64_t offset = tern_message_queue_offset(messages[i]);
        played->items[played->count].member = member->number;
        played->items[played->count].queue_id = queue_id;
        played->items[played->count].offset = offset;
        played->items[played->count].reconsume = tern_message_reconsume_times(messages[i]);
        played->items[played->count++].at_ms = now_ms();
        if (offset == played->fail_offset && played->fail_times != 0) {
            played->fail_times -= played->fail_times > 0;
            played->failed++;
            result = TERN_ORDERLY_SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }
    }
    if (played->handler_ms > 0) {
        struct latch never;
        latch_init(&never);
        int64_t until_ns = clock_mono_ns(played->fake->env.clock) + ms_to_ns(played->handler_ms);
        assert_false(latch_wait(played->fake->env.sched, &never, until_ns));
    }
    played->running[queue_id]--;
    return result;
}

static struct tern_consumer_options *options_of(int number)
{
    char name[8];
    snprintf(name, sizeof name, "m%d", number);
    struct tern_consumer_options *options = fake_options(played->fake, "group", name);
    assert_ok(tern_consumer_options_from(options, TERN_FROM_FIRST, 0));
    return options;
}

static void join_with(int number, struct tern_consumer_options *options)
{
    struct tern_error err = {.text = ""};
    struct member *member = &members[number];
    *member = (struct member){.played = played, .number = number};
    assert_ok(tern_push_consumer_create(options, &member->consumer, &err));
    assert_ok(tern_push_consumer_subscribe(member->consumer, FAKE_TOPIC, "*", &err));
    assert_ok(tern_push_consumer_listener_orderly(member->consumer, play, member));
    if (tern_push_consumer_start(member->consumer, &err) != TERN_OK)
        fail_msg("%s", err.text);
    tern_consumer_options_destroy(options);
}

static void join(int number)
{
    join_with(number, options_of(number));
}

static void leave(int number)
{
    tern_push_consumer_destroy(members[number].consumer);
    members[number].consumer = NULL;
}

static void begin(int queue_count)
{
    played = calloc(1, sizeof *played);
    assert_non_null(played);
    played->fake = fake_create(queue_count);
    played->fail_offset = -1;
    memset(members, 0, sizeof members);
}

static void end(void)
{
    for (int i = 0; i < MEMBERS; i++)
        tern_push_consumer_destroy(members[i].consumer);
    fake_destroy(played->fake);
    free(played);
}

static void run_ms(int64_t ms)
{
    fake_run_ms(played->fake, ms);
}

/* Each queue's offsets came 0, 1, 2, …, repeated ones only of the failing message. */
static void check_order(int64_t per_queue)
{
    int64_t next[FAKE_QUEUES + 1] = {0};
    for (unsigned i = 0; i < played->count; i++) {
        int32_t queue = played->items[i].queue_id;
        if (played->items[i].offset != next[queue])
            fail_msg("queue %d: offset %lld at %lld ms, %lld was next", queue,
                     (long long)played->items[i].offset, (long long)played->items[i].at_ms,
                     (long long)next[queue]);
        bool fails = played->items[i].offset == played->fail_offset && i + 1 < played->count &&
                     played->items[i + 1].offset == played->fail_offset;
        next[queue] += !fails;
    }
    for (int i = 0; i < played->fake->queue_count; i++)
        assert_int_equal(next[i], per_queue);
    assert_false(played->overlapped);
}

/* ---- the usual way ---- */

/* RO-06 */
static void first_message_comes_within_two_seconds_of_the_start(void **state)
{
    (void)state;
    begin(4);
    for (int i = 0; i < 4; i++)
        fake_publish(played->fake, i, NULL, 100);
    int64_t begin_ms = now_ms();
    join(0);
    run_ms(2000);
    assert_true(played->count > 0);
    assert_true(played->items[0].at_ms - begin_ms < 2000);
    run_ms(6000);
    check_order(100);
    for (int i = 0; i < 4; i++)
        assert_int_equal(played->fake->queues[i].committed, 100);
    end();
}

static void nothing_is_pulled_or_asked_without_a_lock(void **state)
{
    (void)state;
    begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    struct fake_lock *held = &played->fake->locks[0];
    snprintf(held->owner, sizeof held->owner, "somebody");
    held->until_ns = clock_mono_ns(played->fake->env.clock) + ms_to_ns(20000);
    join(0);
    run_ms(19000);
    assert_int_equal(played->count, 0);
    assert_int_equal(played->fake->queries, 0);
    assert_int_equal(played->fake->brokers[0].pulls, 0);
    assert_true(played->fake->locked < 60); /* at most twice a second */
    run_ms(2000);
    check_order(10);
    end();
}

static void a_batch_is_consecutive_and_alone(void **state)
{
    (void)state;
    begin(2);
    struct tern_consumer_options *options = options_of(0);
    assert_ok(tern_consumer_options_consume_batch(options, 10));
    played->handler_ms = 5;
    fake_publish(played->fake, 0, NULL, 95);
    fake_publish(played->fake, 1, NULL, 95);
    join_with(0, options);
    run_ms(5000);
    check_order(95);
    assert_int_equal(played->largest_batch, 10);
    end();
}

/* The span between oldest and newest is no limit: one by one there are no holes. */
static void span_limit_does_not_hold(void **state)
{
    (void)state;
    begin(1);
    struct tern_consumer_options *options = options_of(0);
    assert_ok(tern_consumer_options_max_span(options, 10));
    played->handler_ms = 1000;
    fake_publish(played->fake, 0, NULL, 200);
    join_with(0, options);
    run_ms(3000);
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(members[0].consumer, &stats);
    assert_true(stats.cached > 60);
    played->handler_ms = 0;
    run_ms(5000);
    end();
}

/* ---- failures ---- */

/* */
static void failing_message_holds_its_queue_and_no_other(void **state)
{
    (void)state;
    begin(1);
    played->fail_offset = 5;
    played->fail_times = 4;
    fake_publish(played->fake, 0, NULL, 10);
    join(0);
    run_ms(3500);
    assert_int_equal(played->count, 6 + 3);
    run_ms(8000);
    check_order(10);
    assert_int_equal(played->failed, 4);
    assert_int_equal(played->items[9].reconsume, 4);
    assert_int_equal(played->items[8].at_ms - played->items[7].at_ms, 1000);
    assert_int_equal(played->fake->sent_back, 0);
    assert_int_equal(played->fake->queues[0].committed, 10);
    end();
}

/* By default a message is tried for ever. */
static void without_a_limit_nothing_is_given_up(void **state)
{
    (void)state;
    begin(1);
    struct tern_consumer_options *options = options_of(0);
    assert_int_equal(tern_consumer_options_suspend_ms(options, 9), TERN_INVALID);
    assert_int_equal(tern_consumer_options_suspend_ms(options, 30001), TERN_INVALID);
    assert_ok(tern_consumer_options_suspend_ms(options, 10));
    played->fail_offset = 0;
    played->fail_times = -1;
    fake_publish(played->fake, 0, NULL, 2);
    join_with(0, options);
    run_ms(10000);
    assert_true(played->failed > 900);
    assert_int_equal(played->count, played->failed);
    assert_int_equal(played->fake->sent_back, 0);
    end();
}

static void join_limited(int number, int limit)
{
    struct tern_consumer_options *options = options_of(number);
    assert_ok(tern_consumer_options_max_reconsume_times(options, limit));
    join_with(number, options);
}

/* RO-01 */
static void message_that_always_fails_goes_to_the_dead_letters_and_the_next_follows(void **state)
{
    (void)state;
    begin(1);
    played->fail_offset = 5;
    played->fail_times = -1;
    fake_publish(played->fake, 0, NULL, 10);
    join_limited(0, 3);
    run_ms(10000);
    assert_int_equal(played->failed, 4);
    check_order(10);
    assert_int_equal(played->fake->sent_back, 1);
    assert_int_equal(played->fake->last_send_back.delay_level, -1);
    assert_int_equal(played->fake->last_send_back.physical_offset, 5000);
    assert_int_equal(played->fake->queues[0].committed, 10);
    end();
}

/* what a record of another topic says was counted for another group (its dead letters). */
static void tries_of_another_group_use_up_none(void **state)
{
    (void)state;
    begin(1);
    played->fail_offset = 5;
    played->fail_times = -1;
    played->fake->queues[0].reconsume[5] = 16;
    fake_publish(played->fake, 0, NULL, 10);
    join_limited(0, 3);
    run_ms(2500);
    assert_int_equal(played->failed, 3);
    leave(0);
    join_limited(1, 3);
    run_ms(10000);
    assert_int_equal(played->failed, 4);
    check_order(10);
    assert_int_equal(played->fake->sent_back, 1);
    end();
}

/* RO-01: the count survives a clean restart, and one without a word. */
static void count_of_tries_survives_a_restart(void **state)
{
    (void)state;
    begin(1);
    played->fail_offset = 5;
    played->fail_times = -1;
    fake_publish(played->fake, 0, NULL, 10);
    join_limited(0, 3);
    run_ms(2500);
    assert_int_equal(played->failed, 3);
    leave(0);
    join_limited(1, 3);
    run_ms(5000);
    assert_int_equal(played->failed, 4);
    check_order(10);
    assert_int_equal(played->fake->sent_back, 1);
    end();
}

static void broker_that_takes_no_dead_letter_is_asked_again_and_the_queue_waits(void **state)
{
    (void)state;
    begin(1);
    played->fail_offset = 2;
    played->fail_times = -1;
    played->fake->send_back_code = TERN_SYSTEM_BUSY;
    fake_publish(played->fake, 0, NULL, 5);
    join_limited(0, 1);
    run_ms(10000);
    assert_true(played->fake->sent_back >= 3);
    assert_int_equal(played->items[played->count - 1].offset, 2);
    assert_true(played->fake->queues[0].committed <= 2);
    played->fake->send_back_code = TERN_OK;
    run_ms(8000);
    check_order(5);
    end();
}

/* RO-08: three minutes are no reason to leave a queue. */
static void suspended_consumer_keeps_its_queues_and_goes_on_where_it_was(void **state)
{
    (void)state;
    begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    join(0);
    run_ms(1000);
    assert_ok(tern_push_consumer_suspend(members[0].consumer));
    fake_publish(played->fake, 0, NULL, 5000);
    unsigned queries = played->fake->queries;
    run_ms(180000);
    assert_int_equal(played->count, 10);
    assert_ok(tern_push_consumer_resume(members[0].consumer));
    run_ms(10000);
    check_order(5010);
    assert_int_equal(played->fake->queries, queries); /* the same objects all the time */
    end();
}

static void queue_suspended_by_its_listener_for_long_is_kept(void **state)
{
    (void)state;
    begin(1);
    struct tern_consumer_options *options = options_of(0);
    assert_ok(tern_consumer_options_suspend_ms(options, 30000));
    played->fail_offset = 3;
    played->fail_times = 7;
    fake_publish(played->fake, 0, NULL, 2000);
    join_with(0, options);
    run_ms(1000);
    unsigned queries = played->fake->queries;
    run_ms(240000);
    check_order(2000);
    assert_int_equal(played->fake->queries, queries);
    end();
}

/* ---- moving ---- */

static void clean_stop_hands_over_within_a_second(void **state)
{
    (void)state;
    begin(4);
    for (int i = 0; i < 4; i++)
        fake_publish(played->fake, i, NULL, 50);
    join(0);
    join(1);
    run_ms(3000);
    leave(0);
    for (int i = 0; i < 4; i++)
        assert_string_not_equal(played->fake->locks[i].owner, "m0");
    int64_t left_ms = now_ms();
    for (int i = 0; i < 4; i++)
        fake_publish(played->fake, i, NULL, 50);
    run_ms(1000);
    check_order(100);
    for (unsigned i = 0; i < played->count; i++)
        if (played->items[i].at_ms > left_ms)
            assert_int_equal(played->items[i].member, 1);
    end();
}

/* RO-10: handler 5 s, members join and leave every 2 s. */
static void order_holds_while_members_come_and_go(void **state)
{
    (void)state;
    begin(4);
    for (int i = 0; i < 4; i++)
        fake_publish(played->fake, i, NULL, 12);
    played->handler_ms = 5000;
    join(0);
    for (int round = 0; round < 12; round++) {
        int number = 1 + round % 2;
        run_ms(2000);
        if (members[number].consumer)
            leave(number);
        else
            join(number);
    }
    run_ms(400000);
    check_order(12);
    end();
}

/* The queue is not given away before the running message is done. */
static void running_message_is_waited_for_and_its_progress_told_first(void **state)
{
    (void)state;
    begin(2);
    fake_publish(played->fake, 0, NULL, 8);
    fake_publish(played->fake, 1, NULL, 8);
    played->handler_ms = 5000;
    join(0);
    run_ms(1000);
    join(1);
    run_ms(100000);
    check_order(8);
    bool both[2] = {false, false};
    for (unsigned i = 0; i < played->count; i++)
        both[played->items[i].member] = true;
    assert_true(both[0] && both[1]);
    end();
}

/* ---- leases ---- */

static void lease_is_renewed_while_a_message_runs_for_minutes(void **state)
{
    (void)state;
    begin(1);
    fake_publish(played->fake, 0, NULL, 2);
    played->handler_ms = 300000;
    join(0);
    run_ms(200000);
    assert_int_equal(played->count, 1);
    assert_true(played->fake->locks[0].until_ns >
                clock_mono_ns(played->fake->env.clock) + ms_to_ns(40000));
    played->handler_ms = 0;
    run_ms(200000);
    check_order(2);
    end();
}

/* Nothing begins when the view of the lease has ended, whatever the broker thinks. */
static void nothing_begins_half_a_lease_after_the_broker_fell_silent(void **state)
{
    (void)state;
    begin(1);
    fake_publish(played->fake, 0, NULL, 1000);
    played->handler_ms = 1000;
    join(0);
    run_ms(15000);
    played->fake->lock_code = TERN_SYSTEM_BUSY;
    run_ms(30000);
    unsigned count = played->count;
    int64_t last_ms = played->items[count - 1].at_ms;
    run_ms(60000);
    assert_in_range(played->count, count, count + 1);
    assert_in_range(last_ms, 30000, 46000);
    played->fake->lock_code = TERN_OK;
    run_ms(10000);
    assert_true(played->count > count + 5);
    assert_false(played->overlapped);
    for (unsigned i = 1; i < played->count; i++)
        assert_in_range(played->items[i].offset, played->items[i - 1].offset,
                        played->items[i - 1].offset + 1);
    end();
}

/* A broker that gave the queue away is believed. */
static void lease_that_somebody_else_has_ends_at_once_and_the_queue_begins_anew(void **state)
{
    (void)state;
    begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    join(0);
    run_ms(6000);
    assert_int_equal(played->count, 10);
    struct fake_lock *held = &played->fake->locks[0];
    snprintf(held->owner, sizeof held->owner, "somebody");
    held->until_ns = clock_mono_ns(played->fake->env.clock) + ms_to_ns(30000);
    run_ms(11000); /* the next renewal */
    fake_publish(played->fake, 0, NULL, 10);
    played->fake->queues[0].committed = 15; /* the other one did these */
    run_ms(10000);
    assert_int_equal(played->count, 10);
    run_ms(20000);
    assert_int_equal(played->count, 15);
    assert_int_equal(played->items[10].offset, 15);
    end();
}

/* Who cannot say leaves things as they are. */
static void undecided_broker_ends_no_lease(void **state)
{
    (void)state;
    begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    join(0);
    run_ms(6000);
    played->fake->locks[0].owner[0] = '\0';
    played->fake->locks_undecided = true;
    fake_publish(played->fake, 0, NULL, 10);
    run_ms(12000);
    fake_publish(played->fake, 0, NULL, 10);
    run_ms(3000);
    check_order(30);
    run_ms(30000); /* the view ends all the same */
    fake_publish(played->fake, 0, NULL, 10);
    run_ms(3000);
    assert_int_equal(played->count, 30);
    played->fake->locks_undecided = false;
    run_ms(2000);
    check_order(40);
    end();
}

/* The master is away: a slave that knows the owner renews. */
static void slave_renews_while_the_master_is_away(void **state)
{
    (void)state;
    begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    join(0);
    run_ms(6000);
    fake_node_down(&played->fake->brokers[0]);
    run_ms(60000);
    fake_publish(played->fake, 0, NULL, 10);
    run_ms(3000);
    check_order(20);
    fake_node_up(&played->fake->brokers[0]);
    run_ms(10000);
    fake_publish(played->fake, 0, NULL, 10);
    run_ms(3000);
    check_order(30);
    end();
}

/* A reset moves the queue only when its running message is done. */
static void reset_waits_for_the_running_message(void **state)
{
    (void)state;
    begin(1);
    fake_publish(played->fake, 0, NULL, 10);
    played->handler_ms = 5000;
    join(0);
    run_ms(1000);
    played->fake->queues[0].version++;
    played->fake->queues[0].committed = 7;
    fake_publish(played->fake, 0, NULL, 1); /* ends the parked pull */
    run_ms(60000);
    assert_false(played->overlapped);
    unsigned before = 0;
    while (played->items[before].offset == before)
        before++;
    assert_in_range(before, 1, 3);
    assert_int_equal(played->count, before + 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(played->items[before + i].offset, 7 + i);
    end();
}

static void listener_must_be_one_of_the_two_before_the_start(void **state)
{
    (void)state;
    begin(1);
    join(0);
    assert_int_equal(tern_push_consumer_listener_orderly(members[0].consumer, play, NULL),
                     TERN_STATE);
    assert_int_equal(tern_push_consumer_shutdown(members[0].consumer, 100) == TERN_OK
                         ? tern_push_consumer_listener_orderly(members[0].consumer, play, NULL)
                         : TERN_OK,
                     TERN_STATE);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_message_comes_within_two_seconds_of_the_start),
        cmocka_unit_test(nothing_is_pulled_or_asked_without_a_lock),
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
        cmocka_unit_test(clean_stop_hands_over_within_a_second),
        cmocka_unit_test(order_holds_while_members_come_and_go),
        cmocka_unit_test(running_message_is_waited_for_and_its_progress_told_first),
        cmocka_unit_test(lease_is_renewed_while_a_message_runs_for_minutes),
        cmocka_unit_test(nothing_begins_half_a_lease_after_the_broker_fell_silent),
        cmocka_unit_test(lease_that_somebody_else_has_ends_at_once_and_the_queue_begins_anew),
        cmocka_unit_test(undecided_broker_ends_no_lease),
        cmocka_unit_test(slave_renews_while_the_master_is_away),
        cmocka_unit_test(reset_waits_for_the_running_message),
        cmocka_unit_test(listener_must_be_one_of_the_two_before_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
