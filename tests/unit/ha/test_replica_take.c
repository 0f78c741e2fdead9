/* A master that starts takes a member's log and tables. */
#include "tests/unit/ha/replica_world.h"

#include "broker/ha/replica_internal.h"

/* ---- a master takes a member's log ---- */

static void begin_take(bool force)
{
    world.ha.mode = HA_MODE_SYNC_MASTER;
    world.ha.id = 0;
    world.source.member.id = 1;
    world.source.member.state = TERN__WIRE__HA_STATE__HA_SEEKING;
    replica_recover(world.replica, SOURCE_ADDRESS, force);
}

static void a_take_ends_with_all_bytes_and_tables(void **state)
{
    (void)state;
    world_have(5000);
    world.source.progress = 4;
    world.source.topics_version = 9;
    world.source.chunk_max = 900;
    begin_take(false);
    world_until(&world.caught_up, 1);
    world_check_same();
    assert_int_equal(world.source.purpose, TERN__WIRE__HA_PURPOSE__HA_RECOVER);
    assert_int_equal(world.applied_progress, 4);
    assert_int_equal(world.applied_topics, 9);
    assert_int_equal(world.lost, 0);
    unsigned fetches = world.source.fetches;
    world_run(3000);
    assert_int_equal(world.source.fetches, fetches);
    replica_recover(world.replica, SOURCE_ADDRESS, false); /* once more, for its tables */
    world_until(&world.caught_up, 2);
}

static void a_member_behind_us_gives_its_tables_only(void **state)
{
    (void)state;
    world_have(9000);
    world.source.member.log_end = 7000;
    world.source.progress = 4;
    begin_take(false);
    world_until(&world.caught_up, 1);
    assert_int_equal(world.store.at.appended, 9000);
    assert_int_equal(world.applied_progress, 4);
    assert_int_equal(world.source.from, 7000);
    assert_null(strpbrk(world.diary, "LCRa"));
}

static void a_member_with_an_older_epoch_gives_its_tables_only(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 9, 90);
    begin_take(false);
    world_until(&world.caught_up, 1);
    assert_int_equal(world.store.at.appended, 6000);
    assert_int_equal(world.source.from, 2000);
}

static void older_topics_of_a_member_are_left(void **state)
{
    (void)state;
    world_have(5000);
    world.own.topics_version = 12;
    world.source.topics_version = 9;
    begin_take(false);
    world_until(&world.caught_up, 1);
    assert_int_equal(world.applied_topics, 0);
    assert_int_equal(world.own.topics_version, 12);
    world_check_same();
}

static void an_empty_master_takes_topics_of_any_version(void **state)
{
    (void)state;
    world.own.topics_version = 12;
    world.source.topics_version = 9;
    begin_take(false);
    world_until(&world.caught_up, 1);
    assert_int_equal(world.applied_topics, 9);
    world_check_same();
}

/* Both count from 1: the same number says nothing about an empty store's tables. */
static void an_empty_slave_takes_topics_of_its_own_version(void **state)
{
    (void)state;
    world.own.topics_version = 9;
    world.source.topics_version = 9;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    assert_int_equal(world.applied_topics, 9);
    world_check_same();
}

static void a_master_is_cut_for_a_higher_epoch(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 3, 30);
    begin_take(false);
    world_until(&world.caught_up, 1);
    world_check_same();
    assert_memory_equal(world.diary, "LCS", 3);
}

static void a_take_that_costs_our_epoch_wants_force(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 4, 41);
    begin_take(false);
    world_until(&world.detached, 1);
    assert_int_equal(world.store.at.appended, 6000);
    assert_readable(true);
    assert_text("mqadmin forceOpen");
    world_run(5000);
    assert_int_equal(world.source.handshakes, 1); /* the opening tries again, not we */
    begin_take(true);
    world_until(&world.caught_up, 1);
    world_check_same();
}

static void a_take_without_a_common_epoch_wants_force(void **state)
{
    (void)state;
    struct tern_error err;
    struct ha_epoch foreign = {.number = 1, .id = 111, .start = 0};
    assert_ok(epochs_adopt(world.epochs, &foreign, 1, 4000, &err));
    fake_store_write(&world.store, 4000, 111);
    begin_take(false);
    world_until(&world.detached, 1);
    assert_int_equal(world.store.at.appended, 4000);
    begin_take(true);
    world_until(&world.caught_up, 1);
    world_check_same();
}

static void a_take_from_nobody_ends(void **state)
{
    (void)state;
    world_stop_source();
    begin_take(false);
    world_until(&world.lost, 1);
    world_run(5000);
    assert_int_equal(world.lost, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_take_ends_with_all_bytes_and_tables),
        TEST(a_member_behind_us_gives_its_tables_only),
        TEST(a_member_with_an_older_epoch_gives_its_tables_only),
        TEST(older_topics_of_a_member_are_left),
        TEST(an_empty_master_takes_topics_of_any_version),
        TEST(an_empty_slave_takes_topics_of_its_own_version),
        TEST(a_master_is_cut_for_a_higher_epoch),
        TEST(a_take_that_costs_our_epoch_wants_force),
        TEST(a_take_without_a_common_epoch_wants_force),
        TEST(a_take_from_nobody_ends),
    };
    return cmocka_run_group_tests_name("ha replica take", tests, NULL, NULL);
}
