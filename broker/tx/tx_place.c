/*
 * How far back the log must be read when a master opens without a snapshot that fits, as a slave
 * does that becomes one.
 *
 *   log   ──half──commit───half──────────half──commit── p ──────────────►
 *                           ▲ the first one that is open                │ "all before there are
 *                           └────────────────────────────────────────── decided for good"
 *
 * The master puts such a mark now and then. It lies in the log, behind all that it speaks of: who
 * has the mark has the decisions, and a cut that takes a decision takes the mark, too. So every
 * mark stays true, and the last one that is found, however old, bounds the reading.
 *
 * What holds a mark back: pending, being ended, on its way, discarded (it may be resumed), and what
 * was decided so lately that its outcome may be told again.
 *
 * Threads: the task's. Failure modes: a mark that is not stored, or cannot be read, costs reading.
 */
#include "broker/tx/tx_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/names.h"

enum {
    PLACES_A_SEGMENT = 64, /* at most so many marks in one segment's length of log */
    RETOLD_MS = 120000,    /* outcomes are told again within */
    UNITS = 1024,          /* read at a time */
    UNITS_MAX = 4 << 20    /* looked through for a mark */
};

static bool holds_back(const struct tx_entry *entry, int64_t since_ns)
{
    return entry->state == TX_PENDING || entry->state == TX_ENDING ||
           entry->state == TX_DISCARDED || entry->check_ns >= since_ns;
}

/* Before it all is decided for good. Entries that do not hold it back are at most as many as are
 * remembered. */
static int64_t place_now(struct tx *tx)
{
    int64_t since_ns = clock_mono_ns(tx->env.clock) - ms_to_ns(RETOLD_MS);
    int64_t place = tx_position(tx);
    lock_acquire(&tx->lock);
    const struct tx_entry *entry = tx_table_after(&tx->table, -1);
    for (; entry; entry = tx_table_next(&tx->table, entry)) {
        if (!holds_back(entry, since_ns))
            continue;
        if (entry->phys_off < place)
            place = entry->phys_off;
        break;
    }
    lock_release(&tx->lock);
    return place;
}

void tx_place_step(struct tx *tx)
{
    int64_t place = place_now(tx);
    if (place - tx->place < tx->broker->config.segment_bytes / PLACES_A_SEGMENT)
        return;
    tx->place = place;
    tx_put_mark(tx, 'p', place, 0);
}

/* What the mark at a unit says; -1: it is none, or damaged. */
static int64_t read_place(struct tx *tx, const struct store_unit *unit)
{
    struct record record;
    struct tx_said said = {.word = TX_WORD_NONE};
    int64_t place = -1;
    uint8_t *bytes = unit->size >= TX_RECORD_BYTES_MIN ? malloc((size_t)unit->size) : NULL;
    if (bytes && tx_read_bytes(tx, unit->phys_off, bytes, (size_t)unit->size, false) == TERN_OK &&
        record_parse(bytes, (size_t)unit->size, (uint32_t)unit->size, false, &record) ==
            RECORD_WHOLE &&
        record_body_crc(record.body, record.body_len) == record.body_crc)
        tx_record_read(&record, &said);
    if (said.word == TX_WORD_PLACE && said.phys_off <= unit->phys_off)
        place = said.phys_off;
    free(bytes);
    return place;
}

int64_t tx_place_last(struct tx *tx)
{
    struct store_unit *units = malloc(UNITS * sizeof *units);
    int64_t code = tags_code("p", 1);
    int64_t place = -1;
    int64_t min;
    int64_t max;
    store_queue_range(tx->broker->store, TX_OP_TOPIC, 0, &min, &max);
    int64_t least = max - min > UNITS_MAX ? max - UNITS_MAX : min;
    for (int64_t end = max; units && place < 0 && end > least;) {
        int64_t at = end - least > UNITS ? end - UNITS : least;
        int64_t first;
        uint32_t got;
        if (store_read_units(tx->broker->store, TX_OP_TOPIC, 0, at, units, (uint32_t)(end - at),
                             &first, &got) != TERN_OK)
            break;
        for (uint32_t i = got; place < 0 && i > 0; i--)
            if (units[i - 1].tags_code == code)
                place = read_place(tx, &units[i - 1]);
        end = at;
    }
    free(units);
    return place;
}
