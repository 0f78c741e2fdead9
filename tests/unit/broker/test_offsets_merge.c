/* Copies of the offset table: what has changed, merging, recoveries and cuts on one side. */
#include "tests/unit/broker/offsets_world.h"

#define V(e, c) ((struct offset_version){e, c})
#define V0 V(0, 0)

/* -1: no progress. */
static int64_t stored(int i, const char *group, const char *topic, int32_t queue)
{
    int64_t offset;
    struct offset_version version;
    return offsets_query(tables[i], group, topic, queue, &offset, &version) ? offset : -1;
}

/* ---- what has changed ---- */

struct listing {
    uint32_t count, refuse_at; /* 0: never */
    uint64_t last_number;
    int64_t sum;
    char first[64];
};

static bool list(void *arg, const struct offset_change *change)
{
    struct listing *listing = arg;
    assert_true(change->number > listing->last_number);
    if (listing->refuse_at && listing->count == listing->refuse_at)
        return false;
    if (listing->count++ == 0)
        snprintf(listing->first, sizeof listing->first, "%s@%s/%d", change->topic, change->group,
                 (int)change->queue_id);
    listing->last_number = change->number;
    listing->sum += change->offset;
    return true;
}

static void changes_come_once_and_oldest_first(void **state)
{
    (void)state;
    struct listing all = {.count = 0}, none = {.count = 0}, rest = {.count = 0};
    commit(0, "G", "A", 0, 1, V0);
    commit(0, "G", "B", 0, 10, V0);
    commit(0, "G", "A", 0, 2, V0);
    uint64_t to = offsets_changes(tables[0], 0, 100, false, list, &all);
    assert_int_equal(all.count, 2);
    assert_string_equal(all.first, "B@G/0");
    assert_int_equal(all.sum, 12);
    assert_true(to == offsets_change_number(tables[0]));
    assert_true(offsets_changes(tables[0], to, 100, false, list, &none) == to);
    assert_int_equal(none.count, 0);
    commit(0, "G", "A", 3, 7, V0);
    offsets_changes(tables[0], to, 100, false, list, &rest);
    assert_int_equal(rest.count, 1);
    assert_string_equal(rest.first, "A@G/3");
}

static void refused_change_comes_again(void **state)
{
    (void)state;
    struct listing some = {.refuse_at = 5}, rest = {.count = 0};
    for (int i = 0; i < 12; i++)
        commit(0, "G", "A", i, 1, V0);
    uint64_t to = offsets_changes(tables[0], 0, 100, false, list, &some);
    assert_int_equal(some.count, 5);
    assert_true(to == some.last_number);
    offsets_changes(tables[0], to, 100, false, list, &rest);
    assert_int_equal(rest.count, 7);
}

static void number_of_another_life_counts_as_none(void **state)
{
    (void)state;
    struct listing all = {.count = 0};
    commit(0, "G", "A", 0, 1, V0);
    uint64_t to = offsets_changes(tables[0], 1000000, 100, false, list, &all);
    assert_int_equal(all.count, 1);
    assert_true(to == offsets_change_number(tables[0]));
}

static void what_was_loaded_is_news_to_a_copy(void **state)
{
    (void)state;
    struct listing all = {.count = 0};
    commit(0, "G", "A", 0, 5, V0);
    offsets_remove_topic(tables[0], "D");
    assert_ok(offsets_persist(tables[0], NULL));
    offsets_destroy(tables[0]);
    open_table(0);
    offsets_changes(tables[0], 0, 100, false, list, &all);
    assert_int_equal(all.count, 2);
    assert_int_equal(all.sum, 5);
}

