/*
 * Sends that wait for their bytes to be on disk (SYNC_FLUSH): a FIFO, since positions only grow.
 * Nobody blocks a thread: the flusher's new position completes everything it has passed, and each
 * wait has its own deadline. The replicated position will be a second condition of the same wait.
 */
#ifndef BROKER_ACK_WAIT_H
#define BROKER_ACK_WAIT_H

#include <stdbool.h>

#include "base/env.h"
#include "base/error.h"

struct ack_wait;

/* Caller's memory until `done`. */
struct ack_entry {
    int64_t phys_end;
    int64_t deadline_ns;
    /* code: OK, FLUSH_DISK_TIMEOUT, or SERVICE_NOT_AVAILABLE when the store latched. Exactly once.
     * @locks none */
    void (*done)(struct ack_entry *entry, enum tern_code code);
    struct ack_entry *prev, *next;
};

MUST_CHECK enum tern_code ack_wait_create(const struct env *env, struct ack_wait **out);
/* Everything waiting was completed before (ack_wait_fail_all). */
void ack_wait_destroy(struct ack_wait *acks);
/* May call done at once. @thread any, in the order of phys_end but for what runs in parallel */
void ack_wait_add(struct ack_wait *acks, struct ack_entry *entry);
/* Everything before `flushed` is on disk: ends what waited for it, here. @thread flusher */
void ack_wait_advance(struct ack_wait *acks, int64_t flushed);
/* The same on the ack task, for a flusher that has more to flush and should not answer meanwhile.
 */
void ack_wait_advance_soon(struct ack_wait *acks, int64_t flushed);
/* The store latched, or the broker stops: all waits, and those to come, end with `code`. */
void ack_wait_fail_all(struct ack_wait *acks, enum tern_code code);
/* Ends waits whose deadline came; returns the next deadline. */
int64_t ack_wait_step(struct ack_wait *acks, int64_t now_ns);
/* Waits until nothing waits any more; false when the deadline (monotonic) came first. One caller at
 * a time. @locks none */
MUST_CHECK bool ack_wait_drain(struct ack_wait *acks, int64_t deadline_ns);
uint32_t ack_wait_count(struct ack_wait *acks);

#endif
