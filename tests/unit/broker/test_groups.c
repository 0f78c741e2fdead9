/* The group table: making groups, defaults, durability, RocketMQ's file. */
#include "tests/unit/broker/broker_unit.h"

#include <errno.h>

#include "broker/groups.h"

#define PATH "/config/subscriptionGroup.json"

static struct sim_env sim;
static struct groups *groups;

static void reopen(bool auto_create)
{
    groups_destroy(groups);
    assert_ok(groups_create(&sim.env, PATH, auto_create, &groups, NULL));
}

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 12);
    assert_ok(fs_mkdirs(sim.env.fs, "/config"));
    groups = NULL;
    reopen(true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    groups_destroy(groups);
    groups = NULL;
    sim_env_fini(&sim);
    return 0;
}

static enum tern_code want(const char *name, struct group_config *out)
{
    return groups_find_or_create(groups, name, strlen(name), out, NULL);
}

static void group_is_made_with_rocketmqs_defaults(void **state)
{
    (void)state;
    struct group_config config;
    assert_false(groups_find(groups, "G", 1, &config));
    assert_ok(want("G", &config));
    assert_string_equal(config.name, "G");
    assert_true(config.consume_enable && config.consume_from_min_enable);
    assert_true(config.consume_broadcast_enable && config.notify_members_changed);
    assert_int_equal(config.retry_queues, 1);
    assert_int_equal(config.retry_max_times, 16);
    assert_int_equal(config.broker_id, 0);
    assert_int_equal(config.which_broker_when_slow, 1);
    assert_true(groups_dirty(groups));
    assert_ok(groups_persist(groups, NULL));
    assert_false(groups_dirty(groups));
}

static void without_auto_creation_only_system_groups_are_made(void **state)
{
    (void)state;
    struct group_config config;
    struct tern_error err;
    reopen(false);
    assert_int_equal(groups_find_or_create(groups, "G", 1, &config, &err), TERN_GROUP_NOT_EXIST);
    assert_contains(err.text, "group G does not exist");
    assert_ok(want("CID_RMQ_SYS_TRANS", &config));
    assert_ok(want("TOOLS_CONSUMER", &config));
    group_config_init(&config, "G", 1);
    assert_ok(groups_put(groups, &config, NULL));
    assert_ok(want("G", &config));
}

