/*
 * Bringing our log in line with a source's: cutting, beginning afresh, standing apart.
 *
 *   cut     offsets lowered ─► bytes saved and cut ─► epochs adopted ─► greeted again, saying so
 *   reset   (offsets lowered) ─► store saved aside, begun at the source's first segment
 *           ─► epochs emptied ─► greeted again
 *
 * Each arrow is durable before the next step, and a crash between any two is found by the next
 * handshake: lowered offsets are raised again by the source's, a cut log whose list still has the
 * epoch that went begins it beyond its end, and the list is adopted then. From the first step until
 * a session begins the store is not readable, for its end is known to differ.
 *
 * Threads: the ha task. Failure modes: a step that fails is logged and begun again from the
 * handshake; a failed cut or reset has latched the store, which the next attempt meets again.
 */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "broker/ha/replica_internal.h"

static void set_unfit(struct replica *replica)
{
    lock_acquire(&replica->lock);
    replica->unfit = true;
    lock_release(&replica->lock);
}

/* What was confirmed of it goes, too: other bytes come to its place. */
static void count_cut(struct replica *replica, const struct store_cut *cut, int64_t kept)
{
    lock_acquire(&replica->lock);
    replica->cut_bytes += (uint64_t)cut->cut_bytes;
    if (replica->confirmed > kept)
        replica->confirmed = kept;
    lock_release(&replica->lock);
}

/* Says in the next handshake that nothing of ours lies beyond the common point any more. */
static void note_cut(struct replica *replica, int64_t at)
{
    replica->has_cut = true;
    replica->cut_at = at;
}

/* ---- epochs ---- */

/* The source's list before `end` is ours then. */
static enum tern_code adopt(struct replica *replica, int64_t end, struct tern_error *err)
{
    return epochs_adopt(replica->options.part.epochs, replica->incoming.epochs,
                        replica->incoming.epoch_count, end, err);
}

/* Whether our list is the source's before our end already, but for older ones. */
static bool is_adopted(const struct replica *replica)
{
    const struct ha_member *own = &replica->self;
    const struct ha_member *source = &replica->incoming;
    size_t count = 0;
    size_t older = 0;
    while (count < source->epoch_count && source->epochs[count].start < own->log_end)
        count++;
    while (count > 0 && older < own->epoch_count &&
           own->epochs[older].number < source->epochs[0].number)
        older++;
    if (count != own->epoch_count - older)
        return false;
    for (size_t i = 0; i < count; i++)
        if (own->epochs[older + i].number != source->epochs[i].number ||
            own->epochs[older + i].id != source->epochs[i].id ||
            own->epochs[older + i].start != source->epochs[i].start)
            return false;
    return true;
}

/* ---- cutting ---- */

static enum tern_code cut(struct replica *replica, int64_t at, struct store_cut *result,
                          struct tern_error *err)
{
    enum tern_code code = replica->tables->lower(replica->tables->arg, at, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "lowering consumer offsets to %" PRId64, at);
    code = store_cut(replica->store, at, true, result, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "cutting the log at %" PRId64, at);
    count_cut(replica, result, result->at);
    note_cut(replica, result->at);
    log_warn(replica->env->log, "log_cut",
             "source=%s at=%" PRId64 " bytes=%" PRId64 " records=%" PRId64
             " saved_as=%s cause=\"the source does not have them\"",
             replica->greeted.address, result->at, result->cut_bytes, result->records,
             result->saved_as);
    code = adopt(replica, result->at, err);
    return code == TERN_OK ? code : error_prefix(err, code, "adopting the source's epochs");
}

/* ---- beginning afresh ---- */

/* Offsets that count in a log which is given up: lowered, or forgotten with it. */
static enum tern_code give_up_offsets(struct replica *replica, const struct replica_plan *plan,
                                      struct tern_error *err)
{
    const struct ha_tables *tables = replica->tables;
    if (!plan->foreign) {
        if (plan->common_end >= replica->self.log_end)
            return TERN_OK;
        note_cut(replica, plan->common_end);
        return tables->lower(tables->arg, plan->common_end, err);
    }
    struct ha_held own;
    enum tern_code code = tables->forget ? tables->forget(tables->arg, err) : TERN_OK;
    tables->own(tables->arg, &own);
    replica->foreign_until = own.progress;
    replica->life = 0;
    return code;
}

