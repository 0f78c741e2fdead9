/* Members: joining, leaving, dying connections, expressions, questions. */
#include "tests/unit/broker/broker_unit.h"

#include "broker/members.h"

static struct sim_env sim;
static struct members *members;

/* What the callbacks said. */
static struct {
    int changes;
    char group[GROUP_NAME_MAX + 1];
    char ids[512]; /* joined by commas, of the last change */
    int expression_changes;
    char before[64], after[64], client[64];
} told;

static void on_changed(void *arg, const char *group, const char *const *ids, size_t count)
{
    (void)arg;
    told.changes++;
    snprintf(told.group, sizeof told.group, "%s", group);
    told.ids[0] = 0;
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(told.ids);
        snprintf(told.ids + used, sizeof told.ids - used, "%s%s", i ? "," : "", ids[i]);
    }
}

static void on_expression_changed(void *arg, const char *group, const char *topic,
                                  const char *client_id, const char *before, const char *after)
{
    (void)arg;
    assert_string_equal(group, "G");
    assert_string_equal(topic, "T");
    told.expression_changes++;
    snprintf(told.before, sizeof told.before, "%s", before);
    snprintf(told.after, sizeof told.after, "%s", after);
    snprintf(told.client, sizeof told.client, "%s", client_id);
}

static int setup(void **state)
{
    (void)state;
    const struct members_options options = {.on_changed = on_changed,
                                            .on_expression_changed = on_expression_changed};
    sim_env_init(&sim, 14);
    memset(&told, 0, sizeof told);
    assert_ok(members_create(&sim.env, &options, &members));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    members_destroy(members);
    members = NULL;
    sim_env_fini(&sim);
    return 0;
}

/* One group, up to two topics (topic2 may be NULL), all subscriptions alike. */
static enum tern_code beat_topics(const char *client, uint64_t peer, const char *group,
                                  const char *topic, const char *topic2, const char *expression,
                                  int64_t version)
{
    struct member_subscription subscriptions[2] = {
        {.expression = expression, .expression_type = "TAG", .version = version},
        {.expression = expression, .expression_type = "TAG", .version = version}};
    struct member_consumer consumer = {.model = 0, .from = 1, .subscriptions = subscriptions};
    struct member_heartbeat heartbeat = {.client_id = client,
                                         .peer_id = peer,
                                         .language = "C",
                                         .client_version = "0.1",
                                         .consumers = &consumer,
                                         .consumer_count = group ? 1 : 0};
    snprintf(subscriptions[0].topic, sizeof subscriptions[0].topic, "%s", topic);
    if (topic2)
        snprintf(subscriptions[1].topic, sizeof subscriptions[1].topic, "%s", topic2);
    consumer.subscription_count = topic2 ? 2 : 1;
    if (group)
        snprintf(consumer.group, sizeof consumer.group, "%s", group);
    return members_heartbeat(members, &heartbeat, NULL);
}

static void beat(const char *client, uint64_t peer, const char *expression, int64_t version)
{
    assert_ok(beat_topics(client, peer, "G", "T", NULL, expression, version));
}

static void expect_members(const char *group, const char *joined)
{
    const char **ids;
    size_t count;
    char text[256] = "";
    assert_ok(members_of(members, group, &ids, &count));
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "", ids[i]);
    }
    free(ids);
    assert_string_equal(text, joined);
}

/* ---- joining and leaving ---- */

static void joining_tells_the_group_with_all_members_sorted(void **state)
{
    (void)state;
    beat("b", 1, "*", 1);
    assert_int_equal(told.changes, 1);
    assert_string_equal(told.ids, "b");
    beat("a", 2, "*", 1);
    assert_int_equal(told.changes, 2);
    assert_string_equal(told.group, "G");
    assert_string_equal(told.ids, "a,b");
    expect_members("G", "a,b");
    assert_int_equal(members_count(members), 2);
    assert_int_equal(sim_log_count(&sim, "member_joined"), 2);
}