static void hundred_thousand_pairs_are_given_in_one_pass_while_others_commit(void **state)
{
    (void)state;
    char topic[32], group[32];
    struct listing all = {.count = 0};
    uint64_t to = 0;
    for (int i = 0; i < 100000; i++) {
        snprintf(topic, sizeof topic, "topic-%d", i % 1000);
        snprintf(group, sizeof group, "group-%d", i / 1000);
        assert_int_equal(commit(0, group, topic, 0, 1, V0), OFFSETS_STORED);
    }
    uint64_t goal = offsets_change_number(tables[0]);
    int calls = 0;
    while (to < goal) {
        struct listing some = {.last_number = to};
        to = offsets_changes(tables[0], to, 2000, false, list, &some);
        assert_true(some.count <= 2000 && to >= some.last_number);
        all.count += some.count;
        commit(0, "group-99", "topic-999", 0, ++calls + 1, V0); /* moves the last one on */
    }
    assert_int_equal(all.count, 100000);
    assert_int_equal(calls, 50);
}

/* ---- merging ---- */

static void sync_all(int from, int to)
{
    uint64_t seen = 0;
    give(from, to, &seen, false);
}

static void newer_progress_wins_on_both_sides_MD_07(void **state)
{
    (void)state;
    commit(0, "G", "T", 0, 100, V0); /* the master's, when it died */
    sync_all(0, 1);
    commit(1, "G", "T", 0, 10000, V0); /* at the slave, meanwhile */
    commit(0, "G", "T", 1, 7, V0);
    sync_all(0, 1);
    sync_all(1, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stored(i, "G", "T", 0), 10000);
        assert_int_equal(stored(i, "G", "T", 1), 7);
    }
}

static void reset_wins_over_a_higher_offset_of_the_version_before(void **state)
{
    (void)state;
    commit(0, "G", "T", 0, 100, V0);
    sync_all(0, 1);
    assert_ok(offsets_reset(tables[0], "G", "T", 0, 40));
    commit(1, "G", "T", 0, 120, V0);
    sync_all(1, 0);
    sync_all(0, 1);
    assert_int_equal(stored(0, "G", "T", 0), 40);
    assert_int_equal(stored(1, "G", "T", 0), 40);
    assert_int_equal(commit(1, "G", "T", 0, 130, V0), OFFSETS_VERSION_OLD);
}

static void deletion_removes_the_copys_progress_and_keeps_newer_MD_05(void **state)
{
    (void)state;
    commit(0, "G", "T", 0, 1000, V0);
    commit(0, "G", "Other", 0, 5, V0);
    sync_all(0, 1);
    offsets_remove_topic(tables[0], "T");
    commit(0, "G", "T", 1, 3, version_of(0, "G", "T", 1)); /* made again */
    sync_all(0, 1);
    assert_int_equal(stored(1, "G", "T", 0), -1);
    assert_int_equal(stored(1, "G", "T", 1), 3);
    assert_int_equal(stored(1, "G", "Other", 0), 5);
    assert_int_equal(commit(1, "G", "T", 0, 1000, V0), OFFSETS_VERSION_OLD);
    sync_all(1, 0); /* nothing comes back */
    assert_int_equal(stored(0, "G", "T", 0), -1);
    offsets_remove_group(tables[0], "G");
    sync_all(0, 1);
    assert_int_equal(stored(1, "G", "Other", 0), -1);
}

static void what_was_merged_is_not_given_back(void **state)
{
    (void)state;
    uint64_t seen = 0, back = 0;
    struct listing all = {.count = 0};
    commit(0, "G", "T", 0, 100, V0);
    give(0, 1, &seen, false);
    back = offsets_changes(tables[1], 0, 100, true, list, &all);
    assert_int_equal(all.count, 0);
    assert_true(back == offsets_last_change(tables[1]));
    assert_int_equal(offsets_change_number(tables[1]), 0);
    commit(1, "G", "T", 0, 101, V0);
    offsets_changes(tables[1], back, 100, true, list, &all);
    assert_int_equal(all.count, 1);
    uint64_t before = offsets_last_change(tables[1]);
    sync_all(1, 0);
    sync_all(0, 1); /* known already: no change */
    assert_true(offsets_last_change(tables[1]) == before);
}

