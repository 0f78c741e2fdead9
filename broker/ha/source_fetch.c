/*
 * Fetches: what a claim is checked against, and how bytes get out.
 *
 * Its place: the hot path of replication. A chunk is read from the page cache straight into the
 * answer's memory, on the thread that has it at hand: the link's when bytes are there already, the
 * appender's when they come while the fetch is parked, the ha task's when the disk must be waited
 * for or tables have to be put together.
 *
 * The order of looking matters: the log's end first, then the versions of topics and deletions. A
 * record's topic is made before the record; so when versions agree after the end was read, the
 * receiver knows the topics of every record before it. When they do not, tables go and no bytes.
 *
 * Threads: any of the three, one at a time for each fetch. Nothing waits but the task's reads.
 * Failure modes: bytes that are gone (before the minimum), that belong to no epoch or cannot be
 * read end the session; the member attaches anew and settles by what the handshake says.
 */
#include "broker/ha/source_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum outcome { ANSWER, PARK, COLD, FAIL };

/* What is known when a fetch has been looked at. */
struct looked {
    struct store_positions at;
    struct ha_epoch epoch;
    size_t got;
    Tern__Wire__HaTables *tables; /* in the request's memory */
    enum tern_code code;          /* FAIL */
    const char *text;             /* FAIL */
};

/* ---- looking ---- */

static enum outcome fail(struct looked *looked, enum tern_code code, const char *text)
{
    looked->code = code;
    looked->text = text;
    return FAIL;
}

/* Bytes of one epoch and one segment into the answer; ANSWER with got 0: there are none. */
static enum outcome read_bytes(struct source *source, struct fetch *fetch, enum server by,
                               struct looked *looked)
{
    int64_t end = 0;
    if (fetch->from >= looked->at.whole)
        return ANSWER;
    if (!epochs_find(source->options.part.epochs, fetch->from, &looked->epoch, &end))
        return fail(looked, TERN_INVALID, "the bytes there belong to no epoch that is known here");
    int64_t most = (end < looked->at.whole ? end : looked->at.whole) - fetch->from;
    size_t size = most < (int64_t)fetch->max_bytes ? (size_t)most : fetch->max_bytes;
    uint8_t *bytes = rpc_reply_reserve(fetch->request, size);
    if (!bytes)
        return fail(looked, TERN_NO_MEMORY, "no memory for the bytes");
    enum tern_code code = store_read_bytes(source->ha->store, fetch->from, bytes, size,
                                           by != SERVED_BY_TASK, &looked->got);
    if (code == TERN_OK)
        return ANSWER;
    looked->got = 0;
    if (code == TERN_AGAIN)
        return COLD;
    if (code == TERN_NOT_FOUND)
        return fail(looked, TERN_INVALID, "the log does not reach back there any more");
    return fail(looked, code, "the bytes cannot be read");
}

/* What the fetch is to be answered with now. Sets how it would be parked. */
static enum outcome look(struct source *source, struct fetch *fetch, enum server by,
                         struct looked *looked)
{
    const struct ha_tables *tables = &source->ha->tables;
    memset(looked, 0, sizeof *looked);
    store_positions(source->ha->store, &looked->at); /* before the versions */
    bool agree = tables->topics_agree(tables->arg, &fetch->held);
    if (by == SERVED_BY_APPENDER && !agree)
        return COLD;
    int64_t now_ns = clock_mono_ns(source->env.clock);
    bool differs = by != SERVED_BY_APPENDER && tables->differs(tables->arg, &fetch->held, false);
    if (differs && now_ns >= fetch->tables_again_ns)
        looked->tables =
            tables->fill(tables->arg, &fetch->held, false, rpc_request_arena(fetch->request));
    bool paced = now_ns < fetch->not_before_ns;
    fetch->bytes_held_back = !agree || paced;
    fetch->tables_held_back = differs && !looked->tables;
    if (fetch->tables_held_back && now_ns >= fetch->tables_again_ns)
        fetch->tables_again_ns = now_ns + ms_to_ns(SOURCE_TABLES_AGAIN_MS); /* no memory */
    enum outcome outcome = agree && !paced ? read_bytes(source, fetch, by, looked) : ANSWER;
    if (outcome == COLD && looked->tables)
        outcome = ANSWER; /* the bytes come with the next one */
    if (outcome == ANSWER && !looked->got && !looked->tables && now_ns < fetch->park_until_ns)
        outcome = PARK;
    return outcome;
}

