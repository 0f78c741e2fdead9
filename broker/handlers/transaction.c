/*
 * Transactions: half messages on their way into the log, outcomes, and what tools ask
 * (docs/transactions.md). What a transaction is lies in broker/tx.
 *
 * Outcomes read the half record: from memory on the transport's thread, from the disk on the cold
 * lane. Lists always do on the cold lane.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/cold_lane.h"
#include "broker/handlers/checks.h"
#include "broker/handlers/send.h"
#include "broker/tx/tx.h"

enum { LIST_MAX = 512, MESSAGE_ID_TEXT_MAX = 255 };

/* ---- half messages ---- */

bool transaction_begin(struct send *send, uint8_t *props, size_t *props_len)
{
    struct broker *broker = send->broker;
    struct consume_queue *half_queue;
    struct tern_error err = {.text = ""};
    int64_t immunity_ms = tx_immunity_ms(props, *props_len);
    struct tx_sending *sending = rpc_request_alloc(send->request, sizeof *sending);
    enum tern_code code = sending
                              ? tx_half_props(props, props_len, send->topic, send->queue_id, &err)
                              : error_set(&err, TERN_NO_MEMORY, "no memory for the transaction");
    if (code == TERN_OK &&
        (code = store_queue_ref(broker->store, TX_HALF_TOPIC, sizeof TX_HALF_TOPIC - 1, 0,
                                &half_queue)) != TERN_OK)
        error_set(&err, code, "the queue of half messages cannot be opened");
    if (code == TERN_OK) {
        *sending = (struct tx_sending){.immunity_ms = immunity_ms, .real_queue_id = send->queue_id};
        code = tx_half_begin(broker->tx, sending, &err);
        if (code != TERN_OK)
            store_queue_unref(half_queue);
    }
    if (code != TERN_OK) {
        rpc_reply_failure(send->request, code, &err);
        return false;
    }
    store_queue_unref(send->append.queue);
    send->append.queue = half_queue;
    send->topic = TX_HALF_TOPIC;
    send->topic_len = sizeof TX_HALF_TOPIC - 1;
    send->queue_id = 0;
    send->half = sending;
    return true;
}

/* ---- outcomes ---- */

/* An outcome on its way; in its request's memory. */
struct outcome {
    struct tx_ending ending;
    struct rpc_request *request;
};

static void on_ended(struct tx_ending *ending, enum tern_code code, const char *text)
{
    struct outcome *outcome = (struct outcome *)(void *)ending;
    if (code == TERN_OK)
        rpc_reply_ok(outcome->request);
    else
        rpc_reply_error(outcome->request, code, "%s", text);
}

static bool slice_equals(const struct slice *slice, const ProtobufCBinaryData *bytes)
{
    return slice->len == bytes->len &&
           (!bytes->len || !memcmp(slice->ptr, bytes->data, bytes->len));
}

/* Whether the ender speaks of this transaction, and it can be carried out. */
static enum tern_code check_half(struct broker *broker, const struct tx_ending *ending,
                                 const Tern__Wire__EndTransactionRequest *wanted,
                                 struct tern_error *err)
{
    const struct tx_half *half = &ending->half;
    char topic[TOPIC_NAME_MAX + 1];
    struct topic_config config;
    if (!slice_equals(&half->group, &wanted->producer_group))
        return error_set(err, TERN_INVALID,
                         "transaction %" PRId64 " is of producer group %.*s, not of yours",
                         ending->half_off, (int)half->group.len, (const char *)half->group.ptr);
    if (wanted->message_id.len && !slice_equals(&half->message_id, &wanted->message_id))
        return error_set(err, TERN_INVALID,
                         "transaction %" PRId64 " is of message %.*s, not of the one you name",
                         ending->half_off, (int)half->message_id.len,
                         (const char *)half->message_id.ptr);
    if (ending->outcome != TX_COMMITTED)
        return TERN_OK;
    memcpy(topic, half->topic.ptr, half->topic.len);
    topic[half->topic.len] = 0;
    enum tern_code code = find_topic(broker, topic, &config, err);
    if (code == TERN_OK && half->queue_id >= topic_queue_count(broker, &config))
        code = check_queue(broker, &config, half->queue_id, err);
    return code ? error_prefix(err, code, "transaction %" PRId64 " stays pending", ending->half_off)
                : TERN_OK;
}

