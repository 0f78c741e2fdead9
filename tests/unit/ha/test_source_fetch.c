/* broker/ha/source, fetches: bytes in order and none missed, claims believed only within what was
 * sent, tables before the bytes that need them. */
#include "tests/unit/ha/source_world.h"

#include "base/clock.h"

static struct source_world w;
static struct slave s;

static int setup(void **state)
{
    (void)state;
    fake_closed_peer = 0;
    source_world_init(&w, HA_MODE_ASYNC_MASTER);
    source_world_open(&w);
    s = slave_of(&w, 1);
    s.member.log_end = s.member.flushed = 100;
    s.member.epoch_count = 1;
    slave_attach(&w, &s);
    assert_int_equal(s.appended, 100);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    source_world_fini(&w);
    return 0;
}

/* Confirmed stands still from now on, so that no news of it end a parking. */
static void stop_confirming(void)
{
    source_close(w.source);
    w.ha.insync.min_replicas = INSYNC_MAX;
    w.confirmed = 0;
    source_world_open(&w);
    slave_attach(&w, &s);
    slave_take(&w, &s, slave_fetch_with(&w, &s, 1, 0));
}

/* ---- bytes ---- */

static void a_chunk_is_of_one_epoch_and_at_most_what_was_asked_for(void **state)
{
    (void)state;
    assert_int_equal(slave_take(&w, &s, slave_fetch_with(&w, &s, 70, 1000)), 70);
    assert_int_equal(slave_take(&w, &s, slave_fetch(&w, &s)), 430); /* the epoch ends */
    assert_int_equal(slave_take(&w, &s, slave_fetch(&w, &s)), 400);
}

static void a_chunk_is_of_one_segment(void **state)
{
    (void)state;
    w.store.whole = 3 * WORLD_SEGMENT_BYTES;
    for (int i = 0; i < 2; i++)
        slave_take(&w, &s, slave_fetch(&w, &s));
    assert_int_equal(s.appended, WORLD_SEGMENT_BYTES);
    assert_int_equal(slave_take(&w, &s, slave_fetch(&w, &s)), WORLD_SEGMENT_BYTES);
}

static void an_answer_tells_the_sources_positions(void **state)
{
    (void)state;
    w.store.flushed = 900;
    struct fake_ask *ask = slave_fetch(&w, &s);
    assert_int_equal(ask->response->ha_fetch->appended, WORLD_END);
    assert_int_equal(ask->response->ha_fetch->flushed, 900);
    slave_take(&w, &s, ask);
}

static void a_parked_fetch_is_answered_by_the_append(void **state)
{
    (void)state;
    struct fake_ask *ask = slave_catch_up(&w, &s);
    assert_int_equal(s.appended, WORLD_END);
    world_append(&w, 50);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SUCCESS);
    assert_int_equal(slave_take(&w, &s, ask), 50);
    ask = slave_fetch(&w, &s);
    assert_int_equal(fake_ask_code(ask), -1);
    world_append(&w, 1);
    assert_int_equal(slave_take(&w, &s, ask), 1);
}

static void append_meanwhile(struct source_world *world)
{
    world_append(world, 25);
}

static void change_meanwhile(struct source_world *world)
{
    world->own.progress++;
    source_on_change(world->source);
}

static void close_meanwhile(struct source_world *world)
{
    source_close(world->source);
}

static void what_comes_between_looking_and_parking_is_not_missed(void **state)
{
    (void)state;
    struct fake_ask *ask = slave_catch_up(&w, &s);
    world_pass_ms(&w, HA_PARK_MAX_MS);
    slave_take(&w, &s, ask);
    w.meanwhile = append_meanwhile;
    assert_int_equal(slave_take(&w, &s, slave_fetch(&w, &s)), 25);
    w.meanwhile = change_meanwhile;
    ask = slave_fetch(&w, &s);
    assert_int_equal(fake_ask_code(ask), TERN__WIRE__CODE__SUCCESS);
    assert_int_equal(ask->response->ha_fetch->tables->progress_to, 1);
    slave_take(&w, &s, ask);
    w.meanwhile = close_meanwhile;
    expect_code(slave_fetch(&w, &s), TERN_INVALID);
}

