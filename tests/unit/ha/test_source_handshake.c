/* broker/ha/source, handshakes: who may attach, from where, and what a refusal says. */
#include "tests/unit/ha/source_world.h"

#include "base/clock.h"

#define FOLLOW TERN__WIRE__HA_PURPOSE__HA_FOLLOW
#define RECOVER TERN__WIRE__HA_PURPOSE__HA_RECOVER
#define LOOK TERN__WIRE__HA_PURPOSE__HA_LOOK

static struct source_world w;

static int setup(void **state)
{
    (void)state;
    source_world_init(&w, HA_MODE_ASYNC_MASTER);
    source_world_open(&w);
    return 0;
}

static int setup_closed(void **state)
{
    (void)state;
    source_world_init(&w, HA_MODE_ASYNC_MASTER);
    return 0;
}

static int setup_slave(void **state)
{
    (void)state;
    source_world_init(&w, HA_MODE_SLAVE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    source_world_fini(&w);
    return 0;
}

static void a_slave_attaches_where_both_logs_part(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    s.member.epochs[1] = (struct ha_epoch){2, 22, 500}; /* another master's */
    s.member.log_end = 900;
    struct fake_ask *ask = slave_greet(&w, &s, FOLLOW);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SUCCESS);
    const Tern__Wire__HaHandshakeResponse *got = ask->response->ha_handshake;
    assert_true(got->has_common);
    assert_int_equal(got->common_epoch->number, 1);
    assert_int_equal(got->common_end, 500);
    assert_true(got->session != 0);
    assert_int_equal(got->source->log_end, WORLD_END);
    assert_int_equal(got->source->n_epochs, 2);
    fake_ask_free(ask);
    assert_int_equal(w.heard, 1);
    assert_false(w.heard_cut);
}

static void a_cut_is_passed_on(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    struct fake_ask *ask = fake_ask_new(&w.sim.env, s.peer_id);
    ask->handshake.from = ha_member_to_wire(&ask->arena, &s.member);
    ask->handshake.has_cut = true;
    ask->handshake.cut_at = 640;
    ask->header.ha_handshake = &ask->handshake;
    source_handshake(w.source, &ask->pub);
    expect_code(ask, TERN_OK);
    assert_true(w.heard_cut);
    assert_int_equal(w.heard_cut_at, 640);
    assert_int_equal(w.heard_last.id, 1);
}

static void an_empty_slave_begins_with_the_first_segment(void **state)
{
    (void)state;
    w.store.min = WORLD_SEGMENT_BYTES;
    w.store.whole = 2 * WORLD_SEGMENT_BYTES;
    struct slave s = slave_of(&w, 1);
    s.member.epoch_count = 0;
    s.member.log_min = s.member.log_end = s.member.flushed = 0;
    slave_attach(&w, &s);
    assert_int_equal(s.appended, WORLD_SEGMENT_BYTES);
    assert_int_equal(slave_take(&w, &s, slave_fetch(&w, &s)), WORLD_SEGMENT_BYTES);
}

static void a_slave_that_was_away_for_too_long_begins_with_the_first_segment(void **state)
{
    (void)state;
    w.store.whole = 2 * WORLD_SEGMENT_BYTES;
    w.store.min = WORLD_SEGMENT_BYTES;
    struct slave s = slave_of(&w, 1);
    s.member.log_min = 0;
    s.member.log_end = s.member.flushed = 700;
    slave_attach(&w, &s);
    assert_int_equal(s.appended, 700); /* what is common; it has to start over */
    assert_int_equal(source_replicated(w.source), 2 * WORLD_SEGMENT_BYTES);
    world_step(&w);
    assert_int_equal(source_insync_size(w.source), 0);
    s.appended = s.flushed = WORLD_SEGMENT_BYTES;
    assert_int_equal(slave_take(&w, &s, slave_fetch(&w, &s)), WORLD_SEGMENT_BYTES);
}

static void a_source_that_is_not_open_sends_followers_away(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    struct fake_ask *ask = slave_greet(&w, &s, FOLLOW);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SYSTEM_BUSY);
    const Tern__Wire__HaHandshakeResponse *got = ask->response->ha_handshake;
    assert_non_null(got);
    assert_int_equal(got->session, 0);
    assert_true(got->retry_ms > 0);
    assert_non_null(got->source);
    fake_ask_free(ask);
    assert_int_equal(w.heard, 1); /* that is how a starting master hears of its members */
    source_world_open(&w);
    slave_attach(&w, &s);
    source_close(w.source);
    expect_code(slave_fetch(&w, &s), TERN_INVALID);
    expect_code(slave_greet(&w, &s, FOLLOW), TERN_SYSTEM_BUSY);
}

