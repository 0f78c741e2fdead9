/*
 * A nameserver, brokers and clients in one process, on one thread, virtual time, a simulated
 * network and a disk each. Everything from one seed.
 *
 * The first node is the master broker-a, an ASYNC_MASTER until its configuration says otherwise;
 * cluster_add_node() makes further ones, at 10.0.0.3 and so on.
 */
#ifndef TESTS_CLUSTER_SIM_CLUSTER_H
#define TESTS_CLUSTER_SIM_CLUSTER_H

#include <tern/tern.h>

#include "broker/broker.h"
#include "broker/broker_config.h"
#include "namesrv/namesrv.h"
#include "tests/sim/link/sim_link.h"
#include "tests/sim/sim_env.h"

#define CLUSTER_NAMESRV_HOST "10.0.0.1"
#define CLUSTER_BROKER_HOST "10.0.0.2"
#define CLUSTER_CLIENT_HOST "10.0.0.9"
#define CLUSTER_NAMESRV_ADDR CLUSTER_NAMESRV_HOST ":9876"
#define CLUSTER_BROKER_ADDR CLUSTER_BROKER_HOST ":10911"

enum { SIM_NODES_MAX = 6 };

/* A broker's machine: its disk stays while brokers come and go. */
struct sim_node {
    struct sim_cluster *cluster;
    char host[16], address[24];
    struct env env;
    struct sim_fs *disk;
    struct link *link;
    struct broker *broker;       /* NULL: it does not run */
    struct broker_config config; /* may be changed while it does not run */
};

struct sim_cluster {
    struct sim_env sim;
    struct sim_net *net;
    struct env client_env;
    struct link *namesrv_link, *client_link;
    struct namesrv *namesrv;
    struct sim_node nodes[SIM_NODES_MAX]; /* the first is the master broker-a */
    size_t node_count;
};

/* Starts the nameserver; the broker's configuration is ready to be changed. */
void cluster_init(struct sim_cluster *cluster, uint64_t seed);
void cluster_fini(struct sim_cluster *cluster);

void cluster_start_namesrv(struct sim_cluster *cluster);
void cluster_kill_namesrv(struct sim_cluster *cluster);

/* A node of this brokerName; role SLAVE for any id but 0. Not started. */
struct sim_node *cluster_add_node(struct sim_cluster *cluster, const char *name, int64_t id);
void node_start(struct sim_node *node);
/* As node_start(), but a broker that cannot start is no mistake of the test. */
MUST_CHECK enum tern_code node_try_start(struct sim_node *node, struct tern_error *err);
void node_stop(struct sim_node *node);
/* SIGKILL: the process is gone, the disk keeps what was written. */
void node_kill(struct sim_node *node);
/* Power loss: the disk also forgets what was not synced, as `torn` says. */
void node_power_off(struct sim_node *node, enum sim_torn torn);
/* The machine is replaced by one with an empty disk; it does not run. */
void node_new_disk(struct sim_node *node);

/* Creates a topic by a request to the broker, as mqadmin does. */
void cluster_create_topic(struct sim_cluster *cluster, const char *topic, int32_t queues);

/* Started clients of the client's machine. */
struct tern_producer *cluster_producer(struct sim_cluster *cluster, int64_t timeout_ms,
                                       int retries);
struct tern_push_consumer *cluster_push_consumer(struct sim_cluster *cluster, const char *group,
                                                 const char *topic, const char *expression,
                                                 tern_message_listener listener, void *arg);

#endif
