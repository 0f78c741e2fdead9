/*
 * mqadmin's administration against real daemons: resets of groups with and without members, live
 * configuration, cleaning, listings, probes; columns for people and keys for scripts.
 */
#include <unistd.h>

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

static void make_topic(const char *topic, const char *queues)
{
    free(MQADMIN(&cluster, DONE, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", queues,
                 "-w", queues));
}

/* Sends lines to queue 0. */
static void send_lines(const char *topic, const char *lines)
{
    struct tool tool;
    tool_run(&tool, "mqadmin",
             (const char *const[]){"sendMessage", "-n", cluster.namesrv_list, "-t", topic,
                                   "--lines", "-b", "broker-a", "-i", "0", "-c", "TagA", NULL},
             lines, strlen(lines));
    if (tool.status != 0)
        fail_msg("sendMessage: %d: %s", tool.status, tool.err);
    tool_free(&tool);
}

static void expect_out(const char *part, int status, const char *const *args)
{
    char *out = mqadmin(&cluster, status, args);
    if (!strstr(out, part))
        fail_msg("%s: no \"%s\" in:\n%s", args[0], part, out);
    free(out);
}
#define EXPECT(part, ...) expect_out(part, DONE, (const char *const[]){__VA_ARGS__, NULL})

/* What goes to stderr, and the exit status. */
static void expect_refused(int status, const char *words, const char *const *args)
{
    struct tool tool;
    tool_run(&tool, "mqadmin", args, NULL, 0);
    if (tool.status != status || !strstr(tool.err, words))
        fail_msg("%s: exit status %d, expected %d with \"%s\":\n%s%s", args[0], tool.status, status,
                 words, tool.out, tool.err);
    tool_free(&tool);
}
#define REFUSED(status, words, ...)                                                                \
    expect_refused(status, words, (const char *const[]){__VA_ARGS__, NULL})

/* The group reads everything and leaves. */
static void consume_all(const char *topic, const char *group, const char *count)
{
    free(MQADMIN(&cluster, DONE, "consumeMessage", "-t", topic, "-g", group, "-c", count,
                 "--idle-exit", "20000", "--body-only"));
}

/* What the group reads next, `count` messages. */
static void expect_next(const char *topic, const char *group, const char *count,
                        const char *expected)
{
    char *out = MQADMIN(&cluster, DONE, "consumeMessage", "-t", topic, "-g", group, "-c", count,
                        "--idle-exit", "20000", "--body-only");
    assert_string_equal(out, expected);
    free(out);
}

/* ---- where groups stand ---- */

/* OF-08: the group has no member; back to the beginning of time, and ahead to the end */
static void offline_group_begins_where_it_was_reset_to(void **state)
{
    (void)state;
    make_topic("Off", "1");
    send_lines("Off", "m0\nm1\nm2\nm3\n");
    consume_all("Off", "off", "4");
    EXPECT("#oldOffset  #offset", "resetOffsetByTime", "-g", "off", "-t", "Off", "-s",
           "1971-01-01#00:00:00:000");
    expect_next("Off", "off", "2", "m0\nm1\n");
    EXPECT("\"offset\": 4", "resetOffsetByTime", "-g", "off", "-t", "Off", "-s", "4102444800000",
           "--json");
    send_lines("Off", "m4\n");
    expect_next("Off", "off", "1", "m4\n");
}

static void preview_shows_the_same_and_changes_nothing(void **state)
{
    (void)state;
    make_topic("Preview", "1");
    send_lines("Preview", "m0\nm1\nm2\n");
    consume_all("Preview", "preview", "3");
    EXPECT("would rollback", "resetOffsetByTime", "-g", "preview", "-t", "Preview", "-s", "0",
           "--dry-run");
    EXPECT("\"offset\": 0", "resetOffsetByTime", "-g", "preview", "-t", "Preview", "-s", "0",
           "--dry-run", "--json");
    EXPECT("\"diff\": 0", "consumerProgress", "-g", "preview", "--json");
    EXPECT("\"oldOffset\": 3", "resetOffsetByTime", "-g", "preview", "-t", "Preview", "--offset",
           "1", "-b", "broker-a", "-i", "0", "--json");
    expect_next("Preview", "preview", "2", "m1\nm2\n");
}

