/* Consumer progress: commits and versions, deleting, clamping, the file. */
#include "tests/unit/broker/broker_unit.h"

#include <errno.h>

#include "broker/offsets.h"

#define PATH "/config/consumerOffset.json"
#define V0 ((struct offset_version){0, 0})

static struct sim_env sim;
static struct offsets *offsets;

static void reopen(void)
{
    offsets_destroy(offsets);
    assert_ok(offsets_create(&sim.env, PATH, &offsets, NULL));
}

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 13);
    assert_ok(fs_mkdirs(sim.env.fs, "/config"));
    offsets = NULL;
    reopen();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    offsets_destroy(offsets);
    offsets = NULL;
    sim_env_fini(&sim);
    return 0;
}

static enum offsets_commit_result commit(const char *group, const char *topic, int32_t queue_id,
                                         int64_t offset, struct offset_version version)
{
    int64_t held;
    struct offset_version held_version;
    return offsets_commit(offsets, group, topic, queue_id, offset, version, &held, &held_version);
}

/* -1: no progress. */
static int64_t stored(const char *group, const char *topic, int32_t queue_id)
{
    int64_t offset;
    struct offset_version version;
    return offsets_query(offsets, group, topic, queue_id, &offset, &version) ? offset : -1;
}

static struct offset_version version_of(const char *group, const char *topic, int32_t queue_id)
{
    int64_t offset;
    struct offset_version version;
    offsets_query(offsets, group, topic, queue_id, &offset, &version);
    return version;
}

/* ---- commits ---- */

static void nothing_committed_is_told_apart_from_offset_0_OF_04(void **state)
{
    (void)state;
    int64_t offset = 77;
    struct offset_version version = {9, 9};
    assert_false(offsets_query(offsets, "G", "T", 0, &offset, &version));
    assert_int_equal(version.counter, 0);
    assert_int_equal(commit("G", "T", 0, 0, V0), OFFSETS_STORED);
    assert_true(offsets_query(offsets, "G", "T", 0, &offset, &version));
    assert_int_equal(offset, 0);
    assert_int_equal(stored("G", "T", 1), -1);
    assert_int_equal(stored("G2", "T", 0), -1);
}

static void lower_commit_is_ignored_and_logged_OF_11(void **state)
{
    (void)state;
    int64_t held;
    struct offset_version version;
    assert_int_equal(commit("G", "T", 0, 100, V0), OFFSETS_STORED);
    assert_int_equal(commit("G", "T", 0, 100, V0), OFFSETS_LOWER);
    assert_int_equal(sim_log_count(&sim, "commit_lower_ignored"), 0);
    assert_int_equal(offsets_commit(offsets, "G", "T", 0, 40, V0, &held, &version), OFFSETS_LOWER);
    assert_int_equal(held, 100);
    assert_int_equal(stored("G", "T", 0), 100);
    assert_int_equal(sim_log_count(&sim, "commit_lower_ignored"), 1);
    assert_int_equal(commit("G", "T", 0, 101, V0), OFFSETS_STORED);
}

/* What comes late again and again, as commits beside a running consumer do, is said once a minute,
 * with how often. */
static void lower_commits_are_logged_rarely_with_their_count(void **state)
{
    (void)state;
    assert_int_equal(commit("G", "T", 0, 100, V0), OFFSETS_STORED);
    for (int i = 0; i < 100; i++)
        assert_int_equal(commit("G", "T", 0, 40, V0), OFFSETS_LOWER);
    assert_int_equal(sim_log_count(&sim, "commit_lower_ignored"), 1);
    assert_int_equal(sim_log_count(&sim, "WARN"), 0);
    sim_run_for(sim.sched, ms_to_ns(60000));
    assert_int_equal(commit("G", "T", 1, 7, V0), OFFSETS_STORED);
    assert_int_equal(commit("G", "T", 1, 6, V0), OFFSETS_LOWER);
    assert_int_equal(sim_log_count(&sim, "commit_lower_ignored"), 2);
    assert_int_equal(sim_log_count(&sim, "held=7 times=100"), 1);
}

