/*
 * When transactions are asked about next: a heap by time, beside the table that they lie in.
 *
 * Items are never looked for: one whose transaction is decided, or is asked about at another time
 * by now, is stale, and is passed over when it comes up. Each push looks at two others and lets
 * them go when they are stale, so that these stay about as few as those that count; when there is
 * no room all stale ones go.
 *
 * Threads: the owner's lock. Memory only.
 */
#ifndef BROKER_TX_DUE_H
#define BROKER_TX_DUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tx_due_item {
    int64_t check_ns; /* monotonic */
    int64_t half_off;
};

struct tx_due {
    struct tx_due_item *items; /* the earliest first */
    size_t count, capacity;
    size_t cursor; /* where the next push looks for stale ones */
    bool (*is_stale)(const void *arg, const struct tx_due_item *item);
    const void *arg;
};

void tx_due_init(struct tx_due *due, bool (*is_stale)(const void *arg, const struct tx_due_item *),
                 const void *arg);
void tx_due_fini(struct tx_due *due);
/* false: no memory. */
bool tx_due_reserve(struct tx_due *due, size_t capacity);
/* There are fewer that count than half the capacity. */
void tx_due_push(struct tx_due *due, int64_t check_ns, int64_t half_off);
/* Takes the earliest at or before now_ns, stale or not; false: none, *next_ns is when the next one
 * is (untouched when there is none at all). */
bool tx_due_pop(struct tx_due *due, int64_t now_ns, struct tx_due_item *out, int64_t *next_ns);

#endif
