/*
 * Failing messages over hours of virtual time: they come again when they should, as often as they
 * may, through restarts and deaths of brokers, and end as dead letters (R-6, RO-01, RO-03, RO-05,
 * FI-03).
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/props.h"
#include "client/sim_hooks.h"
#include "tests/cluster/retry_requests.h"

enum { TRIES_MAX = 64, SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };
#define DLQ_TOPIC "%DLQ%" WORLD_GROUP

/* Every time that the one failing message came. */
struct tries {
    uint32_t count, awaited;
    struct {
        int64_t ms;
        int reconsume;
    } items[TRIES_MAX];
    uint32_t others; /* other messages, consumed */
    bool fails;
    int level;       /* what the listener asks for */
    char topic[128]; /* as last seen */
    char broker[128];
};

static struct world world;
static struct tries tries;

static int64_t now_ms(void)
{
    return clock_mono_ns(world.cluster.sim.env.clock) / 1000000;
}

static enum tern_consume_result listen(void *arg, const struct tern_message *const *messages,
                                       size_t count, struct tern_consume_context *context)
{
    size_t size;
    const char *body = tern_message_body(messages[0], &size);
    (void)arg;
    assert_int_equal(count, 1);
    if (size != 4 || memcmp(body, "fail", 4) != 0) {
        tries.others++;
        return TERN_CONSUME_SUCCESS;
    }
    assert_true(tries.count < TRIES_MAX);
    tries.items[tries.count].ms = now_ms();
    tries.items[tries.count++].reconsume = tern_message_reconsume_times(messages[0]);
    snprintf(tries.topic, sizeof tries.topic, "%s", tern_message_topic(messages[0]));
    snprintf(tries.broker, sizeof tries.broker, "%s", tern_message_broker_name(messages[0]));
    context->delay_level_when_next_consume = tries.level;
    return tries.fails ? TERN_RECONSUME_LATER : TERN_CONSUME_SUCCESS;
}

static struct tern_push_consumer *consume(const char *expression, int max_times)
{
    static unsigned members;
    char instance[32];
    struct tern_error err = {.text = ""};
    struct tern_push_consumer *consumer;
    struct tern_consumer_options *o = tern_consumer_options_create();
    assert_non_null(o);
    snprintf(instance, sizeof instance, "failing%u", members++);
    tern_consumer_options_world(o, &world.cluster.client_env, world.cluster.client_link);
    assert_int_equal(tern_consumer_options_namesrv(o, CLUSTER_NAMESRV_ADDR), TERN_OK);
    assert_int_equal(tern_consumer_options_group(o, WORLD_GROUP), TERN_OK);
    assert_int_equal(tern_consumer_options_instance(o, instance), TERN_OK);
    assert_int_equal(tern_consumer_options_from(o, TERN_FROM_FIRST, 0), TERN_OK);
    assert_int_equal(tern_consumer_options_threads(o, 1), TERN_OK);
    assert_int_equal(tern_consumer_options_max_reconsume_times(o, max_times), TERN_OK);
    assert_int_equal(tern_push_consumer_create(o, &consumer, &err), TERN_OK);
    tern_consumer_options_destroy(o);
    assert_int_equal(tern_push_consumer_subscribe(consumer, WORLD_TOPIC, expression, &err),
                     TERN_OK);
    assert_int_equal(tern_push_consumer_context_listener(consumer, listen, NULL), TERN_OK);
    assert_int_equal(tern_push_consumer_start(consumer, &err), TERN_OK);
    return consumer;
}

static void begin(int32_t role)
{
    memset(&tries, 0, sizeof tries);
    tries.fails = true;
    world_prepare(&world, 21);
    world.master->config.role = role;
    world_start(&world);
}

static void send(const char *body, const char *props)
{
    struct retry_sent sent = retry_send(
        &world, &(struct retry_send){.topic = WORLD_TOPIC, .props = props, .body = body});
    if (sent.code != TERN_OK)
        fail_msg("%s", sent.remark);
}

static bool tried(void *arg)
{
    (void)arg;
    return tries.count >= tries.awaited;
}

static void await_tries(uint32_t count, int64_t patience_ms)
{
    tries.awaited = count;
    if (!world_await(&world, tried, patience_ms))
        fail_msg("%" PRIu32 " tries, not %" PRIu32, tries.count, count);
}

static int64_t dead_letters(void)
{
    return retry_queue_end(world.master, DLQ_TOPIC, 0);
}

static void assert_gap(uint32_t n, int64_t delay_ms)
{
    int64_t gap = tries.items[n].ms - tries.items[n - 1].ms;
    if (gap < delay_ms || gap > delay_ms + 1500)
        fail_msg("try %" PRIu32 " came after %" PRId64 " ms, not %" PRId64, n, gap, delay_ms);
}

