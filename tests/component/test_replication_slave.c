/*
 * What a slave answers to clients: reads as its master within what it has, progress and locks that
 * it knows, and never a word that moves a consumer or takes a write.
 */
#include <signal.h>

#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

enum { MESSAGES = 100, SUSPEND_MS = 20000, MOMENT_MS = SUSPEND_MS / 2 };

static struct broker_set set;

static int bring_up(void **state)
{
    (void)state;
    /* What lies more than 20 KB behind the log's end counts as not in memory */
    set_up(&set, "SYNC_MASTER", 1,
           (const char *const[]){"mappedFileSizeCommitLog=256KiB", "physicalMemorySize=50000",
                                 "flushDiskType=ASYNC_FLUSH", NULL});
    wire_make_topic(set_wire(&set, 0), "T", 2);
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(wire_send(set_wire(&set, 0), "T", 0, "x", NULL), i);
    set_await_equal(&set, 1);
    wire_await_offset(set_wire(&set, 1), "T", 0, MESSAGES);
    return 0;
}

static int take_down(void **state)
{
    (void)state;
    set_down(&set);
    return 0;
}

/* ---- pulling ---- */

/* The slave's answer to a pull moves nobody who is beyond its end. */
static void expect_stays(struct wire *wire, int32_t queue_id, int64_t offset)
{
    struct rpc_call *call = pull_from(wire, "G", "T", queue_id, offset);
    if (call->response->code != CODE(PULL_NOT_FOUND) || call->response->pull->next_offset != offset)
        fail_msg("pull at %lld: code %d, goes on at %lld", (long long)offset, call->response->code,
                 (long long)(call->response->pull ? call->response->pull->next_offset : -2));
    assert_int_equal(call->response->pull->suggest_broker_id, 0);
    rpc_call_unref(call);
}

/* OF-01, OF-02, HA-21 */
static void beyond_its_end_a_slave_moves_nobody(void **state)
{
    struct wire *slave = set_wire(&set, 1);
    const int64_t beyond[] = {MESSAGES, MESSAGES + 1, 1000, INT64_C(1) << 62, INT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++)
        expect_stays(slave, 0, beyond[i]);
    expect_stays(slave, 1, 0); /* a queue that is empty here may not be so at the master */
    expect_stays(slave, 1, 7);
    struct rpc_call *call = pull_from(slave, "G", "T", 0, MESSAGES - 1);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    assert_int_equal(call->response->pull->next_offset, MESSAGES);
    rpc_call_unref(call);
    /* The master says where the queue ends */
    call = pull_from(set_wire(&set, 0), "G", "T", 0, 1000);
    assert_int_equal(call->response->code, CODE(PULL_OFFSET_MOVED));
    assert_int_equal(call->response->pull->next_offset, MESSAGES);
    rpc_call_unref(call);
}

/* */
static void pull_that_waits_at_a_slave_is_woken_by_arrival(void **state)
{
    Tern__Wire__PullRequest pull;
    struct wire_pending pending;
    struct wire *slave = set_wire(&set, 1);
    (void)state;
    for (int round = 0; round < 5; round++) {
        int64_t end = wire_max_offset(set_wire(&set, 0), "T", 1);
        wire_await_offset(slave, "T", 1, end);
        wire_fill_pull(&pull, "T", 1, end);
        pull.suspend_timeout_ms = SUSPEND_MS;
        WIRE_REQUEST(request, PULL, pull, &pull);
        wire_start(slave, &request, &pending);
        wire_await_status(slave, "parkedPulls", 1);
        int64_t begin = now_ms();
        wire_send(set_wire(&set, 0), "T", 1, "wakes", NULL);
        assert_true(wire_wait(&pending, MOMENT_MS));
        print_message("woken at the slave after %lld ms\n", (long long)(now_ms() - begin));
        assert_int_equal(pending.call->response->code, CODE(SUCCESS));
        assert_int_equal(pending.call->response->pull->count, 1);
        rpc_call_unref(pending.call);
    }
}

/* ---- whom the master suggests ---- */

static int64_t suggested(struct wire *wire, const char *group, const char *topic, int64_t offset)
{
    struct rpc_call *call = pull_from(wire, group, topic, 0, offset);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    int64_t id = call->response->pull->suggest_broker_id;
    rpc_call_unref(call);
    return id;
}

