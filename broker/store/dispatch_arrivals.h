/*
 * New messages to be told about: what a batch has put, kept until the appender has answered its
 * requests. Internal to the dispatcher.
 */
#ifndef STORE_DISPATCH_ARRIVALS_H
#define STORE_DISPATCH_ARRIVALS_H

#include "broker/store/dispatch_batch.h"
#include "broker/store/store.h"

enum { ARRIVALS_MAX = 1024, ARRIVAL_CODES_MAX = 16384 };

struct kept_arrival {
    struct consume_queue *queue; /* a reference */
    int64_t first_off;
    uint32_t count;
    uint32_t start; /* in codes */
};

/* The append token's holder's. Zeroed at first, but for the observer, which is borrowed. */
struct arrivals {
    const struct store_observer *observer;
    uint32_t count, code_count;
    struct kept_arrival kept[ARRIVALS_MAX];
    int64_t codes[ARRIVAL_CODES_MAX];
};

/* false: the batch does not fit any more, it is to be left to the task. */
bool arrivals_room(const struct arrivals *arrivals, const struct dispatch_batch *batch);
/* Takes over the runs of a batch that was applied and fits. */
void arrivals_move(struct arrivals *arrivals, struct dispatch_batch *batch);
/* Tells the observer and forgets. @locks none */
void arrivals_deliver(struct arrivals *arrivals);
/* Forgets. */
void arrivals_drop(struct arrivals *arrivals);

/* Tells about a batch at once. @locks none */
void arrivals_of_batch(const struct store_observer *observer, const struct dispatch_batch *batch);

#endif
