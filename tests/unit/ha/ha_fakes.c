/* See ha_fakes.h. */
#include "tests/unit/ha/ha_fakes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"

enum { ARENA_BUDGET_BYTES = 8 << 20 };

_Atomic uint64_t fake_closed_peer;

/* ---- the log ---- */

static struct fake_store *fake(struct store *store)
{
    return (struct fake_store *)store;
}

uint8_t fake_byte(int64_t phys_off)
{
    return (uint8_t)((uint64_t)phys_off * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

void store_positions(struct store *store, struct store_positions *out)
{
    struct fake_store *f = fake(store);
    out->min = f->min;
    out->flushed = f->flushed;
    out->dispatched = f->dispatched;
    out->whole = f->whole;
    out->appended = out->whole;
}

enum tern_code store_read_bytes(struct store *store, int64_t phys_off, uint8_t *buf, size_t size,
                                bool nowait, size_t *got)
{
    struct fake_store *f = fake(store);
    lock_assert_none_held();
    *got = 0;
    if (phys_off < f->min || phys_off >= f->whole)
        return TERN_NOT_FOUND;
    if (nowait && f->cold)
        return TERN_AGAIN;
    if (f->read_code != TERN_OK)
        return f->read_code;
    int64_t segment_end = (phys_off / f->segment_bytes + 1) * f->segment_bytes;
    int64_t end = phys_off + (int64_t)size;
    end = end < segment_end ? end : segment_end;
    end = end < f->whole ? end : f->whole;
    for (int64_t at = phys_off; at < end; at++)
        buf[at - phys_off] = fake_byte(at);
    *got = (size_t)(end - phys_off);
    return TERN_OK;
}

enum tern_code store_flush(struct store *store, struct tern_error *err)
{
    struct fake_store *f = fake(store);
    lock_assert_none_held();
    f->flushes++;
    if (f->flush_code != TERN_OK)
        return error_set(err, f->flush_code, "the disk is gone");
    f->flushed = (int64_t)f->whole;
    f->flushed_to = f->flushed;
    return TERN_OK;
}

/* ---- requests ---- */

struct fake_ask *fake_ask_new(const struct env *env, uint64_t peer_id)
{
    struct fake_ask *ask = calloc(1, sizeof *ask);
    ENSURE(ask);
    tern__wire__request__init(&ask->header);
    tern__wire__ha_handshake_request__init(&ask->handshake);
    tern__wire__ha_fetch_request__init(&ask->fetch);
    tern__wire__ha_report_request__init(&ask->report);
    tern__wire__ha_position__init(&ask->position);
    tern__wire__ha_held__init(&ask->held);
    tern__wire__ha_tables__init(&ask->tables);
    arena_init(&ask->arena, ARENA_BUDGET_BYTES);
    latch_init(&ask->answered);
    ask->pub.header = &ask->header;
    ask->pub.peer.id = peer_id;
    ask->pub.peer.remote = (struct host){.ip = {10, 0, 0, (uint8_t)peer_id}, .port = 4711};
    ask->pub.received_ns = clock_mono_ns(env->clock);
    ask->pub.deadline_ns = ask->pub.received_ns + ms_to_ns(4000);
    ask->pub.user = env->sched;
    return ask;
}

void fake_ask_free(struct fake_ask *ask)
{
    ENSURE(ask->answers == 1);
    tern__wire__response__free_unpacked(ask->response, NULL);
    arena_fini(&ask->arena);
    free(ask->reserved);
    free(ask);
}

int fake_ask_code(const struct fake_ask *ask)
{
    return ask->answers ? ask->response->code : -1;
}

/* ---- rpc/server.h ---- */

static struct fake_ask *fake_of(struct rpc_request *pub)
{
    return (struct fake_ask *)pub;
}

void *rpc_request_alloc(struct rpc_request *pub, size_t size)
{
    return arena_alloc(&fake_of(pub)->arena, size);
}

struct arena *rpc_request_arena(struct rpc_request *pub)
{
    return &fake_of(pub)->arena;
}

uint8_t *rpc_reply_reserve(struct rpc_request *pub, size_t payload_cap)
{
    struct fake_ask *ask = fake_of(pub);
    free(ask->reserved);
    ask->reserved = malloc(payload_cap + 1);
    return ask->reserved;
}

void rpc_reply(struct rpc_request *pub, const TernResponse *header, size_t payload_size)
{
    struct fake_ask *ask = fake_of(pub);
    lock_assert_none_held();
    ENSURE(ask->answers == 0 && (ask->reserved || payload_size == 0));
    size_t size = tern__wire__response__get_packed_size(header);
    uint8_t *bytes = malloc(size + 1);
    ENSURE(bytes);
    tern__wire__response__pack(header, bytes);
    ask->response = tern__wire__response__unpack(NULL, size, bytes);
    ENSURE(ask->response);
    free(bytes);
    ask->payload_size = payload_size;
    struct sched *sched = pub->user;
    ask->answers = 1;
    latch_set(sched, &ask->answered);
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

void rpc_server_close_peer(struct rpc_server *server, uint64_t peer_id)
{
    (void)server;
    lock_assert_none_held();
    fake_closed_peer = peer_id;
}
