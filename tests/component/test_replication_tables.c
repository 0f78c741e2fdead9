/*
 * What a set keeps beside its log over processes that die, and what operators see of it: topics,
 * groups, progress; mqadmin haStatus, brokerStatus, forceOpen and rejoin on real sets.
 */
#include <signal.h>

#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

enum { TOPICS = 100, KILLS = 6, PROGRESS = 80 };

static const char *const overrides[] = {"flushDiskType=ASYNC_FLUSH", NULL};

/* ---- topics and groups ---- */

static void name_of(char name[16], int i)
{
    snprintf(name, 16, "Many%d", i);
}

/* Every topic is there with its message, and the group's progress. */
static void expect_all_topics(struct broker_set *set, size_t node)
{
    char name[16];
    int64_t offset;
    struct wire *wire = set_wire(set, node);
    for (int i = 0; i < TOPICS; i++) {
        name_of(name, i);
        struct rpc_call *call = pull_from(wire, name, name, 0, 0);
        if (call->response->code != CODE(SUCCESS))
            fail_msg("%s at node %zu: code %d %s", name, node, call->response->code,
                     call->response->remark);
        rpc_call_unref(call);
        assert_int_equal(query_progress(wire, name, name, &offset, NULL), CODE(SUCCESS));
        assert_int_equal(offset, 1);
    }
}

/* MD-01, MD-04 */
static void slave_serves_every_topic_while_its_master_dies_again_and_again(void **state)
{
    struct broker_set set;
    char name[16], path[DAEMON_PATH_BYTES];
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, overrides);
    for (int i = 0; i < TOPICS; i++) {
        Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
        int64_t none;
        name_of(name, i);
        wire_make_topic(set_wire(&set, 0), name, 1);
        assert_int_equal(wire_send(set_wire(&set, 0), name, 0, "x", NULL), 0);
        wire_await_offset(set_wire(&set, 0), name, 0, 1);
        query_progress(set_wire(&set, 0), name, name, &none, &version);
        assert_int_equal(commit_to(set_wire(&set, 0), name, name, 1, &version), CODE(SUCCESS));
    }
    set_await_equal(&set, 1);
    for (int kill = 0; kill < KILLS; kill++) {
        expect_all_topics(&set, 1);
        set_kill(&set, 0);
        expect_all_topics(&set, 1);
        set_spawn(&set, 0);
        expect_all_topics(&set, 1);
        assert_true(daemon_wait_ready(&set.nodes[0].daemon));
        if (kill % 2)
            set_await_in_sync(&set, 1);
    }
    set_await_in_sync(&set, 1);
    set_kill(&set, 1);
    set_kill(&set, 0);
    set_start(&set, 1);
    expect_all_topics(&set, 1);
    assert_true(file_contains(set_file(&set, 1, "config/topics.json", path), "\"Many99\""));
    assert_true(
        file_contains(set_file(&set, 1, "config/subscriptionGroup.json", path), "\"Many99\""));
    set_down(&set);
}

/* ---- progress ---- */

/* MD-07 */
static void progress_made_at_the_slave_comes_back_with_the_master(void **state)
{
    struct broker_set set;
    int64_t offset, last = 0;
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, overrides);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    for (int i = 0; i < PROGRESS; i++)
        wire_send(set_wire(&set, 0), "T", 0, "x", NULL);
    wire_await_offset(set_wire(&set, 0), "T", 0, PROGRESS);
    query_progress(set_wire(&set, 0), "G", "T", &offset, &version);
    assert_int_equal(commit_to(set_wire(&set, 0), "G", "T", 10, &version), CODE(SUCCESS));
    for (int round = 0; round < 4; round++) {
        set_kill(&set, 0);
        set_await_state(&set, 1, TERN__WIRE__HA_STATE__HA_SEEKING);
        wire_await_offset(set_wire(&set, 1), "T", 0, PROGRESS);
        assert_int_equal(query_progress(set_wire(&set, 1), "G", "T", &offset, &version),
                         CODE(SUCCESS));
        assert_true(offset >= last);
        last = 20 + 10 * round;
        assert_int_equal(commit_to(set_wire(&set, 1), "G", "T", last, &version), CODE(SUCCESS));
        set_start(&set, 0);
        set_await_in_sync(&set, 1);
        set_await_equal(&set, 1);
        assert_int_equal(query_progress(set_wire(&set, 0), "G", "T", &offset, &version),
                         CODE(SUCCESS));
        assert_int_equal(offset, last);
        /* Answered once the slave has it, and with it the version of the master's new life */
        assert_int_equal(commit_to(set_wire(&set, 0), "G", "T", ++last, &version), CODE(SUCCESS));
    }
    set_down(&set);
}

