/* Server and client over the real link: requests, answers, refusals, ends. */
#include "tests/unit/rpc/rpc_world.h"

#include <unistd.h>

#include "base/bytes.h"

enum { MESSAGE_MAX = 1 << 20, PARKED_MAX = 4096, CALLS = 4088 };

static struct world world;
static struct rpc_server *server;
static struct rpc_client *client;
static struct rpc_peer *peer;
static char address[64];

/* The server's handler. */
static struct {
    struct lock lock;
    struct rpc_request *parked; /* lock */
    _Atomic uint32_t parked_count, requests, gone, pressures;
    _Atomic uint32_t last_version, last_timeout_ms;
    char last_client_id[64];
} handler;

static _Atomic uint32_t peer_ups, peer_downs;

static void park(struct rpc_request *request)
{
    lock_acquire(&handler.lock);
    request->next = handler.parked;
    handler.parked = request;
    lock_release(&handler.lock);
    atomic_fetch_add(&handler.parked_count, 1);
}

static uint32_t answer_parked(void)
{
    uint32_t answered = 0;
    for (;;) {
        lock_acquire(&handler.lock);
        struct rpc_request *request = handler.parked;
        if (request)
            handler.parked = request->next;
        lock_release(&handler.lock);
        if (!request)
            return answered;
        atomic_fetch_sub(&handler.parked_count, 1);
        rpc_reply_ok(request);
        answered++;
    }
}

/* view_message: answers the payload, offset − 1 for each byte. */
static void answer_payload(struct rpc_request *request)
{
    TernResponse header = TERN__WIRE__RESPONSE__INIT;
    Tern__Wire__ViewMessageResponse body = TERN__WIRE__VIEW_MESSAGE_RESPONSE__INIT;
    uint8_t *out = rpc_reply_reserve(request, 10);
    assert_non_null(out);
    out = rpc_reply_reserve(request, request->payload_size + 100); /* replaces the first */
    assert_non_null(out);
    for (size_t i = 0; i < request->payload_size; i++)
        out[i] = (uint8_t)(request->payload[i] - 1);
    header.body_case = TERN__WIRE__RESPONSE__BODY_VIEW_MESSAGE;
    header.view_message = &body;
    rpc_reply(request, &header, request->payload_size);
}

/* topic_stats: answers with a table as large as the topic name says. */
static void answer_table(struct rpc_request *request)
{
    TernResponse header = TERN__WIRE__RESPONSE__INIT;
    Tern__Wire__TopicStatsResponse body = TERN__WIRE__TOPIC_STATS_RESPONSE__INIT;
    const char *text = frame_text(rpc_request_arena(request), &request->header->topic_stats->topic);
    size_t count = strtoul(text, NULL, 10);
    Tern__Wire__QueueStats *rows = calloc(count + 1, sizeof *rows);
    Tern__Wire__QueueStats **list = calloc(count + 1, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        tern__wire__queue_stats__init(&rows[i]);
        rows[i].max_offset = INT64_MAX - (int64_t)i;
        list[i] = &rows[i];
    }
    body.n_queues = count;
    body.queues = list;
    header.body_case = TERN__WIRE__RESPONSE__BODY_TOPIC_STATS;
    header.topic_stats = &body;
    rpc_reply(request, &header, 0);
    free(list);
    free(rows);
}

