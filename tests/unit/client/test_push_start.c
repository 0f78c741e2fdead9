/*
 * What a push consumer's start does, in which order, and what makes it fail. States and wrong
 * calls are in test_push_life.c, stores of progress in test_broadcast.c and test_offset_store.c.
 */
#include "tests/unit/client/push_rig.h"

#include "client/push_internal.h"

#define CONDITION "region = 'eu'"

/* Not started; condition NULL: all tags. */
static void rig_subscribe(struct rig *rig, const char *condition)
{
    assert_ok(tern_push_consumer_create(rig->options, &rig->consumer, NULL));
    if (condition)
        assert_ok(tern_push_consumer_subscribe_sql(rig->consumer, FAKE_TOPIC, condition, NULL));
    else
        assert_ok(tern_push_consumer_subscribe(rig->consumer, FAKE_TOPIC, "*", NULL));
    assert_ok(tern_push_consumer_listener(rig->consumer, listen_and_remember, rig->heard));
}

/* Places among the kinds of requests, in the order in which they came first. */
static int place(const struct rig *rig, int32_t kind)
{
    int at = fake_first_place(rig->fake, kind);
    if (at < 0)
        fail_msg("no request of kind %d came", kind);
    return at;
}

/* route, the broker's check, heartbeat; then, at once, sharing, progress, pulling */
static void steps_come_in_their_order(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    rig_subscribe(&rig, CONDITION);
    assert_ok(tern_push_consumer_start(rig.consumer, NULL));
    assert_int_equal(rig.fake->member_count, 1); /* known to the broker when start returns */
    fake_run_ms(rig.fake, 100);
    static const int32_t order[] = {
        TERN__WIRE__REQUEST__BODY_ROUTE,        TERN__WIRE__REQUEST__BODY_CHECK_SUBSCRIPTION,
        TERN__WIRE__REQUEST__BODY_HEARTBEAT,    TERN__WIRE__REQUEST__BODY_MEMBERS,
        TERN__WIRE__REQUEST__BODY_QUERY_OFFSET, TERN__WIRE__REQUEST__BODY_PULL};
    for (size_t i = 1; i < sizeof order / sizeof order[0]; i++)
        assert_true(place(&rig, order[i - 1]) < place(&rig, order[i]));
    assert_string_equal(rig.fake->checked, CONDITION);
    rig_destroy(&rig);
}

/* a clustering group hears its failed messages again, one that broadcasts has none */
static void clustering_also_subscribes_to_its_retry_topic(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    rig_subscribe(&rig, NULL);
    assert_ok(tern_push_consumer_start(rig.consumer, NULL));
    assert_int_equal(sim_log_count(&rig.fake->sim, "topic=" FAKE_RETRY), 1);
    tern_push_consumer_destroy(rig.consumer);
    assert_ok(tern_consumer_options_model(rig.options, TERN_BROADCASTING));
    assert_ok(tern_consumer_options_offset_dir(rig.options, "/home/app/offsets"));
    rig_subscribe(&rig, NULL);
    assert_ok(tern_push_consumer_start(rig.consumer, NULL));
    assert_int_equal(sim_log_count(&rig.fake->sim, "topic=" FAKE_RETRY), 1);
    rig_destroy(&rig);
}

/* with the broker's words, and before it is a member of anything */
static void a_condition_that_the_broker_refuses_fails_the_start(void **state)
{
    (void)state;
    static const enum tern_code codes[] = {TERN_NOT_SUPPORTED, TERN_SUBSCRIPTION_PARSE_FAILED};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig = rig_create(2);
        struct tern_error err = {.text = ""};
        rig.fake->check_code = codes[i];
        rig_subscribe(&rig, CONDITION);
        assert_int_equal(tern_push_consumer_start(rig.consumer, &err), codes[i]);
        assert_contains(err.text, "not this expression");
        assert_int_equal(rig.fake->member_count, 0);
        assert_int_equal(tern_push_consumer_start(rig.consumer, &err), TERN_STATE);
        assert_contains(err.text, "start failed");
        tern_push_consumer_destroy(rig.consumer);
        rig.fake->check_code = TERN_OK; /* and its group may be created anew */
        rig_subscribe(&rig, CONDITION);
        assert_ok(tern_push_consumer_start(rig.consumer, &err));
        rig_destroy(&rig);
    }
}

static void tags_are_not_asked_about(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    rig.fake->check_code = TERN_NOT_SUPPORTED;
    rig_subscribe(&rig, NULL);
    assert_ok(tern_push_consumer_start(rig.consumer, NULL));
    assert_int_equal(fake_first_place(rig.fake, TERN__WIRE__REQUEST__BODY_CHECK_SUBSCRIPTION), -1);
    rig_destroy(&rig);
}

/* Nobody there is no failure of start: it begins when somebody is */
static void brokers_that_are_away_decide_nothing(void **state)
{
    (void)state;
    struct rig rig = rig_create(2);
    fake_publish(rig.fake, 0, NULL, 3);
    fake_node_down(&rig.fake->brokers[0]);
    fake_node_down(&rig.fake->brokers[1]);
    rig_subscribe(&rig, CONDITION);
    assert_ok(tern_push_consumer_start(rig.consumer, NULL));
    assert_int_equal(sim_log_count(&rig.fake->sim, "consumer_expression_unchecked"), 1);
    fake_node_up(&rig.fake->brokers[0]);
    fake_run_ms(rig.fake, 60000);
    assert_true(place(&rig, TERN__WIRE__REQUEST__BODY_PULL) > 0);
    rig_destroy(&rig);
}

static bool was_asked_for_progress(void *arg)
{
    return ((const struct rig *)arg)->fake->brokers[0].queries > 0;
}

/* where a group begins is the master's to say, also when that has just failed others: a slave
 * may lack what the group has to begin behind. */
static void where_a_group_begins_is_asked_at_the_master_only(void **state)
{
    (void)state;
    static const enum tern_consume_from policies[] = {TERN_FROM_LAST, TERN_FROM_TIMESTAMP};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig = rig_create(1);
        struct fake_node *master = &rig.fake->brokers[0];
        struct sim_sched *sched = rig.fake->sim.sched;
        fake_publish(rig.fake, 0, NULL, 10);
        assert_ok(tern_consumer_options_from(rig.options, policies[i], 5));
        rig_start(&rig, "*");
        assert_true(sim_run_until_true(sched, was_asked_for_progress, &rig,
                                       clock_mono_ns(rig.fake->env.clock) + ms_to_ns(1000)));
        failed_addresses_decline(&rig.consumer->failed, master->address, SCHED_NEVER);
        fake_run_ms(rig.fake, 1000);
        assert_int_equal(master->positions_asked, 1);
        assert_int_equal(rig.fake->brokers[1].positions_asked, 0);
        rig_destroy(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_come_in_their_order),
        cmocka_unit_test(clustering_also_subscribes_to_its_retry_topic),
        cmocka_unit_test(a_condition_that_the_broker_refuses_fails_the_start),
        cmocka_unit_test(tags_are_not_asked_about),
        cmocka_unit_test(brokers_that_are_away_decide_nothing),
        cmocka_unit_test(where_a_group_begins_is_asked_at_the_master_only),
    };
    return cmocka_run_group_tests_name("push_start", tests, NULL, NULL);
}
