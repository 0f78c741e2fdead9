/* The push consumer against a scripted cluster: progress, flow control, failures, states. */
#include "tests/unit/client/fake_cluster.h"

#include <stdatomic.h>

#include "base/sched.h"
#include "client/push_internal.h"

struct rig {
    struct fake *fake;
    struct heard *heard;
    struct tern_consumer_options *options;
    struct tern_push_consumer *consumer;
};

/* A consumer of "T" that is not started yet; `first` is the policy of a group without progress. */
static struct rig rig_create(int queue_count)
{
    struct rig rig = {.fake = fake_create(queue_count)};
    rig.heard = heard_create(rig.fake);
    rig.options = fake_options(rig.fake, "group", "a");
    assert_ok(tern_consumer_options_from(rig.options, TERN_FROM_FIRST, 0));
    return rig;
}

static void rig_start(struct rig *rig, const char *expression)
{
    struct tern_error err = {.text = ""};
    assert_ok(tern_push_consumer_create(rig->options, &rig->consumer, &err));
    assert_ok(tern_push_consumer_subscribe(rig->consumer, FAKE_TOPIC, expression, &err));
    assert_ok(tern_push_consumer_listener(rig->consumer, listen_and_remember, rig->heard));
    if (tern_push_consumer_start(rig->consumer, &err) != TERN_OK)
        fail_msg("%s", err.text);
}

static void rig_destroy(struct rig *rig)
{
    tern_push_consumer_destroy(rig->consumer);
    tern_consumer_options_destroy(rig->options);
    fake_destroy(rig->fake);
    free(rig->heard);
}

static struct tern_consumer_stats stats_of(struct rig *rig)
{
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(rig->consumer, &stats);
    return stats;
}

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
    struct tern_consumer_stats stats = stats_of(&rig);
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
        {40, TERN_FROM_LAST, 40, 1},
        {40, TERN_FROM_FIRST, 40, 1},
        {40, TERN_FROM_TIMESTAMP, 40, 1},
        {0, TERN_FROM_LAST, 0, 0},
        {NONE, TERN_FROM_LAST, END, 0},
        {NONE, TERN_FROM_FIRST, 0, 0},
        {NONE, TERN_FROM_TIMESTAMP, TIME, RETRY_END},
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

/* ---- answers that contradict themselves ---- */

/* The first pull's answer has `carried` messages, announces `announced` and passes all five. */
static int announced, carried;

static bool miscount(struct fake_node *node, struct rpc_request *rq,
                     const Tern__Wire__PullRequest *pull)
{
    struct fake *fake = node->fake;
    struct fake_queue *queue = fake_queue(fake, &pull->topic, pull->queue_id);
    if (!fake_is(&pull->topic, FAKE_TOPIC) || pull->offset != 0)
        return false;
    uint8_t *dst = rpc_reply_reserve(rq, 4096);
    size_t size = 0;
    assert_non_null(dst);
    for (int64_t i = 0; i < carried; i++)
        size += fake_encode(fake, queue, FAKE_TOPIC, i, dst + size, 4096 - size);
    fake_answer_pull(fake, rq, TERN_OK, 5, queue, announced, size);
    return true;
}

static void messages_beyond_or_short_of_the_announced_are_not_passed_over(void **state)
{
    (void)state;
    static const int cases[][2] = {{2, 5}, {5, 2}, {5, 3}, {1, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig rig = rig_create(1);
        announced = cases[i][0];
        carried = cases[i][1];
        rig.fake->on_pull = miscount;
        fake_publish(rig.fake, 0, NULL, 5);
        rig_start(&rig, "*");
        fake_run_ms(rig.fake, 10000);
        assert_int_equal(rig.heard->count, 5);
        assert_int_equal(rig.fake->queues[0].committed, 5);
        rig_destroy(&rig);
    }
}

/* ---- filters ---- */

/* F-1: hashes collide, texts do not */
static void tags_are_compared_by_text_and_filtered_ones_count_as_done(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.fake->loose = true;
    for (int i = 0; i < 20; i++)
        fake_publish(rig.fake, 0, i % 4 == 0 ? "TagA" : i % 4 == 1 ? "TagB" : NULL, 1);
    rig_start(&rig, "TagA || TagC");
    fake_run_ms(rig.fake, 6000);
    assert_int_equal(rig.heard->count, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(rig.heard->items[i].offset, 4 * i);
    assert_int_equal(rig.fake->queues[0].committed, 20);
    rig_destroy(&rig);
}

/* R-10, OF-14 */
static void progress_passes_what_never_matches(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, "TagB", 100000);
    rig_start(&rig, "TagA");
    fake_run_ms(rig.fake, 10000);
    assert_int_equal(rig.heard->count, 0);
    assert_int_equal(rig.fake->queues[0].committed, 100000);
    assert_int_equal(rig.fake->brokers[0].pulls, 201);
    rig_destroy(&rig);
}

static bool answer_same_offset(struct fake_node *node, struct rpc_request *rq,
                               const Tern__Wire__PullRequest *pull)
{
    fake_answer_pull(node->fake, rq, TERN_PULL_RETRY_IMMEDIATELY, pull->offset,
                     &node->fake->queues[0], 0, 0);
    return true;
}

/* OF-16 */
static void answers_without_progress_do_not_spin(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.fake->on_pull = answer_same_offset;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 60000);
    unsigned pulls = rig.fake->brokers[0].pulls;
    assert_true(pulls > 10 && pulls < 40);
    assert_int_equal(sim_log_count(&rig.fake->sim, "consumer_no_progress"), 1);
    rig.fake->on_pull = NULL;
    fake_publish(rig.fake, 0, NULL, 3);
    fake_run_ms(rig.fake, 4000);
    assert_int_equal(rig.heard->count, 3);
    rig_destroy(&rig);
}

