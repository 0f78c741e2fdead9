/*
 * The replica begins: the handshake, what it does to the log, sources that do not fit, disks that
 * fail meanwhile.
 */
#include "tests/unit/ha/replica_world.h"

#include <errno.h>

#include "broker/ha/replica_internal.h"

/* ---- settling ---- */

static void empty_store_copies_everything(void **state)
{
    (void)state;
    world.source.chunk_max = 700; /* records are cut anywhere */
    world_follow();
    world_until(&world.settled, 1);
    world_run(500);
    world_check_same();
    assert_readable(true);
    assert_int_equal(world.lost, 0);
    assert_int_equal(world.source.handshakes, 1);
}

static void empty_store_begins_at_the_sources_first_segment(void **state)
{
    (void)state;
    world.source.member.log_min = 2 * FAKE_SEGMENT_BYTES;
    world.source.member.log_end = 2 * FAKE_SEGMENT_BYTES + 5000;
    world_follow();
    world_until(&world.settled, 1);
    world_run(500);
    assert_int_equal(world.store.reset_at, 2 * FAKE_SEGMENT_BYTES);
    assert_int_equal(world.store.at.min, 2 * FAKE_SEGMENT_BYTES);
    assert_int_equal(world.store.at.appended, world.source.member.log_end);
    struct ha_epoch last;
    assert_true(epochs_last(world.epochs, &last));
    assert_int_equal(last.id, 40);
}

static void goes_on_from_its_own_end(void **state)
{
    (void)state;
    world_have(5000);
    world_follow();
    world_until(&world.settled, 1);
    world_run(500);
    world_check_same();
    assert_string_equal(world.diary, "Sa");
}

static void an_epoch_is_durable_before_its_first_byte(void **state)
{
    (void)state;
    world_have(3000);
    world.store.append_code = TERN_NO_SPACE; /* whoever appends fails: the epoch must be there */
    world_follow();
    world_until(&world.lost, 1);
    struct epochs *again;
    struct ha_epoch last;
    struct tern_error err;
    assert_int_equal(world.store.at.appended, 3000);
    assert_ok(epochs_open(&world.sim.env, "/store", 3001, &again, &err));
    assert_true(epochs_last(again, &last));
    assert_int_equal(last.number, 4);
    epochs_close(again);
}

static void a_diverged_tail_is_lowered_cut_and_told(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 3, 30); /* the source went on with epoch 2, then 4 */
    world_follow();
    world_until(&world.settled, 1);
    assert_true(world.source.has_cut);
    assert_int_equal(world.source.cut_at, 2000);
    assert_int_equal(world.source.handshakes, 2);
    assert_int_equal(world.lowered_at, 2000);
    world_run(500);
    world_check_same();
    assert_memory_equal(world.diary, "LCS", 3);
    assert_int_equal(sim_log_count(&world.sim, "log_cut"), 1);
    struct replica_status *status = calloc(1, sizeof *status);
    assert_non_null(status);
    replica_status(world.replica, status);
    assert_int_equal(status->cut_bytes, 4000);
    free(status);
}

static void a_cut_is_told_once(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 3, 30);
    world_follow();
    world_until(&world.settled, 1);
    sim_net_reset(world.net, "10.0.0.1", "10.0.0.2");
    world_until(&world.settled, 2);
    assert_false(world.source.has_cut);
}

static void nothing_is_cut_when_offsets_cannot_be_lowered(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 3, 30);
    world.lower_code = TERN_IO;
    world_follow();
    world_until(&world.lost, 1);
    assert_int_equal(world.store.at.appended, 6000);
    assert_readable(false); /* its end is known to differ */
    world.lower_code = TERN_OK;
    world_until(&world.settled, 1);
    world_run(500);
    world_check_same();
    assert_readable(true);
}

static void a_failed_cut_is_not_copied_over(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 3, 30);
    world.store.cut_code = TERN_IO;
    world_follow();
    world_until(&world.lost, 2);
    assert_int_equal(world.settled, 0);
    assert_int_equal(world.store.at.appended, 6000);
    assert_readable(false);
}

static void a_newer_epoch_refuses_to_be_cut(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 4, 41); /* the source's number, another life */
    world_follow();
    world_until(&world.lost, 1);
    assert_int_equal(world.store.at.appended, 6000);
    assert_readable(true);
    world_until(&world.source.handshakes, 3);
    assert_true(world.source.refuses_cut);
    assert_int_equal(world.store.at.appended, 6000);
    assert_text("mqadmin forceOpen");
    assert_int_equal(sim_log_count(&world.sim, "forceOpen"), 1); /* not each second */
    world_run(3000);
    assert_int_equal(world.settled, 0);
    struct ha_member *source = &world.source.member; /* it was opened with a number above both */
    source->epochs[source->epoch_count++] = (struct ha_epoch){5, 50, source->log_end - 500};
    source->highest_epoch = 5;
    world_until(&world.settled, 1);
    world_run(500);
    world_check_same();
    assert_false(world.source.refuses_cut);
}