/* RocketMQ's isForce=false: never past messages that wait */
static void unforced_reset_goes_only_back(void **state)
{
    (void)state;
    make_topic("Unforced", "1");
    send_lines("Unforced", "m0\nm1\nm2\nm3\n");
    consume_all("Unforced", "unforced", "2");
    EXPECT("\"offset\": 2", "resetOffsetByTime", "-g", "unforced", "-t", "Unforced", "-s", "now",
           "-f", "false", "--json");
    EXPECT("\"offset\": 0", "resetOffsetByTime", "-g", "unforced", "-t", "Unforced", "-s", "0",
           "-f", "false", "--json");
    expect_next("Unforced", "unforced", "1", "m0\n");
}

/* OF-07: a pull of the group's member is parked at the end when the group is reset: it is told at
 * once, so that the member goes on from there although nothing comes */
static void reset_under_a_parked_pull_counts(void **state)
{
    struct wire wire;
    struct wire_pending parked;
    Tern__Wire__PullRequest pull = TERN__WIRE__PULL_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    (void)state;
    make_topic("Parked", "1");
    send_lines("Parked", "m0\nm1\nm2\nm3\nm4\n");
    consume_all("Parked", "parked", "5");
    wire_open(&wire, cluster.broker.address, "127.0.0.1@parked");
    wire_fill_pull(&pull, "Parked", 0, 5);
    pull.group = frame_bytes("parked", strlen("parked"));
    pull.suspend_timeout_ms = 60000;
    pull.has_commit = true;
    pull.commit_offset = 5;
    request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    request.pull = &pull;
    wire_start(&wire, &request, &parked);
    wire_await_status(&wire, "parkedPulls", 1);
    free(MQADMIN(&cluster, DONE, "resetOffsetByTime", "-g", "parked", "-t", "Parked", "--offset",
                 "1"));
    assert_true(wire_wait(&parked, PATIENCE_MS));
    rpc_call_unref(parked.call);
    wire_close(&wire);
    expect_next("Parked", "parked", "1", "m1\n");
}

static void skipped_backlog_and_cloned_progress_are_shown(void **state)
{
    (void)state;
    make_topic("Skip", "1");
    send_lines("Skip", "m0\nm1\nm2\n");
    consume_all("Skip", "skip", "1");
    EXPECT("\"offset\": 3", "skipAccumulatedMessage", "-g", "skip", "-t", "Skip", "--json");
    EXPECT("\"diff\": 0", "consumerProgress", "-g", "skip", "--json");
    EXPECT("clone group offset success. srcGroup[skip], destGroup=[copy], topic[Skip]",
           "cloneGroupOffset", "-s", "skip", "-d", "copy", "-t", "Skip");
    send_lines("Skip", "m3\n");
    expect_next("Skip", "copy", "1", "m3\n");
    REFUSED(NO, "no progress", "cloneGroupOffset", "-n", cluster.namesrv_list, "-s", "nobody", "-d",
            "copy", "-t", "Skip");
    REFUSED(NO, "GROUP_NOT_EXIST", "resetOffsetByTime", "-n", cluster.namesrv_list, "-g", "nobody",
            "-t", "Skip", "-s", "now");
    REFUSED(USAGE, "-s and --offset", "resetOffsetByTime", "-g", "g", "-t", "Skip");
    REFUSED(USAGE, "yyyy-MM-dd", "resetOffsetByTime", "-g", "g", "-t", "Skip", "-s", "yesterday");
    REFUSED(USAGE, "-b BROKER", "resetOffsetByTime", "-g", "g", "-t", "Skip", "--offset", "1", "-i",
            "0");
}

static void group_is_deleted_with_its_retry_topic(void **state)
{
    (void)state;
    make_topic("Del", "1");
    send_lines("Del", "m0\n");
    consume_all("Del", "del", "1");
    EXPECT("SubscriptionGroupConfig [groupName=del, consumeEnable=true", "updateSubGroup", "-c",
           "DefaultCluster", "-g", "del", "-r", "3");
    EXPECT("retryMaxTimes                           =  3", "getConsumerConfig", "-g", "del");
    EXPECT("subscriptionConsistency                 =  warn", "getConsumerConfig", "-g", "del");
    free(MQADMIN(&cluster, DONE, "deleteSubGroup", "-c", "DefaultCluster", "-g", "del", "-r",
                 "true"));
    REFUSED(NO, "no broker has", "getConsumerConfig", "-n", cluster.namesrv_list, "-g", "del");
    char *topics = MQADMIN(&cluster, DONE, "topicList");
    assert_null(strstr(topics, "%RETRY%del"));
    free(topics);
}

/* ---- configuration ---- */

