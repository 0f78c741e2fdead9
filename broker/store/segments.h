/*
 * The commit log's segments: open files of equal length, sorted by first offset, without a gap.
 * Internal to the commit log.
 *
 * Lifetime: the set holds one reference on each segment, readers and the appender one more while
 * they use it. A removed segment's file is unlinked at once and closed with its last reference, so
 * that a read under way ends well.
 */
#ifndef STORE_SEGMENTS_H
#define STORE_SEGMENTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/lock.h"

enum { SEGMENT_NAME_BYTES = 24, SEGMENTS_MAX = 1 << 20 };

struct segment {
    int64_t base; /* offset of its first byte; fixed once it is in the set */
    struct file *file;
    _Atomic uint32_t refs;
    _Atomic int64_t first_ms; /* store time of its first record, 0 while unknown */
};

struct segments {
    const struct env *env;
    char dir[FS_PATH_BYTES]; /* ROOT/commitlog */
    int64_t bytes;           /* length of each */
    bool read_only;
    struct lock lock;      /* STORE_SEGMENTS: the three below */
    struct segment **list; /* sorted by base */
    uint32_t count;
    uint32_t capacity;
};

/* `bytes` is at least 64. */
MUST_CHECK enum tern_code segments_init(struct segments *set, const struct env *env,
                                        const char *dir, int64_t bytes, bool read_only);
void segments_fini(struct segments *set);

/*
 * Opens what lies in the directory. TERN_CORRUPT: a segment is missing between others. TERN_CONFIG:
 * a length is not `bytes`; only the last may be shorter and is extended (not when read_only). Names
 * that are no segments' are reported and left alone.
 */
MUST_CHECK enum tern_code segments_load(struct segments *set, struct tern_error *err);

/* "00000000001073741824" */
void segment_name(char out[SEGMENT_NAME_BYTES], int64_t base);

/* A segment object around an open file; takes the file also when it fails. One reference. */
struct segment *segment_create(struct file *file, int64_t base);
void segment_ref(struct segment *segment);
void segment_unref(struct segment *segment);

/* Room for one more segment, so that the next segments_add() cannot fail. @thread the preparer's */
MUST_CHECK enum tern_code segments_make_room(struct segments *set);
/* Adds behind the last; takes the caller's reference. @thread the append token's holder, recovery
 */
void segments_add(struct segments *set, struct segment *segment);

/* The two together for an open file, which is taken also when it fails: TERN_NO_MEMORY. @thread
 * recovery */
MUST_CHECK enum tern_code segments_add_file(struct segments *set, struct file *file, int64_t base);

/* Each takes a reference for the caller; NULL when there is none. @thread any */
struct segment *segments_find(struct segments *set, int64_t phys_off);
struct segment *segments_first(struct segments *set);
struct segment *segments_last(struct segments *set);
struct segment *segments_at(struct segments *set, uint32_t index);
uint32_t segments_count(struct segments *set);

/*
 * Removes the first (expiry, never the only one) or the last (recovery): unlinks its file, then
 * takes it out of the set. The directory is not synced.
 */
MUST_CHECK enum tern_code segments_remove_first(struct segments *set);
MUST_CHECK enum tern_code segments_remove_last(struct segments *set);
/* Only takes the last one out of the set: its file was moved away. */
void segments_drop_last(struct segments *set);

/* Store time of the segment's first record, 0 when it has none. Reads the head at most once.
 * @thread any */
int64_t segment_first_ms(struct segment *segment);

#endif
