/* A nameserver behind its wire messages on a simulated machine, and short ways to ask it. */
#ifndef TESTS_NAMESRV_NAMESRV_WORLD_H
#define TESTS_NAMESRV_NAMESRV_WORLD_H

#include "namesrv/namesrv.h"

#include "tests/sim/sim_env.h"
#include "tests/unit/base/unit.h"
#include "tests/unit/namesrv/direct_link.h"

#define CODE(name) TERN__WIRE__CODE__##name

struct world {
    struct sim_env sim;
    struct direct_link *link;
    struct namesrv *ns;
    struct direct_call *call; /* the last one, answered */
    uint8_t uuid[16];
};

/* What the next registration says; tests change it. */
struct told {
    const char *cluster, *broker, *address, *ha_address;
    int64_t id;
    uint8_t store;
    uint64_t peer, version;
    size_t topic_count;
    Tern__Wire__TopicConfig **topics; /* NULL: none are sent */
    bool unreadable;
};

static inline int set_up(void **state)
{
    static struct world world;
    struct namesrv_config config;
    struct tern_error err;
    memset(&world, 0, sizeof world);
    sim_env_init(&world.sim, 11);
    config_defaults(&namesrv_config_table, &config);
    snprintf(config.kv_config_path, sizeof config.kv_config_path, "/ns/kvConfig.json");
    world.link = direct_link_create();
    assert_ok(
        namesrv_create(&world.sim.env, direct_link_base(world.link), &config, &world.ns, &err));
    assert_ok(namesrv_start(world.ns, &err));
    *state = &world;
    return 0;
}

static inline int tear_down(void **state)
{
    struct world *w = *state;
    if (w->call)
        direct_call_free(w->call);
    namesrv_stop(w->ns);
    namesrv_destroy(w->ns);
    link_destroy(direct_link_base(w->link));
    sim_env_fini(&w->sim);
    return 0;
}

static inline bool answered(void *arg)
{
    return ((struct direct_call *)arg)->response != NULL;
}

/* Asks as `peer` and lets the world run until the answer is there; valid until the next one. */
static inline const TernResponse *ask(struct world *w, uint64_t peer, TernRequest *request)
{
    if (w->call)
        direct_call_free(w->call);
    w->call = direct_send(w->link, peer, request);
    if (!w->call->response)
        assert_true(sim_run_until_true(w->sim.sched, answered, w->call,
                                       w->sim.clock.now_ns + ms_to_ns(1000)));
    return w->call->response;
}

static inline ProtobufCBinaryData text(const char *value)
{
    return frame_bytes(value, strlen(value));
}

static inline bool is_text(const ProtobufCBinaryData *bytes, const char *value)
{
    return bytes->len == strlen(value) && memcmp(bytes->data, value, bytes->len) == 0;
}

static inline struct told master(void)
{
    return (struct told){.cluster = "C",
                         .broker = "broker-a",
                         .address = "10.0.0.1:10911",
                         .ha_address = "10.0.0.1:10912",
                         .store = 1,
                         .peer = 1,
                         .version = 1};
}

static inline struct told slave(void)
{
    struct told told = master();
    told.address = "10.0.0.2:10911";
    told.ha_address = "";
    told.id = 1;
    told.store = 2;
    told.peer = 2;
    return told;
}

static inline const TernResponse *register_broker(struct world *w, struct told told)
{
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__RegisterBrokerRequest body = TERN__WIRE__REGISTER_BROKER_REQUEST__INIT;
    memset(w->uuid, told.store, sizeof w->uuid);
    body.cluster_name = text(told.cluster);
    body.broker_name = text(told.broker);
    body.broker_id = told.id;
    body.address = text(told.address);
    body.ha_address = text(told.ha_address);
    body.store_uuid = (ProtobufCBinaryData){.len = sizeof w->uuid, .data = w->uuid};
    body.topics_version = told.version;
    body.has_topics = told.topics != NULL;
    body.topics = told.topics;
    body.n_topics = told.topic_count;
    body.readable = !told.unreadable;
    request.body_case = TERN__WIRE__REQUEST__BODY_REGISTER_BROKER;
    request.register_broker = &body;
    return ask(w, told.peer, &request);
}

static inline const TernResponse *register_with(struct world *w, struct told told, const char *a,
                                                const char *b)
{
    Tern__Wire__TopicConfig topics[2];
    Tern__Wire__TopicConfig *pointers[2] = {&topics[0], &topics[1]};
    const char *names[2] = {a, b};
    for (size_t i = 0; i < 2 && names[i]; i++) {
        tern__wire__topic_config__init(&topics[i]);
        topics[i].name = text(names[i]);
        topics[i].read_queues = 8;
        topics[i].write_queues = 4;
        topics[i].perm = 6;
        told.topic_count++;
    }
    told.topics = pointers;
    return register_broker(w, told);
}

static inline const TernResponse *route(struct world *w, const char *topic)
{
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__RouteRequest body = TERN__WIRE__ROUTE_REQUEST__INIT;
    body.topic = text(topic);
    request.body_case = TERN__WIRE__REQUEST__BODY_ROUTE;
    request.route = &body;
    return ask(w, 99, &request);
}

static inline const TernResponse *topic_list(struct world *w, const char *cluster)
{
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__TopicListRequest body = TERN__WIRE__TOPIC_LIST_REQUEST__INIT;
    body.cluster_name = text(cluster);
    request.body_case = TERN__WIRE__REQUEST__BODY_TOPIC_LIST;
    request.topic_list = &body;
    return ask(w, 99, &request);
}

static inline const TernResponse *kv(struct world *w, Tern__Wire__KvRequest__Operation operation,
                                     const char *name_space, const char *key, const char *value)
{
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__KvRequest body = TERN__WIRE__KV_REQUEST__INIT;
    body.operation = operation;
    body.namespace_ = (char *)(uintptr_t)name_space;
    body.key = (char *)(uintptr_t)key;
    body.value = (char *)(uintptr_t)value;
    request.body_case = TERN__WIRE__REQUEST__BODY_KV;
    request.kv = &body;
    return ask(w, 99, &request);
}

#define KV(name) TERN__WIRE__KV_REQUEST__OPERATION__##name

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
