/*
 * Mutexes with ranks. A thread may only take a lock of a higher rank than all it holds; debug
 * builds (TERN_DEBUG_CHECKS) abort when it does otherwise. Locks are held for a few instructions
 * and never while calling out: no callback, no I/O but the one the lock exists for, no other
 * module's function that locks.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>

/* From the outermost to the innermost. A new lock gets a row here. */
#define LOCK_RANK_TABLE(X)                                                                         \
    X(CLIENT_INSTANCE)  /* registry of client instances in a process */                            \
    X(CLIENT)           /* a client instance: routes, members, peers */                            \
    X(CONSUMER)         /* a push consumer's queues and windows */                                 \
    X(PRODUCER)         /* a producer's per-queue send order */                                    \
    X(TRANSACTION)      /* a transaction producer's checks and outcomes */                         \
    X(NAMESRV)          /* route tables, KV */                                                     \
    X(BROKER_CONFIG)    /* the configuration in effect */                                          \
    X(BROKER_FILES)     /* one writer of a table's file at a time */                               \
    X(BROKER_TABLES)    /* topics, groups */                                                       \
    X(BROKER_MEMBERS)   /* clients, subscriptions */                                               \
    X(BROKER_FILTERS)   /* compiled expressions */                                                 \
    X(BROKER_OFFSETS)   /* consumer offsets */                                                     \
    X(BROKER_EVENTS)    /* event channels to clients */                                            \
    X(BROKER_LANE)      /* queue of a request lane */                                              \
    X(BROKER_TX)        /* pending transactions */                                                 \
    X(BROKER_LOCKS)     /* queue locks of orderly consumers */                                     \
    X(BROKER_DELAY)     /* what delayed messages are told by other threads */                      \
    X(BROKER_REGISTRAR) /* state of registrations */                                               \
    X(HA)               /* what the parts of replication share */                                  \
    X(HA_OPENING)       /* how a master starts */                                                  \
    X(HA_REPLICA)       /* copying another's log */                                                \
    X(HA_SOURCE)        /* sessions, in-sync set */                                                \
    X(HA_EPOCHS)        /* the list of epochs */                                                   \
    X(HA_TASK)          /* whether replication's task runs */                                      \
    X(LONG_POLL)        /* one shard of parked pulls */                                            \
    X(ACK_WAIT)         /* sends waiting for flush or replication */                               \
    X(STORE_TEND)       /* one flush, expiry or removal of consume queues at a time */             \
    X(STORE_QUEUES)     /* table of consume queues */                                              \
    X(STORE_CQ_FILES)   /* writing one consume queue's files */                                    \
    X(STORE_CQ)         /* one consume queue */                                                    \
    X(STORE_INDEX_SYNC) /* one syncing of index files at a time */                                 \
    X(STORE_INDEX)      /* index files */                                                          \
    X(STORE_SEGMENTS)   /* list of commit log segments */                                          \
    X(STORE_APPEND)     /* queue of appends, token */                                              \
    X(STORE_FILES)      /* cache of open files */                                                  \
    X(RPC_CLIENT)       /* peers of an rpc client */                                               \
    X(RPC_PEER)         /* calls of one peer */                                                    \
    X(RPC_SERVER)       /* contexts, peers of a server */                                          \
    X(LINK)             /* inside a link implementation */                                         \
    X(METRICS)                                                                                     \
    X(LOG)

/* clang-format off */
enum lock_rank {
#define LOCK_RANK_ENUM_(name) LOCK_##name,
    LOCK_RANK_TABLE(LOCK_RANK_ENUM_)
#undef LOCK_RANK_ENUM_
    LOCK_RANK_COUNT
};
/* clang-format on */

struct lock {
    pthread_mutex_t mutex;
    enum lock_rank rank;
};

void lock_init(struct lock *lock, enum lock_rank rank);
void lock_fini(struct lock *lock);
void lock_acquire(struct lock *lock);
void lock_release(struct lock *lock);

/* Debug builds abort when this thread holds any lock; called before every wait and call-out. */
void lock_assert_none_held(void);

#endif
