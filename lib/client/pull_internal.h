/*
 * The inside of a pull consumer, for its own files:
 *
 *   pull_consumer.c   life cycle, and single questions: queues, ranges, progress
 *   pull_op.c         one pull, over all addresses that it tries
 */
#ifndef CLIENT_PULL_INTERNAL_H
#define CLIENT_PULL_INTERNAL_H

#include <stdatomic.h>

#include <tern/consumer.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/sched.h"
#include "client/broker_pick.h"
#include "client/consumer_options.h"
#include "client/instance.h"
#include "rpc/client.h"

#define PULL_MAGIC 0x50554C4C434F4E53ULL

enum pull_state { PULL_CREATED, PULL_RUNNING, PULL_SHUT_DOWN };

struct tern_pull_consumer {
    uint64_t magic;
    _Atomic uint32_t refs; /* the handle's and one per pull under way */
    struct tern_consumer_options options;
    const struct env *env;
    struct instance *instance;
    _Atomic int state; /* enum pull_state */
    struct broker_suggestions suggestions;
    struct failed_addresses failed;
};

/* ---- pull_consumer.c ---- */

/* TERN_STATE with a text unless it is running. */
MUST_CHECK enum tern_code pull_check_running(const struct tern_pull_consumer *consumer,
                                             struct tern_error *err);
/* Makes sure that the topic's route is in the cache; *out is the caller's. @thread not a callback
 */
MUST_CHECK enum tern_code pull_need_route(struct tern_pull_consumer *consumer, const char *topic,
                                          struct route **out, struct tern_error *err);
void pull_consumer_unref(struct tern_pull_consumer *consumer);

#endif
