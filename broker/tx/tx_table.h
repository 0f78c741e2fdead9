/*
 * The transactions that a broker knows: those that wait for their outcome, and the last ones that
 * were decided, so that an outcome told twice gets the answer that it got the first time.
 *
 *   half_off   17        18         19       20         …   in the order of the half queue, which
 *            ┌─────────┬──────────┬────────┬─────────┐      is the order of the log, too: both
 *            │COMMITTED│ PENDING  │ENDING  │DISCARDED│      offsets are found by bisection
 *            └─────────┴──────────┴────────┴─────────┘
 *
 *   PENDING ──claimed──► ENDING ──stored──► COMMITTED, ROLLED_BACK, DISCARDED
 *      ▲ ▲                 │ refused            DISCARDED ──resumed──► PENDING
 *      │ └─────────────────┘                    PENDING ──its half record expired──► LOST
 *   half message stored
 *
 * Those that are open also hang in a heap by the time at which they are asked about next, so that a
 * look touches only what is due.
 *
 * Bounded: what is decided and not discarded is forgotten, oldest first, beyond TX_REMEMBERED;
 * discarded ones beyond TX_DISCARDED_KEPT. Pending ones are bounded by whoever adds them.
 * Forgetting goes through the whole array, TX_SWEEP_STEP entries with each addition: so no addition
 * holds the owner's lock for long, however many wait.
 *
 *   seen, closed up     room of what was     not yet seen
 *   │17│19│20│24│25│    forgotten (gap)     │40│41│42│…│count + gap
 *                  └ gap_at                 └ gap_at + gap
 *
 * Threads: the owner's lock. No call-outs; memory only.
 */
#ifndef BROKER_TX_TABLE_H
#define BROKER_TX_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/tx/tx_due.h"

enum {
    TX_REMEMBERED = 16384, /* up to twice as many for a moment, and what comes in a sweep */
    TX_DISCARDED_KEPT = 16384,
    TX_SWEEP_STEP = 512 /* entries, 20 KiB */
};

enum tx_state { TX_PENDING, TX_ENDING, TX_COMMITTED, TX_ROLLED_BACK, TX_DISCARDED, TX_LOST };
enum { TX_STATES = TX_LOST + 1 };
const char *tx_state_text(enum tx_state state); /* "committed" and the like */

struct tx_entry {
    int64_t half_off; /* in the half queue */
    int64_t phys_off; /* of the half record */
    int64_t store_ms;
    int64_t check_ns; /* monotonic: when to ask next, by tx_table_ask_at(); of a decided one when it
                         was */
    uint32_t size;    /* of the half record */
    uint16_t checks;  /* handed to somebody */
    uint8_t state;    /* enum tx_state; changed by tx_table_set() only */
    bool handed;      /* the last of the checks was, and was not given back */
};

struct tx_table {
    struct tx_entry *entries; /* sorted, with a gap while some are forgotten */
    size_t count, capacity;
    size_t gap_at, gap; /* entries before it, and places in it; at the sweep's place */
    size_t drop_past, drop_discarded; /* that the sweep is still to forget */
    bool sweeping;
    size_t of[TX_STATES]; /* how many are in each state */
    struct tx_due due;    /* one item for each open one at its check_ns, and stale ones */
};

void tx_table_init(struct tx_table *table);
void tx_table_fini(struct tx_table *table);
/* Forgets everything, keeps the memory. */
void tx_table_clear(struct tx_table *table);
/* Room for `more` additions that then cannot fail; false: no memory. */
bool tx_table_reserve(struct tx_table *table, size_t more);
/*
 * Adds one, for which there is room. One that is there already stays as it is: false. May forget
 * older decided ones. Pointers into the table are void afterwards.
 */
bool tx_table_add(struct tx_table *table, const struct tx_entry *entry);
/* NULL: not known. Valid until the next addition. */
struct tx_entry *tx_table_find(const struct tx_table *table, int64_t half_off);
struct tx_entry *tx_table_find_phys(const struct tx_table *table, int64_t phys_off);
/* The first one behind half_off, NULL: none. -1 gives the first of all. */
struct tx_entry *tx_table_after(const struct tx_table *table, int64_t half_off);
/* The next one, NULL: it was the last. */
struct tx_entry *tx_table_next(const struct tx_table *table, const struct tx_entry *entry);
void tx_table_set(struct tx_table *table, struct tx_entry *entry, enum tx_state state);
/* An open one is asked about at that time, not at the one before. */
void tx_table_ask_at(struct tx_table *table, struct tx_entry *entry, int64_t check_ns);
/*
 * Takes up to `cap` pending ones that are due, the longest due first; each is due again at again_ns
 * unless tx_table_ask_at() says otherwise. Looks at no more than `looks`. *next_ns: when to look
 * again, now_ns when there may be more, untouched when nothing is open.
 */
size_t tx_table_take_due(struct tx_table *table, int64_t now_ns, int64_t again_ns, size_t looks,
                         struct tx_entry *out, size_t cap, int64_t *next_ns);

/* Those that still need an outcome. */
static inline size_t tx_table_open(const struct tx_table *table)
{
    return table->of[TX_PENDING] + table->of[TX_ENDING];
}

#endif