static void refusing_comes_each_second(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 9, 90);
    world_follow();
    world_until(&world.lost, 1);
    unsigned before = world.source.handshakes;
    world_run(10000);
    assert_in_range(world.source.handshakes - before, 8, 11);
}

static void without_a_common_epoch_it_stands_apart(void **state)
{
    (void)state;
    struct tern_error err;
    struct ha_epoch foreign = {.number = 1, .id = 111, .start = 0};
    assert_ok(epochs_adopt(world.epochs, &foreign, 1, 4000, &err));
    fake_store_write(&world.store, 4000, 111);
    world_follow();
    world_until(&world.detached, 1);
    assert_readable(false);
    world_run(60000);
    world_follow(); /* as each round of the nameservers says */
    world_run(5000);
    assert_int_equal(world.source.handshakes, 1);
    assert_int_equal(world.source.fetches, 0);
    assert_int_equal(world.store.at.appended, 4000);
    assert_text("mqadmin rejoin");

    world.own.progress = 9;
    replica_rejoin(world.replica);
    world_until(&world.settled, 1);
    world_run(500);
    world_check_same();
    assert_readable(true);
    assert_memory_equal(world.diary, "DFRS", 4);
    assert_int_equal(world.source.reported, 0); /* progress of the log that went stays here */
    world.own.progress = 10;
    replica_on_change(world.replica);
    world_run(500);
    assert_int_equal(world.source.reported, 10);
}

static void a_common_point_below_the_sources_minimum_resets(void **state)
{
    (void)state;
    world_have(5000);
    world.source.member.log_min = FAKE_SEGMENT_BYTES;
    world.source.member.log_end = FAKE_SEGMENT_BYTES + 4000;
    world_follow();
    world_until(&world.settled, 1);
    world_run(500);
    assert_int_equal(world.store.reset_at, FAKE_SEGMENT_BYTES);
    assert_int_equal(world.store.at.appended, world.source.member.log_end);
    assert_int_equal(sim_log_count(&world.sim, "store_reset"), 1);
    assert_null(strchr(world.diary, 'L')); /* nothing of ours was beyond the common point */
    assert_null(strchr(world.diary, 'F'));
}

/* Our first segments have expired, and the common point with them. */
static void a_common_point_below_our_own_minimum_resets(void **state)
{
    (void)state;
    struct ha_member *own = calloc(2, sizeof *own);
    assert_non_null(own);
    struct ha_member *source = own + 1;
    struct replica_plan plan;
    struct replica_question question = {.own = own, .source = source};
    *source = world.source.member;
    *own = world.source.member;
    own->epochs[1] = (struct ha_epoch){.number = 3, .id = 30, .start = 2000};
    own->log_min = FAKE_SEGMENT_BYTES;
    own->log_end = FAKE_SEGMENT_BYTES + 500;
    replica_plan(&question, &plan);
    assert_int_equal(plan.verdict, REPLICA_RESET);
    assert_int_equal(plan.at, 0);
    assert_int_equal(plan.common_end, 2000);
    assert_false(plan.foreign);
    question.recover = true;
    replica_plan(&question, &plan);
    assert_int_equal(plan.verdict, REPLICA_REFUSE);
    question.force = true;
    replica_plan(&question, &plan);
    assert_int_equal(plan.verdict, REPLICA_RESET);
    free(own);
}

static void an_unfinished_record_is_cut_before_the_handshake(void **state)
{
    (void)state;
    world_have(5050);
    world_follow();
    world_until(&world.settled, 1);
    assert_int_equal(world.source.heard.log_end, 5000);
    world_run(500);
    world_check_same();
    assert_memory_equal(world.diary, "PS", 2);
    assert_false(world.source.has_cut);
}

static void peers_epoch_numbers_are_never_reused(void **state)
{
    (void)state;
    world.source.member.highest_epoch = 50;
    world.source.refuse = TERN_SYSTEM_BUSY;
    world_follow();
    world_until(&world.source.handshakes, 1);
    world_run(100);
    assert_int_equal(epochs_highest(world.epochs), 50);
}

/* ---- sources that do not fit ---- */