static void set_key(int status, const char *key, const char *value, const char *words)
{
    struct tool tool;
    tool_run(&tool, "mqadmin",
             (const char *const[]){"updateBrokerConfig", "-n", cluster.namesrv_list, "-b",
                                   cluster.broker.address, "-k", key, "-v", value, NULL},
             NULL, 0);
    if (tool.status != status || !(strstr(tool.out, words) || strstr(tool.err, words)))
        fail_msg("%s=%s: %d: %s%s", key, value, tool.status, tool.out, tool.err);
    tool_free(&tool);
}

/* The permission is asked before each send and each pull, and shown by the route. */
static void live_key_takes_effect_at_once_and_is_shown(void **state)
{
    (void)state;
    make_topic("Live", "1");
    set_key(DONE, "brokerPermission", "4", "6 -> 4, until this broker restarts");
    REFUSED(NO, "", "sendMessage", "-n", cluster.namesrv_list, "-t", "Live", "-p", "x");
    EXPECT("\"perm\": 4", "topicRoute", "-t", "Live");
    EXPECT("brokerPermission                                  =  4  (changed since the start)",
           "getBrokerConfig", "-b", cluster.broker.address);
    set_key(DONE, "brokerPermission", "6", "4 -> 6");
    free(MQADMIN(&cluster, DONE, "sendMessage", "-t", "Live", "-p", "x"));
    set_key(DONE, "fileReservedTime", "48h", "3d -> 2d");
    EXPECT("\"fileReservedTime\": \"2d\"", "getBrokerConfig", "-c", "DefaultCluster", "--json");
}

/* SE-02: paths, unknown keys, values with control characters or out of range: nothing changes */
static void key_that_is_not_live_is_refused(void **state)
{
    char *before = MQADMIN(&cluster, DONE, "getBrokerConfig", "-c", "DefaultCluster");
    (void)state;
    set_key(NO, "storePathRootDir", "/tmp/elsewhere", "cannot be changed");
    set_key(NO, "storePathRootDir", "../up", "cannot be changed");
    set_key(NO, "listenAddr", "0.0.0.0", "cannot be changed");
    set_key(NO, "noSuchKey", "$(touch x)", "unknown key");
    set_key(NO, "transientStorePoolEnable", "true", "not offered");
    set_key(NO, "brokerPermission", "9", "0..7");
    set_key(NO, "brokerPermission", "6\nlistenAddr: 0.0.0.0", "brokerPermission");
    set_key(NO, "deleteWhen", "25", "deleteWhen");
    set_key(NO, "diskMaxUsedSpaceRatio", "95", "does not hold");
    char *after = MQADMIN(&cluster, DONE, "getBrokerConfig", "-c", "DefaultCluster");
    assert_string_equal(before, after);
    free(before);
    free(after);
    REFUSED(NO, "not offered", "updateNamesrvConfig", "-k", "x", "-v", "y");
    EXPECT("kvConfigPath", "getNamesrvConfig");
}

/* ---- looking ---- */

static void queues_are_printed_by_range_tag_and_count(void **state)
{
    (void)state;
    make_topic("Print", "2");
    send_lines("Print", "p0\np1\np2\n");
    EXPECT("minOffset=0, maxOffset=3, MessageQueue [topic=Print, brokerName=broker-a, queueId=0]",
           "printMsg", "-t", "Print");
    EXPECT("BODY: p2", "printMsg", "-t", "Print", "-s", "TagA");
    char *none = MQADMIN(&cluster, DONE, "printMsg", "-t", "Print", "-s", "TagB", "--json");
    assert_string_equal(none, "");
    free(none);
    none = MQADMIN(&cluster, DONE, "printMsg", "-t", "Print", "-b", "now", "--json");
    assert_string_equal(none, "");
    free(none);
    EXPECT("BODY: p2", "printMsg", "-t", "Print", "-e", "now");
    none = MQADMIN(&cluster, DONE, "printMsg", "-t", "Print", "-e", "1000", "--json");
    assert_string_equal(none, "");
    free(none);
    EXPECT("Tag: TagA                           Count: 3", "printMsgByQueue", "-t", "Print", "-a",
           "broker-a", "-i", "0", "-f", "true");
    EXPECT("p0\np1\np2\n", "consumeMessage", "-t", "Print", "-e", "now", "--body-only");
    EXPECT("", "consumeMessage", "-t", "Print", "-s", "0", "-e", "1000", "--body-only");
    EXPECT("max: 3, min: 0", "queryCq", "-t", "Print", "-q", "0", "-i", "1");
    REFUSED(NO, "no such queue", "printMsgByQueue", "-n", cluster.namesrv_list, "-t", "Print", "-a",
            "broker-a", "-i", "9");
}

