/*
 * Choosing an address of a broker set: see broker_pick.h.
 *
 * Invariants: an address leaves the list of failed ones only when its connection was seen up after
 * its penalty; a choice is made whenever the route has any address that will do.
 *
 * Threads: any. Failure modes: no route or no address gives TERN_UNREACHABLE; a peer that cannot be
 * made is skipped like one that failed.
 */
#include "client/broker_pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an element that was not added has hh.tbl NULL */
#include <uthash.h>

#include "base/clock.h"

enum { ASK_TRIES_MAX = 4 }; /* addresses in one question */

void failed_addresses_init(struct failed_addresses *failed)
{
    lock_init(&failed->lock, LOCK_CONSUMER);
    failed->count = 0;
}

void failed_addresses_fini(struct failed_addresses *failed)
{
    lock_fini(&failed->lock);
}

bool code_means_unreachable(enum tern_code code)
{
    return code == TERN_UNREACHABLE || code == TERN_CONNECTION_LOST || code == TERN_TIMEOUT;
}

/* @locks holds:CONSUMER */
static size_t find_failed(const struct failed_addresses *failed, const char *address)
{
    size_t i = 0;
    while (i < failed->count && strcmp(failed->items[i].address, address) != 0)
        i++;
    return i;
}

/* @locks holds:CONSUMER */
static void remove_failed(struct failed_addresses *failed, size_t i)
{
    failed->count--;
    memmove(&failed->items[i], &failed->items[i + 1],
            (failed->count - i) * sizeof failed->items[0]);
}

void failed_addresses_note(struct failed_addresses *failed, const char *address,
                           enum tern_code code, int64_t now_ns)
{
    if (!code_means_unreachable(code))
        return;
    lock_acquire(&failed->lock);
    size_t i = find_failed(failed, address);
    if (i == failed->count) {
        if (failed->count == FAILED_ADDRESSES_MAX)
            remove_failed(failed, 0);
        i = failed->count++;
        snprintf(failed->items[i].address, sizeof failed->items[i].address, "%s", address);
    }
    failed->items[i].until_ns = code == TERN_TIMEOUT ? now_ns + ms_to_ns(HUNG_PENALTY_MS) : now_ns;
    lock_release(&failed->lock);
}

/* Never failed, or up again since. */
static bool usable(struct failed_addresses *failed, const struct rpc_peer *peer,
                   const char *address, int64_t now_ns)
{
    bool up = rpc_peer_up(peer);
    lock_acquire(&failed->lock);
    size_t i = find_failed(failed, address);
    bool ok = i == failed->count;
    if (!ok && up && failed->items[i].until_ns <= now_ns) {
        remove_failed(failed, i);
        ok = true;
    }
    lock_release(&failed->lock);
    return ok;
}

/* Order of preference: the wanted id, then the one after it (for slaves), then as listed. */
static size_t preference(const struct route_broker *broker, int64_t wanted_id, size_t order[16])
{
    size_t count = 0;
    for (int pass = 0; pass < 3; pass++) {
        for (size_t i = 0; i < broker->address_count; i++) {
            int64_t id = broker->addresses[i].id;
            int rank = id == wanted_id ? 0 : wanted_id != 0 && id == wanted_id + 1 ? 1 : 2;
            if (rank == pass)
                order[count++] = i;
        }
    }
    return count;
}

enum tern_code broker_pick(struct instance *instance, struct failed_addresses *failed,
                           const struct route *route, const char *broker_name, int64_t wanted_id,
                           bool master_only, struct broker_choice *out, struct tern_error *err)
{
    *out = (struct broker_choice){.peer = NULL};
    const struct route_broker *broker = route_find_broker(route, broker_name);
    if (!broker)
        return error_set(err, TERN_UNREACHABLE, "broker %s is not in the route of topic %s",
                         broker_name, route->topic);
    int64_t now_ns = clock_mono_ns(instance_env(instance)->clock);
    size_t order[sizeof broker->addresses / sizeof broker->addresses[0]];
    size_t count = preference(broker, master_only ? 0 : wanted_id, order);
    for (size_t i = 0; i < count; i++) {
        int64_t id = broker->addresses[order[i]].id;
        const char *address = broker->addresses[order[i]].address;
        struct rpc_peer *peer;
        if ((master_only && id != 0) || instance_peer(instance, address, &peer, err) != TERN_OK)
            continue;
        bool good = usable(failed, peer, address, now_ns);
        if (good || !out->peer) {
            if (out->peer)
                rpc_peer_unref(out->peer);
            *out = (struct broker_choice){.peer = peer, .broker_id = id, .has_others = count > 1};
        } else {
            rpc_peer_unref(peer);
        }
        if (good)
            break;
    }
    if (!out->peer)
        return error_set(err, TERN_UNREACHABLE, "the route of topic %s has no %s of broker %s",
                         route->topic, master_only ? "master" : "address", broker_name);
    return TERN_OK;
}

