/*
 * The in-flight window of one queue: which of the offsets that were pulled are finished, and hence
 * the commit point, the lowest unfinished offset.
 *
 *            left                          right
 *     done …  │ 0 1 1 0 1 1 1 1 0 0 0 0 0 0 │  not pulled yet
 *             └ commit point                └ highest seen + 1
 *              ◄───────── capacity ────────────────►
 *
 * A ring of bits, one per offset, that needs no clearing: the bit of an offset stands at
 * (offset mod capacity), and its meaning turns round with every lap. In even laps 1 is "finished",
 * in odd laps 0 is. All offsets of a lap are finished before the left edge passes them, so a bit
 * that the next lap finds is, by itself, "unfinished" there.
 *
 * Threads: one puller at a time (of the queue) calls reset and admit; mark, left and right are
 * for any thread, lock-free, without allocating. Marking is one atomic OR (or AND in odd laps).
 */
#ifndef CLIENT_WINDOW_H
#define CLIENT_WINDOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { WINDOW_CAPACITY_MIN = 64, WINDOW_CAPACITY_MAX = 1 << 20 };

struct window {
    _Atomic uint64_t *words;
    uint64_t capacity; /* offsets, a power of two */
    unsigned lap_shift;
    _Atomic int64_t left;  /* lowest unfinished as last computed; grows, but for a reset */
    _Atomic int64_t right; /* the puller's; left <= right <= left + capacity */
};

/*
 * A ring for at least capacity_min offsets, rounded up to a power of two (and to
 * WINDOW_CAPACITY_MIN); both edges at offset 0. TERN_NO_MEMORY. Above WINDOW_CAPACITY_MAX is a bug.
 */
MUST_CHECK enum tern_code window_init(struct window *window, size_t capacity_min);
void window_fini(struct window *window);

/* Both edges to `offset` (>= 0), nothing in flight. Only when no offset is in flight. @thread
 * puller */
void window_reset(struct window *window, int64_t offset);

/*
 * Takes in a pull's answer: everything from the right edge up to `next` was scanned, the offsets
 * given
 * (`count` of them, strictly rising, all in [right, next)) are delivered, all others never will be
 * and count as done. Returns how many of the offsets fit, from the first; *pulled is where the next
 * pull goes on: `next`, or the first offset that the ring has no room for. The right edge is there
 * afterwards.
 * @thread puller
 */
size_t window_admit(struct window *window, int64_t next, const int64_t *offsets, size_t count,
                    int64_t *pulled);

/*
 * The offset is finished. false, and nothing happens, when it is outside the window (a stale mark)
 * or was finished before. @thread any
 */
bool window_mark(struct window *window, int64_t offset);

/* The commit point: lowest unfinished offset, or the right edge when nothing is in flight. @thread
 * any */
int64_t window_left(struct window *window);

/* Highest offset seen + 1. @thread any */
static inline int64_t window_right(const struct window *window)
{
    return atomic_load_explicit(&window->right, memory_order_acquire);
}

/* No room at all: admitting would take nothing. @thread puller */
static inline bool window_full(struct window *window)
{
    return (uint64_t)(window_right(window) - window_left(window)) >= window->capacity;
}

#endif
