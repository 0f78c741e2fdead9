/* Request and reply at the requester's side: matching, time-outs, late replies, shutdown. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/record.h"
#include "client/message_internal.h"
#include "sending.h"

struct answered {
    int calls;
    enum tern_code code;
    char body[32], text[256];
};

static void on_reply(void *arg, enum tern_code code, struct tern_message *reply,
                     const struct tern_error *err)
{
    struct answered *answered = arg;
    answered->calls++;
    answered->code = code;
    if (err)
        snprintf(answered->text, sizeof answered->text, "%.255s", err->text);
    if (!reply)
        return;
    size_t size;
    const char *body = tern_message_body(reply, &size);
    snprintf(answered->body, sizeof answered->body, "%.*s", (int)size, body);
    tern_message_unref(reply);
}

static struct client_world *world;
static struct tern_producer *producer;

static int set_up(void **state)
{
    (void)state;
    world = client_world_create(1, 2);
    for (size_t i = 0; i < 2; i++) {
        struct fake_queues part = client_world_part(world, i, 1);
        client_world_put(world, "DefaultCluster_REPLY_TOPIC", &part);
    }
    producer = client_world_producer(world, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tern_producer_destroy(producer);
    client_world_destroy(world);
    return 0;
}

/* Asks, and copies the correlation id that went out. */
static void ask(int64_t timeout_ms, struct answered *answered, char id[33])
{
    struct tern_message *m = message("T", "question");
    struct tern_error err = {.text = ""};
    if (tern_producer_request_async(producer, m, timeout_ms, on_reply, answered, &err) != TERN_OK)
        fail_msg("%s", err.text);
    snprintf(id, 33, "%s", tern_message_property(m, "CORRELATION_ID"));
    assert_non_null(tern_message_property(m, "REPLY_TO_CLIENT"));
    assert_non_null(tern_message_property(m, "TTL"));
    tern_message_unref(m);
    client_world_run_ms(world, 50);
}

/* Properties that leave no room for those of a request, a reply, a transaction */
static void full_properties_are_refused_with_the_limit(void **state)
{
    static char value[32768];
    struct tern_message *m = message("T", "x");
    struct answered answered = {0};
    struct tern_error err = {.text = ""};
    (void)state;
    memset(value, 'v', 32767 - 2);
    assert_int_equal(tern_message_set_property(m, "k", value), TERN_OK);
    assert_int_equal(tern_producer_request_async(producer, m, 1000, on_reply, &answered, &err),
                     TERN_TOO_LARGE);
    assert_non_null(strstr(err.text, "the properties of a request do not fit"));
    assert_non_null(strstr(err.text, "32767 bytes"));
    assert_non_null(strstr(err.text, "at most 32767"));
    assert_int_equal(answered.calls, 0);
    assert_int_equal(message_mark_half(m, "group", &err), TERN_TOO_LARGE);
    assert_non_null(strstr(err.text, "the properties of a transaction do not fit"));
    assert_non_null(strstr(err.text, "at most 32767"));
    tern_message_unref(m);
}

static void reply_of_any_broker_of_the_cluster_is_fetched_there(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) {
        struct answered answered = {0};
        char id[33];
        ask(1000, &answered, id);
        fake_broker_reply(&world->brokers[b], 1, id, id);
        client_world_run_ms(world, 50);
        assert_int_equal(answered.calls, 1);
        assert_int_equal(answered.code, TERN_OK);
        assert_string_equal(answered.body, "answer");
        assert_int_equal(world->brokers[b].last_viewed, 777);
        client_world_run_ms(world, 2000);
        assert_int_equal(answered.calls, 1);
    }
}

static void silence_is_a_time_out_and_a_late_reply_is_counted(void **state)
{
    (void)state;
    struct answered answered = {0};
    char id[33];
    ask(300, &answered, id);
    client_world_run_ms(world, 240);
    assert_int_equal(answered.calls, 0);
    client_world_run_ms(world, 120);
    assert_int_equal(answered.calls, 1);
    assert_int_equal(answered.code, TERN_TIMEOUT);
    assert_non_null(strstr(answered.text, "REQUEST_TIMEOUT"));
    fake_broker_reply(&world->brokers[0], 1, id, id);
    client_world_run_ms(world, 50);
    struct tern_producer_stats stats;
    tern_producer_stats(producer, &stats);
    assert_int_equal(stats.replies_late, 1);
    assert_int_equal(answered.calls, 1);
}

