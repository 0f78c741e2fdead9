/* The fake store; it stands in for the functions of broker/store/store.h that a replica calls. */
#include "tests/unit/ha/fake_store.h"

#include <stdio.h>
#include <string.h>

void fake_store_note(struct store *store, char letter)
{
    size_t len = strlen(store->diary);
    if (len + 1 < store->diary_size) {
        store->diary[len] = letter;
        store->diary[len + 1] = '\0';
    }
}

uint8_t fake_byte(int64_t phys_off, uint64_t epoch_id)
{
    return (uint8_t)((uint64_t)phys_off * 31 + epoch_id * 7 + ((uint64_t)phys_off >> 8));
}

static void set_end(struct store *store, int64_t end)
{
    store->at.appended = end;
    store->at.whole = end - end % FAKE_RECORD_BYTES;
    if (store->at.whole < store->at.min)
        store->at.whole = store->at.min;
}

void fake_store_write(struct store *store, int64_t end, uint64_t epoch_id)
{
    for (int64_t at = store->at.appended; at < end; at++)
        store->bytes[at] = fake_byte(at, epoch_id);
    set_end(store, end);
    store->at.flushed = store->at.whole;
    store->at.dispatched = store->at.whole;
}

void store_positions(struct store *store, struct store_positions *out)
{
    *out = store->at;
}

void store_set_sync_flush(struct store *store, bool on)
{
    store->sync_flush = on;
}

enum tern_code store_append_bytes(struct store *store, int64_t phys_off, const uint8_t *bytes,
                                  size_t size, bool nowait, struct tern_error *err)
{
    if (phys_off != store->at.appended || phys_off + (int64_t)size > FAKE_STORE_BYTES)
        return error_set(err, TERN_INVALID, "not the end");
    if (nowait && store->again > 0) {
        store->again--;
        return TERN_AGAIN;
    }
    if (store->append_code != TERN_OK)
        return error_set(err, store->append_code, "as the test wants it");
    store->waited += !nowait;
    memcpy(store->bytes + phys_off, bytes, size);
    set_end(store, phys_off + (int64_t)size);
    if (store->flushes) {
        store->at.flushed = store->at.whole;
        store->at.dispatched = store->at.whole;
    }
    fake_store_note(store, 'a');
    return TERN_OK;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

enum tern_code store_cut(struct store *store, int64_t phys_off, bool save, struct store_cut *result,
                         struct tern_error *err)
{
    *result = (struct store_cut){.at = phys_off, .cut_bytes = store->at.appended - phys_off};
    if (store->cut_code != TERN_OK)
        return error_set(err, store->cut_code, "as the test wants it");
    result->records = result->cut_bytes / FAKE_RECORD_BYTES;
    snprintf(result->saved_as, sizeof result->saved_as, "%s", save ? "diverged/x.log" : "");
    store->cut_at = phys_off;
    set_end(store, phys_off);
    store->at.flushed = least(store->at.flushed, phys_off);
    store->at.dispatched = least(store->at.dispatched, phys_off);
    fake_store_note(store, save ? 'C' : 'P');
    return TERN_OK;
}

enum tern_code store_reset(struct store *store, int64_t start, struct store_cut *result,
                           struct tern_error *err)
{
    *result = (struct store_cut){.at = start, .cut_bytes = store->at.appended - store->at.min};
    if (store->reset_code != TERN_OK)
        return error_set(err, store->reset_code, "as the test wants it");
    snprintf(result->saved_as, sizeof result->saved_as, "diverged/1");
    store->reset_at = start;
    store->at = (struct store_positions){start, start, start, start, start};
    fake_store_note(store, 'R');
    return TERN_OK;
}
