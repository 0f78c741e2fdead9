/* Files of the machine, in a temporary directory. */
#include "tests/unit/base/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"

static char dir[64];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/tern-fs-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static bool remove_entry(void *arg, const char *name, bool is_dir)
{
    char path[FS_PATH_BYTES];
    (void)arg;
    if (fs_join(path, dir, name) != TERN_OK)
        return false;
    return (is_dir ? fs_rmdir(fs_posix(), path) : fs_unlink(fs_posix(), path)) == TERN_OK;
}

static int teardown(void **state)
{
    (void)state;
    if (fs_list(fs_posix(), dir, remove_entry, NULL) != TERN_OK)
        return -1;
    return fs_rmdir(fs_posix(), dir) == TERN_OK ? 0 : -1;
}

static const char *in_dir(const char *name)
{
    static char path[FS_PATH_BYTES];
    assert_ok(fs_join(path, dir, name));
    return path;
}

static struct file *create(const char *name)
{
    struct file *file;
    assert_ok(fs_open(fs_posix(), in_dir(name), FS_READ | FS_WRITE | FS_CREATE, &file));
    return file;
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    struct file *file = create("a");
    char buf[16] = {0};
    size_t got;
    int64_t size;
    assert_ok(file_pwrite(file, "hello", 5, 3));
    assert_ok(file_sync(file));
    assert_ok(file_size(file, &size));
    assert_int_equal(size, 8);
    assert_ok(file_pread(file, buf, sizeof buf, 0, &got));
    assert_int_equal(got, 8);
    assert_memory_equal(buf, "\0\0\0hello", 8);
    assert_ok(file_pread(file, buf, sizeof buf, 8, &got));
    assert_int_equal(got, 0);
    assert_ok(file_truncate(file, 4));
    assert_ok(file_pread(file, buf, sizeof buf, 0, &got));
    assert_int_equal(got, 4);
    file_close(file);
}

static void more_buffers_than_one_call_takes_are_all_written(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static struct iovec iov[COUNT];
    static uint16_t values[COUNT];
    static uint16_t back[COUNT];
    struct file *file = create("v");
    size_t got;
    size_t total = 0;
    for (int i = 0; i < COUNT; i++) {
        values[i] = (uint16_t)i;
        iov[i] = (struct iovec){.iov_base = &values[i], .iov_len = i % 7 == 3 ? 0 : 2};
        total += iov[i].iov_len;
    }
    assert_ok(file_pwritev(file, iov, COUNT, 10));
    assert_ok(file_pread(file, back, sizeof back, 10, &got));
    assert_int_equal(got, total);
    size_t at = 0;
    for (int i = 0; i < COUNT; i++)
        if (i % 7 != 3)
            assert_int_equal(back[at++], values[i]);
    assert_ok(file_pwritev(file, NULL, 0, 0));
    file_close(file);
}

static void open_flags_mean_what_they_say(void **state)
{
    (void)state;
    struct fs *fs = fs_posix();
    struct file *file;
    assert_int_equal(fs_open(fs, in_dir("n"), FS_READ, &file), TERN_NOT_FOUND);
    assert_null(file);
    assert_ok(fs_open(fs, in_dir("n"), FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file));
    assert_ok(file_pwrite(file, "x", 1, 0));
    file_close(file);
    assert_int_equal(fs_open(fs, in_dir("n"), FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file),
                     TERN_EXISTS);
    assert_ok(fs_open(fs, in_dir("n"), FS_WRITE | FS_TRUNCATE, &file));
    int64_t size = -1;
    assert_ok(file_size(file, &size));
    assert_int_equal(size, 0);
    char c;
    size_t got;
    assert_int_not_equal(file_pread(file, &c, 1, 0, &got), TERN_OK);
    file_close(file);
    file_close(NULL);
}

static void reserve_grows_and_keeps_what_is_there(void **state)
{
    (void)state;
    struct file *file = create("r");
    char buf[4];
    size_t got;
    int64_t size;
    assert_ok(file_pwrite(file, "data", 4, 0));
    assert_ok(file_reserve(file, 0, 1 << 20));
    assert_ok(file_size(file, &size));
    assert_int_equal(size, 1 << 20);
    assert_ok(file_pread(file, buf, 4, 0, &got));
    assert_memory_equal(buf, "data", 4);
    assert_ok(file_pread(file, buf, 4, (1 << 20) - 2, &got));
    assert_int_equal(got, 2);
    assert_memory_equal(buf, "\0\0", 2);
    file_close(file);
}

static void a_reservation_that_fails_leaves_the_size(void **state)
{
    (void)state;
    struct file *file = create("huge");
    struct fs_space space;
    int64_t size;
    assert_ok(fs_space(fs_posix(), dir, &space));
    assert_true(space.total_bytes > 0 && space.free_bytes <= space.total_bytes);
    /* Far beyond the device, on some file systems beyond a file's maximum: refused in both cases.
     */
    enum tern_code code = file_reserve(file, 0, space.total_bytes * 2 + (INT64_C(1) << 44));
    assert_int_not_equal(code, TERN_OK);
    assert_ok(file_size(file, &size));
    assert_int_equal(size, 0);
    assert_ok(file_pwrite(file, "x", 1, 0));
    file_close(file);
}

