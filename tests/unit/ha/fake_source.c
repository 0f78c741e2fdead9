/* The fake source. Threads: one. */
#include "tests/unit/ha/fake_source.h"

#include <string.h>

#include "base/clock.h"
#include "broker/ha/ha.h"
#include "tests/unit/ha/fake_store.h"

/* ---- handshakes ---- */

static void answer_handshake(struct fake_source *source, struct rpc_request *request)
{
    const Tern__Wire__HaHandshakeRequest *body = request->header->ha_handshake;
    Tern__Wire__HaHandshakeResponse out = TERN__WIRE__HA_HANDSHAKE_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err;

    source->handshakes++;
    source->purpose = (int)body->purpose;
    source->refuses_cut = body->refuses_cut;
    source->has_cut = body->has_cut;
    source->cut_at = body->cut_at;
    ENSURE(ha_member_from_wire(rpc_request_arena(request), body->from, &source->heard, &err) ==
           TERN_OK);
    out.source = ha_member_to_wire(rpc_request_arena(request), &source->member);
    ENSURE(out.source);
    out.session = source->refuse ? 0 : ++source->session;
    out.sync_flush = source->sync_flush;
    out.retry_ms = source->retry_ms;
    response.code = wire_code_of(source->refuse);
    response.remark = "as the test wants it";
    response.body_case = TERN__WIRE__RESPONSE__BODY_HA_HANDSHAKE;
    response.ha_handshake = &out;
    rpc_reply(request, &response, 0);
}

/* ---- fetches ---- */

static size_t fill_bytes(const struct fake_source *source, struct rpc_request *request,
                         Tern__Wire__Epoch *epoch)
{
    const Tern__Wire__HaFetchRequest *body = request->header->ha_fetch;
    int64_t end = 0;
    if (body->from >= source->member.log_end || !body->max_bytes)
        return 0;
    const struct ha_epoch *at =
        ha_epochs_at(source->member.epochs, source->member.epoch_count, body->from, &end);
    if (!at)
        return 0;
    if (end > source->member.log_end)
        end = source->member.log_end;
    size_t size = (size_t)(end - body->from);
    if (size > source->chunk_max)
        size = source->chunk_max;
    if (size > body->max_bytes)
        size = body->max_bytes;
    uint8_t *out = rpc_reply_reserve(request, (size_t)HA_CHUNK_MAX + 1);
    ENSURE(out);
    for (size_t i = 0; i < size; i++)
        out[i] = fake_byte(body->from + (int64_t)i, at->id);
    epoch->number = at->number;
    epoch->id = at->id;
    epoch->start = at->start;
    return size;
}

static size_t spoil(const struct fake_source *source, Tern__Wire__HaFetchResponse *out,
                    Tern__Wire__Epoch *epoch, size_t size)
{
    switch (source->fault) {
    case FAKE_WRONG_FROM:
        out->from += 1;
        break;
    case FAKE_TOO_MUCH:
        return (size_t)HA_CHUNK_MAX + 1;
    case FAKE_NO_EPOCH:
        out->epoch = NULL;
        break;
    case FAKE_OLD_EPOCH:
        epoch->number = 1;
        epoch->id = 1234;
        break;
    case FAKE_OTHER_EPOCH:
        epoch->id += 1;
        break;
    case FAKE_EPOCH_AHEAD:
        epoch->number += 1;
        epoch->start = out->from + 1;
        break;
    case FAKE_EPOCH_EARLY:
        epoch->number += 1;
        epoch->start = out->from - 1;
        break;
    case FAKE_NEGATIVE:
        out->confirmed = -5;
        break;
    default:
        break;
    }
    return size;
}

static Tern__Wire__HaTables *fill_tables(const struct fake_source *source,
                                         const Tern__Wire__HaHeld *held, Tern__Wire__HaTables *out)
{
    tern__wire__ha_tables__init(out);
    out->has_progress = held->progress < source->progress;
    out->progress_to = source->progress;
    out->has_topics = source->topics_version && held->topics_version != source->topics_version;
    out->topics_version = source->topics_version;
    return out->has_progress || out->has_topics ? out : NULL;
}

