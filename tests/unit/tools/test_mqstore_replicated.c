/* mqstore on stores of a replicated set: a slave's, and ones that were cut; and repair. */
#include "tests/unit/tools/tool_world.h"

#include "broker/store/flush_mark.h"

#define COPY "/copy"

static int setup(void **state)
{
    struct tool_world *w = malloc(sizeof *w);
    assert_non_null(w);
    tool_world_init(w);
    tool_fill(w, ROOT);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    tool_world_fini(*state);
    free(*state);
    return 0;
}

static int64_t number(const json_t *json, const char *key)
{
    assert_true(json_is_integer(json_object_get(json, key)));
    return json_integer_value(json_object_get(json, key));
}

static json_t *run_json(struct tool_world *w, int status, const char *command, const char *dir,
                        const char *more)
{
    if (more)
        RUN(w, status, command, "--json", more, dir);
    else
        RUN(w, status, command, "--json", dir);
    json_t *json = json_loads(w->out, 0, NULL);
    assert_non_null(json);
    return json;
}

static void write_text(struct tool_world *w, const char *path, const char *text)
{
    tool_create(w, path);
    tool_poke(w, path, 0, text, strlen(text));
}

/* Zeros in a segment from the log's offset on. */
static void wipe_from(struct tool_world *w, const char *segment, int64_t base, int64_t from)
{
    static const uint8_t zeros[TOOL_SEGMENT_BYTES];
    tool_poke(w, segment, from - base, zeros, (size_t)(base + TOOL_SEGMENT_BYTES - from));
}

/* The flush mark says that everything before `flushed` is on the disk. */
static void set_mark(struct tool_world *w, const char *path, int64_t flushed)
{
    struct flush_mark *mark;
    struct tern_error err;
    assert_int_equal(flush_mark_open(&w->sim.env, path, &mark, &err), TERN_OK);
    assert_int_equal(flush_mark_set(mark, flushed), TERN_OK);
    flush_mark_close(mark);
}

/* ---- a slave's log: bytes, not records ---- */

static void slave_that_is_behind_within_a_record_does_not_differ(void **state)
{
    struct tool_world *w = *state;
    int64_t cut = tool_record_at(100) + 17;
    tool_copy(w, ROOT, COPY);
    wipe_from(w, COPY "/commitlog/00000000000000032768", 2 * TOOL_SEGMENT_BYTES, cut);
    tool_remove(w, COPY "/commitlog/00000000000000000000");
    RUN(w, MQSTORE_OK, "diff", "--json", ROOT, COPY);
    json_t *json = json_loads(w->out, 0, NULL);
    assert_int_equal(number(json, "from"), TOOL_SEGMENT_BYTES);
    assert_int_equal(number(json, "to"), tool_record_at(100));
    assert_int_equal(number(json, "compared"), 100 - TOOL_PER_SEGMENT);
    json_decref(json);
    RUN(w, MQSTORE_OK, "diff", COPY, ROOT);
}

static void diverged_slave_differs_from_the_common_point_on(void **state)
{
    struct tool_world *w = *state;
    tool_copy(w, ROOT, COPY);
    for (uint32_t i = 110; i < TOOL_RECORDS; i++)
        tool_poke64(w, COPY "/commitlog/00000000000000032768",
                    tool_record_at(i) - 2 * TOOL_SEGMENT_BYTES + 56, SIM_START_WALL_MS);
    RUN(w, MQSTORE_FAILED, "diff", "--json", ROOT, COPY);
    json_t *json = json_loads(w->out, 0, NULL);
    assert_int_equal(number(json, "different"), TOOL_RECORDS - 110);
    const json_t *first = json_array_get(json_object_get(json, "first"), 0);
    assert_int_equal(number(first, "physOffset"), tool_record_at(110));
    assert_string_equal(json_string_value(json_object_get(first, "what")), "store time");
    json_decref(json);
}

/* Stopped within a record, all of whose bytes so far are flushed. */
static void part_of_a_record_that_was_flushed_is_a_note(void **state)
{
    static const int64_t parts[] = {1, 7, 8, 30, TOOL_RECORD_BYTES - 1};
    struct tool_world *w = *state;
    int64_t at = tool_record_at(TOOL_RECORDS - 1);
    uint8_t record[TOOL_RECORD_BYTES];
    for (int64_t i = 0; i < TOOL_RECORD_BYTES; i += 2) {
        uint32_t two = tool_peek32(w, SEGMENT_2, at - 2 * TOOL_SEGMENT_BYTES + i);
        record[i] = (uint8_t)(two >> 24);
        record[i + 1] = (uint8_t)(two >> 16);
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        wipe_from(w, SEGMENT_2, 2 * TOOL_SEGMENT_BYTES, at);
        tool_poke(w, SEGMENT_2, at - 2 * TOOL_SEGMENT_BYTES, record, (size_t)parts[i]);
        tool_create(w, ROOT "/abort"); /* it was killed, so units behind the end are none's fault */
        set_mark(w, ROOT "/ternmq/flushed", at + parts[i]);
        json_t *json = tool_verify(w, ROOT, MQSTORE_OK);
        assert_int_equal(tool_count(json, "notes", "partialTail"), 1);
        assert_int_equal(number(json, "logEnd"), at);
        json_decref(json);
    }
}

