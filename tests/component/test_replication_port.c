/*
 * The replication port as strangers and wrong peers meet it: junk, lies, copies, and settings that
 * do not go together.
 */
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/frame.h"
#include "tests/component/set.h"
#include "tests/unit/base/unit.h"

enum { SEGMENT = 1 << 18, UUID_BYTES = 16 };

static const char *const small_segments[] = {"mappedFileSizeCommitLog=256KiB", NULL};

/* ---- a peer that knows the protocol and lies ---- */

struct liar {
    struct wire wire;
    uint8_t uuid[UUID_BYTES];
    uint64_t session;
    int64_t start; /* where the session begins */
};

static struct rpc_call *greet(struct liar *liar, int64_t end, int64_t segment)
{
    Tern__Wire__HaMember from = TERN__WIRE__HA_MEMBER__INIT;
    Tern__Wire__HaHandshakeRequest body = TERN__WIRE__HA_HANDSHAKE_REQUEST__INIT;
    from.cluster_name = bytes_of_text("DefaultCluster");
    from.broker_name = bytes_of_text("broker-a");
    from.broker_id = 2;
    from.store_uuid = (ProtobufCBinaryData){UUID_BYTES, liar->uuid};
    from.address = bytes_of_text("127.0.0.1:1");
    from.ha_address = bytes_of_text("127.0.0.1:2");
    from.state = TERN__WIRE__HA_STATE__HA_SEEKING;
    from.log_end = from.flushed = from.dispatched = end;
    from.segment_bytes = segment;
    body.from = &from;
    body.purpose = TERN__WIRE__HA_PURPOSE__HA_FOLLOW;
    WIRE_REQUEST(request, HA_HANDSHAKE, ha_handshake, &body);
    struct rpc_call *call = wire_ask(&liar->wire, &request, NULL, 0);
    if (call->response->code == CODE(SUCCESS))
        liar->session = call->response->ha_handshake->session;
    return call;
}

static void liar_attach(struct liar *liar, const char *ha_address, uint8_t mark)
{
    memset(liar, 0, sizeof *liar);
    memset(liar->uuid, mark, sizeof liar->uuid);
    wire_open(&liar->wire, ha_address, "");
    struct rpc_call *call = greet(liar, 0, SEGMENT);
    assert_int_equal(call->response->code, CODE(SUCCESS));
    assert_true(liar->session != 0);
    rpc_call_unref(call);
}

/* Claims to have everything before `from`; an answer that is not an error ends the test. */
static void expect_lie_refused(struct liar *liar, int64_t from, int64_t flushed)
{
    Tern__Wire__HaFetchRequest body = TERN__WIRE__HA_FETCH_REQUEST__INIT;
    Tern__Wire__HaPosition position = TERN__WIRE__HA_POSITION__INIT;
    struct tern_error err = {.text = ""};
    struct rpc_call *call = NULL;
    body.session = liar->session;
    body.from = position.appended = from;
    position.flushed = flushed;
    position.dispatched = from;
    body.position = &position;
    WIRE_REQUEST(request, HA_FETCH, ha_fetch, &body);
    enum tern_code code =
        rpc_call_wait(liar->wire.peer, &request, NULL, 0, PATIENCE_MS, &call, &err);
    if (code == TERN_OK)
        fail_msg("believed: everything before %lld, flushed %lld", (long long)from,
                 (long long)flushed);
    if (call)
        rpc_call_unref(call);
}

static void send_junk(const char *ha_address)
{
    static const uint8_t high[8] = {0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const char get[] = "GET / HTTP/1.1\r\nHost: broker\r\n\r\n";
    const struct {
        const void *bytes;
        size_t size;
    } junk[] = {{high, sizeof high}, {ones, sizeof ones}, {get, sizeof get - 1}};
    for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++) {
        int fd = raw_connect(ha_address);
        send(fd, junk[i].bytes, junk[i].size, MSG_NOSIGNAL);
        raw_expect_close(fd);
        close(fd);
        fd = raw_open(ha_address);
        send(fd, junk[i].bytes, junk[i].size, MSG_NOSIGNAL);
        raw_send(fd, junk[i].bytes, junk[i].size);
        raw_reset(fd);
    }
}

