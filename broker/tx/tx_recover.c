/*
 * Reading the log when a master opens.
 *
 *   snapshot at P ──► records from P to the end ──► ready
 *   none that fits ─► records from where the last mark says that all before is decided
 * (tx_place.c), or from the first retained half record, or where dispatching is
 *
 * Nothing of ours is under way meanwhile, and nothing begins: half messages and outcomes are
 * refused until the table is whole. Reading is idempotent: the snapshot may know of records behind
 * its position already.
 *
 * A damaged record is passed over by its length, or its segment is left, and that is logged: a
 * decision that stood there is asked for again.
 *
 * Threads: the task's. Failure modes: an error of the disk, or the master that closes meanwhile,
 * ends it; it begins anew later.
 */
#include "broker/tx/tx_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"

enum {
    STRIDE_BYTES = 64 << 20, /* between two looks at whether the master is still open */
    STRIDES_SAID = 16        /* between two words about how far it is */
};

struct walk {
    struct tx *tx;
    bool failed; /* no memory */
    uint64_t records, strides;
};

/* ---- what a record changes; @locks holds:BROKER_TX ---- */

static bool add_half(struct tx *tx, const struct tx_said *said)
{
    int64_t age_ms = clock_wall_ms(tx->env.clock) - said->store_ms;
    int64_t wait_ms = tx->broker->config.transaction_timeout_ms;
    if (said->immunity_ms - age_ms > wait_ms && age_ms >= 0)
        wait_ms = said->immunity_ms - age_ms;
    struct tx_entry entry = {.half_off = said->half_off,
                             .phys_off = said->phys_off,
                             .store_ms = said->store_ms,
                             .check_ns = clock_mono_ns(tx->env.clock) + ms_to_ns(wait_ms),
                             .size = said->size,
                             .state = TX_PENDING};
    if (!tx_table_reserve(&tx->table, 1))
        return false;
    tx_table_add(&tx->table, &entry);
    return true;
}

static void apply_to(struct tx *tx, const struct tx_said *said, struct tx_entry *entry)
{
    bool waits = entry->state == TX_PENDING;
    switch (said->word) {
    case TX_WORD_COMMITTED:
        tx_table_set(&tx->table, entry, TX_COMMITTED); /* whatever else is said: it was delivered */
        break;
    case TX_WORD_DISCARDED:
        if (waits)
            tx_table_set(&tx->table, entry, TX_DISCARDED);
        break;
    case TX_WORD_ENDED:
        if (waits)
            tx_table_set(&tx->table, entry, TX_ROLLED_BACK);
        break;
    case TX_WORD_CHECKED:
        if (said->checks > entry->checks)
            entry->checks = said->checks;
        break;
    case TX_WORD_RESUMED:
        entry->checks = 0;
        if (entry->state == TX_DISCARDED)
            tx_table_set(&tx->table, entry, TX_PENDING);
        break;
    case TX_WORD_NONE:
    case TX_WORD_PLACE:
    case TX_WORD_HALF:
        break;
    }
}

/* false: no memory. */
static bool apply(struct tx *tx, const struct tx_said *said)
{
    bool ok = true;
    lock_acquire(&tx->lock);
    if (said->word == TX_WORD_HALF) {
        ok = add_half(tx, said);
    } else {
        bool by_phys = said->word == TX_WORD_COMMITTED || said->word == TX_WORD_DISCARDED;
        struct tx_entry *entry = by_phys ? tx_table_find_phys(&tx->table, said->phys_off)
                                         : tx_table_find(&tx->table, said->half_off);
        if (entry)
            apply_to(tx, said, entry);
    }
    lock_release(&tx->lock);
    return ok;
}

static bool on_record(void *arg, const struct record *record)
{
    struct walk *walk = arg;
    struct tx_said said;
    walk->records++;
    tx_record_read(record, &said);
    if (said.word != TX_WORD_NONE && !apply(walk->tx, &said))
        walk->failed = true;
    return !walk->failed;
}

/* ---- where to begin ---- */

static uint8_t *reserve(void *arg, size_t size)
{
    uint8_t **bytes = arg;
    *bytes = malloc(size);
    return *bytes;
}

/* Where the first half record lies that has its unit; the dispatched end without one. */
static int64_t first_half(struct tx *tx)
{
    struct store *store = tx->broker->store;
    struct store_positions at;
    struct store_get_result result;
    struct record record;
    uint8_t *bytes = NULL;
    int64_t min;
    int64_t max;
    store_positions(store, &at);
    store_queue_range(store, TX_HALF_TOPIC, 0, &min, &max);
    if (max == 0)
        return at.dispatched;
    struct store_get get = {
        .topic = TX_HALF_TOPIC, .offset = min, .max_count = 1, .reserve = reserve, .arg = &bytes};
    int64_t from = at.min;
    if (min < max && store_get(store, &get, &result) == TERN_OK && result.status == GET_FOUND &&
        record_parse(bytes, result.size_bytes, result.size_bytes, false, &record) == RECORD_WHOLE)
        from = record.phys_off;
    free(bytes);
    return from;
}

