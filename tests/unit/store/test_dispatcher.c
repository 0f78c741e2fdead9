/*
 * The dispatcher on a log in memory: offers, the task, arrivals, the limit, what gets which unit;
 * and appender against task on real threads.
 */
#include "tests/unit/store/dispatcher_world.h"

#include <unistd.h>

#include "base/names.h"
#include "broker/store/delay_level.h"

/* ---- offers ---- */

static void an_offer_is_dispatched_at_once_and_told_by_notify(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    int64_t at = append(&f, 3, "TagA");
    offer(&f, at);
    assert_int_equal(max_of(&f, 3), 1);
    assert_int_equal(f.arrivals, 0);
    struct queue_unit unit = unit_of(&f, "TopicTest", 3, 0);
    assert_int_equal(unit.phys_off, at);
    assert_int_equal(unit.size, commit_log_end(&f.log) - at);
    assert_int_equal(unit.tags_code, 0x27A807);
    dispatcher_notify(f.dispatcher);
    assert_int_equal(f.arrivals, 1);
    check_all_arrived(&f);
    tear_down(&f);
}

static void interleaved_queues_become_one_arrival_each(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    int64_t at = append(&f, 0, NULL);
    for (int i = 1; i < 160; i++)
        append(&f, i % QUEUES, i % 3 ? "TagA" : NULL);
    offer(&f, at);
    dispatcher_notify(f.dispatcher);
    assert_int_equal(f.arrivals, QUEUES);
    check_all_arrived(&f);
    tear_down(&f);
}

static void offers_of_one_queue_are_joined_until_notify(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    for (int i = 0; i < 50; i++)
        offer(&f, append(&f, 2, "TagB"));
    dispatcher_notify(f.dispatcher);
    assert_int_equal(f.arrivals, 1);
    check_all_arrived(&f);
    dispatcher_notify(f.dispatcher);
    assert_int_equal(f.arrivals, 1);
    tear_down(&f);
}

static void an_offer_behind_a_backlog_is_left_to_the_task(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    append(&f, 0, NULL); /* nobody told the dispatcher */
    offer(&f, append(&f, 1, NULL));
    assert_int_equal(max_of(&f, 1), -1);
    assert_int_equal(dispatcher_oldest_pending_ms(f.dispatcher), 1700000000000);
    run(&f);
    check_all_arrived(&f);
    tear_down(&f);
}

static void a_segments_filler_is_stepped_over_by_offers_and_task(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    while (commit_log_end(&f.log) < 3 * SEGMENT_BYTES)
        offer(&f, append(&f, 0, NULL));
    dispatcher_notify(f.dispatcher);
    check_all_arrived(&f); /* without the task */
    while (commit_log_end(&f.log) < 6 * SEGMENT_BYTES)
        append(&f, 1, NULL);
    offer(&f, append(&f, 1, NULL));
    run(&f);
    check_all_arrived(&f);
    tear_down(&f);
}

static void arrivals_beyond_the_bound_are_told_by_the_task(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    for (int i = 0; i < 30000; i++)
        offer(&f, append(&f, i % QUEUES, NULL));
    dispatcher_notify(f.dispatcher);
    run(&f);
    check_all_arrived(&f);
    tear_down(&f);
}

/* ---- the limit ---- */

static void nothing_beyond_the_limit_can_be_seen(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    int64_t positions[20];
    for (int i = 0; i < 20; i++)
        positions[i] = append(&f, 0, NULL);
    dispatcher_set_limit(f.dispatcher, positions[7] + 5); /* within a record */
    offer(&f, positions[0]);
    dispatcher_notify(f.dispatcher);
    run(&f);
    assert_int_equal(max_of(&f, 0), 7);
    assert_int_equal(dispatcher_position(f.dispatcher), positions[7]);
    assert_int_equal(dispatcher_limit(f.dispatcher), positions[7] + 5);
    dispatcher_set_limit(f.dispatcher, positions[12]);
    run(&f);
    assert_int_equal(max_of(&f, 0), 12);
    dispatcher_set_limit(f.dispatcher, positions[3]); /* lower: nothing is taken back */
    run(&f);
    assert_int_equal(max_of(&f, 0), 12);
    dispatcher_set_limit(f.dispatcher, INT64_MAX);
    run(&f);
    dispatcher_notify(f.dispatcher);
    check_all_arrived(&f);
    tear_down(&f);
}

/* ---- which records, which codes ---- */

static void prepared_and_rolled_back_records_get_no_unit(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f);
    static const uint32_t types[] = {SYS_TX_PREPARED, SYS_TX_ROLLBACK, SYS_TX_COMMIT, 0};
    for (size_t i = 0; i < 4; i++) {
        struct fake_record record = {
            .queue_id = 0, .queue_off = i < 2 ? 0 : f.next[0]++, .sys_flag = types[i]};
        offer(&f, fake_append(&f.log, &record));
    }
    dispatcher_notify(f.dispatcher);
    assert_int_equal(max_of(&f, 0), 2);
    check_all_arrived(&f);
    tear_down(&f);
}

