/*
 * The life of a broker process: places that are taken, starting, idling, stopping under load and
 * with a nameserver that hangs, dying and coming back.
 */
#include <signal.h>
#include <time.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { IDLE_WAKEUPS_PER_SECOND = 10, IDLE_SECONDS = 5, READY_LIMIT_US = 10000000 };

/* ---- places that are taken ---- */

/* A second broker that must not start: exit status 1 and a line with these words. */
static void expect_no_second(const char *port, const char *root, const char *words)
{
    struct tool tool;
    const char *const args[] = {
        "-o", "brokerName=broker-b", "-o", "haListenPort=0", "-o", port, "-o", root, NULL};
    tool_run(&tool, "mqbroker", args, NULL, 0);
    assert_int_equal(tool.status, 1);
    assert_int_equal(tool.out_size, 0);
    if (!strstr(tool.err, words))
        fail_msg("\"%s\" is missing in: %s", words, tool.err);
    tool_free(&tool);
}

static void second_broker_on_a_port_or_a_store_in_use_does_not_start(void **state)
{
    struct cluster cluster;
    struct wire wire;
    char port[64], own_root[DAEMON_PATH_BYTES + 32], other_root[DAEMON_PATH_BYTES + 32];
    (void)state;
    cluster_up_alone(&cluster, NULL);
    snprintf(port, sizeof port, "listenPort=%s", strrchr(cluster.broker.address, ':') + 1);
    snprintf(own_root, sizeof own_root, "storePathRootDir=%s", cluster.store);
    snprintf(other_root, sizeof other_root, "storePathRootDir=%s/other", cluster.dir);
    expect_no_second("listenPort=0", own_root, cluster.store);
    expect_no_second(port, other_root, "listenPort");
    wire_open(&wire, cluster.broker.address, "127.0.0.1@first");
    wire_make_topic(&wire, "T", 1); /* the first one was not harmed */
    wire_send(&wire, "T", 0, "x", NULL);
    wire_close(&wire);
    cluster_down(&cluster);
}

/* ---- starting and idling ---- */

static void broker_is_ready_soon_after_exec(void **state)
{
    struct cluster cluster;
    (void)state;
    cluster_up_alone(&cluster, NULL);
    int64_t first_us = cluster.broker.ready_us;
    assert_int_equal(daemon_stop(&cluster.broker, SIGTERM), 0);
    cluster_start_broker(&cluster);
    print_message("broker ready after %lld us with a new store, %lld us with an old one; "
                  "%lld KiB resident\n",
                  (long long)first_us, (long long)cluster.broker.ready_us,
                  (long long)daemon_rss_kib(&cluster.broker));
    assert_true(first_us < READY_LIMIT_US && cluster.broker.ready_us < READY_LIMIT_US);
    cluster_down(&cluster);
}

static void expect_quiet(const struct daemon *daemon, const struct wakeups *before)
{
    struct wakeups after;
    daemon_wakeups(daemon, &after);
    assert_int_equal(after.count, before->count);
    for (size_t i = 0; i < after.count; i++) {
        assert_int_equal(after.threads[i].tid, before->threads[i].tid);
        long woken = after.threads[i].switches - before->threads[i].switches;
        if (woken > IDLE_WAKEUPS_PER_SECOND * IDLE_SECONDS)
            fail_msg("thread %s woke %ld times in %d s", after.threads[i].name, woken,
                     IDLE_SECONDS);
    }
}

static void no_thread_of_an_idle_daemon_spins(void **state)
{
    struct cluster cluster;
    struct wakeups broker, namesrv;
    struct wire wire;
    (void)state;
    cluster_up(&cluster, NULL);
    wire_open(&wire, cluster.broker.address, "127.0.0.1@idle");
    wire_make_topic(&wire, "T", 4);
    wire_send(&wire, "T", 0, "x", NULL); /* it has work behind it, and a connection */
    struct timespec while_idle = {.tv_sec = 1};
    nanosleep(&while_idle, NULL); /* what the work left to flush is flushed */
    daemon_wakeups(&cluster.broker, &broker);
    daemon_wakeups(&cluster.namesrv, &namesrv);
    while_idle.tv_sec = IDLE_SECONDS;
    nanosleep(&while_idle, NULL);
    expect_quiet(&cluster.broker, &broker);
    expect_quiet(&cluster.namesrv, &namesrv);
    wire_close(&wire);
    cluster_down(&cluster);
}

/* ---- stopping ---- */

/* mqbench in the background. */
static void start_bench(const struct cluster *cluster, struct daemon *bench,
                        const char *const *args)
{
    char log[DAEMON_PATH_BYTES];
    const char *all[DAEMON_ARGS_MAX] = {args[0], "-n", cluster->namesrv_list};
    for (size_t i = 1; args[i]; i++)
        all[i + 2] = args[i];
    snprintf(log, sizeof log, "%s/bench.log", cluster->dir);
    memset(bench, 0, sizeof *bench);
    daemon_spawn(bench, "mqbench", log, all, NULL);
}

static bool recovered_clean(const struct cluster *cluster)
{
    char *status = MQADMIN(cluster, 0, "brokerStatus", "-c", "DefaultCluster", "--json");
    bool clean = strstr(status, "\"storeRecoveredClean\": \"true\"") != NULL ||
                 strstr(status, "\"storeRecoveredClean\":\"true\"") != NULL;
    free(status);
    return clean;
}