static void a_look_leaves_nothing_behind(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    struct fake_ask *ask = slave_greet(&w, &s, LOOK);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SUCCESS);
    assert_int_equal(ask->response->ha_handshake->session, 0);
    assert_true(ask->response->ha_handshake->has_common);
    fake_ask_free(ask);
    assert_int_equal(source_insync_size(w.source), 0);
}

static void a_slave_gives_its_log_to_its_starting_master_at_any_time(void **state)
{
    (void)state;
    struct slave master = slave_of(&w, 0);
    struct fake_ask *ask = slave_greet(&w, &master, RECOVER);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SUCCESS);
    master.session = ask->response->ha_handshake->session;
    master.appended = 300;
    fake_ask_free(ask);
    expect_code(slave_greet(&w, &(struct slave){.member = master.member, .peer_id = 5}, FOLLOW),
                TERN_SYSTEM_BUSY);
    master.member.log_end = 300;
    ask = slave_greet(&w, &master, RECOVER);
    master.session = ask->response->ha_handshake->session;
    fake_ask_free(ask);
    assert_int_equal(slave_take(&w, &master, slave_fetch(&w, &master)), 300);
    assert_int_equal(slave_take(&w, &master, slave_fetch(&w, &master)), WORLD_END - 600);
}

static void a_master_gives_its_log_to_followers_only(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    expect_code(slave_greet(&w, &s, RECOVER), TERN_INVALID);
    expect_code(slave_greet(&w, &s, 7), TERN_INVALID);
}

/* Refused with this code and a text that contains both parts; nobody is attached. */
static void refuses(struct slave *s, enum tern_code code, const char *part, const char *other)
{
    struct fake_ask *ask = slave_greet(&w, s, FOLLOW);
    assert_int_equal(fake_ask_code(ask), wire_code_of(code));
    assert_contains(ask->response->remark, part);
    assert_contains(ask->response->remark, other);
    fake_ask_free(ask);
    assert_true(sim_log_count(&w.sim, "handshake_refused") > 0);
    sim_log_clear(&w.sim);
    assert_int_equal(w.heard, 0);
}

static void what_does_not_belong_here_is_refused_in_words(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    snprintf(s.member.cluster, sizeof s.member.cluster, "Other");
    refuses(&s, TERN_INVALID, "brokerClusterName", "Other");
    s = slave_of(&w, 1);
    snprintf(s.member.name, sizeof s.member.name, "broker-b");
    refuses(&s, TERN_INVALID, "brokerName", "broker-b");
    s = slave_of(&w, 1);
    s.member.segment_bytes = 8192;
    refuses(&s, TERN_INVALID, "mappedFileSizeCommitLog is 4096", "8192");
    s = slave_of(&w, 0);
    refuses(&s, TERN_NAME_CONFLICT, "brokerId 0", "another brokerId");
    s = slave_of(&w, 1);
    memcpy(s.member.uuid, w.ha.uuid, sizeof s.member.uuid);
    refuses(&s, TERN_NAME_CONFLICT, "copy", "storeUuid");
    s = slave_of(&w, 1);
    s.member.log_min = -1;
    refuses(&s, TERN_INVALID, "log_min", "");
    struct fake_ask *ask = fake_ask_new(&w.sim.env, 1);
    ask->header.ha_handshake = &ask->handshake;
    source_handshake(w.source, &ask->pub);
    expect_code(ask, TERN_INVALID);
}

static void another_live_store_keeps_its_id(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    struct slave rival = slave_of(&w, 1);
    rival.member.uuid[0] ^= 1;
    rival.peer_id = 55;
    slave_attach(&w, &s);
    w.heard = 0;
    struct fake_ask *ask = slave_greet(&w, &rival, FOLLOW);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__NAME_CONFLICT);
    assert_contains(ask->response->remark, s.member.ha_address);
    fake_ask_free(ask);
    source_peer_gone(w.source, s.peer_id);
    slave_attach(&w, &rival); /* the other one is gone */
}

static void a_store_that_is_silent_for_long_loses_its_id(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    struct slave rival = slave_of(&w, 1);
    rival.member.uuid[0] ^= 1;
    rival.peer_id = 55;
    slave_attach(&w, &s);
    world_pass_ms(&w, WORLD_MAX_BEHIND_MS);
    expect_code(slave_greet(&w, &rival, FOLLOW), TERN_NAME_CONFLICT);
    world_pass_ms(&w, 1);
    slave_attach(&w, &rival);
    expect_code(slave_fetch(&w, &s), TERN_INVALID); /* its session is over */
}

static void a_new_handshake_ends_the_former_session(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    slave_attach(&w, &s);
    struct fake_ask *parked = slave_catch_up(&w, &s);
    assert_int_equal(fake_ask_code(parked), -1);
    struct slave again = s;
    again.peer_id = 66; /* from another address */
    slave_attach(&w, &again);
    expect_code(parked, TERN_INVALID);
    expect_code(slave_fetch(&w, &s), TERN_INVALID);
    world_append(&w, 10);
    assert_int_equal(slave_take(&w, &again, slave_fetch(&w, &again)), 10);
}

