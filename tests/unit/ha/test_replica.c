/* The replica: handshakes, what they do to the log, copying, reports, failures of a source. */
#include "tests/unit/ha/replica_world.h"

#include <errno.h>

#include "broker/ha/replica_internal.h"

static void assert_readable(bool readable)
{
    char text[256] = "";
    assert_int_equal(replica_readable(world.replica, text, sizeof text), readable);
}

static void assert_text(const char *words)
{
    struct replica_status *status = calloc(1, sizeof *status);
    assert_non_null(status);
    replica_status(world.replica, status);
    if (!strstr(status->text, words))
        fail_msg("\"%s\" does not say \"%s\"", status->text, words);
    free(status);
}

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
    world.source.force_cut_number = 4;                           /* not above ours */
    world_run(3000);
    assert_int_equal(world.settled, 0);
    world.source.force_cut_number = 5;
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

/* ---- sources that go ---- */

static void a_master_that_comes_back_is_followed_within_a_second(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    world_stop_source();
    world_run(50);
    assert_int_equal(world.lost, 1); /* at once */
    assert_false(world.confirmed_settled);
    assert_int_equal(world.progress_seen, UINT64_MAX);
    assert_readable(true);
    for (int outage_s = 1; outage_s <= 20; outage_s += 19) {
        unsigned settled = world.settled;
        world_run(outage_s * 1000);
        world_start_source();
        world_run(1100);
        assert_int_equal(world.settled, settled + 1);
        world_stop_source();
        world_run(50);
    }
}

static void a_silent_source_is_lost_after_park_and_three_seconds(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    sim_net_cut(world.net, "10.0.0.1", "10.0.0.2");
    world_run(2900);
    assert_int_equal(world.lost, 0);
    world_run(1300);
    assert_int_equal(world.lost, 1);
    sim_net_heal_all(world.net);
    world_until(&world.settled, 2);
}

static void another_address_ends_the_session(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    replica_follow(world.replica, "10.0.0.8:10912");
    world_run(50);
    assert_int_equal(world.lost, 1);
    unsigned fetches = world.source.fetches;
    world_run(3000);
    assert_int_equal(world.source.fetches, fetches);
    world_follow();
    world_until(&world.settled, 2);
}

static void the_same_address_again_changes_nothing(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    for (int i = 0; i < 5; i++) {
        world_follow();
        world_run(100);
    }
    assert_int_equal(world.source.handshakes, 1);
}

static void without_a_known_master_what_is_here_counts(void **state)
{
    (void)state;
    world_have(5000);
    replica_follow(world.replica, "");
    world_run(10);
    assert_int_equal(world.confirmed, 5000);
    assert_false(world.confirmed_settled);
    int64_t confirmed;
    bool settled;
    uint64_t seen;
    replica_acknowledged(world.replica, &confirmed, &settled, &seen);
    assert_int_equal(confirmed, 5000);
    assert_false(settled);
    assert_int_equal(seen, UINT64_MAX);
}

static void stops_with_a_fetch_under_way(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    assert_non_null(world.source.parked);
    task_stop(world.task);
    world.task = NULL;
    replica_stop(world.replica);
    replica_destroy(world.replica);
    world.replica = NULL;
    unsigned told = world.lost + world.settled;
    world_run(5000); /* the answer still comes */
    assert_int_equal(world.lost + world.settled, told);
}

/* ---- copying ---- */

static void new_bytes_come_at_once(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    world.source.member.log_end = 20000;
    fake_source_push(&world.source);
    world_run(2);
    world_check_same();
    assert_int_equal(world.store.waited, 2); /* the first of each epoch */
}

static void a_new_epoch_is_added_on_the_way(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    struct ha_member *member = &world.source.member;
    member->epochs[member->epoch_count++] =
        (struct ha_epoch){.number = 7, .id = 70, .start = 10000};
    member->log_end = 15000;
    fake_source_push(&world.source);
    world_run(50);
    world_check_same();
}

static void what_would_wait_is_left_to_the_task(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    unsigned waited = world.store.waited;
    world.store.again = 1;
    world.source.member.log_end = 20000;
    fake_source_push(&world.source);
    world_run(50);
    world_check_same();
    assert_int_equal(world.store.waited, waited + 1);
}

