/*
 * What a client tells its brokers: heartbeats every 30 s and at once when an address is new, came
 * back, or a group was added; a goodbye when a group leaves.
 *
 * A client with producers only beats masters; with consumers it beats every address, since
 * consumers may read from slaves. The answer says which address the broker sees, whose family
 * prepared records need.
 *
 * Calls to several brokers that one thread may wait for are a round, which lives until the waiter
 * and the last answer are done with it.
 *
 * Threads: any; callbacks on link threads only note what came. Failure modes: a beat that fails is
 * repeated after 30 s or when the connection comes back.
 */
#include "client/instance_internal.h"

#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

/* ---- rounds: calls to several brokers that one thread may wait for ---- */

struct round {
    _Atomic uint32_t refs; /* the maker's and one per call */
    _Atomic uint32_t left;
    struct sched *sched;
    struct latch latch;
};

static void round_unref(struct round *round)
{
    if (round && atomic_fetch_sub_explicit(&round->refs, 1, memory_order_acq_rel) == 1)
        free(round);
}

static struct round *round_create(struct instance *instance)
{
    struct round *round = calloc(1, sizeof *round);
    if (!round)
        return NULL;
    round->refs = 1;
    round->left = 1; /* the maker's, so that it is not set while calls are still being started */
    round->sched = instance->env->sched;
    latch_init(&round->latch);
    return round;
}

static void round_one_done(struct round *round)
{
    if (round && atomic_fetch_sub_explicit(&round->left, 1, memory_order_acq_rel) == 1)
        latch_set(round->sched, &round->latch);
}

/* Waits for all calls of the round, at most until the deadline; frees the maker's part. */
static void round_wait(struct round *round, int64_t deadline_ns)
{
    if (!round)
        return;
    round_one_done(round);
    /* Late answers hold the round themselves. */
    (void)!latch_wait(round->sched, &round->latch, deadline_ns);
    round_unref(round);
}

struct round_call {
    struct broker_link *link;
    struct round *round; /* may be NULL */
    void (*answered)(struct broker_link *link, struct rpc_call *call);
};

/* @thread link's */
static void round_call_done(struct rpc_call *call, void *arg)
{
    struct round_call *rc = arg;
    if (rc->answered)
        rc->answered(rc->link, call);
    rpc_call_unref(call);
    broker_link_unref(rc->link);
    round_one_done(rc->round);
    round_unref(rc->round);
    free(rc);
}

/* false: not started. @locks none */
static bool round_call_start(struct round *round, struct broker_link *link, TernRequest *request,
                             int64_t timeout_ms,
                             void (*answered)(struct broker_link *, struct rpc_call *))
{
    struct rpc_call *call;
    struct round_call *rc = malloc(sizeof *rc);
    if (!rc || rpc_call_create(link->peer, 0, &call) != TERN_OK) {
        free(rc);
        return false;
    }
    rc->link = broker_link_ref(link);
    rc->round = round;
    rc->answered = answered;
    if (round) {
        atomic_fetch_add(&round->refs, 1);
        atomic_fetch_add(&round->left, 1);
    }
    rpc_call_start(call, request, 0, timeout_ms, round_call_done, rc);
    return true;
}

/* References to at most cap links that `wanted` picks. @locks takes:CLIENT */
static size_t pick_links(struct instance *instance,
                         bool (*wanted)(struct broker_link *, int64_t now_ns), int64_t now_ns,
                         struct broker_link ***out)
{
    size_t count = 0;
    lock_acquire(&instance->lock);
    size_t total = HASH_COUNT(instance->brokers);
    struct broker_link **links = malloc((total + 1) * sizeof(struct broker_link *));
    struct broker_link *link;
    struct broker_link *next;
    HASH_ITER (hh, instance->brokers, link, next) {
        if (links && wanted(link, now_ns))
            links[count++] = broker_link_ref(link);
    }
    lock_release(&instance->lock);
    *out = links;
    return count;
}

static void free_links(struct broker_link **links, size_t count)
{
    for (size_t i = 0; i < count; i++)
        broker_link_unref(links[i]);
    free(links);
}

/* ---- heartbeats ---- */

