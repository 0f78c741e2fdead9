/* Retention by age, hour and disk fullness, on virtual time. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "broker/store/commit_log_internal.h"
#include "tests/unit/store/store_world.h"

enum { HOUR_MS = 3600 * 1000 };

static int setup(void **state)
{
    struct world *w = malloc(sizeof *w);
    assert_non_null(w);
    setenv("TZ", "UTC", 1);
    tzset();
    world_init(w, 4);
    w->options.retention_ms = 72 * (int64_t)HOUR_MS;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    free(*state);
    return 0;
}

static void fill_segments(struct world *w, int segments)
{
    int64_t end = commit_log_end(w->store->log) / WORLD_SEGMENT_BYTES + segments;
    while (commit_log_end(w->store->log) < end * WORLD_SEGMENT_BYTES + 500)
        world_append_ok(w, (int32_t)(w->sent_count % WORLD_QUEUES), 1800, 1);
    world_run(w, 100);
}

static void set_hour(struct world *w, int days, int hour)
{
    int64_t midnight = SIM_START_WALL_MS / (24 * (int64_t)HOUR_MS) * (24 * (int64_t)HOUR_MS);
    sim_clock_set_wall(&w->sim.clock, midnight + (days * 24 + hour) * (int64_t)HOUR_MS);
}

/* Used part of the simulated disk becomes about `ratio`, from now on. */
static void set_used(struct world *w, double ratio)
{
    struct fs_space space;
    assert_int_equal(fs_space(w->sim.env.fs, WORLD_ROOT, &space), TERN_OK);
    double used = (double)(space.total_bytes - space.free_bytes);
    sim_fs_set_capacity(w->sim.fs, (int64_t)(used / ratio));
}

static void old_segments_go_at_the_hour_and_not_before(void **state)
{
    struct world *w = *state;
    w->options.delete_hours = 1u << 4;
    set_hour(w, 0, 12);
    world_open(w);
    fill_segments(w, 3);
    set_hour(w, 3, 11); /* an hour too young */
    world_run(w, 11000);
    set_hour(w, 3, 13); /* old, but not the hour */
    world_run(w, 11000);
    assert_int_equal(commit_log_min(w->store->log), 0);
    set_hour(w, 4, 4);
    world_run(w, 11000);
    assert_int_equal(commit_log_min(w->store->log), 3 * WORLD_SEGMENT_BYTES);
    assert_int_equal(w->expired, 1);
    assert_int_equal(w->expired_min, 3 * WORLD_SEGMENT_BYTES);
    char path[FS_PATH_BYTES];
    world_segment_path(2 * WORLD_SEGMENT_BYTES, path);
    assert_false(fs_exists(w->sim.env.fs, path));
    struct store_status status;
    store_status(w->store, &status);
    assert_int_equal(status.segments_expired, 3);
    assert_true(status.earliest_ms > 0);
    /* The queues' minimums moved up with it and never restart at 0 (S-7). */
    int64_t min_off;
    int64_t max_off;
    store_queue_range(w->store, WORLD_TOPIC, 0, &min_off, &max_off);
    assert_true(min_off > 0);
    assert_true(max_off >= min_off);
    world_check(w);
    world_close(w);
    world_open(w);
    assert_int_equal(w->recovery.log_min, 3 * WORLD_SEGMENT_BYTES);
    world_append_ok(w, 0, 100, 1);
    world_check(w);
}

static void at_most_ten_segments_go_in_a_round_and_never_the_last(void **state)
{
    struct world *w = *state;
    w->options.delete_hours = 1u << 4;
    set_hour(w, 0, 12);
    world_open(w);
    fill_segments(w, 13);
    set_hour(w, 9, 4);
    world_run(w, 9900); /* the first round began within ten seconds after the hour */
    int64_t gone = commit_log_min(w->store->log) / WORLD_SEGMENT_BYTES;
    assert_true(gone <= 10);
    world_run(w, 2000);
    gone = commit_log_min(w->store->log) / WORLD_SEGMENT_BYTES;
    assert_int_equal(gone, 10);
    world_run(w, 60000);
    assert_int_equal(commit_log_min(w->store->log), 13 * WORLD_SEGMENT_BYTES);
    assert_int_equal(segments_count(&w->store->log->segments), 1);
    world_check(w);
}

