/*
 * The inside of a transaction producer:
 *
 *   transaction.c        life, sending
 *   transaction_end.c    telling outcomes to brokers
 *   transaction_known.c  outcomes that this process remembers
 *   transaction_check.c  checks: queue, threads, answers
 *   message_half.c       half messages
 *
 * The lock, TRANSACTION, protects the queue of checks and what is known; it is taken for a few
 * instructions, also within CLIENT when a check arrives.
 */
#ifndef CLIENT_TRANSACTION_INTERNAL_H
#define CLIENT_TRANSACTION_INTERNAL_H

#include <tern/transaction.h>

#include "base/metrics.h"
#include "client/namespace.h"
#include "client/producer_internal.h"

enum {
    CHECK_THREADS_MAX = 16,
    CHECKS_QUEUED_MAX = 2000, /* RocketMQ's checkRequestHoldMax */
    LISTEN_TOPICS_MAX = 64,
    OUTCOMES_KEPT = 4096, /* untold ones; the oldest is forgotten */
    HALF_ID_BYTES = 57
};

/* A transaction of this process. */
struct known {
    UT_hash_handle hh; /* by id */
    char id[HALF_ID_BYTES];
    bool running; /* execute() has not come back */
    enum tern_transaction_outcome outcome;
    struct known *prev, *next; /* those that wait to be told, oldest first */
};

/* A check that waits for a thread. */
struct check {
    struct check *next;
    struct rpc_peer *peer; /* of the broker that asked; a reference */
    int64_t half_off, phys_off;
    char id[HALF_ID_BYTES];
};

struct tern_transaction_producer {
    struct tern_producer *producer;
    const struct env *env;
    struct instance *instance;
    struct tern_transaction_listener listener;
    struct instance_checker checker;
    int check_threads;
    char *topics[LISTEN_TOPICS_MAX]; /* fixed from start on */
    size_t topic_count;
    bool started; /* the caller's: start, shutdown and setters are not called at once */

    struct lock lock; /* TRANSACTION; protects the rest but the counters */
    struct task *tasks[CHECK_THREADS_MAX];
    struct check *checks, **checks_end;
    struct check *running; /* taken by a task, not answered yet */
    uint32_t check_count;
    struct known *known;  /* all */
    struct known *untold; /* list */
    uint32_t untold_count;

    int64_t routes_ns; /* the first task's: when routes are asked for again */
    _Atomic uint64_t committed, rolled_back, unknown, answered, remembered, dropped;
};

/* ---- transaction_end.c ---- */
/* Which transaction, and what became of it. */
struct end_told {
    int64_t half_off, phys_off;
    const char *id;
    enum tern_transaction_outcome outcome; /* COMMIT or ROLLBACK */
    bool from_check;
};
/*
 * Tells it, again while that may help, until the deadline. peer: where it is, or NULL: by the
 * topic's route and the broker's name. Codes as tern_transaction_result.told. @thread not a
 * callback
 */
enum tern_code transaction_tell(struct tern_transaction_producer *producer, struct rpc_peer *peer,
                                const struct tern_queue *queue, const struct end_told *told,
                                int64_t deadline_ns, struct tern_error *err);

/* ---- transaction_known.c ---- */
/* false: no memory. */
bool known_begin(struct tern_transaction_producer *producer, const char *id);
/* Its outcome waits to be told. */
void known_decided(struct tern_transaction_producer *producer, const char *id,
                   enum tern_transaction_outcome outcome);
/* It was told, or nobody needs to know it any more. */
void known_forget(struct tern_transaction_producer *producer, const char *id);
enum known_state { KNOWN_NOT, KNOWN_RUNNING, KNOWN_DECIDED };
enum known_state known_look(struct tern_transaction_producer *producer, const char *id,
                            enum tern_transaction_outcome *outcome);
void known_fini(struct tern_transaction_producer *producer);

/* ---- transaction_check.c ---- */
/* instance_checker.on_check */
bool transaction_on_check(void *arg, struct rpc_peer *peer,
                          const Tern__Wire__CheckTransactionEvent *event);
MUST_CHECK enum tern_code checks_start(struct tern_transaction_producer *producer,
                                       struct tern_error *err);
/* Waits for those under way, drops the rest. */
void checks_stop(struct tern_transaction_producer *producer);

#endif
