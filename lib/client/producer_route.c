/*
 * What a route means for sending, and choosing a queue.
 *
 * A publish is made from a route once and shared by all sends until the route changes: writable
 * queues, per queue its broker, per broker the connection to its master and what prepared records
 * need. The cache's generation number tells cheaply whether anything changed.
 *
 * Choosing is round robin over all queues, as RocketMQ does it, passing over the broker that this
 * send has just failed at and those that are avoided: a broker whose master is known to be away
 * until it is up again, one that did not answer in time for 30 s, one that takes no writes now for
 * a second, and with the option latency_faults one that was slow (latency_faults.h). When only such
 * are left, any queue serves. Slaves are never written to.
 *
 * An order topic's queues are those of its configuration, also while their brokers are away: keys
 * keep their queues, and a send to a broker without a master fails.
 *
 * Invariant: a publish holds its route, so that the cache goes on refreshing the topic.
 *
 * Threads: any. Failure modes: a broker without a peer stays in the list and fails when it is
 * chosen.
 */
#include "client/producer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order_conf.h"

enum { PERM_WRITE = 2, PERM_INHERIT = 1, MASTER_ID = 0 };

enum tern_code send_topic_get(struct tern_producer *producer, const char *topic,
                              struct send_topic **out, struct tern_error *err)
{
    struct send_topic *row;
    lock_acquire(&producer->lock);
    HASH_FIND_STR(producer->topics, topic, row);
    bool full = !row && HASH_COUNT(producer->topics) >= PRODUCER_TOPICS_MAX;
    if (!row && !full && (row = calloc(1, sizeof *row))) {
        memcpy(row->name, topic, strlen(topic) + 1);
        row->next_queue = (uint32_t)rng_next(producer->env->rng);
        HASH_ADD_STR(producer->topics, name, row);
        if (!row->hh.tbl) {
            free(row);
            row = NULL;
        }
    }
    lock_release(&producer->lock);
    *out = row;
    if (full)
        return error_set(err, TERN_LIMIT, "this producer has sent to %d topics, the most it can",
                         (int)PRODUCER_TOPICS_MAX);
    return row ? TERN_OK : error_set(err, TERN_NO_MEMORY, "topic %s", topic);
}

/* ---- brokers by name ---- */

enum tern_code send_broker_get(struct tern_producer *producer, const char *name,
                               struct send_broker **out)
{
    struct send_broker *row;
    lock_acquire(&producer->lock);
    HASH_FIND_STR(producer->brokers, name, row);
    bool full = !row && HASH_COUNT(producer->brokers) >= PRODUCER_BROKERS_MAX;
    if (!row && !full && (row = calloc(1, sizeof *row))) {
        memcpy(row->name, name, strlen(name) + 1);
        HASH_ADD_STR(producer->brokers, name, row);
        if (!row->hh.tbl) {
            free(row);
            row = NULL;
        }
    }
    lock_release(&producer->lock);
    *out = row;
    return row ? TERN_OK : full ? TERN_LIMIT : TERN_NO_MEMORY;
}

void send_broker_failed(struct tern_producer *producer, struct send_broker *broker,
                        enum tern_code code)
{
    int64_t now_ns = clock_mono_ns(producer->env->clock);
    bool connection = code == TERN_UNREACHABLE || code == TERN_CONNECTION_LOST;
    int64_t avoid_ms = code == TERN_SERVICE_NOT_AVAILABLE ? AVOID_REFUSING_MS : AVOID_BROKER_MS;
    atomic_store(&broker->avoid_until_up, connection);
    atomic_store(&broker->avoid_until_ns, now_ns + ms_to_ns(avoid_ms));
}

void send_broker_latency(struct tern_producer *producer, struct send_broker *broker,
                         int64_t latency_ms)
{
    if (producer->options.latency_faults)
        latency_note(&broker->latency, latency_ms, clock_mono_ns(producer->env->clock));
}

static bool avoided(struct tern_producer *producer, const struct publish_broker *target)
{
    struct send_broker *broker = target->broker;
    if (!target->peer)
        return true;
    if (producer->options.latency_faults &&
        !latency_available(&broker->latency, clock_mono_ns(producer->env->clock)))
        return true;
    if (rpc_peer_down(target->peer)) {
        rpc_peer_retry_now(target->peer);
        return true;
    }
    int64_t until_ns = atomic_load_explicit(&broker->avoid_until_ns, memory_order_relaxed);
    if (until_ns == 0)
        return false;
    bool up_again = atomic_load(&broker->avoid_until_up) && rpc_peer_up(target->peer);
    if (!up_again && clock_mono_ns(producer->env->clock) < until_ns)
        return true;
    atomic_compare_exchange_strong(&broker->avoid_until_ns, &until_ns, 0);
    return false;
}