static void lost_whole_record_is_no_partial_one(void **state)
{
    struct tool_world *w = *state;
    int64_t at = tool_record_at(TOOL_RECORDS - 1);
    tool_create(w, ROOT "/abort");
    set_mark(w, ROOT "/ternmq/flushed", at + TOOL_RECORD_BYTES);
    wipe_from(w, SEGMENT_2, 2 * TOOL_SEGMENT_BYTES, at + 30);
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "flushedLost"), 1);
    json_decref(json);
    wipe_from(w, SEGMENT_2, 2 * TOOL_SEGMENT_BYTES, at);
    set_mark(w, ROOT "/ternmq/flushed", at + 30); /* zeros are no record's beginning */
    json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "flushedLost"), 1);
    json_decref(json);
}

/* Lengths and body are right, the record is not: its last property has not come. */
static void last_record_that_lacks_its_end_is_no_difference(void **state)
{
    struct tool_world *w = *state;
    const char *segment = COPY "/commitlog/00000000000000032768";
    int64_t at = tool_record_at(TOOL_RECORDS - 1);
    tool_copy(w, ROOT, COPY);
    wipe_from(w, segment, 2 * TOOL_SEGMENT_BYTES, at + TOOL_RECORD_BYTES - 3);
    for (int i = 0; i < 2; i++) {
        RUN(w, MQSTORE_OK, "diff", "--json", i ? COPY : ROOT, i ? ROOT : COPY);
        json_t *json = json_loads(w->out, 0, NULL);
        assert_int_equal(number(json, "compared"), TOOL_RECORDS - 1);
        assert_int_equal(number(json, "to"), at);
        assert_int_equal(json_array_size(json_object_get(json, "first")), 0);
        json_decref(json);
    }
    /* With records behind it, it is one. */
    tool_copy(w, ROOT, COPY);
    tool_poke(w, segment, tool_record_at(100) - 2 * TOOL_SEGMENT_BYTES + TOOL_RECORD_BYTES - 3,
              "\0\0\0", 3);
    RUN(w, MQSTORE_FAILED, "diff", ROOT, COPY);
    assert_non_null(strstr(w->out, "1 differ"));
}

/* All but a last byte has come: the flush mark tells. */
static void record_that_lacks_a_byte_is_not_compared(void **state)
{
    struct tool_world *w = *state;
    int64_t at = tool_record_at(TOOL_RECORDS - 1);
    tool_copy(w, ROOT, COPY);
    wipe_from(w, COPY "/commitlog/00000000000000032768", 2 * TOOL_SEGMENT_BYTES,
              at + TOOL_RECORD_BYTES - 1);
    tool_poke32(w, COPY "/commitlog/00000000000000032768", at - 2 * TOOL_SEGMENT_BYTES + 16, 9);
    RUN(w, MQSTORE_FAILED, "diff", ROOT, COPY); /* so it would be if it were flushed as whole */
    set_mark(w, COPY "/ternmq/flushed", at + TOOL_RECORD_BYTES - 1);
    RUN(w, MQSTORE_OK, "diff", "--json", ROOT, COPY);
    json_t *json = json_loads(w->out, 0, NULL);
    assert_int_equal(number(json, "compared"), TOOL_RECORDS - 1);
    json_decref(json);
    set_mark(w, COPY "/ternmq/flushed",
             tool_record_at(7) + 5); /* killed long after its last flush */
    RUN(w, MQSTORE_FAILED, "diff", "--json", ROOT, COPY);
    json = json_loads(w->out, 0, NULL);
    assert_int_equal(number(json, "compared"), TOOL_RECORDS);
    json_decref(json);
}

/* ---- ls ---- */

