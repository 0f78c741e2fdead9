/* When a push consumer does not pull: flow control, pauses, what its settings allow (R-4, facts
 * 7.5, 7.9), and queues without a sign of life (facts 7.7, RO-08). */
#include "tests/unit/client/heard.h"

#include "client/push_internal.h"

struct rig {
    struct fake *fake;
    struct heard *heard;
    struct tern_consumer_options *options;
    struct tern_push_consumer *consumer;
    bool holding; /* all messages fail, and are tried again here: they stay cached */
};

static enum tern_consume_result listen(void *arg, const struct tern_message *const *messages,
                                       size_t count)
{
    struct rig *rig = arg;
    if (rig->holding)
        return TERN_RECONSUME_LATER;
    return listen_and_remember(rig->heard, messages, count);
}

static struct rig *rig_create(int queue_count)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->fake = fake_create(queue_count);
    rig->heard = heard_create(rig->fake);
    rig->options = fake_options(rig->fake, "group", "a");
    assert_ok(tern_consumer_options_from(rig->options, TERN_FROM_FIRST, 0));
    return rig;
}

static struct tern_push_consumer *start_consumer(struct rig *rig)
{
    struct tern_push_consumer *consumer;
    struct tern_error err = {.text = ""};
    assert_ok(tern_push_consumer_create(rig->options, &consumer, &err));
    assert_ok(tern_push_consumer_subscribe(consumer, FAKE_TOPIC, "*", &err));
    assert_ok(tern_push_consumer_listener(consumer, listen, rig));
    if (tern_push_consumer_start(consumer, &err) != TERN_OK)
        fail_msg("%s", err.text);
    return consumer;
}

/* What it pulls stays cached until let_go(). */
static void start_holding(struct rig *rig)
{
    rig->holding = true;
    rig->fake->send_back_code = TERN_NOT_SUPPORTED;
    rig->consumer = start_consumer(rig);
}

static void let_go(struct rig *rig)
{
    rig->holding = false;
}

static void rig_destroy(struct rig *rig)
{
    tern_push_consumer_destroy(rig->consumer);
    tern_consumer_options_destroy(rig->options);
    fake_destroy(rig->fake);
    free(rig->heard);
    free(rig);
}

static struct tern_consumer_stats stats_of(struct tern_push_consumer *consumer)
{
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(consumer, &stats);
    return stats;
}

/* ---- flow control ---- */

static void pulling_pauses_above_the_threshold_and_says_so(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    fake_publish(rig->fake, 0, NULL, 1000);
    assert_ok(tern_consumer_options_pull_threshold(rig->options, 100));
    start_holding(rig);
    fake_run_ms(rig->fake, 30000);
    struct tern_consumer_stats stats = stats_of(rig->consumer);
    assert_int_equal(stats.cached, 128);              /* the first multiple of 32 above 100 */
    assert_in_range(stats.flow_controlled, 500, 650); /* one in 50 ms */
    assert_int_equal(sim_log_count(&rig->fake->sim, "consumer_flow_control"), 1);
    assert_int_equal(
        sim_log_count(&rig->fake->sim,
                      "cause=count group=group topic=T broker=broker-a queue=0 min_offset=0 "
                      "max_offset=127 cached=128 mib=0.0 times=1"),
        1);
    fake_run_ms(rig->fake, 30000); /* each thousandth */
    assert_int_equal(sim_log_count(&rig->fake->sim, "times=1000"), 1);
    assert_int_equal(sim_log_count(&rig->fake->sim, "consumer_flow_control"), 2);
    let_go(rig);
    fake_run_ms(rig->fake, 10000);
    assert_int_equal(rig->heard->count, 1000);
    rig_destroy(rig);
}

/* Exactly the threshold is still fine: strictly more pauses. */
static void the_threshold_itself_does_not_pause(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    fake_publish(rig->fake, 0, NULL, 1000);
    assert_ok(tern_consumer_options_pull_threshold(rig->options, 128));
    start_holding(rig);
    fake_run_ms(rig->fake, 5000);
    assert_int_equal(stats_of(rig->consumer).cached, 160);
    rig_destroy(rig);
}

