/* Who is inside, and shutting the door; see gate.h. */
#include "rpc/gate.h"

#include <stdatomic.h>

enum { SHUT = 1, ONE = 2 };

void rpc_gate_init(struct rpc_gate *gate)
{
    atomic_init(&gate->state, 0);
    latch_init(&gate->empty);
}

bool rpc_gate_enter(struct rpc_gate *gate)
{
    uint32_t state = atomic_load_explicit(&gate->state, memory_order_relaxed);
    do {
        if (state & SHUT)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&gate->state, &state, state + ONE,
                                                    memory_order_acquire, memory_order_relaxed));
    return true;
}

void rpc_gate_hold(struct rpc_gate *gate)
{
    uint32_t before = atomic_fetch_add_explicit(&gate->state, ONE, memory_order_acquire);
    ENSURE(before != SHUT);
}

void rpc_gate_leave(struct rpc_gate *gate, struct sched *sched)
{
    uint32_t before = atomic_fetch_sub_explicit(&gate->state, ONE, memory_order_acq_rel);
    if (before == ONE + SHUT)
        latch_set(sched, &gate->empty);
}

void rpc_gate_shut(struct rpc_gate *gate, struct sched *sched)
{
    uint32_t before = atomic_fetch_or_explicit(&gate->state, SHUT, memory_order_acq_rel);
    ENSURE(!(before & SHUT));
    if (before != 0)
        ENSURE(latch_wait(sched, &gate->empty, SCHED_NEVER));
}
