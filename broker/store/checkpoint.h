/*
 * The checkpoint: RocketMQ's 4096-byte file that says up to which store time things are on disk
 * (facts 1.12). Internal to the store.
 *
 *   0 physicMsgTimestamp 8 | 8 logicsMsgTimestamp 8 | 16 indexMsgTimestamp 8 | zeros
 *
 * physic: every record stored before it is flushed; logics: likewise for consume queue units;
 * index: likewise for index entries. Times, not offsets, so a reader subtracts a margin
 * (checkpoint_min_ms).
 */
#ifndef STORE_CHECKPOINT_H
#define STORE_CHECKPOINT_H

#include <stdint.h>

#include "base/env.h"
#include "base/error.h"

enum { CHECKPOINT_BYTES = 4096, CHECKPOINT_MARGIN_MS = 3000 };

struct checkpoint {
    int64_t physic_ms;
    int64_t logics_ms;
    int64_t index_ms;
};

/* All zero when the file is absent or shorter than the three times. path is ROOT/checkpoint. */
MUST_CHECK enum tern_code checkpoint_read(const struct env *env, const char *path,
                                          struct checkpoint *out, struct tern_error *err);
/*
 * Writes in place (the three times share a sector) and syncs. @blocks on the disk
 */
MUST_CHECK enum tern_code checkpoint_write(const struct env *env, const char *path,
                                           const struct checkpoint *checkpoint,
                                           struct tern_error *err);
/* min(physic, logics) less the margin, not below 0: everything stored before is on disk. */
int64_t checkpoint_min_ms(const struct checkpoint *checkpoint);

#endif
