/* The tables of a master that starts, of a slave whose log is cut, and over disks that fail. */
#include "tests/unit/broker/broker_unit.h"
#include "tests/unit/broker/set_world.h"

#include <errno.h>

/* ---- a master that starts ---- */

static void recovering_master_keeps_its_newer_table_and_takes_newer_ones(void **state)
{
    (void)state;
    struct ha_held down = {0}, up = {0};
    put_topic(master, "T", 6);
    sync_nodes(master, slave, &down, false);
    put_topic(master, "acknowledged", 2); /* then it was killed */
    close_node(master);
    open_node(master, ROLE_SYNC_MASTER);
    master->ha.state = TERN__WIRE__HA_STATE__HA_RECOVERING;
    sync_nodes(slave, master, &up, false);
    assert_int_equal(queues_of(master, "acknowledged"), 2);
    assert_true(slave->ops.topics_agree(slave->ops.arg, &up));
    open_master(master, false);
    sync_nodes(master, slave, &down, false);
    assert_int_equal(queues_of(slave, "acknowledged"), 2);
}

static void master_of_an_empty_store_takes_its_slaves_tables_whatever_it_met(void **state)
{
    (void)state;
    struct ha_held down = {0}, up = {0};
    struct group_config config;
    put_topic(master, "T", 6);
    put_group(master, "G", 3);
    sync_nodes(master, slave, &down, false);
    close_node(master);
    sim_fs_power_loss(master->disk, SIM_TORN_NONE);
    struct fs *disk = master->broker.env.fs;
    assert_ok(fs_mkdirs(disk, "/config"));
    assert_ok(fs_unlink(disk, "/config/topics.json"));
    assert_ok(fs_unlink(disk, "/config/topics.json.meta"));
    assert_ok(fs_unlink(disk, "/config/subscriptionGroup.json"));
    assert_ok(fs_unlink(disk, "/config/subscriptionGroup.json.meta"));
    open_node(master, ROLE_SYNC_MASTER);
    master->ha.state = TERN__WIRE__HA_STATE__HA_RECOVERING;
    assert_int_equal(queues_of(master, "T"), -1);
    assert_ok(groups_find_or_create(master->broker.groups, "met", 3, &config, NULL));
    assert_ok(groups_persist(master->broker.groups, NULL));
    sync_nodes(slave, master, &up, false);
    assert_int_equal(queues_of(master, "T"), 6);
    assert_int_equal(retries_of(master, "G"), 3);
    assert_ok(groups_find_or_create(master->broker.groups, "met", 3, &config, NULL));
    open_master(master, false);
    memset(&down, 0, sizeof down);
    slave->ops.own(slave->ops.arg, &down);
    down.progress = 0;
    sync_nodes(master, slave, &down, false);
    assert_int_equal(retries_of(slave, "met"), 16); /* what it met has a version by now */
}

static void opening_lowers_what_is_beyond_and_raises_when_asked_to(void **state)
{
    (void)state;
    commit(slave, "G", 0, 500);
    commit(slave, "G", 1, 400);
    slave->broker.config.role = ROLE_ASYNC_MASTER;
    assert_ok(slave->ops.open(slave->ops.arg, false, 9, NULL));
    assert_int_equal(stored(slave, "G", 0), 450);
    assert_int_equal(epoch_of(slave, "G", 0), 0);
    assert_ok(slave->ops.open(slave->ops.arg, true, 9, NULL));
    assert_int_equal(epoch_of(slave, "G", 1), 9);
    close_node(slave); /* it was durable */
    open_node(slave, ROLE_ASYNC_MASTER);
    assert_int_equal(stored(slave, "G", 0), 450);
    assert_int_equal(epoch_of(slave, "G", 1), 9);
}

static void first_progress_that_comes_after_the_opening_counts_up_to_its_end_H_5(void **state)
{
    (void)state;
    struct ha_held up = {0};
    put_topic(master, "T", 6);
    open_master(master, true);
    master->store.ends[1] = 9999; /* written since */
    commit(slave, "G", 1, 440);
    commit(slave, "G", 2, 470);
    sync_nodes(slave, master, &up, true);
    assert_int_equal(stored(master, "G", 1), 440);
    assert_int_equal(stored(master, "G", 2), 450);
    assert_int_equal(epoch_of(master, "G", 1), 1);
}

static void opening_fails_when_it_is_not_durable_and_does_not_raise_twice(void **state)
{
    (void)state;
    struct tern_error err;
    for (unsigned nth = 1; nth <= 4; nth++) {
        struct sim_fs_fault fault = {.op = SIM_FS_SYNC, .nth = 1, .errno_value = EIO};
        struct sim_fs *disk = slave->disk;
        commit(slave, "G", 0, (int64_t)nth * 10);
        uint64_t before = epoch_of(slave, "G", 0);
        sim_fs_fail(disk, &fault);
        assert_int_not_equal(slave->ops.open(slave->ops.arg, true, 1, &err), TERN_OK);
        sim_fs_fail_clear(disk);
        assert_true(epoch_of(slave, "G", 0) == before + 1);
        assert_ok(slave->ops.open(slave->ops.arg, true, 1, &err));
        assert_true(epoch_of(slave, "G", 0) == before + 1);
    }
}

