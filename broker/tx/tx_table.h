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
 * Bounded: what is decided and not discarded is forgotten, oldest first, beyond TX_REMEMBERED;
 * discarded ones beyond TX_DISCARDED_KEPT. Pending ones are bounded by whoever adds them.
 *
 * Threads: the owner's lock. No call-outs; memory only.
 */
#ifndef BROKER_TX_TABLE_H
#define BROKER_TX_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TX_REMEMBERED = 16384, /* up to twice as many for a moment */
    TX_DISCARDED_KEPT = 16384
};

enum tx_state { TX_PENDING, TX_ENDING, TX_COMMITTED, TX_ROLLED_BACK, TX_DISCARDED, TX_LOST };
enum { TX_STATES = TX_LOST + 1 };
const char *tx_state_text(enum tx_state state); /* "committed" and the like */

struct tx_entry {
    int64_t half_off; /* in the half queue */
    int64_t phys_off; /* of the half record */
    int64_t store_ms;
    int64_t check_ns; /* monotonic: when to ask next; PENDING only */
    uint32_t size;    /* of the half record */
    uint16_t checks;  /* handed to somebody */
    uint8_t state;    /* enum tx_state; changed by tx_table_set() only */
    bool handed;      /* the last of the checks was, and was not given back */
};

struct tx_table {
    struct tx_entry *entries; /* sorted */
    size_t count, capacity;
    size_t of[TX_STATES]; /* how many are in each state */
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
void tx_table_set(struct tx_table *table, struct tx_entry *entry, enum tx_state state);

/* Those that still need an outcome. */
static inline size_t tx_table_open(const struct tx_table *table)
{
    return table->of[TX_PENDING] + table->of[TX_ENDING];
}

#endif
