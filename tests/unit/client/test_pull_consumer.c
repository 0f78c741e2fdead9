/* The pull consumer against a scripted cluster. */
#include "tests/unit/client/fake_cluster.h"

struct rig {
    struct fake *fake;
    struct tern_consumer_options *options;
    struct tern_pull_consumer *consumer;
    struct tern_queue queue; /* number 0 */
};

static struct rig rig_create(int queue_count)
{
    struct rig rig = {.fake = fake_create(queue_count)};
    struct tern_error err;
    rig.options = fake_options(rig.fake, "group", "p");
    assert_ok(tern_pull_consumer_create(rig.options, &rig.consumer, &err));
    assert_ok(tern_pull_consumer_start(rig.consumer, &err));
    snprintf(rig.queue.topic, sizeof rig.queue.topic, "%s", FAKE_TOPIC);
    snprintf(rig.queue.broker_name, sizeof rig.queue.broker_name, "broker-a");
    return rig;
}

static void rig_destroy(struct rig *rig)
{
    tern_pull_consumer_destroy(rig->consumer);
    tern_consumer_options_destroy(rig->options);
    fake_destroy(rig->fake);
}

static struct tern_pull_result pull(struct rig *rig, const char *expression, int64_t offset,
                                    int max_messages, int64_t wait_ms)
{
    struct tern_pull_result result;
    struct tern_error err = {.text = ""};
    if (tern_pull_consumer_pull(rig->consumer, &rig->queue, expression, offset, max_messages,
                                wait_ms, &result, &err) != TERN_OK)
        fail_msg("%s", err.text);
    return result;
}

static void queues_are_listed_sorted_and_counted(void **state)
{
    (void)state;
    struct rig rig = rig_create(4);
    struct tern_queue queues[2];
    size_t count;
    assert_ok(tern_pull_consumer_queues(rig.consumer, FAKE_TOPIC, queues, 2, &count, NULL));
    assert_int_equal(count, 4);
    assert_int_equal(queues[1].queue_id, 1);
    assert_string_equal(queues[1].broker_name, "broker-a");
    assert_int_equal(tern_pull_consumer_queues(rig.consumer, "Absent", queues, 2, &count, NULL),
                     TERN_TOPIC_NOT_EXIST);
    rig_destroy(&rig);
}

/* */
static void answers_become_statuses(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, "TagA", 100);
    rig.fake->queues[0].min = 10;
    struct tern_pull_result result = pull(&rig, "*", 10, 32, 0);
    assert_int_equal(result.status, TERN_PULL_FOUND);
    assert_int_equal(result.count, 32);
    assert_int_equal(result.next_offset, 42);
    assert_int_equal(result.min_offset, 10);
    assert_int_equal(result.max_offset, 100);
    assert_int_equal(tern_message_queue_offset(result.messages[0]), 10);
    tern_pull_result_clear(&result);
    result = pull(&rig, "TagB", 10, 32, 0);
    assert_int_equal(result.status, TERN_PULL_NO_MATCHED_MSG);
    assert_int_equal(result.next_offset, 100);
    result = pull(&rig, "*", 100, 32, 0);
    assert_int_equal(result.status, TERN_PULL_NO_NEW_MSG);
    assert_int_equal(result.next_offset, 100);
    result = pull(&rig, "*", 5, 32, 0);
    assert_int_equal(result.status, TERN_PULL_OFFSET_ILLEGAL);
    assert_int_equal(result.next_offset, 10);
    result = pull(&rig, "*", 101, 32, 0);
    assert_int_equal(result.status, TERN_PULL_OFFSET_ILLEGAL);
    assert_int_equal(result.next_offset, 100);
    rig_destroy(&rig);
}

static void publish_one(void *arg)
{
    fake_publish(arg, 0, NULL, 1);
}

/* */
static void a_pull_waits_for_a_message(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    sim_after(rig.fake->sim.sched, ms_to_ns(3000), publish_one, rig.fake);
    int64_t begin_ns = rig.fake->sim.clock.now_ns;
    struct tern_pull_result result = pull(&rig, NULL, 0, 1, 20000);
    assert_int_equal(result.status, TERN_PULL_FOUND);
    assert_true(rig.fake->sim.clock.now_ns - begin_ns < ms_to_ns(3100));
    tern_pull_result_clear(&result);
    result = pull(&rig, NULL, 1, 1, 20000);
    assert_int_equal(result.status, TERN_PULL_NO_NEW_MSG); /* OF-18: not a time-out */
    rig_destroy(&rig);
}

