/* See set_world.h. Defines what the tables call of the store, replication and the admin lane. */
#include "tests/unit/broker/broker_unit.h"
#include "tests/unit/broker/set_world.h"

#include "base/arena.h"
#include "base/lock.h"
#include "broker/admin_lane.h"
#include "broker/long_poll.h"

enum { ARENA_BYTES = 128 << 20 };

struct sim_env set_sim;
struct node nodes[2];

/* ---- what the tables call ---- */

struct store_deletion *store_deletions(struct store *store, size_t *count, uint64_t *version)
{
    struct store_deletion *copy = calloc(DELETIONS, sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, store->deletions, sizeof store->deletions);
    *count = store->deletion_count;
    *version = store->deletions_version;
    return copy;
}

uint64_t store_deletions_version(struct store *store)
{
    return store->deletions_version;
}

enum tern_code store_apply_deletions(struct store *store, const struct store_deletion *list,
                                     size_t count, uint64_t version, struct tern_error *err)
{
    lock_assert_none_held();
    if (store->code)
        return error_set(err, store->code, "deleted.json");
    assert_true(count <= DELETIONS);
    memcpy(store->deletions, list, count * sizeof *list);
    store->deletion_count = count;
    store->deletions_version = version;
    store->applied++;
    return TERN_OK;
}

static void note_told(struct long_poll *polls, const char *group, const char *topic,
                      int32_t queue_id)
{
    lock_assert_none_held();
    polls->told++;
    snprintf(polls->group, sizeof polls->group, "%s", group);
    snprintf(polls->topic, sizeof polls->topic, "%s", topic);
    polls->queue_id = queue_id;
}

void long_poll_reset(struct long_poll *polls, const char *group, const char *topic,
                     int32_t queue_id)
{
    note_told(polls, group, topic, queue_id);
}

void long_poll_reset_all(struct long_poll *polls, const char *group, const char *topic)
{
    note_told(polls, group, topic, -1);
}

void store_queue_range(struct store *store, const char *topic, int32_t queue_id, int64_t *min,
                       int64_t *max)
{
    *min = 0;
    *max = !strcmp(topic, "T") && queue_id < ENDS ? store->ends[queue_id] : 0;
}

int32_t store_topic_last_queue(struct store *store, const char *topic)
{
    (void)store;
    return !strcmp(topic, "T") ? ENDS - 1 : -1;
}

enum tern_code store_queue_end_at(struct store *store, const char *topic, int32_t queue_id,
                                  int64_t phys_off, int64_t *offset)
{
    int64_t min;
    lock_assert_none_held();
    store_queue_range(store, topic, queue_id, &min, offset);
    if (*offset > phys_off / 10)
        *offset = phys_off / 10;
    return store->code;
}

void store_positions(struct store *store, struct store_positions *out)
{
    *out = (struct store_positions){.whole = LOG_END, .dispatched = store->dispatched};
}

void store_status(struct store *store, struct store_status *out)
{
    (void)store;
    memset(out, 0, sizeof *out);
    out->dispatch_limit = INT64_MAX;
}

void ha_on_change(struct ha *ha)
{
    lock_assert_none_held();
    ha->changes++;
}

int ha_state(struct ha *ha)
{
    return ha->state;
}

void admin_lane_poke(struct admin_lane *lane)
{
    ((struct node *)(void *)lane)->pokes++;
}

/* ---- life ---- */

void open_node(struct node *node, enum broker_role role)
{
    struct broker *broker = &node->broker;
    broker->config.role = (int32_t)role;
    snprintf(broker->config.broker_name, sizeof broker->config.broker_name, "broker-a");
    broker->store = &node->store;
    broker->ha = &node->ha;
    broker->polls = &node->polls;
    broker->admin = (struct admin_lane *)(void *)node;
    assert_ok(topics_create(&broker->env, "/config/topics.json", "DefaultCluster", "broker-a",
                            false, 8, &broker->topics, NULL));
    assert_ok(
        groups_create(&broker->env, "/config/subscriptionGroup.json", true, &broker->groups, NULL));
    assert_ok(offsets_create(&broker->env, "/config/consumerOffset.json", &broker->offsets, NULL));
    assert_ok(queue_locks_create(&broker->env, &broker->locks));
    assert_ok(set_tables_create(broker, &broker->set_tables));
    set_tables_ops(broker->set_tables, &node->ops);
    node->store.dispatched = LOG_END;
}

void close_node(struct node *node)
{
    set_tables_destroy(node->broker.set_tables);
    queue_locks_destroy(node->broker.locks);
    offsets_destroy(node->broker.offsets);
    groups_destroy(node->broker.groups);
    topics_destroy(node->broker.topics);
}

