/*
 * Failing messages in the push consumer, against a scripted cluster: what is sent back and how, who
 * counts the tries, and what a listener may decide (R-6, RO-01, RO-03).
 */
#include "tests/unit/client/heard.h"

struct rig {
    struct fake *fake;
    struct tern_consumer_options *options;
    struct tern_push_consumer *consumer;
    struct heard *heard;
    int level, ack_index; /* what the listener decides */
    bool fails;
    char topic[128]; /* of the context's queue */
};

static enum tern_consume_result listen(void *arg, const struct tern_message *const *messages,
                                       size_t count, struct tern_consume_context *context)
{
    struct rig *rig = arg;
    enum tern_consume_result result = listen_and_remember(rig->heard, messages, count);
    assert_int_equal(context->delay_level_when_next_consume, 0);
    assert_true(context->ack_index >= (int)count);
    snprintf(rig->topic, sizeof rig->topic, "%s", context->queue.topic);
    context->delay_level_when_next_consume = rig->level;
    context->ack_index = rig->ack_index;
    return rig->fails ? TERN_RECONSUME_LATER : result;
}

static struct rig *rig_create(int64_t messages)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->fake = fake_create(1);
    rig->heard = heard_create(rig->fake);
    rig->options = fake_options(rig->fake, "group", "a");
    rig->ack_index = INT32_MAX;
    assert_ok(tern_consumer_options_from(rig->options, TERN_FROM_FIRST, 0));
    fake_publish(rig->fake, 0, NULL, messages);
    return rig;
}

static void rig_start(struct rig *rig)
{
    assert_ok(tern_push_consumer_create(rig->options, &rig->consumer, NULL));
    assert_ok(tern_push_consumer_subscribe(rig->consumer, FAKE_TOPIC, "*", NULL));
    assert_int_equal(tern_push_consumer_context_listener(rig->consumer, NULL, rig), TERN_INVALID);
    assert_ok(tern_push_consumer_context_listener(rig->consumer, listen, rig));
    assert_ok(tern_push_consumer_start(rig->consumer, NULL));
}

static void rig_destroy(struct rig *rig)
{
    tern_push_consumer_destroy(rig->consumer);
    tern_consumer_options_destroy(rig->options);
    fake_destroy(rig->fake);
    free(rig->heard);
    free(rig);
}

static int64_t committed(const struct rig *rig)
{
    return rig->fake->queues[0].committed;
}

/* ---- what the listener decides ---- */

static void a_listener_says_when_its_message_comes_again(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    rig->fails = true;
    rig->level = 7;
    rig_start(rig);
    fake_run_ms(rig->fake, 6000);
    assert_int_equal(rig->fake->sent_back, 1);
    assert_int_equal(rig->fake->last_send_back.delay_level, 7);
    assert_int_equal(rig->fake->last_send_back.max_reconsume_times, 0);
    assert_int_equal(rig->fake->last_send_back.reconsume_times, 0);
    assert_string_equal(rig->topic, FAKE_TOPIC);
    assert_int_equal(committed(rig), 1);
    rig_destroy(rig);
}

static void a_listener_may_want_the_dead_letter_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    rig->fails = true;
    rig->level = -5;
    rig_start(rig);
    fake_run_ms(rig->fake, 1000);
    assert_int_equal(rig->fake->last_send_back.delay_level, -1);
    rig_destroy(rig);
}

static void the_rest_of_a_batch_is_sent_back(void **state)
{
    (void)state;
    struct rig *rig = rig_create(10);
    assert_ok(tern_consumer_options_consume_batch(rig->options, 10));
    rig->ack_index = 6;
    rig_start(rig);
    fake_run_ms(rig->fake, 6000);
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(rig->consumer, &stats);
    assert_int_equal(stats.consumed, 7);
    assert_int_equal(stats.failed, 3);
    assert_int_equal(rig->fake->sent_back, 3);
    assert_int_equal(committed(rig), 10);
    assert_int_equal(stats.cached, 0);
    rig_destroy(rig);
}

static void an_ack_index_of_minus_one_sends_all_back(void **state)
{
    (void)state;
    struct rig *rig = rig_create(4);
    assert_ok(tern_consumer_options_consume_batch(rig->options, 4));
    rig->ack_index = -1;
    rig_start(rig);
    fake_run_ms(rig->fake, 6000);
    assert_int_equal(rig->fake->sent_back, 4);
    rig_destroy(rig);
}

/* ---- counting ---- */

/* RO-01: tries made here count when the broker takes the message at last. */
static void tries_made_here_are_told_to_the_broker(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    rig->fails = true;
    rig->fake->send_back_code = TERN_SERVICE_NOT_AVAILABLE;
    rig_start(rig);
    fake_run_ms(rig->fake, 14000);
    assert_int_equal(rig->heard->count, 3);
    rig->fake->send_back_code = TERN_OK;
    fake_run_ms(rig->fake, 8000);
    assert_int_equal(rig->heard->count, 4);
    assert_int_equal(rig->fake->last_send_back.reconsume_times, 3);
    assert_int_equal(committed(rig), 1);
    struct tern_consumer_stats stats;
    tern_push_consumer_stats(rig->consumer, &stats);
    assert_int_equal(stats.sent_back, 1);
    assert_int_equal(stats.sent_back_unknown, 0);
    rig_destroy(rig);
}

