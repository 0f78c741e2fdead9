/* The simulated disk: what it forgets and how it fails. */
#include "tests/unit/base/unit.h"

#include <errno.h>

#include "tests/sim/sim_env.h"

static struct sim_env sim;
static struct fs *fs;

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 5);
    fs = sim.env.fs;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sim_env_fini(&sim);
    return 0;
}

static struct file *open_file(const char *path, unsigned more)
{
    struct file *file;
    assert_ok(fs_open(fs, path, FS_READ | FS_WRITE | more, &file));
    return file;
}

/* Creates a file with this content, all durable. */
static struct file *durable_file(const char *path, const char *content)
{
    struct file *file = open_file(path, FS_CREATE);
    assert_ok(file_pwrite(file, content, strlen(content), 0));
    assert_ok(file_sync(file));
    assert_ok(fs_sync_dir(fs, "/"));
    return file;
}

static void expect_content(const char *path, const char *content)
{
    char buf[256];
    size_t got;
    struct file *file = open_file(path, 0);
    assert_ok(file_pread(file, buf, sizeof buf, 0, &got));
    assert_int_equal(got, strlen(content));
    assert_memory_equal(buf, content, got);
    file_close(file);
}

static void power_loss_forgets_unsynced_bytes_and_sizes(void **state)
{
    (void)state;
    struct file *file = durable_file("/a", "durable");
    assert_ok(file_pwrite(file, "XX", 2, 0));
    assert_ok(file_pwrite(file, "more", 4, 7));
    expect_content("/a", "XXrablemore");
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    expect_content("/a", "durable");
    char c;
    size_t got;
    assert_int_equal(file_pread(file, &c, 1, 0, &got), TERN_IO);
    assert_int_equal(file_pwrite(file, &c, 1, 0), TERN_IO);
    assert_int_equal(file_sync(file), TERN_IO);
    file_close(file);
}

static void power_loss_brings_truncated_bytes_back(void **state)
{
    (void)state;
    struct file *file = durable_file("/a", "durable");
    assert_ok(file_truncate(file, 3));
    expect_content("/a", "dur");
    assert_ok(file_truncate(file, 5));
    char buf[5];
    size_t got;
    assert_ok(file_pread(file, buf, 5, 0, &got));
    assert_memory_equal(buf, "dur\0\0", 5);
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    expect_content("/a", "durable");
    file_close(file);
    file = open_file("/a", 0);
    assert_ok(file_truncate(file, 3));
    assert_ok(file_sync(file));
    file_close(file);
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    expect_content("/a", "dur");
}

static void a_synced_file_without_synced_entry_is_gone(void **state)
{
    (void)state;
    struct file *file = open_file("/new", FS_CREATE);
    assert_ok(file_pwrite(file, "x", 1, 0));
    assert_ok(file_sync(file));
    file_close(file);
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    assert_false(fs_exists(fs, "/new"));
}

static void renames_and_removals_need_a_synced_directory(void **state)
{
    (void)state;
    file_close(durable_file("/old", "1"));
    file_close(durable_file("/gone", "2"));
    assert_ok(fs_rename(fs, "/old", "/new"));
    assert_ok(fs_unlink(fs, "/gone"));
    assert_false(fs_exists(fs, "/old") || fs_exists(fs, "/gone"));
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    expect_content("/old", "1");
    expect_content("/gone", "2");
    assert_false(fs_exists(fs, "/new"));
    assert_ok(fs_rename(fs, "/old", "/gone"));
    assert_ok(fs_sync_dir(fs, "/"));
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    expect_content("/gone", "1");
    assert_false(fs_exists(fs, "/old"));
}

static void directories_need_their_parent_synced(void **state)
{
    (void)state;
    assert_ok(fs_mkdir(fs, "/d"));
    assert_ok(fs_mkdir(fs, "/d/e"));
    assert_ok(fs_sync_dir(fs, "/d"));
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    assert_false(fs_exists(fs, "/d"));
    assert_ok(fs_mkdirs(fs, "/d/e"));
    assert_int_equal(fs_rmdir(fs, "/d"), TERN_IO);
    assert_ok(fs_rmdir(fs, "/d/e"));
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    assert_true(fs_exists(fs, "/d/e"));
}

static void torn_pages_are_kept_or_lost_each_by_itself(void **state)
{
    (void)state;
    enum { PAGES = 64, PAGE = 4096 };
    static uint8_t data[PAGES * PAGE];
    struct file *file = open_file("/torn", FS_CREATE);
    size_t got;
    assert_ok(file_reserve(file, 0, sizeof data));
    assert_ok(file_sync(file));
    assert_ok(fs_sync_dir(fs, "/"));
    memset(data, 0xAB, sizeof data);
    assert_ok(file_pwrite(file, data, sizeof data, 0));
    file_close(file);
    sim_fs_power_loss(sim.fs, SIM_TORN_PAGES);
    file = open_file("/torn", 0);
    assert_ok(file_pread(file, data, sizeof data, 0, &got));
    assert_int_equal(got, sizeof data);
    file_close(file);
    int kept = 0;
    for (int page = 0; page < PAGES; page++) {
        uint8_t first = data[page * PAGE];
        assert_true(first == 0xAB || first == 0);
        kept += first != 0;
        for (int i = 1; i < PAGE; i++)
            assert_true(data[page * PAGE + i] == first);
    }
    assert_in_range(kept, 1, PAGES - 1);
}

