/* Where a log ends after a stop, what is cut, what is built again. */
#include "tests/unit/store/recovery_world.h"

static struct sent *last_sent(struct world *w)
{
    return w->sent[w->sent_count - 1];
}

static void zero_range(struct world *w, int64_t from, int64_t end)
{
    uint8_t zeros[512] = {0};
    for (int64_t at = from; at < end; at += (int64_t)sizeof zeros) {
        int64_t size = end - at < (int64_t)sizeof zeros ? end - at : (int64_t)sizeof zeros;
        world_poke(w, at, zeros, (size_t)size);
    }
}

/* Opens, expects the end there, appends one record and closes again, leaving the ledger right. */
static void expect_cut_at(struct world *w, int64_t end)
{
    world_open(w);
    world_forget_from(w, end);
    assert_int_equal(w->recovery.log_end, end);
    assert_int_equal(commit_log_end(w->store->log), end);
    assert_true(world_all_zero(w, end, end + 400));
    world_append_ok(w, 0, 100, 1);
    assert_int_equal(last_sent(w)->append.first_phys_off, end);
    world_check(w);
    world_close(w);
}

/* ---- the tail ---- */

/* ST-02: the last record cut at each of its bytes: the log ends before it, the next append works.
 */
static void last_record_cut_at_each_byte_is_dropped(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 3);
    world_append_ok(w, 1, 100, 1);
    world_close(w);
    int64_t off = last_sent(w)->append.first_phys_off;
    int64_t size = last_sent(w)->append.size_bytes;
    for (int64_t keep = 0; keep < size; keep++) {
        /* A byte that is zero anyway makes no difference: the record is whole then. */
        uint8_t rest[512];
        world_peek(w, off + keep, rest, (size_t)(size - keep));
        bool cut = false;
        for (int64_t i = 0; i < size - keep; i++)
            cut = cut || rest[i];
        zero_range(w, off + keep, off + size);
        expect_cut_at(w, cut ? off : off + size);
        if (!cut) {
            off += size;
            size = last_sent(w)->append.size_bytes;
        }
    }
}

/* ST-02: each byte of the last record flipped. What no check covers (facts 1.4) is accepted as it
 * is. */
static void last_record_with_a_flipped_byte_is_dropped(void **state)
{
    enum { BODY = 60, BODY_AT = 88 };
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, BODY, 2);
    world_append_ok(w, 1, BODY, 1);
    world_close(w);
    int64_t off = last_sent(w)->append.first_phys_off;
    int64_t size = last_sent(w)->append.size_bytes;
    uint8_t whole[512];
    world_peek(w, off, whole, (size_t)size);
    for (int64_t i = 0; i < size; i++) {
        bool checked = i < 12 || (i >= 28 && i < 36) || (i >= 84 && i < BODY_AT + BODY) ||
                       i == BODY_AT + BODY || i >= size - 2;
        if (!checked)
            continue;
        uint8_t flipped = (uint8_t)(whole[i] ^ 0x41);
        world_poke(w, off + i, &flipped, 1);
        world_open(w);
        assert_int_equal(w->recovery.log_end, off);
        assert_true(w->recovery.cut_bytes > 0);
        assert_true(world_all_zero(w, off, off + size));
        world_close(w);
        world_poke(w, off, whole, (size_t)size); /* back for the next round */
    }
    world_forget_from(w, off);
    zero_range(w, off, off + size);
    expect_cut_at(w, off);
}

/* ST-02: the CRC does not cover properties; zeros at their end mean that they were not written. */
static void last_record_without_the_end_of_its_properties_is_dropped(void **state)
{
    struct world *w = *state;
    w->keys = true;
    world_open(w);
    world_append_ok(w, 0, 100, 3);
    world_append_ok(w, 0, 100, 1);
    world_close(w);
    int64_t off = last_sent(w)->append.first_phys_off;
    int64_t end = last_sent(w)->append.end_phys_off;
    for (int lost = 1; lost < 6; lost++) {
        zero_range(w, end - lost, end);
        expect_cut_at(w, off);
        off = last_sent(w)->append.first_phys_off;
        end = last_sent(w)->append.end_phys_off;
    }
}

static void torn_tail_after_a_process_crash_is_cut(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 5);
    int64_t end = commit_log_end(w->store->log);
    uint8_t junk[700];
    memset(junk, 0xA5, sizeof junk);
    world_process_crash(w);
    world_poke(w, end, junk, sizeof junk);
    world_open(w);
    assert_false(w->recovery.clean);
    assert_int_equal(w->recovery.log_end, end);
    assert_int_equal(w->recovery.cut_bytes, sizeof junk);
    assert_true(world_all_zero(w, end, end + 1000));
    assert_int_equal(sim_log_count(&w->sim, "store.torn_tail"), 1);
    world_check(w);
}

/* HA-14: whole old records behind a cut never come back, also when the machine stops right after
 * it. */
