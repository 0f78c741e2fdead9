/* What a group's failed messages become: names, limits, properties of copies. */
#include "tests/unit/broker/broker_unit.h"

#include "base/props.h"
#include "base/record.h"
#include "broker/retry.h"

static struct group_config group_of(int32_t retry_queues, int32_t max_times)
{
    struct group_config group;
    group_config_init(&group, "g", 1);
    group.retry_queues = retry_queues;
    group.retry_max_times = max_times;
    return group;
}

static void topics_are_named_after_the_group(void **state)
{
    char name[TOPIC_NAME_MAX + 1];
    char group[RETRY_GROUP_MAX + 2];
    struct tern_error err;
    (void)state;
    assert_ok(retry_topic_name(RETRY_AGAIN, "orders", name, &err));
    assert_string_equal(name, "%RETRY%orders");
    assert_string_equal(retry_group_of(name), "orders");
    assert_ok(retry_topic_name(RETRY_DEAD, "orders", name, &err));
    assert_string_equal(name, "%DLQ%orders");
    assert_null(retry_group_of(name));
    assert_null(retry_group_of("%RETRY%"));
    assert_null(retry_group_of("orders"));
    memset(group, 'g', sizeof group);
    group[RETRY_GROUP_MAX] = 0;
    assert_ok(retry_topic_name(RETRY_AGAIN, group, name, &err));
    assert_int_equal(strlen(name), TOPIC_NAME_MAX);
    memset(group, 'g', sizeof group);
    group[RETRY_GROUP_MAX + 1] = 0;
    assert_int_equal(retry_topic_name(RETRY_DEAD, group, name, &err), TERN_INVALID);
    assert_contains(err.text, "121 bytes");
}

static void the_count_the_maximum_and_the_level_decide(void **state)
{
    (void)state;
    struct group_config group = group_of(1, 16);
    assert_int_equal(retry_decide(&group, 15, 0, 0), RETRY_AGAIN);
    assert_int_equal(retry_decide(&group, 16, 0, 0), RETRY_DEAD);
    assert_int_equal(retry_decide(&group, 16, 17, 0), RETRY_AGAIN);
    assert_int_equal(retry_decide(&group, 1, 1, 0), RETRY_DEAD);
    assert_int_equal(retry_decide(&group, 0, 0, -1), RETRY_DEAD);
    group = group_of(0, 16);
    assert_int_equal(retry_decide(&group, 0, 0, 0), RETRY_DEAD);
    group = group_of(1, 0);
    assert_int_equal(retry_decide(&group, 0, 0, 0), RETRY_DEAD);
}

static size_t rewritten(const char *src, const struct retry_marks *marks,
                        char out[RECORD_PROPS_MAX])
{
    size_t len = 0;
    assert_ok(retry_props((uint8_t *)out, &len, (const uint8_t *)src, strlen(src), marks, NULL));
    out[len] = 0;
    return len;
}

/* RO-03, TX-06 */
static void what_asked_for_something_is_left_behind(void **state)
{
    static char out[RECORD_PROPS_MAX + 1];
    (void)state;
    const struct retry_marks marks = {.topic = "T", .origin_id = "ID", .delay_level = 4};
    rewritten("a\x01"
              "b\x02"
              "DELAY\x01"
              "9\x02TRAN_MSG\x01true\x02TIMER_DELIVER_MS\x01"
              "5\x02REAL_TOPIC\x01X\x02REAL_QID\x01"
              "1\x02SEQUEL_OF\x01S\x02RETRY_TOPIC\x01R\x02WAIT\x01true\x02PGROUP\x01p",
              &marks, out);
    assert_string_equal(out, "a\x01"
                             "b\x02RETRY_TOPIC\x01T\x02"
                             "DELAY\x01"
                             "4\x02ORIGIN_MESSAGE_ID\x01ID");
}

static void the_first_origin_is_kept(void **state)
{
    static char out[RECORD_PROPS_MAX + 1];
    (void)state;
    const struct retry_marks marks = {.topic = "T", .origin_id = "NEW"};
    rewritten("ORIGIN_MESSAGE_ID\x01OLD", &marks, out);
    assert_string_equal(out, "ORIGIN_MESSAGE_ID\x01OLD\x02RETRY_TOPIC\x01T");
}

/* Full properties: first without the origin, then refused with the limit. */
static void without_room_the_origin_goes_first(void **state)
{
    static char src[RECORD_PROPS_MAX + 1], out[RECORD_PROPS_MAX + 1];
    (void)state;
    const struct retry_marks marks = {.topic = "Topic", .origin_id = "0123456789ABCDEF"};
    const size_t mark_bytes = 1 + strlen(PROP_RETRY_TOPIC) + 1 + strlen(marks.topic);
    memset(src, 'v', sizeof src - 1);
    memcpy(src, "k\x01", 2);
    src[RECORD_PROPS_MAX - mark_bytes] = 0;
    assert_int_equal(rewritten(src, &marks, out), RECORD_PROPS_MAX);
    assert_null(strstr(out, PROP_ORIGIN_MESSAGE_ID));
    src[RECORD_PROPS_MAX - mark_bytes] = 'v';
    src[RECORD_PROPS_MAX - mark_bytes + 1] = 0;
    size_t len;
    struct tern_error err;
    assert_int_equal(
        retry_props((uint8_t *)out, &len, (const uint8_t *)src, strlen(src), &marks, &err),
        TERN_MESSAGE_ILLEGAL);
    assert_contains(err.text, "32767");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topics_are_named_after_the_group),
        cmocka_unit_test(the_count_the_maximum_and_the_level_decide),
        cmocka_unit_test(what_asked_for_something_is_left_behind),
        cmocka_unit_test(the_first_origin_is_kept),
        cmocka_unit_test(without_room_the_origin_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
