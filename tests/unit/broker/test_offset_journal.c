/* broker/offset_journal, through the offset table: what a killed broker had acknowledged is there
 * again. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/fs.h"
#include "broker/offsets.h"
#include "tests/sim/sim_env.h"

static struct sim_env sim;
static struct offsets *offsets;

static void open_table(void)
{
    struct tern_error err = {.text = ""};
    assert_int_equal(offsets_create(&sim.env, "/config/consumerOffset.json", &offsets, &err),
                     TERN_OK);
}

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 5);
    assert_int_equal(fs_mkdirs(sim.env.fs, "/config"), TERN_OK);
    open_table();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    offsets_destroy(offsets);
    sim_env_fini(&sim);
    return 0;
}

static void commit(int32_t queue, int64_t offset)
{
    int64_t held;
    struct offset_version version = {0, 0}, held_version;
    assert_int_equal(
        offsets_commit(offsets, "G", "T", queue, offset, version, &held, &held_version),
        OFFSETS_STORED);
}

static int64_t progress(int32_t queue)
{
    int64_t offset;
    struct offset_version version;
    return offsets_query(offsets, "G", "T", queue, &offset, &version) ? offset : -1;
}

static void die_and_come_back(bool power_loss, enum sim_torn torn)
{
    if (power_loss)
        sim_fs_power_loss(sim.fs, torn);
    else
        sim_fs_process_crash(sim.fs);
    offsets_destroy(offsets);
    open_table();
}

/* R-7, H-5 */
static void killed_broker_has_every_commit(void **state)
{
    (void)state;
    for (int64_t i = 1; i <= 100; i++)
        commit((int32_t)(i % 3), i);
    die_and_come_back(false, SIM_TORN_NONE);
    assert_int_equal(progress(0), 99);
    assert_int_equal(progress(1), 100);
    assert_int_equal(progress(2), 98);
}

static void commits_around_a_persist_are_kept(void **state)
{
    (void)state;
    commit(0, 10);
    assert_int_equal(offsets_persist(offsets, NULL), TERN_OK);
    commit(0, 20);
    assert_int_equal(offsets_persist(offsets, NULL), TERN_OK);
    commit(0, 30);
    die_and_come_back(false, SIM_TORN_NONE);
    assert_int_equal(progress(0), 30);
    die_and_come_back(false, SIM_TORN_NONE); /* replayed twice is replayed once */
    assert_int_equal(progress(0), 30);
}

static void failed_persist_loses_no_commit(void **state)
{
    (void)state;
    struct sim_fs_fault fault = {.op = SIM_FS_RENAME, .nth = 1, .errno_value = EIO};
    commit(0, 10);
    sim_fs_fail(sim.fs, &fault);
    assert_int_not_equal(offsets_persist(offsets, NULL), TERN_OK);
    sim_fs_fail_clear(sim.fs);
    commit(0, 11);
    commit(1, 5);
    die_and_come_back(false, SIM_TORN_NONE);
    assert_int_equal(progress(0), 11);
    assert_int_equal(progress(1), 5);
}

static void power_loss_keeps_what_was_persisted_and_invents_nothing(void **state)
{
    (void)state;
    for (int torn = SIM_TORN_NONE; torn <= SIM_TORN_UNORDERED; torn++) {
        int64_t before = progress(0) < 0 ? 0 : progress(0);
        commit(0, before + 10);
        assert_int_equal(offsets_persist(offsets, NULL), TERN_OK);
        for (int64_t i = 11; i < 60; i++)
            commit(0, before + i);
        die_and_come_back(true, (enum sim_torn)torn);
        assert_in_range(progress(0), before + 10, before + 59);
        assert_int_equal(progress(1), -1);
    }
}

static void garbage_behind_the_entries_is_not_read(void **state)
{
    (void)state;
    struct file *file;
    static const uint8_t garbage[64] = {0, 40, 1, 2, 3, 4};
    int64_t size;
    commit(0, 10);
    assert_int_equal(
        fs_open(sim.env.fs, "/config/consumerOffset.json.journal-0", FS_READ | FS_WRITE, &file),
        TERN_OK);
    assert_int_equal(file_size(file, &size), TERN_OK);
    assert_true(size > 0);
    assert_int_equal(file_pwrite(file, garbage, sizeof garbage, size), TERN_OK);
    file_close(file);
    die_and_come_back(false, SIM_TORN_NONE);
    assert_int_equal(progress(0), 10);
    commit(0, 20); /* over the garbage */
    die_and_come_back(false, SIM_TORN_NONE);
    assert_int_equal(progress(0), 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_broker_has_every_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(commits_around_a_persist_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_persist_loses_no_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(power_loss_keeps_what_was_persisted_and_invents_nothing,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(garbage_behind_the_entries_is_not_read, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
