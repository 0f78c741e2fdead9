/*
 * Replication: both ends of it, and how a master starts. docs/replication.md has the protocol.
 *
 *   slave:   replica ──handshake, fetch, report──► source of the master
 *   master:  source  ── counted ends ─► insync ─► confirmed ─► sends and commits that wait
 *   a master that starts:  opening: waits for its set's members, replica takes the longest tail,
 *            tables and progress, then a new epoch, then open
 *
 *   state of a master:  RECOVERING ──opened──► OPEN ──a peer has a newer epoch──► RECOVERING
 *   state of a slave:   SEEKING ◄──► FOLLOWING,  ──no common epoch──► DETACHED ──rejoin──► SEEKING
 *
 * Threads: the link's for requests and answers (they append, read and answer, never wait); one
 * task, "ha", for everything that touches the disk: epochs, sets, cuts, cold reads, opening.
 */
#ifndef HA_HA_H
#define HA_HA_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/ha/ha_wire.h"
#include "broker/store/store.h"
#include "rpc/client.h"
#include "rpc/server.h"

struct ha;

/* What one side has of the other's tables; `progress` counts changes of the other's life. */
struct ha_held {
    uint64_t topics_version, groups_version, deletions_version, progress;
};

/* The broker's tables, seen by replication. Called on the link's threads and the ha task, never
 * with a lock of ha held. */
struct ha_tables {
    void *arg;
    /*
     * What the peer, which holds `held`, lacks: in the arena, bounded (whole tables; at most
     * HA_PROGRESS_MAX entries of progress, oldest first). NULL: nothing, or no memory.
     * progress_only: the caller is a slave talking to its master.
     */
    Tern__Wire__HaTables *(*fill)(void *arg, const struct ha_held *held, bool progress_only,
                                  struct arena *arena);
    /* Whether topics and deletions of `held` are ours, and whether anything differs. Cheap. */
    bool (*topics_agree)(void *arg, const struct ha_held *held);
    bool (*differs)(void *arg, const struct ha_held *held, bool progress_only);
    /*
     * Takes what a peer sent: tables replaced whole and made durable, deletions applied to the
     * store, progress and locks merged. `held` is raised to what was applied. Whatever fails leaves
     * `held` as it was for that part. @blocks on the disk, so only for tables; progress alone does
     * not wait
     */
    enum tern_code (*apply)(void *arg, const Tern__Wire__HaTables *tables, struct ha_held *held,
                            struct tern_error *err);
    /* Own versions, for a peer: `progress` is the number of our last change. */
    void (*own)(void *arg, struct ha_held *held);
    /* Before a cut at phys_off: every offset beyond its queue's end there is lowered to it,
     * durably. */
    enum tern_code (*lower)(void *arg, int64_t phys_off, struct tern_error *err);
    /*
     * A master opens: progress beyond its queue's end is lowered; `raise`: something may be lost,
     * so all versions rise to epoch `number`. Durable before this returns. @blocks on the disk
     */
    enum tern_code (*open)(void *arg, bool raise, uint64_t number, struct tern_error *err);
    /*
     * The log here is given up for another one with which it has nothing in common: progress and
     * locks speak of it and are dropped, versions too, durably. NULL: they stay. @blocks on the
     * disk
     */
    enum tern_code (*forget)(void *arg, struct tern_error *err);
    /* Progress as it is now is on the disk when this returns. NULL: there is none. @blocks on the
     * disk */
    enum tern_code (*persist)(void *arg, struct tern_error *err);
};

enum { HA_PROGRESS_MAX = 2000, HA_CHUNK_MAX = 1 << 20, HA_PARK_MAX_MS = 1000 };

enum ha_mode { HA_MODE_ASYNC_MASTER, HA_MODE_SYNC_MASTER, HA_MODE_SLAVE };

struct ha_options {
    enum ha_mode mode;
    const char *cluster, *name;
    int64_t id;
    uint8_t uuid[HA_UUID_BYTES];
    const char *root_dir;
    const char *address;        /* for clients; may be set later by ha_set_address() */
    const char *listen_addr;    /* haListenPort on the broker's listenAddr */
    int64_t listen_port;        /* 0: any free one */
    const char *advertise_host; /* host that peers are told; the port is the bound one */
    const char *master_address; /* haMasterAddress: a slave asks there first; may be empty */
    bool sync_flush;            /* the master counts flushed ends */
    bool recovered_unclean;     /* the store, at this start */
    bool has_nameservers;
    int64_t segment_bytes;
    struct insync_options insync;
    bool confirmed_visibility;  /* consumers may see what is confirmed, else all that is written */
    bool recover;               /* recoverFromSlave */
    int64_t recover_timeout_ms; /* recoverFromSlaveTimeout */
    int64_t transfer_rate;      /* maxHaTransferByteInSecond; 0: no limit */
    bool readable;              /* slaveReadEnable, for a slave */
    struct store *store;        /* borrowed */
    struct ha_tables tables;
    void *arg;
    /* @locks none; on the link's threads, the appender or the ha task: be quick */
    void (*on_state)(void *arg, enum ha_mode mode, int state); /* Tern__Wire__HaState */
    /* What ha_acknowledged() tells has changed; may come from several threads at once. */
    void (*on_acknowledged)(void *arg);
};