static void pulling_pauses_above_the_bytes(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    fake_stamp(rig->fake, 256);
    fake_publish(rig->fake, 0, NULL, 10000);
    assert_ok(tern_consumer_options_pull_threshold(rig->options, 65535));
    assert_ok(tern_consumer_options_max_span(rig->options, 65535));
    assert_ok(tern_consumer_options_pull_threshold_bytes(rig->options, 1 << 20));
    start_holding(rig);
    fake_run_ms(rig->fake, 5000);
    assert_int_equal(stats_of(rig->consumer).cached, 4096 + 32);
    assert_int_equal(sim_log_count(&rig->fake->sim, "cause=bytes"), 1);
    rig_destroy(rig);
}

/* a hole that stays open stops the pull before the window overflows */
static void pulling_pauses_when_the_span_gets_too_long(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    rig->fake->send_back_code = TERN_NOT_SUPPORTED;
    rig->heard->fail_offset = 0;
    rig->heard->fail_times = 3;
    fake_publish(rig->fake, 0, NULL, 10000);
    rig->consumer = start_consumer(rig);
    fake_run_ms(rig->fake, 4000);
    assert_true(rig->heard->count > 2000 && rig->heard->count < 2100);
    assert_int_equal(sim_log_count(&rig->fake->sim, "cause=span"), 1);
    fake_run_ms(rig->fake, 20000);
    assert_int_equal(rig->heard->count, 10003);
    assert_int_equal(rig->fake->queues[0].committed, 10000);
    rig_destroy(rig);
}

/* A topic's threshold is divided by the queues owned, anew after each rebalance. */
static void a_topics_threshold_is_divided_by_the_queues_owned(void **state)
{
    (void)state;
    struct rig *rig = rig_create(4);
    for (int i = 0; i < 4; i++)
        fake_publish(rig->fake, i, NULL, 1000);
    assert_ok(tern_consumer_options_pull_threshold_for_topic(rig->options, 400));
    start_holding(rig);
    fake_run_ms(rig->fake, 5000);
    assert_int_equal(stats_of(rig->consumer).cached, 4 * 128); /* 100 each */
    assert_ok(tern_consumer_options_instance(rig->options, "b"));
    struct tern_push_consumer *other = start_consumer(rig);
    fake_run_ms(rig->fake, 5000);
    assert_int_equal(stats_of(rig->consumer).queues, 2);
    assert_int_equal(stats_of(rig->consumer).cached, 2 * 224); /* 200 each */
    tern_push_consumer_destroy(other);
    rig_destroy(rig);
}

/* More queues than messages allowed: one each; bytes: a MiB each. */
static void a_topics_threshold_leaves_each_queue_at_least_one(void **state)
{
    (void)state;
    struct rig *rig = rig_create(4);
    for (int i = 0; i < 4; i++)
        fake_publish(rig->fake, i, NULL, 100);
    assert_ok(tern_consumer_options_pull_batch(rig->options, 1));
    assert_ok(tern_consumer_options_pull_threshold_for_topic(rig->options, 2));
    assert_ok(tern_consumer_options_pull_threshold_bytes_for_topic(rig->options, 1 << 20));
    start_holding(rig);
    fake_run_ms(rig->fake, 5000);
    assert_int_equal(stats_of(rig->consumer).cached, 4 * 2);
    lock_acquire(&rig->consumer->lock);
    int64_t limit_bytes = rig->consumer->queues->limit_bytes;
    lock_release(&rig->consumer->lock);
    assert_int_equal(limit_bytes, 1 << 20);
    rig_destroy(rig);
}

static void pulls_are_an_interval_apart(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    fake_publish(rig->fake, 0, NULL, 1000);
    assert_ok(tern_consumer_options_pull_interval_ms(rig->options, 1000));
    rig->consumer = start_consumer(rig);
    fake_run_ms(rig->fake, 5500);
    assert_int_equal(rig->heard->count, 6 * 32);
    rig_destroy(rig);
}

/* ---- pauses ---- */