/* ---- tests ---- */

/* 10 s, 30 s, 1 min … 2 h; sixteen times; then the dead letter, at once. */
static void sixteen_tries_grow_apart_and_end_as_a_dead_letter(void **state)
{
    static const int64_t delays[] = {10 * SECOND, 30 * SECOND, MINUTE,     2 * MINUTE,
                                     3 * MINUTE,  4 * MINUTE,  5 * MINUTE, 6 * MINUTE,
                                     7 * MINUTE,  8 * MINUTE,  9 * MINUTE, 10 * MINUTE,
                                     20 * MINUTE, 30 * MINUTE, HOUR,       2 * HOUR};
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    struct tern_push_consumer *consumer = consume("*", -1);
    send("fail", "KEYS\x01k");
    for (int i = 0; i < 20; i++)
        send("good", "");
    await_tries(17, 8 * HOUR);
    assert_int_equal(tries.others, 20);
    for (uint32_t i = 0; i < 17; i++) {
        assert_int_equal(tries.items[i].reconsume, i);
        if (i > 0)
            assert_gap(i, delays[i - 1]);
    }
    assert_string_equal(tries.topic, WORLD_TOPIC);
    world_run_ms(&world, SECOND); /* RO-03 */
    assert_int_equal(dead_letters(), 1);
    world_run_ms(&world, 6 * HOUR);
    assert_int_equal(tries.count, 17);
    assert_int_equal(dead_letters(), 1);
    struct retry_record dead;
    assert_true(retry_record_at(world.master, DLQ_TOPIC, 0, 0, &dead));
    assert_int_equal(dead.record.reconsume_times, 17);
    assert_string_equal(retry_property(&dead, PROP_RETRY_TOPIC), WORLD_TOPIC);
    tern_push_consumer_destroy(consumer);
    world_end(&world);
}

/* FI-03: what comes again does not pass the filter a second time. */
static void a_tag_does_not_keep_a_message_from_coming_again(void **state)
{
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    struct tern_push_consumer *consumer = consume("red", -1);
    send("fail", "TAGS\x01red");
    await_tries(1, 5 * SECOND);
    tries.fails = false;
    await_tries(2, 15 * SECOND);
    assert_gap(1, 10 * SECOND);
    world_run_ms(&world, MINUTE);
    assert_int_equal(tries.count, 2);
    tern_push_consumer_destroy(consumer);
    world_end(&world);
}

/* RO-01: the count lies in the record; consumer and broker may come and go. */
static void the_count_survives_restarts_of_consumer_and_broker(void **state)
{
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    struct tern_push_consumer *consumer = consume("*", 3);
    send("fail", "");
    send("next", "");
    for (uint32_t i = 1; i <= 4; i++) {
        await_tries(i, 5 * MINUTE);
        world_run_ms(&world, SECOND);
        tern_push_consumer_destroy(consumer);
        node_stop(world.master);
        node_start(world.master);
        assert_true(world_await(&world, world_is_open, MINUTE));
        consumer = consume("*", 3);
        assert_int_equal(tries.items[i - 1].reconsume, i - 1);
    }
    world_run_ms(&world, 3 * HOUR);
    assert_int_equal(tries.count, 4);
    assert_int_equal(tries.others, 1);
    assert_int_equal(dead_letters(), 1);
    tern_push_consumer_destroy(consumer);
    world_end(&world);
}

static void a_power_loss_between_tries_loses_none(void **state)
{
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    struct tern_push_consumer *consumer = consume("*", 4);
    send("fail", "");
    for (uint32_t i = 1; i <= 5; i++) {
        await_tries(i, 10 * MINUTE);
        world_run_ms(&world, 500);
        node_power_off(world.master, SIM_TORN_NONE);
        world_run_ms(&world, 2000);
        node_start(world.master);
        assert_true(world_await(&world, world_is_open, 2 * MINUTE));
    }
    world_run_ms(&world, HOUR);
    assert_int_equal(tries.count, 5);
    assert_int_equal(dead_letters(), 1);
    tern_push_consumer_destroy(consumer);
    world_end(&world);
}

/* The master is dead when the listener fails: kept, tried here, and sent back when it returns; the
 * slave, which served the message, is asked for nothing. */
static void without_a_master_a_failing_message_waits_here(void **state)
{
    (void)state;
    begin(ROLE_SYNC_MASTER);
    send("fail", "");
    world_run_ms(&world, SECOND);
    struct tern_push_consumer *consumer = consume("*", 10);
    await_tries(1, 10 * SECOND);
    world_run_ms(&world, 200);
    node_kill(world.master);
    world_run_ms(&world, 20 * SECOND); /* the first retry is due while nobody delivers */
    uint32_t before = tries.count;
    assert_int_equal(before, 1);
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, MINUTE));
    await_tries(2, 90 * SECOND);
    assert_int_equal(tries.items[1].reconsume, 1);
    tries.fails = false;
    await_tries(3, 2 * MINUTE);
    assert_int_equal(tries.items[2].reconsume, 2);
    world_run_ms(&world, HOUR);
    assert_int_equal(tries.count, 3);
    tern_push_consumer_destroy(consumer);
    world_end(&world);
}

