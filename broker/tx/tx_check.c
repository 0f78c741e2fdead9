/*
 * Asking producers, and giving up on those who never say.
 *
 *   due ─► expired? ─► LOST, counted         the half record is gone
 *      ├─► asked transactionCheckMax times, or its half record is about to expire ─► discard
 *      └─► a listening member of its group ─► event, mark "c" with the new count
 *              none ─► nothing is counted; again a little later
 *
 * Counted are checks that were handed to a client that listens, and not given back by one that has
 * no time for them, nothing else: a producer that is away or busy uses none up (TX-02). A half
 * record that cannot be read is looked at again an interval later; the others go on (TX-04).
 *
 * Threads: the task's; puts end on others. Bounded: TX_DISCARDS_MAX and TX_MARKS_MAX under way,
 * beyond the rest waits for the next look.
 */
#include "broker/tx/tx_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    ABSENT_RETRY_MS = 5000, /* nobody of the group listens: looked for again so soon */
    BUSY_RETRY_MS = 50,     /* a client's events or what is under way are full */
    DISCARD_RETRY_MS = 1000,
    PUT_PATIENCE_MS = 5000,
    EXPIRY_SHARE = 16 /* given up in the last sixteenth of its half record's time */
};

/* What a look at one came to. */
enum looked { LOOKED_DONE, LOOKED_BUSY };

/* Puts off the next look at one that is still pending. */
static void put_off(struct tx *tx, int64_t half_off, int64_t wait_ms, bool asked)
{
    int64_t now_ns = clock_mono_ns(tx->env.clock);
    lock_acquire(&tx->lock);
    struct tx_entry *entry = tx_table_find(&tx->table, half_off);
    if (entry && entry->state == TX_PENDING) {
        tx_table_ask_at(&tx->table, entry, now_ns + ms_to_ns(wait_ms));
        if (asked && entry->checks < UINT16_MAX) {
            entry->checks++;
            entry->handed = true;
        }
    }
    lock_release(&tx->lock);
}

/* The log's mark of it stays: a restart may count one check more, never one for each. */
void tx_not_asked(struct tx *tx, int64_t half_off)
{
    if (!tx)
        return;
    lock_acquire(&tx->lock);
    struct tx_entry *entry = tx->ready ? tx_table_find(&tx->table, half_off) : NULL;
    bool given_back = entry && entry->state == TX_PENDING && entry->handed && entry->checks > 0;
    if (given_back) {
        entry->checks--;
        entry->handed = false;
        tx->changed = true;
    }
    lock_release(&tx->lock);
    if (given_back)
        counter_add(&tx->not_asked, 1);
}

/* ---- marks ---- */

struct noted {
    struct put put;
    struct tx *tx;
    struct tx_op op;
    char tag;
};

static void noted_done(struct put *put, enum tern_code code)
{
    struct noted *mark = (struct noted *)(void *)((char *)put - offsetof(struct noted, put));
    struct tx *tx = mark->tx;
    if (!put_stored(code) && mark->tag == 'c')
        log_warn(tx->env.log, "transaction_check_not_marked",
                 "code=%s effect=\"after a restart it counts as not asked\"", tern_code_name(code));
    lock_acquire(&tx->lock);
    tx_op_end(tx, &mark->op);
    lock_release(&tx->lock);
    atomic_fetch_sub(&tx->marks, 1);
    free(mark);
}

void tx_put_mark(struct tx *tx, char tag, int64_t number, uint16_t checks)
{
    struct broker *broker = tx->broker;
    uint8_t body[TX_MARK_BODY_BYTES];
    uint8_t props[TX_MARK_PROPS_BYTES];
    struct record fields;
    struct noted *mark = calloc(1, sizeof *mark);
    if (!mark)
        return; /* after a restart it counts as not asked */
    mark->tx = tx;
    mark->tag = tag;
    mark->put.done = noted_done;
    mark->put.deadline_ns = clock_mono_ns(tx->env.clock) + ms_to_ns(PUT_PATIENCE_MS);
    tx_mark_fields(tag, number, checks, clock_wall_ms(tx->env.clock), &broker->store_host, body,
                   props, &fields);
    atomic_fetch_add(&tx->marks, 1);
    tx_op_begin(tx, &mark->op);
    enum tern_code code = put_start(broker, &mark->put, &fields);
    if (code != TERN_OK)
        noted_done(&mark->put, code);
}

