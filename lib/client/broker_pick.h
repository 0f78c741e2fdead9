/*
 * Which address of a broker set to talk to, and what the brokers suggest: the wanted id when it can
 * be reached, else another of the same brokerName. Every address of a set serves the same offsets,
 * so that a pull may go on at any of them.
 *
 *   wanted id ──► up, or never failed? ──yes──► it
 *                     │ no
 *                     ▼
 *   next in order (wanted + 1, then by id) … all failed: the first, it may be back
 *
 * An address that failed is remembered in a short list, and comes back into use when its connection
 * is up again and its penalty has passed.
 */
#ifndef CLIENT_BROKER_PICK_H
#define CLIENT_BROKER_PICK_H

#include "base/lock.h"
#include "client/instance.h"

enum {
    FAILED_ADDRESSES_MAX = 64, /* the oldest is forgotten first */
    HUNG_PENALTY_MS = 10000    /* after a time-out: connected, but silent */
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
/* Whether the code means that another address may do better. */
bool code_means_unreachable(enum tern_code code);

struct broker_choice {
    struct rpc_peer *peer; /* the caller's: rpc_peer_unref() */
    int64_t broker_id;
    bool has_others; /* the set has further addresses */
};

/*
 * A peer of brokerName in the route. master_only: nothing but id 0 will do. TERN_UNREACHABLE with a
 * text when the route has no such address. @thread any @locks takes:CONSUMER
 */
MUST_CHECK enum tern_code broker_pick(struct instance *instance, struct failed_addresses *failed,
                                      const struct route *route, const char *broker_name,
                                      int64_t wanted_id, bool master_only,
                                      struct broker_choice *out, struct tern_error *err);
/* The same with the cached route of a topic; asks for the route again when it does not help. */
MUST_CHECK enum tern_code broker_pick_cached(struct instance *instance,
                                             struct failed_addresses *failed,
                                             const struct tern_queue *queue, int64_t wanted_id,
                                             bool master_only, struct broker_choice *out,
                                             struct tern_error *err);

/*
 * Asks the master of brokerName and waits; when it cannot be reached, the other addresses of the
 * set. *out is the caller's: the answer, also of a refusal, or NULL. @thread not-link @locks none
 */
MUST_CHECK enum tern_code broker_ask(struct instance *instance, struct failed_addresses *failed,
                                     const struct route *route, const char *broker_name,
                                     TernRequest *request, struct rpc_call **out,
                                     struct tern_error *err);

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
