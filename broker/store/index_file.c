/*
 * Reading and writing index files; the layout and the order of writes are told in index_file.h.
 *
 * Invariants: header.count entries [1, count) are on the file, in log order, so that endPhyOffset
 * only grows; prevIndex is always smaller than the entry's own number.
 *
 * Threads: as said in the header. Failure modes: codes of the disk; an append that failed in the
 * middle has left entries beyond the count and slots that point to them. The next try follows such
 * slots to what they held before (chain_below), so no chain is lost.
 */
#include "broker/store/index_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum { ENTRY_CHUNK = 1024 };

/* ---- small things ---- */

int64_t index_file_bytes(uint32_t slots, uint32_t entries)
{
    return INDEX_HEADER_BYTES + (int64_t)slots * INDEX_SLOT_BYTES +
           (int64_t)entries * INDEX_ENTRY_BYTES;
}

uint32_t index_slot_of(const struct index_file *file, uint32_t hash)
{
    return hash % file->slots;
}

int64_t index_slot_at(uint32_t slot)
{
    return INDEX_HEADER_BYTES + (int64_t)slot * INDEX_SLOT_BYTES;
}

int64_t index_entry_at(uint32_t slots, uint32_t number)
{
    return index_slot_at(slots) + (int64_t)number * INDEX_ENTRY_BYTES;
}

enum tern_code index_scratch_init(struct index_scratch *scratch, uint32_t slots)
{
    scratch->pages = (uint32_t)((index_slot_at(slots) + INDEX_PAGE_BYTES - 1) / INDEX_PAGE_BYTES);
    scratch->order = malloc(INDEX_BATCH_MAX * sizeof(uint32_t));
    scratch->prev = malloc(INDEX_BATCH_MAX * sizeof(uint32_t));
    scratch->page_start = malloc(((size_t)scratch->pages + 1) * sizeof(uint32_t));
    if (scratch->order && scratch->prev && scratch->page_start)
        return TERN_OK;
    index_scratch_fini(scratch);
    return TERN_NO_MEMORY;
}

void index_scratch_fini(struct index_scratch *scratch)
{
    free(scratch->order);
    free(scratch->prev);
    free(scratch->page_start);
    memset(scratch, 0, sizeof *scratch);
}

/* ---- header ---- */

static void header_encode(uint8_t raw[INDEX_HEADER_BYTES], const struct index_header *header,
                          bool unfinished)
{
    put_be64(raw, (uint64_t)header->begin_ms);
    put_be64(raw + 8, (uint64_t)(unfinished ? INDEX_UNFINISHED_MS : header->end_ms));
    put_be64(raw + 16, (uint64_t)header->begin_phys);
    put_be64(raw + 24, (uint64_t)header->end_phys);
    put_be32(raw + 32, header->slots_used);
    put_be32(raw + 36, header->count);
}

static void header_decode(struct index_header *header, const uint8_t raw[INDEX_HEADER_BYTES])
{
    header->begin_ms = (int64_t)get_be64(raw);
    header->end_ms = (int64_t)get_be64(raw + 8);
    header->begin_phys = (int64_t)get_be64(raw + 16);
    header->end_phys = (int64_t)get_be64(raw + 24);
    header->slots_used = get_be32(raw + 32);
    header->count = get_be32(raw + 36);
}

enum tern_code index_write_header(struct index_file *file, const struct index_header *header,
                                  bool unfinished)
{
    uint8_t raw[INDEX_HEADER_BYTES];
    header_encode(raw, header, unfinished);
    return file_pwrite(file->file, raw, sizeof raw, 0);
}

/* ---- life ---- */

static struct index_file *new_file(const char *name, uint32_t slots, uint32_t entries)
{
    struct index_file *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    atomic_init(&file->refs, 1);
    snprintf(file->name, sizeof file->name, "%s", name);
    file->slots = slots;
    file->entries = entries;
    file->header.count = 1;
    return file;
}

void index_file_ref(struct index_file *file)
{
    atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
}

void index_file_unref(struct index_file *file)
{
    if (!file || atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) > 1)
        return;
    file_close(file->file);
    free(file);
}

