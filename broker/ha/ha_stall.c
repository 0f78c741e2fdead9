/*
 * A master that stood still: its process was stopped, or its machine was, and it does not know.
 *
 *   master    … tick ────────── still ──────────► tick: "how late?" ─► unsure ─► its slaves gave ─►
 * sure slave              3 s of silence ─► alone: answers commits itself ─► attaches, gives
 * progress
 *
 * Meanwhile its slaves took it for dead, served its groups, and promised progress that it has not.
 * Until as many as were in the in-sync set have given what they made, or HA_UNSURE_MS are over, it
 * does not say how far a group is, and grants no locks. Whoever comes first after the standstill
 * sees it: the ha task by its own lateness, a request by the task's.
 *
 * Threads: any. Failure modes: a task that is late for another reason, a slow disk say, makes a
 * master unsure until its slaves' next fetch, a second at most.
 */
#include "base/clock.h"
#include "base/log.h"
#include "broker/ha/ha_parts.h"

enum {
    HA_TICK_MS = 500,
    HA_STALL_MS = 2000, /* below a slave's patience, REPLICA_SILENCE_MS */
    HA_UNSURE_MS = 5000 /* slaves that have not come back by then are gone */
};

bool ha_unsure(struct ha *ha, int64_t now_ns)
{
    int64_t ticked_ns = atomic_load(&ha->ticked_ns);
    int64_t late_ns = now_ns - ticked_ns;
    if (ticked_ns && late_ns > ms_to_ns(HA_STALL_MS) &&
        atomic_compare_exchange_strong(&ha->ticked_ns, &ticked_ns, now_ns)) {
        atomic_store(&ha->stalled_ns, now_ns);
        log_warn(ha->env.log, "stood_still",
                 "ms=%lld slaves=%u effect=\"progress and locks are unknown until the slaves have "
                 "told what they did meanwhile\"",
                 (long long)(late_ns / ms_to_ns(1)), (unsigned)atomic_load(&ha->members));
    }
    int64_t since_ns = atomic_load(&ha->stalled_ns);
    if (!since_ns)
        return false;
    if (now_ns - since_ns < ms_to_ns(HA_UNSURE_MS) &&
        source_gave(ha->source, since_ns) < atomic_load(&ha->members))
        return true;
    atomic_compare_exchange_strong(&ha->stalled_ns, &since_ns, 0);
    return false;
}

int64_t ha_tick(struct ha *ha, int64_t now_ns)
{
    if (!ha_is_master(ha))
        return SCHED_NEVER;
    if (!ha_unsure(ha, now_ns))
        atomic_store(&ha->members, source_insync_size(ha->source));
    atomic_store(&ha->ticked_ns, now_ns);
    return now_ns + ms_to_ns(HA_TICK_MS);
}
