/*
 * The log as bytes: a copy fed in pieces cut anywhere becomes the same, and refuses what is no
 * continuation.
 */
#include "tests/unit/store/pair_world.h"

#include "base/bytes.h"
#include "broker/store/commit_log_internal.h"

/* ---- the same files ---- */

static void copied_in_chunks_of(uint64_t seed, size_t chunk, int appends)
{
    struct pair p;
    pair_init(&p, seed);
    pair_append_mixed(&p, appends);
    copy_feed(&p.c, p.w.store, chunk, INT64_MAX);
    copy_settle(&p.c);
    pair_append_mixed(&p, appends / 4);
    copy_feed(&p.c, p.w.store, chunk, INT64_MAX);
    copy_settle(&p.c);
    assert_int_equal(p.c.end, commit_log_end(p.w.store->log));
    assert_true(p.c.arrivals == p.w.arrivals && p.c.arrivals > 0);
    assert_int_equal(atomic_load(&p.c.store->log->last_store_ms),
                     atomic_load(&p.w.store->log->last_store_ms));
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
}

/* HA-06 */
static void a_copy_fed_in_random_chunks_has_the_same_files(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++)
        copied_in_chunks_of(seed, 0, 60);
}

static void a_copy_fed_byte_by_byte_has_the_same_files(void **state)
{
    (void)state;
    copied_in_chunks_of(31, 1, 20);
}

static void a_copy_fed_across_many_segments_at_once_has_the_same_files(void **state)
{
    (void)state;
    copied_in_chunks_of(32, COPY_CHUNK_MAX, 120);
    copied_in_chunks_of(33, WORLD_SEGMENT_BYTES, 60);
    copied_in_chunks_of(34, 1024, 60);
}

static void the_source_is_read_up_to_the_segments_end(void **state)
{
    (void)state;
    struct pair p;
    uint8_t bytes[WORLD_SEGMENT_BYTES + 100];
    size_t got = 0;
    pair_init(&p, 35);
    pair_append_mixed(&p, 30);
    int64_t end = commit_log_end(p.w.store->log);
    assert_true(end > 2 * WORLD_SEGMENT_BYTES);
    assert_int_equal(store_read_bytes(p.w.store, 10, bytes, sizeof bytes, false, &got), TERN_OK);
    assert_int_equal(got, WORLD_SEGMENT_BYTES - 10);
    assert_int_equal(store_read_bytes(p.w.store, end - 5, bytes, sizeof bytes, true, &got),
                     TERN_OK);
    assert_int_equal(got, 5);
    assert_int_equal(store_read_bytes(p.w.store, end, bytes, 1, false, &got), TERN_NOT_FOUND);
    assert_int_equal(store_read_bytes(p.w.store, -1, bytes, 1, false, &got), TERN_NOT_FOUND);
    pair_fini(&p);
}

/* ---- parts of records ---- */

static void expect_positions(struct copy *c, int64_t whole, int64_t appended)
{
    struct store_positions at;
    store_positions(c->store, &at);
    assert_int_equal(at.whole, whole);
    assert_int_equal(at.appended, appended);
    assert_true(at.min <= at.flushed && at.flushed <= at.appended);
    assert_true(at.dispatched <= at.whole);
}

/* HA-05 */
static void a_part_of_a_record_is_neither_read_nor_dispatched(void **state)
{
    (void)state;
    struct pair p;
    int64_t min;
    int64_t max;
    uint8_t byte;
    size_t got = 0;
    pair_init(&p, 40);
    world_append_ok(&p.w, 0, 200, 1);
    world_append_ok(&p.w, 0, 200, 1);
    int64_t first = (int64_t)world_record_bytes(200);
    copy_feed(&p.c, p.w.store, 0, 2 * first - 1);
    world_run(&p.w, 3000);
    expect_positions(&p.c, first, 2 * first - 1);
    store_queue_range(p.c.store, WORLD_TOPIC, 0, &min, &max);
    assert_int_equal(max, 1);
    assert_int_equal(store_read_bytes(p.c.store, first, &byte, 1, false, &got), TERN_NOT_FOUND);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    store_queue_range(p.c.store, WORLD_TOPIC, 0, &min, &max);
    assert_int_equal(max, 2);
    pair_fini(&p);
}

