/*
 * A process that was killed on a full disk, and its next start, which finds no room either: it
 * serves everything, refuses appends, and goes on by itself when there is room.
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
#include "broker/store/consume_queue_internal.h"
#include "tests/unit/store/store_world.h"

enum { USUAL_SEEDS = 8, GENERATIONS = 4, PAGE_BYTES = 4096, RECORDS = 1200, HOUR_MS = 3600 * 1000 };

struct seeds {
    uint64_t first, count;
};

/* TERN_SIM_SEEDS=first:count runs others than the usual ones. */
static struct seeds seeds_wanted(void)
{
    struct seeds seeds = {1, USUAL_SEEDS};
    const char *text = getenv("TERN_SIM_SEEDS");
    if (text)
        assert_int_equal(sscanf(text, "%" SCNu64 ":%" SCNu64, &seeds.first, &seeds.count), 2);
    return seeds;
}

static void no_room_for_queues(struct world *w)
{
    sim_fs_fail(w->sim.fs, &(struct sim_fs_fault){.op = SIM_FS_PWRITEV,
                                                  .path_part = "/consumequeue/",
                                                  .nth = 1,
                                                  .errno_value = ENOSPC,
                                                  .forever = true});
}

static enum tern_code append_result(struct world *w)
{
    const struct sent *sent = world_append(w, 0, 100, 1);
    world_run(w, 100);
    assert_true(sent->answered);
    return sent->append.result;
}

/* RECORDS of one queue, most of them not in it on the disk, and no room for that. */
static void die_undispatched(struct world *w, bool power)
{
    world_init(w, 5);
    w->options.queue_file_bytes = 200 * QUEUE_UNIT_BYTES;
    int64_t interval_ms = w->options.queue_flush_interval_ms;
    w->options.queue_flush_interval_ms = 60000; /* it is not noticed before */
    world_open(w);
    for (int i = 0; i < 10; i++)
        world_append_ok(w, 0, 100, 40);
    no_room_for_queues(w);
    struct sent *last = NULL;
    for (int i = 0; i < 20; i++)
        last = world_append(w, 0, 100, 40);
    world_wait(w, last);
    w->options.queue_flush_interval_ms = interval_ms;
    assert_true(dispatcher_position(w->store->dispatcher) < commit_log_end(w->store->log));
    if (power)
        world_power_loss(w, SIM_TORN_NONE);
    else
        world_process_crash(w);
    no_room_for_queues(w);
}

static void a_start_on_a_full_disk_serves_all_and_refuses_until_there_is_room(void **state)
{
    (void)state;
    for (int power = 0; power < 2; power++) {
        struct world w;
        struct store_status status;
        int64_t min, max;
        die_undispatched(&w, power != 0);
        for (int start = 0; start < 3; start++) { /* killed again, started again */
            world_open(&w);
            world_check(&w);
            store_queue_range(w.store, WORLD_TOPIC, 0, &min, &max);
            assert_int_equal(max, RECORDS);
            assert_int_equal(gate_check(&w.store->gate), TERN_NO_SPACE); /* from the beginning */
            assert_int_equal(append_result(&w), TERN_NO_SPACE);
            world_run(&w, 70000);
            assert_int_equal(append_result(&w), TERN_NO_SPACE);
            store_status(w.store, &status);
            assert_true(status.disk_full);
            assert_int_equal(status.dispatched, status.appended);
            world_check(&w);
            world_process_crash(&w);
            no_room_for_queues(&w);
        }
        world_open(&w);
        sim_fs_fail_clear(w.sim.fs);
        world_run(&w, 1100);
        world_append_ok(&w, 0, 100, 1);
        store_queue_range(w.store, WORLD_TOPIC, 0, &min, &max);
        assert_int_equal(max, RECORDS + 1);
        world_run(&w, 65000);
        world_power_loss(&w, SIM_TORN_NONE);
        world_open(&w);
        world_check(&w);
        world_close(&w);
        world_fini(&w);
    }
}

static void a_stop_on_the_full_disk_is_not_clean_and_loses_nothing(void **state)
{
    (void)state;
    struct world w;
    die_undispatched(&w, false);
    world_open(&w);
    assert_int_equal(store_close(w.store, &w.err), TERN_NO_SPACE);
    w.store = NULL;
    world_power_loss(&w, SIM_TORN_PAGES);
    no_room_for_queues(&w);
    world_open(&w);
    assert_false(w.recovery.clean);
    world_check(&w);
    sim_fs_fail_clear(w.sim.fs);
    world_close(&w);
    world_open(&w);
    world_check(&w);
    world_fini(&w);
}

/* Expiry does not wait for room in the queues, so what it takes may never have been in their files.
 */
static void units_that_expired_before_they_were_written_do_not_stop_a_start(void **state)
{
    (void)state;
    struct world w;
    int64_t min, max;
    die_undispatched(&w, false);
    world_open(&w);
    sim_clock_set_wall(&w.sim.clock, SIM_START_WALL_MS + 80 * (int64_t)HOUR_MS);
    assert_true(store_expire_now(w.store) > 2);
    assert_int_equal(w.latched, 0);
    world_check(&w);
    world_process_crash(&w);
    world_open(&w); /* what expired has made room */
    world_check(&w);
    store_queue_range(w.store, WORLD_TOPIC, 0, &min, &max);
    assert_true(min > 200);
    assert_int_equal(max, RECORDS);
    world_run(&w, 1100);
    world_append_ok(&w, 0, 100, 1);
    world_check(&w);
    world_close(&w);
    world_open(&w);
    world_check(&w);
    world_fini(&w);
}

