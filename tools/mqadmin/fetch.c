/* See fetch.h. Threads: one. Failure modes: the codes of the calls; an answer of another kind is
 * TERN_PROTOCOL. */
#include "tools/mqadmin/fetch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/record.h"

#define TOOLS_GROUP "TOOLS_CONSUMER"

enum tern_code fetch(struct invocation *invocation, const char *address, TernRequest *request,
                     Tern__Wire__Response__BodyCase body, struct rpc_call **call,
                     struct tern_error *err)
{
    *call = NULL;
    enum tern_code code =
        admin_call_broker(invocation->admin, address, request, NULL, 0, call, err);
    if (code == TERN_OK && (*call)->response->body_case != body)
        code = error_set(err, TERN_PROTOCOL, "%s: the answer is of another kind (%d)", address,
                         (int)(*call)->response->body_case);
    return code;
}

static ProtobufCBinaryData name_bytes(const char *text)
{
    return frame_bytes(text, text ? strlen(text) : 0);
}

enum tern_code fetch_progress(struct invocation *invocation, const char *address, const char *group,
                              const char *topic, struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__ConsumeStatsRequest body = TERN__WIRE__CONSUME_STATS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.group = name_bytes(group);
    body.topic = name_bytes(topic);
    request.body_case = TERN__WIRE__REQUEST__BODY_CONSUME_STATS;
    request.consume_stats = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_CONSUME_STATS, call,
                 err);
}

enum tern_code fetch_members(struct invocation *invocation, const char *address, const char *group,
                             struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__ConsumerConnectionRequest body = TERN__WIRE__CONSUMER_CONNECTION_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.group = name_bytes(group);
    request.body_case = TERN__WIRE__REQUEST__BODY_CONSUMER_CONNECTION;
    request.consumer_connection = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_CONSUMER_CONNECTION,
                 call, err);
}

enum tern_code fetch_topic_stats(struct invocation *invocation, const char *address,
                                 const char *topic, struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__TopicStatsRequest body = TERN__WIRE__TOPIC_STATS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.topic = name_bytes(topic);
    request.body_case = TERN__WIRE__REQUEST__BODY_TOPIC_STATS;
    request.topic_stats = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_TOPIC_STATS, call, err);
}

enum tern_code fetch_topics(struct invocation *invocation, const char *address,
                            struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__ListTopicsRequest body = TERN__WIRE__LIST_TOPICS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_LIST_TOPICS;
    request.list_topics = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_LIST_TOPICS, call, err);
}

enum tern_code fetch_groups(struct invocation *invocation, const char *address,
                            struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__ListGroupsRequest body = TERN__WIRE__LIST_GROUPS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_LIST_GROUPS;
    request.list_groups = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_LIST_GROUPS, call, err);
}

enum tern_code fetch_status(struct invocation *invocation, const char *address,
                            struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__BrokerStatusRequest body = TERN__WIRE__BROKER_STATUS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_BROKER_STATUS;
    request.broker_status = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_BROKER_STATUS, call,
                 err);
}

enum tern_code fetch_config(struct invocation *invocation, const char *address,
                            struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__BrokerConfigRequest body = TERN__WIRE__BROKER_CONFIG_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_BROKER_CONFIG;
    request.broker_config = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_BROKER_CONFIG, call,
                 err);
}

/* The same of the nameserver; `what` it should have answered. */
static enum tern_code fetch_namesrv(struct invocation *invocation, TernRequest *request,
                                    Tern__Wire__Response__BodyCase body, const char *what,
                                    struct rpc_call **call, struct tern_error *err)
{
    *call = NULL;
    enum tern_code code = admin_call_namesrv(invocation->admin, request, call, err);
    if (code == TERN_OK && (*call)->response->body_case != body)
        code = error_set(err, TERN_PROTOCOL, "the nameserver's answer is no %s", what);
    return code;
}

enum tern_code fetch_route(struct invocation *invocation, const char *topic, struct rpc_call **call,
                           struct tern_error *err)
{
    Tern__Wire__RouteRequest body = TERN__WIRE__ROUTE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.topic = name_bytes(topic);
    request.body_case = TERN__WIRE__REQUEST__BODY_ROUTE;
    request.route = &body;
    return fetch_namesrv(invocation, &request, TERN__WIRE__RESPONSE__BODY_ROUTE, "route", call,
                         err);
}

enum tern_code fetch_topic_list(struct invocation *invocation, const char *cluster,
                                struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__TopicListRequest body = TERN__WIRE__TOPIC_LIST_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.cluster_name = name_bytes(cluster);
    request.body_case = TERN__WIRE__REQUEST__BODY_TOPIC_LIST;
    request.topic_list = &body;
    return fetch_namesrv(invocation, &request, TERN__WIRE__RESPONSE__BODY_TOPIC_LIST, "topic list",
                         call, err);
}

enum tern_code fetch_offset_by_time(struct invocation *invocation, const char *address,
                                    const char *topic, int32_t queue_id, int64_t wall_ms,
                                    int64_t *offset, struct tern_error *err)
{
    Tern__Wire__SearchOffsetRequest body = TERN__WIRE__SEARCH_OFFSET_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    body.topic = name_bytes(topic);
    body.queue_id = queue_id;
    body.store_ms = wall_ms;
    request.body_case = TERN__WIRE__REQUEST__BODY_SEARCH_OFFSET;
    request.search_offset = &body;
    enum tern_code code =
        fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_SEARCH_OFFSET, &call, err);
    if (code == TERN_OK)
        *offset = call->response->search_offset->offset;
    rpc_call_unref(call);
    return code;
}

