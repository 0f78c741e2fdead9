/* What members of a set exchange besides the log, and what a peer may not make of it. */
#include "tests/unit/broker/broker_unit.h"
#include "tests/unit/broker/set_world.h"

/* ---- copying ---- */

static void slave_gets_everything_and_keeps_it_H_2_MD_04(void **state)
{
    (void)state;
    struct ha_held held = {0};
    put_topic(master, "T", 6);
    put_topic(master, "%RETRY%G", 1);
    put_group(master, "G", 3);
    commit(master, "G", 0, 100);
    assert_int_equal(queue_locks_lock(master->broker.locks, "G", "T", 1, "c1", true), QUEUE_LOCKED);
    slave->store.deletions_version = 3; /* of an earlier master */
    sync_nodes(master, slave, &held, false);
    assert_int_equal(queues_of(slave, "T"), 6);
    assert_int_equal(queues_of(slave, "%RETRY%G"), 1);
    assert_int_equal(queues_of(slave, "SELF_TEST_TOPIC"), 1);
    assert_int_equal(retries_of(slave, "G"), 3);
    assert_int_equal(stored(slave, "G", 0), 100);
    assert_int_equal(queue_locks_lock(slave->broker.locks, "G", "T", 1, "c2", true),
                     QUEUE_LOCK_OTHERS);
    assert_true(master->ops.topics_agree(master->ops.arg, &held));
    assert_int_equal(slave->store.deletions_version, 0);
    assert_true(slave->pokes > 0); /* registers anew */
    struct ha_held own = {0};
    slave->ops.own(slave->ops.arg, &own);
    assert_true(own.topics_version == held.topics_version);
    assert_true(own.groups_version == held.groups_version);
    close_node(slave);
    open_node(slave, ROLE_SLAVE);
    assert_int_equal(queues_of(slave, "T"), 6);
    assert_int_equal(retries_of(slave, "G"), 3);
    assert_int_equal(stored(slave, "G", 0), 100);
}

static void nothing_goes_over_the_wire_when_nothing_changes_MD_02(void **state)
{
    (void)state;
    struct ha_held held = {0};
    struct group_config config;
    put_topic(master, "T", 6);
    sync_nodes(master, slave, &held, false);
    /* A group that the slave met by itself does not make the tables differ. */
    assert_ok(groups_find_or_create(slave->broker.groups, "met", 3, &config, NULL));
    assert_ok(groups_persist(slave->broker.groups, NULL));
    assert_false(groups_dirty(slave->broker.groups));
    assert_int_equal(sync_nodes(master, slave, &held, false), 0);
    slave->ops.own(slave->ops.arg, &held); /* as after a restart of the slave */
    held.progress = 0;
    sync_nodes(master, slave, &held, false);
    assert_int_equal(retries_of(slave, "met"), 16);
    assert_true(master->ops.topics_agree(master->ops.arg, &held));
}

static void changes_are_told_once_they_are_made(void **state)
{
    (void)state;
    int before = master->ha.changes;
    put_topic(master, "T", 6);
    assert_true(master->ha.changes > before);
    before = master->ha.changes;
    put_group(master, "G", 3);
    assert_true(master->ha.changes > before);
    before = master->ha.changes;
    commit(master, "G", 0, 5);
    assert_int_equal(master->ha.changes, before + 1);
    assert_ok(offsets_reset(master->broker.offsets, "G", "T", 0, 1));
    assert_int_equal(master->ha.changes, before + 2);
    offsets_remove_topic(master->broker.offsets, "T");
    assert_int_equal(master->ha.changes, before + 3);
}

