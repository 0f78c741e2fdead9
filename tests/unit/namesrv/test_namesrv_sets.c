/*
 * What a set's brokers and its consumers get from a nameserver while masters come and go: routes
 * for reading only, the table of whoever may speak for the set, the members of one name.
 */
#include "tests/unit/namesrv/namesrv_world.h"

static const Tern__Wire__SetMember *member_of(const TernResponse *response, int64_t id)
{
    const Tern__Wire__RegisterBrokerResponse *body = response->register_broker;
    assert_int_equal(response->code, 0);
    for (size_t i = 0; i < body->n_members; i++)
        if (body->members[i]->broker_id == id)
            return body->members[i];
    return NULL;
}

static struct told slave_with_ha(void)
{
    struct told told = slave();
    told.ha_address = "10.0.0.2:10912";
    return told;
}

static const TernResponse *unregister(struct world *w, struct told told)
{
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__UnregisterBrokerRequest body = TERN__WIRE__UNREGISTER_BROKER_REQUEST__INIT;
    body.cluster_name = text(told.cluster);
    body.broker_name = text(told.broker);
    body.broker_id = told.id;
    body.address = text(told.address);
    request.body_case = TERN__WIRE__REQUEST__BODY_UNREGISTER_BROKER;
    request.unregister_broker = &body;
    return ask(w, told.peer, &request);
}

/* ---- routes without a master (N-2) ---- */

static void route_without_a_master_is_for_reading_only(void **state)
{
    struct world *w = *state;
    register_with(w, master(), "T", NULL);
    register_broker(w, slave());
    assert_int_equal(route(w, "T")->route->queues[0]->perm, 6);
    direct_peer_gone(w->link, 1);
    const Tern__Wire__RouteResponse *got = route(w, "T")->route;
    assert_int_equal(got->n_queues, 1);
    assert_int_equal(got->queues[0]->perm, 4);
    assert_int_equal(got->queues[0]->read_queues, 8);
    assert_int_equal(got->brokers[0]->addresses[0]->broker_id, 1);
    struct told returned = master();
    returned.peer = 7;
    register_broker(w, returned);
    assert_int_equal(route(w, "T")->route->queues[0]->perm, 6);
}

static void other_sets_keep_their_write_permission(void **state)
{
    struct world *w = *state;
    struct told other = master();
    other.broker = "broker-b";
    other.address = "10.0.0.3:10911";
    other.store = 3;
    other.peer = 3;
    register_with(w, master(), "T", NULL);
    register_broker(w, slave());
    register_with(w, other, "T", NULL);
    direct_peer_gone(w->link, 1);
    const Tern__Wire__RouteResponse *got = route(w, "T")->route;
    assert_int_equal(got->n_queues, 2);
    assert_int_equal(got->queues[0]->perm, 4);
    assert_int_equal(got->queues[1]->perm, 6);
}

/* The nameserver was restarted while the master is down. */
static void slave_alone_brings_its_topics_for_reading_until_the_master_returns(void **state)
{
    struct world *w = *state;
    assert_true(register_broker(w, slave())->register_broker->need_topics);
    register_with(w, slave(), "T", "Old");
    assert_int_equal(route(w, "T")->route->queues[0]->perm, 4);
    struct told returned = master();
    assert_true(register_broker(w, returned)->register_broker->need_topics);
    returned.version = 2;
    register_with(w, returned, "T", "New");
    assert_int_equal(route(w, "T")->route->queues[0]->perm, 6);
    assert_int_equal(route(w, "T")->route->brokers[0]->n_addresses, 2);
    assert_int_equal(route(w, "New")->code, 0);
    assert_int_equal(route(w, "Old")->code, CODE(TOPIC_NOT_EXIST));
}

/* The master told its slave of a new topic, and died before it told the nameserver. */
static void newer_table_of_a_slave_counts_while_no_master_lives(void **state)
{
    struct world *w = *state;
    struct told newer = slave();
    newer.version = 2;
    register_with(w, master(), "T", NULL);
    assert_false(register_broker(w, newer)->register_broker->need_topics);
    direct_peer_gone(w->link, 1);
    assert_true(register_broker(w, newer)->register_broker->need_topics);
    register_with(w, newer, "T", "U");
    assert_int_equal(route(w, "U")->route->queues[0]->perm, 4);
}

static void older_table_of_a_slave_never_counts(void **state)
{
    struct world *w = *state;
    struct told newer = master();
    newer.version = 2;
    register_with(w, newer, "T", "U");
    register_broker(w, slave());
    direct_peer_gone(w->link, 1);
    assert_false(register_broker(w, slave())->register_broker->need_topics);
    register_with(w, slave(), "T", NULL);
    assert_int_equal(route(w, "U")->code, 0);
}

/* C-4: what updateTopic registered is in the route as soon as the registration is answered. */
static void topic_is_routed_when_its_registration_is_answered(void **state)
{
    struct world *w = *state;
    struct told newer = master();
    newer.version = 2;
    register_with(w, master(), "T", NULL);
    assert_int_equal(register_with(w, newer, "T", "U")->code, 0);
    assert_int_equal(route(w, "U")->code, 0);
}

/* ---- members ---- */

