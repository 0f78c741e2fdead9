/*
 * Deleted topics: their queues do not come back, a topic made again does not mix with its old life,
 * here and on a copy, whatever stops in between.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "broker/store/commit_log_internal.h"
#include "broker/store/deletions.h"
#include "tests/unit/store/pair_world.h"

struct send {
    struct store_append append; /* first */
    bool answered;
    uint8_t bytes[1024];
};

static void on_appended(struct store_append *append)
{
    ((struct send *)append)->answered = true;
}

static bool is_answered(void *arg)
{
    return ((struct send *)arg)->answered;
}

/* One message; its queue offset. */
static int64_t send(struct world *w, const char *topic, int32_t queue_id)
{
    struct send s = {.answered = false};
    struct record record = {.queue_id = queue_id,
                            .topic = (const uint8_t *)topic,
                            .topic_len = (uint8_t)strlen(topic),
                            .body = (const uint8_t *)"0123456789012345678901234567890123456789",
                            .body_len = 40};
    s.append.records = s.bytes;
    s.append.size_bytes = (uint32_t)record_encode(s.bytes, sizeof s.bytes, &record);
    s.append.count = 1;
    s.append.on_appended = on_appended;
    assert_int_equal(store_queue_ref(w->store, topic, strlen(topic), queue_id, &s.append.queue),
                     TERN_OK);
    store_append(w->store, &s.append);
    assert_true(
        sim_run_until_true(w->sim.sched, is_answered, &s, w->sim.clock.now_ns + ms_to_ns(5000)));
    assert_int_equal(s.append.result, TERN_OK);
    store_queue_unref(s.append.queue);
    world_run(w, 2);
    return s.append.first_queue_off;
}

static void send_many(struct world *w, const char *topic, int32_t queue_id, int count)
{
    for (int i = 0; i < count; i++)
        send(w, topic, queue_id);
}

static void expect_range(struct store *store, const char *topic, int32_t queue_id, int64_t first,
                         int64_t end)
{
    int64_t min;
    int64_t max;
    store_queue_range(store, topic, queue_id, &min, &max);
    if (min != first || max != end)
        fail_msg("%s/%d is [%" PRId64 ", %" PRId64 "), not [%" PRId64 ", %" PRId64 ")", topic,
                 queue_id, min, max, first, end);
}

static void delete_topic(struct world *w, const char *topic)
{
    if (store_delete_topic(w->store, topic, &w->err))
        fail_msg("store_delete_topic: %s", w->err.text);
}

/* ---- here ---- */

static void a_deleted_topics_queues_do_not_come_back(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct world w;
        world_init(&w, 1);
        world_open(&w);
        send_many(&w, "A", 0, 20);
        send_many(&w, "B", 0, 20);
        delete_topic(&w, "A");
        send_many(&w, "B", 0, 5);
        if (how == 0)
            world_power_loss(&w, SIM_TORN_PAGES);
        else if (how == 1)
            world_process_crash(&w);
        else
            world_close(&w);
        if (how == 3) { /* everything is built anew */
            sim_fs_fail_clear(w.sim.fs);
            assert_int_equal(
                fs_rename(w.sim.env.fs, WORLD_ROOT "/consumequeue", WORLD_ROOT "/away"), TERN_OK);
        }
        world_open(&w);
        expect_range(w.store, "A", 0, 0, 0);
        assert_int_equal(store_topic_last_queue(w.store, "A"), -1);
        expect_range(w.store, "B", 0, 0, 25);
        world_fini(&w);
    }
}

/* MD-05 */
static void a_topic_made_again_begins_at_0_and_does_not_mix(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world w;
        world_init(&w, seed);
        world_open(&w);
        send_many(&w, "A", 0, 30);
        send_many(&w, "A", 1, 7);
        delete_topic(&w, "A");
        assert_int_equal(send(&w, "A", 0), 0);
        send_many(&w, "A", 0, 9);
        delete_topic(&w, "A");
        assert_int_equal(send(&w, "A", 0), 0);
        send_many(&w, "A", 0, 4);
        for (int how = 0; how < 3; how++) {
            expect_range(w.store, "A", 0, 0, 5 + how);
            expect_range(w.store, "A", 1, 0, 0);
            if (how == 0)
                world_power_loss(&w, (enum sim_torn)(seed % 3));
            else if (how == 1)
                world_process_crash(&w);
            else
                world_close(&w);
            world_open(&w);
            expect_range(w.store, "A", 0, 0, 5 + how);
            expect_range(w.store, "A", 1, 0, 0);
            assert_int_equal(send(&w, "A", 0), 5 + how);
        }
        world_fini(&w);
    }
}

