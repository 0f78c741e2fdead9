/*
 * What faults may have cost, as docs/replication.md says, and that they cost
 * nothing else.
 *
 *   SYNC_FLUSH       what is acknowledged lies on the master's disk; no loss of
 * power takes it ASYNC_FLUSH      a broker that loses its power loses what it
 * had not flushed ASYNC_MASTER     lost when the master has lost it SYNC_MASTER
 * lost when the master and a slave have lost it (of two slaves either may be
 * the one that counted)
 *
 * Who holds a number is read from the stores (fault_look). Of a death in the
 * middle of something only the last look is known: whatever was not held then
 * may be lost.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/record.h"
#include "tests/cluster/set_fault.h"

bool fault_runs(const struct fault_broker *broker)
{
    return broker->node->broker && !broker->dying;
}

int fault_state(const struct fault_broker *broker)
{
    return fault_runs(broker) ? ha_state(broker->node->broker->ha) : -1;
}

static struct fault_set *set_of(const struct fault_broker *broker)
{
    return &broker->world->sets[broker->set];
}

bool fault_is_master(const struct fault_broker *broker)
{
    return set_of(broker)->master == broker->index;
}

/* ---- who holds what ---- */

/* Whether the store has this number where it was acknowledged. */
static bool has_number(struct store *store, struct number *number)
{
    uint8_t bytes[1536], body[1024];
    size_t got, size;
    struct record record;
    if (store_read_bytes(store, number->phys_off, bytes, sizeof bytes, false, &got) != TERN_OK ||
        record_parse(bytes, got, sizeof bytes, true, &record) != RECORD_WHOLE)
        return false;
    fault_body(number->value, body, &size);
    number->record_size = record.total_size;
    return record.body_len == size && memcmp(record.body, body, size) == 0 &&
           record.queue_id == number->queue_id && record.queue_off == number->queue_offset;
}

static void look_at(struct fault_broker *broker)
{
    struct fault_world *world = broker->world;
    struct store *store = broker->node->broker->store;
    struct store_positions at;
    unsigned bit = 1u << broker->index;
    store_positions(store, &at);
    broker->flushed = at.flushed;
    broker->disk_new &= at.whole == 0;
    for (uint32_t i = 0; i < world->sent; i++) {
        struct number *number = &world->numbers[i];
        if (!number->acked || number->set != broker->set)
            continue;
        if (number->phys_off < at.min) {
            number->lossy |= fault_is_master(broker); /* expired */
            number->held |= bit; /* as long as it was to be; a power loss asks for it no more */
            continue;
        }
        if (number->phys_off >= at.whole)
            number->held &= ~bit; /* cut, or never there */
        else if (!(number->held & bit) && has_number(store, number))
            number->held |= bit;
    }
}

void fault_look(struct fault_world *world)
{
    for (unsigned i = 0; i < world->broker_count; i++)
        if (fault_runs(&world->brokers[i]))
            look_at(&world->brokers[i]);
}

/* ---- what is lost ---- */

static unsigned count_bits(unsigned mask)
{
    unsigned count = 0;
    for (; mask; mask &= mask - 1)
        count++;
    return count;
}

/* After somebody (not `still`) has lost the number. */
static void judge(const struct fault_set *set, struct number *number)
{
    unsigned slaves = set->members & ~(1u << set->master);
    unsigned held = number->held & slaves;
    if (number->held & 1u << set->master)
        return;
    bool one_is_enough = count_bits(slaves) > 1;
    number->lossy |= set->role == ROLE_ASYNC_MASTER || !held || (one_is_enough && held != slaves);
}

/* What was sent back lies anywhere behind, unseen by the looks. */
static void lose_copies(struct fault_world *world, const struct fault_broker *broker)
{
    for (uint32_t i = 0; i < world->sent; i++) {
        struct number *number = &world->numbers[i];
        if (number->failed && !number->finished && number->set == broker->set)
            number->lossy = true;
    }
}

static void lose_promises(struct fault_broker *broker)
{
    struct fault_set *set = set_of(broker);
    for (int i = 0; i < QUEUES; i++) {
        struct promise *promise = &set->promises[i];
        promise->power_lost |= 1u << broker->index;
        promise->weak |= set->role == ROLE_ASYNC_MASTER || count_bits(promise->power_lost) > 1 ||
                         !(set->members & ~promise->power_lost); /* a single broker */
    }
}

void fault_power_lost(struct fault_broker *broker)
{
    struct fault_world *world = broker->world;
    struct fault_set *set = set_of(broker);
    unsigned bit = 1u << broker->index;
    lose_promises(broker);
    if (set->sync_flush)
        return;
    set->lost = true;
    set->rejoin_may |= broker->flushed == 0;
    lose_copies(world, broker);
    for (uint32_t i = 0; i < world->sent; i++) {
        struct number *number = &world->numbers[i];
        if (!number->answers)
            number->lossy = true; /* where it lies is not known */
        if (!number->acked || number->set != broker->set)
            continue;
        bool flushed =
            number->held & bit && number->phys_off + number->record_size <= broker->flushed;
        if (flushed)
            continue;
        number->held &= ~bit; /* or it was written since the last look */
        judge(set, number);
    }
}

void fault_disk_lost(struct fault_broker *broker)
{
    struct fault_world *world = broker->world;
    struct fault_set *set = set_of(broker);
    lose_promises(broker);
    lose_copies(world, broker);
    set->operator_may = true;
    for (uint32_t i = 0; i < world->sent; i++) {
        struct number *number = &world->numbers[i];
        if (!number->answers)
            number->lossy = true;
        if (!number->acked || number->set != broker->set)
            continue;
        number->held &= ~(1u << broker->index);
        judge(set, number);
    }
}

