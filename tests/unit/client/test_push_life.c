/* The push consumer's states: wrong calls, changes on the way, how it stops. */
#include "tests/unit/client/push_rig.h"

/* ---- life ---- */

/* */
static void shutdown_commits_and_leaves_the_group(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    fake_publish(rig.fake, 0, NULL, 10);
    fake_publish(rig.fake, 1, NULL, 7);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.fake->member_count, 1);
    assert_ok(tern_push_consumer_shutdown(rig.consumer, 1000));
    assert_int_equal(rig.fake->queues[0].committed, 10);
    assert_int_equal(rig.fake->queues[1].committed, 7);
    assert_int_equal(rig.fake->member_count, 0);
    assert_int_equal(tern_push_consumer_shutdown(rig.consumer, 1000), TERN_STATE);
    rig_destroy(&rig);
}

/* A suspended pool works nothing off. */
static void shutdown_of_a_suspended_consumer_does_not_wait(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_ok(tern_push_consumer_suspend(rig.consumer));
    fake_publish(rig.fake, 0, NULL, 20); /* answers the pull under way */
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig_stats(&rig).cached, 20);
    int64_t begin_ns = rig.fake->sim.clock.now_ns;
    assert_ok(tern_push_consumer_shutdown(rig.consumer, 60000));
    assert_true(rig.fake->sim.clock.now_ns - begin_ns < ms_to_ns(5000));
    assert_int_equal(rig.heard->count, 0);
    rig_destroy(&rig);
}

/* Progress that no broker has is told, and what was consumed comes again. */
static void shutdown_returns_what_the_last_commit_failed_with(void **state)
{
    static const enum tern_code codes[] = {TERN_FLUSH_SLAVE_TIMEOUT, TERN_SERVICE_NOT_AVAILABLE};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        struct rig rig = rig_create(2);
        fake_publish(rig.fake, 0, NULL, 10);
        rig_start(&rig, "*");
        fake_run_ms(rig.fake, 1000);
        rig.fake->commit_code = codes[i];
        assert_int_equal(tern_push_consumer_shutdown(rig.consumer, 1000), codes[i]);
        assert_int_equal(rig.fake->queues[0].committed, 0); /* where it began */
        assert_int_equal(rig.fake->member_count, 0);
        assert_true(sim_log_count(&rig.fake->sim, "consumer_commit_failed") > 0);
        assert_int_equal(tern_push_consumer_shutdown(rig.consumer, 1000), TERN_STATE);
        rig_destroy(&rig);
    }
}

/* A failure that the second try made good, and one of long ago, are none. */
static void shutdown_returns_no_failure_that_was_made_good(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    fake_publish(rig.fake, 0, NULL, 10);
    rig_start(&rig, "*");
    rig.fake->commit_code = TERN_FLUSH_SLAVE_TIMEOUT;
    fake_run_ms(rig.fake, 11000);
    assert_true(rig.fake->commits > 0);
    rig.fake->commit_code = TERN_OK;
    rig.fake->brokers[0].commit_code = TERN_SERVICE_NOT_AVAILABLE; /* the slave takes it */
    assert_ok(tern_push_consumer_shutdown(rig.consumer, 1000));
    assert_int_equal(rig.fake->queues[0].committed, 10);
    rig_destroy(&rig);
}

static void shutdown_ends_although_no_broker_answers(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    fake_publish(rig.fake, 0, NULL, 10);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    fake_node_down(&rig.fake->brokers[0]);
    fake_node_down(&rig.fake->brokers[1]);
    int64_t begin_ns = rig.fake->sim.clock.now_ns;
    assert_int_not_equal(tern_push_consumer_shutdown(rig.consumer, 1000), TERN_OK);
    assert_true(rig.fake->sim.clock.now_ns - begin_ns < ms_to_ns(8000));
    rig_destroy(&rig);
}

