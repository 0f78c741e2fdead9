/* broker/broker_config: what single rows cannot check, and keys that are not offered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "broker/broker_config.h"

static enum tern_code check(const char *const *settings, struct tern_error *err)
{
    struct broker_config config;
    broker_config_init(&config);
    err->text[0] = 0;
    for (; *settings; settings++) {
        enum tern_code code = config_set(&broker_config_table, &config, *settings, "-o", err);
        if (code != TERN_OK)
            return code;
    }
    return broker_config_check(&config, err);
}

#define CHECK(err, ...) check((const char *const[]){__VA_ARGS__, NULL}, err)

static void defaults_are_safe(void **state)
{
    struct broker_config config;
    struct tern_error err;
    (void)state;
    broker_config_init(&config);
    assert_int_equal(broker_config_check(&config, &err), TERN_OK);
    assert_int_equal(config.flush_type, FLUSH_SYNC);
    assert_string_equal(config.listen_addr, "127.0.0.1");
    assert_false(config.auto_create_topic);
    assert_true(config.physical_memory_bytes > 0);
    assert_int_equal(config.retention_ms, INT64_C(72) * 3600000);
}

static void bare_retention_is_hours(void **state)
{
    struct broker_config config;
    struct tern_error err;
    (void)state;
    broker_config_init(&config);
    assert_int_equal(config_set(&broker_config_table, &config, "fileReservedTime=48", "-o", &err),
                     TERN_OK);
    assert_int_equal(config.retention_ms, INT64_C(48) * 3600000);
}

/* DL-04: nothing may expire while it waits. */
static void delay_levels_longer_than_retention_are_refused_or_left_out(void **state)
{
    struct broker_config config;
    struct tern_error err;
    (void)state;
    assert_int_equal(CHECK(&err, "messageDelayLevel=1s 2h", "fileReservedTime=1h"), TERN_CONFIG);
    assert_non_null(strstr(err.text, "messageDelayLevel: level 2 of 7200 s"));
    assert_int_equal(CHECK(&err, "messageDelayLevel=1s 2h", "fileReservedTime=2h"), TERN_OK);
    assert_int_equal(CHECK(&err, "messageDelayLevel=1s 2x"), TERN_CONFIG);
    broker_config_init(&config);
    assert_int_equal(config.delay_levels.count, 18);
    config.retention_ms = 3600000;
    assert_int_equal(broker_config_check(&config, &err), TERN_OK);
    assert_int_equal(config.delay_levels.count, 17);
}

/* C-5, S-1: what is not offered is refused with that word. */
static void keys_not_offered_are_refused_with_the_reason(void **state)
{
    struct tern_error err;
    (void)state;
    assert_int_not_equal(CHECK(&err, "enableDLegerCommitLog=true"), TERN_OK);
    assert_non_null(strstr(err.text, "DLedger"));
    assert_int_not_equal(CHECK(&err, "transientStorePoolEnable=true"), TERN_OK);
    assert_non_null(strstr(err.text, "transient store pool"));
    assert_int_not_equal(CHECK(&err, "enableConsumeQueueExt=false"), TERN_OK);
    assert_non_null(strstr(err.text, "ConsumeQueueExt"));
}

static void contradictions_name_their_keys(void **state)
{
    struct tern_error err;
    (void)state;
    assert_int_equal(CHECK(&err, "brokerId=1"), TERN_CONFIG);
    assert_non_null(strstr(err.text, "brokerId"));
    assert_int_equal(CHECK(&err, "mappedFileSizeCommitLog=1MiB", "maxMessageSize=1MiB"),
                     TERN_CONFIG);
    assert_non_null(strstr(err.text, "mappedFileSizeCommitLog"));
    assert_int_equal(CHECK(&err, "diskMaxUsedSpaceRatio=95"), TERN_CONFIG);
    assert_non_null(strstr(err.text, "diskMaxUsedSpaceRatio"));
    assert_int_equal(CHECK(&err, "deleteWhen=25"), TERN_CONFIG);
    assert_int_equal(CHECK(&err, "brokerName=a/b"), TERN_INVALID);
    assert_non_null(strstr(err.text, "brokerName"));
}

/* It would start and be found by nobody. */
static void what_no_client_can_dial_is_not_advertised(void **state)
{
    static const char *const wrong[] = {"0.0.0.0", "0.0.0.0:10911", "::", "[::]", "[::]:10911"};
    struct tern_error err;
    char pair[64];
    (void)state;
    assert_int_equal(CHECK(&err, "listenAddr=0.0.0.0"), TERN_CONFIG);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(pair, sizeof pair, "advertiseAddr=%s", wrong[i]);
        assert_int_equal(CHECK(&err, "listenAddr=0.0.0.0", pair), TERN_CONFIG);
        assert_non_null(strstr(err.text, "advertiseAddr"));
        assert_non_null(strstr(err.text, wrong[i]));
    }
    assert_int_equal(CHECK(&err, "listenAddr=0.0.0.0", "advertiseAddr=[::1]:10911"), TERN_OK);
    assert_int_equal(CHECK(&err, "listenAddr=::", "advertiseAddr=0.0.0.0.example"), TERN_OK);
}

/* a name that no topic can have would leave the broker without its trace topic, silently. */
static void trace_topic_must_be_one_that_clients_send_to(void **state)
{
    static const char *const wrong[] = {
        "msgTraceTopicName=a b",      "msgTraceTopicName=SCHEDULE_TOPIC_XXXX",
        "msgTraceTopicName=%RETRY%g", "msgTraceTopicName=%DLQ%g",
        "msgTraceTopicName=TBW102",   "msgTraceTopicName=rmq_sys_wheel_timer",
    };
    struct tern_error err;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_not_equal(CHECK(&err, wrong[i]), TERN_OK);
        assert_non_null(strstr(err.text, "msgTraceTopicName"));
    }
    assert_int_equal(CHECK(&err, "msgTraceTopicName=Traces"), TERN_OK);
}

static void delete_hours_are_a_bit_each(void **state)
{
    (void)state;
    assert_int_equal(broker_config_hours("04"), 1u << 4);
    assert_int_equal(broker_config_hours("0;23"), 1u | 1u << 23);
    assert_int_equal(broker_config_hours("24"), 0);
    assert_int_equal(broker_config_hours("4,5"), 0);
    assert_int_equal(broker_config_hours(""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_safe),
        cmocka_unit_test(bare_retention_is_hours),
        cmocka_unit_test(delay_levels_longer_than_retention_are_refused_or_left_out),
        cmocka_unit_test(keys_not_offered_are_refused_with_the_reason),
        cmocka_unit_test(what_no_client_can_dial_is_not_advertised),
        cmocka_unit_test(trace_topic_must_be_one_that_clients_send_to),
        cmocka_unit_test(contradictions_name_their_keys),
        cmocka_unit_test(delete_hours_are_a_bit_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
