/*
 * Crashes at any moment: power cut at random file calls, and every single file call failing once.
 * What was acknowledged under SYNC_FLUSH is there afterwards, nothing is made up, queues agree with
 * the log.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "broker/store/commit_log_internal.h"
#include "tests/unit/store/store_world.h"

enum { ROUNDS = 200, GENERATIONS = 4, APPENDS = 60 };

struct cut {
    unsigned calls_left;
    bool done;
};

/* Counts calls; from the chosen one on the power is off. */
static int on_call(void *arg, enum sim_fs_op op, const char *path)
{
    struct cut *cut = arg;
    (void)op;
    (void)path;
    if (!cut->done && cut->calls_left-- == 0)
        cut->done = true;
    return cut->done ? EIO : 0;
}

/* Random appends, some waited for, until the power goes or they are all made. */
static void append_some(struct world *w, const struct cut *cut)
{
    for (int i = 0; i < APPENDS && !cut->done; i++) {
        size_t body = world_pick(w, 4) == 0 ? world_pick(w, 4000) : world_pick(w, 400);
        uint32_t count = world_pick(w, 3) == 0 ? 1 + world_pick(w, 5) : 1;
        if (count > 1 && body > 1500)
            body = 1500;
        uint32_t type = world_pick(w, 10) == 0 ? SYS_TX_PREPARED : 0;
        world_append_typed(w, (int32_t)world_pick(w, WORLD_QUEUES), body, count, type);
        if (world_pick(w, 3) == 0)
            world_run(w, world_pick(w, 3));
    }
    if (!cut->done && world_pick(w, 2) == 0) /* sometimes with a thorough round */
        world_run(w, world_pick(w, 8) == 0 ? 65000 : world_pick(w, 4000));
}

static void power_loss_rounds(bool sync_flush, enum sim_torn most)
{
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        struct world w;
        world_init(&w, seed);
        w.options.sync_flush = sync_flush;
        w.keys = seed % 4 == 0;
        for (int g = 0; g < GENERATIONS; g++) {
            struct cut cut = {.calls_left = 1 + world_pick(&w, g == 0 ? 800 : 400)};
            sim_fs_set_hook(w.sim.fs, on_call, &cut);
            enum tern_code code = world_try_open(&w);
            assert_true(code == TERN_OK || cut.done);
            if (!code)
                append_some(&w, &cut);
            cut.done = true;
            world_power_loss(&w, (enum sim_torn)world_pick(&w, (uint32_t)most + 1));
            if (world_pick(&w, 3) == 0)
                continue; /* the next generation meets it without a look in between */
            code = world_try_open(&w);
            if (code)
                fail_msg("seed %u generation %d: %s", (unsigned)seed, g, w.err.text);
            world_check(&w);
            if (world_pick(&w, 2) == 0)
                world_close(&w);
            else
                world_process_crash(&w);
        }
        world_open(&w);
        world_check(&w);
        world_append_ok(&w, 0, 100, 3);
        world_check(&w);
        world_close(&w);
        assert_int_equal(sim_fs_open_handles(w.sim.fs), 0);
        world_fini(&w);
    }
}

/* ST-01, ST-08: segments of 16 KiB, so that every cut is near a roll. */
static void power_loss_with_sync_flush_loses_nothing_acknowledged(void **state)
{
    (void)state;
    power_loss_rounds(true, SIM_TORN_SECTORS);
}

/* ST-08: the window of ASYNC_FLUSH may go, as pages in any order; the store always opens again. */
static void power_loss_with_async_flush_always_recovers(void **state)
{
    (void)state;
    power_loss_rounds(false, SIM_TORN_SECTORS);
}

