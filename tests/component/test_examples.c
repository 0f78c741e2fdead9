/*
 * The programs of docs/examples, as their README runs them. Those that consume until Enter is
 * pressed get the end of their input at once: they start, join, and leave cleanly. What a
 * transaction and orderly consumption do is in test_transactions.c and test_order.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/component/daemons.h"
#include "tests/unit/base/unit.h"

static struct cluster cluster;

static int set_up(void **state)
{
    (void)state;
    cluster_up(&cluster, NULL);
    free(MQADMIN(&cluster, 0, "updateTopic", "-c", "DefaultCluster", "-t", "T"));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_down(&cluster);
    return 0;
}

/* With the environment that the README asks for; args up to NULL, at most four. */
static void run(struct tool *tool, const char *program, const char *const *args)
{
    char namesrv[128], home[DAEMON_PATH_BYTES], path[DAEMON_PATH_BYTES];
    const char *all[8] = {namesrv, home, path};
    snprintf(namesrv, sizeof namesrv, "NAMESRV_ADDR=%s", cluster.namesrv_list);
    snprintf(home, sizeof home, "HOME=%s", cluster.dir); /* a broadcast keeps its progress there */
    snprintf(path, sizeof path, "%s/%s", BIN_DIR, program);
    for (size_t i = 0; args[i]; i++)
        all[i + 3] = args[i];
    tool_run(tool, "/usr/bin/env", all, "", 0);
}

static void every_example_does_what_its_page_says(void **state)
{
    static const struct {
        const char *program, *args[5], *words;
    } runs[] = {
        {"example_hello", {"T"}, "in queue"},
        {"example_producer", {"T", "3"}, "broker-a"},
        {"example_batch_async", {"T", "4"}, "256 stored, 0 failed"},
        {"example_pull_consumer", {"T"}, "hello"},
        {"example_delayed", {"T"}, "is taken back"},
        {"example_request_reply", {"T", "2"}, "question 1 -> re: question 1"},
        {"example_push_consumer", {"T", "pushed"}, ""},
        {"example_sql_consumer", {"T", "chosen", "amount > 100"}, ""},
        {"example_broadcast", {"T", "told", "one"}, "ready"},
        {"example_retry", {"T", "failing"}, "of topic T, after 2 tries"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct tool tool;
        run(&tool, runs[i].program, runs[i].args);
        if (tool.status != 0)
            fail_msg("%s ended with %d: %s", runs[i].program, tool.status, tool.err);
        assert_contains(tool.out, runs[i].words);
        tool_free(&tool);
    }
}

/* A wrong call, and a topic that is not there, end with a text and not with 0. */
static void every_example_says_what_is_wrong(void **state)
{
    static const char *const programs[] = {
        "example_hello",         "example_producer",     "example_batch_async",
        "example_pull_consumer", "example_delayed",      "example_request_reply",
        "example_push_consumer", "example_sql_consumer", "example_broadcast",
        "example_orderly",       "example_retry",        "example_transaction"};
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        struct tool tool;
        run(&tool, programs[i], (const char *const[]){NULL});
        assert_int_not_equal(tool.status, 0);
        assert_contains(tool.err, "usage: ");
        assert_contains(tool.err, programs[i]);
        tool_free(&tool);
    }
    struct tool tool;
    run(&tool, "example_hello", (const char *const[]){"Nowhere", NULL});
    assert_int_not_equal(tool.status, 0);
    assert_contains(tool.err, "mqadmin updateTopic");
    tool_free(&tool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_example_does_what_its_page_says),
        cmocka_unit_test(every_example_says_what_is_wrong),
    };
    return cmocka_run_group_tests_name("examples", tests, set_up, tear_down);
}
