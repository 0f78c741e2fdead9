/* broker/ha/source and the in-sync set: who counts is durable before it counts, what is told is
 * true, and the disk may fail at any call. */
#include "tests/unit/ha/source_world.h"

#include <errno.h>

#include "base/clock.h"

static struct source_world w;
static struct slave s;

static int setup(void **state)
{
    (void)state;
    fake_closed_peer = 0;
    source_world_init(&w, HA_MODE_SYNC_MASTER);
    s = slave_of(&w, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    source_world_fini(&w);
    return 0;
}

/* Open, and s is in the set and parked. */
static struct fake_ask *join(void)
{
    source_world_open(&w);
    slave_attach(&w, &s);
    struct fake_ask *ask = slave_catch_up(&w, &s);
    world_step(&w);
    assert_int_equal(source_insync_size(w.source), 1);
    return ask;
}

/* The answer of a parked fetch that an append has ended; the next one acknowledges. */
static struct fake_ask *acknowledge(struct fake_ask *ask)
{
    slave_take(&w, &s, ask);
    return slave_fetch(&w, &s);
}

/* ---- alone ---- */

static void an_opened_master_is_told_that_it_is_alone(void **state)
{
    (void)state;
    source_world_open(&w);
    assert_int_equal(w.told, 1);
    assert_true(w.alone);
    assert_int_equal(w.confirmed, WORLD_END);
    assert_true(w.progress_seen == UINT64_MAX);
    world_append(&w, 70);
    assert_int_equal(w.confirmed, WORLD_END + 70);
    assert_int_equal(source_confirmed(w.source), WORLD_END + 70);
    assert_int_equal(source_replicated(w.source), WORLD_END + 70);
    int64_t confirmed;
    uint64_t progress_seen;
    bool alone;
    source_acknowledged(w.source, &confirmed, &alone, &progress_seen);
    assert_int_equal(confirmed, WORLD_END + 70);
    assert_true(alone && progress_seen == UINT64_MAX);
}

static void append_while_told(struct source_world *world)
{
    world_append(world, 5);
}

static void news_that_come_while_telling_are_told_after_it(void **state)
{
    (void)state;
    source_world_open(&w);
    w.while_told = append_while_told;
    world_append(&w, 70);
    assert_int_equal(w.told, 3);
    assert_int_equal(w.confirmed, WORLD_END + 75);
}

static void alone_with_sync_flush_what_is_flushed_counts(void **state)
{
    (void)state;
    w.ha.sync_flush = true;
    source_world_open(&w);
    world_append(&w, 70);
    assert_int_equal(w.confirmed, WORLD_END);
    world_flush(&w);
    assert_int_equal(w.confirmed, WORLD_END + 70);
}

static void a_closed_master_confirms_nothing(void **state)
{
    (void)state;
    source_world_open(&w);
    source_close(w.source);
    world_append(&w, 70);
    world_flush(&w);
    world_step(&w);
    assert_int_equal(source_confirmed(w.source), WORLD_END);
    assert_false(source_enough(w.source));
    int64_t confirmed;
    uint64_t progress_seen;
    bool alone;
    source_acknowledged(w.source, &confirmed, &alone, &progress_seen);
    assert_int_equal(confirmed, WORLD_END);
    assert_false(alone || w.alone); /* it is not known who may have what */
    assert_int_equal(progress_seen, 0);
    assert_int_equal(w.progress_seen, 0);
}

/* ---- joining ---- */

static void a_slave_counts_once_the_file_names_it(void **state)
{
    (void)state;
    source_world_open(&w);
    slave_attach(&w, &s);
    struct fake_ask *ask = slave_catch_up(&w, &s);
    assert_int_equal(source_insync_size(w.source), 0);
    assert_true(w.woken);
    world_step(&w);
    struct insync_set set = world_saved_set(&w);
    assert_int_equal(set.count, 1);
    assert_int_equal(set.members[0].id, 1);
    assert_memory_equal(set.members[0].uuid, s.member.uuid, HA_UUID_BYTES);
    assert_string_equal(set.members[0].ha_address, s.member.ha_address);
    assert_false(w.alone);
    assert_int_equal(sim_log_count(&w.sim, "insync_joined"), 1);
    assert_int_equal(w.store.flushes, 0);

    world_append(&w, 30);
    assert_int_equal(w.confirmed, WORLD_END); /* it has not got them */
    ask = acknowledge(ask);
    assert_int_equal(w.confirmed, WORLD_END + 30);
    slave_take(&w, &s, (world_pass_ms(&w, 1000), ask));
}

static void an_ack_of_a_slave_whose_joining_failed_does_not_count(void **state)
{
    (void)state;
    source_world_open(&w);
    slave_attach(&w, &s);
    struct fake_ask *ask = slave_catch_up(&w, &s);
    sim_fs_fail(w.sim.fs, &(struct sim_fs_fault){.op = SIM_FS_SYNC,
                                                 .path_part = "insync",
                                                 .nth = 1,
                                                 .errno_value = EIO,
                                                 .forever = true});
    world_step(&w);
    assert_int_equal(source_insync_size(w.source), 0);
    assert_int_equal(sim_log_count(&w.sim, "insync_not_saved"), 1);
    assert_true(w.alone);
    world_pass_ms(&w, 999);
    assert_int_equal(sim_log_count(&w.sim, "insync_not_saved"), 1); /* a second later */
    sim_fs_fail_clear(w.sim.fs);
    world_pass_ms(&w, 1);
    assert_int_equal(source_insync_size(w.source), 1);
    assert_false(w.alone);
    source_close(w.source);
    fake_ask_free(ask);
}

static void the_set_on_record_counts_from_the_opening(void **state)
{
    (void)state;
    struct insync_set set = {.count = 1};
    set.members[0].id = 1;
    memcpy(set.members[0].uuid, s.member.uuid, HA_UUID_BYTES);
    source_open(w.source, &set, 500);
    assert_false(w.alone);
    assert_int_equal(w.confirmed, 500);
    s.member.log_end = s.member.flushed = 700;
    slave_attach(&w, &s); /* what is common is known by the handshake */
    assert_int_equal(w.confirmed, 700);
    struct fake_ask *ask = slave_catch_up(&w, &s);
    assert_int_equal(w.confirmed, WORLD_END);
    world_pass_ms(&w, 20);
    slave_take(&w, &s, ask);
}

static void a_diverged_tail_does_not_count(void **state)
{
    (void)state;
    struct insync_set set = {.count = 1};
    set.members[0].id = 1;
    memcpy(set.members[0].uuid, s.member.uuid, HA_UUID_BYTES);
    source_open(w.source, &set, 500);
    s.member.epochs[1] = (struct ha_epoch){2, 22, 600};
    slave_attach(&w, &s);
    assert_int_equal(w.confirmed, 600);
}

/* ---- leaving ---- */

static void a_lost_slave_leaves_after_a_flush_and_only_then_the_master_goes_on_alone(void **state)
{
    (void)state;
    struct fake_ask *ask = join();
    world_append(&w, 30);
    source_peer_gone(w.source, s.peer_id);
    assert_false(w.alone);
    assert_int_equal(w.confirmed, WORLD_END);
    slave_take(&w, &s, ask); /* its answer was on the way */
    world_step(&w);
    assert_int_equal(w.store.flushed_to, WORLD_END + 30);
    assert_int_equal(world_saved_set(&w).count, 0);
    assert_true(w.alone);
    assert_int_equal(w.confirmed, WORLD_END + 30);
    assert_int_equal(sim_log_count(&w.sim, "insync_left"), 1);
    assert_int_equal(sim_log_count(&w.sim, "its link is down"), 1);
}

static void without_a_flush_nobody_leaves(void **state)
{
    (void)state;
    struct fake_ask *ask = join();
    w.store.flush_code = TERN_IO;
    source_peer_gone(w.source, s.peer_id);
    expect_code(ask, TERN_INVALID);
    world_append(&w, 30);
    world_step(&w);
    assert_int_equal(source_insync_size(w.source), 1);
    assert_int_equal(world_saved_set(&w).count, 1);
    assert_int_equal(w.confirmed, WORLD_END);
    w.store.flush_code = TERN_OK;
    world_pass_ms(&w, 1000);
    assert_int_equal(source_insync_size(w.source), 0);
    assert_int_equal(w.confirmed, WORLD_END + 30);
}

static void a_silent_slave_leaves_in_time_and_comes_back(void **state)
{
    (void)state;
    struct fake_ask *ask = join();
    world_append(&w, 30);
    world_pass_ms(&w, WORLD_MAX_BEHIND_MS);
    assert_int_equal(w.confirmed, WORLD_END);
    assert_int_equal(source_insync_size(w.source), 1);
    world_pass_ms(&w, 1);
    assert_int_equal(source_insync_size(w.source), 0);
    assert_int_equal(w.confirmed, WORLD_END + 30);
    ask = acknowledge(ask);
    world_step(&w);
    assert_int_equal(source_insync_size(w.source), 1);
    source_close(w.source);
    fake_ask_free(ask);
}

/* Fails the Nth call of the disk while one joins and leaves; in the end all is well, and confirmed
 * never was beyond what somebody on the disk's set has. */
static void any_failed_call_is_made_up_for(void **state)
{
    (void)state;
    for (unsigned nth = 1, hit = 1; hit; nth++) {
        teardown(NULL);
        setup(NULL);
        source_world_open(&w);
        slave_attach(&w, &s);
        sim_fs_fail(w.sim.fs,
                    &(struct sim_fs_fault){.op = SIM_FS_ANY, .nth = nth, .errno_value = EIO});
        struct fake_ask *ask = slave_catch_up(&w, &s);
        world_step(&w);
        world_append(&w, 10);
        source_peer_gone(w.source, s.peer_id);
        world_step(&w);
        hit = sim_log_count(&w.sim, "insync_not_saved");
        sim_fs_fail_clear(w.sim.fs);
        world_pass_ms(&w, 2500);
        assert_int_equal(world_saved_set(&w).count, 0);
        assert_int_equal(source_insync_size(w.source), 0);
        assert_true(w.alone);
        assert_int_equal(w.confirmed, WORLD_END + 10);
        fake_ask_free(ask);
        assert_true(nth < 200);
    }
}

/* ---- acknowledgements ---- */

static void with_sync_flush_a_report_acknowledges_what_was_flushed(void **state)
{
    (void)state;
    w.ha.sync_flush = true;
    s.flushed = WORLD_END;
    struct fake_ask *ask = join();
    world_append(&w, 30);
    slave_take(&w, &s, ask);
    ask = slave_fetch(&w, &s); /* appended, not flushed there */
    world_flush(&w);
    assert_int_equal(w.confirmed, WORLD_END);
    s.flushed = s.appended;
    expect_code(slave_report(&w, &s, 0, false), TERN_OK);
    assert_int_equal(w.confirmed, WORLD_END + 30);
    source_close(w.source);
    fake_ask_free(ask);
}

static void with_sync_flush_the_masters_own_disk_counts_too(void **state)
{
    (void)state;
    w.ha.sync_flush = true;
    s.flushed = WORLD_END;
    struct fake_ask *ask = join();
    world_append(&w, 30);
    slave_take(&w, &s, ask);
    ask = slave_fetch(&w, &s);
    s.flushed = s.appended; /* its disk is the faster one */
    expect_code(slave_report(&w, &s, 0, false), TERN_OK);
    assert_int_equal(w.confirmed, WORLD_END);
    world_flush(&w);
    assert_int_equal(w.confirmed, WORLD_END + 30);
    source_close(w.source);
    fake_ask_free(ask);
}

static void a_parked_slave_learns_soon_of_a_confirmed_end(void **state)
{
    (void)state;
    struct fake_ask *ask = join();
    world_append(&w, 30);
    ask = acknowledge(ask);
    world_pass_ms(&w, 20);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SUCCESS);
    assert_int_equal(ask->response->ha_fetch->confirmed, WORLD_END + 30);
    slave_take(&w, &s, ask);
    ask = slave_fetch(&w, &s);
    world_pass_ms(&w, 500); /* once is enough */
    assert_int_equal(fake_ask_code(ask), -1);
    world_pass_ms(&w, 500);
    slave_take(&w, &s, ask);
}

