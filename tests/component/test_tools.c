/*
 * mqadmin and what it shows of a cluster: exit codes by class, looking messages up, write
 * permission, key-value configuration.
 */
#include <signal.h>
#include <unistd.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

/* RocketMQ's exit classes here: done, no, wrong usage, nobody reached. */
enum { DONE, NO, USAGE, UNREACHED };

static struct cluster cluster;

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster, (const char *const[]){"mappedFileSizeCommitLog=64MiB", NULL});
    free(MQADMIN(&cluster, DONE, "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "4", "-w",
                 "4"));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_down(&cluster);
    return 0;
}

/* ---- exit codes ---- */

/* Data on stdout, errors on stderr, one line each. */
static void expect_exit(const char *program, int status, const char *words, const char *const *args)
{
    struct tool tool;
    tool_run(&tool, program, args, NULL, 0);
    if (tool.status != status || (words && !strstr(tool.err, words)))
        fail_msg("%s %s %s %s: exit status %d, expected %d with \"%s\":\n%s%s", program,
                 args[0] ? args[0] : "", args[0] && args[1] ? args[1] : "",
                 args[0] && args[1] && args[2] ? args[2] : "", tool.status, status,
                 words ? words : "", tool.out, tool.err);
    tool_free(&tool);
}

#define EXPECT_EXIT(status, words, ...)                                                            \
    expect_exit("mqadmin", status, words, (const char *const[]){__VA_ARGS__, NULL})
#define EXPECT_BENCH_EXIT(status, words, ...)                                                      \
    expect_exit("mqbench", status, words, (const char *const[]){__VA_ARGS__, NULL})

static void wrong_usage_ends_with_2_and_names_the_option(void **state)
{
    (void)state;
    EXPECT_EXIT(USAGE, "noSuchCommand", "noSuchCommand");
    EXPECT_EXIT(USAGE, "-t", "sendMessage", "-p", "x");
    EXPECT_EXIT(USAGE, "-p", "sendMessage", "-t", "T");
    EXPECT_EXIT(USAGE, "-p", "sendMessage", "-t", "T", "-p", "x", "--lines");
    EXPECT_EXIT(USAGE, "-i", "sendMessage", "-t", "T", "-p", "x", "-b", "broker-a");
    EXPECT_EXIT(USAGE, "qid", "sendMessage", "-t", "T", "-p", "x", "-b", "broker-a", "-i", "one");
    EXPECT_EXIT(USAGE, "readQueueNums", "updateTopic", "-c", "C", "-t", "T", "-r", "0");
    EXPECT_EXIT(USAGE, "readQueueNums", "updateTopic", "-c", "C", "-t", "T", "-r", "4x");
    EXPECT_EXIT(USAGE, "-c", "updateTopic", "-t", "T");
    EXPECT_EXIT(USAGE, "Z", "topicList", "-Z");
    EXPECT_EXIT(USAGE, "extra", "topicList", "extra");
    EXPECT_EXIT(USAGE, "from", "consumeMessage", "-t", "T", "--from", "yesterday");
    EXPECT_EXIT(USAGE, "count", "consumeMessage", "-t", "T", "-c", "-1");
    EXPECT_EXIT(USAGE, "'i'", "queryMsgById", "-i");
    EXPECT_EXIT(USAGE, "zzz", "queryMsgById", "-i", "zzz");
    EXPECT_EXIT(USAGE, "-n", "topicList", "-n", "no port");
    EXPECT_EXIT(USAGE, "-b", "brokerStatus", "-b", "no port");
}

/* What the library refuses is said in its words */
static void group_that_cannot_be_is_refused_with_the_reason(void **state)
{
    (void)state;
    EXPECT_EXIT(NO, "DEFAULT_CONSUMER is reserved", "consumeMessage", "-n", cluster.namesrv_list,
                "-t", "T", "-g", "DEFAULT_CONSUMER");
    EXPECT_EXIT(NO, "begins with %RETRY%", "consumeMessage", "-n", cluster.namesrv_list, "-t", "T",
                "-g", "%RETRY%g");
    EXPECT_EXIT(NO, "begins with %DLQ%", "updateSubGroup", "-n", cluster.namesrv_list, "-c",
                "DefaultCluster", "-g", "%DLQ%g");
}

