/* Flushing: group commit, the interval, failed syncs, flush mark and checkpoint. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "broker/store/commit_log_internal.h"
#include "broker/store/flush_mark.h"
#include "broker/store/flusher.h"
#include "tests/unit/store/store_world.h"

static int setup(void **state)
{
    struct world *w = malloc(sizeof *w);
    assert_non_null(w);
    world_init(w, 3);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    free(*state);
    return 0;
}

static void sync_flush_publishes_what_was_appended(void **state)
{
    struct world *w = *state;
    world_open(w);
    struct sent *s = world_append(w, 0, 100, 1);
    assert_true(s->answered);
    assert_false(s->acked);
    assert_int_equal(commit_log_flushed(w->store->log), 0);
    world_run(w, 0);
    assert_true(s->acked);
    assert_int_equal(commit_log_flushed(w->store->log), s->append.end_phys_off);
    assert_int_equal(w->flushed, s->append.end_phys_off);
}

static void one_sync_serves_all_that_wait(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_run(w, 10);
    for (int i = 0; i < 20; i++)
        world_append(w, i % WORLD_QUEUES, 100, 1);
    struct store_status status;
    store_status(w->store, &status);
    assert_int_equal(status.flushes, 0);
    assert_true(status.unflushed_since_ms >= SIM_START_WALL_MS);
    world_run(w, 0);
    store_status(w->store, &status);
    assert_int_equal(status.flushes, 1);
    assert_int_equal(status.unflushed_since_ms, 0);
    for (size_t i = 0; i < w->sent_count; i++)
        assert_true(w->sent[i]->acked);
}

static void async_flush_waits_for_its_interval(void **state)
{
    struct world *w = *state;
    w->options.sync_flush = false;
    w->options.flush_interval_ms = 500;
    world_open(w);
    world_run(w, 100);
    world_append(w, 0, 100, 1);
    world_run(w, 400);
    world_append(w, 0, 100, 1);
    world_run(w, 99);
    assert_int_equal(w->flushed, 0);
    world_run(w, 2);
    assert_int_equal(w->flushed, commit_log_end(w->store->log));
}

/* ST-07: one failed sync, the next would succeed: never acknowledged, read-only until the next
 * start. */
static void failed_sync_latches_and_is_not_retried(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 1);
    int64_t flushed = commit_log_flushed(w->store->log);
    struct sim_fs_fault fault = {
        .op = SIM_FS_SYNC, .path_part = "commitlog", .nth = 1, .errno_value = EIO};
    sim_fs_fail(w->sim.fs, &fault);
    struct sent *lost = world_append(w, 0, 100, 1);
    world_run(w, 2000);
    assert_int_equal(lost->append.result, TERN_OK);
    assert_false(lost->acked);
    assert_int_equal(w->latched, 1);
    assert_int_equal(w->latch_code, TERN_IO);
    assert_non_null(strstr(w->latch_text, "commitlog/"));
    struct sent *refused = world_append(w, 0, 100, 1);
    world_run(w, 5000);
    assert_int_equal(refused->append.result, TERN_SERVICE_NOT_AVAILABLE);
    assert_int_equal(commit_log_flushed(w->store->log), flushed);
    struct store_status status;
    store_status(w->store, &status);
    assert_true(status.latched);
    assert_int_not_equal(store_close(w->store, &w->err), TERN_OK);
    w->store = NULL;
    assert_true(fs_exists(w->sim.env.fs, WORLD_ROOT "/abort"));
    world_power_loss(w, SIM_TORN_NONE);
    world_open(w);
    assert_int_equal(w->recovery.log_end, flushed);
    world_append_ok(w, 0, 100, 1);
    world_check(w);
}

static void failed_directory_sync_latches(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, WORLD_SEGMENT_BYTES - 1000, 1);
    struct sim_fs_fault fault = {
        .op = SIM_FS_SYNC_DIR, .path_part = "commitlog", .nth = 1, .errno_value = EIO};
    sim_fs_fail(w->sim.fs, &fault);
    struct sent *s = world_append(w, 0, 2000, 1);
    world_run(w, 100);
    assert_int_equal(s->append.result, TERN_OK);
    assert_false(s->acked);
    assert_int_equal(w->latched, 1);
}

/* ---- nothing to do ---- */

static void on_flush(void *arg)
{
    (void)arg;
}

static void idle_flusher_never_wakes(void **state)
{
    struct world *w = *state;
    struct commit_log *log;
    struct flush_mark *mark;
    struct flusher *flusher;
    struct gate gate;
    const struct env *env = &w->sim.env;
    gate_init(&gate, env, &(struct store_observer){0});
    assert_int_equal(fs_mkdirs(env->fs, "/x/commitlog"), TERN_OK);
    assert_int_equal(commit_log_open(env, "/x", WORLD_SEGMENT_BYTES, false, &log, NULL), TERN_OK);
    assert_int_equal(flush_mark_open(env, "/x/flushed", &mark, NULL), TERN_OK);
    struct flusher_options options = {
        .log = log, .mark = mark, .gate = &gate, .interval_ms = 500, .on_flush = on_flush};
    assert_int_equal(flusher_create(env, &options, &flusher), TERN_OK);
    assert_true(sim_run_until_idle(w->sim.sched, w->sim.clock.now_ns + 1));
    assert_int_equal(flusher_finish(flusher, NULL), TERN_OK);
    flusher_destroy(flusher);
    flush_mark_close(mark);
    commit_log_close(log);
}

