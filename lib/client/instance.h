/*
 * A client instance: what all producers and consumers with one client id share (RocketMQ's
 * MQClientInstance). It keeps routes, talks to nameservers, beats to brokers, listens for events.
 *
 *        producers, consumers                    nameservers (walked over on failure)
 *              │ register, routes                     ▲ route every 30 s and on failure
 *              ▼                                      │
 *          instance ── task: routes, heartbeats ──────┤
 *              │                                      ▼
 *              └── events: parked WaitEvents to every broker ──► on_members_changed
 *
 * One per client id in a process: found in a registry, started once, reference counted.
 */
#ifndef CLIENT_INSTANCE_H
#define CLIENT_INSTANCE_H

#include <tern/message.h>

#include "base/env.h"
#include "base/error.h"
#include "rpc/client.h"

struct instance;

enum {
    ROUTE_REFRESH_MS = 30000,
    HEARTBEAT_MS = 30000,
    RPC_TIMEOUT_MS = 3000,
    ROUTE_QUEUES_MAX = 65536,
    ROUTE_BROKERS_MAX = 1024,
    ADDRESS_BYTES = 128
};

struct instance_options {
    const char *namesrv;       /* NULL: NAMESRV_ADDR */
    const char *instance_name; /* NULL: <pid>#<start ns> */
    int64_t max_message_bytes;
    /*
     * NULL, NULL: the system's, one shared env and NNG link per process. Simulation passes its own.
     */
    const struct env *env;
    struct link *link;
};

/*
 * Finds or makes the instance of these options (same client id and nameservers) and refs it.
 * TERN_INVALID without nameservers.
 */
MUST_CHECK enum tern_code instance_get(const struct instance_options *options,
                                       struct instance **out, struct tern_error *err);
/* First start starts tasks; further ones do nothing. */
MUST_CHECK enum tern_code instance_start(struct instance *instance, struct tern_error *err);
/* The last unref stops and frees it. @thread not a callback */
void instance_unref(struct instance *instance);

const struct env *instance_env(const struct instance *instance);
const char *instance_client_id(const struct instance *instance);

/* ---- members ---- */

/* What a consumer group tells the instance; borrowed until unregistered. */
struct instance_consumer {
    const char *group;
    /* Fills one ConsumerData for a heartbeat; memory from the arena. @locks none */
    bool (*describe)(void *arg, struct arena *arena, Tern__Wire__ConsumerData *out);
    /*
     * Members changed, a route of a subscribed topic changed, or events were lost. @locks none;
     * must not wait
     */
    void (*on_rebalance)(void *arg);
    void *arg;
    /* Set before it is added: no broker hears of it until instance_announce_consumer(). The
     * instance's, under its lock, from then on. */
    bool unannounced;
    /* The instance's, under its lock; zero when added. */
    struct instance_consumer *next;
    uint32_t calls; /* describe or on_rebalance under way */
    bool rebalance_due;
    struct tern_error refused; /* why a broker left the group out; text "": none did */
    struct latch *idle;        /* set when calls is 0: the remover waits */
};

/* TERN_EXISTS: "the consumer group G has been created before in this client instance". */
MUST_CHECK enum tern_code instance_add_consumer(struct instance *instance,
                                                struct instance_consumer *consumer,
                                                struct tern_error *err);
/* From its next heartbeats on brokers hear of a consumer that was added unannounced. @thread any */
void instance_announce_consumer(struct instance *instance, struct instance_consumer *consumer);
/* Tells the brokers (waits for at most a second), then forgets. */
void instance_remove_consumer(struct instance *instance, struct instance_consumer *consumer);
MUST_CHECK enum tern_code instance_add_producer(struct instance *instance, const char *group,
                                                struct tern_error *err);