/* Under written visibility a slave may show what it has: it is told the end, with the bytes. */
static void slave_of_a_written_set_may_show_all_it_has(void **state)
{
    (void)state;
    w.ha.confirmed_visibility = false;
    struct fake_ask *ask = join();
    world_append(&w, 30);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SUCCESS);
    assert_int_equal(ask->response->ha_fetch->confirmed, WORLD_END + 30);
    ask = acknowledge(ask);
    world_pass_ms(&w, 500); /* no news beside bytes */
    assert_int_equal(fake_ask_code(ask), -1);
    world_pass_ms(&w, 500);
    slave_take(&w, &s, ask);
}

static void a_parked_slave_learns_of_what_others_have_confirmed(void **state)
{
    (void)state;
    struct slave other = slave_of(&w, 2);
    w.ha.insync.replicas = UINT32_MAX;
    source_world_open(&w);
    slave_attach(&w, &s);
    slave_attach(&w, &other);
    world_pass_ms(&w, 1);
    assert_int_equal(source_insync_size(w.source), 2);
    struct fake_ask *ask = slave_catch_up(&w, &s);
    struct fake_ask *others = slave_catch_up(&w, &other);
    world_append(&w, 30);
    ask = acknowledge(ask);
    world_pass_ms(&w, 100);
    assert_int_equal(fake_ask_code(ask), -1); /* the other one has not got them */
    slave_take(&w, &other, others);
    others = slave_fetch(&w, &other);
    assert_int_equal(w.confirmed, WORLD_END + 30);
    world_pass_ms(&w, 20);
    assert_int_equal(ask->response->ha_fetch->confirmed, WORLD_END + 30);
    slave_take(&w, &s, ask);
    slave_take(&w, &other, others);
}

