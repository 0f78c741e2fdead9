/*
 * One request about leases, as push_locks.c (asking) and push_release.c (giving back) make it: the
 * queues of one broker set, in one message to one of its members.
 */
#ifndef CLIENT_PUSH_LEASE_OP_H
#define CLIENT_PUSH_LEASE_OP_H

#include "client/push_internal.h"

/* One under way; holds consumer, peer and queues. */
struct lease_op {
    struct tern_push_consumer *consumer;
    struct rpc_peer *peer;
    int64_t sent_ns;
    bool release; /* it gives back */
    size_t count;
    struct push_queue *queues[LEASE_QUEUES_MAX];
};

/* What it says of its queues. */
struct lease_wire {
    Tern__Wire__MessageQueue queues[LEASE_QUEUES_MAX];
    Tern__Wire__MessageQueue *queue_pointers[LEASE_QUEUES_MAX];
    Tern__Wire__QueueClaim claims[LEASE_QUEUES_MAX];
    Tern__Wire__QueueClaim *claim_pointers[LEASE_QUEUES_MAX];
};

/* Without queues; NULL without memory. */
struct lease_op *lease_op_create(struct tern_push_consumer *consumer);
void lease_op_free(struct lease_op *op);
/* To be freed; NULL without memory. @locks takes:CONSUMER */
struct lease_wire *lease_wire_create(const struct lease_op *op);
/* A call to the broker of the op's queues; TERN_OK: op->peer is set, the call is the caller's. */
MUST_CHECK enum tern_code lease_op_call(struct lease_op *op, struct rpc_call **call);
/* In a list linked by next; NULL: not there. @locks holds:CONSUMER */
struct push_queue *lease_find_queue(struct push_queue *list, const struct tern_queue *id);
/* Gives back what is due; returns when to come again. @thread control, or shutdown when that has
 * stopped @locks takes:CONSUMER */
int64_t push_releases_step(struct tern_push_consumer *consumer, int64_t now_ns);

#endif
