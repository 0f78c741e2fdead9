/*
 * Choosing an address of a broker set: see broker_pick.h.
 *
 * Invariants: an address leaves the list of failed ones only when its connection was seen up after its
 * penalty; a choice is made whenever the route has any address that will do.
 *
 * Threads: any. Failure modes: no route or no address gives TERN_UNREACHABLE; a peer that cannot be made is
 * skipped like one that failed.
 */
#include "client/broker_pick.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

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
    enum tern_code code =
        route ? broker_pick(instance, failed, route, queue->broker_name, wanted_id, master_only,
                            out, err)
              : error_set(err, TERN_UNREACHABLE, "the route of topic %s is not known",
                          queue->topic);
    if (route)
        route_unref(route);
    if (code != TERN_OK)
        instance_route_refresh(instance, queue->topic);
    return code;
}
