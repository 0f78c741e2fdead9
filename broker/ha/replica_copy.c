/*
 * Copying: one fetch after the other, from our end on.
 *
 *   fetch(our end) ──► parked there ──► answer ──► epoch durable? room without waiting?
 *     ▲                                               │ yes: appended here, on the link's thread
 *     │                                               │ no: the ha task does it
 *     └──────── tables, confirmed ◄───────────────────┘
 *
 * Invariants: a byte is appended only after its epoch is durable, only at our end, and never more
 * than was asked for. Nothing of an answer is done twice: what the link's thread cannot do without
 * waiting it leaves whole to the ha task.
 *
 * Threads: the one that got the answer, inside the session; the ha task, when nobody is. Nothing
 * here allocates but what tables need. Failure modes: an answer that does not fit ends the session
 * with an error; a full disk or a latched store is tried again slowly.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ha/replica_internal.h"

/* ---- asking ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* @thread link's */
static void on_fetched(struct rpc_call *call, void *arg);

/* Where we stand, as the source is told; what lies beyond the common point is not its business. */
static void fill_position(struct replica *replica, const struct replica_session *session,
                          Tern__Wire__HaPosition *out)
{
    struct store_positions at;
    char text[REPLICA_TEXT_BYTES];
    store_positions(replica->store, &at);
    out->appended = session->tables_only ? session->from : at.appended;
    out->flushed = least(at.flushed, out->appended);
    out->dispatched = least(at.dispatched, out->appended);
    out->readable =
        replica->options.part.ha->readable && replica_readable(replica, text, sizeof text);
}

/* Notes what the source is being told; wake: the ha task has to learn when to look again. @locks
 * holds */
static void note_told(struct replica *replica, const Tern__Wire__HaPosition *position, bool *wake)
{
    replica->told_flushed = position->flushed;
    replica->told_dispatched = position->dispatched;
    bool behind =
        position->flushed < position->appended || position->dispatched < position->appended;
    *wake = behind && replica->tell_ns == SCHED_NEVER && !replica->session.recover;
    if (*wake)
        replica->tell_ns = clock_mono_ns(replica->env->clock) + ms_to_ns(REPLICA_TELL_MS);
}

static bool flushed_beyond(struct replica *replica, int64_t flushed)
{
    struct store_positions at;
    store_positions(replica->store, &at);
    return at.flushed > flushed;
}

void replica_fetch(struct replica *replica, uint64_t generation)
{
    Tern__Wire__HaFetchRequest body = TERN__WIRE__HA_FETCH_REQUEST__INIT;
    Tern__Wire__HaPosition position = TERN__WIRE__HA_POSITION__INIT;
    Tern__Wire__HaHeld wire_held = TERN__WIRE__HA_HELD__INIT;
    TernRequest request = TERN__WIRE__REQUEST__INIT;
    struct rpc_call *call;
    bool wake = false;

    enum tern_code code = rpc_call_create(replica->peer, 0, &call);
    if (code != TERN_OK) {
        replica_end(replica, generation, 0, code, "no call to the source can be made: %s",
                    tern_code_text(code));
        return;
    }
    lock_acquire(&replica->lock);
    struct replica_session session = replica->session;
    struct ha_held held = replica->held;
    struct ha_held given = replica->given;
    lock_release(&replica->lock);
    fill_position(replica, &session, &position);
    bool at_goal = session.recover && position.appended >= session.goal;
    wire_held.topics_version = held.topics_version;
    wire_held.groups_version = held.groups_version;
    wire_held.deletions_version = held.deletions_version;
    wire_held.progress = held.progress;
    body.session = session.id;
    body.from = position.appended;
    body.max_bytes = session.tables_only ? 1 : HA_CHUNK_MAX; /* 0 would mean the most */
    body.suspend_timeout_ms = at_goal ? 0 : HA_PARK_MAX_MS;
    body.position = &position;
    body.held = &wire_held;
    body.gave_progress = !replica->tables->differs(replica->tables->arg, &given, true);
    request.body_case = TERN__WIRE__REQUEST__BODY_HA_FETCH;
    request.ha_fetch = &body;

    lock_acquire(&replica->lock);
    bool mine = replica->generation == generation;
    if (mine) {
        replica->fetch_out = true;
        replica->session.from = body.from;
        note_told(replica, &position, &wake);
    }
    lock_release(&replica->lock);
    if (!mine) {
        rpc_call_unref(call);
        return;
    }
    call->user = (void *)(uintptr_t)generation;
    rpc_call_start(call, &request, 0, body.suspend_timeout_ms + REPLICA_SILENCE_MS, on_fetched,
                   replica_hold(replica));
    if (wake)
        replica->options.part.wake(replica->options.part.arg);
    if (session.sync_flush && flushed_beyond(replica, position.flushed))
        replica_report(replica, false); /* it came while the fetch was made */
}

