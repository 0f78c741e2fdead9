/*
 * How far the log is: flushing on demand, the ends of queues at a position, the limit of
 * dispatching.
 */
#include "tests/unit/store/pair_world.h"

#include <errno.h>

/* ---- flushing ---- */

static void flush_brings_everything_to_the_disk(void **state)
{
    (void)state;
    struct pair p;
    world_init(&p.w, 80);
    p.w.options.sync_flush = false;
    p.w.options.flush_interval_ms = 100000;
    copy_init(&p.c, &p.w);
    world_open(&p.w);
    copy_open(&p.c);
    pair_append_mixed(&p, 30);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    struct store_positions at;
    store_positions(p.c.store, &at);
    assert_true(at.flushed < at.appended);
    assert_int_equal(store_flush(p.c.store, &p.c.err), TERN_OK);
    store_positions(p.c.store, &at);
    assert_int_equal(at.flushed, at.appended);
    copy_power_loss(&p.c, SIM_TORN_NONE);
    copy_open(&p.c);
    assert_int_equal(copy_end(&p.c), at.appended);
    pair_fini(&p);
}

static void a_failed_flush_is_told(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p, 81);
    world_append_ok(&p.w, 0, 100, 1);
    copy_feed(&p.c, p.w.store, 0, INT64_MAX);
    sim_fs_fail(p.c.fs, &(struct sim_fs_fault){.op = SIM_FS_SYNC, .nth = 1, .errno_value = EIO});
    assert_int_equal(store_flush(p.c.store, &p.c.err), TERN_IO);
    assert_int_equal(store_flush(p.c.store, &p.c.err), TERN_IO);
    assert_int_equal(p.c.latched, 1);
    sim_fs_fail_clear(p.c.fs);
    pair_fini(&p);
}

static bool is_flushed(void *arg)
{
    struct store_positions at;
    store_positions(arg, &at);
    return at.flushed == at.appended;
}

static void sync_flush_can_be_turned_on(void **state)
{
    (void)state;
    struct pair p;
    world_init(&p.w, 82);
    p.w.options.sync_flush = false;
    p.w.options.flush_interval_ms = 100000;
    copy_init(&p.c, &p.w);
    world_open(&p.w);
    copy_open(&p.c);
    world_append_ok(&p.w, 0, 100, 1);
    world_run(&p.w, 1000);
    assert_false(is_flushed(p.w.store));
    store_set_sync_flush(p.w.store, true);
    world_run(&p.w, 1);
    assert_true(is_flushed(p.w.store));
    world_append_ok(&p.w, 0, 100, 1);
    world_run(&p.w, 1);
    assert_true(is_flushed(p.w.store));
    pair_fini(&p);
}

/* ---- ends of queues ---- */

static void a_queues_end_at_a_position_is_the_first_offset_behind_it(void **state)
{
    (void)state;
    struct pair p;
    int64_t offset = -1;
    pair_init(&p, 90);
    for (int i = 0; i < 300; i++)
        world_append_ok(&p.w, i % 2, 50, 1);
    int64_t size = (int64_t)world_record_bytes(50);
    for (size_t i = 0; i < p.w.sent_count; i++) {
        int64_t at = p.w.sent[i]->append.first_phys_off;
        for (int32_t q = 0; q < 2; q++) {
            int64_t n = (int64_t)(i + 1 - (size_t)q) / 2; /* of queue q before record i */
            assert_int_equal(store_queue_end_at(p.w.store, WORLD_TOPIC, q, at, &offset), TERN_OK);
            assert_int_equal(offset, n);
        }
        assert_int_equal(
            store_queue_end_at(p.w.store, WORLD_TOPIC, (int32_t)i % 2, at + size, &offset),
            TERN_OK);
        assert_int_equal(offset, (int64_t)i / 2 + 1);
    }
    assert_int_equal(store_queue_end_at(p.w.store, WORLD_TOPIC, 0, INT64_MAX, &offset), TERN_OK);
    assert_int_equal(offset, 150);
    assert_int_equal(store_queue_end_at(p.w.store, WORLD_TOPIC, 0, 0, &offset), TERN_OK);
    assert_int_equal(offset, 0);
    assert_int_equal(store_queue_end_at(p.w.store, "None", 0, 0, &offset), TERN_OK);
    assert_int_equal(offset, 0);
    pair_fini(&p);
}

