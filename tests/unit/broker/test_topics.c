/* The topic table: names and ranges, durability, rolling back, damaged and foreign files. */
#include "tests/unit/broker/topics_world.h"

#include <errno.h>
#include <time.h>

/* ---- names and ranges ---- */

static void names_that_are_no_topic_are_refused_SE_02(void **state)
{
    (void)state;
    char long_name[TOPIC_NAME_MAX + 1];
    static const char *const bad[] = {"",         "../../x",  "a/b",       ".",
                                      "..",       "a b",      "a\n",       "a;b",
                                      "\xC3\xA9", "\xFF\xFE", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(put(bad[i], 4), TERN_INVALID);
    struct tern_error err;
    assert_int_equal(topics_remove(topics, "a\0b", 3, &err), TERN_INVALID);
    memset(long_name, 'a', sizeof long_name); /* not terminated: 128 bytes */
    struct topic_config config = topic("x", 4);
    memcpy(config.name, long_name, sizeof config.name);
    assert_int_equal(topics_put(topics, &config, &err), TERN_INVALID);
    assert_contains(err.text, "127");
    assert_false(fs_exists(sim.env.fs, PATH));
}

static void numbers_out_of_range_are_refused_with_the_range(void **state)
{
    (void)state;
    struct tern_error err;
    struct topic_config config = topic("T", 0);
    assert_int_equal(topics_put(topics, &config, &err), TERN_INVALID);
    assert_contains(err.text, "allowed 1..65536");
    config = topic("T", TOPIC_QUEUES_MAX + 1);
    assert_int_equal(topics_put(topics, &config, &err), TERN_INVALID);
    config = topic("T", 4);
    config.perm = 8;
    assert_int_equal(topics_put(topics, &config, &err), TERN_INVALID);
    assert_contains(err.text, "perm is 8");
    assert_ok(put("T", TOPIC_QUEUES_MAX));
}

static void system_topics_are_there_and_cannot_be_changed(void **state)
{
    (void)state;
    assert_int_equal(queues_of("SELF_TEST_TOPIC"), 1);
    assert_int_equal(queues_of("SCHEDULE_TOPIC_XXXX"), 18);
    assert_int_equal(queues_of("rmq_sys_delay_dead"), 1);
    assert_int_equal(queues_of("TRANS_CHECK_MAX_TIME_TOPIC"), 1); /* so that it has a route */
    assert_int_equal(queues_of("DefaultCluster"), 16);
    assert_int_equal(queues_of("broker-a"), 1);
    assert_int_equal(put("broker-a", 4), TERN_INVALID);
    assert_int_equal(topics_remove(topics, "DefaultCluster", 14, NULL), TERN_INVALID);
    struct topic_config config = topic("%RETRY%G", 1);
    assert_ok(topics_put_internal(topics, &config, NULL));
}

static void default_topic_exists_exactly_with_auto_creation_N_4(void **state)
{
    (void)state;
    assert_int_equal(queues_of("TBW102"), -1);
    topics_destroy(topics);
    assert_ok(open_table(true, NULL));
    assert_int_equal(queues_of("TBW102"), 8);
    assert_ok(put("T", 1));
    assert_ok(topics_persist(topics, NULL));
    reopen(); /* without auto-creation, although the file has it */
    assert_int_equal(queues_of("TBW102"), -1);
    assert_int_equal(queues_of("T"), 1);
}

static void removing_an_absent_topic_says_so(void **state)
{
    (void)state;
    assert_int_equal(topics_remove(topics, "T", 1, NULL), TERN_TOPIC_NOT_EXIST);
}

/* ---- durability ---- */

static void persisted_topics_survive_and_others_do_not(void **state)
{
    (void)state;
    assert_ok(put("A", 4));
    assert_ok(put("B", 2));
    assert_ok(topics_persist(topics, NULL));
    assert_ok(put("C", 1));
    assert_ok(topics_remove(topics, "B", 1, NULL));
    reopen();
    assert_int_equal(queues_of("A"), 4);
    assert_int_equal(queues_of("B"), 2);
    assert_int_equal(queues_of("C"), -1);
}

static void version_grows_with_changes_and_survives_restarts(void **state)
{
    (void)state;
    uint64_t first = topics_version(topics);
    assert_ok(put("A", 4));
    uint64_t second = topics_version(topics);
    assert_true(second > first);
    assert_ok(put("A", 4)); /* the same again is no change */
    assert_true(topics_version(topics) == second);
    assert_ok(topics_persist(topics, NULL));
    reopen();
    assert_true(topics_version(topics) == second);
}

static void lost_version_is_not_given_out_again(void **state)
{
    (void)state;
    assert_ok(put("A", 4));
    assert_ok(topics_persist(topics, NULL));
    assert_ok(put("B", 4));
    uint64_t shown = topics_version(topics);
    reopen(); /* crash before the persist */
    sim_clock_advance(&sim.clock, ms_to_ns(10));
    assert_ok(put("C", 4));
    assert_true(topics_version(topics) > shown);
}

static void unchanged_table_writes_nothing_MD_02(void **state)
{
    (void)state;
    assert_ok(put("A", 4));
    assert_ok(topics_persist(topics, NULL));
    uint64_t writes = sim_fs_calls(sim.fs, SIM_FS_PWRITEV);
    assert_ok(put("A", 4));
    assert_ok(topics_persist(topics, NULL));
    assert_true(sim_fs_calls(sim.fs, SIM_FS_PWRITEV) == writes);
}

static void rollback_takes_back_everything_since_the_last_persist(void **state)
{
    (void)state;
    assert_ok(put("kept", 4));
    assert_ok(put("deleted", 4));
    assert_ok(topics_persist(topics, NULL));
    uint64_t version = topics_version(topics);
    assert_ok(put("kept", 8));
    assert_ok(put("kept", 9));
    assert_ok(put("new", 1));
    assert_ok(topics_remove(topics, "deleted", 7, NULL));
    assert_ok(topics_remove(topics, "new", 3, NULL));
    assert_ok(put("new", 3));
    topics_rollback(topics);
    assert_int_equal(queues_of("kept"), 4);
    assert_int_equal(queues_of("deleted"), 4);
    assert_int_equal(queues_of("new"), -1);
    assert_true(topics_version(topics) > version);
}

static void failed_persist_can_be_rolled_back_wherever_it_fails(void **state)
{
    (void)state;
    assert_ok(put("A", 1));
    assert_ok(topics_persist(topics, NULL));
    for (unsigned nth = 1;; nth++) {
        struct sim_fs_fault fault = {.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO};
        struct tern_error err = {.text = ""};
        assert_ok(put("A", (int32_t)nth + 1));
        sim_fs_fail(sim.fs, &fault);
        enum tern_code code = topics_persist(topics, &err);
        sim_fs_fail_clear(sim.fs);
        if (code) {
            assert_true(err.text[0]);
            topics_rollback(topics);
            assert_int_equal(queues_of("A"), 1);
            assert_ok(topics_persist(topics, NULL)); /* the file may hold what was taken back */
        }
        reopen();
        if (!code)
            assert_int_equal(queues_of("A"), (int32_t)nth + 1);
        else
            assert_int_equal(queues_of("A"), 1);
        if (!code && nth > 20)
            break;
        assert_true(nth < 200);
        assert_ok(put("A", 1));
        assert_ok(topics_persist(topics, NULL));
    }
}

struct power {
    unsigned calls_left;
};

static int cut_power(void *arg, enum sim_fs_op op, const char *path)
{
    struct power *power = arg;
    (void)op;
    (void)path;
    if (power->calls_left == 0)
        return EIO;
    power->calls_left--;
    return 0;
}

static void power_loss_during_persist_leaves_old_or_new_ST_20(void **state)
{
    (void)state;
    assert_ok(put("A", 1));
    assert_ok(topics_persist(topics, NULL));
    for (unsigned round = 0; round < 300; round++) {
        int32_t old = queues_of("A");
        int32_t new = old % 1000 + 1;
        struct power power = {.calls_left = round % 30};
        assert_ok(put("A", new));
        sim_fs_set_hook(sim.fs, cut_power, &power);
        enum tern_code code = topics_persist(topics, NULL);
        sim_fs_set_hook(sim.fs, NULL, NULL);
        sim_fs_power_loss(sim.fs, round % 3 == 0   ? SIM_TORN_NONE
                                  : round % 3 == 1 ? SIM_TORN_PAGES
                                                   : SIM_TORN_SECTORS);
        reopen();
        int32_t now = queues_of("A");
        assert_true(now == new || (code && now == old));
    }
}

static void damaged_file_gives_way_to_the_generation_before_ST_20(void **state)
{
    (void)state;
    for (int damage = 0; damage < DAMAGE_COUNT; damage++) {
        assert_ok(put("A", 2));
        assert_ok(topics_persist(topics, NULL));
        assert_ok(put("A", 3));
        assert_ok(topics_persist(topics, NULL));
        damage_file(&sim, PATH, (enum damage)damage);
        reopen();
        assert_int_equal(queues_of("A"), 2);
        assert_ok(put("A", 4)); /* and can be written again */
        assert_ok(topics_persist(topics, NULL));
        reopen();
        assert_int_equal(queues_of("A"), 4);
    }
}

static void both_generations_damaged_refuse_the_start_and_delete_nothing_ST_04(void **state)
{
    (void)state;
    struct tern_error err;
    assert_ok(put("A", 2));
    assert_ok(topics_persist(topics, NULL));
    assert_ok(put("A", 3));
    assert_ok(topics_persist(topics, NULL));
    damage_file(&sim, PATH, DAMAGE_GARBAGE);
    damage_file(&sim, PATH ".bak", DAMAGE_HALF);
    topics_destroy(topics);
    assert_int_equal(open_table(false, &err), TERN_CORRUPT);
    assert_null(topics);
    assert_contains(err.text, PATH);
    assert_true(fs_exists(sim.env.fs, PATH));
    assert_true(fs_exists(sim.env.fs, PATH ".bak"));
}

/* ---- files of others ---- */

static const char rocketmq_file[] =
    "{\n\t\"dataVersion\":{\n\t\t\"counter\":2,\n\t\t\"timestamp\":1700000000123\n\t},\n"
    "\t\"topicConfigTable\":{\n\t\t\"TopicA\":{\n\t\t\t\"order\":false,\n\t\t\t\"perm\":6,\n"
    "\t\t\t\"readQueueNums\":4,\n\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n"
    "\t\t\t\"topicName\":\"TopicA\",\n\t\t\t\"topicSysFlag\":0,\n\t\t\t\"writeQueueNums\":5,\n"
    "\t\t\t\"attributes\":{0:1}\n\t\t},\n\t\t\"TBW102\":{\n\t\t\t\"perm\":7\n\t\t}\n\t}\n}";

static void rocketmqs_file_is_read(void **state)
{
    (void)state;
    struct topic_config config;
    put_file(&sim, PATH, rocketmq_file, sizeof rocketmq_file - 1);
    reopen();
    assert_true(topics_find(topics, "TopicA", 6, &config));
    assert_int_equal(config.read_queues, 4);
    assert_int_equal(config.write_queues, 5);
    assert_int_equal(config.perm, 6);
    assert_int_equal(config.name_len, 6);
    assert_int_equal(queues_of("TBW102"), -1);
    assert_true(topics_version(topics) > 2); /* changed by others: a version of its own */
}

static void written_file_has_rocketmqs_fields(void **state)
{
    (void)state;
    size_t len;
    assert_ok(put("TopicA", 4));
    assert_ok(topics_persist(topics, NULL));
    char *text = get_file(&sim, PATH, &len);
    assert_contains(text, "\"dataVersion\":{\n\t\t\"counter\":");
    assert_contains(text, "\"topicConfigTable\":{");
    assert_contains(text, "\"TopicA\":{\n\t\t\t\"order\":false,\n\t\t\t\"perm\":6,\n"
                          "\t\t\t\"readQueueNums\":4,\n\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n"
                          "\t\t\t\"topicName\":\"TopicA\",\n\t\t\t\"topicSysFlag\":0,\n"
                          "\t\t\t\"writeQueueNums\":4\n\t\t}");
    free(text);
}

static void file_with_values_out_of_range_counts_as_damaged(void **state)
{
    (void)state;
    static const char *const bad[] = {"{}",
                                      "[]",
                                      "{\"topicConfigTable\":{\"../x\":{}}}",
                                      "{\"topicConfigTable\":{\"T\":{\"perm\":64}}}",
                                      "{\"topicConfigTable\":{\"T\":{\"readQueueNums\":-1}}}",
                                      "{\"topicConfigTable\":{\"T\":{\"writeQueueNums\":70000}}}",
                                      "{\"topicConfigTable\":{\"T\":{\"writeQueueNums\":\"x\"}}}",
                                      "{\"topicConfigTable\":{\"T\":7}}",
                                      "{\"topicConfigTable\":{},\"dataVersion\":{\"counter\":-5}}"};
    struct tern_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_file(&sim, PATH, bad[i], strlen(bad[i]));
        topics_destroy(topics);
        assert_int_equal(open_table(false, &err), TERN_CORRUPT);
    }
}

