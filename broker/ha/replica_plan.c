/*
 * What a handshake means for our log: a pure decision on two members as they were at the handshake.
 *
 *                 own end
 *   own    ──e1──┬──e2────┤           common point: the last epoch that both have, and the lowest
 *   source ──e1──┼──e3──────────┤     end of it on both sides
 *             common end
 *
 *   no common epoch     empty here: begin; rejoin said: reset; else apart
 *   common end = own    go on
 *   common end < own    our newer epoch forbids it: refuse; below either log's minimum: reset;
 *                       else cut
 *
 * A recovering master is the careful one: what costs its own bytes under an epoch that is not below
 * the source's, or without a common epoch, or the whole store, is done only by force; and from a
 * source that has nothing beyond its own (epoch, end) it takes tables only.
 *
 * The common point is computed here from both lists, not taken from the answer: a source that
 * computes otherwise refuses the fetch that follows.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/ha/replica_internal.h"

static uint64_t last_number(const struct ha_member *member)
{
    return member->epoch_count ? member->epochs[member->epoch_count - 1].number : 0;
}

static bool same_last(const struct ha_member *a, const struct ha_member *b)
{
    return a->epoch_count && b->epoch_count &&
           a->epochs[a->epoch_count - 1].number == b->epochs[b->epoch_count - 1].number &&
           a->epochs[a->epoch_count - 1].id == b->epochs[b->epoch_count - 1].id;
}

/* Where a log begins that is to hold everything the source has. */
static int64_t first_of(const struct ha_member *source)
{
    return source->log_min - source->log_min % source->segment_bytes;
}

static bool is_empty(const struct ha_member *member)
{
    return member->epoch_count == 0 && member->log_end == member->log_min;
}

static void no_common(const struct replica_question *q, struct replica_plan *out)
{
    out->at = first_of(q->source);
    if (is_empty(q->own)) {
        out->verdict = q->recover && is_empty(q->source) ? REPLICA_TABLES_ONLY : REPLICA_BEGIN;
        return;
    }
    if (q->recover && is_empty(q->source)) { /* it has nothing that we lack */
        out->verdict = REPLICA_TABLES_ONLY;
        return;
    }
    if (q->rejoin || (q->recover && q->force)) {
        out->verdict = REPLICA_RESET;
        out->foreign = true;
        return;
    }
    out->verdict = q->recover ? REPLICA_REFUSE : REPLICA_DETACH;
    snprintf(out->why, sizeof out->why,
             "its log and the one here (%" PRId64 " bytes from %" PRId64
             " on) have no epoch in common: %s",
             q->own->log_end - q->own->log_min, q->own->log_min,
             q->recover ? "mqadmin forceOpen saves this store aside and takes the other's"
                        : "mqadmin rejoin saves this store aside and starts it afresh");
}

/* A recovering master keeps what it has: the source is not beyond it. */
static bool source_is_not_beyond(const struct replica_question *q, int64_t common_end)
{
    uint64_t own = last_number(q->own);
    uint64_t source = last_number(q->source);
    if (common_end == q->source->log_end)
        return true;
    if (own != source)
        return source < own;
    return same_last(q->own, q->source) && q->source->log_end <= q->own->log_end;
}

/* Bytes that both wrote beyond the common point, ours under an epoch that is not below. What forces
 * a cut is the number that forceOpen takes, which is above both. */
static bool epoch_forbids(const struct replica_question *q)
{
    return last_number(q->own) >= last_number(q->source) && !same_last(q->own, q->source);
}

static void refuse_cut(const struct replica_question *q, struct replica_plan *out)
{
    out->verdict = q->recover ? REPLICA_REFUSE : REPLICA_REFUSE_CUT;
    snprintf(
        out->why, sizeof out->why,
        "%" PRId64 " bytes here beyond %" PRId64 " were written under epoch %" PRIu64
        ", the source is at %" PRIu64
        ": the source recovers from here, or mqadmin forceOpen at the master gives one side up",
        q->own->log_end - out->common_end, out->common_end, last_number(q->own),
        last_number(q->source));
}

/* Everything the source has, from its first segment on. */
static void reset(const struct replica_question *q, struct replica_plan *out)
{
    out->at = first_of(q->source);
    out->verdict = REPLICA_RESET;
    if (!q->recover || q->force)
        return;
    out->verdict = REPLICA_REFUSE;
    snprintf(out->why, sizeof out->why,
             "its log begins at %" PRId64 ", the common point is %" PRId64
             ": mqadmin forceOpen saves this store aside and takes the other's",
             q->source->log_min, out->common_end);
}

void replica_plan(const struct replica_question *q, struct replica_plan *out)
{
    const struct ha_member *own = q->own;
    const struct ha_member *source = q->source;
    struct ha_common common;

    *out = (struct replica_plan){.verdict = REPLICA_GO_ON};
    out->has_common = ha_epochs_common(own->epochs, own->epoch_count, own->log_end, source->epochs,
                                       source->epoch_count, source->log_end, &common);
    if (!out->has_common) {
        no_common(q, out);
        return;
    }
    out->common_end = out->at = common.end;
    bool costs_bytes = common.end < own->log_end;
    if (q->recover && source_is_not_beyond(q, common.end)) {
        if (costs_bytes) {
            out->verdict = REPLICA_TABLES_ONLY;
            out->at = common.end < source->log_min ? first_of(source) : common.end;
        }
        return;
    }
    if (costs_bytes && epoch_forbids(q) && !(q->recover && q->force)) {
        refuse_cut(q, out);
        return;
    }
    if (common.end < source->log_min || common.end < own->log_min)
        reset(q, out);
    else if (costs_bytes)
        out->verdict = REPLICA_CUT;
}
