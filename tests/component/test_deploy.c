/*
 * deploy/cluster.sh as a person uses it: up, status, kill, start, wait, down, up again, destroy,
 * and what it says to wrong usage. Its state lies in a directory with a blank in its name.
 *
 * What it does with many nodes is tried on stand-ins for the daemons, shell scripts that behave as
 * a test needs it; that it and the daemons agree, on the daemons themselves.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/component/daemons.h"
#include "tests/unit/base/unit.h"

static char dir[WORK_DIR_BYTES];

/* The cluster at dir/name, run by the programs of `bin`. */
static void use(const char *name, const char *bin)
{
    char home[DAEMON_PATH_BYTES];
    snprintf(home, sizeof home, "%s/%s", dir, name);
    assert_int_equal(setenv("TERNMQ_HOME", home, 1), 0);
    assert_int_equal(setenv("TERNMQ_BIN", bin, 1), 0);
}

static int set_up(void **state)
{
    (void)state;
    work_dir_make(dir);
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

static int destroy(void **state)
{
    (void)state;
    free(CLUSTER(0, "destroy", "--yes"));
    return 0;
}

static int real_cluster(void **state)
{
    (void)state;
    use("a home", BIN_DIR);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    work_dir_remove(dir);
    return 0;
}

/* A file of the cluster at dir/home; the caller frees it. */
static char *home_file(const char *home, const char *name)
{
    char path[DAEMON_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s/%s", dir, home, name);
    return file_read(path, NULL);
}

/* ---- stand-ins ---- */

static void write_program(const char *name, const char *text)
{
    char path[DAEMON_PATH_BYTES];
    snprintf(path, sizeof path, "%s/bin/%s", dir, name);
    file_write(path, text, strlen(text));
    assert_int_equal(chmod(path, 0755), 0);
}

/*
 * A daemon that leaves its arguments in its directory, and is ready once every node of the cluster
 * was started: a script that waits for one before it starts the next gets nowhere.
 */
static const char stand_in_daemon[] =
    "#!/bin/bash\n"
    "for arg; do case $arg in storePathRootDir=*|kvConfigPath=*) path=${arg#*=} ;; esac; done\n"
    "node=${path%/*} home=${path%/*/*}\n"
    "printf '%s\\n' \"$@\" >\"$node/args\"\n"
    "until [ \"$(ls \"$home\"/*/pid | wc -l)\" -eq \"$(wc -l <\"$home/nodes\")\" ]; do sleep 0.01; "
    "done\n"
    "mkfifo \"$node/forever.$$\" && exec 3<>\"$node/forever.$$\"\n"
    "echo \"${0##*/} ready 127.0.0.1:1\"\n"
    "read -r <&3\n";

/* Replication, and which brokers are registered, stand as files beside this program say. */
static const char stand_in_mqadmin[] = "#!/bin/bash\n"
                                       "case $1 in\n"
                                       "haStatus) cat \"${0%/*}/view\" ;;\n"
                                       "*) bash \"${0%/*}/registered\" ;;\n"
                                       "esac\n";
#define ALL_REGISTERED "seq -f '\"127.0.0.1:%.0f\"' 65535"

static void set_answer(const char *name, const char *text)
{
    char path[DAEMON_PATH_BYTES];
    snprintf(path, sizeof path, "%s/bin/%s", dir, name);
    file_write(path, text, strlen(text));
}

static void set_view(const char *view)
{
    set_answer("view", view);
}

static int stand_in_cluster(void **state)
{
    char bin[DAEMON_PATH_BYTES];
    (void)state;
    snprintf(bin, sizeof bin, "%s/bin", dir);
    mkdir(bin, 0755);
    write_program("mqnamesrv", stand_in_daemon);
    write_program("mqbroker", stand_in_daemon);
    write_program("mqadmin", stand_in_mqadmin);
    set_view("[{\"state\": \"open\", \"writable\": true, \"slaves\": [{\"inSync\": true, "
             "\"linkUp\": true}]}]");
    set_answer("registered", ALL_REGISTERED);
    use("stand ins", bin);
    return 0;
}

/* ---- with stand-ins ---- */

/* C-4 */
static void every_layout_has_its_nodes(void **state)
{
    static const struct {
        const char *name, *last;
        size_t count;
        const char *master_role;
    } layouts[] = {
        {"1m", "broker-a-0", 2, "ASYNC_MASTER"},
        {"1m-1s-async", "broker-a-1", 3, "ASYNC_MASTER"},
        {"1m-1s-sync", "broker-a-1", 3, "SYNC_MASTER"},
        {"2m-2s-async", "broker-b-1", 5, "ASYNC_MASTER"},
        {"2m-2s-sync", "broker-b-1", 5, "SYNC_MASTER"},
        {"2n-2m-2s-sync", "broker-b-1", 6, "SYNC_MASTER"},
    };
    char role[64];
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        size_t running = 0;
        char *out = CLUSTER(0, "up", layouts[i].name);
        assert_contains(out, layouts[i].last);
        for (const char *at = out; (at = strstr(at, " running\n")); at++)
            running++;
        assert_int_equal(running, layouts[i].count);
        free(out);
        snprintf(role, sizeof role, "brokerRole=%s\n", layouts[i].master_role);
        out = home_file("stand ins", "broker-a-0/args");
        assert_contains(out, role);
        assert_contains(out, "brokerId=0\n");
        assert_contains(out, "haListenPort=");
        assert_null(strstr(out, "flushDiskType"));
        free(out);
        free(CLUSTER(0, "destroy", "--yes"));
    }
}

static void slaves_and_nameservers_are_told_who_they_are(void **state)
{
    (void)state;
    free(CLUSTER(0, "up", "2n-2m-2s-sync", "-o", "logLevel=warn"));
    char *args = home_file("stand ins", "broker-b-1/args");
    assert_contains(args, "brokerName=broker-b\n");
    assert_contains(args, "brokerId=1\n");
    assert_contains(args, "brokerRole=SLAVE\n");
    assert_contains(args, "logLevel=warn\n");
    char *nodes = home_file("stand ins", "nodes");
    int first, second;
    assert_int_equal(
        sscanf(nodes, "namesrv-1 NAMESRV %d 0\nnamesrv-2 NAMESRV %d 0\n", &first, &second), 2);
    char list[64];
    snprintf(list, sizeof list, "127.0.0.1:%d;127.0.0.1:%d\n", first, second);
    assert_contains(args, list);
    free(nodes);
    free(args);
}

static void states_are_what_the_brokers_say(void **state)
{
    (void)state;
    free(CLUSTER(0, "up", "1m-1s-sync"));
    set_view("[{\"state\": \"recovering\", \"writable\": false, \"slaves\": []}]");
    char *out = CLUSTER(0, "status", "--json");
    assert_contains(out, "\"state\":\"recovering\"");
    free(out);
    /* Without an answer nothing better is known than that it was ready. */
    set_view("");
    out = CLUSTER(0, "status", "--json");
    assert_null(strstr(out, "recovering"));
    free(out);
}

static void wait_ends_when_all_are_in_sync_and_says_what_is_missing(void **state)
{
    (void)state;
    free(CLUSTER(0, "up", "1m-1s-sync"));
    free(CLUSTER(0, "wait"));
    static const char *const not_there[] = {"\"inSync\": false, \"linkUp\": true",
                                            "\"inSync\": true, \"linkUp\": false"};
    char *err;
    for (size_t i = 0; i < 2; i++) {
        char view[160];
        snprintf(view, sizeof view,
                 "[{\"state\": \"open\", \"writable\": true, \"slaves\": [{%s}]}]", not_there[i]);
        set_view(view);
        err = CLUSTER(1, "wait", "1");
        assert_contains(err, "broker-a-0(open, writable true, in sync 0 of 1)");
        free(err);
    }
    set_view("[{\"state\": \"recovering\", \"writable\": false, \"slaves\": [{\"inSync\": true, "
             "\"linkUp\": true}]}]");
    err = CLUSTER(1, "wait", "1");
    assert_contains(err, "recovering");
    free(err);
    free(CLUSTER(2, "wait", "soon"));
}

/* A nameserver that was started again knows a broker when that has registered there. */
static void wait_ends_when_nameservers_that_run_know_all_brokers_that_run(void **state)
{
    (void)state;
    free(CLUSTER(0, "up", "2n-2m-2s-sync"));
    free(CLUSTER(0, "wait"));
    set_answer("registered", "");
    char *err = CLUSTER(1, "wait", "1");
    assert_contains(err, "broker-b-1(not registered with namesrv-1)");
    assert_contains(err, "broker-a-0(not registered with namesrv-2)");
    free(err);
    free(CLUSTER(0, "stop", "namesrv-1"));
    err = CLUSTER(1, "wait", "1");
    assert_null(strstr(err, "namesrv-1)"));
    assert_contains(err, "namesrv-2)");
    free(err);
    free(CLUSTER(0, "stop", "namesrv-2"));
    free(CLUSTER(0, "wait"));
}

/* A restart must find its addresses again, whatever else came up meanwhile. */
static void ports_are_kept_and_not_given_to_a_second_cluster(void **state)
{
    (void)state;
    free(CLUSTER(0, "up", "1m-1s-sync"));
    char *before = home_file("stand ins", "nodes");
    free(CLUSTER(0, "down"));
    char bin[DAEMON_PATH_BYTES];
    snprintf(bin, sizeof bin, "%s/bin", dir);
    use("second", bin);
    free(CLUSTER(0, "up", "2m-2s-async"));
    char *second = home_file("second", "nodes");
    char *mine = strdup(before), *rest = NULL;
    for (char *word = strtok_r(mine, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
        char padded[64];
        snprintf(padded, sizeof padded, " %s", word);
        if (word[0] >= '1' && word[0] <= '9')
            assert_null(strstr(second, padded));
    }
    use("stand ins", bin);
    free(CLUSTER(0, "up", "1m-1s-sync"));
    char *after = home_file("stand ins", "nodes");
    assert_string_equal(after, before);
    use("second", bin);
    free(CLUSTER(0, "destroy", "--yes"));
    use("stand ins", bin);
    free(before);
    free(after);
    free(second);
    free(mine);
}

static void several_nodes_die_and_start_at_once(void **state)
{
    (void)state;
    free(CLUSTER(0, "up", "2m-2s-sync"));
    free(CLUSTER(0, "kill", "broker-a-0", "broker-a-1"));
    char *out = CLUSTER(0, "status");
    char *first = strstr(out, "dead");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "dead"));
    free(out);
    free(CLUSTER(2, "start", "broker-a-0", "broker-z-9"));
    free(CLUSTER(0, "start", "broker-a-0", "broker-a-1"));
    out = CLUSTER(0, "status");
    assert_null(strstr(out, "dead"));
    free(out);
}

