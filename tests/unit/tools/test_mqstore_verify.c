/* mqstore verify: no fault where none is, and each kind of damage found as what it is. */
#include "tests/unit/tools/tool_world.h"

#include "base/clock.h"

/* Offsets in a record, in a unit, in an index file. */
enum {
    TOTAL_SIZE_AT = 0,
    QUEUE_OFF_AT = 20,
    PHYS_OFF_AT = 28,
    BODY_AT = 88,
    UNIT_BYTES = 20,
    UNIT_SIZE_AT = 8,
    UNIT_TAGS_AT = 12,
    INDEX_END_MS_AT = 8,
    INDEX_SLOTS_USED_AT = 32,
    INDEX_COUNT_AT = 36,
    INDEX_ENTRY_1_AT = 40 + 4 * TOOL_INDEX_SLOTS + 20,
    INDEX_PHYS_AT = 4,
    INDEX_TIME_AT = 12,
    INDEX_PREV_AT = 16
};

static int setup_empty(void **state)
{
    struct tool_world *w = malloc(sizeof *w);
    assert_non_null(w);
    tool_world_init(w);
    *state = w;
    return 0;
}

static int setup(void **state)
{
    setup_empty(state);
    tool_fill(*state, ROOT);
    return 0;
}

static int teardown(void **state)
{
    tool_world_fini(*state);
    free(*state);
    return 0;
}

/* ---- no faults ---- */

static void sound_store_passes(void **state)
{
    struct tool_world *w = *state;
    json_t *json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_int_equal(json_integer_value(json_object_get(json, "records")), TOOL_RECORDS);
    assert_int_equal(json_integer_value(json_object_get(json, "units")), TOOL_RECORDS);
    assert_int_equal(json_integer_value(json_object_get(json, "indexEntries")), 3 * TOOL_RECORDS);
    assert_int_equal(json_integer_value(json_object_get(json, "fillers")), 2);
    assert_int_equal(json_integer_value(json_object_get(json, "queues")), 4);
    assert_int_equal(json_object_size(json_object_get(json, "notes")), 0);
    json_decref(json);
    RUN(w, MQSTORE_OK, "verify", ROOT);
    assert_non_null(strstr(w->out, "120 records"));
    assert_string_equal(w->out + strlen(w->out) - 3, "ok\n");
    assert_string_equal(w->warn, "");
}

static void empty_store_passes(void **state)
{
    struct tool_world *w = *state;
    tool_open(w, ROOT);
    tool_close(w);
    json_decref(tool_verify(w, ROOT, MQSTORE_OK));
}

static void nothing_is_written(void **state)
{
    struct tool_world *w = *state;
    static const enum sim_fs_op writing[] = {SIM_FS_PWRITEV, SIM_FS_RENAME,  SIM_FS_UNLINK,
                                             SIM_FS_MKDIR,   SIM_FS_RESERVE, SIM_FS_TRUNCATE,
                                             SIM_FS_SYNC,    SIM_FS_SYNC_DIR};
    uint64_t before = 0;
    uint64_t after = 0;
    for (size_t i = 0; i < sizeof writing / sizeof writing[0]; i++)
        before += sim_fs_calls(w->sim.fs, writing[i]);
    tool_copy(w, ROOT, "/copy");
    uint64_t copied = 0;
    for (size_t i = 0; i < sizeof writing / sizeof writing[0]; i++)
        copied += sim_fs_calls(w->sim.fs, writing[i]);
    assert_true(copied > before);
    RUN(w, MQSTORE_OK, "verify", ROOT);
    RUN(w, MQSTORE_OK, "ls", ROOT);
    RUN(w, MQSTORE_OK, "dump", ROOT);
    RUN(w, MQSTORE_OK, "diff", ROOT, "/copy");
    for (size_t i = 0; i < sizeof writing / sizeof writing[0]; i++)
        after += sim_fs_calls(w->sim.fs, writing[i]);
    assert_int_equal(after, copied);
    assert_int_equal(sim_fs_open_handles(w->sim.fs), 0);
}