static void reset_sets_any_offset_and_makes_earlier_commits_old_OF_11(void **state)
{
    (void)state;
    int64_t held;
    struct offset_version version;
    assert_int_equal(commit("G", "T", 0, 100, V0), OFFSETS_STORED);
    assert_ok(offsets_reset(offsets, "G", "T", 0, 40));
    assert_int_equal(stored("G", "T", 0), 40);
    assert_int_equal(offsets_commit(offsets, "G", "T", 0, 101, V0, &held, &version),
                     OFFSETS_VERSION_OLD);
    assert_int_equal(held, 40);
    assert_int_equal(version.counter, 1);
    assert_int_equal(commit("G", "T", 0, 41, version), OFFSETS_STORED);
    assert_ok(offsets_reset(offsets, "G", "T", 1, 5)); /* of a queue without progress */
    assert_int_equal(stored("G", "T", 1), 5);
    assert_int_equal(version_of("G", "T", 1).counter, 1);
}

static void newer_version_wins_over_a_higher_offset(void **state)
{
    (void)state;
    assert_int_equal(commit("G", "T", 0, 100, V0), OFFSETS_STORED);
    assert_int_equal(commit("G", "T", 0, 10, (struct offset_version){0, 3}), OFFSETS_STORED);
    assert_int_equal(stored("G", "T", 0), 10);
    assert_int_equal(commit("G", "T", 0, 500, (struct offset_version){0, 2}), OFFSETS_VERSION_OLD);
    assert_int_equal(commit("G", "T", 0, 5, (struct offset_version){1, 0}), OFFSETS_STORED);
}

static void highest_counter_moves_on_to_the_next_epoch(void **state)
{
    (void)state;
    assert_int_equal(commit("G", "T", 0, 1, (struct offset_version){2, INT64_MAX}), OFFSETS_STORED);
    assert_ok(offsets_reset(offsets, "G", "T", 0, 0));
    assert_int_equal(version_of("G", "T", 0).epoch, 3);
    assert_int_equal(version_of("G", "T", 0).counter, 0);
}

static void queues_in_any_order_keep_their_own_offsets(void **state)
{
    (void)state;
    for (int32_t i = 0; i < 200; i++) {
        int32_t queue_id = i * 37 % 200;
        assert_int_equal(commit("G", "T", queue_id, 1000 + queue_id, V0), OFFSETS_STORED);
    }
    for (int32_t i = 0; i < 200; i++)
        assert_int_equal(stored("G", "T", i), 1000 + i);
}

/* ---- deleting ---- */

static void late_commit_to_a_deleted_topic_is_old_MD_05(void **state)
{
    (void)state;
    assert_int_equal(commit("G", "T", 0, 1000, V0), OFFSETS_STORED);
    assert_int_equal(commit("G", "Other", 0, 7, V0), OFFSETS_STORED);
    offsets_remove_topic(offsets, "T");
    assert_int_equal(stored("G", "T", 0), -1);
    assert_int_equal(stored("G", "Other", 0), 7);
    assert_int_equal(commit("G", "T", 0, 1000, V0), OFFSETS_VERSION_OLD);
    assert_int_equal(commit("G", "T", 5, 1000, V0), OFFSETS_VERSION_OLD); /* never committed */
    assert_int_equal(commit("H", "T", 0, 1000, V0), OFFSETS_VERSION_OLD);
    assert_int_equal(commit("G", "T", 0, 3, version_of("G", "T", 0)), OFFSETS_STORED);
    assert_int_equal(stored("G", "T", 0), 3);
}

static void deleting_a_topic_raises_above_every_version_in_it(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        assert_ok(offsets_reset(offsets, "G", "T", 3, i));
    assert_int_equal(commit("H", "T", 0, 1, V0), OFFSETS_STORED);
    offsets_remove_topic(offsets, "T");
    assert_int_equal(version_of("H", "T", 0).counter, 6);
    offsets_remove_topic(offsets, "T"); /* again, with nothing in it */
    assert_int_equal(version_of("H", "T", 0).counter, 7);
}