/* ---- discarding ---- */

struct discard {
    struct tx_ending ending;
    uint8_t bytes[];
};

static void discard_done(struct tx_ending *ending, enum tern_code code, const char *text)
{
    struct discard *discard = (struct discard *)(void *)ending;
    struct tx *tx = ending->tx;
    if (!put_stored(code)) {
        log_warn(tx->env.log, "transaction_not_discarded", "half=%" PRId64 " code=%s cause=\"%s\"",
                 ending->half_off, tern_code_name(code), text);
        put_off(tx, ending->half_off, DISCARD_RETRY_MS, false);
    }
    atomic_fetch_sub(&tx->discards, 1);
    free(discard);
}

/* Moves one to those that were given up. */
static enum looked give_up(struct tx *tx, const struct tx_entry *entry, const char *why)
{
    struct tern_error err = {.text = ""};
    if (atomic_load(&tx->discards) >= TX_DISCARDS_MAX)
        return LOOKED_BUSY;
    struct discard *discard = calloc(1, sizeof *discard + entry->size);
    if (!discard)
        return LOOKED_BUSY;
    struct tx_ending *ending = &discard->ending;
    ending->half_off = entry->half_off;
    ending->phys_off = entry->phys_off;
    ending->outcome = TX_DISCARDED;
    ending->deadline_ns = clock_mono_ns(tx->env.clock) + ms_to_ns(PUT_PATIENCE_MS);
    ending->bytes = discard->bytes;
    ending->done = discard_done;
    if (tx_claim(tx, ending, &err) != TERN_OK) {
        free(discard); /* its outcome came just now */
        return LOOKED_DONE;
    }
    enum tern_code code = tx_read_half(tx, ending, false, &err);
    if (code != TERN_OK) {
        log_error(tx->env.log, "transaction_damaged", "cause=\"%s\"", err.text);
        tx_unclaim(tx, ending);
        put_off(tx, entry->half_off, tx->broker->config.transaction_check_interval_ms, false);
        free(discard);
        return LOOKED_DONE;
    }
    log_warn(tx->env.log, "transaction_discarded",
             "half=%" PRId64 " group=%.*s topic=%.*s msg_id=%.*s checks=%u why=\"%s\"",
             entry->half_off, (int)ending->half.group.len, (const char *)ending->half.group.ptr,
             (int)ending->half.topic.len, (const char *)ending->half.topic.ptr,
             (int)ending->half.message_id.len, (const char *)ending->half.message_id.ptr,
             entry->checks, why);
    atomic_fetch_add(&tx->discards, 1);
    tx_carry_out(ending);
    return LOOKED_DONE;
}

/* ---- asking ---- */

static void text_of_slice(const struct slice *slice, char *out, size_t size)
{
    size_t len = slice->len < size ? slice->len : size - 1;
    if (len)
        memcpy(out, slice->ptr, len);
    out[len] = 0;
}

/* Hands the check to a member that listens; *full: one listens, but has enough to do. */
static bool hand_over(struct tx *tx, const char *group, const struct event_check *check, bool *full)
{
    char client[CLIENT_ID_MAX + 1];
    uint32_t count = 1;
    *full = false;
    for (uint32_t i = 0; i < count; i++) {
        count = members_checker(tx->broker->members, group, tx->turn++, client);
        if (!count)
            return false;
        enum tern_code code = events_post_check_transaction(tx->broker->events, client, check);
        if (code == TERN_OK)
            return true;
        *full |= code == TERN_LIMIT;
    }
    return false;
}

