/*
 * Fakes of nameserver and broker. Requests come on the link's threads; a mutex of each fake covers
 * all. Threads: tests read the counters while nothing is under way, or under the mutex.
 */
#include "fake_servers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { LISTEN_MESSAGE_BYTES = 80 << 20 };

static struct rpc_server *serve(const struct env *env, struct link *link, char address[64],
                                void (*on_request)(void *, struct rpc_request *), void *arg)
{
    struct rpc_server_options options = {
        .listen = {.address = address,
                   .max_message_bytes = LISTEN_MESSAGE_BYTES,
                   .max_peers = 1000,
                   .max_requests = 10000,
                   .max_requests_per_peer = 10000,
                   .reply_timeout_ms = 10000},
        .arena_budget_bytes = LISTEN_MESSAGE_BYTES,
        .arg = arg,
        .on_request = on_request,
    };
    struct rpc_server *server;
    struct tern_error err = {0};
    if (rpc_server_create(env, link, &options, &server, &err) != TERN_OK) {
        fprintf(stderr, "fake server at %s: %s\n", address, err.text);
        abort();
    }
    char host[64];
    snprintf(host, sizeof host, "%s", address);
    *strrchr(host, ':') = 0;
    snprintf(address, 64, "%.50s:%u", host, rpc_server_port(server));
    return server;
}

/* Requests come no more once the server has stopped; only then may the held ones be looked at. */
static void stop(struct rpc_server *server, struct rpc_request **held, size_t *count,
                 struct rpc_request **parked)
{
    rpc_server_stop(server);
    for (size_t i = 0; i < *count; i++)
        rpc_reply_error(held[i], TERN_SYSTEM_ERROR, "the fake stops");
    *count = 0;
    if (parked && *parked) {
        rpc_reply_error(*parked, TERN_SYSTEM_ERROR, "the fake stops");
        *parked = NULL;
    }
    rpc_server_destroy(server);
}

static ProtobufCBinaryData bytes_of(const char *text)
{
    return frame_bytes(text, strlen(text));
}

static void copy_bytes(char *dst, size_t cap, const ProtobufCBinaryData *src)
{
    size_t len = src->len < cap - 1 ? src->len : cap - 1;
    if (len > 0)
        memcpy(dst, src->data, len);
    dst[len] = 0;
}

/* ---- nameserver ---- */

static struct fake_topic *find_topic(struct fake_namesrv *ns, const char *name)
{
    for (size_t i = 0; i < ns->topic_count; i++)
        if (strcmp(ns->topics[i].name, name) == 0)
            return &ns->topics[i];
    return NULL;
}

static void answer_route(struct rpc_request *request, const struct fake_topic *topic)
{
    Tern__Wire__QueueData queues[FAKE_BROKERS_MAX];
    Tern__Wire__QueueData *queue_list[FAKE_BROKERS_MAX];
    Tern__Wire__BrokerData brokers[FAKE_BROKERS_MAX];
    Tern__Wire__BrokerData *broker_list[FAKE_BROKERS_MAX];
    Tern__Wire__BrokerAddress addresses[FAKE_BROKERS_MAX][2];
    Tern__Wire__BrokerAddress *address_list[FAKE_BROKERS_MAX][2];
    Tern__Wire__RouteResponse route = TERN__WIRE__ROUTE_RESPONSE__INIT;
    for (size_t i = 0; topic && i < topic->count; i++) {
        const struct fake_queues *part = &topic->parts[i];
        queues[i] = (Tern__Wire__QueueData)TERN__WIRE__QUEUE_DATA__INIT;
        queues[i].broker_name = bytes_of(part->broker);
        queues[i].read_queues = part->read_queues;
        queues[i].write_queues = part->write_queues;
        queues[i].perm = part->perm;
        queue_list[i] = &queues[i];
        brokers[i] = (Tern__Wire__BrokerData)TERN__WIRE__BROKER_DATA__INIT;
        brokers[i].cluster_name = bytes_of("DefaultCluster");
        brokers[i].broker_name = bytes_of(part->broker);
        brokers[i].addresses = address_list[i];
        const char *texts[2] = {part->slave, part->address}; /* not sorted by id */
        for (int j = 0; j < 2; j++) {
            if (!texts[j][0])
                continue;
            size_t at = brokers[i].n_addresses++;
            addresses[i][at] = (Tern__Wire__BrokerAddress)TERN__WIRE__BROKER_ADDRESS__INIT;
            addresses[i][at].broker_id = j == 0 ? 1 : 0;
            addresses[i][at].address = bytes_of(texts[j]);
            addresses[i][at].store_host_v6 = part->store_v6;
            address_list[i][at] = &addresses[i][at];
        }
        broker_list[i] = &brokers[i];
    }
    route.n_queues = topic ? topic->count : 0;
    route.queues = queue_list;
    route.n_brokers = route.n_queues;
    route.brokers = broker_list;
    if (topic)
        route.order_conf = bytes_of(topic->order_conf);
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_ROUTE;
    response.route = &route;
    rpc_reply(request, &response, 0);
}