/* @locks holds:CLIENT */
static bool beat_due(struct broker_link *link, int64_t now_ns)
{
    struct instance *instance = link->instance;
    if (link->beating || link->beat_due_ns > now_ns)
        return false;
    if (!instance_has_members(instance) && (!instance->producers || !link->master))
        return false;
    link->beating = true;
    link->beat_due_ns = now_ns + ms_to_ns(HEARTBEAT_MS);
    return true;
}

/* Groups that left us out: noted for who starts, said once per reason. @thread link's */
static void note_refused(struct instance *instance, const struct broker_link *link,
                         const Tern__Wire__RefusedGroup *refused)
{
    bool fresh = false;
    lock_acquire(&instance->lock);
    for (struct instance_consumer *c = instance->consumers; c; c = c->next) {
        if (strlen(c->group) != refused->group.len ||
            memcmp(c->group, refused->group.data, refused->group.len) != 0)
            continue;
        fresh = strcmp(c->refused.text, refused->reason) != 0;
        error_set(&c->refused, TERN_SUBSCRIPTION_DIFFERS, "%s", refused->reason);
    }
    lock_release(&instance->lock);
    if (fresh)
        log_error(instance->env->log, "consumer_refused", "address=%s cause=\"%s\"", link->address,
                  refused->reason);
}

bool instance_consumer_refused(struct instance *instance, struct instance_consumer *consumer,
                               struct tern_error *err)
{
    lock_acquire(&instance->lock);
    bool refused = consumer->refused.text[0] != 0;
    if (refused && err)
        *err = consumer->refused;
    lock_release(&instance->lock);
    return refused;
}

/* @thread link's */
static void beat_answered(struct broker_link *link, struct rpc_call *call)
{
    struct instance *instance = link->instance;
    enum born_family family = BORN_UNKNOWN;
    const Tern__Wire__HeartbeatResponse *body = NULL;
    if (call->response && call->response->body_case == TERN__WIRE__RESPONSE__BODY_HEARTBEAT)
        body = call->response->heartbeat;
    for (size_t i = 0; body && i < body->n_refused; i++)
        note_refused(instance, link, body->refused[i]);
    if (body && body->seen_as)
        family = body->seen_as->ip.len == 16 ? BORN_V6 : BORN_V4;
    lock_acquire(&instance->lock);
    link->beating = false;
    if (family != BORN_UNKNOWN)
        link->family = family;
    lock_release(&instance->lock);
}

/* The groups whose transactions we answer for. @locks holds:CLIENT */
static void add_checked(struct instance *instance, struct arena *arena,
                        Tern__Wire__HeartbeatRequest *beat)
{
    size_t count = 0;
    for (const struct instance_checker *c = instance->checkers; c; c = c->next)
        count++;
    beat->checked_groups = arena_alloc(arena, count * sizeof *beat->checked_groups);
    for (const struct instance_checker *c = instance->checkers; c && beat->checked_groups;
         c = c->next) {
        size_t len = strlen(c->group);
        char *name = arena_alloc(arena, len);
        if (name)
            beat->checked_groups[beat->n_checked_groups++] =
                frame_bytes(memcpy(name, c->group, len), len);
    }
}

/* The request's parts lie in the members' arena. */
static Tern__Wire__HeartbeatRequest *heartbeat_build(struct instance *instance,
                                                     struct members *members)
{
    struct arena *arena = &members->arena;
    Tern__Wire__HeartbeatRequest *beat = arena_alloc(arena, sizeof *beat);
    if (!beat)
        return NULL;
    *beat = (Tern__Wire__HeartbeatRequest)TERN__WIRE__HEARTBEAT_REQUEST__INIT;
    beat->n_consumers = members->count;
    beat->consumers = members->data;
    beat->language = (char *)(uintptr_t) "C";
    beat->client_version = (char *)(uintptr_t)tern_version();
    lock_acquire(&instance->lock);
    beat->producer_groups =
        arena_alloc(arena, instance->producer_count * sizeof *beat->producer_groups);
    for (struct producer_group *g = instance->producers; g && beat->producer_groups; g = g->next) {
        size_t len = strlen(g->name);
        char *name = arena_alloc(arena, len);
        if (!name)
            continue;
        memcpy(name, g->name, len);
        beat->producer_groups[beat->n_producer_groups++] = frame_bytes(name, len);
    }
    add_checked(instance, arena, beat);
    lock_release(&instance->lock);
    return beat;
}

