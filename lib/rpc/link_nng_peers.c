/*
 * Who is connected to a listener.
 *
 * A record is made in the pipe's ADD_PRE event, which NNG gives before anything of the pipe can be
 * received, and ended in REM_POST. Pipe ids come back one day, ours do not. on_peer is called by
 * the link's task, once up and once down, in order; a record lives until both were told and its
 * requests are over.
 *
 *   ADD_PRE ──► record, in by_pipe and by_id ──► event ──► on_peer(up)
 *   REM_POST ──► out of by_pipe ──────────────► event ──► on_peer(down) ──► freed when pending is 0
 *
 * Peers are not closed by nng_pipe_close(), which can stop NNG's reaping of pipes, but by making
 * their connections end: they are marked unwanted, and the task hangs up on all of them in one go
 * (nng_shim.c).
 *
 * Threads: NNG's for the events, which only note and wake; the task; any for closing. Locks:
 * listener->lock. Failure modes: without memory, or above max_peers, a peer is refused.
 */
#include "rpc/link_nng_listener.h"

#include <stdlib.h>

enum {
    IDLE_CHECKS = 4, /* looks per idle time */
    HANG_UP_BATCH = 64
};

/* @locks holds:LINK. true: the task is to be woken. */
static bool queue_event(struct link_listener *listener, struct peer *peer)
{
    if (peer->queued)
        return false;
    peer->queued = true;
    peer->next_event = NULL;
    *listener->last_event = peer;
    listener->last_event = &peer->next_event;
    return true;
}

/* @locks holds:LINK */
static struct peer *pop_event(struct link_listener *listener)
{
    struct peer *peer = listener->events;
    if (!peer)
        return NULL;
    listener->events = peer->next_event;
    if (!listener->events)
        listener->last_event = &listener->events;
    peer->queued = false;
    return peer;
}

struct peer *peers_find(struct link_listener *listener, uint32_t pipe_id)
{
    struct peer *peer;
    HASH_FIND(by_pipe, listener->by_pipe, &pipe_id, sizeof pipe_id, peer);
    return peer;
}

void peers_release(struct link_listener *listener, struct peer *peer)
{
    if (!peer->told_down || peer->pending > 0 || peer->queued)
        return;
    HASH_DELETE(by_id, listener->by_id, peer);
    free(peer);
}

void peers_on_arriving(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)event;
    struct link_listener *listener = arg;
    struct peer *peer = calloc(1, sizeof *peer);
    bool accepted = false;
    if (peer) {
        link_pipe_address(pipe, NNG_OPT_REMADDR, &peer->pub.remote);
        peer->pipe_id = (uint32_t)nng_pipe_id(pipe);
    }
    lock_acquire(&listener->lock);
    if (peer && HASH_CNT(by_pipe, listener->by_pipe) < listener->options.max_peers &&
        atomic_load(&listener->phase) == LISTENING) {
        accepted = true;
        peer->pub.id = ++listener->last_peer_id;
        HASH_ADD(by_pipe, listener->by_pipe, pipe_id, sizeof peer->pipe_id, peer);
        HASH_ADD(by_id, listener->by_id, pub.id, sizeof peer->pub.id, peer);
        (void)queue_event(listener, peer);
    }
    lock_release(&listener->lock);
    if (accepted) {
        task_wake(listener->link->task);
        return;
    }
    free(peer);
    nng_pipe_close(pipe); /* not started yet: safe */
    log_warn(listener->link->env.log, "rpc.peer_refused", "listener=%s max_peers=%u",
             listener->address, listener->options.max_peers);
}

/* Also for pipes that were refused. */
void peers_on_gone(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    (void)event;
    struct link_listener *listener = arg;
    bool wake = false;
    lock_acquire(&listener->lock);
    struct peer *peer = peers_find(listener, (uint32_t)nng_pipe_id(pipe));
    if (peer) {
        HASH_DELETE(by_pipe, listener->by_pipe, peer);
        peer->gone = true;
        if (peer->unwanted)
            listener->unwanted--;
        peer->unwanted = false;
        wake = queue_event(listener, peer);
        if (!listener->by_pipe && listener->all_gone)
            latch_set(listener->link->env.sched, listener->all_gone);
    }
    lock_release(&listener->lock);
    if (wake)
        task_wake(listener->link->task);
}

/* ---- telling ---- */

static void tell_peers(struct link_listener *listener)
{
    const struct link_listen_options *options = &listener->options;
    for (;;) {
        lock_acquire(&listener->lock);
        struct peer *peer = pop_event(listener);
        struct link_peer pub = {0};
        bool up = false;
        bool down = false;
        if (peer) {
            pub = peer->pub;
            up = !peer->told_up;
            down = peer->gone;
            peer->told_up = true;
        }
        lock_release(&listener->lock);
        if (!peer)
            return;
        if (options->on_peer && up)
            options->on_peer(options->arg, &pub, true);
        if (options->on_peer && down)
            options->on_peer(options->arg, &pub, false);
        if (!down)
            continue;
        lock_acquire(&listener->lock);
        peer->told_down = true;
        peers_release(listener, peer);
        lock_release(&listener->lock);
    }
}

/* ---- hanging up ---- */

