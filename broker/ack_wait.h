/*
 * Requests that wait for a position to pass theirs: sends for what is flushed and replicated,
 * commits for what the slaves have. A FIFO, since positions only grow. Nobody blocks a thread: the
 * new position completes everything it has passed, and each wait has its own deadline.
 */
#ifndef BROKER_ACK_WAIT_H
#define BROKER_ACK_WAIT_H

#include <stdbool.h>

#include "base/env.h"
#include "base/error.h"

struct ack_wait;

/* Caller's memory until `done`. */
struct ack_entry {
    int64_t position;
    int64_t deadline_ns;
    /* code: as given to ack_wait_advance(); TERN_TIMEOUT: the deadline came; as given to
     * ack_wait_fail_all(). Exactly once. @locks none */
    void (*done)(struct ack_entry *entry, enum tern_code code);
    struct ack_entry *prev, *next;
};

/* name: the task's, at most 15 characters. */
MUST_CHECK enum tern_code ack_wait_create(const struct env *env, const char *name,
                                          struct ack_wait **out);
/* Everything waiting was completed before (ack_wait_fail_all). */
void ack_wait_destroy(struct ack_wait *acks);
/* May call done at once. @thread any, in the order of positions but for what runs in parallel */
void ack_wait_add(struct ack_wait *acks, struct ack_entry *entry);
/*
 * Everything before `position` has what it waits for: ends those waits, here, with `code`, which
 * also counts for those that come later and are passed already. A lower position than before only
 * changes the code.
 */
void ack_wait_advance(struct ack_wait *acks, int64_t position, enum tern_code code);
/* The same for a position that may fall, too: those who come later wait for it to rise again. */
void ack_wait_set(struct ack_wait *acks, int64_t position, enum tern_code code);
/* ack_wait_advance() on the ack task, for a caller that has more to do and should not answer
 * meanwhile.
 */
void ack_wait_advance_soon(struct ack_wait *acks, int64_t position, enum tern_code code);
/* The store latched, or the broker stops: all waits, and those to come, end with `code`. */
void ack_wait_fail_all(struct ack_wait *acks, enum tern_code code);
/* What was waited for is gone (the log was cut): all waits end with `code`, those to come wait for
 * a position that begins anew at `position`. */
void ack_wait_restart(struct ack_wait *acks, int64_t position, enum tern_code code);
/* Ends waits whose deadline came; returns the next deadline. */
int64_t ack_wait_step(struct ack_wait *acks, int64_t now_ns);
/* Waits until nothing waits any more; false when the deadline (monotonic) came first. One caller at
 * a time. @locks none */
MUST_CHECK bool ack_wait_drain(struct ack_wait *acks, int64_t deadline_ns);
uint32_t ack_wait_count(struct ack_wait *acks);

#endif
