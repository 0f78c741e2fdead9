/* The dispatcher on a log in memory: odd bytes, replays, failures. */
#include "tests/unit/store/dispatcher_world.h"

#include <errno.h>

/* ---- odd bytes ---- */

static void a_record_that_is_not_all_there_is_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    append(&f, 0, NULL);
    int64_t at = append(&f, 0, NULL);
    int64_t end = commit_log_end(&f.log);
    for (int64_t cut = at; cut < end; cut += 7) {
        atomic_store(&f.log.end, cut); /* a slave's log ends anywhere */
        dispatcher_offer(f.dispatcher, cut, NULL, 0);
        run(&f);
        assert_int_equal(dispatcher_position(f.dispatcher), at);
    }
    atomic_store(&f.log.end, end);
    dispatcher_offer(f.dispatcher, end, NULL, 0);
    run(&f);
    check_all_arrived(&f);
    assert_int_equal(f.error, TERN_OK);
    tear_down(&f);
}

static void a_record_larger_than_a_chunk_is_dispatched(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    f.log.segment_bytes = 4 << 20;
    append(&f, 0, NULL);
    const struct fake_record big = {.queue_id = 1, .queue_off = f.next[1]++, .body_bytes = 3 << 20};
    fake_append(&f.log, &big);
    append(&f, 0, NULL);
    dispatcher_set_limit(f.dispatcher, INT64_MAX);
    run(&f);
    check_all_arrived(&f);
    tear_down(&f);
}

static void damaged_bytes_end_dispatching_once(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    append(&f, 0, NULL);
    int64_t at = append(&f, 0, NULL);
    append(&f, 0, NULL);
    f.log.bytes[at + 4] ^= 1;
    dispatcher_set_limit(f.dispatcher, INT64_MAX);
    run(&f);
    assert_int_equal(f.error, TERN_CORRUPT);
    assert_contains(f.error_text, "no record begins");
    assert_int_equal(max_of(&f, 0), 1);
    dispatcher_set_limit(f.dispatcher, INT64_MAX);
    run(&f);
    assert_int_equal(dispatcher_position(f.dispatcher), at);
    tear_down(&f);
}

static void a_position_that_expired_moves_to_the_logs_beginning(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    while (commit_log_end(&f.log) < 2 * SEGMENT_BYTES)
        append(&f, 0, NULL);
    int64_t first = f.next[0] - 1; /* begins the third segment */
    append(&f, 0, NULL);
    atomic_store(&f.log.min, 2 * SEGMENT_BYTES); /* a slave that comes late to its master */
    f.arrived[0] = first;
    dispatcher_set_limit(f.dispatcher, INT64_MAX);
    run(&f);
    check_all_arrived(&f);
    assert_int_equal(unit_of(&f, "TopicTest", 0, first).phys_off, 2 * SEGMENT_BYTES);
    tear_down(&f);
}

/* ---- replays ---- */

static void replaying_again_and_from_anywhere_changes_nothing(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    int64_t positions[400];
    for (int i = 0; i < 400; i++)
        positions[i] = append(&f, (i * i) % QUEUES, "TagA");
    for (int i = 0; i < 400; i += 57) {
        dispatcher_destroy(f.dispatcher);
        create(&f, positions[i == 0 ? 0 : 399 - i]);
        assert_int_equal(dispatcher_position(f.dispatcher), commit_log_end(&f.log));
        for (int32_t q = 0; q < QUEUES; q++)
            assert_int_equal(max_of(&f, q), f.next[q] ? f.next[q] : -1);
    }
    assert_int_equal(f.arrivals, 0); /* a replay tells nobody */
    tear_down(&f);
}

