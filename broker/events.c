/*
 * Events on their way to clients.
 *
 *   post ─► the client's queue ─┬─ a call is parked: it is answered with all that is pending
 *                               └─ none is: the next call gets it
 *   call (acknowledged n) ─► events up to n are forgotten, later ones are sent (again)
 *
 * What waits for a client is an event_queue (event_queue.c). A client that comes with a session of
 * another broker process, or after its queue was forgotten, is told to read everything anew.
 *
 * Invariants: a parked call has nothing pending; a client has at most one parked call.
 *
 * Timeouts hang in a wheel of TICK_MS slots; the longest wait is shorter than its circumference.
 *
 * Threads: any. Under the lock answers are only prepared in their requests' memory; they are sent
 * after it was released. Failure modes: without memory an event becomes a resync; beyond
 * EVENT_CLIENTS_MAX new clients get no events, which costs them the next periodic rebalance.
 */
#include "broker/events_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/names.h"
#include "base/rng.h"

enum {
    TICK_MS = 250,
    WHEEL_SLOTS = 512,
    SUSPEND_MAX_MS = 120000,
    LATENESS_MS = 2 * TICK_MS, /* of an answer whose time is up: one tick up, one step late */
    FORGET_MS = 300000,
    LISTENS_MS = 5000, /* a client whose call was answered so lately comes again */
    RELIEVE_BATCH = 32
};
_Static_assert(SUSPEND_MAX_MS < (WHEEL_SLOTS - 2) * TICK_MS, "a wait must fit into the wheel");

struct event_client {
    struct event_queue queue;
    int64_t seen_ns;
    struct event_client *age_prev, *age_next; /* all, by seen_ns */
    /* a parked call */
    struct rpc_request *parked; /* NULL: none, and the rest is meaningless */
    struct event_peer *peer;
    int64_t tick;
    struct event_client *wheel_prev, *wheel_next;
    struct event_client *peer_prev, *peer_next;
    struct event_client *park_prev, *park_next; /* all parked, oldest first */
    UT_hash_handle hh;
    char id[];
};

/* A connection with parked calls. */
struct event_peer {
    uint64_t id;
    struct event_client *parked; /* oldest first */
    UT_hash_handle hh;
};

struct events {
    struct env env;
    uint64_t session;

    struct lock lock; /* protects the rest */
    struct event_client *clients, *oldest;
    struct event_peer *peers;
    struct event_client *parked;
    uint32_t parked_count;
    struct event_client *wheel[WHEEL_SLOTS];
    int64_t last_tick; /* all slots up to it were looked at */
};

/* ---- answers ---- */

/*
 * Prepares the answer with all that is pending and leaves it in request->user; NULL there: no
 * memory. client NULL: an answer with nothing. @locks holds:BROKER_EVENTS
 */
static void prepare(struct events *events, struct event_client *client, struct rpc_request *request)
{
    request->user = NULL;
    struct event_answer *answer = rpc_request_alloc(request, sizeof *answer);
    if (!answer)
        return;
    tern__wire__response__init(&answer->response);
    tern__wire__wait_events_response__init(&answer->body);
    answer->response.body_case = TERN__WIRE__RESPONSE__BODY_WAIT_EVENTS;
    answer->response.wait_events = &answer->body;
    answer->body.session = events->session;
    if (client && !event_queue_put(&client->queue, request, answer))
        return;
    if (client)
        client->queue.greeted = true;
    request->user = answer;
}

/* Sends prepared answers, linked by `next`. @locks none */
static void send_all(struct rpc_request *list)
{
    while (list) {
        struct rpc_request *request = list;
        struct event_answer *answer = request->user;
        list = request->next;
        request->next = NULL;
        if (answer)
            rpc_reply(request, &answer->response, 0);
        else
            rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the events");
    }
}

/* ---- clients; @locks holds:BROKER_EVENTS ---- */

static void touch(struct events *events, struct event_client *client, int64_t now_ns)
{
    client->seen_ns = now_ns;
    DL_DELETE2(events->oldest, client, age_prev, age_next);
    DL_APPEND2(events->oldest, client, age_prev, age_next);
}

