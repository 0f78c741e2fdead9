/*
 * The inside of a push consumer, shared by push_*.c and rebalance.c. Read this first.
 *
 *   push_consumer.c   life cycle, the control task
 *   push_subscribe.c  subscriptions
 *   rebalance.c       which queues are ours: sharing, their objects, the round over them
 *   push_members.c    asking who is in the group
 *   push_check.c      a start's question whether a broker takes the expressions
 *   push_offsets.c    where a queue begins, and its progress at the broker
 *   push_store.c      progress in a local file or in the application's own store
 *   push_broadcast.c  what broadcasting does otherwise
 *   push_pull.c       one pull under way per queue, answers into the window and to the pool
 *   push_consume.c    the pool: messages that wait, workers, listeners
 *   push_order.c      orderly consumers: a queue's batches one by one (push_order.h)
 *   push_locks.c      orderly consumers: a lease on each queue
 *   push_release.c    … and giving it back
 *   push_trace.c      what the trace is told
 *   message_retry.c   failed messages: sent back, or tried again here
 *   consume_timeout.c listeners that take too long
 *
 *                 ┌───────────── control task (never waits) ─────────────┐
 *    rebalance ──►│ NEW ──► ASKING ──► READY ◄──► PULLING                │
 *                 │          (start     │            │ answer            │
 *                 │          offset)    ▼            ▼                   │
 *                 │               MOVING ◄── reset, offset illegal       │
 *                 └──────────────────────────────────────────────────────┘
 *                                          │ chunks of messages
 *                                          ▼
 *                    pool of workers ──► listener ──► window_mark() ──► commit point
 *
 * A queue that must begin elsewhere is never rewound: it is dropped, and a new object takes its
 * place, so that late answers and late marks of the old one fall into a window nobody reads (their
 * generation).
 *
 * Threads: the control task moves queues between states; ASKING and PULLING belong to the callback
 * of the one call under way, which hands the queue back. Workers mark windows without locks.
 * Application threads start, stop and subscribe.
 *
 * Locks: consumer->lock, pool.lock and failed.lock are all of rank CONSUMER and never nested;
 * nothing is called with one held but task_wake(), which takes none.
 *
 * References: the handle, every queue and every call hold the consumer; lists, chunks and calls
 * hold queues.
 */
#ifndef CLIENT_PUSH_INTERNAL_H
#define CLIENT_PUSH_INTERNAL_H

#include <tern/consumer.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/names.h"
#include "base/sched.h"
#include "base/subscription.h"
#include "client/allocation.h"
#include "client/broker_pick.h"
#include "client/consumer_options.h"
#include "client/instance.h"
#include "client/local_offsets.h"
#include "client/push_order.h"
#include "client/window.h"
#include "rpc/client.h"

#define PUSH_MAGIC 0x5455534855434F4EULL

enum {
    PULL_SUSPEND_MS = 15000, /* how long a broker holds a pull */
    PULL_TIMEOUT_MS = 30000,
    FLOW_PAUSE_MS = 50,
    SUSPENDED_PAUSE_MS = 1000, /* between looks whether the consumer was resumed */
    ERROR_PAUSE_MS = 3000,
    ELSEWHERE_PAUSE_MS = 50, /* before the second try of another address of the set */
    ELSEWHERE_MAX_MS = 1000, /* what such pauses grow to */
    SLAVE_SUSPEND_MS = 1000, /* how long a slave holds a pull: then the master is looked for */
    MASTER_LOOK_MS = 1000,   /* between looks for the master of a queue read at a slave */
    REFUSED_MS = 1000,       /* who refused to serve is not asked again sooner */
    START_ASK_MS = 200,      /* between questions where to begin; grows to ELSEWHERE_MAX_MS */
    BROKER_FLOW_PAUSE_MS = 20,
    QUICK_ANSWER_MS = 50, /* "nothing new" sooner than that was not a long poll */
    REBALANCE_MS = 20000,
    ROUTE_WAIT_MS = 1000, /* between looks for a route that was missing */
    QUEUE_IDLE_MS = 120000,
    LOCAL_RETRY_MS = 5000,
    SEND_BACK_TIMEOUT_MS = 5000,
    LEAVE_COMMITS_MAX = 3, /* attempts to commit a queue that is ours no more */
    PUSH_DEAD_LETTER_LEVEL = -1,
    PUSH_TOPICS_MAX = 1024
};

