/*
 * Two brokers of a set without their logs: real tables on simulated machines behind
 * broker/set_tables.h, made-up queues and deletions instead of stores, messages packed and unpacked
 * in between.
 */
#ifndef TESTS_UNIT_BROKER_SET_WORLD_H
#define TESTS_UNIT_BROKER_SET_WORLD_H

#include "broker/broker_internal.h"
#include "broker/queue_locks.h"
#include "broker/set_tables.h"
#include "tests/sim/sim_env.h"

enum { DELETIONS = 4, ENDS = 8, LOG_END = 5000 };

/* Stands in for a store: deletions, and where queues end. A message each 10 bytes. */
struct store {
    struct store_deletion deletions[DELETIONS];
    size_t deletion_count;
    uint64_t deletions_version;
    enum tern_code code; /* what changes of it answer */
    int applied;
    int64_t ends[ENDS]; /* of queues of T */
    int64_t dispatched;
};

struct ha {
    int state;   /* Tern__Wire__HaState */
    int changes; /* calls of ha_on_change() */
};

/* Stands in for parked pulls: what they were told last. */
struct long_poll {
    int told;
    char group[32], topic[32];
    int32_t queue_id; /* -1: all */
};

struct node {
    struct broker broker;
    struct long_poll polls;
    struct store store;
    struct ha ha;
    struct ha_tables ops;
    struct sim_fs *disk;
    int pokes; /* of the admin lane */
};

extern struct sim_env set_sim;
extern struct node nodes[2];
#define master (&nodes[0]) /* open */
#define slave (&nodes[1])

/* cmocka's setup and teardown. */
int set_world_begin(void **state);
int set_world_end(void **state);
void open_node(struct node *node, enum broker_role role);
void close_node(struct node *node);
void open_master(struct node *node, bool raise);

/* Durable. */
void put_topic(struct node *node, const char *name, int32_t queues);
void put_group(struct node *node, const char *name, int32_t retries);
/* -1: it is not there. */
int32_t queues_of(struct node *node, const char *name);
int32_t retries_of(struct node *node, const char *name);
/* In topic T, in the version that counts. */
void commit(struct node *node, const char *group, int32_t queue, int64_t offset);
/* -1: no progress. */
int64_t stored(struct node *node, const char *group, int32_t queue);
uint64_t epoch_of(struct node *node, const char *group, int32_t queue);

/* One answer over the wire; *code: of its applying. false: there was nothing. */
bool step(struct node *from, struct node *to, struct ha_held *held, bool progress_only,
          enum tern_code *code, struct tern_error *err);
/* Until nothing differs; returns the number of answers. */
int sync_nodes(struct node *from, struct node *to, struct ha_held *held, bool progress_only);

#endif
