/* Appending to the commit log: offsets, segments, refusals, the token. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "broker/store/appender.h"
#include "broker/store/commit_log_internal.h"
#include "tests/unit/store/store_world.h"

static int setup(void **state)
{
    struct world *w = malloc(sizeof *w);
    assert_non_null(w);
    world_init(w, 1);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    free(*state);
    return 0;
}

static void records_get_offsets_and_time(void **state)
{
    struct world *w = *state;
    world_open(w);
    size_t size = world_record_bytes(100);
    struct sent *first = world_append(w, 1, 100, 3);
    world_wait(w, first);
    struct sent *second = world_append(w, 1, 100, 1);
    world_wait(w, second);
    assert_int_equal(first->append.first_phys_off, 0);
    assert_int_equal(first->append.end_phys_off, 3 * size);
    assert_int_equal(first->append.first_queue_off, 0);
    assert_int_equal(second->append.first_queue_off, 3);
    assert_int_equal(second->append.first_phys_off, 3 * size);
    struct record record;
    assert_int_equal(record_parse(first->bytes + 2 * size, size, size, true, &record),
                     RECORD_WHOLE);
    assert_int_equal(record.queue_off, 2);
    assert_int_equal(record.phys_off, 2 * size);
    assert_int_equal(record.store_ms, first->append.store_ms);
    assert_true(record.store_ms >= SIM_START_WALL_MS);
    world_check(w);
}

static void prepared_and_rolled_back_take_no_queue_offset(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 10, 1);
    struct sent *prepared = world_append_typed(w, 0, 10, 2, SYS_TX_PREPARED);
    struct sent *rolled_back = world_append_typed(w, 0, 10, 1, SYS_TX_ROLLBACK);
    struct sent *committed = world_append_typed(w, 0, 10, 1, SYS_TX_COMMIT);
    world_wait(w, prepared);
    world_wait(w, rolled_back);
    world_wait(w, committed);
    assert_int_equal(prepared->append.first_queue_off, 0);
    assert_int_equal(rolled_back->append.first_queue_off, 0);
    assert_int_equal(committed->append.first_queue_off, 1);
    world_check(w);
}

static void store_time_never_goes_backwards(void **state)
{
    struct world *w = *state;
    world_open(w);
    struct sent *first = world_append(w, 0, 10, 1);
    world_wait(w, first);
    sim_clock_set_wall(&w->sim.clock, SIM_START_WALL_MS - 3600000);
    struct sent *second = world_append(w, 0, 10, 1);
    world_wait(w, second);
    assert_int_equal(second->append.store_ms, first->append.store_ms);
    world_close(w);
    world_open(w);
    struct sent *third = world_append(w, 0, 10, 1);
    world_wait(w, third);
    assert_int_equal(third->append.store_ms, first->append.store_ms);
}

static void full_segment_ends_with_a_filler(void **state)
{
    struct world *w = *state;
    world_open(w);
    size_t size = world_record_bytes(1000);
    unsigned fit = (unsigned)((WORLD_SEGMENT_BYTES - RECORD_BLANK_BYTES) / size);
    for (unsigned i = 0; i < fit + 1; i++)
        world_append_ok(w, 0, 1000, 1);
    uint8_t filler[RECORD_BLANK_BYTES];
    world_peek(w, (int64_t)(fit * size), filler, sizeof filler);
    assert_int_equal(get_be32(filler), WORLD_SEGMENT_BYTES - fit * size);
    assert_int_equal(get_be32(filler + 4), BLANK_MAGIC);
    assert_int_equal(w->sent[fit]->append.first_phys_off, WORLD_SEGMENT_BYTES);
    assert_int_equal(w->sent[fit]->append.first_queue_off, fit);
    world_check(w);
}

/* Exactly eight bytes must stay free behind a record. */
static void record_that_leaves_eight_bytes_still_fits(void **state)
{
    struct world *w = *state;
    world_open(w);
    size_t whole = WORLD_SEGMENT_BYTES - RECORD_BLANK_BYTES;
    size_t fixed = world_record_bytes(0);
    world_append_ok(w, 0, whole - fixed, 1);
    assert_int_equal(w->sent[0]->append.end_phys_off, whole);
    world_append_ok(w, 0, 10, 1);
    assert_int_equal(w->sent[1]->append.first_phys_off, WORLD_SEGMENT_BYTES);
    struct sent *over = world_append(w, 0, whole - fixed + 1, 1);
    world_run(w, 10);
    assert_int_equal(over->append.result, TERN_TOO_LARGE);
    char text[512];
    store_refusal_text(w->store, TERN_TOO_LARGE, text, sizeof text);
    assert_non_null(strstr(text, "mappedFileSizeCommitLog"));
    world_check(w);
}

