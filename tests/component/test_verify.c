/*
 * mqbench verify's checks against a real set of a master and a slave, without faults; with faults
 * they are tests/system/rounds.sh's. (D-1, D-2, F-1, F-2, P-3, R-6)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

static struct broker_set set;

static int bring_up(void **state)
{
    (void)state;
    set_up(&set, "SYNC_MASTER", 1,
           (const char *const[]){"mappedFileSizeCommitLog=16MiB", "flushDiskType=ASYNC_FLUSH",
                                 "transactionTimeOut=1000", "transactionCheckInterval=1000", NULL});
    return 0;
}

static int take_down(void **state)
{
    (void)state;
    set_down(&set);
    return 0;
}

/* Value of a figure in what verify printed. */
static long long figure(const struct tool *tool, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(tool->out, key);
    if (!at)
        fail_msg("no %s in %s", name, tool->out);
    return strtoll(at + strlen(key), NULL, 10);
}

/* A run with these options, up to NULL, behind the common ones. Must pass. */
static void verify(struct tool *tool, const char *topic, const char *const *options)
{
    const char *args[32] = {
        "verify",   "-n", set.namesrv_list, "-t", topic,    "--producers", "2",
        "--queues", "2",  "--drain",        "30", "--size", "200",         "--json"};
    size_t count = 14;
    for (size_t i = 0; options[i]; i++)
        args[count++] = options[i];
    tool_run(tool, "mqbench", args, NULL, 0);
    print_message("%s", tool->out);
    if (tool->status != 0)
        fail_msg("mqbench verify %s: %d: %s%s", options[0], tool->status, tool->out, tool->err);
    assert_int_equal(figure(tool, "lost"), 0);
    assert_true(figure(tool, "acked") > 0);
}
#define VERIFY(tool, topic, ...) verify(tool, topic, (const char *const[]){__VA_ARGS__, NULL})

static char *state_file(char path[DAEMON_PATH_BYTES], const char *name)
{
    snprintf(path, DAEMON_PATH_BYTES, "%s/%s", set.dir, name);
    return path;
}

/* D-1, D-2 */
static void delayed_messages_come_once_and_never_early(void **state)
{
    struct tool tool;
    char path[DAEMON_PATH_BYTES];
    (void)state;
    VERIFY(&tool, "Delayed", "--delayed", "2000", "--seconds", "3", "--state",
           state_file(path, "delayed"));
    assert_int_equal(figure(&tool, "early"), 0);
    assert_int_equal(figure(&tool, "duplicated_unexplained"), 0);
    assert_true(figure(&tool, "max_late_in_all_ms") < 30000);
    long long acked = figure(&tool, "acked");
    tool_free(&tool);
    VERIFY(&tool, "Delayed", "--delayed", "2000", "--state", path, "--from-slave");
    assert_int_equal(figure(&tool, "acked"), acked);
    tool_free(&tool);
}

/* P-3 */
static void transactions_are_delivered_when_committed_only(void **state)
{
    struct tool tool;
    char path[DAEMON_PATH_BYTES];
    (void)state;
    VERIFY(&tool, "Transactional", "--transactional", "--seconds", "4", "--state",
           state_file(path, "transactional"));
    assert_int_equal(figure(&tool, "wrongly_delivered"), 0);
    assert_int_equal(figure(&tool, "duplicated"), 0);
    assert_true(figure(&tool, "rolled_back") > 0);
    assert_true(figure(&tool, "checks") > 0);
    assert_true(figure(&tool, "abandoned") > 0);
    tool_free(&tool);
    VERIFY(&tool, "Transactional", "--transactional", "--state", path, "--from-slave");
    tool_free(&tool);
}