static void on_request(void *arg, struct rpc_request *request)
{
    struct tern_error err = {.code = TERN_TOPIC_NOT_EXIST, .text = "topic \"T\" at line 1"};
    (void)arg;
    atomic_fetch_add(&handler.requests, 1);
    atomic_store(&handler.last_version, request->header->version);
    atomic_store(&handler.last_timeout_ms, request->header->timeout_ms);
    const char *client_id = frame_text(rpc_request_arena(request), &request->header->client_id);
    lock_acquire(&handler.lock);
    snprintf(handler.last_client_id, sizeof handler.last_client_id, "%s", client_id);
    lock_release(&handler.lock);
    switch (request->header->body_case) {
    case TERN__WIRE__REQUEST__BODY_VIEW_MESSAGE:
        answer_payload(request);
        return;
    case TERN__WIRE__REQUEST__BODY_WAIT_EVENTS:
        park(request);
        return;
    case TERN__WIRE__REQUEST__BODY_TOPIC_STATS:
        answer_table(request);
        return;
    case TERN__WIRE__REQUEST__BODY_ROUTE:
        rpc_reply_failure(request, TERN_TOPIC_NOT_EXIST, &err);
        return;
    case TERN__WIRE__REQUEST__BODY_LIST_TOPICS:
        assert_null(rpc_request_alloc(request, (size_t)1 << 40));
        assert_non_null(rpc_request_alloc(request, 1000));
        rpc_reply_ok(request);
        return;
    default:
        rpc_reply_error(request, TERN_NOT_SUPPORTED, "body %d", (int)request->header->body_case);
    }
}

static void on_peer_gone(void *arg, uint64_t peer_id)
{
    (void)arg;
    assert_true(peer_id > 0);
    atomic_fetch_add(&handler.gone, 1);
}

static void on_pressure(void *arg, uint64_t peer_id)
{
    (void)arg;
    (void)peer_id;
    atomic_fetch_add(&handler.pressures, 1);
}

static void on_peer_state(void *arg, struct rpc_peer *which, bool up)
{
    (void)arg;
    (void)which;
    atomic_fetch_add(up ? &peer_ups : &peer_downs, 1);
}

static void start_server(const char *at)
{
    struct tern_error err = {.code = TERN_OK};
    struct rpc_server_options options = {
        .listen = {.address = at, .max_message_bytes = MESSAGE_MAX, .max_requests_per_peer = 3000},
        .arena_budget_bytes = 2 * MESSAGE_MAX,
        .on_request = on_request,
        .on_peer_gone = on_peer_gone,
        .on_pressure = on_pressure,
    };
    if (rpc_server_create(&world.env, world.link, &options, &server, &err) != TERN_OK)
        fail_msg("%s", err.text);
}

static int set_up(void **state)
{
    (void)state;
    memset(&handler, 0, sizeof handler);
    lock_init(&handler.lock, LOCK_LONG_POLL);
    peer_ups = 0;
    peer_downs = 0;
    world_init(&world);
    start_server(world.address);
    snprintf(address, sizeof address, "127.0.0.1:%u", rpc_server_port(server));
    struct rpc_client_options options = {
        .max_message_bytes = MESSAGE_MAX,
        .connect_wait_ms = 400,
        .client_id = "127.0.0.1@test",
        .on_peer_state = on_peer_state,
    };
    assert_ok(rpc_client_create(&world.env, world.link, &options, &client));
    assert_ok(rpc_peer_get(client, address, &peer, NULL));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rpc_peer_unref(peer);
    rpc_client_destroy(client);
    if (server) {
        rpc_server_stop(server);
        answer_parked();
        assert_int_equal(rpc_server_pending(server), 0);
        rpc_server_destroy(server);
    }
    world_fini(&world);
    lock_fini(&handler.lock);
    return 0;
}

/* ---- one call ---- */

static void set_view(TernRequest *header, Tern__Wire__ViewMessageRequest *body)
{
    tern__wire__request__init(header);
    tern__wire__view_message_request__init(body);
    header->body_case = TERN__WIRE__REQUEST__BODY_VIEW_MESSAGE;
    header->view_message = body;
}

static void set_park(TernRequest *header, Tern__Wire__WaitEventsRequest *body)
{
    tern__wire__request__init(header);
    tern__wire__wait_events_request__init(body);
    header->body_case = TERN__WIRE__REQUEST__BODY_WAIT_EVENTS;
    header->wait_events = body;
}

