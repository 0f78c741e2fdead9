/* The log: form of a line, quoting, limits. */
#include "tests/unit/base/unit.h"

#include "base/log.h"
#include "tests/sim/sim_clock.h"

static struct sim_clock the_clock;
static struct log *the_log;
static char last[4096];
static unsigned lines;

static void sink(void *arg, enum log_level level, const char *line)
{
    (void)arg;
    (void)level;
    snprintf(last, sizeof last, "%s", line);
    lines++;
}

static int setup(void **state)
{
    (void)state;
    sim_clock_init(&the_clock);
    lines = 0;
    last[0] = 0;
    return log_create(&the_clock.clock, LOG_INFO, sink, NULL, &the_log) == TERN_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    log_destroy(the_log);
    return 0;
}

static void a_line_has_time_level_event_and_pairs(void **state)
{
    (void)state;
    log_warn(the_log, "flush_slow", "segment=%s took_ms=%d", "0042", 812);
    assert_string_equal(last, "2023-11-14T22:13:20.000Z WARN flush_slow segment=0042 took_ms=812");
}

static void values_are_quoted_when_they_need_it(void **state)
{
    (void)state;
    log_info(the_log, "e", "a=%s b=%s c=%s d=%s e=%5d", "", "x y", "say \"hi\"", "k=v", 7);
    assert_contains(last, " e a=\"\" b=\"x y\" c=\"say \\\"hi\\\"\" d=\"k=v\" e=\"    7\"");
    log_info(the_log, "e", "reason=\"%s\" n=%d", "two words", 1);
    assert_contains(last, " e reason=\"two words\" n=1");
    log_info(the_log, "e", "name=%s", "\xE6\xA0\x87");
    assert_contains(last, " name=\xE6\xA0\x87");
}

static void a_value_cannot_forge_lines_or_pairs(void **state)
{
    (void)state;
    log_info(the_log, "e", "id=%s n=%d", "a\nERROR fake", 1);
    assert_null(strchr(last, '\n'));
    assert_contains(last, "id=\"a\\nERROR fake\" n=1");
    log_info(the_log, "e", "id=%s n=%d", "a\x1Fn=2", 1);
    assert_contains(last, " text=\"id=a\\x1Fn=2\\x1Fn=1\"");
    log_info(the_log, "e", "id=%s", "\xFF\xFE");
    assert_contains(last, " id=\"\\xFF\\xFE\"");
}

static void long_lines_are_cut(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    log_info(the_log, "e", "t=%s n=%d", text, 1);
    assert_in_range(strlen(last), 1900, 2047);
}

static void levels_below_the_least_are_not_written(void **state)
{
    (void)state;
    log_debug(the_log, "e", "a=%d", 1);
    assert_int_equal(lines, 0);
    log_set_level(the_log, LOG_DEBUG);
    log_debug(the_log, "e", "a=%d", 1);
    assert_int_equal(lines, 1);
    log_info(NULL, "e", "a=%d", 1);
    assert_int_equal(lines, 1);
}

static void repeats_are_limited_and_counted(void **state)
{
    (void)state;
    for (int second = 0; second < 2; second++) {
        for (int i = 0; i < 100; i++)
            log_info(the_log, "flood", "i=%d", i);
        if (second == 0) {
            assert_int_equal(lines, LOG_BURST);
            sim_clock_advance(&the_clock, 1000000000);
            lines = 0;
        }
    }
    assert_int_equal(lines, LOG_BURST);
    sim_clock_advance(&the_clock, 1000000000);
    for (int i = 0; i < 2; i++) { /* another site is not limited by the first */
        log_info(the_log, "calm", "i=%d", i);
        assert_null(strstr(last, "suppressed"));
    }
}

static void the_number_of_suppressed_lines_comes_with_the_next(void **state)
{
    (void)state;
    for (int i = 0; i <= 70; i++) {
        if (i == 70)
            sim_clock_advance(&the_clock, 1000000000);
        log_info(the_log, "flood", "i=%d", i);
    }
    assert_contains(last, "flood i=70 suppressed=50");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_has_time_level_event_and_pairs, setup, teardown),
        cmocka_unit_test_setup_teardown(values_are_quoted_when_they_need_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_value_cannot_forge_lines_or_pairs, setup, teardown),
        cmocka_unit_test_setup_teardown(long_lines_are_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(levels_below_the_least_are_not_written, setup, teardown),
        cmocka_unit_test_setup_teardown(repeats_are_limited_and_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(the_number_of_suppressed_lines_comes_with_the_next, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
