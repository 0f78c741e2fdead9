/*
 * The dispatcher on a log in memory: offers, the task, arrivals, the limit, what gets which unit,
 * replays, and failures; and appender against task on real threads.
 */
#include "tests/unit/base/unit.h"
#include "tests/unit/store/fake_log.h"

#include <errno.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/names.h"
#include "broker/store/delay_level.h"
#include "broker/store/dispatcher.h"
#include "broker/store/index_service.h"
#include "broker/store/queue_table.h"
#include "tests/sim/sim_env.h"

enum { SEGMENT_BYTES = 64 * 1024, LOG_BYTES = 8 << 20, QUEUES = 8 };

#define DIR "/store/consumequeue"

struct fixture {
    struct sim_env sim;
    struct commit_log log;
    struct queue_table *queues;
    struct dispatcher *dispatcher;
    struct tern_error err;
    int64_t next[QUEUES]; /* offsets given out */
    /* what the observer heard */
    int64_t arrived[QUEUES];
    unsigned arrivals;
    enum tern_code error;
    char error_text[512];
};

static void on_arrival(void *arg, const struct store_arrival *arrival)
{
    struct fixture *f = arg;
    lock_assert_none_held();
    assert_in_range(arrival->queue_id, 0, QUEUES - 1);
    assert_int_equal(arrival->first_off, f->arrived[arrival->queue_id]);
    f->arrived[arrival->queue_id] += arrival->count;
    f->arrivals++;
    struct consume_queue *queue =
        queue_table_find(f->queues, arrival->topic, strlen(arrival->topic), arrival->queue_id);
    assert_true(consume_queue_max(queue) >=
                f->arrived[arrival->queue_id]); /* it can be read by now */
    for (uint32_t i = 0; i < arrival->count; i++) {
        struct queue_unit unit;
        uint32_t got;
        assert_ok(consume_queue_read(queue, arrival->first_off + i, &unit, 1, false, &got));
        assert_int_equal(unit.tags_code, arrival->tags_codes[i]);
    }
    consume_queue_unref(queue);
}

static void on_error(void *arg, enum tern_code code, const char *text)
{
    struct fixture *f = arg;
    assert_int_equal(f->error, TERN_OK); /* once */
    f->error = code;
    snprintf(f->error_text, sizeof f->error_text, "%s", text);
}

static void create(struct fixture *f, int64_t from)
{
    int64_t records;
    const struct dispatcher_options options = {
        .log = &f->log,
        .queues = f->queues,
        .observer = {.arg = f, .on_arrival = on_arrival},
        .on_error = on_error,
        .arg = f,
    };
    assert_ok(dispatcher_create(&f->sim.env, &options, &f->dispatcher));
    assert_ok(dispatcher_replay(f->dispatcher, from, commit_log_end(&f->log), &records, &f->err));
}

static void set_up(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    sim_env_init(&f->sim, 1);
    fake_log_init(&f->log, LOG_BYTES, SEGMENT_BYTES);
    assert_ok(queue_table_create(&f->sim.env, DIR, 20 * 1000, 4, false, &f->queues));
    create(f, 0);
    assert_ok(dispatcher_start(f->dispatcher));
    sim_run_for(f->sim.sched, 1);
}

static void tear_down(struct fixture *f)
{
    dispatcher_destroy(f->dispatcher);
    queue_table_destroy(f->queues);
    fake_log_fini(&f->log);
    sim_env_fini(&f->sim);
}

/* Appends a record to a queue without telling the dispatcher. */
static int64_t append(struct fixture *f, int32_t queue_id, const char *tags)
{
    const struct fake_record record = {.queue_id = queue_id,
                                       .queue_off = f->next[queue_id]++,
                                       .tags = tags,
                                       .body_bytes = (size_t)(f->next[queue_id] % 50)};
    return fake_append(&f->log, &record);
}

static void offer(struct fixture *f, int64_t from)
{
    dispatcher_offer(f->dispatcher, from, f->log.bytes + from,
                     (size_t)(commit_log_end(&f->log) - from));
}

static int64_t max_of(struct fixture *f, int32_t queue_id)
{
    struct consume_queue *queue = queue_table_find(f->queues, "TopicTest", 9, queue_id);
    int64_t max = queue ? consume_queue_max(queue) : -1;
    consume_queue_unref(queue);
    return max;
}

static struct queue_unit unit_of(struct fixture *f, const char *topic, int32_t queue_id, int64_t at)
{
    struct queue_unit unit = {0};
    uint32_t got = 0;
    struct consume_queue *queue = queue_table_find(f->queues, topic, strlen(topic), queue_id);
    assert_non_null(queue);
    assert_ok(consume_queue_read(queue, at, &unit, 1, false, &got));
    assert_int_equal(got, 1);
    consume_queue_unref(queue);
    return unit;
}

static void run(struct fixture *f)
{
    sim_run_for(f->sim.sched, 1);
}

static void check_all_arrived(struct fixture *f)
{
    for (int32_t q = 0; q < QUEUES; q++) {
        assert_int_equal(f->arrived[q], f->next[q]);
        if (f->next[q] > 0)
            assert_int_equal(max_of(f, q), f->next[q]);
    }
    assert_int_equal(dispatcher_position(f->dispatcher), commit_log_end(&f->log));
    assert_int_equal(dispatcher_oldest_pending_ms(f->dispatcher), 0);
}

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
        cmocka_unit_test(a_record_that_is_not_all_there_is_waited_for),
        cmocka_unit_test(a_record_larger_than_a_chunk_is_dispatched),
        cmocka_unit_test(damaged_bytes_end_dispatching_once),
        cmocka_unit_test(a_position_that_expired_moves_to_the_logs_beginning),
        cmocka_unit_test(replaying_again_and_from_anywhere_changes_nothing),
        cmocka_unit_test(a_replay_that_misses_units_says_where),
        cmocka_unit_test(a_full_disk_makes_messages_late_not_lost),
        cmocka_unit_test(a_failed_write_ends_dispatching),
        cmocka_unit_test(a_topic_made_anew_is_followed_where_it_was_not_deleted),
        cmocka_unit_test(appender_and_task_share_the_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
