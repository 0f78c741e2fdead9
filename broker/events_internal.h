/*
 * The inside of the event channel: what an event is, for events.c (clients, parked calls),
 * event_queue.c (what a client has not acknowledged) and events_wire.c (how it travels).
 */
#ifndef BROKER_EVENTS_INTERNAL_H
#define BROKER_EVENTS_INTERNAL_H

#include "broker/events.h"

enum event_kind {
    EVENT_MEMBERS_CHANGED,
    EVENT_OFFSET_RESET,
    EVENT_CHECK_TRANSACTION,
    EVENT_REPLY /* group is the correlation id */
};

struct event {
    struct event *next;
    uint64_t number;
    enum event_kind kind;
    int32_t times;              /* CHECK_TRANSACTION */
    int64_t half_off, phys_off; /* CHECK_TRANSACTION; phys_off also REPLY */
    const char *second;         /* the topic of a reset, the message id of a check; NULL: none */
    char group[];               /* and the second text behind it */
};

/* An answer in its request's memory. */
struct event_answer {
    TernResponse response;
    Tern__Wire__WaitEventsResponse body;
};

/* ---- event_queue.c; everything under the lock of the events ---- */

/* What waits for one client. Begins as {.next_number = 1}. */
struct event_queue {
    struct event *events;    /* oldest first */
    uint32_t count, replies; /* replies are counted in both */
    uint64_t next_number;    /* from 1 */
    uint64_t sent;
    uint64_t resync; /* its number, 0: none */
    bool greeted;    /* an answer with our session was prepared from this queue */
};

/* NULL: no memory, which event_queue_add() takes as well. */
struct event *event_make(enum event_kind kind, const char *group, const char *second);
/* Takes the event. */
void event_queue_add(struct event_queue *queue, struct event *event);
/* Fills in what is pending, in the order of the numbers, at most EVENTS_PER_ANSWER; the rest comes
 * with the next call. false: no memory, and nothing counts as sent. */
bool event_queue_put(struct event_queue *queue, struct rpc_request *request,
                     struct event_answer *answer);
/* What the client says it has seen. knows_us: of this process; what another one posted is lost. */
void event_queue_acknowledge(struct event_queue *queue, bool knows_us, uint64_t acknowledged);
void event_queue_drop(struct event_queue *queue, uint64_t up_to);
/* Events that a resync can stand for. */
uint32_t event_queue_others(const struct event_queue *queue);

/* ---- events_wire.c ---- */

/*
 * Adds an event to the answer, whose array has room; NULL: a resync, which is a number alone.
 * false: no memory. @thread any
 */
bool event_put(struct rpc_request *request, struct event_answer *answer, const struct event *event,
               uint64_t number);

#endif