enum tern_code fetch_by_key(struct invocation *invocation, const char *address, const char *topic,
                            const char *key, struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__QueryMessageRequest body = TERN__WIRE__QUERY_MESSAGE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.topic = name_bytes(topic);
    body.key = name_bytes(key);
    body.max_count = 64;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUERY_MESSAGE;
    request.query_message = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_QUERY_MESSAGE, call,
                 err);
}

/* ---- by offset message id ---- */

static enum tern_code fetch_record(struct invocation *invocation, const char *address,
                                   int64_t phys_off, struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__ViewMessageRequest body = TERN__WIRE__VIEW_MESSAGE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.physical_offset = phys_off;
    request.body_case = TERN__WIRE__REQUEST__BODY_VIEW_MESSAGE;
    request.view_message = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_VIEW_MESSAGE, call, err);
}

/* Another set has another record at this position: the id's address stands in the right one. */
static bool is_record_of(const struct rpc_call *call, const char *id)
{
    char own[MESSAGE_ID_BYTES];
    struct record record;
    if (record_parse(call->payload, call->payload_size, call->payload_size, false, &record) !=
        RECORD_WHOLE)
        return false;
    message_id_format(own, &record.store_host, record.phys_off);
    return strcasecmp(own, id) == 0;
}

static bool fetch_from_others(struct invocation *invocation, const char *id, int64_t phys_off,
                              struct admin_broker *from, struct rpc_call **call)
{
    const char *silent = from->address;
    struct admin_broker *brokers;
    size_t count = 0;
    bool found = false;
    *call = NULL;
    if (admin_brokers(invocation->admin, NULL, false, &brokers, &count, NULL) != TERN_OK)
        return false;
    for (size_t i = 0; i < count && !found; i++) {
        if (!strcmp(brokers[i].address, silent))
            continue;
        rpc_call_unref(*call);
        found = fetch_record(invocation, brokers[i].address, phys_off, call, NULL) == TERN_OK &&
                is_record_of(*call, id);
        if (!found)
            continue;
        fprintf(stderr, "mqadmin %s: %s is silent: shown is the copy of %s id %" PRId64 " at %s\n",
                invocation->command->name, silent, brokers[i].name, brokers[i].id,
                brokers[i].address);
        *from = brokers[i];
    }
    free(brokers);
    return found;
}

static bool is_silence(enum tern_code code)
{
    return code == TERN_UNREACHABLE || code == TERN_TIMEOUT || code == TERN_CONNECTION_LOST;
}

enum tern_code fetch_by_id(struct invocation *invocation, const char *id, struct admin_broker *from,
                           struct rpc_call **call, struct tern_error *err)
{
    char address[HOST_TEXT_BYTES];
    struct host host;
    int64_t phys_off;
    *call = NULL;
    if (message_id_parse(id, &host, &phys_off) != TERN_OK || host.port == 0 || host.port > 65535)
        return error_set(err, TERN_INVALID, "'%s' is no offset message id", id);
    host_format(address, &host);
    *from = (struct admin_broker){.id = -1};
    snprintf(from->address, sizeof from->address, "%s", address);
    enum tern_code code = fetch_record(invocation, address, phys_off, call, err);
    if (!is_silence(code))
        return code;
    rpc_call_unref(*call);
    if (fetch_from_others(invocation, id, phys_off, from, call))
        return TERN_OK;
    return error_set(err, code, "%s; no other broker has a copy", error_text(err, code));
}

enum tern_code fetch_pull(struct invocation *invocation, const char *address, const char *topic,
                          int32_t queue_id, int64_t offset, int32_t max_count,
                          const char *expression, struct rpc_call **call, struct tern_error *err)
{
    Tern__Wire__PullRequest body = TERN__WIRE__PULL_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.group = name_bytes(TOOLS_GROUP);
    body.topic = name_bytes(topic);
    body.queue_id = queue_id;
    body.offset = offset;
    body.max_count = max_count;
    body.has_subscription = true;
    body.expression = (char *)(uintptr_t)(expression ? expression : "");
    request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    request.pull = &body;
    return fetch(invocation, address, &request, TERN__WIRE__RESPONSE__BODY_PULL, call, err);
}

const char *status_value(const struct rpc_call *call, const char *key)
{
    const Tern__Wire__BrokerStatusResponse *status = call->response->broker_status;
    for (size_t i = 0; i < status->n_entries; i++)
        if (!strcmp(status->entries[i]->key, key))
            return status->entries[i]->value;
    return NULL;
}

int64_t status_number(const struct rpc_call *call, const char *key, int64_t fallback)
{
    const char *text = status_value(call, key);
    return text ? strtoll(text, NULL, 10) : fallback;
}

bool wire_is(const ProtobufCBinaryData *name, const char *text)
{
    return name->len == strlen(text) && !memcmp(name->data, text, name->len);
}

void wire_text(char *out, size_t size, const ProtobufCBinaryData *name)
{
    snprintf(out, size, "%.*s", (int)name->len, name->data ? (const char *)name->data : "");
}

void wire_address(char out[HOST_TEXT_BYTES], const Tern__Wire__Address *address)
{
    struct host host = {.v6 = false};
    snprintf(out, HOST_TEXT_BYTES, "-");
    if (!address || (address->ip.len != 4 && address->ip.len != 16))
        return;
    host.v6 = address->ip.len == 16;
    memcpy(host.ip, address->ip.data, address->ip.len);
    host.port = address->port;
    host_format(out, &host);
}