/* One row per state: name in texts. */
#define PUSH_STATE_TABLE(X)                                                                        \
    X(CREATED, "created")                                                                          \
    X(STARTING, "starting")                                                                        \
    X(RUNNING, "running")                                                                          \
    X(START_FAILED, "start failed")                                                                \
    X(STOPPING, "shutting down")                                                                   \
    X(SHUT_DOWN, "shut down")

enum push_state {
#define PUSH_STATE_ENUM_(name, text) PUSH_##name,
    PUSH_STATE_TABLE(PUSH_STATE_ENUM_)
#undef PUSH_STATE_ENUM_
};

/* What a topic's messages must match; immutable, shared by the topic, its queues and its pulls. */
struct push_filter {
    _Atomic uint32_t refs;
    struct subscription *tags; /* tags, or an SQL92 condition */
    int64_t version;           /* wall clock ms of the change, rising */
};

/* The answer to "who is in the group", as it came. */
struct push_members {
    size_t count;
    char *ids[]; /* into one block behind */
};

/* A topic that was ever subscribed to; lives as long as the consumer. */
struct push_topic {
    struct push_topic *next; /* set once; the list only grows at its head (consumer->lock) */
    struct tern_push_consumer *consumer;
    char name[128];
    bool retry;                 /* %RETRY%group */
    struct push_filter *filter; /* consumer->lock; NULL: not subscribed now */
    /* consumer->lock: the call's answer on its way to the control task */
    bool asking, answered;
    bool elsewhere;              /* failed at this address; another of the set may know */
    struct push_members *answer; /* NULL: failed */
    /* the control task's */
    size_t next_broker; /* whom to ask */
    bool again;         /* ask once more after the answer under way */
    bool complained;    /* no route: logged once */
    bool shared;        /* its queues were shared once */
};

struct offset_version {
    uint64_t epoch, counter;
    uint32_t cohort; /* of an isolated group, opaque */
};

static inline struct offset_version offset_version_of(const Tern__Wire__OffsetVersion *wire)
{
    return (struct offset_version){wire->epoch, wire->counter, wire->cohort};
}
static inline void offset_version_fill(Tern__Wire__OffsetVersion *wire,
                                       const struct offset_version *version)
{
    wire->epoch = version->epoch;
    wire->counter = version->counter;
    wire->cohort = version->cohort;
}

static inline bool offset_version_newer(const Tern__Wire__OffsetVersion *wire,
                                        const struct offset_version *than)
{
    return wire && (wire->epoch > than->epoch ||
                    (wire->epoch == than->epoch && wire->counter > than->counter));
}

enum queue_state { QUEUE_NEW, QUEUE_ASKING, QUEUE_READY, QUEUE_PULLING, QUEUE_MOVING };

/* A queue that is (or was) ours; RocketMQ's ProcessQueue and PullRequest in one. */
struct push_queue {
    struct push_queue *next; /* consumer->queues or ->leaving; consumer->lock */
    _Atomic uint32_t refs;
    struct tern_push_consumer *consumer; /* holds a reference */
    struct tern_queue id;
    _Atomic bool dropped;   /* set once, with consumer->lock */
    _Atomic bool hurry;     /* a worker made room: no need to wait for due_ns */
    _Atomic bool throttled; /* flow control waits for room */

    /* consumer->lock */
    enum queue_state state;
    int64_t due_ns; /* NEW, READY, MOVING: when the control task looks again */
    struct push_filter *filter;
    struct rpc_peer *peer; /* of the last pull; NULL: choose */
    int64_t peer_id;
    bool committing;
    bool no_commit;    /* reset at the broker: our progress means nothing any more */
    int64_t committed; /* what the broker has acknowledged, -1: nothing */
    unsigned leave_attempts;
    bool positioned;  /* window and next_offset mean something */
    bool store_asked; /* ASKING: waits for the store task */

    /* the state's owner's: control task, or callback in ASKING and PULLING */
    int64_t next_offset; /* of the next pull */
    int64_t newest;      /* highest offset delivered, -1: none */
    int64_t suggested_id;
    int64_t asked_id;    /* broker id that the call under way went to */
    int64_t peer_wanted; /* the suggestion that `peer` was chosen for */
    int64_t look_ns;     /* when to choose anew, since peer is not the one wanted */
    struct broker_shuns shuns;
    struct offset_version version;
    _Atomic int64_t active_ns; /* the loop's last sign of life */
    int64_t pulled_ns;         /* start of the call under way */
    int64_t moved_offset;      /* MOVING: where to begin anew */
    struct offset_version moved_version;
    bool moved_reset;       /* MOVING: by the broker's word, drop what is in flight */
    unsigned failures;      /* errors, or answers without progress, in a row */
    uint64_t flow_waits[3]; /* by cause */

