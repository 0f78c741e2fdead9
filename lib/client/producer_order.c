/*
 * Lanes: order within a queue.
 *
 * Requests of one connection run in parallel at the broker, so order is made here. All sends that
 * name the same queue form a FIFO, of which only the head is under way, with its retries; its end
 * lets the next one go. What was sent earlier is therefore stored, refused or given up before the
 * next frame leaves.
 *
 *   lane_enter   s3 s2 [s1]     s1 is the head and under way
 *   lane_leave      s3 [s2]     s1 has ended and called back, s2 goes
 *
 * A send waits no longer than its own deadline: the ones before it have earlier ones.
 *
 * Invariant: the head, and only the head, is under way. A lane stays for the producer's life; there
 * are as many as queues were named. The number of waiting sends is bounded by max_in_flight.
 *
 * Threads: any; the lock is PRODUCER. Failure modes: TERN_LIMIT above PRODUCER_LANES_MAX queues.
 */
#include "client/producer_internal.h"

#include <stdlib.h>

static struct lane *lane_get(struct tern_producer *producer, const struct lane_key *key,
                             enum tern_code *code)
{
    struct lane *lane;
    HASH_FIND(hh, producer->lanes, key, sizeof *key, lane);
    if (lane)
        return lane;
    *code = TERN_LIMIT;
    if (HASH_COUNT(producer->lanes) >= PRODUCER_LANES_MAX)
        return NULL;
    *code = TERN_NO_MEMORY;
    lane = calloc(1, sizeof *lane);
    if (!lane)
        return NULL;
    lane->key = *key;
    HASH_ADD(hh, producer->lanes, key, sizeof lane->key, lane);
    if (!lane->hh.tbl) {
        free(lane);
        return NULL;
    }
    return lane;
}

enum tern_code lane_enter(struct send *send, struct send_broker *broker, bool *first)
{
    struct tern_producer *producer = send->producer;
    struct lane_key key = {
        .broker = broker, .topic = send->topic, .queue_id = send->named.queue_id};
    enum tern_code code = TERN_OK;
    *first = false;
    lock_acquire(&producer->lock);
    struct lane *lane = lane_get(producer, &key, &code);
    if (lane) {
        code = TERN_OK;
        send->lane = lane;
        send->next = NULL;
        *first = !lane->head;
        if (lane->head)
            lane->tail->next = send;
        else
            lane->head = send;
        lane->tail = send;
    }
    lock_release(&producer->lock);
    return code;
}

struct send *lane_leave(struct lane *lane, struct send *head)
{
    ENSURE(lane->head == head);
    lane->head = head->next;
    if (!lane->head)
        lane->tail = NULL;
    return lane->head;
}
