/*
 * The index service as its own files see it: index_service.c (keys, ring, applying), index_files.c
 * (which files there are), index_recover.c (at the start), index_query.c. Not for anybody else.
 */
#ifndef STORE_INDEX_INTERNAL_H
#define STORE_INDEX_INTERNAL_H

#include "base/env.h"
#include "base/fs.h"
#include "base/lock.h"
#include "base/sched.h"
#include "broker/store/index_file.h"
#include "broker/store/index_service.h"

enum {
    INDEX_RING_KEYS = 65536, /* a power of two; 1.5 MiB, touched only as far as it is used */
    INDEX_RING_KEYS_MAX = 16 * INDEX_RING_KEYS, /* of a recovery that finds no room on the disk */
    INDEX_TRAILING_MAX = 1024
};

struct index_service {
    const struct env *env;
    uint32_t slots, entries;
    bool read_only;

    /* The ring: written by the dispatch token's holder at head, read by the holder of `lock` at
     * tail. */
    struct index_key *ring;
    uint32_t ring_keys; /* a power of two; grows in the recovery, under lock */
    bool keeps;         /* the dispatch token's: it may grow */
    _Atomic uint64_t head;
    _Atomic uint64_t tail;
    _Atomic int64_t last_phys; /* of the last record put or recovered, -1: none */
    _Atomic int64_t last_ms;

    /* What the newest file already holds of the record at trailing_phys; the dispatch token's
     * holder. */
    int64_t trailing_phys;
    uint32_t trailing_count;
    uint32_t trailing[INDEX_TRAILING_MAX];

    struct task *task; /* applies in the background; NULL when read only */
    int64_t apply_due; /* the task's */

    struct lock sync_lock; /* STORE_INDEX_SYNC: one syncing at a time */
    _Atomic int failed;    /* enum tern_code of a sync that failed: nothing is indexed any more */
    struct lock lock; /* STORE_INDEX: held while a batch is applied, the lock exists for that */
    /* under lock */
    struct index_file **files; /* oldest first, a reference each */
    uint32_t file_count, file_capacity;
    struct index_scratch scratch;
    char dir[FS_PATH_BYTES];
};

/* ---- index_service.c ---- */

/* Hash of "topic#key" as the files hold it. */
uint32_t index_key_hash(const void *topic, size_t topic_len, const void *key, size_t key_len);

/* Puts all that is in the ring into files. @locks takes:STORE_INDEX @blocks on the disk */
MUST_CHECK enum tern_code index_apply(struct index_service *index);

/* ---- index_files.c ---- */

/* Takes the reference. @locks holds:STORE_INDEX */
MUST_CHECK enum tern_code index_files_add(struct index_service *index, struct index_file *file);
/* The newest file, open for writing and not full; a new one when needed. @locks holds:STORE_INDEX
 */
MUST_CHECK enum tern_code index_files_current(struct index_service *index, struct index_file **out);
/* NULL: there is none. @locks holds:STORE_INDEX */
struct index_file *index_files_newest(const struct index_service *index);
/* Syncs and closes files that are full. @locks takes:STORE_INDEX_SYNC,STORE_INDEX, the latter never
 * during a sync */
MUST_CHECK enum tern_code index_files_sync_full(struct index_service *index);
/* Unlinks a file; absent is success. */
MUST_CHECK enum tern_code index_files_remove(const struct index_service *index, const char *name,
                                             const char *cause);

#endif
