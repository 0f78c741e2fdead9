/*
 * mqadmin why, against real daemons: each answer is made to happen, and the sentence that tells it
 * is looked for. People read the sentences, scripts the facts' names.
 */
#include "client/message_id.h"
#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { DONE, NO, USAGE, UNREACHED };

static struct cluster cluster;

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster,
               (const char *const[]){"mappedFileSizeCommitLog=64MiB", "transactionTimeOut=300",
                                     "transactionCheckInterval=1h", NULL});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_down(&cluster);
    return 0;
}

static void make_topic(const char *topic)
{
    free(MQADMIN(&cluster, DONE, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "1",
                 "-w", "1"));
}

/* Sends one message; id and offset_id (64 bytes each, may be NULL) are its ids. */
static void send_one(const char *topic, const char *tag, const char *keys, char *id,
                     char *offset_id)
{
    char *sent = MQADMIN(&cluster, DONE, "sendMessage", "-t", topic, "-p", "body", "-c", tag, "-k",
                         keys, "--json");
    char *const outs[] = {id, offset_id};
    static const char *const keys_of[] = {"\"msgId\": \"", "\"offsetMsgId\": \""};
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(sent, keys_of[i]);
        assert_non_null(at);
        at += strlen(keys_of[i]);
        if (outs[i])
            snprintf(outs[i], 64, "%.*s", (int)strcspn(at, "\""), at);
    }
    free(sent);
}

/* The group reads until nothing comes for a while, and leaves. */
static void consume_by(const char *topic, const char *group, const char *option,
                       const char *expression)
{
    free(MQADMIN(&cluster, DONE, "consumeMessage", "-t", topic, "-g", group, option, expression,
                 "--from", "first", "--idle-exit", "1500"));
}

static void consume(const char *topic, const char *group, const char *expression)
{
    consume_by(topic, group, "--expr", expression);
}

static void expect_why(int status, const char *const *parts, const char *const *args)
{
    char *out = mqadmin(&cluster, status, args);
    for (; *parts; parts++)
        if (!strstr(out, *parts))
            fail_msg("why %s: no \"%s\" in:\n%s", args[1], *parts, out);
    free(out);
}
#define PARTS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define WHY(status, parts, ...)                                                                    \
    expect_why(status, parts, (const char *const[]){"why", __VA_ARGS__, NULL})

static void expect_not_said(int status, const char *part, const char *id)
{
    char *out = MQADMIN(&cluster, status, "why", id);
    if (strstr(out, part))
        fail_msg("why %s says \"%s\":\n%s", id, part, out);
    free(out);
}

static void message_is_found_by_any_id_and_told_how_far_it_came(void **state)
{
    char id[64], offset_id[64];
    (void)state;
    make_topic("Found");
    send_one("Found", "TagA", "key-1", id, offset_id);
    const char *const *parts =
        PARTS("is stored on broker-a", "topic Found queue 0 offset 0", "- it is on the disk",
              "- it is dispatched", "- queue 0 offers offsets 0..0", "nobody reads it");
    WHY(DONE, parts, id);
    WHY(DONE, parts, offset_id);
    WHY(DONE, parts, "-i", id, "-t", "Found");
    WHY(DONE, parts, "-k", "key-1", "-t", "Found");
    WHY(DONE, PARTS("\"fact\": \"stored\"", "\"fact\": \"flushed\"", "\"ok\": true"), id, "--json");
}

static void message_that_is_nowhere_ends_with_what_was_searched(void **state)
{
    (void)state;
    make_topic("Nowhere");
    send_one("Nowhere", "TagA", "key-1", NULL, NULL);
    WHY(NO,
        PARTS("! broker-a has none in topic Nowhere: its index covers", "! it is not there",
              "next: mqadmin topicStatus -t Nowhere"),
        "-k", "key-2", "-t", "Nowhere");
    WHY(NO, PARTS("topics has message C0000202014E97C38F18F4C3B1670000"),
        "C0000202014E97C38F18F4C3B1670000");
}

