/* The cache of open files: bounds, order of eviction, files in use, forgetting, threads. */
#include "tests/unit/base/unit.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "broker/store/file_cache.h"
#include "tests/sim/sim_env.h"

struct fixture {
    struct sim_env sim;
    struct file_cache *cache;
};

static struct file_key key(uint64_t owner, int64_t start)
{
    return (struct file_key){owner, start};
}

static void make_file(struct fs *fs, const char *path, uint64_t content)
{
    struct file *file;
    assert_ok(fs_open(fs, path, FS_WRITE | FS_CREATE, &file));
    assert_ok(file_pwrite(file, &content, sizeof content, 0));
    file_close(file);
}

static const char *path_of(uint64_t owner)
{
    static _Thread_local char path[64];
    snprintf(path, sizeof path, "/f%llu", (unsigned long long)owner);
    return path;
}

static void set_up(struct fixture *f, uint32_t open_max, unsigned files)
{
    sim_env_init(&f->sim, 1);
    for (unsigned i = 0; i < files; i++)
        make_file(f->sim.env.fs, path_of(i), i);
    assert_ok(file_cache_create(f->sim.env.fs, open_max, &f->cache));
}

static void tear_down(struct fixture *f)
{
    file_cache_destroy(f->cache);
    assert_int_equal(sim_fs_open_handles(f->sim.fs), 0);
    sim_env_fini(&f->sim);
}

static struct cached_file *open_one(struct fixture *f, uint64_t owner)
{
    struct cached_file *file;
    uint64_t content = 0;
    size_t got;
    assert_ok(file_cache_open(f->cache, key(owner, 0), path_of(owner), FS_READ, &file));
    assert_ok(file_pread(cached_file_handle(file), &content, sizeof content, 0, &got));
    assert_int_equal(content, owner);
    return file;
}

static bool is_open(struct fixture *f, uint64_t owner)
{
    struct cached_file *file = file_cache_find(f->cache, key(owner, 0));
    if (file)
        file_cache_unref(f->cache, file);
    return file != NULL;
}

static void two_descriptors_serve_a_hundred_files(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 2, 100);
    for (unsigned i = 0; i < 1000; i++) {
        file_cache_unref(f.cache, open_one(&f, (i * 37) % 100));
        assert_true(sim_fs_open_handles(f.sim.fs) <= 2);
    }
    tear_down(&f);
}

static void the_least_recently_used_file_is_closed(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 3, 5);
    for (unsigned i = 0; i < 3; i++)
        file_cache_unref(f.cache, open_one(&f, i));
    file_cache_unref(f.cache, open_one(&f, 0)); /* now 1 is the oldest */
    file_cache_unref(f.cache, open_one(&f, 3));
    assert_true(is_open(&f, 0));
    assert_false(is_open(&f, 1));
    assert_true(is_open(&f, 2));
    assert_true(is_open(&f, 3));
    tear_down(&f);
}

static void a_file_in_use_is_never_closed(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 2, 5);
    struct cached_file *held[4];
    for (unsigned i = 0; i < 4; i++)
        held[i] = open_one(&f, i);
    for (unsigned i = 0; i < 4; i++) {
        uint64_t content;
        size_t got;
        assert_ok(file_pread(cached_file_handle(held[i]), &content, sizeof content, 0, &got));
    }
    for (unsigned i = 0; i < 4; i++)
        file_cache_unref(f.cache, held[i]);
    assert_int_equal(sim_fs_open_handles(f.sim.fs), 2);
    tear_down(&f);
}

static void a_forgotten_file_is_closed_by_its_last_user(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 4, 2);
    struct cached_file *held = open_one(&f, 0);
    file_cache_unref(f.cache, open_one(&f, 1));
    file_cache_forget(f.cache, key(0, 0));
    file_cache_forget(f.cache, key(1, 0));
    file_cache_forget(f.cache, key(7, 0)); /* not there: nothing happens */
    assert_false(is_open(&f, 0));
    assert_int_equal(sim_fs_open_handles(f.sim.fs), 1);
    file_cache_unref(f.cache, held);
    assert_int_equal(sim_fs_open_handles(f.sim.fs), 0);
    tear_down(&f);
}