/* ---- recoveries and cuts ---- */

static void copys_progress_of_the_version_before_counts_up_to_the_recovered_end_H_5(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        const char *topic = order ? "U" : "T";
        commit(0, "G", topic, 0, 400, V0);
        commit(0, "H", topic, 0, 400, V0);
        sync_all(0, 1);
        commit(1, "G", topic, 0, 500, V0); /* beyond what is recovered */
        commit(1, "H", topic, 0, 430, V0);
    }
    assert_int_equal(offsets_begin_epoch(tables[0], 7, end_450, NULL), 0);
    assert_int_equal(version_of(0, "G", "T", 0).epoch, 7);
    sync_all(1, 0); /* first what the slave has… */
    assert_int_equal(stored(0, "G", "T", 0), 450);
    assert_int_equal(stored(0, "H", "T", 0), 430);
    sync_all(0, 1);
    assert_int_equal(stored(1, "G", "T", 0), 450);
    assert_int_equal(stored(1, "H", "T", 0), 430);
    assert_int_equal(version_of(1, "H", "T", 0).epoch, 7);
}

static void recovered_version_that_comes_first_keeps_the_copys_progress_H_5(void **state)
{
    (void)state;
    uint64_t seen;
    commit(0, "G", "T", 0, 400, V0);
    commit(0, "H", "T", 0, 400, V0);
    sync_all(0, 1);
    commit(1, "G", "T", 0, 500, V0);
    commit(1, "H", "T", 0, 430, V0);
    assert_int_equal(offsets_begin_epoch(tables[0], 0, end_450, NULL), 0);
    sync_all(0, 1); /* before the slave could say what it has */
    assert_int_equal(stored(1, "G", "T", 0), 450);
    assert_int_equal(stored(1, "H", "T", 0), 430);
    seen = 0;
    give(1, 0, &seen, true); /* and it is news for the master */
    assert_int_equal(stored(0, "G", "T", 0), 450);
    assert_int_equal(stored(0, "H", "T", 0), 430);
    assert_int_equal(commit(1, "H", "T", 0, 440, V0), OFFSETS_STORED); /* a client's, likewise */
}

static void epoch_number_is_at_least_the_given_one_and_above_all(void **state)
{
    (void)state;
    assert_int_equal(offsets_begin_epoch(tables[0], 5, end_450, NULL), 0);
    assert_int_equal(version_of(0, "G", "T", 0).epoch, 5);
    commit(0, "G", "T", 0, 1, V(9, 3));
    assert_int_equal(offsets_begin_epoch(tables[0], 6, end_450, NULL), 0);
    assert_int_equal(version_of(0, "G", "T", 0).epoch, 10);
}

static enum tern_code end_at_cut(void *arg, const char *topic, int32_t queue, int64_t *out,
                                 struct tern_error *err)
{
    (void)queue;
    if (!strcmp(topic, arg))
        return error_set(err, TERN_IO, "cannot read");
    *out = 100;
    return TERN_OK;
}

static void cut_lowers_what_is_beyond_and_makes_it_win(void **state)
{
    (void)state;
    uint32_t lowered = 0;
    commit(1, "G", "T", 0, 150, V0);
    commit(1, "G", "T", 1, 90, V0);
    sync_all(1, 0);
    assert_ok(offsets_lower(tables[1], end_at_cut, "none", &lowered, NULL));
    assert_int_equal(lowered, 1);
    assert_int_equal(stored(1, "G", "T", 0), 100);
    assert_int_equal(version_of(1, "G", "T", 1).counter, 0);
    sync_all(1, 0);
    assert_int_equal(stored(0, "G", "T", 0), 100);
    assert_int_equal(commit(0, "G", "T", 0, 150, V0), OFFSETS_VERSION_OLD);
}

