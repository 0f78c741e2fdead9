/*
 * How a master opens for writes and stops again: what the opening (opening.h) decides is done here,
 * on the ha task.
 *
 *   look at members ─► take tail, tables, progress ─► everything dispatched ─► epoch on the disk
 *      ─► progress held against the queues' ends ─► the in-sync set on the disk ─► OPEN
 *
 * Failure modes: any error leaves the master as it was, unwritable; the opening comes again.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ha/ha_parts.h"

enum {
    LOOK_TIMEOUT_MS = 2000,
    LOOK_ARENA_BYTES = 1 << 20,
    DISPATCH_PATIENCE_MS = 1000 /* then the opening is tried again */
};

/* ---- looking at members ---- */

struct look {
    struct ha *ha;
    struct arena arena;
    struct ha_member member; /* ours, then the answer's */
};

static void look_free(struct look *look)
{
    arena_fini(&look->arena);
    atomic_fetch_sub(&look->ha->looks, 1);
    free(look);
}

/* @thread link's */
static void on_look(struct rpc_call *call, void *arg)
{
    struct look *look = arg;
    struct ha *ha = look->ha;
    struct tern_error err;
    bool answered = call->status == TERN_OK &&
                    call->response->body_case == TERN__WIRE__RESPONSE__BODY_HA_HANDSHAKE &&
                    call->response->ha_handshake->source;
    if (answered && ha_member_from_wire(&look->arena, call->response->ha_handshake->source,
                                        &look->member, &err) == TERN_OK) {
        epochs_seen(ha->epochs, look->member.highest_epoch);
        if (!atomic_load(&ha->stopping))
            opening_heard(ha->opening, &look->member);
        ha_wake(ha);
    }
    rpc_call_unref(call);
    look_free(look);
}

/* Asks who is there. @thread ha task */
void ha_look_at(void *arg, const char *ha_address)
{
    struct ha *ha = arg;
    Tern__Wire__HaHandshakeRequest body = TERN__WIRE__HA_HANDSHAKE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct tern_error err;
    struct rpc_peer *peer = NULL;
    struct rpc_call *call = NULL;
    struct look *look = calloc(1, sizeof *look);

    if (!look)
        return; /* asked again a second later */
    atomic_fetch_add(&ha->looks, 1);
    look->ha = ha;
    arena_init(&look->arena, LOOK_ARENA_BYTES);
    enum tern_code code = rpc_peer_get(ha->client, ha_address, &peer, &err);
    if (code == TERN_OK)
        code = rpc_call_create(peer, 0, &call);
    if (code == TERN_OK) {
        ha_fill_self(ha, &look->member);
        body.from = ha_member_to_wire(&look->arena, &look->member);
        body.purpose = TERN__WIRE__HA_PURPOSE__HA_LOOK;
        request.body_case = TERN__WIRE__REQUEST__BODY_HA_HANDSHAKE;
        request.ha_handshake = &body;
    }
    if (code == TERN_OK && body.from) {
        rpc_call_start(call, &request, 0, LOOK_TIMEOUT_MS, on_look, look);
    } else {
        if (call)
            rpc_call_unref(call);
        look_free(look);
    }
    if (peer)
        rpc_peer_unref(peer);
}

/* ---- opening ---- */

void ha_take_from(void *arg, const char *ha_address, bool force)
{
    struct ha *ha = arg;
    replica_recover(ha->replica, ha_address, force);
}

/* Queues' ends are what the log says before progress is held against them: a tail that was taken
 * lies beyond the limit of before, and tables.open() looks only up to the limit. @thread ha task */
static enum tern_code dispatch_all(struct ha *ha, int64_t whole, struct tern_error *err)
{
    struct store *store = ha->options.store;
    int64_t deadline_ns = clock_mono_ns(ha->env.clock) + ms_to_ns(DISPATCH_PATIENCE_MS);
    struct store_positions at;
    atomic_store(&ha->opened_end, whole);
    store_set_dispatch_limit(store, whole);
    for (;;) {
        int64_t now_ns = clock_mono_ns(ha->env.clock);
        store_positions(store, &at);
        if (at.dispatched >= whole)
            return TERN_OK;
        if (now_ns >= deadline_ns || atomic_load(&ha->stopping))
            return error_set(err, TERN_AGAIN,
                             "the queues follow the log at %" PRId64 " of %" PRId64, at.dispatched,
                             whole);
        struct latch never;
        latch_init(&never);
        ENSURE(!latch_wait(ha->env.sched, &never, now_ns + ms_to_ns(1)));
    }
}