static void answer_that_says_no_ends_with_1(void **state)
{
    const char *ns = cluster.namesrv_list;
    (void)state;
    EXPECT_EXIT(NO, "Absent", "topicRoute", "-n", ns, "-t", "Absent");
    EXPECT_EXIT(NO, "Absent", "topicStatus", "-n", ns, "-t", "Absent");
    EXPECT_EXIT(NO, "Absent", "sendMessage", "-n", ns, "-t", "Absent", "-p", "x");
    EXPECT_EXIT(NO, "Absent", "consumeMessage", "-n", ns, "-t", "Absent", "--idle-exit", "100");
    EXPECT_EXIT(NO, "Absent", "deleteTopic", "-n", ns, "-c", "DefaultCluster", "-t", "Absent");
    EXPECT_EXIT(NO, "NoCluster", "updateTopic", "-n", ns, "-c", "NoCluster", "-t", "T");
    EXPECT_EXIT(NO, "topic name", "updateTopic", "-n", ns, "-c", "DefaultCluster", "-t", "a/b");
    EXPECT_EXIT(NO, "nobody", "consumerProgress", "-n", ns, "-g", "nobody");
    EXPECT_EXIT(NO, "no-such", "wipeWritePerm", "-n", ns, "-b", "no-such");
    EXPECT_EXIT(NO, NULL, "sendMessage", "-n", ns, "-t", "T", "-p", "x", "-b", "broker-a", "-i",
                "4");
    EXPECT_EXIT(NO, NULL, "queryMsgByKey", "-n", ns, "-t", "T", "-k", "nokey");
    EXPECT_EXIT(NO, "17", "queryMsgByOffset", "-n", ns, "-t", "T", "-b", "broker-a", "-i", "0",
                "-o", "17");
    EXPECT_EXIT(NO, NULL, "getKvConfig", "-n", ns, "-s", "NS", "-k", "absent");
    EXPECT_EXIT(NO, "||", "consumeMessage", "-n", ns, "-t", "T", "--expr", "||");
}

static void nobody_reached_ends_with_3(void **state)
{
    (void)state;
    EXPECT_EXIT(UNREACHED, "127.0.0.1:1", "topicList", "-n", "127.0.0.1:1");
    EXPECT_EXIT(UNREACHED, "127.0.0.1:1", "brokerStatus", "-b", "127.0.0.1:1", "-n",
                cluster.namesrv_list);
    EXPECT_EXIT(UNREACHED, NULL, "sendMessage", "-n", "127.0.0.1:1", "-t", "T", "-p", "x");
    EXPECT_EXIT(UNREACHED, "broker-z", "sendMessage", "-n", cluster.namesrv_list, "-t", "T", "-p",
                "x", "-b", "broker-z", "-i", "0");
    EXPECT_EXIT(UNREACHED, NULL, "consumeMessage", "-n", "127.0.0.1:1", "-t", "T", "--idle-exit",
                "500");
}

/* -n with a broker's address: the answer says that it is no nameserver, and what -n wants */
static void broker_where_a_nameserver_is_wanted_is_told_as_one(void **state)
{
    static const char words[] = "this is broker broker-a, no nameserver";
    const char *broker = cluster.broker.address;
    char both[160];
    (void)state;
    snprintf(both, sizeof both, "%s;%s", broker, broker);
    EXPECT_EXIT(NO, words, "topicList", "-n", broker);
    EXPECT_EXIT(NO, words, "clusterList", "-n", both);
    EXPECT_EXIT(NO, words, "topicRoute", "-n", broker, "-t", "T");
    EXPECT_EXIT(NO, words, "updateTopic", "-n", broker, "-c", "DefaultCluster", "-t", "T");
    EXPECT_EXIT(NO, words, "updateKvConfig", "-n", broker, "-s", "S", "-k", "k", "-v", "v");
    EXPECT_EXIT(NO, words, "sendMessage", "-n", broker, "-t", "T", "-p", "x");
    EXPECT_EXIT(NO, words, "consumeMessage", "-n", broker, "-t", "T", "--idle-exit", "500");
    EXPECT_EXIT(NO, words, "consumeMessage", "-n", broker, "-t", "T", "-g", "g", "--idle-exit",
                "500");
    EXPECT_EXIT(NO, words, "getNamesrvConfig", "-n", broker);
    EXPECT_BENCH_EXIT(NO, words, "produce", "-n", broker, "-t", "B", "--count", "1");
    EXPECT_BENCH_EXIT(NO, words, "verify", "-n", broker, "-t", "B", "--count", "1", "--drain",
                      "0.1");
}