/* Beats to the addresses where it is due. @locks none */
static void beat_all_due(struct instance *instance, int64_t now_ns, struct round *round)
{
    struct broker_link **links;
    size_t count = pick_links(instance, beat_due, now_ns, &links);
    struct members members;
    Tern__Wire__HeartbeatRequest *beat = NULL;
    bool described = count > 0 && members_describe(instance, &members) == TERN_OK;
    if (described)
        beat = heartbeat_build(instance, &members);
    for (size_t i = 0; i < count; i++) {
        TernRequest request = TERN__WIRE__REQUEST__INIT;
        request.body_case = TERN__WIRE__REQUEST__BODY_HEARTBEAT;
        request.heartbeat = beat;
        if (beat && round_call_start(round, links[i], &request, RPC_TIMEOUT_MS, beat_answered))
            continue;
        lock_acquire(&instance->lock);
        links[i]->beating = false;
        links[i]->beat_due_ns = now_ns + ms_to_ns(ROUTE_RETRY_MS);
        lock_release(&instance->lock);
    }
    if (described)
        members_release(instance, &members);
    free_links(links, count);
}

int64_t heartbeat_step(struct instance *instance, int64_t now_ns)
{
    beat_all_due(instance, now_ns, NULL);
    int64_t next_ns = SCHED_NEVER;
    struct broker_link *link;
    struct broker_link *next;
    lock_acquire(&instance->lock);
    bool members = instance_has_members(instance);
    HASH_ITER (hh, instance->brokers, link, next) {
        bool counts = members || (instance->producers && link->master);
        if (counts && !link->beating && link->beat_due_ns < next_ns)
            next_ns = link->beat_due_ns;
    }
    lock_release(&instance->lock);
    return next_ns;
}

/* Every address is due now, also those whose last beat is still under way. @locks holds:CLIENT */
static void all_beats_due(struct instance *instance)
{
    struct broker_link *link;
    struct broker_link *next;
    HASH_ITER (hh, instance->brokers, link, next) {
        link->beat_due_ns = 0;
        link->beating = false;
    }
}

void heartbeat_soon(struct instance *instance)
{
    lock_acquire(&instance->lock);
    all_beats_due(instance);
    instance_step_by(instance, 0);
    lock_release(&instance->lock);
}

void instance_heartbeat_now(struct instance *instance, int64_t timeout_ms)
{
    int64_t now_ns = instance_now(instance);
    struct round *round = timeout_ms > 0 ? round_create(instance) : NULL;
    brokers_update(instance);
    lock_acquire(&instance->lock);
    all_beats_due(instance);
    lock_release(&instance->lock);
    beat_all_due(instance, now_ns, round);
    round_wait(round, now_ns + ms_to_ns(timeout_ms));
}

/* ---- goodbyes ---- */

static bool every_link(struct broker_link *link, int64_t now_ns)
{
    (void)link;
    (void)now_ns;
    return true;
}

void heartbeat_goodbye(struct instance *instance, const char *producer_group,
                       const char *consumer_group)
{
    int64_t now_ns = instance_now(instance);
    struct round *round = round_create(instance);
    Tern__Wire__UnregisterClientRequest bye = TERN__WIRE__UNREGISTER_CLIENT_REQUEST__INIT;
    bye.producer_group = frame_bytes(producer_group, strlen(producer_group));
    bye.consumer_group = frame_bytes(consumer_group, strlen(consumer_group));
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_UNREGISTER_CLIENT;
    request.unregister_client = &bye;
    struct broker_link **links;
    size_t count = pick_links(instance, every_link, now_ns, &links);
    for (size_t i = 0; i < count; i++)
        if (rpc_peer_up(links[i]->peer))
            (void)round_call_start(round, links[i], &request, GOODBYE_MS, NULL);
    free_links(links, count);
    round_wait(round, now_ns + ms_to_ns(GOODBYE_MS));
}
