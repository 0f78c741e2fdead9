/* Requests to the brokers of a set, each by a connection of its own, as a tool makes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/client.h"
#include "tests/cluster/set_world.h"

enum { PATIENCE_MS = 3000, SUSPEND_MS = 15000 };

static ProtobufCBinaryData text_bytes(const char *text)
{
    return frame_bytes(text, strlen(text));
}

static struct rpc_client *connect_to(struct world *world, const char *address,
                                     const char *client_id, struct rpc_peer **peer)
{
    struct rpc_client_options options = {.max_message_bytes = 8 << 20,
                                         .connect_wait_ms = 1000,
                                         .reconnect_min_ms = 100,
                                         .reconnect_max_ms = 1000,
                                         .client_id = client_id};
    struct tern_error err = {.text = ""};
    struct rpc_client *client;
    assert_int_equal(rpc_client_create(&world->cluster.client_env, world->cluster.client_link,
                                       &options, &client),
                     TERN_OK);
    assert_int_equal(rpc_peer_get(client, address, peer, &err), TERN_OK);
    return client;
}

static enum tern_code ask_at(struct world *world, const char *address, const char *client_id,
                             TernRequest *request, const void *payload, size_t payload_size,
                             int64_t timeout_ms, struct rpc_call **out)
{
    struct tern_error err = {.text = ""};
    struct rpc_peer *peer;
    struct rpc_call *call = NULL;
    struct rpc_client *client = connect_to(world, address, client_id, &peer);
    enum tern_code code =
        rpc_call_wait(peer, request, payload, payload_size, timeout_ms, &call, &err);
    rpc_peer_unref(peer);
    if (out)
        *out = NULL;
    if (out && call) {
        call->user = client;
        *out = call;
        return code;
    }
    if (call)
        rpc_call_unref(call);
    rpc_client_destroy(client);
    return code;
}

void world_answer_free(struct rpc_call *call)
{
    if (!call)
        return;
    struct rpc_client *client = call->user;
    rpc_call_unref(call);
    rpc_client_destroy(client);
}

enum tern_code world_ask(struct world *world, struct sim_node *node, const char *client_id,
                         TernRequest *request, const void *payload, size_t payload_size,
                         int64_t timeout_ms, struct rpc_call **out)
{
    return ask_at(world, node->address, client_id, request, payload, payload_size, timeout_ms, out);
}

/* ---- requests under way ---- */

static void on_ended(struct rpc_call *call, void *arg)
{
    struct world_call *ours = arg;
    assert_ptr_equal(ours->call, call);
    ours->done = true;
}

void world_ask_start(struct world *world, struct sim_node *node, TernRequest *request,
                     const void *payload, size_t payload_size, int64_t timeout_ms,
                     struct world_call *out)
{
    struct rpc_peer *peer;
    *out = (struct world_call){.client = connect_to(world, node->address, "asker", &peer)};
    assert_int_equal(rpc_call_create(peer, payload_size, &out->call), TERN_OK);
    if (payload_size)
        memcpy(rpc_call_payload(out->call), payload, payload_size);
    rpc_call_start(out->call, request, payload_size, timeout_ms, on_ended, out);
    rpc_peer_unref(peer);
}

enum tern_code world_call_end(struct world_call *call)
{
    assert_true(call->done);
    enum tern_code code = rpc_call_result(call->call);
    rpc_call_unref(call->call);
    rpc_client_destroy(call->client);
    return code;
}

/* ---- pulling ---- */

struct pull_header {
    Tern__Wire__OffsetVersion known;
    Tern__Wire__PullRequest body;
    TernRequest request;
    char any[2];
};

