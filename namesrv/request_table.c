/*
 * The nameserver's requests, one row each. Whatever is not here is refused with
 * REQUEST_CODE_NOT_SUPPORTED; RocketMQ answers nothing and lets the sender wait.
 *
 * Threads: the transport's. Failure modes: none of its own.
 */
#include "namesrv/namesrv_internal.h"

static const struct {
    Tern__Wire__Request__BodyCase body;
    namesrv_handler_fn handle;
} rows[] = {
    {TERN__WIRE__REQUEST__BODY_REGISTER_BROKER, handle_register_broker},
    {TERN__WIRE__REQUEST__BODY_UNREGISTER_BROKER, handle_unregister_broker},
    {TERN__WIRE__REQUEST__BODY_ROUTE, handle_route},
    {TERN__WIRE__REQUEST__BODY_CLUSTER_INFO, handle_cluster_info},
    {TERN__WIRE__REQUEST__BODY_TOPIC_LIST, handle_topic_list},
    {TERN__WIRE__REQUEST__BODY_WIPE_WRITE_PERM, handle_wipe_write_perm},
    {TERN__WIRE__REQUEST__BODY_KV, handle_kv},
    {TERN__WIRE__REQUEST__BODY_DELETE_TOPIC_ROUTE, handle_delete_topic_route},
    {TERN__WIRE__REQUEST__BODY_BROKER_CONFIG, handle_config},
};

void namesrv_on_request(void *arg, struct rpc_request *request)
{
    struct namesrv *ns = arg;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].body == request->header->body_case) {
            rows[i].handle(ns, request);
            return;
        }
    }
    counter_add(&ns->counters.requests_unknown, 1);
    rpc_reply_error(request, TERN_NOT_SUPPORTED,
                    "request %d is not one of a nameserver's; is this address meant for a broker?",
                    (int)request->header->body_case);
}