static void cut_that_cannot_be_looked_up_says_so(void **state)
{
    (void)state;
    struct tern_error err;
    commit(1, "G", "T", 0, 150, V0);
    assert_int_equal(offsets_lower(tables[1], end_at_cut, "T", NULL, &err), TERN_IO);
    assert_contains(err.text, "cannot read");
    assert_int_equal(stored(1, "G", "T", 0), 150);
}

static void forgotten_table_is_empty_also_after_a_restart(void **state)
{
    (void)state;
    struct listing all = {.count = 0};
    commit(1, "G", "T", 0, 150, V(3, 0));
    offsets_remove_topic(tables[1], "D");
    assert_int_equal(offsets_begin_epoch(tables[1], 0, end_450, NULL), 0);
    assert_ok(offsets_forget(tables[1], NULL));
    offsets_changes(tables[1], 0, 100, false, list, &all);
    assert_int_equal(all.count, 0);
    offsets_destroy(tables[1]);
    open_table(1);
    assert_int_equal(stored(1, "G", "T", 0), -1);
    assert_int_equal(commit(1, "G", "D", 0, 1, V0), OFFSETS_STORED);
}

/* ---- what survives ---- */

static void merged_progress_and_floors_survive_a_kill(void **state)
{
    (void)state;
    commit(0, "G", "T", 0, 100, V0);
    commit(0, "G", "Gone", 0, 100, V0);
    sync_all(0, 1);
    offsets_remove_topic(tables[0], "Gone");
    assert_int_equal(offsets_begin_epoch(tables[0], 4, end_450, NULL), 0);
    sync_all(0, 1);
    offsets_destroy(tables[1]); /* nothing was persisted */
    open_table(1);
    assert_int_equal(stored(1, "G", "T", 0), 100);
    assert_int_equal(version_of(1, "G", "T", 0).epoch, 4);
    assert_int_equal(version_of(1, "new", "T", 0).epoch, 4);
    assert_int_equal(stored(1, "G", "Gone", 0), -1);
    assert_int_equal(commit(1, "G", "Gone", 0, 100, V0), OFFSETS_VERSION_OLD);
}

/* Versions that do not fit into the companion must not make a copy's offsets outbid its master's.
 */
static void copy_with_many_versions_reads_them_back_too_low_not_too_high(void **state)
{
    (void)state;
    char topic[32];
    offsets_set_copy(tables[1], true);
    for (int i = 0; i < 2000; i++) {
        snprintf(topic, sizeof topic, "topic-%d", i);
        commit(1, "G", topic, 0, 500, i % 2 ? V0 : V(5, 0));
    }
    assert_ok(offsets_persist(tables[1], NULL));
    offsets_destroy(tables[1]);
    open_table(1);
    assert_int_equal(stored(1, "G", "topic-1", 0), 500);
    assert_int_equal(version_of(1, "G", "topic-1", 0).epoch, 0);
    commit(0, "G", "topic-1", 0, 450, V(5, 0));
    sync_all(0, 1);
    sync_all(1, 0);
    assert_int_equal(stored(0, "G", "topic-1", 0), 450);
    assert_int_equal(stored(1, "G", "topic-1", 0), 450);
}

/* ---- recoveries that come late ---- */

/* It was answered at the slave, between the merging and the opening of its master. */
static void first_progress_of_a_queue_that_came_too_late_for_the_recovery_is_kept_H_5(void **state)
{
    (void)state;
    offsets_set_recovered(tables[0], end_450, NULL);
    commit(0, "G", "T", 0, 1, V0);
    offsets_remove_topic(tables[0], "Gone");
    assert_int_equal(offsets_begin_epoch(tables[0], 3, end_450, NULL), 0);
    commit(1, "G", "T", 1, 70, V0);
    commit(1, "G", "T", 2, 700, V0);
    commit(1, "G", "Gone", 0, 70, V0);
    sync_all(1, 0);
    sync_all(0, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stored(i, "G", "T", 1), 70);
        assert_int_equal(stored(i, "G", "T", 2), 450);
        assert_int_equal(version_of(i, "G", "T", 1).epoch, 3);
        assert_int_equal(stored(i, "G", "Gone", 0), -1);
    }
    assert_int_equal(commit(0, "H", "T", 1, 80, V0), OFFSETS_STORED); /* a client's, likewise */
    assert_int_equal(version_of(0, "H", "T", 1).epoch, 3);
    assert_int_equal(commit(0, "H", "T", 1, 460, V0), OFFSETS_VERSION_OLD);
}

