/*
 * Many topics on one broker: made, listed, routed, kept over a restart, at little memory and
 * without a file for a queue that nobody uses.
 */
#include <signal.h>

#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { TOPICS = 5000, QUEUES = 4, IN_FLIGHT = 500, TOPIC_LIMIT_KIB = 20, SAMPLE = 97 };

static void topic_name(char name[24], int i)
{
    snprintf(name, 24, "topic-%d", i);
}

static void make_topics(struct wire *wire)
{
    static struct wire_pending pending[IN_FLIGHT];
    for (int made = 0; made < TOPICS; made += IN_FLIGHT) {
        for (int i = 0; i < IN_FLIGHT; i++) {
            char name[24];
            Tern__Wire__TopicConfig config = TERN__WIRE__TOPIC_CONFIG__INIT;
            Tern__Wire__UpdateTopicRequest body = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
            topic_name(name, made + i);
            config.name = bytes_of_text(name);
            config.read_queues = config.write_queues = QUEUES;
            config.perm = 6;
            body.topic = &config;
            WIRE_REQUEST(request, UPDATE_TOPIC, update_topic, &body);
            wire_start(wire, &request, &pending[i]);
        }
        for (int i = 0; i < IN_FLIGHT; i++) {
            assert_true(wire_wait(&pending[i], PATIENCE_MS));
            assert_int_equal(pending[i].call->response->code, CODE(SUCCESS));
            rpc_call_unref(pending[i].call);
        }
    }
}

static void expect_listed(const struct cluster *cluster, struct wire *broker)
{
    Tern__Wire__ListTopicsRequest body = TERN__WIRE__LIST_TOPICS_REQUEST__INIT;
    WIRE_REQUEST(request, LIST_TOPICS, list_topics, &body);
    struct rpc_call *call = wire_ask(broker, &request, NULL, 0);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    assert_in_range(call->response->list_topics->n_topics, TOPICS, TOPICS + 10);
    rpc_call_unref(call);
    size_t listed = 0;
    char *list = MQADMIN(cluster, 0, "topicList");
    for (const char *at = list; (at = strstr(at, "topic-")); at++)
        listed++;
    assert_int_equal(listed, TOPICS);
    free(list);
}

/* A route as the nameserver gives it: QUEUES queues of the one broker. */
static void expect_routed(struct wire *namesrv)
{
    for (int i = 0; i < TOPICS; i += SAMPLE) {
        char name[24];
        Tern__Wire__RouteRequest body = TERN__WIRE__ROUTE_REQUEST__INIT;
        topic_name(name, i);
        body.topic = bytes_of_text(name);
        WIRE_REQUEST(request, ROUTE, route, &body);
        struct rpc_call *call = wire_ask(namesrv, &request, NULL, 0);
        assert_int_equal(call->response->code, CODE(SUCCESS));
        assert_int_equal(call->response->route->n_queues, 1);
        assert_int_equal(call->response->route->queues[0]->write_queues, QUEUES);
        rpc_call_unref(call);
    }
}

static void five_thousand_topics_are_made_listed_routed_and_cheap(void **state)
{
    struct cluster cluster;
    struct wire broker, namesrv;
    char queues[DAEMON_PATH_BYTES];
    (void)state;
    cluster_up(&cluster, (const char *const[]){"flushDiskType=ASYNC_FLUSH", NULL});
    wire_open(&broker, cluster.broker.address, "127.0.0.1@scale");
    wire_open(&namesrv, cluster.namesrv.address, "127.0.0.1@scale");
    int64_t broker_kib = daemon_rss_kib(&cluster.broker);
    int64_t namesrv_kib = daemon_rss_kib(&cluster.namesrv), begin = now_ms();
    make_topics(&broker);
    int64_t took_ms = now_ms() - begin;
    broker_kib = daemon_rss_kib(&cluster.broker) - broker_kib;
    namesrv_kib = daemon_rss_kib(&cluster.namesrv) - namesrv_kib;
    print_message("%d topics in %lld ms; KiB more: broker %lld, nameserver %lld\n", TOPICS,
                  (long long)took_ms, (long long)broker_kib, (long long)namesrv_kib);
#ifndef __SANITIZE_ADDRESS__
    assert_true(broker_kib < TOPICS * TOPIC_LIMIT_KIB);
    assert_true(namesrv_kib < TOPICS * TOPIC_LIMIT_KIB);
#endif
    expect_listed(&cluster, &broker);
    expect_routed(&namesrv);
    assert_int_equal(files_below(store_file(&cluster, "consumequeue", queues), ""), 0);
    assert_int_equal(wire_send(&broker, "topic-7", 2, "x", NULL), 0);

    assert_int_equal(daemon_stop(&cluster.broker, SIGTERM), 0);
    cluster_start_broker(&cluster);
    print_message("ready again after %lld us\n", (long long)cluster.broker.ready_us);
    assert_int_equal(wire_send(&broker, "topic-7", 2, "x", NULL), 1);
    expect_listed(&cluster, &broker);
    expect_routed(&namesrv);
    wire_close(&namesrv);
    wire_close(&broker);
    cluster_down(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_thousand_topics_are_made_listed_routed_and_cheap),
    };
    return cmocka_run_group_tests_name("scale", tests, NULL, NULL);
}