/* A record that is not dispatched yet when its topic goes never gets a unit. */
static void what_was_not_dispatched_goes_too(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 11);
    world_open(&w);
    store_set_dispatch_limit(w.store, 0);
    send_many(&w, "A", 0, 10);
    delete_topic(&w, "A");
    assert_int_equal(send(&w, "A", 0), 0);
    store_set_dispatch_limit(w.store, INT64_MAX);
    world_run(&w, 100);
    expect_range(w.store, "A", 0, 0, 1);
    world_fini(&w);
}

static void the_list_is_kept_and_its_version_grows(void **state)
{
    (void)state;
    struct world w;
    size_t count = 0;
    uint64_t version = 0;
    world_init(&w, 12);
    world_open(&w);
    assert_int_equal(store_deletions_version(w.store), 0);
    send_many(&w, "A", 0, 3);
    delete_topic(&w, "A");
    int64_t first = commit_log_end(w.store->log);
    send_many(&w, "B", 0, 3);
    delete_topic(&w, "B");
    uint64_t before = store_deletions_version(w.store);
    assert_true(before >= (uint64_t)clock_wall_ms(w.sim.env.clock)); /* nobody else gives it out */
    delete_topic(&w, "A");
    uint64_t last = store_deletions_version(w.store);
    assert_true(last > before);
    assert_int_equal(store_delete_topic(w.store, "no/name", &w.err), TERN_INVALID);
    world_power_loss(&w, SIM_TORN_NONE);
    world_open(&w);
    assert_int_equal(store_deletions_version(w.store), last);
    struct store_deletion *list = store_deletions(w.store, &count, &version);
    assert_int_equal(version, last);
    assert_int_equal(count, 2);
    assert_string_equal(list[0].topic, "A");
    assert_string_equal(list[1].topic, "B");
    assert_true(list[0].position > first);
    assert_int_equal(list[0].position, list[1].position);
    free(list);
    world_fini(&w);
}

static void entries_go_when_the_log_has_passed_them(void **state)
{
    (void)state;
    struct world w;
    size_t count = 0;
    uint64_t version = 0;
    world_init(&w, 13);
    w.options.retention_ms = 0;
    world_open(&w);
    send_many(&w, "A", 0, 3);
    delete_topic(&w, "A");
    send_many(&w, "B", 0, 400);
    world_run(&w, 1000);
    assert_true(store_expire_now(w.store) > 0);
    free(store_deletions(w.store, &count, &version));
    assert_int_equal(count, 0);
    assert_int_equal(version, store_deletions_version(w.store));
    delete_topic(&w, "B");
    world_power_loss(&w, SIM_TORN_NONE);
    world_open(&w);
    struct store_deletion *list = store_deletions(w.store, &count, &version);
    assert_int_equal(count, 1);
    assert_string_equal(list[0].topic, "B");
    free(list);
    world_fini(&w);
}

/* The power takes the tail that a deletion's position stood behind; the topic lives again there. */
static void a_new_life_below_a_lost_deletion_is_not_passed_over(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 14);
    w.options.sync_flush = false;
    w.options.flush_interval_ms = 1000000;
    world_open(&w);
    send_many(&w, "A", 0, 20);
    assert_int_equal(store_flush(w.store, &w.err), TERN_OK);
    int64_t flushed = commit_log_end(w.store->log);
    send_many(&w, "A", 0, 20);
    delete_topic(&w, "A");
    uint64_t version = store_deletions_version(w.store);
    world_power_loss(&w, SIM_TORN_NONE);
    world_open(&w);
    assert_int_equal(commit_log_end(w.store->log), flushed);
    assert_int_equal(store_end_deletions(w.store, &w.err), TERN_OK);
    assert_true(store_deletions_version(w.store) > version); /* copies have to hear of it */
    version = store_deletions_version(w.store);
    assert_int_equal(store_end_deletions(w.store, &w.err), TERN_OK);
    assert_int_equal(store_deletions_version(w.store), version);
    for (int i = 0; i < 5; i++)
        assert_int_equal(send(&w, "A", 0), i);
    expect_range(w.store, "A", 0, 0, 5);
    world_process_crash(&w);
    world_open(&w);
    expect_range(w.store, "A", 0, 0, 5);
    world_fini(&w);
}

