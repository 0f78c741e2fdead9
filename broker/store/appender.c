/*
 * The append token: one appender at a time, on whichever thread came first.
 *
 * Place: step 3 of a message's way. In: whole records, checked, without offsets. Out: the same
 * records in the log, with queue offset, physical offset and store time, dispatched when dispatch
 * had caught up, answered.
 *
 *   submit ──► queue ──► run: admit, stamp ──► one pwritev ──► publish end ──► wake flusher
 *                                                                  └──► dispatch ──► answer ──►
 * notify
 *
 *   token      FREE ──submit──► CALLER ──4 MiB, 2 ms, slow write, no segment──► TASK
 *                ▲                 │ queue empty                                 │ queue empty
 *                └─────────────────┴─────────────────────────────────────────────┘
 *
 * A token that is free may also be held for something else: appending the bytes of another log, a
 * cut, a deletion (append_bytes.c). Requests queue up meanwhile.
 *
 * Invariants:
 *   - Only the token's holder touches the run, the active segment and the queues' next offsets. The
 * lock guards the queue and the token's state and orders one holder after the other.
 *   - An offset is given out only to a request that is going to be written: everything that can
 * refuse it (not whole records of its queue, latch, full disk, deleted topic, size, no segment) is
 * asked before. If the write then fails, the offsets go back.
 *   - A request lies in one segment with RECORD_BLANK_BYTES to spare; what is left of a segment is
 * headed by a filler, written in the same call as the records before it, after the next segment was
 * moved in.
 *   - Store times never go backwards in the log, whatever the wall clock does.
 *   - on_appended is called once per request, without locks; the request is not touched afterwards.
 *
 * Threads: submit from any. The callbacks run while the token is held: an append made from one
 * joins the queue and is served by the same holder. Nothing here allocates.
 *
 * Failure modes: a failed write latches the store, also when it was for lack of space in a segment
 * whose blocks were reserved: what lies behind the end is unknown then, and only recovery may find
 * out. No next segment: the requests that need it are refused with the preparer's code, smaller
 * ones go on.
 */
#include "broker/store/appender_internal.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "broker/store/dispatcher.h"
#include "broker/store/flusher.h"
#include "broker/store/next_offsets.h"
#include "broker/store/queue_table.h"

enum { SYS_FLAG_AT = 36 }; /* in a record */

/* ---- building a run ---- */

static void set_refused(struct store_append *append, enum tern_code code)
{
    append->result = code;
    append->first_queue_off = 0;
    append->first_phys_off = 0;
    append->end_phys_off = 0;
    append->store_ms = 0;
}

/* Puts a request aside with its code, to be answered with the run. */
static void refuse(struct appender *a, struct store_append *append, enum tern_code code)
{
    set_refused(append, code);
    append->next = a->run.refused;
    a->run.refused = append;
    a->run.refused_count++;
    a->run.refused_bytes += append->size_bytes;
}

/* Whether records of this type take a place in their queue. */
static bool takes_offset(uint32_t sys_flag)
{
    uint32_t type = sys_flag & SYS_TX_MASK;
    return type != SYS_TX_PREPARED && type != SYS_TX_ROLLBACK;
}

/* Gives the request its offsets and time, in its own buffer. */
static void stamp(struct appender *a, struct store_append *append, int64_t phys_off)
{
    struct run *run = &a->run;
    int64_t next = consume_queue_next(append->queue);
    run->prior_next[run->count] = next;
    append->first_phys_off = phys_off;
    append->end_phys_off = phys_off + append->size_bytes;
    append->first_queue_off = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < append->count; i++) {
        uint8_t *record = append->records + at;
        uint32_t size = get_be32(record); /* as checked by is_whole() */
        bool takes = takes_offset(get_be32(record + SYS_FLAG_AT));
        if (i == 0 && takes)
            append->first_queue_off = next;
        record_stamp_position(record, takes ? next++ : 0, phys_off + at);
        record_stamp_store_time(record, run->store_ms);
        at += size;
    }
    ENSURE(at == append->size_bytes);
    consume_queue_set_next(append->queue, next);
}

enum tern_code appender_segment_at(struct appender *a, int64_t base, bool may_wait,
                                   struct segment **out)
{
    *out = segments_find(&a->options.log->segments, base);
    return *out ? TERN_OK : preparer_take(a->options.preparer, base, may_wait, out);
}

