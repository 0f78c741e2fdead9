/*
 * The source's inside, for source.c (life, sessions), source_handshake.c, source_fetch.c (bytes and
 * parking), source_report.c, source_insync.c (who counts, what the disk is told) and
 * source_status.c.
 *
 *   a fetch:   arrives ─► serve ─┬─ bytes or tables ─► answered
 *              on_end ──► serve  ├─ on the disk, or tables while appending ─► cold ─► ha task:
 * serve ha task ─► serve  └─ nothing ─► parked in its session ─► on_end, change, time: serve
 *
 * A fetch belongs to exactly one: the thread that serves it, the place `parked` of its session, or
 * the cold list. It changes hands under the lock, so it is answered once.
 */
#ifndef HA_SOURCE_INTERNAL_H
#define HA_SOURCE_INTERNAL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "broker/ha/source.h"

enum {
    SOURCE_SESSIONS_MAX = 32,
    SOURCE_RETRY_MS = 200,         /* told to who has to ask again */
    SOURCE_CONFIRMED_NEWS_MS = 20, /* a parked fetch learns of a new confirmed end after this */
    SOURCE_TABLES_AGAIN_MS = 200,  /* the same tables are not sent again sooner */
    SOURCE_SAVE_AGAIN_MS = 1000,   /* after a failed save of the set */
    SOURCE_LOOK_AROUND_MS = 500,   /* between two looks at who falls behind */
    SOURCE_ALIVE_MS = 3000,        /* heard so lately: consumers may be sent there */
    SOURCE_TELL_ROUNDS_MAX = 16,   /* of one thread that tells what is confirmed */
    SOURCE_RATE_WINDOW_MS = 1000,
    /* Catching up beside senders goes at maxHaTransferByteInSecond: who is far behind, and what is
       "beside". */
    SOURCE_FAR_BYTES = 64 << 20,
    SOURCE_BUSY_MS = 100,
    SOURCE_PACE_CREDIT_MS = 10
};

/* A fetch that is not answered yet, in its request's memory. */
struct fetch {
    struct rpc_request *request;
    uint64_t session;
    int64_t from;
    size_t max_bytes;
    int64_t park_until_ns;
    int64_t not_before_ns;   /* paced: bytes only from then on */
    int64_t tables_again_ns; /* the same tables were sent just now: not before this */
    bool tables_held_back;   /* as it is parked: they wait for that, news of tables do not matter */
    bool bytes_held_back; /* as it is parked: topics do not agree, or paced; new bytes do not matter
                           */
    bool paced;
    struct ha_held held;
    struct fetch *next; /* in a list of one thread, or the cold list */
};

struct position {
    int64_t appended, flushed, dispatched;
    bool readable;
};

/* All of it: lock. */
struct session {
    uint64_t number; /* 0: free */
    uint64_t peer_id;
    Tern__Wire__HaPurpose purpose;
    struct insync_member who;
    char address[HA_ADDRESS_BYTES];
    uint64_t life;
    int64_t log_min;
    int64_t since_ns, heard_ns;
    int64_t start, sent;     /* fetches lie within; sent: end of what was answered */
    struct position fetched; /* as the last fetch said, growing */
    struct position reported;
    uint64_t progress_seen; /* our changes that it has */
    struct ha_held applied; /* its changes that we have */
    bool fetching;          /* a fetch is not answered yet */
    bool reporting;
    struct fetch *parked;
    int64_t answered_ns; /* its last fetch; 0: none yet */
    int64_t gave_ns;     /* we had all progress made there when it had our answer of then */
    int64_t told_confirmed;
    struct ha_held tables_held; /* what it held when tables were sent last */
    int64_t tables_ns;          /* when; 0: never */
    int64_t paced_ns;           /* far behind: when the bytes sent are due by the pace */
    int64_t busy_end, busy_ns;  /* our end when it was far behind, and when that had grown */
    int64_t window_ns;          /* of the rate */
    uint64_t window_bytes;
    double rate;
};

/* What was told by on_confirmed and on_progress_seen. */
struct told {
    int64_t confirmed;
    bool alone;
    uint64_t progress;
};

struct source {
    struct source_options options;
    struct env env;
    const struct ha_options *ha;

    /* Read without the lock by whoever appends or commits. */
    _Atomic int64_t end;         /* the store's, as told by on_end */
    _Atomic uint64_t changes;    /* of tables and progress, as told by on_change */
    _Atomic uint32_t parked;     /* sessions with a parked fetch */
    _Atomic bool own_end_counts; /* appending alone moves confirmed: nobody else counts */
    _Atomic bool change_pending; /* the task was woken for a change */

    struct lock lock; /* HA_SOURCE: the rest */
    struct session sessions[SOURCE_SESSIONS_MAX];
    struct fetch *cold; /* newest first */
    int64_t planned_ns; /* when the task comes again */
    bool stopping, open;
    struct insync insync;  /* once open */
    int64_t confirmed;     /* outlives a closing */
    int64_t retry_save_ns; /* not before; 0: at once */
    struct told now, told;
    bool telling;
};

/* ---- source.c ---- */

/* NULL: there is none with this number and peer. @locks holds:HA_SOURCE */
struct session *source_session(struct source *source, uint64_t number, uint64_t peer_id);
/* Its fetch, if parked, goes to *orphans; the in-sync set hears that the link is down. @locks
 * holds:HA_SOURCE */
void source_end_session(struct source *source, struct session *session, struct fetch **orphans);
/* Answers fetches whose session is over. @locks none */
void source_answer_orphans(struct fetch *orphans);
/* Takes a parked fetch out. @locks holds:HA_SOURCE */
struct fetch *source_unpark(struct source *source, struct session *session);
/* The task comes at the latest then. @locks holds:HA_SOURCE */
void source_plan(struct source *source, int64_t at_ns);
/* A claim that cannot be true: ends the session, answers, closes the peer, logs. @locks none */
void source_refuse_claim(struct source *source, struct rpc_request *request, uint64_t session,
                         const char *what);

/* ---- source_fetch.c ---- */

enum server { SERVED_BY_LINK, SERVED_BY_APPENDER, SERVED_BY_TASK };
/* Answers, parks, or hands to the task. Takes the fetch. @locks none */
void source_serve(struct source *source, struct fetch *fetch, enum server by);

/* ---- source_insync.c ---- */

/* Tells the set what a session's member has. Then source_tell(). @locks holds:HA_SOURCE */
void source_feed(struct source *source, struct session *session, const struct store_positions *at,
                 int64_t now_ns);
/* Recomputes what is confirmed. @locks holds:HA_SOURCE */
void source_recount(struct source *source, int64_t now_ns);
/* Tells the broker what has changed since it was told, in order. @locks none */
void source_tell(struct source *source);
/* Does what the set needs the disk for; returns when to come again. @thread ha task */
int64_t source_step_insync(struct source *source, int64_t now_ns);

/* Fetches and reports are separate streams, each in order. */
static inline struct position session_position(const struct session *session)
{
    struct position at = session->fetched;
    if (at.appended < session->reported.appended)
        at.appended = session->reported.appended;
    if (at.flushed < session->reported.flushed)
        at.flushed = session->reported.flushed;
    if (at.dispatched < session->reported.dispatched)
        at.dispatched = session->reported.dispatched;
    return at;
}

#endif