static void on_namesrv_request(void *arg, struct rpc_request *request)
{
    struct fake_namesrv *ns = arg;
    char name[128] = "";
    pthread_mutex_lock(&ns->mutex);
    if (request->header->body_case == TERN__WIRE__REQUEST__BODY_ROUTE) {
        copy_bytes(name, sizeof name, &request->header->route->topic);
        ns->asked++;
    }
    bool hold = ns->mute && ns->held_count < FAKE_HELD_MAX;
    if (hold)
        ns->held[ns->held_count++] = request;
    struct fake_topic *found = ns->forgetful ? NULL : find_topic(ns, name);
    struct fake_topic topic;
    if (found)
        topic = *found;
    bool empty = ns->empty;
    pthread_mutex_unlock(&ns->mutex);
    if (hold)
        return;
    if (empty)
        answer_route(request, NULL);
    else if (found)
        answer_route(request, &topic);
    else
        rpc_reply_error(request, TERN_TOPIC_NOT_EXIST, "No topic route info for %s", name);
}

void fake_namesrv_start(struct fake_namesrv *ns, const struct env *env, struct link *link,
                        const char *address)
{
    if (!ns->address[0])
        pthread_mutex_init(&ns->mutex, NULL);
    snprintf(ns->address, sizeof ns->address, "%s", address);
    ns->server = serve(env, link, ns->address, on_namesrv_request, ns);
}

void fake_namesrv_stop(struct fake_namesrv *ns)
{
    if (!ns->server)
        return;
    stop(ns->server, ns->held, &ns->held_count, NULL);
    ns->server = NULL;
}

void fake_namesrv_order(struct fake_namesrv *ns, const char *name, const char *order_conf)
{
    pthread_mutex_lock(&ns->mutex);
    struct fake_topic *topic = find_topic(ns, name);
    ENSURE(topic != NULL);
    snprintf(topic->order_conf, sizeof topic->order_conf, "%s", order_conf);
    pthread_mutex_unlock(&ns->mutex);
}

void fake_namesrv_put(struct fake_namesrv *ns, const char *name, const struct fake_queues *part)
{
    pthread_mutex_lock(&ns->mutex);
    struct fake_topic *topic = find_topic(ns, name);
    if (!topic) {
        topic = &ns->topics[ns->topic_count++];
        *topic = (struct fake_topic){0};
        snprintf(topic->name, sizeof topic->name, "%s", name);
    }
    size_t at = 0;
    while (at < topic->count && strcmp(topic->parts[at].broker, part->broker) != 0)
        at++;
    topic->parts[at] = *part;
    if (at == topic->count)
        topic->count++;
    pthread_mutex_unlock(&ns->mutex);
}

void fake_namesrv_drop(struct fake_namesrv *ns, const char *name)
{
    pthread_mutex_lock(&ns->mutex);
    struct fake_topic *topic = find_topic(ns, name);
    if (topic)
        topic->name[0] = 0;
    pthread_mutex_unlock(&ns->mutex);
}

/* ---- broker ---- */

