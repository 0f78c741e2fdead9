/* Copies of the offset table: what has changed, merging, recoveries and cuts on one side. */
#include "tests/unit/broker/broker_unit.h"

#include "base/rng.h"
#include "broker/offsets.h"

#define V(e, c) ((struct offset_version){e, c})
#define V0 V(0, 0)

enum { TABLES = 3, COPY_MAX = 100000 };

static struct sim_env sim;
static struct env envs[TABLES];
static struct offsets *tables[TABLES];

static void open_table(int i)
{
    assert_ok(offsets_create(&envs[i], "/config/consumerOffset.json", &tables[i], NULL));
}

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 31);
    for (int i = 0; i < TABLES; i++) {
        sim_env_machine(&sim, &envs[i]);
        assert_ok(fs_mkdirs(envs[i].fs, "/config"));
        open_table(i);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < TABLES; i++)
        offsets_destroy(tables[i]);
    sim_env_fini(&sim);
    return 0;
}

static enum offsets_commit_result commit(int i, const char *group, const char *topic, int32_t queue,
                                         int64_t offset, struct offset_version version)
{
    int64_t held;
    struct offset_version held_version;
    return offsets_commit(tables[i], group, topic, queue, offset, version, &held, &held_version);
}

/* -1: no progress. */
static int64_t stored(int i, const char *group, const char *topic, int32_t queue)
{
    int64_t offset;
    struct offset_version version;
    return offsets_query(tables[i], group, topic, queue, &offset, &version) ? offset : -1;
}

static struct offset_version version_of(int i, const char *group, const char *topic, int32_t queue)
{
    int64_t offset;
    struct offset_version version;
    offsets_query(tables[i], group, topic, queue, &offset, &version);
    return version;
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

struct copying {
    int to;
    bool refuse; /* a merge that must not happen */
};

static bool copy_one(void *arg, const struct offset_change *change)
{
    struct copying *copying = arg;
    assert_ok(offsets_merge(tables[copying->to], change));
    return true;
}

/* Gives what changed after *seen, as the wire does. */
static void give(int from, int to, uint64_t *seen, bool skip_merged)
{
    struct copying copying = {.to = to};
    *seen = offsets_changes(tables[from], *seen, COPY_MAX, skip_merged, copy_one, &copying);
}

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

static int64_t end_450(void *arg, const char *topic, int32_t queue)
{
    (void)arg;
    (void)topic;
    (void)queue;
    return 450;
}

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

/* ---- in any order ---- */

struct held {
    struct offset_version version;
    int64_t offset;
};

enum { R_GROUPS = 3, R_TOPICS = 3, R_QUEUES = 2, R_SLOTS = R_GROUPS * R_TOPICS * R_QUEUES };

static const char *const groups[] = {"G0", "G1", "G2"};
static const char *const topics[] = {"T0", "T1", "T2"};

static void look(int i, struct held out[R_SLOTS])
{
    for (int s = 0; s < R_SLOTS; s++) {
        out[s].offset = -1;
        offsets_query(tables[i], groups[s % 3], topics[s / 3 % 3], s / 9, &out[s].offset,
                      &out[s].version);
    }
}

/* Versions never fall, and offsets only with a rise of them. */
static void check_forward(const struct held before[R_SLOTS], const struct held after[R_SLOTS])
{
    for (int s = 0; s < R_SLOTS; s++) {
        int order = offset_version_compare(after[s].version, before[s].version);
        assert_true(order >= 0);
        if (order == 0)
            assert_true(after[s].offset >= before[s].offset);
    }
}

/* Table 0 is the master's. */
static void exchange(uint64_t seen[TABLES][2], int slave)
{
    give(slave, 0, &seen[slave][0], false);
    give(0, slave, &seen[slave][1], false);
}

static void exchange_all(uint64_t seen[TABLES][2])
{
    for (int turn = 0; turn < 2; turn++)
        for (int i = 1; i < TABLES; i++)
            exchange(seen, i);
}

static void random_change(struct rng *rng, int table, uint64_t seen[TABLES][2])
{
    int s = (int)rng_below(rng, R_SLOTS);
    const char *group = groups[s % 3], *topic = topics[s / 3 % 3];
    uint64_t kind = table == 0 ? rng_below(rng, 16) : 99; /* a slave only takes commits */
    if (kind == 0) {
        assert_ok(offsets_reset(tables[0], group, topic, s / 9, (int64_t)rng_below(rng, 900)));
    } else if (kind == 1) {
        offsets_remove_topic(tables[0], topic);
    } else if (kind == 2) {
        offsets_remove_group(tables[0], group);
    } else if (kind == 3) { /* opens: merged before, and members go on meanwhile */
        exchange_all(seen);
        commit(1, group, topic, s / 9, 1000, version_of(1, group, topic, s / 9));
        assert_true(offsets_begin_epoch(tables[0], 0, end_450, NULL) >= 0);
        exchange_all(seen);
    } else {
        commit(table, group, topic, s / 9, (int64_t)rng_below(rng, 1000),
               version_of(table, group, topic, s / 9));
    }
}

static void expect_one_table(void)
{
    struct held first[R_SLOTS], other[R_SLOTS];
    look(0, first);
    for (int i = 1; i < TABLES; i++) {
        look(i, other);
        for (int s = 0; s < R_SLOTS; s++) {
            assert_int_equal(first[s].offset, other[s].offset);
            assert_int_equal(offset_version_compare(first[s].version, other[s].version), 0);
        }
    }
}

static void tables_that_exchange_in_any_order_become_one_and_never_fall(void **state)
{
    (void)state;
    uint64_t seen[TABLES][2] = {{0}};
    offsets_set_recovered(tables[0], end_450, NULL);
    for (int round = 0; round < 2000; round++) {
        struct held before[R_SLOTS], after[R_SLOTS];
        for (uint64_t i = rng_below(sim.env.rng, 6); i > 0; i--) {
            int table = (int)rng_below(sim.env.rng, TABLES);
            look(table, before);
            random_change(sim.env.rng, table, seen);
            look(table, after);
            check_forward(before, after);
        }
        for (uint64_t i = rng_below(sim.env.rng, 4); i > 0; i--) {
            int slave = 1 + (int)rng_below(sim.env.rng, TABLES - 1);
            bool up = rng_below(sim.env.rng, 2);
            look(up ? 0 : slave, before);
            give(up ? slave : 0, up ? 0 : slave, &seen[slave][!up], false);
            look(up ? 0 : slave, after);
            check_forward(before, after);
        }
        if (round % 10 == 0) {
            exchange_all(seen);
            expect_one_table();
        }
    }
}

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

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
        TEST(tables_that_exchange_in_any_order_become_one_and_never_fall),
    };
    return cmocka_run_group_tests_name("offsets_merge", tests, NULL, NULL);
}