static void a_replay_that_misses_units_says_where(void **state)
{
    (void)state;
    struct fixture f;
    int64_t records;
    set_up(&f);
    offer(&f, append(&f, 0, NULL));
    append(&f, 0, NULL);
    append(&f, 0, NULL);
    int64_t at = append(&f, 0, NULL);
    dispatcher_destroy(f.dispatcher);
    const struct dispatcher_options options = {.log = &f.log, .queues = f.queues};
    assert_ok(dispatcher_create(&f.sim.env, &options, &f.dispatcher));
    assert_int_equal(dispatcher_replay(f.dispatcher, at, commit_log_end(&f.log), &records, &f.err),
                     TERN_CORRUPT);
    assert_contains(f.err.text, "TopicTest/0");
    tear_down(&f);
}

static void a_replay_that_finds_no_room_asks_for_some(void **state)
{
    (void)state;
    struct fixture f;
    int64_t records;
    set_up(&f);
    for (int i = 0; i < 1000; i++)
        append(&f, 0, NULL);
    dispatcher_destroy(f.dispatcher);
    const struct dispatcher_options options = {.log = &f.log, .queues = f.queues};
    assert_ok(dispatcher_create(&f.sim.env, &options, &f.dispatcher));
    sim_fs_fail(f.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_PWRITEV,
                                                 .path_part = "consumequeue",
                                                 .nth = 1,
                                                 .errno_value = ENOSPC,
                                                 .forever = true});
    assert_int_equal(dispatcher_replay(f.dispatcher, 0, commit_log_end(&f.log), &records, &f.err),
                     TERN_NO_SPACE);
    assert_contains(f.err.text, "TopicTest/0");
    assert_contains(f.err.text, "make some, start again");
    tear_down(&f);
}

/* ---- failures ---- */

static void a_full_disk_makes_messages_late_not_lost(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    sim_fs_fail(f.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_PWRITEV,
                                                 .path_part = "consumequeue",
                                                 .nth = 1,
                                                 .errno_value = ENOSPC,
                                                 .forever = true});
    for (int i = 0; i < 3000; i++) {
        offer(&f, append(&f, i % QUEUES, NULL));
        dispatcher_notify(f.dispatcher);
    }
    sim_run_for(f.sim.sched, 3000 * 1000000ll);
    assert_true(dispatcher_position(f.dispatcher) < commit_log_end(&f.log));
    assert_int_equal(f.error, TERN_OK);
    sim_fs_fail_clear(f.sim.fs);
    sim_run_for(f.sim.sched, 3000 * 1000000ll);
    check_all_arrived(&f);
    tear_down(&f);
}

static void a_failed_write_ends_dispatching(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    sim_fs_fail(f.sim.fs,
                &(struct sim_fs_fault){.op = SIM_FS_PWRITEV, .nth = 1, .errno_value = EIO});
    for (int i = 0; i < 1000; i++)
        offer(&f, append(&f, 5, NULL));
    assert_int_equal(f.error, TERN_IO);
    assert_contains(f.error_text, "TopicTest/5");
    tear_down(&f);
}

static void a_topic_made_anew_is_followed_where_it_was_not_deleted(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    for (int i = 0; i < 100; i++)
        offer(&f, append(&f, 0, NULL));
    dispatcher_notify(f.dispatcher);
    f.next[0] = f.arrived[0] = 0;
    for (int i = 0; i < 10; i++)
        offer(&f, append(&f, 0, NULL));
    dispatcher_notify(f.dispatcher);
    assert_int_equal(f.error, TERN_OK);
    check_all_arrived(&f);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_that_is_not_all_there_is_waited_for),
        cmocka_unit_test(a_record_larger_than_a_chunk_is_dispatched),
        cmocka_unit_test(damaged_bytes_end_dispatching_once),
        cmocka_unit_test(a_position_that_expired_moves_to_the_logs_beginning),
        cmocka_unit_test(replaying_again_and_from_anywhere_changes_nothing),
        cmocka_unit_test(a_replay_that_misses_units_says_where),
        cmocka_unit_test(a_replay_that_finds_no_room_asks_for_some),
        cmocka_unit_test(a_full_disk_makes_messages_late_not_lost),
        cmocka_unit_test(a_failed_write_ends_dispatching),
        cmocka_unit_test(a_topic_made_anew_is_followed_where_it_was_not_deleted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
