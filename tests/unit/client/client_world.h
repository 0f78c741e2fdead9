/*
 * A simulated cluster of fakes with one client process: nameservers ns1, ns2 at 10.0.0.1, .2;
 * brokers broker-a, -b, -c at 10.0.1.1, .2, .3. Topic T has 2 queues on each broker.
 */
#ifndef TESTS_CLIENT_CLIENT_WORLD_H
#define TESTS_CLIENT_CLIENT_WORLD_H

#include <tern/tern.h>

#include "client/sim_hooks.h"
#include "tests/sim/link/sim_link.h"
#include "fake_servers.h"

enum { WORLD_NAMESRVS = 2, WORLD_BROKERS = 3 };

struct client_world {
    struct sim_env sim;
    struct sim_net *net;
    struct link *client_link;
    struct link *ns_links[WORLD_NAMESRVS];
    struct link *broker_links[WORLD_BROKERS];
    struct fake_namesrv ns[WORLD_NAMESRVS];
    struct fake_broker brokers[WORLD_BROKERS];
    size_t ns_count, broker_count;
    char namesrv[128]; /* as clients are told */
};

struct client_world *client_world_create(size_t namesrvs, size_t brokers);
void client_world_destroy(struct client_world *world);

/* Both for every nameserver. */
void client_world_put(struct client_world *world, const char *topic,
                      const struct fake_queues *part);
/* The part of broker `index` in a topic: queues of each kind, perm RW. */
struct fake_queues client_world_part(const struct client_world *world, size_t index,
                                     int32_t queues);

void client_world_crash_broker(struct client_world *world, size_t index);
void client_world_restart_broker(struct client_world *world, size_t index);
void client_world_crash_namesrv(struct client_world *world, size_t index);
void client_world_restart_namesrv(struct client_world *world, size_t index);

/* Options with nameservers and world set. */
struct tern_producer_options *client_world_options(struct client_world *world);
/* A running producer; options may be NULL, else they are destroyed. */
struct tern_producer *client_world_producer(struct client_world *world,
                                            struct tern_producer_options *options);
void client_world_run_ms(struct client_world *world, int64_t ms);

#endif
