/*
 * Puts a broker together, starts it in the order in which things depend on each other, and stops it
 * in the reverse order:
 *
 *   store (locks its directory, recovers) ► tables, offsets clamped ► lanes ► listen ► register ►
 * ready
 *
 * Nothing is served before the store has recovered and offsets were clamped to it: requests that
 * come earlier find no listener. A second broker on the same directory fails before it touches a
 * table.
 *
 * Threads of its own: broker-ack, broker-poll, two broker-cold, the admin lane, broker-register and
 * broker-house (this file: expiry of members, events, progress to disk); the store has its own.
 */
#include "broker/broker_internal.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/reply.h"
#include "base/sched.h"
#include "broker/ack_wait.h"
#include "broker/admin_lane.h"
#include "broker/cold_lane.h"
#include "broker/guard.h"
#include "broker/ha/ha.h"
#include "broker/handlers/handlers.h"
#include "broker/live_config.h"
#include "broker/long_poll.h"
#include "broker/queue_locks.h"
#include "broker/registrar.h"
#include "broker/schedule/schedule.h"
#include "broker/set_tables.h"
#include "broker/subscription_cache.h"
#include "broker/tx/tx.h"

enum {
    FIRST_REGISTRATION_MS = 1000,
    HOUSEKEEPING_MS = 1000,
    DRAIN_MS = 2000,
    OPENING_PATIENCE_MS = 200, /* with others to be asked */
    OPENING_ALONE_MS = 5000,   /* with a slow disk only */
    IDLE_CLOSE_MS = 180000
};

/* ---- creating ---- */

static enum tern_code make_histograms(struct broker *broker)
{
    for (int i = 0; i < REQUEST_KINDS; i++) {
        broker->request_stats[i].latency_ns = calloc(1, sizeof(struct histogram));
        if (!broker->request_stats[i].latency_ns)
            return TERN_NO_MEMORY;
    }
    return TERN_OK;
}

enum tern_code broker_create(const struct env *env, struct link *link,
                             const struct broker_config *config, struct broker **out,
                             struct tern_error *err)
{
    struct broker *broker = calloc(1, sizeof *broker);
    if (!broker)
        return error_set(err, TERN_NO_MEMORY, "broker");
    broker->config = *config;
    live_config_init(broker);
    rates_init(&broker->rates);
    stages_init(&broker->stages);
    if (make_histograms(broker) != TERN_OK) {
        broker_destroy(broker);
        return error_set(err, TERN_NO_MEMORY, "broker");
    }
    broker->env = *env;
    broker->link = link;
    broker->started_ms = clock_wall_ms(env->clock);
    broker->started_ns = clock_mono_ns(env->clock);
    *out = broker;
    return TERN_OK;
}

const char *broker_address(const struct broker *broker)
{
    return broker->address;
}

bool broker_writable(struct broker *broker, enum tern_code *code, char *text, size_t size)
{
    int64_t permission =
        atomic_load_explicit(&broker->live.broker_permission, memory_order_relaxed);
    if (permission & PERM_WRITE)
        return ha_writable(broker->ha, code, text, size);
    *code = TERN_NO_PERMISSION;
    snprintf(text, size, "broker %s does not take sends (brokerPermission %" PRId64 ")",
             broker->config.broker_name, permission);
    return false;
}

/* ---- what replication tells ---- */

/* Before an ASYNC_MASTER opens: its log may have been cut, and flushed ends begin anew. */
static void flushed_anew(struct broker *broker)
{
    struct store_positions at;
    store_positions(broker->store, &at);
    ack_wait_set(broker->acks, at.flushed, TERN_OK);
}

/*
 * What replication has acknowledged has changed. Told by several threads at once, so what counts is
 * read here, and read again after it was used: the last one leaves the newest.
 */