static void deleted_topic_loses_its_queues_and_progress_on_the_slave_MD_05(void **state)
{
    (void)state;
    struct ha_held held = {0};
    put_topic(master, "T", 6);
    commit(master, "G", 0, 400);
    sync_nodes(master, slave, &held, false);
    assert_ok(topics_remove(master->broker.topics, "T", 1, NULL));
    assert_ok(topics_persist(master->broker.topics, NULL));
    offsets_remove_topic(master->broker.offsets, "T");
    master->store.deletions[0] = (struct store_deletion){.topic = "T", .position = 777};
    master->store.deletion_count = 1;
    master->store.deletions_version = 1;
    assert_false(master->ops.topics_agree(master->ops.arg, &held));
    put_topic(master, "T", 2);
    sync_nodes(master, slave, &held, false);
    assert_int_equal(queues_of(slave, "T"), 2);
    assert_int_equal(slave->store.deletion_count, 1);
    assert_int_equal(slave->store.deletions[0].position, 777);
    assert_int_equal(stored(slave, "G", 0), -1);
}

/* Pulls that wait at the copy go by its progress (OF-07). */
static void raised_versions_are_told_to_the_pulls_that_wait(void **state)
{
    (void)state;
    struct ha_held held = {0};
    put_topic(master, "T", 6);
    commit(master, "G", 0, 100);
    sync_nodes(master, slave, &held, false);
    commit(master, "G", 0, 110);
    sync_nodes(master, slave, &held, false);
    assert_int_equal(slave->polls.told, 0);
    assert_ok(offsets_reset(master->broker.offsets, "G", "T", 0, 1));
    sync_nodes(master, slave, &held, false);
    assert_int_equal(slave->polls.told, 1);
    assert_string_equal(slave->polls.group, "G");
    assert_string_equal(slave->polls.topic, "T");
    assert_int_equal(slave->polls.queue_id, 0);
    assert_ok(offsets_reset(master->broker.offsets, "G", "T", 3, 5)); /* not known before */
    sync_nodes(master, slave, &held, false);
    assert_int_equal(slave->polls.told, 2);
    assert_int_equal(slave->polls.queue_id, 3);
    offsets_remove_topic(master->broker.offsets, "T");
    sync_nodes(master, slave, &held, false);
    assert_int_equal(slave->polls.told, 3);
    assert_string_equal(slave->polls.group, "");
    assert_string_equal(slave->polls.topic, "T");
    assert_int_equal(slave->polls.queue_id, -1);
    commit(slave, "H", 2, 490);
    assert_ok(slave->ops.lower(slave->ops.arg, 4000, NULL)); /* a cut */
    assert_int_equal(slave->polls.told, 4);
    assert_string_equal(slave->polls.topic, "");
    assert_ok(slave->ops.lower(slave->ops.arg, 4000, NULL));
    assert_int_equal(slave->polls.told, 4);
}

static void progress_flows_back_and_the_own_is_not_echoed(void **state)
{
    (void)state;
    struct ha_held down = {0}, up = {0};
    commit(master, "G", 0, 100);
    sync_nodes(master, slave, &down, false);
    assert_int_equal(sync_nodes(slave, master, &up, true), 1); /* it may have lost it */
    commit(master, "G", 0, 110);
    sync_nodes(master, slave, &down, false);
    assert_int_equal(sync_nodes(slave, master, &up, true), 0);
    commit(slave, "G", 0, 120);
    assert_true(set_tables_awaited(slave->broker.set_tables) > up.progress);
    assert_int_equal(sync_nodes(slave, master, &up, true), 1);
    assert_true(set_tables_awaited(slave->broker.set_tables) <= up.progress);
    assert_int_equal(stored(master, "G", 0), 120);
    sync_nodes(master, slave, &down, false);
    assert_true(set_tables_awaited(master->broker.set_tables) <= down.progress);
    assert_int_equal(sync_nodes(slave, master, &up, true), 0);
}

