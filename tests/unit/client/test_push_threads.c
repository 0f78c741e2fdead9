/* The push consumer on real threads and loopback connections. */
#include "tests/unit/client/push_rig.h"

#include <stdatomic.h>

#include "base/sched.h"

/* ---- threads, on real time and loopback ---- */

enum { REAL_QUEUES = 4, REAL_MESSAGES = 20000 };

struct crowd {
    struct fake *fake;
    struct tern_consumer_options *options;
    struct tern_push_consumer *consumer;
    _Atomic uint8_t heard[REAL_QUEUES][REAL_MESSAGES];
    _Atomic uint32_t distinct, calls;
    uint32_t expected; /* sets `all` when that many distinct ones were heard */
    struct latch all, release;
    int64_t hole; /* this offset of queue 0 waits for `release`; -1: none */
    _Atomic uint32_t holding;
    unsigned fail_every; /* the first try of each n-th fails; 0: none */
    int64_t slow_ms;     /* each call takes that long */
};

static enum tern_consume_result
listen_in_crowd(void *arg, const struct tern_message *const *messages, size_t count)
{
    struct crowd *crowd = arg;
    bool good = true;
    if (crowd->slow_ms > 0) {
        struct latch never;
        latch_init(&never);
        (void)!latch_wait(sched_threads(), &never,
                          clock_mono_ns(clock_system()) + ms_to_ns(crowd->slow_ms));
    }
    for (size_t i = 0; i < count; i++) {
        int32_t queue_id = tern_message_queue_id(messages[i]);
        int64_t offset = tern_message_queue_offset(messages[i]);
        uint32_t call = atomic_fetch_add(&crowd->calls, 1);
        if (queue_id == 0 && offset == crowd->hole && atomic_fetch_add(&crowd->holding, 1) == 0 &&
            !latch_wait(sched_threads(), &crowd->release, SCHED_NEVER))
            abort();
        bool first = atomic_fetch_add(&crowd->heard[queue_id][offset], 1) == 0;
        good = good && !(first && crowd->fail_every > 0 && call % crowd->fail_every == 0);
        if (first && atomic_fetch_add(&crowd->distinct, 1) + 1 == crowd->expected)
            latch_set(sched_threads(), &crowd->all);
    }
    return good ? TERN_CONSUME_SUCCESS : TERN_RECONSUME_LATER;
}

static struct crowd *crowd_start(int64_t messages)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);
    assert_non_null(crowd);
    crowd->fake = fake_create_real(REAL_QUEUES);
    crowd->hole = -1;
    latch_init(&crowd->all);
    latch_init(&crowd->release);
    fake_stamp(crowd->fake, 100);
    for (int i = 0; i < REAL_QUEUES; i++)
        fake_publish(crowd->fake, i, "TagA", messages);
    crowd->options = fake_options(crowd->fake, "group", "crowd");
    assert_ok(tern_consumer_options_from(crowd->options, TERN_FROM_FIRST, 0));
    return crowd;
}

static void crowd_consume(struct crowd *crowd)
{
    struct tern_error err;
    assert_ok(tern_push_consumer_create(crowd->options, &crowd->consumer, &err));
    assert_ok(tern_push_consumer_subscribe(crowd->consumer, FAKE_TOPIC, "TagA", &err));
    assert_ok(tern_push_consumer_listener(crowd->consumer, listen_in_crowd, crowd));
    if (tern_push_consumer_start(crowd->consumer, &err) != TERN_OK)
        fail_msg("%s", err.text);
}

static bool crowd_wait(struct crowd *crowd)
{
    int64_t deadline_ns = clock_mono_ns(clock_system()) + ms_to_ns(60000);
    return latch_wait(sched_threads(), &crowd->all, deadline_ns);
}

static void crowd_end(struct crowd *crowd)
{
    tern_push_consumer_destroy(crowd->consumer);
    tern_consumer_options_destroy(crowd->options);
    fake_destroy(crowd->fake);
    free(crowd);
}

/* */
static void threads_consume_around_a_hole_that_holds_the_commit_point(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_start(REAL_MESSAGES);
    crowd->hole = 7;
    crowd->expected = REAL_QUEUES * REAL_MESSAGES - 1;
    assert_ok(tern_consumer_options_max_span(crowd->options, 65535));
    assert_ok(tern_consumer_options_commit_interval_ms(crowd->options, 100));
    crowd_consume(crowd);
    assert_true(crowd_wait(crowd));
    pthread_mutex_lock(&crowd->fake->mutex);
    int64_t committed = crowd->fake->queues[0].committed;
    pthread_mutex_unlock(&crowd->fake->mutex);
    assert_true(committed <= 7);
    latch_set(sched_threads(), &crowd->release);
    assert_ok(tern_push_consumer_shutdown(crowd->consumer, 10000));
    for (int i = 0; i < REAL_QUEUES; i++)
        assert_int_equal(crowd->fake->queues[i].committed, REAL_MESSAGES);
    assert_int_equal(crowd->calls, REAL_QUEUES * REAL_MESSAGES);
    crowd_end(crowd);
}

static void threads_that_fail_lose_nothing(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_start(2000);
    crowd->expected = REAL_QUEUES * 2000;
    crowd->fail_every = 13;
    crowd_consume(crowd);
    assert_true(crowd_wait(crowd));
    tern_push_consumer_destroy(crowd->consumer);
    crowd->consumer = NULL;
    unsigned done = crowd->fake->sent_back;
    for (int i = 0; i < REAL_QUEUES; i++)
        assert_true(crowd->fake->queues[i].committed <= 2000);
    assert_true(done > 0);
    crowd_end(crowd);
}

