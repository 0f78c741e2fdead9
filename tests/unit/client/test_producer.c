/* Sending: which frame goes where, retries, order, limits, states. On virtual time against fakes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client_world.h"

static struct tern_message *message(const char *topic, const char *body)
{
    struct tern_message *m;
    assert_int_equal(tern_message_create(topic, body, strlen(body), &m, NULL), TERN_OK);
    return m;
}

static enum tern_code send_one(struct tern_producer *producer, const char *topic, const char *body,
                               struct tern_send_result *result, struct tern_error *err)
{
    struct tern_message *m = message(topic, body);
    enum tern_code code = tern_producer_send(producer, m, result, err);
    tern_message_unref(m);
    return code;
}

/* What an asynchronous send came to. */
struct outcome {
    int calls;
    enum tern_code code;
    struct tern_send_result result;
    char text[200];
    int64_t at_ns;
    struct client_world *world;
};

static void note(void *arg, enum tern_code code, const struct tern_send_result *result,
                 const struct tern_error *err)
{
    struct outcome *outcome = arg;
    outcome->calls++;
    outcome->code = code;
    if (outcome->world)
        outcome->at_ns = clock_mono_ns(outcome->world->sim.env.clock);
    if (result)
        outcome->result = *result;
    if (err)
        snprintf(outcome->text, sizeof outcome->text, "%.199s", err->text);
}

static enum tern_code send_async(struct tern_producer *producer, const char *body,
                                 const struct tern_queue *queue, struct outcome *outcome)
{
    struct tern_message *m = message("T", body);
    enum tern_code code = tern_producer_send_async(producer, &m, 1, queue, note, outcome, NULL);
    tern_message_unref(m);
    return code;
}

static struct tern_queue queue_of(const char *broker, int32_t id)
{
    struct tern_queue queue = {.topic = "T", .queue_id = id};
    snprintf(queue.broker_name, sizeof queue.broker_name, "%s", broker);
    return queue;
}

/* ---- frames ---- */

