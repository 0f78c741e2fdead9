/* The push consumer when addresses of a broker set come and go: H-4, H-5, C-3, HA-21, OF-02. */
#include "tests/unit/client/push_rig.h"

/* Running for six seconds: everything that was published is consumed and committed. */
static struct rig rig_running(int queue_count, int64_t published)
{
    struct rig rig = rig_create(queue_count);
    for (int i = 0; i < queue_count; i++)
        fake_publish(rig.fake, i, NULL, published);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 6000);
    assert_int_equal(rig.heard->count, (unsigned)(queue_count * published));
    assert_int_equal(rig.fake->queues[0].committed, published > 0 ? published : -1);
    return rig;
}

static struct fake_node *master_of(struct rig *rig)
{
    return &rig->fake->brokers[0];
}

static struct fake_node *slave_of(struct rig *rig)
{
    return &rig->fake->brokers[1];
}

/* ---- the master goes ---- */

/* H-4: a parked pull ends, the slave is chosen and asked, its messages heard. */
static void the_slave_serves_within_300_ms_of_the_masters_death(void **state)
{
    (void)state;
    struct rig rig = rig_running(4, 10);
    fake_node_down(master_of(&rig));
    for (int i = 0; i < 4; i++)
        fake_publish(rig.fake, i, NULL, 5);
    fake_run_ms(rig.fake, 300);
    assert_int_equal(rig.heard->count, 60);
    assert_true(slave_of(&rig)->pulls >= 4);
    for (int i = 0; i < 4; i++)
        fake_publish(rig.fake, i, NULL, 5); /* wakes what is parked there now */
    fake_run_ms(rig.fake, 50);
    assert_int_equal(rig.heard->count, 80);
    rig_destroy(&rig);
}

/* HA-20: no reset comes, only silence. */
static void a_silent_master_is_left_within_three_seconds(void **state)
{
    (void)state;
    struct rig rig = rig_running(2, 10);
    sim_net_cut(rig.fake->net, "10.0.0.1", "10.0.0.9");
    fake_publish(rig.fake, 0, NULL, 5);
    fake_publish(rig.fake, 1, NULL, 5);
    fake_run_ms(rig.fake, 3000);
    assert_int_equal(rig.heard->count, 30);
    assert_true(slave_of(&rig)->pulls >= 2);
    sim_net_heal_all(rig.fake->net);
    rig_destroy(&rig);
}

/* Progress made at the slave is told there. */
static void commits_go_to_the_slave_at_once(void **state)
{
    (void)state;
    struct rig rig = rig_running(1, 10);
    unsigned before = slave_of(&rig)->commits;
    fake_node_down(master_of(&rig));
    fake_publish(rig.fake, 0, NULL, 5);
    fake_run_ms(rig.fake, 7000);
    assert_int_equal(rig.fake->queues[0].committed, 15);
    assert_true(slave_of(&rig)->commits > before);
    rig_destroy(&rig);
}

static void at_the_end_of_the_slave_pulls_are_held_a_second(void **state)
{
    (void)state;
    struct rig rig = rig_running(1, 10);
    fake_node_down(master_of(&rig));
    fake_run_ms(rig.fake, 1000);
    unsigned before = slave_of(&rig)->pulls;
    fake_run_ms(rig.fake, 20000);
    assert_in_range(slave_of(&rig)->pulls - before, 18, 22);
    rig_destroy(&rig);
}

/* ---- the master returns ---- */

static void the_master_is_taken_back_within_two_seconds(void **state)
{
    (void)state;
    for (int unlisted = 0; unlisted < 2; unlisted++) {
        struct rig rig = rig_running(2, 10);
        rig.fake->listed[0] = !unlisted; /* whether the nameserver notices */
        fake_node_down(master_of(&rig));
        fake_run_ms(rig.fake, 20000);
        rig.fake->listed[0] = true;
        fake_node_up(master_of(&rig));
        fake_run_ms(rig.fake, 2500);
        unsigned slave_pulls = slave_of(&rig)->pulls;
        unsigned master_pulls = master_of(&rig)->pulls;
        fake_publish(rig.fake, 0, NULL, 10);
        fake_publish(rig.fake, 1, NULL, 10);
        fake_run_ms(rig.fake, 2000);
        assert_int_equal(rig.heard->count, 40);
        assert_int_equal(slave_of(&rig)->pulls, slave_pulls);
        assert_true(master_of(&rig)->pulls > master_pulls);
        rig_destroy(&rig);
    }
}

