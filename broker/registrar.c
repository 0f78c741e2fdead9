/*
 * One task does all registrations, one round after the other; registrar_publish() asks for a round
 * that begins after it and waits for its end. In a round the calls to all nameservers run in
 * parallel, each with its own deadline. A nameserver that has our topic table already (by version)
 * gets a registration without it; it asks when it does not.
 *
 * Stopping does not wait for nameservers that hang: a round under way is abandoned, its callbacks
 * find the registrar until the client is destroyed, and the goodbyes have GOODBYE_MS together.
 */
#include "broker/registrar.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/sched.h"
#include "broker/broker_internal.h"
#include "broker/ha/ha.h"

enum { GOODBYE_MS = 500, SOON_MS = 1000, MEMBERS_SEEN_MAX = 16 };

/* Calls to several nameservers, and one who waits until the last is answered or it is abandoned. */
struct flight {
    _Atomic size_t pending;
    _Atomic bool over; /* the latch was or is being set; true while nobody waits */
    struct latch done;
};

struct nameserver {
    struct registrar *registrar;
    struct rpc_peer *peer; /* NULL once stopped */
    bool known; /* it has topics of known_version; touched by a round or its callbacks only */
    uint64_t known_version;
    uint64_t sent_version;
    bool again;            /* it asked for the topics */
    enum tern_code result; /* of the last registration */
    char text[256];
    struct ha_seen_member members[MEMBERS_SEEN_MAX]; /* of our name, as it said last */
    size_t member_count;
};

/* Somebody in registrar_publish(); lives on its stack while it is in the list. */
struct waiter {
    uint64_t round; /* the first that counts for it */
    enum tern_code code;
    struct tern_error err;
    struct latch ended;
    struct waiter *next;
};

struct registrar {
    struct broker *broker;
    struct task *task; /* under lock; NULL: does not run */
    _Atomic bool stopping;
    struct lock lock;       /* BROKER_REGISTRAR */
    uint64_t rounds_begun;  /* under lock */
    struct waiter *waiters; /* under lock */
    bool away;              /* a detached slave that has said goodbye; the task's */
    size_t first;           /* whose word counts first in this round; the task's */
    size_t count;
    struct nameserver servers[NAMESERVERS_MAX];
    struct flight round, goodbye;
};

enum tern_code registrar_create(struct broker *broker, struct registrar **out,
                                struct tern_error *err)
{
    struct registrar *registrar = calloc(1, sizeof *registrar);
    if (!registrar)
        return error_set(err, TERN_NO_MEMORY, "registrar");
    registrar->broker = broker;
    atomic_init(&registrar->round.over, true);
    lock_init(&registrar->lock, LOCK_BROKER_REGISTRAR);

    char list[CONFIG_STRING_BYTES];
    snprintf(list, sizeof list, "%s", broker->config.namesrv_addr);
    char *rest = list;
    enum tern_code code = TERN_OK;
    for (char *address; code == TERN_OK && (address = strsep(&rest, ";"));) {
        if (!*address)
            continue;
        if (registrar->count == NAMESERVERS_MAX) {
            code = error_set(err, TERN_CONFIG, "namesrvAddr: more than %d nameservers",
                             NAMESERVERS_MAX);
            break;
        }
        struct nameserver *server = &registrar->servers[registrar->count];
        server->registrar = registrar;
        code = rpc_peer_get(broker->client, address, &server->peer, err);
        if (code == TERN_OK)
            registrar->count++;
        else
            error_prefix(err, code, "namesrvAddr: %s", address);
    }
    if (code != TERN_OK) {
        registrar_destroy(registrar);
        return code;
    }
    *out = registrar;
    return TERN_OK;
}

void registrar_destroy(struct registrar *registrar)
{
    if (!registrar)
        return;
    task_stop(registrar->task);
    for (size_t i = 0; i < registrar->count; i++)
        if (registrar->servers[i].peer)
            rpc_peer_unref(registrar->servers[i].peer);
    lock_fini(&registrar->lock);
    free(registrar);
}

/* ---- calls in parallel ---- */

static void flight_begin(struct flight *flight, size_t calls)
{
    latch_init(&flight->done);
    atomic_store(&flight->pending, calls);
    atomic_store(&flight->over, false);
}

