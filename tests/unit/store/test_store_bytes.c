/*
 * The log as bytes: a copy fed in pieces cut anywhere becomes the same, refuses what is no
 * continuation, survives stops at any moment, and can go on as a master.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "broker/store/commit_log_internal.h"
#include "tests/unit/store/copy_world.h"

struct pair {
    struct world w;
    struct copy c;
};

static void pair_init(struct pair *p, uint64_t seed)
{
    world_init(&p->w, seed);
    copy_init(&p->c, &p->w);
    world_open(&p->w);
    copy_open(&p->c);
}

static void pair_fini(struct pair *p)
{
    copy_fini(&p->c);
    world_fini(&p->w);
}

static uint32_t pick(struct pair *p, uint32_t bound)
{
    return (uint32_t)rng_below(&p->w.sim.rng.rng, bound);
}

/* Records of 0 to 12,000 bytes, alone and in batches, some without a unit. */
static void append_mixed(struct pair *p, int count)
{
    for (int i = 0; i < count; i++) {
        size_t body = pick(p, 8) == 0 ? pick(p, 12000) : pick(p, 3000);
        uint32_t batch = pick(p, 4) == 0 && body < 2000 ? 1 + pick(p, 5) : 1;
        uint32_t type = pick(p, 10) == 0 ? SYS_TX_PREPARED : 0;
        struct sent *s =
            world_append_typed(&p->w, (int32_t)pick(p, WORLD_QUEUES), body, batch, type);
        world_wait(&p->w, s);
        world_run(&p->w, pick(p, 3));
    }
}

/* ---- the same files ---- */

static void copied_in_chunks_of(uint64_t seed, size_t chunk, int appends)
{
    struct pair p;
    pair_init(&p, seed);
    append_mixed(&p, appends);
    copy_feed(&p.c, p.w.store, chunk, INT64_MAX);
    copy_settle(&p.c);
    append_mixed(&p, appends / 4);
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
    append_mixed(&p, 30);
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
    append_mixed(&p, 60);
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

/* ---- crashes ---- */

/* End of the last append that lies wholly before a position. */
static int64_t last_end_before(const struct world *w, int64_t position)
{
    int64_t last = 0;
    for (size_t i = 0; i < w->sent_count; i++)
        if (w->sent[i]->append.end_phys_off <= position)
            last = w->sent[i]->append.end_phys_off;
    return last;
}

static void copy_survives_crashes(uint64_t seed)
{
    struct pair p;
    pair_init(&p, seed);
    p.c.options.sync_flush = pick(&p, 2) == 0;
    append_mixed(&p, 50);
    int64_t end = commit_log_end(p.w.store->log);
    while (copy_end(&p.c) < end) {
        int64_t more = 1 + pick(&p, 40000);
        copy_feed(&p.c, p.w.store, 0, copy_end(&p.c) + more);
        world_run(&p.w, pick(&p, 4) == 0 ? pick(&p, 70000) : pick(&p, 5));
        struct store_positions at;
        store_positions(p.c.store, &at);
        uint32_t how = pick(&p, 6);
        if (how == 0)
            copy_close(&p.c);
        else if (how == 1)
            copy_process_crash(&p.c);
        else if (how < 5)
            copy_power_loss(&p.c, (enum sim_torn)pick(&p, SIM_TORN_SECTORS + 1));
        else
            continue;
        copy_open(&p.c);
        int64_t again = copy_end(&p.c);
        /* A filler's rest counts as there as soon as its head is. */
        if (how < 2)
            assert_true(again >= at.whole && again <= at.appended + WORLD_SEGMENT_BYTES);
        else
            assert_true(again >= last_end_before(&p.w, at.flushed));
        assert_int_equal(sim_log_count(&p.w.sim, "store.flushed_bytes_lost"), 0);
    }
    copy_settle(&p.c);
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
}

static void a_copy_that_stops_at_any_moment_becomes_the_same(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 160; seed++)
        copy_survives_crashes(seed);
}