/* Silence of a cluster that is not there is not the same as no messages */
static void member_that_reaches_nobody_ends_with_3(void **state)
{
    (void)state;
    EXPECT_EXIT(UNREACHED, NULL, "consumeMessage", "-n", "127.0.0.1:1", "-t", "T", "-g", "lonely",
                "--idle-exit", "500");
    EXPECT_EXIT(NO, "Absent", "consumeMessage", "-n", cluster.namesrv_list, "-t", "Absent", "-g",
                "lonely", "--idle-exit", "500");
}

static int continue_nameserver(void **state)
{
    (void)state;
    return kill(cluster.namesrv.pid, SIGCONT);
}

/* The two are mended differently. */
static void stopped_nameserver_is_told_apart_from_one_that_is_gone(void **state)
{
    (void)state;
    assert_int_equal(kill(cluster.namesrv.pid, SIGSTOP), 0);
    EXPECT_EXIT(UNREACHED, "cannot be reached: somebody listens there, but does not answer",
                "clusterList", "-n", cluster.namesrv_list);
    char list[128];
    snprintf(list, sizeof list, "%s;127.0.0.1:1", cluster.namesrv_list);
    EXPECT_EXIT(UNREACHED, "somebody listens there, but does not answer", "clusterList", "-n",
                list);
    EXPECT_EXIT(UNREACHED, "127.0.0.1:1: cannot be reached: nobody listens there", "clusterList",
                "-n", list);
    EXPECT_EXIT(UNREACHED, "127.0.0.1:1: cannot be reached: nobody listens there\n", "clusterList",
                "-n", "127.0.0.1:1");
}

/* What fails each second is said once, until it changes or some time has passed. */
static void bench_does_not_repeat_itself_while_it_tries(void **state)
{
    static const char *const args[] = {"verify", "-n",      "127.0.0.1:1", "-t",
                                       "Nobody", "--drain", "3",           NULL};
    struct tool tool;
    (void)state;
    tool_run(&tool, "mqbench", args, NULL, 0);
    assert_int_equal(tool.status, UNREACHED);
    const char *line = strstr(tool.err, "mqbench: Nobody: ");
    assert_non_null(line);
    if (strstr(line + 1, "mqbench: Nobody: "))
        fail_msg("said more than once:\n%s", tool.err);
    tool_free(&tool);
}

static void bench_ends_with_the_same_classes(void **state)
{
    static const char *const modes[] = {"produce", "consume", "pingpong", "verify"};
    (void)state;
    EXPECT_BENCH_EXIT(USAGE, "mode", "nonsense");
    EXPECT_BENCH_EXIT(USAGE, "-t", "produce");
    EXPECT_BENCH_EXIT(USAGE, "size", "produce", "-t", "B", "--size", "-1");
    EXPECT_BENCH_EXIT(USAGE, "mode", "produce", "-t", "B", "--mode", "fast");
    EXPECT_BENCH_EXIT(USAGE, "extra", "echo", "extra");
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        EXPECT_BENCH_EXIT(UNREACHED, "127.0.0.1:1", modes[i], "-n", "127.0.0.1:1", "-t", "B",
                          "--count", "1", "--drain", "0.1"); /* verify tries for so long */
}

/* More than one connection carries: what finds no room waits, and every message is sent once. */
static void bench_keeps_as_many_frames_under_way_as_there_is_room_for(void **state)
{
    static const char *const args[] = {"produce", "-n",      NULL,          "-t",     "Full",
                                       "--mode",  "async",   "--in-flight", "4096",   "--producers",
                                       "2",       "--count", "30000",       "--size", "8",
                                       "--json",  NULL};
    const char *own[sizeof args / sizeof args[0]];
    struct tool tool;
    (void)state;
    memcpy(own, args, sizeof args);
    own[2] = cluster.namesrv_list;
    tool_run(&tool, "mqbench", own, NULL, 0);
    if (tool.status != 0 || !strstr(tool.out, "\"messages\":30000") ||
        !strstr(tool.out, "\"errors\":0"))
        fail_msg("status %d: %s%s", tool.status, tool.out, tool.err);
    tool_free(&tool);
}

