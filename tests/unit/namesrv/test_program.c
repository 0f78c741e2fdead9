/* The command line of daemons, and the nameserver's configuration as it is put together from it. */
#include "base/program.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "namesrv/namesrv_config.h"
#include "tests/unit/base/unit.h"

static const struct program_info info = {.name = "mqtest", .summary = "A test."};
static const struct program_info broker = {
    .name = "mqtest", .summary = "A test.", .takes_namesrv = true};

static enum program_exit parse(const struct program_info *program, struct program_options *out,
                               const char *a, const char *b, const char *c)
{
    char *argv[] = {(char *)(uintptr_t) "mqtest", (char *)(uintptr_t)a, (char *)(uintptr_t)b,
                    (char *)(uintptr_t)c, NULL};
    int argc = 1;
    while (argv[argc])
        argc++;
    return program_parse(program, argc, argv, out);
}

static void options_are_taken_in_any_order(void **state)
{
    struct program_options options;
    (void)state;
    assert_int_equal(parse(&info, &options, "-ofoo=1", "-p", "-cfile"), PROGRAM_GO_ON);
    assert_string_equal(options.config_path, "file");
    assert_int_equal(options.override_count, 1);
    assert_string_equal(options.overrides[0], "foo=1");
    assert_true(options.print_config);
    assert_int_equal(parse(&broker, &options, "-n", "a:1;b:2", NULL), PROGRAM_GO_ON);
    assert_string_equal(options.namesrv, "a:1;b:2");
}

static void wrong_options_are_wrong_usage(void **state)
{
    struct program_options options;
    (void)state;
    assert_int_equal(parse(&info, &options, "-x", NULL, NULL), PROGRAM_WRONG_USAGE);
    assert_int_equal(parse(&info, &options, "-n", "a:1", NULL), PROGRAM_WRONG_USAGE);
    assert_int_equal(parse(&info, &options, "-c", NULL, NULL), PROGRAM_WRONG_USAGE);
    assert_int_equal(parse(&info, &options, "--nothing", NULL, NULL), PROGRAM_WRONG_USAGE);
    assert_int_equal(parse(&info, &options, "argument", NULL, NULL), PROGRAM_WRONG_USAGE);
}

static enum program_exit configure(const char *assignment, struct namesrv_config *config)
{
    struct program_options options = {.overrides = {assignment}, .override_count = 1};
    return program_configure(&info, &options, &namesrv_config_table, config, namesrv_config_finish);
}

static void configuration_has_rocketmqs_defaults(void **state)
{
    struct namesrv_config config;
    (void)state;
    setenv("HOME", "/home/somebody", 1);
    assert_int_equal(configure("listenPort=0", &config), PROGRAM_GO_ON);
    assert_string_equal(config.listen_addr, "127.0.0.1");
    assert_int_equal(config.listen_port, 0);
    assert_string_equal(config.kv_config_path, "/home/somebody/namesrv/kvConfig.json");
    assert_int_equal(config.broker_expire_ms, 120000);
    assert_int_equal(config.scan_interval_ms, 10000);
}

static void wrong_configuration_is_wrong_usage(void **state)
{
    static const char *const wrong[] = {"listenPort=70000", "listenPort=x",    "nokey=1",
                                        "listenPort",       "scanInterval=0s", "rocketmqHome=/opt",
                                        "logLevel=LOUD"};
    struct namesrv_config config;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(configure(wrong[i], &config), PROGRAM_WRONG_USAGE);
    unsetenv("HOME");
    assert_int_equal(configure("listenPort=0", &config), PROGRAM_WRONG_USAGE);
    assert_int_equal(configure("kvConfigPath=/x", &config), PROGRAM_GO_ON);
}

static void addresses_are_joined_and_told_from_loopback(void **state)
{
    char out[PROGRAM_ADDRESS_BYTES];
    (void)state;
    assert_ok(program_join_address(out, "127.0.0.1", 9876, NULL));
    assert_string_equal(out, "127.0.0.1:9876");
    assert_ok(program_join_address(out, "::1", 0, NULL));
    assert_string_equal(out, "[::1]:0");
    assert_int_equal(program_join_address(out, "", 1, NULL), TERN_CONFIG);
    assert_true(program_host_is_loopback("127.9.0.1"));
    assert_true(program_host_is_loopback("::1"));
    assert_true(program_host_is_loopback("localhost"));
    assert_false(program_host_is_loopback("0.0.0.0"));
    assert_false(program_host_is_loopback("127.0.0.1.example.org"));
    assert_false(program_host_is_loopback("::"));
}

/* Runs fn in a child; its exit status. */
static int exit_status_of(void (*fn)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fn();
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void stops_in_time(void)
{
    program_block_signals();
    raise(SIGTERM);
    _exit(program_wait_stop(60) == SIGTERM ? PROGRAM_DONE : 98);
}

static void hangs_in_its_stop(void)
{
    program_block_signals();
    raise(SIGINT);
    if (program_wait_stop(1) == SIGINT)
        for (;;)
            pause();
}

static void blocked_signal_asks_for_the_stop(void **state)
{
    (void)state;
    assert_int_equal(exit_status_of(stops_in_time), PROGRAM_DONE);
}

static void watchdog_ends_a_stop_that_hangs(void **state)
{
    (void)state;
    assert_int_equal(exit_status_of(hangs_in_its_stop), PROGRAM_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_taken_in_any_order),
        cmocka_unit_test(wrong_options_are_wrong_usage),
        cmocka_unit_test(configuration_has_rocketmqs_defaults),
        cmocka_unit_test(wrong_configuration_is_wrong_usage),
        cmocka_unit_test(blocked_signal_asks_for_the_stop),
        cmocka_unit_test(watchdog_ends_a_stop_that_hangs),
        cmocka_unit_test(addresses_are_joined_and_told_from_loopback),
    };
    return cmocka_run_group_tests_name("program", tests, NULL, NULL);
}
