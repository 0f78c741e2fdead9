/*
 * Orderly consumption inside a push consumer (RocketMQ: ConsumeMessageOrderlyService and the locks
 * of RebalanceImpl). docs/ordering.md tells it from outside.
 *
 *   push_locks.c   the lease on each queue: got before anything is asked about the queue, renewed
 *   push_release.c given back when the last message of it is done and its progress committed
 *   push_order.c   the queue's messages, one batch at a time, in the order of their offsets
 *
 *                      chunks of pulled messages
 *                               │ push_order_add
 *                               ▼
 *   IDLE ──first chunk──► POOL ──a worker takes it──► RUNS ──► listener
 *    ▲                     ▲ ▲                         │ │
 *    │                     │ └── success: the next ────┤ ├─ too often failed ─► AWAY: the broker
 *    └── nothing left ─────┼───── suspended: later ────┘ │    (dead letters) ─ stored ─► the next
 *                          └──── lease is there again ── PARKED: no lease
 *
 * Only the first chunk of a queue is ever with the pool, a worker or a call: whoever has it has the
 * queue's turn, and hands it on. So two workers never run one queue, whatever happens around them.
 *
 * A queue may leave at any moment: what waits is let go at once, a batch that runs goes on to its
 * end. The object stays in consumer->leaving until then; a new object for the same queue (it came
 * back, was reset, or its lease was lost) waits for the old one to go before it takes a lease.
 */
#ifndef CLIENT_PUSH_ORDER_H
#define CLIENT_PUSH_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <tern/consumer.h>

struct push_chunk;
struct push_queue;
struct push_worker;

enum {
    LEASE_MS = 30000,          /* as we see it; the broker keeps it for 60 s */
    LEASE_RENEW_MS = 10000,    /* after the last grant */
    LEASE_RETRY_MS = 1000,     /* after a renewal that got no answer */
    LEASE_WAIT_MS = 50,        /* between questions for a lease that others have; grows to … */
    LEASE_WAIT_MAX_MS = 500,   /* … this */
    LEASE_TELL_MS = 250,       /* between renewals that only tell how often a message failed */
    LEASE_LOOK_MS = 1000,      /* a queue without a lease shows that it lives */
    LEASE_QUEUES_MAX = 1024,   /* in one request */
    LEASE_GIVE_BACK_MS = 1000, /* how long a broker may take to take one back */
    ORDER_TURN_MS = 10         /* a worker goes to another queue after so long */
};

enum order_state {
    ORDER_IDLE,   /* nothing waits */
    ORDER_POOL,   /* the first chunk is in the pool's lists */
    ORDER_RUNS,   /* … with a worker */
    ORDER_AWAY,   /* a message is on its way to the dead letters */
    ORDER_PARKED, /* no lease */
};

/* A queue's messages in waiting; pool.lock. */
struct push_order {
    struct push_chunk *first, *last; /* linked by chunk->after; each with its reference */
    enum order_state state;
    bool closed;       /* the queue has left: nothing is added, nothing begins */
    uint32_t to_bury;  /* leading messages still to go to the dead letters; of who has the turn */
    _Atomic bool told; /* a failing message was told to the broker */
};

/* Its lease. */
struct push_lease {
    /* Work may begin before that; 0: not ours, INT64_MAX: no lease is needed. */
    _Atomic int64_t until_ns;
    /* consumer->lock */
    bool asking;    /* a request under way names it */
    bool known;     /* the broker may think that it is ours: to be given back */
    bool lost;      /* had, and ended: the queue must begin anew */
    int64_t due_ns; /* when to ask next */
    int64_t told_ns;
    unsigned waits;       /* refusals in a row */
    int64_t tries_offset; /* the message that failed last, and how often */
    int32_t tries;
    int64_t left_ns; /* when the queue was dropped */
    int64_t grant;   /* the broker's number of it; 0: none yet */
    /* giving back */
    struct push_queue *next_release;
    int64_t passed_grant; /* of the object before, to be given back when there is no own */
    int64_t tell_ns;      /* when to tell next */
    unsigned told;        /* how often that was tried */
    bool telling;         /* a request under way does */
    bool leaves;          /* it was put among the releases */
    bool told_free;       /* somebody may have heard of it */
};

struct tern_push_consumer;

/* ---- push_order.c ---- */

/* Takes the chunk, which comes after all that were added before. @thread any @locks takes:CONSUMER
 */
void push_order_add(struct push_chunk *chunk);
/* A worker has taken it from the pool. @locks holds:CONSUMER (the pool's) */
void push_order_taken(struct push_chunk *chunk);
/* Runs batches of the queue's first chunk and hands the turn on. @thread worker @locks takes */
void push_order_work(struct push_worker *worker, struct push_chunk *chunk);
/* The queue has left: lets go what waits. @thread control @locks takes:CONSUMER */
void push_order_close(struct push_queue *queue);
/* There is a lease (again). @thread any @locks takes:CONSUMER */
void push_order_unpark(struct push_queue *queue);
/* A message that failed too often was stored as a dead letter, or was not. The second one takes the
 * chunk, which has that message alone. @thread link's @locks takes:CONSUMER */
void push_order_buried(struct push_queue *queue);
void push_order_not_buried(struct push_chunk *chunk);

/* ---- push_locks.c ---- */

/* A new queue's: wanted at once, or none needed. */
void push_lease_init(struct push_queue *queue);
/* Whether work may begin at that time. @thread any @locks none */
static inline bool push_lease_good(const struct push_lease *lease, int64_t now_ns)
{
    return now_ns < atomic_load_explicit(&lease->until_ns, memory_order_acquire);
}
/* Asks for, renews and gives up leases; returns when to come again. @thread control, or shutdown
 * when that has stopped @locks takes:CONSUMER */
int64_t push_leases_step(struct tern_push_consumer *consumer, int64_t now_ns);
/* The message at the offset has failed that often. @thread worker @locks takes:CONSUMER */
void push_lease_tell(struct push_queue *queue, int64_t offset, int32_t times);
/* How often the message failed at the last owner, 0: not known. @thread any @locks takes:CONSUMER
 */
int32_t push_lease_tries(struct push_queue *queue, int64_t offset);
/*
 * What keeps a queue that has left: a batch that runs, for the consume timeout at most, or a
 * request under way. @locks holds:CONSUMER
 */
bool push_lease_keeps(const struct push_queue *queue, int64_t now_ns);

/* ---- push_release.c ---- */

/*
 * These queues (linked by next) are forgotten: their leases go to the objects that took their
 * places, or back to the broker. @thread control @locks takes:CONSUMER
 */
void push_leases_forgotten(struct tern_push_consumer *consumer, struct push_queue *queues);
/* Gives back those of all queues that have left and run nothing, and waits until brokers have taken
 * them, LEASE_GIVE_BACK_MS at least, and else until the deadline.
 * @thread application, when the control task has stopped @locks takes:CONSUMER */
void push_leases_flush(struct tern_push_consumer *consumer, int64_t deadline_ns);
/* Tells nobody any more. @thread application, when the control task has stopped @locks
 * takes:CONSUMER */
void push_releases_end(struct tern_push_consumer *consumer);

#endif