/* It recovers: what it cannot serve yet goes on coming from the slave. */
static void a_master_that_recovers_is_asked_once_a_second_and_nothing_stops(void **state)
{
    (void)state;
    struct rig rig = rig_running(1, 10);
    fake_node_down(master_of(&rig));
    fake_run_ms(rig.fake, 1000);
    master_of(&rig)->pull_code = TERN_SERVICE_NOT_AVAILABLE;
    fake_node_up(master_of(&rig));
    fake_run_ms(rig.fake, 3000);
    unsigned before = master_of(&rig)->pulls;
    for (int i = 0; i < 20; i++) {
        unsigned heard = rig.heard->count;
        fake_publish(rig.fake, 0, NULL, 3);
        fake_run_ms(rig.fake, 500);
        assert_int_equal(rig.heard->count, heard + 3);
    }
    assert_in_range(master_of(&rig)->pulls - before, 4, 11);
    master_of(&rig)->pull_code = TERN_OK;
    fake_run_ms(rig.fake, 2500);
    unsigned slave_pulls = slave_of(&rig)->pulls;
    fake_publish(rig.fake, 0, NULL, 3);
    fake_run_ms(rig.fake, 3000);
    assert_int_equal(slave_of(&rig)->pulls, slave_pulls);
    rig_destroy(&rig);
}

/* A master that came back does not know everybody yet: who comes first must not take all. */
static void a_fresh_masters_list_of_members_is_not_believed(void **state)
{
    (void)state;
    struct rig rig = rig_create(4);
    struct rig other = {.options = fake_options(rig.fake, "group", "b"),
                        .heard = heard_create(rig.fake)};
    rig_start(&rig, "*");
    rig_start(&other, "*");
    fake_run_ms(rig.fake, 10000);
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(rig.consumer, &stats);
    assert_int_equal(stats.queues, 2);
    fake_node_down(master_of(&rig));
    fake_run_ms(rig.fake, 10000);
    master_of(&rig)->fresh = true;
    fake_node_up(master_of(&rig));
    fake_run_ms(rig.fake, 1000);
    fake_members_changed(rig.fake); /* as it is when the members find it one by one */
    unsigned taken = sim_log_count(&rig.fake->sim, "consumer_queue_taken");
    fake_run_ms(rig.fake, 3000);
    master_of(&rig)->fresh = false;
    fake_run_ms(rig.fake, 30000);
    assert_int_equal(sim_log_count(&rig.fake->sim, "consumer_queue_taken"), taken);
    assert_true(master_of(&rig)->members_asked > 0);
    tern_push_consumer_destroy(other.consumer);
    tern_consumer_options_destroy(other.options);
    free(other.heard);
    rig_destroy(&rig);
}

/* ---- slaves that do not have it ---- */

/* HA-21, OF-02: the slave is behind, the master is away. */
static void a_slave_that_is_behind_is_asked_once_a_second_for_the_same_offset(void **state)
{
    (void)state;
    struct rig rig = rig_running(1, 1000);
    rig.fake->queues[0].slave_max = 300;
    fake_node_down(master_of(&rig));
    fake_run_ms(rig.fake, 3000);
    unsigned before = slave_of(&rig)->pulls;
    fake_run_ms(rig.fake, 20000);
    assert_in_range(slave_of(&rig)->pulls - before, 15, 21);
    assert_int_equal(rig.fake->last_pull_offset, 1000);
    assert_int_equal(rig.fake->queues[0].committed, 1000);
    assert_int_equal(sim_log_count(&rig.fake->sim, "consumer_queue_moved"), 0);
    rig.fake->queues[0].slave_max = -1; /* it catches up */
    fake_publish(rig.fake, 0, NULL, 5);
    fake_run_ms(rig.fake, 1100);
    assert_int_equal(rig.heard->count, 1005);
    assert_int_equal(rig.heard->items[1000].offset, 1000);
    rig_destroy(&rig);
}

/* A slave that catches up within moments costs moments. */
static void a_slave_that_is_a_little_behind_costs_little(void **state)
{
    (void)state;
    struct rig rig = rig_running(1, 1000);
    rig.fake->queues[0].slave_max = 990;
    fake_node_down(master_of(&rig));
    fake_run_ms(rig.fake, 100);
    rig.fake->queues[0].slave_max = -1;
    fake_publish(rig.fake, 0, NULL, 5);
    fake_run_ms(rig.fake, 200);
    assert_int_equal(rig.heard->count, 1005);
    rig_destroy(&rig);
}

