/*
 * A broker set on virtual time, for the tests of replication: a master, slaves, a topic, what was
 * sent and what was received, and requests as tools and clients make them.
 *
 *   world_prepare(&world, seed);                  the nodes exist: change their configurations
 *   world.master->config.role = ROLE_SYNC_MASTER;
 *   world_start(&world);                          all run, are in sync, the topic exists
 *   world_put_some(&world, 0, 100);               to a queue, acknowledged
 *   node_power_off(world.master, SIM_TORN_NONE);
 *   … world_await(&world, world_in_sync, 35000) …
 *   world_end(&world);
 *
 * Numbers: each message holds one, in order of sending. What is acknowledged is remembered with its
 * place, so that any node can be asked later whether it still has it.
 */
#ifndef TESTS_CLUSTER_SET_WORLD_H
#define TESTS_CLUSTER_SET_WORLD_H

#include "broker/broker_internal.h"
#include "broker/ha/ha_parts.h"
#include "tests/cluster/sim_cluster.h"

enum { NUMBERS_MAX = 4096, WORLD_QUEUES = 4, WORLD_UUID_BYTES = 16, WORLD_MARK_BYTES = 16 };
#define WORLD_TOPIC "Numbers"
#define WORLD_GROUP "readers"

struct inbox {
    uint32_t times[NUMBERS_MAX];
    uint32_t count, distinct;
};

/* Where an acknowledged number lies; phys_off −1: not known, or not acknowledged. */
struct place {
    int32_t queue_id;
    int64_t queue_off, phys_off;
};

struct world {
    struct sim_cluster cluster;
    struct sim_node *master, *slave, *second; /* second: NULL unless asked for */
    struct tern_producer *producer;           /* NULL until the first send by it */
    struct tern_push_consumer *consumer;      /* NULL until world_consume() */
    struct inbox inbox;
    bool acked[NUMBERS_MAX];
    struct place places[NUMBERS_MAX];
    uint32_t sent, acked_count;
};

/* A request under way: looked at between steps of time, ended once it is done. */
struct world_call {
    struct rpc_client *client;
    struct rpc_call *call;
    bool done;
};

/* ---- life ---- */

/* The cluster with a master and a slave, neither runs. */
void world_prepare(struct world *world, uint64_t seed);
/* One more slave, id 2; before world_start(). */
void world_add_second(struct world *world);
/* Starts every node, waits until all are in sync, creates the topic on the set. */
void world_start(struct world *world);
/* A push consumer of the group; what it gets is in the inbox. */
void world_consume(struct world *world);
void world_end(struct world *world);

/* Both of these, with a consumer, and this role for the master. */
void world_begin(struct world *world, uint64_t seed, int32_t role);

/* The next start is at another host, 10.0.0.`last`. */
void world_move(struct sim_node *node, unsigned last);

/* ---- time and conditions ---- */

bool world_await(struct world *world, bool (*done)(void *arg), int64_t patience_ms);
void world_run_ms(struct world *world, int64_t duration_ms);

/* arg of all: the world */
bool world_all_received(void *arg);
bool world_is_open(void *arg); /* the master takes writes */
bool world_in_step(void *arg); /* running slaves have and show everything the master has */
bool world_in_sync(void *arg); /* and are in its in-sync set, alone */

struct store_positions world_at(const struct sim_node *node);
int64_t world_queue_end(const struct sim_node *node, int32_t queue_id);
uint32_t world_insync(const struct world *world); /* size of the master's set */
uint64_t world_last_epoch(const struct sim_node *node);
/* Files and folders in a folder of its disk; 0 without it. */
unsigned world_files(const struct sim_node *node, const char *dir);
int world_state(const struct sim_node *node); /* Tern__Wire__HaState */

/* ---- sending ---- */

/* By a producer of the library, to any queue. */
enum tern_code world_send(struct world *world);
void world_send_some(struct world *world, uint32_t count);
/* By a request to the node, which waits up to timeout_ms for its answer. */
enum tern_code world_put_to(struct world *world, struct sim_node *node, int32_t queue_id,
                            size_t size_bytes, int64_t timeout_ms);
