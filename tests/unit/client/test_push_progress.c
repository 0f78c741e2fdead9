/*
 * The push consumer's progress: where a queue begins, what is committed and when, offsets outside
 * the queue.
 */
#include "tests/unit/client/push_rig.h"

/* ---- consuming and progress ---- */

static void messages_reach_the_listener_and_progress_the_broker(void **state)
{
    (void)state;
    struct rig rig = rig_create(4);
    for (int i = 0; i < 4; i++)
        fake_publish(rig.fake, i, "TagA", 100);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 400);
    fake_publish(rig.fake, 2, "TagA", 5); /* wakes a parked pull */
    fake_run_ms(rig.fake, 5500);
    assert_int_equal(rig.heard->count, 405);
    assert_int_equal(rig.fake->queues[0].committed, 100);
    assert_int_equal(rig.fake->queues[2].committed, 105);
    struct tern_consumer_stats stats = rig_stats(&rig);
    assert_int_equal(stats.pulled, 405);
    assert_int_equal(stats.consumed, 405);
    assert_int_equal(stats.queues, 4);
    assert_int_equal(stats.cached, 0);
    rig_destroy(&rig);
}

/* Progress is told once: an idle consumer says nothing more. */
static void unchanged_progress_is_not_committed_again(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    fake_publish(rig.fake, 0, NULL, 10);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 11000);
    unsigned commits = rig.fake->commits;
    assert_true(commits >= 1);
    fake_run_ms(rig.fake, 30000);
    assert_int_equal(rig.fake->commits, commits);
    rig_destroy(&rig);
}

/* */
static void a_hole_holds_the_commit_point(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.fake->send_back_code = TERN_NOT_SUPPORTED;
    rig.heard->fail_offset = 3;
    rig.heard->fail_times = -1;
    fake_publish(rig.fake, 0, NULL, 50);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 20000);
    assert_true(heard_times(rig.heard, 0, 49) == 1);
    assert_int_equal(rig.fake->queues[0].committed, 3);
    rig.heard->fail_times = 0;
    fake_run_ms(rig.fake, 11000);
    assert_int_equal(rig.fake->queues[0].committed, 50);
    rig_destroy(&rig);
}

static void a_group_with_progress_goes_on_there(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 50);
    rig.fake->queues[0].committed = 40;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 10);
    assert_int_equal(rig.heard->items[0].offset, 40);
    rig_destroy(&rig);
}

/* R-7, facts 7.12: progress, policy, where the topic's and the retry topic's queue begin */
static void where_a_queue_begins_is_the_table_of_the_manual(void **state)
{
    (void)state;
    enum { NONE = -1, END = 50, RETRY_END = 3, TIME = 2 };
    static const struct {
        int64_t progress;
        enum tern_consume_from from;
        int64_t begins, retry_begins;
    } rows[] = {
        {40, TERN_FROM_LAST, 40, 1},          {40, TERN_FROM_FIRST, 40, 1},
        {40, TERN_FROM_TIMESTAMP, 40, 1},     {0, TERN_FROM_LAST, 0, 0},
        {NONE, TERN_FROM_LAST, END, 0},       {NONE, TERN_FROM_FIRST, 0, 0},
        {NONE, TERN_FROM_TIMESTAMP, TIME, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rig rig = rig_create(1);
        fake_publish(rig.fake, 0, NULL, END);
        rig.fake->has_retry_topic = true;
        fake_publish(rig.fake, FAKE_QUEUES, NULL, RETRY_END);
        rig.fake->queues[0].committed = rows[i].progress;
        rig.fake->queues[FAKE_QUEUES].committed = rows[i].progress > 0 ? 1 : rows[i].progress;
        assert_ok(tern_consumer_options_from(rig.options, rows[i].from, TIME));
        rig_start(&rig, "*");
        fake_run_ms(rig.fake, 6000);
        unsigned expected = (unsigned)(END - rows[i].begins + RETRY_END - rows[i].retry_begins);
        assert_int_equal(rig.heard->count, expected);
        /* decided once: what was begun at is progress now */
        assert_int_equal(rig.fake->queues[0].committed, END);
        assert_int_equal(rig.fake->queues[FAKE_QUEUES].committed, RETRY_END);
        rig_destroy(&rig);
    }
}

/* R-7, facts 7.12 */
static void a_new_group_begins_at_the_end_and_remembers_it(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 50);
    rig.fake->has_retry_topic = true;
    fake_publish(rig.fake, FAKE_QUEUES, NULL, 3);
    assert_ok(tern_consumer_options_from(rig.options, TERN_FROM_LAST, 0));
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 3); /* the retry topic is read from 0 */
    assert_string_equal(rig.heard->topic, FAKE_TOPIC);
    assert_int_equal(rig.fake->queues[0].committed, 50);
    rig_destroy(&rig);
}