/* HA-21, HA-23 */
static void master_suggests_a_slave_only_while_it_can_serve(void **state)
{
    static char body[4000];
    struct wire *master = set_wire(&set, 0);
    (void)state;
    memset(body, 'b', sizeof body - 1);
    wire_make_topic(master, "Deep", 1);
    for (int i = 0; i < 40; i++)
        wire_send(master, "Deep", 0, body, NULL);
    set_await_equal(&set, 1);
    wire_await_offset(set_wire(&set, 1), "Deep", 0, 40);
    int64_t deadline = now_ms() + PATIENCE_MS; /* the master hears of it a moment later */
    while (suggested(master, "G", "Deep", 0) != 1) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
    assert_int_equal(suggested(set_wire(&set, 1), "G", "Deep", 0), 1);
    free(SET_MQADMIN(&set, 0, "updateSubGroup", "-g", "Nine", "-w", "9", "-b",
                     set.nodes[0].daemon.address));
    free(SET_MQADMIN(&set, 0, "updateSubGroup", "-g", "Zero", "-w", "0", "-b",
                     set.nodes[0].daemon.address));
    assert_int_equal(suggested(master, "Nine", "Deep", 0), 0);
    assert_int_equal(suggested(master, "Zero", "Deep", 0), 0);
    set_pause(&set, 1);
    deadline = now_ms() + PATIENCE_MS;
    int64_t begin = now_ms();
    while (suggested(master, "G", "Deep", 0) != 0) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
    print_message("a hung slave is suggested no more after %lld ms\n",
                  (long long)(now_ms() - begin));
    set_resume(&set, 1);
    set_await_in_sync(&set, 1);
    deadline = now_ms() + PATIENCE_MS;
    while (suggested(master, "G", "Deep", 0) != 1) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
}

/* HA-23 */
static void slave_that_is_not_to_be_read_is_neither_suggested_nor_serves(void **state)
{
    (void)state;
    set_stop(&set, 1);
    set.nodes[1].own[0] = "slaveReadEnable=false";
    set_start(&set, 1);
    set_await_in_sync(&set, 1);
    set_await_equal(&set, 1);
    assert_int_equal(suggested(set_wire(&set, 0), "G", "Deep", 0), 0);
    struct rpc_call *call = pull_from(set_wire(&set, 1), "G", "T", 0, 0);
    assert_int_equal(call->response->code, CODE(SERVICE_NOT_AVAILABLE));
    assert_contains(call->response->remark, "slaveReadEnable");
    rpc_call_unref(call);
    set_stop(&set, 1);
    set.nodes[1].own[0] = NULL;
    set_start(&set, 1);
    set_await_in_sync(&set, 1);
}

/* ---- writes ---- */

static void what_changes_something_is_refused_and_points_to_the_master(void **state)
{
    struct wire *slave = set_wire(&set, 1);
    Tern__Wire__TopicConfig topic = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__UpdateTopicRequest update = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    Tern__Wire__DeleteTopicRequest delete = TERN__WIRE__DELETE_TOPIC_REQUEST__INIT;
    Tern__Wire__ResetOffsetRequest reset = TERN__WIRE__RESET_OFFSET_REQUEST__INIT;
    (void)state;
    assert_int_equal(send_code(slave, "T", "x"), CODE(SERVICE_NOT_AVAILABLE));
    assert_int_equal(send_code(slave, "NeverSeen", "x"), CODE(SERVICE_NOT_AVAILABLE));
    topic.name = bytes_of_text("AtSlave");
    topic.read_queues = topic.write_queues = 1;
    topic.perm = 6;
    update.topic = &topic;
    WIRE_REQUEST(make, UPDATE_TOPIC, update_topic, &update);
    wire_expect(slave, &make, NULL, 0, CODE(NO_PERMISSION), "ask its master");
    delete.topic = bytes_of_text("T");
    WIRE_REQUEST(drop, DELETE_TOPIC, delete_topic, &delete);
    wire_expect(slave, &drop, NULL, 0, CODE(NO_PERMISSION), "ask its master");
    reset.group = bytes_of_text("G");
    reset.topic = bytes_of_text("T");
    reset.target_case = TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_OFFSET;
    WIRE_REQUEST(back, RESET_OFFSET, reset_offset, &reset);
    wire_expect(slave, &back, NULL, 0, CODE(NO_PERMISSION), "ask its master");
    assert_int_equal(wire_max_offset(slave, "T", 0), MESSAGES);
}

