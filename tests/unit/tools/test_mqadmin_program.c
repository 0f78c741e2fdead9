/*
 * The program mqadmin against a server that plays nameserver, master and slave at once: what it
 * asks, prints and exits with. Real processes on loopback, since the program is what scripts hold
 * on to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/link.h"
#include "rpc/server.h"

struct world {
    struct env env;
    struct log *log;
    struct link *link;
    struct rpc_server *server;
    char address[64];
    _Atomic bool ready; /* the above are set; requests come later, on other threads */
    _Atomic int state;  /* Tern__Wire__HaState that it shows */
    _Atomic int forced, rejoined;
    uint8_t discarded[16]; /* published by forced */
    char output[16384];
};

static ProtobufCBinaryData bytes(const char *value)
{
    return frame_bytes(value, strlen(value));
}

/* broker-a with id 0 and a slave, both at this server. */
static void answer_cluster(struct world *w, struct rpc_request *request)
{
    Tern__Wire__BrokerAddress addresses[2], *address_list[2];
    Tern__Wire__BrokerData broker = TERN__WIRE__BROKER_DATA__INIT, *broker_list[1] = {&broker};
    Tern__Wire__ClusterInfoResponse body = TERN__WIRE__CLUSTER_INFO_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    for (int i = 0; i < 2; i++) {
        tern__wire__broker_address__init(&addresses[i]);
        addresses[i].broker_id = i;
        addresses[i].address = bytes(w->address);
        address_list[i] = &addresses[i];
    }
    broker.cluster_name = bytes("DefaultCluster");
    broker.broker_name = bytes("broker-a");
    broker.addresses = address_list;
    broker.n_addresses = 2;
    body.brokers = broker_list;
    body.n_brokers = 1;
    response.body_case = TERN__WIRE__RESPONSE__BODY_CLUSTER_INFO;
    response.cluster_info = &body;
    rpc_reply(request, &response, 0);
}

static void answer_status(struct world *w, struct rpc_request *request)
{
    static uint8_t uuid[16] = {0xab};
    Tern__Wire__HaMember self = TERN__WIRE__HA_MEMBER__INIT;
    Tern__Wire__HaMember awaited = TERN__WIRE__HA_MEMBER__INIT, *awaited_list[1] = {&awaited};
    Tern__Wire__HaStatusResponse body = TERN__WIRE__HA_STATUS_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    self.state = (Tern__Wire__HaState)atomic_load(&w->state);
    self.cluster_name = bytes("DefaultCluster");
    self.broker_name = bytes("broker-a");
    self.address = bytes(w->address);
    self.log_end = 4096;
    awaited.broker_id = 1;
    awaited.ha_address = bytes("10.0.0.2:10912");
    awaited.store_uuid = (ProtobufCBinaryData){.len = sizeof uuid, .data = uuid};
    body.self = &self;
    body.state_text = (char *)(uintptr_t) "waiting for id 1";
    body.awaited = awaited_list;
    body.n_awaited = self.state == TERN__WIRE__HA_STATE__HA_RECOVERING;
    response.body_case = TERN__WIRE__RESPONSE__BODY_HA_STATUS;
    response.ha_status = &body;
    rpc_reply(request, &response, 0);
}

static void on_request(void *arg, struct rpc_request *request)
{
    struct world *w = arg;
    ENSURE(atomic_load(&w->ready));
    switch (request->header->body_case) {
    case TERN__WIRE__REQUEST__BODY_CLUSTER_INFO:
        answer_cluster(w, request);
        break;
    case TERN__WIRE__REQUEST__BODY_HA_STATUS:
        answer_status(w, request);
        break;
    case TERN__WIRE__REQUEST__BODY_FORCE_OPEN:
        if (request->header->force_open->discard_slave.len == sizeof w->discarded)
            memcpy(w->discarded, request->header->force_open->discard_slave.data,
                   sizeof w->discarded);
        atomic_fetch_add(&w->forced, 1);
        rpc_reply_ok(request);
        break;
    case TERN__WIRE__REQUEST__BODY_REJOIN:
        atomic_fetch_add(&w->rejoined, 1);
        rpc_reply_ok(request);
        break;
    default:
        rpc_reply_error(request, TERN_NOT_SUPPORTED, "not played here");
    }
}

static int set_up(void **state)
{
    static struct world world;
    struct world *w = &world;
    struct tern_error err = {.text = ""};
    memset(w, 0, sizeof *w);
    assert_int_equal(log_create(clock_system(), LOG_ERROR, NULL, NULL, &w->log), TERN_OK);
    env_init_system(&w->env, w->log);
    assert_int_equal(link_nng_create(&w->env, &w->link, &err), TERN_OK);
    struct rpc_server_options options = {.listen = {.address = "127.0.0.1:0",
                                                    .max_message_bytes = frame_max_bytes(0),
                                                    .max_peers = 16,
                                                    .max_requests = 64,
                                                    .max_requests_per_peer = 16,
                                                    .reply_timeout_ms = 5000,
                                                    .idle_close_ms = 60000},
                                         .arena_budget_bytes = 1 << 20,
                                         .arg = w,
                                         .on_request = on_request};
    if (rpc_server_create(&w->env, w->link, &options, &w->server, &err) != TERN_OK)
        fail_msg("rpc_server_create: %s", err.text);
    snprintf(w->address, sizeof w->address, "127.0.0.1:%u", rpc_server_port(w->server));
    atomic_store(&w->ready, true);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    rpc_server_stop(w->server);
    rpc_server_destroy(w->server);
    link_destroy(w->link);
    log_destroy(w->log);
    return 0;
}

