#include "tests/unit/broker/topics_world.h"

struct sim_env sim;
struct topics *topics;

enum tern_code open_table(bool auto_create, struct tern_error *err)
{
    return topics_create(&sim.env, PATH, "DefaultCluster", "broker-a", auto_create, 8, &topics,
                         err);
}

void reopen(void)
{
    topics_destroy(topics);
    assert_ok(open_table(false, NULL));
}

int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 11);
    assert_ok(fs_mkdirs(sim.env.fs, "/config"));
    assert_ok(open_table(false, NULL));
    return 0;
}

int teardown(void **state)
{
    (void)state;
    topics_destroy(topics);
    topics = NULL;
    sim_env_fini(&sim);
    return 0;
}

struct topic_config topic(const char *name, int32_t queues)
{
    struct topic_config config = {
        .read_queues = queues, .write_queues = queues, .perm = PERM_READ | PERM_WRITE};
    snprintf(config.name, sizeof config.name, "%s", name);
    config.name_len = (uint8_t)strlen(config.name);
    return config;
}

enum tern_code put(const char *name, int32_t queues)
{
    struct topic_config config = topic(name, queues);
    return topics_put(topics, &config, NULL);
}

int32_t queues_of(const char *name)
{
    struct topic_config config;
    return topics_find(topics, name, strlen(name), &config) ? config.write_queues : -1;
}
