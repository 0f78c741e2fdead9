/* The nameservers' key-value configuration; each nameserver keeps its own, so changes go to all. */
#include <stdlib.h>
#include <string.h>

#include "tools/mqadmin/command.h"

static void fill(const struct invocation *invocation, Tern__Wire__KvRequest *body,
                 TernRequest *request, Tern__Wire__KvRequest__Operation operation)
{
    const char *key = option_value(invocation, "key");
    body->operation = operation;
    body->namespace_ = (char *)(uintptr_t)option_value(invocation, "namespace");
    if (key)
        body->key = (char *)(uintptr_t)key;
    request->body_case = TERN__WIRE__REQUEST__BODY_KV;
    request->kv = body;
}

static int run_update_kv(struct invocation *invocation)
{
    Tern__Wire__KvRequest body = TERN__WIRE__KV_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_error err = {.text = ""};
    fill(invocation, &body, &request, TERN__WIRE__KV_REQUEST__OPERATION__PUT);
    body.value = (char *)(uintptr_t)option_value(invocation, "value");
    enum tern_code code = admin_call_namesrvs(invocation->admin, &request, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    print_done(invocation->json, "create or update kv config to namespace success.");
    return EXIT_DONE;
}

static int run_delete_kv(struct invocation *invocation)
{
    Tern__Wire__KvRequest body = TERN__WIRE__KV_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_error err = {.text = ""};
    fill(invocation, &body, &request, TERN__WIRE__KV_REQUEST__OPERATION__DELETE);
    enum tern_code code = admin_call_namesrvs(invocation->admin, &request, &err);
    if (code != TERN_OK)
        return command_fail(invocation, code, &err);
    print_done(invocation->json, "delete kv config from namespace success.");
    return EXIT_DONE;
}

static int run_get_kv(struct invocation *invocation)
{
    static const char *const columns[] = {"Key", "Value", NULL};
    static const char *const keys[] = {"key", "value", NULL};
    Tern__Wire__KvRequest body = TERN__WIRE__KV_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_error err = {.text = ""};
    struct rpc_call *call;
    struct table table;

    fill(invocation, &body, &request,
         option_given(invocation, "key") ? TERN__WIRE__KV_REQUEST__OPERATION__GET
                                         : TERN__WIRE__KV_REQUEST__OPERATION__LIST);
    enum tern_code code = admin_call_namesrv(invocation->admin, &request, &call, &err);
    if (code == TERN_OK && call->response->body_case != TERN__WIRE__RESPONSE__BODY_KV)
        code = error_set(&err, TERN_PROTOCOL, "the nameserver's answer is no KV table");
    if (code == TERN_OK) {
        table_init(&table, columns, keys);
        for (size_t i = 0; i < call->response->kv->n_entries; i++)
            table_add(&table, (json_t *[]){text_of(call->response->kv->entries[i]->key),
                                           text_of(call->response->kv->entries[i]->value)});
        table_print(&table, invocation->json);
    }
    rpc_call_unref(call);
    return code == TERN_OK ? EXIT_DONE : command_fail(invocation, code, &err);
}

#define NAMESPACE                                                                                  \
    {                                                                                              \
        's', "namespace", "NS", true, "the namespace, e.g. ORDER_TOPIC_CONFIG"                     \
    }

const struct command kv_commands[] = {
    {.name = "updateKvConfig",
     .help = "set a key at every nameserver",
     .example = "mqadmin updateKvConfig -s ORDER_TOPIC_CONFIG -k Orders -v 'broker-a:4'",
     .options = {NAMESPACE,
                 {'k', "key", "KEY", true, "the key"},
                 {'v', "value", "VALUE", true, "its value"}},
     .run = run_update_kv},
    {.name = "deleteKvConfig",
     .help = "remove a key at every nameserver",
     .example = "mqadmin deleteKvConfig -s ORDER_TOPIC_CONFIG -k Orders",
     .options = {NAMESPACE, {'k', "key", "KEY", true, "the key"}},
     .run = run_delete_kv},
    {.name = "getKvConfig",
     .help = "a key, or all keys of a namespace",
     .example = "mqadmin getKvConfig -s ORDER_TOPIC_CONFIG",
     .options = {NAMESPACE, {'k', "key", "KEY", false, "only this key"}},
     .run = run_get_kv},
};
const size_t kv_command_count = sizeof kv_commands / sizeof kv_commands[0];
