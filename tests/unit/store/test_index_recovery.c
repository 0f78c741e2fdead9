/* The index after a stop: what is kept, replayed, mended or removed; and calls that fail. */
#include "tests/unit/store/index_world.h"

#include <errno.h>

/* One of the queue flusher's rounds, after which the marks say what it did. */
static void sync_round(struct fixture *f, int64_t dispatched)
{
    assert_ok(index_service_sync(f->index, f->safe_ms, &f->safe_ms, &f->err));
    f->durable_phys = dispatched;
}

static int64_t restart_clean(struct fixture *f)
{
    int64_t end_phys;
    flush(f);
    index_service_destroy(f->index);
    open_index(f, true, &end_phys);
    return end_phys;
}

/* The position from which the store would dispatch again for the index. */
static int64_t crash(struct fixture *f, int torn)
{
    int64_t end_phys;
    if (torn < 0)
        sim_fs_process_crash(f->sim.fs);
    else
        sim_fs_power_loss(f->sim.fs, (enum sim_torn)torn);
    index_service_destroy(f->index);
    open_index(f, false, &end_phys);
    return f->state == INDEX_BEHIND && f->durable_phys < f->log_end ? f->durable_phys : end_phys;
}

/* ---- restarts ---- */

static void replaying_after_a_clean_stop_changes_no_byte(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 70);
    put_numbered(&f, 0, 100);
    for (int i = 0; i < 5; i++) {
        size_t size;
        assert_int_equal(restart_clean(&f), 9900);
        uint32_t last = f.index->file_count - 1;
        uint8_t *before = read_file(&f, last, &size);
        put_numbered(&f, 50, 100);
        flush(&f);
        assert_int_equal(f.index->file_count - 1, last);
        uint8_t *after = read_file(&f, last, &size);
        assert_memory_equal(before, after, size);
        free(before);
        free(after);
    }
    check_numbered(&f, 0, 100);
    tear_down(&f);
}

static void a_record_whose_keys_are_half_in_a_lost_file_gets_the_rest(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 10); /* 9 entries: the fifth record has one key in each file */
    put_numbered(&f, 0, 5);
    assert_ok(index_apply(f.index));
    sync_round(&f, 0);
    sync_round(&f, 0); /* the full file loses its mark, the other has one and is dropped */
    assert_int_equal(f.index->file_count, 2);
    assert_int_equal(crash(&f, SIM_TORN_NONE), 400);
    assert_int_equal(f.index->file_count, 1);
    put_numbered(&f, 0, 5);
    assert_ok(index_apply(f.index));
    assert_int_equal(f.index->file_count, 2);
    assert_int_equal(f.index->files[1]->header.count, 2);
    check_numbered(&f, 0, 5);
    tear_down(&f);
}

static void crashes_while_files_change_leave_no_orphans(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct fixture f;
        set_up(&f, seed, 17, 40);
        int put_to = 0;
        for (int round = 0; round < 6; round++) {
            unsigned before = files(&f);
            int next = put_to + 5 + (int)rng_below(f.sim.env.rng, 30);
            put_numbered(&f, put_to, next);
            put_to = next;
            if (rng_below(f.sim.env.rng, 2))
                assert_ok(index_apply(f.index));
            if (rng_below(f.sim.env.rng, 2)) /* the power goes in the middle of it */
                sim_fs_fail(f.sim.fs, &(struct sim_fs_fault){
                                          .op = SIM_FS_ANY,
                                          .nth = 1 + (unsigned)rng_below(f.sim.env.rng, 40),
                                          .errno_value = EIO,
                                          .forever = true});
            (void)!index_apply(f.index);
            int64_t safe_ms;
            if (index_service_sync(f.index, f.safe_ms, &safe_ms, &f.err) == TERN_OK) {
                f.safe_ms = safe_ms;
                f.durable_phys = put_to * 100;
            }
            sim_fs_fail_clear(f.sim.fs);
            int64_t end = crash(&f, seed % 2 ? SIM_TORN_PAGES : SIM_TORN_SECTORS);
            assert_true(files(&f) <= before + 4);
            assert_int_equal(files(&f), f.index->file_count);
            put_numbered(&f, (int)(end / 100), put_to);
            check_numbered(&f, 0, put_to);
            if (round % 2)
                flush(&f);
        }
        tear_down(&f);
    }
}

