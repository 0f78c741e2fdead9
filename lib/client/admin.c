/* Administration over a client instance; every call waits and has a deadline. */
#include "client/admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sched.h"

struct admin {
    struct instance *instance;
};

enum tern_code admin_open(const char *namesrv, struct admin **out, struct tern_error *err)
{
    struct admin *admin = calloc(1, sizeof *admin);
    if (!admin)
        return error_set(err, TERN_NO_MEMORY, "admin");
    struct instance_options options = {.namesrv = namesrv, .max_message_bytes = 64 << 20};
    enum tern_code code = instance_get(&options, &admin->instance, err);
    if (code == TERN_OK && (code = instance_start(admin->instance, err)) != TERN_OK)
        instance_unref(admin->instance);
    if (code != TERN_OK) {
        free(admin);
        return code;
    }
    *out = admin;
    return TERN_OK;
}

void admin_close(struct admin *admin)
{
    if (!admin)
        return;
    instance_unref(admin->instance);
    free(admin);
}

struct instance *admin_instance(struct admin *admin)
{
    return admin->instance;
}

/* Each nameserver with why it cannot be reached, as far as the text has room. */
static void explain_namesrvs(struct admin *admin, struct tern_error *err)
{
    const char *const *addresses;
    size_t count = instance_namesrvs(admin->instance, &addresses);
    for (size_t i = 0; err && i < count; i++) {
        struct tern_error before = *err, one;
        error_set(&one, TERN_UNREACHABLE, "%s: cannot be reached", addresses[i]);
        admin_explain_unreachable(addresses[i], &one);
        error_set(err, TERN_UNREACHABLE, "%s%s%s", i > 0 ? before.text : "nameserver",
                  i > 0 ? "; " : " ", one.text);
    }
}

enum tern_code admin_call_namesrv(struct admin *admin, TernRequest *request, struct rpc_call **out,
                                  struct tern_error *err)
{
    enum tern_code code =
        instance_namesrv_call(admin->instance, request, ADMIN_TIMEOUT_MS, out, err);
    if (code == TERN_UNREACHABLE)
        explain_namesrvs(admin, err);
    return code;
}

enum tern_code admin_call_broker(struct admin *admin, const char *address, TernRequest *request,
                                 const void *payload, size_t payload_size, struct rpc_call **out,
                                 struct tern_error *err)
{
    struct rpc_peer *peer;
    if (out)
        *out = NULL;
    enum tern_code code = instance_peer(admin->instance, address, &peer, err);
    if (code != TERN_OK)
        return code;
    code = rpc_call_wait(peer, request, payload, payload_size, ADMIN_TIMEOUT_MS, out, err);
    rpc_peer_unref(peer);
    if (code == TERN_UNREACHABLE)
        admin_explain_unreachable(address, err);
    return code;
}

enum tern_code admin_call_namesrvs(struct admin *admin, TernRequest *request,
                                   struct tern_error *err)
{
    const char *const *addresses;
    size_t count = instance_namesrvs(admin->instance, &addresses);
    enum tern_code first = TERN_OK;
    for (size_t i = 0; i < count; i++) {
        struct tern_error cause = {.text = ""};
        enum tern_code code =
            admin_call_broker(admin, addresses[i], request, NULL, 0, NULL, &cause);
        if (code != TERN_OK && first == TERN_OK) {
            first = code;
            if (err)
                *err = cause;
        }
    }
    return first;
}

/* ---- brokers ---- */

