/*
 * Evidence of what a group got (F-6): per group, topic and queue how many units were scanned,
 * delivered and filtered out, and the same for each member that pulled the queue, with its
 * expression; and the group's rate.
 */
#ifndef BROKER_PULL_STATS_H
#define BROKER_PULL_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"

enum {
    PULL_STATS_MAX = 1000000, /* queues of groups */
    PULL_STATS_MEMBERS = 8    /* of a queue: those that pulled last */
};

struct pull_stats;

MUST_CHECK enum tern_code pull_stats_create(const struct env *env, struct pull_stats **out);
void pull_stats_destroy(struct pull_stats *stats);
/* client_id and expression: not NULL. @thread any, hot */
void pull_stats_add(struct pull_stats *stats, const char *group, const char *topic,
                    int32_t queue_id, const char *client_id, const char *expression,
                    uint32_t scanned, uint32_t delivered, uint32_t filtered);

/* Of a queue, with who pulled last; or of one member and expression. */
struct pull_stats_view {
    uint64_t scanned, delivered, filtered;
    char client_id[256];
    char expression[256]; /* cut */
};
bool pull_stats_get(struct pull_stats *stats, const char *group, const char *topic,
                    int32_t queue_id, struct pull_stats_view *out);
/* Of each member and expression, the last puller first; returns how many. */
size_t pull_stats_members(struct pull_stats *stats, const char *group, const char *topic,
                          int32_t queue_id, struct pull_stats_view out[PULL_STATS_MEMBERS]);
/* Messages a second delivered to the group over about the last 10 s. */
double pull_stats_group_rate(struct pull_stats *stats, const char *group);
void pull_stats_forget_topic(struct pull_stats *stats, const char *topic);
void pull_stats_forget_group(struct pull_stats *stats, const char *group);

#endif