/* A stop in the middle of a record, wherever that is, and the copy goes on from the last whole one.
 */
static void stops_in_a_record(bool clean, bool flushed)
{
    struct pair p;
    world_init(&p.w, 41);
    copy_init(&p.c, &p.w);
    p.c.options.sync_flush = false;
    p.c.options.flush_interval_ms = 100000;
    world_open(&p.w);
    copy_open(&p.c);
    world_append_ok(&p.w, 0, 300, 1);
    world_append_ok(&p.w, 1, 300, 1);
    int64_t first = (int64_t)world_record_bytes(300);
    for (int64_t part = 1; part < first; part += part < 100 ? 1 : 37) {
        copy_feed(&p.c, p.w.store, 0, first + part);
        if (flushed)
            assert_int_equal(store_flush(p.c.store, &p.c.err), TERN_OK);
        sim_log_clear(&p.w.sim);
        world_run(&p.w, 1000); /* the log keeps repeats back */
        if (clean)
            copy_close(&p.c);
        else
            copy_process_crash(&p.c);
        copy_open(&p.c);
        expect_positions(&p.c, first, first);
        assert_int_equal(p.c.recovery.clean, clean);
        assert_int_equal(sim_log_count(&p.w.sim, "store.flushed_bytes_lost"), 0);
        if (flushed || clean)
            assert_int_equal(sim_log_count(&p.w.sim, "store.partial_record"), 1);
    }
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
}

static void a_part_of_a_record_is_no_damage_after_a_clean_stop(void **state)
{
    (void)state;
    stops_in_a_record(true, true);
}

static void a_part_of_a_record_is_no_damage_after_a_crash(void **state)
{
    (void)state;
    stops_in_a_record(false, true);
    stops_in_a_record(false, false);
}

/* ---- refused ---- */

static void expect_refused(struct pair *p, int64_t at, const uint8_t *bytes, size_t size,
                           enum tern_code code)
{
    struct store_positions before;
    struct store_positions after;
    store_positions(p->c.store, &before);
    uint64_t writes = sim_fs_calls(p->c.fs, SIM_FS_PWRITEV);
    assert_int_equal(store_append_bytes(p->c.store, at, bytes, size, false, &p->c.err), code);
    assert_true(strlen(p->c.err.text) > 0);
    store_positions(p->c.store, &after);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(sim_fs_calls(p->c.fs, SIM_FS_PWRITEV), writes);
    assert_int_equal(p->c.latched, 0);
}

static void what_is_no_continuation_is_refused_and_nothing_written(void **state)
{
    (void)state;
    struct pair p;
    uint8_t bytes[1000];
    uint8_t bad[1000];
    pair_init(&p, 50);
    for (int i = 0; i < 4; i++)
        world_append_ok(&p.w, 0, 100, 1);
    int64_t size = (int64_t)world_record_bytes(100);
    copy_feed(&p.c, p.w.store, 0, size);
    copy_settle(&p.c);
    world_run(&p.w, 100);
    size_t two = (size_t)(2 * size);
    copy_read(p.w.store, size, bytes, two);

    expect_refused(&p, size + 1, bytes, two, TERN_INVALID);
    expect_refused(&p, 0, bytes, two, TERN_INVALID);
    for (size_t at = 0; at < 8; at++) { /* size or magic of either record */
        memcpy(bad, bytes, two);
        bad[at] ^= 0x55;
        expect_refused(&p, size, bad, two, TERN_CORRUPT);
        memcpy(bad, bytes, two);
        bad[(size_t)size + at] ^= 0x55;
        expect_refused(&p, size, bad, two, TERN_CORRUPT);
    }
    copy_read(p.w.store, 2 * size, bad, two); /* whole records of another place */
    expect_refused(&p, size, bad, two, TERN_CORRUPT);
    memset(bad, 0, two);
    expect_refused(&p, size, bad, two, TERN_CORRUPT);
    put_be32(bad, 100); /* a filler that does not reach the segment's end */
    put_be32(bad + 4, BLANK_MAGIC);
    expect_refused(&p, size, bad, two, TERN_CORRUPT);

    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    pair_fini(&p);
}

