/*
 * What a consumer was asked to be. All texts lie inside; lists are shared, counted references. A
 * consumer takes its copy with consumer_options_copy() and gives it back with
 * consumer_options_fini().
 *
 * Every value was checked by its setter; create checks only what may be missing (the group) or does
 * not fit together.
 */
#ifndef CLIENT_CONSUMER_OPTIONS_H
#define CLIENT_CONSUMER_OPTIONS_H

#include <tern/consumer.h>

#include "base/env.h"
#include "base/names.h"
#include "client/instance.h"
#include "client/namespace.h"

enum {
    NAMESRV_TEXT_MAX = 4095, /* "host:port;host:port" */
    INSTANCE_NAME_MAX = 127,
    ALLOCATE_NAME_MAX = 63,
    ROOMS_TEXT_MAX = 1023,
    OFFSET_DIR_MAX = 767,
    REFUSAL_BYTES = 192
};

#define BROADCAST_INSTANCE "DEFAULT" /* of a broadcasting consumer without a name */

/* Queues given for allocation by CONFIG; immutable. */
struct queue_list {
    _Atomic uint32_t refs;
    size_t count;
    struct tern_queue queues[];
};

struct tern_consumer_options {
    char namesrv[NAMESRV_TEXT_MAX + 1];        /* "": NAMESRV_ADDR */
    char group[GROUP_NAME_MAX + 1];            /* "": none given, create refuses */
    char instance_name[INSTANCE_NAME_MAX + 1]; /* "": <pid>#<start ns> */
    enum tern_message_model model;             /* TERN_CLUSTERING */
    char offset_dir[OFFSET_DIR_MAX + 1];       /* "": $HOME/.ternmq_offsets */
    struct tern_offset_store store;            /* functions NULL: none given */
    enum tern_consume_from from;               /* TERN_FROM_LAST */
    int64_t from_timestamp_ms;                 /* with TERN_FROM_TIMESTAMP */
    int32_t pull_batch;                        /* 32 */
    int32_t consume_batch;                     /* 1 */
    int32_t threads;                           /* 20 */
    int32_t threads_min;                       /* 0 */
    int32_t pull_threshold;                    /* 1000 */
    int64_t pull_threshold_bytes;              /* 100 MiB */
    int32_t topic_threshold;                   /* -1 */
    int64_t topic_threshold_bytes;             /* -1 */
    int32_t max_span;                          /* 2000 */
    int64_t pull_interval_ms;                  /* 0 */
    int64_t commit_interval_ms;                /* 5000 */
    int32_t max_reconsume_times;               /* -1 */
    char allocate[ALLOCATE_NAME_MAX + 1];      /* "AVG" */
    struct queue_list *fixed;                  /* NULL: none given */
    char rooms[ROOMS_TEXT_MAX + 1];            /* "" */
    struct tern_room_resolver resolver;        /* functions NULL: none */
    char refusal[REFUSAL_BYTES];               /* of the last setter that refused */
    int64_t max_body_bytes;                    /* COMPRESS_BODY_MAX */
    char ns[NAMESPACE_MAX + 1];                /* "": none */
    int64_t consume_timeout_ms;                /* 15 min */
    int64_t suspend_ms;                        /* 1000 */
    bool trace;
    char trace_topic[TOPIC_NAME_MAX + 1]; /* with trace */
    /* Borrowed; NULL, NULL: the system's (client/sim_hooks.h). */
    const struct env *env;
    struct link *link;
};

/* A consumer's own copy. */
void consumer_options_copy(struct tern_consumer_options *to,
                           const struct tern_consumer_options *from);
void consumer_options_fini(struct tern_consumer_options *options);
/* Whether the options fit together: TERN_INVALID with a text. */
MUST_CHECK enum tern_code consumer_options_check(const struct tern_consumer_options *options,
                                                 struct tern_error *err);
/* Puts the namespace before the group and the fixed queues' topics of a consumer's copy.
 * TERN_INVALID: they become too long; TERN_NO_MEMORY. */
MUST_CHECK enum tern_code consumer_options_use_namespace(struct tern_consumer_options *options,
                                                         struct tern_error *err);
/* The queue as the cluster knows it: terminated names, the topic with its namespace. */
MUST_CHECK enum tern_code consumer_wire_queue(const struct tern_consumer_options *options,
                                              const struct tern_queue *queue,
                                              struct tern_queue *out, struct tern_error *err);
/* What every message is told before anybody else has it. */
void consumer_prepare_message(const struct tern_consumer_options *options,
                              struct tern_message *message);

/* Fills *out for instance_get(); borrows from options. */
void consumer_options_instance(const struct tern_consumer_options *options,
                               struct instance_options *out);

#endif
