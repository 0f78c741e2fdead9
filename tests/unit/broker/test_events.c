/* Events to clients: parking, acknowledging, overflow, restarts, connections and time. */
#include "tests/unit/broker/broker_unit.h"

#include "base/lock.h"
#include "broker/events.h"
#include "tests/unit/broker/fake_rpc.h"

enum { CALLS_MAX = 128 };

static struct sim_env sim;
static struct events *events;
static struct fake_request *calls[CALLS_MAX];
static Tern__Wire__WaitEventsRequest bodies[CALLS_MAX];
static int call_count;

static int setup(void **state)
{
    (void)state;
    sim_env_init(&sim, 16);
    assert_ok(events_create(&sim.env, &events));
    call_count = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    events_destroy(events); /* answers what is parked */
    events = NULL;
    for (int i = 0; i < call_count; i++)
        fake_request_free(calls[i]);
    sim_env_fini(&sim);
    return 0;
}

static struct fake_request *call_full(const char *client, uint64_t peer, uint64_t session,
                                      uint64_t acknowledged, uint32_t suspend_ms,
                                      int64_t timeout_ms)
{
    struct fake_request *request = fake_request_new(sim.env.clock, client, peer, timeout_ms);
    Tern__Wire__WaitEventsRequest *body = &bodies[call_count];
    calls[call_count++] = request;
    tern__wire__wait_events_request__init(body);
    body->session = session;
    body->acknowledged = acknowledged;
    body->suspend_timeout_ms = suspend_ms;
    request->header.body_case = TERN__WIRE__REQUEST__BODY_WAIT_EVENTS;
    request->header.wait_events = body;
    events_wait(events, &request->pub);
    return request;
}

static struct fake_request *call(const char *client, uint64_t session, uint64_t acknowledged)
{
    return call_full(client, 1, session, acknowledged, 15000, 30000);
}

static const Tern__Wire__WaitEventsResponse *answer(const struct fake_request *request)
{
    assert_int_equal(fake_request_code(request), 0);
    assert_int_equal(request->response->body_case, TERN__WIRE__RESPONSE__BODY_WAIT_EVENTS);
    return request->response->wait_events;
}

/* Lets a client learn the session; nothing is pending for it. */
static uint64_t greet(const char *client)
{
    return answer(call_full(client, 1, 0, 0, 0, 30000))->session;
}

static void expect_members_changed(const struct fake_request *request, size_t index,
                                   uint64_t number, const char *group)
{
    const Tern__Wire__WaitEventsResponse *body = answer(request);
    assert_true(index < body->n_events);
    const Tern__Wire__Event *event = body->events[index];
    assert_int_equal(event->number, number);
    assert_int_equal(event->body_case, TERN__WIRE__EVENT__BODY_MEMBERS_CHANGED);
    assert_int_equal(event->members_changed.len, strlen(group));
    assert_memory_equal(event->members_changed.data, group, strlen(group));
}

static void step_after(int64_t ms)
{
    sim_clock_advance(&sim.clock, ms_to_ns(ms));
    events_step(events, clock_mono_ns(sim.env.clock));
}

/* ---- waiting ---- */

static void call_parks_until_an_event_comes(void **state)
{
    (void)state;
    struct fake_request *request = call("c", 0, 0);
    assert_int_equal(request->answers, 0);
    assert_int_equal(events_parked(events), 1);
    events_post_members_changed(events, "other", "G");
    assert_int_equal(request->answers, 0);
    events_post_members_changed(events, "c", "G");
    expect_members_changed(request, 0, 1, "G");
    assert_int_equal(events_parked(events), 0);
}

static void event_posted_before_the_first_call_is_not_lost(void **state)
{
    (void)state;
    events_post_members_changed(events, "c", "G");
    expect_members_changed(call("c", 0, 0), 0, 1, "G");
}

static void reset_event_names_group_and_topic(void **state)
{
    (void)state;
    events_post_offset_reset(events, "c", "G", "T");
    const Tern__Wire__WaitEventsResponse *body = answer(call("c", 0, 0));
    assert_int_equal(body->n_events, 1);
    assert_int_equal(body->events[0]->body_case, TERN__WIRE__EVENT__BODY_OFFSET_RESET);
    assert_memory_equal(body->events[0]->offset_reset->group.data, "G", 1);
    assert_memory_equal(body->events[0]->offset_reset->topic.data, "T", 1);
}