/* ---- mark and checkpoint ---- */

static void flush_mark_survives_a_torn_slot(void **state)
{
    struct world *w = *state;
    const struct env *env = &w->sim.env;
    struct flush_mark *mark;
    struct flush_mark_value value;
    assert_int_equal(flush_mark_read(env, "/mark", &value, NULL), TERN_OK);
    assert_false(value.known);
    assert_int_equal(flush_mark_open(env, "/mark", &mark, NULL), TERN_OK);
    flush_mark_set_indexed(mark, 77);
    for (int64_t f = 100; f <= 500; f += 100)
        assert_int_equal(flush_mark_set(mark, f), TERN_OK);
    assert_int_equal(flush_mark_sync(mark), TERN_OK);
    flush_mark_close(mark);
    assert_int_equal(flush_mark_read(env, "/mark", &value, NULL), TERN_OK);
    assert_true(value.known);
    assert_int_equal(value.flushed, 500);
    assert_int_equal(value.indexed, 77);
    struct file *file;
    assert_int_equal(fs_open(env->fs, "/mark", FS_READ | FS_WRITE, &file), TERN_OK);
    assert_int_equal(file_pwrite(file, "x", 1, 4096 + 20), TERN_OK); /* sequence 5 is slot 1 */
    assert_int_equal(flush_mark_read(env, "/mark", &value, NULL), TERN_OK);
    assert_int_equal(value.flushed, 400);
    assert_int_equal(file_pwrite(file, "x", 1, 20), TERN_OK);
    assert_int_equal(flush_mark_read(env, "/mark", &value, NULL), TERN_OK);
    assert_false(value.known);
    file_close(file);
}

static struct checkpoint read_checkpoint(struct world *w)
{
    struct checkpoint checkpoint;
    assert_int_equal(checkpoint_read(&w->sim.env, WORLD_ROOT "/checkpoint", &checkpoint, NULL),
                     TERN_OK);
    return checkpoint;
}

/* Facts 1.12: times of what was flushed and dispatched, written each minute and at the end. */
static void checkpoint_says_what_is_on_disk(void **state)
{
    struct world *w = *state;
    world_open(w);
    struct sent *first = world_append(w, 0, 100, 1);
    world_run(w, 50000);
    assert_int_equal(read_checkpoint(w).logics_ms, 0);
    world_run(w, 11000);
    struct checkpoint checkpoint = read_checkpoint(w);
    assert_int_equal(checkpoint.physic_ms, first->append.store_ms);
    assert_int_equal(checkpoint.logics_ms, first->append.store_ms);
    assert_int_equal(checkpoint_min_ms(&checkpoint), first->append.store_ms - 3000);
    struct sent *second = world_append(w, 0, 100, 1);
    world_wait(w, second);
    world_close(w);
    checkpoint = read_checkpoint(w);
    assert_int_equal(checkpoint.physic_ms, second->append.store_ms);
    assert_int_equal(checkpoint.logics_ms, second->append.store_ms);
    struct fs_stat stat;
    assert_int_equal(fs_stat(w->sim.env.fs, WORLD_ROOT "/checkpoint", &stat), TERN_OK);
    assert_int_equal(stat.size_bytes, CHECKPOINT_BYTES);
}

/* Consume queues that find no room refuse appends until there is some; the store does not latch. */
static void full_disk_for_queues_refuses_and_resumes(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 1);
    struct sim_fs_fault fault = {.op = SIM_FS_PWRITEV,
                                 .path_part = "consumequeue",
                                 .nth = 1,
                                 .errno_value = ENOSPC,
                                 .forever = true};
    sim_fs_fail(w->sim.fs, &fault);
    world_append_ok(w, 0, 100, 1);
    world_run(w, 1100);
    struct sent *refused = world_append(w, 0, 100, 1);
    world_run(w, 10);
    assert_int_equal(refused->append.result, TERN_NO_SPACE);
    char text[512];
    store_refusal_text(w->store, TERN_NO_SPACE, text, sizeof text);
    assert_non_null(strstr(text, "consumequeue"));
    sim_fs_fail_clear(w->sim.fs);
    world_run(w, 1100);
    world_append_ok(w, 0, 100, 1);
    assert_int_equal(w->latched, 0);
    world_check(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(sync_flush_publishes_what_was_appended),
        T(one_sync_serves_all_that_wait),
        T(async_flush_waits_for_its_interval),
        T(failed_sync_latches_and_is_not_retried),
        T(failed_directory_sync_latches),
        T(idle_flusher_never_wakes),
        T(flush_mark_survives_a_torn_slot),
        T(checkpoint_says_what_is_on_disk),
        T(full_disk_for_queues_refuses_and_resumes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