/* HA-01 */
static void junk_and_lies_at_the_replication_port_acknowledge_nothing(void **state)
{
    struct broker_set set;
    struct set_view view;
    struct liar liar;
    (void)state;
    set_make(&set, "SYNC_MASTER", 1, small_segments);
    set_start(&set, 0);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    assert_int_equal(send_code(set_wire(&set, 0), "T", "alone"), CODE(SLAVE_NOT_AVAILABLE));
    set_view(&set, 0, &view);
    send_junk(view.ha_address);
    assert_int_equal(send_code(set_wire(&set, 0), "T", "alone"), CODE(SLAVE_NOT_AVAILABLE));
    set_view(&set, 0, &view);
    const int64_t lies[] = {view.end + 1, view.end, INT64_MAX, -1, INT64_MIN};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        liar_attach(&liar, view.ha_address, (uint8_t)(i + 1));
        expect_lie_refused(&liar, lies[i], 0);
        wire_close(&liar.wire);
        assert_int_equal(send_code(set_wire(&set, 0), "T", "alone"), CODE(SLAVE_NOT_AVAILABLE));
    }
    liar_attach(&liar, view.ha_address, 9);
    expect_lie_refused(&liar, 0, 1);
    wire_close(&liar.wire);
    set_await_logged(&set, 0, "slave_claim_refused");
    set_view(&set, 0, &view);
    assert_int_equal(view.in_sync, 0);
    set_start(&set, 1);
    set_await_in_sync(&set, 1);
    assert_int_equal(send_code(set_wire(&set, 0), "T", "both"), CODE(SUCCESS));
    set_await_equal(&set, 1);
    set_down(&set);
}

/* HA-01, NN-10: a peer that was let in says nonsense inside of valid messages */
static void handshakes_that_cannot_be_true_are_refused_with_words(void **state)
{
    struct broker_set set;
    struct set_view view;
    struct liar liar = {.session = 0};
    (void)state;
    set_make(&set, "ASYNC_MASTER", 0, small_segments);
    set_start(&set, 0);
    set_view(&set, 0, &view);
    wire_open(&liar.wire, view.ha_address, "");
    const struct {
        int64_t end, segment;
        const char *words;
    } claims[] = {{-1, SEGMENT, "log_end"},
                  {0, SEGMENT * 2, "mappedFileSizeCommitLog"},
                  {0, 0, "segment_bytes"},
                  {0, INT64_MIN, "segment_bytes"}};
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        struct rpc_call *call = greet(&liar, claims[i].end, claims[i].segment);
        assert_int_not_equal(call->response->code, CODE(SUCCESS));
        assert_contains(call->response->remark, claims[i].words);
        rpc_call_unref(call);
    }
    Tern__Wire__HaHandshakeRequest nobody = TERN__WIRE__HA_HANDSHAKE_REQUEST__INIT;
    WIRE_REQUEST(request, HA_HANDSHAKE, ha_handshake, &nobody);
    wire_expect(&liar.wire, &request, NULL, 0, CODE(INVALID_REQUEST), "who it is from");
    Tern__Wire__BrokerStatusRequest other = TERN__WIRE__BROKER_STATUS_REQUEST__INIT;
    WIRE_REQUEST(status, BROKER_STATUS, broker_status, &other);
    wire_expect(&liar.wire, &status, NULL, 0, CODE(REQUEST_CODE_NOT_SUPPORTED), "replication port");
    wire_close(&liar.wire);
    set_down(&set);
}

/* HA-09 */
static void listening_beyond_loopback_is_warned_of(void **state)
{
    struct broker_set set;
    (void)state;
    set_make(&set, "ASYNC_MASTER", 0, small_segments);
    set_start(&set, 0);
    assert_false(set_logged(&set, 0, "listening_beyond_loopback"));
    set_stop(&set, 0);
    set.nodes[0].own[0] = "listenAddr=0.0.0.0";
    set.nodes[0].own[1] = "advertiseAddr=127.0.0.1";
    set_start(&set, 0);
    assert_true(set_logged(&set, 0, "listening_beyond_loopback"));
    set_down(&set);
}

/* ---- peers that do not belong here ---- */

static void different_segment_sizes_are_refused_by_name_of_the_key(void **state)
{
    struct broker_set set;
    struct set_view view;
    (void)state;
    set_make(&set, "SYNC_MASTER", 1, small_segments);
    set.nodes[1].own[0] = "mappedFileSizeCommitLog=524288";
    set_start(&set, 0);
    set_start(&set, 1);
    set_await_logged(&set, 1, "mappedFileSizeCommitLog");
    set_await_logged(&set, 0, "mappedFileSizeCommitLog");
    set_view(&set, 0, &view);
    assert_int_equal(view.in_sync, 0);
    set_down(&set);
}

