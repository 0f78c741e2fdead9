/* Messages: setters, limits, records there and back, damage, running out of memory. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/env.h"
#include "client/message_internal.h"
#include "fail_alloc.h"

static struct tern_message *message(const char *topic, const char *body)
{
    struct tern_message *m;
    assert_int_equal(tern_message_create(topic, body, strlen(body), &m, NULL), TERN_OK);
    return m;
}

/* The record of the reference, 13: stamped as the broker does it. */
static const char golden_hex[] =
    "000000A5DAA320A769C865ED00000003000000000000000000000007000000000000100000000000"
    "0000018BCFE56800C0A8000A0000D4310000018BCFE568057F00000100002A9F0000000000000000"
    "000000000000000E48656C6C6F20526F636B65744D5109546F706963546573740033554E49515F4B"
    "45590143304138303030413146393031384234414143323438453531453530303030300254414753"
    "0154616741";

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t len = strlen(hex) / 2;
    for (size_t i = 0; i < len; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return len;
}

static void stamp(uint8_t *record)
{
    struct host born = {.ip = {192, 168, 0, 10}, .port = 54321};
    struct host store = {.ip = {127, 0, 0, 1}, .port = 10911};
    record_stamp_position(record, 7, 4096);
    record_stamp_store_time(record, 1700000000005);
    assert_true(record_stamp_born_host(record, &born));
    assert_true(record_stamp_store_host(record, &store));
    record_stamp_crc(record, 0x69C865ED);
}

static void encoded_record_is_the_reference_byte_for_byte(void **state)
{
    (void)state;
    uint8_t golden[256];
    uint8_t mine[256];
    size_t golden_len = from_hex(golden_hex, golden);
    assert_int_equal(golden_len, 165);
    /* The reference's id and order of properties, without a cluster's name. */
    struct tern_message *m = message("TopicTest", "Hello RocketMQ");
    assert_int_equal(tern_message_set_property(m, "uniqkeyy", "C0A8000A1F9018B4AAC248E51E500000"),
                     TERN_OK);
    assert_int_equal(tern_message_set_tag(m, "TagA"), TERN_OK);
    assert_int_equal(message_record_size(m, NULL, 0, false, false), golden_len);
    size_t len =
        message_encode_record(m, NULL, "", 0, false, false, 3, 1700000000000, mine, sizeof mine);
    assert_int_equal(len, golden_len);
    assert_int_equal(get_be32(mine + 8), 0); /* the CRC is left to the broker */
    stamp(mine);
    uint8_t *name = memmem(mine, len, "uniqkeyy", 8);
    assert_non_null(name);
    memcpy(name, "UNIQ_KEY", 8);
    assert_memory_equal(mine, golden, golden_len);
    tern_message_unref(m);
}

static void record_has_cluster_and_id_but_no_wait(void **state)
{
    (void)state;
    struct env env;
    env_init_system(&env, NULL);
    uint8_t bytes[512];
    struct tern_message *m = message("T", "");
    tern_message_set_wait_store_ok(m, false);
    message_ensure_id(m, &env);
    size_t travels;
    const uint8_t *props = message_props(m, &travels);
    char text[200];
    snprintf(text, sizeof text,
             "UNIQ_KEY\x01%s\x02WAIT\x01"
             "false",
             tern_message_id(m));
    assert_int_equal(travels, strlen(text));
    assert_memory_equal(props, text, travels);
    for (int v6 = 0; v6 < 4; v6++) {
        struct record record;
        bool born_v6 = v6 & 1;
        bool store_v6 = v6 & 2;
        size_t size = message_record_size(m, NULL, 7, born_v6, store_v6);
        assert_int_equal(
            message_encode_record(m, NULL, "Cluster", 7, born_v6, store_v6, 1, 5, bytes, size - 1),
            0);
        assert_int_equal(message_encode_record(m, NULL, "Cluster", 7, born_v6, store_v6, 1, 5,
                                               bytes, sizeof bytes),
                         size);
        assert_int_equal(record_parse(bytes, size, size, true, &record), RECORD_WHOLE);
        snprintf(text, sizeof text,
                 "UNIQ_KEY\x01%s\x02"
                 "CLUSTER\x01"
                 "Cluster",
                 tern_message_id(m));
        assert_int_equal(record.props_len, strlen(text));
        assert_memory_equal(record.props, text, record.props_len);
        assert_int_equal(record.body_len, 0);
        assert_int_equal(record.born_host.v6, born_v6);
        assert_int_equal(record.store_host.v6, store_v6);
        assert_int_equal(record.prepared_tx_off, 0);
    }
    tern_message_unref(m);
}