static void store_in_use_is_checked_as_far_as_it_is_flushed(void **state)
{
    struct tool_world *w = *state;
    tool_open(w, ROOT);
    tool_append(w, "TopicA", 0);
    json_t *json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_true(json_is_true(json_object_get(json, "live")));
    assert_non_null(strstr(w->warn, "in use"));
    json_decref(json);
    tool_append(w, "TopicA", 0); /* the store goes on */
    tool_close(w);
}

static void broker_cannot_start_while_verify_runs(void **state)
{
    struct tool_world *w = *state;
    struct store_dir dir;
    struct tern_error err;
    struct file *file;
    assert_int_equal(store_dir_open(&dir, &w->sim.env, ROOT, 0, true, &err), TERN_OK);
    assert_int_equal(dir.lock_state, LOCK_FREE);
    assert_int_equal(fs_open(w->sim.env.fs, ROOT "/lock", FS_READ | FS_WRITE, &file), TERN_OK);
    assert_int_equal(file_lock(file), TERN_IN_USE);
    store_dir_close(&dir);
    assert_int_equal(file_lock(file), TERN_OK);
    file_close(file);
}

static void crashed_store_s_tail_is_a_note(void **state)
{
    struct tool_world *w = *state;
    tool_open(w, ROOT);
    tool_append(w, "TopicA", 0);
    tool_crash(w);
    uint8_t half[TOOL_RECORD_BYTES / 2] = {0, 0, 1, 134, 0xDA, 0xA3, 0x20, 0xA7, 1};
    tool_poke(w, SEGMENT_2, tool_record_at(TOOL_RECORDS + 1) % TOOL_SEGMENT_BYTES, half,
              sizeof half);
    json_t *json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_true(json_is_true(json_object_get(json, "aborted")));
    assert_int_equal(tool_count(json, "notes", "tornTail"), 1);
    json_decref(json);
}

static void expired_segment_leaves_notes_only(void **state)
{
    struct tool_world *w = *state;
    tool_remove(w, SEGMENT_0);
    json_t *json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_int_equal(tool_count(json, "notes", "unitExpired"), TOOL_PER_SEGMENT);
    assert_int_equal(tool_count(json, "notes", "indexExpired"), 3 * TOOL_PER_SEGMENT);
    json_decref(json);
}

static void deleted_topic_s_records_are_a_note(void **state)
{
    struct tool_world *w = *state;
    struct tern_error err;
    tool_open(w, ROOT);
    assert_int_equal(store_delete_topic(w->store, "TopicA", &err), TERN_OK);
    for (int i = 0; i < 3; i++) {
        tool_append(w, "TopicA", 0);
        tool_append(w, "TopicA", 1);
    }
    tool_close(w);
    json_t *json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_int_equal(tool_count(json, "notes", "earlierLife"), TOOL_RECORDS / 2);
    json_decref(json);
}

static void stray_file_is_a_note(void **state)
{
    struct tool_world *w = *state;
    tool_create(w, ROOT "/commitlog/README");
    json_t *json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_int_equal(tool_count(json, "notes", "strayFile"), 1);
    json_decref(json);
}

/* ---- the log ---- */

static void changed_body_is_found(void **state)
{
    struct tool_world *w = *state;
    int64_t at = tool_record_at(50) % TOOL_SEGMENT_BYTES;
    tool_poke32(w, SEGMENT_1, at + BODY_AT, 0);
    tool_expect_fault(w, "bodyCrc", 1);
    RUN(w, MQSTORE_FAILED, "verify", ROOT);
    char expected[64];
    snprintf(expected, sizeof expected, "commitlog/00000000000000016384 at %d", (int)at);
    assert_non_null(strstr(w->out, expected));
}

static void wrong_physical_offset_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_poke64(w, SEGMENT_0, tool_record_at(7) + PHYS_OFF_AT, 12345);
    tool_expect_fault(w, "physOffset", 1);
}

