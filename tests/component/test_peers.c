/*
 * Peers that are none, or that lie, at the broker's port: hang-ups in the handshake, other
 * protocols, frames and headers that do not add up, announced sizes, clients killed in mid-request.
 * Whatever comes, the broker goes on serving others, keeps its memory, and says why it refused.
 */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "tests/component/wire.h"
#include "tests/unit/base/unit.h"

enum { HANGUPS = 500, GROWTH_LIMIT_KIB = 16 << 10 };

static struct cluster cluster;
static struct wire wire;

static int set_up(void **state)
{
    (void)state;
    cluster_up_alone(&cluster, (const char *const[]){"flushDiskType=ASYNC_FLUSH", NULL});
    wire_open(&wire, cluster.broker.address, "127.0.0.1@good");
    wire_make_topic(&wire, "T", 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wire_close(&wire);
    cluster_down(&cluster);
    return 0;
}

/* A client that was there, and one that comes now, are served soon. */
static void expect_served(void)
{
    struct wire fresh;
    int64_t begin = now_ms();
    wire_send(&wire, "T", 0, "x", NULL);
    wire_open(&fresh, cluster.broker.address, "127.0.0.1@fresh");
    wire_send(&fresh, "T", 0, "x", NULL);
    wire_close(&fresh);
    assert_true(now_ms() - begin < 10000);
}

/* NN-01 */
static void hang_ups_in_the_handshake_do_not_close_the_door(void **state)
{
    static const uint8_t greeting[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
    (void)state;
    for (size_t i = 0; i < HANGUPS; i++) {
        int fd = raw_connect(cluster.broker.address);
        if (i % 9)
            assert_true(send(fd, i % 2 ? (const char *)greeting : "garbage!", i % 9, MSG_NOSIGNAL) >
                        0);
        raw_reset(fd);
    }
    expect_served();
}

/* NN-01, issue "a peer that is no NNG peer" */
static void other_protocols_are_hung_up_on(void **state)
{
    static const char *const talk[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                       "\x16\x03\x01\x02\x03\x01\x02\x03\xfc\x03\x03",
                                       "EHLO example\r\n", "\xff\xff\xff\xff\xff\xff\xff\xff"};
    static const uint8_t publisher[8] = {0, 'S', 'P', 0, 0, 0x20, 0, 0};
    (void)state;
    for (size_t i = 0; i < sizeof talk / sizeof talk[0]; i++) {
        int fd = raw_connect(cluster.broker.address);
        assert_true(send(fd, talk[i], strlen(talk[i]), MSG_NOSIGNAL) > 0);
        raw_expect_close(fd);
        close(fd);
    }
    int fd = raw_connect(cluster.broker.address);
    assert_true(send(fd, publisher, sizeof publisher, MSG_NOSIGNAL) > 0);
    raw_expect_close(fd);
    close(fd);
    expect_served();
}

/* NN-04: a size is only believed up to the limit, and nothing is set aside for it */
static void announced_sizes_above_the_limit_close_the_connection(void **state)
{
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_C(1) << 62, UINT64_C(1) << 40,
                                     UINT64_C(1) << 32, 64 << 20};
    (void)state;
    int64_t before = daemon_rss_kib(&cluster.broker);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t length[8];
        int fd = raw_open(cluster.broker.address);
        put_be64(length, sizes[i]);
        assert_true(send(fd, length, sizeof length, MSG_NOSIGNAL) > 0);
        raw_expect_close(fd);
        close(fd);
    }
    assert_true(!RSS_IS_OURS || daemon_rss_kib(&cluster.broker) - before < GROWTH_LIMIT_KIB);
    expect_served();
}

/* NN-10 */
static void malformed_headers_are_refused_and_the_connection_goes_on(void **state)
{
    static const uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x80, 0x80};
    static const uint8_t cut[] = {0x52, 0x7f, 0x0a}; /* send: 127 bytes, 1 follows */
    static const uint8_t other_version[] = {0x08, 0x02, 0xd2, 0x03, 0x00};
    static const uint8_t unknown_body[] = {0x08, 0x01, 0xa2, 0x3f, 0x00}; /* field 1012 */
    static const uint8_t no_body[] = {0x08, 0x01};
    static const struct {
        const uint8_t *bytes;
        size_t size;
        uint32_t length;
        int32_t code;
    } frames[] = {
        {garbage, sizeof garbage, sizeof garbage, CODE(INVALID_REQUEST)},
        {cut, sizeof cut, sizeof cut, CODE(INVALID_REQUEST)},
        {garbage, sizeof garbage, 1000, CODE(INVALID_REQUEST)},
        {garbage, sizeof garbage, UINT32_MAX, CODE(INVALID_REQUEST)},
        {no_body, sizeof no_body, sizeof no_body, CODE(REQUEST_CODE_NOT_SUPPORTED)},
        {no_body, 0, 0, CODE(VERSION_NOT_SUPPORTED)},
        {other_version, sizeof other_version, sizeof other_version, CODE(VERSION_NOT_SUPPORTED)},
        {unknown_body, sizeof unknown_body, sizeof unknown_body, CODE(REQUEST_CODE_NOT_SUPPORTED)},
    };
    (void)state;
    int fd = raw_open(cluster.broker.address);
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        raw_send_frame(fd, frames[i].length, frames[i].bytes, frames[i].size, NULL, 0);
        int32_t code = raw_code(fd);
        if (code != frames[i].code)
            fail_msg("frame %zu: code %d, expected %d", i, code, frames[i].code);
    }
    raw_send(fd, "ab", 2); /* shorter than its length field */
    assert_int_equal(raw_code(fd), CODE(INVALID_REQUEST));
    close(fd);
    expect_served();
}

