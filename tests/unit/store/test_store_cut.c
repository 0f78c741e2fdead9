/*
 * Cutting the log's end off, and beginning anew: what is cut is saved and never comes back, queues
 * and index follow, and a stop at any moment leaves the old log or the new one.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "broker/store/commit_log_internal.h"
#include "tests/unit/store/copy_world.h"

enum { APPENDS = 60 };

static uint32_t pick(struct world *w, uint32_t bound)
{
    return (uint32_t)rng_below(&w->sim.rng.rng, bound);
}

static void append_mixed(struct world *w, int count)
{
    for (int i = 0; i < count; i++) {
        size_t body = pick(w, 8) == 0 ? pick(w, 9000) : pick(w, 2000);
        uint32_t batch = pick(w, 4) == 0 && body < 2000 ? 1 + pick(w, 4) : 1;
        world_append_ok(w, (int32_t)pick(w, WORLD_QUEUES), body, batch);
        world_run(w, pick(w, 3));
    }
}

/* A world with a log of several segments. */
static void begin(struct world *w, uint64_t seed)
{
    world_init(w, seed);
    w->keys = true;
    world_open(w);
    append_mixed(w, APPENDS);
    world_run(w, 100);
}

static int64_t end_of(const struct world *w)
{
    return commit_log_end(w->store->log);
}

/* Cuts, and forgets in the ledger what was cut. */
static struct store_cut cut_at(struct world *w, int64_t at, bool save)
{
    struct store_cut cut;
    enum tern_code code = store_cut(w->store, at, save, &cut, &w->err);
    if (code)
        fail_msg("store_cut: %s: %s", tern_code_name(code), w->err.text);
    w->flushed = 0; /* begins again from there */
    world_forget_from(w, cut.at);
    return cut;
}

static void expect_file(struct world *w, const char *path, const uint8_t *bytes, size_t size)
{
    struct file *file = NULL;
    uint8_t *there = malloc(size + 1);
    size_t got = 0;
    assert_non_null(there);
    assert_int_equal(fs_open(w->sim.env.fs, path, FS_READ, &file), TERN_OK);
    assert_int_equal(file_pread(file, there, size + 1, 0, &got), TERN_OK);
    assert_int_equal(got, size);
    assert_memory_equal(there, bytes, size);
    file_close(file);
    free(there);
}

static void expect_end(const struct world *w, int64_t end)
{
    struct store_positions at;
    store_positions(w->store, &at);
    assert_int_equal(at.appended, end);
    assert_int_equal(at.whole, end);
    assert_int_equal(at.flushed, end);
    assert_true(at.dispatched <= end);
}

/* ---- cutting ---- */

static void what_is_cut_is_saved_and_gone(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct world w;
        char path[FS_PATH_BYTES];
        begin(&w, seed);
        int64_t end = end_of(&w);
        const struct store_append *first = &w.sent[pick(&w, APPENDS)]->append;
        int64_t at = first->first_phys_off;
        uint8_t *bytes = malloc((size_t)(end - at));
        assert_non_null(bytes);
        copy_read(w.store, at, bytes, (size_t)(end - at));
        if (pick(&w, 2) == 0)
            world_run(&w, 70000); /* with all on the disk, index files sealed */

        struct store_cut cut = cut_at(&w, at, true);
        /* A record that begins a segment may be cut with the filler before it, or without. */
        assert_int_equal(cut.at, at);
        assert_int_equal(cut.cut_bytes, end - at);
        assert_true(cut.records >= 1);
        snprintf(path, sizeof path, WORLD_ROOT "/diverged/%s", cut.saved_as);
        expect_file(&w, path, bytes, (size_t)(end - at));
        free(bytes);
        expect_end(&w, at);
        assert_true(world_all_zero(&w, at, at - at % WORLD_SEGMENT_BYTES + WORLD_SEGMENT_BYTES));
        world_check(&w);

        append_mixed(&w, APPENDS); /* HA-17: world_check looks at each queue's offsets */
        world_check(&w);
        world_power_loss(&w, SIM_TORN_PAGES);
        world_open(&w);
        world_check(&w);
        world_close(&w);
        world_open(&w);
        world_check(&w);
        world_fini(&w);
    }
}

