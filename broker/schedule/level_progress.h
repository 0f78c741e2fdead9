/*
 * How far each delay level has been delivered, as the log says.
 *
 *   queue of a level:   d d d d d │ w w D w w C w
 *                                 base        marks: done out of order (delivered beside a failed
 *                                             one, cancelled), each with where the log says so
 *
 * @thread one at a time @locks none
 */
#ifndef SCHEDULE_LEVEL_PROGRESS_H
#define SCHEDULE_LEVEL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "broker/store/delay_level.h"

enum { LEVEL_MARKS_MAX = 65536 };

struct level_mark {
    int32_t queue_id;
    int64_t queue_off;
    int64_t phys_off; /* of the record that says so */
};

/* Zeroed: nothing was delivered. */
struct level_progress {
    int64_t base[DELAY_LEVELS_MAX]; /* all before it are done */
    struct level_mark *marks;       /* by queue and offset; some below base, see prune */
    uint32_t count, cap;
    uint64_t dropped; /* marks that found no room */
};

void level_progress_fini(struct level_progress *levels);
/*
 * The message there is done. min_off: its queue begins there (base rises to it). TERN_LIMIT,
 * TERN_NO_MEMORY: it is out of order and no more such can be kept; it is counted in `dropped`, and
 * may be delivered again.
 */
MUST_CHECK enum tern_code level_progress_done(struct level_progress *levels, int32_t queue_id,
                                              int64_t queue_off, int64_t phys_off, int64_t min_off);
bool level_progress_is_done(const struct level_progress *levels, int32_t queue_id,
                            int64_t queue_off);
/* All before `off` are done or gone. */
void level_progress_raise(struct level_progress *levels, int32_t queue_id, int64_t off);
/* The log ends at phys_off: progress goes back to `base`, as it was somewhere before. */
void level_progress_cut(struct level_progress *levels, int64_t phys_off,
                        const int64_t base[DELAY_LEVELS_MAX]);
/* Marks below `oldest`, to which no cut goes back, are forgotten. */
void level_progress_prune(struct level_progress *levels, const int64_t oldest[DELAY_LEVELS_MAX]);

#endif