static void expire_now_goes_by_age_at_any_hour(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 2);
    assert_int_equal(store_expire_now(w->store), 0);
    sim_clock_set_wall(&w->sim.clock, SIM_START_WALL_MS + 80 * (int64_t)HOUR_MS);
    assert_int_equal(store_expire_now(w->store), 2);
    assert_int_equal(commit_log_min(w->store->log), 2 * WORLD_SEGMENT_BYTES);
    world_check(w);
}

/* The log cannot say again which offsets an expired segment had given out. */
static void queues_of_an_expired_segment_survive_a_power_loss(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 1);
    world_run(w, 65000); /* a thorough round: the first units are synced, the next are not */
    fill_segments(w, 3);
    sim_clock_set_wall(&w->sim.clock, SIM_START_WALL_MS + 80 * (int64_t)HOUR_MS);
    assert_int_equal(store_expire_now(w->store), 4);
    world_power_loss(w, SIM_TORN_NONE);
    world_open(w);
    world_check(w);
    world_append_ok(w, 0, 100, 1);
    world_check(w);
}

/* ST-10: refused above the warning ratio, with ratio and key named; resumed by itself below. */
static void disk_above_warning_refuses_and_resumes(void **state)
{
    struct world *w = *state;
    world_open(w);
    world_append_ok(w, 0, 100, 1); /* the only segment: nothing to expire */
    world_run(w, 70000);
    set_used(w, 0.95);
    world_run(w, 11000);
    struct sent *refused = world_append(w, 0, 100, 1);
    world_run(w, 10);
    assert_int_equal(refused->append.result, TERN_NO_SPACE);
    char text[512];
    store_refusal_text(w->store, TERN_NO_SPACE, text, sizeof text);
    assert_non_null(strstr(text, WORLD_ROOT));
    assert_non_null(strstr(text, "0.9")); /* the ratio and the limit */
    assert_non_null(strstr(text, "diskSpaceWarningLevelRatio=0.90"));
    assert_non_null(strstr(text, "expired segments are removed above diskMaxUsedSpaceRatio=0.75"));
    assert_non_null(strstr(text, "whatever their age above diskSpaceCleanForciblyRatio=0.85"));
    struct store_status status;
    store_status(w->store, &status);
    assert_true(status.disk_full);
    assert_false(status.latched);
    struct store_limits limits = store_limits_of(&w->options);
    limits.disk_warning_ratio = 0.91;
    store_set_limits(w->store, &limits);
    store_refusal_text(w->store, TERN_NO_SPACE, text, sizeof text);
    assert_non_null(strstr(text, "diskSpaceWarningLevelRatio=0.91"));
    set_used(w, 0.5);
    world_run(w, 1100); /* while full it is looked at each second */
    world_append_ok(w, 0, 100, 1);
    assert_int_equal(sim_log_count(&w->sim, "store.disk_ok"), 1);
    world_check(w);
}

static void disk_above_clean_ratio_expires_whatever_the_age(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 4);
    world_run(w, 70000); /* all is written */
    set_used(w, 0.80);   /* by age only: nothing is old */
    world_run(w, 11000);
    assert_int_equal(commit_log_min(w->store->log), 0);
    set_used(w, 0.87);
    world_run(w, 12000);
    assert_true(commit_log_min(w->store->log) > 0);
    world_check(w);
    struct store_status status;
    store_status(w->store, &status);
    assert_true(status.disk_used_ratio < 0.87);
    world_append_ok(w, 0, 100, 1);
}

static void disk_above_max_used_expires_old_ones_at_any_hour(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 3);
    sim_clock_set_wall(&w->sim.clock, SIM_START_WALL_MS + 80 * (int64_t)HOUR_MS);
    world_run(w, 11000);
    assert_int_equal(commit_log_min(w->store->log), 0);
    set_used(w, 0.80);
    world_run(w, 22000);
    assert_int_equal(commit_log_min(w->store->log), 3 * WORLD_SEGMENT_BYTES);
}

