/*
 * Consume queues after a stop: what is found again, what is cut, holes after a power loss, strange
 * files; and calls that fail.
 */
#include "tests/unit/store/queue_world.h"

#include <errno.h>

static void replay(struct fixture *f, int64_t from, int64_t end)
{
    for (; from < end; from += 50) {
        struct queue_unit units[50];
        uint32_t n = 0;
        for (; n < 50 && from + n < end; n++)
            units[n] = unit_at(from + n);
        assert_ok(consume_queue_replay(f->queue, from, units, n));
    }
}

/* ---- recovery ---- */

static void what_was_flushed_is_found_again(void **state)
{
    (void)state;
    for (int64_t count = 1; count < 1600; count += count < 600 ? 101 : 499) {
        struct fixture f;
        set_up(&f, (uint64_t)count);
        put(&f, 0, count);
        flush(&f, true);
        restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
        check(&f, 0, count);
        assert_int_equal(f.max_phys, count * RECORD_BYTES);
        queue_table_settle(f.table);
        assert_int_equal(consume_queue_next(f.queue), count);
        put(&f, count, count + 600);
        check(&f, 0, count + 600);
        tear_down(&f);
    }
}

static void units_beyond_the_logs_end_are_cut_for_good(void **state)
{
    (void)state;
    static const int64_t ends[] = {0, 1, 203, 204, 205, 499, 500, 501, 1000, 1399};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct fixture f;
        set_up(&f, 1);
        put(&f, 0, 1400);
        flush(&f, true);
        restart(&f, SIM_TORN_NONE, 0, ends[i] * RECORD_BYTES + RECORD_BYTES - 1);
        check(&f, 0, ends[i]);
        restart(&f, SIM_TORN_NONE, 0, INT64_MAX); /* the cut itself survives a power loss */
        check(&f, 0, ends[i]);
        for (int64_t start = 0; start < 3 * FILE_BYTES; start += FILE_BYTES) {
            static uint8_t raw[FILE_BYTES];
            char name[32];
            if (!file_exists(&f, start))
                continue;
            snprintf(name, sizeof name, "%020lld", (long long)start);
            read_file(&f, name, raw, sizeof raw, 0);
            for (int64_t at = 0; at < FILE_BYTES; at++)
                if (start + at >= ends[i] * UNIT_BYTES && raw[at] != 0)
                    fail_msg("byte %lld is left", (long long)(start + at));
        }
        put(&f, ends[i], 1500);
        check(&f, 0, 1500);
        tear_down(&f);
    }
}

static void a_clean_stop_needs_no_cut_but_makes_one_when_there_is_something(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    put(&f, 0, 700);
    flush(&f, true);
    close_table(&f);
    open_table(&f);
    queue_table_assume_synced(f.table);
    uint64_t before = sim_fs_calls(f.sim.fs, SIM_FS_TRUNCATE);
    recover(&f, 0, INT64_MAX);
    assert_int_equal(sim_fs_calls(f.sim.fs, SIM_FS_TRUNCATE), before);
    close_table(&f);
    open_table(&f);
    queue_table_assume_synced(f.table);
    recover(&f, 0, 650 * RECORD_BYTES);
    check(&f, 0, 650);
    restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
    check(&f, 0, 650);
    tear_down(&f);
}

/* Power is lost with pages of several files unsynced; the replay starts where everything before was
 * synced. */
static void holes_after_a_power_loss_are_mended_by_the_replay(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct fixture f;
        set_up(&f, seed);
        struct rng *rng = f.sim.env.rng;
        int64_t synced = 0;
        int64_t max = 0;
        for (int step = 0; step < 12; step++) {
            int64_t n = (int64_t)rng_below(rng, 400);
            put(&f, max, max + n);
            max += n;
            if (rng_below(rng, 3) > 0) {
                bool durable = rng_below(rng, 3) == 0;
                flush(&f, durable);
                synced = durable ? max : synced;
            }
        }
        int64_t log_end = max - (int64_t)rng_below(rng, (uint64_t)(max - synced) + 1);
        restart(&f, SIM_TORN_PAGES, 0, log_end * RECORD_BYTES);
        assert_true(consume_queue_max(f.queue) >= synced);
        assert_true(consume_queue_max(f.queue) <= log_end);
        replay(&f, synced, log_end);
        check(&f, 0, log_end);
        put(&f, log_end, log_end + 300); /* other records now stand where lost ones were */
        restart(&f, SIM_TORN_PAGES, 0, (log_end + 300) * RECORD_BYTES);
        replay(&f, synced, log_end + 300); /* what was mended is not synced either */
        check(&f, 0, log_end + 300);
        tear_down(&f);
    }
}

