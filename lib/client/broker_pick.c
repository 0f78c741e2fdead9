/*
 * Choosing an address of a broker set: see broker_pick.h.
 *
 * Invariants: an address leaves the list of failed ones only when its connection was seen up after
 * its penalty; a choice is made whenever the route has any address that will do; no call waits for
 * a connection that is known to be lost while another address of the set is good.
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
#include "base/sched.h"

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

bool code_means_elsewhere(enum tern_code code)
{
    return code_means_unreachable(code) || code == TERN_SERVICE_NOT_AVAILABLE ||
           code == TERN_SYSTEM_BUSY || code == TERN_PROGRESS_UNKNOWN;
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

static void remember(struct failed_addresses *failed, const char *address, int64_t until_ns)
{
    lock_acquire(&failed->lock);
    size_t i = find_failed(failed, address);
    if (i == failed->count) {
        if (failed->count == FAILED_ADDRESSES_MAX)
            remove_failed(failed, 0);
        i = failed->count++;
        snprintf(failed->items[i].address, sizeof failed->items[i].address, "%s", address);
    }
    failed->items[i].until_ns = until_ns;
    lock_release(&failed->lock);
}

void failed_addresses_note(struct failed_addresses *failed, const char *address,
                           enum tern_code code, int64_t now_ns)
{
    if (code_means_unreachable(code))
        remember(failed, address,
                 code == TERN_TIMEOUT ? now_ns + ms_to_ns(HUNG_PENALTY_MS) : now_ns);
}

void failed_addresses_decline(struct failed_addresses *failed, const char *address,
                              int64_t until_ns)
{
    remember(failed, address, until_ns);
}

/* Not known to be away: never failed, or up again since. */
static bool usable(struct failed_addresses *failed, const struct rpc_peer *peer,
                   const char *address, int64_t now_ns)
{
    if (rpc_peer_down(peer))
        return false;
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

/* ---- shunning ---- */

void broker_shun(struct broker_shuns *shuns, int64_t id, int64_t until_ns)
{
    size_t at = 0;
    for (size_t i = 0; i < SHUNNED_MAX; i++) {
        if (shuns->items[i].until_ns > 0 && shuns->items[i].id == id) {
            at = i;
            break;
        }
        if (shuns->items[i].until_ns < shuns->items[at].until_ns)
            at = i;
    }
    shuns->items[at].id = id;
    shuns->items[at].until_ns = until_ns;
}

/* Until when; 0: it is not shunned. */
static int64_t shunned_until(const struct broker_shuns *shuns, int64_t id, int64_t now_ns)
{
    for (size_t i = 0; shuns && i < SHUNNED_MAX; i++)
        if (shuns->items[i].id == id && shuns->items[i].until_ns > now_ns)
            return shuns->items[i].until_ns;
    return 0;
}

/* ---- choosing ---- */

enum { SET_ADDRESSES_MAX = 16 }; /* of struct route_broker */

static int rank_of(const struct broker_wish *wish, int64_t id)
{
    if (id == wish->id)
        return 0;
    if (id == wish->second_id)
        return 1;
    return wish->id != 0 && id == wish->id + 1 ? 2 : 3;
}

/* Order of preference: what is wanted, then the id after it (for slaves), then as listed. */
static size_t preference(const struct route_broker *broker, const struct broker_wish *wish,
                         size_t order[SET_ADDRESSES_MAX])
{
    size_t count = 0;
    for (int rank = 0; rank < 4; rank++)
        for (size_t i = 0; i < broker->address_count && count < SET_ADDRESSES_MAX; i++)
            if (rank_of(wish, broker->addresses[i].id) == rank)
                order[count++] = i;
    return count;
}

/* How much an address is worth. */
enum merit { AWAY, SHUNNED, FRESH, GOOD };

static enum merit judge(struct failed_addresses *failed, const struct broker_wish *wish,
                        struct rpc_peer *peer, int64_t id, int64_t now_ns, int64_t *again_ns)
{
    *again_ns = 0;
    if (!usable(failed, peer, rpc_peer_address(peer), now_ns)) {
        rpc_peer_retry_now(peer);
        return AWAY;
    }
    *again_ns = shunned_until(wish->shuns, id, now_ns);
    if (*again_ns > 0)
        return SHUNNED;
    bool fresh = wish->settled && now_ns - rpc_peer_up_since_ns(peer) < ms_to_ns(SETTLED_MS);
    return fresh ? FRESH : GOOD;
}

/* Takes peer into *out when it is better than what is there. */
static void consider(struct broker_choice *out, enum merit *best, struct rpc_peer *peer, int64_t id,
                     enum merit merit, int64_t again_ns)
{
    bool sooner = merit == SHUNNED && *best == SHUNNED && again_ns < out->again_ns;
    if (out->peer && merit <= *best && !sooner) {
        rpc_peer_unref(peer);
        return;
    }
    if (out->peer)
        rpc_peer_unref(out->peer);
    *best = merit;
    *out = (struct broker_choice){
        .peer = peer, .broker_id = id, .good = merit >= FRESH, .again_ns = again_ns};
}

enum tern_code broker_pick(struct instance *instance, struct failed_addresses *failed,
                           const struct route *route, const char *broker_name,
                           const struct broker_wish *wish, struct broker_choice *out,
                           struct tern_error *err)
{
    *out = (struct broker_choice){.peer = NULL};
    const struct route_broker *broker = route_find_broker(route, broker_name);
    if (!broker)
        return error_set(err, TERN_UNREACHABLE, "broker %s is not in the route of topic %s",
                         broker_name, route->topic);
    int64_t now_ns = clock_mono_ns(instance_env(instance)->clock);
    size_t order[SET_ADDRESSES_MAX];
    size_t count = preference(broker, wish, order);
    enum merit best = AWAY;
    for (size_t i = 0; i < count && best < GOOD; i++) {
        int64_t id = broker->addresses[order[i]].id;
        struct rpc_peer *peer;
        int64_t again_ns;
        if ((wish->master_only && id != 0) ||
            instance_peer(instance, broker->addresses[order[i]].address, &peer, err) != TERN_OK)
            continue;
        enum merit merit = judge(failed, wish, peer, id, now_ns, &again_ns);
        consider(out, &best, peer, id, merit, again_ns);
    }
    if (!out->peer)
        return error_set(err, TERN_UNREACHABLE, "the route of topic %s has no %s of broker %s",
                         route->topic, wish->master_only ? "master" : "address", broker_name);
    return TERN_OK;
}

enum tern_code broker_pick_cached(struct instance *instance, struct failed_addresses *failed,
                                  const struct tern_queue *queue, const struct broker_wish *wish,
                                  struct broker_choice *out, struct tern_error *err)
{
    *out = (struct broker_choice){.peer = NULL};
    struct route *route = instance_route_cached(instance, queue->topic);
    enum tern_code code =
        route
            ? broker_pick(instance, failed, route, queue->broker_name, wish, out, err)
            : error_set(err, TERN_UNREACHABLE, "the route of topic %s is not known", queue->topic);
    if (route)
        route_unref(route);
    if (code != TERN_OK)
        instance_route_refresh(instance, queue->topic);
    return code;
}

/* ---- asking ---- */

/* What is known so far of a question's outcome. */
struct outcome {
    enum tern_code code;
    struct rpc_call *call;
    int64_t id;
    struct tern_error err;
};

/* An answer says more than no answer; the later one counts among equals. Takes *fresh. */
static void keep_outcome(struct outcome *kept, const struct outcome *fresh)
{
    if (code_means_unreachable(fresh->code) && !code_means_unreachable(kept->code)) {
        if (fresh->call)
            rpc_call_unref(fresh->call);
        return;
    }
    if (kept->call)
        rpc_call_unref(kept->call);
    *kept = *fresh;
}

enum tern_code broker_ask(struct instance *instance, struct failed_addresses *failed,
                          const struct route *route, const char *broker_name, TernRequest *request,
                          struct rpc_call **out, int64_t *answered_id, struct tern_error *err)
{
    struct broker_shuns asked = {.items = {{.id = 0}}};
    struct broker_wish wish = {.shuns = &asked};
    struct outcome kept = {.code = TERN_UNREACHABLE, .id = -1};
    bool more = true;
    for (int tries = 0; tries < ASK_TRIES_MAX && more; tries++) {
        struct broker_choice choice;
        struct outcome fresh = {.code = TERN_OK};
        more = broker_pick(instance, failed, route, broker_name, &wish, &choice,
                           tries == 0 ? &kept.err : NULL) == TERN_OK;
        if (more && (tries == 0 || choice.good)) {
            fresh.id = choice.broker_id;
            fresh.code = rpc_call_wait(choice.peer, request, NULL, 0, RPC_TIMEOUT_MS, &fresh.call,
                                       &fresh.err);
            failed_addresses_note(failed, rpc_peer_address(choice.peer), fresh.code,
                                  clock_mono_ns(instance_env(instance)->clock));
            broker_shun(&asked, choice.broker_id, SCHED_NEVER);
            more = code_means_elsewhere(fresh.code);
            keep_outcome(&kept, &fresh);
        } else {
            more = false;
        }
        if (choice.peer)
            rpc_peer_unref(choice.peer);
    }
    *out = kept.call;
    if (answered_id)
        *answered_id = kept.id;
    if (kept.code != TERN_OK && err)
        *err = kept.err;
    if (code_means_unreachable(kept.code))
        instance_route_refresh(instance, route->topic);
    return kept.code;
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
