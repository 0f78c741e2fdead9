/*
 * A set whose processes hang, die and come back while messages go through it.
 */
#include <signal.h>
#include <unistd.h>

#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

enum {
    WAITING = 12,
    ROUNDS = 5,
    LOAD_BYTES = 100000,
    LOAD_MS = 4000,
    RECOVERS_MS = 15000,
    MOVED_MS = 20000
};

/* ---- a hung slave ---- */

struct timed_send {
    struct wire_pending pending;
    int64_t begin_ms, timeout_ms;
};

static void start_send(struct wire *wire, struct timed_send *timed, int64_t timeout_ms)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    send.topic = bytes_of_text("T");
    WIRE_REQUEST(request, SEND, send, &send);
    timed->begin_ms = now_ms();
    timed->timeout_ms = timeout_ms;
    wire_start_within(wire, &request, "waits", 5, timeout_ms, &timed->pending);
}

/* The answer comes before the sender gives up (HA-12), and not much before (HA-10). */
static void expect_ends_at_its_deadline(struct timed_send *timed)
{
    assert_true(wire_wait(&timed->pending, PATIENCE_MS));
    int64_t took = now_ms() - timed->begin_ms;
    const struct rpc_call *call = timed->pending.call;
    if (call->status != TERN_OK || call->response->code != CODE(FLUSH_SLAVE_TIMEOUT))
        fail_msg("timeout %lld: status %s code %d after %lld ms", (long long)timed->timeout_ms,
                 tern_code_name(call->status), call->status ? -1 : call->response->code,
                 (long long)took);
    if (took < timed->timeout_ms * 8 / 10)
        fail_msg("a send with a timeout of %lld ms ended after %lld", (long long)timed->timeout_ms,
                 (long long)took);
    rpc_call_unref(timed->pending.call);
}

/* HA-10, HA-11, HA-12 */
static void sends_behind_a_hung_slave_end_at_their_own_deadlines(void **state)
{
    struct broker_set set;
    struct timed_send timed[WAITING];
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, (const char *const[]){"flushDiskType=ASYNC_FLUSH", NULL});
    struct wire *master = set_wire(&set, 0);
    wire_make_topic(master, "T", 1);
    assert_int_equal(send_code(master, "T", "x"), CODE(SUCCESS));
    set_pause(&set, 1);
    for (size_t i = 0; i < WAITING; i++)
        start_send(master, &timed[i], 2000 + 1000 * (int64_t)(i % 4));
    int64_t begin = now_ms();
    for (int i = 0; i < 200; i++) /* others go on meanwhile */
        wire_send(master, "T", 0, "does not wait", "WAIT\001false\002");
    assert_true(now_ms() - begin < PATIENCE_MS); /* nor do they queue up behind the waiting */
    for (size_t turn = 0; turn < 4; turn++)      /* the earliest first */
        for (size_t i = turn; i < WAITING; i += 4)
            expect_ends_at_its_deadline(&timed[i]);
    set_resume(&set, 1);
    begin = now_ms();
    while (send_code(master, "T", "x") != CODE(SUCCESS))
        assert_true(now_ms() - begin < PATIENCE_MS);
    print_message("OK again %lld ms after the slave went on\n", (long long)(now_ms() - begin));
    assert_true(now_ms() - begin < RECOVERS_MS);
    set_await_equal(&set, 1);
    set_down(&set);
}

/* HA-11: one that stays away leaves the set, and then nobody waits for it */
static void slave_that_hangs_too_long_leaves_and_comes_back(void **state)
{
    struct broker_set set;
    struct set_view view;
    (void)state;
    set_up(&set, "SYNC_MASTER", 2,
           (const char *const[]){"haMaxTimeSlaveNotCatchup=2s", "inSyncReplicas=all", NULL});
    struct wire *master = set_wire(&set, 0);
    wire_make_topic(master, "T", 1);
    set_pause(&set, 2);
    int64_t begin = now_ms();
    assert_int_equal(send_code(master, "T", "x"), CODE(SUCCESS)); /* once it has left */
    print_message("a send waited %lld ms for a hung slave to leave\n",
                  (long long)(now_ms() - begin));
    set_view(&set, 0, &view);
    assert_int_equal(view.in_sync, 1);
    set_pause(&set, 1);
    assert_int_equal(send_code(master, "T", "x"), CODE(SLAVE_NOT_AVAILABLE));
    assert_true(set_logged(&set, 0, "insync_left"));
    set_resume(&set, 1);
    set_resume(&set, 2);
    set_await_in_sync(&set, 2);
    assert_int_equal(send_code(master, "T", "x"), CODE(SUCCESS));
    set_await_equal(&set, 1);
    set_await_equal(&set, 2);
    set_down(&set);
}

/* ---- a slave whose disk fails ---- */