/* ---- ends of a fetch ---- */

static struct session *session_of(struct source *source, const struct fetch *fetch)
{
    return source_session(source, fetch->session, fetch->request->peer.id);
}

/* A window of a second or more, whole. @locks holds:HA_SOURCE */
static void note_rate(struct session *session, size_t bytes, int64_t now_ns)
{
    session->window_bytes += bytes;
    int64_t took_ns = now_ns - session->window_ns;
    if (took_ns < ms_to_ns(SOURCE_RATE_WINDOW_MS))
        return;
    session->rate = (double)session->window_bytes * 1e9 / (double)took_ns;
    session->window_ns = now_ns;
    session->window_bytes = 0;
}

/*
 * A slave that is far behind while senders are at work gets its bytes at a pace, or copying what is
 * old would take the processors and the disk from what is new. @locks holds:HA_SOURCE
 */
static void pace(const struct source *source, struct session *session, struct fetch *fetch,
                 int64_t end, int64_t now_ns)
{
    if (source->ha->transfer_rate == 0 || end - fetch->from <= SOURCE_FAR_BYTES)
        return;
    if (session->busy_end != end) {
        session->busy_ns = session->busy_end ? now_ns : 0;
        session->busy_end = end;
    }
    fetch->paced = session->busy_ns && now_ns - session->busy_ns < ms_to_ns(SOURCE_BUSY_MS);
    if (fetch->paced)
        fetch->not_before_ns = session->paced_ns;
}

/* @locks holds:HA_SOURCE */
static void note_pace(const struct source *source, struct session *session, size_t bytes,
                      int64_t now_ns)
{
    int64_t from_ns = now_ns - ms_to_ns(SOURCE_PACE_CREDIT_MS);
    if (session->paced_ns > from_ns)
        from_ns = session->paced_ns;
    session->paced_ns =
        from_ns + (int64_t)((double)bytes * 1e9 / (double)source->ha->transfer_rate);
}

static void orphan(struct fetch *fetch)
{
    fetch->next = NULL;
    source_answer_orphans(fetch);
}

static void answer(struct source *source, struct fetch *fetch, const struct looked *looked)
{
    Tern__Wire__HaFetchResponse body = TERN__WIRE__HA_FETCH_RESPONSE__INIT;
    Tern__Wire__Epoch epoch = TERN__WIRE__EPOCH__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    int64_t now_ns = clock_mono_ns(source->env.clock);

    lock_acquire(&source->lock);
    struct session *session = session_of(source, fetch);
    if (!session) {
        lock_release(&source->lock);
        orphan(fetch);
        return;
    }
    session->fetching = false;
    session->answered_ns = now_ns;
    session->sent = fetch->from + (int64_t)looked->got;
    /* Under written visibility whatever the member has may be seen there: no news will follow. */
    bool all = !source->ha->confirmed_visibility;
    session->told_confirmed = all ? INT64_MAX : source->confirmed;
    if (looked->tables) {
        session->tables_held = fetch->held;
        session->tables_ns = now_ns;
    }
    note_rate(session, looked->got, now_ns);
    if (fetch->paced)
        note_pace(source, session, looked->got, now_ns);
    body.confirmed = all ? looked->at.whole : source->confirmed;
    lock_release(&source->lock);

    body.from = fetch->from;
    body.appended = looked->at.whole;
    body.flushed = looked->at.flushed;
    body.tables = looked->tables;
    if (looked->got) {
        epoch.number = looked->epoch.number;
        epoch.id = looked->epoch.id;
        epoch.start = looked->epoch.start;
        body.epoch = &epoch;
    }
    response.body_case = TERN__WIRE__RESPONSE__BODY_HA_FETCH;
    response.ha_fetch = &body;
    rpc_reply(fetch->request, &response, looked->got);
}