static void unchanged_heartbeat_tells_nothing(void **state)
{
    (void)state;
    beat("a", 1, "A || B", 1);
    beat("a", 1, "A || B", 1);
    beat("a", 1, "A || B", 1);
    assert_int_equal(told.changes, 1);
    assert_int_equal(told.expression_changes, 0);
}

static void adding_or_dropping_a_topic_is_a_change(void **state)
{
    (void)state;
    beat("a", 1, "*", 1);
    assert_ok(beat_topics("a", 1, "G", "T", "U", "*", 2));
    assert_int_equal(told.changes, 2);
    beat("a", 1, "*", 3);
    assert_int_equal(told.changes, 3);
}

static void group_that_a_heartbeat_does_not_name_any_more_is_left(void **state)
{
    (void)state;
    beat("a", 1, "*", 1);
    beat("b", 2, "*", 1);
    assert_ok(beat_topics("a", 1, "other", "T", NULL, "*", 2));
    expect_members("G", "b");
    expect_members("other", "a");
    assert_int_equal(told.changes, 4);
}

static void unregistering_leaves_at_once(void **state)
{
    (void)state;
    beat("a", 1, "*", 1);
    members_unregister(members, "a", NULL, "other");
    members_unregister(members, "nobody", "P", "G");
    assert_int_equal(told.changes, 1);
    members_unregister(members, "a", NULL, "G");
    assert_int_equal(told.changes, 2);
    assert_string_equal(told.ids, "");
    expect_members("G", "");
    assert_int_equal(members_count(members), 0);
}

static void producer_stays_while_it_has_a_group_left(void **state)
{
    (void)state;
    const char *groups[] = {"P", "Q"};
    struct member_heartbeat heartbeat = {.client_id = "p",
                                         .peer_id = 1,
                                         .language = "C",
                                         .client_version = "0.1",
                                         .producer_groups = groups,
                                         .producer_group_count = 2};
    assert_ok(members_heartbeat(members, &heartbeat, NULL));
    members_unregister(members, "p", "P", NULL);
    assert_int_equal(members_count(members), 1);
    members_unregister(members, "p", "Q", NULL);
    assert_int_equal(members_count(members), 0);
    assert_int_equal(told.changes, 0);
}

/* ---- connections and time ---- */

static void dying_connection_removes_its_clients_at_once(void **state)
{
    (void)state;
    beat("a", 1, "*", 1);
    beat("a2", 1, "*", 1);
    beat("b", 2, "*", 1);
    members_peer_gone(members, 1);
    expect_members("G", "b");
    assert_string_equal(told.ids, "b");
    assert_int_equal(members_count(members), 1);
}

static void death_of_an_older_connection_does_not_remove(void **state)
{
    (void)state;
    beat("a", 1, "*", 1);
    beat("a", 2, "*", 1);
    members_peer_gone(members, 1);
    expect_members("G", "a");
    members_peer_gone(members, 2);
    expect_members("G", "");
}

static void heartbeat_that_comes_after_its_connection_died_is_refused(void **state)
{
    (void)state;
    beat("a", 1, "*", 1);
    members_peer_gone(members, 1);
    assert_int_equal(beat_topics("a", 1, "G", "T", NULL, "*", 1), TERN_CONNECTION_LOST);
    expect_members("G", "");
}

static void silent_member_expires_after_120_s(void **state)
{
    (void)state;
    beat("a", 1, "*", 1);
    sim_clock_advance(&sim.clock, ms_to_ns(60000));
    beat("b", 2, "*", 1);
    int64_t now_ns = clock_mono_ns(sim.env.clock);
    assert_true(members_expire(members, now_ns) == now_ns + ms_to_ns(60000));
    sim_clock_advance(&sim.clock, ms_to_ns(59999));
    members_expire(members, clock_mono_ns(sim.env.clock));
    expect_members("G", "a,b");
    sim_clock_advance(&sim.clock, ms_to_ns(1));
    members_expire(members, clock_mono_ns(sim.env.clock));
    expect_members("G", "b");
    assert_string_equal(told.ids, "b");
}