static void await_messages(const struct cluster *cluster, int64_t count)
{
    struct wire wire;
    int64_t deadline = now_ms() + PATIENCE_MS;
    wire_open(&wire, cluster->broker.address, "127.0.0.1@watch");
    while (wire_status(&wire, "putMessageTimesTotal") < count) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
    wire_close(&wire);
}

static void stop_under_load_is_clean_and_in_time(void **state)
{
    struct cluster cluster;
    struct daemon bench;
    (void)state;
    cluster_up(&cluster, (const char *const[]){"mappedFileSizeCommitLog=64MiB", NULL});
    start_bench(
        &cluster, &bench,
        (const char *const[]){"produce", "-t", "Load", "--mode", "async", "--seconds", "60", NULL});
    await_messages(&cluster, 1000);
    assert_int_equal(daemon_stop(&cluster.broker, SIGTERM), 0);
    cluster_start_broker(&cluster);
    assert_true(recovered_clean(&cluster));
    daemon_stop(&bench, SIGKILL);
    cluster_down(&cluster);
}

/* N-1: a nameserver that neither answers nor hangs up must not make the stop unclean */
static void stop_with_a_nameserver_that_hangs_is_clean_and_in_time(void **state)
{
    struct cluster cluster;
    (void)state;
    cluster_up(&cluster, (const char *const[]){"registerNameServerPeriod=1000", NULL});
    assert_int_equal(kill(cluster.namesrv.pid, SIGSTOP), 0);
    struct timespec until_a_round_hangs = {.tv_sec = 1, .tv_nsec = 500000000};
    nanosleep(&until_a_round_hangs, NULL);
    assert_int_equal(daemon_stop(&cluster.broker, SIGTERM), 0);
    assert_int_equal(kill(cluster.namesrv.pid, SIGCONT), 0);
    cluster_start_broker(&cluster);
    assert_true(recovered_clean(&cluster));
    cluster_down(&cluster);
}

/* A client that keeps its connection and never reads must not hold up the stop either */
static void stop_with_a_client_that_does_not_read_is_clean_and_in_time(void **state)
{
    enum { REQUESTS = 400, BODY = 256 << 10 };
    struct cluster cluster;
    struct wire wire;
    uint8_t header[256];
    Tern__Wire__PullRequest pull;
    (void)state;
    cluster_up_alone(&cluster, (const char *const[]){"flushDiskType=ASYNC_FLUSH", NULL});
    wire_open(&wire, cluster.broker.address, "127.0.0.1@lazy");
    wire_make_topic(&wire, "T", 1);
    char *body = malloc(BODY);
    assert_non_null(body);
    memset(body, 'x', BODY);
    body[BODY - 1] = 0;
    wire_send(&wire, "T", 0, body, NULL);
    free(body);
    wire_await_offset(&wire, "T", 0, 1);
    wire_fill_pull(&pull, "T", 0, 0);
    WIRE_REQUEST(request, PULL, pull, &pull);
    request.version = PROTOCOL_VERSION;
    size_t size = tern__wire__request__pack(&request, header);
    int fd = raw_open(cluster.broker.address);
    for (int i = 0; i < REQUESTS; i++)
        raw_send_frame(fd, (uint32_t)size, header, size, NULL, 0);
    wire_status(&wire, "parkedPulls"); /* others are still served */
    assert_int_equal(daemon_stop(&cluster.broker, SIGTERM), 0);
    raw_reset(fd);
    wire_close(&wire);
    cluster_down(&cluster);
}

/* ---- dying ---- */

/* S-6: everything acknowledged is there, in order, unaltered; the checker rides through the death
 */
static void killed_broker_comes_back_with_all_that_it_acknowledged(void **state)
{
    struct cluster cluster;
    struct daemon bench;
    (void)state;
    cluster_up(&cluster, (const char *const[]){"mappedFileSizeCommitLog=64MiB", NULL});
    start_bench(&cluster, &bench,
                (const char *const[]){"verify", "-t", "Checked", "--mode", "batch", "--seconds",
                                      "3", "--json", NULL});
    await_messages(&cluster, 1000);
    assert_int_equal(daemon_stop(&cluster.broker, SIGKILL), -SIGKILL);
    cluster_start_broker(&cluster);
    await_messages(&cluster, 1000);
    int status = daemon_wait(&bench, 2 * PATIENCE_MS);
    if (status != 0)
        daemon_fail(&bench, "mqbench verify ended with %d", status);
    cluster_down(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_broker_on_a_port_or_a_store_in_use_does_not_start),
        cmocka_unit_test(broker_is_ready_soon_after_exec),
        cmocka_unit_test(no_thread_of_an_idle_daemon_spins),
        cmocka_unit_test(stop_under_load_is_clean_and_in_time),
        cmocka_unit_test(stop_with_a_nameserver_that_hangs_is_clean_and_in_time),
        cmocka_unit_test(stop_with_a_client_that_does_not_read_is_clean_and_in_time),
        cmocka_unit_test(killed_broker_comes_back_with_all_that_it_acknowledged),
    };
    return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