/* MD-07: the master dies once more before the slave has heard of its recovery */
static void recovery_of_an_earlier_life_still_keeps_the_copys_progress_H_5(void **state)
{
    (void)state;
    offsets_set_recovered(tables[0], end_450, NULL);
    commit(0, "G", "T", 0, 400, V0);
    commit(0, "H", "T", 0, 400, V0);
    commit(0, "R", "T", 0, 400, V0);
    sync_all(0, 1);
    assert_ok(offsets_reset(tables[0], "R", "T", 0, 10));
    offsets_note_recovered_at(tables[0], 7000);
    assert_int_equal(offsets_begin_epoch(tables[0], 3, end_450, NULL), 0);
    commit(0, "New", "T", 0, 5, V(3, 0));
    assert_ok(offsets_persist(tables[0], NULL));
    for (int life = 0; life < 2; life++) { /* also over a life in which nothing happened */
        offsets_destroy(tables[0]);
        open_table(0);
        offsets_set_recovered(tables[0], end_450, NULL);
        assert_int_equal(offsets_recovered_at(tables[0]), 7000);
        assert_ok(offsets_take_up_recovery(tables[0]));
        commit(0, "G", "T", 1, 1 + life, V(3, 0));
        assert_ok(offsets_persist(tables[0], NULL));
    }
    commit(1, "G", "T", 0, 500, V0);
    commit(1, "H", "T", 0, 430, V0);
    commit(1, "R", "T", 0, 440, V0); /* from before its reset */
    commit(1, "G", "T", 2, 70, V0);
    sync_all(1, 0);
    sync_all(0, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stored(i, "G", "T", 0), 450);
        assert_int_equal(stored(i, "H", "T", 0), 430);
        assert_int_equal(stored(i, "R", "T", 0), 10);
        assert_int_equal(stored(i, "G", "T", 2), 70);
        assert_int_equal(stored(i, "New", "T", 0), 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(changes_come_once_and_oldest_first),
        TEST(refused_change_comes_again),
        TEST(number_of_another_life_counts_as_none),
        TEST(what_was_loaded_is_news_to_a_copy),
        TEST(hundred_thousand_pairs_are_given_in_one_pass_while_others_commit),
        TEST(newer_progress_wins_on_both_sides_MD_07),
        TEST(reset_wins_over_a_higher_offset_of_the_version_before),
        TEST(deletion_removes_the_copys_progress_and_keeps_newer_MD_05),
        TEST(what_was_merged_is_not_given_back),
        TEST(copys_progress_of_the_version_before_counts_up_to_the_recovered_end_H_5),
        TEST(recovered_version_that_comes_first_keeps_the_copys_progress_H_5),
        TEST(epoch_number_is_at_least_the_given_one_and_above_all),
        TEST(cut_lowers_what_is_beyond_and_makes_it_win),
        TEST(cut_that_cannot_be_looked_up_says_so),
        TEST(forgotten_table_is_empty_also_after_a_restart),
        TEST(merged_progress_and_floors_survive_a_kill),
        TEST(copy_with_many_versions_reads_them_back_too_low_not_too_high),
        TEST(first_progress_of_a_queue_that_came_too_late_for_the_recovery_is_kept_H_5),
        TEST(recovery_of_an_earlier_life_still_keeps_the_copys_progress_H_5),
    };
    return cmocka_run_group_tests_name("offsets_merge", tests, NULL, NULL);
}