/* F-1 */
static void tags_are_compared_by_text(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.fake->loose = true;
    fake_publish(rig.fake, 0, "TagA", 1);
    fake_publish(rig.fake, 0, "TagB", 1);
    fake_publish(rig.fake, 0, NULL, 1);
    struct tern_pull_result result = pull(&rig, "TagB", 0, 32, 0);
    assert_int_equal(result.count, 1);
    assert_int_equal(tern_message_queue_offset(result.messages[0]), 1);
    assert_int_equal(result.next_offset, 3);
    tern_pull_result_clear(&result);
    result = pull(&rig, "TagC", 0, 32, 0);
    assert_int_equal(result.status, TERN_PULL_NO_MATCHED_MSG);
    assert_int_equal(result.count, 0);
    tern_pull_result_clear(&result);
    rig_destroy(&rig);
}

/* A message kept longer than its result and its consumer stays readable. */
static void messages_outlive_their_result(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, "TagA", 2);
    struct tern_pull_result result = pull(&rig, NULL, 0, 32, 0);
    struct tern_message *kept = tern_message_ref(result.messages[1]);
    tern_pull_result_clear(&result);
    size_t size;
    const char *body = tern_message_body(kept, &size);
    assert_int_equal(size, 1);
    assert_int_equal(body[0], '1');
    tern_message_unref(kept);
    rig_destroy(&rig);
}

static void limits_are_checked(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct tern_pull_result result;
    struct tern_error err;
    assert_int_equal(
        tern_pull_consumer_pull(rig.consumer, &rig.queue, NULL, 0, 0, 0, &result, &err),
        TERN_INVALID);
    assert_contains(err.text, "max_messages");
    assert_int_equal(
        tern_pull_consumer_pull(rig.consumer, &rig.queue, NULL, 0, 1, 60001, &result, &err),
        TERN_INVALID);
    assert_contains(err.text, "wait_ms");
    assert_int_equal(
        tern_pull_consumer_pull(rig.consumer, &rig.queue, NULL, -1, 1, 0, &result, &err),
        TERN_INVALID);
    assert_int_equal(tern_pull_consumer_commit(rig.consumer, &rig.queue, -1, &err), TERN_INVALID);
    tern_pull_consumer_shutdown(rig.consumer);
    assert_int_equal(
        tern_pull_consumer_pull(rig.consumer, &rig.queue, NULL, 0, 1, 0, &result, &err),
        TERN_STATE);
    assert_contains(err.text, "shut down");
    rig_destroy(&rig);
}

struct outcome {
    unsigned calls;
    enum tern_code code;
    size_t count;
    char text[128];
};

static void on_done(void *arg, enum tern_code code, struct tern_pull_result *result,
                    const struct tern_error *err)
{
    struct outcome *outcome = arg;
    outcome->calls++;
    outcome->code = code;
    if (code == TERN_OK) {
        outcome->count = result->count;
        tern_pull_result_clear(result);
    } else {
        snprintf(outcome->text, sizeof outcome->text, "%.100s", err->text);
    }
}

static void an_asynchronous_pull_calls_back_once(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct outcome outcome = {.calls = 0};
    struct tern_error err;
    assert_int_equal(tern_pull_consumer_pull_async(rig.consumer, &rig.queue, NULL, 0, 32, 1000,
                                                   on_done, &outcome, &err),
                     TERN_UNREACHABLE); /* the route is asked for, not waited for */
    fake_run_ms(rig.fake, 500);
    assert_ok(tern_pull_consumer_pull_async(rig.consumer, &rig.queue, NULL, 0, 32, 20000, on_done,
                                            &outcome, &err));
    fake_run_ms(rig.fake, 500);
    assert_int_equal(outcome.calls, 0);
    fake_publish(rig.fake, 0, NULL, 3);
    fake_run_ms(rig.fake, 500);
    assert_int_equal(outcome.calls, 1);
    assert_int_equal(outcome.code, TERN_OK);
    assert_int_equal(outcome.count, 3);
    rig_destroy(&rig);
}

static void a_pull_under_way_ends_with_the_consumer(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct outcome outcome = {.calls = 0};
    struct tern_pull_result result = pull(&rig, NULL, 0, 1, 0); /* the route is known now */
    assert_int_equal(result.count, 0);
    assert_ok(tern_pull_consumer_pull_async(rig.consumer, &rig.queue, NULL, 0, 32, 20000, on_done,
                                            &outcome, NULL));
    rig_destroy(&rig);
    assert_int_equal(outcome.calls, 1);
    assert_int_equal(outcome.code, TERN_CANCELED);
}

