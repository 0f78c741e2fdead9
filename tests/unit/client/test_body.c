/* Compressed bodies on their way to consumers: opened, limited, damaged; topics in a namespace. */
#include "tests/unit/client/fake_cluster.h"

#include "client/compress.h"
#include "client/message_internal.h"

struct got {
    unsigned count;
    size_t size;
    char first;
    char topic[128];
};

static enum tern_consume_result take_note(void *arg, const struct tern_message *const *messages,
                                          size_t count)
{
    struct got *got = arg;
    for (size_t i = 0; i < count; i++) {
        const char *body = tern_message_body(messages[i], &got->size);
        got->first = body[0];
        snprintf(got->topic, sizeof got->topic, "%s", tern_message_topic(messages[i]));
        got->count++;
    }
    return TERN_CONSUME_SUCCESS;
}

/* All messages of the fake cluster become this one. */
static void stamp(struct fake *fake, const struct compressed *body, size_t body_len)
{
    struct record record = {.body = body->bytes,
                            .body_len = (uint32_t)body_len,
                            .sys_flag = body->sys_flag,
                            .topic = (const uint8_t *)FAKE_TOPIC,
                            .topic_len = 1};
    fake->stamped_size = record_encode(fake->stamped, sizeof fake->stamped, &record);
    assert_true(fake->stamped_size > 0);
}

static struct compressed pack(enum compress_type type, size_t size)
{
    struct compressed made;
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, 'y', size);
    assert_ok(compress_body(type, 5, bytes, size, &made));
    free(bytes);
    return made;
}

static struct tern_push_consumer *start(struct fake *fake, int64_t limit, struct got *got)
{
    struct tern_consumer_options *options = fake_options(fake, "group", "a");
    struct tern_push_consumer *consumer;
    assert_ok(tern_consumer_options_from(options, TERN_FROM_FIRST, 0));
    assert_ok(tern_consumer_options_max_body_bytes(options, limit));
    assert_int_equal(tern_consumer_options_max_body_bytes(options, 1), TERN_INVALID);
    assert_ok(tern_push_consumer_create(options, &consumer, NULL));
    tern_consumer_options_destroy(options);
    assert_ok(tern_push_consumer_subscribe(consumer, FAKE_TOPIC, "*", NULL));
    assert_ok(tern_push_consumer_listener(consumer, take_note, got));
    assert_ok(tern_push_consumer_start(consumer, NULL));
    return consumer;
}

static void listener_sees_the_original_body(void **state)
{
    (void)state;
    static const enum compress_type types[] = {COMPRESS_ZLIB, COMPRESS_LZ4, COMPRESS_ZSTD};
    for (int t = 0; t < 3; t++) {
        struct fake *fake = fake_create(1);
        struct got got = {0};
        struct compressed made = pack(types[t], 50000);
        stamp(fake, &made, made.len);
        fake_publish(fake, 0, NULL, 3);
        struct tern_push_consumer *consumer = start(fake, 50000, &got);
        fake_run_ms(fake, 6000);
        assert_int_equal(got.count, 3);
        assert_int_equal(got.size, 50000);
        assert_int_equal(got.first, 'y');
        assert_int_equal(fake->queues[0].committed, 3);
        struct tern_consumer_stats stats;
        tern_push_consumer_stats(consumer, &stats);
        assert_int_equal(stats.cached, 0);
        tern_push_consumer_destroy(consumer);
        fake_destroy(fake);
        free(made.bytes);
    }
}

/* A bomb, and a cut stream: the listener never sees them, the queue goes on. */
static void bodies_that_cannot_be_opened_are_sent_back(void **state)
{
    (void)state;
    for (int damaged = 0; damaged < 2; damaged++) {
        struct fake *fake = fake_create(1);
        struct got got = {0};
        struct compressed made = pack(COMPRESS_ZLIB, 5000);
        stamp(fake, &made, damaged ? made.len - 1 : made.len);
        fake_publish(fake, 0, NULL, 4);
        struct tern_push_consumer *consumer = start(fake, damaged ? 1 << 20 : 4999, &got);
        fake_run_ms(fake, 6000);
        assert_int_equal(got.count, 0);
        assert_int_equal(fake->sent_back, 4);
        assert_int_equal(fake->queues[0].committed, 4);
        struct tern_consumer_stats stats;
        tern_push_consumer_stats(consumer, &stats);
        assert_int_equal(stats.failed, 4);
        assert_int_equal(stats.cached, 0);
        tern_push_consumer_destroy(consumer);
        fake_destroy(fake);
        free(made.bytes);
    }
}

static struct tern_message *received(const struct compressed *body, size_t body_len,
                                     const char *topic)
{
    struct record record = {.body = body->bytes,
                            .body_len = (uint32_t)body_len,
                            .sys_flag = body->sys_flag,
                            .topic = (const uint8_t *)topic,
                            .topic_len = (uint8_t)strlen(topic)};
    uint8_t bytes[512];
    struct tern_message *m;
    size_t count;
    size_t size = record_encode(bytes, sizeof bytes, &record);
    assert_true(size > 0);
    assert_ok(message_decode_all(NULL, bytes, size, "b", &m, 1, &count, NULL));
    assert_int_equal(count, 1);
    return m;
}

static void body_opens_once_and_damage_shows_what_is_stored(void **state)
{
    (void)state;
    struct compressed made = pack(COMPRESS_ZSTD, 10000);
    struct tern_message *m = received(&made, made.len, "N%T");
    size_t size;
    const void *body = tern_message_body(m, &size);
    assert_int_equal(size, 10000);
    assert_ptr_equal(tern_message_body(m, &size), body);
    assert_ok(tern_message_open(m, NULL));
    assert_int_equal(tern_message_sys_flag(m) & 0x701, 0x201);
    message_hide_namespace(m, "N");
    assert_string_equal(tern_message_topic(m), "T");
    assert_string_equal(message_wire_topic(m), "N%T");
    tern_message_unref(m);
    struct tern_message *cut = received(&made, made.len - 2, "N%T");
    struct tern_error err;
    assert_int_equal(tern_message_open(cut, &err), TERN_CORRUPT);
    assert_non_null(strstr(err.text, "zstd"));
    assert_non_null(tern_message_body(cut, &size));
    assert_int_equal(size, made.len - 2);
    tern_message_unref(cut);
    free(made.bytes);
}

/* As RocketMQ's withoutNamespace() */
static void namespace_is_hidden_within_a_dead_letter_topic_too(void **state)
{
    static const struct {
        const char *wire, *ns, *shown;
    } rows[] = {
        {"N%T", "N", "T"},
        {"%DLQ%N%g", "N", "%DLQ%g"},
        {"%RETRY%N%g", "N", "%RETRY%g"},
        {"%DLQ%M%g", "N", "%DLQ%M%g"},
        {"%DLQ%g", "", "%DLQ%g"},
    };
    (void)state;
    struct compressed made = pack(COMPRESS_ZSTD, 100);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_message *m = received(&made, made.len, rows[i].wire);
        message_hide_namespace(m, rows[i].ns);
        assert_string_equal(tern_message_topic(m), rows[i].shown);
        assert_string_equal(message_wire_topic(m), rows[i].wire);
        tern_message_unref(m);
    }
    free(made.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listener_sees_the_original_body),
        cmocka_unit_test(bodies_that_cannot_be_opened_are_sent_back),
        cmocka_unit_test(body_opens_once_and_damage_shows_what_is_stored),
        cmocka_unit_test(namespace_is_hidden_within_a_dead_letter_topic_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
