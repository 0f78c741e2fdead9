/* The sorted array, with its gap; additions are nearly always at its end. */
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

static bool is_open(const struct tx_entry *entry)
{
    return entry->state == TX_PENDING || entry->state == TX_ENDING;
}

static bool is_stale(const void *arg, const struct tx_due_item *item)
{
    const struct tx_entry *entry = tx_table_find(arg, item->half_off);
    return !entry || !is_open(entry) || entry->check_ns != item->check_ns;
}

void tx_table_init(struct tx_table *table)
{
    memset(table, 0, sizeof *table);
    tx_due_init(&table->due, is_stale, table);
}

void tx_table_fini(struct tx_table *table)
{
    free(table->entries);
    tx_due_fini(&table->due);
    tx_table_init(table);
}

void tx_table_clear(struct tx_table *table)
{
    table->count = table->gap_at = table->gap = table->due.count = 0;
    table->sweeping = false;
    memset(table->of, 0, sizeof table->of);
}

bool tx_table_reserve(struct tx_table *table, size_t more)
{
    size_t used = table->count + table->gap;
    if (used + more <= table->capacity)
        return true;
    size_t capacity = table->capacity < 64 ? 64 : table->capacity * 2;
    while (capacity < used + more)
        capacity *= 2;
    if (!tx_due_reserve(&table->due, 2 * capacity))
        return false;
    struct tx_entry *entries = realloc(table->entries, capacity * sizeof *entries);
    if (!entries)
        return false;
    table->entries = entries;
    table->capacity = capacity;
    return true;
}

/* By its number in the order, gaps not counted. */
static struct tx_entry *entry_at(const struct tx_table *table, size_t index)
{
    return &table->entries[index < table->gap_at ? index : index + table->gap];
}

/* Index of the first entry whose half_off is at or behind the given one. */
static size_t lower_bound(const struct tx_table *table, int64_t half_off)
{
    size_t low = 0;
    size_t high = table->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (entry_at(table, mid)->half_off < half_off)
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

/* Whether there is so much to forget that it is worth a sweep: of the oldest decided ones, so that
 * half of what is allowed stays. */
static bool begin_sweep(struct tx_table *table)
{
    size_t past = past_count(table);
    size_t discarded = table->of[TX_DISCARDED];
    table->drop_past = past > 2 * TX_REMEMBERED ? past - TX_REMEMBERED : 0;
    table->drop_discarded = discarded > TX_DISCARDED_KEPT ? discarded - TX_DISCARDED_KEPT : 0;
    table->gap_at = table->gap = 0;
    return table->drop_past || table->drop_discarded >= TX_DISCARDED_KEPT / 8;
}

/* Whether the entry is among those to be forgotten; it is counted. */
static bool is_dropped(struct tx_table *table, const struct tx_entry *entry)
{
    if (is_past(entry) && table->drop_past > 0) {
        table->drop_past--;
        return true;
    }
    bool spare = table->of[TX_DISCARDED] > TX_DISCARDED_KEPT; /* none was resumed meanwhile */
    if (entry->state != TX_DISCARDED || !table->drop_discarded || !spare)
        return false;
    table->drop_discarded--;
    return true;
}

/* A step of forgetting. */
static void forget(struct tx_table *table)
{
    if (!table->sweeping)
        table->sweeping = begin_sweep(table);
    for (int i = 0; i < TX_SWEEP_STEP && table->sweeping; i++) {
        struct tx_entry *entry = &table->entries[table->gap_at + table->gap];
        bool nothing_left = table->drop_past + table->drop_discarded + table->gap == 0;
        if (table->gap_at == table->count || nothing_left) {
            table->gap = 0;
            table->sweeping = false;
        } else if (is_dropped(table, entry)) {
            table->of[entry->state]--;
            table->count--;
            table->gap++;
        } else {
            table->entries[table->gap_at] = *entry;
            table->gap_at++;
        }
    }
}

/* A place for the entry with that index; the table has room. */
static struct tx_entry *open_place(struct tx_table *table, size_t index)
{
    struct tx_entry *place = entry_at(table, index);
    size_t behind = table->count - index;
    if (index < table->gap_at) { /* into the gap, if there is one */
        behind = table->gap ? table->gap_at - index : behind;
        table->gap -= table->gap > 0;
        table->gap_at++;
    }
    memmove(place + 1, place, behind * sizeof *place);
    table->count++;
    return place;
}

bool tx_table_add(struct tx_table *table, const struct tx_entry *entry)
{
    forget(table);
    size_t at = lower_bound(table, entry->half_off);
    if (at < table->count && entry_at(table, at)->half_off == entry->half_off)
        return false;
    *open_place(table, at) = *entry;
    table->of[entry->state]++;
    if (is_open(entry))
        tx_due_push(&table->due, entry->check_ns, entry->half_off);
    return true;
}

struct tx_entry *tx_table_after(const struct tx_table *table, int64_t half_off)
{
    if (half_off == INT64_MAX)
        return NULL;
    size_t at = lower_bound(table, half_off + 1);
    return at < table->count ? entry_at(table, at) : NULL;
}

struct tx_entry *tx_table_find(const struct tx_table *table, int64_t half_off)
{
    size_t at = lower_bound(table, half_off);
    struct tx_entry *entry = at < table->count ? entry_at(table, at) : NULL;
    return entry && entry->half_off == half_off ? entry : NULL;
}

struct tx_entry *tx_table_find_phys(const struct tx_table *table, int64_t phys_off)
{
    size_t low = 0;
    size_t high = table->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (entry_at(table, mid)->phys_off < phys_off)
            low = mid + 1;
        else
            high = mid;
    }
    struct tx_entry *entry = low < table->count ? entry_at(table, low) : NULL;
    return entry && entry->phys_off == phys_off ? entry : NULL;
}

struct tx_entry *tx_table_next(const struct tx_table *table, const struct tx_entry *entry)
{
    size_t at = (size_t)(entry - table->entries) + 1;
    if (at == table->gap_at)
        at += table->gap;
    return at < table->count + table->gap ? &table->entries[at] : NULL;
}

void tx_table_set(struct tx_table *table, struct tx_entry *entry, enum tx_state state)
{
    table->of[entry->state]--;
    table->of[state]++;
    bool opens = !is_open(entry);
    entry->state = (uint8_t)state;
    if (opens && is_open(entry)) {
        entry->check_ns++; /* items of before it was decided stay stale */
        tx_due_push(&table->due, entry->check_ns, entry->half_off);
    }
}

void tx_table_ask_at(struct tx_table *table, struct tx_entry *entry, int64_t check_ns)
{
    if (entry->check_ns == check_ns)
        return; /* its item is there */
    entry->check_ns = check_ns;
    if (is_open(entry))
        tx_due_push(&table->due, check_ns, entry->half_off);
}

size_t tx_table_take_due(struct tx_table *table, int64_t now_ns, int64_t again_ns, size_t looks,
                         struct tx_entry *out, size_t cap, int64_t *next_ns)
{
    size_t count = 0;
    for (; looks > 0 && count < cap; looks--) {
        struct tx_due_item item;
        if (!tx_due_pop(&table->due, now_ns, &item, next_ns))
            return count;
        if (is_stale(table, &item))
            continue;
        struct tx_entry *entry = tx_table_find(table, item.half_off);
        tx_table_ask_at(table, entry, again_ns);
        if (entry->state == TX_PENDING)
            out[count++] = *entry;
    }
    *next_ns = now_ns;
    return count;
}
