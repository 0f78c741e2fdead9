/*
 * What clients ask: the route of a topic, the brokers of the clusters, the list of topics.
 *
 * An answer is copied out of the tables into the request's memory under the lock; sorting and
 * packing come after it was released. An answer never borrows from the tables.
 *
 * Threads: the transport's. Failure modes: TOPIC_NOT_EXIST, TERN_NO_MEMORY beyond the arena's
 * budget.
 */
#include "namesrv/namesrv_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/order_conf.h"

typedef Tern__Wire__BrokerData BrokerData;
typedef Tern__Wire__BrokerAddress BrokerAddress;
typedef Tern__Wire__QueueData QueueData;

static bool copy_bytes(struct rpc_request *request, const char *text, ProtobufCBinaryData *out)
{
    size_t len = strlen(text);
    out->data = rpc_request_alloc(request, len);
    out->len = len;
    if (out->data)
        memcpy(out->data, text, len);
    return out->data != NULL;
}

/* A set as clients see it (routable_only), or with all its members. NULL without memory. */
static BrokerData *copy_set(struct rpc_request *request, const struct route_set *set,
                            bool routable_only)
{
    BrokerData *out = rpc_request_alloc(request, sizeof *out);
    if (!out)
        return NULL;
    tern__wire__broker_data__init(out);
    out->addresses = rpc_request_alloc(request, set->member_count * sizeof *out->addresses);
    if (!out->addresses || !copy_bytes(request, set->cluster, &out->cluster_name) ||
        !copy_bytes(request, set->name, &out->broker_name))
        return NULL;
    for (size_t i = 0; i < set->member_count; i++) {
        const struct route_member *member = &set->members[i];
        if (routable_only && !route_member_routable(member))
            continue;
        BrokerAddress *address = rpc_request_alloc(request, sizeof *address);
        if (!address)
            return NULL;
        tern__wire__broker_address__init(address);
        address->broker_id = member->id;
        address->store_host_v6 = member->store_host_v6;
        if (!copy_bytes(request, member->address, &address->address))
            return NULL;
        out->addresses[out->n_addresses++] = address;
    }
    return out;
}

static QueueData *copy_row(struct rpc_request *request, const struct route_row *row)
{
    QueueData *out = rpc_request_alloc(request, sizeof *out);
    if (!out)
        return NULL;
    tern__wire__queue_data__init(out);
    out->read_queues = row->read_queues;
    out->write_queues = row->write_queues;
    out->perm = route_row_perm(row);
    out->sys_flag = row->sys_flag;
    return copy_bytes(request, row->set->name, &out->broker_name) ? out : NULL;
}

/* @locks holds:NAMESRV */
static enum tern_code copy_route(struct rpc_request *request, const struct route_topic *topic,
                                 Tern__Wire__RouteResponse *out)
{
    if (!topic)
        return TERN_TOPIC_NOT_EXIST;
    out->queues = rpc_request_alloc(request, topic->row_count * sizeof *out->queues);
    out->brokers = rpc_request_alloc(request, topic->row_count * sizeof *out->brokers);
    if (!out->queues || !out->brokers)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < topic->row_count; i++) {
        const struct route_row *row = &topic->rows[i];
        if (!route_set_routable(row->set))
            continue;
        QueueData *queue = copy_row(request, row);
        BrokerData *broker = copy_set(request, row->set, true);
        if (!queue || !broker)
            return TERN_NO_MEMORY;
        out->queues[out->n_queues++] = queue;
        out->brokers[out->n_brokers++] = broker;
    }
    return out->n_queues > 0 ? TERN_OK : TERN_TOPIC_NOT_EXIST;
}

/* Its order configuration, when there is one. */
static enum tern_code copy_order_conf(struct namesrv *ns, struct rpc_request *request,
                                      const ProtobufCBinaryData *name,
                                      Tern__Wire__RouteResponse *out)
{
    const char *value;
    const char *topic = frame_text(rpc_request_arena(request), name);
    if (!topic)
        return TERN_NO_MEMORY;
    enum tern_code code =
        kv_config_get(ns->kv, ORDER_CONF_NAMESPACE, topic, rpc_request_arena(request), &value);
    if (code == TERN_OK)
        out->order_conf = frame_bytes(value, strlen(value));
    return code == TERN_QUERY_NOT_FOUND ? TERN_OK : code;
}