static void send_goes_as_one_prepared_record(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *m = message("T", "hello");
    struct tern_send_result result;
    assert_int_equal(tern_message_set_tag(m, "TagA"), TERN_OK);
    assert_int_equal(tern_producer_send(producer, m, &result, NULL), TERN_OK);
    const struct fake_send *seen = &world->brokers[0].sends[0];
    assert_false(seen->plain);
    assert_int_equal(seen->count, 1);
    assert_string_equal(seen->body, "hello");
    char props[200];
    snprintf(props, sizeof props, "TAGS\x01TagA\x02UNIQ_KEY\x01%s\x02" "CLUSTER\x01" "DefaultCluster",
             result.message_id);
    assert_string_equal(seen->props, props);
    assert_string_equal(tern_message_id(m), result.message_id);
    assert_string_equal(result.queue.broker_name, "broker-a");
    assert_string_equal(result.offset_id, "7F00000100002A9F0000000000001000");
    assert_int_equal(result.status, TERN_OK);
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void delayed_and_unacknowledged_messages_say_so(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *delayed = message("T", "later");
    struct tern_message *loose = message("T", "loose");
    assert_int_equal(tern_message_set_delay_level(delayed, 3), TERN_OK);
    tern_message_set_wait_store_ok(loose, false);
    assert_int_equal(tern_producer_send(producer, delayed, NULL, NULL), TERN_OK);
    assert_int_equal(tern_producer_send(producer, loose, NULL, NULL), TERN_OK);
    const struct fake_send *seen = world->brokers[0].sends;
    assert_true(seen[0].plain);
    assert_non_null(strstr(seen[0].props, "DELAY\x01" "3"));
    assert_false(seen[1].plain);
    assert_true(seen[1].no_wait);
    assert_null(strstr(seen[1].props, "WAIT"));
    tern_message_unref(delayed);
    tern_message_unref(loose);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void wrong_guess_of_the_address_family_is_mended(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    world->brokers[0].want_born_v6 = true;
    world->brokers[0].seen_as_v6 = true;
    struct tern_producer *producer = client_world_producer(world, NULL);
    assert_int_equal(send_one(producer, "T", "first", NULL, NULL), TERN_OK);
    client_world_run_ms(world, 100);
    assert_int_equal(send_one(producer, "T", "second", NULL, NULL), TERN_OK);
    const struct fake_send *seen = world->brokers[0].sends;
    size_t last = world->brokers[0].send_count - 1;
    assert_int_equal(world->brokers[0].messages, 2);
    assert_false(seen[last].plain); /* told by then */
    assert_true(seen[last].sys_flag & SYS_BORN_V6);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void batch_goes_as_one_frame_to_one_queue(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *batch[100];
    struct tern_send_result result;
    for (int i = 0; i < 100; i++)
        batch[i] = message("T", i ? "x" : "first");
    assert_int_equal(tern_producer_send_batch(producer, batch, 100, NULL, &result, NULL), TERN_OK);
    assert_int_equal(world->brokers[0].send_count, 1);
    assert_int_equal(world->brokers[0].sends[0].count, 100);
    assert_string_equal(result.message_id, tern_message_id(batch[0]));
    assert_string_not_equal(tern_message_id(batch[1]), tern_message_id(batch[0]));
    for (int i = 0; i < 100; i++)
        tern_message_unref(batch[i]);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void batches_that_cannot_be_one_are_refused(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_max_message_bytes(options, 1000), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    struct tern_message *two_topics[] = {message("T", "a"), message("U", "b")};
    struct tern_message *delayed[] = {message("T", "a"), message("T", "b")};
    struct tern_message *mixed[] = {message("T", "a"), message("T", "b")};
    char body[500];
    memset(body, 'x', sizeof body);
    body[sizeof body - 1] = 0;
    struct tern_message *large[] = {message("T", body), message("T", body)};
    struct tern_error err;
    (void)tern_message_set_delay_level(delayed[1], 1);
    tern_message_set_wait_store_ok(mixed[1], false);
    assert_int_equal(tern_producer_send_batch(producer, two_topics, 2, NULL, NULL, &err),
                     TERN_INVALID);
    assert_int_equal(tern_producer_send_batch(producer, delayed, 2, NULL, NULL, &err),
                     TERN_INVALID);
    assert_int_equal(tern_producer_send_batch(producer, mixed, 2, NULL, NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send_batch(producer, large, 2, NULL, NULL, &err),
                     TERN_TOO_LARGE);
    assert_int_equal(tern_producer_send_batch(producer, large, 0, NULL, NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send(producer, large[0], NULL, &err), TERN_OK);
    assert_int_equal(world->brokers[0].send_count, 1);
    struct tern_message **all[] = {two_topics, delayed, mixed, large};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++)
            tern_message_unref(all[i][j]);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* ---- queues and brokers ---- */

static void round_robin_visits_every_queue_alike(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 3);
    struct tern_producer *producer = client_world_producer(world, NULL);
    for (int i = 0; i < 60; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    for (int broker = 0; broker < 3; broker++)
        for (int queue = 0; queue < 2; queue++)
            assert_int_equal(world->brokers[broker].next_offset[queue], 10);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void failed_send_is_retried_at_another_broker_with_the_same_id(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_send_result result;
    for (int i = 0; i < 2; i++)
        fake_broker_script(&world->brokers[i], TERN__WIRE__CODE__SYSTEM_ERROR);
    assert_int_equal(send_one(producer, "T", "x", &result, NULL), TERN_OK);
    /* first try here, second there, third here */
    assert_int_equal(world->brokers[0].send_count + world->brokers[1].send_count, 3);
    assert_int_equal(world->brokers[0].messages + world->brokers[1].messages, 1);
    const struct fake_broker *twice = &world->brokers[world->brokers[1].send_count == 2];
    assert_int_equal(twice->send_count, 2);
    assert_string_equal(twice->sends[0].props, twice->sends[1].props);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void refusals_that_repetition_cannot_help_are_not_retried(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer *producer = client_world_producer(world, NULL);
    client_world_run_ms(world, 100);
    (void)send_one(producer, "T", "warm up", NULL, NULL);
    client_world_run_ms(world, 100);
    uint64_t before = world->brokers[0].send_count + world->brokers[1].send_count;
    for (int i = 0; i < 2; i++)
        fake_broker_script(&world->brokers[i], TERN__WIRE__CODE__MESSAGE_ILLEGAL);
    struct tern_error err;
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_MESSAGE_ILLEGAL);
    assert_non_null(strstr(err.text, "scripted"));
    assert_int_equal(world->brokers[0].send_count + world->brokers[1].send_count, before + 1);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void dead_broker_is_avoided_until_it_is_up_again(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer *producer = client_world_producer(world, NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    client_world_crash_broker(world, 0);
    client_world_run_ms(world, 10);
    /* One send may pay for finding out; the next ones do not. */
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    int64_t before_ns = world->sim.clock.now_ns;
    for (int i = 0; i < 20; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    assert_true(world->sim.clock.now_ns - before_ns < ms_to_ns(50));
    client_world_restart_broker(world, 0);
    uint64_t there = world->brokers[0].messages;
    client_world_run_ms(world, 5000); /* reconnected, well within the 30 s */
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    assert_true(world->brokers[0].messages >= there + 2);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void all_tries_share_one_timeout(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_send_timeout_ms(options, 500), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    world->brokers[0].hold = true;
    world->brokers[1].hold = true;
    int64_t before_ns = world->sim.clock.now_ns;
    struct tern_error err;
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_TIMEOUT);
    int64_t took_ns = world->sim.clock.now_ns - before_ns;
    assert_true(took_ns >= ms_to_ns(500) && took_ns < ms_to_ns(520));
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void lost_connection_is_reported_and_not_sent_again(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_retries(options, 0), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    world->brokers[0].hold = true;
    struct outcome outcome = {.world = world};
    int64_t before_ns = world->sim.clock.now_ns;
    assert_int_equal(send_async(producer, "y", NULL, &outcome), TERN_OK);
    client_world_run_ms(world, 10);
    assert_int_equal(world->brokers[0].held_count, 1);
    sim_net_reset(world->net, "10.0.9.9", "10.0.1.1");
    client_world_run_ms(world, 70000);
    assert_int_equal(outcome.calls, 1);
    assert_int_equal(outcome.code, TERN_CONNECTION_LOST);
    assert_true(outcome.at_ns - before_ns < ms_to_ns(100));
    assert_int_equal(world->brokers[0].held_most, 1);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void stored_but_unconfirmed_is_success_with_a_status(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_send_result result;
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__FLUSH_SLAVE_TIMEOUT);
    assert_int_equal(send_one(producer, "T", "x", &result, NULL), TERN_OK);
    assert_int_equal(result.status, TERN_FLUSH_SLAVE_TIMEOUT);
    assert_int_equal(world->brokers[0].send_count, 1);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* ---- order ---- */

static void named_queue_has_one_frame_in_flight(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_queue queue = queue_of("broker-a", 1);
    struct outcome outcomes[20] = {0};
    world->brokers[0].hold = true;
    for (int i = 0; i < 20; i++) {
        char body[16];
        snprintf(body, sizeof body, "%d", i);
        assert_int_equal(send_async(producer, body, &queue, &outcomes[i]), TERN_OK);
    }
    for (int i = 0; i < 20; i++) {
        client_world_run_ms(world, 5);
        assert_int_equal(world->brokers[0].held_count, 1);
        assert_true(fake_broker_release(&world->brokers[0]));
    }
    client_world_run_ms(world, 5);
    for (int i = 0; i < 20; i++) {
        char body[16];
        snprintf(body, sizeof body, "%d", i);
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_equal(outcomes[i].code, TERN_OK);
        assert_string_equal(world->brokers[0].sends[i].body, body);
    }
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void named_queue_goes_on_after_a_failure_and_tries_once(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_queue queue = queue_of("broker-a", 0);
    struct outcome outcomes[3] = {0};
    client_world_run_ms(world, 10);
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__SYSTEM_BUSY);
    for (int i = 0; i < 3; i++)
        assert_int_equal(send_async(producer, "x", &queue, &outcomes[i]), TERN_OK);
    client_world_run_ms(world, 50);
    assert_int_equal(outcomes[0].code, TERN_SYSTEM_BUSY);
    assert_int_equal(outcomes[1].code, TERN_OK);
    assert_int_equal(outcomes[2].code, TERN_OK);
    assert_int_equal(outcomes[2].result.queue_offset, 1);
    assert_int_equal(world->brokers[0].send_count, 3);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void waiting_in_a_lane_counts_against_the_timeout(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_queue queue = queue_of("broker-a", 0);
    struct outcome outcomes[2000] = {0};
    world->brokers[0].hold = true;
    for (int i = 0; i < 2000; i++)
        assert_int_equal(send_async(producer, "x", &queue, &outcomes[i]), TERN_OK);
    client_world_run_ms(world, 3100);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_equal(outcomes[i].code, TERN_TIMEOUT);
    }
    assert_true(world->brokers[0].held_most <= 2);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static size_t pick_last(void *arg, const struct tern_message *m, const struct tern_queue *queues,
                        size_t count)
{
    (void)m;
    (void)queues;
    *(size_t *)arg = count;
    return count - 1;
}

static size_t pick_beyond(void *arg, const struct tern_message *m, const struct tern_queue *queues,
                          size_t count)
{
    (void)arg;
    (void)m;
    (void)queues;
    return count;
}

static void selector_chooses_among_sorted_queues(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *m = message("T", "x");
    struct tern_send_result result;
    size_t count = 0;
    assert_int_equal(tern_producer_send_select(producer, m, pick_last, &count, &result, NULL),
                     TERN_OK);
    assert_int_equal(count, 4);
    assert_string_equal(result.queue.broker_name, "broker-b");
    assert_int_equal(result.queue.queue_id, 1);
    assert_int_equal(tern_producer_send_select(producer, m, pick_beyond, NULL, &result, NULL),
                     TERN_INVALID);
    /* "TagA".hashCode() is 2598919 */
    assert_int_equal(tern_select_by_hash((char *)(uintptr_t)"TagA", m, NULL, 4), 2598919 % 4);
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* ---- routes ---- */

static void unknown_topic_is_an_error_without_auto_creation(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(2, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_error err;
    struct tern_queue queues[4];
    size_t count;
    assert_int_equal(send_one(producer, "Nobody", "x", NULL, &err), TERN_TOPIC_NOT_EXIST);
    assert_non_null(strstr(err.text, "Nobody"));
    assert_int_equal(tern_producer_queues(producer, "Nobody", queues, 4, &count, &err),
                     TERN_TOPIC_NOT_EXIST);
    struct tern_message *m = message("Nobody", "x");
    assert_int_equal(tern_producer_send_oneway(producer, m, &err), TERN_TOPIC_NOT_EXIST);
    tern_message_unref(m);
    assert_int_equal(world->brokers[0].send_count, 0);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void unknown_topic_goes_by_the_default_topic_where_it_exists(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_queues template = client_world_part(world, 0, 8);
    template.perm = 7;
    client_world_put(world, "TBW102", &template);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_send_result result;
    assert_int_equal(send_one(producer, "Fresh", "x", &result, NULL), TERN_OK);
    const struct fake_send *seen = &world->brokers[0].sends[0];
    assert_string_equal(seen->default_topic, "TBW102");
    assert_int_equal(seen->default_queues, 4);
    assert_true(seen->queue_id >= 0 && seen->queue_id < 4);
    assert_string_equal(result.queue.topic, "Fresh");
    /* Once the topic is there, its own route counts. */
    struct fake_queues own = client_world_part(world, 0, 1);
    client_world_put(world, "Fresh", &own);
    assert_int_equal(send_one(producer, "Fresh", "y", &result, NULL), TERN_OK);
    assert_string_equal(world->brokers[0].sends[1].default_topic, "");
    assert_int_equal(world->brokers[0].sends[1].queue_id, 0);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void send_finds_the_master_that_came_back(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct fake_queues part = client_world_part(world, 0, 2);
    struct fake_queues slave_only = part;
    memcpy(slave_only.slave, part.address, sizeof part.address);
    slave_only.address[0] = 0;
    client_world_put(world, "T", &slave_only);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_error err;
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_UNREACHABLE);
    assert_non_null(strstr(err.text, "master"));
    client_world_put(world, "T", &part);
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_OK);
    part.perm = 4;
    client_world_put(world, "T", &part);
    client_world_run_ms(world, 31000);
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_NO_PERMISSION);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void stale_route_is_renewed_before_the_retry(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 2);
    struct fake_namesrv *ns = &world->ns[0];
    fake_namesrv_drop(ns, "T");
    struct fake_queues a = client_world_part(world, 0, 1);
    struct fake_queues b = client_world_part(world, 1, 1);
    client_world_put(world, "Moved", &a);
    struct tern_producer *producer = client_world_producer(world, NULL);
    assert_int_equal(send_one(producer, "Moved", "x", NULL, NULL), TERN_OK);
    fake_namesrv_drop(ns, "Moved");
    client_world_put(world, "Moved", &b);
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__TOPIC_NOT_EXIST);
    assert_int_equal(send_one(producer, "Moved", "y", NULL, NULL), TERN_OK);
    assert_int_equal(world->brokers[0].send_count, 2);
    assert_int_equal(world->brokers[1].messages, 1);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void sends_go_on_while_no_nameserver_is_there(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    client_world_crash_namesrv(world, 0);
    for (int i = 0; i < 5; i++) {
        client_world_run_ms(world, 40000);
        assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    }
    struct tern_error err;
    int64_t before_ns = world->sim.clock.now_ns;
    assert_int_equal(send_one(producer, "Other", "x", NULL, &err), TERN_UNREACHABLE);
    assert_true(world->sim.clock.now_ns - before_ns <= ms_to_ns(3000));
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

/* ---- limits, states, ends ---- */

static void asynchronous_sends_are_limited(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_max_in_flight(options, 3), TERN_OK);
    struct tern_producer *producer = client_world_producer(world, options);
    struct outcome outcomes[5] = {0};
    world->brokers[0].hold = true;
    for (int i = 0; i < 5; i++)
        assert_int_equal(send_async(producer, "x", NULL, &outcomes[i]),
                         i < 3 ? TERN_OK : TERN_LIMIT);
    client_world_run_ms(world, 10);
    assert_true(fake_broker_release(&world->brokers[0]));
    client_world_run_ms(world, 10);
    assert_int_equal(send_async(producer, "x", NULL, &outcomes[3]), TERN_OK);
    world->brokers[0].hold = false;
    while (fake_broker_release(&world->brokers[0]))
        ;
    client_world_run_ms(world, 10);
    for (int i = 0; i < 4; i++)
        assert_int_equal(outcomes[i].calls, 1);
    assert_int_equal(outcomes[4].calls, 0);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void oneway_is_sent_once_whatever_the_answer(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_message *m = message("T", "x");
    fake_broker_script(&world->brokers[0], TERN__WIRE__CODE__SYSTEM_ERROR);
    assert_int_equal(tern_producer_send_oneway(producer, m, NULL), TERN_OK);
    client_world_run_ms(world, 100);
    assert_int_equal(world->brokers[0].send_count, 1);
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void shutdown_waits_for_sends_under_way(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer *producer = client_world_producer(world, NULL);
    struct tern_queue queue = queue_of("broker-a", 0);
    struct outcome outcomes[4] = {0};
    assert_int_equal(send_one(producer, "T", "x", NULL, NULL), TERN_OK);
    world->brokers[0].hold = true;
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_async(producer, "x", i < 2 ? &queue : NULL, &outcomes[i]), TERN_OK);
    int64_t before_ns = world->sim.clock.now_ns;
    tern_producer_shutdown(producer);
    assert_true(world->sim.clock.now_ns - before_ns <= ms_to_ns(3200));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(outcomes[i].calls, 1);
        assert_int_equal(outcomes[i].code, TERN_TIMEOUT);
    }
    assert_int_equal(world->brokers[0].goodbyes, 1);
    assert_string_equal(world->brokers[0].goodbye_group, "DEFAULT_PRODUCER");
    struct tern_error err;
    assert_int_equal(send_one(producer, "T", "x", NULL, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "shut down"));
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

static void calls_in_the_wrong_state_name_it(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    struct tern_producer *first;
    struct tern_producer *second;
    struct tern_error err;
    assert_int_equal(tern_producer_options_instance(options, "shared"), TERN_OK);
    assert_int_equal(tern_producer_options_group(options, "G"), TERN_OK);
    assert_int_equal(tern_producer_create(options, &first, &err), TERN_OK);
    assert_int_equal(tern_producer_create(options, &second, &err), TERN_OK);
    assert_int_equal(send_one(first, "T", "x", NULL, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "created"));
    assert_int_equal(tern_producer_start(first, &err), TERN_OK);
    assert_int_equal(tern_producer_start(first, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "running"));
    assert_int_equal(tern_producer_start(second, &err), TERN_EXISTS);
    assert_non_null(strstr(err.text, "has been created before"));
    assert_int_equal(send_one(second, "T", "x", NULL, &err), TERN_STATE);
    assert_non_null(strstr(err.text, "start failed"));
    tern_producer_destroy(second);
    assert_int_equal(send_one(first, "T", "x", NULL, &err), TERN_OK);
    tern_producer_destroy(first);
    tern_producer_options_destroy(options);
    client_world_destroy(world);
}

static void create_needs_a_nameserver(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_producer *producer;
    struct tern_error err;
    tern_producer_options_world(options, &world->sim.env, world->client_link);
    unsetenv("NAMESRV_ADDR");
    assert_int_equal(tern_producer_create(options, &producer, &err), TERN_INVALID);
    assert_non_null(strstr(err.text, "NAMESRV_ADDR"));
    setenv("NAMESRV_ADDR", "http://jmenv.example/nsaddr", 1);
    assert_int_equal(tern_producer_create(options, &producer, &err), TERN_INVALID);
    assert_non_null(strstr(err.text, "HTTP"));
    setenv("NAMESRV_ADDR", world->namesrv, 1);
    assert_int_equal(tern_producer_create(options, &producer, &err), TERN_OK);
    tern_producer_destroy(producer);
    unsetenv("NAMESRV_ADDR");
    tern_producer_options_destroy(options);
    client_world_destroy(world);
}

struct in_callback {
    struct tern_producer *producer;
    enum tern_code sync_code, async_code;
    struct outcome inner;
};

static void send_from_callback(void *arg, enum tern_code code,
                               const struct tern_send_result *result, const struct tern_error *err)
{
    struct in_callback *in = arg;
    struct tern_message *m = message("T", "inner");
    (void)code;
    (void)result;
    (void)err;
    in->sync_code = tern_producer_send(in->producer, m, NULL, NULL);
    in->async_code =
        tern_producer_send_async(in->producer, &m, 1, NULL, note, &in->inner, NULL);
    tern_message_unref(m);
}

static void callbacks_may_send_but_not_wait(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct in_callback in = {.producer = client_world_producer(world, NULL)};
    struct tern_message *m = message("T", "outer");
    assert_int_equal(tern_producer_send_async(in.producer, &m, 1, NULL, send_from_callback, &in,
                                              NULL),
                     TERN_OK);
    tern_message_unref(m);
    client_world_run_ms(world, 100);
    assert_int_equal(in.sync_code, TERN_STATE);
    assert_int_equal(in.async_code, TERN_OK);
    assert_int_equal(in.inner.calls, 1);
    assert_int_equal(in.inner.code, TERN_OK);
    tern_producer_destroy(in.producer);
    client_world_destroy(world);
}

static void arguments_are_checked(void **state)
{
    (void)state;
    struct client_world *world = client_world_create(1, 1);
    struct tern_producer_options *options = client_world_options(world);
    assert_int_equal(tern_producer_options_max_message_bytes(options, 10), TERN_OK);
    assert_int_equal(tern_producer_options_retries(options, 16), TERN_INVALID);
    assert_int_equal(tern_producer_options_send_timeout_ms(options, 0), TERN_INVALID);
    assert_int_equal(tern_producer_options_max_in_flight(options, 65536), TERN_INVALID);
    assert_int_equal(tern_producer_options_group(options, "no spaces"), TERN_INVALID);
    struct tern_producer *producer = client_world_producer(world, options);
    struct tern_error err;
    struct tern_queue other = queue_of("broker-a", 0);
    struct tern_queue negative = queue_of("broker-a", -1);
    snprintf(other.topic, sizeof other.topic, "Other");
    struct tern_message *m = message("T", "x");
    assert_int_equal(send_one(producer, "T", "elevenbytes", NULL, &err), TERN_TOO_LARGE);
    assert_int_equal(send_one(producer, "SCHEDULE_TOPIC_XXXX", "x", NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send_to(producer, m, &other, NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send_to(producer, m, &negative, NULL, &err), TERN_INVALID);
    assert_int_equal(tern_producer_send_async(producer, &m, 1, NULL, NULL, NULL, &err),
                     TERN_INVALID);
    assert_int_equal(send_one(producer, "T", "", NULL, &err), TERN_OK); /* 0 bytes are legal */
    tern_message_unref(m);
    tern_producer_destroy(producer);
    client_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(send_goes_as_one_prepared_record),
        cmocka_unit_test(delayed_and_unacknowledged_messages_say_so),
        cmocka_unit_test(wrong_guess_of_the_address_family_is_mended),
        cmocka_unit_test(batch_goes_as_one_frame_to_one_queue),
        cmocka_unit_test(batches_that_cannot_be_one_are_refused),
        cmocka_unit_test(round_robin_visits_every_queue_alike),
        cmocka_unit_test(failed_send_is_retried_at_another_broker_with_the_same_id),
        cmocka_unit_test(refusals_that_repetition_cannot_help_are_not_retried),
        cmocka_unit_test(dead_broker_is_avoided_until_it_is_up_again),
        cmocka_unit_test(all_tries_share_one_timeout),
        cmocka_unit_test(lost_connection_is_reported_and_not_sent_again),
        cmocka_unit_test(stored_but_unconfirmed_is_success_with_a_status),
        cmocka_unit_test(named_queue_has_one_frame_in_flight),
        cmocka_unit_test(named_queue_goes_on_after_a_failure_and_tries_once),
        cmocka_unit_test(waiting_in_a_lane_counts_against_the_timeout),
        cmocka_unit_test(selector_chooses_among_sorted_queues),
        cmocka_unit_test(unknown_topic_is_an_error_without_auto_creation),
        cmocka_unit_test(unknown_topic_goes_by_the_default_topic_where_it_exists),
        cmocka_unit_test(send_finds_the_master_that_came_back),
        cmocka_unit_test(stale_route_is_renewed_before_the_retry),
        cmocka_unit_test(sends_go_on_while_no_nameserver_is_there),
        cmocka_unit_test(asynchronous_sends_are_limited),
        cmocka_unit_test(oneway_is_sent_once_whatever_the_answer),
        cmocka_unit_test(shutdown_waits_for_sends_under_way),
        cmocka_unit_test(calls_in_the_wrong_state_name_it),
        cmocka_unit_test(create_needs_a_nameserver),
        cmocka_unit_test(callbacks_may_send_but_not_wait),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