static void group_that_got_it_and_group_that_filtered_it_are_told_apart(void **state)
{
    char id[64];
    (void)state;
    make_topic("Read");
    send_one("Read", "TagA", "k", id, NULL);
    consume("Read", "reader", "TagA || TagC");
    consume("Read", "deaf", "TagB");
    WHY(DONE,
        PARTS("- progress of group reader has passed it (committed 1): delivered and acknowledged, "
              "or "
              "skipped by a reset",
              "! group deaf has passed it, to offset 1, without delivering it: 'TagB'",
              "resetOffsetByTime -g deaf -t Read --offset 0 -b broker-a -i 0"),
        id);
}

/* Progress that was set, by one command or another, is not told as a delivery. */
static void group_that_was_led_past_it_is_not_said_to_have_got_it(void **state)
{
    static const char passed[] = "(committed 1): delivered and acknowledged, or skipped by a reset";
    char id[64];
    (void)state;
    make_topic("Skipped");
    send_one("Skipped", "TagA", "k", id, NULL);
    free(MQADMIN(&cluster, DONE, "updateSubGroup", "-c", "DefaultCluster", "-g", "jumper"));
    free(MQADMIN(&cluster, DONE, "updateSubGroup", "-c", "DefaultCluster", "-g", "clone"));
    free(MQADMIN(&cluster, DONE, "resetOffsetByTime", "-g", "jumper", "-t", "Skipped", "-s",
                 "4102444800000"));
    free(MQADMIN(&cluster, DONE, "cloneGroupOffset", "-s", "jumper", "-d", "clone", "-t",
                 "Skipped"));
    WHY(DONE,
        PARTS("- progress of group jumper has passed it", passed,
              "no member of it has pulled the queue since the broker's start"),
        id);
    WHY(DONE, PARTS("- progress of group clone has passed it", passed), id);
    WHY(DONE, PARTS("\"fact\": \"passed\""), id, "--json");
    expect_not_said(DONE, "was delivered", id);
}

/* Its member has left, what it pulled with is a condition and not a list of tags. */
static void group_that_consumed_by_a_condition_got_what_that_matches(void **state)
{
    char id[64];
    (void)state;
    make_topic("Condition");
    send_one("Condition", "TagA", "k", id, NULL);
    consume_by("Condition", "choosy", "--sql", "TAGS = 'TagA'");
    consume_by("Condition", "choosier", "--sql", "TAGS = 'TagB'");
    WHY(DONE,
        PARTS("- progress of group choosy has passed it (committed 1): delivered and acknowledged",
              "! group choosier has passed it, to offset 1, without delivering it"),
        id);
}

static void group_without_members_has_not_come_to_it(void **state)
{
    char id[64];
    (void)state;
    make_topic("Late");
    send_one("Late", "TagA", "k", NULL, NULL);
    consume("Late", "late", "*");
    send_one("Late", "TagA", "k", NULL, NULL);
    send_one("Late", "TagA", "k", id, NULL);
    WHY(DONE,
        PARTS("! group late has not come to it: it stands at offset 1, 1 messages before it",
              "! group late has no member that is online", "next: mqadmin why -g late -t Late"),
        id);
    WHY(NO,
        PARTS("! no member of group late is online at broker-a",
              "! broker-a/0 of topic Late: 2 messages wait, at offset 1 of 3"),
        "-g", "late", "-t", "Late");
    consume("Late", "late", "*");
    WHY(NO, PARTS("- on broker-a nothing waits for group late"), "-g", "late");
    WHY(NO, PARTS("! group nobody has neither member nor progress"), "-g", "nobody");
}