void handle_route(struct namesrv *ns, struct rpc_request *request)
{
    const ProtobufCBinaryData *name = &request->header->route->topic;
    Tern__Wire__RouteResponse body = TERN__WIRE__ROUTE_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {0};
    enum tern_code code = topic_name_check(name->data, name->len, &err);
    if (code != TERN_OK) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    lock_acquire(&ns->lock);
    code = copy_route(request, route_find_topic(&ns->table, name->data, name->len), &body);
    lock_release(&ns->lock);
    if (code == TERN_OK && ns->config.order_message_enable)
        code = copy_order_conf(ns, request, name, &body);
    if (code == TERN_TOPIC_NOT_EXIST) {
        counter_add(&ns->counters.routes_missing, 1);
        rpc_reply_error(request, code, "No topic route info in name server for the topic: %.*s",
                        (int)name->len, (const char *)name->data);
        return;
    }
    if (code != TERN_OK) {
        rpc_reply_error(request, code, "route of %.*s", (int)name->len, (const char *)name->data);
        return;
    }
    counter_add(&ns->counters.routes, 1);
    response.body_case = TERN__WIRE__RESPONSE__BODY_ROUTE;
    response.route = &body;
    rpc_reply(request, &response, 0);
}

/* All sets by name, with members that clients are not shown: tools and returning masters ask. */
static enum tern_code copy_sets(struct rpc_request *request, const struct route_table *table,
                                Tern__Wire__ClusterInfoResponse *out)
{
    out->brokers = rpc_request_alloc(request, table->set_count * sizeof *out->brokers);
    if (!out->brokers)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < table->set_count; i++) {
        BrokerData *broker = copy_set(request, table->sets[i], false);
        if (!broker)
            return TERN_NO_MEMORY;
        out->brokers[out->n_brokers++] = broker;
    }
    return TERN_OK;
}

void handle_cluster_info(struct namesrv *ns, struct rpc_request *request)
{
    Tern__Wire__ClusterInfoResponse body = TERN__WIRE__CLUSTER_INFO_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    lock_acquire(&ns->lock);
    enum tern_code code = copy_sets(request, &ns->table, &body);
    lock_release(&ns->lock);
    if (code != TERN_OK) {
        rpc_reply_error(request, code, "list of brokers");
        return;
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_CLUSTER_INFO;
    response.cluster_info = &body;
    rpc_reply(request, &response, 0);
}

static bool in_cluster(const struct route_topic *topic, const char *cluster)
{
    if (!cluster[0])
        return true;
    for (size_t i = 0; i < topic->row_count; i++)
        if (strcmp(topic->rows[i].set->cluster, cluster) == 0)
            return true;
    return false;
}

/* Two allocations for all names, not one each: the list may have 100,000. @locks holds:NAMESRV */
static enum tern_code copy_topics(struct rpc_request *request, const struct route_table *table,
                                  const char *cluster, Tern__Wire__TopicListResponse *out)
{
    const struct route_topic *topic;
    size_t count = 0;
    size_t bytes = 0;
    for (topic = route_first_topic(table); topic; topic = route_next_topic(topic)) {
        if (!in_cluster(topic, cluster))
            continue;
        count++;
        bytes += topic->name_len;
    }
    out->topics = rpc_request_alloc(request, count * sizeof *out->topics);
    uint8_t *names = rpc_request_alloc(request, bytes);
    if (!out->topics || !names)
        return TERN_NO_MEMORY;
    for (topic = route_first_topic(table); topic; topic = route_next_topic(topic)) {
        if (!in_cluster(topic, cluster))
            continue;
        memcpy(names, topic->name, topic->name_len);
        out->topics[out->n_topics++] = (ProtobufCBinaryData){.len = topic->name_len, .data = names};
        names += topic->name_len;
    }
    return TERN_OK;
}

static int by_name(const void *a, const void *b)
{
    const ProtobufCBinaryData *left = a;
    const ProtobufCBinaryData *right = b;
    size_t common = left->len < right->len ? left->len : right->len;
    int order = memcmp(left->data, right->data, common);
    return order ? order : (left->len > right->len) - (left->len < right->len);
}

void handle_topic_list(struct namesrv *ns, struct rpc_request *request)
{
    const ProtobufCBinaryData *wanted = &request->header->topic_list->cluster_name;
    Tern__Wire__TopicListResponse body = TERN__WIRE__TOPIC_LIST_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {0};
    enum tern_code code = TERN_OK;
    const char *cluster = "";
    if (wanted->len > 0)
        cluster = request_name(request, wanted, broker_name_check, &code, &err);
    if (code != TERN_OK) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    lock_acquire(&ns->lock);
    code = copy_topics(request, &ns->table, cluster, &body);
    lock_release(&ns->lock);
    if (code != TERN_OK) {
        rpc_reply_error(request, code, "list of topics");
        return;
    }
    qsort(body.topics, body.n_topics, sizeof *body.topics, by_name);
    response.body_case = TERN__WIRE__RESPONSE__BODY_TOPIC_LIST;
    response.topic_list = &body;
    rpc_reply(request, &response, 0);
}
