/* How a master with a set on record starts: whom it asks, whose log it takes, what fails. */
#include "tests/unit/ha/opening_world.h"

#include <errno.h>

#include "base/clock.h"
#include "base/fs.h"

/* ---- a set on record ---- */

static void opens_at_once_without_a_set(void **state)
{
    (void)state;
    save_set(0);
    begin();
    assert_false(opening_done(world.opening));
    assert_int_equal(step(), SCHED_NEVER);
    assert_true(opening_done(world.opening));
    assert_true(opening_merged(world.opening));
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 0);
    assert_false(world.raise);
    assert_int_equal(world.number, 3);
    assert_int_equal(world.looks, 0);
}

/* The store was a slave's until now: what the master had beyond it is not known. */
static void a_store_with_epochs_and_no_set_on_record_raises_versions(void **state)
{
    (void)state;
    begin();
    step();
    assert_int_equal(world.opens, 1);
    assert_true(world.raise);
}

static void asks_each_member_at_once_and_every_second(void **state)
{
    (void)state;
    save_set(2);
    begin();
    int64_t next = step();
    assert_int_equal(world.looks, 2);
    assert_int_equal(next, now_ns() + ms_to_ns(1000));
    step_after(999);
    assert_int_equal(world.looks, 2);
    step_after(1);
    assert_int_equal(world.looks, 4);
    struct insync_member awaited[INSYNC_MAX];
    assert_int_equal(opening_awaited(world.opening, awaited), 2);
    char text[200];
    opening_text(world.opening, text, sizeof text);
    assert_non_null(strstr(text, "2 (10.0.0.2:10912)"));
}

static void merges_every_member_then_opens_with_the_whole_set(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member first = slave(1, 3, 33, 900);
    struct ha_member second = slave(2, 3, 33, 1000);
    hear(&first);
    assert_int_equal(world.takes, 0);
    hear(&second);
    assert_int_equal(world.takes, 1);
    assert_string_equal(world.took, "10.0.0.2:10912");
    assert_false(opening_merged(world.opening));
    taken(TERN_OK);
    assert_int_equal(world.takes, 2);
    assert_string_equal(world.took, "10.0.0.1:10912");
    assert_int_equal(world.opens, 0);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_int_equal(world.set.count, 2);
    assert_false(world.raise);
    assert_false(world.forced);
}

static void takes_the_highest_epoch_before_the_longest_log(void **state)
{
    (void)state;
    save_set(2);
    begin();
    step();
    struct ha_member longer = slave(1, 3, 33, 5000);
    struct ha_member newer = slave(2, 4, 44, 1200);
    hear(&longer);
    hear(&newer);
    assert_string_equal(world.took, "10.0.0.2:10912");
}

static void a_cut_of_our_own_log_raises_versions(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member newer = slave(1, 4, 44, 1200); /* our 500 to 1000 are not in it */
    hear(&newer);
    take_over(&newer);
    taken(TERN_OK);
    assert_int_equal(world.opens, 1);
    assert_true(world.raise);
    assert_int_equal(world.number, 4);
}

static void a_longer_tail_alone_raises_nothing(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member longer = slave(1, 3, 33, 5000);
    hear(&longer);
    take_over(&longer);
    taken(TERN_OK);
    assert_false(world.raise);
}

static void an_unclean_stop_raises_versions_once(void **state)
{
    (void)state;
    world.ha.recovered_unclean = true;
    save_set(0);
    begin();
    step();
    assert_true(world.raise);
    begin();
    step();
    assert_int_equal(world.opens, 2);
    assert_false(world.raise);
}

static void another_uuid_under_the_id_is_no_answer(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member other = slave(1, 3, 33, 900);
    memset(other.uuid, 99, sizeof other.uuid);
    hear(&other);
    assert_int_equal(world.takes, 0);
    assert_false(opening_done(world.opening));
}