static void records_behind_a_cut_stay_away(void **state)
{
    struct world *w = *state;
    w->options.sync_flush = false;
    world_open(w);
    world_append(w, 0, 100, 5);
    world_run(w, 600);
    int64_t hole = commit_log_flushed(w->store->log);
    for (int i = 0; i < 40; i++) {
        world_append(w, i % WORLD_QUEUES, 200, 5);
        world_run(w, 1);
    }
    int64_t old_end = commit_log_end(w->store->log);
    assert_true(old_end > 2 * WORLD_SEGMENT_BYTES);
    for (size_t i = 0; i < w->sent_count; i++)
        w->sent[i]->acked = w->sent[i]->append.end_phys_off <= hole;
    world_process_crash(w);
    zero_range(w, hole, hole + 50); /* the page that was lost */
    world_open(w);
    world_forget_from(w, hole);
    assert_int_equal(w->recovery.log_end, hole);
    world_power_loss(w, SIM_TORN_NONE);
    world_open(w);
    assert_int_equal(w->recovery.log_end, hole);
    assert_true(world_all_zero(w, hole, WORLD_SEGMENT_BYTES));
    char path[FS_PATH_BYTES];
    world_segment_path(WORLD_SEGMENT_BYTES, path);
    assert_false(fs_exists(w->sim.env.fs, path));
    world_append(w, 0, 50, 1);
    world_run(w, 600);
    world_check(w);
    world_close(w);
    world_open(w);
    world_check(w);
}

/* ---- clean and not ---- */

static void clean_stop_replays_nothing(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 4);
    world_close(w);
    world_open(w);
    assert_true(w->recovery.clean);
    assert_int_equal(w->recovery.replayed_records, 0);
    assert_int_equal(w->recovery.cut_bytes, 0);
    world_check(w);
    world_append_ok(w, 0, 100, 1);
    world_check(w);
}

static void process_crash_loses_nothing_appended(void **state)
{
    struct world *w = *state;
    w->options.sync_flush = false;
    world_open(w);
    for (int i = 0; i < 100; i++)
        world_append(w, i % WORLD_QUEUES, 300, 1);
    int64_t end = commit_log_end(w->store->log);
    for (size_t i = 0; i < w->sent_count; i++) {
        world_wait(w, w->sent[i]);
        w->sent[i]->acked = true;
    }
    end = commit_log_end(w->store->log);
    world_process_crash(w);
    world_open(w);
    assert_false(w->recovery.clean);
    assert_int_equal(w->recovery.log_end, end);
    world_check(w);
}

/* What recovery has found is on the disk when the store says that it is flushed. */
static void recovered_records_are_synced(void **state)
{
    struct world *w = *state;
    w->options.sync_flush = false;
    world_open(w);
    for (int i = 0; i < 40; i++) {
        world_append(w, i % WORLD_QUEUES, 800, 1);
        world_run(w, 1);
    }
    int64_t end = commit_log_end(w->store->log);
    assert_int_equal(commit_log_flushed(w->store->log), 0);
    for (size_t i = 0; i < w->sent_count; i++)
        w->sent[i]->acked = true;
    world_process_crash(w);
    world_open(w);
    assert_int_equal(commit_log_flushed(w->store->log), end);
    world_power_loss(w, SIM_TORN_NONE);
    world_open(w);
    assert_int_equal(w->recovery.log_end, end);
    world_check(w);
}

/* The second half of a rename out of prepared/ may be lost: the file there is then a live segment.
 */
static void prepared_file_that_is_a_live_segment_is_not_used(void **state)
{
    struct world *w = *state;
    for (int clean = 0; clean < 2; clean++) {
        /* A prepared file with a durable entry there ... */
        world_open(w);
        world_append_ok(w, 0, WORLD_SEGMENT_BYTES - 1000, 1);
        world_run(w, 200);
        world_close(w);
        /* ... becomes a segment, and the power goes: without or after a clean stop. */
        world_open(w);
        world_run(w, 200);
        world_append_ok(w, 0, 2000, 1);
        if (clean)
            world_close(w);
        world_power_loss(w, SIM_TORN_NONE);
        world_open(w);
        world_close(w); /* at once: no task had its turn */
        world_open(w);
        world_run(w, 200);
        for (int i = 0; i < 3; i++)
            world_append_ok(w, 0, WORLD_SEGMENT_BYTES - 1000, 1);
        world_check(w);
        world_close(w);
        world_open(w);
        world_check(w);
        world_close(w);
    }
}

static size_t read_queue_file(struct world *w, int q, uint8_t *out, size_t size)
{
    char path[FS_PATH_BYTES];
    struct file *file;
    size_t got = 0;
    snprintf(path, sizeof path, WORLD_ROOT "/consumequeue/" WORLD_TOPIC "/%d/%020d", q, 0);
    assert_int_equal(fs_open(w->sim.env.fs, path, FS_READ, &file), TERN_OK);
    assert_int_equal(file_pread(file, out, size, 0, &got), TERN_OK);
    file_close(file);
    return got;
}

