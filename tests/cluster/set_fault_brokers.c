/*
 * The brokers and nameservers of a set under faults: how they come, go and die,
 * also in the middle of a call on their disk: then nothing of the dead reaches
 * disk or network any more, and the process is taken away (buried) when the
 * schedule goes on.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/cluster/set_fault.h"

uint64_t fault_dice(struct fault_world *world, uint64_t sides)
{
    return rng_below(&world->rng.rng, sides);
}

void fault_trace(const struct fault_world *world, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_info(world->cluster.client_env.log, "fault", "%s", text);
}

bool fault_chance(struct fault_world *world, uint64_t percent)
{
    return fault_dice(world, 100) < percent;
}

void fault_run_ms(struct fault_world *world, uint64_t most_ms)
{
    sim_run_for(world->cluster.sim.sched, ms_to_ns((int64_t)fault_dice(world, most_ms + 1)));
}

/* ---- brokers ---- */

/* Its death comes in the middle of a call; all later ones fail, as nothing is
 * done by the dead. */
static int on_disk_call(void *arg, enum sim_fs_op op, const char *path)
{
    struct fault_broker *broker = arg;
    (void)op;
    if (broker->calls_left > 0 && --broker->calls_left == 0) {
        fault_trace(broker->world, "dies broker=%u power=%d call=%s", broker->index,
                    broker->loses_power, path);
        broker->dying = true;
        sim_net_crash(broker->world->cluster.net, broker->node->host);
        if (broker->loses_power)
            sim_fs_power_loss(broker->node->disk, broker->torn);
        else
            sim_fs_process_crash(broker->node->disk);
    }
    return broker->dying ? EIO : 0;
}

static void bury(struct fault_broker *broker)
{
    if (!broker->dying)
        return;
    if (broker->node->broker)
        node_kill(broker->node);
    broker->dying = false;
    if (broker->loses_power)
        fault_power_lost(broker);
}

void fault_bury_all(struct fault_world *world)
{
    for (unsigned i = 0; i < world->broker_count; i++)
        bury(&world->brokers[i]);
}

static void plan_death(struct fault_broker *broker)
{
    struct fault_world *world = broker->world;
    broker->calls_left = 1 + fault_dice(world, fault_chance(world, 50) ? 60 : 600);
    broker->loses_power = world->may_lose_power && fault_chance(world, 50);
    broker->torn = (enum sim_torn)fault_dice(world, 4);
}

static bool others_run(const struct fault_broker *broker)
{
    const struct fault_world *world = broker->world;
    for (unsigned i = 0; i < world->broker_count; i++)
        if (i != broker->index && world->sets[broker->set].members & 1u << i &&
            fault_runs(&world->brokers[i]))
            return world->cluster.namesrv != NULL;
    return false;
}

void fault_up(struct fault_broker *broker)
{
    struct fault_world *world = broker->world;
    struct tern_error err;
    if (broker->node->broker)
        return;
    fault_forget_life(broker);
    sim_fs_set_hook(broker->node->disk, on_disk_call, broker);
    broker->calls_left = 0;
    if (world->may_break && fault_chance(world, 25))
        plan_death(broker);
    fault_trace(world, "up broker=%u dies_after=%" PRIu64, broker->index, broker->calls_left);
    if (broker->disk_new && !others_run(broker)) { /* it may found the set anew */
        world->sets[broker->set].opened_alone = true;
        world->sets[broker->set].alone_since = world->sent;
    }
    enum tern_code code = node_try_start(broker->node, &err);
    if (code != TERN_OK && !broker->dying)
        fail_msg("seed %" PRIu64 ": %s does not start: %s: %s", world->seed, broker->node->address,
                 tern_code_name(code), err.text);
    bury(broker);
}

void fault_power_off(struct fault_broker *broker, enum sim_torn torn)
{
    fault_look(broker->world);
    node_power_off(broker->node, torn);
    fault_power_lost(broker);
}

void fault_down(struct fault_broker *broker)
{
    struct fault_world *world = broker->world;
    if (!fault_runs(broker))
        return;
    fault_look(world);
    uint64_t how = fault_dice(world, 4);
    fault_trace(world, "down broker=%u how=%" PRIu64, broker->index, how);
    broker->calls_left = 0;
    if (how == 0) {
        node_stop(broker->node);
    } else if (how == 1 && world->may_break) {
        plan_death(broker);
    } else if (how == 2 && world->may_lose_power) {
        fault_power_off(broker, (enum sim_torn)fault_dice(world, 4));
    } else {
        node_kill(broker->node);
    }
}

void fault_lose_disk(struct fault_broker *broker)
{
    struct fault_world *world = broker->world;
    struct fault_set *set = &world->sets[broker->set];
    if (!world->may_lose_disk || world->disks_lost == 4 || set->members == 1u << set->master ||
        set->role != ROLE_SYNC_MASTER)
        return;
    sim_net_heal_all(world->cluster.net);
    fault_run_ms(world, 20000);
    fault_bury_all(world);
    for (unsigned i = 0; i < world->broker_count; i++)
        if (world->brokers[i].calls_left || !fault_runs(&world->brokers[i]))
            return;
    if (!world->cluster.namesrv || !fault_all_settled(world))
        return;
    fault_look(world);
    fault_trace(world, "disk_lost broker=%u", broker->index);
    world->disks_lost++;
    node_kill(broker->node);
    node_new_disk(broker->node);
    broker->disk_new = true;
    fault_disk_lost(broker);
    fault_up(broker);
}