/* The master lost what it had answered; its slave has it from nobody else. */
static void lock_that_the_slave_handed_on_is_known_to_a_master_that_lived(void **state)
{
    (void)state;
    struct ha_held held = {0}, back = {0};
    struct queue_lock_answer one;
    struct queue_locks *locks = slave->broker.locks;
    put_topic(master, "T", 6);
    put_group(master, "G", 3);
    assert_int_equal(queue_locks_claim(master->broker.locks, "G", "T", 1, "c1",
                                       QUEUE_LOCK_GRANTS_ALL, NULL, &one),
                     QUEUE_LOCKED);
    sync_nodes(master, slave, &held, false);
    const struct queue_lock_claim gives_back = {.held = true, .grant = one.grant};
    queue_locks_release(locks, "G", "T", 1, "c1", &gives_back);
    assert_int_equal(
        queue_locks_claim(locks, "G", "T", 1, "c2", QUEUE_LOCK_GRANTS_FREED, NULL, NULL),
        QUEUE_LOCKED);
    sync_nodes(slave, master, &back, true);
    assert_int_equal(queue_locks_lock(master->broker.locks, "G", "T", 1, "c1", true),
                     QUEUE_LOCK_OTHERS);
}

static void master_that_begins_with_nothing_gets_what_was_merged_too(void **state)
{
    (void)state;
    char group[32];
    struct ha_held down = {0}, up = {0};
    enum { GROUPS = HA_PROGRESS_MAX + 500 }; /* more than one answer holds */
    for (int i = 0; i < GROUPS; i++) {
        snprintf(group, sizeof group, "group-%d", i);
        commit(master, group, 0, 100 + i);
    }
    sync_nodes(master, slave, &down, false);
    sync_nodes(slave, master, &up, true);
    close_node(master);
    sim_fs_power_loss(master->disk, SIM_TORN_NONE);
    assert_ok(fs_mkdirs(master->broker.env.fs, "/config"));
    open_node(master, ROLE_SYNC_MASTER);
    assert_int_equal(stored(master, "group-0", 0), -1);
    up.progress = 0; /* another life */
    sync_nodes(slave, master, &up, true);
    for (int i = 0; i < GROUPS; i++) {
        snprintf(group, sizeof group, "group-%d", i);
        assert_int_equal(stored(master, group, 0), 100 + i);
    }
}

static void many_entries_come_in_bounded_steps(void **state)
{
    (void)state;
    char group[32];
    struct ha_held held = {0};
    for (int i = 0; i < 7000; i++) {
        snprintf(group, sizeof group, "group-%d", i);
        commit(master, group, i % 4, i + 1);
        assert_int_equal(queue_locks_lock(master->broker.locks, group, "T", i % 4, "client", true),
                         QUEUE_LOCKED);
    }
    assert_in_range(sync_nodes(master, slave, &held, false), 4, 9);
    for (int i = 0; i < 7000; i += 13) {
        snprintf(group, sizeof group, "group-%d", i);
        assert_int_equal(stored(slave, group, i % 4), i + 1);
    }
    assert_int_equal(queue_locks_count(slave->broker.locks), 7000);
}

static void full_tables_fit_into_answers(void **state)
{
    (void)state;
    struct ha_held held = {0};
    struct topic_config *configs = calloc(TOPICS_MAX, sizeof *configs);
    assert_non_null(configs);
    size_t count = TOPICS_MAX - 10; /* system topics count, too */
    for (size_t i = 0; i < count; i++) {
        memset(configs[i].name, 'x', TOPIC_NAME_MAX);
        snprintf(configs[i].name, 8, "%07zu", i);
        configs[i].name[7] = 'x';
        configs[i].name_len = TOPIC_NAME_MAX;
        configs[i].read_queues = configs[i].write_queues = TOPIC_QUEUES_MAX;
        configs[i].perm = 6;
        configs[i].order = true;
    }
    assert_ok(topics_replace(master->broker.topics, configs, count, 77, NULL));
    free(configs);
    put_group(master, "G", 5);
    commit(master, "G", 0, 9);
    assert_in_range(sync_nodes(master, slave, &held, false), 1, 3);
    assert_int_equal(topics_count(slave->broker.topics), topics_count(master->broker.topics));
    assert_int_equal(retries_of(slave, "G"), 5);
    assert_int_equal(stored(slave, "G", 0), 9);
}