/* What follows is checked all the same: only this record's offset is missing in its queue. */
static void broken_length_costs_one_record(void **state)
{
    struct tool_world *w = *state;
    tool_poke32(w, SEGMENT_0, tool_record_at(8) + TOTAL_SIZE_AT, 1000);
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "logDamaged"), 1);
    assert_int_equal(tool_count(json, "faults", "offsetGap"), 1);
    assert_int_equal(json_integer_value(json_object_get(json, "records")), TOOL_RECORDS - 1);
    json_decref(json);
}

static void zeroed_first_record_is_found(void **state)
{
    struct tool_world *w = *state;
    uint8_t zeros[TOOL_RECORD_BYTES] = {0};
    tool_poke(w, SEGMENT_1, 0, zeros, sizeof zeros);
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "logDamaged"), 1);
    json_decref(json);
}

static void broken_filler_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_poke32(w, SEGMENT_0, TOOL_PER_SEGMENT * TOOL_RECORD_BYTES, 9);
    tool_expect_fault(w, "logDamaged", 1);
}

static void missing_segment_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_remove(w, SEGMENT_1);
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "segmentMissing"), 1);
    assert_int_equal(tool_count(json, "faults", "offsetGap"), 4);
    json_decref(json);
}

static void short_segment_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_truncate(w, SEGMENT_1, TOOL_SEGMENT_BYTES - 1);
    tool_expect_fault(w, "segmentLength", 1);
}

static void lost_end_of_a_flushed_log_is_found(void **state)
{
    struct tool_world *w = *state;
    uint8_t zeros[TOOL_RECORD_BYTES] = {0};
    tool_poke(w, SEGMENT_2, tool_record_at(TOOL_RECORDS - 1) % TOOL_SEGMENT_BYTES, zeros,
              sizeof zeros);
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "flushedLost"), 1);
    json_decref(json);
}

static void damaged_last_record_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_poke32(w, SEGMENT_2, tool_record_at(TOOL_RECORDS - 1) % TOOL_SEGMENT_BYTES + BODY_AT, 0);
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "flushedLost"), 1);
    assert_int_equal(tool_count(json, "notes", "tornTail"), 1);
    json_decref(json);
}

static void wrong_queue_offset_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_poke64(w, SEGMENT_0, tool_record_at(8) + QUEUE_OFF_AT, 20);
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "offsetGap"), 1);
    assert_int_equal(tool_count(json, "faults", "unitWrong"), 1);
    assert_int_equal(tool_count(json, "notes", "earlierLife"), 0);
    json_decref(json);
}

/* ---- queues ---- */

static void wrong_units_are_found(void **state)
{
    struct tool_world *w = *state;
    const char *path = QUEUE_FILE("TopicA", "1");
    tool_poke64(w, path, 3 * UNIT_BYTES, 1);
    tool_poke32(w, path, 4 * UNIT_BYTES + UNIT_SIZE_AT, TOOL_RECORD_BYTES + 1);
    tool_poke64(w, path, 5 * UNIT_BYTES + UNIT_TAGS_AT, 77);
    tool_expect_fault(w, "unitWrong", 3);
    RUN(w, MQSTORE_FAILED, "verify", ROOT);
    assert_non_null(strstr(w->out, "TopicA/1/00000000000000000000 at 60: offset"));
    assert_non_null(strstr(w->out, "TopicA/1/00000000000000000000 at 80: size"));
    assert_non_null(strstr(w->out, "TopicA/1/00000000000000000000 at 100: tagsCode"));
}

static void absent_units_are_found(void **state)
{
    struct tool_world *w = *state;
    uint8_t zeros[2 * UNIT_BYTES] = {0};
    tool_poke(w, QUEUE_FILE("TopicB", "0"), 10 * UNIT_BYTES, zeros, sizeof zeros);
    tool_poke(w, QUEUE_FILE("TopicB", "1"), 29 * UNIT_BYTES, zeros, UNIT_BYTES);
    tool_expect_fault(w, "unitMissing", 3);
}

