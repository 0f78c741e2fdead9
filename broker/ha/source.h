/*
 * The source: serves this broker's log to members of its set. One attachment ("session") a member:
 * made by a handshake, then one fetch at a time, parked when there is nothing new, and reports
 * beside it. What a member claims counts only within what it was sent. An open master's source also
 * keeps the in-sync set.
 *
 *   handshake ─► session ─► fetch ─┬─ bytes in memory ─► answered on the link's thread
 *                   ▲              ├─ not in memory ───► read by the ha task
 *                   │              └─ nothing new ─────► parked ─► on_end: answered by the appender
 *                report            (at most HA_PARK_MAX_MS)
 */
#ifndef HA_SOURCE_H
#define HA_SOURCE_H

#include "broker/ha/ha_internal.h"

struct source;

struct source_options {
    struct ha_part_options part;
    /* A member said who it is, in a handshake of any purpose. @locks none @thread link's */
    void (*on_heard)(void *arg, const struct ha_member *member, bool has_cut, int64_t cut_at);
    /* A slave's epoch is not below ours, under another id, and it refuses to be cut: an open master
     * must stop writing. @thread link's */
    void (*on_refused)(void *arg, const struct ha_member *slave);
    /* Confirmed has risen, or who counts has changed; in order, one at a time. alone: the set is
     * empty. @locks none @thread link's, the appender's, the flusher's, ha task */
    void (*on_confirmed)(void *arg, int64_t confirmed, bool alone);
    /* The in-sync members have our progress up to this change; UINT64_MAX: there is nobody to wait
     * for. Likewise. */
    void (*on_progress_seen)(void *arg, uint64_t change);
};

MUST_CHECK enum tern_code source_create(const struct source_options *options, struct source **out);
/* After source_stop(). */
void source_destroy(struct source *source);
/* Ends all sessions and answers every parked fetch. */
void source_stop(struct source *source);

/* Requests of the replication server; each answers now or later. @thread link's */
void source_handshake(struct source *source, struct rpc_request *request);
void source_fetch(struct source *source, struct rpc_request *request);
void source_report(struct source *source, struct rpc_request *request);
void source_peer_gone(struct source *source, uint64_t peer_id);
/* The server is short of contexts: answer the oldest parked early. */
void source_relieve(struct source *source);

/*
 * Who may attach. Closed (at first): HA_FOLLOW gets SYSTEM_BUSY; HA_RECOVER and HA_LOOK are served
 * always, a RECOVER by a slave only. Open: the in-sync set starts from `set`, whose members count
 * as unheard since now; confirmed starts at `confirmed`.
 */
void source_open(struct source *source, const struct insync_set *set, int64_t confirmed);
void source_close(struct source *source);

/* As ha_on_end() and its kin. */
void source_on_end(struct source *source, int64_t end);
void source_on_flushed(struct source *source, int64_t flushed);
void source_on_change(struct source *source);

/* Cold reads, parks whose time is up, members that come and go (disk). Returns when to come again.
 * @thread ha task */
int64_t source_step(struct source *source, int64_t now_ns);

int64_t source_confirmed(struct source *source);
/* What on_confirmed and on_progress_seen tell, as it is now, all of one moment. */
void source_acknowledged(struct source *source, int64_t *confirmed, bool *alone,
                         uint64_t *progress_seen);
int64_t source_replicated(struct source *source);
bool source_enough(struct source *source); /* minInSyncReplicas */
uint32_t source_insync_size(struct source *source);
/* How many members have fetched since then and said that we have all progress made at them. */
uint32_t source_gave(struct source *source, int64_t since_ns);
int64_t source_pick_slave(struct source *source, int64_t preferred, int64_t want_end);
/* A status row per known slave, in the arena. */
enum tern_code source_status(struct source *source, struct arena *arena,
                             Tern__Wire__HaSlaveStatus ***rows, size_t *count);

#endif