static void batch_stays_in_one_segment(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, WORLD_SEGMENT_BYTES - 1000, 1);
    struct sent *batch = world_append(w, 1, 100, 10);
    world_wait(w, batch);
    assert_int_equal(batch->append.first_phys_off, WORLD_SEGMENT_BYTES);
    struct sent *too_large = world_append(w, 1, 1000, 20);
    world_run(w, 10);
    assert_int_equal(too_large->append.result, TERN_TOO_LARGE);
    world_append_ok(w, 1, 10, 1);
    assert_int_equal(w->sent[w->sent_count - 1]->append.first_queue_off, 10);
    world_check(w);
}

/* ST-15: valid appends among refused ones, segments that cannot be made: queue offsets have no
 * hole. */
static void refused_append_takes_no_queue_offset(void **state)
{
    struct world *w = *state;
    world_open(w);
    unsigned refused = 0;
    for (unsigned i = 0; i < 1000; i++) {
        if (i % 50 == 20) {
            struct sim_fs_fault no_room = {.op = SIM_FS_RESERVE,
                                           .path_part = "prepared",
                                           .nth = 1,
                                           .errno_value = ENOSPC,
                                           .forever = true};
            sim_fs_fail(w->sim.fs, &no_room);
        }
        if (i % 50 == 45) {
            sim_fs_fail_clear(w->sim.fs);
            world_run(w, 1100);
        }
        size_t body = i % 7 == 3 ? WORLD_SEGMENT_BYTES : 700;
        struct sent *s = world_append(w, (int32_t)(i % WORLD_QUEUES), body, 1);
        world_run(w, 5);
        assert_true(s->answered);
        refused += s->append.result != TERN_OK;
        if (body == 700 && s->append.result)
            assert_int_equal(s->append.result, TERN_NO_SPACE);
    }
    assert_true(refused > 150);
    assert_false(w->latched);
    world_check(w);
}

/* A segment that cannot be made for another reason than room refuses, too, and says why. */
static void no_descriptor_for_a_segment_refuses_and_resumes(void **state)
{
    struct world *w = *state;
    world_open(w);
    struct sim_fs_fault fault = {.op = SIM_FS_OPEN,
                                 .path_part = "prepared",
                                 .nth = 1,
                                 .errno_value = EMFILE,
                                 .forever = true};
    sim_fs_fail(w->sim.fs, &fault);
    world_append_ok(w, 0, WORLD_SEGMENT_BYTES - 500, 1);
    struct sent *refused = world_append(w, 0, 1000, 1);
    world_run(w, 10);
    assert_int_equal(refused->append.result, TERN_SERVICE_NOT_AVAILABLE);
    char text[512];
    store_refusal_text(w->store, refused->append.result, text, sizeof text);
    assert_non_null(strstr(text, "next segment"));
    world_append_ok(w, 0, 100, 1); /* what fits goes on */
    sim_fs_fail_clear(w->sim.fs);
    world_run(w, 1100);
    world_append_ok(w, 0, 1000, 1);
    assert_int_equal(w->latched, 0);
    world_check(w);
}

