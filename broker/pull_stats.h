/*
 * Evidence of what a group got (F-6): per group, topic and queue how many units were scanned,
 * delivered and filtered out, who pulled last and with which expression; and the group's rate.
 */
#ifndef BROKER_PULL_STATS_H
#define BROKER_PULL_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/env.h"
#include "base/error.h"

enum { PULL_STATS_MAX = 1000000 };

struct pull_stats;

MUST_CHECK enum tern_code pull_stats_create(const struct env *env, struct pull_stats **out);
void pull_stats_destroy(struct pull_stats *stats);
/* @thread any, hot */
void pull_stats_add(struct pull_stats *stats, const char *group, const char *topic,
                    int32_t queue_id, const char *client_id, const char *expression,
                    uint32_t scanned, uint32_t delivered, uint32_t filtered);

struct pull_stats_view {
    uint64_t scanned, delivered, filtered;
    char client_id[256];
    char expression[256]; /* cut */
};
bool pull_stats_get(struct pull_stats *stats, const char *group, const char *topic,
                    int32_t queue_id, struct pull_stats_view *out);
/* Messages a second delivered to the group over about the last 10 s. */
double pull_stats_group_rate(struct pull_stats *stats, const char *group);
void pull_stats_forget_topic(struct pull_stats *stats, const char *topic);
void pull_stats_forget_group(struct pull_stats *stats, const char *group);

#endif