static void opening_waits_until_the_queues_are_complete(void **state)
{
    (void)state;
    struct tern_error err;
    commit(slave, "G", 0, 500);
    slave->store.dispatched = LOG_END - 1;
    assert_int_equal(slave->ops.open(slave->ops.arg, true, 1, &err), TERN_AGAIN);
    assert_contains(err.text, "4999");
    assert_int_equal(stored(slave, "G", 0), 500);
}

static void cut_lowers_progress_durably_first(void **state)
{
    (void)state;
    struct tern_error err;
    commit(slave, "G", 0, 300);
    commit(slave, "G", 1, 100);
    slave->store.code = TERN_IO;
    assert_int_equal(slave->ops.lower(slave->ops.arg, 2000, &err), TERN_IO);
    assert_contains(err.text, "2000");
    slave->store.code = TERN_OK;
    assert_ok(slave->ops.lower(slave->ops.arg, 2000, &err));
    sim_fs_power_loss(slave->disk, SIM_TORN_NONE);
    close_node(slave);
    open_node(slave, ROLE_SLAVE);
    assert_int_equal(stored(slave, "G", 0), 200);
    assert_int_equal(stored(slave, "G", 1), 100);
    assert_ok(slave->ops.forget(slave->ops.arg, &err));
    assert_int_equal(stored(slave, "G", 1), -1);
}

static void open_master_told_of_a_cut_keeps_progress_of_what_it_wrote_since(void **state)
{
    (void)state;
    struct tern_error err;
    commit(master, "G", 0, 440);
    commit(master, "G", 1, 470);
    assert_ok(master->ops.lower(master->ops.arg, 2000, &err));
    assert_int_equal(stored(master, "G", 0), 440);
    assert_int_equal(stored(master, "G", 1), 450);
}

/* ---- disks that fail ---- */

static void failing_disk_leaves_the_old_tables_and_held_MD_01(void **state)
{
    (void)state;
    struct tern_error err;
    struct sim_fs *disk = slave->disk;
    unsigned failed = 0;
    for (unsigned nth = 1; nth < 60; nth++) {
        struct ha_held held = {0};
        struct sim_fs_fault fault = {.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO};
        enum tern_code code = TERN_OK;
        put_topic(master, "T", (int32_t)nth);
        put_group(master, "G", (int32_t)nth);
        int32_t queues = queues_of(slave, "T"), retries = retries_of(slave, "G");
        sim_fs_fail(disk, &fault);
        assert_true(step(master, slave, &held, false, &code, &err));
        sim_fs_fail_clear(disk);
        bool took_topics = held.topics_version != 0, took_groups = held.groups_version != 0;
        failed += code != TERN_OK;
        assert_true((took_topics && took_groups) == (code == TERN_OK));
        assert_int_equal(queues_of(slave, "T"), took_topics ? (int32_t)nth : queues);
        assert_int_equal(retries_of(slave, "G"), took_groups ? (int32_t)nth : retries);
        sync_nodes(master, slave, &held, false);
        sim_fs_power_loss(disk, SIM_TORN_PAGES);
        close_node(slave);
        open_node(slave, ROLE_SLAVE);
        assert_int_equal(queues_of(slave, "T"), (int32_t)nth);
        assert_int_equal(retries_of(slave, "G"), (int32_t)nth);
    }
    assert_in_range(failed, 10, 58);
}

static void deletions_that_fail_keep_the_topics_back(void **state)
{
    (void)state;
    struct ha_held held = {0};
    struct tern_error err;
    enum tern_code code = TERN_OK;
    put_topic(master, "T", 6);
    put_group(master, "G", 3);
    master->store.deletions_version = 1;
    slave->store.code = TERN_IO;
    assert_true(step(master, slave, &held, false, &code, &err));
    assert_int_equal(code, TERN_IO);
    assert_contains(err.text, "deletions");
    assert_int_equal(queues_of(slave, "T"), -1);
    assert_true(held.topics_version == 0 && held.deletions_version == 0);
    assert_int_equal(retries_of(slave, "G"), 3);
    slave->store.code = TERN_OK;
    sync_nodes(master, slave, &held, false);
    assert_int_equal(queues_of(slave, "T"), 6);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_world_begin, set_world_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(recovering_master_keeps_its_newer_table_and_takes_newer_ones),
        TEST(master_of_an_empty_store_takes_its_slaves_tables_whatever_it_met),
        TEST(opening_lowers_what_is_beyond_and_raises_when_asked_to),
        TEST(first_progress_that_comes_after_the_opening_counts_up_to_its_end_H_5),
        TEST(opening_fails_when_it_is_not_durable_and_does_not_raise_twice),
        TEST(opening_waits_until_the_queues_are_complete),
        TEST(cut_lowers_progress_durably_first),
        TEST(open_master_told_of_a_cut_keeps_progress_of_what_it_wrote_since),
        TEST(failing_disk_leaves_the_old_tables_and_held_MD_01),
        TEST(deletions_that_fail_keep_the_topics_back),
    };
    return cmocka_run_group_tests_name("set_opening", tests, NULL, NULL);
}
