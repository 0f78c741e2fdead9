/*
 * Handshakes: who may attach, and from where.
 *
 *   LOOK      who we are and where both logs part
 *   RECOVER   a starting master takes from a slave: at any time
 *   FOLLOW    a slave attaches to its master: while that is open
 *
 * Its place: the beginning of every session, and the only way in. Where the logs part is answered
 * from whole ends of both sides; what lies behind on the member's side is not ours and is never
 * counted. Its first claim in a session is that point.
 *
 * Threads: the link's. Failure modes: each refusal says in words which setting or command mends it,
 * and is logged; a refused member may ask again.
 */
#include "broker/ha/source_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"

/* One handshake, in its request's memory. */
struct greeting {
    struct rpc_request *request;
    const Tern__Wire__HaHandshakeRequest *in;
    bool open; /* before `self` was looked at: that has the epoch it was opened with */
    struct ha_member from, self;
    bool has_common;
    struct ha_common common;
    bool goes_on;  /* from the common point, which we still have */
    int64_t start; /* of a session */
};

/* ---- checks ---- */

static enum tern_code check_place(const struct ha_member *self, const struct ha_member *from,
                                  struct tern_error *err)
{
    if (strcmp(from->cluster, self->cluster) != 0 || strcmp(from->name, self->name) != 0)
        return error_set(err, TERN_INVALID,
                         "this is broker %s of cluster %s, you are of %s of %s; look at "
                         "brokerName, brokerClusterName and haMasterAddress",
                         self->name, self->cluster, from->name, from->cluster);
    if (from->segment_bytes != self->segment_bytes)
        return error_set(err, TERN_CONFIG,
                         "mappedFileSizeCommitLog is %" PRId64 " here and %" PRId64
                         " at broker id %" PRId64 "; it must be the same in a whole set",
                         self->segment_bytes, from->segment_bytes, from->id);
    if (memcmp(from->uuid, self->uuid, HA_UUID_BYTES) == 0)
        return error_set(err, TERN_NAME_CONFLICT,
                         "the store of broker id %" PRId64 " is a copy of this one (same "
                         "storeUuid); start it with an empty store, it fills by itself",
                         from->id);
    if (from->id == self->id)
        return error_set(err, TERN_NAME_CONFLICT,
                         "brokerId %" PRId64 " of broker %s is taken by %s; give the other one "
                         "another brokerId",
                         self->id, self->name, self->ha_address);
    return TERN_OK;
}

static enum tern_code check_purpose(const struct source *source,
                                    const Tern__Wire__HaHandshakeRequest *in,
                                    struct tern_error *err)
{
    switch ((int)in->purpose) {
    case TERN__WIRE__HA_PURPOSE__HA_LOOK:
    case TERN__WIRE__HA_PURPOSE__HA_FOLLOW:
        return TERN_OK;
    case TERN__WIRE__HA_PURPOSE__HA_RECOVER:
        if (source->ha->mode == HA_MODE_SLAVE)
            return TERN_OK;
        return error_set(err, TERN_INVALID, "only a slave gives its log to a starting master");
    default:
        return error_set(err, TERN_INVALID, "purpose %d is not known here", (int)in->purpose);
    }
}

static bool is_open(struct source *source)
{
    lock_acquire(&source->lock);
    bool open = source->open;
    lock_release(&source->lock);
    return open;
}

/* NULL: refused, and *code and err say why. */
static struct greeting *read_greeting(struct source *source, struct rpc_request *request,
                                      enum tern_code *code, struct tern_error *err)
{
    struct greeting *greeting = rpc_request_alloc(request, sizeof *greeting);
    if (!greeting) {
        *code = error_set(err, TERN_NO_MEMORY, "no memory for a handshake");
        return NULL;
    }
    memset(greeting, 0, sizeof *greeting);
    greeting->request = request;
    greeting->in = request->header->ha_handshake;
    if (!greeting->in->from) {
        *code = error_set(err, TERN_INVALID, "a handshake says who it is from");
        return NULL;
    }
    *code =
        ha_member_from_wire(rpc_request_arena(request), greeting->in->from, &greeting->from, err);
    if (*code == TERN_OK)
        *code = check_purpose(source, greeting->in, err);
    if (*code == TERN_OK) {
        greeting->open = is_open(source);
        source->options.part.self(source->options.part.arg, &greeting->self);
        *code = check_place(&greeting->self, &greeting->from, err);
    }
    return *code == TERN_OK ? greeting : NULL;
}

/* Where both logs part, and where a session begins. */
static void find_common(struct greeting *greeting)
{
    const struct ha_member *self = &greeting->self;
    const struct ha_member *from = &greeting->from;
    greeting->has_common =
        ha_epochs_common(self->epochs, self->epoch_count, self->log_end, from->epochs,
                         from->epoch_count, from->log_end, &greeting->common);
    greeting->goes_on = greeting->has_common && greeting->common.end >= self->log_min;
    if (greeting->goes_on)
        greeting->start = greeting->common.end;
    else /* it begins with our first segment */
        greeting->start = self->log_min - self->log_min % self->segment_bytes;
}

