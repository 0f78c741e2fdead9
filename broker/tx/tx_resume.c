/* Taking up again what was discarded: a mark in the log first, then the table. */
#include "broker/tx/tx_internal.h"

#include <inttypes.h>

#include <utlist.h>

#include "base/clock.h"
#include "base/log.h"

enum { PUT_PATIENCE_MS = 5000 };

static void mark_done(struct put *put, enum tern_code code)
{
    struct tx_resuming *resuming =
        (struct tx_resuming *)(void *)((char *)put - offsetof(struct tx_resuming, mark));
    struct tx *tx = resuming->tx;
    int64_t now_ns = clock_mono_ns(tx->env.clock);
    lock_acquire(&tx->lock);
    struct tx_entry *entry = tx_table_find(&tx->table, resuming->half_off);
    bool waits = entry && (entry->state == TX_DISCARDED || entry->state == TX_PENDING);
    if (waits && put_stored(code)) {
        if (entry->state == TX_DISCARDED)
            tx_table_set(&tx->table, entry, TX_PENDING);
        entry->checks = 0;
        tx_table_ask_at(&tx->table, entry, now_ns);
        tx_wake_by(tx, now_ns);
    }
    tx_op_end(tx, &resuming->op);
    lock_release(&tx->lock);
    if (put_stored(code))
        log_info(tx->env.log, "transaction_resumed", "half=%" PRId64, resuming->half_off);
    resuming->done(resuming, code);
}

/* @locks holds:BROKER_TX */
static enum tern_code judge(const struct tx *tx, const struct tx_entry *entry, int64_t phys_off,
                            int64_t log_min, struct tern_error *err)
{
    if (!tx->ready)
        return error_set(err, TERN_SYSTEM_BUSY,
                         "broker %s is reading its log for transactions: ask again",
                         tx->broker->config.broker_name);
    if (!entry)
        return error_set(
            err, TERN_QUERY_NOT_FOUND,
            "no transaction is known whose half message is at physical offset %" PRId64, phys_off);
    if (phys_off < log_min)
        return error_set(err, TERN_NOT_FOUND,
                         "transaction %" PRId64 ": its half message has expired; what is left is "
                         "the copy in " TX_DISCARD_TOPIC,
                         entry->half_off);
    if (entry->state == TX_ENDING)
        return error_set(err, TERN_SYSTEM_BUSY, "transaction %" PRId64 " is being ended",
                         entry->half_off);
    if (entry->state != TX_DISCARDED && entry->state != TX_PENDING)
        return error_set(err, TERN_TRANSACTION_FAILED, "transaction %" PRId64 " was %s before",
                         entry->half_off, tx_state_text((enum tx_state)entry->state));
    return TERN_OK;
}

enum tern_code tx_resume(struct tx *tx, struct tx_resuming *resuming, struct tern_error *err)
{
    struct broker *broker = tx->broker;
    struct store_positions at;
    uint8_t body[TX_MARK_BODY_BYTES];
    uint8_t props[TX_MARK_PROPS_BYTES];
    struct record fields;
    store_positions(broker->store, &at);
    resuming->tx = tx;
    resuming->op.from = at.appended;
    lock_acquire(&tx->lock);
    const struct tx_entry *entry = tx_table_find_phys(&tx->table, resuming->phys_off);
    enum tern_code code = judge(tx, entry, resuming->phys_off, at.min, err);
    if (code == TERN_OK) {
        resuming->half_off = entry->half_off;
        DL_APPEND(tx->ops, &resuming->op);
    }
    lock_release(&tx->lock);
    if (code != TERN_OK)
        return code;
    tx_mark_fields('r', resuming->half_off, 0, clock_wall_ms(tx->env.clock), &broker->store_host,
                   body, props, &fields);
    resuming->mark = (struct put){
        .done = mark_done, .deadline_ns = clock_mono_ns(tx->env.clock) + ms_to_ns(PUT_PATIENCE_MS)};
    code = put_start(broker, &resuming->mark, &fields);
    if (code != TERN_OK)
        mark_done(&resuming->mark, code);
    return TERN_OK;
}
