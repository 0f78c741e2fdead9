/*
 * The handshake: who we are to a source, and what its answer says about it.
 *
 * Everything is checked before anything of ours is touched: the answer's member is sound by
 * ha_member_from_wire(), here it has to be the one we want. What does not fit is told with the key
 * and both values and tried again slowly: somebody has to change a configuration first.
 *
 * Threads: the ha task; the answer is noted on the link's thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ha/replica_internal.h"

/* ---- asking ---- */

/* @thread link's */
static void on_greeted(struct rpc_call *call, void *arg)
{
    struct replica *replica = arg;
    bool inside = rpc_gate_enter(&replica->gate);
    bool mine = false;
    if (inside) {
        lock_acquire(&replica->lock);
        mine = replica->phase == REPLICA_GREETING &&
               replica->generation == (uint64_t)(uintptr_t)call->user;
        if (mine) {
            replica->answer = call;
            replica->phase = REPLICA_SETTLING;
        }
        lock_release(&replica->lock);
        if (mine)
            replica->options.part.wake(replica->options.part.arg);
        rpc_gate_leave(&replica->gate, replica->env->sched);
    }
    if (!mine)
        rpc_call_unref(call);
    replica_drop(replica);
}

/* The peer for `address`, kept until another is wanted. */
static enum tern_code use_peer(struct replica *replica, const char *address, struct tern_error *err)
{
    if (replica->peer && strcmp(rpc_peer_address(replica->peer), address) == 0)
        return TERN_OK;
    rpc_peer_unref(replica->peer);
    replica->peer = NULL;
    return rpc_peer_get(replica->options.client, address, &replica->peer, err);
}

/* A record that a lost link left unfinished goes: the source sends it again, whole. */
static enum tern_code drop_partial(struct replica *replica, struct tern_error *err)
{
    struct store_positions at;
    struct store_cut cut;
    store_positions(replica->store, &at);
    if (at.whole == at.appended)
        return TERN_OK;
    return store_cut(replica->store, at.whole, false, &cut, err);
}

/* Takes a new generation for the target of now. */
static uint64_t begin(struct replica *replica)
{
    lock_acquire(&replica->lock);
    replica->greeted = replica->target;
    replica->greet_ns = clock_mono_ns(replica->env->clock);
    uint64_t generation = ++replica->generation;
    replica->phase = REPLICA_GREETING;
    lock_release(&replica->lock);
    return generation;
}

static enum tern_code send(struct replica *replica, uint64_t generation, struct tern_error *err)
{
    Tern__Wire__HaHandshakeRequest body = TERN__WIRE__HA_HANDSHAKE_REQUEST__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;

    arena_reset(&replica->arena);
    body.from = ha_member_to_wire(&replica->arena, &replica->self);
    if (!body.from)
        return error_set(err, TERN_NO_MEMORY, "no memory for a handshake");
    bool follow = replica->greeted.purpose == REPLICA_FOLLOW;
    body.purpose = follow ? TERN__WIRE__HA_PURPOSE__HA_FOLLOW : TERN__WIRE__HA_PURPOSE__HA_RECOVER;
    body.refuses_cut = follow && replica->refuses_cut;
    body.has_cut = replica->has_cut;
    body.cut_at = replica->cut_at;
    request.body_case = TERN__WIRE__REQUEST__BODY_HA_HANDSHAKE;
    request.ha_handshake = &body;
    enum tern_code code = rpc_call_create(replica->peer, 0, &call);
    if (code != TERN_OK)
        return error_set(err, code, "no call to %s can be made", replica->greeted.address);
    call->user = (void *)(uintptr_t)generation;
    rpc_call_start(call, &request, 0, REPLICA_HANDSHAKE_MS, on_greeted, replica_hold(replica));
    return TERN_OK;
}

void replica_greet(struct replica *replica)
{
    struct tern_error err = {.text = ""};
    uint64_t generation = begin(replica);
    enum tern_code code = drop_partial(replica, &err);
    if (code != TERN_OK) {
        replica_end(replica, generation, REPLICA_RETRY_SLOW_MS, code,
                    "cutting an unfinished record: %s", error_text(&err, code));
        return;
    }
    code = use_peer(replica, replica->greeted.address, &err);
    if (code == TERN_OK) {
        replica->options.part.self(replica->options.part.arg, &replica->self);
        code = send(replica, generation, &err);
    }
    if (code != TERN_OK)
        replica_end(replica, generation, 0, code, "%s", error_text(&err, code));
}