/* F-1, F-2: alone and in batches. */
static void filtered_readers_get_exactly_what_matches(void **state)
{
    static const char *const modes[][2] = {{"FilteredAlone", "sync"}, {"FilteredBatch", "batch"}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct tool tool;
        char path[DAEMON_PATH_BYTES];
        VERIFY(&tool, modes[i][0], "--filter", "--mode", modes[i][1], "--batch", "8", "--seconds",
               "2", "--state", state_file(path, modes[i][0]));
        assert_int_equal(figure(&tool, "wrongly_filtered"), 0);
        assert_true(figure(&tool, "delivered_by_tag") > 0);
        assert_true(figure(&tool, "delivered_by_condition") > 0);
        long long by_tag = figure(&tool, "delivered_by_tag");
        tool_free(&tool);
        VERIFY(&tool, modes[i][0], "--filter", "--state", path); /* a later run reads the same */
        assert_int_equal(figure(&tool, "delivered_by_tag"), by_tag);
        tool_free(&tool);
    }
}

/* what fails comes again, is consumed once or dead; with the group's own maximum. */
static void failed_messages_are_consumed_once_or_dead(void **state)
{
    struct tool tool;
    char path[DAEMON_PATH_BYTES];
    (void)state;
    VERIFY(&tool, "Failing", "--fail-rate", "50", "--count", "1500", "--state",
           state_file(path, "failing"));
    assert_true(figure(&tool, "retried") > 500);
    assert_true(figure(&tool, "dead_lettered") > 20);
    assert_int_equal(figure(&tool, "beyond_count"), 0);
    assert_int_equal(figure(&tool, "wrongly_dead"), 0);
    if (figure(&tool, "send_backs_unanswered") == 0)
        assert_int_equal(figure(&tool, "duplicated"), figure(&tool, "redelivered"));
    tool_free(&tool);
    VERIFY(&tool, "Failing", "--state", path, "--from-slave"); /* sent like plain ones */
    tool_free(&tool);
}

/* What the checker needs at its start may be on its way. */
static void start_waits_for_a_cluster_that_is_not_there_yet(void **state)
{
    struct daemon checker = {.pid = 0};
    char log[DAEMON_PATH_BYTES];
    (void)state;
    set_kill(&set, 0);
    daemon_spawn(&checker, "mqbench", state_file(log, "early.log"),
                 (const char *const[]){"verify", "-n", set.namesrv_list, "-t", "Early", "--count",
                                       "100", "--drain", "60", "--json", NULL},
                 NULL);
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (!file_contains(log, "mqbench: Early: ")) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
    set_start(&set, 0);
    int status = daemon_wait(&checker, 2 * PATIENCE_MS);
    if (status != 0)
        daemon_fail(&checker, "mqbench verify ended with %d", status);
    set_await_in_sync(&set, 1);
}

static void refuse(const char *words, const char *const *options)
{
    const char *args[16] = {"verify", "-n", set.namesrv_list, "-t", "Refused"};
    struct tool tool;
    for (size_t i = 0; options[i]; i++)
        args[5 + i] = options[i];
    tool_run(&tool, "mqbench", args, NULL, 0);
    assert_int_equal(tool.status, 2);
    assert_contains(tool.err, words);
    tool_free(&tool);
}
#define REFUSE(words, ...) refuse(words, (const char *const[]){__VA_ARGS__, NULL})

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    REFUSE("a run checks one of them", "--filter", "--transactional");
    REFUSE("travel alone", "--delayed", "1000", "--mode", "batch");
    REFUSE("travel alone", "--transactional", "--mode", "batch");
    REFUSE("'0' is not in 1..86400000", "--delayed", "0");
    REFUSE("'100' is not in 1..99", "--fail-rate", "100");
    REFUSE("give one of them", "--orderly", "--from-slave");
    REFUSE("give one of them", "--fail-rate", "10", "--from-slave");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delayed_messages_come_once_and_never_early),
        cmocka_unit_test(transactions_are_delivered_when_committed_only),
        cmocka_unit_test(filtered_readers_get_exactly_what_matches),
        cmocka_unit_test(failed_messages_are_consumed_once_or_dead),
        cmocka_unit_test(start_waits_for_a_cluster_that_is_not_there_yet),
        cmocka_unit_test(what_does_not_go_together_is_refused),
    };
    return cmocka_run_group_tests(tests, bring_up, take_down);
}
