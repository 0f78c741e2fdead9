/* Members on the wire: heartbeats and what they refuse, leaving, asking, change events. */
#include "tests/unit/broker/broker_unit.h"

#include "broker/handlers/handlers.h"
#include "tests/unit/broker/fake_broker.h"

static int setup(void **state)
{
    (void)state;
    fake_broker_begin();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_broker_end();
    return 0;
}

static struct fake_request *beat_raw(const char *client, uint64_t peer, ProtobufCBinaryData group,
                                     ProtobufCBinaryData topic, char *expression, char *type)
{
    static Tern__Wire__HeartbeatRequest body;
    static Tern__Wire__ConsumerData consumer;
    static Tern__Wire__ConsumerData *consumers[] = {&consumer};
    static Tern__Wire__Subscription subscription;
    static Tern__Wire__Subscription *subscriptions[] = {&subscription};
    struct fake_request *request = fake_call(client, peer);
    tern__wire__heartbeat_request__init(&body);
    tern__wire__consumer_data__init(&consumer);
    tern__wire__subscription__init(&subscription);
    subscription.topic = topic;
    subscription.expression = expression;
    subscription.expression_type = type;
    subscription.version = 1;
    consumer.group = group;
    consumer.subscriptions = subscriptions;
    consumer.n_subscriptions = 1;
    body.consumers = consumers;
    body.n_consumers = 1;
    body.language = "C";
    request->header.body_case = TERN__WIRE__REQUEST__BODY_HEARTBEAT;
    request->header.heartbeat = &body;
    fake_run(request, handle_heartbeat);
    return request;
}

static struct fake_request *beat(const char *client, uint64_t peer, const char *group,
                                 char *expression)
{
    return beat_raw(client, peer, NAME(group), NAME("T"), expression, "TAG");
}

static struct fake_request *wait_events(const char *client, uint64_t peer)
{
    static Tern__Wire__WaitEventsRequest body;
    struct fake_request *request = fake_call(client, peer);
    tern__wire__wait_events_request__init(&body);
    body.suspend_timeout_ms = 2000;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_WAIT_EVENTS;
    request->header.wait_events = &body;
    fake_run(request, handle_wait_events);
    return request;
}

/* ---- heartbeats ---- */

static void heartbeat_makes_group_and_retry_topic_durable_and_published(void **state)
{
    (void)state;
    struct topic_config topic;
    struct group_config group;
    struct fake_request *request = beat("c", 5, "G", "A || B");
    assert_int_equal(fake_request_code(request), 0);
    const Tern__Wire__Address *seen = request->response->heartbeat->seen_as;
    assert_int_equal(seen->ip.len, 4);
    assert_int_equal(seen->ip.data[3], 5);
    assert_int_equal(seen->port, 4711);
    assert_int_equal(fake.publishes, 1);
    fake_broker_restart();
    assert_true(groups_find(fake.broker.groups, "G", 1, &group));
    assert_true(topics_find(fake.broker.topics, "%RETRY%G", 8, &topic));
    assert_int_equal(topic.write_queues, 1);
    assert_int_equal(topic.perm, PERM_READ | PERM_WRITE);
}

static void next_heartbeat_changes_no_table_MD_02(void **state)
{
    (void)state;
    beat("c", 1, "G", "*");
    uint64_t version = topics_version(fake.broker.topics);
    uint64_t writes = sim_fs_calls(fake.sim.fs, SIM_FS_PWRITEV);
    beat("c", 1, "G", "*");
    beat("d", 2, "G", "*");
    assert_true(topics_version(fake.broker.topics) == version);
    assert_true(sim_fs_calls(fake.sim.fs, SIM_FS_PWRITEV) == writes);
    assert_int_equal(fake.publishes, 1);
}

static void retry_topic_that_was_changed_stays_as_it_is(void **state)
{
    (void)state;
    struct topic_config topic;
    fake_broker_topic("%RETRY%G", 7);
    beat("c", 1, "G", "*");
    assert_true(topics_find(fake.broker.topics, "%RETRY%G", 8, &topic));
    assert_int_equal(topic.write_queues, 7);
}