enum tern_code index_file_open(struct index_file *file, struct fs *fs, const char *dir,
                               unsigned flags, struct file **out)
{
    char path[FS_PATH_BYTES];
    enum tern_code code = fs_join(path, dir, file->name);
    return code ? code : fs_open(fs, path, flags, out);
}

enum tern_code index_file_create(struct fs *fs, const char *dir, const char *name, uint32_t slots,
                                 uint32_t entries, const struct index_header *before,
                                 struct index_file **out)
{
    *out = NULL;
    struct index_file *file = new_file(name, slots, entries);
    if (!file)
        return TERN_NO_MEMORY;
    if (before && before->end_phys > 0)
        file->header.begin_phys = file->header.end_phys = before->end_phys;
    if (before && before->end_ms > 0)
        file->header.begin_ms = file->header.end_ms = before->end_ms;
    file->unfinished = true;
    enum tern_code code =
        index_file_open(file, fs, dir, FS_READ | FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file->file);
    if (code == TERN_OK) {
        code = file_truncate(file->file, index_file_bytes(slots, entries));
        if (code == TERN_OK)
            code = index_write_header(file, &file->header, true);
        if (code == TERN_OK)
            code = file_sync(file->file);
        if (code == TERN_OK)
            code = fs_sync_dir(fs, dir);
        char path[FS_PATH_BYTES];
        if (code && fs_join(path, dir, name) == TERN_OK) { /* do not leave one behind at each try */
            int saved = errno;
            (void)!fs_unlink(fs, path);
            errno = saved;
        }
    }
    if (code) {
        int saved = errno;
        index_file_unref(file);
        errno = saved;
        return code;
    }
    *out = file;
    return TERN_OK;
}

enum tern_code index_file_load(struct fs *fs, const char *dir, const char *name, uint32_t slots,
                               uint32_t entries, struct index_file **out, bool *fits)
{
    *out = NULL;
    *fits = false;
    struct index_file *file = new_file(name, slots, entries);
    struct file *handle = NULL;
    uint8_t raw[INDEX_HEADER_BYTES];
    size_t got = 0;
    int64_t size = 0;
    if (!file)
        return TERN_NO_MEMORY;
    enum tern_code code = index_file_open(file, fs, dir, FS_READ, &handle);
    if (code == TERN_OK)
        code = file_size(handle, &size);
    if (code == TERN_OK)
        code = file_pread(handle, raw, sizeof raw, 0, &got);
    if (code == TERN_OK && got == sizeof raw) {
        struct index_header *h = &file->header;
        header_decode(h, raw);
        file->unfinished = h->end_ms == INDEX_UNFINISHED_MS;
        if (h->count == 0)
            h->count = 1; /* RocketMQ: a file that nothing was put into yet */
        *fits = size == index_file_bytes(slots, entries) && h->count <= entries &&
                h->slots_used <= slots && h->begin_phys >= 0 && h->end_phys >= h->begin_phys &&
                h->begin_ms >= 0 && h->end_ms >= 0;
    }
    int saved = errno;
    file_close(handle);
    if (code) {
        index_file_unref(file);
        errno = saved;
        return code;
    }
    *out = file;
    return TERN_OK;
}

/* ---- reading ---- */

void index_entry_decode(struct index_entry *entry, const uint8_t *raw)
{
    entry->hash = get_be32(raw);
    entry->phys_off = (int64_t)get_be64(raw + 4);
    entry->time_diff = (int32_t)get_be32(raw + 12);
    entry->prev = get_be32(raw + 16);
}

/* A read that must be whole: files have their full length. */
enum tern_code index_read_whole(struct file *file, void *buf, size_t size, int64_t at)
{
    size_t got = 0;
    enum tern_code code = file_pread(file, buf, size, at, &got);
    return code ? code : got == size ? TERN_OK : TERN_CORRUPT;
}

enum tern_code index_read_slot(struct file *file, uint32_t slot, uint32_t *number)
{
    uint8_t raw[INDEX_SLOT_BYTES] = {0};
    enum tern_code code = index_read_whole(file, raw, sizeof raw, index_slot_at(slot));
    *number = get_be32(raw);
    return code;
}