static TernRequest *fill_pull(struct pull_header *header, int32_t queue_id, int64_t offset,
                              struct offset_version version)
{
    tern__wire__offset_version__init(&header->known);
    tern__wire__pull_request__init(&header->body);
    tern__wire__request__init(&header->request);
    memcpy(header->any, "*", sizeof header->any);
    header->known.epoch = version.epoch;
    header->known.counter = version.counter;
    header->body.group = text_bytes(WORLD_GROUP);
    header->body.topic = text_bytes(WORLD_TOPIC);
    header->body.queue_id = queue_id;
    header->body.offset = offset;
    header->body.max_count = 32;
    header->body.has_subscription = true;
    header->body.expression = header->any;
    header->body.offset_version = &header->known;
    header->request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    header->request.pull = &header->body;
    return &header->request;
}

static struct world_pull read_pull(enum tern_code code, const struct rpc_call *call)
{
    struct world_pull result = {.code = code, .next = -1, .suggested = -1};
    if (!call || !call->response || call->response->body_case != TERN__WIRE__RESPONSE__BODY_PULL)
        return result;
    const Tern__Wire__PullResponse *answer = call->response->pull;
    result.next = answer->next_offset;
    result.min = answer->min_offset;
    result.max = answer->max_offset;
    result.count = answer->count;
    result.suggested = answer->suggest_broker_id;
    result.committed = answer->committed_offset;
    result.has_version = answer->offset_version != NULL;
    if (result.has_version)
        result.version =
            (struct offset_version){answer->offset_version->epoch, answer->offset_version->counter};
    return result;
}

static struct world_pull pull(struct world *world, struct sim_node *node, TernRequest *request)
{
    struct rpc_call *call;
    enum tern_code code = world_ask(world, node, "puller", request, NULL, 0, PATIENCE_MS, &call);
    struct world_pull result = read_pull(code, call);
    world_answer_free(call);
    return result;
}

struct world_pull world_pull(struct world *world, struct sim_node *node, int32_t queue_id,
                             int64_t offset, struct offset_version version)
{
    struct pull_header header;
    return pull(world, node, fill_pull(&header, queue_id, offset, version));
}

struct world_pull world_pull_commit(struct world *world, struct sim_node *node, int32_t queue_id,
                                    int64_t offset, struct offset_version version)
{
    struct pull_header header;
    TernRequest *request = fill_pull(&header, queue_id, offset, version);
    header.body.has_commit = true;
    header.body.commit_offset = offset;
    return pull(world, node, request);
}

void world_pull_start(struct world *world, struct sim_node *node, int32_t queue_id, int64_t offset,
                      struct offset_version version, struct world_call *out)
{
    struct pull_header header;
    TernRequest *request = fill_pull(&header, queue_id, offset, version);
    header.body.suspend_timeout_ms = SUSPEND_MS;
    world_ask_start(world, node, request, NULL, 0, 2 * SUSPEND_MS, out);
}

struct world_pull world_pull_end(struct world_call *call)
{
    assert_true(call->done);
    struct world_pull result = read_pull(rpc_call_result(call->call), call->call);
    (void)world_call_end(call);
    return result;
}

/* ---- progress ---- */

enum tern_code world_query(struct world *world, struct sim_node *node, const char *group,
                           int32_t queue_id, int64_t *offset, struct offset_version *version)
{
    Tern__Wire__QueryOffsetRequest body = TERN__WIRE__QUERY_OFFSET_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;

    body.group = text_bytes(group);
    body.topic = text_bytes(WORLD_TOPIC);
    body.queue_id = queue_id;
    request.body_case = TERN__WIRE__REQUEST__BODY_QUERY_OFFSET;
    request.query_offset = &body;
    *offset = -1;
    *version = (struct offset_version){0, 0};
    enum tern_code code = world_ask(world, node, "reader", &request, NULL, 0, PATIENCE_MS, &call);
    if (call && call->response &&
        call->response->body_case == TERN__WIRE__RESPONSE__BODY_QUERY_OFFSET) {
        const Tern__Wire__QueryOffsetResponse *answer = call->response->query_offset;
        *offset = code == TERN_OK ? answer->offset : -1;
        *version = (struct offset_version){answer->version->epoch, answer->version->counter};
    }
    world_answer_free(call);
    return code;
}

