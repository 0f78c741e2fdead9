/*
 * The replica's parts, for replica.c (life, phases), replica_greet.c (the handshake),
 * replica_plan.c (what it means for our log), replica_settle.c (doing that), replica_copy.c
 * (chunks) and replica_report.c.
 */
#ifndef HA_REPLICA_INTERNAL_H
#define HA_REPLICA_INTERNAL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/log.h"
#include "broker/ha/replica.h"
#include "rpc/gate.h"

enum {
    REPLICA_HANDSHAKE_MS = 3000, /* patience with the answer */
    REPLICA_SILENCE_MS = 3000,   /* beyond what a fetch may be parked: the source counts as lost */
    REPLICA_RETRY_MIN_MS = 200,
    REPLICA_RETRY_MAX_MS = 1000,
    REPLICA_RETRY_SLOW_MS = 5000, /* after what only an operator can change */
    REPLICA_BUSY_MIN_MS = 50,
    REPLICA_BUSY_MAX_MS = 2000,
    REPLICA_TELL_MS =
        100, /* between reports of flushed and dispatched ends that nobody waits for */
    REPLICA_STUCK_MS = 1000,     /* before progress that the source could not take goes again */
    REPLICA_COMPLAIN_MS = 30000, /* the same words are logged again then */
    REPLICA_TEXT_BYTES = 256,
    REPLICA_ARENA_BYTES = FRAME_HEADER_MAX
};

/* ---- what a handshake means for our log (pure) ---- */

enum replica_verdict {
    REPLICA_GO_ON,       /* our end is the common point */
    REPLICA_TABLES_ONLY, /* RECOVER: the source has nothing that we lack */
    REPLICA_BEGIN,       /* our store is empty: it begins at `at` */
    REPLICA_CUT,         /* what lies behind `at` is saved and cut */
    REPLICA_RESET,       /* the whole store is saved aside and begins at `at` */
    REPLICA_DETACH,      /* no common epoch */
    REPLICA_REFUSE_CUT,  /* our epoch is not below the source's: only forceOpen there lets us be cut
                          */
    REPLICA_REFUSE       /* RECOVER: it would cost our own bytes and was not forced */
};

struct replica_plan {
    enum replica_verdict verdict;
    int64_t at; /* TABLES_ONLY: where the source lets a session begin */
    bool has_common;
    int64_t common_end;
    bool foreign; /* RESET: the two logs have nothing in common */
    char why[REPLICA_TEXT_BYTES];
};

struct replica_question {
    const struct ha_member *own, *source;
    bool recover, force;
    bool rejoin; /* an operator gave up what is here */
};

void replica_plan(const struct replica_question *question, struct replica_plan *out);

/* ---- the replica ---- */

enum replica_purpose { REPLICA_NOTHING, REPLICA_FOLLOW, REPLICA_RECOVER };

enum replica_phase {
    REPLICA_IDLE,
    REPLICA_WAITING, /* until retry_ns */
    REPLICA_GREETING,
    REPLICA_SETTLING,
    REPLICA_COPYING,
    REPLICA_APART /* no common epoch */
};

struct replica_target {
    enum replica_purpose purpose;
    bool force;
    char address[HA_ADDRESS_BYTES];
};

/* An attachment to a source. Set by the ha task before COPYING begins, fixed until it has ended. */
struct replica_session {
    uint64_t id;
    bool recover;
    bool sync_flush;
    bool tables_only;
    bool take_tables; /* whatever their version: ours are of no account */
    int64_t from;     /* the last fetch's; tables_only: all are from here */
    int64_t goal;     /* RECOVER: the source's end at the handshake */
};

struct replica {
    struct replica_options options;
    const struct env *env;
    struct store *store;
    const struct ha_tables *tables;
    _Atomic uint32_t refs;   /* the owner's, and one per call under way */
    struct rpc_gate gate;    /* whoever works here; shut by replica_stop() */
    _Atomic bool attached;   /* COPYING to follow: a cheap look for those who tell */
    _Atomic bool change_due; /* own progress has moved and was not reported */

