/*
 * The inside of a client instance, for its own files:
 *
 *   instance_registry.c  finding and making instances, client id, the process' link
 *   instance.c           life, the task, members
 *   namesrv_walk.c       asking nameservers
 *   route.c              a route from an answer
 *   route_cache.c        the table of routes, who waits for one, refreshing
 *   brokers.c            the table of broker addresses
 *   heartbeat.c          heartbeats and goodbyes
 *   events.c             parked WaitEvents
 *   requests.c           requests that wait for replies
 *   timers.c             one-shot timers of those who wait before they try again
 *
 * One lock (CLIENT) protects both tables and the members; it is never held across a call into rpc
 * or into a consumer. Everything slow is asynchronous: the task starts calls, their callbacks note
 * what came and wake the task.
 */
#ifndef CLIENT_INSTANCE_INTERNAL_H
#define CLIENT_INSTANCE_INTERNAL_H

#include <stdatomic.h>

#define HASH_NONFATAL_OOM 1 /* an element that was not added has hh.tbl NULL */
#include <uthash.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/names.h"
#include "base/rng.h"
#include "base/sched.h"
#include "client/instance.h"
#include "client/message_id.h"
#include "client/requests.h"

enum {
    NAMESRVS_MAX = 16,
    ROUTE_TOPICS_MAX = 65536,
    ROUTE_FETCHES_MAX = 64, /* of the task's own refreshing, at a time */
    ROUTE_REFRESH_LEAST_MS = 100,
    ROUTE_RETRY_MS = 3000,            /* after an answer that nobody gave */
    ROUTE_MASTERLESS_MS = 1000,       /* while a set has no master: it may be back any moment… */
    ROUTE_MASTERLESS_LATER_MS = 5000, /* …and after ROUTE_MASTERLESS_LONG_MS of that */
    ROUTE_MASTERLESS_LONG_MS = 120000,
    ROUTE_LOST_MS = 1000,        /* while it names a broker whose connection was lost… */
    ROUTE_LOST_LONG_MS = 120000, /* …so lately: a nameserver forgets one within that time */
    ROUTE_IDLE_MS = 600000,      /* a topic nobody asked for that long is forgotten */
    BROKER_ADDRESSES_MAX = 4096,
    PRODUCER_GROUPS_MAX = 1024,
    CONSUMER_GROUPS_MAX = 1024,
    EVENTS_SUSPEND_MS = 30000,
    EVENTS_RETRY_MS = 1000,
    GOODBYE_MS = 1000,
    INSTANCE_MESSAGE_BYTES = 64 << 20, /* the largest that any member may ask for */
    HEARTBEAT_ARENA_BYTES = 16 << 20
};

/*
 * Somebody who waits for a route; lives in the waiter's memory until done was called, exactly once.
 */
struct route_waiter {
    struct route_waiter *next;
    int64_t deadline_ns;
    /* code TERN_OK: route is the callee's. @thread link's or the instance's task @locks none */
    void (*done)(struct route_waiter *waiter, enum tern_code code, struct route *route,
                 const struct tern_error *err);
};

struct route_walk;

struct topic_entry {
    UT_hash_handle hh; /* by topic */
    char topic[TOPIC_NAME_MAX + 1];
    struct route *route; /* NULL: none known */
    struct route *older; /* those before it that somebody may hold, newest first */
    bool fetching;
    bool changed;     /* consumers are to be told */
    int64_t asked_ns; /* when the last fetch began */
    int64_t due_ns;   /* of the next one */
    int64_t used_ns;
    int64_t masterless_ns; /* since when a set has no master or is gone; 0: all are there */
    size_t sets_known;     /* in the route, while all were there */
    struct route_waiter *waiters;
};

enum born_family { BORN_UNKNOWN, BORN_V4, BORN_V6 };

/* An address of a broker that some route names. */
enum { CHECKS_NOT_ASKED_MAX = 64 }; /* more than a broker posts at a time */