enum tern_code world_commit(struct world *world, struct sim_node *node, const char *group,
                            int32_t queue_id, int64_t offset, struct offset_version version)
{
    Tern__Wire__OffsetVersion wire = TERN__WIRE__OFFSET_VERSION__INIT;
    Tern__Wire__CommitOffset commit = TERN__WIRE__COMMIT_OFFSET__INIT;
    Tern__Wire__CommitOffsetRequest body = TERN__WIRE__COMMIT_OFFSET_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__CommitOffset *commits[1] = {&commit};

    wire.epoch = version.epoch;
    wire.counter = version.counter;
    commit.topic = text_bytes(WORLD_TOPIC);
    commit.queue_id = queue_id;
    commit.offset = offset;
    commit.version = &wire;
    body.group = text_bytes(group);
    body.commits = commits;
    body.n_commits = 1;
    request.body_case = TERN__WIRE__REQUEST__BODY_COMMIT_OFFSET;
    request.commit_offset = &body;
    return world_ask(world, node, "reader", &request, NULL, 0, PATIENCE_MS, NULL);
}

enum tern_code world_reset(struct world *world, struct sim_node *node, const char *group,
                           int32_t queue_id, int64_t offset)
{
    Tern__Wire__ResetOffsetRequest body = TERN__WIRE__RESET_OFFSET_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.group = text_bytes(group);
    body.topic = text_bytes(WORLD_TOPIC);
    body.queue_id = queue_id;
    body.target_case = TERN__WIRE__RESET_OFFSET_REQUEST__TARGET_OFFSET;
    body.offset = offset;
    request.body_case = TERN__WIRE__REQUEST__BODY_RESET_OFFSET;
    request.reset_offset = &body;
    return world_ask(world, node, "operator", &request, NULL, 0, PATIENCE_MS, NULL);
}

bool world_lock(struct world *world, struct sim_node *node, const char *client_id, int32_t queue_id)
{
    Tern__Wire__MessageQueue queue = TERN__WIRE__MESSAGE_QUEUE__INIT;
    Tern__Wire__LockQueuesRequest body = TERN__WIRE__LOCK_QUEUES_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__MessageQueue *queues[1] = {&queue};
    struct rpc_call *call;

    queue.topic = text_bytes(WORLD_TOPIC);
    queue.broker_name = text_bytes("broker-a");
    queue.queue_id = queue_id;
    body.group = text_bytes(WORLD_GROUP);
    body.queues = queues;
    body.n_queues = 1;
    request.body_case = TERN__WIRE__REQUEST__BODY_LOCK_QUEUES;
    request.lock_queues = &body;
    bool locked =
        world_ask(world, node, client_id, &request, NULL, 0, PATIENCE_MS, &call) == TERN_OK &&
        call->response->lock_queues->n_locked == 1;
    world_answer_free(call);
    return locked;
}

/* ---- topics ---- */

enum tern_code world_create_topic(struct world *world, const char *topic)
{
    Tern__Wire__TopicConfig config = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__UpdateTopicRequest body = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    config.name = text_bytes(topic);
    config.read_queues = config.write_queues = WORLD_QUEUES;
    config.perm = 6;
    body.topic = &config;
    request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_TOPIC;
    request.update_topic = &body;
    return world_ask(world, world->master, "operator", &request, NULL, 0, PATIENCE_MS, NULL);
}

enum tern_code world_delete_topic(struct world *world, const char *topic)
{
    Tern__Wire__DeleteTopicRequest body = TERN__WIRE__DELETE_TOPIC_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    body.topic = text_bytes(topic);
    request.body_case = TERN__WIRE__REQUEST__BODY_DELETE_TOPIC;
    request.delete_topic = &body;
    return world_ask(world, world->master, "operator", &request, NULL, 0, PATIENCE_MS, NULL);
}