/* ---- subscriptions ---- */

static void members_keep_their_own_subscriptions_F_3(void **state)
{
    (void)state;
    struct member_view view;
    char *expression;
    beat("a", 1, "A", 1);
    beat("b", 2, "B", 9);
    beat("a", 1, "A", 1);
    assert_int_equal(members_subscription(members, "G", "a", "T", &view, &expression),
                     MEMBER_FOUND);
    assert_string_equal(expression, "A");
    assert_int_equal(view.version, 1);
    assert_string_equal(view.expression_type, "TAG");
    free(expression);
    assert_int_equal(members_subscription(members, "G", "", "T", &view, &expression), MEMBER_FOUND);
    assert_string_equal(expression, "B"); /* of any: the newest */
    free(expression);
}

static void lookup_tells_what_is_missing_R_9(void **state)
{
    (void)state;
    struct member_view view;
    char *expression;
    assert_int_equal(members_subscription(members, "G", "", "T", &view, &expression),
                     MEMBER_NO_GROUP);
    beat("a", 1, "*", 1);
    assert_int_equal(members_subscription(members, "G", "", "U", &view, &expression),
                     MEMBER_NO_SUBSCRIPTION);
    assert_int_equal(members_subscription(members, "G", "b", "T", &view, &expression),
                     MEMBER_NO_SUBSCRIPTION);
    assert_null(expression);
    members_peer_gone(members, 1);
    assert_int_equal(members_subscription(members, "G", "", "T", &view, &expression),
                     MEMBER_NO_GROUP);
}

static void changed_expression_is_reported_with_old_and_new_F_5(void **state)
{
    (void)state;
    beat("a", 1, "A", 1);
    beat("a", 1, "B", 2);
    assert_int_equal(told.expression_changes, 1);
    assert_string_equal(told.before, "A");
    assert_string_equal(told.after, "B");
    assert_string_equal(told.client, "a");
    assert_int_equal(told.changes, 1); /* the topics are the same */
}

static void group_that_comes_back_with_another_expression_is_reported_F_5(void **state)
{
    (void)state;
    beat("old", 1, "A", 1);
    members_peer_gone(members, 1);
    beat("new", 2, "B", 5);
    assert_int_equal(told.expression_changes, 1);
    assert_string_equal(told.before, "A");
    assert_string_equal(told.after, "B");
    beat("new", 2, "B", 5);
    assert_int_equal(told.expression_changes, 1);
}

static void older_heartbeat_that_comes_late_does_not_replace(void **state)
{
    (void)state;
    struct member_view view;
    char *expression;
    beat("a", 1, "new", 7);
    beat("a", 1, "old", 6);
    assert_int_equal(members_subscription(members, "G", "a", "T", &view, &expression),
                     MEMBER_FOUND);
    assert_string_equal(expression, "new");
    free(expression);
    beat("a", 2, "restarted", 5); /* another connection: a new start, whatever its clock */
    assert_int_equal(members_subscription(members, "G", "a", "T", &view, &expression),
                     MEMBER_FOUND);
    assert_string_equal(expression, "restarted");
    free(expression);
}

static void topic_named_twice_counts_once_with_the_newer_version(void **state)
{
    (void)state;
    struct member_info *infos;
    size_t count;
    assert_ok(beat_topics("a", 1, "G", "T", "T", "*", 3));
    assert_ok(members_snapshot(members, "G", &infos, &count));
    assert_int_equal(infos[0].subscription_count, 1);
    free(infos);
}

/* ---- questions and limits ---- */