/* Its copy is stored, and may come; the consumer tries again all the same. */
static void what_was_perhaps_taken_back_is_told(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    struct tern_consumer_stats stats;
    rig->fails = true;
    rig->fake->send_back_code = TERN_FLUSH_SLAVE_TIMEOUT;
    rig_start(rig);
    fake_run_ms(rig->fake, 7000);
    tern_push_consumer_stats(rig->consumer, &stats);
    assert_int_equal(rig->heard->count, 2);
    assert_int_equal(stats.sent_back, 0);
    assert_int_equal(stats.sent_back_unknown, 2);
    rig_destroy(rig);
}

/* after its last try a message is only sent back, however long nobody takes it. */
static void a_listener_never_sees_a_message_more_often_than_allowed(void **state)
{
    (void)state;
    struct rig *rig = rig_create(3);
    assert_ok(tern_consumer_options_max_reconsume_times(rig->options, 3));
    rig->heard->fail_offset = 1;
    rig->heard->fail_times = -1;
    rig->fake->send_back_code = TERN_SYSTEM_BUSY;
    rig_start(rig);
    fake_run_ms(rig->fake, 10 * 60000);
    assert_int_equal(heard_times(rig->heard, 0, 1), 4);
    assert_true(rig->fake->sent_back > 100);
    assert_int_equal(rig->fake->last_send_back.reconsume_times, 3);
    assert_int_equal(rig->fake->last_send_back.max_reconsume_times, 3);
    assert_int_equal(committed(rig), 1);
    assert_true(sim_log_count(&rig->fake->sim, "consumer_send_back_failed") < 20);
    rig->fake->send_back_code = TERN_OK;
    fake_run_ms(rig->fake, 11000);
    assert_int_equal(heard_times(rig->heard, 0, 1), 4);
    assert_int_equal(committed(rig), 3);
    rig_destroy(rig);
}

static void without_a_maximum_of_its_own_a_consumer_stops_at_sixteen(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    rig->fails = true;
    rig->fake->send_back_code = TERN_NOT_SUPPORTED;
    rig_start(rig);
    fake_run_ms(rig->fake, 10 * 60000);
    assert_int_equal(rig->heard->count, 17);
    rig_destroy(rig);
}

/* A message of the group's retry topic looks like the one that was sent. */
static void a_retried_message_shows_its_own_topic(void **state)
{
    (void)state;
    struct rig *rig = rig_create(0);
    rig->fake->has_retry_topic = true;
    rig->fails = true;
    fake_publish(rig->fake, FAKE_QUEUES, NULL, 1);
    rig_start(rig);
    fake_run_ms(rig->fake, 6000);
    assert_int_equal(rig->heard->count, 1);
    assert_string_equal(rig->heard->topic, FAKE_TOPIC);
    assert_string_equal(rig->topic, FAKE_RETRY);
    assert_int_equal(rig->fake->sent_back, 1);
    rig_destroy(rig);
}

/* ---- the broker does not have the record any more ---- */

static void a_message_whose_record_is_gone_is_sent_as_a_copy(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    rig->fails = true;
    rig->fake->send_back_code = TERN_QUERY_NOT_FOUND;
    rig_start(rig);
    fake_run_ms(rig->fake, 6000);
    assert_int_equal(rig->fake->copies, 1);
    assert_string_equal(rig->fake->copy_topic, FAKE_RETRY);
    assert_int_equal(rig->fake->copy_times, 1);
    assert_int_equal(rig->fake->copy_max_times, 0);
    assert_non_null(strstr(rig->fake->copy_props, "RETRY_TOPIC\x01" FAKE_TOPIC "\x02"));
    assert_non_null(strstr(rig->fake->copy_props, "DELAY\x01"
                                                  "3"));
    assert_int_equal(committed(rig), 1);
    rig_destroy(rig);
}

static void a_copy_that_is_refused_is_retried_here(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    rig->fails = true;
    rig->level = 5;
    rig->fake->send_back_code = TERN_QUERY_NOT_FOUND;
    rig->fake->copy_code = TERN_QUERY_NOT_FOUND;
    rig_start(rig);
    fake_run_ms(rig->fake, 4000);
    assert_int_equal(rig->fake->copies, 1);
    assert_int_equal(committed(rig), 0);
    fake_run_ms(rig->fake, 3000);
    assert_int_equal(rig->heard->count, 2);
    assert_int_equal(rig->fake->copies, 2);
    assert_int_equal(rig->fake->copy_times, 2);
    assert_non_null(strstr(rig->fake->copy_props, "DELAY\x01"
                                                  "5"));
    rig->fake->copy_code = TERN_OK;
    fake_run_ms(rig->fake, 11000);
    assert_int_equal(committed(rig), 1);
    rig_destroy(rig);
}