/* The master suggests a slave that has less than it believes. */
static void a_suggested_slave_at_its_end_does_not_hold_up_what_the_master_has(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 1000);
    rig.fake->queues[0].slave_max = 320;
    rig.fake->suggest = 1;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 30000);
    assert_int_equal(rig.heard->count, 1000);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(rig.heard->items[i].offset, i);
    assert_in_range(slave_of(&rig)->pulls, 10, 200);
    rig_destroy(&rig);
}

static bool passes_removed(struct fake_node *node, struct rpc_request *rq,
                           const Tern__Wire__PullRequest *pull)
{
    if (node->id == 0)
        return false;
    Tern__Wire__PullResponse body = TERN__WIRE__PULL_RESPONSE__INIT;
    body.next_offset = pull->offset + 500;
    body.max_offset = 1000;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.code = wire_code_of(TERN_PULL_RETRY_IMMEDIATELY);
    response.remark = (char *)(uintptr_t) "MESSAGE_WAS_REMOVING";
    response.body_case = TERN__WIRE__RESPONSE__BODY_PULL;
    response.pull = &body;
    rpc_reply(rq, &response, 0);
    return true;
}

/* H-5: what a slave has expired may still be at the master. */
static void what_a_slave_does_not_hold_any_more_is_not_passed(void **state)
{
    (void)state;
    struct rig rig = rig_running(1, 100);
    rig.fake->on_pull = passes_removed;
    fake_node_down(master_of(&rig));
    fake_publish(rig.fake, 0, NULL, 50);
    fake_run_ms(rig.fake, 5000);
    assert_int_equal(rig.heard->count, 100);
    assert_int_equal(rig.fake->last_pull_offset, 100);
    fake_node_up(master_of(&rig));
    fake_run_ms(rig.fake, 3000);
    assert_int_equal(rig.heard->count, 150);
    rig_destroy(&rig);
}

/* HA-23 and the like: whatever a slave refuses with, the master serves. */
static void a_slave_that_refuses_is_left_without_a_pause(void **state)
{
    (void)state;
    static const enum tern_code codes[] = {TERN_NO_PERMISSION, TERN_SERVICE_NOT_AVAILABLE,
                                           TERN_SYSTEM_BUSY, TERN_TOPIC_NOT_EXIST};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        struct rig rig = rig_create(1);
        rig.fake->suggest = 1;
        slave_of(&rig)->pull_code = codes[i];
        fake_publish(rig.fake, 0, NULL, 1000);
        rig_start(&rig, "*");
        fake_run_ms(rig.fake, 1000);
        assert_int_equal(rig.heard->count, 1000);
        assert_in_range(slave_of(&rig)->pulls, 1, 3);
        rig_destroy(&rig);
    }
}

static bool alternate(struct fake_node *node, struct rpc_request *rq,
                      const Tern__Wire__PullRequest *pull)
{
    (void)rq;
    (void)pull;
    node->fake->suggest = node->id == 0;
    return false;
}

/* HA-22 */
static void a_suggestion_that_alternates_loses_and_repeats_nothing(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    rig.fake->on_pull = alternate;
    fake_publish(rig.fake, 0, NULL, 5000);
    fake_publish(rig.fake, 1, NULL, 5000);
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 30000);
    assert_int_equal(rig.heard->count, 10000);
    assert_true(slave_of(&rig)->pulls > 50 && master_of(&rig)->pulls > 50);
    assert_int_equal(rig.fake->queues[0].committed, 5000);
    rig_destroy(&rig);
}

/* ---- progress ---- */

static void progress_unknown_at_the_master_is_asked_of_the_slave(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 50);
    rig.fake->queues[0].committed = 45;
    master_of(&rig)->query_code = TERN_PROGRESS_UNKNOWN;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 300);
    assert_int_equal(rig.heard->count, 5);
    assert_int_equal(rig.heard->items[0].offset, 45);
    rig_destroy(&rig);
}