/* ---- the answer ---- */

static const Tern__Wire__HaHandshakeResponse *body_of(const struct rpc_call *call)
{
    if (call->status != TERN_OK ||
        call->response->body_case != TERN__WIRE__RESPONSE__BODY_HA_HANDSHAKE)
        return NULL;
    return call->response->ha_handshake;
}

/* Whether the member is who we want to copy; else TERN_CONFIG or NAME_CONFLICT with a text. */
static enum tern_code check_source(struct replica *replica, struct tern_error *err)
{
    const struct ha_member *own = &replica->self;
    const struct ha_member *source = &replica->incoming;
    if (strcmp(own->cluster, source->cluster) != 0)
        return error_set(err, TERN_CONFIG, "brokerClusterName is %s there and %s here",
                         source->cluster, own->cluster);
    if (strcmp(own->name, source->name) != 0)
        return error_set(err, TERN_CONFIG, "brokerName is %s there and %s here", source->name,
                         own->name);
    if (memcmp(own->uuid, source->uuid, HA_UUID_BYTES) == 0)
        return error_set(err, TERN_NAME_CONFLICT,
                         "its store has the UUID of the one here: one is a copy of the other's "
                         "files; empty one of the two");
    if (source->id == own->id)
        return error_set(err, TERN_NAME_CONFLICT, "brokerId is %" PRId64 " there, too", own->id);
    if (replica->greeted.purpose == REPLICA_FOLLOW && source->id != 0)
        return error_set(err, TERN_CONFIG, "brokerId is %" PRId64 " there, a master's is 0",
                         source->id);
    if (source->segment_bytes != own->segment_bytes)
        return error_set(err, TERN_CONFIG,
                         "mappedFileSizeCommitLog is %" PRId64 " there and %" PRId64 " here",
                         source->segment_bytes, own->segment_bytes);
    return TERN_OK;
}

/* An answer that is no success: when to ask again. */
static void end_refused(struct replica *replica, const struct rpc_call *call, uint64_t generation,
                        enum tern_code code)
{
    const Tern__Wire__HaHandshakeResponse *body = body_of(call);
    int64_t delay_ms = 0;
    if (code == TERN_SYSTEM_BUSY && body) {
        delay_ms = body->retry_ms;
        delay_ms = delay_ms < REPLICA_BUSY_MIN_MS ? REPLICA_BUSY_MIN_MS : delay_ms;
        delay_ms = delay_ms > REPLICA_BUSY_MAX_MS ? REPLICA_BUSY_MAX_MS : delay_ms;
    } else if (call->status == TERN_OK && !tern_code_retriable(code)) {
        delay_ms = REPLICA_RETRY_SLOW_MS;
    }
    replica_end(replica, generation, delay_ms, code, "%s", error_text(&call->error, code));
}

/* false: the answer ended the attempt. */
static bool understand(struct replica *replica, const struct rpc_call *call, uint64_t generation)
{
    const Tern__Wire__HaHandshakeResponse *body = body_of(call);
    struct tern_error err = {.text = ""};
    enum tern_code code = rpc_call_result(call);
    enum tern_code sound = TERN_INVALID;

    arena_reset(&replica->arena);
    if (body && body->source)
        sound = ha_member_from_wire(&replica->arena, body->source, &replica->incoming, &err);
    if (sound == TERN_OK)
        epochs_seen(replica->options.part.epochs, replica->incoming.highest_epoch);
    if (code != TERN_OK) {
        end_refused(replica, call, generation, code);
        return false;
    }
    if (sound == TERN_OK && (body->session == 0 || replica->incoming.segment_bytes <= 0))
        sound = error_set(&err, TERN_INVALID, "no session or length of segments");
    if (sound != TERN_OK) {
        replica_end(replica, generation, REPLICA_RETRY_SLOW_MS, TERN_PROTOCOL,
                    "the answer of %s to a handshake cannot be used: %s",
                    rpc_peer_address(replica->peer), error_text(&err, sound));
        return false;
    }
    code = check_source(replica, &err);
    if (code != TERN_OK) {
        replica_end(replica, generation, REPLICA_RETRY_SLOW_MS, code, "source %s: %s",
                    rpc_peer_address(replica->peer), error_text(&err, code));
        return false;
    }
    replica->has_cut = false; /* it has heard so */
    return true;
}

/* ---- settling ---- */

