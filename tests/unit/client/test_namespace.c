/* Namespaces on names (facts 7.1), and the table of latency penalties (facts 7.2). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "client/latency_faults.h"
#include "client/namespace.h"

static void names_are_wrapped_once_and_come_back(void **state)
{
    (void)state;
    static const struct {
        const char *ns, *name, *wrapped;
    } rows[] = {
        {"", "T", "T"},
        {"A", "T", "A%T"},
        {"A", "A%T", "A%T"},
        {"A", "AB%T", "A%AB%T"},
        {"A", "%RETRY%g", "%RETRY%A%g"},
        {"A", "%RETRY%A%g", "%RETRY%A%g"},
        {"A", "%DLQ%g", "%DLQ%A%g"},
        {"A", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"},
        {"A", "TBW102", "TBW102"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[TOPIC_NAME_MAX + 1];
        assert_int_equal(namespace_wrap(rows[i].ns, rows[i].name, TOPIC_NAME_MAX, out, NULL),
                         TERN_OK);
        assert_string_equal(out, rows[i].wrapped);
        char again[TOPIC_NAME_MAX + 1];
        assert_int_equal(namespace_wrap(rows[i].ns, out, TOPIC_NAME_MAX, again, NULL), TERN_OK);
        assert_string_equal(again, out);
    }
    char topic[TOPIC_NAME_MAX + 1] = "A%T";
    namespace_strip("A", topic);
    assert_string_equal(topic, "T");
    memcpy(topic, "%RETRY%A%g", sizeof "%RETRY%A%g");
    namespace_strip("A", topic);
    assert_string_equal(topic, "%RETRY%g");
    memcpy(topic, "B%T", sizeof "B%T");
    namespace_strip("A", topic);
    assert_string_equal(topic, "B%T");
    assert_int_equal(namespace_skip("A", "A%T"), 2);
    assert_int_equal(namespace_skip("A", "AT"), 0);
}

static void bad_namespaces_and_names_that_grow_too_long_are_refused(void **state)
{
    (void)state;
    struct tern_error err;
    char out[TOPIC_NAME_MAX + 1];
    char long_name[TOPIC_NAME_MAX + 1];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    assert_int_equal(namespace_check("", &err), TERN_OK);
    assert_int_equal(namespace_check("MQ_INST-1", &err), TERN_OK);
    assert_int_equal(namespace_check("a%b", &err), TERN_INVALID);
    assert_int_equal(namespace_check("a b", &err), TERN_INVALID);
    assert_int_equal(namespace_check(long_name, &err), TERN_INVALID);
    assert_int_equal(namespace_wrap("", long_name, TOPIC_NAME_MAX, out, &err), TERN_OK);
    assert_int_equal(namespace_wrap("A", long_name, TOPIC_NAME_MAX, out, &err), TERN_INVALID);
    assert_non_null(strstr(err.text, "127"));
    long_name[TOPIC_NAME_MAX - 2] = 0;
    assert_int_equal(namespace_wrap("A", long_name, TOPIC_NAME_MAX, out, &err), TERN_OK);
    assert_int_equal(strlen(out), TOPIC_NAME_MAX);
}

static void penalties_are_those_of_the_table(void **state)
{
    (void)state;
    static const int64_t rows[][2] = {
        {0, 0},          {49, 0},
        {50, 0},         {100, 0},
        {549, 0},        {550, 30000},
        {999, 30000},    {1000, 60000},
        {1999, 60000},   {2000, 120000},
        {3000, 180000},  {14999, 180000},
        {15000, 600000}, {LATENCY_OF_FAILURE_MS, 600000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(latency_penalty_ms(rows[i][0]), rows[i][1]);
    struct broker_latency item = {0};
    assert_true(latency_available(&item, 0));
    latency_note(&item, 600, 1000);
    assert_false(latency_available(&item, 1000 + ms_to_ns(30000) - 1));
    assert_true(latency_available(&item, 1000 + ms_to_ns(30000)));
    latency_note(&item, 5, 2000);
    assert_true(latency_available(&item, 2000));
}

static void when_none_is_available_the_better_half_takes_turns(void **state)
{
    (void)state;
    struct broker_latency items[4] = {{0}};
    const struct broker_latency *list[] = {&items[0], &items[1], &items[2], &items[3]};
    latency_note(&items[0], 30000, 0);
    latency_note(&items[1], 3000, 0);
    latency_note(&items[2], 700, 0);
    latency_note(&items[3], 20000, 0);
    assert_int_equal(latency_least_bad(list, 4, 0, 1), 2);
    assert_int_equal(latency_least_bad(list, 4, 1, 1), 1);
    assert_int_equal(latency_least_bad(list, 4, 2, 1), 2);
    assert_int_equal(latency_least_bad(list, 1, 7, 1), 0);
    /* one whose time is up comes first */
    assert_int_equal(latency_least_bad(list, 2, 0, ms_to_ns(180000)), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_wrapped_once_and_come_back),
        cmocka_unit_test(bad_namespaces_and_names_that_grow_too_long_are_refused),
        cmocka_unit_test(penalties_are_those_of_the_table),
        cmocka_unit_test(when_none_is_available_the_better_half_takes_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