enum tern_code index_read_entry(struct file *file, uint32_t slots, uint32_t number,
                                struct index_entry *out)
{
    uint8_t raw[INDEX_ENTRY_BYTES] = {0};
    enum tern_code code = index_read_whole(file, raw, sizeof raw, index_entry_at(slots, number));
    index_entry_decode(out, raw);
    return code;
}

/* ---- appending ---- */

/* Counting sort by slot page; within a page the log's order stays. */
static void sort_by_page(const struct index_file *file, struct index_scratch *scratch,
                         const struct index_key *keys, uint32_t count)
{
    uint32_t *start = scratch->page_start;
    memset(start, 0, ((size_t)scratch->pages + 1) * sizeof *start);
    for (uint32_t i = 0; i < count; i++)
        start[index_slot_at(index_slot_of(file, keys[i].hash)) / INDEX_PAGE_BYTES + 1]++;
    for (uint32_t p = 1; p <= scratch->pages; p++)
        start[p] += start[p - 1];
    for (uint32_t i = 0; i < count; i++)
        scratch
            ->order[start[index_slot_at(index_slot_of(file, keys[i].hash)) / INDEX_PAGE_BYTES]++] =
            i;
    /* Each start is now its page's end, that is, the next page's start. */
}

/* What a slot's number is worth: entries that a failed append left are followed to what was before.
 */
static enum tern_code chain_below(struct index_file *file, uint32_t *number)
{
    while (*number >= file->header.count) {
        struct index_entry entry;
        if (*number >= file->entries) {
            *number = 0;
            break;
        }
        enum tern_code code = index_read_entry(file->file, file->slots, *number, &entry);
        if (code)
            return code;
        *number = entry.prev < *number ? entry.prev : 0;
    }
    return TERN_OK;
}

/* A run of slots in memory. */
struct page {
    int64_t at; /* in the file */
    size_t size;
    uint8_t bytes[INDEX_PAGE_BYTES];
};

/* Reads the slots from the first to the last that order[first, end) touches; they are all of one
 * page. */
static enum tern_code read_slots(struct index_file *file, const struct index_scratch *scratch,
                                 const struct index_key *keys, uint32_t first, uint32_t end,
                                 struct page *page)
{
    uint32_t low = UINT32_MAX;
    uint32_t high = 0;
    for (uint32_t k = first; k < end; k++) {
        uint32_t slot = index_slot_of(file, keys[scratch->order[k]].hash);
        low = slot < low ? slot : low;
        high = slot > high ? slot : high;
    }
    page->at = index_slot_at(low);
    page->size = (size_t)(index_slot_at(high) + INDEX_SLOT_BYTES - page->at);
    return index_read_whole(file->file, page->bytes, page->size, page->at);
}

static uint8_t *slot_in_page(const struct index_file *file, struct page *page, uint32_t hash)
{
    return page->bytes + (index_slot_at(index_slot_of(file, hash)) - page->at);
}

/* Step 1 for one page: prev of its entries; counts slots that were empty. */
static enum tern_code find_prevs(struct index_file *file, struct index_scratch *scratch,
                                 const struct index_key *keys, uint32_t first, uint32_t end,
                                 uint32_t *slots_used)
{
    struct page page;
    enum tern_code code = read_slots(file, scratch, keys, first, end, &page);
    for (uint32_t k = first; k < end && code == TERN_OK; k++) {
        uint32_t i = scratch->order[k];
        uint8_t *slot = slot_in_page(file, &page, keys[i].hash);
        uint32_t prev = get_be32(slot);
        /* Numbers of this batch are told from those a failed one left by the mark in the top bit.
         */
        if (prev & 0x80000000u)
            prev &= 0x7FFFFFFFu;
        else
            code = chain_below(file, &prev);
        scratch->prev[i] = prev;
        *slots_used += prev == 0;
        put_be32(slot, (file->header.count + i) | 0x80000000u);
    }
    return code;
}

