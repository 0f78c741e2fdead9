/*
 * broker/ha/insync: who is in the set, what is confirmed, who makes room, and what a failed save
 * leaves.
 */
#include "tests/unit/ha/insync_world.h"

#include "base/clock.h"

static void pass_ms(int64_t ms)
{
    now_ns += ms_to_ns(ms);
}

static void heard_as(int64_t id, uint8_t mark, int64_t end)
{
    struct insync_member from = member(id, mark);
    assert_ok(insync_heard(&in, &from, end, now_ns));
    (void)insync_confirmed(&in);
}

static void heard(int64_t id, int64_t end)
{
    heard_as(id, (uint8_t)id, end);
}

static void down(int64_t id)
{
    struct insync_member who = member(id, (uint8_t)id);
    insync_link_down(&in, id, who.uuid);
}

static enum insync_step next(void)
{
    int64_t wake_ns;
    return insync_next(&in, now_ns, &wake_ns);
}

/* Does all that is to be done. */
static void settle(void)
{
    for (int i = 0; i < 10 && next() != INSYNC_NONE; i++)
        insync_saved(&in, true);
    assert_int_equal(next(), INSYNC_NONE);
}

/* ---- joining ---- */

static void a_slave_counts_only_once_the_disk_has_it(void **state)
{
    (void)state;
    begin(1, 0, NULL);
    own(100);
    assert_int_equal(confirmed(), 100); /* alone */
    heard(1, 90);
    assert_int_equal(next(), INSYNC_NONE);
    heard(1, 100);
    assert_int_equal(next(), INSYNC_JOIN);
    assert_int_equal(in.next.count, 1);
    assert_int_equal(insync_size(&in), 0);
    insync_saved(&in, true);
    assert_int_equal(insync_size(&in), 1);
    own(200);
    assert_int_equal(confirmed(), 100); /* the master alone does not count any more */
    heard(1, 150);
    assert_int_equal(confirmed(), 150);
    heard(1, 200);
    assert_int_equal(confirmed(), 200);
}

static void a_joining_slaves_word_does_not_help_before_it_is_durable(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 50);
    assert_int_equal(confirmed(), 50);
    heard(2, 100);
    assert_int_equal(next(), INSYNC_JOIN);
    assert_int_equal(confirmed(), 50);
    insync_saved(&in, true);
    assert_int_equal(confirmed(), 100);
}

static void a_slave_joins_a_busy_master_that_is_alone(void **state)
{
    (void)state;
    begin(1, 0, NULL);
    own(100);
    heard(1, 10);
    for (int64_t end = 200; next() == INSYNC_NONE; end += 100) {
        pass_ms(1); /* each fetch acknowledges what the master had at the one before */
        own(end);
        heard(1, end - 100);
        assert_true(end < 1000);
    }
    insync_saved(&in, true);
    assert_true(is_member(1));
}

static void a_slave_that_never_draws_near_does_not_join(void **state)
{
    (void)state;
    begin(1, 0, NULL);
    own(100000);
    for (int64_t end = 0; end < 90000; end += 1000) {
        pass_ms(100);
        own(100000 + end);
        heard(1, end);
        assert_int_equal(next(), INSYNC_NONE);
    }
}

/* ---- leaving ---- */

static void a_member_without_link_leaves_at_once_but_counts_until_that_is_durable(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 80);
    down(1);
    own(150);
    assert_int_equal(confirmed(), 80);
    assert_int_equal(next(), INSYNC_LEAVE);
    assert_int_equal(confirmed(), 80); /* being written */
    assert_int_equal(insync_size(&in), 1);
    insync_saved(&in, true);
    assert_int_equal(insync_size(&in), 0);
    assert_int_equal(confirmed(), 150);
    assert_null(insync_find(&in, 1));
}

static void a_member_that_is_not_heard_leaves_in_time(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    int64_t wake_ns;
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    pass_ms(MAX_BEHIND_MS);
    assert_int_equal(insync_next(&in, now_ns, &wake_ns), INSYNC_NONE);
    assert_true(wake_ns == now_ns + 1);
    now_ns = wake_ns;
    assert_true(insync_due(&in, now_ns));
    assert_int_equal(insync_next(&in, now_ns, &wake_ns), INSYNC_LEAVE);
    assert_int_equal(in.next.count, 0); /* 2 was never heard since the opening, 1 not any more */
}

