/* A copy of the log as bytes survives stops at any moment, and can go on as a master. */
#include "tests/unit/store/pair_world.h"

#include <errno.h>

#include "base/clock.h"

/* ---- crashes ---- */

/* End of the last append that lies wholly before a position. */
static int64_t last_end_before(const struct world *w, int64_t position)
{
    int64_t last = 0;
    for (size_t i = 0; i < w->sent_count; i++)
        if (w->sent[i]->append.end_phys_off <= position)
            last = w->sent[i]->append.end_phys_off;
    return last;
}

static void copy_survives_crashes(uint64_t seed)
{
    struct pair p;
    pair_init(&p, seed);
    p.c.options.sync_flush = world_pick(&p.w, 2) == 0;
    pair_append_mixed(&p, 50);
    int64_t end = commit_log_end(p.w.store->log);
    while (copy_end(&p.c) < end) {
        int64_t more = 1 + world_pick(&p.w, 40000);
        copy_feed(&p.c, p.w.store, 0, copy_end(&p.c) + more);
        world_run(&p.w, world_pick(&p.w, 4) == 0 ? world_pick(&p.w, 70000) : world_pick(&p.w, 5));
        struct store_positions at;
        store_positions(p.c.store, &at);
        uint32_t how = world_pick(&p.w, 6);
        if (how == 0)
            copy_close(&p.c);
        else if (how == 1)
            copy_process_crash(&p.c);
        else if (how < 5)
            copy_power_loss(&p.c, (enum sim_torn)world_pick(&p.w, SIM_TORN_SECTORS + 1));
        else
            continue;
        copy_open(&p.c);
        int64_t again = copy_end(&p.c);
        /* A filler's rest counts as there as soon as its head is. */
        if (how < 2)
            assert_true(again >= at.whole && again <= at.appended + WORLD_SEGMENT_BYTES);
        else
            assert_true(again >= last_end_before(&p.w, at.flushed));
        assert_int_equal(sim_log_count(&p.w.sim, "store.flushed_bytes_lost"), 0);
    }
    copy_settle(&p.c);
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
}

static void a_copy_that_stops_at_any_moment_becomes_the_same(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 160; seed++)
        copy_survives_crashes(seed);
}