/* The same, not waited for; its number stays unacknowledged. */
void world_put_start(struct world *world, struct sim_node *node, int32_t queue_id,
                     int64_t timeout_ms, struct world_call *out);
enum tern_code world_put(struct world *world, int32_t queue_id);
/* Acknowledged each, or the test fails. */
void world_put_some(struct world *world, int32_t queue_id, uint32_t count);
/* Fills segments of the log with messages of 60 KiB. */
void world_put_segments(struct world *world, uint32_t segments);

/* ---- what must hold ---- */

/* Fails the test unless the node's log has every number below `upto` that was acknowledged. */
void world_check_holds(const struct world *world, const struct sim_node *node, uint32_t upto);
bool world_holds(const struct world *world, const struct sim_node *node, uint32_t number);
/* Both logs are the same bytes and epochs, from the higher minimum on. */
void world_check_equal(const struct sim_node *a, const struct sim_node *b);
/* The store gives a record at each offset of the queue, from its minimum to its end. */
void world_check_readable(const struct sim_node *node, int32_t queue_id);

/* ---- requests ---- */

struct world_pull {
    enum tern_code code;
    int64_t next, min, max, suggested, committed;
    int32_t count;
    bool has_version;
    struct offset_version version;
};
struct world_status {
    enum tern_code code;
    Tern__Wire__HaState state;
    bool writable;
    int64_t confirmed;
    uint64_t cut_bytes;
    size_t slaves, in_sync, awaited;
    char text[256];
};

/* Any request; the answer's code. *out (may be NULL) is the answer, to be given to
 * world_answer_free(), or NULL: none came. */
enum tern_code world_ask(struct world *world, struct sim_node *node, const char *client_id,
                         TernRequest *request, const void *payload, size_t payload_size,
                         int64_t timeout_ms, struct rpc_call **out);
void world_answer_free(struct rpc_call *call);
/* Any request, without waiting; *out stays where it is until world_call_end(), which fails the test
 * unless it is done. */
void world_ask_start(struct world *world, struct sim_node *node, TernRequest *request,
                     const void *payload, size_t payload_size, int64_t timeout_ms,
                     struct world_call *out);
enum tern_code world_call_end(struct world_call *call);
struct world_pull world_pull(struct world *world, struct sim_node *node, int32_t queue_id,
                             int64_t offset, struct offset_version version);
/* The same, carrying the offset as the group's progress, too. */
struct world_pull world_pull_commit(struct world *world, struct sim_node *node, int32_t queue_id,
                                    int64_t offset, struct offset_version version);
/* The same without waiting for the answer; the broker may park it for 15 s. */
void world_pull_start(struct world *world, struct sim_node *node, int32_t queue_id, int64_t offset,
                      struct offset_version version, struct world_call *out);
struct world_pull world_pull_end(struct world_call *call);
enum tern_code world_query(struct world *world, struct sim_node *node, const char *group,
                           int32_t queue_id, int64_t *offset, struct offset_version *version);
enum tern_code world_commit(struct world *world, struct sim_node *node, const char *group,
                            int32_t queue_id, int64_t offset, struct offset_version version);
enum tern_code world_reset(struct world *world, struct sim_node *node, const char *group,
                           int32_t queue_id, int64_t offset);
/* Whether this client holds the queue's lock then. */
bool world_lock(struct world *world, struct sim_node *node, const char *client_id,
                int32_t queue_id);
enum tern_code world_create_topic(struct world *world, const char *topic);
enum tern_code world_delete_topic(struct world *world, const char *topic);
bool world_has_topic(const struct sim_node *node, const char *topic);
struct world_status world_status(struct world *world, struct sim_node *node);
/* discard: a node whose store is given up, or NULL. */
enum tern_code world_force_open(struct world *world, const struct sim_node *discard);
enum tern_code world_rejoin(struct world *world, struct sim_node *node);
/* Members of all sets that the nameserver knows. */
size_t world_registered(struct world *world);
/* Whether the nameserver's route of the topic names this node. */
bool world_is_listed(struct world *world, const struct sim_node *node);

#endif
