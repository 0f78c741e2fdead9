/*
 * Header and shape of an index file. Threads: one. Failure modes: an error of the disk; a file
 * whose shape cannot be told has 0 slots.
 */
#include "tools/mqstore/index_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tools/mqstore/memory.h"

enum {
    DEFAULT_SLOTS = 5000000,
    DEFAULT_ENTRIES = 20000000,
    GUESS_MAX_BYTES = 64 << 20 /* a larger file of another shape needs --index-slots */
};

static int64_t entry_at(uint32_t slots, uint32_t number)
{
    return INDEX_HEADER_BYTES + (int64_t)slots * INDEX_SLOT_BYTES +
           (int64_t)number * INDEX_ENTRY_BYTES;
}

/* Whether the whole file, with so many slots, begins and ends as the header says. */
static bool shape_fits(const uint8_t *raw, int64_t bytes, uint32_t slots,
                       const struct index_header *header)
{
    int64_t last_at = entry_at(slots, header->count - 1);
    if (last_at + INDEX_ENTRY_BYTES > bytes)
        return false;
    const uint8_t *first = raw + entry_at(slots, 1);
    const uint8_t *last = raw + last_at;
    uint32_t hash = get_be32(last);
    uint32_t number =
        get_be32(raw + INDEX_HEADER_BYTES + (size_t)(hash % slots) * INDEX_SLOT_BYTES);
    return (int64_t)get_be64(first + 4) == header->begin_phys &&
           (int64_t)get_be64(last + 4) == header->end_phys && get_be32(first + 16) == 0 &&
           number == header->count - 1;
}

static uint32_t guess_slots(const uint8_t *raw, int64_t bytes, const struct index_header *header)
{
    int64_t rest = bytes - INDEX_HEADER_BYTES;
    for (int64_t slots = 1; slots * INDEX_SLOT_BYTES < rest; slots++)
        if ((rest - slots * INDEX_SLOT_BYTES) % INDEX_ENTRY_BYTES == 0 &&
            shape_fits(raw, bytes, (uint32_t)slots, header))
            return (uint32_t)slots;
    return 0;
}

static enum tern_code guess(struct file *file, int64_t bytes, struct index_shape *shape)
{
    uint8_t *raw = tool_alloc(1, (size_t)bytes);
    size_t got = 0;
    enum tern_code code = file_pread(file, raw, (size_t)bytes, 0, &got);
    if (!code && (int64_t)got == bytes)
        shape->slots = guess_slots(raw, bytes, &shape->header);
    free(raw);
    return code;
}

static enum tern_code read_header(struct file *file, struct index_header *header)
{
    uint8_t raw[INDEX_HEADER_BYTES] = {0};
    size_t got = 0;
    enum tern_code code = file_pread(file, raw, sizeof raw, 0, &got);
    *header = (struct index_header){
        .begin_ms = (int64_t)get_be64(raw),
        .end_ms = (int64_t)get_be64(raw + 8),
        .begin_phys = (int64_t)get_be64(raw + 16),
        .end_phys = (int64_t)get_be64(raw + 24),
        .slots_used = get_be32(raw + 32),
        .count = get_be32(raw + 36),
    };
    return code;
}

enum tern_code index_shape_read(const struct store_dir *dir, const struct index_dir_entry *index,
                                uint32_t slots, struct index_shape *out, struct tern_error *err)
{
    char name[STORE_NAME_BYTES];
    struct file *file = NULL;
    int64_t bytes = index->file_bytes;
    memset(out, 0, sizeof *out);
    store_dir_index_name(name, index);
    enum tern_code code = store_dir_open_file(dir, name, &file);
    if (!code)
        code = read_header(file, &out->header);
    if (!code && slots)
        out->slots = slots;
    else if (!code && bytes == index_file_bytes(DEFAULT_SLOTS, DEFAULT_ENTRIES))
        out->slots = DEFAULT_SLOTS;
    else if (!code && out->header.count > 1 && bytes <= GUESS_MAX_BYTES)
        code = guess(file, bytes, out);
    file_close(file);
    if (code == TERN_NOT_FOUND)
        return TERN_OK; /* expired meanwhile */
    int64_t room = bytes - entry_at(out->slots, 0);
    if (out->slots && room > 0 && room % INDEX_ENTRY_BYTES == 0)
        out->entries = (uint32_t)(room / INDEX_ENTRY_BYTES);
    else
        out->slots = 0;
    return code ? store_dir_io_error(dir, name, code, err) : TERN_OK;
}
