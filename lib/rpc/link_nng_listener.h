/*
 * A listener's state, shared by link_nng_server.c (contexts, requests, life) and link_nng_peers.c
 * (who is connected). Nobody else includes this.
 */
#ifndef RPC_LINK_NNG_LISTENER_H
#define RPC_LINK_NNG_LISTENER_H

#include "rpc/link_nng_internal.h"

#include <uthash.h>

/* A connected client. All fields: listener->lock, but for pub, which does not change. */
struct peer {
    struct link_peer pub;
    uint32_t pipe_id;
    uint32_t pending;    /* requests not yet over */
    uint32_t idle_looks; /* since the last request */
    bool unwanted;       /* its connection is to be ended */
    bool gone;
    bool told_up, told_down;
    bool queued; /* in listener->events */
    struct peer *next_event;
    UT_hash_handle by_pipe; /* while not gone */
    UT_hash_handle by_id;
};

/* From open to closed, never back. */
enum listener_phase {
    LISTENING,
    DRAINING, /* peers are being hung up on, requests are dropped */
    CLOSED    /* contexts end */
};

struct link_listener {
    struct link_member member; /* first */
    struct nng_link *link;
    struct link_listen_options options;
    char address[LINK_ADDRESS_BYTES];
    nng_socket socket;
    nng_listener endpoint;
    uint16_t port;        /* lock, until server_listen() has returned; then it does not change */
    struct rpc_gate gate; /* replies being submitted, contexts being opened */
    _Atomic int phase;    /* enum listener_phase */
    _Atomic int32_t receiving; /* contexts */
    _Atomic bool growing;

    struct lock lock;
    struct link_request *requests;     /* lock */
    uint32_t contexts;                 /* lock */
    uint32_t pending;                  /* lock: requests not yet over */
    uint32_t orphans;                  /* lock */
    struct peer *by_pipe, *by_id;      /* lock */
    uint64_t last_peer_id;             /* lock */
    uint32_t unwanted;                 /* lock: peers to be hung up on */
    struct peer *events, **last_event; /* lock */
    struct latch *all_gone;            /* lock: to be set when by_pipe is empty */
    int64_t next_idle_look_ns;         /* the task's */
};

/* NNG's pipe events. @thread nng */
void peers_on_arriving(nng_pipe pipe, nng_pipe_ev event, void *listener);
void peers_on_gone(nng_pipe pipe, nng_pipe_ev event, void *listener);

/* Tells arrivals and departures, hangs up on who is unwanted or idle. @thread the link's task */
int64_t peers_step(struct link_member *member, int64_t now_ns);

/* The peer of a pipe, NULL when it has gone. @locks holds:LINK */
struct peer *peers_find(struct link_listener *listener, uint32_t pipe_id);
/* Frees the record when nobody needs it any more. @locks holds:LINK */
void peers_release(struct link_listener *listener, struct peer *peer);
/* Ends the connection soon. @thread any @locks none */
void peers_close(struct link_listener *listener, uint64_t peer_id);
/* Ends all connections and waits until their pipes have gone; false when some do not go. @thread
 * not-link */
MUST_CHECK bool peers_close_all(struct link_listener *listener);
/* Frees the records that no request needs. After peers_close_all(). */
void peers_forget(struct link_listener *listener);

#endif