void fault_forced(struct fault_broker *broker)
{
    struct fault_world *world = broker->world;
    struct fault_set *set = set_of(broker);
    set->lost = true;
    lose_copies(world, broker);
    for (int i = 0; i < QUEUES; i++)
        set->promises[i].weak = true;
    for (uint32_t i = 0; i < world->sent; i++) {
        struct number *number = &world->numbers[i];
        if (!number->answers ||
            (number->acked && number->set == broker->set && !(number->held & 1u << broker->index)))
            number->lossy = true;
    }
}

/* ---- what must always hold ---- */

void fault_forget_life(struct fault_broker *broker)
{
    broker->flushed = 0;
    for (int i = 0; i < QUEUES; i++) {
        broker->progress[i] = -1;
        broker->versions[i] = (struct offset_version){0, 0};
    }
}

/* Within a version progress never falls, on no broker. */
static void check_progress(struct fault_broker *broker)
{
    for (int32_t i = 0; i < QUEUES; i++) {
        struct offset_version version;
        int64_t offset = -1;
        if (!offsets_query(broker->node->broker->offsets, "readers", FAULT_TOPIC, i, &offset,
                           &version))
            continue;
        int order = offset_version_compare(version, broker->versions[i]);
        if (order < 0 || (order == 0 && offset < broker->progress[i]))
            fail_msg("seed %" PRIu64 ": progress of queue %d at %s fell from %" PRId64 " (%" PRIu64
                     ".%" PRIu64 ") to %" PRId64 " (%" PRIu64 ".%" PRIu64 ")",
                     broker->world->seed, i, broker->node->address, broker->progress[i],
                     broker->versions[i].epoch, broker->versions[i].counter, offset, version.epoch,
                     version.counter);
        broker->progress[i] = offset;
        broker->versions[i] = version;
    }
}

/* Nothing acknowledged lies unfinished behind the group's progress at an open
 * master. */
static void check_passed(const struct fault_broker *broker)
{
    const struct fault_world *world = broker->world;
    if (fault_state(broker) != TERN__WIRE__HA_STATE__HA_OPEN)
        return;
    for (uint32_t i = 0; i < world->sent; i++) {
        const struct number *number = &world->numbers[i];
        if (number->acked && !number->lossy && !number->finished && !number->failed &&
            number->set == broker->set && number->queue_offset < broker->progress[number->queue_id])
            fail_msg("seed %" PRIu64 ": progress of queue %d at %s is %" PRId64 ", number %" PRIu32
                     " at %" PRId64 " is not finished",
                     world->seed, number->queue_id, broker->node->address,
                     broker->progress[number->queue_id], number->value, number->queue_offset);
    }
}

/* SYNC_FLUSH: what is acknowledged is on the master's disk. */
static void check_flushed(const struct fault_broker *broker)
{
    const struct fault_world *world = broker->world;
    const struct fault_set *set = set_of(broker);
    if (!set->sync_flush || fault_state(broker) != TERN__WIRE__HA_STATE__HA_OPEN)
        return;
    for (uint32_t i = 0; i < world->sent; i++) {
        const struct number *number = &world->numbers[i];
        if (number->acked && !number->lossy && number->set == broker->set &&
            (number->phys_off >= broker->flushed || !(number->held & 1u << broker->index)))
            fail_msg("seed %" PRIu64 ": number %" PRIu32 " at %" PRId64
                     " was acknowledged and is not on the disk of its open master "
                     "(%" PRId64 ")",
                     world->seed, number->value, number->phys_off, broker->flushed);
    }
}

/* A master that was empty and alone has opened without anything of before. One that has a part of
 * it copied a slave's log, and must have all. */
static void note_founded(struct fault_broker *master)
{
    const struct fault_world *world = master->world;
    struct fault_set *set = set_of(master);
    if (!set->opened_alone || set->founded || fault_state(master) != TERN__WIRE__HA_STATE__HA_OPEN)
        return;
    for (uint32_t i = 0; i < set->alone_since; i++) {
        const struct number *number = &world->numbers[i];
        if (number->acked && number->set == master->set && number->held & 1u << master->index)
            return;
    }
    set->founded = true;
    fault_forced(master);
}

void fault_check(struct fault_world *world)
{
    fault_look(world);
    for (unsigned i = 0; i < world->set_count; i++)
        if (fault_runs(&world->brokers[world->sets[i].master]))
            note_founded(&world->brokers[world->sets[i].master]);
    for (unsigned i = 0; i < world->broker_count; i++) {
        struct fault_broker *broker = &world->brokers[i];
        if (!fault_runs(broker))
            continue;
        check_progress(broker);
        if (fault_is_master(broker)) {
            check_passed(broker);
            check_flushed(broker);
        }
    }
}

/* ---- the end ---- */

bool fault_all_finished(void *arg)
{
    const struct fault_world *world = arg;
    for (uint32_t i = 0; i < world->sent; i++)
        if (!world->numbers[i].answers ||
            (world->numbers[i].acked && !world->numbers[i].lossy && !world->numbers[i].finished))
            return false;
    return true;
}

void fault_check_finished(struct fault_world *world)
{
    fault_look(world);
    for (uint32_t i = 0; i < world->sent; i++) {
        const struct number *number = &world->numbers[i];
        if (!number->answers)
            fail_msg("seed %" PRIu64 ": number %" PRIu32 " was never answered", world->seed, i);
        if (number->acked && !number->lossy && !number->finished)
            fail_msg("seed %" PRIu64 ": number %" PRIu32 ", acknowledged as %u:%d:%" PRId64
                     " at %" PRId64 ", held by %x, was never delivered",
                     world->seed, i, number->set, number->queue_id, number->queue_offset,
                     number->phys_off, number->held);
    }
}
