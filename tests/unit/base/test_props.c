/* Properties text. */
#include "tests/unit/base/unit.h"

#include "base/props.h"

#define PROPS(text) ((const uint8_t *)(text)), sizeof(text) - 1

static void expect_prop(const uint8_t *props, size_t len, const char *name, const char *value)
{
    struct slice got = {0};
    assert_int_equal(props_get(props, len, name, &got), value != NULL);
    if (value) {
        assert_int_equal(got.len, strlen(value));
        assert_memory_equal(got.ptr, value, got.len);
    }
}

static void pairs_are_found_with_and_without_trailing_separator(void **state)
{
    (void)state;
    expect_prop(PROPS("KEYS\x01k1 k2\x02TAGS\x01TagA"), "TAGS", "TagA");
    expect_prop(PROPS("KEYS\x01k1 k2\x02TAGS\x01TagA\x02"), "TAGS", "TagA");
    expect_prop(PROPS("KEYS\x01k1 k2\x02TAGS\x01TagA\x02"), "KEYS", "k1 k2");
    expect_prop(PROPS("KEYS\x01k1"), "TAGS", NULL);
    expect_prop(NULL, 0, "TAGS", NULL);
}

static void segments_that_rocketmq_drops_are_skipped(void **state)
{
    (void)state;
    static const uint8_t text[] = "\x02\x02"
                                  "ab\x02"
                                  "\x01value\x02"
                                  "name\x01\x02"
                                  "plain text\x02"
                                  "a\x01"
                                  "b\x02"
                                  "x\x01y\x01z";
    size_t cursor = 0;
    struct slice name;
    struct slice value;
    assert_true(props_next(text, sizeof text - 1, &cursor, &name, &value));
    assert_int_equal(name.len, 1);
    assert_memory_equal(name.ptr, "a", 1);
    assert_true(props_next(text, sizeof text - 1, &cursor, &name, &value));
    assert_memory_equal(name.ptr, "x", 1);
    assert_int_equal(value.len, 3);
    assert_memory_equal(value.ptr, "y\x01z", 3);
    assert_false(props_next(text, sizeof text - 1, &cursor, &name, &value));
    assert_false(props_next(text, sizeof text - 1, &cursor, &name, &value));
}

static void the_last_of_equal_names_counts(void **state)
{
    (void)state;
    expect_prop(PROPS("TAGS\x01one\x02TAGS\x01two"), "TAGS", "two");
}

static void append_puts_the_separator_where_it_is_needed(void **state)
{
    (void)state;
    uint8_t buf[32];
    size_t len = 0;
    assert_ok(props_append(buf, &len, sizeof buf, "A", 1, "1", 1));
    assert_ok(props_append(buf, &len, sizeof buf, "B", 1, "2", 1));
    assert_int_equal(len, 7);
    assert_memory_equal(buf,
                        "A\x01"
                        "1\x02"
                        "B\x01"
                        "2",
                        7);
    buf[len++] = 2;
    assert_ok(props_append(buf, &len, sizeof buf, "C", 1, "3", 1));
    assert_int_equal(len, 11);
    expect_prop(buf, len, "C", "3");
}

static void append_refuses_what_does_not_fit_or_would_break_the_text(void **state)
{
    (void)state;
    uint8_t buf[8] = {0};
    size_t len = 0;
    assert_int_equal(props_append(buf, &len, sizeof buf, "A", 1, "1234567", 7), TERN_TOO_LARGE);
    assert_int_equal(props_append(buf, &len, sizeof buf, "", 0, "1", 1), TERN_INVALID);
    assert_int_equal(props_append(buf, &len, sizeof buf, "A", 1, "", 0), TERN_INVALID);
    assert_int_equal(props_append(buf, &len, sizeof buf, "A\x01", 2, "1", 1), TERN_INVALID);
    assert_int_equal(props_append(buf, &len, sizeof buf, "A", 1, "1\x02", 2), TERN_INVALID);
    assert_int_equal(len, 0);
    assert_ok(props_append(buf, &len, sizeof buf, "A", 1, "123456", 6));
    assert_int_equal(len, 8);
    assert_int_equal(props_append(buf, &len, sizeof buf, "A", 1, "1", 1), TERN_TOO_LARGE);
    assert_int_equal(len, 8);
}

static void expect_removed(const char *text, const char *name, const char *left)
{
    uint8_t in_place[64];
    uint8_t out[64];
    size_t len = strlen(text);
    memcpy(in_place, text, len + 1);
    size_t got = props_remove(out, (const uint8_t *)text, len, name);
    assert_int_equal(got, strlen(left));
    assert_memory_equal(out, left, got);
    assert_int_equal(props_remove(in_place, in_place, len, name), got);
    assert_memory_equal(in_place, left, got);
}

static void remove_keeps_the_rest_as_it_was(void **state)
{
    (void)state;
    expect_removed("W\x01t\x02"
                   "A\x01"
                   "1\x02"
                   "B\x01"
                   "2",
                   "W",
                   "A\x01"
                   "1\x02"
                   "B\x01"
                   "2");
    expect_removed("A\x01"
                   "1\x02"
                   "W\x01t\x02"
                   "B\x01"
                   "2",
                   "W",
                   "A\x01"
                   "1\x02"
                   "B\x01"
                   "2");
    expect_removed("A\x01"
                   "1\x02"
                   "W\x01t",
                   "W",
                   "A\x01"
                   "1");
    expect_removed("A\x01"
                   "1\x02"
                   "W\x01t\x02",
                   "W",
                   "A\x01"
                   "1\x02");
    expect_removed("W\x01t", "W", "");
    expect_removed("W\x01t\x02W\x01u\x02", "W", "");
    expect_removed("A\x01"
                   "1\x02",
                   "W",
                   "A\x01"
                   "1\x02");
    expect_removed("", "W", "");
}

static void reserved_names_are_rocketmqs(void **state)
{
    (void)state;
    assert_true(props_name_reserved("TAGS", 4));
    assert_true(props_name_reserved("INNER_MULTI_QUEUE_OFFSET", 24));
    assert_false(props_name_reserved("TRAN_PREPARED_QUEUE_OFFSET", 26));
    assert_false(props_name_reserved("INNER_MULTI_DISPATCH", 20));
    assert_false(props_name_reserved("TAG", 3));
    assert_false(props_name_reserved("orderId", 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_found_with_and_without_trailing_separator),
        cmocka_unit_test(segments_that_rocketmq_drops_are_skipped),
        cmocka_unit_test(the_last_of_equal_names_counts),
        cmocka_unit_test(append_puts_the_separator_where_it_is_needed),
        cmocka_unit_test(append_refuses_what_does_not_fit_or_would_break_the_text),
        cmocka_unit_test(remove_keeps_the_rest_as_it_was),
        cmocka_unit_test(reserved_names_are_rocketmqs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