/* H-4 */
static void pulls_go_to_another_address_when_the_master_dies(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 10);
    struct tern_pull_result result = pull(&rig, NULL, 0, 5, 0);
    tern_pull_result_clear(&result);
    fake_node_down(&rig.fake->brokers[0]);
    result = pull(&rig, NULL, 5, 32, 0);
    assert_int_equal(result.count, 5);
    tern_pull_result_clear(&result);
    assert_int_equal(rig.fake->brokers[1].pulls, 1);
    int64_t offset;
    rig.fake->queues[0].committed = 4;
    assert_ok(tern_pull_consumer_committed(rig.consumer, &rig.queue, &offset, NULL));
    assert_int_equal(offset, 4);
    rig_destroy(&rig);
}

/* C-3, HA-21 */
static void a_lagging_slave_is_left_for_the_master_with_the_same_offset(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 100);
    rig.fake->queues[0].slave_max = 30;
    rig.fake->suggest = 1;
    struct tern_pull_result result = pull(&rig, NULL, 0, 32, 0);
    tern_pull_result_clear(&result);
    rig.fake->suggest = 0;
    result = pull(&rig, NULL, 50, 32, 0); /* to the slave, as suggested */
    assert_int_equal(rig.fake->brokers[1].pulls, 1);
    assert_int_equal(result.count, 32);
    tern_pull_result_clear(&result);
    fake_node_down(&rig.fake->brokers[0]);
    result = pull(&rig, NULL, 82, 32, 0);
    assert_int_equal(result.status, TERN_PULL_NO_NEW_MSG);
    assert_int_equal(result.next_offset, 82);
    rig_destroy(&rig);
}

static void with_nobody_there_the_failure_says_so(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct tern_pull_result result = pull(&rig, NULL, 0, 1, 0);
    fake_node_down(&rig.fake->brokers[0]);
    fake_node_down(&rig.fake->brokers[1]);
    struct tern_error err;
    enum tern_code code =
        tern_pull_consumer_pull(rig.consumer, &rig.queue, NULL, 0, 1, 0, &result, &err);
    assert_true(code == TERN_UNREACHABLE || code == TERN_CONNECTION_LOST);
    int64_t offset;
    code = tern_pull_consumer_committed(rig.consumer, &rig.queue, &offset, &err);
    assert_true(code == TERN_UNREACHABLE || code == TERN_CONNECTION_LOST);
    rig_destroy(&rig);
}

static void range_and_search_ask_the_broker(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 10);
    rig.fake->queues[0].min = 3;
    int64_t min;
    int64_t max;
    assert_ok(tern_pull_consumer_range(rig.consumer, &rig.queue, &min, &max, NULL));
    assert_int_equal(min, 3);
    assert_int_equal(max, 10);
    assert_ok(tern_pull_consumer_search(rig.consumer, &rig.queue, 7, &min, NULL));
    assert_int_equal(min, 7);
    rig_destroy(&rig);
}

/* OF-04, OF-11 */
static void progress_is_stored_kept_and_never_invented(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    int64_t offset;
    assert_int_equal(tern_pull_consumer_committed(rig.consumer, &rig.queue, &offset, NULL),
                     TERN_QUERY_NOT_FOUND);
    assert_ok(tern_pull_consumer_commit(rig.consumer, &rig.queue, 100, NULL));
    assert_ok(tern_pull_consumer_commit(rig.consumer, &rig.queue, 40, NULL));
    assert_ok(tern_pull_consumer_committed(rig.consumer, &rig.queue, &offset, NULL));
    assert_int_equal(offset, 100);
    rig.fake->query_code = TERN_PROGRESS_UNKNOWN;
    assert_int_equal(tern_pull_consumer_committed(rig.consumer, &rig.queue, &offset, NULL),
                     TERN_PROGRESS_UNKNOWN);
    rig_destroy(&rig);
}

/* ---- slaves: ends, refusals, progress ---- */

/* "Nothing new" of a slave is only as far as that has come. */
static void a_wait_at_a_slave_goes_on_until_a_message_arrives(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct outcome outcome = {.calls = 0};
    fake_publish(rig.fake, 0, NULL, 10);
    struct tern_pull_result result = pull(&rig, NULL, 0, 10, 0);
    tern_pull_result_clear(&result);
    fake_node_down(&rig.fake->brokers[0]);
    assert_ok(tern_pull_consumer_pull_async(rig.consumer, &rig.queue, NULL, 10, 32, 20000, on_done,
                                            &outcome, NULL));
    fake_run_ms(rig.fake, 8000);
    assert_int_equal(outcome.calls, 0);
    assert_in_range(rig.fake->brokers[1].pulls, 6, 9);
    fake_publish(rig.fake, 0, NULL, 3);
    fake_run_ms(rig.fake, 50);
    assert_int_equal(outcome.calls, 1);
    assert_int_equal(outcome.count, 3);
    rig_destroy(&rig);
}

