/*
 * The strategy that a consumer was asked to use, with its settings: from the options' texts to a
 * row of allocate.h.
 */
#ifndef CLIENT_ALLOCATION_H
#define CLIENT_ALLOCATION_H

#include "client/allocate.h"
#include "client/consumer_options.h"

struct allocation {
    struct allocate_strategy strategy; /* what to share by; name as it was given */
    struct allocate_strategy inner;    /* of a nearby one */
    struct allocate_fixed fixed;
    struct allocate_rooms rooms;
    struct allocate_nearby nearby;
};

/* Whether a strategy has this name, and an inner one where that is needed. */
bool allocation_name_known(const char *name);

/*
 * Borrows from the options, which stay where they are. TERN_INVALID: the strategy needs something
 * that was not given; the text names the setter.
 */
MUST_CHECK enum tern_code allocation_init(struct allocation *allocation,
                                          const struct tern_consumer_options *options,
                                          struct tern_error *err);

/*
 * The strategy for a topic: the consumer's, but for a retry topic whose queues a CONFIG list does
 * not name: shared averagely, or nobody would ever retry what failed.
 */
const struct allocate_strategy *allocation_of_topic(const struct allocation *allocation,
                                                    const char *topic);

#endif
