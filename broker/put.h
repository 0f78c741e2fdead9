/*
 * Messages that the broker itself puts into its log: those that consumers sent back, delayed ones
 * that came due, committed transactions and their marks. As durable as a send: `done` comes when
 * the record has what the broker's mode asks for.
 */
#ifndef BROKER_PUT_H
#define BROKER_PUT_H

#include "base/record.h"
#include "broker/ack_wait.h"
#include "broker/store/store.h"

struct broker;

/* Caller's memory from put_start() until `done`. */
struct put {
    /*
     * Exactly once. TERN_OK; FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE: stored,
     * and that is all that is known; else refused: nothing was stored. put_stored() tells them
     * apart. @thread the append token's holder, or who learned of the position @locks none; must
     * not wait, and may start other puts
     */
    void (*done)(struct put *put, enum tern_code code);
    int64_t deadline_ns; /* monotonic, for the waiting after it was appended */
    /*
     * NULL, or told once when the record is in the log, before it is known to be safe: what follows
     * from it may be put at once, behind it. @thread the append token's holder @locks none
     */
    void (*appended)(struct put *put);

    /* set when it was stored: first_queue_off, first_phys_off, store_ms */
    struct store_append append;
    struct ack_entry ack; /* put's own */
    struct broker *broker;
    uint8_t *bytes;
};

/*
 * Encodes and appends one record: topic (terminated behind topic_len, its grammar checked), queue,
 * flag, sys_flag, born_ms, born_host, store_host, reconsume_times, prepared_tx_off, body and props
 * of *fields, which are copied; the rest is set here. A master that is not open for writes is not
 * asked for: whoever puts on its own account looks at broker_writable() first. TERN_NO_MEMORY,
 * TERN_LIMIT, TERN_INVALID (lengths): nothing was started and `done` will not come. @thread any
 */
MUST_CHECK enum tern_code put_start(struct broker *broker, struct put *put,
                                    const struct record *fields);

static inline bool put_stored(enum tern_code code)
{
    return code == TERN_OK || code == TERN_FLUSH_DISK_TIMEOUT || code == TERN_FLUSH_SLAVE_TIMEOUT ||
           code == TERN_SLAVE_NOT_AVAILABLE;
}

#endif