/*
 * One file call fails during the deletion, then the power goes, before or after a message of a new
 * life; false: there were fewer calls.
 */
static bool delete_with_fault(unsigned nth, bool goes_on)
{
    struct world w;
    world_init(&w, nth);
    world_open(&w);
    send_many(&w, "A", 0, 20);
    send_many(&w, "B", 0, 20);
    world_run(&w, 70000);
    uint64_t before = sim_fs_calls(w.sim.fs, SIM_FS_ANY);
    sim_fs_fail(w.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
    enum tern_code code = store_delete_topic(w.store, "A", &w.err);
    bool reached = sim_fs_calls(w.sim.fs, SIM_FS_ANY) - before >= nth;
    sim_fs_fail_clear(w.sim.fs);
    bool noted = store_deletions_version(w.store) > 0;
    assert_true(noted || code);
    goes_on = goes_on && !w.latched;
    if (goes_on)
        assert_int_equal(send(&w, "A", 0), noted ? 0 : 20);
    world_power_loss(&w, (enum sim_torn)(nth % 3));
    world_open(&w);
    /* A note that failed may have reached the disk all the same, before the send. */
    bool found = store_deletions_version(w.store) > 0;
    assert_true(found || !noted);
    expect_range(w.store, "A", 0, found && !noted && goes_on ? 20 : 0,
                 (found ? 0 : 20) + goes_on + (found && !noted && goes_on ? 20 : 0));
    expect_range(w.store, "B", 0, 0, 20);
    world_close(&w);
    world_open(&w);
    world_fini(&w);
    return reached;
}

static void each_failing_call_of_a_deletion_leaves_the_old_life_or_none(void **state)
{
    (void)state;
    unsigned nth = 1;
    while (delete_with_fault(nth, true) && delete_with_fault(nth, false))
        nth++;
    assert_true(nth > 10);
}

static void a_list_that_cannot_be_read_refuses_the_start(void **state)
{
    (void)state;
    struct world w;
    struct file *file = NULL;
    world_init(&w, 14);
    world_open(&w);
    send_many(&w, "A", 0, 3);
    delete_topic(&w, "A");
    world_close(&w);
    assert_int_equal(fs_open(w.sim.env.fs, WORLD_ROOT "/ternmq/deleted.json",
                             FS_WRITE | FS_CREATE | FS_TRUNCATE, &file),
                     TERN_OK);
    assert_int_equal(file_pwrite(file, "{\"version\":-1}", 14, 0), TERN_OK);
    file_close(file);
    enum tern_code code = world_try_open(&w);
    assert_int_equal(code, TERN_CORRUPT);
    assert_non_null(strstr(w.err.text, "deleted.json"));
    world_fini(&w);
}

/* ---- on a copy ---- */

static void take_deletions(struct pair *p)
{
    size_t count = 0;
    uint64_t version = 0;
    struct store_deletion *list = store_deletions(p->w.store, &count, &version);
    assert_non_null(list);
    if (store_apply_deletions(p->c.store, list, count, version, &p->c.err))
        fail_msg("store_apply_deletions: %s", p->c.err.text);
    free(list);
    assert_int_equal(store_deletions_version(p->c.store), version);
}

static void crash_copy(struct pair *p, int how)
{
    if (how == 1)
        copy_power_loss(&p->c, SIM_TORN_PAGES);
    else if (how == 2)
        copy_process_crash(&p->c);
    else if (how == 3)
        copy_close(&p->c);
    if (!p->c.store)
        copy_open(&p->c);
}

/* MD-05: the list comes before the records, between two lives, or after all of them. */
static void copy_follows_deletion(uint64_t seed, int when, int how)
{
    struct pair p;
    pair_init(&p, seed);
    send_many(&p.w, "A", 0, 30);
    send_many(&p.w, "A", 1, 3);
    send_many(&p.w, "B", 0, 5);
    if (when > 0)
        copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    if (when == 1)
        copy_settle(&p.c);
    delete_topic(&p.w, "A");
    if (when < 2)
        take_deletions(&p);
    crash_copy(&p, how);
    send_many(&p.w, "A", 0, 10);
    world_run(&p.w, 5000);
    send_many(&p.w, "B", 0, 150); /* into another segment, where a replay may begin */
    world_run(&p.w, 5000);
    send_many(&p.w, "B", 0, 5);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    world_run(&p.w, 70000); /* all on the disk, checkpoint written */
    send(&p.w, "B", 0);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    world_run(&p.w, 9000); /* and the flush mark says how much is indexed */
    if (when == 2)
        take_deletions(&p);
    crash_copy(&p, how);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX); /* what was not flushed */
    copy_settle(&p.c);
    expect_range(p.c.store, "A", 0, 0, 10);
    expect_range(p.c.store, "A", 1, 0, 0);
    expect_range(p.c.store, "B", 0, 0, 161);
    take_deletions(&p); /* again: nothing happens */
    expect_range(p.c.store, "A", 0, 0, 10);
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
}