static void a_report_may_be_overtaken_by_a_fetch_but_may_not_lie(void **state)
{
    (void)state;
    struct fake_ask *ask = join();
    struct slave before = s;
    world_append(&w, 30);
    ask = acknowledge(ask);
    expect_code(slave_report(&w, &before, 0, false), TERN_OK); /* sent before that fetch */
    assert_int_equal(source_replicated(w.source), WORLD_END + 30);
    struct slave liar = s;
    liar.appended++;
    expect_code(slave_report(&w, &liar, 0, false), TERN_INVALID);
    assert_int_equal(fake_closed_peer, s.peer_id);
    assert_int_equal(w.confirmed, WORLD_END + 30);
    expect_code(ask, TERN_INVALID);
}

static void a_report_with_what_is_the_sources_is_refused(void **state)
{
    (void)state;
    struct fake_ask *parked = join();
    struct fake_ask *ask = fake_ask_new(&w.sim.env, s.peer_id);
    ask->report.session = s.session;
    ask->position.appended = s.appended;
    ask->report.position = &ask->position;
    ask->tables.has_topics = true;
    ask->report.tables = &ask->tables;
    ask->header.ha_report = &ask->report;
    source_report(w.source, &ask->pub);
    expect_code(ask, TERN_INVALID);
    expect_code(parked, TERN_INVALID);
    s.session = 1;
    expect_code(slave_report(&w, &s, 0, false), TERN_INVALID);
}