/* After a crash a queue's end may still be unwritten; a hole may not be. */
static void absent_units_at_a_crashed_queue_s_end_are_a_note(void **state)
{
    struct tool_world *w = *state;
    uint8_t zeros[2 * UNIT_BYTES] = {0};
    tool_create(w, ROOT "/abort");
    tool_poke(w, QUEUE_FILE("TopicB", "1"), 28 * UNIT_BYTES, zeros, sizeof zeros);
    json_t *json = tool_verify(w, ROOT, MQSTORE_OK);
    assert_int_equal(tool_count(json, "notes", "undispatched"), 2);
    json_decref(json);
    tool_poke(w, QUEUE_FILE("TopicB", "0"), 10 * UNIT_BYTES, zeros, UNIT_BYTES);
    tool_expect_fault(w, "unitMissing", 1);
}

static void unit_without_a_record_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_poke64(w, QUEUE_FILE("TopicA", "0"), 30 * UNIT_BYTES, (uint64_t)tool_record_at(5));
    tool_poke32(w, QUEUE_FILE("TopicA", "0"), 30 * UNIT_BYTES + UNIT_SIZE_AT, TOOL_RECORD_BYTES);
    tool_expect_fault(w, "unitStray", 1);
}

static void lost_queue_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_remove(w, QUEUE_FILE("TopicA", "0"));
    tool_expect_fault(w, "unitMissing", TOOL_RECORDS / 4);
}

static void queue_file_of_another_length_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_truncate(w, QUEUE_FILE("TopicA", "0"), TOOL_QUEUE_FILE_BYTES - 1);
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_true(tool_count(json, "faults", "queueFile") > 0);
    json_decref(json);
}

/* ---- the index ---- */

static void wrong_index_entries_are_found(void **state)
{
    struct tool_world *w = *state;
    const char *path = tool_index_path(w);
    int64_t at = INDEX_ENTRY_1_AT + 10 * UNIT_BYTES;
    uint32_t hash = tool_peek32(w, path, at);
    tool_poke32(w, path, at, hash + TOOL_INDEX_SLOTS); /* of the same slot */
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "indexEntry"), 1);
    assert_int_equal(tool_count(json, "faults", "indexMissing"), 1);
    assert_int_equal(tool_count(json, "faults", "indexChain"), 0);
    json_decref(json);
    tool_poke32(w, path, at, hash);
    tool_poke32(w, path, at + INDEX_TIME_AT, 1000);
    tool_expect_fault(w, "indexEntry", 1);
}

static void index_entry_without_a_record_is_found(void **state)
{
    struct tool_world *w = *state;
    const char *path = tool_index_path(w);
    int64_t at = INDEX_ENTRY_1_AT + 9 * UNIT_BYTES; /* the first key of the fourth record */
    assert_int_equal(tool_peek64(w, path, at + INDEX_PHYS_AT), tool_record_at(3));
    tool_poke64(w, path, at + INDEX_PHYS_AT, (uint64_t)tool_record_at(3) - 1);
    json_t *json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "indexEntry"), 1);
    assert_int_equal(tool_count(json, "faults", "indexMissing"), 1);
    json_decref(json);
    tool_poke64(w, path, at + INDEX_PHYS_AT, INT64_MAX); /* does not stop what follows */
    json = tool_verify(w, ROOT, MQSTORE_FAILED);
    assert_int_equal(tool_count(json, "faults", "indexEntry"), 1);
    assert_int_equal(tool_count(json, "faults", "indexMissing"), 1);
    json_decref(json);
}

static void broken_index_chains_are_found(void **state)
{
    struct tool_world *w = *state;
    const char *path = tool_index_path(w);
    int64_t prev_at = INDEX_ENTRY_1_AT + 40 * UNIT_BYTES + INDEX_PREV_AT;
    tool_poke32(w, path, prev_at, tool_peek32(w, path, prev_at) + 1);
    tool_expect_fault(w, "indexChain", 1);
    tool_poke32(w, path, prev_at, tool_peek32(w, path, prev_at) - 1);
    tool_poke32(w, path, 40, tool_peek32(w, path, 40) + 1);
    RUN(w, MQSTORE_FAILED, "verify", "--index-slots", "16", ROOT);
    assert_non_null(strstr(w->out, "slot 0 leads to"));
}