/* ---- checking an answer ---- */

static const Tern__Wire__HaFetchResponse *body_of(const struct rpc_call *call)
{
    return call->response->body_case == TERN__WIRE__RESPONSE__BODY_HA_FETCH
               ? call->response->ha_fetch
               : NULL;
}

/* NULL: the bytes may belong to this epoch; else why not. */
static const char *epoch_fault(const struct ha_epoch *last, const struct ha_epoch *epoch,
                               int64_t from)
{
    if (!ha_epochs_sound(epoch, 1) || epoch->number == 0 || epoch->start > from)
        return "bytes of an epoch that does not cover them";
    if (last->number == 0)
        return NULL;
    if (epoch->number == last->number)
        return epoch->id == last->id && epoch->start == last->start
                   ? NULL
                   : "bytes of another epoch of the same number";
    if (epoch->number < last->number)
        return "bytes of an epoch older than the one before";
    return epoch->start == from ? NULL : "an epoch that began before bytes already here";
}

static const char *answer_fault(const struct replica_session *session, const struct ha_epoch *last,
                                const struct rpc_call *call, struct ha_epoch *epoch)
{
    const Tern__Wire__HaFetchResponse *body = body_of(call);
    if (!body)
        return "an answer of another kind";
    if (body->from != session->from)
        return "bytes from a position that was not asked for";
    if (call->payload_size > (session->tables_only ? 1u : (size_t)HA_CHUNK_MAX))
        return "more bytes than asked for";
    if (body->appended < 0 || body->flushed < 0 || body->confirmed < 0)
        return "a position below 0";
    if (call->payload_size == 0 || session->tables_only)
        return NULL;
    if (!body->epoch)
        return "bytes without an epoch";
    *epoch = (struct ha_epoch){
        .number = body->epoch->number, .id = body->epoch->id, .start = body->epoch->start};
    return epoch_fault(last, epoch, session->from);
}

/* ---- doing what an answer says ---- */

enum copied { COPIED, COPY_LATER /* on the ha task */, COPY_ENDED };

/* An answer in work. */
struct chunk {
    struct replica *replica;
    const struct rpc_call *call;
    const Tern__Wire__HaFetchResponse *body;
    uint64_t generation;
    bool may_wait; /* we are the ha task */
    struct replica_session session;
    struct ha_epoch last, epoch;
    struct ha_held held;
    int64_t confirmed; /* to be told once the next fetch is out; −1: not */
};

static enum copied end_chunk(struct chunk *c, int64_t delay_ms, enum tern_code code,
                             const char *what, const char *why)
{
    if (code == TERN_STATE) /* would mean that force helps */
        code = TERN_SYSTEM_ERROR;
    replica_end(c->replica, c->generation, delay_ms, code, "%s of %s: %s", what,
                rpc_peer_address(c->replica->peer), why);
    return COPY_ENDED;
}

static bool needs_disk(const Tern__Wire__HaTables *tables)
{
    return tables->has_topics || tables->has_groups || tables->n_deletions > 0;
}

/*
 * A recovering master has seen changes that the member has not: of two tables the newer stays. The
 * member is told that its own was taken, so that it does not send it again.
 */
static void skip_older(struct chunk *c, Tern__Wire__HaTables *tables)
{
    struct ha_held own;
    c->replica->tables->own(c->replica->tables->arg, &own);
    if (tables->has_topics && tables->topics_version < own.topics_version) {
        tables->has_topics = false;
        tables->n_topics = tables->n_deletions = 0;
        c->held.topics_version = tables->topics_version;
        c->held.deletions_version = tables->deletions_version;
    }
    if (tables->has_groups && tables->groups_version < own.groups_version) {
        tables->has_groups = false;
        tables->n_groups = 0;
        c->held.groups_version = tables->groups_version;
    }
}

