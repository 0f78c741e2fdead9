/* A link without a network. Threads: the test's only. Aborts without memory. */
#include "tests/unit/namesrv/direct_link.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 64 << 20 };

struct link_msg {
    size_t size;
    uint8_t *body; /* moves when trimmed */
    uint8_t *memory;
};

struct direct_link {
    struct link link; /* first */
    struct link_listen_options listener;
    uint64_t closed_peer;
};

static struct direct_call *call_of(struct link_request *request)
{
    return (struct direct_call *)request;
}

static enum tern_code msg_alloc(struct link *link, size_t size, struct link_msg **out)
{
    (void)link;
    struct link_msg *msg = malloc(sizeof *msg);
    ENSURE(msg);
    msg->size = size;
    msg->memory = malloc(size + 1);
    ENSURE(msg->memory);
    msg->body = msg->memory;
    *out = msg;
    return TERN_OK;
}

static void msg_free(struct link_msg *msg)
{
    free(msg->memory);
    free(msg);
}

static uint8_t *msg_body(struct link_msg *msg)
{
    return msg->body;
}

static size_t msg_size(const struct link_msg *msg)
{
    return msg->size;
}

static void msg_trim(struct link_msg *msg, size_t front_bytes)
{
    ENSURE(front_bytes <= msg->size);
    msg->body += front_bytes;
    msg->size -= front_bytes;
}

static void msg_chop(struct link_msg *msg, size_t end_bytes)
{
    ENSURE(end_bytes <= msg->size);
    msg->size -= end_bytes;
}

static enum tern_code do_listen(struct link *link, const struct link_listen_options *options,
                                struct link_listener **out, struct tern_error *err)
{
    struct direct_link *direct = (struct direct_link *)link;
    (void)err;
    direct->listener = *options;
    *out = (struct link_listener *)direct;
    return TERN_OK;
}

static uint16_t listener_port(const struct link_listener *listener)
{
    (void)listener;
    return 9876;
}

static void listener_close(struct link_listener *listener)
{
    ((struct direct_link *)listener)->listener.on_request = NULL;
}

static struct link_msg *request_msg(struct link_request *request)
{
    return call_of(request)->request;
}

static void request_peer(const struct link_request *request, struct link_peer *out)
{
    const struct direct_call *call = (const struct direct_call *)request;
    *out = (struct link_peer){.id = call->peer_id};
}

static bool request_over_cap(const struct link_request *request)
{
    (void)request;
    return false;
}

static void request_release(struct link_request *request)
{
    struct direct_call *call = call_of(request);
    if (call->request)
        msg_free(call->request);
    call->request = NULL;
}

static void do_reply(struct link_request *request, struct link_msg *msg)
{
    struct direct_call *call = call_of(request);
    const uint8_t *payload;
    size_t payload_size;
    request_release(request);
    ENSURE(msg && !call->reply);
    call->reply = msg;
    call->response =
        frame_unpack_response(&call->arena, msg->body, msg->size, &payload, &payload_size, NULL);
    ENSURE(call->response);
}

static void peer_close(struct link_listener *listener, uint64_t peer_id)
{
    ((struct direct_link *)listener)->closed_peer = peer_id;
}

static void do_destroy(struct link *link)
{
    free(link);
}

static const struct link_ops ops = {.msg_alloc = msg_alloc,
                                    .msg_free = msg_free,
                                    .msg_body = msg_body,
                                    .msg_size = msg_size,
                                    .msg_trim = msg_trim,
                                    .msg_chop = msg_chop,
                                    .listen = do_listen,
                                    .listener_port = listener_port,
                                    .listener_close = listener_close,
                                    .request_msg = request_msg,
                                    .request_peer = request_peer,
                                    .request_over_cap = request_over_cap,
                                    .request_release = request_release,
                                    .reply = do_reply,
                                    .peer_close = peer_close,
                                    .destroy = do_destroy};

struct direct_link *direct_link_create(void)
{
    struct direct_link *direct = calloc(1, sizeof *direct);
    ENSURE(direct);
    direct->link.ops = &ops;
    return direct;
}

struct link *direct_link_base(struct direct_link *direct)
{
    return &direct->link;
}

static struct direct_call *send_msg(struct direct_link *direct, uint64_t peer_id,
                                    struct link_msg *msg)
{
    struct direct_call *call = calloc(1, sizeof *call);
    ENSURE(call && direct->listener.on_request);
    call->owner = direct;
    call->peer_id = peer_id;
    call->request = msg;
    arena_init(&call->arena, ARENA_BYTES);
    direct->listener.on_request(direct->listener.arg, (struct link_request *)call);
    return call;
}

struct direct_call *direct_send(struct direct_link *direct, uint64_t peer_id, TernRequest *header)
{
    struct link_msg *msg;
    header->version = PROTOCOL_VERSION;
    ENSURE(frame_reserve(&direct->link, 0, &msg) == TERN_OK);
    ENSURE(frame_finish_request(&direct->link, &msg, header, 0) == TERN_OK);
    return send_msg(direct, peer_id, msg);
}

struct direct_call *direct_send_bytes(struct direct_link *direct, uint64_t peer_id,
                                      const void *bytes, size_t size)
{
    struct link_msg *msg;
    ENSURE(msg_alloc(&direct->link, size, &msg) == TERN_OK);
    if (size > 0)
        memcpy(msg->body, bytes, size);
    return send_msg(direct, peer_id, msg);
}

void direct_call_free(struct direct_call *call)
{
    ENSURE(call->reply);
    msg_free(call->reply);
    arena_fini(&call->arena);
    free(call);
}

void direct_peer_gone(struct direct_link *direct, uint64_t peer_id)
{
    struct link_peer peer = {.id = peer_id};
    direct->listener.on_peer(direct->listener.arg, &peer, false);
}

uint64_t direct_closed_peer(const struct direct_link *direct)
{
    return direct->closed_peer;
}