/* Lets the waiter go, whatever is still out. */
static void flight_end(struct registrar *registrar, struct flight *flight)
{
    if (!atomic_exchange(&flight->over, true))
        latch_set(registrar->broker->env.sched, &flight->done);
}

static void flight_landed(struct registrar *registrar, struct flight *flight)
{
    if (atomic_fetch_sub(&flight->pending, 1) == 1)
        flight_end(registrar, flight);
}

/* ---- one registration ---- */

/* What does not fit the grammar, or is too much, is left out. */
static void take_members(struct nameserver *server, const Tern__Wire__RegisterBrokerResponse *body)
{
    size_t count = 0;
    for (size_t i = 0; i < body->n_members && count < MEMBERS_SEEN_MAX; i++) {
        const Tern__Wire__SetMember *from = body->members[i];
        struct ha_seen_member *to = &server->members[count];
        if (from->store_uuid.len != sizeof to->uuid || from->address.len >= sizeof to->address ||
            from->ha_address.len >= sizeof to->ha_address ||
            memchr(from->address.data, 0, from->address.len) ||
            memchr(from->ha_address.data, 0, from->ha_address.len))
            continue;
        memset(to, 0, sizeof *to);
        to->id = from->broker_id;
        memcpy(to->address, from->address.data, from->address.len);
        memcpy(to->ha_address, from->ha_address.data, from->ha_address.len);
        memcpy(to->uuid, from->store_uuid.data, sizeof to->uuid);
        to->readable = from->readable;
        count++;
    }
    server->member_count = count;
}

/* @thread link's */
static void on_registered(struct rpc_call *call, void *arg)
{
    struct nameserver *server = arg;
    server->result = rpc_call_result(call);
    snprintf(server->text, sizeof server->text, "%s", error_text(&call->error, server->result));
    server->member_count = 0;
    if (server->result == TERN_OK &&
        call->response->body_case == TERN__WIRE__RESPONSE__BODY_REGISTER_BROKER)
        take_members(server, call->response->register_broker);
    if (server->result == TERN_OK &&
        call->response->body_case == TERN__WIRE__RESPONSE__BODY_REGISTER_BROKER &&
        call->response->register_broker->need_topics) {
        server->again = true;
        server->known = false;
    } else if (server->result == TERN_OK) {
        server->known = true;
        server->known_version = server->sent_version;
    } else {
        server->known = false;
    }
    rpc_call_unref(call);
    flight_landed(server->registrar, &server->registrar->round);
}

static void fill_topics(Tern__Wire__TopicConfig *wire, const struct topic_config *topic,
                        int64_t broker_perm)
{
    tern__wire__topic_config__init(wire);
    wire->name = frame_bytes(topic->name, topic->name_len);
    wire->read_queues = topic->read_queues;
    wire->write_queues = topic->write_queues;
    wire->perm = topic->perm & (int32_t)(broker_perm | PERM_INHERIT);
    wire->sys_flag = topic->sys_flag;
    wire->order = topic->order;
}

struct topic_table {
    Tern__Wire__TopicConfig *topics;
    Tern__Wire__TopicConfig **pointers;
    struct topic_config *configs;
    size_t count;
    uint64_t version;
};

static void topic_table_free(struct topic_table *table)
{
    free(table->topics);
    free(table->pointers);
    free(table->configs);
}

static enum tern_code topic_table_fill(struct broker *broker, struct topic_table *table)
{
    memset(table, 0, sizeof *table);
    table->configs = topics_snapshot(broker->topics, &table->count, &table->version);
    size_t n = table->count ? table->count : 1;
    table->topics = calloc(n, sizeof *table->topics);
    table->pointers = calloc(n, sizeof *table->pointers);
    if (!table->configs || !table->topics || !table->pointers)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < table->count; i++) {
        fill_topics(&table->topics[i], &table->configs[i], broker->live.broker_permission);
        table->pointers[i] = &table->topics[i];
    }
    return TERN_OK;
}