static void answer_fetch(struct fake_source *source, struct rpc_request *request)
{
    Tern__Wire__HaFetchResponse out = TERN__WIRE__HA_FETCH_RESPONSE__INIT;
    Tern__Wire__Epoch epoch = TERN__WIRE__EPOCH__INIT;
    Tern__Wire__HaTables tables;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;

    if (source->fault == FAKE_OTHER_KIND) {
        rpc_reply_ok(request);
        return;
    }
    out.from = request->header->ha_fetch->from;
    out.appended = out.flushed = source->member.log_end;
    out.confirmed = source->confirmed;
    out.tables = fill_tables(source, request->header->ha_fetch->held, &tables);
    size_t size = out.tables && tables.has_topics ? 0 : fill_bytes(source, request, &epoch);
    if (size > 0) {
        out.epoch = &epoch;
        size = spoil(source, &out, &epoch, size);
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_HA_FETCH;
    response.ha_fetch = &out;
    rpc_reply(request, &response, size);
}

void fake_source_push(struct fake_source *source)
{
    struct rpc_request *request = source->parked;
    if (!request)
        return;
    sim_cancel(source->sched, source->park_timer);
    source->parked = NULL;
    answer_fetch(source, request);
}

static void on_park_end(void *arg)
{
    struct fake_source *source = arg;
    struct rpc_request *request = source->parked;
    source->parked = NULL;
    answer_fetch(source, request);
}

static void take_fetch(struct fake_source *source, struct rpc_request *request)
{
    const Tern__Wire__HaFetchRequest *body = request->header->ha_fetch;
    Tern__Wire__HaTables tables;
    source->fetches++;
    source->from = body->from;
    source->flushed = body->position->flushed;
    source->dispatched = body->position->dispatched;
    source->held = (struct ha_held){body->held->topics_version, body->held->groups_version,
                                    body->held->deletions_version, body->held->progress};
    if (body->session != source->session) {
        rpc_reply_error(request, TERN_INVALID, "handshake again");
        return;
    }
    bool news = body->from < source->member.log_end && body->max_bytes > 0;
    if (news || !body->suspend_timeout_ms || fill_tables(source, body->held, &tables)) {
        answer_fetch(source, request);
        return;
    }
    fake_source_push(source); /* of a connection that was lost */
    source->parked = request;
    source->park_timer =
        sim_after(source->sched, ms_to_ns(body->suspend_timeout_ms), on_park_end, source);
}

/* ---- reports ---- */

static void take_report(struct fake_source *source, struct rpc_request *request)
{
    const Tern__Wire__HaReportRequest *body = request->header->ha_report;
    Tern__Wire__HaReportResponse out = TERN__WIRE__HA_REPORT_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    source->reports++;
    source->report_flushed = body->position->flushed;
    source->dispatched = body->position->dispatched;
    source->report_seen = body->progress_seen;
    if (body->tables && !source->takes_no_progress)
        source->reported = body->tables->progress_to;
    out.progress_seen = source->reported;
    response.body_case = TERN__WIRE__RESPONSE__BODY_HA_REPORT;
    response.ha_report = &out;
    rpc_reply(request, &response, 0);
}

static void on_request(void *arg, struct rpc_request *request)
{
    struct fake_source *source = arg;
    switch (request->header->body_case) {
    case TERN__WIRE__REQUEST__BODY_HA_HANDSHAKE:
        answer_handshake(source, request);
        break;
    case TERN__WIRE__REQUEST__BODY_HA_FETCH:
        take_fetch(source, request);
        break;
    case TERN__WIRE__REQUEST__BODY_HA_REPORT:
        take_report(source, request);
        break;
    default:
        rpc_reply_error(request, TERN_NOT_SUPPORTED, "not here");
    }
}

/* ---- life ---- */

void fake_source_start(struct fake_source *source, struct env *env, struct sim_sched *sched,
                       struct link *link, const char *address)
{
    struct tern_error err = {.text = ""};
    struct rpc_server_options options = {
        .listen = {.address = address,
                   .max_message_bytes = FRAME_HEADER_MAX,
                   .max_peers = 16,
                   .max_requests = 64,
                   .max_requests_per_peer = 64},
        .arena_budget_bytes = 1 << 20,
        .arg = source,
        .on_request = on_request,
    };
    source->env = env;
    source->link = link;
    source->sched = sched;
    source->chunk_max = HA_CHUNK_MAX;
    ENSURE(rpc_server_create(env, link, &options, &source->server, &err) == TERN_OK);
}

void fake_source_stop(struct fake_source *source)
{
    if (!source->server)
        return;
    rpc_server_stop(source->server);
    if (source->parked) {
        sim_cancel(source->sched, source->park_timer);
        rpc_reply_ok(source->parked);
    }
    source->parked = NULL;
    rpc_server_destroy(source->server);
    source->server = NULL;
}
