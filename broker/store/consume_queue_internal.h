/*
 * A consume queue and the table of all of them, as their own files see them. Not for anybody else.
 *
 * Where a queue's units are:
 *
 *   0 ... expired ... min ........................ written ............ max
 *   |  removed or left |       in files               |  only in the ring |
 *                                   ring_first .......................... |  also in the ring
 *
 * The ring holds the newest units as they will stand in the file, so that whoever pulls right
 * behind the writer copies memory, and a put is a copy too. It is written out when it is full of
 * unwritten units and by queue_table_flush(), and freed when a queue was idle from one flush to the
 * next.
 *
 * Invariants: min <= max; written <= max; ring_first <= written; a unit, once published by max,
 * changes only in a replay that finds it wrong on the disk; files [file_first, file_end) are
 * contiguous.
 *
 * `empty` means that no real unit is known (a new queue, or one whose files held nothing valid
 * after a power loss). The first unit may then stand at any offset: the log says which.
 *
 * Locks, in the order they are taken:
 *   table->flush_lock  STORE_TEND      one flush, expiry or removal at a time
 *   table->lock        STORE_QUEUES    the hash tables
 *   queue->io_lock     STORE_CQ_FILES  writing a queue's files
 *   queue->lock        STORE_CQ        the fields, for a copy
 */
#ifndef STORE_CONSUME_QUEUE_INTERNAL_H
#define STORE_CONSUME_QUEUE_INTERNAL_H

#include <stdatomic.h>

#include "base/env.h"
#include "base/fs.h"
#include "base/lock.h"
#include "broker/store/file_cache.h"
#include "broker/store/queue_table.h"

enum {
    QUEUE_RING_UNITS_MIN = 16,
    QUEUE_RING_UNITS_MAX = 256, /* 5 KiB; powers of two; a table that keeps units has larger ones */
    QUEUE_FILLER_SIZE = 0x7FFFFFFF
};

/* A topic's name, shared by its queues. */
struct queue_topic {
    _Atomic uint32_t refs;
    int32_t last_queue_id;    /* highest with an object; under table->lock */
    struct queue_topic *next; /* of the bucket; under table->lock */
    uint64_t hash;
    uint32_t len;
    char name[]; /* terminated */
};

struct consume_queue {
    struct queue_table *table;
    struct queue_topic *topic; /* owns a reference */
    uint64_t serial;           /* names its files in the cache */
    int32_t queue_id;
    _Atomic uint32_t refs;
    struct consume_queue *next; /* of the bucket; under table->lock */

    _Atomic int64_t min, max; /* written under lock, read by anybody */
    int64_t next_off;         /* the append token's */

    struct lock io_lock;
    struct lock lock;
    /* under lock, written only with io_lock or by the dispatch token's holder */
    int64_t written;    /* units before are in files */
    int64_t ring_first; /* units [ring_first, max) are in the ring */
    int64_t file_first; /* first file's first byte; -1: no file and no place for one yet */
    int64_t file_end;   /* end of the last file there is */
    int64_t last_phys;  /* of the unit before max; -1 when empty */
    int64_t dirty_from; /* first byte written since the last sync, -1: none */
    uint8_t *ring;
    uint32_t ring_units; /* 0 or a power of two */
    bool empty;
    bool dirs_dirty; /* its folders' entries are not synced */
    _Atomic bool
        dead; /* its topic was deleted: nothing is read or written any more; set under lock */

    _Atomic bool touched;             /* on table->touched */
    struct consume_queue *touch_next; /* of that stack */
    struct consume_queue *tend_next;  /* under flush_lock: of table->tended */
    int64_t seen_max;                 /* under flush_lock: max at the last flush */
    bool tended;                      /* under flush_lock: on table->tended */

    uint64_t batch_serial; /* the dispatch token's: which batch has a run of this queue */
    uint32_t batch_run;    /* and which */
};

