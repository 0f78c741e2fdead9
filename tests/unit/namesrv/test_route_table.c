/* The nameserver's tables by themselves: who comes, who goes, what the route then shows. */
#include "tests/unit/namesrv/route_world.h"

/* ---- registering (N-1) ---- */

static void registered_broker_and_its_topics_are_found(void **state)
{
    struct world *w = *state;
    enter_master(w);
    assert_true(w->done.joined);
    assert_true(w->done.table_replaced);
    assert_string_equal(member(w, "broker-a", 0)->address, "A:1");
    assert_int_equal(find(w, "T1")->row_count, 1);
    assert_int_equal(find(w, "T1")->rows[0].read_queues, 4);
    assert_null(find(w, "T3"));
}

static void topics_missing_from_a_new_version_vanish(void **state)
{
    struct world *w = *state;
    struct route_topic_config topics[] = {topic("T2"), topic("T3")};
    enter_master(w);
    assert_int_equal(enter_with(w, broker("broker-a", 0, "A:1", 1, 1), 8, topics, 2), TERN_OK);
    assert_null(find(w, "T1"));
    assert_non_null(find(w, "T2"));
    assert_non_null(find(w, "T3"));
    assert_int_equal(w->table.row_count, 2);
}

static void topics_of_other_brokers_stay_when_a_table_is_replaced(void **state)
{
    struct world *w = *state;
    struct route_topic_config topics[] = {topic("T1")};
    enter_master(w);
    assert_int_equal(enter_with(w, broker("broker-b", 0, "B:1", 2, 2), 1, topics, 1), TERN_OK);
    assert_int_equal(enter_with(w, broker("broker-a", 0, "A:1", 1, 1), 8, NULL, 0), TERN_OK);
    assert_int_equal(find(w, "T1")->row_count, 1);
    assert_string_equal(find(w, "T1")->rows[0].set->name, "broker-b");
    assert_null(find(w, "T2"));
}

static void known_version_needs_no_topics(void **state)
{
    struct world *w = *state;
    struct route_registration reg = broker("broker-a", 0, "A:1", 1, 1);
    enter_master(w);
    reg.topics_version = 7;
    assert_int_equal(enter(w, reg), TERN_OK);
    assert_false(w->done.need_topics);
    assert_non_null(find(w, "T1"));
}

static void unknown_version_without_topics_is_asked_for_them(void **state)
{
    struct world *w = *state;
    struct route_registration reg = broker("broker-a", 0, "A:1", 1, 1);
    reg.topics_version = 7;
    assert_int_equal(enter(w, reg), TERN_OK);
    assert_true(w->done.need_topics);
    assert_non_null(member(w, "broker-a", 0));
    enter_master(w);
    reg.topics_version = 8;
    assert_int_equal(enter(w, reg), TERN_OK);
    assert_true(w->done.need_topics);
    assert_non_null(find(w, "T1")); /* until they come */
}

static void topic_named_twice_in_one_table_counts_once(void **state)
{
    struct world *w = *state;
    struct route_topic_config topics[] = {topic("T1"), topic("T1")};
    topics[1].read_queues = 9;
    assert_int_equal(enter_with(w, broker("broker-a", 0, "A:1", 1, 1), 1, topics, 2), TERN_OK);
    assert_int_equal(w->table.row_count, 1);
    assert_int_equal(find(w, "T1")->rows[0].read_queues, 9);
}

static void slave_learns_its_masters_addresses(void **state)
{
    struct world *w = *state;
    struct route_registration master = broker("broker-a", 0, "A:1", 1, 1);
    master.ha_address = "A:2";
    assert_int_equal(enter(w, broker("broker-a", 1, "S:1", 2, 2)), TERN_OK);
    assert_string_equal(w->done.master_address, "");
    assert_int_equal(enter(w, master), TERN_OK);
    assert_string_equal(w->done.master_address, "");
    assert_int_equal(enter(w, broker("broker-a", 1, "S:1", 2, 2)), TERN_OK);
    assert_string_equal(w->done.master_address, "A:1");
    assert_string_equal(w->done.master_ha_address, "A:2");
}

static void registration_overtaken_by_a_newer_one_changes_nothing(void **state)
{
    struct world *w = *state;
    struct route_topic_config newer[] = {topic("T1"), topic("T2"), topic("T3")};
    struct route_topic_config older[] = {topic("T1")};
    w->now_ns += SECOND;
    assert_int_equal(enter_with(w, broker("broker-a", 0, "A:1", 1, 1), 9, newer, 3), TERN_OK);
    w->now_ns -= SECOND;
    assert_int_equal(enter_with(w, broker("broker-a", 0, "A:1", 1, 1), 8, older, 1), TERN_OK);
    assert_false(w->done.need_topics);
    assert_non_null(find(w, "T3"));
}

