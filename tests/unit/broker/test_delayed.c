/* broker/delayed: which messages wait, where, and which are refused (D-1, D-2). */
#include "tests/unit/broker/broker_unit.h"

#include "base/clock.h"
#include "base/names.h"
#include "base/props.h"
#include "base/record.h"
#include "broker/delayed.h"
#include "broker/live_config.h"
#include "broker/schedule/delay_event.h"
#include "tests/unit/broker/fake_broker.h"

static struct delayed_message message;
static uint8_t room[RECORD_PROPS_MAX];

/* Wraps a message of TopicA, queue 3, with properties "name=value;name=value". */
static enum tern_code wrap(const char *props, struct tern_error *err)
{
    char text[512];
    message = (struct delayed_message){.topic = "TopicA", .topic_len = 6, .queue_id = 3};
    message.props = room;
    snprintf(text, sizeof text, "%s", props);
    for (char *rest = text, *pair; (pair = strtok_r(rest, ";", &rest));) {
        char *value = strchr(pair, '=');
        *value++ = 0;
        assert_ok(props_append(room, &message.props_len, sizeof room, pair, strlen(pair), value,
                               strlen(value)));
    }
    return delayed_wrap(&fake.broker, &message, err);
}

static void check_prop(const char *name, const char *expected)
{
    struct slice value;
    bool there = props_get(message.props, message.props_len, name, &value);
    assert_int_equal(there, expected != NULL);
    if (expected) {
        assert_int_equal(value.len, strlen(expected));
        assert_memory_equal(value.ptr, expected, value.len);
    }
}

static void check_waits(const char *topic, int32_t queue_id)
{
    assert_string_equal(message.topic, topic);
    assert_int_equal(message.topic_len, strlen(topic));
    assert_int_equal(message.queue_id, queue_id);
    check_prop(PROP_REAL_TOPIC, strcmp(topic, "TopicA") ? "TopicA" : NULL);
    check_prop(PROP_REAL_QID, strcmp(topic, "TopicA") ? "3" : NULL);
}

static int set_up(void **state)
{
    (void)state;
    fake_broker_begin();
    broker_config_init(&fake.broker.config);
    live_config_init(&fake.broker);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    live_config_fini(&fake.broker);
    fake_broker_end();
    return 0;
}

static void a_level_waits_in_its_queue(void **state)
{
    (void)state;
    assert_ok(wrap("TAGS=a;DELAY=3;KEYS=k", NULL));
    check_waits(SCHEDULE_TOPIC, 2);
    check_prop(PROP_DELAY, "3");
    check_prop(PROP_TAGS, "a");
    check_prop(PROP_KEYS, "k");
}

static void a_level_above_the_last_is_the_last(void **state)
{
    (void)state;
    assert_ok(wrap("DELAY=99", NULL));
    check_waits(SCHEDULE_TOPIC, 17);
    check_prop(PROP_DELAY, "18");
}

static void no_level_is_no_delay_and_goes(void **state)
{
    (void)state;
    static const char *const none[] = {"DELAY=0", "DELAY=-1", "TAGS=a"};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(wrap(none[i], NULL));
        check_waits("TopicA", 3);
        check_prop(PROP_DELAY, NULL);
    }
}

static void a_due_time_waits_with_the_timer(void **state)
{
    char text[64], expected[32];
    (void)state;
    int64_t now = clock_wall_ms(fake.broker.env.clock);
    snprintf(expected, sizeof expected, "%lld", (long long)now + 5000);
    snprintf(text, sizeof text, "TIMER_DELIVER_MS=%s", expected);
    const char *ways[] = {text, "TIMER_DELAY_MS=5000", "TIMER_DELAY_SEC=5"};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(wrap(ways[i], NULL));
        check_waits(TIMER_TOPIC, 0);
        check_prop(PROP_TIMER_OUT_MS, expected);
        check_prop(PROP_TIMER_DELIVER_MS, NULL);
        check_prop(PROP_TIMER_DELAY_MS, NULL);
        check_prop(PROP_TIMER_DELAY_SEC, NULL);
    }
}