static void deleting_a_group_removes_its_progress_only(void **state)
{
    (void)state;
    assert_int_equal(commit("G", "A", 0, 1, V0), OFFSETS_STORED);
    assert_int_equal(commit("G", "B", 0, 2, V0), OFFSETS_STORED);
    assert_int_equal(commit("GG", "A", 0, 3, V0), OFFSETS_STORED);
    offsets_remove_group(offsets, "G");
    assert_int_equal(stored("G", "A", 0), -1);
    assert_int_equal(stored("G", "B", 0), -1);
    assert_int_equal(stored("GG", "A", 0), 3);
    assert_int_equal(commit("G", "A", 0, 9, V0), OFFSETS_VERSION_OLD);
}

/* ---- clamping ---- */

static int64_t end_of(void *arg, const char *topic, int32_t queue_id)
{
    (void)arg;
    return !strcmp(topic, "T") && queue_id == 0 ? 950 : 0;
}

static void offset_beyond_the_data_is_lowered_and_logged_ST_06(void **state)
{
    (void)state;
    assert_int_equal(commit("G", "T", 0, 1000, V0), OFFSETS_STORED);
    assert_int_equal(commit("H", "T", 0, 950, V0), OFFSETS_STORED);
    assert_int_equal(commit("G", "gone", 2, 5, V0), OFFSETS_STORED);
    assert_int_equal(offsets_clamp(offsets, end_of, NULL), 2);
    assert_int_equal(stored("G", "T", 0), 950);
    assert_int_equal(stored("H", "T", 0), 950);
    assert_int_equal(stored("G", "gone", 2), 0);
    assert_int_equal(sim_log_count(&sim, "offset_beyond_data"), 2);
    assert_int_equal(commit("G", "T", 0, 1000, V0), OFFSETS_VERSION_OLD); /* from before */
    assert_int_equal(commit("G", "T", 0, 951, version_of("G", "T", 0)), OFFSETS_STORED);
    assert_int_equal(commit("H", "T", 0, 960, V0), OFFSETS_STORED); /* was not touched */
    assert_int_equal(offsets_clamp(offsets, end_of, NULL), 2);
}

/* The lost offsets are given out anew: who had read them must look again. */
static void after_a_loss_every_version_is_old_and_progress_counts_up_to_the_end(void **state)
{
    (void)state;
    int64_t held;
    struct offset_version version;
    assert_int_equal(commit("G", "T", 0, 900, V0), OFFSETS_STORED);
    assert_int_equal(commit("H", "T", 0, 1000, V0), OFFSETS_STORED);
    assert_ok(offsets_reset(offsets, "K", "T", 0, 5));
    struct offset_version reset = version_of("K", "T", 0);
    assert_int_equal(offsets_begin_epoch(offsets, 0, end_of, NULL), 1);
    assert_int_equal(version_of("G", "T", 0).epoch, 1);
    assert_int_equal(version_of("none", "T", 0).epoch, 1);
    assert_int_equal(stored("H", "T", 0), 950);
    assert_int_equal(commit("G", "T", 0, 940, V0), OFFSETS_STORED); /* below the end: still true */
    assert_int_equal(stored("G", "T", 0), 940);
    assert_int_equal(offsets_commit(offsets, "G", "T", 0, 990, V0, &held, &version),
                     OFFSETS_VERSION_OLD);
    assert_int_equal(held, 950);
    assert_int_equal(commit("K", "T", 0, 7, V0), OFFSETS_VERSION_OLD); /* from before the reset */
    assert_int_equal(stored("K", "T", 0), 5);
    assert_int_equal(commit("K", "T", 0, 7, reset), OFFSETS_STORED);
    assert_ok(offsets_reset(offsets, "G", "T", 0, 1));
    assert_int_equal(commit("G", "T", 0, 945, V0), OFFSETS_VERSION_OLD);
    assert_int_equal(offsets_begin_epoch(offsets, 0, end_of, NULL), 0);
    assert_int_equal(commit("H", "T", 0, 950, V0), OFFSETS_VERSION_OLD); /* two lives ago */
}

/* ---- walking ---- */

struct seen {
    int count;
    int64_t sum;
    int stop_after;
};

static bool see(void *arg, const char *group, const char *topic, int32_t queue_id, int64_t offset)
{
    struct seen *seen = arg;
    assert_true(group[0] && topic[0] && queue_id >= 0);
    seen->count++;
    seen->sum += offset;
    return seen->count != seen->stop_after;
}