/* ---- identity (NS-02) ---- */

static void same_store_at_a_new_address_replaces_the_old_entry(void **state)
{
    struct world *w = *state;
    enter_master(w);
    struct route_registration reg = broker("broker-a", 0, "A:9", 1, 2);
    reg.topics_version = 7;
    assert_int_equal(enter(w, reg), TERN_OK);
    assert_true(w->done.moved);
    assert_false(w->done.need_topics);
    assert_int_equal(w->table.member_count, 1);
    assert_string_equal(member(w, "broker-a", 0)->address, "A:9");
}

static void other_live_store_under_the_same_name_and_id_is_refused(void **state)
{
    struct world *w = *state;
    enter_master(w);
    w->now_ns += (int64_t)EXPIRE_S * SECOND;
    assert_int_equal(enter(w, broker("broker-a", 0, "B:1", 2, 2)), TERN_NAME_CONFLICT);
    assert_non_null(strstr(w->err.text, "A:1"));
    assert_non_null(strstr(w->err.text, "B:1"));
    assert_string_equal(member(w, "broker-a", 0)->address, "A:1");
    assert_non_null(find(w, "T1"));
}

static void other_store_takes_the_place_of_a_silent_one(void **state)
{
    struct world *w = *state;
    struct route_topic_config topics[] = {topic("T3")};
    enter_master(w);
    w->now_ns += (int64_t)EXPIRE_S * SECOND + 1;
    assert_int_equal(enter_with(w, broker("broker-a", 0, "B:1", 2, 2), 7, topics, 1), TERN_OK);
    assert_string_equal(member(w, "broker-a", 0)->address, "B:1");
    assert_null(find(w, "T1")); /* same version number, another store's table */
    assert_non_null(find(w, "T3"));
}

static void other_store_takes_the_place_of_a_disconnected_one(void **state)
{
    struct world *w = *state;
    enter_master(w);
    assert_int_equal(peer_goes(w, 1), 1);
    assert_int_equal(enter(w, broker("broker-a", 0, "B:1", 2, 2)), TERN_OK);
    assert_true(w->done.joined);
    assert_true(w->done.need_topics);
}

static void name_of_another_cluster_is_refused(void **state)
{
    struct world *w = *state;
    struct route_registration reg = broker("broker-a", 1, "B:1", 2, 2);
    reg.cluster = "D";
    enter_master(w);
    assert_int_equal(enter(w, reg), TERN_NAME_CONFLICT);
    assert_non_null(strstr(w->err.text, "cluster C"));
    assert_non_null(strstr(w->err.text, "cluster D"));
}

static void store_may_move_to_another_cluster(void **state)
{
    struct world *w = *state;
    struct route_registration reg = broker("broker-a", 0, "A:1", 1, 2);
    reg.cluster = "D";
    reg.topics_version = 7;
    enter_master(w);
    assert_int_equal(enter(w, reg), TERN_OK);
    assert_true(w->done.need_topics);
    assert_string_equal(route_find_set(&w->table, "broker-a")->cluster, "D");
    assert_int_equal(w->table.member_count, 1);
    assert_null(find(w, "T1"));
}

static void address_of_another_live_member_is_refused(void **state)
{
    struct world *w = *state;
    enter_master(w);
    assert_int_equal(enter(w, broker("broker-a", 1, "A:1", 2, 2)), TERN_NAME_CONFLICT);
    assert_non_null(strstr(w->err.text, "advertiseAddr"));
}

static void broker_that_changes_its_id_leaves_the_old_one(void **state)
{
    struct world *w = *state;
    enter_master(w);
    assert_int_equal(enter(w, broker("broker-a", 1, "A:1", 1, 2)), TERN_OK);
    assert_null(member(w, "broker-a", 0));
    assert_string_equal(member(w, "broker-a", 1)->address, "A:1");
}

/* ---- going (N-1, N-2) ---- */

static void death_of_its_connection_removes_a_broker_at_once(void **state)
{
    struct world *w = *state;
    struct route_removed removed;
    enter_master(w);
    assert_true(route_peer_gone(&w->table, 1, &removed));
    assert_string_equal(removed.address, "A:1");
    assert_true(removed.set_gone);
    assert_true(removed.peer_free);
    assert_false(route_peer_gone(&w->table, 1, &removed));
    assert_null(route_find_set(&w->table, "broker-a"));
    assert_null(find(w, "T1"));
}

static void death_of_a_stale_connection_removes_nothing(void **state)
{
    struct world *w = *state;
    enter_master(w);
    assert_int_equal(enter(w, broker("broker-a", 0, "A:1", 1, 2)), TERN_OK);
    assert_int_equal(peer_goes(w, 1), 0);
    assert_non_null(member(w, "broker-a", 0));
    assert_int_equal(peer_goes(w, 2), 1);
}