static enum copied apply_tables(struct chunk *c)
{
    struct tern_error err = {.text = ""};
    const struct ha_tables *ops = c->replica->tables;
    Tern__Wire__HaTables tables = *c->body->tables;
    if (c->session.recover && !c->session.take_tables)
        skip_older(c, &tables);
    enum tern_code code = ops->apply(ops->arg, &tables, &c->held, &err);
    lock_acquire(&c->replica->lock);
    if (c->replica->generation == c->generation)
        c->replica->held = c->held;
    lock_release(&c->replica->lock);
    if (code == TERN_OK)
        return COPIED;
    return end_chunk(c, REPLICA_RETRY_MAX_MS, code, "tables", error_text(&err, code));
}

static enum copied add_epoch(struct chunk *c)
{
    struct tern_error err = {.text = ""};
    if (c->epoch.number == c->last.number)
        return COPIED;
    if (!c->may_wait)
        return COPY_LATER;
    const struct ha_member *source = &c->replica->source; /* only the ha task changes its epochs */
    struct epochs *epochs = c->replica->options.part.epochs;
    enum tern_code code = TERN_OK;
    if (c->last.number == 0) /* with those whose bytes have expired, by which others are known */
        code = epochs_adopt(epochs, source->epochs, source->epoch_count, c->epoch.start, &err);
    if (code == TERN_OK)
        code = epochs_add(epochs, &c->epoch, &err);
    if (code != TERN_OK)
        return end_chunk(c, REPLICA_RETRY_SLOW_MS, code, "an epoch", error_text(&err, code));
    lock_acquire(&c->replica->lock);
    if (c->replica->generation == c->generation)
        c->replica->last = c->epoch;
    lock_release(&c->replica->lock);
    return COPIED;
}

static enum copied append(struct chunk *c)
{
    struct tern_error err = {.text = ""};
    enum copied copied = add_epoch(c);
    if (copied != COPIED)
        return copied;
    enum tern_code code = store_append_bytes(c->replica->store, c->session.from, c->call->payload,
                                             c->call->payload_size, !c->may_wait, &err);
    if (code == TERN_AGAIN && !c->may_wait)
        return COPY_LATER;
    if (code == TERN_OK)
        return COPIED;
    /* A full disk or a busy preparer may be better soon; a latched store or bytes that are no log
     * want an operator. */
    bool passing = code == TERN_NO_SPACE || code == TERN_AGAIN || code == TERN_NO_MEMORY;
    return end_chunk(c, passing ? REPLICA_RETRY_MAX_MS : REPLICA_RETRY_SLOW_MS, code,
                     "bytes of the log", error_text(&err, code));
}

/* The counters; what is confirmed when that has to be told, else −1. */
static int64_t count(struct chunk *c)
{
    struct replica *replica = c->replica;
    int64_t now_ns = clock_mono_ns(replica->env->clock);
    lock_acquire(&replica->lock);
    replica->backoff_ms = 0;
    replica->window_bytes += c->call->payload_size;
    replica->source.log_end = c->body->appended;
    replica->source.flushed = c->body->flushed;
    int64_t took_ns = now_ns - replica->window_ns;
    if (took_ns >= ms_to_ns(1000)) {
        replica->rate = (double)replica->window_bytes * 1e9 / (double)took_ns;
        replica->window_ns = now_ns;
        replica->window_bytes = 0;
    }
    bool moved = replica->generation == c->generation && !c->session.recover &&
                 (!replica->confirmed_told || replica->confirmed < c->body->confirmed);
    if (moved && replica->confirmed < c->body->confirmed)
        replica->confirmed = c->body->confirmed;
    int64_t confirmed = replica->confirmed;
    replica->confirmed_told |= moved;
    lock_release(&replica->lock);
    return moved ? confirmed : -1;
}

/* Bytes and tables: in this order, but for tables that the bytes need. */
static enum copied copy(struct chunk *c)
{
    bool tables = c->body->tables != NULL;
    bool disk = tables && needs_disk(c->body->tables);
    enum copied copied = COPIED;
    if (disk && !c->may_wait)
        return COPY_LATER;
    if (disk)
        copied = apply_tables(c);
    if (copied == COPIED && c->call->payload_size > 0 && !c->session.tables_only)
        copied = append(c);
    if (copied == COPIED && tables && !disk)
        copied = apply_tables(c);
    if (copied == COPIED)
        c->confirmed = count(c);
    return copied;
}