static enum looked ask(struct tx *tx, const struct tx_entry *entry, uint8_t *bytes)
{
    struct tern_error err = {.text = ""};
    struct tx_half half;
    char group[GROUP_NAME_MAX + 1];
    char message_id[EVENT_MESSAGE_ID_BYTES];
    bool full;
    int64_t interval_ms = tx->broker->config.transaction_check_interval_ms;
    if (atomic_load(&tx->marks) >= TX_MARKS_MAX)
        return LOOKED_BUSY;
    enum tern_code code = tx_read_bytes(tx, entry->phys_off, bytes, entry->size, false);
    if (code == TERN_OK)
        code = tx_half_read(bytes, entry->size, entry->half_off, entry->phys_off, &half, &err);
    else
        error_set(&err, code, "half message %" PRId64 ": %s", entry->half_off,
                  tern_code_text(code));
    if (code != TERN_OK) {
        counter_add(&tx->damaged, 1);
        log_error(tx->env.log, "transaction_damaged", "cause=\"%s\"", err.text);
        put_off(tx, entry->half_off, interval_ms, false);
        return LOOKED_DONE;
    }
    text_of_slice(&half.group, group, sizeof group);
    text_of_slice(&half.message_id, message_id, sizeof message_id);
    struct event_check check = {.group = group,
                                .message_id = message_id,
                                .half_off = entry->half_off,
                                .phys_off = entry->phys_off,
                                .times = entry->checks + 1};
    if (hand_over(tx, group, &check, &full)) {
        counter_add(&tx->checks, 1);
        put_off(tx, entry->half_off, interval_ms, true);
        tx_put_mark(tx, 'c', entry->half_off, (uint16_t)(entry->checks + 1));
        return LOOKED_DONE;
    }
    if (full)
        return LOOKED_BUSY;
    log_info(tx->env.log, "transaction_group_absent",
             "group=%s half=%" PRId64 " note=\"nobody of it listens; not counted\"", group,
             entry->half_off);
    put_off(tx, entry->half_off, interval_ms < ABSENT_RETRY_MS ? interval_ms : ABSENT_RETRY_MS,
            false);
    return LOOKED_DONE;
}

/* ---- looking ---- */

static void lose(struct tx *tx, int64_t half_off)
{
    lock_acquire(&tx->lock);
    struct tx_entry *entry = tx_table_find(&tx->table, half_off);
    if (entry && entry->state == TX_PENDING) {
        tx_table_set(&tx->table, entry, TX_LOST);
        tx->changed = true;
    }
    lock_release(&tx->lock);
    counter_add(&tx->lost, 1);
    log_error(tx->env.log, "transaction_lost",
              "half=%" PRId64 " cause=\"its half record expired before it was decided\"", half_off);
}

static enum looked look_at(struct tx *tx, const struct tx_entry *entry)
{
    const struct broker_config *config = &tx->broker->config;
    struct store_positions at;
    store_positions(tx->broker->store, &at);
    if (entry->phys_off < at.min) {
        lose(tx, entry->half_off);
        return LOOKED_DONE;
    }
    int64_t retention_ms = tx->broker->live.retention_ms;
    int64_t keep_ms = retention_ms - retention_ms / EXPIRY_SHARE;
    if (clock_wall_ms(tx->env.clock) - entry->store_ms > keep_ms)
        return give_up(tx, entry, "its half record is about to expire (fileReservedTime)");
    if (entry->checks >= config->transaction_check_max)
        return give_up(tx, entry, "asked transactionCheckMax times");
    uint8_t *bytes = malloc(entry->size);
    if (!bytes)
        return LOOKED_BUSY;
    enum looked looked = ask(tx, entry, bytes);
    free(bytes);
    return looked;
}

/* The next due ones; *next_ns: when to look again. Each is due again soon, should nothing else come
 * of the look at it. */
static size_t take_due(struct tx *tx, int64_t now_ns, struct tx_entry *out, size_t cap,
                       int64_t *next_ns)
{
    enum { LOOKS = 1024 }; /* under the lock at a time */
    lock_acquire(&tx->lock);
    size_t count = tx_table_take_due(&tx->table, now_ns, now_ns + ms_to_ns(BUSY_RETRY_MS), LOOKS,
                                     out, cap, next_ns);
    lock_release(&tx->lock);
    return count;
}

int64_t tx_check_step(struct tx *tx, int64_t now_ns)
{
    enum { BATCH = 64 };
    struct tx_entry due[BATCH];
    size_t looked_at = 0;
    while (tx_is_open(tx)) {
        int64_t next_ns = SCHED_NEVER;
        size_t count = take_due(tx, now_ns, due, BATCH, &next_ns);
        for (size_t i = 0; i < count; i++)
            if (look_at(tx, &due[i]) == LOOKED_BUSY) /* others are not: they go on */
                put_off(tx, due[i].half_off, BUSY_RETRY_MS, false);
        looked_at += count;
        if (next_ns > now_ns || looked_at >= TX_AT_ONCE)
            return next_ns; /* goes on at once after whoever else waits for the task's thread */
    }
    return SCHED_NEVER;
}
