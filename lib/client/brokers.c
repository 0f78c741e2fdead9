/*
 * The broker addresses that the routes name: made when a route brings a new one, dropped when none
 * names it any more. What is told to them is in heartbeat.c and events.c.
 *
 * Invariants: the table holds one reference to each link, a call under way another; a link that no
 * route names any more leaves the table at once and is freed after its calls. `brokers_stale` is
 * cleared only together with a look that found nothing missing, so that whoever finds it clear sees
 * the whole table.
 *
 * Threads: any; the table is protected by CLIENT. Failure modes: an address that cannot be used is
 * logged and left out until the next look.
 */
#include "client/instance_internal.h"

#include <stdlib.h>
#include <string.h>

enum { NEW_LINKS_MAX = 64 };

struct broker_link *broker_link_ref(struct broker_link *link)
{
    atomic_fetch_add_explicit(&link->refs, 1, memory_order_relaxed);
    return link;
}

void broker_link_unref(struct broker_link *link)
{
    if (!link || atomic_fetch_sub_explicit(&link->refs, 1, memory_order_acq_rel) > 1)
        return;
    if (link->peer)
        rpc_peer_unref(link->peer);
    free(link);
}

/* ---- the table ---- */

struct missing {
    char addresses[NEW_LINKS_MAX][ADDRESS_BYTES];
    size_t count;
};

/* Marks the address as listed, or notes that it is missing. @locks holds:CLIENT */
static void list_address(struct instance *instance, const char *address, bool master,
                         struct missing *missing)
{
    struct broker_link *link;
    HASH_FIND_STR(instance->brokers, address, link);
    if (link) {
        link->listed = true;
        link->master = link->master || master;
        return;
    }
    for (size_t i = 0; i < missing->count; i++)
        if (strcmp(missing->addresses[i], address) == 0)
            return;
    if (missing->count < NEW_LINKS_MAX &&
        HASH_COUNT(instance->brokers) + missing->count < BROKER_ADDRESSES_MAX)
        memcpy(missing->addresses[missing->count++], address, ADDRESS_BYTES);
}

static void list_route(struct instance *instance, const struct route *route,
                       struct missing *missing)
{
    for (size_t i = 0; i < route->broker_count; i++) {
        const struct route_broker *broker = &route->brokers[i];
        for (size_t j = 0; j < broker->address_count; j++)
            list_address(instance, broker->addresses[j].address, broker->addresses[j].id == 0,
                         missing);
    }
}

/* Takes links out of the table, into a list: those that no route names, or all. @locks holds:CLIENT
 */
static void take_out(struct instance *instance, struct broker_link **gone, bool all)
{
    struct broker_link *link;
    struct broker_link *next;
    HASH_ITER (hh, instance->brokers, link, next) {
        if (link->listed && !all)
            continue;
        HASH_DEL(instance->brokers, link);
        link->hh.next = *gone;
        *gone = link;
    }
}

/* @locks none */
static void unref_all(struct broker_link *gone)
{
    while (gone) {
        struct broker_link *next = gone->hh.next;
        broker_link_unref(gone);
        gone = next;
    }
}

/* Marks what the routes name, takes the rest out of the table, collects what is missing in it. */
static void sweep(struct instance *instance, struct missing *missing, struct broker_link **gone)
{
    struct broker_link *link;
    struct broker_link *next_link;
    struct topic_entry *entry;
    struct topic_entry *next_entry;
    HASH_ITER (hh, instance->brokers, link, next_link) {
        link->listed = false;
        link->master = false;
    }
    HASH_ITER (hh, instance->topics, entry, next_entry) {
        if (entry->route)
            list_route(instance, entry->route, missing);
    }
    take_out(instance, gone, false);
}

static struct broker_link *link_create(struct instance *instance, const char *address)
{
    struct broker_link *link = calloc(1, sizeof *link);
    if (!link)
        return NULL;
    link->refs = 1;
    link->instance = instance;
    memcpy(link->address, address, ADDRESS_BYTES);
    struct tern_error err;
    if (instance_peer(instance, address, &link->peer, &err) != TERN_OK) {
        log_warn(instance->env->log, "client_broker_address_refused", "address=%s reason=\"%s\"",
                 address, err.text);
        free(link);
        return NULL;
    }
    return link;
}

