/* Trace records: RocketMQ's text (facts 7.20), damage, the dispatcher (A-2). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/trace_codec.h"
#include "sending.h"

/* ---- text ---- */

static const struct trace_record pub = {.kind = TRACE_PUB,
                                        .time_ms = 1700000000000,
                                        .region = "DefaultRegion",
                                        .group = "P",
                                        .topic = "T",
                                        .message_id = "ID1",
                                        .tags = "TagA",
                                        .keys = "k1 k2",
                                        .store_host = "127.0.0.1:10911",
                                        .offset_id = "OFF",
                                        .body_bytes = 12,
                                        .cost_ms = 3,
                                        .message_type = TRACE_DELAY,
                                        .success = true};

static void records_are_rocketmqs_text(void **state)
{
    (void)state;
    char text[512];
    size_t len = trace_encode(&pub, text, sizeof text);
    static const char expected[] = "Pub\x01"
                                   "1700000000000\x01"
                                   "DefaultRegion\x01"
                                   "P\x01"
                                   "T\x01"
                                   "ID1\x01"
                                   "TagA\x01"
                                   "k1 k2\x01"
                                   "127.0.0.1:10911\x01"
                                   "12\x01"
                                   "3\x01"
                                   "3\x01"
                                   "OFF\x01"
                                   "true\x02";
    assert_int_equal(len, sizeof expected - 1);
    assert_memory_equal(text, expected, len);
    for (size_t cap = 0; cap < len; cap++)
        assert_int_equal(trace_encode(&pub, text, cap), 0);
}

static void every_kind_comes_back_as_it_went(void **state)
{
    (void)state;
    static const struct trace_record records[] = {
        {.kind = TRACE_SUB_BEFORE,
         .time_ms = 5,
         .region = "R",
         .group = "C",
         .request_id = "rq",
         .message_id = "ID",
         .times = 2,
         .keys = "k"},
        {.kind = TRACE_SUB_AFTER,
         .request_id = "rq",
         .message_id = "ID",
         .cost_ms = 7,
         .success = false,
         .keys = "",
         .context = TRACE_FAILED,
         .time_ms = 9,
         .group = "C"},
        {.kind = TRACE_END_TRANSACTION,
         .time_ms = 1,
         .region = "R",
         .group = "P",
         .topic = "T",
         .message_id = "ID",
         .tags = "t",
         .keys = "k",
         .store_host = "h:1",
         .message_type = TRACE_COMMIT,
         .transaction_id = "tx",
         .transaction_state = "COMMIT_MESSAGE",
         .from_check = true},
    };
    char text[2048];
    size_t len = 0;
    for (int i = 0; i < 3; i++)
        len += trace_encode(&records[i], text + len, sizeof text - len);
    static struct trace_decoded out;
    size_t cursor = 0, skipped = 0;
    assert_true(trace_decode(text, len, &cursor, &out, &skipped));
    assert_int_equal(out.record.kind, TRACE_SUB_BEFORE);
    assert_string_equal(out.record.request_id, "rq");
    assert_int_equal(out.record.times, 2);
    assert_true(trace_decode(text, len, &cursor, &out, &skipped));
    assert_int_equal(out.record.kind, TRACE_SUB_AFTER);
    assert_false(out.record.success);
    assert_int_equal(out.record.context, TRACE_FAILED);
    assert_string_equal(out.record.group, "C");
    assert_true(trace_decode(text, len, &cursor, &out, &skipped));
    assert_int_equal(out.record.kind, TRACE_END_TRANSACTION);
    assert_string_equal(out.record.transaction_state, "COMMIT_MESSAGE");
    assert_true(out.record.from_check);
    assert_false(trace_decode(text, len, &cursor, &out, &skipped));
    assert_int_equal(skipped, 0);
}

static void records_of_others_are_read_and_damage_is_skipped(void **state)
{
    (void)state;
    /* Java's null, an old Pub without the offset id, an old SubAfter, nonsense between. */
    static const char text[] = "Pub\x01"
                               "1\x01R\x01g\x01T\x01"
                               "A\x01null\x01null\x01h:1\x01"
                               "5\x01"
                               "6\x01"
                               "0\x02"
                               "Nobody\x01knows\x02"
                               "Pub\x01notatime\x01R\x02"
                               "SubAfter\x01rq\x01"
                               "A\x01"
                               "3\x01true\x01k\x02";
    static struct trace_decoded out;
    size_t cursor = 0, skipped = 0;
    assert_true(trace_decode(text, sizeof text - 1, &cursor, &out, &skipped));
    assert_string_equal(out.record.message_id, "A");
    assert_string_equal(out.record.tags, "");
    assert_true(out.record.success);
    assert_true(trace_decode(text, sizeof text - 1, &cursor, &out, &skipped));
    assert_int_equal(out.record.kind, TRACE_SUB_AFTER);
    assert_int_equal(out.record.cost_ms, 3);
    assert_false(trace_decode(text, sizeof text - 1, &cursor, &out, &skipped));
    assert_int_equal(skipped, 2);
}

