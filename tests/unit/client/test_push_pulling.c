/*
 * The push consumer's pulls: filters, answers that contradict themselves or lead nowhere, brokers
 * that go away and come back.
 */
#include "tests/unit/client/push_rig.h"

#include "client/instance_internal.h"
#include "client/push_internal.h"

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
static uint32_t wait_asked_for;

static bool note_wait(struct fake_node *node, struct rpc_request *rq,
                      const Tern__Wire__PullRequest *pull)
{
    (void)node, (void)rq;
    wait_asked_for = pull->suspend_timeout_ms;
    return false;
}

/* What stays at the broker leaves room for what must get through. */
static void on_a_crowded_connection_no_pull_waits_at_the_broker(void **state)
{
    (void)state;
    enum { CALLS = 3072 };
    static struct rpc_call *calls[CALLS];
    struct rig rig = rig_create(1);
    struct tern_error err;
    struct rpc_peer *peer;
    rig.fake->on_pull = note_wait;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 1000);
    assert_int_not_equal(wait_asked_for, 0);
    assert_ok(rpc_peer_get(rig.consumer->instance->rpc, rig.fake->brokers[0].address, &peer, &err));
    for (int i = 0; i < CALLS; i++)
        assert_ok(rpc_call_create(peer, 0, &calls[i]));
    fake_run_ms(rig.fake, 60000); /* the parked one has come back */
    assert_int_equal(wait_asked_for, 0);
    uint32_t pulls = rig.fake->brokers[0].pulls;
    fake_publish(rig.fake, 0, NULL, 10);
    fake_run_ms(rig.fake, 1500);
    assert_int_equal(rig.heard->count, 10);
    assert_true(rig.fake->brokers[0].pulls < pulls + 20);
    for (int i = 0; i < CALLS; i++)
        rpc_call_unref(calls[i]);
    fake_run_ms(rig.fake, 2000);
    assert_int_not_equal(wait_asked_for, 0);
    rpc_peer_unref(peer);
    rig_destroy(&rig);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_beyond_or_short_of_the_announced_are_not_passed_over),
        cmocka_unit_test(tags_are_compared_by_text_and_filtered_ones_count_as_done),
        cmocka_unit_test(progress_passes_what_never_matches),
        cmocka_unit_test(answers_without_progress_do_not_spin),
        cmocka_unit_test(nothing_new_at_once_again_and_again_slows_down),
        cmocka_unit_test(on_a_crowded_connection_no_pull_waits_at_the_broker),
        cmocka_unit_test(a_pull_that_waits_its_whole_time_is_no_failure),
        cmocka_unit_test(a_dead_master_is_replaced_by_its_slave_and_taken_back),
        cmocka_unit_test(the_suggested_broker_is_asked_next),
        cmocka_unit_test(a_suggested_broker_that_does_not_exist_is_no_failure),
        cmocka_unit_test(a_lagging_slave_never_moves_the_offset),
        cmocka_unit_test(an_error_waits_three_seconds),
        cmocka_unit_test(a_failed_commit_is_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
