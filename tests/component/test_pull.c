/*
 * Pulling over the wire: offsets outside the queue, each check with its own code and words, waiting
 * for messages, filtering by tag, and what becomes of pulls whose client is gone.
 */
#include <signal.h>

#include "base/record.h"
#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { MESSAGES = 100, SHORT_POLL_MS = 300, LONG_POLL_MS = 20000 };

static struct cluster cluster;
static struct wire wire;

static int set_up(void **state)
{
    (void)state;
    cluster_up_alone(&cluster, (const char *const[]){"mappedFileSizeCommitLog=16MiB",
                                                     "flushDiskType=ASYNC_FLUSH", NULL});
    wire_open(&wire, cluster.broker.address, "127.0.0.1@pull");
    wire_make_topic(&wire, "T", 4);
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(wire_send(&wire, "T", 0, "body", i % 10 ? "TAGS\001A" : "TAGS\001B"), i);
    wire_await_offset(&wire, "T", 0, MESSAGES);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wire_close(&wire);
    cluster_down(&cluster);
    return 0;
}

/* The answer to a pull of queue 0 of T that is changed by `expression` (NULL: all). */
static struct rpc_call *pull_at(int64_t offset, const char *expression)
{
    Tern__Wire__PullRequest pull;
    wire_fill_pull(&pull, "T", 0, offset);
    if (expression)
        pull.expression = (char *)(uintptr_t)expression;
    WIRE_REQUEST(request, PULL, pull, &pull);
    return wire_ask(&wire, &request, NULL, 0);
}

/* OF-01, S-8 */
static void offset_outside_the_queue_is_told_and_never_becomes_zero(void **state)
{
    static const struct {
        int64_t asked;
        int32_t code;
        const char *status;
        int64_t next;
    } rows[] = {
        {MESSAGES, CODE(PULL_NOT_FOUND), "OFFSET_OVERFLOW_ONE", MESSAGES},
        {MESSAGES + 1, CODE(PULL_OFFSET_MOVED), "OFFSET_OVERFLOW_BADLY", MESSAGES},
        {1000, CODE(PULL_OFFSET_MOVED), "OFFSET_OVERFLOW_BADLY", MESSAGES},
        {INT64_C(1) << 62, CODE(PULL_OFFSET_MOVED), "OFFSET_OVERFLOW_BADLY", MESSAGES},
        {INT64_MAX, CODE(PULL_OFFSET_MOVED), "OFFSET_OVERFLOW_BADLY", MESSAGES},
        {-1, CODE(PULL_OFFSET_MOVED), "OFFSET_TOO_SMALL", 0},
        {INT64_MIN, CODE(PULL_OFFSET_MOVED), "OFFSET_TOO_SMALL", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rpc_call *call = pull_at(rows[i].asked, NULL);
        assert_int_equal(call->response->code, rows[i].code);
        assert_string_equal(call->response->remark, rows[i].status);
        assert_int_equal(call->response->pull->next_offset, rows[i].next);
        assert_int_equal(call->response->pull->min_offset, 0);
        assert_int_equal(call->response->pull->max_offset, MESSAGES);
        assert_int_equal(call->payload_size, 0);
        rpc_call_unref(call);
    }
}

static void numbers_out_of_range_are_refused(void **state)
{
    static const int32_t counts[] = {0, -1, 1025, INT32_MAX, INT32_MIN};
    static const int32_t queues[] = {-1, 4, INT32_MAX, INT32_MIN};
    Tern__Wire__PullRequest pull;
    (void)state;
    wire_fill_pull(&pull, "T", 0, 0);
    WIRE_REQUEST(request, PULL, pull, &pull);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        pull.max_count = counts[i];
        wire_expect(&wire, &request, NULL, 0, CODE(INVALID_REQUEST), "max_count");
    }
    pull.max_count = 1;
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
        pull.queue_id = queues[i];
        wire_expect(&wire, &request, NULL, 0, CODE(INVALID_REQUEST), "queue_id");
    }
    pull.queue_id = 0;
    pull.suspend_timeout_ms = UINT32_MAX;
    wire_expect(&wire, &request, NULL, 0, CODE(INVALID_REQUEST), "suspend_timeout_ms");
}

/* ---- R-9 ---- */

