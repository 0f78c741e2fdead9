/* Tag expressions. */
#include "tests/unit/base/unit.h"

#include "base/names.h"
#include "base/subscription.h"

static struct subscription *parse(const char *text)
{
    struct subscription *sub = NULL;
    assert_ok(subscription_parse(text, strlen(text), &sub, NULL));
    return sub;
}

static bool match(const struct subscription *sub, const char *tag)
{
    bool by_text = subscription_match_tag(sub, tag, strlen(tag));
    bool by_code = subscription_match_code(sub, tags_code(tag, strlen(tag)));
    assert_true(by_code || !by_text); /* the hash never denies what the text grants */
    return by_text;
}

static void star_and_empty_match_all(void **state)
{
    (void)state;
    static const char *const all[] = {"*", "", "  ", " * ", "\t"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct subscription *sub = parse(all[i]);
        assert_true(subscription_matches_all(sub));
        assert_true(match(sub, "TagA"));
        assert_true(match(sub, ""));
        assert_string_equal(subscription_text(sub), "*");
        subscription_free(sub);
    }
    struct subscription *sub = NULL;
    assert_ok(subscription_parse(NULL, 0, &sub, NULL));
    assert_true(subscription_matches_all(sub));
    subscription_free(sub);
}

static void tags_are_split_and_trimmed(void **state)
{
    (void)state;
    struct subscription *sub = parse("  TagA || TagB||  || TagA || C|D ");
    assert_false(subscription_matches_all(sub));
    assert_true(match(sub, "TagA"));
    assert_true(match(sub, "TagB"));
    assert_true(match(sub, "C|D"));
    assert_false(match(sub, "TagC"));
    assert_false(match(sub, ""));
    assert_false(match(sub, "tagA"));
    assert_string_equal(subscription_text(sub), "TagA || TagB||  || TagA || C|D");
    subscription_free(sub);
}

static void colliding_hashes_are_told_apart_by_text(void **state)
{
    (void)state;
    struct subscription *sub = parse("Aa");
    assert_true(subscription_match_code(sub, tags_code("BB", 2)));
    assert_false(subscription_match_tag(sub, "BB", 2));
    subscription_free(sub);
    sub = parse("Aa || BB");
    assert_true(match(sub, "Aa"));
    assert_true(match(sub, "BB"));
    subscription_free(sub);
}

static void codes_that_are_no_hash_are_left_to_the_text(void **state)
{
    (void)state;
    struct subscription *sub = parse("TagA");
    assert_true(subscription_match_code(sub, INT64_MIN + 40));
    assert_true(subscription_match_code(sub, INT64_C(1700000000000)));
    assert_false(subscription_match_code(sub, 0));
    subscription_free(sub);
}

static void expect_refused(const void *text, size_t len, const char *part)
{
    struct subscription *sub = NULL;
    struct tern_error err;
    assert_int_equal(subscription_parse(text, len, &sub, &err), TERN_SUBSCRIPTION_PARSE_FAILED);
    assert_null(sub);
    assert_contains(err.text, part);
}

static void bad_expressions_are_refused_with_position(void **state)
{
    (void)state;
    expect_refused("||", 2, "position 0");
    expect_refused("  || ||", 7, "position 2");
    expect_refused("Tag\xFF", 4, "position 3");
    expect_refused("\xE6\xA0\x87 \xE6\xA0", 6, "position 4");
    expect_refused("a\0b", 3, "position 1");
}

static void limits_are_kept(void **state)
{
    (void)state;
    static char text[SUBSCRIPTION_TEXT_MAX + 2];
    struct subscription *sub = NULL;
    memset(text, 'x', sizeof text);
    assert_ok(subscription_parse(text, SUBSCRIPTION_TEXT_MAX, &sub, NULL));
    subscription_free(sub);
    expect_refused(text, SUBSCRIPTION_TEXT_MAX + 1, "allowed up to 16384");
    size_t n = 0;
    for (int i = 0; i < SUBSCRIPTION_TAGS_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "t%d||", i);
    assert_ok(subscription_parse(text, n, &sub, NULL));
    assert_true(match(sub, "t0"));
    assert_true(match(sub, "t1023"));
    assert_false(match(sub, "t1024"));
    subscription_free(sub);
    n += (size_t)snprintf(text + n, sizeof text - n, "one_more");
    expect_refused(text, n, "more than 1024 tags");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(star_and_empty_match_all),
        cmocka_unit_test(tags_are_split_and_trimmed),
        cmocka_unit_test(colliding_hashes_are_told_apart_by_text),
        cmocka_unit_test(codes_that_are_no_hash_are_left_to_the_text),
        cmocka_unit_test(bad_expressions_are_refused_with_position),
        cmocka_unit_test(limits_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