static void without_time_to_wait_the_answer_comes_at_once(void **state)
{
    (void)state;
    const Tern__Wire__WaitEventsResponse *body = answer(call_full("c", 1, 0, 0, 0, 30000));
    assert_int_equal(body->n_events, 0);
    assert_false(body->resync);
    assert_true(body->session != 0);
}

static void time_up_answers_with_nothing(void **state)
{
    (void)state;
    struct fake_request *request = call_full("c", 1, 0, 0, 15000, 30000);
    step_after(14900);
    assert_int_equal(request->answers, 0);
    step_after(400);
    assert_int_equal(answer(request)->n_events, 0);
}

static void call_is_answered_before_its_sender_stops_waiting(void **state)
{
    (void)state;
    struct fake_request *request = call_full("c", 1, 0, 0, 120000, 3000);
    for (int i = 0; i < 12 && !request->answers; i++)
        step_after(250);
    assert_int_equal(request->answers, 1);
    assert_true(request->answered_ns < request->pub.deadline_ns);
}

static void step_after_a_long_pause_still_finds_everything(void **state)
{
    (void)state;
    struct fake_request *one = call_full("a", 1, 0, 0, 100, 300000);
    struct fake_request *two = call_full("b", 2, 0, 0, 120000, 300000);
    step_after(1000000);
    assert_int_equal(one->answers, 1);
    assert_int_equal(two->answers, 1);
}