/* All are avoided: with latency_faults the queue of one of the less bad, in turn; else `otherwise`.
 */
static size_t least_bad(struct tern_producer *producer, const struct publish *publish,
                        uint32_t turn, size_t otherwise)
{
    const struct broker_latency *items[LATENCY_BROKERS_MAX];
    size_t brokers = publish->broker_count;
    if (!producer->options.latency_faults || brokers > LATENCY_BROKERS_MAX)
        return otherwise;
    for (size_t i = 0; i < brokers; i++)
        items[i] = &publish->brokers[i].broker->latency;
    size_t chosen = latency_least_bad(items, brokers, turn, clock_mono_ns(producer->env->clock));
    for (size_t i = 0; i < publish->queue_count; i++) {
        size_t at = (turn + i) % publish->queue_count;
        if (publish->queue_broker[at] == chosen)
            return at;
    }
    return otherwise; /* it has no writable queue */
}

/*
 * How many queues may be sent to now, and in *at the `wanted`-th of them, from 0. Queues of a
 * broker stand together: each broker is judged once.
 */
static size_t count_usable(struct tern_producer *producer, const struct publish *publish,
                           const struct send_broker *last_failed, size_t wanted, size_t *at)
{
    size_t usable = 0;
    uint32_t judged = UINT32_MAX;
    bool good = false;
    for (size_t i = 0; i < publish->queue_count; i++) {
        if (publish->queue_broker[i] != judged) {
            judged = publish->queue_broker[i];
            const struct publish_broker *target = &publish->brokers[judged];
            good = target->broker != last_failed && !avoided(producer, target);
        }
        if (good && usable++ == wanted)
            *at = i;
    }
    return usable;
}

/* The next queue of another broker than the one that failed just now; else the first. */
static size_t second_best(const struct publish *publish, const struct send_broker *last_failed,
                          size_t first)
{
    for (size_t i = 0; i < publish->queue_count; i++) {
        size_t at = (first + i) % publish->queue_count;
        if (publish->brokers[publish->queue_broker[at]].broker != last_failed)
            return at;
    }
    return first;
}

size_t publish_choose(struct tern_producer *producer, struct send_topic *topic,
                      struct publish *publish, const struct send_broker *last_failed)
{
    uint32_t turn = atomic_fetch_add_explicit(&topic->next_queue, 1, memory_order_relaxed);
    size_t first = turn % publish->queue_count;
    const struct publish_broker *target = &publish->brokers[publish->queue_broker[first]];
    if (publish->broker_count == 1 || (target->broker != last_failed && !avoided(producer, target)))
        return first;
    /* Its turns are shared by all the others, not taken by the queue behind its own. */
    size_t at = first;
    size_t usable = count_usable(producer, publish, last_failed, SIZE_MAX, &at);
    if (usable == 0)
        return least_bad(producer, publish, turn, second_best(publish, last_failed, first));
    (void)count_usable(producer, publish, last_failed, turn % usable, &at);
    return at;
}

/* ---- making a publish ---- */

void publish_unref(struct publish *publish)
{
    if (!publish || atomic_fetch_sub_explicit(&publish->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < publish->broker_count; i++)
        if (publish->brokers[i].peer)
            rpc_peer_unref(publish->brokers[i].peer);
    route_unref(publish->route);
    free(publish->brokers);
    free(publish->owned_queues);
    free(publish->queue_broker);
    free(publish);
}

/* Every broker with a master, in the route's order. */
static enum tern_code add_brokers(struct tern_producer *producer, struct publish *publish)
{
    const struct route *route = publish->route;
    publish->brokers = calloc(route->broker_count + 1, sizeof *publish->brokers);
    if (!publish->brokers)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < route->broker_count; i++) {
        const struct route_broker *from = &route->brokers[i];
        const char *address = route_broker_address(from, MASTER_ID, false, NULL);
        if (!address)
            continue;
        struct publish_broker *target = &publish->brokers[publish->broker_count];
        enum tern_code code = send_broker_get(producer, from->name, &target->broker);
        if (code != TERN_OK)
            return code;
        publish->broker_count++;
        memcpy(target->address, address, strlen(address) + 1);
        memcpy(target->cluster, from->cluster, sizeof target->cluster);
        target->cluster_len = strlen(target->cluster);
        target->store_v6 = from->addresses[0].store_host_v6; /* id 0 is the first */
        target->literal_v6 = address[0] == '[';
        if (instance_peer(producer->instance, address, &target->peer, NULL) != TERN_OK)
            target->peer = NULL;
    }
    return TERN_OK;
}

/*
 * An order topic's brokers that have no master now: they stay among those to choose from, and a
 * send to them fails.
 */
