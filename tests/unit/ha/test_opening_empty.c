/* How a master with an empty store starts: what must be known before it may open. */
#include "tests/unit/ha/opening_world.h"

#include "base/clock.h"

/* ---- an empty store ---- */

static void empty(void)
{
    world.self.epoch_count = 0;
    world.self.highest_epoch = 0;
    world.self.log_end = world.self.log_min = 0;
}

static void empty_store_waits_for_a_nameserver(void **state)
{
    (void)state;
    empty();
    begin();
    assert_int_equal(step(), now_ns() + ms_to_ns(TIMEOUT_MS));
    opening_members(world.opening, NULL, 0, 0);
    step();
    assert_int_equal(world.opens, 0);
    struct ha_seen_member us = {.id = 0, .ha_address = "10.0.0.7:10912"};
    opening_members(world.opening, &us, 1, 1);
    step();
    assert_int_equal(world.opens, 1);
    assert_false(world.raise);
}

static void empty_store_opens_when_no_nameserver_answers(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    step_after(TIMEOUT_MS);
    assert_int_equal(world.opens, 1);
}

static void empty_store_without_nameservers_opens_at_once(void **state)
{
    (void)state;
    empty();
    world.ha.has_nameservers = false;
    begin();
    step();
    assert_int_equal(world.opens, 1);
}

static void empty_store_copies_the_slave_that_has_the_most(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[2] = {listed(1), listed(2)};
    opening_members(world.opening, slaves, 2, 1);
    step();
    assert_int_equal(world.looks, 2);
    struct ha_member first = slave(1, 3, 33, 900);
    struct ha_member second = slave(2, 4, 44, 800);
    hear(&first);
    assert_int_equal(world.takes, 0);
    hear(&second);
    assert_string_equal(world.took, "10.0.0.2:10912");
    take_over(&second);
    taken(TERN_OK);
    assert_string_equal(world.took, "10.0.0.1:10912");
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.number, 4);
    assert_true(world.raise); /* what the lost store had beyond is not known */
}

static void empty_slaves_hold_nothing_up(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[1] = {listed(1)};
    opening_members(world.opening, slaves, 1, 1);
    step();
    struct ha_member none = slave(1, 3, 33, 0);
    none.epoch_count = 0;
    hear(&none);
    assert_int_equal(world.takes, 0);
    assert_int_equal(world.opens, 1);
}

static void empty_beside_a_full_slave_needs_its_uuid(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[1] = {listed(1)};
    opening_members(world.opening, slaves, 1, 1);
    step();
    struct ha_member full = slave(1, 3, 33, 900);
    hear(&full);
    uint8_t unknown[HA_UUID_BYTES] = {1, 2, 3};
    force_refused(unknown, "UUID");
    force_refused(full.uuid, "being copied");
    taken(TERN_UNREACHABLE); /* it goes in the middle of it */
    force_refused(NULL, "--discard-slave");
    force_ok(full.uuid);
    assert_int_equal(world.opens, 1);
    assert_true(world.raise);
    hear(&full);
    assert_int_equal(world.takes, 1);
}

static void a_listed_slave_that_never_answers_is_given_up_by_force(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[1] = {listed(1)};
    opening_members(world.opening, slaves, 1, 1);
    step();
    step_after(TIMEOUT_MS);
    assert_int_equal(world.opens, 0); /* a SYNC_MASTER */
    force_ok(NULL);
    assert_int_equal(world.opens, 1);
}

static void an_empty_async_master_waits_for_a_listed_slave(void **state)
{
    (void)state;
    empty();
    world.ha.mode = HA_MODE_ASYNC_MASTER;
    begin();
    step();
    struct ha_seen_member slaves[1] = {listed(1)};
    opening_members(world.opening, slaves, 1, 1);
    step();
    step_after(2 * TIMEOUT_MS);
    assert_int_equal(world.opens, 0);
    opening_members(world.opening, NULL, 0, 0); /* nobody to ask: that says nothing */
    step();
    assert_int_equal(world.opens, 0);
    opening_members(world.opening, NULL, 0, 1); /* forgotten */
    step();
    assert_int_equal(world.opens, 1);
}

static void a_forgotten_slave_that_is_listed_again_is_waited_for(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[2] = {listed(1), listed(2)};
    opening_members(world.opening, slaves, 2, 1);
    opening_members(world.opening, slaves, 1, 1);
    opening_members(world.opening, slaves, 2, 1);
    step();
    struct ha_member first = slave(1, 3, 33, 900);
    hear(&first);
    assert_int_equal(world.takes, 0); /* the other one may have more */
    opening_members(world.opening, slaves, 1, 1);
    step();
    assert_int_equal(world.takes, 1);
}

/* The one that listed it may be the one that is silent now. */
static void a_list_of_fewer_nameservers_unlists_nobody(void **state)
{
    (void)state;
    empty();
    begin();
    step();
    struct ha_seen_member slaves[2] = {listed(1), listed(2)};
    opening_members(world.opening, slaves, 2, 2);
    step();
    opening_members(world.opening, slaves, 1, 1);
    step();
    struct ha_member first = slave(1, 3, 33, 900);
    hear(&first);
    assert_int_equal(world.takes, 0);
    opening_members(world.opening, slaves, 1, 2);
    step();
    assert_int_equal(world.takes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(empty_store_waits_for_a_nameserver),
        TEST(empty_store_opens_when_no_nameserver_answers),
        TEST(empty_store_without_nameservers_opens_at_once),
        TEST(empty_store_copies_the_slave_that_has_the_most),
        TEST(empty_slaves_hold_nothing_up),
        TEST(empty_beside_a_full_slave_needs_its_uuid),
        TEST(a_listed_slave_that_never_answers_is_given_up_by_force),
        TEST(an_empty_async_master_waits_for_a_listed_slave),
        TEST(a_forgotten_slave_that_is_listed_again_is_waited_for),
        TEST(a_list_of_fewer_nameservers_unlists_nobody),
    };
    return cmocka_run_group_tests_name("ha opening empty", tests, NULL, NULL);
}