/* Those to hang up on, by their addresses. */
struct batch {
    uint16_t port; /* of the listener */
    bool everybody;
    unsigned count;
    struct host remotes[HANG_UP_BATCH];
    uint32_t pipe_ids[HANG_UP_BATCH];
};

static bool in_batch(void *arg, bool accepted, const struct sockaddr *local,
                     const struct sockaddr *remote)
{
    const struct batch *batch = arg;
    struct host ours;
    struct host theirs;
    link_socket_address(local, &ours);
    if (!accepted || ours.port != batch->port)
        return false;
    if (batch->everybody)
        return true;
    link_socket_address(remote, &theirs);
    for (unsigned i = 0; i < batch->count; i++)
        if (link_same_host(&theirs, &batch->remotes[i]))
            return true;
    return false;
}

/* Takes some of the unwanted. */
static void fill_batch(struct link_listener *listener, struct batch *batch)
{
    batch->count = 0;
    lock_acquire(&listener->lock);
    batch->port = listener->port;
    struct peer *peer = listener->unwanted > 0 ? listener->by_pipe : NULL;
    for (; peer && batch->count < HANG_UP_BATCH; peer = peer->by_pipe.next) {
        if (!peer->unwanted)
            continue;
        peer->unwanted = false;
        listener->unwanted--;
        batch->remotes[batch->count] = peer->pub.remote;
        batch->pipe_ids[batch->count++] = peer->pipe_id;
    }
    lock_release(&listener->lock);
}

static void hang_up_on_unwanted(struct link_listener *listener)
{
    struct batch batch = {.count = 0};
    for (;;) {
        fill_batch(listener, &batch);
        if (batch.count == 0)
            return;
        if (link_can_hang_up()) {
            (void)nng_shim_hang_up(in_batch, &batch);
            continue;
        }
        for (unsigned i = 0; i < batch.count; i++) {
            nng_pipe pipe = {.id = batch.pipe_ids[i]};
            nng_pipe_close(pipe);
        }
    }
}

/* @locks holds:LINK */
static void mark_unwanted(struct link_listener *listener, struct peer *peer)
{
    if (peer->unwanted || peer->gone)
        return;
    peer->unwanted = true;
    listener->unwanted++;
}

void peers_close(struct link_listener *listener, uint64_t peer_id)
{
    struct peer *peer;
    lock_acquire(&listener->lock);
    HASH_FIND(by_id, listener->by_id, &peer_id, sizeof peer_id, peer);
    if (peer)
        mark_unwanted(listener, peer);
    lock_release(&listener->lock);
    if (peer)
        task_wake(listener->link->task);
}

bool peers_close_all(struct link_listener *listener)
{
    struct nng_link *link = listener->link;
    struct latch all_gone;
    struct peer *peer;
    latch_init(&all_gone);
    lock_acquire(&listener->lock);
    bool none = !listener->by_pipe;
    listener->all_gone = &all_gone;
    for (peer = listener->by_pipe; peer; peer = peer->by_pipe.next)
        mark_unwanted(listener, peer);
    lock_release(&listener->lock);
    if (!none && link_can_hang_up()) {
        struct batch batch = {.port = listener->port, .everybody = true};
        (void)nng_shim_hang_up(in_batch, &batch);
    } else if (!none) {
        hang_up_on_unwanted(listener);
    }
    int64_t deadline_ns = link_now_ns(link) + ms_to_ns(LINK_GONE_WAIT_MS);
    bool gone = none || latch_wait(link->env.sched, &all_gone, deadline_ns);
    lock_acquire(&listener->lock);
    listener->all_gone = NULL;
    gone = gone || !listener->by_pipe;
    lock_release(&listener->lock);
    return gone;
}

void peers_forget(struct link_listener *listener)
{
    struct peer *peer;
    struct peer *next;
    lock_acquire(&listener->lock);
    listener->events = NULL;
    listener->last_event = &listener->events;
    HASH_ITER (by_id, listener->by_id, peer, next) {
        peer->queued = false;
        peer->gone = true;
        peer->told_down = true;
        peers_release(listener, peer);
    }
    lock_release(&listener->lock);
}

/* ---- idleness ---- */

static int64_t look_for_idle(struct link_listener *listener, int64_t now_ns)
{
    if (listener->options.idle_close_ms <= 0)
        return SCHED_NEVER;
    if (now_ns < listener->next_idle_look_ns)
        return listener->next_idle_look_ns;
    lock_acquire(&listener->lock);
    for (struct peer *peer = listener->by_pipe; peer; peer = peer->by_pipe.next)
        if (peer->pending == 0 && ++peer->idle_looks > IDLE_CHECKS)
            mark_unwanted(listener, peer);
    lock_release(&listener->lock);
    int64_t period_ns = ms_to_ns(listener->options.idle_close_ms) / IDLE_CHECKS;
    listener->next_idle_look_ns = now_ns + period_ns;
    return listener->next_idle_look_ns;
}

int64_t peers_step(struct link_member *member, int64_t now_ns)
{
    struct link_listener *listener = (struct link_listener *)member;
    tell_peers(listener);
    int64_t next_ns = look_for_idle(listener, now_ns);
    hang_up_on_unwanted(listener);
    return next_ns;
}
