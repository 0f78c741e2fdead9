/*
 * A master that starts, on virtual time: its set on record, a log that is two numbers, members that
 * a test lets answer. How such a start is made and looked at.
 */
#ifndef TESTS_UNIT_HA_OPENING_WORLD_H
#define TESTS_UNIT_HA_OPENING_WORLD_H

#include "tests/unit/base/unit.h"

#include "broker/ha/opening.h"
#include "tests/sim/sim_env.h"

enum { TIMEOUT_MS = 30000, SEGMENT = 1 << 20 };

/* The owner: what the opening asked it to do. */
struct opening_world {
    struct sim_env sim;
    struct ha_options ha;
    struct opening *opening;
    struct ha_member self;
    unsigned looks, takes, opens, wakes, fail_opens;
    char looked[HA_ADDRESS_BYTES], took[HA_ADDRESS_BYTES];
    bool forced, raise;
    uint64_t number;
    struct insync_set set;
    size_t awaited_at_open;
};

extern struct opening_world world;

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int set_up(void **state);
int tear_down(void **state);
/* Of the world's clock. */
int64_t now_ns(void);
/* What is due; the time of the next step. */
int64_t step(void);
/* The same, later. */
int64_t step_after(int64_t ms);
/* Member `id` as the set on record has it. */
struct insync_member record(int64_t id);
/* The set on record: members 1 to count. */
void save_set(size_t count);
/* Begins, with what is on record. */
void begin(void);
/* A slave whose log is our first 3 epochs up to `end` when number is 3, else has one more. */
struct ha_member slave(int64_t id, uint64_t number, uint64_t epoch_id, int64_t end);
/* A member answers. */
void hear(const struct ha_member *member);
/* The take that was begun ends like this. */
void taken(enum tern_code code);
/* Our log becomes the member's. */
void take_over(const struct ha_member *member);
/* An operator forces it; discard: a member's uuid, NULL: nobody's. */
void force_ok(const uint8_t *discard);
/* The same, refused with these words. */
void force_refused(const uint8_t *discard, const char *words);
/* Slave `id` as the nameservers list it. */
struct ha_seen_member listed(int64_t id);

#endif
