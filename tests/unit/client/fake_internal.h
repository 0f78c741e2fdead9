/* What the files of the scripted cluster share: see fake_cluster.h. */
#ifndef TESTS_UNIT_CLIENT_FAKE_INTERNAL_H
#define TESTS_UNIT_CLIENT_FAKE_INTERNAL_H

#include "tests/unit/client/fake_cluster.h"

/* ---- fake_cluster.c ---- */

/* Also again for what was parked, which user tells. */
void fake_serve(void *arg, struct rpc_request *rq);
/* Answers what is parked (all: whatever it waits for) and serves it anew without waiting. */
void fake_unpark(struct fake_node *node, bool all);
/* Keeps the request until its time is over or fake_unpark(). */
void fake_park(struct fake_node *node, struct rpc_request *rq, uint32_t suspend_ms);

/* ---- fake_reading.c: each answers its request ---- */

/* again: it was parked. */
void fake_pull(struct fake_node *node, struct rpc_request *rq, bool again);
void fake_query(struct fake_node *node, struct rpc_request *rq);
/* Within a version the higher offset stays. */
void fake_commit(struct fake_node *node, struct rpc_request *rq);
void fake_range(struct fake_node *node, struct rpc_request *rq);
/* A time is an offset here. */
void fake_search(struct fake_node *node, struct rpc_request *rq);

/* ---- fake_group.c: each answers its request ---- */

void fake_heartbeat(struct fake *fake, struct rpc_request *rq);
void fake_leave(struct fake *fake, struct rpc_request *rq);
void fake_members(struct fake_node *node, struct rpc_request *rq);
void fake_wait_events(struct fake_node *node, struct rpc_request *rq, bool again);
void fake_lock_queues(struct fake_node *node, struct rpc_request *rq);
void fake_unlock_queues(struct fake *fake, struct rpc_request *rq);
/* A failed message, as a copy. */
void fake_copy(struct fake *fake, struct rpc_request *rq);
void fake_check_expression(struct fake *fake, struct rpc_request *rq);
void fake_send_back(struct fake *fake, struct rpc_request *rq);

#endif