/* A write that fails gives the offsets back and closes the store for writing. */
static void failed_write_latches_and_takes_nothing(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 2);
    struct sim_fs_fault fault = {
        .op = SIM_FS_PWRITEV, .path_part = "commitlog", .nth = 1, .errno_value = EIO};
    sim_fs_fail(w->sim.fs, &fault);
    struct sent *failed = world_append(w, 0, 5000, 1);
    world_run(w, 10);
    assert_int_equal(failed->append.result, TERN_SERVICE_NOT_AVAILABLE);
    assert_int_equal(w->latched, 1);
    struct consume_queue *queue =
        queue_table_find(w->store->queues, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, 0);
    assert_int_equal(consume_queue_next(queue), 2);
    store_queue_unref(queue);
    struct sent *later = world_append(w, 0, 10, 1);
    world_run(w, 10);
    assert_int_equal(later->append.result, TERN_SERVICE_NOT_AVAILABLE);
    char text[512];
    store_refusal_text(w->store, TERN_SERVICE_NOT_AVAILABLE, text, sizeof text);
    assert_non_null(strstr(text, "read-only"));
    world_check(w); /* reads go on */
    world_process_crash(w);
    world_open(w);
    struct sent *next = world_append(w, 0, 10, 1);
    world_wait(w, next);
    world_check(w);
}

/* ENOSPC in spite of the reservation is no "full disk": what lies behind the end is unknown. */
static void no_space_while_writing_latches(void **state)
{
    struct world *w = *state;
    world_open(w);
    struct sim_fs_fault fault = {
        .op = SIM_FS_PWRITEV, .path_part = "commitlog", .nth = 1, .errno_value = ENOSPC};
    sim_fs_fail(w->sim.fs, &fault);
    struct sent *failed = world_append(w, 0, 100, 1);
    world_run(w, 10);
    assert_int_equal(failed->append.result, TERN_SERVICE_NOT_AVAILABLE);
    assert_int_equal(w->latched, 1);
}

/* ---- the token ---- */

struct nested {
    struct store_append append; /* first */
    struct world *w;
    struct nested *others;
    unsigned other_count;
    unsigned *answered;
    unsigned *limited;
    uint8_t bytes[256];
};

static void on_nested(struct store_append *append)
{
    struct nested *n = (struct nested *)append;
    (*n->answered)++;
    *n->limited += append->result == TERN_LIMIT;
    for (unsigned i = 0; i < n->other_count; i++)
        store_append(n->w->store, &n->others[i].append);
}

static void make_nested(struct world *w, struct nested *n, struct consume_queue *queue,
                        unsigned *answered, unsigned *limited)
{
    struct record record = {.topic = (const uint8_t *)WORLD_TOPIC,
                            .topic_len = sizeof WORLD_TOPIC - 1,
                            .body = (const uint8_t *)"x",
                            .body_len = 1};
    n->w = w;
    n->answered = answered;
    n->limited = limited;
    n->append.records = n->bytes;
    n->append.size_bytes = (uint32_t)record_encode(n->bytes, sizeof n->bytes, &record);
    n->append.count = 1;
    n->append.queue = queue;
    n->append.on_appended = on_nested;
}

/* Appends made from on_appended are served by the same holder; beyond the queue's limit they are
 * refused. */
static void queue_of_appends_is_bounded(void **state)
{
    struct world *w = *state;
    w->options.sync_flush = false;
    w->options.segment_bytes = 1 << 20;
    world_open(w);
    enum { COUNT = APPEND_REQUESTS_MAX + 100 };
    struct nested *all = calloc(COUNT + 1, sizeof *all);
    assert_non_null(all);
    unsigned answered = 0;
    unsigned limited = 0;
    struct consume_queue *queue;
    assert_int_equal(store_queue_ref(w->store, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, 0, &queue),
                     TERN_OK);
    for (unsigned i = 0; i <= COUNT; i++)
        make_nested(w, &all[i], queue, &answered, &limited);
    all[0].others = all + 1;
    all[0].other_count = COUNT;
    store_append(w->store, &all[0].append);
    assert_true(answered < COUNT); /* the calling thread did its share and no more */
    world_run(w, 100);
    assert_int_equal(answered, COUNT + 1);
    assert_int_equal(limited, 100);
    char text[512];
    store_refusal_text(w->store, TERN_LIMIT, text, sizeof text);
    assert_non_null(strstr(text, "65536"));
    int64_t min_off;
    int64_t max_off;
    store_queue_range(w->store, WORLD_TOPIC, 0, &min_off, &max_off);
    assert_int_equal(max_off, APPEND_REQUESTS_MAX + 1);
    store_queue_unref(queue);
    world_close(w);
    free(all);
}