/* A number in a pid file may be anybody's after a reboot. */
static void a_foreign_process_is_neither_shown_nor_killed(void **state)
{
    char path[DAEMON_PATH_BYTES], pid[32];
    (void)state;
    free(CLUSTER(0, "up", "1m"));
    free(CLUSTER(0, "kill", "broker-a-0"));
    snprintf(path, sizeof path, "%s/stand ins/broker-a-0/pid", dir);
    snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    file_write(path, pid, strlen(pid));
    char *out = CLUSTER(0, "status", "--json");
    assert_contains(out, "\"state\":\"dead\"");
    free(out);
    free(CLUSTER(0, "kill", "broker-a-0"));
}

/* ---- building ---- */

/* cmake that has two steps to do, until it did them; `broken` lets it fail. */
static const char stand_in_cmake[] =
    "#!/bin/bash\n"
    "bin=${0%/*}\n"
    "case \"$*\" in\n"
    "'--preset fancy') echo configured ;;\n"
    "*' -n') [ -f \"$bin/built\" ] && echo 'ninja: no work to do.' || echo '[1/2] one' ;;\n"
    "*) echo '[1/2] one'; echo '[2/2] two'\n"
    "   [ ! -f \"$bin/broken\" ] || { echo 'two: error'; exit 1; }\n"
    "   : >\"$bin/built\" ;;\n"
    "esac\n";