/* NN-10: few bytes that say they are many, or that are many for little */
static void headers_that_ask_for_much_memory_are_refused(void **state)
{
    enum { GROUPS = 4 << 20 };
    (void)state;
    int64_t before = daemon_rss_kib(&cluster.broker);
    /* version 1, heartbeat (field 30) with millions of empty producer groups */
    uint8_t *header = malloc(2 * GROUPS + 16);
    assert_non_null(header);
    size_t n = 0;
    memcpy(header, "\x08\x01\xf2\x01", 4);
    n = 4;
    for (size_t size = 2 * GROUPS; size; size >>= 7)
        header[n++] = (uint8_t)((size & 0x7f) | (size >> 7 ? 0x80 : 0));
    for (size_t i = 0; i < GROUPS; i++) {
        header[n++] = 0x0a;
        header[n++] = 0x00;
    }
    int fd = raw_open(cluster.broker.address);
    raw_send_frame(fd, (uint32_t)n, header, n, NULL, 0);
    assert_int_equal(raw_code(fd), CODE(INVALID_REQUEST));
    close(fd);
    free(header);
    expect_served();
    assert_true(!RSS_IS_OURS || daemon_rss_kib(&cluster.broker) - before < 4 * GROWTH_LIMIT_KIB);
}

/* Random bytes behind a right greeting, from a fixed seed */
static void random_frames_never_harm(void **state)
{
    enum { FRAMES = 2000, FRAME_MAX = 200 };
    unsigned seed = 20240229;
    (void)state;
    int fd = raw_open(cluster.broker.address);
    for (int i = 0; i < FRAMES; i++) {
        uint8_t frame[FRAME_MAX];
        size_t size = 4 + (size_t)(rand_r(&seed) % (FRAME_MAX - 4));
        for (size_t j = 0; j < size; j++)
            frame[j] = (uint8_t)rand_r(&seed);
        uint32_t length = (uint32_t)size - 4;
        if (size > 6 && i % 2)
            memcpy(frame + 4, "\x08\x01", 2); /* the right version, so that more is looked at */
        put_be32(frame, length);
        raw_send(fd, frame, size);
        assert_int_not_equal(raw_code(fd), CODE(SUCCESS));
    }
    close(fd);
    expect_served();
}

/* Connections that begin a message and never end it keep no room for it */
static void half_sent_messages_do_not_add_up(void **state)
{
    enum { PEERS = 200 };
    static int fds[PEERS];
    (void)state;
    int64_t before = daemon_rss_kib(&cluster.broker);
    for (int i = 0; i < PEERS; i++) {
        uint8_t head[16] = {0};
        fds[i] = raw_open(cluster.broker.address);
        put_be64(head, 1 << 20);
        assert_int_equal(send(fds[i], head, sizeof head, MSG_NOSIGNAL), sizeof head);
    }
    expect_served();
    int64_t grown = daemon_rss_kib(&cluster.broker) - before;
    for (int i = 0; i < PEERS; i++)
        close(fds[i]);
    assert_true(!RSS_IS_OURS || grown < GROWTH_LIMIT_KIB);
    expect_served();
}

/* A child that sends as fast as it can until it is killed. */
static pid_t start_sender(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    uint8_t header[128];
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    send.topic = bytes_of_text("T");
    WIRE_REQUEST(request, SEND, send, &send);
    request.version = PROTOCOL_VERSION;
    size_t size = tern__wire__request__pack(&request, header);
    static char body[100000];
    int fd = raw_open(cluster.broker.address);
    for (;;) {
        raw_send_frame(fd, (uint32_t)size, header, size, body, sizeof body);
        if (raw_code(fd) < 0)
            _exit(0);
    }
}

/* ST-24, NN-08: requests of the dead are finished or dropped, nothing is left of them */
static void clients_killed_in_mid_request_leave_nothing_behind(void **state)
{
    enum { CLIENTS = 20 };
    (void)state;
    wire_await_status(&wire, "connections", 1);
    for (int i = 0; i < CLIENTS; i++) {
        pid_t pid = start_sender();
        struct timespec moment = {.tv_nsec = 10000000 + i * 1000000};
        nanosleep(&moment, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    wire_await_status(&wire, "connections", 1);
    wire_await_status(&wire, "pendingRequests", 1); /* the question itself */
    expect_served();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hang_ups_in_the_handshake_do_not_close_the_door),
        cmocka_unit_test(other_protocols_are_hung_up_on),
        cmocka_unit_test(announced_sizes_above_the_limit_close_the_connection),
        cmocka_unit_test(malformed_headers_are_refused_and_the_connection_goes_on),
        cmocka_unit_test(headers_that_ask_for_much_memory_are_refused),
        cmocka_unit_test(random_frames_never_harm),
        cmocka_unit_test(half_sent_messages_do_not_add_up),
        cmocka_unit_test(clients_killed_in_mid_request_leave_nothing_behind),
    };
    return cmocka_run_group_tests_name("peers", tests, set_up, tear_down);
}