/* OF-02: behind, and without a master: no correction, no hammering, an end in time. */
static void a_wait_at_a_slave_that_is_behind_lasts_as_long_as_asked(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 100);
    struct tern_pull_result result = pull(&rig, NULL, 0, 32, 0);
    tern_pull_result_clear(&result);
    rig.fake->queues[0].slave_max = 30;
    fake_node_down(&rig.fake->brokers[0]);
    int64_t before_ns = rig.fake->sim.clock.now_ns;
    result = pull(&rig, NULL, 82, 32, 10000);
    int64_t took_ns = rig.fake->sim.clock.now_ns - before_ns;
    assert_int_equal(result.status, TERN_PULL_NO_NEW_MSG);
    assert_int_equal(result.next_offset, 82);
    assert_int_equal(result.max_offset, 30);
    assert_in_range(took_ns, ms_to_ns(9900), ms_to_ns(11200));
    assert_in_range(rig.fake->brokers[1].pulls, 8, 16);
    rig_destroy(&rig);
}

/* An answer may take long without having been held. */
static void a_distant_slaves_end_is_a_result_when_no_wait_was_asked_for(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 10);
    struct tern_pull_result result = pull(&rig, NULL, 0, 10, 0);
    tern_pull_result_clear(&result);
    fake_node_down(&rig.fake->brokers[0]);
    sim_net_set_delay(rig.fake->net, ms_to_ns(80), ms_to_ns(90));
    result = pull(&rig, NULL, 10, 32, 0);
    assert_int_equal(result.status, TERN_PULL_NO_NEW_MSG);
    assert_in_range(rig.fake->brokers[1].pulls, 1, 2);
    rig_destroy(&rig);
}

static void a_slave_that_catches_up_ends_the_wait(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct outcome outcome = {.calls = 0};
    fake_publish(rig.fake, 0, NULL, 100);
    struct tern_pull_result result = pull(&rig, NULL, 0, 32, 0);
    tern_pull_result_clear(&result);
    rig.fake->queues[0].slave_max = 30;
    fake_node_down(&rig.fake->brokers[0]);
    assert_ok(tern_pull_consumer_pull_async(rig.consumer, &rig.queue, NULL, 82, 32, 20000, on_done,
                                            &outcome, NULL));
    fake_run_ms(rig.fake, 3000);
    assert_int_equal(outcome.calls, 0);
    rig.fake->queues[0].slave_max = -1;
    fake_run_ms(rig.fake, 1100);
    assert_int_equal(outcome.calls, 1);
    assert_int_equal(outcome.count, 18);
    rig_destroy(&rig);
}

static void a_pull_that_pauses_ends_with_its_consumer(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct outcome outcome = {.calls = 0};
    fake_publish(rig.fake, 0, NULL, 100);
    struct tern_pull_result result = pull(&rig, NULL, 0, 32, 0);
    tern_pull_result_clear(&result);
    rig.fake->queues[0].slave_max = 30;
    fake_node_down(&rig.fake->brokers[0]);
    assert_ok(tern_pull_consumer_pull_async(rig.consumer, &rig.queue, NULL, 82, 32, 20000, on_done,
                                            &outcome, NULL));
    fake_run_ms(rig.fake, 3500); /* shunned for a second: nothing is under way */
    rig_destroy(&rig);
    assert_int_equal(outcome.calls, 1);
    assert_int_equal(outcome.code, TERN_CANCELED);
}

static void the_returned_master_ends_the_wait_at_the_slave(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct outcome outcome = {.calls = 0};
    fake_publish(rig.fake, 0, NULL, 10);
    struct tern_pull_result result = pull(&rig, NULL, 0, 10, 0);
    tern_pull_result_clear(&result);
    rig.fake->queues[0].slave_max = 10; /* it gets nothing any more */
    fake_node_down(&rig.fake->brokers[0]);
    assert_ok(tern_pull_consumer_pull_async(rig.consumer, &rig.queue, NULL, 10, 32, 20000, on_done,
                                            &outcome, NULL));
    fake_run_ms(rig.fake, 5000);
    fake_node_up(&rig.fake->brokers[0]);
    fake_publish(rig.fake, 0, NULL, 3);
    fake_run_ms(rig.fake, 2500);
    assert_int_equal(outcome.calls, 1);
    assert_int_equal(outcome.count, 3);
    rig_destroy(&rig);
}