/* Reads, checks and carries out what is claimed. TERN_AGAIN: the disk would have to be waited for,
 * and nothing was done. */
static enum tern_code go_on(struct broker *broker, struct outcome *outcome, bool nowait)
{
    struct tern_error err = {.text = ""};
    struct rpc_request *request = outcome->request;
    enum tern_code code = tx_read_half(broker->tx, &outcome->ending, nowait, &err);
    if (code == TERN_OK)
        code = check_half(broker, &outcome->ending, request->header->end_transaction, &err);
    if (code == TERN_OK) {
        tx_carry_out(&outcome->ending);
        return TERN_OK;
    }
    tx_unclaim(broker->tx, &outcome->ending);
    if (code != TERN_AGAIN)
        rpc_reply_failure(request, code, &err);
    return code;
}

/* As for a send: the answer comes before the sender gives up. */
static int64_t answer_deadline_ns(struct broker *broker, const struct rpc_request *request)
{
    int64_t own = clock_mono_ns(broker->env.clock) + ms_to_ns(broker->live.sync_flush_timeout_ms);
    int64_t patience = request->deadline_ns - (request->deadline_ns - request->received_ns) / 10;
    return own < patience ? own : patience;
}

static enum tx_state state_wanted(const struct rpc_request *request)
{
    return request->header->end_transaction->outcome ==
                   TERN__WIRE__TRANSACTION_OUTCOME__TRANSACTION_COMMIT
               ? TX_COMMITTED
               : TX_ROLLED_BACK;
}

/* TERN_AGAIN as go_on(); else the request is answered, or will be. */
static enum tern_code carry_out(struct broker *broker, struct rpc_request *request, bool nowait)
{
    const Tern__Wire__EndTransactionRequest *wanted = request->header->end_transaction;
    struct tern_error err = {.text = ""};
    struct outcome *outcome = rpc_request_alloc(request, sizeof *outcome);
    if (!outcome) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the outcome");
        return TERN_NO_MEMORY;
    }
    *outcome = (struct outcome){.request = request,
                                .ending = {.half_off = wanted->half_queue_offset,
                                           .phys_off = wanted->half_physical_offset,
                                           .outcome = state_wanted(request),
                                           .deadline_ns = answer_deadline_ns(broker, request),
                                           .done = on_ended}};
    enum tern_code code = tx_claim(broker->tx, &outcome->ending, &err);
    if (code == TERN_EXISTS) {
        rpc_reply_ok(request);
        return TERN_OK;
    }
    if (code != TERN_OK) {
        rpc_reply_failure(request, code, &err);
        return code;
    }
    outcome->ending.bytes = rpc_request_alloc(request, outcome->ending.size);
    if (outcome->ending.bytes)
        return go_on(broker, outcome, nowait);
    tx_unclaim(broker->tx, &outcome->ending);
    rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the half message");
    return TERN_NO_MEMORY;
}

static void end_cold(struct broker *broker, struct rpc_request *request)
{
    enum tern_code code = carry_out(broker, request, false);
    ENSURE(code != TERN_AGAIN);
}