static void torn_sectors_tear_within_pages(void **state)
{
    (void)state;
    static uint8_t data[65536];
    struct file *file = durable_file("/torn", "");
    size_t got;
    assert_ok(file_reserve(file, 0, sizeof data));
    assert_ok(file_sync(file));
    memset(data, 0xAB, sizeof data);
    assert_ok(file_pwrite(file, data, sizeof data, 0));
    file_close(file);
    sim_fs_power_loss(sim.fs, SIM_TORN_SECTORS);
    file = open_file("/torn", 0);
    assert_ok(file_pread(file, data, sizeof data, 0, &got));
    file_close(file);
    int changes = 0;
    for (size_t at = 512; at < sizeof data; at += 512)
        changes += data[at] != data[at - 512];
    assert_true(changes > 16); /* more than pages alone could give */
}

static void a_torn_rename_is_whole_or_not_at_all(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct file *file = open_file("/from", FS_CREATE);
        assert_ok(file_sync(file));
        file_close(file);
        assert_ok(fs_sync_dir(fs, "/"));
        assert_ok(fs_rename(fs, "/from", "/to"));
        sim_fs_power_loss(sim.fs, i % 2 ? SIM_TORN_PAGES : SIM_TORN_UNORDERED);
        assert_true(fs_exists(fs, "/from") != fs_exists(fs, "/to"));
        if (fs_exists(fs, "/to"))
            assert_ok(fs_unlink(fs, "/to"));
        assert_ok(fs_sync_dir(fs, "/"));
    }
}

static void the_nth_call_fails_once_or_for_ever(void **state)
{
    (void)state;
    struct file *file = durable_file("/a", "abc");
    struct sim_fs_fault once = {.op = SIM_FS_SYNC, .nth = 2, .errno_value = EIO};
    sim_fs_fail(sim.fs, &once);
    assert_ok(file_sync(file));
    assert_int_equal(file_sync(file), TERN_IO);
    assert_ok(file_sync(file));
    struct sim_fs_fault all = {.op = SIM_FS_ANY, .nth = 3, .errno_value = ENOSPC, .forever = true};
    sim_fs_fail(sim.fs, &all);
    int64_t size;
    assert_ok(file_size(file, &size));
    assert_ok(file_sync(file));
    assert_int_equal(file_size(file, &size), TERN_NO_SPACE);
    assert_int_equal(file_sync(file), TERN_IO); /* nothing that a retry could heal */
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(fs_sync_dir(fs, "/"), TERN_IO);
    assert_int_equal(fs_mkdir(fs, "/d"), TERN_NO_SPACE);
    assert_int_equal(errno, ENOSPC);
    sim_fs_fail_clear(sim.fs);
    assert_ok(fs_mkdir(fs, "/d"));
    struct sim_fs_fault one_path = {
        .op = SIM_FS_OPEN, .path_part = "b", .nth = 1, .errno_value = EMFILE};
    sim_fs_fail(sim.fs, &one_path);
    file_close(open_file("/a", 0));
    struct file *other;
    assert_int_equal(fs_open(fs, "/b", FS_WRITE | FS_CREATE, &other), TERN_LIMIT);
    assert_true(sim_fs_calls(sim.fs, SIM_FS_SYNC) >= 4);
    assert_int_equal(sim_fs_open_handles(sim.fs), 1);
    file_close(file);
}

static void a_failed_sync_loses_what_it_should_have_written(void **state)
{
    (void)state;
    struct file *file = durable_file("/a", "abc");
    struct sim_fs_fault fault = {.op = SIM_FS_SYNC, .nth = 1, .errno_value = EIO};
    assert_ok(file_pwrite(file, "X", 1, 0));
    sim_fs_fail(sim.fs, &fault);
    assert_int_equal(file_sync(file), TERN_IO);
    assert_ok(file_sync(file));
    expect_content("/a", "Xbc");
    file_close(file);
    sim_fs_power_loss(sim.fs, SIM_TORN_NONE);
    expect_content("/a", "abc");
}

