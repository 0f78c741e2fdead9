/*
 * Putting clients into another world: tests and simulations give their own clocks, random numbers,
 * tasks and network. Not installed and not exported by the shared library; link with the archive.
 */
#ifndef CLIENT_SIM_HOOKS_H
#define CLIENT_SIM_HOOKS_H

#include <tern/consumer.h>
#include <tern/producer.h>

#include "base/env.h"
#include "rpc/link.h"

/* env and link are borrowed and must outlive what is created with the options. Both or neither. */
void tern_producer_options_world(struct tern_producer_options *options, const struct env *env,
                                 struct link *link);
void tern_consumer_options_world(struct tern_consumer_options *options, const struct env *env,
                                 struct link *link);

#endif