static void a_cut_inside_a_record_takes_it_whole(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 50);
    const struct store_append *append = &w.sent[APPENDS / 2]->append;
    struct store_cut cut = cut_at(&w, append->first_phys_off + 1, true);
    assert_int_equal(cut.at, append->first_phys_off);
    world_check(&w);
    world_fini(&w);
}

static void a_cut_inside_a_filler_ends_at_the_last_record(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 51);
    size_t i = 0;
    while (w.sent[i]->append.end_phys_off == w.sent[i + 1]->append.first_phys_off)
        i++;
    int64_t last = w.sent[i]->append.end_phys_off;
    int64_t next = w.sent[i + 1]->append.first_phys_off;
    assert_int_equal(next % WORLD_SEGMENT_BYTES, 0);
    assert_int_equal(cut_at(&w, next, true).at, next); /* the filler may stay */
    expect_end(&w, next);
    assert_int_equal(cut_at(&w, next - 1, true).at, last);
    expect_end(&w, last);
    world_check(&w);
    append_mixed(&w, 20);
    world_check(&w);
    world_fini(&w);
}

static void nothing_to_cut_changes_nothing(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 52);
    int64_t end = end_of(&w);
    struct store_cut cut = cut_at(&w, end, true);
    assert_int_equal(cut.at, end);
    assert_int_equal(cut.cut_bytes, 0);
    assert_string_equal(cut.saved_as, "");
    cut = cut_at(&w, INT64_MAX, true);
    assert_int_equal(cut.cut_bytes, 0);
    expect_end(&w, end);
    assert_false(fs_exists(w.sim.env.fs, WORLD_ROOT "/diverged"));
    world_fini(&w);
}

static void whole_records_are_not_cut_unsaved(void **state)
{
    (void)state;
    struct world w;
    struct store_cut cut;
    begin(&w, 53);
    int64_t end = end_of(&w);
    assert_int_equal(store_cut(w.store, end - 1, false, &cut, &w.err), TERN_INVALID);
    expect_end(&w, end);
    assert_int_equal(w.latched, 0);
    world_check(&w);
    assert_int_equal(store_cut(w.store, -1, true, &cut, &w.err), TERN_INVALID);
    expect_end(&w, end);
    world_fini(&w);
}

static void no_room_to_save_leaves_the_log_as_it_was(void **state)
{
    (void)state;
    struct world w;
    struct store_cut cut;
    begin(&w, 54);
    int64_t end = end_of(&w);
    sim_fs_fail(w.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_PWRITEV,
                                                 .path_part = "diverged",
                                                 .nth = 1,
                                                 .errno_value = ENOSPC});
    assert_int_equal(store_cut(w.store, 100, true, &cut, &w.err), TERN_NO_SPACE);
    expect_end(&w, end);
    assert_int_equal(w.latched, 0);
    world_check(&w);
    append_mixed(&w, 10);
    world_check(&w);
    world_fini(&w);
}

static void everything_can_be_cut(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 55);
    struct store_cut cut = cut_at(&w, 0, true);
    assert_int_equal(cut.at, 0);
    expect_end(&w, 0);
    world_check(&w);
    append_mixed(&w, 20);
    world_check(&w);
    world_power_loss(&w, SIM_TORN_SECTORS);
    world_open(&w);
    world_check(&w);
    world_fini(&w);
}

/* A record of before the cut that has expired from the log leaves its queue's numbers. */
static void queues_go_on_after_a_cut_to_what_has_expired(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 56);
    w.options.retention_ms = 0;
    world_close(&w);
    world_open(&w);
    world_run(&w, 2000);
    assert_true(store_expire_now(w.store) > 0);
    int64_t min = commit_log_min(w.store->log);
    assert_true(min > 0);
    int64_t mins[WORLD_QUEUES];
    for (int32_t q = 0; q < WORLD_QUEUES; q++) {
        int64_t max;
        store_queue_range(w.store, WORLD_TOPIC, q, &mins[q], &max);
    }
    cut_at(&w, min, true);
    expect_end(&w, min);
    for (int32_t q = 0; q < WORLD_QUEUES; q++) {
        struct sent *s = world_append(&w, q, 50, 1);
        world_wait(&w, s);
        assert_int_equal(s->append.first_queue_off, mins[q]);
    }
    world_check(&w);
    world_fini(&w);
}

