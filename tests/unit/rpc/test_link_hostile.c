/* The link over NNG against peers that hang up, lie, flood, or do not read. */
#include "tests/unit/rpc/rpc_world.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"

static struct world world;
static struct echo echo;
static struct results results;

static int set_up(void **state)
{
    (void)state;
    world_init(&world);
    results_init(&results, &world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_fini(&world);
    return 0;
}

enum { SOON_MS = 10000 }; /* on a loaded machine; what waits in vain waits longer */

/* A new client gets an answer, and no connection's time-out has to end before. */
static void assert_serves(const char *address)
{
    struct dialled client;
    struct results mine;
    results_init(&mine, &world);
    int64_t begin_ms = world_now_ms(&world);
    dial_start(&client, &world, address, 0);
    call_with(&client, 'x', 100, 15000, &mine);
    world_wait(&world, &mine.done, 1);
    assert_int_equal(mine.by_status[TERN_OK], 1);
    assert_in_range(world_now_ms(&world) - begin_ms, 0, SOON_MS);
    dial_stop(&client);
}

/* ---- NN-01, our listeners ---- */

static const char garbage[] = "\0SP\0\0\060\377GET / HTTP/1.1\r\n\r\n";

static void hang_ups_in_the_handshake_do_not_deafen_the_listener(void **state)
{
    (void)state;
    echo_start(&echo, &world, NULL);
    uint16_t port = port_of(echo.address);
    for (int i = 0; i < 1000; i++)
        raw_reset(raw_connect(port));
    assert_serves(echo.address);
    for (int i = 0; i < 1000; i++) { /* FIN, then RST: the server's first write gives EPIPE */
        int fd = raw_connect(port);
        shutdown(fd, SHUT_WR);
        raw_reset(fd);
    }
    assert_serves(echo.address);
    for (int i = 0; i < 1000; i++) {
        int fd = raw_connect(port);
        raw_send(fd, garbage, (size_t)(1 + i % 7));
        if (i % 2)
            raw_reset(fd);
        else
            close(fd);
    }
    assert_serves(echo.address);
    assert_int_equal(atomic_load(&echo.requests), 3);
    echo_stop(&echo);
}

struct flood {
    uint16_t port;
    _Atomic bool stop;
};

static void *flood_main(void *arg)
{
    struct flood *flood = arg;
    for (unsigned i = 0; !atomic_load(&flood->stop); i++) {
        int fd = raw_connect(flood->port);
        raw_send(fd, garbage + 3, i % 2 ? 8 : 16);
        if (i % 3)
            raw_reset(fd);
        else
            close(fd);
        usleep(20000);
    }
    return NULL;
}

static void clients_attach_while_garbage_goes_on(void **state)
{
    (void)state;
    pthread_t thread;
    echo_start(&echo, &world, NULL);
    struct flood flood = {.port = port_of(echo.address)};
    assert_int_equal(pthread_create(&thread, NULL, flood_main, &flood), 0);
    usleep(500000);
    for (int i = 0; i < 5; i++)
        assert_serves(echo.address);
    atomic_store(&flood.stop, true);
    pthread_join(thread, NULL);
    echo_stop(&echo);
}

/* ---- NN-01, our dialers ---- */

enum manner {
    RESET_AT_ONCE,
    FIN_AND_RESET,
    CLOSE_AT_ONCE,
    HALF_HANDSHAKE,
    WRONG_PROTOCOL,
    GOOD_THEN_CLOSE,
    MANNERS
};

struct bad_server {
    int fd;
    enum manner manner;
    _Atomic bool stop;
    _Atomic uint32_t accepted;
};

static void treat(int fd, enum manner manner)
{
    static const uint8_t rep[8] = {0, 'S', 'P', 0, 0, 0x31, 0, 0};
    static const uint8_t pub[8] = {0, 'S', 'P', 0, 0, 0x20, 0, 0};
    switch (manner) {
    case FIN_AND_RESET:
        shutdown(fd, SHUT_WR);
        raw_reset(fd);
        return;
    case RESET_AT_ONCE:
        raw_reset(fd);
        return;
    case HALF_HANDSHAKE:
        raw_send(fd, rep, 5);
        raw_reset(fd);
        return;
    case WRONG_PROTOCOL:
        raw_send(fd, pub, sizeof pub);
        usleep(2000);
        break;
    case GOOD_THEN_CLOSE:
        raw_send(fd, rep, sizeof rep);
        usleep(2000);
        break;
    default:
        break;
    }
    close(fd);
}

static void *bad_server_main(void *arg)
{
    struct bad_server *server = arg;
    while (!atomic_load(&server->stop)) {
        struct pollfd poll_fd = {.fd = server->fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 20) != 1)
            continue;
        int fd = accept(server->fd, NULL, NULL);
        if (fd < 0)
            continue;
        atomic_fetch_add(&server->accepted, 1);
        treat(fd, server->manner);
    }
    return NULL;
}

