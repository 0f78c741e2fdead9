/*
 * A nameserver, a broker and clients in one process, on one thread, virtual time, a simulated
 * network and a disk each. Everything from one seed.
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

struct sim_cluster {
    struct sim_env sim;
    struct sim_net *net;
    struct env broker_env; /* a machine, and so a disk, of its own */
    struct sim_fs *broker_disk;
    struct env client_env;
    struct link *namesrv_link, *broker_link, *client_link;
    struct namesrv *namesrv;
    struct broker *broker;
    struct broker_config broker_config; /* may be changed before cluster_start_broker */
};

/* Starts the nameserver; the broker's configuration is ready to be changed. */
void cluster_init(struct sim_cluster *cluster, uint64_t seed);
void cluster_fini(struct sim_cluster *cluster);

void cluster_start_namesrv(struct sim_cluster *cluster);
void cluster_kill_namesrv(struct sim_cluster *cluster);
void cluster_start_broker(struct sim_cluster *cluster);
void cluster_stop_broker(struct sim_cluster *cluster);
/* SIGKILL: the process is gone, the disk keeps what was written. */
void cluster_kill_broker(struct sim_cluster *cluster);
/* Power loss: the disk also forgets what was not synced, as `torn` says. */
void cluster_power_off_broker(struct sim_cluster *cluster, enum sim_torn torn);

/* Creates a topic by a request to the broker, as mqadmin does. */
void cluster_create_topic(struct sim_cluster *cluster, const char *topic, int32_t queues);

/* Started clients of the client's machine. */
struct tern_producer *cluster_producer(struct sim_cluster *cluster, int64_t timeout_ms,
                                       int retries);
struct tern_push_consumer *cluster_push_consumer(struct sim_cluster *cluster, const char *group,
                                                 const char *topic, const char *expression,
                                                 tern_message_listener listener, void *arg);

#endif
