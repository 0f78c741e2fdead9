/*
 * Asking nameservers.
 *
 * Nameservers share nothing, each knows all routes. The walk starts at the one that last worked (at
 * first a random one) and goes on to the next when it cannot be reached, does not answer in time,
 * or its connection breaks; the one that answers becomes the one to start from. TOPIC_NOT_EXIST is
 * believed only when all that can be reached say so: a nameserver that was just restarted knows
 * nothing yet.
 *
 *   current ──► ns2 ──► ns3 ──► ns1      ns2 fails, ns3 answers: current = ns3
 *
 * Threads: any; the asynchronous walk goes on in the callbacks of its calls. Failure modes: the
 * last failure is reported, TOPIC_NOT_EXIST before all others.
 */
#include "client/instance_internal.h"

#include <stdlib.h>
#include <string.h>

enum { ATTEMPT_LEAST_MS = 1000 };

/* host:port, with a number for the port. */
static bool address_plausible(const char *address)
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || strlen(address) >= ADDRESS_BYTES)
        return false;
    size_t digits = strspn(colon + 1, "0123456789");
    return digits >= 1 && digits <= 5 && colon[1 + digits] == 0 && !strchr(address, '/') &&
           strtoul(colon + 1, NULL, 10) <= UINT16_MAX;
}

enum tern_code namesrv_parse(struct instance *instance, const char *text, struct tern_error *err)
{
    instance->namesrv_text = strdup(text);
    instance->namesrv_copy = strdup(text);
    if (!instance->namesrv_text || !instance->namesrv_copy)
        return error_set(err, TERN_NO_MEMORY, "nameserver list");
    char *rest = instance->namesrv_copy;
    for (char *part; (part = strsep(&rest, ";"));) {
        part += strspn(part, " \t");
        part[strcspn(part, " \t\r\n")] = 0;
        if (!*part)
            continue;
        if (!address_plausible(part))
            return error_set(err, TERN_INVALID,
                             "nameserver \"%.100s\": expected host:port;host:port, "
                             "e.g. 127.0.0.1:9876 (HTTP address servers are not supported)",
                             part);
        if (instance->namesrv_count == NAMESRVS_MAX)
            return error_set(err, TERN_INVALID, "more than %d nameservers", (int)NAMESRVS_MAX);
        instance->namesrvs[instance->namesrv_count++] = part;
    }
    if (instance->namesrv_count == 0)
        return error_set(err, TERN_INVALID, "the nameserver list is empty");
    instance->namesrv_current = rng_below(instance->env->rng, instance->namesrv_count);
    return TERN_OK;
}

size_t instance_namesrvs(const struct instance *instance, const char *const **addresses)
{
    *addresses = instance->namesrvs;
    return instance->namesrv_count;
}

/* So that all can be tried within one usual deadline. */
static int64_t attempt_ms(const struct instance *instance)
{
    int64_t share_ms = RPC_TIMEOUT_MS / (int64_t)instance->namesrv_count;
    return share_ms < ATTEMPT_LEAST_MS ? ATTEMPT_LEAST_MS : share_ms;
}

/* Failures of the way, not answers: the next one may do better. */
static bool walks_on(enum tern_code transport_status)
{
    return transport_status != TERN_OK && transport_status != TERN_CANCELED;
}

enum tern_code instance_namesrv_call(struct instance *instance, TernRequest *request,
                                     int64_t timeout_ms, struct rpc_call **out,
                                     struct tern_error *err)
{
    int64_t deadline_ns = instance_now(instance) + ms_to_ns(timeout_ms);
    size_t first = atomic_load(&instance->namesrv_current);
    enum tern_code code = TERN_UNREACHABLE;
    if (out)
        *out = NULL;
    for (size_t i = 0; i < instance->namesrv_count; i++) {
        size_t index = (first + i) % instance->namesrv_count;
        int64_t left_ms = (deadline_ns - instance_now(instance)) / 1000000;
        if (left_ms <= 0 && i > 0)
            break;
        bool is_last = i + 1 == instance->namesrv_count;
        int64_t this_ms =
            is_last || left_ms < attempt_ms(instance) ? left_ms : attempt_ms(instance);
        struct rpc_peer *peer;
        struct rpc_call *call = NULL;
        code = instance_peer(instance, instance->namesrvs[index], &peer, err);
        if (code != TERN_OK)
            continue;
        code = rpc_call_wait(peer, request, NULL, 0, this_ms > 0 ? this_ms : 1, &call, err);
        rpc_peer_unref(peer);
        if (code != TERN_OK && !call && walks_on(code)) {
            error_prefix(err, code, "nameserver");
            continue;
        }
        atomic_store(&instance->namesrv_current, index);
        if (out)
            *out = call;
        else if (call)
            rpc_call_unref(call);
        return code;
    }
    return code;
}

/* ---- the asynchronous walk ---- */

