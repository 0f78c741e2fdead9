/* See wire.h. The raw half speaks SP over TCP: 8 bytes of greeting, then 8 bytes of length each. */
#include "tests/component/wire.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "tests/unit/base/unit.h"

enum { GREETING_BYTES = 8, LENGTH_BYTES = 8, REQUEST_ID_BYTES = 4, ANSWER_MAX = 1 << 20 };

/* ---- a client ---- */

void wire_open(struct wire *wire, const char *address, const char *client_id)
{
    struct rpc_client_options options = {.max_message_bytes = frame_max_bytes(64 << 20),
                                         .connect_wait_ms = PATIENCE_MS,
                                         .reconnect_min_ms = 5,
                                         .reconnect_max_ms = 50,
                                         .client_id = client_id};
    env_init_system(&wire->env, NULL);
    assert_ok(link_nng_create(&wire->env, &wire->link, NULL));
    assert_ok(rpc_client_create(&wire->env, wire->link, &options, &wire->client));
    assert_ok(rpc_peer_get(wire->client, address, &wire->peer, NULL));
}

void wire_close(struct wire *wire)
{
    rpc_peer_unref(wire->peer);
    rpc_client_destroy(wire->client);
    link_destroy(wire->link);
}

ProtobufCBinaryData bytes_of_text(const char *text)
{
    return frame_bytes(text, strlen(text));
}

struct rpc_call *wire_ask(struct wire *wire, TernRequest *request, const void *payload, size_t size)
{
    struct tern_error err = {.text = ""};
    struct rpc_call *call = NULL;
    enum tern_code code =
        rpc_call_wait(wire->peer, request, payload, size, PATIENCE_MS, &call, &err);
    if (!call)
        fail_msg("no answer: %s %s", tern_code_name(code), err.text);
    return call;
}

void wire_expect(struct wire *wire, TernRequest *request, const void *payload, size_t size,
                 int32_t code, const char *words)
{
    struct rpc_call *call = wire_ask(wire, request, payload, size);
    if (call->response->code != code || (words && !strstr(call->response->remark, words)))
        fail_msg("request %d: code %d \"%s\", expected %d with \"%s\"", (int)request->body_case,
                 call->response->code, call->response->remark, code, words ? words : "");
    rpc_call_unref(call);
}

static void on_landed(struct rpc_call *call, void *arg)
{
    struct wire_pending *pending = arg;
    if (pending->abandoned)
        rpc_call_unref(call);
    else
        pending->call = call;
    latch_set(pending->wire->env.sched, &pending->landed);
}

void wire_start_within(struct wire *wire, TernRequest *request, const void *payload, size_t size,
                       int64_t timeout_ms, struct wire_pending *pending)
{
    struct rpc_call *call;
    *pending = (struct wire_pending){.wire = wire};
    latch_init(&pending->landed);
    assert_ok(rpc_call_create(wire->peer, size, &call));
    if (size)
        memcpy(rpc_call_payload(call), payload, size);
    rpc_call_start(call, request, size, timeout_ms, on_landed, pending);
}

void wire_start(struct wire *wire, TernRequest *request, struct wire_pending *pending)
{
    wire_start_within(wire, request, NULL, 0, 4 * PATIENCE_MS, pending);
}

bool wire_wait(struct wire_pending *pending, int64_t limit_ms)
{
    int64_t deadline = clock_mono_ns(clock_system()) + ms_to_ns(limit_ms);
    return latch_wait(pending->wire->env.sched, &pending->landed, deadline);
}

/* ---- requests ---- */

void wire_make_topic(struct wire *wire, const char *topic, int32_t queues)
{
    Tern__Wire__TopicConfig config = TERN__WIRE__TOPIC_CONFIG__INIT;
    Tern__Wire__UpdateTopicRequest body = TERN__WIRE__UPDATE_TOPIC_REQUEST__INIT;
    config.name = bytes_of_text(topic);
    config.read_queues = config.write_queues = queues;
    config.perm = 6;
    body.topic = &config;
    WIRE_REQUEST(request, UPDATE_TOPIC, update_topic, &body);
    wire_expect(wire, &request, NULL, 0, CODE(SUCCESS), NULL);
}

void wire_delete_topic(struct wire *wire, const char *topic)
{
    Tern__Wire__DeleteTopicRequest body = TERN__WIRE__DELETE_TOPIC_REQUEST__INIT;
    body.topic = bytes_of_text(topic);
    WIRE_REQUEST(request, DELETE_TOPIC, delete_topic, &body);
    wire_expect(wire, &request, NULL, 0, CODE(SUCCESS), NULL);
}

int64_t wire_send(struct wire *wire, const char *topic, int32_t queue_id, const char *body,
                  const char *properties)
{
    Tern__Wire__SendRequest send = TERN__WIRE__SEND_REQUEST__INIT;
    send.topic = bytes_of_text(topic);
    send.queue_id = queue_id;
    if (properties)
        send.properties = bytes_of_text(properties);
    WIRE_REQUEST(request, SEND, send, &send);
    struct rpc_call *call = wire_ask(wire, &request, body, strlen(body));
    if (call->response->code != CODE(SUCCESS))
        fail_msg("send: code %d %s", call->response->code, call->response->remark);
    int64_t offset = call->response->send->queue_offset;
    rpc_call_unref(call);
    return offset;
}

int64_t wire_max_offset(struct wire *wire, const char *topic, int32_t queue_id)
{
    Tern__Wire__QueueRangeRequest range = TERN__WIRE__QUEUE_RANGE_REQUEST__INIT;
    range.topic = bytes_of_text(topic);
    range.queue_id = queue_id;
    WIRE_REQUEST(request, QUEUE_RANGE, queue_range, &range);
    struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
    if (call->response->code != CODE(SUCCESS))
        fail_msg("queue range: code %d %s", call->response->code, call->response->remark);
    int64_t max = call->response->queue_range->max_offset;
    rpc_call_unref(call);
    return max;
}

