/*
 * A route: what a nameserver's answer means for clients, immutable once made.
 *
 * Reading is offered by every broker set that has some address and the R permission. Writing needs
 * W and a master (id 0), RocketMQ's rule: with the master gone the slaves are read from only.
 * Queues are sorted by broker name and id, so that all clients see the same order. An order
 * configuration (base/order_conf.h) takes the place of that for writing: the queues that it names
 * are there in its order, whoever is up.
 *
 * Invariants: brokers are sorted by name, each name once; data[i].broker is an index into them;
 * counts stay within ROUTE_BROKERS_MAX and ROUTE_QUEUES_MAX.
 *
 * Threads: any; references are atomic. Failure modes: an answer out of bounds is refused whole.
 */
#include "client/instance_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/order_conf.h"

enum { PERM_WRITE = 2, PERM_READ = 4, MASTER_ID = 0 };
enum {
    ADDRESSES_MAX =
        sizeof((struct route_broker *)0)->addresses / sizeof((struct route_broker *)0)->addresses[0]
};

struct route *route_ref(struct route *route)
{
    atomic_fetch_add_explicit(&route->refs, 1, memory_order_relaxed);
    return route;
}

void route_unref(struct route *route)
{
    if (!route || atomic_fetch_sub_explicit(&route->refs, 1, memory_order_acq_rel) > 1)
        return;
    free(route->brokers);
    free(route->data);
    free(route->writable);
    free(route->readable);
    free(route);
}

static bool copy_name(char *dst, size_t cap, const ProtobufCBinaryData *src)
{
    if (src->len == 0 || src->len >= cap || memchr(src->data, 0, src->len))
        return false;
    memcpy(dst, src->data, src->len);
    dst[src->len] = 0;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct route_broker *)a)->name, ((const struct route_broker *)b)->name);
}

/* Addresses sorted by id, wherever they stand in the answer. */
static bool copy_addresses(struct route_broker *dst, const Tern__Wire__BrokerData *src)
{
    if (src->n_addresses > ADDRESSES_MAX)
        return false;
    for (size_t i = 0; i < src->n_addresses; i++) {
        const Tern__Wire__BrokerAddress *from = src->addresses[i];
        size_t at = dst->address_count++;
        for (; at > 0 && dst->addresses[at - 1].id > from->broker_id; at--)
            dst->addresses[at] = dst->addresses[at - 1];
        dst->addresses[at].id = from->broker_id;
        dst->addresses[at].store_host_v6 = from->store_host_v6;
        memset(dst->addresses[at].address, 0, ADDRESS_BYTES);
        if (!copy_name(dst->addresses[at].address, ADDRESS_BYTES, &from->address))
            return false;
    }
    return true;
}

static enum tern_code copy_brokers(struct route *route, const Tern__Wire__RouteResponse *answer)
{
    if (answer->n_brokers > ROUTE_BROKERS_MAX)
        return TERN_PROTOCOL;
    route->brokers = calloc(answer->n_brokers, sizeof *route->brokers);
    if (!route->brokers)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < answer->n_brokers; i++) {
        struct route_broker *broker = &route->brokers[route->broker_count++];
        const Tern__Wire__BrokerData *from = answer->brokers[i];
        if (!copy_name(broker->cluster, sizeof broker->cluster, &from->cluster_name) ||
            !copy_name(broker->name, sizeof broker->name, &from->broker_name) ||
            !copy_addresses(broker, from))
            return TERN_PROTOCOL;
    }
    qsort(route->brokers, route->broker_count, sizeof *route->brokers, by_name);
    return TERN_OK;
}

static int by_broker(const void *a, const void *b)
{
    const struct route_queue_data *x = a;
    const struct route_queue_data *y = b;
    return x->broker < y->broker ? -1 : x->broker > y->broker;
}