static void note_records(struct fake_send *send, const uint8_t *payload, size_t size)
{
    uint32_t count = 0;
    for (size_t at = 0; at < size; count++) {
        struct record record;
        /* The CRC is the broker's to set: not checked. */
        if (record_parse(payload + at, size - at, size - at, false, &record) != RECORD_WHOLE) {
            fprintf(stderr, "fake broker: no whole record at byte %zu of %zu\n", at, size);
            abort();
        }
        if (count == 0) {
            send->sys_flag = record.sys_flag;
            send->body_len = record.body_len;
            copy_bytes(send->body, sizeof send->body,
                       &(ProtobufCBinaryData){record.body_len, (uint8_t *)(uintptr_t)record.body});
            copy_bytes(
                send->props, sizeof send->props,
                &(ProtobufCBinaryData){record.props_len, (uint8_t *)(uintptr_t)record.props});
        }
        if (record.queue_id != send->queue_id || record.body_crc != 0) {
            fprintf(stderr, "fake broker: record with queue %d, crc %u\n", record.queue_id,
                    record.body_crc);
            abort();
        }
        at += record.total_size;
    }
    if (count != send->count) {
        fprintf(stderr, "fake broker: %u records, %u announced\n", count, send->count);
        abort();
    }
}

static void note_send(struct fake_send *send, struct rpc_request *request)
{
    *send = (struct fake_send){0};
    if (request->header->body_case == TERN__WIRE__REQUEST__BODY_SEND) {
        const Tern__Wire__SendRequest *plain = request->header->send;
        send->plain = true;
        send->count = 1;
        send->queue_id = plain->queue_id;
        send->sys_flag = plain->sys_flag;
        copy_bytes(send->topic, sizeof send->topic, &plain->topic);
        copy_bytes(send->default_topic, sizeof send->default_topic, &plain->default_topic);
        copy_bytes(send->props, sizeof send->props, &plain->properties);
        send->default_queues = plain->default_topic_queues;
        send->body_len = request->payload_size;
        copy_bytes(send->body, sizeof send->body,
                   &(ProtobufCBinaryData){request->payload_size, request->payload});
        return;
    }
    const Tern__Wire__SendRecordsRequest *records = request->header->send_records;
    send->count = records->count;
    send->queue_id = records->queue_id;
    send->no_wait = records->no_wait;
    copy_bytes(send->topic, sizeof send->topic, &records->topic);
    copy_bytes(send->default_topic, sizeof send->default_topic, &records->default_topic);
    send->default_queues = records->default_topic_queues;
    note_records(send, request->payload, request->payload_size);
}

/* Stores and answers. @locks takes the fake's mutex */
static void answer_send(struct fake_broker *broker, struct rpc_request *request)
{
    struct fake_send seen;
    note_send(&seen, request);
    pthread_mutex_lock(&broker->mutex);
    int32_t code = broker->script_at < broker->script_count ? broker->script[broker->script_at++]
                                                            : TERN__WIRE__CODE__SUCCESS;
    if (!seen.plain && broker->want_born_v6 != !!(seen.sys_flag & SYS_BORN_V6))
        code = TERN__WIRE__CODE__MESSAGE_ILLEGAL;
    bool stored = code == 0 || (code >= 10 && code <= 12);
    seen.code = code;
    seen.at_ns = clock_mono_ns(broker->env->clock);
    if (!broker->keep_nothing && broker->send_count < FAKE_SENDS_MAX)
        broker->sends[broker->send_count] = seen;
    broker->send_count++;
    int64_t offset = broker->next_offset[seen.queue_id % FAKE_QUEUES_MAX];
    if (stored) {
        broker->next_offset[seen.queue_id % FAKE_QUEUES_MAX] += seen.count;
        broker->messages += seen.count;
    }
    pthread_mutex_unlock(&broker->mutex);
    static uint8_t ip[4] = {127, 0, 0, 1};
    Tern__Wire__Address host = TERN__WIRE__ADDRESS__INIT;
    host.ip = (ProtobufCBinaryData){4, ip};
    host.port = 10911;
    Tern__Wire__SendResponse sent = TERN__WIRE__SEND_RESPONSE__INIT;
    sent.queue_id = seen.queue_id;
    sent.queue_offset = offset;
    sent.physical_offset = 4096;
    sent.store_host = &host;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.code = code;
    response.remark = (char *)(uintptr_t)(code ? "scripted" : "");
    if (stored) {
        response.body_case = TERN__WIRE__RESPONSE__BODY_SEND;
        response.send = &sent;
    }
    rpc_reply(request, &response, 0);
}