    /* flow control's limits: the queue's share of the topic's, or the queue's own */
    _Atomic int64_t limit, limit_bytes;
    _Atomic uint32_t cached; /* messages waiting or running */
    _Atomic int64_t cached_bytes;
    struct window window;

    /* orderly consumers only */
    struct push_order order;
    struct push_lease lease;
};

/* Messages of one pull, handed to the pool as a whole; workers claim them batch by batch. */
struct push_chunk {
    struct push_chunk *prev, *next; /* pool.lock */
    bool listed;                    /* in pool.open; pool.lock */
    struct push_queue *queue;       /* holds a reference */
    _Atomic uint32_t refs;
    _Atomic uint32_t claimed; /* may run past count */
    uint32_t count;
    /* of a single message that failed (message_retry.c) */
    int64_t due_ns;      /* of the local retry */
    int32_t delay_level; /* asked for */
    bool send_only;      /* the listener has seen it often enough: only sending back is tried */
    bool copied;         /* the call under way is of the copy */
    struct push_chunk *after; /* orderly: the queue's next one; pool.lock */
    struct tern_message *messages[];
};

enum { BATCH_NONE, BATCH_RUNNING, BATCH_EXPIRED };

struct push_worker {
    struct tern_push_consumer *consumer;
    struct task *task;
    bool awake; /* pool.lock */
    /* the batch in the listener: published by state, read with pool.lock by who expires it */
    _Atomic int64_t since_ns; /* 0: no listener runs */
    _Atomic int state;
    struct push_queue *queue;
    struct tern_message **messages;
    uint32_t count;
};

struct push_pool {
    struct lock lock;
    struct push_chunk *fresh, *fresh_end; /* nobody has begun them */
    struct push_chunk *open;              /* begun, with messages left; newest first */
    struct push_chunk *later, *later_end; /* local retries by due time */
    uint32_t fresh_messages;
    struct push_worker **workers; /* room for options.threads; grows by one, never shrinks */
    _Atomic uint32_t worker_count;
    bool suspended, stopping;
    uint32_t running;           /* workers between take and put */
    struct latch *idle;         /* a shutdown waits until nobody runs and nothing waits */
    _Atomic bool halted;        /* suspended or stopping, for a look without the lock */
    _Atomic bool want_worker;   /* the control task starts one */
    _Atomic bool watching;      /* the control task looks every few ms */
    unsigned idle_steps;        /* the control task's */
    _Atomic int64_t average_ns; /* of the listener per message, smoothed */
};

/* Progress that is not the broker's; ops.query NULL: it is. */
struct push_store {
    struct tern_offset_store ops;
    struct local_offsets *local; /* NULL: the application's own */
    struct task *task;
    _Atomic bool commit_wanted;
};

struct tern_push_consumer {
    uint64_t magic;
    _Atomic uint32_t refs;
    struct tern_consumer_options options;
    struct allocation allocation; /* borrows from options */
    const struct env *env;
    struct instance *instance; /* the handle's */
    struct instance_consumer member;
    bool joined; /* in the instance's table */
    char retry_topic[sizeof RETRY_TOPIC_PREFIX + GROUP_NAME_MAX];
    tern_message_listener listener; /* one of these */
    tern_context_listener context_listener;
    tern_orderly_listener orderly_listener;
    void *listener_arg;
    bool orderly;      /* set by start */
    bool needs_leases; /* orderly, and the queues are shared */

    struct lock lock;
    _Atomic int state;         /* enum push_state; changed with lock */
    struct task *control;      /* lock */
    struct push_topic *topics; /* lock */
    /* lock; changed by the control task, or when it is stopped */
    struct push_queue *queues, *leaving;
    struct push_queue *releases; /* lock; linked by lease.next_release, each with its reference */
    struct latch *release_told;  /* lock: a shutdown waits for the next answer to one */
    bool releases_ended;         /* lock: what is under way is not tried again */
    uint32_t queue_count;        /* lock */
    uint32_t commits_open;       /* lock: commit calls under way */
    struct latch *commits_done;  /* lock: a shutdown waits for them */
    struct latch *begun;         /* lock: a start waits until all queues know where they begin */
    struct push_store store;
    int64_t started_ms; /* broadcasting: wall clock when start returned, once `started` */
    _Atomic bool started;