/* The wrong byte may come in a chunk of its own: it is found when the eighth or the thirty-sixth
 * is there. */
static void nonsense_is_refused_although_it_comes_byte_by_byte(void **state)
{
    (void)state;
    static const size_t places[] = {0, 3, 4, 7, 28, 35};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct pair p;
        uint8_t bytes[500];
        pair_init(&p, 51);
        world_append_ok(&p.w, 0, 100, 1);
        size_t size = world_record_bytes(100);
        copy_read(p.w.store, 0, bytes, size);
        bytes[places[i]] ^= 0x81;
        size_t at = 0;
        enum tern_code code = TERN_OK;
        while (at < size && !code)
            code = store_append_bytes(p.c.store, (int64_t)at, bytes + at, 1, false, &p.c.err),
            at += code ? 0 : 1;
        assert_int_equal(code, TERN_CORRUPT);
        assert_int_equal(at, places[i] < 8 ? 7 : 35);
        struct store_cut cut;
        assert_int_equal(store_cut(p.c.store, (int64_t)at, false, &cut, &p.c.err), TERN_OK);
        assert_int_equal(cut.cut_bytes, at);
        copy_feed(&p.c, p.w.store, 1, INT64_MAX);
        copy_settle(&p.c);
        world_close(&p.w);
        copy_close(&p.c);
        copy_compare(&p.c);
        pair_fini(&p);
    }
}

static void a_full_disk_refuses_bytes_and_does_not_latch(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, 52);
    world_append_ok(&p.w, 0, 100, 1);
    size_t size = world_record_bytes(100);
    copy_read(p.w.store, 0, p.c.chunk, size);
    gate_set_disk(&p.c.store->gate, true, 0.95);
    expect_refused(&p, 0, p.c.chunk, size, TERN_NO_SPACE);
    gate_set_disk(&p.c.store->gate, false, 0.5);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    pair_fini(&p);
}

static void without_waiting_a_missing_segment_is_told_and_nothing_written(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, 53);
    pair_append_mixed(&p, 60);
    int64_t end = commit_log_end(p.w.store->log);
    assert_true(end > 4 * WORLD_SEGMENT_BYTES);
    size_t size = 3 * WORLD_SEGMENT_BYTES;
    copy_read(p.w.store, 0, p.c.chunk, size);
    assert_int_equal(store_append_bytes(p.c.store, 0, p.c.chunk, size, true, &p.c.err), TERN_AGAIN);
    assert_int_equal(copy_end(&p.c), 0);
    /* The preparer makes one after the other; each attempt takes what is there. */
    int tries = 0;
    while (store_append_bytes(p.c.store, 0, p.c.chunk, size, true, &p.c.err) == TERN_AGAIN) {
        world_run(&p.w, 1);
        assert_true(++tries < 100);
    }
    assert_int_equal(copy_end(&p.c), size);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_fed_in_random_chunks_has_the_same_files),
        cmocka_unit_test(a_copy_fed_byte_by_byte_has_the_same_files),
        cmocka_unit_test(a_copy_fed_across_many_segments_at_once_has_the_same_files),
        cmocka_unit_test(the_source_is_read_up_to_the_segments_end),
        cmocka_unit_test(a_part_of_a_record_is_neither_read_nor_dispatched),
        cmocka_unit_test(a_part_of_a_record_is_no_damage_after_a_clean_stop),
        cmocka_unit_test(a_part_of_a_record_is_no_damage_after_a_crash),
        cmocka_unit_test(what_is_no_continuation_is_refused_and_nothing_written),
        cmocka_unit_test(nonsense_is_refused_although_it_comes_byte_by_byte),
        cmocka_unit_test(a_full_disk_refuses_bytes_and_does_not_latch),
        cmocka_unit_test(without_waiting_a_missing_segment_is_told_and_nothing_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