static void requests_end_each_at_its_own_time(void **state)
{
    (void)state;
    struct answered slow = {0}, quick = {0};
    char id[33];
    ask(5000, &slow, id);
    ask(200, &quick, id);
    client_world_run_ms(world, 400);
    assert_int_equal(quick.calls, 1);
    assert_int_equal(slow.calls, 0);
    client_world_run_ms(world, 5000);
    assert_int_equal(slow.calls, 1);
}

static void message_that_is_another_reply_is_an_error(void **state)
{
    (void)state;
    struct answered answered = {0};
    char id[33];
    ask(1000, &answered, id);
    fake_broker_reply(&world->brokers[0], 1, id, "0123456789");
    client_world_run_ms(world, 50);
    assert_int_equal(answered.calls, 1);
    assert_int_equal(answered.code, TERN_PROTOCOL);
}

static void failed_send_ends_the_request_with_its_code(void **state)
{
    (void)state;
    struct answered answered = {0};
    struct tern_message *m = message("Nobody", "question");
    assert_int_equal(tern_producer_request_async(producer, m, 1000, on_reply, &answered, NULL),
                     TERN_OK);
    tern_message_unref(m);
    client_world_run_ms(world, 100);
    assert_int_equal(answered.calls, 1);
    assert_int_equal(answered.code, TERN_TOPIC_NOT_EXIST);
    m = message("T", "x");
    struct tern_error err;
    assert_int_equal(tern_producer_request_async(producer, m, 0, on_reply, &answered, &err),
                     TERN_INVALID);
    assert_non_null(strstr(err.text, "600000"));
    tern_message_unref(m);
}

static void shutdown_cancels_what_waits(void **state)
{
    (void)state;
    struct answered answered = {0};
    char id[33];
    ask(60000, &answered, id);
    tern_producer_shutdown(producer);
    assert_int_equal(answered.calls, 1);
    assert_int_equal(answered.code, TERN_CANCELED);
    struct tern_message *m = message("T", "x");
    assert_int_equal(tern_producer_request_async(producer, m, 100, on_reply, &answered, NULL),
                     TERN_STATE);
    tern_message_unref(m);
}

static void reply_message_goes_back_the_way_the_request_names(void **state)
{
    (void)state;
    static const char props[] = "CORRELATION_ID\x01"
                                "c1\x02REPLY_TO_CLIENT\x01"
                                "me@1\x02TTL\x01"
                                "5\x02"
                                "CLUSTER\x01"
                                "DefaultCluster";
    struct record record = {.topic = (const uint8_t *)"T",
                            .topic_len = 1,
                            .props = (const uint8_t *)props,
                            .props_len = sizeof props - 1};
    uint8_t bytes[512];
    struct tern_message *request;
    struct tern_message *reply;
    struct tern_error err;
    size_t count;
    size_t size = record_encode(bytes, sizeof bytes, &record);
    assert_int_equal(message_decode_all(NULL, bytes, size, "b", &request, 1, &count, NULL),
                     TERN_OK);
    assert_int_equal(tern_reply_message_create(request, "yes", 3, &reply, &err), TERN_OK);
    assert_string_equal(tern_message_topic(reply), "DefaultCluster_REPLY_TOPIC");
    assert_string_equal(tern_message_property(reply, "MSG_TYPE"), "reply");
    assert_string_equal(tern_message_property(reply, "CORRELATION_ID"), "c1");
    assert_string_equal(tern_message_property(reply, "REPLY_TO_CLIENT"), "me@1");
    assert_string_equal(tern_message_property(reply, "TTL"), "5");
    tern_message_unref(reply);
    tern_message_unref(request);
    struct tern_message *ordinary = message("T", "x");
    assert_int_equal(tern_reply_message_create(ordinary, "no", 2, &reply, &err), TERN_INVALID);
    assert_non_null(strstr(err.text, "CORRELATION_ID"));
    tern_message_unref(ordinary);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(reply_of_any_broker_of_the_cluster_is_fetched_there),
        CASE(silence_is_a_time_out_and_a_late_reply_is_counted),
        CASE(requests_end_each_at_its_own_time),
        CASE(message_that_is_another_reply_is_an_error),
        CASE(failed_send_ends_the_request_with_its_code),
        CASE(full_properties_are_refused_with_the_limit),
        CASE(shutdown_cancels_what_waits),
        CASE(reply_message_goes_back_the_way_the_request_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