/* Appends with the nth file call failing; false when there were fewer. */
static bool copy_with_fault(unsigned nth)
{
    struct pair p;
    pair_init(&p, 60);
    append_mixed(&p, 12);
    world_run(&p.w, 100);
    int64_t end = commit_log_end(p.w.store->log);
    uint64_t before = sim_fs_calls(p.c.fs, SIM_FS_ANY);
    sim_fs_fail(p.c.fs, &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
    enum tern_code code = TERN_OK;
    while (!code && copy_end(&p.c) < end) {
        int64_t at = copy_end(&p.c);
        size_t size = end - at < 5000 ? (size_t)(end - at) : 5000;
        copy_read(p.w.store, at, p.c.chunk, size);
        code = store_append_bytes(p.c.store, at, p.c.chunk, size, false, &p.c.err);
        assert_int_equal(copy_end(&p.c), code ? at : at + (int64_t)size);
        world_run(&p.w, 5);
    }
    world_run(&p.w, 1500);
    bool reached = sim_fs_calls(p.c.fs, SIM_FS_ANY) - before >= nth;
    sim_fs_fail_clear(p.c.fs);
    copy_power_loss(&p.c, SIM_TORN_PAGES);
    copy_open(&p.c);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
    return reached;
}

static void each_failing_call_leaves_a_copy_that_goes_on(void **state)
{
    (void)state;
    unsigned nth = 1;
    while (copy_with_fault(nth))
        nth++;
    assert_true(nth > 30);
}

/* ---- going on as a master ---- */

struct master_send {
    struct store_append append; /* first */
    uint8_t bytes[512];
    bool answered;
};

static void on_master_appended(struct store_append *append)
{
    ((struct master_send *)append)->answered = true;
}

static bool is_answered(void *arg)
{
    return ((struct master_send *)arg)->answered;
}

/* Appends one record to the copy itself; the queue offset that it got. */
static int64_t send_to_copy(struct copy *c, int32_t queue_id)
{
    struct master_send s = {.answered = false};
    struct record record = {.queue_id = queue_id,
                            .topic = (const uint8_t *)WORLD_TOPIC,
                            .topic_len = sizeof WORLD_TOPIC - 1,
                            .body = (const uint8_t *)"new",
                            .body_len = 3};
    s.append.records = s.bytes;
    s.append.size_bytes = (uint32_t)record_encode(s.bytes, sizeof s.bytes, &record);
    s.append.count = 1;
    s.append.on_appended = on_master_appended;
    assert_int_equal(
        store_queue_ref(c->store, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, queue_id, &s.append.queue),
        TERN_OK);
    store_append(c->store, &s.append);
    assert_true(sim_run_until_true(c->w->sim.sched, is_answered, &s,
                                   c->w->sim.clock.now_ns + ms_to_ns(5000)));
    assert_int_equal(s.append.result, TERN_OK);
    store_queue_unref(s.append.queue);
    return s.append.first_queue_off;
}

/* HA-17 */
static void goes_on_as_master(int64_t limit, bool settled)
{
    struct pair p;
    pair_init(&p, 70);
    append_mixed(&p, 80);
    store_set_dispatch_limit(p.c.store, limit);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    if (settled)
        world_run(&p.w, 1000);
    for (int32_t q = 0; q < WORLD_QUEUES; q++) {
        int64_t min;
        int64_t max;
        store_queue_range(p.w.store, WORLD_TOPIC, q, &min, &max);
        assert_true(max > 2);
        assert_int_equal(send_to_copy(&p.c, q), max);
        assert_int_equal(send_to_copy(&p.c, q), max + 1);
    }
    store_set_dispatch_limit(p.c.store, INT64_MAX);
    copy_settle(&p.c);
    copy_close(&p.c);
    copy_open(&p.c);
    copy_settle(&p.c);
    for (int32_t q = 0; q < WORLD_QUEUES; q++) {
        int64_t min;
        int64_t max;
        int64_t copied;
        store_queue_range(p.w.store, WORLD_TOPIC, q, &min, &max);
        store_queue_range(p.c.store, WORLD_TOPIC, q, &min, &copied);
        assert_int_equal(copied, max + 2);
    }
    pair_fini(&p);
}

static void a_copy_gives_out_the_next_offsets_when_it_becomes_master(void **state)
{
    (void)state;
    goes_on_as_master(INT64_MAX, true);
    goes_on_as_master(INT64_MAX, false);
    goes_on_as_master(0, true); /* nothing dispatched */
    goes_on_as_master(50000, true);
}

static void nothing_is_appended_behind_a_part_of_a_record(void **state)
{
    (void)state;
    struct pair p;
    struct master_send s = {.answered = false};
    char text[256];
    pair_init(&p, 71);
    world_append_ok(&p.w, 0, 100, 1);
    copy_feed(&p.c, p.w.store, 0, 50);
    struct record record = {.topic = (const uint8_t *)WORLD_TOPIC,
                            .topic_len = sizeof WORLD_TOPIC - 1};
    s.append.records = s.bytes;
    s.append.size_bytes = (uint32_t)record_encode(s.bytes, sizeof s.bytes, &record);
    s.append.count = 1;
    s.append.on_appended = on_master_appended;
    assert_int_equal(
        store_queue_ref(p.c.store, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, 0, &s.append.queue),
        TERN_OK);
    store_append(p.c.store, &s.append);
    world_run(&p.w, 100);
    assert_true(s.answered);
    assert_int_equal(s.append.result, TERN_SERVICE_NOT_AVAILABLE);
    store_refusal_text(p.c.store, s.append.result, text, sizeof text);
    assert_non_null(strstr(text, "inside a record"));
    store_queue_unref(s.append.queue);
    struct store_cut cut;
    assert_int_equal(store_cut(p.c.store, INT64_MAX, false, &cut, &p.c.err), TERN_OK);
    assert_int_equal(cut.cut_bytes, 50);
    assert_int_equal(send_to_copy(&p.c, 0), 0);
    pair_fini(&p);
}

/* ---- flushing ---- */

static void flush_brings_everything_to_the_disk(void **state)
{
    (void)state;
    struct pair p;
    world_init(&p.w, 80);
    p.w.options.sync_flush = false;
    p.w.options.flush_interval_ms = 100000;
    copy_init(&p.c, &p.w);
    world_open(&p.w);
    copy_open(&p.c);
    append_mixed(&p, 30);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    struct store_positions at;
    store_positions(p.c.store, &at);
    assert_true(at.flushed < at.appended);
    assert_int_equal(store_flush(p.c.store, &p.c.err), TERN_OK);
    store_positions(p.c.store, &at);
    assert_int_equal(at.flushed, at.appended);
    copy_power_loss(&p.c, SIM_TORN_NONE);
    copy_open(&p.c);
    assert_int_equal(copy_end(&p.c), at.appended);
    pair_fini(&p);
}

static void a_failed_flush_is_told(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, 81);
    world_append_ok(&p.w, 0, 100, 1);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    sim_fs_fail(p.c.fs, &(struct sim_fs_fault){.op = SIM_FS_SYNC, .nth = 1, .errno_value = EIO});
    assert_int_equal(store_flush(p.c.store, &p.c.err), TERN_IO);
    assert_int_equal(store_flush(p.c.store, &p.c.err), TERN_IO);
    assert_int_equal(p.c.latched, 1);
    sim_fs_fail_clear(p.c.fs);
    pair_fini(&p);
}