static void all_files_of_an_owner_are_forgotten(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 8, 1);
    struct cached_file *file;
    for (int64_t start = 0; start < 4; start++) {
        assert_ok(file_cache_open(f.cache, key(5, start), path_of(0), FS_READ, &file));
        file_cache_unref(f.cache, file);
    }
    file_cache_unref(f.cache, open_one(&f, 0));
    file_cache_forget_owner(f.cache, 5);
    assert_int_equal(file_cache_count(f.cache), 1);
    assert_true(is_open(&f, 0));
    tear_down(&f);
}

static void a_failed_open_leaves_code_and_errno(void **state)
{
    (void)state;
    struct fixture f;
    struct cached_file *file;
    set_up(&f, 2, 0);
    errno = 0;
    assert_int_equal(file_cache_open(f.cache, key(1, 0), "/absent", FS_READ, &file),
                     TERN_NOT_FOUND);
    assert_int_equal(errno, ENOENT);
    assert_null(file);
    assert_int_equal(file_cache_count(f.cache), 0);
    tear_down(&f);
}

/* ---- threads, on real files ---- */

enum { THREADS = 4, FILES = 16, ROUNDS = 2000 };

struct shared {
    struct file_cache *cache;
    char dir[64];
};

static void *use_files(void *arg)
{
    struct shared *s = arg;
    uint64_t random = (uint64_t)(uintptr_t)&random;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t n = (random >> 33) % FILES;
        char path[96];
        struct cached_file *file;
        uint64_t content = 0;
        size_t got;
        snprintf(path, sizeof path, "%s/f%llu", s->dir, (unsigned long long)n);
        assert_ok(file_cache_open(s->cache, key(n, 0), path, FS_READ, &file));
        assert_ok(file_pread(cached_file_handle(file), &content, sizeof content, 0, &got));
        assert_int_equal(content, n);
        file_cache_unref(s->cache, file);
        if (random >> 60 == 0)
            file_cache_forget(s->cache, key(n, 0));
    }
    return NULL;
}

static void threads_share_few_descriptors(void **state)
{
    (void)state;
    struct shared s = {.dir = "/tmp/tern_file_cache_XXXXXX"};
    char path[96];
    pthread_t threads[THREADS];
    assert_non_null(mkdtemp(s.dir));
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/f%u", s.dir, i);
        make_file(fs_posix(), path, i);
    }
    assert_ok(file_cache_create(fs_posix(), 3, &s.cache));
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_files, &s), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(file_cache_count(s.cache) <= 3);
    file_cache_destroy(s.cache);
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/f%u", s.dir, i);
        unlink(path);
    }
    rmdir(s.dir);
}

/* ---- a file that is removed between being opened and being added ---- */

static struct fixture *racing;
static const struct fs_ops *real_ops;

static enum tern_code open_and_lose(struct fs *fs, const char *path, unsigned flags,
                                    struct file **out)
{
    enum tern_code code = real_ops->open(fs, path, flags, out);
    fs->ops = real_ops; /* once */
    file_cache_forget(racing->cache, key(0, 0));
    assert_ok(fs_unlink(fs, path));
    make_file(fs, path, 0);
    return code;
}

/* Or writes to it would go to a file that no longer is. */
static void a_file_removed_while_it_is_opened_is_not_kept(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 4, 1);
    struct fs *fs = f.sim.env.fs;
    real_ops = fs->ops;
    struct fs_ops ops = *real_ops;
    ops.open = open_and_lose;
    racing = &f;
    fs->ops = &ops;
    struct cached_file *file;
    uint64_t content = 77;
    size_t got;
    assert_ok(file_cache_open(f.cache, key(0, 0), path_of(0), FS_READ | FS_WRITE, &file));
    assert_ok(file_pwrite(cached_file_handle(file), &content, sizeof content, 0));
    file_cache_unref(f.cache, file);
    struct file *other;
    assert_ok(fs_open(fs, path_of(0), FS_READ, &other));
    assert_ok(file_pread(other, &content, sizeof content, 0, &got));
    assert_int_equal(content, 77);
    file_close(other);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_descriptors_serve_a_hundred_files),
        cmocka_unit_test(the_least_recently_used_file_is_closed),
        cmocka_unit_test(a_file_in_use_is_never_closed),
        cmocka_unit_test(a_forgotten_file_is_closed_by_its_last_user),
        cmocka_unit_test(all_files_of_an_owner_are_forgotten),
        cmocka_unit_test(a_failed_open_leaves_code_and_errno),
        cmocka_unit_test(threads_share_few_descriptors),
        cmocka_unit_test(a_file_removed_while_it_is_opened_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