static void properties_end_at_32767_bytes(void **state)
{
    (void)state;
    static char value[40000];
    struct tern_message *m = message("T", "x");
    memset(value, 'v', sizeof value - 1);
    value[32768 - 2] = 0; /* "k" \x01 and 32,766 bytes: one too many */
    assert_int_equal(tern_message_set_property(m, "k", value), TERN_TOO_LARGE);
    assert_null(tern_message_property(m, "k"));
    value[32767 - 2] = 0;
    assert_int_equal(tern_message_set_property(m, "k", value), TERN_OK);
    assert_string_equal(tern_message_property(m, "k"), value);
    assert_int_equal(tern_message_set_tag(m, "a"), TERN_TOO_LARGE);
    value[32767 - 2 - 7] = 0; /* room for \x02 TAGS \x01 a */
    assert_int_equal(tern_message_set_property(m, "k", value), TERN_OK);
    assert_int_equal(tern_message_set_tag(m, "a"), TERN_OK);
    assert_string_equal(tern_message_tag(m), "a");
    assert_false(message_props_fit_record(m, 1));
    tern_message_unref(m);
}

static void bad_properties_are_refused_and_change_nothing(void **state)
{
    (void)state;
    static const char *const reserved[] = {"KEYS",     "TAGS",    "WAIT",    "DELAY",
                                           "UNIQ_KEY", "CLUSTER", "TRAN_MSG"};
    struct tern_message *m = message("T", "x");
    assert_int_equal(tern_message_set_property(m, "name", "value"), TERN_OK);
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        assert_int_equal(tern_message_set_property(m, reserved[i], "v"), TERN_INVALID);
    assert_int_equal(tern_message_set_property(m, "", "v"), TERN_INVALID);
    assert_int_equal(tern_message_set_property(m, "n", ""), TERN_INVALID);
    assert_int_equal(tern_message_set_property(m, "n", NULL), TERN_INVALID);
    assert_int_equal(tern_message_set_property(m, NULL, "v"), TERN_INVALID);
    assert_int_equal(tern_message_set_property(m, "n\x01", "v"), TERN_INVALID);
    assert_int_equal(tern_message_set_property(m, "n", "v\x02"), TERN_INVALID);
    assert_int_equal(tern_message_set_tag(m, ""), TERN_INVALID);
    assert_int_equal(tern_message_set_keys(m, "a\x01"
                                              "b"),
                     TERN_INVALID);
    assert_int_equal(tern_message_set_delay_level(m, 65), TERN_INVALID);
    assert_int_equal(tern_message_set_delay_level(m, 64), TERN_OK); /* a ladder of the broker's */
    assert_int_equal(tern_message_delay_level(m), 64);
    assert_int_equal(tern_message_set_delay_level(m, 0), TERN_OK);
    assert_int_equal(tern_message_set_delay_level(m, -1), TERN_INVALID);
    size_t len;
    assert_memory_equal(message_props(m, &len), "name\x01value", 10);
    assert_int_equal(len, 10);
    tern_message_unref(m);
}