static void table_that_fits_into_no_answer_is_refused_and_said_once(void **state)
{
    (void)state;
    struct ha_held held = {0};
    struct tern_error err;
    enum tern_code code = TERN_OK;
    struct group_config *configs = calloc(GROUPS_MAX, sizeof *configs);
    assert_non_null(configs);
    char name[GROUP_NAME_MAX + 1];
    for (size_t i = 0; i < 70000; i++) {
        memset(name, 'x', GROUP_NAME_MAX);
        snprintf(name, 8, "%07zu", i);
        name[7] = 'x';
        group_config_init(&configs[i], name, GROUP_NAME_MAX);
    }
    assert_ok(groups_replace(master->broker.groups, configs, 70000, 77, NULL));
    free(configs);
    put_topic(master, "T", 3);
    for (int i = 0; i < 3; i++)
        (void)step(master, slave, &held, false, &code, &err);
    assert_int_equal(queues_of(slave, "T"), 3); /* the rest comes all the same */
    assert_int_equal(sim_log_count(&set_sim, "table_too_large"), 1);
    assert_true(held.groups_version == 0);
}

/* ---- what a peer may not do ---- */

static enum tern_code apply_progress(const Tern__Wire__ProgressEntry *entry,
                                     const Tern__Wire__LockEntry *lock, struct tern_error *err)
{
    Tern__Wire__HaTables tables = TERN__WIRE__HA_TABLES__INIT;
    Tern__Wire__ProgressEntry *progress[] = {(Tern__Wire__ProgressEntry *)(uintptr_t)entry};
    Tern__Wire__LockEntry *locks[] = {(Tern__Wire__LockEntry *)(uintptr_t)lock};
    struct ha_held held = {0};
    tables.has_progress = true;
    tables.progress_to = 5;
    tables.progress = progress;
    tables.n_progress = entry != NULL;
    tables.locks = locks;
    tables.n_locks = lock != NULL;
    enum tern_code code = slave->ops.apply(slave->ops.arg, &tables, &held, err);
    assert_true(held.progress == (code ? 0 : 5));
    return code;
}

#define BYTES(text) frame_bytes(text, strlen(text))

static void entries_out_of_grammar_or_range_are_refused_whole(void **state)
{
    (void)state;
    struct tern_error err;
    Tern__Wire__OffsetVersion high = TERN__WIRE__OFFSET_VERSION__INIT;
    Tern__Wire__ProgressEntry good = TERN__WIRE__PROGRESS_ENTRY__INIT, bad;
    Tern__Wire__LockEntry good_lock = TERN__WIRE__LOCK_ENTRY__INIT, bad_lock;
    high.epoch = UINT64_MAX;
    good.group = good_lock.group = BYTES("G");
    good.topic = good_lock.topic = BYTES("T");
    good.offset = 7;
    good_lock.client_id = BYTES("c");
    good_lock.remaining_ms = 1000;
    struct {
        Tern__Wire__ProgressEntry entry;
    } bads[8];
    for (int i = 0; i < 8; i++)
        bads[i].entry = good;
    bads[0].entry.group = BYTES("../x");
    bads[1].entry.topic = BYTES("");
    bads[2].entry.queue_id = -2;
    bads[3].entry.queue_id = TOPIC_QUEUES_MAX;
    bads[4].entry.offset = -1;
    bads[5].entry.version = &high;
    bads[6].entry.queue_id = -1; /* a floor of both */
    bads[7].entry.before = &high;
    for (int i = 0; i < 8; i++) {
        bad = bads[i].entry;
        assert_int_equal(apply_progress(&bad, NULL, &err), TERN_INVALID);
    }
    bad_lock = good_lock;
    bad_lock.client_id = BYTES("a\nb");
    assert_int_equal(apply_progress(&good, &bad_lock, &err), TERN_INVALID);
    bad_lock = good_lock;
    bad_lock.queue_id = -1;
    assert_int_equal(apply_progress(&good, &bad_lock, &err), TERN_INVALID);
    bad_lock = good_lock;
    bad_lock.grant = -1;
    assert_int_equal(apply_progress(&good, &bad_lock, &err), TERN_INVALID);
    bad_lock = good_lock;
    bad_lock.given_back = -1;
    assert_int_equal(apply_progress(&good, &bad_lock, &err), TERN_INVALID);
    assert_int_equal(stored(slave, "G", 0), -1); /* nor the good ones beside them */
    assert_ok(apply_progress(&good, &good_lock, &err));
    assert_int_equal(stored(slave, "G", 0), 7);
}