static void answers_that_do_not_fit_end_the_session(void **state)
{
    (void)state;
    for (int fault = FAKE_SOUND + 1; fault < FAKE_FAULTS; fault++) {
        struct sim_env *sim = &world.sim;
        world_have(5000);
        world.source.fault = (enum fake_fault)fault;
        world_follow();
        world_until(&world.lost, 1);
        assert_int_equal(world.store.at.appended, 5000);
        assert_int_equal(sim_log_count(sim, " ERROR "), 1);
        struct ha_epoch last;
        assert_true(epochs_last(world.epochs, &last));
        assert_int_equal(last.number, 4);
        world.source.fault = FAKE_SOUND;
        world_until(&world.settled, 2);
        world_run(500);
        world_check_same();
        if (fault + 1 < FAKE_FAULTS) {
            world_tear_down(NULL);
            world_set_up(NULL);
        }
    }
}

static void a_full_disk_is_tried_again(void **state)
{
    (void)state;
    world_have(5000);
    world.store.append_code = TERN_NO_SPACE;
    world_follow();
    world_until(&world.lost, 2);
    assert_int_equal(world.store.at.appended, 5000);
    world.store.append_code = TERN_OK;
    world_until(&world.settled, 3);
    world_run(500);
    world_check_same();
}

static void bytes_that_are_no_log_are_tried_slowly(void **state)
{
    (void)state;
    world_have(5000);
    world.store.append_code = TERN_CORRUPT;
    world_follow();
    world_until(&world.lost, 1);
    unsigned fetches = world.source.fetches;
    world_run(4500);
    assert_int_equal(world.source.fetches, fetches);
}

static void confirmed_is_told_when_it_moves(void **state)
{
    (void)state;
    world.source.confirmed = 9000;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    assert_int_equal(world.confirmed, 9000);
    assert_true(world.confirmed_settled);
    int64_t confirmed;
    bool settled;
    uint64_t seen;
    replica_acknowledged(world.replica, &confirmed, &settled, &seen);
    assert_int_equal(confirmed, 9000);
    assert_true(settled);
    assert_int_equal(seen, 0);
    world.source.confirmed = 8000; /* never falls */
    fake_source_push(&world.source);
    world_run(50);
    assert_int_equal(world.confirmed, 9000);
}

static void topics_come_before_bytes_and_by_the_task(void **state)
{
    (void)state;
    world.source.topics_version = 6;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    assert_int_equal(world.applied_topics, 6);
    assert_int_equal(world.source.held.topics_version, 6);
    assert_memory_equal(world.diary, "STa", 3);
    world_check_same();
}

static void tables_that_fail_end_the_session(void **state)
{
    (void)state;
    world.source.topics_version = 6;
    world.apply_code = TERN_IO;
    world_follow();
    world_until(&world.lost, 1);
    assert_int_equal(world.store.at.appended, 0);
    world.apply_code = TERN_OK;
    world_until(&world.settled, 2);
    world_run(500);
    world_check_same();
}

/* ---- reports ---- */

static void flushed_is_reported_at_once_when_the_source_counts_it(void **state)
{
    (void)state;
    world.source.sync_flush = true;
    world.store.flushes = false;
    world_follow();
    world_until(&world.settled, 1);
    assert_true(world.store.sync_flush);
    world_run(300);
    assert_int_equal(world.source.report_flushed, 0);
    world.store.at.flushed = 10000;
    replica_on_flushed(world.replica, 10000);
    world_run(2);
    assert_int_equal(world.source.report_flushed, 10000);
    unsigned reports = world.source.reports;
    replica_on_flushed(world.replica, 10000); /* no news */
    world_run(2);
    assert_int_equal(world.source.reports, reports);
}

static void dispatched_is_reported_within_a_tenth_of_a_second(void **state)
{
    (void)state;
    world.store.flushes = false;
    world_follow();
    world_until(&world.settled, 1);
    assert_false(world.store.sync_flush);
    world_run(1050); /* a fetch is fresh */
    unsigned reports = world.source.reports;
    unsigned fetches = world.source.fetches;
    world.store.at.dispatched = 7000;
    world_run(250);
    assert_int_equal(world.source.fetches, fetches);
    assert_int_equal(world.source.dispatched, 7000);
    assert_int_equal(world.source.reports, reports + 1);
}

static void an_idle_pair_reports_nothing(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(1000);
    unsigned reports = world.source.reports;
    unsigned fetches = world.source.fetches;
    world_run(10000);
    assert_int_equal(world.source.reports, reports);
    assert_in_range(world.source.fetches - fetches, 9, 11);
    assert_int_equal(world.source.handshakes, 1);
}