/* DL-04: retention is a key that changes while the broker runs. */
static void what_waits_long_is_put_again_by_the_retention_in_effect(void **state)
{
    char expected[32];
    (void)state;
    int64_t now = clock_wall_ms(fake.broker.env.clock);
    assert_ok(wrap("TIMER_DELAY_SEC=36000", NULL));
    check_prop(PROP_TIMER_ROLL_MS, NULL);
    atomic_store(&fake.broker.live.retention_ms, 3600000);
    snprintf(expected, sizeof expected, "%lld", (long long)now + 1800000);
    assert_ok(wrap("TIMER_DELAY_SEC=36000", NULL));
    check_prop(PROP_TIMER_ROLL_MS, expected);
}

static void a_due_time_in_the_past_is_no_delay(void **state)
{
    (void)state;
    static const char *const past[] = {"TIMER_DELIVER_MS=1", "TIMER_DELAY_MS=0",
                                       "TIMER_DELAY_SEC=-999999999999999999"};
    for (size_t i = 0; i < 3; i++) {
        assert_ok(wrap(past[i], NULL));
        check_waits("TopicA", 3);
        check_prop(PROP_TIMER_DELIVER_MS, NULL);
        check_prop(PROP_TIMER_OUT_MS, NULL);
    }
}

static void what_is_no_delay_is_refused(void **state)
{
    static const struct {
        const char *props, *text;
    } rows[] = {
        {"DELAY=x", "DELAY=x is no whole number"},
        {"DELAY=1234567890123456789", "no whole number"},
        {"TIMER_DELAY_MS=5s", "TIMER_DELAY_MS=5s"},
        {"TIMER_DELAY_MS=3456000001", "timerMaxDelay, 3456000000 ms"},
        {"TIMER_DELAY_SEC=999999999999999999", "timerMaxDelay"},
        {"TIMER_DELAY_MS=1;TIMER_DELAY_SEC=1", "TIMER_DELAY_MS and TIMER_DELAY_SEC"},
        {"DELAY=1;TIMER_DELAY_SEC=1", "DELAY and a due time"},
    };
    struct tern_error err;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(wrap(rows[i].props, &err), TERN_MESSAGE_ILLEGAL);
        assert_contains(err.text, rows[i].text);
    }
}

/* A sender cannot say for itself where the message goes, nor when. */
static void what_is_the_brokers_own_is_replaced(void **state)
{
    (void)state;
    assert_ok(wrap("REAL_TOPIC=TopicB;REAL_QID=9;TIMER_OUT_MS=1;DELAY=1", NULL));
    check_waits(SCHEDULE_TOPIC, 0);
    check_prop(PROP_TIMER_OUT_MS, NULL);
}

/* ST-16 */
static void properties_without_room_are_refused(void **state)
{
    struct tern_error err;
    static char value[RECORD_PROPS_MAX];
    (void)state;
    message = (struct delayed_message){.topic = "TopicA", .topic_len = 6, .props = room};
    memset(value, 'v', sizeof value);
    assert_ok(props_append(room, &message.props_len, sizeof room, "DELAY", 5, "1", 1));
    assert_ok(props_append(room, &message.props_len, sizeof room, "p", 1, value,
                           sizeof value - message.props_len - 4));
    assert_int_equal(delayed_wrap(&fake.broker, &message, &err), TERN_MESSAGE_ILLEGAL);
    assert_contains(err.text, "limit is 32671");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_level_waits_in_its_queue, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_level_above_the_last_is_the_last, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_level_is_no_delay_and_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_due_time_waits_with_the_timer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_waits_long_is_put_again_by_the_retention_in_effect,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_due_time_in_the_past_is_no_delay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_delay_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_the_brokers_own_is_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(properties_without_room_are_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
