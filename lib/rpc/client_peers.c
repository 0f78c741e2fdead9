/*
 * Peers: connections by address, in one list (a process talks to tens of servers), and whether they
 * are still there.
 *
 *              link: up                      silence_ms without an answer
 *   (dialled) ─────────► UP ──call──► UP ───────────────────────────────► UP, pinged
 *        ▲                ▲                        any answer ◄──┘             │ SILENCE_DROP_MS
 *        │ link: lost     │ any answer                                        ▼
 *        └── from all ──  DOUBTED, pinged ◄──link: up── DOUBTED, dialled ◄── dropped
 *
 * A host that is gone, a process that is stopped or a cable that was pulled resets nothing: calls
 * would wait for their deadlines and go on being sent there. So a peer with unanswered calls that
 * says nothing for silence_ms is pinged, beside the calls; when nothing at all arrives within
 * another SILENCE_DROP_MS, its connection is dropped, which ends its calls. From then on a
 * connection alone does not count: the peer is pinged as soon as it is connected, and up with its
 * first answer.
 *
 * Cost: a clock reading per answer, and per second one look and at most one ping per peer with
 * unanswered calls. Without calls, nothing; the first call after a pause wakes the task.
 *
 * A peer without references is kept for PEER_IDLE_MS, then the client's task closes it. Every call
 * that exists counts as a reference (peer->held), but without the lock.
 *
 * Invariants: the task alone takes peers off the list, so it may walk it without the lock. Whoever
 * makes a call counts it in `open` before it looks at `watching`; the task clears `watching` before
 * it looks at `open` a last time: no call is overlooked.
 *
 * Threads: any; states come on the link's threads and from the task. Locks: client->lock for the
 * list and its counts, never held while calling out. Failure modes: without memory for a ping the
 * next look tries again. Whole messages count as answers, not bytes: a connection that needs longer
 * than silence_ms + SILENCE_DROP_MS for one message is taken for dead.
 */
#include "rpc/client_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    PEER_IDLE_MS = 60000,
    ATTEMPT_TIMEOUT_MS = 5000,
    SILENCE_DROP_MS = 1500,
    PING_AGAIN_MS = 100, /* after one that could not be sent */
    LATE_MS = 300        /* a look that comes so much too late blames nobody */
};

/* ---- up and down ---- */

/* Tells the owner when that is news. @locks none */
static void tell(struct rpc_peer *peer, bool up)
{
    struct rpc_client *client = peer->client;
    if (atomic_load(&peer->up) != up)
        atomic_store(&peer->up_since_ns, clock_mono_ns(client->env.clock));
    bool was = atomic_exchange(&peer->up, up);
    if (was != up && client->options.on_peer_state && !atomic_load(&peer->doomed))
        client->options.on_peer_state(client->options.arg, peer, up);
}

/* It lives. @thread any */
static void note_sign(struct rpc_peer *peer)
{
    atomic_store_explicit(&peer->heard_ns, clock_mono_ns(peer->client->env.clock),
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&peer->signs, 1, memory_order_release);
}

/* @thread link's */
static void on_conn_state(void *arg, bool up)
{
    struct rpc_peer *peer = arg;
    if (up)
        note_sign(peer);
    atomic_store(&peer->lost, !up);
    atomic_store(&peer->linked, up);
    if (up && atomic_load(&peer->doubted))
        client_wake(peer->client); /* to ping it */
    else
        tell(peer, up);
}

bool rpc_peer_up(const struct rpc_peer *peer)
{
    return atomic_load(&peer->up);
}

bool rpc_peer_down(const struct rpc_peer *peer)
{
    return !atomic_load(&peer->up) && (atomic_load(&peer->lost) || atomic_load(&peer->doubted));
}

int64_t rpc_peer_up_since_ns(const struct rpc_peer *peer)
{
    return atomic_load(&peer->up_since_ns);
}

void rpc_peer_retry_now(struct rpc_peer *peer)
{
    struct rpc_client *client = peer->client;
    if (atomic_load(&peer->up) || !rpc_gate_enter(&client->gate))
        return;
    link_conn_retry_now(client->link, peer->conn);
    rpc_gate_leave(&client->gate, client->env.sched);
}

/* ---- silence ---- */

void peer_asked(struct rpc_peer *peer, int64_t now_ns)
{
    struct rpc_client *client = peer->client;
    atomic_fetch_add(&peer->open, 1);
    if (client->options.silence_ms <= 0)
        return;
    if (atomic_load_explicit(&peer->asked_ns, memory_order_relaxed) <=
        atomic_load_explicit(&peer->heard_ns, memory_order_relaxed))
        atomic_store_explicit(&peer->asked_ns, now_ns, memory_order_relaxed);
    if (!atomic_load(&client->watching) && !atomic_exchange(&client->watching, true))
        client_wake(client);
}