static void run_build(struct tool *tool, bool terminal)
{
    char command[DAEMON_PATH_BYTES];
    snprintf(command, sizeof command,
             terminal ? "PATH=%s/bin:$PATH script -qec '. %s/deploy/lib.sh; build fancy' /dev/null"
                      : "PATH=%s/bin:$PATH; . %s/deploy/lib.sh; build fancy",
             dir, SOURCE_DIR);
    assert_int_equal(setenv("SHELL", "/bin/bash", 1), 0);
    tool_run(tool, "/bin/bash", (const char *const[]){"-c", command, NULL}, NULL, 0);
}

static int stand_in_build(void **state)
{
    int result = stand_in_cluster(state);
    write_program("cmake", stand_in_cmake);
    return result;
}

static int forget_build(void **state)
{
    static const char *const names[] = {"built", "broken", "cmake"};
    char path[DAEMON_PATH_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/bin/%s", dir, names[i]);
        (void)unlink(path);
    }
    return 0;
}

static void build_says_what_it_does_and_is_silent_when_all_is_built(void **state)
{
    struct tool tool;
    (void)state;
    run_build(&tool, false);
    assert_int_equal(tool.status, 0);
    assert_contains(tool.err, "building preset fancy in build/fancy");
    assert_null(strstr(tool.err, "[1/2]")); /* no terminal, no progress */
    assert_int_equal(tool.out_size, 0);
    tool_free(&tool);
    run_build(&tool, false);
    assert_int_equal(tool.status, 0);
    assert_string_equal(tool.err, "");
    tool_free(&tool);
}