/* Step 2. */
static enum tern_code write_entries(struct index_file *file, const struct index_scratch *scratch,
                                    const struct index_key *keys, uint32_t count, int64_t begin_ms)
{
    uint8_t raw[ENTRY_CHUNK * INDEX_ENTRY_BYTES];
    for (uint32_t done = 0; done < count;) {
        uint32_t n = count - done < ENTRY_CHUNK ? count - done : ENTRY_CHUNK;
        for (uint32_t i = 0; i < n; i++) {
            const struct index_key *key = &keys[done + i];
            /* The first entry of a file still counts from the seeded time, as in RocketMQ. */
            int64_t base = file->header.count + done + i == 1 ? file->header.begin_ms : begin_ms;
            int64_t seconds = base > 0 ? (key->store_ms - base) / 1000 : 0;
            seconds = seconds < 0 ? 0 : seconds > INT32_MAX ? INT32_MAX : seconds;
            uint8_t *p = raw + (size_t)i * INDEX_ENTRY_BYTES;
            put_be32(p, key->hash);
            put_be64(p + 4, (uint64_t)key->phys_off);
            put_be32(p + 12, (uint32_t)seconds);
            put_be32(p + 16, scratch->prev[done + i]);
        }
        enum tern_code code = file_pwrite(file->file, raw, (size_t)n * INDEX_ENTRY_BYTES,
                                          index_entry_at(file->slots, file->header.count + done));
        if (code)
            return code;
        done += n;
    }
    return TERN_OK;
}

/* Step 3 for one page. */
static enum tern_code write_slots(struct index_file *file, const struct index_scratch *scratch,
                                  const struct index_key *keys, uint32_t first, uint32_t end)
{
    struct page page;
    enum tern_code code = read_slots(file, scratch, keys, first, end, &page);
    if (code)
        return code;
    for (uint32_t k = first; k < end; k++) {
        uint32_t i = scratch->order[k];
        put_be32(slot_in_page(file, &page, keys[i].hash), file->header.count + i);
    }
    return file_pwrite(file->file, page.bytes, page.size, page.at);
}

/* Before a file that is on disk as it should be is written to. */
static enum tern_code mark_unfinished(struct index_file *file)
{
    if (file->unfinished)
        return TERN_OK;
    enum tern_code code = index_write_header(file, &file->header, true);
    if (code == TERN_OK)
        code = file_sync(file->file);
    if (code == TERN_OK)
        file->unfinished = true;
    return code;
}

enum tern_code index_file_append(struct index_file *file, struct index_scratch *scratch,
                                 const struct index_key *keys, uint32_t count,
                                 struct index_header *after, uint32_t *taken)
{
    *taken = 0;
    *after = file->header;
    uint32_t room = file->entries > after->count ? file->entries - after->count : 0;
    uint32_t n = count < room ? count : room;
    if (n > INDEX_BATCH_MAX)
        n = INDEX_BATCH_MAX;
    enum tern_code code = n ? mark_unfinished(file) : TERN_OK;
    if (n == 0 || code)
        return code;
    if (after->count == 1) {
        after->begin_ms = keys[0].store_ms;
        after->begin_phys = keys[0].phys_off;
    }
    sort_by_page(file, scratch, keys, n);
    for (int step = 1; step <= 3 && code == TERN_OK; step += 2) {
        uint32_t first = 0;
        for (uint32_t p = 0; p < scratch->pages && first < n && code == TERN_OK; p++) {
            uint32_t end = scratch->page_start[p];
            if (end > first && step == 1)
                code = find_prevs(file, scratch, keys, first, end, &after->slots_used);
            else if (end > first)
                code = write_slots(file, scratch, keys, first, end);
            first = end;
        }
        if (step == 1 && code == TERN_OK)
            code = write_entries(file, scratch, keys, n, after->begin_ms);
    }
    after->end_ms = keys[n - 1].store_ms;
    after->end_phys = keys[n - 1].phys_off;
    after->count += n;
    if (code == TERN_OK)
        code = index_write_header(file, after, true);
    *taken = code ? 0 : n;
    return code;
}

enum tern_code index_file_seal(struct index_file *file, struct fs *fs, const char *dir)
{
    enum tern_code code = TERN_OK;
    if (!file->file)
        code = index_file_open(file, fs, dir, FS_READ | FS_WRITE, &file->file);
    if (code == TERN_OK)
        code = file_sync(file->file);
    if (code == TERN_OK)
        code = index_write_header(file, &file->header, false);
    if (code == TERN_OK)
        code = file_sync(file->file);
    int saved = errno;
    file_close(file->file);
    file->file = NULL;
    file->unfinished = code != TERN_OK;
    errno = saved;
    return code;
}
