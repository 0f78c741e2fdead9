/* Damage that recovery refuses, and files that it mends or leaves alone. */
#include "tests/unit/store/recovery_world.h"

/* ---- damage ---- */

static void damage_with_records_behind_is_refused(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 1);
    int64_t off = w->sent[w->sent_count - 3]->append.first_phys_off;
    for (int clean = 0; clean < 2; clean++) {
        if (clean)
            world_close(w);
        else
            world_process_crash(w);
        uint8_t was;
        world_peek(w, off + 100, &was, 1);
        world_poke(w, off + 100, &(uint8_t){(uint8_t)(was ^ 1)}, 1);
        assert_int_equal(world_try_open(w), TERN_CORRUPT);
        char name[32];
        snprintf(name, sizeof name, "commitlog/%020d",
                 (int)(off / WORLD_SEGMENT_BYTES) * WORLD_SEGMENT_BYTES);
        assert_non_null(strstr(w->err.text, name));
        assert_non_null(strstr(w->err.text, "put the segment back from a copy"));
        uint8_t still;
        world_peek(w, off + 100, &still, 1);
        assert_int_equal(still, was ^ 1);
        w->options.read_only = true; /* tools can still look */
        world_open(w);
        assert_int_equal(w->recovery.log_end, off);
        world_close(w);
        w->options.read_only = false;
        world_poke(w, off + 100, &was, 1);
        world_open(w);
        world_check(w);
    }
}

/* What the refusal says can be done: the store opens with what lies before the damaged segment. */
static void moving_the_damaged_segment_away_opens_the_store(void **state)
{
    struct world *w = *state;
    char path[FS_PATH_BYTES];
    world_open(w);
    fill_segments(w, 2);
    int64_t off = w->sent[w->sent_count / 2]->append.first_phys_off;
    int64_t base = off / WORLD_SEGMENT_BYTES * WORLD_SEGMENT_BYTES;
    assert_int_equal(base, WORLD_SEGMENT_BYTES);
    world_close(w);
    world_poke(w, off + 100, "damage", 6);
    assert_int_equal(world_try_open(w), TERN_CORRUPT);
    for (int64_t at = 2 * base; at >= base; at -= base) {
        world_segment_path(at, path);
        assert_int_equal(fs_rename(w->sim.env.fs, path, at == base ? "/damaged" : "/later"),
                         TERN_OK);
    }
    world_forget_from(w, base);
    world_open(w);
    assert_int_equal(commit_log_end(w->store->log), base);
    world_check(w);
    world_append_ok(w, 0, 100, 1);
    world_check(w);
}

/* Or with its beginning, when a copy that ends at the named byte is put back. */
static void a_shortened_copy_of_the_damaged_segment_saves_its_beginning(void **state)
{
    struct world *w = *state;
    char path[FS_PATH_BYTES];
    struct file *file;
    world_open(w);
    fill_segments(w, 1);
    int64_t off = w->sent[w->sent_count - 3]->append.first_phys_off;
    int64_t base = off / WORLD_SEGMENT_BYTES * WORLD_SEGMENT_BYTES;
    world_close(w);
    world_poke(w, off + 100, "damage", 6);
    assert_int_equal(world_try_open(w), TERN_CORRUPT);
    for (int64_t at = base + 4 * WORLD_SEGMENT_BYTES; at > base; at -= WORLD_SEGMENT_BYTES) {
        world_segment_path(at, path);
        (void)!fs_unlink(w->sim.env.fs, path);
    }
    world_segment_path(base, path);
    assert_int_equal(fs_open(w->sim.env.fs, path, FS_WRITE, &file), TERN_OK);
    assert_int_equal(file_truncate(file, off - base), TERN_OK);
    file_close(file);
    world_forget_from(w, off);
    world_open(w);
    assert_int_equal(commit_log_end(w->store->log), off);
    world_check(w);
    world_append_ok(w, 0, 100, 1);
    world_check(w);
}

/* Without our mark (a RocketMQ store) a later segment's whole first record is evidence enough. */
static void damage_without_mark_is_seen_by_the_next_segment(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 2);
    world_process_crash(w);
    assert_int_equal(fs_unlink(w->sim.env.fs, WORLD_ROOT "/ternmq/flushed"), TERN_OK);
    int64_t off = w->sent[3]->append.first_phys_off;
    uint8_t was;
    world_peek(w, off + 100, &was, 1);
    world_poke(w, off + 100, &(uint8_t){(uint8_t)~was}, 1);
    assert_int_equal(world_try_open(w), TERN_CORRUPT);
    world_poke(w, off + 100, &was, 1);
    world_open(w);
    world_check(w);
}

