/* Sharing queues: R-3's vectors, and that any sharing is a partition. */
#include "tests/unit/base/unit.h"

#include "client/allocate.h"

enum { QUEUES_MAX = 40 };

static struct tern_queue queues[QUEUES_MAX];
static const char *const members[] = {"10.0.0.1@a", "10.0.0.1@b", "10.0.0.2@a", "10.0.0.3@a",
                                      "10.0.0.4@a", "10.0.0.5@a", "10.0.0.6@a", "10.0.0.7@a"};

/* The share as text: "012". */
static void share(size_t queue_count, size_t member_count, size_t own, char *text)
{
    struct allocate_input input = {.client_id = members[own],
                                   .queues = queues,
                                   .queue_count = queue_count,
                                   .members = members,
                                   .member_count = member_count};
    size_t mine[QUEUES_MAX];
    size_t count;
    assert_ok(allocate_queues(&allocate_averagely, &input, mine, &count, NULL));
    for (size_t i = 0; i < count; i++)
        text[i] = (char)('0' + mine[i]);
    text[count] = '\0';
}

/* */
static void eight_queues_and_three_members_share_averagely(void **state)
{
    (void)state;
    static const char *const expected[] = {"012", "345", "67"};
    char text[QUEUES_MAX + 1];
    for (size_t i = 0; i < 3; i++) {
        share(8, 3, i, text);
        assert_string_equal(text, expected[i]);
    }
}

/* facts 7.8: |q| <= |c| gives one each to the first ones */
static void more_members_than_queues_leaves_the_last_without(void **state)
{
    (void)state;
    static const char *const expected[] = {"0", "1", "2", "", "", ""};
    char text[QUEUES_MAX + 1];
    for (size_t i = 0; i < 6; i++) {
        share(3, 6, i, text);
        assert_string_equal(text, expected[i]);
    }
}

static void every_queue_has_exactly_one_owner(void **state)
{
    (void)state;
    for (size_t queue_count = 1; queue_count <= QUEUES_MAX; queue_count++) {
        for (size_t member_count = 1; member_count <= 8; member_count++) {
            char all[8 * QUEUES_MAX] = "";
            for (size_t i = 0; i < member_count; i++) {
                char text[QUEUES_MAX + 1];
                share(queue_count, member_count, i, text);
                strcat(all, text);
            }
            assert_int_equal(strlen(all), queue_count);
            for (size_t q = 0; q < queue_count; q++)
                assert_int_equal(all[q], (char)('0' + q));
        }
    }
}

static enum tern_code try_share(const char *id, size_t queue_count, size_t member_count,
                                struct tern_error *err)
{
    struct allocate_input input = {.client_id = id,
                                   .queues = queues,
                                   .queue_count = queue_count,
                                   .members = members,
                                   .member_count = member_count};
    size_t mine[QUEUES_MAX];
    size_t count = 99;
    enum tern_code code = allocate_queues(&allocate_averagely, &input, mine, &count, err);
    assert_int_equal(count, 0);
    return code;
}

/* */
static void empty_id_or_lists_are_refused(void **state)
{
    (void)state;
    struct tern_error err;
    assert_int_equal(try_share("", 8, 3, &err), TERN_INVALID);
    assert_contains(err.text, "client id");
    assert_int_equal(try_share(members[0], 0, 3, &err), TERN_INVALID);
    assert_contains(err.text, "queues");
    assert_int_equal(try_share(members[0], 8, 0, &err), TERN_INVALID);
    assert_contains(err.text, "members");
}

/* */
static void an_unknown_member_gets_nothing_and_is_told(void **state)
{
    (void)state;
    struct tern_error err;
    assert_int_equal(try_share("10.9.9.9@x", 8, 3, &err), TERN_NOT_FOUND);
    assert_contains(err.text, "10.9.9.9@x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_queues_and_three_members_share_averagely),
        cmocka_unit_test(more_members_than_queues_leaves_the_last_without),
        cmocka_unit_test(every_queue_has_exactly_one_owner),
        cmocka_unit_test(empty_id_or_lists_are_refused),
        cmocka_unit_test(an_unknown_member_gets_nothing_and_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