MUST_CHECK enum tern_code ha_create(const struct env *env, struct link *link,
                                    const struct ha_options *options, struct ha **out,
                                    struct tern_error *err);
/* Listens and begins: a slave to seek its master, a master to open. @thread not-link */
MUST_CHECK enum tern_code ha_start(struct ha *ha, struct tern_error *err);
/* Ends sessions, answers what is parked. Own writes must have ended. @thread not-link */
void ha_stop(struct ha *ha);
void ha_destroy(struct ha *ha);

/* "host:port" of the replication server, after ha_start(). */
const char *ha_address(const struct ha *ha);

/* ---- told by the broker ---- */

/* "host:port" for clients, once it is known. */
void ha_set_address(struct ha *ha, const char *address);

/* The store's end or flushed position moved. @thread any, the appender's and flusher's */
void ha_on_end(struct ha *ha, int64_t end);
void ha_on_flushed(struct ha *ha, int64_t flushed);
/* Own tables or progress changed. @thread any */
void ha_on_change(struct ha *ha);

struct ha_seen_member {
    int64_t id;
    char address[HA_ADDRESS_BYTES], ha_address[HA_ADDRESS_BYTES];
    uint8_t uuid[HA_UUID_BYTES];
    bool readable;
};
/* What the nameservers said in their last round: members of our name, and how many answered. */
void ha_on_members(struct ha *ha, const struct ha_seen_member *members, size_t count,
                   uint32_t nameservers_answered);

/* ---- asked by the broker. @thread any ---- */

/* Whether a master that is not open yet waits for nobody but its own disk. */
bool ha_opens_alone(struct ha *ha);
/* Whether sends are taken; else code and text. */
bool ha_writable(struct ha *ha, enum tern_code *code, char *text, size_t size);
/* Whether pulls are served; else the text why not. */
bool ha_readable(struct ha *ha, char *text, size_t size);
/* Whether "no progress", initial positions and new locks are decided here now. */
bool ha_decides_progress(struct ha *ha);
bool ha_decides_locks(struct ha *ha);
/* Whether a slave that does not decide them may hand on a lock that was given back to it: its
 * master is gone, has not spoken since, and nobody lists it. */
bool ha_hands_on_locks(struct ha *ha);
/* Whether offsets of a version that the master raised in its epoch of this number mean the same
 * messages here. Not at a slave that has not settled its log with that epoch or a later one. */
bool ha_agrees_with(struct ha *ha, uint64_t number);
int ha_state(struct ha *ha);
/* Which epoch the byte at phys_off belongs to; false: to none that is known. */
bool ha_epoch_of(struct ha *ha, int64_t phys_off, uint64_t *number, uint64_t *id);
/* "OPEN" and the like. */
const char *ha_state_text(int state);
/* A slave's: as its master told last; all that it has once it is alone. */
int64_t ha_confirmed(struct ha *ha);

struct ha_acknowledged {
    int64_t confirmed; /* what the master and k slaves have; the master alone when `alone` */
    int64_t visible;   /* what consumers may see under confirmed visibility */
    int64_t progress;  /* changes of progress that count as safe; INT64_MAX: all */
    int64_t alone;     /* 1: no slave is in sync */
};
void ha_acknowledged(struct ha *ha, struct ha_acknowledged *out);
/* Least appended end of the durable set's members, own end without any. */
int64_t ha_replicated(struct ha *ha);
/*
 * A slave to pull from, for what lies before want_end: alive, readable, dispatched so far.
 * `preferred` first, −1: any; −1 when there is none.
 */
int64_t ha_pick_slave(struct ha *ha, int64_t preferred, int64_t want_end);

/* ---- administration ---- */

void ha_handle_status(struct ha *ha, struct rpc_request *request);
void ha_handle_force_open(struct ha *ha, struct rpc_request *request);
void ha_handle_rejoin(struct ha *ha, struct rpc_request *request);

#endif
