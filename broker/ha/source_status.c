/*
 * What others ask of the source: confirmed and replicated ends, a slave to pull from, and a row for
 * each slave that is attached or in the set. Threads: any; under the lock for a look at the
 * sessions.
 */
#include "broker/ha/source_internal.h"

#include <string.h>

#include "base/clock.h"

int64_t source_confirmed(struct source *source)
{
    lock_acquire(&source->lock);
    int64_t confirmed = source->confirmed;
    lock_release(&source->lock);
    return confirmed;
}

void source_acknowledged(struct source *source, int64_t *confirmed, bool *alone,
                         uint64_t *progress_seen)
{
    lock_acquire(&source->lock);
    *confirmed = source->now.confirmed;
    *alone = source->now.alone;
    *progress_seen = source->now.progress;
    lock_release(&source->lock);
}

bool source_enough(struct source *source)
{
    lock_acquire(&source->lock);
    bool enough = source->open && insync_enough(&source->insync);
    lock_release(&source->lock);
    return enough;
}

uint32_t source_insync_size(struct source *source)
{
    lock_acquire(&source->lock);
    uint32_t size = source->open ? insync_size(&source->insync) : 0;
    lock_release(&source->lock);
    return size;
}

uint32_t source_gave(struct source *source, int64_t since_ns)
{
    uint32_t count = 0;
    lock_acquire(&source->lock);
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++)
        count += source->sessions[i].number && source->sessions[i].gave_ns > since_ns;
    lock_release(&source->lock);
    return count;
}

/* The slave's session; NULL: it is not attached. @locks holds:HA_SOURCE */
static const struct session *slave_session(const struct source *source,
                                           const struct insync_member *who)
{
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        const struct session *session = &source->sessions[i];
        if (session->number && session->purpose == TERN__WIRE__HA_PURPOSE__HA_FOLLOW &&
            insync_same(&session->who, who))
            return session;
    }
    return NULL;
}

int64_t source_replicated(struct source *source)
{
    struct store_positions at;
    store_positions(source->ha->store, &at);
    int64_t least = at.whole;
    lock_acquire(&source->lock);
    for (size_t i = 0; source->open && i < INSYNC_MAX; i++) {
        const struct insync_peer *peer = &source->insync.peers[i];
        if (peer->member.id < 0 || !peer->durable)
            continue;
        const struct session *session = slave_session(source, &peer->member);
        int64_t has = session ? session_position(session).appended : peer->counted_end;
        least = has < least ? has : least;
    }
    lock_release(&source->lock);
    return least < 0 ? 0 : least;
}

/* ---- a slave to pull from ---- */

static bool can_serve(const struct session *session, int64_t want_end, int64_t now_ns)
{
    return session->number && session->purpose == TERN__WIRE__HA_PURPOSE__HA_FOLLOW &&
           session->fetched.readable && now_ns - session->heard_ns <= ms_to_ns(SOURCE_ALIVE_MS) &&
           session_position(session).dispatched >= want_end;
}

int64_t source_pick_slave(struct source *source, int64_t preferred, int64_t want_end)
{
    int64_t now_ns = clock_mono_ns(source->env.clock);
    int64_t picked = -1;
    int64_t furthest = -1;
    lock_acquire(&source->lock);
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        const struct session *session = &source->sessions[i];
        if (!can_serve(session, want_end, now_ns))
            continue;
        int64_t dispatched = session_position(session).dispatched;
        if (session->who.id == preferred) {
            picked = preferred;
            break;
        }
        if (dispatched > furthest) {
            furthest = dispatched;
            picked = session->who.id;
        }
    }
    lock_release(&source->lock);
    return picked;
}

/* ---- rows ---- */

/* One row, before it is put into wire form. */
struct row {
    struct insync_member who;
    const struct session *session;  /* NULL: not attached */
    const struct insync_peer *peer; /* NULL: the set does not know it */
};

/* @locks holds:HA_SOURCE */
static size_t list_rows(const struct source *source, struct row *rows)
{
    size_t count = 0;
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        const struct session *session = &source->sessions[i];
        if (session->number && session->purpose == TERN__WIRE__HA_PURPOSE__HA_FOLLOW)
            rows[count++] = (struct row){.who = session->who, .session = session};
    }
    for (size_t i = 0; source->open && i < INSYNC_MAX; i++) {
        const struct insync_peer *peer = &source->insync.peers[i];
        size_t at = 0;
        while (at < count && !insync_same(&rows[at].who, &peer->member))
            at++;
        if (at < count)
            rows[at].peer = peer;
        else if (peer->member.id >= 0 && peer->durable)
            rows[count++] = (struct row){.who = peer->member, .peer = peer};
    }
    return count;
}

