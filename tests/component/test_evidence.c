/*
 * What a cluster tells about itself when somebody looks for a message, for time, or for what a
 * group got: each figure is made to happen and looked for (S-4, F-5, F-6, A-2).
 */
#include <math.h>

#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

enum { DONE, NO };

static struct cluster cluster;
static struct wire wire;

static int bring_up(void **state)
{
    (void)state;
    cluster_up(&cluster, (const char *const[]){"mappedFileSizeCommitLog=1MiB",
                                               "maxMessageSize=512KiB", NULL});
    wire_open(&wire, cluster.broker.address, "127.0.0.1@evidence");
    return 0;
}

static int take_down(void **state)
{
    (void)state;
    wire_close(&wire);
    cluster_down(&cluster);
    return 0;
}

static void make_topic(const char *topic)
{
    free(MQADMIN(&cluster, DONE, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "1",
                 "-w", "1"));
}

static char *status_json(void)
{
    return MQADMIN(&cluster, DONE, "brokerStatus", "-b", cluster.broker.address, "--json");
}

/* The number that a status has under a key. */
static double figure(const char *status, const char *key)
{
    char quoted[80];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(status, quoted);
    if (!at)
        fail_msg("no %s in the status", key);
    at += strlen(quoted);
    at += strspn(at, ": \"");
    return strtod(at, NULL);
}

/* The group reads until nothing comes for a while, and leaves. */
static void consume(const char *topic, const char *group, const char *expression)
{
    free(MQADMIN(&cluster, DONE, "consumeMessage", "-t", topic, "-g", group, "--expr", expression,
                 "--from", "first", "--idle-exit", "1500"));
}

/* ---- looking for a message ---- */

/* S-4: range of the index, its lag, where the log begins; in the tool's words and on the wire */
static void a_query_that_finds_nothing_says_what_was_searched(void **state)
{
    struct tool tool;
    (void)state;
    make_topic("Searched");
    int64_t offset = wire_send(&wire, "Searched", 0, "body", "KEYS\001there\002UNIQ_KEY\001U1");
    wire_await_offset(&wire, "Searched", 0, offset + 1);
    tool_run(&tool, "mqadmin",
             (const char *const[]){"queryMsgByKey", "-n", cluster.namesrv_list, "-t", "Searched",
                                   "-k", "absent", NULL},
             NULL, 0);
    assert_int_equal(tool.status, NO);
    assert_contains(tool.err, "broker-a: nothing; indexed 20");
    assert_contains(tool.err, "index lag ");
    assert_contains(tool.err, "log from 0");
    tool_free(&tool);

    Tern__Wire__QueryMessageRequest query = TERN__WIRE__QUERY_MESSAGE_REQUEST__INIT;
    WIRE_REQUEST(request, QUERY_MESSAGE, query_message, &query);
    query.topic = bytes_of_text("Searched");
    query.key = bytes_of_text("absent");
    query.max_count = 10;
    query.begin_ms = 0;
    query.end_ms = INT64_MAX;
    struct rpc_call *call = wire_ask(&wire, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(QUERY_NOT_FOUND));
    assert_int_equal(call->response->body_case, TERN__WIRE__RESPONSE__BODY_QUERY_MESSAGE);
    const Tern__Wire__QueryMessageResponse *body = call->response->query_message;
    assert_true(body->indexed_begin_ms > 0 && body->indexed_end_ms >= body->indexed_begin_ms);
    rpc_call_unref(call);
}

/* ---- what a group got ---- */

/* F-5: both expressions, a count, and what it means for what was passed */
static void a_group_that_changes_its_expression_is_told_what_it_passed(void **state)
{
    (void)state;
    make_topic("Changed");
    for (int i = 0; i < 4; i++)
        wire_send(&wire, "Changed", 0, "body", i % 2 ? "TAGS\001B" : "TAGS\001A");
    int64_t before = wire_status(&wire, "subscriptionChanges");
    consume("Changed", "changing", "A");
    consume("Changed", "changing", "A");
    assert_int_equal(wire_status(&wire, "subscriptionChanges"), before);
    assert_false(file_contains(cluster.broker.log, "group=changing topic=Changed"
                                                   " client"));
    consume("Changed", "changing", "B");
    assert_int_equal(wire_status(&wire, "subscriptionChanges"), before + 1);
    assert_true(file_contains(cluster.broker.log,
                              "before=A after=B note=\"messages already passed return only by a "
                              "reset\""));
}

/* JSON as it is laid out for people, on one line. */
static void without_blanks(char *json)
{
    char *to = json;
    for (const char *from = json; *from; from++)
        if (*from != ' ' && *from != '\n')
            *to++ = *from;
    *to = 0;
}

