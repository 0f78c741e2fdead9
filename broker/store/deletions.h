/*
 * Where topics were deleted (store_deletions()): records of a topic before its position belong to a
 * life that is over. Kept in ROOT/ternmq/deleted.json. Internal to the store.
 *
 * {"version": 7, "deletions": [{"topic": "T", "position": 123456}, …]}
 */
#ifndef STORE_DELETIONS_H
#define STORE_DELETIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"
#include "broker/store/store.h"

enum { DELETIONS_MAX = 65536 };

struct deletions;

/* Reads ROOT/ternmq/deleted.json; absent is empty. TERN_CORRUPT when it cannot be understood. */
MUST_CHECK enum tern_code deletions_open(const struct env *env, const char *root,
                                         struct deletions **out, struct tern_error *err);
void deletions_close(struct deletions *deletions);

/*
 * Whether a record of the topic at this offset belongs to a life that is over. NULL: no. One
 * comparison when the offset is beyond all positions. @thread any
 */
bool deletions_cover(struct deletions *deletions, const void *topic, size_t topic_len,
                     int64_t phys_off);

/*
 * The changes, durable when they return; on an error nothing has changed. Entries at or before
 * log_min go with each. TERN_LIMIT: too many. @thread one at a time @blocks on the disk
 *
 * note: the topic is deleted at this position. merge: takes another's list and version, keeping own
 * entries that it does not have. cut: forgets those beyond `at`; *removed says whether there were
 * any. end: those beyond `end` come to lie there. clear: forgets all.
 */
MUST_CHECK enum tern_code deletions_note(struct deletions *deletions, const char *topic,
                                         int64_t position, int64_t log_min, struct tern_error *err);
MUST_CHECK enum tern_code deletions_merge(struct deletions *deletions,
                                          const struct store_deletion *list, size_t count,
                                          uint64_t version, int64_t log_min,
                                          struct tern_error *err);
MUST_CHECK enum tern_code deletions_cut(struct deletions *deletions, int64_t at, int64_t log_min,
                                        bool *removed, struct tern_error *err);
MUST_CHECK enum tern_code deletions_end(struct deletions *deletions, int64_t end, int64_t log_min,
                                        struct tern_error *err);
MUST_CHECK enum tern_code deletions_clear(struct deletions *deletions, struct tern_error *err);

/* As store_deletions(), without those at or before log_min. @thread any */
struct store_deletion *deletions_copy(struct deletions *deletions, int64_t log_min, size_t *count,
                                      uint64_t *version);
uint64_t deletions_version(struct deletions *deletions);

#endif