static void progress_unknown_everywhere_is_asked_again_and_decides_nothing(void **state)
{
    (void)state;
    struct rig rig = rig_create(1);
    fake_publish(rig.fake, 0, NULL, 50);
    rig.fake->query_code = TERN_PROGRESS_UNKNOWN;
    rig_start(&rig, "*");
    fake_run_ms(rig.fake, 20000);
    assert_in_range(master_of(&rig)->queries, 18, 26);
    assert_in_range(slave_of(&rig)->queries, 18, 26);
    assert_int_equal(master_of(&rig)->pulls + slave_of(&rig)->pulls, 0);
    assert_int_equal(rig.fake->commits, 0);
    rig.fake->query_code = TERN_OK;
    fake_run_ms(rig.fake, 1500);
    assert_int_equal(rig.heard->count, 50);
    rig_destroy(&rig);
}

/* replication.md "Progress": a higher version comes with its offset, from whomever. */
static void a_slaves_higher_version_is_adopted_with_its_offset(void **state)
{
    (void)state;
    struct rig rig = rig_running(1, 500);
    fake_node_down(master_of(&rig));
    fake_run_ms(rig.fake, 2000);
    unsigned before = rig.heard->count;
    rig.fake->queues[0].version = 3;
    rig.fake->queues[0].committed = 480;
    fake_run_ms(rig.fake, 2000);
    assert_int_equal(rig.heard->count, before + 20);
    assert_int_equal(rig.heard->items[before].offset, 480);
    fake_run_ms(rig.fake, 6000);
    assert_int_equal(rig.fake->queues[0].committed, 500);
    rig_destroy(&rig);
}

static void a_commit_that_the_master_does_not_take_goes_to_the_slave(void **state)
{
    (void)state;
    static const enum tern_code codes[] = {TERN_SERVICE_NOT_AVAILABLE, TERN_PROGRESS_UNKNOWN};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        struct rig rig = rig_running(1, 10);
        master_of(&rig)->commit_code = codes[i];
        unsigned before = slave_of(&rig)->commits;
        fake_publish(rig.fake, 0, NULL, 5);
        fake_run_ms(rig.fake, 5500);
        assert_int_equal(slave_of(&rig)->commits, before + 1);
        assert_int_equal(rig.fake->queues[0].committed, 15);
        rig_destroy(&rig);
    }
}

static void an_unreplicated_commit_is_repeated_with_the_next_round(void **state)
{
    (void)state;
    struct rig rig = rig_running(1, 10);
    master_of(&rig)->commit_code = TERN_FLUSH_SLAVE_TIMEOUT;
    unsigned before = master_of(&rig)->commits;
    fake_publish(rig.fake, 0, NULL, 5);
    fake_run_ms(rig.fake, 16000);
    assert_in_range(master_of(&rig)->commits - before, 3, 4);
    master_of(&rig)->commit_code = TERN_OK;
    fake_run_ms(rig.fake, 6000);
    assert_int_equal(rig.fake->queues[0].committed, 15);
    before = rig.fake->commits;
    fake_run_ms(rig.fake, 20000);
    assert_int_equal(rig.fake->commits, before);
    rig_destroy(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slave_serves_within_300_ms_of_the_masters_death),
        cmocka_unit_test(a_silent_master_is_left_within_three_seconds),
        cmocka_unit_test(commits_go_to_the_slave_at_once),
        cmocka_unit_test(at_the_end_of_the_slave_pulls_are_held_a_second),
        cmocka_unit_test(the_master_is_taken_back_within_two_seconds),
        cmocka_unit_test(a_master_that_recovers_is_asked_once_a_second_and_nothing_stops),
        cmocka_unit_test(a_fresh_masters_list_of_members_is_not_believed),
        cmocka_unit_test(a_slave_that_is_behind_is_asked_once_a_second_for_the_same_offset),
        cmocka_unit_test(a_slave_that_is_a_little_behind_costs_little),
        cmocka_unit_test(a_suggested_slave_at_its_end_does_not_hold_up_what_the_master_has),
        cmocka_unit_test(what_a_slave_does_not_hold_any_more_is_not_passed),
        cmocka_unit_test(a_slave_that_refuses_is_left_without_a_pause),
        cmocka_unit_test(a_suggestion_that_alternates_loses_and_repeats_nothing),
        cmocka_unit_test(progress_unknown_at_the_master_is_asked_of_the_slave),
        cmocka_unit_test(progress_unknown_everywhere_is_asked_again_and_decides_nothing),
        cmocka_unit_test(a_slaves_higher_version_is_adopted_with_its_offset),
        cmocka_unit_test(a_commit_that_the_master_does_not_take_goes_to_the_slave),
        cmocka_unit_test(an_unreplicated_commit_is_repeated_with_the_next_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
