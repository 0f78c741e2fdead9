/* What producers do on top of sending: compression, parts, namespaces, retry rules, statistics. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/message_internal.h"
#include "sending.h"

/* ---- compression ---- */

static struct tern_message *large_message(size_t size)
{
    char *body = malloc(size);
    struct tern_message *m;
    assert_non_null(body);
    memset(body, 'x', size);
    assert_int_equal(tern_message_create("T", body, size, &m, NULL), TERN_OK);
    free(body);
    return m;
}

/* P-2 */
static void bodies_above_the_threshold_are_compressed_each_on_its_own(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *small = large_message(4095);
    struct tern_message *large = large_message(4096);
    struct tern_message *delayed = large_message(5000);
    assert_int_equal(tern_message_set_delay_level(delayed, 1), TERN_OK);
    assert_int_equal(tern_producer_send(producer, small, NULL, NULL), TERN_OK);
    assert_int_equal(tern_producer_send(producer, large, NULL, NULL), TERN_OK);
    assert_int_equal(tern_producer_send(producer, delayed, NULL, NULL), TERN_OK);
    struct tern_message *batch[] = {large, small};
    assert_int_equal(tern_producer_send_batch(producer, batch, 2, NULL, NULL, NULL), TERN_OK);
    const struct fake_send *seen = world->brokers[0].sends;
    assert_int_equal(seen[0].sys_flag & 0x701, 0);
    assert_int_equal(seen[0].body_len, 4095);
    assert_int_equal(seen[1].sys_flag & 0x701, 0x301);
    assert_true(seen[1].body_len < 100);
    assert_true(seen[2].plain);
    assert_int_equal(seen[2].sys_flag & 0x701, 0x301);
    assert_int_equal(seen[3].sys_flag & 0x701, 0x301);
    /* the application's message is as it was */
    size_t size;
    assert_non_null(tern_message_body(large, &size));
    assert_int_equal(size, 4096);
    struct tern_producer_stats stats;
    tern_producer_stats(producer, &stats);
    assert_int_equal(stats.sent, 5);
    assert_int_equal(stats.frames, 4);
    assert_int_equal(stats.compressed, 3);
    assert_int_equal(stats.compressed_from, 4096 + 5000 + 4096);
    assert_true(stats.compressed_to < 300);
    tern_message_unref(small);
    tern_message_unref(large);
    tern_message_unref(delayed);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void type_level_and_threshold_are_options(void **state)
{
    (void)state;
    static const struct {
        enum tern_compression type;
        uint32_t flag;
    } rows[] = {{TERN_COMPRESS_NONE, 0},
                {TERN_COMPRESS_ZLIB, 0x301},
                {TERN_COMPRESS_LZ4, 0x101},
                {TERN_COMPRESS_ZSTD, 0x201}};
    for (int i = 0; i < 4; i++) {
        struct client_world *world = client_world_create(1, 1);
        struct tern_producer_options *options = client_world_options(world);
        assert_int_equal(tern_producer_options_compression(options, rows[i].type, 9), TERN_OK);
        assert_int_equal(tern_producer_options_compression(options, rows[i].type, 10),
                         TERN_INVALID);
        assert_int_equal(tern_producer_options_compress_threshold(options, 100), TERN_OK);
        assert_int_equal(tern_producer_options_compress_threshold(options, 0), TERN_INVALID);
        struct tern_producer *producer = client_world_producer(world, options);
        struct tern_message *m = large_message(100);
        assert_int_equal(tern_producer_send(producer, m, NULL, NULL), TERN_OK);
        assert_int_equal(world->brokers[0].sends[0].sys_flag & 0x701, rows[i].flag);
        tern_message_unref(m);
        tern_producer_destroy(producer);
        client_world_destroy(world);
    }
}

/* ---- parts ---- */

static void many_messages_go_in_parts_that_fit(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_max_message_bytes(options, 3000), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    struct tern_message *messages[50];
    struct tern_send_result results[50];
    size_t stored;
    struct tern_queue queue = queue_of("broker-a", 1);
    for (int i = 0; i < 50; i++) {
        char body[200];
        memset(body, 'x', sizeof body);
        snprintf(body + 188, 12, "%d", i);
        messages[i] = message("T", body);
    }
    assert_int_equal(tern_message_set_delay_level(messages[20], 2), TERN_OK);
    assert_int_equal(tern_producer_send_all(producer, messages, 50, &queue, results, &stored, NULL),
                     TERN_OK);
    assert_int_equal(stored, 50);
    const struct fake_broker *broker = &world->brokers[0];
    assert_true(broker->send_count > 5 && broker->send_count < 12);
    assert_int_equal(broker->messages, 50);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(results[i].queue_offset, i);
        assert_int_equal(results[i].status, TERN_OK);
        assert_string_equal(results[i].message_id, tern_message_id(messages[i]));
        tern_message_unref(messages[i]);
    }
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void parts_end_at_the_first_failure_and_say_where(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_queues other = client_world_part(world, 0, 1);
    client_world_put(world, "U", &other);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *messages[] = {message("T", "0"), message("T", "1"), message("U", "2"),
                                       message("T", "3")};
    struct tern_send_result results[4];
    size_t stored = 9;
    struct tern_error err;
    assert_int_equal(send_one(producer, "T", "warm up", NULL, NULL), TERN_OK);
    client_world_run_ms(world, 100);
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__SUCCESS);
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__MESSAGE_ILLEGAL);
    assert_int_equal(tern_producer_send_all(producer, messages, 4, NULL, results, &stored, &err),
                     TERN_MESSAGE_ILLEGAL);
    assert_int_equal(stored, 2);
    assert_int_equal(results[1].status, TERN_OK);
    assert_int_equal(results[2].status, TERN_MESSAGE_ILLEGAL);
    assert_int_equal(results[3].status, TERN_CANCELED);
    /* one that can never go is found before anything goes */
    size_t before = world->brokers[0].send_count;
    struct tern_message *bad[] = {messages[0], NULL};
    assert_int_equal(tern_producer_send_all(producer, bad, 2, NULL, NULL, &stored, &err),
                     TERN_INVALID);
    assert_non_null(strstr(err.text, "message 1 of 2"));
    assert_int_equal(stored, 0);
    assert_int_equal(world->brokers[0].send_count, before);
    for (int i = 0; i < 4; i++)
        tern_message_unref(messages[i]);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* ---- namespaces ---- */

