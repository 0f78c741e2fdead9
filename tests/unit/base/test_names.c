/* Names, UTF-8 and Java's hash. */
#include "tests/unit/base/unit.h"

#include "base/names.h"

static int32_t hash_of(const char *text)
{
    return java_hash(text, strlen(text));
}

static void java_hash_matches_known_values(void **state)
{
    (void)state;
    assert_int_equal(hash_of(""), 0);
    assert_int_equal(hash_of("TagA"), 2598919);
    assert_int_equal(hash_of("TagB"), 2598920);
    assert_int_equal(hash_of("\xE6\xA0\x87\xE7\xAD\xBE"), 857175);
    assert_int_equal(hash_of("TopicTest#KeyA"), -1656937756);
    assert_int_equal(hash_of("Aa"), hash_of("BB"));
    /* U+1F600 is the pair D83D DE00 */
    assert_int_equal(hash_of("\xF0\x9F\x98\x80"), 31 * 0xD83D + 0xDE00);
}

static void java_hash_counts_ill_formed_bytes_as_replacement(void **state)
{
    (void)state;
    assert_int_equal(hash_of("\xFF"), 0xFFFD);
    assert_int_equal(hash_of("\xE6\xA0"), 0xFFFD); /* one cut character: one replacement */
    assert_int_equal(hash_of("\xC0\x80"), 31 * 0xFFFD + 0xFFFD); /* overlong: one for each byte */
}

static void tags_code_is_sign_extended_hash_or_zero(void **state)
{
    (void)state;
    assert_true(tags_code("TagA", 4) == INT64_C(0x27A807));
    assert_true(tags_code("", 0) == 0);
    assert_true(tags_code(NULL, 0) == 0);
    assert_true(tags_code("TopicTest#KeyA", 14) == INT64_C(-1656937756));
}

static void utf8_ill_formed_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",         "\xC0\xAF",         "\xC1\xBF",         "\xE0\x80\xAF",
        "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF5\x80\x80\x80", "\xF4\x90\x80\x80",
        "\xE6\xA0",     "a\xFFz",           "\xF0\x9F\x98"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(utf8_valid(bad[i], strlen(bad[i])));
    assert_false(utf8_valid("a\0b", 3));
    assert_true(utf8_valid("", 0));
    assert_true(utf8_valid("a\xC2\xA2\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF", 14));
}

static void topic_check(const char *name, size_t len, bool good)
{
    struct tern_error err = {.text = ""};
    enum tern_code code = topic_name_check(name, len, &err);
    assert_int_equal(code, good ? TERN_OK : TERN_INVALID);
    assert_int_equal(err.text[0] == 0, good);
    assert_int_equal(topic_name_check(name, len, NULL), code);
}

static void topic_names_follow_the_grammar(void **state)
{
    (void)state;
    char longest[TOPIC_NAME_MAX + 1];
    memset(longest, 'a', sizeof longest);
    topic_check("TopicTest", 9, true);
    topic_check("%RETRY%g|1_-", 12, true);
    topic_check(longest, TOPIC_NAME_MAX, true);
    topic_check(longest, TOPIC_NAME_MAX + 1, false);
    topic_check("", 0, false);
    topic_check("a/b", 3, false);
    topic_check("..", 2, false);
    topic_check(".", 1, false);
    topic_check("a b", 3, false);
    topic_check("a\0b", 3, false);
    topic_check("ab\0", 3, false);
    topic_check("\xE6\xA0\x87", 3, false);
    topic_check("\xFF", 1, false);
    topic_check("a\n", 2, false);
}

static void group_names_may_be_longer_than_topics(void **state)
{
    (void)state;
    char name[GROUP_NAME_MAX + 1];
    memset(name, 'g', sizeof name);
    assert_ok(group_name_check(name, GROUP_NAME_MAX, NULL));
    assert_int_equal(group_name_check(name, GROUP_NAME_MAX + 1, NULL), TERN_INVALID);
    assert_int_equal(group_name_check("../../x", 7, NULL), TERN_INVALID);
    assert_ok(group_name_check("%RETRY%g", 8, NULL));
    assert_int_equal(group_use_check("%RETRY%g", 8, NULL), TERN_INVALID);
    assert_int_equal(group_use_check("%DLQ%g", 6, NULL), TERN_INVALID);
    assert_ok(group_use_check("NS%RETRY%g", 10, NULL));
    assert_ok(group_use_check("%RETRY", 6, NULL));
}

static void broker_names_do_not_begin_with_a_dot(void **state)
{
    (void)state;
    assert_ok(broker_name_check("broker-a.example_1", 18, NULL));
    assert_ok(broker_name_check("room1@broker-a", 14, NULL)); /* by machine room */
    assert_int_equal(broker_name_check("..", 2, NULL), TERN_INVALID);
    assert_int_equal(broker_name_check(".hidden", 7, NULL), TERN_INVALID);
    assert_int_equal(broker_name_check("a/b", 3, NULL), TERN_INVALID);
    assert_int_equal(broker_name_check("", 0, NULL), TERN_INVALID);
}

static void client_ids_are_printable(void **state)
{
    (void)state;
    char longest[CLIENT_ID_MAX + 1];
    memset(longest, 'c', sizeof longest);
    assert_ok(client_id_check("10.0.0.1@1234#\xE6\xA0\x87", 17, NULL));
    assert_ok(client_id_check(longest, CLIENT_ID_MAX, NULL));
    assert_int_equal(client_id_check(longest, CLIENT_ID_MAX + 1, NULL), TERN_INVALID);
    assert_int_equal(client_id_check("", 0, NULL), TERN_INVALID);
    assert_int_equal(client_id_check("a\nb", 3, NULL), TERN_INVALID);
    assert_int_equal(client_id_check("a\x7F", 2, NULL), TERN_INVALID);
    assert_int_equal(client_id_check("a\xC2\x85", 3, NULL), TERN_INVALID); /* a C1 control */
    assert_int_equal(client_id_check("a\0b", 3, NULL), TERN_INVALID);
    assert_int_equal(client_id_check("\xFF", 1, NULL), TERN_INVALID);
}

static void system_topics_are_known(void **state)
{
    (void)state;
    assert_true(topic_is_system("TBW102", 6));
    assert_true(topic_is_system("rmq_sys_x", 9));
    assert_true(topic_is_system("SELF_TEST_TOPIC", 15));
    assert_false(topic_is_system("TBW1023", 7));
    assert_false(topic_is_system("RMQ_SYS_", 8));
    assert_true(topic_send_forbidden(SCHEDULE_TOPIC, strlen(SCHEDULE_TOPIC)));
    assert_true(topic_send_forbidden("RMQ_SYS_TRANS_OP_HALF_TOPIC", 27));
    assert_false(topic_send_forbidden("BenchmarkTest", 13));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(java_hash_matches_known_values),
        cmocka_unit_test(java_hash_counts_ill_formed_bytes_as_replacement),
        cmocka_unit_test(tags_code_is_sign_extended_hash_or_zero),
        cmocka_unit_test(utf8_ill_formed_is_refused),
        cmocka_unit_test(topic_names_follow_the_grammar),
        cmocka_unit_test(group_names_may_be_longer_than_topics),
        cmocka_unit_test(broker_names_do_not_begin_with_a_dot),
        cmocka_unit_test(client_ids_are_printable),
        cmocka_unit_test(system_topics_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