/* ---- progress ---- */

static void commits_wait_for_all_members(void **state)
{
    (void)state;
    struct slave other = slave_of(&w, 2);
    w.own.progress = 50;
    s.held = other.held = w.own;
    s.held.progress = 40;
    other.held.progress = 0;
    source_world_open(&w);
    slave_attach(&w, &s);
    slave_attach(&w, &other);
    world_step(&w);
    assert_int_equal(source_insync_size(w.source), 2);
    assert_int_equal(w.progress_seen, 0);
    struct fake_ask *ask = slave_fetch(&w, &s);
    struct fake_ask *others = slave_fetch(&w, &other);
    assert_int_equal(w.progress_seen, 0);
    slave_take(&w, &s, ask);
    slave_take(&w, &other, others);
    expect_code(slave_report(&w, &other, 30, false), TERN_OK);
    assert_int_equal(w.progress_seen, 30);
    expect_code(slave_report(&w, &other, 1000, false), TERN_OK); /* more than there is */
    assert_int_equal(w.progress_seen, 40);
    source_peer_gone(w.source, s.peer_id);
    world_step(&w);
    assert_int_equal(w.progress_seen, 50);
    slave_attach(&w, &s);
    s.held.progress = 2000;
    slave_take(&w, &s, slave_fetch(&w, &s));
    source_peer_gone(w.source, other.peer_id);
    world_step(&w);
    assert_int_equal(source_insync_size(w.source), 1);
    assert_int_equal(w.progress_seen, 50); /* a fetch cannot claim more either */
    source_peer_gone(w.source, s.peer_id);
    world_step(&w);
    assert_true(w.progress_seen == UINT64_MAX);
}

static void progress_made_at_a_slave_is_taken_and_acknowledged(void **state)
{
    (void)state;
    struct fake_ask *parked = join();
    struct fake_ask *ask = slave_report(&w, &s, 0, true);
    assert_int_equal(ask->response->ha_report->progress_seen, 77);
    fake_ask_free(ask);
    w.apply_code = TERN_NO_MEMORY;
    expect_code(slave_report(&w, &s, 0, true), TERN_NO_MEMORY);
    ask = slave_report(&w, &s, 0, false);
    assert_int_equal(ask->response->ha_report->progress_seen, 77);
    fake_ask_free(ask);
    source_close(w.source);
    fake_ask_free(parked);
}

/* ---- asked ---- */