/*
 * Makes a link and inserts it unless somebody else was faster; false when that failed. @locks none
 */
static bool link_add(struct instance *instance, const char *address)
{
    struct broker_link *link = link_create(instance, address);
    if (!link)
        return false;
    struct broker_link *present;
    lock_acquire(&instance->lock);
    HASH_FIND_STR(instance->brokers, address, present);
    if (!present)
        HASH_ADD_STR(instance->brokers, address, link);
    bool added = !present && link->hh.tbl;
    lock_release(&instance->lock);
    if (!added)
        broker_link_unref(link);
    return added || present;
}

/* One look at the routes; true when it added links, whose master marks need another look. */
static bool update_once(struct instance *instance, struct missing *missing)
{
    struct broker_link *gone = NULL;
    bool added = false;
    missing->count = 0;
    lock_acquire(&instance->lock);
    if (instance->brokers_stale && !instance->stopping) {
        sweep(instance, missing, &gone);
        instance->brokers_stale = missing->count > 0;
    }
    lock_release(&instance->lock);
    unref_all(gone);
    for (size_t i = 0; i < missing->count; i++)
        added = link_add(instance, missing->addresses[i]) || added;
    return added;
}

void brokers_update(struct instance *instance)
{
    lock_acquire(&instance->lock);
    bool stale = instance->brokers_stale;
    lock_release(&instance->lock);
    struct missing *missing = stale ? malloc(sizeof *missing) : NULL;
    while (missing && update_once(instance, missing))
        ;
    free(missing);
}

void brokers_peer_up(struct instance *instance, const char *address)
{
    struct broker_link *link;
    lock_acquire(&instance->lock);
    HASH_FIND_STR(instance->brokers, address, link);
    if (link) {
        /* It may be another process now, which knows nothing of us. */
        link->lost_ns = 0;
        link->beat_due_ns = 0;
        link->events_due_ns = 0;
        instance_step_by(instance, 0);
    }
    lock_release(&instance->lock);
}

void brokers_peer_lost(struct instance *instance, const char *address)
{
    int64_t now_ns = instance_now(instance);
    struct broker_link *link;
    lock_acquire(&instance->lock);
    HASH_FIND_STR(instance->brokers, address, link);
    if (link) {
        link->lost_ns = now_ns;
        route_cache_lost(instance, address, now_ns);
    }
    lock_release(&instance->lock);
}

bool brokers_lost_lately(struct instance *instance, const struct route *route, int64_t now_ns)
{
    for (size_t i = 0; i < route->broker_count; i++) {
        const struct route_broker *broker = &route->brokers[i];
        for (size_t j = 0; j < broker->address_count; j++) {
            struct broker_link *link;
            HASH_FIND_STR(instance->brokers, broker->addresses[j].address, link);
            if (link && link->lost_ns && now_ns - link->lost_ns < ms_to_ns(ROUTE_LOST_LONG_MS))
                return true;
        }
    }
    return false;
}

enum born_family instance_born_family(struct instance *instance, const char *address)
{
    struct broker_link *link;
    lock_acquire(&instance->lock);
    HASH_FIND_STR(instance->brokers, address, link);
    enum born_family family = link ? link->family : BORN_UNKNOWN;
    lock_release(&instance->lock);
    return family;
}

bool instance_born_v6(struct instance *instance, const char *address)
{
    return instance_born_family(instance, address) == BORN_V6;
}

/*
 * After the task has stopped. Calls under way still hold their links, and connections still come
 * and go.
 */
void brokers_fini(struct instance *instance)
{
    struct broker_link *gone = NULL;
    lock_acquire(&instance->lock);
    take_out(instance, &gone, true);
    lock_release(&instance->lock);
    unref_all(gone);
}
