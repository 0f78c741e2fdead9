/* Errors: texts, prefixes, codes of errno values. */
#include "tests/unit/base/unit.h"

#include <errno.h>

static void every_code_has_name_and_text(void **state)
{
    (void)state;
    for (int code = 0; code < TERN_CODE_COUNT; code++) {
        assert_true(strlen(tern_code_name((enum tern_code)code)) > 0);
        assert_true(strlen(tern_code_text((enum tern_code)code)) > 0);
    }
    assert_string_equal(tern_code_name((enum tern_code)9999), "UNKNOWN");
}

static void prefixes_stand_before_the_text(void **state)
{
    (void)state;
    struct tern_error err;
    assert_int_equal(error_set_errno(&err, TERN_IO, EIO, "write at %d", 7), TERN_IO);
    assert_int_equal(error_prefix(&err, TERN_OK, "segment %s", "s1"), TERN_IO);
    assert_string_equal(err.text, "segment s1: write at 7: Input/output error");
    assert_int_equal(error_prefix(NULL, TERN_LIMIT, "x"), TERN_LIMIT);
    assert_string_equal(error_text(NULL, TERN_TIMEOUT), "deadline passed");
}

static void long_texts_are_cut_and_terminated(void **state)
{
    (void)state;
    struct tern_error err;
    char text[2 * TERN_ERROR_TEXT_BYTES];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    error_set(&err, TERN_IO, "%s", text);
    assert_int_equal(strlen(err.text), TERN_ERROR_TEXT_BYTES - 1);
    error_prefix(&err, TERN_IO, "short");
    assert_int_equal(strlen(err.text), TERN_ERROR_TEXT_BYTES - 1);
    assert_memory_equal(err.text, "short: aaa", 10);
    error_prefix(&err, TERN_IO, "%s", text);
    assert_int_equal(strlen(err.text), TERN_ERROR_TEXT_BYTES - 1);
}

static void errno_values_have_their_codes(void **state)
{
    (void)state;
    assert_int_equal(error_from_errno(0), TERN_OK);
    assert_int_equal(error_from_errno(ENOSPC), TERN_NO_SPACE);
    assert_int_equal(error_from_errno(ENOENT), TERN_NOT_FOUND);
    assert_int_equal(error_from_errno(EMFILE), TERN_LIMIT);
    assert_int_equal(error_from_errno(EIO), TERN_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_name_and_text),
        cmocka_unit_test(prefixes_stand_before_the_text),
        cmocka_unit_test(long_texts_are_cut_and_terminated),
        cmocka_unit_test(errno_values_have_their_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