static void consumers_are_sent_to_a_slave_that_has_what_they_want(void **state)
{
    (void)state;
    struct slave other = slave_of(&w, 2);
    s.dispatched = 800;
    other.dispatched = 900;
    other.readable = true;
    source_world_open(&w);
    assert_int_equal(source_pick_slave(w.source, -1, 0), -1);
    slave_attach(&w, &s);
    slave_attach(&w, &other);
    struct fake_ask *ask = slave_catch_up(&w, &s);
    struct fake_ask *others = slave_catch_up(&w, &other);
    assert_int_equal(source_pick_slave(w.source, -1, 500), 2);
    assert_int_equal(source_pick_slave(w.source, 1, 500), 1);
    assert_int_equal(source_pick_slave(w.source, 1, 850), 2);
    assert_int_equal(source_pick_slave(w.source, 1, 901), -1);
    assert_int_equal(source_pick_slave(w.source, 9, 500), 2);
    other.readable = false;
    expect_code(slave_report(&w, &other, 0, false), TERN_OK);
    assert_int_equal(source_pick_slave(w.source, 2, 500), 1);
    sim_clock_advance(&w.sim.clock, ms_to_ns(3001)); /* not heard */
    assert_int_equal(source_pick_slave(w.source, -1, 500), -1);
    source_close(w.source);
    fake_ask_free(ask);
    fake_ask_free(others);
}

static void status_has_a_row_for_each_slave(void **state)
{
    (void)state;
    Tern__Wire__HaSlaveStatus **rows;
    struct arena arena;
    size_t count;
    struct slave late = slave_of(&w, 2);
    arena_init(&arena, 1 << 20);
    late.member.log_end = late.member.flushed = 600;
    struct fake_ask *ask = join();
    slave_attach(&w, &late);
    sim_clock_advance(&w.sim.clock, ms_to_ns(1500));
    assert_ok(source_status(w.source, &arena, &rows, &count));
    assert_int_equal(count, 2);
    assert_int_equal(rows[0]->member->broker_id, 1);
    assert_true(rows[0]->link_up && rows[0]->in_sync);
    assert_int_equal(rows[0]->lag_bytes, 0);
    assert_int_equal(rows[0]->lag_ms, 0);
    assert_int_equal(rows[0]->heard_age_ms, 1500);
    assert_int_equal(rows[1]->member->broker_id, 2);
    assert_true(rows[1]->link_up && !rows[1]->in_sync);
    assert_int_equal(rows[1]->lag_bytes, WORLD_END - 600);
    assert_int_equal(rows[1]->lag_ms, 1500);
    slave_take(&w, &late, slave_fetch(&w, &late));
    assert_ok(source_status(w.source, &arena, &rows, &count));
    assert_true(rows[1]->transfer_bytes_per_second > 200);
    source_peer_gone(w.source, s.peer_id);
    assert_ok(source_status(w.source, &arena, &rows, &count));
    assert_int_equal(count, 2); /* still in the set */
    assert_false(rows[1]->link_up);
    assert_true(rows[1]->in_sync);
    arena_fini(&arena);
    fake_ask_free(ask);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(an_opened_master_is_told_that_it_is_alone),
        T(news_that_come_while_telling_are_told_after_it),
        T(alone_with_sync_flush_what_is_flushed_counts),
        T(a_closed_master_confirms_nothing),
        T(a_slave_counts_once_the_file_names_it),
        T(an_ack_of_a_slave_whose_joining_failed_does_not_count),
        T(the_set_on_record_counts_from_the_opening),
        T(a_diverged_tail_does_not_count),
        T(a_lost_slave_leaves_after_a_flush_and_only_then_the_master_goes_on_alone),
        T(without_a_flush_nobody_leaves),
        T(a_silent_slave_leaves_in_time_and_comes_back),
        T(any_failed_call_is_made_up_for),
        T(with_sync_flush_a_report_acknowledges_what_was_flushed),
        T(with_sync_flush_the_masters_own_disk_counts_too),
        T(a_parked_slave_learns_soon_of_a_confirmed_end),
        T(slave_of_a_written_set_may_show_all_it_has),
        T(a_parked_slave_learns_of_what_others_have_confirmed),
        T(a_report_may_be_overtaken_by_a_fetch_but_may_not_lie),
        T(a_report_with_what_is_the_sources_is_refused),
        T(commits_wait_for_all_members),
        T(progress_made_at_a_slave_is_taken_and_acknowledged),
        T(consumers_are_sent_to_a_slave_that_has_what_they_want),
        T(status_has_a_row_for_each_slave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