    _Atomic bool rebalance_wanted, commit_wanted;
    _Atomic bool claim_wanted; /* leases are to be asked for now, also those not due */
    int64_t rebalance_due_ns, commit_due_ns, expire_due_ns; /* the control task's */

    struct failed_addresses failed;      /* for questions about one queue */
    struct failed_addresses declined;    /* for commits and members */
    _Atomic unsigned commit_failures;    /* in a row */
    _Atomic int commit_failure;          /* enum tern_code of the last; a shutdown begins at OK */
    _Atomic unsigned send_back_failures; /* in a row */
    struct push_pool pool;
    struct trace *trace; /* NULL: not traced */

    _Atomic uint64_t pulled, consumed, failed_messages, sent_back, duplicates, flow_controlled;
    _Atomic uint64_t dropped_messages, sent_back_unknown;
};

/* ---- push_consumer.c ---- */

static inline enum push_state push_state(const struct tern_push_consumer *consumer)
{
    return (enum push_state)atomic_load_explicit(&consumer->state, memory_order_acquire);
}

void push_ref(struct tern_push_consumer *consumer);
void push_unref(struct tern_push_consumer *consumer);
/* Makes the control task look around. @thread any @locks takes:CONSUMER */
void push_wake(struct tern_push_consumer *consumer);
const char *push_state_text(enum push_state state);

/* ---- push_subscribe.c ---- */

void push_filter_unref(struct push_filter *filter); /* NULL allowed */
/* The start's part: %RETRY%group. Tells nobody. TERN_LIMIT, TERN_NO_MEMORY. @locks takes:CONSUMER
 */
MUST_CHECK enum tern_code push_subscribe_retries(struct tern_push_consumer *consumer,
                                                 struct tern_error *err);
/* For a heartbeat; arg: the consumer. false: no memory. @thread any @locks takes:CONSUMER */
MUST_CHECK bool push_describe(void *arg, struct arena *arena, Tern__Wire__ConsumerData *out);

/* ---- rebalance.c ---- */

/* Runs what is due; returns when it wants to run again. @thread control @locks takes:CONSUMER */
int64_t rebalance_step(struct tern_push_consumer *consumer, int64_t now_ns);

/*
 * A queue in state NEW, in no list yet; takes a reference to the filter. TERN_NO_MEMORY.
 */
MUST_CHECK enum tern_code push_queue_create(struct tern_push_consumer *consumer,
                                            const struct tern_queue *id, struct push_filter *filter,
                                            struct push_queue **out);
bool push_same_queue(const struct tern_queue *a, const struct tern_queue *b);
void push_queue_ref(struct push_queue *queue);
void push_queue_unref(struct push_queue *queue);
/* It is not ours any more; it stays in `leaving` until its progress is committed, and an orderly
 * one until its batch is done and its lease given back. @thread control */
void push_queue_drop(struct push_queue *queue);
/* Sets the starting point: READY at once. @thread the state's owner */
void push_queue_position(struct push_queue *queue, int64_t offset, int64_t committed,
                         const Tern__Wire__OffsetVersion *version);
/* Hands the queue back to the control task, due in delay_ms. @thread the state's owner */
void push_queue_yield(struct push_queue *queue, enum queue_state state, int64_t delay_ms);
/* Growing pause for the failures counted: first_ms, doubled each time, up to most_ms. */
int64_t push_queue_backoff_ms(struct push_queue *queue, int64_t first_ms, int64_t most_ms);
/* Not at the broker id that was asked last, for shun_ms: the next choice is another one, the master
 * before all. @thread the state's owner @locks takes:CONSUMER */
void push_queue_leave_address(struct push_queue *queue, int64_t shun_ms);
/* The peer of the last pull, taken out; the caller's, may be NULL. @locks takes:CONSUMER */
struct rpc_peer *push_queue_take_peer(struct push_queue *queue);
/* Leaves the queue and takes it again, as a new object. false, and nothing happened, without
 * memory.
 * @thread control */
