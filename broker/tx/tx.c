/* Life, the task, half messages on their way, and what tools ask. */
#include "broker/tx/tx_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/ha/ha.h"

enum {
    IDLE_MS = 1000,
    RETRY_MS = 1000,
    DRAIN_MS = 20,
    LIST_SLICE = 1024 /* entries looked at under the lock at a time */
};

bool tx_is_open(struct tx *tx)
{
    struct ha *ha = atomic_load_explicit(&tx->broker->ha, memory_order_acquire);
    return ha && ha_state(ha) == TERN__WIRE__HA_STATE__HA_OPEN;
}

/* ---- what is under way ---- */

void tx_op_begin(struct tx *tx, struct tx_op *op)
{
    struct store_positions at;
    store_positions(tx->broker->store, &at);
    op->from = at.appended;
    lock_acquire(&tx->lock);
    DL_APPEND(tx->ops, op);
    lock_release(&tx->lock);
}

void tx_op_end(struct tx *tx, struct tx_op *op)
{
    DL_DELETE(tx->ops, op);
    tx->changed = true;
}

void tx_wake_by(struct tx *tx, int64_t time_ns)
{
    if (time_ns >= tx->wake_ns)
        return;
    tx->wake_ns = time_ns;
    if (tx->task)
        task_wake(tx->task);
}

enum tern_code tx_read_bytes(struct tx *tx, int64_t phys_off, uint8_t *bytes, size_t size,
                             bool nowait)
{
    for (size_t done = 0; done < size;) {
        size_t got = 0;
        enum tern_code code = store_read_bytes(tx->broker->store, phys_off + (int64_t)done,
                                               bytes + done, size - done, nowait, &got);
        if (code != TERN_OK)
            return code;
        if (got == 0)
            return TERN_NOT_FOUND;
        done += got;
    }
    return TERN_OK;
}

/* ---- half messages ---- */

enum tern_code tx_half_begin(struct tx *tx, struct tx_sending *sending, struct tern_error *err)
{
    const struct broker_config *config = &tx->broker->config;
    struct store_positions at;
    if (config->reject_transactions)
        return error_set(err, TERN_NO_PERMISSION,
                         "broker %s takes no transactional messages (rejectTransactionMessage)",
                         config->broker_name);
    store_positions(tx->broker->store, &at);
    sending->op.from = at.appended;
    lock_acquire(&tx->lock);
    bool ready = tx->ready;
    size_t open = tx_table_open(&tx->table) + tx->sending;
    bool full = open >= (uint64_t)config->transaction_pending_max;
    bool room = ready && !full && tx_table_reserve(&tx->table, tx->sending + 1);
    if (room) {
        tx->sending++;
        DL_APPEND(tx->ops, &sending->op);
    }
    lock_release(&tx->lock);
    if (room)
        return TERN_OK;
    if (!ready)
        return error_set(err, TERN_SYSTEM_BUSY,
                         "broker %s is reading its log for pending transactions: send again",
                         config->broker_name);
    if (full)
        return error_set(err, TERN_SYSTEM_BUSY,
                         "%zu transactions are pending on %s, the limit transactionPendingMax "
                         "%" PRId64 ": end some, or see mqadmin transactions",
                         open, config->broker_name, config->transaction_pending_max);
    return error_set(err, TERN_NO_MEMORY, "no memory for a transaction");
}

/* When a half message that was stored at store_ms is asked about first. */
static int64_t first_check_ns(struct tx *tx, int64_t immunity_ms)
{
    int64_t wait_ms = tx->broker->config.transaction_timeout_ms;
    return clock_mono_ns(tx->env.clock) + ms_to_ns(immunity_ms > wait_ms ? immunity_ms : wait_ms);
}

void tx_half_end(struct tx *tx, struct tx_sending *sending, const struct store_append *append)
{
    bool stored = append && append->result == TERN_OK;
    struct tx_entry entry = {.check_ns = first_check_ns(tx, sending->immunity_ms),
                             .state = TX_PENDING};
    if (stored) {
        entry.half_off = append->first_queue_off;
        entry.phys_off = append->first_phys_off;
        entry.store_ms = append->store_ms;
        entry.size = append->size_bytes;
        counter_add(&tx->halves, 1);
    }
    lock_acquire(&tx->lock);
    tx->sending--;
    tx_op_end(tx, &sending->op);
    if (stored) {
        tx_table_add(&tx->table, &entry);
        tx_wake_by(tx, entry.check_ns);
    }
    lock_release(&tx->lock);
}

/* ---- the task ---- */

/* Reads the log when the master has opened and nothing of before is under way. */
static bool make_ready(struct tx *tx, int64_t now_ns, int64_t *next_ns)
{
    struct tern_error err = {.text = ""};
    lock_acquire(&tx->lock);
    bool ready = tx->ready;
    bool busy = tx->ops != NULL;
    lock_release(&tx->lock);
    if (ready)
        return true;
    *next_ns = now_ns + ms_to_ns(busy ? DRAIN_MS : IDLE_MS);
    if (busy || !tx_is_open(tx))
        return false;
    if (now_ns < tx->recover_ns) {
        *next_ns = tx->recover_ns;
        return false;
    }
    enum tern_code code = tx_recover(tx, &err);
    if (code == TERN_OK) {
        tx->snapshot_ns = now_ns + ms_to_ns(TX_SNAPSHOT_MS);
        return true;
    }
    if (code != TERN_AGAIN)
        log_error(tx->env.log, "transactions_not_read", "code=%s cause=\"%s\"",
                  tern_code_name(code), error_text(&err, code));
    tx->recover_ns = now_ns + ms_to_ns(RETRY_MS);
    *next_ns = tx->recover_ns;
    return false;
}