static void call_one(struct nameserver *server, const struct topic_table *table, int64_t timeout_ms)
{
    struct registrar *registrar = server->registrar;
    struct broker *broker = registrar->broker;
    Tern__Wire__RegisterBrokerRequest body = TERN__WIRE__REGISTER_BROKER_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    char unreadable[256];

    body.cluster_name =
        frame_bytes(broker->config.cluster_name, strlen(broker->config.cluster_name));
    body.broker_name = frame_bytes(broker->config.broker_name, strlen(broker->config.broker_name));
    body.broker_id = broker->config.broker_id;
    body.address = frame_bytes(broker->address, strlen(broker->address));
    body.store_uuid = (ProtobufCBinaryData){sizeof broker->store_uuid, broker->store_uuid};
    body.topics_version = table->version;
    body.ha_address = frame_bytes(ha_address(broker->ha), strlen(ha_address(broker->ha)));
    body.readable = ha_readable(broker->ha, unreadable, sizeof unreadable);
    body.store_host_v6 = broker->store_host.v6;
    if (!server->known || server->known_version != table->version) {
        body.has_topics = true;
        body.topics = table->pointers;
        body.n_topics = table->count;
    }
    server->sent_version = table->version;
    server->again = false;
    request.body_case = TERN__WIRE__REQUEST__BODY_REGISTER_BROKER;
    request.register_broker = &body;
    server->result = rpc_call_create(server->peer, 0, &call);
    if (server->result != TERN_OK) {
        snprintf(server->text, sizeof server->text, "%s", tern_code_text(server->result));
        flight_landed(registrar, &registrar->round);
        return;
    }
    rpc_call_start(call, &request, 0, timeout_ms, on_registered, server);
}

/*
 * Tells all (or only those that asked again) and waits. false: abandoned, results are not to be
 * touched.
 * @thread broker-register
 */
static bool tell(struct registrar *registrar, const struct topic_table *table, int64_t timeout_ms,
                 bool only_again)
{
    struct nameserver *chosen[NAMESERVERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < registrar->count; i++)
        if (!only_again || registrar->servers[i].again)
            chosen[count++] = &registrar->servers[i];
    flight_begin(&registrar->round, count);
    /* After the beginning: whoever sets `stopping` then ends the flight, here or at its latch. */
    if (!count || atomic_load(&registrar->stopping))
        return count == 0;
    for (size_t i = 0; i < count; i++)
        call_one(chosen[i], table, timeout_ms);
    /* Every call ends by its own deadline, so this wait does too. */
    ENSURE(latch_wait(registrar->broker->env.sched, &registrar->round.done, SCHED_NEVER));
    return !atomic_load(&registrar->stopping);
}

static enum tern_code report(struct registrar *registrar, struct tern_error *err)
{
    enum tern_code worst = TERN_OK;
    for (size_t i = 0; i < registrar->count; i++) {
        const struct nameserver *server = &registrar->servers[i];
        if (server->result == TERN_OK)
            continue;
        log_warn(registrar->broker->env.log, "register_failed", "namesrv=%s code=%s cause=\"%s\"",
                 rpc_peer_address(server->peer), tern_code_name(server->result), server->text);
        if (server->result == TERN_NAME_CONFLICT)
            worst = error_set(err, TERN_NAME_CONFLICT, "nameserver %s: %s",
                              rpc_peer_address(server->peer), server->text);
    }
    return worst;
}

/*
 * Everybody that any nameserver named, each (id, store) once. Where they name different addresses,
 * one that a member has left stands in some list for a while: each round another nameserver is
 * believed first, so that whoever looks for that member tries them all. @thread broker-register
 */
static void tell_replication(struct registrar *registrar)
{
    struct ha_seen_member all[NAMESERVERS_MAX * MEMBERS_SEEN_MAX];
    size_t count = 0;
    uint32_t answered = 0;
    size_t first = registrar->first++;
    for (size_t i = 0; i < registrar->count; i++) {
        const struct nameserver *server = &registrar->servers[(first + i) % registrar->count];
        answered += server->result == TERN_OK;
        for (size_t j = 0; j < server->member_count; j++) {
            size_t k = 0;
            while (k < count && (all[k].id != server->members[j].id ||
                                 memcmp(all[k].uuid, server->members[j].uuid, sizeof all[k].uuid)))
                k++;
            if (k == count)
                all[count++] = server->members[j];
        }
    }
    ha_on_members(registrar->broker->ha, all, count, answered);
}