static void payload_goes_and_comes_back(void **state)
{
    (void)state;
    TernRequest header;
    Tern__Wire__ViewMessageRequest body;
    struct rpc_call *call;
    set_view(&header, &body);
    for (size_t size = 0; size < MESSAGE_MAX - 1000; size = size * 3 + 1) {
        uint8_t *payload = malloc(size ? size : 1);
        memset(payload, 'b', size);
        assert_ok(rpc_call_wait(peer, &header, payload, size, 5000, &call, NULL));
        assert_int_equal(call->payload_size, size);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(call->payload[i], 'a');
        assert_int_equal(call->response->body_case, TERN__WIRE__RESPONSE__BODY_VIEW_MESSAGE);
        rpc_call_unref(call);
        free(payload);
    }
    assert_int_equal(atomic_load(&handler.last_version), PROTOCOL_VERSION);
    assert_int_equal(atomic_load(&handler.last_timeout_ms), 5000);
    assert_string_equal(handler.last_client_id, "127.0.0.1@test");
    assert_true(rpc_peer_up(peer));
    assert_string_equal(rpc_peer_address(peer), address);
}

static void failure_carries_code_and_text(void **state)
{
    (void)state;
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__RouteRequest body = TERN__WIRE__ROUTE_REQUEST__INIT;
    struct tern_error err;
    struct rpc_call *call;
    header.body_case = TERN__WIRE__REQUEST__BODY_ROUTE;
    header.route = &body;
    assert_int_equal(rpc_call_wait(peer, &header, NULL, 0, 3000, &call, &err),
                     TERN_TOPIC_NOT_EXIST);
    assert_non_null(call); /* an answer came */
    assert_int_equal(call->response->code, 17);
    assert_int_equal(err.code, TERN_TOPIC_NOT_EXIST);
    assert_non_null(strstr(err.text, "topic \"T\" at line 1"));
    assert_non_null(strstr(err.text, address));
    rpc_call_unref(call);
    header.body_case = TERN__WIRE__REQUEST__BODY_CLUSTER_INFO;
    Tern__Wire__ClusterInfoRequest info = TERN__WIRE__CLUSTER_INFO_REQUEST__INIT;
    header.cluster_info = &info;
    assert_int_equal(rpc_call_wait(peer, &header, NULL, 0, 3000, NULL, &err), TERN_NOT_SUPPORTED);
}

static void request_memory_has_a_budget(void **state)
{
    (void)state;
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__ListTopicsRequest body = TERN__WIRE__LIST_TOPICS_REQUEST__INIT;
    header.body_case = TERN__WIRE__REQUEST__BODY_LIST_TOPICS;
    header.list_topics = &body;
    assert_ok(rpc_call_wait(peer, &header, NULL, 0, 3000, NULL, NULL));
}

static enum tern_code call_table(const char *count, struct rpc_call **call)
{
    TernRequest header = TERN__WIRE__REQUEST__INIT;
    Tern__Wire__TopicStatsRequest body = TERN__WIRE__TOPIC_STATS_REQUEST__INIT;
    header.body_case = TERN__WIRE__REQUEST__BODY_TOPIC_STATS;
    header.topic_stats = &body;
    body.topic = frame_bytes(count, strlen(count));
    return rpc_call_wait(peer, &header, NULL, 0, 5000, call, NULL);
}

static void large_tables_come_whole_and_too_large_ones_as_an_error(void **state)
{
    (void)state;
    struct rpc_call *call;
    assert_ok(call_table("10000", &call));
    assert_int_equal(call->response->topic_stats->n_queues, 10000);
    assert_true(call->response->topic_stats->queues[9999]->max_offset == INT64_MAX - 9999);
    rpc_call_unref(call);
    assert_int_equal(call_table("100000", &call), TERN_SYSTEM_ERROR);
    rpc_call_unref(call);
    assert_int_equal(counter_get(&rpc_server_stats(server)->unbuilt), 1);
}