static void topic_permission_changes_and_nothing_else_of_it(void **state)
{
    (void)state;
    make_topic("Perm", "3");
    EXPECT("update topic perm from RW- to R-- in", "updateTopicPerm", "-c", "DefaultCluster", "-t",
           "Perm", "-p", "4");
    EXPECT("new perm equals to the old one!", "updateTopicPerm", "-b", cluster.broker.address, "-t",
           "Perm", "-p", "4");
    EXPECT("\"writeQueueNums\": 3", "topicRoute", "-t", "Perm");
    EXPECT("DefaultCluster", "topicClusterList", "-t", "Perm");
    EXPECT("\"queueId\": 2", "allocateMQ", "-t", "Perm", "-i", "b,a");
}

static void probes_are_counted_and_timed(void **state)
{
    (void)state;
    make_topic("Probe", "1");
    EXPECT("Avg RT: ", "checkMsgSendRT", "-t", "Probe", "-a", "3");
    EXPECT("SendResult [sendStatus=SEND_OK", "sendMsgStatus", "-b", "broker-a", "-c", "2");
    EXPECT("\"successCount\": 3", "clusterRT", "-a", "3", "--json");
}

static void commands_without_a_row_say_why(void **state)
{
    (void)state;
    REFUSED(NO, "no access control", "updateAclConfig");
    REFUSED(NO, "no access control", "help", "deleteAclConfig");
    REFUSED(USAGE, "The sub command nonsense not exist.", "nonsense");
    REFUSED(USAGE, "see mqadmin help topicList", "topicList", "--nonsense");
    REFUSED(NO, "traceTopicEnable", "queryMsgTraceById", "-n", cluster.namesrv_list, "-i", "7F00");
    REFUSED(NO, "traceTopicEnable", "queryMsgTrace", "-n", cluster.namesrv_list, "-i", "7F00");
    REFUSED(USAGE, "The sub command nonsense not exist.", "help", "nonsense");
}

/* Every listing with the keys that scripts hold on to */
static void listings_have_their_columns_and_keys(void **state)
{
    static const struct {
        const char *args[6], *column, *key;
    } listings[] = {
        {{"clusterList"}, "#InTPS(LOAD)", "\"inTps\""},
        {{"clusterList", "-m"}, "#InTotalToday", "\"outTotalToday\""},
        {{"brokerConsumeStats", "-b", "BROKER"}, "#Consumer Offset", "\"diff\""},
        {{"statsAll", "-t", "List"}, "#Accumulation", "\"inMsg24Hour\""},
        {{"consumerProgress"}, "#Diff Total", "\"diffTotal\""},
        {{"cleanExpiredCQ"}, "success", "\"ok\""},
        {{"cleanUnusedTopic", "-c", "DefaultCluster"}, "0 topics removed", "\"removed\""},
        {{"deleteExpiredCommitLog"}, "segments removed", "\"removed\""},
        {{"queryCq", "-t", "List", "-q", "0"}, "#TagsCode", "\"commitLogOffset\""},
    };
    (void)state;
    make_topic("List", "1");
    send_lines("List", "m0\n");
    consume_all("List", "list", "1");
    for (size_t i = 0; i < sizeof listings / sizeof listings[0]; i++) {
        const char *args[9] = {NULL};
        size_t n = 0;
        for (; n < 6 && listings[i].args[n]; n++)
            args[n] = strcmp(listings[i].args[n], "BROKER") ? listings[i].args[n]
                                                            : cluster.broker.address;
        if (!strcmp(args[0], "queryCq")) {
            args[n++] = "-i";
            args[n++] = "0";
        }
        expect_out(listings[i].column, DONE, args);
        args[n] = "--json";
        expect_out(listings[i].key, DONE, args);
    }
}

static void metadata_and_configurations_are_exported(void **state)
{
    char dir[DAEMON_PATH_BYTES], path[DAEMON_PATH_BYTES + 32];
    (void)state;
    make_topic("Exported", "1");
    snprintf(dir, sizeof dir, "%s/export", cluster.dir);
    free(MQADMIN(&cluster, DONE, "updateSubGroup", "-c", "DefaultCluster", "-g", "exported",
                 "--subscriptionConsistency", "refuse"));
    EXPECT("metadata.json success", "exportMetadata", "-c", "DefaultCluster", "-f", dir);
    EXPECT("configs.json success", "exportConfigs", "-c", "DefaultCluster", "-f", dir);
    EXPECT("metrics.json success", "exportMetrics", "-c", "DefaultCluster", "-f", dir);
    snprintf(path, sizeof path, "%s/metadata.json", dir);
    assert_true(file_contains(path, "Exported"));
    assert_true(file_contains(path, "\"subscriptionConsistency\": 1"));
    snprintf(path, sizeof path, "%s/configs.json", dir);
    assert_true(file_contains(path, "fileReservedTime"));
}