static void replaying_five_times_leaves_the_same_bytes(void **state)
{
    (void)state;
    struct fixture f;
    static uint8_t first[FILE_BYTES];
    static uint8_t now[FILE_BYTES];
    set_up(&f, 1);
    put(&f, 0, 420);
    flush(&f, true);
    read_file(&f, "00000000000000000000", first, sizeof first, 0);
    for (int i = 0; i < 5; i++) {
        restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
        replay(&f, 0, 420);
        flush(&f, true);
        check(&f, 0, 420);
        read_file(&f, "00000000000000000000", now, sizeof now, 0);
        assert_memory_equal(first, now, sizeof now);
    }
    tear_down(&f);
}

static void wrong_units_are_rewritten_by_the_replay(void **state)
{
    (void)state;
    struct fixture f;
    struct file *file;
    set_up(&f, 1);
    put(&f, 0, 900);
    flush(&f, true);
    assert_ok(fs_open(f.sim.env.fs, DIR "/TopicTest/0/00000000000000000000", FS_WRITE, &file));
    assert_ok(file_zero(file, 100 * UNIT_BYTES, 30 * UNIT_BYTES));
    assert_ok(file_pwrite(file, "junk", 4, 300 * UNIT_BYTES + 5));
    file_close(file);
    restart(&f, SIM_TORN_PAGES, 0, INT64_MAX);
    replay(&f, 0, 900);
    check(&f, 0, 900);
    tear_down(&f);
}

static void a_gap_in_the_replay_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    put(&f, 0, 10);
    const struct queue_unit unit = unit_at(12);
    assert_int_equal(consume_queue_replay(f.queue, 12, &unit, 1), TERN_CORRUPT);
    check(&f, 0, 10);
    tear_down(&f);
}

static void a_topic_made_anew_begins_at_its_new_records(void **state)
{
    (void)state;
    struct fixture f;
    struct queue_unit units[20];
    set_up(&f, 1);
    put(&f, 0, 1100); /* the first life, as the log still has it */
    for (int64_t i = 0; i < 20; i++)
        units[i] = (struct queue_unit){1000000 + i * RECORD_BYTES, RECORD_BYTES, 0};
    assert_ok(consume_queue_replay(f.queue, 0, units, 20));
    assert_int_equal(consume_queue_min(f.queue), 0);
    assert_int_equal(consume_queue_max(f.queue), 20);
    replay(&f, 500, 600); /* records of the first life are not taken for missing ones */
    assert_int_equal(consume_queue_max(f.queue), 20);
    flush(&f, true);
    restart(&f, SIM_TORN_NONE, 0, INT64_MAX);
    assert_int_equal(consume_queue_max(f.queue), 20);
    assert_int_equal(f.max_phys, 1000000 + 20 * RECORD_BYTES);
    tear_down(&f);
}

static void a_queue_whose_files_came_back_empty_begins_where_the_log_says(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, 1);
    put(&f, 1234, 1300);
    flush(&f, true);
    struct file *file;
    assert_ok(fs_open(f.sim.env.fs, DIR "/TopicTest/0/00000000000000020000", FS_WRITE, &file));
    assert_ok(file_zero(file, 0, FILE_BYTES));
    file_close(file);
    restart(&f, -1, 0, INT64_MAX);
    replay(&f, 1234, 1300);
    check(&f, 1234, 1300);
    tear_down(&f);
}

static void foreign_names_are_reported_and_left_alone(void **state)
{
    (void)state;
    struct fixture f;
    struct file *file;
    set_up(&f, 1);
    put(&f, 0, 10);
    flush(&f, true);
    static const char *const dirs[] = {DIR "/bad topic", DIR "/TopicTest/01", DIR "/TopicTest/x"};
    for (size_t i = 0; i < 3; i++)
        assert_ok(fs_mkdir(f.sim.env.fs, dirs[i]));
    assert_ok(fs_open(f.sim.env.fs, DIR "/TopicTest/0/notes.txt", FS_WRITE | FS_CREATE, &file));
    file_close(file);
    restart(&f, -1, 0, INT64_MAX);
    check(&f, 0, 10);
    assert_int_equal(queue_table_count(f.table), 1);
    assert_int_equal(sim_log_count(&f.sim, "queue_folder_ignored"), 3);
    assert_int_equal(sim_log_count(&f.sim, "queue_file_ignored"), 1);
    assert_true(fs_exists(f.sim.env.fs, DIR "/TopicTest/0/notes.txt"));
    tear_down(&f);
}

