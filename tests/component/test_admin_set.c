/*
 * mqadmin while a member of a set is dead or stopped: what others of the set know is told all the
 * same, and what is missing is said.
 */
#include <signal.h>

#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

enum { DONE, NO, USAGE, UNREACHED };

static struct broker_set set;

static int bring_up(void **state)
{
    (void)state;
    set_up(
        &set, "SYNC_MASTER", 1,
        (const char *const[]){"mappedFileSizeCommitLog=1MiB", "flushDiskType=ASYNC_FLUSH", NULL});
    wire_make_topic(set_wire(&set, 0), "T", 1);
    return 0;
}

static int take_down(void **state)
{
    (void)state;
    set_down(&set);
    return 0;
}

/* The exit status, and these words on stdout and stderr (NULL: any). */
static void expect_tool(int status, const char *out, const char *err, const char *const *args)
{
    struct tool tool;
    const char *all[24] = {args[0], "-n", set.namesrv_list};
    for (size_t i = 1; args[i]; i++) {
        assert_true(i < 20);
        all[i + 2] = args[i];
    }
    tool_run(&tool, "mqadmin", all, NULL, 0);
    if (tool.status != status || (out && !strstr(tool.out, out)) || (err && !strstr(tool.err, err)))
        fail_msg("mqadmin %s: status %d instead of %d, or not \"%s\" and \"%s\" in:\n%s\n%s",
                 args[0], tool.status, status, out ? out : "", err ? err : "", tool.out, tool.err);
    tool_free(&tool);
}
#define EXPECT(status, out, err, ...)                                                              \
    expect_tool(status, out, err, (const char *const[]){__VA_ARGS__, NULL})

static void send_needle(char offset_id[64])
{
    char *sent =
        SET_MQADMIN(&set, DONE, "sendMessage", "-t", "T", "-p", "needle", "-k", "k", "--json");
    const char *at = strstr(sent, "\"offsetMsgId\": \"");
    assert_non_null(at);
    at += strlen("\"offsetMsgId\": \"");
    snprintf(offset_id, 64, "%.*s", (int)strcspn(at, "\""), at);
    free(sent);
}

static void message_of_a_dead_master_is_found_at_its_slave(void **state)
{
    char id[64], other[64], two[140];
    (void)state;
    send_needle(id);
    /* The same position under an address that nobody ever had */
    snprintf(other, sizeof other, "7F00000100000001%s", id + 16);
    snprintf(two, sizeof two, "%s,%s", id, id);
    EXPECT(DONE, "needle", NULL, "queryMsgById", "-i", two);
    set_kill(&set, 0);
    EXPECT(DONE, "needle", "shown is the copy of broker-a id 1", "queryMsgById", "-i", id);
    EXPECT(DONE, "needle", NULL, "queryMsgById", "-i", id, "--json");
    EXPECT(DONE, "is stored on broker-a", NULL, "why", id);
    EXPECT(UNREACHED, NULL, "no other broker has a copy", "queryMsgById", "-i", other);
    EXPECT(UNREACHED, NULL, "no other broker has a copy", "why", other);
    set_start(&set, 0);
    set_await_in_sync(&set, 1);
}

static void message_is_sent_once_more_by_its_id(void **state)
{
    char id[64];
    (void)state;
    send_needle(id);
    int64_t end = wire_max_offset(set_wire(&set, 0), "T", 0);
    EXPECT(DONE, "SEND_OK", NULL, "queryMsgById", "-i", id, "-s", "true");
    assert_int_equal(wire_max_offset(set_wire(&set, 0), "T", 0), end + 1);
    EXPECT(DONE, "needle", NULL, "queryMsgById", "-i", id, "-s", "false");
    EXPECT(USAGE, NULL, "resetOffsetByTime", "queryMsgById", "-i", id, "-g", "g", "-d", "c");
    assert_int_equal(wire_max_offset(set_wire(&set, 0), "T", 0), end + 1);
}

static void export_that_misses_a_broker_says_so(void **state)
{
    char dir[DAEMON_PATH_BYTES], path[DAEMON_PATH_BYTES + 32];
    (void)state;
    snprintf(dir, sizeof dir, "%s/export", set.dir);
    set_pause(&set, 1);
    EXPECT(UNREACHED, "configs.json holds 1 of 2 brokers", "does not answer", "exportConfigs", "-c",
           "DefaultCluster", "-f", dir);
    EXPECT(UNREACHED, "\"ok\": false", NULL, "exportMetrics", "-c", "DefaultCluster", "-f", dir,
           "--json");
    set_resume(&set, 1);
    snprintf(path, sizeof path, "%s/configs.json", dir);
    assert_true(file_contains(path, "fileReservedTime"));
    EXPECT(DONE, "configs.json success", NULL, "exportConfigs", "-c", "DefaultCluster", "-f", dir);
    set_await_in_sync(&set, 1);
}

