/*
 * The nameserver behind its wire messages, on virtual time and a simulated disk: what brokers,
 * clients and tools get for what they ask.
 */
#include "tests/unit/namesrv/namesrv_world.h"

enum { TOPICS_MANY = 5000 };

/* ---- routes (N-2) ---- */

static void route_names_queues_and_addresses_of_each_broker(void **state)
{
    struct world *w = *state;
    struct told other = master();
    other.broker = "broker-b";
    other.address = "10.0.0.3:10911";
    other.store = 3;
    other.peer = 3;
    register_with(w, other, "T", NULL);
    register_with(w, master(), "T", NULL);
    assert_int_equal(register_broker(w, slave())->code, 0);
    const TernResponse *response = route(w, "T");
    assert_int_equal(response->code, 0);
    assert_int_equal(response->route->n_queues, 2);
    assert_int_equal(response->route->n_brokers, 2);
    assert_true(is_text(&response->route->queues[0]->broker_name, "broker-a"));
    assert_int_equal(response->route->queues[0]->read_queues, 8);
    assert_int_equal(response->route->queues[0]->write_queues, 4);
    assert_int_equal(response->route->queues[0]->perm, 6);
    const Tern__Wire__BrokerData *broker = response->route->brokers[0];
    assert_true(is_text(&broker->cluster_name, "C"));
    assert_int_equal(broker->n_addresses, 2);
    assert_int_equal(broker->addresses[0]->broker_id, 0);
    assert_true(is_text(&broker->addresses[0]->address, "10.0.0.1:10911"));
    assert_int_equal(broker->addresses[1]->broker_id, 1);
    assert_true(is_text(&response->route->brokers[1]->broker_name, "broker-b"));
}

static void route_offers_the_slave_when_the_masters_connection_is_gone(void **state)
{
    struct world *w = *state;
    register_with(w, master(), "T", NULL);
    register_broker(w, slave());
    direct_peer_gone(w->link, 1);
    const TernResponse *response = route(w, "T");
    assert_int_equal(response->code, 0);
    assert_int_equal(response->route->n_queues, 1);
    assert_int_equal(response->route->brokers[0]->n_addresses, 1);
    assert_int_equal(response->route->brokers[0]->addresses[0]->broker_id, 1);
}

static void route_does_not_offer_a_slave_that_serves_no_pulls(void **state)
{
    struct world *w = *state;
    struct told told = slave();
    told.unreadable = true;
    register_with(w, master(), "T", NULL);
    register_broker(w, told);
    assert_int_equal(route(w, "T")->route->brokers[0]->n_addresses, 1);
    direct_peer_gone(w->link, 1);
    assert_int_equal(route(w, "T")->code, CODE(TOPIC_NOT_EXIST));
}

static void unknown_topic_is_topic_not_exist_and_names_it(void **state)
{
    struct world *w = *state;
    register_with(w, master(), "T", NULL);
    const TernResponse *response = route(w, "Unknown"); /* N-4 */
    assert_int_equal(response->code, CODE(TOPIC_NOT_EXIST));
    assert_contains(response->remark, "Unknown");
    direct_peer_gone(w->link, 1);
    assert_int_equal(route(w, "T")->code, CODE(TOPIC_NOT_EXIST));
}

static void silent_broker_is_dropped_with_its_connection(void **state)
{
    struct world *w = *state;
    register_with(w, master(), "T", NULL);
    sim_run_for(w->sim.sched, ms_to_ns(119000));
    assert_int_equal(route(w, "T")->code, 0);
    sim_run_for(w->sim.sched, ms_to_ns(12000)); /* 120 s and one scan */
    assert_int_equal(route(w, "T")->code, CODE(TOPIC_NOT_EXIST));
    assert_int_equal(direct_closed_peer(w->link), 1);
    assert_int_equal(sim_log_count(&w->sim, "reason=silent"), 1);
}

static void broker_that_registers_every_30_s_stays(void **state)
{
    struct world *w = *state;
    register_with(w, master(), "T", NULL);
    for (int i = 0; i < 20; i++) {
        sim_run_for(w->sim.sched, ms_to_ns(30000));
        assert_false(register_broker(w, master())->register_broker->need_topics);
    }
    assert_int_equal(route(w, "T")->code, 0);
}