/* One round. @thread broker-register */
static enum tern_code register_all(struct registrar *registrar, int64_t timeout_ms,
                                   struct tern_error *err)
{
    struct topic_table table;
    enum tern_code code = topic_table_fill(registrar->broker, &table);
    if (code == TERN_OK && tell(registrar, &table, timeout_ms, false) &&
        tell(registrar, &table, timeout_ms, true)) {
        tell_replication(registrar);
        code = report(registrar, err);
    }
    topic_table_free(&table);
    return code;
}

/* ---- leaving ---- */

/* @thread link's */
static void on_goodbye(struct rpc_call *call, void *arg)
{
    struct nameserver *server = arg;
    enum tern_code code = rpc_call_result(call);
    if (code != TERN_OK)
        log_warn(server->registrar->broker->env.log, "unregister_failed", "namesrv=%s cause=\"%s\"",
                 rpc_peer_address(server->peer), error_text(&call->error, code));
    rpc_call_unref(call);
    flight_landed(server->registrar, &server->registrar->goodbye);
}

static void say_goodbye(struct nameserver *server)
{
    struct broker *broker = server->registrar->broker;
    Tern__Wire__UnregisterBrokerRequest body = TERN__WIRE__UNREGISTER_BROKER_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;

    body.cluster_name =
        frame_bytes(broker->config.cluster_name, strlen(broker->config.cluster_name));
    body.broker_name = frame_bytes(broker->config.broker_name, strlen(broker->config.broker_name));
    body.broker_id = broker->config.broker_id;
    body.address = frame_bytes(broker->address, strlen(broker->address));
    request.body_case = TERN__WIRE__REQUEST__BODY_UNREGISTER_BROKER;
    request.unregister_broker = &body;
    if (rpc_call_create(server->peer, 0, &call) != TERN_OK)
        flight_landed(server->registrar, &server->registrar->goodbye);
    else
        rpc_call_start(call, &request, 0, GOODBYE_MS, on_goodbye, server);
}

/* Tells every nameserver that is up that we are gone, and waits a little. @thread the task, or when
 * it is stopped */
static void say_goodbyes(struct registrar *registrar)
{
    struct nameserver *up[NAMESERVERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < registrar->count; i++)
        if (rpc_peer_up(registrar->servers[i].peer))
            up[count++] = &registrar->servers[i];
    flight_begin(&registrar->goodbye, count);
    for (size_t i = 0; i < count; i++)
        say_goodbye(up[i]);
    if (count)
        ENSURE(latch_wait(registrar->broker->env.sched, &registrar->goodbye.done, SCHED_NEVER));
}

/* ---- rounds ---- */

static void end_round(struct registrar *registrar, uint64_t round, enum tern_code code,
                      const struct tern_error *err)
{
    lock_acquire(&registrar->lock);
    for (struct waiter **at = &registrar->waiters; *at;) {
        struct waiter *waiter = *at;
        if (waiter->round > round) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        waiter->code = code;
        waiter->err = *err;
        latch_set(registrar->broker->env.sched, &waiter->ended); /* waiter may be gone after this */
    }
    lock_release(&registrar->lock);
}

static bool anybody_waits(struct registrar *registrar)
{
    lock_acquire(&registrar->lock);
    bool waits = registrar->waiters != NULL;
    lock_release(&registrar->lock);
    return waits;
}