/* RO-08 */
static void a_suspended_consumer_pulls_nothing_keeps_its_queues_and_goes_on(void **state)
{
    (void)state;
    struct rig *rig = rig_create(2);
    rig->consumer = start_consumer(rig);
    fake_run_ms(rig->fake, 1000);
    assert_ok(tern_push_consumer_suspend(rig->consumer));
    fake_publish(rig->fake, 0, NULL, 2000); /* answers the pull that is parked */
    fake_run_ms(rig->fake, 180000);
    assert_int_equal(rig->heard->count, 0);
    assert_int_equal(stats_of(rig->consumer).cached, 32);
    assert_int_equal(stats_of(rig->consumer).queues, 2);
    assert_int_equal(sim_log_count(&rig->fake->sim, "consumer_queue_left"), 0);
    unsigned pulls = rig->fake->brokers[0].pulls;
    fake_run_ms(rig->fake, 20000);
    assert_int_equal(rig->fake->brokers[0].pulls, pulls);
    assert_ok(tern_push_consumer_resume(rig->consumer));
    fake_run_ms(rig->fake, 100); /* not after what is left of a second */
    assert_true(rig->heard->count >= 64);
    assert_int_equal(rig->heard->items[0].offset, 0);
    fake_run_ms(rig->fake, 10000);
    assert_int_equal(rig->heard->count, 2000);
    rig_destroy(rig);
}

static struct push_queue *queue_of(struct rig *rig, int32_t queue_id)
{
    lock_acquire(&rig->consumer->lock);
    struct push_queue *queue = rig->consumer->queues;
    while (queue && queue->id.queue_id != queue_id)
        queue = queue->next;
    lock_release(&rig->consumer->lock);
    assert_non_null(queue);
    return queue;
}

/* facts 7.7: what nobody looked at for 120 s is dropped, and taken again in the same round */
static void a_queue_without_a_sign_of_life_is_taken_anew(void **state)
{
    (void)state;
    struct rig *rig = rig_create(2);
    fake_publish(rig->fake, 0, NULL, 10);
    rig->consumer = start_consumer(rig);
    fake_run_ms(rig->fake, 6000);
    assert_int_equal(rig->heard->count, 10);
    struct push_queue *queue = queue_of(rig, 0);
    fake_run_ms(rig->fake, 9500); /* its parked pull has been answered, another is on its way */
    lock_acquire(&rig->consumer->lock);
    queue->state = QUEUE_PULLING; /* a loop that was lost */
    queue->active_ns = clock_mono_ns(rig->fake->env.clock) - ms_to_ns(QUEUE_IDLE_MS + 1);
    lock_release(&rig->consumer->lock);
    atomic_store(&rig->consumer->rebalance_wanted, true);
    push_wake(rig->consumer);
    fake_run_ms(rig->fake, 1000);
    assert_int_equal(sim_log_count(&rig->fake->sim, "no pull for too long"), 1);
    assert_int_equal(stats_of(rig->consumer).queues, 2);
    fake_publish(rig->fake, 0, NULL, 5);
    fake_run_ms(rig->fake, 1000);
    assert_int_equal(rig->heard->count, 15);
    assert_int_equal(heard_times(rig->heard, 0, 10), 1);
    rig_destroy(rig);
}

/* ---- settings ---- */

static void each_number_outside_its_range_is_refused_with_the_range(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum tern_code (*set)(struct tern_consumer_options *, int);
        int least, most;
    } rows[] = {
        {"pullBatchSize", tern_consumer_options_pull_batch, 1, 1024},
        {"consumeMessageBatchMaxSize", tern_consumer_options_consume_batch, 1, 1024},
        {"consumeThreadMax", tern_consumer_options_threads, 1, 1000},
        {"consumeThreadMin", tern_consumer_options_threads_min, 0, 1000},
        {"pullThresholdForQueue", tern_consumer_options_pull_threshold, 1, 65535},
        {"pullThresholdForTopic", tern_consumer_options_pull_threshold_for_topic, 1, 6553500},
        {"consumeConcurrentlyMaxSpan", tern_consumer_options_max_span, 1, 65535},
    };
    struct tern_consumer_options *options = tern_consumer_options_create();
    assert_string_equal(tern_consumer_options_error(options), "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[128];
        assert_ok(rows[i].set(options, rows[i].least));
        assert_ok(rows[i].set(options, rows[i].most));
        assert_int_equal(
            rows[i].set(options, rows[i].least - 1 == -1 && i != 3 ? -2 : rows[i].least - 1),
            TERN_INVALID);
        assert_int_equal(rows[i].set(options, rows[i].most + 1), TERN_INVALID);
        snprintf(text, sizeof text, "%s is %d, allowed are %d to %d", rows[i].name,
                 rows[i].most + 1, rows[i].least, rows[i].most);
        assert_string_equal(tern_consumer_options_error(options), text);
    }
    tern_consumer_options_destroy(options);
}

