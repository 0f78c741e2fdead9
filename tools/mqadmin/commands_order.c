/*
 * Order topics: the list of queues that keyed sends choose from (base/order_conf.h), kept by each
 * nameserver for itself, so that changes go to all. mqadmin updateTopic -o writes it, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "base/order_conf.h"
#include "tools/mqadmin/order_conf_edit.h"

static void fill(const char *topic, Tern__Wire__KvRequest__Operation operation,
                 Tern__Wire__KvRequest *body, TernRequest *request)
{
    body->operation = operation;
    body->namespace_ = (char *)(uintptr_t)ORDER_CONF_NAMESPACE;
    body->key = (char *)(uintptr_t)topic;
    request->body_case = TERN__WIRE__REQUEST__BODY_KV;
    request->kv = body;
}

enum tern_code order_conf_get(struct admin *admin, const char *topic, char **out,
                              struct tern_error *err)
{
    Tern__Wire__KvRequest body = TERN__WIRE__KV_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call = NULL;
    *out = NULL;
    fill(topic, TERN__WIRE__KV_REQUEST__OPERATION__GET, &body, &request);
    enum tern_code code = admin_call_namesrv(admin, &request, &call, err);
    if (code == TERN_OK && (call->response->body_case != TERN__WIRE__RESPONSE__BODY_KV ||
                            call->response->kv->n_entries != 1))
        code = error_set(err, TERN_PROTOCOL, "the nameserver's answer is no KV entry");
    if (code == TERN_OK && !(*out = strdup(call->response->kv->entries[0]->value)))
        code = error_set(err, TERN_NO_MEMORY, "order configuration of topic %s", topic);
    rpc_call_unref(call);
    return code;
}

enum tern_code order_conf_put(struct admin *admin, const char *topic, const char *conf,
                              struct tern_error *err)
{
    Tern__Wire__KvRequest body = TERN__WIRE__KV_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    enum tern_code code = order_conf_check(conf, err);
    if (code != TERN_OK)
        return code;
    fill(topic, TERN__WIRE__KV_REQUEST__OPERATION__PUT, &body, &request);
    body.value = (char *)(uintptr_t)conf;
    return admin_call_namesrvs(admin, &request, err);
}

/* "name:queues" behind what is there, a ';' between. */
static bool append_row(char *text, size_t size, const char *name, int64_t queues)
{
    size_t used = strlen(text);
    int len =
        snprintf(text + used, size - used, "%s%s:%lld", used ? ";" : "", name, (long long)queues);
    return len > 0 && (size_t)len < size - used;
}

char *order_conf_merge(const char *before, const char *const *names, size_t count, int64_t queues)
{
    struct order_conf_row *rows = NULL;
    size_t row_count = 0;
    size_t size = ORDER_CONF_TEXT_MAX + 1;
    char *text = calloc(1, size);
    bool good = text != NULL;
    /* What cannot be read is replaced. */
    if (before)
        (void)!order_conf_parse(before, strlen(before), &rows, &row_count, NULL);
    for (size_t i = 0; good && i < row_count; i++) {
        bool renewed = false;
        for (size_t k = 0; k < count && !renewed; k++)
            renewed = !strcmp(rows[i].broker, names[k]);
        good = append_row(text, size, rows[i].broker, renewed ? queues : rows[i].queues);
    }
    for (size_t k = 0; good && k < count; k++) {
        bool there = false;
        for (size_t i = 0; i < row_count && !there; i++)
            there = !strcmp(rows[i].broker, names[k]);
        good = there || append_row(text, size, names[k], queues);
    }
    free(rows);
    if (good)
        return text;
    free(text);
    return NULL;
}

/* ---- updateOrderConf ---- */

enum { KNOWN_TEXT_BYTES = 300 };

static bool has_row(const struct order_conf_row *rows, size_t count, const char *broker)
{
    size_t i = 0;
    while (i < count && strcmp(rows[i].broker, broker) != 0)
        i++;
    return i < count;
}

static bool is_registered(const struct admin_broker *brokers, size_t count, const char *broker)
{
    size_t i = 0;
    while (i < count && strcmp(brokers[i].name, broker) != 0)
        i++;
    return i < count;
}

/* The names of registered brokers, each once, as many as fit. */
static void list_names(char out[KNOWN_TEXT_BYTES], const struct admin_broker *brokers, size_t count)
{
    snprintf(out, KNOWN_TEXT_BYTES, "%s", count ? "" : "none");
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(out);
        if (is_registered(brokers, i, brokers[i].name))
            continue;
        if (used + strlen(brokers[i].name) + 8 > KNOWN_TEXT_BYTES) {
            snprintf(out + used, KNOWN_TEXT_BYTES - used, ", …");
            return;
        }
        snprintf(out + used, KNOWN_TEXT_BYTES - used, "%s%s", used ? ", " : "", brokers[i].name);
    }
}