static void a_start_and_a_shutdown_at_any_moment_are_clean(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 10; round++) {
        struct crowd *crowd = crowd_start(2000);
        crowd->expected = 1 + round * 200;
        crowd_consume(crowd);
        assert_true(crowd_wait(crowd));
        assert_ok(tern_push_consumer_shutdown(crowd->consumer, 10000));
        for (int i = 0; i < REAL_QUEUES; i++)
            for (int64_t o = 0; o < crowd->fake->queues[i].committed; o++)
                assert_int_equal(crowd->heard[i][o], 1);
        crowd_end(crowd);
    }
}

/* One thread, 25 messages a queue, 10 ms each; begun when this returns. */
static struct crowd *crowd_slow(void)
{
    struct crowd *crowd = crowd_start(25);
    crowd->slow_ms = 10;
    crowd->expected = 5;
    assert_ok(tern_consumer_options_threads(crowd->options, 1));
    crowd_consume(crowd);
    assert_true(crowd_wait(crowd));
    return crowd;
}

/* What was pulled is worked off, as far as the time allows; the rest comes again. */
static void shutdown_works_off_what_was_pulled(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_slow();
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(crowd->consumer, &stats);
    assert_ok(tern_push_consumer_shutdown(crowd->consumer, 30000));
    assert_true(crowd->calls >= stats.pulled);
    int64_t committed = 0;
    for (int i = 0; i < REAL_QUEUES; i++)
        committed += crowd->fake->queues[i].committed;
    assert_int_equal(committed, crowd->calls);
    crowd_end(crowd);
}

static void shutdown_leaves_what_its_time_does_not_allow(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_slow();
    (void)tern_push_consumer_shutdown(crowd->consumer, 50); /* OK or TERN_TIMEOUT */
    assert_in_range(crowd->calls, 5, 90);
    tern_push_consumer_destroy(crowd->consumer);
    crowd->consumer = NULL;
    int64_t committed = 0;
    for (int i = 0; i < REAL_QUEUES; i++)
        committed += crowd->fake->queues[i].committed;
    assert_true(committed <= (int64_t)crowd->calls);
    crowd_end(crowd);
}

static enum tern_consume_result
listen_and_try_to_stop(void *arg, const struct tern_message *const *messages, size_t count)
{
    struct crowd *crowd = arg;
    (void)messages;
    (void)count;
    if (tern_push_consumer_shutdown(crowd->consumer, 0) == TERN_STATE)
        latch_set(sched_threads(), &crowd->all);
    if (!latch_wait(sched_threads(), &crowd->release, SCHED_NEVER))
        abort();
    return TERN_CONSUME_SUCCESS;
}

static void a_shutdown_does_not_wait_longer_than_told(void **state)
{
    (void)state;
    struct crowd *crowd = crowd_start(1);
    assert_ok(tern_push_consumer_create(crowd->options, &crowd->consumer, NULL));
    assert_ok(tern_push_consumer_subscribe(crowd->consumer, FAKE_TOPIC, "*", NULL));
    assert_ok(tern_push_consumer_listener(crowd->consumer, listen_and_try_to_stop, crowd));
    assert_ok(tern_push_consumer_start(crowd->consumer, NULL));
    assert_true(crowd_wait(crowd)); /* not from a listener */
    assert_int_equal(tern_push_consumer_shutdown(crowd->consumer, 20), TERN_TIMEOUT);
    latch_set(sched_threads(), &crowd->release);
    crowd_end(crowd);
}

/* A figure, not a test: PUSH_BENCH=1 prints messages per second with one hole held open. */
static void figure_of_consuming(void **state)
{
    (void)state;
    const char *threads = getenv("PUSH_BENCH");
    if (!threads)
        skip();
    struct crowd *crowd = crowd_start(REAL_MESSAGES);
    crowd->hole = 7;
    crowd->expected = REAL_QUEUES * REAL_MESSAGES - 1;
    assert_ok(tern_consumer_options_max_span(crowd->options, 65535));
    const char *batch = getenv("PUSH_BENCH_BATCH");
    if (batch)
        assert_ok(tern_consumer_options_pull_batch(crowd->options, (int)strtol(batch, NULL, 10)));
    int64_t begin_ns = clock_mono_ns(clock_system());
    crowd_consume(crowd);
    int64_t started_ns = clock_mono_ns(clock_system());
    assert_true(crowd_wait(crowd));
    int64_t end_ns = clock_mono_ns(clock_system());
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(crowd->consumer, &stats);
    print_message("start %.1f ms, %.0f messages/s, flow %llu\n",
                  (double)(started_ns - begin_ns) / 1e6,
                  (double)crowd->expected * 1e9 / (double)(end_ns - started_ns),
                  (unsigned long long)stats.flow_controlled);
    latch_set(sched_threads(), &crowd->release);
    crowd_end(crowd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_consume_around_a_hole_that_holds_the_commit_point),
        cmocka_unit_test(threads_that_fail_lose_nothing),
        cmocka_unit_test(a_start_and_a_shutdown_at_any_moment_are_clean),
        cmocka_unit_test(shutdown_works_off_what_was_pulled),
        cmocka_unit_test(shutdown_leaves_what_its_time_does_not_allow),
        cmocka_unit_test(a_shutdown_does_not_wait_longer_than_told),
        cmocka_unit_test(figure_of_consuming),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
