/* Order configurations as people write them, and as nobody should. */
#include "tests/unit/base/unit.h"

#include "base/order_conf.h"

static void rows_come_in_the_order_of_the_text(void **state)
{
    (void)state;
    struct order_conf_row *rows;
    size_t count;
    static const char *const texts[] = {"broker-b:4;broker-a:16", "broker-b:4;broker-a:16;"};
    for (size_t i = 0; i < 2; i++) {
        assert_ok(order_conf_parse(texts[i], strlen(texts[i]), &rows, &count, NULL));
        assert_int_equal(count, 2);
        assert_string_equal(rows[0].broker, "broker-b");
        assert_int_equal(rows[0].queues, 4);
        assert_string_equal(rows[1].broker, "broker-a");
        assert_int_equal(rows[1].queues, 16);
        free(rows);
    }
}

static void what_is_wrong_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {{"", "0 bytes"},           {";", "at byte 0"},
                 {"a", "no broker:queues"}, {"a:", "byte 2"},
                 {"a:0", "1 to 65536"},     {"a:-1", "1 to 65536"},
                 {"a:4x", "1 to 65536"},    {"a:99999999999999999999", "1 to 65536"},
                 {":4", "at byte 0"},       {"a:4;;b:4", "at byte 4"},
                 {"a:4;a:4", "twice"},      {"a:65536;b:1", "more than 65536"},
                 {"../x:4", "at byte 0"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tern_error err = {.text = ""};
        assert_int_equal(order_conf_check(cases[i].text, &err), TERN_INVALID);
        if (!strstr(err.text, cases[i].part))
            fail_msg("\"%s\": \"%s\" does not say \"%s\"", cases[i].text, err.text, cases[i].part);
    }
}

static void brokers_are_bounded(void **state)
{
    (void)state;
    char *text = malloc(16 * 1025 + 1);
    assert_non_null(text);
    size_t len = 0;
    for (int i = 0; i < 1025; i++)
        len += (size_t)snprintf(text + len, 17, "b%d:1;", i);
    assert_int_equal(order_conf_check(text, NULL), TERN_INVALID);
    text[strlen(text) - strlen("b1024:1;")] = '\0';
    assert_ok(order_conf_check(text, NULL));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_in_the_order_of_the_text),
        cmocka_unit_test(what_is_wrong_is_refused_with_its_place),
        cmocka_unit_test(brokers_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