static bool answer_at_once(struct fake_node *node, struct rpc_request *rq,
                           const Tern__Wire__PullRequest *pull)
{
    fake_answer_pull(node->fake, rq, TERN_PULL_NOT_FOUND, pull->offset, &node->fake->queues[0], 0,
                     0);
    return true;
}

/* A broker that does not hold pulls (overload, wrong clock) is not hammered. */
static void nothing_new_at_once_again_and_again_slows_down(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.fake->on_pull = answer_at_once;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 60000);
    assert_true(rig.fake->brokers[0].pulls < 100);
    rig_destroy(&rig);
}

/* OF-18: a pull may wait at the broker for less time than the client waits for it */
_Static_assert(PULL_SUSPEND_MS < PULL_TIMEOUT_MS && SLAVE_SUSPEND_MS < PULL_TIMEOUT_MS,
               "a long poll would be taken for a failure");

/* */
static void a_pull_that_waits_its_whole_time_is_no_failure(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 61000);
    assert_in_range(rig.fake->brokers[0].pulls, 4, 6);
    assert_int_equal(sim_log_count(&rig.fake->sim, "consumer_pull_failed"), 0);
    assert_int_equal(sim_log_count(&rig.fake->sim, "consumer_no_progress"), 0);
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
    struct tern_consumer_stats stats = stats_of(&rig);
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
    struct tern_consumer_stats stats = stats_of(&rig);
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

/* ---- brokers that go away ---- */

/* H-4, C-3 */
static void a_dead_master_is_replaced_by_its_slave_and_taken_back(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    fake_publish(rig.fake, 0, NULL, 10);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 6000);
    fake_node_down(&rig.fake->brokers[0]);
    fake_run_ms(rig.fake, 1000);
    fake_publish(rig.fake, 0, NULL, 10);
    fake_run_ms(rig.fake, 2000);
    assert_int_equal(rig.heard->count, 20);
    fake_run_ms(rig.fake, 15000);
    assert_int_equal(rig.fake->queues[0].committed, 20); /* kept on the slave */
    fake_node_up(&rig.fake->brokers[0]);
    fake_run_ms(rig.fake, 20000);
    unsigned slave_pulls = rig.fake->brokers[1].pulls;
    fake_publish(rig.fake, 0, NULL, 10);
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 30);
    assert_int_equal(rig.fake->brokers[1].pulls, slave_pulls);
    assert_true(rig.fake->brokers[0].pulls > 0);
    rig_destroy(&rig);
}

/* C-3 */
static void the_suggested_broker_is_asked_next(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.fake->suggest = 1;
    fake_publish(rig.fake, 0, NULL, 1000);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.fake->brokers[0].pulls, 1);
    assert_true(rig.fake->brokers[1].pulls >= 30);
    rig.fake->suggest = 0;
    fake_publish(rig.fake, 0, NULL, 1000);
    fake_run_ms(rig.fake, 1000);
    assert_true(rig.fake->brokers[0].pulls >= 30);
    assert_int_equal(rig.heard->count, 2000);
    rig_destroy(&rig);
}

/* HA-23 */
static void a_suggested_broker_that_does_not_exist_is_no_failure(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.fake->suggest = 9;
    fake_publish(rig.fake, 0, NULL, 1000);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_equal(rig.heard->count, 1000);
    rig_destroy(&rig);
}

/* HA-21, OF-02 */
static void a_lagging_slave_never_moves_the_offset(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 1000);
    rig.fake->queues[0].slave_max = 300;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 6000);
    assert_int_equal(rig.fake->queues[0].committed, 1000);
    fake_node_down(&rig.fake->brokers[0]);
    fake_run_ms(rig.fake, 20000);
    assert_true(rig.fake->brokers[1].pulls > 3 && rig.fake->brokers[1].pulls < 40);
    assert_int_equal(rig.fake->last_pull_offset, 1000);
    assert_int_equal(rig.heard->count, 1000);
    assert_int_equal(rig.fake->queues[0].committed, 1000);
    fake_node_up(&rig.fake->brokers[0]);
    fake_publish(rig.fake, 0, NULL, 5);
    fake_run_ms(rig.fake, 15000);
    assert_int_equal(rig.heard->count, 1005);
    rig_destroy(&rig);
}

