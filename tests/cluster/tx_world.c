/* The world of the tests of transactions. */
#include "tests/cluster/tx_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "client/sim_hooks.h"

static uint32_t number_of(const struct tern_message *message)
{
    size_t size;
    uint32_t number;
    const void *body = tern_message_body(message, &size);
    assert_int_equal(size, sizeof number);
    memcpy(&number, body, sizeof number);
    assert_true(number < TX_NUMBERS);
    return number;
}

static void spend_ms(struct tx_world *tx, int64_t duration_ms)
{
    struct latch never;
    latch_init(&never);
    struct env *env = &tx->world.cluster.client_env;
    (void)!latch_wait(env->sched, &never, clock_mono_ns(env->clock) + ms_to_ns(duration_ms));
}

static enum tern_transaction_outcome on_execute(void *arg, const struct tern_message *message,
                                                void *send_arg)
{
    struct tx_world *tx = arg;
    uint32_t number = number_of(message);
    assert_ptr_equal(send_arg, tx);
    tx->executed[number]++;
    if (tx->database[number])
        tx->check[number] = tx->database[number];
    if (tx->execute_ms)
        spend_ms(tx, tx->execute_ms);
    return (enum tern_transaction_outcome)tx->execute[number];
}

static enum tern_transaction_outcome on_check(void *arg, const struct tern_message *message)
{
    struct tx_world *tx = arg;
    uint32_t number = number_of(message);
    assert_string_equal(tern_message_topic(message), WORLD_TOPIC);
    assert_true(tern_message_queue_id(message) < WORLD_QUEUES);
    tx->checked[number]++;
    tx->checks++;
    if (tx->check_ms[number])
        spend_ms(tx, tx->check_ms[number]);
    return (enum tern_transaction_outcome)tx->check[number];
}

void tx_prepare(struct tx_world *tx, uint64_t seed, int32_t role)
{
    memset(tx, 0, sizeof *tx);
    tx->timeout_ms = 3000;
    world_prepare(&tx->world, seed);
    tx->world.master->config.role = role;
}

void tx_start_all(struct tx_world *tx)
{
    world_start(&tx->world);
    tx_await_ready(tx);
    tx_producer_up(tx);
}

void tx_begin(struct tx_world *tx, uint64_t seed, int32_t role)
{
    tx_prepare(tx, seed, role);
    tx_start_all(tx);
}

void tx_end(struct tx_world *tx)
{
    tx_producer_down(tx);
    world_end(&tx->world);
}

void tx_producer_up(struct tx_world *tx)
{
    struct tern_error err = {.text = ""};
    struct tern_transaction_listener listener = {tx, on_execute, on_check};
    struct tern_producer_options *o = tern_producer_options_create();
    struct sim_cluster *cluster = &tx->world.cluster;
    char instance[32];
    snprintf(instance, sizeof instance, "teller%u", tx->producers++);
    tern_producer_options_world(o, &cluster->client_env, cluster->client_link);
    assert_int_equal(tern_producer_options_namesrv(o, CLUSTER_NAMESRV_ADDR), TERN_OK);
    assert_int_equal(tern_producer_options_group(o, TX_GROUP), TERN_OK);
    assert_int_equal(tern_producer_options_instance(o, instance), TERN_OK);
    assert_int_equal(tern_producer_options_send_timeout_ms(o, tx->timeout_ms), TERN_OK);
    assert_int_equal(tern_transaction_producer_create(o, &listener, &tx->producer, &err), TERN_OK);
    tern_producer_options_destroy(o);
    if (tx->listens)
        assert_int_equal(tern_transaction_producer_listen(tx->producer, WORLD_TOPIC, &err),
                         TERN_OK);
    assert_int_equal(tern_transaction_producer_start(tx->producer, &err), TERN_OK);
}

void tx_producer_down(struct tx_world *tx)
{
    tern_transaction_producer_destroy(tx->producer);
    tx->producer = NULL;
}

enum tern_code tx_send(struct tx_world *tx, uint32_t number, struct tern_transaction_result *result)
{
    struct tern_error err = {.text = ""};
    struct tern_message *message;
    assert_int_equal(tern_message_create(WORLD_TOPIC, &number, sizeof number, &message, &err),
                     TERN_OK);
    assert_int_equal(tern_message_set_tag(message, "t"), TERN_OK);
    enum tern_code code = tern_transaction_producer_send(tx->producer, message, tx, result, &err);
    tern_message_unref(message);
    return code;
}

struct tern_transaction_result tx_send_open(struct tx_world *tx, uint32_t number)
{
    struct tern_transaction_result result;
    tx->execute[number] = TERN_TRANSACTION_UNKNOWN;
    assert_int_equal(tx_send(tx, number, &result), TERN_OK);
    assert_int_equal(result.told, TERN_STATE);
    return result;
}

struct counting {
    uint8_t *times;
    uint32_t count;
};