/* Read at the slave, failed while there is no master. */
static void what_a_slave_served_is_sent_back_to_the_master(void **state)
{
    (void)state;
    begin(ROLE_SYNC_MASTER);
    struct tern_push_consumer *consumer = consume("*", 8);
    world_run_ms(&world, 2 * SECOND);
    assert_true(tries.count == 0);
    tern_push_consumer_suspend(consumer);
    send("fail", "");
    world_run_ms(&world, SECOND);
    node_kill(world.master);
    tern_push_consumer_resume(consumer);
    await_tries(3, MINUTE); /* here, every five seconds */
    assert_gap(1, 5 * SECOND);
    assert_gap(2, 5 * SECOND);
    node_start(world.master);
    assert_true(world_await(&world, world_is_open, MINUTE));
    world_run_ms(&world, 6 * HOUR);
    /* The recovered master may have it begin anew, once; each count is of one chain. */
    assert_in_range(tries.count, 9, 9 + 5);
    uint32_t last = tries.count - 1;
    assert_int_equal(tries.items[last].reconsume, 8);
    for (uint32_t i = last; i > last - 5; i--)
        assert_int_equal(tries.items[i].reconsume, tries.items[i - 1].reconsume + 1);
    assert_int_equal(dead_letters(), 1);
    tern_push_consumer_destroy(consumer);
    world_end(&world);
}

/* RO-05: retries of a message of broker-b come back by broker-b. */
static void a_retry_comes_back_from_the_broker_of_its_message(void **state)
{
    (void)state;
    memset(&tries, 0, sizeof tries);
    tries.fails = true;
    world_prepare(&world, 22);
    world_start(&world);
    struct sim_node *other = cluster_add_node(&world.cluster, "broker-b", 0);
    node_start(other);
    world_run_ms(&world, 2 * SECOND);
    struct sim_node *first = world.master;
    world.master = other; /* for the request */
    Tern__Wire__TopicConfig config = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__UpdateTopicRequest body = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    config.name = frame_bytes("Only", 4);
    config.read_queues = config.write_queues = 2;
    config.perm = 6;
    body.topic = &config;
    request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_TOPIC;
    request.update_topic = &body;
    assert_int_equal(world_ask(&world, other, "tool", &request, NULL, 0, 5000, NULL), TERN_OK);
    world.master = first;
    struct tern_push_consumer *consumer = consume("*", -1);
    struct tern_error err;
    assert_int_equal(tern_push_consumer_subscribe(consumer, "Only", "*", &err), TERN_OK);
    world_run_ms(&world, 5 * SECOND);
    world.master = other;
    struct retry_sent sent =
        retry_send(&world, &(struct retry_send){.topic = "Only", .props = "", .body = "fail"});
    world.master = first;
    assert_int_equal(sent.code, TERN_OK);
    await_tries(1, 35 * SECOND);
    tries.fails = false;
    await_tries(2, 15 * SECOND);
    assert_string_equal(tries.broker, "broker-b");
    assert_string_equal(tries.topic, "Only");
    tern_push_consumer_destroy(consumer);
    node_stop(other);
    world_end(&world);
}

static void a_listener_chooses_the_delay(void **state)
{
    (void)state;
    begin(ROLE_ASYNC_MASTER);
    tries.level = 1;
    struct tern_push_consumer *consumer = consume("*", -1);
    send("fail", "");
    await_tries(5, 10 * SECOND);
    for (uint32_t i = 1; i < 5; i++)
        assert_gap(i, SECOND);
    tries.level = -1;
    await_tries(6, 5 * SECOND);
    world_run_ms(&world, SECOND);
    assert_int_equal(dead_letters(), 1);
    world_run_ms(&world, MINUTE);
    assert_int_equal(tries.count, 6);
    tern_push_consumer_destroy(consumer);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_tries_grow_apart_and_end_as_a_dead_letter),
        cmocka_unit_test(a_tag_does_not_keep_a_message_from_coming_again),
        cmocka_unit_test(the_count_survives_restarts_of_consumer_and_broker),
        cmocka_unit_test(a_power_loss_between_tries_loses_none),
        cmocka_unit_test(without_a_master_a_failing_message_waits_here),
        cmocka_unit_test(what_a_slave_served_is_sent_back_to_the_master),
        cmocka_unit_test(a_retry_comes_back_from_the_broker_of_its_message),
        cmocka_unit_test(a_listener_chooses_the_delay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