/* What comes after a cut may be older: it is no damage when it is torn. */
static void older_records_after_a_cut_are_not_taken_for_damage(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world w;
        struct copy c;
        world_init(&w, seed);
        copy_init(&c, &w);
        c.options.sync_flush = false;
        world_open(&w);
        append_mixed(&w, APPENDS); /* the source's, all early */
        copy_open(&c);
        copy_feed(&c, w.store, 0, 20000);
        copy_settle(&c);
        int64_t common = commit_log_whole(c.store->log);
        world_run(&w, 600000);
        struct store_cut cut;
        assert_int_equal(store_cut(c.store, common, false, &cut, &c.err), TERN_OK);
        /* Its own life, much later, all noted in checkpoint and marks. */
        struct consume_queue *queue = NULL;
        assert_int_equal(store_queue_ref(c.store, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, 0, &queue),
                         TERN_OK);
        store_queue_unref(queue);
        struct store *source = w.store;
        w.store = c.store;
        for (int i = 0; i < 30; i++)
            world_append(&w, 0, 700, 1);
        world_run(&w, 130000);
        w.store = source;
        assert_int_equal(store_cut(c.store, common, true, &cut, &c.err), TERN_OK);
        assert_true(cut.cut_bytes > 0);
        c.end = 0;
        copy_feed(&c, source, 5000, INT64_MAX);
        copy_power_loss(&c, SIM_TORN_PAGES);
        copy_open(&c);
        copy_feed(&c, source, 5000, INT64_MAX);
        copy_settle(&c);
        world_close(&w);
        copy_close(&c);
        copy_compare(&c);
        copy_fini(&c);
        world_fini(&w);
    }
}

/* ---- stops on the way ---- */

struct stop {
    unsigned calls_left;
    bool done;
};

/* Counts calls; from the chosen one on the power is off. */
static int on_call(void *arg, enum sim_fs_op op, const char *path)
{
    struct stop *stop = arg;
    (void)op;
    (void)path;
    if (!stop->done && stop->calls_left-- == 0)
        stop->done = true;
    return stop->done ? EIO : 0;
}

/* After a stop during a cut to `at` or a reset: the old log or the new one, and both can go on. */
static void expect_old_or_new(struct world *w, int64_t min, int64_t old_end, int64_t at)
{
    world_open(w);
    int64_t end = end_of(w);
    if (end != old_end && end != at)
        fail_msg("the log ends at %" PRId64 ", neither at %" PRId64 " nor at %" PRId64, end,
                 old_end, at);
    assert_int_equal(commit_log_min(w->store->log), end == old_end ? 0 : min);
    if (end == at)
        world_forget_from(w, min > 0 ? 0 : at);
    world_check(w);
    append_mixed(w, 8);
    world_check(w);
    world_power_loss(w, SIM_TORN_PAGES);
    world_open(w);
    world_check(w);
    assert_false(fs_exists(w->sim.env.fs, WORLD_ROOT "/ternmq/cut"));
}

/* HA-14. false: the number was never reached. */
static bool cut_with_power_loss(unsigned nth, enum sim_torn torn)
{
    struct world w;
    struct store_cut cut;
    struct stop stop = {.calls_left = nth};
    begin(&w, nth + 7);
    if (nth % 2 == 0)
        world_run(&w, 70000);
    int64_t end = end_of(&w);
    int64_t at = w.sent[APPENDS / 3]->append.first_phys_off;
    sim_fs_set_hook(w.sim.fs, on_call, &stop);
    enum tern_code code = store_cut(w.store, at, true, &cut, &w.err);
    bool reached = stop.done;
    assert_true(reached == (code != TERN_OK));
    stop.done = true;
    if (!code)
        world_forget_from(&w, at);
    w.flushed = 0;
    world_power_loss(&w, torn);
    expect_old_or_new(&w, 0, end, at);
    if (!code)
        assert_false(cut.cut_bytes == 0);
    world_fini(&w);
    return reached;
}

static void a_stop_at_any_moment_of_a_cut_leaves_the_old_log_or_the_new(void **state)
{
    (void)state;
    for (int torn = SIM_TORN_NONE; torn <= SIM_TORN_UNORDERED; torn++) {
        unsigned nth = 0;
        while (cut_with_power_loss(nth, (enum sim_torn)torn))
            nth++;
        assert_true(nth > 40);
    }
}