static void expect_refused(const char *words)
{
    world_follow();
    world_until(&world.lost, 1);
    assert_text(words);
    assert_int_equal(world.settled, 0);
    unsigned before = world.source.handshakes;
    world_run(4000);
    assert_int_equal(world.source.handshakes, before); /* slowly */
    world_run(2000);
    assert_int_equal(world.source.handshakes, before + 1);
    assert_int_equal(sim_log_count(&world.sim, words), 1);
}

static void other_segments_are_refused_by_key_and_values(void **state)
{
    (void)state;
    world.source.member.segment_bytes = 2 * FAKE_SEGMENT_BYTES;
    expect_refused("mappedFileSizeCommitLog is 131072 there and 65536 here");
}

static void another_name_is_refused(void **state)
{
    (void)state;
    snprintf(world.source.member.name, sizeof world.source.member.name, "broker-b");
    expect_refused("brokerName is broker-b there and broker-a here");
}

static void a_slave_is_not_followed(void **state)
{
    (void)state;
    world.source.member.id = 2;
    expect_refused("brokerId is 2 there");
}

static void a_copy_of_our_store_is_refused(void **state)
{
    (void)state;
    memcpy(world.source.member.uuid, world.ha.uuid, HA_UUID_BYTES);
    expect_refused("UUID");
}

static void a_name_conflict_is_logged_and_tried_slowly(void **state)
{
    (void)state;
    world.source.refuse = TERN_NAME_CONFLICT;
    expect_refused("as the test wants it");
}

static void a_busy_source_says_when_to_come_again(void **state)
{
    (void)state;
    world.source.refuse = TERN_SYSTEM_BUSY;
    world.source.retry_ms = 1500;
    world_follow();
    world_until(&world.source.handshakes, 1);
    world_run(1400);
    assert_int_equal(world.source.handshakes, 1);
    world_run(200);
    assert_int_equal(world.source.handshakes, 2);
    world.source.retry_ms = 1; /* 50 at least */
    world_run(1500);
    unsigned before = world.source.handshakes;
    world_run(1000);
    assert_in_range(world.source.handshakes - before, 15, 21);
    world.source.retry_ms = UINT32_MAX; /* 2000 at most */
    world_run(100);
    before = world.source.handshakes;
    world_run(2100);
    assert_int_equal(world.source.handshakes, before + 1);
}

/* ---- disks that fail ---- */

/* The Nth write, sync or rename of the list of epochs fails: the copy is right in the end. */
static void settling_survives_every_failure_of_the_list(void **state)
{
    (void)state;
    const enum sim_fs_op ops[] = {SIM_FS_OPEN, SIM_FS_PWRITEV, SIM_FS_SYNC, SIM_FS_RENAME,
                                  SIM_FS_SYNC_DIR};
    unsigned failed = 0;
    for (size_t op = 0; op < sizeof ops / sizeof ops[0]; op++) {
        for (unsigned nth = 1; nth <= 6; nth++) {
            world_tear_down(NULL);
            world_set_up(NULL);
            world_have_forked(2000, 6000, 3, 30);
            sim_fs_fail(world.sim.fs,
                        &(struct sim_fs_fault){.op = ops[op], .nth = nth, .errno_value = EIO});
            world_follow();
            for (int i = 0; i < 200 && world.store.at.appended < world.source.member.log_end; i++)
                world_run(100);
            world_run(100);
            failed += world.lost > 0;
            world_check_same();
        }
    }
    assert_true(failed >= 5); /* the faults were met */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(empty_store_copies_everything),
        TEST(empty_store_begins_at_the_sources_first_segment),
        TEST(goes_on_from_its_own_end),
        TEST(an_epoch_is_durable_before_its_first_byte),
        TEST(a_diverged_tail_is_lowered_cut_and_told),
        TEST(a_cut_is_told_once),
        TEST(nothing_is_cut_when_offsets_cannot_be_lowered),
        TEST(a_failed_cut_is_not_copied_over),
        TEST(a_newer_epoch_refuses_to_be_cut),
        TEST(refusing_comes_each_second),
        TEST(without_a_common_epoch_it_stands_apart),
        TEST(a_common_point_below_the_sources_minimum_resets),
        TEST(a_common_point_below_our_own_minimum_resets),
        TEST(an_unfinished_record_is_cut_before_the_handshake),
        TEST(peers_epoch_numbers_are_never_reused),
        TEST(other_segments_are_refused_by_key_and_values),
        TEST(another_name_is_refused),
        TEST(a_slave_is_not_followed),
        TEST(a_copy_of_our_store_is_refused),
        TEST(a_name_conflict_is_logged_and_tried_slowly),
        TEST(a_busy_source_says_when_to_come_again),
        TEST(settling_survives_every_failure_of_the_list),
    };
    return cmocka_run_group_tests_name("ha replica settling", tests, NULL, NULL);
}
