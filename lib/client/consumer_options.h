/*
 * What a consumer was asked to be. All texts lie inside, so that a consumer takes its copy by
 * assignment:
 *
 *     consumer->options = *options;
 *
 * Every value was checked by its setter; create checks only what may be missing (the group).
 */
#ifndef CLIENT_CONSUMER_OPTIONS_H
#define CLIENT_CONSUMER_OPTIONS_H

#include <tern/consumer.h>

#include "base/env.h"
#include "base/names.h"
#include "client/instance.h"

enum {
    NAMESRV_TEXT_MAX = 4095, /* "host:port;host:port" */
    INSTANCE_NAME_MAX = 127
};

struct tern_consumer_options {
    char namesrv[NAMESRV_TEXT_MAX + 1];        /* "": NAMESRV_ADDR */
    char group[GROUP_NAME_MAX + 1];            /* "": none given, create refuses */
    char instance_name[INSTANCE_NAME_MAX + 1]; /* "": <pid>#<start ns> */
    enum tern_consume_from from;               /* TERN_FROM_LAST */
    int64_t from_timestamp_ms;                 /* with TERN_FROM_TIMESTAMP */
    int32_t pull_batch;                        /* 32 */
    int32_t consume_batch;                     /* 1 */
    int32_t threads;                           /* 20 */
    int32_t pull_threshold;                    /* 1000 */
    int64_t pull_threshold_bytes;              /* 100 MiB */
    int32_t max_span;                          /* 2000 */
    int64_t pull_interval_ms;                  /* 0 */
    int64_t commit_interval_ms;                /* 5000 */
    int32_t max_reconsume_times;               /* -1 */
    /* Borrowed; NULL, NULL: the system's (client/sim_hooks.h). */
    const struct env *env;
    struct link *link;
};

/* Fills *out for instance_get(); borrows from options. */
void consumer_options_instance(const struct tern_consumer_options *options,
                               struct instance_options *out);

#endif
