/*
 * Reports: what moves at a member while its fetch is parked, and the progress that was made there.
 *
 * Its place: beside the fetches, for acknowledgements that should not wait for new bytes (flushed)
 * and for consumers' progress while the member serves them. Threads: the link's; one report of a
 * session at a time. Failure modes: a claim that cannot be true ends the session; tables that
 * cannot be taken are answered with the cause and come again.
 */
#include "broker/ha/source_internal.h"

#include "base/clock.h"

/* NULL, or why it cannot be true. A fetch may have overtaken it, so lower values than a fetch's are
 * no lie. @locks holds:HA_SOURCE */
static const char *check_claim(const struct session *session, const Tern__Wire__HaReportRequest *in)
{
    const Tern__Wire__HaPosition *at = in->position;
    const struct position *before = &session->reported;
    if (session->reporting)
        return "it reports before its last report was answered";
    if (!at)
        return "its report says no position";
    if (at->appended < session->start || at->appended > session->sent)
        return "it claims an end outside of what this session has sent";
    if (at->flushed < 0 || at->flushed > at->appended)
        return "it claims to have flushed more than it has";
    if (at->dispatched < 0 || at->dispatched > at->appended)
        return "it claims to have dispatched more than it has";
    if (at->appended < before->appended || at->flushed < before->flushed ||
        at->dispatched < before->dispatched)
        return "its positions went back within a session";
    if (in->tables && (in->tables->has_topics || in->tables->has_groups))
        return "it sends topics or groups, which are the source's";
    return NULL;
}

/* @locks holds:HA_SOURCE */
static void take_claim(struct session *session, const Tern__Wire__HaReportRequest *in,
                       uint64_t own_progress)
{
    const Tern__Wire__HaPosition *at = in->position;
    uint64_t seen = in->progress_seen < own_progress ? in->progress_seen : own_progress;
    session->reporting = true;
    session->reported = (struct position){.appended = at->appended,
                                          .flushed = at->flushed,
                                          .dispatched = at->dispatched,
                                          .readable = at->readable};
    session->fetched.readable = at->readable;
    if (session->progress_seen < seen)
        session->progress_seen = seen;
}

/* Merges what came along and answers. @locks none */
static void finish(struct source *source, struct rpc_request *request, struct ha_held applied)
{
    const Tern__Wire__HaReportRequest *in = request->header->ha_report;
    const struct ha_tables *tables = &source->ha->tables;
    Tern__Wire__HaReportResponse body = TERN__WIRE__HA_REPORT_RESPONSE__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    struct tern_error err = {.code = TERN_OK};
    enum tern_code code = TERN_OK;

    if (in->tables)
        code = tables->apply(tables->arg, in->tables, &applied, &err);
    lock_acquire(&source->lock);
    struct session *session = source_session(source, in->session, request->peer.id);
    if (session) {
        session->reporting = false;
        session->applied = applied;
    }
    lock_release(&source->lock);
    if (code != TERN_OK) {
        rpc_reply_failure(request, code, &err);
        return;
    }
    body.progress_seen = applied.progress;
    response.body_case = TERN__WIRE__RESPONSE__BODY_HA_REPORT;
    response.ha_report = &body;
    rpc_reply(request, &response, 0);
}

void source_report(struct source *source, struct rpc_request *request)
{
    const Tern__Wire__HaReportRequest *in = request->header->ha_report;
    const struct ha_tables *tables = &source->ha->tables;
    struct store_positions at;
    struct ha_held own = {0};
    struct ha_held applied = {0};

    tables->own(tables->arg, &own);
    store_positions(source->ha->store, &at);
    lock_acquire(&source->lock);
    struct session *session = source_session(source, in->session, request->peer.id);
    const char *wrong = session ? check_claim(session, in) : NULL;
    if (session && !wrong) {
        take_claim(session, in, own.progress);
        applied = session->applied;
        source_feed(source, session, &at, clock_mono_ns(source->env.clock));
    }
    lock_release(&source->lock);
    if (!session)
        rpc_reply_error(request, TERN_INVALID, "this session is not known here; handshake again");
    else if (wrong)
        source_refuse_claim(source, request, in->session, wrong);
    else
        finish(source, request, applied);
    source_tell(source);
}
