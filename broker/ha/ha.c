/*
 * Ties the parts of replication together and to the broker: one server (haListenPort), one client,
 * one task, and the state that everybody asks for (ha_asked.c).
 *
 *   link threads ──► source (serves our log)     opening (how we start) ◄── nameservers' lists
 *                ──► replica (copies another's)       │ look, take, open
 *                            └──────── task "ha" ─────┘ everything that touches the disk
 *
 * Invariants:
 *   - `state` is OPEN only between a durable epoch and the moment a peer's newer epoch is heard of;
 *     writes are taken in that state alone: the store itself is closed to them otherwise, so that
 *     no send that was let in before it ended comes to stand among the bytes of another log.
 *   - The parts never call each other; events of one become calls of another here, on the ha task
 *     when they may wait (`todo`).
 *
 * Threads: asked from any; `lock` (HA) guards what is not atomic and is never held while calling a
 * part. Failure modes: what a disk refuses is logged and tried again; until then nothing is opened.
 */
#include "broker/ha/ha_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"

enum {
    HA_FRAME_MAX = FRAME_HEADER_MAX + HA_CHUNK_MAX + (64 << 10),
    HA_PEERS_MAX = 256,
    HA_REQUESTS_MAX = 1024,
    HA_IDLE_CLOSE_MS = 60000,
    SILENCE_MS = 1500, /* a parked fetch comes back every second */
};

void ha_wake(void *arg)
{
    struct ha *ha = arg;
    lock_acquire(&ha->task_lock);
    if (ha->task)
        task_wake(ha->task); /* under the lock: it cannot be stopped meanwhile */
    lock_release(&ha->task_lock);
}

/* @locks none */
void ha_set_state(struct ha *ha, int state)
{
    if (atomic_exchange(&ha->state, state) == state)
        return;
    if (state == TERN__WIRE__HA_STATE__HA_SEEKING) {
        lock_acquire(&ha->lock);
        ha->alone_since_ns = clock_mono_ns(ha->env.clock);
        ha->master_spoke = false;
        lock_release(&ha->lock);
    }
    ha->options.on_state(ha->options.arg, ha->options.mode, state);
}

/* ---- who we are ---- */

void ha_fill_self(void *arg, struct ha_member *out)
{
    struct ha *ha = arg;
    struct store_positions at;
    char text[8];

    memset(out, 0, sizeof *out);
    memcpy(out->cluster, ha->cluster, sizeof out->cluster);
    memcpy(out->name, ha->name, sizeof out->name);
    out->id = ha->options.id;
    memcpy(out->uuid, ha->options.uuid, sizeof out->uuid);
    lock_acquire(&ha->lock);
    memcpy(out->address, ha->address, sizeof out->address);
    lock_release(&ha->lock);
    memcpy(out->ha_address, ha->ha_address, sizeof out->ha_address);
    out->life = ha->life;
    out->state = atomic_load(&ha->state);
    out->epoch_count = epochs_copy(ha->epochs, out->epochs);
    out->highest_epoch = epochs_highest(ha->epochs);
    store_positions(ha->options.store, &at);
    out->log_min = at.min;
    out->log_end = at.whole;
    out->flushed = at.flushed < at.whole ? at.flushed : at.whole;
    out->dispatched = at.dispatched;
    out->readable = ha_readable(ha, text, sizeof text);
    out->segment_bytes = ha->options.segment_bytes;
}

/* ---- events of the parts ---- */

/* @thread link's */
static void on_refused(void *arg, const struct ha_member *slave)
{
    struct ha *ha = arg;
    if (!ha_is_master(ha))
        return;
    struct ha_member *copy = malloc(sizeof *copy);
    if (!copy)
        return; /* it will refuse again */
    *copy = *slave;
    lock_acquire(&ha->lock);
    struct ha_member *old = ha->refuser;
    ha->refuser = copy;
    ha->todo.refused = true;
    lock_release(&ha->lock);
    free(old);
    ha_wake(ha);
}