static void registration_handled_after_its_connections_death_does_not_enter(void **state)
{
    struct world *w = *state;
    assert_int_equal(peer_goes(w, 1), 0);
    assert_int_equal(enter(w, broker("broker-a", 0, "A:1", 1, 1)), TERN_CONNECTION_LOST);
    assert_int_equal(w->table.member_count, 0);
}

static void silent_brokers_expire_and_heard_ones_stay(void **state)
{
    struct world *w = *state;
    struct route_removed removed;
    enter_master(w);
    w->now_ns += SECOND;
    assert_int_equal(enter(w, broker("broker-b", 0, "B:1", 2, 2)), TERN_OK);
    w->now_ns += (int64_t)(EXPIRE_S - 1) * SECOND;
    assert_false(route_expire(&w->table, w->now_ns, &removed));
    w->now_ns += 1;
    assert_true(route_expire(&w->table, w->now_ns, &removed));
    assert_string_equal(removed.name, "broker-a");
    assert_false(route_expire(&w->table, w->now_ns, &removed));
    assert_non_null(member(w, "broker-b", 0));
}

static void queues_stay_while_a_slave_lives(void **state)
{
    struct world *w = *state;
    enter_master(w);
    assert_int_equal(enter(w, broker("broker-a", 1, "S:1", 2, 2)), TERN_OK);
    assert_int_equal(peer_goes(w, 1), 1);
    assert_int_equal(find(w, "T1")->row_count, 1);
    assert_int_equal(route_row_perm(&find(w, "T1")->rows[0]), 4);
    assert_true(route_set_routable(find(w, "T1")->rows[0].set));
    assert_null(member(w, "broker-a", 0));
    assert_int_equal(peer_goes(w, 2), 1);
    assert_null(find(w, "T1"));
    assert_int_equal(w->table.row_count, 0);
}

static void unreadable_slave_is_not_shown_to_clients(void **state)
{
    struct world *w = *state;
    struct route_registration slave = broker("broker-a", 1, "S:1", 2, 2);
    slave.readable = false;
    enter_master(w);
    assert_int_equal(enter(w, slave), TERN_OK);
    assert_false(route_member_routable(member(w, "broker-a", 1)));
    assert_true(route_set_routable(route_find_set(&w->table, "broker-a")));
    assert_int_equal(peer_goes(w, 1), 1);
    assert_false(route_set_routable(route_find_set(&w->table, "broker-a")));
}

static void slaves_table_stands_in_until_a_master_sends_one(void **state)
{
    struct world *w = *state;
    struct route_topic_config topics[] = {topic("T1"), topic("T3")};
    struct route_registration slave = broker("broker-a", 1, "S:1", 2, 2);
    assert_int_equal(enter(w, slave), TERN_OK);
    assert_true(w->done.need_topics);
    assert_int_equal(enter_with(w, slave, 7, topics, 2), TERN_OK);
    assert_non_null(find(w, "T3"));
    enter_master(w);
    assert_null(find(w, "T3"));
    assert_non_null(find(w, "T2"));
    assert_int_equal(enter_with(w, slave, 9, topics, 2), TERN_OK);
    assert_false(w->done.table_replaced); /* the master's counts */
    assert_null(find(w, "T3"));
}

static void unreadable_slaves_table_does_not_stand_in(void **state)
{
    struct world *w = *state;
    struct route_topic_config topics[] = {topic("T1")};
    struct route_registration slave = broker("broker-a", 1, "S:1", 2, 2);
    slave.readable = false;
    assert_int_equal(enter_with(w, slave, 7, topics, 1), TERN_OK);
    assert_false(w->done.need_topics);
    assert_null(find(w, "T1"));
}

static void unregistering_needs_the_address_and_connection_of_the_entry(void **state)
{
    struct world *w = *state;
    struct route_removed removed;
    enter_master(w);
    assert_false(route_unregister(&w->table, "broker-a", 0, "A:2", 1, &removed));
    assert_false(route_unregister(&w->table, "broker-a", 0, "A:1", 2, &removed));
    assert_false(route_unregister(&w->table, "broker-a", 1, "A:1", 1, &removed));
    assert_true(route_unregister(&w->table, "broker-a", 0, "A:1", 1, &removed));
    assert_null(find(w, "T1"));
}

/* ---- wiping, deleting (N-3) ---- */

static void wiped_write_permission_lasts_until_the_table_changes(void **state)
{
    struct world *w = *state;
    struct route_topic_config topics[] = {topic("T1"), topic("T2"), topic("T3")};
    struct route_registration reg = broker("broker-a", 0, "A:1", 1, 1);
    enter_master(w);
    assert_int_equal(route_wipe(&w->table, "broker-a", false), 2);
    assert_int_equal(route_row_perm(&find(w, "T1")->rows[0]), 4);
    reg.topics_version = 7;
    assert_int_equal(enter(w, reg), TERN_OK);
    assert_int_equal(enter_with(w, reg, 7, topics, 2), TERN_OK); /* the same version once more */
    assert_int_equal(route_row_perm(&find(w, "T1")->rows[0]), 4);
    assert_int_equal(enter_with(w, reg, 8, topics, 3), TERN_OK);
    assert_int_equal(route_row_perm(&find(w, "T1")->rows[0]), 6);
}

