/* The tests' shared world; see the header. */
#include "tests/unit/rpc/rpc_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "tests/unit/base/held_port.h"

#ifdef __SANITIZE_ADDRESS__
/* NNG 1.5.2 loses a reply whose connection goes just when it is handed over. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:echo_reply\n";
}
#endif

void world_init(struct world *world)
{
    memset(world, 0, sizeof *world);
    env_init_system(&world->env, NULL);
    assert_ok(link_nng_create(&world->env, &world->link, NULL));
    uint16_t port;
    world->held = port_hold(&port);
    snprintf(world->address, sizeof world->address, "127.0.0.1:%u", port);
}

void world_fini(struct world *world)
{
    link_destroy(world->link);
    close(world->held);
}

int64_t world_now_ms(const struct world *world)
{
    return clock_mono_ns(world->env.clock) / 1000000;
}

void world_wait(const struct world *world, const _Atomic uint32_t *value, uint32_t least)
{
    int64_t end_ms = world_now_ms(world) + WORLD_WAIT_MS;
    while (atomic_load(value) < least && world_now_ms(world) < end_ms)
        usleep(500);
    if (atomic_load(value) < least)
        fail_msg("waited %d ms, got %u of %u", WORLD_WAIT_MS, atomic_load(value), least);
}

/* ---- echo server ---- */

static void echo_reply(struct echo *echo, struct link_request *request)
{
    struct link *link = echo->world->link;
    struct link_msg *in = link_request_msg(link, request);
    struct link_msg *out;
    size_t size = link_msg_size(link, in);
    assert_ok(link_msg_alloc(link, size, &out));
    if (size > 0)
        memcpy(link_msg_body(link, out), link_msg_body(link, in), size);
    link_reply(link, request, out);
}

static void on_echo_request(void *arg, struct link_request *request)
{
    struct echo *echo = arg;
    struct link *link = echo->world->link;
    struct link_msg *msg = link_request_msg(link, request);
    char first = link_msg_size(link, msg) > 0 ? (char)*link_msg_body(link, msg) : 0;
    atomic_fetch_add(&echo->requests, 1);
    if (link_request_over_cap(link, request)) {
        atomic_fetch_add(&echo->over_cap, 1);
        echo_reply(echo, request);
        return;
    }
    if (first == 'D') {
        link_reply(link, request, NULL);
        return;
    }
    if (first == 'B') {
        struct link_msg *big;
        assert_ok(link_msg_alloc(link, ECHO_BIG_BYTES, &big));
        memset(link_msg_body(link, big), 0, ECHO_BIG_BYTES);
        link_reply(link, request, big);
        return;
    }
    if (first != 'P') {
        echo_reply(echo, request);
        return;
    }
    lock_acquire(&echo->lock);
    uint32_t at = atomic_load(&echo->parked_count);
    bool room = at < WORLD_PARKED_MAX;
    if (room)
        echo->parked[at] = request;
    if (room)
        atomic_store(&echo->parked_count, at + 1);
    lock_release(&echo->lock);
    if (!room)
        echo_reply(echo, request);
}

static void on_echo_peer(void *arg, const struct link_peer *peer, bool up)
{
    struct echo *echo = arg;
    (void)peer;
    atomic_fetch_add(up ? &echo->ups : &echo->downs, 1);
}

static void on_echo_pressure(void *arg, const struct link_peer *peer)
{
    struct echo *echo = arg;
    (void)peer;
    atomic_fetch_add(&echo->pressures, 1);
}

void echo_start(struct echo *echo, struct world *world, const struct link_listen_options *options)
{
    struct link_listen_options listen = {.max_message_bytes = WORLD_MESSAGE_MAX};
    struct tern_error err = {.code = TERN_OK};
    memset(echo, 0, sizeof *echo);
    if (options)
        listen = *options;
    lock_init(&echo->lock, LOCK_LONG_POLL);
    echo->world = world;
    if (!listen.address)
        listen.address = world->address;
    listen.arg = echo;
    listen.on_request = on_echo_request;
    listen.on_peer = on_echo_peer;
    listen.on_pressure = on_echo_pressure;
    if (link_listen(world->link, &listen, &echo->listener, &err) != TERN_OK)
        fail_msg("%s", err.text);
    bool v6 = listen.address[0] == '[';
    snprintf(echo->address, sizeof echo->address, "%s:%u", v6 ? "[::1]" : "127.0.0.1",
             link_listener_port(world->link, echo->listener));
}