static void on_acknowledged(void *arg)
{
    struct broker *broker = arg;
    const struct broker_config *config = &broker->config;
    struct ha *ha = atomic_load_explicit(&broker->ha, memory_order_acquire);
    struct ha_acknowledged now, seen;
    ha_acknowledged(ha, &now);
    do {
        seen = now;
        if (config->role == ROLE_SYNC_MASTER)
            ack_wait_set(broker->acks, seen.confirmed,
                         seen.alone ? TERN_SLAVE_NOT_AVAILABLE : TERN_OK);
        else if (ha_state(ha) == TERN__WIRE__HA_STATE__HA_RECOVERING)
            flushed_anew(broker);
        ack_wait_set(broker->commits, seen.progress, TERN_OK);
        if (config->role == ROLE_SLAVE || config->consume_visibility == VISIBLE_CONFIRMED)
            store_set_dispatch_limit(broker->store, seen.visible);
        ha_acknowledged(ha, &now);
    } while (memcmp(&now, &seen, sizeof now) != 0);
}

static void on_ha_state(void *arg, enum ha_mode mode, int state)
{
    struct broker *broker = arg;
    log_info(broker->env.log, "ha_state", "state=%s", ha_state_text(state));
    /* It stopped writing: what waits may be cut off, and other bytes come to its place. */
    if (state == TERN__WIRE__HA_STATE__HA_RECOVERING && mode == HA_MODE_SYNC_MASTER)
        ack_wait_restart(broker->acks, 0, TERN_FLUSH_SLAVE_TIMEOUT);
    if (state == TERN__WIRE__HA_STATE__HA_OPEN && !atomic_exchange(&broker->opened_set, true))
        latch_set(broker->env.sched, &broker->opened);
    tx_on_state(broker->tx, state == TERN__WIRE__HA_STATE__HA_OPEN);
    schedule_wake(broker->schedule);
    if (broker->registrar)
        registrar_poke(broker->registrar);
}

/* ---- what the server and the members tell ---- */

static void on_peer_gone(void *arg, uint64_t peer_id)
{
    struct broker *broker = arg;
    long_poll_peer_gone(broker->polls, peer_id);
    events_peer_gone(broker->events, peer_id);
    members_peer_gone(broker->members, peer_id);
}

static void on_pressure(void *arg, uint64_t peer_id)
{
    struct broker *broker = arg;
    long_poll_relieve(broker->polls, peer_id);
    events_relieve(broker->events, peer_id);
}

static void on_expression_changed(void *arg, const char *group, const char *topic,
                                  const char *client_id, const char *before, const char *after)
{
    struct broker *broker = arg;
    log_warn(
        broker->env.log, "expression_changed",
        "group=%s topic=%s client=%s before=\"%s\" after=\"%s\" note=\"messages already passed "
        "return only by a reset\"",
        group, topic, client_id, before, after);
    counter_add(&broker->expression_changes, 1);
}

/* ---- starting, part by part ---- */

/* System topics that the configuration decides about, and the one that replies go to. */
static enum tern_code add_own_topics(struct broker *broker, struct tern_error *err)
{
    const struct broker_config *config = &broker->config;
    char reply[CONFIG_STRING_BYTES + sizeof REPLY_TOPIC_SUFFIX];
    snprintf(reply, sizeof reply, "%s" REPLY_TOPIC_SUFFIX, config->cluster_name);
    enum tern_code code = topics_add_own(broker->topics, reply, 1, PERM_READ | PERM_WRITE);
    if (code == TERN_OK && config->trace_topic_enable)
        code = topics_add_own(broker->topics, config->trace_topic, 1, PERM_READ | PERM_WRITE);
    return code == TERN_OK ? code : error_set(err, code, "the system topics of this cluster");
}

static enum tern_code open_tables(struct broker *broker, struct tern_error *err)
{
    const struct broker_config *config = &broker->config;
    const struct env *env = &broker->env;
    char dir[FS_PATH_BYTES], topics[FS_PATH_BYTES], groups[FS_PATH_BYTES], offsets[FS_PATH_BYTES];
    enum tern_code code;

