/*
 * The gate: whether the store lets appends in, and if not, why. One per store, asked by the append
 * token's holder, set by whoever finds the fault. Internal to the store.
 *
 *   open ──► closed ──► open          the log is, or becomes, a copy of another's
 *   open ──► full ──► open            disk above the warning ratio: cleared by itself when below
 *     └────────┴────► latched         a failed write, sync or repair of our own files: until the
 * next start
 *
 * Latching is one way and happens once: the first cause is kept, told to the observer and logged.
 */
#ifndef STORE_GATE_H
#define STORE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "broker/store/store.h"

enum { GATE_TEXT_BYTES = 256 };
enum gate_latch_state { GATE_OPEN, GATE_CLAIMED, GATE_LATCHED };

struct gate {
    const struct env *env;
    struct store_observer observer;
    _Atomic int latch_state;   /* enum gate_latch_state */
    enum tern_code latch_code; /* these two: written by the one that claimed, read when latched */
    char latch_text[GATE_TEXT_BYTES];
    _Atomic bool closed; /* records of our own are not taken: store_set_appends() */
    _Atomic bool disk_full;
    _Atomic bool
        queues_full; /* consume queues or checkpoint found no room; set by the queue flusher */
    _Atomic double disk_ratio; /* used part of the fullest of our disks, below 0 when unknown */
    _Atomic int segment_code;  /* why no next segment can be made; TERN_OK when it can */
};

void gate_init(struct gate *gate, const struct env *env, const struct store_observer *observer);

/* TERN_OK, or what an append is refused with: SERVICE_NOT_AVAILABLE, NO_SPACE. @thread any */
enum tern_code gate_check(const struct gate *gate);
/* The same for records of our own, which a closed gate refuses; a copy's bytes it lets in. */
enum tern_code gate_check_own(const struct gate *gate);

/* Read-only for good. Only the first call counts; it calls observer.on_latched. @thread any @locks
 * none */
void gate_latch(struct gate *gate, enum tern_code code, const char *text);
/* Whether something has no room: above the warning ratio, or none for queues or the next segment.
 */
bool gate_full(const struct gate *gate);
bool gate_latched(const struct gate *gate);
/* The cause, "" while not latched. */
const char *gate_latch_text(const struct gate *gate);

/* @thread the disk check's */
void gate_set_disk(struct gate *gate, bool full, double used_ratio);

#endif