static bool is_flushed(void *arg)
{
    struct store_positions at;
    store_positions(arg, &at);
    return at.flushed == at.appended;
}

static void sync_flush_can_be_turned_on(void **state)
{
    (void)state;
    struct pair p;
    world_init(&p.w, 82);
    p.w.options.sync_flush = false;
    p.w.options.flush_interval_ms = 100000;
    copy_init(&p.c, &p.w);
    world_open(&p.w);
    copy_open(&p.c);
    world_append_ok(&p.w, 0, 100, 1);
    world_run(&p.w, 1000);
    assert_false(is_flushed(p.w.store));
    store_set_sync_flush(p.w.store, true);
    world_run(&p.w, 1);
    assert_true(is_flushed(p.w.store));
    world_append_ok(&p.w, 0, 100, 1);
    world_run(&p.w, 1);
    assert_true(is_flushed(p.w.store));
    pair_fini(&p);
}

/* ---- ends of queues ---- */

static void a_queues_end_at_a_position_is_the_first_offset_behind_it(void **state)
{
    (void)state;
    struct pair p;
    int64_t offset = -1;
    pair_init(&p, 90);
    for (int i = 0; i < 300; i++)
        world_append_ok(&p.w, i % 2, 50, 1);
    int64_t size = (int64_t)world_record_bytes(50);
    for (size_t i = 0; i < p.w.sent_count; i++) {
        int64_t at = p.w.sent[i]->append.first_phys_off;
        for (int32_t q = 0; q < 2; q++) {
            int64_t n = (int64_t)(i + 1 - (size_t)q) / 2; /* of queue q before record i */
            assert_int_equal(store_queue_end_at(p.w.store, WORLD_TOPIC, q, at, &offset), TERN_OK);
            assert_int_equal(offset, n);
        }
        assert_int_equal(
            store_queue_end_at(p.w.store, WORLD_TOPIC, (int32_t)i % 2, at + size, &offset),
            TERN_OK);
        assert_int_equal(offset, (int64_t)i / 2 + 1);
    }
    assert_int_equal(store_queue_end_at(p.w.store, WORLD_TOPIC, 0, INT64_MAX, &offset), TERN_OK);
    assert_int_equal(offset, 150);
    assert_int_equal(store_queue_end_at(p.w.store, WORLD_TOPIC, 0, 0, &offset), TERN_OK);
    assert_int_equal(offset, 0);
    assert_int_equal(store_queue_end_at(p.w.store, "None", 0, 0, &offset), TERN_OK);
    assert_int_equal(offset, 0);
    pair_fini(&p);
}