/* ST-08: what was flushed before the window stays. */
static void async_flush_loses_only_its_interval(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world w;
        world_init(&w, seed);
        w.options.sync_flush = false;
        world_open(&w);
        for (int i = 0; i < 50; i++) {
            world_append(&w, i % WORLD_QUEUES, 300, 1);
            world_run(&w, 50);
        }
        int64_t flushed = commit_log_flushed(w.store->log);
        for (size_t i = 0; i < w.sent_count; i++)
            w.sent[i]->acked = w.sent[i]->append.end_phys_off <= flushed;
        /* Half a second and one step of the loop above. */
        assert_true(w.sent[w.sent_count - 12]->acked);
        world_power_loss(&w, SIM_TORN_PAGES);
        world_open(&w);
        assert_true(commit_log_end(w.store->log) >= flushed);
        world_check(&w);
        world_fini(&w);
    }
}

/* Written by a process that was killed before it synced, over several files of each queue. */
static void begin_after_a_kill(struct world *w, uint64_t seed)
{
    world_init(w, seed);
    w->options.sync_flush = true;
    w->options.queue_file_bytes = 200 * QUEUE_UNIT_BYTES;
    world_open(w);
    for (int i = 0; i < 100; i++)
        world_append_ok(w, i % WORLD_QUEUES, 100, 1);
    world_run(w, 3000); /* the tails are written */
    world_process_crash(w);
    world_open(w);
}

static void queues_of_a_killed_process_are_synced_by_a_clean_stop(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct world w;
        begin_after_a_kill(&w, seed);
        world_close(&w);
        world_power_loss(&w, (enum sim_torn)(seed % 4));
        world_open(&w);
        world_check(&w);
        world_close(&w);
        world_fini(&w);
    }
}

static void queues_of_a_killed_process_are_synced_before_the_checkpoint(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct world w;
        begin_after_a_kill(&w, seed);
        world_append_ok(&w, 0, 100, 1);
        world_run(&w, 65000); /* with a thorough round */
        world_append_ok(&w, 1, 100, 1);
        world_power_loss(&w, (enum sim_torn)(seed % 4));
        world_open(&w);
        world_check(&w);
        world_close(&w);
        world_fini(&w);
    }
}

/* ---- every call fails once ---- */

/* A life of a store under a fault; false when the fault's number was never reached. */
static bool live_with_fault(unsigned nth, int errno_value)
{
    struct world w;
    world_init(&w, 7);
    struct sim_fs_fault fault = {.op = SIM_FS_ANY, .nth = nth, .errno_value = errno_value};
    sim_fs_fail(w.sim.fs, &fault);
    enum tern_code code = world_try_open(&w);
    if (!code) {
        for (int i = 0; i < 14; i++) {
            world_append(&w, i % WORLD_QUEUES, i % 5 == 4 ? 6000 : 900, 1);
            world_run(&w, 20);
        }
        world_run(&w, 1500);
        for (size_t i = 0; i < w.sent_count; i++)
            assert_true(w.sent[i]->answered);
        code = store_close(w.store, &w.err);
        w.store = NULL;
    }
    bool reached = sim_fs_calls(w.sim.fs, SIM_FS_ANY) >= nth;
    sim_fs_fail_clear(w.sim.fs);
    assert_int_equal(sim_task_count(w.sim.sched), 0);
    assert_int_equal(sim_fs_open_handles(w.sim.fs), 0);
    if (code) /* what could not be made durable is as after a power loss */
        world_power_loss(&w, SIM_TORN_PAGES);
    world_open(&w);
    world_check(&w);
    world_append_ok(&w, 0, 100, 1);
    world_check(&w);
    world_close(&w);
    world_fini(&w);
    return reached;
}

static void each_failing_call_loses_nothing_acknowledged(void **state)
{
    (void)state;
    unsigned nth = 1;
    while (live_with_fault(nth, EIO))
        nth++;
    assert_true(nth > 100);
}

static void each_full_disk_loses_nothing_acknowledged(void **state)
{
    (void)state;
    unsigned nth = 1;
    while (live_with_fault(nth, ENOSPC))
        nth++;
    assert_true(nth > 100);
}

/* ---- a sync that failed for want of room ---- */

/*
 * ST-07 for the derived files: the kernel has dropped what it could not write, so a second sync
 * that succeeds proves nothing. The store latches, and the next start builds from the log.
 */