/* MD-02: a group that only the slave has met does not make both sides copy tables for ever */
static void unknown_group_at_a_slave_leaves_the_tables_at_rest(void **state)
{
    char path[DAEMON_PATH_BYTES];
    (void)state;
    for (int i = 0; i < 50; i++)
        rpc_call_unref(pull_from(set_wire(&set, 1), "MetAtSlave", "T", 0, 0));
    assert_int_equal(send_code(set_wire(&set, 0), "T", "after"), CODE(SUCCESS));
    set_await_equal(&set, 1);
    struct rpc_call *call = pull_from(set_wire(&set, 1), "MetAtSlave", "T", 0, 0);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    rpc_call_unref(call);
    set_file(&set, 1, "config/subscriptionGroup.json", path);
    assert_true(file_contains(path, "\"G\""));
    assert_false(set_logged(&set, 1, "tables_not"));
}

/* ---- progress ---- */

/* OF-04 */
static void slave_tells_progress_that_it_knows_and_never_none(void **state)
{
    int64_t offset;
    struct wire *master = set_wire(&set, 0), *slave = set_wire(&set, 1);
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    (void)state;
    assert_int_equal(query_progress(master, "Known", "T", &offset, NULL), CODE(QUERY_NOT_FOUND));
    assert_int_equal(query_progress(slave, "Known", "T", &offset, NULL), CODE(PROGRESS_UNKNOWN));
    query_progress(master, "Known", "T", &offset, &version);
    /* Answered, so the slave has it: it is asked at once */
    assert_int_equal(commit_to(master, "Known", "T", 40, &version), CODE(SUCCESS));
    assert_int_equal(query_progress(slave, "Known", "T", &offset, &version), CODE(SUCCESS));
    assert_int_equal(offset, 40);
    assert_int_equal(commit_to(slave, "Known", "T", 60, &version), CODE(SUCCESS));
    assert_int_equal(query_progress(master, "Known", "T", &offset, NULL), CODE(SUCCESS));
    assert_int_equal(offset, 60);
    /* OF-11 across both */
    assert_int_equal(commit_to(slave, "Known", "T", 50, &version), CODE(SUCCESS));
    assert_int_equal(commit_to(master, "Known", "T", 45, &version), CODE(SUCCESS));
    query_progress(slave, "Known", "T", &offset, NULL);
    assert_int_equal(offset, 60);
}

/* ---- members and locks ---- */

static void heartbeat(struct wire *member, const char *group)
{
    Tern__Wire__Subscription subscription = TERN__WIRE__SUBSCRIPTION__INIT;
    Tern__Wire__Subscription *subscriptions[] = {&subscription};
    Tern__Wire__ConsumerData data = TERN__WIRE__CONSUMER_DATA__INIT;
    Tern__Wire__ConsumerData *consumers[] = {&data};
    Tern__Wire__HeartbeatRequest body = TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    subscription.topic = bytes_of_text("T");
    data.group = bytes_of_text(group);
    data.subscriptions = subscriptions;
    data.n_subscriptions = 1;
    body.consumers = consumers;
    body.n_consumers = 1;
    WIRE_REQUEST(request, HEARTBEAT, heartbeat, &body);
    wire_expect(member, &request, NULL, 0, CODE(SUCCESS), NULL);
}

/* How many of queue 0 and 1 of T the client gets. */
static size_t lock_both(struct wire *wire)
{
    Tern__Wire__MessageQueue queues[2] = {TERN__WIRE__MESSAGE_QUEUE__INIT,
                                          TERN__WIRE__MESSAGE_QUEUE__INIT};
    Tern__Wire__MessageQueue *wanted[] = {&queues[0], &queues[1]};
    Tern__Wire__LockQueuesRequest body = TERN__WIRE__LOCK_QUEUES_REQUEST__INIT;
    for (int i = 0; i < 2; i++) {
        queues[i].topic = bytes_of_text("T");
        queues[i].broker_name = bytes_of_text("broker-a");
        queues[i].queue_id = i;
    }
    body.group = bytes_of_text("Orderly");
    body.queues = wanted;
    body.n_queues = 2;
    WIRE_REQUEST(request, LOCK_QUEUES, lock_queues, &body);
    struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
    size_t count =
        call->response->code == CODE(SUCCESS) ? call->response->lock_queues->n_locked : 0;
    rpc_call_unref(call);
    return count;
}