static void restored_write_permission_is_what_was_registered(void **state)
{
    struct world *w = *state;
    struct route_topic_config topics[] = {topic("T1"), topic("TBW102")};
    topics[0].perm = 4;
    topics[1].perm = 7;
    assert_int_equal(enter_with(w, broker("broker-a", 0, "A:1", 1, 1), 7, topics, 2), TERN_OK);
    assert_int_equal(route_wipe(&w->table, "broker-a", false), 2);
    assert_int_equal(route_row_perm(&find(w, "TBW102")->rows[0]), 5);
    assert_int_equal(route_wipe(&w->table, "broker-a", true), 2);
    assert_int_equal(route_row_perm(&find(w, "T1")->rows[0]), 4);
    assert_int_equal(route_row_perm(&find(w, "TBW102")->rows[0]), 7);
    assert_int_equal(route_wipe(&w->table, "broker-z", false), 0);
}

static void topic_is_deleted_in_one_cluster_or_in_all(void **state)
{
    struct world *w = *state;
    struct route_topic_config topics[] = {topic("T1")};
    struct route_registration other = broker("broker-b", 0, "B:1", 2, 2);
    other.cluster = "D";
    enter_master(w);
    assert_int_equal(enter_with(w, other, 1, topics, 1), TERN_OK);
    assert_int_equal(route_delete_topic(&w->table, "T1", 2, "D"), 1);
    assert_string_equal(find(w, "T1")->rows[0].set->name, "broker-a");
    assert_int_equal(route_delete_topic(&w->table, "T1", 2, ""), 1);
    assert_null(find(w, "T1"));
    assert_int_equal(route_delete_topic(&w->table, "T1", 2, ""), 0);
}

/* The set's rows are no version of its table any more: a topic that its broker still has would be
 * missing for ever */
static void topic_that_its_broker_still_has_comes_back(void **state)
{
    struct world *w = *state;
    struct route_registration master = broker("broker-a", 0, "A:1", 1, 1);
    enter_master(w);
    assert_int_equal(route_delete_topic(&w->table, "T1", 2, ""), 1);
    master.topics_version = 7;
    assert_int_equal(enter(w, master), TERN_OK);
    assert_true(w->done.need_topics);
    enter_master(w);
    assert_non_null(find(w, "T1"));
    assert_int_equal(enter(w, master), TERN_OK);
    assert_false(w->done.need_topics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(registered_broker_and_its_topics_are_found),
        CASE(topics_missing_from_a_new_version_vanish),
        CASE(topics_of_other_brokers_stay_when_a_table_is_replaced),
        CASE(known_version_needs_no_topics),
        CASE(unknown_version_without_topics_is_asked_for_them),
        CASE(topic_named_twice_in_one_table_counts_once),
        CASE(slave_learns_its_masters_addresses),
        CASE(registration_overtaken_by_a_newer_one_changes_nothing),
        CASE(same_store_at_a_new_address_replaces_the_old_entry),
        CASE(other_live_store_under_the_same_name_and_id_is_refused),
        CASE(other_store_takes_the_place_of_a_silent_one),
        CASE(other_store_takes_the_place_of_a_disconnected_one),
        CASE(name_of_another_cluster_is_refused),
        CASE(store_may_move_to_another_cluster),
        CASE(address_of_another_live_member_is_refused),
        CASE(broker_that_changes_its_id_leaves_the_old_one),
        CASE(death_of_its_connection_removes_a_broker_at_once),
        CASE(death_of_a_stale_connection_removes_nothing),
        CASE(registration_handled_after_its_connections_death_does_not_enter),
        CASE(silent_brokers_expire_and_heard_ones_stay),
        CASE(queues_stay_while_a_slave_lives),
        CASE(unreadable_slave_is_not_shown_to_clients),
        CASE(slaves_table_stands_in_until_a_master_sends_one),
        CASE(unreadable_slaves_table_does_not_stand_in),
        CASE(unregistering_needs_the_address_and_connection_of_the_entry),
        CASE(wiped_write_permission_lasts_until_the_table_changes),
        CASE(restored_write_permission_is_what_was_registered),
        CASE(topic_is_deleted_in_one_cluster_or_in_all),
        CASE(topic_that_its_broker_still_has_comes_back),
    };
    return cmocka_run_group_tests_name("route_table", tests, NULL, NULL);
}
