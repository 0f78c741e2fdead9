/* broker/ha/insync: the file that the set is kept in. */
#include "tests/unit/ha/insync_world.h"

#include <errno.h>

#define ROOT "/store"

/* ---- the file ---- */

static struct sim_env sim;
static struct tern_error err;

static int disk_setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 12);
    assert_ok(fs_mkdirs(sim.env.fs, ROOT));
    return 0;
}

static int disk_teardown(void **state)
{
    (void)state;
    sim_env_fini(&sim);
    return 0;
}

static void a_set_survives(void **state)
{
    (void)state;
    struct insync_set got;
    struct insync_set set = set_of(2, 1, 2);
    bool known = true;
    set.members[1].id = INT64_MAX;
    assert_ok(insync_load(&sim.env, ROOT, &got, &known, &err));
    assert_false(known);
    assert_ok(insync_save(&sim.env, ROOT, &set, &err));
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    assert_ok(insync_load(&sim.env, ROOT, &got, &known, &err));
    assert_true(known);
    assert_memory_equal(&got, &set, sizeof set);
    set.count = 0;
    assert_ok(insync_save(&sim.env, ROOT, &set, &err));
    assert_ok(insync_load(&sim.env, ROOT, &got, &known, &err));
    assert_true(known && got.count == 0); /* known to be nobody is not unknown */
}

static void a_failed_save_leaves_one_of_both_sets(void **state)
{
    (void)state;
    for (unsigned nth = 1, failed = 1; failed; nth++) {
        disk_teardown(NULL);
        disk_setup(NULL);
        struct insync_set got;
        struct insync_set old = set_of(2, 1, 2);
        struct insync_set new = set_of(1, 2);
        bool known;
        assert_ok(insync_save(&sim.env, ROOT, &old, &err));
        sim_fs_fail(sim.fs,
                    &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
        failed = insync_save(&sim.env, ROOT, &new, &err) != TERN_OK;
        sim_fs_fail_clear(sim.fs);
        sim_fs_power_loss(sim.fs, SIM_TORN_PAGES);
        assert_ok(insync_load(&sim.env, ROOT, &got, &known, &err));
        assert_true(known);
        if (got.count == 2)
            assert_true(failed && memcmp(&got, &old, sizeof got) == 0);
        else
            assert_memory_equal(&got, &new, sizeof got);
        assert_true(nth < 100);
    }
}

static void a_damaged_set_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}", "{\"members\": [{\"id\": 1, \"uuid\": \"12\", \"haAddress\": \"a:1\"}]}",
        "{\"members\": [{\"id\": -1, \"uuid\": \"00000000000000000000000000000001\", "
        "\"haAddress\": \"a:1\"}]}",
        "{\"members\": [{\"id\": 1, \"uuid\": \"00000000000000000000000000000001\", "
        "\"haAddress\": \"a:1\"}, {\"id\": 1, \"uuid\": \"00000000000000000000000000000002\", "
        "\"haAddress\": \"a:1\"}]}"};
    assert_ok(fs_mkdirs(sim.env.fs, ROOT "/ternmq"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct insync_set got;
        bool known;
        put_file(&sim, ROOT "/ternmq/insync.json", bad[i], strlen(bad[i]));
        assert_int_equal(insync_load(&sim.env, ROOT, &got, &known, &err), TERN_CORRUPT);
        assert_contains(err.text, "insync.json");
    }
}

#define DISK(name) cmocka_unit_test_setup_teardown(name, disk_setup, disk_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DISK(a_set_survives),
        DISK(a_failed_save_leaves_one_of_both_sets),
        DISK(a_damaged_set_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