static void two_slaves_are_answered_by_one_append(void **state)
{
    (void)state;
    struct slave other = slave_of(&w, 2);
    slave_attach(&w, &other);
    struct fake_ask *ask = slave_catch_up(&w, &s);
    struct fake_ask *others = slave_catch_up(&w, &other);
    world_append(&w, 50);
    assert_int_equal(slave_take(&w, &s, ask), 50);
    assert_int_equal(slave_take(&w, &other, others), 50);
}

/* Senders are at work: the log grows by this, and the slave asks for a chunk. */
static struct fake_ask *fetch_beside_senders(void)
{
    world_append(&w, 10);
    return slave_fetch(&w, &s);
}

static void a_slave_far_behind_gets_its_bytes_at_a_pace_while_messages_are_sent(void **state)
{
    (void)state;
    w.ha.transfer_rate = INT64_C(400) * 100; /* a chunk of 400 bytes takes 10 ms */
    w.store.whole = INT64_C(1) << 30;
    slave_take(&w, &s, slave_fetch(&w, &s));
    int64_t begin = s.appended;
    for (int ms = 0; ms < 1000; ms += 10) {
        struct fake_ask *ask = fetch_beside_senders();
        while (fake_ask_code(ask) == -1) {
            world_append(&w, 10); /* is no news to it */
            world_pass_ms(&w, 1);
            ms++;
        }
        slave_take(&w, &s, ask);
    }
    assert_true(s.appended - begin >= w.ha.transfer_rate / 2);
    assert_true(s.appended - begin <= w.ha.transfer_rate * 5 / 4);
}

static void a_slave_far_behind_gets_all_at_once_while_nothing_is_sent(void **state)
{
    (void)state;
    w.ha.transfer_rate = INT64_C(400) * 100;
    w.store.whole = INT64_C(1) << 30;
    for (int i = 0; i < 50; i++)
        assert_true(slave_take(&w, &s, slave_fetch(&w, &s)) > 0);
}

static void parking_ends_when_its_time_is_up(void **state)
{
    (void)state;
    slave_take(&w, &s, slave_fetch(&w, &s));
    slave_take(&w, &s, slave_fetch(&w, &s));
    slave_take(&w, &s, slave_fetch_with(&w, &s, 1000, 0)); /* does not want to wait */
    struct fake_ask *ask = slave_fetch_with(&w, &s, 1000, 300);
    world_pass_ms(&w, 299);
    assert_int_equal(fake_ask_code(ask), -1);
    world_pass_ms(&w, 1);
    assert_int_equal(slave_take(&w, &s, ask), 0);
    ask = slave_fetch_with(&w, &s, 1000, 3600000);
    world_pass_ms(&w, HA_PARK_MAX_MS);
    assert_int_equal(slave_take(&w, &s, ask), 0);
}

static void what_is_not_in_memory_is_read_by_the_task(void **state)
{
    (void)state;
    w.store.cold = true;
    struct fake_ask *ask = slave_fetch(&w, &s);
    assert_int_equal(fake_ask_code(ask), -1);
    assert_true(w.woken);
    world_step(&w);
    assert_int_equal(slave_take(&w, &s, ask), 500);
    w.store.cold = false;
    ask = slave_catch_up(&w, &s);
    w.store.cold = true;
    world_append(&w, 10); /* not even in the appender's cache */
    assert_int_equal(fake_ask_code(ask), -1);
    world_step(&w);
    assert_int_equal(slave_take(&w, &s, ask), 10);
}

static void bytes_that_expired_end_the_session(void **state)
{
    (void)state;
    w.store.min = WORLD_END - 10;
    expect_code(slave_fetch(&w, &s), TERN_INVALID);
    assert_int_equal(fake_closed_peer, 0);
    assert_int_equal(sim_log_count(&w.sim, "slave_fetch_failed"), 1);
    expect_code(slave_fetch(&w, &s), TERN_INVALID);
}

