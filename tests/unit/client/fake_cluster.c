/*
 * The scripted cluster: its world, its processes and their parked requests, the nameserver, and who
 * answers which request.
 */
#include "tests/unit/client/fake_internal.h"

#include "base/record.h"

bool fake_is(const ProtobufCBinaryData *bytes, const char *text)
{
    return bytes->len == strlen(text) && memcmp(bytes->data, text, bytes->len) == 0;
}

struct fake_queue *fake_queue(struct fake *fake, const ProtobufCBinaryData *topic, int32_t id)
{
    if (fake_is(topic, FAKE_RETRY) && id == 0)
        return &fake->queues[FAKE_QUEUES];
    assert_true(fake_is(topic, FAKE_TOPIC) && id >= 0 && id < fake->queue_count);
    return &fake->queues[id];
}

void fake_run_ms(struct fake *fake, int64_t ms)
{
    sim_run_for(fake->sim.sched, ms_to_ns(ms));
}

/* ---- requests that wait ---- */

void fake_unpark(struct fake_node *node, bool all)
{
    int64_t now_ns = clock_mono_ns(node->fake->env.clock);
    for (unsigned i = 0; i < FAKE_PARKED; i++) {
        struct rpc_request *rq = node->parked[i];
        if (!rq || (!all && rq->received_ns + (int64_t)(uintptr_t)rq->user > now_ns))
            continue;
        node->parked[i] = NULL;
        fake_serve(node, rq);
    }
}

static void fake_expire(void *arg)
{
    fake_unpark(arg, false);
}

void fake_park(struct fake_node *node, struct rpc_request *rq, uint32_t suspend_ms)
{
    unsigned i = 0;
    while (i < FAKE_PARKED && node->parked[i])
        i++;
    assert_true(i < FAKE_PARKED);
    node->parked[i] = rq;
    rq->user = (void *)(uintptr_t)ms_to_ns(suspend_ms);
    if (node->fake->net)
        sim_after(node->fake->sim.sched, ms_to_ns(suspend_ms), fake_expire, node);
}

/* ---- serving ---- */

static void fake_route(struct fake *fake, struct rpc_request *rq)
{
    const ProtobufCBinaryData *topic = &rq->header->route->topic;
    bool retry = fake_is(topic, FAKE_RETRY) && fake->has_retry_topic;
    if (!fake_is(topic, FAKE_TOPIC) && !retry) {
        rpc_reply_error(rq, TERN_TOPIC_NOT_EXIST, "no such topic");
        return;
    }
    Tern__Wire__QueueData data = TERN__WIRE__QUEUE_DATA__INIT;
    data.broker_name = frame_bytes("broker-a", 8);
    data.read_queues = data.write_queues = retry ? 1 : fake->queue_count;
    data.perm = 6;
    Tern__Wire__QueueData *datas[] = {&data};
    Tern__Wire__BrokerAddress addresses[2];
    Tern__Wire__BrokerAddress *pointers[2];
    Tern__Wire__BrokerData broker = TERN__WIRE__BROKER_DATA__INIT;
    broker.cluster_name = frame_bytes("c", 1);
    broker.broker_name = data.broker_name;
    for (int i = 0; i < 2; i++) {
        if (!fake->listed[i])
            continue;
        tern__wire__broker_address__init(&addresses[broker.n_addresses]);
        addresses[broker.n_addresses].broker_id = i;
        addresses[broker.n_addresses].address =
            frame_bytes(fake->brokers[i].address, strlen(fake->brokers[i].address));
        pointers[broker.n_addresses] = &addresses[broker.n_addresses];
        broker.n_addresses++;
    }
    broker.addresses = pointers;
    Tern__Wire__BrokerData *brokers[] = {&broker};
    Tern__Wire__RouteResponse body = TERN__WIRE__ROUTE_RESPONSE__INIT;
    body.n_queues = 1;
    body.queues = datas;
    body.n_brokers = 1;
    body.brokers = brokers;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    response.body_case = TERN__WIRE__RESPONSE__BODY_ROUTE;
    response.route = &body;
    rpc_reply(rq, &response, 0);
}