/* The session is over: its bytes cannot be had. */
static void give_up(struct source *source, struct fetch *fetch, const struct looked *looked)
{
    struct fetch *orphans = NULL;
    int64_t id = -1;
    lock_acquire(&source->lock);
    struct session *session = session_of(source, fetch);
    if (session) {
        id = session->who.id;
        source_end_session(source, session, &orphans);
    }
    lock_release(&source->lock);
    log_warn(source->env.log, "slave_fetch_failed",
             "id=%" PRId64 " from=%" PRId64 " min=%" PRId64 " cause=\"%s\" code=%s "
             "effect=\"its session is over; it attaches anew\"",
             id, fetch->from, looked->at.min, looked->text, tern_code_name(looked->code));
    rpc_reply_error(fetch->request, looked->code,
                    "from %" PRId64 ": %s (it begins at %" PRId64 "); make a new handshake",
                    fetch->from, looked->text, looked->at.min);
    source_answer_orphans(orphans);
}

static void hand_to_task(struct source *source, struct fetch *fetch)
{
    lock_acquire(&source->lock);
    bool lives = session_of(source, fetch) != NULL;
    if (lives) {
        fetch->next = source->cold;
        source->cold = fetch;
        source_plan(source, 0);
    }
    lock_release(&source->lock);
    if (!lives)
        orphan(fetch);
}

/* false: something came up meanwhile, look again. Else the fetch is parked, or answered. */
static bool park(struct source *source, struct fetch *fetch, int64_t end, uint64_t changes)
{
    int64_t now_ns = clock_mono_ns(source->env.clock);
    lock_acquire(&source->lock);
    struct session *session = session_of(source, fetch);
    if (!session) {
        lock_release(&source->lock);
        orphan(fetch);
        return true;
    }
    if (session->told_confirmed < source->confirmed &&
        fetch->park_until_ns > now_ns + ms_to_ns(SOURCE_CONFIRMED_NEWS_MS))
        fetch->park_until_ns = now_ns + ms_to_ns(SOURCE_CONFIRMED_NEWS_MS);
    if (fetch->not_before_ns > now_ns && fetch->park_until_ns > fetch->not_before_ns)
        fetch->park_until_ns = fetch->not_before_ns;
    if (fetch->tables_held_back && fetch->park_until_ns > fetch->tables_again_ns)
        fetch->park_until_ns = fetch->tables_again_ns;
    session->parked = fetch;
    atomic_fetch_add(&source->parked, 1); /* before looking once more */
    bool news = (!fetch->bytes_held_back && atomic_load(&source->end) != end) ||
                (!fetch->tables_held_back && atomic_load(&source->changes) != changes);
    if (news)
        source_unpark(source, session);
    else
        source_plan(source, fetch->park_until_ns);
    lock_release(&source->lock);
    return !news;
}

void source_serve(struct source *source, struct fetch *fetch, enum server by)
{
    struct looked looked;
    for (;;) {
        int64_t end = atomic_load(&source->end);
        uint64_t changes = atomic_load(&source->changes);
        switch (look(source, fetch, by, &looked)) {
        case ANSWER:
            answer(source, fetch, &looked);
            return;
        case COLD:
            hand_to_task(source, fetch);
            return;
        case FAIL:
            give_up(source, fetch, &looked);
            return;
        case PARK:
            break;
        }
        if (park(source, fetch, end, changes))
            return;
    }
}

/* ---- arrival ---- */

/* NULL, or why it cannot be true. @locks holds:HA_SOURCE */
static const char *check_claim(const struct session *session, const Tern__Wire__HaFetchRequest *in)
{
    const Tern__Wire__HaPosition *at = in->position;
    const struct position *before = &session->fetched;
    if (session->fetching)
        return "it fetches before its last fetch was answered";
    if (in->from < session->start || in->from > session->sent)
        return "it fetches from outside of what this session has sent";
    if (at->appended != in->from)
        return "it fetches from elsewhere than its end";
    if (at->flushed < 0 || at->flushed > at->appended)
        return "it claims to have flushed more than it has";
    if (at->dispatched < 0 || at->dispatched > at->appended)
        return "it claims to have dispatched more than it has";
    if (at->appended < before->appended || at->flushed < before->flushed ||
        at->dispatched < before->dispatched)
        return "its positions went back within a session";
    return NULL;
}