/* ---- completion ---- */

static void expect_completion(const char *words, size_t at, const char *expected)
{
    char script[1024];
    struct tool tool;
    snprintf(script, sizeof script,
             "source <('%s/mqadmin' --completion); COMP_WORDS=(mqadmin %s); COMP_CWORD=%zu; "
             "_mqadmin; printf '%%s\\n' \"${COMPREPLY[@]}\"",
             BIN_DIR, words, at);
    tool_run(&tool, "/bin/bash", (const char *const[]){"-c", script, NULL}, NULL, 0);
    if (tool.status != 0 || tool.err_size || !strstr(tool.out, expected))
        fail_msg("completing '%s': %d, no \"%s\" in: %s%s", words, tool.status, expected, tool.out,
                 tool.err);
    tool_free(&tool);
}

static void bash_completes_commands_options_and_values(void **state)
{
    (void)state;
    if (access("/bin/bash", X_OK) != 0)
        skip();
    expect_completion("rese", 1, "resetOffsetByTime\n");
    expect_completion("help skip", 2, "skipAccumulatedMessage\n");
    expect_completion("resetOffsetByTime --dr", 2, "--dry-run\n");
    expect_completion("updateSubGroup -s ''", 3, "true\nfalse\n");
    expect_completion("topicRoute --", 2, "--json\n");
}

/* The next word of a list separated by spaces; false: none left. */
static bool next_word(const char **list, char out[64])
{
    *list += strspn(*list, " ");
    size_t len = strcspn(*list, " \"");
    assert_true(len < 64);
    snprintf(out, 64, "%.*s", (int)len, *list);
    *list += len;
    return len > 0;
}

static void every_command_has_help_with_an_example_json_and_completion(void **state)
{
    char name[64], part[96];
    struct tool all, help;
    size_t count = 0;
    (void)state;
    tool_run(&all, "mqadmin", (const char *const[]){"--completion", NULL}, NULL, 0);
    assert_int_equal(all.status, 0);
    const char *list = strstr(all.out, "local commands=\"");
    assert_non_null(list);
    list += strlen("local commands=\"");
    while (next_word(&list, name)) {
        count++;
        tool_run(&help, "mqadmin", (const char *const[]){"help", name, NULL}, NULL, 0);
        snprintf(part, sizeof part, "example: mqadmin %s", name);
        if (help.status != 0 || !strstr(help.out, part) || !strstr(help.out, "--json"))
            fail_msg("help %s: %s", name, help.out);
        tool_free(&help);
        snprintf(part, sizeof part, "\n    %s)\n", name);
        if (!strstr(all.out, part))
            fail_msg("completion of %s", name);
    }
    assert_true(count > 50);
    tool_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offline_group_begins_where_it_was_reset_to),
        cmocka_unit_test(preview_shows_the_same_and_changes_nothing),
        cmocka_unit_test(unforced_reset_goes_only_back),
        cmocka_unit_test(reset_under_a_parked_pull_counts),
        cmocka_unit_test(skipped_backlog_and_cloned_progress_are_shown),
        cmocka_unit_test(group_is_deleted_with_its_retry_topic),
        cmocka_unit_test(live_key_takes_effect_at_once_and_is_shown),
        cmocka_unit_test(key_that_is_not_live_is_refused),
        cmocka_unit_test(queues_are_printed_by_range_tag_and_count),
        cmocka_unit_test(topic_permission_changes_and_nothing_else_of_it),
        cmocka_unit_test(probes_are_counted_and_timed),
        cmocka_unit_test(commands_without_a_row_say_why),
        cmocka_unit_test(listings_have_their_columns_and_keys),
        cmocka_unit_test(metadata_and_configurations_are_exported),
        cmocka_unit_test(bash_completes_commands_options_and_values),
        cmocka_unit_test(every_command_has_help_with_an_example_json_and_completion),
    };
    return cmocka_run_group_tests_name("admin", tests, set_up, tear_down);
}