static void a_full_disk_refuses_and_reports_its_space(void **state)
{
    (void)state;
    static uint8_t data[8192];
    struct fs_space space;
    struct file *file = open_file("/a", FS_CREATE);
    sim_fs_set_capacity(sim.fs, 16384);
    assert_ok(file_reserve(file, 0, 8192));
    assert_ok(file_pwrite(file, data, 8192, 0)); /* into the reserved room */
    assert_ok(fs_space(fs, "/", &space));
    assert_int_equal(space.total_bytes, 16384);
    assert_int_equal(space.free_bytes, 8192);
    assert_int_equal(file_reserve(file, 8192, 8193), TERN_NO_SPACE);
    assert_ok(file_pwrite(file, data, 8192, 8192));
    assert_int_equal(file_pwrite(file, data, 1, 16384), TERN_NO_SPACE);
    assert_ok(file_truncate(file, 4096));
    assert_ok(fs_space(fs, "/", &space));
    assert_int_equal(space.free_bytes, 12288);
    file_close(file);
    assert_ok(fs_unlink(fs, "/a"));
    assert_ok(fs_sync_dir(fs, "/"));
    assert_ok(fs_space(fs, "/", &space));
    assert_int_equal(space.free_bytes, 16384);
}

static void locks_exclude_until_close_or_crash(void **state)
{
    (void)state;
    struct file *a = open_file("/lock", FS_CREATE);
    struct file *b = open_file("/lock", 0);
    assert_ok(fs_sync_dir(fs, "/"));
    assert_ok(file_lock(a));
    assert_ok(file_lock(a));
    assert_int_equal(file_lock(b), TERN_IN_USE);
    file_close(a);
    assert_ok(file_lock(b));
    sim_fs_process_crash(sim.fs);
    a = open_file("/lock", 0);
    assert_ok(file_lock(a));
    file_close(a);
    file_close(b);
}

static void cold_reads_give_again(void **state)
{
    (void)state;
    struct file *file = durable_file("/a", "abc");
    char c;
    size_t got;
    assert_ok(file_pread_nowait(file, &c, 1, 0, &got));
    sim_fs_set_cold(sim.fs, 100);
    assert_int_equal(file_pread_nowait(file, &c, 1, 0, &got), TERN_AGAIN);
    assert_ok(file_pread(file, &c, 1, 0, &got));
    file_close(file);
}

static bool count_entry(void *arg, const char *name, bool is_dir)
{
    (void)name;
    (void)is_dir;
    return ++*(int *)arg < 2;
}

static void listing_stops_when_told(void **state)
{
    (void)state;
    int count = 0;
    for (int i = 0; i < 5; i++) {
        char path[16];
        snprintf(path, sizeof path, "/d%d", i);
        assert_ok(fs_mkdir(fs, path));
    }
    assert_ok(fs_list(fs, "/", count_entry, &count));
    assert_int_equal(count, 2);
    assert_int_equal(fs_list(fs, "/none", count_entry, &count), TERN_NOT_FOUND);
    assert_int_not_equal(fs_mkdir(fs, "/../x"), TERN_OK);
}

static int let_time_pass(void *arg, enum sim_fs_op op, const char *path)
{
    (void)path;
    if (op == SIM_FS_SYNC)
        sim_clock_advance(arg, ms_to_ns(4));
    return 0;
}

static void a_hook_can_let_time_pass(void **state)
{
    (void)state;
    struct file *file = durable_file("/a", "abc");
    sim_fs_set_hook(sim.fs, let_time_pass, &sim.clock);
    assert_ok(file_sync(file));
    assert_true(sim.clock.now_ns == SIM_START_NS + ms_to_ns(4));
    file_close(file);
}

static void machines_have_disks_of_their_own(void **state)
{
    (void)state;
    struct env slave;
    struct sim_fs *disk = sim_env_machine(&sim, &slave);
    assert_ok(fs_mkdir(slave.fs, "/only-here"));
    assert_true(fs_exists(slave.fs, "/only-here"));
    assert_false(fs_exists(fs, "/only-here"));
    assert_ptr_equal(slave.clock, sim.env.clock);
    sim_fs_power_loss(disk, SIM_TORN_NONE);
    assert_false(fs_exists(slave.fs, "/only-here"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(power_loss_forgets_unsynced_bytes_and_sizes),
        TEST(power_loss_brings_truncated_bytes_back),
        TEST(a_synced_file_without_synced_entry_is_gone),
        TEST(renames_and_removals_need_a_synced_directory),
        TEST(directories_need_their_parent_synced),
        TEST(torn_pages_are_kept_or_lost_each_by_itself),
        TEST(torn_sectors_tear_within_pages),
        TEST(a_torn_rename_is_whole_or_not_at_all),
        TEST(the_nth_call_fails_once_or_for_ever),
        TEST(a_failed_sync_loses_what_it_should_have_written),
        TEST(a_full_disk_refuses_and_reports_its_space),
        TEST(locks_exclude_until_close_or_crash),
        TEST(cold_reads_give_again),
        TEST(listing_stops_when_told),
        TEST(a_hook_can_let_time_pass),
        TEST(machines_have_disks_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