static void put_group(struct wire *to, const char *name, bool consume, bool broadcast)
{
    Tern__Wire__GroupConfig config = TERN__WIRE__GROUP_CONFIG__INIT;
    Tern__Wire__UpdateGroupRequest body = TERN__WIRE__UPDATE_GROUP_REQUEST__INIT;
    config.name = bytes_of_text(name);
    config.consume_enable = consume;
    config.consume_broadcast_enable = broadcast;
    config.retry_queues = 1;
    config.retry_max_times = 16;
    body.group = &config;
    WIRE_REQUEST(request, UPDATE_GROUP, update_group, &body);
    wire_expect(to, &request, NULL, 0, CODE(SUCCESS), NULL);
}

static void join(struct wire *to, const char *group, const char *topic,
                 Tern__Wire__MessageModel model, const char *expression, int64_t version)
{
    Tern__Wire__Subscription subscription = TERN__WIRE__SUBSCRIPTION__INIT;
    Tern__Wire__Subscription *subscriptions[] = {&subscription};
    Tern__Wire__ConsumerData data = TERN__WIRE__CONSUMER_DATA__INIT;
    Tern__Wire__ConsumerData *consumers[] = {&data};
    Tern__Wire__HeartbeatRequest heartbeat = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    subscription.topic = bytes_of_text(topic);
    subscription.expression = (char *)(uintptr_t)expression;
    subscription.version = version;
    data.group = bytes_of_text(group);
    data.model = model;
    data.subscriptions = subscriptions;
    data.n_subscriptions = 1;
    heartbeat.consumers = consumers;
    heartbeat.n_consumers = 1;
    WIRE_REQUEST(request, HEARTBEAT, heartbeat, &heartbeat);
    wire_expect(to, &request, NULL, 0, CODE(SUCCESS), NULL);
}

/* broker's permission, and the group's */
static void broker_and_group_are_asked_for_permission(void **state)
{
    struct cluster own;
    struct wire to;
    Tern__Wire__PullRequest pull;
    (void)state;
    cluster_up_alone(&own, (const char *const[]){"autoCreateSubscriptionGroup=false", NULL});
    wire_open(&to, own.broker.address, "127.0.0.1@r9");
    wire_make_topic(&to, "T", 1);
    wire_fill_pull(&pull, "T", 0, 0);
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_expect(&to, &request, NULL, 0, CODE(SUBSCRIPTION_GROUP_NOT_EXIST), "G");
    put_group(&to, "G", false, false);
    wire_expect(&to, &request, NULL, 0, CODE(NO_PERMISSION), "group G may not consume");
    put_group(&to, "G", true, false);
    wire_expect(&to, &request, NULL, 0, CODE(PULL_NOT_FOUND), NULL);
    own.overrides[1] = "brokerPermission=2";
    own.overrides[2] = NULL;
    assert_int_equal(daemon_stop(&own.broker, SIGTERM), 0);
    cluster_start_broker(&own);
    wire_expect(&to, &request, NULL, 0, CODE(NO_PERMISSION), "brokerPermission 2");
    wire_close(&to);
    cluster_down(&own);
}

/* topic exists, is readable, and the expression parses or is refused with its word */
static void topic_and_expression_are_checked(void **state)
{
    Tern__Wire__PullRequest pull;
    Tern__Wire__TopicConfig config = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__UpdateTopicRequest update = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    (void)state;
    wire_fill_pull(&pull, "Absent", 0, 0);
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_expect(&wire, &request, NULL, 0, CODE(TOPIC_NOT_EXIST), "Absent");
    config.name = pull.topic = bytes_of_text("WriteOnly");
    config.read_queues = config.write_queues = 1;
    config.perm = 2;
    update.topic = &config;
    WIRE_REQUEST(update_request, UPDATE_TOPIC, update_topic, &update);
    wire_expect(&wire, &update_request, NULL, 0, CODE(SUCCESS), NULL);
    wire_expect(&wire, &request, NULL, 0, CODE(NO_PERMISSION), "not readable");
    wire_fill_pull(&pull, "T", 0, 0);
    pull.expression = (char *)(uintptr_t) "||";
    wire_expect(&wire, &request, NULL, 0, CODE(SUBSCRIPTION_PARSE_FAILED), NULL);
    pull.expression = (char *)(uintptr_t) "a > 'x'";
    pull.expression_type = (char *)(uintptr_t) "SQL92";
    wire_expect(&wire, &request, NULL, 0, CODE(SUBSCRIPTION_PARSE_FAILED), "position 4");
    pull.expression_type = (char *)(uintptr_t) "XPATH";
    wire_expect(&wire, &request, NULL, 0, CODE(INVALID_REQUEST), "XPATH is none of TAG, SQL92");
    wire_fill_pull(&pull, "T", 0, 0);
    pull.class_filter = true;
    wire_expect(&wire, &request, NULL, 0, CODE(REQUEST_CODE_NOT_SUPPORTED), "SQL92");
}

