/* JSON as fastjson writes it. */
#include "tests/unit/base/unit.h"

#include "base/json.h"

static json_t *parse(const char *text)
{
    json_t *json = NULL;
    struct tern_error err = {.text = ""};
    enum tern_code code = json_parse_fastjson(text, strlen(text), &json, &err);
    if (code)
        fail_msg("%s: %s", text, err.text);
    return json;
}

static json_int_t at(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void integer_keys_without_quotes_are_read(void **state)
{
    (void)state;
    json_t *json = parse("{\"offsetTable\":{\"TopicA@G\":{0:10,1:7, -2 : 3 ,\n\t3:{4:5}}}}");
    const json_t *queues = json_object_get(json_object_get(json, "offsetTable"), "TopicA@G");
    assert_int_equal(at(queues, "0"), 10);
    assert_int_equal(at(queues, "1"), 7);
    assert_int_equal(at(queues, "-2"), 3);
    assert_int_equal(at(json_object_get(queues, "3"), "4"), 5);
    json_decref(json);
    json = parse("{0:1}");
    assert_int_equal(at(json, "0"), 1);
    json_decref(json);
    json = parse("{\"a\":[{0:1},{1:2}],2:3}");
    assert_int_equal(at(json, "2"), 3);
    json_decref(json);
}

static void texts_that_look_like_keys_stay_as_they_are(void **state)
{
    (void)state;
    json_t *json = parse("{\"s\":\"{0:1,2:3\",\"q\":\"\\\",4:5\",\"a\":[1,2,3],\"n\":-5}");
    assert_string_equal(json_string_value(json_object_get(json, "s")), "{0:1,2:3");
    assert_string_equal(json_string_value(json_object_get(json, "q")), "\",4:5");
    assert_int_equal(json_array_size(json_object_get(json, "a")), 3);
    assert_int_equal(at(json, "n"), -5);
    json_decref(json);
}

static void standard_json_is_read(void **state)
{
    (void)state;
    json_t *json =
        parse(" {\"dataVersion\":{\"counter\":2,\"timestamp\":1700000000000},\"x\":null} ");
    assert_true(at(json_object_get(json, "dataVersion"), "timestamp") == 1700000000000);
    json_decref(json);
    json_decref(parse("[]"));
    json_decref(parse("{}"));
}

static void expect_refused(const char *text, size_t len, enum tern_code expected)
{
    json_t *json = NULL;
    struct tern_error err = {.text = ""};
    assert_int_equal(json_parse_fastjson(text, len, &json, &err), expected);
    assert_null(json);
    assert_true(err.text[0] != 0);
}

static void what_is_no_json_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",       "{",       "}",          "{0}",   "{0:}",          "{1.5:2}",
        "{a:1}",  "{\"a\":", "{\"a\":1,}", "[0:1]", "{0:1}}",        "\"text",
        "{\"a\\", "]]]]",    "{-:1}",      "nul",   "{\"a\":1 2:3}", "{,0:1}",
        "\xFF",   "{0 1:2}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refused(bad[i], strlen(bad[i]), TERN_CORRUPT);
    expect_refused("{\"a\":1}\0{", 9, TERN_CORRUPT);
}

static void depth_is_bounded(void **state)
{
    (void)state;
    enum { DEEP = 100000 };
    char *text = malloc(DEEP);
    memset(text, '[', DEEP);
    expect_refused(text, DEEP, TERN_CORRUPT);
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    json_t *json = NULL;
    assert_ok(json_parse_fastjson(text, 128, &json, NULL));
    json_decref(json);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    expect_refused(text, 130, TERN_CORRUPT);
    for (int i = 0; i < DEEP / 4; i++)
        memcpy(text + 3 * i, "{0:", 3);
    expect_refused(text, DEEP / 4 * 3, TERN_CORRUPT);
    free(text);
}

static void pretty_form_is_sorted_and_tab_indented(void **state)
{
    (void)state;
    json_t *json = parse("{\"b\":{1:2,0:\"  two\\nlines\"},\"a\":[1,2],\"e\":{}}");
    size_t len;
    char *text = json_format_pretty(json, &len);
    assert_string_equal(text,
                        "{\n\t\"a\":[\n\t\t1,\n\t\t2\n\t],\n\t\"b\":{\n\t\t\"0\":\"  two\\nlines\","
                        "\n\t\t\"1\":2\n\t},\n\t\"e\":{}\n}");
    assert_int_equal(len, strlen(text));
    json_t *back = parse(text);
    assert_true(json_equal(json, back));
    free(text);
    json_decref(back);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_keys_without_quotes_are_read),
        cmocka_unit_test(texts_that_look_like_keys_stay_as_they_are),
        cmocka_unit_test(standard_json_is_read),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(pretty_form_is_sorted_and_tab_indented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
