/*
 * mqadmin and what it shows of a cluster: exit codes by class, pipes that give back what went in,
 * looking messages up, write permission, key-value configuration.
 */
#include <signal.h>
#include <unistd.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { LINES = 100000 };

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
static void expect_exit(const char *program, int status, const char *words,
                        const char *const *args)
{
    struct tool tool;
    tool_run(&tool, program, args, NULL, 0);
    if (tool.status != status || (words && !strstr(tool.err, words)))
        fail_msg("%s %s %s %s: exit status %d, expected %d with \"%s\":\n%s%s",
                 program, args[0] ? args[0] : "", args[0] && args[1] ? args[1] : "",
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

/* Silence of a cluster that is not there is not the same as no messages */
static void member_that_reaches_nobody_ends_with_3(void **state)
{
    (void)state;
    EXPECT_EXIT(UNREACHED, NULL, "consumeMessage", "-n", "127.0.0.1:1", "-t", "T", "-g", "lonely",
                "--idle-exit", "500");
    EXPECT_EXIT(NO, "Absent", "consumeMessage", "-n", cluster.namesrv_list, "-t", "Absent", "-g",
                "lonely", "--idle-exit", "500");
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
                          "--count", "1");
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

/* ---- pipes ---- */

/* Real text repeated with numbers, and all that lines may hold: nothing, CR, NUL, bytes of no text. */
static char *make_lines(size_t *size)
{
    static const char *const sources[] = {"/usr/share/common-licenses/GPL-3",
                                          SOURCE_DIR "/LICENSE"};
    static const char odd[] = "\n\r\n\0\n\0\0 in the middle\0\n\xff\xfe\x01\x02\n\n";
    size_t text_size = 0, cap, lines = 0;
    const char *source = sources[access(sources[0], R_OK) == 0 ? 0 : 1];
    char *text = file_read(source, &text_size);
    cap = (size_t)LINES * 256;
    char *out = malloc(cap);
    assert_non_null(out);
    memcpy(out, odd, sizeof odd - 1);
    *size = sizeof odd - 1;
    for (const char *at = text; lines < LINES; lines++) {
        int len = (int)strcspn(at, "\n");
        *size += (size_t)snprintf(out + *size, cap - *size, "%zu %.*s\n", lines,
                                  len < 200 ? len : 200, at);
        at += len;
        at = *at ? at + 1 : text;
    }
    free(text);
    return out;
}

static void make_topic(const char *topic, const char *queues)
{
    free(MQADMIN(&cluster, DONE, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", queues,
                 "-w", queues));
}

static void send_lines(const char *topic, const void *text, size_t size)
{
    struct tool tool;
    tool_run(&tool, "mqadmin",
             (const char *const[]){"sendMessage", "-n", cluster.namesrv_list, "-t", topic,
                                   "--lines", NULL},
             text, size);
    if (tool.status != DONE)
        fail_msg("sendMessage --lines ended with %d: %s", tool.status, tool.err);
    tool_free(&tool);
}

static void expect_same(const char *got, size_t got_size, const char *wanted, size_t wanted_size)
{
    size_t same = 0;
    while (same < got_size && same < wanted_size && got[same] == wanted[same])
        same++;
    if (same != wanted_size || got_size != wanted_size)
        fail_msg("%zu bytes instead of %zu, the first other one at %zu", got_size, wanted_size,
                 same);
}

/* The contract: one queue, the same order, every byte */
static void lines_sent_are_the_lines_consumed(void **state)
{
    size_t size;
    struct tool tool;
    (void)state;
    char *text = make_lines(&size);
    make_topic("Lines", "1");
    send_lines("Lines", text, size);
    tool_run(&tool, "mqadmin",
             (const char *const[]){"consumeMessage", "-n", cluster.namesrv_list, "-t", "Lines",
                                   "--body-only", "--idle-exit", "1500", NULL},
             NULL, 0);
    assert_int_equal(tool.status, DONE);
    expect_same(tool.out, tool.out_size, text, size);
    tool_free(&tool);
    tool_run(&tool, "mqadmin",
             (const char *const[]){"consumeMessage", "-n", cluster.namesrv_list, "-t", "Lines",
                                   "-g", "liners", "--body-only", "--idle-exit", "1500", NULL},
             NULL, 0);
    assert_int_equal(tool.status, DONE);
    expect_same(tool.out, tool.out_size, text, size);
    tool_free(&tool);
    free(text);
}

/* Starts sending the file's lines in the background. */
static void start_sending(struct daemon *sender, const struct cluster *to, const char *topic,
                          const char *path)
{
    char command[512], log[DAEMON_PATH_BYTES];
    snprintf(command, sizeof command, "exec " BIN_DIR "/mqadmin sendMessage -n %s -t %s --lines <%s",
             to->namesrv_list, topic, path);
    snprintf(log, sizeof log, "%s/sender.log", to->dir);
    memset(sender, 0, sizeof *sender);
    daemon_spawn(sender, "/bin/sh", log, (const char *const[]){"-c", command, NULL}, NULL);
}

static void await_stored(const struct cluster *at, int64_t count)
{
    struct wire wire;
    int64_t deadline = now_ms() + PATIENCE_MS;
    wire_open(&wire, at->broker.address, "127.0.0.1@watch");
    while (wire_status(&wire, "putMessageTimesTotal") < count)
        assert_true(now_ms() < deadline);
    wire_close(&wire);
}

/* Every number below LINES once in order, but for lines that were sent again */
static void expect_numbers_in_order(const char *text)
{
    long next = 0;
    for (const char *at = text; *at; at = strchr(at, '\n') + 1) {
        long number = strtol(at, NULL, 10);
        if (number > next)
            fail_msg("line %ld comes where line %ld should", number, next);
        next += number == next;
    }
    assert_int_equal(next, LINES);
}

/* The contract's "in order per queue" holds over a death of the broker; lines may come twice */
static void lines_keep_their_order_though_the_broker_dies(void **state)
{
    static char text[LINES * 8];
    struct cluster own;
    struct daemon sender;
    char path[DAEMON_PATH_BYTES];
    size_t size = 0;
    (void)state;
    cluster_up(&own, NULL);
    free(MQADMIN(&own, DONE, "updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "1", "-w",
                 "1"));
    for (int i = 0; i < LINES; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "%d\n", i);
    snprintf(path, sizeof path, "%s/lines", own.dir);
    file_write(path, text, size);
    start_sending(&sender, &own, "T", path);
    for (int death = 0; death < 3; death++) {
        await_stored(&own, 3000);
        assert_int_equal(daemon_stop(&own.broker, SIGKILL), -SIGKILL);
        cluster_start_broker(&own);
    }
    int status = daemon_wait(&sender, 2 * PATIENCE_MS);
    if (status != DONE)
        fail_msg("sendMessage ended with %d:\n%s", status, file_read(sender.log, NULL));
    char *got = MQADMIN(&own, DONE, "consumeMessage", "-t", "T", "--body-only", "--idle-exit",
                        "1500");
    expect_numbers_in_order(got);
    free(got);
    cluster_down(&own);
}

/* A pipe that pauses, as tail -f does, must not keep its lines back until many have come */
static void lines_of_a_pipe_that_pauses_are_sent_at_once(void **state)
{
    char command[512];
    (void)state;
    make_topic("Paused", "1");
    snprintf(command, sizeof command,
             BIN_DIR "/mqadmin sendMessage -n %s -t Paused --lines >/dev/null",
             cluster.namesrv_list);
    FILE *pipe = popen(command, "w");
    assert_non_null(pipe);
    fputs("one\ntwo\nthr", pipe);
    fflush(pipe);
    char *read = MQADMIN(&cluster, DONE, "consumeMessage", "-t", "Paused", "--body-only", "-c", "2",
                         "--idle-exit", "15000");
    assert_string_equal(read, "one\ntwo\n");
    free(read);
    fputs("ee", pipe); /* the end of the input ends a line too */
    assert_int_equal(pclose(pipe), 0);
    read = MQADMIN(&cluster, DONE, "consumeMessage", "-t", "Paused", "--body-only", "-c", "3",
                   "--idle-exit", "15000");
    assert_string_equal(read, "one\ntwo\nthree\n");
    free(read);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, NUL-terminated lines of a text, which they point into; the caller frees the list. */
static const char **sorted_lines(char *text, size_t *count)
{
    const char **lines = calloc(LINES + 1, sizeof *lines);
    assert_non_null(lines);
    *count = 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) && rest;) {
        assert_true(*count < LINES);
        lines[(*count)++] = line;
    }
    qsort(lines, *count, sizeof *lines, by_text);
    return lines;
}

/* Several readers of one group, one after the other, get everything and nothing twice */
static void readers_that_take_a_few_each_share_the_lines(void **state)
{
    enum { ALL = 400, EACH = 100 };
    char text[ALL * 16], got[ALL * 32] = "", each[16];
    size_t size = 0, count;
    (void)state;
    for (int i = 0; i < ALL; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "line-%06d\n", i);
    snprintf(each, sizeof each, "%d", EACH);
    make_topic("Shared", "4");
    send_lines("Shared", text, size);
    for (int i = 0; i < ALL / EACH; i++) {
        char *part = MQADMIN(&cluster, DONE, "consumeMessage", "-t", "Shared", "-g", "sharers",
                             "--body-only", "-c", each, "--idle-exit", "10000");
        strncat(got, part, sizeof got - strlen(got) - 1);
        free(part);
    }
    const char **lines = sorted_lines(got, &count);
    assert_int_equal(count, ALL);
    for (int i = 0; i < ALL; i++) {
        char wanted[16];
        snprintf(wanted, sizeof wanted, "line-%06d", i);
        assert_string_equal(lines[i], wanted);
    }
    free(lines);
}

static void reader_whose_pipe_is_closed_ends(void **state)
{
    char command[512], line[16];
    size_t size;
    (void)state;
    char *text = make_lines(&size);
    make_topic("Head", "1");
    send_lines("Head", text, size);
    free(text);
    snprintf(command, sizeof command,
             BIN_DIR "/mqadmin consumeMessage -n %s -t Head --body-only --idle-exit 60000 | "
                     "tail -n +8 | head -n 1",
             cluster.namesrv_list);
    int64_t begin = now_ms();
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof line, pipe));
    assert_int_not_equal(pclose(pipe), -1);
    assert_true(now_ms() - begin < PATIENCE_MS);
}