/* ---- size ---- */

static void five_thousand_topics_are_put_and_persisted_quickly(void **state)
{
    (void)state;
    char name[32];
    struct timespec begin;
    struct timespec end;
    size_t count;
    uint64_t version;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "topic-%d", i);
        assert_ok(put(name, 8));
    }
    assert_ok(topics_persist(topics, NULL));
    reopen();
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec < 5);
    struct topic_config *rows = topics_snapshot(topics, &count, &version);
    assert_non_null(rows);
    assert_int_equal(count, topics_count(topics));
    assert_int_equal(count, 5008);
    for (size_t i = 1; i < count; i++)
        assert_true(strcmp(rows[i - 1].name, rows[i].name) < 0);
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names_that_are_no_topic_are_refused_SE_02),
        TEST(numbers_out_of_range_are_refused_with_the_range),
        TEST(system_topics_are_there_and_cannot_be_changed),
        TEST(default_topic_exists_exactly_with_auto_creation_N_4),
        TEST(removing_an_absent_topic_says_so),
        TEST(persisted_topics_survive_and_others_do_not),
        TEST(version_grows_with_changes_and_survives_restarts),
        TEST(lost_version_is_not_given_out_again),
        TEST(unchanged_table_writes_nothing_MD_02),
        TEST(rollback_takes_back_everything_since_the_last_persist),
        TEST(failed_persist_can_be_rolled_back_wherever_it_fails),
        TEST(power_loss_during_persist_leaves_old_or_new_ST_20),
        TEST(damaged_file_gives_way_to_the_generation_before_ST_20),
        TEST(both_generations_damaged_refuse_the_start_and_delete_nothing_ST_04),
        TEST(rocketmqs_file_is_read),
        TEST(written_file_has_rocketmqs_fields),
        TEST(file_with_values_out_of_range_counts_as_damaged),
        TEST(five_thousand_topics_are_put_and_persisted_quickly),
    };
    return cmocka_run_group_tests_name("topics", tests, NULL, NULL);
}