static void ls_shows_epochs_and_what_was_cut(void **state)
{
    struct tool_world *w = *state;
    json_t *json = run_json(w, MQSTORE_OK, "ls", ROOT, NULL);
    assert_null(json_object_get(json, "epochs"));
    assert_int_equal(json_array_size(json_object_get(json, "diverged")), 0);
    json_decref(json);
    write_text(w, ROOT "/ternmq/epochs.json",
               "{\"epochs\":[{\"id\":\"00c0ffee00c0ffee\",\"number\":1,\"start\":0},"
               "{\"id\":\"00c0ffee00c0ffef\",\"number\":3,\"start\":4096}],\"highestNumber\":5}");
    assert_int_equal(fs_mkdirs(w->sim.env.fs, ROOT "/diverged/1796027650491"), TERN_OK);
    write_text(w, ROOT "/diverged/00000000000000004096-00000000000000004100-1796027650491.log",
               "abcd");
    json = run_json(w, MQSTORE_OK, "ls", ROOT, NULL);
    const json_t *epoch = json_array_get(json_object_get(json, "epochs"), 1);
    assert_int_equal(number(epoch, "number"), 3);
    assert_int_equal(number(epoch, "start"), 4096);
    const json_t *diverged = json_object_get(json, "diverged");
    assert_int_equal(json_array_size(diverged), 2);
    assert_int_equal(number(json_array_get(diverged, 0), "bytes"), 4);
    assert_string_equal(json_string_value(json_object_get(json_array_get(diverged, 1), "name")),
                        "1796027650491/");
    json_decref(json);
    RUN(w, MQSTORE_OK, "ls", ROOT);
    assert_non_null(strstr(w->out, "00c0ffee00c0ffef"));
    assert_non_null(strstr(w->out, "cut from the log"));
}

static void ls_of_a_damaged_epochs_file_goes_on(void **state)
{
    struct tool_world *w = *state;
    write_text(w, ROOT "/ternmq/epochs.json", "{\"epochs\":[{");
    json_t *json = run_json(w, MQSTORE_OK, "ls", ROOT, NULL);
    assert_null(json_object_get(json, "epochs"));
    json_decref(json);
}

/* ---- repair ---- */

/* The store opens, goes on where the log was cut, and has no fault afterwards. */
static void expect_sound(struct tool_world *w, int64_t end)
{
    json_t *json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_int_equal(number(json, "logEnd"), end);
    json_decref(json);
    tool_open(w, ROOT);
    tool_append(w, "TopicA", 0);
    tool_close(w);
    json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_int_equal(number(json, "logEnd"), end + TOOL_RECORD_BYTES);
    json_decref(json);
}

static void sound_store_needs_no_repair(void **state)
{
    struct tool_world *w = *state;
    json_t *json = run_json(w, MQSTORE_OK, "repair", ROOT, "--yes");
    assert_true(json_is_false(json_object_get(json, "damaged")));
    assert_int_equal(number(json, "recordsBefore"), TOOL_RECORDS);
    json_decref(json);
    assert_false(fs_exists(w->sim.env.fs, ROOT "/abort"));
    assert_false(fs_exists(w->sim.env.fs, ROOT "/diverged"));
}

static void repair_without_yes_only_tells(void **state)
{
    struct tool_world *w = *state;
    tool_poke32(w, SEGMENT_1, tool_record_at(50) - TOOL_SEGMENT_BYTES, 0);
    json_t *json = run_json(w, MQSTORE_FAILED, "repair", ROOT, NULL);
    assert_int_equal(number(json, "cut"), tool_record_at(50));
    assert_int_equal(number(json, "recordsBefore"), 50);
    assert_int_equal(number(json, "recordsBehind"), TOOL_RECORDS - 51);
    json_decref(json);
    assert_false(fs_exists(w->sim.env.fs, ROOT "/diverged"));
    assert_true(fs_exists(w->sim.env.fs, SEGMENT_2));
    RUN(w, MQSTORE_FAILED, "repair", ROOT);
    assert_non_null(strstr(w->out, "a slave"));
    RUN(w, MQSTORE_USAGE, "verify", "--yes", ROOT);
    assert_non_null(strstr(w->warn, "only repair"));
}

static void repair_cuts_at_the_damage_and_keeps_what_it_cuts(void **state)
{
    struct tool_world *w = *state;
    char saved[FS_PATH_BYTES];
    int64_t cut = tool_record_at(50);
    uint32_t later = tool_peek32(w, SEGMENT_1, tool_record_at(60) - TOOL_SEGMENT_BYTES + 8);
    tool_poke32(w, SEGMENT_1, cut - TOOL_SEGMENT_BYTES, 0);
    json_t *json = run_json(w, MQSTORE_OK, "repair", ROOT, "--yes");
    assert_true(json_is_true(json_object_get(json, "done")));
    assert_int_equal(number(json, "segmentsMoved"), 1);
    snprintf(saved, sizeof saved, ROOT "/%s", json_string_value(json_object_get(json, "saved")));
    json_decref(json);
    assert_int_equal(tool_peek32(w, saved, tool_record_at(60) - cut + 8), later);
    assert_false(fs_exists(w->sim.env.fs, SEGMENT_2));
    expect_sound(w, cut);
}