static void segment_not_ready_is_left_to_the_task(void **state)
{
    struct world *w = *state;
    world_open(w);
    struct sent *first = world_append(w, 0, WORLD_SEGMENT_BYTES - 200, 1);
    assert_true(first->answered);
    /* The preparer had no time yet: the calling thread must not make the segment itself. */
    struct sent *second = world_append(w, 0, 200, 1);
    assert_false(second->answered);
    world_wait(w, second);
    world_run(w, 100);
    struct sent *third = world_append(w, 0, WORLD_SEGMENT_BYTES - 200, 1);
    (void)third;
    world_run(w, 100); /* prepared now */
    struct sent *fourth = world_append(w, 0, 200, 1);
    assert_true(fourth->answered);
    world_check(w);
}

/* ---- reading ---- */

static void read_stops_at_the_segment_and_at_the_end(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, WORLD_SEGMENT_BYTES - 1000, 1);
    world_append_ok(w, 0, 2000, 1);
    int64_t end = commit_log_end(w->store->log);
    uint8_t bytes[2 * WORLD_SEGMENT_BYTES];
    size_t got = 0;
    assert_int_equal(commit_log_read(w->store->log, 0, bytes, sizeof bytes, false, &got), TERN_OK);
    assert_int_equal(got, WORLD_SEGMENT_BYTES);
    assert_int_equal(
        commit_log_read(w->store->log, WORLD_SEGMENT_BYTES, bytes, sizeof bytes, false, &got),
        TERN_OK);
    assert_int_equal(got, end - WORLD_SEGMENT_BYTES);
    assert_int_equal(commit_log_read(w->store->log, end, bytes, 1, false, &got), TERN_NOT_FOUND);
    assert_int_equal(commit_log_read(w->store->log, -1, bytes, 1, false, &got), TERN_NOT_FOUND);
    sim_fs_set_cold(w->sim.fs, 100);
    assert_int_equal(commit_log_read(w->store->log, 0, bytes, 1, true, &got), TERN_AGAIN);
}

static void prepared_segment_is_zeroed_only_when_idle_and_used_after_a_clean_stop(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, WORLD_SEGMENT_BYTES - 4000, 1);
    world_run(w, 1000);
    struct fs_stat stat;
    assert_int_equal(fs_stat(w->sim.env.fs, WORLD_ROOT "/prepared/segment-1", &stat), TERN_OK);
    assert_int_equal(stat.size_bytes, WORLD_SEGMENT_BYTES);
    world_close(w);
    world_open(w);
    uint64_t reserved = sim_fs_calls(w->sim.fs, SIM_FS_RESERVE);
    world_run(w, 100);
    world_append_ok(w, 0, 5000, 1);
    assert_int_equal(sim_fs_calls(w->sim.fs, SIM_FS_RESERVE), reserved);
    assert_false(fs_exists(w->sim.env.fs, WORLD_ROOT "/prepared/segment-1"));
    world_process_crash(w);
    world_open(w); /* what a crash leaves there is not trusted */
    world_run(w, 100);
    world_check(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_get_offsets_and_time, setup, teardown),
        cmocka_unit_test_setup_teardown(prepared_and_rolled_back_take_no_queue_offset, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(store_time_never_goes_backwards, setup, teardown),
        cmocka_unit_test_setup_teardown(full_segment_ends_with_a_filler, setup, teardown),
        cmocka_unit_test_setup_teardown(record_that_leaves_eight_bytes_still_fits, setup, teardown),
        cmocka_unit_test_setup_teardown(batch_stays_in_one_segment, setup, teardown),
        cmocka_unit_test_setup_teardown(refused_append_takes_no_queue_offset, setup, teardown),
        cmocka_unit_test_setup_teardown(no_descriptor_for_a_segment_refuses_and_resumes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(failed_write_latches_and_takes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(no_space_while_writing_latches, setup, teardown),
        cmocka_unit_test_setup_teardown(queue_of_appends_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(segment_not_ready_is_left_to_the_task, setup, teardown),
        cmocka_unit_test_setup_teardown(read_stops_at_the_segment_and_at_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(
            prepared_segment_is_zeroed_only_when_idle_and_used_after_a_clean_stop, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
