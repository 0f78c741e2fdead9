/*
 * Registrations and goodbyes on their way: in a round the calls to all nameservers run in parallel,
 * each with its own deadline. A nameserver that has our topic table already (by version) gets a
 * registration without it; it asks when it does not.
 *
 * Stopping does not wait for nameservers that hang: a round under way is abandoned, its callbacks
 * find the registrar until its client is destroyed, and the goodbyes have GOODBYE_MS together.
 */
#include "broker/registrar_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { GOODBYE_MS = 500 };

/* ---- calls in parallel ---- */

static void flight_begin(struct flight *flight, size_t calls)
{
    latch_init(&flight->done);
    atomic_store(&flight->pending, calls);
    atomic_store(&flight->over, false);
}

void flight_end(struct registrar *registrar, struct flight *flight)
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
    if (server->result == TERN_OK)
        server->told_ns = clock_mono_ns(server->registrar->broker->env.clock);
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

void topic_table_free(struct topic_table *table)
{
    free(table->topics);
    free(table->pointers);
    free(table->configs);
}

enum tern_code topic_table_fill(struct broker *broker, struct topic_table *table)
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

bool registrar_tell(struct registrar *registrar, const struct topic_table *table,
                    int64_t timeout_ms, bool only_again)
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

void registrar_say_goodbyes(struct registrar *registrar)
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
