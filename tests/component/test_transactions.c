/* Transactions on real daemons: the example, the tools, and a master that is killed between a half
 * message and its outcome (P-3, TX-02). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/tern.h>

#include "tests/component/set.h"

#define EXAMPLE BIN_DIR "/example_transaction"

/* Properties of a half message of group "G". */
#define HALF "TRAN_MSG\001true\002PGROUP\001G\002UNIQ_KEY\001id"

static void example_delivers_what_was_booked_and_asks_for_the_rest(void **state)
{
    static const char *const overrides[] = {"transactionTimeOut=500",
                                            "transactionCheckInterval=1000", NULL};
    struct cluster cluster = {.dir = ""};
    struct wire wire;
    struct tool tool;
    char ledger[WORK_DIR_BYTES + 16];
    (void)state;
    cluster_up(&cluster, overrides);
    wire_open(&wire, cluster.broker.address, "127.0.0.1@watcher");
    wire_make_topic(&wire, "Orders", 1);
    snprintf(ledger, sizeof ledger, "%s/ledger", cluster.dir);
    char namesrv[128];
    snprintf(namesrv, sizeof namesrv, "NAMESRV_ADDR=%s", cluster.namesrv_list);
    tool_run(&tool, "/usr/bin/env",
             (const char *const[]){namesrv, EXAMPLE, "Orders", "tellers", ledger, "one", "-two",
                                   "?three", NULL},
             NULL, 0);
    if (tool.status != 0)
        fail_msg("%s%s", tool.out, tool.err);
    assert_non_null(strstr(tool.out, "one committed"));
    assert_non_null(strstr(tool.out, "-two rolled back"));
    assert_non_null(strstr(tool.out, "?three unknown"));
    assert_non_null(strstr(tool.out, "asked about ?three: booked"));
    tool_free(&tool);
    wire_await_offset(&wire, "Orders", 0, 2);
    wire_await_status(&wire, "transactionsPending", 0);
    assert_int_equal(wire_status(&wire, "transactionsCommittedTotal"), 2);
    assert_int_equal(wire_status(&wire, "transactionsRolledBackTotal"), 1);
    assert_true(wire_status(&wire, "transactionChecksTotal") >= 1);
    wire_close(&wire);
    cluster_down(&cluster);
}

static enum tern_transaction_outcome know_nothing(void *arg, const struct tern_message *message,
                                                  void *send_arg)
{
    (void)arg;
    (void)message;
    (void)send_arg;
    return TERN_TRANSACTION_UNKNOWN;
}

static enum tern_transaction_outcome check_nothing(void *arg, const struct tern_message *message)
{
    (void)arg;
    (void)message;
    return TERN_TRANSACTION_UNKNOWN;
}

/* What a RocketMQ operator tries first finds what was given up. */
static void a_discarded_message_is_found_in_its_topic(void **state)
{
    static const char *const overrides[] = {
        "transactionTimeOut=500", "transactionCheckInterval=1000", "transactionCheckMax=1", NULL};
    const struct tern_transaction_listener listener = {NULL, know_nothing, check_nothing};
    struct cluster cluster = {.dir = ""};
    struct wire wire;
    struct tern_error err;
    struct tern_transaction_producer *producer;
    struct tern_message *message;
    struct tern_producer_options *options = tern_producer_options_create();
    (void)state;
    cluster_up(&cluster, overrides);
    wire_open(&wire, cluster.broker.address, "127.0.0.1@watcher");
    wire_make_topic(&wire, "Orders", 1);
    assert_int_equal(tern_producer_options_namesrv(options, cluster.namesrv_list), TERN_OK);
    assert_int_equal(tern_producer_options_group(options, "tellers"), TERN_OK);
    assert_int_equal(tern_transaction_producer_create(options, &listener, &producer, &err),
                     TERN_OK);
    assert_int_equal(tern_transaction_producer_start(producer, &err), TERN_OK);
    assert_int_equal(tern_message_create("Orders", "undecided", 9, &message, &err), TERN_OK);
    assert_int_equal(tern_transaction_producer_send(producer, message, NULL, NULL, &err), TERN_OK);
    tern_message_unref(message);
    wire_await_status(&wire, "transactionsDiscardedTotal", 1);
    char *route = MQADMIN(&cluster, 0, "topicRoute", "-t", "TRANS_CHECK_MAX_TIME_TOPIC");
    assert_non_null(strstr(route, cluster.broker.address));
    free(route);
    char *found = MQADMIN(&cluster, 0, "consumeMessage", "-t", "TRANS_CHECK_MAX_TIME_TOPIC",
                          "--body-only", "-c", "1");
    assert_string_equal(found, "undecided\n");
    free(found);
    tern_transaction_producer_destroy(producer);
    tern_producer_options_destroy(options);
    wire_close(&wire);
    cluster_down(&cluster);
}