/* ---- at any moment ---- */

struct cut {
    unsigned calls_left;
    bool full, done;
};

/* From the chosen call on the power is off; until then queues cannot be written when it is full. */
static int on_call(void *arg, enum sim_fs_op op, const char *path)
{
    struct cut *cut = arg;
    if (!cut->done && cut->calls_left-- == 0)
        cut->done = true;
    if (cut->done)
        return EIO;
    bool grows = op == SIM_FS_PWRITEV || op == SIM_FS_MKDIR;
    return cut->full && grows && strstr(path, "/consumequeue/") ? ENOSPC : 0;
}

static void append_some(struct world *w, const struct cut *cut)
{
    for (uint32_t i = 5 + world_pick(w, 30); i > 0 && !cut->done; i--) {
        world_append(w, (int32_t)world_pick(w, WORLD_QUEUES), world_pick(w, 60),
                     1 + world_pick(w, 80));
        if (world_pick(w, 3) == 0)
            world_run(w, world_pick(w, 3));
    }
    if (!cut->done && world_pick(w, 2) == 0)
        world_run(w, world_pick(w, 8) == 0 ? 65000 : world_pick(w, 4000));
}

static void die_somehow(struct world *w, struct cut *cut)
{
    bool power = cut->done || world_pick(w, 2) == 0;
    cut->done = true;
    if (!power)
        world_process_crash(w);
    else
        world_power_loss(w, (enum sim_torn)world_pick(w, SIM_TORN_UNORDERED));
}

static void any_crash_around_a_full_disk_loses_nothing_acknowledged(void **state)
{
    (void)state;
    struct seeds seeds = seeds_wanted();
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct world w;
        world_init(&w, seed);
        w.options.sync_flush = seed % 3 != 0;
        w.options.queue_file_bytes = seed % 2 ? 200 * QUEUE_UNIT_BYTES : w.options.queue_file_bytes;
        for (int g = 0; g < GENERATIONS; g++) {
            struct cut cut = {.calls_left = 1 + world_pick(&w, 600), .full = world_pick(&w, 2)};
            sim_fs_set_hook(w.sim.fs, on_call, &cut);
            enum tern_code code = world_try_open(&w);
            if (code && !cut.done)
                fail_msg("seed %u generation %d: %s", (unsigned)seed, g, w.err.text);
            if (!code)
                append_some(&w, &cut);
            die_somehow(&w, &cut);
            cut = (struct cut){.calls_left = UINT32_MAX, .full = world_pick(&w, 2)};
            sim_fs_set_hook(w.sim.fs, on_call, &cut);
            code = world_try_open(&w);
            if (code)
                fail_msg("seed %u generation %d: %s", (unsigned)seed, g, w.err.text);
            world_check(&w);
            if (world_pick(&w, 2) == 0)
                world_run(&w, world_pick(&w, 3000));
            die_somehow(&w, &cut);
        }
        sim_fs_set_hook(w.sim.fs, NULL, NULL);
        world_open(&w);
        world_check(&w);
        world_append_ok(&w, 0, 100, 3);
        world_check(&w);
        world_close(&w);
        assert_int_equal(sim_fs_open_handles(w.sim.fs), 0);
        world_fini(&w);
    }
}

/* Leaves so many free pages. */
static void fill_disk(struct world *w, uint32_t pages)
{
    struct fs_space space;
    assert_int_equal(fs_space(w->sim.env.fs, WORLD_ROOT, &space), TERN_OK);
    sim_fs_set_capacity(w->sim.fs, space.total_bytes - space.free_bytes + pages * PAGE_BYTES);
}

/* Real pages: half a unit may find room, an index file may have none for the rest of its slots. */
static void a_process_killed_on_a_full_disk_always_starts_there(void **state)
{
    (void)state;
    struct seeds seeds = seeds_wanted();
    for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; seed++) {
        struct world w;
        struct cut never = {0};
        world_init(&w, seed);
        w.keys = true;
        w.options.disk_max_used_ratio = w.options.disk_clean_ratio = 1;
        w.options.disk_warning_ratio = 1;
        w.options.index_slots = 20000;
        w.options.index_entries = 200 + world_pick(&w, 2000);
        world_open(&w);
        append_some(&w, &never);
        for (int g = 0; g < GENERATIONS; g++) {
            fill_disk(&w, world_pick(&w, 8));
            append_some(&w, &never);
            world_process_crash(&w);
            if (world_pick(&w, 2) == 0)
                fill_disk(&w, world_pick(&w, 2));
            enum tern_code code = world_try_open(&w);
            if (code)
                fail_msg("seed %u generation %d: %s", (unsigned)seed, g, w.err.text);
            world_check(&w);
        }
        sim_fs_set_capacity(w.sim.fs, INT64_MAX / 2);
        world_run(&w, 3000);
        world_append_ok(&w, 0, 100, 3);
        world_check(&w);
        world_close(&w);
        world_open(&w);
        world_check(&w);
        world_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_on_a_full_disk_serves_all_and_refuses_until_there_is_room),
        cmocka_unit_test(a_stop_on_the_full_disk_is_not_clean_and_loses_nothing),
        cmocka_unit_test(units_that_expired_before_they_were_written_do_not_stop_a_start),
        cmocka_unit_test(any_crash_around_a_full_disk_loses_nothing_acknowledged),
        cmocka_unit_test(a_process_killed_on_a_full_disk_always_starts_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