static void separators_in_texts_become_spaces_and_long_ones_are_cut(void **state)
{
    (void)state;
    static char keys[5000];
    memset(keys, 'k', sizeof keys - 1);
    struct trace_record record = pub;
    record.tags = "a\x01"
                  "b\x02"
                  "c";
    record.keys = keys;
    char text[4096];
    size_t len = trace_encode(&record, text, sizeof text);
    static struct trace_decoded out;
    size_t cursor = 0, skipped = 0;
    assert_true(len > 0 && trace_decode(text, len, &cursor, &out, &skipped));
    assert_string_equal(out.record.tags, "a b c");
    assert_int_equal(strlen(out.record.keys), TRACE_KEYS_MAX);
    assert_string_equal(out.record.offset_id, "OFF");
}

/* ---- dispatcher ---- */

static struct tern_producer *traced(struct client_world *world, const char *topic)
{
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_trace(options, true, "SCHEDULE_TOPIC_XXXX"),
                     TERN_INVALID);
    assert_int_equal(tern_producer_options_trace(options, true, topic), TERN_OK);
    return client_world_producer(world, options);
}

static const struct fake_send *find_send(const struct client_world *world, const char *topic)
{
    for (size_t i = 0; i < world->brokers[0].send_count; i++)
        if (strcmp(world->brokers[0].sends[i].topic, topic) == 0)
            return &world->brokers[0].sends[i];
    return NULL;
}

static void sends_are_traced_behind_their_back(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_queues part = client_world_part(world, 0, 1);
    client_world_put(world, "RMQ_SYS_TRACE_TOPIC", &part);
    struct tern_producer *producer = traced(world, NULL);
    struct tern_send_result result;
    assert_int_equal(send_one(producer, "T", "x", &result, NULL), TERN_OK);
    assert_null(find_send(world, "RMQ_SYS_TRACE_TOPIC"));
    client_world_run_ms(world, 200);
    const struct fake_send *trace = find_send(world, "RMQ_SYS_TRACE_TOPIC");
    assert_non_null(trace);
    assert_memory_equal(trace->body, "Pub\x01", 4);
    char keys[100];
    snprintf(keys, sizeof keys, "KEYS\x01%s", result.message_id);
    assert_non_null(strstr(trace->props, keys));
    /* what is left goes at the end */
    size_t before = world->brokers[0].send_count;
    assert_int_equal(send_one(producer, "T", "y", &result, NULL), TERN_OK);
    tern_producer_shutdown(producer);
    assert_int_equal(world->brokers[0].send_count, before + 2);
    struct tern_producer_stats stats;
    tern_producer_stats(producer, &stats);
    assert_int_equal(stats.sent, 2);
    assert_int_equal(stats.trace_dropped, 0);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void traces_that_find_no_room_or_topic_are_dropped_and_counted(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = traced(world, "NoSuchTrace");
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    client_world_run_ms(world, 5000);
    struct tern_producer_stats stats;
    tern_producer_stats(producer, &stats);
    assert_int_equal(stats.trace_dropped, 1);
    assert_int_equal(stats.failed, 0);
    /* More than fits, in one go: 64 batches of 128 records. */
    struct tern_message *many[4096];
    for (int i = 0; i < 4096; i++)
        many[i] = message("T", "");
    for (int i = 0; i < 3; i++)
        assert_int_equal(tern_producer_send_batch(producer, many, 4096, NULL, NULL, NULL), TERN_OK);
    tern_producer_stats(producer, &stats);
    assert_int_equal(stats.sent, 1 + 3 * 4096);
    assert_true(stats.trace_dropped > 4000);
    tern_producer_destroy(producer);
    for (int i = 0; i < 4096; i++)
        tern_message_unref(many[i]);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_rocketmqs_text),
        cmocka_unit_test(every_kind_comes_back_as_it_went),
        cmocka_unit_test(records_of_others_are_read_and_damage_is_skipped),
        cmocka_unit_test(separators_in_texts_become_spaces_and_long_ones_are_cut),
        cmocka_unit_test(sends_are_traced_behind_their_back),
        cmocka_unit_test(traces_that_find_no_room_or_topic_are_dropped_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