/* NS-02 */
static void second_master_of_a_name_is_refused_and_the_first_stays(void **state)
{
    struct broker_set set;
    (void)state;
    set_make(&set, "ASYNC_MASTER", 1, small_segments);
    set.nodes[1].id = 0;
    set_start(&set, 0);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    set_spawn(&set, 1);
    if (daemon_wait_ready(&set.nodes[1].daemon)) {
        set_await_logged(&set, 1, "NAME_CONFLICT");
        assert_int_not_equal(send_code(set_wire(&set, 1), "TBW102", "x"), CODE(SUCCESS));
    } else {
        assert_int_not_equal(daemon_wait(&set.nodes[1].daemon, PATIENCE_MS), 0);
    }
    assert_int_equal(send_code(set_wire(&set, 0), "T", "x"), CODE(SUCCESS));
    char *route = SET_MQADMIN(&set, 0, "topicRoute", "-t", "T");
    assert_contains(route, set.nodes[0].daemon.address);
    free(route);
    set_down(&set);
}

/* Two slaves with one id: the second waits, says why, and is let in once the first is gone */
static void second_slave_of_an_id_is_refused_while_the_first_lives(void **state)
{
    struct broker_set set;
    struct set_view view;
    (void)state;
    set_make(&set, "SYNC_MASTER", 2, small_segments);
    set.nodes[2].id = 1;
    set.overrides[2] = "haMaxTimeSlaveNotCatchup=1s";
    set_start(&set, 0);
    set_start(&set, 1);
    set_await_in_sync(&set, 1);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    set_spawn(&set, 2);
    if (!daemon_wait_ready(&set.nodes[2].daemon))
        assert_int_not_equal(daemon_wait(&set.nodes[2].daemon, PATIENCE_MS), 0);
    set_await_logged(&set, 2, "NAME_CONFLICT");
    assert_int_equal(send_code(set_wire(&set, 0), "T", "x"), CODE(SUCCESS));
    set_view(&set, 0, &view);
    assert_int_equal(view.in_sync, 1);
    set_down(&set);
}

/* A copied store keeps its UUID: as a slave of its original it would acknowledge for it */
static void copy_of_the_masters_store_is_refused_as_slave(void **state)
{
    struct broker_set set;
    struct set_view view;
    struct tool copy;
    (void)state;
    set_make(&set, "SYNC_MASTER", 1, small_segments);
    set_start(&set, 0);
    wire_make_topic(set_wire(&set, 0), "T", 1);
    assert_int_equal(send_code(set_wire(&set, 0), "T", "x"), CODE(SLAVE_NOT_AVAILABLE));
    set_stop(&set, 0);
    tool_run(&copy, "/bin/cp",
             (const char *const[]){"-a", set.nodes[0].store, set.nodes[1].store, NULL}, NULL, 0);
    assert_int_equal(copy.status, 0);
    tool_free(&copy);
    set_start(&set, 0);
    set_spawn(&set, 1);
    if (daemon_wait_ready(&set.nodes[1].daemon)) {
        set_await_logged(&set, 1, "same storeUuid");
        set_view(&set, 0, &view);
        assert_int_equal(view.in_sync, 0);
    } else {
        assert_int_not_equal(daemon_wait(&set.nodes[1].daemon, PATIENCE_MS), 0);
    }
    assert_int_equal(send_code(set_wire(&set, 0), "T", "x"), CODE(SLAVE_NOT_AVAILABLE));
    set_down(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(junk_and_lies_at_the_replication_port_acknowledge_nothing),
        cmocka_unit_test(handshakes_that_cannot_be_true_are_refused_with_words),
        cmocka_unit_test(listening_beyond_loopback_is_warned_of),
        cmocka_unit_test(different_segment_sizes_are_refused_by_name_of_the_key),
        cmocka_unit_test(second_master_of_a_name_is_refused_and_the_first_stays),
        cmocka_unit_test(second_slave_of_an_id_is_refused_while_the_first_lives),
        cmocka_unit_test(copy_of_the_masters_store_is_refused_as_slave),
    };
    return cmocka_run_group_tests_name("replication_port", tests, NULL, NULL);
}