/* A server that treats its clients so, and a client that goes on dialling it. */
struct bad_pair {
    struct bad_server server;
    struct dialled client;
    pthread_t thread;
    char address[64];
};

static void bad_pair_start(struct bad_pair *pair, enum manner manner)
{
    uint16_t port = 0;
    *pair = (struct bad_pair){.server = {.manner = manner, .fd = raw_listen(&port)}};
    snprintf(pair->address, sizeof pair->address, "127.0.0.1:%u", port);
    assert_int_equal(pthread_create(&pair->thread, NULL, bad_server_main, &pair->server), 0);
    dial_start(&pair->client, &world, pair->address, 0);
}

static void bad_pair_end_server(struct bad_pair *pair)
{
    uint32_t accepted = atomic_load(&pair->server.accepted);
    atomic_store(&pair->server.stop, true);
    pthread_join(pair->thread, NULL);
    close(pair->server.fd);
    print_message("manner %d: %u connects in 3 s\n", (int)pair->server.manner, accepted);
    /* about one a second; NNG doubles some at random, a client that hammers makes thousands */
    assert_in_range(accepted, 1, 20);
}

static void bad_pair_finds_a_real_server(struct bad_pair *pair)
{
    struct results mine;
    results_init(&mine, &world);
    echo_start(&echo, &world,
               &(struct link_listen_options){.address = pair->address,
                                             .max_message_bytes = WORLD_MESSAGE_MAX});
    int64_t begin_ms = world_now_ms(&world);
    call_with(&pair->client, 'x', 10, 15000, &mine);
    world_wait(&world, &mine.done, 1);
    assert_int_equal(mine.by_status[TERN_OK], 1);
    assert_in_range(world_now_ms(&world) - begin_ms, 0, SOON_MS);
    dial_stop(&pair->client);
    echo_stop(&echo);
}

static void dialers_neither_hammer_nor_give_up_a_server_that_refuses(void **state)
{
    (void)state;
    static struct bad_pair pairs[MANNERS];
    for (int i = 0; i < MANNERS; i++)
        bad_pair_start(&pairs[i], (enum manner)i);
    usleep(1500000); /* the first attempts are dense */
    for (int i = 0; i < MANNERS; i++)
        atomic_store(&pairs[i].server.accepted, 0);
    usleep(3000000);
    for (int i = 0; i < MANNERS; i++)
        bad_pair_end_server(&pairs[i]);
    for (int i = 0; i < MANNERS; i++)
        bad_pair_finds_a_real_server(&pairs[i]);
}

static void silent_peers_in_the_handshake_do_not_delay_closing(void **state)
{
    (void)state;
    struct dialled client;
    uint16_t port = 0;
    char address[64];
    int deaf = raw_listen(&port); /* the kernel connects, nobody answers */
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    dial_start(&client, &world, address, 0);
    echo_start(&echo, &world, NULL);
    int mute = raw_connect(port_of(echo.address));
    char theirs[8];
    assert_true(raw_recv(mute, theirs, sizeof theirs));
    usleep(100000);
    int64_t begin_ms = world_now_ms(&world);
    dial_stop(&client);
    echo_stop(&echo);
    assert_in_range(world_now_ms(&world) - begin_ms, 0, SOON_MS);
    close(mute);
    close(deaf);
}

