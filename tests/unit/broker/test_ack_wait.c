/* broker/ack_wait: sends that wait for the disk end in order, in time, and exactly once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/sched.h"
#include "broker/ack_wait.h"
#include "tests/sim/sim_env.h"

enum { WAITS = 8, NOT_YET = -1 };

struct wait {
    struct ack_entry entry; /* first */
    int code;
    uint32_t order;
};

static uint32_t finished;

static void on_done(struct ack_entry *entry, enum tern_code code)
{
    struct wait *wait = (struct wait *)(void *)entry;
    assert_int_equal(wait->code, NOT_YET);
    wait->code = (int)code;
    wait->order = finished++;
}

struct world {
    struct sim_env sim;
    struct ack_wait *acks;
    struct wait waits[WAITS];
};

static int setup(void **state)
{
    struct world *world = test_calloc(1, sizeof *world);
    finished = 0;
    sim_env_init(&world->sim, 1);
    assert_int_equal(ack_wait_create(&world->sim.env, "acks", &world->acks), TERN_OK);
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    ack_wait_fail_all(world->acks, TERN_SERVICE_NOT_AVAILABLE);
    ack_wait_destroy(world->acks);
    sim_env_fini(&world->sim);
    test_free(world);
    return 0;
}

static void add(struct world *world, size_t index, int64_t position, int64_t wait_ms)
{
    struct wait *wait = &world->waits[index];
    wait->code = NOT_YET;
    wait->entry = (struct ack_entry){
        .position = position,
        .deadline_ns = clock_mono_ns(world->sim.env.clock) + ms_to_ns(wait_ms),
        .done = on_done,
    };
    ack_wait_add(world->acks, &wait->entry);
}

static void flushed_position_ends_what_it_has_passed_in_order(void **state)
{
    struct world *world = *state;
    add(world, 0, 200, 5000);
    add(world, 1, 100, 5000);
    add(world, 2, 300, 5000);
    ack_wait_advance(world->acks, 250, TERN_OK);
    assert_int_equal(world->waits[1].code, TERN_OK);
    assert_int_equal(world->waits[1].order, 0);
    assert_int_equal(world->waits[0].code, TERN_OK);
    assert_int_equal(world->waits[0].order, 1);
    assert_int_equal(world->waits[2].code, NOT_YET);
    assert_int_equal(ack_wait_count(world->acks), 1);
}

static void what_is_flushed_already_does_not_wait(void **state)
{
    struct world *world = *state;
    ack_wait_advance(world->acks, 1000, TERN_OK);
    add(world, 0, 1000, 5000);
    assert_int_equal(world->waits[0].code, TERN_OK);
    add(world, 1, 1001, 5000);
    assert_int_equal(world->waits[1].code, NOT_YET);
}

/* Each has its own deadline; a later one that comes first is not held up by an earlier one. */
static void late_flush_is_told_at_each_deadline(void **state)
{
    struct world *world = *state;
    add(world, 0, 100, 5000);
    add(world, 1, 200, 1000);
    sim_run_for(world->sim.sched, ms_to_ns(999));
    assert_int_equal(world->waits[1].code, NOT_YET);
    sim_run_for(world->sim.sched, ms_to_ns(2));
    assert_int_equal(world->waits[1].code, TERN_TIMEOUT);
    assert_int_equal(world->waits[0].code, NOT_YET);
    sim_run_for(world->sim.sched, ms_to_ns(4000));
    assert_int_equal(world->waits[0].code, TERN_TIMEOUT);
    ack_wait_advance(world->acks, 500, TERN_OK); /* ends nobody twice */
}

/* ST-07: after a failed flush nobody gets OK, neither those waiting nor those to come. */
static void failed_store_ends_all_and_those_to_come(void **state)
{
    struct world *world = *state;
    ack_wait_advance(world->acks, 50, TERN_OK);
    add(world, 0, 100, 5000);
    ack_wait_fail_all(world->acks, TERN_SERVICE_NOT_AVAILABLE);
    assert_int_equal(world->waits[0].code, TERN_SERVICE_NOT_AVAILABLE);
    add(world, 1, 200, 5000);
    assert_int_equal(world->waits[1].code, TERN_SERVICE_NOT_AVAILABLE);
    add(world, 2, 40, 5000); /* was on disk before */
    assert_int_equal(world->waits[2].code, TERN_OK);
}

static void flush_soon(void *arg)
{
    ack_wait_advance(((struct world *)arg)->acks, 100, TERN_OK);
}

static void drain_waits_for_the_last_one(void **state)
{
    struct world *world = *state;
    int64_t now = clock_mono_ns(world->sim.env.clock);
    assert_true(ack_wait_drain(world->acks, now + ms_to_ns(1)));
    add(world, 0, 100, 5000);
    assert_false(ack_wait_drain(world->acks, now + ms_to_ns(10)));
    sim_after(world->sim.sched, ms_to_ns(20), flush_soon, world);
    assert_true(ack_wait_drain(world->acks, now + ms_to_ns(1000)));
    assert_int_equal(world->waits[0].code, TERN_OK);
}

/* The log was cut below what counted before: other bytes come to the same positions. */
static void a_restart_ends_all_and_begins_below(void **state)
{
    struct world *world = *state;
    ack_wait_advance(world->acks, 1000, TERN_OK);
    add(world, 0, 1200, 5000);
    ack_wait_advance_soon(world->acks, 1100, TERN_OK); /* on its way still */
    ack_wait_restart(world->acks, 0, TERN_FLUSH_SLAVE_TIMEOUT);
    assert_int_equal(world->waits[0].code, TERN_FLUSH_SLAVE_TIMEOUT);
    sim_run_for(world->sim.sched, ms_to_ns(10));
    add(world, 1, 700, 5000);
    assert_int_equal(world->waits[1].code, NOT_YET);
    ack_wait_advance(world->acks, 700, TERN_OK);
    assert_int_equal(world->waits[1].code, TERN_OK);
}

/* What counts may fall: progress that a slave promised alone waits for its master from then on. */
static void a_position_that_is_set_may_fall(void **state)
{
    struct world *world = *state;
    ack_wait_set(world->acks, INT64_MAX, TERN_OK);
    add(world, 0, 5, 5000);
    assert_int_equal(world->waits[0].code, TERN_OK);
    ack_wait_set(world->acks, 3, TERN_OK);
    add(world, 1, 5, 5000);
    assert_int_equal(world->waits[1].code, NOT_YET);
    ack_wait_advance(world->acks, 2, TERN_OK);
    ack_wait_set(world->acks, 5, TERN_OK);
    assert_int_equal(world->waits[1].code, TERN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(flushed_position_ends_what_it_has_passed_in_order, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_flushed_already_does_not_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(late_flush_is_told_at_each_deadline, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_store_ends_all_and_those_to_come, setup, teardown),
        cmocka_unit_test_setup_teardown(drain_waits_for_the_last_one, setup, teardown),
        cmocka_unit_test_setup_teardown(a_restart_ends_all_and_begins_below, setup, teardown),
        cmocka_unit_test_setup_teardown(a_position_that_is_set_may_fall, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