static void oversize_request_is_refused_here(void **state)
{
    (void)state; /* NN-04 */
    struct rpc_call *call;
    struct tern_error err;
    TernRequest header;
    Tern__Wire__ViewMessageRequest body;
    uint8_t *payload = calloc(1, MESSAGE_MAX + 1);
    set_view(&header, &body);
    assert_int_equal(rpc_call_create(peer, MESSAGE_MAX + 1, &call), TERN_TOO_LARGE);
    assert_int_equal(rpc_call_wait(peer, &header, payload, MESSAGE_MAX, 1000, &call, &err),
                     TERN_TOO_LARGE); /* with its header */
    assert_null(call);
    char most[64];
    snprintf(most, sizeof most, "a frame to it holds %d", MESSAGE_MAX);
    assert_non_null(strstr(err.text, most));
    assert_int_equal(rpc_call_wait(peer, &header, payload, MESSAGE_MAX + 1, 1000, &call, &err),
                     TERN_TOO_LARGE);
    assert_non_null(strstr(err.text, most));
    assert_ok(rpc_call_wait(peer, &header, payload, 100, 1000, NULL, NULL));
    free(payload);
}

/* ---- many calls ---- */

struct tally {
    _Atomic uint32_t done;
    _Atomic uint32_t by_code[TERN_CODE_COUNT];
    uint32_t again; /* calls that each done callback starts after itself */
    struct rpc_peer *peer;
};

static void start_park(struct tally *tally, int64_t timeout_ms);

static void on_tally(struct rpc_call *call, void *arg)
{
    struct tally *tally = arg;
    enum tern_code code = rpc_call_result(call);
    rpc_call_unref(call);
    atomic_fetch_add(&tally->by_code[code], 1);
    if (code != TERN_CANCELED && tally->again > 0) {
        tally->again--;
        start_park(tally, 20);
    }
    atomic_fetch_add(&tally->done, 1);
}

static void start_park(struct tally *tally, int64_t timeout_ms)
{
    TernRequest header;
    Tern__Wire__WaitEventsRequest body;
    struct rpc_call *call;
    set_park(&header, &body);
    assert_ok(rpc_call_create(tally->peer, 0, &call));
    rpc_call_start(call, &header, 0, timeout_ms, on_tally, tally);
}

static void start_view(struct tally *tally, size_t size)
{
    TernRequest header;
    Tern__Wire__ViewMessageRequest body;
    struct rpc_call *call;
    set_view(&header, &body);
    assert_ok(rpc_call_create(tally->peer, size, &call));
    memset(rpc_call_payload(call), 'b', size);
    rpc_call_start(call, &header, size, 5000, on_tally, tally);
}

static void two_thousand_parked_requests_do_not_hold_up_others(void **state)
{
    (void)state; /* NN-07 */
    struct tally parked = {.peer = peer};
    struct tally others = {.peer = peer};
    for (int i = 0; i < 2000; i++)
        start_park(&parked, 60000);
    world_wait(&world, &handler.parked_count, 2000);
    assert_int_equal(rpc_server_pending(server), 2000);
    for (uint32_t i = 0; i < 500; i++) {
        start_view(&others, 1024);
        if (i % 8 == 7)
            world_wait(&world, &others.done, i - 7);
    }
    world_wait(&world, &others.done, 500);
    assert_int_equal(others.by_code[TERN_OK], 500);
    assert_int_equal(answer_parked(), 2000);
    world_wait(&world, &parked.done, 2000);
    assert_int_equal(parked.by_code[TERN_OK], 2000);
    while (rpc_server_pending(server) > 0)
        usleep(1000);
}

static void requests_above_the_cap_are_answered_busy(void **state)
{
    (void)state;
    struct tally parked = {.peer = peer};
    for (int i = 0; i < 3500; i++)
        start_park(&parked, 60000);
    world_wait(&world, &parked.done, 500);
    assert_int_equal(parked.by_code[TERN_SYSTEM_BUSY], 500);
    assert_int_equal(counter_get(&rpc_server_stats(server)->busy), 500);
    assert_true(atomic_load(&handler.pressures) > 0);
    assert_int_equal(answer_parked(), 3000);
    world_wait(&world, &parked.done, 3500);
}