static void walk_gives_what_was_asked_for(void **state)
{
    (void)state;
    struct seen all = {.count = 0};
    struct seen group = {.count = 0};
    struct seen topic = {.count = 0};
    struct seen both = {.count = 0};
    struct seen stopped = {.stop_after = 2};
    assert_int_equal(commit("G", "A", 0, 1, V0), OFFSETS_STORED);
    assert_int_equal(commit("G", "A", 1, 10, V0), OFFSETS_STORED);
    assert_int_equal(commit("G", "B", 0, 100, V0), OFFSETS_STORED);
    assert_int_equal(commit("H", "A", 0, 1000, V0), OFFSETS_STORED);
    offsets_remove_topic(offsets, "C"); /* what is left of it is no progress */
    assert_ok(offsets_each(offsets, NULL, NULL, see, &all));
    assert_ok(offsets_each(offsets, "G", NULL, see, &group));
    assert_ok(offsets_each(offsets, NULL, "A", see, &topic));
    assert_ok(offsets_each(offsets, "G", "A", see, &both));
    assert_ok(offsets_each(offsets, NULL, NULL, see, &stopped));
    assert_int_equal(all.sum, 1111);
    assert_int_equal(group.sum, 111);
    assert_int_equal(topic.sum, 1011);
    assert_int_equal(both.sum, 11);
    assert_int_equal(stopped.count, 2);
}

/* ---- the file ---- */

static void progress_and_versions_survive_restarts(void **state)
{
    (void)state;
    assert_int_equal(commit("G", "T", 0, 10, V0), OFFSETS_STORED);
    assert_ok(offsets_reset(offsets, "G", "T", 1, 20));
    offsets_remove_topic(offsets, "deleted");
    offsets_remove_group(offsets, "left");
    assert_ok(offsets_persist(offsets, NULL));
    reopen();
    assert_int_equal(stored("G", "T", 0), 10);
    assert_int_equal(version_of("G", "T", 0).counter, 0);
    assert_int_equal(stored("G", "T", 1), 20);
    assert_int_equal(commit("G", "T", 1, 30, V0), OFFSETS_VERSION_OLD);
    assert_int_equal(commit("G", "deleted", 0, 30, V0), OFFSETS_VERSION_OLD);
    assert_int_equal(commit("left", "T", 0, 30, V0), OFFSETS_VERSION_OLD);
}

static void unchanged_table_writes_nothing(void **state)
{
    (void)state;
    assert_ok(offsets_persist(offsets, NULL));
    assert_false(fs_exists(sim.env.fs, PATH));
    assert_int_equal(commit("G", "T", 0, 10, V0), OFFSETS_STORED);
    assert_ok(offsets_persist(offsets, NULL));
    uint64_t calls = sim_fs_calls(sim.fs, SIM_FS_ANY);
    assert_int_equal(commit("G", "T", 0, 10, V0), OFFSETS_LOWER);
    assert_ok(offsets_persist(offsets, NULL));
    assert_true(sim_fs_calls(sim.fs, SIM_FS_ANY) == calls);
}

static void rocketmqs_file_with_unquoted_keys_is_read(void **state)
{
    (void)state;
    static const char text[] = "{\n\t\"offsetTable\":{\n\t\t\"TopicA@G\":{0:10,1:7\n\t\t},\n"
                               "\t\t\"%RETRY%G@G\":{0:3,\"5\":-1}\n\t}\n}";
    put_file(&sim, PATH, text, sizeof text - 1);
    reopen();
    assert_int_equal(stored("G", "TopicA", 0), 10);
    assert_int_equal(stored("G", "TopicA", 1), 7);
    assert_int_equal(stored("G", "%RETRY%G", 0), 3);
    assert_int_equal(stored("G", "%RETRY%G", 5), -1);
}

static void written_file_is_rocketmqs_shape_with_quoted_keys(void **state)
{
    (void)state;
    size_t len;
    assert_int_equal(commit("G", "T", 1, 7, V0), OFFSETS_STORED);
    assert_int_equal(commit("G", "T", 0, 10, V0), OFFSETS_STORED);
    assert_ok(offsets_persist(offsets, NULL));
    char *text = get_file(&sim, PATH, &len);
    assert_string_equal(text, "{\n\t\"offsetTable\":{\n\t\t\"T@G\":{\"0\":10,\"1\":7}\n\t}\n}\n");
    free(text);
}

