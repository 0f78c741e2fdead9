/*
 * A client of the wire protocol for the component tests: asks a daemon one thing and looks at the
 * answer's code and words. Below that, raw connections that can say what no client of ours would:
 * NNG's handshake and messages by hand (docs/protocol.md), or anything but that.
 */
#ifndef TESTS_COMPONENT_WIRE_H
#define TESTS_COMPONENT_WIRE_H

#include "base/env.h"
#include "base/sched.h"
#include "rpc/client.h"
#include "tests/component/daemons.h"

#define CODE(name) TERN__WIRE__CODE__##name

/* Declares `request` that asks for `body`. */
#define WIRE_REQUEST(request, KIND, field, body)                                                   \
    TernRequest request = TERN__WIRE__REQUEST__INIT;                                               \
    request.body_case = TERN__WIRE__REQUEST__BODY_##KIND;                                          \
    request.field = body

struct wire {
    struct env env;
    struct link *link;
    struct rpc_client *client;
    struct rpc_peer *peer;
};

/* A connection of its own. client_id is borrowed until closed. */
void wire_open(struct wire *wire, const char *address, const char *client_id);
void wire_close(struct wire *wire);

ProtobufCBinaryData bytes_of_text(const char *text);

/* The answer, whatever it is; no answer fails the test. The caller unrefs it. */
struct rpc_call *wire_ask(struct wire *wire, TernRequest *request, const void *payload,
                          size_t size);
/* Asks, and fails the test unless the answer has this code and words (NULL: any) in its remark. */
void wire_expect(struct wire *wire, TernRequest *request, const void *payload, size_t size,
                 int32_t code, const char *words);

/* An answer that will come. */
struct wire_pending {
    struct wire *wire;
    struct latch landed;
    struct rpc_call *call; /* once landed; the caller unrefs it */
    bool abandoned;        /* set before wire_close(): it frees its call itself */
};
void wire_start(struct wire *wire, TernRequest *request, struct wire_pending *pending);
/* The same with a payload, for a client that waits timeout_ms. */
void wire_start_within(struct wire *wire, TernRequest *request, const void *payload, size_t size,
                       int64_t timeout_ms, struct wire_pending *pending);
/* Whether it came within limit_ms. */
bool wire_wait(struct wire_pending *pending, int64_t limit_ms);

/* ---- the requests that most tests need ---- */

void wire_make_topic(struct wire *wire, const char *topic, int32_t queues);
void wire_delete_topic(struct wire *wire, const char *topic);
/* Sends a text with properties (NULL: none): the queue offset; fails the test unless it is OK. */
int64_t wire_send(struct wire *wire, const char *topic, int32_t queue_id, const char *body,
                  const char *properties);
/* The next offset to be given out. */
int64_t wire_max_offset(struct wire *wire, const char *topic, int32_t queue_id);
/* Puts defaults: group "G", every tag, at most 32 messages, no waiting, no commit. */
void wire_fill_pull(Tern__Wire__PullRequest *pull, const char *topic, int32_t queue_id,
                    int64_t offset);
/* Waits until dispatch has reached this offset. */
void wire_await_offset(struct wire *wire, const char *topic, int32_t queue_id, int64_t offset);
/* Reads all `count` messages of queue 0 of T, by offset. */
void wire_expect_readable(struct wire *wire, int64_t count);
/* A value of the broker's status; -1 when it is not there. */
int64_t wire_status(struct wire *wire, const char *key);
/* Asks until the status has this value. */
void wire_await_status(struct wire *wire, const char *key, int64_t value);

/* ---- raw connections ---- */

/* A TCP connection. */
int raw_connect(const char *address);
/* The same with NNG's handshake of a REQ socket done. */
int raw_open(const char *address);
/* Sends one message: length, request id, body. */
void raw_send(int fd, const void *body, size_t size);
/* Sends a request header as a frame, with a header length that may lie, and a payload. */
void raw_send_frame(int fd, uint32_t header_length, const void *header, size_t header_size,
                    const void *payload, size_t payload_size);
/* The answer's code; -1: the connection was closed instead. */
int32_t raw_code(int fd);
/* Until the other side has closed; fails the test when it does not. */
void raw_expect_close(int fd);
/* Closes with RST. */
void raw_reset(int fd);

#endif
