/* Records: RocketMQ's bytes, and bytes that lie. */
#include "tests/unit/base/unit.h"

#include "base/bytes.h"
#include "base/names.h"
#include "base/props.h"
#include "base/record.h"

enum { GOLDEN_BYTES = 165, MAX_SIZE = 4 << 20 };

static const char golden_hex[] =
    "000000A5 DAA320A7 69C865ED 00000003 00000000 0000000000000007 0000000000001000 00000000 "
    "0000018BCFE56800 C0A8000A 0000D431 0000018BCFE56805 7F000001 00002A9F 00000000 "
    "0000000000000000 0000000E 48656C6C6F20526F636B65744D51 09 546F70696354657374 0033 "
    "554E49515F4B4559 01 4330413830303041314639303138423441414332343845353145353030303030 02 "
    "54414753 01 54616741";

static const char golden_props[] = "UNIQ_KEY\x01"
                                   "C0A8000A1F9018B4AAC248E51E500000\x02TAGS\x01TagA";

static uint8_t golden[256];

static struct record golden_fields(void)
{
    return (struct record){
        .queue_id = 3,
        .queue_off = 7,
        .phys_off = 4096,
        .born_ms = INT64_C(1700000000000),
        .born_host = {.ip = {192, 168, 0, 10}, .port = 54321},
        .store_ms = INT64_C(1700000000005),
        .store_host = {.ip = {127, 0, 0, 1}, .port = 10911},
        .body = (const uint8_t *)"Hello RocketMQ",
        .body_len = 14,
        .topic = (const uint8_t *)"TopicTest",
        .topic_len = 9,
        .props = (const uint8_t *)golden_props,
        .props_len = sizeof golden_props - 1,
    };
}

static int setup(void **state)
{
    (void)state;
    return from_hex(golden_hex, golden) == GOLDEN_BYTES ? 0 : -1;
}

static enum record_state parse(const uint8_t *bytes, size_t avail, struct record *out)
{
    /* A copy of exactly this size, so that a read behind it is seen. */
    uint8_t *copy = malloc(avail ? avail : 1);
    memcpy(copy, bytes, avail);
    enum record_state got = record_parse(copy, avail, MAX_SIZE, true, out);
    free(copy);
    return got;
}

static void encoding_gives_rocketmqs_bytes(void **state)
{
    (void)state;
    uint8_t out[256];
    struct record fields = golden_fields();
    assert_int_equal(record_encode(out, sizeof out, &fields), GOLDEN_BYTES);
    assert_memory_equal(out, golden, GOLDEN_BYTES);
    assert_int_equal(record_encode(out, GOLDEN_BYTES - 1, &fields), 0);
    assert_int_equal(record_size(14, 9, 51, 0), GOLDEN_BYTES);
}

static void parsing_gives_the_fields_back(void **state)
{
    (void)state;
    struct record r;
    assert_int_equal(record_parse(golden, sizeof golden, MAX_SIZE, true, &r), RECORD_WHOLE);
    assert_int_equal(r.total_size, GOLDEN_BYTES);
    assert_int_equal(r.body_crc, 0x69C865ED);
    assert_int_equal(r.queue_id, 3);
    assert_int_equal(r.queue_off, 7);
    assert_int_equal(r.phys_off, 4096);
    assert_true(r.born_ms == INT64_C(1700000000000));
    assert_true(r.store_ms == INT64_C(1700000000005));
    assert_int_equal(r.born_host.port, 54321);
    assert_int_equal(r.store_host.ip[0], 127);
    assert_memory_equal(r.topic, "TopicTest", r.topic_len);
    assert_memory_equal(r.body, "Hello RocketMQ", r.body_len);
    struct slice tag;
    assert_true(props_get(r.props, r.props_len, PROP_TAGS, &tag));
    assert_true(tags_code(tag.ptr, tag.len) == INT64_C(0x27A807)); /* of the ConsumeQueue unit */
}