static void build_shows_its_progress_on_a_terminal(void **state)
{
    struct tool tool;
    (void)state;
    run_build(&tool, true);
    assert_int_equal(tool.status, 0);
    assert_contains(tool.out, "building preset fancy in build/fancy");
    assert_contains(tool.out, "[2/2]");
    tool_free(&tool);
}

static void build_that_fails_shows_its_last_lines(void **state)
{
    struct tool tool;
    (void)state;
    set_answer("broken", "");
    run_build(&tool, false);
    assert_int_equal(tool.status, 1);
    assert_contains(tool.err, "two: error");
    assert_contains(tool.err, "building preset fancy failed");
    tool_free(&tool);
}

/* ---- with the daemons ---- */

/* The nameserver has this broker, as programs see it that use the cluster. */
static void expect_listed(const char *broker)
{
    static const char *const args[] = {
        "-c", "eval \"$(" SOURCE_DIR "/deploy/cluster.sh env)\" && mqadmin clusterList", NULL};
    struct tool tool;
    tool_run(&tool, "/bin/bash", args, NULL, 0);
    assert_int_equal(tool.status, 0);
    assert_contains(tool.out, broker);
    tool_free(&tool);
}

/* C-4 */
static void cluster_goes_up_dies_comes_back_and_goes_down(void **state)
{
    (void)state;
    char *out =
        CLUSTER(0, "up", "1m", "-o", "deleteWhen=04;16", "-o", "registerNameServerPeriod=1s");
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
    free(CLUSTER(0, "wait"));
    expect_listed("broker-a");
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

/* C-4, H-4 */
static void set_gets_in_sync_and_again_after_its_master_or_all_died(void **state)
{
    (void)state;
    free(CLUSTER(0, "up", "1m-1s-sync", "-o", "mappedFileSizeCommitLog=16MiB", "-o",
                 "maxMessageSize=1MiB"));
    free(CLUSTER(0, "wait", "30"));
    free(CLUSTER(0, "kill", "broker-a-0"));
    char *out = CLUSTER(0, "status");
    assert_contains(out, "dead");
    assert_contains(out, "running");
    free(out);
    free(CLUSTER(0, "start", "broker-a-0"));
    free(CLUSTER(0, "wait", "30"));
    free(CLUSTER(0, "kill", "broker-a-0", "broker-a-1"));
    free(CLUSTER(0, "start", "broker-a-0", "broker-a-1"));
    free(CLUSTER(0, "wait", "30"));
    free(CLUSTER(0, "down"));
    free(CLUSTER(0, "up", "1m-1s-sync"));
    free(CLUSTER(0, "wait", "30"));
}

static void example_configurations_are_accepted(void **state)
{
    static const char *const programs[][2] = {
        {"mqnamesrv", "/namesrv.yml"},
        {"mqbroker", "/broker-single.yml"},
        {"mqbroker", "/broker-master.yml"},
        {"mqbroker", "/broker-slave.yml"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        char file[DAEMON_PATH_BYTES];
        struct tool tool;
        snprintf(file, sizeof file, "%s/deploy/config%s", SOURCE_DIR, programs[i][1]);
        tool_run(&tool, programs[i][0], (const char *const[]){"-c", file, "-p", NULL}, NULL, 0);
        if (tool.status != 0)
            fail_msg("%s: %s", programs[i][1], tool.err);
        tool_free(&tool);
    }
}

/* `eval "$(cluster.sh env)"` makes the programs of this cluster talk to it. */
static void env_is_for_a_shell_that_uses_the_cluster(void **state)
{
    (void)state;
    char *err = CLUSTER(1, "env");
    assert_contains(err, "cluster.sh up");
    free(err);
    free(CLUSTER(0, "up", "1m"));
    expect_listed("broker-a");
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
    free(CLUSTER(2, "kill"));
    free(CLUSTER(2, "kill", "nobody"));
    free(CLUSTER(2, "destroy"));
}

#define STAND_IN(test) cmocka_unit_test_setup_teardown(test, stand_in_cluster, destroy)
#define BUILD(test) cmocka_unit_test_setup_teardown(test, stand_in_build, forget_build)
#define REAL(test) cmocka_unit_test_setup_teardown(test, real_cluster, destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STAND_IN(every_layout_has_its_nodes),
        STAND_IN(slaves_and_nameservers_are_told_who_they_are),
        STAND_IN(states_are_what_the_brokers_say),
        STAND_IN(wait_ends_when_all_are_in_sync_and_says_what_is_missing),
        STAND_IN(wait_ends_when_nameservers_that_run_know_all_brokers_that_run),
        STAND_IN(ports_are_kept_and_not_given_to_a_second_cluster),
        STAND_IN(several_nodes_die_and_start_at_once),
        STAND_IN(a_foreign_process_is_neither_shown_nor_killed),
        BUILD(build_says_what_it_does_and_is_silent_when_all_is_built),
        BUILD(build_shows_its_progress_on_a_terminal),
        BUILD(build_that_fails_shows_its_last_lines),
        REAL(cluster_goes_up_dies_comes_back_and_goes_down),
        REAL(set_gets_in_sync_and_again_after_its_master_or_all_died),
        cmocka_unit_test(example_configurations_are_accepted),
        REAL(env_is_for_a_shell_that_uses_the_cluster),
        REAL(settings_for_a_broker_that_runs_are_refused),
        REAL(wrong_usage_ends_with_2),
    };
    return cmocka_run_group_tests_name("deploy", tests, set_up, tear_down);
}
