/*
 * Delay levels: "1s 5s 10s 30s 1m …", level n being the n-th word (facts 8.10). Internal to the
 * store and the schedule service.
 *
 * A message waits in SCHEDULE_TOPIC_XXXX, in the queue of its level; its ConsumeQueue unit holds,
 * instead of a tag's hash, the time at which it is due.
 */
#ifndef STORE_DELAY_LEVEL_H
#define STORE_DELAY_LEVEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define DELAY_LEVELS_DEFAULT "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

enum { DELAY_LEVELS_MAX = 64 };

struct delay_levels {
    uint32_t count;
    int64_t delay_ms[DELAY_LEVELS_MAX]; /* of level i + 1 */
};

/* messageDelayLevel: words of a number and s, m, h or d. TERN_CONFIG with a text that names the
 * word. */
MUST_CHECK enum tern_code delay_levels_parse(const char *text, struct delay_levels *out,
                                             struct tern_error *err);

/* The level of a DELAY property: above the last counts as the last; 0 or less, or no number: no
 * delay. */
int32_t delay_level_of(const struct delay_levels *levels, const void *text, size_t len);

/* When a message of that level (1 or more), stored at store_ms, is due. */
int64_t delay_level_due_ms(const struct delay_levels *levels, int32_t level, int64_t store_ms);

#endif