static void names_that_are_none_are_refused_and_leave_nothing_SE_02(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {{"", 0},    {"../../x", 7},  {"a/b", 3},      {"a\0b", 3},
               {"a b", 3}, {"\xFF\xFE", 2}, {"\xC3\xA9", 2}, {"a@b", 3}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ProtobufCBinaryData name = frame_bytes(bad[i].bytes, bad[i].len);
        assert_int_equal(fake_request_code(beat_raw("c", 1, name, NAME("T"), "*", "")),
                         TERN__WIRE__CODE__INVALID_REQUEST);
        assert_int_equal(fake_request_code(beat_raw("c", 1, NAME("G"), name, "*", "")),
                         TERN__WIRE__CODE__INVALID_REQUEST);
    }
    assert_int_equal(fake_request_code(beat("", 1, "G", "*")), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(beat("c\nd", 1, "G", "*")),
                     TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(members_count(fake.broker.members), 0);
    assert_false(groups_dirty(fake.broker.groups));
}

static void expression_that_does_not_parse_names_group_topic_and_cause(void **state)
{
    (void)state;
    char text[SUBSCRIPTION_TEXT_MAX + 2];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    struct fake_request *request = beat("c", 1, "G", text);
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__SUBSCRIPTION_PARSE_FAILED);
    assert_contains(fake_remark(request), "group G, topic T: ");
    assert_int_equal(members_count(fake.broker.members), 0);
}

/* F-2: on by default; the words when it is off are RocketMQ's */
static void sql_is_checked_and_refused_only_when_switched_off(void **state)
{
    (void)state;
    struct fake_request *request = beat_raw("c", 1, NAME("G"), NAME("T"), "a > 1", "SQL92");
    assert_int_equal(fake_request_code(request), 0);
    request = beat_raw("c", 1, NAME("G"), NAME("T"), "a > 1 garbage", "SQL92");
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__SUBSCRIPTION_PARSE_FAILED);
    assert_contains(fake_remark(request), "group G, topic T: SQL92: ");
    assert_contains(fake_remark(request), "position 6");
    fake.broker.config.enable_property_filter = false;
    request = beat_raw("c", 1, NAME("G"), NAME("T"), "a > 1", "SQL92");
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__REQUEST_CODE_NOT_SUPPORTED);
    assert_contains(fake_remark(request),
                    "The broker does not support consumer to filter message by SQL92");
    request = beat_raw("c", 1, NAME("G"), NAME("T"), "*", "XPATH");
    assert_int_equal(fake_request_code(request), TERN__WIRE__CODE__INVALID_REQUEST);
}

static void group_of_255_bytes_has_no_retry_topic_but_members(void **state)
{
    (void)state;
    char group[GROUP_NAME_MAX + 1];
    memset(group, 'g', GROUP_NAME_MAX);
    group[GROUP_NAME_MAX] = 0;
    uint32_t topics = topics_count(fake.broker.topics);
    assert_int_equal(fake_request_code(beat("c", 1, group, "*")), 0);
    assert_int_equal(topics_count(fake.broker.topics), topics);
}

/* ---- changes ---- */

static void members_are_told_when_one_joins_and_leaves_R_3(void **state)
{
    (void)state;
    beat("a", 1, "G", "*");
    struct fake_request *first = wait_events("a", 1); /* its own joining */
    assert_int_equal(first->response->wait_events->n_events, 1);
    events_destroy(fake.broker.events); /* forget, to see only what comes now */
    assert_ok(events_create(&fake.sim.env, &fake.broker.events));
    struct fake_request *parked = wait_events("a", 1);
    assert_int_equal(parked->answers, 0);
    beat("b", 2, "G", "*");
    assert_int_equal(parked->answers, 1);
    assert_memory_equal(parked->response->wait_events->events[0]->members_changed.data, "G", 1);
    events_destroy(fake.broker.events);
    assert_ok(events_create(&fake.sim.env, &fake.broker.events));
    parked = wait_events("a", 1);
    members_peer_gone(fake.broker.members, 2);
    assert_int_equal(parked->answers, 1);
}

static void group_may_switch_the_telling_off(void **state)
{
    (void)state;
    struct group_config config;
    group_config_init(&config, "G", 1);
    config.notify_members_changed = false;
    assert_ok(groups_put(fake.broker.groups, &config, NULL));
    struct fake_request *parked = wait_events("a", 1);
    beat("a", 1, "G", "*");
    beat("b", 2, "G", "*");
    assert_int_equal(parked->answers, 0);
}

