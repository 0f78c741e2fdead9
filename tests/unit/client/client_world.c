/* The simulated cluster of fakes. Threads: one. Failure modes: aborts. */
#include "client_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static const char *const ns_hosts[] = {"10.0.0.1", "10.0.0.2"};
static const char *const broker_hosts[] = {"10.0.1.1", "10.0.1.2", "10.0.1.3"};
static const char *const broker_names[] = {"broker-a", "broker-b", "broker-c"};

static void start_namesrv(struct client_world *world, size_t i)
{
    char address[64];
    snprintf(address, sizeof address, "%s:9876", ns_hosts[i]);
    world->ns_links[i] = sim_net_link(world->net, ns_hosts[i]);
    fake_namesrv_start(&world->ns[i], &world->sim.env, world->ns_links[i], address);
}

static void start_broker(struct client_world *world, size_t i)
{
    char address[64];
    snprintf(address, sizeof address, "%s:10911", broker_hosts[i]);
    world->broker_links[i] = sim_net_link(world->net, broker_hosts[i]);
    fake_broker_start(&world->brokers[i], &world->sim.env, world->broker_links[i], broker_names[i],
                      address);
}

static void stop_namesrv(struct client_world *world, size_t i)
{
    fake_namesrv_stop(&world->ns[i]);
    link_destroy(world->ns_links[i]);
    world->ns_links[i] = NULL;
}

static void stop_broker(struct client_world *world, size_t i)
{
    fake_broker_stop(&world->brokers[i]);
    link_destroy(world->broker_links[i]);
    world->broker_links[i] = NULL;
}

struct client_world *client_world_create(size_t namesrvs, size_t brokers)
{
    struct client_world *world = calloc(1, sizeof *world);
    ENSURE(world);
    sim_env_init(&world->sim, 42);
    world->net = sim_net_create(&world->sim);
    world->client_link = sim_net_link(world->net, "10.0.9.9");
    world->ns_count = namesrvs;
    world->broker_count = brokers;
    for (size_t i = 0; i < namesrvs; i++) {
        start_namesrv(world, i);
        size_t len = strlen(world->namesrv);
        snprintf(world->namesrv + len, sizeof world->namesrv - len, "%s%s", len ? ";" : "",
                 world->ns[i].address);
    }
    for (size_t i = 0; i < brokers; i++) {
        start_broker(world, i);
        struct fake_queues part = client_world_part(world, i, 2);
        client_world_put(world, "T", &part);
    }
    return world;
}

void client_world_destroy(struct client_world *world)
{
    link_destroy(world->client_link);
    for (size_t i = 0; i < world->ns_count; i++)
        if (world->ns_links[i])
            stop_namesrv(world, i);
    for (size_t i = 0; i < world->broker_count; i++)
        if (world->broker_links[i])
            stop_broker(world, i);
    sim_net_destroy(world->net);
    sim_env_fini(&world->sim);
    free(world);
}

void client_world_put(struct client_world *world, const char *topic, const struct fake_queues *part)
{
    for (size_t i = 0; i < world->ns_count; i++)
        fake_namesrv_put(&world->ns[i], topic, part);
}

struct fake_queues client_world_part(const struct client_world *world, size_t index, int32_t queues)
{
    struct fake_queues part = {.read_queues = queues, .write_queues = queues, .perm = 6};
    snprintf(part.broker, sizeof part.broker, "%s", broker_names[index]);
    snprintf(part.address, sizeof part.address, "%s", world->brokers[index].address);
    return part;
}

void client_world_crash_broker(struct client_world *world, size_t index)
{
    sim_net_crash(world->net, broker_hosts[index]);
    stop_broker(world, index);
}

void client_world_restart_broker(struct client_world *world, size_t index)
{
    start_broker(world, index);
}

void client_world_crash_namesrv(struct client_world *world, size_t index)
{
    sim_net_crash(world->net, ns_hosts[index]);
    stop_namesrv(world, index);
}

void client_world_restart_namesrv(struct client_world *world, size_t index)
{
    start_namesrv(world, index);
}

struct tern_producer_options *client_world_options(struct client_world *world)
{
    struct tern_producer_options *options = tern_producer_options_create();
    ENSURE(options);
    ENSURE(tern_producer_options_namesrv(options, world->namesrv) == TERN_OK);
    tern_producer_options_world(options, &world->sim.env, world->client_link);
    return options;
}

struct tern_producer *client_world_producer(struct client_world *world,
                                            struct tern_producer_options *options)
{
    struct tern_producer *producer;
    struct tern_error err;
    if (!options)
        options = client_world_options(world);
    ENSURE(tern_producer_create(options, &producer, &err) == TERN_OK);
    tern_producer_options_destroy(options);
    ENSURE(tern_producer_start(producer, &err) == TERN_OK);
    return producer;
}

void client_world_run_ms(struct client_world *world, int64_t ms)
{
    sim_run_for(world->sim.sched, ms_to_ns(ms));
}