/* ---- NN-04, NN-10: lengths ---- */

static void announced_giants_are_hung_up_on_without_allocating(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {UINT64_C(1) << 62, UINT64_C(1) << 40, UINT64_C(1) << 32,
                                       WORLD_MESSAGE_MAX + 5};
    echo_start(&echo, &world, NULL);
    size_t before = resident_bytes();
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint8_t head[8];
        int fd = raw_connect(port_of(echo.address));
        raw_handshake(fd);
        put_be64(head, lengths[i]);
        raw_send(fd, head, sizeof head);
        assert_true(raw_closed(fd));
        close(fd);
    }
    assert_true(resident_bytes() < before + (16 << 20));
    assert_serves(echo.address);
    echo_stop(&echo);
}

static void a_reply_above_the_clients_limit_loses_the_connection_once(void **state)
{
    (void)state;
    struct link_dial_options options = {.max_message_bytes = ECHO_BIG_BYTES - 1};
    struct dialled client = {.world = &world};
    echo_start(&echo, &world, NULL);
    options.address = echo.address;
    assert_ok(link_dial(world.link, &options, &client.conn, NULL));
    call_with(&client, 'B', 1, 5000, &results);
    world_wait(&world, &results.done, 1);
    assert_int_equal(results.by_status[TERN_CONNECTION_LOST], 1);
    call_with(&client, 'x', ECHO_BIG_BYTES - 1, 5000, &results);
    world_wait(&world, &results.done, 2);
    assert_int_equal(results.by_status[TERN_OK], 1);
    assert_int_equal(atomic_load(&echo.requests), 2); /* not sent again and again */
    dial_stop(&client);
    echo_stop(&echo);
}

static void requests_shorter_than_an_id_end_their_connection_only(void **state)
{
    (void)state;
    uint8_t frame[10] = {[7] = 2};
    echo_start(&echo, &world, NULL);
    int fd = raw_connect(port_of(echo.address));
    raw_handshake(fd);
    raw_send(fd, frame, sizeof frame);
    assert_true(raw_closed(fd));
    close(fd);
    assert_serves(echo.address);
    echo_stop(&echo);
}

/* ---- limits ---- */

static void peers_beyond_the_limit_are_closed(void **state)
{
    (void)state;
    int fds[3];
    echo_start(&echo, &world,
               &(struct link_listen_options){.max_message_bytes = 1000, .max_peers = 3});
    for (int i = 0; i < 3; i++) {
        fds[i] = raw_connect(port_of(echo.address));
        raw_handshake(fds[i]);
    }
    world_wait(&world, &echo.ups, 3);
    int refused = raw_connect(port_of(echo.address));
    raw_handshake(refused);
    assert_true(raw_closed(refused));
    close(refused);
    close(fds[0]);
    world_wait(&world, &echo.downs, 1);
    assert_serves(echo.address);
    close(fds[1]);
    close(fds[2]);
    echo_stop(&echo);
}

static void requests_above_the_cap_are_marked_and_pressure_is_told(void **state)
{
    (void)state;
    struct dialled client;
    echo_start(
        &echo, &world,
        &(struct link_listen_options){.max_message_bytes = 1000, .max_requests_per_peer = 64});
    dial_start(&client, &world, echo.address, 0);
    for (int i = 0; i < 100; i++)
        call_with(&client, 'P', 10, 10000, &results);
    world_wait(&world, &results.done, 36);
    assert_int_equal(atomic_load(&echo.parked_count), 64);
    assert_int_equal(atomic_load(&echo.over_cap), 36);
    assert_true(atomic_load(&echo.pressures) >= 36);
    echo_answer_parked(&echo);
    world_wait(&world, &results.done, 100);
    dial_stop(&client);
    echo_stop(&echo);
}

