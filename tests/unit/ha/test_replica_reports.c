/*
 * What the replica tells its source and hears from it on the way: what is flushed and dispatched,
 * progress on both sides.
 */
#include "tests/unit/ha/replica_world.h"

#include "broker/ha/replica_internal.h"

/* ---- reports ---- */

static void flushed_is_reported_at_once_when_the_source_counts_it(void **state)
{
    (void)state;
    world.source.sync_flush = true;
    world.store.flushes = false;
    world_follow();
    world_until(&world.settled, 1);
    assert_true(world.store.sync_flush);
    world_run(300);
    assert_int_equal(world.source.report_flushed, 0);
    world.store.at.flushed = 10000;
    replica_on_flushed(world.replica, 10000);
    world_run(2);
    assert_int_equal(world.source.report_flushed, 10000);
    unsigned reports = world.source.reports;
    replica_on_flushed(world.replica, 10000); /* no news */
    world_run(2);
    assert_int_equal(world.source.reports, reports);
}

static void dispatched_is_reported_within_a_tenth_of_a_second(void **state)
{
    (void)state;
    world.store.flushes = false;
    world_follow();
    world_until(&world.settled, 1);
    assert_false(world.store.sync_flush);
    world_run(1050); /* a fetch is fresh */
    unsigned reports = world.source.reports;
    unsigned fetches = world.source.fetches;
    world.store.at.dispatched = 7000;
    world_run(250);
    assert_int_equal(world.source.fetches, fetches);
    assert_int_equal(world.source.dispatched, 7000);
    assert_int_equal(world.source.reports, reports + 1);
}

static void an_idle_pair_reports_nothing(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(1000);
    unsigned reports = world.source.reports;
    unsigned fetches = world.source.fetches;
    world_run(10000);
    assert_int_equal(world.source.reports, reports);
    assert_in_range(world.source.fetches - fetches, 9, 11);
    assert_int_equal(world.source.handshakes, 1);
}

static void progress_made_here_goes_to_the_source_at_once(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    world.own.progress = 3;
    replica_on_change(world.replica);
    world_run(2);
    assert_int_equal(world.source.reported, 3);
    assert_int_equal(world.progress_seen, 3);
    unsigned reports = world.source.reports;
    world_run(3000);
    assert_int_equal(world.source.reports, reports); /* and only once */
}

static void progress_made_alone_is_told_when_a_source_is_back(void **state)
{
    (void)state;
    world.own.progress = 12;
    world_follow();
    world_until(&world.settled, 1);
    world_run(50);
    assert_int_equal(world.source.reported, 12);
    assert_int_equal(world.progress_seen, 12);
}

static void progress_that_the_source_cannot_take_is_not_hammered(void **state)
{
    (void)state;
    world.source.takes_no_progress = true;
    world.own.progress = 12;
    world_follow();
    world_until(&world.settled, 1);
    world_run(5000);
    assert_in_range(world.source.reports, 4, 8);
    assert_int_equal(world.progress_seen, 0);
    world.source.takes_no_progress = false;
    world_run(1100);
    assert_int_equal(world.progress_seen, 12);
}

/* Positions are looked at while it waits, and do not make it forgotten. */
static void progress_that_waits_goes_though_positions_are_told_meanwhile(void **state)
{
    (void)state;
    world.source.takes_no_progress = true;
    world.store.flushes = false; /* what is behind the end is looked at again and again */
    world.own.progress = 12;
    world_follow();
    world_until(&world.settled, 1);
    world_run(500);
    world.store.at.dispatched = world.store.at.flushed = world.store.at.appended;
    fake_source_push(&world.source); /* the fetch that follows tells them */
    world_run(2);
    world.own.progress = 13;
    replica_on_change(world.replica);
    world_run(50);
    world.source.takes_no_progress = false;
    world_run(2500);
    assert_int_equal(world.progress_seen, 13);
}

/* A report of positions is under way when progress is made, and its answer knows nothing of that.
 */
static void progress_does_not_wait_for_positions(void **state)
{
    (void)state;
    world.source.sync_flush = true;
    world.store.flushes = false;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    world.store.at.flushed = 10000;
    replica_on_flushed(world.replica, 10000);
    world.own.progress = 3;
    replica_on_change(world.replica);
    world_run(10);
    assert_int_equal(world.progress_seen, 3);
}

static void progress_that_waits_goes_though_positions_move_all_the_time(void **state)
{
    (void)state;
    world.source.sync_flush = true;
    world.store.flushes = false;
    world.source.takes_no_progress = true;
    world.own.progress = 12;
    world_follow();
    world_until(&world.settled, 1);
    world_run(10);
    world.source.takes_no_progress = false;
    for (int64_t flushed = 100; flushed <= 3000; flushed += 100) {
        world.store.at.flushed = flushed;
        replica_on_flushed(world.replica, flushed);
        world_run(50);
    }
    assert_int_equal(world.progress_seen, 12);
}

static void the_sources_progress_is_taken_and_acknowledged(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    world.source.progress = 8;
    fake_source_push(&world.source);
    world_run(2);
    assert_int_equal(world.applied_progress, 8);
    assert_int_equal(world.source.held.progress, 8); /* by the fetch that follows */
}

static void a_new_life_of_the_source_begins_from_zero(void **state)
{
    (void)state;
    world.source.progress = 8;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    sim_net_reset(world.net, "10.0.0.1", "10.0.0.2");
    world_until(&world.settled, 2);
    world_run(5);
    assert_int_equal(world.source.held.progress, 8); /* the same life */
    world.source.member.life = 6;
    world.source.progress = 2;
    sim_net_reset(world.net, "10.0.0.1", "10.0.0.2");
    world_until(&world.settled, 3);
    world_run(300);
    assert_int_equal(world.applied_progress, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(flushed_is_reported_at_once_when_the_source_counts_it),
        TEST(dispatched_is_reported_within_a_tenth_of_a_second),
        TEST(an_idle_pair_reports_nothing),
        TEST(progress_made_here_goes_to_the_source_at_once),
        TEST(progress_made_alone_is_told_when_a_source_is_back),
        TEST(progress_that_the_source_cannot_take_is_not_hammered),
        TEST(progress_that_waits_goes_though_positions_are_told_meanwhile),
        TEST(progress_does_not_wait_for_positions),
        TEST(progress_that_waits_goes_though_positions_move_all_the_time),
        TEST(the_sources_progress_is_taken_and_acknowledged),
        TEST(a_new_life_of_the_source_begins_from_zero),
    };
    return cmocka_run_group_tests_name("ha replica reports", tests, NULL, NULL);
}