void handle_end_transaction(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__EndTransactionRequest *wanted = request->header->end_transaction;
    struct tern_error err;
    enum tern_code code;
    char text[256];
    if ((code = group_use_check(wanted->producer_group.data, wanted->producer_group.len, &err))) {
        rpc_reply_failure(request, code, &err);
    } else if (!broker_writable(broker, &code, text, sizeof text)) {
        rpc_reply_error(request, code, "%s", text);
    } else if (wanted->half_queue_offset < 0 || wanted->half_physical_offset < 0 ||
               wanted->message_id.len > MESSAGE_ID_TEXT_MAX) {
        rpc_reply_error(request, TERN_INVALID,
                        "half_queue_offset %" PRId64 " or half_physical_offset %" PRId64
                        " is negative, or the message id of %zu bytes longer than %d",
                        wanted->half_queue_offset, wanted->half_physical_offset,
                        wanted->message_id.len, MESSAGE_ID_TEXT_MAX);
    } else if (wanted->outcome == TERN__WIRE__TRANSACTION_OUTCOME__TRANSACTION_UNKNOWN) {
        rpc_reply_ok(request); /* asked again later */
    } else if (wanted->outcome != TERN__WIRE__TRANSACTION_OUTCOME__TRANSACTION_COMMIT &&
               wanted->outcome != TERN__WIRE__TRANSACTION_OUTCOME__TRANSACTION_ROLLBACK) {
        rpc_reply_error(request, TERN_INVALID, "outcome %d is not known", (int)wanted->outcome);
    } else if (carry_out(broker, request, true) == TERN_AGAIN) {
        cold_lane_submit(broker->cold, request, end_cold);
    }
}

/* ---- lists ---- */

/* A copy in the request's memory; empty without any. */
static void copy_name(struct rpc_request *request, const struct slice *name,
                      ProtobufCBinaryData *out)
{
    uint8_t *copy = name->len ? rpc_request_alloc(request, name->len) : NULL;
    if (copy)
        *out = (ProtobufCBinaryData){.len = name->len, .data = memcpy(copy, name->ptr, name->len)};
}

/* What its half record says; a text instead when it cannot be read. */
static void describe(struct broker *broker, struct rpc_request *request,
                     const struct tx_entry *entry, Tern__Wire__TransactionInfo *out)
{
    struct tern_error err = {.text = ""};
    struct tx_ending ending = {.half_off = entry->half_off,
                               .phys_off = entry->phys_off,
                               .size = entry->size,
                               .bytes = malloc(entry->size)};
    enum tern_code code = ending.bytes ? tx_read_half(broker->tx, &ending, false, &err)
                                       : error_set(&err, TERN_NO_MEMORY, "no memory to read it");
    if (code == TERN_OK) {
        copy_name(request, &ending.half.group, &out->producer_group);
        copy_name(request, &ending.half.topic, &out->topic);
        copy_name(request, &ending.half.message_id, &out->message_id);
    } else {
        char *text = rpc_request_alloc(request, strlen(err.text) + 1);
        if (text)
            out->fault = memcpy(text, err.text, strlen(err.text) + 1);
    }
    free(ending.bytes);
}

static Tern__Wire__TransactionInfo *info_of(struct broker *broker, struct rpc_request *request,
                                            const struct tx_entry *entry,
                                            Tern__Wire__Address *store_host)
{
    int64_t wait_ns = entry->check_ns - clock_mono_ns(broker->env.clock);
    Tern__Wire__TransactionInfo *info = rpc_request_alloc(request, sizeof *info);
    if (!info)
        return NULL;
    tern__wire__transaction_info__init(info);
    info->half_queue_offset = entry->half_off;
    info->half_physical_offset = entry->phys_off;
    info->store_host = store_host;
    info->store_ms = entry->store_ms;
    info->checks = entry->checks;
    info->next_check_ms = wait_ns > 0 ? wait_ns / ms_to_ns(1) : 0;
    describe(broker, request, entry, info);
    return info;
}

