/*
 * Cutting the log's end off, and beginning anew: a stop at any moment leaves the old log or the new
 * one; calls that fail.
 */
#include "tests/unit/store/cut_world.h"

#include <errno.h>
#include <inttypes.h>

#include "tests/unit/store/copy_world.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_at_any_moment_of_a_cut_leaves_the_old_log_or_the_new),
        cmocka_unit_test(each_failing_call_of_a_cut_latches_or_changes_nothing),
        cmocka_unit_test(a_reset_moves_the_log_aside_and_begins_elsewhere),
        cmocka_unit_test(an_empty_log_only_begins_elsewhere),
        cmocka_unit_test(a_stop_at_any_moment_of_a_reset_leaves_the_old_log_or_the_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
