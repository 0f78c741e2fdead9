/* See fake_rpc.h. Defines what the broker calls of rpc/server.h, so that server.c is not linked. */
#include "tests/unit/broker/fake_rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"

enum { ARENA_BUDGET_BYTES = 64 << 20 };

struct fake_request *fake_request_new(struct clock *clock, const char *client_id, uint64_t peer_id,
                                      int64_t timeout_ms)
{
    struct fake_request *request = calloc(1, sizeof *request);
    ENSURE(request);
    tern__wire__request__init(&request->header);
    request->header.client_id = frame_bytes(client_id, strlen(client_id));
    request->clock = clock;
    request->pub.header = &request->header;
    request->pub.peer.id = peer_id;
    request->pub.peer.remote = (struct host){.ip = {10, 0, 0, (uint8_t)peer_id}, .port = 4711};
    request->pub.received_ns = clock_mono_ns(clock);
    request->pub.deadline_ns = request->pub.received_ns + ms_to_ns(timeout_ms);
    arena_init(&request->arena, ARENA_BUDGET_BYTES);
    return request;
}

void fake_request_free(struct fake_request *request)
{
    ENSURE(request->answers == 1);
    tern__wire__response__free_unpacked(request->response, NULL);
    arena_fini(&request->arena);
    free(request);
}

int fake_request_code(const struct fake_request *request)
{
    return request->answers ? request->response->code : -1;
}

/* ---- rpc/server.h ---- */

void *rpc_request_alloc(struct rpc_request *pub, size_t size)
{
    return arena_alloc(&((struct fake_request *)pub)->arena, size);
}

struct arena *rpc_request_arena(struct rpc_request *pub)
{
    return &((struct fake_request *)pub)->arena;
}

void rpc_reply(struct rpc_request *pub, const TernResponse *header, size_t payload_size)
{
    struct fake_request *request = (struct fake_request *)pub;
    lock_assert_none_held();
    ENSURE(payload_size == 0 && request->answers++ == 0);
    size_t size = tern__wire__response__get_packed_size(header);
    uint8_t *bytes = malloc(size + 1);
    ENSURE(bytes);
    tern__wire__response__pack(header, bytes);
    request->response = tern__wire__response__unpack(NULL, size, bytes);
    ENSURE(request->response);
    free(bytes);
    request->answered_ns = clock_mono_ns(request->clock);
}

void rpc_reply_ok(struct rpc_request *pub)
{
    TernResponse header = TERN__WIRE__RESPONSE__INIT;
    rpc_reply(pub, &header, 0);
}

static void reply_text(struct rpc_request *pub, enum tern_code code, char *text)
{
    TernResponse header = TERN__WIRE__RESPONSE__INIT;
    header.code = wire_code_of(code);
    header.remark = text;
    rpc_reply(pub, &header, 0);
}

void rpc_reply_error(struct rpc_request *pub, enum tern_code code, const char *fmt, ...)
{
    char text[TERN_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    reply_text(pub, code, text);
}

void rpc_reply_failure(struct rpc_request *pub, enum tern_code code, const struct tern_error *err)
{
    reply_text(pub, code, (char *)(uintptr_t)error_text(err, code));
}