struct queue_table {
    const struct env *env;
    int64_t file_bytes;
    bool read_only;
    bool synced; /* queue_table_assume_synced() */
    struct file_cache *files;
    struct lock lock; /* the buckets, topics, count and serial */
    struct consume_queue **buckets;
    struct queue_topic **topics;
    uint32_t mask, topic_mask;
    uint32_t count, topic_count;
    uint64_t next_serial;
    uint64_t batch_serial; /* the dispatch token's: of its last batch */
    int64_t keep_units;    /* the dispatch token's: how many more the rings may keep */
    int64_t kept_units;    /* and how many they were given */
    struct lock flush_lock;
    _Atomic(struct consume_queue *)
        touched;                  /* put to since the last flush; each holds a reference */
    struct consume_queue *tended; /* with a ring or unsynced files; each holds a reference */
    char dir[FS_PATH_BYTES];
};

/* ---- units ---- */

void queue_unit_encode(uint8_t *raw, const struct queue_unit *unit);
void queue_unit_decode(struct queue_unit *unit, const uint8_t *raw);
/* Filler before the first unit of a queue that did not begin at 0. */
bool queue_unit_is_filler(const struct queue_unit *unit);

/* ---- consume_queue.c ---- */

/* Puts the ring's units into files. @locks takes:io_lock,STORE_CQ @thread any */
MUST_CHECK enum tern_code queue_write_out(struct consume_queue *queue);
/* Frees the ring when everything in it is written. */
void queue_free_ring(struct consume_queue *queue);

/* ---- consume_queue_files.c: everything that touches the disk ---- */

/* The folder of a queue, or its file that begins at byte `start`. false: too long a path. */
bool queue_dir_path(const struct consume_queue *queue, char out[FS_PATH_BYTES]);
bool queue_file_path(const struct consume_queue *queue, int64_t start, char out[FS_PATH_BYTES]);

/* Reads raw units of one file; *got is the number of whole units. NOT_FOUND: no such file. */
MUST_CHECK enum tern_code queue_read_raw(struct consume_queue *queue, int64_t offset, uint8_t *raw,
                                         uint32_t count, bool nowait, uint32_t *got);
/* Files from this offset on, and the folders, may hold what a process wrote that was killed before
 * it synced: the next sync takes them, too. @locks none */
void queue_distrust(struct consume_queue *queue, int64_t offset);
/* Writes raw units at their place, creating files. @locks holds:io_lock */
MUST_CHECK enum tern_code queue_write_raw(struct consume_queue *queue, int64_t offset,
                                          const uint8_t *raw, uint32_t count);
/* Prepares an empty queue for its first unit at `offset`. @locks takes:io_lock */
MUST_CHECK enum tern_code queue_begin(struct consume_queue *queue, int64_t offset);
/*
 * Ends the queue at `offset`: zeros what lies behind it and removes later files; durable after the
 * next queue_sync(). Readers may be at work, putters not. @locks takes:io_lock
 */
MUST_CHECK enum tern_code queue_cut(struct consume_queue *queue, int64_t offset);
/* Syncs what was written since the last time. @locks holds:flush_lock, or nobody else is there */
MUST_CHECK enum tern_code queue_sync(struct consume_queue *queue);
/* First offset in [min, max) whose record is at or after log_min; max when there is none. */
MUST_CHECK enum tern_code queue_find_min(struct consume_queue *queue, int64_t log_min,
                                         int64_t *min);
/* Removes whole files before min, never the last one. @locks holds:flush_lock */
MUST_CHECK enum tern_code queue_remove_expired(struct consume_queue *queue);

/* ---- consume_queue_replay.c ---- */

/*
 * As consume_queue_put(), for units that may be there already: equal ones are left, different ones
 * rewritten, later lives of a deleted topic respected. TERN_CORRUPT when there would be a gap.
 * @thread the dispatch token's holder
 */
MUST_CHECK enum tern_code consume_queue_replay(struct consume_queue *queue, int64_t offset,
                                               const struct queue_unit *units, uint32_t count);

/* ---- queue_table.c ---- */

/* All queues with a reference each, in an array for free(); *count of them. */
MUST_CHECK enum tern_code queue_table_snapshot(struct queue_table *table,
                                               struct consume_queue ***out, uint32_t *count);
/* Folders of deleted topics that are still to be removed: no topic's name begins so. */
#define QUEUE_TABLE_DELETED_PREFIX ".deleted-"
/* Removes such a folder with its queues' folders and their files. */
MUST_CHECK enum tern_code queue_table_remove_dir(struct queue_table *table, const char *path);
/* Notes that the next flush has something to do for the queue. @thread any */
void queue_table_touch(struct queue_table *table, struct consume_queue *queue);

#endif