static void progress_made_here_goes_to_the_source_at_once(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    world.own.progress = 3;
    replica_on_change(world.replica);
    world_run(2);
    assert_int_equal(world.source.reported, 3);
    assert_int_equal(world.progress_seen, 3);
    unsigned reports = world.source.reports;
    world_run(3000);
    assert_int_equal(world.source.reports, reports); /* and only once */
}

static void progress_made_alone_is_told_when_a_source_is_back(void **state)
{
    (void)state;
    world.own.progress = 12;
    world_follow();
    world_until(&world.settled, 1);
    world_run(50);
    assert_int_equal(world.source.reported, 12);
    assert_int_equal(world.progress_seen, 12);
}

static void progress_that_the_source_cannot_take_is_not_hammered(void **state)
{
    (void)state;
    world.source.takes_no_progress = true;
    world.own.progress = 12;
    world_follow();
    world_until(&world.settled, 1);
    world_run(5000);
    assert_in_range(world.source.reports, 4, 8);
    assert_int_equal(world.progress_seen, 0);
    world.source.takes_no_progress = false;
    world_run(1100);
    assert_int_equal(world.progress_seen, 12);
}

static void the_sources_progress_is_taken_and_acknowledged(void **state)
{
    (void)state;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    world.source.progress = 8;
    fake_source_push(&world.source);
    world_run(2);
    assert_int_equal(world.applied_progress, 8);
    assert_int_equal(world.source.held.progress, 8); /* by the fetch that follows */
}

static void a_new_life_of_the_source_begins_from_zero(void **state)
{
    (void)state;
    world.source.progress = 8;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    sim_net_reset(world.net, "10.0.0.1", "10.0.0.2");
    world_until(&world.settled, 2);
    world_run(5);
    assert_int_equal(world.source.held.progress, 8); /* the same life */
    world.source.member.life = 6;
    world.source.progress = 2;
    sim_net_reset(world.net, "10.0.0.1", "10.0.0.2");
    world_until(&world.settled, 3);
    world_run(300);
    assert_int_equal(world.applied_progress, 2);
}

/* ---- a master takes a member's log ---- */

static void begin_take(bool force)
{
    world.ha.mode = HA_MODE_SYNC_MASTER;
    world.ha.id = 0;
    world.source.member.id = 1;
    world.source.member.state = TERN__WIRE__HA_STATE__HA_SEEKING;
    replica_recover(world.replica, SOURCE_ADDRESS, force);
}

static void a_take_ends_with_all_bytes_and_tables(void **state)
{
    (void)state;
    world_have(5000);
    world.source.progress = 4;
    world.source.topics_version = 9;
    world.source.chunk_max = 900;
    begin_take(false);
    world_until(&world.caught_up, 1);
    world_check_same();
    assert_int_equal(world.source.purpose, TERN__WIRE__HA_PURPOSE__HA_RECOVER);
    assert_int_equal(world.applied_progress, 4);
    assert_int_equal(world.applied_topics, 9);
    assert_int_equal(world.lost, 0);
    unsigned fetches = world.source.fetches;
    world_run(3000);
    assert_int_equal(world.source.fetches, fetches);
    replica_recover(world.replica, SOURCE_ADDRESS, false); /* once more, for its tables */
    world_until(&world.caught_up, 2);
}

static void a_member_behind_us_gives_its_tables_only(void **state)
{
    (void)state;
    world_have(9000);
    world.source.member.log_end = 7000;
    world.source.progress = 4;
    begin_take(false);
    world_until(&world.caught_up, 1);
    assert_int_equal(world.store.at.appended, 9000);
    assert_int_equal(world.applied_progress, 4);
    assert_int_equal(world.source.from, 7000);
    assert_null(strpbrk(world.diary, "LCRa"));
}

static void a_member_with_an_older_epoch_gives_its_tables_only(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 9, 90);
    begin_take(false);
    world_until(&world.caught_up, 1);
    assert_int_equal(world.store.at.appended, 6000);
    assert_int_equal(world.source.from, 2000);
}

static void older_topics_of_a_member_are_left(void **state)
{
    (void)state;
    world_have(5000);
    world.own.topics_version = 12;
    world.source.topics_version = 9;
    begin_take(false);
    world_until(&world.caught_up, 1);
    assert_int_equal(world.applied_topics, 0);
    assert_int_equal(world.own.topics_version, 12);
    world_check_same();
}

