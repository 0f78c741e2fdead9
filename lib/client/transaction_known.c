/*
 * What this process remembers of its transactions: those whose local transaction still runs, and
 * outcomes that their broker has not heard yet. Threads: any, under TRANSACTION. Bounded: the first
 * by the callers, who wait; the second by OUTCOMES_KEPT.
 */
#include <stdlib.h>
#include <string.h>

#include "client/transaction_internal.h"

#include <utlist.h>

/* @locks holds:TRANSACTION */
static struct known *find(struct tern_transaction_producer *producer, const char *id)
{
    struct known *known;
    HASH_FIND_STR(producer->known, id, known);
    return known;
}

/* @locks holds:TRANSACTION */
static void drop(struct tern_transaction_producer *producer, struct known *known)
{
    if (!known->running) {
        DL_DELETE(producer->untold, known);
        producer->untold_count--;
    }
    HASH_DELETE(hh, producer->known, known);
    free(known);
}

bool known_begin(struct tern_transaction_producer *producer, const char *id)
{
    struct known *known = calloc(1, sizeof *known);
    if (!known)
        return false;
    memcpy(known->id, id, strnlen(id, HALF_ID_BYTES - 1));
    known->running = true;
    lock_acquire(&producer->lock);
    struct known *old = find(producer, known->id);
    if (old && !old->running) /* the same message sent once more: a new transaction */
        drop(producer, old);
    HASH_ADD_STR(producer->known, id, known);
    bool added = known->hh.tbl != NULL;
    lock_release(&producer->lock);
    if (!added)
        free(known);
    return added;
}

void known_decided(struct tern_transaction_producer *producer, const char *id,
                   enum tern_transaction_outcome outcome)
{
    lock_acquire(&producer->lock);
    struct known *known = find(producer, id);
    if (known && known->running) {
        known->running = false;
        known->outcome = outcome;
        DL_APPEND(producer->untold, known);
        if (++producer->untold_count > OUTCOMES_KEPT)
            drop(producer, producer->untold);
    }
    lock_release(&producer->lock);
}

void known_forget(struct tern_transaction_producer *producer, const char *id)
{
    lock_acquire(&producer->lock);
    struct known *known = find(producer, id);
    if (known)
        drop(producer, known);
    lock_release(&producer->lock);
}

enum known_state known_look(struct tern_transaction_producer *producer, const char *id,
                            enum tern_transaction_outcome *outcome)
{
    enum known_state state = KNOWN_NOT;
    lock_acquire(&producer->lock);
    const struct known *known = find(producer, id);
    if (known) {
        state = known->running ? KNOWN_RUNNING : KNOWN_DECIDED;
        *outcome = known->outcome;
    }
    lock_release(&producer->lock);
    return state;
}

void known_fini(struct tern_transaction_producer *producer)
{
    struct known *known;
    struct known *next;
    HASH_ITER (hh, producer->known, known, next)
        drop(producer, known);
}