static void many_topics_are_registered_listed_and_routed(void **state)
{
    struct world *w = *state;
    static Tern__Wire__TopicConfig topics[TOPICS_MANY];
    static Tern__Wire__TopicConfig *pointers[TOPICS_MANY];
    static char names[TOPICS_MANY][24];
    struct told told = master();
    for (int i = 0; i < TOPICS_MANY; i++) {
        snprintf(names[i], sizeof names[i], "Topic-%05d", TOPICS_MANY - 1 - i);
        tern__wire__topic_config__init(&topics[i]);
        topics[i].name = text(names[i]);
        topics[i].read_queues = topics[i].write_queues = 4;
        topics[i].perm = 6;
        pointers[i] = &topics[i];
    }
    told.topics = pointers;
    told.topic_count = TOPICS_MANY;
    assert_int_equal(register_broker(w, told)->code, 0);
    const TernResponse *response = topic_list(w, "");
    assert_int_equal(response->topic_list->n_topics, TOPICS_MANY);
    assert_true(is_text(&response->topic_list->topics[0], "Topic-00000"));
    assert_true(is_text(&response->topic_list->topics[TOPICS_MANY - 1], "Topic-04999"));
    assert_int_equal(route(w, "Topic-02500")->route->queues[0]->write_queues, 4);
}

/* ---- registering (N-1) ---- */

static void slave_is_told_its_masters_addresses(void **state)
{
    struct world *w = *state;
    register_with(w, master(), "T", NULL);
    const TernResponse *response = register_broker(w, slave());
    assert_true(is_text(&response->register_broker->master_address, "10.0.0.1:10911"));
    assert_true(is_text(&response->register_broker->master_ha_address, "10.0.0.1:10912"));
    assert_false(response->register_broker->need_topics);
}

static void second_master_of_a_name_is_refused_with_both_addresses(void **state)
{
    struct world *w = *state;
    struct told second = master();
    second.address = "10.0.0.9:10911";
    second.store = 9;
    second.peer = 9;
    register_with(w, master(), "T", NULL);
    const TernResponse *response = register_with(w, second, "U", NULL);
    assert_int_equal(response->code, CODE(NAME_CONFLICT));
    assert_contains(response->remark, "10.0.0.1:10911");
    assert_contains(response->remark, "10.0.0.9:10911");
    assert_int_equal(route(w, "U")->code, CODE(TOPIC_NOT_EXIST));
    direct_peer_gone(w->link, 9); /* the refused one's connection is nobody's */
    assert_int_equal(route(w, "T")->code, 0);
}

static void unregistered_broker_is_gone_at_once(void **state)
{
    struct world *w = *state;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__UnregisterBrokerRequest body = TERN__WIRE__UNREGISTER_BROKER_REQUEST__INIT;
    body.cluster_name = text("C");
    body.broker_name = text("broker-a");
    body.address = text("10.0.0.1:10911");
    request.body_case = TERN__WIRE__REQUEST__BODY_UNREGISTER_BROKER;
    request.unregister_broker = &body;
    register_with(w, master(), "T", NULL);
    assert_int_equal(ask(w, 1, &request)->code, 0);
    assert_int_equal(route(w, "T")->code, CODE(TOPIC_NOT_EXIST));
    assert_int_equal(ask(w, 1, &request)->code, 0);
}

/* SE-02: what becomes part of a table, a log or an address is checked first. */
static void malformed_registrations_are_refused_by_field(void **state)
{
    static const struct {
        const char *cluster, *broker, *address, *topic, *field;
    } cases[] = {
        {"../C", "b", "h:1", "T", "cluster_name"},
        {"", "b", "h:1", "T", "cluster_name"},
        {"C", "a b", "h:1", "T", "broker_name"},
        {"C", "b\n", "h:1", "T", "broker_name"},
        {"C", "b", "", "T", "address"},
        {"C", "b", "host", "T", "address"},
        {"C", "b", "h:0", "T", "address"},
        {"C", "b", "h:65536", "T", "address"},
        {"C", "b", "h:1x", "T", "address"},
        {"C", "b", ":1", "T", "address"},
        {"C", "b", "h/x:1", "T", "address"},
        {"C", "b", "[::1:1", "T", "address"},
        {"C", "b", "0.0.0.0:1", "T", "advertiseAddr"},
        {"C", "b", "[::]:1", "T", "advertiseAddr"},
        {"C", "b", "h:1", "../../x", "topics[0]"},
        {"C", "b", "h:1", "", "topics[0]"},
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct told told = master();
        told.cluster = cases[i].cluster;
        told.broker = cases[i].broker;
        told.address = cases[i].address;
        const TernResponse *response = register_with(w, told, cases[i].topic, NULL);
        assert_int_equal(response->code, CODE(INVALID_REQUEST));
        assert_contains(response->remark, cases[i].field);
    }
    struct told v6 = master();
    v6.address = "[2001:db8::1]:10911";
    assert_int_equal(register_with(w, v6, "T", NULL)->code, 0);
}

