/*
 * A connection's state, shared by link_nng_client.c (calls, life) and link_nng_dialing.c (attempts,
 * pipes). Nobody else includes this.
 */
#ifndef RPC_LINK_NNG_CONN_H
#define RPC_LINK_NNG_CONN_H

#include "rpc/link_nng_internal.h"

struct call;

enum conn_state { PAUSING, DIALING, UP };

struct link_conn {
    struct link_member member; /* first */
    struct nng_link *link;
    struct link_dial_options options;
    char address[LINK_ADDRESS_BYTES];
    bool literal; /* an IP address, not a name */
    nng_socket socket;
    struct rpc_gate calls;      /* calls under way */
    struct rpc_gate submitting; /* contexts being opened, operations being begun */
    _Atomic uint32_t call_count;
    _Atomic bool up;
    _Atomic bool closing;
    _Atomic bool answered; /* the pipe in use brought a reply */
    _Atomic bool suspect;  /* a call was lost: the pipe should go soon */
    _Atomic bool unwanted; /* the pipe is to be ended by the task */

    struct lock lock;
    struct call *all;         /* lock */
    struct call *free;        /* lock */
    uint32_t pipe_id;         /* lock: the pipe in use or being added, 0: none */
    struct host ours, theirs; /* lock: the ends of its connection */
    struct latch *pipe_gone;  /* lock: to be set when it goes */
    bool left_pipe;           /* lock: a pipe was given up; the socket cannot be closed */
    bool expecting;           /* lock: a pipe that comes is welcome */
    uint64_t ups, downs;      /* lock: of pipes, as NNG told */
    bool retry_now;           /* lock */
    int64_t last_retry_ns;    /* lock */

    /* the task's */
    enum conn_state state;
    nng_dialer dialer; /* while dialing, or open */
    bool dialer_open;
    uint64_t told_ups, told_downs;
    int64_t until_ns;   /* end of the pause or of the attempt */
    int64_t begun_ns;   /* of the attempt, or of the connection */
    int64_t backoff_ms; /* life of the last attempt */
    bool second_family; /* the next attempt is for IPv6 */
    uint32_t suspect_pipe_id;
    int64_t suspect_until_ns; /* when it is ended, then given up; SCHED_NEVER: there is none */
    bool suspect_ended;
};

/* NNG's pipe events. @thread nng */
void dialing_on_arriving(nng_pipe pipe, nng_pipe_ev event, void *conn);
void dialing_on_added(nng_pipe pipe, nng_pipe_ev event, void *conn);
void dialing_on_gone(nng_pipe pipe, nng_pipe_ev event, void *conn);

/* Runs the attempts, tells what came of them. @thread the link's task */
int64_t dialing_step(struct link_member *member, int64_t now_ns);
/* Calls are lost or stuck: the task is to see whether the pipe goes. @thread any @locks none */
void dialing_suspect(struct link_conn *conn);
/* Ends the connection, if any, and waits for its pipe to go; false when it does not. @thread
 * not-link */
MUST_CHECK bool dialing_stop(struct link_conn *conn);

#endif