static enum tern_code reset(struct replica *replica, const struct replica_plan *plan,
                            struct tern_error *err)
{
    struct store_cut result;
    enum tern_code code = give_up_offsets(replica, plan, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "giving up consumer offsets");
    code = store_reset(replica->store, plan->at, &result, err);
    if (code != TERN_OK)
        return error_prefix(err, code, "beginning the log at %" PRId64, plan->at);
    count_cut(replica, &result, 0);
    log_warn(replica->env->log, "store_reset",
             "source=%s begins_at=%" PRId64 " bytes=%" PRId64 " saved_as=%s cause=\"%s\"",
             replica->greeted.address, plan->at, result.cut_bytes, result.saved_as,
             plan->foreign ? "no epoch in common, given up by an operator"
                           : "the source has nothing as old as the common point any more");
    code = epochs_adopt(replica->options.part.epochs, NULL, 0, 0, err);
    return code == TERN_OK ? code : error_prefix(err, code, "emptying the list of epochs");
}

/* An empty store gets the source's first position. */
static enum tern_code begin_at(struct replica *replica, int64_t at, struct tern_error *err)
{
    struct store_cut result;
    if (replica->self.log_min == at)
        return TERN_OK;
    enum tern_code code = store_reset(replica->store, at, &result, err);
    return code == TERN_OK ? code : error_prefix(err, code, "beginning the log at %" PRId64, at);
}

/* ---- standing apart ---- */

static void stand_apart(struct replica *replica, const struct replica_plan *plan,
                        uint64_t generation)
{
    lock_acquire(&replica->lock);
    bool mine = replica->generation == generation;
    if (mine) {
        replica->phase = REPLICA_APART;
        replica->generation++;
        replica->has_event = true;
        replica->event = REPLICA_DETACHED;
        replica->source = replica->incoming;
        replica->source_known = true;
    }
    lock_release(&replica->lock);
    if (!mine)
        return;
    replica_set_text(replica, "detached from %.100s: mqadmin rejoin starts afresh",
                     replica->greeted.address);
    log_error(replica->env->log, "replica_detached", "source=%s cause=\"%s\"",
              replica->greeted.address, plan->why);
}

/* ---- all of it ---- */

static enum tern_code change_log(struct replica *replica, const struct replica_plan *plan,
                                 struct tern_error *err)
{
    struct store_cut result;
    switch (plan->verdict) {
    case REPLICA_GO_ON:
        return is_adopted(replica) ? TERN_OK : adopt(replica, replica->self.log_end, err);
    case REPLICA_BEGIN:
        return begin_at(replica, plan->at, err);
    case REPLICA_CUT:
        return cut(replica, plan->at, &result, err);
    case REPLICA_RESET:
        return reset(replica, plan, err);
    default:
        return TERN_OK;
    }
}

bool replica_carry_out(struct replica *replica, const struct replica_plan *plan,
                       uint64_t generation)
{
    struct tern_error err = {.text = ""};
    bool changes = plan->verdict == REPLICA_CUT || plan->verdict == REPLICA_RESET;

    if (plan->verdict == REPLICA_DETACH) {
        stand_apart(replica, plan, generation);
        return false;
    }
    lock_acquire(&replica->lock);
    replica->rejoin = false;
    lock_release(&replica->lock);
    if (plan->verdict == REPLICA_REFUSE_CUT || plan->verdict == REPLICA_REFUSE) {
        /* The first time at once: a master must not write on. */
        int64_t delay_ms = replica->refused_cut ? REPLICA_RETRY_MAX_MS : REPLICA_BUSY_MIN_MS;
        replica->refuses_cut = plan->verdict == REPLICA_REFUSE_CUT;
        replica->refused_cut = replica->refuses_cut;
        replica_end(replica, generation, delay_ms, TERN_STATE, "%s: %s", replica->greeted.address,
                    plan->why);
        return false;
    }
    replica->refused_cut = false;
    if (changes || (plan->verdict == REPLICA_BEGIN && replica->self.log_min != plan->at))
        set_unfit(replica);
    enum tern_code code = change_log(replica, plan, &err);
    if (code != TERN_OK) {
        if (code == TERN_STATE) /* would mean that force helps */
            code = TERN_SYSTEM_ERROR;
        replica_end(replica, generation, REPLICA_RETRY_SLOW_MS, code,
                    "bringing the log in line with %s: %s", replica->greeted.address,
                    error_text(&err, code));
        return false;
    }
    if (changes)
        replica_again(replica, generation);
    return !changes;
}