static void slave_knows_members_and_renews_locks_but_grants_none(void **state)
{
    struct wire owner, other;
    (void)state;
    wire_open(&owner, set.nodes[1].daemon.address, "127.0.0.1@owner");
    wire_open(&other, set.nodes[1].daemon.address, "127.0.0.1@other");
    heartbeat(&owner, "Orderly");
    heartbeat(&other, "Orderly");
    assert_int_equal(lock_both(&owner), 0);
    struct wire at_master;
    wire_open(&at_master, set.nodes[0].daemon.address, "127.0.0.1@owner");
    heartbeat(&at_master, "Orderly");
    assert_int_equal(lock_both(&at_master), 2);
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (lock_both(&owner) != 2)
        assert_true(now_ms() < deadline);
    assert_int_equal(lock_both(&other), 0);
    set_kill(&set, 0);
    set_await_state(&set, 1, TERN__WIRE__HA_STATE__HA_SEEKING);
    assert_int_equal(lock_both(&owner), 2);
    assert_int_equal(lock_both(&other), 0);
    set_start(&set, 0);
    set_await_in_sync(&set, 1);
    deadline = now_ms() + PATIENCE_MS; /* the pipe of before may still be there */
    while (lock_both(&at_master) != 2)
        assert_true(now_ms() < deadline);
    assert_int_equal(lock_both(&other), 0);
    wire_close(&at_master);
    wire_close(&other);
    wire_close(&owner);
}

/* ---- topics that end ---- */

/* MD-05 */
static void topic_made_again_begins_at_zero_at_the_slave_too(void **state)
{
    int64_t offset;
    struct wire *master = set_wire(&set, 0);
    Tern__Wire__OffsetVersion version = TERN__WIRE__OFFSET_VERSION__INIT;
    (void)state;
    for (int round = 0; round < 3; round++) {
        wire_make_topic(master, "Twice", 1);
        for (int i = 0; i < 50 - round; i++)
            assert_int_equal(wire_send(master, "Twice", 0, "x", NULL), i);
        set_await_equal(&set, 1);
        wire_await_offset(set_wire(&set, 1), "Twice", 0, 50 - round);
        assert_int_equal(wire_max_offset(set_wire(&set, 1), "Twice", 0), 50 - round);
        assert_int_equal(query_progress(master, "Again", "Twice", &offset, &version),
                         CODE(QUERY_NOT_FOUND));
        assert_int_equal(query_progress(set_wire(&set, 1), "Again", "Twice", &offset, NULL),
                         CODE(PROGRESS_UNKNOWN));
        wire_await_offset(master, "Twice", 0, 50 - round);
        assert_int_equal(commit_to(master, "Again", "Twice", 50 - round, &version), CODE(SUCCESS));
        wire_delete_topic(master, "Twice");
    }
    wire_make_topic(master, "Twice", 1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(wire_send(master, "Twice", 0, "x", NULL), i);
    set_await_equal(&set, 1);
    wire_await_offset(set_wire(&set, 1), "Twice", 0, 10);
    set_kill(&set, 1);
    set_start(&set, 1);
    set_await_in_sync(&set, 1);
    assert_int_equal(wire_max_offset(set_wire(&set, 1), "Twice", 0), 10);
    struct rpc_call *call = pull_from(set_wire(&set, 1), "G", "Twice", 0, 0);
    assert_int_equal(call->response->pull->count, 10);
    assert_int_equal(call->response->pull->min_offset, 0);
    rpc_call_unref(call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beyond_its_end_a_slave_moves_nobody),
        cmocka_unit_test(pull_that_waits_at_a_slave_is_woken_by_arrival),
        cmocka_unit_test(what_changes_something_is_refused_and_points_to_the_master),
        cmocka_unit_test(slave_tells_progress_that_it_knows_and_never_none),
        cmocka_unit_test(unknown_group_at_a_slave_leaves_the_tables_at_rest),
        cmocka_unit_test(master_suggests_a_slave_only_while_it_can_serve),
        cmocka_unit_test(slave_that_is_not_to_be_read_is_neither_suggested_nor_serves),
        cmocka_unit_test(topic_made_again_begins_at_zero_at_the_slave_too),
        cmocka_unit_test(slave_knows_members_and_renews_locks_but_grants_none),
    };
    return cmocka_run_group_tests_name("replication_slave", tests, bring_up, take_down);
}
