/*
 * Daemons under the limits of their process: how many files they may have open, how much memory.
 * What is too little is said in words that name the limit; what is little is shared out so that
 * clients cannot take what the store needs.
 */
#include <signal.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

/* The rest of the arguments becomes the program, after this. */
#define UNDER(limits) "-c", limits "; exec \"$0\" \"$@\""

static void expect_refusal(const char *const *args, const char *const *words)
{
    struct tool tool;
    tool_run(&tool, "/bin/sh", args, NULL, 0);
    assert_int_equal(tool.status, 1);
    assert_int_equal(tool.out_size, 0);
    for (size_t i = 0; words[i]; i++)
        if (!strstr(tool.err, words[i]))
            fail_msg("\"%s\" is missing in: %s", words[i], tool.err);
    tool_free(&tool);
}

static void broker_with_too_few_files_does_not_start(void **state)
{
    (void)state;
    char dir[WORK_DIR_BYTES], root[DAEMON_PATH_BYTES];
    work_dir_make(dir);
    snprintf(root, sizeof root, "storePathRootDir=%s/store", dir);
    expect_refusal((const char *const[]){UNDER("ulimit -n 40"), BIN_DIR "/mqbroker", "-o",
                                         "listenPort=0", "-o", "haListenPort=0", "-o", root, NULL},
                   (const char *const[]){"mqbroker: ", " 40 ", "ulimit -n", "LimitNOFILE=", NULL});
    work_dir_remove(dir);
}

static void nameserver_with_too_few_files_does_not_start(void **state)
{
    (void)state;
    char dir[WORK_DIR_BYTES], kv[DAEMON_PATH_BYTES];
    work_dir_make(dir);
    snprintf(kv, sizeof kv, "kvConfigPath=%s/kv.json", dir);
    expect_refusal((const char *const[]){UNDER("ulimit -n 20"), BIN_DIR "/mqnamesrv", "-o",
                                         "listenPort=0", "-o", kv, NULL},
                   (const char *const[]){"mqnamesrv: ", " 20 ", "ulimit -n", "LimitNOFILE=", NULL});
    work_dir_remove(dir);
}

static void spawn_broker(struct daemon *broker, const char *dir, const char *shell)
{
    char root[DAEMON_PATH_BYTES], log[DAEMON_PATH_BYTES];
    snprintf(root, sizeof root, "storePathRootDir=%s/store", dir);
    snprintf(log, sizeof log, "%s/broker.log", dir);
    memset(broker, 0, sizeof *broker);
    daemon_spawn(broker, "/bin/sh", log,
                 (const char *const[]){"-c", shell, BIN_DIR "/mqbroker", "-o", "listenPort=0", "-o",
                                       "haListenPort=0", "-o", root, NULL},
                 NULL);
    if (!daemon_wait_ready(broker))
        daemon_fail(broker, "the broker did not start");
}

/* More clients than there are files: the surplus is turned away, the store goes on. */
static void clients_do_not_take_the_stores_files(void **state)
{
    (void)state;
    enum { CLIENTS = 100 };
    static struct wire wires[CLIENTS];
    struct daemon broker;
    struct wire wire;
    char dir[WORK_DIR_BYTES];
    work_dir_make(dir);
    spawn_broker(&broker, dir, "ulimit -n 128; exec \"$0\" \"$@\"");
    assert_true(file_contains(broker.log, "WARN file_limit"));
    assert_true(file_contains(broker.log, "maxConnections=64"));
    assert_true(file_contains(broker.log, "openFilesMax=32"));
    wire_open(&wire, broker.address, "127.0.0.1@first");
    wire_make_topic(&wire, "T", 1);
    for (int i = 0; i < CLIENTS; i++)
        wire_open(&wires[i], broker.address, "127.0.0.1@further");
    for (int i = 0; i < 20; i++)
        wire_send(&wire, "T", 0, "x", NULL);
    for (int i = 0; i < CLIENTS; i++)
        wire_close(&wires[i]);
    wire_close(&wire);
    assert_int_equal(daemon_stop(&broker, SIGTERM), 0);
    assert_false(file_contains(broker.log, "Too many open files"));
    work_dir_remove(dir);
}

/* The soft limit is for programs that use select(); what the hard one allows is taken silently. */
static void soft_limit_of_files_is_raised(void **state)
{
    (void)state;
    struct daemon broker;
    char dir[WORK_DIR_BYTES];
    work_dir_make(dir);
    spawn_broker(&broker, dir, "ulimit -H -n 4096; ulimit -S -n 40; exec \"$0\" \"$@\"");
    assert_false(file_contains(broker.log, "WARN file_limit"));
    assert_int_equal(daemon_stop(&broker, SIGTERM), 0);
    work_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broker_with_too_few_files_does_not_start),
        cmocka_unit_test(nameserver_with_too_few_files_does_not_start),
        cmocka_unit_test(clients_do_not_take_the_stores_files),
        cmocka_unit_test(soft_limit_of_files_is_raised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