static void unregistering_takes_the_client_off_the_list(void **state)
{
    (void)state;
    Tern__Wire__UnregisterClientRequest body = TERN__WIRE__UNREGISTER_CLIENT_REQUEST__INIT;
    const char **ids;
    size_t count;
    beat("a", 1, "G", "*");
    struct fake_request *request = fake_call("a", 1);
    body.consumer_group = NAME("G");
    request->header.body_case = TERN__WIRE__REQUEST__BODY_UNREGISTER_CLIENT;
    request->header.unregister_client = &body;
    fake_run(request, handle_unregister_client);
    assert_int_equal(fake_request_code(request), 0);
    assert_ok(members_of(fake.broker.members, "G", &ids, &count));
    assert_int_equal(count, 0);
}

/* ---- asking ---- */

static void members_are_listed_sorted(void **state)
{
    (void)state;
    Tern__Wire__MembersRequest body = TERN__WIRE__MEMBERS_REQUEST__INIT;
    beat("b", 1, "G", "*");
    beat("a", 2, "G", "*");
    struct fake_request *request = fake_call("a", 2);
    body.group = NAME("G");
    request->header.body_case = TERN__WIRE__REQUEST__BODY_MEMBERS;
    request->header.members = &body;
    fake_run(request, handle_members);
    assert_int_equal(request->response->members->n_client_ids, 2);
    assert_memory_equal(request->response->members->client_ids[0].data, "a", 1);
    assert_memory_equal(request->response->members->client_ids[1].data, "b", 1);
}

static struct fake_request *connection(const char *group)
{
    static Tern__Wire__ConsumerConnectionRequest body;
    struct fake_request *request = fake_call("", 1);
    tern__wire__consumer_connection_request__init(&body);
    body.group = NAME(group);
    request->header.body_case = TERN__WIRE__REQUEST__BODY_CONSUMER_CONNECTION;
    request->header.consumer_connection = &body;
    fake_run(request, handle_consumer_connection);
    return request;
}

static void connection_shows_each_members_own_subscription_F_3(void **state)
{
    (void)state;
    beat("a", 1, "G", "A");
    beat("b", 2, "G", "B");
    struct fake_request *request = connection("G");
    const Tern__Wire__ConsumerConnectionResponse *body = request->response->consumer_connection;
    assert_int_equal(body->n_members, 2);
    assert_string_equal(body->members[0]->subscriptions[0]->expression, "A");
    assert_string_equal(body->members[1]->subscriptions[0]->expression, "B");
    assert_string_equal(body->members[1]->language, "C");
    assert_int_equal(body->members[1]->address->ip.data[3], 2);
    assert_int_equal(fake_request_code(connection("nobody")),
                     TERN__WIRE__CODE__CONSUMER_NOT_ONLINE);
}

static void check_of_an_expression_says_what_is_wrong(void **state)
{
    (void)state;
    Tern__Wire__CheckSubscriptionRequest body = TERN__WIRE__CHECK_SUBSCRIPTION_REQUEST__INIT;
    Tern__Wire__Subscription subscription = TERN__WIRE__SUBSCRIPTION__INIT;
    body.group = NAME("G");
    subscription.topic = NAME("T");
    subscription.expression = "A || B";
    body.subscription = &subscription;
    for (int i = 0; i < 3; i++) {
        struct fake_request *request = fake_call("c", 1);
        request->header.body_case = TERN__WIRE__REQUEST__BODY_CHECK_SUBSCRIPTION;
        request->header.check_subscription = &body;
        fake_run(request, handle_check_subscription);
        assert_int_equal(fake_request_code(request),
                         i == 0   ? 0
                         : i == 1 ? TERN__WIRE__CODE__SUBSCRIPTION_PARSE_FAILED
                                  : TERN__WIRE__CODE__INVALID_REQUEST);
        subscription.expression_type = "SQL92";
        if (i == 1)
            body.subscription = NULL;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(heartbeat_makes_group_and_retry_topic_durable_and_published),
        TEST(next_heartbeat_changes_no_table_MD_02),
        TEST(retry_topic_that_was_changed_stays_as_it_is),
        TEST(names_that_are_none_are_refused_and_leave_nothing_SE_02),
        TEST(expression_that_does_not_parse_names_group_topic_and_cause),
        TEST(sql_is_checked_and_refused_only_when_switched_off),
        TEST(group_of_255_bytes_has_no_retry_topic_but_members),
        TEST(members_are_told_when_one_joins_and_leaves_R_3),
        TEST(group_may_switch_the_telling_off),
        TEST(unregistering_takes_the_client_off_the_list),
        TEST(members_are_listed_sorted),
        TEST(connection_shows_each_members_own_subscription_F_3),
        TEST(check_of_an_expression_says_what_is_wrong),
    };
    return cmocka_run_group_tests_name("membership", tests, NULL, NULL);
}