static void a_member_that_falls_behind_leaves_in_time(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    pass_ms(1000);
    own(200);
    for (int i = 0; i < MAX_BEHIND_MS / 1000; i++) {
        assert_int_equal(next(), INSYNC_NONE);
        pass_ms(1000);
        heard(1, 150 + i); /* alive, but slow */
    }
    assert_int_equal(next(), INSYNC_NONE);
    pass_ms(1);
    assert_int_equal(next(), INSYNC_LEAVE);
}

static void a_member_that_is_always_a_little_late_stays(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    for (int64_t i = 1; i < 100; i++) {
        pass_ms(1000);
        own(100 + 100 * i);
        heard(1, 100 * i); /* what the master had a second ago */
        assert_int_equal(next(), INSYNC_NONE);
        assert_true(confirmed() == 100 * i);
    }
}

static void a_set_on_record_counts_from_the_opening_on(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    begin(1, 0, &set);
    own(500);
    assert_int_equal(confirmed(), 0); /* nobody was heard */
    down(1);                          /* an old link's end is no news of a member not yet heard */
    assert_int_equal(next(), INSYNC_NONE);
    heard(2, 400);
    assert_int_equal(confirmed(), 400);
}

static void a_member_that_lost_its_tail_must_draw_level_again(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    heard(1, 40);
    assert_int_equal(confirmed(), 100);
    assert_int_equal(next(), INSYNC_LEAVE);
    insync_saved(&in, true);
    assert_int_equal(next(), INSYNC_NONE);
    heard(1, 100);
    assert_int_equal(next(), INSYNC_JOIN);
}

/* ---- identity ---- */

static void another_store_takes_an_ids_place_only_in_sync(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(100);
    heard_as(1, 77, 50);
    assert_int_equal(next(), INSYNC_NONE);
    assert_int_equal(confirmed(), 0); /* the old one counts, the new one does not */
    heard_as(1, 77, 100);
    assert_int_equal(next(), INSYNC_LEAVE);
    assert_int_equal(in.next.count, 1);
    assert_int_equal(in.next.members[0].uuid[0], 77);
    insync_saved(&in, true);
    assert_int_equal(confirmed(), 100);
    assert_int_equal(insync_size(&in), 1);
    assert_int_equal(next(), INSYNC_NONE);
}

static void a_new_address_is_written_down(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    struct insync_member moved = member(1, 1);
    begin(1, 0, &set);
    snprintf(moved.ha_address, sizeof moved.ha_address, "127.0.0.2:10912");
    assert_ok(insync_heard(&in, &moved, 0, now_ns));
    assert_int_equal(next(), INSYNC_JOIN);
    insync_saved(&in, true);
    assert_string_equal(in.set.members[0].ha_address, "127.0.0.2:10912");
    assert_int_equal(next(), INSYNC_NONE);
}

static void idle_peers_make_room_and_members_do_not(void **state)
{
    (void)state;
    begin(1, 0, NULL);
    own(100);
    for (int i = 0; i < INSYNC_MAX; i++)
        heard(100 + i, 1);
    struct insync_member more = member(1, 1);
    assert_int_equal(insync_heard(&in, &more, 1, now_ns), TERN_LIMIT);
    down(103);
    assert_ok(insync_heard(&in, &more, 1, now_ns));
    assert_non_null(insync_find(&in, 1));
    assert_null(insync_find(&in, 103));
}

/* ---- how many ---- */

static void k_members_and_the_master_have_what_is_confirmed(void **state)
{
    (void)state;
    struct insync_set set = set_of(3, 1, 2, 3);
    const struct {
        uint32_t replicas;
        int64_t want;
    } rows[] = {{0, 1000}, {1, 300}, {2, 200}, {3, 100}, {7, 100}, {UINT32_MAX, 100}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(rows[i].replicas, 0, &set);
        own(1000);
        heard(1, 100);
        heard(2, 300);
        heard(3, 200);
        assert_int_equal(confirmed(), rows[i].want);
    }
    begin(1, 0, &set);
    own(250);
    heard(2, 300); /* SYNC_FLUSH: a slave may flush before the master does */
    assert_int_equal(confirmed(), 250);
}