/*
 * Gets the segment behind the active one for this run; TERN_AGAIN leaves the run starved. Other
 * codes are what the request is refused with; the gate keeps the cause for its text.
 */
static enum tern_code take_next(struct appender *a, bool caller)
{
    int64_t began_ns = clock_mono_ns(a->env->clock);
    enum tern_code code = appender_segment_at(a, appender_active_end(a), !caller, &a->run.next);
    if (code == TERN_AGAIN)
        a->run.starved = true;
    if (code == TERN_OK)
        histogram_add(&a->stats.switch_ns, clock_mono_ns(a->env->clock) - began_ns);
    bool as_is =
        code == TERN_OK || code == TERN_AGAIN || code == TERN_NO_SPACE || code == TERN_NO_MEMORY;
    return as_is ? code : TERN_SERVICE_NOT_AVAILABLE;
}

/* Ends the run with the filler up to the segment's end. */
static void add_filler(struct appender *a, int64_t phys_off)
{
    put_be32(a->filler, (uint32_t)(appender_active_end(a) - phys_off));
    put_be32(a->filler + 4, BLANK_MAGIC);
    a->run.iov[a->run.count] = (struct iovec){a->filler, sizeof a->filler};
}

/* After bytes were appended or cut: what the queues give out next follows from the log. */
static enum tern_code find_offsets(struct appender *a)
{
    struct dispatcher *dispatcher = a->options.dispatcher;
    int64_t from = dispatcher_position(dispatcher); /* before the queues are looked at */
    queue_table_settle(a->options.queues);
    enum tern_code code =
        next_offsets_follow(a->options.log, a->options.queues, a->options.deletions, from, a->end);
    a->offsets_unknown = code != TERN_OK;
    if (code)
        log_error(a->env->log, "store.next_offsets_unknown", "from=%lld end=%lld code=%s",
                  (long long)from, (long long)a->end, tern_code_name(code));
    return code == TERN_NO_MEMORY || code == TERN_LIMIT || !code ? code
                                                                 : TERN_SERVICE_NOT_AVAILABLE;
}

/* Takes requests from todo until the run is full or the segment is. */
static void build_run(struct appender *a, bool caller)
{
    struct run *run = &a->run;
    run->count = 0;
    run->bytes = 0;
    run->next = NULL;
    run->refused = NULL;
    run->refused_count = 0;
    run->refused_bytes = 0;
    run->starved = a->offsets_unknown && caller;
    if (run->starved)
        return; /* finding them out may have to wait for the disk: the task does it */
    enum tern_code gate = gate_check_own(a->options.gate);
    if (!gate && a->frame.start != a->end)
        gate = TERN_SERVICE_NOT_AVAILABLE; /* a copy's log that ends inside a record */
    if (!gate && a->offsets_unknown)
        gate = find_offsets(a);
    int64_t last_ms = atomic_load_explicit(&a->options.log->last_store_ms, memory_order_relaxed);
    run->store_ms = clock_wall_ms(a->env->clock);
    if (run->store_ms < last_ms)
        run->store_ms = last_ms;
    while (a->todo && run->count < APPEND_RUN_REQUESTS) {
        struct store_append *append = a->todo;
        int64_t size = append->size_bytes;
        int64_t phys_off = a->end + run->bytes;
        enum tern_code code = gate;
        if (!code && consume_queue_dead(append->queue))
            code = TERN_TOPIC_NOT_EXIST; /* before a queue of the same name gives out offsets */
        if (!code && consume_queue_next(append->queue) > QUEUE_OFFSET_MAX - append->count)
            code = TERN_LIMIT;
        if (!code && size + RECORD_BLANK_BYTES > a->options.log->segments.bytes)
            code = TERN_TOO_LARGE;
        if (!code && run->count > 0 && run->bytes + size > APPEND_RUN_BYTES)
            return;
        if (!code && size + RECORD_BLANK_BYTES > appender_active_end(a) - phys_off) {
            code = take_next(a, caller);
            if (run->next)
                add_filler(a, phys_off);
            if (run->next || run->starved)
                return;
        }
        a->todo = append->next;
        if (code) {
            refuse(a, append, code);
            continue;
        }
        stamp(a, append, phys_off);
        run->requests[run->count] = append;
        run->iov[run->count++] = (struct iovec){append->records, (size_t)size};
        run->bytes += size;
    }
}

/* ---- writing it ---- */

