/*
 * The replica: makes this broker's log a copy of another's. A slave follows its master for good; a
 * master that starts takes the tail of one member.
 *
 *   IDLE ─► GREETING ─► SETTLING ─► COPYING ─► … until the link, the session or the goal ends
 *              ▲   handshake │ cut, reset, epochs: disk, by the ha task
 *              └── retry ────┴── refusal, error
 *
 * Chunks are appended on the link's thread when that needs no waiting (same epoch, segment ready),
 * and the next fetch goes out from there; else the ha task takes over. One fetch is under way at a
 * time, and one report beside it.
 *
 * Settling (docs/replication.md): an empty store begins at the source's first segment; beyond the
 * common point offsets are lowered, bytes saved under ROOT/diverged/ and cut; a common point below
 * the source's minimum resets the store; no common epoch detaches it.
 */
#ifndef HA_REPLICA_H
#define HA_REPLICA_H

#include "broker/ha/ha_internal.h"

struct replica;

enum replica_event {
    REPLICA_SETTLED,  /* the handshake is settled, copying goes on */
    REPLICA_LOST,     /* the link or session is gone; it is tried again while following, and ends a
                         take */
    REPLICA_DETACHED, /* no common epoch; only replica_rejoin() goes on. A take: it wants force */
    REPLICA_CAUGHT_UP /* RECOVER: everything the source had at the handshake, tables too, is here */
};

struct replica_options {
    struct ha_part_options part;
    struct rpc_client *client; /* borrowed */
    /* @locks none @thread link's or ha task. source: who it is. */
    void (*on_event)(void *arg, enum replica_event event, const struct ha_member *source);
    /* Confirmed as the source says; `settled` false: no source, what is here may be served. */
    void (*on_confirmed)(void *arg, int64_t confirmed, bool settled);
    /* The source has our progress up to this change; UINT64_MAX: there is no source to wait for. */
    void (*on_progress_seen)(void *arg, uint64_t change);
};

MUST_CHECK enum tern_code replica_create(const struct replica_options *options,
                                         struct replica **out);
/* After replica_stop(). */
void replica_destroy(struct replica *replica);
/*
 * Abandons what is under way and waits for its callbacks that run; those that come later touch only
 * memory that goes with the last of them. Not from within a callback. @thread not-link
 */
void replica_stop(struct replica *replica);

/* Follows the master at this address from now on; "": it is not known. The same again: no change.
 */
void replica_follow(struct replica *replica, const char *ha_address);
/* Takes everything that this member has; force: also when that costs our own bytes under a newer or
 * no common epoch, or a common point below its minimum. */
void replica_recover(struct replica *replica, const char *ha_address, bool force);
void replica_idle(struct replica *replica);
/* Saves the store aside and begins afresh with the next handshake. @thread any */
void replica_rejoin(struct replica *replica);

/* Flushed, dispatched or own progress moved: a report goes out when one is due. @thread any */
void replica_on_flushed(struct replica *replica, int64_t flushed);
void replica_on_change(struct replica *replica);

/* @thread ha task; returns when to come again */
int64_t replica_step(struct replica *replica, int64_t now_ns);

/* Whether the store may be served: not while it is being cut or reset, nor detached. text: why not.
 */
bool replica_readable(struct replica *replica, char *text, size_t size);
/* Whether the log here holds nothing that the master's had lost by its epoch of this number: it was
 * settled with that one or a later, or has bytes of it. @thread any */
bool replica_agrees_with(struct replica *replica, uint64_t number);
/*
 * The master is recovering and takes our progress: what is made here from now on is promised by
 * nobody until it has that, too, or is found to be gone again. @thread any
 */
void replica_master_takes(struct replica *replica);
/* What on_confirmed and on_progress_seen tell, as it is now, all of one moment. */
void replica_acknowledged(struct replica *replica, int64_t *confirmed, bool *settled,
                          uint64_t *progress_seen);
/* For status: text of what goes on, the source when known, rates, bytes cut. */
struct replica_status {
    char text[256];
    bool source_known;
    struct ha_member source;
    double bytes_per_second;
    uint64_t cut_bytes;
    bool attached;
};
void replica_status(struct replica *replica, struct replica_status *out);

#endif