static void beat_as(struct wire *wire, const char *group, const char *topic, const char *expression,
                    Tern__Wire__MessageModel model)
{
    Tern__Wire__Subscription subscription = TERN__WIRE__SUBSCRIPTION__INIT;
    Tern__Wire__Subscription *subscriptions[] = {&subscription};
    Tern__Wire__ConsumerData consumer = TERN__WIRE__CONSUMER_DATA__INIT;
    Tern__Wire__ConsumerData *consumers[] = {&consumer};
    Tern__Wire__HeartbeatRequest body = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    subscription.topic = frame_bytes(topic, strlen(topic));
    subscription.expression = (char *)(uintptr_t)expression;
    subscription.version = 1;
    consumer.group = frame_bytes(group, strlen(group));
    consumer.subscriptions = subscriptions;
    consumer.n_subscriptions = 1;
    consumer.model = model;
    body.consumers = consumers;
    body.n_consumers = 1;
    request.body_case = TERN__WIRE__REQUEST__BODY_HEARTBEAT;
    request.heartbeat = &body;
    wire_expect(wire, &request, NULL, 0, 0, NULL);
}

static void beat(struct wire *wire, const char *group, const char *topic, const char *expression)
{
    beat_as(wire, group, topic, expression, TERN__WIRE__MESSAGE_MODEL__CLUSTERING);
}

/* F-3 by the tool: both expressions are named, and a member that does not pull is one that stands
 * still */
static void members_that_disagree_and_stand_still_are_named(void **state)
{
    struct wire one, two;
    char id[64];
    (void)state;
    make_topic("Split");
    send_one("Split", "TagA", "k", NULL, NULL);
    consume("Split", "split", "*");
    send_one("Split", "TagA", "k", id, NULL);
    wire_open(&one, cluster.broker.address, "10.0.0.1@one");
    wire_open(&two, cluster.broker.address, "10.0.0.2@two");
    beat(&one, "split", "Split", "TagA");
    beat(&two, "split", "Split", "TagB");
    WHY(NO,
        PARTS("! members of group split subscribe differently to topic Split: 10.0.0.1@one wants "
              "'TagA', 10.0.0.2@two wants 'TagB'",
              "which pulled it last, has left", "mqadmin consumerConnection -g split"),
        "-g", "split");
    WHY(DONE, PARTS("subscribe differently"), id);
    wire_close(&one);
    wire_close(&two);
}

/* brokers know nothing of a broadcasting group's progress: no queue of it stands still */
static void broadcasting_group_is_told_as_one(void **state)
{
    struct wire wire;
    (void)state;
    make_topic("Broad");
    send_one("Broad", "TagA", "k", NULL, NULL);
    wire_open(&wire, cluster.broker.address, "10.0.0.1@broad");
    beat_as(&wire, "broad", "Broad", "*", TERN__WIRE__MESSAGE_MODEL__BROADCASTING);
    WHY(DONE, PARTS("10.0.0.1@broad is a member", "- group broad broadcasts"), "-g", "broad");
    char *out = MQADMIN(&cluster, DONE, "why", "-g", "broad");
    assert_null(strstr(out, "no member has pulled"));
    assert_null(strstr(out, "more members than queues"));
    free(out);
    wire_close(&wire);
}

static void dead_letter_is_found_with_its_group(void **state)
{
    char id[64];
    (void)state;
    make_topic("Given");
    make_topic("%DLQ%given");
    send_one("Given", "TagA", "k", id, NULL);
    send_one("%DLQ%given", "TagA", id, NULL, NULL); /* as a broker files it: under its unique id */
    WHY(DONE, PARTS("! group given gave it up", "lies in %DLQ%given on broker-a"), id);
}

/* Sends to a topic with these properties; offset_id (64 bytes) is its offset id. */
static void send_with(struct wire *wire, const char *topic, const char *props, char *offset_id,
                      Tern__Wire__SendResponse *place)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    WIRE_REQUEST(request, SEND, send, &send);
    send.producer_group = bytes_of_text("P");
    send.topic = bytes_of_text(topic);
    send.properties = bytes_of_text(props);
    struct rpc_call *call = wire_ask(wire, &request, "body", 4);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    struct host host = {.port = call->response->send->store_host->port};
    memcpy(host.ip, call->response->send->store_host->ip.data, 4);
    message_id_format(offset_id, &host, call->response->send->physical_offset);
    place->queue_offset = call->response->send->queue_offset;
    place->physical_offset = call->response->send->physical_offset;
    rpc_call_unref(call);
}