static void setting_again_replaces_and_readers_keep_what_they_had(void **state)
{
    (void)state;
    struct tern_message *m = message("T", "x");
    const char *name;
    const char *value;
    assert_int_equal(tern_message_set_property(m, "a", "1"), TERN_OK);
    assert_int_equal(tern_message_set_keys(m, "k1 k2"), TERN_OK);
    assert_int_equal(tern_message_set_property(m, "z", "26"), TERN_OK);
    const char *old = tern_message_property(m, "a");
    assert_int_equal(tern_message_set_property(m, "a", "one"), TERN_OK);
    assert_string_equal(tern_message_property(m, "a"), "one");
    assert_string_equal(old, "1");
    assert_string_equal(tern_message_keys(m), "k1 k2");
    assert_int_equal(tern_message_set_delay_level(m, 3), TERN_OK);
    assert_int_equal(tern_message_delay_level(m), 3);
    assert_int_equal(tern_message_set_delay_level(m, 0), TERN_OK);
    assert_int_equal(tern_message_delay_level(m), 0);
    assert_false(message_is_delayed(m));
    size_t count = 0;
    while (tern_message_property_at(m, count, &name, &value))
        count++;
    assert_int_equal(count, 3);
    tern_message_unref(m);
}

static void topic_grammar_and_empty_body(void **state)
{
    (void)state;
    struct tern_message *m;
    struct tern_error err;
    char topic[129];
    memset(topic, 't', sizeof topic);
    topic[128] = 0;
    assert_int_equal(tern_message_create(topic, "x", 1, &m, &err), TERN_INVALID);
    assert_null(m);
    assert_int_equal(tern_message_create("a b", "x", 1, &m, &err), TERN_INVALID);
    assert_int_equal(tern_message_create("", "x", 1, &m, &err), TERN_INVALID);
    assert_int_equal(tern_message_create(NULL, "x", 1, &m, &err), TERN_INVALID);
    assert_int_equal(tern_message_create("T", NULL, 1, &m, &err), TERN_INVALID);
    topic[127] = 0;
    assert_int_equal(tern_message_create(topic, NULL, 0, &m, &err), TERN_OK);
    size_t size;
    tern_message_body(m, &size);
    assert_int_equal(size, 0);
    assert_string_equal(tern_message_topic(m), topic);
    assert_string_equal(tern_message_id(m), "");
    assert_string_equal(tern_message_offset_id(m), "");
    assert_null(tern_message_tag(m));
    tern_message_unref(m);
}

static size_t three_records(uint8_t *bytes, size_t cap)
{
    size_t size = 0;
    for (int i = 0; i < 3; i++) {
        char body[] = "body-0";
        body[5] = (char)('0' + i);
        struct tern_message *m = message("T", body);
        assert_int_equal(tern_message_set_tag(m, "TagA"), TERN_OK);
        size_t one =
            message_encode_record(m, NULL, "C", 1, false, false, 2, 77, bytes + size, cap - size);
        stamp(bytes + size);
        record_stamp_crc(bytes + size, record_body_crc(body, strlen(body)));
        record_stamp_position(bytes + size, 10 + i, 4096 + i);
        size += one;
        tern_message_unref(m);
    }
    return size;
}

static void decoded_messages_show_what_the_records_hold(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    struct tern_message *messages[8];
    size_t count;
    size_t size = three_records(bytes, sizeof bytes);
    assert_int_equal(message_decode_all(NULL, bytes, size, "broker-a", messages, 8, &count, NULL),
                     TERN_OK);
    assert_int_equal(count, 3);
    memset(bytes, 0, sizeof bytes); /* they hold their own bytes */
    const struct tern_message *m = messages[1];
    size_t body_size;
    assert_memory_equal(tern_message_body(m, &body_size), "body-1", 6);
    assert_int_equal(body_size, 6);
    assert_string_equal(tern_message_topic(m), "T");
    assert_string_equal(tern_message_tag(m), "TagA");
    assert_string_equal(tern_message_property(m, "CLUSTER"), "C");
    assert_string_equal(tern_message_broker_name(m), "broker-a");
    assert_int_equal(tern_message_queue_id(m), 2);
    assert_int_equal(tern_message_queue_offset(m), 11);
    assert_int_equal(tern_message_physical_offset(m), 4097);
    assert_int_equal(tern_message_born_ms(m), 77);
    assert_int_equal(tern_message_store_ms(m), 1700000000005);
    assert_string_equal(tern_message_born_host(m), "192.168.0.10:54321");
    assert_string_equal(tern_message_store_host(m), "127.0.0.1:10911");
    assert_string_equal(tern_message_offset_id(m), "7F00000100002A9F0000000000001001");
    /* without a unique id the offset id stands for it, as in RocketMQ */
    assert_string_equal(tern_message_id(m), tern_message_offset_id(m));
    assert_int_equal(tern_message_set_tag(messages[1], "x"), TERN_INVALID);
    for (size_t i = 0; i < count; i++)
        tern_message_unref(messages[i]);
}