static void below_the_least_number_confirmed_stands_still(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    begin(1, 2, &set);
    own(100);
    heard(1, 100);
    heard(2, 100);
    assert_true(insync_enough(&in));
    down(2);
    settle();
    assert_false(insync_enough(&in));
    own(200);
    heard(1, 200);
    assert_int_equal(confirmed(), 100);
    heard(2, 200);
    settle();
    assert_true(insync_enough(&in));
    assert_int_equal(confirmed(), 200);
}

static void all_members_have_the_progress_that_is_seen(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    begin(1, 0, NULL);
    assert_true(insync_progress_seen(&in) == UINT64_MAX);
    begin(1, 0, &set);
    own(10);
    assert_int_equal(insync_progress_seen(&in), 0);
    heard(1, 10);
    heard(2, 10);
    insync_progress(&in, 1, member(1, 1).uuid, 7);
    insync_progress(&in, 2, member(2, 2).uuid, 4);
    assert_int_equal(insync_progress_seen(&in), 4);
    down(2);
    assert_int_equal(insync_progress_seen(&in), 4);
    settle();
    assert_int_equal(insync_progress_seen(&in), 7);
}

static void progress_waits_for_a_member_from_when_it_is_written_down(void **state)
{
    (void)state;
    struct insync_set set = set_of(1, 1);
    begin(1, 0, &set);
    own(10);
    heard(1, 10);
    insync_progress(&in, 1, member(1, 1).uuid, 7);
    heard(2, 10);
    insync_progress(&in, 2, member(2, 2).uuid, 4);
    assert_int_equal(insync_progress_seen(&in), 7);
    assert_int_equal(next(), INSYNC_JOIN);
    assert_int_equal(insync_progress_seen(&in), 4); /* the file may name it already */
    insync_saved(&in, true);
    assert_int_equal(insync_progress_seen(&in), 4);
}

/* ---- a failed save ---- */

static void after_a_failed_save_either_set_may_be_found(void **state)
{
    (void)state;
    struct insync_set set = set_of(2, 1, 2);
    begin(1, 0, &set);
    own(100);
    heard(1, 100);
    heard(2, 100);
    down(2);
    assert_int_equal(next(), INSYNC_LEAVE);
    insync_saved(&in, false);
    heard(2, 100); /* it is back before the next try */
    own(200);
    heard(2, 200);
    assert_int_equal(confirmed(), 100); /* a master that starts may wait for 1 alone */
    assert_int_equal(next(), INSYNC_LEAVE);
    assert_int_equal(in.next.count, 1); /* as it was */
    insync_saved(&in, true);
    heard(1, 150);
    assert_int_equal(confirmed(), 150);
    settle();
    assert_true(is_member(2));
    assert_int_equal(confirmed(), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slave_counts_only_once_the_disk_has_it),
        cmocka_unit_test(a_joining_slaves_word_does_not_help_before_it_is_durable),
        cmocka_unit_test(a_slave_joins_a_busy_master_that_is_alone),
        cmocka_unit_test(a_slave_that_never_draws_near_does_not_join),
        cmocka_unit_test(a_member_without_link_leaves_at_once_but_counts_until_that_is_durable),
        cmocka_unit_test(a_member_that_is_not_heard_leaves_in_time),
        cmocka_unit_test(a_member_that_falls_behind_leaves_in_time),
        cmocka_unit_test(a_member_that_is_always_a_little_late_stays),
        cmocka_unit_test(a_set_on_record_counts_from_the_opening_on),
        cmocka_unit_test(a_member_that_lost_its_tail_must_draw_level_again),
        cmocka_unit_test(another_store_takes_an_ids_place_only_in_sync),
        cmocka_unit_test(a_new_address_is_written_down),
        cmocka_unit_test(idle_peers_make_room_and_members_do_not),
        cmocka_unit_test(k_members_and_the_master_have_what_is_confirmed),
        cmocka_unit_test(below_the_least_number_confirmed_stands_still),
        cmocka_unit_test(all_members_have_the_progress_that_is_seen),
        cmocka_unit_test(progress_waits_for_a_member_from_when_it_is_written_down),
        cmocka_unit_test(after_a_failed_save_either_set_may_be_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