/* D-1: a message that waits is where it belongs, and one that was taken back is not told to wait */
static void delayed_message_is_told_when_it_is_due_and_that_it_was_cancelled(void **state)
{
    static const char id[] = "C0000202014E97C38F18F4C3B1670001";
    static const char timer_id[] = "C0000202014E97C38F18F4C3B1670002";
    Tern__Wire__SendResponse place = TERN__WIRE__SEND_RESPONSE__INIT;
    char props[128], offset_id[64], timer_offset_id[64];
    struct wire wire;
    (void)state;
    make_topic("Later");
    wire_open(&wire, cluster.broker.address, "127.0.0.1@later");
    snprintf(props, sizeof props, "UNIQ_KEY\001%s\002DELAY\00118\002", id);
    send_with(&wire, "Later", props, offset_id, &place);
    snprintf(props, sizeof props, "UNIQ_KEY\001%s\002TIMER_DELAY_SEC\0013000\002", timer_id);
    send_with(&wire, "Later", props, timer_offset_id, &place);
    wire_close(&wire);
    WHY(DONE, PARTS("- on broker-a it waits until ", "to go to topic Later"), id, "-t", "Later");
    WHY(DONE, PARTS("- on broker-a it waits until "), timer_id);
    expect_not_said(DONE, "it is not there", id);
    WHY(DONE, PARTS("- on broker-a it waits until ", "next: mqadmin why C0000202014E"), offset_id);
    expect_not_said(DONE, "nobody reads it", offset_id);
    free(MQADMIN(&cluster, DONE, "cancelMessage", "-i", offset_id, "-k", id));
    char *out =
        MQADMIN(&cluster, DONE, "cancelMessage", "-i", timer_offset_id, "-k", timer_id, "--json");
    assert_non_null(strstr(out, "\"ok\": true"));
    free(out);
    WHY(DONE, PARTS("for topic Later, and was cancelled"), id);
    WHY(DONE, PARTS("for topic Later, and was cancelled"), timer_id);
    WHY(DONE, PARTS("for topic Later, and was cancelled"), timer_offset_id);
    expect_not_said(DONE, "it waits", id);
}

static void beat_listening(struct wire *wire, const char *group)
{
    Tern__Wire__HeartbeatRequest body = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    WIRE_REQUEST(request, HEARTBEAT, heartbeat, &body);
    ProtobufCBinaryData groups[] = {bytes_of_text(group)};
    body.producer_groups = body.checked_groups = groups;
    body.n_producer_groups = body.n_checked_groups = 1;
    wire_expect(wire, &request, NULL, 0, 0, NULL);
}

/* Checks are handed to clients that wait for events. */
static void wait_for_events(struct wire *wire, struct wire_pending *pending)
{
    Tern__Wire__WaitEventsRequest body = TERN__WIRE__WAIT_EVENTS_REQUEST__INIT;
    WIRE_REQUEST(request, WAIT_EVENTS, wait_events, &body);
    body.suspend_timeout_ms = 1000;
    wire_start(wire, &request, pending);
}

static void end_transaction(struct wire *wire, const Tern__Wire__SendResponse *half,
                            Tern__Wire__TransactionOutcome outcome)
{
    Tern__Wire__EndTransactionRequest body = TERN__WIRE__END_TRANSACTION_REQUEST__INIT;
    WIRE_REQUEST(request, END_TRANSACTION, end_transaction, &body);
    body.producer_group = bytes_of_text("G");
    body.half_queue_offset = half->queue_offset;
    body.half_physical_offset = half->physical_offset;
    body.outcome = outcome;
    wire_expect(wire, &request, NULL, 0, 0, NULL);
}