/* MD-07: also when the master dies once more before the slave has heard of its recovery */
static void progress_made_at_the_slave_survives_a_master_that_dies_twice(void **state)
{
    struct broker_set set;
    struct set_view view;
    int64_t offset;
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, overrides);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    for (int i = 0; i < PROGRESS; i++)
        wire_send(set_wire(&set, 0), "T", 0, "x", NULL);
    wire_await_offset(set_wire(&set, 0), "T", 0, PROGRESS);
    query_progress(set_wire(&set, 0), "G", "T", &offset, &version);
    assert_int_equal(commit_to(set_wire(&set, 0), "G", "T", 10, &version), CODE(SUCCESS));
    set_kill(&set, 0);
    set_await_state(&set, 1, TERN__WIRE__HA_STATE__HA_SEEKING);
    for (int64_t life = 1; life <= 2; life++) {
        query_progress(set_wire(&set, 1), "G", "T", &offset, &version);
        assert_int_equal(commit_to(set_wire(&set, 1), "G", "T", 10 + 10 * life, &version),
                         CODE(SUCCESS));
        set_start(&set, 0);
        do
            set_view(&set, 0, &view);
        while (!view.writable);
        assert_int_equal(query_progress(set_wire(&set, 0), "G", "T", &offset, NULL), CODE(SUCCESS));
        assert_int_equal(offset, 10 + 10 * life);
        set_kill(&set, 0);
        set_await_state(&set, 1, TERN__WIRE__HA_STATE__HA_SEEKING);
    }
    set_start(&set, 0);
    set_await_in_sync(&set, 1);
    set_down(&set);
}

/* H-5: a master that stood still does not know what its slave promised meanwhile, and says so until
 * it does */
static void progress_made_while_the_master_stood_still_never_falls(void **state)
{
    struct broker_set set;
    int64_t offset;
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, overrides);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    for (int i = 0; i < PROGRESS; i++)
        wire_send(set_wire(&set, 0), "T", 0, "x", NULL);
    wire_await_offset(set_wire(&set, 0), "T", 0, PROGRESS);
    query_progress(set_wire(&set, 0), "G", "T", &offset, &version);
    assert_int_equal(commit_to(set_wire(&set, 0), "G", "T", 10, &version), CODE(SUCCESS));
    set_pause(&set, 0);
    set_await_state(&set, 1, TERN__WIRE__HA_STATE__HA_SEEKING);
    assert_int_equal(commit_to(set_wire(&set, 1), "G", "T", 20, &version), CODE(SUCCESS));
    set_resume(&set, 0);
    int32_t code;
    do
        code = query_progress(set_wire(&set, 0), "G", "T", &offset, NULL);
    while (code == CODE(PROGRESS_UNKNOWN));
    assert_int_equal(code, CODE(SUCCESS));
    assert_int_equal(offset, 20);
    assert_true(set_logged(&set, 0, "stood_still"));
    set_down(&set);
}

/* ---- operators ---- */