static void write_snapshot(struct tx *tx)
{
    struct tern_error err = {.text = ""};
    lock_acquire(&tx->lock);
    bool wanted = tx->ready && tx->changed;
    tx->changed = false;
    lock_release(&tx->lock);
    if (!wanted)
        return;
    tx_place_step(tx);
    enum tern_code code = tx_file_write(tx, &err);
    if (code == TERN_OK)
        return;
    log_error(tx->env.log, "transactions_not_persisted", "code=%s cause=\"%s\"",
              tern_code_name(code), error_text(&err, code));
    lock_acquire(&tx->lock);
    tx->changed = true;
    lock_release(&tx->lock);
}

static int64_t tx_step(void *arg, int64_t now_ns)
{
    struct tx *tx = arg;
    int64_t next_ns;
    lock_acquire(&tx->lock);
    tx->wake_ns = SCHED_NEVER; /* what comes during this step sets its own */
    lock_release(&tx->lock);
    if (!make_ready(tx, now_ns, &next_ns))
        return next_ns;
    next_ns = tx_check_step(tx, now_ns);
    if (now_ns >= tx->snapshot_ns) {
        write_snapshot(tx);
        tx->snapshot_ns = now_ns + ms_to_ns(TX_SNAPSHOT_MS);
    }
    lock_acquire(&tx->lock);
    if (tx->changed && tx->snapshot_ns < next_ns)
        next_ns = tx->snapshot_ns;
    if (next_ns < tx->wake_ns)
        tx->wake_ns = next_ns;
    next_ns = tx->wake_ns;
    lock_release(&tx->lock);
    return next_ns;
}

void tx_on_state(struct tx *tx, bool open)
{
    lock_acquire(&tx->lock);
    if (!open) {
        tx->ready = false;
        tx->closings++;
    }
    if (tx->task)
        task_wake(tx->task);
    lock_release(&tx->lock);
}

/* ---- what tools ask ---- */

/* Looks at the next entries behind *after, which becomes the last of them; INT64_MAX: the end. */
static size_t list_slice(struct tx *tx, enum tx_state state, int64_t *after, struct tx_entry *out,
                         size_t cap)
{
    size_t count = 0;
    size_t seen = 0;
    lock_acquire(&tx->lock);
    const struct tx_entry *e = tx_table_after(&tx->table, *after);
    for (; e && count < cap && seen < LIST_SLICE; e = tx_table_next(&tx->table, e), seen++) {
        *after = e->half_off;
        if (e->state == state || (state == TX_PENDING && e->state == TX_ENDING))
            out[count++] = *e;
    }
    if (!e)
        *after = INT64_MAX;
    lock_release(&tx->lock);
    return count;
}

size_t tx_list(struct tx *tx, enum tx_state state, int64_t after, struct tx_entry *out, size_t cap,
               uint64_t *total, struct tern_error *err)
{
    size_t count = 0;
    lock_acquire(&tx->lock);
    bool ready = tx->ready;
    *total = state == TX_PENDING ? tx_table_open(&tx->table) : tx->table.of[state];
    lock_release(&tx->lock);
    while (count < cap && after != INT64_MAX)
        count += list_slice(tx, state, &after, out + count, cap - count);
    if (!ready)
        error_set(err, TERN_SERVICE_NOT_AVAILABLE,
                  "%s knows of no transactions now: it is no open master, or is still reading its "
                  "log",
                  tx->broker->config.broker_name);
    else
        err->code = TERN_OK;
    return count;
}

void tx_status(struct tx *tx, struct tx_status *out)
{
    lock_acquire(&tx->lock);
    out->ready = tx->ready;
    out->pending = tx_table_open(&tx->table);
    out->discarded_kept = tx->table.of[TX_DISCARDED];
    lock_release(&tx->lock);
    out->read_from = atomic_load(&tx->read_from);
    out->read_left = atomic_load(&tx->read_left);
    out->halves = counter_get(&tx->halves);
    out->committed = counter_get(&tx->committed);
    out->rolled_back = counter_get(&tx->rolled_back);
    out->discarded = counter_get(&tx->discarded);
    out->checks = counter_get(&tx->checks);
    out->not_asked = counter_get(&tx->not_asked);
    out->lost = counter_get(&tx->lost);
    out->damaged = counter_get(&tx->damaged);
}

/* ---- life ---- */

enum tern_code tx_create(struct broker *broker, struct tx **out)
{
    struct tx *tx = calloc(1, sizeof *tx);
    *out = tx;
    if (!tx)
        return TERN_NO_MEMORY;
    tx->broker = broker;
    tx->env = broker->env;
    tx->wake_ns = SCHED_NEVER;
    lock_init(&tx->lock, LOCK_BROKER_TX);
    tx_table_init(&tx->table);
    return TERN_OK;
}

enum tern_code tx_start(struct tx *tx)
{
    struct task *task;
    enum tern_code code = task_start(tx->env.sched, "broker-tx", tx_step, tx, &task);
    lock_acquire(&tx->lock);
    tx->task = code == TERN_OK ? task : NULL;
    lock_release(&tx->lock);
    if (code == TERN_OK)
        task_wake(task); /* for what came between its first step and now */
    return code;
}

void tx_stop(struct tx *tx)
{
    if (!tx)
        return;
    lock_acquire(&tx->lock);
    struct task *task = tx->task;
    tx->task = NULL;
    lock_release(&tx->lock);
    task_stop(task);
}

void tx_persist(struct tx *tx)
{
    if (tx && tx->broker->store && tx_is_open(tx))
        write_snapshot(tx);
}

void tx_destroy(struct tx *tx)
{
    if (!tx)
        return;
    tx_stop(tx);
    tx_table_fini(&tx->table);
    lock_fini(&tx->lock);
    free(tx);
}
