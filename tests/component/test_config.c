/*
 * A broker's configuration that makes no sense is refused before anything is touched: exit status 2
 * and one line that names file, line and key, or the option.
 */
#include "tests/component/daemons.h"
#include "tests/unit/base/unit.h"

/* Exit status 2 and one line that holds all words. */
static void expect_refused(const char *const *args, const char *const *words)
{
    struct tool tool;
    tool_run(&tool, "mqbroker", args, NULL, 0);
    const char *newline = strchr(tool.err, '\n');
    for (size_t i = 0; words[i]; i++)
        if (!strstr(tool.err, words[i]))
            fail_msg("\"%s\" is missing in: %s", words[i], tool.err);
    if (tool.status != 2 || !newline || newline[1])
        fail_msg("exit status %d, said: %s", tool.status, tool.err);
    assert_int_equal(tool.out_size, 0);
    tool_free(&tool);
}

static const struct nonsense {
    const char *line;     /* of the YAML file */
    const char *words[3]; /* in the refusal */
} wrong_values[] =
    {
        /* in themselves: the refusal names file and line too */
        {"flushDiskTyp: SYNC_FLUSH", {"flushDiskTyp", "flushDiskType"}}, /* with a suggestion */
        {"noSuchThing: 1", {"noSuchThing"}},
        {"listenPort: many", {"listenPort", "0", "65535"}},
        {"listenPort: 65536", {"listenPort", "65535"}},
        {"listenPort: -1", {"listenPort", "0"}},
        {"listenPort: 1e3", {"listenPort"}},
        {"listenPort: [1]", {"listenPort"}},
        {"maxMessageSize: 4 parsecs", {"maxMessageSize"}},
        {"maxMessageSize: 99999999999999999999", {"maxMessageSize"}},
        {"maxMessageSize: 1GiB", {"maxMessageSize", "64MiB"}},
        {"flushDiskType: MAYBE", {"flushDiskType", "SYNC_FLUSH", "ASYNC_FLUSH"}},
        {"autoCreateTopicEnable: perhaps", {"autoCreateTopicEnable", "true", "false"}},
        {"fileReservedTime: -3h", {"fileReservedTime"}},
        {"brokerClusterName: ''", {"brokerClusterName"}},
        {"logLevel: loud", {"logLevel"}},
        {"enableDLegerCommitLog: true", {"enableDLegerCommitLog", "DLedger"}},
        {"transientStorePoolEnable: true", {"transientStorePoolEnable", "transient store pool"}},
        {"enableConsumeQueueExt: true", {"enableConsumeQueueExt", "ConsumeQueueExt"}},
},
  wrong_together[] = {
      /* or against each other, or in their grammar */
      {"brokerName: a/b", {"brokerName"}},
      {"deleteWhen: 25", {"deleteWhen"}},
      {"deleteWhen: ';'", {"deleteWhen"}},
      {"brokerId: 1", {"brokerId"}},
      {"brokerRole: SLAVE", {"brokerRole"}},
      {"diskMaxUsedSpaceRatio: 95", {"diskMaxUsedSpaceRatio"}},
      {"mappedFileSizeCommitLog: 1MiB", {"mappedFileSizeCommitLog"}},
      {"listenAddr: nonsense:1", {"listenAddr"}},
      {"namesrvAddr: 'no port'", {"namesrvAddr"}},
      {"namesrvAddr: '127.0.0.1:9876;127.0.0.1:0x9'", {"namesrvAddr"}},
      {"advertiseAddr: 'somewhere:99999'", {"advertiseAddr"}},
};

/* Starts a broker on a file with each line in turn. */
static void expect_lines_refused(const struct nonsense *rows, size_t count, bool with_place)
{
    char dir[WORK_DIR_BYTES], path[DAEMON_PATH_BYTES], place[DAEMON_PATH_BYTES + 8], text[512];
    char root[DAEMON_PATH_BYTES];
    work_dir_make(dir);
    snprintf(path, sizeof path, "%s/broker.yaml", dir);
    snprintf(place, sizeof place, "%s:3", path);
    snprintf(root, sizeof root, "storePathRootDir=%s/store", dir);
    for (size_t i = 0; i < count; i++) {
        const char *words[5] = {with_place ? place : "mqbroker: "};
        memcpy(words + 1, rows[i].words, sizeof rows[i].words);
        int len = snprintf(text, sizeof text, "# a comment\n\n%s\n", rows[i].line);
        file_write(path, text, (size_t)len);
        expect_refused((const char *const[]){"-c", path, "-o", root, NULL}, words);
    }
    snprintf(path, sizeof path, "%s/store", dir);
    assert_int_equal(files_below(path, ""), 0);
    work_dir_remove(dir);
}