MUST_CHECK bool push_queue_begin_anew(struct push_queue *queue, const char *why);
/* All queues whose time has come. @thread control */
int64_t push_queues_step(struct tern_push_consumer *consumer, int64_t now_ns);

/* ---- push_members.c ---- */

/* TERN_OK: asked; the answer will be with the topic, and the control task woken. @thread control */
MUST_CHECK enum tern_code push_members_ask(struct push_topic *topic, const struct route *route,
                                           struct tern_error *err);
/* What a question not about one queue came to at that address. @thread any */
void push_note_declined(struct tern_push_consumer *consumer, const struct rpc_peer *peer,
                        enum tern_code code);

/* ---- push_check.c ---- */

/*
 * Asks a broker of each topic whether it takes the condition. SUBSCRIPTION_PARSE_FAILED,
 * NOT_SUPPORTED and kin, with the broker's words: it does not. Brokers that are away decide
 * nothing.
 * @blocks until the deadline, and for calls under way @locks takes:CONSUMER
 */
MUST_CHECK enum tern_code push_check_expressions(struct tern_push_consumer *consumer,
                                                 int64_t deadline_ns, struct tern_error *err);

/* ---- push_pull.c ---- */

/*
 * Pulls when there is room, else READY again in a while. may_choose: looks for an address when the
 * last one will not do; a callback leaves that to the control task. @thread the state's owner
 */
void push_queue_pull(struct push_queue *queue, bool may_choose);
/* Flow control's limits of a new queue: as if it were the only one. */
void push_queue_init_limits(struct push_queue *queue);
/* The same of all queues of the topic, now that `owned` of them are ours. @thread control @locks
 * takes:CONSUMER */
void push_topic_set_limits(struct push_topic *topic, size_t owned);
/* All queues look at once whether they may pull. @thread any @locks takes:CONSUMER */
void push_queues_hurry(struct tern_push_consumer *consumer);

/* ---- push_offsets.c ---- */

/* Asks where a NEW queue begins; it is ASKING until the answer. @thread control */
void push_offsets_ask(struct push_queue *queue, int64_t now_ns);
/* Commits what changed when it is time. @thread control */
int64_t push_offsets_step(struct tern_push_consumer *consumer, int64_t now_ns);
/* Commits, and waits for the answers until the deadline. What the progress that no broker has taken
 * till then failed with; TERN_TIMEOUT: nobody said. @thread application */
MUST_CHECK enum tern_code push_offsets_flush(struct tern_push_consumer *consumer,
                                             int64_t deadline_ns);
/* What an ASKING queue comes to: it begins at the offset (committed: what is known there, -1
 * nothing), as the policy says, or asks again in a while. @thread the state's owner */
void push_queue_begin(struct push_queue *queue, int64_t offset, int64_t committed,
                      const Tern__Wire__OffsetVersion *version);
void push_queue_begin_by_policy(struct push_queue *queue);
void push_queue_ask_later(struct push_queue *queue, enum tern_code code, const char *what,
                          const char *reason);
/* Whether there is progress to be told. @locks holds:CONSUMER */
bool push_queue_commit_due(struct push_queue *queue);
/* Takes the queues out of `leaving` that have told everything, or often enough; a list by next, the
 * caller's references. @locks takes:CONSUMER */
struct push_queue *push_offsets_take_left(struct tern_push_consumer *consumer);

/* ---- push_store.c ---- */

static inline bool push_store_used(const struct tern_push_consumer *consumer)
{
    return consumer->store.ops.query != NULL;
}

/* Chooses and loads; nothing is used when the broker keeps progress. @blocks on the store */
MUST_CHECK enum tern_code push_store_open(struct tern_push_consumer *consumer,
                                          struct tern_error *err);
MUST_CHECK enum tern_code push_store_start(struct tern_push_consumer *consumer,
                                           struct tern_error *err);
/* As push_offsets_ask(). @thread control */
void push_store_ask(struct push_queue *queue);
/* Tells the store soon what changed, and forgets what has left. @thread control */
void push_store_commit(struct tern_push_consumer *consumer);
/* Ends the task, tells the rest, closes; returns what the last telling failed with, which is
 * logged. Also after a failed open. @blocks on the store */
enum tern_code push_store_close(struct tern_push_consumer *consumer);

/* ---- push_broadcast.c ---- */