static void file_with_what_is_no_progress_counts_as_damaged(void **state)
{
    (void)state;
    static const char *const bad[] = {"{}",
                                      "{\"offsetTable\":[]}",
                                      "{\"offsetTable\":{\"T\":{}}}",
                                      "{\"offsetTable\":{\"../x@G\":{}}}",
                                      "{\"offsetTable\":{\"T@G@H\":{}}}",
                                      "{\"offsetTable\":{\"T@G\":{\"-1\":1}}}",
                                      "{\"offsetTable\":{\"T@G\":{\"65536\":1}}}",
                                      "{\"offsetTable\":{\"T@G\":{\"0\":\"1\"}}}",
                                      "{\"offsetTable\":{\"T@G\":{\"0\":1,\"00\":2}}}",
                                      "{\"offsetTable\":{\"T@G\":7}}"};
    struct tern_error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_file(&sim, PATH, bad[i], strlen(bad[i]));
        offsets_destroy(offsets);
        assert_int_equal(offsets_create(&sim.env, PATH, &offsets, &err), TERN_CORRUPT);
    }
}

static void damaged_file_gives_way_to_the_generation_before_ST_20(void **state)
{
    (void)state;
    for (int damage = 0; damage < DAMAGE_COUNT; damage++) {
        char topic[16];
        snprintf(topic, sizeof topic, "T%d", damage);
        assert_ok(offsets_reset(offsets, "G", topic, 0, 10));
        assert_ok(offsets_persist(offsets, NULL));
        assert_ok(offsets_reset(offsets, "G", topic, 0, 20));
        assert_ok(offsets_persist(offsets, NULL));
        damage_file(&sim, PATH, (enum damage)damage);
        reopen();
        assert_int_equal(stored("G", topic, 0), 10);
        assert_int_equal(version_of("G", topic, 0).counter, 1); /* versions of that generation */
    }
}

static void both_generations_damaged_refuse_the_start_ST_20(void **state)
{
    (void)state;
    struct tern_error err;
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(commit("G", "T", 0, i, V0), OFFSETS_STORED);
        assert_ok(offsets_persist(offsets, NULL));
    }
    damage_file(&sim, PATH, DAMAGE_EMPTY);
    damage_file(&sim, PATH ".bak", DAMAGE_ZEROS);
    offsets_destroy(offsets);
    assert_int_equal(offsets_create(&sim.env, PATH, &offsets, &err), TERN_CORRUPT);
    assert_null(offsets);
    assert_true(fs_exists(sim.env.fs, PATH));
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

static void power_loss_during_persists_loses_at_most_the_last_ST_20(void **state)
{
    (void)state;
    int64_t written = 0;
    for (unsigned round = 0; round < 2000; round++) {
        struct power power = {.calls_left = (unsigned)rng_below(sim.env.rng, 40)};
        assert_int_equal(commit("G", "T", 0, written + 1, V0), OFFSETS_STORED);
        sim_fs_set_hook(sim.fs, cut_power, &power);
        enum tern_code code = offsets_persist(offsets, NULL);
        sim_fs_set_hook(sim.fs, NULL, NULL);
        sim_fs_power_loss(sim.fs, round % 2 ? SIM_TORN_PAGES : SIM_TORN_SECTORS);
        reopen();
        int64_t now = stored("G", "T", 0);
        if (written == 0 && now == -1)
            continue;
        assert_true(now == written + 1 || (code && now == written));
        written = now;
    }
    assert_true(written > 100);
}

static void failed_persist_is_done_again(void **state)
{
    (void)state;
    struct sim_fs_fault fault = {.op = SIM_FS_PWRITEV, .nth = 1, .errno_value = ENOSPC};
    struct tern_error err;
    assert_int_equal(commit("G", "T", 0, 5, V0), OFFSETS_STORED);
    sim_fs_fail(sim.fs, &fault);
    assert_int_equal(offsets_persist(offsets, &err), TERN_NO_SPACE);
    sim_fs_fail_clear(sim.fs);
    assert_ok(offsets_persist(offsets, NULL));
    reopen();
    assert_int_equal(stored("G", "T", 0), 5);
}