static void answer_heartbeat(struct fake_broker *broker, struct rpc_request *request)
{
    const Tern__Wire__HeartbeatRequest *beat = request->header->heartbeat;
    pthread_mutex_lock(&broker->mutex);
    broker->beats++;
    broker->last_producers = beat->n_producer_groups;
    broker->last_consumers = beat->n_consumers;
    if (beat->n_producer_groups > 0)
        copy_bytes(broker->last_group, sizeof broker->last_group, &beat->producer_groups[0]);
    static uint8_t ip[16];
    Tern__Wire__Address seen = TERN__WIRE__ADDRESS__INIT;
    seen.ip = (ProtobufCBinaryData){broker->seen_as_v6 ? 16 : 4, ip};
    pthread_mutex_unlock(&broker->mutex);
    Tern__Wire__HeartbeatResponse answer = TERN__WIRE__HEARTBEAT_RESPONSE__INIT;
    answer.seen_as = &seen;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_HEARTBEAT;
    response.heartbeat = &answer;
    rpc_reply(request, &response, 0);
}

static void answer_view(struct fake_broker *broker, struct rpc_request *request)
{
    pthread_mutex_lock(&broker->mutex);
    size_t size = broker->viewed_size;
    broker->last_viewed = request->header->view_message->physical_offset;
    memcpy(rpc_reply_reserve(request, size), broker->viewed, size);
    pthread_mutex_unlock(&broker->mutex);
    Tern__Wire__ViewMessageResponse body = TERN__WIRE__VIEW_MESSAGE_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_VIEW_MESSAGE;
    response.view_message = &body;
    rpc_reply(request, &response, size);
}

static void on_broker_request(void *arg, struct rpc_request *request)
{
    struct fake_broker *broker = arg;
    bool hold = false;
    switch (request->header->body_case) {
    case TERN__WIRE__REQUEST__BODY_SEND:
    case TERN__WIRE__REQUEST__BODY_SEND_RECORDS:
        pthread_mutex_lock(&broker->mutex);
        hold = broker->hold && broker->held_count < FAKE_HELD_MAX;
        if (hold)
            broker->held[broker->held_count++] = request;
        if (broker->held_count > broker->held_most)
            broker->held_most = (uint32_t)broker->held_count;
        pthread_mutex_unlock(&broker->mutex);
        if (!hold)
            answer_send(broker, request);
        return;
    case TERN__WIRE__REQUEST__BODY_HEARTBEAT:
        answer_heartbeat(broker, request);
        return;
    case TERN__WIRE__REQUEST__BODY_UNREGISTER_CLIENT:
        pthread_mutex_lock(&broker->mutex);
        broker->goodbyes++;
        copy_bytes(broker->goodbye_group, sizeof broker->goodbye_group,
                   request->header->unregister_client->producer_group.len
                       ? &request->header->unregister_client->producer_group
                       : &request->header->unregister_client->consumer_group);
        pthread_mutex_unlock(&broker->mutex);
        rpc_reply_ok(request);
        return;
    case TERN__WIRE__REQUEST__BODY_WAIT_EVENTS:
        pthread_mutex_lock(&broker->mutex);
        broker->parks++;
        broker->last_session = request->header->wait_events->session;
        broker->last_acknowledged = request->header->wait_events->acknowledged;
        struct rpc_request *earlier = broker->parked;
        broker->parked = request;
        pthread_mutex_unlock(&broker->mutex);
        if (earlier)
            rpc_reply_ok(earlier);
        return;
    case TERN__WIRE__REQUEST__BODY_VIEW_MESSAGE:
        answer_view(broker, request);
        return;
    default:
        rpc_reply_error(request, TERN_NOT_SUPPORTED, "the fake does not know this");
    }
}