void peer_heard(struct rpc_peer *peer)
{
    struct rpc_client *client = peer->client;
    if (client->options.silence_ms <= 0)
        return;
    note_sign(peer);
    if (!atomic_load(&peer->doubted) || !atomic_exchange(&peer->doubted, false))
        return;
    if (atomic_load(&peer->linked))
        tell(peer, true);
    if (!atomic_load(&peer->linked)) /* lost meanwhile */
        tell(peer, false);
}

/* @thread the client's task */
static void drop_silent(struct rpc_peer *peer, int64_t now_ns)
{
    struct rpc_client *client = peer->client;
    log_warn(client->env.log, "rpc.peer_silent",
             "address=%s silent_ms=%lld calls=%u action=\"connection dropped, dialling again\"",
             peer->address, (long long)((now_ns - atomic_load(&peer->heard_ns)) / 1000000),
             (unsigned)atomic_load(&peer->open));
    peer->pinged_ns = 0;
    atomic_store(&peer->doubted, true);
    atomic_store(&peer->linked, false);
    tell(peer, false);
    link_conn_drop(client->link, peer->conn);
}

/* Asks or drops the peer when it is time; returns when to look again, SCHED_NEVER: when called. */
static int64_t watch_peer(struct rpc_peer *peer, int64_t now_ns)
{
    const struct rpc_client *client = peer->client;
    uint32_t signs = atomic_load_explicit(&peer->signs, memory_order_acquire);
    int64_t heard_ns = atomic_load(&peer->heard_ns);
    int64_t asked_ns = atomic_load(&peer->asked_ns);
    bool doubted = atomic_load(&peer->doubted);
    bool waits = atomic_load(&peer->open) > 0 || asked_ns > heard_ns;
    if (peer->pinged_signs != signs)
        peer->pinged_ns = 0;
    if (!atomic_load(&peer->linked) || (!waits && !doubted && peer->pinged_ns == 0)) {
        peer->pinged_ns = 0;
        return SCHED_NEVER;
    }
    if (peer->pinged_ns > 0) {
        int64_t drop_ns = peer->pinged_ns + ms_to_ns(SILENCE_DROP_MS);
        if (now_ns < drop_ns)
            return drop_ns;
        if (now_ns - drop_ns > ms_to_ns(LATE_MS)) { /* this process stood still; what came waits */
            peer->pinged_ns += now_ns - drop_ns + ms_to_ns(LATE_MS);
            return now_ns + ms_to_ns(LATE_MS);
        }
        drop_silent(peer, now_ns);
        return SCHED_NEVER;
    }
    int64_t since_ns = asked_ns > heard_ns ? asked_ns : heard_ns;
    int64_t ping_ns = doubted ? now_ns : since_ns + ms_to_ns(client->options.silence_ms);
    if (now_ns < ping_ns)
        return ping_ns;
    peer->pinged_signs = signs;
    peer->pinged_ns = now_ns;
    if (client_ping(peer, SILENCE_DROP_MS) != TERN_OK) {
        peer->pinged_ns = 0;
        return now_ns + ms_to_ns(PING_AGAIN_MS);
    }
    return now_ns + ms_to_ns(client->options.silence_ms); /* answered by then, most likely */
}

static int64_t watch_all(struct rpc_client *client, int64_t now_ns)
{
    int64_t next_ns = SCHED_NEVER;
    lock_acquire(&client->lock);
    struct rpc_peer *peer = client->peers;
    lock_release(&client->lock);
    for (; peer; peer = peer->next) {
        int64_t due_ns = watch_peer(peer, now_ns);
        if (due_ns < next_ns)
            next_ns = due_ns;
    }
    return next_ns;
}

static int64_t watch(struct rpc_client *client, int64_t now_ns)
{
    if (client->options.silence_ms <= 0)
        return SCHED_NEVER;
    int64_t next_ns = watch_all(client, now_ns);
    if (next_ns != SCHED_NEVER) {
        atomic_store(&client->watching, true);
        return next_ns;
    }
    atomic_store(&client->watching, false);
    next_ns = watch_all(client, now_ns);
    if (next_ns != SCHED_NEVER)
        atomic_store(&client->watching, true);
    return next_ns;
}

/* ---- the list ---- */

/* @locks holds:RPC_CLIENT */
static struct rpc_peer *find_peer(struct rpc_client *client, const char *address)
{
    struct rpc_peer *peer = client->peers;
    while (peer && strcmp(peer->address, address) != 0)
        peer = peer->next;
    return peer;
}