static void names_that_are_no_group_are_refused_SE_02(void **state)
{
    (void)state;
    struct group_config config;
    char name[GROUP_NAME_MAX + 1];
    static const char *const bad[] = {"", "../../x", "a/b", "a@b", "a b", "\xFF"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(want(bad[i], &config), TERN_INVALID);
    assert_int_equal(groups_find_or_create(groups, "a\0b", 3, &config, NULL), TERN_INVALID);
    memset(name, 'g', sizeof name);
    assert_int_equal(groups_find_or_create(groups, name, 256, &config, NULL), TERN_INVALID);
    assert_ok(groups_find_or_create(groups, name, 255, &config, NULL));
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    struct group_config config;
    struct tern_error err;
    group_config_init(&config, "G", 1);
    config.retry_max_times = -1;
    assert_int_equal(groups_put(groups, &config, &err), TERN_INVALID);
    assert_contains(err.text, "retryMaxTimes is -1");
    group_config_init(&config, "G", 1);
    config.retry_queues = 65537;
    assert_int_equal(groups_put(groups, &config, NULL), TERN_INVALID);
}

static void changes_survive_and_removal_too(void **state)
{
    (void)state;
    struct group_config config;
    group_config_init(&config, "kept", 4);
    config.consume_enable = false;
    config.retry_max_times = 3;
    assert_ok(groups_put(groups, &config, NULL));
    assert_ok(want("gone", &config));
    assert_ok(groups_persist(groups, NULL));
    assert_ok(groups_remove(groups, "gone", 4, NULL));
    assert_int_equal(groups_remove(groups, "gone", 4, NULL), TERN_GROUP_NOT_EXIST);
    assert_ok(groups_persist(groups, NULL));
    uint64_t version = groups_version(groups);
    reopen(false);
    assert_true(groups_find(groups, "kept", 4, &config));
    assert_false(config.consume_enable);
    assert_int_equal(config.retry_max_times, 3);
    assert_false(groups_find(groups, "gone", 4, &config));
    assert_true(groups_version(groups) == version);
}

static void failed_persist_is_taken_back(void **state)
{
    (void)state;
    struct group_config config;
    struct sim_fs_fault fault = {
        .op = SIM_FS_SYNC, .nth = 1, .errno_value = ENOSPC, .forever = true};
    assert_ok(want("A", &config));
    assert_ok(groups_persist(groups, NULL));
    assert_ok(want("B", &config));
    assert_ok(groups_remove(groups, "A", 1, NULL));
    sim_fs_fail(sim.fs, &fault);
    assert_int_equal(groups_persist(groups, NULL),
                     TERN_IO); /* a failed sync is never "no room, later" */
    sim_fs_fail_clear(sim.fs);
    groups_rollback(groups);
    assert_true(groups_find(groups, "A", 1, &config));
    assert_false(groups_find(groups, "B", 1, &config));
}

static void rocketmqs_file_is_read_and_its_fields_are_written(void **state)
{
    (void)state;
    static const char text[] =
        "{\"dataVersion\":{\"counter\":1,\"timestamp\":5},\"subscriptionGroupTable\":{\"G\":{"
        "\"brokerId\":0,\"consumeBroadcastEnable\":false,\"consumeEnable\":true,"
        "\"consumeFromMinEnable\":true,\"groupName\":\"G\","
        "\"notifyConsumerIdsChangedEnable\":false,\"retryMaxTimes\":5,\"retryQueueNums\":2,"
        "\"whichBrokerWhenConsumeSlowly\":1,\"attributes\":{}}}}";
    struct group_config config;
    size_t count;
    size_t len;
    uint64_t version;
    put_file(&sim, PATH, text, sizeof text - 1);
    reopen(false);
    assert_true(groups_find(groups, "G", 1, &config));
    assert_false(config.consume_broadcast_enable);
    assert_false(config.notify_members_changed);
    assert_int_equal(config.retry_max_times, 5);
    assert_int_equal(config.retry_queues, 2);
    group_config_init(&config, "F", 1);
    assert_ok(groups_put(groups, &config, NULL));
    assert_ok(groups_persist(groups, NULL));
    char *written = get_file(&sim, PATH, &len);
    assert_contains(written, "\"subscriptionGroupTable\":{\n\t\t\"F\":{\n\t\t\t\"brokerId\":0,");
    assert_contains(written, "\"whichBrokerWhenConsumeSlowly\":1");
    free(written);
    struct group_config *rows = groups_snapshot(groups, &count, &version);
    assert_non_null(rows);
    assert_int_equal(count, 2);
    assert_string_equal(rows[0].name, "F");
    free(rows);
}

static void damaged_files_use_the_other_generation_or_refuse_ST_20(void **state)
{
    (void)state;
    struct group_config config;
    struct tern_error err;
    for (int damage = 0; damage < DAMAGE_COUNT; damage++) {
        char name[16];
        snprintf(name, sizeof name, "A%d", damage);
        assert_ok(want(name, &config));
        assert_ok(groups_persist(groups, NULL));
        assert_ok(want("last", &config));
        assert_ok(groups_persist(groups, NULL));
        damage_file(&sim, PATH, (enum damage)damage);
        reopen(true);
        assert_true(groups_find(groups, name, 2, &config));
        assert_ok(groups_remove(groups, name, 2, NULL));
        assert_ok(groups_persist(groups, NULL));
    }
    damage_file(&sim, PATH, DAMAGE_ZEROS);
    damage_file(&sim, PATH ".bak", DAMAGE_EMPTY);
    groups_destroy(groups);
    assert_int_equal(groups_create(&sim.env, PATH, true, &groups, &err), TERN_CORRUPT);
    assert_null(groups);
}

static void replaced_table_has_the_given_version_and_is_durable(void **state)
{
    (void)state;
    struct group_config config, rows[2];
    struct tern_error err;
    assert_ok(want("old", &config));
    group_config_init(&rows[0], "A", 1);
    group_config_init(&rows[1], "B", 1);
    rows[1].retry_max_times = 3;
    groups_follow(groups, true);
    assert_ok(groups_replace(groups, rows, 2, 17, NULL));
    assert_ok(want("met", &config));
    assert_true(groups_version(groups) == 17);
    assert_true(groups_dirty(groups));
    assert_ok(groups_persist(groups, NULL));
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    reopen(true);
    assert_true(groups_version(groups) == 17);
    assert_false(groups_find(groups, "old", 3, &config));
    assert_true(groups_find(groups, "met", 3, &config));
    assert_true(groups_find(groups, "B", 1, &config));
    assert_int_equal(config.retry_max_times, 3);
    rows[0].retry_queues = -1;
    assert_int_equal(groups_replace(groups, rows, 2, 18, &err), TERN_INVALID);
    rows[0] = rows[1];
    assert_int_equal(groups_replace(groups, rows, 2, 18, &err), TERN_INVALID);
    assert_contains(err.text, "B is there twice");
    assert_true(groups_find(groups, "A", 1, &config));
}

static void replacement_that_fails_anywhere_leaves_the_old_table(void **state)
{
    (void)state;
    struct group_config config, row;
    unsigned failed = 0;
    group_config_init(&row, "G", 1);
    assert_ok(groups_replace(groups, &row, 1, 17, NULL));
    for (unsigned round = 2; round <= 61; round++) { /* each call, with and without a power loss */
        unsigned nth = round / 2;
        struct sim_fs_fault fault = {.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO};
        int32_t before = row.retry_max_times;
        row.retry_max_times = (int32_t)round + 100;
        sim_fs_fail(sim.fs, &fault);
        enum tern_code code = groups_replace(groups, &row, 1, 100 + round, NULL);
        sim_fs_fail_clear(sim.fs);
        failed += code != TERN_OK;
        if (code)
            row.retry_max_times = before;
        assert_ok(groups_persist(groups, NULL));
        if (round % 2)
            sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
        reopen(true);
        assert_true(groups_find(groups, "G", 1, &config));
        assert_int_equal(config.retry_max_times, row.retry_max_times);
    }
    assert_in_range(failed, 10, 59);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(group_is_made_with_rocketmqs_defaults),
        TEST(without_auto_creation_only_system_groups_are_made),
        TEST(names_that_are_no_group_are_refused_SE_02),
        TEST(numbers_out_of_range_are_refused),
        TEST(changes_survive_and_removal_too),
        TEST(failed_persist_is_taken_back),
        TEST(rocketmqs_file_is_read_and_its_fields_are_written),
        TEST(damaged_files_use_the_other_generation_or_refuse_ST_20),
        TEST(replaced_table_has_the_given_version_and_is_durable),
        TEST(replacement_that_fails_anywhere_leaves_the_old_table),
    };
    return cmocka_run_group_tests_name("groups", tests, NULL, NULL);
}