/* NULL: at the limit or no memory. */
static struct event_client *want_client(struct events *events, const char *id)
{
    struct event_client *client;
    HASH_FIND_STR(events->clients, id, client);
    if (client || HASH_COUNT(events->clients) >= EVENT_CLIENTS_MAX)
        return client;
    size_t len = strlen(id);
    client = calloc(1, sizeof *client + len + 1);
    if (!client)
        return NULL;
    memcpy(client->id, id, len + 1);
    client->queue.next_number = 1;
    HASH_ADD_KEYPTR(hh, events->clients, client->id, (unsigned)len, client);
    if (!client->hh.tbl) {
        free(client);
        return NULL;
    }
    client->seen_ns = clock_mono_ns(events->env.clock);
    DL_APPEND2(events->oldest, client, age_prev, age_next);
    return client;
}

static void client_free(struct events *events, struct event_client *client)
{
    event_queue_drop(&client->queue, UINT64_MAX);
    DL_DELETE2(events->oldest, client, age_prev, age_next);
    HASH_DELETE(hh, events->clients, client);
    free(client);
}

/* ---- parking; @locks holds:BROKER_EVENTS ---- */

static struct event_peer *want_peer(struct events *events, uint64_t id)
{
    struct event_peer *peer;
    HASH_FIND(hh, events->peers, &id, sizeof id, peer);
    if (peer)
        return peer;
    peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->id = id;
    HASH_ADD(hh, events->peers, id, sizeof peer->id, peer);
    if (!peer->hh.tbl) {
        free(peer);
        return NULL;
    }
    return peer;
}

/* false: no memory. */
static bool park(struct events *events, struct event_client *client, struct rpc_request *request,
                 int64_t deadline_ns)
{
    struct event_peer *peer = want_peer(events, request->peer.id);
    if (!peer)
        return false;
    client->peer = peer;
    client->parked = request;
    client->tick = deadline_ns / ms_to_ns(TICK_MS) + 1;
    DL_APPEND2(events->wheel[client->tick % WHEEL_SLOTS], client, wheel_prev, wheel_next);
    DL_APPEND2(peer->parked, client, peer_prev, peer_next);
    DL_APPEND2(events->parked, client, park_prev, park_next);
    events->parked_count++;
    return true;
}

/* Takes the parked call out and puts its prepared answer at the list's front. */
static void unpark(struct events *events, struct event_client *client, struct rpc_request **list)
{
    struct rpc_request *request = client->parked;
    struct event_peer *peer = client->peer;
    DL_DELETE2(events->wheel[client->tick % WHEEL_SLOTS], client, wheel_prev, wheel_next);
    DL_DELETE2(peer->parked, client, peer_prev, peer_next);
    DL_DELETE2(events->parked, client, park_prev, park_next);
    if (!peer->parked) {
        HASH_DELETE(hh, events->peers, peer);
        free(peer);
    }
    client->parked = NULL;
    client->peer = NULL;
    events->parked_count--;
    touch(events, client, clock_mono_ns(events->env.clock));
    prepare(events, client, request);
    request->next = *list;
    *list = request;
}

/* ---- the call ---- */

/* Until when the call may be parked; not beyond what its sender waits. */
static int64_t park_deadline(const struct rpc_request *request)
{
    int64_t suspend_ms = request->header->wait_events->suspend_timeout_ms;
    int64_t patience_ns = (request->deadline_ns - request->received_ns) / 10 * 9;
    if (suspend_ms > SUSPEND_MAX_MS)
        suspend_ms = SUSPEND_MAX_MS;
    patience_ns -= ms_to_ns(LATENESS_MS);
    int64_t wait_ns = ms_to_ns(suspend_ms);
    return request->received_ns + (wait_ns < patience_ns ? wait_ns : patience_ns);
}