void wire_await_offset(struct wire *wire, const char *topic, int32_t queue_id, int64_t offset)
{
    int64_t deadline = now_ms() + PATIENCE_MS;
    while (wire_max_offset(wire, topic, queue_id) < offset) {
        assert_true(now_ms() < deadline);
        look_again_soon();
    }
}

void wire_expect_readable(struct wire *wire, int64_t count)
{
    Tern__Wire__PullRequest pull;
    WIRE_REQUEST(request, PULL, pull, &pull);
    wire_await_offset(wire, "T", 0, count);
    for (int64_t next = 0; next < count;) {
        wire_fill_pull(&pull, "T", 0, next);
        struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
        assert_int_equal(call->response->code, CODE(SUCCESS));
        next = call->response->pull->next_offset;
        rpc_call_unref(call);
    }
}

void wire_fill_pull(Tern__Wire__PullRequest *pull, const char *topic, int32_t queue_id,
                    int64_t offset)
{
    tern__wire__pull_request__init(pull);
    pull->group = bytes_of_text("G");
    pull->topic = bytes_of_text(topic);
    pull->queue_id = queue_id;
    pull->offset = offset;
    pull->max_count = 32;
    pull->has_subscription = true;
}

int64_t wire_status(struct wire *wire, const char *key)
{
    Tern__Wire__BrokerStatusRequest body = TERN__WIRE__BROKER_STATUS_REQUEST__INIT;
    WIRE_REQUEST(request, BROKER_STATUS, broker_status, &body);
    struct rpc_call *call = wire_ask(wire, &request, NULL, 0);
    int64_t value = -1;
    assert_int_equal(call->response->code, CODE(SUCCESS));
    for (size_t i = 0; i < call->response->broker_status->n_entries; i++)
        if (!strcmp(call->response->broker_status->entries[i]->key, key))
            value = strtoll(call->response->broker_status->entries[i]->value, NULL, 10);
    rpc_call_unref(call);
    return value;
}

void wire_await_status(struct wire *wire, const char *key, int64_t value)
{
    int64_t deadline = now_ms() + PATIENCE_MS, seen;
    while ((seen = wire_status(wire, key)) != value) {
        if (now_ms() >= deadline)
            fail_msg("%s stays %lld, expected %lld", key, (long long)seen, (long long)value);
        look_again_soon();
    }
}

/* ---- raw connections ---- */

int raw_connect(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    int at_once = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void send_all(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* closed by the other side: the test will see it when it reads */
        at += sent;
        size -= (size_t)sent;
    }
}

static bool receive_all(int fd, void *bytes, size_t size)
{
    char *at = bytes;
    while (size > 0) {
        ssize_t got = recv(fd, at, size, 0);
        if (got <= 0)
            return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

int raw_open(const char *address)
{
    static const uint8_t req[GREETING_BYTES] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
    static const uint8_t rep[GREETING_BYTES] = {0, 'S', 'P', 0, 0, 0x31, 0, 0};
    uint8_t greeting[GREETING_BYTES];
    int fd = raw_connect(address);
    send_all(fd, req, sizeof req);
    assert_true(receive_all(fd, greeting, sizeof greeting));
    assert_memory_equal(greeting, rep, sizeof rep);
    return fd;
}

static void send_head(int fd, size_t body_size)
{
    uint8_t head[LENGTH_BYTES + REQUEST_ID_BYTES];
    put_be64(head, REQUEST_ID_BYTES + body_size);
    put_be32(head + LENGTH_BYTES, 0x80000001u);
    send_all(fd, head, sizeof head);
}

void raw_send(int fd, const void *body, size_t size)
{
    send_head(fd, size);
    send_all(fd, body, size);
}

void raw_send_frame(int fd, uint32_t header_length, const void *header, size_t header_size,
                    const void *payload, size_t payload_size)
{
    uint8_t length[4];
    put_be32(length, header_length);
    send_head(fd, sizeof length + header_size + payload_size);
    send_all(fd, length, sizeof length);
    send_all(fd, header, header_size);
    send_all(fd, payload, payload_size);
}

int32_t raw_code(int fd)
{
    uint8_t head[LENGTH_BYTES];
    if (!receive_all(fd, head, sizeof head))
        return -1;
    uint64_t size = get_be64(head);
    assert_in_range(size, REQUEST_ID_BYTES + 4, ANSWER_MAX);
    uint8_t *answer = malloc(size);
    assert_non_null(answer);
    assert_true(receive_all(fd, answer, size));
    uint32_t header_size = get_be32(answer + REQUEST_ID_BYTES);
    assert_true(header_size <= size - REQUEST_ID_BYTES - 4);
    Tern__Wire__Response *response =
        tern__wire__response__unpack(NULL, header_size, answer + REQUEST_ID_BYTES + 4);
    assert_non_null(response);
    int32_t code = response->code;
    tern__wire__response__free_unpacked(response, NULL);
    free(answer);
    return code;
}

void raw_expect_close(int fd)
{
    char byte;
    int64_t deadline = now_ms() + PATIENCE_MS;
    for (;;) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        int64_t left = deadline - now_ms();
        if (left <= 0 || poll(&readable, 1, (int)left) != 1)
            fail_msg("the connection stays open");
        if (recv(fd, &byte, 1, 0) <= 0)
            return;
    }
}

void raw_reset(int fd)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
}
