/*
 * mqadmin why, against real daemons: each answer is made to happen, and the sentence that tells it
 * is looked for. People read the sentences, scripts the facts' names.
 */
#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { DONE, NO, USAGE, UNREACHED };

static struct cluster cluster;

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster, (const char *const[]){"mappedFileSizeCommitLog=64MiB", NULL});
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
static void consume(const char *topic, const char *group, const char *expression)
{
    free(MQADMIN(&cluster, DONE, "consumeMessage", "-t", topic, "-g", group, "--expr", expression,
                 "--from", "first", "--idle-exit", "1500"));
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
        PARTS("- group reader has passed it, to offset 1: it was delivered",
              "! group deaf has passed it, to offset 1, without delivering it: 'TagB'",
              "resetOffsetByTime -g deaf -t Read --offset 0 -b broker-a -i 0"),
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

static void beat(struct wire *wire, const char *group, const char *topic, const char *expression)
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
    body.consumers = consumers;
    body.n_consumers = 1;
    request.body_case = TERN__WIRE__REQUEST__BODY_HEARTBEAT;
    request.heartbeat = &body;
    wire_expect(wire, &request, NULL, 0, 0, NULL);
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

/* Where the broker takes messages that wait for a time */
static void delayed_message_is_told_when_it_is_due(void **state)
{
    static const char id[] = "C0000202014E97C38F18F4C3B1670001";
    struct wire wire;
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    char props[128];
    (void)state;
    make_topic("Later");
    snprintf(props, sizeof props, "UNIQ_KEY\x01%s\x02%s\x01%d\x02", id, "DELAY", 18);
    send.producer_group = frame_bytes("P", 1);
    send.topic = frame_bytes("Later", strlen("Later"));
    send.properties = frame_bytes(props, strlen(props));
    request.body_case = TERN__WIRE__REQUEST__BODY_SEND;
    request.send = &send;
    wire_open(&wire, cluster.broker.address, "127.0.0.1@later");
    struct rpc_call *call = wire_ask(&wire, &request, "body", 4);
    int32_t code = call->response->code;
    rpc_call_unref(call);
    wire_close(&wire);
    if (code != 0)
        skip();
    WHY(NO, PARTS("- on broker-a it waits until ", "to go to topic Later"), id, "-t", "Later");
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
        cmocka_unit_test(group_without_members_has_not_come_to_it),
        cmocka_unit_test(members_that_disagree_and_stand_still_are_named),
        cmocka_unit_test(dead_letter_is_found_with_its_group),
        cmocka_unit_test(delayed_message_is_told_when_it_is_due),
        cmocka_unit_test(wrong_usage_says_what_belongs_together),
    };
    return cmocka_run_group_tests_name("why", tests, set_up, tear_down);
}