static int64_t register_step(void *arg, int64_t now_ns)
{
    struct registrar *registrar = arg;
    const struct broker_config *config = &registrar->broker->config;
    struct tern_error err = {.text = ""};
    bool failed = false;
    (void)now_ns;

    if (atomic_load(&registrar->stopping))
        return SCHED_NEVER;
    lock_acquire(&registrar->lock);
    uint64_t round = ++registrar->rounds_begun;
    lock_release(&registrar->lock);
    enum tern_code code = TERN_OK;
    bool detached = ha_state(registrar->broker->ha) == TERN__WIRE__HA_STATE__HA_DETACHED;
    if (!detached)
        code = register_all(registrar, config->register_timeout_ms, &err);
    else if (!registrar->away)
        say_goodbyes(registrar);
    registrar->away = detached;
    if (code == TERN_NAME_CONFLICT)
        log_error(registrar->broker->env.log, "name_conflict",
                  "broker=%s id=%" PRId64 " cause=\"%s\"", config->broker_name, config->broker_id,
                  err.text);
    if (atomic_load(&registrar->stopping))
        return SCHED_NEVER; /* registrar_stop() tells the waiters */
    for (size_t i = 0; i < registrar->count; i++)
        failed |= registrar->servers[i].result != TERN_OK;
    end_round(registrar, round, code, &err);
    if (anybody_waits(registrar))
        return 0;
    /* A nameserver that was away learns of us soon, and who looks for the others of its set finds
     * them soon, not a period later. */
    int state = ha_state(registrar->broker->ha);
    bool soon = failed || state == TERN__WIRE__HA_STATE__HA_SEEKING ||
                state == TERN__WIRE__HA_STATE__HA_RECOVERING;
    int64_t wait_ms =
        soon && config->register_period_ms > SOON_MS ? SOON_MS : config->register_period_ms;
    return clock_mono_ns(registrar->broker->env.clock) + ms_to_ns(wait_ms);
}

enum tern_code registrar_start(struct registrar *registrar)
{
    struct task *task;
    if (!registrar->count)
        return TERN_OK;
    enum tern_code code = task_start(registrar->broker->env.sched, "broker-register", register_step,
                                     registrar, &task);
    if (code != TERN_OK)
        return code;
    lock_acquire(&registrar->lock);
    registrar->task = task;
    lock_release(&registrar->lock);
    return TERN_OK;
}

/* false: the round had ended, and the waiter was told. */
static bool leave_waiters(struct registrar *registrar, struct waiter *waiter)
{
    bool found = false;
    lock_acquire(&registrar->lock);
    for (struct waiter **at = &registrar->waiters; *at && !found;) {
        found = *at == waiter;
        if (found)
            *at = waiter->next;
        else
            at = &(*at)->next;
    }
    lock_release(&registrar->lock);
    return found;
}

enum tern_code registrar_publish(struct registrar *registrar, int64_t deadline_ns,
                                 struct tern_error *err)
{
    struct sched *sched = registrar->broker->env.sched;
    struct waiter waiter = {.code = TERN_OK};
    latch_init(&waiter.ended);
    lock_acquire(&registrar->lock);
    bool runs = registrar->task != NULL;
    if (runs) {
        waiter.round = registrar->rounds_begun + 1;
        waiter.next = registrar->waiters;
        registrar->waiters = &waiter;
        task_wake(registrar->task); /* under the lock: it cannot be stopped meanwhile */
    }
    lock_release(&registrar->lock);
    if (!runs)
        return TERN_OK; /* nobody to tell, or not started, or stopping */
    if (!latch_wait(sched, &waiter.ended, deadline_ns) && leave_waiters(registrar, &waiter))
        return TERN_OK; /* the nameservers are slow or away: they will be told later */
    if (waiter.code != TERN_OK && err)
        *err = waiter.err;
    return waiter.code;
}

void registrar_poke(struct registrar *registrar)
{
    lock_acquire(&registrar->lock);
    if (registrar->task)
        task_wake(registrar->task); /* under the lock: it cannot be stopped meanwhile */
    lock_release(&registrar->lock);
}

/* ---- stopping ---- */

void registrar_stop(struct registrar *registrar)
{
    struct tern_error err = {.text = ""};

    if (atomic_exchange(&registrar->stopping, true))
        return;
    flight_end(registrar, &registrar->round);
    lock_acquire(&registrar->lock);
    struct task *task = registrar->task;
    registrar->task = NULL;
    lock_release(&registrar->lock);
    task_stop(task);
    end_round(registrar, UINT64_MAX, TERN_OK, &err);
    say_goodbyes(registrar);
    for (size_t i = 0; i < registrar->count; i++) {
        rpc_peer_unref(registrar->servers[i].peer);
        registrar->servers[i].peer = NULL;
    }
}