static void a_copy_for_the_dead_letters_is_beyond_its_maximum(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    assert_ok(tern_consumer_options_max_reconsume_times(rig->options, 0));
    rig->fails = true;
    rig->fake->send_back_code = TERN_QUERY_NOT_FOUND;
    rig_start(rig);
    fake_run_ms(rig->fake, 6000);
    assert_int_equal(rig->fake->copies, 1);
    assert_true(rig->fake->copy_max_times > 0);
    assert_true(rig->fake->copy_times > rig->fake->copy_max_times);
    rig_destroy(rig);
}

/* ---- listeners that take too long ---- */

struct hanging {
    struct rig *rig;
    int64_t for_ms, since_ns;
};

static enum tern_consume_result hang_once(void *arg, const struct tern_message *const *messages,
                                          size_t count)
{
    struct hanging *hanging = arg;
    struct rig *rig = hanging->rig;
    struct latch never;
    enum tern_consume_result result = listen_and_remember(rig->heard, messages, count);
    latch_init(&never);
    if (rig->heard->count == 1)
        hanging->since_ns = clock_mono_ns(rig->fake->env.clock);
    if (rig->heard->count == 1)
        assert_false(latch_wait(rig->fake->env.sched, &never,
                                clock_mono_ns(rig->fake->env.clock) + ms_to_ns(hanging->for_ms)));
    return result;
}

static void start_hanging(struct rig *rig, struct hanging *hanging)
{
    assert_ok(tern_push_consumer_create(rig->options, &rig->consumer, NULL));
    assert_ok(tern_push_consumer_subscribe(rig->consumer, FAKE_TOPIC, "*", NULL));
    assert_ok(tern_push_consumer_listener(rig->consumer, hang_once, hanging));
    assert_ok(tern_push_consumer_start(rig->consumer, NULL));
}

static void the_time_a_listener_has_can_be_chosen(void **state)
{
    (void)state;
    struct rig *rig = rig_create(3);
    struct hanging hanging = {.rig = rig, .for_ms = 20000};
    assert_int_equal(tern_consumer_options_consume_timeout_ms(rig->options, 999), TERN_INVALID);
    assert_int_equal(tern_consumer_options_consume_timeout_ms(rig->options, 86400001),
                     TERN_INVALID);
    assert_ok(tern_consumer_options_consume_timeout_ms(rig->options, 8000));
    start_hanging(rig, &hanging);
    fake_run_ms(rig->fake, 9000);
    int64_t took_ms = (rig->fake->sent_back_ns - hanging.since_ns) / 1000000;
    assert_true(took_ms >= 8000 && took_ms < 8500); /* looked at every 30th of it */
    assert_int_equal(rig->fake->sent_back, 1);
    assert_int_equal(rig->fake->last_send_back.delay_level, 3);
    fake_run_ms(rig->fake, 30000);
    assert_int_equal(rig->fake->sent_back, 1);
    assert_int_equal(committed(rig), 3);
    rig_destroy(rig);
}

/* Nobody takes it: it is tried again while the first listener still has it. */
static void a_message_taken_from_a_listener_is_kept_when_nobody_takes_it_back(void **state)
{
    (void)state;
    struct rig *rig = rig_create(1);
    struct hanging hanging = {.rig = rig, .for_ms = 60000};
    assert_ok(tern_consumer_options_consume_timeout_ms(rig->options, 2000));
    rig->fake->send_back_code = TERN_SYSTEM_BUSY;
    start_hanging(rig, &hanging);
    fake_run_ms(rig->fake, 13000);
    assert_int_equal(rig->heard->count, 2);
    assert_int_equal(rig->heard->items[1].reconsume, 1);
    assert_int_equal(committed(rig), 1); /* the second time it was consumed */
    fake_run_ms(rig->fake, 60000);
    assert_int_equal(rig->heard->count, 2);
    rig_destroy(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listener_says_when_its_message_comes_again),
        cmocka_unit_test(a_listener_may_want_the_dead_letter_at_once),
        cmocka_unit_test(the_rest_of_a_batch_is_sent_back),
        cmocka_unit_test(an_ack_index_of_minus_one_sends_all_back),
        cmocka_unit_test(tries_made_here_are_told_to_the_broker),
        cmocka_unit_test(what_was_perhaps_taken_back_is_told),
        cmocka_unit_test(a_listener_never_sees_a_message_more_often_than_allowed),
        cmocka_unit_test(without_a_maximum_of_its_own_a_consumer_stops_at_sixteen),
        cmocka_unit_test(a_retried_message_shows_its_own_topic),
        cmocka_unit_test(a_message_whose_record_is_gone_is_sent_as_a_copy),
        cmocka_unit_test(a_copy_that_is_refused_is_retried_here),
        cmocka_unit_test(a_copy_for_the_dead_letters_is_beyond_its_maximum),
        cmocka_unit_test(the_time_a_listener_has_can_be_chosen),
        cmocka_unit_test(a_message_taken_from_a_listener_is_kept_when_nobody_takes_it_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