static void calls_have_deadlines_and_may_start_others(void **state)
{
    (void)state;
    struct tally tally = {.peer = peer, .again = 30};
    int64_t begin_ms = world_now_ms(&world);
    start_park(&tally, 200);
    world_wait(&world, &tally.done, 31);
    assert_int_equal(tally.by_code[TERN_TIMEOUT], 31);
    assert_true(world_now_ms(&world) - begin_ms >= 200 + 30 * 20 - 50);
}

static void calls_beyond_the_limit_are_refused(void **state)
{
    (void)state;
    static struct rpc_call *calls[CALLS];
    struct rpc_call *more;
    for (int i = 0; i < CALLS; i++)
        assert_ok(rpc_call_create(peer, 0, &calls[i]));
    assert_int_equal(rpc_call_create(peer, 0, &more), TERN_LIMIT);
    rpc_call_unref(calls[0]);
    assert_ok(rpc_call_create(peer, 0, &calls[0]));
    for (int i = 0; i < CALLS; i++)
        rpc_call_unref(calls[i]);
}

static void answers_stay_valid_while_referenced(void **state)
{
    (void)state;
    enum { KEPT = 50 };
    struct rpc_call *kept[KEPT];
    TernRequest header;
    Tern__Wire__ViewMessageRequest body;
    uint8_t payload[100];
    set_view(&header, &body);
    for (int i = 0; i < KEPT; i++) {
        memset(payload, i + 1, sizeof payload);
        assert_ok(rpc_call_wait(peer, &header, payload, sizeof payload, 3000, &kept[i], NULL));
        rpc_call_ref(kept[i]);
        rpc_call_unref(kept[i]);
    }
    for (int i = 0; i < KEPT; i++) {
        assert_int_equal(kept[i]->payload[99], i);
        rpc_call_unref(kept[i]);
    }
}

/* ---- ends ---- */

static void lost_server_ends_calls_and_is_found_again(void **state)
{
    (void)state;
    struct tally parked = {.peer = peer};
    for (int i = 0; i < 100; i++)
        start_park(&parked, 60000);
    world_wait(&world, &handler.parked_count, 100);
    rpc_server_stop(server);
    world_wait(&world, &parked.done, 100);
    assert_int_equal(parked.by_code[TERN_CONNECTION_LOST], 100);
    assert_int_equal(rpc_server_pending(server), 100); /* theirs until answered */
    assert_int_equal(answer_parked(), 100);
    rpc_server_destroy(server);
    server = NULL;
    world_wait(&world, &peer_downs, 1);
    TernRequest header;
    Tern__Wire__ViewMessageRequest body;
    set_view(&header, &body);
    int64_t begin_ms = world_now_ms(&world);
    assert_int_equal(rpc_call_wait(peer, &header, NULL, 0, 30000, NULL, NULL), TERN_UNREACHABLE);
    assert_in_range(world_now_ms(&world) - begin_ms, 390, 10000);
    start_server(address);
    world_wait(&world, &peer_ups, 2);
    assert_ok(rpc_call_wait(peer, &header, NULL, 0, 3000, NULL, NULL));
}

static void gone_client_is_told(void **state)
{
    (void)state;
    struct rpc_client *other;
    struct rpc_peer *its;
    struct rpc_client_options options = {.max_message_bytes = MESSAGE_MAX};
    assert_ok(rpc_client_create(&world.env, world.link, &options, &other));
    assert_ok(rpc_peer_get(other, address, &its, NULL));
    struct tally parked = {.peer = its};
    for (int i = 0; i < 10; i++)
        start_park(&parked, 60000);
    world_wait(&world, &handler.parked_count, 10);
    rpc_peer_unref(its);
    rpc_client_destroy(other); /* with calls under way */
    assert_int_equal(atomic_load(&parked.done), 10);
    assert_int_equal(parked.by_code[TERN_CANCELED], 10);
    world_wait(&world, &handler.gone, 1);
    assert_int_equal(answer_parked(), 10);
}

