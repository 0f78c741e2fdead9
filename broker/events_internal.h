/*
 * The inside of the event channel: what an event is, for events.c (queues, parking) and
 * events_wire.c (how it travels).
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

/*
 * Adds an event to the answer, whose array has room; NULL: a resync, which is a number alone.
 * false: no memory. @thread any
 */
bool event_put(struct rpc_request *request, struct event_answer *answer, const struct event *event,
               uint64_t number);

#endif
