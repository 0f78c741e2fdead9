/* Silence over the real link: a server that shakes hands and never says another word. */
#include "tests/unit/rpc/rpc_world.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static struct world world;
static struct rpc_client *client;
static struct rpc_peer *peer;
static int listener;
static char address[64];
static _Atomic uint32_t ups, downs;

static void on_peer_state(void *arg, struct rpc_peer *which, bool up)
{
    (void)arg;
    (void)which;
    atomic_fetch_add(up ? &ups : &downs, 1);
}

static void listen_plainly(void)
{
    uint16_t port = 0;
    listener = raw_listen(&port);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
}

/* The next connection that lives through a handshake: attempts that were given up wait in the
 * queue, too. */
static int accept_politely(void)
{
    static const uint8_t hello[8] = {0, 'S', 'P', 0, 0, 0x31, 0, 0};
    uint8_t theirs[8];
    for (int tries = 0; tries < 100; tries++) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        assert_int_equal(poll(&ready, 1, WORLD_WAIT_MS), 1);
        int fd = accept(listener, NULL, NULL);
        assert_true(fd >= 0);
        if (send(fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello &&
            recv(fd, theirs, sizeof theirs, MSG_WAITALL) == (ssize_t)sizeof theirs)
            return fd;
        close(fd);
    }
    fail_msg("no connection lives");
    return -1;
}

/* Reads until the other side hangs up. */
static void drain(int fd)
{
    uint8_t bytes[4096];
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    do
        assert_int_equal(poll(&ready, 1, WORLD_WAIT_MS), 1);
    while (recv(fd, bytes, sizeof bytes, 0) > 0);
    close(fd);
}

static int set_up(void **state)
{
    (void)state;
    ups = downs = 0;
    world_init(&world);
    listen_plainly();
    struct rpc_client_options options = {
        .max_message_bytes = 1 << 20,
        .connect_wait_ms = 5000,
        .reconnect_min_ms = 50,
        .reconnect_max_ms = 200,
        .silence_ms = 200,
        .on_peer_state = on_peer_state,
    };
    assert_ok(rpc_client_create(&world.env, world.link, &options, &client));
    assert_ok(rpc_peer_get(client, address, &peer, NULL));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(listener);
    rpc_peer_unref(peer);
    rpc_client_destroy(client);
    world_fini(&world);
    return 0;
}

static void on_done(struct rpc_call *call, void *arg)
{
    struct results *results = arg;
    atomic_fetch_add(&results->by_status[rpc_call_result(call)], 1);
    atomic_fetch_add(&results->done, 1);
    rpc_call_unref(call);
}

static void a_silent_server_is_hung_up_on_and_not_believed_again(void **state)
{
    (void)state;
    struct results results;
    results_init(&results, &world);
    int fd = accept_politely();
    world_wait(&world, &ups, 1);
    for (int i = 0; i < 20; i++) {
        TernRequest header = TERN__WIRE__REQUEST__INIT;
        Tern__Wire__ListTopicsRequest list = TERN__WIRE__LIST_TOPICS_REQUEST__INIT;
        struct rpc_call *call;
        header.body_case = TERN__WIRE__REQUEST__BODY_LIST_TOPICS;
        header.list_topics = &list;
        assert_ok(rpc_call_create(peer, 0, &call));
        rpc_call_start(call, &header, 0, 60000, on_done, &results);
    }
    drain(fd);
    world_wait(&world, &results.done, 20);
    assert_int_equal(results.by_status[TERN_CONNECTION_LOST], 20);
    assert_false(rpc_peer_up(peer));
    assert_true(rpc_peer_down(peer));
    fd = accept_politely(); /* dialled again, asked, and dropped again */
    drain(fd);
    assert_int_equal(ups, 1);
    assert_int_equal(downs, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_silent_server_is_hung_up_on_and_not_believed_again,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
