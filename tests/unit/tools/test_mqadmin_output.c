/* mqadmin's output: what a script reads is one JSON value a command. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/mqadmin/output.h"

/* What fn prints on stdout. */
static void capture(void (*fn)(void), char *out, size_t size)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    int stdout_copy = dup(STDOUT_FILENO);
    assert_true(stdout_copy >= 0);
    assert_true(dup2(fileno(file), STDOUT_FILENO) >= 0);
    fn();
    fflush(stdout);
    assert_true(dup2(stdout_copy, STDOUT_FILENO) >= 0);
    close(stdout_copy);
    rewind(file);
    size_t len = fread(out, 1, size - 1, file);
    out[len] = '\0';
    fclose(file);
}

static void two_done(void)
{
    print_done(true, "made at %s", "a");
    print_done(true, "made at %s", "b");
    print_done_end(true);
}

static void one_done_one_failed(void)
{
    print_done(true, "made at %s", "a");
    print_done_end(false);
}

static void nothing_done(void)
{
    print_done_end(true);
}

static void what_was_done_at_several_brokers_is_one_value(void **state)
{
    char out[512];
    (void)state;
    capture(two_done, out, sizeof out);
    json_t *json = json_loads(out, 0, NULL); /* refuses anything behind the value */
    assert_non_null(json);
    assert_true(json_is_true(json_object_get(json, "ok")));
    assert_string_equal(json_string_value(json_object_get(json, "text")), "made at a\nmade at b");
    json_decref(json);
}

static void what_failed_in_part_is_not_ok(void **state)
{
    char out[512];
    (void)state;
    capture(one_done_one_failed, out, sizeof out);
    json_t *json = json_loads(out, 0, NULL);
    assert_non_null(json);
    assert_true(json_is_false(json_object_get(json, "ok")));
    json_decref(json);
    capture(nothing_done, out, sizeof out);
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_done_at_several_brokers_is_one_value),
        cmocka_unit_test(what_failed_in_part_is_not_ok),
    };
    return cmocka_run_group_tests_name("mqadmin_output", tests, NULL, NULL);
}
