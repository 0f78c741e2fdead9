/* Server and client over the simulated network, on virtual time. */
#include "tests/unit/rpc/rpc_world.h"

#include "tests/sim/link/sim_link.h"

static struct sim_env sim;
static struct sim_net *net;
static struct link *server_link, *client_link;
static struct rpc_server *server;
static struct rpc_client *client;
static struct rpc_peer *peer;
static struct rpc_request *parked;
static unsigned parked_count, gone, ups, downs;

static void on_request(void *arg, struct rpc_request *request)
{
    (void)arg;
    if (request->header->body_case == TERN__WIRE__REQUEST__BODY_WAIT_EVENTS) {
        request->next = parked;
        parked = request;
        parked_count++;
        return;
    }
    rpc_reply_ok(request);
}

static unsigned answer_parked(void)
{
    unsigned answered = 0;
    while (parked) {
        struct rpc_request *request = parked;
        parked = request->next;
        parked_count--;
        answered++;
        rpc_reply_ok(request);
    }
    return answered;
}

static void on_peer_gone(void *arg, uint64_t peer_id)
{
    (void)arg;
    (void)peer_id;
    gone++;
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
        .listen = {.address = "10.0.0.1:10911", .max_message_bytes = 1 << 20},
        .arena_budget_bytes = 1 << 20,
        .on_request = on_request,
        .on_peer_gone = on_peer_gone,
    };
    server_link = sim_net_link(net, "10.0.0.1");
    assert_ok(rpc_server_create(&sim.env, server_link, &options, &server, NULL));
}

static void stop_server(void)
{
    rpc_server_stop(server);
    answer_parked();
    rpc_server_destroy(server);
    link_destroy(server_link);
}

static int set_up(void **state)
{
    (void)state;
    parked = NULL;
    parked_count = gone = ups = downs = 0;
    sim_env_init(&sim, 42);
    net = sim_net_create(&sim);
    start_server();
    client_link = sim_net_link(net, "10.0.0.9");
    struct rpc_client_options options = {
        .max_message_bytes = 1 << 20,
        .connect_wait_ms = 500,
        .on_peer_state = on_peer_state,
    };
    assert_ok(rpc_client_create(&sim.env, client_link, &options, &client));
    assert_ok(rpc_peer_get(client, "10.0.0.1:10911", &peer, NULL));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rpc_peer_unref(peer);
    rpc_client_destroy(client);
    link_destroy(client_link);
    stop_server();
    sim_net_destroy(net);
    sim_env_fini(&sim);
    return 0;
}

static enum tern_code call(bool park, int64_t timeout_ms)
{
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__ListTopicsRequest list = TERN__WIRE__LIST_TOPICS_REQUEST__INIT;
    Tern__Wire__WaitEventsRequest wait = TERN__WIRE__WAIT_EVENTS_REQUEST__INIT;
    if (park) {
        header.body_case = TERN__WIRE__REQUEST__BODY_WAIT_EVENTS;
        header.wait_events = &wait;
    } else {
        header.body_case = TERN__WIRE__REQUEST__BODY_LIST_TOPICS;
        header.list_topics = &list;
    }
    return rpc_call_wait(peer, &header, NULL, 0, timeout_ms, NULL, NULL);
}

struct tally {
    unsigned done;
    unsigned by_code[TERN_CODE_COUNT];
};

static void on_tally(struct rpc_call *done, void *arg)
{
    struct tally *tally = arg;
    tally->by_code[rpc_call_result(done)]++;
    tally->done++;
    rpc_call_unref(done);
}

static void start_parked(struct tally *tally, int64_t timeout_ms)
{
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__WaitEventsRequest wait = TERN__WIRE__WAIT_EVENTS_REQUEST__INIT;
    struct rpc_call *started;
    header.body_case = TERN__WIRE__REQUEST__BODY_WAIT_EVENTS;
    header.wait_events = &wait;
    assert_ok(rpc_call_create(peer, 0, &started));
    rpc_call_start(started, &header, 0, timeout_ms, on_tally, tally);
}

static int64_t now_ns(void)
{
    return clock_mono_ns(sim.env.clock);
}

static void call_takes_two_delays(void **state)
{
    (void)state;
    sim_net_set_delay(net, ms_to_ns(5), ms_to_ns(5));
    assert_ok(call(false, 1000)); /* with the connection */
    int64_t begin_ns = now_ns();
    assert_ok(call(false, 1000));
    assert_int_equal(now_ns() - begin_ns, ms_to_ns(10));
    assert_int_equal(sim_net_arrived(net, "10.0.0.1"), 2);
    assert_int_equal(ups, 1);
    assert_int_equal(rpc_server_peers(server), 1);
}

static void unanswered_call_ends_at_its_deadline(void **state)
{
    (void)state;
    assert_ok(call(false, 1000));
    int64_t begin_ns = now_ns();
    assert_int_equal(call(true, 700), TERN_TIMEOUT);
    assert_int_equal(now_ns() - begin_ns, ms_to_ns(700));
    assert_int_equal(answer_parked(), 1); /* too late, and harmless */
    assert_ok(call(false, 1000));
}