static void bytes_that_cannot_be_read_end_the_session(void **state)
{
    (void)state;
    w.store.cold = true;
    w.store.read_code = TERN_IO;
    struct fake_ask *ask = slave_fetch(&w, &s);
    world_step(&w);
    expect_code(ask, TERN_IO);
    expect_code(slave_fetch(&w, &s), TERN_INVALID);
}

static void the_oldest_parked_fetch_makes_room(void **state)
{
    (void)state;
    struct slave other = slave_of(&w, 2);
    slave_attach(&w, &other);
    struct fake_ask *ask = slave_catch_up(&w, &s);
    sim_clock_advance(&w.sim.clock, 1000);
    struct fake_ask *others = slave_catch_up(&w, &other);
    source_relieve(w.source);
    assert_int_equal(slave_take(&w, &s, ask), 0);
    assert_int_equal(fake_ask_code(others), -1);
    source_relieve(w.source);
    assert_int_equal(slave_take(&w, &other, others), 0);
    source_relieve(w.source);
}

static void a_cold_fetch_whose_session_went_is_answered(void **state)
{
    (void)state;
    w.store.cold = true;
    struct fake_ask *ask = slave_fetch(&w, &s);
    source_peer_gone(w.source, s.peer_id);
    world_step(&w);
    expect_code(ask, TERN_INVALID);
}

/* ---- claims ---- */

/* This fetch is a lie: the session is over, the peer closed, nothing was acknowledged. */
static void is_a_lie(struct fake_ask *ask)
{
    expect_code(ask, TERN_INVALID);
    assert_int_equal(fake_closed_peer, s.peer_id);
    assert_int_equal(sim_log_count(&w.sim, "slave_claim_refused"), 1);
    assert_true(source_replicated(w.source) <= WORLD_END);
    teardown(NULL);
    setup(NULL);
}

static void claims_that_cannot_be_true_end_the_session(void **state)
{
    (void)state;
    struct slave liar = s;
    liar.appended = 101; /* nothing was sent yet */
    is_a_lie(slave_fetch(&w, &liar));
    liar = s;
    liar.appended = 99; /* before where it began */
    is_a_lie(slave_fetch(&w, &liar));
    liar = s;
    liar.appended = INT64_MAX;
    is_a_lie(slave_fetch(&w, &liar));
    liar = s;
    liar.appended = -1;
    is_a_lie(slave_fetch(&w, &liar));
    liar = s;
    liar.flushed = 101;
    is_a_lie(slave_fetch(&w, &liar));
    liar = s;
    liar.flushed = -1;
    is_a_lie(slave_fetch(&w, &liar));
    liar = s;
    liar.dispatched = INT64_MAX;
    is_a_lie(slave_fetch(&w, &liar));
    slave_take(&w, &s, slave_fetch(&w, &s));
    slave_take(&w, &s, slave_fetch(&w, &s));
    liar = s;
    liar.appended = s.appended - 1; /* it had more */
    slave_take(&w, &s, slave_fetch_with(&w, &s, 1, 0));
    is_a_lie(slave_fetch(&w, &liar));
    slave_take(&w, &s, slave_fetch(&w, &s));
    liar = s;
    liar.appended = s.appended + 1; /* more than it was sent */
    is_a_lie(slave_fetch(&w, &liar));
    s.dispatched = 90;
    slave_take(&w, &s, slave_fetch(&w, &s));
    s.dispatched = 80;
    is_a_lie(slave_fetch(&w, &s));
}

static void a_fetch_before_the_last_answer_ends_the_session(void **state)
{
    (void)state;
    struct fake_ask *ask = slave_catch_up(&w, &s);
    struct fake_ask *second = slave_fetch(&w, &s);
    expect_code(ask, TERN_INVALID);
    is_a_lie(second);
}

