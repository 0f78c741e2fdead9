/*
 * Assembly of the nameserver: what is made, in which order it starts and stops, its two tasks.
 *
 *   transport threads   requests, deaths of connections      ─► table (lock), KV queue (kv_lock)
 *   task ns-expiry      every scanInterval: silent brokers    ─► table (lock)
 *   task ns-kv          when woken: writes waiting KV changes ─► kvConfig.json
 *
 * Start: KV file, KV task, server, expiry task: a request finds everything it may touch. Stop is
 * the reverse, and answers what still waits before the server is destroyed.
 *
 * Failure modes: start fails as a whole and leaves nothing running.
 */
#include "namesrv/namesrv_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/program.h"
#include "base/sched.h"

enum tern_code namesrv_create(const struct env *env, struct link *link,
                              const struct namesrv_config *config, struct namesrv **out,
                              struct tern_error *err)
{
    *out = NULL;
    struct namesrv *ns = calloc(1, sizeof *ns);
    if (!ns)
        return error_set(err, TERN_NO_MEMORY, "nameserver");
    ns->env = env;
    ns->link = link;
    ns->config = *config;
    enum tern_code code = kv_config_create(env, config->kv_config_path, &ns->kv);
    if (code != TERN_OK) {
        free(ns);
        return error_set(err, code, "kvConfigPath");
    }
    lock_init(&ns->lock, LOCK_NAMESRV);
    lock_init(&ns->kv_lock, LOCK_NAMESRV);
    route_table_init(&ns->table, ms_to_ns(config->broker_expire_ms));
    *out = ns;
    return TERN_OK;
}

/* rpc_server's callback. @thread link's */
static void on_peer_gone(void *arg, uint64_t peer_id)
{
    struct namesrv *ns = arg;
    struct route_removed removed;
    bool found = true;
    while (found) {
        lock_acquire(&ns->lock);
        found = route_peer_gone(&ns->table, peer_id, &removed);
        lock_release(&ns->lock);
        if (!found)
            break;
        counter_add(&ns->counters.brokers_disconnected, 1);
        namesrv_log_removed(ns, &removed, "connection_closed");
    }
}

/* Drops silent brokers, and their connections: what is at the other end does not speak. */
static int64_t expiry_step(void *arg, int64_t now_ns)
{
    struct namesrv *ns = arg;
    struct route_removed removed;
    bool found = true;
    while (found) {
        lock_acquire(&ns->lock);
        found = route_expire(&ns->table, now_ns, &removed);
        lock_release(&ns->lock);
        if (!found)
            break;
        counter_add(&ns->counters.brokers_expired, 1);
        namesrv_log_removed(ns, &removed, "silent");
        if (removed.peer_free)
            rpc_server_close_peer(ns->server, removed.peer_id);
    }
    return now_ns + ms_to_ns(ns->config.scan_interval_ms);
}

static enum tern_code start_server(struct namesrv *ns, struct tern_error *err)
{
    char address[PROGRAM_ADDRESS_BYTES];
    enum tern_code code =
        program_join_address(address, ns->config.listen_addr, ns->config.listen_port, err);
    if (code != TERN_OK)
        return code;
    struct rpc_server_options options = {
        .listen = {.address = address,
                   .max_message_bytes = frame_max_bytes(0),
                   .max_peers = (uint32_t)ns->config.max_connections,
                   .max_requests = NAMESRV_REQUESTS_MAX,
                   .max_requests_per_peer = NAMESRV_REQUESTS_PER_PEER_MAX,
                   .reply_timeout_ms = NAMESRV_REPLY_TIMEOUT_MS,
                   .idle_close_ms = NAMESRV_IDLE_CLOSE_MS},
        .arena_budget_bytes = NAMESRV_ARENA_BYTES,
        .arg = ns,
        .on_request = namesrv_on_request,
        .on_peer_gone = on_peer_gone};
    return rpc_server_create(ns->env, ns->link, &options, &ns->server, err);
}

enum tern_code namesrv_start(struct namesrv *ns, struct tern_error *err)
{
    enum tern_code code = kv_config_load(ns->kv, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "kvConfigPath");
    code = task_start(ns->env->sched, "ns-kv", kv_queue_step, ns, &ns->kv_task);
    if (code != TERN_OK)
        return error_set(err, code, "thread of the KV configuration");
    code = start_server(ns, err);
    if (code == TERN_OK) {
        code = task_start(ns->env->sched, "ns-expiry", expiry_step, ns, &ns->expiry_task);
        if (code != TERN_OK)
            error_set(err, code, "thread that drops silent brokers");
    }
    if (code != TERN_OK) {
        namesrv_stop(ns);
        return code;
    }
    log_info(ns->env->log, "namesrv_started", "address=%s port=%u kv_path=%s kv_entries=%zu",
             ns->config.listen_addr, (unsigned)namesrv_port(ns), ns->config.kv_config_path,
             kv_config_count(ns->kv));
    return TERN_OK;
}

uint16_t namesrv_port(const struct namesrv *ns)
{
    return rpc_server_port(ns->server);
}

void namesrv_stop(struct namesrv *ns)
{
    task_stop(ns->expiry_task);
    ns->expiry_task = NULL;
    if (ns->server)
        rpc_server_stop(ns->server);
    task_stop(ns->kv_task);
    ns->kv_task = NULL;
    kv_queue_close(ns);
    if (ns->server) {
        log_info(ns->env->log, "namesrv_stopped", "registrations=%llu routes=%llu",
                 (unsigned long long)counter_get(&ns->counters.registrations),
                 (unsigned long long)counter_get(&ns->counters.routes));
        rpc_server_destroy(ns->server);
    }
    ns->server = NULL;
}

void namesrv_destroy(struct namesrv *ns)
{
    if (!ns)
        return;
    ENSURE(!ns->server && !ns->kv_task && !ns->expiry_task);
    route_table_fini(&ns->table);
    kv_config_destroy(ns->kv);
    lock_fini(&ns->kv_lock);
    lock_fini(&ns->lock);
    free(ns);
}

void namesrv_stats(struct namesrv *ns, struct namesrv_stats *out)
{
    const struct namesrv_counters *c = &ns->counters;
    *out = (struct namesrv_stats){
        .registrations = counter_get(&c->registrations),
        .registrations_refused = counter_get(&c->registrations_refused),
        .brokers_expired = counter_get(&c->brokers_expired),
        .brokers_disconnected = counter_get(&c->brokers_disconnected),
        .brokers_unregistered = counter_get(&c->brokers_unregistered),
        .routes = counter_get(&c->routes),
        .routes_missing = counter_get(&c->routes_missing),
        .kv_changes = counter_get(&c->kv_changes),
        .kv_changes_failed = counter_get(&c->kv_changes_failed),
        .requests_unknown = counter_get(&c->requests_unknown),
        .kv_entries = kv_config_count(ns->kv),
    };
    lock_acquire(&ns->lock);
    out->brokers = ns->table.member_count;
    out->sets = ns->table.set_count;
    out->topics = route_topic_count(&ns->table);
    lock_release(&ns->lock);
}
