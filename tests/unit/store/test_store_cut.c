/*
 * Cutting the log's end off: what is cut is saved and never comes back, queues and index follow,
 * readers that it overtakes.
 */
#include "tests/unit/store/cut_world.h"

#include <errno.h>

#include "tests/unit/store/copy_world.h"

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

/* ---- cutting ---- */

static void what_is_cut_is_saved_and_gone(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct world w;
        char path[FS_PATH_BYTES];
        begin(&w, seed);
        int64_t end = end_of(&w);
        const struct store_append *first = &w.sent[world_pick(&w, APPENDS)]->append;
        int64_t at = first->first_phys_off;
        uint8_t *bytes = malloc((size_t)(end - at));
        assert_non_null(bytes);
        copy_read(w.store, at, bytes, (size_t)(end - at));
        if (world_pick(&w, 2) == 0)
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
            int64_t at = end - (int64_t)world_pick(&w, 40000);
            struct store_cut cut = cut_at(&w, at < 0 ? 0 : at, true);
            assert_true(cut.at <= (at < 0 ? 0 : at));
            world_check(&w);
            append_mixed(&w, (int)world_pick(&w, 30));
            world_run(&w, world_pick(&w, 5) == 0 ? 70000 : world_pick(&w, 2000));
            world_check(&w);
            uint32_t how = world_pick(&w, 6);
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
        cmocka_unit_test(a_read_that_a_cut_overtakes_sees_the_new_end),
        cmocka_unit_test(a_get_that_a_cut_overtakes_is_refused),
        cmocka_unit_test(cuts_and_appends_in_turn_keep_log_queues_and_index_in_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
