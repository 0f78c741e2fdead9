/*
 * The source's life: who is attached, who may attach, and who is told when the log grows.
 *
 * Its place: requests of the replication server come in from ha.c; the store's and the tables' news
 * come in from the broker; confirmed ends go out to whoever waits for them.
 *
 * Invariants:
 *   - A member has at most one session. A session belongs to one connection and ends with it, with
 *     the next handshake of its member, with a claim that cannot be true, and with closing.
 *   - No byte is missed between looking and parking: a fetch is parked first, then `end` and
 *     `changes` are looked at once more; on_end and on_change write those first, then look for
 *     parked fetches. One of both sees the other (all four are sequentially consistent).
 *   - Whoever takes a fetch out of its place answers it.
 *
 * Threads: the link's, the appender, the flusher, whoever commits, the ha task. `lock` (HA_SOURCE)
 * is held for look-ups and bookkeeping only, never while reading the store, filling tables,
 * answering or telling. Waking the task is allowed under it.
 *
 * Failure modes: a member that makes no sense is cut off, with a warning, and may attach anew; all
 * sessions taken: SYSTEM_BUSY. After source_stop() everything is refused.
 */
#include "broker/ha/source_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* ---- sessions ---- */

struct session *source_session(struct source *source, uint64_t number, uint64_t peer_id)
{
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX && number; i++) {
        struct session *session = &source->sessions[i];
        if (session->number == number && session->peer_id == peer_id)
            return session;
    }
    return NULL;
}

struct fetch *source_unpark(struct source *source, struct session *session)
{
    struct fetch *fetch = session->parked;
    if (fetch) {
        session->parked = NULL;
        atomic_fetch_sub(&source->parked, 1);
    }
    return fetch;
}

void source_end_session(struct source *source, struct session *session, struct fetch **orphans)
{
    struct fetch *fetch = source_unpark(source, session);
    if (fetch) {
        fetch->next = *orphans;
        *orphans = fetch;
    }
    if (source->open && session->purpose == TERN__WIRE__HA_PURPOSE__HA_FOLLOW) {
        insync_link_down(&source->insync, session->who.id, session->who.uuid);
        source_plan(source, 0);
    }
    session->number = 0;
}

void source_answer_orphans(struct fetch *orphans)
{
    while (orphans) {
        struct fetch *fetch = orphans;
        orphans = fetch->next;
        rpc_reply_error(fetch->request, TERN_INVALID,
                        "this session is over; make a new handshake and fetch from there");
    }
}

void source_plan(struct source *source, int64_t at_ns)
{
    if (source->planned_ns <= at_ns)
        return;
    source->planned_ns = at_ns;
    source->options.part.wake(source->options.part.arg);
}

void source_refuse_claim(struct source *source, struct rpc_request *request, uint64_t number,
                         const char *what)
{
    struct fetch *orphans = NULL;
    char remote[HOST_TEXT_BYTES];
    struct rpc_server *server = request->server;
    uint64_t peer_id = request->peer.id;
    int64_t id = -1;

    host_format(remote, &request->peer.remote);
    lock_acquire(&source->lock);
    struct session *session = source_session(source, number, peer_id);
    if (session) {
        id = session->who.id;
        source_end_session(source, session, &orphans);
    }
    lock_release(&source->lock);
    log_warn(source->env.log, "slave_claim_refused",
             "peer=%s id=%" PRId64 " reason=\"%s\" effect=\"its session is over and its connection "
             "is closed; it may make a new handshake\"",
             remote, id, what);
    rpc_reply_error(request, TERN_INVALID, "%s; make a new handshake", what);
    source_answer_orphans(orphans);
    rpc_server_close_peer(server, peer_id);
}

/* Ends the sessions of this peer, or of all; @locks none */
static void end_sessions(struct source *source, uint64_t peer_id, bool all)
{
    struct fetch *orphans = NULL;
    lock_acquire(&source->lock);
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        struct session *session = &source->sessions[i];
        if (session->number && (all || session->peer_id == peer_id))
            source_end_session(source, session, &orphans);
    }
    lock_release(&source->lock);
    source_answer_orphans(orphans);
}

void source_peer_gone(struct source *source, uint64_t peer_id)
{
    end_sessions(source, peer_id, false);
}

/* ---- life ---- */

enum tern_code source_create(const struct source_options *options, struct source **out)
{
    struct store_positions at;
    *out = NULL;
    struct source *source = calloc(1, sizeof *source);
    if (!source)
        return TERN_NO_MEMORY;
    source->options = *options;
    source->env = *options->part.env;
    source->ha = options->part.ha;
    source->planned_ns = SCHED_NEVER;
    lock_init(&source->lock, LOCK_HA_SOURCE);
    store_positions(source->ha->store, &at);
    atomic_init(&source->end, at.whole);
    *out = source;
    return TERN_OK;
}

void source_destroy(struct source *source)
{
    if (!source)
        return;
    ENSURE(atomic_load(&source->parked) == 0 && !source->cold);
    lock_fini(&source->lock);
    free(source);
}

void source_stop(struct source *source)
{
    lock_acquire(&source->lock);
    source->stopping = true;
    source->open = false;
    atomic_store(&source->own_end_counts, false);
    struct fetch *cold = source->cold;
    source->cold = NULL;
    lock_release(&source->lock);
    end_sessions(source, 0, true);
    source_answer_orphans(cold);
}

/* ---- open and closed ---- */