/* Appends with the nth file call failing; false when there were fewer. */
static bool copy_with_fault(unsigned nth)
{
    struct pair p;
    pair_init(&p, 60);
    pair_append_mixed(&p, 12);
    world_run(&p.w, 100);
    int64_t end = commit_log_end(p.w.store->log);
    uint64_t before = sim_fs_calls(p.c.fs, SIM_FS_ANY);
    sim_fs_fail(p.c.fs, &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
    enum tern_code code = TERN_OK;
    while (!code && copy_end(&p.c) < end) {
        int64_t at = copy_end(&p.c);
        size_t size = end - at < 5000 ? (size_t)(end - at) : 5000;
        copy_read(p.w.store, at, p.c.chunk, size);
        code = store_append_bytes(p.c.store, at, p.c.chunk, size, false, &p.c.err);
        assert_int_equal(copy_end(&p.c), code ? at : at + (int64_t)size);
        world_run(&p.w, 5);
    }
    world_run(&p.w, 1500);
    bool reached = sim_fs_calls(p.c.fs, SIM_FS_ANY) - before >= nth;
    sim_fs_fail_clear(p.c.fs);
    copy_power_loss(&p.c, SIM_TORN_PAGES);
    copy_open(&p.c);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    copy_settle(&p.c);
    world_close(&p.w);
    copy_close(&p.c);
    copy_compare(&p.c);
    pair_fini(&p);
    return reached;
}

static void each_failing_call_leaves_a_copy_that_goes_on(void **state)
{
    (void)state;
    unsigned nth = 1;
    while (copy_with_fault(nth))
        nth++;
    assert_true(nth > 30);
}

/* ---- going on as a master ---- */

struct master_send {
    struct store_append append; /* first */
    uint8_t bytes[512];
    bool answered;
};

static void on_master_appended(struct store_append *append)
{
    ((struct master_send *)append)->answered = true;
}

static bool is_answered(void *arg)
{
    return ((struct master_send *)arg)->answered;
}

/* Appends one record to the copy itself; the queue offset that it got. */
static int64_t send_to_copy(struct copy *c, int32_t queue_id)
{
    struct master_send s = {.answered = false};
    struct record record = {.queue_id = queue_id,
                            .topic = (const uint8_t *)WORLD_TOPIC,
                            .topic_len = sizeof WORLD_TOPIC - 1,
                            .body = (const uint8_t *)"new",
                            .body_len = 3};
    s.append.records = s.bytes;
    s.append.size_bytes = (uint32_t)record_encode(s.bytes, sizeof s.bytes, &record);
    s.append.count = 1;
    s.append.on_appended = on_master_appended;
    assert_int_equal(
        store_queue_ref(c->store, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, queue_id, &s.append.queue),
        TERN_OK);
    store_append(c->store, &s.append);
    assert_true(sim_run_until_true(c->w->sim.sched, is_answered, &s,
                                   c->w->sim.clock.now_ns + ms_to_ns(5000)));
    assert_int_equal(s.append.result, TERN_OK);
    store_queue_unref(s.append.queue);
    return s.append.first_queue_off;
}

/* HA-17 */
static void goes_on_as_master(int64_t limit, bool settled)
{
    struct pair p;
    pair_init(&p, 70);
    pair_append_mixed(&p, 80);
    store_set_dispatch_limit(p.c.store, limit);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    if (settled)
        world_run(&p.w, 1000);
    for (int32_t q = 0; q < WORLD_QUEUES; q++) {
        int64_t min;
        int64_t max;
        store_queue_range(p.w.store, WORLD_TOPIC, q, &min, &max);
        assert_true(max > 2);
        assert_int_equal(send_to_copy(&p.c, q), max);
        assert_int_equal(send_to_copy(&p.c, q), max + 1);
    }
    store_set_dispatch_limit(p.c.store, INT64_MAX);
    copy_settle(&p.c);
    copy_close(&p.c);
    copy_open(&p.c);
    copy_settle(&p.c);
    for (int32_t q = 0; q < WORLD_QUEUES; q++) {
        int64_t min;
        int64_t max;
        int64_t copied;
        store_queue_range(p.w.store, WORLD_TOPIC, q, &min, &max);
        store_queue_range(p.c.store, WORLD_TOPIC, q, &min, &copied);
        assert_int_equal(copied, max + 2);
    }
    pair_fini(&p);
}

static void a_copy_gives_out_the_next_offsets_when_it_becomes_master(void **state)
{
    (void)state;
    goes_on_as_master(INT64_MAX, true);
    goes_on_as_master(INT64_MAX, false);
    goes_on_as_master(0, true); /* nothing dispatched */
    goes_on_as_master(50000, true);
}

static void nothing_is_appended_behind_a_part_of_a_record(void **state)
{
    (void)state;
    struct pair p;
    struct master_send s = {.answered = false};
    char text[256];
    pair_init(&p, 71);
    world_append_ok(&p.w, 0, 100, 1);
    copy_feed(&p.c, p.w.store, 0, 50);
    struct record record = {.topic = (const uint8_t *)WORLD_TOPIC,
                            .topic_len = sizeof WORLD_TOPIC - 1};
    s.append.records = s.bytes;
    s.append.size_bytes = (uint32_t)record_encode(s.bytes, sizeof s.bytes, &record);
    s.append.count = 1;
    s.append.on_appended = on_master_appended;
    assert_int_equal(
        store_queue_ref(p.c.store, WORLD_TOPIC, sizeof WORLD_TOPIC - 1, 0, &s.append.queue),
        TERN_OK);
    store_append(p.c.store, &s.append);
    world_run(&p.w, 100);
    assert_true(s.answered);
    assert_int_equal(s.append.result, TERN_SERVICE_NOT_AVAILABLE);
    store_refusal_text(p.c.store, s.append.result, text, sizeof text);
    assert_non_null(strstr(text, "inside a record"));
    store_queue_unref(s.append.queue);
    struct store_cut cut;
    assert_int_equal(store_cut(p.c.store, INT64_MAX, false, &cut, &p.c.err), TERN_OK);
    assert_int_equal(cut.cut_bytes, 50);
    assert_int_equal(send_to_copy(&p.c, 0), 0);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_that_stops_at_any_moment_becomes_the_same),
        cmocka_unit_test(each_failing_call_leaves_a_copy_that_goes_on),
        cmocka_unit_test(a_copy_gives_out_the_next_offsets_when_it_becomes_master),
        cmocka_unit_test(nothing_is_appended_behind_a_part_of_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