enum tern_code broker_pick_cached(struct instance *instance, struct failed_addresses *failed,
                                  const struct tern_queue *queue, int64_t wanted_id,
                                  bool master_only, struct broker_choice *out,
                                  struct tern_error *err)
{
    *out = (struct broker_choice){.peer = NULL};
    struct route *route = instance_route_cached(instance, queue->topic);
    enum tern_code code = route ? broker_pick(instance, failed, route, queue->broker_name,
                                              wanted_id, master_only, out, err)
                                : error_set(err, TERN_UNREACHABLE,
                                            "the route of topic %s is not known", queue->topic);
    if (route)
        route_unref(route);
    if (code != TERN_OK)
        instance_route_refresh(instance, queue->topic);
    return code;
}

enum tern_code broker_ask(struct instance *instance, struct failed_addresses *failed,
                          const struct route *route, const char *broker_name, TernRequest *request,
                          struct rpc_call **out, struct tern_error *err)
{
    *out = NULL;
    enum tern_code code = TERN_UNREACHABLE;
    int64_t last_id = -1;
    for (int tries = 0; tries < ASK_TRIES_MAX && code_means_unreachable(code); tries++) {
        struct broker_choice choice;
        struct tern_error pick_err;
        if (broker_pick(instance, failed, route, broker_name, 0, false, &choice, &pick_err) !=
            TERN_OK) {
            if (tries == 0)
                error_set(err, code, "%s", pick_err.text);
            break;
        }
        bool new_one = choice.broker_id != last_id;
        last_id = choice.broker_id;
        if (new_one) {
            code = rpc_call_wait(choice.peer, request, NULL, 0, RPC_TIMEOUT_MS, out, err);
            failed_addresses_note(failed, rpc_peer_address(choice.peer), code,
                                  clock_mono_ns(instance_env(instance)->clock));
        }
        rpc_peer_unref(choice.peer);
        if (*out && code_means_unreachable(code)) {
            rpc_call_unref(*out);
            *out = NULL;
        }
        if (!new_one)
            break;
    }
    if (code_means_unreachable(code))
        instance_route_refresh(instance, route->topic);
    return code;
}

/* ---- suggestions ---- */

struct broker_suggestion {
    UT_hash_handle hh;
    struct tern_queue queue; /* key: 0 behind the texts */
    int64_t broker_id;
};

void broker_suggestions_init(struct broker_suggestions *suggestions)
{
    lock_init(&suggestions->lock, LOCK_CONSUMER);
    suggestions->table = NULL;
}

void broker_suggestions_fini(struct broker_suggestions *suggestions)
{
    struct broker_suggestion *entry;
    struct broker_suggestion *next;
    HASH_ITER (hh, suggestions->table, entry, next) {
        HASH_DEL(suggestions->table, entry);
        free(entry);
    }
    lock_fini(&suggestions->lock);
}

bool broker_queue_key(const struct tern_queue *queue, struct tern_queue *key)
{
    memset(key, 0, sizeof *key);
    size_t topic_len = strnlen(queue->topic, sizeof queue->topic);
    size_t broker_len = strnlen(queue->broker_name, sizeof queue->broker_name);
    if (topic_len == sizeof queue->topic || broker_len == sizeof queue->broker_name)
        return false;
    memcpy(key->topic, queue->topic, topic_len);
    memcpy(key->broker_name, queue->broker_name, broker_len);
    key->queue_id = queue->queue_id;
    return true;
}

int64_t broker_suggested(struct broker_suggestions *suggestions, const struct tern_queue *key)
{
    struct broker_suggestion *found;
    lock_acquire(&suggestions->lock);
    HASH_FIND(hh, suggestions->table, key, sizeof *key, found);
    int64_t id = found ? found->broker_id : 0;
    lock_release(&suggestions->lock);
    return id;
}

void broker_suggest(struct broker_suggestions *suggestions, const struct tern_queue *key,
                    int64_t broker_id)
{
    struct broker_suggestion *found;
    lock_acquire(&suggestions->lock);
    HASH_FIND(hh, suggestions->table, key, sizeof *key, found);
    if (found) {
        found->broker_id = broker_id;
    } else if (broker_id != 0 && HASH_COUNT(suggestions->table) < SUGGESTIONS_MAX) {
        found = calloc(1, sizeof *found);
        if (found) {
            found->queue = *key;
            found->broker_id = broker_id;
            HASH_ADD(hh, suggestions->table, queue, sizeof found->queue, found);
            if (!found->hh.tbl)
                free(found);
        }
    }
    lock_release(&suggestions->lock);
}
