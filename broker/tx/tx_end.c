/*
 * Outcomes.
 *
 *   claim ─► read the half record ─► put the real message ─appended─► put the mark
 *     │            │ damaged              │ refused                       │
 *     ▼            ▼                      ▼                               ▼
 *   refused      unclaim               unclaim                 both safe: decided, done
 *
 * The mark follows the message as soon as that is in the log, so both wait for the disk and the
 * slaves together. A crash between the two leaves the message alone: it names the half record, and
 * so ends the transaction when the log is read again. A mark that is refused after its message was
 * stored changes nothing for this broker.
 *
 * Invariant: from claim to the end the transaction is in the list of what is under way, so that no
 * snapshot passes it and no reading of the log begins. Threads: any.
 */
#include "broker/tx/tx_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/clock.h"
#include "base/log.h"

static struct tx_ending *ending_of_message(struct put *put)
{
    return (struct tx_ending *)(void *)((char *)put - offsetof(struct tx_ending, message));
}

static struct tx_ending *ending_of_mark(struct put *put)
{
    return (struct tx_ending *)(void *)((char *)put - offsetof(struct tx_ending, mark));
}

/* ---- claiming ---- */

/* Why it cannot be claimed; TERN_OK: it can. @locks holds:BROKER_TX */
static enum tern_code judge(const struct tx *tx, const struct tx_ending *ending,
                            const struct tx_entry *entry, struct tern_error *err)
{
    if (!tx->ready)
        return error_set(err, TERN_SYSTEM_BUSY,
                         "broker %s is reading its log for pending transactions: tell it again",
                         tx->broker->config.broker_name);
    if (!entry || entry->phys_off != ending->phys_off)
        return error_set(err, TERN_TRANSACTION_FAILED,
                         "no transaction is known with the half queue offset %" PRId64
                         " and physical offset %" PRId64
                         ": it never was there, or was decided long ago",
                         ending->half_off, ending->phys_off);
    if (entry->state == TX_PENDING)
        return TERN_OK;
    if (entry->state == TX_ENDING)
        return error_set(err, TERN_SYSTEM_BUSY,
                         "transaction %" PRId64 " is being ended: tell it again", ending->half_off);
    if (entry->state == (uint8_t)ending->outcome)
        return TERN_EXISTS;
    return error_set(
        err, TERN_TRANSACTION_FAILED, "transaction %" PRId64 " was %s before%s", ending->half_off,
        tx_state_text((enum tx_state)entry->state),
        entry->state == TX_DISCARDED ? ": mqadmin resumeCheckHalfMessage takes it up again" : "");
}

enum tern_code tx_claim(struct tx *tx, struct tx_ending *ending, struct tern_error *err)
{
    struct store_positions at;
    store_positions(tx->broker->store, &at);
    ending->tx = tx;
    ending->op.from = at.appended;
    lock_acquire(&tx->lock);
    struct tx_entry *entry = tx_table_find(&tx->table, ending->half_off);
    enum tern_code code = judge(tx, ending, entry, err);
    if (code == TERN_OK) {
        tx_table_set(&tx->table, entry, TX_ENDING);
        ending->size = entry->size;
        DL_APPEND(tx->ops, &ending->op);
    }
    lock_release(&tx->lock);
    return code;
}

/* Leaves the claim, in this state. */
static void settle(struct tx *tx, struct tx_ending *ending, enum tx_state state)
{
    lock_acquire(&tx->lock);
    struct tx_entry *entry = tx_table_find(&tx->table, ending->half_off);
    if (entry && entry->state == TX_ENDING) {
        tx_table_set(&tx->table, entry, state);
        if (state == TX_PENDING)
            tx_wake_by(tx, entry->check_ns);
        else
            entry->check_ns = clock_mono_ns(tx->env.clock); /* when it was decided */
    }
    tx_op_end(tx, &ending->op);
    lock_release(&tx->lock);
}

void tx_unclaim(struct tx *tx, struct tx_ending *ending)
{
    settle(tx, ending, TX_PENDING);
}

enum tern_code tx_read_half(struct tx *tx, struct tx_ending *ending, bool nowait,
                            struct tern_error *err)
{
    enum tern_code code = tx_read_bytes(tx, ending->phys_off, ending->bytes, ending->size, nowait);
    if (code == TERN_AGAIN)
        return code;
    if (code != TERN_OK)
        return error_set(err, code, "half message %" PRId64 " at physical offset %" PRId64 ": %s",
                         ending->half_off, ending->phys_off, tern_code_text(code));
    code = tx_half_read(ending->bytes, ending->size, ending->half_off, ending->phys_off,
                        &ending->half, err);
    if (code == TERN_CORRUPT)
        counter_add(&tx->damaged, 1);
    return code;
}

