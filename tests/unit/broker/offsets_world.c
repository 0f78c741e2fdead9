#include "tests/unit/broker/offsets_world.h"

struct sim_env sim;
static struct env envs[TABLES];
struct offsets *tables[TABLES];

void open_table(int i)
{
    assert_ok(offsets_create(&envs[i], "/config/consumerOffset.json", &tables[i], NULL));
}

int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 31);
    for (int i = 0; i < TABLES; i++) {
        sim_env_machine(&sim, &envs[i]);
        assert_ok(fs_mkdirs(envs[i].fs, "/config"));
        open_table(i);
    }
    return 0;
}

int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < TABLES; i++)
        offsets_destroy(tables[i]);
    sim_env_fini(&sim);
    return 0;
}

enum offsets_commit_result commit(int i, const char *group, const char *topic, int32_t queue,
                                  int64_t offset, struct offset_version version)
{
    int64_t held;
    struct offset_version held_version;
    return offsets_commit(tables[i], group, topic, queue, offset, version, &held, &held_version);
}

struct offset_version version_of(int i, const char *group, const char *topic, int32_t queue)
{
    int64_t offset;
    struct offset_version version;
    offsets_query(tables[i], group, topic, queue, &offset, &version);
    return version;
}

struct copying {
    int to;
    bool refuse; /* a merge that must not happen */
};

static bool copy_one(void *arg, const struct offset_change *change)
{
    struct copying *copying = arg;
    assert_ok(offsets_merge(tables[copying->to], change, NULL));
    return true;
}

void give(int from, int to, uint64_t *seen, bool skip_merged)
{
    struct copying copying = {.to = to};
    *seen = offsets_changes(tables[from], *seen, COPY_MAX, skip_merged, copy_one, &copying);
}

int64_t end_450(void *arg, const char *topic, int32_t queue)
{
    (void)arg;
    (void)topic;
    (void)queue;
    return 450;
}
