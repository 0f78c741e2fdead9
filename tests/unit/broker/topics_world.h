/* The topic table of a broker on a simulated disk. */
#ifndef TESTS_UNIT_BROKER_TOPICS_WORLD_H
#define TESTS_UNIT_BROKER_TOPICS_WORLD_H

#include "tests/unit/broker/broker_unit.h"

#include "broker/topics.h"

#define PATH "/config/topics.json"

extern struct sim_env sim;
extern struct topics *topics;

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* Opens the table from its file into `topics`. */
enum tern_code open_table(bool auto_create, struct tern_error *err);
/* As a new process would. */
void reopen(void);
int setup(void **state);
int teardown(void **state);
/* A topic with so many queues of each kind, and all permissions. */
struct topic_config topic(const char *name, int32_t queues);
/* Puts topic(); not persisted. */
enum tern_code put(const char *name, int32_t queues);
/* Write queues of a topic, -1 when absent. */
int32_t queues_of(const char *name);

#endif