/* Whether the member's log holds bytes of an epoch that is not below our current one and not ours:
 * what a refusal of a cut must be founded on. */
static bool refusal_is_founded(const struct greeting *greeting)
{
    const struct ha_member *self = &greeting->self;
    const struct ha_member *from = &greeting->from;
    if (from->epoch_count == 0 || self->epoch_count == 0)
        return false;
    const struct ha_epoch *theirs = &from->epochs[from->epoch_count - 1];
    const struct ha_epoch *ours = &self->epochs[self->epoch_count - 1];
    return theirs->number >= ours->number &&
           !(theirs->number == ours->number && theirs->id == ours->id);
}

/* ---- answers ---- */

static void refuse(struct source *source, struct rpc_request *request, enum tern_code code,
                   const struct tern_error *err)
{
    char remote[HOST_TEXT_BYTES];
    host_format(remote, &request->peer.remote);
    log_warn(source->env.log, "handshake_refused", "peer=%s code=%s reason=\"%s\"", remote,
             tern_code_name(code), error_text(err, code));
    rpc_reply_failure(request, code, err);
}

/* SYSTEM_BUSY: ask again in retry_ms. */
static void reply(struct source *source, struct greeting *greeting, enum tern_code code,
                  uint64_t session)
{
    Tern__Wire__HaHandshakeResponse body = TERN__WIRE__HA_HANDSHAKE_RESPONSE__INIT;
    Tern__Wire__Epoch epoch = TERN__WIRE__EPOCH__INIT;
    TernResponse response = TERN__WIRE__RESPONSE__INIT;
    static const char busy[] = "this broker is not open for slaves now; ask again in retry_ms";

    body.source = ha_member_to_wire(rpc_request_arena(greeting->request), &greeting->self);
    if (!body.source) {
        rpc_reply_error(greeting->request, TERN_NO_MEMORY, "no memory for a handshake");
        return;
    }
    body.has_common = greeting->has_common;
    if (greeting->has_common) {
        epoch.number = greeting->common.epoch.number;
        epoch.id = greeting->common.epoch.id;
        epoch.start = greeting->common.epoch.start;
        body.common_epoch = &epoch;
        body.common_end = greeting->common.end;
    }
    body.session = session;
    body.sync_flush = source->ha->sync_flush;
    body.retry_ms = SOURCE_RETRY_MS;
    response.code = wire_code_of(code);
    response.remark = code == TERN_OK ? NULL : (char *)(uintptr_t)busy;
    response.body_case = TERN__WIRE__RESPONSE__BODY_HA_HANDSHAKE;
    response.ha_handshake = &body;
    rpc_reply(greeting->request, &response, 0);
}

/* ---- sessions ---- */

/* Another live store with the member's id. @locks holds:HA_SOURCE */
static const struct session *find_rival(const struct source *source, const struct ha_member *from,
                                        int64_t now_ns)
{
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        const struct session *session = &source->sessions[i];
        if (session->number && session->who.id == from->id &&
            memcmp(session->who.uuid, from->uuid, HA_UUID_BYTES) != 0 &&
            now_ns - session->heard_ns <= source->ha->insync.max_behind_ns)
            return session;
    }
    return NULL;
}

/* Ends what the member, or a dead one in its place, had before. @locks holds:HA_SOURCE */
static void end_former(struct source *source, const struct ha_member *from, struct fetch **orphans)
{
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++) {
        struct session *session = &source->sessions[i];
        if (session->number && (session->who.id == from->id ||
                                memcmp(session->who.uuid, from->uuid, HA_UUID_BYTES) == 0))
            source_end_session(source, session, orphans);
    }
}

static uint64_t new_number(struct source *source)
{
    uint64_t number;
    do
        number = rng_next(source->env.rng);
    while (number == 0);
    return number;
}

static void fill_session(struct session *session, const struct greeting *greeting, uint64_t number,
                         int64_t now_ns)
{
    const struct ha_member *from = &greeting->from;
    memset(session, 0, sizeof *session);
    session->number = number;
    session->peer_id = greeting->request->peer.id;
    session->purpose = greeting->in->purpose;
    session->who.id = from->id;
    memcpy(session->who.uuid, from->uuid, sizeof from->uuid);
    memcpy(session->who.ha_address, from->ha_address, sizeof from->ha_address);
    memcpy(session->address, from->address, sizeof from->address);
    session->life = from->life;
    session->log_min = from->log_min;
    session->since_ns = now_ns;
    session->heard_ns = now_ns;
    session->window_ns = now_ns;
    session->start = greeting->start;
    session->sent = greeting->start;
    session->told_confirmed = -1;
    if (greeting->goes_on)
        session->fetched.appended = greeting->start;
}

/* What the member certainly has of ours is told to the set at once; a first fetch says the rest.
 * @locks holds:HA_SOURCE */
static void hear_member(struct source *source, struct session *session,
                        const struct greeting *greeting, const struct store_positions *at,
                        int64_t now_ns)
{
    const struct ha_member *from = &greeting->from;
    if (!greeting->goes_on)
        return;
    int64_t end = greeting->common.end;
    session->reported.appended = end;
    session->reported.flushed = from->flushed < end ? from->flushed : end;
    source_feed(source, session, at, now_ns);
    session->reported = (struct position){0};
}