static enum tern_code add_absent_brokers(struct tern_producer *producer, struct publish *publish)
{
    const struct route *route = publish->route;
    struct send_broker *last = NULL;
    size_t room = publish->broker_count + ORDER_CONF_BROKERS_MAX;
    struct publish_broker *more = realloc(publish->brokers, room * sizeof *more);
    if (!more)
        return TERN_NO_MEMORY;
    publish->brokers = more;
    for (size_t i = 0; i < route->writable_count; i++) {
        const char *name = route->writable[i].broker_name;
        if (last && strcmp(last->name, name) == 0)
            continue; /* queues of a broker stand together */
        enum tern_code code = send_broker_get(producer, name, &last);
        if (code != TERN_OK)
            return code;
        size_t at = 0;
        while (at < publish->broker_count && publish->brokers[at].broker != last)
            at++;
        if (at == publish->broker_count)
            publish->brokers[publish->broker_count++] = (struct publish_broker){.broker = last};
    }
    return TERN_OK;
}

/*
 * The queues that a new topic would get on each broker that lets it be made (RocketMQ: min(4, the
 * template's)).
 */
static enum tern_code add_default_queues(struct publish *publish, const char *topic)
{
    const struct route *route = publish->route;
    struct tern_queue *queues =
        calloc(route->data_count * DEFAULT_TOPIC_QUEUES + 1, sizeof *queues);
    publish->owned_queues = queues;
    publish->queues = queues;
    if (!queues)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < route->data_count; i++) {
        const struct route_queue_data *data = &route->data[i];
        const struct route_broker *broker = &route->brokers[data->broker];
        if (!(data->perm & PERM_INHERIT) || !route_broker_address(broker, MASTER_ID, false, NULL))
            continue;
        for (int32_t id = 0; id < data->write_queues && id < DEFAULT_TOPIC_QUEUES; id++) {
            struct tern_queue *queue = &queues[publish->queue_count++];
            memcpy(queue->topic, topic, strlen(topic) + 1);
            memcpy(queue->broker_name, broker->name, sizeof queue->broker_name);
            queue->queue_id = id;
        }
    }
    return TERN_OK;
}

/* Queues of a broker stand together, mostly in the order of the brokers. */
static enum tern_code map_queues(struct publish *publish)
{
    publish->queue_broker = calloc(publish->queue_count + 1, sizeof *publish->queue_broker);
    if (!publish->queue_broker)
        return TERN_NO_MEMORY;
    uint32_t at = 0;
    for (size_t i = 0; i < publish->queue_count; i++) {
        size_t tried = 0;
        while (tried < publish->broker_count &&
               strcmp(publish->brokers[at].broker->name, publish->queues[i].broker_name) != 0) {
            at = at + 1 < publish->broker_count ? at + 1 : 0;
            tried++;
        }
        ENSURE(tried < publish->broker_count);
        publish->queue_broker[i] = at;
    }
    return TERN_OK;
}

/* Takes route. */
static enum tern_code publish_create(struct tern_producer *producer, const char *topic,
                                     struct route *route, bool default_topic, uint64_t generation,
                                     struct publish **out)
{
    struct publish *publish = calloc(1, sizeof *publish);
    *out = NULL;
    if (!publish) {
        route_unref(route);
        return TERN_NO_MEMORY;
    }
    publish->refs = 1;
    publish->generation = generation;
    publish->route = route;
    publish->from_default_topic = default_topic;
    enum tern_code code = add_brokers(producer, publish);
    if (code == TERN_OK && route->ordered && !default_topic)
        code = add_absent_brokers(producer, publish);
    if (code == TERN_OK && default_topic) {
        code = add_default_queues(publish, topic);
    } else if (code == TERN_OK) {
        publish->queues = route->writable;
        publish->queue_count = route->writable_count;
    }
    if (code == TERN_OK)
        code = map_queues(publish);
    if (code != TERN_OK) {
        publish_unref(publish);
        return code;
    }
    *out = publish;
    return TERN_OK;
}

static struct publish *publish_ref(struct publish *publish)
{
    atomic_fetch_add_explicit(&publish->refs, 1, memory_order_relaxed);
    return publish;
}

/* Makes and keeps one. Takes route. */
static enum tern_code publish_keep(struct tern_producer *producer, struct send_topic *topic,
                                   struct route *route, uint64_t generation, struct publish **out)
{
    enum tern_code code = publish_create(producer, topic->name, route, false, generation, out);
    if (code != TERN_OK)
        return code;
    lock_acquire(&producer->lock);
    struct publish *old = topic->publish;
    topic->publish = publish_ref(*out);
    lock_release(&producer->lock);
    publish_unref(old);
    return TERN_OK;
}