/* ST-14: restarts, also without checkpoint, build the same queues each time. */
static void queues_are_the_same_after_each_restart(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 2);
    world_close(w);
    uint8_t first[4000];
    uint8_t again[4000];
    size_t size = read_queue_file(w, 1, first, sizeof first);
    for (int i = 0; i < 5; i++) {
        if (i % 2 == 0)
            assert_int_equal(fs_unlink(w->sim.env.fs, WORLD_ROOT "/checkpoint"), TERN_OK);
        world_open(w);
        world_check(w);
        if (i == 3)
            world_process_crash(w);
        else
            world_close(w);
        assert_int_equal(read_queue_file(w, 1, again, sizeof again), size);
        assert_memory_equal(first, again, size);
    }
}

static void queues_without_log_begin_anew_and_it_is_said(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 5);
    world_close(w);
    char path[FS_PATH_BYTES];
    world_segment_path(0, path);
    assert_int_equal(fs_unlink(w->sim.env.fs, path), TERN_OK);
    world_open(w);
    world_forget_from(w, 0);
    assert_int_equal(sim_log_count(&w->sim, "store.log_missing"), 1);
    assert_int_equal(w->recovery.log_end, 0);
    world_append_ok(w, 0, 100, 1);
    assert_int_equal(last_sent(w)->append.first_queue_off, 0);
    world_check(w);
}

/* The checkpoint has times, so segments must have different ones. */
static void fill_slowly(struct world *w, int segments)
{
    for (int i = 0; i < segments; i++) {
        fill_segments(w, i);
        world_run(w, 5000);
    }
}

/* Queues that a clean stop has synced are not cut and synced again, however many. */
static void clean_start_does_not_touch_the_queues(void **state)
{
    struct world *w = *state;
    enum { QUEUES = 200 };
    world_open(w);
    for (int32_t q = 0; q < QUEUES; q++)
        world_append_ok(w, q, 10, 3);
    world_close(w);
    uint64_t truncated = sim_fs_calls(w->sim.fs, SIM_FS_TRUNCATE);
    uint64_t synced = sim_fs_calls(w->sim.fs, SIM_FS_SYNC);
    world_open(w);
    assert_int_equal(sim_fs_calls(w->sim.fs, SIM_FS_TRUNCATE), truncated);
    assert_true(sim_fs_calls(w->sim.fs, SIM_FS_SYNC) - synced < 10);
    for (int32_t q = 0; q < QUEUES; q++) {
        int64_t min;
        int64_t max;
        store_queue_range(w->store, WORLD_TOPIC, q, &min, &max);
        assert_int_equal(min, 0);
        assert_int_equal(max, 3);
    }
    world_process_crash(w); /* then they are */
    world_open(w);
    assert_true(sim_fs_calls(w->sim.fs, SIM_FS_SYNC) - synced > QUEUES);
}

/* Index and queues are durable each minute: a crash dispatches again only what came since. */
static void crash_replays_what_came_after_the_last_minute(void **state)
{
    struct world *w = *state;
    w->keys = true;
    world_open(w);
    fill_slowly(w, 4);
    world_run(w, 61000);
    world_append_ok(w, 0, 100, 1);
    world_run(w, 6000); /* the flush mark, too */
    int64_t all = (int64_t)w->sent_count * 2;
    world_process_crash(w);
    world_open(w);
    assert_in_range(w->recovery.replayed_records, 1, all / 2);
    world_check(w); /* each key is found */
    world_power_loss(w, SIM_TORN_PAGES);
    world_open(w);
    assert_in_range(w->recovery.replayed_records, 1, all / 2);
    world_check(w);
}

/* A store that was recovered is durable after a minute though nothing comes any more. */
static void recovered_store_becomes_durable_by_itself(void **state)
{
    struct world *w = *state;
    w->keys = true;
    world_open(w);
    fill_slowly(w, 4);
    world_process_crash(w);
    world_open(w);
    assert_true(w->recovery.replayed_records > 50);
    world_run(w, 61000);
    world_append_ok(w, 0, 100, 1);
    world_run(w, 6000);
    world_process_crash(w);
    world_open(w);
    assert_in_range(w->recovery.replayed_records, 1, w->sent_count);
    world_check(w);
}

/* The checkpoint's entry in the folder is durable with its content. */
static void first_checkpoint_survives_a_power_loss(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 1);
    world_run(w, 61000);
    world_power_loss(w, SIM_TORN_NONE);
    assert_true(fs_exists(w->sim.env.fs, WORLD_ROOT "/checkpoint"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(last_record_cut_at_each_byte_is_dropped),
        T(last_record_with_a_flipped_byte_is_dropped),
        T(last_record_without_the_end_of_its_properties_is_dropped),
        T(torn_tail_after_a_process_crash_is_cut),
        T(records_behind_a_cut_stay_away),
        T(clean_start_does_not_touch_the_queues),
        T(crash_replays_what_came_after_the_last_minute),
        T(recovered_store_becomes_durable_by_itself),
        T(first_checkpoint_survives_a_power_loss),
        T(clean_stop_replays_nothing),
        T(process_crash_loses_nothing_appended),
        T(recovered_records_are_synced),
        T(prepared_file_that_is_a_live_segment_is_not_used),
        T(queues_are_the_same_after_each_restart),
        T(queues_without_log_begin_anew_and_it_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
