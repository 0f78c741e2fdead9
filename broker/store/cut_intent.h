/*
 * What a cut of the log is about to do, in ROOT/ternmq/cut, so that a start after a crash finishes
 * it. Internal to the store.
 *
 *   magic "TERNCUT1" 8 | kind 8 | at 8 | wall ms 8 | check 4 (CRC-32 of the 32 bytes before)
 */
#ifndef STORE_CUT_INTENT_H
#define STORE_CUT_INTENT_H

#include <stdint.h>

#include "base/env.h"
#include "base/error.h"

enum cut_kind {
    CUT_NONE,  /* there is no file: nothing is under way */
    CUT_END,   /* the log ends at `at` */
    CUT_MOVE,  /* the log goes to diverged/WALLMS, or is removed when that is 0; then CUT_BEGIN */
    CUT_BEGIN, /* the log is gone; queues and index go; it begins at `at` */
    CUT_KIND_COUNT
};

struct cut_intent {
    enum cut_kind kind;
    int64_t at;
    int64_t wall_ms;
};

/* TERN_CORRUPT: there is a file that is none of ours. */
MUST_CHECK enum tern_code cut_intent_read(const struct env *env, const char *root,
                                          struct cut_intent *out, struct tern_error *err);
/* Durable when they return. @blocks on the disk */
MUST_CHECK enum tern_code cut_intent_write(const struct env *env, const char *root,
                                           const struct cut_intent *intent, struct tern_error *err);
MUST_CHECK enum tern_code cut_intent_clear(const struct env *env, const char *root,
                                           struct tern_error *err);

#endif