/* ---- looking up ---- */

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
        send_lines("Gone", "a\nb\nc\n", 6);
        char *read = MQADMIN(&cluster, DONE, "consumeMessage", "-t", "Gone", "-g", "goners",
                             "--body-only", "-c", "3", "--idle-exit", "10000");
        assert_string_equal(read, "a\nb\nc\n");
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
        assert_true(len > 2 && out[len - 1] == '\n' && (out[len - 2] == ']' || out[len - 2] == '}'));
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
        cmocka_unit_test(nobody_reached_ends_with_3),
        cmocka_unit_test(member_that_reaches_nobody_ends_with_3),
        cmocka_unit_test(bench_ends_with_the_same_classes),
        cmocka_unit_test(help_and_version_end_with_0_on_stdout),
        cmocka_unit_test(lines_sent_are_the_lines_consumed),
        cmocka_unit_test(lines_keep_their_order_though_the_broker_dies),
        cmocka_unit_test(lines_of_a_pipe_that_pauses_are_sent_at_once),
        cmocka_unit_test(readers_that_take_a_few_each_share_the_lines),
        cmocka_unit_test(reader_whose_pipe_is_closed_ends),
        cmocka_unit_test(message_is_found_by_id_by_key_by_unique_id_and_by_offset),
        cmocka_unit_test(wiped_write_permission_stops_senders_until_it_is_restored),
        cmocka_unit_test(kv_configuration_is_set_shown_and_deleted),
        cmocka_unit_test(deleted_topic_is_gone_from_broker_nameserver_and_groups),
        cmocka_unit_test(every_listing_speaks_json),
        cmocka_unit_test(client_written_from_the_protocol_page_works),
    };
    return cmocka_run_group_tests_name("tools", tests, set_up, tear_down);
}