static void decoding_stops_at_the_first_damaged_record(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    struct tern_message *messages[8];
    size_t count;
    size_t size = three_records(bytes, sizeof bytes);
    size_t second = size / 3;
    struct tern_error err;
    for (int damage = 0; damage < 4; damage++) {
        uint8_t copy[1024];
        size_t given = size;
        memcpy(copy, bytes, size);
        if (damage == 0)
            copy[second + 4] ^= 1; /* magic */
        if (damage == 1)
            copy[second + 88] ^= 1; /* body */
        if (damage == 2)
            copy[second + 3] ^= 1; /* size */
        if (damage == 3)
            given = 2 * second - 1; /* cut off */
        assert_int_equal(message_decode_all(NULL, copy, given, "b", messages, 8, &count, &err),
                         TERN_CORRUPT);
        assert_int_equal(count, 1);
        tern_message_unref(messages[0]);
    }
    assert_int_equal(message_decode_all(NULL, bytes, size, "b", messages, 2, &count, &err),
                     TERN_OK);
    assert_int_equal(count, 2);
    tern_message_unref(messages[0]);
    tern_message_unref(messages[1]);
}

/* Creates, sets, reads; every allocation may fail. true: none did. */
static bool whole_life(void)
{
    struct tern_message *m;
    char value[300];
    memset(value, 'v', sizeof value);
    value[sizeof value - 1] = 0;
    enum tern_code code = tern_message_create("T", "body", 4, &m, NULL);
    if (code != TERN_OK) {
        assert_int_equal(code, TERN_NO_MEMORY);
        return false;
    }
    bool good = true;
    code = tern_message_set_property(m, "long", value);
    assert_true(code == TERN_OK || code == TERN_NO_MEMORY);
    good = good && code == TERN_OK;
    const char *read = tern_message_property(m, "long");
    assert_true(!read || strcmp(read, value) == 0);
    good = good && read;
    tern_message_unref(m);
    return good;
}

static bool decode_life(const uint8_t *bytes, size_t size)
{
    struct tern_message *messages[3];
    size_t count;
    enum tern_code code = message_decode_all(NULL, bytes, size, "b", messages, 3, &count, NULL);
    assert_true(code == TERN_OK || code == TERN_NO_MEMORY);
    for (size_t i = 0; i < count; i++)
        tern_message_unref(messages[i]);
    return code == TERN_OK;
}

static void running_out_of_memory_is_survived(void **state)
{
    (void)state;
    uint8_t bytes[1024];
    size_t size = three_records(bytes, sizeof bytes);
    unsigned nth = 0;
    bool good = false;
    while (!good && nth < 100) {
        fail_alloc_at(nth++);
        good = whole_life();
    }
    assert_int_equal(nth, 4); /* message, longer properties, texts; then none fails */
    for (good = false, nth = 0; !good && nth < 100;) {
        fail_alloc_at(nth++);
        good = decode_life(bytes, size);
    }
    fail_alloc_never();
    assert_int_equal(nth, 5); /* shared bytes and three messages; then none fails */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoded_record_is_the_reference_byte_for_byte),
        cmocka_unit_test(record_has_cluster_and_id_but_no_wait),
        cmocka_unit_test(properties_end_at_32767_bytes),
        cmocka_unit_test(bad_properties_are_refused_and_change_nothing),
        cmocka_unit_test(setting_again_replaces_and_readers_keep_what_they_had),
        cmocka_unit_test(topic_grammar_and_empty_body),
        cmocka_unit_test(decoded_messages_show_what_the_records_hold),
        cmocka_unit_test(decoding_stops_at_the_first_damaged_record),
        cmocka_unit_test(running_out_of_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
