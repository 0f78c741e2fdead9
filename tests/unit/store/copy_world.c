/* A copy of a world's store. Threads: one. Failure modes: cmocka assertions. */
#include "tests/unit/store/copy_world.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "broker/store/dir_names.h"

enum { SETTLE_LIMIT_MS = 20000 };

static void on_end(void *arg, int64_t end)
{
    struct copy *c = arg;
    assert_true(end > c->end);
    c->end = end;
    c->ends++;
}

static void on_arrival(void *arg, const struct store_arrival *arrival)
{
    struct copy *c = arg;
    c->arrivals += arrival->count;
}

static void on_latched(void *arg, enum tern_code code, const char *text)
{
    struct copy *c = arg;
    (void)code;
    (void)text;
    c->latched++;
}

void copy_init(struct copy *c, struct world *w)
{
    memset(c, 0, sizeof *c);
    c->w = w;
    c->fs = sim_env_machine(&w->sim, &c->env);
    c->options = w->options;
    c->options.observer = (struct store_observer){
        .arg = c, .on_end = on_end, .on_arrival = on_arrival, .on_latched = on_latched};
    c->chunk = malloc(COPY_CHUNK_MAX);
    assert_non_null(c->chunk);
}

void copy_fini(struct copy *c)
{
    if (c->store)
        (void)store_close(c->store, NULL);
    free(c->chunk);
}

enum tern_code copy_try_open(struct copy *c)
{
    assert_null(c->store);
    c->end = 0;
    c->latched = 0;
    memset(&c->err, 0, sizeof c->err);
    return store_open(&c->env, &c->options, &c->store, &c->recovery, &c->err);
}

void copy_open(struct copy *c)
{
    enum tern_code code = copy_try_open(c);
    if (code)
        fail_msg("store_open: %s: %s", tern_code_name(code), c->err.text);
}

void copy_close(struct copy *c)
{
    struct tern_error err = {TERN_OK, ""};
    enum tern_code code = store_close(c->store, &err);
    c->store = NULL;
    if (code)
        fail_msg("store_close: %s: %s", tern_code_name(code), err.text);
}

static void die(struct copy *c)
{
    struct sim_fs_fault all = {.op = SIM_FS_ANY, .nth = 1, .errno_value = EIO, .forever = true};
    sim_fs_fail(c->fs, &all);
    if (c->store)
        (void)store_close(c->store, NULL);
    c->store = NULL;
    sim_fs_fail_clear(c->fs);
    sim_fs_set_hook(c->fs, NULL, NULL);
}

void copy_power_loss(struct copy *c, enum sim_torn torn)
{
    sim_fs_power_loss(c->fs, torn);
    die(c);
}

void copy_process_crash(struct copy *c)
{
    sim_fs_process_crash(c->fs);
    die(c);
}

int64_t copy_end(const struct copy *c)
{
    struct store_positions at;
    store_positions(c->store, &at);
    return at.appended;
}

void copy_read(struct store *from, int64_t at, uint8_t *buf, size_t size)
{
    while (size > 0) {
        size_t got = 0;
        assert_int_equal(store_read_bytes(from, at, buf, size, false, &got), TERN_OK);
        assert_true(got > 0);
        at += (int64_t)got;
        buf += got;
        size -= got;
    }
}

static size_t random_chunk(struct copy *c)
{
    static const uint32_t bounds[] = {1, 8, 100, 3000, 70000, COPY_CHUNK_MAX};
    struct rng *rng = &c->w->sim.rng.rng;
    return 1 + (size_t)rng_below(rng, bounds[rng_below(rng, 6)]);
}

void copy_feed(struct copy *c, struct store *from, size_t chunk, int64_t until)
{
    struct store_positions at;
    store_positions(from, &at);
    if (until > at.whole)
        until = at.whole;
    for (int64_t end = copy_end(c); end < until; end = copy_end(c)) {
        size_t size = chunk ? chunk : random_chunk(c);
        if ((int64_t)size > until - end)
            size = (size_t)(until - end);
        copy_read(from, end, c->chunk, size);
        enum tern_code code = store_append_bytes(c->store, end, c->chunk, size, false, &c->err);
        if (code)
            fail_msg("append at %" PRId64 ": %s: %s", end, tern_code_name(code), c->err.text);
        assert_int_equal(copy_end(c), end + (int64_t)size);
    }
}

static bool is_settled(void *arg)
{
    struct copy *c = arg;
    struct store_positions at;
    store_positions(c->store, &at);
    return at.dispatched == at.whole;
}

void copy_settle(struct copy *c)
{
    assert_true(sim_run_until_true(c->w->sim.sched, is_settled, c,
                                   c->w->sim.clock.now_ns + ms_to_ns(SETTLE_LIMIT_MS)));
}

/* ---- comparing ---- */

static uint8_t *read_file(struct fs *fs, const char *path, size_t *size)
{
    struct file *file = NULL;
    int64_t length = 0;
    assert_int_equal(fs_open(fs, path, FS_READ, &file), TERN_OK);
    assert_int_equal(file_size(file, &length), TERN_OK);
    uint8_t *bytes = malloc((size_t)length + 1);
    assert_non_null(bytes);
    assert_int_equal(file_pread(file, bytes, (size_t)length, 0, size), TERN_OK);
    assert_int_equal(*size, length);
    file_close(file);
    return bytes;
}

static void compare_files(struct copy *c, const char *path)
{
    size_t sizes[2];
    uint8_t *ours = read_file(c->w->sim.env.fs, path, &sizes[0]);
    uint8_t *copied = read_file(c->env.fs, path, &sizes[1]);
    assert_int_equal(sizes[0], sizes[1]);
    if (memcmp(ours, copied, sizes[0]) != 0)
        fail_msg("%s differs", path);
    free(ours);
    free(copied);
}

/* A folder `depth` levels above its files. */
static void compare_dirs(struct copy *c, const char *path, int depth)
{
    struct dir_names ours;
    struct dir_names copied;
    assert_int_equal(dir_names_list(c->w->sim.env.fs, path, &ours), TERN_OK);
    assert_int_equal(dir_names_list(c->env.fs, path, &copied), TERN_OK);
    if (ours.count != copied.count)
        fail_msg("%s: %zu entries, the copy %zu", path, ours.count, copied.count);
    for (size_t i = 0; i < ours.count; i++) {
        char entry[FS_PATH_BYTES];
        assert_string_equal(ours.items[i].name, copied.items[i].name);
        assert_int_equal(fs_join(entry, path, ours.items[i].name), TERN_OK);
        if (depth > 0)
            compare_dirs(c, entry, depth - 1);
        else
            compare_files(c, entry);
    }
    dir_names_fini(&ours);
    dir_names_fini(&copied);
}

void copy_compare(struct copy *c)
{
    assert_null(c->store);
    assert_null(c->w->store);
    compare_dirs(c, WORLD_ROOT "/commitlog", 0);
    compare_dirs(c, WORLD_ROOT "/consumequeue", 2);
}