uint32_t echo_answer_parked(struct echo *echo)
{
    uint32_t answered = 0;
    for (;;) {
        struct link_request *request = NULL;
        lock_acquire(&echo->lock);
        uint32_t count = atomic_load(&echo->parked_count);
        if (count > 0) {
            request = echo->parked[count - 1];
            atomic_store(&echo->parked_count, count - 1);
        }
        lock_release(&echo->lock);
        if (!request)
            return answered;
        echo_reply(echo, request);
        answered++;
    }
}

void echo_stop(struct echo *echo)
{
    link_listener_close(echo->world->link, echo->listener);
    echo_answer_parked(echo);
    lock_fini(&echo->lock);
}

/* ---- client ---- */

static void on_dial_state(void *arg, bool up)
{
    struct dialled *dialled = arg;
    atomic_fetch_add(up ? &dialled->ups : &dialled->downs, 1);
}

void dial_start(struct dialled *dialled, struct world *world, const char *address,
                int64_t connect_wait_ms)
{
    struct tern_error err = {.code = TERN_OK};
    memset(dialled, 0, sizeof *dialled);
    dialled->world = world;
    struct link_dial_options options = {
        .address = address,
        .max_message_bytes = WORLD_MESSAGE_MAX,
        .reconnect_min_ms = 100,
        .reconnect_max_ms = 2000,
        .connect_wait_ms = connect_wait_ms,
        .arg = dialled,
        .on_state = on_dial_state,
    };
    if (link_dial(world->link, &options, &dialled->conn, &err) != TERN_OK)
        fail_msg("%s", err.text);
}

void dial_stop(struct dialled *dialled)
{
    link_conn_close(dialled->world->link, dialled->conn);
}

void results_init(struct results *results, struct world *world)
{
    memset(results, 0, sizeof *results);
    results->world = world;
}

void results_done(void *arg, enum tern_code status, struct link_msg *reply)
{
    struct results *results = arg;
    struct link *link = results->world->link;
    assert_true((status == TERN_OK) == (reply != NULL));
    if (reply)
        atomic_fetch_add(&results->reply_bytes, link_msg_size(link, reply));
    link_msg_free(link, reply);
    atomic_fetch_add(&results->by_status[status], 1);
    atomic_fetch_add(&results->done, 1);
}

void call_with(struct dialled *dialled, char fill, size_t size, int64_t timeout_ms,
               struct results *results)
{
    struct link *link = dialled->world->link;
    struct link_msg *msg;
    assert_ok(link_msg_alloc(link, size, &msg));
    if (size > 0)
        memset(link_msg_body(link, msg), fill, size);
    int64_t deadline_ns = clock_mono_ns(dialled->world->env.clock) + ms_to_ns(timeout_ms);
    link_call(link, dialled->conn, msg, deadline_ns, results_done, results);
}

/* ---- plain sockets ---- */

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int raw_listen(uint16_t *port)
{
    int fd = port_hold(port);
    assert_int_equal(listen(fd, 128), 0);
    return fd;
}

int raw_connect(uint16_t port)
{
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

void raw_reset(int fd)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
    close(fd);
}

void raw_send(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* the other end has left; the test looks at what comes of it */
        at += sent;
        size -= (size_t)sent;
    }
}

bool raw_recv(int fd, void *bytes, size_t size)
{
    char *at = bytes;
    while (size > 0) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (poll(&poll_fd, 1, 5000) != 1)
            return false;
        ssize_t got = recv(fd, at, size, 0);
        if (got <= 0)
            return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

void raw_handshake(int fd)
{
    static const uint8_t req[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
    static const uint8_t rep[8] = {0, 'S', 'P', 0, 0, 0x31, 0, 0};
    uint8_t got[8];
    raw_send(fd, req, sizeof req);
    assert_true(raw_recv(fd, got, sizeof got));
    assert_memory_equal(got, rep, sizeof rep);
}

void raw_request(int fd, uint32_t id, const void *body, size_t size)
{
    uint8_t head[12];
    put_be64(head, size + 4);
    put_be32(head + 8, 0x80000000u | id);
    raw_send(fd, head, sizeof head);
    raw_send(fd, body, size);
}

bool raw_closed(int fd)
{
    char byte;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    if (poll(&poll_fd, 1, 5000) != 1)
        return false;
    ssize_t got = recv(fd, &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
}

uint16_t port_of(const char *address)
{
    return (uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10);
}

size_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %lu", &pages), 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}