static double rate_now(const struct session *session, int64_t now_ns)
{
    int64_t took_ns = now_ns - session->window_ns;
    if (took_ns < 2 * ms_to_ns(SOURCE_RATE_WINDOW_MS))
        return session->rate;
    return (double)session->window_bytes * 1e9 / (double)took_ns; /* the last one is long ago */
}

/* A row's wire form and the texts that it borrows. */
struct row_out {
    Tern__Wire__HaSlaveStatus status;
    Tern__Wire__HaMember member;
    struct insync_member who;
    char address[HA_ADDRESS_BYTES];
};

/* @locks holds:HA_SOURCE */
static void fill_member(const struct source *source, const struct row *row, struct row_out *out)
{
    Tern__Wire__HaMember *member = &out->member;
    out->who = row->who;
    out->address[0] = 0;
    tern__wire__ha_member__init(member);
    member->cluster_name = frame_bytes(source->ha->cluster, strlen(source->ha->cluster));
    member->broker_name = frame_bytes(source->ha->name, strlen(source->ha->name));
    member->broker_id = out->who.id;
    member->store_uuid = frame_bytes((const char *)out->who.uuid, HA_UUID_BYTES);
    member->ha_address = frame_bytes(out->who.ha_address, strlen(out->who.ha_address));
    member->segment_bytes = source->ha->segment_bytes;
    member->state = TERN__WIRE__HA_STATE__HA_SEEKING;
    if (row->peer && row->peer->counted_end >= 0)
        member->log_end = row->peer->counted_end;
    if (!row->session)
        return;
    struct position at = session_position(row->session);
    memcpy(out->address, row->session->address, sizeof out->address);
    member->address = frame_bytes(out->address, strlen(out->address));
    member->life = row->session->life;
    member->state = TERN__WIRE__HA_STATE__HA_FOLLOWING;
    member->log_min = row->session->log_min;
    member->log_end = at.appended;
    member->flushed = at.flushed;
    member->dispatched = at.dispatched;
    member->readable = at.readable;
}

/* @locks holds:HA_SOURCE */
static void fill_row(const struct row *row, struct row_out *row_out, int64_t end, int64_t now_ns)
{
    Tern__Wire__HaSlaveStatus *out = &row_out->status;
    const Tern__Wire__HaMember *member = &row_out->member;
    tern__wire__ha_slave_status__init(out);
    out->member = &row_out->member;
    int64_t heard_ns = row->session ? row->session->heard_ns : row->peer->heard_ns;
    int64_t since_ns = row->session ? row->session->since_ns : row->peer->heard_ns;
    if (row->peer && row->peer->caught_up_ns != INT64_MIN)
        since_ns = row->peer->caught_up_ns;
    out->link_up = row->session != NULL;
    out->in_sync = row->peer && row->peer->durable;
    out->lag_bytes = member->log_end < end ? end - member->log_end : 0;
    out->lag_ms = out->lag_bytes > 0 ? (now_ns - since_ns) / 1000000 : 0;
    out->heard_age_ms = (now_ns - heard_ns) / 1000000;
    out->transfer_bytes_per_second = row->session ? rate_now(row->session, now_ns) : 0;
}

enum tern_code source_status(struct source *source, struct arena *arena,
                             Tern__Wire__HaSlaveStatus ***rows, size_t *count)
{
    enum { MOST = SOURCE_SESSIONS_MAX + INSYNC_MAX };
    struct row list[MOST];
    struct store_positions at;
    int64_t now_ns = clock_mono_ns(source->env.clock);
    struct row_out *out = arena_alloc(arena, MOST * sizeof *out);
    *rows = arena_alloc(arena, MOST * sizeof(Tern__Wire__HaSlaveStatus *));
    *count = 0;
    if (!out || !*rows)
        return TERN_NO_MEMORY;
    store_positions(source->ha->store, &at);
    lock_acquire(&source->lock);
    *count = list_rows(source, list);
    for (size_t i = 0; i < *count; i++) {
        fill_member(source, &list[i], &out[i]);
        fill_row(&list[i], &out[i], at.whole, now_ns);
        (*rows)[i] = &out[i].status;
    }
    lock_release(&source->lock);
    return TERN_OK;
}