static void a_delayed_message_carries_its_due_time(void **state)
{
    (void)state;
    struct fixture f;
    static const struct {
        const char *delay;
        int64_t code;
    } rows[] = {{"1", 1000 + 1000},     {"3", 1000 + 10000}, {"18", 1000 + 7200000},
                {"99", 1000 + 7200000}, {"0", 2598919},      {"x", 2598919}};
    set_up(&f);
    for (int64_t i = 0; i < 6; i++) {
        const struct fake_record record = {.topic = SCHEDULE_TOPIC,
                                           .queue_off = i,
                                           .tags = "TagA",
                                           .delay = rows[i].delay,
                                           .store_ms = 1000};
        fake_append(&f.log, &record);
    }
    const struct fake_record other = {.delay = "3", .tags = "TagA", .store_ms = 1000};
    f.next[0]++;
    fake_append(&f.log, &other); /* not in the schedule topic: the tag counts */
    struct store_observer none = {0};
    dispatcher_destroy(f.dispatcher);
    const struct dispatcher_options options = {.log = &f.log, .queues = f.queues, .observer = none};
    assert_ok(dispatcher_create(&f.sim.env, &options, &f.dispatcher));
    int64_t records;
    assert_ok(dispatcher_replay(f.dispatcher, 0, commit_log_end(&f.log), &records, &f.err));
    assert_int_equal(records, 7);
    for (int64_t i = 0; i < 6; i++)
        assert_int_equal(unit_of(&f, SCHEDULE_TOPIC, 0, i).tags_code, rows[i].code);
    assert_int_equal(unit_of(&f, "TopicTest", 0, 0).tags_code, 2598919);
    tear_down(&f);
}

static void delay_levels_are_parsed_or_refused(void **state)
{
    (void)state;
    struct delay_levels levels;
    struct tern_error err;
    assert_ok(delay_levels_parse(DELAY_LEVELS_DEFAULT, &levels, &err));
    assert_int_equal(levels.count, 18);
    assert_int_equal(delay_level_due_ms(&levels, 5, 100), 60100);
    assert_int_equal(delay_level_due_ms(&levels, 19, 100), 1100); /* unknown: a second */
    assert_ok(delay_levels_parse("  2d 1s ", &levels, &err));
    assert_int_equal(levels.delay_ms[0], 2 * 86400000);
    static const char *const bad[] = {"",      " ",   "1",  "s",           "1x",
                                      "1s,5s", "-1s", "0s", "99999999999s"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(delay_levels_parse(bad[i], &levels, &err), TERN_CONFIG);
        assert_contains(err.text, "messageDelayLevel");
    }
}

/* ---- threads ---- */

static _Atomic int64_t seen[QUEUES];

static void count_arrival(void *arg, const struct store_arrival *arrival)
{
    (void)arg;
    atomic_fetch_add(&seen[arrival->queue_id], arrival->count);
}

static void appender_and_task_share_the_work(void **state)
{
    (void)state;
    enum { RECORDS = 30000 };
    static struct fixture f;
    char dir[] = "/tmp/tern_dispatch_XXXXXX";
    char path[FS_PATH_BYTES];
    struct env env;
    int64_t records;
    memset(&f, 0, sizeof f);
    for (int q = 0; q < QUEUES; q++)
        atomic_store(&seen[q], 0);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/consumequeue", dir);
    env_init_system(&env, NULL);
    fake_log_init(&f.log, LOG_BYTES, SEGMENT_BYTES);
    assert_ok(queue_table_create(&env, path, 20 * 1000, 4, false, &f.queues));
    const struct dispatcher_options options = {.log = &f.log,
                                               .queues = f.queues,
                                               .observer = {.on_arrival = count_arrival},
                                               .on_error = on_error,
                                               .arg = &f};
    assert_ok(dispatcher_create(&env, &options, &f.dispatcher));
    assert_ok(dispatcher_replay(f.dispatcher, 0, 0, &records, &f.err));
    assert_ok(dispatcher_start(f.dispatcher));
    for (int i = 0; i < RECORDS; i++) {
        int64_t at = append(&f, (i / 3) % QUEUES, "TagA");
        if (i % 1000 == 0)
            dispatcher_set_limit(f.dispatcher, i % 2000 ? INT64_MAX : at);
        offer(&f, at);
        if (i % 5 == 0)
            dispatcher_notify(f.dispatcher);
    }
    dispatcher_set_limit(f.dispatcher, INT64_MAX);
    dispatcher_notify(f.dispatcher);
    for (int tries = 0; tries < 5000; tries++) {
        int64_t sum = 0;
        for (int q = 0; q < QUEUES; q++)
            sum += atomic_load(&seen[q]);
        if (sum == RECORDS)
            break;
        usleep(1000); /* the real clock: only a bound for a failing run */
    }
    for (int q = 0; q < QUEUES; q++) {
        assert_int_equal(atomic_load(&seen[q]), f.next[q]);
        assert_int_equal(max_of(&f, q), f.next[q]);
    }
    dispatcher_destroy(f.dispatcher);
    assert_ok(queue_table_delete_topic(f.queues, "TopicTest", &f.err));
    queue_table_destroy(f.queues);
    fake_log_fini(&f.log);
    rmdir(path);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_offer_is_dispatched_at_once_and_told_by_notify),
        cmocka_unit_test(interleaved_queues_become_one_arrival_each),
        cmocka_unit_test(offers_of_one_queue_are_joined_until_notify),
        cmocka_unit_test(an_offer_behind_a_backlog_is_left_to_the_task),
        cmocka_unit_test(a_segments_filler_is_stepped_over_by_offers_and_task),
        cmocka_unit_test(arrivals_beyond_the_bound_are_told_by_the_task),
        cmocka_unit_test(nothing_beyond_the_limit_can_be_seen),
        cmocka_unit_test(prepared_and_rolled_back_records_get_no_unit),
        cmocka_unit_test(a_delayed_message_carries_its_due_time),
        cmocka_unit_test(delay_levels_are_parsed_or_refused),
        cmocka_unit_test(appender_and_task_share_the_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
