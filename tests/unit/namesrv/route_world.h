/* A route table with a clock, and short ways to say what a broker registers. */
#ifndef TESTS_NAMESRV_ROUTE_WORLD_H
#define TESTS_NAMESRV_ROUTE_WORLD_H

#include "namesrv/route_table.h"
#include "tests/unit/base/unit.h"

enum { SECOND = 1000000000, EXPIRE_S = 120 };

struct world {
    struct route_table table;
    int64_t now_ns;
    struct tern_error err;
    struct route_registered done;
};

static inline int set_up(void **state)
{
    static struct world world;
    memset(&world, 0, sizeof world);
    route_table_init(&world.table, (int64_t)EXPIRE_S * SECOND);
    world.now_ns = 5 * (int64_t)SECOND;
    *state = &world;
    return 0;
}

static inline int tear_down(void **state)
{
    struct world *w = *state;
    route_table_fini(&w->table);
    return 0;
}

static inline const uint8_t *uuid_of(uint8_t store)
{
    static uint8_t uuids[256][ROUTE_UUID_BYTES];
    memset(uuids[store], store, ROUTE_UUID_BYTES);
    return uuids[store];
}

static inline struct route_topic_config topic(const char *name)
{
    return (struct route_topic_config){
        .name = name, .name_len = strlen(name), .read_queues = 4, .write_queues = 4, .perm = 6};
}

/* broker `name`, `id`, with the store `store` at `address` on connection `peer`; no topics. */
static inline struct route_registration broker(const char *name, int64_t id, const char *address,
                                               uint8_t store, uint64_t peer)
{
    return (struct route_registration){.cluster = "C",
                                       .name = name,
                                       .id = id,
                                       .address = address,
                                       .ha_address = "",
                                       .uuid = uuid_of(store),
                                       .peer_id = peer,
                                       .readable = true};
}

static inline enum tern_code enter(struct world *w, struct route_registration reg)
{
    reg.now_ns = w->now_ns;
    return route_register(&w->table, &reg, &w->done, &w->err);
}

static inline enum tern_code enter_with(struct world *w, struct route_registration reg,
                                        uint64_t version, const struct route_topic_config *topics,
                                        size_t count)
{
    reg.topics_version = version;
    reg.has_topics = true;
    reg.topics = topics;
    reg.topic_count = count;
    return enter(w, reg);
}

/* broker-a's master at A:1 on connection 1 with topics T1 and T2, version 7. */
static inline void enter_master(struct world *w)
{
    struct route_topic_config topics[] = {topic("T1"), topic("T2")};
    assert_int_equal(enter_with(w, broker("broker-a", 0, "A:1", 1, 1), 7, topics, 2), TERN_OK);
}

static inline const struct route_topic *find(struct world *w, const char *name)
{
    return route_find_topic(&w->table, name, strlen(name));
}

static inline const struct route_member *member(struct world *w, const char *name, int64_t id)
{
    const struct route_set *set = route_find_set(&w->table, name);
    for (size_t i = 0; set && i < set->member_count; i++)
        if (set->members[i].id == id)
            return &set->members[i];
    return NULL;
}

static inline size_t peer_goes(struct world *w, uint64_t peer)
{
    struct route_removed removed;
    size_t count = 0;
    while (route_peer_gone(&w->table, peer, &removed))
        count++;
    return count;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