/* P-3: one that was asked about is not told to be rolled back */
static void transaction_is_told_undecided_committed_and_rolled_back(void **state)
{
    static const char *const ids[] = {"C0000202014E97C38F18F4C3B1670011",
                                      "C0000202014E97C38F18F4C3B1670012"};
    Tern__Wire__SendResponse half[2] = {TERN__WIRE__SEND_RESPONSE__INIT,
                                        TERN__WIRE__SEND_RESPONSE__INIT};
    char offset_id[2][64];
    struct wire_pending pending;
    struct wire wire;
    (void)state;
    make_topic("Money");
    wire_open(&wire, cluster.broker.address, "127.0.0.1@teller");
    beat_listening(&wire, "G");
    wait_for_events(&wire, &pending);
    for (int i = 0; i < 2; i++) {
        char props[128];
        snprintf(props, sizeof props, "TRAN_MSG\001true\002PGROUP\001G\002UNIQ_KEY\001%s", ids[i]);
        send_with(&wire, "Money", props, offset_id[i], &half[i]);
    }
    wire_await_status(&wire, "transactionChecksTotal", 2);
    assert_true(wire_wait(&pending, PATIENCE_MS));
    rpc_call_unref(pending.call);
    for (int i = 0; i < 2; i++) {
        const char *const *parts = PARTS("! on broker-a it is prepared for topic Money and not "
                                         "decided: producer group G was asked 1 times");
        WHY(DONE, parts, ids[i]);
        WHY(DONE, parts, offset_id[i]);
        expect_not_said(DONE, "it is not there", ids[i]);
    }
    end_transaction(&wire, &half[0], TERN__WIRE__TRANSACTION_OUTCOME__TRANSACTION_COMMIT);
    end_transaction(&wire, &half[1], TERN__WIRE__TRANSACTION_OUTCOME__TRANSACTION_ROLLBACK);
    wire_await_offset(&wire, "Money", 0, 1);
    wire_close(&wire);
    WHY(DONE, PARTS("- it was prepared on broker-a by producer group G and committed"), ids[0]);
    WHY(DONE, PARTS("- it was prepared on broker-a by producer group G and committed"),
        offset_id[0]);
    WHY(DONE, PARTS("for topic Money and rolled back"), ids[1]);
    WHY(DONE, PARTS("for topic Money and rolled back"), offset_id[1]);
}

static void wrong_usage_says_what_belongs_together(void **state)
{
    (void)state;
    free(MQADMIN(&cluster, USAGE, "why"));
    free(MQADMIN(&cluster, USAGE, "why", "-k", "key"));
    free(MQADMIN(&cluster, USAGE, "why", "-g", "g", "-k", "key", "-t", "T"));
    free(MQADMIN(&cluster, USAGE, "why", "ONE", "TWO"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_is_found_by_any_id_and_told_how_far_it_came),
        cmocka_unit_test(message_that_is_nowhere_ends_with_what_was_searched),
        cmocka_unit_test(group_that_got_it_and_group_that_filtered_it_are_told_apart),
        cmocka_unit_test(group_that_was_led_past_it_is_not_said_to_have_got_it),
        cmocka_unit_test(group_that_consumed_by_a_condition_got_what_that_matches),
        cmocka_unit_test(group_without_members_has_not_come_to_it),
        cmocka_unit_test(members_that_disagree_and_stand_still_are_named),
        cmocka_unit_test(broadcasting_group_is_told_as_one),
        cmocka_unit_test(dead_letter_is_found_with_its_group),
        cmocka_unit_test(delayed_message_is_told_when_it_is_due_and_that_it_was_cancelled),
        cmocka_unit_test(transaction_is_told_undecided_committed_and_rolled_back),
        cmocka_unit_test(wrong_usage_says_what_belongs_together),
    };
    return cmocka_run_group_tests_name("why", tests, set_up, tear_down);
}