static void files_of_another_length_are_refused_and_kept(void **state)
{
    (void)state;
    static const int64_t lengths[] = {FILE_BYTES / 2, FILE_BYTES * 2};
    for (size_t i = 0; i < 2; i++) {
        struct fixture f;
        set_up(&f, 1);
        put(&f, 0, 3 * FILE_UNITS);
        flush(&f, true);
        close_table(&f);
        assert_ok(queue_table_create(&f.sim.env, DIR, lengths[i], 2, false, &f.table));
        assert_int_equal(queue_table_recover(f.table, 0, INT64_MAX, &f.max_phys, &f.err),
                         TERN_CORRUPT);
        assert_contains(f.err.text, "mappedFileSizeConsumeQueue");
        assert_contains(f.err.text, DIR "/TopicTest/0/000000000000");
        close_table(&f);
        open_table(&f);
        recover(&f, 0, INT64_MAX);
        check(&f, 0, 3 * FILE_UNITS);
        tear_down(&f);
    }
}

/* ---- failing calls ---- */

/* Whatever call fails: a code comes back, nothing that was put is lost, and it goes on when the
 * fault is over. */
static void any_failing_call_is_reported_and_survived(void **state)
{
    (void)state;
    unsigned failures = 0;
    for (unsigned nth = 1; nth < 200; nth++) {
        struct fixture f;
        set_up(&f, nth);
        uint64_t calls = sim_fs_calls(f.sim.fs, SIM_FS_ANY);
        sim_fs_fail(f.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_ANY,
                                                     .nth = nth,
                                                     .errno_value = nth % 2 ? ENOSPC : EIO});
        int64_t max = 0;
        bool failed = false;
        for (int64_t to = 150; to <= 1500; to += 150) {
            failed |= try_put(f.queue, max, to) != TERN_OK;
            max = consume_queue_max(f.queue);
            failed |= queue_table_flush(f.table, to % 300 == 0, &f.err) != TERN_OK;
        }
        bool done = sim_fs_calls(f.sim.fs, SIM_FS_ANY) - calls < nth;
        failures += failed;
        sim_fs_fail_clear(f.sim.fs);
        check(&f, 0, max);
        put(&f, max, 1600);
        flush(&f, true);
        check(&f, 0, 1600);
        restart(&f, -1, 0, INT64_MAX);
        replay(&f, 0, 1600);
        check(&f, 0, 1600);
        tear_down(&f);
        if (done)
            break;
    }
    assert_true(failures > 20);
}

static void recovery_reports_any_failing_call(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth < 200; nth++) {
        struct fixture f;
        set_up(&f, nth);
        put(&f, 0, 1300);
        flush(&f, true);
        close_table(&f);
        open_table(&f);
        uint64_t calls = sim_fs_calls(f.sim.fs, SIM_FS_ANY);
        sim_fs_fail(f.sim.fs,
                    &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
        enum tern_code code =
            queue_table_recover(f.table, 0, 1200 * RECORD_BYTES, &f.max_phys, &f.err);
        bool done = sim_fs_calls(f.sim.fs, SIM_FS_ANY) - calls < nth;
        sim_fs_fail_clear(f.sim.fs);
        if (!done) {
            assert_int_equal(code, TERN_IO);
            assert_true(f.err.text[0] != 0);
        }
        restart(&f, SIM_TORN_NONE, 0, 1200 * RECORD_BYTES);
        check(&f, 0, 1200);
        tear_down(&f);
        if (done)
            return;
    }
    fail_msg("recovery makes too many calls");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_flushed_is_found_again),
        cmocka_unit_test(units_beyond_the_logs_end_are_cut_for_good),
        cmocka_unit_test(a_clean_stop_needs_no_cut_but_makes_one_when_there_is_something),
        cmocka_unit_test(holes_after_a_power_loss_are_mended_by_the_replay),
        cmocka_unit_test(replaying_five_times_leaves_the_same_bytes),
        cmocka_unit_test(wrong_units_are_rewritten_by_the_replay),
        cmocka_unit_test(a_gap_in_the_replay_is_refused),
        cmocka_unit_test(a_topic_made_anew_begins_at_its_new_records),
        cmocka_unit_test(a_queue_whose_files_came_back_empty_begins_where_the_log_says),
        cmocka_unit_test(foreign_names_are_reported_and_left_alone),
        cmocka_unit_test(files_of_another_length_are_refused_and_kept),
        cmocka_unit_test(any_failing_call_is_reported_and_survived),
        cmocka_unit_test(recovery_reports_any_failing_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