/* Wakes a start that waits, when all queues know where they begin. @thread control */
void push_broadcast_look(struct tern_push_consumer *consumer);
/* Waits for that, then notes when it was; consumer->begun is the latch. @thread application */
void push_broadcast_wait(struct tern_push_consumer *consumer, struct latch *begun);
/* A message that failed: logged, counted, passed. Takes the message. @thread any */
void push_broadcast_drop(struct push_queue *queue, struct tern_message *message);

/* ---- push_chunks.c ---- */

/* NULL without memory. count messages are to be filled in; one reference, the caller's. */
struct push_chunk *push_chunk_create(struct push_queue *queue, uint32_t count);
void push_chunk_unref(struct push_chunk *chunk);
/* Messages that no worker has claimed yet. */
static inline uint32_t push_chunk_unclaimed(const struct push_chunk *chunk)
{
    uint32_t claimed = atomic_load_explicit(&chunk->claimed, memory_order_relaxed);
    return claimed < chunk->count ? chunk->count - claimed : 0;
}
/* Messages leave the consumer's hands, whatever became of them; unrefs them. */
void push_let_go(struct push_queue *queue, struct tern_message **messages, uint32_t count);
/* A chunk into the pool's lists, in its due time's place, and out of whichever it is in; the first
 * fresh one, of which there is one; a begun one into the open list, with the list's reference, and
 * out of it. @locks holds:CONSUMER (the pool's) */
void push_pool_insert_fresh(struct push_pool *pool, struct push_chunk *chunk);
void push_pool_insert_later(struct push_pool *pool, struct push_chunk *chunk);
void push_pool_take_out(struct push_pool *pool, struct push_chunk *chunk);
struct push_chunk *push_pool_pop_fresh(struct push_pool *pool);
void push_pool_open(struct push_pool *pool, struct push_chunk *chunk);
void push_pool_close(struct push_pool *pool, struct push_chunk *chunk);

/* ---- push_consume.c ---- */

MUST_CHECK enum tern_code push_pool_init(struct tern_push_consumer *consumer);
void push_pool_fini(struct tern_push_consumer *consumer);
/* Takes the chunk (and its messages). @thread any */
void push_pool_add(struct tern_push_consumer *consumer, struct push_chunk *chunk);
/* The same, to be worked on from chunk->due_ns on; due times must not fall from call to call. */
void push_pool_add_later(struct tern_push_consumer *consumer, struct push_chunk *chunk);
/* Brings in a worker when one more is needed. @thread any @locks takes:CONSUMER */
void push_pool_call_help(struct tern_push_consumer *consumer);
/* What a message took. @thread worker */
void push_pool_note_speed(struct push_pool *pool, int64_t sample_ns);
/* Around the listener. @thread worker */
void push_pool_enter_listener(const struct tern_push_consumer *consumer);
void push_pool_leave_listener(void);
/* Due retries, stuck or missing workers, expired listeners. @thread control */
int64_t push_pool_step(struct tern_push_consumer *consumer, int64_t now_ns);
void push_pool_suspend(struct tern_push_consumer *consumer, bool suspended);
/* Works off what waits until the deadline, then hands out no further message; true when no listener
 * runs. After the control task's end. @thread application */
MUST_CHECK bool push_pool_stop(struct tern_push_consumer *consumer, int64_t deadline_ns);
/* Waits for the workers, however long their listeners take. @thread application */
void push_pool_join(struct tern_push_consumer *consumer);
/* Frees what was never handed out. After push_pool_stop(). */
void push_pool_discard(struct tern_push_consumer *consumer);

/* Whether the calling thread is inside this consumer's listener. */
bool push_pool_in_listener(const struct tern_push_consumer *consumer);

/* ---- message_retry.c ---- */

/*
 * Sends a message of the queue back to its broker (level as on the wire), or keeps it for a local
 * retry. Takes the message. @thread any
 */
void push_send_back(struct push_queue *queue, struct tern_message *message, int32_t delay_level);
/* The same with a message that has a chunk of its own, even when the queue has left. Takes it. */
void push_send_back_chunk(struct push_chunk *chunk, int32_t delay_level);
/* A chunk of `later` that is send_only came due. Takes it. @thread control @locks none */
void push_send_again(struct push_chunk *chunk);

/* ---- consume_timeout.c ---- */

/* Batches that run for too long are sent back; returns when to look again. @thread control */
int64_t push_expire_step(struct tern_push_consumer *consumer, int64_t now_ns);

#endif