static void help_and_version_end_with_0_on_stdout(void **state)
{
    static const char *const programs[] = {"mqadmin", "mqbroker", "mqnamesrv", "mqbench"};
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        struct tool tool;
        tool_run(&tool, programs[i], (const char *const[]){"--help", NULL}, NULL, 0);
        assert_int_equal(tool.status, DONE);
        assert_true(tool.out_size > 0 && tool.err_size == 0);
        tool_free(&tool);
        tool_run(&tool, programs[i], (const char *const[]){"--version", NULL}, NULL, 0);
        assert_int_equal(tool.status, DONE);
        assert_contains(tool.out, programs[i]);
        tool_free(&tool);
    }
}

/* ---- looking up ---- */

static void make_topic(const char *topic, const char *queues)
{
    free(MQADMIN(&cluster, DONE, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", queues,
                 "-w", queues));
}

/* The value of a "key": "value" or "key": number pair of JSON text, terminated in `out`. */
static void json_value(const char *json, const char *key, char *out, size_t size)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\"", key);
    const char *at = strstr(json, quoted);
    if (!at)
        fail_msg("no %s in: %s", key, json);
    at += strlen(quoted);
    at += strspn(at, ": \"");
    snprintf(out, size, "%.*s", (int)strcspn(at, "\",}\n"), at);
}

/* A-1, S-4 */
static void message_is_found_by_id_by_key_by_unique_id_and_by_offset(void **state)
{
    char offset_id[64], id[64];
    (void)state;
    make_topic("Found", "1");
    char *sent = MQADMIN(&cluster, DONE, "sendMessage", "-t", "Found", "-p", "needle", "-c", "Tag",
                         "-k", "key-1 key-2", "--property", "colour=red", "--json");
    json_value(sent, "offsetMsgId", offset_id, sizeof offset_id);
    json_value(sent, "msgId", id, sizeof id);
    free(sent);
    char *shown = MQADMIN(&cluster, DONE, "queryMsgById", "-i", offset_id);
    assert_contains(shown, "needle");
    assert_contains(shown, "Tag");
    assert_contains(shown, "red");
    free(shown);
    shown = MQADMIN(&cluster, DONE, "queryMsgByOffset", "-t", "Found", "-b", "broker-a", "-i", "0",
                    "-o", "0");
    assert_contains(shown, "needle");
    free(shown);
    const char *const keys[] = {"key-1", "key-2", id};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        shown = MQADMIN(&cluster, DONE, "queryMsgByKey", "-t", "Found", "-k", keys[i]);
        assert_contains(shown, id);
        free(shown);
    }
    shown = MQADMIN(&cluster, DONE, "queryMsgByUniqueKey", "-t", "Found", "-i", id);
    assert_contains(shown, "needle");
    free(shown);
    EXPECT_EXIT(NO, "mqadmin why", "queryMsgByUniqueKey", "-n", cluster.namesrv_list, "-t", "Found",
                "-i", "C0000202014E97C38F18F4C3B1670000");
    EXPECT_EXIT(NO, "indexed", "queryMsgByKey", "-n", cluster.namesrv_list, "-t", "Found", "-k",
                "key-3");
}

/* ---- the cluster ---- */

/* N-3 */
static void wiped_write_permission_stops_senders_until_it_is_restored(void **state)
{
    (void)state;
    make_topic("Wiped", "1");
    free(MQADMIN(&cluster, DONE, "sendMessage", "-t", "Wiped", "-p", "before"));
    free(MQADMIN(&cluster, DONE, "wipeWritePerm", "-b", "broker-a"));
    EXPECT_EXIT(NO, "wipeWritePerm", "sendMessage", "-n", cluster.namesrv_list, "-t", "Wiped", "-p",
                "while");
    char *read = MQADMIN(&cluster, DONE, "consumeMessage", "-t", "Wiped", "--body-only", "-c", "1",
                         "--idle-exit", "10000");
    assert_string_equal(read, "before\n");
    free(read);
    free(MQADMIN(&cluster, DONE, "addWritePerm", "-b", "broker-a"));
    free(MQADMIN(&cluster, DONE, "sendMessage", "-t", "Wiped", "-p", "after"));
}

static void kv_configuration_is_set_shown_and_deleted(void **state)
{
    (void)state;
    free(MQADMIN(&cluster, DONE, "updateKvConfig", "-s", "NS", "-k", "one", "-v", "1"));
    free(MQADMIN(&cluster, DONE, "updateKvConfig", "-s", "NS", "-k", "two", "-v", "z w e i"));
    char *shown = MQADMIN(&cluster, DONE, "getKvConfig", "-s", "NS");
    assert_contains(shown, "one");
    assert_contains(shown, "z w e i");
    free(shown);
    free(MQADMIN(&cluster, DONE, "deleteKvConfig", "-s", "NS", "-k", "one"));
    free(MQADMIN(&cluster, NO, "getKvConfig", "-s", "NS", "-k", "one"));
    shown = MQADMIN(&cluster, DONE, "getKvConfig", "-s", "NS", "-k", "two");
    assert_contains(shown, "z w e i");
    free(shown);
}

