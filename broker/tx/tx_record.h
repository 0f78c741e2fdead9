/*
 * Records of transactions: making them and telling what one means. RocketMQ's layouts
 * (docs/transactions.md), so that either broker can go on with the other's log.
 *
 *   half       RMQ_SYS_TRANS_HALF_TOPIC 0   the message, with REAL_TOPIC, REAL_QID, PGROUP
 *   committed  the real topic and queue     sysFlag commit, preparedTransactionOffset = half's
 * place discarded  TRANS_CHECK_MAX_TIME_TOPIC 0 as the half, preparedTransactionOffset = half's
 * place mark       RMQ_SYS_TRANS_OP_HALF_TOPIC 0, body: the half's queue offset in decimals, TAGS:
 *              d ended, c checked (ours, with TRANSACTION_CHECK_TIMES), r resumed (ours), p place
 * (ours; the body is a physical offset, see tx_place.c)
 *
 * Pure: no state, no I/O.
 */
#ifndef BROKER_TX_RECORD_H
#define BROKER_TX_RECORD_H

#include <stdbool.h>

#include "base/error.h"
#include "base/props.h"
#include "base/record.h"

/* What a record says about a transaction. */
enum tx_word {
    TX_WORD_NONE,
    TX_WORD_HALF,      /* half_off, phys_off, size, store_ms, immunity_ms */
    TX_WORD_COMMITTED, /* phys_off of the half */
    TX_WORD_DISCARDED, /* phys_off of the half */
    TX_WORD_ENDED,     /* half_off */
    TX_WORD_CHECKED,   /* half_off, checks */
    TX_WORD_RESUMED,   /* half_off */
    TX_WORD_PLACE      /* phys_off: all half messages before it are decided for good */
};
struct tx_said {
    enum tx_word word;
    int64_t half_off, phys_off, store_ms, immunity_ms;
    uint32_t size;
    uint16_t checks;
};
void tx_record_read(const struct record *record, struct tx_said *out);

/* Whether the properties ask for a transaction (TRAN_MSG=true, any case). */
bool tx_asked(const uint8_t *props, size_t props_len);
/* CHECK_IMMUNITY_TIME_IN_SECONDS in ms, 0 without a sound one; at most a day. */
int64_t tx_immunity_ms(const uint8_t *props, size_t props_len);
/*
 * Makes a message's properties those of its half message: adds where it goes. TERN_MESSAGE_ILLEGAL:
 * no PGROUP, a delay, or no room for what is added, with a text.
 */
MUST_CHECK enum tern_code tx_half_props(uint8_t *props, size_t *props_len, const char *topic,
                                        int32_t queue_id, struct tern_error *err);

/* A half record that was read, held against what is known of it. */
struct tx_half {
    struct record record;
    struct slice group, topic, message_id; /* message_id may be empty */
    int32_t queue_id;
};
/* TERN_CORRUPT with a text: this is not the half record that was stored there. */
MUST_CHECK enum tern_code tx_half_read(const uint8_t *bytes, size_t size, int64_t half_off,
                                       int64_t phys_off, struct tx_half *out,
                                       struct tern_error *err);

enum { TX_MARK_BODY_BYTES = 24, TX_MARK_PROPS_BYTES = 64 };

/*
 * Fields of the record to put; what they point to is the half's, or `props` (RECORD_PROPS_MAX bytes
 * of room). Hosts and born_ms as the half has them but for the store host.
 */
void tx_committed_fields(const struct tx_half *half, const struct host *store_host, uint8_t *props,
                         struct record *out);
void tx_discarded_fields(const struct tx_half *half, const struct host *store_host,
                         struct record *out);
/* tag 'd', 'c', 'r' or 'p' (half_off is a physical offset); checks counts with 'c'. body, props:
 * room of the sizes above. */
void tx_mark_fields(char tag, int64_t half_off, uint16_t checks, int64_t born_ms,
                    const struct host *host, uint8_t *body, uint8_t *props, struct record *out);

#endif