static void list_cold(struct broker *broker, struct rpc_request *request)
{
    const Tern__Wire__ListTransactionsRequest *wanted = request->header->list_transactions;
    enum tx_state state = wanted->discarded ? TX_DISCARDED : TX_PENDING;
    size_t most =
        wanted->max_count > 0 && wanted->max_count < LIST_MAX ? wanted->max_count : LIST_MAX;
    Tern__Wire__ListTransactionsResponse body = TERN__WIRE__LIST_TRANSACTIONS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    Tern__Wire__Address host = TERN__WIRE__ADDRESS__INIT;
    struct tern_error err = {.text = ""};
    struct tx_entry *entries = rpc_request_alloc(request, (most + 1) * sizeof *entries);
    body.transactions = rpc_request_alloc(request, most * sizeof *body.transactions);
    if (!entries || !body.transactions) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the list");
        return;
    }
    size_t count = tx_list(broker->tx, state, wanted->after, entries, most + 1, &body.total, &err);
    if (err.code != TERN_OK) {
        rpc_reply_failure(request, err.code, &err);
        return;
    }
    host.ip =
        (ProtobufCBinaryData){.len = broker->store_host.v6 ? 16 : 4, .data = broker->store_host.ip};
    host.port = broker->store_host.port;
    body.more = count > most;
    for (size_t i = 0; i < count && i < most; i++) {
        Tern__Wire__TransactionInfo *info = info_of(broker, request, &entries[i], &host);
        if (!info) {
            body.more = true;
            break;
        }
        body.transactions[body.n_transactions++] = info;
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_LIST_TRANSACTIONS;
    response.list_transactions = &body;
    reply_bounded(broker, request, &response, "ask for fewer at a time (max_count)");
}

void handle_list_transactions(struct broker *broker, struct rpc_request *request)
{
    cold_lane_submit(broker->cold, request, list_cold);
}

/* ---- taking up again ---- */

struct resume {
    struct tx_resuming resuming;
    struct rpc_request *request;
};

static void on_resumed(struct tx_resuming *resuming, enum tern_code code)
{
    struct resume *resume = (struct resume *)(void *)resuming;
    if (code == TERN_OK)
        rpc_reply_ok(resume->request);
    else
        rpc_reply_error(resume->request, code, "%s", tern_code_text(code));
}

static uint8_t *reserve_in_request(void *arg, size_t size)
{
    struct rpc_request *request = arg;
    request->user = rpc_request_alloc(request, size);
    return request->user;
}

/* The half record that is meant: the one that is there, or whose copy is. */
static int64_t half_meant(struct broker *broker, struct rpc_request *request, int64_t phys_off)
{
    struct record record;
    size_t size = 0;
    if (store_get_by_phys(broker->store, phys_off, reserve_in_request, request, &size) != TERN_OK ||
        record_parse(request->user, size, size, false, &record) != RECORD_WHOLE)
        return phys_off;
    bool copy = record.topic_len == sizeof TX_DISCARD_TOPIC - 1 &&
                !memcmp(record.topic, TX_DISCARD_TOPIC, record.topic_len);
    return copy ? record.prepared_tx_off : phys_off;
}

static void resume_cold(struct broker *broker, struct rpc_request *request)
{
    struct tern_error err = {.text = ""};
    int64_t phys_off = request->header->resume_transaction->physical_offset;
    struct resume *resume = rpc_request_alloc(request, sizeof *resume);
    if (!resume) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the request");
        return;
    }
    *resume = (struct resume){.request = request, .resuming = {.done = on_resumed}};
    resume->resuming.phys_off = half_meant(broker, request, phys_off);
    enum tern_code code = tx_resume(broker->tx, &resume->resuming, &err);
    if (code != TERN_OK)
        rpc_reply_failure(request, code, &err);
}

void handle_resume_transaction(struct broker *broker, struct rpc_request *request)
{
    enum tern_code code;
    char text[256];
    if (!broker_writable(broker, &code, text, sizeof text))
        rpc_reply_error(request, code, "%s", text);
    else
        cold_lane_submit(broker->cold, request, resume_cold);
}