static enum tern_code dial_peer(struct rpc_client *client, const char *address,
                                struct rpc_peer **out, struct tern_error *err)
{
    size_t len = strlen(address);
    struct rpc_peer *peer = calloc(1, sizeof *peer + len + 1);
    if (!peer)
        return error_set(err, TERN_NO_MEMORY, "peer %s", address);
    memcpy(peer->address, address, len + 1);
    peer->client = client;
    peer->refs = 1;
    struct link_dial_options options = {
        .address = peer->address,
        .max_message_bytes = client->options.max_message_bytes,
        .reconnect_min_ms = client->options.reconnect_min_ms,
        .reconnect_max_ms = client->options.reconnect_max_ms,
        .attempt_timeout_ms = ATTEMPT_TIMEOUT_MS,
        .connect_wait_ms = client->options.connect_wait_ms,
        .arg = peer,
        .on_state = on_conn_state,
    };
    enum tern_code code = link_dial(client->link, &options, &peer->conn, err);
    if (code != TERN_OK) {
        free(peer);
        return code;
    }
    *out = peer;
    return TERN_OK;
}

enum tern_code rpc_peer_get(struct rpc_client *client, const char *address, struct rpc_peer **out,
                            struct tern_error *err)
{
    lock_acquire(&client->lock);
    struct rpc_peer *peer = find_peer(client, address);
    if (peer)
        peer->refs++;
    lock_release(&client->lock);
    *out = peer;
    if (peer)
        return TERN_OK;
    struct rpc_peer *fresh = NULL;
    enum tern_code code = dial_peer(client, address, &fresh, err);
    if (code != TERN_OK)
        return code;
    lock_acquire(&client->lock);
    peer = find_peer(client, address);
    if (peer) { /* somebody was faster */
        peer->refs++;
        atomic_store(&fresh->doomed, true);
        fresh->next = client->doomed;
        client->doomed = fresh;
    } else {
        peer = fresh;
        peer->next = client->peers;
        client->peers = peer;
    }
    lock_release(&client->lock);
    if (peer != fresh)
        client_wake(client);
    *out = peer;
    return TERN_OK;
}

struct rpc_peer *rpc_peer_ref(struct rpc_peer *peer)
{
    lock_acquire(&peer->client->lock);
    peer->refs++;
    lock_release(&peer->client->lock);
    return peer;
}

void rpc_peer_unref(struct rpc_peer *peer)
{
    if (!peer)
        return;
    struct rpc_client *client = peer->client;
    int64_t now_ns = clock_mono_ns(client->env.clock);
    lock_acquire(&client->lock);
    ENSURE(peer->refs > 0);
    bool idle = --peer->refs == 0;
    if (idle)
        peer->idle_since_ns = now_ns;
    lock_release(&client->lock);
    if (idle)
        client_wake(client);
}

const char *rpc_peer_address(const struct rpc_peer *peer)
{
    return peer->address;
}

static void close_peer(struct rpc_peer *peer)
{
    link_conn_close(peer->client->link, peer->conn);
    free(peer);
}

/* One peer that nobody has wanted for long enough, or NULL; *next_ns: when to look again. */
static struct rpc_peer *take_idle_peer(struct rpc_client *client, int64_t now_ns, int64_t *next_ns)
{
    *next_ns = SCHED_NEVER;
    lock_acquire(&client->lock);
    struct rpc_peer *found = client->doomed;
    if (found)
        client->doomed = found->next;
    for (struct rpc_peer **at = &client->peers; *at && !found; at = &(*at)->next) {
        struct rpc_peer *peer = *at;
        int64_t due_ns = peer->idle_since_ns + ms_to_ns(PEER_IDLE_MS);
        if (peer->refs > 0)
            continue;
        if (atomic_load(&peer->held) > 0) /* answers that somebody keeps: look again later */
            due_ns = now_ns + ms_to_ns(PEER_IDLE_MS);
        if (due_ns <= now_ns) {
            *at = peer->next;
            found = peer;
            break;
        }
        if (due_ns < *next_ns)
            *next_ns = due_ns;
    }
    lock_release(&client->lock);
    return found;
}

int64_t client_peers_step(struct rpc_client *client, int64_t now_ns)
{
    int64_t idle_ns;
    struct rpc_peer *idle;
    while ((idle = take_idle_peer(client, now_ns, &idle_ns)) != NULL)
        close_peer(idle);
    int64_t watch_ns = watch(client, now_ns);
    return watch_ns < idle_ns ? watch_ns : idle_ns;
}