static void a_flushed_file_survives_a_crash_an_unflushed_one_is_rebuilt(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 1000);
    put_numbered(&f, 0, 50);
    flush(&f);
    assert_int_equal(crash(&f, SIM_TORN_NONE), 4900);
    check_numbered(&f, 0, 50);
    put_numbered(&f, 50, 60);
    assert_ok(index_apply(f.index));    /* written, not synced */
    assert_int_equal(crash(&f, -1), 0); /* nor does a flush mark speak of it */
    assert_int_equal(files(&f), 0);
    put_numbered(&f, 0, 60);
    check_numbered(&f, 0, 60);
    tear_down(&f);
}

static void a_file_beyond_the_checkpoint_is_removed_after_a_crash_only(void **state)
{
    (void)state;
    struct fixture f;
    int64_t end;
    set_up(&f, 1, 17, 1000);
    put_numbered(&f, 0, 50);
    flush(&f);
    f.safe_ms -= 1;
    index_service_destroy(f.index);
    open_index(&f, true, &end);
    assert_int_equal(end, 4900);
    index_service_destroy(f.index);
    open_index(&f, false, &end);
    assert_int_equal(end, 0);
    assert_int_equal(files(&f), 0);
    tear_down(&f);
}

static void foreign_files_are_left_alone(void **state)
{
    (void)state;
    struct fixture f;
    struct file *file;
    set_up(&f, 1, 17, 50);
    put_numbered(&f, 0, 10);
    flush(&f);
    assert_ok(fs_open(f.sim.env.fs, DIR "/readme", FS_WRITE | FS_CREATE, &file));
    file_close(file);
    assert_ok(fs_open(f.sim.env.fs, DIR "/20200101000000000", FS_WRITE | FS_CREATE, &file));
    assert_ok(file_truncate(file, 4711));
    file_close(file);
    assert_int_equal(restart_clean(&f), 900);
    assert_int_equal(files(&f), 3);
    assert_int_equal(f.index->file_count, 1);
    check_numbered(&f, 0, 10);
    tear_down(&f);
}

static void names_grow_though_the_clock_stands_still(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 4);
    put_numbered(&f, 0, 60); /* virtual time does not move */
    check_numbered(&f, 0, 60);
    for (uint32_t i = 1; i < f.index->file_count; i++)
        assert_true(strcmp(f.index->files[i - 1]->name, f.index->files[i]->name) < 0);
    restart_clean(&f);
    check_numbered(&f, 0, 60);
    tear_down(&f);
}

/* ---- mending ---- */

/* What a sync has covered is not dispatched again, whatever became of the rest. */
static void a_crash_keeps_what_was_synced(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct fixture f;
        set_up(&f, seed, 17, 100);
        int synced = 20 + (int)rng_below(f.sim.env.rng, 150);
        int end = synced + (int)rng_below(f.sim.env.rng, 60);
        put_numbered(&f, 0, synced);
        sync_round(&f, synced * 100);
        for (int n = synced; n < end; n++) {
            put_numbered(&f, n, n + 1);
            if (rng_below(f.sim.env.rng, 10) == 0)
                assert_ok(index_apply(f.index));
        }
        uint64_t created = f.index->file_count;
        assert_int_equal(crash(&f, (int)(seed % 4)), synced * 100);
        assert_true(f.index->file_count <= created);
        check_numbered(&f, 0, synced);
        struct hits *hits = query(&f, "common", 0, INT64_MAX);
        assert_int_equal(hits->count, synced);
        put_numbered(&f, synced - 3, end); /* a replay may begin before */
        check_numbered(&f, 0, end);
        hits = query(&f, "common", 0, INT64_MAX);
        assert_int_equal(hits->count, end);
        tear_down(&f);
    }
}

