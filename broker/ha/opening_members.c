/*
 * Whom a starting master waits for: the members of the set on record, slaves that nameservers list
 * when our store is empty, and whoever shows a log that is beyond ours or contradicts it.
 *
 * Threads: any (members are heard on the link's threads, lists come from the registrar); everything
 * is under the opening's lock. Failure modes: more than OPENING_MEMBERS_MAX are not waited for.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ha/opening_internal.h"

/* ---- places ---- */

struct opening_place opening_place_of(const struct ha_member *member)
{
    struct opening_place place = {.end = member->log_end};
    if (member->epoch_count) {
        place.number = member->epochs[member->epoch_count - 1].number;
        place.id = member->epochs[member->epoch_count - 1].id;
    }
    return place;
}

bool opening_is_empty(const struct ha_member *member)
{
    return member->epoch_count == 0 && member->log_end == member->log_min;
}

bool opening_is_beyond(const struct opening_place *own, const struct opening_place *other)
{
    if (other->number != own->number)
        return other->number > own->number;
    return other->id != own->id || other->end > own->end;
}

static bool is_higher(const struct opening_place *a, const struct opening_place *b)
{
    return a->number != b->number ? a->number > b->number : a->end > b->end;
}

bool opening_was_cut(const struct opening_place *before, const struct ha_member *now)
{
    if (before->number == 0)
        return now->log_end < before->end;
    for (size_t i = 0; i < now->epoch_count; i++) {
        if (now->epochs[i].number != before->number || now->epochs[i].id != before->id)
            continue;
        int64_t end = i + 1 < now->epoch_count ? now->epochs[i + 1].start : now->log_end;
        return end < before->end;
    }
    return true;
}

/* ---- the list ---- */

struct opening_member *opening_add(struct opening *opening, const struct insync_member *member)
{
    if (opening->count == OPENING_MEMBERS_MAX)
        return NULL;
    struct opening_member *added = &opening->members[opening->count++];
    *added = (struct opening_member){.member = *member};
    return added;
}

struct opening_member *opening_find(struct opening *opening, int64_t id,
                                    const uint8_t uuid[HA_UUID_BYTES])
{
    for (size_t i = 0; i < opening->count; i++)
        if (opening->members[i].member.id == id &&
            memcmp(opening->members[i].member.uuid, uuid, HA_UUID_BYTES) == 0)
            return &opening->members[i];
    return NULL;
}

static bool is_missing(const struct opening_member *member)
{
    return !member->answered && !member->given_up && !member->unlisted;
}

static bool is_untaken(const struct opening_member *member)
{
    return member->answered && !member->taken && !member->given_up;
}

size_t opening_missing(const struct opening *opening)
{
    size_t missing = 0;
    for (size_t i = 0; i < opening->count; i++)
        missing += is_missing(&opening->members[i]);
    return missing;
}

bool opening_listed_missing(const struct opening *opening)
{
    for (size_t i = 0; i < opening->count; i++)
        if (is_missing(&opening->members[i]) && !opening->members[i].in_set)
            return true;
    return false;
}

bool opening_untaken(const struct opening *opening)
{
    for (size_t i = 0; i < opening->count; i++)
        if (is_untaken(&opening->members[i]))
            return true;
    return false;
}

struct opening_member *opening_best(struct opening *opening, int64_t now_ns)
{
    struct opening_member *best = NULL;
    for (size_t i = 0; i < opening->count; i++) {
        struct opening_member *member = &opening->members[i];
        if (is_untaken(member) && member->take_ns <= now_ns &&
            (!best || is_higher(&member->place, &best->place)))
            best = member;
    }
    return best;
}

void opening_name_missing(const struct opening *opening, char *out, size_t size)
{
    size_t len = strnlen(out, size);
    bool first = true;
    for (size_t i = 0; i < opening->count && len < size; i++) {
        const struct opening_member *member = &opening->members[i];
        if (member->answered || member->unlisted)
            continue;
        int wrote = snprintf(
            out + len, size - len, "%s%" PRId64 " (%s)", first ? "" : ", ", member->member.id,
            member->member.ha_address[0] ? member->member.ha_address : "address not known");
        len += wrote > 0 ? (size_t)wrote : 0;
        first = false;
    }
}

/* ---- events ---- */

/* Whether it is of our name, and not us. */
static bool is_ours(const struct opening *opening, const struct ha_member *member)
{
    const struct ha_options *ha = opening->options.part.ha;
    return strcmp(member->cluster, ha->cluster) == 0 && strcmp(member->name, ha->name) == 0 &&
           member->id != ha->id && memcmp(member->uuid, ha->uuid, HA_UUID_BYTES) != 0;
}

