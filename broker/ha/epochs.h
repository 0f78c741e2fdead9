/*
 * Epochs: which master wrote which stretch of the log. ROOT/ternmq/epochs.json, two checksummed
 * generations.
 *
 *   epoch 1        epoch 3              epoch 4
 *   ├──────────────┼────────────────────┼───────────── end
 *   start          start                start
 *
 * An epoch is (number, random id, start); it reaches to the next one's start, the last one to the
 * log's end. Numbers only grow, are never given twice, and rise above any that a peer has shown.
 * Two logs are equal up to their last common point: the last epoch that both have (number and id),
 * and the lowest end of it on both sides.
 */
#ifndef HA_EPOCHS_H
#define HA_EPOCHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"

enum {
    EPOCHS_MAX = 1024
}; /* beyond: the oldest is forgotten, its bytes count as the next one's, and stores that left it
      before need a rejoin */

#define HA_EPOCH_NUMBER_MAX (UINT64_C(1) << 62) /* numbers lie in 1 to this */
#define HA_EPOCH_LEAP_MAX (UINT64_C(1) << 32)   /* openings between two that hear of each other */

struct ha_epoch {
    uint64_t number, id;
    int64_t start;
};

/* Where two logs part. */
struct ha_common {
    struct ha_epoch epoch; /* as the first side has it */
    int64_t end;
};

/* ---- pure ---- */

/* false: no common epoch. Lists are sorted by start and number; ends are the logs'. */
bool ha_epochs_common(const struct ha_epoch *a, size_t a_count, int64_t a_end,
                      const struct ha_epoch *b, size_t b_count, int64_t b_end,
                      struct ha_common *out);
/* The epoch that the byte at phys_off belongs to and where it ends (INT64_MAX for the last); NULL
 * before the first. */
const struct ha_epoch *ha_epochs_at(const struct ha_epoch *list, size_t count, int64_t phys_off,
                                    int64_t *end);
/* Sorted, numbers and starts strictly growing, none below 0: what may be taken from the wire. */
bool ha_epochs_sound(const struct ha_epoch *list, size_t count);

/* ---- the durable list ---- */

struct epochs;

/*
 * Loads the list; absent: empty. Epochs that start at or beyond the log's end are dropped, but
 * their numbers stay taken; those whose bytes have expired stay, so that a slave that was away
 * meanwhile is known by them. TERN_CORRUPT: both generations are damaged. @blocks on the disk
 */
MUST_CHECK enum tern_code epochs_open(const struct env *env, const char *root_dir, int64_t log_end,
                                      struct epochs **out, struct tern_error *err);
void epochs_close(struct epochs *epochs);

/* A copy of at most EPOCHS_MAX. @thread any */
size_t epochs_copy(struct epochs *epochs, struct ha_epoch out[EPOCHS_MAX]);
/* false: there is none. @thread any */
bool epochs_last(struct epochs *epochs, struct ha_epoch *out);
/* As ha_epochs_at(), a copy; false: before the first. @thread any */
bool epochs_find(struct epochs *epochs, int64_t phys_off, struct ha_epoch *out, int64_t *end);
/* The highest number ever given or seen. @thread any */
uint64_t epochs_highest(struct epochs *epochs);
/* A peer has shown this number: those given later are above. In memory until the next write, which
 * comes before any number is used. What no set can have come to since then (HA_EPOCH_LEAP_MAX) is
 * not believed: it would leave no number to open with. @thread any */
void epochs_seen(struct epochs *epochs, uint64_t number);

/*
 * A master's, before its first write: a new epoch from `start`, durable when this returns. An empty
 * list's first epoch starts at `log_min` instead: it also covers a log from before epochs. An epoch
 * without a byte (start is the last one's) is replaced. @blocks on the disk
 */
MUST_CHECK enum tern_code epochs_begin(struct epochs *epochs, int64_t log_min, int64_t start,
                                       struct ha_epoch *out, struct tern_error *err);
/*
 * A receiver's: the list becomes the source's part before `end` (epochs that start before it),
 * behind what is older here than all of it: a source that began later does not know those any more.
 * An empty list empties it. Durable when this returns. @blocks on the disk
 */
MUST_CHECK enum tern_code epochs_adopt(struct epochs *epochs, const struct ha_epoch *list,
                                       size_t count, int64_t end, struct tern_error *err);
/* A receiver's, before the epoch's first byte. Its number is above the last one's, its start not
 * below: else TERN_INVALID. Known already: nothing to do. @blocks on the disk */
MUST_CHECK enum tern_code epochs_add(struct epochs *epochs, const struct ha_epoch *epoch,
                                     struct tern_error *err);

#endif