static void registration_is_answered_with_the_sets_live_members(void **state)
{
    struct world *w = *state;
    struct told other = master();
    other.broker = "broker-b";
    other.address = "10.0.0.3:10911";
    other.store = 3;
    other.peer = 3;
    register_broker(w, other);
    register_broker(w, master());
    const TernResponse *response = register_broker(w, slave_with_ha());
    assert_int_equal(response->register_broker->n_members, 2);
    const Tern__Wire__SetMember *first = member_of(response, 0);
    const Tern__Wire__SetMember *second = member_of(response, 1);
    assert_true(first && second);
    assert_true(is_text(&first->address, "10.0.0.1:10911"));
    assert_true(is_text(&first->ha_address, "10.0.0.1:10912"));
    assert_int_equal(first->store_uuid.len, 16);
    assert_int_equal(first->store_uuid.data[0], 1);
    assert_true(is_text(&second->address, "10.0.0.2:10911"));
    assert_true(is_text(&second->ha_address, "10.0.0.2:10912"));
    assert_int_equal(second->store_uuid.data[15], 2);
    assert_true(second->readable);
}

static void unreadable_slave_is_a_member_but_in_no_route(void **state)
{
    struct world *w = *state;
    struct told told = slave_with_ha();
    told.unreadable = true;
    register_with(w, master(), "T", NULL);
    register_broker(w, told);
    const Tern__Wire__SetMember *member = member_of(register_broker(w, master()), 1);
    assert_non_null(member);
    assert_false(member->readable);
    assert_int_equal(route(w, "T")->route->brokers[0]->n_addresses, 1);
}

static void member_that_went_or_is_silent_is_not_listed(void **state)
{
    struct world *w = *state;
    register_broker(w, master());
    register_broker(w, slave());
    direct_peer_gone(w->link, 1);
    assert_null(member_of(register_broker(w, slave()), 0));
    struct told again = master();
    again.peer = 7;
    assert_non_null(member_of(register_broker(w, again), 1));
    /* Just beyond 120 s, whether or not a scan has come by since. */
    sim_run_for(w->sim.sched, ms_to_ns(60000));
    register_broker(w, again);
    sim_run_for(w->sim.sched, ms_to_ns(60001));
    assert_null(member_of(register_broker(w, again), 1));
}

/* A detached slave serves nothing. */
static void slave_that_unregisters_is_no_member_and_in_no_route(void **state)
{
    struct world *w = *state;
    register_with(w, master(), "T", NULL);
    register_broker(w, slave());
    assert_int_equal(unregister(w, slave())->code, 0);
    assert_null(member_of(register_broker(w, master()), 1));
    assert_int_equal(route(w, "T")->route->brokers[0]->n_addresses, 1);
    direct_peer_gone(w->link, 1);
    assert_int_equal(route(w, "T")->code, CODE(TOPIC_NOT_EXIST));
}

/* HA-19: the same store came back on another port; its old connection may still seem to live. */
static void master_at_a_new_address_takes_its_old_place(void **state)
{
    struct world *w = *state;
    struct told moved = master();
    moved.address = "10.0.0.1:20911";
    moved.ha_address = "10.0.0.1:20912";
    moved.peer = 8;
    register_with(w, master(), "T", NULL);
    register_broker(w, slave());
    assert_int_equal(register_broker(w, moved)->code, 0);
    const TernResponse *response = register_broker(w, slave());
    assert_int_equal(response->register_broker->n_members, 2);
    assert_true(is_text(&member_of(response, 0)->ha_address, "10.0.0.1:20912"));
    assert_true(is_text(&response->register_broker->master_ha_address, "10.0.0.1:20912"));
    direct_peer_gone(w->link, 1);
    assert_int_equal(route(w, "T")->route->queues[0]->perm, 6);
    assert_true(
        is_text(&route(w, "T")->route->brokers[0]->addresses[0]->address, "10.0.0.1:20911"));
}

static void two_slaves_of_one_id_are_told_apart_by_their_stores(void **state)
{
    struct world *w = *state;
    struct told second = slave();
    second.address = "10.0.0.9:10911";
    second.store = 9;
    second.peer = 9;
    register_broker(w, slave());
    assert_int_equal(register_broker(w, second)->code, CODE(NAME_CONFLICT));
    const Tern__Wire__SetMember *member = member_of(register_broker(w, slave()), 1);
    assert_int_equal(member->store_uuid.data[0], 2);
}

static void set_has_a_most_of_members(void **state)
{
    struct world *w = *state;
    char address[32];
    struct told told = slave();
    const TernResponse *response = NULL;
    told.address = address;
    for (int i = 1; i <= 257; i++) {
        snprintf(address, sizeof address, "10.0.1.%d:%d", i % 200, 1000 + i);
        told.id = i;
        told.store = (uint8_t)i;
        told.peer = 100 + (uint64_t)i;
        response = register_broker(w, told);
        assert_int_equal(response->code, i <= 256 ? 0 : CODE(SYSTEM_BUSY));
    }
    assert_contains(response->remark, "broker-a");
    told.id = 256;
    told.store = 0;
    told.peer = 356;
    snprintf(address, sizeof address, "10.0.1.56:1256");
    assert_int_equal(register_broker(w, told)->register_broker->n_members, 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(route_without_a_master_is_for_reading_only),
        CASE(other_sets_keep_their_write_permission),
        CASE(slave_alone_brings_its_topics_for_reading_until_the_master_returns),
        CASE(newer_table_of_a_slave_counts_while_no_master_lives),
        CASE(older_table_of_a_slave_never_counts),
        CASE(topic_is_routed_when_its_registration_is_answered),
        CASE(registration_is_answered_with_the_sets_live_members),
        CASE(unreadable_slave_is_a_member_but_in_no_route),
        CASE(member_that_went_or_is_silent_is_not_listed),
        CASE(slave_that_unregisters_is_no_member_and_in_no_route),
        CASE(master_at_a_new_address_takes_its_old_place),
        CASE(two_slaves_of_one_id_are_told_apart_by_their_stores),
        CASE(set_has_a_most_of_members),
    };
    return cmocka_run_group_tests_name("namesrv_sets", tests, NULL, NULL);
}
