/*
 * Index files against the log.
 *
 * Place: verify feeds it. A cursor goes through the entries of all files while the log's records go
 * by; both are in the order of physical offsets. Meanwhile the slots are built again in memory, so
 * that each entry's prevIndex, and at a file's end its slots, can be compared.
 *
 * Invariants: `number` is the next entry to be met, 1 <= number <= count; slots[] holds the newest
 * entry before it per slot. Threads: one. Failure modes: an error of the disk ends the check.
 */
#include "tools/mqstore/index_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/names.h"
#include "base/props.h"
#include "tools/mqstore/memory.h"

enum { CHUNK_ENTRIES = 3200, SLOT_CHUNK = 16384, KEYS_MAX = 32768 };

struct key {
    uint32_t hash;
    bool seen;
};

struct index_check {
    const struct store_dir *dir;
    struct findings *findings;
    uint32_t slots_given;
    uint64_t entries;

    uint32_t next_file; /* in dir->indexes */
    struct file *file;  /* the current one; NULL: none left */
    char name[STORE_NAME_BYTES];
    struct index_shape shape;
    uint32_t number;
    int64_t last_phys; /* of the entry before */
    int64_t last_ms;   /* store time of its record, 0: not known */
    uint32_t slots_used;
    uint32_t *slots;
    uint8_t *chunk;
    uint32_t chunk_first, chunk_count;

    struct key *keys; /* of the present record */
    size_t key_count;
};

void index_check_create(const struct store_dir *dir, uint32_t slots, struct findings *findings,
                        struct index_check **out)
{
    struct index_check *check = tool_alloc(1, sizeof *check);
    check->dir = dir;
    check->findings = findings;
    check->slots_given = slots;
    check->chunk = tool_alloc(CHUNK_ENTRIES, INDEX_ENTRY_BYTES);
    check->keys = tool_alloc(KEYS_MAX, sizeof *check->keys);
    *out = check;
}

void index_check_destroy(struct index_check *check)
{
    if (!check)
        return;
    file_close(check->file);
    free(check->slots);
    free(check->chunk);
    free(check->keys);
    free(check);
}

uint64_t index_check_entries(const struct index_check *check)
{
    return check->entries;
}

/* ---- files ---- */

static int64_t entry_at(const struct index_check *check, uint32_t number)
{
    return INDEX_HEADER_BYTES + (int64_t)check->shape.slots * INDEX_SLOT_BYTES +
           (int64_t)number * INDEX_ENTRY_BYTES;
}

/* Whether the file can be gone through; the finding is made when not. */
static bool file_is_usable(struct index_check *check, const struct index_dir_entry *index)
{
    const struct index_header *header = &check->shape.header;
    bool unsettled = store_dir_is_unsettled(check->dir);
    if (header->count <= 1)
        return false; /* nothing in it */
    if (header->end_ms == INDEX_UNFINISHED_MS && unsettled) {
        findings_count(check->findings, FOUND_INDEX_UNFINISHED, 1);
        return false;
    }
    if (check->shape.slots == 0) {
        findings_add(check->findings, FOUND_INDEX_LENGTH, check->name, -1,
                     "%" PRId64 " bytes: no number of slots fits; --index-slots tells it",
                     index->file_bytes);
        return false;
    }
    if (header->count > check->shape.entries) {
        findings_add(check->findings, FOUND_INDEX_HEADER, check->name, 36,
                     "indexCount %" PRIu32 ", but there is room for %" PRIu32, header->count,
                     check->shape.entries);
        return false;
    }
    return true;
}

