/*
 * From a RegisterBrokerRequest to a checked route_registration. Everything a broker says is checked
 * here, before any table sees it: names by grammar, addresses by form, numbers by range. Nothing is
 * copied that can be borrowed: names of topics stay where they came in.
 *
 * Threads: any. Failure modes: TERN_INVALID that names the field (and the topic), TERN_LIMIT.
 */
#include "namesrv/namesrv_internal.h"

#include <arpa/inet.h>
#include <string.h>

/* "host:port" as clients will dial it: a name, an IPv4 address, or an IPv6 address in brackets. */
static enum tern_code address_check(const char *text, struct tern_error *err)
{
    const char *colon = strrchr(text, ':');
    size_t host_len = colon ? (size_t)(colon - text) : 0;
    char host[256];
    struct in6_addr v6;
    uint32_t port = 0;
    if (host_len == 0 || host_len >= sizeof host)
        return error_set(err, TERN_INVALID, "'%.64s' is not host:port", text);
    size_t digits = strlen(colon + 1);
    if (digits < 1 || digits > 5 || strspn(colon + 1, "0123456789") != digits)
        return error_set(err, TERN_INVALID, "'%.64s' has no port", text);
    for (size_t i = 1; i <= digits; i++)
        port = port * 10 + (uint32_t)(colon[i] - '0');
    if (port < 1 || port > 65535)
        return error_set(err, TERN_INVALID, "port of '%.64s' is outside 1..65535", text);
    memcpy(host, text, host_len);
    host[host_len] = 0;
    if (host[0] == '[' && host[host_len - 1] == ']') {
        host[host_len - 1] = 0;
        if (inet_pton(AF_INET6, host + 1, &v6) != 1)
            return error_set(err, TERN_INVALID, "'%.64s' is no IPv6 address", text);
        if (IN6_IS_ADDR_UNSPECIFIED(&v6))
            return error_set(err, TERN_INVALID, "'%.64s' cannot be dialled: set advertiseAddr",
                             text);
        return TERN_OK;
    }
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    if (strspn(host, allowed) != host_len)
        return error_set(err, TERN_INVALID, "'%.64s' is not host:port", text);
    if (strcmp(host, "0.0.0.0") == 0)
        return error_set(err, TERN_INVALID, "'%.64s' cannot be dialled: set advertiseAddr", text);
    return TERN_OK;
}

const char *request_name(struct rpc_request *request, const ProtobufCBinaryData *bytes,
                         name_check_fn check, enum tern_code *code, struct tern_error *err)
{
    const char *text = NULL;
    *code = check(bytes->data, bytes->len, err);
    if (*code == TERN_OK) {
        text = frame_text(rpc_request_arena(request), bytes);
        if (!text)
            *code = error_set(err, TERN_NO_MEMORY, "name of %zu bytes", bytes->len);
    }
    return text;
}

static const char *request_address(struct rpc_request *request, const ProtobufCBinaryData *bytes,
                                   enum tern_code *code, struct tern_error *err)
{
    if (bytes->len >= ROUTE_ADDRESS_BYTES) {
        *code = error_set(err, TERN_INVALID, "has %zu bytes, allowed 1..%d", bytes->len,
                          (int)ROUTE_ADDRESS_BYTES - 1);
        return NULL;
    }
    if (bytes->len > 0 && memchr(bytes->data, 0, bytes->len)) {
        *code = error_set(err, TERN_INVALID, "holds a NUL");
        return NULL;
    }
    const char *text = frame_text(rpc_request_arena(request), bytes);
    *code = text ? address_check(text, err) : error_set(err, TERN_NO_MEMORY, "address");
    return *code == TERN_OK ? text : NULL;
}

