/* See fake_broker.h. Defines what handlers call of the store and the registrar. */
#include "tests/unit/broker/broker_unit.h"
#include "tests/unit/broker/fake_broker.h"

#include "base/clock.h"
#include "base/lock.h"
#include "broker/ack_wait.h"
#include "broker/admin_lane.h"
#include "broker/ha/ha.h"
#include "broker/handlers/handlers.h"
#include "broker/queue_locks.h"
#include "broker/registrar.h"
#include "broker/set_tables.h"
#include "broker/subscription_cache.h"
#include "broker/tx/tx.h"

enum { CALLS_MAX = 256 };

struct fake_broker fake;
static struct fake_request *calls[CALLS_MAX];
static size_t call_count;

/* ---- store and registrar ---- */

static const struct fake_queue *find_queue(const char *topic, int32_t queue_id)
{
    for (size_t i = 0; i < fake.queue_count; i++)
        if (!strcmp(fake.queues[i].topic, topic) && fake.queues[i].queue_id == queue_id)
            return &fake.queues[i];
    return NULL;
}

void store_queue_range(struct store *store, const char *topic, int32_t queue_id, int64_t *min_off,
                       int64_t *max_off)
{
    const struct fake_queue *queue = find_queue(topic, queue_id);
    (void)store;
    *min_off = queue ? queue->min : 0;
    *max_off = queue ? queue->max : 0;
}

int32_t store_topic_last_queue(struct store *store, const char *topic)
{
    int32_t last = -1;
    (void)store;
    for (size_t i = 0; i < fake.queue_count; i++)
        if (!strcmp(fake.queues[i].topic, topic) && fake.queues[i].queue_id > last)
            last = fake.queues[i].queue_id;
    return last;
}

enum tern_code store_time_of(struct store *store, const char *topic, int32_t queue_id,
                             int64_t offset, int64_t *wall_ms)
{
    const struct fake_queue *queue = find_queue(topic, queue_id);
    (void)store;
    lock_assert_none_held();
    if (fake.store_code)
        return fake.store_code;
    if (!queue || offset < queue->min || offset >= queue->max)
        return TERN_NOT_FOUND;
    *wall_ms = FAKE_FIRST_MS + offset * FAKE_STEP_MS;
    return TERN_OK;
}

enum tern_code store_offset_by_time(struct store *store, const char *topic, int32_t queue_id,
                                    int64_t wall_ms, int64_t *offset)
{
    const struct fake_queue *queue = find_queue(topic, queue_id);
    (void)store;
    if (fake.store_code)
        return fake.store_code;
    *offset = (wall_ms - FAKE_FIRST_MS + FAKE_STEP_MS - 1) / FAKE_STEP_MS;
    if (!queue || *offset < queue->min)
        *offset = queue ? queue->min : 0;
    if (queue && *offset >= queue->max) /* the last message, not the end (facts 3.5) */
        *offset = queue->max - 1;
    return TERN_OK;
}

enum tern_code store_delete_topic(struct store *store, const char *topic, struct tern_error *err)
{
    size_t len;
    (void)store;
    (void)err;
    char *text = get_file(&fake.sim, "/config/topics.json", &len);
    char quoted[160];
    snprintf(quoted, sizeof quoted, "\"%s\"", topic);
    fake.topic_was_durably_gone = !strstr(text, quoted);
    fake.deleted_topic = topic;
    free(text);
    return fake.store_code;
}

struct store_deletion *store_deletions(struct store *store, size_t *count, uint64_t *version)
{
    (void)store;
    *count = 0;
    *version = 0;
    return calloc(1, sizeof(struct store_deletion));
}

uint64_t store_deletions_version(struct store *store)
{
    (void)store;
    return 0;
}

enum tern_code store_apply_deletions(struct store *store, const struct store_deletion *list,
                                     size_t count, uint64_t version, struct tern_error *err)
{
    (void)store;
    (void)list;
    (void)count;
    (void)version;
    (void)err;
    return TERN_OK;
}

enum tern_code store_queue_end_at(struct store *store, const char *topic, int32_t queue_id,
                                  int64_t phys_off, int64_t *offset)
{
    int64_t min;
    (void)phys_off;
    store_queue_range(store, topic, queue_id, &min, offset);
    return fake.store_code;
}

void store_positions(struct store *store, struct store_positions *out)
{
    (void)store;
    *out = (struct store_positions){.whole = 0};
}

void store_status(struct store *store, struct store_status *out)
{
    (void)store;
    memset(out, 0, sizeof *out);
}

enum tern_code registrar_publish(struct registrar *registrar, int64_t deadline_ns,
                                 struct tern_error *err)
{
    (void)registrar;
    (void)deadline_ns;
    (void)err;
    fake.publishes++;
    return TERN_OK;
}

/* ---- transactions ---- */

void tx_not_asked(struct tx *tx, int64_t half_off)
{
    (void)tx;
    (void)half_off;
}

/* ---- replication ---- */

void ha_on_change(struct ha *ha)
{
    (void)ha;
    lock_assert_none_held();
    fake.ha.changes++;
}

int ha_state(struct ha *ha)
{
    (void)ha;
    return fake.ha.state;
}