/* Mended once more without anything new, the same. */
static void mending_twice_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    size_t size;
    set_up(&f, 1, 17, 1000);
    put_numbered(&f, 0, 50);
    sync_round(&f, 5000);
    put_numbered(&f, 50, 60);
    assert_ok(index_apply(f.index));
    assert_int_equal(crash(&f, -1), 5000);
    uint8_t *once = read_file(&f, 0, &size);
    assert_int_equal(crash(&f, SIM_TORN_SECTORS), 5000);
    assert_int_equal(crash(&f, SIM_TORN_NONE), 5000);
    uint8_t *again = read_file(&f, 0, &size);
    assert_memory_equal(once, again, size);
    free(once);
    free(again);
    check_numbered(&f, 0, 50);
    tear_down(&f);
}

/* A file of other options after a crash: nothing that the flush mark says of the index counts. */
static void a_file_that_does_not_fit_makes_the_mark_void(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 50);
    put_numbered(&f, 0, 10);
    sync_round(&f, 1000);
    f.slots = 19;
    assert_int_equal(crash(&f, -1), 0);
    assert_int_equal(f.state, INDEX_LOST);
    assert_int_equal(files(&f), 0);
    tear_down(&f);
}

/* ---- failing calls ---- */

/* Each call fails once, for want of room. What can be tried again is; a sync is not. */
static void any_failing_call_is_reported_and_loses_nothing(void **state)
{
    (void)state;
    unsigned failures = 0;
    unsigned finals = 0;
    for (unsigned nth = 1; nth < 400; nth++) {
        struct fixture f;
        set_up(&f, nth, 17, 30);
        put_numbered(&f, 0, 7);
        flush(&f);
        f.durable_phys = 700;
        uint64_t calls = sim_fs_calls(f.sim.fs, SIM_FS_ANY);
        sim_fs_fail(f.sim.fs,
                    &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = ENOSPC});
        bool failed = false;
        for (int to = 17; to <= 57; to += 10) {
            put_numbered(&f, to - 10, to);
            int64_t safe_ms;
            failed |= index_apply(f.index) != TERN_OK;
            failed |= index_service_sync(f.index, f.safe_ms, &safe_ms, &f.err) != TERN_OK;
        }
        bool done = sim_fs_calls(f.sim.fs, SIM_FS_ANY) - calls < nth;
        sim_fs_fail_clear(f.sim.fs);
        failures += failed;
        if (atomic_load(&f.index->failed)) {
            int64_t safe_ms;
            finals++;
            assert_int_equal(index_service_finish(f.index, &safe_ms, &f.err), TERN_IO);
            assert_int_equal(crash(&f, SIM_TORN_PAGES), 700);
            put_numbered(&f, 7, 57);
        }
        flush(&f);
        check_numbered(&f, 0, 57);
        restart_clean(&f);
        check_numbered(&f, 0, 57);
        assert_int_equal(files(&f), f.index->file_count);
        tear_down(&f);
        if (done)
            break;
    }
    assert_true(failures > 50);
    assert_true(finals > 5);
}

/*
 * ST-07 for the index: after a sync that failed once, the next one succeeds without the pages that
 * are lost; a crash afterwards must not find a file that is said to be whole.
 */
static void a_failed_sync_is_not_tried_again(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 50);
    put_numbered(&f, 0, 30); /* the first file is full */
    assert_ok(index_apply(f.index));
    sim_fs_fail(f.sim.fs,
                &(struct sim_fs_fault){.op = SIM_FS_SYNC, .nth = 1, .errno_value = ENOSPC});
    assert_int_equal(index_files_sync_full(f.index), TERN_IO);
    for (int i = 0; i < 3; i++) {
        int64_t safe_ms;
        sim_run_for(f.sim.sched, 2000 * 1000000ll);
        assert_int_equal(index_service_sync(f.index, f.safe_ms, &safe_ms, &f.err), TERN_IO);
    }
    assert_int_equal(crash(&f, SIM_TORN_NONE), 0);
    assert_int_equal(files(&f), 0);
    tear_down(&f);
}