    if ((code = fs_join(dir, config->store_root, "config")) ||
        (code = fs_join(topics, dir, "topics.json")) ||
        (code = fs_join(groups, dir, "subscriptionGroup.json")) ||
        (code = fs_join(offsets, dir, "consumerOffset.json")))
        return error_set(err, code, "storePathRootDir: '%s' is too long", config->store_root);
    if ((code = fs_mkdirs(env->fs, dir)))
        return error_set(err, code, "storePathRootDir: cannot make %s: %s", dir,
                         tern_code_text(code));
    struct members_options members = {.arg = broker,
                                      .on_changed = broker_on_members_changed,
                                      .on_expression_changed = on_expression_changed,
                                      .on_differ = guard_on_differ};
    if ((code = topics_create(env, topics, config->cluster_name, config->broker_name,
                              config->auto_create_topic, (int32_t)config->default_topic_queues,
                              &broker->topics, err)) ||
        (code = add_own_topics(broker, err)) ||
        (code = groups_create(env, groups, config->auto_create_group, &broker->groups, err)) ||
        (code = offsets_create(env, offsets, &broker->offsets, err)))
        return code;
    if ((code = queue_locks_create(env, &broker->locks)) ||
        (code = ack_wait_create(env, "broker-commit", &broker->commits)) ||
        (code = set_tables_create(broker, &broker->set_tables)) ||
        (code = members_create(env, &members, &broker->members)) ||
        (code = subscription_cache_create(&broker->subscriptions)) ||
        (code = events_create(env, &broker->events)) ||
        (code = pull_stats_create(env, &broker->pull_stats)) ||
        (code = cold_lane_create(broker, env, &broker->cold)) ||
        (code = tx_create(broker, &broker->tx)) || (code = tx_start(broker->tx)))
        return error_set(err, code, "starting the broker's tasks: %s", tern_code_text(code));
    return TERN_OK;
}

/* "host" of "host:port", brackets of a v6 literal left on. */
static void host_of(const char *address, char *out, size_t size)
{
    const char *colon = strrchr(address, ':');
    snprintf(out, size, "%.*s", colon ? (int)(colon - address) : (int)strlen(address), address);
}

/* The address that clients are told and that records carry. */
static enum tern_code settle_address(struct broker *broker, unsigned port, struct tern_error *err)
{
    const struct broker_config *config = &broker->config;
    const char *host = config->advertise_addr[0] ? config->advertise_addr : config->listen_addr;
    char text[HOST_TEXT_BYTES + 16];

    /* The advertised form is host or host:port; v6 literals come bare or in brackets. */
    const char *colon = strrchr(host, ':');
    bool bare_v6 = colon && strchr(host, ':') != colon && host[0] != '[';
    bool has_port = colon && !bare_v6 && (host[0] != '[' || colon[-1] == ']');
    if (bare_v6)
        snprintf(broker->address, sizeof broker->address, "[%s]:%u", host, port);
    else if (has_port)
        snprintf(broker->address, sizeof broker->address, "%s", host);
    else
        snprintf(broker->address, sizeof broker->address, "%s:%u", host, port);
    if (host_parse(broker->address, &broker->store_host) == TERN_OK)
        return TERN_OK;
    /* A name: records need an address; the one we listen on will do. */
    bool v6 = strchr(config->listen_addr, ':') != NULL;
    snprintf(text, sizeof text, v6 ? "[%s]:%u" : "%s:%u", config->listen_addr, port);
    if (host_parse(text, &broker->store_host) != TERN_OK)
        return error_set(err, TERN_CONFIG, "listenAddr: '%s' is no IP address",
                         config->listen_addr);
    return TERN_OK;
}