static int by_place(const void *a, const void *b)
{
    const struct admin_broker *x = a, *y = b;
    int order = strcmp(x->cluster, y->cluster);
    if (!order)
        order = strcmp(x->name, y->name);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

static void copy_bytes(char *out, size_t size, const ProtobufCBinaryData *bytes)
{
    snprintf(out, size, "%.*s", (int)bytes->len, (const char *)bytes->data);
}

/* Flattens brokers of one answer; malloc'ed. */
static enum tern_code flatten(Tern__Wire__BrokerData *const *brokers, size_t broker_count,
                              const char *cluster, bool masters_only, struct admin_broker **out,
                              size_t *count)
{
    size_t most = 0;
    for (size_t i = 0; i < broker_count; i++)
        most += brokers[i]->n_addresses;
    struct admin_broker *list = calloc(most ? most : 1, sizeof *list);
    if (!list)
        return TERN_NO_MEMORY;
    *count = 0;
    for (size_t i = 0; i < broker_count; i++)
        for (size_t j = 0; j < brokers[i]->n_addresses; j++) {
            struct admin_broker *broker = &list[*count];
            const Tern__Wire__BrokerAddress *address = brokers[i]->addresses[j];
            copy_bytes(broker->cluster, sizeof broker->cluster, &brokers[i]->cluster_name);
            copy_bytes(broker->name, sizeof broker->name, &brokers[i]->broker_name);
            copy_bytes(broker->address, sizeof broker->address, &address->address);
            broker->id = address->broker_id;
            if ((!masters_only || broker->id == 0) &&
                (!cluster || !strcmp(cluster, broker->cluster)))
                (*count)++;
        }
    qsort(list, *count, sizeof *list, by_place);
    *out = list;
    return TERN_OK;
}

enum tern_code admin_brokers(struct admin *admin, const char *cluster, bool masters_only,
                             struct admin_broker **out, size_t *count, struct tern_error *err)
{
    Tern__Wire__ClusterInfoRequest body = TERN__WIRE__CLUSTER_INFO_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;

    request.body_case = TERN__WIRE__REQUEST__BODY_CLUSTER_INFO;
    request.cluster_info = &body;
    enum tern_code code = admin_call_namesrv(admin, &request, &call, err);
    if (code != TERN_OK) {
        rpc_call_unref(call);
        return code;
    }
    if (call->response->body_case != TERN__WIRE__RESPONSE__BODY_CLUSTER_INFO)
        code = error_set(err, TERN_PROTOCOL, "the nameserver's answer is no cluster info");
    else
        code = flatten(call->response->cluster_info->brokers,
                       call->response->cluster_info->n_brokers, cluster, masters_only, out, count);
    rpc_call_unref(call);
    if (code == TERN_OK && *count == 0) {
        free(*out);
        code = error_set(err, TERN_NOT_FOUND, "no %s is registered%s%s at the nameserver",
                         masters_only ? "master" : "broker", cluster ? " in cluster " : "",
                         cluster ? cluster : "");
    }
    return code;
}

enum tern_code admin_topic_brokers(struct admin *admin, const char *topic, bool masters_only,
                                   struct admin_broker **out, size_t *count, struct tern_error *err)
{
    Tern__Wire__RouteRequest body = TERN__WIRE__ROUTE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;

    body.topic = frame_bytes(topic, strlen(topic));
    request.body_case = TERN__WIRE__REQUEST__BODY_ROUTE;
    request.route = &body;
    enum tern_code code = admin_call_namesrv(admin, &request, &call, err);
    if (code != TERN_OK) {
        rpc_call_unref(call);
        return code;
    }
    if (call->response->body_case != TERN__WIRE__RESPONSE__BODY_ROUTE)
        code = error_set(err, TERN_PROTOCOL, "the nameserver's answer is no route");
    else
        code = flatten(call->response->route->brokers, call->response->route->n_brokers, NULL,
                       masters_only, out, count);
    rpc_call_unref(call);
    return code;
}

/* ---- topics ---- */

enum tern_code admin_update_topic(struct admin *admin, const char *address, const char *topic,
                                  int32_t read_queues, int32_t write_queues, int32_t perm,
                                  bool order, struct tern_error *err)
{
    Tern__Wire__TopicConfig config = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__UpdateTopicRequest body = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;

    config.name = frame_bytes(topic, strlen(topic));
    config.read_queues = read_queues;
    config.write_queues = write_queues;
    config.perm = perm;
    config.order = order;
    body.topic = &config;
    request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_TOPIC;
    request.update_topic = &body;
    return admin_call_broker(admin, address, &request, NULL, 0, NULL, err);
}

enum tern_code admin_delete_topic(struct admin *admin, const char *address, const char *topic,
                                  struct tern_error *err)
{
    Tern__Wire__DeleteTopicRequest body = TERN__WIRE__DELETE_TOPIC_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.topic = frame_bytes(topic, strlen(topic));
    request.body_case = TERN__WIRE__REQUEST__BODY_DELETE_TOPIC;
    request.delete_topic = &body;
    return admin_call_broker(admin, address, &request, NULL, 0, NULL, err);
}

enum tern_code admin_delete_topic_route(struct admin *admin, const char *topic, const char *cluster,
                                        struct tern_error *err)
{
    Tern__Wire__DeleteTopicRouteRequest body = TERN__WIRE__DELETE_TOPIC_ROUTE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.topic = frame_bytes(topic, strlen(topic));
    body.cluster_name = frame_bytes(cluster, strlen(cluster));
    request.body_case = TERN__WIRE__REQUEST__BODY_DELETE_TOPIC_ROUTE;
    request.delete_topic_route = &body;
    return admin_call_namesrvs(admin, &request, err);
}

enum tern_code admin_wait_route(struct admin *admin, const char *topic, size_t brokers,
                                int64_t timeout_ms, struct tern_error *err)
{
    const struct env *env = instance_env(admin->instance);
    int64_t deadline_ns = clock_mono_ns(env->clock) + ms_to_ns(timeout_ms);
    for (;;) {
        struct admin_broker *list;
        size_t count = 0;
        enum tern_code code = admin_topic_brokers(admin, topic, true, &list, &count, err);
        if (code == TERN_OK)
            free(list);
        if (code == TERN_OK && count >= brokers)
            return TERN_OK;
        if (code != TERN_OK && code != TERN_TOPIC_NOT_EXIST)
            return code;
        int64_t now_ns = clock_mono_ns(env->clock);
        if (now_ns >= deadline_ns)
            return error_set(err, TERN_TIMEOUT,
                             "the route of topic %s shows %zu of %zu brokers after %" PRId64
                             " ms; the brokers register again within 30 s",
                             topic, count, brokers, timeout_ms);
        struct latch never; /* nothing tells us: the nameserver has no event for it */
        latch_init(&never);
        if (latch_wait(env->sched, &never, now_ns + ms_to_ns(20)))
            return TERN_OK;
    }
}

static enum tern_code create_everywhere(struct admin *admin, const char *topic, int32_t queues,
                                        struct tern_error *err)
{
    struct admin_broker *masters;
    size_t count;
    enum tern_code code = admin_brokers(admin, NULL, true, &masters, &count, err);
    if (code != TERN_OK)
        return code;
    for (size_t i = 0; code == TERN_OK && i < count; i++)
        code = admin_update_topic(admin, masters[i].address, topic, queues, queues, 6, false, err);
    free(masters);
    return code == TERN_OK ? admin_wait_route(admin, topic, count, ADMIN_TIMEOUT_MS, err) : code;
}

enum tern_code admin_ensure_topic(const char *namesrv, const char *topic, int32_t queues,
                                  struct tern_error *err)
{
    struct admin *admin;
    struct admin_broker *brokers;
    size_t count;
    enum tern_code code = admin_open(namesrv, &admin, err);
    if (code != TERN_OK)
        return code;
    code = admin_topic_brokers(admin, topic, true, &brokers, &count, err);
    if (code == TERN_OK)
        free(brokers);
    if (code == TERN_TOPIC_NOT_EXIST || (code == TERN_OK && count == 0))
        code = create_everywhere(admin, topic, queues, err);
    admin_close(admin);
    return code;
}
