/*
 * Where the time of a send goes: the stages that the broker sees, as histograms that
 * brokerStatus shows beside the store's own (waiting for the log, writing, switching segments).
 *
 *   received ─ encode ─► append ─ … ─► appended ─ flush wait ─► flushed ─ replica wait ─► answered
 *
 * A send of a SYNC_MASTER that flushes waits for one position only, the confirmed one. How long the
 * disk took of that is told by the last flushes, which are remembered with their time.
 *
 * And what reading costs: units scanned against messages returned, answers out of memory against
 * those that had to wait for the disk.
 */
#ifndef BROKER_STAGES_H
#define BROKER_STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/metrics.h"

enum { STAGES_FLUSHES = 1024 }; /* remembered; older waits count as waits for replicas alone */

struct stages {
    struct histogram encode_ns;     /* checking and completing, or encoding, of a send's records */
    struct histogram flush_wait_ns; /* appended until its own bytes were on the disk */
    struct histogram replica_wait_ns;        /* from then on until the slaves had them */
    _Atomic uint64_t scanned, returned;      /* by pulls: queue units, messages */
    _Atomic uint64_t from_memory, from_disk; /* pulls that scanned: at once, by the cold lane */

    struct lock lock; /* METRICS; protects the rest */
    struct {
        int64_t flushed;       /* physical offset, rising */
        int64_t at_ns;         /* monotonic */
    } flushes[STAGES_FLUSHES]; /* a ring */
    uint32_t first, count;
};

void stages_init(struct stages *stages);
void stages_fini(struct stages *stages);

/* The log is on the disk up to `flushed`. A lower one than before (the log was cut) forgets the
 * flushes so far. @thread flusher @locks takes:METRICS */
void stages_flushed(struct stages *stages, int64_t flushed, int64_t now_ns);

/* What a send waited for, and got. */
struct stages_wait {
    bool flush, replicas;
    int64_t end_phys_off; /* of its last record */
    int64_t appended_ns, answered_ns;
};
/* @thread any @locks takes:METRICS when both were waited for */
void stages_waited(struct stages *stages, const struct stages_wait *wait);

/* A pull that looked at `scanned` units and returns so many messages. @thread any, hot */
void stages_pulled(struct stages *stages, uint32_t scanned, uint32_t returned, bool from_disk);

#endif