void source_open(struct source *source, const struct insync_set *set, int64_t confirmed)
{
    struct store_positions at;
    int64_t now_ns = clock_mono_ns(source->env.clock);

    end_sessions(source, 0, true); /* of a life before */
    store_positions(source->ha->store, &at);
    lock_acquire(&source->lock);
    if (!source->stopping) {
        atomic_store(&source->end, at.whole);
        insync_init(&source->insync, &source->ha->insync, set, confirmed, now_ns);
        insync_own_end(&source->insync, source->ha->sync_flush ? at.flushed : at.whole, now_ns);
        source->open = true;
        source->confirmed = confirmed;
        source->retry_save_ns = 0;
        source->told = (struct told){.confirmed = -1}; /* whatever it is, it is told */
        source_recount(source, now_ns);
        source_plan(source, 0);
    }
    lock_release(&source->lock);
    source_tell(source);
}

void source_close(struct source *source)
{
    lock_acquire(&source->lock);
    source->open = false;
    atomic_store(&source->own_end_counts, false);
    /* who has to be waited for is not known any more: nobody's word is enough */
    source->now.alone = false;
    source->now.progress = 0;
    lock_release(&source->lock);
    end_sessions(source, 0, true);
    source_tell(source);
}

/* ---- news ---- */

/* Takes out the parked fetches for which there are bytes before `end`. @locks holds:HA_SOURCE */
static struct fetch *take_behind(struct source *source, int64_t end)
{
    struct fetch *taken = NULL;
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        const struct fetch *parked = source->sessions[i].parked;
        if (!parked || parked->from >= end || parked->bytes_held_back)
            continue;
        struct fetch *fetch = source_unpark(source, &source->sessions[i]);
        fetch->next = taken;
        taken = fetch;
    }
    return taken;
}

/* Takes out the parked fetches that may carry tables. @locks holds:HA_SOURCE */
static struct fetch *take_for_tables(struct source *source)
{
    struct fetch *taken = NULL;
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        const struct fetch *parked = source->sessions[i].parked;
        if (!parked || parked->tables_held_back)
            continue;
        struct fetch *fetch = source_unpark(source, &source->sessions[i]);
        fetch->next = taken;
        taken = fetch;
    }
    return taken;
}

static void serve_all(struct source *source, struct fetch *list, enum server by)
{
    while (list) {
        struct fetch *fetch = list;
        list = fetch->next;
        source_serve(source, fetch, by);
    }
}

void source_on_end(struct source *source, int64_t end)
{
    atomic_store(&source->end, end);
    bool counts = atomic_load(&source->own_end_counts);
    if (atomic_load(&source->parked) == 0 && !counts)
        return;
    lock_acquire(&source->lock);
    struct fetch *taken = take_behind(source, end);
    if (counts && source->open) {
        int64_t now_ns = clock_mono_ns(source->env.clock);
        insync_own_end(&source->insync, end, now_ns);
        source_recount(source, now_ns);
    }
    lock_release(&source->lock);
    serve_all(source, taken, SERVED_BY_APPENDER);
    if (counts)
        source_tell(source);
}

void source_on_flushed(struct source *source, int64_t flushed)
{
    if (!source->ha->sync_flush)
        return;
    lock_acquire(&source->lock);
    if (source->open) {
        int64_t now_ns = clock_mono_ns(source->env.clock);
        insync_own_end(&source->insync, flushed, now_ns);
        source_recount(source, now_ns);
    }
    lock_release(&source->lock);
    source_tell(source);
}

void source_on_change(struct source *source)
{
    atomic_fetch_add(&source->changes, 1);
    if (atomic_load(&source->parked) > 0 && !atomic_exchange(&source->change_pending, true))
        source->options.part.wake(source->options.part.arg);
}

void source_relieve(struct source *source)
{
    struct session *oldest = NULL;
    struct fetch *fetch = NULL;
    lock_acquire(&source->lock);
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        struct session *session = &source->sessions[i];
        if (session->parked && (!oldest || session->parked->request->received_ns <
                                               oldest->parked->request->received_ns))
            oldest = session;
    }
    if (oldest) {
        fetch = source_unpark(source, oldest);
        fetch->park_until_ns = 0;
    }
    lock_release(&source->lock);
    if (fetch)
        source_serve(source, fetch, SERVED_BY_LINK);
}

/* ---- the task ---- */

/* Parked fetches whose time is up; *next_ns falls to the earliest of the others. @locks
 * holds:HA_SOURCE */
static struct fetch *take_expired(struct source *source, int64_t now_ns, int64_t *next_ns)
{
    struct fetch *taken = NULL;
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        struct session *session = &source->sessions[i];
        if (!session->parked)
            continue;
        if (session->parked->park_until_ns <= now_ns) {
            struct fetch *fetch = source_unpark(source, session);
            fetch->next = taken;
            taken = fetch;
        } else if (session->parked->park_until_ns < *next_ns) {
            *next_ns = session->parked->park_until_ns;
        }
    }
    return taken;
}

int64_t source_step(struct source *source, int64_t now_ns)
{
    int64_t next_ns = SCHED_NEVER;
    bool changed = atomic_exchange(&source->change_pending, false);

    lock_acquire(&source->lock);
    source->planned_ns = SCHED_NEVER; /* what comes up from here on wakes the task again */
    struct fetch *cold = source->cold;
    source->cold = NULL;
    struct fetch *taken = changed ? take_for_tables(source) : NULL;
    lock_release(&source->lock);
    serve_all(source, cold, SERVED_BY_TASK);
    serve_all(source, taken, SERVED_BY_TASK);

    int64_t insync_ns = source_step_insync(source, now_ns);

    lock_acquire(&source->lock);
    struct fetch *expired = take_expired(source, now_ns, &next_ns);
    next_ns = insync_ns < next_ns ? insync_ns : next_ns;
    next_ns = source->planned_ns < next_ns ? source->planned_ns : next_ns;
    source->planned_ns = next_ns;
    lock_release(&source->lock);
    serve_all(source, expired, SERVED_BY_TASK);
    return next_ns;
}