/* The write failed: nothing of the run counts, its offsets go back in reverse order. */
static void take_back(struct appender *a, enum tern_code code)
{
    struct run *run = &a->run;
    gate_latch(a->options.gate, code, "a write to the commit log failed");
    while (run->count > 0) {
        struct store_append *append = run->requests[--run->count];
        consume_queue_set_next(append->queue, run->prior_next[run->count]);
        refuse(a, append, TERN_SERVICE_NOT_AVAILABLE);
    }
    segment_unref(run->next); /* stays behind the end, empty; recovery removes it */
    run->next = NULL;
}

/* Makes the next segment the active one. */
static void switch_segment(struct appender *a)
{
    segment_unref(a->active);
    a->active = a->run.next;
    a->run.next = NULL;
    a->want_told = false;
}

void appender_want_next(struct appender *a)
{
    if (!a->want_told && a->end - a->active->base >= a->options.log->segments.bytes / 2) {
        a->want_told = true;
        preparer_want(a->options.preparer);
    }
}

/* Writes the run and publishes the new end. */
static void write_run(struct appender *a)
{
    struct run *run = &a->run;
    int64_t end = run->next ? appender_active_end(a) : a->end + run->bytes;
    if (end == a->end)
        return;
    int64_t at = a->end - a->active->base;
    int64_t began_ns = clock_mono_ns(a->env->clock);
    enum tern_code code =
        file_pwritev(a->active->file, run->iov, run->count + (run->next ? 1 : 0), at);
    int64_t now_ns = clock_mono_ns(a->env->clock);
    a->write_took_ns = now_ns - began_ns;
    histogram_add(&a->stats.write_ns, a->write_took_ns);
    if (code) {
        take_back(a, code);
        return;
    }
    a->end = end;
    a->frame.start = end;
    commit_log_publish(a->options.log, end, end, run->count > 0 ? run->store_ms : 0);
    flusher_appended(a->options.flusher);
    uint64_t records = 0;
    for (int i = 0; i < run->count; i++) {
        histogram_add(&a->stats.wait_ns, now_ns - run->requests[i]->store_ms);
        records += run->requests[i]->count;
    }
    counter_add(&a->stats.requests, (uint64_t)run->count);
    counter_add(&a->stats.records, records);
    counter_add(&a->stats.bytes, (uint64_t)run->bytes);
    if (run->next)
        switch_segment(a);
    appender_want_next(a);
}

/* Dispatches and answers what was written, answers what was refused. @locks none */
static void finish_run(struct appender *a)
{
    struct run *run = &a->run;
    const struct store_observer *observer = &a->options.gate->observer;
    if (observer->on_end && run->count > 0)
        observer->on_end(observer->arg, a->end);
    for (int i = 0; i < run->count; i++) {
        const struct store_append *append = run->requests[i];
        dispatcher_offer(a->options.dispatcher, append->first_phys_off, append->records,
                         append->size_bytes);
    }
    lock_acquire(&a->lock);
    a->queued -= (uint32_t)run->count + run->refused_count;
    a->queued_bytes -= run->bytes + run->refused_bytes;
    lock_release(&a->lock);
    for (int i = 0; i < run->count; i++) {
        struct store_append *append = run->requests[i];
        append->result = TERN_OK;
        append->store_ms = run->store_ms;
        append->on_appended(append);
    }
    if (run->count > 0)
        dispatcher_notify(a->options.dispatcher);
    counter_add(&a->stats.failed, run->refused_count);
    while (run->refused) {
        struct store_append *append = run->refused;
        run->refused = append->next;
        append->on_appended(append);
    }
}

/* ---- the token ---- */

/* Takes the whole queue; false: the token is gone, freed by an empty one or to who waits for it. */
static bool take_queue(struct appender *a)
{
    lock_acquire(&a->lock);
    bool promised = a->hold_wanted > 0;
    bool any = !promised && a->head; /* not to be looked at again once the token is free */
    if (any) {
        a->todo = a->head;
        a->head = NULL;
        a->tail = &a->head;
    } else {
        a->token = promised ? TOKEN_PROMISED : TOKEN_FREE;
    }
    lock_release(&a->lock);
    return any;
}

/* Gives the token to the task, or frees it when nothing is left. */
static void hand_over(struct appender *a)
{
    lock_acquire(&a->lock);
    bool rest = a->todo || a->head;
    a->token = rest ? TOKEN_TASK : TOKEN_FREE;
    lock_release(&a->lock);
    if (rest)
        task_wake(a->task);
}