static struct fake_ask *greet_refusing(struct slave *s)
{
    struct fake_ask *ask = fake_ask_new(&w.sim.env, s->peer_id);
    ask->handshake.from = ha_member_to_wire(&ask->arena, &s->member);
    ask->handshake.refuses_cut = true;
    ask->header.ha_handshake = &ask->handshake;
    source_handshake(w.source, &ask->pub);
    return ask;
}

static void a_newer_epoch_that_refuses_a_cut_stops_the_master(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    s.member.epochs[1] = (struct ha_epoch){3, 34, 500}; /* our number, another id */
    expect_code(greet_refusing(&s), TERN_SYSTEM_BUSY);
    assert_int_equal(w.refused, 1);
    s.member.epochs[1].number = 4;
    s.member.highest_epoch = 4;
    expect_code(greet_refusing(&s), TERN_SYSTEM_BUSY);
    assert_int_equal(w.refused, 2);
}

static void a_refusal_without_a_newer_epoch_stops_nobody(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    expect_code(greet_refusing(&s), TERN_OK); /* our own epochs */
    s.member.epochs[1] = (struct ha_epoch){2, 22, 500};
    expect_code(greet_refusing(&s), TERN_OK); /* below ours */
    s.member.epoch_count = 0;
    expect_code(greet_refusing(&s), TERN_OK);
    assert_int_equal(w.refused, 0);
}

static void open_with_the_next_epoch(struct source_world *world)
{
    struct tern_error err;
    struct ha_epoch epoch;
    assert_ok(epochs_begin(world->epochs, 0, WORLD_END, &epoch, &err));
    source_world_open(world);
}

/* …and only it stops: whoever refuses is above the epoch that we opened with, or is no reason. */
static void an_opening_with_a_number_above_lets_the_cut_proceed(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    s.member.epochs[1] = (struct ha_epoch){4, 44, 500};
    s.member.highest_epoch = 4;
    source_close(w.source);
    epochs_seen(w.epochs, 4);
    w.after_self = open_with_the_next_epoch; /* a refusal that came just before it */
    expect_code(greet_refusing(&s), TERN_OK);
    assert_int_equal(w.refused, 0);
    expect_code(greet_refusing(&s), TERN_OK);
    assert_int_equal(w.refused, 0);
    s.member.epochs[1].number = 6; /* of a master after that opening */
    s.member.highest_epoch = 6;
    expect_code(greet_refusing(&s), TERN_SYSTEM_BUSY);
    assert_int_equal(w.refused, 1);
}

static void no_more_slaves_than_a_set_can_have(void **state)
{
    (void)state;
    for (int64_t id = 1; id <= INSYNC_MAX; id++) {
        struct slave s = slave_of(&w, id);
        slave_attach(&w, &s);
    }
    struct slave more = slave_of(&w, 99);
    struct fake_ask *ask = slave_greet(&w, &more, FOLLOW);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SYSTEM_BUSY);
    assert_contains(ask->response->remark, "16 slaves");
    fake_ask_free(ask);
    source_peer_gone(w.source, 101);
    slave_attach(&w, &more);
}

static void nothing_is_taken_after_the_stop(void **state)
{
    (void)state;
    struct slave s = slave_of(&w, 1);
    slave_attach(&w, &s);
    struct fake_ask *parked = slave_catch_up(&w, &s);
    source_stop(w.source);
    expect_code(parked, TERN_INVALID);
    expect_code(slave_greet(&w, &s, FOLLOW), TERN_SYSTEM_BUSY);
    expect_code(slave_fetch(&w, &s), TERN_INVALID);
    source_on_end(w.source, 5000);
    world_step(&w);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_slave_attaches_where_both_logs_part),
        T(a_cut_is_passed_on),
        T(an_empty_slave_begins_with_the_first_segment),
        T(a_slave_that_was_away_for_too_long_begins_with_the_first_segment),
        cmocka_unit_test_setup_teardown(a_source_that_is_not_open_sends_followers_away,
                                        setup_closed, teardown),
        T(a_look_leaves_nothing_behind),
        cmocka_unit_test_setup_teardown(a_slave_gives_its_log_to_its_starting_master_at_any_time,
                                        setup_slave, teardown),
        T(a_master_gives_its_log_to_followers_only),
        T(what_does_not_belong_here_is_refused_in_words),
        T(another_live_store_keeps_its_id),
        T(a_store_that_is_silent_for_long_loses_its_id),
        T(a_new_handshake_ends_the_former_session),
        T(a_newer_epoch_that_refuses_a_cut_stops_the_master),
        T(a_refusal_without_a_newer_epoch_stops_nobody),
        T(an_opening_with_a_number_above_lets_the_cut_proceed),
        T(no_more_slaves_than_a_set_can_have),
        T(nothing_is_taken_after_the_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