/* A local transaction that is under way when its producer is destroyed by another thread. */
struct slow {
    struct tern_transaction_producer *producer;
    _Atomic bool begun, ended;
    enum tern_code code;
    struct tern_transaction_result result;
};

static enum tern_transaction_outcome execute_slowly(void *arg, const struct tern_message *message,
                                                    void *send_arg)
{
    struct slow *slow = arg;
    (void)message;
    (void)send_arg;
    atomic_store(&slow->begun, true);
    for (int i = 0; i < 250; i++)
        look_again_soon();
    atomic_store(&slow->ended, true);
    return TERN_TRANSACTION_COMMIT;
}

static void *send_slowly(void *arg)
{
    struct slow *slow = arg;
    struct tern_message *message;
    slow->code = tern_message_create("Orders", "x", 1, &message, NULL);
    if (slow->code == TERN_OK) {
        slow->code =
            tern_transaction_producer_send(slow->producer, message, NULL, &slow->result, NULL);
        tern_message_unref(message);
    }
    return NULL;
}

static void shutdown_waits_for_a_local_transaction_and_its_outcome(void **state)
{
    struct cluster cluster = {.dir = ""};
    struct wire wire;
    struct slow slow = {.producer = NULL};
    const struct tern_transaction_listener listener = {&slow, execute_slowly, check_nothing};
    struct tern_producer_options *options = tern_producer_options_create();
    struct tern_error err = {.text = ""};
    pthread_t sender;
    (void)state;
    cluster_up(&cluster, NULL);
    wire_open(&wire, cluster.broker.address, "127.0.0.1@watcher");
    wire_make_topic(&wire, "Orders", 1);
    assert_int_equal(tern_producer_options_namesrv(options, cluster.namesrv_list), TERN_OK);
    assert_int_equal(tern_producer_options_group(options, "slow"), TERN_OK);
    assert_int_equal(tern_producer_options_send_timeout_ms(options, PATIENCE_MS), TERN_OK);
    assert_int_equal(tern_transaction_producer_create(options, &listener, &slow.producer, &err),
                     TERN_OK);
    tern_producer_options_destroy(options);
    assert_int_equal(tern_transaction_producer_start(slow.producer, &err), TERN_OK);
    assert_int_equal(pthread_create(&sender, NULL, send_slowly, &slow), 0);
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (!atomic_load(&slow.begun)) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
    tern_transaction_producer_shutdown(slow.producer);
    assert_true(atomic_load(&slow.ended));
    assert_int_equal(pthread_join(sender, NULL), 0);
    assert_int_equal(slow.code, TERN_OK);
    assert_int_equal(slow.result.told, TERN_OK);
    wire_await_offset(&wire, "Orders", 0, 1);
    tern_transaction_producer_destroy(slow.producer);
    wire_close(&wire);
    cluster_down(&cluster);
}

