/*
 * deploy/cluster.sh as a person uses it: up, status, kill, start, down, up again, destroy, and what
 * it says to wrong usage. Its state lies in a directory with a blank in its name.
 */
#include <unistd.h>

#include "tests/component/daemons.h"
#include "tests/unit/base/unit.h"

static char dir[WORK_DIR_BYTES];

static int set_up(void **state)
{
    (void)state;
    char home[DAEMON_PATH_BYTES];
    work_dir_make(dir);
    snprintf(home, sizeof home, "%s/a home", dir);
    assert_int_equal(setenv("TERNMQ_HOME", home, 1), 0);
    assert_int_equal(setenv("TERNMQ_BIN", BIN_DIR, 1), 0);
    return 0;
}

/* Runs cluster.sh, expecting this exit status; what it printed on stdout, or stderr when it failed.
 */
static char *cluster_sh(int status, const char *const *args)
{
    const char *all[8] = {SOURCE_DIR "/deploy/cluster.sh"};
    struct tool tool;
    for (size_t i = 0; args[i]; i++)
        all[i + 1] = args[i];
    tool_run(&tool, "/bin/bash", all, NULL, 0);
    if (tool.status != status)
        fail_msg("cluster.sh %s ended with %d, not %d:\n%s%s", args[0], tool.status, status,
                 tool.out, tool.err);
    char *unwanted = status == 0 ? tool.err : tool.out;
    free(unwanted);
    return status == 0 ? tool.out : tool.err;
}

#define CLUSTER(status, ...) cluster_sh(status, (const char *const[]){__VA_ARGS__, NULL})

static int tear_down(void **state)
{
    (void)state;
    free(CLUSTER(0, "destroy", "--yes"));
    work_dir_remove(dir);
    return 0;
}

/* C-4 */
static void cluster_goes_up_dies_comes_back_and_goes_down(void **state)
{
    (void)state;
    char *out = CLUSTER(0, "up", "1m", "-o", "deleteWhen=04;16");
    assert_contains(out, "NODE");
    assert_contains(out, "NAMESRV_ADDR=127.0.0.1:");
    free(out);
    free(CLUSTER(0, "kill", "broker-a-0"));
    out = CLUSTER(0, "status", "--json");
    assert_contains(out, "\"node\":\"broker-a-0\"");
    assert_contains(out, "\"state\":\"dead\"");
    free(out);
    free(CLUSTER(0, "start", "broker-a-0"));
    free(CLUSTER(0, "stop", "namesrv-1"));
    free(CLUSTER(0, "start", "namesrv-1"));
    out = CLUSTER(0, "status");
    assert_null(strstr(out, "dead"));
    free(out);
    out = CLUSTER(0, "logs", "broker-a-0");
    assert_contains(out, "broker_started");
    free(out);
    free(CLUSTER(0, "down"));
    out = CLUSTER(0, "status");
    assert_null(strstr(out, "running"));
    free(out);
    out = CLUSTER(0, "up", "1m");
    assert_null(strstr(out, "dead"));
    free(out);
}

/* A setting that has no effect now must not look as if it had, nor spoil the next start */
static void settings_for_a_broker_that_runs_are_refused(void **state)
{
    (void)state;
    free(CLUSTER(0, "up", "1m"));
    char *err = CLUSTER(1, "up", "1m", "-o", "noSuchKey=1");
    assert_contains(err, "running");
    free(err);
    free(CLUSTER(0, "down"));
    free(CLUSTER(0, "up", "1m"));
}

static void wrong_usage_ends_with_2(void **state)
{
    (void)state;
    free(CLUSTER(0, "up", "1m"));
    free(CLUSTER(2, "up"));
    free(CLUSTER(2, "up", "9z"));
    free(CLUSTER(2, "dance"));
    free(CLUSTER(2, "kill", "nobody"));
    free(CLUSTER(2, "destroy"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cluster_goes_up_dies_comes_back_and_goes_down),
        cmocka_unit_test(settings_for_a_broker_that_runs_are_refused),
        cmocka_unit_test(wrong_usage_ends_with_2),
    };
    return cmocka_run_group_tests_name("deploy", tests, set_up, tear_down);
}