bool ha_decides_progress(struct ha *ha)
{
    (void)ha;
    return fake.ha.decides_progress;
}

bool ha_decides_locks(struct ha *ha)
{
    (void)ha;
    return fake.ha.decides_locks;
}

bool ha_hands_on_locks(struct ha *ha)
{
    (void)ha;
    return fake.ha.hands_on_locks;
}

bool ha_readable(struct ha *ha, char *text, size_t size)
{
    (void)ha;
    snprintf(text, size, "it is being cut");
    return fake.ha.readable;
}

bool ha_writable(struct ha *ha, enum tern_code *code, char *text, size_t size)
{
    (void)ha;
    *code = TERN_SERVICE_NOT_AVAILABLE;
    snprintf(text, size, "too few slaves are in sync");
    return fake.ha.writable;
}

void fake_broker_ha(bool slave, int state)
{
    bool open = state == TERN__WIRE__HA_STATE__HA_OPEN;
    fake.broker.config.role = slave ? ROLE_SLAVE : ROLE_SYNC_MASTER;
    fake.broker.config.broker_id = slave;
    fake.broker.ha = (struct ha *)(void *)&fake.ha;
    fake.ha.state = state;
    fake.ha.decides_progress = fake.ha.decides_locks = fake.ha.writable = open;
    fake.ha.readable = true;
}

/* ---- life ---- */

static void open_parts(void)
{
    struct broker *broker = &fake.broker;
    struct members_options members = {.arg = broker, .on_changed = broker_on_members_changed};
    *broker = (struct broker){.env = fake.sim.env};
    snprintf(broker->config.broker_name, sizeof broker->config.broker_name, "broker-a");
    broker->config.role = ROLE_ASYNC_MASTER;
    broker->config.max_message_bytes = 4 << 20;
    assert_ok(topics_create(&broker->env, "/config/topics.json", "DefaultCluster", "broker-a",
                            false, 8, &broker->topics, NULL));
    assert_ok(
        groups_create(&broker->env, "/config/subscriptionGroup.json", true, &broker->groups, NULL));
    assert_ok(offsets_create(&broker->env, "/config/consumerOffset.json", &broker->offsets, NULL));
    assert_ok(queue_locks_create(&broker->env, &broker->locks));
    assert_ok(ack_wait_create(&broker->env, "broker-commit", &broker->commits));
    assert_ok(set_tables_create(broker, &broker->set_tables));
    topics_follow(broker->topics, false); /* as an open master's */
    groups_follow(broker->groups, false);
    assert_ok(members_create(&broker->env, &members, &broker->members));
    assert_ok(subscription_cache_create(&broker->subscriptions));
    broker->config.enable_property_filter = true;
    assert_ok(events_create(&broker->env, &broker->events));
    assert_ok(pull_stats_create(&broker->env, &broker->pull_stats));
    assert_ok(admin_lane_create(broker, &broker->admin));
}

static void close_parts(void)
{
    struct broker *broker = &fake.broker;
    admin_lane_destroy(broker->admin);
    events_destroy(broker->events);
    subscription_cache_destroy(broker->subscriptions);
    members_destroy(broker->members);
    pull_stats_destroy(broker->pull_stats);
    ack_wait_destroy(broker->commits);
    set_tables_destroy(broker->set_tables);
    queue_locks_destroy(broker->locks);
    offsets_destroy(broker->offsets);
    groups_destroy(broker->groups);
    topics_destroy(broker->topics);
}

void fake_broker_begin(void)
{
    memset(&fake, 0, sizeof fake);
    call_count = 0;
    sim_env_init(&fake.sim, 17);
    assert_ok(fs_mkdirs(fake.sim.env.fs, "/config"));
    open_parts();
}

void fake_broker_end(void)
{
    close_parts();
    while (call_count)
        fake_request_free(calls[--call_count]);
    sim_env_fini(&fake.sim);
}

void fake_broker_restart(void)
{
    close_parts();
    open_parts();
}

void fake_broker_queue(const char *topic, int32_t queue_id, int64_t min, int64_t max)
{
    assert_true(fake.queue_count < FAKE_QUEUES);
    fake.queues[fake.queue_count++] = (struct fake_queue){topic, queue_id, min, max};
}

void fake_broker_topic(const char *name, int32_t queues)
{
    struct topic_config config = {
        .read_queues = queues, .write_queues = queues, .perm = PERM_READ | PERM_WRITE};
    snprintf(config.name, sizeof config.name, "%s", name);
    config.name_len = (uint8_t)strlen(name);
    assert_ok(topics_put(fake.broker.topics, &config, NULL));
    assert_ok(topics_persist(fake.broker.topics, NULL));
}

/* ---- calls ---- */

struct fake_request *fake_call(const char *client_id, uint64_t peer_id)
{
    assert_true(call_count < CALLS_MAX);
    calls[call_count] = fake_request_new(fake.sim.env.clock, client_id, peer_id, 3000);
    return calls[call_count++];
}

void fake_run(struct fake_request *request,
              void (*handler)(struct broker *broker, struct rpc_request *request))
{
    handler(&fake.broker, &request->pub);
    sim_run_for(fake.sim.sched, ms_to_ns(1));
}

const char *fake_remark(const struct fake_request *request)
{
    return request->response->remark;
}