/* ST-07 at a slave: what it could not sync it never acknowledges, not with a later sync either */
static void slave_whose_sync_fails_acknowledges_nothing_until_it_restarts(void **state)
{
    struct broker_set set;
    char trigger[DAEMON_PATH_BYTES], of[DAEMON_PATH_BYTES + 32];
    char when[DAEMON_PATH_BYTES + 32], preload[DAEMON_PATH_BYTES + 32];
    const char *environment[] = {preload, of, when, NULL};
    (void)state;
    set_make(
        &set, "SYNC_MASTER", 1,
        (const char *const[]){"flushDiskType=SYNC_FLUSH", "haMaxTimeSlaveNotCatchup=1s", NULL});
    snprintf(trigger, sizeof trigger, "%.60s/fail-now", set.dir);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", FSYNC_SHIM);
    snprintf(of, sizeof of, "FAIL_SYNC_OF=/commitlog/");
    snprintf(when, sizeof when, "FAIL_SYNC_TRIGGER=%s", trigger);
    set.nodes[1].environment = environment;
    set_start(&set, 0);
    set_start(&set, 1);
    set_await_in_sync(&set, 1);
    struct wire *master = set_wire(&set, 0);
    wire_make_topic(master, "T", 1);
    assert_int_equal(send_code(master, "T", "x"), CODE(SUCCESS));
    file_write(trigger, "", 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(send_code(master, "T", "x"), CODE(SLAVE_NOT_AVAILABLE));
    set_await_logged(&set, 1, "store_read_only");
    set_kill(&set, 1);
    set_start(&set, 1);
    set_await_in_sync(&set, 1);
    assert_int_equal(send_code(master, "T", "x"), CODE(SUCCESS));
    set_await_equal(&set, 1);
    set_stop(&set, 1);
    set_stop(&set, 0);
    set_expect_sound_stores(&set, 2);
    set_down(&set);
}

/* ---- chunks ---- */

static void expect_same_files(const struct broker_set *set, const char *what)
{
    char a[DAEMON_PATH_BYTES], b[DAEMON_PATH_BYTES];
    struct tool tool;
    tool_run(&tool, "/usr/bin/diff",
             (const char *const[]){"-r", "-q", set_file(set, 0, what, a), set_file(set, 1, what, b),
                                   NULL},
             NULL, 0);
    if (tool.status != 0)
        fail_msg("%s differs:\n%s%s", what, tool.out, tool.err);
    tool_free(&tool);
}

static void produce(const struct broker_set *set, const char *count, const char *size)
{
    struct tool tool;
    tool_run(&tool, "mqbench",
             (const char *const[]){"produce", "-n", set->namesrv_list, "-t", "T", "--count", count,
                                   "--size", size, "--mode", "async", NULL},
             NULL, 0);
    if (tool.status != 0)
        fail_msg("mqbench: %s%s", tool.out, tool.err);
    tool_free(&tool);
}

/* HA-04, HA-06: a backlog in chunks that end in records, from slaves killed on the way; and small
 * segments, where chunks end with them */
static void queues_of_a_slave_are_the_masters_byte_for_byte(void **state)
{
    static const char *const layouts[][6] = {
        {"mappedFileSizeCommitLog=8MiB", "mappedFileSizeConsumeQueue=4000",
         "flushDiskType=ASYNC_FLUSH", NULL},
        {"mappedFileSizeCommitLog=256KiB", "mappedFileSizeConsumeQueue=4000",
         "flushDiskType=ASYNC_FLUSH", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct broker_set set;
        set_make(&set, "ASYNC_MASTER", 1, layouts[i]);
        set_start(&set, 0);
        set_await_in_sync(&set, 0);
        produce(&set, "2500", "3001");
        produce(&set, "2500", "701");
        for (int kill = 0; kill < 3; kill++) {
            set_start(&set, 1);
            set_kill(&set, 1);
        }
        set_start(&set, 1);
        produce(&set, "500", "1777");
        set_await_equal(&set, 1);
        set_stop(&set, 1);
        set_stop(&set, 0);
        set_expect_sound_stores(&set, 2);
        expect_same_files(&set, "consumequeue");
        expect_same_files(&set, "commitlog");
        set_down(&set);
    }
}

/* ---- masters that die ---- */

/* mqbench verify as a process of its own, with what it prints at its end. */
struct checker {
    struct daemon daemon;
    char text[4096];
};

static void checker_start(struct checker *checker, const struct broker_set *set, const char *topic,
                          const char *seconds, const char *more)
{
    char log[DAEMON_PATH_BYTES];
    memset(checker, 0, sizeof *checker);
    snprintf(log, sizeof log, "%.60s/checker.log", set->dir);
    daemon_spawn(&checker->daemon, "mqbench", log,
                 (const char *const[]){"verify", "-n", set->namesrv_list, "-t", topic, "--seconds",
                                       seconds, "--size", "2000", "--drain", "20", "--json", more,
                                       NULL},
                 NULL);
}

/* It must have found nothing. */
static void checker_finish(struct checker *checker)
{
    size_t len = 0;
    ssize_t got;
    while ((got = read(checker->daemon.out, checker->text + len, sizeof checker->text - 1 - len)) >
           0)
        len += (size_t)got;
    int status = daemon_wait(&checker->daemon, 4 * PATIENCE_MS);
    print_message("%s\n", checker->text);
    if (status != 0)
        daemon_fail(&checker->daemon, "the checker ended with %d", status);
}

/* Until some bytes more have come to the master; false: the checker has sent all. */
static bool await_load(struct broker_set *set)
{
    struct set_view before, view;
    int64_t deadline = now_ms() + LOAD_MS;
    set_view(set, 0, &before);
    do {
        set_view(set, 0, &view);
        if (now_ms() >= deadline)
            return false;
        look_again_soon();
    } while (view.end < before.end + LOAD_BYTES);
    return true;
}

/* HA-05, OF-02: nothing acknowledged is lost over masters that die and return, and what whole
 * records a slave got is all visible there */
static void checker_finds_nothing_over_killed_masters(void **state)
{
    struct broker_set set;
    struct checker checker;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, (const char *const[]){"flushDiskType=ASYNC_FLUSH", NULL});
    checker_start(&checker, &set, "Checked", "6", NULL);
    for (int round = 0; round < ROUNDS && await_load(&set); round++) {
        struct set_view view;
        set_kill(&set, 0);
        set_await_state(&set, 1, TERN__WIRE__HA_STATE__HA_SEEKING);
        int64_t deadline = now_ms() + PATIENCE_MS;
        do {
            set_view(&set, 1, &view);
            assert_true(now_ms() < deadline);
        } while (view.dispatched != view.end);
        set_start(&set, 0);
        set_await_in_sync(&set, 1);
    }
    checker_finish(&checker);
    set_await_equal(&set, 1);
    set_kill(&set, 0);
    set_kill(&set, 1);
    set_expect_sound_stores(&set, 2);
    set_down(&set);
}

/* The same read from the slave, while both are killed in turns */
static void slave_shows_everything_over_kills_of_both(void **state)
{
    struct broker_set set;
    struct checker checker;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, (const char *const[]){NULL});
    checker_start(&checker, &set, "FromSlave", "6", "--from-slave");
    for (size_t round = 0; round < ROUNDS - 1 && await_load(&set); round++) {
        set_kill(&set, round % 2);
        if (round == 2)
            set_kill(&set, 1);
        set_start(&set, 0 + round % 2);
        if (round == 2)
            set_start(&set, 1);
        set_await_in_sync(&set, 1);
    }
    checker_finish(&checker);
    set_stop(&set, 1);
    set_stop(&set, 0);
    set_expect_sound_stores(&set, 2);
    set_down(&set);
}