/* F-6: who got what stays told apart although the queue changed hands */
static void progress_shows_what_each_member_was_given_and_denied(void **state)
{
    (void)state;
    make_topic("Shared");
    for (int i = 0; i < 10; i++)
        wire_send(&wire, "Shared", 0, "body", i < 3 ? "TAGS\001A" : "TAGS\001B");
    consume("Shared", "sharing", "A");
    for (int i = 0; i < 5; i++)
        wire_send(&wire, "Shared", 0, "body", i < 1 ? "TAGS\001A" : "TAGS\001B");
    consume("Shared", "sharing", "B");
    char *json =
        MQADMIN(&cluster, DONE, "consumerProgress", "-g", "sharing", "-t", "Shared", "--json");
    without_blanks(json);
    assert_contains(json, "\"expression\":\"B\",\"scanned\":5,\"delivered\":4,\"filtered\":1}");
    assert_contains(json, "\"expression\":\"A\",\"scanned\":10,\"delivered\":3,\"filtered\":7}");
    assert_contains(json, "\"scanned\":15,\"delivered\":7,\"filtered\":8");
    free(json);
    char *text = MQADMIN(&cluster, DONE, "consumerProgress", "-g", "sharing", "-t", "Shared");
    assert_contains(text, "what each member got");
    free(text);
}

/* ---- where the time goes ---- */

/* every stage of a send that the broker sees; the store rolls, so that segments switch */
static void stages_of_a_send_are_in_the_status(void **state)
{
    static const char *const stages[] = {"stageEncode",        "stageAppendWait", "stageWrite",
                                         "stageSegmentSwitch", "stageFlush",      "stageFlushWait"};
    (void)state;
    make_topic("Staged");
    char *body = calloc(1, 300001);
    memset(body, 'b', 300000);
    for (int i = 0; i < 10; i++)
        wire_send(&wire, "Staged", 0, body, NULL);
    free(body);
    char *status = status_json();
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        char key[64];
        snprintf(key, sizeof key, "%sP99Us", stages[i]);
        if (figure(status, key) <= 0)
            fail_msg("%s is %f", key, figure(status, key));
    }
    assert_int_equal(figure(status, "stageReplicaWaitP99Us"), 0); /* it waits for nobody */
    free(status);
}

/* what of a SYNC_MASTER's wait was the disk's, and what the slave's */
static void waiting_for_the_slave_is_a_stage_of_its_own(void **state)
{
    struct broker_set set;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, (const char *const[]){NULL});
    wire_make_topic(set_wire(&set, 0), "T", 1);
    for (int i = 0; i < 20; i++)
        wire_send(set_wire(&set, 0), "T", 0, "x", NULL);
    char *status =
        SET_MQADMIN(&set, 0, "brokerStatus", "-b", set.nodes[0].daemon.address, "--json");
    double flush = figure(status, "stageFlushWaitP50Us");
    double replica = figure(status, "stageReplicaWaitP50Us");
    if (flush <= 0 || replica <= 0)
        fail_msg("flush wait %f us, replica wait %f us", flush, replica);
    free(status);
    set_down(&set);
}

/* scanned per returned, from memory or from the disk, the cold lane */
static void what_reading_costs_is_in_the_status(void **state)
{
    (void)state;
    make_topic("Costly");
    for (int i = 0; i < 20; i++)
        wire_send(&wire, "Costly", 0, "body", i % 10 ? "TAGS\001B" : "TAGS\001A");
    wire_await_offset(&wire, "Costly", 0, 20);
    int64_t scanned = wire_status(&wire, "pullScannedTotal");
    int64_t returned = wire_status(&wire, "pullReturnedTotal");
    int64_t reads =
        wire_status(&wire, "pullFromMemoryTotal") + wire_status(&wire, "pullFromDiskTotal");
    Tern__Wire__PullRequest pull;
    wire_fill_pull(&pull, "Costly", 0, 0);
    pull.expression = (char *)(uintptr_t) "A";
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_expect(&wire, &request, NULL, 0, CODE(SUCCESS), NULL);
    char *status = status_json();
    assert_int_equal((int64_t)figure(status, "pullScannedTotal"), scanned + 20);
    assert_int_equal((int64_t)figure(status, "pullReturnedTotal"), returned + 2);
    assert_int_equal(
        (int64_t)(figure(status, "pullFromMemoryTotal") + figure(status, "pullFromDiskTotal")),
        reads + 1);
    double ratio = (double)(scanned + 20) / (double)(returned + 2);
    assert_true(fabs(figure(status, "pullScannedPerReturned") - ratio) < 0.006);
    assert_true(figure(status, "coldLaneQueueSize") >= 0);
    assert_true(figure(status, "getColdTimesTotal") >= figure(status, "pullFromDiskTotal"));
    free(status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_query_that_finds_nothing_says_what_was_searched),
        cmocka_unit_test(a_group_that_changes_its_expression_is_told_what_it_passed),
        cmocka_unit_test(progress_shows_what_each_member_was_given_and_denied),
        cmocka_unit_test(stages_of_a_send_are_in_the_status),
        cmocka_unit_test(waiting_for_the_slave_is_a_stage_of_its_own),
        cmocka_unit_test(what_reading_costs_is_in_the_status),
    };
    return cmocka_run_group_tests_name("evidence", tests, bring_up, take_down);
}