/* Appends until the queue is empty, or a calling thread has done its share. @locks none */
static void hold_token(struct appender *a, bool caller, int64_t began_ns)
{
    int64_t written = 0;
    for (;;) {
        if (!a->todo && !take_queue(a))
            return;
        a->write_took_ns = 0;
        build_run(a, caller);
        write_run(a);
        bool starved = a->run.starved;
        written += a->run.bytes;
        finish_run(a);
        if (!caller && starved)
            return; /* the token stays with the task until the preparer wakes it */
        if (caller &&
            (starved || written >= APPEND_CALLER_BYTES || a->write_took_ns > APPEND_CALLER_NS ||
             clock_mono_ns(a->env->clock) - began_ns > APPEND_CALLER_NS)) {
            hand_over(a);
            return;
        }
    }
}

/* @thread the task's */
static int64_t appender_step(void *arg, int64_t now_ns)
{
    struct appender *a = arg;
    lock_acquire(&a->lock);
    bool mine = a->token == TOKEN_TASK;
    lock_release(&a->lock);
    if (mine)
        hold_token(a, false, now_ns);
    return SCHED_NEVER;
}

/*
 * Whether the request is what it says: so many whole records of its queue. What a client prepared
 * was checked by the handler; here it decides only whether the log stays readable. @thread any
 */
static bool is_whole(const struct store_append *append)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < append->count; i++) {
        struct record record;
        uint32_t left = append->size_bytes - at;
        if (record_parse(append->records + at, left, left, false, &record) != RECORD_WHOLE ||
            !consume_queue_is_of(append->queue, &record))
            return false;
        at += record.total_size;
    }
    return at == append->size_bytes && at > 0;
}

/* Answers a request that did not join the queue. @locks none */
static void turn_away(struct appender *a, struct store_append *append, enum tern_code code)
{
    set_refused(append, code);
    counter_add(&a->stats.failed, 1);
    append->on_appended(append);
}

void appender_submit(struct appender *a, struct store_append *append)
{
    if (!is_whole(append)) {
        turn_away(a, append, TERN_MESSAGE_ILLEGAL);
        return;
    }
    int64_t now_ns = clock_mono_ns(a->env->clock);
    append->next = NULL;
    append->store_ms = now_ns; /* until it is stamped: when it joined */
    lock_acquire(&a->lock);
    bool room = a->queued < APPEND_REQUESTS_MAX &&
                (a->queued == 0 || a->queued_bytes + append->size_bytes <= APPEND_BYTES_MAX);
    bool taken = room && a->token == TOKEN_FREE;
    if (room) {
        *a->tail = append;
        a->tail = &append->next;
        a->queued++;
        a->queued_bytes += append->size_bytes;
    }
    if (taken)
        a->token = TOKEN_CALLER;
    lock_release(&a->lock);
    if (!room)
        turn_away(a, append, TERN_LIMIT);
    if (taken)
        hold_token(a, true, now_ns);
}

void appender_wake(struct appender *a)
{
    task_wake(a->task);
}

const struct appender_stats *appender_stats(const struct appender *a)
{
    return &a->stats;
}

/* ---- life ---- */

enum tern_code appender_create(const struct env *env, const struct appender_options *options,
                               struct appender **out)
{
    *out = NULL;
    struct appender *a = calloc(1, sizeof *a);
    if (!a)
        return TERN_NO_MEMORY;
    a->env = env;
    a->options = *options;
    a->tail = &a->head;
    a->token = TOKEN_FREE;
    a->end = commit_log_end(options->log);
    a->active = segments_last(&options->log->segments);
    ENSURE(a->active && a->end >= a->active->base && a->end < appender_active_end(a));
    log_frame_init(&a->frame, options->log->segments.bytes, a->end);
    lock_init(&a->lock, LOCK_STORE_APPEND);
    *out = a; /* the first step may come before task_start() returns */
    enum tern_code code = task_start(env->sched, "store-append", appender_step, a, &a->task);
    if (code) {
        appender_destroy(a);
        *out = NULL;
    }
    return code;
}

void appender_destroy(struct appender *a)
{
    if (!a)
        return;
    task_stop(a->task);
    ENSURE(a->queued == 0);
    segment_unref(a->active);
    lock_fini(&a->lock);
    free(a);
}