static void expect_words(char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strstr(text, *words))
            fail_msg("\"%s\" is missing in:\n%s", *words, text);
    free(text);
}
#define EXPECT_WORDS(text, ...) expect_words(text, (const char *const[]){__VA_ARGS__, NULL})

static void operators_see_the_set_and_open_it_by_force(void **state)
{
    struct broker_set set;
    struct set_view view;
    int64_t offset;
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, overrides);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    assert_int_equal(send_code(set_wire(&set, 0), "T", "x"), CODE(SUCCESS));
    query_progress(set_wire(&set, 0), "G", "T", &offset, &version);
    wire_await_offset(set_wire(&set, 0), "T", 0, 1);
    assert_int_equal(commit_to(set_wire(&set, 0), "G", "T", 1, &version), CODE(SUCCESS));
    const char *master = set.nodes[0].daemon.address, *slave = set.nodes[1].daemon.address;
    EXPECT_WORDS(SET_MQADMIN(&set, 0, "haStatus"), "open", "following", "in sync", slave, master);
    EXPECT_WORDS(SET_MQADMIN(&set, 0, "haStatus", "--json"), "\"inSync\"", "\"storeUuid\"");
    EXPECT_WORDS(SET_MQADMIN(&set, 0, "brokerStatus", "-b", slave), "FOLLOWING", "SLAVE");
    EXPECT_WORDS(SET_MQADMIN(&set, 0, "clusterList"), master, slave);
    free(SET_MQADMIN(&set, 1, "forceOpen", "-a", slave, "--yes"));
    free(SET_MQADMIN(&set, 1, "forceOpen", "-a", master, "--yes"));
    free(SET_MQADMIN(&set, 1, "rejoin", "-a", slave, "--yes"));
    set_kill(&set, 0);
    /* What only the slave knows is shown; what the master should have done was not done */
    EXPECT_WORDS(SET_MQADMIN(&set, 0, "topicStatus", "-t", "T"), "broker-a");
    EXPECT_WORDS(SET_MQADMIN(&set, 0, "consumerProgress", "-g", "G"), "broker-a", "T");
    EXPECT_WORDS(SET_MQADMIN(&set, 0, "consumerProgress"), "broker-a", "G");
    free(SET_MQADMIN(&set, 1, "updateTopic", "-t", "U", "-c", "DefaultCluster"));
    free(SET_MQADMIN(&set, 1, "deleteTopic", "-t", "T", "-c", "DefaultCluster"));
    free(SET_MQADMIN(&set, 1, "updateSubGroup", "-g", "U", "-c", "DefaultCluster"));
    set_kill(&set, 1);
    set_start(&set, 0); /* its slave is in the set on record and may have more */
    set_view(&set, 0, &view);
    assert_false(view.writable);
    assert_int_equal(send_code(set_wire(&set, 0), "T", "x"), CODE(SERVICE_NOT_AVAILABLE));
    EXPECT_WORDS(SET_MQADMIN(&set, 0, "haStatus", "-b", "broker-a"), "recovering", "waits for");
    EXPECT_WORDS(SET_MQADMIN(&set, 0, "topicList"), "T");
    free(SET_MQADMIN(&set, 1, "forceOpen", "-b", "broker-a")); /* only shows what it would do */
    set_view(&set, 0, &view);
    assert_false(view.writable);
    free(SET_MQADMIN(&set, 0, "forceOpen", "-b", "broker-a", "--yes"));
    set_await_in_sync(&set, 0);
    assert_int_equal(send_code(set_wire(&set, 0), "T", "x"), CODE(SLAVE_NOT_AVAILABLE));
    set_start(&set, 1);
    set_await_in_sync(&set, 1);
    set_await_equal(&set, 1);
    set_down(&set);
}