/* Opens the next file that has entries; none left: check->file stays NULL. */
static enum tern_code open_next(struct index_check *check, struct tern_error *err)
{
    while (!check->file && check->next_file < check->dir->index_count) {
        const struct index_dir_entry *index = &check->dir->indexes[check->next_file++];
        store_dir_index_name(check->name, index);
        enum tern_code code =
            index_shape_read(check->dir, index, check->slots_given, &check->shape, err);
        if (code)
            return code;
        if (!file_is_usable(check, index))
            continue;
        code = store_dir_open_file(check->dir, check->name, &check->file);
        if (code && code != TERN_NOT_FOUND)
            return store_dir_io_error(check->dir, check->name, code, err);
        free(check->slots);
        check->slots = tool_alloc(check->shape.slots, sizeof *check->slots);
        check->number = 1;
        check->slots_used = 0;
        check->chunk_count = 0;
        check->last_phys = check->last_ms = 0;
    }
    return TERN_OK;
}

static enum tern_code compare_slots(struct index_check *check, struct tern_error *err)
{
    uint8_t *raw = tool_alloc(SLOT_CHUNK, INDEX_SLOT_BYTES);
    enum tern_code code = TERN_OK;
    for (uint32_t slot = 0; slot < check->shape.slots && !code; slot += SLOT_CHUNK) {
        uint32_t n = check->shape.slots - slot < SLOT_CHUNK ? check->shape.slots - slot
                                                            : (uint32_t)SLOT_CHUNK;
        int64_t at = INDEX_HEADER_BYTES + (int64_t)slot * INDEX_SLOT_BYTES;
        size_t got = 0;
        code = file_pread(check->file, raw, (size_t)n * INDEX_SLOT_BYTES, at, &got);
        if (code)
            store_dir_io_error(check->dir, check->name, code, err);
        for (uint32_t i = 0; i < n && !code; i++) {
            uint32_t found = get_be32(raw + (size_t)i * INDEX_SLOT_BYTES);
            uint32_t want = check->slots[slot + i];
            bool empty = want == 0 && found >= check->shape.header.count;
            if (found != want && !empty)
                findings_add(check->findings, FOUND_INDEX_CHAIN, check->name,
                             at + (int64_t)i * INDEX_SLOT_BYTES,
                             "slot %" PRIu32 " leads to entry %" PRIu32 ", its newest is %" PRIu32,
                             slot + i, found, want);
        }
    }
    free(raw);
    return code;
}

/* The current file's entries are done. */
static enum tern_code end_file(struct index_check *check, struct tern_error *err)
{
    const struct index_header *header = &check->shape.header;
    bool live = store_dir_is_live(check->dir);
    enum tern_code code = live ? TERN_OK : compare_slots(check, err);
    if (header->slots_used != check->slots_used && !live)
        findings_add(check->findings, FOUND_INDEX_HEADER, check->name, 32,
                     "hashSlotCount %" PRIu32 ", but %" PRIu32 " slots are used",
                     header->slots_used, check->slots_used);
    if (header->end_phys != check->last_phys && !live)
        findings_add(check->findings, FOUND_INDEX_HEADER, check->name, 24,
                     "endPhyOffset %" PRId64 ", but the last entry has %" PRId64, header->end_phys,
                     check->last_phys);
    if (check->last_ms && header->end_ms != check->last_ms && !live)
        findings_add(check->findings, FOUND_INDEX_HEADER, check->name, 8,
                     "endTimestamp %" PRId64 ", but the last record was stored at %" PRId64,
                     header->end_ms, check->last_ms);
    file_close(check->file);
    check->file = NULL;
    return code;
}

/* ---- entries ---- */

/* The next entry; *have false: there is none in any file. */
static enum tern_code peek(struct index_check *check, struct index_entry *entry, bool *have,
                           struct tern_error *err)
{
    *have = false;
    enum tern_code code = open_next(check, err);
    if (code || !check->file)
        return code;
    if (check->number < check->chunk_first ||
        check->number >= check->chunk_first + check->chunk_count) {
        uint32_t left = check->shape.header.count - check->number;
        uint32_t n = left < CHUNK_ENTRIES ? left : CHUNK_ENTRIES;
        size_t size = (size_t)n * INDEX_ENTRY_BYTES;
        size_t got = 0;
        code = file_pread(check->file, check->chunk, size, entry_at(check, check->number), &got);
        if (code)
            return store_dir_io_error(check->dir, check->name, code, err);
        memset(check->chunk + got, 0, size - got);
        check->chunk_first = check->number;
        check->chunk_count = n;
    }
    const uint8_t *p =
        check->chunk + (size_t)(check->number - check->chunk_first) * INDEX_ENTRY_BYTES;
    *entry = (struct index_entry){get_be32(p), (int64_t)get_be64(p + 4), (int32_t)get_be32(p + 12),
                                  get_be32(p + 16)};
    *have = true;
    return TERN_OK;
}

