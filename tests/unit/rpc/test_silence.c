/* Peers that fall silent without hanging up: pings, dropped connections, doubt; on virtual time. */
#include "tests/unit/base/unit.h"

#include "base/clock.h"
#include "base/sched.h"
#include "rpc/client.h"
#include "rpc/server.h"
#include "tests/sim/link/sim_link.h"
#include "tests/sim/sim_env.h"

#define SERVER_HOST "10.0.0.1"
#define CLIENT_HOST "10.0.0.9"
#define ADDRESS "10.0.0.1:10911"

enum { SILENCE_MS = 1000, DROP_MS = 2500 };

static struct sim_env sim;
static struct sim_net *net;
static struct link *server_link, *client_link;
static struct rpc_server *server;
static struct rpc_client *client;
static struct rpc_peer *peer;
static struct rpc_request *parked;
static unsigned requests, ups, downs;

struct tally {
    unsigned done;
    unsigned by_code[TERN_CODE_COUNT];
    int64_t ended_ms;
};

static struct tally tally, parked_one; /* calls may outlive their test's function */

static void answer_parked(void)
{
    while (parked) {
        struct rpc_request *request = parked;
        parked = request->next;
        rpc_reply_ok(request);
    }
}

/* WaitEvents is parked, the rest answered. */
static void on_request(void *arg, struct rpc_request *request)
{
    (void)arg;
    requests++;
    assert_int_not_equal(request->header->body_case, TERN__WIRE__REQUEST__BODY_PING);
    if (request->header->body_case == TERN__WIRE__REQUEST__BODY_WAIT_EVENTS) {
        request->next = parked;
        parked = request;
    } else {
        rpc_reply_ok(request);
    }
}

static void on_peer_state(void *arg, struct rpc_peer *which, bool up)
{
    (void)arg;
    (void)which;
    if (up)
        ups++;
    else
        downs++;
}

static void start_server(void)
{
    struct rpc_server_options options = {
        .listen = {.address = ADDRESS, .max_message_bytes = 1 << 20},
        .arena_budget_bytes = 1 << 20,
        .on_request = on_request,
    };
    server_link = sim_net_link(net, SERVER_HOST);
    assert_ok(rpc_server_create(&sim.env, server_link, &options, &server, NULL));
}

static void stop_server(void)
{
    rpc_server_stop(server);
    answer_parked();
    rpc_server_destroy(server);
    link_destroy(server_link);
}

static void start_client(int64_t silence_ms)
{
    struct rpc_client_options options = {
        .max_message_bytes = 1 << 20,
        .connect_wait_ms = 500,
        .reconnect_min_ms = 50,
        .reconnect_max_ms = 200,
        .silence_ms = silence_ms,
        .on_peer_state = on_peer_state,
    };
    client_link = sim_net_link(net, CLIENT_HOST);
    assert_ok(rpc_client_create(&sim.env, client_link, &options, &client));
    assert_ok(rpc_peer_get(client, ADDRESS, &peer, NULL));
    sim_run_for(sim.sched, ms_to_ns(10));
    assert_true(rpc_peer_up(peer));
}

static void stop_client(void)
{
    rpc_peer_unref(peer);
    rpc_client_destroy(client);
    link_destroy(client_link);
}

static int set_up(void **state)
{
    (void)state;
    parked = NULL;
    memset(&tally, 0, sizeof tally);
    memset(&parked_one, 0, sizeof parked_one);
    requests = ups = downs = 0;
    sim_env_init(&sim, 42);
    net = sim_net_create(&sim);
    start_server();
    start_client(SILENCE_MS);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    stop_client();
    stop_server();
    sim_net_destroy(net);
    sim_env_fini(&sim);
    return 0;
}

static int64_t now_ms(void)
{
    return clock_mono_ns(&sim.clock.clock) / 1000000;
}

static void on_tally(struct rpc_call *done, void *arg)
{
    struct tally *counted = arg;
    counted->done++;
    counted->by_code[rpc_call_result(done)]++;
    counted->ended_ms = now_ms();
    rpc_call_unref(done);
}