/* @locks holds:BROKER_EVENTS */
static void wait_locked(struct events *events, const char *client_id, struct rpc_request *request,
                        struct rpc_request **answers)
{
    int64_t now_ns = clock_mono_ns(events->env.clock);
    int64_t deadline_ns = park_deadline(request);
    const Tern__Wire__WaitEventsRequest *wait = request->header->wait_events;
    struct event_client *client = want_client(events, client_id);
    if (client) {
        if (client->parked)
            unpark(events, client, answers);
        touch(events, client, now_ns);
        /* session 0: it has not met anybody, and has missed nothing */
        if (wait->session != 0)
            event_queue_acknowledge(&client->queue, wait->session == events->session,
                                    wait->acknowledged);
        if (!client->queue.count && !client->queue.resync && deadline_ns > now_ns &&
            park(events, client, request, deadline_ns))
            return;
    }
    prepare(events, client, request);
    request->next = *answers;
    *answers = request;
}

void events_wait(struct events *events, struct rpc_request *request)
{
    struct tern_error err;
    struct rpc_request *answers = NULL;
    const TernRequest *header = request->header;
    enum tern_code code = client_id_check(header->client_id.data, header->client_id.len, &err);
    if (code) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    if (header->wait_events->acknowledged > INT64_MAX) {
        rpc_reply_error(request, TERN_INVALID, "acknowledged %" PRIu64 " is above %" PRId64,
                        header->wait_events->acknowledged, INT64_MAX);
        return;
    }
    const char *client_id = frame_text(rpc_request_arena(request), &header->client_id);
    if (!client_id) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for the call");
        return;
    }
    lock_acquire(&events->lock);
    wait_locked(events, client_id, request, &answers);
    lock_release(&events->lock);
    send_all(answers);
}

/* ---- posting ---- */

static void post(struct events *events, const char *client_id, enum event_kind kind,
                 const char *group, const char *topic)
{
    struct rpc_request *answers = NULL;
    struct event *event = event_make(kind, group, topic);
    lock_acquire(&events->lock);
    struct event_client *client = want_client(events, client_id);
    if (client) {
        event_queue_add(&client->queue, event);
        if (client->parked)
            unpark(events, client, &answers);
    }
    lock_release(&events->lock);
    if (!client) {
        free(event);
        log_warn(events->env.log, "event_lost", "client=\"%s\" group=%s", client_id, group);
    }
    send_all(answers);
}

void events_post_members_changed(struct events *events, const char *client_id, const char *group)
{
    post(events, client_id, EVENT_MEMBERS_CHANGED, group, NULL);
}

void events_post_offset_reset(struct events *events, const char *client_id, const char *group,
                              const char *topic)
{
    post(events, client_id, EVENT_OFFSET_RESET, group, topic);
}

/* Whether a check can be handed to it now. @locks holds:BROKER_EVENTS */
static enum tern_code takes_checks(struct events *events, const struct event_client *client)
{
    if (!client || (!client->parked &&
                    (!client->queue.greeted ||
                     clock_mono_ns(events->env.clock) - client->seen_ns >= ms_to_ns(LISTENS_MS))))
        return TERN_NOT_FOUND;
    bool full = event_queue_others(&client->queue) >= EVENT_CHECKS_PER_CLIENT ||
                client->queue.resync > client->queue.sent;
    return full ? TERN_LIMIT : TERN_OK;
}

enum tern_code events_post_check_transaction(struct events *events, const char *client_id,
                                             const struct event_check *check)
{
    struct rpc_request *answers = NULL;
    struct event_client *client;
    struct event *event = event_make(EVENT_CHECK_TRANSACTION, check->group, check->message_id);
    if (!event)
        return TERN_NO_MEMORY;
    event->half_off = check->half_off;
    event->phys_off = check->phys_off;
    event->times = check->times;
    lock_acquire(&events->lock);
    HASH_FIND_STR(events->clients, client_id, client);
    enum tern_code code = takes_checks(events, client);
    if (code == TERN_OK) {
        event_queue_add(&client->queue, event);
        if (client->parked)
            unpark(events, client, &answers);
    }
    lock_release(&events->lock);
    if (code != TERN_OK)
        free(event);
    send_all(answers);
    return code;
}

/* Whether the client's queue takes one more reply. An id that nobody has come with is taken only
 * while there is ample room, so that made-up ones displace nobody. @locks holds:BROKER_EVENTS */
static struct event_client *replied_client(struct events *events, const char *client_id)
{
    struct event_client *client;
    HASH_FIND_STR(events->clients, client_id, client);
    if (!client && HASH_COUNT(events->clients) < EVENT_CLIENTS_MAX / 2)
        client = want_client(events, client_id);
    return client && client->queue.replies < EVENT_REPLIES_PER_CLIENT ? client : NULL;
}