int fake_first_place(const struct fake *fake, int32_t kind)
{
    for (unsigned i = 0; i < fake->first_kind_count; i++)
        if (fake->first_kinds[i] == kind)
            return (int)i;
    return -1;
}

static void fake_serve_locked(struct fake_node *node, struct rpc_request *rq, bool again)
{
    struct fake *fake = node->fake;
    int32_t kind = (int32_t)rq->header->body_case;
    if (fake_first_place(fake, kind) < 0 && fake->first_kind_count < 32)
        fake->first_kinds[fake->first_kind_count++] = kind;
    switch (rq->header->body_case) {
    case TERN__WIRE__REQUEST__BODY_ROUTE:
        fake_route(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_PULL:
        fake_pull(node, rq, again);
        break;
    case TERN__WIRE__REQUEST__BODY_QUERY_OFFSET:
        fake_query(node, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_COMMIT_OFFSET:
        fake_commit(node, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_QUEUE_RANGE:
        fake_range(node, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_SEARCH_OFFSET:
        fake_search(node, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_HEARTBEAT:
        fake_heartbeat(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_UNREGISTER_CLIENT:
        fake_leave(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_MEMBERS:
        fake_members(node, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_WAIT_EVENTS:
        fake_wait_events(node, rq, again);
        break;
    case TERN__WIRE__REQUEST__BODY_SEND:
        fake_copy(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_LOCK_QUEUES:
        fake_lock_queues(node, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_UNLOCK_QUEUES:
        fake_unlock_queues(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_CHECK_SUBSCRIPTION:
        fake_check_expression(fake, rq);
        break;
    case TERN__WIRE__REQUEST__BODY_SEND_BACK:
        fake_send_back(fake, rq);
        break;
    default:
        rpc_reply_error(rq, TERN_NOT_SUPPORTED, "the fake does not know this");
    }
}

void fake_serve(void *arg, struct rpc_request *rq)
{
    struct fake_node *node = arg;
    bool again = rq->user != NULL;
    pthread_mutex_lock(&node->fake->mutex);
    fake_serve_locked(node, rq, again);
    pthread_mutex_unlock(&node->fake->mutex);
}

/* ---- nodes ---- */

void fake_node_up(struct fake_node *node)
{
    struct fake *fake = node->fake;
    if (fake->net)
        node->link = sim_net_link(fake->net, node->host);
    else
        assert_ok(link_nng_create(&fake->env, &node->link, NULL));
    struct rpc_server_options options = {.listen = {.address = node->address,
                                                    .max_message_bytes = 8 << 20,
                                                    .max_peers = 64,
                                                    .max_requests = 4096,
                                                    .max_requests_per_peer = 1024,
                                                    .reply_timeout_ms = 30000},
                                         .arena_budget_bytes = 16 << 20,
                                         .arg = node,
                                         .on_request = fake_serve};
    struct tern_error err;
    if (rpc_server_create(&fake->env, node->link, &options, &node->server, &err) != TERN_OK)
        fail_msg("%s", err.text);
    if (!fake->net)
        snprintf(node->address, sizeof node->address, "127.0.0.1:%u",
                 rpc_server_port(node->server));
}

void fake_node_down(struct fake_node *node)
{
    if (node->fake->net)
        sim_net_crash(node->fake->net, node->host);
    pthread_mutex_lock(&node->fake->mutex);
    for (unsigned i = 0; i < FAKE_PARKED; i++) {
        if (node->parked[i])
            rpc_reply_ok(node->parked[i]);
        node->parked[i] = NULL;
    }
    pthread_mutex_unlock(&node->fake->mutex);
    rpc_server_stop(node->server);
    rpc_server_destroy(node->server);
    link_destroy(node->link);
    node->link = NULL;
}

/* ---- the world ---- */

static struct fake *fake_make(int queue_count, bool real)
{
    struct fake *fake = calloc(1, sizeof *fake);
    assert_non_null(fake);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&fake->mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    static const char *const addresses[] = {FAKE_NAMESRV, "10.0.0.1:10911", "10.0.0.2:10911"};
    static const char *const hosts[] = {"10.0.0.8", "10.0.0.1", "10.0.0.2"};
    struct fake_node *nodes[] = {&fake->namesrv, &fake->brokers[0], &fake->brokers[1]};
    if (real) {
        env_init_system(&fake->env, NULL);
        assert_ok(link_nng_create(&fake->env, &fake->client, NULL));
    } else {
        sim_env_init(&fake->sim, 7);
        fake->env = fake->sim.env;
        fake->net = sim_net_create(&fake->sim);
        fake->client = sim_net_link(fake->net, "10.0.0.9");
    }
    fake->listed[0] = fake->listed[1] = true;
    fake->queue_count = queue_count;
    fake->range_max = -2;
    fake->search_answer = -1;
    fake->queues = calloc(FAKE_QUEUES + 1, sizeof *fake->queues);
    assert_non_null(fake->queues);
    for (int i = 0; i <= FAKE_QUEUES; i++)
        fake->queues[i].committed = fake->queues[i].slave_max = -1;
    for (int i = 0; i < 3; i++) {
        nodes[i]->fake = fake;
        nodes[i]->id = i - 1;
        nodes[i]->host = hosts[i];
        snprintf(nodes[i]->address, sizeof nodes[i]->address, "%s",
                 real ? "127.0.0.1:0" : addresses[i]);
        fake_node_up(nodes[i]);
    }
    return fake;
}

struct fake *fake_create(int queue_count)
{
    return fake_make(queue_count, false);
}

struct fake *fake_create_real(int queue_count)
{
    return fake_make(queue_count, true);
}

void fake_destroy(struct fake *fake)
{
    struct fake_node *nodes[] = {&fake->namesrv, &fake->brokers[0], &fake->brokers[1]};
    for (int i = 0; i < 3; i++)
        if (nodes[i]->link)
            fake_node_down(nodes[i]);
    link_destroy(fake->client);
    if (fake->net) {
        sim_net_destroy(fake->net);
        sim_env_fini(&fake->sim);
    }
    pthread_mutex_destroy(&fake->mutex);
    free(fake->queues);
    free(fake);
}

void fake_publish(struct fake *fake, int queue_id, char *tag, int64_t count)
{
    struct fake_queue *queue = &fake->queues[queue_id];
    pthread_mutex_lock(&fake->mutex);
    for (int64_t i = 0; i < count; i++) {
        assert_true(queue->max < FAKE_MESSAGES);
        queue->tags[queue->max++] = tag;
    }
    for (int i = 0; i < 2; i++)
        if (fake->brokers[i].link)
            fake_unpark(&fake->brokers[i], true);
    pthread_mutex_unlock(&fake->mutex);
}

void fake_stamp(struct fake *fake, size_t body_size)
{
    uint8_t body[256] = {0};
    assert_true(body_size <= sizeof body);
    struct record record = {.body = body,
                            .body_len = (uint32_t)body_size,
                            .topic = (const uint8_t *)FAKE_TOPIC,
                            .topic_len = 1,
                            .props = (const uint8_t *)"TAGS\x01TagA",
                            .props_len = 9};
    fake->stamped_size = record_encode(fake->stamped, sizeof fake->stamped, &record);
    assert_true(fake->stamped_size > 0);
}

struct tern_consumer_options *fake_options(struct fake *fake, const char *group, const char *name)
{
    struct tern_consumer_options *options = tern_consumer_options_create();
    assert_non_null(options);
    assert_ok(tern_consumer_options_namesrv(options, fake->namesrv.address));
    assert_ok(tern_consumer_options_group(options, group));
    assert_ok(tern_consumer_options_instance(options, name));
    tern_consumer_options_world(options, &fake->env, fake->client);
    return options;
}
