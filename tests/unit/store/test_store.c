/* Opening, closing, locking, status; the files as RocketMQ would find them. */
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
#include "tests/unit/store/store_world.h"

static int setup(void **state)
{
    struct world *w = malloc(sizeof *w);
    assert_non_null(w);
    world_init(w, 5);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    free(*state);
    return 0;
}

static void empty_directory_becomes_a_store(void **state)
{
    struct world *w = *state;
    world_open(w);
    assert_true(w->recovery.clean);
    assert_int_equal(w->recovery.log_end, 0);
    struct store_status status;
    store_status(w->store, &status);
    assert_int_equal(status.appended, 0);
    assert_int_equal(status.earliest_ms, 0);
    assert_int_equal(status.dispatch_lag_ms, 0);
    world_append_ok(w, 0, 10, 1);
    store_status(w->store, &status);
    assert_int_equal(status.appended, world_record_bytes(10));
    assert_int_equal(status.flushed, status.appended);
    assert_int_equal(status.append_requests, 1);
    assert_int_equal(status.append_records, 1);
    assert_int_equal(status.append_bytes, status.appended);
    assert_int_equal(status.queues, 1);
    assert_true(status.earliest_ms >= SIM_START_WALL_MS);
}

/* A gibibyte is reserved, not written, before the store answers. */
static void opening_an_empty_store_writes_little(void **state)
{
    struct world *w = *state;
    w->options.segment_bytes = INT64_C(64) << 20;
    world_open(w);
    assert_true(sim_fs_calls(w->sim.fs, SIM_FS_PWRITEV) < 10);
}

static void second_opener_is_refused(void **state)
{
    struct world *w = *state;
    world_open(w);
    struct store *second = NULL;
    struct tern_error err;
    assert_int_equal(store_open(&w->sim.env, &w->options, &second, NULL, &err), TERN_IN_USE);
    assert_null(second);
    assert_non_null(strstr(err.text, WORLD_ROOT "/lock"));
    world_append_ok(w, 0, 10, 1); /* the first goes on */
    world_close(w);
    char text[5] = "";
    size_t got;
    struct file *file;
    assert_int_equal(fs_open(w->sim.env.fs, WORLD_ROOT "/lock", FS_READ, &file), TERN_OK);
    assert_int_equal(file_pread(file, text, sizeof text - 1, 0, &got), TERN_OK);
    file_close(file);
    assert_string_equal(text, "lock");
    world_open(w);
}

static void abort_mark_is_there_while_open(void **state)
{
    struct world *w = *state;
    world_open(w);
    assert_true(fs_exists(w->sim.env.fs, WORLD_ROOT "/abort"));
    world_append_ok(w, 0, 10, 1);
    world_close(w);
    assert_false(fs_exists(w->sim.env.fs, WORLD_ROOT "/abort"));
}

/* Facts 1.1: undispatched bytes keep the mark, so that the next start builds what is missing. */
static void abort_mark_stays_when_not_all_is_dispatched(void **state)
{
    struct world *w = *state;
    world_open(w);
    store_set_dispatch_limit(w->store, 100);
    world_append_ok(w, 0, 100, 2);
    world_close(w);
    assert_true(fs_exists(w->sim.env.fs, WORLD_ROOT "/abort"));
    world_open(w);
    assert_false(w->recovery.clean);
    world_check(w);
}

static void latched_store_keeps_the_abort_mark(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 2);
    store_latch(w->store, TERN_IO, "the test says so");
    store_latch(w->store, TERN_CORRUPT, "only the first counts");
    assert_int_equal(w->latched, 1);
    assert_string_equal(w->latch_text, "the test says so");
    assert_int_equal(store_close(w->store, &w->err), TERN_STATE);
    w->store = NULL;
    assert_non_null(strstr(w->err.text, "the test says so"));
    assert_true(fs_exists(w->sim.env.fs, WORLD_ROOT "/abort"));
    world_open(w);
    world_append_ok(w, 0, 100, 1);
    world_check(w);
}

static void read_only_changes_nothing(void **state)
{
    struct world *w = *state;
    w->options.read_only = true;
    assert_int_equal(world_try_open(w), TERN_NOT_FOUND);
    w->options.read_only = false;
    world_open(w);
    for (int i = 0; i < 30; i++)
        world_append_ok(w, i % WORLD_QUEUES, 900, 1);
    int64_t end = commit_log_end(w->store->log);
    world_process_crash(w);
    uint8_t junk[100];
    memset(junk, 0xA5, sizeof junk);
    world_poke(w, end, junk, sizeof junk);
    static const enum sim_fs_op writing[] = {SIM_FS_PWRITEV, SIM_FS_RENAME,  SIM_FS_UNLINK,
                                             SIM_FS_MKDIR,   SIM_FS_RESERVE, SIM_FS_TRUNCATE,
                                             SIM_FS_SYNC,    SIM_FS_SYNC_DIR};
    uint64_t before = 0;
    uint64_t after = 0;
    for (size_t i = 0; i < sizeof writing / sizeof writing[0]; i++)
        before += sim_fs_calls(w->sim.fs, writing[i]);
    w->options.read_only = true;
    world_open(w);
    assert_int_equal(w->recovery.log_end, end);
    assert_int_equal(w->recovery.cut_bytes, sizeof junk);
    assert_int_equal(sim_task_count(w->sim.sched), 0);
    uint8_t bytes[64];
    size_t got;
    assert_int_equal(commit_log_read(w->store->log, 0, bytes, sizeof bytes, false, &got), TERN_OK);
    struct store_status status;
    store_status(w->store, &status);
    assert_int_equal(status.appended, end);
    world_close(w);
    for (size_t i = 0; i < sizeof writing / sizeof writing[0]; i++)
        after += sim_fs_calls(w->sim.fs, writing[i]);
    assert_int_equal(after, before);
    w->options.read_only = false;
    world_open(w);
    world_check(w);
}