static void start_call(struct tally *counted, bool park, int64_t timeout_ms)
{
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__ListTopicsRequest list = TERN__WIRE__LIST_TOPICS_REQUEST__INIT;
    Tern__Wire__WaitEventsRequest wait = TERN__WIRE__WAIT_EVENTS_REQUEST__INIT;
    struct rpc_call *started;
    header.body_case =
        park ? TERN__WIRE__REQUEST__BODY_WAIT_EVENTS : TERN__WIRE__REQUEST__BODY_LIST_TOPICS;
    if (park)
        header.wait_events = &wait;
    else
        header.list_topics = &list;
    assert_ok(rpc_call_create(peer, 0, &started));
    rpc_call_start(started, &header, 0, timeout_ms, on_tally, counted);
}

static uint64_t pings(void)
{
    return counter_get(&rpc_server_stats(server)->pings);
}

/* ---- cost ---- */

static void a_parked_call_is_pinged_beside_once_per_silence(void **state)
{
    (void)state;
    start_call(&tally, true, 60000);
    sim_run_for(sim.sched, ms_to_ns(10500));
    assert_in_range(pings(), 9, 10);
    assert_int_equal(requests, 1); /* pings never reach the owner */
    assert_int_equal(tally.done, 0);
    assert_true(rpc_peer_up(peer));
    answer_parked();
    sim_run_for(sim.sched, ms_to_ns(10));
    assert_int_equal(tally.by_code[TERN_OK], 1);
}

static void answers_that_flow_need_no_ping(void **state)
{
    (void)state;
    start_call(&parked_one, true, 60000);
    for (int i = 0; i < 20; i++) {
        start_call(&tally, false, 1000);
        sim_run_for(sim.sched, ms_to_ns(500));
    }
    assert_int_equal(tally.by_code[TERN_OK], 20);
    assert_int_equal(pings(), 0);
}

static void nothing_is_asked_of_a_peer_that_owes_nothing(void **state)
{
    (void)state;
    start_call(&tally, false, 1000);
    sim_run_for(sim.sched, ms_to_ns(30000));
    assert_int_equal(pings(), 0);
    sim_net_cut(net, SERVER_HOST, CLIENT_HOST);
    sim_run_for(sim.sched, ms_to_ns(30000));
    assert_true(rpc_peer_up(peer)); /* nobody has asked, nobody knows */
    assert_int_equal(downs, 0);
    sim_net_heal_all(net);
}

/* ---- silence ---- */

static void silence_ends_all_calls_within_two_and_a_half_seconds(void **state)
{
    (void)state;
    int64_t begun_ms = now_ms();
    for (int i = 0; i < 50; i++)
        start_call(&tally, true, 60000);
    sim_run_for(sim.sched, ms_to_ns(100));
    sim_net_cut(net, SERVER_HOST, CLIENT_HOST);
    sim_run_for(sim.sched, ms_to_ns(DROP_MS - 200));
    assert_int_equal(tally.done, 0);
    sim_run_for(sim.sched, ms_to_ns(300));
    assert_int_equal(tally.by_code[TERN_CONNECTION_LOST], 50);
    assert_in_range(tally.ended_ms - begun_ms, DROP_MS - 100, DROP_MS + 100);
    assert_false(rpc_peer_up(peer));
    assert_true(rpc_peer_down(peer));
    assert_int_equal(downs, 1);
    sim_net_heal_all(net);
}

/* Its deadlines are shorter than the silence: no call is ever open for long. */
static void impatient_callers_notice_it_too(void **state)
{
    (void)state;
    sim_net_cut(net, SERVER_HOST, CLIENT_HOST);
    for (int i = 0; i < 12; i++) {
        start_call(&tally, false, 200);
        sim_run_for(sim.sched, ms_to_ns(250));
    }
    assert_int_equal(downs, 1);
    assert_false(rpc_peer_up(peer));
    sim_net_heal_all(net);
}

static void a_call_after_a_long_pause_has_its_full_time(void **state)
{
    (void)state;
    start_call(&tally, false, 1000);
    sim_run_for(sim.sched, ms_to_ns(60000));
    sim_net_cut(net, SERVER_HOST, CLIENT_HOST);
    start_call(&tally, true, 60000);
    sim_run_for(sim.sched, ms_to_ns(DROP_MS - 100));
    assert_int_equal(downs, 0);
    sim_run_for(sim.sched, ms_to_ns(200));
    assert_int_equal(downs, 1);
    assert_int_equal(tally.by_code[TERN_CONNECTION_LOST], 1);
    sim_net_heal_all(net);
}