static void wrong_values_are_refused_with_file_line_and_key(void **state)
{
    (void)state;
    expect_lines_refused(wrong_values, sizeof wrong_values / sizeof wrong_values[0], true);
}

static void values_that_make_no_sense_together_are_refused_with_their_key(void **state)
{
    (void)state;
    expect_lines_refused(wrong_together, sizeof wrong_together / sizeof wrong_together[0], false);
}

static void wrong_usage_names_the_option(void **state)
{
    (void)state;
    expect_refused((const char *const[]){"-z", NULL}, (const char *const[]){"-z", NULL});
    expect_refused((const char *const[]){"-c", NULL}, (const char *const[]){"-c", NULL});
    expect_refused((const char *const[]){"-c", "/nonexistent/file", NULL},
                   (const char *const[]){"/nonexistent/file", NULL});
    expect_refused((const char *const[]){"-o", "listenPort", NULL},
                   (const char *const[]){"-o", "listenPort", NULL});
    expect_refused((const char *const[]){"-o", "listenPort=x", NULL},
                   (const char *const[]){"-o", "listenPort", NULL});
    expect_refused((const char *const[]){"extra", NULL}, (const char *const[]){"extra", NULL});
}

/* NN-11 */
static void configuration_that_explodes_is_refused_quickly(void **state)
{
    enum { DEPTH = 100000 };
    char dir[WORK_DIR_BYTES], path[DAEMON_PATH_BYTES];
    static char deep[DEPTH + 16];
    static const char bomb[] = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
                               "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nbrokerName: *c\n";
    (void)state;
    work_dir_make(dir);
    snprintf(path, sizeof path, "%s/broker.yaml", dir);
    const char *const args[] = {"-c", path, NULL};
    int len = snprintf(deep, sizeof deep, "brokerName: ");
    memset(deep + len, '[', DEPTH);
    int64_t begin = now_ms();
    file_write(path, deep, (size_t)len + DEPTH);
    expect_refused(args, (const char *const[]){path, NULL});
    file_write(path, bomb, sizeof bomb - 1);
    expect_refused(args, (const char *const[]){path, NULL});
    file_write(path, "brokerName: \0\xff", 14);
    expect_refused(args, (const char *const[]){path, NULL});
    assert_true(now_ms() - begin < 5000);
    work_dir_remove(dir);
}

/* -n is namesrvAddr by another name, whatever the order, and beats the file. */
static void the_nameservers_given_last_count(void **state)
{
    char dir[WORK_DIR_BYTES], path[DAEMON_PATH_BYTES];
    (void)state;
    work_dir_make(dir);
    snprintf(path, sizeof path, "%s/broker.yaml", dir);
    static const char text[] = "namesrvAddr: filed:1\n";
    file_write(path, text, sizeof text - 1);
    const char *const orders[][8] = {
        {"-o", "namesrvAddr=first:1", "-n", "last:1", "-c", path, "-p"},
        {"-n", "first:1", "-c", path, "-o", "namesrvAddr=last:1", "-p"},
        {"-n", "first:1", "-n", "last:1", "-c", path, "-p"},
        {"-o", "namesrvAddr=first:1", "-o", "namesrvAddr=last:1", "-c", path, "-p"},
    };
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        struct tool tool;
        tool_run(&tool, "mqbroker", orders[i], NULL, 0);
        assert_int_equal(tool.status, 0);
        assert_contains(tool.out, "namesrvAddr: \"last:1\"\n");
        tool_free(&tool);
    }
    work_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_values_are_refused_with_file_line_and_key),
        cmocka_unit_test(values_that_make_no_sense_together_are_refused_with_their_key),
        cmocka_unit_test(wrong_usage_names_the_option),
        cmocka_unit_test(the_nameservers_given_last_count),
        cmocka_unit_test(configuration_that_explodes_is_refused_quickly),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
