/*
 * One index file, RocketMQ's layout byte for byte (facts 1.11). Internal to the index service.
 *
 *   header, 40   beginTimestamp 8 | endTimestamp 8 | beginPhyOffset 8 | endPhyOffset 8
 *                | hashSlotCount 4 | indexCount 4
 *   slots × 4    number of the newest entry in the slot; 0 or above indexCount: none
 *   entries × 20 keyHash 4 | phyOffset 8 | timeDiff 4, seconds since beginTimestamp | prevIndex 4
 *
 * indexCount begins at 1: entry 0 is never used, so a file takes entries − 1 of them.
 *
 * Written in batches, because an entry changes a random slot and no one should pay a system call
 * for four bytes. A batch is sorted by the slots' 64 KiB pages; of each page that it touches, the
 * part between the first and the last slot touched is read and written once:
 *
 *   1  read the pages, note for each entry what its slot holds before it (prevIndex)
 *   2  write the entries, one run
 *   3  read the pages again, write the slots
 *   4  write the header
 *
 * In that order, a reader without lock meets entries beyond the count it knows, never a slot whose
 * entry is not there. With the default 5,000,000 slots a full batch costs about 0.3 µs a key on
 * ext4. Measured with pages of 4, 16, 32, 64 and 128 KiB: 1.2, 0.5, 0.4, 0.3, 0.3 µs, since a write
 * into a large folio of the page cache costs by the folio, and few large writes win.
 *
 * Unfinished mark: the slots of a file that is written to are not on disk in any order, so after a
 * power loss it could be half old. Before the first batch, endTimestamp on the disk is therefore
 * set to INT64_MAX and synced; index_file_seal() puts the true one back after a sync. RocketMQ
 * removes a file with the mark after a crash, since it lies beyond its checkpoint, and builds it
 * again.
 *
 * Ours is mended instead. Entries are only ever added behind, and each says what its slot held
 * before, so entries that a sync has covered are enough to make all slots again: one read of the
 * file, instead of one of the log that it stands for. Up to which record such a sync has come, the
 * flush mark says.
 */
#ifndef STORE_INDEX_FILE_H
#define STORE_INDEX_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/fs.h"

enum {
    INDEX_HEADER_BYTES = 40,
    INDEX_SLOT_BYTES = 4,
    INDEX_ENTRY_BYTES = 20,
    INDEX_NAME_DIGITS = 17, /* yyyyMMddHHmmssSSS */
    INDEX_BATCH_MAX = 32768,
    INDEX_PAGE_BYTES = 65536
};

#define INDEX_UNFINISHED_MS INT64_MAX

struct index_header {
    int64_t begin_ms, end_ms;
    int64_t begin_phys, end_phys;
    uint32_t slots_used;
    uint32_t count; /* 1 + entries */
};

/* What is to be indexed: one key of one record. */
struct index_key {
    int64_t phys_off;
    int64_t store_ms;
    uint32_t hash; /* already made positive */
};

struct index_entry {
    uint32_t hash;
    int64_t phys_off;
    int32_t time_diff;
    uint32_t prev;
};

/* What recovery does with a file. */
enum index_fate { INDEX_KEEP, INDEX_MEND, INDEX_DROP };

struct index_file {
    _Atomic uint32_t refs;
    char name[INDEX_NAME_DIGITS + 1];
    uint32_t slots, entries;
    struct index_header header; /* as in memory; on the disk endTimestamp may be the mark */
    struct file *file;          /* NULL while closed */
    bool unfinished;            /* the mark is on the disk */
    bool synced;                /* full, closed, and all but the mark is on the disk */
    enum index_fate fate;       /* while recovering */
};

/* Memory for one batch, reused; 0.3 MiB. */
struct index_scratch {
    uint32_t *order;      /* the batch by slot page */
    uint32_t *prev;       /* of each entry, in log order */
    uint32_t *page_start; /* pages + 1 */
    uint32_t pages;
};
MUST_CHECK enum tern_code index_scratch_init(struct index_scratch *scratch, uint32_t slots);
void index_scratch_fini(struct index_scratch *scratch);

int64_t index_file_bytes(uint32_t slots, uint32_t entries);
uint32_t index_slot_of(const struct index_file *file, uint32_t hash);

/* A new file with the mark, durable, its header seeded from `before` (NULL: the first). @blocks on
 * the disk */
MUST_CHECK enum tern_code index_file_create(struct fs *fs, const char *dir, const char *name,
                                            uint32_t slots, uint32_t entries,
                                            const struct index_header *before,
                                            struct index_file **out);
/*
 * An existing one: reads and checks its header and closes it. *fits: length and header are as they
 * must be.
 */
MUST_CHECK enum tern_code index_file_load(struct fs *fs, const char *dir, const char *name,
                                          uint32_t slots, uint32_t entries, struct index_file **out,
                                          bool *fits);
/* Opens a closed one; flags as fs_open(). */
MUST_CHECK enum tern_code index_file_open(struct index_file *file, struct fs *fs, const char *dir,
                                          unsigned flags, struct file **out);
void index_file_ref(struct index_file *file);
/* The last one closes and frees. NULL allowed. */
void index_file_unref(struct index_file *file);

static inline bool index_file_full(const struct index_file *file)
{
    return file->header.count >= file->entries;
}

/*
 * Adds as many keys as there is room for, up to INDEX_BATCH_MAX; *taken. When it fails nothing is
 * taken and the same batch may be tried again. *after is the header then, to be published by the
 * caller.
 * @thread one at a time @blocks on the disk
 */
MUST_CHECK enum tern_code index_file_append(struct index_file *file, struct index_scratch *scratch,
                                            const struct index_key *keys, uint32_t count,
                                            struct index_header *after, uint32_t *taken);
/*
 * Syncs, then removes the mark, durably. The file is closed and not appended to any more, until it
 * is opened again. @blocks on the disk
 */
MUST_CHECK enum tern_code index_file_seal(struct index_file *file, struct fs *fs, const char *dir);

/*
 * After a crash: keeps the entries of records before `durable_phys` and makes the slots again from
 * them, durably; the file is open and unfinished then. *kept of them; with none nothing was
 * changed. @blocks on the disk
 */
MUST_CHECK enum tern_code index_file_mend(struct index_file *file, struct fs *fs, const char *dir,
                                          int64_t durable_phys, uint32_t *kept);

/* ---- shared by index_file.c and index_mend.c ---- */

/* Where a slot or an entry lies in the file. */
int64_t index_slot_at(uint32_t slot);
int64_t index_entry_at(uint32_t slots, uint32_t number);
void index_entry_decode(struct index_entry *entry, const uint8_t *raw);
/* A read that must be whole: TERN_CORRUPT when the file is shorter. */
MUST_CHECK enum tern_code index_read_whole(struct file *file, void *buf, size_t size, int64_t at);
MUST_CHECK enum tern_code index_write_header(struct index_file *file,
                                             const struct index_header *header, bool unfinished);

/* ---- reading ---- */

/* Entry number of a slot, or an entry; `file` may be a handle of one's own. @thread any */
MUST_CHECK enum tern_code index_read_slot(struct file *file, uint32_t slot, uint32_t *number);
MUST_CHECK enum tern_code index_read_entry(struct file *file, uint32_t slots, uint32_t number,
                                           struct index_entry *out);

#endif
