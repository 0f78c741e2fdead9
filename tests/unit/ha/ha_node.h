/*
 * One node of a set without the broker around it: a real store, epochs, a source and a replica, a
 * server and a client, and the ha task. Tables are none. Works in the simulated world and in the
 * real one.
 */
#ifndef TESTS_UNIT_HA_HA_NODE_H
#define TESTS_UNIT_HA_HA_NODE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/sched.h"
#include "broker/ha/replica.h"
#include "broker/ha/source.h"

#define assert_ok(expr) assert_int_equal((expr), TERN_OK)
#define NODE_TOPIC "TopicTest"

enum { NODE_SEGMENT_BYTES = 16 * 1024, NODE_QUEUES = 3 };

struct node {
    struct env env;
    char host[16], address[32], root[512];
    struct link *link;
    struct ha_options ha;
    uint64_t life;
    struct store *store;
    struct epochs *epochs;
    struct source *source;
    struct replica *replica;
    struct rpc_server *server;
    struct rpc_client *client;
    _Atomic(struct task *) task;
    _Atomic uint32_t settled, lost, caught_up;
    _Atomic uint64_t appended; /* messages that were answered OK */
    int64_t cut_bytes;         /* in all its lives */
};

/* Its store's UUID is made of `uuid`. */
void node_init(struct node *node, const struct env *env, const char *host, const char *root,
               uint8_t uuid);
/* id 0: a master, which opens with an epoch above *number and writes it there. Takes the link. */
void node_start(struct node *node, struct link *link, uint16_t port, int64_t id, bool sync_flush,
                uint64_t *number);
void node_follow(struct node *node, const struct node *master);
void node_stop(struct node *node);
/* After a crash: whatever the disk says. */
void node_abandon(struct node *node);

/* One message with a body of this size, all of one letter. */
void node_send(struct node *node, int32_t queue_id, size_t body_bytes, uint8_t letter);
/* Both logs, queues and epochs are the same. */
void nodes_check_same(struct node *a, struct node *b);
bool nodes_are_same(struct node *a, struct node *b);

#endif