static void sizes_and_times_outside_their_range_are_refused_with_the_range(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum tern_code (*set)(struct tern_consumer_options *, int64_t);
        int64_t least, most;
    } rows[] = {
        {"pullThresholdSizeForQueue", tern_consumer_options_pull_threshold_bytes, 1 << 20,
         (int64_t)1024 << 20},
        {"pullThresholdSizeForTopic", tern_consumer_options_pull_threshold_bytes_for_topic, 1 << 20,
         (int64_t)102400 << 20},
        {"pullInterval", tern_consumer_options_pull_interval_ms, 0, 65535},
        {"persistConsumerOffsetInterval", tern_consumer_options_commit_interval_ms, 100, 600000},
    };
    struct tern_consumer_options *options = tern_consumer_options_create();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[160];
        assert_ok(rows[i].set(options, rows[i].least));
        assert_ok(rows[i].set(options, rows[i].most));
        assert_int_equal(rows[i].set(options, rows[i].most + 1), TERN_INVALID);
        snprintf(text, sizeof text, "%s is %lld, allowed are %lld to %lld", rows[i].name,
                 (long long)rows[i].most + 1, (long long)rows[i].least, (long long)rows[i].most);
        assert_string_equal(tern_consumer_options_error(options), text);
    }
    tern_consumer_options_destroy(options);
}

static void a_group_that_is_no_name_is_refused_with_the_reason(void **state)
{
    (void)state;
    struct tern_consumer_options *options = tern_consumer_options_create();
    assert_int_equal(tern_consumer_options_group(options, "DEFAULT_CONSUMER"), TERN_INVALID);
    assert_contains(tern_consumer_options_error(options), "reserved");
    assert_int_equal(tern_consumer_options_group(options, "a b"), TERN_INVALID);
    assert_contains(tern_consumer_options_error(options), "consumerGroup");
    assert_int_equal(tern_consumer_options_group(options, NULL), TERN_INVALID);
    assert_int_equal(tern_consumer_options_instance(options, "a\n"), TERN_INVALID);
    assert_contains(tern_consumer_options_error(options), "instanceName");
    assert_int_equal(tern_consumer_options_from(options, TERN_FROM_TIMESTAMP, -1), TERN_INVALID);
    assert_contains(tern_consumer_options_error(options), "consumeTimestamp is -1");
    tern_consumer_options_destroy(options);
}

static void more_threads_at_least_than_at_most_are_refused(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    struct tern_error err;
    assert_ok(tern_consumer_options_threads_min(rig->options, 5));
    assert_ok(tern_consumer_options_threads(rig->options, 4));
    assert_int_equal(tern_push_consumer_create(rig->options, &rig->consumer, &err), TERN_INVALID);
    assert_contains(err.text, "consumeThreadMin is 5");
    assert_contains(err.text, "which is 4");
    rig_destroy(rig);
}

static void the_threads_asked_for_are_there_from_the_start(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    assert_ok(tern_consumer_options_threads_min(rig->options, 7));
    rig->consumer = start_consumer(rig);
    fake_run_ms(rig->fake, 1000);
    assert_int_equal(rig->consumer->pool.worker_count, 7);
    rig_destroy(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pulling_pauses_above_the_threshold_and_says_so),
        cmocka_unit_test(the_threshold_itself_does_not_pause),
        cmocka_unit_test(pulling_pauses_above_the_bytes),
        cmocka_unit_test(pulling_pauses_when_the_span_gets_too_long),
        cmocka_unit_test(a_topics_threshold_is_divided_by_the_queues_owned),
        cmocka_unit_test(a_topics_threshold_leaves_each_queue_at_least_one),
        cmocka_unit_test(pulls_are_an_interval_apart),
        cmocka_unit_test(a_suspended_consumer_pulls_nothing_keeps_its_queues_and_goes_on),
        cmocka_unit_test(a_queue_without_a_sign_of_life_is_taken_anew),
        cmocka_unit_test(each_number_outside_its_range_is_refused_with_the_range),
        cmocka_unit_test(sizes_and_times_outside_their_range_are_refused_with_the_range),
        cmocka_unit_test(a_group_that_is_no_name_is_refused_with_the_reason),
        cmocka_unit_test(more_threads_at_least_than_at_most_are_refused),
        cmocka_unit_test(the_threads_asked_for_are_there_from_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