static void a_fetch_without_position_ends_the_session(void **state)
{
    (void)state;
    struct fake_ask *ask = fake_ask_new(&w.sim.env, s.peer_id);
    ask->fetch.session = s.session;
    ask->header.ha_fetch = &ask->fetch;
    source_fetch(w.source, &ask->pub);
    is_a_lie(ask);
}

static void an_unknown_session_is_told_to_make_a_handshake(void **state)
{
    (void)state;
    struct slave stranger = s;
    stranger.session ^= 1;
    expect_code(slave_fetch(&w, &stranger), TERN_INVALID);
    stranger = s;
    stranger.peer_id = 77; /* somebody else's session */
    expect_code(slave_fetch(&w, &stranger), TERN_INVALID);
    stranger.session = 0;
    expect_code(slave_fetch(&w, &stranger), TERN_INVALID);
    assert_int_equal(fake_closed_peer, 0);
    slave_take(&w, &s, slave_fetch(&w, &s)); /* the right one goes on */
}

/* ---- tables ---- */

static void tables_come_before_the_bytes_that_need_them(void **state)
{
    (void)state;
    w.own.topics_version++;
    struct fake_ask *ask = slave_fetch(&w, &s);
    assert_true(ask->response->ha_fetch->tables->has_topics);
    assert_int_equal(slave_take(&w, &s, ask), 0);
    assert_int_equal(slave_take(&w, &s, slave_fetch(&w, &s)), 500);
}

static void progress_rides_along_with_bytes(void **state)
{
    (void)state;
    w.own.progress = 12;
    struct fake_ask *ask = slave_fetch(&w, &s);
    assert_int_equal(ask->response->ha_fetch->tables->progress_to, 12);
    assert_int_equal(slave_take(&w, &s, ask), 500);
    ask = slave_fetch(&w, &s);
    assert_null(ask->response->ha_fetch->tables);
    slave_take(&w, &s, ask);
}

static void a_change_answers_a_parked_fetch(void **state)
{
    (void)state;
    struct fake_ask *ask = slave_catch_up(&w, &s);
    world_step(&w);
    w.own.progress = 13;
    source_on_change(w.source);
    assert_true(w.woken);
    w.woken = false;
    source_on_change(w.source); /* one waking is enough */
    assert_false(w.woken);
    world_step(&w);
    assert_int_equal(ask->response->ha_fetch->tables->progress_to, 13);
    assert_int_equal(slave_take(&w, &s, ask), 0);
    w.woken = false;
    source_on_change(w.source); /* nobody waits */
    assert_false(w.woken);
}

static void an_append_after_a_new_topic_sends_the_topic_first(void **state)
{
    (void)state;
    struct fake_ask *ask = slave_catch_up(&w, &s);
    w.own.topics_version++;
    world_append(&w, 40);
    assert_int_equal(fake_ask_code(ask), -1); /* not on the appender's time */
    world_step(&w);
    assert_true(ask->response->ha_fetch->tables->has_topics);
    assert_int_equal(slave_take(&w, &s, ask), 0);
    assert_int_equal(slave_take(&w, &s, slave_fetch(&w, &s)), 40);
}

static void an_append_does_not_wait_for_progress(void **state)
{
    (void)state;
    struct fake_ask *ask = slave_catch_up(&w, &s);
    w.own.progress = 14;
    world_append(&w, 40);
    assert_null(ask->response->ha_fetch->tables);
    assert_int_equal(slave_take(&w, &s, ask), 40);
    ask = slave_fetch(&w, &s);
    assert_int_equal(ask->response->ha_fetch->tables->progress_to, 14);
    slave_take(&w, &s, ask);
}