static enum tern_code start_server(struct broker *broker, struct tern_error *err)
{
    const struct broker_config *config = &broker->config;
    char address[CONFIG_STRING_BYTES + 16];
    bool v6 = strchr(config->listen_addr, ':') != NULL;
    snprintf(address, sizeof address, v6 ? "[%s]:%" PRId64 : "%s:%" PRId64, config->listen_addr,
             config->listen_port);
    size_t most = frame_max_bytes(config->max_message_bytes);
    struct rpc_server_options options = {
        .listen = {.address = address,
                   .max_message_bytes = most,
                   .max_peers = (uint32_t)config->max_connections,
                   .max_requests = (uint32_t)config->max_requests,
                   .max_requests_per_peer = (uint32_t)config->max_requests_per_client,
                   .reply_timeout_ms = 10000,
                   .idle_close_ms = IDLE_CLOSE_MS},
        .arena_budget_bytes = 2 * most + (1 << 20),
        .arg = broker,
        .on_request = request_dispatch,
        .on_peer_gone = on_peer_gone,
        .on_pressure = on_pressure,
    };
    enum tern_code code =
        rpc_server_create(&broker->env, broker->link, &options, &broker->server, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "listenAddr, listenPort");
    /* Any free port: nobody knows it before we say it. */
    if (!config->listen_port)
        code = settle_address(broker, rpc_server_port(broker->server), err);
    ha_set_address(broker->ha, broker->address);
    return code;
}

/* Replication: both ends, and when a master may take writes. Serves and asks from here on. */
static enum tern_code start_replication(struct broker *broker, struct tern_error *err)
{
    const struct broker_config *config = &broker->config;
    char host[CONFIG_STRING_BYTES + 16];
    struct ha_options options = {
        .mode = config->role == ROLE_SLAVE         ? HA_MODE_SLAVE
                : config->role == ROLE_SYNC_MASTER ? HA_MODE_SYNC_MASTER
                                                   : HA_MODE_ASYNC_MASTER,
        .cluster = config->cluster_name,
        .name = config->broker_name,
        .id = config->broker_id,
        .root_dir = config->store_root,
        .address = broker->address,
        .listen_addr = config->listen_addr,
        .listen_port = config->ha_listen_port,
        .advertise_host = host,
        .master_address = config->ha_master_address,
        .sync_flush = config->flush_type == FLUSH_SYNC,
        .recovered_unclean = broker->recovered_unclean,
        .has_nameservers = config->namesrv_addr[0] != 0,
        .segment_bytes = config->segment_bytes,
        .insync = {.replicas = config->in_sync_replicas > UINT32_MAX
                                   ? UINT32_MAX
                                   : (uint32_t)config->in_sync_replicas,
                   .min_replicas = (uint32_t)config->min_in_sync_replicas,
                   .max_behind_ns = ms_to_ns(config->ha_max_behind_ms)},
        .confirmed_visibility = config->consume_visibility == VISIBLE_CONFIRMED,
        .recover = config->recover_from_slave,
        .recover_timeout_ms = config->recover_timeout_ms,
        .transfer_rate = config->ha_transfer_rate,
        .readable = config->slave_read_enable,
        .store = broker->store,
        .arg = broker,
        .on_state = on_ha_state,
        .on_acknowledged = on_acknowledged,
    };
    struct ha *ha = NULL;
    memcpy(options.uuid, broker->store_uuid, sizeof options.uuid);
    host_of(broker->address, host, sizeof host);
    set_tables_ops(broker->set_tables, &options.tables);
    enum tern_code code = ha_create(&broker->env, broker->link, &options, &ha, err);
    if (code != TERN_OK)
        return code;
    atomic_store_explicit(&broker->ha, ha, memory_order_release);
    return ha_start(ha, err);
}

static void count_rates(struct broker *broker, int64_t now_ns)
{
    struct store_status s;
    store_status(broker->store, &s);
    struct rates_counts counts = {(int64_t)s.append_records, (int64_t)s.get_found,
                                  (int64_t)s.get_missed, (int64_t)s.get_messages};
    rates_step(&broker->rates, now_ns, clock_wall_ms(broker->env.clock), &counts);
}