static void snapshot_holds_all_of_each_member(void **state)
{
    (void)state;
    struct member_info *infos;
    size_t count;
    assert_ok(beat_topics("b", 1, "G", "U", "T", "A || B", 3));
    beat("a", 2, "*", 4);
    sim_clock_advance(&sim.clock, ms_to_ns(1500));
    assert_ok(members_snapshot(members, "G", &infos, &count));
    assert_int_equal(count, 2);
    assert_string_equal(infos[0].client_id, "a");
    assert_string_equal(infos[1].client_id, "b");
    assert_string_equal(infos[1].language, "C");
    assert_string_equal(infos[1].version, "0.1");
    assert_int_equal(infos[1].heartbeat_age_ms, 1500);
    assert_int_equal(infos[1].from, 1);
    assert_int_equal(infos[1].subscription_count, 2);
    assert_string_equal(infos[1].subscriptions[0].topic, "T");
    assert_string_equal(infos[1].subscriptions[1].expression, "A || B");
    free(infos);
    assert_ok(members_snapshot(members, "none", &infos, &count));
    assert_int_equal(count, 0);
    assert_null(infos);
}

static void groups_without_members_are_not_listed(void **state)
{
    (void)state;
    const char **groups;
    size_t count;
    assert_ok(beat_topics("a", 1, "Y", "T", NULL, "*", 1));
    assert_ok(beat_topics("b", 2, "X", "T", NULL, "*", 1));
    assert_ok(beat_topics("c", 3, "Z", "T", NULL, "*", 1));
    members_peer_gone(members, 3);
    assert_ok(members_groups(members, &groups, &count));
    assert_int_equal(count, 2);
    assert_string_equal(groups[0], "X");
    assert_string_equal(groups[1], "Y");
    free(groups);
}

static void too_many_subscriptions_are_refused_with_the_limit(void **state)
{
    (void)state;
    struct tern_error err;
    struct member_consumer consumer = {.group = "G",
                                       .subscription_count = MEMBER_SUBSCRIPTIONS_MAX + 1};
    struct member_heartbeat heartbeat = {
        .client_id = "a", .peer_id = 1, .consumers = &consumer, .consumer_count = 1};
    assert_int_equal(members_heartbeat(members, &heartbeat, &err), TERN_LIMIT);
    assert_contains(err.text, "1024");
    assert_int_equal(members_count(members), 0);
}

static void clients_beyond_the_limit_are_refused(void **state)
{
    (void)state;
    char id[32];
    for (int i = 0; i < MEMBERS_MAX; i++) {
        snprintf(id, sizeof id, "client-%d", i);
        assert_ok(beat_topics(id, (uint64_t)i + 1, NULL, "T", NULL, "*", 1));
    }
    assert_int_equal(beat_topics("one-more", 1, NULL, "T", NULL, "*", 1), TERN_LIMIT);
    assert_int_equal(members_count(members), MEMBERS_MAX);
    members_peer_gone(members, 1);
    assert_ok(beat_topics("one-more", 2, NULL, "T", NULL, "*", 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(joining_tells_the_group_with_all_members_sorted),
        TEST(unchanged_heartbeat_tells_nothing),
        TEST(adding_or_dropping_a_topic_is_a_change),
        TEST(group_that_a_heartbeat_does_not_name_any_more_is_left),
        TEST(unregistering_leaves_at_once),
        TEST(producer_stays_while_it_has_a_group_left),
        TEST(dying_connection_removes_its_clients_at_once),
        TEST(death_of_an_older_connection_does_not_remove),
        TEST(heartbeat_that_comes_after_its_connection_died_is_refused),
        TEST(silent_member_expires_after_120_s),
        TEST(members_keep_their_own_subscriptions_F_3),
        TEST(lookup_tells_what_is_missing_R_9),
        TEST(changed_expression_is_reported_with_old_and_new_F_5),
        TEST(group_that_comes_back_with_another_expression_is_reported_F_5),
        TEST(older_heartbeat_that_comes_late_does_not_replace),
        TEST(topic_named_twice_counts_once_with_the_newer_version),
        TEST(snapshot_holds_all_of_each_member),
        TEST(groups_without_members_are_not_listed),
        TEST(too_many_subscriptions_are_refused_with_the_limit),
        TEST(clients_beyond_the_limit_are_refused),
    };
    return cmocka_run_group_tests_name("members", tests, NULL, NULL);
}
