/*
 * Sharing a topic's queues among the members of a group: pure functions with RocketMQ's exact
 * results, so that every member, given the same lists, comes to the same sharing without talking to
 * the others.
 *
 *   8 queues, 3 members                     1st      2nd      3rd
 *   AVG               runs, longer first    0 1 2    3 4 5    6 7
 *   AVG_BY_CIRCLE     dealt like cards      0 3 6    1 4 7    2 5
 *   CONFIG            what each was given
 *   MACHINE_ROOM      runs of equal length, 0 1 6    2 3 7    4 5
 *                     the rest dealt, of the queues in the rooms given
 *   CONSISTENT_HASH   the next member on a ring of hashes; few queues move when members change
 *   MACHINE_ROOM_NEARBY-<inner>   each room's queues by <inner> among the room's own members; those
 *                     of a room without members among all
 *
 * A strategy is a row: a name, its function and what that function needs. A new one is one more
 * row, in allocation.c.
 *
 * Threads: any; nothing is kept. A resolver of rooms is called by the thread that shares.
 */
#ifndef CLIENT_ALLOCATE_H
#define CLIENT_ALLOCATE_H

#include <tern/consumer.h>

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
     * Writes the indexes of the member's queues, rising, to mine[] (room for queue_count) and their
     * number to *count. `own` is the member's index. Input was checked by allocate_queues().
     * TERN_NO_MEMORY; TERN_INVALID: the settings do not fit the input.
     */
    enum tern_code (*share)(const struct allocate_strategy *strategy,
                            const struct allocate_input *input, size_t own, size_t *mine,
                            size_t *count, struct tern_error *err);
    const void *settings; /* the strategy's; see below. Borrowed */
};

/* CONFIG's settings: the member's own queues, of any topics. */
struct allocate_fixed {
    const struct tern_queue *queues;
    size_t count;
};

/* MACHINE_ROOM's settings: room names, separated by ';'. A queue's room is what stands before the
 * '@' of its broker's name. */
struct allocate_rooms {
    const char *list;
};

/* MACHINE_ROOM_NEARBY's settings. */
struct allocate_nearby {
    const struct allocate_strategy *inner; /* not another nearby */
    struct tern_room_resolver resolver;
};

enum { HASH_NODES_PER_MEMBER = 10 };

/* Without settings. */
extern const struct allocate_strategy allocate_averagely;
extern const struct allocate_strategy allocate_by_circle;
extern const struct allocate_strategy allocate_by_hash;

/* Rows to be copied and given their settings. */
extern const struct allocate_strategy allocate_by_config;
extern const struct allocate_strategy allocate_by_room;
extern const struct allocate_strategy allocate_near_room;

/*
 * The member's share. TERN_INVALID: empty id, no queues or no members, or as share() says (with a
 * text); TERN_NOT_FOUND: the id is not among the members. *count is 0 then.
 */
MUST_CHECK enum tern_code allocate_queues(const struct allocate_strategy *strategy,
                                          const struct allocate_input *input, size_t *mine,
                                          size_t *count, struct tern_error *err);

/* Consistent hashing's place of a text on the ring: the first four bytes of its MD5. */
uint32_t allocate_ring_hash(const char *text);

#endif