static uint8_t *lend(void *arg, size_t size_bytes)
{
    assert_true(size_bytes <= 1 << 20);
    return arg;
}

/* One call fails, the process goes on and is then stopped. */
static bool cut_with_fault(unsigned nth, int errno_value)
{
    struct world w;
    struct store_cut cut;
    begin(&w, 3 * nth + 1);
    int64_t end = end_of(&w);
    int64_t at = w.sent[APPENDS / 3]->append.first_phys_off;
    uint64_t before = sim_fs_calls(w.sim.fs, SIM_FS_ANY);
    sim_fs_fail(w.sim.fs,
                &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = errno_value});
    enum tern_code code = store_cut(w.store, at, true, &cut, &w.err);
    bool reached = sim_fs_calls(w.sim.fs, SIM_FS_ANY) - before >= nth;
    sim_fs_fail_clear(w.sim.fs);
    if (!code)
        world_forget_from(&w, at);
    w.flushed = 0;
    if (code && !w.latched) { /* nothing was done */
        expect_end(&w, end);
        world_check(&w);
    } else if (code) { /* refused, or records of before the cut's place */
        static uint8_t memory[1 << 20];
        struct store_get get = {
            .topic = WORLD_TOPIC, .max_count = 32, .reserve = lend, .arg = memory};
        struct store_get_result result;
        enum tern_code got = store_get(w.store, &get, &result);
        assert_true(got == TERN_SERVICE_NOT_AVAILABLE || end_of(&w) == end);
    }
    world_run(&w, 3000);
    code = store_close(w.store, &w.err);
    w.store = NULL;
    if (code)
        world_process_crash(&w);
    expect_old_or_new(&w, 0, end, at);
    world_fini(&w);
    return reached;
}

static void each_failing_call_of_a_cut_latches_or_changes_nothing(void **state)
{
    (void)state;
    unsigned nth = 1;
    while (cut_with_fault(nth, EIO))
        nth++;
    assert_true(nth > 40);
    nth = 1;
    while (cut_with_fault(nth, ENOSPC))
        nth++;
}

/* ---- readers ---- */

struct overtaking {
    struct world *w;
    int64_t at;
    bool done;
};

/* Cuts the log right before a read of it that has decided what to read. */
static int on_read(void *arg, enum sim_fs_op op, const char *path)
{
    struct overtaking *o = arg;
    bool segment =
        strstr(path, "/commitlog/") || strstr(path, "/prepared/"); /* where it was made */
    if (op == SIM_FS_PREAD && !o->done && segment) {
        o->done = true;
        cut_at(o->w, o->at, true);
    }
    return 0;
}

static void a_read_that_a_cut_overtakes_sees_the_new_end(void **state)
{
    (void)state;
    struct world w;
    uint8_t bytes[8000];
    size_t got = 0;
    begin(&w, 60);
    int64_t end = end_of(&w);
    int64_t at = w.sent[APPENDS - 4]->append.first_phys_off;
    struct overtaking o = {.w = &w, .at = at};
    sim_fs_set_hook(w.sim.fs, on_read, &o);
    assert_int_equal(store_read_bytes(w.store, at, bytes, 100, false, &got), TERN_NOT_FOUND);
    assert_true(o.done);
    int64_t before = w.sent[APPENDS - 6]->append.first_phys_off;
    o = (struct overtaking){.w = &w, .at = w.sent[APPENDS - 5]->append.first_phys_off};
    assert_int_equal(store_read_bytes(w.store, before, bytes, sizeof bytes, false, &got), TERN_OK);
    assert_true(o.done && end > at);
    assert_int_equal(got, o.at - before);
    world_fini(&w);
}

static void a_get_that_a_cut_overtakes_is_refused(void **state)
{
    (void)state;
    static uint8_t memory[1 << 20];
    struct world w;
    struct store_get_result result;
    int64_t min;
    int64_t max;
    begin(&w, 61);
    store_queue_range(w.store, WORLD_TOPIC, 0, &min, &max);
    struct store_get get = {
        .topic = WORLD_TOPIC, .offset = max - 1, .max_count = 8, .reserve = lend, .arg = memory};
    struct overtaking o = {.w = &w, .at = 0};
    sim_fs_set_hook(w.sim.fs, on_read, &o);
    assert_int_equal(store_get(w.store, &get, &result), TERN_SERVICE_NOT_AVAILABLE);
    assert_int_equal(result.next_off, get.offset);
    assert_int_equal(result.count, 0);
    assert_int_equal(store_get(w.store, &get, &result), TERN_OK);
    assert_int_equal(result.count, 0);
    world_fini(&w);
}