static void bad_topic_leaves_the_old_table_and_held_MD_01(void **state)
{
    (void)state;
    struct ha_held held = {0};
    struct tern_error err;
    Tern__Wire__HaTables tables = TERN__WIRE__HA_TABLES__INIT;
    Tern__Wire__TopicConfig one = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__TopicConfig *all[] = {&one, &one};
    put_topic(master, "T", 6);
    sync_nodes(master, slave, &held, false);
    uint64_t version = held.topics_version;
    tables.has_topics = true;
    tables.topics_version = version + 1;
    tables.topics = all;
    tables.n_topics = 1;
    one.perm = 6;
    one.name = BYTES("a/b");
    assert_int_equal(slave->ops.apply(slave->ops.arg, &tables, &held, &err), TERN_INVALID);
    one.name = BYTES("U");
    one.read_queues = TOPIC_QUEUES_MAX + 1;
    assert_int_equal(slave->ops.apply(slave->ops.arg, &tables, &held, &err), TERN_INVALID);
    one.read_queues = 4;
    tables.n_topics = 2;
    assert_int_equal(slave->ops.apply(slave->ops.arg, &tables, &held, &err), TERN_INVALID);
    assert_contains(err.text, "twice");
    assert_true(held.topics_version == version);
    assert_int_equal(queues_of(slave, "T"), 6);
    assert_int_equal(queues_of(slave, "U"), -1);
}

static void open_master_takes_no_tables(void **state)
{
    (void)state;
    struct ha_held held = {0};
    struct tern_error err;
    enum tern_code code = TERN_OK;
    put_topic(slave, "X", 1);
    topics_follow(slave->broker.topics, false);
    put_topic(slave, "Y", 1);
    assert_true(step(slave, master, &held, false, &code, &err));
    assert_int_equal(code, TERN_INVALID);
    assert_int_equal(queues_of(master, "Y"), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_world_begin, set_world_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(slave_gets_everything_and_keeps_it_H_2_MD_04),
        TEST(nothing_goes_over_the_wire_when_nothing_changes_MD_02),
        TEST(changes_are_told_once_they_are_made),
        TEST(deleted_topic_loses_its_queues_and_progress_on_the_slave_MD_05),
        TEST(raised_versions_are_told_to_the_pulls_that_wait),
        TEST(progress_flows_back_and_the_own_is_not_echoed),
        TEST(lock_that_the_slave_handed_on_is_known_to_a_master_that_lived),
        TEST(master_that_begins_with_nothing_gets_what_was_merged_too),
        TEST(many_entries_come_in_bounded_steps),
        TEST(full_tables_fit_into_answers),
        TEST(table_that_fits_into_no_answer_is_refused_and_said_once),
        TEST(entries_out_of_grammar_or_range_are_refused_whole),
        TEST(bad_topic_leaves_the_old_table_and_held_MD_01),
        TEST(open_master_takes_no_tables),
    };
    return cmocka_run_group_tests_name("set_tables", tests, NULL, NULL);
}
