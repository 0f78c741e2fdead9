/*
 * A replica with a fake store, fake tables and real epochs, its task on virtual time, and a fake
 * source at 10.0.0.1 on a simulated network.
 */
#ifndef TESTS_UNIT_HA_REPLICA_WORLD_H
#define TESTS_UNIT_HA_REPLICA_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/sched.h"
#include "broker/ha/replica.h"
#include "tests/unit/ha/fake_source.h"
#include "tests/unit/ha/fake_store.h"

#define assert_ok(expr) assert_int_equal((expr), TERN_OK)
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)
#define SOURCE_ADDRESS "10.0.0.1:10912"

struct replica_world {
    struct sim_env sim;
    struct sim_net *net;
    struct link *own_link, *source_link;
    struct rpc_client *client;
    struct fake_source source;
    struct store store;
    struct epochs *epochs;
    struct ha_options ha;
    struct replica *replica;
    struct task *task;
    /* what it told; the diary: L offsets lowered, T tables applied, F progress forgotten, S
     * settled, l lost, D detached, U caught up, and the store's */
    char diary[256];
    unsigned settled, lost, detached, caught_up;
    int64_t confirmed;
    bool confirmed_settled;
    uint64_t progress_seen;
    /* own tables */
    struct ha_held own;
    uint64_t own_merged; /* changes up to here need not be told */
    enum tern_code lower_code, apply_code;
    int64_t lowered_at;
    uint64_t applied_topics, applied_progress;
    bool looked_at_epochs; /* epochs were durable at the first byte of theirs */
};

extern struct replica_world world;

int world_set_up(void **state);
int world_tear_down(void **state);
/* Our log: bytes and epochs up to `end`, as the source's (same epochs) or of epoch (number, id)
 * from `fork` on. */
void world_have(int64_t end);
void world_have_forked(int64_t fork, int64_t end, uint64_t number, uint64_t id);
void world_follow(void);
void world_run(int64_t ms);
/* Runs until *value is at least `least`; fails the test after a virtual minute. */
void world_until(const unsigned *value, unsigned least);
/* Every byte here is the source's, and so are the epochs. */
void world_check_same(void);
/* What its status says of reading, and in words. */
void assert_readable(bool readable);
void assert_text(const char *words);
void world_stop_source(void);
void world_start_source(void);

#endif