/* a pull that does not carry its expression relies on the heartbeat */
static void pull_without_expression_needs_a_known_subscription(void **state)
{
    Tern__Wire__PullRequest pull;
    (void)state;
    wire_fill_pull(&pull, "T", 0, 0);
    WIRE_REQUEST(request, PULL, pull, &pull);
    pull.has_subscription = false;
    pull.group = bytes_of_text("Joined");
    wire_expect(&wire, &request, NULL, 0, CODE(SUBSCRIPTION_NOT_EXIST), "no member");
    join(&wire, "Joined", "Other", TERN__WIRE__MESSAGE_MODEL__CLUSTERING, "*", 7);
    wire_expect(&wire, &request, NULL, 0, CODE(SUBSCRIPTION_NOT_EXIST), "does not subscribe");
    join(&wire, "Joined", "T", TERN__WIRE__MESSAGE_MODEL__CLUSTERING, "B", 7);
    pull.subscription_version = 8;
    wire_expect(&wire, &request, NULL, 0, CODE(SUBSCRIPTION_NOT_LATEST), "version 7");
    pull.subscription_version = 7;
    struct rpc_call *call = wire_ask(&wire, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    assert_int_equal(call->response->pull->count, MESSAGES / 10);
    rpc_call_unref(call);
    put_group(&wire, "Narrow", true, false);
    join(&wire, "Narrow", "T", TERN__WIRE__MESSAGE_MODEL__BROADCASTING, "*", 1);
    pull.group = bytes_of_text("Narrow");
    wire_expect(&wire, &request, NULL, 0, CODE(NO_PERMISSION), "broadcast");
    pull.has_subscription = true; /* nor with it */
    wire_expect(&wire, &request, NULL, 0, CODE(NO_PERMISSION), "broadcast");
}

/* ---- filtering ---- */

/* F-1, F-6: what did not match moves the offset, by what was scanned */
static void tags_choose_messages_and_move_the_offset_by_what_was_scanned(void **state)
{
    struct record record;
    (void)state;
    struct rpc_call *call = pull_at(1, "B || C");
    assert_int_equal(call->response->code, CODE(SUCCESS));
    assert_int_equal(
        record_parse(call->payload, call->payload_size, call->payload_size, true, &record),
        RECORD_WHOLE);
    assert_int_equal(record.queue_off, 10);
    assert_int_equal(call->response->pull->count, MESSAGES / 10 - 1);
    rpc_call_unref(call);
    call = pull_at(0, "Nobody");
    assert_int_equal(call->response->code, CODE(PULL_RETRY_IMMEDIATELY));
    assert_string_equal(call->response->remark, "NO_MATCHED_MESSAGE");
    assert_int_equal(call->response->pull->next_offset, MESSAGES);
    rpc_call_unref(call);
}

/* ---- waiting ---- */

static void fill_waiting_pull(Tern__Wire__PullRequest *pull, int32_t queue_id, int64_t offset,
                              uint32_t wait_ms)
{
    wire_fill_pull(pull, "T", queue_id, offset);
    pull->suspend_timeout_ms = wait_ms;
}

/* */
static void waiting_pull_is_woken_by_what_matches_and_by_nothing_else(void **state)
{
    Tern__Wire__PullRequest pull;
    struct wire_pending pending;
    (void)state;
    fill_waiting_pull(&pull, 1, 0, LONG_POLL_MS);
    pull.expression = (char *)(uintptr_t) "Wanted";
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_start(&wire, &request, &pending);
    wire_await_status(&wire, "parkedPulls", 1);
    wire_send(&wire, "T", 1, "other tag", "TAGS\001Other");
    wire_send(&wire, "T", 2, "other queue", "TAGS\001Wanted");
    assert_false(wire_wait(&pending, 100));
    int64_t begin = now_ms();
    wire_send(&wire, "T", 1, "this", "TAGS\001Wanted");
    assert_true(wire_wait(&pending, LONG_POLL_MS));
    assert_true(now_ms() - begin < LONG_POLL_MS / 2);
    assert_int_equal(pending.call->response->code, CODE(SUCCESS));
    assert_int_equal(pending.call->response->pull->count, 1);
    assert_int_equal(pending.call->response->pull->next_offset, 2);
    rpc_call_unref(pending.call);
    assert_int_equal(wire_status(&wire, "parkedPulls"), 0);
}

/* the time that the client named, no less and not much more */
static void waiting_pull_is_answered_when_the_time_is_up(void **state)
{
    Tern__Wire__PullRequest pull;
    (void)state;
    fill_waiting_pull(&pull, 3, 0, 400);
    WIRE_REQUEST(request, PULL, pull, &pull);
    int64_t begin = now_ms();
    wire_expect(&wire, &request, NULL, 0, CODE(PULL_NOT_FOUND), NULL);
    assert_in_range(now_ms() - begin, 390, LONG_POLL_MS / 2);
}

/* OF-18: a broker never holds a pull for longer than its client waits for the answer */
static void pull_is_answered_before_its_client_gives_up(void **state)
{
    Tern__Wire__PullRequest pull;
    struct wire_pending pending;
    (void)state;
    fill_waiting_pull(&pull, 3, 0, LONG_POLL_MS);
    WIRE_REQUEST(request, PULL, pull, &pull);
    int64_t begin = now_ms();
    wire_start_within(&wire, &request, NULL, 0, 3000, &pending);
    assert_true(wire_wait(&pending, LONG_POLL_MS));
    assert_in_range(now_ms() - begin, 1500, 3000);
    assert_non_null(pending.call->response); /* an answer, not its own time-out */
    assert_int_equal(pending.call->response->code, CODE(PULL_NOT_FOUND));
    rpc_call_unref(pending.call);
}

/* OF-17: no wake-up is lost between the look and the parking */
static void every_single_message_of_a_ping_pong_wakes_its_pull(void **state)
{
    enum { ROUNDS = 1000, TOO_LONG_MS = LONG_POLL_MS / 2 };
    struct wire sender;
    (void)state;
    wire_open(&sender, cluster.broker.address, "127.0.0.1@ping");
    wire_make_topic(&wire, "Ping", 1);
    for (int i = 0; i < ROUNDS; i++) {
        Tern__Wire__PullRequest pull;
        struct wire_pending pending;
        wire_fill_pull(&pull, "Ping", 0, i);
        pull.suspend_timeout_ms = LONG_POLL_MS;
        WIRE_REQUEST(request, PULL, pull, &pull);
        wire_start(&wire, &request, &pending);
        wire_send(&sender, "Ping", 0, "x", NULL);
        assert_true(wire_wait(&pending, TOO_LONG_MS));
        assert_int_equal(pending.call->response->code, CODE(SUCCESS));
        rpc_call_unref(pending.call);
    }
    wire_close(&sender);
}

/* NN-07: those who wait take nothing from those who send */
static void sends_are_quick_while_thousands_of_pulls_wait(void **state)
{
    enum { PULLS = 2000, SENDS = 200, SLOW_MS = LONG_POLL_MS / 4 };
    static struct wire_pending pending[PULLS];
    struct wire waiting;
    Tern__Wire__PullRequest pull;
    int64_t slowest = 0;
    (void)state;
    wire_open(&waiting, cluster.broker.address, "127.0.0.1@thousands");
    wire_make_topic(&wire, "Awaited", 1);
    fill_waiting_pull(&pull, 0, 0, LONG_POLL_MS);
    pull.topic = bytes_of_text("Awaited");
    WIRE_REQUEST(request, PULL, pull, &pull);
    for (int i = 0; i < PULLS; i++)
        wire_start(&waiting, &request, &pending[i]);
    wire_await_status(&wire, "parkedPulls", PULLS);
    for (int i = 0; i < SENDS; i++) {
        int64_t begin = now_ms();
        wire_send(&wire, "T", 2, "x", NULL);
        if (now_ms() - begin > slowest)
            slowest = now_ms() - begin;
    }
    assert_true(slowest < SLOW_MS);
    wire_send(&wire, "Awaited", 0, "for all of them", NULL);
    for (int i = 0; i < PULLS; i++) {
        assert_true(wire_wait(&pending[i], LONG_POLL_MS / 2));
        assert_int_equal(pending[i].call->response->code, CODE(SUCCESS));
        rpc_call_unref(pending[i].call);
    }
    wire_close(&waiting);
}

/* Each limit has a defined end: the oldest waits no longer */
static void pulls_above_the_limit_send_the_oldest_home(void **state)
{
    enum { LIMIT = 16, PULLS = 40 };
    static struct wire_pending pending[PULLS];
    struct cluster own;
    struct wire to;
    Tern__Wire__PullRequest pull;
    (void)state;
    cluster_up_alone(&own, (const char *const[]){"maxParkedPulls=16", NULL});
    wire_open(&to, own.broker.address, "127.0.0.1@limit");
    wire_make_topic(&to, "T", 4);
    fill_waiting_pull(&pull, 0, 0, LONG_POLL_MS);
    WIRE_REQUEST(request, PULL, pull, &pull);
    for (int i = 0; i < PULLS; i++) {
        wire_start(&to, &request, &pending[i]);
        wire_status(&to, "parkedPulls"); /* so that they come one after the other */
    }
    assert_true(wire_status(&to, "parkedPulls") <= LIMIT);
    for (int i = 0; i < PULLS - LIMIT; i++) {
        assert_true(wire_wait(&pending[i], LONG_POLL_MS / 2));
        assert_int_equal(pending[i].call->response->code, CODE(PULL_NOT_FOUND));
        rpc_call_unref(pending[i].call);
    }
    for (int i = PULLS - LIMIT; i < PULLS; i++)
        pending[i].abandoned = true;
    wire_close(&to);
    cluster_down(&own);
}

/* */
static void short_polling_waits_its_own_time(void **state)
{
    struct cluster own;
    struct wire to;
    Tern__Wire__PullRequest pull;
    (void)state;
    cluster_up_alone(
        &own, (const char *const[]){"longPollingEnable=false", "shortPollingTimeMills=300", NULL});
    wire_open(&to, own.broker.address, "127.0.0.1@short");
    wire_make_topic(&to, "T", 4);
    fill_waiting_pull(&pull, 0, 0, LONG_POLL_MS);
    WIRE_REQUEST(request, PULL, pull, &pull);
    int64_t begin = now_ms();
    wire_expect(&to, &request, NULL, 0, CODE(PULL_NOT_FOUND), NULL);
    assert_in_range(now_ms() - begin, SHORT_POLL_MS - 10, LONG_POLL_MS / 2);
    wire_close(&to);
    cluster_down(&own);
}

/* ---- clients that go ---- */

/* NN-07: their pulls are not kept until the time is up */
static void pulls_of_a_client_that_is_gone_are_dropped(void **state)
{
    enum { PULLS = 64 };
    static struct wire_pending pending[PULLS];
    struct wire gone;
    Tern__Wire__PullRequest pull;
    (void)state;
    wire_open(&gone, cluster.broker.address, "127.0.0.1@gone");
    fill_waiting_pull(&pull, 3, 0, LONG_POLL_MS);
    WIRE_REQUEST(request, PULL, pull, &pull);
    for (int i = 0; i < PULLS; i++)
        wire_start(&gone, &request, &pending[i]);
    wire_await_status(&wire, "parkedPulls", PULLS);
    for (int i = 0; i < PULLS; i++)
        pending[i].abandoned = true;
    wire_close(&gone);
    int64_t begin = now_ms();
    wire_await_status(&wire, "parkedPulls", 0);
    assert_true(now_ms() - begin < LONG_POLL_MS / 2);
}

static void pull_of_a_connection_that_is_reset_is_dropped(void **state)
{
    uint8_t header[256];
    Tern__Wire__PullRequest pull;
    (void)state;
    fill_waiting_pull(&pull, 3, 0, LONG_POLL_MS);
    WIRE_REQUEST(request, PULL, pull, &pull);
    request.version = PROTOCOL_VERSION;
    request.timeout_ms = 4 * LONG_POLL_MS;
    size_t size = tern__wire__request__pack(&request, header);
    int fd = raw_open(cluster.broker.address);
    raw_send_frame(fd, (uint32_t)size, header, size, NULL, 0);
    wire_await_status(&wire, "parkedPulls", 1);
    raw_reset(fd);
    wire_await_status(&wire, "parkedPulls", 0);
}

static void broker_stops_with_pulls_waiting(void **state)
{
    struct cluster own;
    struct wire to;
    struct wire_pending pending;
    Tern__Wire__PullRequest pull;
    (void)state;
    cluster_up_alone(&own, NULL);
    wire_open(&to, own.broker.address, "127.0.0.1@stop");
    wire_make_topic(&to, "T", 4);
    fill_waiting_pull(&pull, 0, 0, LONG_POLL_MS);
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_start(&to, &request, &pending);
    wire_await_status(&to, "parkedPulls", 1);
    assert_int_equal(daemon_stop(&own.broker, SIGTERM), 0);
    assert_true(wire_wait(&pending, PATIENCE_MS));
    rpc_call_unref(pending.call);
    wire_close(&to);
    cluster_down(&own);
}

/* ---- limits of an answer ---- */

/* S-8: however the limits are set, an answer fits into a frame and the consumer gets on */
static void answer_never_outgrows_a_frame(void **state)
{
    enum { BODY = 4 << 20, COUNT = 8 };
    struct cluster own;
    struct wire to;
    Tern__Wire__PullRequest pull;
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    (void)state;
    cluster_up_alone(&own, (const char *const[]){"maxTransferBytesOnMessageInMemory=64MiB",
                                                 "maxTransferBytesOnMessageInDisk=64MiB",
                                                 "mappedFileSizeCommitLog=16MiB", NULL});
    wire_open(&to, own.broker.address, "127.0.0.1@large");
    wire_make_topic(&to, "T", 1);
    char *body = calloc(1, BODY);
    assert_non_null(body);
    send.topic = bytes_of_text("T");
    send.properties = bytes_of_text("KEYS\001same");
    WIRE_REQUEST(send_request, SEND, send, &send);
    for (int i = 0; i < COUNT; i++)
        wire_expect(&to, &send_request, body, BODY, CODE(SUCCESS), NULL);
    free(body);
    wire_await_offset(&to, "T", 0, COUNT);
    int64_t next = 0;
    WIRE_REQUEST(request, PULL, pull, &pull);
    while (next < COUNT) {
        wire_fill_pull(&pull, "T", 0, next);
        struct rpc_call *call = wire_ask(&to, &request, NULL, 0);
        assert_int_equal(call->response->code, CODE(SUCCESS));
        assert_true(call->response->pull->count >= 1);
        next = call->response->pull->next_offset;
        rpc_call_unref(call);
    }
    Tern__Wire__QueryMessageRequest query = TERN__WIRE__QUERY_MESSAGE_REQUEST__INIT;
    query.topic = bytes_of_text("T");
    query.key = bytes_of_text("same");
    WIRE_REQUEST(query_request, QUERY_MESSAGE, query_message, &query);
    wire_expect(&to, &query_request, NULL, 0, CODE(SUCCESS), NULL);
    wire_close(&to);
    cluster_down(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offset_outside_the_queue_is_told_and_never_becomes_zero),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(broker_and_group_are_asked_for_permission),
        cmocka_unit_test(topic_and_expression_are_checked),
        cmocka_unit_test(pull_without_expression_needs_a_known_subscription),
        cmocka_unit_test(tags_choose_messages_and_move_the_offset_by_what_was_scanned),
        cmocka_unit_test(waiting_pull_is_woken_by_what_matches_and_by_nothing_else),
        cmocka_unit_test(waiting_pull_is_answered_when_the_time_is_up),
        cmocka_unit_test(pull_is_answered_before_its_client_gives_up),
        cmocka_unit_test(every_single_message_of_a_ping_pong_wakes_its_pull),
        cmocka_unit_test(sends_are_quick_while_thousands_of_pulls_wait),
        cmocka_unit_test(pulls_above_the_limit_send_the_oldest_home),
        cmocka_unit_test(short_polling_waits_its_own_time),
        cmocka_unit_test(pulls_of_a_client_that_is_gone_are_dropped),
        cmocka_unit_test(pull_of_a_connection_that_is_reset_is_dropped),
        cmocka_unit_test(broker_stops_with_pulls_waiting),
        cmocka_unit_test(answer_never_outgrows_a_frame),
    };
    return cmocka_run_group_tests_name("pull", tests, set_up, tear_down);
}