struct broker_link {
    UT_hash_handle hh; /* by address */
    char address[ADDRESS_BYTES];
    _Atomic uint32_t refs; /* the table's and one per call under way */
    struct instance *instance;
    struct rpc_peer *peer;
    bool listed; /* mark and sweep */
    bool master; /* id 0 */
    bool beating;
    int64_t lost_ns; /* when its connection was lost; 0: it was not, or is back */
    int64_t beat_due_ns;
    enum born_family family;
    bool waiting; /* a WaitEvents is parked */
    int64_t events_due_ns;
    uint64_t events_session, events_seen;
    /* half messages of checks that came and that nobody is asked about; told with the next wait */
    int64_t not_asked[CHECKS_NOT_ASKED_MAX];
    uint32_t not_asked_count;
};

struct producer_group {
    struct producer_group *next;
    char name[GROUP_NAME_MAX + 1];
};

struct instance {
    /* set at creation */
    const struct env *env;
    struct link *link;
    struct rpc_client *rpc;
    struct id_maker *ids;
    struct id_maker own_ids; /* in simulation */
    char client_id[CLIENT_ID_MAX + 1];
    char *namesrv_text;
    char *namesrv_copy; /* cut into addresses */
    const char *namesrvs[NAMESRVS_MAX];
    size_t namesrv_count;
    _Atomic size_t namesrv_current;

    /* the registry's, under its lock */
    struct instance *next;
    uint32_t refs;

    struct lock lock; /* CLIENT; protects all below */
    struct task *task;
    bool started;
    bool stopping;
    int64_t next_step_ns; /* what the task sleeps for */
    struct topic_entry *topics;
    uint32_t fetches;               /* under way */
    struct route_walk *ended_walks; /* their ends are due */
    bool brokers_stale;             /* a route changed since the address table was made */
    bool topics_changed;            /* some entry has `changed` */
    struct broker_link *brokers;
    struct instance_consumer *consumers;
    uint32_t consumer_count;
    struct producer_group *producers;
    uint32_t producer_count;
    struct instance_checker *checkers;
    struct instance_timer *timers; /* by due time */
    struct requests requests;

    _Atomic uint64_t route_generation; /* grows with every change of any route */
};

/* ---- instance.c ---- */
MUST_CHECK enum tern_code instance_create(const struct env *env, struct link *link,
                                          const char *client_id, const char *namesrv,
                                          struct id_maker *ids, struct instance **out,
                                          struct tern_error *err);
void instance_destroy(struct instance *instance); /* NULL allowed */
/* The task runs its step at time_ns at the latest. @locks holds:CLIENT */
void instance_step_by(struct instance *instance, int64_t time_ns);
int64_t instance_now(const struct instance *instance);
bool instance_stopping(struct instance *instance);
struct id_maker *instance_ids(struct instance *instance);
/* Ends a call into a consumer that was counted in `calls`. @locks takes:CLIENT */
void instance_consumer_release(struct instance *instance, struct instance_consumer *consumer);
/* Marks the group's consumer (NULL: all) for on_rebalance. @locks holds:CLIENT */
void instance_rebalance_due(struct instance *instance, const void *group, size_t group_len);

/* ---- namesrv_walk.c ---- */
MUST_CHECK enum tern_code namesrv_parse(struct instance *instance, const char *text,
                                        struct tern_error *err);
/* code TERN_OK: answer is borrowed for the call. @locks none */
typedef void (*namesrv_route_fn)(void *arg, enum tern_code code,
                                 const Tern__Wire__RouteResponse *answer,
                                 const struct tern_error *err);
/* Asks for a topic's route; `done` exactly once, possibly from within. @thread any @locks none */
void namesrv_ask_route(struct instance *instance, const char *topic, namesrv_route_fn done,
                       void *arg);
/* Ends the walks that could not begin. @thread the task's, or after it has stopped */
void namesrv_end_walks(struct instance *instance);