struct route_walk {
    struct route_walk *next; /* in instance->ended_walks */
    struct instance *instance;
    namesrv_route_fn done;
    void *arg;
    size_t first, tried;
    bool moved;     /* the starting one failed */
    bool not_exist; /* one said so */
    enum tern_code code;
    struct tern_error err;
    char topic[TOPIC_NAME_MAX + 1];
};

static void walk_answered(struct rpc_call *call, void *arg);

/* Starts the next attempt; false when there is none left. */
static bool walk_next(struct route_walk *walk)
{
    struct instance *instance = walk->instance;
    while (walk->tried < instance->namesrv_count) {
        size_t index = (walk->first + walk->tried++) % instance->namesrv_count;
        struct rpc_peer *peer;
        struct rpc_call *call;
        enum tern_code code = instance_peer(instance, instance->namesrvs[index], &peer, &walk->err);
        if (code == TERN_OK) {
            code = rpc_call_create(peer, 0, &call);
            rpc_peer_unref(peer);
            if (code != TERN_OK)
                error_set(&walk->err, code, "nameserver %s", instance->namesrvs[index]);
        }
        if (code != TERN_OK) {
            walk->code = code;
            continue;
        }
        Tern__Wire__RouteRequest ask = TERN__WIRE__ROUTE_REQUEST__INIT;
        ask.topic = frame_bytes(walk->topic, strlen(walk->topic));
        TernRequest request = TERN__WIRE__REQUEST__INIT;
        request.body_case = TERN__WIRE__REQUEST__BODY_ROUTE;
        request.route = &ask;
        rpc_call_start(call, &request, 0, attempt_ms(instance), walk_answered, walk);
        return true;
    }
    return false;
}

static void walk_finish(struct route_walk *walk, const Tern__Wire__RouteResponse *answer)
{
    if (!answer && walk->not_exist)
        walk->code =
            error_set(&walk->err, TERN_TOPIC_NOT_EXIST,
                      "no nameserver knows a route for topic %s: make it with mqadmin updateTopic",
                      walk->topic);
    walk->done(walk->arg, walk->code, answer, &walk->err);
    free(walk);
}

/* @thread link's */
static void walk_answered(struct rpc_call *call, void *arg)
{
    struct route_walk *walk = arg;
    struct instance *instance = walk->instance;
    size_t index = (walk->first + walk->tried - 1) % instance->namesrv_count;
    enum tern_code code = rpc_call_result(call);
    const Tern__Wire__RouteResponse *answer = NULL;
    if (code == TERN_OK && call->response->body_case == TERN__WIRE__RESPONSE__BODY_ROUTE &&
        call->response->route->n_queues > 0 && call->response->route->n_brokers > 0)
        answer = call->response->route;
    if (call->status == TERN_OK && walk->moved)
        atomic_store(&instance->namesrv_current, index);
    if (call->status != TERN_OK && walk->tried == 1)
        walk->moved = true;
    /* A success without queues is another way to say that it does not know. */
    if (code == TERN_TOPIC_NOT_EXIST || (code == TERN_OK && !answer))
        walk->not_exist = true;
    walk->code = code;
    if (code != TERN_OK)
        error_set(&walk->err, code, "nameserver %s", error_text(&call->error, code));
    if (answer || instance_stopping(instance) || !walk_next(walk))
        walk_finish(walk, answer);
    rpc_call_unref(call);
}

/*
 * A walk that could not even begin is ended by the task, when there is one: whoever asks because
 * such a walk has ended must not grow the stack.
 */
static bool end_later(struct route_walk *walk)
{
    struct instance *instance = walk->instance;
    lock_acquire(&instance->lock);
    bool later = instance->task && !instance->stopping;
    if (later) {
        walk->next = instance->ended_walks;
        instance->ended_walks = walk;
        instance_step_by(instance, 0);
    }
    lock_release(&instance->lock);
    return later;
}

void namesrv_ask_route(struct instance *instance, const char *topic, namesrv_route_fn done,
                       void *arg)
{
    struct tern_error err = {.code = TERN_NO_MEMORY};
    struct route_walk *walk = malloc(sizeof *walk);
    if (!walk) {
        done(arg, TERN_NO_MEMORY, NULL, &err);
        return;
    }
    *walk = (struct route_walk){.instance = instance,
                                .done = done,
                                .arg = arg,
                                .first = atomic_load(&instance->namesrv_current),
                                .code = TERN_UNREACHABLE};
    memcpy(walk->topic, topic, strlen(topic) + 1);
    if (!walk_next(walk) && !end_later(walk))
        walk_finish(walk, NULL);
}

void namesrv_end_walks(struct instance *instance)
{
    lock_acquire(&instance->lock);
    struct route_walk *walk = instance->ended_walks;
    instance->ended_walks = NULL;
    lock_release(&instance->lock);
    while (walk) {
        struct route_walk *next = walk->next;
        walk_finish(walk, NULL);
        walk = next;
    }
}