static void silence_off_leaves_calls_to_their_deadlines(void **state)
{
    (void)state;
    stop_client();
    start_client(0);
    start_call(&tally, true, 20000);
    sim_run_for(sim.sched, ms_to_ns(100));
    sim_net_cut(net, SERVER_HOST, CLIENT_HOST);
    sim_run_for(sim.sched, ms_to_ns(19000));
    assert_int_equal(tally.done, 0);
    assert_int_equal(pings(), 0);
    sim_run_for(sim.sched, ms_to_ns(1000));
    assert_int_equal(tally.by_code[TERN_TIMEOUT], 1);
    sim_net_heal_all(net);
}

/* ---- coming back ---- */

static void it_is_up_again_with_its_first_answer(void **state)
{
    (void)state;
    start_call(&tally, true, 60000);
    sim_run_for(sim.sched, ms_to_ns(100));
    sim_net_cut(net, SERVER_HOST, CLIENT_HOST);
    sim_run_for(sim.sched, ms_to_ns(5000));
    assert_false(rpc_peer_up(peer));
    sim_net_heal_all(net);
    sim_run_for(sim.sched, ms_to_ns(6000)); /* an attempt under way lives its time out */
    assert_true(rpc_peer_up(peer));
    assert_false(rpc_peer_down(peer));
    assert_int_equal(ups, 2);
    start_call(&tally, false, 1000);
    sim_run_for(sim.sched, ms_to_ns(10));
    assert_int_equal(tally.by_code[TERN_OK], 1);
}

/* Connected, but nobody answers: the process is stopped, its kernel is not. */
static void a_connection_without_an_answer_does_not_count(void **state)
{
    (void)state;
    start_call(&tally, true, 60000);
    sim_run_for(sim.sched, ms_to_ns(100));
    sim_net_cut(net, SERVER_HOST, CLIENT_HOST);
    sim_run_for(sim.sched, ms_to_ns(DROP_MS + 100));
    assert_int_equal(downs, 1);
    sim_net_set_delay(net, 0, 0);
    sim_net_heal_all(net);
    /* Everything that is sent on the new connection is lost on its way. */
    sim_net_hold_messages(net, true);
    sim_run_for(sim.sched, ms_to_ns(8000));
    assert_int_equal(ups, 1);
    assert_false(rpc_peer_up(peer));
    assert_true(rpc_peer_down(peer));
    sim_net_hold_messages(net, false);
    sim_run_for(sim.sched, ms_to_ns(3000));
    assert_int_equal(ups, 2);
    assert_true(rpc_peer_up(peer));
}

static void a_full_peer_can_still_be_pinged(void **state)
{
    (void)state;
    for (int i = 0; i < 4088; i++)
        start_call(&tally, true, 60000);
    struct rpc_call *one_more;
    assert_int_equal(rpc_call_create(peer, 0, &one_more), TERN_LIMIT);
    sim_run_for(sim.sched, ms_to_ns(5000));
    assert_true(pings() >= 3);
    assert_int_equal(tally.done, 0);
}

static void a_destroyed_client_ends_its_ping(void **state)
{
    (void)state;
    start_call(&tally, true, 60000);
    sim_run_for(sim.sched, ms_to_ns(100));
    sim_net_cut(net, SERVER_HOST, CLIENT_HOST);
    sim_run_for(sim.sched, ms_to_ns(1500)); /* the ping is out */
    stop_client();
    assert_int_equal(tally.by_code[TERN_CANCELED], 1);
    sim_net_heal_all(net);
    start_client(SILENCE_MS);
}

int main(void)
{
#define TEST_(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST_(a_parked_call_is_pinged_beside_once_per_silence),
        TEST_(answers_that_flow_need_no_ping),
        TEST_(nothing_is_asked_of_a_peer_that_owes_nothing),
        TEST_(silence_ends_all_calls_within_two_and_a_half_seconds),
        TEST_(impatient_callers_notice_it_too),
        TEST_(a_call_after_a_long_pause_has_its_full_time),
        TEST_(silence_off_leaves_calls_to_their_deadlines),
        TEST_(it_is_up_again_with_its_first_answer),
        TEST_(a_connection_without_an_answer_does_not_count),
        TEST_(a_full_peer_can_still_be_pinged),
        TEST_(a_destroyed_client_ends_its_ping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
