/*
 * How a master starts whose members do not answer or contradict it: who waits, who opens, and what
 * an operator may force.
 */
#include "tests/unit/ha/opening_world.h"

#include "base/clock.h"

/* ---- members that do not answer ---- */

static void an_async_master_opens_without_the_missing(void **state)
{
    (void)state;
    world.ha.mode = HA_MODE_ASYNC_MASTER;
    save_set(2);
    begin();
    step();
    struct ha_member first = slave(1, 3, 33, 900);
    hear(&first);
    step_after(TIMEOUT_MS - 1);
    assert_int_equal(world.opens, 0);
    step_after(1); /* who answered is still merged */
    assert_int_equal(world.takes, 1);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 1);
    assert_int_equal(world.set.members[0].id, 1);
    assert_true(world.raise);
    assert_int_equal(world.awaited_at_open, 1);
    assert_int_equal(sim_log_count(&world.sim, "opens_without_members"), 1);
    assert_int_equal(sim_log_count(&world.sim, "2 (10.0.0.2:10912)"), 1);
}

static void a_sync_master_waits_for_an_operator(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member first = slave(1, 3, 33, 900);
    hear(&first);
    assert_false(opening_merged(world.opening));
    step_after(TIMEOUT_MS);
    taken(TERN_OK);
    assert_true(opening_merged(world.opening)); /* nobody else to ask for progress */
    for (int i = 0; i < 61; i++)
        step_after(1000);
    assert_int_equal(world.opens, 0);
    assert_int_equal(sim_log_count(&world.sim, "mqadmin forceOpen"), 3);
    force_ok(NULL);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 1);
    assert_true(world.raise);
    force_refused(NULL, "is open");
}

static void a_late_member_of_a_sync_master_is_still_taken(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member first = slave(1, 3, 33, 1100);
    struct ha_member second = slave(2, 3, 33, 1200);
    hear(&first);
    step_after(TIMEOUT_MS);
    take_over(&first);
    taken(TERN_OK);
    hear(&second);
    assert_string_equal(world.took, "10.0.0.2:10912");
    take_over(&second);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 2);
    assert_false(world.raise);
}

static void a_broken_take_waits_for_the_member_anew(void **state)
{
    (void)state;
    world.ha.mode = HA_MODE_ASYNC_MASTER;
    save_set(1);
    begin();
    step();
    struct ha_member longer = slave(1, 3, 33, 5000);
    sim_clock_advance(&world.sim.clock, ms_to_ns(TIMEOUT_MS - 1));
    hear(&longer);
    assert_int_equal(world.takes, 1);
    sim_clock_advance(&world.sim.clock, ms_to_ns(5000)); /* the copy takes its time */
    taken(TERN_UNREACHABLE);
    assert_int_equal(world.opens, 0);
    unsigned looks = world.looks;
    step_after(1000);
    assert_int_equal(world.looks, looks + 1);
    hear(&longer);
    assert_int_equal(world.takes, 2);
    take_over(&longer);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
}

static void without_recovery_it_opens_at_once_and_the_set_is_emptied(void **state)
{
    (void)state;
    world.ha.recover = false;
    save_set(2);
    begin();
    step();
    assert_int_equal(world.looks, 0);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 0);
    assert_true(world.raise);
    assert_int_equal(world.awaited_at_open, 2);
    assert_int_equal(sim_log_count(&world.sim, "recoverFromSlave"), 1);
}

/* ---- contradictions ---- */

static void a_refused_take_wants_force_in_every_mode(void **state)
{
    (void)state;
    world.ha.mode = HA_MODE_ASYNC_MASTER;
    save_set(1);
    begin();
    step();
    struct ha_member other = slave(1, 3, 34, 2000); /* the same number, another life */
    hear(&other);
    assert_false(world.forced);
    taken(TERN_STATE);
    for (int i = 0; i < 40; i++) {
        step_after(1000);
        if (world.takes > 1 && i % 6 == 0)
            taken(TERN_STATE);
    }
    assert_int_equal(world.opens, 0);
    assert_true(sim_log_count(&world.sim, "mqadmin forceOpen") > 0);
    taken(TERN_STATE);
    force_ok(NULL);
    assert_true(world.forced); /* it is beyond ours: ours is cut */
    take_over(&other);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_true(world.raise);
    assert_int_equal(world.set.count, 1);
}

static void force_passes_over_who_is_behind_us(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member other = slave(1, 3, 34, 700);
    hear(&other);
    taken(TERN_STATE);
    unsigned takes = world.takes;
    force_ok(NULL);
    assert_int_equal(world.takes, takes);
    assert_int_equal(world.opens, 1);
    assert_int_equal(sim_log_count(&world.sim, "member_passed_over"), 1);
}

/* Merging somebody behind us is no reason to cut what we have. */
static void force_is_not_meant_for_who_is_behind_us(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member behind = slave(1, 3, 33, 700);
    opening_heard(world.opening, &behind);
    force_ok(NULL);
    assert_int_equal(world.takes, 1);
    assert_false(world.forced);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
}

static void a_refuser_outside_the_set_is_waited_for(void **state)
{
    (void)state;
    begin();
    struct ha_member refuser = slave(5, 8, 88, 1500);
    opening_heard(world.opening, &refuser);
    step();
    assert_int_equal(world.takes, 1);
    assert_int_equal(world.opens, 0);
    take_over(&refuser);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.number, 8);
    assert_int_equal(world.set.count, 0); /* it joins as everybody does */
    assert_true(world.raise);
}

static void a_slave_behind_us_outside_the_set_is_not(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member behind = slave(5, 3, 33, 400);
    hear(&behind);
    struct ha_member member = slave(1, 3, 33, 1000);
    hear(&member);
    assert_string_equal(world.took, "10.0.0.1:10912");
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.takes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_async_master_opens_without_the_missing),
        TEST(a_sync_master_waits_for_an_operator),
        TEST(a_late_member_of_a_sync_master_is_still_taken),
        TEST(a_broken_take_waits_for_the_member_anew),
        TEST(without_recovery_it_opens_at_once_and_the_set_is_emptied),
        TEST(a_refused_take_wants_force_in_every_mode),
        TEST(force_passes_over_who_is_behind_us),
        TEST(force_is_not_meant_for_who_is_behind_us),
        TEST(a_refuser_outside_the_set_is_waited_for),
        TEST(a_slave_behind_us_outside_the_set_is_not),
    };
    return cmocka_run_group_tests_name("ha opening missing", tests, NULL, NULL);
}
