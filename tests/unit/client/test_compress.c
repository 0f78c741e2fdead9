/* Compressed bodies: there and back, other programs' streams, damage, bombs (facts 1.5). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/record.h"
#include "client/compress.h"

static const enum compress_type types[] = {COMPRESS_LZ4, COMPRESS_ZSTD, COMPRESS_ZLIB};
enum { TYPES = 3 };

/* "TernMQ " thirty times, by Python's zlib, the tools lz4 (-BI, and -BD --content-size) and zstd
 * (a file, and a pipe, whose frame does not say how long its content is). */
static const struct {
    const char *maker;
    uint32_t sys_flag;
    const char *hex;
} vectors[] = {
    {"zlib, flag of 4.9.8", 0x301, "785e0b492dcaf30d5408193e14000b6e4633"},
    {"zlib, flag of 4.9.3", 0x001, "785e0b492dcaf30d5408193e14000b6e4633"},
    {"lz4 independent", 0x101,
     "04224d186440a7110000007f5465726e4d51200700b350726e4d5120000000000bcd7b51"},
    {"lz4 linked, with size", 0x101,
     "04224d186c40d20000000000000092110000007f5465726e4d51200700b350726e4d5120000000000bcd7b51"},
    {"zstd file", 0x201, "28b52ffd24d2750000385465726e4d512001004851c5088fa5ab43"},
    {"zstd pipe", 0x201, "28b52ffd0458750000385465726e4d512001004851c5088fa5ab43"},
};

static size_t from_hex(const char *hex, uint8_t *out)
{
    size_t len = strlen(hex) / 2;
    for (size_t i = 0; i < len; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return len;
}

static void streams_of_other_programs_open(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++) {
        uint8_t bytes[128];
        uint8_t *body;
        size_t body_len;
        struct tern_error err = {.text = ""};
        size_t len = from_hex(vectors[v].hex, bytes);
        enum tern_code code =
            decompress_body(vectors[v].sys_flag, bytes, len, 1 << 20, &body, &body_len, &err);
        if (code != TERN_OK)
            fail_msg("%s: %s", vectors[v].maker, err.text);
        assert_int_equal(body_len, 210);
        for (size_t i = 0; i < body_len; i += 7)
            assert_memory_equal(body + i, "TernMQ ", 7);
        free(body);
    }
}

/* Half repetitive, half noise: every codec finds something. */
static uint8_t *sample(size_t len)
{
    uint8_t *bytes = malloc(len);
    uint32_t noise = 1;
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) {
        noise = noise * 1664525 + 1013904223;
        bytes[i] = i / 64 % 2 ? (uint8_t)(noise >> 24) : (uint8_t)('a' + i % 13);
    }
    return bytes;
}

static void bodies_come_back_at_every_type_level_and_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {1000, 4096, 65536, 1000003, 5 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint8_t *bytes = sample(sizes[s]);
        for (int t = 0; t < TYPES; t++) {
            for (int level = 0; level <= COMPRESS_LEVEL_MAX; level += sizes[s] > 100000 ? 5 : 1) {
                struct compressed made;
                uint8_t *body;
                size_t body_len;
                assert_int_equal(compress_body(types[t], level, bytes, sizes[s], &made), TERN_OK);
                assert_true(made.len < sizes[s]);
                assert_int_equal(made.sys_flag, SYS_COMPRESSED | types[t]);
                assert_int_equal(decompress_body(made.sys_flag, made.bytes, made.len, sizes[s],
                                                 &body, &body_len, NULL),
                                 TERN_OK);
                assert_int_equal(body_len, sizes[s]);
                assert_memory_equal(body, bytes, body_len);
                free(body);
                free(made.bytes);
            }
        }
        free(bytes);
    }
}

static void what_does_not_get_smaller_is_left_alone(void **state)
{
    (void)state;
    uint8_t noise[5000];
    uint32_t x = 7;
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)((x = x * 1664525 + 1013904223) >> 24);
    for (int t = 0; t < TYPES; t++) {
        struct compressed made;
        assert_int_equal(compress_body(types[t], 5, noise, sizeof noise, &made), TERN_TOO_LARGE);
        assert_null(made.bytes);
        assert_int_equal(compress_body(types[t], 5, noise, 0, &made), TERN_TOO_LARGE);
    }
}

