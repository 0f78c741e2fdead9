/* The cluster's parts, started and ended as their processes would be. */
#include "tests/cluster/sim_cluster.h"

#include <string.h>

#include "client/sim_hooks.h"
#include "rpc/client.h"

#define MUST_OK(call, err)                                                                         \
    do {                                                                                           \
        enum tern_code code_ = (call);                                                             \
        if (code_ != TERN_OK) {                                                                    \
            fprintf(stderr, "%s: %s: %s\n", #call, tern_code_name(code_), (err)->text);            \
            ENSURE(code_ == TERN_OK);                                                              \
        }                                                                                          \
    } while (0)
#define MUST(call) MUST_OK(call, &err)

void cluster_init(struct sim_cluster *cluster, uint64_t seed)
{
    memset(cluster, 0, sizeof *cluster);
    sim_env_init(&cluster->sim, seed);
    (void)sim_env_machine(&cluster->sim, &cluster->client_env);
    cluster->net = sim_net_create(&cluster->sim);
    cluster->client_link = sim_net_link(cluster->net, CLUSTER_CLIENT_HOST);
    cluster_start_namesrv(cluster);
    (void)cluster_add_node(cluster, "broker-a", 0);
}

void cluster_fini(struct sim_cluster *cluster)
{
    for (size_t i = 0; i < cluster->node_count; i++)
        if (cluster->nodes[i].broker)
            node_stop(&cluster->nodes[i]);
    if (cluster->namesrv)
        cluster_kill_namesrv(cluster);
    link_destroy(cluster->client_link);
    sim_net_destroy(cluster->net);
    sim_env_fini(&cluster->sim);
}

void cluster_start_namesrv(struct sim_cluster *cluster)
{
    struct namesrv_config config;
    struct tern_error err = {.text = ""};
    memset(&config, 0, sizeof config);
    config_defaults(&namesrv_config_table, &config);
    snprintf(config.listen_addr, sizeof config.listen_addr, CLUSTER_NAMESRV_HOST);
    snprintf(config.kv_config_path, sizeof config.kv_config_path, "/namesrv/kvConfig.json");
    cluster->namesrv_link = sim_net_link(cluster->net, CLUSTER_NAMESRV_HOST);
    MUST(
        namesrv_create(&cluster->sim.env, cluster->namesrv_link, &config, &cluster->namesrv, &err));
    MUST(namesrv_start(cluster->namesrv, &err));
}

void cluster_kill_namesrv(struct sim_cluster *cluster)
{
    sim_net_crash(cluster->net, CLUSTER_NAMESRV_HOST);
    namesrv_stop(cluster->namesrv);
    namesrv_destroy(cluster->namesrv);
    link_destroy(cluster->namesrv_link);
    cluster->namesrv = NULL;
}

/* ---- nodes ---- */

struct sim_node *cluster_add_node(struct sim_cluster *cluster, const char *name, int64_t id)
{
    ENSURE(cluster->node_count < SIM_NODES_MAX);
    struct sim_node *node = &cluster->nodes[cluster->node_count++];
    struct broker_config *config = &node->config;
    node->cluster = cluster;
    unsigned last = (unsigned)cluster->node_count + 1;
    snprintf(node->host, sizeof node->host, "10.0.0.%u", last);
    snprintf(node->address, sizeof node->address, "10.0.0.%u:10911", last);
    node->disk = sim_env_machine(&cluster->sim, &node->env);
    broker_config_init(config);
    config->broker_id = id;
    config->role = id ? ROLE_SLAVE : ROLE_ASYNC_MASTER;
    snprintf(config->broker_name, sizeof config->broker_name, "%s", name);
    snprintf(config->namesrv_addr, sizeof config->namesrv_addr, CLUSTER_NAMESRV_ADDR);
    snprintf(config->listen_addr, sizeof config->listen_addr, "10.0.0.%u", last);
    snprintf(config->store_root, sizeof config->store_root, "/store");
    config->segment_bytes = 1 << 20;
    config->queue_file_bytes = 20 * 500;
    config->index_slots = 1000;
    config->index_entries = 2000;
    config->max_message_bytes = 64 << 10;
    config->physical_memory_bytes = INT64_C(1) << 30;
    return node;
}

static void free_broker(struct sim_node *node)
{
    broker_destroy(node->broker);
    link_destroy(node->link);
    node->broker = NULL;
}

enum tern_code node_try_start(struct sim_node *node, struct tern_error *err)
{
    struct broker_config config = node->config; /* the check resolves what says "auto" */
    err->text[0] = 0;
    MUST_OK(broker_config_check(&config, err), err);
    node->link = sim_net_link(node->cluster->net, node->host);
    MUST_OK(broker_create(&node->env, node->link, &config, &node->broker, err), err);
    enum tern_code code = broker_start(node->broker, err);
    if (code != TERN_OK)
        free_broker(node);
    return code;
}

void node_start(struct sim_node *node)
{
    struct tern_error err;
    MUST(node_try_start(node, &err));
}

void node_stop(struct sim_node *node)
{
    struct tern_error err = {.text = ""};
    MUST(broker_stop(node->broker, &err));
    free_broker(node);
}

void node_kill(struct sim_node *node)
{
    sim_net_crash(node->cluster->net, node->host);
    sim_fs_process_crash(node->disk);
    free_broker(node);
}

void node_power_off(struct sim_node *node, enum sim_torn torn)
{
    sim_net_crash(node->cluster->net, node->host);
    sim_fs_power_loss(node->disk, torn);
    free_broker(node);
}

void node_new_disk(struct sim_node *node)
{
    ENSURE(!node->broker);
    node->disk = sim_env_machine(&node->cluster->sim, &node->env);
}

/* ---- topics ---- */

void cluster_create_topic(struct sim_cluster *cluster, const char *topic, int32_t queues)
{
    struct rpc_client_options options = {.max_message_bytes = 1 << 20,
                                         .connect_wait_ms = 1000,
                                         .reconnect_min_ms = 100,
                                         .reconnect_max_ms = 1000,
                                         .client_id = ""};
    Tern__Wire__TopicConfig config = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__UpdateTopicRequest body = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_error err = {.text = ""};
    struct rpc_client *client;
    struct rpc_peer *peer;

    config.name = frame_bytes(topic, strlen(topic));
    config.read_queues = config.write_queues = queues;
    config.perm = 6;
    body.topic = &config;
    request.body_case = TERN__WIRE__REQUEST__BODY_UPDATE_TOPIC;
    request.update_topic = &body;
    MUST(rpc_client_create(&cluster->client_env, cluster->client_link, &options, &client));
    MUST(rpc_peer_get(client, CLUSTER_BROKER_ADDR, &peer, &err));
    MUST(rpc_call_wait(peer, &request, NULL, 0, 5000, NULL, &err));
    rpc_peer_unref(peer);
    rpc_client_destroy(client);
}

struct tern_producer *cluster_producer(struct sim_cluster *cluster, int64_t timeout_ms, int retries)
{
    struct tern_error err = {.text = ""};
    struct tern_producer *producer;
    struct tern_producer_options *o = tern_producer_options_create();
    ENSURE(o != NULL);
    tern_producer_options_world(o, &cluster->client_env, cluster->client_link);
    MUST(tern_producer_options_namesrv(o, CLUSTER_NAMESRV_ADDR));
    MUST(tern_producer_options_group(o, "producers"));
    MUST(tern_producer_options_instance(o, "producer"));
    MUST(tern_producer_options_send_timeout_ms(o, timeout_ms));
    MUST(tern_producer_options_retries(o, retries));
    MUST(tern_producer_create(o, &producer, &err));
    tern_producer_options_destroy(o);
    MUST(tern_producer_start(producer, &err));
    return producer;
}

struct tern_push_consumer *cluster_push_consumer(struct sim_cluster *cluster, const char *group,
                                                 const char *topic, const char *expression,
                                                 tern_message_listener listener, void *arg)
{
    static unsigned members;
    char instance[32];
    struct tern_error err = {.text = ""};
    struct tern_push_consumer *consumer;
    struct tern_consumer_options *o = tern_consumer_options_create();
    ENSURE(o != NULL);
    snprintf(instance, sizeof instance, "member%u", members++);
    tern_consumer_options_world(o, &cluster->client_env, cluster->client_link);
    MUST(tern_consumer_options_namesrv(o, CLUSTER_NAMESRV_ADDR));
    MUST(tern_consumer_options_group(o, group));
    MUST(tern_consumer_options_instance(o, instance));
    MUST(tern_consumer_options_from(o, TERN_FROM_FIRST, 0));
    MUST(tern_consumer_options_threads(o, 1));
    MUST(tern_push_consumer_create(o, &consumer, &err));
    tern_consumer_options_destroy(o);
    MUST(tern_push_consumer_subscribe(consumer, topic, expression, &err));
    MUST(tern_push_consumer_listener(consumer, listener, arg));
    MUST(tern_push_consumer_start(consumer, &err));
    return consumer;
}