static void detached_slave_serves_nothing_until_it_rejoins(void **state)
{
    struct broker_set set;
    struct tool away;
    char aside[DAEMON_PATH_BYTES];
    (void)state;
    set_up(&set, "ASYNC_MASTER", 1, overrides);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    assert_int_equal(send_code(set_wire(&set, 0), "T", "of the first life"), CODE(SUCCESS));
    set_await_equal(&set, 1);
    set_stop(&set, 1);
    set_stop(&set, 0);
    snprintf(aside, sizeof aside, "%.60s/aside", set.dir);
    tool_run(&away, "/bin/mv", (const char *const[]){set.nodes[0].store, aside, NULL}, NULL, 0);
    tool_free(&away);
    set_start(&set, 0); /* nobody is there: it begins anew */
    wire_make_topic(set_wire(&set, 0), "T", 1);
    for (int i = 0; i < 5; i++)
        wire_send(set_wire(&set, 0), "T", 0, "of the second life", NULL);
    set_start(&set, 1);
    set_await_state(&set, 1, TERN__WIRE__HA_STATE__HA_DETACHED);
    struct rpc_call *call = pull_from(set_wire(&set, 1), "G", "T", 0, 0);
    assert_int_not_equal(call->response->code, CODE(SUCCESS));
    assert_contains(call->response->remark, "rejoin");
    rpc_call_unref(call);
    free(SET_MQADMIN(&set, 1, "rejoin", "-a", set.nodes[1].daemon.address)); /* only shows */
    free(SET_MQADMIN(&set, 0, "rejoin", "-a", set.nodes[1].daemon.address, "--yes"));
    set_await_in_sync(&set, 1);
    set_await_equal(&set, 1);
    wire_await_offset(set_wire(&set, 1), "T", 0, 5);
    assert_true(files_below(set_file(&set, 1, "diverged", aside), "0000000000") > 0);
    set_down(&set);
}

/* A master whose store is lost copies its slave's before it takes writes */
static void master_that_lost_its_disk_copies_its_slave(void **state)
{
    struct broker_set set;
    struct tool away;
    char aside[DAEMON_PATH_BYTES];
    int64_t offset;
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, overrides);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    for (int i = 0; i < 50; i++)
        wire_send(set_wire(&set, 0), "T", 0, "kept", NULL);
    wire_await_offset(set_wire(&set, 0), "T", 0, 50);
    query_progress(set_wire(&set, 0), "G", "T", &offset, &version);
    assert_int_equal(commit_to(set_wire(&set, 0), "G", "T", 20, &version), CODE(SUCCESS));
    set_kill(&set, 0);
    snprintf(aside, sizeof aside, "%.60s/aside", set.dir);
    tool_run(&away, "/bin/mv", (const char *const[]){set.nodes[0].store, aside, NULL}, NULL, 0);
    tool_free(&away);
    set_start(&set, 0);
    set_await_in_sync(&set, 1);
    wire_await_offset(set_wire(&set, 0), "T", 0, 50);
    assert_int_equal(wire_send(set_wire(&set, 0), "T", 0, "new", NULL), 50);
    assert_int_equal(query_progress(set_wire(&set, 0), "G", "T", &offset, NULL), CODE(SUCCESS));
    assert_int_equal(offset, 20);
    set_await_equal(&set, 1);
    set_stop(&set, 1);
    set_stop(&set, 0);
    set_expect_sound_stores(&set, 2);
    set_down(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slave_serves_every_topic_while_its_master_dies_again_and_again),
        cmocka_unit_test(progress_made_at_the_slave_comes_back_with_the_master),
        cmocka_unit_test(progress_made_at_the_slave_survives_a_master_that_dies_twice),
        cmocka_unit_test(progress_made_while_the_master_stood_still_never_falls),
        cmocka_unit_test(operators_see_the_set_and_open_it_by_force),
        cmocka_unit_test(detached_slave_serves_nothing_until_it_rejoins),
        cmocka_unit_test(master_that_lost_its_disk_copies_its_slave),
    };
    return cmocka_run_group_tests_name("replication_tables", tests, NULL, NULL);
}