static void a_full_ring_is_applied_by_the_putter(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 1000, 1000000);
    for (int n = 0; n < INDEX_RING_KEYS + 100; n++) /* the task does not get to run */
        put(&f, n * 100, NULL, "key");
    assert_true(f.index->files[0]->header.count > INDEX_RING_KEYS - 10);
    assert_false(index_service_busy(f.index));
    tear_down(&f);
}

/* Nothing can be written: what is in files and what is not are found, newest first. */
static void keys_are_found_on_a_full_disk(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1, 17, 1000);
    put_numbered(&f, 0, 30);
    assert_ok(index_apply(f.index));
    sim_fs_fail(f.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_PWRITEV,
                                                 .path_part = "/index/",
                                                 .nth = 1,
                                                 .errno_value = ENOSPC,
                                                 .forever = true});
    put_numbered(&f, 30, 150);
    assert_int_equal(query(&f, "U3", 0, INT64_MAX)->count, 1);
    assert_int_equal(query(&f, "U77", 0, INT64_MAX)->count, 1);
    struct hits *hits = query(&f, "common", 0, INT64_MAX);
    assert_int_equal(hits->count, 150);
    for (int i = 0; i < 150; i++)
        assert_int_equal(hits->phys[i], (149 - i) * 100);
    assert_int_equal(query(&f, "U77", 0, T0 + 7600)->count, 0);
    sim_fs_fail_clear(f.sim.fs);
    assert_int_equal(query(&f, "common", 0, INT64_MAX)->count, 150);
    tear_down(&f);
}

/* Puts from `n` on; returns the first that found no room. */
static int put_until_full(struct fixture *f, int n)
{
    enum tern_code code = TERN_OK;
    while ((code = try_put(f, n * 100ll, NULL, "key", 0)) == TERN_OK)
        n++;
    assert_int_equal(code, TERN_NO_SPACE);
    return n;
}

/* A start on a full disk: a ring that grows, up to its limit. */
static void keys_that_find_no_room_are_kept_while_that_is_wanted(void **state)
{
    (void)state;
    struct fixture f;
    int n = 0;
    set_up(&f, 1, 1000, 10000000);
    sim_fs_fail(f.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_OPEN,
                                                 .path_part = "/index/",
                                                 .nth = 1,
                                                 .errno_value = ENOSPC,
                                                 .forever = true});
    n = put_until_full(&f, n);
    assert_in_range(n, INDEX_RING_KEYS - 4, INDEX_RING_KEYS);
    index_service_keep(f.index, true);
    n = put_until_full(&f, n);
    assert_in_range(n, INDEX_RING_KEYS_MAX - 4, INDEX_RING_KEYS_MAX);
    assert_true(index_service_busy(f.index));
    sim_fs_fail_clear(f.sim.fs);
    put(&f, n++ * 100ll, NULL, "key");
    flush(&f);
    assert_int_equal(f.index->files[0]->header.count, n + 1);
    assert_false(index_service_busy(f.index));
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replaying_after_a_clean_stop_changes_no_byte),
        cmocka_unit_test(a_record_whose_keys_are_half_in_a_lost_file_gets_the_rest),
        cmocka_unit_test(crashes_while_files_change_leave_no_orphans),
        cmocka_unit_test(a_flushed_file_survives_a_crash_an_unflushed_one_is_rebuilt),
        cmocka_unit_test(a_file_beyond_the_checkpoint_is_removed_after_a_crash_only),
        cmocka_unit_test(foreign_files_are_left_alone),
        cmocka_unit_test(names_grow_though_the_clock_stands_still),
        cmocka_unit_test(a_crash_keeps_what_was_synced),
        cmocka_unit_test(mending_twice_changes_nothing),
        cmocka_unit_test(a_file_that_does_not_fit_makes_the_mark_void),
        cmocka_unit_test(a_failed_sync_is_not_tried_again),
        cmocka_unit_test(any_failing_call_is_reported_and_loses_nothing),
        cmocka_unit_test(keys_are_found_on_a_full_disk),
        cmocka_unit_test(keys_that_find_no_room_are_kept_while_that_is_wanted),
        cmocka_unit_test(a_full_ring_is_applied_by_the_putter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