static void body_crc_matches_known_values(void **state)
{
    (void)state;
    assert_int_equal(record_body_crc("Hello RocketMQ", 14), 0x69C865ED);
    assert_int_equal(record_body_crc(NULL, 0), 0);
    assert_int_equal(record_body_crc("123456789", 9), 0xCBF43926 & 0x7FFFFFFF);
}

static void every_truncation_is_partial(void **state)
{
    (void)state;
    struct record r;
    for (size_t avail = 0; avail < GOLDEN_BYTES; avail++)
        assert_int_equal(parse(golden, avail, &r), RECORD_PARTIAL);
    assert_int_equal(parse(golden, GOLDEN_BYTES, &r), RECORD_WHOLE);
}

/* Sets `width` bytes at `at` to each of many values but the true one and expects no acceptance. */
static void expect_lie_refused(size_t at, size_t width)
{
    static const uint32_t lies[] = {
        0,     1,     2,          7,          8,          13,         15,          51,    90,
        91,    127,   128,        164,        166,        255,        256,         32767, 32768,
        65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFF5B, MAX_SIZE + 1};
    struct record r;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uint8_t bad[GOLDEN_BYTES];
        memcpy(bad, golden, sizeof bad);
        for (size_t k = 0; k < width; k++)
            bad[at + k] = (uint8_t)(lies[i] >> (8 * (width - 1 - k)));
        if (memcmp(bad, golden, sizeof bad) == 0)
            continue;
        enum record_state got = parse(bad, sizeof bad, &r);
        assert_true(got == RECORD_BAD || got == RECORD_PARTIAL);
        for (size_t avail = 0; avail < sizeof bad; avail++)
            assert_int_not_equal(parse(bad, avail, &r), RECORD_WHOLE);
    }
}

static void every_length_lie_is_refused(void **state)
{
    (void)state;
    expect_lie_refused(0, 4);               /* totalSize */
    expect_lie_refused(84, 4);              /* body */
    expect_lie_refused(88 + 14, 1);         /* topic */
    expect_lie_refused(88 + 14 + 1 + 9, 2); /* properties */
}

static void every_flipped_byte_is_survived(void **state)
{
    (void)state;
    struct record r;
    for (size_t at = 0; at < GOLDEN_BYTES; at++) {
        for (int bit = 0; bit < 8; bit++) {
            uint8_t bad[GOLDEN_BYTES];
            memcpy(bad, golden, sizeof bad);
            bad[at] = (uint8_t)(bad[at] ^ (1 << bit));
            enum record_state got = parse(bad, sizeof bad, &r);
            if (got == RECORD_WHOLE)
                assert_int_equal(r.total_size, GOLDEN_BYTES);
            if (at >= 88 && at < 88 + 14)
                assert_int_equal(got, RECORD_BAD); /* the body's CRC */
        }
    }
}

static void wrong_magic_size_and_zeros_are_bad(void **state)
{
    (void)state;
    struct record r;
    uint8_t zeros[200] = {0};
    assert_int_equal(parse(zeros, sizeof zeros, &r), RECORD_BAD);
    assert_int_equal(record_parse(golden, GOLDEN_BYTES, GOLDEN_BYTES - 1, false, &r), RECORD_BAD);
    assert_int_equal(record_parse(golden, GOLDEN_BYTES, GOLDEN_BYTES, false, &r), RECORD_WHOLE);
    uint8_t bad[GOLDEN_BYTES];
    memcpy(bad, golden, sizeof bad);
    bad[4] ^= 1;
    assert_int_equal(parse(bad, sizeof bad, &r), RECORD_BAD);
    assert_int_equal(parse(bad, 5, &r), RECORD_BAD);
    memcpy(bad, golden, sizeof bad);
    bad[39] = SYS_BORN_V6; /* longer hosts: what follows does not fit any more */
    assert_int_equal(parse(bad, sizeof bad, &r), RECORD_BAD);
}