/* ---- nameservers ---- */

void fault_start_namesrv2(struct fault_world *world)
{
    struct namesrv_config config;
    struct tern_error err = {.text = ""};
    memset(&config, 0, sizeof config);
    config_defaults(&namesrv_config_table, &config);
    snprintf(config.listen_addr, sizeof config.listen_addr, FAULT_NAMESRV2_HOST);
    snprintf(config.kv_config_path, sizeof config.kv_config_path, "/namesrv2/kvConfig.json");
    world->namesrv2_link = sim_net_link(world->cluster.net, FAULT_NAMESRV2_HOST);
    assert_int_equal(namesrv_create(&world->cluster.sim.env, world->namesrv2_link, &config,
                                    &world->namesrv2, &err),
                     TERN_OK);
    assert_int_equal(namesrv_start(world->namesrv2, &err), TERN_OK);
}

void fault_kill_namesrv2(struct fault_world *world)
{
    sim_net_crash(world->cluster.net, FAULT_NAMESRV2_HOST);
    namesrv_stop(world->namesrv2);
    namesrv_destroy(world->namesrv2);
    link_destroy(world->namesrv2_link);
    world->namesrv2 = NULL;
}

/* ---- a world ---- */

static void configure(struct fault_world *world, struct fault_broker *broker)
{
    struct fault_set *set = &world->sets[broker->set];
    struct broker_config *config = &broker->node->config;
    bool master = fault_is_master(broker);
    snprintf(config->namesrv_addr, sizeof config->namesrv_addr, "%s", world->namesrv_addr);
    config->segment_bytes = 160 << 10;
    config->max_message_bytes = 4 << 10;
    config->role = master ? set->role : ROLE_SLAVE;
    broker->sync_flush = master ? set->sync_flush : fault_chance(world, 50);
    config->flush_type = broker->sync_flush ? FLUSH_SYNC : FLUSH_ASYNC;
    config->consume_visibility = (int32_t)fault_dice(world, 3);
    snprintf(config->in_sync_replicas_text, sizeof config->in_sync_replicas_text, "%s",
             fault_chance(world, 50) ? "1" : "all");
    config->min_in_sync_replicas = fault_chance(world, 20);
    if (set->role == ROLE_ASYNC_MASTER && fault_chance(world, 70))
        config->recover_timeout_ms = 100 + (int64_t)fault_dice(world, 3000);
    if (world->may_expire)
        config->retention_ms = 5000 + (int64_t)fault_dice(world, 60000);
    if (fault_chance(world, 20))
        config->physical_memory_bytes = 1 << 16;
}

static void add_broker(struct fault_world *world, unsigned set, int64_t id)
{
    struct fault_broker *broker = &world->brokers[world->broker_count];
    broker->node = world->broker_count
                       ? cluster_add_node(&world->cluster, world->sets[set].name, id)
                       : &world->cluster.nodes[0];
    broker->index = world->broker_count++;
    broker->world = world;
    broker->set = set;
    if (id == 0)
        world->sets[set].master = broker->index;
    world->sets[set].members |= 1u << broker->index;
    configure(world, broker);
}

void fault_add_set(struct fault_world *world, const char *name, unsigned slaves)
{
    struct fault_set *set = &world->sets[world->set_count];
    set->name = name;
    set->role = fault_chance(world, 55) ? ROLE_SYNC_MASTER : ROLE_ASYNC_MASTER;
    set->sync_flush = fault_chance(world, 35);
    for (int i = 0; i < QUEUES; i++)
        set->promises[i].offset = -1;
    for (unsigned i = 0; i <= slaves; i++)
        add_broker(world, world->set_count, i);
    world->set_count++;
}

void fault_begin_world(struct fault_world *world, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->seed = seed;
    rng_seeded_init(&world->rng, seed);
    cluster_init(&world->cluster, seed);
    world->two_nameservers = fault_chance(world, 40);
    snprintf(world->namesrv_addr, sizeof world->namesrv_addr, "%s%s", CLUSTER_NAMESRV_ADDR,
             world->two_nameservers ? ";" FAULT_NAMESRV2_HOST ":9876" : "");
    if (world->two_nameservers)
        fault_start_namesrv2(world);
}

void fault_start_all(struct fault_world *world)
{
    bool breaks = world->may_break;
    world->may_break = false;
    for (unsigned i = 0; i < world->broker_count; i++) {
        const struct broker_config *config = &world->brokers[i].node->config;
        fault_trace(
            world,
            "configuration broker=%u role=%d flush=%d visibility=%d replicas=%s min=%" PRId64
            " timeout_ms=%" PRId64 " retention_ms=%" PRId64,
            i, config->role, config->flush_type, config->consume_visibility,
            config->in_sync_replicas_text, config->min_in_sync_replicas, config->recover_timeout_ms,
            config->retention_ms);
    }
    for (unsigned i = 0; i < world->broker_count; i++)
        fault_up(&world->brokers[i]);
    world->may_break = breaks;
    assert_true(sim_run_until_true(world->cluster.sim.sched, fault_all_settled, world,
                                   clock_mono_ns(world->cluster.sim.env.clock) + ms_to_ns(10000)));
    for (unsigned i = 0; i < world->set_count; i++) {
        fault_put_topic(world, &world->brokers[world->sets[i].master], FAULT_TOPIC);
        fault_put_topic(world, &world->brokers[world->sets[i].master], FAULT_FLEETING);
    }
    fault_new_producer(world);
    fault_new_committer(world);
    fault_join(world);
}