static void nonwaiting_reads_give_bytes_or_again(void **state)
{
    (void)state;
    struct file *file = create("w");
    char buf[8];
    size_t got = 0;
    assert_ok(file_pwrite(file, "cached", 6, 0));
    enum tern_code code = file_pread_nowait(file, buf, sizeof buf, 0, &got);
    assert_true(code == TERN_AGAIN || (code == TERN_OK && got == 6));
    code = file_pread_nowait(file, buf, sizeof buf, 6, &got);
    assert_true(code == TERN_AGAIN || (code == TERN_OK && got == 0));
    file_close(file);
}

static void nonwaiting_reads_work_where_the_kernel_cannot_tell(void **state)
{
    (void)state;
    char path[] = "/dev/shm/tern-fs-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        skip();
    close(fd);
    struct file *file;
    char buf[8];
    size_t got = 0;
    assert_ok(fs_open(fs_posix(), path, FS_READ | FS_WRITE, &file));
    assert_ok(fs_unlink(fs_posix(), path));
    assert_ok(file_pwrite(file, "memory", 6, 0));
    for (int i = 0; i < 2; i++) {
        assert_ok(file_pread_nowait(file, buf, sizeof buf, 0, &got));
        assert_int_equal(got, 6);
    }
    file_close(file);
}

static bool count_entry(void *arg, const char *name, bool is_dir)
{
    int *counts = arg;
    (void)name;
    counts[is_dir]++;
    return true;
}

static void directories_can_be_made_listed_renamed_and_removed(void **state)
{
    (void)state;
    struct fs *fs = fs_posix();
    char other[FS_PATH_BYTES];
    int counts[2] = {0, 0};
    file_close(create("f1"));
    file_close(create("f2"));
    assert_ok(fs_mkdir(fs, in_dir("d")));
    assert_int_equal(fs_mkdir(fs, in_dir("d")), TERN_EXISTS);
    assert_ok(fs_list(fs, dir, count_entry, counts));
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 1);
    snprintf(other, sizeof other, "%s/d/moved", dir);
    assert_ok(fs_rename(fs, in_dir("f1"), other));
    assert_ok(fs_sync_dir(fs, dir));
    assert_false(fs_exists(fs, in_dir("f1")));
    assert_true(fs_exists(fs, other));
    struct fs_stat st;
    assert_ok(fs_stat(fs, other, &st));
    assert_true(!st.is_dir && st.mtime_ms > 0);
    assert_int_not_equal(fs_rmdir(fs, in_dir("d")), TERN_OK);
    assert_ok(fs_unlink(fs, other));
    assert_ok(fs_rmdir(fs, in_dir("d")));
    assert_int_equal(fs_list(fs, in_dir("d"), count_entry, counts), TERN_NOT_FOUND);
    assert_int_equal(fs_sync_dir(fs, in_dir("d")), TERN_NOT_FOUND);
    assert_int_equal(fs_unlink(fs, in_dir("none")), TERN_NOT_FOUND);
    assert_ok(fs_mkdirs(fs, in_dir("d/e")));
    assert_ok(fs_rmdir(fs, in_dir("d/e")));
}

/* What another process gets: 0 the lock, 1 in use, 2 something else. */
static int lock_in_child(bool posix_record_lock)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char path[FS_PATH_BYTES];
        snprintf(path, sizeof path, "%s/lock", dir);
        if (posix_record_lock) { /* as a JVM's FileLock */
            int fd = open(path, O_RDWR);
            struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            int rc = fcntl(fd, F_SETLK, &range);
            _exit(rc == 0 ? 0 : errno == EAGAIN || errno == EACCES ? 1 : 2);
        }
        struct file *file;
        if (fs_open(fs_posix(), path, FS_READ | FS_WRITE, &file) != TERN_OK)
            _exit(2);
        enum tern_code code = file_lock(file);
        _exit(code == TERN_OK ? 0 : code == TERN_IN_USE ? 1 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_lock_excludes_a_second_process_until_close(void **state)
{
    (void)state;
    struct file *file = create("lock");
    assert_ok(file_lock(file));
    assert_ok(file_lock(file));
    assert_int_equal(lock_in_child(false), 1);
    assert_int_equal(lock_in_child(true), 1);
    /* Unlike a record lock it survives that another handle of this process is closed. */
    struct file *other;
    assert_ok(fs_open(fs_posix(), in_dir("lock"), FS_READ | FS_WRITE, &other));
    assert_int_equal(file_lock(other), TERN_IN_USE);
    file_close(other);
    assert_int_equal(lock_in_child(false), 1);
    file_close(file);
    assert_int_equal(lock_in_child(false), 0);
    assert_int_equal(lock_in_child(true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(more_buffers_than_one_call_takes_are_all_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(open_flags_mean_what_they_say, setup, teardown),
        cmocka_unit_test_setup_teardown(reserve_grows_and_keeps_what_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reservation_that_fails_leaves_the_size, setup, teardown),
        cmocka_unit_test_setup_teardown(nonwaiting_reads_give_bytes_or_again, setup, teardown),
        cmocka_unit_test_setup_teardown(nonwaiting_reads_work_where_the_kernel_cannot_tell, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(directories_can_be_made_listed_renamed_and_removed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_lock_excludes_a_second_process_until_close, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
