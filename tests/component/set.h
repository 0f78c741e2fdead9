/*
 * A set of brokers as real processes for the component tests: a nameserver, a master and its
 * slaves, all of one name, on free ports of loopback and in a directory of their own.
 *
 *   set_up ─► set_kill, set_pause, set_start, … ─► set_await_in_sync ─► set_down
 *
 * Node 0 is the master. Every wait has a deadline far above what is expected.
 */
#ifndef TESTS_COMPONENT_SET_H
#define TESTS_COMPONENT_SET_H

#include "tests/component/wire.h"

enum { SET_NODES = 3, SET_OVERRIDES = 16 };

struct set_node {
    struct daemon daemon;
    int id;
    char store[DAEMON_PATH_BYTES];
    uint16_t port, ha_port;         /* its own until it moves */
    int held[2];                    /* the sockets that keep them while it is away */
    const char *own[SET_OVERRIDES]; /* key=value for this node alone, NULL at the end */
    const char *const *environment; /* may be NULL */
    struct wire wire;               /* a client of it, while wired */
    bool wired;
};

struct broker_set {
    char dir[WORK_DIR_BYTES];
    char namesrv_list[80];
    struct daemon namesrv;
    const char *role;                     /* the master's */
    const char *overrides[SET_OVERRIDES]; /* key=value for all, NULL at the end */
    struct set_node nodes[SET_NODES];
    size_t count;
};

/* A directory, a nameserver and nodes that are not started yet. overrides: NULL-terminated. */
void set_make(struct broker_set *set, const char *role, size_t slaves,
              const char *const *overrides);
/* The same, started and in sync. */
void set_up(struct broker_set *set, const char *role, size_t slaves, const char *const *overrides);
/* Stops what runs, expecting exit status 0, and removes the directory. */
void set_down(struct broker_set *set);

/* Spawns a node; the caller waits for ready. */
void set_spawn(struct broker_set *set, size_t node);
/* The same, and waits. It keeps its ports. */
void set_start(struct broker_set *set, size_t node);
/* Its next start takes other ports. */
void set_move(struct broker_set *set, size_t node);
/* SIGKILL; SIGTERM, expecting exit status 0. */
void set_kill(struct broker_set *set, size_t node);
void set_stop(struct broker_set *set, size_t node);
/* SIGSTOP and SIGCONT. */
void set_pause(struct broker_set *set, size_t node);
void set_resume(struct broker_set *set, size_t node);

/* A file below the node's store. */
const char *set_file(const struct broker_set *set, size_t node, const char *name,
                     char path[DAEMON_PATH_BYTES]);
/* A client of the node, connected at its first use after a start. */
struct wire *set_wire(struct broker_set *set, size_t node);
/* Whether the node's log has all of the words. */
bool set_logged(const struct broker_set *set, size_t node, const char *words);
void set_await_logged(const struct broker_set *set, size_t node, const char *words);

/* What a node says of itself: HaStatusRequest. */
struct set_view {
    int state; /* Tern__Wire__HaState */
    bool writable;
    int64_t min, end, flushed, dispatched, confirmed;
    size_t in_sync, linked; /* slaves */
    char ha_address[64];
    char text[256];
};
void set_view(struct broker_set *set, size_t node, struct set_view *out);
void set_await_state(struct broker_set *set, size_t node, int state);
/* The master takes writes with so many slaves in its set, all of them linked. */
void set_await_in_sync(struct broker_set *set, size_t slaves);
/* The node's log ends where the master's does, and everything is in its queues. */
void set_await_equal(struct broker_set *set, size_t node);

/* mqadmin with -n of the set, as mqadmin() of daemons.h. */
char *set_mqadmin(const struct broker_set *set, int status, const char *const *args);
#define SET_MQADMIN(set, status, ...)                                                              \
    set_mqadmin(set, status, (const char *const[]){__VA_ARGS__, NULL})
/* mqstore verify of each of the first `nodes` stores, and diff of each with the master's. */
void set_expect_sound_stores(const struct broker_set *set, size_t nodes);

/* ---- asked of one node ---- */

/* The code of one send of a text to queue 0. */
int32_t send_code(struct wire *wire, const char *topic, const char *body);
/* The answer to a pull from `offset`; the caller unrefs it. */
struct rpc_call *pull_from(struct wire *wire, const char *group, const char *topic,
                           int32_t queue_id, int64_t offset);
/* Commits; returns the code. version: NULL, or what the client knows. */
int32_t commit_to(struct wire *wire, const char *group, const char *topic, int64_t offset,
                  const Tern__Wire__OffsetVersion *version);
/* The code; *offset and *version (may be NULL) are filled with SUCCESS. */
int32_t query_progress(struct wire *wire, const char *group, const char *topic, int64_t *offset,
                       Tern__Wire__OffsetVersion *version);

#endif