static void crc_is_checked_only_when_asked(void **state)
{
    (void)state;
    struct record r;
    uint8_t bad[GOLDEN_BYTES];
    memcpy(bad, golden, sizeof bad);
    bad[90] ^= 1;
    assert_int_equal(record_parse(bad, sizeof bad, MAX_SIZE, true, &r), RECORD_BAD);
    assert_int_equal(record_parse(bad, sizeof bad, MAX_SIZE, false, &r), RECORD_WHOLE);
    record_stamp_crc(bad, record_body_crc(bad + 88, 14));
    assert_int_equal(record_parse(bad, sizeof bad, MAX_SIZE, true, &r), RECORD_WHOLE);
}

static void fillers_are_recognised(void **state)
{
    (void)state;
    struct record r;
    uint8_t blank[8];
    put_be32(blank, 1 << 30);
    put_be32(blank + 4, BLANK_MAGIC);
    assert_int_equal(parse(blank, 8, &r), RECORD_BLANK);
    assert_int_equal(r.total_size, 1 << 30);
    for (size_t avail = 0; avail < 8; avail++)
        assert_int_equal(parse(blank, avail, &r), RECORD_PARTIAL);
    put_be32(blank, 8);
    assert_int_equal(parse(blank, 8, &r), RECORD_BLANK);
    put_be32(blank, 7);
    assert_int_equal(parse(blank, 8, &r), RECORD_BAD);
    put_be32(blank, 0x80000000u);
    assert_int_equal(parse(blank, 8, &r), RECORD_BAD);
}

static void ipv6_hosts_make_the_record_longer(void **state)
{
    (void)state;
    uint8_t out[256];
    struct record fields = golden_fields();
    struct record r;
    fields.born_host.v6 = true;
    for (uint8_t i = 0; i < 16; i++)
        fields.born_host.ip[i] = i;
    assert_int_equal(record_encode(out, sizeof out, &fields), GOLDEN_BYTES + 12);
    assert_int_equal(parse(out, GOLDEN_BYTES + 12, &r), RECORD_WHOLE);
    assert_int_equal(r.sys_flag, SYS_BORN_V6);
    assert_true(r.born_host.v6 && r.born_host.ip[15] == 15 && r.born_host.port == 54321);
    assert_false(r.store_host.v6);
    fields.store_host.v6 = true;
    assert_int_equal(record_encode(out, sizeof out, &fields), GOLDEN_BYTES + 24);
    assert_int_equal(record_parse(out, GOLDEN_BYTES + 24, MAX_SIZE, true, &r), RECORD_WHOLE);
    assert_memory_equal(r.topic, "TopicTest", 9);
}

static void stamps_change_their_fields_only(void **state)
{
    (void)state;
    uint8_t out[256];
    struct record fields = golden_fields();
    struct record r;
    struct host v6 = {.v6 = true, .port = 1};
    struct host v4 = {.ip = {10, 1, 2, 3}, .port = 77};
    fields.born_host.v6 = true;
    fields.born_host.ip[15] = 9;
    size_t len = record_encode(out, sizeof out, &fields);
    record_stamp_position(out, 99, INT64_C(1) << 40);
    record_stamp_queue(out, 12);
    record_stamp_store_time(out, 1234567890123);
    assert_true(record_stamp_store_host(out, &v4));
    assert_false(record_stamp_store_host(out, &v6));
    assert_true(record_stamp_born_host(out, &v6));
    assert_false(record_stamp_born_host(out, &v4));
    assert_int_equal(record_parse(out, len, MAX_SIZE, true, &r), RECORD_WHOLE);
    assert_int_equal(r.queue_off, 99);
    assert_true(r.phys_off == INT64_C(1) << 40);
    assert_int_equal(r.queue_id, 12);
    assert_true(r.store_ms == 1234567890123);
    assert_true(r.store_host.port == 77 && r.store_host.ip[3] == 3);
    assert_true(r.born_host.port == 1 && r.born_host.ip[15] == 0);
    assert_int_equal(r.reconsume_times, 0);
    assert_memory_equal(r.body, "Hello RocketMQ", 14);
}