/* ---- carrying out ---- */

static void count_outcome(struct tx *tx, enum tx_state outcome)
{
    counter_add(outcome == TX_COMMITTED     ? &tx->committed
                : outcome == TX_ROLLED_BACK ? &tx->rolled_back
                                            : &tx->discarded,
                1);
}

/* The one of the two that tells more: not safe before safe. */
static enum tern_code worse(enum tern_code a, enum tern_code b)
{
    return a == TERN_OK ? b : a;
}

static void end(struct tx_ending *ending)
{
    struct tx *tx = ending->tx;
    bool with_message = ending->outcome != TX_ROLLED_BACK;
    bool message_stored = put_stored(ending->message_code);
    bool mark_stored = put_stored(ending->mark_code);
    bool decided = with_message ? message_stored : mark_stored;
    enum tern_code code = with_message ? ending->message_code : ending->mark_code;
    char text[256] = "";
    if (decided && with_message && mark_stored)
        code = worse(ending->message_code, ending->mark_code);
    if (decided && !mark_stored)
        log_warn(tx->env.log, "transaction_mark_refused",
                 "half=%" PRId64 " code=%s effect=\"none here; RocketMQ would ask again\"",
                 ending->half_off, tern_code_name(ending->mark_code));
    if (decided)
        count_outcome(tx, ending->outcome);
    else
        store_refusal_text(tx->broker->store, code, text, sizeof text);
    settle(tx, ending, decided ? ending->outcome : TX_PENDING);
    ending->done(ending, code, decided && code != TERN_OK ? tern_code_text(code) : text);
}

static void one_done(struct tx_ending *ending)
{
    if (atomic_fetch_sub(&ending->left, 1) == 1)
        end(ending);
}

static void mark_done(struct put *put, enum tern_code code)
{
    struct tx_ending *ending = ending_of_mark(put);
    ending->mark_code = code;
    one_done(ending);
}

static void put_mark(struct tx_ending *ending)
{
    struct broker *broker = ending->tx->broker;
    uint8_t body[TX_MARK_BODY_BYTES];
    uint8_t props[TX_MARK_PROPS_BYTES];
    struct record fields;
    tx_mark_fields('d', ending->half_off, 0, clock_wall_ms(broker->env.clock), &broker->store_host,
                   body, props, &fields);
    ending->mark = (struct put){.done = mark_done, .deadline_ns = ending->deadline_ns};
    enum tern_code code = put_start(broker, &ending->mark, &fields);
    if (code != TERN_OK)
        mark_done(&ending->mark, code);
}

static void message_appended(struct put *put)
{
    put_mark(ending_of_message(put));
}

static void message_done(struct put *put, enum tern_code code)
{
    struct tx_ending *ending = ending_of_message(put);
    ending->message_code = code;
    if (!put_stored(code)) { /* the mark did not follow */
        ending->mark_code = code;
        one_done(ending);
    }
    one_done(ending);
}

static void put_message(struct tx_ending *ending)
{
    struct broker *broker = ending->tx->broker;
    struct record fields;
    char topic[TOPIC_NAME_MAX + 1];
    enum tern_code code = TERN_NO_MEMORY;
    uint8_t *props = malloc(RECORD_PROPS_MAX);
    ending->message = (struct put){
        .done = message_done, .appended = message_appended, .deadline_ns = ending->deadline_ns};
    if (props) {
        if (ending->outcome == TX_COMMITTED)
            tx_committed_fields(&ending->half, &broker->store_host, props, &fields);
        else
            tx_discarded_fields(&ending->half, &broker->store_host, &fields);
        memcpy(topic, fields.topic, fields.topic_len);
        topic[fields.topic_len] = 0;
        fields.topic = (const uint8_t *)topic;
        code = put_start(broker, &ending->message, &fields);
    }
    free(props);
    if (code != TERN_OK)
        message_done(&ending->message, code);
}

void tx_carry_out(struct tx_ending *ending)
{
    bool with_message = ending->outcome != TX_ROLLED_BACK;
    atomic_store(&ending->left, with_message ? 2 : 1);
    ending->message_code = ending->mark_code = TERN_OK;
    if (with_message)
        put_message(ending);
    else
        put_mark(ending);
}