static void ids_that_are_none_are_refused_SE_02(void **state)
{
    (void)state;
    char id[300];
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = 0;
    assert_int_equal(fake_request_code(call("", 0, 0)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(call("a\nb", 0, 0)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(call(id, 0, 0)), TERN__WIRE__CODE__INVALID_REQUEST);
    assert_int_equal(fake_request_code(call("c", 1, UINT64_MAX)),
                     TERN__WIRE__CODE__INVALID_REQUEST);
}

/* ---- acknowledging ---- */

static void unacknowledged_events_come_again(void **state)
{
    (void)state;
    uint64_t session = greet("c");
    events_post_members_changed(events, "c", "A");
    events_post_members_changed(events, "c", "B");
    struct fake_request *first = call("c", session, 0);
    assert_int_equal(answer(first)->n_events, 2);
    struct fake_request *again = call("c", session, 0); /* the answer was lost */
    expect_members_changed(again, 0, 1, "A");
    expect_members_changed(again, 1, 2, "B");
    struct fake_request *half = call("c", session, 1);
    assert_int_equal(answer(half)->n_events, 1);
    expect_members_changed(half, 0, 2, "B");
    assert_int_equal(call("c", session, 2)->answers, 0);
}

static void same_event_waits_only_once_but_is_sent_anew_after_it_was_sent(void **state)
{
    (void)state;
    uint64_t session = greet("c");
    for (int i = 0; i < 100; i++)
        events_post_members_changed(events, "c", "G");
    struct fake_request *first = call("c", session, 0);
    assert_int_equal(answer(first)->n_events, 1);
    events_post_members_changed(events, "c", "G"); /* a change that the client cannot have seen */
    assert_int_equal(answer(call("c", session, 1))->n_events, 1);
}

static void overflow_says_resync_until_it_is_acknowledged(void **state)
{
    (void)state;
    char group[32];
    uint64_t session = greet("c");
    for (int i = 0; i <= EVENTS_PER_CLIENT; i++) {
        snprintf(group, sizeof group, "G%d", i);
        events_post_members_changed(events, "c", group);
    }
    const Tern__Wire__WaitEventsResponse *body = answer(call("c", session, 0));
    assert_true(body->resync);
    assert_int_equal(body->n_events, 1);
    uint64_t number = body->events[0]->number;
    assert_int_equal(body->events[0]->body_case, TERN__WIRE__EVENT__BODY__NOT_SET);
    assert_true(answer(call("c", session, 0))->resync);
    events_post_members_changed(events, "c", "later");
    body = answer(call("c", session, number));
    assert_false(body->resync);
    assert_int_equal(body->n_events, 1);
    assert_int_equal(body->events[0]->number, number + 1);
}

static void session_of_another_broker_process_gets_resync(void **state)
{
    (void)state;
    struct fake_request *request = call("c", 12345, 900);
    assert_true(answer(request)->resync);
    assert_true(answer(request)->session != 12345);
    uint64_t number = answer(request)->events[0]->number;
    assert_int_equal(call("c", answer(request)->session, number)->answers, 0);
}

static void forgotten_client_gets_resync_and_higher_numbers(void **state)
{
    (void)state;
    uint64_t session = greet("c");
    events_post_members_changed(events, "c", "A");
    assert_int_equal(answer(call("c", session, 0))->n_events, 1);
    step_after(600000);
    events_post_members_changed(events, "c", "B"); /* makes its queue anew */
    const Tern__Wire__WaitEventsResponse *body = answer(call("c", session, 1));
    assert_true(body->resync);
    assert_true(body->events[0]->number > 1);
    assert_int_equal(call("c", session, body->events[0]->number)->answers, 0);
}

static void number_that_was_never_sent_gets_resync(void **state)
{
    (void)state;
    uint64_t session = greet("c");
    assert_true(answer(call("c", session, 40))->resync);
}

/* ---- connections and pressure ---- */

static void newer_call_of_a_client_answers_the_older_with_nothing(void **state)
{
    (void)state;
    struct fake_request *older = call("c", 0, 0);
    struct fake_request *newer = call_full("c", 2, 0, 0, 15000, 30000);
    assert_int_equal(answer(older)->n_events, 0);
    assert_int_equal(newer->answers, 0);
    events_post_members_changed(events, "c", "G");
    expect_members_changed(newer, 0, 1, "G");
}

static void gone_peers_calls_are_dropped_and_its_events_kept(void **state)
{
    (void)state;
    struct fake_request *one = call_full("a", 1, 0, 0, 15000, 30000);
    struct fake_request *two = call_full("b", 1, 0, 0, 15000, 30000);
    struct fake_request *other = call_full("c", 2, 0, 0, 15000, 30000);
    events_peer_gone(events, 1);
    assert_int_equal(one->answers, 1);
    assert_int_equal(two->answers, 1);
    assert_int_equal(other->answers, 0);
    assert_int_equal(events_parked(events), 1);
    events_post_members_changed(events, "a", "G");
    expect_members_changed(call_full("a", 3, 0, 0, 15000, 30000), 0, 1, "G");
}

static void relieving_answers_the_oldest_first(void **state)
{
    (void)state;
    char id[16];
    struct fake_request *oldest = call_full("oldest", 7, 0, 0, 15000, 30000);
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof id, "c%d", i);
        call_full(id, 8, 0, 0, 15000, 30000);
    }
    struct fake_request *newest = call_full("newest", 9, 0, 0, 15000, 30000);
    events_relieve(events, 9);
    assert_int_equal(newest->answers, 1);
    assert_int_equal(oldest->answers, 0);
    events_relieve(events, 0);
    assert_int_equal(oldest->answers, 1);
    assert_true(events_parked(events) > 0);
    events_relieve(events, 1234);
}

static void expect_reply(const struct fake_request *request, size_t index, const char *id,
                         int64_t phys_off)
{
    const Tern__Wire__WaitEventsResponse *body = answer(request);
    assert_true(index < body->n_events);
    const Tern__Wire__Event *event = body->events[index];
    assert_int_equal(event->body_case, TERN__WIRE__EVENT__BODY_REPLY);
    assert_memory_equal(event->reply->correlation_id.data, id, strlen(id));
    assert_int_equal(event->reply->physical_offset, phys_off);
}

