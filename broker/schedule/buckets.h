/*
 * The timer's files: one per 10 minutes of key, ROOT/ternmq/delay/NNNN.bucket (NNNN = key / 10
 * minutes), only appended to. An item says that a message begins to wait there, or is done:
 *
 *   kind 1 (1 waits, 2 done) | zeros 3 | CRC-32 4 | key ms 8 | queue offset 8 | physical offset 8
 *
 * The physical offset is that of the record that says so; it only grows within a file, so that what
 * a cut of the log takes back is always a file's tail. All big-endian (docs/store-format.md).
 *
 * @thread one at a time @locks none; calls block on the disk
 */
#ifndef SCHEDULE_BUCKETS_H
#define SCHEDULE_BUCKETS_H

#include "base/env.h"
#include "base/fs.h"
#include "broker/schedule/delay_event.h"
#include "broker/schedule/due_heap.h"

enum {
    BUCKET_MS = 600000,
    BUCKET_ITEM_BYTES = 32,
    BUCKETS_MAX = 200000,
    BUCKET_EVENTS_MAX = 32768
};

struct bucket {
    int64_t id;
    uint32_t adds, dones; /* items of either kind */
    int64_t last_phys;    /* of its last item, -1 when empty */
    bool dirty;           /* not synced since it was written */
    bool leaving;         /* goes when the next checkpoint, which does not have it, is durable */
};

struct bucket_item {
    bool done;
    struct due_key key;
    int64_t phys_off;
};

struct buckets {
    const struct env *env;
    char dir[FS_PATH_BYTES];
    struct bucket *rows; /* by id */
    uint32_t count, cap;
    int64_t pending;   /* sum of adds - dones of all rows: what waits */
    int64_t first_off; /* lowest queue offset that waits or waited in the files; INT64_MAX: none */
    int64_t last_phys; /* events up to this record's are in the files; -1: none */
    struct place *places;  /* work space of append: BUCKET_EVENTS_MAX × 2 */
    struct bucket *before; /* rows as they were, for going back */
    uint8_t *bytes;
};

/* dir is made. */
MUST_CHECK enum tern_code buckets_init(struct buckets *buckets, const struct env *env,
                                       const char *dir, struct tern_error *err);
void buckets_fini(struct buckets *buckets);

static inline int64_t bucket_id_of(int64_t key_ms)
{
    return key_ms / BUCKET_MS;
}
/* First bucket with that id or a higher one; NULL: none. */
struct bucket *buckets_from(struct buckets *buckets, int64_t id);
/* NULL: none */
struct bucket *buckets_find(struct buckets *buckets, int64_t id);
/* Adds a row, as a checkpoint has it. TERN_NO_MEMORY, TERN_LIMIT; ids come ascending or not. */
MUST_CHECK enum tern_code buckets_put_row(struct buckets *buckets, const struct bucket *row);
void buckets_drop_row(struct buckets *buckets, int64_t id);

/*
 * Writes what the events (ascending physical offsets, at most BUCKET_EVENTS_MAX) say of timers.
 * Those up to last_phys are passed over, and the end of what never waited here (its record is gone
 * from the log since before the files were made). All or, with an error, none of it.
 */
MUST_CHECK enum tern_code buckets_append(struct buckets *buckets, const struct delay_event *events,
                                         uint32_t count, struct tern_error *err);
/* Reads items [first, first + count) of a bucket that has them. TERN_CORRUPT: one is damaged. */
enum { BUCKET_READ_MAX = 4096 };
MUST_CHECK enum tern_code bucket_read(struct buckets *buckets, const struct bucket *bucket,
                                      uint32_t first, uint32_t count, struct bucket_item *out,
                                      struct tern_error *err);
/* Takes back items whose record is at or beyond phys_off. */
MUST_CHECK enum tern_code buckets_cut(struct buckets *buckets, int64_t phys_off,
                                      struct tern_error *err);
/* After rows were put as a checkpoint has them: files become as long as that, others go.
 * TERN_CORRUPT: one is missing or shorter. */
MUST_CHECK enum tern_code buckets_settle(struct buckets *buckets, struct tern_error *err);
/* All files and rows go. */
MUST_CHECK enum tern_code buckets_clear(struct buckets *buckets, struct tern_error *err);

void bucket_path(const struct buckets *buckets, int64_t id, char out[FS_PATH_BYTES]);
/* Syncs one bucket's file; one that is gone is no error. @thread any */
MUST_CHECK enum tern_code bucket_sync(const struct env *env, const char *path,
                                      struct tern_error *err);

#endif
