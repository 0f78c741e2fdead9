/*
 * Mending an index file after a crash: its slots are made again from its entries.
 *
 * Entries lie in log order and are only added behind, so those that a sync has covered are a
 * beginning of the row: the ones of records before the place that the flush mark names. Each says
 * which entry its slot held before. Walking the row once and setting slots as it was done the first
 * time gives every slot that the file had then; whatever a later batch, half on the disk, has made
 * of the slots does not matter. An entry that does not fit what its slot holds by then ends the
 * row.
 *
 * 20 million entries take about a second. Threads: the opening one. Failure modes: codes of the
 * disk, NO_MEMORY for the slots; mending anew begins from the same entries.
 */
#include "broker/store/index_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { MEND_CHUNK = 16384, MEND_PAGE_BYTES = 4096 };

struct mend {
    int64_t durable_phys;
    uint8_t *slots; /* raw, as they will stand in the file */
    struct index_header header;
    uint32_t kept;
};

/*
 * Takes entry kept + 1 if it goes on from those before; false: they end here. Should one be taken
 * that a cut of the log has left behind the last, a query meets a record without the key, no more.
 */
static bool take_entry(struct mend *mend, const struct index_file *file, const uint8_t *raw)
{
    static const uint8_t never_written[INDEX_ENTRY_BYTES];
    struct index_header *h = &mend->header;
    struct index_entry entry;
    index_entry_decode(&entry, raw);
    if (memcmp(raw, never_written, sizeof never_written) == 0 || entry.hash > INT32_MAX ||
        entry.phys_off >= mend->durable_phys || entry.phys_off < h->begin_phys ||
        entry.phys_off < h->end_phys)
        return false;
    uint8_t *slot = mend->slots + (size_t)index_slot_of(file, entry.hash) * INDEX_SLOT_BYTES;
    uint32_t before = get_be32(slot);
    if (entry.prev != before)
        return false;
    h->slots_used += before == 0;
    put_be32(slot, ++mend->kept);
    h->end_phys = entry.phys_off;
    /* To the second, upwards; the first one's seconds count from the file before. */
    h->end_ms = h->begin_ms + (mend->kept == 1 ? 0 : (int64_t)entry.time_diff * 1000 + 999);
    h->count = mend->kept + 1;
    return true;
}

static enum tern_code take_entries(struct mend *mend, const struct index_file *file)
{
    uint8_t *raw = malloc((size_t)MEND_CHUNK * INDEX_ENTRY_BYTES);
    if (!raw)
        return TERN_NO_MEMORY;
    enum tern_code code = TERN_OK;
    bool more = true;
    while (more && !code && mend->kept + 1 < file->entries) {
        uint32_t left = file->entries - mend->kept - 1;
        uint32_t n = left < MEND_CHUNK ? left : MEND_CHUNK;
        code = index_read_whole(file->file, raw, (size_t)n * INDEX_ENTRY_BYTES,
                                index_entry_at(file->slots, mend->kept + 1));
        for (uint32_t i = 0; i < n && !code && more; i++)
            more = take_entry(mend, file, raw + (size_t)i * INDEX_ENTRY_BYTES);
    }
    free(raw);
    return code;
}

/* Only the pages that differ: a full disk may have no room where the file has none so far. */
static enum tern_code write_slots(const struct mend *mend, const struct index_file *file,
                                  size_t size)
{
    uint8_t there[MEND_PAGE_BYTES];
    enum tern_code code = TERN_OK;
    size_t n = 0;
    for (size_t done = 0; done < size && !code; done += n) {
        int64_t at = index_slot_at(0) + (int64_t)done;
        n = (size_t)(MEND_PAGE_BYTES - at % MEND_PAGE_BYTES);
        n = n < size - done ? n : size - done;
        code = index_read_whole(file->file, there, n, at);
        if (!code && memcmp(there, mend->slots + done, n) != 0)
            code = file_pwrite(file->file, mend->slots + done, n, at);
    }
    return code;
}

enum tern_code index_file_mend(struct index_file *file, struct fs *fs, const char *dir,
                               int64_t durable_phys, uint32_t *kept)
{
    size_t size = (size_t)file->slots * INDEX_SLOT_BYTES;
    struct mend mend = {.durable_phys = durable_phys, .slots = calloc(1, size)};
    mend.header = (struct index_header){
        .begin_ms = file->header.begin_ms, .begin_phys = file->header.begin_phys, .count = 1};
    enum tern_code code = mend.slots ? TERN_OK : TERN_NO_MEMORY;
    if (!code)
        code = index_file_open(file, fs, dir, FS_READ | FS_WRITE, &file->file);
    if (!code)
        code = take_entries(&mend, file);
    if (!code && mend.kept > 0) {
        code = write_slots(&mend, file, size);
        if (!code)
            code = index_write_header(file, &mend.header, true);
        if (!code) /* or a later start could meet the header as it was, without the mark */
            code = file_sync(file->file);
        file->header = mend.header;
        file->unfinished = true;
    }
    *kept = code ? 0 : mend.kept;
    free(mend.slots);
    return code;
}
