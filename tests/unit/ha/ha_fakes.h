/*
 * What the source meets, made by hand: a log whose bytes follow from their offsets, tables that are
 * only versions, and requests whose answers are kept. Linking ha_fakes.c leaves the store's and the
 * rpc server's objects out.
 */
#ifndef TESTS_UNIT_HA_HA_FAKES_H
#define TESTS_UNIT_HA_HA_FAKES_H

#include <stdatomic.h>

#include "base/sched.h"
#include "broker/ha/ha.h"

/* ---- the log ---- */

struct fake_store {
    _Atomic int64_t min, whole, flushed, dispatched;
    int64_t segment_bytes;
    _Atomic bool cold;         /* reads that may not wait get TERN_AGAIN */
    enum tern_code read_code;  /* of reads that may wait, when not OK */
    enum tern_code flush_code; /* of store_flush(), when not OK */
    unsigned flushes;
    int64_t flushed_to; /* by the last store_flush() */
};

/* The log's byte at this offset. */
uint8_t fake_byte(int64_t phys_off);

/* ---- requests ---- */

struct fake_ask {
    struct rpc_request pub; /* first */
    TernRequest header;
    Tern__Wire__HaHandshakeRequest handshake;
    Tern__Wire__HaFetchRequest fetch;
    Tern__Wire__HaReportRequest report;
    Tern__Wire__HaPosition position;
    Tern__Wire__HaHeld held;
    Tern__Wire__HaTables tables;
    struct arena arena;
    _Atomic int answers;    /* a second one aborts the test */
    TernResponse *response; /* as unpacked from the packed answer */
    uint8_t *reserved;
    size_t payload_size;
    struct latch answered;
};

struct fake_ask *fake_ask_new(const struct env *env, uint64_t peer_id);
void fake_ask_free(struct fake_ask *ask); /* must have been answered */
/* The wire code of its answer, −1 when there is none yet. */
int fake_ask_code(const struct fake_ask *ask);

/* The peer that rpc_server_close_peer() was called for last, 0: none. */
extern _Atomic uint64_t fake_closed_peer;

#endif