static void lz4_frames_have_independent_blocks_as_java_wants(void **state)
{
    (void)state;
    uint8_t *bytes = sample(5 << 20);
    struct compressed made;
    assert_int_equal(compress_body(COMPRESS_LZ4, 5, bytes, 5 << 20, &made), TERN_OK);
    assert_memory_equal(made.bytes, "\x04\x22\x4d\x18", 4);
    assert_true(made.bytes[4] & 0x20);
    free(made.bytes);
    free(bytes);
}

static void a_bomb_ends_at_the_limit(void **state)
{
    (void)state;
    uint8_t *zeros = calloc(1, 20 << 20);
    assert_non_null(zeros);
    for (int t = 0; t < TYPES; t++) {
        struct compressed made;
        uint8_t *body;
        size_t body_len;
        struct tern_error err;
        assert_int_equal(compress_body(types[t], 5, zeros, 20 << 20, &made), TERN_OK);
        assert_true(made.len < 200000);
        assert_int_equal(
            decompress_body(made.sys_flag, made.bytes, made.len, 1 << 20, &body, &body_len, &err),
            TERN_TOO_LARGE);
        assert_null(body);
        assert_non_null(strstr(err.text, "1048576"));
        /* exactly the limit is good, one byte less is not */
        assert_int_equal(
            decompress_body(made.sys_flag, made.bytes, made.len, 20 << 20, &body, &body_len, &err),
            TERN_OK);
        free(body);
        assert_int_equal(decompress_body(made.sys_flag, made.bytes, made.len, (20 << 20) - 1, &body,
                                         &body_len, &err),
                         TERN_TOO_LARGE);
        free(made.bytes);
    }
    free(zeros);
}

static void damage_is_an_error_never_other_bytes(void **state)
{
    (void)state;
    uint8_t *bytes = sample(3000);
    for (int t = 0; t < TYPES; t++) {
        struct compressed made;
        uint8_t *body;
        size_t body_len;
        struct tern_error err;
        assert_int_equal(compress_body(types[t], 5, bytes, 3000, &made), TERN_OK);
        for (size_t cut = 0; cut < made.len; cut++)
            assert_int_equal(
                decompress_body(made.sys_flag, made.bytes, cut, 1 << 20, &body, &body_len, &err),
                TERN_CORRUPT);
        uint8_t *longer = malloc(made.len + 1);
        assert_non_null(longer);
        memcpy(longer, made.bytes, made.len);
        longer[made.len] = 'x';
        assert_int_equal(
            decompress_body(made.sys_flag, longer, made.len + 1, 1 << 20, &body, &body_len, &err),
            TERN_CORRUPT);
        /* A changed byte is found, or changes nothing but the bytes (LZ4 and Zstandard frames of
         * RocketMQ carry no checksum of their content); it never reads or writes elsewhere. */
        for (size_t at = 0; at < made.len; at++) {
            longer[at] ^= 0x55;
            if (decompress_body(made.sys_flag, longer, made.len, 1 << 20, &body, &body_len, &err) ==
                TERN_OK)
                free(body);
            longer[at] ^= 0x55;
        }
        free(longer);
        free(made.bytes);
    }
    free(bytes);
}

static void an_unknown_type_is_refused_with_its_number(void **state)
{
    (void)state;
    uint8_t *body;
    size_t body_len;
    struct tern_error err;
    assert_int_equal(decompress_body(0x701, (const uint8_t *)"x", 1, 100, &body, &body_len, &err),
                     TERN_NOT_SUPPORTED);
    assert_non_null(strstr(err.text, "0x700"));
    assert_string_equal(compress_type_name(0x701), "unknown");
    assert_string_equal(compress_type_name(0x001), "zlib");
    assert_string_equal(compress_type_name(0x300), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_of_other_programs_open),
        cmocka_unit_test(bodies_come_back_at_every_type_level_and_size),
        cmocka_unit_test(what_does_not_get_smaller_is_left_alone),
        cmocka_unit_test(lz4_frames_have_independent_blocks_as_java_wants),
        cmocka_unit_test(a_bomb_ends_at_the_limit),
        cmocka_unit_test(damage_is_an_error_never_other_bytes),
        cmocka_unit_test(an_unknown_type_is_refused_with_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
