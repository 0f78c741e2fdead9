/*
 * The gate: whether the store lets appends in, and if not, why.
 *
 * In a message's way it stands before the log gives out an offset: a full disk or a broken store
 * refuses there, so that a refused append leaves no hole in its queue.
 *
 * Invariants: a latched gate never opens again; code and text do not change once latch_state says
 * LATCHED. Threads: any. Failure modes: none of its own.
 */
#include "broker/store/gate.h"

#include <stdio.h>

#include "base/log.h"

void gate_init(struct gate *gate, const struct env *env, const struct store_observer *observer)
{
    gate->env = env;
    gate->observer = *observer;
    atomic_init(&gate->latch_state, GATE_OPEN);
    gate->latch_code = TERN_OK;
    gate->latch_text[0] = 0;
    atomic_init(&gate->closed, false);
    atomic_init(&gate->disk_full, false);
    atomic_init(&gate->queues_full, false);
    atomic_init(&gate->disk_ratio, -1.0);
    atomic_init(&gate->segment_code, TERN_OK);
}

enum tern_code gate_check(const struct gate *gate)
{
    /* Claimed counts: whoever latches has seen the fault already. */
    if (atomic_load_explicit(&gate->latch_state, memory_order_acquire) != GATE_OPEN)
        return TERN_SERVICE_NOT_AVAILABLE;
    if (atomic_load_explicit(&gate->disk_full, memory_order_relaxed) ||
        atomic_load_explicit(&gate->queues_full, memory_order_relaxed))
        return TERN_NO_SPACE;
    return TERN_OK;
}

enum tern_code gate_check_own(const struct gate *gate)
{
    return atomic_load_explicit(&gate->closed, memory_order_acquire) ? TERN_SERVICE_NOT_AVAILABLE
                                                                     : gate_check(gate);
}

bool gate_full(const struct gate *gate)
{
    return atomic_load_explicit(&gate->disk_full, memory_order_relaxed) ||
           atomic_load_explicit(&gate->queues_full, memory_order_relaxed) ||
           atomic_load_explicit(&gate->segment_code, memory_order_relaxed) == TERN_NO_SPACE;
}

void gate_latch(struct gate *gate, enum tern_code code, const char *text)
{
    int expected = GATE_OPEN;
    if (!atomic_compare_exchange_strong(&gate->latch_state, &expected, GATE_CLAIMED))
        return;
    gate->latch_code = code;
    snprintf(gate->latch_text, sizeof gate->latch_text, "%s", text);
    atomic_store_explicit(&gate->latch_state, GATE_LATCHED, memory_order_release);
    log_error(gate->env->log, "store.latched", "code=%s cause=\"%s\"", tern_code_name(code),
              gate->latch_text);
    if (gate->observer.on_latched)
        gate->observer.on_latched(gate->observer.arg, code, gate->latch_text);
}

bool gate_latched(const struct gate *gate)
{
    return atomic_load_explicit(&gate->latch_state, memory_order_acquire) != GATE_OPEN;
}

const char *gate_latch_text(const struct gate *gate)
{
    bool latched = atomic_load_explicit(&gate->latch_state, memory_order_acquire) == GATE_LATCHED;
    return latched ? gate->latch_text : "";
}

void gate_set_disk(struct gate *gate, bool full, double used_ratio)
{
    atomic_store_explicit(&gate->disk_ratio, used_ratio, memory_order_relaxed);
    bool was = atomic_exchange_explicit(&gate->disk_full, full, memory_order_relaxed);
    if (full && !was)
        log_error(gate->env->log, "store.disk_full", "used_ratio=%.4f", used_ratio);
    if (!full && was)
        log_info(gate->env->log, "store.disk_ok", "used_ratio=%.4f", used_ratio);
}
