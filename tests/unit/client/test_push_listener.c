/* The push consumer and its listener: failures, batches, calls that hang. */
#include "tests/unit/client/push_rig.h"

#include "base/sched.h"

/* ---- failing messages ---- */

/* */
static void a_failed_message_is_sent_back_and_the_window_moves_on(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.heard->fail_offset = 5;
    rig.heard->fail_times = -1;
    fake_publish(rig.fake, 0, NULL, 10);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 6000);
    assert_int_equal(rig.fake->sent_back, 1);
    assert_int_equal(rig.fake->last_send_back.physical_offset, 5000);
    assert_int_equal(rig.fake->last_send_back.delay_level, 0);
    assert_int_equal(rig.fake->queues[0].committed, 10);
    assert_int_equal(heard_times(rig.heard, 0, 5), 1);
    struct tern_consumer_stats stats = rig_stats(&rig);
    assert_int_equal(stats.failed, 1);
    assert_int_equal(stats.sent_back, 1);
    assert_int_equal(stats.cached, 0);
    rig_destroy(&rig);
}

static void a_message_nobody_takes_back_is_tried_again_here_and_never_skipped(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.fake->send_back_code = TERN_NOT_SUPPORTED;
    rig.heard->fail_offset = 5;
    rig.heard->fail_times = 3;
    fake_publish(rig.fake, 0, NULL, 10);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 14000);
    assert_int_equal(rig.fake->queues[0].committed, 5);
    fake_run_ms(rig.fake, 10000);
    assert_int_equal(heard_times(rig.heard, 0, 5), 4);
    assert_int_equal(rig.heard->items[rig.heard->count - 1].reconsume, 3);
    assert_int_equal(rig.fake->queues[0].committed, 10);
    rig_destroy(&rig);
}

static void no_retries_wanted_means_dead_letter_at_once(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    assert_ok(tern_consumer_options_max_reconsume_times(rig.options, 0));
    rig.heard->fail_offset = 0;
    rig.heard->fail_times = -1;
    fake_publish(rig.fake, 0, NULL, 1);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.fake->last_send_back.delay_level, -1);
    rig_destroy(&rig);
}

static void batches_are_as_large_as_asked_for(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    assert_ok(tern_consumer_options_consume_batch(rig.options, 10));
    fake_publish(rig.fake, 0, NULL, 100);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 100);
    assert_int_equal(rig.heard->largest_batch, 10);
    rig_destroy(&rig);
}

/* Waits in the listener at one offset; everything else goes on meanwhile. */
struct hanging {
    struct heard *heard;
    struct sched *sched;
    struct clock *clock;
    int64_t at_offset, for_ms;
    unsigned inside, most_inside;
};

static enum tern_consume_result
listen_and_hang(void *arg, const struct tern_message *const *messages, size_t count)
{
    struct hanging *hanging = arg;
    enum tern_consume_result result = listen_and_remember(hanging->heard, messages, count);
    int64_t offset = tern_message_queue_offset(messages[0]);
    if (++hanging->inside > hanging->most_inside)
        hanging->most_inside = hanging->inside;
    if (hanging->at_offset < 0 || offset == hanging->at_offset) {
        struct latch never;
        latch_init(&never);
        assert_false(latch_wait(hanging->sched, &never,
                                clock_mono_ns(hanging->clock) + ms_to_ns(hanging->for_ms)));
    }
    hanging->inside--;
    return result;
}

static struct hanging hang_at(struct rig *rig, int64_t offset, int64_t for_ms)
{
    struct hanging hanging = {.heard = rig->heard,
                              .sched = rig->fake->env.sched,
                              .clock = rig->fake->env.clock,
                              .at_offset = offset,
                              .for_ms = for_ms};
    return hanging;
}

static void start_hanging(struct rig *rig, struct hanging *hanging)
{
    assert_ok(tern_push_consumer_create(rig->options, &rig->consumer, NULL));
    assert_ok(tern_push_consumer_subscribe(rig->consumer, FAKE_TOPIC, "*", NULL));
    assert_ok(tern_push_consumer_listener(rig->consumer, listen_and_hang, hanging));
    assert_ok(tern_push_consumer_start(rig->consumer, NULL));
}

/* One listener that hangs holds back neither its pull's messages nor others. */
static void a_listener_that_hangs_holds_back_nobody(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct hanging hanging = hang_at(&rig, 2, 60000);
    fake_publish(rig.fake, 0, NULL, 100);
    start_hanging(&rig, &hanging);
    fake_run_ms(rig.fake, 70000);
    assert_int_equal(rig.heard->count, 100);
    assert_true(sim_task_count(rig.fake->sim.sched) < 8); /* and few workers do it */
    assert_int_equal(rig.fake->queues[0].committed, 100);
    rig_destroy(&rig);
}

/* more than 15 minutes */
static void a_message_that_runs_too_long_is_sent_back_and_its_late_result_ignored(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct hanging hanging = hang_at(&rig, 2, 17 * 60000);
    fake_publish(rig.fake, 0, NULL, 10);
    start_hanging(&rig, &hanging);
    fake_run_ms(rig.fake, 18 * 60000);
    assert_int_equal(rig.fake->sent_back, 1);
    assert_int_equal(rig.fake->last_send_back.physical_offset, 2000);
    assert_int_equal(rig.fake->last_send_back.delay_level, 3);
    assert_int_equal(rig.fake->queues[0].committed, 10);
    struct tern_consumer_stats stats = rig_stats(&rig);
    assert_int_equal(stats.consumed, 9);
    assert_int_equal(stats.failed, 1);
    assert_int_equal(stats.cached, 0);
    rig_destroy(&rig);
}

static void a_slow_listener_gets_all_the_threads_it_may_have(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    struct hanging hanging = hang_at(&rig, -1, 100);
    assert_ok(tern_consumer_options_threads(rig.options, 5));
    fake_publish(rig.fake, 0, NULL, 50);
    start_hanging(&rig, &hanging);
    fake_run_ms(rig.fake, 20000);
    assert_int_equal(rig.heard->count, 50);
    assert_int_equal(hanging.most_inside, 5);
    rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_message_is_sent_back_and_the_window_moves_on),
        cmocka_unit_test(a_message_nobody_takes_back_is_tried_again_here_and_never_skipped),
        cmocka_unit_test(no_retries_wanted_means_dead_letter_at_once),
        cmocka_unit_test(batches_are_as_large_as_asked_for),
        cmocka_unit_test(a_listener_that_hangs_holds_back_nobody),
        cmocka_unit_test(a_message_that_runs_too_long_is_sent_back_and_its_late_result_ignored),
        cmocka_unit_test(a_slow_listener_gets_all_the_threads_it_may_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