/* Sends a half message; its place. */
static void send_half(struct wire *wire, const char *topic, const char *body, int64_t *half_off,
                      int64_t *phys_off)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    int64_t deadline = now_ms() + PATIENCE_MS;
    send.topic = bytes_of_text(topic);
    send.properties = bytes_of_text(HALF);
    for (;;) {
        WIRE_REQUEST(request, SEND, send, &send);
        struct rpc_call *call = wire_ask(wire, &request, body, strlen(body));
        int32_t code = call->response->code;
        if (code == CODE(SUCCESS)) {
            *half_off = call->response->send->queue_offset;
            *phys_off = call->response->send->physical_offset;
        }
        rpc_call_unref(call);
        if (code == CODE(SUCCESS))
            return;
        assert_int_equal(code, CODE(SYSTEM_BUSY)); /* the log is still read */
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
}

static int32_t end_code(struct wire *wire, int64_t half_off, int64_t phys_off, int outcome)
{
    Tern__Wire__EndTransactionRequest end = TERN__WIRE__END_TRANSACTION_REQUEST__INIT;
    WIRE_REQUEST(request, END_TRANSACTION, end_transaction, &end);
    end.producer_group = bytes_of_text("G");
    end.half_queue_offset = half_off;
    end.half_physical_offset = phys_off;
    end.outcome = (Tern__Wire__TransactionOutcome)outcome;
    end.message_id = bytes_of_text("id");
    struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
    int32_t code = call->response->code;
    rpc_call_unref(call);
    return code;
}

static void await_transactions(struct broker_set *set)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    for (;;) {
        char *status = SET_MQADMIN(set, 0, "brokerStatus", "-b", set->nodes[0].daemon.address);
        bool ready = strstr(status, "transactionsReady") &&
                     !strstr(strstr(status, "transactionsReady"), "false\n");
        free(status);
        if (ready)
            return;
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
}

static void master_killed_between_half_message_and_outcome_goes_on(void **state)
{
    static const char *const overrides[] = {"transactionTimeOut=3600000", NULL};
    struct broker_set set = {.role = NULL};
    int64_t half[3];
    int64_t phys[3];
    (void)state;
    set_up(&set, "SYNC_MASTER", 1, overrides);
    wire_make_topic(set_wire(&set, 0), "Orders", 1);
    for (int i = 0; i < 3; i++)
        send_half(set_wire(&set, 0), "Orders", "body", &half[i], &phys[i]);
    assert_int_equal(end_code(set_wire(&set, 0), half[0], phys[0], 1), CODE(SUCCESS));
    set_await_equal(&set, 1);
    assert_int_equal(end_code(set_wire(&set, 1), half[1], phys[1], 1), CODE(SERVICE_NOT_AVAILABLE));
    set_kill(&set, 0);
    set_start(&set, 0);
    set_await_in_sync(&set, 1);
    await_transactions(&set);
    char *list = SET_MQADMIN(&set, 0, "transactions", "-b", set.nodes[0].daemon.address);
    assert_non_null(strstr(list, "Orders"));
    free(list);
    /* What was decided before stays so; what was not goes on. */
    assert_int_equal(end_code(set_wire(&set, 0), half[0], phys[0], 1), CODE(SUCCESS));
    assert_int_equal(end_code(set_wire(&set, 0), half[0], phys[0], 2), CODE(TRANSACTION_FAILED));
    assert_int_equal(end_code(set_wire(&set, 0), half[1], phys[1], 1), CODE(SUCCESS));
    assert_int_equal(end_code(set_wire(&set, 0), half[2], phys[2], 2), CODE(SUCCESS));
    wire_await_offset(set_wire(&set, 0), "Orders", 0, 2);
    assert_int_equal(wire_status(set_wire(&set, 0), "transactionsPending"), 0);
    set_await_equal(&set, 1);
    set_down(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_delivers_what_was_booked_and_asks_for_the_rest),
        cmocka_unit_test(a_discarded_message_is_found_in_its_topic),
        cmocka_unit_test(shutdown_waits_for_a_local_transaction_and_its_outcome),
        cmocka_unit_test(master_killed_between_half_message_and_outcome_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