static void numbers_out_of_range_are_refused(void **state)
{
    struct world *w = *state;
    Tern__Wire__TopicConfig topic = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__TopicConfig *pointer = &topic;
    struct told told = master();
    told.id = -1;
    assert_int_equal(register_with(w, told, "T", NULL)->code, CODE(INVALID_REQUEST));
    told = master();
    told.topics = &pointer;
    told.topic_count = 1;
    topic.name = text("T");
    topic.read_queues = 65537;
    assert_int_equal(register_broker(w, told)->code, CODE(INVALID_REQUEST));
    topic.read_queues = -1;
    assert_int_equal(register_broker(w, told)->code, CODE(INVALID_REQUEST));
    topic.read_queues = 0;
    topic.perm = 16;
    assert_int_equal(register_broker(w, told)->code, CODE(INVALID_REQUEST));
    topic.perm = 6;
    assert_int_equal(register_broker(w, told)->code, 0);
}

/* ---- tools (N-3) ---- */

static void clusters_are_listed_with_all_their_brokers(void **state)
{
    struct world *w = *state;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__ClusterInfoRequest body = TERN__WIRE__CLUSTER_INFO_REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_CLUSTER_INFO;
    request.cluster_info = &body;
    assert_int_equal(ask(w, 99, &request)->cluster_info->n_brokers, 0);
    register_broker(w, master());
    register_broker(w, slave());
    const TernResponse *response = ask(w, 99, &request);
    assert_int_equal(response->cluster_info->n_brokers, 1);
    assert_int_equal(response->cluster_info->brokers[0]->n_addresses, 2);
}

static void topics_are_listed_sorted_and_by_cluster(void **state)
{
    struct world *w = *state;
    struct told other = slave();
    other.cluster = "D";
    other.broker = "broker-d";
    other.id = 0;
    register_with(w, master(), "b", "a");
    register_with(w, other, "b", "ab");
    const Tern__Wire__TopicListResponse *list = topic_list(w, "")->topic_list;
    assert_int_equal(list->n_topics, 3);
    assert_true(is_text(&list->topics[0], "a"));
    assert_true(is_text(&list->topics[1], "ab"));
    assert_true(is_text(&list->topics[2], "b"));
    list = topic_list(w, "C")->topic_list;
    assert_int_equal(list->n_topics, 2);
    assert_int_equal(topic_list(w, "X")->topic_list->n_topics, 0);
    assert_int_equal(topic_list(w, "x/y")->code, CODE(INVALID_REQUEST));
}

static void wiped_broker_loses_write_permission_in_routes(void **state)
{
    struct world *w = *state;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__WipeWritePermRequest body = TERN__WIRE__WIPE_WRITE_PERM_REQUEST__INIT;
    body.broker_name = text("broker-a");
    request.body_case = TERN__WIRE__REQUEST__BODY_WIPE_WRITE_PERM;
    request.wipe_write_perm = &body;
    register_with(w, master(), "T", "U");
    assert_int_equal(ask(w, 99, &request)->wipe_write_perm->topics, 2);
    assert_int_equal(route(w, "T")->route->queues[0]->perm, 4);
    body.restore = true;
    assert_int_equal(ask(w, 99, &request)->wipe_write_perm->topics, 2);
    assert_int_equal(route(w, "T")->route->queues[0]->perm, 6);
}

static void deleted_topic_route_is_gone(void **state)
{
    struct world *w = *state;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__DeleteTopicRouteRequest body = TERN__WIRE__DELETE_TOPIC_ROUTE_REQUEST__INIT;
    body.topic = text("T");
    request.body_case = TERN__WIRE__REQUEST__BODY_DELETE_TOPIC_ROUTE;
    request.delete_topic_route = &body;
    register_with(w, master(), "T", "U");
    assert_int_equal(ask(w, 99, &request)->code, 0);
    assert_int_equal(route(w, "T")->code, CODE(TOPIC_NOT_EXIST));
    assert_int_equal(route(w, "U")->code, 0);
    assert_int_equal(ask(w, 99, &request)->code, 0);
}

static void kv_entries_are_put_got_listed_and_deleted(void **state)
{
    struct world *w = *state;
    assert_int_equal(kv(w, KV(GET), "N", "k", "")->code, CODE(QUERY_NOT_FOUND));
    assert_int_equal(kv(w, KV(PUT), "N", "k", "v")->code, 0);
    assert_int_equal(kv(w, KV(PUT), "N", "j", "u")->code, 0);
    const TernResponse *response = kv(w, KV(GET), "N", "k", "");
    assert_int_equal(response->kv->n_entries, 1);
    assert_string_equal(response->kv->entries[0]->value, "v");
    response = kv(w, KV(LIST), "N", "", "");
    assert_int_equal(response->kv->n_entries, 2);
    assert_string_equal(response->kv->entries[0]->key, "j");
    assert_int_equal(kv(w, KV(DELETE), "N", "k", "")->code, 0);
    assert_int_equal(kv(w, KV(GET), "N", "k", "")->code, CODE(QUERY_NOT_FOUND));
    assert_int_equal(kv(w, (Tern__Wire__KvRequest__Operation)9, "N", "k", "")->code,
                     CODE(INVALID_REQUEST));
    assert_int_equal(kv(w, KV(PUT), "", "k", "v")->code, CODE(INVALID_REQUEST));
}