/* ---- route.c ---- */
/* TERN_TOPIC_NOT_EXIST: the answer names no queue or no broker. */
MUST_CHECK enum tern_code route_create(const char *topic, const Tern__Wire__RouteResponse *answer,
                                       int64_t now_ns, struct route **out, struct tern_error *err);
struct route *route_ref(struct route *route);
bool route_equal(const struct route *a, const struct route *b);
/* Whether a set that has queues of the topic has no master. */
bool route_lacks_master(const struct route *route);
/* Whether some broker of it has this address. */
bool route_names(const struct route *route, const char *address);

/* ---- route_cache.c ---- */
/*
 * TERN_OK: *out is the caller's. TERN_AGAIN: waiter->done will come. Else it failed at once.
 * `fresh`: an answer that comes from now on, even when one is cached. @thread any @locks none
 */
enum tern_code route_ask(struct instance *instance, const char *topic, bool fresh,
                         struct route_waiter *waiter, struct route **out, struct tern_error *err);
/* Fetches what is due, ends expired waits, forgets idle topics; returns the next deadline. */
int64_t route_cache_step(struct instance *instance, int64_t now_ns);
/* The connection to a broker was lost: asks soon for all routes that name it. @locks holds:CLIENT
 */
void route_cache_lost(struct instance *instance, const char *address, int64_t now_ns);
/* Marks the consumers whose topics' routes changed. @thread the task's */
void route_cache_tell_consumers(struct instance *instance);
void route_cache_fini(struct instance *instance);
uint64_t instance_route_generation(struct instance *instance);

/* ---- brokers.c ---- */
/* Brings the address table in line with the routes. @thread any @locks takes:CLIENT */
void brokers_update(struct instance *instance);
void brokers_fini(struct instance *instance);
struct broker_link *broker_link_ref(struct broker_link *link);
void broker_link_unref(struct broker_link *link);
/* A peer came up: beat and listen there at once. @thread link's */
void brokers_peer_up(struct instance *instance, const char *address);
void brokers_peer_lost(struct instance *instance, const char *address);
/* Whether the connection to some broker of the route was lost in the last ROUTE_LOST_LONG_MS, and
 * is not back. @locks holds:CLIENT */
bool brokers_lost_lately(struct instance *instance, const struct route *route, int64_t now_ns);
enum born_family instance_born_family(struct instance *instance, const char *address);

/* ---- heartbeat.c ---- */
/* Beats where it is due; returns the next deadline. */
int64_t heartbeat_step(struct instance *instance, int64_t now_ns);
/* The next step beats to all. @locks none */
void heartbeat_soon(struct instance *instance);
/* Tells all brokers that are up that the client leaves a group (one of the two, "" the other). */
void heartbeat_goodbye(struct instance *instance, const char *producer_group,
                       const char *consumer_group);

/* ---- members, in instance.c ---- */
/* Describes all consumers, counted as busy until members_release(). */
struct members {
    struct arena arena;
    size_t count;
    struct instance_consumer **consumers;
    Tern__Wire__ConsumerData **data; /* as many */
};
/* Whether there is one that brokers hear of. @locks holds:CLIENT */
bool instance_has_members(const struct instance *instance);
MUST_CHECK enum tern_code members_describe(struct instance *instance, struct members *members);
void members_release(struct instance *instance, struct members *members);

/* ---- timers.c ---- */
/* Ends those whose time has come; returns the next deadline. @thread the task's */
int64_t timers_step(struct instance *instance, int64_t now_ns);
/* Cancels the rest. After the task has stopped; while the instance is stopping none are added. */
void timers_fini(struct instance *instance);

/* ---- events.c ---- */
/* Parks a WaitEvents at every broker address when there are consumers or checkers, or once a
 * request was made. */
int64_t client_events_step(struct instance *instance, int64_t now_ns);

#endif