static void what_is_not_dispatched_does_not_expire(void **state)
{
    struct world *w = *state;
    world_open(w);
    store_set_dispatch_limit(w->store, WORLD_SEGMENT_BYTES + 100);
    fill_segments(w, 3);
    sim_clock_set_wall(&w->sim.clock, SIM_START_WALL_MS + 80 * (int64_t)HOUR_MS);
    assert_int_equal(store_expire_now(w->store), 1);
    store_set_dispatch_limit(w->store, INT64_MAX);
    world_run(w, 10);
    assert_int_equal(store_expire_now(w->store), 2);
    world_check(w);
}

/* ST-09: a device without room refuses, reads go on, room makes sends resume. */
static void device_without_room_refuses_and_resumes(void **state)
{
    struct world *w = *state;
    w->options.disk_warning_ratio = 2; /* the ratio is not what is tested here */
    w->options.disk_clean_ratio = 2;
    w->options.disk_max_used_ratio = 2;
    sim_fs_set_capacity(w->sim.fs, 6 * WORLD_SEGMENT_BYTES);
    world_open(w);
    unsigned refused = 0;
    for (int i = 0; i < 100; i++) {
        struct sent *s = world_append(w, 0, 1800, 1);
        world_run(w, 20);
        assert_true(s->answered);
        refused += s->append.result != TERN_OK;
        assert_true(s->append.result == TERN_OK || s->append.result == TERN_NO_SPACE);
    }
    assert_true(refused > 20);
    char text[512];
    store_refusal_text(w->store, TERN_NO_SPACE, text, sizeof text);
    assert_non_null(strstr(text, "mappedFileSizeCommitLog"));
    world_check(w);
    sim_fs_set_capacity(w->sim.fs, 20 * WORLD_SEGMENT_BYTES);
    world_run(w, 2000);
    for (int i = 0; i < 20; i++)
        world_append_ok(w, 0, 1800, 1);
    assert_int_equal(w->latched, 0);
    world_check(w);
}

/* ST-13: a read of what goes meanwhile gives the right bytes or "not found". */
static void read_of_an_expired_segment_is_not_found(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 2);
    struct segment *held = segments_find(&w->store->log->segments, 100);
    sim_clock_set_wall(&w->sim.clock, SIM_START_WALL_MS + 80 * (int64_t)HOUR_MS);
    assert_int_equal(store_expire_now(w->store), 2);
    uint8_t bytes[64];
    size_t got;
    assert_int_equal(commit_log_read(w->store->log, 0, bytes, sizeof bytes, false, &got),
                     TERN_NOT_FOUND);
    assert_int_equal(file_pread(held->file, bytes, sizeof bytes, 0, &got), TERN_OK);
    assert_memory_equal(bytes, w->sent[0]->bytes, sizeof bytes);
    segment_unref(held);
}

static void segment_that_cannot_be_unlinked_stays(void **state)
{
    struct world *w = *state;
    world_open(w);
    fill_segments(w, 2);
    sim_clock_set_wall(&w->sim.clock, SIM_START_WALL_MS + 80 * (int64_t)HOUR_MS);
    struct sim_fs_fault fault = {
        .op = SIM_FS_UNLINK, .path_part = "commitlog", .nth = 1, .errno_value = EIO};
    sim_fs_fail(w->sim.fs, &fault);
    assert_int_equal(store_expire_now(w->store), 0);
    assert_int_equal(commit_log_min(w->store->log), 0);
    world_check(w);
    assert_int_equal(store_expire_now(w->store), 2);
    assert_int_equal(w->latched, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(old_segments_go_at_the_hour_and_not_before),
        T(at_most_ten_segments_go_in_a_round_and_never_the_last),
        T(expire_now_goes_by_age_at_any_hour),
        T(queues_of_an_expired_segment_survive_a_power_loss),
        T(disk_above_warning_refuses_and_resumes),
        T(disk_above_clean_ratio_expires_whatever_the_age),
        T(disk_above_max_used_expires_old_ones_at_any_hour),
        T(what_is_not_dispatched_does_not_expire),
        T(device_without_room_refuses_and_resumes),
        T(read_of_an_expired_segment_is_not_found),
        T(segment_that_cannot_be_unlinked_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