static enum tern_code topic_check(const Tern__Wire__TopicConfig *topic, struct tern_error *err)
{
    enum tern_code code = topic_name_check(topic->name.data, topic->name.len, err);
    if (code != TERN_OK)
        return code;
    int len = (int)topic->name.len;
    const char *name = (const char *)topic->name.data;
    if (topic->read_queues < 0 || topic->read_queues > ROUTE_TOPIC_QUEUES_MAX ||
        topic->write_queues < 0 || topic->write_queues > ROUTE_TOPIC_QUEUES_MAX)
        return error_set(err, TERN_INVALID,
                         "topic %.*s: %d read and %d write queues, allowed 0..%d", len, name,
                         topic->read_queues, topic->write_queues, (int)ROUTE_TOPIC_QUEUES_MAX);
    if (topic->perm < 0 || topic->perm > ROUTE_PERM_MAX)
        return error_set(err, TERN_INVALID, "topic %.*s: perm %d, allowed 0..%d", len, name,
                         topic->perm, (int)ROUTE_PERM_MAX);
    return TERN_OK;
}

static enum tern_code take_topics(struct rpc_request *request,
                                  const Tern__Wire__RegisterBrokerRequest *in,
                                  struct route_registration *out, struct tern_error *err)
{
    if (in->n_topics > ROUTE_TOPICS_MAX)
        return error_set(err, TERN_LIMIT, "%zu topics in one table, allowed 0..%d", in->n_topics,
                         (int)ROUTE_TOPICS_MAX);
    struct route_topic_config *topics = rpc_request_alloc(request, in->n_topics * sizeof *topics);
    if (!topics)
        return error_set(err, TERN_NO_MEMORY, "table of %zu topics", in->n_topics);
    for (size_t i = 0; i < in->n_topics; i++) {
        const Tern__Wire__TopicConfig *topic = in->topics[i];
        enum tern_code code = topic_check(topic, err);
        if (code != TERN_OK)
            return error_prefix(err, code, "topics[%zu]", i);
        topics[i] = (struct route_topic_config){.name = (const char *)topic->name.data,
                                                .name_len = topic->name.len,
                                                .read_queues = topic->read_queues,
                                                .write_queues = topic->write_queues,
                                                .perm = topic->perm,
                                                .sys_flag = topic->sys_flag};
    }
    out->topics = topics;
    out->topic_count = in->n_topics;
    return TERN_OK;
}

/* The names and addresses; the first fault sets *code and err. */
static void take_texts(struct rpc_request *request, const Tern__Wire__RegisterBrokerRequest *in,
                       struct route_registration *out, enum tern_code *code, struct tern_error *err)
{
    const char *field = "cluster_name";
    out->cluster = request_name(request, &in->cluster_name, broker_name_check, code, err);
    if (out->cluster) {
        field = "broker_name";
        out->name = request_name(request, &in->broker_name, broker_name_check, code, err);
    }
    if (out->name) {
        field = "address";
        out->address = request_address(request, &in->address, code, err);
    }
    out->ha_address = "";
    if (out->address && in->ha_address.len > 0) {
        field = "ha_address";
        out->ha_address = request_address(request, &in->ha_address, code, err);
    }
    if (*code != TERN_OK)
        error_prefix(err, *code, "%s", field);
}

struct route_registration *registration_from_request(struct rpc_request *request,
                                                     enum tern_code *code, struct tern_error *err)
{
    const Tern__Wire__RegisterBrokerRequest *in = request->header->register_broker;
    struct route_registration *out = rpc_request_alloc(request, sizeof *out);
    if (!out) {
        *code = error_set(err, TERN_NO_MEMORY, "registration");
        return NULL;
    }
    *out = (struct route_registration){.id = in->broker_id,
                                       .uuid = in->store_uuid.data,
                                       .peer_id = request->peer.id,
                                       .now_ns = request->received_ns,
                                       .readable = in->readable,
                                       .store_host_v6 = in->store_host_v6,
                                       .topics_version = in->topics_version,
                                       .has_topics = in->has_topics};
    take_texts(request, in, out, code, err);
    if (*code == TERN_OK && in->broker_id < 0)
        *code =
            error_set(err, TERN_INVALID, "broker_id: %lld is negative", (long long)in->broker_id);
    if (*code == TERN_OK && in->store_uuid.len != ROUTE_UUID_BYTES)
        *code = error_set(err, TERN_INVALID, "store_uuid: has %zu bytes, must have %d",
                          in->store_uuid.len, (int)ROUTE_UUID_BYTES);
    if (*code == TERN_OK && in->has_topics)
        *code = take_topics(request, in, out, err);
    return *code == TERN_OK ? out : NULL;
}