void events_post_reply(struct events *events, const char *client_id, const char *correlation_id,
                       int64_t phys_off)
{
    struct rpc_request *answers = NULL;
    struct event *event = event_make(EVENT_REPLY, correlation_id, NULL);
    if (event)
        event->phys_off = phys_off;
    lock_acquire(&events->lock);
    struct event_client *client = event ? replied_client(events, client_id) : NULL;
    if (client) {
        event_queue_add(&client->queue, event);
        if (client->parked)
            unpark(events, client, &answers);
    }
    lock_release(&events->lock);
    if (!client) {
        free(event);
        log_warn(events->env.log, "event_lost", "client=\"%s\" reply=%s", client_id,
                 correlation_id);
    }
    send_all(answers);
}

/* ---- time, peers, pressure ---- */

void events_peer_gone(struct events *events, uint64_t peer_id)
{
    struct rpc_request *answers = NULL;
    struct event_peer *peer;
    lock_acquire(&events->lock);
    HASH_FIND(hh, events->peers, &peer_id, sizeof peer_id, peer);
    while (peer) {
        bool last = !peer->parked->peer_next;
        unpark(events, peer->parked, &answers);
        if (last) /* the peer went with it */
            peer = NULL;
    }
    lock_release(&events->lock);
    send_all(answers);
}

int64_t events_step(struct events *events, int64_t now_ns)
{
    struct rpc_request *answers = NULL;
    int64_t now_tick = now_ns / ms_to_ns(TICK_MS);
    lock_acquire(&events->lock);
    int64_t tick = events->last_tick + 1;
    if (tick <= now_tick - WHEEL_SLOTS)
        tick = now_tick - WHEEL_SLOTS + 1;
    for (; tick <= now_tick; tick++) {
        struct event_client *client = events->wheel[tick % WHEEL_SLOTS];
        while (client) {
            struct event_client *next = client->wheel_next;
            if (client->tick <= now_tick)
                unpark(events, client, &answers);
            client = next;
        }
    }
    if (now_tick > events->last_tick)
        events->last_tick = now_tick;
    while (events->oldest && !events->oldest->parked &&
           now_ns - events->oldest->seen_ns >= ms_to_ns(FORGET_MS))
        client_free(events, events->oldest);
    lock_release(&events->lock);
    send_all(answers);
    return now_ns + ms_to_ns(TICK_MS);
}

void events_relieve(struct events *events, uint64_t peer_id)
{
    struct rpc_request *answers = NULL;
    struct event_peer *peer = NULL;
    lock_acquire(&events->lock);
    if (peer_id)
        HASH_FIND(hh, events->peers, &peer_id, sizeof peer_id, peer);
    for (int i = 0; i < RELIEVE_BATCH; i++) {
        struct event_client *client = peer_id ? (peer ? peer->parked : NULL) : events->parked;
        if (!client)
            break;
        if (peer && !client->peer_next) /* it goes with this one */
            peer = NULL;
        unpark(events, client, &answers);
    }
    lock_release(&events->lock);
    send_all(answers);
}

uint32_t events_parked(struct events *events)
{
    lock_acquire(&events->lock);
    uint32_t count = events->parked_count;
    lock_release(&events->lock);
    return count;
}

/* ---- life ---- */

enum tern_code events_create(const struct env *env, struct events **out)
{
    struct events *events = calloc(1, sizeof *events);
    *out = events;
    if (!events)
        return TERN_NO_MEMORY;
    events->env = *env;
    do
        events->session = rng_next(env->rng);
    while (events->session == 0);
    lock_init(&events->lock, LOCK_BROKER_EVENTS);
    return TERN_OK;
}

void events_destroy(struct events *events)
{
    if (!events)
        return;
    struct rpc_request *answers = NULL;
    lock_acquire(&events->lock);
    while (events->parked)
        unpark(events, events->parked, &answers);
    while (events->oldest)
        client_free(events, events->oldest);
    lock_release(&events->lock);
    send_all(answers);
    lock_fini(&events->lock);
    free(events);
}