enum tern_code publish_from_route(struct tern_producer *producer, struct send_topic *topic,
                                  struct route *route, bool default_topic, struct publish **out,
                                  struct tern_error *err)
{
    /* Generation 0: the next send compares with the cache, which may have a newer route already. */
    enum tern_code code = default_topic ? publish_create(producer, topic->name, route, true, 0, out)
                                        : publish_keep(producer, topic, route, 0, out);
    if (code != TERN_OK)
        return error_set(err, code, "queues of topic %s: %s", topic->name, tern_code_text(code));
    return TERN_OK;
}

struct publish *publish_current(struct tern_producer *producer, struct send_topic *topic)
{
    uint64_t generation = instance_route_generation(producer->instance);
    lock_acquire(&producer->lock);
    struct publish *publish = topic->publish ? publish_ref(topic->publish) : NULL;
    bool current = publish && publish->generation == generation;
    lock_release(&producer->lock);
    if (current)
        return publish;
    struct route *route = instance_route_cached(producer->instance, topic->name);
    if (!route)
        return publish; /* the old one is the best there is */
    if (publish && publish->route == route) {
        route_unref(route);
        lock_acquire(&producer->lock);
        publish->generation = generation;
        lock_release(&producer->lock);
        return publish;
    }
    struct publish *made;
    if (publish_keep(producer, topic, route, generation, &made) != TERN_OK)
        return publish;
    publish_unref(publish);
    return made;
}

/* "broker-a: ids 1, 2; broker-b: id 1", cut with dots when there is no room. */
static void describe_sets(const struct route *route, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < route->broker_count; i++) {
        const struct route_broker *broker = &route->brokers[i];
        char set[320];
        size_t len = (size_t)snprintf(set, sizeof set, "%s%s: %s", i ? "; " : "", broker->name,
                                      broker->address_count == 0   ? "nobody"
                                      : broker->address_count == 1 ? "id"
                                                                   : "ids");
        for (size_t k = 0; k < broker->address_count && len + 24 < sizeof set; k++)
            len += (size_t)snprintf(set + len, sizeof set - len, "%s %lld", k ? "," : "",
                                    (long long)broker->addresses[k].id);
        if (used + len + sizeof "; …" > size) {
            snprintf(text + used, size - used, "; …");
            return;
        }
        memcpy(text + used, set, len + 1);
        used += len;
    }
}

enum tern_code publish_no_queue(const struct publish *publish, const char *topic,
                                struct tern_error *err)
{
    const struct route *route = publish->route;
    bool writable = false;
    for (size_t i = 0; i < route->data_count; i++) {
        const struct route_queue_data *data = &route->data[i];
        /* Without a master the nameserver shows no write permission: that is not what is wrong. */
        bool headless =
            !route_broker_address(&route->brokers[data->broker], MASTER_ID, false, NULL);
        writable = writable || (data->write_queues > 0 && (headless || data->perm & PERM_WRITE));
    }
    if (publish->from_default_topic || !writable)
        return error_set(
            err, publish->from_default_topic ? TERN_TOPIC_NOT_EXIST : TERN_NO_PERMISSION,
            "topic %s: no broker %s", topic,
            publish->from_default_topic ? "has it or may create it" : "allows writing to it");
    char sets[256];
    describe_sets(route, sets, sizeof sets);
    return error_set(err, TERN_UNREACHABLE,
                     "topic %s: no master to write to; of its broker sets (%s) only slaves are "
                     "there, which are read from only: bring a master back, then send again",
                     topic, sets);
}

enum tern_code publish_wait(struct tern_producer *producer, struct send_topic *topic,
                            bool default_topic, int64_t deadline_ns, struct publish **out,
                            struct tern_error *err)
{
    struct route *route;
    *out = publish_current(producer, topic);
    if (*out)
        return TERN_OK;
    enum tern_code code = instance_route(producer->instance, topic->name, deadline_ns, &route, err);
    if (code == TERN_OK)
        return publish_from_route(producer, topic, route, false, out, err);
    /* err goes on saying that the topic does not exist when there is no template either. */
    if (code != TERN_TOPIC_NOT_EXIST || !default_topic ||
        instance_route(producer->instance, DEFAULT_TOPIC, deadline_ns, &route, NULL) != TERN_OK)
        return code;
    return publish_from_route(producer, topic, route, true, out, err);
}

void producer_tables_fini(struct tern_producer *producer)
{
    struct send_topic *topic;
    struct send_topic *next_topic;
    HASH_ITER (hh, producer->topics, topic, next_topic) {
        HASH_DEL(producer->topics, topic);
        publish_unref(topic->publish);
        free(topic);
    }
    struct send_broker *broker;
    struct send_broker *next_broker;
    HASH_ITER (hh, producer->brokers, broker, next_broker) {
        HASH_DEL(producer->brokers, broker);
        free(broker);
    }
    struct lane *lane;
    struct lane *next_lane;
    HASH_ITER (hh, producer->lanes, lane, next_lane) {
        HASH_DEL(producer->lanes, lane);
        free(lane);
    }
}
