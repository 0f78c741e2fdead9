/* Evidence of pulls: totals per queue, the last client, the group's rate. */
#include "tests/unit/broker/broker_unit.h"

#include "broker/pull_stats.h"

static struct sim_env sim;
static struct pull_stats *stats;

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 15);
    assert_ok(pull_stats_create(&sim.env, &stats));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pull_stats_destroy(stats);
    stats = NULL;
    sim_env_fini(&sim);
    return 0;
}

static void pulls_add_up_per_group_topic_and_queue_F_6(void **state)
{
    (void)state;
    struct pull_stats_view view;
    assert_false(pull_stats_get(stats, "G", "T", 0, &view));
    pull_stats_add(stats, "G", "T", 0, "c1", "A", 10, 4, 6);
    pull_stats_add(stats, "G", "T", 0, "c2", "B", 5, 5, 0);
    pull_stats_add(stats, "G", "T", 1, "c3", "*", 1, 1, 0);
    pull_stats_add(stats, "H", "T", 0, "c4", "*", 7, 7, 0);
    assert_true(pull_stats_get(stats, "G", "T", 0, &view));
    assert_int_equal(view.scanned, 15);
    assert_int_equal(view.delivered, 9);
    assert_int_equal(view.filtered, 6);
    assert_string_equal(view.client_id, "c2");
    assert_string_equal(view.expression, "B");
    assert_true(pull_stats_get(stats, "G", "T", 1, &view));
    assert_int_equal(view.scanned, 1);
    assert_true(pull_stats_get(stats, "H", "T", 0, &view));
    assert_string_equal(view.client_id, "c4");
}

/* F-6: who got what stays told apart when a queue changes hands, or its owner its expression */
static void each_member_and_expression_has_its_own_counts_F_6(void **state)
{
    (void)state;
    struct pull_stats_view views[PULL_STATS_MEMBERS], all;
    assert_int_equal(pull_stats_members(stats, "G", "T", 0, views), 0);
    pull_stats_add(stats, "G", "T", 0, "c1", "A", 10, 4, 6);
    pull_stats_add(stats, "G", "T", 0, "c2", "B", 5, 0, 5);
    pull_stats_add(stats, "G", "T", 0, "c1", "A", 1, 1, 0);
    pull_stats_add(stats, "G", "T", 0, "c1", "C", 3, 0, 3);
    assert_int_equal(pull_stats_members(stats, "G", "T", 0, views), 3);
    assert_string_equal(views[0].client_id, "c1");
    assert_string_equal(views[0].expression, "C");
    assert_int_equal(views[0].filtered, 3);
    assert_string_equal(views[1].expression, "A");
    assert_int_equal(views[1].scanned, 11);
    assert_int_equal(views[1].delivered, 5);
    assert_int_equal(views[1].filtered, 6);
    assert_string_equal(views[2].client_id, "c2");
    assert_int_equal(views[2].filtered, 5);
    assert_true(pull_stats_get(stats, "G", "T", 0, &all));
    assert_int_equal(all.scanned, 19);
}

static void members_of_a_queue_are_bounded_and_totals_stay(void **state)
{
    (void)state;
    struct pull_stats_view views[PULL_STATS_MEMBERS], all;
    char id[16];
    for (int i = 0; i < PULL_STATS_MEMBERS + 3; i++) {
        snprintf(id, sizeof id, "c%d", i);
        pull_stats_add(stats, "G", "T", 0, id, "*", 1, 1, 0);
        pull_stats_add(stats, "G", "T", 0, "always", "*", 1, 1, 0);
    }
    assert_int_equal(pull_stats_members(stats, "G", "T", 0, views), PULL_STATS_MEMBERS);
    assert_string_equal(views[0].client_id, "always");
    assert_int_equal(views[0].scanned, PULL_STATS_MEMBERS + 3);
    assert_string_equal(views[1].client_id, id);
    assert_true(pull_stats_get(stats, "G", "T", 0, &all));
    assert_int_equal(all.delivered, 2 * (PULL_STATS_MEMBERS + 3));
}

static void long_expression_is_cut_between_characters(void **state)
{
    (void)state;
    struct pull_stats_view view;
    char expression[400];
    for (size_t i = 0; i + 1 < sizeof expression; i += 2) {
        expression[i] = (char)0xC3;
        expression[i + 1] = (char)0xA9;
    }
    expression[398] = 0;
    pull_stats_add(stats, "G", "T", 0, "c", expression, 1, 1, 0);
    assert_true(pull_stats_get(stats, "G", "T", 0, &view));
    assert_int_equal(strlen(view.expression), 254);
}

static void rate_is_of_the_last_ten_seconds(void **state)
{
    (void)state;
    assert_true(pull_stats_group_rate(stats, "G") < 0.001);
    for (int second = 0; second < 30; second++) {
        pull_stats_add(stats, "G", "T", second % 4, "c", "*", 100, 100, 0);
        sim_clock_advance(&sim.clock, ms_to_ns(1000));
    }
    double rate = pull_stats_group_rate(stats, "G");
    assert_true(rate > 99 && rate < 101);
    sim_clock_advance(&sim.clock, ms_to_ns(5000));
    rate = pull_stats_group_rate(stats, "G");
    assert_true(rate > 49 && rate < 51);
    sim_clock_advance(&sim.clock, ms_to_ns(60000));
    assert_true(pull_stats_group_rate(stats, "G") < 0.001);
}

static void rate_of_a_group_that_just_began_is_not_diluted(void **state)
{
    (void)state;
    pull_stats_add(stats, "G", "T", 0, "c", "*", 50, 50, 0);
    sim_clock_advance(&sim.clock, ms_to_ns(1000));
    double rate = pull_stats_group_rate(stats, "G");
    assert_true(rate > 49 && rate < 51);
}

static void forgetting_a_topic_or_group_leaves_the_others(void **state)
{
    (void)state;
    struct pull_stats_view view;
    pull_stats_add(stats, "G", "A", 0, "c", "*", 1, 1, 0);
    pull_stats_add(stats, "G", "B", 0, "c", "*", 1, 1, 0);
    pull_stats_add(stats, "H", "A", 0, "c", "*", 1, 1, 0);
    pull_stats_forget_topic(stats, "A");
    assert_false(pull_stats_get(stats, "G", "A", 0, &view));
    assert_false(pull_stats_get(stats, "H", "A", 0, &view));
    assert_true(pull_stats_get(stats, "G", "B", 0, &view));
    pull_stats_add(stats, "H", "B", 0, "c", "*", 1, 1, 0);
    pull_stats_forget_group(stats, "G");
    assert_false(pull_stats_get(stats, "G", "B", 0, &view));
    assert_true(pull_stats_get(stats, "H", "B", 0, &view));
    sim_clock_advance(&sim.clock, ms_to_ns(1000));
    assert_true(pull_stats_group_rate(stats, "G") < 0.001);
    pull_stats_add(stats, "G", "B", 0, "c", "*", 2, 2, 0);
    assert_true(pull_stats_get(stats, "G", "B", 0, &view));
    assert_int_equal(view.scanned, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pulls_add_up_per_group_topic_and_queue_F_6),
        TEST(each_member_and_expression_has_its_own_counts_F_6),
        TEST(members_of_a_queue_are_bounded_and_totals_stay),
        TEST(long_expression_is_cut_between_characters),
        TEST(rate_is_of_the_last_ten_seconds),
        TEST(rate_of_a_group_that_just_began_is_not_diluted),
        TEST(forgetting_a_topic_or_group_leaves_the_others),
    };
    return cmocka_run_group_tests_name("pull_stats", tests, NULL, NULL);
}