/* Goes behind the entry that peek() gave, having compared its chain. */
static enum tern_code take(struct index_check *check, const struct index_entry *entry,
                           int64_t store_ms, struct tern_error *err)
{
    uint32_t slot = (entry->hash & INT32_MAX) % check->shape.slots;
    if (entry->prev != check->slots[slot])
        findings_add(
            check->findings, FOUND_INDEX_CHAIN, check->name, entry_at(check, check->number),
            "entry %" PRIu32 " has prevIndex %" PRIu32 ", its slot's newest before is %" PRIu32,
            check->number, entry->prev, check->slots[slot]);
    check->slots_used += check->slots[slot] == 0;
    check->slots[slot] = check->number++;
    check->last_phys = entry->phys_off;
    check->last_ms = store_ms;
    check->entries++;
    return check->number >= check->shape.header.count ? end_file(check, err) : TERN_OK;
}

/* Entries before phys_off belong to no record. */
static enum tern_code skip_to(struct index_check *check, int64_t phys_off, struct tern_error *err)
{
    int64_t log_min = check->dir->segment_count ? check->dir->segments[0].base : 0;
    for (;;) {
        struct index_entry entry;
        bool have;
        enum tern_code code = peek(check, &entry, &have, err);
        if (code || !have)
            return code;
        bool beyond = entry.phys_off > check->shape.header.end_phys; /* it would stop the cursor */
        if (entry.phys_off >= phys_off && (!beyond || store_dir_is_live(check->dir)))
            return TERN_OK;
        if (entry.phys_off >= 0 && entry.phys_off < log_min)
            findings_count(check->findings, FOUND_INDEX_EXPIRED, 1);
        else
            findings_add(check->findings, FOUND_INDEX_ENTRY, check->name,
                         entry_at(check, check->number),
                         "entry %" PRIu32 " points to %" PRId64 ", where no record begins or which "
                         "is out of order",
                         check->number, entry.phys_off);
        code = take(check, &entry, 0, err);
        if (code)
            return code;
    }
}

/* ---- records ---- */

static uint32_t key_hash(const struct record *record, const uint8_t *key, size_t key_len)
{
    uint8_t text[INT8_MAX + 1 + RECORD_PROPS_MAX];
    size_t len = record->topic_len;
    memcpy(text, record->topic, len);
    text[len++] = '#';
    memcpy(text + len, key, key_len);
    int32_t hash = java_hash(text, len + key_len);
    return hash == INT32_MIN ? 0 : (uint32_t)(hash < 0 ? -hash : hash);
}

static void add_key(struct index_check *check, const struct record *record, const uint8_t *key,
                    size_t key_len)
{
    if (key_len == 0 || check->key_count == KEYS_MAX)
        return;
    check->keys[check->key_count++] = (struct key){key_hash(record, key, key_len), false};
}

static void collect_keys(struct index_check *check, const struct record *record)
{
    struct slice value;
    check->key_count = 0;
    if ((record->sys_flag & SYS_TX_MASK) == SYS_TX_ROLLBACK)
        return;
    if (props_get(record->props, record->props_len, PROP_UNIQ_KEY, &value))
        add_key(check, record, value.ptr, value.len);
    if (!props_get(record->props, record->props_len, PROP_KEYS, &value))
        return;
    while (value.len > 0) {
        const uint8_t *space = memchr(value.ptr, ' ', value.len);
        size_t len = space ? (size_t)(space - value.ptr) : value.len;
        add_key(check, record, value.ptr, len);
        len += space != NULL;
        value.ptr += len;
        value.len -= len;
    }
}