static void wrong_sizes_are_refused_with_the_key(void **state)
{
    struct world *w = *state;
    w->options.segment_bytes = 100;
    assert_int_equal(world_try_open(w), TERN_CONFIG);
    assert_non_null(strstr(w->err.text, "mappedFileSizeCommitLog"));
    w->options.segment_bytes = INT64_C(4) << 30;
    assert_int_equal(world_try_open(w), TERN_CONFIG);
    w->options.segment_bytes = WORLD_SEGMENT_BYTES;
    w->options.queue_file_bytes = 30;
    assert_int_equal(world_try_open(w), TERN_CONFIG);
    assert_non_null(strstr(w->err.text, "mappedFileSizeConsumeQueue"));
}

/* An idle store looks at the disk's fullness and does nothing else. */
static void idle_store_rests(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 1);
    world_run(w, 120000);
    uint64_t any = sim_fs_calls(w->sim.fs, SIM_FS_ANY);
    uint64_t space = sim_fs_calls(w->sim.fs, SIM_FS_SPACE);
    world_run(w, 120000);
    space = sim_fs_calls(w->sim.fs, SIM_FS_SPACE) - space;
    assert_int_equal(sim_fs_calls(w->sim.fs, SIM_FS_ANY) - any, space);
    assert_true(space <= 2 * 13);
}

/* ---- golden bytes ---- */

static const char golden_record[] =
    "000000A5DAA320A769C865ED000000030000000000000000000000070000000000001000"
    "000000000000018BCFE56800C0A8000A0000D4310000018BCFE568057F00000100002A9F"
    "0000000000000000000000000000000E48656C6C6F20526F636B65744D5109546F706963"
    "546573740033554E49515F4B455901433041383030304131463930313842344141433234"
    "384535314535303030303002544147530154616741";
static const char golden_unit[] = "0000000000001000000000A5000000000027A807";

static void hex_of(char *out, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        snprintf(out + 2 * i, 3, "%02X", bytes[i]);
}

struct golden {
    struct store_append append; /* first */
    bool answered;
};

static void on_golden(struct store_append *append)
{
    assert_int_equal(append->result, TERN_OK);
    ((struct golden *)append)->answered = true;
}

/* Facts 13: the record at log offset 4096, queue offset 7, as bytes of a segment and of a queue
 * file. */
static void stored_bytes_are_rocketmq_s(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 3, 10, 6);
    size_t before = 6 * world_record_bytes(10);
    world_append_ok(w, 3, 4096 - before - world_record_bytes(0), 1);
    assert_int_equal(commit_log_end(w->store->log), 4096);
    static const char props[] = "UNIQ_KEY\001C0A8000A1F9018B4AAC248E51E500000\002TAGS\001TagA";
    static const char body[] = "Hello RocketMQ";
    struct record record = {
        .queue_id = 3,
        .born_ms = INT64_C(1700000000000),
        .born_host = {.ip = {192, 168, 0, 10}, .port = 54321},
        .store_host = {.ip = {127, 0, 0, 1}, .port = 10911},
        .topic = (const uint8_t *)WORLD_TOPIC,
        .topic_len = sizeof WORLD_TOPIC - 1,
        .body = (const uint8_t *)body,
        .body_len = sizeof body - 1,
        .props = (const uint8_t *)props,
        .props_len = sizeof props - 1,
    };
    uint8_t bytes[256];
    struct golden golden = {.append = {.records = bytes, .count = 1, .on_appended = on_golden}};
    golden.append.size_bytes = (uint32_t)record_encode(bytes, sizeof bytes, &record);
    assert_int_equal(golden.append.size_bytes, 165);
    assert_int_equal(
        store_queue_ref(w->store, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, 3, &golden.append.queue),
        TERN_OK);
    sim_clock_set_wall(&w->sim.clock, INT64_C(1700000000005));
    store_append(w->store, &golden.append);
    assert_true(golden.answered);
    assert_int_equal(golden.append.first_queue_off, 7);
    assert_int_equal(golden.append.first_phys_off, 4096);
    store_queue_unref(golden.append.queue);
    world_run(w, 10);
    world_close(w);

    uint8_t stored[165];
    char hex[2 * sizeof stored + 1];
    world_peek(w, 4096, stored, sizeof stored);
    hex_of(hex, stored, sizeof stored);
    assert_string_equal(hex, golden_record);
    uint8_t unit[QUEUE_UNIT_BYTES];
    size_t got;
    struct file *file;
    assert_int_equal(fs_open(w->sim.env.fs,
                             WORLD_ROOT "/consumequeue/" WORLD_TOPIC "/3/00000000000000000000",
                             FS_READ, &file),
                     TERN_OK);
    assert_int_equal(file_pread(file, unit, sizeof unit, 7 * QUEUE_UNIT_BYTES, &got), TERN_OK);
    file_close(file);
    hex_of(hex, unit, sizeof unit);
    assert_string_equal(hex, golden_unit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(empty_directory_becomes_a_store),
        T(opening_an_empty_store_writes_little),
        T(second_opener_is_refused),
        T(abort_mark_is_there_while_open),
        T(abort_mark_stays_when_not_all_is_dispatched),
        T(latched_store_keeps_the_abort_mark),
        T(read_only_changes_nothing),
        T(wrong_sizes_are_refused_with_the_key),
        T(idle_store_rests),
        T(stored_bytes_are_rocketmq_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