bool world_has_topic(const struct sim_node *node, const char *topic)
{
    struct topic_config config;
    return topics_find(node->broker->topics, topic, strlen(topic), &config);
}

/* ---- the set ---- */

static void copy_status(const Tern__Wire__HaStatusResponse *answer, struct world_status *out)
{
    out->state = answer->self->state;
    out->writable = answer->writable;
    out->confirmed = answer->confirmed;
    out->cut_bytes = answer->cut_bytes;
    out->slaves = answer->n_slaves;
    out->awaited = answer->n_awaited;
    for (size_t i = 0; i < answer->n_slaves; i++)
        out->in_sync += answer->slaves[i]->in_sync ? 1 : 0;
    snprintf(out->text, sizeof out->text, "%s", answer->state_text);
}

struct world_status world_status(struct world *world, struct sim_node *node)
{
    Tern__Wire__HaStatusRequest body = TERN__WIRE__HA_STATUS_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct world_status status = {.text = ""};
    struct rpc_call *call;
    request.body_case = TERN__WIRE__REQUEST__BODY_HA_STATUS;
    request.ha_status = &body;
    status.code = world_ask(world, node, "operator", &request, NULL, 0, PATIENCE_MS, &call);
    if (status.code == TERN_OK)
        copy_status(call->response->ha_status, &status);
    world_answer_free(call);
    return status;
}

enum tern_code world_force_open(struct world *world, const struct sim_node *discard)
{
    Tern__Wire__ForceOpenRequest body = TERN__WIRE__FORCE_OPEN_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    if (discard)
        body.discard_slave = (ProtobufCBinaryData){WORLD_UUID_BYTES, discard->broker->store_uuid};
    request.body_case = TERN__WIRE__REQUEST__BODY_FORCE_OPEN;
    request.force_open = &body;
    return world_ask(world, world->master, "operator", &request, NULL, 0, PATIENCE_MS, NULL);
}

enum tern_code world_rejoin(struct world *world, struct sim_node *node)
{
    Tern__Wire__RejoinRequest body = TERN__WIRE__REJOIN_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_REJOIN;
    request.rejoin = &body;
    return world_ask(world, node, "operator", &request, NULL, 0, PATIENCE_MS, NULL);
}

static bool names_address(const Tern__Wire__RouteResponse *route, const char *address)
{
    for (size_t i = 0; i < route->n_brokers; i++)
        for (size_t j = 0; j < route->brokers[i]->n_addresses; j++) {
            const ProtobufCBinaryData *at = &route->brokers[i]->addresses[j]->address;
            if (at->len == strlen(address) && memcmp(at->data, address, at->len) == 0)
                return true;
        }
    return false;
}

bool world_is_listed(struct world *world, const struct sim_node *node)
{
    Tern__Wire__RouteRequest body = TERN__WIRE__ROUTE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    body.topic = text_bytes(WORLD_TOPIC);
    request.body_case = TERN__WIRE__REQUEST__BODY_ROUTE;
    request.route = &body;
    bool listed =
        ask_at(world, CLUSTER_NAMESRV_ADDR, "", &request, NULL, 0, PATIENCE_MS, &call) == TERN_OK &&
        names_address(call->response->route, node->address);
    world_answer_free(call);
    return listed;
}

size_t world_registered(struct world *world)
{
    Tern__Wire__ClusterInfoRequest body = TERN__WIRE__CLUSTER_INFO_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    size_t count = 0;
    request.body_case = TERN__WIRE__REQUEST__BODY_CLUSTER_INFO;
    request.cluster_info = &body;
    assert_int_equal(ask_at(world, CLUSTER_NAMESRV_ADDR, "", &request, NULL, 0, PATIENCE_MS, &call),
                     TERN_OK);
    const Tern__Wire__ClusterInfoResponse *info = call->response->cluster_info;
    for (size_t i = 0; i < info->n_brokers; i++)
        count += info->brokers[i]->n_addresses;
    world_answer_free(call);
    return count;
}