static void repair_closes_the_log_before_a_missing_segment(void **state)
{
    struct tool_world *w = *state;
    tool_remove(w, SEGMENT_1);
    json_t *json = run_json(w, MQSTORE_OK, "repair", ROOT, "--yes");
    assert_int_equal(number(json, "cut"), TOOL_SEGMENT_BYTES);
    assert_string_equal(json_string_value(json_object_get(json, "saved")), "");
    assert_int_equal(number(json, "segmentsMoved"), 1);
    json_decref(json);
    expect_sound(w, TOOL_SEGMENT_BYTES);
}

/* The first segment stays, so that the log does not begin at 0 again. */
static void repair_of_the_very_beginning_keeps_its_offset(void **state)
{
    struct tool_world *w = *state;
    tool_remove(w, SEGMENT_0);
    tool_poke32(w, SEGMENT_1, 0, 0);
    json_t *json = run_json(w, MQSTORE_OK, "repair", ROOT, "--yes");
    assert_int_equal(number(json, "cut"), TOOL_SEGMENT_BYTES);
    json_decref(json);
    assert_true(fs_exists(w->sim.env.fs, SEGMENT_1));
    assert_false(fs_exists(w->sim.env.fs, SEGMENT_2));
    json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_int_equal(number(json, "logEnd"), TOOL_SEGMENT_BYTES);
    json_decref(json);
}

static void store_in_use_is_not_repaired(void **state)
{
    struct tool_world *w = *state;
    tool_poke32(w, SEGMENT_0, tool_record_at(5), 0);
    struct file *lock;
    assert_int_equal(fs_open(w->sim.env.fs, ROOT "/lock", FS_READ | FS_WRITE, &lock), TERN_OK);
    assert_int_equal(file_lock(lock), TERN_OK);
    RUN(w, MQSTORE_FAILED, "repair", "--yes", ROOT);
    assert_non_null(strstr(w->warn, "stop its broker"));
    assert_false(fs_exists(w->sim.env.fs, ROOT "/diverged"));
    file_close(lock);
}

/* Whatever call of the disk fails: nothing is lost, and the next attempt ends well. */
static void repair_that_fails_half_way_is_repeated(void **state)
{
    enum { CALLS_MOST = 400 };
    struct tool_world *w = *state;
    int64_t cut = tool_record_at(50);
    uint32_t failures = 0, in_a_row = 0;
    for (uint32_t nth = 1; in_a_row < 5; nth++) {
        struct sim_fs_fault fault = {.op = SIM_FS_ANY, .nth = nth, .errno_value = 5};
        assert_true(nth < CALLS_MOST);
        tool_copy(w, ROOT, COPY);
        tool_poke32(w, COPY "/commitlog/00000000000000016384", cut - TOOL_SEGMENT_BYTES, 0);
        sim_fs_fail(w->sim.fs, &fault);
        char *argv[] = {"mqstore", "repair", "--yes", COPY, NULL};
        FILE *sink = fopen("/dev/null", "w");
        assert_non_null(sink);
        bool done = mqstore_main(&w->sim.env, 4, argv, sink, sink) == MQSTORE_OK;
        fclose(sink);
        sim_fs_fail_clear(w->sim.fs);
        failures += !done;
        in_a_row = done ? in_a_row + 1 : 0;
        if (!done)
            RUN(w, MQSTORE_OK, "repair", "--yes", COPY);
        RUN(w, MQSTORE_OK, "repair", "--json", COPY);
        assert_non_null(strstr(w->out, "\"damaged\":false"));
        assert_non_null(strstr(w->out, "\"recordsBefore\":50"));
    }
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slave_that_is_behind_within_a_record_does_not_differ, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(diverged_slave_differs_from_the_common_point_on, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(part_of_a_record_that_was_flushed_is_a_note, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(last_record_that_lacks_its_end_is_no_difference, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(record_that_lacks_a_byte_is_not_compared, setup, teardown),
        cmocka_unit_test_setup_teardown(lost_whole_record_is_no_partial_one, setup, teardown),
        cmocka_unit_test_setup_teardown(ls_shows_epochs_and_what_was_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(ls_of_a_damaged_epochs_file_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(sound_store_needs_no_repair, setup, teardown),
        cmocka_unit_test_setup_teardown(repair_without_yes_only_tells, setup, teardown),
        cmocka_unit_test_setup_teardown(repair_cuts_at_the_damage_and_keeps_what_it_cuts, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(repair_closes_the_log_before_a_missing_segment, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(repair_of_the_very_beginning_keeps_its_offset, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(store_in_use_is_not_repaired, setup, teardown),
        cmocka_unit_test_setup_teardown(repair_that_fails_half_way_is_repeated, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
