/*
 * The in-flight window: see window.h for the picture.
 *
 * Why the laps: with bits that are cleared behind the left edge, a mark that comes late (read the
 * edge, slept, then set its bit) would finish an offset one lap ahead, and a message would be
 * skipped. With the meaning turning round, a late mark writes the value that the next lap reads as
 * "unfinished": it can hold the commit point back, never move it past a message.
 *
 * Invariants:
 *  - every bit in [right, left + capacity) reads "unfinished" for the lap of its offset there;
 *  - left only grows while anything is in flight; it is published by compare-and-swap, so a slow
 * thread that computed an older edge changes nothing;
 *  - the puller sets the bits of gaps before it publishes the right edge over them.
 *
 * A reset stores left before right. A reader loads left before right: what it sees mixed is either
 * left > right (nothing to do) or an old left, whose compare-and-swap then fails.
 */
#include "client/window.h"

#include <stdlib.h>

enum { WORD_BITS = 64 };

/* Offsets as unsigned, so that shifts and masks are defined. */
static inline _Atomic uint64_t *word_of(const struct window *window, int64_t offset)
{
    return &window->words[((uint64_t)offset & (window->capacity - 1)) / WORD_BITS];
}

static inline bool odd_lap(const struct window *window, int64_t offset)
{
    return ((uint64_t)offset >> window->lap_shift) & 1;
}

enum tern_code window_init(struct window *window, size_t capacity_min)
{
    ENSURE(capacity_min <= WINDOW_CAPACITY_MAX);
    uint64_t capacity = WINDOW_CAPACITY_MIN;
    unsigned shift = 6;
    while (capacity < capacity_min) {
        capacity *= 2;
        shift++;
    }
    window->words = calloc(capacity / WORD_BITS, sizeof *window->words);
    if (!window->words)
        return TERN_NO_MEMORY;
    window->capacity = capacity;
    window->lap_shift = shift;
    window_reset(window, 0);
    return TERN_OK;
}

void window_fini(struct window *window)
{
    free(window->words);
    window->words = NULL;
}

void window_reset(struct window *window, int64_t offset)
{
    ENSURE(offset >= 0);
    uint64_t unfinished = odd_lap(window, offset) ? UINT64_MAX : 0;
    uint64_t own = ((uint64_t)offset & (window->capacity - 1)) / WORD_BITS;
    uint64_t below = ((uint64_t)1 << ((uint64_t)offset % WORD_BITS)) - 1;
    for (uint64_t i = 0; i < window->capacity / WORD_BITS; i++) {
        /* What lies before the offset in its lap is next used in the lap after it. */
        uint64_t bits = i < own ? ~unfinished : i > own ? unfinished : unfinished ^ below;
        atomic_store_explicit(&window->words[i], bits, memory_order_relaxed);
    }
    atomic_store_explicit(&window->left, offset, memory_order_release);
    atomic_store_explicit(&window->right, offset, memory_order_release);
}

/* Finishes the bits of `mask` in the word of `offset`. */
static inline void word_finish(const struct window *window, int64_t offset, uint64_t mask)
{
    if (odd_lap(window, offset))
        atomic_fetch_and_explicit(word_of(window, offset), ~mask, memory_order_release);
    else
        atomic_fetch_or_explicit(word_of(window, offset), mask, memory_order_release);
}

/* Finishes [from, to), a word at a time. */
static void finish_range(const struct window *window, int64_t from, int64_t to)
{
    while (from < to) {
        unsigned bit = (unsigned)((uint64_t)from % WORD_BITS);
        int64_t count = to - from < (int64_t)(WORD_BITS - bit) ? to - from : WORD_BITS - bit;
        uint64_t mask = count == WORD_BITS ? UINT64_MAX : (((uint64_t)1 << count) - 1) << bit;
        word_finish(window, from, mask);
        from += count;
    }
}

size_t window_admit(struct window *window, int64_t next, const int64_t *offsets, size_t count,
                    int64_t *pulled)
{
    int64_t left = window_left(window);
    int64_t right = window_right(window);
    int64_t room = (int64_t)window->capacity;
    if (left == right && next - left > room) {
        /* Nothing in flight: a gap of any length is passed by moving both edges. */
        right = left = count > 0 ? offsets[0] : next;
        window_reset(window, left);
    }
    int64_t end = next - left > room ? left + room : next;
    size_t taken = 0;
    for (; taken < count && offsets[taken] < end; taken++) {
        ENSURE(offsets[taken] >= right);
        finish_range(window, right, offsets[taken]);
        right = offsets[taken] + 1;
    }
    finish_range(window, right, end);
    atomic_store_explicit(&window->right, end, memory_order_release);
    *pulled = end;
    return taken;
}

bool window_mark(struct window *window, int64_t offset)
{
    if (offset < atomic_load_explicit(&window->left, memory_order_acquire) ||
        offset >= window_right(window))
        return false;
    _Atomic uint64_t *word = word_of(window, offset);
    uint64_t bit = (uint64_t)1 << ((uint64_t)offset % WORD_BITS);
    if (odd_lap(window, offset))
        return atomic_fetch_and_explicit(word, ~bit, memory_order_acq_rel) & bit;
    return !(atomic_fetch_or_explicit(word, bit, memory_order_acq_rel) & bit);
}

/* How many offsets from `from` on are finished, at most up to the end of its word. */
static inline int64_t finished_run(const struct window *window, int64_t from)
{
    uint64_t bits = atomic_load_explicit(word_of(window, from), memory_order_acquire);
    if (!odd_lap(window, from))
        bits = ~bits;
    unsigned shift = (unsigned)((uint64_t)from % WORD_BITS);
    bits >>= shift;
    return bits ? __builtin_ctzll(bits) : (int64_t)(WORD_BITS - shift);
}

int64_t window_left(struct window *window)
{
    int64_t left = atomic_load_explicit(&window->left, memory_order_acquire);
    int64_t right = window_right(window);
    int64_t edge = left;
    while (edge < right) {
        int64_t run = finished_run(window, edge);
        edge += run;
        if (run == 0 || (uint64_t)edge % WORD_BITS != 0)
            break;
    }
    if (edge > right)
        edge = right;
    if (edge <= left)
        return left;
    if (atomic_compare_exchange_strong_explicit(&window->left, &left, edge, memory_order_acq_rel,
                                                memory_order_acquire))
        return edge;
    return left; /* somebody else moved it, at least as far as what we saw then */
}