static void an_empty_master_takes_topics_of_any_version(void **state)
{
    (void)state;
    world.own.topics_version = 12;
    world.source.topics_version = 9;
    begin_take(false);
    world_until(&world.caught_up, 1);
    assert_int_equal(world.applied_topics, 9);
    world_check_same();
}

/* Both count from 1: the same number says nothing about an empty store's tables. */
static void an_empty_slave_takes_topics_of_its_own_version(void **state)
{
    (void)state;
    world.own.topics_version = 9;
    world.source.topics_version = 9;
    world_follow();
    world_until(&world.settled, 1);
    world_run(300);
    assert_int_equal(world.applied_topics, 9);
    world_check_same();
}

static void a_master_is_cut_for_a_higher_epoch(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 3, 30);
    begin_take(false);
    world_until(&world.caught_up, 1);
    world_check_same();
    assert_memory_equal(world.diary, "LCS", 3);
}

static void a_take_that_costs_our_epoch_wants_force(void **state)
{
    (void)state;
    world_have_forked(2000, 6000, 4, 41);
    begin_take(false);
    world_until(&world.detached, 1);
    assert_int_equal(world.store.at.appended, 6000);
    assert_readable(true);
    assert_text("mqadmin forceOpen");
    world_run(5000);
    assert_int_equal(world.source.handshakes, 1); /* the opening tries again, not we */
    begin_take(true);
    world_until(&world.caught_up, 1);
    world_check_same();
}

static void a_take_without_a_common_epoch_wants_force(void **state)
{
    (void)state;
    struct tern_error err;
    struct ha_epoch foreign = {.number = 1, .id = 111, .start = 0};
    assert_ok(epochs_adopt(world.epochs, &foreign, 1, 4000, &err));
    fake_store_write(&world.store, 4000, 111);
    begin_take(false);
    world_until(&world.detached, 1);
    assert_int_equal(world.store.at.appended, 4000);
    begin_take(true);
    world_until(&world.caught_up, 1);
    world_check_same();
}

static void a_take_from_nobody_ends(void **state)
{
    (void)state;
    world_stop_source();
    begin_take(false);
    world_until(&world.lost, 1);
    world_run(5000);
    assert_int_equal(world.lost, 1);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

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
        TEST(a_master_that_comes_back_is_followed_within_a_second),
        TEST(a_silent_source_is_lost_after_park_and_three_seconds),
        TEST(another_address_ends_the_session),
        TEST(the_same_address_again_changes_nothing),
        TEST(without_a_known_master_what_is_here_counts),
        TEST(stops_with_a_fetch_under_way),
        TEST(new_bytes_come_at_once),
        TEST(a_new_epoch_is_added_on_the_way),
        TEST(what_would_wait_is_left_to_the_task),
        TEST(answers_that_do_not_fit_end_the_session),
        TEST(a_full_disk_is_tried_again),
        TEST(bytes_that_are_no_log_are_tried_slowly),
        TEST(confirmed_is_told_when_it_moves),
        TEST(topics_come_before_bytes_and_by_the_task),
        TEST(tables_that_fail_end_the_session),
        TEST(flushed_is_reported_at_once_when_the_source_counts_it),
        TEST(dispatched_is_reported_within_a_tenth_of_a_second),
        TEST(an_idle_pair_reports_nothing),
        TEST(progress_made_here_goes_to_the_source_at_once),
        TEST(progress_made_alone_is_told_when_a_source_is_back),
        TEST(progress_that_the_source_cannot_take_is_not_hammered),
        TEST(the_sources_progress_is_taken_and_acknowledged),
        TEST(a_new_life_of_the_source_begins_from_zero),
        TEST(a_take_ends_with_all_bytes_and_tables),
        TEST(a_member_behind_us_gives_its_tables_only),
        TEST(a_member_with_an_older_epoch_gives_its_tables_only),
        TEST(older_topics_of_a_member_are_left),
        TEST(an_empty_master_takes_topics_of_any_version),
        TEST(an_empty_slave_takes_topics_of_its_own_version),
        TEST(a_master_is_cut_for_a_higher_epoch),
        TEST(a_take_that_costs_our_epoch_wants_force),
        TEST(a_take_without_a_common_epoch_wants_force),
        TEST(a_take_from_nobody_ends),
        TEST(settling_survives_every_failure_of_the_list),
    };
    return cmocka_run_group_tests_name("ha replica", tests, NULL, NULL);
}