static void a_copy_follows_a_deletion_whenever_it_hears_of_it(void **state)
{
    (void)state;
    for (int when = 0; when < 3; when++)
        for (int how = 0; how < 4; how++)
            for (uint64_t seed = 1; seed <= 4; seed++)
                copy_follows_deletion(seed, when, how);
}

/* It goes on as a master at once: the new life's offsets are right. */
static void offsets_are_right_after_a_late_deletion(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, 20);
    send_many(&p.w, "A", 0, 30);
    delete_topic(&p.w, "A");
    send_many(&p.w, "A", 0, 10);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    struct store *source = p.w.store;
    p.w.store = p.c.store;
    assert_int_equal(send(&p.w, "B", 0), 0); /* it knows all offsets now */
    p.w.store = source;
    take_deletions(&p);
    p.w.store = p.c.store;
    assert_int_equal(send(&p.w, "A", 0), 10);
    p.w.store = source;
    copy_settle(&p.c);
    expect_range(p.c.store, "A", 0, 0, 11);
    pair_fini(&p);
}

static void a_wrong_list_is_refused_as_a_whole(void **state)
{
    (void)state;
    struct pair p;
    struct store_deletion list[2] = {{.topic = "A", .position = 100}};
    pair_init(&p, 21);
    send_many(&p.w, "A", 0, 3);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    snprintf(list[1].topic, sizeof list[1].topic, "../x");
    assert_int_equal(store_apply_deletions(p.c.store, list, 2, 9, &p.c.err), TERN_INVALID);
    memset(list[1].topic, 'x', sizeof list[1].topic);
    assert_int_equal(store_apply_deletions(p.c.store, list, 2, 9, &p.c.err), TERN_INVALID);
    snprintf(list[1].topic, sizeof list[1].topic, "B");
    list[1].position = -1;
    assert_int_equal(store_apply_deletions(p.c.store, list, 2, 9, &p.c.err), TERN_INVALID);
    assert_int_equal(store_deletions_version(p.c.store), 0);
    expect_range(p.c.store, "A", 0, 0, 3);
    assert_int_equal(p.c.latched, 0);
    pair_fini(&p);
}

