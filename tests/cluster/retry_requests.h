/*
 * Requests and looks for the tests of retries, over a broker set (set_world.h): messages with
 * properties, sending back, and what lies in a group's topics then.
 */
#ifndef TESTS_CLUSTER_RETRY_REQUESTS_H
#define TESTS_CLUSTER_RETRY_REQUESTS_H

#include "tests/cluster/set_world.h"

/* A plain send; properties as text, "" for none. */
struct retry_send {
    const char *topic, *props, *body;
    int32_t reconsume_times, max_reconsume_times;
};
struct retry_sent {
    enum tern_code code;
    int32_t queue_id;
    int64_t queue_off, phys_off;
    char remark[512];
};
struct retry_sent retry_send(struct world *world, const struct retry_send *what);

/* Sends back as a consumer of WORLD_GROUP, or of `group`. */
struct retry_back {
    const char *group, *topic; /* NULL: WORLD_GROUP, WORLD_TOPIC */
    int64_t phys_off, store_ms;
    int32_t level, times, max_times;
    const char *id; /* NULL: none */
};
enum tern_code retry_send_back(struct world *world, struct sim_node *node,
                               const struct retry_back *what, char remark[512]);

/* A record of a queue, copied; false: there is none. */
struct retry_record {
    struct record record; /* points into bytes */
    uint8_t bytes[4096];
};
bool retry_record_at(const struct sim_node *node, const char *topic, int32_t queue_id,
                     int64_t offset, struct retry_record *out);
int64_t retry_queue_end(const struct sim_node *node, const char *topic, int32_t queue_id);
/* The property's value, terminated; "" when absent. Static. */
const char *retry_property(const struct retry_record *record, const char *name);

enum tern_code retry_update_group(struct world *world, const char *group, int32_t retry_queues,
                                  int32_t retry_max_times);

#endif
