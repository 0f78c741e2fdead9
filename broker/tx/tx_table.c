/* The sorted array; additions are nearly always at its end. */
#include "broker/tx/tx_table.h"

#include <stdlib.h>
#include <string.h>

const char *tx_state_text(enum tx_state state)
{
    static const char *const texts[TX_STATES] = {
        [TX_PENDING] = "pending",     [TX_ENDING] = "being ended",
        [TX_COMMITTED] = "committed", [TX_ROLLED_BACK] = "rolled back",
        [TX_DISCARDED] = "discarded", [TX_LOST] = "lost with its half record",
    };
    return texts[state];
}

void tx_table_init(struct tx_table *table)
{
    memset(table, 0, sizeof *table);
}

void tx_table_fini(struct tx_table *table)
{
    free(table->entries);
    tx_table_init(table);
}

void tx_table_clear(struct tx_table *table)
{
    table->count = 0;
    memset(table->of, 0, sizeof table->of);
}

bool tx_table_reserve(struct tx_table *table, size_t more)
{
    if (table->count + more <= table->capacity)
        return true;
    size_t capacity = table->capacity < 64 ? 64 : table->capacity * 2;
    while (capacity < table->count + more)
        capacity *= 2;
    struct tx_entry *entries = realloc(table->entries, capacity * sizeof *entries);
    if (!entries)
        return false;
    table->entries = entries;
    table->capacity = capacity;
    return true;
}

/* Index of the first entry whose half_off is at or behind the given one. */
static size_t lower_bound(const struct tx_table *table, int64_t half_off)
{
    size_t low = 0;
    size_t high = table->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (table->entries[mid].half_off < half_off)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool is_past(const struct tx_entry *entry)
{
    return entry->state == TX_COMMITTED || entry->state == TX_ROLLED_BACK ||
           entry->state == TX_LOST;
}

static size_t past_count(const struct tx_table *table)
{
    return table->of[TX_COMMITTED] + table->of[TX_ROLLED_BACK] + table->of[TX_LOST];
}

/* Forgets the oldest decided ones, so that half of what is allowed stays. */
static void forget(struct tx_table *table)
{
    size_t past = past_count(table);
    size_t discarded = table->of[TX_DISCARDED];
    size_t drop_past = past > 2 * TX_REMEMBERED ? past - TX_REMEMBERED : 0;
    size_t drop_discarded = discarded > TX_DISCARDED_KEPT ? discarded - TX_DISCARDED_KEPT : 0;
    size_t kept = 0;
    if (!drop_past && drop_discarded < TX_DISCARDED_KEPT / 8)
        return;
    for (size_t i = 0; i < table->count; i++) {
        struct tx_entry *entry = &table->entries[i];
        size_t *drop = is_past(entry)                 ? &drop_past
                       : entry->state == TX_DISCARDED ? &drop_discarded
                                                      : NULL;
        if (drop && *drop) {
            (*drop)--;
            table->of[entry->state]--;
        } else {
            table->entries[kept++] = *entry;
        }
    }
    table->count = kept;
}

bool tx_table_add(struct tx_table *table, const struct tx_entry *entry)
{
    forget(table);
    size_t at = lower_bound(table, entry->half_off);
    if (at < table->count && table->entries[at].half_off == entry->half_off)
        return false;
    memmove(&table->entries[at + 1], &table->entries[at],
            (table->count - at) * sizeof table->entries[0]);
    table->entries[at] = *entry;
    table->count++;
    table->of[entry->state]++;
    return true;
}

struct tx_entry *tx_table_after(const struct tx_table *table, int64_t half_off)
{
    if (half_off == INT64_MAX)
        return NULL;
    size_t at = lower_bound(table, half_off + 1);
    return at < table->count ? &table->entries[at] : NULL;
}

struct tx_entry *tx_table_find(const struct tx_table *table, int64_t half_off)
{
    size_t at = lower_bound(table, half_off);
    bool found = at < table->count && table->entries[at].half_off == half_off;
    return found ? &table->entries[at] : NULL;
}

struct tx_entry *tx_table_find_phys(const struct tx_table *table, int64_t phys_off)
{
    size_t low = 0;
    size_t high = table->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (table->entries[mid].phys_off < phys_off)
            low = mid + 1;
        else
            high = mid;
    }
    bool found = low < table->count && table->entries[low].phys_off == phys_off;
    return found ? &table->entries[low] : NULL;
}

void tx_table_set(struct tx_table *table, struct tx_entry *entry, enum tx_state state)
{
    table->of[entry->state]--;
    table->of[state]++;
    entry->state = (uint8_t)state;
}