/* What a master does before its first write. @thread ha task */
enum tern_code ha_open_writes(void *arg, const struct insync_set *set, bool raise, uint64_t number,
                              struct tern_error *err)
{
    struct ha *ha = arg;
    struct store_positions at;
    struct store_cut cut;
    struct ha_epoch epoch;
    enum tern_code code = TERN_OK;

    replica_idle(ha->replica);
    store_positions(ha->options.store, &at);
    if (at.whole < at.appended) /* of a tail that a slave had cut off in a record */
        code = store_cut(ha->options.store, at.whole, false, &cut, err);
    if (code == TERN_OK)
        code = store_flush(ha->options.store, err);
    if (code == TERN_OK)
        code = store_end_deletions(ha->options.store, err);
    epochs_seen(ha->epochs, number);
    if (code == TERN_OK)
        code = dispatch_all(ha, at.whole, err);
    if (code == TERN_OK)
        code = epochs_begin(ha->epochs, at.min, at.whole, &epoch, err);
    if (code == TERN_OK)
        code = ha->options.tables.open(ha->options.tables.arg, raise && !ha->raised, epoch.number,
                                       err);
    ha->raised = ha->raised || (raise && code == TERN_OK);
    /* Last: who is not in it is not waited for again, so what it may take has to be made good. */
    if (code == TERN_OK)
        code = insync_save(&ha->env, ha->root, set, err);
    if (code != TERN_OK)
        return code;
    ha->raised = false;
    int64_t now_ns = clock_mono_ns(ha->env.clock);
    struct insync_member missing[INSYNC_MAX];
    bool some_missing = opening_awaited(ha->opening, missing) > 0;
    lock_acquire(&ha->lock);
    ha->locks_from_ns = some_missing ? now_ns + ms_to_ns(HA_LEASE_MS) : now_ns;
    lock_release(&ha->lock);
    if (!ha->options.confirmed_visibility)
        store_set_dispatch_limit(ha->options.store, INT64_MAX);
    source_open(ha->source, set, at.min);
    store_set_appends(ha->options.store, true);
    log_info(ha->env.log, "opened_for_writes",
             "epoch=%" PRIu64 " start=%" PRId64 " insync=%zu versions_raised=%d", epoch.number,
             epoch.start, set->count, raise);
    ha_set_state(ha, TERN__WIRE__HA_STATE__HA_OPEN);
    return TERN_OK;
}

/* A slave has a newer epoch: somebody else was master, or we lost ours. @thread ha task */
void ha_stop_writing(struct ha *ha, int64_t now_ns)
{
    struct tern_error err;
    lock_acquire(&ha->lock);
    struct ha_member *refuser = ha->refuser;
    ha->refuser = NULL;
    lock_release(&ha->lock);
    if (!refuser)
        return;
    if (atomic_load(&ha->state) == TERN__WIRE__HA_STATE__HA_OPEN) {
        log_error(ha->env.log, "stopped_writing",
                  "cause=\"slave %" PRId64 " has an epoch that is not below ours\" "
                  "next=\"recovering from it; mqadmin forceOpen goes on without\"",
                  refuser->id);
        store_set_appends(ha->options.store, false); /* sends under way end before it is cut */
        ha_set_state(ha, TERN__WIRE__HA_STATE__HA_RECOVERING);
        source_close(ha->source);
        enum tern_code code = opening_begin(ha->opening, now_ns, &err);
        if (code != TERN_OK)
            log_error(ha->env.log, "opening_not_begun", "cause=\"%s\"", error_text(&err, code));
    }
    epochs_seen(ha->epochs, refuser->highest_epoch);
    opening_heard(ha->opening, refuser);
    free(refuser);
}

/* What came from a slave before it cut its log may lie beyond our queues. @thread ha task */
void ha_forget_cut_progress(struct ha *ha)
{
    struct tern_error err;
    struct store_positions at;
    store_positions(ha->options.store, &at);
    enum tern_code code = ha->options.tables.lower(ha->options.tables.arg, at.whole, &err);
    if (code != TERN_OK)
        log_error(ha->env.log, "progress_not_lowered", "cause=\"%s\"", error_text(&err, code));
}
