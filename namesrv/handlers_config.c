/*
 * The nameserver's configuration for who asks (RocketMQ's getNamesrvConfig). It is read at the
 * start and nothing of it changes while the nameserver runs, so there is no request to change it.
 *
 * Threads: the transport's. Failure modes: no memory.
 */
#include <stdlib.h>
#include <string.h>

#include "namesrv/namesrv_config.h"
#include "namesrv/namesrv_internal.h"

static Tern__Wire__KeyValue *make_entry(struct rpc_request *request, const struct config_row *row,
                                        const struct namesrv_config *config)
{
    char value[CONFIG_VALUE_TEXT_BYTES];
    config_show_value(row, config, value, sizeof value);
    Tern__Wire__KeyValue *entry = rpc_request_alloc(request, sizeof *entry);
    char *text = rpc_request_alloc(request, strlen(value) + 1);
    if (!entry || !text)
        return NULL;
    tern__wire__key_value__init(entry);
    entry->key = (char *)(uintptr_t)row->key;
    entry->value = memcpy(text, value, strlen(value) + 1);
    return entry;
}

static int compare_keys(const void *a, const void *b)
{
    const Tern__Wire__KeyValue *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

void handle_config(struct namesrv *ns, struct rpc_request *request)
{
    Tern__Wire__BrokerConfigResponse body = TERN__WIRE__BROKER_CONFIG_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    size_t rows = namesrv_config_table.count;
    body.entries = rpc_request_alloc(request, rows * sizeof body.entries[0]);
    bool kept = body.entries != NULL;
    for (size_t i = 0; kept && i < rows; i++) {
        const struct config_row *row = &namesrv_config_table.rows[i];
        if (row->refused)
            continue;
        body.entries[body.n_entries] = make_entry(request, row, &ns->config);
        kept = body.entries[body.n_entries++] != NULL;
    }
    if (!kept) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the configuration");
        return;
    }
    qsort(body.entries, body.n_entries, sizeof body.entries[0], compare_keys);
    response.body_case = TERN__WIRE__RESPONSE__BODY_BROKER_CONFIG;
    response.broker_config = &body;
    rpc_reply(request, &response, 0);
}
