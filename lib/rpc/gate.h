/*
 * A count of those inside, and a door that can be shut: when rpc_gate_shut() has returned nobody is
 * inside and nobody will be. For what may be freed only when its last user has left. One thread
 * shuts, once.
 */
#ifndef RPC_GATE_H
#define RPC_GATE_H

#include "base/sched.h"

struct rpc_gate {
    _Atomic uint32_t state; /* twice the number inside, plus 1 when shut */
    struct latch empty;
};

void rpc_gate_init(struct rpc_gate *gate);
/* false when shut. @thread any @locks none */
MUST_CHECK bool rpc_gate_enter(struct rpc_gate *gate);
/* Enters also when it is shut but not empty, as one who is inside may; ENSUREs that it is not both.
 */
void rpc_gate_hold(struct rpc_gate *gate);
/* The gate may be gone when this returns. */
void rpc_gate_leave(struct rpc_gate *gate, struct sched *sched);
/* Shuts and waits until it is empty. @thread not-link */
void rpc_gate_shut(struct rpc_gate *gate, struct sched *sched);

#endif