/* ---- the dispatch limit ---- */

static int64_t dispatched(const struct world *w)
{
    struct store_positions at;
    store_positions(w->store, &at);
    return at.dispatched;
}

static unsigned run_what_is_due(struct world *w)
{
    unsigned count = 0;
    while (sim_run_one(w->sim.sched))
        count++;
    return count;
}

/* An append behind the limit wakes nobody, wherever in a record the limit lies. */
static void a_limit_holds_exactly_and_costs_no_wake_ups(void **state)
{
    (void)state;
    struct pair p;
    world_init(&p.w, 95);
    p.w.options.sync_flush = false;
    p.w.options.flush_interval_ms = 100000;
    p.w.options.segment_bytes = 1 << 20; /* the next one is not prepared meanwhile */
    copy_init(&p.c, &p.w);
    world_open(&p.w);
    int64_t size = (int64_t)world_record_bytes(100);
    world_append(&p.w, 0, 100, 1);
    world_run(&p.w, 100);
    for (int64_t inside = 0; inside < size; inside += size / 2) {
        int64_t before = dispatched(&p.w);
        store_set_dispatch_limit(p.w.store, before + inside);
        for (int i = 0; i < 20; i++) {
            world_append(&p.w, 0, 100, 1);
            unsigned steps = run_what_is_due(&p.w);
            assert_true(i == 0 || steps == 0); /* the first one may wake whoever sleeps */
            assert_int_equal(dispatched(&p.w), before);
        }
        store_set_dispatch_limit(p.w.store, before + 3 * size + inside);
        run_what_is_due(&p.w);
        assert_int_equal(dispatched(&p.w), before + 3 * size);
        /* A limit that is ahead lets offers through at once. */
        store_set_dispatch_limit(p.w.store, commit_log_end(p.w.store->log) + size);
        run_what_is_due(&p.w);
        world_append(&p.w, 0, 100, 1);
        assert_int_equal(dispatched(&p.w), commit_log_end(p.w.store->log));
        store_set_dispatch_limit(p.w.store, commit_log_end(p.w.store->log));
        assert_int_equal(run_what_is_due(&p.w), 0); /* caught up: nobody is woken */
    }
    pair_fini(&p);
}

static int64_t ends_heard;

static void on_master_end(void *arg, int64_t end)
{
    struct world *w = arg;
    assert_true(end > ends_heard);
    ends_heard = end;
    for (size_t i = 0; i < w->sent_count; i++) /* before the senders are answered */
        assert_true(!w->sent[i]->answered || w->sent[i]->append.end_phys_off < end);
}

static void the_end_is_told_before_the_answers(void **state)
{
    (void)state;
    struct world w;
    ends_heard = 0;
    world_init(&w, 96);
    w.options.observer.on_end = on_master_end;
    world_open(&w);
    for (int i = 0; i < 20; i++)
        world_append_ok(&w, 0, 2000, 1);
    assert_int_equal(ends_heard, commit_log_end(w.store->log));
    world_fini(&w);
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
        cmocka_unit_test(a_copy_that_stops_at_any_moment_becomes_the_same),
        cmocka_unit_test(each_failing_call_leaves_a_copy_that_goes_on),
        cmocka_unit_test(a_copy_gives_out_the_next_offsets_when_it_becomes_master),
        cmocka_unit_test(nothing_is_appended_behind_a_part_of_a_record),
        cmocka_unit_test(flush_brings_everything_to_the_disk),
        cmocka_unit_test(a_failed_flush_is_told),
        cmocka_unit_test(sync_flush_can_be_turned_on),
        cmocka_unit_test(a_queues_end_at_a_position_is_the_first_offset_behind_it),
        cmocka_unit_test(a_limit_holds_exactly_and_costs_no_wake_ups),
        cmocka_unit_test(the_end_is_told_before_the_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