static void question_of(struct replica *replica, struct replica_question *out)
{
    *out = (struct replica_question){.own = &replica->self, .source = &replica->incoming};
    out->recover = replica->greeted.purpose == REPLICA_RECOVER;
    out->force = replica->greeted.force;
    lock_acquire(&replica->lock);
    out->rejoin = replica->rejoin;
    lock_release(&replica->lock);
}

/* What each side has of the other's tables at the beginning of a session. */
static void begin_held(struct replica *replica, const struct replica_plan *plan,
                       struct ha_held *held, struct ha_held *given)
{
    bool same_life = replica->life == replica->incoming.life;
    struct ha_held own;
    replica->tables->own(replica->tables->arg, &own);
    if (!same_life) {
        *held = (struct ha_held){0};
        *given = (struct ha_held){.progress = replica->foreign_until};
    }
    replica->life = replica->incoming.life;
    if (plan->verdict == REPLICA_BEGIN) { /* ours are of no account; 0 may be what it has */
        held->topics_version = held->groups_version = held->deletions_version = UINT64_MAX;
        return;
    }
    held->topics_version = own.topics_version;
    held->groups_version = own.groups_version;
    held->deletions_version = own.deletions_version;
}

/* Our log is a beginning of the source's now: copies from here on. */
static void attach(struct replica *replica, const Tern__Wire__HaHandshakeResponse *body,
                   const struct replica_question *question, const struct replica_plan *plan,
                   uint64_t generation)
{
    bool recover = question->recover;
    struct replica_session session = {
        .id = body->session,
        .recover = recover,
        .sync_flush = body->sync_flush && !recover,
        .tables_only = plan->verdict == REPLICA_TABLES_ONLY,
        .take_tables = plan->verdict == REPLICA_BEGIN,
        .from = plan->at,
        .goal = replica->incoming.log_end,
    };
    struct ha_epoch last = {0};
    (void)epochs_last(replica->options.part.epochs, &last);
    lock_acquire(&replica->lock);
    struct ha_held held = replica->held;
    struct ha_held given = replica->given;
    lock_release(&replica->lock);
    begin_held(replica, plan, &held, &given);
    if (session.tables_only)
        session.goal = session.from;
    else if (!recover)
        store_set_sync_flush(replica->store, session.sync_flush);

    lock_acquire(&replica->lock);
    bool mine = replica->generation == generation;
    if (mine) {
        replica->phase = REPLICA_COPYING;
        replica->session = session;
        replica->held = held;
        replica->given = given;
        replica->last = last;
        replica->told_flushed = replica->told_dispatched = 0;
        replica->stuck_ns = SCHED_NEVER;
        replica->alone &= recover;
        if (!recover)
            replica->taken_ns = 0;
        replica->unfit = false;
        replica->source = replica->incoming;
        replica->source_known = true;
        if (replica->source.epoch_count)
            replica->agrees_with = replica->source.epochs[replica->source.epoch_count - 1].number;
        replica->window_ns = clock_mono_ns(replica->env->clock);
        replica->window_bytes = 0;
        replica->complaint[0] = '\0';
        snprintf(replica->text, sizeof replica->text, "%s %.135s", recover ? "takes" : "copies",
                 replica->greeted.address);
        atomic_store(&replica->attached, !recover);
    }
    lock_release(&replica->lock);
    if (!mine)
        return;
    log_info(replica->env->log, "replica_settled",
             "source=%s purpose=%s from=%" PRId64 " source_end=%" PRId64,
             replica->incoming.ha_address, recover ? "recover" : "follow",
             plan->has_common ? plan->common_end : plan->at, replica->incoming.log_end);
    if (!recover)
        replica->options.on_progress_seen(replica->options.part.arg, given.progress);
    replica->options.on_event(replica->options.part.arg, REPLICA_SETTLED, &replica->incoming);
    replica_fetch(replica, generation);
    if (!recover)
        replica_report(replica, false); /* progress made while there was no source */
}

void replica_settle(struct replica *replica, struct rpc_call *answer, uint64_t generation)
{
    struct replica_question question;
    struct replica_plan plan;
    if (understand(replica, answer, generation)) {
        const Tern__Wire__HaHandshakeResponse *body = body_of(answer);
        question_of(replica, &question);
        replica_plan(&question, &plan);
        replica->refuses_cut = false;
        if (replica_carry_out(replica, &plan, generation))
            attach(replica, body, &question, &plan, generation);
    }
    rpc_call_unref(answer);
}
