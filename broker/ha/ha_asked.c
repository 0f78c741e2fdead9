/*
 * What the broker asks of replication before it serves: may it write, read, say how far a group is,
 * grant locks; what is confirmed, and whom may a reader be sent to.
 *
 *   request ─► handler ─► here ─► state, source (a master's), replica (a slave's)
 *
 * Nothing is changed but by ha_unsure(), which notices a standstill. Threads: any; nothing waits.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "broker/ha/ha_parts.h"

int ha_state(struct ha *ha)
{
    return atomic_load(&ha->state);
}

bool ha_opens_alone(struct ha *ha)
{
    return ha_is_master(ha) && opening_alone(ha->opening);
}

bool ha_writable(struct ha *ha, enum tern_code *code, char *text, size_t size)
{
    *code = TERN_SERVICE_NOT_AVAILABLE;
    if (!ha_is_master(ha)) {
        snprintf(text, size, "broker %s id %" PRId64 " is a slave: send to the master", ha->name,
                 ha->options.id);
        return false;
    }
    if (atomic_load_explicit(&ha->state, memory_order_acquire) != TERN__WIRE__HA_STATE__HA_OPEN) {
        char why[160];
        opening_text(ha->opening, why, sizeof why);
        snprintf(text, size, "broker %s is recovering: %s", ha->name, why);
        return false;
    }
    if (ha->options.insync.min_replicas && !source_enough(ha->source)) {
        snprintf(text, size,
                 "broker %s has %" PRIu32 " slaves in sync, minInSyncReplicas is %" PRIu32,
                 ha->name, source_insync_size(ha->source), ha->options.insync.min_replicas);
        return false;
    }
    return true;
}

bool ha_readable(struct ha *ha, char *text, size_t size)
{
    if (ha_is_master(ha))
        return replica_readable(ha->replica, text, size);
    if (!ha->options.readable) {
        snprintf(text, size,
                 "broker %s id %" PRId64 " is a slave that is not read (slaveReadEnable "
                 "false)",
                 ha->name, ha->options.id);
        return false;
    }
    return replica_readable(ha->replica, text, size);
}

bool ha_decides_progress(struct ha *ha)
{
    if (!ha_is_master(ha))
        return false;
    return atomic_load(&ha->state) == TERN__WIRE__HA_STATE__HA_OPEN
               ? !ha_unsure(ha, clock_mono_ns(ha->env.clock))
               : opening_merged(ha->opening);
}

bool ha_decides_locks(struct ha *ha)
{
    int64_t now_ns = clock_mono_ns(ha->env.clock);
    int state = atomic_load(&ha->state);
    if (ha_is_master(ha) && ha_unsure(ha, now_ns))
        return false;
    lock_acquire(&ha->lock);
    bool master = state == TERN__WIRE__HA_STATE__HA_OPEN && now_ns >= ha->locks_from_ns;
    bool alone = state == TERN__WIRE__HA_STATE__HA_SEEKING &&
                 now_ns - ha->alone_since_ns > ms_to_ns(HA_LEASE_MS) &&
                 ha->nameservers_answered > 0 && !ha->master_listed;
    lock_release(&ha->lock);
    return ha_is_master(ha) ? master : alone;
}

bool ha_hands_on_locks(struct ha *ha)
{
    lock_acquire(&ha->lock);
    bool hands_on = atomic_load(&ha->state) == TERN__WIRE__HA_STATE__HA_SEEKING &&
                    !ha->master_spoke && ha->nameservers_answered > 0 && !ha->master_listed;
    lock_release(&ha->lock);
    return hands_on && !ha_is_master(ha);
}

bool ha_epoch_of(struct ha *ha, int64_t phys_off, uint64_t *number, uint64_t *id)
{
    struct ha_epoch epoch;
    int64_t end;
    if (!epochs_find(ha->epochs, phys_off, &epoch, &end))
        return false;
    *number = epoch.number;
    *id = epoch.id;
    return true;
}

bool ha_agrees_with(struct ha *ha, uint64_t number)
{
    return ha_is_master(ha) || replica_agrees_with(ha->replica, number);
}

int64_t ha_confirmed(struct ha *ha)
{
    int64_t confirmed;
    uint64_t progress;
    bool settled;
    if (ha_is_master(ha))
        return source_confirmed(ha->source);
    replica_acknowledged(ha->replica, &confirmed, &settled, &progress);
    return confirmed;
}

void ha_acknowledged(struct ha *ha, struct ha_acknowledged *out)
{
    bool flag;
    uint64_t progress;
    if (ha_is_master(ha)) {
        int64_t opened = atomic_load(&ha->opened_end);
        source_acknowledged(ha->source, &out->confirmed, &flag, &progress);
        out->alone = flag;
        out->visible = out->confirmed > opened ? out->confirmed : opened;
    } else {
        replica_acknowledged(ha->replica, &out->confirmed, &flag, &progress);
        out->alone = !flag;
        out->visible = flag ? out->confirmed : INT64_MAX;
    }
    bool waits = ha->options.mode != HA_MODE_ASYNC_MASTER && progress <= INT64_MAX;
    out->progress = waits ? (int64_t)progress : INT64_MAX;
}

int64_t ha_replicated(struct ha *ha)
{
    return source_replicated(ha->source);
}

int64_t ha_pick_slave(struct ha *ha, int64_t preferred, int64_t want_end)
{
    return source_pick_slave(ha->source, preferred, want_end);
}