/* ---- walking ---- */

/* Where the log goes on behind a damaged record. */
static int64_t behind_damage(struct tx *tx, int64_t at)
{
    uint8_t head[RECORD_BLANK_BYTES];
    int64_t segment = tx->broker->config.segment_bytes;
    int64_t next = (at / segment + 1) * segment;
    uint32_t size = 0;
    if (tx_read_bytes(tx, at, head, sizeof head, false) == TERN_OK &&
        get_be32(head + 4) == RECORD_MAGIC)
        size = get_be32(head);
    if (size >= TX_RECORD_BYTES_MIN && at + (int64_t)size < next)
        next = at + (int64_t)size;
    counter_add(&tx->damaged, 1);
    log_error(tx->env.log, "transactions_log_damaged",
              "phys_off=%" PRId64 " next=%" PRId64
              " effect=\"an outcome that stood there is asked for again\"",
              at, next);
    return next;
}

/* So that nobody wonders why outcomes are refused. */
static void say_progress(struct walk *walk, int64_t from, int64_t end)
{
    atomic_store(&walk->tx->read_left, end - from);
    if (++walk->strides % STRIDES_SAID == 0)
        log_info(walk->tx->env.log, "transactions_reading",
                 "at=%" PRId64 " to=%" PRId64
                 " effect=\"half messages and outcomes are refused SYSTEM_BUSY until then\"",
                 from, end);
}

static enum tern_code walk_log(struct tx *tx, struct walk *walk, int64_t from, int64_t end)
{
    while (from < end) {
        int64_t upto = end - from > STRIDE_BYTES ? from + STRIDE_BYTES : end;
        int64_t next = from;
        if (!tx_is_open(tx))
            return TERN_AGAIN;
        say_progress(walk, from, end);
        enum tern_code code =
            store_each_record(tx->broker->store, from, upto, on_record, walk, &next);
        if (walk->failed)
            return TERN_NO_MEMORY;
        if (code == TERN_CORRUPT && tx_is_open(tx))
            next = behind_damage(tx, next);
        else if (code != TERN_OK)
            return code == TERN_CORRUPT ? TERN_AGAIN : code;
        else if (next == from && upto == end)
            break; /* not a whole record any more: there is none behind */
        else if (next == from)
            return TERN_CORRUPT; /* no record is that long */
        from = next;
    }
    return tx_is_open(tx) ? TERN_OK : TERN_AGAIN;
}

enum tern_code tx_recover(struct tx *tx, struct tern_error *err)
{
    struct walk walk = {.tx = tx};
    struct store_positions at;
    struct tern_error cause = {.text = ""};
    int64_t begun_ns = clock_mono_ns(tx->env.clock);
    int64_t from;
    store_positions(tx->broker->store, &at);
    lock_acquire(&tx->lock);
    tx_table_clear(&tx->table);
    uint64_t closings = tx->closings;
    lock_release(&tx->lock);
    enum tern_code code = tx_file_read(tx, &from, &cause);
    if (code != TERN_OK) {
        int64_t place = tx_place_last(tx);
        from = first_half(tx);
        from = place > from ? place : from;
        if (code != TERN_NOT_FOUND)
            log_warn(tx->env.log, "transactions_snapshot_unusable",
                     "cause=\"%s\" effect=\"the log is read from %" PRId64 "\"",
                     error_text(&cause, code), from);
    }
    atomic_store(&tx->read_from, from);
    tx->place = from;
    code = walk_log(tx, &walk, from, at.appended);
    atomic_store(&tx->read_left, 0);
    if (code != TERN_OK)
        return error_set(err, code, "reading the log from %" PRId64 " to %" PRId64 ": %s", from,
                         at.appended, tern_code_text(code));
    lock_acquire(&tx->lock);
    tx->ready = tx->closings == closings;
    tx->changed = walk.records > 0;
    bool ready = tx->ready;
    size_t pending = tx_table_open(&tx->table);
    size_t discarded = tx->table.of[TX_DISCARDED];
    lock_release(&tx->lock);
    if (!ready)
        return error_set(err, TERN_AGAIN, "the master stopped writing meanwhile");
    log_info(tx->env.log, "transactions_read",
             "from=%" PRId64 " to=%" PRId64 " records=%" PRIu64
             " pending=%zu discarded=%zu ms=%" PRId64,
             from, at.appended, walk.records, pending, discarded,
             (clock_mono_ns(tx->env.clock) - begun_ns) / ms_to_ns(1));
    return TERN_OK;
}