static void reply_waits_for_a_client_that_has_not_come_yet(void **state)
{
    (void)state;
    events_post_reply(events, "c", "id-1", 4096);
    events_post_reply(events, "c", "id-1", 8192); /* a second reply is another event */
    struct fake_request *request = call("c", 0, 0);
    assert_int_equal(answer(request)->n_events, 2);
    expect_reply(request, 0, "id-1", 4096);
    expect_reply(request, 1, "id-1", 8192);
}

/* A resync says "read anew", which brings no reply back: they stay, in the order of numbers. */
static void overflow_of_other_events_keeps_replies(void **state)
{
    (void)state;
    uint64_t session = greet("c");
    char group[32];
    events_post_reply(events, "c", "first", 1);
    for (int i = 0; i <= EVENTS_PER_CLIENT; i++) {
        snprintf(group, sizeof group, "G%d", i);
        events_post_members_changed(events, "c", group);
    }
    events_post_reply(events, "c", "last", 2);
    struct fake_request *request = call("c", session, 0);
    const Tern__Wire__WaitEventsResponse *body = answer(request);
    assert_true(body->resync);
    assert_int_equal(body->n_events, 3);
    expect_reply(request, 0, "first", 1);
    assert_int_equal(body->events[1]->body_case, TERN__WIRE__EVENT__BODY__NOT_SET);
    expect_reply(request, 2, "last", 2);
    assert_true(body->events[0]->number < body->events[1]->number &&
                body->events[1]->number < body->events[2]->number);
    struct fake_request *again = call("c", session, body->events[2]->number);
    assert_int_equal(again->answers, 0);
}

static void many_replies_come_in_several_answers_none_is_lost(void **state)
{
    (void)state;
    uint64_t session = greet("c");
    uint64_t seen = 0;
    int got = 0;
    for (int i = 0; i < 600; i++)
        events_post_reply(events, "c", "id", i);
    for (int calls_made = 0; calls_made < 3; calls_made++) {
        const Tern__Wire__WaitEventsResponse *body = answer(call("c", session, seen));
        assert_true(body->n_events <= EVENTS_PER_ANSWER);
        for (size_t i = 0; i < body->n_events; i++, got++)
            assert_int_equal(body->events[i]->reply->physical_offset, got);
        seen = body->events[body->n_events - 1]->number;
    }
    assert_int_equal(got, 600);
    for (int i = 0; i < EVENT_REPLIES_PER_CLIENT + 100; i++)
        events_post_reply(events, "d", "id", i);
    events_post_members_changed(events, "d", "G");
    assert_false(answer(call("d", 0, 0))->resync);
}

static void stopping_answers_everything(void **state)
{
    (void)state;
    struct fake_request *one = call_full("a", 1, 0, 0, 15000, 30000);
    struct fake_request *two = call_full("b", 2, 0, 0, 15000, 30000);
    events_destroy(events);
    assert_int_equal(one->answers, 1);
    assert_int_equal(two->answers, 1);
    assert_ok(events_create(&sim.env, &events));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(call_parks_until_an_event_comes),
        TEST(event_posted_before_the_first_call_is_not_lost),
        TEST(reset_event_names_group_and_topic),
        TEST(without_time_to_wait_the_answer_comes_at_once),
        TEST(time_up_answers_with_nothing),
        TEST(call_is_answered_before_its_sender_stops_waiting),
        TEST(step_after_a_long_pause_still_finds_everything),
        TEST(ids_that_are_none_are_refused_SE_02),
        TEST(unacknowledged_events_come_again),
        TEST(same_event_waits_only_once_but_is_sent_anew_after_it_was_sent),
        TEST(overflow_says_resync_until_it_is_acknowledged),
        TEST(session_of_another_broker_process_gets_resync),
        TEST(forgotten_client_gets_resync_and_higher_numbers),
        TEST(number_that_was_never_sent_gets_resync),
        TEST(newer_call_of_a_client_answers_the_older_with_nothing),
        TEST(gone_peers_calls_are_dropped_and_its_events_kept),
        TEST(relieving_answers_the_oldest_first),
        TEST(reply_waits_for_a_client_that_has_not_come_yet),
        TEST(overflow_of_other_events_keeps_replies),
        TEST(many_replies_come_in_several_answers_none_is_lost),
        TEST(stopping_answers_everything),
    };
    return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