static void late_full_disk_of(const char *path_part, unsigned nth)
{
    struct world w;
    world_init(&w, 3);
    w.keys = true;
    world_open(&w);
    for (int i = 0; i < 20; i++)
        world_append_ok(&w, i % WORLD_QUEUES, 300, 1);
    sim_fs_fail(w.sim.fs,
                &(struct sim_fs_fault){
                    .op = SIM_FS_SYNC, .path_part = path_part, .nth = nth, .errno_value = ENOSPC});
    world_run(&w, 125000);
    assert_int_equal(w.latched, 1);
    sim_fs_fail_clear(w.sim.fs);
    world_power_loss(&w, SIM_TORN_NONE);
    world_open(&w);
    world_check(&w);
    world_fini(&w);
}

static void late_full_disk_of_a_queue_latches(void **state)
{
    (void)state;
    late_full_disk_of("/consumequeue/", 1);
}

static void late_full_disk_of_the_index_latches(void **state)
{
    (void)state;
    late_full_disk_of("/index/", 2); /* the first makes a new file, and may be tried again */
}

/* ST-10: the gate does not open and close while the queues' disk stays full. */
static void full_queues_keep_the_gate_closed_until_there_is_room(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 4);
    world_open(&w);
    world_append_ok(&w, 0, 300, 1);
    sim_fs_fail(w.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_PWRITEV,
                                                 .path_part = "/consumequeue/",
                                                 .nth = 1,
                                                 .errno_value = ENOSPC,
                                                 .forever = true});
    world_run(&w, 1100);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(gate_check(&w.store->gate), TERN_NO_SPACE);
        world_run(&w, 100);
    }
    struct store_status status;
    store_status(w.store, &status);
    assert_true(status.disk_full);
    sim_fs_fail_clear(w.sim.fs);
    world_run(&w, 1100);
    assert_int_equal(gate_check(&w.store->gate), TERN_OK);
    store_status(w.store, &status);
    assert_false(status.disk_full);
    world_append_ok(&w, 0, 300, 1);
    world_check(&w);
    world_fini(&w);
}

/* A segment that cannot be made is a full disk, whatever the ratio says. */
static void no_room_for_the_next_segment_counts_as_a_full_disk(void **state)
{
    (void)state;
    struct world w;
    struct store_status status;
    world_init(&w, 6);
    world_open(&w);
    sim_fs_fail(w.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_OPEN,
                                                 .path_part = "/prepared/",
                                                 .nth = 1,
                                                 .errno_value = ENOSPC,
                                                 .forever = true});
    for (int i = 0; i < 4; i++)
        world_append_ok(&w, 0, 3000, 1); /* more than half of it */
    world_run(&w, 2000);
    store_status(w.store, &status);
    assert_true(status.disk_full);
    assert_int_equal(gate_check(&w.store->gate), TERN_OK);
    sim_fs_fail_clear(w.sim.fs);
    world_run(&w, 2000);
    store_status(w.store, &status);
    assert_false(status.disk_full);
    world_check(&w);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_loss_with_sync_flush_loses_nothing_acknowledged),
        cmocka_unit_test(power_loss_with_async_flush_always_recovers),
        cmocka_unit_test(async_flush_loses_only_its_interval),
        cmocka_unit_test(queues_of_a_killed_process_are_synced_by_a_clean_stop),
        cmocka_unit_test(queues_of_a_killed_process_are_synced_before_the_checkpoint),
        cmocka_unit_test(each_failing_call_loses_nothing_acknowledged),
        cmocka_unit_test(each_full_disk_loses_nothing_acknowledged),
        cmocka_unit_test(late_full_disk_of_a_queue_latches),
        cmocka_unit_test(late_full_disk_of_the_index_latches),
        cmocka_unit_test(full_queues_keep_the_gate_closed_until_there_is_room),
        cmocka_unit_test(no_room_for_the_next_segment_counts_as_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