static void more_versions_than_the_companion_holds_still_keep_old_commits_out(void **state)
{
    (void)state;
    char topic[32];
    for (int i = 0; i < 2000; i++) {
        snprintf(topic, sizeof topic, "topic-%d", i);
        assert_int_equal(commit("G", topic, 0, 10, V0), OFFSETS_STORED);
        if (i % 2)
            offsets_remove_topic(offsets, topic);
        else
            assert_ok(offsets_reset(offsets, "G", topic, 0, 4));
    }
    assert_int_equal(commit("G", "untouched", 0, 9, V0), OFFSETS_STORED);
    assert_ok(offsets_persist(offsets, NULL));
    reopen();
    assert_int_equal(commit("G", "topic-0", 0, 11, V0), OFFSETS_VERSION_OLD);
    assert_int_equal(commit("G", "topic-1", 0, 11, V0), OFFSETS_VERSION_OLD);
    assert_int_equal(stored("G", "topic-0", 0), 4);
    assert_int_equal(stored("G", "untouched", 0), 9);
    struct offset_version now = version_of("G", "untouched", 0);
    assert_int_equal(commit("G", "untouched", 0, 12, now), OFFSETS_STORED);
    assert_ok(offsets_persist(offsets, NULL)); /* and it is fine again */
    reopen();
    assert_int_equal(stored("G", "untouched", 0), 12);
}

static void hundred_thousand_pairs_are_kept_and_reloaded(void **state)
{
    (void)state;
    char topic[32];
    char group[32];
    for (int i = 0; i < 100000; i++) {
        snprintf(topic, sizeof topic, "topic-%d", i % 1000);
        snprintf(group, sizeof group, "group-%d", i / 1000);
        assert_int_equal(commit(group, topic, i % 4, i, V0), OFFSETS_STORED);
    }
    assert_ok(offsets_persist(offsets, NULL));
    reopen();
    struct seen all = {.count = 0};
    assert_ok(offsets_each(offsets, NULL, NULL, see, &all));
    assert_int_equal(all.count, 100000);
    assert_int_equal(all.sum, INT64_C(100000) * 99999 / 2);
    assert_int_equal(stored("group-99", "topic-999", 3), 99999);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_committed_is_told_apart_from_offset_0_OF_04),
        TEST(lower_commit_is_ignored_and_logged_OF_11),
        TEST(lower_commits_are_logged_rarely_with_their_count),
        TEST(reset_sets_any_offset_and_makes_earlier_commits_old_OF_11),
        TEST(newer_version_wins_over_a_higher_offset),
        TEST(highest_counter_moves_on_to_the_next_epoch),
        TEST(queues_in_any_order_keep_their_own_offsets),
        TEST(late_commit_to_a_deleted_topic_is_old_MD_05),
        TEST(deleting_a_topic_raises_above_every_version_in_it),
        TEST(deleting_a_group_removes_its_progress_only),
        TEST(offset_beyond_the_data_is_lowered_and_logged_ST_06),
        TEST(after_a_loss_every_version_is_old_and_progress_counts_up_to_the_end),
        TEST(walk_gives_what_was_asked_for),
        TEST(progress_and_versions_survive_restarts),
        TEST(unchanged_table_writes_nothing),
        TEST(rocketmqs_file_with_unquoted_keys_is_read),
        TEST(written_file_is_rocketmqs_shape_with_quoted_keys),
        TEST(file_with_what_is_no_progress_counts_as_damaged),
        TEST(damaged_file_gives_way_to_the_generation_before_ST_20),
        TEST(both_generations_damaged_refuse_the_start_ST_20),
        TEST(power_loss_during_persists_loses_at_most_the_last_ST_20),
        TEST(failed_persist_is_done_again),
        TEST(more_versions_than_the_companion_holds_still_keep_old_commits_out),
        TEST(hundred_thousand_pairs_are_kept_and_reloaded),
    };
    return cmocka_run_group_tests_name("offsets", tests, NULL, NULL);
}
