/*
 * The inside of an rpc client, for its own files:
 *
 *   client.c         calls, and the client's life
 *   client_peers.c   peers by address, and their silence
 */
#ifndef RPC_CLIENT_INTERNAL_H
#define RPC_CLIENT_INTERNAL_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/sched.h"
#include "rpc/client.h"
#include "rpc/gate.h"

#define CALL_MAGIC 0x52504343u /* "RPCC" */

struct client_call {
    struct rpc_call pub; /* first */
    uint32_t magic;
    _Atomic uint32_t refs;
    bool counted; /* in peer->calls */
    bool open;    /* in peer->open */
    struct rpc_peer *peer;
    struct link_msg *msg; /* the request, until started; then the answer */
    size_t payload_cap;
    struct arena arena;
    rpc_done_fn done;
    void *arg;
    struct client_call *next; /* free or unstarted */
};

struct rpc_peer {
    struct rpc_client *client;
    struct rpc_peer *next; /* client->lock; the client's task alone removes */
    uint32_t refs;         /* client->lock; calls not counted */
    _Atomic uint32_t held; /* calls that exist, under way or not */
    int64_t idle_since_ns; /* client->lock: when refs became 0 */
    struct link_conn *conn;
    _Atomic bool up; /* as told to the owner */
    _Atomic int64_t up_since_ns;
    _Atomic bool linked;      /* the link has a connection */
    _Atomic bool lost;        /* the link's last news: none, or none any more */
    _Atomic bool doubted;     /* fell silent; not up before it answers again */
    _Atomic bool doomed;      /* dialled twice at once; this one was too late and is nobody's */
    _Atomic uint32_t calls;   /* not yet done */
    _Atomic uint32_t open;    /* with the link, without pings */
    _Atomic int64_t heard_ns; /* the last answer, or the connection's beginning */
    _Atomic int64_t asked_ns; /* of the first call after that */
    _Atomic uint32_t signs;   /* of life: answers and connections, counted */
    int64_t pinged_ns;        /* the client's task's; 0: no ping is out */
    uint32_t pinged_signs;    /* the client's task's: signs when it was sent */
    char address[];
};

struct rpc_client {
    struct env env;
    struct link *link;
    struct rpc_client_options options;
    char *client_id;
    size_t client_id_len;
    struct task *task;     /* woken inside the gate */
    struct rpc_gate gate;  /* calls being started; shut when destroyed */
    _Atomic bool watching; /* the task will look at silence by itself */
    struct lock lock;
    struct rpc_peer *peers;  /* lock */
    struct rpc_peer *doomed; /* lock: not in peers, to be closed */
    struct lock pool_lock;
    struct client_call *free;                        /* pool_lock */
    uint32_t free_count;                             /* pool_lock */
    struct client_call *unstarted, **last_unstarted; /* pool_lock: done is due */
};

/* ---- client.c ---- */

/* Runs the task soon, unless the client is being destroyed. @thread any @locks none */
void client_wake(struct rpc_client *client);
/*
 * Asks "are you there?" beside the calls, whatever their number. TERN_NO_MEMORY: not asked. @thread
 * the client's task
 */
MUST_CHECK enum tern_code client_ping(struct rpc_peer *peer, int64_t timeout_ms);

/* ---- client_peers.c ---- */

/* A call goes to the link. @thread any @locks none */
void peer_asked(struct rpc_peer *peer, int64_t now_ns);
/* An answer came, of whatever call. @thread link's @locks none */
void peer_heard(struct rpc_peer *peer);
/* Closes idle peers, asks and drops silent ones; returns when to look again. @thread the client's
 * task */
int64_t client_peers_step(struct rpc_client *client, int64_t now_ns);

#endif
