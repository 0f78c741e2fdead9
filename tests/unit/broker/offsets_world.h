/* Three offset tables, each on a machine of its own, and words for what happens to them. */
#ifndef TESTS_UNIT_BROKER_OFFSETS_WORLD_H
#define TESTS_UNIT_BROKER_OFFSETS_WORLD_H

#include "tests/unit/broker/broker_unit.h"

#include "broker/offsets.h"

enum { TABLES = 3, COPY_MAX = 100000 };

extern struct sim_env sim;

extern struct offsets *tables[TABLES];

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* Opens table i from its machine's disk. */
void open_table(int i);
int setup(void **state);
int teardown(void **state);
/* To table i. */
enum offsets_commit_result commit(int i, const char *group, const char *topic, int32_t queue,
                                  int64_t offset, struct offset_version version);
/* The version that table i holds. */
struct offset_version version_of(int i, const char *group, const char *topic, int32_t queue);
/* Gives what changed after *seen, as the wire does. */
void give(int from, int to, uint64_t *seen, bool skip_merged);
/* A recovered queue's end, whichever queue: 450. */
int64_t end_450(void *arg, const char *topic, int32_t queue);

#endif