static void a_slave_that_does_not_take_the_tables_is_not_flooded(void **state)
{
    (void)state;
    stop_confirming();
    struct ha_held before = s.held;
    w.own.topics_version++;
    assert_int_equal(slave_take(&w, &s, slave_fetch(&w, &s)), 0);
    unsigned fills = w.fills;
    s.held = before;
    struct fake_ask *ask = slave_fetch(&w, &s);
    assert_int_equal(fake_ask_code(ask), -1);
    source_on_change(w.source);
    world_append(&w, 10);
    world_pass_ms(&w, 199);
    assert_int_equal(fake_ask_code(ask), -1);
    assert_int_equal(w.fills, fills);
    world_pass_ms(&w, 1);
    assert_true(ask->response->ha_fetch->tables->has_topics);
    assert_int_equal(slave_take(&w, &s, ask), 0);
}

static void without_memory_for_tables_no_bytes_go_out_either(void **state)
{
    (void)state;
    stop_confirming();
    w.own.topics_version++;
    w.no_memory = true;
    struct fake_ask *ask = slave_fetch(&w, &s);
    assert_int_equal(fake_ask_code(ask), -1);
    w.no_memory = false;
    world_pass_ms(&w, HA_PARK_MAX_MS);
    assert_non_null(ask->response->ha_fetch->tables);
    assert_int_equal(slave_take(&w, &s, ask), 0);
}

/* ---- progress made at a slave ---- */

/* A fetch may have been sent before the master stood still, and be read after it. */
static void a_fetch_says_nothing_of_progress_made_after_the_answer_it_follows(void **state)
{
    (void)state;
    s.gave = true;
    slave_take(&w, &s, slave_fetch(&w, &s));
    world_pass_ms(&w, 3000);
    int64_t since_ns = clock_mono_ns(w.sim.env.clock);
    world_pass_ms(&w, 1);
    slave_take(&w, &s, slave_fetch(&w, &s));
    assert_int_equal(source_gave(w.source, since_ns), 0);
    struct fake_ask *ask = slave_catch_up(&w, &s);
    assert_int_equal(source_gave(w.source, since_ns), 1);
    world_append(&w, 1);
    slave_take(&w, &s, ask);
}

static void a_slave_that_has_not_given_all_is_not_counted(void **state)
{
    (void)state;
    int64_t since_ns = clock_mono_ns(w.sim.env.clock);
    world_pass_ms(&w, 1);
    slave_take(&w, &s, slave_fetch(&w, &s));
    slave_take(&w, &s, slave_fetch(&w, &s));
    assert_int_equal(source_gave(w.source, since_ns), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_chunk_is_of_one_epoch_and_at_most_what_was_asked_for),
        T(a_chunk_is_of_one_segment),
        T(an_answer_tells_the_sources_positions),
        T(a_parked_fetch_is_answered_by_the_append),
        T(what_comes_between_looking_and_parking_is_not_missed),
        T(two_slaves_are_answered_by_one_append),
        T(a_slave_far_behind_gets_its_bytes_at_a_pace_while_messages_are_sent),
        T(a_slave_far_behind_gets_all_at_once_while_nothing_is_sent),
        T(parking_ends_when_its_time_is_up),
        T(what_is_not_in_memory_is_read_by_the_task),
        T(bytes_that_expired_end_the_session),
        T(bytes_that_cannot_be_read_end_the_session),
        T(the_oldest_parked_fetch_makes_room),
        T(a_cold_fetch_whose_session_went_is_answered),
        T(claims_that_cannot_be_true_end_the_session),
        T(a_fetch_before_the_last_answer_ends_the_session),
        T(a_fetch_without_position_ends_the_session),
        T(an_unknown_session_is_told_to_make_a_handshake),
        T(tables_come_before_the_bytes_that_need_them),
        T(progress_rides_along_with_bytes),
        T(a_change_answers_a_parked_fetch),
        T(an_append_after_a_new_topic_sends_the_topic_first),
        T(an_append_does_not_wait_for_progress),
        T(a_slave_that_does_not_take_the_tables_is_not_flooded),
        T(without_memory_for_tables_no_bytes_go_out_either),
        T(a_fetch_says_nothing_of_progress_made_after_the_answer_it_follows),
        T(a_slave_that_has_not_given_all_is_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