/* @thread link's */
static void on_heard(void *arg, const struct ha_member *member, bool has_cut, int64_t cut_at)
{
    struct ha *ha = arg;
    epochs_seen(ha->epochs, member->highest_epoch);
    if (has_cut)
        log_warn(ha->env.log, "slave_has_cut",
                 "id=%" PRId64 " address=%s at=%" PRId64
                 " effect=\"its bytes behind are saved on its side under diverged/\"",
                 member->id, member->ha_address, cut_at);
    if (ha_is_master(ha)) {
        lock_acquire(&ha->lock);
        ha->todo.slave_cut |= has_cut;
        lock_release(&ha->lock);
        opening_heard(ha->opening, member);
        ha_wake(ha);
    } else if (member->id == 0) { /* the master is back, and soon grants locks itself */
        lock_acquire(&ha->lock);
        ha->alone_since_ns = clock_mono_ns(ha->env.clock);
        ha->master_spoke = true;
        lock_release(&ha->lock);
        replica_master_takes(ha->replica);
        ha->options.on_acknowledged(ha->options.arg);
    }
}

static void on_replica_event(void *arg, enum replica_event event, const struct ha_member *source)
{
    struct ha *ha = arg;
    (void)source;
    if (ha_is_master(ha)) {
        if (event == REPLICA_SETTLED)
            return;
        lock_acquire(&ha->lock);
        ha->todo.taken = true;
        ha->todo.taken_code = event == REPLICA_CAUGHT_UP ? TERN_OK
                              : event == REPLICA_LOST    ? TERN_UNREACHABLE
                                                         : TERN_STATE;
        lock_release(&ha->lock);
        ha_wake(ha);
        return;
    }
    if (event == REPLICA_SETTLED)
        ha_set_state(ha, TERN__WIRE__HA_STATE__HA_FOLLOWING);
    else if (event == REPLICA_LOST)
        ha_set_state(ha, TERN__WIRE__HA_STATE__HA_SEEKING);
    else if (event == REPLICA_DETACHED)
        ha_set_state(ha, TERN__WIRE__HA_STATE__HA_DETACHED);
}

/* What the parts tell of acknowledgements: the broker asks for all of it. */
static void on_confirmed(void *arg, int64_t confirmed, bool alone)
{
    struct ha *ha = arg;
    (void)confirmed;
    (void)alone;
    ha->options.on_acknowledged(ha->options.arg);
}

static void on_progress_seen(void *arg, uint64_t change)
{
    struct ha *ha = arg;
    (void)change;
    ha->options.on_acknowledged(ha->options.arg);
}

/* ---- the task ---- */

static int64_t ha_step(void *arg, int64_t now_ns)
{
    struct ha *ha = arg;
    int64_t next = SCHED_NEVER;

    lock_acquire(&ha->lock);
    struct todo todo = ha->todo;
    ha->todo = (struct todo){0};
    lock_release(&ha->lock);
    if (todo.refused)
        ha_stop_writing(ha, now_ns);
    if (todo.slave_cut)
        ha_forget_cut_progress(ha);
    if (todo.taken && ha->opening)
        opening_taken(ha->opening, todo.taken_code);
    int64_t at = replica_step(ha->replica, now_ns);
    next = at < next ? at : next;
    if (ha->opening) {
        at = opening_step(ha->opening, now_ns);
        next = at < next ? at : next;
    }
    at = source_step(ha->source, now_ns);
    next = at < next ? at : next;
    at = ha_tick(ha, now_ns);
    return at < next ? at : next;
}

/* ---- the server ---- */

static void on_request(void *arg, struct rpc_request *request)
{
    struct ha *ha = arg;
    switch (request->header->body_case) {
    case TERN__WIRE__REQUEST__BODY_HA_HANDSHAKE:
        source_handshake(ha->source, request);
        break;
    case TERN__WIRE__REQUEST__BODY_HA_FETCH:
        source_fetch(ha->source, request);
        break;
    case TERN__WIRE__REQUEST__BODY_HA_REPORT:
        source_report(ha->source, request);
        break;
    default:
        rpc_reply_error(request, TERN_NOT_SUPPORTED,
                        "request %d is not served on the replication port %s of broker %s",
                        (int)request->header->body_case, ha->ha_address, ha->name);
    }
}

static void on_peer_gone(void *arg, uint64_t peer_id)
{
    struct ha *ha = arg;
    source_peer_gone(ha->source, peer_id);
}

static void on_pressure(void *arg, uint64_t peer_id)
{
    struct ha *ha = arg;
    (void)peer_id;
    source_relieve(ha->source);
}

static void format_address(char *out, size_t size, const char *host, unsigned port)
{
    bool bare_v6 = strchr(host, ':') && host[0] != '[';
    snprintf(out, size, bare_v6 ? "[%s]:%u" : "%s:%u", host, port);
}