static void kv_change_that_cannot_be_written_is_an_error(void **state)
{
    struct world *w = *state;
    struct sim_fs_fault fault = {
        .op = SIM_FS_SYNC, .nth = 1, .errno_value = 5 /* EIO */, .forever = true};
    assert_int_equal(kv(w, KV(PUT), "N", "k", "v")->code, 0);
    sim_fs_fail(w->sim.fs, &fault);
    assert_int_equal(kv(w, KV(PUT), "N", "k", "w")->code, CODE(SYSTEM_ERROR));
    sim_fs_fail_clear(w->sim.fs);
    assert_string_equal(kv(w, KV(GET), "N", "k", "")->kv->entries[0]->value, "v");
}

static void kv_changes_beyond_the_queue_are_told_busy_and_a_stop_answers_the_rest(void **state)
{
    struct world *w = *state;
    enum { SENT = 300, QUEUE = 256 };
    struct direct_call *calls[SENT];
    for (int i = 0; i < SENT; i++) { /* the KV task does not run meanwhile */
        TernRequest request = TERN__WIRE__REQUEST__INIT;
        Tern__Wire__KvRequest body = TERN__WIRE__KV_REQUEST__INIT;
        body.operation = KV(PUT);
        body.namespace_ = body.key = body.value = (char *)(uintptr_t) "x";
        request.body_case = TERN__WIRE__REQUEST__BODY_KV;
        request.kv = &body;
        calls[i] = direct_send(w->link, 99, &request);
    }
    for (int i = 0; i < SENT; i++) {
        assert_int_equal(calls[i]->response != NULL, i >= QUEUE);
        if (i >= QUEUE)
            assert_int_equal(calls[i]->response->code, CODE(SYSTEM_BUSY));
    }
    namesrv_stop(w->ns);
    for (int i = 0; i < SENT; i++) {
        assert_non_null(calls[i]->response);
        if (i < QUEUE)
            assert_int_equal(calls[i]->response->code, CODE(SERVICE_NOT_AVAILABLE));
        direct_call_free(calls[i]);
    }
}

static void requests_of_brokers_are_refused_clearly(void **state)
{
    struct world *w = *state;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__PullRequest body = TERN__WIRE__PULL_REQUEST__INIT;
    request.body_case = TERN__WIRE__REQUEST__BODY_PULL;
    request.pull = &body;
    assert_int_equal(ask(w, 99, &request)->code, CODE(REQUEST_CODE_NOT_SUPPORTED));
}

static void counters_tell_what_happened(void **state)
{
    struct world *w = *state;
    struct namesrv_stats stats;
    register_with(w, master(), "T", NULL);
    register_broker(w, slave());
    route(w, "T");
    route(w, "U");
    direct_peer_gone(w->link, 2);
    namesrv_stats(w->ns, &stats);
    assert_int_equal(stats.registrations, 2);
    assert_int_equal(stats.routes, 1);
    assert_int_equal(stats.routes_missing, 1);
    assert_int_equal(stats.brokers_disconnected, 1);
    assert_int_equal(stats.brokers, 1);
    assert_int_equal(stats.topics, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(route_names_queues_and_addresses_of_each_broker),
        CASE(route_offers_the_slave_when_the_masters_connection_is_gone),
        CASE(route_does_not_offer_a_slave_that_serves_no_pulls),
        CASE(unknown_topic_is_topic_not_exist_and_names_it),
        CASE(silent_broker_is_dropped_with_its_connection),
        CASE(broker_that_registers_every_30_s_stays),
        CASE(many_topics_are_registered_listed_and_routed),
        CASE(slave_is_told_its_masters_addresses),
        CASE(second_master_of_a_name_is_refused_with_both_addresses),
        CASE(unregistered_broker_is_gone_at_once),
        CASE(malformed_registrations_are_refused_by_field),
        CASE(numbers_out_of_range_are_refused),
        CASE(clusters_are_listed_with_all_their_brokers),
        CASE(topics_are_listed_sorted_and_by_cluster),
        CASE(wiped_broker_loses_write_permission_in_routes),
        CASE(deleted_topic_route_is_gone),
        CASE(kv_entries_are_put_got_listed_and_deleted),
        CASE(kv_change_that_cannot_be_written_is_an_error),
        CASE(kv_changes_beyond_the_queue_are_told_busy_and_a_stop_answers_the_rest),
        CASE(requests_of_brokers_are_refused_clearly),
        CASE(counters_tell_what_happened),
    };
    return cmocka_run_group_tests_name("namesrv", tests, NULL, NULL);
}
