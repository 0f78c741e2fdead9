/*
 * Transactions of a broker (RocketMQ: TransactionalMessageService and its check service;
 * docs/transactions.md).
 *
 *   send with TRAN_MSG ─► half record ─► PENDING ──EndTransaction──► the real message, a mark
 *                                          │  ▲                      or only the mark
 *                                due: ask  ▼  │ asked
 *                                   a producer of the group ── too often ─► discarded, kept
 *
 * What is pending is told by the log alone: half records without a committed record, a copy among
 * the discarded, or a mark. A master keeps that in memory while it is open, and reads it anew from
 * the log each time it opens: from a snapshot (ROOT/ternmq/transactions) of what it knew at some
 * position, and the records behind that; without a sound snapshot from the first retained half
 * record. A snapshot counts only when the epoch of the log's last byte before it is the one that it
 * names: a log that was cut takes back what lay behind. A slave keeps nothing: its copy of the log
 * is enough.
 *
 * Exactly once: a transaction is claimed in memory before anything is put for it; the committed
 * record itself, which names the half record, ends it for good, the mark only tells RocketMQ.
 *
 * Threads: any; one task, "broker-tx", reads the log, asks and discards. One lock, BROKER_TX, held
 * for a few instructions. Failure modes: while the log is read half messages and outcomes are
 * refused SYSTEM_BUSY; a half record that cannot be read is counted, logged and looked at again
 * later, the others go on.
 */
#ifndef BROKER_TX_H
#define BROKER_TX_H

#include "broker/put.h"
#include "broker/tx/tx_record.h"
#include "broker/tx/tx_table.h"

struct broker;
struct tx;

MUST_CHECK enum tern_code tx_create(struct broker *broker, struct tx **out);
/* Starts the task. The store and the tables are there. */
MUST_CHECK enum tern_code tx_start(struct tx *tx);
/* Nothing is asked or discarded any more. @thread not the task's */
void tx_stop(struct tx *tx);
/* Writes what is known; nothing is being put any more. @blocks on the disk */
void tx_persist(struct tx *tx);
void tx_destroy(struct tx *tx); /* NULL allowed */
/* The master opened, or stopped writing. @thread any @locks none */
void tx_on_state(struct tx *tx, bool open);

/* Something on its way into the log: until it has ended a snapshot must not pass its beginning. */
struct tx_op {
    int64_t from; /* the log's end before it began */
    struct tx_op *prev, *next;
};

/* ---- half messages ---- */

/* A half message that is being stored; its sender's memory. */
struct tx_sending {
    struct tx_op op;
    int64_t immunity_ms;
    int32_t real_queue_id;
};
/*
 * Counts it in. SYSTEM_BUSY: too many are pending (transactionPendingMax), or the log is still
 * read; NO_PERMISSION: rejectTransactionMessage; NO_MEMORY; with a text. @thread any
 */
MUST_CHECK enum tern_code tx_half_begin(struct tx *tx, struct tx_sending *sending,
                                        struct tern_error *err);
/* It was appended (append->result TERN_OK), or will not be (anything else, or NULL). Exactly once
 * after tx_half_begin(), before the sender is answered. @thread any @locks none */
void tx_half_end(struct tx *tx, struct tx_sending *sending, const struct store_append *append);

/* ---- outcomes ---- */

/* A transaction that is being ended; the ender's memory from tx_claim() until `done`. */
struct tx_ending {
    int64_t half_off, phys_off;
    enum tx_state outcome; /* COMMITTED, ROLLED_BACK or DISCARDED */
    int64_t deadline_ns;   /* for its records to be safe */
    uint8_t *bytes;        /* room for the half record: `size` bytes, once claimed */
    /*
     * Exactly once after tx_carry_out(). TERN_OK; FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT,
     * SLAVE_NOT_AVAILABLE: ended, and that is all that is known; else it is pending as before.
     * @thread whoever ended it @locks none; must not wait
     */
    void (*done)(struct tx_ending *ending, enum tern_code code, const char *text);

    uint32_t size;       /* of the half record; set by tx_claim() */
    struct tx_half half; /* set by tx_read_half() */
    struct tx *tx;
    struct tx_op op;
    struct put message, mark;
    _Atomic uint32_t left; /* of the two, not done yet */
    enum tern_code message_code, mark_code;
};

/*
 * Takes a pending transaction for an outcome. TERN_EXISTS: it has this outcome already. With a
 * text: TRANSACTION_FAILED: it has another, or is not known; SYSTEM_BUSY: it is being ended, or the
 * log is still read; INVALID: no such outcome.
 */
MUST_CHECK enum tern_code tx_claim(struct tx *tx, struct tx_ending *ending, struct tern_error *err);
/* Gives it back, undecided. */
void tx_unclaim(struct tx *tx, struct tx_ending *ending);
/*
 * Reads the half record into ending->bytes and checks it. TERN_AGAIN with nowait: the disk would
 * have to be waited for; CORRUPT, NOT_FOUND, IO with a text. It stays claimed.
 */
MUST_CHECK enum tern_code tx_read_half(struct tx *tx, struct tx_ending *ending, bool nowait,
                                       struct tern_error *err);
/* Puts what the outcome asks for; `done` follows, perhaps from within. @thread any @locks none */
void tx_carry_out(struct tx_ending *ending);

/* ---- checks ---- */

enum { TX_NOT_ASKED_MAX = 64 }; /* in one call of a client */
/* A client was handed a check and asked nobody: it does not count. At most once for each that was
 * handed over. NULL allowed. @thread any */
void tx_not_asked(struct tx *tx, int64_t half_off);

/* ---- looking and mending, for tools ---- */

/* Up to `cap` entries of a state behind half_off, oldest first. @thread any */
size_t tx_list(struct tx *tx, enum tx_state state, int64_t after, struct tx_entry *out, size_t cap,
               uint64_t *total, struct tern_error *err);
/* A transaction that is taken up again; memory of whoever asked, until `done`. */
struct tx_resuming {
    int64_t phys_off; /* of the half record */
    /* Exactly once after tx_resume() returned TERN_OK; codes as of a put. @locks none; must not
     * wait */
    void (*done)(struct tx_resuming *resuming, enum tern_code code);
    struct tx *tx;
    struct tx_op op;
    struct put mark;
    int64_t half_off;
};
/*
 * A discarded transaction waits again, a pending one has its checks counted anew; both are asked
 * about at once, when the mark of it is safe. QUERY_NOT_FOUND: no transaction has its half record
 * there; TRANSACTION_FAILED: it was decided; NOT_FOUND: its half record has expired; with a text.
 * @thread any @locks none
 */
MUST_CHECK enum tern_code tx_resume(struct tx *tx, struct tx_resuming *resuming,
                                    struct tern_error *err);

struct tx_status {
    bool ready;                   /* the log is read; only then the rest is whole */
    int64_t read_from, read_left; /* where that began; how many bytes are still to read */
    uint64_t pending, discarded_kept;
    /* since the start */
    uint64_t halves, committed, rolled_back, discarded, checks, not_asked, lost, damaged;
};
void tx_status(struct tx *tx, struct tx_status *out);

#endif
