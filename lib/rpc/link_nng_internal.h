/*
 * What the files of the NNG link share; nobody else includes this, or NNG.
 *
 *   link_nng.c          the link itself: messages, addresses, its one task
 *   link_nng_server.c   listeners: contexts, requests, limits
 *   link_nng_peers.c    listeners: who is connected
 *   link_nng_client.c   connections: calls
 *   link_nng_dialing.c  connections: attempts, back-off
 *
 * Threads: NNG's, which run callbacks and must not wait; the link's task, which delivers states of
 * peers and connections in order and runs the connections' state machines; the callers'. Closing is
 * the callers' work: they wait for all others to be done with what is closed.
 *
 * Locks (all of rank LINK, so never two at once): link->lock for the list of members and of
 * deferred completions; each listener's and each connection's own for its state. No lock is held
 * while calling NNG's submitting functions or any callback of ours.
 */
#ifndef RPC_LINK_NNG_INTERNAL_H
#define RPC_LINK_NNG_INTERNAL_H

#include <nng/nng.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/sched.h"
#include "rpc/gate.h"
#include "rpc/link.h"
#include "rpc/nng_shim.h"

enum {
    /* how long pipes may take to go before they are given up */
    LINK_GONE_WAIT_MS = 2000,
    /* how long handshakes may take to get where they can be broken off */
    LINK_HANDSHAKE_WAIT_MS = 1000,
    LINK_RETRY_NOW_PERIOD_MS = 1000
};
enum { LINK_ADDRESS_BYTES = 288, LINK_URL_BYTES = LINK_ADDRESS_BYTES + 8 };

/*
 * A listener or a connection as the link's task sees it. step() does what is due and returns when
 * it wants to run next.
 */
struct link_member {
    struct link_member *next; /* link->lock */
    int64_t (*step)(struct link_member *member, int64_t now_ns);
    struct latch *detached; /* link->lock; set: leave, then set the latch */
};

/* A completion that cannot be given at once because the caller is still inside link_call(). */
struct deferred {
    struct deferred *next;
    struct link_conn *conn;
    link_done_fn done;
    void *arg;
    enum tern_code status;
};

struct nng_link {
    struct link base;
    struct env env;
    struct task *task;
    struct lock lock;
    struct link_member *members;                /* lock */
    struct deferred *deferred, **last_deferred; /* lock */
};

void link_member_add(struct nng_link *link, struct link_member *member);
/* Returns when the task does not know the member any more. @thread not-link */
void link_member_remove(struct nng_link *link, struct link_member *member);
/* Gives done(arg, status, NULL) on the task; the caller has entered conn's gate, which is then
 * left. */
void link_defer(struct nng_link *link, struct link_conn *conn, link_done_fn done, void *arg,
                enum tern_code status);

static inline int64_t link_now_ns(const struct nng_link *link)
{
    return clock_mono_ns(link->env.clock);
}

/* NNG's error as ours; `text` says what was done. */
enum tern_code link_code_of(int nng_rv);
enum tern_code link_error(struct tern_error *err, int nng_rv, const char *what,
                          const char *address);

/* Whether the host part of "host:port" or "[v6]:port" is an IP address; TERN_INVALID when it is
 * neither. */
MUST_CHECK enum tern_code link_check_address(const char *address, bool *literal,
                                             struct tern_error *err);
/* Milliseconds for an aio until deadline_ns, at least 1. */
nng_duration link_timeout_ms(int64_t deadline_ns, int64_t now_ns);

/* What NNG's limit must be for bodies of max_message_bytes: the request id is in front of them. */
static inline size_t link_receive_limit(size_t max_message_bytes)
{
    return max_message_bytes + sizeof(uint32_t);
}

static inline nng_msg *msg_to_nng(struct link_msg *msg)
{
    return (nng_msg *)msg;
}

static inline struct link_msg *msg_from_nng(nng_msg *msg)
{
    return (struct link_msg *)msg;
}

/* One end of the pipe's connection, NNG_OPT_REMADDR or NNG_OPT_LOCADDR; zeros when it is not known.
 */
void link_pipe_address(nng_pipe pipe, const char *option, struct host *out);
void link_socket_address(const struct sockaddr *address, struct host *out);
bool link_same_host(const struct host *a, const struct host *b);

/*
 * Whether connections can be made to end by themselves. Where not, nng_pipe_close() has to do, and
 * NNG 1.5 may stop reaping pipes; see nng_shim.c.
 */
static inline bool link_can_hang_up(void)
{
    return nng_shim_hang_up != NULL;
}

/*
 * Close a dialer, or a listener, so that no connection in the midst of a handshake is lost in it;
 * see nng_shim.c. @thread any but NNG's @locks none
 */
void link_end_dialer(struct nng_link *link, nng_dialer dialer);
void link_end_listener(struct nng_link *link, nng_listener listener);

/* link_nng_server.c */
enum tern_code server_listen(struct link *link, const struct link_listen_options *options,
                             struct link_listener **out, struct tern_error *err);
uint16_t server_port(const struct link_listener *listener);
void server_close(struct link_listener *listener);
struct link_msg *server_request_msg(struct link_request *request);
void server_request_peer(const struct link_request *request, struct link_peer *out);
bool server_request_over_cap(const struct link_request *request);
void server_request_release(struct link_request *request);
void server_reply(struct link_request *request, struct link_msg *msg);
void server_peer_close(struct link_listener *listener, uint64_t peer_id);

/* link_nng_client.c */
enum tern_code client_dial(struct link *link, const struct link_dial_options *options,
                           struct link_conn **out, struct tern_error *err);
void client_call(struct link_conn *conn, struct link_msg *msg, int64_t deadline_ns,
                 link_done_fn done, void *arg);
void client_call_left(struct link_conn *conn);
void client_retry_now(struct link_conn *conn);
void client_drop(struct link_conn *conn);
void client_close(struct link_conn *conn);

#endif