static size_t choose_last(void *arg, const struct tern_message *m, const struct tern_queue *queues,
                          size_t count)
{
    (void)m;
    snprintf(arg, 128, "%s", queues[0].topic);
    return count - 1;
}

static void namespace_is_on_the_wire_and_nowhere_else(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_queues part = client_world_part(world, 0, 3);
    client_world_put(world, "NS1%T", &part);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_namespace(options, "bad%"), TERN_INVALID);
    assert_int_equal(tern_producer_options_namespace(options, "NS1"), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    struct tern_send_result result;
    assert_int_equal(send_one(producer, "T", "x", &result, NULL), TERN_OK);
    const struct fake_send *seen = world->brokers[0].sends;
    assert_string_equal(seen[0].topic, "NS1%T");
    assert_string_equal(result.queue.topic, "T");
    struct tern_message *m = message("T", "to");
    assert_int_equal(tern_producer_send_to(producer, m, &result.queue, &result, NULL), TERN_OK);
    assert_string_equal(seen[1].topic, "NS1%T");
    struct tern_queue queues[4];
    size_t count;
    assert_int_equal(tern_producer_queues(producer, "T", queues, 4, &count, NULL), TERN_OK);
    assert_int_equal(count, 3);
    assert_string_equal(queues[2].topic, "T");
    char chosen_of[128] = "";
    assert_int_equal(tern_producer_send_select(producer, m, choose_last, chosen_of, &result, NULL),
                     TERN_OK);
    tern_message_unref(m);
    assert_string_equal(chosen_of, "T");
    assert_int_equal(result.queue.queue_id, 2);
    client_world_run_ms(world, 100);
    assert_string_equal(world->brokers[0].last_group, "NS1%DEFAULT_PRODUCER");
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* A reply goes to its cluster's topic, whichever way it is sent. */
static void whole_topic_of_a_reply_gets_no_namespace(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_queues part = client_world_part(world, 0, 2);
    client_world_put(world, "DefaultCluster_REPLY_TOPIC", &part);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_namespace(options, "NS1"), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    struct tern_message *reply = message("DefaultCluster_REPLY_TOPIC", "re");
    message_topic_set_absolute(reply);
    char chosen_of[128] = "";
    assert_int_equal(tern_producer_send(producer, reply, NULL, NULL), TERN_OK);
    assert_int_equal(tern_producer_send_oneway(producer, reply, NULL), TERN_OK);
    assert_int_equal(tern_producer_send_select(producer, reply, choose_last, chosen_of, NULL, NULL),
                     TERN_OK);
    client_world_run_ms(world, 100);
    assert_int_equal(world->brokers[0].send_count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(world->brokers[0].sends[i].topic, "DefaultCluster_REPLY_TOPIC");
    assert_string_equal(chosen_of, "DefaultCluster_REPLY_TOPIC");
    tern_message_unref(reply);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* ---- retries (facts 7.2; docs/producing.md has this table) ---- */

static void retry_rules_are_those_of_the_table(void **state)
{
    (void)state;
    static const struct {
        int32_t code;
        bool retried;
    } rows[] = {
        {TERN__WIRE__CODE__SYSTEM_ERROR, true},
        {TERN__WIRE__CODE__SYSTEM_BUSY, true},
        {TERN__WIRE__CODE__SERVICE_NOT_AVAILABLE, true},
        {TERN__WIRE__CODE__TOPIC_NOT_EXIST, true},
        {TERN__WIRE__CODE__NO_PERMISSION, true},
        {TERN__WIRE__CODE__FLOW_CONTROL, true},
        {TERN__WIRE__CODE__MESSAGE_ILLEGAL, false},
        {TERN__WIRE__CODE__INVALID_REQUEST, false},
        {TERN__WIRE__CODE__REQUEST_CODE_NOT_SUPPORTED, false},
        {TERN__WIRE__CODE__VERSION_NOT_SUPPORTED, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct client_world *world = client_world_create(1, 2);
        struct tern_producer *producer = client_world_producer(world, NULL);
        assert_int_equal(send_one(producer, "T", "warm up", NULL, NULL), TERN_OK);
        client_world_run_ms(world, 100);
        uint64_t before = world->brokers[0].send_count + world->brokers[1].send_count;
        for (int b = 0; b < 2; b++)
            fake_broker_script(&world->brokers[b], rows[i].code);
        enum tern_code code = send_one(producer, "T", "x", NULL, NULL);
        uint64_t tries = world->brokers[0].send_count + world->brokers[1].send_count - before;
        if ((code == TERN_OK) != rows[i].retried || (tries == 1) == rows[i].retried)
            fail_msg("wire code %d: %s after %d tries", (int)rows[i].code, tern_code_name(code),
                     (int)tries);
        struct tern_producer_stats stats;
        tern_producer_stats(producer, &stats);
        assert_int_equal(stats.retried, rows[i].retried ? 2 : 0);
        assert_int_equal(stats.failed, rows[i].retried ? 0 : 1);
        tern_producer_destroy(producer);
        client_world_destroy(world);
    }
}

/* P-2 */
static void slow_broker_is_passed_over_with_latency_faults(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_latency_faults(options, true), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    world->brokers[0].hold = true;
    struct tern_queue slow = queue_of("broker-a", 0);
    struct outcome outcome = {.world = world};
    assert_int_equal(send_async(producer, "slow", &slow, &outcome), TERN_OK);
    client_world_run_ms(world, 700);
    world->brokers[0].hold = false;
    assert_true(fake_broker_release(&world->brokers[0]));
    client_world_run_ms(world, 10);
    assert_int_equal(outcome.code, TERN_OK);
    uint64_t at_a = world->brokers[0].messages;
    for (int i = 0; i < 10; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    assert_int_equal(world->brokers[0].messages, at_a);
    client_world_run_ms(world, 31000);
    for (int i = 0; i < 10; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    assert_true(world->brokers[0].messages > at_a);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_above_the_threshold_are_compressed_each_on_its_own),
        cmocka_unit_test(type_level_and_threshold_are_options),
        cmocka_unit_test(many_messages_go_in_parts_that_fit),
        cmocka_unit_test(parts_end_at_the_first_failure_and_say_where),
        cmocka_unit_test(namespace_is_on_the_wire_and_nowhere_else),
        cmocka_unit_test(whole_topic_of_a_reply_gets_no_namespace),
        cmocka_unit_test(retry_rules_are_those_of_the_table),
        cmocka_unit_test(slow_broker_is_passed_over_with_latency_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
