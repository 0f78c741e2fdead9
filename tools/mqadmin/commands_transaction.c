/* Transactions: those that wait for their outcome, those that were given up, and taking one up
 * again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/mqadmin/command.h"
#include "tools/mqadmin/fetch.h"

/* The half message's offset id, which names the transaction. */
static void id_of(const Tern__Wire__TransactionInfo *info, char out[MESSAGE_ID_BYTES])
{
    struct host host = {.port = 0};
    size_t ip_len = info->store_host ? info->store_host->ip.len : 0;
    out[0] = 0;
    if (ip_len != 4 && ip_len != 16)
        return;
    memcpy(host.ip, info->store_host->ip.data, ip_len);
    host.v6 = ip_len == 16;
    host.port = info->store_host->port;
    message_id_format(out, &host, info->half_physical_offset);
}

static void add_row(struct table *table, const struct admin_broker *broker,
                    const Tern__Wire__TransactionInfo *info)
{
    char id[MESSAGE_ID_BYTES];
    char stored[32];
    int64_t age_s = (clock_wall_ms(clock_system()) - info->store_ms) / 1000;
    id_of(info, id);
    time_text(stored, info->store_ms);
    table_add(table, (json_t *[]){text_of(id),
                                  bytes_of(info->producer_group.data, info->producer_group.len),
                                  bytes_of(info->topic.data, info->topic.len),
                                  bytes_of(info->message_id.data, info->message_id.len),
                                  text_of(stored), number_of(age_s > 0 ? age_s : 0),
                                  number_of(info->checks), number_of(info->next_check_ms / 1000),
                                  text_of(broker->name), text_of(info->fault)});
}

/* One broker's, page by page, at most `most` of them. */
static enum tern_code list_broker(struct invocation *invocation, const struct admin_broker *broker,
                                  struct table *table, int64_t most, struct tern_error *err)
{
    Tern__Wire__ListTransactionsRequest body = TERN__WIRE__LIST_TRANSACTIONS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    bool more = true;
    body.discarded = option_given(invocation, "discarded");
    body.after = -1;
    request.body_case = TERN__WIRE__REQUEST__BODY_LIST_TRANSACTIONS;
    request.list_transactions = &body;
    while (more && most > 0) {
        struct rpc_call *call = NULL;
        body.max_count = most < 512 ? (uint32_t)most : 512;
        enum tern_code code = fetch(invocation, broker->address, &request,
                                    TERN__WIRE__RESPONSE__BODY_LIST_TRANSACTIONS, &call, err);
        if (code != TERN_OK) {
            rpc_call_unref(call);
            return code;
        }
        const Tern__Wire__ListTransactionsResponse *answer = call->response->list_transactions;
        for (size_t i = 0; i < answer->n_transactions; i++) {
            add_row(table, broker, answer->transactions[i]);
            body.after = answer->transactions[i]->half_queue_offset;
        }
        most -= (int64_t)answer->n_transactions;
        more = answer->more && answer->n_transactions > 0;
        if (more && most <= 0)
            fprintf(stderr, "%s: %" PRIu64 " in all; -m shows more\n", broker->name, answer->total);
        rpc_call_unref(call);
    }
    return TERN_OK;
}

static int run_list(struct invocation *invocation)
{
    static const char *const columns[] = {"Transaction", "Group", "Topic",  "Message ID",
                                          "Stored",      "Age s", "Checks", "Next check s",
                                          "Broker Name", "Fault", NULL};
    static const char *const keys[] = {
        "transactionId", "producerGroup",    "topic",      "msgId", "storeTime", "ageSeconds",
        "checks",        "nextCheckSeconds", "brokerName", "fault", NULL};
    struct tern_error err = {.text = ""};
    struct admin_broker *brokers;
    struct table table;
    int64_t most;
    size_t count;
    int status = EXIT_DONE;
    if (!option_number(invocation, "maxNum", 1, 1000000, 512, &most))
        return EXIT_USAGE;
    if (!command_targets(invocation, true, &brokers, &count, &status))
        return status;
    table_init(&table, columns, keys);
    for (size_t i = 0; i < count; i++) {
        enum tern_code code = list_broker(invocation, &brokers[i], &table, most, &err);
        if (code != TERN_OK)
            status = command_fail(invocation, code, &err);
    }
    free(brokers);
    table_print(&table, invocation->json);
    return status;
}

static int run_resume(struct invocation *invocation)
{
    const char *id = option_value(invocation, "msgId");
    Tern__Wire__ResumeTransactionRequest body = TERN__WIRE__RESUME_TRANSACTION_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_error err = {.text = ""};
    char address[HOST_TEXT_BYTES];
    struct host host;
    if (message_id_parse(id, &host, &body.physical_offset) != TERN_OK || host.port > 65535)
        return command_usage(invocation,
                             "-i: '%s' is no offset message id (32 or 56 hex digits, as "
                             "transactions prints under Transaction)",
                             id);
    host_format(address, &host);
    request.body_case = TERN__WIRE__REQUEST__BODY_RESUME_TRANSACTION;
    request.resume_transaction = &body;
    enum tern_code code =
        admin_call_broker(invocation->admin, address, &request, NULL, 0, NULL, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    print_done(invocation->json, "transaction %s: its producer group is asked again", id);
    return EXIT_DONE;
}

const struct command transaction_commands[] = {
    {.name = "transactions",
     .help = "transactions that wait for their outcome, or were given up, oldest first",
     .example = "mqadmin transactions -c DefaultCluster --discarded",
     .options = {{'b', "brokerAddr", "HOST:PORT", false, "this broker"},
                 {'c', "clusterName", "CLUSTER", false, "the masters of this cluster"},
                 {'d', "discarded", NULL, false, "those that were given up"},
                 {'m', "maxNum", "N", false, "at most so many per broker (512)"}},
     .run = run_list,
     .one_of = "bc"},
    {.name = "resumeCheckHalfMessage",
     .help = "take up a discarded transaction again, or count a pending one's checks anew",
     .example = "mqadmin resumeCheckHalfMessage -i 7F00000100002A9F0000000000001000",
     .options = {{'i', "msgId", "ID", true,
                  "offset message id of the half message, or of its copy in "
                  "TRANS_CHECK_MAX_TIME_TOPIC"}},
     .run = run_resume},
};
const size_t transaction_command_count =
    sizeof transaction_commands / sizeof transaction_commands[0];
