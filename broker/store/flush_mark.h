/*
 * The flush mark: ROOT/ternmq/flushed, a file of ours that says "every byte of the log before F is
 * on disk" and "every record before I is indexed, durably". Recovery tells a torn tail (beyond F)
 * from damage (before F) by the first, and the second saves it from indexing what has no keys over
 * and over. Internal to the store.
 *
 *   two slots, at 0 and 4096:  magic "TERNFLSH" 8 | sequence 8 | F 8 | I 8 | check 4 (over the 32
 * before)
 *
 * The higher sequence wins. The mark is written after a flush and synced lazily: it is true as soon
 * as it is written, so when it reaches the disk does not matter, and after a crash of the process
 * alone F is exact.
 */
#ifndef STORE_FLUSH_MARK_H
#define STORE_FLUSH_MARK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"

struct flush_mark;

struct flush_mark_value {
    bool known; /* false: no file, or neither slot is good; the others are 0 then */
    int64_t flushed;
    int64_t indexed;
};

/* Nothing is created. */
MUST_CHECK enum tern_code flush_mark_read(const struct env *env, const char *path,
                                          struct flush_mark_value *out, struct tern_error *err);

/* Creates the file when absent. The directory must be there. */
MUST_CHECK enum tern_code flush_mark_open(const struct env *env, const char *path,
                                          struct flush_mark **out, struct tern_error *err);
void flush_mark_close(struct flush_mark *mark);

/*
 * Notes F, without syncing. Lower than before only by whoever has cut the log: then set, sync, cut.
 * @thread one at a time: recovery, then the flusher
 */
MUST_CHECK enum tern_code flush_mark_set(struct flush_mark *mark, int64_t flushed);
/* I, to be written with the next F. @thread any */
void flush_mark_set_indexed(struct flush_mark *mark, int64_t indexed);
int64_t flush_mark_indexed(const struct flush_mark *mark);
/* @thread any */
MUST_CHECK enum tern_code flush_mark_sync(struct flush_mark *mark);

#endif