static void other_names_and_copies_of_us_are_not_heard(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct ha_member member = slave(1, 9, 99, 9000);
    memcpy(member.name, "broker-b", 9);
    hear(&member);
    member = slave(1, 9, 99, 9000);
    memcpy(member.cluster, "D", 2);
    hear(&member);
    member = slave(0, 9, 99, 9000);
    hear(&member);
    member = slave(1, 9, 99, 9000);
    memcpy(member.uuid, world.ha.uuid, sizeof member.uuid);
    hear(&member);
    assert_int_equal(world.takes, 0);
    struct insync_member awaited[INSYNC_MAX];
    assert_int_equal(opening_awaited(world.opening, awaited), 1);
}

static void a_listed_address_replaces_the_recorded_one(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    struct insync_member known = record(1);
    struct ha_seen_member listed = {.id = 1, .ha_address = "10.9.9.9:1"};
    memcpy(listed.uuid, known.uuid, sizeof listed.uuid);
    opening_members(world.opening, &listed, 1, 1);
    step_after(1000);
    assert_string_equal(world.looked, "10.9.9.9:1");
}

/* ---- failures ---- */

static void a_failed_opening_is_tried_again_each_second(void **state)
{
    (void)state;
    world.fail_opens = 2;
    begin();
    int64_t next = step();
    assert_int_equal(next, now_ns() + ms_to_ns(1000));
    char text[200];
    opening_text(world.opening, text, sizeof text);
    assert_non_null(strstr(text, "the disk does not write"));
    assert_true(opening_merged(world.opening));
    step_after(1000);
    assert_int_equal(world.opens, 0);
    step_after(1000);
    assert_int_equal(world.opens, 1);
}

static void a_damaged_set_stops_the_start(void **state)
{
    (void)state;
    struct tern_error err;
    save_set(1);
    save_set(2);
    const char *const names[] = {"/store/ternmq/insync.json", "/store/ternmq/insync.json.bak"};
    for (size_t i = 0; i < 2; i++) {
        struct file *file;
        assert_ok(fs_open(world.sim.env.fs, names[i], FS_WRITE | FS_TRUNCATE, &file));
        assert_ok(file_pwrite(file, "{", 1, 0));
        file_close(file);
    }
    assert_int_equal(opening_begin(world.opening, now_ns(), &err), TERN_CORRUPT);
    force_refused(NULL, "try again");
    assert_false(opening_merged(world.opening));
}

static void a_set_that_cannot_be_read_is_no_empty_set(void **state)
{
    (void)state;
    struct tern_error err;
    save_set(1);
    sim_fs_fail(
        world.sim.fs,
        &(struct sim_fs_fault){.op = SIM_FS_OPEN, .nth = 1, .errno_value = EIO, .forever = true});
    assert_int_not_equal(opening_begin(world.opening, now_ns(), &err), TERN_OK);
    sim_fs_fail_clear(world.sim.fs);
}

static void many_strangers_do_not_overflow_the_list(void **state)
{
    (void)state;
    save_set(1);
    begin();
    step();
    for (int i = 2; i < 100; i++) {
        struct ha_member stranger = slave(i, (uint64_t)(4 + i), 5, 2000);
        opening_heard(world.opening, &stranger);
    }
    struct insync_member awaited[INSYNC_MAX];
    assert_int_equal(opening_awaited(world.opening, awaited), 1);
    struct ha_member member = slave(1, 3, 33, 1000);
    hear(&member);
    assert_int_equal(world.takes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opens_at_once_without_a_set),
        TEST(a_store_with_epochs_and_no_set_on_record_raises_versions),
        TEST(asks_each_member_at_once_and_every_second),
        TEST(merges_every_member_then_opens_with_the_whole_set),
        TEST(takes_the_highest_epoch_before_the_longest_log),
        TEST(a_cut_of_our_own_log_raises_versions),
        TEST(a_longer_tail_alone_raises_nothing),
        TEST(an_unclean_stop_raises_versions_once),
        TEST(another_uuid_under_the_id_is_no_answer),
        TEST(other_names_and_copies_of_us_are_not_heard),
        TEST(a_listed_address_replaces_the_recorded_one),
        TEST(a_failed_opening_is_tried_again_each_second),
        TEST(a_damaged_set_stops_the_start),
        TEST(a_set_that_cannot_be_read_is_no_empty_set),
        TEST(many_strangers_do_not_overflow_the_list),
    };
    return cmocka_run_group_tests_name("ha opening set", tests, NULL, NULL);
}