static enum tern_code start_server(struct ha *ha, struct tern_error *err)
{
    char listen[HA_ADDRESS_BYTES + 8];
    format_address(listen, sizeof listen, ha->listen_addr, (unsigned)ha->options.listen_port);
    /* Requests may come before rpc_server_create() returns. */
    format_address(ha->ha_address, sizeof ha->ha_address, ha->advertise_host,
                   (unsigned)ha->options.listen_port);
    struct rpc_server_options options = {
        .listen = {.address = listen,
                   .max_message_bytes = HA_FRAME_MAX,
                   .max_peers = HA_PEERS_MAX,
                   .max_requests = HA_REQUESTS_MAX,
                   .max_requests_per_peer = 16,
                   .reply_timeout_ms = 10000,
                   .idle_close_ms = HA_IDLE_CLOSE_MS},
        .arena_budget_bytes = 4 * HA_FRAME_MAX,
        .arg = ha,
        .on_request = on_request,
        .on_peer_gone = on_peer_gone,
        .on_pressure = on_pressure,
    };
    enum tern_code code = rpc_server_create(&ha->env, ha->link, &options, &ha->server, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "haListenPort");
    if (!ha->options.listen_port)
        format_address(ha->ha_address, sizeof ha->ha_address, ha->advertise_host,
                       rpc_server_port(ha->server));
    return TERN_OK;
}

/* ---- life ---- */

static void copy_options(struct ha *ha, const struct ha_options *options)
{
    ha->options = *options;
    snprintf(ha->cluster, sizeof ha->cluster, "%s", options->cluster);
    snprintf(ha->name, sizeof ha->name, "%s", options->name);
    snprintf(ha->root, sizeof ha->root, "%s", options->root_dir);
    snprintf(ha->address, sizeof ha->address, "%s", options->address);
    snprintf(ha->listen_addr, sizeof ha->listen_addr, "%s", options->listen_addr);
    snprintf(ha->advertise_host, sizeof ha->advertise_host, "%s", options->advertise_host);
    snprintf(ha->master_address, sizeof ha->master_address, "%s", options->master_address);
    ha->options.cluster = ha->cluster;
    ha->options.name = ha->name;
    ha->options.root_dir = ha->root;
    ha->options.address = NULL; /* ha->address, which may change */
    ha->options.listen_addr = ha->listen_addr;
    ha->options.advertise_host = ha->advertise_host;
    ha->options.master_address = ha->master_address;
}

static enum tern_code create_parts(struct ha *ha, struct tern_error *err)
{
    struct store_positions at;
    struct ha_part_options part = {
        .env = &ha->env, .ha = &ha->options, .arg = ha, .self = ha_fill_self, .wake = ha_wake};
    struct rpc_client_options client = {.max_message_bytes = HA_FRAME_MAX,
                                        .connect_wait_ms = 1000,
                                        .reconnect_min_ms = 50,
                                        .reconnect_max_ms = 500,
                                        .silence_ms = SILENCE_MS,
                                        .client_id = ""};

    store_positions(ha->options.store, &at);
    enum tern_code code = epochs_open(&ha->env, ha->root, at.whole, &ha->epochs, err);
    if (code != TERN_OK)
        return code;
    part.epochs = ha->epochs;
    code = rpc_client_create(&ha->env, ha->link, &client, &ha->client);
    struct source_options source = {.part = part,
                                    .on_heard = on_heard,
                                    .on_refused = on_refused,
                                    .on_confirmed = on_confirmed,
                                    .on_progress_seen = on_progress_seen};
    struct replica_options replica = {.part = part,
                                      .client = ha->client,
                                      .on_event = on_replica_event,
                                      .on_confirmed = on_confirmed,
                                      .on_progress_seen = on_progress_seen};
    struct opening_options opening = {
        .part = part, .look = ha_look_at, .take = ha_take_from, .open = ha_open_writes};
    if (code == TERN_OK)
        code = source_create(&source, &ha->source);
    if (code == TERN_OK)
        code = replica_create(&replica, &ha->replica);
    if (code == TERN_OK && ha_is_master(ha))
        code = opening_create(&opening, &ha->opening);
    return code == TERN_OK
               ? TERN_OK
               : error_set(err, code, "making replication's parts: %s", tern_code_text(code));
}

