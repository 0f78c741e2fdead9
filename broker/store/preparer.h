/*
 * The segment preparer: makes the next segment before it is needed, in ROOT/prepared/, and moves it
 * into commitlog/ when the appender takes it. Internal to the commit log.
 */
#ifndef STORE_PREPARER_H
#define STORE_PREPARER_H

#include <stdbool.h>

#include "broker/store/commit_log_internal.h"
#include "broker/store/gate.h"

struct preparer;

struct preparer_options {
    struct commit_log *log;
    struct gate *gate;
    const char *root;
    /* A segment that preparer_take() had to leave is ready now. May be called on any thread. */
    void (*on_ready)(void *arg);
    void *arg;
};

/* Starts the task. ROOT/prepared must be there. */
MUST_CHECK enum tern_code preparer_create(const struct env *env,
                                          const struct preparer_options *options,
                                          struct preparer **out);
/* Stops the task; a prepared file stays for the next start. */
void preparer_destroy(struct preparer *preparer);

/* A segment will be needed: make one ready. Cheap. @thread any, also an NNG callback */
void preparer_want(struct preparer *preparer);

/*
 * The segment that begins at `base`, renamed into commitlog/ and added to the set; the caller gets
 * a reference. TERN_AGAIN: not ready; with may_wait false nothing is made in the calling thread,
 * and otherwise on_ready() follows. Any other code: none can be made (full disk, no descriptor);
 * the next attempt is made a second later. @thread the append token's holder
 */
MUST_CHECK enum tern_code preparer_take(struct preparer *preparer, int64_t base, bool may_wait,
                                        struct segment **out);

/* After a crash, before the tasks: deletes what lies in `dir` (ROOT/prepared), durably. */
MUST_CHECK enum tern_code preparer_discard_leftovers(const struct env *env, const char *dir,
                                                     struct tern_error *err);

/* Creates and reserves commitlog/<base> directly: the first segment of a store. @blocks on the disk
 */
MUST_CHECK enum tern_code preparer_first_segment(struct commit_log *log, int64_t base,
                                                 struct tern_error *err);

#endif