/* One file call fails while the list is taken, then the power goes. */
static bool apply_with_fault(unsigned nth)
{
    struct pair p;
    size_t count = 0;
    uint64_t version = 0;
    pair_init(&p, nth);
    send_many(&p.w, "A", 0, 30);
    delete_topic(&p.w, "A");
    send_many(&p.w, "A", 0, 10);
    send_many(&p.w, "B", 0, 150);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    world_run(&p.w, 70000);
    struct store_deletion *list = store_deletions(p.w.store, &count, &version);
    uint64_t before = sim_fs_calls(p.c.fs, SIM_FS_ANY);
    sim_fs_fail(p.c.fs, &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
    enum tern_code code = store_apply_deletions(p.c.store, list, count, version, &p.c.err);
    free(list);
    bool reached = sim_fs_calls(p.c.fs, SIM_FS_ANY) - before >= nth;
    sim_fs_fail_clear(p.c.fs);
    assert_true(code || store_deletions_version(p.c.store) == version);
    copy_power_loss(&p.c, (enum sim_torn)(nth % 3));
    copy_open(&p.c);
    copy_settle(&p.c);
    take_deletions(&p);
    copy_settle(&p.c);
    expect_range(p.c.store, "A", 0, 0, 10);
    expect_range(p.c.store, "B", 0, 0, 150);
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
    return reached;
}

static void each_failing_call_of_taking_a_list_is_made_good(void **state)
{
    (void)state;
    unsigned nth = 1;
    while (apply_with_fault(nth))
        nth++;
    assert_true(nth > 10);
}

/* ---- with a cut ---- */

/* A deletion in a part of the log that goes: the topic is there again. */
static void deletion_is_cut(int how)
{
    struct pair p;
    struct store_cut cut;
    pair_init(&p, 30);
    send_many(&p.w, "A", 0, 20);
    send_many(&p.w, "B", 0, 20);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    int64_t common = copy_end(&p.c);
    struct store *source = p.w.store;
    p.w.store = p.c.store; /* a life of its own */
    send_many(&p.w, "B", 0, 5);
    delete_topic(&p.w, "A");
    send_many(&p.w, "A", 0, 5);
    world_run(&p.w, 70000);
    p.w.store = source;
    assert_int_equal(store_cut(p.c.store, common, true, &cut, &p.c.err), TERN_OK);
    assert_int_equal(cut.at, common);
    p.c.end = 0;
    crash_copy(&p, how);
    copy_settle(&p.c);
    expect_range(p.c.store, "A", 0, 0, 20);
    expect_range(p.c.store, "B", 0, 0, 20);
    send_many(&p.w, "A", 0, 3);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
}

/* A copy that heard of a deletion before its place came follows when the source has lost it. */
static void a_copy_takes_lower_positions_too(void **state)
{
    (void)state;
    struct pair p;
    struct store_deletion list[] = {{.topic = "A", .position = 100000},
                                    {.topic = "B", .position = 40000}};
    size_t count = 0;
    uint64_t version = 0;
    pair_init(&p, 31);
    assert_int_equal(store_apply_deletions(p.c.store, list, 2, 7, &p.c.err), TERN_OK);
    list[0].position = 500;
    assert_int_equal(store_apply_deletions(p.c.store, list, 1, 8, &p.c.err), TERN_OK);
    struct store_deletion *held = store_deletions(p.c.store, &count, &version);
    assert_int_equal(count, 2);
    assert_int_equal(held[0].position, 500);
    assert_int_equal(held[1].position, 40000);
    assert_true(deletions_cover(p.c.store->deletions, "B", 1, 39999));
    assert_false(deletions_cover(p.c.store->deletions, "A", 1, 500));
    free(held);
    pair_fini(&p);
}

static void a_deletion_that_is_cut_did_not_happen(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++)
        deletion_is_cut(how);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deleted_topics_queues_do_not_come_back),
        cmocka_unit_test(a_topic_made_again_begins_at_0_and_does_not_mix),
        cmocka_unit_test(what_was_not_dispatched_goes_too),
        cmocka_unit_test(the_list_is_kept_and_its_version_grows),
        cmocka_unit_test(entries_go_when_the_log_has_passed_them),
        cmocka_unit_test(a_new_life_below_a_lost_deletion_is_not_passed_over),
        cmocka_unit_test(a_copy_takes_lower_positions_too),
        cmocka_unit_test(each_failing_call_of_a_deletion_leaves_the_old_life_or_none),
        cmocka_unit_test(a_list_that_cannot_be_read_refuses_the_start),
        cmocka_unit_test(a_copy_follows_a_deletion_whenever_it_hears_of_it),
        cmocka_unit_test(offsets_are_right_after_a_late_deletion),
        cmocka_unit_test(a_wrong_list_is_refused_as_a_whole),
        cmocka_unit_test(each_failing_call_of_taking_a_list_is_made_good),
        cmocka_unit_test(a_deletion_that_is_cut_did_not_happen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