void instance_remove_producer(struct instance *instance, const char *group);
/* A producer group of ours that answers checks of transactions; its owner's until removed. */
struct instance_checker {
    const char *group;
    /* A broker asks; what is given is borrowed for the call. false: nobody will be asked, and the
     * broker is told so. @thread link's @locks holds:CLIENT: it only queues */
    bool (*on_check)(void *arg, struct rpc_peer *peer,
                     const Tern__Wire__CheckTransactionEvent *check);
    void *arg;
    struct instance_checker *next; /* the instance's */
};
void instance_add_checker(struct instance *instance, struct instance_checker *checker);
/* No on_check() comes any more when it has returned. Not there: nothing to do. */
void instance_remove_checker(struct instance *instance, struct instance_checker *checker);
/* Beats to all brokers now; waits for the answers up to timeout_ms when it is not 0. */
void instance_heartbeat_now(struct instance *instance, int64_t timeout_ms);

/* Whether a broker left the consumer out of its group since it was added, and why. */
bool instance_consumer_refused(struct instance *instance, struct instance_consumer *consumer,
                               struct tern_error *err);

/* ---- waiting before another try ---- */

/* A one-shot timer in its owner's memory, until done was called. */
struct instance_timer {
    struct instance_timer *next;
    int64_t due_ns;
    /* code TERN_OK: it is time; TERN_CANCELED: the instance ends. @thread the instance's task, or
     * who destroys the instance @locks none; must not wait */
    void (*done)(struct instance_timer *timer, enum tern_code code);
};
/* true: done will be called, exactly once. false: the instance is stopping. @thread any @locks none
 */
MUST_CHECK bool instance_timer_start(struct instance *instance, struct instance_timer *timer,
                                     int64_t due_ns);

/* ---- routes ---- */

struct route_broker {
    char cluster[128], name[128];
    size_t address_count;
    struct {
        int64_t id;
        char address[ADDRESS_BYTES];
        bool store_host_v6;
    } addresses[16];
};

struct route_queue_data {
    uint32_t broker; /* index into brokers */
    int32_t read_queues, write_queues, perm;
};

/* A topic's route: immutable, reference counted. */
struct route {
    _Atomic uint32_t refs;
    char topic[128];
    struct route_broker *brokers; /* sorted by name */
    size_t broker_count;
    struct route_queue_data *data;
    size_t data_count;
    /* sorted; only brokers with a master and W permission; `ordered`: as configured, of any */
    struct tern_queue *writable;
    bool ordered; /* the topic has an order configuration */
    size_t writable_count;
    struct tern_queue *readable; /* sorted; R permission, any broker alive */
    size_t readable_count;
    int64_t fetched_ns;
    struct route *older; /* the table's, under its lock: the one before it, while that is held */
};

/*
 * The cached route, asked for when unknown; waits up to the deadline. An empty or failed answer
 * never erases a good cached one. *out is the caller's: route_unref(). @thread not a callback
 */
MUST_CHECK enum tern_code instance_route(struct instance *instance, const char *topic,
                                         int64_t deadline_ns, struct route **out,
                                         struct tern_error *err);
/* The cached one or NULL; never waits. @thread any */
struct route *instance_route_cached(struct instance *instance, const char *topic);
/* Asks again soon (at most once per 100 ms and topic). @thread any */
void instance_route_refresh(struct instance *instance, const char *topic);
void route_unref(struct route *route);

const struct route_broker *route_find_broker(const struct route *route, const char *name);
/* Address of (name, id): exact, else for wanted ≠ 0 id+1, else any when `any`. NULL: none. */
const char *route_broker_address(const struct route_broker *broker, int64_t wanted_id, bool any,
                                 int64_t *actual_id);

/* ---- talking ---- */

/* A peer for an address; rpc_peer_unref(). */
MUST_CHECK enum tern_code instance_peer(struct instance *instance, const char *address,
                                        struct rpc_peer **out, struct tern_error *err);
/*
 * bornHost family that the broker at this address sees us with; false (v4) before the first
 * heartbeat.
 */
bool instance_born_v6(struct instance *instance, const char *address);
/*
 * Asks the nameservers, walking on at failure, from the one that last worked. *out (may be NULL) is
 * the caller's. @thread not a callback
 */
MUST_CHECK enum tern_code instance_namesrv_call(struct instance *instance, TernRequest *request,
                                                int64_t timeout_ms, struct rpc_call **out,
                                                struct tern_error *err);
/* All nameserver addresses; borrowed. */
size_t instance_namesrvs(const struct instance *instance, const char *const **addresses);

#endif
