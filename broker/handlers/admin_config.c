/*
 * The configuration on the wire: what is in effect, and changes of live keys (SE-02, SE-03).
 *
 *   change: checked ─► in effect ─► nameservers, when routes show it ─► answer with old and new
 *
 * Paths, names and addresses are not live keys: nobody changes them from outside. Values of secrets
 * are never shown.
 *
 * Threads: transport's for the question, the lane's for a change. Failure modes: a refused change
 * changes nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "broker/admin_lane.h"
#include "broker/handlers/checks.h"
#include "broker/live_config.h"

/* ---- the question ---- */

static char *keep(struct rpc_request *request, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = rpc_request_alloc(request, size);
    return copy ? memcpy(copy, text, size) : NULL;
}

static int compare_keys(const void *a, const void *b)
{
    const Tern__Wire__KeyValue *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* false: no memory. */
static bool fill_config(struct broker *broker, struct rpc_request *request,
                        const struct broker_config *config, Tern__Wire__BrokerConfigResponse *body)
{
    size_t rows = broker_config_table.count;
    body->entries = rpc_request_alloc(request, rows * sizeof *body->entries);
    body->changed = rpc_request_alloc(request, rows * sizeof *body->changed);
    if (!body->entries || !body->changed)
        return false;
    for (size_t i = 0; i < rows; i++) {
        const struct config_row *row = &broker_config_table.rows[i];
        char value[CONFIG_VALUE_TEXT_BYTES];
        if (row->refused)
            continue;
        Tern__Wire__KeyValue *entry = rpc_request_alloc(request, sizeof *entry);
        if (!entry)
            return false;
        tern__wire__key_value__init(entry);
        config_show_value(row, config, value, sizeof value);
        entry->key = (char *)(uintptr_t)row->key;
        entry->value = keep(request, value);
        if (!entry->value)
            return false;
        body->entries[body->n_entries++] = entry;
        if (atomic_load(&broker->live.changed[i]))
            body->changed[body->n_changed++] = entry->key;
    }
    qsort(body->entries, body->n_entries, sizeof body->entries[0], compare_keys);
    if (body->n_changed)
        qsort(body->changed, body->n_changed, sizeof body->changed[0], compare_texts);
    return true;
}

void handle_broker_config(struct broker *broker, struct rpc_request *request)
{
    struct broker_config *config = rpc_request_alloc(request, sizeof *config);
    Tern__Wire__BrokerConfigResponse body = TERN__WIRE__BROKER_CONFIG_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    if (config)
        live_config_copy(broker, config);
    if (!config || !fill_config(broker, request, config, &body)) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the configuration");
        return;
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_BROKER_CONFIG;
    response.broker_config = &body;
    rpc_reply(request, &response, 0);
}

/* ---- the change ---- */

/* In the request's memory. */
struct change {
    struct broker_config before, after;
    struct config_assignment list[CONFIG_ASSIGNMENTS_MAX];
    size_t count;
};

/* @thread lane */
static enum tern_code apply_update(struct broker *broker, struct rpc_request *request,
                                   struct tern_error *err)
{
    const Tern__Wire__UpdateBrokerConfigRequest *wanted = request->header->update_broker_config;
    struct change *change = rpc_request_alloc(request, sizeof *change);
    (void)broker;
    if (!change)
        return error_set(err, TERN_NO_MEMORY, "no memory for the change");
    if (wanted->n_entries == 0 || wanted->n_entries > CONFIG_ASSIGNMENTS_MAX)
        return error_set(err, TERN_INVALID, "%zu keys in one request, allowed 1..%d",
                         wanted->n_entries, (int)CONFIG_ASSIGNMENTS_MAX);
    change->count = wanted->n_entries;
    for (size_t i = 0; i < change->count; i++)
        change->list[i] =
            (struct config_assignment){wanted->entries[i]->key, wanted->entries[i]->value};
    request->user = change;
    return TERN_OK;
}

/* @thread lane */
static enum tern_code settle_update(struct broker *broker, struct rpc_request *request,
                                    struct tern_error *err)
{
    struct change *change = request->user;
    return live_config_change(broker, change->list, change->count, &change->before, &change->after,
                              err);
}

/* @thread lane */
static void answer_update(struct broker *broker, struct rpc_request *request)
{
    const struct change *change = request->user;
    Tern__Wire__UpdateBrokerConfigResponse body = TERN__WIRE__UPDATE_BROKER_CONFIG_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    Tern__Wire__ConfigChange *changes = rpc_request_alloc(request, change->count * sizeof *changes);
    body.changes = rpc_request_alloc(request, change->count * sizeof *body.changes);
    (void)broker;
    bool kept = changes && body.changes;
    for (size_t i = 0; kept && i < change->count; i++) {
        const char *key = change->list[i].key;
        const struct config_row *row = config_find(&broker_config_table, key, strlen(key));
        char value[CONFIG_VALUE_TEXT_BYTES];
        tern__wire__config_change__init(&changes[i]);
        changes[i].key = (char *)(uintptr_t)row->key;
        config_show_value(row, &change->before, value, sizeof value);
        changes[i].old_value = keep(request, value);
        config_show_value(row, &change->after, value, sizeof value);
        changes[i].new_value = keep(request, value);
        kept = changes[i].old_value && changes[i].new_value;
        body.changes[body.n_changes++] = &changes[i];
    }
    if (!kept) {
        rpc_reply_error(request, TERN_NO_MEMORY, "changed, but no memory for the answer");
        return;
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_UPDATE_BROKER_CONFIG;
    response.update_broker_config = &body;
    rpc_reply(request, &response, 0);
}

void handle_update_broker_config(struct broker *broker, struct rpc_request *request)
{
    admin_lane_submit_answered(broker->admin, request, apply_update, settle_update, answer_update);
}