/* ---- reset ---- */

static void a_reset_moves_the_log_aside_and_begins_elsewhere(void **state)
{
    (void)state;
    struct world w;
    struct copy c;
    struct store_cut cut;
    begin(&w, 70);
    copy_init(&c, &w);
    copy_open(&c);
    struct store *source = w.store;
    w.store = c.store; /* a life of its own */
    append_mixed(&w, APPENDS);
    world_run(&w, 1000);
    w.store = source;
    int64_t end = copy_end(&c);
    size_t size = (size_t)end < WORLD_SEGMENT_BYTES ? (size_t)end : WORLD_SEGMENT_BYTES;
    uint8_t *bytes = calloc(1, WORLD_SEGMENT_BYTES);
    assert_non_null(bytes);
    copy_read(c.store, 0, bytes, size);

    const int64_t start = 2 * WORLD_SEGMENT_BYTES;
    assert_int_equal(store_reset(c.store, start + 1, &cut, &c.err), TERN_INVALID);
    assert_int_equal(store_reset(c.store, -1, &cut, &c.err), TERN_INVALID);
    assert_int_equal(c.latched, 0);
    assert_int_equal(store_reset(c.store, start, &cut, &c.err), TERN_OK);
    assert_int_equal(cut.at, start);
    assert_int_equal(cut.cut_bytes, end);
    char path[FS_PATH_BYTES];
    snprintf(path, sizeof path, WORLD_ROOT "/diverged/%s/%020d", cut.saved_as, 0);
    struct file *file = NULL;
    size_t got = 0;
    uint8_t *saved = malloc(WORLD_SEGMENT_BYTES);
    assert_non_null(saved);
    assert_int_equal(fs_open(c.env.fs, path, FS_READ, &file), TERN_OK);
    assert_int_equal(file_pread(file, saved, WORLD_SEGMENT_BYTES, 0, &got), TERN_OK);
    assert_memory_equal(saved, bytes, size);
    file_close(file);
    free(saved);
    free(bytes);

    /* HA-03: queues begin where the source's log does. */
    c.end = 0;
    copy_feed(&c, source, 0, INT64_MAX);
    copy_settle(&c);
    for (int32_t q = 0; q < WORLD_QUEUES; q++) {
        int64_t min[2];
        int64_t max[2];
        store_queue_range(source, WORLD_TOPIC, q, &min[0], &max[0]);
        store_queue_range(c.store, WORLD_TOPIC, q, &min[1], &max[1]);
        int64_t first = 0;
        assert_int_equal(store_queue_end_at(source, WORLD_TOPIC, q, start, &first), TERN_OK);
        assert_int_equal(min[1], first);
        assert_int_equal(max[1], max[0]);
    }
    copy_close(&c);
    copy_open(&c);
    assert_int_equal(copy_end(&c), end_of(&w));
    copy_fini(&c);
    world_fini(&w);
}

static void an_empty_log_only_begins_elsewhere(void **state)
{
    (void)state;
    struct world w;
    struct store_cut cut;
    world_init(&w, 71);
    world_open(&w);
    assert_int_equal(store_reset(w.store, 5 * WORLD_SEGMENT_BYTES, &cut, &w.err), TERN_OK);
    assert_string_equal(cut.saved_as, "");
    assert_int_equal(cut.cut_bytes, 0);
    assert_false(fs_exists(w.sim.env.fs, WORLD_ROOT "/diverged"));
    expect_end(&w, 5 * WORLD_SEGMENT_BYTES);
    append_mixed(&w, 10);
    world_check(&w);
    world_close(&w);
    world_open(&w);
    world_check(&w);
    assert_int_equal(commit_log_min(w.store->log), 5 * WORLD_SEGMENT_BYTES);
    world_fini(&w);
}