void fake_broker_start(struct fake_broker *broker, const struct env *env, struct link *link,
                       const char *name, const char *address)
{
    if (!broker->env)
        pthread_mutex_init(&broker->mutex, NULL);
    broker->env = env;
    snprintf(broker->name, sizeof broker->name, "%s", name);
    snprintf(broker->address, sizeof broker->address, "%s", address);
    broker->server = serve(env, link, broker->address, on_broker_request, broker);
}

void fake_broker_stop(struct fake_broker *broker)
{
    if (!broker->server)
        return;
    stop(broker->server, broker->held, &broker->held_count, &broker->parked);
    broker->server = NULL;
}

void fake_broker_script(struct fake_broker *broker, int32_t code)
{
    pthread_mutex_lock(&broker->mutex);
    broker->script[broker->script_count++] = code;
    pthread_mutex_unlock(&broker->mutex);
}

bool fake_broker_release(struct fake_broker *broker)
{
    pthread_mutex_lock(&broker->mutex);
    struct rpc_request *request = broker->held_count > 0 ? broker->held[0] : NULL;
    if (request) {
        broker->held_count--;
        memmove(broker->held, broker->held + 1, broker->held_count * sizeof(struct rpc_request *));
    }
    pthread_mutex_unlock(&broker->mutex);
    if (request)
        answer_send(broker, request);
    return request != NULL;
}

void fake_broker_event(struct fake_broker *broker, uint64_t session, uint64_t number,
                       const char *group, bool resync)
{
    pthread_mutex_lock(&broker->mutex);
    struct rpc_request *request = broker->parked;
    broker->parked = NULL;
    pthread_mutex_unlock(&broker->mutex);
    if (!request)
        return;
    Tern__Wire__Event event;
    tern__wire__event__init(&event);
    Tern__Wire__Event *list[1] = {&event};
    Tern__Wire__WaitEventsResponse answer = TERN__WIRE__WAIT_EVENTS_RESPONSE__INIT;
    answer.session = session;
    answer.resync = resync;
    if (group) {
        event.number = number;
        event.body_case = TERN__WIRE__EVENT__BODY_MEMBERS_CHANGED;
        event.members_changed = bytes_of(group);
        answer.n_events = 1;
        answer.events = list;
    }
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_WAIT_EVENTS;
    response.wait_events = &answer;
    rpc_reply(request, &response, 0);
}

void fake_broker_reply(struct fake_broker *broker, uint64_t number, const char *correlation_id,
                       const char *replies_to)
{
    char props[128];
    int len =
        snprintf(props, sizeof props, "CORRELATION_ID\x01%s\x02MSG_TYPE\x01reply", replies_to);
    struct record record = {.body = (const uint8_t *)"answer",
                            .body_len = 6,
                            .topic = (const uint8_t *)"DefaultCluster_REPLY_TOPIC",
                            .topic_len = 26,
                            .props = (const uint8_t *)props,
                            .props_len = (uint16_t)len};
    pthread_mutex_lock(&broker->mutex);
    broker->viewed_size = record_encode(broker->viewed, sizeof broker->viewed, &record);
    struct rpc_request *request = broker->parked;
    broker->parked = NULL;
    pthread_mutex_unlock(&broker->mutex);
    ENSURE(request);
    Tern__Wire__ReplyEvent reply;
    tern__wire__reply_event__init(&reply);
    reply.correlation_id = bytes_of(correlation_id);
    reply.physical_offset = 777;
    Tern__Wire__Event event;
    tern__wire__event__init(&event);
    event.number = number;
    event.body_case = TERN__WIRE__EVENT__BODY_REPLY;
    event.reply = &reply;
    Tern__Wire__Event *list[1] = {&event};
    Tern__Wire__WaitEventsResponse answer = TERN__WIRE__WAIT_EVENTS_RESPONSE__INIT;
    answer.session = 5;
    answer.n_events = 1;
    answer.events = list;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_WAIT_EVENTS;
    response.wait_events = &answer;
    rpc_reply(request, &response, 0);
}