/* All changes of progress that the source had when it answered: else it goes on as fast as
 * consumers commit there. */
static bool is_last_progress(const Tern__Wire__HaTables *tables)
{
    return !needs_disk(tables) && tables->n_progress < HA_PROGRESS_MAX &&
           tables->n_locks < HA_PROGRESS_MAX;
}

/* A take has everything when the source had nothing more to say. */
static bool has_all(const struct chunk *c)
{
    return c->session.recover && c->session.from >= c->session.goal &&
           (!c->body->tables || is_last_progress(c->body->tables)) &&
           (c->session.tables_only || c->call->payload_size == 0);
}

static void end_take(struct chunk *c)
{
    struct replica *replica = c->replica;
    lock_acquire(&replica->lock);
    if (replica->generation == c->generation) {
        replica->generation++;
        replica->phase = REPLICA_IDLE;
        replica->target.purpose = REPLICA_NOTHING;
        replica->has_event = true;
        replica->event = REPLICA_CAUGHT_UP;
    }
    lock_release(&replica->lock);
    replica_set_text(replica, "has taken what it was to take");
}

/* *confirmed: to be told by tell_confirmed(), after the next fetch. */
static enum copied take_answer(struct replica *replica, const struct rpc_call *call,
                               uint64_t generation, bool may_wait, int64_t *confirmed)
{
    struct chunk c = {.replica = replica,
                      .call = call,
                      .body = NULL,
                      .generation = generation,
                      .may_wait = may_wait,
                      .confirmed = -1};
    *confirmed = -1;
    enum tern_code code = rpc_call_result(call);
    if (code != TERN_OK) {
        if (code == TERN_INVALID) /* the session is over there */
            code = TERN_CONNECTION_LOST;
        replica_end(replica, generation, 0, code, "%s", error_text(&call->error, code));
        return COPY_ENDED;
    }
    lock_acquire(&replica->lock);
    c.session = replica->session;
    c.last = replica->last;
    c.held = replica->held;
    lock_release(&replica->lock);
    c.body = body_of(call);
    const char *fault = answer_fault(&c.session, &c.last, call, &c.epoch);
    if (fault)
        return end_chunk(&c, REPLICA_RETRY_SLOW_MS, TERN_PROTOCOL, "an answer", fault);
    enum copied copied = copy(&c);
    *confirmed = c.confirmed;
    if (copied == COPIED && has_all(&c)) {
        end_take(&c);
        return COPY_ENDED;
    }
    return copied;
}

/* ---- answers ---- */

/* The ha task goes on with this answer. */
static void leave_to_task(struct replica *replica, struct rpc_call *call, uint64_t generation)
{
    lock_acquire(&replica->lock);
    bool mine = replica->generation == generation;
    if (mine)
        replica->answer = rpc_call_ref(call);
    lock_release(&replica->lock);
}

/* The next fetch acknowledges what came, so it goes first; then what may be seen now is told. */
static void go_on(struct replica *replica, uint64_t generation, int64_t confirmed)
{
    replica_fetch(replica, generation);
    if (confirmed >= 0)
        replica->options.on_confirmed(replica->options.part.arg, confirmed, true);
}

static void work_inside(struct replica *replica, struct rpc_call *call, uint64_t generation)
{
    lock_acquire(&replica->lock);
    replica->fetch_out = false;
    lock_release(&replica->lock);
    int64_t confirmed;
    enum copied copied = take_answer(replica, call, generation, false, &confirmed);
    if (copied == COPIED)
        go_on(replica, generation, confirmed);
    else if (copied == COPY_LATER)
        leave_to_task(replica, call, generation);
}

static void on_fetched(struct rpc_call *call, void *arg)
{
    struct replica *replica = arg;
    uint64_t generation = (uint64_t)(uintptr_t)call->user;
    if (rpc_gate_enter(&replica->gate)) {
        if (replica_enter(replica, generation)) {
            work_inside(replica, call, generation);
            replica_leave(replica);
        }
        rpc_gate_leave(&replica->gate, replica->env->sched);
    }
    rpc_call_unref(call);
    replica_drop(replica);
}

void replica_copy_on(struct replica *replica, struct rpc_call *answer, uint64_t generation)
{
    int64_t confirmed;
    if (take_answer(replica, answer, generation, true, &confirmed) == COPIED)
        go_on(replica, generation, confirmed);
    rpc_call_unref(answer);
}