/* ---- the dispatch limit ---- */

static int64_t dispatched(const struct world *w)
{
    struct store_positions at;
    store_positions(w->store, &at);
    return at.dispatched;
}

static unsigned run_what_is_due(struct world *w)
{
    unsigned count = 0;
    while (sim_run_one(w->sim.sched))
        count++;
    return count;
}

/* An append behind the limit wakes nobody, wherever in a record the limit lies. */
static void a_limit_holds_exactly_and_costs_no_wake_ups(void **state)
{
    (void)state;
    struct pair p;
    world_init(&p.w, 95);
    p.w.options.sync_flush = false;
    p.w.options.flush_interval_ms = 100000;
    p.w.options.segment_bytes = 1 << 20; /* the next one is not prepared meanwhile */
    copy_init(&p.c, &p.w);
    world_open(&p.w);
    int64_t size = (int64_t)world_record_bytes(100);
    world_append(&p.w, 0, 100, 1);
    world_run(&p.w, 100);
    for (int64_t inside = 0; inside < size; inside += size / 2) {
        int64_t before = dispatched(&p.w);
        store_set_dispatch_limit(p.w.store, before + inside);
        for (int i = 0; i < 20; i++) {
            world_append(&p.w, 0, 100, 1);
            unsigned steps = run_what_is_due(&p.w);
            assert_true(i == 0 || steps == 0); /* the first one may wake whoever sleeps */
            assert_int_equal(dispatched(&p.w), before);
        }
        store_set_dispatch_limit(p.w.store, before + 3 * size + inside);
        run_what_is_due(&p.w);
        assert_int_equal(dispatched(&p.w), before + 3 * size);
        /* A limit that is ahead lets offers through at once. */
        store_set_dispatch_limit(p.w.store, commit_log_end(p.w.store->log) + size);
        run_what_is_due(&p.w);
        world_append(&p.w, 0, 100, 1);
        assert_int_equal(dispatched(&p.w), commit_log_end(p.w.store->log));
        store_set_dispatch_limit(p.w.store, commit_log_end(p.w.store->log));
        assert_int_equal(run_what_is_due(&p.w), 0); /* caught up: nobody is woken */
    }
    pair_fini(&p);
}

static int64_t ends_heard;

static void on_master_end(void *arg, int64_t end)
{
    struct world *w = arg;
    assert_true(end > ends_heard);
    ends_heard = end;
    for (size_t i = 0; i < w->sent_count; i++) /* before the senders are answered */
        assert_true(!w->sent[i]->answered || w->sent[i]->append.end_phys_off < end);
}

static void the_end_is_told_before_the_answers(void **state)
{
    (void)state;
    struct world w;
    ends_heard = 0;
    world_init(&w, 96);
    w.options.observer.on_end = on_master_end;
    world_open(&w);
    for (int i = 0; i < 20; i++)
        world_append_ok(&w, 0, 2000, 1);
    assert_int_equal(ends_heard, commit_log_end(w.store->log));
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flush_brings_everything_to_the_disk),
        cmocka_unit_test(a_failed_flush_is_told),
        cmocka_unit_test(sync_flush_can_be_turned_on),
        cmocka_unit_test(a_queues_end_at_a_position_is_the_first_offset_behind_it),
        cmocka_unit_test(a_limit_holds_exactly_and_costs_no_wake_ups),
        cmocka_unit_test(the_end_is_told_before_the_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