/* Its slave has the tables, too */
static void metadata_is_exported_while_the_master_is_dead(void **state)
{
    char dir[DAEMON_PATH_BYTES], path[DAEMON_PATH_BYTES + 32];
    (void)state;
    snprintf(dir, sizeof dir, "%s/backup", set.dir);
    set_kill(&set, 0);
    EXPECT(DONE, "metadata.json success", "what its slave 1", "exportMetadata", "-c",
           "DefaultCluster", "-f", dir);
    snprintf(path, sizeof path, "%s/metadata.json", dir);
    assert_true(file_contains(path, "\"T\""));
    set_start(&set, 0);
    set_await_in_sync(&set, 1);
}

static void stopped_broker_is_told_apart_from_one_that_is_gone(void **state)
{
    char address[64];
    (void)state;
    snprintf(address, sizeof address, "%s", set.nodes[1].daemon.address);
    set_pause(&set, 1);
    EXPECT(UNREACHED, NULL, "listens there, but does not answer", "brokerStatus", "-b", address);
    set_resume(&set, 1);
    set_await_in_sync(&set, 1);
    EXPECT(UNREACHED, NULL, "nobody listens there", "brokerStatus", "-b", "127.0.0.1:1");
    EXPECT(UNREACHED, NULL, "does not resolve", "brokerStatus", "-b", "no.such.host.invalid:1");
}

/* A second set of one broker, and a topic in both. */
static void add_other_set(struct daemon *other, const char *topic)
{
    char root[DAEMON_PATH_BYTES], log[DAEMON_PATH_BYTES];
    memset(other, 0, sizeof *other);
    snprintf(root, sizeof root, "storePathRootDir=%s/other", set.dir);
    snprintf(log, sizeof log, "%s/other.log", set.dir);
    daemon_spawn(other, "mqbroker", log,
                 (const char *const[]){"-n", set.namesrv_list, "-o", "brokerName=broker-b", "-o",
                                       "listenPort=0", "-o", "haListenPort=0", "-o",
                                       "mappedFileSizeCommitLog=1MiB", "-o", "maxMessageSize=64KiB",
                                       "-o", root, NULL},
                 NULL);
    assert_true(daemon_wait_ready(other));
    EXPECT(DONE, "create topic", NULL, "updateTopic", "-c", "DefaultCluster", "-t", topic);
}

static void deletion_that_misses_a_set_says_what_is_done_what_is_not_and_what_to_run(void **state)
{
    static const char undone[] =
        "topic Gone is not deleted at broker-a, nor from the nameservers' routes: when that is "
        "back, run mqadmin deleteTopic -c DefaultCluster -t Gone again";
    struct daemon other;
    (void)state;
    add_other_set(&other, "Gone");
    set_await_equal(&set, 1);
    set_kill(&set, 0);
    EXPECT(NO, "delete topic [Gone] from broker [broker-b] success.", undone, "deleteTopic", "-c",
           "DefaultCluster", "-t", "Gone");
    EXPECT(NO, "broker [broker-b] has no topic [Gone].", undone, "deleteTopic", "-c",
           "DefaultCluster", "-t", "Gone");
    EXPECT(NO, "\"ok\": false", undone, "deleteTopic", "-c", "DefaultCluster", "-t", "Gone",
           "--json");
    set_start(&set, 0);
    set_await_in_sync(&set, 1);
    EXPECT(DONE, "delete topic [Gone] from cluster [DefaultCluster] success.", NULL, "deleteTopic",
           "-c", "DefaultCluster", "-t", "Gone");
    EXPECT(NO, NULL, "Gone", "topicRoute", "-t", "Gone");
    assert_int_equal(daemon_stop(&other, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_of_a_dead_master_is_found_at_its_slave),
        cmocka_unit_test(message_is_sent_once_more_by_its_id),
        cmocka_unit_test(export_that_misses_a_broker_says_so),
        cmocka_unit_test(metadata_is_exported_while_the_master_is_dead),
        cmocka_unit_test(stopped_broker_is_told_apart_from_one_that_is_gone),
        cmocka_unit_test(deletion_that_misses_a_set_says_what_is_done_what_is_not_and_what_to_run),
    };
    return cmocka_run_group_tests_name("admin_set", tests, bring_up, take_down);
}