/* It was not waited for, but what it has is not to be passed over. @locks holds */
static struct opening_member *add_heard(struct opening *opening, const struct ha_member *member,
                                        const struct opening_place *place)
{
    struct insync_member known = {.id = member->id};
    if (opening_is_empty(member) || !opening_is_beyond(&opening->own, place))
        return NULL;
    memcpy(known.uuid, member->uuid, sizeof known.uuid);
    return opening_add(opening, &known);
}

void opening_heard(struct opening *opening, const struct ha_member *member)
{
    struct opening_place place = opening_place_of(member);
    bool added = false;
    if (!is_ours(opening, member))
        return;
    lock_acquire(&opening->lock);
    bool waits = opening->stage != OPENING_IDLE && opening->stage != OPENING_OPEN;
    struct opening_member *known = NULL;
    if (waits) {
        if (member->highest_epoch > opening->highest)
            opening->highest = member->highest_epoch;
        known = opening_find(opening, member->id, member->uuid);
        if (!known) {
            known = add_heard(opening, member, &place);
            added = known != NULL;
        }
    }
    if (known) {
        memcpy(known->member.ha_address, member->ha_address, sizeof known->member.ha_address);
        known->place = place;
        known->answered = true;
        if (opening_is_empty(member))
            known->taken = true;
        else
            known->has_log = true;
        if (added && opening->stage == OPENING_BEGINNING)
            opening->stage = OPENING_WAITING;
    }
    lock_release(&opening->lock);
    if (added)
        log_warn(opening->env->log, "opening_heard_of_more",
                 "id=%" PRId64 " address=%s epoch=%" PRIu64 " end=%" PRId64
                 " effect=\"its log is taken before the opening\"",
                 member->id, member->ha_address, place.number, place.end);
    if (known)
        opening->options.part.wake(opening->options.part.arg);
}

/* @locks holds */
static void take_listed(struct opening *opening, const struct ha_seen_member *listed)
{
    struct insync_member fresh = {.id = listed->id};
    if (listed->id == opening->options.part.ha->id || !listed->ha_address[0] ||
        memcmp(listed->uuid, opening->options.part.ha->uuid, HA_UUID_BYTES) == 0)
        return;
    struct opening_member *known = opening_find(opening, listed->id, listed->uuid);
    if (!known && opening->searches) {
        memcpy(fresh.uuid, listed->uuid, sizeof fresh.uuid);
        known = opening_add(opening, &fresh);
    }
    if (known && !known->answered)
        snprintf(known->member.ha_address, sizeof known->member.ha_address, "%s",
                 listed->ha_address);
}

/* Whoever was known from a list only, never answered, and is on none any more. @locks holds */
static void forget_unlisted(struct opening *opening, const struct ha_seen_member *listed,
                            size_t count)
{
    for (size_t i = 0; i < opening->count; i++) {
        struct opening_member *member = &opening->members[i];
        size_t j = 0;
        while (j < count && (listed[j].id != member->member.id ||
                             memcmp(listed[j].uuid, member->member.uuid, HA_UUID_BYTES) != 0))
            j++;
        member->unlisted = j == count && !member->in_set && !member->has_log;
    }
}

void opening_members(struct opening *opening, const struct ha_seen_member *members, size_t count,
                     uint32_t nameservers_answered)
{
    lock_acquire(&opening->lock);
    bool waits = opening->stage == OPENING_SEARCHING || opening->stage == OPENING_WAITING;
    if (waits) {
        for (size_t i = 0; i < count; i++)
            take_listed(opening, &members[i]);
        /* Only when as many answered as ever: the one that listed it is among them. */
        if (nameservers_answered > 0 && nameservers_answered >= opening->nameservers_answered) {
            forget_unlisted(opening, members, count);
            opening->nameservers_answered = nameservers_answered;
        }
    }
    lock_release(&opening->lock);
    if (waits)
        opening->options.part.wake(opening->options.part.arg);
}

size_t opening_awaited(struct opening *opening, struct insync_member out[INSYNC_MAX])
{
    size_t count = 0;
    lock_acquire(&opening->lock);
    for (size_t i = 0; i < opening->count && count < INSYNC_MAX; i++)
        if (!opening->members[i].answered)
            out[count++] = opening->members[i].member;
    lock_release(&opening->lock);
    return count;
}