/* Queue data of brokers that the answer does not name are of no use and left out. */
static enum tern_code copy_data(struct route *route, const Tern__Wire__RouteResponse *answer)
{
    if (answer->n_queues > ROUTE_BROKERS_MAX)
        return TERN_PROTOCOL;
    route->data = calloc(answer->n_queues, sizeof *route->data);
    if (!route->data)
        return TERN_NO_MEMORY;
    int64_t queues = 0;
    for (size_t i = 0; i < answer->n_queues; i++) {
        const Tern__Wire__QueueData *from = answer->queues[i];
        char name[sizeof route->brokers->name];
        if (!copy_name(name, sizeof name, &from->broker_name) || from->read_queues < 0 ||
            from->write_queues < 0)
            return TERN_PROTOCOL;
        queues += (int64_t)from->read_queues + from->write_queues;
        if (queues > 2 * (int64_t)ROUTE_QUEUES_MAX)
            return TERN_PROTOCOL;
        const struct route_broker *broker = route_find_broker(route, name);
        if (!broker)
            continue;
        route->data[route->data_count++] =
            (struct route_queue_data){.broker = (uint32_t)(broker - route->brokers),
                                      .read_queues = from->read_queues,
                                      .write_queues = from->write_queues,
                                      .perm = from->perm};
    }
    qsort(route->data, route->data_count, sizeof *route->data, by_broker);
    return TERN_OK;
}

/* How many queues of a broker may be used, for writing or reading. */
static int32_t usable_queues(const struct route *route, const struct route_queue_data *data,
                             bool write)
{
    const struct route_broker *broker = &route->brokers[data->broker];
    if (broker->address_count == 0 || !(data->perm & (write ? PERM_WRITE : PERM_READ)))
        return 0;
    if (!write)
        return data->read_queues;
    return route_broker_address(broker, MASTER_ID, false, NULL) ? data->write_queues : 0;
}

static enum tern_code list_queues(const struct route *route, bool write, struct tern_queue **out,
                                  size_t *count)
{
    size_t total = 0;
    for (size_t i = 0; i < route->data_count; i++)
        total += (size_t)usable_queues(route, &route->data[i], write);
    *out = calloc(total + 1, sizeof **out);
    if (!*out)
        return TERN_NO_MEMORY;
    for (size_t i = 0; i < route->data_count; i++) {
        const struct route_broker *broker = &route->brokers[route->data[i].broker];
        int32_t queues = usable_queues(route, &route->data[i], write);
        for (int32_t id = 0; id < queues; id++) {
            struct tern_queue *queue = &(*out)[(*count)++];
            memcpy(queue->topic, route->topic, sizeof queue->topic);
            memcpy(queue->broker_name, broker->name, sizeof queue->broker_name);
            queue->queue_id = id;
        }
    }
    return TERN_OK;
}

static enum tern_code list_ordered(struct route *route, const ProtobufCBinaryData *conf,
                                   struct tern_error *err)
{
    struct order_conf_row *rows;
    size_t row_count;
    size_t total = 0;
    enum tern_code code =
        order_conf_parse((const char *)conf->data, conf->len, &rows, &row_count, err);
    if (code != TERN_OK)
        return code;
    for (size_t i = 0; i < row_count; i++)
        total += (size_t)rows[i].queues;
    route->writable = calloc(total + 1, sizeof *route->writable);
    for (size_t i = 0; route->writable && i < row_count; i++)
        for (int32_t id = 0; id < rows[i].queues; id++) {
            struct tern_queue *queue = &route->writable[route->writable_count++];
            memcpy(queue->topic, route->topic, sizeof queue->topic);
            memcpy(queue->broker_name, rows[i].broker, sizeof rows[i].broker);
            queue->queue_id = id;
        }
    free(rows);
    route->ordered = true;
    return route->writable ? TERN_OK : TERN_NO_MEMORY;
}

