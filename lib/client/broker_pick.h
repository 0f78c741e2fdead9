/*
 * Which address of a broker set to talk to, and what the brokers suggest: the wanted id when it can
 * be reached, else another of the same brokerName. Every address of a set serves the same offsets,
 * so that a pull may go on at any of them.
 *
 *   wanted id ──► not known to be away, nor shunned? ──yes──► it
 *                     │ no
 *                     ▼
 *   next in order (second wanted, wanted + 1, then by id) … none is good: the first that is only
 *   shunned, else the first, it may be back; the choice says so
 *
 * Two memories of failures. An address where a call found nobody, or silence, is remembered for
 * everybody in a short list, and comes back into use when its connection is up again and its
 * penalty has passed. An id that answered, but not with what was wanted (a slave that is behind, a
 * master that recovers), is shunned for a while by whoever asked: a queue, or one question.
 */
#ifndef CLIENT_BROKER_PICK_H
#define CLIENT_BROKER_PICK_H

#include "base/lock.h"
#include "client/instance.h"

enum {
    FAILED_ADDRESSES_MAX = 64, /* the oldest is forgotten first */
    HUNG_PENALTY_MS = 10000,   /* after a time-out: connected, but silent */
    SETTLED_MS = 5000 /* after so long a client's peers have found a broker that came back */
};

struct failed_addresses {
    struct lock lock;
    size_t count; /* lock protects all */
    struct {
        char address[ADDRESS_BYTES];
        int64_t until_ns;
    } items[FAILED_ADDRESSES_MAX];
};

void failed_addresses_init(struct failed_addresses *failed);
void failed_addresses_fini(struct failed_addresses *failed);
/* A call there ended with `code`; remembered when that says the peer is away or hangs. @thread any
 */
void failed_addresses_note(struct failed_addresses *failed, const char *address,
                           enum tern_code code, int64_t now_ns);
/* Remembered until then whatever its connection does: it answered that it cannot. @thread any */
void failed_addresses_decline(struct failed_addresses *failed, const char *address,
                              int64_t until_ns);
/* Whether the code means that nobody was reached there. */
bool code_means_unreachable(enum tern_code code);
/* Whether the code means that another address of the set may do better: also busy, stopping,
 * recovering, progress not known there. */
bool code_means_elsewhere(enum tern_code code);

/* ---- shunned ids; protected by whoever owns them ---- */

enum { SHUNNED_MAX = 8 };

struct broker_shuns {
    struct {
        int64_t id;
        int64_t until_ns; /* 0: free */
    } items[SHUNNED_MAX];
};

/* Not this id before until_ns (SCHED_NEVER allowed); the one that ends first makes room. */
void broker_shun(struct broker_shuns *shuns, int64_t id, int64_t until_ns);

/* ---- choosing ---- */

struct broker_wish {
    int64_t id;                       /* wanted; 0: the master */
    int64_t second_id;                /* preferred after that; as id when there is none */
    bool master_only;                 /* nothing but id 0 will do */
    bool settled;                     /* rather one that was connected for a while already */
    const struct broker_shuns *shuns; /* may be NULL */
};

struct broker_choice {
    struct rpc_peer *peer; /* the caller's: rpc_peer_unref() */
    int64_t broker_id;
    bool good;        /* neither known to be away nor shunned */
    int64_t again_ns; /* not good, but only shunned: until then; else 0 */
};

/*
 * A peer of brokerName in the route. TERN_UNREACHABLE with a text when the route has no address
 * that will do. Those that are away are dialled anew. @thread any @locks takes:CONSUMER
 */
MUST_CHECK enum tern_code broker_pick(struct instance *instance, struct failed_addresses *failed,
                                      const struct route *route, const char *broker_name,
                                      const struct broker_wish *wish, struct broker_choice *out,
                                      struct tern_error *err);
/* The same with the cached route of a topic; asks for the route again when it does not help. */
MUST_CHECK enum tern_code broker_pick_cached(struct instance *instance,
                                             struct failed_addresses *failed,
                                             const struct tern_queue *queue,
                                             const struct broker_wish *wish,
                                             struct broker_choice *out, struct tern_error *err);

/*
 * Asks the master of brokerName and waits; when that cannot be reached or cannot tell, the other
 * addresses of the set. *out is the caller's: the answer, also of a refusal, or NULL; *answered_id
 * (may be NULL) whose it is. @thread not-link @locks none
 */
MUST_CHECK enum tern_code broker_ask(struct instance *instance, struct failed_addresses *failed,
                                     const struct route *route, const char *broker_name,
                                     TernRequest *request, struct rpc_call **out,
                                     int64_t *answered_id, struct tern_error *err);

/* ---- suggestions: which broker id to ask for a queue ---- */

enum { SUGGESTIONS_MAX = 65536 }; /* further ones are not remembered, which costs speed only */

struct broker_suggestion;

struct broker_suggestions {
    struct lock lock;
    struct broker_suggestion *table; /* lock; queues whose id is the master's need no entry */
};

void broker_suggestions_init(struct broker_suggestions *suggestions);
void broker_suggestions_fini(struct broker_suggestions *suggestions);
/* The queue with every unused byte 0, as the table wants it; false when a name is not terminated.
 */
bool broker_queue_key(const struct tern_queue *queue, struct tern_queue *key);
int64_t broker_suggested(struct broker_suggestions *suggestions, const struct tern_queue *key);
void broker_suggest(struct broker_suggestions *suggestions, const struct tern_queue *key,
                    int64_t broker_id);

#endif
