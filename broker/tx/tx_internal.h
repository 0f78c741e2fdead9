/*
 * The inside of a broker's transactions:
 *
 *   tx.c          life, the task, half messages, what tools ask
 *   tx_end.c      outcomes: claim, read, put
 *   tx_check.c    asking producers, discarding
 *   tx_recover.c  reading the log when a master opens
 *   tx_place.c    marks that bound that reading
 *   tx_file.c     the snapshot
 *   tx_table.c, tx_due.c, tx_record.c   what is known; when to ask; records
 */
#ifndef BROKER_TX_INTERNAL_H
#define BROKER_TX_INTERNAL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "base/sched.h"
#include "broker/broker_internal.h"
#include "broker/tx/tx.h"

enum {
    TX_SNAPSHOT_MS = 10000,  /* at most so much of the log's time is read again at an opening */
    TX_DISCARDS_MAX = 64,    /* under way at a time */
    TX_MARKS_MAX = 256,      /* of checks, under way at a time */
    TX_AT_ONCE = 256,        /* due ones looked at without letting others have the task's thread */
    TX_RECORD_BYTES_MIN = 91 /* nothing shorter is a record */
};

struct tx {
    struct broker *broker;
    struct env env;
    struct task *task;

    struct lock lock; /* BROKER_TX; protects the rest but for what is said */
    struct tx_table table;
    struct tx_op *ops; /* under way */
    uint32_t sending;  /* half messages among them: they have room in the table */
    bool ready;        /* the table is what the log says */
    uint64_t closings; /* how often the master stopped writing */
    bool changed;      /* since the last snapshot */
    int64_t wake_ns;   /* when the task looks again at the latest */

    _Atomic uint32_t discards, marks;     /* under way */
    _Atomic int64_t read_from, read_left; /* of the log, at the last opening; bytes still to read */
    _Atomic uint64_t halves, committed, rolled_back, discarded, checks, not_asked, lost, damaged;

    /* the task's own */
    int64_t snapshot_ns; /* when the next one is due */
    uint64_t turn;       /* of asking the members of a group */
    int64_t recover_ns;  /* not before: the last attempt failed */
    int64_t place;       /* of the last mark, see tx_place.c */
};

/* ---- tx.c ---- */
/* Registers what begins now. */
void tx_op_begin(struct tx *tx, struct tx_op *op);
/* @locks holds:BROKER_TX */
void tx_op_end(struct tx *tx, struct tx_op *op);
/* The task looks again at that time at the latest. @locks holds:BROKER_TX */
void tx_wake_by(struct tx *tx, int64_t time_ns);
bool tx_is_open(struct tx *tx); /* the master takes writes */
/* Reads size bytes at phys_off. TERN_NOT_FOUND: fewer are there; TERN_AGAIN with nowait. */
MUST_CHECK enum tern_code tx_read_bytes(struct tx *tx, int64_t phys_off, uint8_t *bytes,
                                        size_t size, bool nowait);

/* ---- tx_check.c ---- */
/* Asks, discards; returns when to come again. @thread the task's */
int64_t tx_check_step(struct tx *tx, int64_t now_ns);

/* Notes in the log what the tag says of the number; a refusal costs only that. */
void tx_put_mark(struct tx *tx, char tag, int64_t number, uint16_t checks);

/* ---- tx_place.c ---- */
/* Puts a mark of how far all is decided, when that has moved far enough. @thread the task's */
void tx_place_step(struct tx *tx);
/* What the last such mark in the log says; -1: there is none. @blocks on the disk */
int64_t tx_place_last(struct tx *tx);

/* ---- tx_recover.c ---- */
/* Fills the empty table from snapshot and log. TERN_AGAIN: the master is not open any more. @thread
 * the task's */
MUST_CHECK enum tern_code tx_recover(struct tx *tx, struct tern_error *err);

/* ---- tx_file.c ---- */
/* The position before which all has come into the table. */
int64_t tx_position(struct tx *tx);
/* Writes a snapshot of the table as of a position that is on the disk. @blocks on the disk */
MUST_CHECK enum tern_code tx_file_write(struct tx *tx, struct tern_error *err);
/*
 * Fills the empty table from it; *from: where its log position is. TERN_NOT_FOUND: there is none
 * that fits the log.
 */
MUST_CHECK enum tern_code tx_file_read(struct tx *tx, int64_t *from, struct tern_error *err);

#endif