enum tern_code route_create(const char *topic, const Tern__Wire__RouteResponse *answer,
                            int64_t now_ns, struct route **out, struct tern_error *err)
{
    *out = NULL;
    if (answer->n_queues == 0 || answer->n_brokers == 0)
        return error_set(err, TERN_TOPIC_NOT_EXIST, "the route of topic %s is empty", topic);
    struct route *route = calloc(1, sizeof *route);
    if (!route)
        return error_set(err, TERN_NO_MEMORY, "route of topic %s", topic);
    route->refs = 1;
    route->fetched_ns = now_ns;
    memcpy(route->topic, topic, strlen(topic) + 1);
    struct tern_error conf_err = {.text = ""};
    enum tern_code code = copy_brokers(route, answer);
    if (code == TERN_OK)
        code = copy_data(route, answer);
    if (code == TERN_OK && answer->order_conf.len > 0)
        code = list_ordered(route, &answer->order_conf, &conf_err);
    else if (code == TERN_OK)
        code = list_queues(route, true, &route->writable, &route->writable_count);
    if (code == TERN_OK)
        code = list_queues(route, false, &route->readable, &route->readable_count);
    if (code != TERN_OK) {
        route_unref(route);
        if (conf_err.text[0])
            return error_set(err, TERN_PROTOCOL,
                             "route of topic %s: %s; see mqadmin updateOrderConf", topic,
                             conf_err.text);
        return error_set(err, code, "route of topic %s: %s", topic,
                         code == TERN_PROTOCOL ? "a name, count or address is out of bounds"
                                               : "no memory");
    }
    *out = route;
    return TERN_OK;
}

static bool broker_equal(const struct route_broker *a, const struct route_broker *b)
{
    if (strcmp(a->name, b->name) != 0 || strcmp(a->cluster, b->cluster) != 0 ||
        a->address_count != b->address_count)
        return false;
    for (size_t i = 0; i < a->address_count; i++)
        if (a->addresses[i].id != b->addresses[i].id ||
            a->addresses[i].store_host_v6 != b->addresses[i].store_host_v6 ||
            strcmp(a->addresses[i].address, b->addresses[i].address) != 0)
            return false;
    return true;
}

static bool writable_equal(const struct route *a, const struct route *b)
{
    if (a->writable_count != b->writable_count)
        return false;
    for (size_t i = 0; i < a->writable_count; i++)
        if (a->writable[i].queue_id != b->writable[i].queue_id ||
            strcmp(a->writable[i].broker_name, b->writable[i].broker_name) != 0)
            return false;
    return true;
}

bool route_equal(const struct route *a, const struct route *b)
{
    if (a->ordered != b->ordered || (a->ordered && !writable_equal(a, b)))
        return false;
    if (a->broker_count != b->broker_count || a->data_count != b->data_count)
        return false;
    for (size_t i = 0; i < a->broker_count; i++)
        if (!broker_equal(&a->brokers[i], &b->brokers[i]))
            return false;
    for (size_t i = 0; i < a->data_count; i++)
        if (a->data[i].broker != b->data[i].broker || a->data[i].perm != b->data[i].perm ||
            a->data[i].read_queues != b->data[i].read_queues ||
            a->data[i].write_queues != b->data[i].write_queues)
            return false;
    return true;
}

bool route_lacks_master(const struct route *route)
{
    for (size_t i = 0; i < route->data_count; i++)
        if (!route_broker_address(&route->brokers[route->data[i].broker], MASTER_ID, false, NULL))
            return true;
    return false;
}

bool route_names(const struct route *route, const char *address)
{
    for (size_t i = 0; i < route->broker_count; i++)
        for (size_t j = 0; j < route->brokers[i].address_count; j++)
            if (!strcmp(route->brokers[i].addresses[j].address, address))
                return true;
    return false;
}

const struct route_broker *route_find_broker(const struct route *route, const char *name)
{
    size_t low = 0;
    size_t high = route->broker_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, route->brokers[middle].name);
        if (order == 0)
            return &route->brokers[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static const char *address_of(const struct route_broker *broker, int64_t id)
{
    for (size_t i = 0; i < broker->address_count; i++)
        if (broker->addresses[i].id == id)
            return broker->addresses[i].address;
    return NULL;
}

const char *route_broker_address(const struct route_broker *broker, int64_t wanted_id, bool any,
                                 int64_t *actual_id)
{
    int64_t id = wanted_id;
    const char *address = address_of(broker, id);
    if (!address && wanted_id != MASTER_ID)
        address = address_of(broker, ++id);
    if (!address && any && broker->address_count > 0) {
        id = broker->addresses[0].id;
        address = broker->addresses[0].address;
    }
    if (address && actual_id)
        *actual_id = id;
    return address;
}