/* Whether both hold the same. */
static bool same_held(const struct ha_held *a, const struct ha_held *b)
{
    return a->topics_version == b->topics_version && a->groups_version == b->groups_version &&
           a->deletions_version == b->deletions_version && a->progress == b->progress;
}

/* @locks holds:HA_SOURCE */
static void take_claim(struct session *session, const Tern__Wire__HaFetchRequest *in,
                       struct fetch *fetch, uint64_t own_progress)
{
    const Tern__Wire__HaPosition *at = in->position;
    uint64_t seen = fetch->held.progress < own_progress ? fetch->held.progress : own_progress;
    session->fetching = true;
    session->fetched = (struct position){.appended = at->appended,
                                         .flushed = at->flushed,
                                         .dispatched = at->dispatched,
                                         .readable = at->readable};
    if (session->progress_seen < seen)
        session->progress_seen = seen;
    /* The fetch itself may have lain in a socket for long: it follows our answer. */
    if (in->gave_progress)
        session->gave_ns = session->answered_ns ? session->answered_ns : session->since_ns;
    if (session->tables_ns && same_held(&session->tables_held, &fetch->held))
        fetch->tables_again_ns = session->tables_ns + ms_to_ns(SOURCE_TABLES_AGAIN_MS);
}

static struct fetch *make_fetch(struct rpc_request *request, const Tern__Wire__HaFetchRequest *in)
{
    struct fetch *fetch = rpc_request_alloc(request, sizeof *fetch);
    if (!fetch)
        return NULL;
    uint32_t wait_ms = in->suspend_timeout_ms;
    size_t most = in->max_bytes;
    *fetch = (struct fetch){.request = request,
                            .session = in->session,
                            .from = in->from,
                            .max_bytes = most == 0 || most > HA_CHUNK_MAX ? HA_CHUNK_MAX : most};
    fetch->park_until_ns =
        request->received_ns + ms_to_ns(wait_ms < HA_PARK_MAX_MS ? wait_ms : HA_PARK_MAX_MS);
    if (in->held)
        fetch->held = (struct ha_held){.topics_version = in->held->topics_version,
                                       .groups_version = in->held->groups_version,
                                       .deletions_version = in->held->deletions_version,
                                       .progress = in->held->progress};
    return fetch;
}

void source_fetch(struct source *source, struct rpc_request *request)
{
    const Tern__Wire__HaFetchRequest *in = request->header->ha_fetch;
    const struct ha_tables *tables = &source->ha->tables;
    struct store_positions at;
    struct ha_held own = {0};

    struct fetch *fetch = make_fetch(request, in);
    if (!fetch) {
        rpc_reply_error(request, TERN_NO_MEMORY, "no memory for a fetch");
        return;
    }
    if (!in->position) {
        source_refuse_claim(source, request, in->session, "its fetch says no position");
        return;
    }
    tables->own(tables->arg, &own);
    store_positions(source->ha->store, &at);
    lock_acquire(&source->lock);
    struct session *session = source_session(source, in->session, request->peer.id);
    const char *wrong = session ? check_claim(session, in) : NULL;
    if (session && !wrong) {
        int64_t now_ns = clock_mono_ns(source->env.clock);
        take_claim(session, in, fetch, own.progress);
        pace(source, session, fetch, at.whole, now_ns);
        source_feed(source, session, &at, now_ns);
    }
    lock_release(&source->lock);
    if (!session)
        rpc_reply_error(request, TERN_INVALID, "this session is not known here; handshake again");
    else if (wrong)
        source_refuse_claim(source, request, in->session, wrong);
    else
        source_serve(source, fetch, SERVED_BY_LINK);
    source_tell(source);
}
