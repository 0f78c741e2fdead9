/*
 * From a strategy's name to the strategy. One row per name.
 *
 * Threads: read only after init. Failure modes: refused with the setter's name.
 */
#include "client/allocation.h"

#include <stdlib.h>
#include <string.h>

static const struct allocate_strategy *const rows[] = {
    &allocate_averagely, &allocate_by_circle, &allocate_by_config,
    &allocate_by_room,   &allocate_by_hash,
};

#define NEARBY_PREFIX "MACHINE_ROOM_NEARBY-"

static const struct allocate_strategy *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i]->name, name) == 0)
            return rows[i];
    return NULL;
}

static const char *inner_name(const char *name)
{
    size_t len = strlen(NEARBY_PREFIX);
    return strncmp(name, NEARBY_PREFIX, len) == 0 ? name + len : NULL;
}

bool allocation_name_known(const char *name)
{
    const char *inner = inner_name(name);
    return find_row(inner ? inner : name) != NULL;
}

/* A row with its settings. */
static enum tern_code fill(struct allocation *allocation, struct allocate_strategy *out,
                           const char *name, const struct tern_consumer_options *options,
                           struct tern_error *err)
{
    const struct allocate_strategy *row = find_row(name);
    ENSURE(row);
    *out = *row;
    if (row == &allocate_by_config) {
        if (!options->fixed)
            return error_set(err, TERN_INVALID,
                             "allocation by CONFIG needs tern_consumer_options_allocate_queues()");
        allocation->fixed = (struct allocate_fixed){options->fixed->queues, options->fixed->count};
        out->settings = &allocation->fixed;
    } else if (row == &allocate_by_room) {
        if (!options->rooms[0])
            return error_set(
                err, TERN_INVALID,
                "allocation by MACHINE_ROOM needs tern_consumer_options_allocate_rooms()");
        allocation->rooms = (struct allocate_rooms){options->rooms};
        out->settings = &allocation->rooms;
    }
    return TERN_OK;
}

enum tern_code allocation_init(struct allocation *allocation,
                               const struct tern_consumer_options *options, struct tern_error *err)
{
    const char *inner = inner_name(options->allocate);
    if (!inner)
        return fill(allocation, &allocation->strategy, options->allocate, options, err);
    if (!options->resolver.broker_room)
        return error_set(err, TERN_INVALID,
                         "allocation by %s needs tern_consumer_options_allocate_resolver()",
                         options->allocate);
    enum tern_code code = fill(allocation, &allocation->inner, inner, options, err);
    allocation->nearby = (struct allocate_nearby){&allocation->inner, options->resolver};
    allocation->strategy = allocate_near_room;
    allocation->strategy.name = options->allocate;
    allocation->strategy.settings = &allocation->nearby;
    return code;
}

const struct allocate_strategy *allocation_of_topic(const struct allocation *allocation,
                                                    const char *topic)
{
    bool by_config = allocation->strategy.share == allocate_by_config.share ||
                     allocation->inner.share == allocate_by_config.share;
    if (!by_config || strncmp(topic, RETRY_TOPIC_PREFIX, strlen(RETRY_TOPIC_PREFIX)) != 0)
        return &allocation->strategy;
    for (size_t i = 0; i < allocation->fixed.count; i++)
        if (strcmp(allocation->fixed.queues[i].topic, topic) == 0)
            return &allocation->strategy;
    return &allocate_averagely;
}