static void peers_are_shared_by_address(void **state)
{
    (void)state;
    struct rpc_peer *same;
    struct rpc_peer *bad;
    struct tern_error err;
    assert_ok(rpc_peer_get(client, address, &same, NULL));
    assert_ptr_equal(same, peer);
    rpc_peer_unref(rpc_peer_ref(same));
    rpc_peer_unref(same);
    assert_int_equal(rpc_peer_get(client, "nowhere", &bad, &err), TERN_INVALID);
    assert_null(bad);
    assert_non_null(strstr(err.text, "nowhere"));
}

/* ---- what does not decode ---- */

static void read_answer(int fd, struct arena *arena, const TernResponse **response)
{
    static uint8_t frame[4096];
    uint8_t head[12];
    const uint8_t *payload;
    size_t payload_size;
    assert_true(raw_recv(fd, head, sizeof head));
    size_t size = (size_t)get_be64(head) - 4;
    assert_true(size <= sizeof frame);
    assert_true(raw_recv(fd, frame, size));
    *response = frame_unpack_response(arena, frame, size, &payload, &payload_size, NULL);
    assert_non_null(*response);
}

static void malformed_requests_are_answered_and_the_connection_stays(void **state)
{
    (void)state; /* NN-10 */
    static const struct {
        uint8_t bytes[16];
        size_t size;
        int32_t code;
    } requests[] = {
        {{0}, 0, 300},                             /* no length at all */
        {{0, 0, 0, 9, 1}, 5, 300},                 /* header longer than the frame */
        {{0x7f, 0xff, 0xff, 0xff, 1}, 5, 300},     /* the same, enormous */
        {{0, 0, 0, 2, 0xff, 0xff}, 6, 300},        /* no protobuf */
        {{0, 0, 0, 0}, 4, 15},                     /* version 0 */
        {{0, 0, 0, 2, 8, 2}, 6, 15},               /* version 2 */
        {{0, 0, 0, 2, 8, 1}, 6, 3},                /* no body */
        {{0, 0, 0, 5, 8, 1, 0xfa, 0x3f, 0}, 9, 3}, /* an unknown body */
        {{0, 0, 0, 9, 8, 1, 0x62, 5, 0x52, 3, 'a', 0, 'b'}, 13, 300}, /* NUL in a string */
    };
    struct arena arena;
    const TernResponse *response;
    arena_init(&arena, 1 << 20);
    int fd = raw_connect(rpc_server_port(server));
    raw_handshake(fd);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        raw_request(fd, (uint32_t)i, requests[i].bytes, requests[i].size);
        read_answer(fd, &arena, &response);
        assert_int_equal(response->code, requests[i].code);
        assert_true(strlen(response->remark) > 10);
    }
    assert_int_equal(atomic_load(&handler.requests), 0);
    assert_int_equal(counter_get(&rpc_server_stats(server)->malformed),
                     sizeof requests / sizeof requests[0]);
    static const uint8_t good[] = {0, 0, 0, 5, 8, 1, 0xc2, 2, 0}; /* view_message (40) {} */
    raw_request(fd, 99, good, sizeof good);
    read_answer(fd, &arena, &response);
    assert_int_equal(response->code, 0);
    close(fd);
    arena_fini(&arena);
}

int main(void)
{
#define TEST_(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST_(payload_goes_and_comes_back),
        TEST_(failure_carries_code_and_text),
        TEST_(request_memory_has_a_budget),
        TEST_(large_tables_come_whole_and_too_large_ones_as_an_error),
        TEST_(oversize_request_is_refused_here),
        TEST_(two_thousand_parked_requests_do_not_hold_up_others),
        TEST_(requests_above_the_cap_are_answered_busy),
        TEST_(calls_have_deadlines_and_may_start_others),
        TEST_(calls_beyond_the_limit_are_refused),
        TEST_(answers_stay_valid_while_referenced),
        TEST_(lost_server_ends_calls_and_is_found_again),
        TEST_(gone_client_is_told),
        TEST_(peers_are_shared_by_address),
        TEST_(malformed_requests_are_answered_and_the_connection_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