/* */
static void an_error_waits_three_seconds(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    rig.fake->pull_code = TERN_SUBSCRIPTION_NOT_EXIST;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 30500);
    assert_true(rig.fake->brokers[0].pulls >= 10 && rig.fake->brokers[0].pulls <= 11);
    rig_destroy(&rig);
}

static void a_failed_commit_is_made_again(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 10);
    rig.fake->commit_code = TERN_SYSTEM_BUSY;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 12000);
    assert_int_equal(rig.fake->queues[0].committed, -1);
    rig.fake->commit_code = TERN_OK;
    fake_run_ms(rig.fake, 6000);
    assert_int_equal(rig.fake->queues[0].committed, 10);
    rig_destroy(&rig);
}

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
    assert_int_equal(stats_of(&rig).cached, 20);
    int64_t begin_ns = rig.fake->sim.clock.now_ns;
    assert_ok(tern_push_consumer_shutdown(rig.consumer, 60000));
    assert_true(rig.fake->sim.clock.now_ns - begin_ns < ms_to_ns(5000));
    assert_int_equal(rig.heard->count, 0);
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
    assert_ok(tern_push_consumer_shutdown(rig.consumer, 1000));
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
    assert_int_equal(stats_of(&rig).queues, 0);
    assert_int_equal(tern_push_consumer_unsubscribe(rig.consumer, FAKE_TOPIC, NULL),
                     TERN_NOT_FOUND);
    rig_destroy(&rig);
}

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
        cmocka_unit_test(messages_reach_the_listener_and_progress_the_broker),
        cmocka_unit_test(unchanged_progress_is_not_committed_again),
        cmocka_unit_test(a_hole_holds_the_commit_point),
        cmocka_unit_test(a_group_with_progress_goes_on_there),
        cmocka_unit_test(where_a_queue_begins_is_the_table_of_the_manual),
        cmocka_unit_test(a_new_group_begins_at_the_end_and_remembers_it),
        cmocka_unit_test(a_new_group_begins_at_a_time),
        cmocka_unit_test(a_failed_offset_query_is_not_taken_for_none),
        cmocka_unit_test(a_negative_end_is_no_offset),
        cmocka_unit_test(messages_beyond_or_short_of_the_announced_are_not_passed_over),
        cmocka_unit_test(tags_are_compared_by_text_and_filtered_ones_count_as_done),
        cmocka_unit_test(progress_passes_what_never_matches),
        cmocka_unit_test(answers_without_progress_do_not_spin),
        cmocka_unit_test(nothing_new_at_once_again_and_again_slows_down),
        cmocka_unit_test(a_pull_that_waits_its_whole_time_is_no_failure),
        cmocka_unit_test(an_offset_beyond_the_end_is_corrected_and_committed),
        cmocka_unit_test(a_correction_to_minus_one_is_never_used),
        cmocka_unit_test(a_reset_takes_effect_although_an_older_pull_is_parked),
        cmocka_unit_test(a_failed_message_is_sent_back_and_the_window_moves_on),
        cmocka_unit_test(a_message_nobody_takes_back_is_tried_again_here_and_never_skipped),
        cmocka_unit_test(no_retries_wanted_means_dead_letter_at_once),
        cmocka_unit_test(batches_are_as_large_as_asked_for),
        cmocka_unit_test(a_listener_that_hangs_holds_back_nobody),
        cmocka_unit_test(a_message_that_runs_too_long_is_sent_back_and_its_late_result_ignored),
        cmocka_unit_test(a_slow_listener_gets_all_the_threads_it_may_have),
        cmocka_unit_test(a_dead_master_is_replaced_by_its_slave_and_taken_back),
        cmocka_unit_test(the_suggested_broker_is_asked_next),
        cmocka_unit_test(a_suggested_broker_that_does_not_exist_is_no_failure),
        cmocka_unit_test(a_lagging_slave_never_moves_the_offset),
        cmocka_unit_test(an_error_waits_three_seconds),
        cmocka_unit_test(a_failed_commit_is_made_again),
        cmocka_unit_test(shutdown_commits_and_leaves_the_group),
        cmocka_unit_test(shutdown_of_a_suspended_consumer_does_not_wait),
        cmocka_unit_test(shutdown_ends_although_no_broker_answers),
        cmocka_unit_test(wrong_calls_name_the_state),
        cmocka_unit_test(the_same_group_twice_in_one_instance_is_refused),
        cmocka_unit_test(start_logs_group_model_topics_and_expressions),
        cmocka_unit_test(a_changed_expression_is_used_from_the_next_pull_on),
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