/* The key that the entry is for, not taken yet if possible; NULL: none has this hash. */
static struct key *key_of(struct index_check *check, uint32_t hash)
{
    struct key *taken = NULL;
    for (size_t i = 0; i < check->key_count; i++) {
        if (check->keys[i].hash != hash)
            continue;
        if (!check->keys[i].seen)
            return &check->keys[i];
        taken = &check->keys[i];
    }
    return taken;
}

static int32_t time_diff(const struct index_header *header, int64_t store_ms)
{
    int64_t seconds = header->begin_ms > 0 ? (store_ms - header->begin_ms) / 1000 : 0;
    return seconds < 0 ? 0 : seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
}

/* An entry that points to the record. */
static void compare_entry(struct index_check *check, const struct index_entry *entry,
                          const struct record *record)
{
    const struct index_header *header = &check->shape.header;
    int64_t at = entry_at(check, check->number);
    struct key *key = key_of(check, entry->hash);
    if (!key)
        findings_add(check->findings, FOUND_INDEX_ENTRY, check->name, at,
                     "entry %" PRIu32 " has hash %" PRIu32
                     ", which no key of the record at %" PRId64 " has",
                     check->number, entry->hash, entry->phys_off);
    else if (key->seen)
        findings_count(check->findings, FOUND_INDEX_TWICE, 1);
    else
        key->seen = true;
    if (entry->time_diff != time_diff(header, record->store_ms))
        findings_add(check->findings, FOUND_INDEX_ENTRY, check->name, at + 12,
                     "entry %" PRIu32 " has timeDiff %" PRId32 "; the record was stored %" PRId32
                     " s after the first",
                     check->number, entry->time_diff, time_diff(header, record->store_ms));
    if (check->number == 1 &&
        (header->begin_phys != entry->phys_off || header->begin_ms != record->store_ms))
        findings_add(check->findings, FOUND_INDEX_HEADER, check->name, 0,
                     "begins at %" PRId64 " with time %" PRId64
                     ", but the first record stands at %" PRId64 " with %" PRId64,
                     header->begin_phys, header->begin_ms, entry->phys_off, record->store_ms);
}

/* Whether entries before and behind the record show that its keys had to be there. */
static bool is_covered(const struct index_check *check, bool any)
{
    return check->file && (check->number > 1 || any);
}

enum tern_code index_check_record(struct index_check *check, const struct record *record,
                                  int64_t phys_off, struct tern_error *err)
{
    enum tern_code code = skip_to(check, phys_off, err);
    if (code)
        return code;
    collect_keys(check, record);
    bool any = false;
    for (;;) {
        struct index_entry entry;
        bool have;
        code = peek(check, &entry, &have, err);
        if (code || !have || entry.phys_off != phys_off)
            break;
        compare_entry(check, &entry, record);
        any = true;
        code = take(check, &entry, record->store_ms, err);
        if (code)
            break;
    }
    for (size_t i = 0; i < check->key_count && !code; i++) {
        if (check->keys[i].seen)
            continue;
        if (is_covered(check, any))
            findings_add(check->findings, FOUND_INDEX_MISSING, check->name, -1,
                         "no entry with hash %" PRIu32 " for the record at %" PRId64,
                         check->keys[i].hash, phys_off);
        else
            findings_count(check->findings, FOUND_NOT_INDEXED, 1);
    }
    return code;
}

enum tern_code index_check_end(struct index_check *check, int64_t log_end, struct tern_error *err)
{
    /* In an unsettled store the log's tail may be gone, with entries left that point to it. */
    if (!store_dir_is_unsettled(check->dir) && check->dir->ours)
        log_end = INT64_MAX;
    enum tern_code code = skip_to(check, log_end, err);
    for (;;) {
        struct index_entry entry;
        bool have;
        if (code)
            return code;
        code = peek(check, &entry, &have, err);
        if (code || !have)
            return code;
        findings_count(check->findings, FOUND_UNIT_BEHIND, 1);
        code = take(check, &entry, 0, err);
    }
}