static void wrong_index_header_is_found(void **state)
{
    struct tool_world *w = *state;
    const char *path = tool_index_path(w);
    uint32_t used = tool_peek32(w, path, INDEX_SLOTS_USED_AT);
    tool_poke32(w, path, INDEX_SLOTS_USED_AT, used + 1);
    tool_poke64(w, path, INDEX_END_MS_AT, 5);
    tool_expect_fault(w, "indexHeader", 2);
    tool_poke32(w, path, INDEX_COUNT_AT, TOOL_INDEX_ENTRIES + 1);
    RUN(w, MQSTORE_FAILED, "verify", "--index-slots", "16", ROOT);
    assert_non_null(strstr(w->out, "indexCount 65"));
}

static void index_file_of_another_length_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_truncate(w, tool_index_path(w), 1001);
    tool_expect_fault(w, "indexLength", 1);
}

/* ---- the checkpoint ---- */

static void impossible_checkpoint_is_found(void **state)
{
    struct tool_world *w = *state;
    tool_poke64(w, ROOT "/checkpoint", 0, UINT64_MAX);
    tool_poke64(w, ROOT "/checkpoint", 8, (uint64_t)clock_wall_ms(w->sim.env.clock) + 86400000);
    tool_expect_fault(w, "checkpoint", 2);
    tool_truncate(w, ROOT "/checkpoint", 16);
    tool_expect_fault(w, "checkpoint", 3);
    tool_remove(w, ROOT "/checkpoint");
    tool_expect_fault(w, "checkpoint", 1);
}

/* ---- the disk ---- */

static void read_error_ends_with_the_file_s_name(void **state)
{
    struct tool_world *w = *state;
    struct sim_fs_fault fault = {
        .op = SIM_FS_PREAD, .path_part = "commitlog", .nth = 2, .errno_value = 5};
    sim_fs_fail(w->sim.fs, &fault);
    RUN(w, MQSTORE_FAILED, "verify", ROOT);
    assert_non_null(strstr(w->warn, ROOT "/commitlog/00000000000000016384: cannot read"));
    assert_int_equal(sim_fs_open_handles(w->sim.fs), 0);
}

#define FILLED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(empty_store_passes, setup_empty, teardown),
        FILLED(sound_store_passes),
        FILLED(nothing_is_written),
        FILLED(store_in_use_is_checked_as_far_as_it_is_flushed),
        FILLED(broker_cannot_start_while_verify_runs),
        FILLED(crashed_store_s_tail_is_a_note),
        FILLED(expired_segment_leaves_notes_only),
        FILLED(deleted_topic_s_records_are_a_note),
        FILLED(stray_file_is_a_note),
        FILLED(changed_body_is_found),
        FILLED(wrong_physical_offset_is_found),
        FILLED(broken_length_costs_one_record),
        FILLED(zeroed_first_record_is_found),
        FILLED(broken_filler_is_found),
        FILLED(missing_segment_is_found),
        FILLED(short_segment_is_found),
        FILLED(lost_end_of_a_flushed_log_is_found),
        FILLED(damaged_last_record_is_found),
        FILLED(wrong_queue_offset_is_found),
        FILLED(wrong_units_are_found),
        FILLED(absent_units_are_found),
        FILLED(absent_units_at_a_crashed_queue_s_end_are_a_note),
        FILLED(unit_without_a_record_is_found),
        FILLED(lost_queue_is_found),
        FILLED(queue_file_of_another_length_is_found),
        FILLED(wrong_index_entries_are_found),
        FILLED(index_entry_without_a_record_is_found),
        FILLED(broken_index_chains_are_found),
        FILLED(wrong_index_header_is_found),
        FILLED(index_file_of_another_length_is_found),
        FILLED(impossible_checkpoint_is_found),
        FILLED(read_error_ends_with_the_file_s_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