/* The checkpoint proves what was flushed even when the mark is too old. */
static void damage_before_the_checkpoint_is_refused(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 500, 1);
    world_close(w);
    uint8_t old_mark[8192];
    size_t got;
    struct file *file;
    assert_int_equal(
        fs_open(w->sim.env.fs, WORLD_ROOT "/ternmq/flushed", FS_READ | FS_WRITE, &file), TERN_OK);
    assert_int_equal(file_pread(file, old_mark, sizeof old_mark, 0, &got), TERN_OK);
    file_close(file);
    world_open(w);
    world_append_ok(w, 0, 500, 5);
    world_run(w, 10000);
    world_append_ok(w, 1, 500, 1);
    world_run(w, 61000); /* a thorough round: the checkpoint */
    world_process_crash(w);
    assert_int_equal(
        fs_open(w->sim.env.fs, WORLD_ROOT "/ternmq/flushed", FS_READ | FS_WRITE, &file), TERN_OK);
    assert_int_equal(file_pwrite(file, old_mark, got, 0), TERN_OK);
    file_close(file);
    int64_t off = w->sent[1]->append.first_phys_off;
    uint8_t byte = 0xEE;
    world_poke(w, off + 100, &byte, 1);
    /* Records behind were stored ten seconds before the newest flushed one: flushed for sure. */
    assert_int_equal(world_try_open(w), TERN_CORRUPT);
}

static void missing_segment_in_the_middle_is_refused(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 3);
    world_close(w);
    char path[FS_PATH_BYTES];
    world_segment_path(WORLD_SEGMENT_BYTES, path);
    assert_int_equal(fs_unlink(w->sim.env.fs, path), TERN_OK);
    assert_int_equal(world_try_open(w), TERN_CORRUPT);
    assert_non_null(strstr(w->err.text, "00000000000000016384"));
}

static void wrong_segment_length_is_refused_with_the_key(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 2);
    world_close(w);
    w->options.segment_bytes = 2 * WORLD_SEGMENT_BYTES;
    assert_int_equal(world_try_open(w), TERN_CONFIG);
    assert_non_null(strstr(w->err.text, "mappedFileSizeCommitLog"));
    w->options.segment_bytes = WORLD_SEGMENT_BYTES / 2;
    assert_int_equal(world_try_open(w), TERN_CONFIG);
    assert_non_null(strstr(w->err.text, "mappedFileSizeCommitLog"));
    w->options.segment_bytes = WORLD_SEGMENT_BYTES;
    world_open(w);
    world_check(w);
}

static void short_last_segment_is_extended(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 1);
    int64_t end = commit_log_end(w->store->log);
    world_close(w);
    char path[FS_PATH_BYTES];
    world_segment_path(WORLD_SEGMENT_BYTES, path);
    struct file *file;
    assert_int_equal(fs_open(w->sim.env.fs, path, FS_READ | FS_WRITE, &file), TERN_OK);
    assert_int_equal(file_truncate(file, end - WORLD_SEGMENT_BYTES), TERN_OK);
    file_close(file);
    world_open(w);
    assert_int_equal(w->recovery.log_end, end);
    int64_t size;
    struct fs_stat stat;
    assert_int_equal(fs_stat(w->sim.env.fs, path, &stat), TERN_OK);
    size = stat.size_bytes;
    assert_int_equal(size, WORLD_SEGMENT_BYTES);
    world_append_ok(w, 0, 100, 1);
    world_check(w);
}

static void stray_files_are_reported_and_left(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 1);
    world_close(w);
    struct file *file;
    assert_int_equal(
        fs_open(w->sim.env.fs, WORLD_ROOT "/commitlog/notes.txt", FS_WRITE | FS_CREATE, &file),
        TERN_OK);
    file_close(file);
    world_open(w);
    assert_int_equal(sim_log_count(&w->sim, "store.stray_file"), 1);
    world_check(w);
    world_close(w);
    assert_true(fs_exists(w->sim.env.fs, WORLD_ROOT "/commitlog/notes.txt"));
}

/* RocketMQ leaves an empty segment ahead of need. */
static void empty_segment_behind_the_end_is_removed(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 1);
    int64_t end = commit_log_end(w->store->log);
    world_process_crash(w);
    char path[FS_PATH_BYTES];
    struct file *file;
    world_segment_path(WORLD_SEGMENT_BYTES, path);
    assert_int_equal(fs_open(w->sim.env.fs, path, FS_WRITE | FS_CREATE, &file), TERN_OK);
    assert_int_equal(file_reserve(file, 0, WORLD_SEGMENT_BYTES), TERN_OK);
    file_close(file);
    world_open(w);
    assert_int_equal(w->recovery.log_end, end);
    assert_false(fs_exists(w->sim.env.fs, path));
    world_check(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(damage_with_records_behind_is_refused),
        T(moving_the_damaged_segment_away_opens_the_store),
        T(a_shortened_copy_of_the_damaged_segment_saves_its_beginning),
        T(damage_without_mark_is_seen_by_the_next_segment),
        T(damage_before_the_checkpoint_is_refused),
        T(missing_segment_in_the_middle_is_refused),
        T(wrong_segment_length_is_refused_with_the_key),
        T(short_last_segment_is_extended),
        T(stray_files_are_reported_and_left),
        T(empty_segment_behind_the_end_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
