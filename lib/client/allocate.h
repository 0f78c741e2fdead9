/*
 * Sharing a topic's queues among the members of a group: pure functions with RocketMQ's exact
 * results, so that every member, given the same lists, comes to the same sharing without talking to
 * the others.
 *
 * A strategy is a row: a name, its function and what that function needs. A new one is one more
 * row.
 */
#ifndef CLIENT_ALLOCATE_H
#define CLIENT_ALLOCATE_H

#include <tern/message.h>

#include "base/error.h"

struct allocate_input {
    const char *client_id;           /* whose share is asked for */
    const struct tern_queue *queues; /* sorted by topic, broker name, queue id */
    size_t queue_count;
    const char *const *members; /* client ids, sorted by bytes, no id twice */
    size_t member_count;
};

struct allocate_strategy {
    const char *name; /* RocketMQ's, e.g. "AVG" */
    /*
     * Writes the indexes of the member's queues, rising, to mine[] (room for queue_count) and
     * returns how many. `own` is the member's index. Input was checked by allocate_queues().
     */
    size_t (*share)(const struct allocate_strategy *strategy, const struct allocate_input *input,
                    size_t own, size_t *mine);
    const void *settings; /* the strategy's: rooms, fixed queues, an inner strategy */
};

extern const struct allocate_strategy allocate_averagely;

/*
 * The member's share. TERN_INVALID: empty id, no queues or no members (with a text);
 * TERN_NOT_FOUND: the id is not among the members. *count is 0 then.
 */
MUST_CHECK enum tern_code allocate_queues(const struct allocate_strategy *strategy,
                                          const struct allocate_input *input, size_t *mine,
                                          size_t *count, struct tern_error *err);

#endif