/* A stop under load ends in time, cleanly, and the other goes on */
static void stops_under_load_end_in_time(void **state)
{
    struct broker_set set;
    struct checker checker;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, (const char *const[]){"flushDiskType=ASYNC_FLUSH", NULL});
    checker_start(&checker, &set, "Stopped", "3", NULL);
    for (size_t round = 0; round < 4 && await_load(&set); round++) {
        int64_t begin = now_ms();
        set_stop(&set, round % 2);
        print_message("%s stopped in %lld ms\n", round % 2 ? "slave" : "master",
                      (long long)(now_ms() - begin));
        set_start(&set, round % 2);
        set_await_in_sync(&set, 1);
    }
    checker_finish(&checker);
    set_down(&set);
}

/* HA-19 */
static void slave_follows_a_master_that_moved(void **state)
{
    struct broker_set set;
    struct set_view before, view;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, NULL);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    for (int round = 0; round < 3; round++) {
        set_view(&set, 0, &before);
        if (round == 1)
            set_stop(&set, 0);
        else
            set_kill(&set, 0);
        set_move(&set, 0);
        int64_t begin = now_ms();
        set_start(&set, 0);
        set_await_in_sync(&set, 1);
        print_message("in sync %lld ms after the start elsewhere\n", (long long)(now_ms() - begin));
        assert_true(now_ms() - begin < MOVED_MS);
        set_view(&set, 0, &view);
        assert_string_not_equal(before.ha_address, view.ha_address);
        assert_int_equal(send_code(set_wire(&set, 0), "T", "x"), CODE(SUCCESS));
        char *route = SET_MQADMIN(&set, 0, "topicRoute", "-t", "T");
        assert_contains(route, set.nodes[0].daemon.address);
        free(route);
    }
    set_down(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_behind_a_hung_slave_end_at_their_own_deadlines),
        cmocka_unit_test(slave_that_hangs_too_long_leaves_and_comes_back),
        cmocka_unit_test(slave_whose_sync_fails_acknowledges_nothing_until_it_restarts),
        cmocka_unit_test(queues_of_a_slave_are_the_masters_byte_for_byte),
        cmocka_unit_test(checker_finds_nothing_over_killed_masters),
        cmocka_unit_test(slave_shows_everything_over_kills_of_both),
        cmocka_unit_test(stops_under_load_end_in_time),
        cmocka_unit_test(slave_follows_a_master_that_moved),
    };
    return cmocka_run_group_tests_name("replication_faults", tests, NULL, NULL);
}