static void empty_body_and_properties_are_a_record(void **state)
{
    (void)state;
    uint8_t out[128];
    struct record r;
    struct record fields = {.topic = (const uint8_t *)"T", .topic_len = 1};
    assert_int_equal(record_encode(out, sizeof out, &fields), 92);
    assert_int_equal(parse(out, 92, &r), RECORD_WHOLE);
    assert_int_equal(r.body_len, 0);
    assert_int_equal(r.body_crc, 0);
}

static void message_ids_are_rocketmqs(void **state)
{
    (void)state;
    char id[MESSAGE_ID_BYTES];
    struct host host = {.ip = {127, 0, 0, 1}, .port = 10911};
    struct host back;
    int64_t off;
    message_id_format(id, &host, 4096);
    assert_string_equal(id, "7F00000100002A9F0000000000001000");
    assert_ok(message_id_parse(id, &back, &off));
    assert_true(off == 4096 && back.port == 10911 && back.ip[0] == 127 && !back.v6);
    host.v6 = true;
    message_id_format(id, &host, INT64_MAX);
    assert_int_equal(strlen(id), 56);
    assert_ok(message_id_parse(id, &back, &off));
    assert_true(back.v6 && off == INT64_MAX);
    static const char *const bad[] = {"",
                                      "7F",
                                      "7F00000100002A9F000000000000100",
                                      "7F00000100002A9F00000000000010000",
                                      "7F00000100002A9F000000000000100G",
                                      "7F00000100002A9FFFFFFFFFFFFFFFFF"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(message_id_parse(bad[i], &back, &off), TERN_INVALID);
}

static void host_texts_are_parsed_strictly(void **state)
{
    (void)state;
    char text[HOST_TEXT_BYTES];
    struct host host;
    assert_ok(host_parse("192.168.0.10:54321", &host));
    host_format(text, &host);
    assert_string_equal(text, "192.168.0.10:54321");
    assert_ok(host_parse("[2001:db8::1]:10911", &host));
    assert_true(host.v6);
    host_format(text, &host);
    assert_string_equal(text, "[2001:db8::1]:10911");
    static const char *const bad[] = {"",
                                      ":1",
                                      "localhost:1",
                                      "1.2.3.4",
                                      "1.2.3.4:",
                                      "1.2.3.4:65536",
                                      "1.2.3.4:1x",
                                      "1.2.3.4:-1",
                                      "1.2.3:1",
                                      "[::1]",
                                      "[::1]1",
                                      "[::1:1",
                                      "::1:1",
                                      "1.2.3.4: 1",
                                      "1.2.3.4:000001",
                                      "[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(host_parse(bad[i], &host), TERN_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoding_gives_rocketmqs_bytes),
        cmocka_unit_test(parsing_gives_the_fields_back),
        cmocka_unit_test(body_crc_matches_known_values),
        cmocka_unit_test(every_truncation_is_partial),
        cmocka_unit_test(every_length_lie_is_refused),
        cmocka_unit_test(every_flipped_byte_is_survived),
        cmocka_unit_test(wrong_magic_size_and_zeros_are_bad),
        cmocka_unit_test(crc_is_checked_only_when_asked),
        cmocka_unit_test(fillers_are_recognised),
        cmocka_unit_test(ipv6_hosts_make_the_record_longer),
        cmocka_unit_test(stamps_change_their_fields_only),
        cmocka_unit_test(empty_body_and_properties_are_a_record),
        cmocka_unit_test(message_ids_are_rocketmqs),
        cmocka_unit_test(host_texts_are_parsed_strictly),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