    struct lock lock; /* HA_REPLICA, down to the next comment */
    struct replica_target target;
    bool rejoin;
    enum replica_phase phase;
    uint64_t generation; /* answers to calls of an older one are dropped */
    uint32_t inside;     /* threads that work for the session; the next one waits for them */
    int64_t retry_ns;
    int64_t backoff_ms; /* 0: no failure since the last answer to a fetch */
    bool has_event;     /* `event` is to be told by the ha task */
    enum replica_event event;
    bool unfit;              /* the store is being cut or reset, or has to be */
    struct rpc_call *answer; /* SETTLING: to the handshake; COPYING: to a fetch, for the ha task */
    struct replica_session session;
    struct ha_held held;  /* what we have of the source's tables */
    struct ha_held given; /* what the source has of ours: progress only */
    struct ha_epoch last; /* our last epoch; number 0: none */
    int64_t told_flushed, told_dispatched;
    bool alone;          /* the owner knows that there is no source */
    int64_t taken_ns;    /* a master that recovers asked for our progress then; 0: none does */
    int64_t greet_ns;    /* the last attempt to reach a source began */
    bool promises_anew;  /* it is gone again: to be told */
    int64_t confirmed;   /* as told last while there was one */
    bool confirmed_told; /* in this session */
    bool fetch_out;      /* a fetch is under way */
    bool report_out;     /* a report is being made or under way */
    bool report_gives;   /* it carries progress */
    bool report_missed;  /* another was wanted meanwhile */
    int64_t stuck_ns;    /* progress could not be given: not again before; SCHED_NEVER: it could */
    int64_t tell_ns;     /* look then whether flushed or dispatched moved; SCHED_NEVER: no need */
    char text[REPLICA_TEXT_BYTES];
    char complaint[REPLICA_TEXT_BYTES];
    int64_t complained_ns;
    bool source_known;
    struct ha_member source;
    uint64_t
        agrees_with; /* number of the epoch that a source was in when our log agreed with its */
    uint64_t cut_bytes;
    int64_t window_ns; /* transfer rate: since then window_bytes came */
    uint64_t window_bytes;
    double rate;

    /* the ha task's */
    struct rpc_peer *peer;         /* also of those inside */
    struct replica_target greeted; /* what the answer under way is for */
    struct ha_member self, incoming;
    struct arena arena;
    bool refuses_cut; /* the next handshake says so */
    bool refused_cut; /* and one has said so before */
    bool has_cut;     /* not told to a source yet */
    int64_t cut_at;
    uint64_t life;          /* of the source that `held` and `given` speak of */
    uint64_t foreign_until; /* own changes up to here belong to a log that was given up */

    /* who holds report_out */
    struct arena report_arena;
};

/* ---- replica.c ---- */

struct replica *replica_hold(struct replica *replica); /* for a call's callback */
void replica_drop(struct replica *replica);

/* Joins the session of this generation; false: it has ended. Each true wants a replica_leave(). */
MUST_CHECK bool replica_enter(struct replica *replica, uint64_t generation);
void replica_leave(struct replica *replica);

/*
 * Ends what goes on in this generation, logs why, and tries again in delay_ms (0: in 200 ms,
 * growing to a second). A take ends for good; TERN_STATE then means that it needs force. @thread
 * any
 */
void replica_end(struct replica *replica, uint64_t generation, int64_t delay_ms,
                 enum tern_code code, const char *fmt, ...) PRINTF_LIKE(5, 6);
/* To the handshake again at once, silently: our log has changed. */
void replica_again(struct replica *replica, uint64_t generation);
void replica_set_text(struct replica *replica, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Logs, but the same words only every REPLICA_COMPLAIN_MS. */
void replica_complain(struct replica *replica, enum log_level level, const char *event,
                      const char *text);

/* ---- the steps of the ha task ---- */

void replica_greet(struct replica *replica);
void replica_settle(struct replica *replica, struct rpc_call *answer, uint64_t generation);
/* Does what the plan says; false: the session does not begin (everything was told). */
MUST_CHECK bool replica_carry_out(struct replica *replica, const struct replica_plan *plan,
                                  uint64_t generation);
void replica_copy_on(struct replica *replica, struct rpc_call *answer, uint64_t generation);

/* ---- copying, reporting ---- */

/* Asks for what comes next. @thread of one who is inside, or the ha task */
void replica_fetch(struct replica *replica, uint64_t generation);
/* Sends a report when one is due; tell: also for ends that nobody waits for. @thread any */
void replica_report(struct replica *replica, bool tell);

#endif