/* HA-23 */
static void a_refusing_slave_is_left_for_the_master(void **state)
{
    (void)state;
    static const enum tern_code codes[] = {TERN_NO_PERMISSION, TERN_SERVICE_NOT_AVAILABLE,
                                           TERN_SYSTEM_BUSY, TERN_TOPIC_NOT_EXIST};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        struct rig rig = rig_create(1);
        fake_publish(rig.fake, 0, NULL, 100);
        rig.fake->suggest = 1;
        struct tern_pull_result result = pull(&rig, NULL, 0, 32, 0);
        tern_pull_result_clear(&result);
        rig.fake->brokers[1].pull_code = codes[i];
        result = pull(&rig, NULL, 32, 32, 0);
        assert_int_equal(result.count, 32);
        tern_pull_result_clear(&result);
        assert_int_equal(rig.fake->brokers[1].pulls, 1);
        rig_destroy(&rig);
    }
}

static void a_master_that_recovers_leaves_pulls_to_its_slave(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 10);
    rig.fake->brokers[0].pull_code = TERN_SERVICE_NOT_AVAILABLE;
    struct tern_pull_result result = pull(&rig, NULL, 0, 32, 0);
    assert_int_equal(result.count, 10);
    tern_pull_result_clear(&result);
    rig.fake->brokers[1].pull_code = TERN_SERVICE_NOT_AVAILABLE;
    struct tern_error err;
    assert_int_equal(
        tern_pull_consumer_pull(rig.consumer, &rig.queue, NULL, 0, 1, 0, &result, &err),
        TERN_SERVICE_NOT_AVAILABLE);
    rig_destroy(&rig);
}

static void unknown_progress_is_asked_of_the_whole_set(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    int64_t offset;
    rig.fake->queues[0].committed = 7;
    rig.fake->brokers[0].query_code = TERN_PROGRESS_UNKNOWN;
    assert_ok(tern_pull_consumer_committed(rig.consumer, &rig.queue, &offset, NULL));
    assert_int_equal(offset, 7);
    assert_int_equal(rig.fake->brokers[1].queries, 1);
    /* What a slave has not is not "none". */
    rig.fake->queues[0].committed = -1;
    struct tern_error err;
    assert_int_equal(tern_pull_consumer_committed(rig.consumer, &rig.queue, &offset, &err),
                     TERN_PROGRESS_UNKNOWN);
    fake_node_down(&rig.fake->brokers[1]);
    assert_int_equal(tern_pull_consumer_committed(rig.consumer, &rig.queue, &offset, &err),
                     TERN_PROGRESS_UNKNOWN); /* an answer says more than nobody */
    rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_are_listed_sorted_and_counted),
        cmocka_unit_test(answers_become_statuses),
        cmocka_unit_test(a_pull_waits_for_a_message),
        cmocka_unit_test(tags_are_compared_by_text),
        cmocka_unit_test(messages_outlive_their_result),
        cmocka_unit_test(limits_are_checked),
        cmocka_unit_test(an_asynchronous_pull_calls_back_once),
        cmocka_unit_test(a_pull_under_way_ends_with_the_consumer),
        cmocka_unit_test(pulls_go_to_another_address_when_the_master_dies),
        cmocka_unit_test(a_lagging_slave_is_left_for_the_master_with_the_same_offset),
        cmocka_unit_test(with_nobody_there_the_failure_says_so),
        cmocka_unit_test(range_and_search_ask_the_broker),
        cmocka_unit_test(progress_is_stored_kept_and_never_invented),
        cmocka_unit_test(a_wait_at_a_slave_goes_on_until_a_message_arrives),
        cmocka_unit_test(a_wait_at_a_slave_that_is_behind_lasts_as_long_as_asked),
        cmocka_unit_test(a_distant_slaves_end_is_a_result_when_no_wait_was_asked_for),
        cmocka_unit_test(a_slave_that_catches_up_ends_the_wait),
        cmocka_unit_test(a_pull_that_pauses_ends_with_its_consumer),
        cmocka_unit_test(the_returned_master_ends_the_wait_at_the_slave),
        cmocka_unit_test(a_refusing_slave_is_left_for_the_master),
        cmocka_unit_test(a_master_that_recovers_leaves_pulls_to_its_slave),
        cmocka_unit_test(unknown_progress_is_asked_of_the_whole_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