static void cut_is_silent_and_healing_delivers(void **state)
{
    (void)state;
    struct tally tally = {0};
    assert_ok(call(false, 1000));
    sim_net_cut(net, "10.0.0.1", "10.0.0.9");
    assert_int_equal(call(false, 300), TERN_TIMEOUT);
    start_parked(&tally, 10000);
    sim_run_for(sim.sched, ms_to_ns(2000));
    assert_int_equal(parked_count, 0);
    assert_int_equal(downs, 0);
    sim_net_heal(net, "10.0.0.9", "10.0.0.1");
    sim_run_for(sim.sched, ms_to_ns(10));
    assert_int_equal(parked_count, 1);
    answer_parked();
    sim_run_for(sim.sched, ms_to_ns(10));
    assert_int_equal(tally.by_code[TERN_OK], 1);
}

static void reset_loses_calls_at_once_and_connects_again(void **state)
{
    (void)state;
    struct tally tally = {0};
    assert_ok(call(false, 1000));
    for (int i = 0; i < 10; i++)
        start_parked(&tally, 10000);
    sim_run_for(sim.sched, ms_to_ns(10));
    assert_int_equal(parked_count, 10);
    sim_net_reset(net, "10.0.0.1", "10.0.0.9");
    assert_int_equal(tally.by_code[TERN_CONNECTION_LOST], 10);
    assert_int_equal(gone, 1);
    assert_int_equal(downs, 1);
    assert_int_equal(answer_parked(), 10);
    assert_ok(call(false, 3000));
    assert_int_equal(ups, 2);
}

static void crashed_server_is_lost_and_its_successor_found(void **state)
{
    (void)state;
    struct tally tally = {0};
    assert_ok(call(false, 1000));
    start_parked(&tally, 10000);
    sim_run_for(sim.sched, ms_to_ns(10));
    sim_net_crash(net, "10.0.0.1");
    sim_run_for(sim.sched, ms_to_ns(10));
    assert_int_equal(tally.by_code[TERN_CONNECTION_LOST], 1);
    assert_int_equal(gone, 0); /* the dead are told nothing */
    int64_t begin_ns = now_ns();
    assert_int_equal(call(false, 5000), TERN_UNREACHABLE);
    assert_int_equal(now_ns() - begin_ns, ms_to_ns(500));
    stop_server();
    start_server();
    sim_run_for(sim.sched, ms_to_ns(3000));
    assert_ok(call(false, 1000));
}

static void crashed_client_cancels_when_it_is_closed(void **state)
{
    (void)state;
    struct tally tally = {0};
    assert_ok(call(false, 1000));
    start_parked(&tally, 60000);
    sim_run_for(sim.sched, ms_to_ns(10));
    sim_net_crash(net, "10.0.0.9");
    sim_run_for(sim.sched, ms_to_ns(5000));
    assert_int_equal(tally.done, 0);
    assert_int_equal(gone, 1);
    rpc_peer_unref(peer);
    rpc_client_destroy(client);
    assert_int_equal(tally.by_code[TERN_CANCELED], 1);
    link_destroy(client_link);
    client_link = sim_net_link(net, "10.0.0.9");
    struct rpc_client_options options = {.max_message_bytes = 1 << 20};
    assert_ok(rpc_client_create(&sim.env, client_link, &options, &client));
    assert_ok(rpc_peer_get(client, "10.0.0.1:10911", &peer, NULL));
    assert_ok(call(false, 1000));
}

static void unused_peer_is_closed_after_a_minute(void **state)
{
    (void)state;
    assert_ok(call(false, 1000));
    rpc_peer_unref(peer);
    sim_run_for(sim.sched, ms_to_ns(59000));
    assert_int_equal(gone, 0);
    sim_run_for(sim.sched, ms_to_ns(2000));
    assert_int_equal(gone, 1);
    assert_ok(rpc_peer_get(client, "10.0.0.1:10911", &peer, NULL));
    assert_ok(call(false, 1000));
}

/* The order in which parked requests arrive, as their suspend time-outs tell. */
static bool arrive_in_order(unsigned count)
{
    struct tally tally = {0};
    for (unsigned i = 0; i < count; i++) {
        TernRequest header = TERN__WIRE__REQUEST__INIT;
        Tern__Wire__WaitEventsRequest wait = TERN__WIRE__WAIT_EVENTS_REQUEST__INIT;
        struct rpc_call *started;
        header.body_case = TERN__WIRE__REQUEST__BODY_WAIT_EVENTS;
        header.wait_events = &wait;
        wait.session = i;
        assert_ok(rpc_call_create(peer, 0, &started));
        rpc_call_start(started, &header, 0, 10000, on_tally, &tally);
    }
    sim_run_for(sim.sched, ms_to_ns(50));
    assert_int_equal(parked_count, count);
    bool in_order = true; /* the list has the last one first */
    unsigned expected = count;
    for (struct rpc_request *request = parked; request; request = request->next)
        in_order &= request->header->wait_events->session == --expected;
    answer_parked();
    sim_run_for(sim.sched, ms_to_ns(50));
    assert_int_equal(tally.by_code[TERN_OK], count);
    return in_order;
}

static void requests_overtake_each_other_unless_ordered(void **state)
{
    (void)state;
    assert_ok(call(false, 1000));
    assert_false(arrive_in_order(100));
    sim_net_set_ordered(net, true);
    assert_true(arrive_in_order(100));
}

int main(void)
{
#define TEST_(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST_(call_takes_two_delays),
        TEST_(unanswered_call_ends_at_its_deadline),
        TEST_(cut_is_silent_and_healing_delivers),
        TEST_(reset_loses_calls_at_once_and_connects_again),
        TEST_(crashed_server_is_lost_and_its_successor_found),
        TEST_(crashed_client_cancels_when_it_is_closed),
        TEST_(unused_peer_is_closed_after_a_minute),
        TEST_(requests_overtake_each_other_unless_ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
