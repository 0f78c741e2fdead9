/* The cluster's parts, started and ended as their processes would be. */
#include "tests/cluster/sim_cluster.h"

#include <string.h>

#include "client/sim_hooks.h"
#include "rpc/client.h"

#define MUST(call)                                                                                 \
    do {                                                                                           \
        enum tern_code code_ = (call);                                                             \
        if (code_ != TERN_OK) {                                                                    \
            fprintf(stderr, "%s: %s: %s\n", #call, tern_code_name(code_), err.text);               \
            ENSURE(code_ == TERN_OK);                                                              \
        }                                                                                          \
    } while (0)

void cluster_init(struct sim_cluster *cluster, uint64_t seed)
{
    memset(cluster, 0, sizeof *cluster);
    sim_env_init(&cluster->sim, seed);
    cluster->broker_disk = sim_env_machine(&cluster->sim, &cluster->broker_env);
    (void)sim_env_machine(&cluster->sim, &cluster->client_env);
    cluster->net = sim_net_create(&cluster->sim);
    cluster->client_link = sim_net_link(cluster->net, CLUSTER_CLIENT_HOST);
    cluster_start_namesrv(cluster);

    struct broker_config *config = &cluster->broker_config;
    broker_config_init(config);
    snprintf(config->broker_name, sizeof config->broker_name, "broker-a");
    snprintf(config->namesrv_addr, sizeof config->namesrv_addr, CLUSTER_NAMESRV_ADDR);
    snprintf(config->listen_addr, sizeof config->listen_addr, CLUSTER_BROKER_HOST);
    snprintf(config->store_root, sizeof config->store_root, "/store");
    config->segment_bytes = 1 << 20;
    config->queue_file_bytes = 20 * 500;
    config->index_slots = 1000;
    config->index_entries = 2000;
    config->max_message_bytes = 64 << 10;
    config->physical_memory_bytes = INT64_C(1) << 30;
}

void cluster_fini(struct sim_cluster *cluster)
{
    if (cluster->broker)
        cluster_stop_broker(cluster);
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

void cluster_start_broker(struct sim_cluster *cluster)
{
    struct tern_error err = {.text = ""};
    MUST(broker_config_check(&cluster->broker_config, &err));
    cluster->broker_link = sim_net_link(cluster->net, CLUSTER_BROKER_HOST);
    MUST(broker_create(&cluster->broker_env, cluster->broker_link, &cluster->broker_config,
                       &cluster->broker, &err));
    MUST(broker_start(cluster->broker, &err));
}

static void free_broker(struct sim_cluster *cluster)
{
    broker_destroy(cluster->broker);
    link_destroy(cluster->broker_link);
    cluster->broker = NULL;
}

void cluster_stop_broker(struct sim_cluster *cluster)
{
    struct tern_error err = {.text = ""};
    MUST(broker_stop(cluster->broker, &err));
    free_broker(cluster);
}

void cluster_kill_broker(struct sim_cluster *cluster)
{
    sim_net_crash(cluster->net, CLUSTER_BROKER_HOST);
    sim_fs_process_crash(cluster->broker_disk);
    free_broker(cluster);
}

void cluster_power_off_broker(struct sim_cluster *cluster, enum sim_torn torn)
{
    sim_net_crash(cluster->net, CLUSTER_BROKER_HOST);
    sim_fs_power_loss(cluster->broker_disk, torn);
    free_broker(cluster);
}

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