static int64_t housekeeping_step(void *arg, int64_t now_ns)
{
    struct broker *broker = arg;
    int64_t next = now_ns + ms_to_ns(HOUSEKEEPING_MS);
    members_expire(broker->members, now_ns);
    count_rates(broker, now_ns);
    int64_t events_next = events_step(broker->events, now_ns);
    if (events_next < next)
        next = events_next;
    if (now_ns >= broker->next_persist_ns || offsets_has_new(broker->offsets)) {
        struct tern_error err;
        enum tern_code code = offsets_persist(broker->offsets, &err);
        if (code != TERN_OK)
            log_error(broker->env.log, "offsets_not_persisted", "code=%s cause=\"%s\"",
                      tern_code_name(code), error_text(&err, code));
        broker->next_persist_ns = now_ns + ms_to_ns(broker->live.flush_offset_interval_ms);
    }
    return next < now_ns + ms_to_ns(100) ? now_ns + ms_to_ns(100) : next;
}

/* Everything that a handler may touch is there before the first request can come. */
static enum tern_code prepare_lanes(struct broker *broker, struct tern_error *err)
{
    enum tern_code code = registrar_create(broker, &broker->registrar, err);
    if (code != TERN_OK)
        return code;
    if ((code = admin_lane_create(broker, &broker->admin)))
        return error_set(err, code, "starting the admin lane: %s", tern_code_text(code));
    return TERN_OK;
}

static enum tern_code start_registering(struct broker *broker, struct tern_error *err)
{
    enum tern_code code = registrar_start(broker->registrar);
    if (code == TERN_OK)
        code = task_start(broker->env.sched, "broker-house", housekeeping_step, broker,
                          &broker->housekeeper);
    if (code != TERN_OK)
        return error_set(err, code, "starting the broker's tasks: %s", tern_code_text(code));
    int64_t deadline_ns = clock_mono_ns(broker->env.clock) + ms_to_ns(FIRST_REGISTRATION_MS);
    return registrar_publish(broker->registrar, deadline_ns, err);
}

/*
 * A master that has nobody to wait for is open a moment later: ready then means writable, too. What
 * waits longer (recovering) serves reads meanwhile.
 */
static void await_opening(struct broker *broker)
{
    if (broker->config.role == ROLE_SLAVE)
        return;
    int64_t last_ns = clock_mono_ns(broker->env.clock) + ms_to_ns(OPENING_ALONE_MS);
    int64_t now_ns;
    do {
        now_ns = clock_mono_ns(broker->env.clock);
        if (latch_wait(broker->env.sched, &broker->opened, now_ns + ms_to_ns(OPENING_PATIENCE_MS)))
            return;
    } while (now_ns < last_ns && ha_opens_alone(broker->ha));
    log_warn(broker->env.log, "recovering",
             "effect=\"reads are served, sends refused\" see=\"mqadmin haStatus\"");
}

/* Who held queues before a restart is to get them again, though their locks are not known. */
static void await_lock_owners(struct broker *broker)
{
    struct store_positions at;
    store_positions(broker->store, &at);
    if (at.whole > at.min)
        queue_locks_await_claims(broker->locks);
}

enum tern_code broker_start(struct broker *broker, struct tern_error *err)
{
    enum tern_code code;
    latch_init(&broker->opened);
    if ((code = broker_open_store(broker, err)) || (code = open_tables(broker, err)) ||
        (code = prepare_lanes(broker, err)) ||
        (code = settle_address(broker, (unsigned)broker->config.listen_port, err)) ||
        (code = schedule_start(broker->schedule, err)) || (code = start_replication(broker, err)))
        return code;
    await_lock_owners(broker);
    if ((code = start_server(broker, err)) || (code = start_registering(broker, err)))
        return code;
    await_opening(broker);
    log_info(broker->env.log, "broker_started", "name=%s id=%" PRId64 " address=%s ha_address=%s",
             broker->config.broker_name, broker->config.broker_id, broker->address,
             ha_address(broker->ha));
    return TERN_OK;
}

/* ---- stopping ---- */

static void keep_first(enum tern_code *first, struct tern_error *err, enum tern_code code,
                       const struct tern_error *cause)
{
    if (code == TERN_OK || *first != TERN_OK)
        return;
    *first = code;
    if (err)
        *err = *cause;
}