enum tern_code ha_create(const struct env *env, struct link *link, const struct ha_options *options,
                         struct ha **out, struct tern_error *err)
{
    *out = NULL;
    struct ha *ha = calloc(1, sizeof *ha);
    if (!ha)
        return error_set(err, TERN_NO_MEMORY, "no memory for replication");
    ha->env = *env;
    ha->link = link;
    copy_options(ha, options);
    ha->life = rng_next(env->rng);
    lock_init(&ha->lock, LOCK_HA);
    lock_init(&ha->task_lock, LOCK_HA_TASK);
    atomic_init(&ha->state, ha_is_master(ha) ? TERN__WIRE__HA_STATE__HA_RECOVERING
                                             : TERN__WIRE__HA_STATE__HA_SEEKING);
    ha->alone_since_ns = clock_mono_ns(env->clock);
    ha->locks_from_ns = INT64_MAX;
    enum tern_code code = create_parts(ha, err);
    if (code != TERN_OK) {
        ha_destroy(ha);
        return code;
    }
    store_set_appends(ha->options.store, false); /* until a master opens */
    *out = ha;
    return TERN_OK;
}

enum tern_code ha_start(struct ha *ha, struct tern_error *err)
{
    enum tern_code code = start_server(ha, err);
    if (code == TERN_OK && ha_is_master(ha))
        code = opening_begin(ha->opening, clock_mono_ns(ha->env.clock), err);
    if (code != TERN_OK)
        return code;
    if (!ha_is_master(ha))
        replica_follow(ha->replica, ha->master_address);
    struct task *task;
    code = task_start(ha->env.sched, "ha", ha_step, ha, &task);
    if (code != TERN_OK)
        return error_set(err, code, "starting replication: %s", tern_code_text(code));
    lock_acquire(&ha->task_lock);
    ha->task = task;
    lock_release(&ha->task_lock);
    ha_wake(ha); /* whoever woke it before it was there */
    return TERN_OK;
}

void ha_stop(struct ha *ha)
{
    if (!ha || atomic_exchange(&ha->stopping, true))
        return;
    lock_acquire(&ha->task_lock);
    struct task *task = ha->task;
    ha->task = NULL;
    lock_release(&ha->task_lock);
    task_stop(task);
    if (ha->source)
        source_stop(ha->source);
    if (ha->server)
        rpc_server_stop(ha->server);
    if (ha->replica)
        replica_stop(ha->replica);
    if (ha->client)
        rpc_client_destroy(ha->client); /* ends the looks */
    ha->client = NULL;
}

void ha_destroy(struct ha *ha)
{
    if (!ha)
        return;
    ha_stop(ha);
    ENSURE(atomic_load(&ha->looks) == 0);
    if (ha->server)
        rpc_server_destroy(ha->server);
    source_destroy(ha->source);
    replica_destroy(ha->replica);
    opening_destroy(ha->opening);
    epochs_close(ha->epochs);
    free(ha->refuser);
    lock_fini(&ha->task_lock);
    lock_fini(&ha->lock);
    free(ha);
}

const char *ha_address(const struct ha *ha)
{
    return ha->ha_address;
}

/* ---- told ---- */

void ha_set_address(struct ha *ha, const char *address)
{
    lock_acquire(&ha->lock);
    snprintf(ha->address, sizeof ha->address, "%s", address);
    lock_release(&ha->lock);
}

void ha_on_end(struct ha *ha, int64_t end)
{
    source_on_end(ha->source, end);
}

void ha_on_flushed(struct ha *ha, int64_t flushed)
{
    source_on_flushed(ha->source, flushed);
    replica_on_flushed(ha->replica, flushed);
}

void ha_on_change(struct ha *ha)
{
    source_on_change(ha->source);
    replica_on_change(ha->replica);
}

void ha_on_members(struct ha *ha, const struct ha_seen_member *members, size_t count,
                   uint32_t nameservers_answered)
{
    const char *master = NULL;
    for (size_t i = 0; i < count; i++)
        if (members[i].id == 0 && !master)
            master = members[i].ha_address;
    lock_acquire(&ha->lock);
    ha->master_listed = master != NULL;
    ha->nameservers_answered = nameservers_answered;
    lock_release(&ha->lock);
    if (ha->opening)
        opening_members(ha->opening, members, count, nameservers_answered);
    else if (master && master[0] && ha_state(ha) != TERN__WIRE__HA_STATE__HA_FOLLOWING)
        replica_follow(ha->replica, master); /* a copy under way knows better than a list */
    ha_wake(ha);
}