static bool reset_with_power_loss(unsigned nth, enum sim_torn torn, int64_t start)
{
    struct world w;
    struct store_cut cut;
    struct stop stop = {.calls_left = nth};
    begin(&w, nth + 3);
    int64_t end = end_of(&w);
    assert_true(end > 2 * WORLD_SEGMENT_BYTES);
    sim_fs_set_hook(w.sim.fs, on_call, &stop);
    enum tern_code code = store_reset(w.store, start, &cut, &w.err);
    bool reached = stop.done;
    assert_true(reached == (code != TERN_OK));
    stop.done = true;
    w.flushed = 0;
    if (!code)
        world_forget_from(&w, 0);
    world_power_loss(&w, torn);
    world_open(&w);
    int64_t now = end_of(&w);
    assert_true(now == end || now == start);
    assert_int_equal(commit_log_min(w.store->log), now == end ? 0 : start);
    if (now == start) {
        world_forget_from(&w, -1);
        assert_int_equal(queue_table_count(w.store->queues), 0);
    }
    world_check(&w);
    append_mixed(&w, 8);
    world_check(&w);
    world_power_loss(&w, SIM_TORN_PAGES);
    world_open(&w);
    world_check(&w);
    world_fini(&w);
    return reached;
}

static void a_stop_at_any_moment_of_a_reset_leaves_the_old_log_or_the_new(void **state)
{
    (void)state;
    static const int64_t starts[] = {0, 7 * WORLD_SEGMENT_BYTES};
    for (int torn = SIM_TORN_NONE; torn <= SIM_TORN_SECTORS; torn++) {
        unsigned nth = 0;
        while (reset_with_power_loss(nth, (enum sim_torn)torn, starts[torn % 2]))
            nth++;
        assert_true(nth > 40);
    }
}

/* ---- positions that went down ---- */

/* Cuts and appends in turn, with time and stops in between. */
static void cuts_and_appends_in_turn_keep_log_queues_and_index_in_line(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct world w;
        begin(&w, 1000 + seed);
        for (int round = 0; round < 12; round++) {
            int64_t end = end_of(&w);
            int64_t at = end - (int64_t)pick(&w, 40000);
            struct store_cut cut = cut_at(&w, at < 0 ? 0 : at, true);
            assert_true(cut.at <= (at < 0 ? 0 : at));
            world_check(&w);
            append_mixed(&w, (int)pick(&w, 30));
            world_run(&w, pick(&w, 5) == 0 ? 70000 : pick(&w, 2000));
            world_check(&w);
            uint32_t how = pick(&w, 6);
            if (how == 0)
                world_close(&w);
            else if (how == 1)
                world_process_crash(&w);
            else if (how == 2)
                world_power_loss(&w, SIM_TORN_SECTORS);
            else
                continue;
            world_open(&w);
            world_check(&w);
        }
        assert_int_equal(w.latched, 0);
        world_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_cut_is_saved_and_gone),
        cmocka_unit_test(a_cut_inside_a_record_takes_it_whole),
        cmocka_unit_test(a_cut_inside_a_filler_ends_at_the_last_record),
        cmocka_unit_test(nothing_to_cut_changes_nothing),
        cmocka_unit_test(whole_records_are_not_cut_unsaved),
        cmocka_unit_test(no_room_to_save_leaves_the_log_as_it_was),
        cmocka_unit_test(everything_can_be_cut),
        cmocka_unit_test(queues_go_on_after_a_cut_to_what_has_expired),
        cmocka_unit_test(older_records_after_a_cut_are_not_taken_for_damage),
        cmocka_unit_test(a_stop_at_any_moment_of_a_cut_leaves_the_old_log_or_the_new),
        cmocka_unit_test(each_failing_call_of_a_cut_latches_or_changes_nothing),
        cmocka_unit_test(a_read_that_a_cut_overtakes_sees_the_new_end),
        cmocka_unit_test(a_get_that_a_cut_overtakes_is_refused),
        cmocka_unit_test(a_reset_moves_the_log_aside_and_begins_elsewhere),
        cmocka_unit_test(an_empty_log_only_begins_elsewhere),
        cmocka_unit_test(a_stop_at_any_moment_of_a_reset_leaves_the_old_log_or_the_new),
        cmocka_unit_test(cuts_and_appends_in_turn_keep_log_queues_and_index_in_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
