/*
 * Requests of a client instance that wait for their replies.
 *
 *   request ──► table, by correlation id ──┬── reply event ──► fetched from that broker ──► done
 *                                          ├── time is up, the send failed, shut down ────► done
 *                                          └── (an event for no entry: late, counted)
 *
 * Whoever takes an entry out of the table ends the request, so that done comes once. A broker keeps
 * events for a client that has not asked yet: the reply's route may be looked for while the request
 * is under way.
 */
#ifndef CLIENT_REQUESTS_H
#define CLIENT_REQUESTS_H

#include <tern/request.h>

#include "client/instance.h"

struct broker_link;
struct request;

enum { REQUESTS_MAX = 65535, REQUEST_TIMEOUT_MAX_MS = 600000, REQUEST_CHECK_MS = 100 };

/* Part of the instance; zeroed. All but `late` is protected by CLIENT. */
struct requests {
    struct request *table;  /* by correlation id */
    struct request *oldest; /* all in the table, by the time when they end */
    uint32_t count;
    bool listening; /* some request was made: events are waited for from then on */
    bool armed;     /* the timer runs */
    struct instance_timer timer;
    _Atomic uint64_t late;
};

/* A reply event of a broker: the entry moves to *taken, to be fetched after the lock. @locks
 * holds:CLIENT */
void requests_note_reply(struct instance *instance, const Tern__Wire__ReplyEvent *event,
                         struct request **taken);
/* Fetches the replies from the broker that told of them. @thread link's @locks none */
void requests_fetch(struct instance *instance, struct broker_link *link, struct request *taken);
/* Ends the producer's requests with TERN_CANCELED. @locks none */
void requests_cancel(struct instance *instance, struct tern_producer *producer);

#endif