static bool has_room(const struct source *source, const struct greeting *greeting)
{
    size_t slaves = 0;
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX; i++)
        slaves += source->sessions[i].number &&
                  source->sessions[i].purpose == TERN__WIRE__HA_PURPOSE__HA_FOLLOW;
    return greeting->in->purpose != TERN__WIRE__HA_PURPOSE__HA_FOLLOW || slaves < INSYNC_MAX;
}

/* A free place; NULL: none. @locks holds:HA_SOURCE */
static struct session *free_session(struct source *source, const struct greeting *greeting)
{
    for (size_t i = 0; i < SOURCE_SESSIONS_MAX && has_room(source, greeting); i++)
        if (!source->sessions[i].number)
            return &source->sessions[i];
    return NULL;
}

/* TERN_AGAIN: not open. Sessions that it ends leave their fetches in *orphans. */
static enum tern_code attach(struct source *source, struct greeting *greeting,
                             struct fetch **orphans, uint64_t *number, struct tern_error *err)
{
    struct store_positions at;
    enum tern_code code = TERN_OK;
    int64_t now_ns = clock_mono_ns(source->env.clock);
    bool follows = greeting->in->purpose == TERN__WIRE__HA_PURPOSE__HA_FOLLOW;
    char rival_address[HA_ADDRESS_BYTES] = "";

    store_positions(source->ha->store, &at);
    *number = new_number(source);
    lock_acquire(&source->lock);
    const struct session *rival = find_rival(source, &greeting->from, now_ns);
    if (source->stopping || (follows && !source->open)) {
        code = TERN_AGAIN;
    } else if (rival) {
        memcpy(rival_address, rival->who.ha_address, sizeof rival_address);
        code = TERN_NAME_CONFLICT;
    } else {
        end_former(source, &greeting->from, orphans);
        struct session *session = free_session(source, greeting);
        code = session ? TERN_OK : TERN_LIMIT;
        if (session) {
            fill_session(session, greeting, *number, now_ns);
            hear_member(source, session, greeting, &at, now_ns);
        }
    }
    lock_release(&source->lock);
    if (code == TERN_NAME_CONFLICT)
        error_set(err, code,
                  "brokerId %" PRId64 " of broker %s is taken by the live store at %s; give the "
                  "other one another brokerId",
                  greeting->from.id, greeting->self.name, rival_address);
    if (code == TERN_LIMIT)
        error_set(err, code, "%d slaves are attached, no more can be", (int)INSYNC_MAX);
    return code;
}

static void log_attached(struct source *source, const struct greeting *greeting)
{
    char uuid[HA_UUID_TEXT_BYTES];
    ha_uuid_text(uuid, greeting->from.uuid);
    log_info(source->env.log, "member_attached",
             "broker=%s id=%" PRId64 " uuid=%s address=%s purpose=%s its_end=%" PRId64
             " from=%" PRId64 " common_epoch=%" PRIu64,
             greeting->self.name, greeting->from.id, uuid, greeting->from.ha_address,
             greeting->in->purpose == TERN__WIRE__HA_PURPOSE__HA_FOLLOW ? "FOLLOW" : "RECOVER",
             greeting->from.log_end, greeting->start,
             greeting->has_common ? greeting->common.epoch.number : 0);
}

/* Whether the member refuses a cut for a good reason: then an open master must stop writing. The
 * number that forceOpen takes is above both, so after it no refusal is founded. */
static bool stops_writing(const struct greeting *greeting)
{
    return greeting->open && greeting->in->refuses_cut &&
           greeting->in->purpose == TERN__WIRE__HA_PURPOSE__HA_FOLLOW &&
           refusal_is_founded(greeting);
}

void source_handshake(struct source *source, struct rpc_request *request)
{
    struct tern_error err = {.code = TERN_OK};
    enum tern_code code;
    struct fetch *orphans = NULL;
    uint64_t number = 0;

    struct greeting *greeting = read_greeting(source, request, &code, &err);
    if (!greeting) {
        refuse(source, request, code, &err);
        return;
    }
    find_common(greeting);
    void *arg = source->options.part.arg;
    source->options.on_heard(arg, &greeting->from, greeting->in->has_cut, greeting->in->cut_at);
    if (stops_writing(greeting)) {
        source->options.on_refused(arg, &greeting->from);
        code = TERN_AGAIN;
    } else if (greeting->in->purpose != TERN__WIRE__HA_PURPOSE__HA_LOOK) {
        code = attach(source, greeting, &orphans, &number, &err);
    }
    source_answer_orphans(orphans);
    if (code == TERN_OK || code == TERN_AGAIN) {
        if (number && code == TERN_OK)
            log_attached(source, greeting);
        reply(source, greeting, code == TERN_OK ? TERN_OK : TERN_SYSTEM_BUSY,
              code == TERN_OK ? number : 0);
    } else {
        refuse(source, request, code, &err);
    }
    source_tell(source);
}