void open_master(struct node *node, bool raise)
{
    assert_ok(node->ops.open(node->ops.arg, raise, 1, NULL));
    node->ha.state = TERN__WIRE__HA_STATE__HA_OPEN;
}

int set_world_begin(void **state)
{
    (void)state;
    sim_env_init(&set_sim, 51);
    memset(nodes, 0, sizeof nodes);
    for (int i = 0; i < 2; i++) {
        nodes[i].disk = sim_env_machine(&set_sim, &nodes[i].broker.env);
        assert_ok(fs_mkdirs(nodes[i].broker.env.fs, "/config"));
        open_node(&nodes[i], i ? ROLE_SLAVE : ROLE_SYNC_MASTER);
    }
    open_master(master, false);
    slave->ha.state = TERN__WIRE__HA_STATE__HA_FOLLOWING;
    for (int i = 0; i < ENDS; i++)
        master->store.ends[i] = slave->store.ends[i] = 450;
    return 0;
}

int set_world_end(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        close_node(&nodes[i]);
    sim_env_fini(&set_sim);
    return 0;
}

void put_topic(struct node *node, const char *name, int32_t queues)
{
    struct topic_config config = {
        .read_queues = queues, .write_queues = queues, .perm = PERM_READ | PERM_WRITE};
    snprintf(config.name, sizeof config.name, "%s", name);
    config.name_len = (uint8_t)strlen(name);
    assert_ok(topics_put(node->broker.topics, &config, NULL));
    assert_ok(topics_persist(node->broker.topics, NULL));
}

void put_group(struct node *node, const char *name, int32_t retries)
{
    struct group_config config;
    group_config_init(&config, name, strlen(name));
    config.retry_max_times = retries;
    assert_ok(groups_put(node->broker.groups, &config, NULL));
    assert_ok(groups_persist(node->broker.groups, NULL));
}

int32_t queues_of(struct node *node, const char *name)
{
    struct topic_config config;
    return topics_find(node->broker.topics, name, strlen(name), &config) ? config.write_queues : -1;
}

int32_t retries_of(struct node *node, const char *name)
{
    struct group_config config;
    return groups_find(node->broker.groups, name, strlen(name), &config) ? config.retry_max_times
                                                                         : -1;
}

void commit(struct node *node, const char *group, int32_t queue, int64_t offset)
{
    int64_t held;
    struct offset_version version = {0, 0};
    offsets_query(node->broker.offsets, group, "T", queue, &held, &version);
    assert_int_equal(
        offsets_commit(node->broker.offsets, group, "T", queue, offset, version, &held, &version),
        OFFSETS_STORED);
}

int64_t stored(struct node *node, const char *group, int32_t queue)
{
    int64_t offset;
    struct offset_version version;
    return offsets_query(node->broker.offsets, group, "T", queue, &offset, &version) ? offset : -1;
}

uint64_t epoch_of(struct node *node, const char *group, int32_t queue)
{
    int64_t offset;
    struct offset_version version;
    offsets_query(node->broker.offsets, group, "T", queue, &offset, &version);
    return version.epoch;
}

bool step(struct node *from, struct node *to, struct ha_held *held, bool progress_only,
          enum tern_code *code, struct tern_error *err)
{
    struct arena arena;
    arena_init(&arena, ARENA_BYTES);
    bool differed = from->ops.differs(from->ops.arg, held, progress_only);
    Tern__Wire__HaTables *tables = from->ops.fill(from->ops.arg, held, progress_only, &arena);
    assert_true(differed || !tables);
    if (tables) {
        size_t size = tern__wire__ha_tables__get_packed_size(tables);
        assert_true(size < FRAME_HEADER_MAX);
        uint8_t *bytes = malloc(size + 1);
        assert_non_null(bytes);
        tern__wire__ha_tables__pack(tables, bytes);
        Tern__Wire__HaTables *there = tern__wire__ha_tables__unpack(NULL, size, bytes);
        assert_non_null(there);
        *code = to->ops.apply(to->ops.arg, there, held, err);
        tern__wire__ha_tables__free_unpacked(there, NULL);
        free(bytes);
    }
    arena_fini(&arena);
    return tables != NULL;
}

int sync_nodes(struct node *from, struct node *to, struct ha_held *held, bool progress_only)
{
    int steps = 0;
    struct tern_error err;
    enum tern_code code = TERN_OK;
    while (step(from, to, held, progress_only, &code, &err)) {
        assert_ok(code);
        assert_true(++steps < 1000);
    }
    assert_false(from->ops.differs(from->ops.arg, held, progress_only));
    return steps;
}