static void cap_in_all_holds_over_several_peers(void **state)
{
    (void)state;
    struct dialled clients[4];
    echo_start(&echo, &world,
               &(struct link_listen_options){.max_message_bytes = 1000, .max_requests = 100});
    for (int i = 0; i < 4; i++)
        dial_start(&clients[i], &world, echo.address, 0);
    for (int i = 0; i < 400; i++)
        call_with(&clients[i % 4], 'P', 10, 10000, &results);
    world_wait(&world, &results.done, 300);
    assert_int_equal(atomic_load(&echo.parked_count), 100);
    echo_answer_parked(&echo);
    world_wait(&world, &results.done, 400);
    for (int i = 0; i < 4; i++)
        dial_stop(&clients[i]);
    echo_stop(&echo);
}

static void a_peer_that_does_not_take_its_replies_is_closed(void **state)
{
    (void)state;
    uint8_t *body = calloc(1, 64 << 10);
    echo_start(
        &echo, &world,
        &(struct link_listen_options){.max_message_bytes = 1 << 20, .reply_timeout_ms = 300});
    int fd = raw_connect(port_of(echo.address));
    int small = 4096;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    raw_handshake(fd);
    for (uint32_t i = 0; i < 200; i++)
        raw_request(fd, i, body, 64 << 10);
    world_wait(&world, &echo.downs, 1);
    close(fd);
    free(body);
    assert_serves(echo.address);
    echo_stop(&echo);
}

static void an_idle_peer_is_closed(void **state)
{
    (void)state;
    struct dialled client;
    echo_start(&echo, &world,
               &(struct link_listen_options){.max_message_bytes = 1000, .idle_close_ms = 400});
    int fd = raw_connect(port_of(echo.address));
    raw_handshake(fd);
    dial_start(&client, &world, echo.address, 0);
    call_with(&client, 'P', 10, 10000, &results); /* parked is not idle */
    world_wait(&world, &echo.parked_count, 1);
    assert_true(raw_closed(fd));
    close(fd);
    usleep(800000);
    assert_int_equal(atomic_load(&echo.downs), 1);
    echo_answer_parked(&echo);
    world_wait(&world, &results.done, 1);
    assert_int_equal(results.by_status[TERN_OK], 1);
    dial_stop(&client);
    echo_stop(&echo);
}

static void gone_peers_are_told_and_their_requests_answered_to_nobody(void **state)
{
    (void)state;
    echo_start(&echo, &world, NULL);
    int fd = raw_connect(port_of(echo.address));
    raw_handshake(fd);
    for (uint32_t i = 0; i < 10; i++)
        raw_request(fd, i, "P", 1);
    world_wait(&world, &echo.parked_count, 10);
    raw_reset(fd);
    world_wait(&world, &echo.downs, 1);
    assert_int_equal(echo_answer_parked(&echo), 10);
    assert_serves(echo.address);
    echo_stop(&echo);
}

int main(void)
{
#define TEST_(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST_(hang_ups_in_the_handshake_do_not_deafen_the_listener),
        TEST_(clients_attach_while_garbage_goes_on),
        TEST_(dialers_neither_hammer_nor_give_up_a_server_that_refuses),
        TEST_(silent_peers_in_the_handshake_do_not_delay_closing),
        TEST_(announced_giants_are_hung_up_on_without_allocating),
        TEST_(a_reply_above_the_clients_limit_loses_the_connection_once),
        TEST_(requests_shorter_than_an_id_end_their_connection_only),
        TEST_(peers_beyond_the_limit_are_closed),
        TEST_(requests_above_the_cap_are_marked_and_pressure_is_told),
        TEST_(cap_in_all_holds_over_several_peers),
        TEST_(a_peer_that_does_not_take_its_replies_is_closed),
        TEST_(an_idle_peer_is_closed),
        TEST_(gone_peers_are_told_and_their_requests_answered_to_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