/* MD-05 by the tools; C-4: the route shows the topic when the command returns */
static void deleted_topic_is_gone_from_broker_nameserver_and_groups(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        make_topic("Gone", "1");
        for (int i = 0; i < 3; i++)
            free(MQADMIN(&cluster, DONE, "sendMessage", "-t", "Gone", "-p", "again"));
        char *read = MQADMIN(&cluster, DONE, "consumeMessage", "-t", "Gone", "-g", "goners",
                             "--body-only", "-c", "3", "--idle-exit", "10000");
        assert_string_equal(read, "again\nagain\nagain\n");
        free(read);
        free(MQADMIN(&cluster, DONE, "deleteTopic", "-c", "DefaultCluster", "-t", "Gone"));
        free(MQADMIN(&cluster, NO, "topicRoute", "-t", "Gone"));
        char *list = MQADMIN(&cluster, DONE, "topicList");
        assert_null(strstr(list, "Gone\n"));
        free(list);
    }
}

/* Every command takes --json, and what it prints is read back by a JSON reader's first look */
static void every_listing_speaks_json(void **state)
{
    static const char *const commands[][6] = {
        {"clusterList"},
        {"topicList"},
        {"topicRoute", "-t", "T"},
        {"topicStatus", "-t", "T"},
        {"brokerStatus", "-c", "DefaultCluster"},
        {"getBrokerConfig", "-c", "DefaultCluster"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const char *args[8] = {NULL};
        size_t n = 0;
        for (; commands[i][n]; n++)
            args[n] = commands[i][n];
        args[n] = "--json";
        char *out = mqadmin(&cluster, DONE, args);
        size_t len = strlen(out);
        assert_true(out[0] == '[' || out[0] == '{');
        assert_true(len > 2 && out[len - 1] == '\n' &&
                    (out[len - 2] == ']' || out[len - 2] == '}'));
        free(out);
    }
}

/* A client of the wire protocol that shares nothing with ours, when Python is there */
static void client_written_from_the_protocol_page_works(void **state)
{
    static const char script[] = SOURCE_DIR "/tests/protocol/mini_client.py";
    struct tool tool;
    (void)state;
    if (access("/usr/bin/python3", X_OK) != 0 || access(script, R_OK) != 0)
        skip();
    make_topic("Mini", "1");
    tool_run(&tool, "/usr/bin/python3",
             (const char *const[]){script, cluster.broker.address, "Mini", NULL}, NULL, 0);
    if (tool.status != 0)
        fail_msg("exit status %d: %s%s", tool.status, tool.out, tool.err);
    tool_free(&tool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_usage_ends_with_2_and_names_the_option),
        cmocka_unit_test(answer_that_says_no_ends_with_1),
        cmocka_unit_test(group_that_cannot_be_is_refused_with_the_reason),
        cmocka_unit_test(nobody_reached_ends_with_3),
        cmocka_unit_test(member_that_reaches_nobody_ends_with_3),
        cmocka_unit_test(broker_where_a_nameserver_is_wanted_is_told_as_one),
        cmocka_unit_test_teardown(stopped_nameserver_is_told_apart_from_one_that_is_gone,
                                  continue_nameserver),
        cmocka_unit_test(bench_does_not_repeat_itself_while_it_tries),
        cmocka_unit_test(bench_ends_with_the_same_classes),
        cmocka_unit_test(bench_keeps_as_many_frames_under_way_as_there_is_room_for),
        cmocka_unit_test(help_and_version_end_with_0_on_stdout),
        cmocka_unit_test(message_is_found_by_id_by_key_by_unique_id_and_by_offset),
        cmocka_unit_test(wiped_write_permission_stops_senders_until_it_is_restored),
        cmocka_unit_test(kv_configuration_is_set_shown_and_deleted),
        cmocka_unit_test(deleted_topic_is_gone_from_broker_nameserver_and_groups),
        cmocka_unit_test(every_listing_speaks_json),
        cmocka_unit_test(client_written_from_the_protocol_page_works),
    };
    return cmocka_run_group_tests_name("tools", tests, set_up, tear_down);
}
