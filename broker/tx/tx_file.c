/*
 * The snapshot: ROOT/ternmq/transactions, two checksummed generations.
 *
 *   ternmq-transactions 2
 *   <log position> <log end> <epoch number> <epoch id> <entries>
 *   <half_off> <phys_off> <size> <store_ms> <ask in ms> <checks> <state>      one line each
 *
 * It says what the records before the log position came to, and maybe a little of what came behind
 * them, up to the log end: reading those again changes nothing. Everything before the end is on the
 * disk before the file is. The epoch is that of the last byte before the end: when the log is
 * shorter, or another one there by now, the file knows of what never was, and says nothing.
 *
 * Nobody edits it: a generation whose checksum does not fit is damaged.
 *
 * The table is copied in slices, so that nobody waits long for the lock: what is added meanwhile
 * lies behind the position, what is decided meanwhile is found behind it.
 */
#include "broker/tx/tx_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/durable_file.h"
#include "base/fs.h"
#include "broker/ha/ha.h"

#define HEADING "ternmq-transactions 2\n"
/* Kept with each generation's checksum: without it nobody knows who wrote the text. */
#define WRITTEN_BY "broker"

enum { LINE_BYTES = 128, SLICE = 512, ASK_MAX_MS = 86400000 };

static enum tern_code file_path(struct tx *tx, char path[FS_PATH_BYTES], struct tern_error *err)
{
    char dir[FS_PATH_BYTES];
    const char *root = tx->broker->config.store_root;
    enum tern_code code = fs_join(dir, root, "ternmq");
    if (code == TERN_OK)
        code = fs_join(path, dir, "transactions");
    return code ? error_set(err, code, "storePathRootDir: '%s' is too long", root) : TERN_OK;
}

/* ---- writing ---- */

struct text {
    char *bytes;
    size_t len, cap;
};

static bool text_add(struct text *text, const char *line, size_t len)
{
    if (text->len + len + 1 > text->cap) {
        size_t cap = text->cap ? text->cap * 2 : 4096;
        char *bytes = realloc(text->bytes, cap);
        if (!bytes)
            return false;
        text->bytes = bytes;
        text->cap = cap;
    }
    memcpy(text->bytes + text->len, line, len);
    text->len += len;
    text->bytes[text->len] = 0;
    return true;
}

int64_t tx_position(struct tx *tx)
{
    struct store_positions at;
    store_positions(tx->broker->store, &at);
    int64_t position = at.appended;
    lock_acquire(&tx->lock);
    for (const struct tx_op *op = tx->ops; op; op = op->next)
        if (op->from < position)
            position = op->from;
    lock_release(&tx->lock);
    return position;
}

static size_t copy_slice(struct tx *tx, int64_t *half_off, struct tx_entry out[SLICE])
{
    size_t count = 0;
    lock_acquire(&tx->lock);
    const struct tx_entry *e = tx_table_after(&tx->table, *half_off);
    for (; e && count < SLICE; e = tx_table_next(&tx->table, e))
        out[count++] = *e;
    lock_release(&tx->lock);
    if (count)
        *half_off = out[count - 1].half_off;
    return count;
}

static bool write_entries(struct tx *tx, struct text *text, size_t *entries)
{
    struct tx_entry *slice = malloc(SLICE * sizeof *slice);
    int64_t now_ns = clock_mono_ns(tx->env.clock);
    int64_t half_off = -1;
    bool ok = slice != NULL;
    size_t count;
    *entries = 0;
    while (ok && (count = copy_slice(tx, &half_off, slice)) > 0) {
        for (size_t i = 0; ok && i < count; i++) {
            char line[LINE_BYTES];
            const struct tx_entry *e = &slice[i];
            int64_t ask_ms = (e->check_ns - now_ns) / ms_to_ns(1);
            int len =
                snprintf(line, sizeof line,
                         "%" PRId64 " %" PRId64 " %" PRIu32 " %" PRId64 " %" PRId64 " %u %u\n",
                         e->half_off, e->phys_off, e->size, e->store_ms, ask_ms > 0 ? ask_ms : 0,
                         e->checks, e->state == TX_ENDING ? TX_PENDING : e->state);
            ok = text_add(text, line, (size_t)len);
        }
        *entries += count;
    }
    free(slice);
    return ok;
}

/* Where in the log a snapshot stands. */
struct place {
    int64_t position, end;
    uint64_t epoch_number, epoch_id; /* of the byte before the end */
};

/* Takes the end behind all that has come into the table; false: the log is empty. */
static bool take_end(struct tx *tx, struct place *place)
{
    struct store_positions at;
    store_positions(tx->broker->store, &at);
    place->end = at.appended;
    return place->end > 0 &&
           ha_epoch_of(tx->broker->ha, place->end - 1, &place->epoch_number, &place->epoch_id);
}

/* Heading and entries as one text. */
static bool build(const struct place *place, const struct text *entries, size_t count,
                  struct text *out)
{
    char head[2 * LINE_BYTES];
    int len =
        snprintf(head, sizeof head, HEADING "%" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64 " %zu\n",
                 place->position, place->end, place->epoch_number, place->epoch_id, count);
    bool ok = text_add(out, head, (size_t)len);
    for (size_t at = 0; ok && at < entries->len; at += LINE_BYTES) {
        size_t left = entries->len - at;
        ok = text_add(out, entries->bytes + at, left < LINE_BYTES ? left : LINE_BYTES);
    }
    return ok;
}

