/*
 * The replica copies: bytes, epochs and tables of a source, sources that go and come, answers and
 * disks that fail.
 */
#include "tests/unit/ha/replica_world.h"

#include "broker/ha/replica_internal.h"

/* ---- sources that go ---- */

static void a_master_that_comes_back_is_followed_within_a_second(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    world_stop_source();
    world_run(50);
    assert_int_equal(world.lost, 1); /* at once */
    assert_false(world.confirmed_settled);
    assert_int_equal(world.progress_seen, UINT64_MAX);
    assert_readable(true);
    for (int outage_s = 1; outage_s <= 20; outage_s += 19) {
        unsigned settled = world.settled;
        world_run(outage_s * 1000);
        world_start_source();
        world_run(1100);
        assert_int_equal(world.settled, settled + 1);
        world_stop_source();
        world_run(50);
    }
}

static void a_silent_source_is_lost_after_park_and_three_seconds(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    sim_net_cut(world.net, "10.0.0.1", "10.0.0.2");
    world_run(2900);
    assert_int_equal(world.lost, 0);
    world_run(1300);
    assert_int_equal(world.lost, 1);
    sim_net_heal_all(world.net);
    world_until(&world.settled, 2);
}

static void another_address_ends_the_session(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    replica_follow(world.replica, "10.0.0.8:10912");
    world_run(50);
    assert_int_equal(world.lost, 1);
    unsigned fetches = world.source.fetches;
    world_run(3000);
    assert_int_equal(world.source.fetches, fetches);
    world_follow();
    world_until(&world.settled, 2);
}

static void the_same_address_again_changes_nothing(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    for (int i = 0; i < 5; i++) {
        world_follow();
        world_run(100);
    }
    assert_int_equal(world.source.handshakes, 1);
}

static void without_a_known_master_what_is_here_counts(void **state)
{
    (void)state;
    world_have(5000);
    replica_follow(world.replica, "");
    world_run(10);
    assert_int_equal(world.confirmed, 5000);
    assert_false(world.confirmed_settled);
    int64_t confirmed;
    bool settled;
    uint64_t seen;
    replica_acknowledged(world.replica, &confirmed, &settled, &seen);
    assert_int_equal(confirmed, 5000);
    assert_false(settled);
    assert_int_equal(seen, UINT64_MAX);
}

static void stops_with_a_fetch_under_way(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    assert_non_null(world.source.parked);
    task_stop(world.task);
    world.task = NULL;
    replica_stop(world.replica);
    replica_destroy(world.replica);
    world.replica = NULL;
    unsigned told = world.lost + world.settled;
    world_run(5000); /* the answer still comes */
    assert_int_equal(world.lost + world.settled, told);
}

/* ---- copying ---- */

static void new_bytes_come_at_once(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    world.source.member.log_end = 20000;
    fake_source_push(&world.source);
    world_run(2);
    world_check_same();
    assert_int_equal(world.store.waited, 2); /* the first of each epoch */
}

static void a_new_epoch_is_added_on_the_way(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    struct ha_member *member = &world.source.member;
    member->epochs[member->epoch_count++] =
        (struct ha_epoch){.number = 7, .id = 70, .start = 10000};
    member->log_end = 15000;
    fake_source_push(&world.source);
    world_run(50);
    world_check_same();
}

static void what_would_wait_is_left_to_the_task(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    unsigned waited = world.store.waited;
    world.store.again = 1;
    world.source.member.log_end = 20000;
    fake_source_push(&world.source);
    world_run(50);
    world_check_same();
    assert_int_equal(world.store.waited, waited + 1);
}

static void answers_that_do_not_fit_end_the_session(void **state)
{
    (void)state;
    for (int fault = FAKE_SOUND + 1; fault < FAKE_FAULTS; fault++) {
        struct sim_env *sim = &world.sim;
        world_have(5000);
        world.source.fault = (enum fake_fault)fault;
        world_follow();
        world_until(&world.lost, 1);
        assert_int_equal(world.store.at.appended, 5000);
        assert_int_equal(sim_log_count(sim, " ERROR "), 1);
        struct ha_epoch last;
        assert_true(epochs_last(world.epochs, &last));
        assert_int_equal(last.number, 4);
        world.source.fault = FAKE_SOUND;
        world_until(&world.settled, 2);
        world_run(500);
        world_check_same();
        if (fault + 1 < FAKE_FAULTS) {
            world_tear_down(NULL);
            world_set_up(NULL);
        }
    }
}

static void a_full_disk_is_tried_again(void **state)
{
    (void)state;
    world_have(5000);
    world.store.append_code = TERN_NO_SPACE;
    world_follow();
    world_until(&world.lost, 2);
    assert_int_equal(world.store.at.appended, 5000);
    world.store.append_code = TERN_OK;
    world_until(&world.settled, 3);
    world_run(500);
    world_check_same();
}

static void bytes_that_are_no_log_are_tried_slowly(void **state)
{
    (void)state;
    world_have(5000);
    world.store.append_code = TERN_CORRUPT;
    world_follow();
    world_until(&world.lost, 1);
    unsigned fetches = world.source.fetches;
    world_run(4500);
    assert_int_equal(world.source.fetches, fetches);
}

static void confirmed_is_told_when_it_moves(void **state)
{
    (void)state;
    world.source.confirmed = 9000;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    assert_int_equal(world.confirmed, 9000);
    assert_true(world.confirmed_settled);
    int64_t confirmed;
    bool settled;
    uint64_t seen;
    replica_acknowledged(world.replica, &confirmed, &settled, &seen);
    assert_int_equal(confirmed, 9000);
    assert_true(settled);
    assert_int_equal(seen, 0);
    world.source.confirmed = 8000; /* never falls */
    fake_source_push(&world.source);
    world_run(50);
    assert_int_equal(world.confirmed, 9000);
}

static void topics_come_before_bytes_and_by_the_task(void **state)
{
    (void)state;
    world.source.topics_version = 6;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    assert_int_equal(world.applied_topics, 6);
    assert_int_equal(world.source.held.topics_version, 6);
    assert_memory_equal(world.diary, "STa", 3);
    world_check_same();
}

static void tables_that_fail_end_the_session(void **state)
{
    (void)state;
    world.source.topics_version = 6;
    world.apply_code = TERN_IO;
    world_follow();
    world_until(&world.lost, 1);
    assert_int_equal(world.store.at.appended, 0);
    world.apply_code = TERN_OK;
    world_until(&world.settled, 2);
    world_run(500);
    world_check_same();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_master_that_comes_back_is_followed_within_a_second),
        TEST(a_silent_source_is_lost_after_park_and_three_seconds),
        TEST(another_address_ends_the_session),
        TEST(the_same_address_again_changes_nothing),
        TEST(without_a_known_master_what_is_here_counts),
        TEST(stops_with_a_fetch_under_way),
        TEST(new_bytes_come_at_once),
        TEST(a_new_epoch_is_added_on_the_way),
        TEST(what_would_wait_is_left_to_the_task),
        TEST(answers_that_do_not_fit_end_the_session),
        TEST(a_full_disk_is_tried_again),
        TEST(bytes_that_are_no_log_are_tried_slowly),
        TEST(confirmed_is_told_when_it_moves),
        TEST(topics_come_before_bytes_and_by_the_task),
        TEST(tables_that_fail_end_the_session),
    };
    return cmocka_run_group_tests_name("ha replica copying", tests, NULL, NULL);
}