/* Runs mqadmin with these arguments behind -n; w->output is what it printed. Returns its status. */
static int run(struct world *w, const char *arguments)
{
    char line[1024];
    char rest[512];
    size_t got;
    snprintf(line, sizeof line, "timeout 60 '%s' %s -n %s 2>&1", MQADMIN_PATH, arguments,
             w->address);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    got = fread(w->output, 1, sizeof w->output - 1, pipe);
    w->output[got] = 0;
    while (fread(rest, 1, sizeof rest, pipe) > 0)
        continue;
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(struct world *w, int status, const char *arguments, const char *part)
{
    int got = run(w, arguments);
    if (got != status || !strstr(w->output, part))
        fail_msg("mqadmin %s: status %d instead of %d, or no \"%s\" in:\n%s", arguments, got,
                 status, part, w->output);
}

static void ha_status_lists_each_member_of_the_set(void **state)
{
    struct world *w = *state;
    atomic_store(&w->state, TERN__WIRE__HA_STATE__HA_OPEN);
    expect(w, 0, "haStatus", "broker-a of DefaultCluster");
    expect(w, 0, "haStatus -b broker-a --json", "\"brokerName\": \"broker-a\"");
    expect(w, 1, "haStatus -b broker-z", "no broker broker-z is registered");
    expect(w, 1, "haStatus -c OtherCluster", "OtherCluster");
}

static void broker_given_by_address_needs_no_registration(void **state)
{
    struct world *w = *state;
    char line[128];
    snprintf(line, sizeof line, "haStatus -b %s", w->address);
    expect(w, 0, line, "broker-a of DefaultCluster");
    expect(w, 3, "haStatus -b 127.0.0.1:1", "no answer");
}

static void force_open_without_yes_only_warns(void **state)
{
    struct world *w = *state;
    expect(w, 1, "forceOpen -b broker-a", "give --yes to do it");
    assert_non_null(strstr(w->output, "id 1 (10.0.0.2:10912, store ab00"));
    assert_non_null(strstr(w->output, "beyond 4096"));
    assert_int_equal(atomic_load(&w->forced), 0);
}

static void force_open_with_yes_is_sent(void **state)
{
    struct world *w = *state;
    expect(w, 0, "forceOpen -b broker-a --yes", "opens by force");
    assert_int_equal(atomic_load(&w->forced), 1);
    expect(w, 0,
           "forceOpen -b broker-a --discard-slave 00112233445566778899aabbccddeeff --yes --json",
           "\"ok\": true");
    assert_int_equal(atomic_load(&w->forced), 2);
    assert_int_equal(w->discarded[1], 0x11);
    assert_int_equal(w->discarded[15], 0xff);
}

static void open_master_is_not_forced(void **state)
{
    struct world *w = *state;
    atomic_store(&w->state, TERN__WIRE__HA_STATE__HA_OPEN);
    expect(w, 1, "forceOpen -b broker-a --yes", "nothing to force");
    assert_int_equal(atomic_load(&w->forced), 0);
}

static void detached_slave_rejoins_by_address_or_id(void **state)
{
    struct world *w = *state;
    char line[128];
    atomic_store(&w->state, TERN__WIRE__HA_STATE__HA_DETACHED);
    snprintf(line, sizeof line, "rejoin -a %s", w->address);
    expect(w, 1, line, "give --yes to do it");
    assert_int_equal(atomic_load(&w->rejoined), 0);
    snprintf(line, sizeof line, "rejoin -a %s --yes", w->address);
    expect(w, 0, line, "saves its store aside");
    expect(w, 0, "rejoin -b broker-a -i 1 --yes", "saves its store aside");
    assert_int_equal(atomic_load(&w->rejoined), 2);
    expect(w, 1, "rejoin -b broker-a -i 7 --yes", "give its address with -a");
    atomic_store(&w->state, TERN__WIRE__HA_STATE__HA_FOLLOWING);
    expect(w, 1, line, "only a detached slave");
    assert_int_equal(atomic_load(&w->rejoined), 2);
}

static void wrong_usage_names_the_option(void **state)
{
    struct world *w = *state;
    expect(w, 2, "forceOpen", "exactly one of -b and -a");
    expect(w, 2, "forceOpen -b broker-a --discard-slave xyz", "--discard-slave");
    expect(w, 2, "forceOpen -b 127.0.0.1:1", "-a");
    expect(w, 2, "forceOpen -a nowhere", "host:port");
    expect(w, 2, "rejoin -b broker-a", "-i ID");
    expect(w, 2, "rejoin -b broker-a -i 0", "--brokerId");
    expect(w, 2, "brokerStatus -c C -i 1", "-b NAME");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ha_status_lists_each_member_of_the_set),
        CASE(broker_given_by_address_needs_no_registration),
        CASE(force_open_without_yes_only_warns),
        CASE(force_open_with_yes_is_sent),
        CASE(open_master_is_not_forced),
        CASE(detached_slave_rejoins_by_address_or_id),
        CASE(wrong_usage_names_the_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