/* */
static void wrong_calls_name_the_state(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct tern_error err;
    assert_ok(tern_push_consumer_create(rig.options, &rig.consumer, &err));
    assert_int_equal(tern_push_consumer_start(rig.consumer, &err), TERN_STATE);
    assert_contains(err.text, "subscription");
    assert_int_equal(tern_push_consumer_subscribe(rig.consumer, "bad topic", "*", &err),
                     TERN_INVALID);
    assert_int_equal(tern_push_consumer_subscribe(rig.consumer, FAKE_TOPIC, "||", &err),
                     TERN_SUBSCRIPTION_PARSE_FAILED);
    assert_ok(tern_push_consumer_subscribe(rig.consumer, FAKE_TOPIC, "*", &err));
    assert_int_equal(tern_push_consumer_start(rig.consumer, &err), TERN_STATE);
    assert_contains(err.text, "listener");
    assert_int_equal(tern_push_consumer_suspend(rig.consumer), TERN_STATE);
    assert_ok(tern_push_consumer_listener(rig.consumer, listen_and_remember, rig.heard));
    assert_ok(tern_push_consumer_start(rig.consumer, &err));
    assert_int_equal(tern_push_consumer_start(rig.consumer, &err), TERN_STATE);
    assert_contains(err.text, "running");
    assert_ok(tern_push_consumer_shutdown(rig.consumer, 0));
    assert_int_equal(tern_push_consumer_start(rig.consumer, &err), TERN_STATE);
    assert_contains(err.text, "shut down");
    rig_destroy(&rig);
}

/* */
static void the_same_group_twice_in_one_instance_is_refused(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig_start(&rig, "*");
    struct tern_push_consumer *twin;
    struct tern_error err;
    assert_ok(tern_push_consumer_create(rig.options, &twin, &err));
    assert_ok(tern_push_consumer_subscribe(twin, FAKE_TOPIC, "*", &err));
    assert_ok(tern_push_consumer_listener(twin, listen_and_remember, rig.heard));
    assert_int_equal(tern_push_consumer_start(twin, &err), TERN_EXISTS);
    assert_contains(err.text, "has been created before");
    assert_int_equal(tern_push_consumer_start(twin, &err), TERN_STATE);
    assert_contains(err.text, "start failed");
    tern_push_consumer_destroy(twin);
    rig_destroy(&rig);
}

/* F-4 */
static void start_logs_group_model_topics_and_expressions(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig_start(&rig, "TagA || TagB");
    assert_int_equal(sim_log_count(&rig.fake->sim, "model=CLUSTERING"), 1);
    assert_int_equal(sim_log_count(&rig.fake->sim, "expression=\"TagA || TagB\""), 1);
    assert_int_equal(sim_log_count(&rig.fake->sim, "topic=" FAKE_RETRY), 1);
    fake_run_ms(rig.fake, 60000); /* the retry topic does not exist: no complaint */
    assert_int_equal(sim_log_count(&rig.fake->sim, "consumer_topic_unreachable"), 0);
    rig_destroy(&rig);
}

static void a_changed_expression_is_used_from_the_next_pull_on(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, "TagB", 10);
    rig_start(&rig, "TagA");
    fake_run_ms(rig.fake, 1000);
    assert_ok(tern_push_consumer_subscribe(rig.consumer, FAKE_TOPIC, "TagB", NULL));
    fake_run_ms(rig.fake, 16000); /* the parked pull ends */
    fake_publish(rig.fake, 0, "TagB", 10);
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 10);
    assert_ok(tern_push_consumer_unsubscribe(rig.consumer, FAKE_TOPIC, NULL));
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig_stats(&rig).queues, 0);
    assert_int_equal(tern_push_consumer_unsubscribe(rig.consumer, FAKE_TOPIC, NULL),
                     TERN_NOT_FOUND);
    rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shutdown_commits_and_leaves_the_group),
        cmocka_unit_test(shutdown_of_a_suspended_consumer_does_not_wait),
        cmocka_unit_test(shutdown_returns_what_the_last_commit_failed_with),
        cmocka_unit_test(shutdown_returns_no_failure_that_was_made_good),
        cmocka_unit_test(shutdown_ends_although_no_broker_answers),
        cmocka_unit_test(wrong_calls_name_the_state),
        cmocka_unit_test(the_same_group_twice_in_one_instance_is_refused),
        cmocka_unit_test(start_logs_group_model_topics_and_expressions),
        cmocka_unit_test(a_changed_expression_is_used_from_the_next_pull_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