/* Ends everything that runs or waits; what is left is memory. The broker may be half started. */
static void stop_running(struct broker *broker)
{
    int64_t patience_ns = clock_mono_ns(broker->env.clock) + ms_to_ns(DRAIN_MS);

    if (broker->registrar)
        registrar_stop(broker->registrar);
    atomic_store(&broker->stopping, true); /* new requests are refused from here on */
    task_stop(broker->housekeeper);
    broker->housekeeper = NULL;
    tx_stop(broker->tx);
    if (broker->polls)
        long_poll_resume_all(broker->polls);
    if (broker->acks && !ack_wait_drain(broker->acks, patience_ns))
        log_warn(broker->env.log, "sends_not_flushed", "count=%" PRIu32,
                 ack_wait_count(broker->acks));
    if (broker->commits) /* what is here is persisted below; the slaves' word is not waited for */
        ack_wait_fail_all(broker->commits, TERN_SERVICE_NOT_AVAILABLE);
    if (broker->server)
        rpc_server_stop(broker->server);
    tx_persist(broker->tx);
    ha_stop(broker->ha);
    schedule_stop(broker->schedule);
    cold_lane_destroy(broker->cold); /* before the lane that it hands over to */
    broker->cold = NULL;
    admin_lane_destroy(broker->admin);
    broker->admin = NULL;
    if (broker->polls)
        long_poll_resume_all(broker->polls); /* what parked while the server stopped */
    events_destroy(broker->events);
    broker->events = NULL;
}

enum tern_code broker_stop(struct broker *broker, struct tern_error *err)
{
    enum tern_code first = TERN_OK;
    struct tern_error cause;

    stop_running(broker);
    if (broker->store) { /* what is not confirmed is dispatched at the next start anyway */
        store_set_dispatch_limit(broker->store, INT64_MAX);
        keep_first(&first, err, store_close(broker->store, &cause), &cause);
    }
    broker->store = NULL;
    ack_wait_fail_all(broker->acks, TERN_SERVICE_NOT_AVAILABLE);
    keep_first(&first, err, offsets_persist(broker->offsets, &cause), &cause);
    keep_first(&first, err, groups_persist(broker->groups, &cause), &cause);
    keep_first(&first, err, topics_persist(broker->topics, &cause), &cause);
    if (first != TERN_OK)
        log_error(broker->env.log, "stopped_with_error", "code=%s cause=\"%s\"",
                  tern_code_name(first), error_text(err, first));
    return first;
}

void broker_destroy(struct broker *broker)
{
    struct tern_error err;
    if (!broker)
        return;
    if (broker->env.clock)
        stop_running(broker);
    if (broker->store && store_close(broker->store, &err) != TERN_OK)
        log_error(broker->env.log, "store_not_closed", "cause=\"%s\"", err.text);
    if (broker->acks)
        ack_wait_fail_all(broker->acks, TERN_SERVICE_NOT_AVAILABLE);
    if (broker->commits)
        ack_wait_fail_all(broker->commits, TERN_SERVICE_NOT_AVAILABLE);
    schedule_destroy(broker->schedule); /* its puts and cancellations have ended */
    registrar_destroy(broker->registrar);
    if (broker->server)
        rpc_server_destroy(broker->server);
    long_poll_destroy(broker->polls);
    ack_wait_destroy(broker->acks);
    ack_wait_destroy(broker->commits);
    ha_destroy(broker->ha);
    set_tables_destroy(broker->set_tables);
    tx_destroy(broker->tx);
    queue_locks_destroy(broker->locks);
    pull_stats_destroy(broker->pull_stats);
    members_destroy(broker->members);
    subscription_cache_destroy(broker->subscriptions);
    offsets_destroy(broker->offsets);
    groups_destroy(broker->groups);
    topics_destroy(broker->topics);
    for (int i = 0; i < REQUEST_KINDS; i++)
        free(broker->request_stats[i].latency_ns);
    live_config_fini(broker);
    stages_fini(&broker->stages);
    rates_fini(&broker->rates);
    free(broker);
}