/* The rows that the topic has, none when it has no list or one that cannot be read. */
static enum tern_code present_rows(struct invocation *invocation, const char *topic,
                                   struct order_conf_row **rows, size_t *count,
                                   struct tern_error *err)
{
    char *conf;
    *rows = NULL;
    *count = 0;
    enum tern_code code = order_conf_get(invocation->admin, topic, &conf, err);
    if (code == TERN_OK)
        (void)!order_conf_parse(conf, strlen(conf), rows, count, NULL);
    free(conf);
    return code == TERN_QUERY_NOT_FOUND ? TERN_OK : code;
}

/* All that are registered; none is no failure. */
static enum tern_code registered_brokers(struct invocation *invocation, struct admin_broker **out,
                                         size_t *count, struct tern_error *err)
{
    enum tern_code code = admin_brokers(invocation->admin, NULL, false, out, count, err);
    if (code == TERN_OK)
        return code;
    *out = NULL;
    *count = 0;
    return code == TERN_NOT_FOUND ? TERN_OK : code;
}

/*
 * A name is known when a broker of it is registered, or when the topic's list has it already: its
 * broker may be away. TERN_INVALID: another one, most likely a slip.
 */
static enum tern_code check_brokers(struct invocation *invocation, const char *topic,
                                    const char *conf, struct tern_error *err)
{
    struct order_conf_row *rows, *present = NULL;
    struct admin_broker *brokers = NULL;
    size_t count, present_count = 0, broker_count = 0;
    char known[KNOWN_TEXT_BYTES];
    enum tern_code code = order_conf_parse(conf, strlen(conf), &rows, &count, err);
    if (code == TERN_OK)
        code = registered_brokers(invocation, &brokers, &broker_count, err);
    if (code == TERN_OK)
        code = present_rows(invocation, topic, &present, &present_count, err);
    for (size_t i = 0; code == TERN_OK && i < count; i++) {
        if (is_registered(brokers, broker_count, rows[i].broker) ||
            has_row(present, present_count, rows[i].broker))
            continue;
        list_names(known, brokers, broker_count);
        code = error_set(err, TERN_INVALID,
                         "no broker %s is registered, nor in the topic's list; registered: %s; "
                         "-f true writes it all the same",
                         rows[i].broker, known);
    }
    free(rows);
    free(present);
    free(brokers);
    return code;
}

static int run_put(struct invocation *invocation, const char *topic)
{
    bool force;
    const char *conf = option_value(invocation, "orderConf");
    struct tern_error err = {.text = ""};
    if (!conf)
        return command_usage(invocation, "put needs -v broker:queues;…");
    if (!option_bool(invocation, "force", false, &force))
        return EXIT_USAGE;
    enum tern_code code = topic_name_check(topic, strlen(topic), &err);
    if (code == TERN_OK && !force)
        code = check_brokers(invocation, topic, conf, &err);
    if (code == TERN_OK)
        code = order_conf_put(invocation->admin, topic, conf, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    print_done(invocation->json, "update orderConf success. topic=[%s], orderConf=[%s]", topic,
               conf);
    return EXIT_DONE;
}

static int run_get(struct invocation *invocation, const char *topic)
{
    struct tern_error err = {.text = ""};
    char *conf;
    enum tern_code code = order_conf_get(invocation->admin, topic, &conf, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    print_done(invocation->json, "get orderConf success. topic=[%s], orderConf=[%s]", topic, conf);
    free(conf);
    return EXIT_DONE;
}

static int run_delete(struct invocation *invocation, const char *topic)
{
    Tern__Wire__KvRequest body = TERN__WIRE__KV_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_error err = {.text = ""};
    fill(topic, TERN__WIRE__KV_REQUEST__OPERATION__DELETE, &body, &request);
    enum tern_code code = admin_call_namesrvs(invocation->admin, &request, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    print_done(invocation->json, "delete orderConf success. topic=[%s]", topic);
    return EXIT_DONE;
}

static int run_update_order_conf(struct invocation *invocation)
{
    const char *topic = option_value(invocation, "topic");
    const char *method = option_value(invocation, "method");
    if (!strcmp(method, "put"))
        return run_put(invocation, topic);
    if (!strcmp(method, "get"))
        return run_get(invocation, topic);
    if (!strcmp(method, "delete"))
        return run_delete(invocation, topic);
    return command_usage(invocation, "-m: '%s' is none of put, get, delete", method);
}

const struct command order_commands[] = {
    {.name = "updateOrderConf",
     .help = "the queues that keyed sends to a topic choose from, up or not",
     .example = "mqadmin updateOrderConf -t Orders -m put -v 'broker-a:4;broker-b:4'",
     .options = {{'t', "topic", "TOPIC", true, "the topic"},
                 {'m', "method", "METHOD", true, "put, get or delete"},
                 {'v', "orderConf", "CONF", false, "with put: broker:queues;broker:queues;…"},
                 {'f', "force", "BOOL", false,
                  "true: with put, brokers that nobody knows yet, too (false)"}},
     .run = run_update_order_conf},
};
const size_t order_command_count = sizeof order_commands / sizeof order_commands[0];
