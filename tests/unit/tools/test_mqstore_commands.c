/* mqstore ls, dump, diff and the command line. */
#include "tests/unit/tools/tool_world.h"

#include "base/bytes.h"

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
    return json_integer_value(json_object_get(json, key));
}

/* The n-th line of what was printed, parsed; NULL behind the last. */
static json_t *line(const struct tool_world *w, int n)
{
    const char *at = w->out;
    for (; n > 0 && at[0]; n--)
        at = strchr(at, '\n') + 1;
    return at[0] ? json_loads(at, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
}

static int lines(const struct tool_world *w)
{
    int n = 0;
    for (const char *at = w->out; at[0]; at++)
        n += at[0] == '\n';
    return n;
}

/* ---- ls ---- */

static void ls_lists_what_is_there(void **state)
{
    struct tool_world *w = *state;
    assert_int_equal(fs_mkdirs(w->sim.env.fs, ROOT "/config"), TERN_OK);
    tool_create(w, ROOT "/config/topics.json");
    RUN(w, MQSTORE_OK, "ls", "--json", ROOT);
    json_t *json = line(w, 0);
    assert_non_null(json);
    assert_int_equal(number(json, "segmentBytes"), TOOL_SEGMENT_BYTES);
    assert_int_equal(json_array_size(json_object_get(json, "segments")), 3);
    assert_int_equal(json_array_size(json_object_get(json, "queues")), 4);
    assert_int_equal(json_array_size(json_object_get(json, "indexes")), 6);
    assert_int_equal(json_array_size(json_object_get(json, "config")), 1);
    const json_t *queue = json_array_get(json_object_get(json, "queues"), 1);
    assert_string_equal(json_string_value(json_object_get(queue, "topic")), "TopicA");
    assert_int_equal(number(queue, "queueId"), 1);
    assert_int_equal(number(queue, "minOffset"), 0);
    assert_int_equal(number(queue, "maxOffset"), 30);
    const json_t *index = json_array_get(json_object_get(json, "indexes"), 0);
    assert_int_equal(number(index, "slots"), TOOL_INDEX_SLOTS);
    assert_int_equal(number(index, "entries"), TOOL_INDEX_ENTRIES - 1);
    const json_t *segment = json_array_get(json_object_get(json, "segments"), 2);
    assert_true(number(segment, "firstStoreTimestamp") > SIM_START_WALL_MS);
    const json_t *about = json_object_get(json, "state");
    assert_string_equal(json_string_value(json_object_get(about, "lock")), "free");
    assert_string_equal(json_string_value(json_object_get(about, "kind")), "TernMQ");
    json_decref(json);
    RUN(w, MQSTORE_OK, "ls", ROOT);
    assert_non_null(strstr(w->out, "commitlog/00000000000000032768"));
    assert_non_null(strstr(w->out, "topics.json"));
}

static void ls_shows_the_minimum_that_is_left(void **state)
{
    struct tool_world *w = *state;
    tool_remove(w, SEGMENT_0);
    RUN(w, MQSTORE_OK, "ls", "--json", ROOT);
    json_t *json = line(w, 0);
    const json_t *queue = json_array_get(json_object_get(json, "queues"), 0);
    assert_int_equal(number(queue, "minOffset"), 11); /* 41 records, every fourth one, are gone */
    assert_int_equal(number(queue, "maxOffset"), 30);
    json_decref(json);
}

static void ls_of_a_live_store_warns(void **state)
{
    struct tool_world *w = *state;
    tool_open(w, ROOT);
    RUN(w, MQSTORE_OK, "ls", "--json", ROOT);
    assert_non_null(strstr(w->out, "\"lock\":\"held\""));
    assert_non_null(strstr(w->warn, "in use"));
    tool_close(w);
}

/* ---- dump ---- */

static void dump_prints_records_in_order(void **state)
{
    struct tool_world *w = *state;
    RUN(w, MQSTORE_OK, "dump", "--json", ROOT);
    assert_int_equal(lines(w), TOOL_RECORDS);
    json_t *json = line(w, 41);
    assert_int_equal(number(json, "physOffset"), tool_record_at(41));
    assert_int_equal(number(json, "queueOffset"), 10);
    assert_int_equal(number(json, "size"), TOOL_RECORD_BYTES);
    assert_string_equal(json_string_value(json_object_get(json, "topic")), "TopicA");
    assert_string_equal(json_string_value(json_object_get(json, "msgId")),
                        "7F00000100002A9F0000000000004000");
    const json_t *props = json_object_get(json, "properties");
    assert_string_equal(json_string_value(json_object_get(props, "KEYS")), "key-041 both");
    assert_null(json_object_get(json, "body"));
    json_decref(json);
}

static void dump_takes_a_range_a_topic_and_a_count(void **state)
{
    struct tool_world *w = *state;
    char from[24];
    char to[24];
    snprintf(from, sizeof from, "%d", (int)tool_record_at(10));
    snprintf(to, sizeof to, "%d", (int)tool_record_at(20));
    RUN(w, MQSTORE_OK, "dump", "--json", "--from", from, "--to", to, ROOT);
    assert_int_equal(lines(w), 10);
    RUN(w, MQSTORE_OK, "dump", "--json", "--from", from, "--to", to, "--topic", "TopicB", ROOT);
    assert_int_equal(lines(w), 6);
    RUN(w, MQSTORE_OK, "dump", "--json", "--count", "3", "--body", ROOT);
    assert_int_equal(lines(w), 3);
    json_t *json = line(w, 1);
    assert_true(json_string_value(json_object_get(json, "body"))[0] ==
                'b'); /* the second's begins so */
    json_decref(json);
    RUN(w, MQSTORE_OK, "dump", "--count", "1", ROOT);
    assert_non_null(strstr(w->out, "TopicA/0 offset=0"));
}

static void dump_from_the_middle_begins_at_the_next_record(void **state)
{
    struct tool_world *w = *state;
    char from[24];
    snprintf(from, sizeof from, "%d", (int)tool_record_at(10) + 17);
    RUN(w, MQSTORE_OK, "dump", "--json", "--from", from, "--count", "1", ROOT);
    json_t *json = line(w, 0);
    assert_int_equal(number(json, "physOffset"), tool_record_at(11));
    json_decref(json);
    assert_string_equal(w->warn, "");
}

static void dump_goes_over_damage_and_says_so(void **state)
{
    struct tool_world *w = *state;
    tool_poke32(w, SEGMENT_0, tool_record_at(5), 0);
    tool_poke32(w, SEGMENT_0, tool_record_at(9) + 100, 0);
    RUN(w, MQSTORE_FAILED, "dump", "--json", ROOT);
    assert_int_equal(lines(w), TOOL_RECORDS - 1);
    assert_non_null(strstr(w->warn, "at 1950: a record whose lengths do not add up, 390 bytes"));
    assert_non_null(strstr(w->warn, "at 3510: a damaged record"));
    json_t *json = line(w, 8);
    assert_true(json_is_true(json_object_get(json, "damaged")));
    json_decref(json);
}

/* ---- diff ---- */

static json_t *diff(struct tool_world *w, int status)
{
    RUN(w, status, "diff", "--json", ROOT, "/copy");
    json_t *json = line(w, 0);
    assert_non_null(json);
    return json;
}

static void equal_logs_do_not_differ(void **state)
{
    struct tool_world *w = *state;
    tool_copy(w, ROOT, "/copy");
    json_t *json = diff(w, MQSTORE_OK);
    assert_int_equal(number(json, "compared"), TOOL_RECORDS);
    assert_true(json_is_true(json_object_get(json, "same")));
    json_decref(json);
}

/* A slave that is behind, and one that has lost its beginning. */
static void only_what_is_common_is_compared(void **state)
{
    struct tool_world *w = *state;
    tool_copy(w, ROOT, "/copy");
    tool_remove(w, SEGMENT_0);
    tool_remove(w, "/copy/commitlog/00000000000000032768");
    json_t *json = diff(w, MQSTORE_OK);
    assert_int_equal(number(json, "compared"), TOOL_PER_SEGMENT);
    assert_int_equal(number(json, "from"), TOOL_SEGMENT_BYTES);
    json_decref(json);
}

static void different_records_are_shown(void **state)
{
    struct tool_world *w = *state;
    tool_copy(w, ROOT, "/copy");
    tool_poke32(w, "/copy/commitlog/00000000000000000000", tool_record_at(6) + 100, 0);
    tool_poke32(w, "/copy/commitlog/00000000000000000000", tool_record_at(7) + 12, 3);
    json_t *json = diff(w, MQSTORE_FAILED);
    assert_int_equal(number(json, "different"), 2);
    const json_t *first = json_array_get(json_object_get(json, "first"), 0);
    assert_int_equal(number(first, "physOffset"), tool_record_at(6));
    assert_string_equal(json_string_value(json_object_get(first, "what")), "body");
    json_decref(json);
    RUN(w, MQSTORE_FAILED, "diff", ROOT, "/copy");
    assert_non_null(strstr(w->out, "2 differ"));
    assert_non_null(strstr(w->out, ": queue"));
}

static void record_that_only_one_has_is_shown(void **state)
{
    struct tool_world *w = *state;
    tool_copy(w, ROOT, "/copy");
    tool_poke32(w, "/copy/commitlog/00000000000000000000", tool_record_at(6) + 4, 0);
    json_t *json = diff(w, MQSTORE_FAILED);
    assert_int_equal(number(json, "onlyFirst"), 1);
    assert_int_equal(number(json, "onlySecond"), 0);
    assert_int_equal(number(json, "different"), 0);
    assert_int_equal(number(json, "compared"), TOOL_RECORDS - 1);
    json_decref(json);
}

static void nothing_in_common_is_a_failure(void **state)
{
    struct tool_world *w = *state;
    tool_copy(w, ROOT, "/copy");
    tool_remove(w, SEGMENT_0);
    tool_remove(w, SEGMENT_1);
    tool_remove(w, "/copy/commitlog/00000000000000016384");
    tool_remove(w, "/copy/commitlog/00000000000000032768");
    json_t *json = diff(w, MQSTORE_FAILED);
    assert_int_equal(number(json, "compared"), 0);
    json_decref(json);
    RUN(w, MQSTORE_FAILED, "diff", ROOT, "/copy");
    assert_non_null(strstr(w->out, "nothing is common"));
}

/* ---- the command line ---- */

static void wrong_usage_names_the_option(void **state)
{
    struct tool_world *w = *state;
    RUN(w, MQSTORE_USAGE, "verify");
    RUN(w, MQSTORE_USAGE, "verify", ROOT, ROOT);
    RUN(w, MQSTORE_USAGE, "diff", ROOT);
    RUN(w, MQSTORE_USAGE, "mend", ROOT);
    assert_non_null(strstr(w->warn, "mend"));
    RUN(w, MQSTORE_USAGE, "ls", "--bogus", ROOT);
    assert_non_null(strstr(w->warn, "--bogus"));
    RUN(w, MQSTORE_USAGE, "ls", "-x", ROOT);
    RUN(w, MQSTORE_USAGE, "dump", ROOT, "--count");
    assert_non_null(strstr(w->warn, "--count"));
    RUN(w, MQSTORE_USAGE, "dump", "--from", "12x", ROOT);
    assert_non_null(strstr(w->warn, "--from"));
    RUN(w, MQSTORE_USAGE, "verify", "--topic", "T", ROOT);
    assert_non_null(strstr(w->warn, "topic"));
    RUN(w, MQSTORE_USAGE, "verify", "-s", "3", ROOT);
    assert_string_equal(w->out, "");
    tool_run(w, MQSTORE_USAGE, (const char *const[]){"mqstore", NULL});
}

static void no_store_is_wrong_usage(void **state)
{
    struct tool_world *w = *state;
    RUN(w, MQSTORE_USAGE, "verify", "/nowhere");
    assert_non_null(strstr(w->warn, "/nowhere: no store here"));
    assert_int_equal(fs_mkdirs(w->sim.env.fs, "/raft/dledger-n0"), TERN_OK);
    RUN(w, MQSTORE_USAGE, "ls", "/raft");
    assert_non_null(strstr(w->warn, "DLedger"));
}

static void help_and_version_are_answered(void **state)
{
    struct tool_world *w = *state;
    RUN(w, MQSTORE_OK, "--help");
    assert_non_null(strstr(w->out, "verify"));
    assert_non_null(strstr(w->out, "repair"));
    RUN(w, MQSTORE_OK, "--version");
    assert_memory_equal(w->out, "mqstore ", 8);
}

static void segment_size_may_be_given(void **state)
{
    struct tool_world *w = *state;
    tool_truncate(w, SEGMENT_0, 100);
    RUN(w, MQSTORE_FAILED, "verify", "--segment-size", "16KiB", ROOT);
    assert_non_null(strstr(w->out, "100 bytes instead of 16384"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ls_lists_what_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(ls_shows_the_minimum_that_is_left, setup, teardown),
        cmocka_unit_test_setup_teardown(ls_of_a_live_store_warns, setup, teardown),
        cmocka_unit_test_setup_teardown(dump_prints_records_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(dump_takes_a_range_a_topic_and_a_count, setup, teardown),
        cmocka_unit_test_setup_teardown(dump_from_the_middle_begins_at_the_next_record, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(dump_goes_over_damage_and_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(equal_logs_do_not_differ, setup, teardown),
        cmocka_unit_test_setup_teardown(only_what_is_common_is_compared, setup, teardown),
        cmocka_unit_test_setup_teardown(different_records_are_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(record_that_only_one_has_is_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_in_common_is_a_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_usage_names_the_option, setup, teardown),
        cmocka_unit_test_setup_teardown(no_store_is_wrong_usage, setup, teardown),
        cmocka_unit_test_setup_teardown(help_and_version_are_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(segment_size_may_be_given, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