enum tern_code tx_file_write(struct tx *tx, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    struct text entries = {NULL, 0, 0};
    struct text text = {NULL, 0, 0};
    size_t count = 0;
    struct place place = {.position = tx_position(tx)};
    enum tern_code code = file_path(tx, path, err);
    bool ok = write_entries(tx, &entries, &count);
    bool empty = !take_end(tx, &place) || place.position == 0;
    if (!code && !empty && !(ok && build(&place, &entries, count, &text)))
        code = error_set(err, TERN_NO_MEMORY, "no memory for the snapshot of transactions");
    if (!code && !empty)
        code = store_flush(tx->broker->store, err);
    if (!code && !empty)
        code = durable_write(&tx->env, path, text.bytes, text.len, WRITTEN_BY, err);
    free(entries.bytes);
    free(text.bytes);
    return code;
}

/* ---- reading ---- */

struct reading {
    struct tx *tx;
    int64_t position;
};

static bool take_number(const char **at, uint64_t max, char end, uint64_t *out)
{
    uint64_t number = 0;
    const char *p = *at;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (digit > max || number > (max - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    if (*p != end)
        return false;
    *at = p + 1;
    *out = number;
    return true;
}

static bool take_entry(struct tx *tx, const char **at)
{
    uint64_t v[7];
    static const uint64_t max[7] = {INT64_MAX,  INT64_MAX,  INT32_MAX,    INT64_MAX,
                                    ASK_MAX_MS, UINT16_MAX, TX_STATES - 1};
    for (int i = 0; i < 7; i++)
        if (!take_number(at, max[i], i < 6 ? ' ' : '\n', &v[i]))
            return false;
    struct tx_entry entry = {
        .half_off = (int64_t)v[0],
        .phys_off = (int64_t)v[1],
        .size = (uint32_t)v[2],
        .store_ms = (int64_t)v[3],
        .check_ns = clock_mono_ns(tx->env.clock) + ms_to_ns((int64_t)v[4]),
        .checks = (uint16_t)v[5],
        .state = (uint8_t)v[6],
    };
    if (entry.size < TX_RECORD_BYTES_MIN || entry.state == TX_ENDING)
        return false;
    lock_acquire(&tx->lock);
    bool added = tx_table_reserve(&tx->table, 1) && tx_table_add(&tx->table, &entry);
    lock_release(&tx->lock);
    return added;
}

/* Whether the log up to the end is the one that the file speaks of. */
static bool fits_log(struct tx *tx, const struct place *place)
{
    struct store_positions at;
    uint64_t own_number;
    uint64_t own_id;
    store_positions(tx->broker->store, &at);
    return place->position > 0 && place->position >= at.min && place->end >= place->position &&
           place->end <= at.appended &&
           ha_epoch_of(tx->broker->ha, place->end - 1, &own_number, &own_id) &&
           own_number == place->epoch_number && own_id == place->epoch_id;
}

static bool take_head(const char **at, struct place *place, uint64_t *count)
{
    uint64_t position;
    uint64_t end;
    bool good = take_number(at, INT64_MAX, ' ', &position) &&
                take_number(at, INT64_MAX, ' ', &end) &&
                take_number(at, UINT64_MAX, ' ', &place->epoch_number) &&
                take_number(at, UINT64_MAX, ' ', &place->epoch_id) &&
                take_number(at, SIZE_MAX, '\n', count);
    place->position = good ? (int64_t)position : 0;
    place->end = good ? (int64_t)end : 0;
    return good;
}

static enum tern_code parse(void *arg, const char *text, size_t len, const char *extra,
                            struct tern_error *err)
{
    struct reading *reading = arg;
    struct tx *tx = reading->tx;
    const char *at = text + sizeof HEADING - 1;
    struct place place;
    uint64_t count;
    if (!extra || strcmp(extra, WRITTEN_BY) != 0)
        return error_set(err, TERN_CORRUPT, "the snapshot's checksum does not fit");
    if (strlen(text) != len || strncmp(text, HEADING, sizeof HEADING - 1) != 0 ||
        !take_head(&at, &place, &count))
        return error_set(err, TERN_CORRUPT, "the head of the snapshot of transactions is damaged");
    if (!fits_log(tx, &place))
        return error_set(err, TERN_CORRUPT,
                         "it speaks of the log from %" PRId64 " to %" PRId64
                         ", which is another one or has expired by now",
                         place.position, place.end);
    lock_acquire(&tx->lock);
    tx_table_clear(&tx->table);
    lock_release(&tx->lock);
    for (uint64_t i = 0; i < count; i++)
        if (!take_entry(tx, &at))
            return error_set(err, TERN_CORRUPT, "entry %" PRIu64 " of the snapshot is damaged", i);
    reading->position = place.position;
    return *at ? error_set(err, TERN_CORRUPT, "more entries in the snapshot than it says")
               : TERN_OK;
}

enum tern_code tx_file_read(struct tx *tx, int64_t *from, struct tern_error *err)
{
    char path[FS_PATH_BYTES];
    struct reading reading = {.tx = tx};
    enum tern_code code = file_path(tx, path, err);
    if (code == TERN_OK)
        code = durable_read(&tx->env, path, parse, &reading, err);
    *from = reading.position;
    if (code == TERN_OK)
        return TERN_OK;
    lock_acquire(&tx->lock);
    tx_table_clear(&tx->table);
    lock_release(&tx->lock);
    return code;
}