static void a_new_group_begins_at_a_time(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 50);
    assert_ok(tern_consumer_options_from(rig.options, TERN_FROM_TIMESTAMP, 30));
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 20);
    assert_int_equal(rig.heard->items[0].offset, 30);
    rig_destroy(&rig);
}

/* OF-04, OF-05 */
static void a_failed_offset_query_is_not_taken_for_none(void **state)
{
    (void)state;
    static const enum tern_code codes[] = {TERN_SYSTEM_BUSY, TERN_PROGRESS_UNKNOWN,
                                           TERN_SYSTEM_ERROR};
    for (size_t i = 0; i < 3; i++) {
        struct rig rig = rig_create(1);
        fake_publish(rig.fake, 0, NULL, 50);
        rig.fake->queues[0].committed = 45;
        rig.fake->query_code = codes[i];
        rig_start(&rig, "*");
        fake_run_ms(rig.fake, 20000);
        /* each of the two addresses about once a second */
        assert_in_range(rig.fake->queries, 4, 50);
        assert_int_equal(rig.heard->count, 0);
        assert_int_equal(rig.fake->commits, 0);
        assert_int_equal(rig.fake->brokers[0].pulls, 0);
        rig.fake->query_code = TERN_OK;
        fake_run_ms(rig.fake, 4000);
        assert_int_equal(rig.heard->count, 5);
        rig_destroy(&rig);
    }
}

/* OF-20, at the start */
static void a_negative_end_is_no_offset(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    assert_ok(tern_consumer_options_from(rig.options, TERN_FROM_LAST, 0));
    rig.fake->range_max = -1;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 10000);
    assert_int_equal(rig.fake->brokers[0].pulls, 0);
    assert_int_equal(rig.fake->commits, 0);
    rig_destroy(&rig);
}

/* ---- offsets outside the queue ---- */

/* R-10, OF-01 */
static void an_offset_beyond_the_end_is_corrected_and_committed(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 100);
    rig.fake->queues[0].min = 60;
    rig_start(&rig, "*"); /* from first: 0, which has expired */
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 40);
    assert_int_equal(rig.heard->items[0].offset, 60);
    assert_true(rig.fake->queues[0].committed >= 60);
    rig_destroy(&rig);

    rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 100);
    rig.fake->queues[0].committed = 1000;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 0);
    assert_int_equal(rig.fake->last_pull_offset, 100);
    fake_publish(rig.fake, 0, NULL, 1);
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->items[0].offset, 100);
    rig_destroy(&rig);
}

static bool answer_moved_to_nowhere(struct fake_node *node, struct rpc_request *rq,
                                    const Tern__Wire__PullRequest *pull)
{
    (void)pull;
    fake_answer_pull(node->fake, rq, TERN_PULL_OFFSET_MOVED, -1, NULL, 0, 0);
    return true;
}

/* OF-20 */
static void a_correction_to_minus_one_is_never_used(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 10);
    rig.fake->queues[0].committed = 4;
    rig.fake->on_pull = answer_moved_to_nowhere;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 30000);
    assert_true(rig.fake->brokers[0].pulls < 15);
    assert_int_equal(rig.fake->last_pull_offset, 4);
    assert_int_equal(rig.fake->queues[0].committed, 4);
    rig_destroy(&rig);
}

/* OF-07, replication.md "Progress": a higher version comes with its offset, and drops what is in
 * flight */
static void a_reset_takes_effect_although_an_older_pull_is_parked(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 500);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 6000);
    assert_int_equal(rig.fake->queues[0].committed, 500);
    unsigned before = rig.heard->count;
    rig.fake->queues[0].version = 1;
    rig.fake->queues[0].committed = 100;
    fake_publish(rig.fake, 0, NULL, 1);
    fake_run_ms(rig.fake, 6000);
    assert_int_equal(rig.heard->items[before].offset, 100);
    assert_int_equal(rig.heard->count, before + 401);
    assert_int_equal(rig.fake->queues[0].committed, 501);
    rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_reach_the_listener_and_progress_the_broker),
        cmocka_unit_test(unchanged_progress_is_not_committed_again),
        cmocka_unit_test(a_hole_holds_the_commit_point),
        cmocka_unit_test(a_group_with_progress_goes_on_there),
        cmocka_unit_test(where_a_queue_begins_is_the_table_of_the_manual),
        cmocka_unit_test(a_new_group_begins_at_the_end_and_remembers_it),
        cmocka_unit_test(a_new_group_begins_at_a_time),
        cmocka_unit_test(a_failed_offset_query_is_not_taken_for_none),
        cmocka_unit_test(a_negative_end_is_no_offset),
        cmocka_unit_test(an_offset_beyond_the_end_is_corrected_and_committed),
        cmocka_unit_test(a_correction_to_minus_one_is_never_used),
        cmocka_unit_test(a_reset_takes_effect_although_an_older_pull_is_parked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
