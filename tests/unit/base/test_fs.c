/* What fs.c builds from the operations, on a simulated disk. */
#include "tests/unit/base/unit.h"

#include <errno.h>

#include "base/fs.h"
#include "tests/sim/sim_env.h"

static struct sim_env sim;

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sim_env_fini(&sim);
    return 0;
}

static void join_puts_one_slash_and_refuses_what_is_too_long(void **state)
{
    (void)state;
    char out[FS_PATH_BYTES];
    char name[FS_PATH_BYTES];
    assert_ok(fs_join(out, "/store", "commitlog"));
    assert_string_equal(out, "/store/commitlog");
    assert_ok(fs_join(out, "/", "a"));
    assert_string_equal(out, "/a");
    assert_ok(fs_join(out, "", "a"));
    assert_string_equal(out, "a");
    memset(name, 'n', sizeof name);
    name[FS_PATH_BYTES - 3] = 0;
    assert_ok(fs_join(out, "d", name));
    assert_int_equal(strlen(out), FS_PATH_BYTES - 1);
    assert_int_equal(fs_join(out, "dd", name), TERN_TOO_LARGE);
    assert_int_equal(errno, ENAMETOOLONG);
}

static void mkdirs_makes_all_parents_durably(void **state)
{
    (void)state;
    struct fs *fs = sim.env.fs;
    assert_ok(fs_mkdirs(fs, "/a/b//c/"));
    assert_ok(fs_mkdirs(fs, "/a/b/c/d"));
    assert_ok(fs_mkdirs(fs, "/a/b/c/d"));
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    struct fs_stat st;
    assert_ok(fs_stat(fs, "/a/b/c/d", &st));
    assert_true(st.is_dir);
}

static void mkdirs_refuses_a_file_in_the_way(void **state)
{
    (void)state;
    struct fs *fs = sim.env.fs;
    struct file *file;
    assert_ok(fs_open(fs, "/f", FS_WRITE | FS_CREATE, &file));
    file_close(file);
    assert_int_equal(fs_mkdirs(fs, "/f"), TERN_EXISTS);
    assert_int_not_equal(fs_mkdirs(fs, "/f/g"), TERN_OK);
    assert_int_equal(fs_mkdirs(fs, ""), TERN_NOT_FOUND);
    sim_fs_fail(sim.fs,
                &(struct sim_fs_fault){.op = SIM_FS_MKDIR, .nth = 2, .errno_value = ENOSPC});
    assert_int_equal(fs_mkdirs(fs, "/x/y"), TERN_NO_SPACE);
    assert_int_equal(errno, ENOSPC);
}

static void zero_overwrites_exactly_its_range(void **state)
{
    (void)state;
    enum { SIZE = 3 << 20 };
    struct file *file;
    static uint8_t data[SIZE];
    size_t got;
    memset(data, 0xEE, sizeof data);
    assert_ok(fs_open(sim.env.fs, "/z", FS_READ | FS_WRITE | FS_CREATE, &file));
    assert_ok(file_pwrite(file, data, sizeof data, 0));
    assert_ok(file_zero(file, 12345, SIZE - 20000));
    assert_ok(file_pread(file, data, sizeof data, 0, &got));
    assert_int_equal(got, SIZE);
    for (size_t i = 0; i < SIZE; i++) {
        bool inside = i >= 12345 && i < 12345 + SIZE - 20000;
        if (data[i] != (inside ? 0 : 0xEE))
            fail_msg("byte %zu", i);
    }
    file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(join_puts_one_slash_and_refuses_what_is_too_long, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(mkdirs_makes_all_parents_durably, setup, teardown),
        cmocka_unit_test_setup_teardown(mkdirs_refuses_a_file_in_the_way, setup, teardown),
        cmocka_unit_test_setup_teardown(zero_overwrites_exactly_its_range, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