static bool count_one(void *arg, const struct record *record)
{
    struct counting *counting = arg;
    uint32_t number;
    struct slice value;
    if (record->topic_len != strlen(WORLD_TOPIC) ||
        memcmp(record->topic, WORLD_TOPIC, record->topic_len) != 0)
        return true;
    assert_int_equal(record->body_len, sizeof number);
    memcpy(&number, record->body, sizeof number);
    assert_int_equal(record->sys_flag & SYS_TX_MASK, SYS_TX_COMMIT);
    assert_false(props_get(record->props, record->props_len, PROP_TRAN_MSG, &value)); /* TX-06 */
    assert_false(props_get(record->props, record->props_len, PROP_REAL_TOPIC, &value));
    assert_true(props_get(record->props, record->props_len, PROP_UNIQ_KEY, &value));
    assert_true(props_get(record->props, record->props_len, PROP_TAGS, &value));
    if (number < counting->count)
        counting->times[number]++;
    return true;
}

void tx_count_all(struct tx_world *tx, const struct sim_node *node, uint8_t *times, uint32_t count)
{
    struct counting counting = {times, count};
    int64_t next;
    (void)tx;
    memset(times, 0, count);
    assert_int_equal(store_each_record(node->broker->store, 0, world_at(node).appended, count_one,
                                       &counting, &next),
                     TERN_OK);
}

uint32_t tx_delivered(struct tx_world *tx, const struct sim_node *node, uint32_t number)
{
    static uint8_t times[TX_NUMBERS];
    tx_count_all(tx, node, times, TX_NUMBERS);
    return times[number];
}

struct tx_status tx_status_of(const struct sim_node *node)
{
    struct tx_status status;
    tx_status(node->broker->tx, &status);
    return status;
}

void tx_run_ms(struct tx_world *tx, int64_t duration_ms)
{
    world_run_ms(&tx->world, duration_ms);
}

static bool is_ready(void *arg)
{
    const struct world *world = arg;
    return world->master->broker && tx_status_of(world->master).ready;
}

void tx_await_ready(struct tx_world *tx)
{
    assert_true(world_await(&tx->world, is_ready, 60000));
}

enum tern_code tx_tell(struct tx_world *tx, struct sim_node *node, const char *group,
                       int64_t half_off, int64_t phys_off, int outcome, const char *message_id)
{
    Tern__Wire__EndTransactionRequest end = TERN__WIRE__END_TRANSACTION_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    end.producer_group = frame_bytes(group, strlen(group));
    end.half_queue_offset = half_off;
    end.half_physical_offset = phys_off;
    end.outcome = (Tern__Wire__TransactionOutcome)outcome;
    if (message_id)
        end.message_id = frame_bytes(message_id, strlen(message_id));
    request.body_case = TERN__WIRE__REQUEST__BODY_END_TRANSACTION;
    request.end_transaction = &end;
    return world_ask(&tx->world, node, "", &request, NULL, 0, 3000, NULL);
}

int64_t tx_phys_of(const struct tern_transaction_result *result)
{
    struct host host;
    int64_t phys_off;
    assert_int_equal(message_id_parse(result->send.offset_id, &host, &phys_off), TERN_OK);
    return phys_off;
}

size_t tx_listed(struct tx_world *tx, struct sim_node *node, bool discarded, int64_t *phys_off,
                 uint32_t *checks)
{
    Tern__Wire__ListTransactionsRequest list = TERN__WIRE__LIST_TRANSACTIONS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    list.discarded = discarded;
    list.after = -1;
    request.body_case = TERN__WIRE__REQUEST__BODY_LIST_TRANSACTIONS;
    request.list_transactions = &list;
    assert_int_equal(world_ask(&tx->world, node, "", &request, NULL, 0, 3000, &call), TERN_OK);
    const Tern__Wire__ListTransactionsResponse *answer = call->response->list_transactions;
    size_t count = answer->n_transactions;
    assert_int_equal(answer->total, count);
    if (count) {
        const Tern__Wire__TransactionInfo *info = answer->transactions[0];
        *phys_off = info->half_physical_offset;
        *checks = info->checks;
        if (!info->fault[0]) {
            assert_int_equal(info->producer_group.len, strlen(TX_GROUP));
            assert_int_equal(info->topic.len, strlen(WORLD_TOPIC));
            assert_int_equal(info->message_id.len, 32);
        }
    }
    world_answer_free(call);
    return count;
}

void tx_lose_snapshot(struct sim_node *node)
{
    static const char *const names[] = {"transactions", "transactions.bak"};
    for (size_t i = 0; i < 2; i++) {
        char path[FS_PATH_BYTES];
        snprintf(path, sizeof path, "%.500s/ternmq/%s", node->config.store_root, names[i]);
        enum tern_code code = fs_unlink(node->env.fs, path);
        assert_true(code == TERN_OK || code == TERN_NOT_FOUND);
    }
}

enum tern_code tx_resume_at(struct tx_world *tx, struct sim_node *node, int64_t phys_off)
{
    Tern__Wire__ResumeTransactionRequest resume = TERN__WIRE__RESUME_TRANSACTION_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    resume.physical_offset = phys_off;
    request.body_case = TERN__WIRE__REQUEST__BODY_RESUME_TRANSACTION;
    request.resume_transaction = &resume;
    return world_ask(&tx->world, node, "", &request, NULL, 0, 3000, NULL);
}
